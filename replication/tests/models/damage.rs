//! A part of a state is damaged at some node, whatever goes on meanwhile.

use crate::milestone::Milestone;
use crate::node::Input;
use crate::report::{self, bound};
use crate::setup::{Before, Setup, config};

/// All three have an operation, and the next one changes the part that may be damaged.
fn all_have_it() -> Vec<Before> {
    let all = Before::Settle(&[0, 1, 2]);
    vec![Before::Lead(0), all.clone(), Before::Do(0, Input::Propose(0)), all, Before::Sync]
}

/// Another node gets the lease.
pub(crate) fn setup() -> Setup {
    Setup {
        before: all_have_it(),
        tenures: vec![vec![1, 2]],
        ops: vec![2],
        rots: vec![0, 1],
        rots_max: 1,
        retries: vec![0, 1],
        retries_max: bound(1, 2),
        milestones: vec![
            Milestone::Done,
            Milestone::Served2,
            Milestone::Damaged,
            Milestone::Mended,
            Milestone::Offered,
            Milestone::Pulled,
        ],
        ..Setup::quiet("damage")
    }
}

/// The process ends that has found it, or that gives the part back.
pub(crate) fn setup_kills() -> Setup {
    Setup {
        config: replication::Config { parts_max: 1, versions_max: 2, ..config() },
        tenures: Vec::new(),
        slow: vec![1],
        rots: vec![1],
        kills: vec![0, 1],
        kills_max: 1,
        milestones: vec![Milestone::Done, Milestone::Damaged, Milestone::Mended, Milestone::LostUnwritten],
        ..Setup { name: "damage and ends of processes", ..setup() }
    }
}

#[test]
fn damage() {
    report::prove(setup());
}

#[test]
fn damage_and_ends_of_processes() {
    report::prove(setup_kills());
}
