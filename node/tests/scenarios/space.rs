//! Disks without space: clients are told at once, and nothing else waits for it.

use std::sync::Arc;

use bytes::Bytes;
use node::file::{Change, FileBody, FileError, FileReplyBody, Level};
use node::{Bug, DiskSpace, RequestId, ShardConfig, ShardEvent};
use replication::{Message, Standing};

use crate::cluster::{Flying, ms};
use crate::files::{Daemons, FILE, created, created_with, data, read};

/// Three daemons, and the file with its primary, the first, and something in it.
fn written() -> (Daemons, [u32; 3]) {
    planted(None)
}

fn planted(bug: Option<Bug>) -> (Daemons, [u32; 3]) {
    let (mut cluster, members) = created(bug);
    assert!(is_done(&append(&mut cluster, members[0], 1)));
    (cluster, members.try_into().unwrap())
}

fn ask(cluster: &mut Daemons, node: u32, number: u64, change: Change) -> RequestId {
    let body = FileBody::Change { number, settled: number, level: Level::Written, under: None, change };
    cluster.ask_file(1, node, FILE, body)
}

fn change(cluster: &mut Daemons, node: u32, number: u64, change: Change) -> Option<FileReplyBody> {
    let id = ask(cluster, node, number, change);
    cluster.run(ms(20));
    cluster.file_reply(1, id)
}

fn append(cluster: &mut Daemons, node: u32, number: u64) -> Option<FileReplyBody> {
    change(cluster, node, number, an_x())
}

fn an_x() -> Change {
    Change::Append { data: Bytes::from_static(b"x").into() }
}

fn is_done(told: &Option<FileReplyBody>) -> bool {
    matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. }))
}

fn found_no_space(told: &Option<FileReplyBody>) -> bool {
    matches!(told, Some(FileReplyBody::Changed { outcome: Err(FileError::NoSpace), .. }))
}

fn set_full(cluster: &mut Daemons, node: u32, is_full: bool) {
    set_space(cluster, node, if is_full { DiskSpace::Little } else { DiskSpace::Enough });
}

fn set_space(cluster: &mut Daemons, node: u32, space: DiskSpace) {
    cluster.call(node, |shard, _| shard.handle_space(space));
    cluster.run(ms(5));
}

#[test]
fn a_primary_without_space_says_so_and_does_all_else() {
    let (mut cluster, [first, ..]) = written();
    set_full(&mut cluster, first, true);
    assert!(cluster.events(first).contains(&ShardEvent::DiskFull(true)));
    assert!(found_no_space(&append(&mut cluster, first, 2)));
    assert_eq!(read(&mut cluster, first), data("x"));
    assert!(is_done(&change(&mut cluster, first, 3, Change::Truncate { size: 0 })));
    set_full(&mut cluster, first, false);
    assert!(is_done(&append(&mut cluster, first, 4)));
    assert_eq!(read(&mut cluster, first), data("x"), "what was refused never comes");
}

/// The answer is lost, and another primary is asked, which has space.
#[test]
fn whoever_asks_again_is_told_the_same() {
    let (mut cluster, [first, second, third]) = written();
    set_full(&mut cluster, first, true);
    assert!(found_no_space(&append(&mut cluster, first, 2)));
    cluster.kill_with_notice(first);
    let mut told = Vec::new();
    for _ in 0..100 {
        told = [second, third].map(|node| append(&mut cluster, node, 2)).to_vec();
        if told.iter().any(|told| matches!(told, Some(FileReplyBody::Changed { .. }))) {
            break;
        }
    }
    assert!(told.iter().any(found_no_space), "{told:?}");
}

#[test]
fn one_backup_without_space_holds_nobody_up_and_two_do() {
    let (mut cluster, [first, second, third]) = written();
    set_full(&mut cluster, second, true);
    assert!(is_done(&append(&mut cluster, first, 2)));
    set_full(&mut cluster, third, true);
    assert!(found_no_space(&append(&mut cluster, first, 3)));
    cluster.cut(first, second);
    cluster.run(ms(100));
    cluster.mend();
    cluster.run(ms(500));
    assert!(found_no_space(&append(&mut cluster, first, 4)), "it is said again over a new connection");
    set_full(&mut cluster, second, false);
    assert!(is_done(&append(&mut cluster, first, 5)));
}

fn tails(cluster: &Daemons, nodes: [u32; 2]) -> [u64; 2] {
    nodes.map(|node| cluster.shard(node).file(FILE).unwrap().tail().seq.0)
}

