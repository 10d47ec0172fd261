//! Rules that volumes need and that can be broken by a switch, and within how many seeds the simulator of a cluster notices. Users
//! do nothing but to volumes here until the calm.

use replication::Bug;
use sim::cluster::{ClusterPlan, Clusters, StorePlan};
use sim::lease::Subject::{self, Flease, PaxosLease};
use sim::{FaultKind, FaultPlan};

use crate::breaking::{Broken, FROZEN, LEASE_NEVER_CHECKED, ROUGH, make_room_for_more, shorten_logs};
use crate::finding;

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

use Broken::{Host, Replica};

/// Within so many seeds each is found.
const SEEDS: u64 = 40;

const FOUND_BY_THE_SIMULATOR: &[finding::Row<Weather>] = &[
    (Replica(Bug::ReadsUncommitted), Flease, Weather::Rough, SEEDS, "trees"),
    (Replica(Bug::ReadsUncommitted), PaxosLease, Weather::Rough, SEEDS, "trees"),
    (LEASE_NEVER_CHECKED, Flease, Weather::Frozen, SEEDS, "answers"),
    // What is done twice may also be taken to be under way for ever.
    (Replica(Bug::NoDeduplication), Flease, Weather::Rough, SEEDS, "trees or replicas or promptness"),
    (Replica(Bug::TransferWithoutRequests), Flease, Weather::Lagging, SEEDS, "trees or replicas"),
    (Host(node::Bug::ClientSaysWhen), Flease, Weather::Rough, 1, "trees"),
    (Host(node::Bug::EntryTimeIgnored), Flease, Weather::Rough, SEEDS, "trees or replicas"),
    (Host(node::Bug::NamesNotListed), Flease, Weather::Lagging, SEEDS, "trees, replicas or holders"),
    (Host(node::Bug::NamesNotListed), PaxosLease, Weather::Lagging, SEEDS, "trees, replicas or holders"),
    (Host(node::Bug::UntoldHoldNothing), Flease, Weather::Rough, SEEDS, "holders"),
];

impl finding::Weather for Weather {
    type Simulation = Clusters;
    type Bug = Broken;

    fn plan(self, broken: Option<Broken>, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = Clusters::plain(subject, seed);
        (plan.files.count, plan.volumes.count, plan.volumes.percent) = (1, 1, 100);
        plan.clients = plan.clients.max(3);
        make_room_for_more(&mut plan);
        match self {
            Self::Lagging => shorten_logs(&mut plan),
            Self::RealDark => plan = plan.with_store(StorePlan::draw(seed)),
            Self::Rough | Self::Frozen | Self::Dark => {}
        }
        broken.into_iter().for_each(|broken| broken.plant(&mut plan));
        plan.faults = FaultPlan::in_tenths(self.faults().iter().copied(), plan.shard.lease.t_max);
        plan
    }
}

impl Weather {
    const fn faults(self) -> &'static [(FaultKind, u64)] {
        match self {
            Self::Rough | Self::Lagging => ROUGH,
            Self::Frozen => FROZEN,
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
