//! Stories the simulator found, told by hand: what happened, step by step, and what must happen instead.

use std::sync::Arc;

use base::{Epoch, Members, NodeId, ObjectId, Process, Seq, Span, View, ViewId, WallTime};
use lease::{
    Algorithm, Ballot, Batch, Body, Config, Event, FleaseRules, LeaseNode, Loss, Message, PaxosRules, Stamp,
    Start, Watermark,
};

const CELL: ObjectId = ObjectId::new(0, 1);
const END_OF_LOG: Watermark = Watermark { epoch: Epoch { number: 1, node: NodeId(0) }, seq: Seq(1) };

/// A few nodes with equal clocks, whose messages arrive at once where the story lets them.
struct Stage<A> {
    nodes: Vec<LeaseNode<A>>,
    view: View,
    now: WallTime,
    config: Arc<Config>,
    events: Vec<(u32, Event)>,
}

impl<A: Algorithm> Stage<A> {
    fn new(count: u32) -> Self {
        // A fast network, so that nobody waits long for the answers of those it cannot reach.
        let config = Arc::new(Config { round_trip_max: Span::from_millis(10), ..Config::default() });
        let now = WallTime::from_micros(1 << 50);
        let nodes = (0..count).map(|n| {
            LeaseNode::new(config.clone(), Process::new(n, 1), Start::Fresh, now, u64::from(n)).unwrap()
        });
        let view = View { id: ViewId::default(), members: Members::new((0..count).map(NodeId)).unwrap() };
        Self { nodes: nodes.collect(), view, now, config, events: Vec::new() }
    }

    fn acquire(&mut self, node: usize, cell: ObjectId) {
        self.nodes[node].acquire(self.now, cell, &self.view).unwrap();
    }

    /// Delivers whatever there is between nodes that `reach` each other, until nobody says anything more.
    fn talk(&mut self, reach: impl Fn(usize, usize) -> bool) {
        self.deliver(|from, to, _| reach(from, to));
    }

    fn deliver(&mut self, arrives: impl Fn(usize, usize, &Batch) -> bool) {
        loop {
            let mut quiet = true;
            for from in 0..self.nodes.len() {
                while let Some((to, batch)) = self.nodes[from].poll_transmit(self.now) {
                    quiet = false;
                    let to = to.0 as usize;
                    if arrives(from, to, &batch) {
                        self.nodes[to].handle_batch(self.now, &batch, &self.view);
                    }
                }
                while let Some(event) = self.nodes[from].poll_event() {
                    self.events.push((u32::try_from(from).unwrap(), event));
                }
            }
            if quiet {
                return;
            }
        }
    }

    /// Lets time pass for nodes that reach themselves; the others stand still.
    fn pass(&mut self, span: Span, reach: impl Fn(usize, usize) -> bool) {
        let end = self.now + span;
        while self.now < end {
            self.now = self.now + Span::from_millis(1);
            for node in (0..self.nodes.len()).filter(|&node| reach(node, node)) {
                self.nodes[node].handle_timeout(self.now);
            }
            self.talk(&reach);
        }
    }

    fn restart(&mut self, node: u32) {
        let process = Process::new(node, 2);
        self.nodes[node as usize] =
            LeaseNode::new(self.config.clone(), process, Start::Again, self.now, 77).unwrap();
    }

    fn holds(&self, node: usize) -> bool {
        self.nodes[node].holds(self.now, CELL)
    }

    fn losses(&self) -> Vec<Loss> {
        let lost = |event: &(u32, Event)| match event.1 {
            Event::Lost { why, .. } => Some(why),
            _ => None,
        };
        self.events.iter().filter_map(lost).collect()
    }
}

fn only(pair: [usize; 2]) -> impl Fn(usize, usize) -> bool {
    move |from, to| pair.contains(&from) && pair.contains(&to)
}

