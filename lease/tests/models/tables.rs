//! One step of one node, by the production code, remembered.
//!
//! A node is a pure function of its state, the time and the input. States of the world share a few thousand states
//! of nodes, so each is stored once, has a number, and every step is computed once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, RwLock};

use base::{Dead, NodeId, ObjectId, Process, View, WallTime, mix};
use lease::{
    Algorithm, Batch, Body, Config, Event, LeaseNode, Membership, Message, Reject, Start, ViewSource,
    Watermark,
};

use crate::milestone::Milestone;
use crate::setup::{Move, Setup};

/// All models are about one cell.
pub(crate) const CELL: ObjectId = ObjectId::new(1, 1);

const WATERMARK: Watermark =
    Watermark { epoch: base::Epoch { number: 0, node: NodeId(0) }, seq: base::Seq(0) };
const SHARDS: usize = 64;
const SENT_MAX: usize = 4;

/// A node, and what the model has to know about its past.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot<A> {
    pub(crate) node: LeaseNode<A>,
    /// The place of its view among the model's views; none for a node that was told of none yet.
    pub(crate) view: Option<u8>,
    /// Whether it began to give its lease up and has not acquired one since.
    pub(crate) given_up: bool,
}

/// A message under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Envelope {
    pub(crate) sender: Process,
    pub(crate) to: u8,
    /// The sender's clock. Answers and offers carry none: they arrive at any age.
    pub(crate) sent: Option<u8>,
    pub(crate) message: Message,
}

/// What happens to one node.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Input {
    Deliver(u32),
    /// Timers that are due are served.
    Timeout,
    /// Only the clock moved on.
    Look,
    Told(Move),
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// The node afterwards.
    pub(crate) node: u32,
    /// What it sent.
    pub(crate) sent: Sent,
    /// Whether it began a round.
    pub(crate) round: bool,
    /// Whether a round of its own is under way.
    pub(crate) trying: bool,
    pub(crate) holds: bool,
    pub(crate) milestones: u64,
    pub(crate) faults: u8,
}

/// What one step sends: a request to each other member, or an answer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    items: [Option<Ticket>; SENT_MAX],
}

/// A message under way: its place in the table of envelopes, and what the world asks most often.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Ticket {
    pub(crate) place: u32,
    pub(crate) to: u8,
    pub(crate) sent: Option<u8>,
}

impl Sent {
    fn push(&mut self, ticket: Ticket) {
        let free = self.items.iter_mut().find(|item| item.is_none());
        *free.expect("a node sends each other node one message in a step") = Some(ticket);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.items.iter().flatten().copied()
    }
}

/// Rules of their own, beside exclusion, that a step can break.
pub(crate) mod fault {
    /// `holds` although the lease is being given up.
    pub(crate) const HOLDS_WHILE_GIVING_UP: u8 = 1;
    /// A renewal shortened the lease.
    pub(crate) const SHORTENED: u8 = 2;
    /// An assertion of the production code failed.
    pub(crate) const ASSERTION: u8 = 4;
    /// One ballot carries two values.
    pub(crate) const TWO_VALUES: u8 = 8;
}

type Key = (u32, u8, Input);

/// Everything that was met so far.
pub(crate) struct Tables<A> {
    config: Arc<Config>,
    views: Vec<View>,
    nodes: Store<Snapshot<A>>,
    envelopes: Store<Envelope>,
    steps: Vec<RwLock<HashMap<Key, Outcome, Mixed>>>,
    hasher: RandomState,
    settings: Mutex<Option<u32>>,
}

/// Things with numbers, each stored once.
struct Store<T> {
    items: RwLock<Vec<Arc<T>>>,
    places: Mutex<HashMap<u64, u32>>,
}

impl<T> Store<T> {
    fn new() -> Self {
        Self { items: RwLock::new(Vec::new()), places: Mutex::new(HashMap::new()) }
    }

    fn get(&self, place: u32) -> Arc<T> {
        Arc::clone(&self.items.read().expect("no step panics here")[place as usize])
    }

    fn place_of(&self, item: T, hash: u64) -> u32 {
        let mut places = self.places.lock().expect("no step panics here");
        *places.entry(hash).or_insert_with(|| {
            let mut items = self.items.write().expect("no step panics here");
            items.push(Arc::new(item));
            u32::try_from(items.len() - 1).expect("memory ends before the numbers do")
        })
    }

    fn len(&self) -> usize {
        self.items.read().expect("no step panics here").len()
    }
}

/// What a node knows of views.
struct Known<'a>(Option<&'a View>);

impl ViewSource for Known<'_> {
    fn view(&self, _cell: ObjectId) -> Option<Cow<'_, View>> {
        self.0.map(Cow::Borrowed)
    }
}

