//! Rules of directories that are lent to clients which create files there by themselves, broken by a switch at clients or at daemons, and
//! within how many seeds the simulator of a cluster notices.
#![expect(clippy::print_stdout, reason = "the table of what was found when is the result")]

use base::Span;
use client::core::Rules;
use sim::cluster::{ClusterPlan, Clusters, LendCounts, TreeHabits};
use sim::lease::Subject::{self, Flease, PaxosLease};
use sim::{FaultKind, FaultPlan, Simulation, Trace};

use crate::breaking::make_room_for_more;
use crate::finding;

/// What is broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    AtClients(client::core::Bug),
    AtDaemons(node::Bug),
}

/// What a seed's mix of faults is replaced by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// Processes of daemons end, links are cut.
    Rough,
    /// Clients end themselves, and processes of daemons.
    Dying,
    /// Clients stand still, and their links are cut.
    Frozen,
}

/// Within so many seeds each is found.
const SEEDS: u64 = 10;

const FOUND_BY_THE_SIMULATOR: &[finding::Row<Weather>] = &[
    (Bug::AtClients(client::core::Bug::AnsweredBeforeEntered), Flease, Weather::Rough, SEEDS, "trees"),
    (Bug::AtClients(client::core::Bug::AnsweredBeforeEntered), PaxosLease, Weather::Rough, SEEDS, "trees"),
    (Bug::AtClients(client::core::Bug::CreatedInRemoved), Flease, Weather::Rough, 4 * SEEDS, "trees"),
    (Bug::AtClients(client::core::Bug::CreatedInRemoved), PaxosLease, Weather::Rough, 4 * SEEDS, "trees"),
    (Bug::AtClients(client::core::Bug::ToldOutOfOrder), Flease, Weather::Rough, 4 * SEEDS, "trees"),
    (Bug::AtClients(client::core::Bug::ToldOutOfOrder), PaxosLease, Weather::Rough, 4 * SEEDS, "trees"),
    (Bug::AtDaemons(node::Bug::DirectoryOfTwo), Flease, Weather::Rough, SEEDS, "trees"),
    (Bug::AtDaemons(node::Bug::DirectoryOfTwo), PaxosLease, Weather::Rough, SEEDS, "trees"),
];

impl finding::Weather for Weather {
    type Simulation = Clusters;
    type Bug = Bug;

    fn plan(self, broken: Option<Bug>, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = Clusters::plain(subject, seed);
        (plan.files.count, plan.volumes.count, plan.volumes.percent) = (1, 1, 100);
        plan.lend_dirs(12);
        plan.volumes.habits =
            TreeHabits { names: 6, changes_percent: 12, again_percent: 25, clear_permille: 0 };
        plan.files.think = Span::from_millis(20);
        plan.files.writers = 2;
        plan.clients = plan.clients.max(3);
        make_room_for_more(&mut plan);
        match broken {
            Some(Bug::AtClients(bug)) => plan.volumes.rules = Rules::without(Some(bug)),
            Some(Bug::AtDaemons(bug)) => plan.shard.bug = Some(bug),
            None => {}
        }
        plan.faults = FaultPlan::in_tenths(self.faults().iter().copied(), plan.shard.lease.t_max);
        plan
    }
}

impl Weather {
    const fn faults(self) -> &'static [(FaultKind, u64)] {
        use FaultKind::{Break, ClientCrash, ClientPause, Crash, OneWay, Partition};
        match self {
            Self::Rough => &[(Crash, 20), (Partition, 30), (Break, 10)],
            Self::Dying => &[(Crash, 20), (ClientCrash, 10), (Break, 10)],
            Self::Frozen => &[(ClientPause, 10), (Partition, 20), (OneWay, 20)],
        }
    }
}

#[test]
fn every_planted_bug_is_found() {
    finding::assert_all_found(FOUND_BY_THE_SIMULATOR);
}

#[test]
fn without_a_bug_the_same_weathers_are_clean() {
    finding::assert_clean_without_bugs(&[Weather::Rough, Weather::Dying, Weather::Frozen]);
}

#[test]
fn clients_create_much_without_asking() {
    for subject in Subject::ALL {
        let lends = (0..12).map(|seed| {
            let plan = finding::Weather::plan(Weather::Rough, None, subject, seed);
            Clusters::run(subject, &plan, Trace::off()).lends
        });
        let lends: Vec<LendCounts> = lends.collect();
        println!("{}: {lends:?}", subject.name());
        let sum = |of: fn(&LendCounts) -> u64| lends.iter().map(of).sum::<u64>();
        assert!(sum(|lends| lends.dirs) > 20 && sum(|lends| lends.created_here) > 100);
        assert!(sum(|lends| lends.removed_here) > 20 && sum(|lends| lends.removed_early) > 5);
        assert!(sum(|lends| lends.entered) > 80 && sum(|lends| lends.dirs_waited_for) > 5);
    }
}
