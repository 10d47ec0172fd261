//! A tree as plain maps. What can be found by walking through all of it is not kept: links, orphans, counts.

use std::collections::{BTreeMap, BTreeSet};

use base::{ClientId, Members, WallTime};
use bytes::Bytes;
use namespace::{
    Attributes, ClientState, Fate, Generation, InodeId, Kind, Lent, LockKind, Name, NameError, Owner, Target,
    Volume, Waiting, XattrName, limits,
};

use crate::access::Acl;
use crate::locks::Cells;

/// All that there is.
#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) nodes: BTreeMap<InodeId, Node>,
    pub(crate) doomed: BTreeMap<InodeId, (Members, u64)>,
    pub(crate) clients: BTreeMap<ClientId, ClientState>,
    pub(crate) inodes_max: u64,
    pub(crate) bytes_max: u64,
}

/// An inode.
#[derive(Clone)]
pub(crate) struct Node {
    pub(crate) kind: Kind,
    pub(crate) mode: u16,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) rdev: u64,
    pub(crate) size: u64,
    pub(crate) atime: WallTime,
    pub(crate) mtime: WallTime,
    pub(crate) ctime: WallTime,
    pub(crate) btime: WallTime,
    pub(crate) replicas: Option<Members>,
    pub(crate) lent: Option<Lent>,
    pub(crate) last_lend: Option<Generation>,
    pub(crate) target: Option<Target>,
    pub(crate) children: BTreeMap<Name, InodeId>,
    pub(crate) acl: Option<Acl>,
    pub(crate) default_acl: Option<Acl>,
    pub(crate) xattrs: BTreeMap<XattrName, Bytes>,
    pub(crate) holders: BTreeSet<ClientId>,
    pub(crate) locks: BTreeMap<(LockKind, Owner), Cells>,
    pub(crate) queue: Vec<Waiting>,
}

impl Model {
    pub(crate) fn new() -> Self {
        let root = Node::new(Kind::Directory, 0o755, (0, 0), WallTime::ZERO);
        Self {
            nodes: BTreeMap::from([(InodeId::ROOT, root)]),
            doomed: BTreeMap::new(),
            clients: BTreeMap::new(),
            inodes_max: limits::INODES_MAX_DEFAULT,
            bytes_max: limits::BYTES_MAX_DEFAULT,
        }
    }

    pub(crate) fn node(&self, inode: InodeId) -> Result<&Node, NameError> {
        self.nodes.get(&inode).ok_or(NameError::NoInode { inode })
    }

    pub(crate) fn node_mut(&mut self, inode: InodeId) -> &mut Node {
        self.nodes.get_mut(&inode).expect("it was looked up before")
    }

    pub(crate) fn directory(&self, inode: InodeId) -> Result<&Node, NameError> {
        let node = self.node(inode)?;
        if node.is_directory() { Ok(node) } else { Err(NameError::NotDirectory { inode }) }
    }

    /// How many names lead to it, found by looking at all of them.
    fn names(&self, inode: InodeId) -> usize {
        self.nodes.values().flat_map(|node| node.children.values()).filter(|&&child| child == inode).count()
    }

    pub(crate) fn links(&self, inode: InodeId) -> u32 {
        let names = self.names(inode);
        let node = &self.nodes[&inode];
        let links = match node.is_directory() {
            true if names == 0 && inode != InodeId::ROOT => 0,
            true => 2 + node.children.values().filter(|&child| self.nodes[child].is_directory()).count(),
            false => names,
        };
        u32::try_from(links).expect("few")
    }

    /// Whether a directory is another one or below it.
    pub(crate) fn is_below(&self, inode: InodeId, above: InodeId) -> bool {
        inode == above || self.nodes[&above].children.values().any(|&child| self.is_below(inode, child))
    }

    pub(crate) fn bytes(&self) -> u128 {
        let files = self.nodes.values().filter(|node| node.kind == Kind::File);
        let doomed = self.doomed.values().map(|&(_, size)| u128::from(size));
        files.map(|node| u128::from(node.size)).chain(doomed).sum()
    }

    pub(crate) fn volume(&self) -> Volume {
        Volume {
            inodes: (self.nodes.len() + self.doomed.len()) as u64,
            inodes_max: self.inodes_max,
            bytes: self.bytes(),
            bytes_max: self.bytes_max,
            clients: u32::try_from(self.clients.len()).expect("few"),
        }
    }

    pub(crate) fn orphans(&self) -> Vec<InodeId> {
        self.nodes.keys().copied().filter(|&inode| self.links(inode) == 0).collect()
    }

    pub(crate) fn attributes(&self, inode: InodeId) -> Result<Attributes, NameError> {
        let node = self.node(inode)?;
        Ok(Attributes {
            inode,
            kind: node.kind,
            mode: node.mode,
            uid: node.uid,
            gid: node.gid,
            links: self.links(inode),
            rdev: node.rdev,
            size: match (&node.target, node.is_directory()) {
                (Some(target), _) => target.as_bytes().len() as u64,
                (None, true) => node.children.len() as u64,
                (None, false) => node.size,
            },
            atime: node.atime,
            mtime: node.mtime,
            ctime: node.ctime,
            btime: node.btime,
            lent: node.lent,
            last_lend: node.last_lend,
            replicas: node.replicas.clone(),
            has_acl: node.acl.is_some(),
        })
    }

    /// What becomes of what has lost a name or a holder.
    pub(crate) fn fate(&mut self, inode: InodeId) -> Fate {
        let (links, holders) = (self.links(inode), self.nodes[&inode].holders.len());
        if links > 0 {
            return Fate::Named { links };
        }
        if holders > 0 {
            return Fate::Orphan { holders: u32::try_from(holders).expect("few") };
        }
        let node = self.nodes.remove(&inode).expect("it is there");
        match node.replicas.filter(|_| node.lent.is_some() || node.last_lend.is_some()) {
            Some(replicas) => {
                self.doomed.insert(inode, (replicas, node.size));
                Fate::Doomed
            }
            None => Fate::Gone,
        }
    }

    /// What has lost a name lives on for those who have it open, unless they have ended.
    pub(crate) fn lost_name(&mut self, inode: InodeId, holders: &[ClientId]) -> Result<Fate, NameError> {
        if self.links(inode) == 0 {
            for &client in holders {
                if self.record(client).is_ok() {
                    self.node_mut(inode).holders.insert(client);
                }
            }
        }
        Ok(self.fate(inode))
    }

    /// Has a client on record, unless it has ended.
    pub(crate) fn record(&mut self, client: ClientId) -> Result<(), NameError> {
        if self.has_ended(client) {
            return Err(NameError::Expired { client });
        }
        self.clients.insert(client, ClientState::Alive);
        Ok(())
    }
}

impl Node {
    pub(crate) fn new(kind: Kind, mode: u16, (uid, gid): (u32, u32), time: WallTime) -> Self {
        Self {
            kind,
            mode,
            uid,
            gid,
            rdev: 0,
            size: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            replicas: None,
            lent: None,
            last_lend: None,
            target: None,
            children: BTreeMap::new(),
            acl: None,
            default_acl: None,
            xattrs: BTreeMap::new(),
            holders: BTreeSet::new(),
            locks: BTreeMap::new(),
            queue: Vec::new(),
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Something of it changed.
    pub(crate) fn mark(&mut self, time: WallTime) {
        self.ctime = self.ctime.max(time);
    }

    /// Its content changed.
    pub(crate) fn mark_content(&mut self, time: WallTime) {
        self.mark(time);
        self.mtime = self.ctime;
    }
}
