//! The three lanes between two endpoints on real sockets, and what they do when their owner is slow.

use bytes::Bytes;

use super::pair::Pair;
use super::world::{numbered_datagram, numbered_frame};
use crate::{BulkError, Config, DatagramError, Event, SendError};

#[tokio::test]
async fn the_last_words_before_a_close_arrive() {
    let mut pair = Pair::start(Config::default()).await;
    for number in 0..1_000 {
        pair.out.send(numbered_frame(number)).unwrap();
    }
    pair.out.close_after_sending("going home");
    assert_eq!(pair.out.send(numbered_frame(0)), Err(SendError::Closed));
    assert_eq!(pair.answerer.frames(1_000).await.len(), 1_000);
    assert_eq!(pair.answerer.closed().await, "the peer closed it: going home");
    assert_eq!(pair.caller.closed().await, "we closed it: going home");
}

#[tokio::test]
async fn an_owner_that_does_not_read_makes_its_peer_wait() {
    let config = Config { inbox_events: 2, message_queue_bytes: 1 << 20, ..Config::default() };
    let mut pair = Pair::start(config).await;
    let frame = numbered_frame(7);
    let mut sent = 0;
    // What fits the windows, the queues and the inbox is bounded, or this would never end.
    loop {
        match pair.out.send(frame.clone()) {
            Ok(()) => sent += 1,
            Err(SendError::Backlog { .. }) if pair.out.stats().messages_waiting_bytes >= 1 << 20 => {
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                if pair.out.send(frame.clone()).is_err() {
                    break;
                }
                sent += 1;
            }
            Err(error) => panic!("{error}"),
        }
        if sent % 1_000 == 0 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(pair.answerer.frames(sent).await.len(), sent, "none is lost");
    pair.out.send(frame).unwrap();
    assert_eq!(pair.answerer.frames(1).await.len(), 1, "and then it goes on");
}

#[tokio::test]
async fn a_peer_that_does_not_read_is_left_all_the_same() {
    let config = Config { inbox_events: 2, message_queue_bytes: 1 << 20, ..Config::default() };
    let mut pair = Pair::start(config).await;
    let frame = numbered_frame(7);
    // As much as the windows, the queues and the inbox take.
    let mut refusals = 0;
    while refusals < 2 {
        match pair.out.send(frame.clone()) {
            Ok(()) => refusals = 0,
            Err(_) => {
                refusals += 1;
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
    pair.out.close_after_sending("enough");
    let closed = tokio::time::timeout(std::time::Duration::from_secs(10), pair.caller.closed()).await;
    assert_eq!(closed.unwrap(), "we closed it: enough");
}

#[tokio::test]
async fn datagrams_for_an_owner_that_does_not_read_are_dropped_and_counted() {
    let config = Config { inbox_events: 2, ..Config::default() };
    let mut pair = Pair::start(config).await;
    let count = 2_000;
    for number in 0..count {
        pair.out.datagram(numbered_datagram(1, number)).unwrap();
        // Each in an event of its own.
        if number % 10 == 0 {
            tokio::time::sleep(std::time::Duration::from_micros(200)).await;
        }
    }
    pair.out.send(numbered_frame(1)).unwrap();
    let mut arrived = 0;
    pair.answerer
        .find(|event| {
            if let Event::Datagrams(_, datagrams) = &event {
                arrived += datagrams.len();
            }
            matches!(event, Event::Frames(..)).then_some(())
        })
        .await;
    let dropped = pair.back.stats().datagrams_dropped_receiving;
    assert!(dropped > 0, "the inbox of two events took all");
    assert!(arrived as u64 + dropped <= u64::from(count), "{arrived} and {dropped}");
    assert_eq!(pair.out.stats().datagrams_dropped_sending, 0);
}

#[tokio::test]
async fn a_datagram_that_fits_no_packet_is_refused_with_the_limit() {
    let pair = Pair::start(Config::default()).await;
    let bytes_max = pair.out.datagram_bytes_max();
    assert!(bytes_max > 6_000, "loopback carries large packets: {bytes_max}");
    let too_long = pair.out.datagram(Bytes::from(vec![1; bytes_max + 1]));
    assert_eq!(too_long, Err(DatagramError::TooLong { bytes: bytes_max + 1, bytes_max }));
}

#[tokio::test]
async fn more_datagrams_than_both_buffers_hold_push_out_the_oldest() {
    let config = Config { datagram_queue_bytes: 100_000, inbox_events: 10_000, ..Config::default() };
    let mut pair = Pair::start(config).await;
    let count = 200_000;
    // Nothing is sent before this task waits for something.
    for number in 0..count {
        pair.out.datagram(numbered_datagram(1, number)).unwrap();
    }
    let dropped = pair.out.stats().datagrams_dropped_sending;
    assert!((1..u64::from(count)).contains(&dropped), "{dropped}");
    let newest = count - 1;
    let mut last = None;
    pair.answerer
        .find(|event| {
            if let Event::Datagrams(_, datagrams) = event {
                last = datagrams.last().map(|datagram| datagram.decode_leases().unwrap().settings);
            }
            (last == Some(newest)).then_some(())
        })
        .await;
}

#[tokio::test]
async fn a_transfer_arrives_whole_or_is_given_up() {
    let mut pair = Pair::start(Config::default()).await;
    for (is_finished, expected) in [(true, Ok(3 << 20)), (false, Err(BulkError::GivenUp))] {
        let link = pair.out.clone();
        let sending = tokio::spawn(async move {
            let mut bulk = link.open_bulk().await.unwrap();
            for _ in 0..3 {
                bulk.send.send(Bytes::from(vec![5; 1 << 20])).await.unwrap();
            }
            if is_finished {
                bulk.send.finish()
            } else {
                drop(bulk.send)
            }
            // The answerer has read it all, or has noticed.
            bulk.receive.receive_all(0).await
        });
        let mut bulk = pair
            .answerer
            .find(|event| if let Event::Bulk(_, bulk) = event { Some(bulk) } else { None })
            .await;
        let received = bulk.receive.receive_all(4 << 20).await.map(|bytes| bytes.len());
        assert_eq!(received, expected);
        bulk.send.finish();
        assert_eq!(sending.await.unwrap(), Ok(Vec::new()));
    }
    let link = pair.out.clone();
    let mut bulk = link.open_bulk().await.unwrap();
    bulk.send.send(Bytes::from_static(b"more than three")).await.unwrap();
    let mut other =
        pair.answerer.find(|event| if let Event::Bulk(_, bulk) = event { Some(bulk) } else { None }).await;
    assert_eq!(other.receive.receive_all(3).await, Err(BulkError::TooLong { bytes_max: 3 }));
}
