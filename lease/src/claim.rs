//! Claims: what this node wants or holds, a cell each.
//!
//! A claim has a goal (get it, keep it, give it up, rest), the tenure if there is one, and the attempt that is
//! under way, if any. With no attempt under way it sleeps until `wake_at`.

use std::hash::{Hash, Hasher};

use base::{ObjectId, Process, ViewId, WallTime};

use crate::cells::Entry;
use crate::views::ViewHandle;
use crate::{Ballot, Ended, Given, Lease, LeaseId, Watermark, Written};

/// One cell that this node wants or holds.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) cell: ObjectId,
    pub(crate) view: ViewHandle,
    pub(crate) goal: Goal,
    pub(crate) tenure: Option<Tenure>,
    pub(crate) attempt: Option<Box<Attempt>>,
    pub(crate) wake_at: WallTime,
    /// Failed attempts since the goal was set.
    pub(crate) failures: u8,
    /// The lease that the last failed attempt wrote, and what it follows. Boxed, as is what few claims carry: there
    /// are as many claims as leases owned.
    pub(crate) abandoned: Option<Box<Succession>>,
    /// Who handed the lease to this node, if it may take it although a local register shows it as valid.
    pub(crate) offered_by: Option<Process>,
}

/// What a claim is for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Goal {
    Acquire,
    Keep,
    GiveUp(Box<Given>),
    /// Nothing: it only remembers something for a while.
    Rest(Rest),
}

/// What a claim without a goal remembers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Rest {
    /// This node gave the lease up, and should stand back for others.
    GaveUp,
    /// A majority showed another owner; asking again before then would only disturb its renewals.
    Denied { by: Process, until: WallTime },
    /// The lease was handed to this node.
    Offered,
}

/// Which lease follows which, and what its last owner left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Succession {
    pub(crate) lease: LeaseId,
    pub(crate) previous: LeaseId,
    pub(crate) ended: Ended,
    pub(crate) watermark: Option<Watermark>,
}

/// A lease that this node owns, or owned and is giving up.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Tenure {
    pub(crate) lease: LeaseId,
    pub(crate) previous: LeaseId,
    pub(crate) ended: Ended,
    /// The ballot of the last decided write.
    pub(crate) ballot: Ballot,
    pub(crate) until: WallTime,
    /// The view whose majority decided it last.
    pub(crate) view: ViewId,
}

/// A read and a write under one ballot.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Attempt {
    pub(crate) ballot: Ballot,
    pub(crate) asked: WallTime,
    pub(crate) votes: Votes,
    pub(crate) refusals: Votes,
    /// The value with the highest ballot among the votes for the read.
    pub(crate) seen: Option<Written>,
    /// Whether what was seen has run out (PaxosLease).
    pub(crate) seen_is_over: bool,
    /// Whether two leases were seen that have not run out, and nobody knows which is the later (PaxosLease).
    pub(crate) is_ambiguous: bool,
    /// A value that kept an acceptor from voting (PaxosLease).
    pub(crate) blocker: Option<Written>,
    /// The value being written, once the read is decided.
    pub(crate) writing: Option<Lease>,
    /// For a new lease, what it follows.
    pub(crate) follows: Option<Succession>,
}

/// Distinct members of a view, counted as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Votes {
    mask: u16,
}

const _: () = assert!(size_of::<Option<Claim>>() <= 168, "a claim for every lease that a daemon owns");

impl Entry for Claim {
    fn cell(&self) -> ObjectId {
        self.cell
    }
}

impl Claim {
    pub(crate) const fn new(cell: ObjectId, view: ViewHandle, goal: Goal) -> Self {
        Self {
            cell,
            view,
            goal,
            tenure: None,
            attempt: None,
            wake_at: WallTime::ZERO,
            failures: 0,
            abandoned: None,
            offered_by: None,
        }
    }

    /// The owner that a majority showed, while it is known to be valid.
    pub(crate) fn denied_by(&self, now: WallTime) -> Option<(Process, WallTime)> {
        match self.goal {
            Goal::Rest(Rest::Denied { by, until }) if now < until => Some((by, until)),
            _ => None,
        }
    }

    /// Whether it is a lease whose renewal has not begun although it was time.
    pub(crate) fn waits_for_renewal(&self) -> bool {
        let is_due = self.tenure.as_ref().is_some_and(|tenure| self.wake_at >= tenure.until);
        self.goal == Goal::Keep && self.attempt.is_none() && is_due
    }

    /// Whether the tenure is one to act on.
    pub(crate) fn is_kept(&self) -> bool {
        self.goal == Goal::Keep
    }
}

impl Hash for Claim {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.cell, self.view, &self.goal, &self.tenure, &self.attempt).hash(state);
        (self.wake_at, self.failures, &self.abandoned, self.offered_by).hash(state);
    }
}

impl Attempt {
    pub(crate) fn new(ballot: Ballot, asked: WallTime) -> Self {
        Self {
            ballot,
            asked,
            votes: Votes::default(),
            refusals: Votes::default(),
            seen: None,
            seen_is_over: false,
            is_ambiguous: false,
            blocker: None,
            writing: None,
            follows: None,
        }
    }

    /// Keeps what may matter where ballots do not grow with time: a lease that has run out tells nothing beside one
    /// that has not, whatever their ballots. `abandoned` is what the last attempt wrote, and what that follows.
    pub(crate) fn see_open(&mut self, written: Written, is_over: bool, abandoned: Option<Succession>) {
        let Some(seen) = &self.seen else {
            (self.seen, self.seen_is_over) = (Some(written), is_over);
            return;
        };
        let (id, seen_id) = (written.lease.id, seen.lease.id);
        let follows = |first, next| abandoned.is_some_and(|a| a.lease == next && a.previous == first);
        let is_later = written.ballot > seen.ballot;
        let replaces = match (self.seen_is_over, is_over) {
            _ if id == seen_id => is_later,
            (true, false) => true,
            (false, true) => false,
            (true, true) => is_later,
            (false, false) if follows(seen_id, id) => true,
            (false, false) if follows(id, seen_id) => false,
            (false, false) => {
                self.is_ambiguous = true;
                is_later
            }
        };
        if replaces {
            (self.seen, self.seen_is_over) = (Some(written), is_over);
        }
    }

    /// Keeps the value with the highest ballot.
    pub(crate) fn see(&mut self, written: Option<Written>) {
        if written.as_ref().map(|w| w.ballot) > self.seen.as_ref().map(|w| w.ballot) {
            self.seen = written;
        }
    }
}

impl Votes {
    /// Adds the member at `position`; a repeated answer is one.
    pub(crate) const fn add(&mut self, position: usize) {
        self.mask |= 1 << position;
    }

    /// Only for the planted bug that counts messages: a repeated answer stands for a member that said nothing.
    pub(crate) const fn add_message(&mut self, position: usize) {
        self.mask |= if self.has(position) { !self.mask & self.mask.wrapping_add(1) } else { 1 << position };
    }

    pub(crate) const fn has(self, position: usize) -> bool {
        self.mask & 1 << position != 0
    }

    pub(crate) const fn mask(self) -> u16 {
        self.mask
    }

    pub(crate) const fn count(self) -> usize {
        self.mask.count_ones() as usize
    }
}
