//! Files that a client creates by itself: all that it was told is so, for itself and for others, whoever is killed meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use client::{Client, Volume, VolumeError, VolumeFile};
use namespace::{InodeId, Kind, Make, NameError, Site, Who};
use node::{OpenMode, Settings};
use tokio::time::{sleep, timeout};

use crate::cluster::Cluster;
use crate::{called, made, name, names};

/// What a lend numbers has such numbers at least.
const AHEAD: u64 = 1 << 40;
/// Whoever waits for longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

async fn create(client: &Client, volume: &Volume, dir: InodeId, text: &str) -> VolumeFile {
    client.create_file(volume, &Who::root(), (dir, name(text)), (0o644, 0o022)).await.unwrap()
}

/// A directory in which this client creates by itself: its session has to be known for that.
async fn own_dir(client: &Client, volume: &Volume, text: &str) -> InodeId {
    for _ in 0..400 {
        let dir = made(volume, (InodeId::ROOT, text), Make::Directory).await.unwrap().inode;
        let file = create(client, volume, dir, "probe").await;
        let is_ahead = file.inode().number >= AHEAD;
        drop(file);
        volume.unlink(&Who::root(), Site::new(dir, name("probe"))).await.unwrap();
        if is_ahead {
            return dir;
        }
        volume.remove_directory(&Who::root(), Site::new(InodeId::ROOT, name(text))).await.unwrap();
        sleep(Duration::from_millis(10)).await;
    }
    panic!("no directory is lent to it");
}

async fn all_of(client: &Client, volume: &Volume, dir: InodeId) -> BTreeSet<(String, String)> {
    let mut all = BTreeSet::new();
    for text in names(volume, dir).await {
        let inode = volume.lookup(&Who::root(), dir, name(&text)).await.unwrap().inode;
        let file = client.open_file(volume, &Who::root(), (inode, OpenMode::Read)).await.unwrap();
        let content = file.read(0, 100).await.unwrap();
        all.insert((text, String::from_utf8(content.to_vec()).unwrap()));
    }
    all
}

fn expected(range: std::ops::Range<u32>) -> BTreeSet<(String, String)> {
    range.map(|number| (format!("f{number}"), format!("content of {number}"))).collect()
}

async fn create_all(client: &Client, volume: &Volume, dir: InodeId, range: std::ops::Range<u32>) -> usize {
    let mut ahead = 0;
    for (text, content) in expected(range) {
        let file = create(client, volume, dir, &text).await;
        ahead += usize::from(file.inode().number >= AHEAD);
        file.write(0, content.into()).await.unwrap();
    }
    ahead
}

#[tokio::test]
async fn what_is_created_ahead_is_there_at_once_for_everybody() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let volume = client.create_volume(&called("home"), (0, 0)).await.unwrap();
    let theirs = other.volume(&called("home")).await.unwrap();
    let dir = own_dir(&client, &volume, "d").await;
    assert!(create_all(&client, &volume, dir, 0..50).await > 30, "only so much is pending at a time");
    let own = volume.attributes(dir).await.unwrap();
    assert_eq!(names(&volume, dir).await.len(), 50);
    assert_eq!(all_of(&other, &theirs, dir).await, expected(0..50));
    let seen = theirs.attributes(dir).await.unwrap();
    assert_eq!((seen.kind, seen.size, seen.lent), (Kind::Directory, own.size, None));
    assert_eq!((seen.mtime, seen.ctime), (own.mtime, own.ctime), "as its maker has shown it");
    // It was taken back for that.
    assert_eq!(create_all(&client, &volume, dir, 50..60).await, 0);
    assert_eq!(all_of(&other, &theirs, dir).await, expected(0..60));
    client.close().await;
    other.close().await;
}

