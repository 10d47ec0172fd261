//! Linearizability: whether each operation of a history can have taken effect at one instant between its call and its
//! return, so that all outcomes are those of a single copy.
//!
//! [`check`] searches for such an order, after Wing and Gong, with Lowe's memory of what was tried before. A history is of
//! one object; whoever has many checks each by itself. An operation whose outcome nobody knows may take effect at any time
//! after its call, or never.
//!
//! Trying all orders is hopeless, so a [`Specification`] may say more than what an operation does. All of it only saves
//! time; without any of it the verdict is the same, if it comes:
//!
//! - A query that can be answered now is answered now: it changes nothing, so that was its moment as well as any other.
//! - An operation that must come next and cannot any more, whatever else happens before, ends a branch
//!   ([`is_hopeless`](Specification::is_hopeless)).
//! - An unknown operation is put off until just before one for which it matters, for itself or through others that are put
//!   off ([`may_matter`](Specification::may_matter)). Where it matters for none, it may as well never happen. Whether it does
//!   in the state at hand is tried, too.
//! - Of two ways to the same state that differ in unknown operations alone, the one that used up fewer can do whatever the other
//!   can.
//!
//! Whoever knows in which order the changes took effect need not search: whether that is one is soon seen ([`misfit`]).
//!
//! The search is bounded. A history that takes too long is [`Undecided`](Verdict::Undecided), which is no praise.
//!
//! Speed: `cargo test -p sim check::tests::long -- --nocapture` says how long histories of 5,000 operations take. With 30
//! unknown outcomes among them an order was found in 25 ms; that there is none was found with 10 in 1.5 s, what to show of it
//! included, and with 30 not within three million steps.

mod bits;
pub mod file;
mod search;
mod shrink;
#[cfg(test)]
mod tests;
pub mod volume;
mod witness;

use std::fmt;
use std::hash::Hash;

use search::{Entry, Found, search};
pub use witness::misfit;

/// What a single copy does, one operation after the other.
pub trait Specification {
    /// What the copy holds.
    type State: Clone + Eq + Hash;
    /// What can be done to it.
    type Op;
    /// What comes of that.
    type Outcome;

    /// The copy before the first operation.
    fn start(&self) -> Self::State;

    /// The copy after `op`, if `outcome` can come of it here. An outcome that nobody knows is `None`, and always can.
    fn step(
        &self,
        state: &Self::State,
        op: &Self::Op,
        outcome: Option<&Self::Outcome>,
    ) -> Option<Self::State>;

    /// One line for people.
    fn describe(&self, op: &Self::Op, outcome: Option<&Self::Outcome>) -> String;

    /// Whether `op` never changes anything.
    fn is_query(&self, _op: &Self::Op) -> bool {
        false
    }

    /// Whether, in some state, the order of the two could matter for the state afterwards or for an outcome. When in
    /// doubt: yes.
    fn may_matter(&self, _one: &Self::Op, _other: &Self::Op) -> bool {
        true
    }

    /// Whether `outcome` cannot come of `op`, neither here nor after any of `others` in any order. When in doubt: no.
    fn is_hopeless(
        &self,
        _state: &Self::State,
        _op: (&Self::Op, &Self::Outcome),
        _others: &[&Self::Op],
    ) -> bool {
        false
    }
}

/// A point in the run. Counting events orders more than reading a clock that stands still between them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(pub u64);

/// An operation as its client saw it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation<O, R> {
    /// Who did it, for people to read.
    pub client: u64,
    /// When it was called. Of two operations one comes first only if it returned *before* the other was called.
    pub called: Moment,
    /// What was wanted.
    pub op: O,
    /// When it returned, and with what. `None` if it never did, or its outcome is unknown.
    pub returned: Option<(Moment, R)>,
}

/// Operations on one object, in any order.
pub type History<S> = [Operation<<S as Specification>::Op, <S as Specification>::Outcome>];

/// What [`check`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// There is an order.
    Linearizable,
    /// There is none.
    Violation(Violation),
    /// The search took more steps than it may.
    Undecided,
}

/// A part of a history that no order explains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which operations, as places in the history. They have no order, and neither has the whole.
    pub operations: Vec<usize>,
    /// The one of these that returned first of all that nothing explains.
    pub culprit: usize,
    /// One line for each of them.
    lines: Vec<String>,
    /// How many there were in all.
    total: usize,
}

/// Whether a single copy could have given the history. It takes at most `steps_max` steps of the specification, and as many
/// again to find what to show of a violation.
///
/// # Panics
///
/// If an operation returned before it was called.
pub fn check<S: Specification>(spec: &S, history: &History<S>, steps_max: u64) -> Verdict {
    let entries: Vec<Entry<'_, S>> = history
        .iter()
        .enumerate()
        .map(|(id, operation)| {
            let returned = operation.returned.as_ref().map(|(at, outcome)| (*at, outcome));
            assert!(
                returned.is_none_or(|(at, _)| operation.called <= at),
                "operation {id} returned too early"
            );
            Entry { id, called: operation.called, op: &operation.op, returned }
        })
        .collect();
    let mut steps = steps_max;
    match search(spec, &entries, &mut steps) {
        Found::Order => Verdict::Linearizable,
        Found::GaveUp => Verdict::Undecided,
        Found::Stuck(culprit) => {
            let mut steps = steps_max;
            let kept = shrink::shrink(spec, &entries, culprit, &mut steps);
            Verdict::Violation(Violation::new(spec, history, &kept, culprit))
        }
    }
}

impl Violation {
    fn new<S: Specification>(spec: &S, history: &History<S>, kept: &[Entry<'_, S>], culprit: usize) -> Self {
        let line = |entry: &Entry<'_, S>| {
            let Operation { client, called, op, returned } = &history[entry.id];
            let mark = if entry.id == culprit { '>' } else { ' ' };
            let until = returned.as_ref().map_or("?".to_owned(), |(at, _)| at.0.to_string());
            let what = spec.describe(op, entry.returned.map(|(_, outcome)| outcome));
            let left_open = match (&returned, entry.returned) {
                (Some(_), None) => " (whatever came of it)",
                _ => "",
            };
            format!("{mark} client {client:<3} {:>8} .. {until:<8} {what}{left_open}", called.0)
        };
        let mut kept = kept.to_vec();
        kept.sort_by_key(|entry| (entry.called, entry.id));
        Self {
            operations: kept.iter().map(|entry| entry.id).collect(),
            culprit,
            lines: kept.iter().map(line).collect(),
            total: history.len(),
        }
    }
}

impl Violation {
    /// How much of the history it is.
    pub fn headline(&self) -> String {
        format!("no order explains these {} of {} operations", self.operations.len(), self.total)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}:", self.headline())?;
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
