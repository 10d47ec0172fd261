//! The users of files that may be lent to their client: they open and create files of volumes, write and read them, ask how they are, sync
//! and close them. What is to be done when, the client's production core says; these do it as the client's tasks would.

mod changing;
mod entering;
mod reading;

use std::ops::Range;

use base::{MonoTime, Span, WallTime};
use bytes::Bytes;
use client::core::content::{Changing, FileId, Looking, PlanMark, Reading, Said, View, Whose};
use client::core::files::{FileEvent, FileTicket, Opening as Opens};
use lease::Algorithm;
use namespace::{
    Answer as TreeAnswer, Ask, Attributes, Change as TreeChange, Done as TreeDone, Generation, InodeId, Op,
    Who,
};
use node::OpenMode;
use node::file::{Answer, Done, FileError, Level, Query};

use super::ahead::Awaited;
use super::behind::is_expired;
use super::shape::Wanted;
use super::trees;
use super::world::{Input, World};
use super::writers::Named;
use crate::Violation;
use crate::check::Moment;
use crate::check::file::{FileOp, FileOutcome};
use crate::check::volume::{Told, VolumeOp};
use crate::checkers::contents::UseId;
use crate::checkers::evidence::Fact;
use crate::checkers::histories::OperationId;
use crate::plan::around;

/// Whoever asked for a lend has looked at the answer after so long, as in the client's library.
const KNOWN_AFTER: Span = Span::from_millis(50);
/// How soon it is looked again.
const LOOK_EVERY: Span = Span::from_millis(5);
/// A user has no more open.
const OPEN_MAX: usize = 4;
/// Who is told that he is on record, and not that it would survive a power cut, asks again after so long, as the client's library has a volume
/// synced then: each time that costs all disks a sync.
const COMES_EVERY: Span = Span::from_millis(250);

/// Somebody who uses files that may be lent.
#[derive(Debug, Default)]
pub(super) struct Hand {
    /// Counts what it did, so that a late reminder means nothing.
    pub(super) step: u64,
    doing: Option<Box<Doing>>,
}

/// What it is about.
#[derive(Debug)]
struct Doing {
    opening: u64,
    task: Task,
    asked: Asked,
    ticket: Option<FileTicket>,
    waits: Option<Waits>,
    /// What is to be entered before it goes on.
    awaited: Option<Awaited>,
    /// Longer than until then it does not go on.
    until: MonoTime,
}

#[derive(Debug)]
enum Task {
    Come,
    Open,
    /// Something is taken away, and whether it may be a directory.
    Remove(usize, VolumeOp, bool),
    Read(UseId, Box<Reading>, Vec<(u64, Bytes)>),
    Change(UseId, FileOp, Changing),
    Look(UseId, Looking),
    /// With how many faults of the file had been told to whoever has it open when it was called.
    Sync {
        called: Moment,
        lend: Option<Generation>,
        told: u64,
        is_flushed: bool,
    },
}

/// What a ticket is about.
#[derive(Debug)]
enum Asked {
    Nothing,
    Tree((usize, VolumeOp, OperationId), For),
    /// Blocks are read, a run at a time.
    Run(Range<u64>, Vec<Range<u64>>, (View, PlanMark)),
    Content,
    /// Names are synced, and with them these.
    Names(Vec<FileTicket>),
    Covered(Vec<FileTicket>),
    Opening,
}

/// What a volume is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum For {
    Come,
    Create,
    MakeDir,
    Remove,
    Look,
    Borrow,
    /// A lend that is not known goes back. Whether the volume is asked again how the file is then.
    Refuse(bool),
}

#[derive(Clone, Copy, Debug)]
struct Waits {
    until: MonoTime,
    what: What,
}

/// What somebody waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Moment,
    Room,
    End(Generation),
    Gone,
    Sent(Generation, u64),
    /// What is awaited.
    Entered,
    /// Whether a lend is known, and whether the volume is asked again then.
    Known(Generation, bool),
    /// It is to be asked again.
    LookAgain,
}

