//! Acquiring and renewing, on clocks that drift as far as they may.

use lease::FleaseRules;

use crate::milestone::Milestone;
use crate::report;
use crate::setup::{Move, Setup};

/// Two proposers, three acceptors.
pub fn setup() -> Setup {
    Setup {
        horizon: std::env::var("H").map_or(7, |h| h.parse().unwrap()), rounds_max: std::env::var("R").map_or(3, |h| h.parse().unwrap()),
        moves: vec![Move::Acquire(0), Move::Acquire(1)],
        milestones: vec![
            Milestone::Acquired0,
            Milestone::Acquired1,
            Milestone::Renewed,
            Milestone::LostByExpiry,
            Milestone::TakenAfterExpiry,
            Milestone::DeniedBecauseHeld,
            Milestone::DeniedByRefusals,
            Milestone::DeniedForSilence,
            Milestone::RefusedByRegister,
        ],
        ..Setup::flease("acquire and renew")
    }
}

#[test]
fn acquire_and_renew() {
    report::prove::<FleaseRules>(setup());
}
