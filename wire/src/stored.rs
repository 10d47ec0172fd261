//! Layout: what a daemon keeps of files on its disk: records of the journal, and checkpoints in parts.
//!
//! It is laid out as messages are, and shares their fields: entries that come are written as they came. Each value stands
//! by itself: the length of its metadata, the metadata, and the data behind it. Checksums of all that, places, and what tells
//! one format from another are the store's affair; data in entries has the checksum that its client made all the same.

use base::{ObjectId, Seq};
use bytes::{Buf, Bytes};
use node::file::{Attributes, Chunk, File, Op, Piece, Place, Position, Stored as OnDisk};
use replication::{Entry, Head, Holding, Record};

use crate::DecodeError;
use crate::entries::{check_entries, check_parts};
use crate::field::{Element, Field, Sink, Source, choice, read_first, read_whole, record};

/// The length of the length of the metadata.
const LENGTH_BYTES: usize = size_of::<u32>();

/// A record of the journal.
#[derive(Clone, PartialEq, Debug)]
pub struct FileRecord {
    /// The file it is about.
    pub object: ObjectId,
    /// What happened to its replica.
    pub record: Record<File>,
}

/// A chunk of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptChunk {
    /// The entry that changed it last.
    pub at: Position,
    /// What is in it, and on which places of the disk.
    pub chunk: Chunk,
}

/// Room for the metadata of most of what is kept, which then need not grow.
const METADATA_BYTES: usize = 512;

/// Something that is kept: a record, a checkpoint but for its machine, and the machine's parts with their versions. Only this
/// crate knows how, so only this crate has implementations.
pub trait Stored: Kept {}

impl<T: Kept> Stored for T {}

/// The part of [`Stored`] that nobody else needs to see.
pub trait Kept: Field {
    /// Whether the parts of the value fit together.
    fn check(&self) -> Result<(), DecodeError> {
        Ok(())
    }
}

/// The bytes of a value, in pieces that stand behind each other. All but the first share the memory of the value's data.
///
/// # Panics
///
/// If the metadata is longer than 4 GiB.
pub fn encode_stored<T: Stored>(value: &T) -> Vec<Bytes> {
    let mut metadata = Vec::with_capacity(METADATA_BYTES);
    metadata.resize(LENGTH_BYTES, 0);
    let mut sink = Sink { metadata, tail: Vec::new() };
    value.put(&mut sink);
    let Sink { mut metadata, tail } = sink;
    let length = u32::try_from(metadata.len() - LENGTH_BYTES).expect("what is kept of a file is bounded");
    metadata[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
    std::iter::once(Bytes::from(metadata)).chain(tail).collect()
}

/// The value that takes up all of `bytes`, whose memory it shares.
pub fn decode_stored<T: Stored>(mut bytes: Bytes) -> Result<T, DecodeError> {
    let length = bytes.try_get_u32_le().map_err(|_| DecodeError::Truncated)?;
    let length = usize::try_from(length).ok().filter(|length| *length <= bytes.len());
    let metadata = bytes.split_to(length.ok_or(DecodeError::Truncated)?);
    let value: T = read_whole(&metadata, &bytes)?;
    value.check()?;
    Ok(value)
}

/// The file that a record is about, even if its data is not what it was.
pub fn object_of_record(mut bytes: Bytes) -> Option<ObjectId> {
    let length = usize::try_from(bytes.try_get_u32_le().ok()?).ok()?;
    read_first(bytes.get(..length)?).ok()
}

impl Kept for FileRecord {
    fn check(&self) -> Result<(), DecodeError> {
        match &self.record {
            Record::Appended { after, entries, .. } => check_behind(*after, entries),
            Record::Placed(parts) | Record::Mended(parts) => check_parts(parts),
            Record::Damaged { parts, .. } => check_parts(parts),
            _ => Ok(()),
        }
    }
}

impl Kept for Head<File> {
    fn check(&self) -> Result<(), DecodeError> {
        let what = "a log that does not go with the state before it";
        if self.is_sound() { Ok(()) } else { Err(DecodeError::Impossible(what)) }
    }
}

impl Kept for (Position, Attributes) {}

impl Kept for KeptChunk {}

/// Pieces stand as they are kept, each with its place on the disk, or with its content.
impl Field for KeptChunk {
    fn put(&self, out: &mut Sink) {
        self.at.put(out);
        u64::from(self.chunk.blocks()).put(out);
        self.chunk.pieces().map(|(start, piece)| (start, piece.clone())).collect::<Vec<_>>().put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let impossible = DecodeError::Impossible("a chunk with such pieces");
        let at = Position::get(from)?;
        let blocks = u16::try_from(u64::get(from)?).map_err(|_| impossible)?;
        let pieces = Vec::<(u32, Piece)>::get(from)?;
        let chunk = Chunk::new(blocks, pieces).map_err(|_| impossible)?;
        Ok(Self { at, chunk })
    }
}

choice!(Piece, "where content is":
    0 Held(bytes);
    1 Stored(stored);
);
record!(OnDisk { place, from, len });

impl Field for Place {
    fn put(&self, out: &mut Sink) {
        self.words().to_vec().put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        Vec::<u64>::get(from).map(|words| Self::new(&words))
    }
}

/// A word of a place.
impl Element for u64 {
    const COUNT_MAX: usize = 16;
    const BYTES_MIN: usize = 1;
}

impl Element for (u32, Piece) {
    const COUNT_MAX: usize = 1 << 16;
    const BYTES_MIN: usize = 5;
}

record!(FileRecord { object, record });
choice!(Record<File>, "what happened to a replica":
    0 Promised(epoch);
    1 Appended { after, entries, committed };
    2 Began { source, applied };
    3 Placed(parts);
    4 Ended(rest);
    5 Adopted(view);
    6 Buried(view);
    7 Damaged { applied, parts };
    8 Mended(parts);
    9 Repaired(rest);
);
record!(Head<File> { promised, accepted, rest, holding, base, entries, adopted, damaged_at, lacking, is_mixed });
choice!(Holding, "what a replica has":
    0 Nothing;
    1 Whole;
    2 Mixed(epoch);
);

/// Whether entries can stand behind a place, whatever the epoch of what stands there.
fn check_behind(after: Seq, entries: &[Entry<Op>]) -> Result<(), DecodeError> {
    let (Some(first), Some(last)) = (entries.first(), entries.last()) else { return Ok(()) };
    check_entries(Position { seq: after, ..first.at }, entries, last.at.epoch)
}
