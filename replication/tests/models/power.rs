//! Promises and commits, while processes end and the power of any node fails.

use replication::Config;

use crate::milestone::Milestone;
use crate::node::Input;
use crate::report::{self, bound, is_long};
use crate::setup::{Before, Setup, config};

/// Every disk writes when it likes, and processes end.
pub(crate) fn setup_kills() -> Setup {
    Setup {
        tenures: vec![vec![0], vec![1]],
        ops: vec![0],
        slow: vec![0, 1, 2],
        kills: vec![0, 1, 2],
        kills_max: bound(1, 2),
        milestones: vec![Milestone::Done, Milestone::Served1, Milestone::Served2, Milestone::LostUnwritten],
        ..Setup::quiet("ends of processes")
    }
}

/// Three tenures, one after the other or at the same time.
pub(crate) fn setup_tenures() -> Setup {
    Setup {
        before: vec![Before::Lead(0), Before::Settle(&[0, 1])],
        tenures: vec![vec![1, 2], vec![0, 1, 2]],
        ops: vec![0],
        retries_max: bound(0, 1),
        milestones: vec![Milestone::Done, Milestone::Served2, Milestone::Served3],
        ..Setup::quiet("tenures")
    }
}

/// The power of any node fails.
pub(crate) fn setup_power() -> Setup {
    Setup {
        before: vec![Before::Lead(0), Before::Settle(&[0, 1]), Before::Sync],
        tenures: vec![vec![1, 2]],
        ops: vec![0],
        syncs: vec![0],
        powers: if is_long() { vec![0, 1, 2] } else { vec![1, 2] },
        powers_max: 2,
        patience: true,
        milestones: vec![Milestone::Done, Milestone::Durable, Milestone::Served2, Milestone::Lost],
        ..Setup::quiet("power failures")
    }
}

/// What one tenure wrote, another has not seen and a third brings back, entry by entry.
pub(crate) fn setup_old_entries() -> Setup {
    Setup {
        config: Config { batch_max: 1, ..config() },
        before: vec![Before::Lead(0), Before::Settle(&[0, 1])],
        tenures: vec![vec![1], vec![0], vec![1]],
        ops: if is_long() { vec![0, 1] } else { vec![0] },
        milestones: vec![Milestone::Done, Milestone::Served3, Milestone::Served4, Milestone::DroppedTail],
        ..Setup::quiet("old entries")
    }
}

/// The same with one tenure more.
pub(crate) fn setup_equal_tails() -> Setup {
    Setup {
        tenures: vec![vec![1], vec![0], vec![2], vec![1]],
        ops: vec![0],
        milestones: vec![Milestone::Done, Milestone::Served4, Milestone::DroppedTail],
        ..Setup { name: "equal tails", ..setup_old_entries() }
    }
}

/// The first primary's disk is slow, so that others know of it sooner than itself, and may forget what they know.
pub(crate) fn setup_slow_primary() -> Setup {
    Setup {
        before: Vec::new(),
        tenures: vec![vec![0], vec![1], vec![0]],
        slow: vec![0],
        kills: vec![0],
        kills_max: bound(0, 1),
        milestones: vec![Milestone::Done, Milestone::Served2, Milestone::Served3],
        ..Setup { name: "slow primary", ..setup_equal_tails() }
    }
}

/// One operation is written at nodes 0 and 1. Logs keep nothing: what was where is forgotten soon.
pub(crate) fn setup_short_logs() -> Setup {
    let settle = Before::Settle(&[0, 1]);
    let propose = Before::Do(0, Input::Propose(0));
    Setup {
        config: Config { kept_max: 0, ..config() },
        before: vec![Before::Lead(0), settle.clone(), Before::Sync, propose, settle],
        powers: vec![0, 1],
        powers_max: 2,
        tenures: vec![vec![1]],
        ops: vec![1],
        // These two are all that answer.
        cut: vec![(0, 2), (1, 2)],
        ..Setup { name: "power failures and short logs", ..setup_power() }
    }
}

#[test]
fn slow_primary() {
    report::prove(setup_slow_primary());
}

#[test]
fn equal_tails() {
    report::prove(setup_equal_tails());
}

#[test]
fn old_entries() {
    report::prove(setup_old_entries());
}

#[test]
fn power_failures_and_short_logs() {
    report::prove(setup_short_logs());
}

#[test]
fn ends_of_processes() {
    report::prove(setup_kills());
}

#[test]
fn tenures() {
    report::prove(setup_tenures());
}

#[test]
fn power_failures() {
    report::prove(setup_power());
}
