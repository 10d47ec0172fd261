//! Rules of clients that can be broken by a switch at them, and within how many seeds the simulator of a cluster notices: of what they
//! keep of names, of what is lent to them, and of their sessions.

use base::Span;
use client::core::{Bug, Rules};
use sim::cluster::{ClusterPlan, Clusters, TreeHabits};
use sim::lease::Subject::{self, Flease, PaxosLease};
use sim::{FaultKind, FaultPlan};

use crate::breaking::make_room_for_more;
use crate::finding;

/// What a seed's mix of faults is replaced by, and what clients do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// They keep names, and stand still, and their links are cut.
    Names,
    /// Files are lent to them, while processes of daemons end and links are cut.
    Lends,
    /// The same, and they end themselves.
    LendsDying,
    /// The same, and they stand still.
    LendsFrozen,
    /// They have locks, and hear daemons that do not hear them.
    OneWay,
}

/// Within so many seeds most are found.
const SEEDS: u64 = 10;

/// That a lend outlives its session (`LendOutlivesSession`) shows only if somebody else has changed the file when its client goes on: there is a story of it in
/// `client/src/core/grants/tests.rs`.
const FOUND_BY_THE_SIMULATOR: &[finding::Row<Weather>] = &[
    (Bug::GrantOutlivesSession, Flease, Weather::Names, 40, "trees"),
    (Bug::GrantOutlivesSession, PaxosLease, Weather::Names, SEEDS, "trees"),
    (Bug::AnyFrameConfirms, Flease, Weather::OneWay, SEEDS, "locks or sessions"),
    (Bug::DirtyDropped, Flease, Weather::Lends, SEEDS, "lends"),
    (Bug::DirtyDropped, PaxosLease, Weather::Lends, SEEDS, "lends"),
    (Bug::AnsweredBeforeSent, Flease, Weather::Lends, SEEDS, "lends"),
    (Bug::AnsweredBeforeSent, PaxosLease, Weather::Lends, SEEDS, "lends"),
    (Bug::SyncForgetsLend, Flease, Weather::LendsDying, SEEDS, "lends"),
    (Bug::SyncForgetsLend, PaxosLease, Weather::LendsDying, SEEDS, "lends"),
];

impl finding::Weather for Weather {
    type Simulation = Clusters;
    type Bug = Bug;

    fn plan(self, broken: Option<Bug>, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = Clusters::plain(subject, seed);
        plan.clients = plan.clients.max(3);
        make_room_for_more(&mut plan);
        plan.volumes.rules = Rules::without(broken);
        plan.faults = FaultPlan::in_tenths(self.faults().iter().copied(), plan.shard.lease.t_max);
        if self == Self::OneWay {
            plan.witnessed_percent = 100;
            return plan;
        }
        (plan.files.count, plan.volumes.count, plan.volumes.percent) = (1, 1, 100);
        let again_percent = if self == Self::Names { 75 } else { 50 };
        plan.volumes.habits = TreeHabits { names: 3, changes_percent: 12, again_percent, clear_permille: 0 };
        plan.files.think = Span::from_millis(60);
        if self == Self::Names {
            plan.volumes.caches = true;
            plan.shard.file_idle = Span::from_secs(3);
        } else {
            plan.lend(12);
        }
        plan
    }
}

impl Weather {
    const fn faults(self) -> &'static [(FaultKind, u64)] {
        use FaultKind::{Break, ClientCrash, ClientPause, Crash, OneWay, Partition};
        match self {
            Self::Names | Self::LendsFrozen => &[(ClientPause, 10), (Partition, 20), (OneWay, 20)],
            Self::Lends => &[(Crash, 20), (Partition, 30), (Break, 10)],
            Self::LendsDying => &[(Crash, 20), (ClientCrash, 10), (Break, 10)],
            Self::OneWay => &[(OneWay, 5), (Crash, 5)],
        }
    }
}

#[test]
fn every_planted_bug_is_found() {
    finding::assert_all_found(FOUND_BY_THE_SIMULATOR);
}

#[test]
fn without_a_bug_the_same_weathers_are_clean() {
    use Weather::{LendsDying, LendsFrozen, Names, OneWay};
    finding::assert_clean_without_bugs(&[Names, LendsDying, LendsFrozen, OneWay]);
}
