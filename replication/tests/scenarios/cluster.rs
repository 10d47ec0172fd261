//! A few replicas of one object, with journals that lose what was not written and links that can be cut.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::{ClientId, Epoch, Members, NodeId, Random, Span, ViewId, WallTime};
use replication::{
    AskError, Bug, ChangeError, Checkpoint, Config, Event, Io, LeadError, Machine, Mark, Message, Output,
    Position, ProposeError, Record, Replica, Request, Standing, SyncError, Tenure, Ticket, Waiting, When,
};

pub(crate) const fn ms(count: u64) -> Span {
    Span::from_millis(count)
}

/// The first cell that takes much room.
pub(crate) const HEAVY: u8 = 240;

/// Cells with a byte each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Cells {
    pub(crate) cells: BTreeMap<u8, (Position, u8)>,
    /// How many operations were executed, and the last of them.
    pub(crate) executed: (Position, u64),
    /// All of them, where they were ordered.
    pub(crate) history: BTreeMap<Position, Put>,
}

/// What the state is made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    Executed,
    Cell(u8),
    History(Position),
}

/// Writes a byte.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Put(pub(crate) u8, pub(crate) u8);

impl Put {
    /// What is put into the last cells takes much room, and into the very last one too much.
    const fn bytes(self) -> u64 {
        match self.0 {
            0..HEAVY => 2,
            HEAVY..u8::MAX => Cells::OP_BYTES_MAX,
            u8::MAX => Cells::OP_BYTES_MAX + 1,
        }
    }
}

impl Machine for Cells {
    type Op = Put;
    /// What stood there before.
    type Outcome = Option<u8>;
    /// Which cell.
    type Query = u8;
    type Answer = Option<u8>;
    type Key = Key;
    type Part = u64;

    const OP_BYTES_MAX: u64 = 1_000;
    const OUTCOME_BYTES_MAX: u64 = 2;
    const PART_BYTES_MAX: u64 = 8;

    /// Heavy are the cells that are told to be.
    fn op_bytes(put: &Put) -> u64 {
        put.bytes()
    }

    fn part_bytes(_: &u64) -> u64 {
        8
    }

    fn apply(&mut self, at: Position, put: &Put) -> Option<u8> {
        let &Put(cell, value) = put;
        self.executed = (at, self.executed.1 + 1);
        self.history.insert(at, *put);
        self.cells.insert(cell, (at, value)).map(|(_, before)| before)
    }

    fn answer(&self, cell: &u8) -> Option<u8> {
        self.cells.get(cell).map(|&(_, value)| value)
    }

    fn overlaps(&self, op: &Put, cell: &u8) -> bool {
        op.0 == *cell
    }

    fn versions(&self, after: Option<&Key>, parts_max: usize) -> Vec<(Key, Position)> {
        let executed = std::iter::once((Key::Executed, self.executed.0));
        let all = executed.chain(self.cells.iter().map(|(&cell, &(at, _))| (Key::Cell(cell), at)));
        let all = all.chain(self.history.keys().map(|&at| (Key::History(at), at)));
        all.filter(|(key, _)| after.is_none_or(|after| key > after)).take(parts_max).collect()
    }

    fn version(&self, key: &Key) -> Option<Position> {
        match key {
            Key::Executed => Some(self.executed.0),
            Key::Cell(cell) => self.cells.get(cell).map(|&(at, _)| at),
            Key::History(at) => self.history.contains_key(at).then_some(*at),
        }
    }

    fn part(&self, key: &Key) -> Option<u64> {
        match key {
            Key::Executed => Some(self.executed.1),
            Key::Cell(cell) => self.cells.get(cell).map(|&(_, value)| value.into()),
            Key::History(at) => {
                self.history.get(at).map(|&Put(cell, value)| u64::from(cell) << 8 | u64::from(value))
            }
        }
    }

    fn place(&mut self, key: Key, part: Option<(Position, u64)>) {
        match (key, part) {
            (Key::Executed, part) => self.executed = part.unwrap_or_default(),
            (Key::Cell(cell), None) => {
                self.cells.remove(&cell);
            }
            (Key::Cell(cell), Some((at, value))) => {
                self.cells.insert(cell, (at, value.try_into().unwrap()));
            }
            (Key::History(at), None) => {
                self.history.remove(&at);
            }
            (Key::History(at), Some((_, put))) => {
                let [.., cell, value] = put.to_be_bytes();
                self.history.insert(at, Put(cell, value));
            }
        }
    }
}

