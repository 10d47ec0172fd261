//! Files: from a client's request to the reply, and what becomes of them when daemons fail.

use base::ObjectId;
use bytes::Bytes;
use node::file::{Answer, Change, Done, FILE_BYTES_MAX, FileBody, FileError, FileReplyBody, Level, Query};
use node::{Bug, ReplyBody, RequestBody, ShardConfig, Unavailable};
use replication::{Mark, Message};

use crate::cluster::{Cluster, Flying, ms};

pub(crate) const FILE: ObjectId = ObjectId::new(1, 2);

pub(crate) type Daemons = Cluster<lease::FleaseRules>;

/// A client that changes the file, and what it was told.
pub(crate) struct Writer {
    pub(crate) number: u64,
}

pub(crate) fn write(data: &str) -> Change {
    Change::Write { offset: 0, data: Bytes::copy_from_slice(data.as_bytes()).into() }
}

/// Three daemons, and the file with its primary, the first.
pub(crate) fn created(bug: Option<Bug>) -> (Daemons, Vec<u32>) {
    created_with(bug, |_| {})
}

pub(crate) fn created_with(bug: Option<Bug>, configure: fn(&mut ShardConfig)) -> (Daemons, Vec<u32>) {
    let mut cluster = Cluster::stopped(3, 3, bug);
    cluster.configure = configure;
    cluster.start_all();
    cluster.client(1);
    let members: Vec<u32> = cluster.map.members(FILE).into_iter().map(|node| node.0).collect();
    let id = cluster.ask_file(1, members[0], FILE, FileBody::Create);
    cluster.run(ms(50));
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Exists));
    (cluster, members)
}

impl Writer {
    pub(crate) fn change(
        &mut self,
        cluster: &mut Daemons,
        node: u32,
        change: Change,
    ) -> Option<FileReplyBody> {
        self.number += 1;
        let body = FileBody::Change {
            number: self.number,
            settled: self.number,
            level: Level::Written,
            under: None,
            change,
        };
        let id = cluster.ask_file(1, node, FILE, body);
        cluster.file_reply(1, id)
    }

    pub(crate) fn must(&mut self, cluster: &mut Daemons, node: u32, change: Change) -> Mark {
        match self.change(cluster, node, change) {
            Some(FileReplyBody::Changed { outcome: Ok(_), mark, .. }) => mark,
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn read(cluster: &mut Daemons, node: u32) -> Option<FileReplyBody> {
    let query = Query::Read { offset: 0, length: 100, under: None };
    let id = cluster.ask_file(1, node, FILE, FileBody::Ask(query));
    cluster.run(ms(20));
    cluster.file_reply(1, id)
}

pub(crate) fn data(text: &str) -> Option<FileReplyBody> {
    Some(FileReplyBody::Answer(Ok(Answer::Data(Bytes::copy_from_slice(text.as_bytes()).into()))))
}

#[test]
fn what_is_written_is_read() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    writer.must(&mut cluster, members[0], write("hello"));
    let appended = Change::Append { data: Bytes::from_static(b" world").into() };
    let told = writer.change(&mut cluster, members[0], appended);
    let Some(FileReplyBody::Changed { outcome: Ok(Done::Written { offset: 5, stat }), .. }) = told else {
        panic!("{told:?}")
    };
    assert_eq!(stat.size, 11);
    assert_eq!(read(&mut cluster, members[0]), data("hello world"));
    assert_eq!(read(&mut cluster, members[1]), Some(FileReplyBody::Elsewhere(base::NodeId(members[0]))));
}

#[test]
fn a_file_that_nobody_created_is_not_there() {
    let mut cluster: Daemons = Cluster::new(3);
    cluster.client(1);
    assert_eq!(read(&mut cluster, 1), Some(FileReplyBody::NoSuchFile));
    let id = cluster.ask_file(1, 1, FILE, FileBody::Create);
    cluster.run(ms(50));
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Exists), "it was given up");
    assert_eq!(read(&mut cluster, 1), data(""));
}

