//! Files that this client creates, opens and removes by itself, in directories that are lent to it, and has entered by their volumes later.
//!
//! A directory is lent to whoever makes it, and as long as it is nobody else knows what is in it. So its client may create files there without
//! asking: it numbers them, and the volume enters them under their numbers. It may open and remove them, too. What is created, opened or removed
//! here is *pending* until that has an outcome.
//!
//! Rules:
//!
//! - No number is given twice under one lend: what is not known here any more is numbered by nobody.
//! - Whoever asks about something that is pending, or changes something beside it, waits for that.
//! - A directory that is wanted back gets no more files, and goes back when nothing in it is pending.
//! - What nobody but this client ever knew is opened and removed here, and nothing else: what it has created under this lend, if nothing of the
//!   directory was given a name in another one since.
//! - What was done to a file its volume is told in that order, each when what was done before has an outcome; and of a file that never came to be
//!   nothing more.
//! - Nothing is created, opened or removed, while a directory of the volume may be about to be removed: a volume that takes it for empty would refuse
//!   what is created here, and what is removed here it would still find there.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};

use base::{MonoTime, NodeId, ObjectId, Span, WallTime};
use namespace::{
    Ask, Attributes, Change, Expect, Generation, InodeId, Kind, Lent, RenameHow, SetAttributes, Who,
};

use super::content::{FileId, Recall};
use super::{Bug, Rules};

/// So many directories are used like this at a time: each of them counts among what is lent to this client.
const DIRS_MAX: usize = 1_024;
/// A directory in which nothing was done by this client alone for so long is given back, and sooner if there are many.
const KEPT_FOR: Span = Span::from_secs(60);
const KEPT_FOR_OF_MANY: Span = Span::from_secs(5);
const MANY: usize = DIRS_MAX / 4;

/// Directories that are lent to this client, and files that are pending in them.
#[derive(Debug)]
pub struct Creations {
    dirs: BTreeMap<FileId, Dir>,
    pending: BTreeMap<Pending, State>,
    /// How much was done here until now.
    count: u64,
    /// How many changes of a volume are under way that may remove a directory.
    removals: BTreeMap<ObjectId, usize>,
    answered: VecDeque<Recall>,
    /// A directory that is left alone is given back after so long.
    kept_for: Span,
    rules: Rules,
}

impl Default for Creations {
    fn default() -> Self {
        Self {
            dirs: BTreeMap::new(),
            pending: BTreeMap::new(),
            count: 0,
            removals: BTreeMap::new(),
            answered: VecDeque::new(),
            kept_for: KEPT_FOR,
            rules: Rules::ALL,
        }
    }
}

/// Something that was done to a file, of which its volume may not know yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pending {
    file: FileId,
    /// What was done before has a lower one, whatever it was done to.
    order: u64,
}

#[derive(Clone, Copy, Debug)]
struct State {
    dir: FileId,
    /// Whether the file never came to be.
    is_void: bool,
}

/// When a volume is told of something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Turn {
    /// Something that was done to the same file has no outcome yet.
    Later,
    /// From now on.
    Now,
    /// There is no such file.
    Never,
}

/// A file that is numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbered {
    /// Its number under the lend of its directory.
    pub number: u64,
    /// Which it is.
    pub inode: InodeId,
    /// When it was created.
    pub created: WallTime,
    /// As what it is pending.
    pub pending: Pending,
}

#[derive(Debug)]
struct Dir {
    under: Generation,
    /// When it was made, by a daemon's clock, and when that was known here. What is created in it later was created so much later: a user does not
    /// see that this client's clock is another.
    made: (WallTime, MonoTime),
    numbered: u64,
    pending: usize,
    used: MonoTime,
    /// Whether nothing more is created, opened or removed in it.
    is_over: bool,
    /// Whether somebody else may know one of its files by another name.
    is_shared: bool,
    /// Revocations that are answered when nothing is pending.
    recalls: Vec<Recall>,
}

impl Creations {
    /// The same, by these rules.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// The same, giving what is left alone back after so long.
    #[must_use]
    pub fn keeping_for(self, kept_for: Span) -> Self {
        Self { kept_for, ..self }
    }

    /// Whether one more directory may be asked for.
    pub fn has_room(&self) -> bool {
        self.dirs.len() < DIRS_MAX
    }

