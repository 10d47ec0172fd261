//! Clusters whose users have files of volumes lent to their clients, under all faults.

use sim::cluster::{ClusterPlan, Clusters};
use sim::lease::Subject;
use sim::{FaultKind, Outcome, Simulation, Trace};

/// So many files of volumes are watched.
const CONTENTS: usize = 24;

/// Where no clock is wrong, which files that are lent depend on more than others.
fn plan(subject: Subject, seed: u64) -> Option<ClusterPlan> {
    let mut plan = Clusters::plain(subject, seed);
    plan.lend(CONTENTS);
    (!plan.faults.has(FaultKind::ClockWrong)).then_some(plan)
}

#[test]
fn what_is_lent_is_seen_by_all_as_if_there_were_one_copy() {
    let (mut lent, mut here, mut lossy, mut dated) = (0, 0, 0, 0);
    for seed in 0..4 {
        for subject in Subject::ALL {
            let Some(plan) = plan(subject, seed) else { continue };
            let summary = Clusters::run(subject, &plan, Trace::off());
            assert_eq!(summary.violations().first(), None, "seed {seed}, {}", subject.name());
            let lends = summary.lends;
            lent += lends.adopted;
            here += lends.changes_here + lends.reads_here + lends.stats_here;
            lossy += lends.judged.lossy;
            dated += lends.judged.dated;
        }
    }
    assert!(lent > 100 && here > 500 && lossy > 0 && dated > 50, "{lent} {here} {lossy} {dated}");
}
