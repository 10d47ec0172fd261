//! Daemons that come back without memory.

use node::{ReplyBody, Token};

use crate::cluster::{Cluster, Flying, ms};
use crate::grants::{held, take};

#[test]
fn a_member_forgets_and_the_owner_dies_and_the_holder_keeps_its_lock() {
    let mut cluster = held();
    let token = cluster.clients[&1].token();
    cluster.kill(2);
    cluster.start(2);
    cluster.run(ms(2_500));
    cluster.kill_with_notice(1);
    cluster.client(2);
    let rival = cluster.acquire(2, 2);
    let id = cluster.reattach(1, 2, token);
    cluster.run(ms(50));
    assert_eq!(cluster.answer(1, id), Some(ReplyBody::Kept), "the owner told the member again");
    assert_eq!(cluster.answer(2, rival), Some(ReplyBody::Queued));
}

#[test]
fn tokens_never_go_back_over_restarts_of_all() {
    let mut cluster: Cluster = Cluster::new(3);
    let mut highest = Token(0);
    for round in 1..=4 {
        cluster.client(round);
        let node = u32::try_from(round % 3).unwrap() + 1;
        let id = cluster.acquire(round, node);
        let (token, _) = cluster.granted(round, id, ms(500));
        assert!(token > highest, "{token:?} after {highest:?}");
        highest = token;
        for node in 1..=3 {
            cluster.kill(node);
        }
        (1..=3).for_each(|node| cluster.start(node));
        cluster.run(ms(2_500));
    }
}

#[test]
fn a_number_that_was_not_on_disk_when_its_node_died_is_not_used_twice() {
    let mut cluster: Cluster = Cluster::stopped(3, 3, None);
    // Its disk is so slow that nothing of its first start is ever on it.
    cluster.hold_back(|flying| matches!(flying, Flying::Ceiling { node, .. } if node.node.0 == 1));
    cluster.start_all();
    take(&mut cluster);
    let first = cluster.clients[&1].token();
    cluster.kill(1);
    cluster.held.clear();
    cluster.start(1);
    cluster.run(ms(2_500));
    cluster.client(2);
    let id = cluster.acquire(2, 1);
    let (second, _) = cluster.granted(2, id, ms(2_000));
    assert!(second > first);
}

#[test]
fn a_promise_that_becomes_durable_late_is_not_for_the_next_process() {
    let mut cluster: Cluster = Cluster::stopped(3, 3, None);
    cluster.hold_back(|flying| matches!(flying, Flying::Ceiling { node, .. } if node.node.0 == 3));
    cluster.start_all();
    take(&mut cluster);
    cluster.kill(1);
    cluster.start(1);
    cluster.let_go();
    cluster.run(ms(5_000));
    assert_eq!(cluster.holders(), [0; 0]);
    cluster.client(2);
    let id = cluster.acquire(2, 1);
    cluster.granted(2, id, ms(2_000));
}

#[test]
fn a_single_member_with_a_higher_number_stops_nobody() {
    let mut cluster: Cluster = Cluster::new(3);
    // Each restart leaves a member with a number far above those that never restarted.
    cluster.kill(2);
    cluster.start(2);
    cluster.run(ms(2_500));
    cluster.kill(3);
    cluster.client(1);
    let id = cluster.acquire(1, 1);
    // The lease takes a round more, because the member's ballots are ahead, too.
    cluster.granted(1, id, ms(500));
}
