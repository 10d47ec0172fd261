//! Objects through the library, the network and real daemons.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use client::{Client, FileError, Object, ObjectError, READ_BYTES_MAX, WRITE_BYTES_MAX};
use node::Settings;
use tokio::task::JoinSet;

use crate::cluster::Cluster;

const RECORD: usize = 16;

async fn created(client: &Client, name: &str) -> Object {
    let object = client.object_named(name).unwrap();
    object.create().await.unwrap();
    object
}

fn record(number: usize) -> Bytes {
    format!("{number:>RECORD$}").into()
}

#[tokio::test]
async fn everything_can_be_done_to_an_object() {
    let cluster = Cluster::start(3, Settings::default());
    let client = cluster.client().await;
    let nothing = client.object_named("a").unwrap();
    assert_eq!(nothing.stat().await, Err(ObjectError::NoSuchObject));
    let object = created(&client, "a").await;
    object.write(3, "content".into()).await.unwrap();
    assert_eq!(object.append("!".into()).await, Ok(10));
    object.punch(4, 2).await.unwrap();
    assert_eq!(object.read(0, 100).await.unwrap(), &b"\0\0\0c\0\0tent!"[..]);
    assert_eq!(object.truncate(5).await.unwrap().size, 5);
    assert_eq!(object.write_synced(0, "C".into()).await.unwrap().size, 5);
    object.sync().await.unwrap();
    assert_eq!(object.stat().await.unwrap().size, 5);
    let (length, bytes_max) = (WRITE_BYTES_MAX + 1, WRITE_BYTES_MAX);
    let refused = Err(ObjectError::Refused(FileError::TooLong { length, bytes_max }));
    assert_eq!(object.append(vec![0; usize::try_from(length).unwrap()].into()).await, refused);
    let too_long = object.read(0, READ_BYTES_MAX + 1).await;
    assert!(matches!(too_long, Err(ObjectError::Refused(FileError::TooLong { .. }))), "{too_long:?}");
    object.remove().await.unwrap();
    assert_eq!(object.read(0, 1).await, Err(ObjectError::NoSuchObject));
    assert_eq!(object.remove().await, Err(ObjectError::NoSuchObject));
    object.create().await.unwrap();
    assert_eq!(object.stat().await.unwrap().size, 0);
    client.close().await;
    assert_eq!(object.stat().await, Err(ObjectError::Closed), "nobody answers for ever");
}

/// Many appends to some objects at once, while daemons are taken away and come back: each is there exactly once.
#[tokio::test]
async fn what_is_appended_is_there_once_whoever_is_killed() {
    const OBJECTS: usize = 8;
    const RECORDS: usize = 150;
    let mut cluster = Cluster::start(3, Settings::default());
    let client = cluster.client().await;
    let (mut appends, mut objects) = (JoinSet::new(), Vec::new());
    for name in 0..OBJECTS {
        let object = created(&client, &name.to_string()).await;
        for first in 0..5 {
            let object = object.clone();
            appends.spawn(async move {
                for number in (first..RECORDS).step_by(5) {
                    object.append(record(number)).await.unwrap();
                }
            });
        }
        objects.push(object);
    }
    for node in 1..=3 {
        cluster.kill_daemon(node).await;
        cluster.start_daemon(node);
        // Each of these is in the middle of whatever goes on.
        objects[0].append(record(RECORDS + node as usize)).await.unwrap();
    }
    while let Some(appended) = appends.join_next().await {
        appended.unwrap();
    }
    for (name, object) in objects.iter().enumerate() {
        let content = object.read(0, READ_BYTES_MAX).await.unwrap();
        let records: Vec<usize> = content
            .chunks(RECORD)
            .map(|record| str::from_utf8(record).unwrap().trim().parse().unwrap())
            .collect();
        let distinct: BTreeSet<usize> = records.iter().copied().collect();
        assert_eq!(records.len(), distinct.len(), "object {name} has records twice");
        let expected = RECORDS + if name == 0 { 3 } else { 0 };
        assert_eq!(records.len(), expected, "object {name} lacks records");
    }
    client.close().await;
}

#[tokio::test]
async fn more_than_fits_under_way_takes_turns() {
    let cluster = Cluster::start(3, Settings::default());
    let client = cluster.client().await;
    let object = created(&client, "a").await;
    let piece = |number: u8| Bytes::from(vec![number; 1 << 20]);
    let mut tasks = JoinSet::new();
    for number in 0..32 {
        let object = object.clone();
        tasks.spawn(async move { object.write(u64::from(number) << 20, piece(number)).await.map(drop) });
    }
    while let Some(written) = tasks.join_next().await {
        written.unwrap().unwrap();
    }
    object.sync().await.unwrap();
    for number in 0..32 {
        let object = object.clone();
        tasks.spawn(async move {
            let read = object.read(u64::from(number) << 20, 1 << 20).await?;
            assert!(read == piece(number), "piece {number} is another one");
            Ok(())
        });
    }
    while let Some(read) = tasks.join_next().await {
        read.unwrap().unwrap();
    }
    client.close().await;
}

#[tokio::test]
async fn without_a_majority_nobody_is_kept_waiting_for_ever() {
    let mut cluster = Cluster::start(3, Settings::default());
    let client = cluster.client().await;
    let object = created(&client, "a").await.with_patience(Duration::from_millis(700));
    object.write(0, "kept".into()).await.unwrap();
    cluster.kill_daemon(1).await;
    cluster.kill_daemon(2).await;
    let unanswered = object.write(0, "lost".into()).await;
    assert!(matches!(unanswered, Err(ObjectError::Unanswered { .. })), "{unanswered:?}");
    cluster.start_daemon(1);
    let object = object.with_patience(Duration::from_secs(30));
    object.write(4, "!".into()).await.unwrap();
    assert_eq!(object.stat().await.unwrap().size, 5);
    client.close().await;
}
