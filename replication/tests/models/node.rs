//! A replica with its disk: what is written, what is synced, and what waits for that.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use base::{Epoch, Members, NodeId, Span, ViewId, WallTime};
use replication::{
    Checkpoint, Config, Event, Io, Mark, Message, Output, Position, Record, Replica, Standing, Tenure,
    Ticket, When,
};

use crate::milestone::Milestone;
use crate::setup::Setup;
use crate::tiny::{self, Tiny};

/// The time of all that happens.
pub(crate) const NOW: WallTime = WallTime::from_micros(1_000_000);

/// A node that runs; one that ended has started again in the same step, as messages to it may be lost anyway.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) replica: Replica<Tiny>,
    /// What is synced.
    pub(crate) image: Arc<Checkpoint<Tiny>>,
    /// What is not, in order: the first of them are written.
    records: Vec<Record<Tiny>>,
    written: usize,
    waiting: Vec<Waiting>,
    /// What has to be added to the name of a write to get how many records there are with it.
    offset: i64,
    /// The highest epoch that it ever used or promised.
    ceiling: u64,
    forgot_at: Option<u64>,
    /// The number of its tenure, if it has one.
    pub(crate) tenure: u64,
}

/// A message that waits for the disk.
#[derive(Clone, Debug)]
struct Waiting {
    /// For so many records.
    records: usize,
    /// To be synced, not only written.
    durable: bool,
    flying: Flying,
}

/// A message that leaves.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Flying {
    pub(crate) to: u8,
    pub(crate) view: ViewId,
    pub(crate) message: Message<Tiny>,
}

/// What happens to one node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Input {
    /// A message arrives.
    Deliver(u32),
    /// It gets the lease for the tenure of this number.
    Lead(u8),
    Propose(u8),
    /// An operation that was acknowledged with this mark is to be made durable.
    SyncOp(u8, Told),
    /// Its disk writes what is to be written.
    Write,
    /// Its disk syncs.
    Sync,
    /// Its timers are served.
    Retry,
    /// The same after so long that nobody's answer is waited for in vain.
    Patience,
    /// Its process ends and starts again.
    Kill,
    /// Its power fails and comes back.
    Power,
    /// The first part of its state is damaged.
    Rot,
    Admit(u8),
    Dismiss(u8),
}

/// That an operation has taken effect, as it was told: in which tenure, where, and in which loss generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Told {
    pub(crate) tenure: u8,
    pub(crate) epoch: u8,
    pub(crate) epoch_node: u8,
    pub(crate) seq: u8,
    pub(crate) generation: u8,
    pub(crate) generation_node: u8,
}

/// What came of a step beside the node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    pub(crate) sent: Vec<Flying>,
    pub(crate) done: Vec<(u8, Told)>,
    pub(crate) durable: Vec<u8>,
    pub(crate) milestones: u64,
}

impl Told {
    fn new(tenure: u64, mark: Mark) -> Self {
        Self {
            tenure: small(tenure),
            epoch: small(mark.at.epoch.number),
            epoch_node: small(mark.at.epoch.node.0.into()),
            seq: small(mark.at.seq.0),
            generation: small(mark.generation.number),
            generation_node: small(mark.generation.node.0.into()),
        }
    }

    /// What names the operation to whoever makes it durable.
    pub(crate) fn mark(self) -> Mark {
        let epoch = |number: u8, node: u8| Epoch { number: number.into(), node: NodeId(node.into()) };
        let at = Position { epoch: epoch(self.epoch, self.epoch_node), seq: base::Seq(self.seq.into()) };
        Mark { at, generation: epoch(self.generation, self.generation_node) }
    }
}

impl Hash for Node {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.replica, &self.image, self.written, self.ceiling, self.forgot_at, self.tenure).hash(state);
        self.records.len().hash(state);
        // Few nodes have any of these at a time.
        for record in &self.records {
            format!("{record:?}").hash(state);
        }
        for waiting in &self.waiting {
            format!("{waiting:?}").hash(state);
        }
    }
}

