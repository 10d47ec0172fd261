//! Rules of replicated files that can be broken by a switch, and within how many seeds the simulator of a cluster notices.
#![expect(clippy::print_stdout, reason = "the table of what was found when is the result")]

mod finding;

use std::sync::Arc;

use replication::Bug;
use sim::cluster::{ClusterPlan, Clusters};
use sim::lease::Subject::{self, Flease};
use sim::{FaultKind, FaultPlan, Simulation};

/// What a seed's mix of faults is replaced by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// Processes end, links are cut, disks are slow.
    Rough,
    /// Power fails.
    Dark,
}

/// What takes more luck than a seed has is told by the stories in `replication/tests/scenarios/`.
const FOUND_BY_THE_SIMULATOR: &[finding::Row<Weather>] = &[
    (Bug::NoPredecessorCheck, Flease, Weather::Rough, 20, "entries"),
    (Bug::AckBeforeWrite, Flease, Weather::Rough, 20, "entries"),
    (Bug::ReadsUncommitted, Flease, Weather::Rough, 40, "linearizability"),
    (Bug::NoDeduplication, Flease, Weather::Rough, 20, "replicas or linearizability"),
    (Bug::AckBeforeWrite, Flease, Weather::Dark, 20, "entries"),
];

impl finding::Weather for Weather {
    type Simulation = Clusters;
    type Bug = Bug;

    fn plan(self, bug: Option<Bug>, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = Clusters::plan(subject, seed);
        Arc::make_mut(&mut plan.shard.replication).bug = bug;
        plan.faults = FaultPlan::in_tenths(self.faults().iter().copied(), plan.shard.lease.t_max);
        plan
    }
}

impl Weather {
    const fn faults(self) -> &'static [(FaultKind, u64)] {
        match self {
            Self::Rough => &[
                (FaultKind::Crash, 10),
                (FaultKind::Partition, 10),
                (FaultKind::OneWay, 15),
                (FaultKind::DiskStall, 10),
                (FaultKind::Clog, 10),
            ],
            Self::Dark => &[
                (FaultKind::PowerCut, 15),
                (FaultKind::PowerCutAll, 40),
                (FaultKind::Partition, 30),
                (FaultKind::DiskStall, 15),
            ],
        }
    }
}

#[test]
fn every_planted_bug_is_found() {
    finding::assert_all_found(FOUND_BY_THE_SIMULATOR);
}

#[test]
fn without_a_bug_the_same_weathers_are_clean() {
    finding::assert_clean_without_bugs(&[Weather::Rough, Weather::Dark]);
}
