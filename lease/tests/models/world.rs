//! The world of a model: nodes, clocks and the messages under way; what can happen next, and what must never be.
//!
//! The network is the set of messages that were ever sent. Delivering one does not take it away, so loss is a
//! message that is never delivered, and delay, reordering and duplication need no actions of their own. A message
//! leaves the set only when it can have no effect any more.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};

use base::NodeId;
use lease::{Algorithm, Body};
use stateright::{Model, Property};

use crate::milestone::Milestone;
use crate::setup::{Clocks, Gate, Move, START, Setup};
use crate::tables::{CELL, Input, Tables, Ticket, fault};

pub(crate) const NODES_MAX: usize = 4;
const NETWORK_MAX: usize = 32;

/// One instant. Nodes and messages are places in the tables.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct State {
    pub(crate) nodes: [u32; NODES_MAX],
    pub(crate) clocks: [u8; NODES_MAX],
    /// Until when, by its node's clock, the lease of a dead owner counts; zero if none does.
    pub(crate) dead_until: [u8; NODES_MAX],
    pub(crate) network: Network,
    pub(crate) rounds: u8,
    /// The moves that happen once and have happened, a bit each.
    pub(crate) used: u16,
    /// The latest view that was proposed.
    pub(crate) view: u8,
    /// The nodes that lost their tick, a bit each.
    pub(crate) slow: u8,
    /// The nodes that hold the lease, a bit each: follows from `nodes` and `clocks`.
    pub(crate) holders: u8,
    /// The nodes with a round under way, a bit each: follows from `nodes`.
    pub(crate) trying: u8,
    pub(crate) faults: u8,
}

/// The messages under way, in ascending order. Without an allocation, because states are copied all the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Network {
    len: usize,
    tickets: [Ticket; NETWORK_MAX],
}

impl Network {
    const EMPTY: Self = Self { len: 0, tickets: [Ticket { place: 0, to: 0, sent: None }; NETWORK_MAX] };

    pub(crate) fn as_slice(&self) -> &[Ticket] {
        &self.tickets[..self.len]
    }

    /// Adds a message. Says whether it is new.
    fn insert(&mut self, ticket: Ticket) -> bool {
        let Err(position) = self.as_slice().binary_search(&ticket) else { return false };
        assert!(self.len < NETWORK_MAX, "a model has few messages under way: make room for more");
        self.tickets.copy_within(position..self.len, position + 1);
        self.tickets[position] = ticket;
        self.len += 1;
        true
    }

    fn retain(&mut self, mut is_kept: impl FnMut(&Ticket) -> bool) {
        let mut kept = Self::EMPTY;
        for ticket in self.as_slice().iter().filter(|ticket| is_kept(ticket)) {
            kept.tickets[kept.len] = *ticket;
            kept.len += 1;
        }
        *self = kept;
    }
}

impl Hash for Network {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // The rest of a ticket follows from its place.
        self.as_slice().iter().for_each(|ticket| ticket.place.hash(state));
        self.len.hash(state);
    }
}

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// A message arrives.
    Deliver(Ticket),
    /// A clock moves on by a tick, and timers that are due are served, unless the node is late.
    Tick(u8),
    /// All clocks move on by a tick, but one may stand still.
    TickTogether {
        except: Option<u8>,
    },
    Move(Move),
}

/// A model, with what its exploration has met.
pub(crate) struct World<A> {
    pub(crate) setup: Setup,
    pub(crate) tables: Tables<A>,
    /// The milestones met so far.
    seen: AtomicU64,
}

impl<A: Algorithm> World<A> {
    pub(crate) fn new(setup: Setup) -> Self {
        Self { tables: Tables::new(&setup), seen: AtomicU64::new(0), setup }
    }

    /// The milestones that this model needs and has not met.
    pub(crate) fn missing(&self) -> Vec<Milestone> {
        let seen = self.seen.load(Ordering::Relaxed);
        self.setup.milestones.iter().copied().filter(|milestone| seen & milestone.bit() == 0).collect()
    }

    fn nodes(&self) -> impl Iterator<Item = u8> + use<A> {
        0..self.setup.nodes
    }

    /// The start with these clocks.
    fn start(&self, clocks: [u8; NODES_MAX]) -> State {
        let mut nodes = [0; NODES_MAX];
        for node in self.nodes() {
            nodes[usize::from(node)] = self.tables.first_start(node, clocks[usize::from(node)]);
        }
        State {
            nodes,
            clocks,
            dead_until: [0; NODES_MAX],
            network: Network::EMPTY,
            rounds: 0,
            used: 0,
            view: 0,
            slow: 0,
            holders: 0,
            trying: 0,
            faults: 0,
        }
    }

