//! Machines: what survives their processes. A daemon's has a clock and a disk, a client's has a clock.

use std::collections::BTreeSet;

use base::{Incarnation, MonoTime, NodeId, ObjectId, Process, Random, WallTime};
use client::core::files::Files;
use client::core::{Core, Ticket};
use lease::{Algorithm, Start};
use node::file::File;
use node::{ClientId, KeptFile, Lines, Remembered, Shard, ShardConfig, ShardError};
use replication::{Memory, Replica};

use super::directory::{Birth, Closed, Directory, Opened};
use super::plan::ClusterPlan;
use super::real::medium::Failing;
use super::real::{Found, NotOpened, OpenFiles, Opening, RealDisk};
use super::world::Task;
use super::writers::FileUse;
use crate::checkers::exclusion::Owner;
use crate::clock::Clock;
use crate::{FaultKind, TrueTime};

/// What is the same for both: a process that comes and goes and may be frozen.
#[derive(Debug, Default)]
pub(super) struct Running {
    /// Counts the processes of the machine.
    pub(super) life: u64,
    pub(super) frozen: bool,
    /// It freezes when it has taken its next input in, before it has said anything about it.
    pub(super) freezes_next: bool,
    /// What a frozen process finds when it goes on.
    pub(super) inbox: Vec<Task>,
    /// When it is woken.
    pub(super) wake: Option<TrueTime>,
}

/// A daemon's machine.
#[derive(Debug)]
pub(super) struct DaemonMachine<A> {
    pub(super) id: NodeId,
    pub(super) clock: Clock,
    pub(super) shard: Option<Shard<A>>,
    /// What its process has open of the production store.
    pub(super) files: Option<OpenFiles>,
    pub(super) running: Running,
    pub(super) directory: Directory,
    /// The newest directory, while another one is in its place.
    pub(super) set_aside: Option<Directory>,
    /// The directory as it once was.
    pub(super) backup: Option<Directory>,
    /// All starts that ever were.
    pub(super) births: Vec<Birth>,
    /// Which lines of starts the present process knows.
    pub(super) lines: Lines,
    /// Until when its disk writes nothing.
    pub(super) disk_stalls_until: TrueTime,
    /// Until when its disk has no room.
    pub(super) disk_full_until: TrueTime,
    /// The files that could not be read at some start.
    pub(super) damaged_files: BTreeSet<ObjectId>,
    /// Whether it ever got back what its disk had damaged.
    pub(super) was_damaged: bool,
    /// Whether a state was ever taken over here.
    pub(super) has_taken_over: bool,
    /// Whether its last process ended before it had made good what it lacked.
    ended_mending: bool,
    /// The files of which its present process did not find all that there should be. They may have it by now, and the disk not.
    pub(super) began_damaged: BTreeSet<ObjectId>,
    /// What its disk will do next.
    pub(super) ailment: Option<Ailment>,
    /// Its store does not open any more: this node does not come back.
    pub(super) is_lost: bool,
    /// Marks that are being written, and when they are on disk for certain.
    pub(super) writing: Vec<(u64, TrueTime)>,
    /// What its clock showed when the last process ended.
    mark: WallTime,
    seeds: Random,
}

/// What a disk will do at the next opportunity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ailment {
    /// It refuses to read when a process starts.
    Reads,
    /// It refuses to write.
    Writes,
    /// It fails to sync.
    Syncs,
}

/// What came of a start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Begun {
    Running,
    /// The process ended while it opened its directory.
    Interrupted,
    Closed(Closed),
}

/// A client's machine.
#[derive(Debug)]
pub(super) struct ClientMachine {
    pub(super) clock: Clock,
    pub(super) core: Option<Core>,
    pub(super) running: Running,
    pub(super) users: Vec<User>,
    pub(super) files: FileUse,
}

/// Somebody who wants a lock now and then.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct User {
    pub(super) doing: Doing,
    /// Counts what it did, so that a late reminder means nothing.
    pub(super) step: u64,
    /// The highest token of the lock when it was asked for.
    pub(super) before: Option<node::Token>,
}