    /// This client has made a directory, then, and it is lent to it.
    pub fn lend(&mut self, now: MonoTime, dir: FileId, (under, made): (Generation, WallTime)) {
        let (numbered, pending, recalls) = (0, 0, Vec::new());
        let (made, is_over, is_shared) = ((made, now), false, false);
        self.dirs.insert(dir, Dir { under, made, numbered, pending, used: now, is_over, is_shared, recalls });
    }

    /// Numbers a file that is created in a directory that is lent by this lend. None if it is not to be created here.
    pub fn number(&mut self, now: MonoTime, dir: FileId, under: Generation) -> Option<Numbered> {
        let may_be_removed =
            self.removals.contains_key(&dir.volume) && !self.rules.breaks(Bug::CreatedInRemoved);
        if may_be_removed {
            return None;
        }
        let known = self.dirs.get_mut(&dir).filter(|known| known.under == under && !known.is_over)?;
        let number = known.numbered + 1;
        let inode = InodeId::under(under, number)?;
        (known.numbered, known.used) = (number, now);
        let (made, at) = known.made;
        let pending = self.begin(FileId { inode, ..dir }, dir);
        Some(Numbered { number, inode, created: made + now.since(at), pending })
    }

    /// Something is done to a file of a directory that is known.
    fn begin(&mut self, file: FileId, dir: FileId) -> Pending {
        self.dirs.get_mut(&dir).into_iter().for_each(|known| known.pending += 1);
        self.count += 1;
        let pending = Pending { file, order: self.count };
        self.pending.insert(pending, State { dir, is_void: false });
        pending
    }

    /// Opens or removes a file here: that is pending until its volume knows it. None if that is not to be done here, because somebody else may
    /// know the file; otherwise also when that is, by the clock of the directory.
    pub fn use_own(&mut self, now: MonoTime, file: FileId) -> Option<(Pending, WallTime)> {
        let is_lax = self.rules.breaks(Bug::UsedOfOthers);
        let is_free = !self.removals.contains_key(&file.volume);
        let inode = file.inode.lent_dir().filter(|_| is_free)?;
        let dir = FileId { inode, ..file };
        let is_own = |known: &&mut Dir| !known.is_over && (is_lax || !known.is_shared);
        let known = self.dirs.get_mut(&dir).filter(is_own)?;
        known.used = now;
        let (made, at) = known.made;
        Some((self.begin(file, dir), made + now.since(at)))
    }

    /// Whether a volume may be told of something by now.
    pub fn turn(&self, pending: Pending) -> Turn {
        if self.pending.get(&pending).is_none_or(|state| state.is_void) {
            return Turn::Never;
        }
        let first = Pending { order: 0, ..pending };
        let is_next = self.pending.range(first..pending).next().is_none();
        if is_next || self.rules.breaks(Bug::ToldOutOfOrder) { Turn::Now } else { Turn::Later }
    }

    /// This change may give a file another name, by which others may come to know it.
    pub fn share(&mut self, volume: ObjectId, change: &Change) {
        let of_volume = self.dirs.iter_mut().filter(|(dir, _)| dir.volume == volume);
        let shared: Vec<&mut Dir> = match change {
            Change::Link { inode, .. } => {
                of_volume.filter(|(dir, _)| Some(dir.inode) == inode.lent_dir()).map(|(_, dir)| dir).collect()
            }
            Change::Rename { from, to, .. } if from.dir != to.dir => {
                let is_named = |dir: &FileId| [from.dir, to.dir].contains(&dir.inode);
                of_volume.filter(|(dir, _)| is_named(dir)).map(|(_, dir)| dir).collect()
            }
            _ => Vec::new(),
        };
        shared.into_iter().for_each(|dir| dir.is_shared = true);
    }

    /// The file never came to be: of what was done to it since its volume is not told.
    pub fn void(&mut self, pending: Pending) {
        let later = self.pending.range_mut(pending..=Pending { order: u64::MAX, ..pending });
        later.for_each(|(_, state)| state.is_void = true);
    }

    /// A volume knows what was done to a file, or never will.
    pub fn ended(&mut self, pending: Pending) {
        let Some(State { dir, .. }) = self.pending.remove(&pending) else { return };
        let Some(known) = self.dirs.get_mut(&dir) else { return };
        known.pending -= 1;
        // Whoever wanted it back has it back with the answer; what is over otherwise is given back.
        if known.pending == 0 && !known.recalls.is_empty() {
            self.answered.extend(known.recalls.drain(..));
            self.dirs.remove(&dir);
        }
    }

