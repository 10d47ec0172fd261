//! A client that asks the daemons of a cluster for leases, one request each, as fast as they answer or at a rate.
//!
//! It speaks the protocol of clients without keeping more than a time for each request, so that it is not what is
//! measured. Requests to one daemon that are ready at the same moment leave in one frame, as any client's do.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::{NodeId, ObjectId, WallTime};
use client::Config;
use net::{Admission, Caller, Endpoint, Event, Inbox, Link, Network, Path, Peer};
use node::{
    ClientFrame, ClockTrust, ClusterMap, DaemonFrame, Reply, ReplyBody, Request, RequestBody, RequestId,
    Status, Token, lock_cell,
};
use tokio::time::timeout;
use wire::{Hello, Introduction, Kind, StatusRequest};

/// Requests in one frame: more would only make the first of them wait for the last.
const FRAME_REQUESTS_MAX: usize = 512;
/// A silent client says something this often.
const KEEP_ALIVE: Duration = Duration::from_millis(150);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Nothing comes back for so long only if something is broken.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// How often one lease is asked for, if daemons say that they cannot answer now.
const TRIES_MAX: u32 = 20;

/// What is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// The daemon owns the lease itself, as for an open file.
    Lease,
    /// The client has a lock, with a token.
    Lock,
}

/// What came of a stretch of requests.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Leases granted.
    pub granted: u64,
    /// Requests that gave none.
    pub failed: u64,
    /// What the first of these said.
    pub first_failure: Option<String>,
    /// From the first request to the last answer.
    pub elapsed: Duration,
    /// Of each lease, from when it was asked for (or due) to its answer.
    pub latencies_us: Vec<u32>,
}

