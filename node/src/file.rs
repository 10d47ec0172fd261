//! A file's content, size and times as a state that replicas keep alike; or the directory tree of a volume, which is a file
//! with names in place of bytes.
//!
//! The content is cut into chunks of a fixed size. A chunk that nothing was written to is absent and reads as zeros, so
//! a hole costs nothing however wide it is. Each chunk carries the position of the entry that changed it last, and so do
//! the attributes; a replica that lags fetches the chunks whose versions differ. Content is shared until it is changed:
//! a clone of the state copies none, and a write behind it copies what stands beside it in a chunk. Where the content is, in memory
//! or on a disk, is no part of the state, and what a chunk has is known without it: which of its blocks were written to.
//!
//! Rules:
//!
//! - What an operation does is decided by the state and the operation. Its time is in it, put there by the primary.
//! - An operation that is refused changes nothing, not even a version.
//! - Behind the size everything is zero: what was cut off does not come back when the file grows again.
//! - The time of the last change never goes back, though the clocks of two primaries may differ.
//! - A file that was removed stays as a mark that it was: nothing is kept of its content, and every operation and question is
//!   refused until it is begun anew. Without the mark a replica that slept would bring it back.
//! - What has bytes gets no tree, and what has a tree gets no bytes, until it is removed. What a tree is and does,
//!   the crate `namespace` says.
//!
//! # What is deliberately absent
//!
//! No byte layout, no errno, and no permission but in a tree. No versions for chunks that are absent: whoever takes over a state compares
//! all of its parts, and takes away what the other does not have.

mod change;
mod chunk;
mod chunks;
mod data;
mod lend;
mod payload;
mod request;
#[cfg(test)]
mod tests;
mod tree;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use base::{Span, WallTime};
use bytes::Bytes;
use namespace::cost;
use namespace::{Generation, Lent, LentTo, NameError, Root, Table, VolumeName};
use replication::Machine;
pub use replication::{Mark, Position};

use crate::{AccessError, Bug, CapabilityError, Rules};
pub use change::{Change, Op};
use change::{end_of, within};

pub use chunk::{BLOCK_BYTES, Chunk};
pub use chunks::CHUNK_BYTES;
use chunks::Chunks;
pub use data::{Data, Piece, Place, Stored};
pub use lend::{FileOf, Lend, LendStage};
pub use payload::{Damaged, Payload};
pub use request::{FileBody, FileReply, FileReplyBody, FileRequest, Level};
pub use tree::{Names, Parts as TreeParts};

/// No file is longer. Offsets of POSIX have 63 bits; every chunk below this is a whole one.
pub const FILE_BYTES_MAX: u64 = (1 << 63) - CHUNK_BYTES;
/// One operation carries no more data.
pub const WRITE_BYTES_MAX: u64 = 1 << 20;
/// What an operation, a part or an outcome takes beside its data.
const OVERHEAD_BYTES: u64 = 64;
/// One question asks for no more data.
pub const READ_BYTES_MAX: u64 = 1 << 20;

const _: () = assert!(FILE_BYTES_MAX.is_multiple_of(CHUNK_BYTES), "chunk numbers end with the last byte");
const OUTCOME_BYTES: u64 = size_of::<Result<Done, FileError>>() as u64 + cost::OUTCOME_BYTES_MAX;
const _: () = assert!(WRITE_BYTES_MAX < FILE_BYTES_MAX && READ_BYTES_MAX < FILE_BYTES_MAX);

/// A file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    attributes: Attributes,
    /// The entry that changed the attributes last.
    version: Position,
    chunks: Chunks,
    /// What it has in place of chunks if it is a volume's tree. Without a part there is none.
    tree: Names,
}

/// What came of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Done {
    /// Data was written.
    Written {
        /// Where: for data that was appended, the end of the file until then.
        offset: u64,
        /// The file afterwards.
        stat: Stat,
    },
    /// Something else was changed.
    Changed {
        /// The file afterwards.
        stat: Stat,
    },
    /// The tree was changed.
    Tree(Box<namespace::Done>),
    /// A lend has ended.
    Returned {
        /// Size and times that the tree is to have; none if nothing was written under that lend.
        stat: Option<Stat>,
    },
}

