//! Content that lies on a disk.

use base::ObjectId;
use bytes::Bytes;
use node::file::{Answer, CHUNK_BYTES, Change, FileBody, FileReplyBody, Level, Query};
use node::{RequestId, ShardConfig, ShardEvent, Unavailable};
use replication::Machine;

use crate::cluster::{Cluster, Flying, ms};

const FILE: ObjectId = ObjectId::new(1, 2);

type Daemons = Cluster<lease::FleaseRules>;

/// A file of two chunks, all of it on the disk of its primary, the first member.
fn put_apart() -> (Daemons, [u32; 3]) {
    put_apart_with(|_| {})
}

fn put_apart_with(configure: fn(&mut ShardConfig)) -> (Daemons, [u32; 3]) {
    let mut cluster = Cluster::stopped(3, 3, None);
    cluster.configure = configure;
    cluster.start_all();
    cluster.client(1);
    let members: Vec<u32> = cluster.map.members(FILE).into_iter().map(|node| node.0).collect();
    let members: [u32; 3] = members.try_into().unwrap();
    let id = cluster.ask_file(1, members[0], FILE, FileBody::Create);
    cluster.run(ms(50));
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Exists));
    write(&mut cluster, members[0], 1, CHUNK_BYTES - 3, b"abcdef");
    assert_eq!(cluster.put_apart(members[0], FILE), 2);
    (cluster, members)
}

fn write(cluster: &mut Daemons, node: u32, number: u64, offset: u64, data: &'static [u8]) {
    let change = Change::Write { offset, data: Bytes::from_static(data).into() };
    let id = cluster.ask_file(
        1,
        node,
        FILE,
        FileBody::Change { number, settled: number, level: Level::Written, under: None, change },
    );
    cluster.run(ms(20));
    let told = cluster.file_reply(1, id);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
}

fn ask(cluster: &mut Daemons, node: u32) -> RequestId {
    let query = Query::Read { offset: CHUNK_BYTES - 4, length: 100, under: None };
    cluster.ask_file(1, node, FILE, FileBody::Ask(query))
}

fn read(cluster: &mut Daemons, node: u32) -> Option<FileReplyBody> {
    let id = ask(cluster, node);
    cluster.run(ms(20));
    cluster.file_reply(1, id)
}

fn data(text: &'static str) -> Option<FileReplyBody> {
    Some(FileReplyBody::Answer(Ok(Answer::Data(Bytes::from_static(text.as_bytes()).into()))))
}

#[test]
fn what_is_on_disk_is_read_with_what_was_written_since() {
    let (mut cluster, [first, ..]) = put_apart();
    assert_eq!(read(&mut cluster, first), data("\0abcdef"));
    write(&mut cluster, first, 2, CHUNK_BYTES - 1, b"XY");
    assert_eq!(read(&mut cluster, first), data("\0abXYef"));
    assert_eq!(cluster.put_apart(first, FILE), 2, "both chunks were changed");
    assert_eq!(cluster.put_apart(first, FILE), 0);
    assert_eq!(read(&mut cluster, first), data("\0abXYef"));
}

/// A chunk is written to between a checkpoint and the moment at which it is durable.
#[test]
fn what_was_changed_meanwhile_stays_in_memory() {
    let (mut cluster, [first, ..]) = put_apart();
    write(&mut cluster, first, 2, CHUNK_BYTES, b"X");
    let mut stale = None;
    cluster.call(first, |shard, _| stale = Some(shard.take_checkpoint(FILE)));
    write(&mut cluster, first, 3, CHUNK_BYTES, b"Y");
    let chunks = stale.unwrap().chunks.into_iter();
    let kept = chunks.filter_map(|(number, chunk)| chunk.map(|(at, chunk)| (number, at, chunk))).collect();
    cluster.call(first, |shard, _| shard.handle_checkpoint(FILE, kept));
    assert_eq!(read(&mut cluster, first), data("\0abcYef"));
    assert_eq!(cluster.put_apart(first, FILE), 1, "and it is changed still");
}

#[test]
fn a_checkpoint_that_failed_is_taken_again() {
    let (mut cluster, [first, ..]) = put_apart();
    write(&mut cluster, first, 2, 0, b"X");
    cluster.call(first, |shard, _| {
        let taken = shard.take_checkpoint(FILE);
        shard.handle_no_checkpoint(FILE, taken.touched());
    });
    assert_eq!(cluster.put_apart(first, FILE), 1);
}