/// PaxosLease counts ballots by attempts and not by time, so a forgotten lease may have the higher ballot. Its owner
/// restarted, the node that remembers it was unreachable for a while, and the new owner's renewal then met it.
#[test]
fn an_expired_lease_with_a_higher_ballot_does_not_supersede_a_valid_one() {
    let mut stage = Stage::<PaxosRules>::new(3);
    (10..30).for_each(|n| stage.acquire(1, ObjectId::new(0, n)));
    stage.talk(|_, _| false);
    stage.acquire(1, CELL);
    stage.talk(only([0, 1]));
    assert!(stage.holds(1));
    stage.restart(1);
    stage.pass(Span::from_secs(3), |_, _| false);

    stage.acquire(2, CELL);
    // The node that remembers hears the new owner, so that its register is not idle, but its answers are lost.
    stage.talk(|from, to| only([1, 2])(from, to) || (from, to) == (2, 0));
    assert!(stage.holds(2), "the two that remember nothing are a majority");
    stage.pass(Span::from_secs(5), only([0, 2]));
    assert_eq!(stage.losses(), []);
    assert!(stage.holds(2), "renewed with the node that remembers the expired lease");
}

/// A write that reaches nobody leaves its value at the writer's own acceptor. Nobody acts on that value, so the writer
/// must not wait for it to expire: two rivals that hit each other would both wait out a lease that nobody owns.
#[test]
fn a_node_does_not_wait_for_a_lease_that_it_wrote_and_never_owned() {
    let mut stage = Stage::<PaxosRules>::new(2);
    stage.acquire(0, CELL);
    let is_write = |batch: &Batch| matches!(batch.messages[0].body, Body::Write(_));
    stage.deliver(|_, _, batch| !is_write(batch));
    stage.pass(Span::from_millis(400), |_, _| true);
    assert!(stage.holds(0), "{:?}", stage.events);
}

/// The owner released its lease, never heard the votes, and tried again while a successor owned the cell already:
/// reading on could only abort the successor's renewals.
#[test]
fn a_former_owner_stops_releasing_once_somebody_else_owns_the_cell() {
    let mut stage = Stage::<PaxosRules>::new(2);
    stage.acquire(0, CELL);
    stage.talk(|_, _| true);
    stage.nodes[0].release(stage.now, CELL, END_OF_LOG).unwrap();
    let is_vote = |batch: &Batch| matches!(batch.messages[0].body, Body::WriteAck);
    stage.deliver(|_, _, batch| !is_vote(batch));
    stage.acquire(1, CELL);
    stage.talk(|_, _| true);
    assert!(stage.holds(1));
    stage.pass(Span::from_millis(300), |_, _| true);
    let given_up = |event: &(u32, Event)| matches!(event, (0, Event::GivenUp { .. }));
    assert!(stage.events.iter().any(given_up));
    let conflicts = stage.nodes[0].counters().conflicts;
    assert!(conflicts <= 1, "{conflicts} reads under the successor's lease");
}

/// Two clocks agree within ε at every instant and drift by 5 % each, as they may. Between the vote and its expiry the
/// owner's clock went from ε ahead of the voter's to ε behind it: the voter, restarted, must be silent for that too.
#[test]
fn a_restarted_voter_is_silent_until_a_drifting_owner_has_stopped() {
    let mut stage = Stage::<FleaseRules>::new(3);
    let (start, epsilon) = (stage.now + Span::from_secs(1), stage.config.epsilon);
    let (half, t_max) = (epsilon / 2, stage.config.t_max);
    stage.now = start + half;
    stage.acquire(0, CELL);
    let (_, read) = stage.nodes[0].poll_transmit(start + half).unwrap();
    stage.nodes[1].handle_batch(start - half, &read, &stage.view);
    let (_, promise) = stage.nodes[1].poll_transmit(start - half).unwrap();
    stage.nodes[0].handle_batch(start + half, &promise, &stage.view);
    let to_voter = |(to, _): &(NodeId, Batch)| *to == NodeId(1);
    let write = std::iter::from_fn(|| stage.nodes[0].poll_transmit(start + half)).find(to_voter).unwrap().1;
    stage.nodes[1].handle_batch(start - half, &write, &stage.view);
    let (_, vote) = stage.nodes[1].poll_transmit(start - half).unwrap();
    stage.nodes[0].handle_batch(start + half, &vote, &stage.view);
    assert!(stage.nodes[0].holds(start + half, CELL));

    // The voter restarts at once; by the expiry it is ahead, and the owner, which can renew with nobody, is behind.
    stage.now = start - half;
    stage.restart(1);
    let owner_stops = start + t_max + epsilon;
    let mut at = start + t_max;
    while at < owner_stops {
        stage.now = at + half;
        stage.nodes[2].handle_timeout(stage.now);
        stage.acquire(2, CELL);
        stage.deliver(|from, to, _| from != 0 && to != 0);
        assert!(stage.nodes[0].holds(at - half, CELL), "by its own clock the owner still owns the cell");
        assert!(!stage.holds(2), "a second owner {} before the first one stops", owner_stops.since(at));
        at = at + Span::from_millis(1);
    }
}

