//! The users of files: each wants something done, waits for it or gives it up, and goes on with the next.

use std::collections::{BTreeMap, BTreeSet};

use base::{ClientId, ObjectId, Span};
use client::core::files::{FileEvent, FileTicket, Files, Opening};
use client::core::grants::ChangeId;
use lease::Algorithm;
use namespace::{InodeId, Who};
use node::OpenMode;
use node::file::{FileError, Level, Mark, Position};

use super::ahead::Awaited;
use super::behind::Behind;
use super::caches::Caching;
use super::hands::Hand;
use super::held::{comes, makes_file};
use super::shape::{Shape, Wanted};
use super::volumes::{KnownTrees, to_real};
use super::world::{Input, World};
use crate::check::file::{FileOp, FileOutcome};
use crate::check::volume::VolumeOp;
use crate::checkers::contents::UseId;
use crate::checkers::histories::OperationId;
use crate::checkers::replies::Asked;
use crate::plan::{around, span_between};
use crate::{TrueTime, Violation};

/// A client that was told that it is over for a file ends within this.
const GIVES_UP: Span = Span::from_secs(2);

/// What a client's process has to do with files.
#[derive(Debug, Default)]
pub(super) struct FileUse {
    pub(super) core: Option<Files>,
    /// What it keeps of volumes, if it keeps anything.
    pub(super) caching: Option<Caching>,
    pub(super) writers: Vec<Writer>,
    /// What is lent to it, if anything may be, and who uses that.
    pub(super) behind: Option<Behind>,
    pub(super) hands: Vec<Hand>,
    /// The files that it was told are there.
    created: BTreeSet<usize>,
    /// The files that it was told were removed.
    removed: BTreeSet<usize>,
    /// What was acknowledged to it and is not known to be durable.
    pub(super) owed: BTreeMap<usize, BTreeMap<FileTicket, Mark>>,
    /// What was found to be lost before whoever waited for its result [heard](World::hears_later) of that.
    lost_unheard: BTreeSet<FileTicket>,
    /// The content of which files it may use, or might once.
    pub(super) contents: BTreeSet<usize>,
    /// What it knows of volumes.
    pub(super) trees: KnownTrees,
    /// Whether it was told that it is over for some file.
    pub(super) is_over: bool,
    /// What the reply at hand says is to be synced.
    pub(super) told: Option<Mark>,
    /// What was asked for and may have no number yet.
    pub(super) unnumbered: Vec<(FileTicket, ObjectId, Named)>,
}

/// What a change is to the checkers that has a number.
#[derive(Clone, Copy, Debug)]
pub(super) enum Named {
    Tree(OperationId),
    File(OperationId),
    Use(UseId),
    /// Something of what is lent, which no user asked for.
    Nobody,
}

/// Somebody who uses files.
#[derive(Clone, Debug, Default)]
pub(super) struct Writer {
    pub(super) pending: Option<Pending>,
    /// What it wants when something is entered.
    pub(super) waits: Option<(usize, Work, Awaited)>,
    /// Counts what it did, so that a late reminder means nothing.
    pub(super) step: u64,
}

/// Something that has no result yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) ticket: FileTicket,
    pub(super) file: usize,
    pub(super) work: Work,
    /// Since when.
    at: TrueTime,
    /// The number that it goes by at the daemons, if it is a change.
    number: Option<u64>,
    /// Whether it may remove a directory.
    removes: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Work {
    Create,
    Operation(FileOp, Option<OperationId>),
    Tree(VolumeOp, Option<OperationId>),
    /// A file of a volume is opened, and is open then.
    Open(InodeId),
    /// And what was owed when it was asked for.
    Sync(Vec<FileTicket>),
}

impl FileUse {
    pub(super) fn new(writers: usize, hands: usize) -> Self {
        let hands = (0..hands).map(|_| Hand::default()).collect();
        Self { writers: vec![Writer::default(); writers], hands, ..Self::default() }
    }

    pub(super) fn end(&mut self) {
        let writers =
            self.writers.iter().map(|writer| Writer { pending: None, waits: None, step: writer.step + 1 });
        let hands = self.hands.iter().map(Hand::end).collect();
        *self = Self { writers: writers.collect(), hands, ..Self::default() };
    }

    /// What was told of a file says whether it was removed.
    fn note_removed(&mut self, (file, op): (usize, &FileOp), outcome: &FileOutcome) {
        if *outcome == FileOutcome::Removed || *op == FileOp::Remove {
            self.removed.insert(file);
        } else {
            self.removed.remove(&file);
        }
    }