#[tokio::test]
async fn a_name_is_given_once_however_it_is_created() {
    let cluster = Cluster::start(3, Settings::default());
    let client = cluster.client().await;
    let volume = client.create_volume(&called("home"), (0, 0)).await.unwrap();
    let dir = own_dir(&client, &volume, "d").await;
    for round in 0..30 {
        let text = format!("f{round}");
        let root = Who::root();
        let create = client.create_file(&volume, &root, (dir, name(&text)), (0o644, 0o022));
        let make = made(&volume, (dir, &text), Make::Directory);
        let (file, made) = if round % 2 == 0 {
            tokio::join!(create, make)
        } else {
            let (made, file) = tokio::join!(make, create);
            (file, made)
        };
        let found = volume.lookup(&Who::root(), dir, name(&text)).await.unwrap();
        let exists = VolumeError::Refused(NameError::Exists { inode: found.inode });
        match (file, made) {
            (Ok(file), Err(error)) => assert_eq!((file.inode(), error), (found.inode, exists)),
            (Err(error), Ok(made)) => assert_eq!((made.inode, error), (found.inode, exists)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(names(&volume, dir).await.len(), 30);
    volume.sync().await.unwrap();
    client.close().await;
}

#[tokio::test]
async fn a_directory_in_which_something_was_created_ahead_is_not_removed() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let volume = client.create_volume(&called("home"), (0, 0)).await.unwrap();
    let theirs = other.volume(&called("home")).await.unwrap();
    for (text, volume_of_remover) in [("mine", &volume), ("theirs", &theirs)] {
        let dir = own_dir(&client, &volume, text).await;
        create_all(&client, &volume, dir, 0..10).await;
        let removed =
            volume_of_remover.remove_directory(&Who::root(), Site::new(InodeId::ROOT, name(text))).await;
        assert_eq!(removed, Err(VolumeError::Refused(NameError::NotEmpty { dir })));
        assert_eq!(all_of(&other, &theirs, dir).await, expected(0..10));
    }
    client.close().await;
    other.close().await;
}

#[tokio::test]
async fn what_was_created_ahead_and_synced_outlives_its_client() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let volume = client.create_volume(&called("home"), (0, 0)).await.unwrap();
    let dir = own_dir(&client, &volume, "d").await;
    let file = create(&client, &volume, dir, "f").await;
    assert!(file.inode().number >= AHEAD);
    file.write(0, "hello".into()).await.unwrap();
    file.sync().await.unwrap();
    let empty = create(&client, &volume, dir, "empty").await;
    volume.sync().await.unwrap();
    // It does not say a last word.
    drop(client);
    std::mem::forget((volume, file, empty));
    let theirs = other.volume(&called("home")).await.unwrap();
    let there = [("empty", ""), ("f", "hello")].map(|(text, content)| (text.to_owned(), content.to_owned()));
    assert_eq!(all_of(&other, &theirs, dir).await, BTreeSet::from(there));
    other.close().await;
}

/// What each asks for waits until the other has given its directory back, which has to have all that was created in it.
#[tokio::test]
async fn two_clients_that_ask_for_each_others_directories_wait_for_nothing_but_what_was_created() {
    const EACH: u32 = 30;
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let volume = client.create_volume(&called("home"), (0, 0)).await.unwrap();
    let theirs = other.volume(&called("home")).await.unwrap();
    for round in 0..3 {
        let dir = own_dir(&client, &volume, &format!("a{round}")).await;
        let their_dir = own_dir(&other, &theirs, &format!("b{round}")).await;
        let both = async {
            tokio::join!(
                create_and_ask(&client, &volume, (dir, their_dir), EACH),
                create_and_ask(&other, &theirs, (their_dir, dir), EACH),
            )
        };
        let (ahead, their_ahead) = timeout(PATIENCE, both).await.expect("nothing hangs");
        assert!(ahead + their_ahead > EACH as usize, "{ahead} and {their_ahead} were created ahead");
        for dir in [dir, their_dir] {
            assert_eq!(all_of(&client, &volume, dir).await, expected(0..EACH));
            assert_eq!(all_of(&other, &theirs, dir).await, expected(0..EACH));
        }
    }
    client.close().await;
    other.close().await;
}

/// More is asked than is sent at once. Returns how many files were created ahead.
async fn create_and_ask(
    client: &Client,
    volume: &Volume,
    (dir, asked): (InodeId, InodeId),
    count: u32,
) -> usize {
    let ahead = create_all(client, volume, dir, 0..count).await;
    let questions: Vec<_> = (0..100)
        .map(|number| {
            let volume = volume.clone();
            tokio::spawn(
                async move { volume.lookup(&Who::root(), asked, name(&format!("other{number}"))).await },
            )
        })
        .collect();
    for question in questions {
        let missing = VolumeError::Refused(NameError::NoEntry { dir: asked });
        assert_eq!(question.await.unwrap(), Err(missing));
    }
    ahead
}

/// A killed primary has entered some of it and not said so, and its successor has to be told of all.
#[tokio::test]
async fn what_is_created_ahead_is_there_once_whoever_is_killed() {
    const EACH: u32 = 120;
    let mut cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let volume = client.create_volume(&called("home"), (0, 0)).await.unwrap();
    let theirs = other.volume(&called("home")).await.unwrap();
    for node in 1..=3 {
        let dir = own_dir(&client, &volume, &format!("d{node}")).await;
        let all = timeout(PATIENCE, async {
            create_all(&client, &volume, dir, 0..EACH).await;
            cluster.kill_daemon(node).await;
            create_all(&client, &volume, dir, EACH..2 * EACH).await;
            // By a name of its own, which stands for another file after that.
            for round in 0..5 {
                let file = create(&client, &volume, dir, "lock").await;
                file.write(0, format!("round {round}").into()).await.unwrap();
                drop(file);
                let (from, to) = (Site::new(dir, name("lock")), Site::new(dir, name("kept")));
                let how = namespace::RenameHow::Replace;
                let rename = namespace::Change::Rename { from, to, how, holders: Vec::new() };
                volume.change(&Who::root(), rename).await.unwrap();
            }
            cluster.start_daemon(node);
            create_all(&client, &volume, dir, 2 * EACH..3 * EACH).await;
            volume.sync().await.unwrap();
            all_of(&client, &volume, dir).await
        });
        let all = all.await.expect("nothing hangs");
        let mut there = expected(0..3 * EACH);
        there.insert(("kept".to_owned(), "round 4".to_owned()));
        assert_eq!(all, there);
        assert_eq!(all_of(&other, &theirs, dir).await, there);
        sleep(Duration::from_millis(2_500)).await;
    }
    client.close().await;
    other.close().await;
}

async fn unlink(volume: &Volume, dir: InodeId, text: &str) {
    volume.unlink(&Who::root(), Site::new(dir, name(text))).await.unwrap();
}

#[tokio::test]
async fn what_is_removed_ahead_is_gone_at_once_for_everybody() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let volume = client.create_volume(&called("home"), (0, 0)).await.unwrap();
    let theirs = other.volume(&called("home")).await.unwrap();
    let dir = own_dir(&client, &volume, "d").await;
    create_all(&client, &volume, dir, 0..30).await;
    volume.sync().await.unwrap();
    let mut ahead = 0;
    for number in 0..20 {
        unlink(&volume, dir, &format!("f{number}")).await;
        ahead += u32::from(volume.has_lost());
        let again = volume.unlink(&Who::root(), Site::new(dir, name(&format!("f{number}")))).await;
        assert_eq!(again, Err(VolumeError::Refused(NameError::NoEntry { dir })));
    }
    assert!(ahead > 10, "{ahead} were removed without asking");
    assert_eq!(names(&volume, dir).await.len(), 10);
    unlink(&volume, dir, "f20").await;
    assert_eq!(all_of(&other, &theirs, dir).await, expected(21..30));
    let (own, seen) = (volume.attributes(dir).await.unwrap(), theirs.attributes(dir).await.unwrap());
    assert_eq!((own.size, own.mtime, own.ctime), (seen.size, seen.mtime, seen.ctime));
    client.close().await;
    other.close().await;
}

