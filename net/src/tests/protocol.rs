//! What happens to peers that do not keep to the protocol, on real sockets. In each test the network goes on
//! working for everybody else.

use std::sync::Arc;
use std::time::Duration;

use base::{NodeId, Process};
use wire::{NoticeAck, Refusal, Welcome, Why};

use super::pair::{ByHand, CLUSTER, End, LOOPBACK, Pair, authority, hello, identity};
use super::world::{numbered_datagram, numbered_frame};
use crate::endpoint::Endpoint;
use crate::frames::ReadFramesError;
use crate::{Config, ConnectError, Event, Path, server_name, tls};

fn one_more() -> Vec<u8> {
    let mut bytes = Vec::new();
    wire::encode(&NoticeAck { dead: Process::new(1, 1) }, &mut bytes);
    bytes
}

#[tokio::test]
async fn another_version_in_the_hello_is_said_to_both() {
    let authority = authority();
    let mut end = End::start(&identity(&authority, "node/1"), Config::default());
    let mut peer = ByHand::connect(&identity(&authority, "client/old"), &end).await;
    let mut bytes = Vec::new();
    wire::encode(&hello(&"client/old".parse().unwrap()), &mut bytes);
    bytes[1] = 9;
    peer.send.write_all(&bytes).await.unwrap();

    let mut stream = peer.listen().await;
    stream.next().await.unwrap();
    let refusal: Refusal = stream.next().await.unwrap().decode().unwrap();
    assert_eq!(refusal.why(), Why::Version);
    peer.connection.close(0_u32.into(), b"");
    let ours = end.refused().await;
    for text in [refusal.text(), &ours] {
        assert!(
            text.contains("version 9 of the protocol") && text.contains("run the same version"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn another_version_in_the_handshake_is_said_to_both() {
    let authority = authority();
    let mut end = End::start(&identity(&authority, "node/1"), Config::default());
    let endpoint = Endpoint::bind(LOOPBACK, &identity(&authority, "client/old"), Path::Loopback).unwrap();
    let old = tls::client_of_version(&identity(&authority, "client/old"), b"fleasefs/0").unwrap();
    let call = endpoint.inner.connect_with(
        quinn::ClientConfig::new(Arc::new(old)),
        end.network.address(),
        &server_name(CLUSTER, NodeId(1)),
    );
    let theirs = ConnectError::from(call.unwrap().await.unwrap_err()).to_string();
    assert!(theirs.contains("another version of the protocol"), "{theirs}");
    assert_eq!(end.refused().await, theirs);
}

#[tokio::test]
async fn a_client_is_cut_off_when_it_sends_what_only_nodes_may_send() {
    let authority = authority();
    let mut end = End::start(&identity(&authority, "node/1"), Config::default());
    let client = identity(&authority, "client/a");
    for is_datagram in [false, true] {
        let mut peer = ByHand::connect(&client, &end).await;
        let _stream = peer.introduce("client/a").await;
        let kind = if is_datagram {
            peer.connection.send_datagram(numbered_datagram(1, 1)).unwrap();
            "lease"
        } else {
            peer.send.write_all(&one_more()).await.unwrap();
            "notice ack"
        };
        let text = format!("client/a may not send a {kind} frame");
        assert_eq!(end.closed().await, format!("the peer broke the protocol: {text}"));
        let told = peer.told().await;
        assert!(told.contains(&text), "{told}");
    }
}

#[tokio::test]
async fn introductions_are_not_made_twice() {
    let authority = authority();
    let mut end = End::start(&identity(&authority, "node/1"), Config::default());
    let mut peer = ByHand::connect(&identity(&authority, "client/a"), &end).await;
    let _stream = peer.introduce("client/a").await;
    let mut bytes = Vec::new();
    wire::encode(&Welcome, &mut bytes);
    peer.send.write_all(&bytes).await.unwrap();
    assert_eq!(end.closed().await, "the peer broke the protocol: a welcome frame after the introductions");
}

#[tokio::test]
async fn garbage_in_place_of_a_hello_is_refused() {
    let authority = authority();
    let mut end = End::start(&identity(&authority, "node/1"), Config::default());
    for (garbage, why) in [(vec![0xff; 100], "frame kind 255"), (one_more(), "may not send a notice ack")] {
        let mut peer = ByHand::connect(&identity(&authority, "client/a"), &end).await;
        peer.send.write_all(&garbage).await.unwrap();
        let mut stream = peer.listen().await;
        stream.next().await.unwrap();
        let refusal: Refusal = stream.next().await.unwrap().decode().unwrap();
        assert_eq!(refusal.why(), Why::Protocol);
        assert!(refusal.text().contains(why), "{refusal}");
        peer.connection.close(0_u32.into(), b"");
        assert!(end.refused().await.contains(why));
    }
}

#[tokio::test]
async fn a_hello_that_does_not_fit_the_certificate_is_refused() {
    let authority = authority();
    let mut end = End::start(&identity(&authority, "node/1"), Config::default());
    let mut peer = ByHand::connect(&identity(&authority, "node/3"), &end).await;
    let mut bytes = Vec::new();
    wire::encode(&hello(&"node/2".parse().unwrap()), &mut bytes);
    peer.send.write_all(&bytes).await.unwrap();
    let mut stream = peer.listen().await;
    stream.next().await.unwrap();
    let refusal: Refusal = stream.next().await.unwrap().decode().unwrap();
    peer.connection.close(0_u32.into(), b"");
    assert!(end.refused().await.contains(refusal.text()));
}

#[tokio::test]
async fn a_peer_that_never_introduces_itself_is_given_up() {
    let authority = authority();
    let config = Config { hello_timeout: Duration::from_millis(50), ..Config::default() };
    let mut end = End::start(&identity(&authority, "node/1"), config);
    let peer = ByHand::connect(&identity(&authority, "client/a"), &end).await;
    assert!(end.refused().await.ends_with("did not introduce itself in time"));
    peer.told().await;
}

#[tokio::test]
async fn a_peer_whose_transport_lives_but_who_says_nothing_is_silent() {
    let authority = authority();
    let config = Config { heartbeat_interval: Duration::from_millis(10), ..Config::default() };
    let mut end = End::start(&identity(&authority, "node/1"), config);
    let mut peer = ByHand::connect(&identity(&authority, "node/2"), &end).await;
    let mut stream = peer.introduce("node/2").await;
    assert_eq!(end.closed().await, "the peer was silent for 80ms");
    assert!(peer.told().await.contains("silent for 80ms"));
    assert!(matches!(stream.next().await, Err(ReadFramesError::Connection(_))));
}

/// It answers no heartbeat: they only tell it that the node lives, as anything else does.
#[tokio::test]
async fn a_client_that_hears_nothing_else_has_a_heartbeat_now_and_then() {
    let authority = authority();
    let beat = Duration::from_millis(10);
    let config = Config { heartbeat_interval: beat, ..Config::default() };
    let mut end = End::start(&identity(&authority, "node/1"), config);
    let mut peer = ByHand::connect(&identity(&authority, "client/a"), &end).await;
    let _stream = peer.introduce("client/a").await;
    let link = end.opened().await;
    let heard = || peer.connection.stats().frame_rx.datagram;
    tokio::time::sleep(beat * 30).await;
    let silent = heard();
    assert!((1..=16).contains(&silent), "one in two beats, not {silent} in 30");
    for number in 0..30 {
        link.send(numbered_frame(number)).unwrap();
        tokio::time::sleep(beat).await;
    }
    let beside = heard() - silent;
    assert!(beside <= 2, "{beside} beside frames");
}

#[tokio::test]
async fn a_certificate_that_is_denied_later_loses_its_connection() {
    let authority = authority();
    let answering = identity(&authority, "node/1");
    let (mut end, client) = (End::start(&answering, Config::default()), identity(&authority, "client/a"));
    let mut calling = End::start(&client, Config::default());
    let _call = calling.call(1, &end);
    end.opened().await;
    answering.deny_list().replace(client.peer().fingerprint.to_string().parse().unwrap());
    assert_eq!(end.closed().await, "the peer's certificate was denied");
    assert!(calling.closed().await.contains("the certificate is on the deny list"));
    let error = calling.find(|event| match event {
        Event::CallFailed { error, .. } => Some(error.to_string()),
        _ => None,
    });
    let error = error.await;
    assert!(error.contains("certificate"), "{error}");
}

/// The first packet of a real call.
async fn first_packet() -> Vec<u8> {
    let tap = tokio::net::UdpSocket::bind(LOOPBACK).await.unwrap();
    let endpoint = Endpoint::bind(LOOPBACK, &identity(&authority(), "client/a"), Path::Loopback).unwrap();
    let _call = endpoint.inner.connect(tap.local_addr().unwrap(), &server_name(CLUSTER, NodeId(1))).unwrap();
    let mut packet = vec![0; 10_000];
    let length = tap.recv(&mut packet).await.unwrap();
    packet.truncate(length);
    packet
}

/// Callers that only pretend to be where their packets come from never answer.
#[tokio::test]
async fn made_up_callers_leave_places_for_real_ones() {
    let authority = authority();
    let hello_timeout = Duration::from_secs(600);
    let config = Config { handshakes_max: 2, hello_timeout, ..Config::default() };
    let mut answerer = End::start(&identity(&authority, "node/2"), config);
    let noise = std::net::UdpSocket::bind(LOOPBACK).unwrap();
    for _ in 0..8 {
        noise.send_to(&first_packet().await, answerer.network.address()).unwrap();
    }
    let caller = End::start(&identity(&authority, "node/1"), Config::default());
    let _call = caller.call(2, &answerer);
    answerer.opened().await;
}

#[tokio::test]
async fn truncated_and_oversized_calls_disturb_nobody() {
    let mut pair = Pair::start(Config::default()).await;
    let target = pair.answerer.network.address();
    let noise = std::net::UdpSocket::bind(LOOPBACK).unwrap();
    let packet = first_packet().await;
    assert!(packet.len() >= 1_200, "a first packet is padded");
    for number in 0..400_u32 {
        let mut bad = packet.clone();
        match number % 4 {
            0 => bad.truncate(packet.len() * number as usize / 400),
            1 => bad.extend(vec![0x40; 50 * number as usize]),
            2 => bad[number as usize % 40] ^= 0xff,
            _ => bad.extend(packet.repeat(3)),
        }
        noise.send_to(&bad, target).unwrap();
        pair.out.send(numbered_frame(number)).unwrap();
    }
    assert_eq!(pair.answerer.frames(400).await.len(), 400);
    assert!(!pair.out.is_closed() && !pair.back.is_closed());
    drop(pair.call);
}

#[tokio::test]
async fn an_unreachable_address_is_called_again_and_each_failure_has_its_reason() {
    let authority = authority();
    let call_timeout_min = Duration::from_millis(20);
    let config = Config { call_timeout_min, call_timeout_max: call_timeout_min, ..Config::default() };
    let mut end = End::start(&identity(&authority, "node/1"), config);
    let nobody = std::net::UdpSocket::bind(LOOPBACK).unwrap().local_addr().unwrap();
    for (address, reason) in [
        (nobody.to_string(), format!("no answer from {nobody} within 20 ms; check that a daemon runs there")),
        ("127.0.0.1".to_owned(), "cannot call `127.0.0.1`".to_owned()),
        ("127.0.0.1:0".to_owned(), "cannot call `127.0.0.1:0`".to_owned()),
    ] {
        let _call = end.network.keep_calling(NodeId(2), &address);
        for expected in 1..=3 {
            let failure = end.find(|event| match event {
                Event::CallFailed { error, failures, .. } if failures == expected => Some(error.to_string()),
                _ => None,
            });
            let failure = failure.await;
            assert!(failure.starts_with(&reason), "{failure}");
        }
    }
}

#[tokio::test]
async fn garbage_on_the_port_disturbs_nobody() {
    let mut pair = Pair::start(Config::default()).await;
    let target = pair.answerer.network.address();
    let noise = std::net::UdpSocket::bind(LOOPBACK).unwrap();
    let mut random = base::Random::new(3);
    let mut sent = 0;
    for number in 0..500_u32 {
        // Empty, truncated, of any length, and longer than any packet of ours; with all kinds of first bytes.
        let length = match number % 5 {
            0 => 0,
            1 => random.below(30),
            2 => random.between(1_150, 1_250),
            3 => random.between(6_500, 6_600),
            _ => random.between(20_000, 60_000),
        };
        let packet: Vec<u8> = (0..length).map(|_| random.next_u64().to_le_bytes()[0]).collect();
        sent += usize::from(noise.send_to(&packet, target).is_ok());
        pair.out.send(numbered_frame(number)).unwrap();
    }
    assert!(sent > 450, "only {sent} packets of noise were sent");
    assert_eq!(pair.answerer.frames(500).await.len(), 500);
    assert!(!pair.out.is_closed() && !pair.back.is_closed());
    drop(pair.call);
}
