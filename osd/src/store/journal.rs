//! What was said and must not be forgotten: records in order, each written once, many made durable together.
//!
//! Records are counted from 1 for the life of the store. They are handed over one by one, written in *batches*, and a sync
//! makes all that was written by then durable. A batch stands in a *segment*: one of a few files of one length, filled with
//! zeros when they are made, so that syncing one has no length and no block to note. A segment whose records nobody needs
//! any more is used again as it is.
//!
//! Invariants:
//! - What is found again is a prefix of what was written, and has everything that was ever durable. If that cannot be, the journal
//!   is damaged and does not open: it is not cut to what makes sense.
//! - A torn end is told from damage by what later batches say: each names the record up to which all was durable when it was written.
//! - A batch that was abandoned at a start is not taken for one that follows a later batch: batches are chained by their checksums
//!   and name the start that wrote them, and each start begins with one of its own.
//! - A batch never shares a block with what may be durable, because a block that is being written may be torn.
//! - A checkpoint never waits for space that only it can free: for what it waits for, the journal grows beyond its bound.
//! - A lack of space changes nothing. After any other failure nothing is written any more: nobody knows what the disk holds.
//!
//! ```text
//! batch     a batch's layout
//! recovery  what a start finds
//! ```

mod batch;
mod recovery;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::Arc;

use base::StoreId;

use self::batch::{ALIGN, HEADER_BYTES, Header, LENGTH_BYTES};
pub use self::recovery::{JournalReadError, Search};
use super::bugs::{Bug, Rules};
use super::disk::is_full;
use super::media::{Blob, Media};

/// A block that is being written may be torn as a whole.
const BLOCK_BYTES: u64 = 4_096;
/// How much is written at once to fill a new segment.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The bounds of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JournalLimits {
    /// The length of a segment.
    pub segment_bytes: u64,
    /// How many there may be, unless a checkpoint waits for more.
    pub segments_max: usize,
    /// What only urgent records may use: those that let others be freed.
    pub reserve_bytes: u64,
}

/// An open journal.
pub struct Journal {
    store: StoreId,
    start: u32,
    limits: JournalLimits,
    /// Segments in use, the oldest first. The last one is written to.
    used: VecDeque<Segment>,
    /// Segments that are ready.
    spare: Vec<(u32, Arc<dyn Blob>)>,
    /// Where the next batch would begin in the last segment.
    at: u64,
    /// The batch that is being put together: space for its header, and records.
    batch: Vec<u8>,
    count: u32,
    /// The number of the last record that was handed over, that is written, that is durable.
    last: u64,
    written: u64,
    durable: u64,
    /// The checksum of the last batch.
    previous: u32,
    is_closed: bool,
    rules: Rules,
}

/// A file with batches in it.
struct Segment {
    slot: u32,
    blob: Arc<dyn Blob>,
    /// Its last record.
    last: u64,
}

/// Who may use the last of the space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// New work. It waits if there is no space.
    Ordinary,
    /// What ends work, and so lets space be freed.
    Urgent,
}

/// Why a record was not taken. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AppendError {
    /// No space, until something is freed.
    #[error("the journal is full; it takes more when a checkpoint has freed some of it")]
    Full,
    /// It could not be in any segment.
    #[error("a record of {bytes} bytes is too long for a segment of the journal")]
    TooLong {
        /// How long it is.
        bytes: u64,
    },
}

/// Why a journal was not written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk failed, and what is on it is unknown.
    #[error(
        "the journal could not be written, so the store is closed; check the disk, then restart the daemon"
    )]
    Io(#[from] io::Error),
    /// A record that no segment holds.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// What a start found cannot have been written like this.
    #[error(
        "the journal is damaged: what follows in segment {slot} stands apart; add the node under a new id with an empty store"
    )]
    Mixed {
        /// The segment.
        slot: u32,
    },
    /// It failed before.
    #[error("the journal is closed because the disk failed earlier; check the disk, then restart the daemon")]
    Closed,
}

impl JournalError {
    /// Whether there was no space, and so nothing has changed.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io(error) if is_full(error))
    }
}

