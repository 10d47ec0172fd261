//! Layout: the header of a frame, and a frame's way from bytes to a message.
//!
//! ```text
//! bytes --Header::parse--> Header --FrameReader, Frame::from_datagram--> Frame --admit--> Admitted --decode--> message
//! ```
//!
//! Each step can refuse, and a later type cannot be made without the earlier steps. A `Header` was checked against
//! the limits of its kind. A `Frame` is whole. An `Admitted` frame is of a kind that its sender may send. Only then
//! is anything decoded.

use base::Role;
use bytes::Bytes;

use crate::codec::Message;
use crate::kind::{Kind, Lane, PROTOCOL_VERSION, Sender};
use crate::{DecodeError, decode_lease_frame};

/// The length of a header.
pub const HEADER_BYTES: usize = 12;

/// Why bytes are no frame that may come here. The sender is broken, hostile, or speaks another version: whatever
/// it sent in the same stream or datagram is not to be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The first byte names no kind.
    #[error("frame kind {0} is not known: run the same version of fleasefs everywhere")]
    UnknownKind(u8),
    /// A layout of another version.
    #[error(
        "the peer speaks version {theirs} of the protocol and this program version {PROTOCOL_VERSION}: run the \
         same version of fleasefs everywhere"
    )]
    OtherVersion {
        /// The version of the frame.
        theirs: u8,
    },
    /// Bytes that have to be zero are not.
    #[error("reserved bytes of a {kind} frame are {reserved:#06x} instead of zero")]
    Reserved {
        /// The kind of the frame.
        kind: Kind,
        /// What they are.
        reserved: u16,
    },
    /// A part is longer than the kind allows.
    #[error("a {kind} frame announces {announced} bytes where at most {allowed} are allowed")]
    TooLong {
        /// The kind of the frame.
        kind: Kind,
        /// What the header says.
        announced: u32,
        /// The limit.
        allowed: u32,
    },
    /// A datagram in a stream, or the other way round.
    #[error("a {0} frame does not travel this way")]
    WrongLane(Kind),
    /// The sender's certificate does not allow it to send this.
    #[error("{role} may not send a {kind} frame")]
    NotAdmitted {
        /// Who sent it.
        role: Role,
        /// What was sent.
        kind: Kind,
    },
    /// A datagram ends before its frame does.
    #[error("a datagram ends before its frame does")]
    Truncated,
    /// A datagram goes on after its frame.
    #[error("{0} bytes are left after the frame of a datagram")]
    TrailingBytes(usize),
}

/// The beginning of a frame, checked: its kind is known and its lengths are within the kind's limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    kind: Kind,
    metadata_len: u32,
    tail_len: u32,
}

/// A whole frame, not yet decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    kind: Kind,
    metadata: Bytes,
    tail: Bytes,
}

/// A frame of a kind that its sender may send, not yet decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admitted {
    frame: Frame,
    sender: Sender,
}

impl Header {
    /// Reads and checks the first bytes of a frame. Nothing was allocated for the rest so far.
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let &[kind, version, reserved_low, reserved_high, m0, m1, m2, m3, t0, t1, t2, t3] = bytes;
        let kind = Kind::of(kind).ok_or(FrameError::UnknownKind(kind))?;
        // A refusal has the same layout in every version, so that it can be understood.
        if version != PROTOCOL_VERSION && kind != Kind::Refusal {
            return Err(FrameError::OtherVersion { theirs: version });
        }
        if kind == Kind::Lease {
            // It has a header of its own and never comes behind one of these.
            return Err(FrameError::WrongLane(kind));
        }
        match u16::from_le_bytes([reserved_low, reserved_high]) {
            0 => {}
            reserved => return Err(FrameError::Reserved { kind, reserved }),
        }
        let (metadata_len, tail_len) =
            (u32::from_le_bytes([m0, m1, m2, m3]), u32::from_le_bytes([t0, t1, t2, t3]));
        let limits = kind.limits();
        for (announced, allowed) in [(metadata_len, limits.metadata), (tail_len, limits.tail)] {
            if announced > allowed {
                return Err(FrameError::TooLong { kind, announced, allowed });
            }
        }
        Ok(Self { kind, metadata_len, tail_len })
    }

    /// The header of a frame with these parts.
    ///
    /// # Panics
    ///
    /// If a part is longer than the kind allows: whoever made the message was to bound it.
    pub(crate) fn of(kind: Kind, metadata: usize, tail: usize) -> Self {
        let limits = kind.limits();
        let checked = |len: usize, limit: u32| {
            let len = u32::try_from(len).ok().filter(|len| *len <= limit);
            len.unwrap_or_else(|| panic!("a {kind} frame of ours is longer than {limit} bytes"))
        };
        Self { kind, metadata_len: checked(metadata, limits.metadata), tail_len: checked(tail, limits.tail) }
    }

    /// The header as bytes.
    pub(crate) fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.kind as u8;
        bytes[1] = PROTOCOL_VERSION;
        bytes[4..8].copy_from_slice(&self.metadata_len.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.tail_len.to_le_bytes());
        bytes
    }

    /// The kind of the frame.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// How many bytes follow the header.
    pub const fn body_len(&self) -> usize {
        self.metadata_len as usize + self.tail_len as usize
    }

    /// Whether `role` may send such a frame.
    pub fn admit(&self, role: &Role) -> Result<(), FrameError> {
        admit(self.kind, role)
    }

    /// The frame, from the bytes that follow the header.
    pub(crate) fn into_frame(self, mut body: Bytes) -> Frame {
        assert_eq!(body.len(), self.body_len(), "a frame is cut where its header says");
        let metadata = body.split_to(self.metadata_len as usize);
        Frame { kind: self.kind, metadata, tail: body }
    }
}

