//! The world: nodes, cells, the queue of what happens next, and the checkers that look on.

use std::sync::Arc;

use base::{Members, NodeId, ObjectId, Process, Random, Span, View, ViewId, WallTime};
use lease::{Algorithm, Batch, Body, Config, Event, LeaseNode};

use super::host::{Host, Known};
use crate::checkers::courtesy::{self, Courtesy};
use crate::checkers::evidence::{Machines, Mishaps};
use crate::checkers::exclusion::{Exclusion, Owner};
use crate::checkers::liveness::Liveness;
use crate::checkers::renewal::Renewal;
use crate::clock::Clock;
use crate::network::Network;
use crate::queue::Queue;
use crate::{FaultKind, Plan, Summary, Trace, TrueTime, Violation};

/// Longer than this no seed needs until enough has happened.
const STORM_MAX: Span = Span::from_secs(6 * 3_600);
/// A storm in which too little happened goes on for this long before it is looked at again.
const STORM_STEP: Span = Span::from_secs(10);
/// Every look visits one cell in so many.
const LOOK_STRIDE: usize = 8;
/// The high half of all cells' ids.
const CELL_HIGH: u64 = 0xce11;

/// Something that will happen.
#[derive(Debug)]
pub(super) enum Task {
    Deliver {
        to: usize,
        batch: Batch,
    },
    Wake {
        node: usize,
    },
    /// The users of a cell do their next thing.
    Step {
        cell: usize,
    },
    /// A node that wants a cell asks for it.
    Ask {
        node: usize,
        cell: usize,
    },
    /// A node got a cell that nobody wants any more.
    GiveBack {
        node: usize,
        cell: usize,
    },
    /// An operation is done and may be answered.
    Answer {
        by: Process,
        cell: usize,
    },
    Fault(FaultKind),
    Mend(Vec<(usize, usize)>),
    Restart {
        node: usize,
    },
    Resume {
        process: Process,
    },
    /// A node that stood down trusts its clock again.
    Trust {
        process: Process,
    },
    Notice {
        to: usize,
        dead: Process,
    },
    /// A node learns the views of a cell that it does not know yet.
    Learn {
        node: usize,
        cell: usize,
    },
    /// Checkers look at cells at which nothing seems to happen.
    Look,
}

/// What the world knows of a cell.
#[derive(Debug)]
pub(super) struct CellState {
    pub(super) id: ObjectId,
    pub(super) views: Vec<View>,
    /// Whose users want it, a bit for each node.
    pub(super) wanted: u32,
    /// Which nodes will ask again in any case.
    pub(super) asking: u32,
    pub(super) in_use: bool,
    /// Leases of processes that have ended.
    ghosts: Vec<Ghost>,
}

#[derive(Debug)]
struct Ghost {
    process: Process,
    until: WallTime,
}

/// Independent sources, so that what happens in one place does not shift what happens in another.
#[derive(Debug)]
pub(super) struct Dice {
    pub(super) users: Random,
    pub(super) faults: Random,
    pub(super) clocks: Random,
}

/// The promises that are watched.
#[derive(Debug)]
pub(super) struct Checkers {
    pub(super) exclusion: Exclusion,
    pub(super) renewal: Renewal,
    pub(super) liveness: Liveness,
    courtesy: Courtesy,
}

/// A whole cluster.
#[derive(Debug)]
pub(super) struct World<'a, A> {
    pub(super) plan: &'a Plan,
    pub(super) config: Arc<Config>,
    pub(super) now: TrueTime,
    pub(super) queue: Queue<Task>,
    pub(super) hosts: Vec<Host<A>>,
    pub(super) cells: Vec<CellState>,
    pub(super) network: Network,
    pub(super) dice: Dice,
    pub(super) checkers: Checkers,
    pub(super) summary: Summary,
    pub(super) trace: Trace<'a>,
    /// Once it is calm no faults happen and nobody gives anything up.
    pub(super) is_calm: bool,
    /// Processes whose death a witness has told of.
    pub(super) buried: Vec<Process>,
    /// The digest of the settings, as seen on the network.
    pub(super) settings: u32,
    look_from: usize,
    pub(super) mishaps: Mishaps,
}

