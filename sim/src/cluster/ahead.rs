//! Files that a client's process creates and removes by itself, in directories that are lent to it: what has that entered as the client's
//! tasks do, around the production core, and whoever waits for that.
//!
//! What was done within a short time is entered together, and then what was done meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{MonoTime, NodeId, ObjectId, Span, WallTime};
use client::core::Rules;
use client::core::content::{Fault, FileId, Recall};
use client::core::creations::{
    Creations, Numbered, Pending, Turn, asked_about, gives_otherwise, may_remove_dir, new_file,
};
use client::core::files::{FileEvent, FileTicket, Opening as Opens};
use client::core::grants::ChangeId;
use lease::Algorithm;
use namespace::{
    Attributes, Change as TreeChange, Done as TreeDone, Expect, Fate, Generation, InodeId, Make, Name,
    NameError, Op, RenameHow, Site, Who,
};
use node::file::{Change, Done, FileError, FileOf, Level};
use node::{Named as Touched, OpenMode, file_object};

use super::shape::Wanted;
use super::trees;
use super::volumes::to_real;
use super::world::World;
use super::writers::{Named, Work};
use crate::Violation;
use crate::check::volume::{Told, VolumeOp};
use crate::checkers::histories::OperationId;

/// What is created within this time is entered together, as in the client's library.
const GATHERED_FOR: Span = Span::from_millis(10);
/// A directory is given back sooner than by the client's library, so that this happens more often.
const KEPT_FOR: Span = Span::from_secs(5);
/// A client makes no more directories in which it creates files by itself.
const DIRS_MAX: usize = 4;
/// Fewer files are created at once.
const FILES_MAX: u64 = 5;

/// What a client's process creates by itself.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    pub(super) creations: Creations,
    created: Vec<Creation>,
    removed: Vec<Departure>,
    /// When these begin to be entered, and whether somebody waits for that.
    begins: Option<MonoTime>,
    is_urged: bool,
    entering: BTreeMap<FileTicket, Creation>,
    leaving: BTreeMap<FileTicket, Departure>,
    /// What was entered and not opened by that.
    opening: BTreeMap<FileTicket, Creation>,
    returning: BTreeMap<FileTicket, (usize, VolumeOp, OperationId)>,
    recalls: BTreeMap<Recall, FileId>,
    /// Directories that were lent to it, and when and where they were made.
    dirs: BTreeMap<FileId, (Generation, WallTime, Site)>,
}

/// A file that is to be entered.
#[derive(Debug)]
struct Creation {
    id: FileId,
    pending: Pending,
    /// Its volume.
    file: usize,
    under: Generation,
    op: Arc<Op>,
    change: ChangeId,
    called: OperationId,
    opening: Option<u64>,
}

/// A file of which its volume is to be told that it is removed.
#[derive(Debug)]
struct Departure {
    id: FileId,
    pending: Pending,
    file: usize,
    op: Arc<Op>,
    change: ChangeId,
    called: OperationId,
}

/// What somebody waits for before something is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Awaited {
    volume: ObjectId,
    /// All of the volume, if these are not said.
    inodes: Option<Vec<InodeId>>,
    first: u64,
    /// Whether it may remove a directory.
    pub(super) removes: bool,
    /// The change for which all that is awaited. It has begun: nothing is created under its names meanwhile.
    pub(super) change: Option<ChangeId>,
}

impl Ahead {
    pub(super) fn new(rules: Rules) -> Self {
        let creations = Creations::default().with_rules(rules).keeping_for(KEPT_FOR);
        Self { creations, ..Self::default() }
    }

    /// Whether anything has to be entered still.
    pub(super) fn is_busy(&self) -> bool {
        !self.created.is_empty() || !self.removed.is_empty() || self.is_entering_any()
    }

    fn is_entering_any(&self) -> bool {
        !self.entering.is_empty() || !self.leaving.is_empty() || !self.opening.is_empty()
    }

    pub(super) fn next_due(&self) -> Option<MonoTime> {
        if self.is_entering_any() {
            return None;
        }
        self.begins.or_else(|| self.creations.idle_at())
    }

