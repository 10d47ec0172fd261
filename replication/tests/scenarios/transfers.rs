//! Replicas that lack so much that they take over a state.

use std::collections::BTreeSet;

use base::Seq;
use replication::{Bug, Config, Message, Position, Replica, Standing};

use crate::cluster::{Cluster, Flying, Put, Told, ms};

fn short_logs(bug: Option<Bug>) -> Config {
    Config { bug, kept_max: 2, parts_max: 2, versions_max: 3, ..Config::default() }
}

/// Nodes 1 and 2 have gone on without node 3.
fn node_3_lags(bug: Option<Bug>) -> Cluster {
    let mut cluster = Cluster::with(3, short_logs(bug));
    cluster.serve(1);
    cluster.must_put(1, 1, 1);
    cluster.run(ms(50));
    cluster.isolate(3);
    (0..8).for_each(|cell| _ = cluster.must_put(1, cell, 10 + cell));
    cluster
}

const fn is_transfer(message: &Message<crate::cluster::Cells>) -> bool {
    matches!(message, Message::Offer { .. } | Message::Pull { .. } | Message::Pulled { .. })
}

#[test]
fn who_lacks_too_much_takes_over_a_state() {
    let mut cluster = node_3_lags(None);
    cluster.mend();
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
    cluster.must_put(1, 9, 9);
    cluster.run(ms(50));
    cluster.assert_same(&[1, 2, 3]);
    cluster.kill(1);
    cluster.serve(3);
    assert_eq!((cluster.read(3, 1), cluster.read(3, 7), cluster.read(3, 9)), (Some(11), Some(17), Some(9)));
}

/// Writes something, and says whether the log at node 1 can be forgotten then, as nobody is being given a state.
fn keeps_no_state(cluster: &mut Cluster) -> bool {
    cluster.must_put(1, 9, 9);
    cluster.run(ms(100));
    cluster.forget_log(1);
    cluster.replica(1).log_bytes() == 0
}

