//! Releasing, handing over and standing down, with everything late and twice.

use lease::FleaseRules;

use crate::milestone::Milestone;
use crate::report;
use crate::setup::{Move, Setup};

/// Two proposers that may give the lease up in every way.
pub fn setup() -> Setup {
    Setup {
        horizon: std::env::var("H").map_or(4, |h| h.parse().unwrap()),
        rounds_max: std::env::var("R").map_or(3, |h| h.parse().unwrap()),
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
