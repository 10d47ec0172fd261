//! Nodes on virtual time: each runs a real endpoint over turmoil's network and writes down what reaches its inbox.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{ClusterId, Epoch, Incarnation, NodeId, ObjectId, Process, Role, Seq, StoreId, ViewId, WallTime};
use bytes::Bytes;
use lease::{Ballot, Batch, Body, Message, Stamp};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use turmoil::Sim;
use wire::{Admitted, Hello, Introduction, Kind, NodeIntroduction, NoticeAck, Refusal, Why};

use super::udp::{Faults, SimulatedUdp};
use crate::{
    Admission, Authority, Caller, CloseReason, Config, ConnectError, Endpoint, Event, Identity, Link,
    Network, Owner, Path, Peer, Reading, Validity, server_name, tls,
};

pub(super) const CLUSTER: ClusterId = ClusterId(*b"a cluster in air");
const PORT: u16 = 7_000;
/// The wall clock at the start of a simulation.
const START: WallTime = WallTime::from_micros(1_700_000_000_000_000);

/// Something to do on a node, inside its runtime.
type Command = Box<dyn FnOnce(&Commanded<'_>) + Send>;

/// What a command can reach.
pub(super) struct Commanded<'a> {
    pub(super) callers: &'a [Caller],
    pub(super) links: &'a [Link],
}

/// What a test knows of a node.
pub(super) struct Node {
    id: NodeId,
    identity: Identity,
    config: Config,
    faults: Faults,
    refuses: Option<Refusal>,
    old_runs: u32,
    callees: Vec<NodeId>,
    starts: AtomicU32,
    log: Arc<Log>,
    commands: Mutex<Option<UnboundedSender<Command>>>,
}

/// What all nodes wrote down, in order, each line with its time.
#[derive(Default)]
pub(super) struct Log(Mutex<Vec<Line>>);

#[derive(Clone)]
pub(super) struct Line {
    pub(super) at: Duration,
    pub(super) node: u32,
    pub(super) what: String,
}

/// How a simulation is set up.
#[derive(Clone)]
pub(super) struct Setup {
    pub(super) seed: u64,
    pub(super) nodes: u32,
    pub(super) faults: Faults,
    pub(super) config: Config,
    /// This node refuses everybody, with this text.
    pub(super) refuses: Option<(u32, &'static str)>,
    /// So many first runs of node 1 speak an earlier version of the protocol.
    pub(super) old_runs: u32,
    /// Calls somebody who does not exist.
    pub(super) calls_nobody: bool,
}

impl Default for Setup {
    fn default() -> Self {
        let config = Config::default();
        let faults = Faults::default();
        Self { seed: 1, nodes: 2, faults, config, refuses: None, old_runs: 0, calls_nobody: false }
    }
}

/// A simulation with its nodes, numbered from 1. Lower ids call higher ones.
pub(super) struct World {
    pub(super) sim: Sim<'static>,
    pub(super) log: Arc<Log>,
    nodes: Vec<Arc<Node>>,
}

struct TestOwner {
    process: Process,
    log: Arc<Log>,
    refuses: Option<Refusal>,
}

impl World {
    pub(super) fn new(setup: &Setup) -> Self {
        let mut sim = turmoil::Builder::new()
            .rng_seed(setup.seed)
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(Duration::from_millis(3))
            .simulation_duration(Duration::from_secs(600))
            .udp_capacity(1 << 14)
            .build();
        let log = Arc::new(Log::default());
        let authority = Authority::new(CLUSTER, Validity::ALWAYS).unwrap();
        let nodes: Vec<_> = (1..=setup.nodes)
            .map(|id| Arc::new(Node::new(NodeId(id), setup, &authority, Arc::clone(&log))))
            .collect();
        for node in &nodes {
            let node = Arc::clone(node);
            sim.host(ip(node.id.0), move || Arc::clone(&node).run());
        }
        Self { sim, log, nodes }
    }

    /// Lets time pass.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.sim.elapsed() + time;
        while self.sim.elapsed() < end {
            self.sim.step().unwrap();
        }
    }

    /// Lets time pass until `node` has written a line after the first `skipped` ones that contains `text`, and
    /// returns that line.
    pub(super) fn run_until(&mut self, node: u32, text: &str, skipped: usize, limit: Duration) -> Line {
        let end = self.sim.elapsed() + limit;
        loop {
            let found = self.log.lines().into_iter().skip(skipped);
            let found =
                found.filter(|line| line.node == node && line.what.contains(text)).min_by_key(|line| line.at);
            if let Some(line) = found {
                return line;
            }
            assert!(self.sim.elapsed() < end, "no `{text}` at node {node}:\n{}", self.log);
            self.sim.step().unwrap();
        }
    }