/// Why an operation changed nothing, or a question has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FileError {
    /// The file would become too long.
    #[error("byte {end} is behind the longest possible file; files end at {FILE_BYTES_MAX}")]
    PastLimit {
        /// Where it would end.
        end: u64,
    },
    /// Nothing can end there.
    #[error("{length} bytes from {offset} on end where no offset reaches; choose a smaller offset")]
    Overflow {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        length: u64,
    },
    /// Too much for one step.
    #[error("{length} bytes are too many at once; split them into pieces of {bytes_max}")]
    TooLong {
        /// What was wanted.
        length: u64,
        /// What is possible.
        bytes_max: u64,
    },
    /// A chunk that cannot be.
    #[error("the pieces of a chunk are not in order, or not where it was written to")]
    BadChunk,
    /// It was there once.
    #[error("the file was removed; create it to begin it anew")]
    Removed,
    /// No data is taken until something is removed.
    #[error(
        "no space is left on the disks of a majority of the daemons, or of the one that leads; `fleasefs status` shows which"
    )]
    NoSpace,
    /// A volume's tree has no bytes.
    #[error("this is the directory tree of a volume, and no file; mount the volume, or use another name")]
    IsTree,
    /// What has bytes has no names.
    #[error("this is a file, and no volume; choose another name")]
    IsFile,
    /// No tree was made yet.
    #[error("there is no volume here; create it with `fleasefs volume create`")]
    NoTree,
    /// A volume in which something is.
    #[error("the volume is not empty; remove what is in it first")]
    NotEmpty,
    /// Size and times are the tree's: only a daemon that did not borrow them could ask for this.
    #[error("size and times of the file belong to its volume at present; try again")]
    NotLent,
    /// The service itself does that. `EPERM`.
    #[error("no client may ask for this; the daemons do it themselves")]
    NotForClients,
    /// What the tree says.
    #[error(transparent)]
    Tree(#[from] NameError),
    /// What the rules of the cluster say.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// What was shown for an open file is not good. `EBADF` for what it is not good for, `EACCES` otherwise.
    #[error(transparent)]
    Capability(#[from] CapabilityError),
}

/// A question about a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Query {
    /// What stands there.
    Read {
        /// Where.
        offset: u64,
        /// How much.
        length: u64,
        /// The lend that has to be going on, for who reads what may change. None for who knows from the volume that it does not.
        under: Option<Generation>,
    },
    /// Its size and times.
    Stat,
    /// Where something was written to next.
    Extent {
        /// From here on.
        offset: u64,
        /// As for [`Read`](Self::Read).
        under: Option<Generation>,
    },
    /// Something about the tree.
    Tree(Arc<namespace::Query>),
}

/// What was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The data; it is short where the file ends.
    Data(Data),
    /// Size and times.
    Stat(Stat),
    /// The first bytes that something was written to, and that end behind where it was asked from. None if there are none.
    Extent(Option<Extent>),
    /// What the tree says.
    Tree(Box<namespace::Answer>),
}

/// Bytes that something was written to, and that were not taken away since; and what stands beside them in their blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// The first.
    pub start: u64,
    /// Behind the last. There may be more from there on: not everything is looked through at once.
    pub end: u64,
}

/// What is known about a file without its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// Where it ends.
    pub size: u64,
    /// When its content changed last, or what a `Touch` said.
    pub modified: WallTime,
    /// When anything of it changed last.
    pub changed: WallTime,
    /// How many bytes are kept for it.
    pub allocated: u64,
    /// The lend under which this was so, if the file is a volume's. None if its tree knows better.
    pub lend: Option<Generation>,
}

/// The attributes that are a part of the state. What is allocated follows from the chunks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Attributes {
    size: u64,
    modified: WallTime,
    changed: WallTime,
    /// Nothing but this is left of it.
    is_removed: bool,
    /// The last lend of size and times, if it is a volume's file.
    lend: Option<Lend>,
}

