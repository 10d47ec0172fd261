//! What a new primary finds, and what becomes of the old one.

use base::{Epoch, NodeId};
use replication::{Checkpoint, Event, JournalError, LeadError, Mark, Record, Replica, Standing, Waiting};

use crate::cluster::{Cells, Cluster, Put, Told, ms};

#[test]
fn what_was_done_survives_its_primary() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.isolate(3);
    let (request, done) = cluster.put(1, 1, 10);
    assert!(done.is_some());
    cluster.kill(1);
    cluster.mend();
    cluster.serve(3);
    assert_eq!(cluster.read(3, 1), Some(10));
    cluster.propose(3, request, Put(1, 10)).unwrap();
    assert_eq!(cluster.replica(3).machine().executed.1, 1, "a retry elsewhere is answered, not executed");
    cluster.start(1);
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn what_nobody_was_told_of_may_be_dropped() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.must_put(1, 1, 10);
    cluster.isolate(1);
    let (lost, _) = cluster.put(1, 1, 11);
    cluster.serve(2);
    assert_eq!(cluster.read(2, 1), Some(10));
    cluster.must_put(2, 1, 12);
    cluster.mend();
    cluster.run(ms(300));
    assert!(cluster.was_told(1, &Told::Unknown(Waiting::Request(lost))), "its outcome is unknown here");
    cluster.assert_same(&[1, 2, 3]);
    assert_eq!(cluster.replica(1).machine().executed.1, 2);
}

#[test]
fn a_log_longer_than_a_message_is_fetched_in_parts() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.isolate(3);
    for value in 0..=255 {
        for cell in 0..3 {
            cluster.must_put(1, cell, value);
        }
    }
    cluster.kill(1);
    cluster.mend();
    cluster.serve(3);
    assert_eq!(cluster.replica(3).machine().executed.1, 768);
}

#[test]
fn a_recovery_goes_on_without_a_holder_that_died() {
    let mut cluster = Cluster::new(5, None);
    cluster.serve(1);
    cluster.isolate(3);
    cluster.must_put(1, 1, 10);
    cluster.kill(1);
    cluster.mend();
    cluster
        .hold_back(|flying| flying.from == 3 && matches!(flying.message, replication::Message::Fetch { .. }));
    cluster.lead(3);
    assert_eq!((cluster.replica(3).standing(), cluster.held.len()), (Standing::Recovering, 1));
    let holder = cluster.held[0].to;
    cluster.kill(holder);
    cluster.held.clear();
    cluster.let_go();
    cluster.run(ms(300));
    assert_eq!(cluster.read(3, 1), Some(10));
}

#[test]
fn a_deposed_primary_hears_of_it() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    let epoch = cluster.lead(2);
    assert!(cluster.was_told(1, &Told::Event(Event::Outbid { promised: epoch })));
    assert_eq!(cluster.replica(1).standing(), Standing::Backup);
}

/// The others' promises are here before its own is written, and say nothing of what only it has.
#[test]
fn what_only_a_new_primary_has_is_not_committed() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.must_put(1, 1, 10);
    cluster.run(ms(50));
    cluster.isolate(1);
    cluster.put(1, 1, 11);
    cluster.mend();
    cluster.slow_disk(1, true);
    cluster.hold_back(|flying| matches!(flying.message, replication::Message::Append { .. }));
    cluster.lead(1);
    let seen = cluster.try_ask(1, 1).ok().and_then(|ticket| cluster.answer(ticket)).flatten();
    assert_eq!(seen, None, "nobody else has it");
    assert_eq!(cluster.replica(1).committed(), cluster.replica(2).committed());
    cluster.kill(1);
    cluster.held.clear();
    cluster.let_go();
    cluster.serve(2);
    assert_eq!(cluster.read(2, 1), Some(10));
}