    /// Runs until 1 and 2 are connected.
    pub(super) fn connect(&mut self) {
        self.run_until(1, "opened n2", 0, Duration::from_secs(5));
        self.run_until(2, "opened n1", 0, Duration::from_secs(5));
    }

    /// Does something on a node.
    pub(super) fn command(&self, node: u32, command: impl FnOnce(&Commanded<'_>) + Send + 'static) {
        let commands = self.nodes[node as usize - 1].commands.lock().unwrap();
        assert!(commands.as_ref().unwrap().send(Box::new(command)).is_ok(), "node {node} does not run");
    }

    pub(super) fn seen(&self) -> usize {
        self.log.lines().len()
    }
}

impl Node {
    fn new(id: NodeId, setup: &Setup, authority: &Authority, log: Arc<Log>) -> Self {
        let refuses = setup.refuses.filter(|(node, _)| *node == id.0);
        let nobody = setup.calls_nobody.then_some(99);
        Self {
            id,
            identity: authority.issue(&Role::Node(id), &[], Validity::ALWAYS).unwrap(),
            config: Config { seed: setup.seed, ..setup.config.clone() },
            faults: setup.faults,
            refuses: refuses.map(|(_, text)| Refusal::new(Why::Map, text)),
            old_runs: if id.0 == 1 { setup.old_runs } else { 0 },
            callees: (id.0 + 1..=setup.nodes).chain(nobody).map(NodeId).collect(),
            starts: AtomicU32::new(0),
            log,
            commands: Mutex::default(),
        }
    }

    /// One run of the node's process.
    async fn run(self: Arc<Self>) -> turmoil::Result {
        let incarnation = Incarnation(self.starts.fetch_add(1, Ordering::Relaxed) + 1);
        let process = Process { node: self.id, incarnation };
        let seed = self.config.seed ^ base::mix(u64::from(self.id.0) << 32 | u64::from(incarnation.0));
        let socket = Arc::new(SimulatedUdp::bind(PORT, self.faults, seed).await?);
        let endpoint = Endpoint::over(socket, &self.identity, Path::Network, seed)?;
        if incarnation.0 <= self.old_runs {
            return self.call_in_an_old_version(&endpoint).await;
        }
        let owner = Arc::new(TestOwner { process, log: self.log.clone(), refuses: self.refuses.clone() });
        let (network, mut inbox) = Network::start(endpoint, self.config.clone(), owner)?;
        let address = |node: &NodeId| format!("{}:{PORT}", ip(node.0));
        let callers: Vec<_> =
            self.callees.iter().map(|node| network.keep_calling(*node, &address(node))).collect();
        let (sender, mut commands) = unbounded_channel();
        *self.commands.lock().unwrap() = Some(sender);
        let (mut links, mut events) = (Vec::new(), Vec::new());
        loop {
            tokio::select! {
                biased;
                more = inbox.receive(&mut events) => assert!(more),
                command = next(&mut commands) => command(&Commanded { callers: &callers, links: &links }),
            }
            for event in events.drain(..) {
                self.take(event, &mut links);
            }
        }
    }

    /// Calls as a program of an earlier version does, and never gets in.
    async fn call_in_an_old_version(&self, endpoint: &Endpoint) -> turmoil::Result {
        loop {
            for &node in &self.callees {
                let old = quinn::ClientConfig::new(Arc::new(tls::client_of_version(
                    &self.identity,
                    b"fleasefs/0",
                )?));
                let address = std::net::SocketAddr::new(ip(node.0), PORT);
                let name = server_name(CLUSTER, node);
                let error = endpoint.inner.connect_with(old, address, &name)?.await.unwrap_err();
                self.log.write(self.id.0, format!("failure {node:?}: {}", ConnectError::from(error)));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    fn take(&self, event: Event, links: &mut Vec<Link>) {
        let what = match event {
            Event::Opened(link) => {
                let what = format!("opened {}", name(&link));
                links.push(link);
                what
            }
            Event::Closed(link, reason) => {
                links.retain(|other| other.id() != link.id());
                format!("closed {}: {reason}", name(&link))
            }
            Event::Datagrams(link, frames) => format!("datagrams {}: {}", name(&link), numbers(&frames)),
            Event::Frames(link, frames) => format!("frames {}: {}", name(&link), numbers(&frames)),
            Event::Bulk(link, _) => format!("bulk {}", name(&link)),
            Event::Time { link, answer, done } => {
                assert!(answer.asked <= answer.received && answer.answered <= done, "one clock");
                format!("time {} in {}", name(&link), done.since(answer.asked))
            }
            Event::CallFailed { node, error, failures } => format!("failure {failures} {node:?}: {error}"),
            Event::CallerRefused { error, .. } => format!("refused: {error}"),
        };
        self.log.write(self.id.0, what);
    }
}

async fn next(commands: &mut UnboundedReceiver<Command>) -> Command {
    commands.recv().await.unwrap()
}

impl Owner for TestOwner {
    fn hello(&self, _: &Peer) -> Hello {
        let introduction = NodeIntroduction {
            process: self.process,
            store: StoreId([1; 16]),
            nonce: u64::from(self.process.incarnation.0),
            line: base::StartId { incarnation: Incarnation(1), nonce: 1 },
            knows: None,
        };
        let who = Introduction::Node(introduction);
        Hello { cluster: CLUSTER, map_version: 1, map_digest: [0; 32], who }
    }

    fn admit<'a>(&'a self, _: &'a Peer, _: &'a Hello) -> Admission<'a> {
        let answer = self.refuses.clone().map_or(Ok(()), Err);
        Box::pin(async move { answer })
    }

    fn settle<'a>(&'a self, _: &'a Peer, _: &'a Hello) -> Admission<'a> {
        self.log.write(self.process.node.0, "settles".to_owned());
        Box::pin(async { Ok(()) })
    }

