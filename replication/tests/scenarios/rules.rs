//! For each rule a story that goes well with it and must go wrong without it.

use std::cell::Cell;

use base::{NodeId, Seq};
use replication::{Bug, Config, Message, Position, Request};

use crate::cluster::{Cluster, Flying, Put, Told, ms};

/// Node 1 orders a request; what it sends to node 2 is late, and what it sends to others is lost.
fn write_late(cluster: &mut Cluster) -> (Request, Vec<Flying>) {
    cluster.hold_back(|flying| flying.from == 1 && matches!(flying.message, Message::Append { .. }));
    let (request, _) = cluster.put(1, 1, 10);
    let mut late = std::mem::take(&mut cluster.held);
    late.retain(|flying| flying.to == 2);
    (request, late)
}

/// An old primary does not know that there is a new one, and its backup follows the new one.
fn a_deposed_primary_commits_nothing(bug: Option<Bug>) {
    let mut cluster = Cluster::new(3, bug);
    cluster.serve(1);
    let (old, late) = write_late(&mut cluster);
    // Node 1 hears nothing of its successor.
    cluster.isolate(1);
    cluster.serve(3);
    cluster.mend();
    cluster.held = late;
    cluster.let_go();
    assert_eq!(cluster.done(old), None);
    cluster.must_put(3, 1, 30);
    assert_eq!(cluster.read(3, 1), Some(30));
}

fn a_promise_outlives_its_process(bug: Option<Bug>) {
    let mut cluster = Cluster::new(3, bug);
    cluster.serve(1);
    let (old, late) = write_late(&mut cluster);
    cluster.isolate(1);
    cluster.hold_back(|flying| flying.from == 3 && matches!(flying.message, Message::Append { .. }));
    cluster.lead(3);
    cluster.held.clear();
    cluster.kill(2);
    cluster.start(2);
    cluster.mend();
    cluster.held = late;
    cluster.let_go();
    assert_eq!(cluster.done(old), None, "node 2 has promised to follow node 3");
}

fn an_entry_is_taken_only_onto_its_predecessor(bug: Option<Bug>) {
    let mut cluster = Cluster::new(3, bug);
    cluster.serve(1);
    cluster.isolate(1);
    cluster.put(1, 1, 10);
    cluster.put(1, 1, 11);
    cluster.serve(2);
    cluster.must_put(2, 2, 20);
    cluster.kill(2);
    cluster.mend();
    cluster.start(2);
    cluster.run(ms(10));
    cluster.serve(2);
    cluster.must_put(2, 3, 30);
    cluster.run(ms(300));
    cluster.assert_same(&[1, 2, 3]);
}

fn what_is_acknowledged_is_in_the_journal(bug: Option<Bug>) {
    let mut cluster = Cluster::new(3, bug);
    cluster.serve(1);
    cluster.isolate(3);
    cluster.slow_disk(2, true);
    let (request, _) = cluster.put(1, 1, 10);
    if cluster.done(request).is_some() {
        cluster.kill(1);
        cluster.kill(2);
        cluster.start(2);
        cluster.mend();
        cluster.serve(3);
        assert_eq!(cluster.read(3, 1), Some(10), "it was said to be done");
    }
    cluster.slow_disk(2, false);
    cluster.settle();
    assert!(cluster.done(request).is_some());
}

/// Entries of an earlier tenure that a majority has are not committed by being there: a tenure in between that has never
/// seen them may still win.
fn an_old_entry_is_committed_only_together_with_a_new_one(bug: Option<Bug>) {
    let (mut cluster, committed) = old_entry_at_a_majority(bug);
    // Node 5 has the later tail.
    cluster.start(5);
    cluster.serve(5);
    assert_eq!(cluster.read(5, 1), None);
    assert_eq!(committed.seq, Seq(1));
}

/// Equal tails of a mere majority may still be dropped: nobody has seen them in a tenure that won.
fn what_a_mere_majority_has_is_not_read_yet(bug: Option<Bug>) {
    let (mut cluster, _) = old_entry_at_a_majority(bug);
    cluster.start(2);
    cluster.hold_back(|flying| flying.from == 2 && matches!(flying.message, Message::Append { .. }));
    cluster.lead(2);
    let seen = cluster.try_ask(2, 1).ok().and_then(|ticket| cluster.answer(ticket)).flatten();
    cluster.kill(2);
    cluster.held.clear();
    cluster.let_go();
    cluster.start(5);
    cluster.serve(5);
    assert_eq!(seen, cluster.read(5, 1), "what was read stays");
}

/// Nodes 2, 3 and 4 of five have an entry of the first tenure, and node 5 the barrier of the second. Nodes 1, 2 and 5
/// are gone. Returns what node 1 took to be committed.
fn old_entry_at_a_majority(bug: Option<Bug>) -> (Cluster, Position) {
    let config = Config { bug, batch_max: 1, ..Config::default() };
    let mut cluster = Cluster::with(5, config);
    // Node 1 writes on itself and node 2, which is not seen again.
    cluster.serve(1);
    [3, 4, 5].into_iter().for_each(|node| cluster.isolate(node));
    cluster.put(1, 1, 10);
    cluster.kill(1);
    cluster.kill(2);
    cluster.mend();
    // Node 5 begins a tenure that nobody else sees an entry of.
    cluster.hold_back(|flying| flying.from == 5 && matches!(flying.message, Message::Append { .. }));
    cluster.lead(5);
    cluster.kill(5);
    cluster.held.clear();
    // Node 1 brings its old entry to nodes 3 and 4, and its new barrier to nobody.
    cluster.start(1);
    let asked = [false; 6].map(Cell::new);
    cluster.hold_back(move |flying| match &flying.message {
        Message::Append { entries, .. } if flying.from == 1 => {
            // The first tells that node that something is missing.
            entries.iter().any(|entry| entry.at.epoch.number == 3) && asked[flying.to as usize].replace(true)
        }
        _ => false,
    });
    cluster.lead(1);
    assert!(
        (3..=4).all(|node| cluster.replica(node).tail().seq == Seq(2)),
        "the old entry is at three of five"
    );
    let committed = cluster.replica(1).committed();
    cluster.kill(1);
    cluster.held.clear();
    cluster.let_go();
    (cluster, committed)
}

