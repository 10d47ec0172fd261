//! Planted bugs: the simulator must find each rule that is broken, within so many seeds.
//!
//! Three bugs are left to the models, because in a whole cluster something else hides them:
//!
//! - `DropWithoutFloor`: a register is dropped only after `t_max` of idleness, and by then every ballot that its
//!   forgotten promise refused is of an earlier interval or too old to be decided in time.
//! - `EarlierIncarnationIsOwn`: the quarantine outlasts every lease of the earlier incarnation.
//! - `NewcomerVotes`: views change by one member, and the primary re-acquires in between, so majorities of neighbouring
//!   views meet in a member that is no newcomer.

use lease::Bug;
use sim::lease::Leases;
use sim::lease::Subject::{self, Flease, PaxosLease};
use sim::{FaultKind, FaultPlan, Plan, Simulation};

use crate::finding;

/// What a seed's mix of faults is replaced by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// The seed's own.
    AsDrawn,
    /// Three replicas that keep forgetting.
    Crashes,
    /// Three replicas that keep standing still.
    Pauses,
    /// Three replicas that keep changing.
    Views,
}

const FOUND_BY_THE_SIMULATOR: &[finding::Row<Weather>] = &[
    (Bug::VotesCountedByMessages, Flease, Weather::AsDrawn, 40, "exclusion"),
    (Bug::VotesCountedByMessages, PaxosLease, Weather::AsDrawn, 40, "exclusion"),
    (Bug::WrongViewIsAVote, Flease, Weather::Views, 5, "exclusion"),
    (Bug::WrongViewIsAVote, PaxosLease, Weather::Views, 5, "exclusion"),
    (Bug::RenewalUnderOldBallot, Flease, Weather::AsDrawn, 10, "exclusion"),
    (Bug::DropBeforeExpiry, Flease, Weather::AsDrawn, 2, "exclusion"),
    (Bug::DropBeforeExpiry, PaxosLease, Weather::AsDrawn, 2, "exclusion"),
    (Bug::AgeWithoutSkew, Flease, Weather::AsDrawn, 5, "liveness"),
    (Bug::FarFutureAccepted, Flease, Weather::AsDrawn, 10, "rejection"),
    (Bug::NoGrace, Flease, Weather::AsDrawn, 10, "exclusion"),
    (Bug::ClockAskedAtAcquireOnly, Flease, Weather::Pauses, 5, "exclusion"),
    (Bug::ClockAskedAtAcquireOnly, PaxosLease, Weather::Pauses, 5, "exclusion"),
    // Its floor reaches into the future, and so do the ballots that go above it.
    (Bug::NoQuarantine, Flease, Weather::Crashes, 5, "exclusion or rejection"),
    (Bug::NoQuarantine, PaxosLease, Weather::Crashes, 5, "exclusion"),
    (Bug::OwnVoteInQuarantine, Flease, Weather::Crashes, 10, "exclusion or rejection"),
    (Bug::OwnVoteInQuarantine, PaxosLease, Weather::Crashes, 5, "exclusion"),
    (Bug::BallotsWithoutInterval, Flease, Weather::Crashes, 60, "exclusion"),
    (Bug::ReadsUnderValidLease, Flease, Weather::AsDrawn, 2, "courtesy"),
    (Bug::ReadsUnderValidLease, PaxosLease, Weather::AsDrawn, 2, "courtesy"),
    (Bug::HoldsWhileReleasing, Flease, Weather::AsDrawn, 5, "exclusion"),
    (Bug::HoldsWhileReleasing, PaxosLease, Weather::AsDrawn, 5, "exclusion"),
    (Bug::NoticeKillsEveryIncarnation, Flease, Weather::AsDrawn, 10, "exclusion"),
    (Bug::NoticeKillsEveryIncarnation, PaxosLease, Weather::AsDrawn, 10, "exclusion"),
    (Bug::TimerFromLastVote, PaxosLease, Weather::Pauses, 10, "exclusion"),
];

impl finding::Weather for Weather {
    type Simulation = Leases;
    type Bug = Bug;

    fn plan(self, bug: Option<Bug>, subject: Subject, seed: u64) -> Plan {
        let mut plan = Leases::plan(subject, seed);
        plan.config.bug = bug;
        if let Some(faults) = self.faults() {
            plan.faults = FaultPlan::in_tenths(faults.iter().copied(), plan.config.t_max);
            (plan.replicas, plan.witnessed_percent) = (3, 0);
        }
        plan
    }
}

impl Weather {
    const fn faults(self) -> Option<&'static [(FaultKind, u64)]> {
        match self {
            Self::AsDrawn => None,
            Self::Crashes => {
                Some(&[(FaultKind::Crash, 10), (FaultKind::Partition, 30), (FaultKind::OneWay, 20)])
            }
            Self::Pauses => Some(&[(FaultKind::Pause, 5), (FaultKind::Clog, 10), (FaultKind::Partition, 30)]),
            Self::Views => {
                Some(&[(FaultKind::ViewChange, 1), (FaultKind::Crash, 20), (FaultKind::Partition, 20)])
            }
        }
    }
}

#[test]
fn every_planted_bug_is_found() {
    finding::assert_all_found(FOUND_BY_THE_SIMULATOR);
}

#[test]
fn without_a_bug_the_same_weathers_are_clean() {
    finding::assert_clean_without_bugs(&[Weather::Crashes, Weather::Pauses, Weather::Views]);
}
