//! The world of a model: nodes and the messages under way; what can happen next, and what must never be.
//!
//! The network is the set of messages that were ever sent. Delivering one does not take it away, so loss is a
//! message that is never delivered, and delay, reordering and duplication need no actions of their own. A message
//! leaves the set when it would change nothing any more and only make others say what they have said.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use replication::Standing;
use stateright::{Model, Property};

use crate::facts::Facts;
use crate::milestone::Milestone;
use crate::node::{Input, Told};
use crate::setup::{Before, Setup};
use crate::tables::{Outcome, Sent, Tables, fault};
use crate::tiny::OPS_MAX;

pub(crate) const NODES_MAX: usize = 4;
const NETWORK_MAX: usize = 48;

/// One instant. Nodes and messages are places in the tables.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    pub(crate) nodes: [u32; NODES_MAX],
    pub(crate) network: Network,
    pub(crate) known: [Known; OPS_MAX],
    /// How many tenures there were, and how often the other things that are bounded have happened.
    pub(crate) tenures: u8,
    pub(crate) kills: u8,
    pub(crate) powers: u8,
    pub(crate) rots: u8,
    pub(crate) retries: u8,
    pub(crate) faults: u8,
}

/// What clients know of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Known {
    /// In which loss generation it was last told or shown that it has taken effect, and by which tenure first.
    seen: Option<(u8, u8)>,
    /// The same, as whoever asked was told, if he will want it to be durable.
    told: Option<Told>,
    /// In which tenures that was asked, a bit each.
    asked: u8,
    /// By which tenure it was first told to be durable.
    durable: Option<u8>,
}

/// The messages under way, in ascending order. Without an allocation, because states are copied all the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Network {
    len: usize,
    all: [Sent; NETWORK_MAX],
}

impl Network {
    const EMPTY: Self = Self { len: 0, all: [Sent { place: 0, to: 0 }; NETWORK_MAX] };

    pub(crate) fn as_slice(&self) -> &[Sent] {
        &self.all[..self.len]
    }

    fn insert(&mut self, sent: Sent) {
        let Err(position) = self.as_slice().binary_search(&sent) else { return };
        assert!(self.len < NETWORK_MAX, "a model has few messages under way: make room for more");
        self.all.copy_within(position..self.len, position + 1);
        self.all[position] = sent;
        self.len += 1;
    }

    fn contains(&self, sent: Sent) -> bool {
        self.as_slice().binary_search(&sent).is_ok()
    }

    fn retain(&mut self, mut is_kept: impl FnMut(Sent) -> bool) {
        let mut kept = Self::EMPTY;
        for &sent in self.as_slice().iter().filter(|&&sent| is_kept(sent)) {
            kept.all[kept.len] = sent;
            kept.len += 1;
        }
        *self = kept;
    }
}

impl Hash for Network {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The rest follows from the place.
        self.as_slice().iter().for_each(|sent| sent.place.hash(state));
        self.len.hash(state);
    }
}

/// Something happens to a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Action {
    pub(crate) node: u8,
    pub(crate) input: Input,
}

/// A model, with what its exploration has met.
pub(crate) struct World {
    pub(crate) tables: Tables,
    /// The milestones met so far.
    seen: AtomicU64,
}

impl World {
    pub(crate) fn new(setup: Setup) -> Self {
        Self { tables: Tables::new(setup), seen: AtomicU64::new(0) }
    }

    fn setup(&self) -> &Setup {
        &self.tables.setup
    }

