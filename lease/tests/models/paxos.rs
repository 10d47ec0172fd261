//! PaxosLease: spans instead of times, on clocks that have nothing in common but their rate.

use lease::PaxosRules;

use crate::milestone::Milestone;
use crate::report;
use crate::setup::{Move, Setup};

/// Two proposers, releases and a restart.
pub fn setup() -> Setup {
    Setup {
        horizon: std::env::var("H").map_or(7, |h| h.parse().unwrap()),
        rounds_max: std::env::var("R").map_or(3, |h| h.parse().unwrap()),
        moves: vec![Move::Acquire(0), Move::Acquire(1), Move::Release(0), Move::Restart(1)],
        milestones: vec![
            Milestone::Acquired0,
            Milestone::Acquired1,
            Milestone::Renewed,
            Milestone::LostByExpiry,
            Milestone::GivenUpConfirmed,
            Milestone::RejectedInQuarantine,
        ],
        ..Setup::paxos("PaxosLease")
    }
}

#[test]
fn paxos_lease() {
    report::prove::<PaxosRules>(setup());
}
