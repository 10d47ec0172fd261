//! The world: machines, connections, the queue of what happens next, and the checkers that look on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{MonoTime, NodeId, ObjectId, Process, Random, Span, StartId, WallTime};
use client::core::content::Recall;
use client::core::files::Files;
use client::core::{self, Core};
use lease::{Algorithm, Batch};
use node::file::FileOf;
use node::file::Position;
use node::{ClientId, Output, Reply, SessionId, Shard, ShardEvent, lock_cell};

use super::behind::{Behind, Heard};
use super::directory::Birth;
use super::files::{Asked, DiskInput, Question};
use super::hands::Hand;
use super::machine::{ClientMachine, DaemonMachine};
use super::operator::Order;
use super::owners::Ghost;
use super::plan::ClusterPlan;
use super::streams::{ConnectionId, Connections, Payload, Side};
use super::summary::{ClusterSummary, SIMULATED_MIN};
use super::volumes::volume_objects;
use super::wrong_clocks::WrongClocks;
use crate::check::file::FileModel;
use crate::check::volume::VolumeModel;
use crate::checkers::contents::Contents;
use crate::checkers::durability::Durability;
use crate::checkers::endings::Endings;
use crate::checkers::entries::Entries;
use crate::checkers::evidence::{Fact, Machines, Mishaps};
use crate::checkers::exclusion::Exclusion;
use crate::checkers::histories::Histories;
use crate::checkers::locks::Locks;
use crate::checkers::promises::Promises;
use crate::checkers::promptness::Promptness;
use crate::checkers::replies::Replies;
use crate::checkers::sessions::Sessions;
use crate::clock::Clock;
use crate::network::Network;
use crate::queue::Queue;
use crate::{FaultKind, Trace, TrueTime, Violation};

/// Longer than this no seed needs until enough has happened.
const STORM_MAX: Span = Span::from_secs(6 * 3_600);
/// A storm in which too little happened goes on for this long before it is looked at again.
const STORM_STEP: Span = Span::from_secs(10);
/// The owners of all leases are looked at this often.
pub(super) const LOOK_EVERY: Span = Span::from_millis(7);
/// So many users of what may be lent each client has, and so many processes at most.
const HANDS: usize = 2;
const LIVES_MAX: u64 = 1_000_000;
/// So many things never happen at one instant, unless somebody asks to be woken at a time that has passed.
const SPINS_MAX: u32 = 50_000;

/// Something that will happen.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// Something for one process; it waits while that is frozen, and is void when it has ended.
    To(usize, u64, Box<Input>),
    /// An end of a connection has heard nothing for long.
    Silence(ConnectionId, Side),
    /// A machine calls another.
    Dial(usize, usize),
    Fault(FaultKind),
    Mend(Vec<(usize, usize)>),
    Start(usize),
    Resume(usize, u64),
    /// A supervisor tells a daemon of a death, again and again until it is heard.
    Notice {
        to: usize,
        dead: Process,
        line: StartId,
        tries: u32,
    },
    /// A daemon has its newest data directory back.
    PutBack(usize),
    /// A daemon dies just after it gave somebody a lock.
    Betray(usize, u64),
    /// A draining daemon is looked at.
    Drained(usize, u64),
    /// An operator has a daemon lead again.
    Undrain(usize),
    /// A clock that went astray turns back.
    TurnBack(usize),
    /// A wrong clock is put right.
    PutRight(usize),
    Look,
    /// An operator asks for something.
    Order(Order),
}

/// Something that happens to a process.
#[derive(Clone, Debug)]
pub(super) enum Input {
    Wake,
    Datagram(Datagram),
    Stream(ConnectionId, Payload),
    /// A connection is open at this end.
    Opened(ConnectionId),
    /// The mark may be on disk.
    Written(u64),
    Death(Process, StartId),
    Heartbeat,
    /// A user does its next thing.
    User(usize, u64),
    /// A user of files does.
    Writer(usize, u64),
    /// A user of what may be lent to its client does.
    Hand(usize, u64),
    /// Somebody has his turn to hear what came of something.
    Heard(Box<Heard>),
    Disk(DiskInput),
    /// A client that is over for some file ends, and begins anew.
    Over,
}

