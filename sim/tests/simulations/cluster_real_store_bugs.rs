//! Rules of the production store that can be broken by a switch, and within how many seeds the simulator of a cluster notices.

use node::Bug;
use osd::store::{Bug as StoreBug, StoreRules};
use sim::cluster::{ClusterPlan, Clusters, StorePlan};
use sim::lease::Subject::{self, Flease, PaxosLease};
use sim::{FaultKind, FaultPlan};

use crate::finding;

/// What is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Broken {
    /// A rule of the store.
    Store(StoreBug),
    /// A rule of starts.
    Start(Bug),
}

/// What a seed's mix of faults is replaced by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// Syncs and writes fail.
    Failing,
    /// What was written rots.
    Rotting,
    /// Power fails, and processes end in the middle of what they do.
    Dark,
    /// Data directories are set back.
    Restored,
}

/// `CacheTrusted` is found with the simulator's own store. Here a process ends too rarely before it hears of a failed sync.
const FOUND_BY_THE_SIMULATOR: &[finding::Row<Weather>] = &[
    (Broken::Store(StoreBug::SegmentFreedEarly), Flease, Weather::Dark, 20, "stores"),
    (Broken::Store(StoreBug::SegmentFreedEarly), PaxosLease, Weather::Dark, 20, "stores"),
    (Broken::Store(StoreBug::EarlierSegmentSkipped), Flease, Weather::Dark, 100, "stores"),
    (Broken::Store(StoreBug::AppliedTwice), Flease, Weather::Dark, 20, "stores or starts or entries"),
    (Broken::Store(StoreBug::ExtentFreedEarly), Flease, Weather::Dark, 20, "stores"),
    (Broken::Store(StoreBug::IndexBeforeContent), Flease, Weather::Dark, 20, "stores"),
    (Broken::Store(StoreBug::ChecksumNotChecked), Flease, Weather::Rotting, 20, "stores"),
    (Broken::Start(Bug::TornTakenForDamage), Flease, Weather::Dark, 20, "stores"),
    (Broken::Start(Bug::DamageCutOff), Flease, Weather::Rotting, 60, "stores or entries"),
    (Broken::Start(Bug::FailedStoreOpened), Flease, Weather::Failing, 100, "stores"),
    (Broken::Start(Bug::MemoMadeFirst), Flease, Weather::Dark, 20, "stores"),
    (
        Broken::Start(Bug::OldCopyAdmitted),
        Flease,
        Weather::Restored,
        100,
        "exclusion or locks or tokens or entries or durability",
    ),
];

impl finding::Weather for Weather {
    type Simulation = Clusters;
    type Bug = Broken;

    fn plan(self, bug: Option<Broken>, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = Clusters::plain(subject, seed);
        let mut store = StorePlan::draw(seed);
        match bug {
            Some(Broken::Start(bug)) => plan.shard.bug = Some(bug),
            Some(Broken::Store(bug)) => store.rules = StoreRules::without(Some(bug)),
            None => {}
        }
        plan = plan.with_store(store);
        plan.faults = FaultPlan::in_tenths(self.faults().iter().copied(), plan.shard.lease.t_max);
        if self == Self::Failing {
            // What fails is about files more often then.
            plan.volumes.count = 0;
        }
        if self == Self::Restored {
            plan.witnessed_percent = 100;
        }
        plan
    }
}

impl Weather {
    const fn faults(self) -> &'static [(FaultKind, u64)] {
        match self {
            Self::Failing => &[
                (FaultKind::SyncError, 10),
                (FaultKind::WriteError, 100),
                (FaultKind::Crash, 10),
                (FaultKind::PowerCutAll, 20),
            ],
            Self::Rotting => &[
                (FaultKind::BitRot, 10),
                (FaultKind::ContentRot, 10),
                (FaultKind::Misdirected, 20),
                (FaultKind::Crash, 20),
                (FaultKind::PowerCut, 60),
            ],
            Self::Dark => &[(FaultKind::PowerCut, 10), (FaultKind::PowerCutAll, 40), (FaultKind::Crash, 10)],
            Self::Restored => &[
                (FaultKind::DirectoryRestored, 10),
                (FaultKind::Partition, 30),
                (FaultKind::Crash, 20),
                (FaultKind::CrashAll, 60),
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
        Weather::Restored,
    ]);
}
