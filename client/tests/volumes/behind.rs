//! What clients write to files that are lent to them: others see it at once, and nothing of it is lost that was synced.

use std::io::Write;
use std::time::{Duration, Instant};

use base::WallTime;
use bytes::Bytes;
use client::{Client, Volume, VolumeError, VolumeFile};
use namespace::{
    Ask, Change, InodeId, LentTo, NameError, Rights, SetAttributes, SetTime, Site, Who, XattrHow, XattrName,
};
use node::{OpenMode, Settings, file_object};
use tokio::runtime::Builder;
use tokio::time::sleep;

use crate::cluster::Cluster;
use crate::files::{create, with_file};
use crate::{called, name};

/// A session's length, by default, and time for everything else on a machine that is busy with so many daemons.
const DELAY_MAX: Duration = Duration::from_millis(900 + 3_000);

async fn open(client: &Client, volume: &Volume, inode: InodeId) -> VolumeFile {
    client.open_file(volume, &Who::root(), (inode, OpenMode::ReadWrite)).await.unwrap()
}

async fn unlink(volume: &Volume, text: &str) {
    volume.unlink(&Who::root(), Site::new(InodeId::ROOT, name(text))).await.unwrap();
}

/// The client and its session are known to the volume, so files are lent to it.
async fn is_lent_files(client: &Client, volume: &Volume) {
    for number in 0..400 {
        let text = format!("probe-{number}");
        let file = create(client, volume, &text).await;
        let lent = volume.attributes(file.inode()).await.unwrap().lent;
        unlink(volume, &text).await;
        if lent.is_some_and(|lent| lent.to != LentTo::Content) {
            return;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("nothing is lent to it");
}

#[tokio::test]
async fn times_of_a_lent_file_are_set_without_asking_and_seen_by_all() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, _) = with_file(&client).await;
    let theirs = other.volume(&called("home")).await.unwrap();
    is_lent_files(&client, &volume).await;
    for (round, is_written) in [(0, true), (1, false), (2, true)] {
        let file = create(&client, &volume, &format!("f{round}")).await;
        let inode = file.inode();
        if is_written {
            file.write(0, "hello".into()).await.unwrap();
        }
        let [atime, mtime] = [5_000_000, 6_000_000].map(WallTime::from_micros);
        let times = [atime, mtime].map(|time| Some(SetTime::To(time)));
        let set = SetAttributes { atime: times[0], mtime: times[1], ..SetAttributes::default() };
        let before = volume.attributes(inode).await.unwrap();
        volume.change(&Who::root(), Change::SetAttributes { inode, set }).await.unwrap();
        let own = volume.attributes(inode).await.unwrap();
        assert_eq!((own.lent, own.atime, own.mtime), (before.lent, atime, mtime));
        assert!(own.ctime >= before.ctime);
        if round == 2 {
            // Whoever has it durable has its times, too.
            file.sync().await.unwrap();
            assert_eq!(volume.attributes(inode).await.unwrap().lent, None);
        }
        let seen = other.attributes(&theirs, inode).await.unwrap();
        assert_eq!((seen.lent, seen.atime, seen.mtime), (None, atime, mtime), "round {round}");
        // Somebody who is not the owner is refused by who knows that.
        let stranger = Who::new(7, 7, &[]).unwrap();
        let refused = volume.change(&stranger, Change::SetAttributes { inode, set }).await;
        assert_eq!(refused, Err(VolumeError::Refused(NameError::NotPermitted { inode })));
    }
    client.close().await;
}