/// The name of a part.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// Size and times.
    Attributes,
    /// A chunk, by its number.
    Chunk(u64),
    /// A part of the tree.
    Tree(namespace::Key),
}

/// What is in a part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Part {
    /// Size and times.
    Attributes(Attributes),
    /// A chunk's content.
    Chunk(Chunk),
    /// A part of the tree.
    Tree(namespace::Part),
}

/// What was changed of a file since somebody asked.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Touched {
    /// Whether nothing is to be kept of what was there before.
    pub is_new: bool,
    /// Chunks that were changed or taken away.
    pub chunks: BTreeSet<u64>,
    /// Parts of the tree that were.
    pub tree: BTreeSet<namespace::Key>,
}

/// A part of a tree that a driver has kept.
pub type KeptName = (namespace::Key, Position, namespace::Part);

impl Default for File {
    fn default() -> Self {
        let tree = namespace::Tree::bare(tree::Parts::default());
        Self {
            attributes: Attributes::default(),
            version: Position::default(),
            chunks: Chunks::default(),
            tree,
        }
    }
}

impl File {
    /// Size, times, and how much is kept.
    pub fn stat(&self) -> Stat {
        let Attributes { size, modified, changed, lend, .. } = self.attributes;
        let lend = lend.filter(|lend| lend.stage != LendStage::Unused).map(|lend| lend.lent.generation);
        Stat { size, modified, changed, allocated: self.chunks.allocated(), lend }
    }

    /// A file whose content a driver has kept.
    pub fn kept(
        (version, attributes): (Position, Attributes),
        chunks: impl IntoIterator<Item = (u64, Position, Chunk)>,
        names: impl IntoIterator<Item = KeptName>,
    ) -> Self {
        let mut file = Self { attributes, version, ..Self::default() };
        chunks.into_iter().for_each(|(number, at, chunk)| file.chunks.place(number, at, chunk));
        names.into_iter().for_each(|(key, at, part)| file.place_name(key, Some((at, part))));
        file.take_changed();
        file
    }

    /// Size and times, and the entry that changed them last.
    pub const fn attributes(&self) -> (Position, Attributes) {
        (self.version, self.attributes)
    }

    /// A chunk and the entry that changed it last.
    pub fn chunk(&self, number: u64) -> Option<&(Position, Chunk)> {
        self.chunks.get(number)
    }

    /// Size and times alone.
    pub(crate) fn without_content(&self) -> Self {
        Self { attributes: self.attributes, version: self.version, ..Self::default() }
    }

    /// What was changed since this was called last.
    pub(crate) fn take_changed(&mut self) -> Touched {
        let (is_new, chunks) = self.chunks.take_changed();
        Touched { is_new, chunks, tree: self.tree.table_mut().take_changed() }
    }

    /// What was taken is to be taken again.
    pub(crate) fn note_changed(&mut self, Touched { is_new, chunks, tree: names }: Touched) {
        self.tree.table_mut().note_changed(names);
        self.chunks.note_changed(is_new, chunks);
    }

    /// An empty file that keeps to the same rules.
    pub fn emptied(&self) -> Self {
        let mut empty = Self::default();
        empty.keep_to(self.tree.table().rules());
        empty
    }

    /// From now on these rules are in force for its tree.
    pub(crate) const fn keep_to(&mut self, rules: Rules) {
        self.tree.table_mut().keep_to(rules);
    }

    /// The tree, which has no part if it is none.
    pub const fn tree(&self) -> &Names {
        &self.tree
    }

    /// What the volume is called that this is the tree of.
    pub(crate) fn volume_name(&self) -> Result<Arc<VolumeName>, FileError> {
        self.check_there()?;
        self.tree.name().ok_or(FileError::NoTree)
    }

    /// A part of the tree and the entry that changed it last.
    pub(crate) fn name(&self, key: &namespace::Key) -> Option<(Position, namespace::Part)> {
        let (at, part) = self.tree.table().get(key)?;
        Some((tree::position(at), part))
    }