type Sent = Message<Cells>;

/// A message on its way.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Flying {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) view: ViewId,
    pub(crate) message: Sent,
}

/// A node: its process, and what it has on disk.
struct Node {
    replica: Option<Replica<Cells>>,
    /// What it had to begin with.
    checkpoint: Option<Checkpoint<Cells>>,
    journal: Vec<Record<Cells>>,
    /// How many records there were when the process started, less those that a checkpoint has made needless.
    started_at: i64,
    /// In epochs up to this one it may have lost what was not synced.
    forgot_at: Option<u64>,
    /// How many would survive the end of the process, and a power cut.
    written: usize,
    durable: usize,
    /// What waits for a write.
    waiting: Vec<(Io, bool, Flying)>,
    is_slow: bool,
}

impl Node {
    /// How many records there have to be for this one to be there.
    fn place(&self, io: Io) -> usize {
        usize::try_from(self.started_at + i64::try_from(io.0).unwrap()).unwrap_or(0)
    }
}

/// What whoever asked was told.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Told {
    Done(Request, Option<u8>, Mark),
    Answer(Ticket, Option<u8>),
    Durable(Ticket),
    Unknown(Waiting),
    Event(Event),
}

pub(crate) struct Cluster {
    nodes: BTreeMap<u32, Node>,
    config: Arc<Config>,
    pub(crate) now: WallTime,
    flying: VecDeque<Flying>,
    /// Links that lose everything, from and to.
    cut: BTreeSet<(u32, u32)>,
    /// Held back until let go.
    pub(crate) held: Vec<Flying>,
    hold: Box<dyn Fn(&Flying) -> bool>,
    pub(crate) told: Vec<(u32, Told)>,
    /// Messages arrive one by one, as [`Cluster::deliver_one`] says.
    pub(crate) by_hand: bool,
    /// Whether whoever has something back that was damaged makes a checkpoint at once.
    pub(crate) keeps_mended: bool,
    pub(crate) epoch: u64,
    pub(crate) begun_after: u64,
    requests: u64,
    tickets: u64,
}

impl Cluster {
    pub(crate) fn new(nodes: u32, bug: Option<Bug>) -> Self {
        Self::with(nodes, Config { bug, ..Config::default() })
    }

    /// With nodes that have nothing of the object.
    pub(crate) fn with_spare(members: u32, nodes: u32, bug: Option<Bug>) -> Self {
        Self::of(members, nodes, Config { bug, ..Config::default() })
    }

    pub(crate) fn with(nodes: u32, config: Config) -> Self {
        Self::of(nodes, nodes, config)
    }

    pub(crate) fn of(members: u32, nodes: u32, config: Config) -> Self {
        let config = Arc::new(config);
        let mut cluster = Self {
            nodes: BTreeMap::new(),
            config,
            now: WallTime::from_micros(1_000_000),
            flying: VecDeque::new(),
            cut: BTreeSet::new(),
            held: Vec::new(),
            hold: Box::new(|_| false),
            told: Vec::new(),
            by_hand: false,
            keeps_mended: true,
            epoch: 0,
            begun_after: 0,
            requests: 0,
            tickets: 0,
        };
        let first = Members::new((1..=members).map(NodeId)).unwrap();
        for id in 1..=nodes {
            let node = Node {
                replica: None,
                checkpoint: (id <= members).then(|| Checkpoint::first(first.clone(), Cells::default())),
                forgot_at: None,
                journal: Vec::new(),
                started_at: 0,
                written: 0,
                durable: 0,
                waiting: Vec::new(),
                is_slow: false,
            };
            cluster.nodes.insert(id, node);
        }
        (1..=nodes).for_each(|id| cluster.start(id));
        cluster
    }

