//! Rules of replicated files that can be broken by a switch, and within how many seeds the simulator of a cluster notices.

use std::sync::Arc;

use base::Span;
use replication::Bug;
use sim::cluster::{ClusterPlan, Clusters};
use sim::lease::Subject::{self, Flease, PaxosLease};
use sim::{FaultKind, FaultPlan, Simulation, Trace, Violation};

use crate::breaking::{Broken, FROZEN, LEASE_NEVER_CHECKED, ROUGH, make_room_for_more, shorten_logs};
use crate::finding::{self, Weather as _};

/// What a seed's mix of faults is replaced by, and what else of its plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// Processes end, links are cut, disks are slow.
    Rough,
    /// The same, with logs so short that states are taken over, and one entry in a message.
    Lagging,
    /// Processes stand still, for longer than a lease.
    Frozen,
    /// All processes end, again and again, and disks are slow.
    Dying,
    /// Tenures end as soon as they have begun, and many users write to one file meanwhile.
    Divided,
    /// Power fails.
    Dark,
    /// Files know no more clients than there are, and these come and go, and are cut off.
    Crowded,
    /// The same, and only who was silent for long makes room.
    Patient,
}

use Broken::{Host, Replica};

/// Within so many seeds each is found. Most are in the first; a change of the simulator changes which seed it is.
const SEEDS: u64 = 60;
/// What one seed in twenty finds.
const SEEDS_OF_LUCK: u64 = 200;

const FOUND_BY_THE_SIMULATOR: &[finding::Row<Weather>] = &[
    (Replica(Bug::NoEpochCheck), Flease, Weather::Frozen, SEEDS, "promises"),
    (Replica(Bug::PromiseNotKept), Flease, Weather::Rough, SEEDS, "promises"),
    (Replica(Bug::NoPredecessorCheck), Flease, Weather::Lagging, SEEDS, "entries"),
    (Replica(Bug::AckBeforeWrite), Flease, Weather::Rough, SEEDS, "entries or promises or replicas"),
    (Replica(Bug::AckBeforeWrite), PaxosLease, Weather::Dying, SEEDS, "entries or promises or replicas"),
    (Replica(Bug::OldEntriesCountedCommitted), Flease, Weather::Lagging, SEEDS, "entries"),
    (Replica(Bug::EqualTailsOfAMajority), Flease, Weather::Rough, SEEDS, "entries"),
    (LEASE_NEVER_CHECKED, Flease, Weather::Frozen, SEEDS, "answers"),
    (Replica(Bug::ReadsUncommitted), Flease, Weather::Rough, SEEDS, "linearizability"),
    (Replica(Bug::ServedBeforeBarrier), Flease, Weather::Rough, SEEDS, "answers"),
    (Replica(Bug::TailBySequence), Flease, Weather::Divided, SEEDS_OF_LUCK, "entries"),
    (Replica(Bug::NoDeduplication), Flease, Weather::Rough, SEEDS, "replicas or linearizability"),
    (Replica(Bug::SyncByPrimaryAlone), Flease, Weather::Rough, SEEDS, "durability"),
    (Replica(Bug::ForgettingIgnored), Flease, Weather::Dark, SEEDS, "entries or promises"),
    (Replica(Bug::SyncIgnoresGeneration), Flease, Weather::Dark, SEEDS, "entries"),
    (Replica(Bug::TransferWithoutRequests), Flease, Weather::Lagging, SEEDS, "replicas or linearizability"),
    (Replica(Bug::TransferForgetsPromise), Flease, Weather::Lagging, SEEDS, "promises"),
    (Host(node::Bug::AnswersWhileReleasing), Flease, Weather::Rough, SEEDS, "answers"),
    (Host(node::Bug::LeaseNotCheckedWhenLeaving), Flease, Weather::Frozen, SEEDS, "answers"),
    (Replica(Bug::ExpiredForgotten), Flease, Weather::Crowded, SEEDS, "endings or replicas"),
    (Replica(Bug::ExpiredForgotten), PaxosLease, Weather::Crowded, SEEDS, "endings or replicas"),
    (Host(node::Bug::HeardClientOver), Flease, Weather::Patient, SEEDS, "endings"),
    (Host(node::Bug::PresentClientOver), Flease, Weather::Crowded, SEEDS, "endings"),
    (Host(node::Bug::DurableEarly), Flease, Weather::Rough, SEEDS, "durability"),
    (Host(node::Bug::EpochReused), Flease, Weather::Dying, SEEDS, "promises or entries"),
];

