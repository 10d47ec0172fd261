//! Releasing, handing over and standing down, with everything late and twice.

use lease::FleaseRules;

use crate::milestone::Milestone;
use crate::report::{self, bound};
use crate::setup::{Move, Setup};

/// An owner that may give its lease up in every way, and a rival.
pub(crate) fn setup() -> Setup {
    Setup {
        voters: vec![1, 2],
        horizon: bound(2, 3),
        rounds_max: bound(2, 3),
        moves: vec![
            Move::Acquire(0),
            Move::Acquire(1),
            Move::Release(0),
            Move::HandOver { from: 0, to: 1 },
            Move::StandDown(0),
            Move::Resume(0),
        ],
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

#[test]
fn release_and_handover() {
    report::prove::<FleaseRules>(setup());
}