    /// The first members are where anybody looks for the object. Nothing has happened yet.
    pub(crate) fn at_home(mut self) -> Self {
        let ids: Vec<u32> = self.nodes.keys().copied().collect();
        for id in ids {
            let node = self.nodes.get_mut(&id).unwrap();
            if node.replica.as_ref().is_some_and(Replica::is_whole) {
                node.checkpoint = node.checkpoint.take().map(Checkpoint::at_home);
                node.replica = None;
                self.start(id);
            }
        }
        self
    }

    pub(crate) fn replica(&self, id: u32) -> &Replica<Cells> {
        self.nodes[&id].replica.as_ref().expect("it runs")
    }

    pub(crate) fn call<T>(&mut self, id: u32, call: impl FnOnce(&mut Replica<Cells>, WallTime) -> T) -> T {
        let now = self.now;
        let called = call(self.nodes.get_mut(&id).unwrap().replica.as_mut().expect("it runs"), now);
        self.drain(id);
        called
    }

    /// Does what a replica wants done.
    fn drain(&mut self, id: u32) {
        while let Some(output) =
            self.nodes.get_mut(&id).unwrap().replica.as_mut().and_then(Replica::poll_output)
        {
            let told = match output {
                Output::Journal { io, record } => {
                    let node = self.nodes.get_mut(&id).unwrap();
                    node.journal.push(record);
                    assert_eq!(node.place(io), node.journal.len());
                    self.write(id);
                    continue;
                }
                Output::Send { to, view, message, when } => {
                    self.send(Flying { from: id, to: to.0, view, message }, when);
                    continue;
                }
                Output::Done { request, outcome, mark, until } => {
                    assert!(self.now < until || self.config.bug.is_some(), "R4");
                    Told::Done(request, outcome, mark)
                }
                Output::Answer { ticket, answer, .. } => Told::Answer(ticket, answer),
                Output::Durable { ticket, .. } => Told::Durable(ticket),
                Output::Unknown(waiting) => Told::Unknown(waiting),
                Output::Event(event) => Told::Event(event),
            };
            self.told.push((id, told));
        }
        if self.told.last() == Some(&(id, Told::Event(Event::Forgotten))) {
            self.remove(id);
            self.start(id);
        }
    }

    fn send(&mut self, flying: Flying, when: When) {
        let bytes_max = self.config.batch_bytes_max.max(self.config.page_bytes_max);
        assert!(flying.message.bytes() <= bytes_max, "a message is too large: {flying:?}");
        let (io, durable) = match when {
            When::Now => return self.flying.push_back(flying),
            When::Written(io) => (io, false),
            When::Durable(io) => (io, true),
        };
        let from = flying.from;
        self.nodes.get_mut(&from).unwrap().waiting.push((io, durable, flying));
        self.write(from);
    }

    /// Writes what the node has to write, and syncs if anything waits for it, unless its disk is slow.
    fn write(&mut self, id: u32) {
        let node = self.nodes.get_mut(&id).unwrap();
        if !node.is_slow {
            node.written = node.journal.len();
            if node.waiting.iter().any(|(_, durable, ..)| *durable) {
                node.durable = node.written;
            }
        }
        let (written, durable) = (node.written, node.durable);
        let waiting = std::mem::take(&mut node.waiting).into_iter();
        let (ready, waiting) =
            waiting.partition(|&(io, sync, _)| node.place(io) <= if sync { durable } else { written });
        node.waiting = waiting;
        let ready: Vec<(Io, bool, Flying)> = ready;
        self.flying.extend(ready.into_iter().map(|(_, _, flying)| flying));
    }

    /// The node's disk takes nothing until it is quick again.
    pub(crate) fn slow_disk(&mut self, id: u32, is_slow: bool) {
        self.nodes.get_mut(&id).unwrap().is_slow = is_slow;
        self.write(id);
    }

    /// How much a node has written, or will have, since its last checkpoint.
    pub(crate) fn records(&self, id: u32) -> usize {
        self.nodes[&id].journal.len()
    }

    /// All that is written is synced.
    pub(crate) fn sync_disk(&mut self, id: u32) {
        let node = self.nodes.get_mut(&id).unwrap();
        node.durable = node.written;
    }

    /// Delivers everything, and what follows from it.
    pub(crate) fn settle(&mut self) {
        if self.by_hand {
            return;
        }
        let mut steps = 0;
        while let Some(flying) = self.flying.pop_front() {
            steps += 1;
            assert!(steps < 100_000, "this does not end: {flying:?}");
            if (self.hold)(&flying) {
                self.held.push(flying);
            } else if !self.cut.contains(&(flying.from, flying.to)) {
                self.deliver(flying);
            }
        }
    }

