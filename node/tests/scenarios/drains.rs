//! Daemons that an operator drains: they lead nothing, and go on voting and replicating.

use node::file::{FileBody, FileReplyBody};
use node::{DrainError, DrainStatus, PeerMessage, ReplyBody, Unavailable};
use replication::Standing;

use crate::cluster::{Cluster, Flying, ms};
use crate::files::{Daemons, FILE, Writer, created, data, read, write};
use crate::grants::held;

fn primary(cluster: &mut Daemons, members: &[u32], text: &str) -> Option<u32> {
    members.iter().copied().find(|&node| read(cluster, node) == data(text))
}

#[test]
fn a_drained_daemon_leads_nothing_and_keeps_copies() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    writer.must(&mut cluster, members[0], write("before"));
    assert_eq!(cluster.order_drain(members[0], false), Ok(()));
    cluster.run(ms(20));
    assert_eq!(cluster.shard(members[0]).drain_status(), DrainStatus::Drained);
    let drained = Some(FileReplyBody::Unavailable(Unavailable::Drained));
    assert_eq!(read(&mut cluster, members[0]), drained);
    let next = primary(&mut cluster, &members, "before").unwrap();
    // Of the other two one is gone, so the drained one is needed for a majority.
    let gone = members.iter().copied().find(|node| ![members[0], next].contains(node)).unwrap();
    cluster.kill(gone);
    writer.must(&mut cluster, next, write("during"));
    cluster.run(ms(100));
    let kept = |node| cluster.shard(node).file(FILE).unwrap().tail();
    assert_eq!(kept(members[0]), kept(next));
    cluster.undrain(members[0]);
    assert_eq!(cluster.shard(members[0]).drain_status(), DrainStatus::No);
    cluster.kill_with_notice(next);
    cluster.start(gone);
    cluster.run(ms(3_000));
    assert_eq!(read(&mut cluster, members[0]), data("during"), "it leads again");
}

#[test]
fn a_daemon_stays_drained_when_it_starts_anew() {
    let (mut cluster, members) = created(None);
    assert_eq!(cluster.order_drain(members[0], false), Ok(()));
    cluster.run(ms(20));
    cluster.kill(members[0]);
    cluster.start(members[0]);
    cluster.run(ms(3_000));
    assert_eq!(cluster.shard(members[0]).drain_status(), DrainStatus::Drained);
    assert_eq!(read(&mut cluster, members[0]), Some(FileReplyBody::Unavailable(Unavailable::Drained)));
    cluster.undrain(members[0]);
    cluster.kill(members[0]);
    cluster.start(members[0]);
    cluster.run(ms(3_000));
    assert_eq!(cluster.shard(members[0]).drain_status(), DrainStatus::No);
}

fn leads(cluster: &Daemons, node: u32) -> bool {
    cluster.shard(node).file(FILE).is_some_and(|file| file.standing() == Standing::Serving)
}

/// Nobody is to take over thousands of files for nothing, while somebody waits for one of them.
#[test]
fn what_is_in_use_is_handed_over_and_the_rest_is_for_whoever_is_asked_next() {
    for idles_for in [ms(500), ms(1_500)] {
        let (mut cluster, members) = created(None);
        let mut writer = Writer { number: 0 };
        writer.must(&mut cluster, members[0], write("kept"));
        cluster.run(idles_for);
        assert_eq!(cluster.order_drain(members[0], false), Ok(()));
        cluster.run(ms(20));
        assert_eq!(cluster.shard(members[0]).drain_status(), DrainStatus::Drained);
        let is_led = members.iter().any(|&node| leads(&cluster, node));
        assert_eq!(is_led, idles_for < ms(1_000));
        assert!(primary(&mut cluster, &members, "kept").is_some(), "nothing has to run out");
    }
}

/// Clients sync what was closed some time after that.
#[test]
fn who_only_syncs_a_file_does_not_use_it() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    let mark = writer.must(&mut cluster, members[0], write("kept"));
    cluster.run(ms(9_000));
    let id = cluster.ask_file(1, members[0], FILE, FileBody::Sync { oldest: mark, newest: mark });
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Durable));
    assert!(leads(&cluster, members[0]));
    cluster.run(ms(6_000));
    assert!(!leads(&cluster, members[0]));
}

