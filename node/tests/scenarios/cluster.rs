//! A few shards and hand-driven clients on virtual time. Messages arrive at once, unless the story holds them back;
//! after every step the promises about locks are checked.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::{ClusterId, Dead, NodeId, ObjectId, Process, Span, WallTime};
use bytes::Bytes;
use lease::{Algorithm, Batch, Exchange, FleaseRules, Start};
use node::file::{
    Chunk, File, FileBody, FileError, FileReply, FileReplyBody, FileRequest, Piece, Place, Stored,
};
use node::{
    AccessError, Bug, Capability, CapabilityKey, CapabilityKeys, ClientFrame, ClientId, ClusterMap, Errand,
    FetchId, FileMessage, Grant, KeptFile, KeyEpoch, LeaseAlgorithm, Osd, Output, PeerMessage, Remembered,
    ReplyBody, Request, RequestBody, RequestId, SessionId, Settings, Shard, ShardConfig, ShardEvent, Token,
    Unreadable, lock_cell,
};
use replication::{Message, Record};

use crate::client::Client;

/// Two clocks exchange times, and clients say that they are there, this often.
const HEARTBEAT_MS: u64 = 100;

/// Something on its way.
#[derive(Clone, Debug)]
pub(crate) enum Flying {
    Lease {
        from: Process,
        to: u32,
        batch: Batch,
    },
    Peer {
        from: Process,
        to: u32,
        messages: Vec<PeerMessage>,
    },
    Ceiling {
        node: Process,
        mark: u64,
    },
    File {
        from: Process,
        to: u32,
        message: FileMessage,
    },
    Errand {
        from: Process,
        to: u32,
        errand: Errand,
    },
    ErrandReply {
        from: Process,
        to: u32,
        reply: FileReply,
    },
    /// A disk looks for content.
    Fetch {
        node: Process,
        fetch: FetchId,
        stored: Vec<Stored>,
    },
    /// A disk is done with everything up to a record: it is written, or even synced.
    Disk {
        node: Process,
        upto: u64,
        is_durable: bool,
    },
}

/// A daemon: its process, if it runs, and its disk.
pub(crate) struct Daemon<A> {
    pub(crate) shard: Option<Shard<A>>,
    incarnation: u32,
    ceiling: u64,
    /// What was written about files, and how much of it is synced.
    records: Vec<(ObjectId, Record<File>)>,
    synced: usize,
    /// What this process has written and not been told of yet, and where its records begin.
    unwritten: VecDeque<(ObjectId, Record<File>)>,
    began_at: usize,
    forgot_at: Option<u64>,
    /// Content that was put apart, by its place, and the places that cannot be read.
    content: BTreeMap<u64, Bytes>,
    pub(crate) rotten: BTreeSet<u64>,
    /// Files of which nothing can be read at the next start.
    damaged: Vec<ObjectId>,
    /// Whether the process was told to mark its store as failed.
    pub(crate) store_failed: bool,
    /// Whether an operator has drained it.
    is_drained: bool,
    /// What its clock shows ahead of true time.
    pub(crate) offset_ms: i64,
    pub(crate) is_frozen: bool,
    pub(crate) events: Vec<ShardEvent>,
}

pub(crate) struct Cluster<A = FleaseRules> {
    pub(crate) daemons: BTreeMap<u32, Daemon<A>>,
    pub(crate) clients: BTreeMap<u64, Client>,
    pub(crate) now: WallTime,
    pub(crate) map: Arc<ClusterMap>,
    pub(crate) bug: Option<Bug>,
    /// What daemons that start from now on have set otherwise than by default.
    pub(crate) configure: fn(&mut ShardConfig),
    flying: VecDeque<Flying>,
    /// What the story holds back.
    pub(crate) held: Vec<Flying>,
    holds_back: Box<dyn Fn(&Flying) -> bool>,
    /// Pairs that cannot talk.
    cuts: BTreeSet<(u32, u32)>,
    connected: BTreeSet<(u32, u32)>,
    sessions: u64,
    /// What clients show for the content of volumes' files.
    pub(crate) shown: BTreeMap<ObjectId, Box<Capability>>,
    /// Which of its client's openings the next request is.
    pub(crate) holds: Option<u64>,
    /// The highest token ever granted, by lock.
    tokens: BTreeMap<ObjectId, Token>,
    seed: u64,
}

pub(crate) fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

