//! Frames out of a stream that arrives in pieces of any size.

use std::mem;

use base::Role;
use bytes::{Bytes, BytesMut};

use crate::frame::{Admitted, FrameError, HEADER_BYTES, Header};
use crate::kind::Lane;

/// Memory for a frame is asked for in few steps, because what is there is copied in each.
const GROWTH: usize = 16;

/// Cuts a stream into frames, and refuses at its header what the sender may not send.
///
/// A frame that lies within one piece is not copied. Of a frame that does not, the reader keeps what has arrived: never
/// more than that one frame, and never more than 16 times the memory that has come in, whatever the header announces.
#[derive(Debug)]
pub struct FrameReader {
    role: Role,
    /// What has arrived of a frame that is not complete.
    partial: BytesMut,
    /// The header in `partial`, once it is there.
    header: Option<Header>,
    /// A stream with an error in it has no more frames: nobody knows where the next one would begin.
    broken: Option<FrameError>,
}

impl FrameReader {
    /// A reader of a stream whose sender showed a certificate for `role`.
    pub fn new(role: Role) -> Self {
        Self { role, partial: BytesMut::new(), header: None, broken: None }
    }

    /// The next frame, from what is left of `piece`; none as soon as the piece is used up.
    ///
    /// After an error every call returns that error.
    pub fn next(&mut self, piece: &mut Bytes) -> Result<Option<Admitted>, FrameError> {
        match &self.broken {
            Some(error) => Err(error.clone()),
            None => self.cut(piece).inspect_err(|error| {
                self.broken = Some(error.clone());
                self.partial = BytesMut::new();
            }),
        }
    }

    /// How many bytes of an unfinished frame are kept. At the end of a stream it has to be 0.
    pub fn pending(&self) -> usize {
        self.partial.len()
    }

    fn cut(&mut self, piece: &mut Bytes) -> Result<Option<Admitted>, FrameError> {
        if self.partial.is_empty()
            && let Some(bytes) = piece.first_chunk()
        {
            let header = self.check(bytes)?;
            if piece.len() - HEADER_BYTES >= header.body_len() {
                let body = piece.split_to(HEADER_BYTES + header.body_len()).split_off(HEADER_BYTES);
                return header.into_frame(body).admit(&self.role).map(Some);
            }
        }
        let header = match self.header {
            Some(header) => header,
            None => {
                self.take(piece, HEADER_BYTES);
                let Some(bytes) = self.partial.first_chunk() else { return Ok(None) };
                *self.header.insert(self.check(bytes)?)
            }
        };
        self.take(piece, HEADER_BYTES + header.body_len());
        if self.partial.len() < HEADER_BYTES + header.body_len() {
            return Ok(None);
        }
        self.header = None;
        let body = mem::take(&mut self.partial).freeze().split_off(HEADER_BYTES);
        header.into_frame(body).admit(&self.role).map(Some)
    }

    fn check(&self, bytes: &[u8; HEADER_BYTES]) -> Result<Header, FrameError> {
        let header = Header::parse(bytes)?;
        header.admit(&self.role)?;
        match header.kind().lane() {
            Lane::Stream => Ok(header),
            Lane::Datagram => Err(FrameError::WrongLane(header.kind())),
        }
    }

    /// Moves bytes of `piece` over until `len` are there.
    fn take(&mut self, piece: &mut Bytes, len: usize) {
        let missing = len.saturating_sub(self.partial.len()).min(piece.len());
        let there = self.partial.len() + missing;
        if there > self.partial.capacity() {
            self.partial.reserve(len.min(there * GROWTH) - self.partial.len());
        }
        self.partial.extend_from_slice(&piece.split_to(missing));
    }
}
