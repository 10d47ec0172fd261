//! Locks of one file: who has locked what, and who waits.

use base::ClientId;

use crate::{Owner, Ticket};

/// A lock of a file, or a wish for one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lock {
    /// Whose.
    pub owner: Owner,
    /// Which of the two kinds. They do not see each other.
    pub kind: LockKind,
    /// Whether others may have it, too.
    pub mode: LockMode,
    /// Where. A lock of a whole file is everywhere.
    pub stretch: Stretch,
}

/// The two kinds of locks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockKind {
    /// `flock`: the whole file, for an open handle. Who has one and waits for the other mode gives it up for the wait.
    Flock,
    /// `fcntl`: stretches of bytes, for a process.
    Fcntl,
}

/// How a stretch is locked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockMode {
    /// Against those who want it alone.
    Shared,
    /// Against all others.
    Exclusive,
}

/// Bytes that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stretch {
    /// The first.
    pub first: u64,
    /// The last, which is locked, too.
    pub last: u64,
}

/// All locks of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Locks {
    /// What is had, ordered by kind, owner and first byte. Of one owner no two overlap, and no two touch that could be one.
    pub held: Vec<Lock>,
    /// What is waited for, the oldest first.
    pub waiting: Vec<Waiting>,
}

/// A wish that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The entry that asked.
    pub ticket: Ticket,
    /// What for.
    pub lock: Lock,
}

impl Stretch {
    /// Everything.
    pub const ALL: Self = Self { first: 0, last: u64::MAX };
}

impl Locks {
    /// Whether there are none, and nobody waits.
    pub const fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    /// Whether a client has or waits for any.
    pub fn concern(&self, client: ClientId) -> bool {
        self.held.iter().any(|lock| lock.owner.client == client)
            || self.waiting.iter().any(|waiting| waiting.lock.owner.client == client)
    }
}
