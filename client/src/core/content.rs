//! What a client knows of the content of volumes' files, and what it has written and not sent yet.
//!
//! Content is kept in blocks, each file's with the lend under which it came to be (its *tag*). Whoever knows from the volume that nobody
//! changes the file, and under which lend it was changed last, may be answered from what has that tag. What is *lent* to this client it
//! alone reads and changes: size, times and what its owner sets are here, and what is written stays here for a while.
//!
//! Rules:
//!
//! - What is written is what is read from then on, whether it was sent or not.
//! - What is changed while it is sent is sent again, and not before that has an outcome. What is cut off is cut off before anything
//!   is sent that was written after it.
//! - It is sent in the order of offsets: when it has waited for a while, when it is much, when somebody wants it durable, when it is
//!   wanted back, and when the session is nearly over. What somebody wants durable, a size too, goes before what came later.
//! - When somebody else wants the file nothing is answered or taken here any more; what is here is sent, the lend is returned, and
//!   then the revocation is answered. What is slow of one file does not delay that of another.
//! - Nothing of it is dropped because a session or a connection is over: that only ends what is answered, which is not decided here.
//! - What could not be sent or set for good is an error, which everybody who has the file open is told once; if nobody was, whoever opens
//!   it next.
//! - Of a file that is gone and that nobody has open nothing is sent any more.
//!
//! # Contract
//!
//! No clock, no output. Whoever has a lend here calls [`next`](Contents::next) after everything that was done to it and when it says,
//! does what that wants, and tells what came of it by [`sent`](Contents::sent) and [`returned`](Contents::returned). Whoever asks
//! or changes something has made sure *at that time, and without letting go of what that depends on,* that the volume's grant allows it.
//!
//! # What is deliberately absent
//!
//! Whether a grant is good: [`grants`](super::grants) knows. Whether the daemons have room for what is written: they say so when it is sent.

mod changing;
mod extents;
mod known;
mod lend;
mod looking;
mod owner;
mod pages;
mod reading;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use base::{MonoTime, NodeId, ObjectId, WallTime};
use bytes::Bytes;
use namespace::{Attributes, Generation, InodeId, Who};
use node::file::{CHUNK_BYTES, FILE_BYTES_MAX, FileError, Level};

use super::{Bug, Rules};

pub use changing::{Borrowed, ChangeStep, Changing, Lent, Through};
pub use known::{Known, Whose};
use lend::{Lend, Pressure};
pub use looking::{LookStep, Looking};
use pages::{Pages, blocks};
pub use reading::{ReadStep, Reading, Said, Under};

/// Content is kept in pieces of this length.
pub const BLOCK_BYTES: u64 = 128 << 10;
/// So much is kept that was not changed here.
const KEPT_BYTES: usize = 256 << 20;
/// When so much is here that was not taken in, more is not taken.
const UNSENT_BYTES: usize = 64 << 20;
/// When so much is, all of it is sent.
const MUCH_BYTES: usize = 16 << 20;
/// Of so many files it is known which lend of theirs is over.
const OVER_MAX: usize = 4_096;
/// Of so many files that nobody has open it is known that nobody was told what went wrong.
const UNTOLD_MAX: usize = 1_024;

const _: () = assert!(BLOCK_BYTES.is_multiple_of(CHUNK_BYTES), "a block is made of chunks");
const _: () = assert!(MUCH_BYTES < UNSENT_BYTES, "what waits is sent before nothing fits");

/// A file of a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileId {
    /// The volume's object.
    pub volume: ObjectId,
    /// The file.
    pub inode: InodeId,
}

/// Names something that is being sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlushId(pub u64);

/// A revocation that is not answered yet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Recall {
    /// Of which daemon.
    pub from: NodeId,
    /// Which.
    pub number: u64,
}

/// What a daemon says that is the end of something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It is impossible.
    Refused(FileError),
    /// The lend was taken back.
    NotLent,
    /// The file is gone.
    Removed,
    /// The client has ended.
    Ended,
}

