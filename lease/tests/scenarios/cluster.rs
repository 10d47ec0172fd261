//! A few nodes whose messages arrive only when the story says so.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use base::{Dead, Epoch, Members, NodeId, ObjectId, Process, Seq, Span, View, ViewId, WallTime};
use lease::{
    Algorithm, Batch, Body, Bug, Config, Event, Flease, FleaseRules, LeaseNode, Membership, Message, Refusal,
    Start, Watermark,
};

pub(crate) const CELL: ObjectId = ObjectId::new(1, 1);
pub(crate) const WATERMARK: Watermark =
    Watermark { epoch: Epoch { number: 3, node: NodeId(0) }, seq: Seq(17) };

/// A message on its way.
#[derive(Clone, Debug)]
pub(crate) struct Flying {
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) batch: Batch,
}

pub(crate) struct Cluster<A = FleaseRules> {
    pub(crate) nodes: Vec<LeaseNode<A>>,
    /// True time; a node's clock shows it plus the node's offset.
    pub(crate) now: WallTime,
    pub(crate) offsets_ms: Vec<i64>,
    pub(crate) flying: Vec<Flying>,
    pub(crate) events: Vec<(u32, Event)>,
    /// The view each node looks cells up in at first touch.
    pub(crate) views: Vec<View>,
    pub(crate) config: Arc<Config>,
}

pub(crate) fn ms(millis: u64) -> Span {
    Span::from_millis(millis)
}

pub(crate) fn view(seq: u64, members: &[u32]) -> View {
    let id = ViewId { epoch: Epoch::default(), seq: Seq(seq) };
    View { id, members: Members::new(members.iter().copied().map(NodeId)).unwrap() }
}

/// Everything that decides what a node does from here on.
pub(crate) fn state_of(node: &Flease) -> u64 {
    let mut hasher = DefaultHasher::new();
    node.hash(&mut hasher);
    hasher.finish()
}

impl Cluster {
    /// Of Flease.
    pub(crate) fn new(count: u32) -> Self {
        Self::of(count)
    }

    /// Of Flease.
    pub(crate) fn with_view(count: u32, view: &View) -> Self {
        Self::of_view(count, view)
    }
}

impl<A: Algorithm> Cluster<A> {
    /// `count` nodes that have never voted, all of them members.
    pub(crate) fn of(count: u32) -> Self {
        let members: Vec<u32> = (0..count).collect();
        Self::of_view(count, &view(1, &members))
    }

    /// `count` nodes that have never voted; the cell is replicated by the members of `view`.
    pub(crate) fn of_view(count: u32, view: &View) -> Self {
        Self::under(Config { gather: Span::ZERO, ..Config::default() }, count, view)
    }

    /// `count` nodes, all of them members, with a rule broken or none.
    pub(crate) fn with_bug(count: u32, bug: Option<Bug>) -> Self {
        let members: Vec<u32> = (0..count).collect();
        let config = Config { gather: Span::ZERO, bug, ..Config::default() };
        Self::under(config, count, &view(1, &members))
    }

    pub(crate) fn under(config: Config, count: u32, view: &View) -> Self {
        let config = Arc::new(config);
        // Just after an interval began, so that a story's first ballots share one.
        let now = WallTime::from_micros(1_900_000 * 900_000_000 + 100_000);
        let start = |node| {
            LeaseNode::new(Arc::clone(&config), Process::new(node, 1), Start::Fresh, now, u64::from(node))
                .unwrap()
        };
        Self {
            nodes: (0..count).map(start).collect(),
            now,
            offsets_ms: vec![0; count as usize],
            flying: Vec::new(),
            events: Vec::new(),
            views: vec![view.clone(); count as usize],
            config,
        }
    }

    pub(crate) fn clock(&self, node: u32) -> WallTime {
        let offset = self.offsets_ms[node as usize] * 1_000;
        WallTime::from_micros(self.now.as_micros().saturating_add_signed(offset))
    }

