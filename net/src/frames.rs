//! Frames out of the peer's stream of small messages, as many at once as have arrived.

use std::collections::VecDeque;

use base::Role;
use bytes::Bytes;
use quinn::{ConnectionError, ReadError, RecvStream};
use wire::{Admitted, FrameError, FrameReader};

/// Pieces taken from the stream under one lock. A piece is what one packet carried.
const PIECES: usize = 32;

/// The stream of small messages that a peer sends.
pub(crate) struct FrameStream {
    stream: RecvStream,
    reader: FrameReader,
    pieces: [Bytes; PIECES],
    /// Cut already, and not yet taken.
    ready: VecDeque<Admitted>,
}

/// Why no more frames come.
#[derive(Debug)]
pub(crate) enum ReadFramesError {
    /// The peer broke the protocol, or sent what its role must not send.
    Frame(FrameError),
    /// The connection has ended.
    Connection(ConnectionError),
    /// The peer has finished its stream.
    End,
}

impl FrameStream {
    pub(crate) fn new(stream: RecvStream, role: Role) -> Self {
        Self { stream, reader: FrameReader::new(role), pieces: Default::default(), ready: VecDeque::new() }
    }

    /// The next frame.
    pub(crate) async fn next(&mut self) -> Result<Admitted, ReadFramesError> {
        loop {
            if let Some(frame) = self.ready.pop_front() {
                return Ok(frame);
            }
            self.read().await?;
        }
    }

    /// All frames that have arrived, at least one.
    pub(crate) async fn batch(&mut self) -> Result<Vec<Admitted>, ReadFramesError> {
        while self.ready.is_empty() {
            self.read().await?;
        }
        Ok(self.ready.drain(..).collect())
    }

    /// Bytes were read when this returns, if not yet whole frames.
    async fn read(&mut self) -> Result<(), ReadFramesError> {
        let filled = match self.stream.read_chunks(&mut self.pieces).await {
            Ok(Some(filled)) => filled,
            Ok(None) | Err(ReadError::Reset(_)) => return Err(ReadFramesError::End),
            Err(ReadError::ConnectionLost(error)) => return Err(ReadFramesError::Connection(error)),
            // The rest would be our own mistakes: unordered or early reads.
            Err(_) => return Err(ReadFramesError::End),
        };
        for piece in &mut self.pieces[..filled] {
            while let Some(frame) = self.reader.next(piece).map_err(ReadFramesError::Frame)? {
                self.ready.push_back(frame);
            }
        }
        Ok(())
    }
}