    /// Lets node 0 acquire the lease with the vote of `voter`, at once.
    fn acquire_first(&self, mut state: State, voter: u8) -> State {
        self.make_move(&mut state, Move::Acquire(0));
        for _phase in ["READ", "WRITE"] {
            for (to, is_request) in [(voter, true), (0, false)] {
                let network = state.network;
                let is_next = |ticket: &&Ticket| ticket.to == to && ticket.sent.is_some() == is_request;
                if let Some(ticket) = network.as_slice().iter().rfind(is_next) {
                    self.step(&mut state, to, Input::Deliver(ticket.place));
                }
            }
        }
        assert_eq!(state.holders, 1, "node 0 holds the lease");
        state.rounds = 0;
        state
    }

    /// Clocks at the start: every way in which they can differ.
    fn first_clocks(&self) -> Vec<[u8; NODES_MAX]> {
        let nodes = usize::from(self.setup.nodes);
        let epsilon = match &self.setup.clocks {
            Clocks::Within(epsilon) => *epsilon,
            Clocks::Together { offsets, .. } => {
                let mut clocks = [0; NODES_MAX];
                (0..nodes).for_each(|node| clocks[node] = START + offsets[node]);
                return vec![clocks];
            }
        };
        let mut all = vec![[0; NODES_MAX]];
        for node in 0..nodes {
            let with = |offset: u8| {
                move |mut clocks: [u8; NODES_MAX]| {
                    clocks[node] = START + offset;
                    clocks
                }
            };
            all = (0..=epsilon).flat_map(|offset| all.iter().copied().map(with(offset))).collect();
        }
        all.retain(|clocks| clocks[..nodes].contains(&START));
        all
    }

    fn tick_actions(&self, state: &State, actions: &mut Vec<Action>) {
        // Before anything was asked time only shifts the clocks, and all their offsets are starts of their own.
        if state.rounds == 0 && self.setup.voters.is_empty() {
            return;
        }
        let clocks = &state.clocks[..usize::from(self.setup.nodes)];
        match &self.setup.clocks {
            Clocks::Within(epsilon) => {
                let lowest = clocks.iter().copied().min().unwrap_or(0);
                let last = START + self.setup.horizon;
                let may_tick = |&node: &u8| {
                    let clock = clocks[usize::from(node)];
                    clock < lowest + epsilon && clock < last
                };
                actions.extend(self.nodes().filter(may_tick).map(Action::Tick));
            }
            Clocks::Together { offsets, may_lose_a_tick } => {
                let passed = clocks.iter().zip(offsets).map(|(clock, offset)| clock - offset).max();
                if passed.is_none_or(|passed| passed >= START + self.setup.horizon) {
                    return;
                }
                actions.push(Action::TickTogether { except: None });
                if *may_lose_a_tick {
                    let fresh = self.nodes().filter(|node| state.slow & 1 << node == 0);
                    actions.extend(fresh.map(|node| Action::TickTogether { except: Some(node) }));
                }
            }
        }
    }

    /// Whether the rules of the world, not those of the node, allow a move.
    fn allows(&self, state: &State, bit: usize, order: Move) -> bool {
        let unused = state.used & 1 << bit == 0;
        match order {
            // All of them begin a round.
            Move::Acquire(_) | Move::Release(_) | Move::HandOver { .. } => {
                state.rounds < self.setup.rounds_max
            }
            Move::StandDown(_) | Move::Restart(_) => unused,
            Move::Resume(node) => unused && self.has_used(state, Move::StandDown(node)),
            Move::Notice { dead, .. } => self.has_used(state, Move::Restart(dead)),
            Move::Propose(node) => self.may_propose_view(state, node),
            Move::Adopt(node) => {
                let node = self.tables.node(state.nodes[usize::from(node)]);
                let me = node.node.me().node;
                match node.view {
                    Some(view) => view < state.view,
                    None => self.setup.views[usize::from(state.view)].members.contains(me),
                }
            }
        }
    }

    fn has_used(&self, state: &State, order: Move) -> bool {
        let bit = self.setup.moves.iter().position(|&other| other == order);
        bit.is_some_and(|bit| state.used & 1 << bit != 0)
    }

