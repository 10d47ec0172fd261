//! Runs a model to its end and judges it.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use replication::Bug;
use stateright::{Checker, HasDiscoveries, Model};

use crate::setup::Setup;
use crate::story;
use crate::world::{MILESTONES, World};

/// Models share two cores and report their memory, so they run one after the other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

const THREADS: usize = 2;
/// No model and no hunt may take longer.
const TIME_MAX: Duration = Duration::from_secs(600);

/// The bound for now: the first in every run of the tests, the second where there is time.
pub(crate) fn bound(quick: u8, long: u8) -> u8 {
    if is_long() { long } else { quick }
}

/// Whether there is time.
pub(crate) fn is_long() -> bool {
    std::env::var_os("FLEASEFS_LONG").is_some()
}

/// Explores all of a model. Fails if a property is broken or a milestone is never reached.
pub(crate) fn prove(setup: Setup) {
    let name = setup.name;
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    reset_peak_memory();
    let begin = Instant::now();
    let checker = World::new(setup).checker().threads(THREADS).timeout(TIME_MAX);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_dfs().join();
    let world = checker.model();
    println!(
        "model {name:?}: {} states, {} steps, depth {}, {} states of nodes, {:.1} s, {} MiB",
        checker.unique_state_count(),
        checker.state_count(),
        checker.max_depth(),
        world.tables.nodes_met(),
        begin.elapsed().as_secs_f64(),
        peak_memory_mib(),
    );
    for (property, path) in checker.discoveries() {
        assert!(
            property == MILESTONES,
            "{name}: broken: {property}\n{}",
            story::tell(world, path.into_vec())
        );
    }
    assert!(begin.elapsed() < TIME_MAX && checker.is_done(), "{name}: not explored to the end");
    assert!(world.missing().is_empty(), "{name}: never happened: {:?}", world.missing());
}

/// Looks for a broken property in a model with a planted bug. Fails if there is none.
pub(crate) fn find(bug: Bug, mut setup: Setup, broken: &str) {
    setup.config.bug = Some(bug);
    let name = setup.name;
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let begin = Instant::now();
    let checker = World::new(setup).checker().threads(THREADS).timeout(TIME_MAX);
    let checker = checker.finish_when(HasDiscoveries::AnyOf([broken_name(broken)].into())).spawn_bfs().join();
    let seconds = begin.elapsed().as_secs_f64();
    let states = checker.unique_state_count();
    let Some(path) = checker.discovery(broken_name(broken)) else {
        panic!("{bug:?} is not found by {name:?} ({states} states, {seconds:.1} s)");
    };
    let path = path.into_vec();
    println!(
        "bug {bug:?} is found by {name:?}: {broken:?} broken in {} steps ({states} states, {seconds:.1} s)",
        path.len() - 1
    );
    if std::env::var_os("FLEASEFS_MODEL_STORY").is_some() {
        println!("{}", story::tell(checker.model(), path));
    }
}

/// Property names live as long as the program.
fn broken_name(broken: &str) -> &'static str {
    crate::world::ALWAYS.iter().find(|name| **name == broken).expect("a property of the world")
}

/// Lets the kernel count the peak of this process's memory from here.
fn reset_peak_memory() {
    // Where it is not permitted the peak is that of the whole run, which is no less.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

fn peak_memory_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