    fn clock(&self) -> Reading {
        let micros = turmoil::sim_elapsed().unwrap().as_micros();
        Reading {
            time: WallTime::from_micros(START.as_micros() + u64::try_from(micros).unwrap()),
            is_fixed: true,
        }
    }
}

impl Log {
    fn write(&self, node: u32, what: String) {
        let at = turmoil::sim_elapsed().unwrap();
        self.0.lock().unwrap().push(Line { at, node, what });
    }

    pub(super) fn lines(&self) -> Vec<Line> {
        self.0.lock().unwrap().clone()
    }

    /// The lines of one node that contain `text`.
    pub(super) fn of(&self, node: u32, text: &str) -> Vec<Line> {
        let matches = |line: &Line| line.node == node && line.what.contains(text);
        self.lines().into_iter().filter(matches).collect()
    }

    /// All numbers that arrived at `node` in lines that start with `what`.
    pub(super) fn numbers(&self, node: u32, what: &str) -> Vec<u32> {
        let lines = self.of(node, what).into_iter();
        lines
            .flat_map(|line| {
                let (_, list) = line.what.rsplit_once(": ").unwrap();
                list.split(' ').map(|number| number.parse().unwrap()).collect::<Vec<u32>>()
            })
            .collect()
    }
}

impl std::fmt::Display for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for Line { at, node, what } in self.lines() {
            writeln!(f, "{:>6} ms  n{node}  {what}", at.as_millis())?;
        }
        Ok(())
    }
}

pub(super) fn ip(node: u32) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, u8::try_from(node).unwrap()))
}

/// A frame between nodes that carries a number.
pub(super) fn numbered_frame(number: u32) -> Bytes {
    let mut bytes = Vec::new();
    wire::encode(&NoticeAck { dead: Process::new(0, number) }, &mut bytes);
    bytes.into()
}

/// A datagram between nodes that carries a number.
pub(super) fn numbered_datagram(from: u32, number: u32) -> Bytes {
    let ballot = Ballot { stamp: Stamp(0), process: Process::new(0, 0) };
    let view = ViewId { epoch: Epoch::default(), seq: Seq(0) };
    let message = Message { cell: ObjectId::new(0, 0), view, ballot, body: Body::Offer };
    let sender = Process::new(from, 1);
    let batch = Batch { sender, settings: number, sent: WallTime::ZERO, messages: vec![message] };
    let mut encoded = Vec::new();
    wire::encode_lease_frames(&batch, 1_000, &mut |bytes| encoded.extend_from_slice(bytes));
    encoded.into()
}

fn numbers(frames: &[Admitted]) -> String {
    let number = |frame: &Admitted| match frame.kind() {
        Kind::Lease => frame.decode_leases().unwrap().settings.to_string(),
        _ => frame.decode::<NoticeAck>().unwrap().dead.incarnation.0.to_string(),
    };
    frames.iter().map(number).collect::<Vec<_>>().join(" ")
}

/// The peer and its incarnation.
fn name(link: &Link) -> String {
    match &link.hello().who {
        Introduction::Node(node) => format!("{:?}", node.process),
        other => format!("{other:?}"),
    }
}

/// Errors that a scenario looks for are those of the product, so that their texts are tested as well.
pub(super) fn text_of_refusal(refusal: &str) -> String {
    ConnectError::RefusedByPeer(Refusal::new(Why::Map, refusal)).to_string()
}

pub(super) fn text_of_close(reason: CloseReason) -> String {
    reason.to_string()
}