#[tokio::test]
async fn a_lent_files_mode_and_owner_are_set_to_what_they_are_without_asking() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, _) = with_file(&client).await;
    let theirs = other.volume(&called("home")).await.unwrap();
    is_lent_files(&client, &volume).await;
    let file = create(&client, &volume, "plain").await;
    let inode = file.inode();
    let set = async |set| volume.change(&Who::root(), Change::SetAttributes { inode, set }).await.unwrap();
    let before = volume.attributes(inode).await.unwrap();
    let same = SetAttributes {
        mode: Some(before.mode),
        uid: Some(before.uid),
        gid: Some(before.gid),
        ..SetAttributes::default()
    };
    set(same).await;
    let own = volume.attributes(inode).await.unwrap();
    assert_eq!(
        (own.lent, own.mode, own.atime, own.mtime),
        (before.lent, before.mode, before.atime, before.mtime)
    );
    assert!(own.ctime > before.ctime, "it was set nevertheless");
    let changed = own.ctime;
    let seen = other.attributes(&theirs, inode).await.unwrap();
    assert_eq!(
        (seen.lent, seen.mode, seen.atime, seen.mtime),
        (None, before.mode, before.atime, before.mtime)
    );
    assert!(seen.ctime >= changed, "others see that, too");
    // Something that is different is the volume's to say.
    set(SetAttributes { mode: Some(0o4711), ..same }).await;
    assert_eq!(other.attributes(&theirs, inode).await.unwrap().mode, 0o4711);
    // And to set an owner ends that.
    set(SetAttributes { mode: None, ..same }).await;
    assert_eq!(other.attributes(&theirs, inode).await.unwrap().mode, 0o711);
    client.close().await;
}

const fn to(mode: u16) -> SetAttributes {
    SetAttributes {
        mode: Some(mode),
        uid: None,
        gid: None,
        size: None,
        atime: None,
        mtime: None,
        is_open: false,
    }
}

/// What the owner of a lent file lets others do is known to its client alone, and all go by it: who asks by this client, and who asks by
/// another one, whether they may do more than before or less.
#[tokio::test]
async fn permissions_of_a_lent_file_are_set_without_asking_and_everybody_goes_by_them() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, _) = with_file(&client).await;
    let theirs = other.volume(&called("home")).await.unwrap();
    is_lent_files(&client, &volume).await;
    let (root, stranger) = (Who::root(), Who::new(1001, 1001, &[]).unwrap());
    let xattr = || XattrName::new(b"user.a").unwrap();
    for round in 0..12 {
        let (question, is_own, opens_up) = (round / 4, round % 2 == 0, round % 4 < 2);
        let (before, after) = if opens_up { (0o600, 0o604) } else { (0o604, 0o600) };
        let place = (InodeId::ROOT, name(&format!("f{round}")));
        let file = client.create_file(&volume, &root, place, (before, 0)).await.unwrap();
        let inode = file.inode();
        if question == 2 {
            let (name, how) = (xattr(), XattrHow::Any);
            volume.change(&root, Change::SetXattr { inode, name, value: "x".into(), how }).await.unwrap();
        }
        file.write(0, "hello".into()).await.unwrap();
        assert_eq!(volume.set_own(&stranger, inode, to(0o666)), None, "it is not the stranger's");
        let own = volume.set_own(&root, inode, to(after)).expect("nobody is asked");
        assert!(own.mode == after && volume.has_lent(&own), "round {round}");
        let (asks, of) = if is_own { (&client, &volume) } else { (&other, &theirs) };
        let told = match question {
            0 => asks.open_file(of, &stranger, (inode, OpenMode::Read)).await.map(drop),
            1 => of.ask(&stranger, Ask::Access { inode, rights: Rights::READ }).await.map(drop),
            _ => of.ask(&stranger, Ask::GetXattr { inode, name: xattr() }).await.map(drop),
        };
        let denied = Err(VolumeError::Refused(NameError::Denied { inode }));
        assert_eq!(told, if opens_up { Ok(()) } else { denied }, "round {round}");
        assert_eq!(other.attributes(&theirs, inode).await.unwrap().mode, after);
    }
    client.close().await;
}

#[tokio::test]
async fn what_others_set_comes_after_the_permissions_of_a_lent_file() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, _) = with_file(&client).await;
    let theirs = other.volume(&called("home")).await.unwrap();
    is_lent_files(&client, &volume).await;
    let file = create(&client, &volume, "plain").await;
    let (inode, root) = (file.inode(), Who::root());
    volume.set_own(&root, inode, to(0o606)).expect("nobody is asked");
    assert_eq!(volume.set_own(&root, inode, to(0o4711)), None, "the volume says who is run as whom");
    theirs.change(&root, Change::SetAttributes { inode, set: to(0o640) }).await.unwrap();
    for volume in [&volume, &theirs] {
        assert_eq!(volume.attributes(inode).await.unwrap().mode, 0o640);
    }
    client.close().await;
}