#[test]
fn an_epoch_is_used_once() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    let epoch = cluster.replica(1).promised();
    let until = cluster.now + ms(2_000);
    let tenure = replication::Tenure { epoch, lease: 1, until, creates: true, begun_after: 0 };
    let mut replica = cluster.replica(1).clone();
    assert_eq!(replica.lead(cluster.now, tenure), Err(LeadError::Outbid { asked: epoch, promised: epoch }));
    let foreign = replication::Tenure { epoch: Epoch { number: 9, node: NodeId(2) }, ..tenure };
    assert_eq!(replica.lead(cluster.now, foreign), Err(LeadError::NotOurs(NodeId(1))));
    let epoch = Epoch { number: 9, node: NodeId(1) };
    let early = replication::Tenure { epoch, begun_after: 9, ..tenure };
    assert!(replica.lead(cluster.now, early).is_err(), "all tenures are later than that");
}

#[test]
fn who_resigns_tells_everybody_who_waits() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.isolate(1);
    let (request, _) = cluster.put(1, 1, 10);
    let question = cluster.ask(1, 1);
    let mark = Mark { at: cluster.replica(1).tail(), generation: Epoch::default() };
    let sync = cluster.sync(1, mark);
    cluster.resign(1);
    for waiting in [Waiting::Request(request), Waiting::Ticket(question), Waiting::Ticket(sync)] {
        assert!(cluster.was_told(1, &Told::Unknown(waiting)), "{waiting:?}");
    }
}

#[test]
fn a_journal_that_no_replica_wrote_is_refused() {
    let members = base::Members::new([NodeId(1)]).unwrap();
    let config = std::sync::Arc::default();
    let epoch = |number| Epoch { number, node: NodeId(1) };
    let journal = [Record::Promised(epoch(2)), Record::Promised(epoch(1))];
    let first = || Checkpoint::first(members.clone(), Cells::default());
    let opened = Replica::new(NodeId(1), std::sync::Arc::clone(&config), first(), journal, None);
    assert_eq!(opened.err(), Some(JournalError { record: 1 }));
    let gap = Record::Appended { after: base::Seq(3), entries: Vec::new(), committed: base::Seq(0) };
    let opened = Replica::new(NodeId(1), config, first(), [gap], None);
    assert_eq!(opened.err(), Some(JournalError { record: 0 }));
}

/// Whoever waits for answers in vain lets another one try.
#[test]
fn a_tenure_that_hears_nothing_new_ends() {
    let mut cluster = Cluster::new(5, None);
    cluster.serve(1);
    cluster.must_put(1, 1, 10);
    [3, 4, 5].into_iter().for_each(|node| cluster.isolate(node));
    cluster.lead(2);
    cluster.renew(2);
    cluster.run(ms(5_900));
    assert_eq!(cluster.replica(2).standing(), Standing::Recovering);
    cluster.run(ms(300));
    assert_eq!(cluster.replica(2).standing(), Standing::Backup);
    assert!(cluster.was_told(2, &Told::Event(Event::Fruitless { answered: vec![NodeId(1)] })));
    // Who hears something new goes on.
    cluster.mend();
    cluster.serve(2);
}

/// A lease is not left while a backup that answers lacks something.
#[test]
fn a_primary_knows_whether_its_backups_have_everything() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.renew(1);
    cluster.must_put(1, 1, 10);
    assert!(!cluster.replica(1).backups_are_settled(), "nobody knows that it is committed");
    cluster.run(ms(50));
    assert!(cluster.replica(1).backups_are_settled());
    cluster.isolate(3);
    cluster.must_put(1, 1, 11);
    cluster.run(ms(50));
    assert!(!cluster.replica(1).backups_are_settled(), "it may still answer");
    cluster.run(ms(300));
    assert!(cluster.replica(1).backups_are_settled(), "it does not");
    cluster.isolate(2);
    cluster.put(1, 1, 12);
    cluster.run(ms(1_000));
    assert!(!cluster.replica(1).backups_are_settled(), "something is not committed");
}
