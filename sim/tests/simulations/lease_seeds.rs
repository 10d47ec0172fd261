//! Both algorithms under fixed seeds, and under as many random ones as there is time for.

use std::ops::Range;

use sim::lease::{Leases, Subject};
use sim::{FaultKind, Summary};

use crate::seeds;

const FIXED_SEEDS: Range<u64> = 0..25;
/// What happens to whole clusters only.
const NOT_TO_LEASES: [FaultKind; 23] = [
    FaultKind::CrashAll,
    FaultKind::Break,
    FaultKind::ClockStray,
    FaultKind::ClockWrong,
    FaultKind::ContentRot,
    FaultKind::Drain,
    FaultKind::DiskStall,
    FaultKind::DiskFull,
    FaultKind::PowerCut,
    FaultKind::PowerCutAll,
    FaultKind::Torn,
    FaultKind::ReadError,
    FaultKind::WriteError,
    FaultKind::SyncError,
    FaultKind::BitRot,
    FaultKind::Misdirected,
    FaultKind::StoreLost,
    FaultKind::LossAccepted,
    FaultKind::DirectoryEmptied,
    FaultKind::DirectoryRestored,
    FaultKind::CopyDies,
    FaultKind::ClientCrash,
    FaultKind::ClientPause,
];

/// What only some seeds draw must not be forgotten by all of them.
fn assert_everything_happened(runs: &[Summary], never: &[FaultKind]) {
    let faults: Vec<_> = runs.iter().map(|run| &run.faults).collect();
    seeds::assert_all_happened(&faults, &[&NOT_TO_LEASES, never].concat());
    let nodes = |count| runs.iter().any(|run| run.nodes == count);
    assert!((3..=7).all(nodes), "some numbers of nodes were not tried");
    assert!(runs.iter().any(|run| run.lost > 0), "no lease was ever lost");
    assert!(
        runs.iter().all(|run| run.acts > 0 && run.handed_over > 0 && run.released > 0 && run.renewed > 0)
    );
}

#[test]
fn flease_is_clean_under_fixed_seeds() {
    assert_everything_happened(&seeds::check_all::<Leases>(Subject::Flease, FIXED_SEEDS), &[]);
}

#[test]
fn paxoslease_is_clean_under_fixed_seeds() {
    let runs = seeds::check_all::<Leases>(Subject::PaxosLease, FIXED_SEEDS);
    assert_everything_happened(&runs, &[FaultKind::ClockStep]);
}

#[test]
fn both_are_clean_under_random_seeds() {
    seeds::check_random_seeds::<Leases>();
}
