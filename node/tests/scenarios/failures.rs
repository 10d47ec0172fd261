//! Daemons and connections that fail under a held lock.

use base::{Epoch, NodeId, ObjectId, Span};
use lease::PaxosRules;
use node::{PeerMessage, Record, Reply, ReplyBody, RequestBody, ShardEvent, Unavailable};

use crate::cluster::{Cluster, Flying, cell, ms, taken_over};
use crate::grants::{held, take};

/// How long a client may think that its session lasts, by a daemon's clock.
const SESSION_OVER: Span = Span::from_millis(896);
/// No lease is longer.
const T_MAX: Span = Span::from_millis(2_000);
const EPSILON: Span = Span::from_millis(100);

#[test]
fn a_holder_whose_daemon_dies_with_a_notice_keeps_lock_and_token_elsewhere() {
    let mut cluster = held();
    let token = cluster.clients[&1].token();
    cluster.client(2);
    cluster.connect(1, 2);
    let dead = cluster.process(1);
    cluster.kill_with_notice(1);
    let told = (2, Reply::Death { node: dead.node, incarnation: dead.incarnation });
    assert!(cluster.clients[&1].heard.contains(&told), "its other session tells it");
    let rival = cluster.acquire(2, 2);
    cluster.run(ms(20));
    let id = cluster.reattach(1, 2, token);
    cluster.run(ms(20));
    assert_eq!(cluster.answer(1, id), Some(ReplyBody::Kept));
    cluster.run(ms(10_000));
    assert_eq!(cluster.holders(), [1]);
    assert_eq!(cluster.answer(2, rival), Some(ReplyBody::Queued));
    cluster.release(1, 2, token);
    let (next, _) = cluster.granted(2, rival, ms(50));
    assert!(next > token);
}

#[test]
fn a_rival_waits_until_a_silent_holders_session_is_over() {
    let mut cluster = held();
    cluster.client(2);
    cluster.kill_with_notice(1);
    let rival = cluster.acquire(2, 2);
    let (_, took) = cluster.granted(2, rival, ms(5_000));
    assert!(SESSION_OVER <= took && took < SESSION_OVER + ms(50), "{took}");
    assert_eq!(taken_over(cluster.events(2)).map(|(_, waits)| waits), Some(true));
}

#[test]
fn a_notice_about_a_daemon_without_holders_makes_nobody_wait() {
    let mut cluster = held();
    let token = cluster.clients[&1].token();
    cluster.hold_back(|flying| matches!(flying, Flying::Lease { .. }));
    cluster.release(1, 1, token);
    cluster.kill_with_notice(1);
    cluster.held.clear();
    cluster.let_go();
    cluster.client(2);
    let rival = cluster.acquire(2, 2);
    let (_, took) = cluster.granted(2, rival, ms(5_000));
    assert!(took < ms(20), "its members know that nobody holds it: {took}");
}

#[test]
fn without_a_notice_the_lock_is_free_when_the_lease_is_over() {
    let mut cluster = held();
    cluster.client(2);
    cluster.kill(1);
    let mut took = Span::ZERO;
    while cluster.holders() != [2] {
        cluster.ask(2, 2, RequestBody::Acquire { cell: cell(), wait: true });
        cluster.run(ms(10));
        took = took + ms(10);
        assert!(took <= T_MAX + EPSILON + ms(50), "{took}");
    }
    assert!(took > T_MAX / 2, "{took}");
}

#[test]
fn a_member_that_forgot_makes_the_next_owner_wait() {
    let mut cluster = held();
    // The one that restarts cannot hear from the owner what it forgot.
    cluster.kill(3);
    cluster.cut(1, 3);
    cluster.start(3);
    cluster.run(ms(2_500));
    assert_eq!(cluster.holders(), [1]);
    cluster.client(2);
    cluster.kill_with_notice(1);
    let rival = cluster.acquire(2, 3);
    let (_, took) = cluster.granted(2, rival, ms(5_000));
    assert!(SESSION_OVER <= took, "somebody may hold it: {took}");
}

#[test]
fn a_grant_that_only_a_forgetful_member_had_makes_the_next_owner_wait() {
    let mut cluster: Cluster = Cluster::new(3);
    // Node 2 hears of leases, but nothing on its stream: the record is at 1 and 3.
    cluster.hold_back(|flying| flying.is_peer(2, |_| true));
    take(&mut cluster);
    cluster.kill(3);
    cluster.hold_back(|flying| flying.is_peer(2, |_| true) || flying.is_peer(3, |_| true));
    cluster.start(3);
    cluster.run(ms(2_500));
    assert_eq!(cluster.holders(), [1]);
    cluster.client(2);
    cluster.kill_with_notice(1);
    cluster.held.clear();
    cluster.let_go();
    let rival = cluster.ask(2, 2, RequestBody::Acquire { cell: cell(), wait: true });
    let (_, took) = cluster.granted(2, rival, ms(5_000));
    assert!(SESSION_OVER <= took + ms(10), "the dead may have granted what everybody forgot: {took}");
}

