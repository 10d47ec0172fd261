//! What was kept cannot be read any more: who has lost it counts for nothing until it has all of it again.

use std::cell::Cell;
use std::sync::Arc;

use base::{Epoch, Members, NodeId};
use replication::{Bug, Checkpoint, Config, Event, Memory, Message, Record, Replica, Standing};

use crate::cluster::{Cells, Cluster, Flying, Told, ms};

/// Durable at nodes 1 and 2; node 3 has nothing of it, and node 2 does not know that it is committed.
fn durable_at_two(bug: Option<Bug>) -> Cluster {
    let mut cluster = Cluster::with(3, Config { bug, kept_max: 2, ..Config::default() });
    cluster.serve(1);
    let first = cluster.must_put(1, 9, 9);
    let synced = cluster.sync(1, first);
    assert!(cluster.is_durable(synced));
    cluster.run(ms(50));
    cluster.isolate(3);
    // Node 2 is told with the next entry, and there is none.
    let mark = cluster.must_put(1, 1, 10);
    let synced = cluster.sync(1, mark);
    assert!(cluster.is_durable(synced));
    cluster
}

fn serves(cluster: &Cluster, node: u32) -> bool {
    cluster.replica(node).standing() == Standing::Serving
}

#[test]
fn one_damaged_disk_loses_nothing() {
    for damaged in [1, 2] {
        let mut cluster = durable_at_two(None);
        cluster.damage(damaged);
        assert_eq!(cluster.replica(damaged).memory(), Memory::Torn);
        cluster.mend();
        cluster.serve_soon(3 - damaged);
        assert_eq!(cluster.read(3 - damaged, 1), Some(10));
        cluster.must_put(3 - damaged, 2, 20);
        cluster.run(ms(500));
        cluster.assert_same(&[1, 2, 3]);
        assert_eq!(cluster.replica(damaged).memory(), Memory::Clean);
        assert_eq!(cluster.replica(3).rest().generation, Epoch::default(), "nothing was given up");
        // It is counted on again, and so another may be gone.
        cluster.kill(3 - damaged);
        cluster.serve_soon(damaged);
        assert_eq!((cluster.read(damaged, 1), cluster.read(damaged, 2)), (Some(10), Some(20)));
    }
}

#[test]
fn who_is_damaged_keeps_the_promises_that_it_does_not_know_of() {
    let mut cluster = durable_at_two(None);
    cluster.mend();
    cluster.damage(2);
    // The primary of before is still there, and cannot count on it any more.
    let (request, _) = cluster.put(1, 3, 30);
    cluster.run(ms(500));
    assert!(!serves(&cluster, 1) || cluster.done(request).is_none());
    assert_eq!(cluster.replica(2).memory(), Memory::Torn);
    cluster.serve_soon(1);
    cluster.run(ms(500));
    assert_eq!(cluster.replica(2).memory(), Memory::Clean);
}