impl finding::Weather for Weather {
    type Simulation = Clusters;
    type Bug = Broken;

    fn plan(self, broken: Option<Broken>, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = Clusters::plain(subject, seed);
        // Volumes have weathers of their own.
        plan.volumes.count = 0;
        match self {
            Self::Lagging => shorten_logs(&mut plan),
            Self::Divided => {
                (plan.clients, plan.files.count, plan.files.writers) = (6, 1, 3);
                make_room_for_more(&mut plan);
                plan.treacherous_percent = 100;
                // Who is cut off goes on for as long as it has the lease.
                let isolated_after = plan.shard.lease.t_max * 2;
                Arc::make_mut(&mut plan.shard.replication).isolated_after = isolated_after;
            }
            Self::Crowded | Self::Patient => {
                plan.clients = 6;
                let replication = Arc::make_mut(&mut plan.shard.replication);
                replication.clients_max = 6;
                replication.outcomes_max = replication.outcomes_max.max(12);
                let silent_ms = if self == Self::Crowded { 500 } else { 15_000 };
                plan.shard.client_silent = Span::from_millis(silent_ms);
            }
            Self::Rough | Self::Frozen | Self::Dying | Self::Dark => {}
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
            Self::Dying => &[
                (FaultKind::CrashAll, 30),
                (FaultKind::Crash, 20),
                (FaultKind::DiskStall, 5),
                (FaultKind::DiskFull, 10),
            ],
            Self::Divided => &[
                (FaultKind::Partition, 6),
                (FaultKind::OneWay, 20),
                (FaultKind::Crash, 20),
                (FaultKind::ClientCrash, 5),
            ],
            Self::Crowded | Self::Patient => &[
                (FaultKind::ClientCrash, 3),
                (FaultKind::ClientPause, 10),
                (FaultKind::OneWay, 5),
                (FaultKind::Partition, 10),
                (FaultKind::Break, 5),
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

/// Of all that users did, those operations are shown that contradict each other, and whoever runs the seed again sees them, too.
#[test]
fn what_contradicts_itself_is_shown_and_nothing_else() {
    // What some seeds show takes more steps to narrow down than a search has.
    let found = (0..40).find_map(|seed| {
        let plan = Weather::Rough.plan(Some(Replica(Bug::ReadsUncommitted)), Flease, seed);
        let summary = Clusters::run(Flease, &plan, Trace::off());
        let is_narrow = |violation: &Violation| {
            violation.checker == "linearizability" && !violation.what.contains("no order was found")
        };
        Some((plan, summary.violations.into_iter().find(is_narrow)?))
    });
    let (plan, violation) = found.expect("a seed shows it");
    let numbers = violation.what.split(|c: char| !c.is_ascii_digit()).filter_map(|text| text.parse().ok());
    let numbers: Vec<usize> = numbers.collect();
    let [_, shown, total, ..] = numbers[..] else { panic!("{violation}") };
    assert!((1..=8).contains(&shown) && total > 100, "{violation}");
    assert_eq!(violation.shown.len(), shown * 2, "a call and a return of each: {violation:#?}");
    let again = Clusters::run(Flease, &plan, Trace::off());
    assert_eq!(again.violations, [violation]);
}

#[test]
fn without_a_bug_the_same_weathers_are_clean() {
    use Weather::{Crowded, Dark, Divided, Dying, Frozen, Lagging, Patient, Rough};
    finding::assert_clean_without_bugs(&[Rough, Lagging, Frozen, Dying, Divided, Dark, Crowded, Patient]);
}