    /// The milestones that this model needs and has not met.
    pub(crate) fn missing(&self) -> Vec<Milestone> {
        let seen = self.seen.load(Ordering::Relaxed);
        let milestones = self.setup().milestones.iter().copied();
        milestones.filter(|milestone| seen & milestone.bit() == 0).collect()
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = u8> + use<> {
        0..self.setup().nodes
    }

    fn start(&self) -> State {
        let mut state = State {
            nodes: [0; NODES_MAX],
            network: Network::EMPTY,
            known: [Known::default(); OPS_MAX],
            tenures: 0,
            kills: 0,
            powers: 0,
            rots: 0,
            retries: 0,
            faults: 0,
        };
        for node in self.nodes() {
            state.nodes[usize::from(node)] = self.tables.first_start(node);
        }
        self.setup().before.iter().for_each(|before| self.go_before(&mut state, before));
        // What happened before does not count.
        (state.retries, state.faults) = (0, 0);
        state
    }

    fn go_before(&self, state: &mut State, before: &Before) {
        match *before {
            Before::Lead(node) => {
                state.tenures += 1;
                self.step(state, Action { node, input: Input::Lead(state.tenures) });
            }
            Before::Do(node, input) => self.step(state, Action { node, input }),
            Before::Sync => {
                self.nodes().for_each(|node| self.step(state, Action { node, input: Input::Sync }));
            }
            Before::Settle(nodes) => {
                self.settle(state, nodes);
                nodes.iter().for_each(|&node| self.step(state, Action { node, input: Input::Retry }));
                self.settle(state, nodes);
                state.network = Network::EMPTY;
            }
        }
    }

    fn settle(&self, state: &mut State, nodes: &[u8]) {
        let is_among =
            |sent: &&Sent| nodes.contains(&sent.to) && nodes.contains(&self.tables.envelope(sent.place).from);
        while let Some(&sent) = state.network.as_slice().iter().find(is_among) {
            state.network.retain(|other| other != sent);
            self.step(state, Action { node: sent.to, input: Input::Deliver(sent.place) });
        }
    }

    /// Lets a node take a step, and its disk do at once what it may do at any time when nothing can be lost any more:
    /// what leaves then may be late all the same.
    fn go(&self, state: &mut State, action: Action) {
        self.step(state, action);
        let setup = self.setup();
        let is_safe = state.powers == setup.powers_max;
        for node in self.nodes() {
            let at = self.tables.node(state.nodes[usize::from(node)]);
            let facts = &at.1;
            if facts.has_unsynced && is_safe && (state.kills == setup.kills_max || !facts.has_unwritten) {
                self.step(state, Action { node, input: Input::Sync });
            }
        }
    }

    /// Lets a node take a step and puts what it sends under way.
    fn step(&self, state: &mut State, Action { node, input }: Action) {
        let at = usize::from(node);
        let tenure = self.tables.node(state.nodes[at]).1.tenure;
        let outcome = self.tables.step(state.nodes[at], node, input);
        self.seen.fetch_or(outcome.milestones, Ordering::Relaxed);
        state.nodes[at] = outcome.node;
        state.faults |= outcome.faults;
        let is_cut = |to: u8| self.setup().cut.iter().any(|&pair| pair == (node, to) || pair == (to, node));
        outcome.sent.iter().filter(|sent| !is_cut(sent.to)).for_each(|&sent| state.network.insert(sent));
        self.learn(state, &outcome, node, tenure);
        self.prune(state);
    }

    /// What clients are told, or could see at this node.
    fn learn(&self, state: &mut State, outcome: &Outcome, node: u8, tenure: u8) {
        for &(op, told) in &outcome.done {
            let known = &mut state.known[usize::from(op)];
            known.see(told.generation, told.tenure);
            if self.setup().syncs.contains(&op) && known.told.is_none_or(|old| old.mark() < told.mark()) {
                known.told = Some(told);
            }
        }
        for &op in &outcome.durable {
            state.known[usize::from(op)].durable.get_or_insert(tenure);
        }
        let at = self.tables.node(state.nodes[usize::from(node)]);
        let facts = &at.1;
        for (op, known) in state.known.iter_mut().enumerate() {
            if facts.answer.is_some_and(|answer| answer & 1 << op != 0) {
                known.see(facts.generation, facts.tenure);
            }
        }
    }

    /// Takes messages away that can do nothing any more.
    fn prune(&self, state: &mut State) {
        let all = state.network;
        state.network.retain(|sent| !self.is_useless(state.nodes, &all, sent));
    }

    /// Whether a message changes nothing and has nobody say what was not said, or would not be heard.
    fn is_useless(&self, nodes: [u32; NODES_MAX], all: &Network, sent: Sent) -> bool {
        let deliver = |sent: Sent| {
            let place = nodes[usize::from(sent.to)];
            let outcome = self.tables.step(place, sent.to, Input::Deliver(sent.place));
            (outcome.faults == 0 && outcome.node == place).then_some(outcome)
        };
        let is_idle = |answer: &Sent| {
            all.contains(*answer) || deliver(*answer).is_some_and(|outcome| outcome.sent.is_empty())
        };
        deliver(sent).is_some_and(|outcome| outcome.sent.iter().all(is_idle))
    }

    fn orders(&self, state: &State, node: u8, actions: &mut Vec<Action>) {
        let setup = self.setup();
        let at = self.tables.node(state.nodes[usize::from(node)]);
        let facts = &at.1;
        let mut order = |input: Input| actions.push(Action { node, input });
        let begun = setup.before.iter().filter(|before| matches!(before, Before::Lead(_))).count();
        let next = setup.tenures.get(usize::from(state.tenures) - begun);
        if next.is_some_and(|leaders| leaders.contains(&node)) {
            order(Input::Lead(state.tenures + 1));
        }
        if facts.standing == Standing::Serving || facts.standing == Standing::Recovering {
            setup.ops.iter().for_each(|&op| order(Input::Propose(op)));
            setup.admit.iter().for_each(|&other| order(Input::Admit(other)));
            setup.dismiss.iter().for_each(|&other| order(Input::Dismiss(other)));
            for (op, known) in (0_u8..).zip(&state.known) {
                if let Some(told) = known.told
                    && known.durable.is_none()
                    && known.asked & 1 << facts.tenure == 0
                {
                    order(Input::SyncOp(op, told));
                }
            }
        }
        if facts.standing == Standing::Recovering && setup.patience {
            order(Input::Patience);
        }
        if facts.is_busy && state.retries < setup.retries_max && setup.retries.contains(&node) {
            order(Input::Retry);
        }
        if facts.has_unwritten {
            order(Input::Write);
        }
        if facts.has_unsynced && setup.powers_max > 0 {
            order(Input::Sync);
        }
        if state.kills < setup.kills_max && setup.kills.contains(&node) {
            order(Input::Kill);
        }
        if state.powers < setup.powers_max && setup.powers.contains(&node) {
            order(Input::Power);
        }
        if state.rots < setup.rots_max && setup.rots.contains(&node) && facts.is_whole {
            order(Input::Rot);
        }
    }

    /// All nodes, as the properties see them.
    fn all(&self, state: &State) -> Vec<Arc<(crate::node::Node, Facts)>> {
        self.nodes().map(|node| self.tables.node(state.nodes[usize::from(node)])).collect()
    }

    fn each(&self, state: &State, holds: impl Fn(&Facts) -> bool) -> bool {
        self.nodes().all(|node| holds(&self.tables.node(state.nodes[usize::from(node)]).1))
    }

    fn each_pair(&self, state: &State, holds: impl Fn(&Facts, &Facts) -> bool) -> bool {
        let all = self.all(state);
        all.iter().all(|one| all.iter().all(|other| Arc::ptr_eq(one, other) || holds(&one.1, &other.1)))
    }

    /// How many of the members that this node knows are like this, and how many are a majority.
    fn count(&self, state: &State, of: &Facts, counts: impl Fn(&Facts) -> bool) -> (u32, u32) {
        let is_counted = |node: &u8| counts(&self.tables.node(state.nodes[usize::from(*node)]).1);
        let members = self.nodes().filter(|node| of.members & 1 << node != 0);
        let count = u32::try_from(members.filter(is_counted).count()).unwrap_or(0);
        (count, of.members.count_ones() / 2 + 1)
    }
}

impl Known {
    fn see(&mut self, generation: u8, tenure: u8) {
        match &mut self.seen {
            Some((old, first)) if *old == generation => *first = tenure.min(*first),
            Some((old, _)) if *old > generation => {}
            seen => *seen = Some((generation, tenure)),
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![self.start()]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.faults & fault::ASSERTION != 0 {
            return;
        }
        let deliver = |sent: &Sent| Action { node: sent.to, input: Input::Deliver(sent.place) };
        actions.extend(state.network.as_slice().iter().map(deliver));
        self.nodes().for_each(|node| self.orders(state, node, actions));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action.input {
            Input::Lead(_) => state.tenures += 1,
            Input::Kill => state.kills += 1,
            Input::Power => state.powers += 1,
            Input::Rot => state.rots += 1,
            Input::Retry => state.retries += 1,
            _ => {}
        }
        self.go(&mut state, action);
        let is_idle = (state.nodes, &state.network) == (last.nodes, &last.network);
        let at = usize::from(action.node);
        match action.input {
            Input::SyncOp(op, _) => {
                state.known[usize::from(op)].asked |= 1 << self.tables.node(last.nodes[at]).1.tenure;
            }
            // A recovery that goes on waiting has not waited long enough.
            Input::Patience if self.tables.node(state.nodes[at]).0.is_candidate() => return None,
            _ => {}
        }
        (!is_idle || state.known != last.known).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SEEN, |world: &Self, state| {
                world.each(state, |at| shows_what_was_seen(state, at))
            }),
            Property::always(DURABLE, |world: &Self, state| world.each(state, |at| shows_durable(state, at))),
            Property::always(ONCE, |world: &Self, state| world.each(state, |at| !at.twice)),
            Property::always(ENTRIES, |world: &Self, state| world.each_pair(state, have_one_history)),
            Property::always(STATES, |world: &Self, state| world.each_pair(state, have_one_state)),
            Property::always(MAJORITY, |world: &Self, state| {
                world.each(state, |at| {
                    let (promised, majority) = world.count(state, at, |other| other.promised >= at.tenure);
                    at.standing != Standing::Serving || promised >= majority
                })
            }),
            Property::always(ONE_COMMITS, |world: &Self, state| {
                world.each_pair(state, |one, other| {
                    let (free, majority) = world.count(state, one, |at| at.promised <= one.tenure);
                    let both = one.standing == Standing::Serving && other.standing == Standing::Serving;
                    !both || one.tenure >= other.tenure || free < majority
                })
            }),
            Property::always(PROMISES, |_, state: &State| state.faults & fault::PROMISE == 0),
            Property::always(ASSERTIONS, |_, state: &State| state.faults & fault::ASSERTION == 0),
            Property::sometimes(MILESTONES, |world: &Self, _| world.missing().is_empty()),
        ]
    }
}

