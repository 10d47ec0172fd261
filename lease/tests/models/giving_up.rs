//! Releasing, handing over and standing down, with everything late and twice.

use lease::FleaseRules;

use crate::milestone::Milestone;
use crate::report::{self, bound};
use crate::setup::{Move, Setup};

/// An owner that may release or name its rival as successor, and may want the lease back.
pub(crate) fn setup() -> Setup {
    Setup {
        voters: vec![1, 2],
        horizon: bound(2, 3),
        rounds_max: bound(2, 3),
        moves: vec![Move::Acquire(0), Move::Acquire(1), Move::Release(0), Move::HandOver { from: 0, to: 1 }],
        milestones: vec![
            Milestone::Acquired0,
            Milestone::Acquired1,
            Milestone::GivenUpConfirmed,
            Milestone::GivenUpUnconfirmed,
            Milestone::TakenAfterRelease,
            Milestone::TakenAfterHandOver,
            Milestone::DeniedBecauseHeld,
            Milestone::RejectedAsStale,
        ],
        ..Setup::flease("release and handover")
    }
}

/// An owner whose clock is no longer trusted, and later is again.
pub(crate) fn setup_stand_down() -> Setup {
    Setup {
        horizon: bound(2, 3),
        rounds_max: 2,
        moves: vec![
            Move::Acquire(0),
            Move::Acquire(1),
            Move::StandDown(0),
            Move::Resume(0),
            Move::Release(0),
        ],
        milestones: vec![
            Milestone::Acquired1,
            Milestone::GivenUpConfirmed,
            Milestone::GivenUpUnconfirmed,
            Milestone::TakenAfterRelease,
        ],
        ..Setup { name: "standing down", ..setup() }
    }
}

#[test]
fn standing_down() {
    report::prove::<FleaseRules>(setup_stand_down());
}

#[test]
fn release_and_handover() {
    report::prove::<FleaseRules>(setup());
}