/// What overtakes streams.
#[derive(Clone, Debug)]
pub(super) enum Datagram {
    Lease(Birth, Batch),
    Ask { from: Birth, asked: WallTime },
    Answer { from: Birth, asked: WallTime, at: WallTime },
}

/// Each kind of decision draws from its own source.
#[derive(Debug)]
pub(super) struct Dice {
    pub(super) faults: Random,
    pub(super) users: Random,
    pub(super) clocks: Random,
    pub(super) disks: Random,
    pub(super) streams: Random,
    pub(super) files: Random,
    pub(super) removals: Random,
    pub(super) levels: Random,
    pub(super) trees: Random,
    pub(super) holds: Random,
    pub(super) contents: Random,
    pub(super) lends: Random,
}

/// All checkers.
#[derive(Debug)]
pub(super) struct Checkers {
    pub(super) locks: Locks,
    pub(super) sessions: Sessions,
    pub(super) promptness: Promptness,
    pub(super) promises: Promises,
    pub(super) durability: Durability,
    pub(super) entries: Entries,
    pub(super) histories: Histories<FileModel>,
    pub(super) trees: Histories<VolumeModel>,
    pub(super) replies: Replies,
    pub(super) endings: Endings,
    pub(super) exclusion: Exclusion,
    pub(super) contents: Contents,
}

impl Checkers {
    fn new(plan: &ClusterPlan) -> Self {
        Self {
            locks: Locks::default(),
            sessions: Sessions::default(),
            promptness: Promptness::default(),
            promises: Promises::default(),
            durability: Durability::default(),
            entries: Entries::default(),
            histories: Histories::default(),
            trees: Histories::new(VolumeModel { map: Arc::clone(&plan.shard.map) }),
            replies: Replies::default(),
            endings: Endings::default(),
            exclusion: Exclusion::default(),
            contents: Contents::default(),
        }
    }
}

/// One run.
#[derive(Debug)]
pub(super) struct World<'a, A> {
    pub(super) plan: &'a ClusterPlan,
    pub(super) now: TrueTime,
    pub(super) queue: Queue<Task>,
    pub(super) daemons: Vec<DaemonMachine<A>>,
    pub(super) clients: Vec<ClientMachine>,
    pub(super) cells: Vec<ObjectId>,
    /// Files, and behind them volumes.
    pub(super) files: Vec<ObjectId>,
    /// The files of volumes whose content is watched; their objects stand behind the volumes.
    pub(super) contents: Vec<FileOf>,
    /// The volumes in which users take everything away.
    pub(super) clearing: BTreeSet<usize>,
    /// What clients have asked daemons about files.
    pub(super) asked: BTreeMap<Asked, Question>,
    /// How far each replica knows its file to be committed.
    pub(super) committed: BTreeMap<(usize, ObjectId), Position>,
    pub(super) network: Network,
    pub(super) connections: Connections,
    pub(super) dialing: BTreeSet<(usize, usize)>,
    pub(super) dice: Dice,
    pub(super) checkers: Checkers,
    pub(super) summary: ClusterSummary,
    pub(super) is_calm: bool,
    /// Whether users do what the calm tells them, and nothing by themselves.
    pub(super) is_directed: bool,
    /// Who is expected to get an answer.
    pub(super) awaited: BTreeMap<(usize, usize), u64>,
    /// Which users of files are expected to get a result.
    pub(super) awaited_files: BTreeMap<(usize, usize), u64>,
    /// Whether the present input may be the last before a process freezes.
    may_freeze: bool,
    /// How many things happened at this instant.
    spins: u32,
    pub(super) buried: Vec<(Process, StartId)>,
    pub(super) coverage: BTreeMap<ConnectionId, Coverage>,
    pub(super) ghosts: Vec<Ghost>,
    pub(super) wrong_clocks: WrongClocks,
    pub(super) mishaps: Mishaps,
    pub(super) trace: Trace<'a>,
}

