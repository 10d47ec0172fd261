//! Dropping registers that are idle, while messages of the past are still under way.

use base::Span;
use lease::{Config, FleaseRules};

use crate::milestone::Milestone;
use crate::report;
use crate::setup::{Move, Setup, config};

/// Registers are dropped as soon as the rules allow.
pub fn setup() -> Setup {
    Setup {
        config: Config { linger: Span::ZERO, ..config(3, 1) },
        horizon: std::env::var("H").map_or(7, |h| h.parse().unwrap()),
        rounds_max: std::env::var("R").map_or(2, |h| h.parse().unwrap()),
        moves: vec![Move::Acquire(0), Move::Acquire(1)],
        milestones: vec![
            Milestone::Acquired0,
            Milestone::Acquired1,
            Milestone::Dropped,
            Milestone::RefusedByFloor,
            Milestone::RejectedTooOld,
        ],
        ..Setup::flease("dropping registers")
    }
}

#[test]
fn dropping_registers() {
    report::prove::<FleaseRules>(setup());
}
