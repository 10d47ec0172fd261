//! What is written of a file: its chunks, in order.
//!
//! Invariants: no chunk is empty, and none has a block behind the end of its file.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};

use bytes::Bytes;
use replication::Position;

use super::Extent;
use super::chunk::{CHUNK_LEN, Chunk};
use super::data::Data;

/// How much of a file one chunk covers.
pub const CHUNK_BYTES: u64 = 64 << 10;

/// To find where something stands no more chunks than these are looked through.
const LOOKED_THROUGH_MAX: usize = 4_096;

/// All chunks that there are.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    /// By number, each with the entry that changed it last.
    chunks: BTreeMap<u64, (Position, Chunk)>,
    /// The sum of their blocks.
    allocated: u64,
    /// Which were changed or taken away since somebody asked; and whether anybody ever did.
    changed: BTreeSet<u64>,
    was_asked: bool,
}

/// What was changed since when is no part of the content.
impl PartialEq for Chunks {
    fn eq(&self, other: &Self) -> bool {
        self.chunks == other.chunks
    }
}

impl Eq for Chunks {}

impl Chunks {
    pub(super) const fn allocated(&self) -> u64 {
        self.allocated
    }

    pub(super) fn get(&self, number: u64) -> Option<&(Position, Chunk)> {
        self.chunks.get(&number)
    }

    pub(super) fn version(&self, number: u64) -> Option<Position> {
        self.chunks.get(&number).map(|&(at, _)| at)
    }

    /// The versions of the chunks behind `after`.
    pub(super) fn versions(&self, after: Option<u64>) -> impl Iterator<Item = (u64, Position)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.chunks.range((from, Bound::Unbounded)).map(|(&number, &(at, _))| (number, at))
    }

    /// Which chunks were changed or taken away since this was called last; and whether it is called for the first time.
    pub(super) fn take_changed(&mut self) -> (bool, BTreeSet<u64>) {
        let is_new = !std::mem::replace(&mut self.was_asked, true);
        (is_new, std::mem::take(&mut self.changed))
    }

    /// What was taken is to be taken again.
    pub(super) fn note_changed(&mut self, is_new: bool, changed: BTreeSet<u64>) {
        self.was_asked &= !is_new;
        self.changed.extend(changed);
    }

    pub(super) fn place(&mut self, number: u64, at: Position, chunk: Chunk) {
        self.set(number, Some((at, chunk)));
    }

    pub(super) fn remove(&mut self, number: u64) {
        self.set(number, None);
    }

    fn set(&mut self, number: u64, chunk: Option<(Position, Chunk)>) {
        let chunk = chunk.filter(|(_, chunk)| !chunk.is_empty());
        self.allocated += chunk.as_ref().map_or(0, |(_, chunk)| chunk.allocated());
        let before = match chunk {
            Some(chunk) => self.chunks.insert(number, chunk),
            None => self.chunks.remove(&number),
        };
        self.allocated -= before.map_or(0, |(_, chunk)| chunk.allocated());
        self.changed.insert(number);
    }

    /// The same content of a chunk is kept elsewhere. Nothing happens if it was changed meanwhile.
    pub(super) fn keep_elsewhere(&mut self, number: u64, at: Position, chunk: Chunk) {
        if let Some((version, kept)) = self.chunks.get_mut(&number)
            && *version == at
        {
            assert_eq!(kept.blocks(), chunk.blocks(), "it is the same content");
            *kept = chunk;
        }
    }

    /// Changes a chunk, whether it is there or not.
    fn change(&mut self, number: u64, at: Position, change: impl FnOnce(&mut Chunk)) {
        let (_, mut chunk) = self.chunks.remove(&number).unwrap_or_default();
        self.allocated -= chunk.allocated();
        change(&mut chunk);
        self.set(number, Some((at, chunk)));
    }

    /// Puts `data` at `offset`.
    pub(super) fn write(&mut self, at: Position, offset: u64, data: &Bytes) {
        let (mut offset, mut data) = (offset, data.clone());
        while !data.is_empty() {
            let start = inside(offset);
            let piece = data.split_to(data.len().min(CHUNK_LEN - start));
            self.change(offset / CHUNK_BYTES, at, |chunk| chunk.write(start, &piece));
            offset += piece.len() as u64;
        }
    }

    /// Takes away what is behind `size`.
    pub(super) fn cut(&mut self, at: Position, size: u64) {
        for (number, (_, chunk)) in self.chunks.split_off(&size.div_ceil(CHUNK_BYTES)) {
            self.allocated -= chunk.allocated();
            self.changed.insert(number);
        }
        self.punch_chunk(at, size / CHUNK_BYTES, inside(size), CHUNK_LEN);
        if self.chunks.is_empty() {
            // It would keep room for eleven, and there are many files.
            self.chunks = BTreeMap::new();
        }
    }

    /// Makes zeros from `start` to before `end`.
    pub(super) fn punch(&mut self, at: Position, start: u64, end: u64) {
        let touched = self.chunks.range(start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES));
        let touched: Vec<u64> = touched.map(|(&number, _)| number).collect();
        for number in touched {
            let first = number * CHUNK_BYTES;
            let width = end - first;
            let end = if width < CHUNK_BYTES { inside(width) } else { CHUNK_LEN };
            self.punch_chunk(at, number, inside(start.max(first)), end);
        }
    }

    fn punch_chunk(&mut self, at: Position, number: u64, start: usize, end: usize) {
        if self.chunks.contains_key(&number) {
            self.change(number, at, |chunk| chunk.punch(start, end));
        }
    }

    /// The first blocks that something was written to and that end behind the start of `within`, up to its end.
    pub(super) fn extent(&self, within: Range<u64>) -> Option<Extent> {
        let mut found: Option<Extent> = None;
        let from = within.start / CHUNK_BYTES;
        for (&number, (_, chunk)) in self.chunks.range(from..).take(LOOKED_THROUGH_MAX) {
            let first = number * CHUNK_BYTES;
            for (start, end) in chunk.runs().map(|(start, end)| (first + start, first + end)) {
                match &mut found {
                    _ if end <= within.start => {}
                    None => found = Some(Extent { start, end }),
                    Some(found) if found.end == start => found.end = end,
                    Some(found) => return bounded(*found, &within),
                }
            }
            if found.is_some_and(|found| found.end < first + CHUNK_BYTES) {
                break;
            }
        }
        bounded(found?, &within)
    }

    /// What stands from `start` to before `end`.
    pub(super) fn read(&self, start: u64, end: u64) -> Data {
        if start >= end {
            return Data::default();
        }
        let place = |byte: u64| usize::try_from(byte).expect("a read is bounded");
        let mut pieces = Vec::new();
        for (&number, (_, chunk)) in self.chunks.range(start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES)) {
            let first = number * CHUNK_BYTES;
            let from = start.max(first);
            let (inside, to) = (place(from - first), place((end - first).min(CHUNK_BYTES)));
            pieces.extend(chunk.slice(inside, to).map(|(at, piece)| (place(from - start) + at, piece)));
        }
        Data::new(place(end - start), pieces)
    }
}

fn bounded(Extent { start, end }: Extent, within: &Range<u64>) -> Option<Extent> {
    let (start, end) = (start.max(within.start), end.min(within.end));
    (start < end).then_some(Extent { start, end })
}

/// Where in its chunk a byte stands.
fn inside(offset: u64) -> usize {
    usize::try_from(offset % CHUNK_BYTES).expect("it is below the length of a chunk")
}
