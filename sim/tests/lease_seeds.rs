//! Both algorithms under fixed seeds, and under as many random ones as there is time for.
#![expect(clippy::print_stdout, reason = "random seeds are told, so that a failure can be replayed")]

use std::env;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use sim::lease::Subject;
use sim::{FaultKind, Summary, Trace};

const FIXED_SEEDS: std::ops::Range<u64> = 0..25;
/// How long the random batch runs for each algorithm together, in seconds; `FLEASEFS_RANDOM_SECONDS` overrides it.
const RANDOM_SECONDS: u64 = 10;
const LINES_SHOWN: usize = 30;
/// What happens to whole clusters only.
const NOT_TO_LEASES: [FaultKind; 7] = [
    FaultKind::CrashAll,
    FaultKind::Break,
    FaultKind::ClockStray,
    FaultKind::Drain,
    FaultKind::DiskStall,
    FaultKind::ClientCrash,
    FaultKind::ClientPause,
];

/// Runs a seed; if it is not clean, says why and how to see it again.
fn check(subject: Subject, seed: u64) -> Summary {
    let plan = subject.plan(seed);
    let summary = subject.run(&plan, Trace::off());
    if !summary.is_clean() {
        println!("{summary}");
        if let Some(violation) = summary.violations.first() {
            subject.explain(&plan, violation, LINES_SHOWN).lines().for_each(|line| println!("{line}"));
        }
        panic!("replay: fleasefs sim lease --algorithm {} --seed {seed}", subject.name());
    }
    summary
}

fn check_fixed(subject: Subject) -> Vec<Summary> {
    FIXED_SEEDS.map(|seed| check(subject, seed)).collect()
}

/// Faults that only some seeds draw must not be forgotten by all of them.
fn assert_everything_happened(runs: &[Summary], except: &[FaultKind]) {
    let expected =
        FaultKind::ALL.iter().filter(|kind| !except.contains(kind) && !NOT_TO_LEASES.contains(kind));
    for &kind in expected {
        assert!(runs.iter().any(|run| run.faults.of(kind) > 0), "no run had {}", kind.label());
    }
    let nodes = |count| runs.iter().any(|run| run.nodes == count);
    assert!((3..=7).all(nodes), "some numbers of nodes were not tried");
    assert!(runs.iter().any(|run| run.lost > 0), "no lease was ever lost");
    assert!(
        runs.iter().all(|run| run.acts > 0 && run.handed_over > 0 && run.released > 0 && run.renewed > 0)
    );
}

#[test]
fn flease_is_clean_under_fixed_seeds() {
    assert_everything_happened(&check_fixed(Subject::Flease), &[]);
}

#[test]
fn paxoslease_is_clean_under_fixed_seeds() {
    assert_everything_happened(&check_fixed(Subject::PaxosLease), &[FaultKind::ClockStep]);
}

#[test]
fn both_are_clean_under_random_seeds() {
    let seconds = env::var("FLEASEFS_RANDOM_SECONDS").ok().and_then(|text| text.parse().ok());
    let limit = Duration::from_secs(seconds.unwrap_or(RANDOM_SECONDS));
    let first = RandomState::new().build_hasher().finish() % 1_000_000_000;
    let started = Instant::now();
    let mut seed = first;
    tell(&format!("random seeds from {first} on, for {} s", limit.as_secs()));
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
    tell(&format!("random seeds {first} to {} were clean", seed - 1));
}

/// Past the capture of the test harness: which seeds were tried is of interest also when all went well.
fn tell(line: &str) {
    // Whoever closed the output does not want to know.
    let _ = writeln!(io::stderr(), "{line}");
}
