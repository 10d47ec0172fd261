//! Rules of stores that can be broken by a switch, and within how many seeds the simulator of a cluster notices.

use std::sync::Arc;

use node::Bug;
use replication::Bug as Damage;
use sim::cluster::{ClusterPlan, Clusters};
use sim::lease::Subject::{self, Flease, PaxosLease};
use sim::{FaultKind, FaultPlan};

use crate::finding;

/// What is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Broken {
    /// A rule of starts.
    Start(Bug),
    /// A sync that is about the present segment alone: earlier ones are said to be durable, and are not.
    EarlierSegmentSkipped,
    /// A rule of replicas that lack parts of their state, or all of it.
    Damage(replication::Bug),
}

/// What a seed's mix of faults is replaced by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// Syncs and writes fail.
    Failing,
    /// What was written rots, and writes go elsewhere.
    Rotting,
    /// Power fails, and processes end as soon as they start.
    Dark,
    /// Parts of files cannot be read, while daemons come and go.
    Lacking,
}

const FOUND_BY_THE_SIMULATOR: &[finding::Row<Weather>] = &[
    (Broken::Start(Bug::FailedStoreOpened), Flease, Weather::Failing, 20, "stores"),
    (Broken::Start(Bug::FailedStoreOpened), PaxosLease, Weather::Failing, 20, "stores"),
    (Broken::Start(Bug::CacheTrusted), Flease, Weather::Failing, 40, "stores"),
    (Broken::Start(Bug::DamageCutOff), Flease, Weather::Rotting, 20, "stores"),
    (Broken::Start(Bug::DamageCutOff), PaxosLease, Weather::Rotting, 20, "stores"),
    (Broken::Start(Bug::MemoMadeFirst), Flease, Weather::Dark, 20, "stores"),
    (Broken::EarlierSegmentSkipped, Flease, Weather::Dark, 5, "stores"),
    (
        Broken::Damage(Damage::DamagedServes),
        Flease,
        Weather::Lacking,
        20,
        "linearizability or trees or replicas",
    ),
    (
        Broken::Damage(Damage::DamagedServes),
        PaxosLease,
        Weather::Lacking,
        20,
        "linearizability or trees or replicas",
    ),
    (
        Broken::Damage(Damage::DamageNotKept),
        Flease,
        Weather::Lacking,
        20,
        "starts or linearizability or trees or replicas or holders",
    ),
];

impl finding::Weather for Weather {
    type Simulation = Clusters;
    type Bug = Broken;

    fn plan(self, bug: Option<Broken>, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = Clusters::plain(subject, seed);
        match bug {
            Some(Broken::Start(bug)) => plan.shard.bug = Some(bug),
            Some(Broken::EarlierSegmentSkipped) => plan.skips_older = Some(8),
            Some(Broken::Damage(bug)) => Arc::make_mut(&mut plan.shard.replication).bug = Some(bug),
            None => {}
        }
        plan.faults = FaultPlan::in_tenths(self.faults().iter().copied(), plan.shard.lease.t_max);
        plan
    }
}

impl Weather {
    const fn faults(self) -> &'static [(FaultKind, u64)] {
        match self {
            Self::Failing => &[
                (FaultKind::SyncError, 10),
                (FaultKind::WriteError, 100),
                (FaultKind::Crash, 30),
                (FaultKind::PowerCutAll, 100),
            ],
            Self::Rotting => &[
                (FaultKind::BitRot, 10),
                (FaultKind::Misdirected, 20),
                (FaultKind::Crash, 20),
                (FaultKind::PowerCut, 60),
            ],
            Self::Dark => &[(FaultKind::PowerCut, 10), (FaultKind::PowerCutAll, 40), (FaultKind::Crash, 10)],
            Self::Lacking => &[
                (FaultKind::ContentRot, 5),
                (FaultKind::Crash, 20),
                (FaultKind::Partition, 20),
                (FaultKind::Break, 20),
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
    finding::assert_clean_without_bugs(&[
        Weather::Failing,
        Weather::Rotting,
        Weather::Dark,
        Weather::Lacking,
    ]);
}