/// What all daemons make capabilities with.
pub(crate) fn keys() -> Arc<CapabilityKeys> {
    let line = CapabilityKey::new([7; 32]).line(KeyEpoch(1), None);
    Arc::new(CapabilityKeys::parse(&line).unwrap())
}

pub(crate) fn cell() -> ObjectId {
    lock_cell("nightly")
}

impl<A: Algorithm> Cluster<A> {
    /// So many daemons that never ran before, connected and in agreement about the time.
    pub(crate) fn new(count: u32) -> Self {
        Self::with(count, 3, None)
    }

    /// Each lock at so many members, and perhaps a rule broken.
    pub(crate) fn with(count: u32, replicas: u8, bug: Option<Bug>) -> Self {
        let mut cluster = Self::stopped(count, replicas, bug);
        cluster.start_all();
        cluster
    }

    /// Nobody runs yet.
    pub(crate) fn stopped(count: u32, replicas: u8, bug: Option<Bug>) -> Self {
        let osds = (1..=count).map(|id| Osd { id: NodeId(id), address: format!("10.0.0.{id}:7000") });
        let algorithm = if A::NAME == "flease" { LeaseAlgorithm::Flease } else { LeaseAlgorithm::Paxoslease };
        let settings = Settings { algorithm, ..Settings::default() };
        let map = ClusterMap::new(ClusterId([7; 16]), 1, replicas, settings, osds.collect()).unwrap();
        let mut cluster = Self {
            daemons: BTreeMap::new(),
            clients: BTreeMap::new(),
            now: WallTime::from_micros(1_900_000 * 900_000_000 + 100_000),
            map: Arc::new(map),
            bug,
            configure: |_| {},
            flying: VecDeque::new(),
            held: Vec::new(),
            holds_back: Box::new(|_| false),
            cuts: BTreeSet::new(),
            connected: BTreeSet::new(),
            sessions: 0,
            shown: BTreeMap::new(),
            holds: None,
            tokens: BTreeMap::new(),
            seed: 0,
        };
        for id in 1..=count {
            let daemon = Daemon {
                shard: None,
                incarnation: 0,
                ceiling: 0,
                records: Vec::new(),
                synced: 0,
                unwritten: VecDeque::new(),
                began_at: 0,
                forgot_at: None,
                content: BTreeMap::new(),
                rotten: BTreeSet::new(),
                damaged: Vec::new(),
                store_failed: false,
                is_drained: false,
                offset_ms: 0,
                is_frozen: false,
                events: Vec::new(),
            };
            cluster.daemons.insert(id, daemon);
        }
        cluster
    }

    pub(crate) fn start_all(&mut self) {
        let ids: Vec<u32> = self.daemons.keys().copied().collect();
        ids.into_iter().for_each(|id| self.start(id));
        self.run(ms(300));
    }

    /// The members of the lock's cell, the preferred owner first.
    pub(crate) fn members(&self) -> Vec<u32> {
        self.map.members(cell()).into_iter().map(|node| node.0).collect()
    }

    pub(crate) fn clock(&self, node: u32) -> WallTime {
        let offset = self.daemons[&node].offset_ms * 1_000;
        WallTime::from_micros(self.now.as_micros().saturating_add_signed(offset))
    }

    pub(crate) fn is_up(&self, node: u32) -> bool {
        self.daemons[&node].shard.is_some()
    }

    pub(crate) fn shard(&self, node: u32) -> &Shard<A> {
        self.daemons[&node].shard.as_ref().unwrap()
    }

    pub(crate) fn process(&self, node: u32) -> Process {
        Process::new(node, self.daemons[&node].incarnation)
    }

    /// Starts a daemon, anew if it ran before.
    pub(crate) fn start(&mut self, node: u32) {
        let now = self.clock(node);
        self.seed += 1;
        let (seed, bug, map) = (self.seed, self.bug, Arc::clone(&self.map));
        let daemon = self.daemons.get_mut(&node).unwrap();
        assert!(daemon.shard.is_none(), "it runs already");
        let start = if daemon.incarnation == 0 { Start::Fresh } else { Start::Again };
        daemon.incarnation += 1;
        let me = Process::new(node, daemon.incarnation);
        let mut files: BTreeMap<ObjectId, KeptFile> = BTreeMap::new();
        for (object, record) in &daemon.records {
            let nothing = || KeptFile { checkpoint: None, records: Vec::new() };
            files.entry(*object).or_insert_with(nothing).records.push(record.clone());
        }
        daemon.began_at = daemon.records.len();
        let (ceiling, forgot_at) = (daemon.ceiling, daemon.forgot_at);
        let mut config = ShardConfig { bug, capability_keys: Some(keys()), ..ShardConfig::new(map) };
        (self.configure)(&mut config);
        let damaged = daemon.damaged.iter();
        files.extend(damaged.map(|&object| (object, KeptFile::damaged(&config, me.node, object, ceiling))));
        let remembered = Remembered { start, ceiling, forgot_at, files };
        let mut shard = Shard::new(config, me, remembered, now, seed).unwrap();
        shard.begin(daemon.is_drained);
        daemon.shard = Some(shard);
        self.collect(node);
        self.connect_all();
    }

