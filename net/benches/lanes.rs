//! What the lanes of two endpoints carry on this machine: both on one thread, as in a daemon's loop.
//!
//! `cargo bench -p net --bench lanes` prints one line for each load. Losses are counted at the receiver.
#![expect(clippy::print_stdout, reason = "a measurement prints what it measured")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{ClusterId, Incarnation, NodeId, Process, Role, StoreId, WallTime};
use bytes::Bytes;
use net::{
    Admission, Authority, Caller, Config, Endpoint, Event, Inbox, Link, Network, Owner, Path, Peer, Reading,
    SendError, Validity,
};
use tokio::task::JoinSet;
use tokio::time::timeout;
use wire::{Hello, Introduction, Kind, NodeIntroduction};

const CLUSTER: ClusterId = ClusterId(*b"a cluster to run");
const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
const BURST: usize = 1_000;
/// Datagrams that have not come after this long without any other are lost.
const QUIET: Duration = Duration::from_millis(100);

struct Host(NodeId);

/// One endpoint and everything that keeps it going.
struct End {
    network: Network,
    inbox: Inbox,
}

struct Pair {
    caller: End,
    answerer: End,
    link: Link,
    _call: Caller,
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for bytes in [1_000, 4_000, 6_000] {
            for bursts in [1, 10, 100] {
                datagrams(bytes, bursts, true).await;
            }
            datagrams(bytes, 50, false).await;
        }
        for bytes in [100, 1_000, 4_096] {
            frames(bytes).await;
        }
        transfers().await;
    });
}

/// Sends bursts of datagrams and counts what arrives. Spaced bursts leave the receiver time to catch up.
async fn datagrams(bytes: usize, bursts: usize, is_spaced: bool) {
    let mut pair = Pair::start().await;
    let mut datagram = vec![0; bytes];
    datagram[..2].copy_from_slice(&[Kind::Lease as u8, wire::PROTOCOL_VERSION]);
    let datagram = Bytes::from(datagram);
    let (started, mut last, mut arrived) = (Instant::now(), Instant::now(), 0);
    let mut events = Vec::new();
    for _ in 0..bursts {
        for _ in 0..BURST {
            pair.link.datagram(datagram.clone()).unwrap();
        }
        let end = if is_spaced { arrived + BURST } else { 0 };
        while is_spaced && arrived < end {
            if timeout(QUIET, pair.answerer.inbox.receive(&mut events)).await.is_err() {
                break;
            }
            arrived += count(&mut events);
            last = Instant::now();
        }
        if !is_spaced {
            tokio::task::yield_now().await;
            pair.answerer.inbox.try_receive(&mut events);
            arrived += count(&mut events);
        }
    }
    while timeout(QUIET, pair.answerer.inbox.receive(&mut events)).await.is_ok() {
        let more = count(&mut events);
        arrived += more;
        if more > 0 {
            last = Instant::now();
        }
    }
    let seconds = (last - started).as_secs_f64();
    let sent = bursts * BURST;
    let stats = pair.link.stats();
    println!(
        "datagrams of {bytes} bytes, {bursts:>3} bursts of {BURST} {}: {arrived} of {sent} arrived in {:.1} ms, {:.0}/s, \
         {:.0} MB/s; {} packets lost, {} datagrams dropped before sending",
        if is_spaced { "one by one" } else { "at once   " },
        seconds * 1e3,
        arrived as f64 / seconds,
        (arrived * bytes) as f64 / seconds / 1e6,
        stats.packets_lost,
        stats.datagrams_dropped_sending,
    );
    pair.close().await;
}

