//! Files that are open: without a name, and with locks; through two clients, and daemons that die.

use std::time::Duration;

use client::{Client, FileLock, Volume, VolumeError, VolumeFile};
use namespace::{Change, InodeId, LockKind, LockMode, NameError, SetAttributes, Site, Stretch, Who};
use node::{OpenMode, Settings};
use tokio::time::{sleep, timeout};

use crate::cluster::Cluster;
use crate::files::with_file;
use crate::{called, name};

async fn open(client: &Client, volume: &Volume, inode: InodeId) -> Result<VolumeFile, VolumeError> {
    client.open_file(volume, &Who::root(), (inode, OpenMode::ReadWrite)).await
}

async fn unlink(volume: &Volume, text: &str) {
    volume.unlink(&Who::root(), Site::new(InodeId::ROOT, name(text))).await.unwrap();
}

/// Whether nothing is left of an inode, soon.
async fn is_deleted(volume: &Volume) -> bool {
    for _ in 0..400 {
        if volume.counts().await.unwrap().inodes == 1 {
            return true;
        }
        sleep(Duration::from_millis(20)).await;
    }
    false
}

const fn exclusive(owner: u64) -> FileLock {
    FileLock { owner, kind: LockKind::Fcntl, mode: LockMode::Exclusive, stretch: Stretch::ALL }
}

fn is_locked(result: &Result<(), VolumeError>) -> bool {
    matches!(result, Err(VolumeError::Refused(NameError::Locked { .. })))
}

#[tokio::test]
async fn an_open_file_without_a_name_outlives_every_daemon_and_goes_with_the_last_who_closes_it() {
    let mut cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, file) = with_file(&client).await;
    let theirs = other.volume(&called("home")).await.unwrap();
    let seen = open(&other, &theirs, file.inode()).await.unwrap();
    file.write(0, "hello".into()).await.unwrap();
    unlink(&theirs, "f").await;
    let mut length = 5;
    for node in 1..=3 {
        cluster.kill_daemon(node).await;
        for one in [&file, &seen] {
            one.append(" again".into()).await.unwrap();
            length += 6;
            assert_eq!(one.attributes().await.unwrap().size, length);
        }
        cluster.start_daemon(node);
        sleep(Duration::from_millis(2_500)).await;
    }
    file.close().await.unwrap();
    sleep(Duration::from_millis(1_500)).await;
    assert_eq!(seen.read(0, 5).await.unwrap(), "hello", "one still has it open");
    drop(seen);
    assert!(is_deleted(&volume).await);
    client.close().await;
}

#[tokio::test]
async fn who_opens_a_file_again_asks_nobody_until_that_may_be_forbidden() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, file) = with_file(&client).await;
    file.write(0, "hello".into()).await.unwrap();
    let theirs = other.volume(&called("home")).await.unwrap();
    let inode = file.inode();
    let [owner, guest] = [Who::root(), Who::new(7, 7, &[]).unwrap()];
    let again = |who: &Who, mode| client.open_again(&volume, who, (inode, mode));
    // Its first opening may come before anything is granted.
    let mut opened = None;
    for _ in 0..400 {
        client.open_file(&volume, &guest, (inode, OpenMode::Read)).await.unwrap();
        opened = again(&guest, OpenMode::Read);
        if opened.is_some() {
            break;
        }
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(opened.expect("it is known").read(0, 9).await.unwrap(), "hello");
    assert!(again(&guest, OpenMode::ReadWrite).is_none(), "that is more than it was opened for");
    client.open_file(&volume, &owner, (inode, OpenMode::ReadWrite)).await.unwrap();
    let second = again(&owner, OpenMode::Read).unwrap();
    // Whoever it is that changes what is allowed.
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    theirs.change(&owner, Change::SetAttributes { inode, set }).await.unwrap();
    assert!(again(&guest, OpenMode::Read).is_none());
    let refused = client.open_file(&volume, &guest, (inode, OpenMode::Read)).await;
    assert_eq!(refused.unwrap_err(), VolumeError::Refused(NameError::Denied { inode }));
    assert_eq!(second.read(0, 9).await.unwrap(), "hello");
    drop(second);
    // What is open here for nobody keeps nothing from being removed.
    client.open_file(&volume, &owner, (inode, OpenMode::ReadWrite)).await.unwrap();
    file.close().await.unwrap();
    unlink(&theirs, "f").await;
    assert!(again(&owner, OpenMode::ReadWrite).is_none());
    assert!(is_deleted(&volume).await);
    client.close().await;
}