/// Until when a client may count on a session.
#[derive(Debug)]
pub(super) struct Coverage {
    pub(super) client: usize,
    pub(super) life: u64,
    /// When it sent which frame.
    sent: BTreeMap<u64, MonoTime>,
    until: MonoTime,
    /// When that was confirmed.
    confirmed: TrueTime,
    /// Whether the daemon has said that its session is over.
    pub(super) is_over: bool,
}

impl Coverage {
    pub(super) fn new(client: usize, life: u64) -> Self {
        let (sent, until, confirmed) = (BTreeMap::new(), MonoTime::default(), TrueTime::ZERO);
        Self { client, life, sent, until, confirmed, is_over: false }
    }
}

impl<'a, A: Algorithm> World<'a, A> {
    pub(super) fn new(plan: &'a ClusterPlan, trace: Trace<'a>) -> Self {
        let mut random = Random::new(plan.seed ^ 0xc105);
        let mut clocks = random.fork();
        let daemons: Vec<_> = (0..plan.daemons())
            .map(|index| {
                let id = NodeId(u32::try_from(index).expect("a map is small"));
                DaemonMachine::new(id, Clock::new(&plan.clocks, &mut clocks), random.fork(), plan)
            })
            .collect();
        // Clients' clocks only promise their rate.
        let free = crate::clock::ClockPlan { window: None, ..plan.clocks.clone() };
        let clients: Vec<_> = (0..plan.clients)
            .map(|client| {
                let clock = Clock::new(&free, &mut clocks);
                let hands = if plan.volumes.lends { HANDS } else { 0 };
                // Programs are told apart by their numbers alone, as random ones.
                let life = if plan.volumes.lends { u64::from(client) * LIVES_MAX } else { 0 };
                ClientMachine::new(clock, life, (plan.users as usize, plan.files.writers as usize, hands))
            })
            .collect();
        let machines = daemons.len() + clients.len();
        let files = (0..plan.files.count.into()).map(|number| ObjectId::new(0xf11e, number));
        let dice = Dice {
            faults: random.fork(),
            users: random.fork(),
            clocks,
            disks: random.fork(),
            streams: random.fork(),
            files: Random::new(plan.seed ^ 0xf11e),
            removals: Random::new(plan.seed ^ 0x4e30),
            levels: Random::new(plan.seed ^ 0x1e7e1),
            trees: Random::new(plan.seed ^ 0x7ee),
            holds: Random::new(plan.seed ^ 0x401d),
            contents: Random::new(plan.seed ^ 0xc047),
            lends: Random::new(plan.seed ^ 0x1e4d),
        };
        Self {
            plan,
            now: TrueTime::ZERO,
            queue: Queue::new(),
            daemons,
            clients,
            cells: (0..plan.locks).map(|number| lock_cell(&format!("lock {number}"))).collect(),
            files: files.chain(volume_objects(plan.volumes.count)).collect(),
            contents: Vec::new(),
            clearing: BTreeSet::new(),
            asked: BTreeMap::new(),
            committed: BTreeMap::new(),
            network: Network::new(plan.network.clone(), machines, random.fork()),
            connections: Connections::default(),
            dialing: BTreeSet::new(),
            dice,
            checkers: Checkers::new(plan),
            summary: ClusterSummary::new(plan, A::NAME),
            is_calm: false,
            is_directed: false,
            awaited: BTreeMap::new(),
            awaited_files: BTreeMap::new(),
            may_freeze: false,
            spins: 0,
            buried: Vec::new(),
            coverage: BTreeMap::new(),
            ghosts: Vec::new(),
            wrong_clocks: WrongClocks::default(),
            mishaps: Mishaps::new(plan.daemons()),
            trace,
        }
    }

