//! Draws operations and questions that meet: few names, few users, few clients, few bytes, and mostly what is there.
//!
//! What is drawn depends on the model, so that a shorter history of the same dice is still one that makes sense.

use base::{ClientId, Epoch, Members, NodeId, Seq, WallTime};
use namespace::{Born, ClientState, InodeId, Kind, Name, Rights, Site, Who, XattrName};

use crate::state::{Model, Node};

/// What one step is drawn from.
pub(crate) type Throw = [u8; 32];

/// So many clients there are.
pub(crate) const CLIENTS: usize = 4;

/// Dice that have been thrown, in order; zeros behind them.
pub(crate) struct Dice<'t> {
    left: &'t [u8],
    pub(crate) model: &'t Model,
    pub(crate) now: u64,
}

impl<'t> Dice<'t> {
    pub(crate) fn new(throw: &'t Throw, model: &'t Model, now: u64) -> Self {
        Self { left: throw, model, now }
    }

    /// A number below `sides`.
    pub(crate) fn below(&mut self, sides: usize) -> usize {
        let Some((&die, left)) = self.left.split_first() else { return 0 };
        self.left = left;
        usize::from(die) * sides / 256
    }

    /// One time in so many, and not if the die shows the least.
    pub(crate) fn once_in(&mut self, sides: usize) -> bool {
        self.below(sides) == sides - 1
    }

    pub(crate) fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    pub(crate) fn who(&mut self) -> Who {
        let who = |uid, gid, groups: &[u32]| Who::new(uid, gid, groups).expect("few groups");
        match self.below(8) {
            0..=3 => Who::root(),
            4 | 5 => who(1001, 100, &[200]),
            6 => who(1002, 100, &[]),
            _ => who(1003, 300, &[200]),
        }
    }

    /// A client, most often one that has not ended.
    pub(crate) fn client(&mut self) -> ClientId {
        let (any, is_any) = (client(self.below(CLIENTS)), self.once_in(12));
        let has_ended = |client: &ClientId| self.model.has_ended(*client);
        if is_any || !has_ended(&any) {
            return any;
        }
        (0..CLIENTS).map(client).find(|client| !has_ended(client)).unwrap_or(any)
    }

    /// A client that has ended or has nothing but a cache, if there is one.
    pub(crate) fn ended(&mut self) -> ClientId {
        let any = self.client();
        let is_it = |state| matches!(state, ClientState::Caching | ClientState::Ended);
        let ended = self.model.clients.iter().find(|(_, state)| is_it(**state));
        ended.filter(|_| !self.once_in(8)).map_or(any, |(client, _)| *client)
    }

    pub(crate) fn clients(&mut self) -> Vec<ClientId> {
        let (is_any, bits) = (self.below(2) == 1, self.below(1 << CLIENTS));
        (0..CLIENTS).filter(|at| is_any && bits >> at & 1 == 1).map(client).collect()
    }

    pub(crate) fn time(&mut self) -> WallTime {
        WallTime::from_micros(1000 + 10 * self.now + self.below(40) as u64)
    }

    pub(crate) fn name(&mut self) -> Name {
        let names = ["a", "b", "c", "d", "a name that is too long to be kept in place"];
        Name::new(self.pick(&names).as_bytes()).expect("a name")
    }

    /// One of those that fit, if there are any, most of the time.
    pub(crate) fn one(&mut self, fits: impl Fn(&Node) -> bool) -> InodeId {
        let (astray, place) = (self.below(20), self.below(256));
        let all: Vec<InodeId> = self.model.nodes.keys().copied().collect();
        let fitting: Vec<InodeId> =
            all.iter().copied().filter(|inode| fits(&self.model.nodes[inode])).collect();
        match astray {
            19 => unknown(self.model),
            0..=17 if !fitting.is_empty() => fitting[place % fitting.len()],
            _ => all[place % all.len()],
        }
    }

    pub(crate) fn inode(&mut self) -> InodeId {
        self.one(|_| true)
    }

    pub(crate) fn dir(&mut self) -> InodeId {
        self.one(Node::is_directory)
    }

    pub(crate) fn of_kind(&mut self, kind: Kind) -> InodeId {
        self.one(|node| node.kind == kind)
    }

    pub(crate) fn lent(&mut self) -> InodeId {
        self.one(|node| node.lent.is_some())
    }

    pub(crate) fn held(&mut self) -> InodeId {
        self.one(|node| !node.holders.is_empty())
    }