/// What was told or shown stays, unless a loss generation was raised since.
fn shows_what_was_seen(state: &State, at: &Facts) -> bool {
    let Some(answer) = at.answer else { return true };
    state.known.iter().enumerate().all(|(op, known)| {
        let Some((generation, tenure)) = known.seen else { return true };
        let is_there = at.generation == generation && answer & 1 << op != 0;
        tenure > at.tenure || at.generation > generation || is_there
    })
}

fn shows_durable(state: &State, at: &Facts) -> bool {
    let Some(answer) = at.answer else { return true };
    let durable = state.known.iter().enumerate().filter(|(_, known)| known.durable.is_some());
    let mut later = durable.filter(|(_, known)| known.durable <= Some(at.tenure));
    later.all(|(op, _)| answer & 1 << op != 0)
}

/// Equal positions mean equal histories, and so do equal places that are committed in one loss generation.
fn have_one_history(one: &Facts, other: &Facts) -> bool {
    let first = |log: &[(replication::Position, u64)]| log.first().map_or(0, |(at, _)| at.seq.0);
    let from = first(&one.log).max(first(&other.log));
    let is_common = |&&(at, _): &&(replication::Position, u64)| at.seq.0 >= from;
    let mut ours: Vec<_> = one.log.iter().filter(is_common).collect();
    let mut theirs: Vec<_> = other.log.iter().filter(is_common).collect();
    let len = ours.len().min(theirs.len());
    let committed = |at: &Facts| at.committed.map_or(0, |(at, _)| at.seq.0);
    if one.generation == other.generation {
        let last = committed(one).min(committed(other));
        let is_committed = |entry: &&&(replication::Position, u64)| entry.0.seq.0 <= last;
        if ours.iter().filter(is_committed).ne(theirs.iter().filter(is_committed))
            && ours.last().is_some_and(|entry| entry.0.seq.0 >= last)
            && theirs.last().is_some_and(|entry| entry.0.seq.0 >= last)
        {
            return false;
        }
    }
    ours.truncate(len);
    theirs.truncate(len);
    let Some(same) = ours.iter().zip(&theirs).rposition(|(one, other)| one.0 == other.0) else { return true };
    ours[..=same] == theirs[..=same]
}

fn have_one_state(one: &Facts, other: &Facts) -> bool {
    match (one.committed, other.committed) {
        (Some((at, made)), Some((other_at, other_made))) => at != other_at || made == other_made,
        _ => true,
    }
}

pub(crate) const SEEN: &str = "what was told or shown stays, unless a loss was announced";
pub(crate) const DURABLE: &str = "what was told to be durable stays";
pub(crate) const ONCE: &str = "a request takes effect once";
pub(crate) const ENTRIES: &str = "equal positions mean equal histories";
pub(crate) const STATES: &str = "equal histories mean equal states";
pub(crate) const MAJORITY: &str = "who serves has the promises of a majority";
pub(crate) const ONE_COMMITS: &str = "of two that serve only the later one can commit";
pub(crate) const PROMISES: &str = "no promise is taken back";
pub(crate) const ASSERTIONS: &str = "no assertion fails";
/// What fails a model in which nothing happens.
pub(crate) const MILESTONES: &str = "everything that should happen has happened";

/// All that must hold in every state.
pub(crate) const ALWAYS: &[&str] =
    &[SEEN, DURABLE, ONCE, ENTRIES, STATES, MAJORITY, ONE_COMMITS, PROMISES, ASSERTIONS];