/// Nothing may be drained on which a majority depends, once it is stopped: the others may be gone, drained, or just back.
#[test]
fn a_daemon_that_the_others_cannot_do_without_is_drained_by_force_only() {
    let (mut cluster, members) = created(None);
    let lacks = |told: Result<(), DrainError>, node: u32| match told {
        Err(DrainError::NoMajority { missing, .. }) => assert_eq!(missing, Some(base::NodeId(node))),
        told => panic!("{told:?}"),
    };
    assert_eq!(cluster.order_drain(members[1], false), Ok(()));
    lacks(cluster.order_drain(members[0], false), members[1]);
    cluster.undrain(members[1]);
    cluster.kill(members[2]);
    lacks(cluster.order_drain(members[0], false), members[2]);
    cluster.start(members[2]);
    cluster.run(ms(1_000));
    lacks(cluster.order_drain(members[0], false), members[2]);
    assert_eq!(cluster.shard(members[0]).drain_status(), DrainStatus::No);
    assert_eq!(cluster.order_drain(members[0], true), Ok(()));
    cluster.run(ms(100));
    assert_eq!(cluster.shard(members[0]).drain_status(), DrainStatus::Drained);
    assert_eq!(read(&mut cluster, members[1]), data(""), "the only one that takes leases has it");
}

/// The first member by number started a moment ago, so it takes no lease: what was handed to it nobody would have before that ran out.
#[test]
fn nothing_is_handed_to_a_daemon_that_started_a_moment_ago() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    writer.must(&mut cluster, members[0], write("kept"));
    let after = |node: &u32| (*node < members[0], *node);
    let first = members[1..].iter().copied().min_by_key(after).unwrap();
    cluster.kill_with_notice(first);
    cluster.start(first);
    cluster.run(ms(500));
    cluster.drain(members[0]);
    cluster.run(ms(20));
    let other = members[1..].iter().copied().find(|&node| node != first).unwrap();
    assert_eq!(read(&mut cluster, other), data("kept"));
}

#[test]
fn a_lock_goes_to_nobody_that_started_a_moment_ago() {
    let mut cluster = held();
    let token = cluster.clients[&1].token();
    cluster.kill_with_notice(2);
    cluster.start(2);
    cluster.run(ms(500));
    cluster.drain(1);
    cluster.run(ms(20));
    let id = cluster.reattach(1, 3, token);
    cluster.run(ms(20));
    assert_eq!(cluster.answer(1, id), Some(ReplyBody::Kept));
}

/// The member that lags is not the one to go on: it would have to be told everything first.
#[test]
fn a_file_goes_to_the_member_that_has_most_of_it() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    let after = |node: &u32| (*node < members[0], *node);
    let behind = members[1..].iter().copied().min_by_key(after).unwrap();
    cluster.hold_back(move |flying| matches!(flying, Flying::File { to, .. } if *to == behind));
    writer.must(&mut cluster, members[0], write("kept"));
    cluster.drain(members[0]);
    cluster.let_go();
    cluster.run(ms(20));
    let other = members[1..].iter().copied().find(|&node| node != behind).unwrap();
    assert_eq!(read(&mut cluster, other), data("kept"));
}

/// A peer that never said that it takes leases gets none: without any other that does, they are free for all.
#[test]
fn what_nobody_says_to_take_is_free_for_whoever_asks_first() {
    let mut cluster: Daemons = Cluster::stopped(3, 3, None);
    let takes = |flying: &Flying| match flying {
        Flying::Peer { messages, .. } => messages.contains(&PeerMessage::Takes(true)),
        _ => false,
    };
    cluster.hold_back(takes);
    cluster.start_all();
    cluster.client(1);
    let members: Vec<u32> = cluster.map.members(FILE).iter().map(|node| node.0).collect();
    let create = FileBody::Create;
    let id = cluster.ask_file(1, members[0], FILE, create);
    cluster.run(ms(50));
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Exists));
    cluster.drain(members[0]);
    cluster.run(ms(20));
    assert_eq!(read(&mut cluster, members[2]), data(""));
}