    pub(crate) fn waited_for(&mut self) -> InodeId {
        self.one(|node| !node.queue.is_empty())
    }

    /// A file, most often one of the first two, so that locks meet.
    pub(crate) fn locked(&mut self) -> InodeId {
        let files = self.model.nodes.iter().filter(|(_, node)| node.kind == Kind::File);
        let few: Vec<InodeId> = files.map(|(inode, _)| *inode).take(2).collect();
        match self.below(8) {
            7 => self.inode(),
            _ if few.is_empty() => self.inode(),
            _ => self.pick(&few),
        }
    }

    /// A name that is there, most of the time, of something that fits, and what it is taken to name.
    pub(crate) fn site(&mut self, fits: impl Fn(&Node) -> bool) -> Site {
        let (dir, name, is_there) = (self.dir(), self.name(), self.below(6) > 0);
        let (expect, other, place) = (self.below(8), self.inode(), self.below(256));
        let nodes = &self.model.nodes;
        let all = nodes
            .iter()
            .flat_map(|(dir, node)| node.children.iter().map(|(name, child)| (*dir, name, *child)));
        let fitting: Vec<(InodeId, &Name, InodeId)> =
            all.filter(|(_, _, child)| nodes.get(child).is_some_and(&fits)).collect();
        let (dir, name, inode) = match fitting.len() {
            count if count > 0 && is_there => {
                let (dir, name, inode) = fitting[place % count];
                (dir, name.clone(), inode)
            }
            _ => (dir, name, other),
        };
        match expect {
            6 => Site::new(dir, name).naming(inode),
            7 if other == InodeId::ROOT => Site::new(dir, name).free(),
            7 => Site::new(dir, name).naming(other),
            _ => Site::new(dir, name),
        }
    }

    /// A name of which most are free.
    pub(crate) fn target_site(&mut self) -> Site {
        if self.below(2) == 0 {
            let (dir, name) = (self.dir(), self.name());
            Site::new(dir, name)
        } else {
            self.site(|_| true)
        }
    }

    pub(crate) fn mode(&mut self) -> u16 {
        let modes: [u16; 16] = [
            0o777, 0o777, 0o777, 0o755, 0o775, 0o700, 0o644, 0o600, 0o4755, 0o2755, 0o2745, 0o6777, 0o1777,
            0o2777, 0o070, 0o007,
        ];
        self.pick(&modes)
    }

    pub(crate) fn xattr_name(&mut self) -> XattrName {
        let names: [&[u8]; 7] = [
            b"user.a",
            b"user.b",
            namespace::ACL_ACCESS,
            namespace::ACL_DEFAULT,
            namespace::CAPABILITY,
            b"security.a",
            b"trusted.a",
        ];
        XattrName::new(self.pick(&names)).expect("a name")
    }

    /// One that an inode has, if any has one.
    pub(crate) fn xattr(&mut self) -> (InodeId, XattrName) {
        let (inode, name, place) = (self.inode(), self.xattr_name(), self.below(256));
        let root = Who::root();
        let has = |inode: &InodeId| self.model.list_xattrs(*inode, &root).unwrap_or_default();
        let all = self.model.nodes.keys().flat_map(|inode| has(inode).into_iter().map(|name| (*inode, name)));
        let all: Vec<(InodeId, XattrName)> = all.collect();
        if all.is_empty() || self.once_in(4) { (inode, name) } else { all[place % all.len()].clone() }
    }

    pub(crate) fn rights(&mut self) -> Rights {
        Rights::from_bits(u16::try_from(self.below(8)).expect("small"))
    }

    pub(crate) fn replicas(&mut self) -> Members {
        let first = u32::try_from(self.below(4)).expect("small");
        Members::new((first..first + 3).map(NodeId)).expect("three nodes")
    }
}

pub(crate) fn client(at: usize) -> ClientId {
    ClientId { certificate: 7 + at as u64 / 2, program: at as u64 }
}

/// What is gone, or was never there.
fn unknown(model: &Model) -> InodeId {
    let gone = model.doomed.keys().next().copied();
    gone.unwrap_or(InodeId { number: 3, epoch: Epoch { number: 9, node: NodeId(9) } })
}

/// The entry that is committed at a step; some belong to a later epoch.
pub(crate) fn born(step: u64) -> Born {
    Born { epoch: Epoch { number: 1 + step / 50, node: NodeId(1) }, seq: Seq(step + 1) }
}