    /// What was done in a volume and is not entered.
    fn pending(&self, volume: ObjectId) -> impl Iterator<Item = OperationId> {
        let created = self.created.iter().chain(self.entering.values());
        let created = created.map(|creation| (creation.id, creation.called));
        let removed = self.removed.iter().chain(self.leaving.values());
        let removed = removed.map(|departure| (departure.id, departure.called));
        created.chain(removed).filter(move |(id, _)| id.volume == volume).map(|(_, called)| called)
    }

    /// Somebody waits for what was created.
    pub(super) fn urge(&mut self, now: MonoTime) {
        self.is_urged = true;
        self.begins = self.begins.map(|_| now);
    }

    /// What is entered now, if it is time. That a file is removed its volume is told when it has entered it.
    fn take_due(&mut self, now: MonoTime) -> (Vec<Creation>, Vec<Departure>) {
        if self.is_entering_any() || self.begins.is_none_or(|at| now < at) {
            return (Vec::new(), Vec::new());
        }
        (self.begins, self.is_urged) = (None, false);
        let has_turn = |departure: &mut Departure| self.creations.turn(departure.pending) != Turn::Later;
        let removed = self.removed.extract_if(.., has_turn).collect();
        if !self.removed.is_empty() {
            self.begins = Some(now);
        }
        (std::mem::take(&mut self.created), removed)
    }

    /// Something was done that is to be entered.
    fn begin(&mut self, now: MonoTime) {
        let at = if self.is_urged { now } else { now + GATHERED_FOR };
        self.begins.get_or_insert(at);
    }

    /// A daemon wants a directory back. Whether the answer has to wait.
    fn recall(&mut self, now: MonoTime, (dir, under): (FileId, Generation), recall: Recall) -> bool {
        self.urge(now);
        let waits = self.creations.recall((dir, under), recall);
        if waits {
            self.recalls.insert(recall, dir);
        }
        waits
    }

    pub(super) fn forget_recalls(&mut self, node: NodeId) {
        self.recalls.retain(|recall, _| recall.from != node);
        self.creations.forget_recalls(node);
    }

    /// Whether what was awaited is so.
    pub(super) fn is_entered(&self, awaited: &Awaited) -> bool {
        let Awaited { volume, inodes, first, .. } = awaited;
        !match inodes {
            Some(inodes) => self.creations.concerns(*volume, inodes, *first),
            None => self.creations.has_pending(*volume, *first),
        }
    }

    /// What has to be entered before something is done to a volume or asked. No directory is used that this may make another thing, and
    /// none while this may remove one.
    pub(super) fn awaits(&mut self, volume: ObjectId, op: &VolumeOp) -> Option<Awaited> {
        let first = self.creations.count();
        let of = |inodes| Some(Awaited { volume, inodes, first, removes: false, change: None });
        match op {
            VolumeOp::Ask(query) => of(Some(vec![asked_about(&query.ask)?])),
            VolumeOp::Change(op) => {
                self.creations.share(volume, &op.change);
                if may_remove_dir(&op.change) {
                    self.creations.begin_removal(volume);
                    return Some(Awaited { volume, inodes: None, first, removes: true, change: None });
                }
                if let Some(inode) = gives_otherwise(&op.change) {
                    self.creations.stop(FileId { volume, inode });
                }
                of(Some(Touched::by(&op.change).inodes))
            }
            _ => None,
        }
    }

    /// All that was created in a volume until now.
    pub(super) fn all(&self, volume: ObjectId) -> Awaited {
        let (inodes, first, removes, change) = (None, self.creations.count(), false, None);
        Awaited { volume, inodes, first, removes, change }
    }

    /// Whether somebody would wait who asks about an inode now.
    pub(super) fn is_entering(&self, FileId { volume, inode }: FileId) -> bool {
        self.creations.concerns(volume, &[inode], self.creations.count())
    }
}

