//! Changes that are durable when they are acknowledged.

use std::sync::Arc;

use node::file::{FileBody, FileReplyBody, Level};
use node::{Bug, RequestId, Unavailable};
use replication::Message;

use crate::cluster::{Flying, ms};
use crate::files::{Daemons, FILE, created, created_with, data, read, write};

fn change(cluster: &mut Daemons, node: u32, (number, text): (u64, &str)) -> RequestId {
    let change = write(text);
    let body = FileBody::Change { number, settled: number, level: Level::Durable, under: None, change };
    cluster.ask_file(1, node, FILE, body)
}

/// As what the change of this request is told to be.
fn level(cluster: &Daemons, id: RequestId) -> Option<Level> {
    match cluster.file_reply(1, id) {
        Some(FileReplyBody::Changed { outcome: Ok(_), level, .. }) => Some(level),
        _ => None,
    }
}

fn hold_back_syncs(cluster: &mut Daemons) {
    cluster.hold_back(|flying| match flying {
        Flying::File { message, .. } => matches!(message.message, Message::Sync { .. }),
        _ => false,
    });
}

fn what_is_to_be_durable_survives_the_power(bug: Option<Bug>) {
    let (mut cluster, members) = created(bug);
    hold_back_syncs(&mut cluster);
    let id = change(&mut cluster, members[0], (1, "kept"));
    cluster.run(ms(50));
    assert_eq!(cluster.file_reply(1, id), None, "it is not durable");
    cluster.let_go();
    assert_eq!(level(&cluster, id), Some(Level::Durable));
    members.iter().for_each(|&node| cluster.power_off(node));
    members.iter().for_each(|&node| cluster.start(node));
    cluster.run(ms(4_000));
    assert_eq!(read(&mut cluster, members[1]), data("kept"));
    // Whoever did not hear of it asks again.
    let id = change(&mut cluster, members[1], (1, "kept"));
    assert_eq!(level(&cluster, id), Some(Level::Durable));
}

#[test]
fn a_change_that_is_told_to_be_durable_survives_the_power() {
    what_is_to_be_durable_survives_the_power(None);
}

#[test]
#[should_panic = "it is not durable"]
fn without_the_rule_a_change_is_told_to_be_durable_too_early() {
    what_is_to_be_durable_survives_the_power(Some(Bug::DurableEarly));
}

#[test]
fn whoever_asks_again_before_a_change_is_durable_waits_with_the_first() {
    let (mut cluster, members) = created(None);
    hold_back_syncs(&mut cluster);
    let asked = [(); 3].map(|()| {
        cluster.run(ms(20));
        change(&mut cluster, members[0], (1, "once"))
    });
    let tail = cluster.shard(members[0]).file(FILE).unwrap().tail();
    assert!(asked.iter().all(|&id| cluster.file_reply(1, id).is_none()));
    cluster.let_go();
    assert!(asked.iter().all(|&id| level(&cluster, id) == Some(Level::Durable)));
    assert_eq!(cluster.shard(members[0]).file(FILE).unwrap().tail(), tail);
}

/// The next one to lead makes it durable, if it is asked for that.
#[test]
fn a_primary_whose_tenure_ends_does_not_say_that_a_change_is_durable() {
    let (mut cluster, members) = created(None);
    hold_back_syncs(&mut cluster);
    let id = change(&mut cluster, members[0], (1, "kept"));
    cluster.isolate(members[0]);
    cluster.run(ms(8_000));
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Unavailable(Unavailable::NoMajority)));
    cluster.held.clear();
    cluster.let_go();
    let id = change(&mut cluster, members[1], (1, "kept"));
    cluster.run(ms(50));
    assert_eq!(level(&cluster, id), Some(Level::Durable));
    assert_eq!(read(&mut cluster, members[1]), data("kept"));
}

#[test]
fn a_primary_that_can_wait_for_no_more_disks_says_that_a_change_is_written() {
    let (mut cluster, members) =
        created_with(None, |config| Arc::make_mut(&mut config.replication).waiting_max = 1);
    hold_back_syncs(&mut cluster);
    let first = change(&mut cluster, members[0], (1, "one"));
    let second = change(&mut cluster, members[0], (2, "two"));
    assert_eq!([first, second].map(|id| level(&cluster, id)), [None, Some(Level::Written)]);
    cluster.let_go();
    assert_eq!(level(&cluster, first), Some(Level::Durable));
}

#[test]
fn a_majority_of_disks_is_enough() {
    let (mut cluster, members) = created(None);
    cluster.kill(members[2]);
    cluster.run(ms(500));
    let id = change(&mut cluster, members[0], (1, "kept"));
    assert_eq!(level(&cluster, id), Some(Level::Durable));
}
