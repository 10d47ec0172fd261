//! Reading and writing fixed-width numbers.

use base::{Epoch, Incarnation, NodeId, Process, Seq, ViewId};
use node::file::Damaged;

use crate::kind::Kind;

/// Why bytes are no message. The sender is broken or speaks another version; nothing of the frame is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The frame ends inside a field.
    #[error("the frame ends inside a field")]
    Truncated,
    /// Bytes are left after the last message.
    #[error("{0} bytes are left after the last message")]
    TrailingBytes(usize),
    /// Not the kind of frame that was expected here.
    #[error("frame kind {0} is not known here")]
    UnknownKind(u8),
    /// A version that this program does not speak.
    #[error("version {0} of this frame is not spoken here: run the same version of fleasefs on all nodes")]
    UnknownVersion(u8),
    /// The frame is not of the kind that was to be decoded.
    #[error("a {kind} frame came where a {wanted} frame was expected")]
    AnotherKind {
        /// What was expected.
        wanted: Kind,
        /// What came.
        kind: Kind,
    },
    /// A number, a choice or a text that its type cannot hold.
    #[error("a {0} frame holds a value that has no meaning")]
    Malformed(Kind),
    /// A number is written longer than it has to be: no encoder does that.
    #[error("a {0} frame holds a number that is padded")]
    Padded(Kind),
    /// The sender calls itself something else than its certificate does.
    #[error("a {0} frame names a sender of another role than the certificate of the connection")]
    WrongRole(Kind),
    /// A byte that has no meaning where it stands.
    #[error("byte {byte} has no meaning as {field}")]
    UnknownByte {
        /// What it stands for.
        field: &'static str,
        /// The byte.
        byte: u8,
    },
    /// No message is announced, or more than the frame can hold.
    #[error("the frame cannot hold {0} messages")]
    TooMany(usize),
    /// The frame names another sender than the one the connection belongs to.
    #[error("the frame names node {named} as its sender, but it came from node {actual}")]
    WrongSender {
        /// Who the frame says it is from.
        named: NodeId,
        /// Who sent it.
        actual: NodeId,
    },
    /// A field that is equal to its neighbour's is spelled out: no encoder does that.
    #[error("a field that equals its neighbour's is not left out")]
    NotLeftOut,
    /// The members of a view are empty, repeated, unsorted or too many.
    #[error("the members of a view are not a sorted list of distinct nodes")]
    BadMembers,
    /// A number is written longer than it has to be: no encoder does that.
    #[error("a number is padded")]
    PaddedNumber,
    /// A value that nobody can mean.
    #[error("the frame holds {0}, which cannot be")]
    Impossible(&'static str),
    /// Data does not fit its checksum.
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

/// A frame being read.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) const fn left(&self) -> usize {
        self.rest.len()
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (first, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    pub(crate) fn node(&mut self) -> Result<NodeId, DecodeError> {
        Ok(NodeId(self.u32()?))
    }

    pub(crate) fn process(&mut self) -> Result<Process, DecodeError> {
        Ok(Process { node: self.node()?, incarnation: Incarnation(self.u32()?) })
    }

    pub(crate) fn epoch(&mut self) -> Result<Epoch, DecodeError> {
        Ok(Epoch { number: self.u64()?, node: self.node()? })
    }

    pub(crate) fn view_id(&mut self) -> Result<ViewId, DecodeError> {
        Ok(ViewId { epoch: self.epoch()?, seq: Seq(self.u64()?) })
    }
}

/// A frame being written.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn u8(&mut self, value: u8) {
        self.bytes.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes.extend_from_slice(&value.to_le_bytes());
    }

    pub(crate) fn process(&mut self, process: Process) {
        self.u32(process.node.0);
        self.u32(process.incarnation.0);
    }

    pub(crate) fn epoch(&mut self, epoch: Epoch) {
        self.u64(epoch.number);
        self.u32(epoch.node.0);
    }

    pub(crate) fn view_id(&mut self, view: ViewId) {
        self.epoch(view.epoch);
        self.u64(view.seq.0);
    }
}