    /// One message arrives, or is lost on a link that is cut: the first one of some link.
    pub(crate) fn deliver_one(&mut self, random: &mut Random) {
        if self.flying.is_empty() {
            return;
        }
        let drawn = &self.flying[random.index(self.flying.len())];
        let link = (drawn.from, drawn.to);
        let first = self.flying.iter().position(|flying| (flying.from, flying.to) == link);
        let Some(flying) = first.and_then(|first| self.flying.remove(first)) else { return };
        if !self.cut.contains(&link) {
            self.deliver(flying);
        }
    }

    fn deliver(&mut self, Flying { from, to, view, message }: Flying) {
        if self.nodes[&to].replica.is_some() {
            self.call(to, |replica, now| replica.handle_message(now, NodeId(from), view, message));
        }
    }

    /// Holds back what is like this, from now on.
    pub(crate) fn hold_back(&mut self, hold: impl Fn(&Flying) -> bool + 'static) {
        self.hold = Box::new(hold);
    }

    /// These messages arrive, and what follows from them.
    pub(crate) fn deliver_all(&mut self, messages: Vec<Flying>) {
        messages.into_iter().for_each(|flying| self.deliver(flying));
        self.settle();
    }

    /// What was held back arrives.
    pub(crate) fn let_go(&mut self) {
        self.hold = Box::new(|_| false);
        self.flying.extend(self.held.drain(..));
        self.settle();
    }

    /// Lets time pass, a millisecond at a time.
    pub(crate) fn run(&mut self, time: Span) {
        let end = self.now + time;
        self.settle();
        while self.now < end {
            self.now = self.now + ms(1);
            let ids: Vec<u32> = self.nodes.keys().copied().collect();
            for id in ids {
                let is_due = self.nodes[&id].replica.as_ref().and_then(Replica::poll_timeout);
                if is_due.is_some_and(|at| at <= self.now) {
                    self.call(id, |replica, now| replica.handle_timeout(now));
                    let next = self.nodes[&id].replica.as_ref().and_then(Replica::poll_timeout);
                    assert!(
                        next.is_none_or(|at| at > self.now),
                        "node {id} wants to be woken at once for ever"
                    );
                }
            }
            self.settle();
            self.keep_mended();
        }
    }

    /// Who has something back makes a checkpoint at once, as daemons do.
    fn keep_mended(&mut self) {
        let is_due = |node: &Node| {
            let replica = node.replica.as_ref();
            replica.is_some_and(|replica| replica.is_sound() && !replica.outlives_a_start())
        };
        let due = self.nodes.iter().filter(|(_, node)| is_due(node) && self.keeps_mended);
        let due: Vec<u32> = due.map(|(&id, _)| id).collect();
        due.into_iter().for_each(|id| self.checkpoint(id));
    }

    /// Nothing passes in this direction.
    pub(crate) fn cut(&mut self, from: u32, to: u32) {
        self.cut.insert((from, to));
    }

    /// Whether the node's disk has all that it was given.
    pub(crate) fn is_written(&self, id: u32) -> bool {
        let node = &self.nodes[&id];
        node.written == node.journal.len()
    }

    pub(crate) fn is_up(&self, id: u32) -> bool {
        self.nodes[&id].replica.is_some()
    }

    /// Nothing passes between a node and the others.
    pub(crate) fn isolate(&mut self, id: u32) {
        let others: Vec<u32> = self.nodes.keys().copied().filter(|&other| other != id).collect();
        self.cut.extend(others.into_iter().flat_map(|other| [(id, other), (other, id)]));
    }

    pub(crate) fn mend(&mut self) {
        self.cut.clear();
    }

    /// The process ends. What was not written is lost.
    pub(crate) fn kill(&mut self, id: u32) {
        let node = self.nodes.get_mut(&id).unwrap();
        node.replica = None;
        node.waiting.clear();
        node.journal.truncate(node.written);
        self.flying.retain(|flying| flying.to != id);
    }

