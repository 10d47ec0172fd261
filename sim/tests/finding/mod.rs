//! How planted bugs are looked for: seed by seed, in a weather that brings them out, until a checker notices.

use std::fmt::Debug;

use sim::lease::Subject;
use sim::{Outcome, Simulation, Trace};

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
        println!("{bug:?} in {}, {weather:?}: {found:?}, allowed {seeds} seeds", subject.name());
        if found.is_none_or(|(_, by)| !checkers.contains(by)) {
            missed.push((bug, subject, found));
        }
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

/// The first seed under which a checker notices, and which.
fn find<W: Weather>(
    bug: Option<W::Bug>,
    subject: Subject,
    weather: W,
    seeds: u64,
) -> Option<(u64, &'static str)> {
    (0..seeds).find_map(|seed| {
        let plan = weather.plan(bug, subject, seed);
        let summary = W::Simulation::run(subject, &plan, Trace::off());
        summary.violations().first().map(|violation| (seed, violation.checker))
    })
}
