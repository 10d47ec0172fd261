//! What the state consists of: parts, and the keys that name them.

use std::sync::Arc;

use base::{ClientId, Members, WallTime};
use bytes::Bytes;

use crate::limits::{BYTES_MAX_DEFAULT, INODES_MAX_DEFAULT};
use crate::{
    Attributes, Generation, InodeId, Lent, Locks, Name, Owner, Target, Ticket, VolumeName, XattrName,
};

/// The name of a part. What a directory, an inode or a client has of a kind stands together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// An inode.
    Inode(InodeId),
    /// Counts and limits.
    Volume,
    /// What a name in a directory names.
    Entry(InodeId, Name),
    /// An extended attribute or an ACL of an inode.
    Xattr(InodeId, XattrName),
    /// The locks of a file.
    Locks(InodeId),
    /// That a client holds an orphan.
    Hold(InodeId, ClientId),
    /// That an inode has no name but holders.
    Orphan(InodeId),
    /// That the data of an inode is to be removed everywhere.
    Doomed(InodeId),
    /// That some who wait for locks of a file may have nobody in the way.
    Unsettled(InodeId),
    /// A client.
    Client(ClientId),
    /// That a client holds an orphan, by the client.
    Held(ClientId, InodeId),
    /// That a client has locks of a file or waits for some.
    Locker(ClientId, InodeId),
    /// What an owner waits for.
    Wait(Owner, Ticket),
    /// What the volume is called.
    Name,
    /// That a file is lent to a client.
    Lender(ClientId, InodeId),
}

/// What is in a part. A clone copies little.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// Counts and limits.
    Volume(Arc<Volume>),
    /// An inode.
    Inode(Arc<Inode>),
    /// What a name names.
    Entry(Entry),
    /// The value of an extended attribute.
    Value(Arc<Bytes>),
    /// The locks of a file.
    Locks(Arc<Locks>),
    /// Whose data is to be removed where.
    Doomed(Arc<Doomed>),
    /// A client.
    Client(ClientState),
    /// The file whose lock is waited for.
    Wait(InodeId),
    /// All that there is to say is in the key.
    Mark,
    /// What the volume is called, from when it was planted on.
    Name(Arc<VolumeName>),
}

/// What is in the volume, and what it has room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Volume {
    /// How many inodes there are, the root and those whose data is still to be removed included.
    pub inodes: u64,
    /// How many there may be.
    pub inodes_max: u64,
    /// The sizes of all files together, as far as they are known here: of what is lent, as it was before.
    pub bytes: u128,
    /// From where on no file is created, lent, or made longer; `u64::MAX` is no limit. What was lent before may grow beyond it.
    pub bytes_max: u64,
    /// How many clients are on record.
    pub clients: u32,
}

/// An inode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inode {
    /// The twelve bits of the permissions.
    pub mode: u16,
    /// Whether it has extended attributes that change what may be done with it.
    pub marks: Marks,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// How many names it has; none if it is an orphan.
    pub links: u32,
    /// How many clients hold it, as an orphan.
    pub holders: u32,
    /// How many extended attributes it has.
    pub xattrs: u16,
    /// How many bytes they have, names and values.
    pub xattr_bytes: u32,
    /// When it was read.
    pub atime: WallTime,
    /// When its content changed.
    pub mtime: WallTime,
    /// When anything of it changed.
    pub ctime: WallTime,
    /// When it was created.
    pub btime: WallTime,
    /// What it has as what it is.
    pub body: Body,
}

/// Which extended attributes there are among those that change what may be done with an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Marks {
    /// An access ACL.
    pub acl_access: bool,
    /// A default ACL.
    pub acl_default: bool,
    /// A program's capabilities.
    pub capability: bool,
}

/// What an inode has as what it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// A file.
    File {
        /// Its size, as it was given back last.
        size: u64,
        /// Who replicates it.
        replicas: Members,
        /// The lend that is going on.
        lent: Option<Lent>,
        /// The last one that is over and under which the content may have changed.
        last_lend: Option<Generation>,
    },
    /// A directory.
    Directory {
        /// Where it is. The root is in itself.
        parent: InodeId,
        /// How many names it has.
        entries: u64,
        /// The lend that is going on, to a client.
        lent: Option<Lent>,
    },
    /// A symbolic link.
    Symlink {
        /// Where it leads.
        target: Target,
    },
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A device by characters.
    CharDevice {
        /// Which.
        rdev: u64,
    },
    /// A device by blocks.
    BlockDevice {
        /// Which.
        rdev: u64,
    },
}

