//! Rules of what clients may answer from caches that can be broken by a switch, and within how many seeds the simulator of a cluster
//! notices. Users do nothing but to a volume here until the calm, and ask their own process first.
#![expect(clippy::print_stdout, reason = "the table of what was found when is the result")]

use base::Span;
use node::Bug;
use sim::cluster::{ClusterPlan, Clusters, TreeHabits};
use sim::lease::Subject::{self, Flease, PaxosLease};
use sim::{FaultKind, FaultPlan, Simulation, Trace};

use crate::breaking::{FROZEN, ROUGH, make_room_for_more};
use crate::finding;

/// What a seed's mix of faults is replaced by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// Processes end, links are cut, disks are slow.
    Rough,
    /// Processes stand still, for longer than a lease.
    Frozen,
    /// Processes end, and others are told; and links are cut.
    Dying,
}

/// Within so many seeds each is found.
const SEEDS: u64 = 10;

const FOUND_BY_THE_SIMULATOR: &[finding::Row<Weather>] = &[
    (Bug::GrantsIgnored, Flease, Weather::Rough, SEEDS, "trees"),
    (Bug::GrantsIgnored, PaxosLease, Weather::Rough, SEEDS, "trees"),
    (Bug::RevocationNotWaitedFor, Flease, Weather::Rough, SEEDS, "trees"),
    (Bug::RevocationNotWaitedFor, PaxosLease, Weather::Rough, SEEDS, "trees"),
    (Bug::GrantedBeforeOutcome, Flease, Weather::Rough, 8 * SEEDS, "trees"),
];

impl finding::Weather for Weather {
    type Simulation = Clusters;
    type Bug = Bug;

    fn plan(self, broken: Option<Bug>, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = Clusters::plain(subject, seed);
        (plan.files.count, plan.volumes.count, plan.volumes.percent) = (1, 1, 100);
        plan.volumes.caches = true;
        plan.volumes.habits =
            TreeHabits { names: 3, changes_percent: 12, again_percent: 75, clear_permille: 0 };
        // They look often, and are not taken for gone between two looks.
        plan.files.think = Span::from_millis(60);
        plan.shard.file_idle = Span::from_secs(3);
        plan.clients = plan.clients.max(3);
        make_room_for_more(&mut plan);
        plan.shard.bug = broken;
        plan.faults = FaultPlan::in_tenths(self.faults().iter().copied(), plan.shard.lease.t_max);
        plan
    }
}

impl Weather {
    const fn faults(self) -> &'static [(FaultKind, u64)] {
        match self {
            Self::Rough => ROUGH,
            Self::Frozen => FROZEN,
            Self::Dying => &[(FaultKind::Crash, 4), (FaultKind::Partition, 20), (FaultKind::OneWay, 20)],
        }
    }
}

#[test]
fn every_planted_bug_is_found() {
    finding::assert_all_found(FOUND_BY_THE_SIMULATOR);
}

#[test]
fn without_a_bug_the_same_weathers_are_clean() {
    use Weather::{Dying, Frozen, Rough};
    finding::assert_clean_without_bugs(&[Rough, Frozen, Dying]);
}

#[test]
fn users_know_much_without_asking() {
    for subject in Subject::ALL {
        let plan = finding::Weather::plan(Weather::Rough, None, subject, 1);
        let trees = Clusters::run(subject, &plan, Trace::off()).trees;
        println!("{}: {} of {} answers were known", subject.name(), trees.known, trees.answered);
        assert!(trees.known > 20 && trees.known < trees.answered);
    }
}