#[tokio::test]
async fn what_a_client_has_open_goes_with_it() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, file) = with_file(&other).await;
    file.write(0, "hello".into()).await.unwrap();
    let theirs = client.volume(&called("home")).await.unwrap();
    let seen = open(&client, &theirs, file.inode()).await.unwrap();
    file.lock(exclusive(1)).await.unwrap();
    assert!(is_locked(&seen.try_lock(exclusive(1)).await), "the owners are of two clients");
    let waiting = seen.lock(exclusive(1));
    let closing = async {
        sleep(Duration::from_millis(100)).await;
        other.close().await;
    };
    let (had, ()) = timeout(Duration::from_secs(20), async { tokio::join!(waiting, closing) }).await.unwrap();
    had.unwrap();
    unlink(&theirs, "f").await;
    seen.close().await.unwrap();
    assert!(is_deleted(&theirs).await);
    drop(volume);
}

#[tokio::test]
async fn locks_are_between_clients_and_waiting_outlives_a_daemon() {
    let mut cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, file) = with_file(&client).await;
    let theirs = other.volume(&called("home")).await.unwrap();
    let seen = open(&other, &theirs, file.inode()).await.unwrap();
    file.lock(exclusive(1)).await.unwrap();
    file.lock(exclusive(1)).await.unwrap();
    assert!(is_locked(&seen.try_lock(exclusive(1)).await));
    let by = seen.in_the_way(exclusive(1)).await.unwrap().unwrap();
    assert_eq!((by.owner.number, by.mode), (1, LockMode::Exclusive));
    assert_eq!(file.in_the_way(exclusive(1)).await.unwrap(), None, "its own is not in its way");
    let flock = FileLock { kind: LockKind::Flock, ..exclusive(9) };
    seen.try_lock(flock).await.unwrap();

    // Nobody waits for this any longer, so it is not had.
    assert!(timeout(Duration::from_millis(300), seen.lock(exclusive(2))).await.is_err());
    let waiting = {
        let seen = seen.clone();
        tokio::spawn(async move { seen.lock(exclusive(1)).await })
    };
    sleep(Duration::from_millis(300)).await;
    let primary = cluster.map().members(volume.object())[0];
    cluster.kill_daemon(primary.0).await;
    sleep(Duration::from_millis(500)).await;
    assert!(!waiting.is_finished());
    file.unlock_all(1).await.unwrap();
    timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap().unwrap();
    assert!(is_locked(&file.try_lock(exclusive(1)).await));
    let half = Stretch { first: 0, last: 9 };
    seen.unlock(1, LockKind::Fcntl, half).await.unwrap();
    file.try_lock(FileLock { stretch: half, ..exclusive(1) }).await.unwrap();
    assert!(is_locked(
        &file.try_lock(FileLock { stretch: Stretch { first: 9, last: 10 }, ..exclusive(1) }).await
    ));
    // Whoever closes it gives up what was locked by it.
    seen.close().await.unwrap();
    file.try_lock(exclusive(1)).await.unwrap();
}

#[tokio::test]
async fn whoever_would_wait_for_himself_is_told() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, file) = with_file(&client).await;
    let theirs = other.volume(&called("home")).await.unwrap();
    let seen = open(&other, &theirs, file.inode()).await.unwrap();
    let [low, high] =
        [(0, 9), (10, 19)].map(|(first, last)| FileLock { stretch: Stretch { first, last }, ..exclusive(1) });
    file.lock(low).await.unwrap();
    seen.lock(high).await.unwrap();
    let waiting = {
        let file = file.clone();
        tokio::spawn(async move { file.lock(high).await })
    };
    sleep(Duration::from_millis(300)).await;
    let told = seen.lock(low).await;
    assert!(matches!(told, Err(VolumeError::Refused(NameError::Deadlock { .. }))), "{told:?}");
    // Dropped, it is closed all the same.
    drop(seen);
    timeout(Duration::from_secs(10), waiting).await.unwrap().unwrap().unwrap();
    drop(volume);
}