/// By its other name somebody else has opened it, and sees how many there are.
#[tokio::test]
async fn what_had_another_name_is_removed_when_the_daemons_have_removed_it() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let volume = client.create_volume(&called("home"), (0, 0)).await.unwrap();
    let theirs = other.volume(&called("home")).await.unwrap();
    let dir = own_dir(&client, &volume, "d").await;
    let inode = create(&client, &volume, dir, "f").await.inode();
    let link = namespace::Change::Link { inode, dir: InodeId::ROOT, name: name("g") };
    volume.change(&Who::root(), link).await.unwrap();
    let open = other.open_file(&theirs, &Who::root(), (inode, OpenMode::Read)).await.unwrap();
    unlink(&volume, InodeId::ROOT, "g").await;
    assert_eq!(theirs.attributes(inode).await.unwrap().links, 1);
    volume.sync().await.unwrap();
    unlink(&volume, dir, "f").await;
    assert!(!volume.has_lost(), "it was asked for");
    assert_eq!(theirs.attributes(inode).await.unwrap().links, 0);
    drop(open);
    client.close().await;
    other.close().await;
}

/// Names are used again at once, and by other files.
#[tokio::test]
async fn what_is_removed_ahead_is_removed_once_whoever_is_killed() {
    const EACH: u32 = 60;
    let mut cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let volume = client.create_volume(&called("home"), (0, 0)).await.unwrap();
    let theirs = other.volume(&called("home")).await.unwrap();
    for node in 1..=3 {
        let dir = own_dir(&client, &volume, &format!("d{node}")).await;
        let all = timeout(PATIENCE, async {
            create_all(&client, &volume, dir, 0..EACH).await;
            volume.sync().await.unwrap();
            cluster.kill_daemon(node).await;
            for number in 0..EACH {
                unlink(&volume, dir, &format!("f{number}")).await;
                if number % 3 == 0 {
                    create_all(&client, &volume, dir, number..number + 1).await;
                }
                if number % 6 == 0 {
                    unlink(&volume, dir, &format!("f{number}")).await;
                }
            }
            cluster.start_daemon(node);
            volume.sync().await.unwrap();
            all_of(&client, &volume, dir).await
        });
        let all = all.await.expect("nothing hangs");
        let there = (0..EACH).filter(|number| number % 6 == 3);
        let there: BTreeSet<_> = there.flat_map(|number| expected(number..number + 1)).collect();
        assert_eq!(all, there);
        assert_eq!(all_of(&other, &theirs, dir).await, there);
        sleep(Duration::from_millis(2_500)).await;
    }
    client.close().await;
    other.close().await;
}