    fn place_name(&mut self, key: namespace::Key, part: Option<(Position, namespace::Part)>) {
        self.tree.place(key, part.map(|(at, part)| (tree::born(at), part)));
    }

    /// Whether it is a volume's tree.
    fn has_tree(&self) -> bool {
        !self.tree.table().is_empty()
    }

    fn plant(&mut self, at: Position, root: &Root) -> Result<(), FileError> {
        if self.has_tree() {
            return Err(FileError::IsTree);
        }
        if self.attributes.size > 0 || self.chunks.allocated() > 0 {
            return Err(FileError::IsFile);
        }
        self.tree.plant(tree::born(at), root);
        self.modify(at, root.time);
        Ok(())
    }

    fn change_tree(&mut self, at: Position, op: &namespace::Op) -> Result<Done, FileError> {
        if !self.has_tree() {
            return Err(FileError::NoTree);
        }
        let mut op = Cow::Borrowed(op);
        if self.tree.table().breaks(Bug::EntryTimeIgnored) {
            op.to_mut().time = op.time + Span::from_micros(1);
        }
        Ok(Done::Tree(Box::new(self.tree.apply(tree::born(at), &op)?)))
    }

    pub(crate) fn keep_elsewhere(&mut self, number: u64, at: Position, chunk: Chunk) {
        self.chunks.keep_elsewhere(number, at, chunk);
    }

    fn write(&mut self, at: Position, time: WallTime, offset: u64, data: &Bytes) -> Result<Done, FileError> {
        let length = data.len() as u64;
        let end = end_of(offset, length)?;
        if !data.is_empty() {
            self.chunks.write(at, offset, data);
            self.attributes.size = self.attributes.size.max(end);
            self.modify(at, time);
        }
        Ok(Done::Written { offset, stat: self.stat() })
    }

    fn truncate(&mut self, at: Position, size: u64) {
        if size < self.attributes.size {
            self.chunks.cut(at, size);
        }
        self.attributes.size = size;
    }

    fn remove(&mut self, at: Position, time: WallTime) {
        self.truncate(at, 0);
        self.tree.table_mut().clear();
        (self.attributes.is_removed, self.attributes.lend) = (true, None);
        self.modify(at, time);
    }

    fn begin(&mut self, at: Position, time: WallTime) {
        if self.attributes.is_removed {
            self.attributes.is_removed = false;
            self.modify(at, time);
        }
    }

    fn borrow_times(
        &mut self,
        at: Position,
        (of, lent): (FileOf, Lent),
        (modified, changed): (WallTime, WallTime),
    ) -> Result<(), FileError> {
        match self.attributes.lend {
            Some(lend) if lend.of != of || lend.lent > lent => return Err(FileError::NotLent),
            Some(lend) if lend.lent == lent && lend.is_open() => return Ok(()),
            Some(lend) if lend.lent.generation == lent.generation => return Err(FileError::NotLent),
            Some(_) | None => {}
        }
        self.change(at, changed);
        self.attributes.modified = modified;
        self.attributes.lend = Some(Lend { of, lent, stage: LendStage::Open });
        Ok(())
    }

    fn return_times(
        &mut self,
        at: Position,
        (of, lent): (FileOf, Lent),
        modified: Option<WallTime>,
    ) -> Result<Done, FileError> {
        let stage = match self.attributes.lend {
            Some(lend) if lend.of != of || lend.lent > lent => return Err(FileError::NotLent),
            Some(lend) if lend.lent == lent && lend.is_open() => LendStage::Ended,
            Some(lend) if lend.lent == lent => lend.stage,
            // That it has ended was lost here, and with it nothing that was written under it.
            Some(lend) if lend.is_open() => LendStage::Ended,
            Some(_) | None => LendStage::Unused,
        };
        self.version = at;
        self.attributes.modified = modified.unwrap_or(self.attributes.modified);
        self.attributes.lend = Some(Lend { of, lent, stage });
        Ok(Done::Returned { stat: (stage == LendStage::Ended).then(|| self.stat()) })
    }

