//! Rules of what is lent to clients that can be broken by a switch at daemons, and within how many seeds the
//! simulator of a cluster notices.
#![expect(clippy::print_stdout, reason = "the table of what was found when is the result")]

use base::Span;
use node::Bug;
use sim::cluster::{ClusterPlan, Clusters, LendCounts, TreeHabits};
use sim::lease::Subject::{self, Flease, PaxosLease};
use sim::{FaultKind, FaultPlan, Simulation, Trace};

use crate::breaking::make_room_for_more;
use crate::finding;

/// What a seed's mix of faults is replaced by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// Processes of daemons end, links are cut.
    Rough,
    /// Clients stand still, and their links are cut.
    Frozen,
}

/// Within so many seeds each is found.
const SEEDS: u64 = 10;

const FOUND_BY_THE_SIMULATOR: &[finding::Row<Weather>] = &[
    (Bug::RecallNotWaitedFor, Flease, Weather::Rough, SEEDS, "lends"),
    (Bug::RecallNotWaitedFor, PaxosLease, Weather::Rough, SEEDS, "lends"),
    (Bug::FlushNotFenced, Flease, Weather::Frozen, 5 * SEEDS, "lends or contents"),
    (Bug::GrantsIgnored, Flease, Weather::Rough, SEEDS, "lends"),
];

impl finding::Weather for Weather {
    type Simulation = Clusters;
    type Bug = Bug;

    fn plan(self, broken: Option<Bug>, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = Clusters::plain(subject, seed);
        (plan.files.count, plan.volumes.count, plan.volumes.percent) = (1, 1, 100);
        plan.lend(12);
        plan.volumes.habits =
            TreeHabits { names: 3, changes_percent: 12, again_percent: 50, clear_permille: 0 };
        plan.files.think = Span::from_millis(60);
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
            Self::Rough => &[(FaultKind::Crash, 20), (FaultKind::Partition, 30), (FaultKind::Break, 10)],
            Self::Frozen => {
                &[(FaultKind::ClientPause, 10), (FaultKind::Partition, 20), (FaultKind::OneWay, 20)]
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
    finding::assert_clean_without_bugs(&[Weather::Rough, Weather::Frozen]);
}

#[test]
fn clients_do_much_without_asking() {
    for subject in Subject::ALL {
        let lends = (0..6).map(|seed| {
            let plan = finding::Weather::plan(Weather::Rough, None, subject, seed);
            Clusters::run(subject, &plan, Trace::off()).lends
        });
        let lends: Vec<LendCounts> = lends.collect();
        println!("{}: {lends:?}", subject.name());
        let sum = |of: fn(&LendCounts) -> u64| lends.iter().map(of).sum::<u64>();
        assert!(sum(|lends| lends.adopted) > 20 && sum(|lends| lends.changes_here) > 60);
        assert!(sum(|lends| lends.reads_here) > 30 && sum(|lends| lends.flushes) > 40);
    }
}
