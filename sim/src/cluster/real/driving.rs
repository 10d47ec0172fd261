//! A process and its production store: what the daemon's threads do, as events.
//!
//! Each operation of the disk happens at one instant, and is told of later. A process may end in the middle of it, and the power may
//! fail then.

use base::ObjectId;
use lease::Algorithm;
use node::FetchId;
use node::file::{File, Stored};
use osd::store::PeerRefusal;
use osd::store::WriteError;
use osd::store::checkpoints::Next;
use osd::store::contents::PutError;
use osd::store::journal::JournalError;
use osd::store::writer::{DiskDone, Job};
use replication::Record;
use wire::FileRecord;

use super::medium::Failing;
use super::{OpenFiles, Putting, RealDisk, Syncing};
use crate::checkers::stores;
use crate::cluster::directory::Birth;
use crate::cluster::files::DiskInput;
use crate::cluster::world::{Input, Task, World};
use crate::{FaultKind, Violation};

/// A sync, and a checkpoint, takes up to so many times as long as a write.
const LONG: u64 = 3;
/// A process ends in one of so many calls at the latest, if it does.
const CALLS: usize = 12;
/// How long after finding the disk full the small files are tried again.
const FULL_RETRY: base::Span = base::Span::from_secs(1);

/// Something that the production store does.
#[derive(Clone, Debug)]
pub(in crate::cluster) enum StoreStep {
    /// What waits is written.
    Turn,
    /// A sync has ended.
    Synced,
    /// A segment is made, and was.
    Make(u32),
    Made,
    /// A checkpoint goes to the disk, and was put there.
    Put,
    PutDone,
    /// Content is read.
    Fetch(FetchId, Vec<Stored>),
}

