//! What is lent to a client's process: what looks after it as the client's tasks do, around the production core.
//!
//! Each lend is looked after until it is over: what the core wants sent is sent, and what comes of that is told to it. What a task would be
//! told may reach it a little later than the process, as tasks have their turns.

use std::collections::{BTreeMap, BTreeSet};

use base::{MonoTime, ObjectId, Span};
use bytes::Bytes;
use client::core::Rules;
use client::core::content::{
    Contents, Fault, FileId, FlushId, Known, OwnerSet, Recall, Sent, Shown, Step, Through, Under, Whose,
    Work as Wants,
};
use client::core::files::{FileEvent, FileTicket, Files, Opening as Opens};
use client::core::grants::Told as Came;
use lease::Algorithm;
use namespace::{
    Answer, Attributes, Born, Change as TreeChange, Fate, Generation, InodeId, NameError, Op, Who,
};
use node::file::{Change, Done, FileError, Mark, Payload};
use node::{Capability, Revoked};

use super::ahead::Ahead;
use super::world::{Input, World};
use super::writers::Named;
use crate::Violation;
use crate::check::volume::VolumeOp;
use crate::checkers::histories::OperationId;
use crate::plan::span_between;

/// In this part of a session's time it is nearly over, and what was written is sent.
const NEARLY_OVER: u64 = 4;
/// Somebody who waits has his turn after this long at most.
const LATE_MAX: Span = Span::from_millis(3);

/// What a client's process has of files that are lent to it.
#[derive(Debug)]
pub(super) struct Behind {
    pub(super) contents: Contents,
    /// What it creates by itself.
    pub(super) ahead: Ahead,
    /// Whether files are to be lent to it.
    pub(super) is_on: bool,
    /// How long something is asked for.
    pub(super) patience: Span,
    pub(super) openings: BTreeMap<u64, Opening>,
    last: u64,
    keepers: BTreeMap<FileId, Keeper>,
    works: BTreeMap<FileTicket, Sending>,
    /// When it asked volumes to put it on record.
    pub(super) came: BTreeMap<ObjectId, MonoTime>,
    /// Until when who waits for which ticket.
    deadlines: BTreeSet<(MonoTime, FileTicket)>,
    /// Revocations that are to be answered when what is lent is given back.
    recalls: BTreeMap<Recall, (FileId, Generation)>,
    /// Lends of files that have no name any more, of which nothing is sent.
    dropped: Vec<(FileId, Generation)>,
}

/// A file that is open.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) id: FileId,
    pub(super) object: ObjectId,
    /// Its place among all files.
    pub(super) file: usize,
    /// What is shown for it. None if it is not entered yet, or is lost.
    pub(super) capability: Option<Capability>,
    /// Whether its client has created it, and it is not there.
    pub(super) is_lost: bool,
    /// So many of its faults its user was told, and whether there is one that it was not.
    pub(super) told: u64,
    pub(super) is_owed: bool,
    pub(super) under: Under,
    pub(super) through: Through,
    is_closed: bool,
    /// So many lends have it open.
    keepers: u32,
}

/// Who looks after a lend.
#[derive(Debug)]
struct Keeper {
    generation: Generation,
    opening: u64,
    next: Option<MonoTime>,
}

/// Something that a lend waits for.
#[derive(Debug)]
enum Sending {
    Flush(FileId, Generation, FlushId),
    Return(FileId, Generation, (usize, VolumeOp, OperationId)),
    /// What is shown for an open file, and what could not be sent without.
    Renew(u64, Option<(FileId, Generation, FlushId)>),
}

/// A result that somebody is told when he has his turn.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    event: FileEvent,
    came: Option<(FileTicket, Came)>,
    told: Option<Mark>,
}

impl Behind {
    pub(super) fn new((program, rules): (u64, Rules), is_on: bool, patience: Span) -> Self {
        Self {
            contents: Contents::new(program).with_rules(rules),
            ahead: Ahead::new(rules),
            is_on,
            patience,
            openings: BTreeMap::new(),
            last: 0,
            keepers: BTreeMap::new(),
            works: BTreeMap::new(),
            came: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            recalls: BTreeMap::new(),
            dropped: Vec::new(),
        }
    }

    /// What is waited for no longer than until then.
    pub(super) fn expects(&mut self, now: MonoTime, ticket: FileTicket) {
        self.deadlines.insert((now + self.patience, ticket));
    }