/// How far something that was sent has come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sent {
    /// It is taken in.
    Done,
    /// Nobody has said.
    Unknown,
    /// It never will be.
    Failed(Fault),
}

/// What the owner of a file has set, which is known here alone as long as it is lent. What is absent stays.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct OwnerSet {
    /// When its content was changed last.
    pub modified: Option<WallTime>,
    /// When it was read last.
    pub accessed: Option<WallTime>,
    /// Its permissions, and who gave it these.
    pub mode: Option<(u16, Who)>,
}

/// What is shown of a file that is lent to this client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shown {
    /// Its size.
    pub size: u64,
    /// When its content was changed last.
    pub modified: WallTime,
    /// When it was read last, if that is not what the tree says.
    pub accessed: Option<WallTime>,
    /// Its permissions, if they are not what the tree says.
    pub mode: Option<u16>,
    /// When anything was changed last.
    pub changed: WallTime,
}

impl Shown {
    /// What the tree says.
    pub const fn of(&Attributes { size, mtime, ctime, .. }: &Attributes) -> Self {
        Self { size, modified: mtime, accessed: None, mode: None, changed: ctime }
    }
}

/// Something to do for a lend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Work {
    /// Write this, one behind the other.
    Write {
        /// What it goes by.
        flush: FlushId,
        /// Where.
        offset: u64,
        /// What.
        data: Vec<Bytes>,
        /// How safe it is to be: synced with that if somebody waits for it.
        level: Level,
    },
    /// Give the content this size.
    Resize {
        /// What it goes by.
        flush: FlushId,
        /// Which.
        size: u64,
        /// How safe it is to be.
        level: Level,
    },
    /// Return the lend to the volume.
    Return {
        /// What to set.
        set: OwnerSet,
        /// When anything was changed last.
        changed: WallTime,
        /// Whether nothing was ever sent under it.
        is_untouched: bool,
    },
}

/// What is to be done for a lend.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// This, and then ask again.
    Work(Work),
    /// Nothing before then, or before something happens.
    Wait(Option<MonoTime>),
    /// It is no lend of this client any more.
    Over,
}

/// What is to be had of a file: the end is that of the file, or of what was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    range: Range<u64>,
    pieces: Vec<(u64, Bytes)>,
    /// Behind this a daemon has nothing that counts.
    upto: u64,
    /// These blocks are to be had from a daemon.
    pub missing: Vec<u64>,
    /// What is to be said with them.
    pub mark: PlanMark,
}

/// When a plan was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlanMark {
    /// Whose lend the content is, or what it was before.
    tag: Option<Generation>,
    lend: Option<(Generation, u64)>,
    /// How much was begun by then that changes the content.
    begins: u64,
}

/// Who knows that a file may be read here, and what of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View {
    /// Nobody changes it: under which lend it was changed last, and how long it is.
    Still(Option<Generation>, u64),
    /// It is lent to this client.
    Lent(Generation),
}

/// What is known of a file beside its content.
#[derive(Debug, Default)]
struct File {
    lend: Option<Lend>,
    /// So often it is open.
    opens: usize,
    /// So many calls have the volume set what the owner may set here.
    judged: usize,
    /// Nothing names it any more.
    is_gone: bool,
    /// How often something went wrong, of how many of these somebody was told, and what was the last.
    faults: u64,
    told: u64,
    fault: Option<Fault>,
}

/// The content of files as a client knows it.
#[derive(Debug)]
pub struct Contents {
    /// Which program this client is: lends to others have other numbers.
    program: u64,
    rules: Rules,
    files: BTreeMap<FileId, File>,
    pages: Pages,
    /// The last lends that were here and are over, and whether what was written to the file went with it.
    over: BTreeMap<FileId, (Generation, bool)>,
    over_order: VecDeque<FileId>,
    flush: FlushId,
    /// The memory that all takes that was not taken in.
    unsent_bytes: usize,
    answered: Vec<Recall>,
    lost: Vec<(FileId, Range<u64>)>,
    /// Files that were closed before somebody was told what went wrong.
    untold: VecDeque<FileId>,
}

