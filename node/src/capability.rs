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
//! Layout: the tag is the keyed BLAKE3 hash of what stands in `Capability::tag_by`, which `docs/wire.md` shows.

mod keys;
mod proof;

use std::fmt;

use base::{ObjectId, Span, WallTime};
use namespace::{Born, Generation, InodeId};

use crate::file::FileOf;
use crate::file_object;

pub use keys::{CAPABILITY_KEYS_MAX, CapabilityKey, CapabilityKeys, KeysError};
pub(crate) use proof::Proven;
pub use proof::{PROOF_BYTES, Proof};

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
    /// To ask how it is, and to make durable what was written to it: whoever is told of a file may do that.
    Look,
    /// To read.
    Read,
    /// To read and to write.
    ReadWrite,
}

/// How long a capability is good. After as long again it is renewed only for who is known to have the file open.
pub const CAPABILITY_LASTS: Span = Span::from_secs(5 * 60);

/// Which file is opened, as the primary of its volume knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// The volume.
    pub volume: ObjectId,
    /// Which of its inodes.
    pub inode: InodeId,
    /// The lend of the file's size and times that is in force.
    pub lend: Option<Generation>,
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
    /// Where the file was opened.
    pub source: Source,
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
    /// It is for a file of another volume.
    #[error(
        "the capability is for a file of the volume {theirs:?} and not of {wanted:?}; renew it where the file was opened"
    )]
    OtherVolume {
        /// What it is for.
        theirs: ObjectId,
        /// What it was shown for.
        wanted: ObjectId,
    },
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
    /// It is for less.
    #[error("the capability is for less than that; open the file to read, or to read and write")]
    Insufficient,
    /// Its time is over.
    #[error("the capability expired {} s ago; open the file again", .ago.as_secs_f64())]
    Expired {
        /// How long ago.
        ago: Span,
    },
}

impl CapabilityKeys {
    /// The capability for a file that the holder of a certificate has opened, good until `expires`, with the key that is used at
    /// `now`.
    pub fn issue(
        &self,
        source: Source,
        (certificate, mode): (CertificateId, OpenMode),
        expires: WallTime,
        now: WallTime,
    ) -> Capability {
        let (epoch, key) = self.used_at(now);
        let open = Open { file: file_object(source.volume, source.inode), mode, certificate };
        let unsigned = Capability { source, open, expires, epoch, tag: Tag::from_bytes([0; 32]) };
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
        self.check_given(capability, wanted)?;
        let Capability { expires, .. } = *capability;
        if expires <= now {
            return Err(CapabilityError::Expired { ago: now.since(expires) });
        }
        Ok(())
    }

    /// Whether a capability is good for what its bearer wants, or was.
    pub fn check_given(&self, capability: &Capability, wanted: &Open) -> Result<(), CapabilityError> {
        self.check_tag(capability, wanted.certificate)?;
        let Capability { open, .. } = *capability;
        if open.file != wanted.file {
            return Err(CapabilityError::OtherFile { theirs: open.file, wanted: wanted.file });
        }
        if open.mode < wanted.mode {
            return Err(CapabilityError::Insufficient);
        }
        Ok(())
    }

    /// Whether a capability may be renewed at `now` by its bearer, at the primary of a volume, whoever that is. It need not be good any more.
    /// If nothing else is against it, it is refused as expired when that was long ago.
    pub fn check_renewable(
        &self,
        capability: &Capability,
        (volume, certificate): (ObjectId, CertificateId),
        now: WallTime,
    ) -> Result<(), CapabilityError> {
        self.check_tag(capability, certificate)?;
        let Capability { source, expires, .. } = *capability;
        if source.volume != volume {
            return Err(CapabilityError::OtherVolume { theirs: source.volume, wanted: volume });
        }
        if expires + CAPABILITY_LASTS <= now {
            return Err(CapabilityError::Expired { ago: now.since(expires) });
        }
        Ok(())
    }

    /// Whether a daemon made the capability, and for the holder of this certificate.
    fn check_tag(&self, capability: &Capability, bearer: CertificateId) -> Result<(), CapabilityError> {
        let Capability { open, epoch, tag, .. } = *capability;
        let key = self.of(epoch).ok_or(CapabilityError::UnknownKey { epoch, latest: self.latest() })?;
        if capability.tag_by(key) != tag {
            return Err(CapabilityError::Forged);
        }
        if open.certificate != bearer { Err(CapabilityError::ForeignClient) } else { Ok(()) }
    }
}

impl Capability {
    /// Which file it says that it is for.
    pub const fn of(&self) -> FileOf {
        FileOf { volume: self.source.volume, inode: self.source.inode }
    }

    /// Everything but the tag goes into it, each in a width of its own, so that no two say the same.
    fn tag_by(&self, key: &CapabilityKey) -> Tag {
        let Self { source, open: Open { file, mode, certificate }, expires, epoch, tag: _ } = *self;
        let Source { volume, inode, lend } = source;
        let mode = match mode {
            OpenMode::Read => 0,
            OpenMode::ReadWrite => 1,
            OpenMode::Look => 2,
        };
        let Generation(Born { epoch: lent, seq }) = lend.unwrap_or(Generation(Born::default()));
        let mut hasher = blake3::Hasher::new_keyed(key.for_tags());
        let mut cover = |bytes: &[u8]| _ = hasher.update(bytes);
        cover(&volume.high.to_le_bytes());
        cover(&volume.low.to_le_bytes());
        cover(&inode.number.to_le_bytes());
        cover(&inode.epoch.number.to_le_bytes());
        cover(&inode.epoch.node.0.to_le_bytes());
        cover(&[u8::from(lend.is_some())]);
        cover(&lent.number.to_le_bytes());
        cover(&lent.node.0.to_le_bytes());
        cover(&seq.0.to_le_bytes());
        cover(&file.high.to_le_bytes());
        cover(&file.low.to_le_bytes());
        cover(&expires.as_micros().to_le_bytes());
        cover(&epoch.0.to_le_bytes());
        cover(&[mode]);
        cover(&certificate.0);
        Tag(hasher.finalize())
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
