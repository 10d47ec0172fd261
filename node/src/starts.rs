//! Starts of daemons, as their data directories and their peers tell them apart: who may come in, and whose death a
//! start or a notice proves.
//!
//! A data directory counts its starts, and each draws a number at random, its nonce. Peers remember the newest start
//! that they met. So a directory that was emptied, set back, or runs twice is known from what it was before: it has
//! another name, lacks a start that somebody met, or has another start of the same number.

use std::collections::BTreeMap;

use base::{Dead, Incarnation, NodeId, Process, StartId, StoreId};

use crate::{Bug, Rules};

/// All starts of one data directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chain {
    /// The first start of the line that the last one belongs to; zero before the first start.
    line: Incarnation,
    /// One for each start: the nonce of incarnation `i` stands at `i - 1`.
    nonces: Vec<u64>,
}

/// What is known of one peer: which data directory it votes from, and the newest start of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Met {
    /// The directory.
    pub store: StoreId,
    /// The start.
    pub start: StartId,
}

/// Why a start of a peer is not admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StartRefusal {
    /// It votes from another directory.
    #[error(
        "node {node} comes with store {told}, and it promised with store {known}; put its data directory back, or add it under a new id"
    )]
    OtherStore {
        /// The peer.
        node: NodeId,
        /// The store it had.
        known: StoreId,
        /// The store it has.
        told: StoreId,
    },
    /// A newer start of it was seen.
    #[error("node {node} comes as incarnation {}, and incarnation {} was seen; if its data directory was restored from a copy, add it under a new id", told.0, known.0)]
    Outdated {
        /// The peer.
        node: NodeId,
        /// The newest that was seen.
        known: Incarnation,
        /// What it says it is.
        told: Incarnation,
    },
    /// Two starts have the same number.
    #[error("node {node} comes as another incarnation {} than the one seen before; stop the copy of its data directory", incarnation.0)]
    Copy {
        /// The peer.
        node: NodeId,
        /// The number of both starts.
        incarnation: Incarnation,
    },
}

/// A data directory lacks a start that a peer has seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a peer has seen incarnation {} of this node, which this data directory (at incarnation {}) has no memory of: \
     it was emptied, or restored from an old copy, or runs twice; put the newest directory back, or add the node \
     under a new id with an empty one",
    known.0,
    ours.0
)]
pub struct RestoredCopy {
    /// What the peer has seen.
    pub known: Incarnation,
    /// The incarnation that this start has.
    pub ours: Incarnation,
}

/// The line of the newest start of each daemon that was ever connected.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    lines: BTreeMap<NodeId, StartId>,
    rules: Rules,
}

impl Chain {
    /// The chain of these starts, unless `line` is none of them.
    pub fn new(line: Incarnation, nonces: Vec<u64>) -> Option<Self> {
        let chain = Self { line, nonces };
        let is_one_of_them = chain.nonce(line).is_some() || chain.nonces.is_empty() && line == Incarnation(0);
        is_one_of_them.then_some(chain)
    }

    /// The chain with one more start. If that does not prove the death of the start before it, or there was none, a
    /// line begins.
    #[must_use]
    pub fn begin(&self, nonce: u64, proves_death: bool) -> Self {
        let mut next = self.clone();
        next.nonces.push(nonce);
        if self.nonces.is_empty() || !proves_death {
            next.line = next.incarnation();
        }
        next
    }

    /// The newest incarnation; zero before the first start.
    pub fn incarnation(&self) -> Incarnation {
        Incarnation(u32::try_from(self.nonces.len()).unwrap_or(u32::MAX))
    }

    /// The newest start, if there was one.
    pub fn last(&self) -> Option<StartId> {
        self.start(self.incarnation())
    }

    /// The first start of the newest one's line: each of the line proves that those before it are gone.
    pub fn line(&self) -> Option<StartId> {
        self.start(self.line)
    }

    /// The nonces of all starts.
    pub fn nonces(&self) -> &[u64] {
        &self.nonces
    }

    /// Whether `known`, the newest start of this directory that a peer has seen, is one of its own.
    ///
    /// If not, it was restored from an old copy, and has forgotten what that start promised.
    pub fn check(&self, known: StartId, rules: Rules) -> Result<(), RestoredCopy> {
        let is_asked = !rules.breaks(Bug::OldCopyAdmitted) && !rules.breaks(Bug::AnyStoreAdmitted);
        let ours = self.start(known.incarnation);
        let is_same = ours == Some(known) || ours.is_some() && rules.breaks(Bug::NonceNotCompared);
        let is_ours = is_same || !is_asked;
        is_ours.then_some(()).ok_or(RestoredCopy { known: known.incarnation, ours: self.incarnation() })
    }

    fn start(&self, incarnation: Incarnation) -> Option<StartId> {
        Some(StartId { incarnation, nonce: self.nonce(incarnation)? })
    }

    fn nonce(&self, incarnation: Incarnation) -> Option<u64> {
        let index = usize::try_from(incarnation.0).ok()?.checked_sub(1)?;
        self.nonces.get(index).copied()
    }
}