impl Contents {
    /// A program knows nothing yet.
    pub const fn new(program: u64) -> Self {
        Self {
            program,
            rules: Rules::ALL,
            files: BTreeMap::new(),
            pages: Pages::new(KEPT_BYTES),
            over: BTreeMap::new(),
            over_order: VecDeque::new(),
            flush: FlushId(0),
            unsent_bytes: 0,
            answered: Vec::new(),
            lost: Vec::new(),
            untold: VecDeque::new(),
        }
    }

    /// The same, by these rules.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// Somebody opens a file. Returns how many of its faults are none of theirs.
    pub fn open(&mut self, id: FileId) -> u64 {
        let file = self.files.entry(id).or_default();
        file.opens += 1;
        // What nobody was told is for whoever comes next.
        file.faults - u64::from(file.faults > file.told)
    }

    /// Whether somebody has it open.
    pub fn is_open(&self, id: FileId) -> bool {
        self.files.get(&id).is_some_and(|file| file.opens > 0)
    }

    /// Somebody closes a file. Whether its lend is over by that.
    pub fn close(&mut self, id: FileId) -> bool {
        let Some(file) = self.files.get_mut(&id) else { return false };
        file.opens -= 1;
        let ends = file.is_gone && file.opens == 0;
        if ends {
            self.drop_removed(id);
        }
        self.tidy(id);
        ends
    }

    /// What went wrong since `known` faults were told, and how many there are.
    pub fn fault(&self, id: FileId, known: u64) -> Option<(u64, Fault)> {
        let file = self.files.get(&id).filter(|file| file.faults > known)?;
        Some((file.faults, file.fault.clone()?))
    }

    /// Somebody was told of so many.
    pub fn note_told(&mut self, id: FileId, told: u64) {
        if let Some(file) = self.files.get_mut(&id) {
            file.told = file.told.max(told);
        }
        self.tidy(id);
    }

    /// A file is lent to this client. Whether it was not known before, and somebody has to look after it.
    pub fn adopt(
        &mut self,
        now: MonoTime,
        id: FileId,
        (generation, before): (Generation, Option<Generation>),
        shown: Shown,
    ) -> bool {
        if self.has_ended(id, generation) {
            return false;
        }
        match self.generation(id) {
            Some(known) if known >= generation => return false,
            Some(_) => self.lose_lend(id, Fault::NotLent),
            None => {}
        }
        self.pages.tag(id, before);
        let lend = Lend::new(now, (generation, before), shown);
        self.files.entry(id).or_default().lend = Some(lend);
        true
    }

    /// The lend that is here, whether anything is answered by it or not.
    pub fn generation(&self, id: FileId) -> Option<Generation> {
        Some(self.lend(id)?.generation)
    }

    /// Whether a lend is over here, as far as that is remembered.
    pub fn has_ended(&self, id: FileId, generation: Generation) -> bool {
        self.over.get(&id).is_some_and(|(over, _)| *over >= generation)
    }

    /// What is shown of a file, if it is lent under this generation.
    pub fn shows(&self, id: FileId, generation: Generation) -> Option<Shown> {
        let Lend { size, modified, accessed, mode, changed, .. } = self.served(id, generation)?;
        let mode = mode.as_ref().map(|(mode, _)| *mode);
        Some(Shown { size: *size, modified: *modified, accessed: *accessed, mode, changed: *changed })
    }

    /// Until when a lend that is shown is not given back, unless somebody wants it back, or a call about the file has it returned.
    pub fn rests_until(&self, id: FileId, generation: Generation) -> Option<MonoTime> {
        self.served(id, generation)?.rests_until()
    }

    /// Whether whoever looks after a lend has to know at once of what was changed at `now`.
    pub fn urges(&self, now: MonoTime, id: FileId) -> bool {
        let lend = self.files.get(&id).and_then(|file| file.lend.as_ref());
        self.unsent_bytes > MUCH_BYTES || lend.is_some_and(|lend| lend.urges(now))
    }

