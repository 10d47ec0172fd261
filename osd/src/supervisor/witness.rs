//! Tells the peers over the network that the supervised process is gone.
//!
//! The supervisor has a role and connections of its own, so nothing of its daemon's is replaced or waited for. A
//! notice that comes late or twice does no harm: it names the runs that are gone.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base::{NodeId, WallTime};
use bytes::Bytes;
use net::{
    Admission, BindError, Caller, Endpoint, Event, Identity, Inbox, Link, Network, Path, Peer, Reading,
};
use node::ClusterMap;
use tokio::time::timeout;
use wire::{Hello, Introduction, Notice, NoticeAck, Refusal, Why};

use super::Witness;
use crate::clock;

/// How long peers that do not answer are called. A lease that was theirs to wait for has long run out by then.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// A peer that comes back meanwhile is to hear of the death soon.
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// A supervisor's connections to its daemon's peers, made anew for each death.
#[derive(Clone)]
pub struct Peers {
    own: Arc<Own>,
}

struct Own {
    node: NodeId,
    map: ClusterMap,
    identity: Identity,
    /// A free port of the address that the daemon has, so that the peers see both come from there.
    address: IpAddr,
}

impl Peers {
    /// Reports on behalf of the supervisor of `node`, which `identity` is, to all others in `map`. The daemon
    /// listens at `address`.
    pub fn new(node: NodeId, map: ClusterMap, identity: Identity, address: IpAddr) -> Self {
        Self { own: Arc::new(Own { node, map, identity, address }) }
    }
}

impl Witness for Peers {
    async fn report(self, notice: Notice) {
        let mut told = Told { notice, callers: BTreeMap::new() };
        let (network, inbox) = match self.own.call_all(&mut told) {
            Ok(calling) => calling,
            Err(error) => {
                return tracing::error!(%error, "no peer can be told that the daemon is dead");
            }
        };
        let delivered = timeout(REPORT_TIMEOUT, told.deliver(inbox)).await;
        let missing: Vec<u32> = told.callers.keys().map(|node| node.0).collect();
        match delivered {
            Ok(()) => {
                tracing::info!(
                    incarnation = notice.dead.incarnation.0,
                    "every peer knows that the daemon is dead"
                )
            }
            Err(_) => tracing::warn!(
                ?missing,
                "these nodes were not told that the daemon is dead: they do not answer"
            ),
        }
        network.close().await;
    }
}

impl Own {
    /// Calls every peer, and notes in `told` whom.
    fn call_all(self: &Arc<Self>, told: &mut Told) -> Result<(Network, Inbox), BindError> {
        let path = if self.address.is_loopback() { Path::Loopback } else { Path::Network };
        let endpoint = Endpoint::bind(SocketAddr::new(self.address, 0), &self.identity, path)?;
        let seed = base::mix(clock::since_boot().as_micros());
        let config = net::Config { pause_max: PAUSE_MAX, seed, ..net::Config::default() };
        let owner = Arc::clone(self) as Arc<dyn net::Owner>;
        let (network, inbox) = Network::start(endpoint, config, owner).expect("the defaults go together");
        let peers = self.map.osds().filter(|osd| osd.id != self.node);
        told.callers = peers.map(|osd| (osd.id, network.keep_calling(osd.id, &osd.address))).collect();
        Ok((network, inbox))
    }
}

impl net::Owner for Own {
    fn hello(&self, _: &Peer) -> Hello {
        Hello {
            cluster: self.map.cluster(),
            map_version: self.map.version(),
            map_digest: self.map.digest(),
            who: Introduction::Supervisor(self.node),
        }
    }

    /// Its certificate says who it is, and a death is no secret among the nodes of a cluster.
    fn admit<'a>(&'a self, _: &'a Peer, hello: &'a Hello) -> Admission<'a> {
        let admitted = if hello.cluster == self.map.cluster() {
            Ok(())
        } else {
            Err(Refusal::new(Why::Cluster, "the supervisor that calls belongs to another cluster"))
        };
        Box::pin(std::future::ready(admitted))
    }

    /// A supervisor exchanges no times.
    fn clock(&self) -> Reading {
        Reading { time: WallTime::ZERO, is_fixed: false }
    }
}

/// A death, and the peers that have not heard of it.
struct Told {
    notice: Notice,
    /// Dropping a caller ends its connection.
    callers: BTreeMap<NodeId, Caller>,
}

impl Told {
    /// Returns when every peer has heard.
    async fn deliver(&mut self, mut inbox: Inbox) {
        let mut notice = Vec::new();
        wire::encode(&self.notice, &mut notice);
        let notice = Bytes::from(notice);
        let mut events = Vec::new();
        while !self.callers.is_empty() && inbox.receive(&mut events).await {
            for event in events.drain(..) {
                self.handle(event, &notice);
            }
        }
    }

    fn handle(&mut self, event: Event, notice: &Bytes) {
        match event {
            Event::Opened(link) => {
                // If it is gone already, there will be another one.
                let _ = link.send(notice.clone());
            }
            Event::Frames(link, frames) if frames.iter().any(|frame| self.is_ack(frame)) => {
                self.forget(&link);
            }
            Event::CallFailed { node, error, failures } => {
                tracing::debug!(node = node.0, %error, failures, "a peer cannot be told of the death yet");
            }
            _ => {}
        }
    }

    fn is_ack(&self, frame: &wire::Admitted) -> bool {
        let dead = self.notice.dead;
        frame
            .decode::<NoticeAck>()
            .is_ok_and(|ack| ack.dead.node == dead.node && ack.dead.incarnation >= dead.incarnation)
    }

    fn forget(&mut self, link: &Link) {
        if let Some(node) = link.peer().role.node() {
            self.callers.remove(&node);
        }
    }
}