impl<'a, A: Algorithm> World<'a, A> {
    pub(super) fn new(plan: &'a Plan, trace: Trace<'a>) -> Self {
        let mut random = Random::new(plan.seed ^ 0x51_1e_a5_e5);
        let nodes = plan.nodes as usize;
        let cells = draw_cells(plan, &mut random.fork());
        let mut clocks = random.fork();
        let mut seeds = random.fork();
        let hosts = (0..plan.nodes).map(|node| {
            let known = Known::first(cells.iter().map(|cell| cell.views[0].clone()));
            Host::new(NodeId(node), Clock::new(&plan.clocks, &mut clocks), known, seeds.fork())
        });
        let config = Arc::new(plan.config.clone());
        let longest = plan.config.t_max + plan.config.epsilon;
        let mut world = Self {
            config,
            now: TrueTime::ZERO,
            queue: Queue::new(),
            hosts: hosts.collect(),
            cells,
            network: Network::new(plan.network.clone(), nodes, random.fork()),
            dice: Dice { users: random.fork(), faults: random.fork(), clocks },
            checkers: Checkers {
                exclusion: Exclusion::default(),
                renewal: Renewal::new(longest),
                liveness: Liveness::default(),
                courtesy: Courtesy,
            },
            summary: Summary {
                seed: plan.seed,
                algorithm: A::NAME,
                nodes: plan.nodes,
                cells: plan.cells,
                t_max: plan.config.t_max,
                ..Summary::default()
            },
            trace,
            is_calm: false,
            buried: Vec::new(),
            settings: 0,
            look_from: 0,
            mishaps: Mishaps::new(nodes),
            plan,
        };
        world.hosts.iter_mut().for_each(|host| host.start(TrueTime::ZERO, &world.config));
        world
    }

    /// The storm, the healing, the calm; up to the first broken promise.
    pub(super) fn run(mut self) -> Summary {
        if let Err(violation) = self.storm().and_then(|()| self.calm()) {
            let mut violation = violation;
            self.mishaps.complete(&mut violation);
            self.note(violation.cell, format_args!("VIOLATION {violation}"));
            self.summary.violations.push(violation);
        }
        self.summary.simulated = self.now.since(TrueTime::ZERO);
        self.summary
    }

    fn storm(&mut self) -> Result<(), Violation> {
        self.schedule_users();
        self.schedule_faults();
        self.queue.push(self.now, Task::Look);
        let mut until = TrueTime::ZERO + self.plan.duration;
        self.run_until(until)?;
        while !self.has_seen_enough() && until.since(TrueTime::ZERO) < STORM_MAX {
            until = until + STORM_STEP;
            self.run_until(until)?;
        }
        Ok(())
    }

    fn has_seen_enough(&self) -> bool {
        let so_far = Summary { simulated: self.now.since(TrueTime::ZERO), ..self.summary.clone() };
        so_far.counts()
    }

    pub(super) fn run_until(&mut self, limit: TrueTime) -> Result<(), Violation> {
        while let Some((at, task)) = self.queue.pop_until(limit) {
            self.now = at;
            self.perform(task)?;
        }
        self.now = limit;
        Ok(())
    }

    fn perform(&mut self, task: Task) -> Result<(), Violation> {
        match task {
            Task::Deliver { to, batch } => self.deliver(to, batch),
            Task::Wake { node } => self.wake(node),
            Task::Step { cell } => self.step(cell),
            Task::Ask { node, cell } => self.ask_again(node, cell),
            Task::GiveBack { node, cell } => self.give_back(node, cell),
            Task::Answer { by, cell } => self.answer(by, cell),
            Task::Fault(kind) => self.strike(kind),
            Task::Mend(links) => {
                links.into_iter().for_each(|(from, to)| self.network.mend(from, to));
                Ok(())
            }
            Task::Restart { node } => self.restart(node),
            Task::Resume { process } => self.resume(process),
            Task::Trust { process } => self.trust(process),
            Task::Notice { to, dead } => self.notice(to, dead),
            Task::Learn { node, cell } => self.learn(node, cell),
            Task::Look => self.look_around(),
        }
    }

    /// Calls a running node with what its clock shows, and sees to whatever comes out of it.
    pub(super) fn call<R>(
        &mut self,
        node: usize,
        what: impl FnOnce(&mut LeaseNode<A>, WallTime, &Known) -> R,
    ) -> Result<Option<R>, Violation> {
        let host = &mut self.hosts[node];
        let reading = host.clock.reading(self.now);
        let Some(process) = host.node.as_mut().filter(|_| !host.paused) else { return Ok(None) };
        let result = what(process, reading, &host.known);
        self.flush(node, reading)?;
        Ok(Some(result))
    }