    /// A lend of which nothing is known here is not to be used: it is on its way back. False if it is known.
    pub fn disown(&mut self, id: FileId, generation: Generation) -> bool {
        let is_unknown = self.generation(id) != Some(generation);
        if is_unknown && !self.rules.breaks(Bug::RevokedLendUsed) {
            self.note_over(id, generation);
        }
        is_unknown
    }

    /// Whether more may be written.
    pub const fn has_room(&self) -> bool {
        self.unsent_bytes < UNSENT_BYTES
    }

    /// Something is written. None if it is not lent, or wanted back.
    pub fn write(
        &mut self,
        at: (MonoTime, WallTime),
        (id, generation): (FileId, Generation),
        (offset, data): (Option<u64>, &Bytes),
    ) -> Option<Result<u64, FileError>> {
        self.serving((id, generation), |lend| {
            let offset = offset.unwrap_or(lend.size);
            check_end(offset.saturating_add(data.len() as u64))?;
            lend.write(at, offset, data);
            Ok(offset)
        })
    }

    /// It gets this size. None if it is not lent, or wanted back.
    pub fn truncate(
        &mut self,
        at: (MonoTime, WallTime),
        (id, generation): (FileId, Generation),
        size: u64,
    ) -> Option<Result<(), FileError>> {
        if let Err(error) = check_end(size) {
            return Some(Err(error));
        }
        self.serving((id, generation), |lend| lend.truncate(at, size))?;
        self.pages.cut(id, size);
        Some(Ok(()))
    }

    /// It gets at least this size. None if it is not lent, or wanted back.
    pub fn extend(
        &mut self,
        at: (MonoTime, WallTime),
        (id, generation): (FileId, Generation),
        size: u64,
    ) -> Option<Result<(), FileError>> {
        let size = size.max(self.served(id, generation)?.size);
        self.truncate(at, (id, generation), size)
    }

    /// How to read. None if it is not lent, or wanted back.
    pub fn plan(&mut self, id: FileId, view: View, range: Range<u64>) -> Option<Plan> {
        let (size, upto, mark) = match view {
            View::Still(tag, size) => {
                if self.rules.breaks(Bug::OldBlocksRead) {
                    self.pages.retag(id, tag);
                }
                self.pages.tag(id, tag);
                (size, if tag.is_some() { size } else { 0 }, PlanMark { tag, lend: None, begins: 0 })
            }
            View::Lent(generation) => {
                let lend = self.served(id, generation)?;
                let (tag, begins) = (lend.before, lend.begins);
                let mark = PlanMark { tag, lend: Some((generation, lend.changes)), begins };
                (lend.size, lend.upto(), mark)
            }
        };
        let range = range.start..range.end.min(size).max(range.start);
        let own = self.files.get(&id).and_then(|file| file.lend.as_ref()).filter(|_| mark.lend.is_some());
        let own = own.map(|lend| lend.extents.within(&range)).unwrap_or_default();
        let (mut pieces, mut missing) = (Vec::new(), Vec::new());
        for block in blocks(&(range.start..range.end.min(upto).max(range.start))) {
            let start = block * BLOCK_BYTES;
            let wanted = start.max(range.start)..(start + BLOCK_BYTES).min(range.end).min(upto);
            if covers(&own, &wanted) {
                continue;
            }
            match self.pages.get(id, block) {
                Some(data) => pieces.push((start, data)),
                None => missing.push(block),
            }
        }
        pieces.extend(own);
        Some(Plan { range, pieces, upto, missing, mark })
    }

    /// What was read from a daemon for a plan, a block: it is kept if it still is what a daemon would say.
    pub fn keep(&mut self, id: FileId, mark: PlanMark, (block, data): (u64, &Bytes)) {
        let is_same = match mark.lend {
            None => self.pages.has_tag(id, mark.tag) && self.generation(id).is_none(),
            Some((generation, changes)) => self.served(id, generation).is_some_and(|lend| {
                lend.changes == changes && !lend.has_flights() && lend.upto() >= block * BLOCK_BYTES
            }),
        };
        if !is_same && !self.rules.breaks(Bug::ChangedBlockKept) {
            return;
        }
        let upto = self.files.get(&id).and_then(|file| Some(file.lend.as_ref()?.upto())).unwrap_or(u64::MAX);
        let length = upto.saturating_sub(block * BLOCK_BYTES).min(data.len() as u64);
        let length = usize::try_from(length).expect("it is no longer than what is in memory");
        self.pages.put(id, block, data.slice(..length));
    }

