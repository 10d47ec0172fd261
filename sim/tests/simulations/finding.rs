//! How planted bugs are looked for: seed by seed, in a weather that brings them out, until a checker notices.
#![expect(clippy::print_stdout, reason = "the table of what was found when is the result")]

use std::fmt::Debug;

use sim::lease::Subject;
use sim::{Outcome, Simulation, Trace, Violation};

/// What a seed's mix of faults is replaced by.
pub(crate) trait Weather: Copy + Debug {
    /// What is simulated.
    type Simulation: Simulation;
    /// What can be broken.
    type Bug: Copy + Debug;

    /// What a seed decides in this weather, with a rule broken or none.
    fn plan(self, bug: Option<Self::Bug>, subject: Subject, seed: u64) -> Plan<Self>;
}

/// A plan of what a weather is for.
pub(crate) type Plan<W> = <<W as Weather>::Simulation as Simulation>::Plan;

/// Bug, algorithm, weather, within how many seeds it must be found, and which checkers may say so.
pub(crate) type Row<W> = (<W as Weather>::Bug, Subject, W, u64, &'static str);

/// Each bug must be found in its weather, by one of its checkers.
pub(crate) fn assert_all_found<W: Weather>(rows: &[Row<W>]) {
    let mut missed = Vec::new();
    for &(bug, subject, weather, seeds, checkers) in rows {
        let found = find(Some(bug), subject, weather, seeds);
        let by = found.as_ref().map(|(seed, violation)| (*seed, violation.checker));
        println!("{bug:?} in {}, {weather:?}: {by:?}, allowed {seeds} seeds", subject.name());
        if by.is_none_or(|(_, by)| !checkers.contains(by)) {
            missed.push((bug, subject, by));
        }
        found.iter().for_each(|(_, violation)| assert_shown(violation));
    }
    assert!(missed.is_empty(), "not found, or by the wrong checker: {missed:?}");
}

/// In these weathers nothing goes wrong by itself.
pub(crate) fn assert_clean_without_bugs<W: Weather>(weathers: &[W]) {
    for &weather in weathers {
        for subject in Subject::ALL {
            assert_eq!(find(None, subject, weather, 8), None, "{weather:?} {}", subject.name());
        }
    }
}

/// What the events have to say that show a violation: what was promised, and what broke it.
const SAID: &[(&str, &[&str])] = &[
    ("answers", &["a client asks", "answers"]),
    ("courtesy", &["the register of", "sends a read"]),
    ("durability", &["a sync is asked for", "the disk of", "is told that everything up to"]),
    ("endings", &["over"]),
    ("entries", &[" has "]),
    ("exclusion", &["own"]),
    ("keeping", &["holds the lock, and keeps it", "is told that it lost the lock"]),
    ("linearizability", &["calls", "is told of"]),
    ("liveness", &["is to get the lease", "should have it by now"]),
    ("locks", &["is granted the lock", "all of them hold it"]),
    ("promises", &[" e"]),
    ("promptness", &["expected from now on", "should have happened by now"]),
    ("rejection", &["has rejected"]),
    ("replicas", &[" has ", "committed"]),
    ("sessions", &["confirms", "ends the session"]),
    ("stores", &["n"]),
    ("tokens", &["is granted the lock"]),
    ("trees", &["calls"]),
];

/// The fewest events that show a violation: in order, not many, and those that it takes.
fn assert_shown(violation: &Violation) {
    let shown = &violation.shown;
    println!("  {violation}");
    shown.iter().for_each(|fact| println!("    {fact}"));
    assert!((1..=60).contains(&shown.len()) && shown.is_sorted_by_key(|fact| fact.at), "{violation:?}");
    let said = SAID.iter().find(|(checker, _)| *checker == violation.checker);
    for expected in said.map_or(&[][..], |(_, said)| said) {
        let is_said = shown.iter().any(|fact| fact.what.contains(expected));
        assert!(is_said, "nothing says {expected:?} in {shown:#?}, which is to show {violation}");
    }
}

/// The first seed under which a checker notices, and what.
fn find<W: Weather>(
    bug: Option<W::Bug>,
    subject: Subject,
    weather: W,
    seeds: u64,
) -> Option<(u64, Violation)> {
    (0..seeds).find_map(|seed| {
        let plan = weather.plan(bug, subject, seed);
        let summary = W::Simulation::run(subject, &plan, Trace::off());
        summary.violations().first().map(|violation| (seed, violation.clone()))
    })
}