impl<A: Algorithm> World<'_, A> {
    /// Whether daemons have the production store.
    pub(in crate::cluster) const fn is_real(&self) -> bool {
        self.plan.store.is_some()
    }

    /// What a process has open, unless it has failed.
    fn open_files(&mut self, daemon: usize) -> Option<(&mut OpenFiles, &mut RealDisk)> {
        let machine = &mut self.daemons[daemon];
        let files = machine.files.as_mut().filter(|files| !files.has_failed)?;
        Some((files, machine.directory.real.as_mut()?))
    }

    fn push_step(&mut self, daemon: usize, times: u64, step: StoreStep) {
        let at = self.disk_free(daemon) + self.disk_takes(times);
        self.push_input(at, daemon, Input::Disk(DiskInput::Store(step)));
    }

    fn push_turn(&mut self, daemon: usize) {
        let Some((files, _)) = self.open_files(daemon) else { return };
        if !std::mem::replace(&mut files.turn_is_due, true) {
            self.push_step(daemon, 1, StoreStep::Turn);
        }
    }

    /// A record for the journal.
    pub(in crate::cluster) fn write_really(
        &mut self,
        daemon: usize,
        (number, object): (u64, ObjectId),
        record: Record<File>,
    ) -> Result<(), Violation> {
        let reading = self.daemons[daemon].clock.reading(self.now);
        let is_owed = self.owes_checkpoint(daemon, object);
        let Some((files, _)) = self.open_files(daemon) else { return Ok(()) };
        files.checkpoints.note_write(reading, (number, object), &record, is_owed);
        self.job(daemon, Job::Append(number, FileRecord { object, record }))
    }

    pub(in crate::cluster) fn sync_really(&mut self, daemon: usize) -> Result<(), Violation> {
        self.job(daemon, Job::Sync)
    }

    pub(in crate::cluster) fn fetch_really(&mut self, daemon: usize, fetch: FetchId, stored: Vec<Stored>) {
        self.push_step(daemon, 1, StoreStep::Fetch(fetch, stored));
    }

    fn job(&mut self, daemon: usize, job: Job) -> Result<(), Violation> {
        let Some((files, _)) = self.open_files(daemon) else { return Ok(()) };
        let taken = files.writer.take(job);
        self.push_turn(daemon);
        taken.or_else(|error| self.fail_store(daemon, &error))
    }

    /// A process may end in the middle of what it does now.
    fn prepare(&mut self, daemon: usize) {
        let deadly = self.plan.store.as_ref().map_or(0, |plan| plan.deadly);
        let is_deadly = !self.is_calm && self.dice.disks.chance(deadly, 1_000);
        let calls = self.dice.disks.index(CALLS);
        let is_full = self.now < self.daemons[daemon].disk_full_until;
        if let Some((_, disk)) = self.open_files(daemon) {
            disk.medium.set_full(is_full);
            if is_deadly {
                disk.medium.halt_after(calls);
            }
        }
    }

    /// It has not, or it ends. False if there is no process any more.
    fn survives(&mut self, daemon: usize) -> bool {
        let Some((_, disk)) = self.open_files(daemon) else { return false };
        if !disk.medium.is_halted() {
            disk.medium.go_on();
            return true;
        }
        self.note(None, format_args!("n{daemon} ends in the middle of a write"));
        let may_cut = self.plan.faults.has(FaultKind::PowerCut) && self.survives_power_cuts();
        if may_cut && self.dice.faults.chance(1, 2) {
            self.cut_power(&[daemon], FaultKind::PowerCut);
        } else {
            self.crash_some_daemon(daemon);
        }
        false
    }

    pub(in crate::cluster) fn step_store(&mut self, daemon: usize, step: StoreStep) -> Result<(), Violation> {
        if self.open_files(daemon).is_none() {
            return Ok(());
        }
        self.prepare(daemon);
        match step {
            StoreStep::Turn => self.turn(daemon),
            StoreStep::Synced => {
                let Some((files, _)) = self.open_files(daemon) else { return Ok(()) };
                let synced = match files.syncing.take() {
                    Some(Syncing::Waiting(sync)) => sync.run(),
                    Some(Syncing::Done(done)) => done,
                    None => return Ok(()),
                };
                if self.survives(daemon) { self.job(daemon, Job::Synced(synced)) } else { Ok(()) }
            }
            StoreStep::Make(slot) => {
                let Some((files, _)) = self.open_files(daemon) else { return Ok(()) };
                let made = files.writer.segments().make(slot);
                files.made = Some(made);
                if self.survives(daemon) {
                    self.push_step(daemon, LONG, StoreStep::Made);
                }
                Ok(())
            }
            StoreStep::Made => {
                let Some((files, _)) = self.open_files(daemon) else { return Ok(()) };
                let Some(made) = files.made.take() else { return Ok(()) };
                self.job(daemon, Job::Made(made))
            }
            StoreStep::Put => self.put(daemon),
            StoreStep::PutDone => self.end_put(daemon),
            StoreStep::Fetch(fetch, stored) => self.fetch(daemon, fetch, &stored),
        }
    }

    /// Writes what waits, and begins whatever is to be begun.
    fn turn(&mut self, daemon: usize) -> Result<(), Violation> {
        let Some((files, _)) = self.open_files(daemon) else { return Ok(()) };
        files.turn_is_due = false;
        let written = files.writer.write();
        let mut done = Vec::new();
        while let Some(one) = files.writer.poll_done() {
            done.push(one);
        }
        let (sync, segment) = (files.writer.poll_sync(), files.writer.poll_segment());
        if !self.survives(daemon) {
            return Ok(());
        }
        if let Err(error) = written {
            return self.fail_store(daemon, &error);
        }
        if let Some(sync) = sync {
            // What is written meanwhile may be on the disk afterwards, or not.
            let is_first = self.dice.disks.chance(1, 2);
            let syncing = if is_first { Syncing::Done(sync.run()) } else { Syncing::Waiting(sync) };
            let has_failed = matches!(syncing, Syncing::Done(Err(_)));
            if let Some((files, _)) = self.open_files(daemon) {
                files.syncing = Some(syncing);
            }
            self.push_step(daemon, LONG, StoreStep::Synced);
            if has_failed && self.dice.faults.chance(1, 2) {
                // The process ends before it hears of that.
                let life = self.daemons[daemon].running.life;
                self.queue.push(self.now, Task::Betray(daemon, life));
            }
        }
        if let Some((_, slot)) = segment {
            self.push_step(daemon, LONG, StoreStep::Make(slot));
        }
        done.into_iter().try_for_each(|done| self.tell_done(daemon, done))
    }

    /// Tells the shard what the journal has done, and goes on with a checkpoint.
    fn tell_done(&mut self, daemon: usize, done: DiskDone) -> Result<(), Violation> {
        let Some((files, disk)) = self.open_files(daemon) else { return Ok(()) };
        let before = files.before;
        match done {
            DiskDone::Written(number) => {
                disk.note_progress(before + number, false);
                self.call(daemon, |shard, now| shard.handle_written(now, number))
            }
            DiskDone::Durable(number) => {
                disk.note_progress(before + number, true);
                let next = files.checkpoints.handle_durable(number);
                if self.is_genuine(daemon) {
                    self.checkers.durability.sync(self.now, self.daemons[daemon].id, number);
                }
                self.go_on(daemon, next)?;
                self.call(daemon, |shard, now| shard.handle_durable(now, number))
            }
            DiskDone::Used(used, bytes_max) if used > bytes_max / 2 => self.begin_checkpoint(daemon),
            DiskDone::Used(..) => Ok(()),
            DiskDone::Failed(error) => self.fail_store(daemon, &error),
        }
    }

    /// Makes a checkpoint if it is time.
    pub(in crate::cluster) fn look_at_checkpoint(&mut self, daemon: usize) -> Result<(), Violation> {
        let reading = self.daemons[daemon].clock.reading(self.now);
        let is_due = self.open_files(daemon).is_some_and(|(files, _)| files.checkpoints.is_due(reading));
        if is_due { self.begin_checkpoint(daemon) } else { Ok(()) }
    }

    fn begin_checkpoint(&mut self, daemon: usize) -> Result<(), Violation> {
        let machine = &mut self.daemons[daemon];
        let (Some(files), Some(shard)) = (machine.files.as_mut(), machine.shard.as_mut()) else {
            return Ok(());
        };
        let next = files.checkpoints.begin(shard);
        self.go_on(daemon, next)
    }

    fn go_on(&mut self, daemon: usize, next: Option<Next>) -> Result<(), Violation> {
        match next {
            None => Ok(()),
            Some(Next::Sync(number)) => self.job(daemon, Job::SyncUpto(number)),
            Some(Next::Free(place)) => self.job(daemon, Job::Free(place)),
            Some(Next::Put(taken, place)) => {
                if let Some((files, _)) = self.open_files(daemon) {
                    files.putting = Some(Putting::Waiting(taken, place));
                }
                self.push_step(daemon, LONG, StoreStep::Put);
                Ok(())
            }
        }
    }

    fn put(&mut self, daemon: usize) -> Result<(), Violation> {
        let Some((files, _)) = self.open_files(daemon) else { return Ok(()) };
        let Some(Putting::Waiting(taken, place)) = files.putting.take() else { return Ok(()) };
        files.putting = Some(Putting::Done(files.contents.put(taken, place)));
        if self.survives(daemon) {
            self.push_step(daemon, LONG, StoreStep::PutDone);
        }
        Ok(())
    }

    fn end_put(&mut self, daemon: usize) -> Result<(), Violation> {
        let machine = &mut self.daemons[daemon];
        let reading = machine.clock.reading(self.now);
        let (Some(files), Some(shard)) = (machine.files.as_mut(), machine.shard.as_mut()) else {
            return Ok(());
        };
        let Some(Putting::Done(put)) = files.putting.take() else { return Ok(()) };
        let unreadable = match &put {
            Err(PutError::Unreadable { what, .. }) => Some(Err(what.clone())),
            _ => None,
        };
        let put = files.checkpoints.handle_put(shard, reading, put);
        if let Some(unreadable) = unreadable {
            self.check_read(daemon, &[], &unreadable)?;
        }
        match put {
            Ok(next) => {
                self.go_on(daemon, next)?;
                self.drain_daemon(daemon)
            }
            Err(error) => self.fail_store(daemon, &error),
        }
    }

    fn fetch(&mut self, daemon: usize, fetch: FetchId, stored: &[Stored]) -> Result<(), Violation> {
        let Some((files, _)) = self.open_files(daemon) else { return Ok(()) };
        let fetched = files.contents.read(stored);
        self.check_read(daemon, stored, &fetched)?;
        if !self.survives(daemon) {
            return Ok(());
        }
        self.call(daemon, |shard, _| shard.handle_fetched(fetch, fetched))
    }

    /// Damage is never let out, and nothing else is taken for damaged.
    pub(in crate::cluster) fn check_read(
        &mut self,
        daemon: usize,
        stored: &[Stored],
        read: &Result<Vec<bytes::Bytes>, node::Unreadable>,
    ) -> Result<(), Violation> {
        let Some((_, disk)) = self.open_files(daemon) else { return Ok(()) };
        disk.check_read(stored, read).map_err(|what| self.wrong_store(daemon, &what))
    }

    /// The store of a daemon cannot go on.
    pub(in crate::cluster) fn fail_store(
        &mut self,
        daemon: usize,
        error: &dyn std::fmt::Display,
    ) -> Result<(), Violation> {
        let Some((files, disk)) = self.open_files(daemon) else { return Ok(()) };
        if disk.medium.is_halted() {
            self.survives(daemon);
            return Ok(());
        }
        files.has_failed = true;
        files.writer.fail();
        if !disk.medium.has_refused() {
            let what = format!("gives its store up, of which the disk has refused nothing: {error}");
            return Err(self.wrong_store(daemon, &what));
        }
        let kind = match disk.armed.take() {
            Some(Failing::Sync) => FaultKind::SyncError,
            _ => FaultKind::WriteError,
        };
        self.summary.faults.count(kind);
        self.note(None, format_args!("the store of n{daemon} fails: {error}"));
        self.mishap(
            daemon,
            if kind == FaultKind::SyncError { "a sync fails" } else { "the disk refuses to write" },
        );
        self.push_input(self.now, daemon, Input::Disk(DiskInput::Failed));
        Ok(())
    }

    /// A store that has failed says so on its disk, if that still takes it.
    pub(in crate::cluster) fn mark_failed(&mut self, daemon: usize) {
        if let Some(files) = self.daemons[daemon].files.as_mut() {
            // It is in the memo, too.
            let _ = files.store.note_failed();
        }
    }

    /// The epoch ceiling goes to the disk. False if the disk has no room, or it has failed.
    pub(in crate::cluster) fn raise_ceiling(&mut self, daemon: usize, mark: u64) -> Result<bool, Violation> {
        let is_full = self.now < self.daemons[daemon].disk_full_until;
        let Some((files, disk)) = self.open_files(daemon) else { return Ok(false) };
        disk.medium.set_full(is_full);
        match files.store.raise_ceiling(mark) {
            Ok(()) => {
                let ceiling = files.store.epoch_ceiling();
                self.daemons[daemon].directory.ceiling = ceiling;
                Ok(true)
            }
            Err(WriteError::Full { .. }) => {
                self.push_input(self.now + FULL_RETRY, daemon, Input::Written(mark));
                Ok(false)
            }
            Err(error) => self.fail_store(daemon, &error).map(|()| false),
        }
    }

    /// A start of a peer is noted on the disk. False if it is not.
    pub(in crate::cluster) fn admit_really(
        &mut self,
        daemon: usize,
        told: &Birth,
    ) -> Result<bool, Violation> {
        let is_full = self.now < self.daemons[daemon].disk_full_until;
        let Some((files, disk)) = self.open_files(daemon) else { return Ok(false) };
        disk.medium.set_full(is_full);
        match files.store.admit_peer(told.process.node, told.met) {
            Ok(()) => Ok(true),
            Err(PeerRefusal::Write(WriteError::Full { .. })) => Ok(false),
            Err(PeerRefusal::Write(error)) => self.fail_store(daemon, &error).map(|()| false),
            // Only a planted bug lets in whom the store does not.
            Err(_) if self.plan.shard.rules() != node::Rules::default() => Ok(true),
            Err(refusal) => {
                Err(self.wrong_store(daemon, &format!("lets in whom its store refuses: {refusal}")))
            }
        }
    }

    pub(in crate::cluster) fn wrong_store(&self, daemon: usize, what: &str) -> Violation {
        stores::wrong(self.now, self.daemons[daemon].id, what, self.mishaps_of(daemon))
    }
}

impl OpenFiles {
    /// The process ends: what was on its way to the disk may get there.
    pub(in crate::cluster) fn end(&mut self, disk: &RealDisk, ceiling: u64, random: &mut base::Random) {
        if !self.has_failed && random.chance(1, 2) {
            disk.medium.halt_after(random.index(3));
            let _: Result<(), JournalError> = self.writer.write();
        }
        if !self.has_failed && random.chance(1, 2) {
            // Somebody may have wanted a little more.
            let _ = self.store.raise_ceiling(ceiling + 1);
        }
        disk.medium.end();
    }
}