    pub(super) fn run(mut self) -> ClusterSummary {
        if let Err(violation) = self.storm().and_then(|()| self.calm()) {
            self.report(violation);
        }
        if self.summary.violations.is_empty() {
            self.judge_histories();
        }
        (0..self.daemons.len()).for_each(|daemon| self.count_limits(daemon));
        self.summary.simulated = self.now.since(TrueTime::ZERO);
        self.summary.sessions_over = self.checkers.sessions.ended;
        self.summary.file_clients_over = self.checkers.endings.count;
        self.summary.worst = self.checkers.promptness.worst().clone();
        self.summary
    }

    /// A promise is broken. What went wrong meanwhile is put to what shows it.
    pub(super) fn report(&mut self, mut violation: Violation) {
        self.mishaps.complete(&mut violation);
        self.note(violation.cell, format_args!("VIOLATION {violation}"));
        self.summary.violations.push(violation);
    }

    /// Something goes wrong with a machine, or is right again.
    pub(super) fn mishap(&mut self, machine: usize, what: &'static str) {
        self.mishaps.note(self.now, Machines::one(machine), what);
    }

    /// Of all that went wrong with a machine, the last of each kind.
    pub(super) fn mishaps_of(&self, machine: usize) -> Vec<Fact> {
        self.mishaps.since(TrueTime::ZERO, Machines::one(machine))
    }

    fn storm(&mut self) -> Result<(), Violation> {
        for machine in 0..self.machines() {
            self.queue.push(TrueTime::ZERO, Task::Start(machine));
        }
        self.queue.push(self.now + LOOK_EVERY, Task::Look);
        self.schedule_faults();
        self.run_until(TrueTime::ZERO + self.plan.duration)?;
        while !self.has_stormed() && self.now < TrueTime::ZERO + STORM_MAX {
            self.run_until(self.now + STORM_STEP)?;
        }
        Ok(())
    }

    /// Whether enough has happened. The calm is short where nodes are lost.
    fn has_stormed(&self) -> bool {
        let is_long = self.stores_lost() == 0 || self.now >= TrueTime::ZERO + SIMULATED_MIN;
        is_long && self.summary.counts()
    }

    pub(super) fn machines(&self) -> usize {
        self.daemons.len() + self.clients.len()
    }

    /// The client on a machine, unless that is a daemon's.
    pub(super) fn client_on(&self, machine: usize) -> Option<usize> {
        machine.checked_sub(self.daemons.len())
    }

    pub(super) fn run_until(&mut self, end: TrueTime) -> Result<(), Violation> {
        while let Some((at, task)) = self.queue.pop_until(end) {
            self.spins = if at == self.now { self.spins + 1 } else { 0 };
            assert!(self.spins < SPINS_MAX, "time stands still at {at}: {task:?}");
            self.now = at;
            self.happen(task)?;
        }
        self.now = end;
        Ok(())
    }

    fn happen(&mut self, task: Task) -> Result<(), Violation> {
        match task {
            Task::To(machine, life, input) => self.deliver(machine, life, *input),
            Task::Silence(id, side) => self.look_at_silence(id, side),
            Task::Dial(from, to) => {
                self.dial(from, to);
                Ok(())
            }
            Task::Fault(kind) => self.strike(kind),
            Task::Mend(links) => {
                self.mend(&links);
                Ok(())
            }
            Task::Start(machine) => self.start(machine),
            Task::Resume(machine, life) => self.resume(machine, life),
            Task::Notice { to, dead, line, tries } => {
                self.tell_of_death(to, (dead, line), tries);
                Ok(())
            }
            Task::PutBack(daemon) => {
                self.put_back(daemon);
                Ok(())
            }
            Task::Betray(daemon, life) => {
                if self.daemons[daemon].running.life == life && !self.is_calm {
                    self.crash_some_daemon(daemon);
                }
                Ok(())
            }
            Task::Drained(daemon, life) => self.look_at_drain(daemon, life),
            Task::Undrain(daemon) => self.undrain(daemon),
            Task::TurnBack(daemon) => {
                self.turn_back(daemon);
                Ok(())
            }
            Task::PutRight(machine) => {
                self.put_right_somehow(machine);
                Ok(())
            }
            Task::Look => self.look_around(),
            Task::Order(order) => self.ask_for_change(order),
        }
    }

