//! Locks while everybody is well.

use lease::{FleaseRules, PaxosRules};
use node::{ReplyBody, RequestBody, Unavailable};

use crate::cluster::{Cluster, cell, ms};

/// Three daemons, and a client that holds the lock by the first one.
pub(crate) fn held() -> Cluster {
    let mut cluster = Cluster::new(3);
    take(&mut cluster);
    cluster
}

pub(crate) fn take<A: lease::Algorithm>(cluster: &mut Cluster<A>) {
    cluster.client(1);
    let id = cluster.acquire(1, 1);
    cluster.granted(1, id, ms(50));
    assert_eq!(cluster.holders(), [1]);
}

#[test]
fn a_lock_is_granted_with_a_token_and_refused_to_a_rival() {
    let mut cluster = held();
    cluster.client(2);
    let acquire = |wait| RequestBody::Acquire { cell: cell(), wait };
    assert_eq!(cluster.ask_for(2, 1, acquire(false)), Some(ReplyBody::Busy));
    assert_eq!(cluster.ask_for(2, 1, acquire(true)), Some(ReplyBody::Queued));
    let elsewhere = cluster.ask_for(2, 2, acquire(true));
    assert_eq!(elsewhere, Some(ReplyBody::Elsewhere(base::NodeId(1))));
    cluster.run(ms(10_000));
    assert_eq!(cluster.holders(), [1]);
}

#[test]
fn whoever_does_not_want_to_wait_gets_a_free_lock() {
    let mut cluster: Cluster = Cluster::new(3);
    cluster.client(1);
    let acquire = RequestBody::Acquire { cell: cell(), wait: false };
    assert!(matches!(cluster.ask_for(1, 1, acquire), Some(ReplyBody::Granted(_))));
    assert_eq!(cluster.clients[&1].heard.len(), 1, "and is told nothing else");
}

#[test]
fn a_released_lock_goes_to_the_next_in_line_under_a_higher_token() {
    let mut cluster = held();
    let mut waiting = Vec::new();
    for client in 2..=4 {
        cluster.client(client);
        waiting.push((client, cluster.acquire(client, 1)));
    }
    let mut token = cluster.clients[&1].token();
    let mut holder = 1;
    for (client, id) in waiting {
        assert_eq!(cluster.answer(client, id), Some(ReplyBody::Queued));
        assert_eq!(cluster.release(holder, 1, token), Some(ReplyBody::Released));
        let (next, took) = cluster.granted(client, id, ms(50));
        assert!(next > token && took < ms(5), "{next:?} after {token:?} in {took}");
        (holder, token) = (client, next);
        cluster.run(ms(3_000));
    }
}

#[test]
fn a_free_lock_is_anybodys_at_any_member() {
    let mut cluster = held();
    let mut token = cluster.clients[&1].token();
    for (client, node) in [(1, 1), (2, 2), (3, 3), (4, 1)] {
        if client > 1 {
            cluster.client(client);
            let id = cluster.acquire(client, node);
            let (next, took) = cluster.granted(client, id, ms(100));
            assert!(next > token && took < ms(20), "{next:?} after {token:?} in {took}");
            token = next;
        }
        assert_eq!(cluster.release(client, node, token), Some(ReplyBody::Released));
        cluster.run(ms(50));
    }
}

#[test]
fn whoever_waits_no_longer_is_passed_over() {
    let mut cluster = held();
    cluster.client(2);
    cluster.client(3);
    let waiting = cluster.acquire(2, 1);
    let next = cluster.acquire(3, 1);
    let cancelled = cluster.ask_for(2, 1, RequestBody::Cancel { cell: cell(), request: waiting });
    assert_eq!(cancelled, Some(ReplyBody::Cancelled));
    let token = cluster.clients[&1].token();
    cluster.release(1, 1, token);
    cluster.granted(3, next, ms(50));
    assert_eq!(cluster.answer(2, waiting), Some(ReplyBody::Queued));
}