/// Who takes the name away waits until the volume knows who has it open.
#[tokio::test]
async fn what_is_opened_ahead_stays_whoever_takes_its_name() {
    const EACH: u32 = 12;
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let volume = client.create_volume(&called("home"), (0, 0)).await.unwrap();
    let theirs = other.volume(&called("home")).await.unwrap();
    let root = Who::root();
    let mut dirs = Vec::new();
    for number in 0..EACH {
        let dir = own_dir(&client, &volume, &format!("d{number}")).await;
        create_all(&client, &volume, dir, 0..2).await;
        dirs.push(dir);
    }
    volume.sync().await.unwrap();
    // What was opened lately is open still.
    sleep(Duration::from_secs(7)).await;
    let mut ahead = 0;
    for dir in dirs {
        let inode = volume.lookup(&root, dir, name("f0")).await.unwrap().inode;
        let file = client.open_file(&volume, &root, (inode, OpenMode::ReadWrite)).await.unwrap();
        ahead += u32::from(volume.has_lost());
        unlink(&theirs, dir, "f0").await;
        assert_eq!(theirs.attributes(inode).await.unwrap().links, 0, "it is open");
        assert_eq!(file.read(0, 100).await.unwrap(), "content of 0");
        file.write(0, "CONTENT".into()).await.unwrap();
        file.sync().await.unwrap();
        assert_eq!(file.read(0, 100).await.unwrap(), "CONTENT of 0");
        drop(file);
        assert_eq!(names(&theirs, dir).await, BTreeSet::from(["f1".to_owned()]));
    }
    assert!(ahead > EACH / 2, "{ahead} were opened without asking");
    client.close().await;
    other.close().await;
}
