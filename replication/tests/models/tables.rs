//! One step of one node, by the production code, remembered.
//!
//! A node is a pure function of its state and the input. States of the world share a few thousand states of nodes, so
//! each is stored once, has a number, and every step is computed once.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher, RandomState};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, RwLock};

use base::{ViewId, mix};
use replication::{Config, Message};

use crate::facts::Facts;
use crate::milestone::Milestone;
use crate::node::{Flying, Input, NOW, Node, Told, id};
use crate::setup::Setup;
use crate::tiny::Tiny;

const SHARDS: usize = 64;

/// A message under way.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Envelope {
    pub(crate) from: u8,
    pub(crate) to: u8,
    pub(crate) view: ViewId,
    pub(crate) message: Message<Tiny>,
}

/// A message under way, by its place in the table of envelopes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) place: u32,
    pub(crate) to: u8,
}

/// What came of a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outcome {
    /// The node afterwards.
    pub(crate) node: u32,
    pub(crate) sent: Vec<Sent>,
    pub(crate) done: Vec<(u8, Told)>,
    pub(crate) durable: Vec<u8>,
    pub(crate) milestones: u64,
    pub(crate) faults: u8,
}

/// Rules that a step can break.
pub(crate) mod fault {
    /// An assertion of the production code failed.
    pub(crate) const ASSERTION: u8 = 1;
    /// A promise was taken back.
    pub(crate) const PROMISE: u8 = 2;
}

type Key = (u32, Input);

/// Everything that was met so far.
pub(crate) struct Tables {
    pub(crate) setup: Setup,
    config: Arc<Config>,
    nodes: Store<(Node, Facts)>,
    envelopes: Store<Envelope>,
    steps: Vec<RwLock<HashMap<Key, Arc<Outcome>, Mixed>>>,
    hasher: RandomState,
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

    fn place_of(&self, hash: u64, item: impl FnOnce() -> T) -> u32 {
        let mut places = self.places.lock().expect("no step panics here");
        *places.entry(hash).or_insert_with(|| {
            let mut items = self.items.write().expect("no step panics here");
            items.push(Arc::new(item()));
            u32::try_from(items.len() - 1).expect("memory ends before the numbers do")
        })
    }

    fn len(&self) -> usize {
        self.items.read().expect("no step panics here").len()
    }
}

impl Tables {
    pub(crate) fn new(setup: Setup) -> Self {
        Self {
            config: Arc::new(setup.config.clone()),
            setup,
            nodes: Store::new(),
            envelopes: Store::new(),
            steps: (0..SHARDS).map(|_| RwLock::new(HashMap::default())).collect(),
            hasher: RandomState::new(),
        }
    }

    /// The first start of a node.
    pub(crate) fn first_start(&self, node: u8) -> u32 {
        self.place(Node::first(&self.setup, &self.config, node), node)
    }

    pub(crate) fn node(&self, place: u32) -> Arc<(Node, Facts)> {
        self.nodes.get(place)
    }

    pub(crate) fn envelope(&self, place: u32) -> Arc<Envelope> {
        self.envelopes.get(place)
    }

    /// How many states of nodes were met.
    pub(crate) fn nodes_met(&self) -> usize {
        self.nodes.len()
    }

    /// What `input` makes of node `me`.
    pub(crate) fn step(&self, place: u32, me: u8, input: Input) -> Arc<Outcome> {
        let key = (place, input);
        let hash = Mixed.hash_one(key);
        let shard = (hash >> 8) as usize % SHARDS;
        if let Some(outcome) = self.steps[shard].read().expect("no step panics here").get(&key) {
            return Arc::clone(outcome);
        }
        let outcome = Arc::new(self.compute(place, me, input));
        self.steps[shard].write().expect("no step panics here").insert(key, Arc::clone(&outcome));
        outcome
    }

    fn compute(&self, place: u32, me: u8, input: Input) -> Outcome {
        let before = self.node(place);
        let mut after = before.0.clone();
        // An assertion of the replica is a finding with a story, not the end of the checker.
        let run = catch_unwind(AssertUnwindSafe(|| {
            if let Input::Deliver(place) = input {
                let Envelope { from, view, message, .. } = Envelope::clone(&self.envelope(place));
                after.replica.handle_message(NOW, id(from), view, message);
            }
            after.tell(&self.config, me, input);
            after.drain(&self.setup, &self.config, me, input)
        }));
        let Ok(work) = run else {
            return Outcome { node: place, faults: fault::ASSERTION, ..Outcome::default() };
        };
        let mut milestones = work.milestones | milestones(&before, &after, input);
        let sent = work.sent.into_iter().map(|flying| self.envelope_of(me, flying)).collect();
        let node = self.place(after, me);
        let now = self.node(node);
        let forgot = milestones & Milestone::Forgotten.bit() != 0;
        let faults = if now.1.promised < before.1.promised && !forgot { fault::PROMISE } else { 0 };
        if input == Input::Patience && now.0.is_candidate() {
            milestones = 0;
        }
        Outcome { node, sent, done: work.done, durable: work.durable, milestones, faults }
    }

    fn place(&self, node: Node, me: u8) -> u32 {
        let hash = self.hasher.hash_one((&node, me));
        self.nodes.place_of(hash, || {
            let facts = Facts::of(&node, &self.config, &self.hasher);
            (node, facts)
        })
    }

    fn envelope_of(&self, from: u8, Flying { to, view, message }: Flying) -> Sent {
        let hash = self.hasher.hash_one(format!("{from} {to} {view:?} {message:?}"));
        let place = self.envelopes.place_of(hash, || Envelope { from, to, view, message });
        Sent { place, to }
    }
}

fn milestones(before: &(Node, Facts), after: &Node, input: Input) -> u64 {
    let mut milestones = 0;
    let mut mark = |milestone: Milestone, has_happened: bool| {
        milestones |= if has_happened { milestone.bit() } else { 0 };
    };
    mark(Milestone::LostUnwritten, input == Input::Kill && before.1.has_unwritten);
    mark(Milestone::LostUnsynced, input == Input::Power && before.1.has_unsynced);
    let (was, is) = (&before.0.replica, &after.replica);
    let is_delivery = matches!(input, Input::Deliver(_));
    mark(Milestone::Taken, is_delivery && !was.is_whole() && is.is_whole());
    let keeps = is.entry(was.tail().seq).is_none_or(|entry| entry.at == was.tail());
    mark(Milestone::DroppedTail, is_delivery && is.is_whole() && !keeps);
    milestones
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