    /// Without a lend nothing is written to a volume's file, and what is lent to a client is written to under that very lend.
    fn check_lent(&self, under: Option<Generation>) -> Result<(), FileError> {
        let is_lent = match (self.attributes.lend, under) {
            (_, Some(_)) if self.tree.table().breaks(Bug::FlushNotFenced) => true,
            (lend, Some(under)) => Self::is_lent_under(lend, under),
            (None, None) => true,
            (Some(lend), None) => lend.is_open() && lend.lent.to == LentTo::Content,
        };
        if is_lent { Ok(()) } else { Err(FileError::NotLent) }
    }

    fn is_lent_under(lend: Option<Lend>, under: Generation) -> bool {
        lend.is_some_and(|lend| lend.is_open() && lend.lent.generation == under)
    }

    /// Nothing is done to a file that was removed, but to begin it anew.
    const fn check_there(&self) -> Result<(), FileError> {
        if self.attributes.is_removed { Err(FileError::Removed) } else { Ok(()) }
    }

    /// The content has changed: later than anything before, if only by a microsecond. So whoever keeps some of it sees by the
    /// time that there is something new, however many changes a primary makes at one reading of its clock.
    fn modify(&mut self, at: Position, time: WallTime) {
        let later = WallTime::from_micros(self.attributes.changed.as_micros().saturating_add(1));
        self.change(at, time.max(later));
        self.attributes.modified = self.attributes.changed;
    }

    /// Something has changed.
    fn change(&mut self, at: Position, time: WallTime) {
        self.version = at;
        self.attributes.changed = self.attributes.changed.max(time);
    }
}

impl Machine for File {
    type Op = Op;
    type Outcome = Result<Done, FileError>;
    type Query = Query;
    type Answer = Result<Answer, FileError>;
    type Key = Key;
    type Part = Part;

    const OP_BYTES_MAX: u64 = WRITE_BYTES_MAX + OVERHEAD_BYTES;
    const OUTCOME_BYTES_MAX: u64 = OUTCOME_BYTES;
    const PART_BYTES_MAX: u64 = {
        let (chunk, name) = (CHUNK_BYTES + OVERHEAD_BYTES, cost::PART_BYTES_MAX);
        if chunk > name { chunk } else { name }
    };

    fn op_bytes(op: &Op) -> u64 {
        OVERHEAD_BYTES + op.change.data_bytes()
    }

    fn part_bytes(part: &Part) -> u64 {
        let data = match part {
            Part::Attributes(_) => 0,
            // In whatever pieces it is kept: it is sent as if its blocks were full, or as less.
            Part::Chunk(chunk) => chunk.allocated(),
            Part::Tree(part) => return cost::part_bytes(part),
        };
        OVERHEAD_BYTES + data
    }

    fn apply(&mut self, at: Position, Op { time, under, change }: &Op) -> Result<Done, FileError> {
        change.check()?;
        if !matches!(change, Change::Begin) {
            self.check_there()?;
        }
        if matches!(change, Change::Remove) && !self.tree.is_empty() {
            return Err(FileError::NotEmpty);
        }
        if self.has_tree() && change.is_of_bytes() {
            return Err(FileError::IsTree);
        }
        if change.is_of_bytes() {
            self.check_lent(*under)?;
        }
        match *change {
            Change::Write { offset, ref data } => return self.write(at, *time, offset, data),
            Change::Append { ref data } => return self.write(at, *time, self.attributes.size, data),
            Change::Truncate { size } => {
                self.truncate(at, size);
                self.modify(at, *time);
            }
            Change::Extend { size } => {
                if size > self.attributes.size {
                    self.truncate(at, size);
                }
                self.modify(at, *time);
            }
            Change::Punch { offset, length } => {
                if length > 0 {
                    self.chunks.punch(at, offset, offset + length);
                    self.modify(at, *time);
                }
            }
            Change::Touch { modified } => {
                self.change(at, *time);
                self.attributes.modified = modified.unwrap_or(self.attributes.changed);
            }
            Change::Remove => self.remove(at, *time),
            Change::Begin => self.begin(at, *time),
            Change::Borrow { of, lent, modified, changed } => {
                self.borrow_times(at, (of, lent), (modified, changed))?;
            }
            Change::Return { of, lent, modified } => {
                return self.return_times(at, (of, lent), modified);
            }
            Change::NoSpace => return Err(FileError::NoSpace),
            Change::Plant(ref root) => self.plant(at, &Root { time: *time, ..root.clone() })?,
            Change::Tree(ref op) => return self.change_tree(at, op),
        }
        Ok(Done::Changed { stat: self.stat() })
    }

