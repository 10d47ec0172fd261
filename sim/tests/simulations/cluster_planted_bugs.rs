//! Every rule of locks that can be broken by a switch, and within how many seeds the simulator of a cluster notices.

use node::Bug;
use sim::cluster::{ClusterPlan, Clusters};
use sim::lease::Subject::{self, Flease, PaxosLease};
use sim::{FaultKind, FaultPlan};

use crate::finding;

/// What a seed's mix of faults is replaced by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// The seed's own.
    AsDrawn,
    /// Streams that break, and partitions.
    Breaks,
    /// Processes that keep standing still.
    Pauses,
    /// Data directories that are lost, while links are cut.
    Emptied,
    /// Data directories that are set back.
    Restored,
    /// Data directories that are copied, and daemons that die.
    Copies,
    /// Members of files that change, and daemons that die.
    Moves,
}

/// Who notices that strangers were let in.
const STRANGERS: &str = "exclusion or locks or tokens or entries or durability";

/// What takes more luck than a seed has is told by the stories in `node/tests/scenarios/bugs.rs`.
const FOUND_BY_THE_SIMULATOR: &[finding::Row<Weather>] = &[
    (Bug::NumbersForgotten, Flease, Weather::AsDrawn, 5, "tokens"),
    (Bug::NumbersForgotten, PaxosLease, Weather::AsDrawn, 5, "tokens"),
    (Bug::NoWaitAfterDeath, Flease, Weather::AsDrawn, 5, "keeping or locks"),
    (Bug::NoWaitAfterDeath, PaxosLease, Weather::AsDrawn, 20, "keeping or locks"),
    (Bug::SessionNotStretched, Flease, Weather::AsDrawn, 10, "sessions"),
    (Bug::SessionNotStretched, PaxosLease, Weather::AsDrawn, 10, "sessions"),
    (Bug::AckWithoutCover, Flease, Weather::Pauses, 300, "locks"),
    (Bug::AnyStoreAdmitted, Flease, Weather::Emptied, 100, STRANGERS),
    (Bug::AnyStoreAdmitted, PaxosLease, Weather::Emptied, 100, STRANGERS),
    (Bug::OldCopyAdmitted, Flease, Weather::Restored, 100, STRANGERS),
    (Bug::OldCopyAdmitted, PaxosLease, Weather::Restored, 100, STRANGERS),
    (Bug::LineIgnored, Flease, Weather::Copies, 100, "exclusion or locks or promptness"),
    (Bug::LineIgnored, PaxosLease, Weather::Copies, 100, "exclusion or locks or promptness"),
    (Bug::LeaseStaysAtHome, Flease, Weather::Moves, 20, "exclusion or promptness or replicas"),
];

impl finding::Weather for Weather {
    type Simulation = Clusters;
    type Bug = Bug;

    fn plan(self, bug: Option<Bug>, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = Clusters::plain(subject, seed);
        // Locks do not mind volumes.
        plan.volumes.count = 0;
        plan.shard.bug = bug;
        if let Some(faults) = self.faults() {
            plan.faults = FaultPlan::in_tenths(faults.iter().copied(), plan.shard.lease.t_max);
            plan.witnessed_percent = 100;
        }
        plan
    }
}

impl Weather {
    const fn faults(self) -> Option<&'static [(FaultKind, u64)]> {
        match self {
            Self::AsDrawn => None,
            Self::Breaks => {
                Some(&[(FaultKind::Break, 2), (FaultKind::Partition, 20), (FaultKind::Crash, 20)])
            }
            Self::Pauses => {
                Some(&[(FaultKind::Pause, 5), (FaultKind::ClientPause, 5), (FaultKind::Clog, 10)])
            }
            Self::Emptied => Some(&[
                (FaultKind::DirectoryEmptied, 10),
                (FaultKind::Partition, 10),
                (FaultKind::OneWay, 10),
                (FaultKind::Crash, 60),
            ]),
            Self::Restored => Some(&[
                (FaultKind::DirectoryRestored, 10),
                (FaultKind::Partition, 30),
                (FaultKind::Crash, 20),
                (FaultKind::CrashAll, 60),
            ]),
            Self::Copies => {
                Some(&[(FaultKind::CopyDies, 5), (FaultKind::Partition, 10), (FaultKind::Crash, 40)])
            }
            Self::Moves => {
                Some(&[(FaultKind::ViewChange, 2), (FaultKind::Partition, 20), (FaultKind::Crash, 20)])
            }
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
        Weather::Breaks,
        Weather::Pauses,
        Weather::Emptied,
        Weather::Restored,
        Weather::Copies,
        Weather::Moves,
    ]);
}
