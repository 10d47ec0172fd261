//! What clients know of volumes without asking.

use std::time::{Duration, Instant};

use client::{Client, Volume, VolumeError};
use namespace::{Attributes, InodeId, Make, NameError, Who};
use node::Settings;
use tokio::runtime::Builder;

use super::cluster::Cluster;
use super::{called, made, name};

/// A session's length, by default, and time for everything else on a machine that is busy with so many daemons.
const DELAY_MAX: Duration = Duration::from_millis(900 + 2_000);
const ROOT: InodeId = InodeId::ROOT;

async fn look(volume: &Volume, text: &str) -> Result<Attributes, VolumeError> {
    volume.lookup(&Who::root(), ROOT, name(text)).await
}

/// Asks until it is answered without asking anybody: at first the client is put on record in the volume.
async fn known(client: &Client, volume: &Volume, text: &str) -> Result<Attributes, VolumeError> {
    let start = Instant::now();
    loop {
        let before = client.cache_hits();
        let found = look(volume, text).await;
        if client.cache_hits() > before {
            return found;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "it is never granted");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn is_absent(found: &Result<Attributes, VolumeError>) -> bool {
    *found == Err(VolumeError::Refused(NameError::NoEntry { dir: ROOT }))
}

#[tokio::test]
async fn what_others_change_is_seen_at_once() {
    let cluster = Cluster::start(3, Settings::default());
    let [reader, writer] = [cluster.client().await, cluster.client().await];
    writer.create_volume(&called("v"), (0, 0)).await.unwrap();
    let mine = reader.volume(&called("v")).await.unwrap();
    let theirs = writer.volume(&called("v")).await.unwrap();
    for round in 0..20 {
        let text = format!("n{round}");
        assert!(is_absent(&known(&reader, &mine, &text).await));
        let before = reader.cache_hits();
        for _ in 0..100 {
            assert!(is_absent(&look(&mine, &text).await));
        }
        assert!(reader.cache_hits() >= before + 90, "nearly all of it without asking");
        let there = made(&theirs, (ROOT, &text), Make::Fifo).await.unwrap();
        assert_eq!(look(&mine, &text).await, Ok(there.clone()));
        assert_eq!(known(&reader, &mine, &text).await, Ok(there));
    }
    reader.close().await;
    writer.close().await;
}

#[tokio::test]
async fn what_one_changes_oneself_is_known_without_asking() {
    let cluster = Cluster::start(3, Settings::default());
    let client = cluster.client().await;
    let volume = client.create_volume(&called("v"), (0, 0)).await.unwrap();
    assert!(is_absent(&known(&client, &volume, "a").await));
    for round in 0..50 {
        let text = format!("n{round}");
        let there = made(&volume, (ROOT, &text), Make::Directory).await.unwrap();
        let before = client.cache_hits();
        assert_eq!(look(&volume, &text).await, Ok(there));
        assert_eq!(client.cache_hits(), before + 1);
    }
    client.close().await;
}

/// Nobody runs what the client consists of, as if its process was stopped.
#[test]
fn a_client_that_is_frozen_delays_others_no_longer_than_its_session() {
    let runtime = Builder::new_multi_thread().enable_all().build().unwrap();
    let of_frozen = Builder::new_current_thread().enable_all().build().unwrap();
    let cluster = Cluster::start(3, Settings::default());
    let (writer, theirs) = runtime.block_on(async {
        let writer = cluster.client().await;
        let volume = writer.create_volume(&called("v"), (0, 0)).await.unwrap();
        (writer, volume)
    });
    let (frozen, mine) = of_frozen.block_on(async {
        let frozen = cluster.client().await;
        let volume = frozen.volume(&called("v")).await.unwrap();
        assert!(is_absent(&known(&frozen, &volume, "a").await));
        (frozen, volume)
    });
    let start = Instant::now();
    let there = runtime.block_on(made(&theirs, (ROOT, "a"), Make::Fifo)).unwrap();
    assert!(start.elapsed() < DELAY_MAX, "{:?}", start.elapsed());
    let start = Instant::now();
    runtime.block_on(made(&theirs, (ROOT, "b"), Make::Fifo)).unwrap();
    assert!(
        start.elapsed() < Duration::from_millis(700),
        "{:?} for what nobody knows any more",
        start.elapsed()
    );
    of_frozen.block_on(async {
        assert_eq!(look(&mine, "a").await, Ok(there), "it does not believe what it knew");
        frozen.close().await;
    });
    runtime.block_on(writer.close());
}