    /// Sends what a node wants sent, hears its events and sets its alarm.
    fn flush(&mut self, node: usize, reading: WallTime) -> Result<(), Violation> {
        while let Some((to, batch)) =
            self.process_mut(node).and_then(|process| process.poll_transmit(reading))
        {
            self.send(node, to, batch)?;
        }
        while let Some(event) = self.process_mut(node).and_then(LeaseNode::poll_event) {
            self.hear(node, reading, event)?;
        }
        self.set_alarm(node);
        Ok(())
    }

    fn process_mut(&mut self, node: usize) -> Option<&mut LeaseNode<A>> {
        self.hosts[node].node.as_mut()
    }

    fn send(&mut self, from: usize, to: NodeId, batch: Batch) -> Result<(), Violation> {
        self.watch_reads(from, &batch)?;
        self.settings = batch.settings;
        let to = to.0 as usize;
        if to >= self.hosts.len() {
            return Ok(());
        }
        let [first, second] = self.network.route(self.now, (from, to), &mut self.summary.faults);
        if let Some(at) = second {
            self.queue.push(at, Task::Deliver { to, batch: batch.clone() });
        }
        if let Some(at) = first {
            self.queue.push(at, Task::Deliver { to, batch });
        }
        Ok(())
    }

    fn watch_reads(&mut self, from: usize, batch: &Batch) -> Result<(), Violation> {
        let host = &self.hosts[from];
        let Some(process) = &host.node else { return Ok(()) };
        for message in &batch.messages {
            let is_in_tenure = || self.checkers.renewal.is_in_tenure(message.cell, batch.sender);
            if message.body != Body::Read || is_in_tenure() {
                continue;
            }
            let known = process.hint(batch.sent, message.cell);
            let is_offered = |owner| host.offers.get(&message.cell) == Some(&owner);
            let may_take = |owner| courtesy::was_told_dead(&host.told_dead, owner) || is_offered(owner);
            let reader = (batch.sender, message.cell);
            self.checkers.courtesy.read_leaves(self.now, reader, known.as_ref(), may_take)?;
        }
        Ok(())
    }

    pub(super) fn deliver(&mut self, to: usize, batch: Batch) -> Result<(), Violation> {
        let host = &mut self.hosts[to];
        if host.node.is_none() {
            return Ok(());
        }
        if host.paused {
            host.inbox.push(batch);
            return Ok(());
        }
        self.trace_batch(to, &batch);
        self.summary.messages += batch.messages.len() as u64;
        self.call(to, |process, reading, known| process.handle_batch(reading, &batch, known))?;
        Ok(())
    }

    fn wake(&mut self, node: usize) -> Result<(), Violation> {
        let host = &mut self.hosts[node];
        if host.wake.is_none_or(|(_, at)| at != self.now) || host.paused {
            return Ok(());
        }
        host.wake = None;
        self.call(node, |process, reading, _| process.handle_timeout(reading))?;
        Ok(())
    }

    /// Has the node woken when it wants to be, by its own clock.
    pub(super) fn set_alarm(&mut self, node: usize) {
        let host = &mut self.hosts[node];
        let wanted = host.node.as_ref().and_then(LeaseNode::poll_timeout);
        if wanted == host.wake.map(|(reading, _)| reading) {
            return;
        }
        host.wake = wanted.map(|reading| (reading, host.clock.when(self.now, reading)));
        if let Some((_, at)) = host.wake {
            self.queue.push(at, Task::Wake { node });
        }
    }

    /// Sets the alarm anew because the clock is not what it was.
    pub(super) fn reset_alarm(&mut self, node: usize) {
        self.hosts[node].wake = None;
        self.set_alarm(node);
    }

    fn hear(&mut self, node: usize, reading: WallTime, event: Event) -> Result<(), Violation> {
        if self.trace.is_on() {
            let who = self.hosts[node].process();
            self.note(cell_of(&event), format_args!("{who:?} at {reading:?}: {event:?}"));
        }
        self.react(node, reading, event)
    }

    /// Everybody who owns the cell now.
    fn owners(&self, cell: usize) -> Vec<Owner> {
        let CellState { id, ghosts, .. } = &self.cells[cell];
        let living = self.hosts.iter().filter_map(|host| host.owner(self.now, *id));
        let ended = ghosts.iter().filter_map(|ghost| {
            let reading = self.hosts[ghost.process.node.0 as usize].clock.reading(self.now);
            let owner = Owner { process: ghost.process, reading, until: ghost.until, ended: true };
            (reading < ghost.until).then_some(owner)
        });
        living.chain(ended).collect()
    }