    pub(super) fn running(&self, machine: usize) -> &super::machine::Running {
        match self.client_on(machine) {
            None => &self.daemons[machine].running,
            Some(client) => &self.clients[client].running,
        }
    }

    pub(super) fn running_mut(&mut self, machine: usize) -> &mut super::machine::Running {
        match self.client_on(machine) {
            None => &mut self.daemons[machine].running,
            Some(client) => &mut self.clients[client].running,
        }
    }

    /// Whether a process is there, be it frozen.
    pub(super) fn is_up(&self, machine: usize) -> bool {
        match self.client_on(machine) {
            None => self.daemons[machine].shard.is_some(),
            Some(client) => self.clients[client].core.is_some(),
        }
    }

    /// Puts an input into the queue, for the process that is there now.
    pub(super) fn push_input(&mut self, at: TrueTime, machine: usize, input: Input) {
        let life = self.running(machine).life;
        self.queue.push(at, Task::To(machine, life, Box::new(input)));
    }

    pub(super) fn deliver(&mut self, machine: usize, life: u64, input: Input) -> Result<(), Violation> {
        if !self.is_up(machine) || self.running(machine).life != life {
            return Ok(());
        }
        if self.running(machine).frozen {
            if !matches!(input, Input::Wake) {
                self.running_mut(machine).inbox.push(Task::To(machine, life, Box::new(input)));
            }
            return Ok(());
        }
        self.may_freeze = match &input {
            Input::Wake | Input::Datagram(Datagram::Lease(..)) => true,
            Input::Stream(_, payload) => !matches!(payload, Payload::Closed),
            _ => false,
        };
        match self.client_on(machine) {
            None => self.deliver_to_daemon(machine, input)?,
            Some(client) => self.deliver_to_client(client, input)?,
        }
        self.may_freeze = false;
        Ok(())
    }

    fn deliver_to_daemon(&mut self, daemon: usize, input: Input) -> Result<(), Violation> {
        match input {
            Input::Wake if self.daemons[daemon].running.wake == Some(self.now) => {
                self.daemons[daemon].running.wake = None;
                self.call(daemon, |shard, now| shard.handle_timeout(now))
            }
            Input::Wake | Input::User(..) | Input::Writer(..) | Input::Over => Ok(()),
            Input::Hand(..) | Input::Heard(_) => Ok(()),
            Input::Disk(input) => self.hear_disk(daemon, input),
            Input::Datagram(datagram) => self.take_datagram(daemon, datagram),
            Input::Stream(id, payload) => self.take_from_stream(daemon, id, payload),
            Input::Opened(id) => self.opened(daemon, id),
            Input::Written(mark) => {
                if self.is_real() && !self.raise_ceiling(daemon, mark)? {
                    return Ok(());
                }
                self.call(daemon, |shard, now| shard.handle_ceiling(now, mark))
            }
            Input::Death(dead, line) => self.hear_of_death(daemon, dead, line),
            Input::Heartbeat => {
                self.send_heartbeats(daemon);
                Ok(())
            }
        }
    }

    fn deliver_to_client(&mut self, client: usize, input: Input) -> Result<(), Violation> {
        match input {
            Input::Wake if self.clients[client].running.wake == Some(self.now) => {
                self.clients[client].running.wake = None;
                self.call_files(client, |files, now| files.handle_timeout(now))?;
                self.call_client(client, |core, now| core.handle_timeout(now))
            }
            Input::Stream(id, payload) => self.take_from_stream(self.daemons.len() + client, id, payload),
            Input::Opened(id) => self.opened(self.daemons.len() + client, id),
            Input::User(user, step) => self.user_acts(client, user, step),
            Input::Writer(writer, step) => self.writer_acts(client, writer, step),
            Input::Hand(hand, step) => self.hand_acts(client, hand, step),
            Input::Heard(heard) => self.hear_late(client, *heard),
            // Whoever is expected to have something is left alone.
            Input::Over if !self.is_calm => {
                let machine = self.daemons.len() + client;
                self.crash_client(machine);
                self.start(machine)
            }
            _ => Ok(()),
        }
    }

