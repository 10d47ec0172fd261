//! Seeds that must be clean, whatever is simulated: fixed ones, and as many random ones as there is time for.
#![expect(clippy::print_stdout, reason = "random seeds are told, so that a failure can be replayed")]

use std::env;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Write};
use std::time::{Duration, Instant};

use sim::lease::Subject;
use sim::summary::Faults;
use sim::{FaultKind, Outcome, Simulation, Trace};

/// How long the random batch runs for both algorithms together, in seconds; `FLEASEFS_RANDOM_SECONDS` overrides it.
const RANDOM_SECONDS: u64 = 10;
const LINES_SHOWN: usize = 30;

/// Runs seeds, each of which must be clean.
pub(crate) fn check_all<S: Simulation>(
    subject: Subject,
    seeds: impl IntoIterator<Item = u64>,
) -> Vec<S::Summary> {
    seeds.into_iter().map(|seed| check::<S>(subject, seed)).collect()
}

/// Runs a seed; if it is not clean, says why and how to see it again.
fn check<S: Simulation>(subject: Subject, seed: u64) -> S::Summary {
    let plan = S::plan(subject, seed);
    let summary = S::run(subject, &plan, Trace::off());
    if !summary.is_clean() {
        println!("{summary}");
        if let Some(violation) = summary.violations().first() {
            violation.shown.iter().for_each(|fact| println!("shows it: {fact}"));
            S::explain(subject, &plan, violation, LINES_SHOWN).lines().for_each(|line| println!("{line}"));
        }
        panic!("replay: fleasefs sim {} --algorithm {} --seed {seed}", S::NAME, subject.name());
    }
    summary
}

/// What only some seeds draw must not be forgotten by all of them.
pub(crate) fn assert_all_happened(runs: &[&Faults], never: &[FaultKind]) {
    for &kind in FaultKind::ALL.iter().filter(|kind| !never.contains(kind)) {
        assert!(runs.iter().any(|faults| faults.of(kind) > 0), "no run had {}", kind.label());
    }
}

/// Runs random seeds until time is up.
pub(crate) fn check_random_seeds<S: Simulation>() {
    let seconds = env::var("FLEASEFS_RANDOM_SECONDS").ok().and_then(|text| text.parse().ok());
    let limit = Duration::from_secs(seconds.unwrap_or(RANDOM_SECONDS));
    let first = RandomState::new().build_hasher().finish() % 1_000_000_000;
    let started = Instant::now();
    let mut seed = first;
    tell(&format!("sim {}: random seeds from {first} on, for {} s", S::NAME, limit.as_secs()));
    loop {
        println!("seed {seed}");
        for subject in Subject::ALL {
            check::<S>(subject, seed);
        }
        seed += 1;
        if started.elapsed() >= limit {
            break;
        }
    }
    tell(&format!("sim {}: random seeds {first} to {} were clean", S::NAME, seed - 1));
}

/// Past the capture of the test harness: which seeds were tried is of interest also when all went well.
fn tell(line: &str) {
    // Whoever closed the output does not want to know.
    let _ = writeln!(io::stderr(), "{line}");
}