    /// The process ends; whoever it was connected with notices at once.
    pub(crate) fn kill(&mut self, node: u32) -> Process {
        let dead = self.process(node);
        let daemon = self.daemons.get_mut(&node).unwrap();
        daemon.shard = None;
        daemon.unwritten.clear();
        self.flying.retain(|flying| !flying.is_of(node));
        self.connect_all();
        dead
    }

    /// All that the node has written is on disk.
    pub(crate) fn sync(&mut self, node: u32) {
        let daemon = self.daemons.get_mut(&node).unwrap();
        daemon.synced = daemon.records.len();
    }

    /// The power fails: what was not synced is lost.
    pub(crate) fn power_off(&mut self, node: u32) {
        self.kill(node);
        let daemon = self.daemons.get_mut(&node).unwrap();
        daemon.records.truncate(daemon.synced);
        daemon.forgot_at = Some(daemon.ceiling);
    }

    /// What the node has kept of a file cannot be read at its next start.
    pub(crate) fn damage(&mut self, node: u32, object: ObjectId) {
        let daemon = self.daemons.get_mut(&node).unwrap();
        daemon.records.retain(|(other, _)| *other != object);
        daemon.damaged.push(object);
    }

    /// The node's store has one more record of a file.
    pub(crate) fn record(&mut self, node: u32, object: ObjectId, record: Record<File>) {
        self.daemons.get_mut(&node).unwrap().records.push((object, record));
    }

    /// The process ends, and its supervisor tells the other daemons.
    pub(crate) fn kill_with_notice(&mut self, node: u32) {
        let dead = self.kill(node);
        self.notice(dead);
    }

    pub(crate) fn notice(&mut self, dead: Process) {
        for id in self.ids() {
            self.call(id, |shard, now| shard.handle_death_notice(now, Dead::up_to(dead)));
        }
        self.settle();
    }

    /// Two daemons, or a client (as 0) and a daemon, cannot talk any longer.
    pub(crate) fn cut(&mut self, a: u32, b: u32) {
        self.cuts.extend([(a, b), (b, a)]);
        self.flying.retain(|flying| !flying.is_between(a, b));
        self.connect_all();
    }

    pub(crate) fn isolate(&mut self, node: u32) {
        for other in self.ids() {
            self.cut(node, other);
        }
    }

    pub(crate) fn mend(&mut self) {
        self.cuts.clear();
        self.connect_all();
    }

    /// From now on what fits stays on its way.
    pub(crate) fn hold_back(&mut self, what: impl Fn(&Flying) -> bool + 'static) {
        self.holds_back = Box::new(what);
    }

    /// What was held back arrives now, in order.
    pub(crate) fn let_go(&mut self) {
        self.let_go_but(|_| false);
    }

    /// What was held back arrives now, and from now on what fits stays on its way.
    pub(crate) fn let_go_but(&mut self, what: impl Fn(&Flying) -> bool + 'static) {
        self.holds_back = Box::new(|_| false);
        std::mem::take(&mut self.held).into_iter().for_each(|flying| self.arrive(flying));
        self.hold_back(what);
        self.settle();
    }

    pub(crate) fn freeze(&mut self, node: u32) {
        self.daemons.get_mut(&node).unwrap().is_frozen = true;
    }

    pub(crate) fn thaw(&mut self, node: u32) {
        self.daemons.get_mut(&node).unwrap().is_frozen = false;
        let clients: Vec<u64> = self.clients.keys().copied().collect();
        clients.into_iter().for_each(|client| self.flush(client, node));
        self.call(node, |shard, now| shard.handle_timeout(now));
        self.settle();
    }