    /// Calls a running daemon with what its clock shows, and sees to whatever comes out of it.
    pub(super) fn call(
        &mut self,
        daemon: usize,
        what: impl FnOnce(&mut Shard<A>, WallTime),
    ) -> Result<(), Violation> {
        let machine = &mut self.daemons[daemon];
        let reading = machine.clock.reading(self.now);
        let Some(shard) = machine.shard.as_mut().filter(|_| !machine.running.frozen) else { return Ok(()) };
        what(shard, reading);
        if self.may_freeze && std::mem::take(&mut machine.running.freezes_next) {
            self.freeze(daemon);
            return Ok(());
        }
        self.drain_daemon(daemon)
    }

    /// Does what a daemon wants done, and sets its alarm.
    pub(super) fn drain_daemon(&mut self, daemon: usize) -> Result<(), Violation> {
        loop {
            let machine = &mut self.daemons[daemon];
            let reading = machine.clock.reading(self.now);
            let Some(output) = machine.shard.as_mut().and_then(|shard| shard.poll_output(reading)) else {
                break;
            };
            self.take_output(daemon, output)?;
        }
        self.set_daemon_alarm(daemon);
        self.watch_commits(daemon)
    }

    pub(super) fn set_daemon_alarm(&mut self, daemon: usize) {
        let machine = &mut self.daemons[daemon];
        let Some(shard) = &machine.shard else { return };
        let at = machine.clock.when(self.now, shard.poll_timeout());
        if machine.running.wake != Some(at) {
            machine.running.wake = Some(at);
            self.push_input(at, daemon, Input::Wake);
        }
    }

    fn take_output(&mut self, daemon: usize, output: Output) -> Result<(), Violation> {
        match output {
            Output::Lease { to, batch } => {
                let from = self.birth_of(daemon);
                self.summary.messages += batch.messages.len() as u64;
                self.send_datagram(daemon, to.0 as usize, Datagram::Lease(from, batch));
            }
            Output::Peer { to, messages } => {
                self.summary.messages += messages.len() as u64;
                self.send(daemon, to.0 as usize, Payload::Peer(messages));
            }
            Output::Client { session, frame } => {
                self.summary.messages += 1 + frame.replies.len() as u64;
                for reply in &frame.replies {
                    self.note_reply(daemon, session, reply);
                }
                let id = ConnectionId(session.0);
                let says_over = frame.replies.contains(&Reply::SessionOver);
                self.coverage.get_mut(&id).into_iter().for_each(|covered| covered.is_over |= says_over);
                self.confirmed(id, frame.acked);
                self.send_on(id, daemon, Payload::Reply(frame));
            }
            Output::Close { session } => self.session_ended(daemon, session)?,
            Output::RaiseCeiling { to } => self.write_mark(daemon, to),
            Output::KeepDrained(is_drained) => {
                // The disk of an operator's orders has no faults of its own.
                let shard = self.daemons[daemon].shard.as_mut();
                shard.into_iter().for_each(|shard| shard.handle_drain_kept(is_drained));
            }
            Output::File { to, message } => self.send_file_message(daemon, to.0 as usize, message)?,
            Output::FileReply { session, reply } => self.send_file_reply(daemon, session, reply)?,
            Output::Errand { to, errand } => self.send(daemon, to.0 as usize, Payload::Errand(errand)),
            Output::ErrandReply { to, reply } => {
                self.watch_commits(daemon)?;
                self.send(daemon, to.0 as usize, Payload::FileReply(reply));
            }
            Output::Write { number, object, record } => {
                self.write_record(daemon, (number, object), record)?;
            }
            Output::Fetch { fetch, stored } => self.fetch_really(daemon, fetch, stored),
            Output::Sync { upto } => self.sync_journal(daemon, upto)?,
            Output::StoreFailed => self.end_with_store(daemon),
            Output::Event(event) => self.hear_daemon(daemon, &event)?,
        }
        Ok(())
    }

