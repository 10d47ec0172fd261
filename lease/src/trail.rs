//! The trail: a bounded memory of who owned what, as this node saw it.

use std::collections::VecDeque;

use base::{NodeId, ObjectId, Process, WallTime};

use crate::{Ended, LeaseId};

/// One change of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TrailEntry {
    /// The cell.
    pub cell: ObjectId,
    /// When, by this node's clock.
    pub at: WallTime,
    /// The tenure.
    pub lease: LeaseId,
    /// Whose.
    pub owner: Process,
    /// What happened.
    pub kind: TrailKind,
}

/// What happened to a lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TrailKind {
    /// This node voted for it.
    VotedFor {
        /// Until when, by this node's clock.
        until: WallTime,
        /// The tenure before.
        previous: LeaseId,
        /// How that one ended.
        ended: Ended,
    },
    /// A majority voted for this node; a bit for each member of the view in order.
    Decided {
        /// Until when.
        until: WallTime,
        /// Who had voted by then.
        voters: u16,
    },
    /// This node voted for its owner giving it up.
    GivenUp {
        /// The named successor.
        successor: Option<NodeId>,
    },
    /// This node owned it and lost it.
    Lost,
}

/// A ring of the latest changes.
#[derive(Clone, Debug)]
pub(crate) struct Trail {
    entries: VecDeque<TrailEntry>,
    len_max: usize,
}

impl Trail {
    pub(crate) const fn new(len_max: usize) -> Self {
        Self { entries: VecDeque::new(), len_max }
    }

    pub(crate) fn record(&mut self, entry: TrailEntry) {
        if self.len_max == 0 {
            return;
        }
        if self.entries.len() == self.len_max {
            self.entries.pop_front();
        }
        self.entries.push_back(entry);
    }

    pub(crate) fn of(&self, cell: ObjectId) -> impl Iterator<Item = &TrailEntry> {
        self.entries.iter().filter(move |entry| entry.cell == cell)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_forgets_the_oldest() {
        let mut trail = Trail::new(2);
        let entry = |n| TrailEntry {
            cell: ObjectId::new(0, 1),
            at: WallTime::from_micros(n),
            lease: LeaseId(n),
            owner: Process::new(1, 1),
            kind: TrailKind::Lost,
        };
        (1..=3).for_each(|n| trail.record(entry(n)));
        let left: Vec<u64> = trail.of(ObjectId::new(0, 1)).map(|e| e.lease.0).collect();
        assert_eq!(left, [2, 3]);
        assert_eq!(trail.of(ObjectId::new(0, 2)).count(), 0);
    }
}