    pub(super) fn next_due(&self) -> Option<MonoTime> {
        let kept = self.keepers.values().filter_map(|keeper| keeper.next);
        kept.chain(self.deadlines.first().map(|&(at, _)| at)).chain(self.ahead.next_due()).min()
    }

    /// A file is open.
    pub(super) fn open(&mut self, id: FileId, (file, capability): (usize, Option<Capability>)) -> u64 {
        self.last += 1;
        let opening = Opening {
            id,
            object: node::file_object(id.volume, id.inode),
            file,
            capability,
            is_lost: false,
            told: self.contents.open(id),
            is_owed: false,
            under: Under::default(),
            through: Through::default(),
            is_closed: false,
            keepers: 0,
        };
        self.openings.insert(self.last, opening);
        self.last
    }

    /// Its user closes it.
    pub(super) fn close(&mut self, opening: u64) {
        let Some(closed) = self.openings.get_mut(&opening).filter(|opening| !opening.is_closed) else {
            return;
        };
        closed.is_closed = true;
        let id = closed.id;
        self.dropping(id, |contents| _ = contents.close(id));
    }

    /// What was written to a file that has no name any more goes with it when nobody here has it open.
    fn dropping(&mut self, id: FileId, act: impl FnOnce(&mut Contents)) {
        let before = self.contents.generation(id);
        act(&mut self.contents);
        self.dropped.extend(before.filter(|_| self.contents.generation(id).is_none()).map(|lend| (id, lend)));
    }

    /// What users have open.
    pub(super) fn used(&self) -> Vec<u64> {
        let open = self.openings.iter().filter(|(_, opening)| !opening.is_closed);
        open.map(|(&number, _)| number).collect()
    }

    /// A file may be lent to this client, as its volume says: then it is looked after. Returns what was lent before and is over.
    pub(super) fn adopt(
        &mut self,
        now: MonoTime,
        attributes: &Attributes,
        opening: u64,
    ) -> Option<Generation> {
        let generation = self.contents.own(attributes)?;
        let id = self.openings.get(&opening)?.id;
        let before = self.contents.generation(id);
        let known = Shown::of(attributes);
        if !self.contents.adopt(now, id, (generation, attributes.last_lend), known) {
            return None;
        }
        if let Some(opening) = self.openings.get_mut(&opening) {
            opening.keepers += 1;
        }
        if let Some(keeper) = self.keepers.insert(id, Keeper { generation, opening, next: None }) {
            self.leave(keeper.opening);
        }
        before
    }

    /// A lend does not have it open any longer.
    fn leave(&mut self, opening: u64) {
        if let Some(opening) = self.openings.get_mut(&opening) {
            opening.keepers -= 1;
        }
    }

    /// What nobody has open any more is closed.
    fn close_idle(&mut self, files: &mut Files) {
        self.openings.retain(|_, opening| {
            let is_open = !opening.is_closed || opening.keepers > 0;
            if !is_open && opening.capability.is_some() {
                files.close_held(opening.id.volume, opening.id.inode);
            }
            is_open
        });
    }

    /// Whether an answer tells of something that is about to be returned, or was: then the volume is asked, as the client's library does.
    pub(super) fn is_leaving(&self, volume: ObjectId, answer: &Result<Answer, NameError>) -> bool {
        let leaves = |attributes: &Attributes| {
            matches!(self.contents.show(volume, &mut attributes.clone()), Whose::Leaving(_))
        };
        match answer {
            Ok(Answer::Attributes(attributes)) => leaves(attributes),
            // Of what is on its way a listing says whose it was, and nothing else of it counts.
            Ok(Answer::Page(page)) => {
                page.entries.iter().filter_map(|listed| listed.attributes.as_ref()).any(leaves)
            }
            _ => false,
        }
    }

    /// Which lends it knows of.
    pub(super) fn lends(&self) -> impl Iterator<Item = (FileId, Generation)> {
        self.keepers.iter().map(|(&id, keeper)| (id, keeper.generation))
    }

    /// Whether somebody here waits for a ticket.
    fn has(&self, ticket: FileTicket) -> bool {
        self.works.contains_key(&ticket) || self.deadlines.iter().any(|&(_, other)| other == ticket)
    }
}

