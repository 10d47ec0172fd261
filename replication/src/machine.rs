//! What is replicated: the state of an object, as far as the engine has to know it.

use std::fmt::Debug;

use crate::Position;

/// The state of an object and how entries change it.
///
/// Every replica applies the same operations in the same order and must come to the same state: whatever is not
/// determined by the state (times, new ids) the primary has put into the operation.
///
/// A clone of it must not copy what is in it: states are kept as they were while somebody takes them over.
pub trait Machine: Clone + Debug {
    /// No operation costs more bytes, in memory and in a message.
    const OP_BYTES_MAX: u64;
    /// No outcome does. Each is charged as much.
    const OUTCOME_BYTES_MAX: u64;
    /// No part does.
    const PART_BYTES_MAX: u64;

    /// A change.
    type Op: Clone + PartialEq + Debug;
    /// What came of it, for whoever asked. An operation may fail: that is an outcome, too.
    type Outcome: Clone + PartialEq + Debug;
    /// A question about the state.
    type Query: Clone + PartialEq + Debug;
    /// Its answer.
    type Answer: Clone + PartialEq + Debug;
    /// The name of a part of the state; parts are small enough for a message. All state is in parts.
    type Key: Clone + Ord + Debug;
    /// What is in a part.
    type Part: Clone + PartialEq + Debug;

    /// What an operation costs, at most [`OP_BYTES_MAX`](Self::OP_BYTES_MAX); more is refused.
    fn op_bytes(op: &Self::Op) -> u64;

    /// What a part costs, at most [`PART_BYTES_MAX`](Self::PART_BYTES_MAX).
    fn part_bytes(part: &Self::Part) -> u64;

    /// Takes `op` in, which is committed at `at`.
    fn apply(&mut self, at: Position, op: &Self::Op) -> Self::Outcome;

    /// Answers from the committed state.
    fn answer(&self, query: &Self::Query) -> Self::Answer;

    /// Whether `op`, which is not committed yet, might change the answer to `query`, which then waits for it. Of what is
    /// proposed before it, everything that might is asked about, too. None of that was acknowledged to anybody: a primary is asked
    /// only when all that was there before it is committed. When in doubt: yes.
    fn overlaps(&self, op: &Self::Op, query: &Self::Query) -> bool;

    /// The parts behind `after` in order, as many as `parts_max`, each with its version: the entry that changed it last.
    /// In histories that agree, equal versions mean equal parts.
    fn versions(&self, after: Option<&Self::Key>, parts_max: usize) -> Vec<(Self::Key, Position)>;

    /// The version of a part that there is.
    fn version(&self, key: &Self::Key) -> Option<Position>;

    /// A part that there is.
    fn part(&self, key: &Self::Key) -> Option<Self::Part>;

    /// Puts a part and its version into place as another replica has it, or takes it away. Between two of these the
    /// state need not make sense.
    fn place(&mut self, key: Self::Key, part: Option<(Position, Self::Part)>);
}
