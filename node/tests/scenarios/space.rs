//! Disks without space: clients are told at once, and nothing else waits for it.

use bytes::Bytes;
use node::ShardEvent;
use node::file::{Change, FileBody, FileError, FileReplyBody, Level};

use crate::cluster::ms;
use crate::files::{Daemons, FILE, created, data, read};

/// Three daemons, and the file with its primary, the first, and something in it.
fn written() -> (Daemons, [u32; 3]) {
    let (mut cluster, members) = created(None);
    assert!(is_done(&append(&mut cluster, members[0], 1)));
    (cluster, members.try_into().unwrap())
}

fn change(cluster: &mut Daemons, node: u32, number: u64, change: Change) -> Option<FileReplyBody> {
    let id = cluster.ask_file(
        1,
        node,
        FILE,
        FileBody::Change { number, settled: number, level: Level::Written, under: None, change },
    );
    cluster.run(ms(20));
    cluster.file_reply(1, id)
}

fn append(cluster: &mut Daemons, node: u32, number: u64) -> Option<FileReplyBody> {
    change(cluster, node, number, Change::Append { data: Bytes::from_static(b"x").into() })
}

fn is_done(told: &Option<FileReplyBody>) -> bool {
    matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. }))
}

fn found_no_space(told: &Option<FileReplyBody>) -> bool {
    matches!(told, Some(FileReplyBody::Changed { outcome: Err(FileError::NoSpace), .. }))
}

fn set_full(cluster: &mut Daemons, node: u32, is_full: bool) {
    cluster.call(node, |shard, _| shard.handle_full(is_full));
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
