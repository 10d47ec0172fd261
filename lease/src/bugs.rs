//! Planted bugs: one rule broken at a time, to prove that the models and the simulator notice.
//!
//! They act only with the feature `planted-bugs`; without it [`Config::breaks`] is the constant `false`.

use crate::Config;

/// A rule that can be broken by a run-time switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bug {
    /// L1: votes are counted by messages, so one acceptor answering twice is a majority of two.
    VotesCountedByMessages,
    /// L1: `WrongView` counts as a vote.
    WrongViewIsAVote,
    /// L2: a renewal writes under the ballot of the lease it renews, without reading.
    RenewalUnderOldBallot,
    /// L3: an idle register is dropped and nothing remembers its promise.
    DropWithoutFloor,
    /// L3: a register is dropped while its lease may still be valid.
    DropBeforeExpiry,
    /// L4: the age of a message is judged without allowing for skew between clocks.
    AgeWithoutSkew,
    /// L4: ballots and expiry times from the far future are taken.
    FarFutureAccepted,
    /// L5: no grace period: a lease counts as over the moment it expires here.
    NoGrace,
    /// L5: a lease of this node's earlier incarnation is taken for its own.
    EarlierIncarnationIsOwn,
    /// L6: a lease counts although it expired before the last ack arrived, and `holds` never asks the clock.
    ClockAskedAtAcquireOnly,
    /// L7: a restarted node votes at once.
    NoQuarantine,
    /// L7: a restarted node is silent to others, but its own proposer gets its vote.
    OwnVoteInQuarantine,
    /// L7: ballots are counted from zero at each start instead of by time, and no floor stands in for the past.
    BallotsWithoutInterval,
    /// L8: others read under a valid lease, and retry at once.
    ReadsUnderValidLease,
    /// L9: a newcomer to a view votes at once.
    NewcomerVotes,
    /// L10: `holds` stays true while the lease is being released.
    HoldsWhileReleasing,
    /// L11: a death notice ends the leases of every incarnation of the node.
    NoticeKillsEveryIncarnation,
    /// L12: PaxosLease starts its timer when the last vote arrives instead of when it asked.
    TimerFromLastVote,
    /// L13: of two leases that have not run out PaxosLease takes the one with the higher ballot for the later.
    LaterByBallot,
}

impl Config {
    /// Whether this node runs with the planted bug `bug`.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn breaks(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Always false: planted bugs are compiled out.
    #[cfg(not(feature = "planted-bugs"))]
    #[expect(clippy::unused_self, reason = "the same signature as with the feature")]
    pub(crate) const fn breaks(&self, _bug: Bug) -> bool {
        false
    }
}