#[tokio::test]
async fn what_was_written_and_not_sent_others_read_at_once() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, first) = with_file(&client).await;
    let theirs = other.volume(&called("home")).await.unwrap();
    is_lent_files(&client, &volume).await;
    // A file that is new each time: it is taken back from its only user.
    for round in 0..10 {
        let file = create(&client, &volume, &format!("f{round}")).await;
        let text = format!("round {round}");
        file.write(0, text.clone().into()).await.unwrap();
        assert_eq!(file.attributes().await.unwrap().size, text.len() as u64);
        let seen = open(&other, &theirs, file.inode()).await;
        assert_eq!(seen.attributes().await.unwrap().size, text.len() as u64);
        assert_eq!(seen.read(0, 100).await.unwrap(), text);
    }
    // One that both use, in turn.
    let second = open(&other, &theirs, first.inode()).await;
    for round in 0..50_u64 {
        let (writer, reader) = if round % 2 == 0 { (&first, &second) } else { (&second, &first) };
        let text = format!("{round:08}");
        writer.write(round * 8, text.clone().into()).await.unwrap();
        assert_eq!(reader.attributes().await.unwrap().size, (round + 1) * 8);
        assert_eq!(reader.read(round * 8, 100).await.unwrap(), text);
    }
    let expected: String = (0..50).map(|round| format!("{round:08}")).collect();
    assert_eq!(first.read(0, 1 << 20).await.unwrap(), expected);
    client.close().await;
    other.close().await;
}

/// It asks no volume before, as if it was told long ago that everybody writes to the content.
#[tokio::test]
async fn what_goes_to_the_content_comes_after_what_was_written_before() {
    let cluster = Cluster::start(3, Settings::default());
    let client = cluster.client().await;
    let (volume, _) = with_file(&client).await;
    is_lent_files(&client, &volume).await;
    for round in 0..5 {
        let file = create(&client, &volume, &format!("f{round}")).await;
        file.write(0, "hello".into()).await.unwrap();
        let content = client.object(file_object(volume.object(), file.inode()));
        assert_eq!(content.append(" world".into()).await.unwrap(), 5);
        assert_eq!(file.append("!".into()).await.unwrap(), 11);
        assert_eq!(file.read(0, 100).await.unwrap(), "hello world!");
    }
    client.close().await;
}

#[tokio::test]
async fn what_is_read_twice_is_asked_for_once_until_somebody_changes_it() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, file) = with_file(&client).await;
    let data: Bytes = (0..3 << 20).map(|at: u32| (at % 251) as u8).collect::<Vec<_>>().into();
    for at in (0..3 << 20).step_by(1 << 20) {
        file.write(at as u64, data.slice(at..at + (1 << 20))).await.unwrap();
    }
    file.sync().await.unwrap();
    file.close().await.unwrap();
    let inode = volume.lookup(&Who::root(), InodeId::ROOT, name("f")).await.unwrap().inode;
    let theirs = other.volume(&called("home")).await.unwrap();
    let seen = open(&other, &theirs, inode).await;
    let mine = open(&client, &volume, inode).await;
    for _ in 0..3 {
        for (at, length) in
            [(0, 1 << 20), (1 << 20, 1 << 20), (2 << 20, 1 << 20), (12_345, 300_000), (3_145_000, 5_000)]
        {
            let end = data.len().min(at + length);
            assert_eq!(seen.read(at as u64, length as u64).await.unwrap(), data.slice(at..end));
        }
    }
    mine.write(5, "changed".into()).await.unwrap();
    assert_eq!(seen.read(4, 9).await.unwrap()[1..8], *b"changed");
    client.close().await;
    other.close().await;
}

#[tokio::test]
async fn what_is_left_alone_is_given_back_and_costs_nobody_time() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, _) = with_file(&client).await;
    let theirs = other.volume(&called("home")).await.unwrap();
    is_lent_files(&client, &volume).await;
    let [written, empty] =
        [create(&client, &volume, "written").await, create(&client, &volume, "empty").await];
    written.write(0, "hello".into()).await.unwrap();
    let before = written.attributes().await.unwrap();
    let (written_inode, empty_inode) = (written.inode(), empty.inode());
    written.close().await.unwrap();
    empty.close().await.unwrap();
    sleep(Duration::from_millis(2_500)).await;
    let start = Instant::now();
    let after = theirs.attributes(written_inode).await.unwrap();
    assert!(start.elapsed() < Duration::from_millis(400), "{:?}", start.elapsed());
    assert_eq!((after.lent, after.size, after.mtime), (None, 5, before.mtime), "it is as its writer saw it");
    let after = theirs.attributes(empty_inode).await.unwrap();
    assert_eq!((after.lent, after.last_lend, after.size), (None, None, 0), "nobody asked its content");
    client.close().await;
    other.close().await;
}

