//! Back-to-back changes of view: a dead member is removed, its replacement is added.

use lease::FleaseRules;

use crate::milestone::Milestone;
use crate::report;
use crate::setup::{Gate, Move, Setup, view};

/// Node 2 leaves, node 3 joins; 0 and 1 want the lease, and 2 does not know that it was removed.
pub fn setup() -> Setup {
    Setup {
        nodes: 4,
        views: vec![view(0, &[0, 1, 2]), view(1, &[0, 1]), view(2, &[0, 1, 3])],
        gate: Gate::Decided,
        horizon: std::env::var("H").map_or(4, |h| h.parse().unwrap()),
        rounds_max: std::env::var("R").map_or(3, |h| h.parse().unwrap()),
        moves: vec![
            Move::Acquire(0),
            Move::Acquire(1),
            Move::Propose(0),
            Move::Adopt(0),
            Move::Adopt(1),
            Move::Adopt(2),
            Move::Adopt(3),
        ],
        milestones: vec![
            Milestone::Acquired0,
            Milestone::Acquired1,
            Milestone::AnsweredWrongView,
            Milestone::RejectedForView,
            Milestone::RejectedAsNewcomer,
        ],
        ..Setup::flease("back-to-back view changes")
    }
}

#[test]
fn back_to_back_view_changes() {
    report::prove::<FleaseRules>(setup());
}