#[test]
fn a_grant_that_was_cancelled_on_its_way_is_nobodys() {
    let mut cluster: Cluster = Cluster::new(3);
    cluster.client(1);
    cluster.client(2);
    cluster.hold_back(|flying| flying.is_peer(1, |m| matches!(m, node::PeerMessage::Written { .. })));
    let id = cluster.acquire(1, 1);
    cluster.run(ms(20));
    assert!(!cluster.held.is_empty(), "the grant is under way");
    let cancelled = cluster.ask_for(1, 1, RequestBody::Cancel { cell: cell(), request: id });
    assert_eq!(cancelled, Some(ReplyBody::Cancelled));
    cluster.let_go();
    cluster.run(ms(50));
    assert_eq!(cluster.answer(1, id), None, "cancelled is the last word");
    let next = cluster.acquire(2, 1);
    let (_, took) = cluster.granted(2, next, ms(100));
    assert!(took < ms(20), "nobody had the lock: {took}");
}

#[test]
fn a_release_with_a_wrong_token_changes_nothing() {
    let mut cluster = held();
    let wrong = node::Token(cluster.clients[&1].token().0 + 1);
    cluster.client(2);
    for (client, token) in [(2, cluster.clients[&1].token()), (2, wrong)] {
        let release = RequestBody::Release { cell: cell(), token };
        assert_eq!(cluster.ask_for(client, 1, release), Some(ReplyBody::Released));
    }
    assert_eq!(
        cluster.ask_for(2, 1, RequestBody::Acquire { cell: cell(), wait: false }),
        Some(ReplyBody::Busy)
    );
}

#[test]
fn one_daemon_alone_serves() {
    let mut cluster: Cluster = Cluster::new(1);
    take(&mut cluster);
    cluster.client(2);
    let next = cluster.acquire(2, 1);
    let token = cluster.clients[&1].token();
    cluster.release(1, 1, token);
    cluster.granted(2, next, ms(50));
}

#[test]
fn two_of_five_members_may_be_gone() {
    let mut cluster: Cluster = Cluster::with(5, 5, None);
    take(&mut cluster);
    cluster.kill(4);
    cluster.kill(5);
    cluster.run(ms(5_000));
    assert_eq!(cluster.holders(), [1]);
    cluster.client(2);
    let next = cluster.acquire(2, 1);
    let token = cluster.clients[&1].token();
    cluster.release(1, 1, token);
    cluster.granted(2, next, ms(50));
    cluster.kill(3);
    cluster.run(ms(5_000));
    assert_eq!(cluster.holders(), [0; 0], "two are no majority");
}

#[test]
fn a_daemon_that_is_no_member_says_so() {
    let mut cluster: Cluster = Cluster::with(5, 3, None);
    let members = cluster.members();
    let stranger = (1..=5).find(|node| !members.contains(node)).unwrap();
    cluster.client(1);
    let acquire = RequestBody::Acquire { cell: cell(), wait: true };
    let answer = cluster.ask_for(1, stranger, acquire);
    assert_eq!(answer, Some(ReplyBody::Unavailable(Unavailable::NotMember)));
}

#[test]
fn paxoslease_needs_no_common_time() {
    let mut cluster: Cluster<PaxosRules> = Cluster::new(3);
    for (node, hours) in [(1, 0), (2, 5), (3, -70)] {
        cluster.kill(node);
        cluster.daemons.get_mut(&node).unwrap().offset_ms = hours * 3_600_000;
        cluster.start(node);
    }
    cluster.run(ms(2_500));
    take(&mut cluster);
    cluster.run(ms(5_000));
    assert_eq!(cluster.holders(), [1]);
}

#[test]
fn flease_does() {
    let mut cluster: Cluster<FleaseRules> = Cluster::new(3);
    cluster.daemons.get_mut(&1).unwrap().offset_ms = 5_000;
    cluster.run(ms(300));
    cluster.client(1);
    let acquire = RequestBody::Acquire { cell: cell(), wait: true };
    assert_eq!(cluster.ask_for(1, 1, acquire), Some(ReplyBody::Unavailable(Unavailable::Clock)));
}