/// What a user is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Doing {
    #[default]
    Thinking,
    Wanting {
        ticket: Ticket,
        lock: usize,
    },
    Holding {
        ticket: Ticket,
        lock: usize,
    },
}

impl<A: Algorithm> DaemonMachine<A> {
    pub(super) fn new(id: NodeId, clock: Clock, mut seeds: Random, plan: &ClusterPlan) -> Self {
        Self {
            id,
            clock,
            shard: None,
            files: None,
            running: Running::default(),
            directory: Directory::empty_of(id, plan, &mut seeds),
            set_aside: None,
            backup: None,
            births: Vec::new(),
            lines: Lines::default(),
            disk_stalls_until: TrueTime::ZERO,
            disk_full_until: TrueTime::ZERO,
            damaged_files: BTreeSet::new(),
            was_damaged: false,
            has_taken_over: false,
            ended_mending: false,
            began_damaged: BTreeSet::new(),
            ailment: None,
            is_lost: false,
            writing: Vec::new(),
            mark: WallTime::ZERO,
            seeds,
        }
    }

    /// Begins a process with what is on disk. It may end after some steps of opening that.
    pub(super) fn start(
        &mut self,
        now: TrueTime,
        config: &ShardConfig,
        steps: usize,
    ) -> Result<Begun, ShardError> {
        // A directory that was moved, or put back, has another lock, and so has one on a machine that was booted.
        let is_same = self.set_aside.is_none() && self.directory.memo.is_some();
        let refuses = self.ailment.take_if(|ailment| *ailment == Ailment::Reads).is_some();
        let forgot_at = match self.directory.open(config.rules(), (refuses, steps)) {
            Ok(Opened::Whole(forgot_at)) => forgot_at,
            Ok(Opened::Interrupted) => return Ok(Begun::Interrupted),
            Err(closed) => return Ok(Begun::Closed(closed)),
        };
        let start = match self.directory.chain.last() {
            None => Start::Fresh,
            Some(_) => Start::Again,
        };
        let is_genuine = self.set_aside.is_none();
        if is_genuine && self.backup.is_none() && start == Start::Again {
            self.backup = Some(self.directory.clone());
        }
        let proves_death = is_same && self.births.last().is_some_and(|birth| birth.is_genuine);
        self.directory.begin(self.seeds.next_u64(), proves_death);
        self.births.extend(self.directory.birth(self.id, is_genuine));
        self.lines = Lines::new(config.rules());
        self.running = Running { life: self.running.life + 1, ..Running::default() };
        self.clock.raise_to(now, self.mark);
        self.mend_files(config);
        let files = self.directory.journal.begin();
        let remembered = Remembered { start, ceiling: self.directory.ceiling, forgot_at, files };
        let (reading, seed) = (self.clock.reading(now), self.seeds.next_u64());
        self.shard = Some(Shard::new(config.clone(), self.process(), remembered, reading, seed)?);
        Ok(Begun::Running)
    }

    /// The same with the production store: what must not be is the error.
    pub(super) fn start_really(
        &mut self,
        now: TrueTime,
        config: &ShardConfig,
        calls: Option<usize>,
    ) -> Result<Result<Begun, ShardError>, String> {
        let refuses = self.ailment.take_if(|ailment| *ailment == Ailment::Reads).is_some();
        let is_genuine = self.set_aside.is_none();
        if is_genuine && self.backup.is_none() && self.directory.chain.last().is_some() {
            let mut backup = self.directory.clone();
            backup.settle();
            backup.real.iter_mut().for_each(RealDisk::note_move);
            self.backup = Some(backup);
        }
        let Some(disk) = &mut self.directory.real else { return Err("has no disk".into()) };
        let is_full = now < self.disk_full_until;
        let opening = Opening { nonce: self.seeds.next_u64(), calls, refuses, is_full };
        let Found { open, kept, forgot_at, damaged } = match disk.open(config, &opening) {
            Ok(found) => found,
            Err(NotOpened::Ended) => return Ok(Ok(Begun::Interrupted)),
            Err(NotOpened::Refused(refusal)) => return Ok(Ok(Begun::Closed(Closed::Refused(refusal)))),
            Err(NotOpened::Wrong(what)) => return Err(what),
        };
        self.directory.note_opened(&open.store, forgot_at, config.rules() == node::Rules::default())?;
        let start = match open.store.start() {
            osd::store::Start::Fresh => Start::Fresh,
            osd::store::Start::Again(_) => Start::Again,
        };
        self.births.extend(self.directory.birth(self.id, is_genuine));
        self.lines = Lines::new(config.rules());
        self.running = Running { life: self.running.life + 1, ..Running::default() };
        self.clock.raise_to(now, self.mark);
        self.damaged_files.extend(damaged);
        self.files = Some(open);
        let remembered = Remembered { start, ceiling: self.directory.ceiling, forgot_at, files: kept };
        let (reading, seed) = (self.clock.reading(now), self.seeds.next_u64());
        match Shard::new(config.clone(), self.process(), remembered, reading, seed) {
            Ok(shard) => self.shard = Some(shard),
            Err(error) => return Ok(Err(error)),
        }
        Ok(Ok(Begun::Running))
    }

