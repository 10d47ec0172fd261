//! Planted bugs of a client's core: one rule broken at a time, to prove that tests notice.
//!
//! They act only with the feature `planted-bugs`.

#[cfg(test)]
mod tests;

/// A rule that can be broken by a run-time switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bug {
    /// What was written and not sent is dropped when the file is wanted back.
    DirtyDropped,
    /// Whoever syncs a file is told that it is durable before what was written under a lend has been sent.
    SyncForgetsLend,
    /// A revocation of a lend is answered before what was written under it has been sent.
    AnsweredBeforeSent,
    /// A revocation of a directory is answered before what was created there has been entered.
    AnsweredBeforeEntered,
    /// What was created waits to be entered as all else waits that a volume is asked for.
    EntriesWait,
    /// A file is created in a directory while that may be removed.
    CreatedInRemoved,
    /// That a file was removed its volume is told before it has entered it.
    ToldOutOfOrder,
    /// A file is opened or removed without asking though somebody else may know it.
    UsedOfOthers,
    /// A lend is used although the session that it was given in may be over.
    LendOutlivesSession,
    /// What was granted is answered although the session that it was granted in may be over.
    GrantOutlivesSession,
    /// A reply is kept although it is older than a revocation of what it is about.
    LateReplyKept,
    /// Whatever a daemon says lengthens the session, confirmed or not, from when it comes.
    AnyFrameConfirms,
    /// A lend that was wanted back before it was known is used.
    RevokedLendUsed,
    /// A file is read from blocks that are of an earlier lend.
    OldBlocksRead,
    /// A block is kept although what it is of was changed while it was read.
    ChangedBlockKept,
    /// The owner of a lent file sets something here while the volume is told of another change of the same.
    SetWhileJudged,
}

/// The rules in force: all of them in a product, perhaps all but one in a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    #[cfg(feature = "planted-bugs")]
    broken: Option<Bug>,
}

impl Rules {
    /// All of them.
    pub const ALL: Self = Self {
        #[cfg(feature = "planted-bugs")]
        broken: None,
    };

    /// All but one, if any.
    #[cfg(feature = "planted-bugs")]
    pub const fn without(broken: Option<Bug>) -> Self {
        Self { broken }
    }

    /// Whether this rule is broken on purpose.
    #[cfg(feature = "planted-bugs")]
    pub(crate) fn breaks(self, bug: Bug) -> bool {
        self.broken == Some(bug)
    }

    /// Products break no rule.
    #[cfg(not(feature = "planted-bugs"))]
    #[expect(clippy::unused_self, reason = "the same signature as with planted bugs")]
    pub(crate) const fn breaks(self, _bug: Bug) -> bool {
        false
    }
}