    fn hear_daemon(&mut self, daemon: usize, event: &ShardEvent) -> Result<(), Violation> {
        let cell = match event {
            ShardEvent::TakenOver { cell, .. }
            | ShardEvent::LeaseLost { cell, .. }
            | ShardEvent::Detached { cell } => Some(*cell),
            ShardEvent::FileBlocked { object, .. }
            | ShardEvent::FileLost { object, .. }
            | ShardEvent::FileMembers { object, .. }
            | ShardEvent::FileClientOver { object, .. }
            | ShardEvent::FileUnsound { object, .. } => Some(*object),
            _ => None,
        };
        match event {
            ShardEvent::TakenOver { .. } => self.summary.taken_over += 1,
            ShardEvent::Detached { .. } => self.summary.detached += 1,
            ShardEvent::FileBlocked { object, .. } => {
                self.summary.blocked += 1;
                self.call_operator(daemon, *object);
            }
            _ => {}
        }
        if self.trace.is_on() {
            let (who, reading) =
                (self.daemons[daemon].process(), self.daemons[daemon].clock.reading(self.now));
            self.note(cell, format_args!("{who:?} at {reading:?}: {event:?}"));
        }
        match *event {
            ShardEvent::FileClientOver { object, client } => self.watch_declared(daemon, (object, client)),
            _ => Ok(()),
        }
    }

    fn session_ended(&mut self, daemon: usize, session: SessionId) -> Result<(), Violation> {
        let id = ConnectionId(session.0);
        // Sessions outlive their connections.
        let Some(covered) = self.coverage.remove(&id) else { return Ok(()) };
        let (client, node) = (covered.client, self.daemons[daemon].id);
        let reading = self.clients[client].reading(self.now);
        let until = if self.wrong_clocks.may_share_locks { reading } else { covered.until };
        let who = ClientId { program: covered.life, ..self.clients[client].id(self.daemons.len() + client) };
        self.note(None, format_args!("{node:?} ends the session of {who:?}"));
        self.checkers.sessions.ended(self.now, (node, who), (reading, until, covered.confirmed))?;
        self.close_end(id, Side::Acceptor)
    }

    fn spoke(&mut self, machine: usize, daemon: usize, number: u64, at: MonoTime) {
        let id = self.connections.current(machine, daemon);
        if let Some(coverage) = id.and_then(|id| self.coverage.get_mut(&id)) {
            coverage.sent.insert(number, at);
        }
    }

    /// A daemon confirms what it heard.
    fn confirmed(&mut self, id: ConnectionId, acked: u64) {
        let session = Span::from_millis(self.plan.shard.map.settings().session_ms.into());
        let Some(coverage) = self.coverage.get_mut(&id) else { return };
        if let Some(&sent) = coverage.sent.get(&acked) {
            if coverage.until < sent + session {
                (coverage.until, coverage.confirmed) = (sent + session, self.now);
            }
            coverage.sent = coverage.sent.split_off(&acked);
        }
    }

    /// Calls a running client with what its clock shows, and sees to whatever comes out of it.
    pub(super) fn call_client(
        &mut self,
        client: usize,
        what: impl FnOnce(&mut Core, MonoTime),
    ) -> Result<(), Violation> {
        let machine = &mut self.clients[client];
        let reading = machine.reading(self.now);
        let Some(core) = machine.core.as_mut().filter(|_| !machine.running.frozen) else { return Ok(()) };
        what(core, reading);
        if self.may_freeze && std::mem::take(&mut machine.running.freezes_next) {
            self.freeze(self.daemons.len() + client);
            return self.look_at_beliefs(client);
        }
        self.drain_client(client)
    }