    /// Whether what a content says of these blocks may be of a later time than a plan: something was sent since that it may have or not.
    pub fn may_differ(&self, id: FileId, mark: PlanMark, blocks: &[u64]) -> bool {
        let Some((generation, _)) = mark.lend else { return false };
        let lend = self.files.get(&id).and_then(|file| file.lend.as_ref());
        lend.filter(|lend| lend.generation == generation).is_none_or(|lend| {
            blocks.iter().any(|block| {
                let start = block * BLOCK_BYTES;
                lend.may_differ(mark.begins, &(start..start + BLOCK_BYTES))
            })
        })
    }

    /// Whether a block is kept.
    pub fn has(&self, id: FileId, block: u64) -> bool {
        self.pages.has(id, block)
    }

    /// Everything that was changed until now is to be sent. Returns what to ask [`has_sent`](Self::has_sent) for; none if nothing is here.
    pub fn want(&mut self, id: FileId, level: Level) -> Option<(Generation, u64)> {
        if self.rules.breaks(Bug::SyncForgetsLend) {
            return None;
        }
        let lend = self.files.get_mut(&id)?.lend.as_mut()?;
        Some((lend.generation, lend.want(level)))
    }

    /// Whether all that was wanted was taken in, or never will be.
    pub fn has_sent(&self, id: FileId, (generation, order): (Generation, u64)) -> bool {
        let lend = self.files.get(&id).and_then(|file| file.lend.as_ref());
        lend.is_none_or(|lend| lend.generation != generation || lend.has_sent(order))
    }

    /// A daemon wants a lend back. Whether the answer has to wait for that: what is not known here never will be.
    pub fn recall(&mut self, (id, generation): (FileId, Generation), recall: Option<Recall>) -> bool {
        if self.disown(id, generation) {
            return false;
        }
        let is_here = self.with_lend((id, generation), |lend| lend.recall(recall)).is_some();
        if self.rules.breaks(Bug::DirtyDropped) {
            self.drop_lend(id);
        }
        is_here && !self.rules.breaks(Bug::AnsweredBeforeSent)
    }

    /// What is here is to be returned, whoever wants that. Whether anything is.
    pub fn give_back(&mut self, id: FileId) -> bool {
        let lend = self.files.get_mut(&id).and_then(|file| file.lend.as_mut());
        lend.map(|lend| lend.recall(None)).is_some()
    }

    /// Everything is to be returned.
    pub fn recall_all(&mut self) {
        self.files.values_mut().filter_map(|file| file.lend.as_mut()).for_each(|lend| lend.recall(None));
    }

    /// The client ends: nothing more is sent.
    pub fn end(&mut self) {
        let lent = self.files.iter().filter(|(_, file)| file.lend.is_some());
        let lent: Vec<FileId> = lent.map(|(&id, _)| id).collect();
        lent.into_iter().for_each(|id| self.lose_lend(id, Fault::Ended));
    }

    /// Files of which something went wrong that nobody was told.
    pub fn untold(&self) -> impl Iterator<Item = FileId> {
        self.files.iter().filter(|(_, file)| file.faults > file.told).map(|(&id, _)| id)
    }

    /// Whether nothing was written that is not sent, and nothing set that is not returned.
    pub fn has_sent_all(&self) -> bool {
        let is_told = |lend: &Lend| lend.is_clean() && !lend.has_own_set();
        let is_sent = |file: &File| file.is_gone || file.lend.as_ref().is_none_or(is_told);
        self.files.values().all(is_sent)
    }

    /// Whether nothing is lent.
    pub fn has_no_lends(&self) -> bool {
        self.files.values().all(|file| file.lend.is_none())
    }

