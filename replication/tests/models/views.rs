//! Members that change, one change right after the other.

use crate::milestone::Milestone;
use crate::node::Input;
use crate::report::{self, bound, is_long};
use crate::setup::{Before, Setup};

/// Node 3 joins and node 2 leaves, at the word of any primary. Node 2 has heard of nothing.
pub(crate) fn setup() -> Setup {
    let settle = Before::Settle(&[0, 1]);
    Setup {
        nodes: 4,
        before: vec![Before::Lead(0), settle.clone(), Before::Do(0, Input::Propose(0)), settle],
        tenures: vec![vec![1, 2]],
        admit: vec![3],
        dismiss: vec![2],
        kills: vec![0],
        kills_max: bound(0, 1),
        milestones: vec![Milestone::ViewEntered, Milestone::Taken, Milestone::Served2, Milestone::Adopted],
        ..Setup::quiet("back-to-back view changes")
    }
}

/// Node 3 is a member and node 2 is none any more; node 1 knows only the first view, and wants to lead.
pub(crate) fn setup_tombstones() -> Setup {
    let settle = Before::Settle(&[0, 2, 3]);
    Setup {
        nodes: 4,
        before: vec![
            Before::Lead(0),
            settle.clone(),
            Before::Do(0, Input::Propose(0)),
            settle.clone(),
            Before::Do(0, Input::Admit(3)),
            settle.clone(),
            Before::Do(0, Input::Dismiss(2)),
            settle,
        ],
        tenures: vec![vec![1], vec![1, 3]],
        retries: vec![0, 2],
        retries_max: 2,
        kills: vec![2],
        kills_max: bound(0, 1),
        milestones: vec![Milestone::WrongView, Milestone::Forgotten],
        ..Setup::quiet("tombstones")
    }
}

/// Node 2 is dismissed, and then node 1, which has written both and may forget them, if the first one counts before it is
/// durable. Node 2 has forgotten everything, a tenure of its own with it.
pub(crate) fn setup_power() -> Setup {
    let settle = Before::Settle(&[0, 1]);
    Setup {
        before: vec![
            Before::Lead(2),
            Before::Settle(&[2]),
            Before::Do(2, Input::Power),
            Before::Lead(0),
            settle.clone(),
            Before::Sync,
            Before::Do(0, Input::Dismiss(2)),
            settle.clone(),
            Before::Do(0, Input::Dismiss(1)),
            settle,
        ],
        tenures: vec![vec![1]],
        ops: vec![0],
        syncs: vec![0],
        dismiss: if is_long() { vec![1] } else { Vec::new() },
        powers: vec![1],
        powers_max: 1,
        patience: true,
        cut: vec![(0, 2)],
        milestones: vec![Milestone::ViewEntered, Milestone::Durable, Milestone::Lost],
        ..Setup::quiet("view changes and power failures")
    }
}

#[test]
fn view_changes_and_power_failures() {
    report::prove(setup_power());
}

#[test]
fn back_to_back_view_changes() {
    report::prove(setup());
}

#[test]
fn tombstones() {
    report::prove(setup_tombstones());
}