#[tokio::test]
async fn who_writes_on_after_a_file_was_given_back_has_it_lent_again() {
    let cluster = Cluster::start(3, Settings::default());
    let client = cluster.client().await;
    let (volume, _) = with_file(&client).await;
    is_lent_files(&client, &volume).await;
    let file = create(&client, &volume, "again").await;
    let inode = file.inode();
    file.write(0, "hello".into()).await.unwrap();
    let set = SetAttributes { mtime: Some(SetTime::Now), ..SetAttributes::default() };
    volume.change(&Who::root(), Change::SetAttributes { inode, set }).await.unwrap();
    // What was set goes back with the lend, and nobody asks how the file is before it is written again.
    file.sync().await.unwrap();
    file.write(0, "HELLO".into()).await.unwrap();
    assert!(volume.has_lent(&volume.attributes(inode).await.unwrap()));
    client.close().await;
}

#[tokio::test]
async fn what_was_synced_outlives_its_client() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, file) = with_file(&client).await;
    let data = Bytes::from(vec![7; 1 << 20]);
    for at in 0..4 {
        file.write(at << 20, data.clone()).await.unwrap();
    }
    file.truncate((3 << 20) + 5).await.unwrap();
    file.sync().await.unwrap();
    let inode = file.inode();
    // It does not say a last word: neither is the file closed, nor the client.
    drop(client);
    std::mem::forget((volume, file));
    let theirs = other.volume(&called("home")).await.unwrap();
    let seen = open(&other, &theirs, inode).await;
    assert_eq!(seen.attributes().await.unwrap().size, (3 << 20) + 5);
    for at in 0..3 {
        assert!(seen.read(at << 20, 1 << 20).await.unwrap() == data);
    }
    assert_eq!(seen.read(3 << 20, 1 << 20).await.unwrap()[..], [7; 5]);
    other.close().await;
}

#[tokio::test]
async fn a_client_that_closes_sends_what_it_has() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (_, file) = with_file(&client).await;
    file.write(0, "hello".into()).await.unwrap();
    let inode = file.inode();
    drop(file);
    client.close().await;
    let theirs = other.volume(&called("home")).await.unwrap();
    let seen = open(&other, &theirs, inode).await;
    assert_eq!(seen.read(0, 100).await.unwrap(), "hello");
    other.close().await;
}

/// Two clients write to files of their own and to one that both use, and check what is there, while each daemon is killed in turn.
#[tokio::test]
async fn what_is_written_is_there_whoever_is_killed() {
    let mut cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, shared) = with_file(&client).await;
    let theirs = other.volume(&called("home")).await.unwrap();
    let (mine, their) = (create(&client, &volume, "mine").await, create(&other, &theirs, "theirs").await);
    let seen = open(&other, &theirs, shared.inode()).await;
    let mut length = 0;
    let mut common = 0;
    for node in 1..=3 {
        for (round, down) in [(0, false), (1, true), (2, true), (3, false)] {
            if round == 1 {
                cluster.kill_daemon(node).await;
            }
            if !down && round > 0 {
                cluster.start_daemon(node);
            }
            for file in [&mine, &their] {
                assert_eq!(file.append("12345678".into()).await.unwrap(), length);
                assert_eq!(file.attributes().await.unwrap().size, length + 8);
            }
            length += 8;
            for (writer, reader) in [(&shared, &seen), (&seen, &shared)] {
                assert_eq!(writer.append("abcd".into()).await.unwrap(), common);
                common += 4;
                assert_eq!(reader.attributes().await.unwrap().size, common);
                assert_eq!(reader.read(common - 4, 100).await.unwrap(), "abcd");
            }
            if round == 2 {
                mine.sync().await.unwrap();
                their.sync().await.unwrap();
            }
        }
        // What one has written and not synced the other finds.
        let found = open(&other, &theirs, mine.inode()).await;
        assert_eq!(found.attributes().await.unwrap().size, length);
        sleep(Duration::from_millis(2_500)).await;
    }
    let expected = "12345678".repeat(12);
    assert_eq!(open(&other, &theirs, mine.inode()).await.read(0, 1_000).await.unwrap(), expected);
    assert_eq!(open(&client, &volume, their.inode()).await.read(0, 1_000).await.unwrap(), expected);
    client.close().await;
    other.close().await;
}

