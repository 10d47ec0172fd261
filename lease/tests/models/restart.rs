//! Restarts without memory: quarantine, floors, and what witnesses say of the dead.

use lease::FleaseRules;

use crate::milestone::Milestone;
use crate::report::{self, bound};
use crate::setup::{Move, Setup};

/// The first owner, its voter and its rival restart; the owner's death is reported to the rival.
pub(crate) fn setup() -> Setup {
    Setup {
        voters: vec![1, 2],
        horizon: bound(5, 6),
        rounds_max: 2,
        moves: vec![
            Move::Acquire(0),
            Move::Acquire(1),
            Move::Restart(1),
            Move::Restart(0),
            Move::Notice { dead: 0, to: 1 },
        ],
        milestones: vec![
            Milestone::Acquired0,
            Milestone::Acquired1,
            Milestone::RejectedInQuarantine,
            Milestone::RefusedByFloor,
            Milestone::TakenAfterDeath,
            Milestone::TakenAfterExpiry,
        ],
        ..Setup::flease("restart with quarantine")
    }
}

/// Attempts from before a voter's restart live on until its quarantine is over.
pub(crate) fn setup_late_timers() -> Setup {
    Setup {
        voters: Vec::new(),
        // The two rivals know each other only through node 2, which forgets.
        cut: vec![(0, 1)],
        late: vec![0, 1],
        horizon: bound(5, 6),
        rounds_max: 2,
        moves: vec![Move::Acquire(0), Move::Acquire(1), Move::Restart(2)],
        milestones: vec![Milestone::Acquired0, Milestone::Acquired1, Milestone::RejectedInQuarantine],
        ..Setup { name: "restart with late timers", ..setup() }
    }
}

#[test]
fn restart_with_quarantine() {
    report::prove::<FleaseRules>(setup());
}

#[test]
fn restart_with_late_timers() {
    report::prove::<FleaseRules>(setup_late_timers());
}
