//! What things are called that no user names: entries, inodes, lends, waiting requests, owners of locks.

use std::fmt;

use base::{ClientId, Epoch, NodeId, Seq};

/// The entry that something came from, which is also the version of what it changed. Equal ones mean equal histories.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Born {
    /// The epoch of the entry.
    pub epoch: Epoch,
    /// Its place in the log, counted from 1.
    pub seq: Seq,
}

/// An inode, named by the entry that created it; or by the one that lent its directory to the client that did, and a number of that client's. As
/// the epoch is part of it, what a deposed primary created and lost is never taken for something that came later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InodeId {
    /// The place of the entry in the log. From 2^40 on the client's number.
    pub number: u64,
    /// Its epoch.
    pub epoch: Epoch,
}

/// One lend of a file's size and times to its cell: the entry that made it. Only what names this very lend ends it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub Born);

/// A lend of a file's size and times that is going on.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Lent {
    /// Which.
    pub generation: Generation,
    /// To whom.
    pub to: LentTo,
}

/// To whom size and times of a file are lent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LentTo {
    /// To its cell: everybody reads and writes there.
    Content,
    /// To a client, which alone knows and changes what is in the file.
    Client(ClientId),
}

/// A request for a lock that waits: the entry that asked for it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub Born);

/// Who owns a lock. What the number means the client decides: a process for ranges, an open handle for whole files.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner {
    /// The client, with which all of its locks end.
    pub client: ClientId,
    /// Which of its owners.
    pub number: u64,
}

/// So many bits of an inode's number are the place of an entry.
const ENTRIES_BITS: u32 = 40;
/// No entry further behind lends a directory, and none is expected.
const ENTRIES_MAX: u64 = (1 << ENTRIES_BITS) - 1;
/// A client numbers fewer files under one lend.
pub const NUMBERS_MAX: u64 = 1 << (u64::BITS - ENTRIES_BITS);

impl InodeId {
    /// The directory that everything is below. No entry creates it, so that no other inode has its id.
    pub const ROOT: Self = Self { number: 1, epoch: Epoch { number: 0, node: NodeId(0) } };

    /// Before all others, and none itself.
    pub(crate) const FIRST: Self = Self { number: 0, epoch: Epoch { number: 0, node: NodeId(0) } };

    /// The inode that the entry at `born` creates.
    pub const fn of(born: Born) -> Self {
        Self { number: born.seq.0, epoch: born.epoch }
    }

    /// The inode that a client has given this number, counted from 1, under a lend of its directory. None if it has given too many, or if
    /// the log has become too long for that.
    pub const fn under(Generation(lent): Generation, number: u64) -> Option<Self> {
        let fits = lent.seq.0 <= ENTRIES_MAX && number > 0 && number < NUMBERS_MAX;
        if fits {
            Some(Self { number: number << ENTRIES_BITS | lent.seq.0, epoch: lent.epoch })
        } else {
            None
        }
    }

    /// The lend of a directory, if it is or was lent: only the entry that makes it does that.
    pub(crate) const fn lend_of_dir(self) -> Generation {
        Generation(Born { epoch: self.epoch, seq: Seq(self.number) })
    }

    /// The directory in which a client has created it by itself, if one has.
    pub const fn lent_dir(self) -> Option<Self> {
        let is_numbered = self.number > ENTRIES_MAX;
        if is_numbered { Some(Self { number: self.number & ENTRIES_MAX, epoch: self.epoch }) } else { None }
    }
}

impl LentTo {
    /// The client, if it is one.
    pub const fn client(self) -> Option<ClientId> {
        match self {
            Self::Content => None,
            Self::Client(client) => Some(client),
        }
    }
}

impl fmt::Debug for Born {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({:?},{:?})", self.epoch, self.seq)
    }
}

impl fmt::Debug for InodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "i{}{:?}", self.number, self.epoch)
    }
}

impl fmt::Display for InodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lend{:?}", self.0)
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wait{:?}", self.0)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}/{}", self.client, self.number)
    }
}
