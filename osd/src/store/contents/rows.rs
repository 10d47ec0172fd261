//! Layout: the rows of the index. `docs/disk.md` shows them.

use base::ObjectId;
use bytes::Bytes;
use namespace::{Born, Key as NameKey, Part as NamePart};
use node::file::{Attributes, File, Place, Position};
use replication::Head;
use wire::{
    KeptChunk, decode_name_key, decode_name_part, decode_stored, encode_name_key, encode_name_part,
    encode_stored,
};

use super::packed::{Packed, pack};

const MARK: u8 = b'a';
const CHUNK: u8 = b'c';
const HEAD: u8 = b'h';
const NAME: u8 = b'n';
const SUM_BYTES: usize = 4;
/// A row that nobody can read.
pub(super) const STRUCK_OUT: &[u8] = &[];
const OBJECT_BYTES: usize = size_of::<ObjectId>();

/// Names a row. The rows of one kind stand together, those of one file in the order of its parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Key {
    /// Up to which record of the journal all is here.
    Mark,
    /// All of a file but its chunks and the parts of its tree.
    Head(ObjectId),
    /// A chunk.
    Chunk(ObjectId, u64),
    /// A part of a volume's tree.
    Name(ObjectId, NameKey),
}

impl Key {
    /// No row comes before this, and none behind the other.
    pub(super) const FIRST: &[u8] = &[0];
    pub(super) const END: &[u8] = &[0xff];

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let of = |kind: u8, object: ObjectId| {
            let mut key = vec![kind];
            key.extend(object.high.to_be_bytes());
            key.extend(object.low.to_be_bytes());
            key
        };
        match self {
            Self::Mark => vec![MARK],
            Self::Head(object) => of(HEAD, *object),
            Self::Chunk(object, number) => [of(CHUNK, *object), number.to_be_bytes().to_vec()].concat(),
            Self::Name(object, key) => [of(NAME, *object), encode_name_key(key)].concat(),
        }
    }

    pub(super) fn parse(key: &[u8]) -> Option<Self> {
        let (&kind, rest) = key.split_first()?;
        if kind == NAME {
            let (object, key) = rest.split_first_chunk::<OBJECT_BYTES>()?;
            let [high, low] =
                [0, 8].map(|from| object[from..from + 8].try_into().map(u64::from_be_bytes).ok());
            return Some(Self::Name(ObjectId::new(high?, low?), decode_name_key(key)?));
        }
        let numbers: Vec<u64> =
            rest.chunks(8).map(|word| word.try_into().ok().map(u64::from_be_bytes)).collect::<Option<_>>()?;
        match (kind, numbers.as_slice()) {
            (MARK, []) => Some(Self::Mark),
            (HEAD, &[high, low]) => Some(Self::Head(ObjectId::new(high, low))),
            (CHUNK, &[high, low, number]) => Some(Self::Chunk(ObjectId::new(high, low), number)),
            _ => None,
        }
    }

    /// Where the chunks of a file begin, and what comes behind them; and the same of the parts of its tree.
    pub(super) fn of_file(object: ObjectId) -> [(Vec<u8>, Vec<u8>); 2] {
        let last = [Self::Chunk(object, u64::MAX).to_bytes(), vec![0]].concat();
        let mut name = Self::Name(object, NameKey::Volume).to_bytes();
        name.truncate(1 + OBJECT_BYTES);
        let names = (name.clone(), [name.as_slice(), &[0xff]].concat());
        [(Self::Chunk(object, 0).to_bytes(), last), names]
    }
}

/// All of a file but its chunks and the parts of its tree.
pub(super) struct HeadRow {
    /// The last record of the journal that is in it.
    pub(super) applied: u64,
    pub(super) head: Head<File>,
    pub(super) attributes: (Position, Attributes),
}

/// The same, as it stands in the index.
pub(super) struct PackedHead {
    applied: u64,
    attributes: (Position, Attributes),
    head: Packed,
}

impl HeadRow {
    /// The row. `place_of` says of long content where it is, if it has landed.
    pub(super) fn encode(
        &self,
        object: ObjectId,
        mut place_of: impl FnMut(&Bytes) -> Option<Place>,
    ) -> Vec<u8> {
        let attributes = encode_stored(&self.attributes).concat();
        let length = u32::try_from(attributes.len()).expect("attributes are short");
        let mut row = self.applied.to_le_bytes().to_vec();
        row.extend(length.to_le_bytes());
        row.extend(attributes);
        let head = pack(&encode_stored(&self.head), &mut place_of);
        head.iter().for_each(|piece| row.extend_from_slice(piece));
        seal(&Key::Head(object), row)
    }
}

impl PackedHead {
    pub(super) fn decode(object: ObjectId, row: &[u8]) -> Option<Self> {
        let row = open(&Key::Head(object), row)?;
        let (applied, row) = row.split_first_chunk()?;
        let (length, row) = row.split_first_chunk()?;
        let (attributes, head) = row.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        Some(Self {
            applied: u64::from_le_bytes(*applied),
            attributes: decode_stored(Bytes::copy_from_slice(attributes)).ok()?,
            head: Packed::decode(Bytes::copy_from_slice(head))?,
        })
    }

    /// The last record of the journal that is in it.
    pub(super) const fn applied(&self) -> u64 {
        self.applied
    }

    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.head.places()
    }

    /// All of it. `read` gives content; none if it cannot.
    pub(super) fn unpack(self, read: impl FnMut(&Place) -> Option<Bytes>) -> Option<HeadRow> {
        let Self { applied, attributes, head } = self;
        Some(HeadRow { applied, attributes, head: decode_stored(head.unpack(read)?).ok()? })
    }
}

/// What a head in the index refers to.
pub(super) fn head_places(object: ObjectId, row: &[u8]) -> Option<Vec<Place>> {
    PackedHead::decode(object, row).map(|head| head.places().cloned().collect())
}

pub(super) fn encode_chunk(key: &Key, chunk: &KeptChunk) -> Vec<u8> {
    seal(key, encode_stored(chunk).concat())
}

pub(super) fn decode_chunk(key: &Key, row: &[u8]) -> Option<KeptChunk> {
    decode_stored(Bytes::copy_from_slice(open(key, row)?)).ok()
}

/// What stands in a row of a tree.
pub(super) fn encode_name(key: &Key, at: Position, part: &NamePart) -> Vec<u8> {
    seal(key, encode_name_part(Born { epoch: at.epoch, seq: at.seq }, part).concat())
}

pub(super) fn decode_name(object: ObjectId, name: &NameKey, row: &[u8]) -> Option<(Position, NamePart)> {
    let row = open(&Key::Name(object, name.clone()), row)?;
    let (at, part) = decode_name_part(name, Bytes::copy_from_slice(row)).ok()?;
    Some((Position { epoch: at.epoch, seq: at.seq }, part))
}

pub(super) fn mark(applied: u64) -> Vec<u8> {
    seal(&Key::Mark, applied.to_le_bytes().to_vec())
}

pub(super) fn read_mark(row: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(open(&Key::Mark, row)?.try_into().ok()?))
}

/// The row with its checksum.
fn seal(key: &Key, mut row: Vec<u8>) -> Vec<u8> {
    let sum = checksum(key, &row);
    row.extend(sum.to_le_bytes());
    row
}

fn open<'r>(key: &Key, row: &'r [u8]) -> Option<&'r [u8]> {
    let (row, sum) = row.split_at_checked(row.len().checked_sub(SUM_BYTES)?)?;
    (checksum(key, row).to_le_bytes() == sum).then_some(row)
}

fn checksum(key: &Key, row: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&key.to_bytes()), row)
}
