//! Data on its way into a file.
//!
//! Whoever has the data first, which is the client, makes its checksum. From there it goes along, through every daemon's
//! memory, connection and journal; each that reads the data in compares. So what was damaged on the way never becomes a
//! part of a file. Connections and journals have checks of their own, but between them is memory.

use std::fmt;
use std::ops::Deref;

use bytes::Bytes;

/// Bytes and their CRC-32C.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Payload {
    bytes: Bytes,
    checksum: u32,
}

/// Data that is not what it was when its checksum was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "data with checksum {found:08x} was sent as {told:08x}: it was damaged in memory or on its way; send it again, and test \
     the memory of both machines if that happens again"
)]
pub struct Damaged {
    /// What the checksum was made as.
    pub told: u32,
    /// What it is now.
    pub found: u32,
}

impl Payload {
    /// Data as it is now.
    pub fn new(bytes: Bytes) -> Self {
        let checksum = crc32c::crc32c(&bytes);
        Self { bytes, checksum }
    }

    /// Data that was read in, if it is still what its checksum was made of.
    pub fn checked(bytes: Bytes, told: u32) -> Result<Self, Damaged> {
        let data = Self::new(bytes);
        let found = data.checksum;
        if found == told { Ok(data) } else { Err(Damaged { told, found }) }
    }

    /// The checksum, made by who had the data first.
    pub const fn checksum(&self) -> u32 {
        self.checksum
    }

    /// How many bytes it is.
    pub const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is nothing.
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Deref for Payload {
    type Target = Bytes;

    fn deref(&self) -> &Bytes {
        &self.bytes
    }
}

impl<B: Into<Bytes>> From<B> for Payload {
    fn from(bytes: B) -> Self {
        Self::new(bytes.into())
    }
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_is_taken_with_its_own_checksum_only() {
        let data = Payload::from(&b"123456789"[..]);
        assert_eq!((data.checksum(), data.len()), (0xe306_9283, 9), "the check value of CRC-32C");
        let damaged = Damaged { told: 0xe306_9283, found: crc32c::crc32c(b"123456780") };
        assert_eq!(Payload::checked(Bytes::from_static(b"123456780"), 0xe306_9283), Err(damaged));
        assert_eq!(Payload::checked(Bytes::from_static(b"123456789"), 0xe306_9283), Ok(data));
    }
}
