//! One primary and its backups.

use std::cell::Cell;
use std::rc::Rc;

use base::ClientId;
use replication::{Config, Event, Message, ProposeError, Standing, Waiting};

use crate::cluster::{Cluster, Put, Told, ms};

#[test]
fn a_request_is_done_when_a_majority_has_it() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.isolate(3);
    cluster.must_put(1, 1, 10);
    assert_eq!(cluster.read(1, 1), Some(10));
    cluster.isolate(2);
    let (request, done) = cluster.put(1, 1, 11);
    assert_eq!(done, None);
    cluster.mend();
    cluster.run(ms(300));
    assert!(cluster.done(request).is_some(), "what was lost is sent again");
    cluster.run(ms(100));
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn backups_learn_what_is_committed_also_when_nothing_follows() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    let at = cluster.must_put(1, 1, 10);
    cluster.run(ms(30));
    assert!((1..=3).all(|node| cluster.replica(node).committed() == at.at));
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn a_backup_that_was_away_catches_up() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.kill(3);
    for value in 0..200 {
        cluster.must_put(1, 1, value);
        cluster.run(ms(10));
    }
    cluster.start(3);
    cluster.run(ms(400));
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn a_backup_that_is_silent_does_not_get_the_same_again_and_again() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.isolate(3);
    for value in 0..200 {
        cluster.must_put(1, 1, value);
    }
    cluster.run(ms(2_000));
    cluster.mend();
    cluster.hold_back(|flying| flying.to == 3);
    cluster.run(ms(2_000));
    let sent = cluster.held.len();
    assert!((5..=11).contains(&sent), "one message for each retry: {sent}");
    cluster.let_go();
    cluster.run(ms(100));
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn a_question_waits_for_what_may_change_its_answer_and_for_nothing_else() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.must_put(1, 1, 10);
    cluster.isolate(1);
    cluster.put(1, 1, 11);
    assert_eq!(cluster.read(1, 2), None, "another cell");
    let waiting = cluster.ask(1, 1);
    assert_eq!(cluster.answer(waiting), None);
    cluster.mend();
    cluster.run(ms(300));
    assert_eq!(cluster.answer(waiting), Some(Some(11)));
}

#[test]
fn more_than_may_be_under_way_is_refused() {
    let mut cluster = Cluster::with(3, Config { uncommitted_max: 100, ..Config::default() });
    cluster.serve(1);
    cluster.isolate(1);
    let mut taken = 0;
    let refused = loop {
        let request = cluster.request();
        match cluster.propose(1, request, Put(1, 1)) {
            Ok(()) => taken += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((taken, refused), (100, ProposeError::Busy));
    cluster.mend();
    cluster.run(ms(500));
    cluster.must_put(1, 1, 2);
}

#[test]
fn a_request_that_is_sent_twice_is_executed_once() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.isolate(1);
    let (request, _) = cluster.put(1, 1, 10);
    cluster.propose(1, request, Put(1, 10)).unwrap();
    cluster.mend();
    cluster.run(ms(300));
    cluster.propose(1, request, Put(1, 10)).unwrap();
    assert_eq!(cluster.replica(1).machine().executed.1, 1);
    let answers =
        cluster.told.iter().filter(|(_, told)| matches!(told, Told::Done(done, None, _) if *done == request));
    assert_eq!(answers.count(), 2, "each of those who asked while it was under way shares one answer");
}

#[test]
fn a_client_that_is_over_is_refused() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    let (request, _) = cluster.put(1, 1, 10);
    cluster.expire(1, request.client);
    let late = cluster.request();
    assert_eq!(cluster.propose(1, late, Put(1, 11)), Err(ProposeError::Expired));
    assert_eq!((cluster.read(1, 1), cluster.replica(1).outcomes_kept()), (Some(10), 0));
    let mut other = late;
    other.client = ClientId { certificate: 7, program: 2 };
    cluster.propose(1, other, Put(1, 12)).unwrap();
    assert_eq!(cluster.read(1, 1), Some(12));
}

#[test]
fn a_request_of_a_client_that_was_over_before_it_is_not_executed() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.isolate(1);
    let request = cluster.request();
    cluster.expire(1, request.client);
    cluster.propose(1, request, Put(1, 10)).unwrap();
    cluster.mend();
    cluster.run(ms(300));
    assert!(cluster.was_told(1, &Told::Unknown(Waiting::Request(request))));
    assert_eq!(cluster.replica(1).machine().executed.1, 0);
}