#[test]
fn what_cannot_be_changes_nothing() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    writer.must(&mut cluster, members[0], write("here"));
    let committed = cluster.shard(members[0]).file(FILE).unwrap().committed();
    let past = Change::Write { offset: FILE_BYTES_MAX, data: Bytes::from_static(b"x").into() };
    assert!(matches!(
        writer.change(&mut cluster, members[0], past),
        Some(FileReplyBody::Refused(FileError::PastLimit { .. }))
    ));
    let overflow = Change::Punch { offset: u64::MAX, length: u64::MAX };
    assert!(matches!(
        writer.change(&mut cluster, members[0], overflow),
        Some(FileReplyBody::Refused(FileError::Overflow { .. }))
    ));
    assert_eq!(cluster.shard(members[0]).file(FILE).unwrap().committed(), committed);
    let lock = node::lock_cell("x");
    let id = cluster.ask_file(1, members[0], lock, FileBody::Create);
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Unavailable(Unavailable::WrongCell)));
}

#[test]
fn a_file_survives_its_primary() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    writer.must(&mut cluster, members[0], write("hello"));
    cluster.kill_with_notice(members[0]);
    assert_eq!(read(&mut cluster, members[1]), data("hello"));
    writer.must(&mut cluster, members[1], write("HELLO"));
    // It comes back and is told what it missed.
    cluster.start(members[0]);
    cluster.run(ms(3_000));
    assert_eq!(
        cluster.shard(members[0]).file(FILE).unwrap().machine(),
        cluster.shard(members[1]).file(FILE).unwrap().machine()
    );
}

#[test]
fn a_change_that_is_sent_again_takes_effect_once() {
    let (mut cluster, members) = created(None);
    let append = || FileBody::Change {
        number: 1,
        settled: 1,
        level: Level::Written,
        under: None,
        change: Change::Append { data: Bytes::from_static(b"once").into() },
    };
    let first = cluster.ask_file(1, members[0], FILE, append());
    let again = cluster.ask_file(1, members[0], FILE, append());
    cluster.kill_with_notice(members[0]);
    let elsewhere = cluster.ask_file(1, members[2], FILE, append());
    cluster.run(ms(100));
    for id in [first, again, elsewhere] {
        let told = cluster.file_reply(1, id);
        assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
    }
    assert_eq!(read(&mut cluster, members[2]), data("once"));
}

#[test]
fn what_is_synced_survives_the_power() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    let mark = writer.must(&mut cluster, members[0], write("kept"));
    let id = cluster.ask_file(1, members[0], FILE, FileBody::Sync { oldest: mark, newest: mark });
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Durable));
    let lost = writer.must(&mut cluster, members[0], write("LOST"));
    members.iter().for_each(|&node| cluster.power_off(node));
    members.iter().for_each(|&node| cluster.start(node));
    // Nobody knows what was promised to whom, so leases wait.
    cluster.run(ms(4_000));
    assert_eq!(read(&mut cluster, members[1]), data("kept"));
    let id = cluster.ask_file(1, members[1], FILE, FileBody::Sync { oldest: lost, newest: lost });
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Lost));
}

#[test]
fn a_member_that_forgot_is_counted_on_again_although_nobody_asks_for_the_file() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    let mark = writer.must(&mut cluster, members[0], write("kept"));
    cluster.ask_file(1, members[0], FILE, FileBody::Sync { oldest: mark, newest: mark });
    cluster.run(ms(16_000));
    let forgetful = members[2];
    cluster.power_off(forgetful);
    cluster.start(forgetful);
    assert_eq!(cluster.shard(forgetful).file(FILE).unwrap().memory(), replication::Memory::Forgot);
    cluster.run(ms(8_000));
    assert_eq!(cluster.shard(forgetful).file(FILE).unwrap().memory(), replication::Memory::Clean);
    // The other one that remembers is gone.
    cluster.kill(members[0]);
    cluster.run(ms(4_000));
    let said = [members[1], forgetful].map(|node| read(&mut cluster, node));
    assert!(said.contains(&data("kept")), "{said:?}");
}

/// Nobody changes the file any more, and it is in use, so that its primary stays.
#[test]
fn who_comes_back_is_told_what_is_committed_though_nothing_changes() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    writer.must(&mut cluster, members[0], write("kept"));
    cluster.run(ms(1_000));
    cluster.kill(members[1]);
    cluster.start(members[1]);
    for _ in 0..10 {
        assert_eq!(read(&mut cluster, members[0]), data("kept"));
        cluster.run(ms(200));
    }
    let replica = cluster.shard(members[1]).file(FILE).unwrap();
    assert_eq!(replica.committed(), replica.tail());
}

