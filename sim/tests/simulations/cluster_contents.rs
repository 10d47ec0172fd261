//! Clusters whose users do little but write to files of volumes that they have open, and read them, under all faults.

use sim::cluster::{ClusterPlan, Clusters};
use sim::lease::Subject;
use sim::{Outcome, Simulation, Trace};

/// So many files of volumes are written to.
const CONTENTS: usize = 6;

/// Of what users want most is about volumes.
fn plan(subject: Subject, seed: u64) -> ClusterPlan {
    let mut plan = Clusters::plain(subject, seed);
    (plan.volumes.contents, plan.volumes.percent) = (CONTENTS, 80);
    plan
}

#[test]
fn what_is_written_to_files_of_volumes_is_there_until_they_are_gone() {
    let (mut opened, mut wanted) = (0, 0);
    for seed in 0..8 {
        for subject in Subject::ALL {
            let summary = Clusters::run(subject, &plan(subject, seed), Trace::off());
            assert_eq!(summary.violations().first(), None, "seed {seed}, {}", subject.name());
            (opened, wanted) = (opened + summary.trees.opened, wanted + summary.trees.content_wanted);
        }
    }
    assert!(opened > 200 && wanted > 200, "{opened} {wanted}");
}