    /// A connection is gone: over it nothing is answered.
    pub fn forget_recalls(&mut self, node: NodeId) {
        let lends = self.files.values_mut().filter_map(|file| file.lend.as_mut());
        lends.for_each(|lend| lend.forget_recalls(node));
        self.answered.retain(|recall| recall.from != node);
    }

    /// Whether a revocation is to be answered.
    pub const fn has_answered(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Which revocations are to be answered.
    pub fn take_answered(&mut self) -> Vec<Recall> {
        std::mem::take(&mut self.answered)
    }

    /// What was written and is lost, to be said to whoever runs this.
    pub fn take_lost(&mut self) -> Vec<(FileId, Range<u64>)> {
        std::mem::take(&mut self.lost)
    }

    /// What is to be done about a lend at `now`, when the session lasts, unless it is confirmed, until `by` for this.
    pub fn next(
        &mut self,
        now: MonoTime,
        (id, generation): (FileId, Generation),
        by: Option<MonoTime>,
    ) -> Step {
        let pressure = Pressure { is_full: self.unsent_bytes > MUCH_BYTES, by };
        self.flush.0 += 1;
        let flush = self.flush;
        self.with_lend((id, generation), |lend| lend.next(now, pressure, flush)).unwrap_or(Step::Over)
    }

    /// This came of what was sent.
    pub fn sent(
        &mut self,
        now: MonoTime,
        (id, generation): (FileId, Generation),
        (flush, sent): (FlushId, Sent),
    ) {
        let file = (id, generation);
        match sent {
            Sent::Done => {
                let Some((pieces, upto)) = self.with_lend(file, |lend| (lend.sent(flush), lend.upto()))
                else {
                    return;
                };
                pieces.iter().for_each(|(offset, data)| self.pages.patch(id, (*offset, data), upto));
            }
            Sent::Unknown => _ = self.with_lend(file, |lend| lend.unsent(now, flush)),
            Sent::Failed(fault) if fault.ends_lend() => self.end_lend(file, fault),
            Sent::Failed(fault) => {
                let refused = self.with_lend(file, |lend| (lend.refused(flush), lend.before));
                let Some((lost, before)) = refused else { return };
                self.lost.extend(lost.map(|range| (id, range)));
                self.note_fault(id, fault);
                self.pages.drop_file(id);
                self.pages.tag(id, before);
            }
        }
    }

    /// This came of the return of a lend.
    pub fn returned(&mut self, (id, generation): (FileId, Generation), sent: Sent) {
        let Some(file) = self.files.get_mut(&id) else { return };
        let Some(lend) = file.lend.as_mut().filter(|lend| lend.generation == generation) else { return };
        match sent {
            Sent::Unknown => lend.not_returned(),
            Sent::Done => {
                if lend.is_touched() {
                    self.pages.retag(id, Some(generation));
                }
                self.drop_lend(id);
            }
            // Everything was taken in before, but for what was set.
            Sent::Failed(fault) => {
                if lend.has_own_set() {
                    self.note_fault(id, fault);
                }
                self.pages.drop_file(id);
                self.drop_lend(id);
            }
        }
        self.tidy(id);
    }

    /// A lend that is here is over, as the volume or the content says.
    pub fn end_lend(&mut self, (id, generation): (FileId, Generation), fault: Fault) {
        if self.generation(id) == Some(generation) {
            self.lose_lend(id, fault);
        }
    }

    /// A file that this client has created is not there, as its volume says: nothing that was written to it will be.
    pub fn refuse(&mut self, (id, generation): (FileId, Generation), fault: Fault) {
        self.end_lend((id, generation), fault.clone());
        self.note_fault(id, fault);
    }

    /// Nothing names a file any more: unless somebody has it open nothing of it is sent.
    pub fn removed(&mut self, id: FileId) {
        let Some(file) = self.files.get_mut(&id) else { return };
        file.is_gone = true;
        if file.opens == 0 {
            self.drop_removed(id);
            self.pages.drop_file(id);
        }
        self.tidy(id);
    }

    /// Whether it was removed with what was written to it: whoever has it from before opens it no more, although the volume takes it to be open until
    /// it is told.
    pub fn was_dropped(&self, id: FileId) -> bool {
        self.over.get(&id).is_some_and(|&(_, was_dropped)| was_dropped)
    }

    fn drop_removed(&mut self, id: FileId) {
        self.drop_lend(id);
        if let Some((_, was_dropped)) = self.over.get_mut(&id) {
            *was_dropped = true;
        }
    }

    fn lend(&self, id: FileId) -> Option<&Lend> {
        self.files.get(&id)?.lend.as_ref()
    }

    fn served(&self, id: FileId, generation: Generation) -> Option<&Lend> {
        let lend = self.lend(id)?;
        (lend.generation == generation && lend.serves()).then_some(lend)
    }

    /// Changes what is lent, if that is allowed here.
    fn serving<T>(&mut self, file: (FileId, Generation), act: impl FnOnce(&mut Lend) -> T) -> Option<T> {
        self.with_lend(file, |lend| lend.serves().then(|| act(lend)))?
    }

    fn with_lend<T>(
        &mut self,
        (id, generation): (FileId, Generation),
        act: impl FnOnce(&mut Lend) -> T,
    ) -> Option<T> {
        let lend = self.files.get_mut(&id)?.lend.as_mut().filter(|lend| lend.generation == generation)?;
        let before = lend.extents.bytes();
        let result = act(lend);
        self.unsent_bytes = self.unsent_bytes - before + lend.extents.bytes();
        Some(result)
    }

    fn note_fault(&mut self, id: FileId, fault: Fault) {
        if let Some(file) = self.files.get_mut(&id) {
            (file.faults, file.fault) = (file.faults + 1, Some(fault));
        }
    }

    /// A lend is over, and what it has goes with it.
    fn lose_lend(&mut self, id: FileId, fault: Fault) {
        if let Some(lend) = self.lend(id).filter(|lend| !lend.is_clean() || lend.has_own_set()) {
            self.lost.extend(lend.lost().into_iter().map(|range| (id, range)));
            self.note_fault(id, fault);
        }
        self.pages.drop_file(id);
        self.drop_lend(id);
        self.tidy(id);
    }

    fn drop_lend(&mut self, id: FileId) {
        let Some(mut lend) = self.files.get_mut(&id).and_then(|file| file.lend.take()) else { return };
        self.unsent_bytes -= lend.extents.bytes();
        self.answered.extend(lend.take_recalls());
        self.note_over(id, lend.generation);
    }

    fn note_over(&mut self, id: FileId, generation: Generation) {
        let over = self.over.entry(id).or_insert_with(|| {
            self.over_order.push_back(id);
            (generation, false)
        });
        over.0 = over.0.max(generation);
        if self.over_order.len() > OVER_MAX
            && let Some(oldest) = self.over_order.pop_front()
        {
            self.over.remove(&oldest);
        }
    }

    fn tidy(&mut self, id: FileId) {
        let is_idle = |file: &&File| (file.opens, file.judged) == (0, 0) && file.lend.is_none();
        let Some(file) = self.files.get(&id).filter(is_idle) else { return };
        if file.faults == file.told || file.is_gone {
            self.files.remove(&id);
        } else if !self.untold.contains(&id) {
            self.untold.push_back(id);
            if self.untold.len() > UNTOLD_MAX
                && let Some(oldest) = self.untold.pop_front()
                && self.files.get(&oldest).is_some_and(|file| is_idle(&file))
            {
                self.files.remove(&oldest);
            }
        }
    }
}

fn check_end(end: u64) -> Result<(), FileError> {
    if end > FILE_BYTES_MAX { Err(FileError::PastLimit { end }) } else { Ok(()) }
}

/// Whether pieces that are in order leave nothing of a range.
fn covers(pieces: &[(u64, Bytes)], range: &Range<u64>) -> bool {
    let mut upto = range.start;
    for (offset, data) in pieces {
        let end = offset + data.len() as u64;
        if end <= upto {
            continue;
        }
        if *offset > upto {
            return false;
        }
        upto = end;
        if upto >= range.end {
            break;
        }
    }
    upto >= range.end
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("it is no longer than what is in memory")
}
