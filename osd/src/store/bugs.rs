//! Planted bugs of a store: one rule broken at a time, to prove that the simulator notices.
//!
//! They act only with the feature `planted-bugs`.

/// A rule that can be broken by a run-time switch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Bug {
    /// A segment of the journal is free as soon as it is durable, although the index does not have what is in it.
    SegmentFreedEarly,
    /// The index does not say how much of the journal it has, and a start applies that again.
    AppliedTwice,
    /// Content is overwritten although the index still refers to it, or somebody reads it.
    ExtentFreedEarly,
    /// A sync of the journal is about the last segment alone.
    EarlierSegmentSkipped,
    /// The index is changed before the content to which it refers is durable.
    IndexBeforeContent,
    /// Content is given out without a look at its checksum.
    ChecksumNotChecked,
    /// A part of a tree that was taken away stays in the index.
    NamesStay,
    /// A row that a start could not read is there again for the next one, if the disk gives it back.
    UnreadableComesBack,
}

/// The rules in force: all of them in a product, perhaps all but one in a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    #[cfg(feature = "planted-bugs")]
    broken: Option<Bug>,
}

impl Rules {
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
