//! Clusters under fixed seeds, and under as many random ones as there is time for.
#![expect(clippy::print_stdout, reason = "random seeds are told, so that a failure can be replayed")]

use std::ops::Range;

use replication::{Limit, Reached};
use sim::FaultKind;
use sim::checkers::promptness::Expected;
use sim::cluster::{ClusterSummary, Clusters, TreeCounts};
use sim::lease::Subject;

use crate::seeds;

const FIXED_SEEDS: Range<u64> = 0..40;
/// Something happens in these that happens in few.
const RARE_SEEDS: [u64; 19] =
    [45, 47, 77, 86, 92, 106, 110, 158, 219, 289, 332, 706, 804, 913, 1540, 1605, 1712, 1735, 1821];
/// What happens to leases by themselves only.
const NOT_TO_CLUSTERS: [FaultKind; 4] =
    [FaultKind::ClockStep, FaultKind::StandDown, FaultKind::ViewChange, FaultKind::Impossible];

/// Where so many ends of clients cannot be remembered, no further client is let in until a day has passed: there is a story of it
/// in `replication/tests/scenarios/limits.rs`.
const NEVER_REACHED: [Limit; 1] = [Limit::Expired];

fn fixed_seeds() -> impl Iterator<Item = u64> {
    FIXED_SEEDS.chain(RARE_SEEDS)
}

/// What only some seeds draw must not be forgotten by all of them.
fn assert_everything_happened(runs: &[ClusterSummary], never: &[FaultKind]) {
    let faults: Vec<_> = runs.iter().map(|run| &run.faults).collect();
    seeds::assert_all_happened(&faults, &[&NOT_TO_CLUSTERS, never].concat());
    for what in Expected::ALL {
        assert!(runs.iter().any(|run| run.worst.contains_key(&what)), "nothing was {}", what.label());
    }
    let daemons = |count| runs.iter().any(|run| run.daemons == count);
    assert!([1, 3, 4, 5].into_iter().all(daemons), "some numbers of daemons were not tried");
    assert!(runs.iter().any(|run| run.lost > 0) && runs.iter().any(|run| run.busy > 0));
    assert!(runs.iter().any(|run| run.taken_over > 0) && runs.iter().any(|run| run.detached > 0));
    assert!(runs.iter().any(|run| run.file_overloaded > 0), "there was always room");
    assert!(runs.iter().any(|run| run.file_durable > 0), "no change was durable at once");
    assert!(runs.iter().any(|run| run.file_removals > 0), "no file was removed");
    assert!(runs.iter().any(|run| run.file_told_removed > 0), "nobody was told that a file was removed");
    assert!(runs.iter().any(|run| run.file_no_space > 0), "nobody was told that the disks are full");
    assert_volumes_were_used(runs);
    let mut limits = Reached::default();
    runs.iter().for_each(|run| limits.add(&run.limits));
    let never: Vec<Limit> = Limit::ALL.into_iter().filter(|&limit| limits.of(limit) == 0).collect();
    assert_eq!(never, NEVER_REACHED, "what of the limits was never reached");
    assert!(runs.iter().any(|run| run.file_clients_over > 0), "no client was declared over");
    assert!(runs.iter().all(|run| run.sessions_over > 0 && run.recovered_in.is_some()));
}

fn assert_volumes_were_used(runs: &[ClusterSummary]) {
    let all = |count: fn(&TreeCounts) -> u64| runs.iter().map(|run| count(&run.trees)).sum::<u64>();
    let (changed, refused) = (all(|trees| trees.changed), all(|trees| trees.refused));
    let (answered, answers_refused) = (all(|trees| trees.answered), all(|trees| trees.answers_refused));
    println!(
        "volumes: {changed} changes, {refused} refused; {answered} answers, {answers_refused} of them refusals"
    );
    assert!(changed > 3_000 && refused > 3_000, "little was done to volumes");
    assert!(answered > 3_000 && answers_refused > 500, "volumes were asked little");
    assert!(all(|trees| trees.removed) > 5, "no volume was removed");
    assert!(all(|trees| trees.planted) > runs.len() as u64, "no volume was begun anew");
    assert!(all(|trees| trees.told_gone) > 0 && all(|trees| trees.no_space) > 0);
    assert!(all(|trees| trees.opened) > 0);
}

#[test]
fn a_cluster_with_flease_is_clean_under_fixed_seeds() {
    assert_everything_happened(&seeds::check_all::<Clusters>(Subject::Flease, fixed_seeds()), &[]);
}

#[test]
fn a_cluster_with_paxoslease_is_clean_under_fixed_seeds() {
    let runs = seeds::check_all::<Clusters>(Subject::PaxosLease, fixed_seeds());
    assert_everything_happened(&runs, &[FaultKind::ClockStray]);
}

#[test]
fn both_are_clean_under_random_seeds() {
    seeds::check_random_seeds::<Clusters>();
}