/// Nobody runs what the client consists of, as if its process was stopped.
#[test]
fn a_holder_that_is_frozen_delays_others_no_longer_than_its_session_and_is_told_what_it_lost() {
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let of_frozen = Builder::new_current_thread().enable_all().build().unwrap();
    let cluster = Cluster::start(3, Settings::default());
    let (frozen, volume, file) = of_frozen.block_on(async {
        let frozen = cluster.client().await;
        let (volume, _) = with_file(&frozen).await;
        is_lent_files(&frozen, &volume).await;
        let file = create(&frozen, &volume, "lent").await;
        file.write(0, "synced".into()).await.unwrap();
        file.sync().await.unwrap();
        file.write(6, " and not".into()).await.unwrap();
        assert_eq!(file.read(0, 100).await.unwrap(), "synced and not");
        (frozen, volume, file)
    });
    let start = Instant::now();
    let other = runtime.block_on(async {
        let other = cluster.client().await;
        let theirs = other.volume(&called("home")).await.unwrap();
        let seen = open(&other, &theirs, file.inode()).await;
        assert_eq!(seen.read(0, 100).await.unwrap(), "synced");
        seen.append("!".into()).await.unwrap();
        other
    });
    assert!(start.elapsed() < DELAY_MAX, "{:?}", start.elapsed());
    of_frozen.block_on(async {
        let told = tokio::join!(file.sync(), file.sync());
        assert_eq!(
            told,
            (Err(VolumeError::TakenBack), Err(VolumeError::TakenBack)),
            "who called by then is told"
        );
        assert_eq!(file.sync().await, Ok(()), "it is told once");
        assert_eq!(file.read(0, 100).await.unwrap(), "synced!");
        drop((volume, file));
        frozen.close().await;
    });
    runtime.block_on(other.close());
}

/// The volume is at one daemon, and the content of the file would be at the other, which is not there.
#[tokio::test]
async fn what_is_removed_before_it_was_sent_is_never_sent() {
    let mut cluster = Cluster::start_with("", (2, 1), Settings::default());
    let client = cluster.client().await;
    let (volume, _) = with_file(&client).await;
    is_lent_files(&client, &volume).await;
    let node_of = |object| cluster.map().members(object)[0];
    let here = node_of(volume.object());
    let mut number = 0;
    let (file, there) = loop {
        let file = create(&client, &volume, &format!("f{number}")).await;
        let there = node_of(file_object(volume.object(), file.inode()));
        if there != here {
            break (file, there);
        }
        number += 1;
    };
    cluster.kill_daemon(there.0).await;
    file.write(0, "hello".into()).await.unwrap();
    assert_eq!(file.read(0, 10).await.unwrap(), "hello");
    let inode = file.inode();
    file.close().await.unwrap();
    let start = Instant::now();
    unlink(&volume, &format!("f{number}")).await;
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
    while volume.attributes(inode).await.is_ok() {
        assert!(start.elapsed() < Duration::from_secs(10), "it keeps what nobody has");
        sleep(Duration::from_millis(20)).await;
    }
    client.close().await;
}

#[tokio::test]
async fn small_files_are_written_faster_than_one_by_one() {
    const FILES: u32 = 1_000;
    let cluster = Cluster::start(3, Settings::default());
    let mut took = Vec::new();
    for (text, behind) in [("on", true), ("off", false)] {
        let client = cluster.client().await;
        let client = if behind { client } else { client.without_write_behind() };
        let volume = client.create_volume(&called(text), (0, 0)).await.unwrap();
        if behind {
            is_lent_files(&client, &volume).await;
        }
        let start = Instant::now();
        for number in 0..FILES {
            let file = create(&client, &volume, &format!("f{number}")).await;
            file.write(0, vec![7; 4_096].into()).await.unwrap();
            file.close().await.unwrap();
        }
        took.push(start.elapsed());
        client.close().await;
    }
    let told = format!("{FILES} files of 4 KiB: {:?} with write-behind, {:?} without", took[0], took[1]);
    writeln!(std::io::stderr(), "{told}").unwrap();
    assert!(took[0] < took[1], "{told}");
}