#[test]
fn a_damaged_file_is_got_back_although_nobody_asks_for_it() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    writer.must(&mut cluster, members[0], write("kept"));
    cluster.run(ms(12_000));
    let damaged = members[1];
    cluster.kill(damaged);
    cluster.damage(damaged, FILE);
    cluster.start(damaged);
    assert_eq!(cluster.shard(damaged).file(FILE).unwrap().memory(), replication::Memory::Torn);
    cluster.run(ms(10_000));
    assert_eq!(cluster.shard(damaged).file(FILE).unwrap().memory(), replication::Memory::Clean);
    // It is counted on again.
    cluster.kill(members[0]);
    cluster.run(ms(4_000));
    let said = [damaged, members[2]].map(|node| read(&mut cluster, node));
    assert!(said.contains(&data("kept")), "{said:?}");
}

#[test]
fn once_its_store_has_failed_a_daemon_says_nothing_more() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    cluster.call(members[0], |shard, _| shard.handle_store_failed());
    assert!(cluster.daemons[&members[0]].store_failed);
    assert_eq!(writer.change(&mut cluster, members[0], write("lost")), None);
    cluster.run(ms(3_000));
    assert_eq!(read(&mut cluster, members[0]), None);
    // Its lease has run out, and it is no vote for anybody: the others go on.
    cluster.kill_with_notice(members[0]);
    cluster.run(ms(3_000));
    let said = [members[1], members[2]].map(|node| read(&mut cluster, node));
    assert!(said.contains(&data("")), "{said:?}");
}

#[test]
fn what_was_written_survives_the_end_of_all_processes() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    writer.must(&mut cluster, members[0], write("kept"));
    members.iter().for_each(|&node| _ = cluster.kill(node));
    members.iter().for_each(|&node| cluster.start(node));
    cluster.run(ms(4_000));
    assert_eq!(read(&mut cluster, members[1]), data("kept"));
}

#[test]
fn a_daemon_that_stops_hands_its_files_over() {
    let (mut cluster, members) = created(None);
    let mut writer = Writer { number: 0 };
    writer.must(&mut cluster, members[0], write("hello"));
    cluster.drain(members[0]);
    cluster.run(ms(50));
    assert!(cluster.shard(members[0]).is_drained());
    let successor = members.iter().copied().find(|&node| read(&mut cluster, node) == data("hello"));
    assert!(successor.is_some_and(|node| node != members[0]));
}

#[test]
fn a_file_that_nobody_uses_is_let_go() {
    let (mut cluster, members) = created(None);
    cluster.run(ms(11_000));
    assert_eq!(read(&mut cluster, members[2]), data(""), "another member may have it");
}

fn nothing_is_answered_while_the_lease_is_given_up(bug: Option<Bug>) {
    let (mut cluster, members) = created(bug);
    let mut writer = Writer { number: 0 };
    writer.must(&mut cluster, members[0], write("old"));
    // It does not hear that the others know that it gives the lease up, and nothing of its successor.
    let leaving = members[0];
    let votes = std::cell::Cell::new(0);
    cluster.hold_back(move |flying| match flying {
        Flying::Lease { to, .. } if *to == leaving => votes.replace(votes.get() + 1) >= 2,
        Flying::File { to, .. } => *to == leaving,
        _ => false,
    });
    cluster.drain(leaving);
    cluster.run(ms(50));
    let others = members.iter().skip(1);
    let told: Vec<_> = others.map(|&node| writer.change(&mut cluster, node, write("new"))).collect();
    assert!(told.iter().any(|told| matches!(told, Some(FileReplyBody::Changed { .. }))), "{told:?}");
    assert_eq!(read(&mut cluster, leaving), Some(FileReplyBody::Unavailable(Unavailable::Stopping)));
}