#[test]
fn an_old_lease_under_a_high_number_does_not_hide_that_the_last_owner_died() {
    let mut cluster: Cluster<PaxosRules> = Cluster::new(3);
    cluster.client(1);
    let id = cluster.acquire(1, 3);
    cluster.granted(1, id, ms(100));
    // Ballots rise with every renewal. Node 1 alone remembers them.
    cluster.run(ms(20_000));
    cluster.isolate(1);
    cluster.kill(2);
    cluster.kill(3);
    cluster.start(2);
    cluster.start(3);
    // Somebody keeps asking it, so that it does not forget.
    cluster.client(4);
    for _ in 0..46 {
        cluster.ask(4, 1, RequestBody::Acquire { cell: cell(), wait: false });
        cluster.run(ms(50));
    }
    cluster.client(2);
    let id = cluster.acquire(2, 2);
    cluster.granted(2, id, ms(100));
    cluster.mend();
    cluster.kill_with_notice(2);
    cluster.client(3);
    let rival = cluster.acquire(3, 3);
    let (_, took) = cluster.granted(3, rival, ms(5_000));
    assert!(SESSION_OVER <= took, "the dead owner's client may hold it: {took}");
}

#[test]
fn a_member_that_restarted_is_told_again_under_a_number_that_it_takes() {
    let mut cluster = held();
    let token = cluster.clients[&1].token();
    // Both others forget, one after the other; what the owner writes again is all they know.
    for node in [2, 3] {
        cluster.kill(node);
        cluster.start(node);
        cluster.run(ms(2_500));
        assert_eq!(cluster.holders(), [1]);
    }
    cluster.client(2);
    cluster.kill_with_notice(1);
    let rival = cluster.acquire(2, 2);
    cluster.run(ms(300));
    assert_eq!(
        taken_over(cluster.events(2)).and_then(|(grant, _)| grant).map(|grant| grant.token),
        Some(token)
    );
    let (_, took) = cluster.granted(2, rival, ms(5_000));
    assert!(SESSION_OVER <= took + ms(300), "{took}");
}

#[test]
fn a_return_that_is_written_when_the_grace_ends_is_kept() {
    let mut cluster = held();
    let token = cluster.clients[&1].token();
    cluster.client(2);
    cluster.kill_with_notice(1);
    let rival = cluster.acquire(2, 2);
    cluster.run(SESSION_OVER.saturating_sub(ms(10)));
    cluster.hold_back(|flying| flying.is_peer(2, |m| matches!(m, PeerMessage::Written { .. })));
    let id = cluster.reattach(1, 2, token);
    cluster.run(ms(100));
    assert_eq!(cluster.answer(1, id), None, "its record is under way");
    cluster.let_go();
    assert_eq!(cluster.answer(1, id), Some(ReplyBody::Kept));
    cluster.run(ms(3_000));
    assert_eq!((cluster.holders(), cluster.answer(2, rival)), (vec![1], Some(ReplyBody::Queued)));
}

#[test]
fn a_second_death_does_not_hide_what_the_first_process_granted() {
    let mut cluster: Cluster = Cluster::new(3);
    cluster.hold_back(|flying| flying.is_peer(2, |_| true));
    take(&mut cluster);
    cluster.kill(3);
    cluster.cut(1, 3);
    cluster.start(3);
    cluster.run(ms(2_300));
    cluster.client(2);
    // The supervisor starts the daemon again at once; it lives just long enough to greet the others.
    cluster.held.clear();
    cluster.hold_back(|_| false);
    let first = cluster.kill(1);
    cluster.mend();
    cluster.start(1);
    cluster.run(ms(5));
    let second = cluster.kill(1);
    cluster.notice(first);
    cluster.notice(second);
    let rival = cluster.acquire(2, 2);
    let (_, took) = cluster.granted(2, rival, ms(5_000));
    assert!(SESSION_OVER <= took + ms(10), "the first process's client may hold it: {took}");
}

#[test]
fn a_connection_that_comes_back_keeps_the_lock_at_the_same_daemon() {
    let mut cluster = held();
    let token = cluster.clients[&1].token();
    cluster.client(2);
    let rival = cluster.acquire(2, 1);
    cluster.disconnect(1, 1);
    cluster.run(ms(300));
    assert_eq!(cluster.holders(), [1], "still covered");
    let id = cluster.reattach(1, 1, token);
    assert_eq!(cluster.answer(1, id), Some(ReplyBody::Kept));
    cluster.run(ms(5_000));
    assert_eq!(cluster.holders(), [1]);
    assert_eq!(cluster.answer(2, rival), Some(ReplyBody::Queued));
}