/// For many objects that would be all that was written while a node is gone.
#[test]
fn no_state_is_kept_for_who_does_not_answer() {
    let mut cluster = node_3_lags(None);
    cluster.run(ms(1_000));
    assert!(keeps_no_state(&mut cluster), "nothing is offered");
    cluster.mend();
    cluster.run(ms(1_000));
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn no_state_is_kept_for_who_is_gone_while_it_takes_one_over() {
    let mut cluster = node_3_lags(None);
    cluster.renew(1);
    cluster.hold_back(|flying| matches!(flying.message, Message::Pulled { .. }));
    cluster.mend();
    cluster.run(ms(1_000));
    assert!(!keeps_no_state(&mut cluster), "it asks for more");
    cluster.isolate(3);
    cluster.run(ms(1_000));
    assert!(!keeps_no_state(&mut cluster), "it may still answer");
    cluster.run(ms(2_000));
    assert!(keeps_no_state(&mut cluster));
    cluster.let_go();
    cluster.mend();
    cluster.run(ms(1_000));
    cluster.assert_same(&[1, 2, 3]);
}

/// An offer leaves when what it offers is durable, and entries go on meanwhile.
#[test]
fn who_hears_of_a_state_late_takes_it_over_all_the_same() {
    let mut cluster = node_3_lags(None);
    cluster.renew(1);
    cluster.hold_back(|flying| matches!(flying.message, Message::Offer { .. }));
    cluster.mend();
    for _ in 0..4 {
        for cell in 0..25 {
            cluster.must_put(1, cell, 100 + cell);
            cluster.run(ms(100));
        }
        let first = std::mem::take(&mut cluster.held).into_iter().take(1);
        cluster.deliver_all(first.collect());
    }
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
}

/// Its journal takes longer than the primary keeps the state for it. It is without a state until what it has is durable.
#[test]
fn who_has_written_a_state_late_is_asked_to_make_it_durable() {
    let mut cluster = node_3_lags(None);
    cluster.renew(1);
    cluster.mend();
    cluster.hold_back(|flying| flying.from == 3 && matches!(flying.message, Message::Appended { .. }));
    cluster.run(ms(4_000));
    let written = std::mem::take(&mut cluster.held);
    cluster.hold_back(|flying| flying.to == 3 && matches!(flying.message, Message::Sync { .. }));
    cluster.deliver_all(written);
    assert!(!cluster.held.is_empty());
}

/// Its journal takes longer than a state is kept for who says nothing, and others go on meanwhile.
#[test]
fn who_writes_a_state_slowly_finds_the_log_behind_it() {
    let mut cluster = node_3_lags(None);
    cluster.renew(1);
    cluster.slow_disk(3, true);
    cluster.mend();
    cluster.run(ms(500));
    assert!(cluster.replica(3).is_whole() && !cluster.is_written(3), "all of it is in memory");
    for cell in 0..30 {
        cluster.must_put(1, cell, 100 + cell);
        cluster.run(ms(100));
    }
    cluster.hold_back(|flying| is_transfer(&flying.message));
    cluster.slow_disk(3, false);
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
}

/// It says that it is there, and may have no space for more. Many objects may be given to it.
#[test]
fn who_takes_nothing_of_a_state_has_nothing_kept() {
    let mut cluster = node_3_lags(None);
    cluster.renew(1);
    cluster.hold_back(|flying| matches!(flying.message, Message::Pulled { .. }));
    cluster.mend();
    for round in 0..100_u8 {
        cluster.must_put(1, round % 50, round);
        cluster.run(ms(100));
        if !std::mem::take(&mut cluster.held).is_empty() {
            cluster.call(3, Replica::put_off_pulling);
        }
        if round >= 30 {
            assert!(cluster.replica(1).backups_are_settled(), "nobody waits for it");
            assert!(cluster.replica(1).log_bytes() < 500, "no more is kept than for anybody who lags");
        }
        if round >= 30 && round % 10 == 0 {
            assert!(keeps_no_state(&mut cluster));
        }
    }
    // It has space by now.
    cluster.let_go();
    cluster.run(ms(5_000));
    cluster.assert_same(&[1, 2, 3]);
}

/// Each page takes nearly as long as a state is kept for who says nothing, and others go on meanwhile.
#[test]
fn who_takes_a_state_over_slowly_keeps_it() {
    let mut cluster = node_3_lags(None);
    cluster.renew(1);
    cluster.hold_back(|flying| is_transfer(&flying.message));
    cluster.mend();
    cluster.run(ms(500));
    let mut offered = BTreeSet::new();
    for cell in 0..250 {
        cluster.must_put(1, cell % 50, cell);
        cluster.run(ms(100));
        let held = std::mem::take(&mut cluster.held);
        let (pages, others) =
            held.into_iter().partition(|flying| matches!(flying.message, Message::Pulled { .. }));
        let late: Vec<Flying> = pages;
        let others: Vec<Flying> = others;
        offered.extend(others.iter().filter_map(|flying| match flying.message {
            Message::Offer { at, .. } => Some(at),
            _ => None,
        }));
        cluster.deliver_all(others);
        cluster.held.extend(late);
        if cell % 18 == 17 {
            let pages = std::mem::take(&mut cluster.held);
            cluster.deliver_all(pages);
        }
    }
    assert_eq!(offered.len(), 1);
    cluster.let_go();
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn a_state_is_taken_over_while_others_go_on() {
    let mut cluster = node_3_lags(None);
    cluster.hold_back(|flying| is_transfer(&flying.message));
    cluster.mend();
    cluster.run(ms(300));
    for cell in 0..30 {
        cluster.must_put(1, cell, 100 + cell);
        let held = std::mem::take(&mut cluster.held);
        cluster.deliver_all(held);
    }
    cluster.let_go();
    cluster.run(ms(1_000));
    cluster.assert_same(&[1, 2, 3]);
}

/// The power of all has failed. Node 1 had more on disk than the others remember, and its log does not reach back to that: both have
/// to take over its state. What is durable is at all of them; no part of a state comes before it is let go.
fn both_lag_behind_node_1(bug: Option<Bug>) -> Cluster {
    let mut cluster = Cluster::with(3, short_logs(bug));
    cluster.serve(1);
    node_1_has_most_after_a_power_cut(&mut cluster);
    cluster
}

/// A change is made durable wherever that is possible, and others are on the disk of node 1 alone.
fn node_1_has_most_after_a_power_cut(cluster: &mut Cluster) {
    let mark = cluster.must_put(1, 1, 1);
    let durable = cluster.sync(1, mark);
    cluster.run(ms(50));
    assert!(cluster.is_durable(durable));
    (2..10).for_each(|cell| _ = cluster.must_put(1, cell, cell));
    cluster.sync_disk(1);
    cluster.checkpoint(1);
    (1..=3).for_each(|node| cluster.power_off(node));
    cluster.mend();
    (1..=3).for_each(|node| cluster.start(node));
    cluster.hold_back(|flying| matches!(flying.message, Message::Pulled { .. }));
    cluster.lead(1);
    cluster.renew(1);
    cluster.run(ms(500));
}

/// Whoever takes over a state drops what it has: not so many at once that one disk has all that is left.
fn what_is_durable_is_on_more_than_the_disk_of_who_lends(bug: Option<Bug>) {
    let mut cluster = both_lag_behind_node_1(bug);
    cluster.remove(1);
    cluster.held.clear();
    let whole: Vec<u32> = (2..=3).filter(|&node| cluster.replica(node).is_whole()).collect();
    assert_eq!(whole.len(), 1, "one takes over, and the other waits for it");
    let left = whole[0];
    cluster.lead(left);
    cluster.run(ms(5_000));
    assert!(cluster.accept_loss(left));
    cluster.renew(left);
    cluster.let_go();
    cluster.run(ms(500));
    assert_eq!(cluster.read(left, 1), Some(1));
}

/// What is durable is at nodes 1 and 2. Node 3 has less than that, and takes over the state of node 1 before node 2 drops what it has.
#[test]
fn who_has_least_takes_over_a_state_first() {
    let mut cluster = Cluster::with(3, short_logs(None));
    cluster.serve(1);
    cluster.must_put(1, 20, 20);
    cluster.run(ms(50));
    cluster.sync_disk(3);
    cluster.isolate(3);
    node_1_has_most_after_a_power_cut(&mut cluster);
    assert!(cluster.replica(2).is_whole() && !cluster.replica(3).is_whole());
    cluster.let_go();
    cluster.run(ms(1_000));
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn one_takes_over_a_state_after_the_other() {
    let mut cluster = both_lag_behind_node_1(None);
    cluster.let_go();
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn who_takes_over_a_state_and_is_gone_keeps_nobody_waiting_for_ever() {
    let mut cluster = both_lag_behind_node_1(None);
    let gone = (2..=3).find(|&node| !cluster.replica(node).is_whole()).expect("one has begun");
    cluster.kill(gone);
    cluster.held.clear();
    cluster.let_go();
    cluster.run(ms(5_000));
    cluster.assert_same(&[1, 5 - gone]);
}

/// The one asks for what it was lent before, or has all of it and writes it. The other keeps what it has meanwhile.
#[test]
fn who_is_heard_of_while_it_takes_over_a_state_is_waited_for() {
    for writes in [false, true] {
        let mut cluster = both_lag_behind_node_1(None);
        let taker = (2..=3).find(|&node| !cluster.replica(node).is_whole()).expect("one has begun");
        if writes {
            cluster.slow_disk(taker, true);
            cluster.let_go();
        } else {
            cluster.hold_back(move |flying| flying.from == taker && is_transfer(&flying.message));
        }
        let (epoch, view) = (cluster.replica(taker).promised(), cluster.replica(1).view().id);
        for _ in 0..10 {
            cluster.run(ms(500));
            let message = Message::Pull { epoch, at: Position::START, after: None, upto: None, have: vec![] };
            cluster.deliver_all(
                [Flying { from: taker, to: 1, view, message }].into_iter().filter(|_| !writes).collect(),
            );
        }
        assert_eq!(cluster.replica(taker).is_whole(), writes);
        assert!(!writes || !cluster.is_written(taker));
        let other = cluster.replica(5 - taker);
        assert!(other.is_whole() && other.tail() < cluster.replica(1).tail(), "it waits");
        cluster.slow_disk(taker, false);
        cluster.held.clear();
        cluster.let_go();
        cluster.run(ms(1_000));
        cluster.assert_same(&[1, 2, 3]);
    }
}

/// One was gone for so long that the other has dropped what it had as well.
#[test]
fn two_that_have_nothing_do_not_wait_for_each_other() {
    let mut cluster = both_lag_behind_node_1(None);
    let gone = (2..=3).find(|&node| !cluster.replica(node).is_whole()).expect("one has begun");
    cluster.kill(gone);
    cluster.run(ms(5_000));
    cluster.start(gone);
    assert!((2..=3).all(|node| !cluster.replica(node).is_whole()));
    cluster.held.clear();
    cluster.let_go();
    cluster.resign(1);
    cluster.lead(1);
    cluster.renew(1);
    cluster.run(ms(1_000));
    cluster.assert_same(&[1, 2, 3]);
}

/// It had nothing when it was offered a state, and writes that for longer than it is kept for it.
#[test]
fn who_had_nothing_and_has_written_a_state_late_is_asked_to_make_it_durable() {
    let mut cluster = both_lag_behind_node_1(None);
    let taker = (2..=3).find(|&node| !cluster.replica(node).is_whole()).expect("one has begun");
    cluster.resign(1);
    cluster.lead(1);
    cluster.renew(1);
    cluster.hold_back(move |flying| {
        let says = matches!(flying.message, Message::Appended { .. } | Message::Synced { .. });
        let begins = matches!(flying.message, Message::Offer { .. });
        flying.from == taker && says || flying.to != taker && begins
    });
    cluster.held.clear();
    cluster.run(ms(4_000));
    assert!(cluster.replica(taker).is_whole());
    let written = std::mem::take(&mut cluster.held).into_iter();
    let written =
        written.filter(|flying| matches!(flying.message, Message::Appended { .. })).take(1).collect();
    cluster.hold_back(move |flying| flying.to == taker && matches!(flying.message, Message::Sync { .. }));
    cluster.deliver_all(written);
    assert!(!cluster.held.is_empty());
}

#[test]
fn who_ends_while_it_takes_over_begins_again() {
    for ends_after in 0..8 {
        let mut cluster = node_3_lags(None);
        let seen = std::cell::Cell::new(0);
        cluster.hold_back(move |flying| {
            let counts = matches!(flying.message, Message::Pulled { .. });
            seen.set(seen.get() + u32::from(counts));
            counts && seen.get() > ends_after
        });
        cluster.mend();
        cluster.run(ms(300));
        cluster.kill(3);
        cluster.start(3);
        cluster.held.clear();
        cluster.let_go();
        cluster.run(ms(500));
        cluster.assert_same(&[1, 2, 3]);
    }
}

/// What was known to be committed is not in the journal, but the parts that come are for a state that has it.
#[test]
fn a_journal_says_which_state_parts_were_placed_in() {
    let mut cluster = Cluster::with(3, short_logs(None));
    cluster.serve(1);
    cluster.must_put(1, 1, 1);
    // Node 3 learns that this is committed without writing anything more.
    cluster.run(ms(50));
    cluster.isolate(3);
    (0..8).for_each(|cell| _ = cluster.must_put(1, cell + 2, 10));
    cluster.mend();
    cluster.run(ms(500));
    assert!(cluster.replica(3).is_whole());
    cluster.kill(3);
    cluster.start(3);
    cluster.must_put(1, 20, 20);
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
}

/// Parts that come late are for what was there when they were asked for.
#[test]
fn an_answer_to_a_question_of_a_former_process_places_nothing() {
    let mut cluster = node_3_lags(None);
    cluster.hold_back(|flying| {
        matches!(flying.message, Message::Pulled { page: replication::Page { after: Some(_), .. }, .. })
    });
    cluster.slow_disk(3, true);
    cluster.mend();
    cluster.run(ms(250));
    // The first parts are in memory; its disk has nothing of it.
    let late = std::mem::take(&mut cluster.held);
    assert!(!late.is_empty());
    cluster.hold_back(|flying| matches!(flying.message, Message::Pulled { .. }));
    cluster.kill(3);
    cluster.slow_disk(3, false);
    cluster.start(3);
    cluster.run(ms(500));
    cluster.deliver_all(late);
    cluster.let_go();
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn who_is_mixed_does_not_lead_and_counts_with_its_source() {
    let mut cluster = node_3_lags(None);
    cluster.hold_back(|flying| matches!(flying.message, Message::Pulled { .. }));
    cluster.mend();
    cluster.run(ms(300));
    assert!(!cluster.replica(3).is_whole());
    assert_eq!(cluster.try_lead(3), Err(replication::LeadError::Incomplete));
    // Node 2 is gone; node 1 and what node 3 gave up for it are a majority.
    cluster.kill(2);
    cluster.held.clear();
    cluster.hold_back(|_| false);
    cluster.resign(1);
    cluster.lead(1);
    cluster.run(ms(500));
    assert_eq!(cluster.replica(1).standing(), Standing::Serving);
    assert_eq!(cluster.read(1, 7), Some(17));
}

#[test]
fn who_is_mixed_counts_for_nothing_without_its_source() {
    let mut cluster = node_3_lags(None);
    cluster.hold_back(|flying| matches!(flying.message, Message::Pulled { .. }));
    cluster.mend();
    cluster.run(ms(300));
    cluster.kill(1);
    cluster.lead(2);
    cluster.renew(2);
    cluster.run(ms(5_000));
    assert_eq!(cluster.replica(2).standing(), Standing::Recovering, "node 1 may have what both lack");
    cluster.start(1);
    cluster.run(ms(1_000));
    assert_eq!(cluster.replica(2).standing(), Standing::Serving);
}

/// What it has of the state was synced, and what it promised meanwhile was not.
#[test]
fn a_power_failure_in_a_transfer_takes_no_promise_back() {
    let mut cluster = node_3_lags(None);
    cluster.hold_back(|flying| matches!(flying.message, Message::Pulled { .. }));
    cluster.mend();
    cluster.run(ms(300));
    cluster.checkpoint(3);
    let epoch = cluster.lead(2);
    assert!(!cluster.replica(3).is_whole() && cluster.replica(3).promised() == epoch);
    cluster.power_off(3);
    cluster.start(3);
    assert!(!cluster.replica(3).is_whole());
    assert!(cluster.replica(3).promised() >= epoch, "it may have promised that");
}

#[test]
fn a_checkpoint_is_all_that_has_to_be_kept() {
    let mut cluster = node_3_lags(None);
    cluster.checkpoint(1);
    cluster.checkpoint(2);
    cluster.must_put(1, 30, 30);
    for node in [1, 2] {
        cluster.kill(node);
        cluster.start(node);
    }
    cluster.mend();
    cluster.serve(2);
    cluster.run(ms(500));
    assert_eq!((cluster.read(2, 7), cluster.read(2, 30)), (Some(17), Some(30)));
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn a_primary_waits_for_whoever_takes_over_its_state_however_long_that_takes() {
    let config = Config { parts_max: 1, versions_max: 1, ..short_logs(None) };
    let mut cluster = Cluster::with(3, config);
    cluster.serve(1);
    cluster.isolate(3);
    (0..8).for_each(|cell| _ = cluster.must_put(1, cell, 10 + cell));
    cluster.kill(2);
    cluster.hold_back(|flying| is_transfer(&flying.message));
    cluster.mend();
    cluster.put(1, 1, 99);
    let mut rounds = 0;
    while !cluster.replica(3).is_whole() || rounds == 0 {
        cluster.run(ms(190));
        let held = std::mem::take(&mut cluster.held);
        cluster.deliver_all(held);
        rounds += 1;
        assert!(rounds < 100, "it comes nearer");
    }
    assert!(rounds > 10, "it has taken longer than anybody waits who hears nothing");
    assert!(!cluster.was_told(1, &Told::Event(replication::Event::Isolated)));
    cluster.run(ms(500));
    assert_eq!(cluster.replica(1).committed(), cluster.replica(1).tail());
}

/// A new primary that lacks more than the others' logs have lets the one lead who has it.
#[test]
fn who_lacks_a_state_does_not_lead() {
    let mut cluster = node_3_lags(None);
    cluster.kill(1);
    cluster.mend();
    cluster.lead(3);
    let behind = replication::Event::Behind { holder: base::NodeId(2) };
    assert!(cluster.was_told(3, &Told::Event(behind)));
    cluster.serve_soon(2);
    cluster.run(ms(500));
    cluster.assert_same(&[2, 3]);
}

fn the_requests_that_took_effect_come_with_a_state(bug: Option<Bug>) {
    let mut cluster = Cluster::with(3, short_logs(bug));
    cluster.serve(1);
    cluster.isolate(3);
    let (request, done) = cluster.put(1, 1, 10);
    assert!(done.is_some());
    cluster.must_put(1, 1, 11);
    (2..9).for_each(|cell| _ = cluster.must_put(1, cell, cell));
    cluster.mend();
    cluster.run(ms(500));
    cluster.kill(1);
    cluster.serve(3);
    cluster.propose(3, request, Put(1, 10)).unwrap();
    assert_eq!(cluster.read(3, 1), Some(11), "the retry takes no effect");
}

fn a_promise_outlives_a_transfer(bug: Option<Bug>) {
    let mut cluster = node_3_lags(bug);
    // Node 2 follows node 1 no more and leads with node 3, which takes over its state: one of the first tenure.
    cluster.mend();
    cluster.isolate(1);
    cluster.hold_back(|flying| flying.from == 2 && matches!(&flying.message, Message::Append { entries, .. } if !entries.is_empty() && flying.to == 3));
    cluster.lead(2);
    cluster.renew(1);
    let appends = std::mem::take(&mut cluster.held);
    cluster.hold_back(|_| false);
    // The barrier tells node 3 that it lacks something; what comes after the state is late.
    cluster.hold_back(move |flying| {
        let tells = matches!(flying.message, Message::Append { .. } | Message::Sync { .. });
        flying.from == 2 && flying.to == 3 && tells
    });
    cluster.deliver_all(appends);
    // Node 1 might have dropped what it had, too, and is waited for.
    cluster.run(ms(2_500));
    let appends = std::mem::take(&mut cluster.held);
    cluster.deliver_all(appends);
    assert!(cluster.replica(3).is_whole(), "{:?}", cluster.replica(3).memory());
    assert!(cluster.replica(3).committed().seq >= Seq(8), "it has taken over what node 2 has");
    cluster.renew(1);
    // Node 1 still takes itself for the primary.
    cluster.mend();
    cluster.cut(1, 2);
    cluster.cut(2, 1);
    let (request, _) = cluster.put(1, 50, 50);
    cluster.run(ms(500));
    assert_eq!(cluster.done(request), None, "node 3 has promised to follow node 2");
}

stories! {
    LendsToAll: what_is_durable_is_on_more_than_the_disk_of_who_lends;
    TransferWithoutRequests: the_requests_that_took_effect_come_with_a_state;
    TransferForgetsPromise: a_promise_outlives_a_transfer;
}