impl Node {
    pub(crate) fn first(setup: &Setup, config: &Arc<Config>, node: u8) -> Self {
        let members = Members::new((0..setup.members).map(id)).expect("models name each member once");
        let config = Arc::clone(config);
        let image = if node < setup.members {
            Checkpoint::first(members, Tiny::default())
        } else {
            Replica::empty(id(node), Arc::clone(&config), Tiny::default(), None).checkpoint()
        };
        let replica = Replica::new(id(node), config, image.clone(), [], None).expect("nothing is sound");
        Self {
            replica,
            image: Arc::new(image),
            records: Vec::new(),
            written: 0,
            waiting: Vec::new(),
            offset: 0,
            ceiling: 0,
            forgot_at: None,
            tenure: 0,
        }
    }

    pub(crate) fn is_candidate(&self) -> bool {
        self.replica.standing() == Standing::Recovering && self.replica.tail().epoch.number != self.tenure
    }

    /// How much would be lost if the process ended now.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.written < self.records.len()
    }

    /// How much would be lost if the power failed now.
    pub(crate) fn has_unsynced(&self) -> bool {
        !self.records.is_empty() || !self.waiting.is_empty()
    }

    /// Whom it would follow after a start.
    pub(crate) fn promised_on_disk(&self, config: &Arc<Config>) -> u64 {
        if self.has_unwritten() {
            let written = self.records[..self.written].iter().cloned();
            let image = Checkpoint::clone(&self.image);
            let me = NodeId(0);
            let restarted = Replica::new(me, Arc::clone(config), image, written, self.forgot_at);
            return restarted.map_or(0, |replica| replica.promised().number);
        }
        self.replica.promised().number
    }

    /// Tells the replica what happens. A command that it refuses changes nothing.
    pub(crate) fn tell(&mut self, config: &Arc<Config>, me: u8, input: Input) {
        match input {
            Input::Lead(number) => {
                let epoch = Epoch { number: number.into(), node: id(me) };
                let until = NOW + Span::from_secs(1_000);
                let tenure = Tenure { epoch, lease: 0, until, creates: true, begun_after: 0 };
                if self.replica.lead(NOW, tenure).is_ok() {
                    self.tenure = number.into();
                    self.ceiling = self.ceiling.max(number.into());
                }
            }
            Input::Propose(op) => drop(self.replica.propose(NOW, tiny::request(op), op)),
            Input::SyncOp(op, told) => {
                let mark = told.mark();
                let _ = self.replica.sync(NOW, Ticket(op.into()), (mark, mark));
            }
            Input::Retry => self.replica.handle_timeout(NOW),
            Input::Patience => self.replica.handle_timeout(NOW + config.all_forgot_after),
            Input::Kill => {
                self.records.truncate(self.written);
                self.start(config, me);
            }
            Input::Power => {
                self.forgot_at = Some(self.ceiling);
                self.records.clear();
                self.start(config, me);
            }
            Input::Rot => {
                let found = replication::Machine::version(self.replica.machine(), &0);
                self.replica.damage(NOW, found.map(|at| (0, at)));
            }
            Input::Admit(node) => drop(self.replica.admit(NOW, id(node))),
            Input::Dismiss(node) => drop(self.replica.dismiss(NOW, id(node))),
            Input::Deliver(_) | Input::Write | Input::Sync => {}
        }
    }

    fn start(&mut self, config: &Arc<Config>, me: u8) {
        let (image, journal) = (Checkpoint::clone(&self.image), self.records.iter().cloned());
        self.replica = Replica::new(id(me), Arc::clone(config), image, journal, self.forgot_at)
            .expect("a replica starts with what it has written");
        (self.written, self.offset) = (self.records.len(), self.records.len().try_into().unwrap_or(0));
        self.waiting.clear();
    }

    /// Does what the replica wants done, until there is nothing more.
    pub(crate) fn drain(&mut self, setup: &Setup, config: &Arc<Config>, me: u8, input: Input) -> Work {
        let mut work = Work::default();
        let writes = !setup.slow.contains(&me) || matches!(input, Input::Write | Input::Sync);
        let syncs = setup.powers_max == 0 || input == Input::Sync;
        loop {
            let own = self.drain_outputs(config, me, &mut work);
            if writes {
                self.written = self.records.len();
            }
            if syncs {
                self.sync(config, me);
            }
            let own = own.into_iter().chain(self.let_go(me, syncs, &mut work));
            let mut is_quiet = true;
            for Flying { view, message, .. } in own.collect::<Vec<_>>() {
                self.replica.handle_message(NOW, id(me), view, message);
                is_quiet = false;
            }
            if is_quiet {
                break;
            }
        }
        // They go into a set in the end.
        self.waiting.sort_by_cached_key(|waiting| format!("{waiting:?}"));
        self.ceiling = self.ceiling.max(self.replica.promised().number);
        if matches!(self.replica.standing(), Standing::Backup | Standing::Retired) {
            self.tenure = 0;
        }
        work
    }

    /// Returns the messages to itself that wait for nothing.
    fn drain_outputs(&mut self, config: &Arc<Config>, me: u8, work: &mut Work) -> Vec<Flying> {
        let mut own = Vec::new();
        while let Some(output) = self.replica.poll_output() {
            work.milestones |= Milestone::of_output(&output);
            match output {
                Output::Journal { record, .. } => self.records.push(record),
                Output::Send { to, view, message, when } => {
                    let to = index(to);
                    let flying = Flying { to, view, message };
                    match when {
                        When::Now if to == me => own.push(flying),
                        When::Now => work.sent.push(flying),
                        When::Written(io) => self.wait(io, false, flying),
                        When::Durable(io) => self.wait(io, true, flying),
                    }
                }
                Output::Done { request, mark, .. } => {
                    let op = small(request.client.program);
                    work.done.push((op, Told::new(self.tenure, mark)));
                }
                Output::Durable { ticket, .. } => work.durable.push(small(ticket.0)),
                Output::Event(Event::Forgotten) => self.forget(config, me),
                Output::Answer { .. } | Output::Unknown(_) | Output::Event(_) => {}
            }
        }
        own
    }

    /// All of the object goes.
    fn forget(&mut self, config: &Arc<Config>, me: u8) {
        let empty = Replica::empty(id(me), Arc::clone(config), Tiny::default(), self.forgot_at);
        self.image = Arc::new(empty.checkpoint());
        self.records.clear();
        self.start(config, me);
    }

    fn wait(&mut self, io: Io, durable: bool, flying: Flying) {
        let records = usize::try_from(i64::try_from(io.0).unwrap_or(0) + self.offset).unwrap_or(0);
        // What waits already is not said twice: any message may be lost or come twice anyway.
        if !self.waiting.iter().any(|other| other.durable == durable && other.flying == flying) {
            self.waiting.push(Waiting { records, durable, flying });
        }
    }

    /// All that is written is synced.
    fn sync(&mut self, config: &Arc<Config>, me: u8) {
        if self.written == 0 {
            return;
        }
        let synced = self.records.drain(..self.written);
        let image = Checkpoint::clone(&self.image);
        let replica = Replica::new(id(me), Arc::clone(config), image, synced, None);
        self.image = Arc::new(replica.expect("a replica wrote this").checkpoint());
        if self.records.is_empty() {
            // The image is what is here.
            self.replica.handle_kept(self.replica.mended());
        }
        self.offset -= i64::try_from(self.written).unwrap_or(0);
        for waiting in &mut self.waiting {
            waiting.records = waiting.records.saturating_sub(self.written);
        }
        self.written = 0;
    }

    /// What has waited long enough leaves. Returns what goes to the node itself.
    fn let_go(&mut self, me: u8, syncs: bool, work: &mut Work) -> Vec<Flying> {
        let written = self.written;
        let is_ready = |waiting: &Waiting| {
            if waiting.durable { syncs && waiting.records == 0 } else { waiting.records <= written }
        };
        let (ready, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.waiting).into_iter().partition(is_ready);
        self.waiting = waiting;
        let ready = ready.into_iter().map(|waiting| waiting.flying);
        let (own, sent): (Vec<_>, Vec<_>) = ready.partition(|flying| flying.to == me);
        work.sent.extend(sent);
        own
    }
}

/// The name of the node at a place; 0 is nobody's.
pub(crate) fn id(node: u8) -> NodeId {
    NodeId(u32::from(node) + 1)
}

pub(crate) fn index(id: NodeId) -> u8 {
    u8::try_from(id.0 - 1).expect("models have few nodes")
}

pub(crate) fn small(number: u64) -> u8 {
    u8::try_from(number).expect("models are small")
}