    /// The node's power is cut. What was not synced is lost.
    pub(crate) fn power_off(&mut self, id: u32) {
        self.kill(id);
        let node = self.nodes.get_mut(&id).unwrap();
        node.written = node.durable;
        node.journal.truncate(node.durable);
        node.forgot_at = Some(self.epoch);
    }

    /// Nothing that the node has kept can be read any more, and that is noticed at its start.
    pub(crate) fn damage(&mut self, id: u32) {
        let members = self.replica(id).view().members.clone();
        self.kill(id);
        let node = self.nodes.get_mut(&id).unwrap();
        let damaged = |members| Checkpoint::damaged(members, Cells::default(), self.epoch);
        node.checkpoint = node.checkpoint.is_some().then(|| damaged(members));
        node.journal.clear();
        (node.written, node.durable) = (0, 0);
        self.start(id);
    }

    /// The node finds parts of its state to be damaged.
    pub(crate) fn rot(&mut self, id: u32, keys: &[Key]) {
        let machine = self.replica(id).machine();
        let parts: Vec<_> = keys.iter().filter_map(|key| Some((*key, machine.version(key)?))).collect();
        self.call(id, |replica, now| replica.damage(now, parts));
    }

    /// A start finds parts of what is in the node's last checkpoint to be damaged.
    pub(crate) fn rot_disk(&mut self, id: u32, keys: &[Key]) {
        self.kill(id);
        let node = self.nodes.get_mut(&id).unwrap();
        let checkpoint = node.checkpoint.take().unwrap();
        let (_, machine) = checkpoint.clone().into_parts();
        let there = keys.iter().copied().filter(|key| machine.version(key).is_some());
        node.checkpoint = Some(checkpoint.lacking(there));
        self.start(id);
    }

    /// A start finds that there was a part in the node's last checkpoint, and not what it was.
    pub(crate) fn lose_on_disk(&mut self, id: u32, key: Key) {
        self.kill(id);
        let node = self.nodes.get_mut(&id).unwrap();
        let (head, mut machine) = node.checkpoint.take().unwrap().into_parts();
        machine.place(key, None);
        node.checkpoint = Some(Checkpoint::from_parts(head, machine).lacking([key]));
        self.start(id);
    }

    /// What `act` does with a node whose start cannot read what its disk reads again at the next start.
    pub(crate) fn while_unreadable(&mut self, id: u32, key: Key, act: impl FnOnce(&mut Self)) {
        let readable = self.nodes[&id].checkpoint.clone();
        self.lose_on_disk(id, key);
        act(self);
        self.kill(id);
        self.nodes.get_mut(&id).unwrap().checkpoint = readable;
        self.start(id);
    }

    /// What has been written so far becomes a checkpoint.
    pub(crate) fn checkpoint(&mut self, id: u32) {
        let node = self.nodes.get_mut(&id).unwrap();
        if node.is_slow {
            return;
        }
        let Some(replica) = &mut node.replica else { return };
        replica.handle_kept(replica.mended());
        node.checkpoint = Some(kept(replica.checkpoint()));
        node.started_at -= i64::try_from(node.journal.len()).unwrap();
        node.journal.clear();
        (node.written, node.durable) = (0, 0);
    }

    pub(crate) fn start(&mut self, id: u32) {
        let config = Arc::clone(&self.config);
        let node = self.nodes.get_mut(&id).unwrap();
        if node.checkpoint.is_none() {
            let replica = Replica::empty(NodeId(id), Arc::clone(&config), Cells::default(), None);
            node.checkpoint = Some(kept(replica.checkpoint()));
        }
        let (checkpoint, journal) = (node.checkpoint.clone().unwrap(), node.journal.iter().cloned());
        let replica = Replica::new(NodeId(id), config, checkpoint, journal, node.forgot_at).unwrap();
        (node.replica, node.started_at) = (Some(replica), i64::try_from(node.journal.len()).unwrap());
    }

    /// The node has lost its disk: what comes back has another name, and here there is nothing.
    pub(crate) fn remove(&mut self, id: u32) {
        self.kill(id);
        let node = self.nodes.get_mut(&id).unwrap();
        (node.checkpoint, node.forgot_at) = (None, None);
        node.journal.clear();
        (node.written, node.durable) = (0, 0);
    }