impl<A> Hash for Snapshot<A> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.node, self.view, self.given_up).hash(state);
    }
}

impl<A: Algorithm> Tables<A> {
    pub(crate) fn new(setup: &Setup) -> Self {
        Self {
            config: Arc::new(setup.config.clone()),
            views: setup.views.clone(),
            nodes: Store::new(),
            envelopes: Store::new(),
            steps: (0..SHARDS).map(|_| RwLock::new(HashMap::default())).collect(),
            hasher: RandomState::new(),
            settings: Mutex::new(None),
        }
    }

    /// The first start of a node at a reading of its clock.
    pub(crate) fn first_start(&self, node: u8, clock: u8) -> u32 {
        let me = Process::new(u32::from(node), 1);
        let is_member = self.views[0].members.contains(NodeId(u32::from(node)));
        self.place(Snapshot {
            node: self.start(me, Start::Fresh, clock),
            view: is_member.then_some(0),
            given_up: false,
        })
    }

    pub(crate) fn node(&self, place: u32) -> Arc<Snapshot<A>> {
        self.nodes.get(place)
    }

    pub(crate) fn envelope(&self, place: u32) -> Arc<Envelope> {
        self.envelopes.get(place)
    }

    /// How many states of nodes were met.
    pub(crate) fn nodes_met(&self) -> usize {
        self.nodes.len()
    }

    /// What `input` makes of a node.
    pub(crate) fn step(&self, place: u32, clock: u8, input: Input) -> Outcome {
        let key = (place, clock, input);
        let hash = Mixed.hash_one(key);
        let shard = (hash >> 8) as usize % SHARDS;
        if let Some(outcome) = self.steps[shard].read().expect("no step panics here").get(&key) {
            return *outcome;
        }
        let outcome = self.compute(place, clock, input);
        self.steps[shard].write().expect("no step panics here").insert(key, outcome);
        outcome
    }

    fn compute(&self, place: u32, clock: u8, input: Input) -> Outcome {
        let before = self.node(place);
        let mut after = Snapshot::clone(&before);
        let now = WallTime::from_micros(u64::from(clock));
        // An assertion of the node is a finding with a story, not the end of the checker.
        let run = catch_unwind(AssertUnwindSafe(|| self.apply(&mut after, clock, input)));
        if run.is_err() {
            return Outcome { node: place, faults: fault::ASSERTION, ..Outcome::default() };
        }
        let mut outcome = Outcome::default();
        self.drain_events(&before, &mut after, &mut outcome);
        self.drain_messages(&mut after, now, &mut outcome);
        outcome.milestones |= milestones_of_counters(&before.node, &after.node);
        outcome.holds = after.node.holds(now, CELL);
        outcome.trying = after.node.round(CELL).is_some();
        if outcome.holds && after.given_up {
            outcome.faults |= fault::HOLDS_WHILE_GIVING_UP;
        }
        let untils = (before.node.valid_until(now, CELL), after.node.valid_until(now, CELL));
        if let (Some(until_before), Some(until_after)) = untils
            && until_after < until_before
        {
            outcome.faults |= fault::SHORTENED;
        }
        outcome.node = self.place(after);
        outcome
    }

    fn apply(&self, snapshot: &mut Snapshot<A>, clock: u8, input: Input) {
        let now = WallTime::from_micros(u64::from(clock));
        let known = Known(snapshot.view.map(|view| &self.views[usize::from(view)]));
        match input {
            Input::Look => {}
            Input::Timeout => snapshot.node.handle_timeout(now),
            Input::Deliver(place) => {
                let Envelope { sender, sent, message, .. } = Envelope::clone(&self.envelope(place));
                let sent = sent.map_or(now, |sent| WallTime::from_micros(u64::from(sent)));
                let settings = self.settings.lock().expect("no step panics here").unwrap_or(0);
                let batch = Batch { sender, settings, sent, messages: vec![message] };
                snapshot.node.handle_batch(now, &batch, &known);
            }
            Input::Told(order) => self.tell(snapshot, clock, order),
        }
    }