fn without_the_lease_nothing_is_told(bug: Option<Bug>) {
    let mut cluster = Cluster::new(3, bug);
    cluster.serve(1);
    cluster.must_put(1, 1, 10);
    cluster.now = cluster.now + ms(2_000);
    let ticket = cluster.ask(1, 1);
    assert_eq!(cluster.answer(ticket), None);
    let (request, done) = cluster.put(1, 1, 11);
    assert_eq!(done, None);
    assert!(cluster.was_told(1, &Told::Unknown(replication::Waiting::Request(request))));
}

fn a_question_sees_nothing_that_may_be_dropped(bug: Option<Bug>) {
    let mut cluster = Cluster::new(3, bug);
    cluster.serve(1);
    cluster.must_put(1, 1, 10);
    cluster.isolate(1);
    cluster.put(1, 1, 11);
    let ticket = cluster.ask(1, 1);
    let seen = cluster.answer(ticket);
    cluster.serve(2);
    assert_eq!(cluster.read(2, 1), Some(10));
    assert_eq!(seen, None, "what was read has never been");
}

fn nothing_is_served_before_the_barrier(bug: Option<Bug>) {
    let mut cluster = Cluster::new(3, bug);
    cluster.serve(1);
    cluster.isolate(3);
    cluster.must_put(1, 1, 10);
    cluster.kill(1);
    cluster.mend();
    cluster.hold_back(|flying| flying.from == 2 && matches!(flying.message, Message::Append { .. }));
    cluster.lead(2);
    // Node 2 has the entry, and does not know that it is committed.
    if let Ok(ticket) = cluster.try_ask(2, 1) {
        assert_eq!(cluster.answer(ticket), Some(Some(10)));
    }
    cluster.let_go();
    assert_eq!(cluster.read(2, 1), Some(10));
}

fn the_tail_of_the_latest_epoch_counts(bug: Option<Bug>) {
    let mut cluster = Cluster::new(3, bug);
    cluster.serve(1);
    cluster.isolate(1);
    for value in 0..9 {
        cluster.put(1, 1, value);
    }
    cluster.serve(2);
    cluster.must_put(2, 1, 20);
    cluster.kill(2);
    cluster.mend();
    cluster.serve(3);
    assert_eq!(cluster.read(3, 1), Some(20));
}

fn a_request_takes_effect_once(bug: Option<Bug>) {
    let mut cluster = Cluster::new(3, bug);
    cluster.serve(1);
    let (request, done) = cluster.put(1, 1, 10);
    assert!(done.is_some());
    cluster.must_put(1, 1, 11);
    cluster.kill(1);
    cluster.serve(2);
    cluster.propose(2, request, Put(1, 10)).unwrap();
    assert_eq!(cluster.read(2, 1), Some(11));
}

fn what_is_durable_survives_the_power_of_everybody(bug: Option<Bug>) {
    let mut cluster = Cluster::new(3, bug);
    cluster.serve(1);
    let at = cluster.must_put(1, 1, 10);
    cluster.hold_back(|flying| matches!(flying.message, Message::Sync { .. }));
    let first = cluster.sync(1, at);
    assert!(!cluster.is_durable(first), "one disk is no majority");
    cluster.let_go();
    assert!(cluster.is_durable(first));
    (1..=3).for_each(|node| cluster.power_off(node));
    (1..=3).for_each(|node| cluster.start(node));
    cluster.isolate(1);
    cluster.lead(2);
    cluster.renew(2);
    cluster.run(ms(2_500));
    assert_eq!(cluster.read(2, 1), Some(10));
    assert!(
        cluster.replica(2).committed() > Position::START && cluster.replica(2).promised().node == NodeId(2)
    );
}

stories! {
    NoEpochCheck: a_deposed_primary_commits_nothing;
    PromiseNotKept: a_promise_outlives_its_process;
    NoPredecessorCheck: an_entry_is_taken_only_onto_its_predecessor;
    AckBeforeWrite: what_is_acknowledged_is_in_the_journal;
    OldEntriesCountedCommitted: an_old_entry_is_committed_only_together_with_a_new_one;
    LeaseNotChecked: without_the_lease_nothing_is_told;
    ReadsUncommitted: a_question_sees_nothing_that_may_be_dropped;
    ServedBeforeBarrier: nothing_is_served_before_the_barrier;
    TailBySequence: the_tail_of_the_latest_epoch_counts;
    NoDeduplication: a_request_takes_effect_once;
    EqualTailsOfAMajority: what_a_mere_majority_has_is_not_read_yet;
    SyncByPrimaryAlone: what_is_durable_survives_the_power_of_everybody;
}
