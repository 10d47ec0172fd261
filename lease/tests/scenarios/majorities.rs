//! Who counts as having voted, and for what.

use lease::{Ballot, Body, Event, Message, Refusal, Reject, Stamp};

use crate::cluster::{CELL, Cluster, Flying, ms, view};

#[test]
fn a_lease_is_acquired_kept_and_seen_by_others() {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [0]);
    cluster.run(ms(10_000));
    assert_eq!(cluster.holders(), [0]);
    assert!(matches!(cluster.acquire(1), Err(Refusal::Held { by, .. }) if by == cluster.nodes[0].me()));
}

#[test]
fn two_answers_of_one_acceptor_are_one_vote() {
    let mut cluster = Cluster::new(5);
    cluster.acquire(0).unwrap();
    let reads = cluster.take(|flying| flying.to == 1);
    cluster.flying.clear();
    cluster.deliver(&reads[0]);
    let ack = cluster.take(|flying| flying.to == 0);
    cluster.deliver(&ack[0]);
    cluster.deliver(&ack[0]);
    assert!(cluster.take(Flying::is_write).is_empty(), "two of five voted");
    cluster.deliver(&reads[0]);
    cluster.settle();
    assert_eq!(cluster.holders(), [0; 0], "a repeated request gives no new vote either");
}

#[test]
fn wrong_view_is_not_a_vote() {
    let mut cluster = Cluster::new(4);
    let (old, new) = (view(1, &[0, 1, 2]), view(2, &[0, 1, 2, 3]));
    cluster.views = vec![old.clone(); 4];
    for node in [1, 2] {
        cluster.change_view(node, &old, &new);
    }
    cluster.acquire(0).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [0; 0]);
    assert!(cluster.events_of(0).contains(&&Event::WrongView { cell: CELL, current: new }));
}

#[test]
fn a_nack_is_not_swallowed_behind_a_view_change() {
    let mut cluster = Cluster::new(3);
    let (old, new) = (view(1, &[0, 1, 2]), view(2, &[0, 1, 2]));
    cluster.views = vec![old.clone(); 3];
    // Node 2 promised a high ballot of node 1, which then moved to the new view.
    let from = cluster.nodes[1].me();
    let stamp = Stamp::new(Stamp::interval_at(cluster.now, ms(1_900)), 500);
    let ballot = Ballot { stamp, process: from };
    let read = cluster.forge(from, 2, Message { cell: CELL, view: old.id, ballot, body: Body::Read });
    cluster.deliver(&read);
    cluster.change_view(1, &old, &new);
    cluster.flying.clear();
    cluster.acquire(0).unwrap();
    let requests = std::mem::take(&mut cluster.flying);
    cluster.deliver_all(requests);
    let nack = cluster.take(Flying::is_nack);
    let wrong_view = std::mem::take(&mut cluster.flying);
    assert!(matches!(wrong_view[0].body(), Body::WrongView(_)));
    let Body::Nack { highest } = nack[0].body() else { panic!("node 2 refuses") };
    cluster.deliver_all(wrong_view);
    cluster.deliver(&nack[0]);
    for node in [0, 2] {
        cluster.change_view(node, &old, &new);
    }
    let next = cluster.take(|flying| flying.from == 0 && matches!(flying.body(), Body::Read));
    assert!(next[0].message().ballot > *highest, "the next attempt goes above what was promised");
}

#[test]
fn an_acceptor_that_lags_behind_a_view_does_not_vote() {
    let mut cluster = Cluster::new(3);
    let (old, new) = (view(1, &[0, 1, 2]), view(2, &[0, 1, 2]));
    cluster.views = vec![old.clone(); 3];
    cluster.change_view(0, &old, &new);
    cluster.views[0] = new.clone();
    cluster.acquire(0).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [0; 0]);
    let peer = cluster.nodes[0].me().node;
    assert!(cluster.events_of(1).contains(&&Event::ViewBehind { cell: CELL, seen: new.id, peer }));
    assert_eq!(cluster.nodes[1].counters().rejected(Reject::ViewBehind), 1);
}

#[test]
fn two_view_changes_within_one_lease_time_leave_one_owner() {
    let first = view(1, &[0, 1, 2]);
    let mut cluster = Cluster::with_view(4, &first);
    // Node 2 never hears of the lease.
    cluster.acquire(0).unwrap();
    cluster.settle_where(|flying| flying.to != 2);
    assert_eq!(cluster.holders(), [0]);
    // Node 3 joins, node 1 leaves, and node 2 wants the lease from {2, 3}.
    let (second, third) = (view(2, &[0, 1, 2, 3]), view(3, &[0, 2, 3]));
    for node in [2, 3] {
        cluster.change_view(node, &first, &second);
        cluster.change_view(node, &second, &third);
    }
    cluster.acquire(2).unwrap();
    cluster.flying.retain(|flying| flying.to != 0);
    cluster.settle();
    assert_eq!(cluster.holders(), [0], "a newcomer casts no vote");
    assert!(cluster.nodes[3].counters().rejected(Reject::Newcomer) > 0);
}

#[test]
fn an_owner_confirms_its_lease_in_each_view() {
    let (old, new) = (view(1, &[0, 1, 2]), view(2, &[0, 1]));
    let mut cluster = Cluster::with_view(3, &old);
    cluster.acquire(0).unwrap();
    cluster.settle();
    assert_eq!(cluster.nodes[0].decided_in(CELL), Some(old.id));
    cluster.change_view(0, &old, &new);
    assert_eq!(cluster.nodes[0].decided_in(CELL), Some(old.id), "nobody has voted in the new view yet");
    assert_eq!(cluster.holders(), [0], "it goes on owning");
    cluster.change_view(1, &old, &new);
    cluster.settle();
    assert_eq!(cluster.nodes[0].decided_in(CELL), Some(new.id));
}