    fn writer_of(&self, ticket: FileTicket) -> Option<usize> {
        let is_of = |writer: &Writer| writer.pending.as_ref().is_some_and(|pending| pending.ticket == ticket);
        self.writers.iter().position(is_of)
    }
}

impl<A: Algorithm> World<'_, A> {
    /// The users of a client that has just started.
    pub(super) fn wake_writers(&mut self, client: usize) {
        (0..self.clients[client].files.writers.len()).for_each(|writer| self.remind_writer(client, writer));
    }

    fn remind_writer(&mut self, client: usize, writer: usize) {
        let at = self.now + around(self.plan.files.think, &mut self.dice.files);
        let step = self.clients[client].files.writers[writer].step;
        self.push_input(at, self.daemons.len() + client, Input::Writer(writer, step));
    }

    pub(super) fn writer_acts(&mut self, client: usize, writer: usize, step: u64) -> Result<(), Violation> {
        let whom = &self.clients[client].files.writers[writer];
        if whom.step != step || whom.waits.is_some() || self.is_calm {
            return Ok(());
        }
        if let Some(ticket) = whom.pending.as_ref().map(|pending| pending.ticket) {
            return self.call_files(client, |files, now| files.give_up(now, ticket));
        }
        let is_of_volume = self.dice.trees.chance(self.plan.volumes.percent, 100);
        let volumes = self.volumes();
        let file = match is_of_volume && !volumes.is_empty() {
            true => volumes.start + self.dice.trees.index(volumes.len()),
            false => self.dice.files.index(volumes.start),
        };
        let wanted = if !self.clients[client].files.created.contains(&file) {
            (file, Work::Create)
        } else if self.dice.files.chance(self.plan.files.sync_percent, 100) {
            (file, Work::Sync(Vec::new()))
        } else if self.is_volume(file) {
            self.draw_content_work(client, file).unwrap_or_else(|| {
                self.summary.trees.wanted += 1;
                (file, self.draw_volume_work(client, file))
            })
        } else {
            self.summary.file_operations += 1;
            (file, Work::Operation(self.draw_operation(client, file), None))
        };
        self.work(client, writer, wanted)?;
        if self.dice.files.chance(self.plan.files.impatient_percent, 100) {
            let patience = self.plan.shard.lease.t_max * self.dice.files.between(1, 100) / 25;
            let step = self.clients[client].files.writers[writer].step;
            let at = self.now + patience;
            self.push_input(at, self.daemons.len() + client, Input::Writer(writer, step));
        }
        Ok(())
    }

    /// What a user wants done to a file. Who was told that it was removed often begins it anew.
    fn draw_operation(&mut self, client: usize, file: usize) -> FileOp {
        let is_removed = self.clients[client].files.removed.contains(&file);
        if is_removed && self.dice.removals.chance(1, 2) {
            return FileOp::Begin;
        }
        if self.dice.removals.chance(self.plan.files.remove_permille, 1_000) {
            return FileOp::Remove;
        }
        self.shape(file).draw(self.summary.file_operations, &mut self.dice.files)
    }

    /// A user wants something done.
    pub(super) fn work(
        &mut self,
        client: usize,
        writer: usize,
        (file, work): (usize, Work),
    ) -> Result<(), Violation> {
        if let Work::Tree(op, _) = &work
            && self.answer_from_cache(client, (file, op))
        {
            self.clients[client].files.writers[writer].step += 1;
            self.remind_writer(client, writer);
            return Ok(());
        }
        let awaited = self.awaits_entries(client, writer, (file, &work));
        if self.clients[client].files.writers[writer].waits.is_some() {
            return self.drain_client(client);
        }
        self.work_now(client, writer, (file, work), awaited.as_ref())
    }

    /// A user asks for something for which it waits no more.
    pub(super) fn work_now(
        &mut self,
        client: usize,
        writer: usize,
        (file, work): (usize, Work),
        awaited: Option<&Awaited>,
    ) -> Result<(), Violation> {
        let removes = awaited.is_some_and(|awaited| awaited.removes);
        let object = self.files[file];
        let who = self.clients[client].id(self.daemons.len() + client);
        let reading = self.clients[client].reading(self.now);
        let uses = &mut self.clients[client].files;
        let Some(core) = uses.core.as_mut() else { return Ok(()) };
        let (ticket, work) = match work {
            Work::Create => (core.create(reading, object), Work::Create),
            Work::Sync(_) => {
                let owed = uses.owed.get(&file).map(|owed| owed.keys().copied().collect());
                (core.sync(reading, object), Work::Sync(owed.unwrap_or_default()))
            }
            Work::Operation(op, _) => {
                let name = who.certificate * 1_000 + who.program;
                let id = self.checkers.histories.called(self.now, object, name, op.clone());
                let wanted = self.shape(file).to_real(&op);
                (self.want_of_file(client, file, (id, wanted)), Work::Operation(op, Some(id)))
            }
            Work::Open(inode) => {
                let opening = Opening::Open(Who::root(), inode, OpenMode::ReadWrite);
                (core.open_to_hold(reading, object, opening), Work::Open(inode))
            }
            Work::Tree(op, called) => {
                let wanted = to_real(&op);
                let id = called.unwrap_or_else(|| self.call_volume(client, file, &op).0);
                let begun = awaited.and_then(|awaited| awaited.change);
                (self.want_begun(client, file, (id, wanted), begun), Work::Tree(op, Some(id)))
            }
        };
        if self.is_traced() {
            self.note(Some(object), format_args!("writer {writer} of {who:?} wants {ticket:?}: {work:?}"));
        }
        let uses = &mut self.clients[client].files;
        let number = uses.core.as_ref().and_then(|core| core.number(ticket));
        let whom = &mut uses.writers[writer];
        (whom.pending, whom.step) =
            (Some(Pending { ticket, file, work, at: self.now, number, removes }), whom.step + 1);
        self.drain_client(client)
    }

    /// A client asks for a change of a file or a volume, or asks it something.
    pub(super) fn want_of_file(
        &mut self,
        client: usize,
        file: usize,
        (id, wanted): (OperationId, Wanted),
    ) -> FileTicket {
        self.want_begun(client, file, (id, wanted), None)
    }

    /// The same of a change that may have begun.
    pub(super) fn want_begun(
        &mut self,
        client: usize,
        file: usize,
        (id, wanted): (OperationId, Wanted),
        begun: Option<ChangeId>,
    ) -> FileTicket {
        let object = self.files[file];
        let reading = self.clients[client].reading(self.now);
        let change = begun.or_else(|| self.before_wanted(client, file, &wanted));
        let core = self.clients[client].files.core.as_mut().expect("its process runs");
        let ticket = match wanted.clone() {
            Wanted::Change(change) => {
                let is_durable = self.dice.levels.chance(self.plan.files.durable_percent, 100);
                let is_durable = is_durable || comes(&change);
                let level = if is_durable { Level::Durable } else { Level::Written };
                if core.attends_to(object) && makes_file(&change) {
                    core.create_to_hold(reading, object, change, level)
                } else {
                    core.change(reading, object, change, level)
                }
            }
            Wanted::Ask(query) => core.ask(reading, object, query),
        };
        self.after_wanted(client, file, (&wanted, change), ticket);
        let named = if self.is_volume(file) { Named::Tree(id) } else { Named::File(id) };
        self.clients[client].files.unnumbered.push((ticket, object, named));
        self.note_numbers(client);
        ticket
    }

    /// Changes that have had their turn go by their numbers.
    pub(super) fn note_numbers(&mut self, client: usize) {
        let who = self.clients[client].id(self.daemons.len() + client);
        let uses = &mut self.clients[client].files;
        let Some(core) = &uses.core else { return };
        let mut unnumbered = std::mem::take(&mut uses.unnumbered);
        unnumbered.retain(|&(ticket, object, named)| {
            let Some(number) = core.number(ticket) else { return core.is_open(ticket) };
            match named {
                Named::Tree(id) => self.checkers.trees.goes_by(id, (who, number)),
                Named::File(id) => self.checkers.histories.goes_by(id, (who, number)),
                Named::Use(id) => self.checkers.contents.goes_by(id, (who, number)),
                Named::Nobody => {}
            }
            self.checkers.entries.called(self.now, object, (who, number));
            false
        });
        self.clients[client].files.unnumbered = unnumbered;
    }

    /// A client has something to say about a file.
    pub(super) fn hear_files(&mut self, client: usize, event: &FileEvent) -> Result<(), Violation> {
        if self.is_traced() {
            self.note(None, format_args!("client {client}: {event:?}"));
        }
        match event {
            FileEvent::Lost { ticket, changes, .. } => {
                self.summary.file_changes_lost += changes.len() as u64;
                self.watch_losses(client, event, changes)?;
                let uses = &mut self.clients[client].files;
                for change in changes.iter().copied() {
                    let was_heard = uses.owed.values_mut().any(|owed| owed.remove(&change).is_some());
                    if !was_heard {
                        uses.lost_unheard.insert(change);
                    }
                }
                ticket.map_or(Ok(()), |ticket| self.finish(client, ticket, event))
            }
            FileEvent::Ended { .. } => Ok(()),
            FileEvent::Created { ticket }
            | FileEvent::Changed { ticket, .. }
            | FileEvent::Answered { ticket, .. }
            | FileEvent::Opened { ticket, .. }
            | FileEvent::Synced { ticket }
            | FileEvent::Refused { ticket, .. }
            | FileEvent::NoSuchFile { ticket }
            | FileEvent::Expired { ticket }
            | FileEvent::Settled { ticket }
            | FileEvent::GivenUp { ticket, .. }
            | FileEvent::Full { ticket } => self.finish(client, *ticket, event),
        }
    }

    /// What a client is told to be lost may be: the file has begun anew since, or is gone altogether.
    fn watch_losses(
        &self,
        client: usize,
        event: &FileEvent,
        changes: &[FileTicket],
    ) -> Result<(), Violation> {
        for (&file, owed) in &self.clients[client].files.owed {
            let object = self.files[file];
            // It may have begun anew since, for somebody who did not know.
            if self.checkers.entries.is_removed(object) {
                continue;
            }
            if matches!(event, FileEvent::Lost { ticket: None, .. })
                && self.checkers.entries.may_be_gone(object)
            {
                continue;
            }
            let present = self.checkers.entries.generation(object);
            let mut marks = changes.iter().filter_map(|change| owed.get(change)).peekable();
            if marks.peek().is_some() && marks.all(|mark| mark.generation >= present) {
                let who = self.clients[client].id(self.daemons.len() + client);
                let asked = Asked { client: who, at: self.now, what: "what it changed to be there".into() };
                return Err(self.checkers.replies.wrong(self.now, object, (&asked, event)));
            }
        }
        Ok(())
    }

    /// Whoever waited for this has a result.
    fn finish(&mut self, client: usize, ticket: FileTicket, event: &FileEvent) -> Result<(), Violation> {
        if self.finish_lent(client, ticket, event)? {
            return Ok(());
        }
        let Some(writer) = self.clients[client].files.writer_of(ticket) else { return Ok(()) };
        let whom = &mut self.clients[client].files.writers[writer];
        whom.step += 1;
        let Some(pending) = whom.pending.take() else { return Ok(()) };
        if pending.removes {
            let is_known = matches!(event, FileEvent::Changed { .. } | FileEvent::Refused { .. });
            self.end_removal(client, pending.file, is_known);
        }
        match pending.work {
            Work::Open(_) => self.note_opened(client, event),
            // What opened the file to be locked is too old by some clock.
            _ if matches!(event, FileEvent::Refused { error: FileError::Capability(_), .. })
                && self.void(&pending.work) => {}
            _ => self.note_result(client, pending, event)?,
        }
        if let Some(id) = self.awaited_files.remove(&(client, writer)) {
            self.checkers.promptness.met(self.now, id);
        }
        self.remind_writer(client, writer);
        Ok(())
    }

    fn note_result(&mut self, client: usize, pending: Pending, event: &FileEvent) -> Result<(), Violation> {
        let who = self.clients[client].id(self.daemons.len() + client);
        let asked = Asked { client: who, at: pending.at, what: format!("{:?}", pending.work) };
        if self.note_content_result(client, (&pending, &asked), event)? {
            return Ok(());
        }
        let Pending { ticket, file, work, number, .. } = pending;
        let (object, shape) = (self.files[file], self.shape(file));
        if let Work::Tree(op, Some(id)) = &work
            && self.note_tree_result(client, (file, ticket), (op, *id), event)?
        {
            self.leave_to_hands(client, event);
            self.summary.file_acknowledged += 1;
            return Ok(());
        }
        let was_never_sent =
            matches!(event, FileEvent::GivenUp { was_sent: false, .. } | FileEvent::Full { .. });
        if was_never_sent && self.void(&work) {
            return Ok(());
        }
        let uses = &mut self.clients[client].files;
        match (work, event) {
            (Work::Create, FileEvent::Created { .. }) => {
                uses.created.insert(file);
            }
            (Work::Operation(op, Some(id)), FileEvent::Changed { outcome, level, .. }) => {
                if outcome.is_ok() {
                    self.acknowledged(client, (file, ticket), *level)?;
                }
                let outcome = shape.changed(&op, outcome);
                self.clients[client].files.note_removed((file, &op), &outcome);
                self.summary.note_removed(&op, &outcome);
                self.checkers.histories.returned(self.now, id, outcome);
            }
            (
                Work::Operation(op, Some(id)),
                FileEvent::Answered { answer: answer @ (Ok(_) | Err(FileError::Removed)), .. },
            ) => {
                let latest = self.checkers.entries.latest(object).map_or(Position::START, |seen| seen.at);
                let outcome = shape.answered(answer);
                uses.note_removed((file, &op), &outcome);
                self.checkers.histories.answered(self.now, id, outcome, latest);
            }
            (Work::Sync(covered), FileEvent::Synced { .. }) => self.synced(client, file, &covered)?,
            (Work::Sync(_), FileEvent::Lost { .. }) => {}
            (work, FileEvent::NoSuchFile { .. }) => {
                uses.created.remove(&file);
                if matches!(work, Work::Sync(_)) {
                    uses.owed.remove(&file);
                }
                let may_lose = self.checkers.entries.may_lose;
                return self.checkers.replies.gone(self.now, object, (&asked, event), may_lose);
            }
            (Work::Operation(..) | Work::Tree(..), FileEvent::Expired { .. }) => {
                let name = number.map(|number| (who, number));
                self.told_over(client, object, name);
                return Ok(());
            }
            (_, FileEvent::GivenUp { .. } | FileEvent::Full { .. }) => {
                self.summary.file_given_up += 1;
                return Ok(());
            }
            _ => return Err(self.checkers.replies.wrong(self.now, object, (&asked, event))),
        }
        if matches!(event, FileEvent::Created { .. }) {
            self.checkers.replies.made(self.now, object, asked.client);
        }
        self.summary.file_acknowledged += 1;
        Ok(())
    }

    /// An operation was never sent, or was refused. Whether it was one.
    pub(super) fn void(&mut self, work: &Work) -> bool {
        match *work {
            Work::Operation(_, Some(id)) => self.checkers.histories.void(self.now, id),
            Work::Tree(_, Some(id)) => self.checkers.trees.void(self.now, id),
            Work::Create | Work::Sync(_) | Work::Open(_) | Work::Operation(_, None) | Work::Tree(_, None) => {
                return false;
            }
        }
        true
    }

    /// A change took effect: it is durable, or owed.
    pub(super) fn acknowledged(
        &mut self,
        client: usize,
        (file, ticket): (usize, FileTicket),
        level: Level,
    ) -> Result<(), Violation> {
        let uses = &mut self.clients[client].files;
        let Some(mark) = uses.told else { return Ok(()) };
        match level {
            Level::Written if uses.lost_unheard.remove(&ticket) => Ok(()),
            Level::Written => {
                uses.owed.entry(file).or_default().insert(ticket, mark);
                Ok(())
            }
            Level::Durable => {
                self.summary.file_durable += 1;
                self.checkers.entries.must_be_durable(self.now, self.files[file], mark.at)
            }
        }
    }

    /// A client was told that it is over for a file. Sooner or later another process takes its place; until then it learns the
    /// same whatever it wants changed.
    pub(super) fn told_over(&mut self, client: usize, object: ObjectId, name: Option<(ClientId, u64)>) {
        self.summary.file_told_over += 1;
        if name.is_some_and(|name| self.checkers.entries.has_effect(object, name)) {
            self.summary.file_over_effective += 1;
        }
        self.clients[client].files.is_over = true;
        let machine = self.daemons.len() + client;
        let at = self.now + span_between(Span::ZERO, GIVES_UP, &mut self.dice.files);
        self.push_input(at, machine, Input::Over);
    }

    /// What its client counts on to be durable is.
    pub(super) fn synced(
        &mut self,
        client: usize,
        file: usize,
        covered: &[FileTicket],
    ) -> Result<(), Violation> {
        self.summary.file_synced += 1;
        let Some(owed) = self.clients[client].files.owed.get_mut(&file) else { return Ok(()) };
        let marks: Vec<Mark> = covered.iter().filter_map(|ticket| owed.remove(ticket)).collect();
        for mark in marks {
            self.checkers.entries.must_be_durable(self.now, self.files[file], mark.at)?;
        }
        Ok(())
    }

    /// How a file is used.
    pub(super) const fn shape(&self, file: usize) -> Shape {
        // Segments of the production store's journal are too short for large records.
        let is_bulky = self.plan.files.is_bulky && self.plan.store.is_none();
        match (file as u64 & 1 == self.plan.seed & 1, is_bulky) {
            (true, false) => Shape::Dense,
            (true, true) => Shape::Bulky,
            (false, _) => Shape::Wide,
        }
    }
}
