//! Daemons that stop in order.

use node::{PeerMessage, Reply, ReplyBody, RequestBody, Unavailable};

use crate::cluster::{Cluster, Flying, cell, ms, taken_over};
use crate::grants::{held, take};

/// Whom the draining daemon named.
fn successor(cluster: &Cluster) -> u32 {
    let dropped = cluster.clients[&1].heard.iter().find_map(|(_, reply)| match reply {
        Reply::Dropped { successor, .. } => *successor,
        _ => None,
    });
    dropped.unwrap().0
}

#[test]
fn a_holder_goes_on_at_the_successor_of_a_daemon_that_drains() {
    let mut cluster = held();
    let token = cluster.clients[&1].token();
    cluster.client(2);
    let rival = cluster.acquire(2, 1);
    cluster.drain(1);
    assert_eq!(cluster.answer(2, rival), Some(ReplyBody::Unavailable(Unavailable::Stopping)));
    let next = successor(&cluster);
    let rival = cluster.acquire(2, next);
    let id = cluster.reattach(1, next, token);
    cluster.run(ms(20));
    assert_eq!(cluster.answer(1, id), Some(ReplyBody::Kept));
    assert!(cluster.shard(1).is_drained());
    cluster.kill(1);
    cluster.run(ms(5_000));
    assert_eq!(cluster.holders(), [1]);
    assert_eq!(cluster.answer(2, rival), Some(ReplyBody::Queued));
}

/// When the lease is handed over the successor cannot trust its clock, and nobody else may have that lease before it has run out.
#[test]
fn a_successor_has_what_was_handed_to_it_as_soon_as_its_clock_is_right() {
    let mut cluster = held();
    let token = cluster.clients[&1].token();
    cluster.daemons.get_mut(&2).unwrap().offset_ms = -1_000;
    // Nobody hears from it that it takes no leases.
    cluster.hold_back(|flying| match flying {
        Flying::Peer { messages, .. } => messages.contains(&PeerMessage::Takes(false)),
        _ => false,
    });
    cluster.run(ms(2_000));
    cluster.drain(1);
    assert_eq!((successor(&cluster), cluster.shard(2).is_trusted()), (2, false));
    cluster.daemons.get_mut(&2).unwrap().offset_ms = 0;
    let took = cluster.run_until(ms(1_000), |cluster| cluster.shard(2).is_trusted());
    cluster.run(ms(20));
    assert!(taken_over(cluster.events(2)).is_some(), "nobody has asked it, {took} later");
    let id = cluster.reattach(1, 2, token);
    assert_eq!(cluster.answer(1, id), Some(ReplyBody::Kept));
}

#[test]
fn a_rival_at_the_successor_waits_for_a_holder_that_does_not_come() {
    let mut cluster = held();
    cluster.client(2);
    cluster.drain(1);
    let next = successor(&cluster);
    cluster.kill(1);
    let rival = cluster.acquire(2, next);
    let (_, took) = cluster.granted(2, rival, ms(5_000));
    assert!(ms(896) <= took + ms(5), "{took}");
}

#[test]
fn a_lock_that_nobody_holds_is_free_at_once_after_a_drain() {
    let mut cluster = held();
    let token = cluster.clients[&1].token();
    cluster.release(1, 1, token);
    cluster.drain(1);
    cluster.client(2);
    let rival = cluster.acquire(2, 2);
    let (_, took) = cluster.granted(2, rival, ms(500));
    assert!(took < ms(20), "{took}");
}

#[test]
fn a_drain_while_a_grant_is_under_way_makes_the_next_owner_wait_for_nobody_it_can_rule_out() {
    let mut cluster: Cluster = Cluster::new(3);
    cluster.client(1);
    cluster.client(2);
    cluster.hold_back(|flying| flying.is_peer(1, |m| matches!(m, PeerMessage::Written { .. })));
    let first = cluster.acquire(1, 1);
    cluster.run(ms(20));
    cluster.drain(1);
    assert_eq!(cluster.answer(1, first), Some(ReplyBody::Unavailable(Unavailable::Stopping)));
    cluster.let_go();
    assert_eq!(cluster.holders(), [0; 0], "it was sent away");
    let next = cluster.acquire(2, 2);
    cluster.granted(2, next, ms(1_000));
}

#[test]
fn a_drain_during_the_grace_after_a_death_lets_nobody_in_early() {
    let mut cluster: Cluster = Cluster::new(3);
    // Node 2 hears of leases, but nothing on its stream, and node 3 forgets: only the owner has the record.
    cluster.hold_back(|flying| flying.is_peer(2, |_| true));
    take(&mut cluster);
    cluster.kill(3);
    cluster.hold_back(|flying| flying.is_peer(2, |_| true) || flying.is_peer(3, |_| true));
    cluster.start(3);
    cluster.run(ms(2_500));
    cluster.kill_with_notice(1);
    cluster.held.clear();
    cluster.let_go();
    cluster.client(2);
    cluster.acquire(2, 2);
    cluster.run(ms(300));
    assert_eq!(taken_over(cluster.events(2)), Some((None, true)), "it cannot rule out that somebody has it");
    cluster.drain(2);
    cluster.run(ms(20));
    let rival = cluster.ask_for(2, 3, RequestBody::Acquire { cell: cell(), wait: true });
    assert!(!matches!(rival, Some(ReplyBody::Granted(_))), "{rival:?}");
    assert_eq!(cluster.holders(), [1]);
    cluster.run(ms(2_000));
    assert_eq!(cluster.holders(), [2]);
}