/// Keeps the lane of small messages full for a while.
async fn frames(bytes: usize) {
    let mut pair = Pair::start().await;
    let mut frame = vec![0; wire::HEADER_BYTES + bytes];
    frame[..2].copy_from_slice(&[Kind::Peer as u8, wire::PROTOCOL_VERSION]);
    frame[4..8].copy_from_slice(&u32::try_from(bytes).unwrap().to_le_bytes());
    let frame = Bytes::from(frame);
    let (total, started) = (500_000_000 / (bytes + 400), Instant::now());
    let (mut sent, mut arrived, mut events, mut batches) = (0, 0, Vec::new(), 0);
    while arrived < total {
        while sent < total && sent - arrived < 2_000 {
            match pair.link.send(frame.clone()) {
                Ok(()) => sent += 1,
                Err(SendError::Backlog { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        pair.answerer.inbox.receive(&mut events).await;
        batches += events.len();
        arrived += count(&mut events);
    }
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "frames of {bytes} bytes: {:.0}/s, {:.0} MB/s, {:.0} in an event; {} packets lost",
        arrived as f64 / seconds,
        (arrived * bytes) as f64 / seconds / 1e6,
        arrived as f64 / batches as f64,
        pair.link.stats().packets_lost,
    );
    pair.close().await;
}

/// Sends transfers of 1 MiB, four at a time.
async fn transfers() {
    let mut pair = Pair::start().await;
    let (count, at_once, piece) = (1_000, 4, Bytes::from(vec![0; 1 << 20]));
    let (started, mut arrived, mut events, mut opened) = (Instant::now(), 0, Vec::new(), 0);
    let (mut senders, mut receivers) = (JoinSet::new(), JoinSet::new());
    while arrived < count {
        while opened < count && opened - arrived < at_once {
            opened += 1;
            let (link, piece) = (pair.link.clone(), piece.clone());
            senders.spawn(async move {
                let mut bulk = link.open_bulk().await.unwrap();
                bulk.send.send(piece).await.unwrap();
                bulk.send.finish();
                bulk.receive.receive_all(0).await.unwrap();
            });
        }
        tokio::select! {
            _ = pair.answerer.inbox.receive(&mut events) => {}
            Some(_) = receivers.join_next() => arrived += 1,
        }
        for event in events.drain(..) {
            if let Event::Bulk(_, mut bulk) = event {
                bulk.send.finish();
                receivers
                    .spawn(async move { while bulk.receive.receive(usize::MAX).await.unwrap().is_some() {} });
            }
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    let megabytes = (count * piece.len()) as f64 / 1e6;
    let lost = pair.link.stats().packets_lost;
    println!("transfers of 1 MiB, {at_once} at once: {:.0} MB/s; {lost} packets lost", megabytes / seconds);
    pair.close().await;
}

fn count(events: &mut Vec<Event>) -> usize {
    let count = |event| match event {
        Event::Datagrams(_, batch) | Event::Frames(_, batch) => batch.len(),
        Event::Closed(_, reason) => panic!("{reason}"),
        _ => 0,
    };
    events.drain(..).map(count).sum()
}

impl Pair {
    async fn start() -> Self {
        let authority = Authority::new(CLUSTER, Validity::ALWAYS).unwrap();
        let (caller, answerer) = (End::start(&authority, 1), End::start(&authority, 2));
        let mut pair = (caller, answerer);
        let call = pair.0.network.keep_calling(NodeId(2), &pair.1.network.address().to_string());
        let link = opened(&mut pair.0.inbox).await;
        opened(&mut pair.1.inbox).await;
        Self { caller: pair.0, answerer: pair.1, link, _call: call }
    }

    async fn close(self) {
        self.caller.network.close().await;
        self.answerer.network.close().await;
    }
}

async fn opened(inbox: &mut Inbox) -> Link {
    let mut events = Vec::new();
    loop {
        assert!(inbox.receive(&mut events).await);
        for event in events.drain(..) {
            if let Event::Opened(link) = event {
                return link;
            }
        }
    }
}

impl End {
    fn start(authority: &Authority, node: u32) -> Self {
        let node = NodeId(node);
        let identity = authority.issue(&Role::Node(node), &[], Validity::ALWAYS).unwrap();
        let endpoint = Endpoint::bind(LOOPBACK, &identity, Path::Loopback).unwrap();
        let (network, inbox) = Network::start(endpoint, Config::default(), Arc::new(Host(node))).unwrap();
        Self { network, inbox }
    }
}

impl Owner for Host {
    fn hello(&self, _: &Peer) -> Hello {
        let introduction = NodeIntroduction {
            process: Process { node: self.0, incarnation: Incarnation(1) },
            store: StoreId([1; 16]),
            nonce: 1,
            line: base::StartId { incarnation: Incarnation(1), nonce: 1 },
            knows: None,
        };
        Hello { cluster: CLUSTER, map_version: 1, map_digest: [0; 32], who: Introduction::Node(introduction) }
    }

    fn admit<'a>(&'a self, _: &'a Peer, _: &'a Hello) -> Admission<'a> {
        Box::pin(async { Ok(()) })
    }

    fn clock(&self) -> Reading {
        Reading { time: WallTime::ZERO, is_fixed: true }
    }
}