    pub(super) fn look_at(&mut self, cell: usize) -> Result<(), Violation> {
        let owners = self.owners(cell);
        self.checkers.exclusion.observe(self.now, self.cells[cell].id, &owners)
    }

    pub(super) fn look_at_act(&mut self, cell: usize, actor: Process) -> Result<(), Violation> {
        let owners = self.owners(cell);
        self.checkers.exclusion.observe_act(self.now, self.cells[cell].id, actor, &owners)
    }

    pub(super) fn look_at_all(&mut self) -> Result<(), Violation> {
        (0..self.cells.len()).try_for_each(|cell| self.look_at(cell))
    }

    fn look_around(&mut self) -> Result<(), Violation> {
        self.check_suspicions()?;
        self.look_from = (self.look_from + 1) % LOOK_STRIDE;
        (self.look_from..self.cells.len()).step_by(LOOK_STRIDE).try_for_each(|cell| self.look_at(cell))?;
        let period = self.config.t_max / 32;
        self.queue.push(self.now + period, Task::Look);
        Ok(())
    }

    /// What the process owned goes on until its clock passes the expiry, although nobody can act on it.
    pub(super) fn leave_ghosts(&mut self, node: usize) {
        for cell in &mut self.cells {
            let clock = &self.hosts[node].clock;
            cell.ghosts.retain(|ghost| {
                ghost.process.node != self.hosts[node].id || clock.reading(self.now) < ghost.until
            });
            if let Some(owner) = self.hosts[node].owner(self.now, cell.id) {
                cell.ghosts.push(Ghost { process: owner.process, until: owner.until });
            }
        }
    }

    /// A witness says that the process is dead: its leases are over.
    pub(super) fn lay_ghosts(&mut self, dead: Process) {
        for cell in &mut self.cells {
            cell.ghosts.retain(|ghost| {
                ghost.process.node != dead.node || ghost.process.incarnation > dead.incarnation
            });
        }
    }

    /// Something goes wrong with a node, or is right again.
    pub(super) fn mishap(&mut self, node: usize, what: &'static str) {
        self.mishaps.note(self.now, Machines::one(node), what);
    }

    pub(super) fn note(&mut self, cell: Option<ObjectId>, what: std::fmt::Arguments<'_>) {
        self.trace.line(self.now, cell, what);
    }

    fn trace_batch(&mut self, to: usize, batch: &Batch) {
        if !self.trace.is_on() {
            return;
        }
        let (reading, from) = (self.hosts[to].clock.reading(self.now), batch.sender);
        for message in &batch.messages {
            let what = (batch.sent, message.view, message.ballot, &message.body);
            self.note(Some(message.cell), format_args!("{from:?} -> n{to} at {reading:?}: {what:?}"));
        }
    }

    /// The place of a cell among the cells, if it is one of them.
    pub(super) fn index(&self, cell: ObjectId) -> Option<usize> {
        let index = usize::try_from(cell.low).ok()?;
        (cell.high == CELL_HIGH && index < self.cells.len()).then_some(index)
    }
}

/// Every cell with its first view.
fn draw_cells(plan: &Plan, random: &mut Random) -> Vec<CellState> {
    (0..u64::from(plan.cells))
        .map(|low| {
            let mut nodes: Vec<NodeId> = (0..plan.nodes).map(NodeId).collect();
            while nodes.len() > plan.replicas as usize {
                let gone = random.index(nodes.len());
                nodes.remove(gone);
            }
            let members = Members::new(nodes).expect("at least two different nodes");
            CellState {
                id: ObjectId::new(CELL_HIGH, low),
                views: vec![View { id: ViewId::default(), members }],
                wanted: 0,
                asking: 0,
                in_use: false,
                ghosts: Vec::new(),
            }
        })
        .collect()
}

const fn cell_of(event: &Event) -> Option<ObjectId> {
    match event {
        Event::Acquired { cell, .. }
        | Event::Renewed { cell, .. }
        | Event::Denied { cell, .. }
        | Event::Lost { cell, .. }
        | Event::GivenUp { cell, .. }
        | Event::Offered { cell, .. }
        | Event::WrongView { cell, .. }
        | Event::ViewBehind { cell, .. } => Some(*cell),
        Event::SettingsDiffer { .. } => None,
    }
}
