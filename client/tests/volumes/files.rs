//! Files of volumes: content by offsets, and size and times whoever has them.

use std::time::Duration;

use base::WallTime;
use bytes::Bytes;
use client::{Client, Volume, VolumeFile};
use namespace::{InodeId, SetTime, Site, Who};
use node::{OpenMode, Settings, file_object};

use crate::cluster::Cluster;
use crate::{called, name};

pub(crate) async fn with_file(client: &Client) -> (Volume, VolumeFile) {
    let volume = client.create_volume(&called("home"), (0, 0)).await.unwrap();
    let file = create(client, &volume, "f").await;
    (volume, file)
}

pub(crate) async fn create(client: &Client, volume: &Volume, text: &str) -> VolumeFile {
    let place = (InodeId::ROOT, name(text));
    client.create_file(volume, &Who::root(), place, (0o644, 0o022)).await.unwrap()
}

/// Whoever asks for the size has somebody lead the file, who gives it back when nothing changes it any more.
async fn is_given_back(volume: &Volume, file: &VolumeFile) -> bool {
    for _ in 0..100 {
        if volume.attributes(file.inode()).await.unwrap().lent.is_none() {
            return true;
        }
        file.attributes().await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    false
}

#[tokio::test]
async fn what_is_written_is_read_and_size_and_times_are_right_whoever_has_them() {
    let cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, cluster.client().await);
    let (volume, file) = with_file(&client).await;
    assert_eq!(file.read(0, 10).await.unwrap(), Bytes::new());
    assert_eq!(file.attributes().await.unwrap().size, 0);
    file.write(0, "hello".into()).await.unwrap();
    let seen = other.open_file(&volume, &Who::root(), (file.inode(), OpenMode::ReadWrite)).await.unwrap();
    assert_eq!(seen.append(" world".into()).await.unwrap(), 5);
    assert_eq!(file.read(0, 100).await.unwrap(), "hello world");
    let before = file.attributes().await.unwrap();
    assert_eq!(before.size, 11);
    file.sync().await.unwrap();
    assert!(is_given_back(&volume, &file).await, "nothing changes it any more");
    let after = volume.attributes(file.inode()).await.unwrap();
    assert_eq!((after.size, after.mtime), (11, before.mtime));
    file.truncate(2).await.unwrap();
    assert_eq!(seen.attributes().await.unwrap().size, 2);
    assert_eq!(seen.read(0, 100).await.unwrap(), "he");
    let then = SetTime::To(WallTime::from_micros(7));
    assert_eq!(seen.set_modified(&Who::root(), then).await.unwrap().size, 2);
    assert_eq!(file.attributes().await.unwrap().mtime, WallTime::from_micros(7));
}

#[tokio::test]
async fn files_outlive_every_daemon_in_turn() {
    let mut cluster = Cluster::start(3, Settings::default());
    let client = cluster.client().await;
    let (volume, first) = with_file(&client).await;
    let mut files = vec![first];
    for number in 0..5 {
        files.push(create(&client, &volume, &format!("f{number}")).await);
    }
    for node in 1..=3 {
        for file in &files {
            file.append("12345678".into()).await.unwrap();
        }
        cluster.kill_daemon(node).await;
        for file in &files {
            file.append("abc".into()).await.unwrap();
            assert_eq!(file.attributes().await.unwrap().size, u64::from(node) * 11);
        }
        cluster.start_daemon(node);
        for file in &files {
            assert!(is_given_back(&volume, file).await);
            assert_eq!(volume.attributes(file.inode()).await.unwrap().size, u64::from(node) * 11);
        }
    }
    for file in &files {
        assert_eq!(file.read(0, 100).await.unwrap(), "12345678abc12345678abc12345678abc");
    }
}

#[tokio::test]
async fn what_has_no_name_any_more_is_gone_when_nobody_has_it_open() {
    let cluster = Cluster::start(3, Settings::default());
    let client = cluster.client().await;
    let (volume, file) = with_file(&client).await;
    file.write(0, "hello".into()).await.unwrap();
    volume.unlink(&Who::root(), Site::new(InodeId::ROOT, name("f"))).await.unwrap();
    assert_eq!(file.attributes().await.unwrap().links, 0);
    assert_eq!(file.read(0, 10).await.unwrap(), "hello");
    let inode = file.inode();
    file.close().await.unwrap();
    // Its data is removed, and then nothing of it is left.
    client.delete_volume(&volume).await.unwrap();
    assert!(volume.attributes(inode).await.is_err());
}

/// The volume is at one daemon, and the content of the file would be at the other, which is not there.
#[tokio::test]
async fn what_nothing_was_written_to_is_read_where_its_volume_is() {
    let mut cluster = Cluster::start_with("", (2, 1), Settings::default());
    let client = cluster.client().await;
    let (volume, first) = with_file(&client).await;
    let node_of = |object| cluster.map().members(object)[0];
    let here = node_of(volume.object());
    let mut file = first;
    for number in 0.. {
        if node_of(file_object(volume.object(), file.inode())) != here {
            break;
        }
        file = create(&client, &volume, &format!("f{number}")).await;
    }
    let there = node_of(file_object(volume.object(), file.inode()));
    cluster.kill_daemon(there.0).await;
    assert_eq!(file.read(0, 10).await.unwrap(), Bytes::new());
    assert_eq!(file.set_modified(&Who::root(), SetTime::To(WallTime::ZERO)).await.unwrap().size, 0);
    file.sync().await.unwrap();
    let seen = client.attributes(&volume, file.inode()).await.unwrap();
    assert_eq!((seen.size, seen.may_have_content()), (0, false));
    // What is written through another handle is seen through this one.
    cluster.start_daemon(there.0);
    let other = client.open_file(&volume, &Who::root(), (file.inode(), OpenMode::ReadWrite)).await.unwrap();
    other.write(0, "hello".into()).await.unwrap();
    assert_eq!(file.read(0, 10).await.unwrap(), "hello");
    assert_eq!(client.attributes(&volume, file.inode()).await.unwrap().size, 5);
}
