//! What every small file of a store looks like from outside: who it belongs to, how long it is, and a checksum.
//!
//! A file is whole or it is an error: it is written under another name, made durable and renamed, so what is
//! found torn was not torn by a crash. Files that are written all the time, on a full disk, too, hold two copies that are
//! overwritten one after the other, so a crash tears one at most. Nothing in a body is looked at before the checksum over
//! all of it held.
//!
//! Layout: the header and the checksum of `docs/disk.md`; the bodies stand in `tables.rs`.

use base::StoreId;

/// The format that this program writes, and the only one that it reads.
pub const FORMAT: u16 = 5;

const MAGIC: [u8; 8] = *b"fleasefs";
const HEADER_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 4;

/// Where the second copy begins in a file of two: they share no block, so a torn write of one leaves the other as it is.
const SECOND_AT: usize = 4_096;
/// Where the copies begin.
pub(super) const COPIES_AT: [u64; 2] = [0, SECOND_AT as u64];

/// The part of a store that one file holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Identity = 1,
    Starts = 2,
    Time = 3,
    Ceiling = 4,
    Peers = 5,
    Losses = 6,
    Orders = 7,
}

impl Kind {
    /// All of them, in the order in which a format writes them: the identity last, because it makes a store.
    pub(super) const ALL: [Self; 7] =
        [Self::Starts, Self::Time, Self::Ceiling, Self::Peers, Self::Losses, Self::Orders, Self::Identity];

    /// The file's name.
    pub(super) const fn file(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Starts => "starts",
            Self::Time => "time",
            Self::Ceiling => "ceiling",
            Self::Peers => "peers",
            Self::Losses => "losses",
            Self::Orders => "orders",
        }
    }
}

/// What is wrong with a file of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Damage {
    /// It is not there.
    #[error("is missing")]
    Missing,
    /// Its length is not the one it states, or none that such a file can have.
    #[error("has the wrong length")]
    Length,
    /// Its checksum does not fit what it holds.
    #[error("has a wrong checksum")]
    Checksum,
    /// It holds something else than its name says.
    #[error("is not the file that its name says")]
    Kind,
    /// It belongs to another store.
    #[error("belongs to another store")]
    Foreign,
    /// Its values cannot be.
    #[error("holds values that cannot be")]
    Values,
    /// A newer program wrote it.
    #[error("is of format {0}, and this program knows formats up to {FORMAT}")]
    Newer(u16),
    /// An older program wrote it.
    #[error("is of format {0}, and this program reads format {FORMAT} only")]
    Older(u16),
}

/// A file of `store` with `body` in it.
pub(super) fn encode(kind: Kind, store: StoreId, body: &[u8]) -> Vec<u8> {
    let body_bytes = u32::try_from(body.len()).expect("every table is bounded far below 4 GiB");
    let mut file = Vec::with_capacity(HEADER_BYTES + body.len() + CHECKSUM_BYTES);
    file.extend(MAGIC);
    file.extend(FORMAT.to_le_bytes());
    file.extend((kind as u16).to_le_bytes());
    file.extend(body_bytes.to_le_bytes());
    file.extend(store.0);
    file.extend(body);
    file.extend(crc32c::crc32c(&file).to_le_bytes());
    file
}

/// The longest file with a body of `body_bytes`.
pub(super) const fn file_bytes(body_bytes: usize) -> usize {
    HEADER_BYTES + body_bytes + CHECKSUM_BYTES
}

/// A file of two copies of `file`.
pub(super) fn in_two_copies(file: &[u8]) -> Vec<u8> {
    let mut copies = file.to_vec();
    copies.resize(SECOND_AT, 0);
    copies.extend(file);
    copies
}

/// The longest file of two copies of a file with a body of `body_bytes`.
pub(super) const fn two_copies_bytes(body_bytes: usize) -> usize {
    SECOND_AT + file_bytes(body_bytes)
}