    /// Lets time pass in steps of a millisecond.
    pub(crate) fn run(&mut self, span: Span) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + ms(1);
            if (self.now.as_micros() / 1_000).is_multiple_of(HEARTBEAT_MS) {
                self.exchange_times();
                self.keep_alive();
            }
            for node in self.ids() {
                let due = self.shard(node).poll_timeout() <= self.clock(node);
                if due {
                    self.call(node, |shard, now| shard.handle_timeout(now));
                }
            }
            self.settle();
        }
    }

    /// Lets time pass until `condition`, for `limit` at most. How long it took.
    pub(crate) fn run_until(&mut self, limit: Span, condition: impl Fn(&Self) -> bool) -> Span {
        let start = self.now;
        while !condition(self) {
            assert!(self.now.since(start) < limit, "not within {limit}");
            self.run(ms(1));
        }
        self.now.since(start)
    }

    /// Everything on its way arrives, and what follows from it.
    pub(crate) fn settle(&mut self) {
        while let Some(flying) = self.flying.pop_front() {
            if (self.holds_back)(&flying) {
                self.held.push(flying);
                continue;
            }
            self.arrive(flying);
        }
        self.check();
    }

    fn arrive(&mut self, flying: Flying) {
        match flying {
            Flying::Lease { from, to, batch } if self.can_talk(from.node.0, to) => {
                self.call(to, |shard, now| shard.handle_lease_batch(now, from, &batch));
            }
            Flying::Peer { from, to, messages } if self.connected.contains(&(from.node.0, to)) => {
                self.call(to, |shard, now| shard.handle_peer_messages(now, from, messages));
            }
            Flying::Ceiling { node, mark } if self.process(node.node.0) == node => {
                let daemon = self.daemons.get_mut(&node.node.0).unwrap();
                daemon.ceiling = daemon.ceiling.max(mark);
                self.call(node.node.0, |shard, now| shard.handle_ceiling(now, mark));
            }
            Flying::File { from, to, message } if self.connected.contains(&(from.node.0, to)) => {
                self.call(to, |shard, now| shard.handle_file_message(now, from, message));
            }
            Flying::Errand { from, to, errand } if self.connected.contains(&(from.node.0, to)) => {
                self.call(to, |shard, now| shard.handle_errand(now, from, errand));
            }
            Flying::ErrandReply { from, to, reply } if self.connected.contains(&(from.node.0, to)) => {
                self.call(to, |shard, now| shard.handle_errand_reply(now, from, reply));
            }
            Flying::Disk { node, upto, is_durable } if self.process(node.node.0) == node => {
                let daemon = self.daemons.get_mut(&node.node.0).unwrap();
                while daemon.records.len() < daemon.began_at + usize::try_from(upto).unwrap() {
                    daemon.records.extend(daemon.unwritten.pop_front());
                }
                if is_durable {
                    daemon.synced = daemon.records.len();
                }
                self.call(node.node.0, |shard, now| {
                    if is_durable { shard.handle_durable(now, upto) } else { shard.handle_written(now, upto) }
                });
            }
            Flying::Fetch { node, fetch, stored } if self.process(node.node.0) == node => {
                let fetched = self.daemons[&node.node.0].fetch(&stored);
                self.call(node.node.0, |shard, _| shard.handle_fetched(fetch, fetched));
            }
            _ => {}
        }
    }

    /// Puts what has changed of a file on disk, and keeps its content there alone. Returns how many chunks that were.
    pub(crate) fn put_apart(&mut self, node: u32, object: ObjectId) -> usize {
        let daemon = self.daemons.get_mut(&node).unwrap();
        let changes = daemon.shard.as_mut().unwrap().take_checkpoint(object);
        let chunks: Vec<_> =
            changes.chunks.into_iter().filter_map(|(number, chunk)| Some((number, chunk?))).collect();
        let kept: Vec<_> =
            chunks.into_iter().map(|(number, (at, chunk))| (number, at, daemon.put_chunk(&chunk))).collect();
        let count = kept.len();
        self.call(node, |shard, _| shard.handle_checkpoint(object, kept));
        count
    }

    /// The running daemons.
    pub(crate) fn ids(&self) -> Vec<u32> {
        let running = self.daemons.iter().filter(|(_, daemon)| daemon.shard.is_some() && !daemon.is_frozen);
        running.map(|(&id, _)| id).collect()
    }

    fn can_talk(&self, a: u32, b: u32) -> bool {
        let runs = |id: u32| id == 0 || self.daemons[&id].shard.is_some();
        runs(a) && runs(b) && !self.cuts.contains(&(a, b))
    }

    /// Makes connections where there can be some, and breaks the others.
    fn connect_all(&mut self) {
        let ids: Vec<u32> = self.daemons.keys().copied().collect();
        for &a in &ids {
            for &b in ids.iter().filter(|&&b| b != a) {
                let (can, does) = (self.can_talk(a, b), self.connected.contains(&(a, b)));
                if can && !does {
                    self.connected.insert((a, b));
                    let peer = self.process(b);
                    self.call(a, |shard, now| shard.handle_peer_up(now, peer));
                } else if !can && does {
                    self.connected.remove(&(a, b));
                    self.call(a, |shard, _| shard.handle_peer_down(NodeId(b)));
                }
            }
        }
        let clients: Vec<u64> = self.clients.keys().copied().collect();
        for node in ids {
            if !self.can_talk(0, node) {
                clients.iter().for_each(|&client| self.disconnect(client, node));
            }
        }
        self.settle();
    }

    fn exchange_times(&mut self) {
        for a in self.ids() {
            for b in self.ids() {
                if a != b && self.can_talk(a, b) {
                    let (mine, theirs) = (self.clock(a), self.clock(b));
                    let exchange = Exchange { asked: mine, received: theirs, answered: theirs, done: mine };
                    self.call(a, |shard, now| shard.handle_exchange(now, NodeId(b), exchange));
                }
            }
        }
    }

    pub(crate) fn call(&mut self, node: u32, act: impl FnOnce(&mut Shard<A>, WallTime)) {
        let now = self.clock(node);
        if let Some(shard) = &mut self.daemons.get_mut(&node).unwrap().shard {
            act(shard, now);
            self.collect(node);
        }
    }

    fn collect(&mut self, node: u32) {
        let (now, from) = (self.clock(node), self.process(node));
        while let Some(output) = self.daemons.get_mut(&node).unwrap().shard.as_mut().unwrap().poll_output(now)
        {
            match output {
                Output::Lease { to, batch } => {
                    self.flying.push_back(Flying::Lease { from, to: to.0, batch });
                }
                Output::Peer { to, messages } => {
                    self.flying.push_back(Flying::Peer { from, to: to.0, messages });
                }
                Output::KeepDrained(is_drained) => {
                    let daemon = self.daemons.get_mut(&node).unwrap();
                    daemon.is_drained = is_drained;
                    daemon.shard.as_mut().unwrap().handle_drain_kept(is_drained);
                }
                Output::RaiseCeiling { to } => {
                    self.flying.push_back(Flying::Ceiling { node: from, mark: to });
                }
                Output::File { to, message } => {
                    self.flying.push_back(Flying::File { from, to: to.0, message });
                }
                Output::Errand { to, errand } => {
                    self.flying.push_back(Flying::Errand { from, to: to.0, errand });
                }
                Output::ErrandReply { to, reply } => {
                    self.flying.push_back(Flying::ErrandReply { from, to: to.0, reply });
                }
                Output::Write { number, object, record } => {
                    self.daemons.get_mut(&node).unwrap().unwritten.push_back((object, record));
                    let written = Flying::Disk { node: from, upto: number, is_durable: false };
                    self.flying.push_back(written);
                }
                Output::Fetch { fetch, stored } => {
                    self.flying.push_back(Flying::Fetch { node: from, fetch, stored });
                }
                Output::Sync { upto } => {
                    self.flying.push_back(Flying::Disk { node: from, upto, is_durable: true });
                }
                Output::FileReply { session, reply } => {
                    if let Some(client) = self.clients.values_mut().find(|client| client.has(session)) {
                        client.hear_of_file(session, reply);
                    } else {
                        let refused = FileError::from(AccessError::NotExported);
                        let is_refused = matches!(&reply.body, FileReplyBody::Answer(Err(error)) | FileReplyBody::Refused(error) if *error == refused);
                        assert!(!is_refused, "whose session is over is told that he may not");
                    }
                }
                Output::Client { session, frame } => {
                    let now = self.now;
                    if let Some(client) = self.clients.values_mut().find(|client| client.has(session)) {
                        client.hear(now, session, frame);
                    }
                }
                Output::Close { session } => {
                    if let Some(client) = self.clients.values_mut().find(|client| client.has(session)) {
                        client.closed(session);
                    }
                }
                Output::StoreFailed => self.daemons.get_mut(&node).unwrap().store_failed = true,
                Output::Event(event) => self.daemons.get_mut(&node).unwrap().events.push(event),
            }
        }
    }

    /// A client without a connection.
    pub(crate) fn client(&mut self, program: u64) {
        let session = self.map.settings().session_ms;
        self.clients.insert(program, Client::new(ms(session.into())));
    }

    pub(crate) fn connect(&mut self, client: u64, node: u32) {
        assert!(self.can_talk(0, node), "{node} cannot be reached");
        self.sessions += 1;
        let session = SessionId(self.sessions);
        self.clients.get_mut(&client).unwrap().connected(node, session);
        let id = ClientId { certificate: 1, program: client };
        let certificate = self.clients[&client].certificate.clone();
        self.call(node, |shard, now| shard.handle_client_up(now, session, id, certificate));
        self.say(client, node, Vec::new());
    }

    /// The connection breaks, and both ends notice.
    pub(crate) fn disconnect(&mut self, client: u64, node: u32) {
        let Some(session) = self.clients.get_mut(&client).unwrap().disconnected(node) else { return };
        self.call(node, |shard, _| shard.handle_client_down(session));
        self.settle();
    }

    /// The client asks something. The id of its request.
    pub(crate) fn ask(&mut self, client: u64, node: u32, body: RequestBody) -> RequestId {
        if !self.clients[&client].is_connected(node) {
            self.connect(client, node);
        }
        let id = self.clients.get_mut(&client).unwrap().next_request(node, &body);
        self.say(client, node, vec![Request { id, body }]);
        id
    }

    /// The client asks something about a file. The id of its request.
    pub(crate) fn ask_file(&mut self, client: u64, node: u32, object: ObjectId, body: FileBody) -> RequestId {
        if !self.clients[&client].is_connected(node) {
            self.connect(client, node);
        }
        let (session, id) = self.clients.get_mut(&client).unwrap().next_file_request(node);
        let content = body.locks(object).map_or(object, |(content, _)| content);
        let (shown, holds) = (self.shown.get(&content).cloned(), self.holds.take());
        let (proof, caches) = self.clients[&client].shows(&body);
        let request = FileRequest { id, object, shown, body, proof, holds, caches };
        self.call(node, |shard, now| shard.handle_file_request(now, session, request));
        self.settle();
        id
    }

    pub(crate) fn file_reply(&self, client: u64, id: RequestId) -> Option<FileReplyBody> {
        self.clients[&client].file_reply(id)
    }

    /// The client asks, and this is the last answer that it has.
    pub(crate) fn ask_for(&mut self, client: u64, node: u32, body: RequestBody) -> Option<ReplyBody> {
        let id = self.ask(client, node, body);
        self.answer(client, id)
    }

    pub(crate) fn answer(&self, client: u64, id: RequestId) -> Option<ReplyBody> {
        self.clients[&client].answer(id)
    }

    pub(crate) fn acquire(&mut self, client: u64, node: u32) -> RequestId {
        self.ask(client, node, RequestBody::Acquire { cell: cell(), wait: true })
    }

    pub(crate) fn reattach(&mut self, client: u64, node: u32, token: Token) -> RequestId {
        self.ask(client, node, RequestBody::Reattach { cell: cell(), token })
    }

    pub(crate) fn release(&mut self, client: u64, node: u32, token: Token) -> Option<ReplyBody> {
        self.clients.get_mut(&client).unwrap().let_go();
        self.ask_for(client, node, RequestBody::Release { cell: cell(), token })
    }

    /// The client has the lock within `limit`; its token.
    pub(crate) fn granted(&mut self, client: u64, id: RequestId, limit: Span) -> (Token, Span) {
        let is_granted = |cluster: &Self| matches!(cluster.answer(client, id), Some(ReplyBody::Granted(_)));
        let took = self.run_until(limit, is_granted);
        let Some(ReplyBody::Granted(token)) = self.answer(client, id) else { unreachable!() };
        (token, took)
    }

    pub(crate) fn say(&mut self, client: u64, node: u32, requests: Vec<Request>) {
        self.clients.get_mut(&client).unwrap().say(self.now, node, requests);
        if !self.daemons[&node].is_frozen {
            self.flush(client, node);
            self.settle();
        }
    }

    /// What the client says now, and over which session, without its being delivered.
    pub(crate) fn say_late(&mut self, client: u64, node: u32, body: RequestBody) -> (SessionId, ClientFrame) {
        let speaker = self.clients.get_mut(&client).unwrap();
        let id = speaker.next_request(node, &body);
        speaker.say(self.now, node, vec![Request { id, body }]);
        let (session, mut frames) = speaker.take_frames(node).unwrap();
        (session, frames.remove(0))
    }

    fn flush(&mut self, client: u64, node: u32) {
        let Some((session, frames)) = self.clients.get_mut(&client).unwrap().take_frames(node) else {
            return;
        };
        for frame in frames {
            self.call(node, |shard, now| shard.handle_client_frame(now, session, frame));
        }
    }

    fn keep_alive(&mut self) {
        let clients: Vec<u64> = self.clients.keys().copied().collect();
        for client in clients {
            for node in self.clients[&client].to_keep_alive() {
                self.say(client, node, Vec::new());
            }
        }
    }

    /// Who believes to have the lock.
    pub(crate) fn holders(&self) -> Vec<u64> {
        let holds = |(&id, client): (&u64, &Client)| client.holds(self.now).then_some(id);
        self.clients.iter().filter_map(holds).collect()
    }

    pub(crate) fn events(&self, node: u32) -> &[ShardEvent] {
        &self.daemons[&node].events
    }

    fn check(&mut self) {
        let holders = self.holders();
        assert!(holders.len() <= 1, "{holders:?} hold the lock at once");
        for (&program, client) in &mut self.clients {
            for (cell, token) in client.new_grants() {
                let highest = self.tokens.get(&cell);
                assert!(
                    highest.is_none_or(|&highest| token > highest),
                    "{token:?} went to {program} after {highest:?}"
                );
                self.tokens.insert(cell, token);
            }
        }
    }
}