    /// The node forgets the object, and is asked about it again. What it has promised it keeps.
    pub(crate) fn bury(&mut self, id: u32) {
        let members = self.replica(id).view().members.clone();
        self.remove(id);
        self.nodes.get_mut(&id).unwrap().checkpoint =
            Some(Checkpoint::first(members, Cells::default()).promising(self.epoch));
        self.start(id);
    }

    /// The node gets the lease.
    pub(crate) fn lead(&mut self, id: u32) -> Epoch {
        self.try_lead(id).unwrap()
    }

    pub(crate) fn try_lead(&mut self, id: u32) -> Result<Epoch, LeadError> {
        self.try_lead_as(id, true)
    }

    /// The node gets the lease. Whoever asked for the object may want to begin it.
    pub(crate) fn lead_as(&mut self, id: u32, creates: bool) {
        self.try_lead_as(id, creates).unwrap();
    }

    fn try_lead_as(&mut self, id: u32, creates: bool) -> Result<Epoch, LeadError> {
        self.epoch += 1;
        let epoch = Epoch { number: self.epoch, node: NodeId(id) };
        let (lease, until, begun_after) = (self.epoch, self.now + ms(2_000), self.begun_after);
        let tenure = Tenure { epoch, lease, until, creates, begun_after };
        let led = self.call(id, |replica, now| replica.lead(now, tenure));
        self.settle();
        led.map(|()| epoch)
    }

    /// The node gets the lease and serves.
    pub(crate) fn serve(&mut self, id: u32) {
        self.lead(id);
        assert_eq!(self.replica(id).standing(), Standing::Serving);
    }

    /// The node gets the lease, and serves after a while.
    pub(crate) fn serve_soon(&mut self, id: u32) {
        self.lead(id);
        self.renew(id);
        self.run(ms(3_000));
        assert_eq!(self.replica(id).standing(), Standing::Serving);
    }

    /// The lease lasts long.
    pub(crate) fn renew(&mut self, id: u32) {
        let until = self.now + ms(1_000_000);
        self.call(id, |replica, _| replica.renew(until));
    }

    pub(crate) fn resign(&mut self, id: u32) {
        self.call(id, |replica, _| replica.resign());
    }

    pub(crate) fn request(&mut self) -> Request {
        self.requests += 1;
        Request { client: ClientId { certificate: 7, program: 1 }, number: self.requests, settled: 1 }
    }

    pub(crate) fn propose_for_house(
        &mut self,
        id: u32,
        request: Request,
        op: Put,
    ) -> Result<(), ProposeError> {
        let proposed = self.call(id, |replica, now| replica.propose_for_house(now, request, op));
        self.settle();
        proposed
    }

    /// Proposes, and delivers what can be delivered.
    pub(crate) fn propose(&mut self, id: u32, request: Request, op: Put) -> Result<(), ProposeError> {
        let proposed = self.call(id, |replica, now| replica.propose(now, request, op));
        self.call(id, |replica, _| replica.sync_ahead());
        self.settle();
        proposed
    }

    /// A new request that is to be durable when it is told to be done.
    pub(crate) fn put_synced(&mut self, id: u32, cell: u8, value: u8) -> Request {
        let request = self.request();
        self.call(id, |replica, now| replica.propose(now, request, Put(cell, value))).unwrap();
        self.call(id, |replica, _| replica.sync_with_last());
        self.settle();
        request
    }

    /// A new request, and whether it was done.
    pub(crate) fn put(&mut self, id: u32, cell: u8, value: u8) -> (Request, Option<Mark>) {
        let request = self.request();
        self.propose(id, request, Put(cell, value)).unwrap();
        (request, self.done(request))
    }

    /// A request that must be done.
    pub(crate) fn must_put(&mut self, id: u32, cell: u8, value: u8) -> Mark {
        let (request, done) = self.put(id, cell, value);
        done.unwrap_or_else(|| panic!("{request:?} is not done"))
    }

    /// Where the request took effect, if somebody said that it has.
    pub(crate) fn done(&self, request: Request) -> Option<Mark> {
        self.told.iter().find_map(|(_, told)| match told {
            Told::Done(done, _, mark) if *done == request => Some(*mark),
            _ => None,
        })
    }