#[test]
fn a_damaged_disk_and_a_power_failure_lose_nothing_durable() {
    let mut cluster = durable_at_two(None);
    cluster.damage(1);
    cluster.power_off(2);
    cluster.start(2);
    cluster.mend();
    cluster.serve_soon(2);
    assert_eq!(cluster.read(2, 1), Some(10));
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn who_ends_before_it_has_taken_over_everything_is_still_damaged() {
    let mut cluster = durable_at_two(None);
    cluster.damage(1);
    cluster.kill(1);
    cluster.start(1);
    assert_eq!(cluster.replica(1).memory(), Memory::Torn);
    cluster.power_off(1);
    cluster.start(1);
    assert_eq!(cluster.replica(1).memory(), Memory::Torn);
}

/// Node 1 takes over a state that ends before what it had acknowledged, and whoever lent it is gone.
fn a_state_is_not_all_that_was_acknowledged(bug: Option<Bug>) {
    let mut cluster = durable_at_two(bug);
    cluster.damage(1);
    let has_it = Cell::new(false);
    cluster.hold_back(move |flying| {
        let is_append = matches!(flying.message, Message::Append { .. });
        let is_acknowledged = flying.from == 1 && matches!(flying.message, Message::Appended { .. });
        has_it.set(has_it.get() || is_acknowledged);
        is_append && (flying.to == 3 || flying.to == 1 && has_it.get())
    });
    cluster.mend();
    cluster.lead(2);
    cluster.run(ms(500));
    assert!(cluster.replica(1).is_whole() && !serves(&cluster, 2));
    cluster.kill(2);
    cluster.held.clear();
    cluster.let_go();
    cluster.lead(3);
    cluster.renew(3);
    cluster.run(ms(5_000));
    if serves(&cluster, 3) {
        assert_eq!(cluster.read(3, 1), Some(10), "it was durable at a majority, and one disk was damaged");
    }
    cluster.start(2);
    cluster.run(ms(1_000));
    assert_eq!(cluster.read(3, 1), Some(10));
}

/// It left after that, and was told to forget the object.
#[test]
fn what_is_not_kept_is_not_damaged() {
    let members = Members::new([1, 2, 3].map(NodeId)).unwrap();
    let damaged = Checkpoint::damaged(members, Cells::default(), 5);
    let replica = Replica::new(NodeId(3), Arc::default(), damaged.clone(), [], None).unwrap();
    assert!(replica.is_unsure() && !replica.is_void());
    let buried = [Record::Buried(None)];
    let replica = Replica::new(NodeId(3), Arc::default(), damaged, buried, None).unwrap();
    assert!(replica.is_void(), "a start would keep it for ever");
}

/// All had the end of the object on disk and forgot it, and one of them finds something of it that it cannot read.
fn over_for_all_but_who_has_lost_all() -> Cluster {
    let mut cluster = Cluster::with(4, Config::default());
    cluster.serve(1);
    cluster.must_put(1, 1, 10);
    cluster.run(ms(50));
    cluster.resign(1);
    cluster.damage(4);
    (1..=3).for_each(|node| cluster.bury(node));
    // It asks the others for it.
    cluster.run(ms(300));
    cluster
}

#[test]
fn what_is_over_is_over_for_who_has_lost_all_of_it() {
    for slow in 1..=4 {
        let mut cluster = over_for_all_but_who_has_lost_all();
        let is_slow =
            move |flying: &Flying| matches!(flying.message, Message::Promised { .. }) && flying.from == slow;
        cluster.hold_back(is_slow);
        cluster.lead_as(1, false);
        cluster.renew(1);
        cluster.run(ms(100));
        cluster.let_go();
        cluster.run(ms(50));
        assert!(cluster.was_told(4, &Told::Event(Event::Over)), "{slow} is slow");
        assert!(cluster.was_told(1, &Told::Event(Event::Nothing)));
    }
}

/// Those who remember are enough to know.
#[test]
fn the_same_though_another_one_is_gone() {
    let mut cluster = over_for_all_but_who_has_lost_all();
    cluster.kill(3);
    cluster.lead_as(1, false);
    cluster.renew(1);
    cluster.run(ms(500));
    assert!(cluster.was_told(4, &Told::Event(Event::Over)));
    assert!(cluster.was_told(1, &Told::Event(Event::Nothing)));
}

/// Nobody can know, and an operator gives up what the one had that is gone.
#[test]
fn the_same_if_an_operator_says_so() {
    let mut cluster = over_for_all_but_who_has_lost_all();
    cluster.kill(3);
    cluster.power_off(2);
    cluster.start(2);
    cluster.lead_as(1, false);
    cluster.renew(1);
    cluster.run(ms(3_000));
    assert!(!cluster.was_told(1, &Told::Event(Event::Nothing)));
    assert!(cluster.accept_loss(1));
    assert!(cluster.was_told(4, &Told::Event(Event::Over)));
    assert!(cluster.was_told(1, &Told::Event(Event::Nothing)));
}

stories! {
    DamageForgotten: a_state_is_not_all_that_was_acknowledged;
}