#[test]
fn outcomes_are_forgotten_once_the_client_has_them() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    for _ in 0..10 {
        let mut request = cluster.request();
        request.settled = request.number;
        cluster.propose(1, request, Put(1, 1)).unwrap();
    }
    assert_eq!(cluster.replica(1).outcomes_kept(), 1);
    let mut first = cluster.request();
    first.number = 1;
    assert_eq!(cluster.propose(1, first, Put(1, 1)), Err(ProposeError::Settled(first)));
}

#[test]
fn without_a_majority_a_primary_says_so() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.isolate(1);
    cluster.run(ms(2_000));
    assert!(!cluster.was_told(1, &Told::Event(Event::Isolated)), "nothing is to be committed");
    cluster.put(1, 1, 10);
    cluster.run(ms(1_500));
    assert!(cluster.was_told(1, &Told::Event(Event::Isolated)));
}

#[test]
fn one_member_is_a_majority() {
    let mut cluster = Cluster::new(1, None);
    cluster.serve(1);
    let at = cluster.must_put(1, 1, 10);
    let ticket = cluster.sync(1, at);
    assert!(cluster.is_durable(ticket));
}

#[test]
fn who_is_no_primary_takes_nothing() {
    let mut cluster = Cluster::new(3, None);
    let request = cluster.request();
    assert_eq!(cluster.propose(2, request, Put(1, 1)), Err(ProposeError::NotPrimary));
    cluster.isolate(1);
    cluster.lead(1);
    assert_eq!(cluster.replica(1).standing(), Standing::Recovering);
    assert_eq!(cluster.propose(1, request, Put(1, 1)), Err(ProposeError::Recovering));
}

#[test]
fn what_was_made_durable_with_something_later_is_known_to_be() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    let first = cluster.must_put(1, 1, 10);
    let second = cluster.must_put(1, 1, 11);
    let later = cluster.sync(1, second);
    assert!(cluster.is_durable(later));
    let ticket = cluster.sync(1, first);
    assert!(cluster.is_durable(ticket));
}

#[test]
fn whoever_is_there_is_asked_for_a_sync_together_with_what_is_to_be_durable() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.isolate(3);
    cluster.must_put(1, 1, 1);
    // It does not answer, and is sent nothing more.
    cluster.run(ms(1_000));
    let request = cluster.put_synced(1, 1, 2);
    let mark = cluster.done(request).unwrap();
    cluster.isolate(1);
    let ticket = cluster.sync(1, mark);
    assert!(cluster.is_durable(ticket), "the other one was asked together with the change");
}

/// Who was asked for a sync of something that it did not have yet has synced nothing.
#[test]
fn who_has_it_late_is_asked_again() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    let at = cluster.must_put(1, 1, 1);
    let ticket = cluster.sync(1, at);
    assert!(cluster.is_durable(ticket));
    cluster.isolate(1);
    let request = cluster.put_synced(1, 1, 2);
    assert_eq!(cluster.done(request), None);
    cluster.mend();
    while cluster.done(request).is_none() {
        cluster.run(ms(1));
    }
    let mark = cluster.done(request).unwrap();
    let ticket = cluster.sync(1, mark);
    assert!(cluster.is_durable(ticket), "nobody was asked to sync what was written late");
}

/// Questions for syncs stay under way. How many there were.
fn hold_back_syncs(cluster: &mut Cluster) -> Rc<Cell<u32>> {
    let asked = Rc::new(Cell::new(0));
    let count = Rc::clone(&asked);
    cluster.hold_back(move |flying| {
        let is_sync = matches!(flying.message, Message::Sync { .. });
        count.set(count.get() + u32::from(is_sync));
        is_sync
    });
    asked
}

/// Each of many who wait would be asked for again on its own, and a disk that is slow already gets as many questions.
#[test]
fn however_many_wait_for_a_disk_it_is_asked_for_them_together() {
    const WAITING: u8 = 20;
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    let asked = hold_back_syncs(&mut cluster);
    let mut tickets = Vec::new();
    for value in 0..WAITING {
        let at = cluster.must_put(1, 1, value);
        tickets.push(cluster.sync(1, at));
        cluster.run(ms(5));
    }
    asked.set(0);
    cluster.run(ms(900));
    assert!((2..=10).contains(&asked.get()), "two are asked {} times in less than a second", asked.get());
    cluster.let_go();
    assert!(tickets.into_iter().all(|ticket| cluster.is_durable(ticket)));
}