    /// How much was done here until now: what to ask for with the next two.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Whether one of these is pending, or a directory in which something is, of the files that were created first.
    pub fn concerns(&self, volume: ObjectId, inodes: &[InodeId], first: u64) -> bool {
        let is_named = |id: &FileId| id.volume == volume && inodes.contains(&id.inode);
        let mut pending = self.pending.iter();
        pending.any(|(Pending { file, order }, state)| {
            *order <= first && (is_named(file) || is_named(&state.dir))
        })
    }

    /// Whether anything of those is pending in a volume.
    pub fn has_pending(&self, volume: ObjectId, first: u64) -> bool {
        self.pending.keys().any(|pending| pending.file.volume == volume && pending.order <= first)
    }

    /// Whether anything of those is pending.
    pub fn is_pending(&self, first: u64) -> bool {
        self.pending.keys().any(|pending| pending.order <= first)
    }

    /// Nothing more is created in a directory like this: what it gives to new files may be another thing.
    pub fn stop(&mut self, dir: FileId) {
        if let Some(known) = self.dirs.get_mut(&dir) {
            known.is_over = true;
        }
    }

    /// A change is under way that may remove a directory, whichever.
    pub fn begin_removal(&mut self, volume: ObjectId) {
        *self.removals.entry(volume).or_default() += 1;
    }

    /// It is not any more, as far as anybody hears. If nobody knows what became of it, it may still remove any directory of its volume that is
    /// lent by now, and nothing more is created there.
    pub fn end_removal(&mut self, volume: ObjectId, is_known: bool) {
        if let Entry::Occupied(mut count) = self.removals.entry(volume) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        if !is_known {
            self.stop_all(volume);
        }
    }

    /// Nothing more is created in any directory of a volume that is lent by now.
    pub fn stop_all(&mut self, volume: ObjectId) {
        let dirs = self.dirs.iter_mut().filter(|(dir, _)| dir.volume == volume);
        dirs.for_each(|(_, dir)| dir.is_over = true);
    }

    /// A daemon wants a directory back. Whether the answer has to wait for what is pending there.
    pub fn recall(&mut self, (dir, under): (FileId, Generation), recall: Recall) -> bool {
        let Some(known) = self.dirs.get_mut(&dir).filter(|known| known.under == under) else { return false };
        known.is_over = true;
        if known.pending == 0 {
            self.dirs.remove(&dir);
            return false;
        }
        known.recalls.push(recall);
        !self.rules.breaks(Bug::AnsweredBeforeEntered)
    }

    /// A connection is gone: over it nothing is answered.
    pub fn forget_recalls(&mut self, node: NodeId) {
        self.dirs.values_mut().for_each(|dir| dir.recalls.retain(|recall| recall.from != node));
        self.answered.retain(|recall| recall.from != node);
    }

