//! Stories about what few seeds of a simulation come to: each is told with its rule in force, and must go wrong
//! without it.

use base::{NodeId, Span, WallTime};
use lease::Exchange;
use node::{Bug, FirstClock, PeerMessage, ReplyBody, RequestBody, ShardConfig};

use crate::cluster::{Cluster, Flying, cell, ms};
use crate::grants::take;

/// Told with the rule in force, and without.
macro_rules! stories {
    ($($bug:ident: $story:ident;)*) => {
        mod with_the_rule {
            $(#[test] fn $story() { super::$story(None); })*
        }

        mod without_it {
            $(#[test] #[should_panic] fn $story() { super::$story(Some(node::Bug::$bug)); })*
        }
    };
}

const SESSION_OVER: Span = Span::from_millis(896);
const NOW: WallTime = WallTime::from_micros(1_000_000_000);

fn three(bug: Option<Bug>) -> Cluster {
    Cluster::with(3, 3, bug)
}

/// Whoever asks at node 2 after node 1 died with a notice waits until no client can believe in what that granted.
fn rival_waits(cluster: &mut Cluster) {
    cluster.client(2);
    cluster.kill_with_notice(1);
    cluster.held.clear();
    cluster.let_go();
    let rival = cluster.acquire(2, 2);
    let (_, took) = cluster.granted(2, rival, ms(5_000));
    assert!(SESSION_OVER <= took + ms(10), "somebody may hold it: {took}");
}

/// The holder's record is at the owner and at node 3 only, and node 3 forgets.
fn only_the_owner_remembers(bug: Option<Bug>) -> Cluster {
    let mut cluster = three(bug);
    cluster.hold_back(|flying| flying.is_peer(2, |_| true));
    take(&mut cluster);
    cluster.kill(3);
    cluster.hold_back(|flying| flying.is_peer(2, |_| true) || flying.is_peer(3, |_| true));
    cluster.start(3);
    cluster.run(ms(2_500));
    assert_eq!(cluster.holders(), [1]);
    cluster
}

fn a_grant_is_in_a_majority_before_anybody_hears_of_it(bug: Option<Bug>) {
    let mut cluster = three(bug);
    cluster.client(1);
    let is_write = |message: &PeerMessage| matches!(message, PeerMessage::Write { .. });
    cluster.hold_back(move |flying| flying.is_peer(2, is_write) || flying.is_peer(3, is_write));
    cluster.acquire(1, 1);
    cluster.run(ms(20));
    cluster.client(2);
    cluster.kill_with_notice(1);
    cluster.held.clear();
    cluster.let_go();
    let rival = cluster.acquire(2, 2);
    cluster.granted(2, rival, ms(5_000));
}

fn a_member_that_may_have_forgotten_says_so(bug: Option<Bug>) {
    rival_waits(&mut only_the_owner_remembers(bug));
}

fn a_held_record_is_not_dropped_for_being_idle(bug: Option<Bug>) {
    let mut cluster = three(bug);
    cluster.hold_back(|flying| flying.is_peer(2, |_| true));
    take(&mut cluster);
    // Node 3 hears nothing of leases any longer; its stream is well.
    cluster.hold_back(|flying| {
        flying.is_peer(2, |_| true) || matches!(flying, Flying::Lease { from, to: 3, .. } if from.node.0 == 1)
    });
    cluster.run(ms(10_000));
    assert_eq!(cluster.holders(), [1]);
    rival_waits(&mut cluster);
}

fn a_grace_that_is_cut_short_by_a_drain_is_not_settled(bug: Option<Bug>) {
    let mut cluster = only_the_owner_remembers(bug);
    cluster.client(2);
    cluster.kill_with_notice(1);
    cluster.held.clear();
    cluster.let_go();
    cluster.acquire(2, 2);
    cluster.run(ms(300));
    cluster.drain(2);
    cluster.run(ms(20));
    let rival = cluster.ask_for(2, 3, RequestBody::Acquire { cell: cell(), wait: true });
    assert!(!matches!(rival, Some(ReplyBody::Granted(_))), "{rival:?}");
}

fn what_an_owner_wrote_that_was_deposed_changes_nothing(bug: Option<Bug>) {
    let mut cluster = three(bug);
    cluster.client(1);
    // What the first owner writes for node 3 arrives after others have owned the lock, and the next owner's record for
    // node 1 never.
    let is_write = |message: &PeerMessage| matches!(message, PeerMessage::Write { .. });
    let is_from = |flying: &Flying, node| matches!(flying, Flying::Peer { from, .. } if from.node.0 == node);
    cluster.hold_back(move |flying| {
        is_from(flying, 1) && flying.is_peer(3, is_write) || is_from(flying, 2) && flying.is_peer(1, is_write)
    });
    let id = cluster.acquire(1, 1);
    let (token, _) = cluster.granted(1, id, ms(100));
    cluster.release(1, 1, token);
    cluster.run(ms(100));
    cluster.client(2);
    let next = cluster.acquire(2, 2);
    cluster.granted(2, next, ms(500));
    cluster.held.retain(|flying| is_from(flying, 1));
    cluster.let_go();
    cluster.client(3);
    cluster.kill_with_notice(2);
    let rival = cluster.acquire(3, 1);
    let (_, took) = cluster.granted(3, rival, ms(5_000));
    assert!(SESSION_OVER <= took, "node 3 knows who has the lock: {took}");
}

fn a_number_is_promised_to_one_run(bug: Option<Bug>) {
    let mut cluster: Cluster = Cluster::stopped(3, 3, bug);
    cluster.hold_back(|flying| matches!(flying, Flying::Ceiling { node, .. } if node.node.0 == 1));
    cluster.start_all();
    take(&mut cluster);
    cluster.kill(1);
    cluster.held.clear();
    cluster.start(1);
    cluster.run(ms(2_500));
    cluster.client(2);
    let id = cluster.acquire(2, 1);
    cluster.granted(2, id, ms(2_000));
}

fn a_promise_is_on_disk_before_it_is_answered(bug: Option<Bug>) {
    let mut cluster: Cluster = Cluster::stopped(3, 3, bug);
    // Nobody's disk gets anything done before all of them die.
    cluster.hold_back(|flying| matches!(flying, Flying::Ceiling { .. }));
    cluster.start_all();
    cluster.client(1);
    cluster.acquire(1, 1);
    cluster.run(ms(50));
    for node in 1..=3 {
        cluster.kill(node);
    }
    cluster.held.clear();
    cluster.hold_back(|_| false);
    (1..=3).for_each(|node| cluster.start(node));
    cluster.run(ms(2_500));
    cluster.client(2);
    let id = cluster.acquire(2, 1);
    cluster.granted(2, id, ms(2_000));
}

fn a_restarted_member_is_told_again(bug: Option<Bug>) {
    let mut cluster = three(bug);
    take(&mut cluster);
    for node in [2, 3] {
        cluster.kill(node);
        cluster.start(node);
        cluster.run(ms(2_500));
    }
    let token = cluster.clients[&1].token();
    cluster.kill_with_notice(1);
    let id = cluster.reattach(1, 2, token);
    cluster.run(ms(500));
    assert_eq!(cluster.answer(1, id), Some(ReplyBody::Kept));
}

fn a_restarted_node_waits_before_it_says_that_others_know_all(bug: Option<Bug>) {
    let mut cluster = three(bug);
    cluster.hold_back(|flying| flying.is_peer(2, |_| true));
    take(&mut cluster);
    cluster.kill(3);
    cluster.cut(1, 3);
    cluster.start(3);
    cluster.run(ms(2_300));
    // The supervisor starts the daemon again at once; it lives just long enough to greet the others.
    cluster.held.clear();
    cluster.hold_back(|_| false);
    cluster.kill(1);
    cluster.mend();
    cluster.start(1);
    cluster.run(ms(50));
    rival_waits(&mut cluster);
}

fn a_session_is_confirmed_only_under_a_lease_that_covers_it(bug: Option<Bug>) {
    let mut cluster = three(bug);
    take(&mut cluster);
    cluster.client(2);
    cluster.isolate(1);
    for _ in 0..300 {
        cluster.ask(2, 2, RequestBody::Acquire { cell: cell(), wait: false });
        cluster.run(ms(10));
    }
    assert_eq!(cluster.holders(), [2]);
}

fn a_lock_of_the_dead_is_not_given_away_at_once(bug: Option<Bug>) {
    let mut cluster = three(bug);
    take(&mut cluster);
    rival_waits(&mut cluster);
}

fn numbers_survive_all_processes(bug: Option<Bug>) {
    let mut cluster = three(bug);
    take(&mut cluster);
    for node in 1..=3 {
        cluster.kill(node);
    }
    (1..=3).for_each(|node| cluster.start(node));
    cluster.run(ms(2_500));
    cluster.client(2);
    let id = cluster.acquire(2, 1);
    cluster.granted(2, id, ms(2_000));
}

/// A daemon of three whose clock is 5 s slow, as both others' answers show.
fn slow_by_5_s(bug: Option<Bug>) -> FirstClock {
    let config = ShardConfig { bug, ..ShardConfig::new(three(None).map) };
    let mut first = FirstClock::new(&config).unwrap();
    let theirs = NOW + ms(5_000);
    for peer in [NodeId(1), NodeId(2)] {
        first.handle_time(peer, Exchange { asked: NOW, received: theirs, answered: theirs, done: NOW }, true);
    }
    first
}

fn a_clock_that_all_peers_find_wrong_is_corrected_at_the_start(bug: Option<Bug>) {
    let correction_us = slow_by_5_s(bug).decide(NOW, NOW).correction_us;
    assert_eq!(correction_us, 5_000_000);
}

fn a_start_waits_until_its_time_has_passed_what_was_used_before(bug: Option<Bug>) {
    let used = NOW + ms(6_000);
    assert_eq!(slow_by_5_s(bug).decide(NOW, used).behind, ms(1_000));
}

stories! {
    AckWithoutCover: a_session_is_confirmed_only_under_a_lease_that_covers_it;
    NoWaitAfterDeath: a_lock_of_the_dead_is_not_given_away_at_once;
    NumbersForgotten: numbers_survive_all_processes;
    GrantedBeforeMajority: a_grant_is_in_a_majority_before_anybody_hears_of_it;
    ForgetfulKnowsAll: a_member_that_may_have_forgotten_says_so;
    HeldRecordDropped: a_held_record_is_not_dropped_for_being_idle;
    UnsettledGivenUpAsSettled: a_grace_that_is_cut_short_by_a_drain_is_not_settled;
    PromiseNotKept: what_an_owner_wrote_that_was_deposed_changes_nothing;
    PromiseToAnyRun: a_number_is_promised_to_one_run;
    AnsweredBeforeDurable: a_promise_is_on_disk_before_it_is_answered;
    RestartedNotToldAgain: a_restarted_member_is_told_again;
    CaughtUpTooEarly: a_restarted_node_waits_before_it_says_that_others_know_all;
    OwnClockTrusted: a_clock_that_all_peers_find_wrong_is_corrected_at_the_start;
    FloorForgotten: a_start_waits_until_its_time_has_passed_what_was_used_before;
}