#[test]
fn a_silent_client_is_timed_out_and_the_next_in_line_gets_the_lock() {
    let mut cluster = held();
    cluster.client(2);
    let rival = cluster.acquire(2, 1);
    cluster.clients.get_mut(&1).unwrap().is_silent = true;
    let (_, took) = cluster.granted(2, rival, ms(5_000));
    assert!(took <= SESSION_OVER + ms(50), "{took}");
    assert!(cluster.clients[&1].heard.contains(&(1, Reply::SessionOver)));
    assert!(!cluster.clients[&1].is_connected(1));
}

#[test]
fn a_late_frame_of_a_client_that_was_timed_out_revives_nothing() {
    let mut cluster = held();
    let token = cluster.clients[&1].token();
    cluster.client(2);
    let rival = cluster.acquire(2, 1);
    // Its last words stay on their way, and nothing follows.
    let body = RequestBody::Reattach { cell: cell(), token };
    let (session, late) = cluster.say_late(1, 1, body);
    cluster.clients.get_mut(&1).unwrap().is_silent = true;
    cluster.granted(2, rival, ms(5_000));
    let heard = cluster.clients[&1].heard.len();
    cluster.call(1, |shard, now| shard.handle_client_frame(now, session, late));
    cluster.run(ms(2_000));
    assert_eq!((cluster.holders(), cluster.clients[&1].heard.len()), (vec![2], heard));
}

#[test]
fn a_lease_that_cannot_be_renewed_detaches_its_client_before_it_is_somebody_elses() {
    let mut cluster = held();
    cluster.isolate(1);
    let dropped = |cluster: &Cluster| {
        cluster.clients[&1].heard.iter().any(|(_, reply)| matches!(reply, Reply::Dropped { .. }))
    };
    let took = cluster.run_until(T_MAX, dropped);
    assert!(took < T_MAX, "{took}");
    assert!(cluster.events(1).iter().any(|event| matches!(event, ShardEvent::Detached { .. })));
    assert_eq!(cluster.holders(), [1], "covered for a while");
    let token = cluster.clients[&1].token();
    // Its session goes on, but does not cover the lock.
    cluster.run(SESSION_OVER);
    assert_eq!(cluster.holders(), [0; 0]);
    cluster.client(2);
    cluster.run(T_MAX);
    let rival = cluster.acquire(2, 2);
    cluster.granted(2, rival, ms(500));
    let late = cluster.reattach(1, 2, token);
    cluster.run(ms(50));
    assert_eq!(cluster.answer(1, late), Some(ReplyBody::Gone));
}

#[test]
fn whoever_is_about_to_get_the_lock_is_answered_when_the_lease_is_lost() {
    let mut cluster: Cluster = Cluster::new(3);
    cluster.client(1);
    cluster.hold_back(|flying| flying.is_peer(1, |m| matches!(m, PeerMessage::Written { .. })));
    let id = cluster.acquire(1, 1);
    cluster.run(ms(50));
    assert!(!cluster.held.is_empty(), "its grant is being written");
    cluster.isolate(1);
    cluster.run(T_MAX + ms(200));
    assert_eq!(cluster.answer(1, id), Some(ReplyBody::Unavailable(Unavailable::NoMajority)));
}

#[test]
fn a_detached_client_may_come_back_to_the_same_daemon() {
    let mut cluster = held();
    let token = cluster.clients[&1].token();
    cluster.isolate(1);
    let detached = |cluster: &Cluster| {
        cluster.events(1).iter().any(|event| matches!(event, ShardEvent::Detached { .. }))
    };
    cluster.run_until(T_MAX, detached);
    cluster.mend();
    // An attempt to renew the lease that nobody heard ends first.
    cluster.run(ms(250));
    let id = cluster.reattach(1, 1, token);
    cluster.run(ms(20));
    assert_eq!(cluster.answer(1, id), Some(ReplyBody::Kept));
    cluster.run(ms(10_000));
    assert_eq!(cluster.holders(), [1]);
}