/// A ballot at the very edge of what acceptors take leaves no room for a higher one until time has passed. The owner
/// cannot renew meanwhile, but it still owns the cell, and must be told if it loses it.
#[test]
fn an_owner_that_runs_out_of_ballots_keeps_its_lease_and_hears_of_its_end() {
    let mut stage = Stage::<FleaseRules>::new(3);
    stage.acquire(0, CELL);
    stage.talk(|_, _| true);
    stage.acquire(2, ObjectId::new(0, 2));
    let settings = stage.nodes[2].poll_transmit(stage.now).unwrap().1.settings;
    assert!(stage.holds(0));
    let interval = stage.config.t_max.saturating_sub(stage.config.epsilon);
    let stamp = Stamp::last_at(stage.now + stage.config.t_max, interval);
    let edge = Message {
        cell: CELL,
        view: stage.view.id,
        ballot: Ballot { stamp, process: Process::new(2, 1) },
        body: Body::Read,
    };
    let batch = Batch { sender: Process::new(2, 1), settings, sent: stage.now, messages: vec![edge] };
    stage.nodes[0].handle_batch(stage.now, &batch, &stage.view);
    stage.nodes[1].handle_batch(stage.now, &batch, &stage.view);
    let acquired_at = stage.now;
    while stage.holds(0) && stage.now.since(acquired_at) < Span::from_secs(4) {
        stage.pass(Span::from_millis(10), |_, _| true);
    }
    let held = stage.now.since(acquired_at);
    assert!(held >= Span::from_millis(1_900), "it gave up after {held}: {:?}", stage.events);
    let denied = |event: &(u32, Event)| matches!(event.1, Event::Denied { .. });
    assert!(!stage.events.iter().any(denied), "{:?}", stage.events);
}

/// The owner released the cell, but one write was under way for very long. Its receiver restarted meanwhile, forgot
/// what it had promised, and voted for another owner under a lower ballot. The late write must not end that lease.
#[test]
fn a_late_release_does_not_end_the_lease_of_a_later_owner() {
    let mut stage = Stage::<PaxosRules>::new(3);
    (10..30).for_each(|n| stage.acquire(0, ObjectId::new(0, n)));
    stage.talk(|_, _| false);
    stage.acquire(0, CELL);
    stage.talk(only([0, 1]));
    assert!(stage.holds(0));
    stage.nodes[0].release(stage.now, CELL, END_OF_LOG).unwrap();
    let late = std::cell::RefCell::new(None);
    stage.deliver(|from, to, batch| {
        let is_release = matches!(batch.messages[0].body, Body::Write(_));
        if is_release && to == 1 {
            late.replace(Some(batch.clone()));
        }
        only([0, 1])(from, to) && !is_release
    });
    stage.restart(1);
    stage.pass(Span::from_secs(3), |_, _| false);
    stage.acquire(2, CELL);
    stage.talk(only([1, 2]));
    assert!(stage.holds(2));

    let late = late.take().expect("the release was written");
    stage.nodes[1].handle_batch(stage.now, &late, &stage.view);
    stage.pass(Span::from_millis(1), only([0, 1]));
    stage.acquire(0, CELL);
    stage.pass(Span::from_millis(300), only([0, 1]));
    assert!(stage.holds(2), "nobody told it to stop");
    assert!(!stage.holds(0), "a second owner");
}