    pub(super) fn drain_client(&mut self, client: usize) -> Result<(), Violation> {
        loop {
            self.drain_core(client)?;
            self.confirm_cache(client);
            self.drain_files(client)?;
            if !self.tend(client)? {
                break;
            }
        }
        self.set_client_alarm(client);
        self.look_at_beliefs(client)
    }

    fn drain_core(&mut self, client: usize) -> Result<(), Violation> {
        let machine = self.daemons.len() + client;
        loop {
            let reading = self.clients[client].reading(self.now);
            let Some(output) = self.clients[client].core.as_mut().and_then(|core| core.poll_output(reading))
            else {
                return Ok(());
            };
            match output {
                core::Output::Send { to, frame } => {
                    self.spoke(machine, to.0 as usize, frame.number, reading);
                    self.send(machine, to.0 as usize, Payload::Request(frame));
                }
                core::Output::Reconnect { to } => {
                    if let Some(id) = self.connections.current(machine, to.0 as usize) {
                        self.close_end(id, Side::Dialer)?;
                    }
                }
                core::Output::Event(event) => self.hear_client(client, event)?,
                core::Output::Revoke { from, number, volume, what } => {
                    if let Some(caching) = &mut self.clients[client].files.caching {
                        caching.cache.revoke(from, number, (volume, what));
                    }
                    let waits = self.recall_content(client, Recall { from, number }, volume, what);
                    if let Some(core) = self.clients[client].core.as_mut().filter(|_| !waits) {
                        core.dropped(from, number);
                    }
                }
            }
        }
    }

    fn set_client_alarm(&mut self, client: usize) {
        let machine = &mut self.clients[client];
        let of_locks = machine.core.as_ref().and_then(Core::poll_timeout);
        let of_files = machine.files.core.as_ref().and_then(Files::poll_timeout);
        let of_lends = machine.files.behind.as_ref().and_then(Behind::next_due);
        let of_hands = machine.files.hands.iter().filter_map(Hand::next_due).min();
        let all = [of_locks, of_files, of_lends, of_hands];
        let Some(due) = all.into_iter().flatten().min() else { return };
        let at = machine.clock.when(self.now, WallTime::from_micros(due.as_micros()));
        if machine.running.wake != Some(at) {
            machine.running.wake = Some(at);
            self.push_input(at, self.daemons.len() + client, Input::Wake);
        }
    }

    /// A client's beliefs may have changed: nobody else may hold the same locks.
    fn look_at_beliefs(&mut self, client: usize) -> Result<(), Violation> {
        for user in 0..self.clients[client].users.len() {
            if self.clients[client].belief(self.now, user).is_some()
                && let Some(lock) = self.clients[client].users[user].lock()
            {
                self.watch_holders(lock)?;
            }
        }
        Ok(())
    }

    /// What a daemon's process tells its peers of itself.
    pub(super) fn birth_of(&self, daemon: usize) -> Birth {
        self.daemons[daemon].birth(self.daemons[daemon].running.life)
    }

    fn note_reply(&mut self, daemon: usize, session: SessionId, reply: &Reply) {
        if self.trace.is_on() {
            let cell = match reply {
                Reply::Dropped { cell, .. } => Some(*cell),
                _ => None,
            };
            let machine = self
                .connections
                .get(ConnectionId(session.0))
                .map(|connection| connection.machine(Side::Dialer));
            let client = machine.and_then(|machine| self.client_on(machine));
            self.note(cell, format_args!("n{daemon} says to client {client:?} ({session:?}): {reply:?}"));
        }
    }

    pub(super) fn note(&mut self, cell: Option<ObjectId>, what: std::fmt::Arguments<'_>) {
        self.trace.line(self.now, cell, what);
    }

    pub(super) const fn is_traced(&self) -> bool {
        self.trace.is_on()
    }
}
