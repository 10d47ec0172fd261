//! Malformed or impossible messages are counted and change nothing.

use base::{Process, Span, WallTime};
use lease::{Ballot, Batch, Body, Ended, Expiry, Lease, LeaseId, Message, Reject, Stamp};

use crate::cluster::{CELL, Cluster, Flying, ms, state_of, view};

/// What node 0 would send at the first moment of the story.
fn honest(cluster: &Cluster) -> (Process, Message) {
    let from = cluster.nodes[0].me();
    let interval = Stamp::interval_at(cluster.now, ms(1_900));
    let ballot = Ballot { stamp: Stamp::new(interval, 5), process: from };
    let expiry = Expiry::At(cluster.now + ms(2_000));
    let lease = Lease { id: LeaseId(7), expiry, previous: LeaseId::NONE, ended: Ended::Unknown, given: None };
    (from, Message { cell: CELL, view: cluster.views[1].id, ballot, body: Body::Write(lease) })
}

fn write(message: &mut Message) -> &mut Lease {
    let Body::Write(lease) = &mut message.body else { panic!("the honest message is a write") };
    lease
}

/// Node 1 gets `change`d messages and must refuse them for `why` without any other effect.
fn refuses(why: Reject, change: impl Fn(&Cluster, &mut Batch)) {
    let mut cluster = Cluster::new(3);
    let (from, message) = honest(&cluster);
    let mut flying = cluster.forge(from, 1, message);
    change(&cluster, &mut flying.batch);
    let before = state_of(&cluster.nodes[1]);
    cluster.deliver(&flying);
    assert_eq!(cluster.nodes[1].counters().rejected(why), 1, "{why:?}");
    assert_eq!(state_of(&cluster.nodes[1]), before, "{why:?} changed something");
    assert!(cluster.flying.iter().all(Flying::is_nack), "{why:?} was answered with a vote");
}

#[test]
fn the_honest_message_is_accepted() {
    let mut cluster = Cluster::new(3);
    let (from, message) = honest(&cluster);
    let flying = cluster.forge(from, 1, message);
    cluster.deliver(&flying);
    assert!(matches!(cluster.flying[0].body(), Body::WriteAck));
}

#[test]
fn impossible_messages_change_nothing() {
    let message = |batch: &mut Batch, change: &dyn Fn(&mut Message)| change(&mut batch.messages[0]);
    refuses(Reject::SettingsDiffer, |_, batch| batch.settings ^= 1);
    refuses(Reject::TooOld, |cluster, batch| batch.sent = cluster.now - ms(2_101));
    refuses(Reject::ViewBehind, |_, batch| message(batch, &|m| m.view = view(9, &[0, 1, 2]).id));
    refuses(Reject::FutureBallot, |cluster, batch| {
        let far = Stamp::interval_at(cluster.now + ms(2_000), ms(1_900)) + 1;
        message(batch, &|m| m.ballot.stamp = Stamp::new(far, 0));
    });
    refuses(Reject::FutureBallot, |_, batch| message(batch, &|m| m.ballot.stamp = Stamp::MAX));
    refuses(Reject::LeaseTooLong, |cluster, batch| {
        let late = cluster.now + ms(2_100) + Span::from_micros(1);
        message(batch, &|m| write(m).expiry = Expiry::At(late));
    });
    refuses(Reject::LeaseTooLong, |_, batch| {
        message(batch, &|m| write(m).expiry = Expiry::At(WallTime::MAX));
    });
    refuses(Reject::Malformed, |_, batch| message(batch, &|m| write(m).expiry = Expiry::After(ms(1))));
    refuses(Reject::Malformed, |_, batch| message(batch, &|m| write(m).id = LeaseId::NONE));
    refuses(Reject::ForeignBallot, |_, batch| message(batch, &|m| m.ballot.process = Process::new(2, 1)));
    refuses(Reject::SenderNotMember, |_, batch| {
        batch.sender = Process::new(77, 1);
        message(batch, &|m| m.ballot.process = Process::new(77, 1));
    });
    refuses(Reject::Stale, |_, batch| message(batch, &|m| m.body = Body::WriteAck));
    refuses(Reject::Stale, |_, batch| message(batch, &|m| m.body = Body::Nack { highest: Ballot::ZERO }));
}

#[test]
fn a_cell_of_another_group_is_refused() {
    let mut cluster = Cluster::with_view(4, &view(1, &[0, 2, 3]));
    let (from, message) = honest(&cluster);
    let before = state_of(&cluster.nodes[1]);
    let flying = cluster.forge(from, 1, message);
    cluster.deliver(&flying);
    let now = cluster.clock(1);
    let nothing = std::collections::BTreeMap::new();
    cluster.node(1).handle_batch(now, &flying.batch, &nothing);
    let counters = cluster.nodes[1].counters();
    assert_eq!((counters.rejected(Reject::NotMember), counters.rejected(Reject::UnknownCell)), (1, 1));
    assert_eq!(state_of(&cluster.nodes[1]), before);
}

#[test]
fn a_ballot_never_carries_two_values() {
    let mut cluster = Cluster::new(3);
    let (from, first) = honest(&cluster);
    let mut second = first.clone();
    write(&mut second).id = LeaseId(8);
    let first = cluster.forge(from, 1, first);
    let second = cluster.forge(from, 1, second);
    cluster.deliver(&first);
    let before = state_of(&cluster.nodes[1]);
    cluster.deliver(&second);
    assert_eq!(cluster.nodes[1].counters().rejected(Reject::TwoValues), 1);
    assert_eq!(state_of(&cluster.nodes[1]), before);
    cluster.flying.clear();
    cluster.deliver(&first);
    assert!(matches!(cluster.flying[0].body(), Body::WriteAck), "the same value again is the same vote");
}

#[test]
fn a_full_node_refuses_new_cells_and_keeps_the_old() {
    let mut cluster = Cluster::new(3);
    let config = lease::Config { registers_max: 1, ..(*cluster.config).clone() };
    let me = cluster.nodes[1].me();
    *cluster.node(1) = lease::Flease::new(config.into(), me, lease::Start::Fresh, cluster.now, 1).unwrap();
    let (from, message) = honest(&cluster);
    let mut other = message.clone();
    other.cell = base::ObjectId::new(5, 5);
    for message in [message.clone(), other, message] {
        let flying = cluster.forge(from, 1, message);
        cluster.deliver(&flying);
    }
    assert_eq!(cluster.nodes[1].counters().rejected(Reject::Full), 1);
    assert_eq!(cluster.flying.len(), 2);
}
