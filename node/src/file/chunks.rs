//! What is written of a file: its chunks, in order, each as long as it has to be.
//!
//! Invariants: no chunk is empty, none is longer than [`CHUNK_BYTES`], and none reaches behind the end of its file. What a
//! chunk does not reach is zero, so the last one of a small file is small. A chunk that a hole or a cut left with nothing but
//! zeros is absent; zeros that were written are kept.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::Bound;

use bytes::{Bytes, BytesMut};
use replication::Position;

use super::FileError;

/// How much of a file one chunk covers.
pub const CHUNK_BYTES: u64 = 64 << 10;
const CHUNK_LEN: usize = 64 << 10;
const _: () = assert!(CHUNK_LEN as u64 == CHUNK_BYTES);

/// The content of a chunk, without the zeros that may follow it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Chunk(Bytes);

/// All chunks that there are.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Chunks {
    /// By number, each with the entry that changed it last.
    chunks: BTreeMap<u64, (Position, Chunk)>,
    /// The sum of their lengths.
    allocated: u64,
}

impl Chunk {
    /// A chunk with this content.
    pub fn new(content: Bytes) -> Result<Self, FileError> {
        let length = content.len() as u64;
        if (1..=CHUNK_BYTES).contains(&length) {
            Ok(Self(content))
        } else {
            Err(FileError::BadChunk { length })
        }
    }

    /// What is in it.
    pub const fn content(&self) -> &Bytes {
        &self.0
    }

    fn len(&self) -> u64 {
        self.0.len() as u64
    }
}

impl Chunks {
    pub(super) const fn allocated(&self) -> u64 {
        self.allocated
    }

    pub(super) fn get(&self, number: u64) -> Option<&Chunk> {
        self.chunks.get(&number).map(|(_, chunk)| chunk)
    }

    pub(super) fn version(&self, number: u64) -> Option<Position> {
        self.chunks.get(&number).map(|&(at, _)| at)
    }

