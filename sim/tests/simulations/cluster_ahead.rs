//! Clusters whose users create and remove files in directories that are lent to their client, without asking, under all faults.

use sim::cluster::{ClusterPlan, Clusters};
use sim::lease::Subject;
use sim::{FaultKind, Outcome, Simulation, Trace};

/// So many files of volumes are watched.
const CONTENTS: usize = 24;

/// Where no clock is wrong, which what is lent depends on more than other things.
fn plan(subject: Subject, seed: u64) -> Option<ClusterPlan> {
    let mut plan = Clusters::plain(subject, seed);
    plan.lend_dirs(CONTENTS);
    (!plan.faults.has(FaultKind::ClockWrong)).then_some(plan)
}

#[test]
fn what_a_client_does_by_itself_is_there_for_all_when_its_user_is_told() {
    let (mut dirs, mut created, mut entered, mut removed) = (0, 0, 0, 0);
    for seed in 0..4 {
        for subject in Subject::ALL {
            let Some(plan) = plan(subject, seed) else { continue };
            let summary = Clusters::run(subject, &plan, Trace::off());
            assert_eq!(summary.violations().first(), None, "seed {seed}, {}", subject.name());
            let lends = summary.lends;
            dirs += lends.dirs;
            created += lends.created_here;
            entered += lends.entered;
            removed += lends.removed_here;
        }
    }
    assert!(dirs > 20 && created > 100 && entered > 80, "{dirs} {created} {entered}");
    assert!(removed > 20, "{removed}");
}
