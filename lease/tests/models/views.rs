//! Back-to-back changes of view: a dead member is removed, its replacement is added.

use lease::FleaseRules;

use crate::milestone::Milestone;
use crate::report::{self, bound};
use crate::setup::{Gate, Move, Setup, view};

/// Node 2 leaves, node 3 joins. 0 holds the lease, 1 wants it, and each follows as late as it likes.
pub(crate) fn setup() -> Setup {
    Setup {
        nodes: 4,
        views: vec![view(0, &[0, 1, 2]), view(1, &[0, 1]), view(2, &[0, 1, 3])],
        gate: Gate::Decided,
        voters: vec![1, 2],
        horizon: bound(1, 2),
        rounds_max: 3,
        moves: vec![
            Move::Acquire(1),
            Move::Propose(0),
            Move::Adopt(0),
            Move::Adopt(1),
            Move::Adopt(2),
            Move::Adopt(3),
        ],
        milestones: vec![
            Milestone::AnsweredWrongView,
            Milestone::RejectedForView,
            Milestone::RejectedAsNewcomer,
            Milestone::Renewed,
        ],
        ..Setup::flease("back-to-back view changes")
    }
}

/// The primary does not wait for its lease to be decided in the new view, only for the view to be adopted.
pub(crate) fn setup_without_gate() -> Setup {
    Setup { gate: Gate::Adopted, ..Setup { name: "view changes in a hurry", ..setup() } }
}

#[test]
fn back_to_back_view_changes() {
    report::prove::<FleaseRules>(setup());
}

#[test]
fn view_changes_in_a_hurry() {
    report::prove::<FleaseRules>(setup_without_gate());
}