/// What somebody hears.
enum News {
    /// It begins, or something is different.
    Next,
    /// The file is like this.
    Looked(Box<Attributes>, IsHere),
    Said(Said),
    Fetched(View, PlanMark),
    Event(FileEvent),
}

/// Whether that was known without asking.
type IsHere = bool;

/// What a local change came to.
type Did = Result<FileOutcome, FileError>;

impl Hand {
    /// Whether it does nothing.
    pub(super) const fn is_idle(&self) -> bool {
        self.doing.is_none()
    }

    /// Its process has ended.
    pub(super) fn end(&self) -> Self {
        Self { step: self.step + 1, doing: None }
    }

    pub(super) fn next_due(&self) -> Option<MonoTime> {
        Some(self.doing.as_ref()?.waits?.until)
    }
}

impl Doing {
    fn new(opening: u64, task: Task, until: MonoTime) -> Self {
        Self { opening, task, asked: Asked::Nothing, ticket: None, waits: None, awaited: None, until }
    }
}

impl<A: Algorithm> World<'_, A> {
    /// The users of a client that has just started.
    pub(super) fn wake_hands_of(&mut self, client: usize) {
        if self.clients[client].files.behind.is_some() {
            (0..self.clients[client].files.hands.len()).for_each(|hand| self.remind_hand(client, hand));
        }
    }

    fn remind_hand(&mut self, client: usize, hand: usize) {
        let at = self.now + around(self.plan.files.think / 3, &mut self.dice.lends);
        let step = self.clients[client].files.hands[hand].step;
        self.push_input(at, self.daemons.len() + client, Input::Hand(hand, step));
    }

    /// A user does its next thing.
    pub(super) fn hand_acts(&mut self, client: usize, hand: usize, step: u64) -> Result<(), Violation> {
        let whom = &self.clients[client].files.hands[hand];
        if whom.step != step || !whom.is_idle() || self.is_calm {
            return Ok(());
        }
        let volumes: Vec<usize> = self.volumes().collect();
        let Some(&volume) = self.dice.lends.pick(&volumes) else { return Ok(()) };
        if !self.hand_begins(client, hand, volume)? {
            self.remind_hand(client, hand);
        }
        Ok(())
    }

    /// Whether it has something to do.
    fn hand_begins(&mut self, client: usize, hand: usize, volume: usize) -> Result<bool, Violation> {
        let (object, reading) = (self.files[volume], self.clients[client].reading(self.now));
        let random = &mut self.dice.lends;
        let uses = &mut self.clients[client].files;
        let known = uses.trees.entry(volume).or_default();
        let (Some(core), Some(behind)) = (&uses.core, &mut uses.behind) else { return Ok(false) };
        if known.state == trees::State::Removed || core.has_ended(object) {
            return Ok(false);
        }
        if known.state == trees::State::Bare {
            let op = trees::plant(random);
            return self.hand_comes(client, hand, (volume, op)).map(|()| true);
        }
        if !core.attends_to(object) {
            if behind.came.get(&object).is_some_and(|at| reading < *at + COMES_EVERY) {
                return Ok(false);
            }
            behind.came.insert(object, reading);
            return self.hand_comes(client, hand, (volume, trees::come())).map(|()| true);
        }
        if self.plan.volumes.ahead
            && let Some(begins) = self.hand_goes_ahead(client, hand, volume)?
        {
            return Ok(begins);
        }
        let random = &mut self.dice.lends;
        let uses = &mut self.clients[client].files;
        let known = uses.trees.entry(volume).or_default();
        let Some(behind) = &uses.behind else { return Ok(false) };
        let used = behind.used();
        if used.is_empty() || used.len() < OPEN_MAX && random.chance(1, 16) {
            return match known.some_file(random) {
                Some(inode) if random.chance(1, 2) => {
                    self.hand_opens(client, hand, (volume, inode)).map(|()| true)
                }
                _ => self.hand_creates(client, hand, volume).map(|()| true),
            };
        }
        let Some(&opening) = random.pick(&used) else { return Ok(false) };
        if random.chance(1, 12) || behind.openings[&opening].is_lost {
            self.hand_closes(client, opening)?;
            return Ok(false);
        }
        if random.chance(1, 10) {
            self.hand_syncs(client, hand, opening)?;
            return Ok(true);
        }
        let file = behind.openings[&opening].file;
        self.summary.trees.content_wanted += 1;
        let op = self.shape(file).draw(self.summary.trees.content_wanted, &mut self.dice.lends);
        self.hand_uses(client, hand, (opening, op)).map(|()| true)
    }

    fn hand_deadline(&self, client: usize) -> MonoTime {
        let patience =
            self.clients[client].files.behind.as_ref().map_or(Span::ZERO, |behind| behind.patience);
        self.clients[client].reading(self.now) + patience * 2
    }

    /// A user comes to a volume, or makes its tree.
    pub(super) fn hand_comes(
        &mut self,
        client: usize,
        hand: usize,
        (volume, op): (usize, VolumeOp),
    ) -> Result<(), Violation> {
        let mut doing = Doing::new(0, Task::Come, self.hand_deadline(client));
        self.ask_tree(client, &mut doing, (volume, op, For::Come));
        self.keep_doing(client, hand, doing)
    }

    pub(super) fn hand_opens(
        &mut self,
        client: usize,
        hand: usize,
        (volume, inode): (usize, InodeId),
    ) -> Result<(), Violation> {
        let object = self.files[volume];
        let reading = self.clients[client].reading(self.now);
        let mut doing = Doing::new(0, Task::Open, self.hand_deadline(client));
        let uses = &mut self.clients[client].files;
        let (Some(core), Some(behind)) = (&mut uses.core, &mut uses.behind) else { return Ok(()) };
        if behind.ahead.is_entering(FileId { volume: object, inode }) {
            return self.hand_is_done(client, hand);
        }
        let ticket = core.open_to_hold(reading, object, Opens::Open(Who::root(), inode, OpenMode::ReadWrite));
        behind.expects(reading, ticket);
        (doing.ticket, doing.asked) = (Some(ticket), Asked::Opening);
        self.keep_doing(client, hand, doing)
    }

    fn hand_creates(&mut self, client: usize, hand: usize, volume: usize) -> Result<(), Violation> {
        let lends = self.clients[client].files.behind.as_ref().is_some_and(|behind| behind.is_on);
        let habits = self.plan.volumes.habits;
        let known = self.clients[client].files.trees.entry(volume).or_default();
        let op = known.draw_file(habits, lends, &mut self.dice.lends);
        if self.awaits_others(client, volume, &op) {
            return self.hand_is_done(client, hand);
        }
        let mut doing = Doing::new(0, Task::Open, self.hand_deadline(client));
        self.ask_tree(client, &mut doing, (volume, op, For::Create));
        self.keep_doing(client, hand, doing)
    }

    /// A user closes a file that nobody else here uses just now. What went wrong is told, if anything did.
    pub(super) fn hand_closes(&mut self, client: usize, opening: u64) -> Result<(), Violation> {
        let hands = &self.clients[client].files.hands;
        let is_used = |hand: &Hand| hand.doing.as_ref().is_some_and(|doing| doing.opening == opening);
        if hands.iter().any(is_used) {
            return Ok(());
        }
        self.tell_faults(client, (opening, None), "closes it")?;
        if let Some(behind) = self.clients[client].files.behind.as_mut() {
            behind.close(opening);
        }
        self.drain_client(client)
    }

    /// What went wrong is told to whoever has a file open, once. Whether anything did.
    fn tell_faults(
        &mut self,
        client: usize,
        (opening, before): (u64, Option<u64>),
        what: &str,
    ) -> Result<bool, Violation> {
        let who = self.clients[client].id(self.daemons.len() + client);
        let told = self.with_known(client, opening, |known, opening| {
            let told = known.contents.fault(known.id, before.unwrap_or(opening.told));
            if let Some((count, _)) = told {
                opening.told = count;
            }
            (told.is_some(), std::mem::take(&mut opening.is_owed), opening.object)
        });
        let Some((is_told, is_owed, object)) = told else { return Ok(false) };
        if is_owed && !is_told {
            let what = format!("{who:?} {what}, and is not told that something of it was lost");
            let facts = [Fact::new(self.now, who, what.clone())];
            return Err(Violation::new(self.now, "lends", what).about(object).shown_by(facts));
        }
        Ok(is_told)
    }

    pub(super) fn hand_syncs(&mut self, client: usize, hand: usize, opening: u64) -> Result<(), Violation> {
        let called = self.checkers.contents.moment(self.now);
        let known = self.with_known(client, opening, |known, opening| {
            (known.contents.generation(known.id), opening.told)
        });
        let (lend, told) = known.unwrap_or_default();
        let task = Task::Sync { called, lend, told, is_flushed: false };
        let mut doing = Doing::new(opening, task, self.hand_deadline(client));
        self.await_all_entered(client, &mut doing);
        self.hand_goes_on(client, hand, doing, News::Next)
    }

    /// A user does something to a file, or asks it something.
    pub(super) fn hand_uses(
        &mut self,
        client: usize,
        hand: usize,
        (opening, op): (u64, FileOp),
    ) -> Result<(), Violation> {
        let who = self.clients[client].id(self.daemons.len() + client);
        let Some(behind) = &self.clients[client].files.behind else { return Ok(()) };
        let Some(Some((object, file))) =
            Some(behind.openings.get(&opening).map(|opening| (opening.object, opening.file)))
        else {
            return Ok(());
        };
        let is_on = behind.is_on;
        let clocks = self.all_clocks();
        let id = self.checkers.contents.called((self.now, clocks), object, who, op.clone());
        let task = match &op {
            FileOp::Read { .. } => {
                let Wanted::Ask(Query::Read { offset, length, .. }) = self.shape(file).to_real(&op) else {
                    return Ok(());
                };
                Task::Read(id, Box::new(Reading::new(offset..offset + length)), Vec::new())
            }
            FileOp::Stat => Task::Look(id, Looking::new()),
            _ => {
                let changing = Changing::new(is_on && !matches!(op, FileOp::Punch { .. }));
                Task::Change(id, op, changing)
            }
        };
        let doing = Doing::new(opening, task, self.hand_deadline(client));
        self.hand_goes_on(client, hand, doing, News::Next)
    }

    /// What the clock shows that is behind all others, and the one that is ahead.
    fn all_clocks(&self) -> (WallTime, WallTime) {
        let daemons = self.daemons.iter().map(|machine| machine.clock.reading(self.now));
        let clients = self.clients.iter().map(|machine| machine.clock.reading(self.now));
        let all = || daemons.clone().chain(clients.clone());
        (all().min().unwrap_or_default(), all().max().unwrap_or_default())
    }

    fn keep_doing(&mut self, client: usize, hand: usize, doing: Doing) -> Result<(), Violation> {
        self.clients[client].files.hands[hand].doing = Some(Box::new(doing));
        self.drain_client(client)
    }

    /// Goes on with what a user is about.
    fn hand_goes_on(
        &mut self,
        client: usize,
        hand: usize,
        mut doing: Doing,
        news: News,
    ) -> Result<(), Violation> {
        (doing.ticket, doing.waits) = (None, None);
        let goes_on = match doing.task {
            Task::Come | Task::Open => false,
            Task::Remove(..) => self.remove_on(client, &mut doing),
            Task::Read(..) => self.read_on(client, &mut doing, news)?,
            Task::Change(..) => self.change_on(client, &mut doing, news)?,
            Task::Look(..) => self.look_on(client, &mut doing, news)?,
            Task::Sync { .. } => self.sync_on(client, &mut doing, news)?,
        };
        if goes_on {
            return self.keep_doing(client, hand, doing);
        }
        self.hand_is_done(client, hand)
    }

    fn hand_is_done(&mut self, client: usize, hand: usize) -> Result<(), Violation> {
        let whom = &mut self.clients[client].files.hands[hand];
        (whom.doing, whom.step) = (None, whom.step + 1);
        self.remind_hand(client, hand);
        self.drain_client(client)
    }

    /// Whoever waits here for something that is so, or for too long, goes on. Whether anybody does.
    pub(super) fn wake_hands(&mut self, client: usize) -> Result<bool, Violation> {
        let now = self.clients[client].reading(self.now);
        for hand in 0..self.clients[client].files.hands.len() {
            let Some(doing) = &self.clients[client].files.hands[hand].doing else { continue };
            let Some(Waits { until, what }) = doing.waits else { continue };
            let is_so = match (what, &doing.awaited) {
                (What::Entered, Some(awaited)) => self.is_entered(client, awaited),
                _ => self.is_so(client, doing.opening, what),
            };
            if !is_so && now < until {
                continue;
            }
            let Some(doing) = self.clients[client].files.hands[hand].doing.take() else { continue };
            self.hand_waited(client, hand, *doing, (what, is_so))?;
            return Ok(true);
        }
        Ok(false)
    }

    fn is_so(&self, client: usize, opening: u64, what: What) -> bool {
        let Some(behind) = &self.clients[client].files.behind else { return true };
        let Some(id) = behind.openings.get(&opening).map(|opening| opening.id) else { return true };
        let contents = &behind.contents;
        match what {
            What::Moment | What::LookAgain | What::Entered => false,
            What::Room => contents.has_room(),
            What::End(lend) => contents.generation(id) != Some(lend),
            What::Gone => contents.generation(id).is_none(),
            What::Sent(lend, order) => contents.has_sent(id, (lend, order)),
            What::Known(lend, _) => contents.generation(id) == Some(lend) || contents.has_ended(id, lend),
        }
    }

    fn hand_waited(
        &mut self,
        client: usize,
        hand: usize,
        mut doing: Doing,
        (what, is_so): (What, bool),
    ) -> Result<(), Violation> {
        let now = self.clients[client].reading(self.now);
        if !is_so && matches!(what, What::Room | What::Sent(..) | What::Entered) || now >= doing.until {
            self.give_up_on(client, &doing);
            return self.hand_is_done(client, hand);
        }
        doing.waits = None;
        match what {
            What::Known(lend, looks) if !is_so => {
                let opening = doing.opening;
                let is_unknown =
                    self.with_known(client, opening, |known, _| known.contents.disown(known.id, lend));
                if is_unknown == Some(true) {
                    self.refuse(client, &mut doing, (lend, looks));
                } else {
                    doing.waits = Some(Waits { until: now + LOOK_EVERY, what: after(looks) });
                }
                self.keep_doing(client, hand, doing)
            }
            What::Known(_, looks) => {
                doing.waits = Some(Waits { until: now + LOOK_EVERY, what: after(looks) });
                self.keep_doing(client, hand, doing)
            }
            What::LookAgain => {
                self.ask_how_it_is(client, &mut doing);
                self.keep_doing(client, hand, doing)
            }
            _ => self.hand_goes_on(client, hand, doing, News::Next),
        }
    }

    /// A lend that is not known goes back, and is never used.
    fn refuse(&mut self, client: usize, doing: &mut Doing, (generation, looks): (Generation, bool)) {
        let Some((volume, inode)) = self.place_of(client, doing.opening) else { return };
        let (modified, accessed, mode, changed, is_untouched) = (None, None, None, None, false);
        let change =
            TreeChange::Return { inode, generation, modified, accessed, mode, changed, is_untouched };
        let op = VolumeOp::Change(Op::wanted(Who::root(), change).into());
        self.ask_tree(client, doing, (volume, op, For::Refuse(looks)));
    }

    /// Nobody will be told what came of it: a question is void, and a change unknown.
    fn give_up_on(&mut self, client: usize, doing: &Doing) {
        match &doing.task {
            Task::Read(id, ..) | Task::Look(id, _) => self.checkers.contents.void(self.now, *id),
            // It was not sent, or its ticket would have ended.
            Task::Change(id, ..) => self.checkers.contents.void(self.now, *id),
            Task::Remove(..) => self.end_remove(client, doing, false),
            Task::Come | Task::Open | Task::Sync { .. } => {}
        }
    }

    /// Which file of which volume is open.
    fn place_of(&self, client: usize, opening: u64) -> Option<(usize, InodeId)> {
        let behind = self.clients[client].files.behind.as_ref()?;
        let id = behind.openings.get(&opening)?.id;
        let volume = self.volumes().find(|&volume| self.files[volume] == id.volume)?;
        Some((volume, id.inode))
    }

    fn ask_tree(&mut self, client: usize, doing: &mut Doing, (volume, op, what): (usize, VolumeOp, For)) {
        let reading = self.clients[client].reading(self.now);
        let (id, wanted) = self.call_volume(client, volume, &op);
        let begun = doing.awaited.take().and_then(|awaited| awaited.change);
        let ticket = self.want_begun(client, volume, (id, wanted), begun);
        if let Some(behind) = self.clients[client].files.behind.as_mut() {
            behind.expects(reading, ticket);
        }
        (doing.ticket, doing.asked) = (Some(ticket), Asked::Tree((volume, op, id), what));
    }

    /// How the file is, if that is known here. If not the volume is asked.
    fn look(&mut self, client: usize, doing: &mut Doing) -> Option<Box<Attributes>> {
        let (volume, inode) = self.place_of(client, doing.opening)?;
        let op = trees::ask(Ask::Attributes { inode });
        if let Some(Ok(Told::Answer(answer))) = self.known_answer(client, (volume, &op))
            && let TreeAnswer::Attributes(attributes) = *answer
        {
            return Some(Box::new(attributes));
        }
        self.ask_how_it_is(client, doing);
        None
    }

    fn ask_how_it_is(&mut self, client: usize, doing: &mut Doing) {
        if let Some((volume, inode)) = self.place_of(client, doing.opening)
            && !self.awaits_entry(client, doing, inode)
        {
            self.ask_tree(client, doing, (volume, trees::ask(Ask::Attributes { inode }), For::Look));
        }
    }

    /// Something is asked of the content, or wanted of it.
    fn want_of_content(&mut self, client: usize, doing: &mut Doing, (wanted, asked): (Wanted, Asked)) {
        if self.awaits_capability(client, doing) {
            return;
        }
        let reading = self.clients[client].reading(self.now);
        let uses = &mut self.clients[client].files;
        let (Some(core), Some(behind)) = (&mut uses.core, &mut uses.behind) else { return };
        let Some(object) = behind.openings.get(&doing.opening).map(|opening| opening.object) else { return };
        let ticket = match wanted {
            Wanted::Change(change) => core.change(reading, object, change, Level::Written),
            Wanted::Ask(query) => core.ask(reading, object, query),
        };
        behind.expects(reading, ticket);
        if let Task::Change(id, ..) = doing.task {
            uses.unnumbered.push((ticket, object, Named::Use(id)));
        }
        (doing.ticket, doing.asked) = (Some(ticket), asked);
        self.note_numbers(client);
    }

    fn file_of(&self, client: usize, opening: u64) -> usize {
        let behind = self.clients[client].files.behind.as_ref();
        behind.and_then(|behind| behind.openings.get(&opening)).map_or(0, |opening| opening.file)
    }

    fn sync_on(&mut self, client: usize, doing: &mut Doing, news: News) -> Result<bool, Violation> {
        let opening = doing.opening;
        let Some((volume, _)) = self.place_of(client, opening) else { return Ok(false) };
        let file = self.file_of(client, opening);
        let reading = self.clients[client].reading(self.now);
        let Task::Sync { is_flushed, told, .. } = &mut doing.task else { return Ok(false) };
        let told = *told;
        if let Some(awaited) = doing.awaited.take_if(|_| !*is_flushed)
            && !self.is_entered(client, &awaited)
        {
            self.wait_for(client, doing, awaited);
            return Ok(true);
        }
        let Task::Sync { is_flushed, .. } = &mut doing.task else { return Ok(false) };
        if matches!(news, News::Next) && !std::mem::replace(is_flushed, true) {
            // What is made durable together with the volume need not be before.
            let owes =
                |volume| self.clients[client].files.core.as_ref().is_some_and(|core| core.owed(volume) > 0);
            let level = match self.clients[client].files.behind.as_ref() {
                Some(behind) if behind.openings.get(&opening).is_some_and(|open| owes(open.id.volume)) => {
                    Level::Written
                }
                _ => Level::Durable,
            };
            let wanted = self.with_known(client, opening, |known, _| known.contents.want(known.id, level));
            let wanted = wanted.flatten();
            if let Some((lend, order)) = wanted {
                doing.waits = Some(Waits { until: doing.until, what: What::Sent(lend, order) });
                return Ok(true);
            }
        }
        let next = match (news, std::mem::replace(&mut doing.asked, Asked::Nothing)) {
            (News::Next, _) => {
                if self.tell_faults(client, (opening, Some(told)), "syncs it")? {
                    return Ok(false);
                }
                (file, true)
            }
            (News::Event(FileEvent::Synced { .. }), Asked::Covered(covered)) => {
                self.synced(client, file, &covered)?;
                (volume, false)
            }
            (News::Event(FileEvent::NoSuchFile { .. }), Asked::Covered(_)) => {
                self.clients[client].files.owed.remove(&file);
                (volume, false)
            }
            (News::Event(FileEvent::Synced { .. }), Asked::Names(covered)) => {
                self.synced(client, volume, &covered)?;
                let Task::Sync { called, lend: Some(lend), .. } = doing.task else { return Ok(false) };
                self.summary.lends.synced += 1;
                self.checkers.contents.synced(self.files[file], lend, called);
                return Ok(false);
            }
            _ => return Ok(false),
        };
        let (of, is_content) = next;
        let object = self.files[of];
        let uses = &mut self.clients[client].files;
        let (Some(core), Some(behind)) = (&mut uses.core, &mut uses.behind) else { return Ok(false) };
        let covered = uses.owed.get(&of).map(|owed| owed.keys().copied().collect()).unwrap_or_default();
        let ticket = core.sync(reading, object);
        behind.expects(reading, ticket);
        doing.ticket = Some(ticket);
        doing.asked = if is_content { Asked::Covered(covered) } else { Asked::Names(covered) };
        Ok(true)
    }

    /// A ticket has a result. Whether it was that of a user of what may be lent.
    pub(super) fn hand_hears(
        &mut self,
        client: usize,
        ticket: FileTicket,
        event: &FileEvent,
    ) -> Result<bool, Violation> {
        let is_its = |hand: &Hand| hand.doing.as_ref().is_some_and(|doing| doing.ticket == Some(ticket));
        let Some(hand) = self.clients[client].files.hands.iter().position(is_its) else { return Ok(false) };
        let Some(mut doing) = self.clients[client].files.hands[hand].doing.take() else { return Ok(false) };
        doing.ticket = None;
        match std::mem::replace(&mut doing.asked, Asked::Nothing) {
            Asked::Tree((volume, op, id), what) => {
                self.note_tree_event(client, (volume, ticket), (&op, id), event)?;
                self.tree_answers(client, hand, (*doing, what, (volume, &op)), event)?;
            }
            Asked::Opening => {
                if let FileEvent::Opened { attributes, capability, .. } = event {
                    self.note_opened(client, event);
                    self.opened_to_lend(client, (**capability, attributes.as_ref()))?;
                }
                self.hand_is_done(client, hand)?;
            }
            Asked::Run(run, runs, by) => self.run_read(client, hand, (*doing, run, runs, by), event)?,
            asked => {
                let news = match (&doing.task, event) {
                    (Task::Read(..), FileEvent::Answered { answer: Ok(Answer::Data(data)), .. }) => data
                        .to_bytes()
                        .map_or(News::Event(event.clone()), |data| News::Said(Said::Data(data))),
                    (
                        Task::Read(..),
                        FileEvent::Answered { answer: Err(FileError::NotLent), .. }
                        | FileEvent::Refused { error: FileError::NotLent, .. },
                    ) => News::Said(Said::NotLent),
                    (
                        Task::Read(..),
                        FileEvent::NoSuchFile { .. }
                        | FileEvent::Answered { answer: Err(FileError::Removed), .. }
                        | FileEvent::Refused { error: FileError::Removed, .. },
                    ) => News::Said(Said::Nothing),
                    _ => News::Event(event.clone()),
                };
                if is_expired(event) && !matches!(doing.task, Task::Change(..)) {
                    self.renew(client, doing.opening, None);
                }
                doing.asked = asked;
                self.hand_goes_on(client, hand, *doing, news)?;
            }
        }
        Ok(true)
    }

    /// A volume has answered.
    fn tree_answers(
        &mut self,
        client: usize,
        hand: usize,
        (mut doing, what, (volume, op)): (Doing, For, (usize, &VolumeOp)),
        event: &FileEvent,
    ) -> Result<(), Violation> {
        let now = self.clients[client].reading(self.now);
        match (what, event) {
            (For::Look, FileEvent::Answered { answer: Ok(Answer::Tree(answer)), .. })
                if let TreeAnswer::Attributes(attributes) = &**answer =>
            {
                let mut shown = attributes.clone();
                let whose = self.clients[client]
                    .files
                    .behind
                    .as_ref()
                    .map(|behind| behind.contents.show(self.files[volume], &mut shown));
                if let Some(Whose::Leaving(lend)) = whose {
                    doing.waits = Some(Waits { until: now + KNOWN_AFTER, what: What::Known(lend, true) });
                    return self.keep_doing(client, hand, doing);
                }
                self.hand_goes_on(client, hand, doing, News::Looked(Box::new(attributes.clone()), false))
            }
            (For::Create, FileEvent::Changed { outcome: Ok(Done::Tree(done)), opened: Some(opened), .. }) => {
                if let TreeDone::Created { attributes, .. } = &**done {
                    self.opened_to_lend(client, (**opened, attributes))?;
                }
                self.hand_is_done(client, hand)
            }
            (For::MakeDir, FileEvent::Changed { outcome: Ok(Done::Tree(done)), .. }) => {
                if let TreeDone::Created { attributes, .. } = &**done {
                    self.adopt_dir(client, volume, (op, attributes));
                    self.create_some(
                        client,
                        volume,
                        FileId { volume: self.files[volume], inode: attributes.inode },
                    )?;
                }
                self.hand_is_done(client, hand)
            }
            (For::Borrow, FileEvent::Changed { outcome, .. }) => self.borrowed(client, hand, doing, outcome),
            (For::Refuse(true), _) => {
                self.ask_how_it_is(client, &mut doing);
                self.keep_doing(client, hand, doing)
            }
            (For::Refuse(false), _) => self.hand_goes_on(client, hand, doing, News::Next),
            (For::Remove, FileEvent::Changed { .. } | FileEvent::Refused { .. }) => {
                self.end_remove(client, &doing, true);
                self.hand_is_done(client, hand)
            }
            _ => {
                self.give_up_on(client, &doing);
                self.hand_is_done(client, hand)
            }
        }
    }
}

const fn after(looks: bool) -> What {
    if looks { What::LookAgain } else { What::Moment }
}
