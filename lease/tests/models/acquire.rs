//! Acquiring and renewing, on clocks that drift as far as they may.

use lease::FleaseRules;

use crate::milestone::Milestone;
use crate::report::{self, bound};
use crate::setup::{Move, Setup};

/// Two proposers, three acceptors.
pub(crate) fn setup() -> Setup {
    Setup {
        voters: vec![1, 2],
        horizon: bound(5, 6),
        rounds_max: 3,
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

/// Nobody holds the lease at first: both ask at the same time.
pub(crate) fn setup_race() -> Setup {
    Setup {
        horizon: bound(3, 4),
        rounds_max: 2,
        voters: Vec::new(),
        milestones: vec![Milestone::Acquired0, Milestone::Acquired1, Milestone::RefusedByRegister],
        ..Setup { name: "race of two proposers", ..setup() }
    }
}

/// Messages overtake timers: a node that was stopped for a while finds both waiting.
pub(crate) fn setup_late_timers() -> Setup {
    Setup { late: vec![0, 1], ..Setup { name: "race with late timers", ..setup_race() } }
}

#[test]
fn acquire_and_renew() {
    report::prove::<FleaseRules>(setup());
}

#[test]
fn race_of_two_proposers() {
    report::prove::<FleaseRules>(setup_race());
}

#[test]
fn race_with_late_timers() {
    report::prove::<FleaseRules>(setup_late_timers());
}
