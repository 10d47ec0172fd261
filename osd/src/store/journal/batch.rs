//! A batch of records as it stands in a segment.
//!
//! Nothing in a batch is looked at before its checksum held. The checksum covers the store's id too, so that a batch of another
//! store is none.
//!
//! Layout: a batch of `docs/disk.md`.

use base::StoreId;

/// What a batch begins with, and what follows it up to the records.
pub(super) const HEADER_BYTES: usize = 48;
/// Batches begin at multiples of this.
pub(super) const ALIGN: u64 = 8;
/// What the length of a record takes.
pub(super) const LENGTH_BYTES: usize = 4;

const MAGIC: u32 = u32::from_le_bytes(*b"flea");

/// What is said about a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Header {
    /// The start of the store that wrote it.
    pub(super) start: u32,
    /// Its first record.
    pub(super) first: u64,
    /// How many records it has.
    pub(super) count: u32,
    /// How many bytes they take.
    pub(super) length: u32,
    /// When it was written, all records up to this one were durable.
    pub(super) durable: u64,
    /// The checksum of the batch before.
    pub(super) previous: u32,
    /// Its own.
    pub(super) checksum: u32,
}

impl Header {
    /// Its last record; if it has none, the one before.
    pub(super) fn last(&self) -> u64 {
        self.first + u64::from(self.count) - 1
    }

    /// How many bytes the batch takes.
    pub(super) fn bytes(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.length)
    }
}

/// Writes the header into the first bytes of `batch`, where its records already stand. Returns its checksum.
pub(super) fn seal(batch: &mut [u8], store: StoreId, header: &Header) -> u32 {
    let (head, records) = batch.split_at_mut(HEADER_BYTES);
    let mut fields = [0; HEADER_BYTES];
    fields[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    fields[4..8].copy_from_slice(&header.length.to_le_bytes());
    fields[8..16].copy_from_slice(&header.first.to_le_bytes());
    fields[16..24].copy_from_slice(&header.durable.to_le_bytes());
    fields[24..28].copy_from_slice(&header.count.to_le_bytes());
    fields[28..32].copy_from_slice(&header.start.to_le_bytes());
    fields[32..36].copy_from_slice(&header.previous.to_le_bytes());
    let checksum = checksum(store, &fields, records);
    fields[COVERED..COVERED + 4].copy_from_slice(&checksum.to_le_bytes());
    head.copy_from_slice(&fields);
    checksum
}

/// How much of a header its checksum covers.
const COVERED: usize = 36;

fn checksum(store: StoreId, header: &[u8; HEADER_BYTES], records: &[u8]) -> u32 {
    let seed = crc32c::crc32c(&store.0);
    crc32c::crc32c_append(crc32c::crc32c_append(seed, &header[..COVERED]), records)
}

/// The batch that `bytes` begin with, if they do.
pub(super) fn open(store: StoreId, bytes: &[u8]) -> Option<Header> {
    let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let u32_at = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
    if u32_at(0) != MAGIC {
        return None;
    }
    let header = Header {
        length: u32_at(4),
        first: u64_at(8),
        durable: u64_at(16),
        count: u32_at(24),
        start: u32_at(28),
        previous: u32_at(32),
        checksum: u32_at(36),
    };
    let records = rest.get(..usize::try_from(header.length).ok()?)?;
    let is_sound = header.first > 0 && header.first.checked_add(header.count.into()).is_some();
    let holds = is_sound && checksum(store, head, records) == header.checksum;
    (holds && records_of(records).count() == usize::try_from(header.count).ok()?).then_some(header)
}

/// The records of a batch behind its header. It ends early if a length is wrong, which a checksum that held rules out.
pub(super) fn records_of(mut records: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = records.split_first_chunk::<LENGTH_BYTES>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let record = rest.get(..length)?;
        records = &rest[length..];
        Some(record)
    })
}
