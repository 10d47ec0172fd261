//! Locks and objects through the library, the network and real daemons.

mod cluster;
mod objects;

use std::time::Duration;

use cluster::Cluster;
use node::Settings;

#[tokio::test]
async fn a_lock_has_one_holder_and_rising_tokens() {
    let cluster = Cluster::start(3, Settings::default());
    let (one, other) = (cluster.client().await, cluster.client().await);
    let first = one.lock("a").await.unwrap();
    assert!(first.is_held());
    assert!(other.try_lock("a").await.unwrap().is_none());
    assert!(other.try_lock("b").await.unwrap().is_some(), "another lock is free");
    let token = first.token();
    first.release().await;
    let second = other.lock("a").await.unwrap();
    assert!(second.token() > token && second.is_held());
    one.close().await;
    other.close().await;
}

#[tokio::test]
async fn who_waits_gets_the_lock_when_it_is_released() {
    let cluster = Cluster::start(3, Settings::default());
    let (one, other) = (cluster.client().await, cluster.client().await);
    let first = one.lock("a").await.unwrap();
    assert!(other.lock_within("a", Duration::from_millis(100)).await.unwrap().is_none());
    let waiting = tokio::spawn(async move { other.lock("a").await.unwrap().token() });
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    assert!(first.is_held() && !waiting.is_finished(), "sessions are kept alive");
    let token = first.token();
    first.release().await;
    assert!(waiting.await.unwrap() > token);
}

#[tokio::test]
async fn a_lock_survives_the_clean_stop_of_its_daemon() {
    let mut cluster = Cluster::start(3, Settings::default());
    let (one, other) = (cluster.client().await, cluster.client().await);
    let mut held = Vec::new();
    for name in ["a", "b", "c", "d", "e", "f"] {
        held.push((name, one.lock(name).await.unwrap()));
    }
    cluster.stop_daemon(2).await.unwrap();
    for (name, lock) in &held {
        assert!(lock.is_held(), "{name}");
        assert!(other.try_lock(name).await.unwrap().is_none(), "{name}");
    }
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    assert!(held.iter().all(|(_, lock)| lock.is_held()));
}

#[tokio::test]
async fn who_watches_a_lock_hears_that_its_client_is_closed() {
    let cluster = Cluster::start(1, Settings::default());
    let client = cluster.client().await;
    let lock = client.lock("a").await.unwrap();
    client.close().await;
    let lost = tokio::time::timeout(Duration::from_secs(10), lock.lost()).await;
    assert!(lost.is_ok() && !lock.is_held(), "nothing is confirmed any longer");
    let next = cluster.client().await;
    assert!(next.try_lock("a").await.unwrap().is_some(), "it was given back");
}

#[tokio::test]
async fn a_daemon_that_waits_for_its_data_directory_can_be_stopped() {
    let mut cluster = Cluster::start(1, Settings::default());
    cluster.client().await.close().await;
    cluster.stop_daemon(1).await.unwrap();
    let _elsewhere = cluster.lock_data(1);
    cluster.start_daemon(1);
    tokio::time::sleep(Duration::from_millis(100)).await;
    // An error would say that it waited to the end and found the directory in use.
    cluster.stop_daemon(1).await.unwrap();
}

#[tokio::test]
async fn every_daemon_says_how_it_is() {
    let mut cluster = Cluster::start(3, Settings::default());
    let client = cluster.client().await;
    let _lock = client.lock("a").await.unwrap();
    cluster.kill_daemon(3).await;
    let states = client.status().await;
    assert_eq!(states.len(), 3);
    for state in &states[..2] {
        let status = state.status.as_ref().unwrap();
        assert_eq!(status.daemon.process.node, state.node);
        assert_eq!(status.quarantine_ms, 0);
    }
    assert!(states[2].status.is_err());
}
