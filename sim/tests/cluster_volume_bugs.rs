//! Rules that volumes need and that can be broken by a switch, and within how many seeds the simulator of a cluster notices. Users
//! do nothing but to volumes here until the calm.
#![expect(clippy::print_stdout, reason = "the table of what was found when is the result")]

mod finding;

use std::sync::Arc;

use replication::Bug;
use sim::cluster::{ClusterPlan, Clusters, StorePlan};
use sim::lease::Subject::{self, Flease, PaxosLease};
use sim::{FaultKind, FaultPlan, Simulation};

/// What a seed's mix of faults is replaced by, and what else of its plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// Processes end, links are cut, disks are slow.
    Rough,
    /// The same, with logs so short that states are taken over.
    Lagging,
    /// Processes stand still, for longer than a lease.
    Frozen,
    /// Power fails.
    Dark,
    /// The same with the production store.
    RealDark,
}

/// A rule that is broken, of replication, of whoever hosts it, or of both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Broken {
    Replica(Bug),
    Host(node::Bug),
    Both(Bug, node::Bug),
}

use Broken::{Both, Host, Replica};

/// Within so many seeds each is found.
const SEEDS: u64 = 40;

const FOUND_BY_THE_SIMULATOR: &[finding::Row<Weather>] = &[
    (Replica(Bug::ReadsUncommitted), Flease, Weather::Rough, SEEDS, "trees"),
    (Replica(Bug::ReadsUncommitted), PaxosLease, Weather::Rough, SEEDS, "trees"),
    (
        Both(Bug::LeaseNotChecked, node::Bug::LeaseNotCheckedWhenLeaving),
        Flease,
        Weather::Frozen,
        SEEDS,
        "answers",
    ),
    (Replica(Bug::NoDeduplication), Flease, Weather::Rough, SEEDS, "trees or replicas"),
    (Replica(Bug::TransferWithoutRequests), Flease, Weather::Lagging, SEEDS, "trees or replicas"),
    (Host(node::Bug::ClientSaysWhen), Flease, Weather::Rough, 1, "trees"),
    (Host(node::Bug::EntryTimeIgnored), Flease, Weather::Rough, SEEDS, "trees or replicas"),
    (Host(node::Bug::NamesNotListed), Flease, Weather::Lagging, SEEDS, "trees or replicas"),
    (Host(node::Bug::NamesNotListed), PaxosLease, Weather::Lagging, SEEDS, "trees or replicas"),
];

impl finding::Weather for Weather {
    type Simulation = Clusters;
    type Bug = Broken;

    fn plan(self, broken: Option<Broken>, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = Clusters::plan(subject, seed);
        (plan.files.count, plan.volumes.count, plan.volumes.percent) = (1, 1, 100);
        plan.clients = plan.clients.max(3);
        let replication = Arc::make_mut(&mut plan.shard.replication);
        // What was drawn is for as many clients as were drawn.
        replication.clients_max = replication.clients_max.max(12);
        replication.outcomes_max = replication.outcomes_max.max(24);
        match self {
            Self::Lagging => {
                (replication.kept_max, replication.kept_lending_max, replication.batch_max) = (1, 10, 1);
            }
            Self::RealDark => plan.store = Some(StorePlan::draw(seed)),
            Self::Rough | Self::Frozen | Self::Dark => {}
        }
        match broken {
            None => {}
            Some(Replica(bug)) => replication.bug = Some(bug),
            Some(Host(bug)) => plan.shard.bug = Some(bug),
            Some(Both(bug, host)) => (replication.bug, plan.shard.bug) = (Some(bug), Some(host)),
        }
        plan.faults = FaultPlan::in_tenths(self.faults().iter().copied(), plan.shard.lease.t_max);
        plan
    }
}

impl Weather {
    const fn faults(self) -> &'static [(FaultKind, u64)] {
        match self {
            Self::Rough | Self::Lagging => &[
                (FaultKind::Crash, 10),
                (FaultKind::Partition, 10),
                (FaultKind::OneWay, 15),
                (FaultKind::DiskStall, 10),
                (FaultKind::Clog, 10),
            ],
            Self::Frozen => &[(FaultKind::Pause, 4), (FaultKind::Clog, 10), (FaultKind::Partition, 40)],
            Self::Dark | Self::RealDark => &[
                (FaultKind::PowerCut, 15),
                (FaultKind::PowerCutAll, 40),
                (FaultKind::Crash, 30),
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
    use Weather::{Dark, Frozen, Lagging, RealDark, Rough};
    finding::assert_clean_without_bugs(&[Rough, Lagging, Frozen, Dark, RealDark]);
}
