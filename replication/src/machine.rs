//! What is replicated: the state of an object, as far as the engine has to know it.

use std::fmt::Debug;

use crate::Position;

/// The state of an object and how entries change it.
///
/// Every replica applies the same operations in the same order and must come to the same state: whatever is not
/// determined by the state (times, new ids) the primary has put into the operation.
pub trait Machine: Clone + Debug {
    /// A change.
    type Op: Clone + PartialEq + Debug;
    /// What came of it, for whoever asked. An operation may fail: that is an outcome, too.
    type Outcome: Clone + PartialEq + Debug;
    /// A question about the state.
    type Query: Clone + PartialEq + Debug;
    /// Its answer.
    type Answer: Clone + PartialEq + Debug;

    /// Takes `op` in, which is committed at `at`.
    fn apply(&mut self, at: Position, op: &Self::Op) -> Self::Outcome;

    /// Answers from the committed state.
    fn answer(&self, query: &Self::Query) -> Self::Answer;

    /// Whether `op` might change the answer to `query`, which then waits for it. When in doubt: yes.
    fn overlaps(op: &Self::Op, query: &Self::Query) -> bool;
}
