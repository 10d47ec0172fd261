//! What clients may answer from their caches: *grants* on inodes of volumes.
//!
//! A grant is on an inode, for a session. On a directory it is about its attributes, the names in it, that others are absent, and its
//! listing; on anything else about its attributes and where a link leads. It comes with a reply about the inode, and lasts as long as the
//! session is confirmed and the grant is not *revoked*.
//!
//! Rules:
//!
//! - Nothing is granted unless the lease of the volume outlasts a session from now on; and when it does not any more, whoever has a
//!   grant is told so before its session is confirmed again.
//! - A change is no entry before nobody else has a grant on what it touches: each has said that it dropped it, or cannot count on it any
//!   more. What comes after a revocation on the stream counts only once that was taken in. So a grant that is not
//!   answered for is over a session's length after it was revoked, and no timer runs for anybody else.
//! - From the first revocation until the outcome of the change is known, nobody else is granted anything there.
//! - A change does not conflict with its own session's grants on what it names. That session does not answer from them while
//!   the change is under way, and learns from the reply what came of it, and where the change stands. What a change only finds by a name
//!   its own session may not know to be touched: that is revoked like anybody's.
//! - Before a client is granted something it is on record in the volume. Whoever leads the volume next asks those on record to drop
//!   what they have before it takes in a change, unless the lease before had run out, and waits a session's length for whoever does
//!   not answer.
//! - Where a directory is, its *place*, outlasts the grant on it: as long as the session, unless that is revoked. So a directory is not
//!   renamed, and not removed, before nobody else believes that any more; and who has it in a kernel need not drop names when something in it changes.
//! - Whoever leads the volume next does not know who believes where directories are. It waits a session's length before another client than
//!   the only one that may do so renames or removes one.
//! - What is lent, and what has no name, is not granted.
//! - A confined client is granted nothing: what it may see depends on where directories are.
//!
//! Revocations of a session are numbered, and each reply that grants something says how many there were: a reply that is older than a
//! revocation is told apart whatever way it took.

mod named;
mod serve;
mod table;
mod takeover;

use std::collections::{BTreeMap, BTreeSet};

use base::{ClientId, Epoch, ObjectId, Seq, WallTime};
use namespace::{Attributes, InodeId};

use crate::{Revoked, SessionId};
pub use named::Named;
pub(crate) use named::is_directory;
pub(crate) use table::{Grants, Settled};

/// What a grant allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GrantKind {
    /// To answer from a cache what does not change anything.
    Shared,
    /// The same, to a client whose users have the numbers that they have in the volume: whoever judges rights as the primary does, as a kernel,
    /// may believe where directories are, and an owner sets permissions of what is lent to the client without asking.
    Placed,
}

/// What a reply about a volume grants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheGrant {
    /// What it allows.
    pub kind: GrantKind,
    /// By whom: this tenure of the volume.
    pub tenure: Epoch,
    /// For a change, where it stands; for an answer, up to where everything has taken effect in it.
    pub at: Seq,
    /// So many revocations the session had been sent.
    pub revoked: u64,
    /// The inodes.
    pub inodes: Vec<InodeId>,
    /// Those of them that are directories and were changed by this, as they are since.
    pub changed: Vec<Attributes>,
}

/// What is under way about the grants of all volumes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Granting {
    /// Volumes in which something is granted.
    pub(crate) volumes: BTreeSet<ObjectId>,
    /// Those that are led here and have clients on record.
    recorded: BTreeSet<ObjectId>,
    /// Revocations that were not answered, by their number in the session.
    asked: BTreeMap<(SessionId, u64), (ObjectId, Revoked)>,
    /// Those of them that are of a lend and took no grant.
    pub(crate) sparing: BTreeSet<(SessionId, u64)>,
    /// When they need not be any more.
    due: BTreeSet<(WallTime, SessionId, u64)>,
    /// Sessions that were closed early, and until when their clients may count on them.
    closed: BTreeSet<(WallTime, SessionId, ClientId)>,
    /// Volumes in which nothing is changed before then.
    graces: BTreeSet<(WallTime, ObjectId)>,
    /// Volumes in which no directory is moved before then, but by the only client that may believe where one was.
    unplaced: BTreeSet<(WallTime, ObjectId)>,
    /// Volumes in which something is lent to clients that may be about to come, and until when they are waited for.
    pub(crate) returning: BTreeSet<(WallTime, ObjectId)>,
}

impl Granting {
    /// Clients that may count on sessions that were closed.
    pub(crate) fn counting(&self) -> BTreeSet<ClientId> {
        self.closed.iter().map(|&(.., client)| client).collect()
    }

    /// The revocations of a session that were not answered.
    fn asked_of(&self, session: SessionId) -> Vec<(u64, Revoked)> {
        let asked = self.asked.range((session, 0)..=(session, u64::MAX));
        asked.map(|(&(_, number), &(_, what))| (number, what)).collect()
    }

    /// Whether a session is to drop where some directory is.
    fn takes_place_of(&self, session: SessionId) -> bool {
        let mut asked = self.asked.range((session, 0)..=(session, u64::MAX));
        asked.any(|(_, (_, what))| matches!(what, Revoked::Place { .. }))
    }

    /// When there is something to decide.
    pub(crate) fn next_due(&self) -> Option<WallTime> {
        let due = self.due.first().map(|&(at, ..)| at);
        let closed = self.closed.first().map(|&(at, ..)| at);
        let grace = self.graces.first().map(|&(at, _)| at);
        let unplaced = self.unplaced.first().map(|&(at, _)| at);
        let returning = self.returning.first().map(|&(at, _)| at);
        [due, closed, grace, unplaced, returning].into_iter().flatten().min()
    }
}