    fn ids(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.nodes.len()).unwrap()
    }

    pub(crate) fn node(&mut self, node: u32) -> &mut LeaseNode<A> {
        &mut self.nodes[node as usize]
    }

    pub(crate) fn holds(&self, node: u32) -> bool {
        self.nodes[node as usize].holds(self.clock(node), CELL)
    }

    pub(crate) fn holders(&self) -> Vec<u32> {
        self.ids().filter(|&node| self.holds(node)).collect()
    }

    pub(crate) fn acquire(&mut self, node: u32) -> Result<(), Refusal> {
        self.acquire_cell(node, CELL)
    }

    pub(crate) fn acquire_cell(&mut self, node: u32, cell: ObjectId) -> Result<(), Refusal> {
        let (now, view) = (self.clock(node), self.views[node as usize].clone());
        let result = self.node(node).acquire(now, cell, &view);
        self.collect(node);
        result
    }

    /// From now on the node's ballots are higher than those of others (PaxosLease counts them one by one).
    pub(crate) fn raise_ballots(&mut self, node: u32) {
        (10..30).for_each(|low| self.acquire_cell(node, ObjectId::new(0, low)).unwrap());
        self.flying.clear();
    }

    pub(crate) fn release(&mut self, node: u32) {
        let now = self.clock(node);
        self.node(node).release(now, CELL, WATERMARK).unwrap();
        self.collect(node);
    }

    pub(crate) fn hand_over(&mut self, node: u32, successor: u32) {
        let now = self.clock(node);
        self.node(node).hand_over(now, CELL, NodeId(successor), WATERMARK).unwrap();
        self.collect(node);
    }

    /// Takes the messages that meet `condition` out of the network.
    pub(crate) fn take(&mut self, condition: impl Fn(&Flying) -> bool) -> Vec<Flying> {
        let (taken, left) =
            std::mem::take(&mut self.flying).into_iter().partition(|flying| condition(flying));
        self.flying = left;
        taken
    }

    pub(crate) fn deliver(&mut self, flying: &Flying) {
        let (to, now) = (flying.to, self.clock(flying.to));
        let view = self.views[to as usize].clone();
        self.node(to).handle_batch(now, &flying.batch, &view);
        self.collect(to);
    }

    pub(crate) fn deliver_all(&mut self, flying: Vec<Flying>) {
        flying.iter().for_each(|flying| self.deliver(flying));
    }

    /// Delivers everything that is on its way, and the answers, and theirs.
    pub(crate) fn settle(&mut self) {
        self.settle_where(|_| true);
    }

    /// The same; what does not meet `arrives` is lost.
    pub(crate) fn settle_where(&mut self, arrives: impl Fn(&Flying) -> bool) {
        while !self.flying.is_empty() {
            let flying = self.take(&arrives);
            self.flying.clear();
            self.deliver_all(flying);
        }
    }

    /// Lets time pass in steps of a millisecond while all messages arrive at once.
    pub(crate) fn run(&mut self, span: Span) {
        let everybody: Vec<u32> = self.ids().collect();
        self.run_among(span, &everybody);
    }

    /// The same for these nodes alone; the others stand still.
    pub(crate) fn run_among(&mut self, span: Span, nodes: &[u32]) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + ms(1);
            for &node in nodes {
                self.wake(node);
            }
            self.settle_where(|flying| flying.is_among(nodes));
        }
    }

    /// Lets time pass without anybody noticing.
    pub(crate) fn skip(&mut self, span: Span) {
        self.now = self.now + span;
    }

    pub(crate) fn wake(&mut self, node: u32) {
        let now = self.clock(node);
        self.node(node).handle_timeout(now);
        self.collect(node);
    }

    /// The node loses its memory and starts again at once.
    pub(crate) fn restart(&mut self, node: u32) {
        let incarnation = self.node(node).me().incarnation.0 + 1;
        let (now, config) = (self.clock(node), Arc::clone(&self.config));
        *self.node(node) = LeaseNode::new(
            config,
            Process::new(node, incarnation),
            Start::Again,
            now,
            u64::from(incarnation),
        )
        .unwrap();
    }

    pub(crate) fn notice(&mut self, at: u32, node: u32, incarnation: u32) {
        self.node(at).handle_death_notice(Dead::up_to(Process::new(node, incarnation)));
    }

    /// Puts `view` in force at a node; `old` is the view it had.
    pub(crate) fn change_view(&mut self, node: u32, old: &View, new: &View) {
        let now = self.clock(node);
        self.views[node as usize] = new.clone();
        let was_member = old.members.contains(NodeId(node));
        let membership = if was_member { Membership::Kept } else { Membership::Joined };
        self.node(node).change_view(now, CELL, new, membership);
        self.collect(node);
    }

    /// A message as if a member had sent it now.
    pub(crate) fn forge(&self, from: Process, to: u32, message: Message) -> Flying {
        let settings = self.settings();
        let batch = Batch { sender: from, settings, sent: self.now, messages: vec![message] };
        Flying { from: from.node.0, to, batch }
    }

    pub(crate) fn events_of(&self, node: u32) -> Vec<&Event> {
        self.events.iter().filter(|(at, _)| *at == node).map(|(_, event)| event).collect()
    }

    pub(crate) fn settings(&self) -> u32 {
        let mut probe = self.nodes[0].clone();
        let source: BTreeMap<ObjectId, View> = [(ObjectId::new(9, 9), view(1, &[0, 99]))].into();
        probe.acquire(self.clock(0), ObjectId::new(9, 9), &source).unwrap();
        probe.poll_transmit(self.clock(0)).unwrap().1.settings
    }

    fn collect(&mut self, node: u32) {
        let now = self.clock(node);
        while let Some((to, batch)) = self.nodes[node as usize].poll_transmit(now) {
            for message in &batch.messages {
                let batch = Batch { messages: vec![message.clone()], ..batch.clone() };
                self.flying.push(Flying { from: node, to: to.0, batch });
            }
        }
        while let Some(event) = self.nodes[node as usize].poll_event() {
            self.events.push((node, event));
        }
    }
}

impl Flying {
    pub(crate) fn is_among(&self, nodes: &[u32]) -> bool {
        nodes.contains(&self.from) && nodes.contains(&self.to)
    }

    pub(crate) fn message(&self) -> &Message {
        &self.batch.messages[0]
    }

    pub(crate) fn body(&self) -> &Body {
        &self.message().body
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self.body(), Body::Write(_))
    }

    pub(crate) fn is_nack(&self) -> bool {
        matches!(self.body(), Body::Nack { .. })
    }
}
