//! Rules of what is lent to clients and of what they know of contents that can be broken by a switch, and within how many seeds the
//! simulator of a cluster notices.
#![expect(clippy::print_stdout, reason = "the table of what was found when is the result")]

#[expect(dead_code, reason = "more is broken elsewhere")]
mod breaking;
mod finding;

use base::Span;
use breaking::make_room_for_more;
use client::core::{Bug as ClientBug, Rules};
use node::Bug;
use sim::cluster::{ClusterPlan, Clusters, TreeHabits};
use sim::lease::Subject::{self, Flease, PaxosLease};
use sim::{FaultKind, FaultPlan, Simulation, Trace};

/// What is broken, at a daemon or at a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Broken {
    Daemon(Bug),
    Client(ClientBug),
}

/// What a seed's mix of faults is replaced by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Weather {
    /// Processes of daemons end, links are cut.
    Rough,
    /// Clients stand still, and their links are cut.
    Frozen,
    /// Clients end.
    Dying,
}

use Broken::{Client, Daemon};

/// Within so many seeds each is found.
const SEEDS: u64 = 10;

const FOUND_BY_THE_SIMULATOR: &[finding::Row<Weather>] = &[
    (Daemon(Bug::LendToTwo), Flease, Weather::Rough, SEEDS, "lends trees contents"),
    (Daemon(Bug::RecallNotWaitedFor), Flease, Weather::Rough, SEEDS, "lends"),
    (Daemon(Bug::RecallNotWaitedFor), PaxosLease, Weather::Rough, SEEDS, "lends"),
    (Daemon(Bug::FlushNotFenced), Flease, Weather::Frozen, SEEDS, "lends contents"),
    (Daemon(Bug::GrantsIgnored), Flease, Weather::Rough, SEEDS, "lends trees"),
    (Daemon(Bug::RevocationNotWaitedFor), Flease, Weather::Rough, SEEDS, "lends trees"),
    (Daemon(Bug::UntouchedWithContent), Flease, Weather::Rough, SEEDS, "lends contents"),
    (Daemon(Bug::ClientLendForgotten), Flease, Weather::Dying, SEEDS, "lends leftovers contents promptness"),
    (Client(ClientBug::DirtyDropped), Flease, Weather::Rough, SEEDS, "lends"),
    (Client(ClientBug::SyncForgetsLend), Flease, Weather::Dying, SEEDS, "lends"),
    (Client(ClientBug::AnsweredBeforeSent), Flease, Weather::Rough, SEEDS, "lends"),
    (Client(ClientBug::LendOutlivesSession), Flease, Weather::Frozen, SEEDS, "lends"),
    (Client(ClientBug::LendOutlivesSession), PaxosLease, Weather::Frozen, SEEDS, "lends"),
    (Client(ClientBug::RevokedLendUsed), Flease, Weather::Rough, SEEDS, "lends"),
    (Client(ClientBug::OldBlocksRead), Flease, Weather::Rough, SEEDS, "lends"),
];

impl finding::Weather for Weather {
    type Simulation = Clusters;
    type Bug = Broken;

    fn plan(self, broken: Option<Broken>, subject: Subject, seed: u64) -> ClusterPlan {
        let mut plan = Clusters::plan(subject, seed);
        (plan.files.count, plan.volumes.count, plan.volumes.percent) = (1, 1, 100);
        plan.lend(12);
        plan.volumes.habits =
            TreeHabits { names: 3, changes_percent: 12, again_percent: 50, clear_permille: 0 };
        plan.files.think = Span::from_millis(60);
        plan.clients = plan.clients.max(3);
        make_room_for_more(&mut plan);
        match broken {
            Some(Daemon(bug)) => plan.shard.bug = Some(bug),
            Some(Client(bug)) => plan.volumes.rules = Rules::without(Some(bug)),
            None => {}
        }
        plan.faults = FaultPlan::in_tenths(self.faults().iter().copied(), plan.shard.lease.t_max);
        plan
    }
}

impl Weather {
    const fn faults(self) -> &'static [(FaultKind, u64)] {
        match self {
            Self::Rough => &[(FaultKind::Crash, 20), (FaultKind::Partition, 30), (FaultKind::Break, 10)],
            Self::Frozen => {
                &[(FaultKind::ClientPause, 10), (FaultKind::Partition, 20), (FaultKind::OneWay, 20)]
            }
            Self::Dying => {
                &[(FaultKind::ClientCrash, 15), (FaultKind::Break, 20), (FaultKind::Partition, 40)]
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
    use Weather::{Dying, Frozen, Rough};
    finding::assert_clean_without_bugs(&[Rough, Frozen, Dying]);
}

#[test]
fn clients_do_much_without_asking() {
    for subject in Subject::ALL {
        let plan = finding::Weather::plan(Weather::Rough, None, subject, 1);
        let lends = Clusters::run(subject, &plan, Trace::off()).lends;
        println!("{}: {lends:?}", subject.name());
        assert!(lends.adopted > 8 && lends.changes_here > 30 && lends.reads_here > 15 && lends.flushes > 20);
    }
}