    /// The next write, or the next sync, fails.
    pub(super) fn arm(&mut self, kind: FaultKind) {
        if let Some(disk) = &mut self.directory.real {
            let failing = if kind == FaultKind::SyncError { Failing::Sync } else { Failing::Write };
            disk.armed = Some(failing);
            disk.medium.fail_next(Some(failing));
        }
    }

    /// Nothing fails that has not.
    pub(super) fn disarm(&mut self) {
        if let Some(disk) = &mut self.directory.real {
            disk.armed = disk.armed.filter(|_| disk.medium.failing().is_none());
            disk.medium.fail_next(None);
        }
    }

    /// Whether its disk has failed, or will, or has damaged what it did not get back yet.
    pub(super) fn is_sick(&self) -> bool {
        self.is_lost || self.ailment.is_some() || self.directory.is_sick() || self.lacks_files()
    }

    /// Whether some file lacks something here, running or not: of that there may be one copy elsewhere.
    pub(super) fn is_mending(&self) -> bool {
        let lacks = |shard: &Shard<A>| {
            let mut replicas = shard.files().filter_map(|object| shard.file(object));
            replicas.any(|replica| self.is_mended(replica))
        };
        let lacks_now = self.shard.as_ref().map_or(self.ended_mending, lacks);
        lacks_now || self.directory.is_rotten() || self.is_half_mended()
    }

    /// Whether a file is being taken over, nothing but a part of it is left, or it lacks parts.
    fn is_mended(&self, replica: &Replica<File>) -> bool {
        !matches!(replica.memory(), Memory::Clean | Memory::Forgot)
            || replica.lacks()
            || self.has_rotten_content(replica)
    }

    /// Whether something was damaged here that came back, or was taken over from another, and would be lost with the power.
    fn is_half_mended(&self) -> bool {
        let journal = &self.directory.journal;
        let owes_sync = match &self.directory.real {
            Some(real) => real.owes_sync(),
            None => journal.durable() < journal.handed_over(),
        };
        (self.was_damaged || self.has_taken_over) && owes_sync
    }

    /// Whether some file was damaged that this node does not remember again.
    fn lacks_files(&self) -> bool {
        let file = |object: &ObjectId| self.shard.as_ref().and_then(|shard| shard.file(*object));
        let is_lacking = |object| file(object).is_none_or(|replica| replica.memory() != Memory::Clean);
        self.damaged_files.iter().any(is_lacking)
    }

    /// Of files that cannot be read it is kept that they cannot.
    fn mend_files(&mut self, config: &ShardConfig) {
        for object in self.directory.journal.damaged_files() {
            let kept = KeptFile::damaged(config, self.id, object, self.directory.ceiling);
            if let Some(checkpoint) = kept.checkpoint {
                self.directory.journal.replace(object, checkpoint);
                self.damaged_files.insert(object);
                self.was_damaged = true;
            }
        }
    }