    fn tell(&self, snapshot: &mut Snapshot<A>, clock: u8, order: Move) {
        let now = WallTime::from_micros(u64::from(clock));
        let known = Known(snapshot.view.map(|view| &self.views[usize::from(view)]));
        let Snapshot { node, given_up, .. } = snapshot;
        // A refused command changes nothing, and then there is no such action.
        match order {
            Move::Acquire(_) => drop(node.acquire(now, CELL, &known)),
            Move::Release(_) => *given_up |= node.release(now, CELL, WATERMARK).is_ok(),
            Move::HandOver { to, .. } => {
                *given_up |= node.hand_over(now, CELL, NodeId(u32::from(to)), WATERMARK).is_ok();
            }
            Move::StandDown(_) => {
                *given_up |= node.holds(now, CELL);
                node.stand_down(now, &|_| WATERMARK);
            }
            Move::Resume(_) => node.resume(now),
            Move::Restart(_) => {
                let Process { node: id, incarnation } = node.me();
                *node = self.start(Process::new(id.0, incarnation.0 + 1), Start::Again, clock);
                snapshot.given_up = false;
            }
            // Models restart a node once: its first incarnation is the dead one.
            Move::Notice { dead, .. } => {
                node.handle_death_notice(Dead::up_to(Process::new(u32::from(dead), 1)));
            }
            Move::Propose(_) | Move::Adopt(_) => self.enter_next_view(snapshot, now),
        }
    }

    fn enter_next_view(&self, snapshot: &mut Snapshot<A>, now: WallTime) {
        // A newcomer is told of the latest view; it has not seen the ones before.
        let me = snapshot.node.me().node;
        let next = match snapshot.view {
            Some(view) => usize::from(view) + 1,
            None => self.views.iter().position(|view| view.members.contains(me)).unwrap_or(0),
        };
        let was_member = self.views[next - 1].members.contains(me);
        let membership = if was_member { Membership::Kept } else { Membership::Joined };
        snapshot.node.change_view(now, CELL, &self.views[next], membership);
        snapshot.view = u8::try_from(next).ok();
    }

    fn start(&self, me: Process, start: Start, clock: u8) -> LeaseNode<A> {
        let now = WallTime::from_micros(u64::from(clock));
        LeaseNode::new(Arc::clone(&self.config), me, start, now, 1)
            .expect("models have a valid configuration")
    }

    fn drain_events(&self, before: &Snapshot<A>, after: &mut Snapshot<A>, outcome: &mut Outcome) {
        let me = before.node.me().node.0 as usize;
        while let Some(event) = after.node.poll_event() {
            outcome.milestones |= Milestone::of_event(me, &event);
            if matches!(event, Event::Acquired { .. }) {
                after.given_up = false;
            }
        }
    }

    fn drain_messages(&self, after: &mut Snapshot<A>, now: WallTime, outcome: &mut Outcome) {
        while let Some((to, batch)) = after.node.poll_transmit(now) {
            *self.settings.lock().expect("no step panics here") = Some(batch.settings);
            for message in batch.messages {
                let is_request = matches!(message.body, Body::Read | Body::Write(_));
                outcome.round |= message.body == Body::Read;
                if matches!(message.body, Body::WrongView(_)) {
                    outcome.milestones |= Milestone::AnsweredWrongView.bit();
                }
                if matches!(message.body, Body::Nack { .. }) {
                    let by_floor = after.node.registers() == 0;
                    let by = if by_floor { Milestone::RefusedByFloor } else { Milestone::RefusedByRegister };
                    outcome.milestones |= by.bit();
                }
                let sent = is_request.then(|| u8::try_from(now.as_micros()).expect("model clocks are short"));
                let to = u8::try_from(to.0).expect("models have few nodes");
                let place = self.envelope_place(Envelope { sender: batch.sender, to, sent, message });
                outcome.sent.push(Ticket { place, to, sent });
            }
        }
    }

    fn place(&self, snapshot: Snapshot<A>) -> u32 {
        let hash = self.hasher.hash_one(&snapshot);
        self.nodes.place_of(snapshot, hash)
    }

    fn envelope_place(&self, envelope: Envelope) -> u32 {
        let hash = self.hasher.hash_one(&envelope);
        self.envelopes.place_of(envelope, hash)
    }
}

/// A hash of few small numbers: much faster than the default, which defends against attackers.
#[derive(Clone, Copy, Default)]
struct Mixed;

struct MixedHasher(u64);

impl BuildHasher for Mixed {
    type Hasher = MixedHasher;

    fn build_hasher(&self) -> MixedHasher {
        MixedHasher(0)
    }
}

impl Hasher for MixedHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }

    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }

    fn write_isize(&mut self, word: isize) {
        self.write_u64(word.cast_unsigned() as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn milestones_of_counters<A: Algorithm>(before: &LeaseNode<A>, after: &LeaseNode<A>) -> u64 {
    // A restart counts from zero again.
    let (before, after) = (before.counters(), after.counters());
    let mut milestones = if after.dropped > before.dropped { Milestone::Dropped.bit() } else { 0 };
    for &why in Reject::ALL {
        if after.rejected(why) > before.rejected(why) {
            milestones |= Milestone::of_reject(why);
        }
    }
    milestones
}