/// Why leases cannot be asked for.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] client::ConfigError),
    /// No socket.
    #[error(transparent)]
    Bind(#[from] net::BindError),
    /// A constant of the network.
    #[error(transparent)]
    Network(#[from] net::ConfigError),
    /// Not all daemons answer.
    #[error("daemons {0:?} did not answer; see their logs")]
    NotConnected(Vec<NodeId>),
    /// Some daemon does not take part.
    #[error("the daemons were not ready after {0:?}; see their logs")]
    NotReady(Duration),
    /// A daemon fell silent.
    #[error("no daemon has said anything for {0:?}")]
    Silent(Duration),
    /// A connection broke.
    #[error("the connection to daemon {0} ended: {1}")]
    Lost(NodeId, String),
    /// A frame that cannot be.
    #[error("daemon {0} sent what cannot be understood: {1}")]
    Garbled(NodeId, String),
    /// The machine.
    #[error("cannot read this process's state: {0}")]
    Io(#[from] io::Error),
}

/// The client.
pub struct Load {
    map: Arc<ClusterMap>,
    inbox: Inbox,
    _network: Network,
    _callers: Vec<Caller>,
    daemons: BTreeMap<NodeId, Daemon>,
    events: Vec<Event>,
    heard: Instant,
    request_ids: u64,
}

struct Daemon {
    link: Link,
    frames: u64,
    spoke: Instant,
    waiting: Vec<Request>,
    status: Option<Status>,
}

/// A lease that was asked for.
#[derive(Clone, Copy)]
struct Asked {
    cell: ObjectId,
    due: Instant,
    tries: u32,
}

/// What was asked for and is not answered, by the number of its request: numbers are given in order.
struct Window {
    first: u64,
    asked: VecDeque<Option<Asked>>,
    len: usize,
}

impl Window {
    fn new(first: u64) -> Self {
        Self { first, asked: VecDeque::new(), len: 0 }
    }

    fn len(&self) -> usize {
        self.len
    }

    fn insert(&mut self, id: u64, one: Asked) {
        let Some(place) = self.place(id) else { return };
        while self.asked.len() <= place {
            self.asked.push_back(None);
        }
        if self.asked[place].replace(one).is_none() {
            self.len += 1;
        }
    }

    fn remove(&mut self, id: u64) -> Option<Asked> {
        let place = self.place(id)?;
        let one = self.asked.get_mut(place)?.take()?;
        self.len -= 1;
        while let Some(None) = self.asked.front() {
            self.asked.pop_front();
            self.first += 1;
        }
        Some(one)
    }

    fn place(&self, id: u64) -> Option<usize> {
        usize::try_from(id.checked_sub(self.first)?).ok()
    }
}

impl Load {
    /// Connects to every daemon.
    pub async fn connect(config: &Config, now_s: u64) -> Result<Self, LoadError> {
        let identity = config.identity(now_s)?;
        let map = Arc::new(config.map.clone());
        let endpoint =
            Endpoint::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), &identity, Path::Loopback)?;
        let (network, inbox) = Network::start(endpoint, net::Config::default(), Arc::new(Open(map.clone())))?;
        let callers = map.osds().map(|osd| network.keep_calling(osd.id, &osd.address)).collect();
        let mut load = Self {
            map,
            inbox,
            _network: network,
            _callers: callers,
            daemons: BTreeMap::new(),
            events: Vec::new(),
            heard: Instant::now(),
            request_ids: 0,
        };
        let all = load.map.osds().len();
        let connecting = async {
            while load.daemons.len() < all {
                load.inbox.receive(&mut load.events).await;
                for event in load.events.drain(..) {
                    if let Event::Opened(link) = event
                        && let Some(node) = link.peer().role.node()
                    {
                        let (waiting, spoke) = (Vec::new(), Instant::now());
                        load.daemons.insert(node, Daemon { link, frames: 0, spoke, waiting, status: None });
                    }
                }
            }
        };
        if timeout(CONNECT_TIMEOUT, connecting).await.is_err() {
            let missing = load.map.osds().map(|osd| osd.id).filter(|id| !load.daemons.contains_key(id));
            return Err(LoadError::NotConnected(missing.collect()));
        }
        Ok(load)
    }

    /// Waits until every daemon votes and takes part.
    pub async fn wait_until_ready(&mut self) -> Result<(), LoadError> {
        let begun = Instant::now();
        loop {
            let all = self.map.osds().len();
            let is_ready = |status: &Status| {
                let connected = status.peers.iter().filter(|peer| peer.connected).count();
                status.quarantine_ms == 0 && status.clock.state == ClockTrust::Sound && connected + 1 == all
            };
            if self.statuses().await?.iter().all(is_ready) {
                return Ok(());
            }
            if begun.elapsed() > CONNECT_TIMEOUT {
                return Err(LoadError::NotReady(CONNECT_TIMEOUT));
            }
            self.keep(Duration::from_millis(50)).await?;
        }
    }

    /// Asks for the leases of `cells`, with at most `in_flight` unanswered, or `rate` of them in a second.
    pub async fn acquire(
        &mut self,
        wish: Wish,
        cells: Range<u64>,
        in_flight: usize,
        rate: Option<f64>,
    ) -> Result<(Tally, Vec<(ObjectId, Token)>), LoadError> {
        let begun = Instant::now();
        let mut tally = Tally::default();
        // Growing would copy them while it counts.
        let count = usize::try_from(cells.end - cells.start).unwrap_or(usize::MAX);
        let mut held = Vec::with_capacity(count);
        tally.latencies_us.reserve_exact(count);
        let mut asked = Window::new(self.request_ids + 1);
        let mut next = cells.start;
        let mut replies = Vec::new();
        while next < cells.end || asked.len() > 0 {
            let now = Instant::now();
            while next < cells.end && asked.len() < in_flight {
                let due = match rate {
                    Some(rate) => begun + Duration::from_secs_f64(count_f64(next - cells.start) / rate),
                    None => now,
                };
                if due > now {
                    break;
                }
                let one = Asked { cell: cell(wish, next), due, tries: 0 };
                asked.insert(self.ask(wish, one), one);
                next += 1;
            }
            self.flush();
            let patience = if rate.is_some() { Duration::from_micros(500) } else { KEEP_ALIVE };
            self.receive(patience, &mut replies).await?;
            let now = Instant::now();
            for (node, id, body) in replies.drain(..) {
                if matches!(body, ReplyBody::Queued) {
                    continue;
                }
                let Some(mut one) = asked.remove(id.0) else { continue };
                match body {
                    ReplyBody::Leased { .. } => held.push((one.cell, Token(0))),
                    ReplyBody::Granted(token) => held.push((one.cell, token)),
                    other if one.tries + 1 < TRIES_MAX => {
                        one.tries += 1;
                        let _ = (node, other);
                        asked.insert(self.ask(wish, one), one);
                        continue;
                    }
                    other => {
                        tally.failed += 1;
                        tally.first_failure.get_or_insert_with(|| format!("daemon {node}: {other:?}"));
                        continue;
                    }
                }
                let latency = u32::try_from(now.duration_since(one.due).as_micros()).unwrap_or(u32::MAX);
                tally.latencies_us.push(latency);
                tally.granted += 1;
            }
            tally.elapsed = begun.elapsed();
        }
        tally.latencies_us.sort_unstable();
        Ok((tally, held))
    }

    /// Gives back what was granted, and waits until every daemon has heard of it.
    pub async fn give_back(&mut self, wish: Wish, held: &[(ObjectId, Token)]) -> Result<(), LoadError> {
        let mut left = 0;
        let mut replies = Vec::new();
        let mut held = held.iter();
        loop {
            // In portions: a daemon bounds what waits for one client.
            for &(cell, token) in held.by_ref().take(16_384 - left) {
                let body = match wish {
                    Wish::Lease => RequestBody::Unlease { cell },
                    Wish::Lock => RequestBody::Release { cell, token },
                };
                self.request(self.map.members(cell)[0], body);
                left += 1;
            }
            if left == 0 {
                return Ok(());
            }
            self.flush();
            self.receive(KEEP_ALIVE, &mut replies).await?;
            left -= replies.drain(..).count().min(left);
        }
    }

    /// Keeps the sessions alive for a while.
    pub async fn keep(&mut self, how_long: Duration) -> Result<(), LoadError> {
        let begun = Instant::now();
        let mut replies = Vec::new();
        while begun.elapsed() < how_long {
            self.flush();
            self.receive(KEEP_ALIVE, &mut replies).await?;
            replies.clear();
        }
        Ok(())
    }

    /// How every daemon is.
    pub async fn statuses(&mut self) -> Result<Vec<Status>, LoadError> {
        for daemon in self.daemons.values_mut() {
            daemon.status = None;
            let mut bytes = Vec::new();
            wire::encode(&StatusRequest, &mut bytes);
            // A link that takes nothing has ended, and says so below.
            let _ = daemon.link.send(bytes.into());
        }
        let mut replies = Vec::new();
        while self.daemons.values().any(|daemon| daemon.status.is_none()) {
            self.flush();
            self.receive(KEEP_ALIVE, &mut replies).await?;
        }
        Ok(self.daemons.values_mut().filter_map(|daemon| daemon.status.take()).collect())
    }

    fn ask(&mut self, wish: Wish, one: Asked) -> u64 {
        let body = match wish {
            Wish::Lease => RequestBody::Lease { cell: one.cell },
            Wish::Lock => RequestBody::Acquire { cell: one.cell, wait: false },
        };
        self.request(self.map.members(one.cell)[0], body)
    }

    fn request(&mut self, node: NodeId, body: RequestBody) -> u64 {
        self.request_ids += 1;
        let id = RequestId(self.request_ids);
        if let Some(daemon) = self.daemons.get_mut(&node) {
            daemon.waiting.push(Request { id, body });
        }
        id.0
    }

    fn flush(&mut self) {
        for daemon in self.daemons.values_mut() {
            let mut waiting = daemon.waiting.drain(..).peekable();
            while waiting.peek().is_some() || daemon.spoke.elapsed() >= KEEP_ALIVE {
                let requests = waiting.by_ref().take(FRAME_REQUESTS_MAX).collect();
                daemon.frames += 1;
                daemon.spoke = Instant::now();
                let mut bytes = Vec::new();
                wire::encode(&ClientFrame { number: daemon.frames, requests }, &mut bytes);
                // A link that takes nothing has ended, and the next event says so.
                let _ = daemon.link.send(bytes.into());
            }
        }
    }

    /// Waits for answers at most `patience`, or far longer if nothing is to be done meanwhile but wait.
    async fn receive(
        &mut self,
        patience: Duration,
        replies: &mut Vec<(NodeId, RequestId, ReplyBody)>,
    ) -> Result<(), LoadError> {
        if self.heard.elapsed() > SILENCE_MAX {
            return Err(LoadError::Silent(SILENCE_MAX));
        }
        // Nothing having come is no news: the caller looks again.
        let _ = timeout(patience, self.inbox.receive(&mut self.events)).await;
        for event in self.events.drain(..) {
            match event {
                Event::Frames(link, frames) => {
                    self.heard = Instant::now();
                    let Some(node) = link.peer().role.node() else { continue };
                    for frame in frames {
                        let garbled = |error: wire::DecodeError| LoadError::Garbled(node, error.to_string());
                        if frame.kind() == Kind::Status {
                            let status = frame.decode().map_err(garbled)?;
                            if let Some(daemon) = self.daemons.get_mut(&node) {
                                daemon.status = Some(status);
                            }
                            continue;
                        }
                        let frame: DaemonFrame = frame.decode().map_err(garbled)?;
                        replies.extend(frame.replies.into_iter().filter_map(|reply| match reply {
                            Reply::To { id, body } => Some((node, id, body)),
                            _ => None,
                        }));
                    }
                }
                Event::Closed(link, reason) => {
                    let node = link.peer().role.node().unwrap_or_default();
                    return Err(LoadError::Lost(node, reason.to_string()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// The cell of the `index`-th lease.
fn cell(wish: Wish, index: u64) -> ObjectId {
    match wish {
        Wish::Lease => ObjectId::new(1, index),
        Wish::Lock => lock_cell(&index.to_string()),
    }
}

/// Lets in whom it called.
struct Open(Arc<ClusterMap>);

impl net::Owner for Open {
    fn hello(&self, _peer: &Peer) -> Hello {
        let map = &self.0;
        let who = Introduction::Client { program: u64::from(std::process::id()) };
        Hello { cluster: map.cluster(), map_version: map.version(), map_digest: map.digest(), who }
    }

    fn admit<'a>(&'a self, _peer: &'a Peer, _hello: &'a Hello) -> Admission<'a> {
        Box::pin(async { Ok(()) })
    }

    fn clock(&self) -> net::Reading {
        net::Reading { time: WallTime::ZERO, is_fixed: false }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
const fn count_f64(count: u64) -> f64 {
    count as f64
}