    fn may_propose_view(&self, state: &State, node: u8) -> bool {
        let at = usize::from(node);
        let is_last = usize::from(state.view) + 1 == self.setup.views.len();
        let snapshot = self.tables.node(state.nodes[at]);
        if is_last || state.holders & 1 << node == 0 || snapshot.view != Some(state.view) {
            return false;
        }
        let view = &self.setup.views[usize::from(state.view)];
        match self.setup.gate {
            Gate::Decided => snapshot.node.decided_in(CELL) == Some(view.id),
            Gate::Adopted => {
                let has_adopted = |&node: &u8| {
                    let at = self.tables.node(state.nodes[usize::from(node)]);
                    view.members.contains(NodeId(u32::from(node))) && at.view == Some(state.view)
                };
                self.nodes().filter(has_adopted).count() >= view.members.majority()
            }
        }
    }

    /// Lets a node take a step and puts what it sends under way.
    fn step(&self, state: &mut State, node: u8, input: Input) {
        let at = usize::from(node);
        let outcome = self.tables.step(state.nodes[at], state.clocks[at], input);
        self.seen.fetch_or(outcome.milestones, Ordering::Relaxed);
        state.nodes[at] = outcome.node;
        state.holders = state.holders & !(1 << node) | u8::from(outcome.holds) << node;
        state.faults |= outcome.faults;
        let beyond = outcome.round && state.rounds == self.setup.rounds_max;
        if outcome.round && !beyond {
            state.rounds += 1;
        }
        for ticket in outcome.sent.iter() {
            // A round beyond the bound is lost, so that time can go on without it.
            let is_lost = beyond && ticket.sent.is_some() || self.is_cut(node, ticket.to);
            if !is_lost {
                self.send(state, ticket);
            }
        }
        state.trying = state.trying & !(1 << node) | u8::from(outcome.trying && !beyond) << node;
        self.prune(state, node);
    }

    fn is_cut(&self, from: u8, to: u8) -> bool {
        self.setup.cut.contains(&(from, to)) || self.setup.cut.contains(&(to, from))
    }

    fn send(&self, state: &mut State, ticket: Ticket) {
        if self.is_useless(state, ticket) || !state.network.insert(ticket) || ticket.sent.is_none() {
            return;
        }
        let new = self.tables.envelope(ticket.place);
        let Body::Write(_) = new.message.body else { return };
        let carries_another = |old: &Ticket| {
            let old = self.tables.envelope(old.place);
            let is_write = matches!(old.message.body, Body::Write(_));
            is_write && old.message.ballot == new.message.ballot && old.message.body != new.message.body
        };
        if state.network.as_slice().iter().any(carries_another) {
            state.faults |= fault::TWO_VALUES;
        }
    }

    /// Takes messages away that can do nothing any more to `node`.
    fn prune(&self, state: &mut State, node: u8) {
        let mut network = state.network;
        network.retain(|&ticket| ticket.to != node || !self.is_useless(state, ticket));
        state.network = network;
    }

    fn is_useless(&self, state: &State, ticket: Ticket) -> bool {
        let at = usize::from(ticket.to);
        match ticket.sent {
            // Clocks never go back, so what is too old stays too old.
            Some(sent) => {
                let config = &self.setup.config;
                let is_aging = matches!(self.setup.clocks, Clocks::Within(_));
                let age_max = (config.t_max + config.epsilon).as_micros();
                is_aging && u64::from(state.clocks[at].saturating_sub(sent)) > age_max
            }
            // An answer that changes nothing belongs to an attempt or a phase that is over. (A nack of the READ
            // could still count against the WRITE: then it is taken for lost. So is an offer that finds no use.)
            None => {
                let input = Input::Deliver(ticket.place);
                let outcome = self.tables.step(state.nodes[at], state.clocks[at], input);
                outcome.node == state.nodes[at] && outcome.sent.iter().next().is_none()
            }
        }
    }

    /// Whether two leases can still meet: once the rounds are used up, only those that hold the lease or have a
    /// round under way can ever hold it.
    fn is_decided(&self, state: &State) -> bool {
        let dead = state.dead_until.iter().filter(|&&until| until != 0).count();
        let parties = (state.holders | state.trying).count_ones() as usize;
        state.rounds == self.setup.rounds_max && parties + dead <= 1
    }