/// An answer is true while the lease lasts, however long its content takes to come.
#[test]
fn an_answer_whose_content_comes_after_the_lease_is_none() {
    let (mut cluster, [first, ..]) = put_apart();
    cluster.hold_back(|flying| matches!(flying, Flying::Fetch { .. }));
    let id = ask(&mut cluster, first);
    cluster.run(ms(20));
    assert_eq!(cluster.file_reply(1, id), None);
    let others: Vec<u32> = cluster.ids().into_iter().filter(|&node| node != first).collect();
    others.into_iter().for_each(|node| cluster.cut(first, node));
    cluster.run(ms(8_000));
    cluster.let_go();
    cluster.run(ms(20));
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Unavailable(Unavailable::NoMajority)));
}

/// A lease that is given up is over before its time, and with it all answers.
#[test]
fn an_answer_whose_content_comes_after_the_lease_was_given_up_is_none() {
    let (mut cluster, [first, ..]) = put_apart();
    cluster.hold_back(|flying| matches!(flying, Flying::Fetch { .. }));
    let id = ask(&mut cluster, first);
    cluster.run(ms(20));
    assert_eq!(cluster.file_reply(1, id), None);
    cluster.call(first, |shard, now| shard.drain(now));
    cluster.run(ms(20));
    cluster.let_go();
    cluster.run(ms(20));
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Unavailable(Unavailable::NoMajority)));
}

/// And its clock goes back before the content comes.
#[test]
fn an_answer_that_a_clock_that_went_back_would_make_true_again_is_none() {
    let (mut cluster, [first, ..]) = put_apart();
    cluster.hold_back(|flying| matches!(flying, Flying::Fetch { .. }));
    let id = ask(&mut cluster, first);
    cluster.run(ms(20));
    cluster.call(first, |shard, now| shard.drain(now));
    cluster.daemons.get_mut(&first).unwrap().offset_ms -= 1_000;
    cluster.let_go();
    cluster.run(ms(20));
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Unavailable(Unavailable::NoMajority)));
}

/// It is not returned. Another member leads, and the first one has it again soon.
#[test]
fn what_cannot_be_read_is_no_answer() {
    let (mut cluster, [first, second, third]) = put_apart();
    cluster.daemons.get_mut(&first).unwrap().rotten.insert(0);
    assert_eq!(read(&mut cluster, first), Some(FileReplyBody::Unavailable(Unavailable::NoMajority)));
    let is_told = |event: &ShardEvent| matches!(event, ShardEvent::FileUnreadable { object: FILE, .. });
    assert!(cluster.events(first).iter().any(is_told));
    let is_damaged = |event: &ShardEvent| *event == ShardEvent::FileDamaged { object: FILE, parts: 1 };
    assert!(cluster.events(first).iter().any(is_damaged));
    cluster.run(ms(100));
    let is_mended = |event: &ShardEvent| *event == ShardEvent::FileMended { object: FILE };
    assert!(cluster.events(first).iter().any(is_mended));
    let told: Vec<_> = [first, second, third].map(|node| read(&mut cluster, node)).into();
    assert!(told.contains(&data("\0abcdef")), "{told:?}");
    // It is counted on again.
    [second, third].into_iter().for_each(|node| _ = cluster.kill(node));
    cluster.start(third);
    cluster.run(ms(8_000));
    let told: Vec<_> = [first, third].map(|node| read(&mut cluster, node)).into();
    assert!(told.contains(&data("\0abcdef")), "{told:?}");
}

/// A member that was away for so long that it takes the state over.
#[test]
fn a_member_that_lags_is_given_what_is_on_disk() {
    let (mut cluster, [first, _, third]) = put_apart_with(|config| config.logs_bytes_max = 0);
    cluster.kill(third);
    write(&mut cluster, first, 2, CHUNK_BYTES - 3, b"ABC");
    cluster.put_apart(first, FILE);
    cluster.hold_back(|flying| matches!(flying, Flying::Fetch { .. }));
    cluster.start(third);
    cluster.run(ms(500));
    assert!(cluster.held.iter().any(|flying| matches!(flying, Flying::Fetch { .. })), "a state is given");
    cluster.let_go();
    cluster.run(ms(2_000));
    let theirs = cluster.shard(third).file(FILE).unwrap().machine();
    let answer = theirs.answer(&Query::Read { offset: CHUNK_BYTES - 4, length: 100, under: None });
    assert_eq!(Some(FileReplyBody::Answer(answer)), data("\0ABCdef"));
}