/// What an inode is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A device by characters.
    CharDevice,
    /// A device by blocks.
    BlockDevice,
}

/// What a name names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Which inode.
    pub inode: InodeId,
    /// What that is.
    pub kind: Kind,
}

/// Data that is to be removed everywhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Doomed {
    /// Who has it.
    pub replicas: Members,
    /// How much it was, as far as is known here.
    pub size: u64,
}

/// How it stands with a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientState {
    /// It is there, and may have files open.
    Alive,
    /// It may have something in a cache, and has nothing open and nothing locked.
    Caching,
    /// It has ended, and something of it is left.
    Ending,
    /// It has ended, and nothing of it is left.
    Ended,
}

impl Default for Volume {
    fn default() -> Self {
        Self { inodes: 1, inodes_max: INODES_MAX_DEFAULT, bytes: 0, bytes_max: BYTES_MAX_DEFAULT, clients: 0 }
    }
}

impl Inode {
    /// What it is.
    pub const fn kind(&self) -> Kind {
        match self.body {
            Body::File { .. } => Kind::File,
            Body::Directory { .. } => Kind::Directory,
            Body::Symlink { .. } => Kind::Symlink,
            Body::Fifo => Kind::Fifo,
            Body::Socket => Kind::Socket,
            Body::CharDevice { .. } => Kind::CharDevice,
            Body::BlockDevice { .. } => Kind::BlockDevice,
        }
    }

    /// Whether it is a directory.
    pub const fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory { .. })
    }

    /// The lend that is going on.
    pub const fn lent(&self) -> Option<Lent> {
        match self.body {
            Body::File { lent, .. } | Body::Directory { lent, .. } => lent,
            _ => None,
        }
    }

    /// How it is, for whoever asks.
    pub fn attributes(&self, inode: InodeId) -> Attributes {
        let (size, rdev) = match &self.body {
            Body::File { size, .. } => (*size, 0),
            Body::Directory { entries, .. } => (*entries, 0),
            Body::Symlink { target } => (target.as_bytes().len() as u64, 0),
            Body::Fifo | Body::Socket => (0, 0),
            Body::CharDevice { rdev } | Body::BlockDevice { rdev } => (0, *rdev),
        };
        let (lent, last_lend, replicas) = match &self.body {
            Body::File { lent, last_lend, replicas, .. } => (*lent, *last_lend, Some(replicas.clone())),
            Body::Directory { lent, .. } => (*lent, None, None),
            _ => (None, None, None),
        };
        let Self { mode, uid, gid, links, atime, mtime, ctime, btime, .. } = *self;
        let (kind, has_acl) = (self.kind(), self.marks.acl_access);
        Attributes {
            inode,
            kind,
            mode,
            uid,
            gid,
            links,
            rdev,
            size,
            atime,
            mtime,
            ctime,
            btime,
            lent,
            last_lend,
            replicas,
            has_acl,
        }
    }
}

impl Part {
    /// Whether this can be what `key` names. What a peer sends is to be asked this before it is placed.
    pub const fn is_of(&self, key: &Key) -> bool {
        matches!(
            (key, self),
            (Key::Volume, Self::Volume(_))
                | (Key::Inode(_), Self::Inode(_))
                | (Key::Entry(..), Self::Entry(_))
                | (Key::Xattr(..), Self::Value(_))
                | (Key::Locks(_), Self::Locks(_))
                | (Key::Doomed(_), Self::Doomed(_))
                | (Key::Client(_), Self::Client(_))
                | (Key::Wait(..), Self::Wait(_))
                | (Key::Name, Self::Name(_))
                | (Key::Hold(..) | Key::Orphan(_) | Key::Unsettled(_), Self::Mark)
                | (Key::Held(..) | Key::Locker(..) | Key::Lender(..), Self::Mark)
        )
    }
}
