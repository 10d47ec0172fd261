//! Volumes through the library, the network and real daemons. Apart from locks, whose holders a machine that is busy with so
//! many daemons lets down.

#[expect(dead_code, reason = "tests of locks use all of it")]
#[path = "../locks/cluster.rs"]
mod cluster;
mod files;
mod opens;

use std::collections::BTreeSet;
use std::sync::Arc;

use client::{Client, Volume, VolumeError};
use namespace::{Attributes, InodeId, Kind, Make, Name, NameError, Site, Who};
use node::{Settings, VolumeName};
use tokio::task::JoinSet;

use cluster::Cluster;

mod access;
mod ahead;
mod behind;
mod caches;

fn called(text: &str) -> VolumeName {
    VolumeName::parse(text).unwrap()
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

async fn made(volume: &Volume, (dir, text): (InodeId, &str), make: Make) -> Result<Attributes, VolumeError> {
    volume.make(&Who::root(), (dir, name(text)), (make, 0o755, 0o022)).await
}

async fn names(volume: &Volume, dir: InodeId) -> BTreeSet<String> {
    let (mut names, mut after) = (BTreeSet::new(), None);
    loop {
        let page = volume.list(dir, after.take(), false).await.unwrap();
        names.extend(
            page.entries.iter().map(|listed| String::from_utf8(listed.name.as_bytes().to_vec()).unwrap()),
        );
        after = page.entries.last().map(|listed| listed.name.clone());
        if page.is_last {
            return names;
        }
    }
}

async fn all(client: &Client) -> Vec<String> {
    client.volumes().await.unwrap().iter().map(ToString::to_string).collect()
}

#[tokio::test]
async fn volumes_are_created_listed_and_deleted_when_they_are_empty() {
    let cluster = Cluster::start(3, Settings::default());
    let client = cluster.client().await;
    assert!(all(&client).await.is_empty());
    assert_eq!(client.volume(&called("home")).await.err(), Some(VolumeError::NoSuchVolume(called("home"))));
    let home = client.create_volume(&called("home"), (1_000, 100)).await.unwrap();
    client.create_volume(&called("etc"), (0, 0)).await.unwrap();
    assert_eq!(all(&client).await, ["etc", "home"]);
    let again = client.create_volume(&called("home"), (0, 0)).await;
    assert_eq!(again.err(), Some(VolumeError::Exists(called("home"))));
    let root = home.attributes(InodeId::ROOT).await.unwrap();
    assert_eq!((root.uid, root.gid, root.mode, root.kind), (1_000, 100, 0o755, Kind::Directory));
    assert!(root.btime > base::WallTime::ZERO, "the primary says when");

    made(&home, (InodeId::ROOT, "f"), Make::file()).await.unwrap();
    home.unlink(&Who::root(), Site::new(InodeId::ROOT, name("f"))).await.unwrap();
    made(&home, (InodeId::ROOT, "a"), Make::Directory).await.unwrap();
    let refused = client.delete_volume(&home).await;
    assert_eq!(refused, Err(VolumeError::NotEmpty(called("home"))));
    home.remove_directory(&Who::root(), Site::new(InodeId::ROOT, name("a"))).await.unwrap();
    client.delete_volume(&home).await.unwrap();
    assert_eq!(all(&client).await, ["etc"]);
    assert!(home.counts().await.unwrap_err().says_no_tree(), "whoever still has it finds nothing");
    let anew = client.create_volume(&called("home"), (0, 0)).await.unwrap();
    assert_ne!(anew.object(), home.object(), "it is another one");
    client.delete_volume(&home).await.unwrap();
    assert_eq!(all(&client).await, ["etc", "home"], "who deletes the old one late leaves the new one");
    client.close().await;
}

#[tokio::test]
async fn a_tree_has_files_directories_and_refusals() {
    let cluster = Cluster::start(3, Settings::default());
    let client = cluster.client().await;
    let volume = client.create_volume(&called("v"), (0, 0)).await.unwrap();
    let dir = made(&volume, (InodeId::ROOT, "dir"), Make::Directory).await.unwrap();
    let file = made(&volume, (dir.inode, "file"), Make::file()).await.unwrap();
    assert_eq!((file.kind, file.mode), (Kind::File, 0o755));
    let replicas = file.replicas.clone().unwrap();
    let object = node::file_object(volume.object(), file.inode);
    assert_eq!(replicas, client.map().view(object).members, "the primary says where it is replicated");
    assert_eq!(volume.lookup(&Who::root(), dir.inode, name("file")).await.unwrap(), file);
    let twice = made(&volume, (dir.inode, "file"), Make::file()).await;
    assert_eq!(twice, Err(VolumeError::Refused(NameError::Exists { inode: file.inode })));
    let user = Who::new(1_000, 1_000, &[]).unwrap();
    let denied = volume.unlink(&user, Site::new(dir.inode, name("file"))).await;
    assert_eq!(denied, Err(VolumeError::Refused(NameError::Denied { inode: dir.inode })));
    let not_empty = volume.remove_directory(&Who::root(), Site::new(InodeId::ROOT, name("dir"))).await;
    assert_eq!(not_empty, Err(VolumeError::Refused(NameError::NotEmpty { dir: dir.inode })));
    client.close().await;
}

/// Many creations at once, while daemons are killed and come back; then all of them start anew from what their disks have.
#[tokio::test]
async fn what_is_created_is_there_once_whoever_is_killed() {
    const FILES: usize = 300;
    let mut cluster = Cluster::start(3, Settings::default());
    let client = cluster.client().await;
    let volume = Arc::new(client.create_volume(&called("v"), (0, 0)).await.unwrap());
    let mut creations = JoinSet::new();
    for first in 0..6 {
        let volume = Arc::clone(&volume);
        creations.spawn(async move {
            for number in (first..FILES).step_by(6) {
                made(&volume, (InodeId::ROOT, &format!("f{number}")), Make::file()).await.unwrap();
            }
        });
    }
    for node in 1..=3 {
        cluster.kill_daemon(node).await;
        cluster.start_daemon(node);
        // Each of these is in the middle of whatever goes on.
        made(&volume, (InodeId::ROOT, &format!("killed-{node}")), Make::Directory).await.unwrap();
    }
    while let Some(created) = creations.join_next().await {
        created.unwrap();
    }
    let expected: BTreeSet<String> = (0..FILES)
        .map(|number| format!("f{number}"))
        .chain((1..=3).map(|node| format!("killed-{node}")))
        .collect();
    assert_eq!(names(&volume, InodeId::ROOT).await, expected);
    assert_eq!(volume.counts().await.unwrap().inodes, expected.len() as u64 + 1);
    volume.sync().await.unwrap();
    for node in 1..=3 {
        cluster.stop_daemon(node).await.unwrap();
    }
    (1..=3).for_each(|node| cluster.start_daemon(node));
    assert_eq!(names(&volume, InodeId::ROOT).await, expected, "it is read from the disks");
    client.close().await;
}