/// Makes segments, beside everything else.
#[derive(Clone)]
pub struct Segments {
    media: Arc<dyn Media>,
    limits: JournalLimits,
}

/// A segment that was made.
pub struct MadeSegment {
    slot: u32,
    blob: Arc<dyn Blob>,
}

impl Segments {
    /// For a journal with these bounds in a directory.
    pub fn new(media: Arc<dyn Media>, limits: JournalLimits) -> Self {
        Self { media, limits }
    }

    /// Makes a segment, durably. If there is no space the file is taken away again.
    pub fn make(&self, slot: u32) -> Result<MadeSegment, JournalError> {
        Ok(MadeSegment { slot, blob: Journal::make(&*self.media, slot, self.limits)? })
    }
}

/// A sync to be done, beside everything else.
pub struct Sync {
    blobs: Vec<Arc<dyn Blob>>,
    upto: u64,
}

impl Sync {
    /// Waits for the disk. If it succeeds, [`Journal::handle_synced`] may be told of all records up to the one that it names.
    pub fn run(&self) -> Result<u64, JournalError> {
        self.blobs.iter().try_for_each(|blob| blob.sync())?;
        Ok(self.upto)
    }
}

impl Journal {
    /// The same under these rules.
    #[must_use]
    pub fn with(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// The last record that was handed over.
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// All records up to this one survive the end of the process.
    pub const fn written(&self) -> u64 {
        self.written
    }

    /// All records up to this one survive the power.
    pub const fn durable(&self) -> u64 {
        self.durable
    }

    /// How much space is in use.
    pub fn used_bytes(&self) -> u64 {
        self.used.len() as u64 * self.limits.segment_bytes
    }

    /// How much space there may be.
    pub const fn bytes_max(&self) -> u64 {
        self.limits.segments_max as u64 * self.limits.segment_bytes
    }

    /// Takes a record, in pieces, into the next batch, and returns its number.
    pub fn append(&mut self, record: &[&[u8]], urgency: Urgency) -> Result<u64, AppendError> {
        let bytes: u64 = record.iter().map(|piece| piece.len() as u64).sum();
        let segment_bytes = self.limits.segment_bytes;
        let alone = (HEADER_BYTES + LENGTH_BYTES) as u64 + bytes;
        if u32::try_from(bytes).is_err() || alone + self.limits.reserve_bytes > segment_bytes {
            return Err(AppendError::TooLong { bytes });
        }
        let reserve = if urgency == Urgency::Ordinary { self.limits.reserve_bytes } else { 0 };
        let length = self.batch.len() as u64 + LENGTH_BYTES as u64 + bytes;
        let has_room =
            length + reserve <= self.room() || (!self.spare.is_empty() && length + reserve <= segment_bytes);
        if !has_room {
            return Err(AppendError::Full);
        }
        self.batch.extend(u32::try_from(bytes).expect("checked above").to_le_bytes());
        record.iter().for_each(|piece| self.batch.extend_from_slice(piece));
        self.count += 1;
        self.last += 1;
        Ok(self.last)
    }

    /// How much of the batch may still be in the segment that is written to.
    fn room(&self) -> u64 {
        if self.used.is_empty() { 0 } else { self.limits.segment_bytes.saturating_sub(self.at) }
    }

    /// How many bytes wait to be written.
    pub fn waiting_bytes(&self) -> usize {
        self.batch.len() - HEADER_BYTES
    }

    /// Writes what was handed over, and returns the number of the last record that is written.
    pub fn write(&mut self) -> Result<u64, JournalError> {
        if self.is_closed {
            return Err(JournalError::Closed);
        }
        if self.count > 0 {
            self.write_batch().inspect_err(|_| self.is_closed = true)?;
        }
        Ok(self.written)
    }

    fn write_batch(&mut self) -> io::Result<()> {
        if self.batch.len() as u64 > self.room() {
            let (slot, blob) = self.spare.pop().expect("nothing is taken that has no room");
            self.used.push_back(Segment { slot, blob, last: 0 });
            self.at = 0;
        }
        let header = Header {
            start: self.start,
            first: self.written + 1,
            count: self.count,
            length: u32::try_from(self.batch.len() - HEADER_BYTES).expect("a segment is shorter than 4 GiB"),
            durable: self.durable,
            previous: self.previous,
            checksum: 0,
        };
        self.previous = batch::seal(&mut self.batch, self.store, &header);
        let segment = self.used.back_mut().expect("there is one with room");
        segment.blob.write_at(self.at, &self.batch)?;
        segment.last = self.last;
        self.written = self.last;
        self.at = (self.at + self.batch.len() as u64).next_multiple_of(ALIGN);
        self.batch.truncate(HEADER_BYTES);
        self.count = 0;
        Ok(())
    }

    /// What to do so that all that is written is durable, and what records refer to that stands in `beside`. To be run by
    /// whoever may wait; what is written meanwhile goes into blocks of its own.
    pub fn sync(&mut self, beside: Option<Arc<dyn Blob>>) -> Sync {
        self.at = self.at.next_multiple_of(BLOCK_BYTES);
        let earlier = if self.rules.breaks(Bug::EarlierSegmentSkipped) { self.used.len() - 1 } else { 0 };
        let unsynced = self.used.iter().skip(earlier).filter(|segment| segment.last > self.durable);
        let unsynced = unsynced.map(|segment| Arc::clone(&segment.blob));
        Sync { blobs: beside.into_iter().chain(unsynced).collect(), upto: self.written }
    }

    /// A [`Sync`] has succeeded. If it has not, nothing may be written any more: see [`close`](Self::close).
    pub fn handle_synced(&mut self, upto: u64) {
        assert!(upto <= self.written, "what is durable was written");
        self.durable = self.durable.max(upto);
    }

    /// Something has failed that says nothing about what is on the disk.
    pub const fn close(&mut self) {
        self.is_closed = true;
    }

    /// Nobody needs the records up to this one any more; what replaces them is durable.
    pub fn free(&mut self, upto: u64) {
        assert!(upto <= self.durable, "what is not durable is needed");
        // The last segment is being written to.
        while self.used.len() > 1 && self.used[0].last <= upto {
            let freed = self.used.pop_front().expect("there is more than one");
            self.spare.push((freed.slot, freed.blob));
        }
    }

    /// The file to be made for one more segment, unless one is ready or there may be no more: if it `has_to_grow` there may.
    pub fn wanted(&self, has_to_grow: bool) -> Option<u32> {
        let may_have_more = has_to_grow || self.used.len() < self.limits.segments_max;
        (self.spare.is_empty() && may_have_more).then(|| self.free_slot())
    }

    fn free_slot(&self) -> u32 {
        let used = self.used.iter().map(|segment| segment.slot);
        let taken: BTreeSet<u32> = used.chain(self.spare.iter().map(|(slot, _)| *slot)).collect();
        (0..).find(|slot| !taken.contains(slot)).expect("few are taken")
    }

    fn make(media: &dyn Media, slot: u32, limits: JournalLimits) -> io::Result<Arc<dyn Blob>> {
        let made = make_segment(media, slot, limits.segment_bytes);
        if made.is_err() {
            // What is left of it would only take space. The first error says why.
            let _ = media.remove(&file_of(slot));
        }
        made
    }

    /// A segment was made.
    pub fn handle_made(&mut self, MadeSegment { slot, blob }: MadeSegment) {
        self.spare.push((slot, blob));
    }
}

fn make_segment(media: &dyn Media, slot: u32, bytes: u64) -> io::Result<Arc<dyn Blob>> {
    let blob = media.open(&file_of(slot))?;
    let mut at = 0;
    while at < bytes {
        let length = usize::try_from(bytes - at).map_or(ZEROS.len(), |rest| rest.min(ZEROS.len()));
        blob.write_at(at, &ZEROS[..length])?;
        at += length as u64;
    }
    blob.sync()?;
    media.sync()?;
    Ok(blob)
}

/// Whether a file has the name of a segment.
pub(super) fn is_segment(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|slot| slot.parse::<u32>().is_ok())
}

/// The name of a segment's file.
fn file_of(slot: u32) -> String {
    format!("{PREFIX}{slot}")
}

const PREFIX: &str = "journal-";