impl<A: Algorithm> World<'_, A> {
    /// A user makes a directory to create files there, creates one, or takes such a directory away. Whether it waits for something; none if
    /// it does something else.
    pub(super) fn hand_goes_ahead(
        &mut self,
        client: usize,
        hand: usize,
        volume: usize,
    ) -> Result<Option<bool>, Violation> {
        let object = self.files[volume];
        let random = &mut self.dice.lends;
        let uses = &mut self.clients[client].files;
        let Some(behind) = uses.behind.as_mut().filter(|behind| behind.is_on) else { return Ok(None) };
        let removal = uses.trees.get(&volume).and_then(|known| known.draw_removal(random));
        let of_it = behind.ahead.dirs.iter().filter(|(dir, _)| dir.volume == object);
        let dirs: Vec<(FileId, Site)> = of_it.map(|(dir, (_, _, site))| (*dir, site.clone())).collect();
        let makes = if dirs.is_empty() { 8 } else { 3 };
        match (random.below(16), random.pick(&dirs).cloned()) {
            (what, _) if what < makes && dirs.len() < DIRS_MAX && behind.ahead.creations.has_room() => {
                let op = trees::make_dir(random);
                self.hand_makes_dir(client, hand, (volume, op)).map(|()| Some(true))
            }
            (3..10, Some((dir, _))) => {
                let is_any_created = self.create_some(client, volume, dir)?;
                Ok(is_any_created.then_some(false))
            }
            (10, Some((dir, _))) => match self.draw_move(client, dir) {
                Some(op) => self.hand_removes(client, hand, (volume, op)).map(|()| Some(true)),
                None => Ok(None),
            },
            (11, Some((dir, site))) => {
                self.hand_removes(client, hand, (volume, trees::remove_dir(site)))?;
                // Somebody else goes on there meanwhile.
                self.create_some(client, volume, dir).map(|_| Some(true))
            }
            (12..16, _)
                if let Some(VolumeOp::Change(op)) = &removal
                    && self.remove_ahead(client, volume, op)? =>
            {
                Ok(Some(false))
            }
            (12..16, _) if let Some(op) = removal => {
                self.hand_removes(client, hand, (volume, op)).map(|()| Some(true))
            }
            _ => Ok(None),
        }
    }

    /// A file of such a directory gets another name there, if its client knows what both stand for.
    fn draw_move(&mut self, client: usize, dir: FileId) -> Option<VolumeOp> {
        let habits = self.plan.volumes.habits;
        let names = [(); 2].map(|()| trees::name(habits, &mut self.dice.lends));
        let cache = &self.clients[client].files.caching.as_ref()?.cache;
        let known = |name: Name| {
            let site = Site::new(dir.inode, name);
            let named = cache.named(dir.volume, dir.inode, &site.name)?;
            Some(named.map_or_else(|| site.clone().free(), |inode| site.clone().naming(inode)))
        };
        let [from, to] = names.map(known);
        let (from, to) = (from?, to?);
        let (how, holders, is_there) = (RenameHow::Replace, Vec::new(), from.expect != Expect::Nothing);
        let rename = TreeChange::Rename { from, to, how, holders };
        is_there.then(|| VolumeOp::Change(Arc::new(Op::wanted(Who::root(), rename))))
    }

    /// Creates some files in a directory. Whether there are any.
    pub(super) fn create_some(
        &mut self,
        client: usize,
        volume: usize,
        dir: FileId,
    ) -> Result<bool, Violation> {
        let mut is_any_created = false;
        for _ in 0..self.dice.lends.below(FILES_MAX) {
            let name = trees::name(self.plan.volumes.habits, &mut self.dice.lends);
            is_any_created |= self.create_ahead(client, volume, (dir, name))?;
        }
        Ok(is_any_created)
    }

    /// Creates a file without asking anybody, in a directory that is lent to this client, if that may be.
    fn create_ahead(
        &mut self,
        client: usize,
        volume: usize,
        (dir, name): (FileId, Name),
    ) -> Result<bool, Violation> {
        let object = self.files[volume];
        let now = self.clients[client].reading(self.now);
        let uses = &mut self.clients[client].files;
        let (Some(behind), Some(caching), Some(core)) = (&mut uses.behind, &mut uses.caching, &mut uses.core)
        else {
            return Ok(false);
        };
        if !core.attends_to(object) {
            return Ok(false);
        }
        let who = Who::root();
        let Some(lent) = caching.cache.free_in(now, object, &who, (dir.inode, &name)) else {
            return Ok(false);
        };
        // A clock that is as slow as can be: what is said to be created later the next primary may correct, whose clock is another.
        let made = behind.ahead.dirs.get(&dir).map(|(_, made, _)| *made);
        let Some(created) = made.filter(|_| core.promise(now, object)) else { return Ok(false) };
        let Some(numbered) = behind.ahead.creations.number(now, dir, lent.generation) else {
            core.renounce(now, object);
            return Ok(false);
        };
        let Numbered { number, inode, .. } = numbered;
        // Who replicates it a client is told later, and nobody asks it.
        let replicas = self.plan.shard.map.view(file_object(object, inode)).members.clone();
        let attributes = new_file(&who, (Numbered { created, ..numbered }, lent), 0o644);
        let attributes = Attributes { replicas: Some(replicas.clone()), ..attributes };
        let (under, mode) = (lent.generation, attributes.mode);
        let change = TreeChange::Enter { dir: dir.inode, under, number, name, replicas, mode, created };
        let op = Arc::new(Op::wanted(who, change));
        let change = caching.cache.enter(object, &op, &attributes);
        self.note_created(client, volume, (op, change, numbered.pending), &attributes)?;
        Ok(true)
    }

    /// A file was created, and its user is told.
    fn note_created(
        &mut self,
        client: usize,
        volume: usize,
        (op, change, pending): (Arc<Op>, ChangeId, Pending),
        attributes: &Attributes,
    ) -> Result<(), Violation> {
        let (object, inode) = (self.files[volume], attributes.inode);
        let TreeChange::Enter { dir, under, .. } = op.change else { return Ok(()) };
        let wish = VolumeOp::Change(Arc::clone(&op));
        let (called, _) = self.call_volume(client, volume, &wish);
        let done = TreeDone::Created { attributes: attributes.clone(), is_new: true };
        let told = Ok(Told::Changed(Box::new(done)));
        self.checkers.trees.told_ahead(self.now, called, (dir, Some(told.clone())));
        self.clients[client].files.trees.entry(volume).or_default().learn(&wish, &told);
        self.summary.lends.created_here += 1;
        if self.is_traced() {
            self.note(Some(object), format_args!("client {client} creates {inode:?} by itself: {op:?}"));
        }
        let id = FileId { volume: object, inode };
        let opening = self.hold_created(client, id, (under, attributes));
        let now = self.clients[client].reading(self.now);
        if let Some(behind) = self.clients[client].files.behind.as_mut() {
            let ahead = &mut behind.ahead;
            ahead.created.push(Creation { id, pending, file: volume, under, op, change, called, opening });
            ahead.begin(now);
        }
        self.drain_client(client)
    }

    /// Removes a file without asking anybody, if that may be.
    fn remove_ahead(&mut self, client: usize, volume: usize, op: &Op) -> Result<bool, Violation> {
        let (object, now) = (self.files[volume], self.clients[client].reading(self.now));
        let TreeChange::Unlink { site, .. } = &op.change else { return Ok(false) };
        let uses = &mut self.clients[client].files;
        let (Some(behind), Some(caching), Some(core)) = (&mut uses.behind, &mut uses.caching, &mut uses.core)
        else {
            return Ok(false);
        };
        let place = (site.dir, &site.name);
        let Some(inode) = caching.cache.own_in(now, object, &op.who, place) else { return Ok(false) };
        let id = FileId { volume: object, inode };
        let is_it = matches!(site.expect, Expect::Any) || site.expect == Expect::Inode(inode);
        let may = is_it && core.attends_to(object) && !behind.contents.is_open(id);
        // By the same slow clock as what is created.
        let made = behind.ahead.dirs.get(&FileId { inode: site.dir, ..id }).map(|(_, made, _)| *made);
        let Some(removed) = made.filter(|_| may && core.promise(now, object)) else { return Ok(false) };
        let is_entered = !behind.ahead.is_entering(id);
        let Some((pending, _)) = behind.ahead.creations.use_own(now, id) else {
            core.renounce(now, object);
            return Ok(false);
        };
        let (dir, site) = (site.dir, site.clone().naming(inode));
        let change = caching.cache.leave(object, &site, (inode, removed));
        let (holders, removed) = (Vec::new(), Some(removed));
        let op = Arc::new(Op { change: TreeChange::Unlink { site, holders, removed }, ..op.clone() });
        let wish = VolumeOp::Change(Arc::clone(&op));
        let (called, _) = self.call_volume(client, volume, &wish);
        // Whether there is data to be deleted, and who has it open, nobody says.
        self.checkers.trees.told_ahead(self.now, called, (dir, None));
        let done = Ok(Told::Changed(Box::new(TreeDone::Removed { inode, fate: Fate::Gone })));
        self.clients[client].files.trees.entry(volume).or_default().learn(&wish, &done);
        self.summary.lends.removed_here += 1;
        self.summary.lends.removed_early += u64::from(!is_entered);
        if self.is_traced() {
            self.note(Some(object), format_args!("client {client} removes {inode:?} by itself: {op:?}"));
        }
        if let Some(behind) = self.clients[client].files.behind.as_mut() {
            behind.ahead.removed.push(Departure { id, pending, file: volume, op, change, called });
            behind.ahead.begin(now);
        }
        self.drain_client(client)?;
        Ok(true)
    }

    /// Whoever has created a file has it open, if it is watched what becomes of it.
    fn hold_created(
        &mut self,
        client: usize,
        id: FileId,
        (under, attributes): (Generation, &Attributes),
    ) -> Option<u64> {
        let file = self.place_content(FileOf { volume: id.volume, inode: id.inode })?;
        self.clients[client].files.contents.insert(file);
        self.checkers.contents.made_ahead(self.now, self.files[file], under);
        let behind = self.clients[client].files.behind.as_mut()?;
        let opening = behind.open(id, (file, None));
        self.adopt_for(client, opening, attributes);
        Some(opening)
    }

    /// A directory was made, and may be lent to whoever has made it.
    pub(super) fn adopt_dir(
        &mut self,
        client: usize,
        volume: usize,
        (op, attributes): (&VolumeOp, &Attributes),
    ) {
        let id = FileId { volume: self.files[volume], inode: attributes.inode };
        let now = self.clients[client].reading(self.now);
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return };
        if let VolumeOp::Change(op) = op
            && let TreeChange::Create { dir, name, make: Make::Directory, .. } = &op.change
            && let Some(under) = behind.contents.own(attributes)
        {
            behind.ahead.creations.lend(now, id, (under, attributes.btime));
            behind.ahead.dirs.insert(id, (under, attributes.btime, Site::new(*dir, name.clone())));
            self.summary.lends.dirs += 1;
        }
    }

    /// Has entered what was created, gives back what nobody uses, and answers what is given back. Whether there was anything.
    pub(super) fn tend_ahead(&mut self, client: usize) -> Result<bool, Violation> {
        let now = self.clients[client].reading(self.now);
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return Ok(false) };
        let ahead = &mut behind.ahead;
        let (created, removed) = ahead.take_due(now);
        let is_due = !created.is_empty() || !removed.is_empty();
        let idle = if ahead.is_busy() || is_due { Vec::new() } else { ahead.creations.take_idle(now) };
        let answered = ahead.creations.take_answered();
        let answered =
            answered.into_iter().filter_map(|recall| Some((recall, ahead.recalls.remove(&recall)?)));
        let answered: Vec<(Recall, FileId)> = answered.collect();
        let was_busy = is_due || !idle.is_empty() || !answered.is_empty();
        created.into_iter().for_each(|creation| self.enter(client, creation));
        removed.into_iter().for_each(|departure| self.leave(client, departure));
        for (recall, dir) in answered {
            self.dir_goes_back(client, dir);
            if let Some(core) = self.clients[client].core.as_mut() {
                core.dropped(recall.from, recall.number);
            }
        }
        for (dir, under) in idle {
            self.return_dir(client, (dir, under));
        }
        Ok(self.wake_writer(client)? || was_busy)
    }

    /// A client says that it has nothing more to enter in a directory.
    fn dir_goes_back(&mut self, client: usize, dir: FileId) {
        let why = "its client has said that it has entered everything there";
        self.checkers.trees.must_keep(dir.volume, dir.inode, why);
        if let Some(behind) = self.clients[client].files.behind.as_mut() {
            behind.ahead.dirs.remove(&dir);
        }
    }

    /// A directory is wanted back. Whether the answer waits for something.
    pub(super) fn recall_dir(
        &mut self,
        client: usize,
        (dir, under): (FileId, Generation),
        recall: Recall,
    ) -> bool {
        let now = self.clients[client].reading(self.now);
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return false };
        if behind.ahead.recall(now, (dir, under), recall) {
            self.summary.lends.dirs_waited_for += 1;
            return true;
        }
        if behind.ahead.dirs.get(&dir).is_some_and(|(lend, ..)| *lend == under) {
            self.dir_goes_back(client, dir);
        }
        false
    }

    fn enter(&mut self, client: usize, creation: Creation) {
        let Creation { file, change, called, .. } = creation;
        let Some(ticket) = self.want_entered(client, file, (&creation.op, change, called)) else { return };
        if let Some(behind) = self.clients[client].files.behind.as_mut() {
            behind.ahead.entering.insert(ticket, creation);
        }
        self.note_numbers(client);
    }

    fn leave(&mut self, client: usize, departure: Departure) {
        let Departure { id, pending, file, change, called, .. } = departure;
        let now = self.clients[client].reading(self.now);
        let uses = &mut self.clients[client].files;
        if let (Some(behind), Some(caching), Some(core)) =
            (&mut uses.behind, &mut uses.caching, &mut uses.core)
            && behind.ahead.creations.turn(pending) == Turn::Never
        {
            behind.ahead.creations.ended(pending);
            caching.cache.abandon(change);
            core.renounce(now, id.volume);
            return self.checkers.trees.lost_ahead(called);
        }
        let Some(ticket) = self.want_entered(client, file, (&departure.op, change, called)) else { return };
        if let Some(behind) = self.clients[client].files.behind.as_mut() {
            behind.ahead.leaving.insert(ticket, departure);
        }
        self.note_numbers(client);
    }

    /// Asks a volume for what was done already, as far as its user knows.
    fn want_entered(
        &mut self,
        client: usize,
        file: usize,
        (op, change, called): (&Arc<Op>, ChangeId, OperationId),
    ) -> Option<FileTicket> {
        let now = self.clients[client].reading(self.now);
        let (volume, wanted) = (self.files[file], Change::Tree(Arc::clone(op)));
        let core = self.clients[client].files.core.as_mut()?;
        let ticket = core.enter_to_hold(now, volume, wanted.clone(), Level::Written);
        self.after_wanted(client, file, (&Wanted::Change(wanted), Some(change)), ticket);
        self.clients[client].files.unnumbered.push((ticket, volume, Named::Tree(called)));
        Some(ticket)
    }

    fn return_dir(&mut self, client: usize, (dir, generation): (FileId, Generation)) {
        self.dir_goes_back(client, dir);
        let (inode, modified, accessed, mode, is_untouched) = (dir.inode, None, None, None, true);
        let change =
            TreeChange::Return { inode, generation, modified, accessed, mode, changed: None, is_untouched };
        let Some(volume) = self.volumes().find(|&volume| self.files[volume] == dir.volume) else { return };
        let op = VolumeOp::Change(Op::wanted(Who::root(), change).into());
        let (called, wanted) = self.call_volume(client, volume, &op);
        let ticket = self.want_of_file(client, volume, (called, wanted));
        let now = self.clients[client].reading(self.now);
        if let Some(behind) = self.clients[client].files.behind.as_mut() {
            behind.ahead.returning.insert(ticket, (volume, op, called));
            behind.expects(now, ticket);
        }
    }

    /// A ticket has a result. Whether it was one of what a client creates by itself.
    pub(super) fn finish_ahead(
        &mut self,
        client: usize,
        ticket: FileTicket,
        event: &FileEvent,
    ) -> Result<bool, Violation> {
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return Ok(false) };
        if let Some((volume, op, called)) = behind.ahead.returning.remove(&ticket) {
            self.note_tree_event(client, (volume, ticket), (&op, called), event)?;
        } else if let Some(creation) = behind.ahead.opening.remove(&ticket) {
            match event {
                FileEvent::Opened { capability, .. } => {
                    self.note_opened(client, event);
                    self.entered(client, creation, **capability);
                }
                event => self.not_opened(client, &creation, fault_of(event)),
            }
        } else if let Some(creation) = behind.ahead.entering.remove(&ticket) {
            self.finish_entering(client, (ticket, creation), event)?;
        } else if let Some(departure) = behind.ahead.leaving.remove(&ticket) {
            self.finish_leaving(client, (ticket, departure), event)?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn finish_entering(
        &mut self,
        client: usize,
        (ticket, creation): (FileTicket, Creation),
        event: &FileEvent,
    ) -> Result<(), Violation> {
        let op = VolumeOp::Change(Arc::clone(&creation.op));
        if !matches!(event, FileEvent::GivenUp { .. } | FileEvent::Full { .. } | FileEvent::Refused { .. }) {
            self.note_tree_event(client, (creation.file, ticket), (&op, creation.called), event)?;
        }
        let now = self.clients[client].reading(self.now);
        match event {
            FileEvent::Changed { outcome: Ok(Done::Tree(_)), opened: Some(capability), .. } => {
                self.entered(client, creation, **capability);
            }
            FileEvent::Changed { outcome: Ok(Done::Tree(_)), .. } => {
                let open = Opens::Open(creation.op.who.clone(), creation.id.inode, OpenMode::ReadWrite);
                let uses = &mut self.clients[client].files;
                let (Some(core), Some(behind)) = (&mut uses.core, &mut uses.behind) else { return Ok(()) };
                behind.ahead.creations.ended(creation.pending);
                let ticket = core.open_to_hold(now, creation.id.volume, open);
                behind.ahead.opening.insert(ticket, creation);
            }
            event => self.refused(client, &creation, fault_of(event)),
        }
        Ok(())
    }

    fn finish_leaving(
        &mut self,
        client: usize,
        (ticket, departure): (FileTicket, Departure),
        event: &FileEvent,
    ) -> Result<(), Violation> {
        let Departure { pending, called, .. } = departure;
        let op = VolumeOp::Change(Arc::clone(&departure.op));
        if !matches!(event, FileEvent::GivenUp { .. } | FileEvent::Full { .. } | FileEvent::Refused { .. }) {
            self.note_tree_event(client, (departure.file, ticket), (&op, called), event)?;
        }
        if !matches!(event, FileEvent::Changed { outcome: Ok(Done::Tree(_)), .. }) {
            let fault = fault_of(event);
            self.summary.lends.removed_late += u64::from(matches!(fault, Fault::NotLent));
            self.not_entered(called, &fault, "its client knew the file, and that it might");
        }
        if let Some(behind) = self.clients[client].files.behind.as_mut() {
            behind.ahead.creations.ended(pending);
        }
        Ok(())
    }

    /// Something that a client did by itself was refused. Whether that may be is judged.
    fn not_entered(&mut self, called: OperationId, fault: &Fault, why: &'static str) {
        let tree = match fault {
            Fault::Refused(FileError::Tree(error)) => Some(error),
            _ => None,
        };
        match tree {
            Some(
                NameError::Exists { .. }
                | NameError::NoEntry { .. }
                | NameError::Stale { .. }
                | NameError::Denied { .. },
            ) => self.checkers.trees.keep_ahead(called, why),
            // Whether it was its client that has removed the directory shows elsewhere.
            Some(NameError::NoInode { .. }) => {}
            _ => self.checkers.trees.lost_ahead(called),
        }
        self.summary.lends.entries_lost += 1;
    }

    /// A file that a client has created is entered.
    fn entered(&mut self, client: usize, creation: Creation, capability: node::Capability) {
        self.summary.lends.entered += 1;
        let uses = &mut self.clients[client].files;
        let (Some(core), Some(behind)) = (&mut uses.core, &mut uses.behind) else { return };
        let opening = creation.opening.and_then(|opening| behind.openings.get_mut(&opening));
        match opening {
            Some(opening) => opening.capability = Some(capability),
            None => core.close_held(creation.id.volume, creation.id.inode),
        }
        behind.ahead.creations.ended(creation.pending);
    }

    /// It is not, and never will be.
    fn refused(&mut self, client: usize, creation: &Creation, fault: Fault) {
        let Creation { id, pending, called, .. } = *creation;
        self.not_entered(called, &fault, "its client knew that the name was free, and that it might");
        self.note(Some(id.volume), format_args!("client {client} has lost {id:?}: {fault:?}"));
        self.not_opened(client, creation, fault);
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return };
        behind.ahead.creations.void(pending);
        behind.ahead.creations.ended(pending);
    }

    /// Whoever has created a file does not get to its content.
    fn not_opened(&mut self, client: usize, &Creation { id, under, .. }: &Creation, fault: Fault) {
        self.checkers.contents.stop(self.now, file_object(id.volume, id.inode));
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return };
        behind.contents.refuse((id, under), fault);
        let open = behind.openings.values_mut().filter(|opening| opening.id == id);
        open.for_each(|opening| (opening.is_owed, opening.is_lost) = (true, true));
    }

    /// A client has answered something by itself, as it knows of what it has created.
    pub(super) fn note_answered_ahead(&mut self, client: usize, volume: ObjectId, answer: OperationId) {
        let Some(behind) = self.clients[client].files.behind.as_ref() else { return };
        for called in behind.ahead.pending(volume) {
            self.checkers.trees.seen_ahead(called, answer);
        }
    }

    /// A change of a client has removed a directory, if it was one.
    pub(super) fn dir_gone(&mut self, client: usize, dir: FileId) {
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return };
        if behind.ahead.dirs.remove(&dir).is_some() {
            let why = "its client has removed the directory meanwhile";
            self.checkers.trees.must_keep(dir.volume, dir.inode, why);
        }
    }

    /// What has to be entered before something is done to a volume or asked. A change begins by that.
    pub(super) fn awaits(&mut self, client: usize, (file, op): (usize, &VolumeOp)) -> Option<Awaited> {
        self.clients[client].files.behind.as_ref()?;
        let change = match op {
            VolumeOp::Change(_) => self.before_wanted(client, file, &to_real(op)),
            _ => None,
        };
        let object = self.files[file];
        let awaited = self.clients[client].files.behind.as_mut()?.ahead.awaits(object, op)?;
        Some(Awaited { change, ..awaited })
    }

    /// Whether what a user wants of a volume waits for what its client has created. Then it is noted as wanted.
    pub(super) fn awaits_entries(
        &mut self,
        client: usize,
        writer: usize,
        (file, work): (usize, &Work),
    ) -> Option<Awaited> {
        let Work::Tree(op, called) = work else { return None };
        let op = op.clone();
        let now = self.clients[client].reading(self.now);
        let awaited = self.awaits(client, (file, &op))?;
        let behind = self.clients[client].files.behind.as_mut()?;
        if behind.ahead.is_entered(&awaited) {
            return Some(awaited);
        }
        behind.ahead.urge(now);
        let called = called.unwrap_or_else(|| self.call_volume(client, file, &op).0);
        let whom = &mut self.clients[client].files.writers[writer];
        whom.step += 1;
        whom.waits = Some((file, Work::Tree(op, Some(called)), awaited));
        None
    }

    /// Some user goes on for which all is entered. Whether anybody does.
    fn wake_writer(&mut self, client: usize) -> Result<bool, Violation> {
        let uses = &mut self.clients[client].files;
        let Some(behind) = &uses.behind else { return Ok(false) };
        for writer in 0..uses.writers.len() {
            let waits = &mut uses.writers[writer].waits;
            if let Some((file, work, awaited)) =
                waits.take_if(|(.., awaited)| behind.ahead.is_entered(awaited))
            {
                self.work_now(client, writer, (file, work), Some(&awaited))?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// What may have removed a directory of a volume is over. Whether anybody knows what it has come to.
    pub(super) fn end_removal(&mut self, client: usize, volume: usize, is_known: bool) {
        let volume = self.files[volume];
        if let Some(behind) = self.clients[client].files.behind.as_mut() {
            behind.ahead.creations.end_removal(volume, is_known);
        }
    }
}

/// What went wrong that ended like this, as the client's library has it.
const fn fault_of(event: &FileEvent) -> Fault {
    match event {
        FileEvent::Changed { outcome: Err(error), .. } | FileEvent::Refused { error, .. } => match error {
            FileError::NotLent | FileError::Tree(NameError::NotLent { .. }) => Fault::NotLent,
            error => Fault::Refused(*error),
        },
        FileEvent::NoSuchFile { .. } => Fault::Removed,
        _ => Fault::Ended,
    }
}
