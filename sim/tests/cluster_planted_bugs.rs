//! Every rule of locks that can be broken by a switch, and within how many seeds the simulator of a cluster notices.
#![expect(clippy::print_stdout, reason = "the table of what was found when is the result")]

use base::Span;
use node::Bug;
use sim::cluster::{self, ClusterPlan};
use sim::lease::Subject::{self, Flease, PaxosLease};
use sim::{FaultKind, Trace};

/// Bug, algorithm, weather, within how many seeds it must be found, and which checkers may say so.
type Row = (Bug, Subject, Weather, u64, &'static str);

/// What a seed's mix of faults is replaced by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// The seed's own.
    AsDrawn,
    /// Streams that break, and partitions.
    Breaks,
    /// Processes that keep standing still.
    Pauses,
}

/// What takes more luck than a seed has is told by the stories in `node/tests/scenarios/bugs.rs`.
const FOUND_BY_THE_SIMULATOR: &[Row] = &[
    (Bug::NumbersForgotten, Flease, Weather::AsDrawn, 5, "tokens"),
    (Bug::NumbersForgotten, PaxosLease, Weather::AsDrawn, 5, "tokens"),
    (Bug::NoWaitAfterDeath, Flease, Weather::AsDrawn, 5, "keeping or locks"),
    (Bug::NoWaitAfterDeath, PaxosLease, Weather::AsDrawn, 5, "keeping or locks"),
    (Bug::SessionNotStretched, Flease, Weather::AsDrawn, 10, "sessions"),
    (Bug::SessionNotStretched, PaxosLease, Weather::AsDrawn, 10, "sessions"),
    (Bug::AckWithoutCover, Flease, Weather::Pauses, 100, "locks"),
];

impl Weather {
    fn faults(self) -> Option<&'static [(FaultKind, u64)]> {
        match self {
            Self::AsDrawn => None,
            Self::Breaks => {
                Some(&[(FaultKind::Break, 2), (FaultKind::Partition, 20), (FaultKind::Crash, 20)])
            }
            Self::Pauses => {
                Some(&[(FaultKind::Pause, 5), (FaultKind::ClientPause, 5), (FaultKind::Clog, 10)])
            }
        }
    }

    fn plan(self, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = cluster::plan(subject, seed);
        if let Some(faults) = self.faults() {
            let t_max: Span = plan.shard.lease.t_max;
            plan.faults = faults.iter().map(|&(kind, tenths)| (kind, t_max * tenths / 10)).collect();
            plan.witnessed_percent = 100;
        }
        plan
    }
}

/// The first seed under which a checker notices, and which.
fn find(bug: Option<Bug>, subject: Subject, weather: Weather, seeds: u64) -> Option<(u64, &'static str)> {
    (0..seeds).find_map(|seed| {
        let mut plan = weather.plan(subject, seed);
        plan.shard.bug = bug;
        let summary = cluster::run(subject, &plan, Trace::off());
        summary.violations.first().map(|violation| (seed, violation.checker))
    })
}

#[test]
fn every_planted_bug_is_found() {
    let mut missed = Vec::new();
    for &(bug, subject, weather, seeds, checker) in FOUND_BY_THE_SIMULATOR {
        let found = find(Some(bug), subject, weather, seeds);
        println!("{bug:?} in {}, {weather:?}: {found:?}, allowed {seeds} seeds", subject.name());
        if found.is_none_or(|(_, by)| !checker.contains(by)) {
            missed.push((bug, subject, found));
        }
    }
    assert!(missed.is_empty(), "not found, or by the wrong checker: {missed:?}");
}

#[test]
fn without_a_bug_the_same_weathers_are_clean() {
    for weather in [Weather::Breaks, Weather::Pauses] {
        for subject in [Flease, PaxosLease] {
            assert_eq!(find(None, subject, weather, 8), None, "{weather:?} {}", subject.name());
        }
    }
}
