//! Planted bugs of a shard: one rule broken at a time, to prove that the simulator notices.
//!
//! They act only with the feature `planted-bugs`.

/// A rule that can be broken by a run-time switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bug {
    /// A member keeps what a lower epoch writes than it promised.
    PromiseNotKept,
    /// A restarted member counts its numbers from zero instead of from what it stored.
    NumbersForgotten,
    /// A lock is granted when its owner alone has the record.
    GrantedBeforeMajority,
    /// After a takeover by death notice the lock is given away at once.
    NoWaitAfterDeath,
    /// A restarted member claims to know of everything that a dead process granted.
    ForgetfulKnowsAll,
    /// A client's session is confirmed although the lease above its lock may end before it.
    AckWithoutCover,
    /// A silent client is timed out by the length of its session, without allowing for a slower clock.
    SessionNotStretched,
    /// A lease is given up as settled although some client may believe in a grant of the tenure before.
    UnsettledGivenUpAsSettled,
    /// A member drops the record of a held lock that it has not heard of for a while.
    HeldRecordDropped,
    /// A member takes another run of a node for the one that it promised a number to.
    PromiseToAnyRun,
    /// A promise is answered before its number is on disk.
    AnsweredBeforeDurable,
    /// The owner does not tell a restarted member again who has the lock.
    RestartedNotToldAgain,
    /// A restarted node says at once that its peers know of all that it granted, and so of its earlier runs' grants.
    CaughtUpTooEarly,
}
