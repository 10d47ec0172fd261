//! Dropping registers that are idle, while messages of the past are still under way.

use base::Span;
use lease::{Config, FleaseRules};

use crate::milestone::Milestone;
use crate::report::{self, bound};
use crate::setup::{Move, Setup, config};

/// Registers are dropped as soon as the rules allow.
pub(crate) fn setup() -> Setup {
    Setup {
        config: Config { linger: Span::ZERO, ..config(3, 1) },
        horizon: bound(6, 7),
        rounds_max: bound(2, 3),
        moves: vec![Move::Acquire(0), Move::Acquire(1)],
        milestones: vec![
            Milestone::Acquired0,
            Milestone::Acquired1,
            Milestone::Dropped,
            Milestone::RefusedByFloor,
        ],
        ..Setup::flease("dropping registers")
    }
}

/// Attempts live on beyond their deadline, because their timers are late.
pub(crate) fn setup_late_timers() -> Setup {
    Setup {
        // The two rivals know each other only through node 2, which forgets.
        cut: vec![(0, 1)],
        late: vec![0, 1],
        horizon: bound(4, 5),
        rounds_max: 2,
        milestones: vec![Milestone::Acquired0, Milestone::Acquired1, Milestone::Dropped],
        ..Setup { name: "dropping with late timers", ..setup() }
    }
}

#[test]
fn dropping_registers() {
    report::prove::<FleaseRules>(setup());
}

#[test]
fn dropping_with_late_timers() {
    report::prove::<FleaseRules>(setup_late_timers());
}