    fn tick(&self, state: &mut State, node: u8) {
        let at = usize::from(node);
        state.clocks[at] += 1;
        if state.dead_until[at] <= state.clocks[at] {
            state.dead_until[at] = 0;
        }
        let input = if self.setup.late.contains(&node) { Input::Look } else { Input::Timeout };
        self.step(state, node, input);
    }

    fn make_move(&self, state: &mut State, order: Move) {
        let node = match order {
            Move::Acquire(node)
            | Move::Release(node)
            | Move::HandOver { from: node, .. }
            | Move::Restart(node)
            | Move::Notice { to: node, .. }
            | Move::StandDown(node)
            | Move::Resume(node)
            | Move::Propose(node)
            | Move::Adopt(node) => node,
        };
        match order {
            Move::Restart(_) => self.remember_the_dead(state, node),
            Move::Notice { dead, .. } => state.dead_until[usize::from(dead)] = 0,
            Move::Propose(_) => state.view += 1,
            _ => {}
        }
        if matches!(order, Move::Restart(_) | Move::StandDown(_) | Move::Resume(_)) {
            let bit = self.setup.moves.iter().position(|&other| other == order).unwrap_or(0);
            state.used |= 1 << bit;
        }
        self.step(state, node, Input::Told(order));
    }

    /// Clients may act on a lease whose owner died: it counts until it is over or its death was reported.
    fn remember_the_dead(&self, state: &mut State, node: u8) {
        let at = usize::from(node);
        let now = base::WallTime::from_micros(u64::from(state.clocks[at]));
        if let Some(until) = self.tables.node(state.nodes[at]).node.valid_until(now, CELL) {
            state.dead_until[at] = u8::try_from(until.as_micros()).unwrap_or(u8::MAX);
        }
    }
}

impl<A: Algorithm + Send + Sync + 'static> Model for World<A> {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let starts: Vec<State> = self.first_clocks().into_iter().map(|clocks| self.start(clocks)).collect();
        let voters = &self.setup.voters;
        if voters.is_empty() {
            return starts;
        }
        let with_owner = |&voter| starts.iter().cloned().map(move |state| self.acquire_first(state, voter));
        voters.iter().flat_map(with_owner).collect()
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.faults & fault::ASSERTION != 0 || self.is_decided(state) {
            return;
        }
        actions.extend(state.network.as_slice().iter().map(|&ticket| Action::Deliver(ticket)));
        let moves = self.setup.moves.iter().copied().enumerate();
        let allowed = moves.filter(|&(bit, order)| self.allows(state, bit, order));
        actions.extend(allowed.map(|(_, order)| Action::Move(order)));
        self.tick_actions(state, actions);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Deliver(ticket) => self.step(&mut state, ticket.to, Input::Deliver(ticket.place)),
            Action::Tick(node) => self.tick(&mut state, node),
            Action::TickTogether { except } => {
                for node in self.nodes().filter(|&node| Some(node) != except) {
                    self.tick(&mut state, node);
                }
                state.slow |= except.map_or(0, |node| 1 << node);
            }
            Action::Move(order) => self.make_move(&mut state, order),
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, state: &State| {
                let dead = state.dead_until.iter().filter(|&&until| until != 0).count();
                state.holders.count_ones() as usize + dead <= 1
            }),
            Property::always(GIVEN_UP, |_, state: &State| state.faults & fault::HOLDS_WHILE_GIVING_UP == 0),
            Property::always(NOT_SHORTENED, |_, state: &State| state.faults & fault::SHORTENED == 0),
            Property::always(ONE_VALUE, |_, state: &State| state.faults & fault::TWO_VALUES == 0),
            Property::always(ASSERTIONS, |_, state: &State| state.faults & fault::ASSERTION == 0),
            Property::sometimes(MILESTONES, |world: &Self, _| world.missing().is_empty()),
        ]
    }
}

/// The lease invariant.
pub(crate) const EXCLUSION: &str = "at most one process holds the lease";
pub(crate) const GIVEN_UP: &str = "nobody holds what it gives up";
pub(crate) const NOT_SHORTENED: &str = "a renewal never shortens a lease";
pub(crate) const ONE_VALUE: &str = "no ballot carries two values";
pub(crate) const ASSERTIONS: &str = "no assertion fails";
/// What fails a model in which nothing happens.
pub(crate) const MILESTONES: &str = "everything that should happen has happened";

/// All that must hold in every state.
pub(crate) const ALWAYS: &[&str] = &[EXCLUSION, GIVEN_UP, NOT_SHORTENED, ONE_VALUE, ASSERTIONS];
