//! What daemons and clients do about files: their messages, the journals of the daemons, and what checkers are told.

use base::{ClientId, MonoTime, ObjectId, Span};
use client::core::files::{FileOutput, Files};
use lease::Algorithm;
use node::file::{File, FileBody, FileReply, FileReplyBody, FileRequest, Level, Mark};
use node::{DiskSpace, FileMessage, RequestId, SessionId};
use replication::{Body, Checkpoint, Record, Replica};

use super::real::driving::StoreStep;
use super::streams::{ConnectionId, Payload};
use super::volumes::volume_of;
use super::world::{Input, Task, World};
use crate::plan::{around, span_between};
use crate::{FaultKind, TrueTime, Violation};

/// A sync takes up to so many times as long as a write.
const SYNC_TAKES: u64 = 3;

/// What a client has asked about a file, over some connection.
pub(super) type Asked = (SessionId, RequestId);

/// What it asked, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question {
    pub(super) object: ObjectId,
    pub(super) client: ClientId,
    /// What it wanted synced.
    pub(super) marks: Option<(Mark, Mark)>,
    pub(super) asked: TrueTime,
}

/// Something about files that happens to a daemon's process.
#[derive(Clone, Debug)]
pub(super) enum DiskInput {
    /// The journal has the records up to this one.
    Written(u64),
    /// They would survive a power cut.
    Durable(u64),
    /// The disk has refused to write, or failed to sync.
    Failed,
    /// The production store does something.
    Store(StoreStep),
    /// An operator looks at a file whose recovery waits for somebody.
    Operator(ObjectId),
    /// It is time for a checkpoint.
    Checkpoint,
    /// It is time to look how much space there is.
    Space,
    /// Something of a file came back that was damaged.
    Mended(ObjectId),
    /// A checkpoint is on disk, of when so many records had been handed over, and so much was mended.
    Kept(ObjectId, (u64, u32), Box<Checkpoint<File>>),
}