impl<A: Algorithm> World<'_, A> {
    /// A client's process has started.
    pub(super) fn behind_of_client(&mut self, client: usize) -> Option<Behind> {
        if !self.plan.volumes.lends {
            return None;
        }
        let is_on = self.dice.lends.chance(4, 5);
        let patience =
            [Span::from_secs(2), Span::from_secs(8), Span::from_secs(30)][self.dice.lends.index(3)];
        Some(Behind::new((self.clients[client].running.life, self.plan.volumes.rules), is_on, patience))
    }

    /// What a client knows of a file now.
    pub(super) fn with_known<T>(
        &mut self,
        client: usize,
        opening: u64,
        act: impl FnOnce(&mut Known<'_>, &mut Opening) -> T,
    ) -> Option<T> {
        let now = self.clients[client].reading(self.now);
        let uses = &mut self.clients[client].files;
        let (behind, caching) = (uses.behind.as_mut()?, uses.caching.as_mut()?);
        let opening = behind.openings.get_mut(&opening)?;
        let id = opening.id;
        let mut known = Known { now, id, cache: &mut caching.cache, contents: &mut behind.contents };
        Some(act(&mut known, opening))
    }

    /// Something is taken back from a client. Whether the answer waits for something.
    pub(super) fn recall_content(
        &mut self,
        client: usize,
        recall: Recall,
        volume: ObjectId,
        what: Revoked,
    ) -> bool {
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return false };
        let Revoked::Lend { number, epoch, lent_in, lent_at } = what else { return false };
        let id = FileId { volume, inode: InodeId { number, epoch } };
        let generation = Generation(Born { epoch: lent_in, seq: lent_at });
        let waits = behind.contents.recall((id, generation), Some(recall));
        if self.plan.volumes.ahead && self.recall_dir(client, (id, generation), recall) {
            return true;
        }
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return false };
        if waits {
            behind.recalls.insert(recall, (id, generation));
            self.summary.lends.recalled += 1;
        } else {
            self.checkers.contents.given_back(node::file_object(volume, id.inode), generation);
        }
        waits
    }

    /// A connection is gone: over it nothing is answered.
    pub(super) fn forget_content_recalls(&mut self, client: usize, node: base::NodeId) {
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return };
        behind.recalls.retain(|recall, _| recall.from != node);
        behind.contents.forget_recalls(node);
        behind.ahead.forget_recalls(node);
    }

    /// Does what lends want done, and gives up what has taken too long. Whether there was anything.
    pub(super) fn tend(&mut self, client: usize) -> Result<bool, Violation> {
        if self.clients[client].files.behind.is_none() || self.clients[client].running.frozen {
            return Ok(false);
        }
        let now = self.clients[client].reading(self.now);
        let mut was_busy = false;
        while let Some((id, generation, wants)) = self.next_work(client, now) {
            self.begin_work(client, (id, generation), wants)?;
            was_busy = true;
        }
        let uses = &mut self.clients[client].files;
        let (Some(behind), Some(files)) = (&mut uses.behind, &mut uses.core) else { return Ok(false) };
        behind.close_idle(files);
        while let Some(&(at, ticket)) = behind.deadlines.first().filter(|&&(at, _)| at <= now) {
            behind.deadlines.remove(&(at, ticket));
            files.give_up(now, ticket);
            was_busy = true;
        }
        drop(behind.contents.take_lost());
        for (id, lend) in std::mem::take(&mut behind.dropped) {
            let object = node::file_object(id.volume, id.inode);
            let why = "it has no name any more, and nobody had it open at its client".to_owned();
            self.checkers.contents.may_lose(self.now, object, lend, why);
        }
        let answered = behind.contents.take_answered();
        let answered =
            answered.into_iter().filter_map(|recall| Some((recall, behind.recalls.remove(&recall)?)));
        let answered: Vec<_> = answered.collect();
        was_busy |= !answered.is_empty();
        for (_, (id, generation)) in &answered {
            self.checkers.contents.given_back(node::file_object(id.volume, id.inode), *generation);
        }
        if let Some(core) = self.clients[client].core.as_mut() {
            answered.into_iter().for_each(|(recall, _)| core.dropped(recall.from, recall.number));
        }
        was_busy |= self.tend_ahead(client)?;
        Ok(self.wake_hands(client)? || was_busy)
    }

    fn next_work(&mut self, client: usize, now: MonoTime) -> Option<(FileId, Generation, Wants)> {
        let session = Span::from_millis(self.plan.shard.map.settings().session_ms.into());
        let uses = &mut self.clients[client].files;
        let (behind, caching) = (uses.behind.as_mut()?, uses.caching.as_ref()?);
        let ids: Vec<FileId> = behind.keepers.keys().copied().collect();
        for id in ids {
            let Some(keeper) = behind.keepers.get_mut(&id) else { continue };
            let opening = behind.openings.get(&keeper.opening);
            // What is not entered yet can be sent nowhere.
            if opening.is_some_and(|opening| opening.capability.is_none() && !opening.is_lost) {
                keeper.next = None;
                continue;
            }
            let by = caching.cache.lasts(id.volume);
            let by =
                by.map(|until| until.saturating_sub(Span::from_micros(session.as_micros() / NEARLY_OVER)));
            match behind.contents.next(now, (id, keeper.generation), by) {
                Step::Work(wants) => return Some((id, keeper.generation, wants)),
                Step::Wait(next) => keeper.next = next,
                Step::Over => {
                    let opening = keeper.opening;
                    behind.keepers.remove(&id);
                    behind.leave(opening);
                }
            }
        }
        None
    }

    fn begin_work(
        &mut self,
        client: usize,
        (id, generation): (FileId, Generation),
        wants: Wants,
    ) -> Result<(), Violation> {
        let (flush, change, level) = match wants {
            Wants::Write { flush, offset, data, level } => {
                (flush, Change::Write { offset, data: Payload::new(joined(&data)) }, level)
            }
            Wants::Resize { flush, size, level } => (flush, Change::Truncate { size }, level),
            Wants::Return { set: OwnerSet { modified, accessed, mode }, changed, is_untouched } => {
                let (inode, mode, changed) = (id.inode, mode.map(|(mode, _)| mode), Some(changed));
                let change =
                    TreeChange::Return { inode, generation, modified, accessed, mode, changed, is_untouched };
                return self.return_lend(client, (id, generation), change);
            }
        };
        self.summary.lends.flushes += 1;
        let now = self.clients[client].reading(self.now);
        let uses = &mut self.clients[client].files;
        let (Some(behind), Some(files)) = (&mut uses.behind, &mut uses.core) else { return Ok(()) };
        let opening = behind.keepers.get(&id).and_then(|keeper| behind.openings.get(&keeper.opening));
        let Some(object) = opening.map(|opening| opening.object) else { return Ok(()) };
        if files.has_ended(id.volume) {
            return self.flushed(client, (id, generation, flush), Sent::Failed(Fault::Ended));
        }
        let ticket = files.flush(now, object, change, (generation, level));
        behind.works.insert(ticket, Sending::Flush(id, generation, flush));
        behind.expects(now, ticket);
        uses.unnumbered.push((ticket, object, Named::Nobody));
        self.note_numbers(client);
        if self.is_traced() {
            self.note(
                Some(object),
                format_args!("client {client} flushes {flush:?} under {generation:?} by {ticket:?}"),
            );
        }
        Ok(())
    }

    fn return_lend(
        &mut self,
        client: usize,
        (id, generation): (FileId, Generation),
        change: TreeChange,
    ) -> Result<(), Violation> {
        let now = self.clients[client].reading(self.now);
        let Some(volume) = self.volumes().find(|&volume| self.files[volume] == id.volume) else {
            return Ok(());
        };
        let op = VolumeOp::Change(Op::wanted(Who::root(), change).into());
        let (called, wanted) = self.call_volume(client, volume, &op);
        let ticket = self.want_of_file(client, volume, (called, wanted));
        if let Some(behind) = self.clients[client].files.behind.as_mut() {
            behind.works.insert(ticket, Sending::Return(id, generation, (volume, op, called)));
            behind.expects(now, ticket);
        }
        self.note(Some(id.volume), format_args!("client {client} returns {generation:?} by {ticket:?}"));
        Ok(())
    }

    /// This came of something that was sent under a lend.
    fn flushed(
        &mut self,
        client: usize,
        (id, generation, flush): (FileId, Generation, FlushId),
        sent: Sent,
    ) -> Result<(), Violation> {
        let now = self.clients[client].reading(self.now);
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return Ok(()) };
        let object = node::file_object(id.volume, id.inode);
        if let Sent::Failed(fault) = &sent {
            let is_known = behind.contents.generation(id) == Some(generation);
            let why = format!("its client was told {fault:?} when it sent what it had");
            let lost = behind.openings.values_mut().filter(|opening| opening.id == id && is_known);
            lost.for_each(|opening| opening.is_owed = true);
            self.summary.lends.lost += u64::from(is_known);
            self.checkers.contents.may_lose(self.now, object, generation, why);
        }
        if let Some(behind) = self.clients[client].files.behind.as_mut() {
            behind.contents.sent(now, (id, generation), (flush, sent));
        }
        Ok(())
    }

    /// A ticket has a result. Whether it was one of what is lent to a client, or of who uses that.
    pub(super) fn finish_lent(
        &mut self,
        client: usize,
        ticket: FileTicket,
        event: &FileEvent,
    ) -> Result<bool, Violation> {
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return Ok(false) };
        behind.deadlines.retain(|&(_, other)| other != ticket);
        if self.finish_ahead(client, ticket, event)? {
            return Ok(true);
        }
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return Ok(false) };
        match behind.works.remove(&ticket) {
            None => return self.hand_hears(client, ticket, event),
            Some(Sending::Renew(opening, flush)) => {
                if let FileEvent::Opened { capability, .. } = event {
                    self.show_anew(client, opening, **capability);
                }
                if let Some(flush) = flush {
                    // It is sent again when that is shown. What is not renewed any more is refused.
                    let sent = match event {
                        FileEvent::Opened { .. } => Sent::Unknown,
                        FileEvent::Refused { error: error @ FileError::Capability(_), .. } => {
                            Sent::Failed(Fault::Refused(*error))
                        }
                        event => sent(event),
                    };
                    self.flushed(client, flush, sent)?;
                }
            }
            Some(Sending::Flush(id, generation, flush)) => {
                let object = node::file_object(id.volume, id.inode);
                if let FileEvent::Changed { outcome: Ok(_), level, .. } = event
                    && let Some(file) = self.files.iter().position(|file| *file == object)
                {
                    self.acknowledged(client, (file, ticket), *level)?;
                }
                let flush = (id, generation, flush);
                if !is_expired(event) || !self.renew_for_lend(client, flush) {
                    self.flushed(client, flush, sent(event))?;
                }
            }
            Some(Sending::Return(id, generation, (volume, op, called))) => {
                self.note_tree_event(client, (volume, ticket), (&op, called), event)?;
                let outcome = match event {
                    FileEvent::Changed { outcome: Ok(Done::Tree(_)), .. } => Sent::Done,
                    event => sent(event),
                };
                if outcome == Sent::Done {
                    self.checkers.contents.given_back(node::file_object(id.volume, id.inode), generation);
                }
                if let Some(behind) = self.clients[client].files.behind.as_mut() {
                    behind.contents.returned((id, generation), outcome);
                }
            }
        }
        Ok(true)
    }

    /// Something of a volume has a result that users of trees would have noted.
    pub(super) fn note_tree_event(
        &mut self,
        client: usize,
        (volume, ticket): (usize, FileTicket),
        (op, id): (&VolumeOp, OperationId),
        event: &FileEvent,
    ) -> Result<(), Violation> {
        if self.note_tree_result(client, (volume, ticket), (op, id), event)? {
            return Ok(());
        }
        match event {
            FileEvent::GivenUp { was_sent: false, .. }
            | FileEvent::Full { .. }
            | FileEvent::Refused { .. } => {
                self.checkers.trees.void(self.now, id);
            }
            FileEvent::Expired { .. } => self.told_over(client, self.files[volume], None),
            _ => {}
        }
        Ok(())
    }

    /// What whoever looks after a lend shows is too old for what it sent. Whether it is asked for anew: that has an outcome then.
    fn renew_for_lend(&mut self, client: usize, flush: (FileId, Generation, FlushId)) -> bool {
        let behind = self.clients[client].files.behind.as_ref();
        let keeper = behind.and_then(|behind| behind.keepers.get(&flush.0));
        let opening = keeper.filter(|keeper| keeper.generation == flush.1).map(|keeper| keeper.opening);
        opening.is_some_and(|opening| self.renew(client, opening, Some(flush)))
    }

    /// What is shown for an open file is too old. Whether it is asked for anew.
    pub(super) fn renew(
        &mut self,
        client: usize,
        opening: u64,
        flush: Option<(FileId, Generation, FlushId)>,
    ) -> bool {
        let now = self.clients[client].reading(self.now);
        let uses = &mut self.clients[client].files;
        let (Some(behind), Some(files)) = (&mut uses.behind, &mut uses.core) else { return false };
        let shown = behind.openings.get(&opening);
        let shown = shown.and_then(|opening| Some((opening.id.volume, opening.capability?)));
        let Some((volume, capability)) = shown else { return false };
        let ticket = files.open(now, volume, Opens::Renew(Box::new(capability)));
        behind.works.insert(ticket, Sending::Renew(opening, flush));
        behind.expects(now, ticket);
        true
    }

    fn show_anew(&mut self, client: usize, opening: u64, capability: Capability) {
        let reading = self.clients[client].reading(self.now);
        let uses = &mut self.clients[client].files;
        if let Some(files) = uses.core.as_mut() {
            files.show(reading, capability);
        }
        let opening = uses.behind.as_mut().and_then(|behind| behind.openings.get_mut(&opening));
        if let Some(opening) = opening {
            opening.capability = Some(capability);
        }
    }

    /// A change of a client may have taken the last name of a file away.
    pub(super) fn note_gone(&mut self, client: usize, volume: ObjectId, done: &namespace::Done) {
        use namespace::Done::{Removed, Renamed};
        let (inode, fate) = match done {
            Removed { inode, fate } => (*inode, *fate),
            Renamed { other: Some(inode), fate: Some(fate), .. } => (*inode, *fate),
            _ => return,
        };
        if !matches!(fate, Fate::Named { .. }) {
            self.dir_gone(client, FileId { volume, inode });
        }
        if let Some(behind) = self.clients[client].files.behind.as_mut()
            && !matches!(fate, Fate::Named { .. } | Fate::Orphan { holders: 2.. })
        {
            let id = FileId { volume, inode };
            behind.dropping(id, |contents| contents.removed(id));
        }
    }

    /// A client's process ends: what it had and had not sent may be lost.
    pub(super) fn lose_with_client(&mut self, client: usize) {
        let Some(behind) = &self.clients[client].files.behind else { return };
        for (id, generation) in behind.lends() {
            let object = node::file_object(id.volume, id.inode);
            self.checkers.contents.may_lose(self.now, object, generation, "its client has ended".to_owned());
        }
    }

    /// Whoever waits for a result hears of it when he has his turn: not now, if that is later.
    pub(super) fn hears_later(&mut self, client: usize, event: &FileEvent) -> bool {
        let ticket = match event {
            FileEvent::Changed { ticket, .. }
            | FileEvent::Answered { ticket, .. }
            | FileEvent::Opened { ticket, .. } => *ticket,
            _ => return false,
        };
        let uses = &mut self.clients[client].files;
        let is_its = uses.behind.as_ref().is_some_and(|behind| behind.has(ticket));
        if !is_its || !self.dice.lends.chance(1, 4) {
            return false;
        }
        let came = uses.caching.as_mut().and_then(|caching| caching.take_came(ticket));
        let heard = Heard { event: event.clone(), came, told: uses.told };
        let at = self.now + span_between(Span::ZERO, LATE_MAX, &mut self.dice.lends);
        self.push_input(at, self.daemons.len() + client, Input::Heard(Box::new(heard)));
        true
    }

    /// Somebody has his turn.
    pub(super) fn hear_late(&mut self, client: usize, heard: Heard) -> Result<(), Violation> {
        let Heard { event, came, told } = heard;
        let uses = &mut self.clients[client].files;
        uses.told = told;
        if let Some(caching) = &mut uses.caching {
            caching.keep_all(came);
            caching.take_in(&event);
        }
        self.hear_files(client, &event)?;
        self.drain_client(client)
    }
}

/// Whether what is shown for a file is too old.
pub(super) const fn is_expired(event: &FileEvent) -> bool {
    matches!(event, FileEvent::Refused { error: FileError::Capability(_), .. })
}

/// How far something has come that ended this way, as the client's library has it.
fn sent(event: &FileEvent) -> Sent {
    let fault = match event {
        FileEvent::Changed { outcome: Ok(_), .. } => return Sent::Done,
        // It is shown anew, and sent again.
        event if is_expired(event) => return Sent::Unknown,
        FileEvent::GivenUp { .. } | FileEvent::Full { .. } => return Sent::Unknown,
        FileEvent::Changed { outcome: Err(error), .. } | FileEvent::Refused { error, .. } => match error {
            FileError::NotLent => Fault::NotLent,
            FileError::Removed => Fault::Removed,
            error => Fault::Refused(*error),
        },
        FileEvent::NoSuchFile { .. } => Fault::Removed,
        _ => Fault::Ended,
    };
    Sent::Failed(fault)
}

fn joined(pieces: &[Bytes]) -> Bytes {
    pieces.concat().into()
}
