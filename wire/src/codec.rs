//! Layout: postcard, made strict, and how a message becomes a frame.
//!
//! Postcard alone accepts numbers that are padded with zeros, so that one message could be written in many ways.
//! Padding can only make it longer. So a message is refused if its own encoding is not as long as what came in, and
//! what is accepted is byte for byte what our encoder writes.
//!
//! How much memory decoding takes is bounded before any is taken: by the length of the input, times
//! [`ALLOCATED_PER_BYTE_MAX`]. The number of messages in a frame is checked before there is room for the first.

use bytes::Bytes;
use node::{PeerMessage, PeerStatus, Reply, Request};
use postcard::ser_flavors::{Flavor, Size};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::DecodeError;
use crate::field::Sink;
use crate::frame::{HEADER_BYTES, Header};
use crate::kind::{Kind, Sender};

/// Decoding takes at most this many bytes of memory for each byte of input, and a little for any input.
pub const ALLOCATED_PER_BYTE_MAX: usize = 128;
const _: () = assert!(
    size_of::<PeerMessage>() <= ALLOCATED_PER_BYTE_MAX
        && size_of::<Request>() <= ALLOCATED_PER_BYTE_MAX
        && size_of::<Reply>() <= ALLOCATED_PER_BYTE_MAX
        && size_of::<PeerStatus>() <= ALLOCATED_PER_BYTE_MAX,
    "a message takes at least one byte of input, and room for itself"
);

/// Room for header and metadata of most messages, which then need not grow.
const HEAD_BYTES: usize = 512;

/// A message that travels as a frame. Only this crate knows how, so only this crate has implementations.
pub trait Message: Body {}

impl<M: Body> Message for M {}

/// The part of [`Message`] that nobody else needs to see.
pub trait Body: Sized {
    /// The kind of its frames.
    const KIND: Kind;

    /// Appends the metadata, and what follows it as it is.
    fn write(&self, out: &mut Sink);

    /// Reads metadata and tail, and accepts nothing that [`write`](Self::write) could not have written.
    fn read(metadata: &[u8], tail: &Bytes) -> Result<Self, DecodeError>;

    /// Whether the message says of its sender what the certificate says.
    fn check_sender(&self, _sender: Sender) -> Result<(), DecodeError> {
        Ok(())
    }
}

/// Appends `message` to `out` as one frame. Any number of frames may stand behind each other in a stream.
///
/// # Panics
///
/// If the message holds more than its limit allows, for example more than [`PEER_BATCH_MAX`](node::PEER_BATCH_MAX) messages.
pub fn encode<M: Message>(message: &M, out: &mut Vec<u8>) {
    let tail = encode_head(message, out);
    tail.iter().for_each(|piece| out.extend_from_slice(piece));
}

/// The frame of a message in pieces that stand behind each other. The first has the header and the metadata; the others share
/// the memory of the message's data.
///
/// # Panics
///
/// As [`encode`] does.
pub fn encode_in_pieces<M: Message>(message: &M) -> Vec<Bytes> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    let mut pieces = encode_head(message, &mut head);
    pieces.insert(0, head.into());
    pieces
}

/// Appends the header and the metadata, and gives back the tail.
fn encode_head<M: Message>(message: &M, out: &mut Vec<u8>) -> Vec<Bytes> {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    let mut sink = Sink { metadata: std::mem::take(out), tail: Vec::new() };
    message.write(&mut sink);
    *out = sink.metadata;
    let (metadata, tail) = (out.len() - start - HEADER_BYTES, sink.tail.iter().map(Bytes::len).sum());
    let header = Header::of(M::KIND, metadata, tail).to_bytes();
    out[start..start + HEADER_BYTES].copy_from_slice(&header);
    sink.tail
}

/// Appends to a vector. Postcard's own takes bytes one by one.
struct Append<'a>(&'a mut Vec<u8>);

impl Flavor for Append<'_> {
    type Output = ();

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.0.push(data);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends a value as postcard writes it.
pub(crate) fn append<T: Serialize + ?Sized>(value: &T, out: &mut Sink) {
    // Only sequences of unknown length fail, and no message has one.
    postcard::serialize_with_flavor(value, Append(&mut out.metadata)).expect("a message can be written");
}

/// Reads a value that takes up all of `bytes`.
pub(crate) fn read_all<T: Serialize + DeserializeOwned>(kind: Kind, bytes: &[u8]) -> Result<T, DecodeError> {
    let mut rest = bytes;
    let value = read_next(kind, &mut rest)?;
    check_end(kind, &value, bytes, rest)?;
    Ok(value)
}

/// Reads a value from the beginning of `bytes`, and moves them on.
pub(crate) fn read_next<T: DeserializeOwned>(kind: Kind, bytes: &mut &[u8]) -> Result<T, DecodeError> {
    let (value, rest) = postcard::take_from_bytes(bytes).map_err(|error| match error {
        postcard::Error::DeserializeUnexpectedEnd => DecodeError::Truncated,
        _ => DecodeError::Malformed(kind),
    })?;
    *bytes = rest;
    Ok(value)
}

/// Reads a list of at most `count_max` values.
pub(crate) fn read_list<T: DeserializeOwned>(
    kind: Kind,
    bytes: &mut &[u8],
    count_max: usize,
) -> Result<Vec<T>, DecodeError> {
    let count = usize::try_from(read_next::<u64>(kind, bytes)?).unwrap_or(usize::MAX);
    // Each value takes at least a byte.
    if count > count_max || count > bytes.len() {
        return Err(DecodeError::TooMany(count));
    }
    let mut list = Vec::with_capacity(count);
    for _ in 0..count {
        list.push(read_next(kind, bytes)?);
    }
    Ok(list)
}

/// Whether `value`, which was read from `bytes` up to `rest`, takes up all of them and no more than it needs.
pub(crate) fn check_end<T: Serialize>(
    kind: Kind,
    value: &T,
    bytes: &[u8],
    rest: &[u8],
) -> Result<(), DecodeError> {
    if !rest.is_empty() {
        return Err(DecodeError::TrailingBytes(rest.len()));
    }
    let len = postcard::serialize_with_flavor(value, Size::default());
    if len == Ok(bytes.len()) { Ok(()) } else { Err(DecodeError::Padded(kind)) }
}