/// A process ends before it is written which epoch it has used, and the next one must not use it again.
fn no_epoch_is_used_by_two_processes(bug: Option<Bug>) {
    let (mut cluster, members) = created(bug);
    let [first, second, third] = members[..] else { panic!("{members:?}") };
    let mut writer = Writer { number: 0 };
    cluster.kill(first);
    cluster.start(first);
    cluster.run(ms(5_000));
    // Its disk takes nothing, and what it orders reaches the second only.
    cluster.hold_back(move |flying| match flying {
        Flying::Disk { node, .. } => node.node.0 == first,
        Flying::File { from, to, message } => {
            let orders = match &message.message {
                Message::Append { entries, .. } => {
                    entries.iter().any(|entry| matches!(entry.body, replication::Body::Op { .. }))
                }
                _ => false,
            };
            from.node.0 == first && *to == third && orders
        }
        _ => false,
    });
    writer.change(&mut cluster, first, write("never acknowledged"));
    writer.change(&mut cluster, first, write("and never seen"));
    assert!(cluster.shard(second).file(FILE).unwrap().tail().seq.0 > 2, "it has the barrier");
    cluster.kill(first);
    cluster.held.clear();
    cluster.let_go();
    cluster.start(first);
    cluster.isolate(second);
    cluster.run(ms(5_000));
    writer.must(&mut cluster, first, write("this"));
    cluster.mend();
    cluster.run(ms(5_000));
    let states = members.iter().map(|&node| cluster.shard(node).file(FILE).unwrap().machine());
    let states: Vec<_> = states.collect();
    assert!(states.iter().all(|state| *state == states[0]), "{states:?}");
}

#[test]
fn an_epoch_is_for_one_process() {
    no_epoch_is_used_by_two_processes(None);
}

#[test]
#[should_panic]
fn without_the_rule_two_processes_use_an_epoch() {
    no_epoch_is_used_by_two_processes(Some(Bug::EpochReused));
}

#[test]
fn nothing_is_answered_while_releasing() {
    nothing_is_answered_while_the_lease_is_given_up(None);
}

#[test]
#[should_panic]
fn without_the_rule_the_old_is_answered_while_releasing() {
    nothing_is_answered_while_the_lease_is_given_up(Some(Bug::AnswersWhileReleasing));
}

#[test]
fn who_creates_a_file_while_others_look_for_it_has_it_created() {
    let mut cluster: Daemons = Cluster::new(3);
    cluster.client(1);
    cluster.hold_back(|flying| matches!(flying, Flying::File { .. }));
    let looks = cluster.ask_file(1, 1, FILE, FileBody::Ask(Query::Stat));
    cluster.run(ms(50));
    let creates = cluster.ask_file(1, 1, FILE, FileBody::Create);
    cluster.let_go();
    cluster.run(ms(50));
    assert_eq!(cluster.file_reply(1, looks), Some(FileReplyBody::NoSuchFile));
    assert_eq!(cluster.file_reply(1, creates), Some(FileReplyBody::Exists));
}

#[test]
fn a_change_has_not_any_number_of_askers() {
    let (mut cluster, members) = created(None);
    members.iter().skip(1).for_each(|&node| cluster.cut(members[0], node));
    let append = || FileBody::Change {
        number: 1,
        settled: 1,
        level: Level::Written,
        under: None,
        change: Change::Append { data: Bytes::from_static(b"again").into() },
    };
    let asked: Vec<_> = (0..20).map(|_| cluster.ask_file(1, members[0], FILE, append())).collect();
    let busy = asked.iter().filter(|&&id| {
        cluster.file_reply(1, id) == Some(FileReplyBody::Unavailable(Unavailable::Overloaded))
    });
    assert_eq!(busy.count(), 4);
    cluster.mend();
    cluster.run(ms(500));
    assert_eq!(read(&mut cluster, members[0]), data("again"));
    assert!(asked.iter().all(|&id| cluster.file_reply(1, id).is_some()));
}

/// Whoever gives such a lease up would let another daemon write while this one answers.
#[test]
fn the_lease_of_a_file_is_not_for_clients() {
    let (mut cluster, members) = created(None);
    let told = cluster.ask_for(1, members[0], RequestBody::Lease { cell: FILE });
    assert_eq!(told, Some(ReplyBody::Unavailable(Unavailable::WrongCell)));
}