/// A frame may bring many questions that wait for the same.
#[test]
fn who_was_asked_for_a_sync_is_not_asked_for_it_again_at_once() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    let first = cluster.must_put(1, 1, 1);
    let last = cluster.must_put(1, 1, 2);
    let asked = hold_back_syncs(&mut cluster);
    let tickets: Vec<_> = [last, last, first].into_iter().map(|at| cluster.sync(1, at)).collect();
    assert_eq!(asked.get(), 2, "one question for each backup");
    cluster.let_go();
    assert!(tickets.into_iter().all(|ticket| cluster.is_durable(ticket)));
}

#[test]
fn what_is_proposed_together_is_sent_together() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    let sent = Rc::new(Cell::new(0));
    let count = Rc::clone(&sent);
    cluster.hold_back(move |flying| {
        if let Message::Append { entries, .. } = &flying.message {
            count.set(count.get() + 1);
            assert_eq!(entries.len(), 3);
        }
        false
    });
    let requests = [1, 2, 3].map(|value| (cluster.request(), value));
    cluster.call(1, |replica, now| {
        requests.map(|(request, value)| replica.propose(now, request, Put(1, value)).unwrap())
    });
    cluster.settle();
    assert_eq!(sent.get(), 2, "one message for each backup");
    assert!(requests.iter().all(|&(request, _)| cluster.done(request).is_some()));
    assert_eq!(cluster.read(1, 1), Some(3));
}

/// One has a disk that syncs nothing, and the other one has not got everything yet.
#[test]
fn who_is_behind_is_asked_for_what_it_has() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    let at = cluster.must_put(1, 1, 1);
    cluster.hold_back(|flying| matches!(flying.message, Message::Sync { .. }));
    let first = cluster.sync(1, at);
    cluster.hold_back(|flying| match flying.message {
        Message::Synced { .. } => flying.from == 2,
        Message::Append { .. } => flying.to == 3,
        _ => false,
    });
    let at = cluster.must_put(1, 1, 2);
    let second = cluster.sync(1, at);
    cluster.run(ms(300));
    assert!(cluster.is_durable(first), "it was asked for more than it has");
    assert!(!cluster.is_durable(second));
    cluster.let_go();
    cluster.run(ms(300));
    assert!(cluster.is_durable(second));
}

/// Others have gone on since, and the entry is not in the log any more.
#[test]
fn what_is_to_be_durable_is_asked_for_however_long_ago_it_was_written() {
    let mut cluster = Cluster::with(3, Config { kept_max: 1, ..Config::default() });
    cluster.serve(1);
    let at = cluster.must_put(1, 1, 1);
    cluster.hold_back(|flying| matches!(flying.message, Message::Sync { .. }));
    let ticket = cluster.sync(1, at);
    cluster.hold_back(|_| false);
    (2..10).for_each(|value| _ = cluster.must_put(1, 1, value));
    assert!(!cluster.is_durable(ticket));
    cluster.run(ms(300));
    assert!(cluster.is_durable(ticket));
}

#[test]
fn where_each_change_is_made_durable_nobody_has_to_wait_for_that() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    for value in 0..4 {
        let at = cluster.must_put(1, 1, value);
        let ticket = cluster.sync(1, at);
        assert!(cluster.is_durable(ticket));
    }
    let at = cluster.must_put(1, 1, 10);
    cluster.isolate(1);
    let ticket = cluster.sync(1, at);
    assert!(cluster.is_durable(ticket), "all were asked together with the change");
    cluster.mend();
    for value in 20..24 {
        cluster.must_put(1, 1, value);
    }
    let at = cluster.must_put(1, 1, 30);
    cluster.isolate(1);
    let ticket = cluster.sync(1, at);
    assert!(!cluster.is_durable(ticket), "nobody makes durable what nobody wants to be");
    cluster.mend();
    cluster.run(ms(2_000));
    assert!(cluster.is_durable(ticket), "they are asked again");
}