impl<A: Algorithm> World<'_, A> {
    /// A daemon has started.
    pub(super) fn begin_files(&mut self, daemon: usize) -> Result<(), Violation> {
        let at = self.now + around(self.plan.files.checkpoint_every, &mut self.dice.disks);
        self.push_input(at, daemon, Input::Disk(DiskInput::Checkpoint));
        if self.now < self.daemons[daemon].disk_full_until {
            self.push_input(self.now, daemon, Input::Disk(DiskInput::Space));
        }
        self.watch_beginning(daemon);
        let machine = &self.daemons[daemon];
        self.checkers.entries.forget(machine.id);
        self.committed.retain(|&(node, _), _| node != daemon);
        let Some(shard) = machine.shard.as_ref().filter(|_| machine.set_aside.is_none()) else {
            return Ok(());
        };
        for object in shard.files() {
            if let Some(replica) = shard.file(object).filter(|replica| replica.is_whole()) {
                self.checkers.entries.begin(self.now, (machine.id, object), replica)?;
            }
        }
        let owed = shard.files().filter(|&object| shard.owes_checkpoint(object));
        let owed: Vec<ObjectId> = owed.filter(|_| !self.is_real()).collect();
        for object in owed {
            self.push_input(self.now, daemon, Input::Disk(DiskInput::Mended(object)));
        }
        Ok(())
    }

    /// Whether something is back that the next start would find damaged again.
    pub(super) fn owes_checkpoint(&self, daemon: usize, object: ObjectId) -> bool {
        self.daemons[daemon].shard.as_ref().is_some_and(|shard| shard.owes_checkpoint(object))
    }

    /// A daemon ends: which limits its replicas have reached is counted.
    pub(super) fn count_limits(&mut self, daemon: usize) {
        let Some(shard) = &self.daemons[daemon].shard else { return };
        let replicas = shard.files().filter_map(|object| shard.file(object));
        replicas.for_each(|replica| self.summary.limits.add(replica.reached()));
    }

    pub(super) fn hear_disk(&mut self, daemon: usize, input: DiskInput) -> Result<(), Violation> {
        if let DiskInput::Store(step) = input {
            return self.step_store(daemon, step);
        }
        let directory = &mut self.daemons[daemon].directory;
        let journal = &mut directory.journal;
        match input {
            DiskInput::Written(number) => {
                journal.note_written(number);
                directory.note_progress();
                self.call(daemon, |shard, now| shard.handle_written(now, number))
            }
            DiskInput::Durable(number) => {
                let is_true = journal.note_durable(number);
                directory.note_progress();
                self.check_durable(daemon, is_true)?;
                if self.is_genuine(daemon) {
                    self.checkers.durability.sync(self.now, self.daemons[daemon].id, number);
                }
                self.call(daemon, |shard, now| {
                    shard.handle_durable(now, number);
                    // It keeps records as they are, and content nowhere else.
                    shard.handle_placed(number);
                })
            }
            DiskInput::Failed => self.call(daemon, |shard, _| shard.handle_store_failed()),
            DiskInput::Operator(object) => self.operator_looks(daemon, object),
            DiskInput::Checkpoint => self.take_checkpoint(daemon),
            DiskInput::Space => self.look_at_space(daemon),
            DiskInput::Store(_) => Ok(()),
            DiskInput::Mended(object) => {
                if self.is_real() {
                    return self.look_at_checkpoint(daemon);
                }
                self.checkpoint_file(daemon, object);
                Ok(())
            }
            DiskInput::Kept(object, (handed_over, mended), checkpoint) => {
                journal.keep(object, handed_over, *checkpoint);
                self.call(daemon, |shard, _| shard.handle_kept(object, mended))
            }
        }
    }

    /// A daemon looks how much space there is, and does so again when there is some.
    pub(super) fn look_at_space(&mut self, daemon: usize) -> Result<(), Violation> {
        let full_until = self.daemons[daemon].disk_full_until;
        let is_full = self.now < full_until;
        if is_full {
            self.push_input(full_until, daemon, Input::Disk(DiskInput::Space));
        }
        // Nobody can tell which.
        let is_spent = full_until.as_micros().is_multiple_of(2);
        let space = match is_full {
            false => DiskSpace::Enough,
            true if is_spent => DiskSpace::Spent,
            true => DiskSpace::Little,
        };
        self.call(daemon, |shard, _| shard.handle_space(space))
    }

    fn take_checkpoint(&mut self, daemon: usize) -> Result<(), Violation> {
        let next = self.now + around(self.plan.files.checkpoint_every, &mut self.dice.disks);
        self.push_input(next, daemon, Input::Disk(DiskInput::Checkpoint));
        if self.is_real() {
            return self.look_at_checkpoint(daemon);
        }
        self.checkpoint_some_file(daemon);
        Ok(())
    }

    fn checkpoint_some_file(&mut self, daemon: usize) {
        let machine = &self.daemons[daemon];
        let Some(shard) = &machine.shard else { return };
        let objects: Vec<ObjectId> = shard.files().collect();
        let Some(&object) = self.dice.disks.pick(&objects) else { return };
        self.checkpoint_file(daemon, object);
    }

    fn checkpoint_file(&mut self, daemon: usize, object: ObjectId) {
        let machine = &self.daemons[daemon];
        let Some(shard) = &machine.shard else { return };
        let Some(checkpoint) = shard.file_checkpoint(object) else { return };
        let mended = shard.file(object).map_or(0, Replica::mended);
        let handed_over = machine.directory.journal.handed_over();
        let at = self.disk_free(daemon) + self.disk_takes(SYNC_TAKES);
        let kept = DiskInput::Kept(object, (handed_over, mended), Box::new(checkpoint));
        self.push_input(at, daemon, Input::Disk(kept));
    }

    /// When a disk begins with what it is told now.
    pub(super) fn disk_free(&self, daemon: usize) -> TrueTime {
        self.daemons[daemon].disk_stalls_until.max(self.now)
    }

    pub(super) fn disk_takes(&mut self, times: u64) -> Span {
        span_between(Span::ZERO, self.plan.disk_max * times, &mut self.dice.disks)
    }

    /// A daemon hands a record over to its journal.
    pub(super) fn write_record(
        &mut self,
        daemon: usize,
        (number, object): (u64, ObjectId),
        record: Record<File>,
    ) -> Result<(), Violation> {
        if self.is_traced() {
            self.note(Some(object), format_args!("n{daemon} writes {number}: {record:?}"));
        }
        self.daemons[daemon].has_taken_over |= matches!(record, Record::Ended(_));
        if self.is_genuine(daemon) {
            self.watch_record(daemon, object, &record)?;
            self.watch_disk(daemon, (number, object), &record);
        }
        self.betray_recovery(daemon, &record);
        if self.owes_checkpoint(daemon, object) {
            self.push_input(self.now, daemon, Input::Disk(DiskInput::Mended(object)));
        }
        if self.is_real() {
            return self.write_really(daemon, (number, object), record);
        }
        // A full disk takes no more for a while, and goes on with what it has.
        let begins = self.disk_free(daemon).max(self.daemons[daemon].disk_full_until);
        let done = begins + self.disk_takes(1);
        let journal = &mut self.daemons[daemon].directory.journal;
        journal.append(self.now, number, object, record);
        journal.written_by = journal.written_by.max(done);
        let at = journal.written_by;
        if let Some(input) = self.outcome_of_write(daemon, number) {
            self.push_input(at, daemon, Input::Disk(input));
        }
        Ok(())
    }

    /// A daemon wants its journal synced.
    pub(super) fn sync_journal(&mut self, daemon: usize, number: u64) -> Result<(), Violation> {
        if self.is_real() {
            return self.sync_really(daemon);
        }
        let takes = self.disk_takes(SYNC_TAKES);
        let free = self.disk_free(daemon);
        let journal = &mut self.daemons[daemon].directory.journal;
        let begins = free.max(journal.written_by).max(journal.synced_by);
        journal.synced_by = begins + takes;
        let at = journal.synced_by;
        if let Some(input) = self.outcome_of_sync(daemon, number, at) {
            self.push_input(at, daemon, Input::Disk(input));
        }
        Ok(())
    }

    fn watch_record(
        &mut self,
        daemon: usize,
        object: ObjectId,
        record: &Record<File>,
    ) -> Result<(), Violation> {
        let whose = (self.daemons[daemon].id, object);
        match record {
            Record::Appended { after, entries, .. } => {
                self.checkers.entries.append(self.now, whose, (*after, entries))
            }
            Record::Ended(rest) => {
                self.summary.transfers += 1;
                self.checkers.entries.take_over(whose, rest.at);
                Ok(())
            }
            Record::Mended(_) => {
                self.summary.parts_mended += 1;
                Ok(())
            }
            // Its log stays.
            Record::Repaired(_) => {
                self.summary.transfers += 1;
                Ok(())
            }
            Record::Promised(_)
            | Record::Damaged { .. }
            | Record::Began { .. }
            | Record::Placed(_)
            | Record::Adopted(_) => Ok(()),
            Record::Buried(view) => {
                self.checkers.entries.bury(whose);
                if self.is_content(object) {
                    let of = self.files.iter().position(|&file| file == object);
                    let of = of.and_then(|file| self.content(file));
                    let is_removed = of.is_some_and(|of| !self.is_in_tree(of));
                    self.checkers.entries.end(object, is_removed);
                }
                if view.is_none() {
                    self.checkers.promises.bury(whose);
                }
                Ok(())
            }
        }
    }

    /// A daemon dies in the middle of a recovery or a transfer, or as a tenure begins.
    fn betray_recovery(&mut self, daemon: usize, record: &Record<File>) {
        let is_delicate = match record {
            Record::Appended { entries, .. } => {
                entries.last().is_some_and(|last| matches!(last.body, Body::Barrier { .. }))
            }
            Record::Promised(_)
            | Record::Damaged { .. }
            | Record::Mended(_)
            | Record::Repaired(_)
            | Record::Began { .. }
            | Record::Placed(_)
            | Record::Ended(_) => true,
            Record::Adopted(_) | Record::Buried(_) => false,
        };
        let percent = if self.is_calm || !is_delicate { 0 } else { self.plan.treacherous_percent };
        if percent > 0 && self.dice.faults.chance(percent, 400) {
            let life = self.daemons[daemon].running.life;
            let at = self.at_once_or_after(self.plan.network.latency_max * 2);
            self.queue.push(at, Task::Betray(daemon, life));
        }
    }

    pub(super) fn send_file_message(
        &mut self,
        daemon: usize,
        to: usize,
        message: FileMessage,
    ) -> Result<(), Violation> {
        self.summary.messages += 1;
        if self.is_traced() {
            let object = Some(message.object);
            self.note(object, format_args!("n{daemon} to n{to}: {:?}", message.message));
        }
        self.watch_message(daemon, &message)?;
        self.send(daemon, to, Payload::File(Box::new(message)));
        Ok(())
    }

    pub(super) fn send_file_reply(
        &mut self,
        daemon: usize,
        session: SessionId,
        reply: FileReply,
    ) -> Result<(), Violation> {
        self.summary.messages += 1;
        self.watch_commits(daemon)?;
        if let Some(question) = self.asked.remove(&(session, reply.id)) {
            let Question { object, marks, .. } = question;
            if self.is_traced() {
                self.note(Some(object), format_args!("n{daemon} replies over {session:?}: {reply:?}"));
            }
            self.watch_reply(object, marks, &reply.body)?;
            self.watch_end(daemon, &question, &reply.body)?;
            self.watch_answer(daemon, (&question, &reply.body))?;
        }
        self.send_on(ConnectionId(session.0), daemon, Payload::FileReply(reply));
        Ok(())
    }

    fn watch_reply(
        &mut self,
        object: ObjectId,
        marks: Option<(Mark, Mark)>,
        body: &FileReplyBody,
    ) -> Result<(), Violation> {
        match (body, marks) {
            (FileReplyBody::Changed { outcome: Ok(_), mark, level, .. }, _) => {
                self.checkers.entries.told_written(self.now, object, *mark)?;
                match level {
                    Level::Written => Ok(()),
                    Level::Durable => self.checkers.entries.told_durable(self.now, object, (*mark, *mark)),
                }
            }
            (FileReplyBody::Durable, Some(marks)) => {
                self.checkers.entries.told_durable(self.now, object, marks)
            }
            _ => Ok(()),
        }
    }

    pub(super) fn take_file_request(
        &mut self,
        daemon: usize,
        session: SessionId,
        request: FileRequest,
    ) -> Result<(), Violation> {
        let marks = match request.body {
            FileBody::Sync { oldest, newest } => Some((oldest, newest)),
            FileBody::Create | FileBody::Change { .. } | FileBody::Ask(_) => None,
            FileBody::Open { .. } | FileBody::Renew { .. } | FileBody::Attend(_) => None,
        };
        if self.is_traced() {
            self.note(Some(request.object), format_args!("{session:?} asks n{daemon}: {request:?}"));
        }
        let Some(client) = self.client_of(session) else { return Ok(()) };
        let question = Question { object: request.object, client, marks, asked: self.now };
        self.asked.insert((session, request.id), question);
        self.call(daemon, |shard, now| shard.handle_file_request(now, session, request))
    }

    /// What a daemon's replicas know to be committed has to fit what others do.
    pub(super) fn watch_commits(&mut self, daemon: usize) -> Result<(), Violation> {
        let machine = &self.daemons[daemon];
        let Some(shard) = machine.shard.as_ref().filter(|_| machine.set_aside.is_none()) else {
            return Ok(());
        };
        let (mut begun, mut turned) = (Vec::new(), Vec::new());
        for (file, &object) in self.files.iter().enumerate() {
            self.watch_replica(daemon, object)?;
            let Some(replica) = shard.file(object).filter(|replica| replica.is_whole()) else { continue };
            let at = replica.committed();
            if self.committed.insert((daemon, object), at) == Some(at) {
                continue;
            }
            self.checkers.entries.may_commit(self.now, (machine.id, object), replica)?;
            if self.is_volume(file) {
                self.check_held(daemon, file)?;
                turned.push(object);
            }
            let beginning = self.checkers.entries.commit(self.now, (machine.id, object), at)?;
            begun.extend(beginning.map(|beginning| (file, beginning)));
        }
        turned.into_iter().for_each(|volume| self.watch_lends(volume));
        for (file, beginning) in begun {
            self.summary.losses += 1;
            if self.stops_lends(file) {
                continue;
            }
            let (object, generation) = (self.files[file], beginning.generation);
            if self.is_volume(file) {
                let volume = volume_of(&beginning.recovered);
                self.note(Some(object), format_args!("{generation:?} begins with {volume:?}"));
                self.checkers.trees.begin_anew(self.now, object, generation, volume);
                continue;
            }
            let content = self.shape(file).content(&beginning.recovered);
            self.note(Some(object), format_args!("{generation:?} begins with {content:?}"));
            self.checkers.histories.begin_anew(self.now, object, generation, content);
        }
        Ok(())
    }

    /// Calls a running client's part of files with what its clock shows, and sees to whatever comes out of it.
    pub(super) fn call_files(
        &mut self,
        client: usize,
        what: impl FnOnce(&mut Files, MonoTime),
    ) -> Result<(), Violation> {
        let machine = &mut self.clients[client];
        let reading = machine.reading(self.now);
        let Some(files) = machine.files.core.as_mut().filter(|_| !machine.running.frozen) else {
            return Ok(());
        };
        what(files, reading);
        self.drain_client(client)
    }

    /// A reply about a file has come to a client.
    pub(super) fn take_file_reply(
        &mut self,
        client: usize,
        from: usize,
        reply: FileReply,
    ) -> Result<(), Violation> {
        let node = self.daemons[from].id;
        self.clients[client].files.told = match &reply.body {
            FileReplyBody::Changed { mark, .. } => Some(*mark),
            _ => None,
        };
        self.call_files(client, |files, now| files.handle_reply(now, node, reply))
    }

    pub(super) fn drain_files(&mut self, client: usize) -> Result<(), Violation> {
        let machine = self.daemons.len() + client;
        while let Some(output) = self.clients[client].files.core.as_mut().and_then(Files::poll_output) {
            self.note_numbers(client);
            match output {
                FileOutput::Send { to, request } => {
                    self.send(machine, to.0 as usize, Payload::FileRequest(request));
                }
                FileOutput::Told { ticket, told } => {
                    if let Some(caching) = &mut self.clients[client].files.caching {
                        caching.keep(ticket, told);
                    }
                }
                FileOutput::Event(event) => {
                    if self.hears_later(client, &event) {
                        continue;
                    }
                    if let Some(caching) = &mut self.clients[client].files.caching {
                        caching.take_in(&event);
                    }
                    self.hear_files(client, &event)?;
                }
            }
        }
        Ok(())
    }

    /// The power of these machines fails: what was not synced is lost, and they know that they may have lost it.
    pub(super) fn cut_power(&mut self, daemons: &[usize], kind: FaultKind) {
        self.summary.faults.count(kind);
        self.checkers.entries.may_lose = true;
        for &daemon in daemons {
            // Who tampers with a directory has it in his hands.
            if self.daemons[daemon].set_aside.is_some() {
                continue;
            }
            self.note(None, format_args!("the power of n{daemon} fails"));
            self.mishap(daemon, "the power fails");
            if self.daemons[daemon].shard.is_some() {
                self.crash(daemon);
            }
            let torn = self.daemons[daemon].directory.lose_power(&mut self.dice.disks);
            (0..torn).for_each(|_| self.summary.faults.count(FaultKind::Torn));
            let down = self.while_it_lasts();
            self.queue.push(self.now + down, Task::Start(daemon));
        }
    }

    /// The power of some machines fails.
    pub(super) fn cut_some_power(&mut self, daemon: usize) {
        let others = self.dice.faults.chance(1, 2);
        let fails = |other: &usize| *other == daemon || others && self.dice.faults.chance(1, 2);
        let daemons: Vec<usize> = (0..self.daemons.len()).filter(fails).collect();
        self.cut_power(&daemons, FaultKind::PowerCut);
    }
}
