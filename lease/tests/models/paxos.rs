//! PaxosLease: spans instead of times, on clocks that have nothing in common but their rate.

use base::Span;
use lease::{Config, PaxosRules};

use crate::milestone::Milestone;
use crate::report::{self, bound};
use crate::setup::{Clocks, Move, Setup, config};

/// An owner that may release, a rival that may restart, on clocks of the same rate.
pub(crate) fn setup() -> Setup {
    Setup {
        // A round may take two ticks: what it takes counts against its lease.
        config: Config { round_trip_max: Span::from_micros(1), ..config(3, 0) },
        voters: vec![1, 2],
        horizon: 5,
        rounds_max: bound(2, 3),
        moves: vec![Move::Acquire(0), Move::Acquire(1), Move::Release(0), Move::Restart(1)],
        milestones: vec![
            Milestone::Acquired0,
            Milestone::Acquired1,
            Milestone::Renewed,
            Milestone::LostByExpiry,
            Milestone::GivenUpConfirmed,
            Milestone::RejectedInQuarantine,
        ],
        ..Setup::paxos("PaxosLease")
    }
}

/// Nobody holds the lease at first.
pub(crate) fn setup_race() -> Setup {
    Setup {
        voters: Vec::new(),
        rounds_max: 2,
        moves: vec![Move::Acquire(0), Move::Acquire(1), Move::Restart(1)],
        milestones: vec![Milestone::Acquired0, Milestone::Acquired1, Milestone::RejectedInQuarantine],
        ..Setup { name: "PaxosLease, race of two proposers", ..setup() }
    }
}

/// Each clock may lose one tick on the way, and acceptors count a third longer for that.
pub(crate) fn setup_rates() -> Setup {
    Setup {
        // A tick in three, so that a lease of three ticks is respected for four.
        config: Config { rate_error_ppm: 333_333, ..setup().config },
        clocks: Clocks::Together { offsets: vec![0, 40, 20, 60], may_lose_a_tick: true },
        ..Setup { name: "PaxosLease on clocks that differ in rate", ..setup_race() }
    }
}

#[test]
fn paxos_lease() {
    report::prove::<PaxosRules>(setup());
}

#[test]
fn paxos_lease_race() {
    report::prove::<PaxosRules>(setup_race());
}

#[test]
fn paxos_lease_on_clocks_that_differ_in_rate() {
    report::prove::<PaxosRules>(setup_rates());
}