    fn answer(&self, query: &Query) -> Result<Answer, FileError> {
        self.check_there()?;
        match *query {
            Query::Stat => Ok(Answer::Stat(self.stat())),
            Query::Tree(_) if !self.has_tree() => Err(FileError::NoTree),
            Query::Tree(ref query) => Ok(Answer::Tree(Box::new(self.tree.answer(query)?))),
            Query::Read { .. } | Query::Extent { .. } if self.has_tree() => Err(FileError::IsTree),
            Query::Read { under: Some(under), .. } | Query::Extent { under: Some(under), .. }
                if !Self::is_lent_under(self.attributes.lend, under) =>
            {
                Err(FileError::NotLent)
            }
            Query::Extent { offset, .. } => {
                let within = offset..self.attributes.size;
                Ok(Answer::Extent(self.chunks.extent(within)))
            }
            Query::Read { offset, length, .. } => {
                within(length, READ_BYTES_MAX)?;
                let end = offset.saturating_add(length).min(self.attributes.size);
                Ok(Answer::Data(self.chunks.read(offset, end)))
            }
        }
    }

    /// What a read from inside the file says is changed only by what meets it, and by a cut before its end. A read that
    /// reaches behind the end is changed by whatever moves the end, too. The end may be moved to before a read by
    /// a cut only, and that is in its way itself.
    fn overlaps(&self, op: &Op, query: &Query) -> bool {
        match (&op.change, query) {
            (Change::Remove | Change::Begin | Change::Plant(_), _) => return true,
            (change, _) if change.is_void() => return false,
            (Change::Tree(op), Query::Tree(query)) => {
                return self.tree.overlaps(op, query);
            }
            (Change::Tree(_), _) | (_, Query::Tree(_)) => return false,
            _ => {}
        }
        let Query::Read { offset, length, .. } = *query else { return true };
        if length == 0 || length > READ_BYTES_MAX {
            return false;
        }
        let end = offset.saturating_add(length);
        let is_inside = end <= self.attributes.size;
        match op.change {
            Change::Write { offset: start, ref data } => {
                // A file that ends before the read still does when it has grown to there.
                start.saturating_add(data.len() as u64) > offset && (start < end || !is_inside)
            }
            Change::Append { .. } => !is_inside,
            Change::Truncate { size } => size < end || !is_inside,
            Change::Extend { .. } => !is_inside,
            Change::Punch { offset: start, length: width } => {
                start < end && offset < start.saturating_add(width)
            }
            Change::Touch { .. }
            | Change::Borrow { .. }
            | Change::Return { .. }
            | Change::NoSpace
            | Change::Tree(_)
            | Change::Remove
            | Change::Begin
            | Change::Plant(_) => false,
        }
    }

    fn versions(&self, after: Option<&Key>, parts_max: usize) -> Vec<(Key, Position)> {
        let attributes = after.is_none().then_some((Key::Attributes, self.version));
        let behind_chunks = matches!(after, Some(Key::Tree(_)));
        let (chunk, name) = match after {
            Some(Key::Chunk(number)) => (Some(*number), None),
            Some(Key::Tree(name)) => (None, Some(name)),
            Some(Key::Attributes) | None => (None, None),
        };
        let chunks = self.chunks.versions(chunk).filter(|_| !behind_chunks);
        let chunks = chunks.map(|(number, at)| (Key::Chunk(number), at));
        let mut versions: Vec<_> = attributes.into_iter().chain(chunks).take(parts_max).collect();
        let hides_names = self.tree.table().breaks(Bug::NamesNotListed);
        let names_max = if hides_names { 0 } else { parts_max - versions.len() };
        let names = self.tree.versions(name, names_max);
        versions.extend(names.into_iter().map(|(key, at)| (Key::Tree(key), tree::position(at))));
        versions
    }

