//! Clusters with clocks that are wrong: what `docs/semantics.md` names may go wrong then, and nothing else.

use std::sync::Arc;

use replication::{Bug, Config};
use sim::cluster::{ClusterPlan, ClusterSummary, Clusters};
use sim::lease::Subject::{self, Flease, PaxosLease};
use sim::{FaultKind, FaultPlan, Outcome as _, Simulation, Trace};

use crate::finding::{self, Weather as _};

/// What a seed's mix of faults is replaced by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// The seed's own, and wrong clocks again and again.
    AsDrawn,
    /// Nothing but wrong clocks, and few users, so that who leads in vain is not asked for changes at once.
    Idle,
    /// The same users, and clocks that only change their rates.
    Still,
    /// Processes end and links are cut, too.
    Rough,
}

/// Within so many seeds each is found; most are in the first few.
const SEEDS: u64 = 40;
/// One seed in six sees what only some do.
const SEEDS_OF_LUCK: u64 = 60;

const FOUND_BY_THE_SIMULATOR: &[finding::Row<Weather>] = &[
    (Bug::NoEpochCheck, PaxosLease, Weather::Idle, SEEDS, "promises or entries"),
    (Bug::NoEpochCheck, Flease, Weather::Rough, 80, "promises or entries"),
    (Bug::PromiseNotKept, Flease, Weather::Rough, SEEDS, "promises"),
    (Bug::AckBeforeWrite, Flease, Weather::Rough, SEEDS, "entries or promises or replicas"),
    (Bug::ReadsUncommitted, Flease, Weather::Rough, SEEDS, "linearizability"),
    (Bug::NoDeduplication, Flease, Weather::Rough, SEEDS, "replicas or linearizability"),
    (Bug::SyncByPrimaryAlone, Flease, Weather::Rough, SEEDS, "durability"),
];

impl finding::Weather for Weather {
    type Simulation = Clusters;
    type Bug = Bug;

    fn plan(self, bug: Option<Bug>, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = Clusters::plain(subject, seed);
        let t_max = plan.shard.lease.t_max;
        Arc::make_mut(&mut plan.shard.replication).bug = bug;
        match self {
            Self::AsDrawn => plan.faults = plan.faults.and(FaultKind::ClockWrong, t_max * 6),
            Self::Idle | Self::Still => {
                (plan.clients, plan.files.count, plan.files.writers) = (6, 4, 1);
                // All of them have room.
                plan.shard.replication = Arc::new(Config { bug, ..Config::default() });
                plan.treacherous_percent = 0;
                (plan.files.think, plan.silence_max) = (t_max / 2, t_max / 8);
                let is_wrong = self == Self::Idle;
                let kind = if is_wrong { FaultKind::ClockWrong } else { FaultKind::ClockRate };
                plan.faults = FaultPlan::in_tenths([(kind, 80)], t_max);
            }
            Self::Rough => {
                let faults = [
                    (FaultKind::ClockWrong, 40),
                    (FaultKind::Crash, 20),
                    (FaultKind::Partition, 20),
                    (FaultKind::Clog, 10),
                ];
                plan.faults = FaultPlan::in_tenths(faults, t_max);
            }
        }
        plan
    }
}

fn run(weather: Weather, subject: Subject, seed: u64) -> ClusterSummary {
    Clusters::run(subject, &weather.plan(None, subject, seed), Trace::off())
}

/// Seeds until something is seen that is no exception.
fn seen(weather: Weather, subject: Subject, what: impl Fn(&ClusterSummary) -> bool) -> bool {
    (0..SEEDS_OF_LUCK).any(|seed| {
        let summary = run(weather, subject, seed);
        assert!(summary.violations.is_empty(), "{summary}");
        what(&summary)
    })
}

#[test]
fn clusters_are_clean_but_for_what_wrong_clocks_may_do() {
    for subject in Subject::ALL {
        let wrong = (0..10).filter(|&seed| {
            let summary = run(Weather::AsDrawn, subject, seed);
            assert!(summary.is_clean(), "{summary}");
            summary.faults.of(FaultKind::ClockWrong) > 0
        });
        assert!(wrong.count() >= 8);
    }
}

/// The weaker promise is not for nothing: without it these runs would be failures.
#[test]
fn a_file_is_read_as_it_once_was() {
    for subject in Subject::ALL {
        assert!(seen(Weather::Idle, subject, |summary| summary.judgement.stale > 0), "{}", subject.name());
    }
}

#[test]
fn a_lock_has_two_holders_at_once() {
    for subject in Subject::ALL {
        assert!(seen(Weather::Idle, subject, |summary| summary.locks_shared > 0), "{}", subject.name());
    }
}

/// Nobody is asked for less where no clock was wrong.
#[test]
fn one_seed_of_eight_has_wrong_clocks() {
    let has = |seed: &u64| {
        let plan = format!("{:?}", Clusters::plain(Flease, *seed).faults);
        plan.contains("ClockWrong")
    };
    let count = (0..800).filter(has).count();
    assert!((60..140).contains(&count), "{count} of 800");
    let seed = (0..100).find(|seed| !has(seed)).unwrap();
    let summary = Clusters::run(Flease, &Clusters::plain(Flease, seed), Trace::off());
    assert_eq!((summary.judgement.loose, summary.faults.of(FaultKind::ClockWrong)), (0, 0));
}

#[test]
fn every_planted_bug_is_found() {
    finding::assert_all_found(FOUND_BY_THE_SIMULATOR);
}

/// What protects against two primaries is not needed where clocks are right and nothing else happens.
#[test]
fn the_same_users_do_not_find_it_where_clocks_are_right() {
    for seed in 0..8 {
        let plan = Weather::Still.plan(Some(Bug::NoEpochCheck), PaxosLease, seed);
        let summary = Clusters::run(PaxosLease, &plan, Trace::off());
        assert!(summary.violations.is_empty(), "{summary}");
    }
}

#[test]
fn without_a_bug_the_same_weathers_are_clean() {
    finding::assert_clean_without_bugs(&[Weather::Idle, Weather::Rough]);
}