/// What it has kept back is for its journal and its checkpoints: without these nothing that is removed there is ever free.
fn a_backup_that_has_spent_its_space_takes_no_more_data_until_it_has_some(bug: Option<Bug>) {
    let (mut cluster, [first, second, _]) = planted(bug);
    cluster.run(ms(100));
    let [before, there] = tails(&cluster, [first, second]);
    assert_eq!(before, there);
    set_space(&mut cluster, second, DiskSpace::Spent);
    assert!(is_done(&change(&mut cluster, first, 2, Change::Truncate { size: 0 })));
    assert!(is_done(&append(&mut cluster, first, 3)));
    cluster.run(ms(1_000));
    assert_eq!(tails(&cluster, [first, second]), [before + 2, before + 1], "what takes no space is taken");
    assert_eq!(read(&mut cluster, first), data("x"));
    set_space(&mut cluster, second, DiskSpace::Little);
    cluster.run(ms(1_000));
    assert_eq!(tails(&cluster, [first, second]), [before + 2; 2]);
}

/// Its log, or a state that it took over, would bring what there is no space for.
#[test]
fn what_is_removed_frees_space_where_what_was_written_before_had_none() {
    let short: fn(&mut ShardConfig) = |config| {
        let replication = Arc::make_mut(&mut config.replication);
        (replication.kept_max, replication.kept_lending_max) = (2, 2);
    };
    for configure in [short, |_| {}] {
        let (mut cluster, members) = created_with(None, configure);
        let (first, second) = (members[0], members[1]);
        assert!(is_done(&append(&mut cluster, first, 1)));
        set_space(&mut cluster, second, DiskSpace::Spent);
        (2..10).for_each(|number| assert!(is_done(&append(&mut cluster, first, number))));
        cluster.run(ms(1_000));
        assert!(is_done(&change(&mut cluster, first, 10, Change::Remove)));
        cluster.run(ms(1_000));
        let file = cluster.shard(second).file(FILE).unwrap();
        assert!(file.is_whole() && file.machine().attributes().1.is_removed());
    }
}

/// What it lacks nobody keeps for it, and nobody waits for it, until it has space again.
#[test]
fn nothing_is_kept_for_a_backup_that_has_no_space_for_what_it_lacks() {
    let short: fn(&mut ShardConfig) = |config| Arc::make_mut(&mut config.replication).kept_max = 2;
    let (mut cluster, members) = created_with(None, short);
    let (first, second) = (members[0], members[1]);
    set_space(&mut cluster, second, DiskSpace::Spent);
    (1..200).for_each(|number| assert!(is_done(&append(&mut cluster, first, number))));
    let led = |cluster: &Daemons| cluster.shard(first).file(FILE).unwrap().standing() == Standing::Serving;
    assert!(led(&cluster) && !cluster.shard(second).file(FILE).unwrap().is_whole(), "it is given a state");
    assert!(cluster.shard(first).file(FILE).unwrap().log_bytes() < 1_000);
    cluster.run(ms(20_000));
    assert!(!led(&cluster), "nobody uses the file");
    set_space(&mut cluster, second, DiskSpace::Enough);
    assert!((200..210).any(|number| is_done(&append(&mut cluster, first, number))));
    cluster.run(ms(4_000));
    let [led, there] = tails(&cluster, [first, second]);
    assert_eq!(led, there);
}

/// What it has taken already it says so of, however often it is asked.
#[test]
fn what_is_there_already_is_acknowledged_without_space() {
    let (mut cluster, [first, second, third]) = written();
    cluster.kill(third);
    let is_ack = move |flying: &Flying| {
        matches!(flying, Flying::File { to, message, .. }
        if *to == first && matches!(message.message, Message::Appended { .. }))
    };
    cluster.hold_back(is_ack);
    let id = ask(&mut cluster, first, 2, an_x());
    cluster.run(ms(50));
    let [led, there] = tails(&cluster, [first, second]);
    assert_eq!(led, there);
    assert!(!is_done(&cluster.file_reply(1, id)));
    set_space(&mut cluster, second, DiskSpace::Spent);
    cluster.held.clear();
    cluster.hold_back(|_| false);
    cluster.run(ms(500));
    assert!(is_done(&cluster.file_reply(1, id)));
}

#[test]
fn a_reserve_is_kept() {
    a_backup_that_has_spent_its_space_takes_no_more_data_until_it_has_some(None);
}

#[test]
#[should_panic = "what takes no space is taken"]
fn without_the_rule_a_reserve_is_given_away() {
    a_backup_that_has_spent_its_space_takes_no_more_data_until_it_has_some(Some(Bug::ReserveGivenAway));
}
