//! States that are taken over by parts, while either side ends or another node gets the lease.

use replication::Config;

use crate::milestone::Milestone;
use crate::node::Input;
use crate::report::{self, bound};
use crate::setup::{Before, Setup, config};

/// Logs that keep nothing, and parts that come one by one.
fn short_logs() -> Config {
    Config { kept_max: 0, parts_max: 1, versions_max: 2, ..config() }
}

/// Nodes 0 and 1 have two operations, one for each cell, and node 2 has nothing.
fn node_2_lags() -> Vec<Before> {
    let settle = Before::Settle(&[0, 1]);
    let propose = |op| Before::Do(0, Input::Propose(op));
    vec![Before::Lead(0), settle.clone(), propose(0), settle.clone(), propose(1), settle, Before::Sync]
}

/// Processes end.
pub(crate) fn setup() -> Setup {
    Setup {
        config: short_logs(),
        before: node_2_lags(),
        tenures: vec![vec![0, 1, 2]],
        ops: vec![0, 2],
        retries: vec![0, 1],
        retries_max: bound(1, 2),
        kills: vec![0, 2],
        kills_max: 1,
        milestones: vec![
            Milestone::Offered,
            Milestone::Pulled,
            Milestone::Taken,
            Milestone::Served2,
            Milestone::Behind,
        ],
        ..Setup::quiet("transfers")
    }
}

/// The power of either side fails.
pub(crate) fn setup_power() -> Setup {
    Setup {
        ops: Vec::new(),
        retries_max: 1,
        kills_max: 0,
        powers: vec![0, 2],
        powers_max: 1,
        milestones: vec![Milestone::Pulled, Milestone::Taken, Milestone::Served2, Milestone::LostUnsynced],
        ..Setup { name: "transfers and power failures", ..setup() }
    }
}

#[test]
fn transfers() {
    report::prove(setup());
}

#[test]
fn transfers_and_power_failures() {
    report::prove(setup_power());
}
