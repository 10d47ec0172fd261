//! Clusters under fixed seeds, and under as many random ones as there is time for.
#![expect(clippy::print_stdout, reason = "random seeds are told, so that a failure can be replayed")]

use std::env;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use sim::checkers::promptness::Expected;
use sim::cluster::{self, ClusterSummary};
use sim::lease::Subject;
use sim::{FaultKind, Trace};

const FIXED_SEEDS: std::ops::Range<u64> = 0..40;
/// How long the random batch runs, in seconds; `FLEASEFS_RANDOM_SECONDS` overrides it.
const RANDOM_SECONDS: u64 = 10;
const LINES_SHOWN: usize = 30;

/// Runs a seed; if it is not clean, says why and how to see it again.
fn check(subject: Subject, seed: u64) -> ClusterSummary {
    let plan = cluster::plan(subject, seed);
    let summary = cluster::run(subject, &plan, Trace::off());
    if !summary.is_clean() {
        println!("{summary}");
        if let Some(violation) = summary.violations.first() {
            let tail = cluster::explain(subject, &plan, violation, LINES_SHOWN);
            tail.lines().for_each(|line| println!("{line}"));
        }
        panic!("replay: fleasefs sim cluster --algorithm {} --seed {seed}", subject.name());
    }
    summary
}

/// What only some seeds draw must not be forgotten by all of them.
fn assert_everything_happened(runs: &[ClusterSummary], never: &[FaultKind]) {
    let only_leases =
        [FaultKind::ClockStep, FaultKind::StandDown, FaultKind::ViewChange, FaultKind::Impossible];
    let expected = FaultKind::ALL.iter().filter(|kind| !only_leases.contains(kind) && !never.contains(kind));
    for &kind in expected {
        assert!(runs.iter().any(|run| run.faults.of(kind) > 0), "no run had {}", kind.label());
    }
    for what in Expected::ALL {
        assert!(runs.iter().any(|run| run.worst.contains_key(&what)), "nothing was {}", what.label());
    }
    let daemons = |count| runs.iter().any(|run| run.daemons == count);
    assert!([1, 3, 4, 5].into_iter().all(daemons), "some numbers of daemons were not tried");
    assert!(runs.iter().any(|run| run.lost > 0) && runs.iter().any(|run| run.busy > 0));
    assert!(runs.iter().any(|run| run.taken_over > 0) && runs.iter().any(|run| run.detached > 0));
    assert!(runs.iter().all(|run| run.sessions_over > 0 && run.recovered_in.is_some()));
}

#[test]
fn a_cluster_with_flease_is_clean_under_fixed_seeds() {
    let runs: Vec<_> = FIXED_SEEDS.map(|seed| check(Subject::Flease, seed)).collect();
    assert_everything_happened(&runs, &[]);
}

#[test]
fn a_cluster_with_paxoslease_is_clean_under_fixed_seeds() {
    let runs: Vec<_> = FIXED_SEEDS.map(|seed| check(Subject::PaxosLease, seed)).collect();
    assert_everything_happened(&runs, &[FaultKind::ClockStray]);
}

#[test]
fn both_are_clean_under_random_seeds() {
    let seconds = env::var("FLEASEFS_RANDOM_SECONDS").ok().and_then(|text| text.parse().ok());
    let limit = Duration::from_secs(seconds.unwrap_or(RANDOM_SECONDS));
    let first = RandomState::new().build_hasher().finish() % 1_000_000_000;
    let started = Instant::now();
    let mut seed = first;
    tell(&format!("random seeds of clusters from {first} on, for {} s", limit.as_secs()));
    loop {
        println!("seed {seed}");
        for subject in Subject::ALL {
            check(subject, seed);
        }
        seed += 1;
        if started.elapsed() >= limit {
            break;
        }
    }
    tell(&format!("random seeds {first} to {} of clusters were clean", seed - 1));
}

/// Past the capture of the test harness: which seeds were tried is of interest also when all went well.
fn tell(line: &str) {
    // Whoever closed the output does not want to know.
    let _ = writeln!(io::stderr(), "{line}");
}
