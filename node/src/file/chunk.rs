//! One chunk: which of its blocks were written to, and what stands there.
//!
//! Invariants: no piece stands outside of the blocks, and in a block everything that no piece covers is zero. Which blocks there are
//! is a part of the state; in what pieces the content is kept is not, and differs between replicas.

use std::fmt;

use bytes::Bytes;

use super::data::{self, Piece, Pieces, Stored};
use super::{CHUNK_BYTES, FileError};

pub(super) const CHUNK_LEN: usize = 64 << 10;
const _: () = assert!(CHUNK_LEN as u64 == CHUNK_BYTES);
/// What is taken from the disk, and given back, as a whole.
pub const BLOCK_BYTES: u64 = 4 << 10;
const BLOCK_LEN: usize = 4 << 10;
const _: () = assert!(BLOCK_LEN as u64 == BLOCK_BYTES && CHUNK_LEN / BLOCK_LEN == u16::BITS as usize);

/// A part of a file's content, as wide as [`CHUNK_BYTES`].
#[derive(Clone, Default)]
pub struct Chunk {
    /// The first block is the lowest bit.
    blocks: u16,
    pieces: Pieces,
}

impl Chunk {
    /// A chunk in which these blocks were written to, with these pieces in order, by where they begin.
    pub fn new(blocks: u16, pieces: Vec<(u32, Piece)>) -> Result<Self, FileError> {
        let mut chunk = Self { blocks, pieces: Pieces::default() };
        let mut at = 0;
        for (start, piece) in pieces {
            let start = start as usize;
            let end = start + piece.len();
            let is_possible = start >= at && !piece.is_empty() && end <= CHUNK_LEN;
            if !is_possible || blocks_of(start, end) & !blocks != 0 {
                return Err(FileError::BadChunk);
            }
            at = end;
            chunk.pieces.insert(start, piece);
        }
        if blocks == 0 { Err(FileError::BadChunk) } else { Ok(chunk) }
    }

    /// Which blocks were written to. The first is the lowest bit.
    pub const fn blocks(&self) -> u16 {
        self.blocks
    }

    /// What is not zero, in order.
    pub fn pieces(&self) -> impl DoubleEndedIterator<Item = (u32, &Piece)> {
        self.pieces.iter().map(|(start, piece)| (u32::try_from(start).expect("chunks are short"), piece))
    }

    /// What of it has to be fetched from a disk, in order.
    pub fn stored(&self) -> impl Iterator<Item = &Stored> {
        data::stored(&self.pieces)
    }

    /// Puts in what was fetched, in the order of [`stored`](Self::stored).
    pub fn fetched(&mut self, fetched: &mut impl Iterator<Item = Bytes>) {
        data::put_fetched(&mut self.pieces, fetched);
    }

    /// Whether some of it is in memory alone.
    pub fn is_held(&self) -> bool {
        self.pieces.iter().any(|(_, piece)| matches!(piece, Piece::Held(_)))
    }

    /// How much the pieces take.
    pub(super) fn piece_bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, piece)| piece.len() as u64).sum()
    }

    /// How much the blocks take.
    pub(super) const fn allocated(&self) -> u64 {
        self.blocks.count_ones() as u64 * BLOCK_BYTES
    }

    /// The blocks that were written to, those beside each other as one: where they begin and end.
    pub(super) fn runs(&self) -> impl Iterator<Item = (u64, u64)> {
        let (mut at, blocks) = (0, self.blocks);
        std::iter::from_fn(move || {
            let rest = blocks.checked_shr(at).filter(|rest| *rest != 0)?;
            let start = at + rest.trailing_zeros();
            let end = start + (blocks >> start).trailing_ones();
            at = end;
            Some((u64::from(start) * BLOCK_BYTES, u64::from(end) * BLOCK_BYTES))
        })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Puts `data` at `start`.
    pub(super) fn write(&mut self, start: usize, data: &Bytes) {
        let end = start + data.len();
        self.blocks |= blocks_of(start, end);
        if data.len() == CHUNK_LEN {
            self.pieces = Pieces::one(Piece::Held(data.clone()));
        } else {
            // A copy, so that a few bytes do not hold the memory of all that came with them.
            self.pieces.write(start, data, |one, other| one / BLOCK_LEN == other / BLOCK_LEN);
        }
    }

    /// Takes away what stands from `start` to before `end`.
    pub(super) fn punch(&mut self, start: usize, end: usize) {
        self.pieces.remove(start, end);
        let (first, last) = (start.div_ceil(BLOCK_LEN), end / BLOCK_LEN);
        if first < last {
            self.blocks &= !blocks_of(first * BLOCK_LEN, last * BLOCK_LEN);
        }
    }

    /// What stands from `start` to before `end`, as if it began at 0.
    pub(super) fn slice(&self, start: usize, end: usize) -> impl Iterator<Item = (usize, Piece)> {
        self.pieces.slice(start, end)
    }
}

/// The blocks that have something from `start` to before `end`, which is behind it.
fn blocks_of(start: usize, end: usize) -> u16 {
    let (first, last) = (start / BLOCK_LEN, (end - 1) / BLOCK_LEN);
    let width = u32::try_from(last - first + 1).expect("a chunk has few blocks");
    u16::MAX >> (u16::BITS - width) << first
}

/// In what pieces the content is does not matter, unless some of it is on a disk.
impl PartialEq for Chunk {
    fn eq(&self, other: &Self) -> bool {
        let content = |chunk: &Self| data::whole(&chunk.pieces, CHUNK_LEN);
        self.blocks == other.blocks
            && (self.pieces == other.pieces
                || matches!((content(self), content(other)), (Some(ours), Some(theirs)) if ours == theirs))
    }
}

impl Eq for Chunk {}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chunk({:016b}, {} bytes)", self.blocks, self.piece_bytes())
    }
}
