//! What can be asked about a tree, and the answers.

use std::sync::Arc;

use base::{ClientId, Members, WallTime};
use bytes::Bytes;

use crate::{
    ClientState, Generation, InodeId, Kind, Lent, LentTo, Lock, Locks, Name, Rights, Target, Ticket, Volume,
    Who, Wish, XattrName,
};

/// A question about the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// On whose behalf. It needs to be allowed what [`Ask`] names; the service itself asks as [`Who::root`].
    pub who: Who,
    /// What.
    pub ask: Ask,
}

/// What is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// What has a name. Needs search permission on the directory. [`Answer::Attributes`].
    Lookup {
        /// The directory.
        dir: InodeId,
        /// The name.
        name: Name,
    },
    /// How an inode is. Needs nothing. [`Answer::Attributes`].
    Attributes {
        /// Which.
        inode: InodeId,
    },
    /// What names a directory has, without `.` and `..`. Who lists it has opened it, which [`Ask::Access`] allows, and
    /// may go on whatever its mode says by now. [`Answer::Page`].
    List {
        /// Which directory.
        dir: InodeId,
        /// The names behind this one; it need not be there any more.
        after: Option<Name>,
        /// So many, at most.
        entries_max: u32,
        /// Whether attributes are wanted with them.
        with_attributes: bool,
    },
    /// Where a symbolic link leads. Needs nothing. [`Answer::Target`].
    Readlink {
        /// Which link.
        inode: InodeId,
    },
    /// The value of an extended attribute. For `user.` it needs read permission, for `trusted.` root: others are told
    /// that there is none. [`Answer::Value`].
    GetXattr {
        /// Whose.
        inode: InodeId,
        /// Which.
        name: XattrName,
    },
    /// The names of extended attributes and ACLs, those of `trusted.` for root only. Needs nothing. [`Answer::Names`].
    ListXattrs {
        /// Whose.
        inode: InodeId,
    },
    /// Whether something may be done: what `access`, `open` and `truncate` ask. [`Answer::Attributes`], or refused.
    Access {
        /// To what.
        inode: InodeId,
        /// What.
        rights: Rights,
    },
    /// What is in the volume, and what it has room for. [`Answer::Volume`].
    Statfs,
    /// Which lock is in the way of one, if any: of somebody else, and had, not waited for. [`Answer::InTheWay`].
    TestLock {
        /// Of which file.
        inode: InodeId,
        /// What would be wanted.
        lock: Lock,
    },
    /// What became of a request for a lock. Refused if the owner's client has ended. [`Answer::Wish`].
    Wish {
        /// Of which file.
        inode: InodeId,
        /// What was asked for.
        lock: Lock,
        /// By which name.
        ticket: Ticket,
    },
    /// All locks of a file and who waits. [`Answer::Locks`].
    Locks {
        /// Of which file.
        inode: InodeId,
    },
    /// Inodes without a name that somebody holds. [`Answer::Inodes`].
    Orphans {
        /// Those behind this one.
        after: Option<InodeId>,
    },
    /// What is to be removed everywhere. [`Answer::Doomed`].
    Doomed {
        /// What is behind this.
        after: Option<InodeId>,
    },
    /// The clients on record. [`Answer::Clients`].
    Clients {
        /// Those behind this one.
        after: Option<ClientId>,
    },
    /// The orphans that a client holds. [`Answer::Inodes`].
    Holds {
        /// Which.
        client: ClientId,
        /// Those behind this one.
        after: Option<InodeId>,
    },
}

impl Ask {
    /// The inode by whose permissions alone this is answered or refused.
    pub const fn judged_by(&self) -> Option<InodeId> {
        match self {
            Self::Access { inode, .. } | Self::GetXattr { inode, .. } => Some(*inode),
            _ => None,
        }
    }
}

/// What was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// An inode.
    Attributes(Attributes),
    /// Some names of a directory.
    Page(Page),
    /// Where a link leads.
    Target(Target),
    /// The value of an extended attribute.
    Value(Bytes),
    /// The names of extended attributes.
    Names(Vec<XattrName>),
    /// Counts and limits.
    Volume(Volume),
    /// A lock that is in the way.
    InTheWay(Option<Lock>),
    /// What became of a request for a lock.
    Wish(Wish),
    /// Locks and who waits for some; none if there is neither.
    Locks(Option<Arc<Locks>>),
    /// Inodes, in order. A full page of [`PAGE_MAX`](crate::limits::PAGE_MAX) may have others behind it.
    Inodes(Vec<InodeId>),
    /// What is doomed, and who has its data; as above.
    Doomed(Vec<(InodeId, Members)>),
    /// Clients, as above.
    Clients(Vec<(ClientId, ClientState)>),
}

/// How an inode is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// Which.
    pub inode: InodeId,
    /// What.
    pub kind: Kind,
    /// The twelve bits of the permissions.
    pub mode: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// How many names it has; a directory one, one in itself, and one in each directory within.
    pub links: u32,
    /// Which device, if it is one.
    pub rdev: u64,
    /// Its size: of a file as it was when it was given back last, of a link that of its target, of a directory the number of its
    /// entries.
    pub size: u64,
    /// When it was read last, if anybody has said so.
    pub atime: WallTime,
    /// When its content changed: as with the size.
    pub mtime: WallTime,
    /// When anything of it changed. While it is lent the file's cell may know a later one.
    pub ctime: WallTime,
    /// When it was created.
    pub btime: WallTime,
    /// Which lend of size and times is going on: then whoever has it knows them.
    pub lent: Option<Lent>,
    /// The last one that is over and under which the content may have changed. Equal ones mean equal content, as long as there is none
    /// that is going on. A file that has neither has no content, and no object for it.
    pub last_lend: Option<Generation>,
    /// Who replicates the file, if it is one.
    pub replicas: Option<Members>,
    /// Whether it has an access ACL.
    pub has_acl: bool,
}

impl Attributes {
    /// Whether there may be any content.
    pub const fn may_have_content(&self) -> bool {
        self.lent.is_some() || self.last_lend.is_some()
    }

    /// The lend that is going on, if it is this client's.
    pub fn lent_to(&self, client: ClientId) -> Option<Generation> {
        self.lent.filter(|lent| lent.to == LentTo::Client(client)).map(|lent| lent.generation)
    }
}

/// Some names of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// In order of their bytes.
    pub entries: Vec<Listed>,
    /// Whether there are none behind them.
    pub is_last: bool,
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its name.
    pub name: Name,
    /// What it names.
    pub inode: InodeId,
    /// Of which kind that is.
    pub kind: Kind,
    /// How that is, if it was asked for.
    pub attributes: Option<Attributes>,
}
