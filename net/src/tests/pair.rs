//! Two endpoints on real sockets of this machine, and a peer that does by hand what it likes.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base::{ClusterId, Incarnation, NodeId, Process, Role, StoreId, WallTime};
use quinn::SendStream;
use tokio::time::timeout;
use wire::{Hello, Introduction, NodeIntroduction, Welcome};

use crate::endpoint::{Connection, Endpoint};
use crate::frames::FrameStream;
use crate::{
    Admission, Authority, Caller, Config, Event, Identity, Inbox, Link, Network, Owner, Path, Peer, Reading,
    Validity, server_name,
};

pub(super) const CLUSTER: ClusterId = ClusterId(*b"a pair on a host");
pub(super) const LOOPBACK: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Whatever takes longer than this is broken.
const LIMIT: Duration = Duration::from_secs(20);

/// An owner that lets everybody in.
pub(super) struct Host {
    role: Role,
}

/// Everything a test needs of one endpoint.
pub(super) struct End {
    pub(super) network: Network,
    pub(super) inbox: Inbox,
    events: Vec<Event>,
}

pub(super) fn authority() -> Authority {
    Authority::new(CLUSTER, Validity::ALWAYS).unwrap()
}

pub(super) fn identity(authority: &Authority, role: &str) -> Identity {
    authority.issue(&role.parse().unwrap(), &[], Validity::ALWAYS).unwrap()
}

impl Owner for Host {
    fn hello(&self, _: &Peer) -> Hello {
        hello(&self.role)
    }

    fn admit<'a>(&'a self, _: &'a Peer, _: &'a Hello) -> Admission<'a> {
        Box::pin(async { Ok(()) })
    }

    fn clock(&self) -> Reading {
        Reading { time: WallTime::ZERO, is_fixed: true }
    }
}

pub(super) fn hello(role: &Role) -> Hello {
    let who = match role {
        Role::Node(node) => Introduction::Node(NodeIntroduction {
            process: Process { node: *node, incarnation: Incarnation(1) },
            store: StoreId([1; 16]),
            nonce: 1,
            line: base::StartId { incarnation: Incarnation(1), nonce: 1 },
            knows: None,
        }),
        Role::Supervisor(node) => Introduction::Supervisor(*node),
        Role::Client(_) | Role::Admin(_) => Introduction::Client { program: 1 },
    };
    Hello { cluster: CLUSTER, map_version: 1, map_digest: [0; 32], who }
}

impl End {
    pub(super) fn start(identity: &Identity, config: Config) -> Self {
        let endpoint = Endpoint::bind(LOOPBACK, identity, Path::Loopback).unwrap();
        let owner = Arc::new(Host { role: identity.peer().role.clone() });
        let (network, inbox) = Network::start(endpoint, config, owner).unwrap();
        Self { network, inbox, events: Vec::new() }
    }

    pub(super) fn call(&self, node: u32, end: &Self) -> Caller {
        self.network.keep_calling(NodeId(node), &end.network.address().to_string())
    }

    /// The next event of which `wanted` makes something. Others before it are thrown away.
    pub(super) async fn find<T>(&mut self, mut wanted: impl FnMut(Event) -> Option<T>) -> T {
        let search = async {
            loop {
                while !self.events.is_empty() {
                    if let Some(found) = wanted(self.events.remove(0)) {
                        return found;
                    }
                }
                assert!(self.inbox.receive(&mut self.events).await);
            }
        };
        timeout(LIMIT, search).await.expect("the event that the test waits for never came")
    }

    pub(super) async fn opened(&mut self) -> Link {
        self.find(|event| if let Event::Opened(link) = event { Some(link) } else { None }).await
    }

    /// Why the connection was closed.
    pub(super) async fn closed(&mut self) -> String {
        self.find(|event| if let Event::Closed(_, reason) = event { Some(reason.to_string()) } else { None })
            .await
    }

    /// Why a caller was not let in.
    pub(super) async fn refused(&mut self) -> String {
        let text = |event| match event {
            Event::CallerRefused { error, .. } => Some(error.to_string()),
            _ => None,
        };
        self.find(text).await
    }

    /// Waits until `count` frames have come.
    pub(super) async fn frames(&mut self, count: usize) -> Vec<wire::Admitted> {
        let mut all = Vec::new();
        self.find(|event| {
            if let Event::Frames(_, frames) = event {
                all.extend(frames);
            }
            (all.len() >= count).then(|| std::mem::take(&mut all))
        })
        .await
    }
}

/// Nodes 1 and 2, connected; 1 has called.
pub(super) struct Pair {
    pub(super) caller: End,
    pub(super) answerer: End,
    pub(super) out: Link,
    pub(super) back: Link,
    pub(super) call: Caller,
}

impl Pair {
    pub(super) async fn start(config: Config) -> Self {
        let authority = authority();
        let mut caller = End::start(&identity(&authority, "node/1"), config.clone());
        let mut answerer = End::start(&identity(&authority, "node/2"), config);
        let call = caller.call(2, &answerer);
        let (out, back) = (caller.opened().await, answerer.opened().await);
        Self { caller, answerer, out, back, call }
    }
}

/// A peer of node 1 that speaks by hand.
pub(super) struct ByHand {
    pub(super) connection: Connection,
    pub(super) send: SendStream,
    _endpoint: Endpoint,
}

impl ByHand {
    /// Connects, and opens the stream of small messages.
    pub(super) async fn connect(identity: &Identity, end: &End) -> Self {
        let endpoint = Endpoint::bind(LOOPBACK, identity, Path::Loopback).unwrap();
        let name = server_name(CLUSTER, NodeId(1));
        let connection = endpoint.connect(end.network.address(), &name).await.unwrap();
        let send = connection.open_uni().await.unwrap();
        Self { connection, send, _endpoint: endpoint }
    }

    /// Says hello and welcome, and waits for the same.
    pub(super) async fn introduce(&mut self, role: &str) -> FrameStream {
        let mut bytes = Vec::new();
        wire::encode(&hello(&role.parse().unwrap()), &mut bytes);
        wire::encode(&Welcome, &mut bytes);
        self.send.write_all(&bytes).await.unwrap();
        let mut stream = self.listen().await;
        stream.next().await.unwrap().decode::<Hello>().unwrap();
        stream.next().await.unwrap().decode::<Welcome>().unwrap();
        stream
    }

    pub(super) async fn listen(&self) -> FrameStream {
        FrameStream::new(self.connection.accept_uni().await.unwrap(), Role::Node(NodeId(1)))
    }

    /// What the other side says when it closes.
    pub(super) async fn told(&self) -> String {
        timeout(LIMIT, self.connection.closed()).await.expect("nobody closed it").to_string()
    }
}
