//! A supervisor's notice of death on its way to peers that run, and to one that comes late.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use base::{ClusterId, Incarnation, NodeId, Process, Role, StartId, StoreId, WallTime};
use net::{Admission, Authority, Endpoint, Event, Inbox, Network, Path, Peer, Reading, Validity};
use node::{ClusterMap, Osd, Settings};
use osd::supervisor::{Peers, Witness};
use wire::{Hello, Introduction, NodeIntroduction, Notice, NoticeAck};

const CLUSTER: ClusterId = ClusterId([9; 16]);
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const DEAD: Process = Process { node: NodeId(1), incarnation: Incarnation(4) };
const NOTICE: Notice = Notice { dead: DEAD, line: StartId { incarnation: Incarnation(2), nonce: 7 } };

/// A daemon, as far as a supervisor sees one.
struct Daemon {
    node: NodeId,
    map: ClusterMap,
}

impl net::Owner for Daemon {
    fn hello(&self, _: &Peer) -> Hello {
        let who = NodeIntroduction {
            process: Process { node: self.node, incarnation: Incarnation(1) },
            store: StoreId([1; 16]),
            nonce: 1,
            line: StartId { incarnation: Incarnation(1), nonce: 1 },
            knows: None,
        };
        Hello {
            cluster: CLUSTER,
            map_version: self.map.version(),
            map_digest: self.map.digest(),
            who: Introduction::Node(who),
        }
    }

    fn admit<'a>(&'a self, peer: &'a Peer, hello: &'a Hello) -> Admission<'a> {
        assert_eq!(peer.role, Role::Supervisor(DEAD.node));
        assert_eq!(hello.who, Introduction::Supervisor(DEAD.node));
        assert_eq!(hello.map_digest, self.map.digest());
        Box::pin(std::future::ready(Ok(())))
    }

    fn clock(&self) -> Reading {
        Reading { time: WallTime::ZERO, is_fixed: false }
    }
}

struct Cluster {
    authority: Authority,
    map: ClusterMap,
    /// Bound, but nobody answers there yet.
    endpoints: Vec<Endpoint>,
}

impl Cluster {
    /// Node 1, whose daemon is dead, and nodes 2 and 3.
    fn new() -> Self {
        let authority = Authority::new(CLUSTER, Validity::ALWAYS).unwrap();
        let endpoints: Vec<Endpoint> = [2, 3]
            .map(|node| {
                let role = Role::Node(NodeId(node));
                let identity = authority.issue(&role, &[], Validity::ALWAYS).unwrap();
                Endpoint::bind(SocketAddr::new(LOCALHOST, 0), &identity, Path::Loopback).unwrap()
            })
            .into();
        let addresses = endpoints.iter().map(|endpoint| endpoint.address().to_string());
        let addresses = ["127.0.0.1:1".to_owned()].into_iter().chain(addresses);
        let osds = (1..).zip(addresses).map(|(id, address)| Osd { id: NodeId(id), address }).collect();
        let map = ClusterMap::new(CLUSTER, 1, 3, Settings::default(), osds).unwrap();
        Self { authority, map, endpoints }
    }

    fn witness(&self) -> Peers {
        let role = Role::Supervisor(DEAD.node);
        let identity = self.authority.issue(&role, &[], Validity::ALWAYS).unwrap();
        Peers::new(DEAD.node, self.map.clone(), identity, LOCALHOST)
    }

    /// Lets the node with the highest number that does not run yet begin to answer.
    fn start_last(&mut self) -> (Network, Inbox) {
        let node = NodeId(1 + u32::try_from(self.endpoints.len()).unwrap());
        let endpoint = self.endpoints.pop().unwrap();
        let daemon = Daemon { node, map: self.map.clone() };
        Network::start(endpoint, net::Config::default(), Arc::new(daemon)).unwrap()
    }
}

/// Takes in one notice, and acknowledges it as `acknowledged`.
async fn take_notice(inbox: &mut Inbox, acknowledged: Process) -> Notice {
    let mut events = Vec::new();
    loop {
        assert!(inbox.receive(&mut events).await);
        for event in events.drain(..) {
            if let Event::Frames(link, frames) = event {
                let notice: Notice = frames[0].decode().unwrap();
                let mut ack = Vec::new();
                wire::encode(&NoticeAck { dead: acknowledged }, &mut ack);
                link.send(ack.into()).unwrap();
                return notice;
            }
        }
    }
}

#[tokio::test]
async fn every_peer_hears_of_a_death_also_one_that_comes_late() {
    let mut cluster = Cluster::new();
    let witness = cluster.witness();
    let (_third, mut third) = cluster.start_last();
    let report = tokio::spawn(witness.report(NOTICE));
    assert_eq!(take_notice(&mut third, DEAD).await, NOTICE);
    assert!(!report.is_finished(), "node 2 has not heard of it");
    let (_second, mut second) = cluster.start_last();
    assert_eq!(take_notice(&mut second, DEAD).await, NOTICE);
    report.await.unwrap();
}

#[tokio::test]
async fn an_acknowledgement_of_an_earlier_death_is_not_enough() {
    let mut cluster = Cluster::new();
    let witness = cluster.witness();
    let (_third, mut third) = cluster.start_last();
    let (_second, mut second) = cluster.start_last();
    let report = tokio::spawn(witness.report(NOTICE));
    take_notice(&mut second, DEAD).await;
    let earlier = Process { incarnation: Incarnation(3), ..DEAD };
    take_notice(&mut third, earlier).await;
    assert!(tokio::time::timeout(std::time::Duration::from_millis(300), report).await.is_err());
}