    /// The versions of the chunks behind `after`.
    pub(super) fn versions(&self, after: Option<u64>) -> impl Iterator<Item = (u64, Position)> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.chunks.range((from, Bound::Unbounded)).map(|(&number, &(at, _))| (number, at))
    }

    pub(super) fn place(&mut self, number: u64, at: Position, chunk: Chunk) {
        self.allocated += chunk.len();
        if let Some((_, before)) = self.chunks.insert(number, (at, chunk)) {
            self.allocated -= before.len();
        }
    }

    pub(super) fn remove(&mut self, number: u64) {
        if let Some((_, before)) = self.chunks.remove(&number) {
            self.allocated -= before.len();
        }
    }

    /// Puts `data` at `offset`.
    pub(super) fn write(&mut self, at: Position, offset: u64, data: &[u8]) {
        let (mut offset, mut data) = (offset, data);
        while !data.is_empty() {
            let start = inside(offset);
            let (piece, rest) = data.split_at(data.len().min(CHUNK_LEN - start));
            self.write_piece(at, offset / CHUNK_BYTES, start, piece);
            (offset, data) = (offset + piece.len() as u64, rest);
        }
    }

    /// Puts a piece into one chunk, from `start` on.
    fn write_piece(&mut self, at: Position, number: u64, start: usize, piece: &[u8]) {
        match self.chunks.entry(number) {
            Entry::Vacant(vacant) => {
                let mut content = BytesMut::with_capacity(start + piece.len());
                content.resize(start, 0);
                content.extend_from_slice(piece);
                self.allocated += content.len() as u64;
                vacant.insert((at, Chunk(content.freeze())));
            }
            Entry::Occupied(mut occupied) => {
                let (version, chunk) = occupied.get_mut();
                let (before, end) = (chunk.len(), start + piece.len());
                let mut content = own(std::mem::take(&mut chunk.0), end);
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[start..end].copy_from_slice(piece);
                (*version, *chunk) = (at, Chunk(content.freeze()));
                self.allocated = self.allocated - before + chunk.len();
            }
        }
    }

    /// Takes away what is behind `size`.
    pub(super) fn cut(&mut self, at: Position, size: u64) {
        for (_, (_, chunk)) in self.chunks.split_off(&size.div_ceil(CHUNK_BYTES)) {
            self.allocated -= chunk.len();
        }
        self.keep(at, size / CHUNK_BYTES, inside(size));
    }

    /// Keeps the first `len` bytes of a chunk, or nothing if they are zeros.
    fn keep(&mut self, at: Position, number: u64, len: usize) {
        match self.chunks.get_mut(&number) {
            Some((_, chunk)) if chunk.0.len() <= len => {}
            Some((version, chunk)) if chunk.0[..len].iter().any(|byte| *byte != 0) => {
                self.allocated -= (chunk.0.len() - len) as u64;
                // A copy, so that a few bytes do not hold the memory of a whole chunk.
                (*version, *chunk) = (at, Chunk(Bytes::copy_from_slice(&chunk.0[..len])));
            }
            _ => self.remove(number),
        }
    }

    /// Makes zeros from `start` to before `end`.
    pub(super) fn punch(&mut self, at: Position, start: u64, end: u64) {
        let touched: Vec<u64> = self
            .chunks
            .range(start / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES))
            .map(|(&number, _)| number)
            .collect();
        for number in touched {
            let first = number * CHUNK_BYTES;
            let start = inside(start.max(first));
            let width = end - first;
            let end = if width < CHUNK_BYTES { inside(width) } else { CHUNK_LEN };
            self.punch_piece(at, number, start, end);
        }
    }

    fn punch_piece(&mut self, at: Position, number: u64, start: usize, end: usize) {
        let Some((version, chunk)) = self.chunks.get_mut(&number) else { return };
        if end >= chunk.0.len() {
            return self.keep(at, number, start);
        }
        let mut content = own(std::mem::take(&mut chunk.0), end);
        content[start..end].fill(0);
        (*version, *chunk) = (at, Chunk(content.freeze()));
        if chunk.0.iter().all(|byte| *byte == 0) {
            self.remove(number);
        }
    }

    /// What stands from `start` to before `end`.
    pub(super) fn read(&self, start: u64, end: u64) -> Bytes {
        if start >= end {
            return Bytes::new();
        }
        let len = usize::try_from(end - start).expect("a read is bounded");
        let number = start / CHUNK_BYTES;
        let from = inside(start);
        if let Some(chunk) = self.get(number).filter(|chunk| from + len <= chunk.0.len()) {
            return chunk.0.slice(from..from + len);
        }
        let mut data = BytesMut::zeroed(len);
        for (&number, (_, chunk)) in self.chunks.range(number..end.div_ceil(CHUNK_BYTES)) {
            let first = number * CHUNK_BYTES;
            let (from, to) = (start.max(first), end.min(first + chunk.len()));
            if from < to {
                let place =
                    |byte: u64, origin: u64| usize::try_from(byte - origin).expect("a read is bounded");
                data[place(from, start)..place(to, start)]
                    .copy_from_slice(&chunk.0[place(from, first)..place(to, first)]);
            }
        }
        data.freeze()
    }
}

/// The content as bytes that nobody else sees, with space up to `end`. Copied only if it is shared or too small.
fn own(content: Bytes, end: usize) -> BytesMut {
    let shared = match content.try_into_mut() {
        Ok(owned) if owned.capacity() >= end => return owned,
        Ok(owned) => owned.freeze(),
        Err(shared) => shared,
    };
    // A chunk that grows grows further, but never beyond its limit.
    let capacity = if end > shared.len() { (2 * end).min(CHUNK_LEN) } else { shared.len() };
    let mut owned = BytesMut::with_capacity(capacity);
    owned.extend_from_slice(&shared);
    owned
}

/// Where in its chunk a byte stands.
fn inside(offset: u64) -> usize {
    usize::try_from(offset % CHUNK_BYTES).expect("it is below the length of a chunk")
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({} bytes)", self.0.len())
    }
}