#[test]
fn a_clock_that_stands_down_lets_its_holders_go_on_elsewhere() {
    let mut cluster = held();
    let token = cluster.clients[&1].token();
    cluster.client(2);
    cluster.daemons.get_mut(&1).unwrap().offset_ms = 70;
    let stood_down = |cluster: &Cluster| !cluster.shard(1).is_trusted();
    cluster.run_until(ms(1_000), stood_down);
    let dropped = cluster.clients[&1].heard.iter().any(|(_, reply)| matches!(reply, Reply::Dropped { .. }));
    assert!(dropped, "it is told at once");
    let rival = cluster.acquire(2, 2);
    let id = cluster.reattach(1, 2, token);
    cluster.run(ms(50));
    assert_eq!(cluster.answer(1, id), Some(ReplyBody::Kept));
    assert_eq!(cluster.answer(2, rival), Some(ReplyBody::Queued));
    assert_eq!(
        cluster.ask_for(2, 1, RequestBody::Acquire { cell: cell(), wait: true }),
        Some(ReplyBody::Unavailable(Unavailable::Clock))
    );
    cluster.run(ms(5_000));
    assert_eq!(cluster.holders(), [1]);
}

#[test]
fn records_of_tenures_that_are_over_are_dropped_everywhere() {
    let mut cluster = held();
    cluster.clients.get_mut(&1).unwrap().is_silent = true;
    cluster.freeze(1);
    cluster.run(T_MAX * 2);
    cluster.thaw(1);
    cluster.run(T_MAX * 3);
    let records: Vec<usize> = (1..=3).map(|node| cluster.shard(node).records()).collect();
    assert_eq!(records, [0, 0, 0]);
}

#[test]
fn an_owner_without_a_majority_lets_go_and_the_others_serve() {
    let mut cluster = held();
    cluster.client(2);
    cluster.isolate(1);
    cluster.run(T_MAX + EPSILON);
    let rival = cluster.acquire(2, 2);
    cluster.granted(2, rival, ms(500));
    cluster.mend();
    cluster.run(ms(5_000));
    assert_eq!(cluster.holders(), [2]);
}

/// A tenure needs a higher number, and the majority that promises it is not the one that keeps its last record.
#[test]
fn a_holder_keeps_its_lock_when_its_owner_promises_anew() {
    let mut cluster: Cluster = Cluster::new(3);
    // Every member keeps that client 2 had the lock by node 2.
    cluster.client(2);
    let id = cluster.acquire(2, 2);
    cluster.granted(2, id, ms(50));
    cluster.isolate(2);
    cluster.run(ms(2_500));
    cluster.client(1);
    let id = cluster.acquire(1, 1);
    cluster.granted(1, id, ms(3_000));
    assert_eq!(cluster.holders(), [1], "nodes 1 and 3 know that");
    // Node 3 forgets everything but that higher numbers may have been used. Node 1's own promise waits for its disk.
    cluster.kill(3);
    cluster.hold_back(|flying| matches!(flying, Flying::Ceiling { node, .. } if node.node == NodeId(1)));
    cluster.start(3);
    cluster.mend();
    cluster.run(ms(20));
    cluster.client(3);
    cluster.acquire(3, 1);
    cluster.run(ms(1_500));
    assert_eq!(cluster.holders(), [1]);
    cluster.let_go();
    cluster.run(ms(1_500));
    assert_eq!(cluster.holders(), [1]);
}

#[test]
fn numbers_that_leave_no_room_above_them_are_refused() {
    let mut cluster: Cluster = Cluster::new(3);
    let peer = cluster.process(2);
    for number in [u64::MAX, 1 << 44] {
        let epoch = Epoch { number, node: peer.node };
        let promise = PeerMessage::Promise { cell: cell(), epoch, dead: Vec::new() };
        let record = Record { epoch, version: 1, writer: peer, grant: None };
        let write = PeerMessage::Write { cell: cell(), record };
        cluster.call(1, |shard, now| shard.handle_peer_messages(now, peer, vec![promise, write]));
    }
    let misbehaved = |event: &&ShardEvent| matches!(event, ShardEvent::Misbehaved { .. });
    assert_eq!(cluster.events(1).iter().filter(misbehaved).count(), 4);
    // A refusal by such a number ends nothing either.
    cluster.client(1);
    let id = cluster.acquire(1, 1);
    cluster.granted(1, id, ms(50));
}

/// Each of them counted as two steps, of which one never ended.
#[test]
fn leases_wanted_again_and_again_do_not_use_up_what_may_be_under_way() {
    let mut cluster: Cluster = Cluster::new(3);
    cluster.client(1);
    cluster.hold_back(|flying| matches!(flying, Flying::Lease { .. }));
    for low in 0..1_500 {
        let cell = ObjectId::new(1, low);
        for body in [RequestBody::Lease { cell }, RequestBody::Unlease { cell }, RequestBody::Lease { cell }]
        {
            cluster.ask(1, 1, body);
        }
    }
    cluster.let_go();
    cluster.run(ms(3_000));
    cluster.client(2);
    let id = cluster.acquire(2, 1);
    cluster.granted(2, id, ms(1_000));
}