impl Frame {
    /// The frame that a datagram holds.
    pub fn from_datagram(mut datagram: Bytes) -> Result<Self, FrameError> {
        if let Some(&[kind, version]) = datagram.first_chunk()
            && kind == Kind::Lease as u8
        {
            return Self::lease(version, datagram);
        }
        let header = Header::parse(datagram.first_chunk().ok_or(FrameError::Truncated)?)?;
        if header.kind.lane() != Lane::Datagram {
            return Err(FrameError::WrongLane(header.kind));
        }
        let body = datagram.split_off(HEADER_BYTES);
        match body.len().checked_sub(header.body_len()) {
            None => Err(FrameError::Truncated),
            Some(0) => Ok(header.into_frame(body)),
            Some(left) => Err(FrameError::TrailingBytes(left)),
        }
    }

    /// A lease frame is decoded as a whole: its header is part of its own layout.
    fn lease(version: u8, datagram: Bytes) -> Result<Self, FrameError> {
        let (kind, allowed) = (Kind::Lease, Kind::Lease.limits().metadata);
        let announced = u32::try_from(datagram.len()).unwrap_or(u32::MAX);
        if version != PROTOCOL_VERSION {
            return Err(FrameError::OtherVersion { theirs: version });
        }
        if announced > allowed {
            return Err(FrameError::TooLong { kind, announced, allowed });
        }
        Ok(Self { kind, metadata: datagram, tail: Bytes::new() })
    }

    /// The kind of the frame.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Lets the frame in if the holder of a certificate for `role` may send such frames.
    pub fn admit(self, role: &Role) -> Result<Admitted, FrameError> {
        admit(self.kind, role)?;
        Ok(Admitted { frame: self, sender: Sender::from(role) })
    }
}

impl Admitted {
    /// The kind of the frame.
    pub const fn kind(&self) -> Kind {
        self.frame.kind
    }

    /// The raw tail, which no codec touches.
    pub const fn tail(&self) -> &Bytes {
        &self.frame.tail
    }

    /// The message in the frame.
    pub fn decode<M: Message>(&self) -> Result<M, DecodeError> {
        let Frame { kind, metadata, tail } = &self.frame;
        if *kind != M::KIND {
            return Err(DecodeError::AnotherKind { wanted: M::KIND, kind: *kind });
        }
        let message = M::read(metadata, tail)?;
        message.check_sender(self.sender)?;
        Ok(message)
    }

    /// The lease messages in the frame.
    pub fn decode_leases(&self) -> Result<lease::Batch, DecodeError> {
        match (self.frame.kind, self.sender) {
            (Kind::Lease, Sender::Node(node)) => decode_lease_frame(&self.frame.metadata, node),
            (kind, _) => Err(DecodeError::AnotherKind { wanted: Kind::Lease, kind }),
        }
    }
}

fn admit(kind: Kind, role: &Role) -> Result<(), FrameError> {
    if kind.may_come_from(role) { Ok(()) } else { Err(FrameError::NotAdmitted { role: role.clone(), kind }) }
}