/// The copies in a file that has two, the one that is written first in front. Each has `bytes` bytes, or is cut off.
pub(super) fn copies(file: &[u8], bytes: usize) -> Result<[&[u8]; 2], Damage> {
    if file.len() > SECOND_AT + bytes {
        return Err(Damage::Length);
    }
    let copy = |at: usize| &file[at.min(file.len())..(at + bytes).min(file.len())];
    Ok([copy(0), copy(SECOND_AT)])
}

/// Whose store the file belongs to, and its body.
pub(super) fn decode(kind: Kind, file: &[u8]) -> Result<(StoreId, &[u8]), Damage> {
    let (covered, checksum) = file.split_last_chunk::<CHECKSUM_BYTES>().ok_or(Damage::Length)?;
    if covered.len() < HEADER_BYTES {
        return Err(Damage::Length);
    }
    if crc32c::crc32c(covered) != u32::from_le_bytes(*checksum) {
        return Err(Damage::Checksum);
    }
    let (header, body) = covered.split_at(HEADER_BYTES);
    let mut header = Fields::new(header);
    if header.array()? != MAGIC {
        return Err(Damage::Kind);
    }
    let format = header.u16()?;
    if format > FORMAT {
        return Err(Damage::Newer(format));
    }
    if format < FORMAT {
        return Err(Damage::Older(format));
    }
    if header.u16()? != kind as u16 {
        return Err(Damage::Kind);
    }
    if usize::try_from(header.u32()?) != Ok(body.len()) {
        return Err(Damage::Length);
    }
    Ok((StoreId(header.array()?), body))
}

/// Reads fixed-width values from the front of some bytes.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(Damage::Length)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn u8(&mut self) -> Result<u8, Damage> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u16(&mut self) -> Result<u16, Damage> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, Damage> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, Damage> {
        self.array().map(u64::from_le_bytes)
    }

    /// A count of items of `item_bytes` each that fill the rest exactly.
    pub(super) fn count(&mut self, item_bytes: usize) -> Result<usize, Damage> {
        let count = usize::try_from(self.u32()?).map_err(|_| Damage::Length)?;
        let is_exact = count.checked_mul(item_bytes) == Some(self.rest.len());
        is_exact.then_some(count).ok_or(Damage::Length)
    }

    /// That nothing is left.
    pub(super) fn end(self) -> Result<(), Damage> {
        if self.rest.is_empty() { Ok(()) } else { Err(Damage::Length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: StoreId = StoreId([7; 16]);

    #[test]
    fn a_file_reads_as_it_was_written() {
        let file = encode(Kind::Ceiling, STORE, b"body");
        assert_eq!(file.len(), file_bytes(4));
        assert_eq!(decode(Kind::Ceiling, &file), Ok((STORE, b"body".as_slice())));
        assert_eq!(decode(Kind::Peers, &file), Err(Damage::Kind));
    }

    #[test]
    fn every_flipped_bit_and_every_length_is_noticed() {
        let file = encode(Kind::Ceiling, STORE, b"body");
        for bit in 0..file.len() * 8 {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(Kind::Ceiling, &damaged), Err(Damage::Checksum), "bit {bit}");
        }
        for length in 0..file.len() {
            assert!(decode(Kind::Ceiling, &file[..length]).is_err(), "{length} bytes");
        }
        assert!(decode(Kind::Ceiling, &[file.as_slice(), &[0]].concat()).is_err());
    }

    #[test]
    fn another_format_is_told_from_damage() {
        for (format, damage) in
            [(FORMAT + 1, Damage::Newer(FORMAT + 1)), (FORMAT - 1, Damage::Older(FORMAT - 1))]
        {
            let mut file = encode(Kind::Ceiling, STORE, b"body");
            file.truncate(file.len() - CHECKSUM_BYTES);
            file[8..10].copy_from_slice(&format.to_le_bytes());
            file.extend(crc32c::crc32c(&file).to_le_bytes());
            assert_eq!(decode(Kind::Ceiling, &file), Err(damage));
        }
    }
}