    /// Whether a revocation is to be answered.
    pub fn has_answered(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Which revocations are to be answered.
    pub fn take_answered(&mut self) -> Vec<Recall> {
        std::mem::take(&mut self.answered).into()
    }

    /// Directories that are to be given back now, because nobody creates anything there. They are known here no more.
    pub fn take_idle(&mut self, now: MonoTime) -> Vec<(FileId, Generation)> {
        let kept_for = self.kept_for();
        let is_idle = |dir: &Dir| dir.pending == 0 && (dir.is_over || dir.used + kept_for <= now);
        let idle = self.dirs.iter().filter(|(_, dir)| is_idle(dir));
        let idle: Vec<_> = idle.map(|(&id, dir)| (id, dir.under)).collect();
        idle.iter().for_each(|(id, _)| _ = self.dirs.remove(id));
        idle
    }

    /// When to look for those again. None if none are known.
    pub fn idle_at(&self) -> Option<MonoTime> {
        let kept_for = self.kept_for();
        let idle_at = |dir: &Dir| if dir.is_over { dir.used } else { dir.used + kept_for };
        self.dirs.values().filter(|dir| dir.pending == 0).map(idle_at).min()
    }

    fn kept_for(&self) -> Span {
        if self.dirs.len() > MANY { self.kept_for.min(KEPT_FOR_OF_MANY) } else { self.kept_for }
    }
}

/// Whether a change may remove a directory. What a client has created by itself is a file, and takes no directory's place; and what is named
/// beside it is used by nobody meanwhile.
pub fn may_remove_dir(change: &Change) -> bool {
    match change {
        Change::RemoveDirectory { .. } => true,
        Change::Rename { from, to, how: RenameHow::Replace | RenameHow::NoReplace, .. } => {
            let is_file = matches!(from.expect, Expect::Inode(inode) if inode.lent_dir().is_some());
            !is_file || to.expect == Expect::Any
        }
        Change::Rename { .. } => true,
        _ => false,
    }
}

/// A file as it is when its client has created it. Who replicates it is known later, and nobody asks that client.
pub fn new_file(who: &Who, (numbered, lent): (Numbered, Lent), mode: u16) -> Attributes {
    let Numbered { inode, created, .. } = numbered;
    Attributes {
        inode,
        kind: Kind::File,
        mode,
        uid: who.uid(),
        gid: who.gid(),
        links: 1,
        rdev: 0,
        size: 0,
        atime: created,
        mtime: created,
        ctime: created,
        btime: created,
        lent: Some(lent),
        last_lend: None,
        replicas: None,
        has_acl: false,
    }
}

/// The directory that may give something else to new files after this change.
pub const fn gives_otherwise(change: &Change) -> Option<InodeId> {
    match change {
        Change::SetAttributes { inode, set: SetAttributes { mode, uid, gid, .. } }
            if mode.is_some() || uid.is_some() || gid.is_some() =>
        {
            Some(*inode)
        }
        Change::SetXattr { inode, .. } => Some(*inode),
        _ => None,
    }
}

/// What has to be entered before a question is asked.
pub const fn asked_about(ask: &Ask) -> Option<InodeId> {
    match ask {
        Ask::Lookup { dir, .. } | Ask::List { dir, .. } => Some(*dir),
        Ask::Attributes { inode }
        | Ask::Readlink { inode }
        | Ask::GetXattr { inode, .. }
        | Ask::ListXattrs { inode }
        | Ask::Access { inode, .. }
        | Ask::TestLock { inode, .. }
        | Ask::Wish { inode, .. }
        | Ask::Locks { inode, .. } => Some(*inode),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, Seq};
    use namespace::{Born, Name, Site};

    use super::*;

    const EPOCH: Epoch = Epoch { number: 1, node: NodeId(1) };
    const RECALL: Recall = Recall { from: NodeId(1), number: 7 };

    const fn lend(seq: u64) -> Generation {
        Generation(Born { epoch: EPOCH, seq: Seq(seq) })
    }

    const fn at(ms: u64) -> MonoTime {
        MonoTime::from_micros(1_000 * ms)
    }

    fn dir(number: u64) -> FileId {
        FileId { volume: ObjectId::new(1, 2), inode: InodeId { number, epoch: EPOCH } }
    }

    fn lent() -> Creations {
        let mut creations = Creations::default();
        creations.lend(at(0), dir(5), (lend(5), WallTime::from_micros(7)));
        creations
    }

    fn create(creations: &mut Creations) -> Pending {
        let numbered = creations.number(at(1), dir(5), lend(5)).expect("it is lent");
        assert_eq!(numbered.created, WallTime::from_micros(1_007), "whatever the clock here says");
        assert_eq!(numbered.pending.file, FileId { inode: numbered.inode, ..dir(5) });
        numbered.pending
    }

    fn created(creations: &mut Creations) -> FileId {
        create(creations).file
    }

    /// A file that is entered.
    fn entered(creations: &mut Creations) -> FileId {
        let pending = create(creations);
        creations.ended(pending);
        pending.file
    }

    #[test]
    fn no_number_is_given_twice() {
        let mut creations = lent();
        let first = entered(&mut creations);
        assert_ne!(created(&mut creations), first);
        assert_eq!(creations.number(at(1), dir(5), lend(6)), None, "that is another lend");
        assert_eq!(creations.number(at(1), dir(6), lend(5)), None, "that is not lent");
    }

    #[test]
    fn who_asks_about_a_file_or_its_directory_waits_until_it_is_entered() {
        let mut creations = lent();
        let pending = create(&mut creations);
        let (file, volume) = (pending.file, pending.file.volume);
        assert!(
            creations.concerns(volume, &[file.inode], 1) && creations.concerns(volume, &[dir(5).inode], 1)
        );
        assert!(!creations.concerns(volume, &[dir(6).inode], 1) && creations.has_pending(volume, 1));
        let first = creations.count();
        created(&mut creations);
        creations.ended(pending);
        assert!(
            !creations.concerns(volume, &[file.inode, dir(5).inode], first),
            "what came later is not waited for"
        );
        assert!(!creations.has_pending(volume, first) && creations.has_pending(volume, creations.count()));
    }

    #[test]
    fn a_directory_that_is_wanted_back_goes_back_when_all_is_entered() {
        let mut creations = lent();
        let pending = create(&mut creations);
        assert!(creations.recall((dir(5), lend(5)), RECALL));
        assert_eq!(creations.number(at(2), dir(5), lend(5)), None);
        assert_eq!(creations.take_answered(), []);
        creations.ended(pending);
        assert_eq!(creations.take_answered(), [RECALL]);
        assert_eq!(creations.take_idle(at(60_000)), [], "it is back");
    }

    #[test]
    fn a_directory_with_nothing_pending_goes_back_at_once() {
        let mut creations = lent();
        assert!(!creations.recall((dir(5), lend(4)), RECALL), "that is over");
        created(&mut creations);
        let mut creations = lent();
        assert!(!creations.recall((dir(5), lend(5)), RECALL));
        assert_eq!(creations.number(at(2), dir(5), lend(5)), None);
    }

    #[test]
    fn what_a_connection_that_is_gone_asked_for_is_not_answered() {
        let mut creations = lent();
        let pending = create(&mut creations);
        creations.recall((dir(5), lend(5)), RECALL);
        creations.forget_recalls(NodeId(1));
        creations.ended(pending);
        assert_eq!(creations.take_answered(), []);
    }

    #[test]
    fn nothing_is_created_while_a_directory_may_be_removed() {
        let mut creations = lent();
        creations.begin_removal(ObjectId::new(1, 3));
        created(&mut creations);
        (0..2).for_each(|_| creations.begin_removal(dir(5).volume));
        creations.end_removal(dir(5).volume, true);
        assert_eq!(creations.number(at(1), dir(5), lend(5)), None);
        creations.end_removal(dir(5).volume, true);
        created(&mut creations);
    }

    #[test]
    fn where_a_removal_may_still_come_nothing_more_is_created() {
        let mut creations = lent();
        creations.begin_removal(dir(5).volume);
        creations.end_removal(dir(5).volume, false);
        assert_eq!(creations.number(at(1), dir(5), lend(5)), None);
        assert_eq!(creations.idle_at(), Some(at(0)));
        assert_eq!(creations.take_idle(at(1)), [(dir(5), lend(5))]);
    }

    #[test]
    fn where_something_was_refused_the_next_is_asked_for() {
        let mut creations = lent();
        creations.stop_all(ObjectId::new(1, 3));
        let file = created(&mut creations);
        creations.stop_all(file.volume);
        assert_eq!(creations.number(at(1), dir(5), lend(5)), None);
    }

    #[test]
    fn a_directory_that_is_over_and_that_nobody_wants_back_is_given_back() {
        let mut creations = lent();
        let pending = create(&mut creations);
        creations.stop(dir(5));
        creations.ended(pending);
        assert_eq!(creations.take_idle(at(2)), [(dir(5), lend(5))]);
    }

    #[test]
    fn what_nobody_uses_goes_back_and_is_numbered_no_more() {
        let mut creations = lent();
        let pending = create(&mut creations);
        assert_eq!(creations.take_idle(at(60_000)), [], "something is pending");
        creations.ended(pending);
        assert_eq!(creations.take_idle(at(60_000)), []);
        assert_eq!(creations.idle_at(), Some(at(60_001)));
        assert_eq!(creations.take_idle(at(60_001)), [(dir(5), lend(5))]);
        assert_eq!(creations.number(at(60_001), dir(5), lend(5)), None);
    }

    #[test]
    fn of_many_directories_those_that_nobody_uses_go_back_sooner() {
        let mut creations = Creations::default();
        for number in 0..=MANY as u64 {
            creations.lend(at(number), dir(number), (lend(number), WallTime::ZERO));
        }
        assert_eq!(creations.take_idle(at(5_001)).len(), 2);
        assert_eq!(creations.take_idle(at(59_999)), [], "as many as that may stay");
    }

    #[test]
    fn what_only_this_client_ever_knew_is_used_here() {
        let mut creations = lent();
        let file = entered(&mut creations);
        assert_eq!(creations.use_own(at(2), dir(7)), None, "that one others may have opened");
        let first = creations.count();
        let (pending, used) = creations.use_own(at(2), file).expect("nobody else knows it");
        assert_eq!(used, WallTime::from_micros(2_007), "since the directory was made");
        assert!(creations.concerns(file.volume, &[dir(5).inode], creations.count()));
        assert!(!creations.has_pending(file.volume, first), "that was before");
        assert!(creations.recall((dir(5), lend(5)), RECALL), "the answer waits for that");
        creations.ended(pending);
        assert_eq!(creations.take_answered(), [RECALL]);
        assert_eq!(creations.use_own(at(2), file), None, "the directory is back");
    }

    #[test]
    fn what_was_done_to_a_file_is_told_in_that_order() {
        let mut creations = lent();
        let created = create(&mut creations);
        let other = create(&mut creations);
        let [opened, removed] = [2, 3].map(|ms| creations.use_own(at(ms), created.file).unwrap().0);
        let turns = |creations: &Creations| [created, opened, removed, other].map(|it| creations.turn(it));
        assert_eq!(turns(&creations), [Turn::Now, Turn::Later, Turn::Later, Turn::Now]);
        creations.ended(created);
        assert_eq!(turns(&creations), [Turn::Never, Turn::Now, Turn::Later, Turn::Now]);
        creations.ended(created);
        creations.ended(opened);
        assert_eq!(creations.turn(removed), Turn::Now);
        let count = creations.count();
        assert!(creations.concerns(created.file.volume, &[created.file.inode], count));
        creations.ended(removed);
        assert!(!creations.concerns(created.file.volume, &[created.file.inode], count));
    }

    #[test]
    fn of_a_file_that_never_came_to_be_nothing_more_is_told() {
        let mut creations = lent();
        let created = create(&mut creations);
        let other = create(&mut creations);
        let (removed, _) = creations.use_own(at(2), created.file).expect("nobody else knows it");
        creations.void(created);
        creations.ended(created);
        assert_eq!([removed, other].map(|it| creations.turn(it)), [Turn::Never, Turn::Now]);
        assert!(creations.recall((dir(5), lend(5)), RECALL));
        [removed, other].into_iter().for_each(|it| creations.ended(it));
        assert_eq!(creations.take_answered(), [RECALL]);
    }

    #[test]
    fn nothing_is_used_here_while_a_directory_may_be_removed() {
        let mut creations = lent();
        let file = entered(&mut creations);
        creations.begin_removal(file.volume);
        assert_eq!(creations.use_own(at(2), file), None);
        creations.end_removal(file.volume, true);
        assert!(creations.use_own(at(2), file).is_some());
    }

    #[test]
    fn what_may_have_another_name_is_not_used_here() {
        let place = |dir: FileId| Site::new(dir.inode, Name::new(b"a").unwrap());
        let rename = |from, to| {
            let (from, to, how, holders) = (place(from), place(to), RenameHow::Replace, Vec::new());
            Change::Rename { from, to, how, holders }
        };
        for (spoils, other) in [(true, 5), (false, 6)] {
            for shares in [rename(dir(other), dir(8)), rename(dir(8), dir(other))] {
                let mut creations = lent();
                let file = entered(&mut creations);
                creations.share(file.volume, &shares);
                assert_eq!(creations.use_own(at(2), file).is_none(), spoils);
            }
            let mut creations = lent();
            let file = entered(&mut creations);
            let inode = if spoils { file.inode } else { dir(6).inode };
            let link = Change::Link { inode, dir: dir(8).inode, name: Name::new(b"b").unwrap() };
            creations.share(file.volume, &link);
            assert_eq!(creations.use_own(at(2), file).is_none(), spoils);
        }
        let mut creations = lent();
        let file = entered(&mut creations);
        creations.share(file.volume, &rename(dir(5), dir(5)));
        assert!(creations.use_own(at(2), file).is_some(), "it is where it was");
    }

    #[test]
    fn no_directory_is_removed_by_a_file_that_takes_the_place_of_something_known() {
        let own = created(&mut lent()).inode;
        let site = |expect| Site { dir: dir(5).inode, name: Name::new(b"a").unwrap(), expect };
        let rename = |from, to, how| {
            may_remove_dir(&Change::Rename { from: site(from), to: site(to), how, holders: Vec::new() })
        };
        let [file, any, free] = [Expect::Inode(own), Expect::Any, Expect::Nothing];
        assert!(!rename(file, free, RenameHow::Replace) && !rename(file, file, RenameHow::Replace));
        assert!(rename(any, free, RenameHow::Replace), "it may be a directory");
        assert!(rename(Expect::Inode(dir(7).inode), free, RenameHow::Replace), "so may this");
        assert!(rename(file, any, RenameHow::Replace), "nobody keeps that from being used");
        assert!(rename(file, file, RenameHow::Exchange));
        assert!(may_remove_dir(&Change::RemoveDirectory { site: site(any), holders: Vec::new() }));
        assert!(!may_remove_dir(&Change::Unlink { site: site(any), holders: Vec::new(), removed: None }));
    }
}