    fn version(&self, key: &Key) -> Option<Position> {
        match key {
            Key::Attributes => Some(self.version),
            Key::Chunk(number) => self.chunks.version(*number),
            Key::Tree(key) => self.tree.version(key).map(tree::position),
        }
    }

    fn part(&self, key: &Key) -> Option<Part> {
        match key {
            Key::Attributes => Some(Part::Attributes(self.attributes)),
            Key::Chunk(number) => self.chunks.get(*number).map(|(_, chunk)| Part::Chunk(chunk.clone())),
            Key::Tree(key) => self.tree.part(key).map(Part::Tree),
        }
    }

    /// A part that is none of this key's is not taken; [`Part::is_of`] tells beforehand.
    fn place(&mut self, key: Key, part: Option<(Position, Part)>) {
        match (key, part) {
            (Key::Attributes, None) => (self.version, self.attributes) = Default::default(),
            (Key::Attributes, Some((at, Part::Attributes(attributes)))) => {
                (self.version, self.attributes) = (at, attributes);
            }
            (Key::Chunk(number), None) => self.chunks.remove(number),
            (Key::Chunk(number), Some((at, Part::Chunk(chunk)))) if Key::Chunk(number).is_possible() => {
                self.chunks.place(number, at, chunk);
            }
            (Key::Tree(key), None) => self.place_name(key, None),
            (Key::Tree(key), Some((at, Part::Tree(part)))) => self.place_name(key, Some((at, part))),
            (Key::Attributes | Key::Chunk(_) | Key::Tree(_), Some(_)) => {}
        }
    }
}

impl Query {
    /// How much data the answer has at most, roughly.
    pub fn answer_bytes_max(&self) -> u64 {
        match self {
            Self::Read { length, .. } => *length,
            Self::Stat | Self::Extent { .. } => 0,
            Self::Tree(query) => cost::answer_bytes_max(query),
        }
    }
}

impl Attributes {
    /// Attributes of a file that can be.
    pub fn new(size: u64, modified: WallTime, changed: WallTime) -> Result<Self, FileError> {
        end_of(size, 0)?;
        Ok(Self { size, modified, changed, is_removed: false, lend: None })
    }

    /// The same, of a volume's file.
    pub const fn lent(self, lend: Lend) -> Self {
        Self { lend: Some(lend), ..self }
    }

    /// What is left of a file that was removed.
    pub const fn removed(modified: WallTime, changed: WallTime) -> Self {
        Self { size: 0, modified, changed, is_removed: true, lend: None }
    }

    /// Whether nothing but this is left of the file.
    pub const fn is_removed(&self) -> bool {
        self.is_removed
    }

    /// Where the file ends.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// When its content changed last, or what a `Touch` said.
    pub const fn modified(&self) -> WallTime {
        self.modified
    }

    /// When anything of it changed last.
    pub const fn changed(&self) -> WallTime {
        self.changed
    }

    /// The last lend of size and times, if it is a volume's file.
    pub const fn lend(&self) -> Option<Lend> {
        self.lend
    }
}

impl Key {
    /// Whether a file can have such a part.
    pub const fn is_possible(&self) -> bool {
        match self {
            Self::Attributes | Self::Tree(_) => true,
            Self::Chunk(number) => *number < FILE_BYTES_MAX / CHUNK_BYTES,
        }
    }
}

impl Part {
    /// Whether this can be what `key` names. What a peer sends is to be asked this before it is placed.
    pub const fn is_of(&self, key: &Key) -> bool {
        match (key, self) {
            (Key::Attributes, Self::Attributes(_)) => true,
            (Key::Chunk(_), Self::Chunk(_)) => key.is_possible(),
            (Key::Tree(key), Self::Tree(part)) => part.is_of(key),
            (Key::Attributes | Key::Chunk(_) | Key::Tree(_), _) => false,
        }
    }
}