impl Met {
    /// Whether `told`, a start of `node`, may come in after this one. True if it is another one, which has to be noted.
    ///
    /// A peer that votes from another directory, or from an older state of the same one, would vote as if it
    /// remembered what it does not.
    pub fn admit(&self, node: NodeId, told: &Self, rules: Rules) -> Result<bool, StartRefusal> {
        if self.store != told.store && !rules.breaks(Bug::AnyStoreAdmitted) {
            return Err(StartRefusal::OtherStore { node, known: self.store, told: told.store });
        }
        if self == told {
            return Ok(false);
        }
        let (known, told) = (self.start.incarnation, told.start.incarnation);
        if rules.breaks(Bug::AnyStoreAdmitted) || rules.breaks(Bug::OldCopyAdmitted) || told > known {
            return Ok(true);
        }
        Err(if told < known {
            StartRefusal::Outdated { node, known, told }
        } else {
            StartRefusal::Copy { node, incarnation: known }
        })
    }
}

impl Lines {
    /// Knows nobody yet.
    pub const fn new(rules: Rules) -> Self {
        Self { lines: BTreeMap::new(), rules }
    }

    /// Remembers the line of a daemon that is connected. Returns who is dead because it is alive.
    pub fn note(&mut self, Process { node, incarnation }: Process, line: StartId) -> Option<Dead> {
        self.lines.insert(node, line);
        let last = Incarnation(incarnation.0.checked_sub(1)?);
        dead(node, line.incarnation, last)
    }

    /// Whom a notice of a death names, if it is of the line that is known. Another line is that of a copied data
    /// directory, whose starts have the same numbers.
    pub fn named_by(&self, Process { node, incarnation }: Process, line: StartId) -> Option<Dead> {
        let is_known = self.lines.get(&node) == Some(&line) || self.rules.breaks(Bug::LineIgnored);
        is_known.then(|| dead(node, line.incarnation, incarnation)).flatten()
    }
}

fn dead(node: NodeId, first: Incarnation, last: Incarnation) -> Option<Dead> {
    (first <= last).then_some(Dead { node, first, last })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(incarnation: u32, nonce: u64) -> StartId {
        StartId { incarnation: Incarnation(incarnation), nonce }
    }

    #[test]
    fn a_start_proves_the_death_of_those_before_it_in_its_line() {
        let mut lines = Lines::default();
        let mut note = |incarnation| lines.note(Process::new(2, incarnation), start(5, 50));
        assert_eq!(note(5), None);
        let dead = Dead { node: NodeId(2), first: Incarnation(5), last: Incarnation(6) };
        assert_eq!(note(7), Some(dead));
        assert_eq!(note(0), None, "said by a broken peer");
    }

    #[test]
    fn a_notice_is_taken_only_of_the_line_that_is_known() {
        let mut lines = Lines::default();
        let who = |incarnation| Process::new(2, incarnation);
        assert_eq!(lines.named_by(who(5), start(5, 50)), None, "a daemon never seen");
        lines.note(who(6), start(5, 50));
        assert_eq!(lines.named_by(who(6), start(5, 51)), None, "a copy that also counted to 6");
        let dead = Dead { node: NodeId(2), first: Incarnation(5), last: Incarnation(6) };
        assert_eq!(lines.named_by(who(6), start(5, 50)), Some(dead));
        assert_eq!(lines.named_by(who(4), start(5, 50)), None, "said by a broken supervisor");
    }

    #[test]
    fn a_line_goes_on_while_each_start_proves_the_death_of_the_one_before() {
        let first = Chain::default().begin(10, true);
        assert_eq!((first.last(), first.line()), (Some(start(1, 10)), Some(start(1, 10))));
        let second = first.begin(11, true);
        assert_eq!((second.last(), second.line()), (Some(start(2, 11)), Some(start(1, 10))));
        let copy = first.begin(12, false);
        assert_eq!((copy.last(), copy.line()), (Some(start(2, 12)), Some(start(2, 12))));
        assert_eq!(second.check(start(1, 10), Rules::default()), Ok(()));
        copy.check(start(2, 11), Rules::default()).unwrap_err();
        assert_eq!(Chain::new(Incarnation(2), vec![1]), None);
    }

    #[test]
    fn a_peer_comes_in_only_with_a_later_start_of_the_same_directory() {
        let met =
            |store, incarnation, nonce| Met { store: StoreId([store; 16]), start: start(incarnation, nonce) };
        let node = NodeId(2);
        let admit = |told| met(1, 5, 50).admit(node, &told, Rules::default());
        assert_eq!((admit(met(1, 5, 50)), admit(met(1, 6, 60))), (Ok(false), Ok(true)));
        assert!(matches!(admit(met(2, 6, 60)), Err(StartRefusal::OtherStore { .. })));
        assert!(matches!(admit(met(1, 4, 40)), Err(StartRefusal::Outdated { .. })));
        assert!(matches!(admit(met(1, 5, 51)), Err(StartRefusal::Copy { .. })));
    }

    /// A copy that is started often enough has as many starts as a peer has seen, and others.
    #[test]
    fn a_copy_that_climbs_past_what_was_seen_is_known_by_its_nonces() {
        let chain =
            |nonces: &[u64]| nonces.iter().fold(Chain::default(), |chain, &nonce| chain.begin(nonce, true));
        let (seen, copy) = (chain(&[1, 2, 3]).last().unwrap(), chain(&[1, 20, 30, 40]));
        assert!(copy.check(seen, Rules::default()).is_err());
        let broken = Rules::without(Some(Bug::NonceNotCompared));
        assert!(copy.check(seen, broken).is_ok(), "what the rule is for");
        assert!(chain(&[1, 20]).check(seen, broken).is_err(), "it has not climbed far enough");
    }
}