impl<A> Daemon<A> {
    fn fetch(&self, stored: &[Stored]) -> Result<Vec<Bytes>, Unreadable> {
        let read = |Stored { place, from, len }: &Stored| {
            let id = place.words()[0];
            let from = usize::try_from(*from).unwrap();
            let bytes = self.content[&id].slice(from..from + usize::try_from(*len).unwrap());
            if self.rotten.contains(&id) { Err(Unreadable { place: place.clone() }) } else { Ok(bytes) }
        };
        stored.iter().map(read).collect()
    }

    fn put_chunk(&mut self, chunk: &Chunk) -> Chunk {
        let mut pieces = Vec::new();
        for (start, piece) in chunk.pieces() {
            let piece = match piece {
                Piece::Held(bytes) => {
                    let id = self.content.len() as u64;
                    self.content.insert(id, bytes.clone());
                    let len = u32::try_from(bytes.len()).unwrap();
                    Piece::Stored(Stored { place: Place::new(&[id]), from: 0, len })
                }
                Piece::Stored(_) => piece.clone(),
            };
            pieces.push((start, piece));
        }
        Chunk::new(chunk.blocks(), pieces).unwrap()
    }
}

impl Flying {
    fn is_of(&self, node: u32) -> bool {
        match self {
            Self::Lease { from, to, .. }
            | Self::Peer { from, to, .. }
            | Self::File { from, to, .. }
            | Self::Errand { from, to, .. }
            | Self::ErrandReply { from, to, .. } => from.node.0 == node || *to == node,
            Self::Ceiling { node: of, .. } | Self::Disk { node: of, .. } | Self::Fetch { node: of, .. } => {
                of.node.0 == node
            }
        }
    }

    fn is_between(&self, a: u32, b: u32) -> bool {
        a != b && self.is_of(a) && self.is_of(b)
    }

    /// Whether it brings entries of a file to a backup.
    pub(crate) fn is_append(&self) -> bool {
        matches!(self, Self::File { message, .. } if matches!(message.message, Message::Append { .. }))
    }

    /// A peer message that fits.
    pub(crate) fn is_peer(&self, to: u32, fits: impl Fn(&PeerMessage) -> bool) -> bool {
        matches!(self, Self::Peer { to: at, messages, .. } if *at == to && messages.iter().any(fits))
    }
}

/// The last takeover that a daemon told of: who had the lock, and whether it waits.
pub(crate) fn taken_over(events: &[ShardEvent]) -> Option<(Option<Grant>, bool)> {
    events.iter().rev().find_map(|event| match event {
        ShardEvent::TakenOver { grant, wait_until, .. } => Some((*grant, wait_until.is_some())),
        _ => None,
    })
}
