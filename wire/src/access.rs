//! Layout: why a client is refused what it asks of a volume, and what it shows for an open file.

use base::Span;
use namespace::limits::{LISTED_BYTES, PAGE_BYTES_MAX};
use node::{
    AccessError, Capability, CapabilityError, CertificateId, KeyEpoch, Open, OpenMode, PROOF_BYTES, Proof,
    Source as Origin, Tag,
};

use crate::DecodeError;
use crate::field::{Element, Field, Sink, Source, choice, number, record};

number!(KeyEpoch);
record!(Capability { source, open, expires, epoch, tag });
record!(Origin { volume, inode, lend });
record!(Open { file, mode, certificate });
choice!(OpenMode, "what a file is open for":
    0 Read;
    1 ReadWrite;
    2 Look;
);
choice!(AccessError, "why a client is refused":
    0 NotExported;
    1 ReadOnly;
    2 OperatorsOnly;
    3 Nobody { id };
    4 FileOfVolume;
    5 NoKeys;
    6 NotOpen;
    7 Outside;
    8 NoExportPath;
);
choice!(CapabilityError, "why a capability is not good":
    0 UnknownKey { epoch, latest };
    1 Forged;
    2 ForeignClient;
    3 OtherFile { theirs, wanted };
    4 Insufficient;
    5 Expired { ago };
    6 OtherVolume { theirs, wanted };
);

impl Field for CertificateId {
    fn put(&self, out: &mut Sink) {
        out.metadata.extend_from_slice(&self.0);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        from.take().map(Self)
    }
}

/// Any bytes may be one: whether it is right is for those to say who have the key.
impl Field for Tag {
    fn put(&self, out: &mut Sink) {
        out.metadata.extend_from_slice(self.as_bytes());
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        from.take().map(Self::from_bytes)
    }
}

impl Field for Span {
    fn put(&self, out: &mut Sink) {
        self.as_micros().put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        u64::get(from).map(Self::from_micros)
    }
}

impl Field for Proof {
    fn put(&self, out: &mut Sink) {
        self.epoch.put(out);
        out.metadata.extend_from_slice(self.as_bytes());
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        Ok(Self::new(Field::get(from)?, from.take()?))
    }
}

/// One for each entry of a page.
impl Element for Proof {
    const COUNT_MAX: usize = PAGE_BYTES_MAX / LISTED_BYTES;
    const BYTES_MIN: usize = 1 + PROOF_BYTES;
}