    pub(crate) fn ask(&mut self, id: u32, cell: u8) -> Ticket {
        self.try_ask(id, cell).unwrap()
    }

    pub(crate) fn try_ask(&mut self, id: u32, cell: u8) -> Result<Ticket, AskError> {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let asked = self.call(id, |replica, now| replica.ask(now, ticket, cell));
        self.settle();
        asked.map(|()| ticket)
    }

    pub(crate) fn answer(&self, ticket: Ticket) -> Option<Option<u8>> {
        self.told.iter().find_map(|(_, told)| match told {
            Told::Answer(answered, answer) if *answered == ticket => Some(*answer),
            _ => None,
        })
    }

    /// Asks, and must be answered at once.
    pub(crate) fn read(&mut self, id: u32, cell: u8) -> Option<u8> {
        let ticket = self.ask(id, cell);
        self.answer(ticket).unwrap_or_else(|| panic!("no answer at node {id}"))
    }

    pub(crate) fn sync(&mut self, id: u32, mark: Mark) -> Ticket {
        self.try_sync(id, mark).unwrap()
    }

    pub(crate) fn try_sync(&mut self, id: u32, mark: Mark) -> Result<Ticket, SyncError> {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let asked = self.call(id, |replica, now| replica.sync(now, ticket, (mark, mark)));
        self.settle();
        asked.map(|()| ticket)
    }

    pub(crate) fn admit(&mut self, id: u32, node: u32) -> Result<(), ChangeError> {
        let asked = self.call(id, |replica, now| replica.admit(now, NodeId(node)));
        self.settle();
        asked
    }

    pub(crate) fn dismiss(&mut self, id: u32, node: u32) -> Result<(), ChangeError> {
        let asked = self.call(id, |replica, now| replica.dismiss(now, NodeId(node)));
        self.settle();
        asked
    }

    pub(crate) fn accept_loss(&mut self, id: u32) -> bool {
        let accepted = self.call(id, Replica::accept_loss);
        self.settle();
        accepted
    }

    pub(crate) fn ask_for_view(&mut self, id: u32, node: u32) {
        self.call(id, |replica, _| replica.ask_for_view(NodeId(node)));
        self.settle();
    }

    pub(crate) fn strike(&mut self, id: u32, node: u32) {
        self.call(id, |replica, now| {
            replica.strike(now, NodeId(node));
        });
        self.settle();
    }

    pub(crate) fn forget_log(&mut self, id: u32) {
        self.call(id, |replica, _| replica.forget_log());
    }

    pub(crate) fn is_durable(&self, ticket: Ticket) -> bool {
        self.told.iter().any(|(_, told)| *told == Told::Durable(ticket))
    }

    pub(crate) fn was_told(&self, id: u32, what: &Told) -> bool {
        self.told.iter().any(|(node, told)| *node == id && told == what)
    }

    pub(crate) fn expire(&mut self, id: u32, client: ClientId) {
        self.try_expire(id, client).unwrap();
    }

    pub(crate) fn try_expire(&mut self, id: u32, client: ClientId) -> Result<(), ProposeError> {
        let expired = self.call(id, |replica, now| replica.expire(now, client));
        self.settle();
        expired
    }

    /// The members of an object, as a node knows them.
    pub(crate) fn members(&self, id: u32) -> Vec<u32> {
        self.replica(id).view().members.as_slice().iter().map(|node| node.0).collect()
    }

    /// These replicas have the same log and the same state.
    pub(crate) fn assert_same(&self, nodes: &[u32]) {
        let mut replicas = nodes.iter().map(|&node| self.replica(node));
        let first = replicas.next().unwrap();
        for other in replicas {
            assert_eq!((first.tail(), first.committed()), (other.tail(), other.committed()));
            assert_eq!(first.machine(), other.machine());
            assert_eq!(first.rest(), other.rest());
        }
    }
}

/// A checkpoint after it was taken apart and put together, as a store does it.
fn kept(checkpoint: Checkpoint<Cells>) -> Checkpoint<Cells> {
    let (head, machine) = checkpoint.into_parts();
    assert!(head.is_sound(), "a store would refuse what this replica keeps");
    Checkpoint::from_parts(head, machine)
}
