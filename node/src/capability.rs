//! What a client shows for a file that it has open.
//!
//! Whoever opens a file asks the primary of its volume, which knows who may do what. The client then reads and writes at
//! the primary of the file, which knows neither names nor permissions. The capability is what the first tells the
//! second, by way of the client: all daemons of a cluster have the same keys, and nobody else can make the tag.
//!
//! - It is good for one file, one mode and one certificate, and until it expires.
//! - A key has an epoch. Capabilities of every key that a daemon has are accepted; they are made with the latest whose time
//!   has come. So a new key is first brought to all daemons, and is used by them all from the same time on.
//! - Tags are compared in constant time: otherwise how long a refusal takes could tell how many bytes of a guess are right,
//!   and a tag could be found byte by byte.
//!
//! Layout: the tag is the keyed BLAKE3 hash of what [`Capability::covered`] puts together, which `docs/wire.md` shows.

mod keys;

use std::fmt;

use base::{ObjectId, Span, WallTime};

pub use keys::{CAPABILITY_KEYS_MAX, CapabilityKey, CapabilityKeys, KeysError};

/// Which key: a later one has a higher number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyEpoch(pub u32);

/// A client's certificate: the whole of its fingerprint, as the network knows it of every connection. The number in
/// [`ClientId`](base::ClientId) is only the beginning of that.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct CertificateId(pub [u8; 32]);

/// What an open file may be used for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum OpenMode {
    /// To read.
    Read,
    /// To read and to write.
    ReadWrite,
}

/// Who has which file open, and for what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    /// The file.
    pub file: ObjectId,
    /// For what.
    pub mode: OpenMode,
    /// By the holder of this certificate.
    pub certificate: CertificateId,
}

/// The proof that a client has a file open. Nothing in it counts before it is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capability {
    /// The volume in which the file was opened.
    pub volume: ObjectId,
    /// What it is good for.
    pub open: Open,
    /// The first instant at which it is good no more.
    pub expires: WallTime,
    /// The key that the tag was made with.
    pub epoch: KeyEpoch,
    /// What only a daemon could make.
    pub tag: Tag,
}

/// A keyed hash. It is never shown, and compared in constant time: that is what `==` of [`blake3::Hash`] is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Tag(blake3::Hash);

/// Why a capability is not good for what is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CapabilityError {
    /// A key that is not here: too old, or too new.
    #[error(
        "the capability was made with key {epoch}, which this daemon does not have (its latest is {latest}); open the file again, and \
         if that does not help, give every daemon the same file of keys and restart it"
    )]
    UnknownKey {
        /// The key's.
        epoch: KeyEpoch,
        /// The latest that is here.
        latest: KeyEpoch,
    },
    /// It was altered or made up, or daemons have different keys of one epoch.
    #[error(
        "the capability does not have the tag that its key makes; open the file again, and if that does not help, give every \
         daemon the same file of keys and restart it"
    )]
    Forged,
    /// Somebody else opened the file.
    #[error("the capability belongs to the holder of another certificate; open the file with the one in use")]
    ForeignClient,
    /// It is for another file.
    #[error(
        "the capability is for the file {theirs:?} and not for {wanted:?}; show what opening that one returned"
    )]
    OtherFile {
        /// What it is for.
        theirs: ObjectId,
        /// What it was shown for.
        wanted: ObjectId,
    },
    /// It is for reading only.
    #[error("the capability is for reading; open the file for writing")]
    ReadOnly,
    /// Its time is over.
    #[error("the capability expired {} s ago; open the file again", .ago.as_secs_f64())]
    Expired {
        /// How long ago.
        ago: Span,
    },
}

/// How many bytes a tag covers.
const COVERED_BYTES: usize = 77;

impl CapabilityKeys {
    /// The capability for a file of `volume` that was opened, good until `expires`, with the key that is used at `now`.
    pub fn issue(&self, volume: ObjectId, open: Open, expires: WallTime, now: WallTime) -> Capability {
        let (epoch, key) = self.used_at(now);
        let unsigned = Capability { volume, open, expires, epoch, tag: Tag::from_bytes([0; 32]) };
        Capability { tag: unsigned.tag_by(key), ..unsigned }
    }

    /// Whether a capability is good at `now` for what its bearer wants. It is believed nothing before its tag is found
    /// right, so who makes one up learns only that.
    pub fn check(
        &self,
        capability: &Capability,
        wanted: &Open,
        now: WallTime,
    ) -> Result<(), CapabilityError> {
        let Capability { open, expires, epoch, tag, .. } = *capability;
        let key = self.of(epoch).ok_or(CapabilityError::UnknownKey { epoch, latest: self.latest() })?;
        if capability.tag_by(key) != tag {
            return Err(CapabilityError::Forged);
        }
        if open.certificate != wanted.certificate {
            return Err(CapabilityError::ForeignClient);
        }
        if open.file != wanted.file {
            return Err(CapabilityError::OtherFile { theirs: open.file, wanted: wanted.file });
        }
        if open.mode < wanted.mode {
            return Err(CapabilityError::ReadOnly);
        }
        if expires <= now {
            return Err(CapabilityError::Expired { ago: now.since(expires) });
        }
        Ok(())
    }
}

impl Capability {
    fn tag_by(&self, key: &CapabilityKey) -> Tag {
        Tag(blake3::keyed_hash(key.for_tags(), &self.covered()))
    }

    /// Everything but the tag, each at its place, so that no two say the same.
    fn covered(&self) -> [u8; COVERED_BYTES] {
        let Self { volume, open: Open { file, mode, certificate }, expires, epoch, tag: _ } = *self;
        let mode = match mode {
            OpenMode::Read => 0,
            OpenMode::ReadWrite => 1,
        };
        let mut covered = [0; COVERED_BYTES];
        let mut rest = &mut covered[..];
        let words = [volume.high, volume.low, file.high, file.low, expires.as_micros()].map(u64::to_le_bytes);
        let parts = words.iter().map(|word| &word[..]);
        for part in parts.chain([&epoch.0.to_le_bytes()[..], &[mode], &certificate.0]) {
            let (place, behind) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = behind;
        }
        assert!(rest.is_empty(), "the parts fill what a tag covers");
        covered
    }
}

impl Tag {
    /// The tag that these bytes are, right or not.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(blake3::Hash::from_bytes(bytes))
    }

    /// Its bytes, for the client that may have it.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Tag {
    /// Whoever reads a log must not find what opens a file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tag(…)")
    }
}

impl fmt::Debug for CertificateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Display for KeyEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests;
