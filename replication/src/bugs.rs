//! Planted bugs: one rule broken at a time, to prove that the tests notice.
//!
//! They act only with the feature `planted-bugs`; without it [`Config::breaks`] is the constant `false`.

use crate::Config;

/// A rule that can be broken by a run-time switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bug {
    /// R1: a backup takes entries of whoever sends them.
    NoEpochCheck,
    /// R1: a replica promises and goes on following somebody earlier.
    PromiseNotKept,
    /// R1: an entry is taken whatever stands before it.
    NoPredecessorCheck,
    /// R3: an acknowledgement leaves before the journal has the entry.
    AckBeforeWrite,
    /// R3: entries of earlier epochs are committed by counting who has them.
    OldEntriesCountedCommitted,
    /// R4: answers leave without a look at the lease.
    LeaseNotChecked,
    /// R4: answers show what is not committed.
    ReadsUncommitted,
    /// R5: what was recovered is served before it is committed again.
    ServedBeforeBarrier,
    /// §4.3: the log with the highest place is taken, whatever its epoch.
    TailBySequence,
    /// R7: a retried request is executed again.
    NoDeduplication,
    /// R7: a client that is over is a new one when it comes again.
    ExpiredForgotten,
    /// R8: a sync is answered by the primary alone.
    SyncByPrimaryAlone,
    /// §4.4: a replica that forgot promises as if it had not.
    ForgettingIgnored,
    /// §4.4: a replica that forgot counts for an object as soon as it is told when that began.
    BeginningUnchecked,
    /// §4.6: a replica whose state was damaged is counted on as soon as it has taken over another.
    DamageForgotten,
    /// §5: a replica that lacks parts of its state goes on as if they had never been.
    DamagedServes,
    /// §5: a replica that lacks parts of its state leads, and gives it to others.
    DamagedIsSource,
    /// §5: that parts are lacking is not kept.
    DamageNotKept,
    /// §5: what a replica has back is durable although the next start would find it damaged again.
    MendedDurable,
    /// §4.4: if members that forgot have nothing of an object it is taken to be over.
    ForgottenIsOver,
    /// §4.4: a sync does not ask whether something was lost since.
    SyncIgnoresGeneration,
    /// R5: what a mere majority has is read before it is committed again.
    EqualTailsOfAMajority,
    /// §4.3: so many members drop what they have for the state of one that less than a majority has a copy.
    LendsToAll,
    /// §4.3: a state comes without the requests that have taken effect in it.
    TransferWithoutRequests,
    /// §4.3: who takes over a state forgets whom it has promised to follow.
    TransferForgetsPromise,
    /// §4.5: a newcomer is a member before it has anything.
    NewcomerNotCaughtUp,
    /// §4.5: a view counts before it is durable.
    ViewNotDurable,
    /// §4.5: who is no member any more forgets it while somebody does not know.
    TombstoneDroppedEarly,
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