    /// Ends the process: memory is lost, what is on disk stays.
    pub(super) fn end(&mut self, now: TrueTime) {
        if self.set_aside.is_none() {
            self.ended_mending = self.is_mending();
        }
        self.mark = self.mark.max(self.clock.reading(now));
        for (mark, done) in std::mem::take(&mut self.writing) {
            if self.files.is_none() && (done <= now || self.seeds.chance(1, 2)) {
                self.directory.ceiling = self.directory.ceiling.max(mark);
            }
        }
        if let (Some(mut files), Some(disk)) = (self.files.take(), &self.directory.real) {
            if disk.medium.is_halted() {
                disk.medium.end();
            } else {
                files.end(disk, self.directory.ceiling, &mut self.seeds);
            }
        }
        self.directory.journal.end(&mut self.seeds);
        self.shard = None;
        self.running = Running { life: self.running.life, ..Running::default() };
    }

    /// Whether a clock set anew would show less than the mark on disk.
    pub(super) fn is_ahead(&self, now: TrueTime) -> bool {
        let mut clock = self.clock.clone();
        clock.raise_to(now, self.mark);
        clock.is_ahead(now)
    }

    /// The present process, or the last one.
    pub(super) fn process(&self) -> Process {
        self.births
            .last()
            .map_or(Process { node: self.id, incarnation: Incarnation(0) }, |birth| birth.process)
    }

    /// What a process of this machine tells its peers of itself.
    pub(super) fn birth(&self, life: u64) -> Birth {
        let index = usize::try_from(life).ok().and_then(|life| life.checked_sub(1));
        index.and_then(|index| self.births.get(index)).copied().expect("every life has begun")
    }

    /// Whether the process is there and not frozen.
    pub(super) const fn runs(&self) -> bool {
        self.shard.is_some() && !self.running.frozen
    }

    /// This machine's claim to a lease, as its process would state it at this instant if asked.
    pub(super) fn owner(&self, now: TrueTime, cell: ObjectId) -> Option<Owner> {
        let leases = self.shard.as_ref()?.leases();
        let reading = self.clock.reading(now);
        let until = leases.valid_until(reading, cell)?;
        Some(Owner { process: self.process(), reading, until, ended: false })
    }
}

impl ClientMachine {
    pub(super) fn new(clock: Clock, life: u64, (users, writers, hands): (usize, usize, usize)) -> Self {
        Self {
            clock,
            core: None,
            running: Running { life, ..Running::default() },
            users: vec![User::default(); users],
            files: FileUse::new(writers, hands),
        }
    }

    pub(super) fn start(&mut self, core: Core, files: Files) {
        self.running = Running { life: self.running.life + 1, ..Running::default() };
        (self.core, self.files.core) = (Some(core), Some(files));
    }

    pub(super) fn end(&mut self) {
        self.core = None;
        self.files.end();
        self.running = Running { life: self.running.life, ..Running::default() };
        for user in &mut self.users {
            *user = User { doing: Doing::Thinking, step: user.step + 1, before: None };
        }
    }

    pub(super) fn reading(&self, now: TrueTime) -> MonoTime {
        MonoTime::from_micros(self.clock.reading(now).as_micros())
    }

    /// What the process calls itself.
    pub(super) fn id(&self, machine: usize) -> ClientId {
        ClientId { certificate: machine as u64, program: self.running.life }
    }

    /// The token by which a user believes at this instant to hold the lock.
    pub(super) fn belief(&self, now: TrueTime, user: usize) -> Option<(Ticket, node::Token)> {
        let Doing::Holding { ticket, .. } = self.users[user].doing else { return None };
        let token = self.core.as_ref()?.token(self.reading(now), ticket)?;
        Some((ticket, token))
    }

    pub(super) fn user_of(&self, ticket: Ticket) -> Option<usize> {
        self.users.iter().position(|user| user.ticket() == Some(ticket))
    }
}

impl User {
    pub(super) const fn ticket(self) -> Option<Ticket> {
        match self.doing {
            Doing::Thinking => None,
            Doing::Wanting { ticket, .. } | Doing::Holding { ticket, .. } => Some(ticket),
        }
    }

    pub(super) const fn lock(self) -> Option<usize> {
        match self.doing {
            Doing::Thinking => None,
            Doing::Wanting { lock, .. } | Doing::Holding { lock, .. } => Some(lock),
        }
    }
}
