//! Restarts without memory: quarantine, floors, and what witnesses say of the dead.

use lease::FleaseRules;

use crate::milestone::Milestone;
use crate::report;
use crate::setup::{Move, Setup};

/// An acceptor that is also a proposer restarts; an owner restarts and its death is reported.
pub fn setup() -> Setup {
    Setup {
        horizon: std::env::var("H").map_or(7, |h| h.parse().unwrap()),
        rounds_max: std::env::var("R").map_or(2, |h| h.parse().unwrap()),
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

#[test]
fn restart_with_quarantine() {
    report::prove::<FleaseRules>(setup());
}
