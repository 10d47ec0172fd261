//! Planted bugs and the models that find them.
//!
//! Each bug breaks one rule; its test fails if the model named beside it does not find two owners (or whatever the
//! table names) within its bounds.

use lease::{Bug, FleaseRules, PaxosRules};

use crate::report::{find, prove};
use crate::setup::Setup;
use crate::world::{EXCLUSION, GIVEN_UP};
use crate::{acquire, dropping, giving_up, paxos, restart, views};

macro_rules! found {
    ($($test:ident: $bug:ident by $rules:ident in $setup:expr, broken $broken:expr;)*) => {
        $(
            #[test]
            fn $test() {
                find::<$rules>(Bug::$bug, $setup, $broken);
            }
        )*
    };
}

found! {
    votes_counted_by_messages: VotesCountedByMessages by FleaseRules in acquire::setup_race(), broken EXCLUSION;
    wrong_view_is_a_vote: WrongViewIsAVote by FleaseRules in views::setup(), broken EXCLUSION;
    renewal_under_old_ballot: RenewalUnderOldBallot by FleaseRules in acquire::setup(), broken EXCLUSION;
    drop_without_floor: DropWithoutFloor by FleaseRules in dropping::setup_late_timers(), broken EXCLUSION;
    drop_before_expiry: DropBeforeExpiry by FleaseRules in dropping::setup(), broken EXCLUSION;
    no_grace: NoGrace by FleaseRules in acquire::setup(), broken EXCLUSION;
    clock_asked_at_acquire_only: ClockAskedAtAcquireOnly by FleaseRules in with_late_timers(acquire::setup()), broken EXCLUSION;
    no_quarantine: NoQuarantine by FleaseRules in restart::setup(), broken EXCLUSION;
    own_vote_in_quarantine: OwnVoteInQuarantine by FleaseRules in restart::setup(), broken EXCLUSION;
    ballots_without_interval: BallotsWithoutInterval by FleaseRules in restart::setup_late_timers(), broken EXCLUSION;
    newcomer_votes: NewcomerVotes by FleaseRules in views::setup_without_gate(), broken EXCLUSION;
    holds_while_releasing: HoldsWhileReleasing by FleaseRules in giving_up::setup(), broken EXCLUSION;
    notice_kills_every_incarnation: NoticeKillsEveryIncarnation by FleaseRules in restart::setup(), broken EXCLUSION;
    timer_from_last_vote: TimerFromLastVote by PaxosRules in paxos::setup_race(), broken EXCLUSION;
}

#[test]
fn holds_while_releasing_is_seen_at_once() {
    find::<FleaseRules>(Bug::HoldsWhileReleasing, giving_up::setup(), GIVEN_UP);
}

fn with_late_timers(setup: Setup) -> Setup {
    Setup { late: vec![0, 1], ..setup }
}

/// A bug that other rules keep harmless: the model stays right with it.
fn is_harmless(bug: Bug, mut setup: Setup) {
    setup.config.bug = Some(bug);
    prove::<FleaseRules>(setup);
}

/// L7 is stronger: when the quarantine ends, the lease of the earlier incarnation is over.
#[test]
fn earlier_incarnation_is_own_is_harmless_under_quarantine() {
    is_harmless(Bug::EarlierIncarnationIsOwn, restart::setup());
}

/// The gate of L9 is stronger: consecutive views share a member of every two majorities, and it has voted.
#[test]
fn newcomer_votes_is_harmless_behind_the_gate() {
    is_harmless(Bug::NewcomerVotes, Setup { milestones: Vec::new(), ..views::setup() });
}

/// An attempt is over before a register can be idle long enough, as long as timers are served.
#[test]
fn drop_without_floor_is_harmless_with_punctual_timers() {
    is_harmless(Bug::DropWithoutFloor, Setup { milestones: Vec::new(), ..dropping::setup() });
}

/// The quarantine outlives every attempt that was under way at the restart, as long as timers are served.
#[test]
fn ballots_without_interval_is_harmless_with_punctual_timers() {
    is_harmless(Bug::BallotsWithoutInterval, Setup { milestones: Vec::new(), ..restart::setup() });
}
