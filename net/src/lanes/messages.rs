//! The lane of small messages: one long-lived stream each way, in order and without loss.
//!
//! Senders put finished frames into a bounded queue, and one task writes everything that waits at once. So under
//! load the cost of a write is shared by hundreds of messages, and without load nothing waits.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use quinn::{SendStream, WriteError};
use tokio::sync::Notify;

/// Frames below this are copied together. quinn walks a list of all chunks that are on their way for every packet
/// it makes, so many small chunks would cost more than the copy does.
const COPIED_BELOW_BYTES: usize = 16 << 10;
/// What is copied together goes into pieces of about this size.
const PIECE_BYTES: usize = 64 << 10;

/// Frames on their way out.
pub(crate) struct MessageSender {
    waiting: Mutex<Waiting>,
    wake: Notify,
    bytes_max: usize,
}

#[derive(Default)]
struct Waiting {
    frames: Vec<Bytes>,
    /// Of all that is waiting or being written.
    bytes: usize,
    /// Why no more is taken.
    closed: Option<String>,
}

/// Why a frame was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// The peer does not read as fast as we write.
    #[error("{waiting_bytes} bytes wait for this peer already; send less, or try again later")]
    Backlog {
        /// How much waits.
        waiting_bytes: usize,
    },
    /// The connection has ended.
    #[error("the connection to this peer has ended")]
    Closed,
}

impl MessageSender {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { waiting: Mutex::default(), wake: Notify::new(), bytes_max }
    }

    /// Queues a frame, given in parts. All of it leaves in one piece, or none.
    pub(crate) fn send(&self, parts: impl IntoIterator<Item = Bytes>) -> Result<(), SendError> {
        let mut waiting = self.waiting();
        if waiting.closed.is_some() {
            return Err(SendError::Closed);
        }
        // One frame may exceed the bound, so that an empty queue takes every frame.
        if waiting.bytes >= self.bytes_max {
            return Err(SendError::Backlog { waiting_bytes: waiting.bytes });
        }
        for part in parts {
            waiting.bytes += part.len();
            waiting.frames.push(part);
        }
        drop(waiting);
        self.wake.notify_one();
        Ok(())
    }

    /// Bytes that wait or are being written.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting().bytes
    }

    /// Writes what is queued until the queue is closed and empty, and returns why it was closed.
    pub(crate) async fn write_to(&self, stream: &mut SendStream) -> Result<String, WriteError> {
        loop {
            let (frames, closed) = {
                let mut waiting = self.waiting();
                (std::mem::take(&mut waiting.frames), waiting.closed.clone())
            };
            if frames.is_empty() {
                if let Some(reason) = closed {
                    return Ok(reason);
                }
                self.wake.notified().await;
                continue;
            }
            let bytes: usize = frames.iter().map(Bytes::len).sum();
            stream.write_all_chunks(&mut pieces(frames)).await?;
            self.waiting().bytes -= bytes;
        }
    }

    /// Takes no more frames, for the first reason that is given.
    pub(crate) fn close(&self, reason: &str) {
        self.waiting().closed.get_or_insert_with(|| reason.to_owned());
        self.wake.notify_one();
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it holds the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The same bytes in fewer chunks.
fn pieces(frames: Vec<Bytes>) -> Vec<Bytes> {
    if frames.len() == 1 {
        return frames;
    }
    let mut pieces = Vec::new();
    let mut piece = BytesMut::new();
    for frame in frames {
        let is_large = frame.len() >= COPIED_BELOW_BYTES;
        if (is_large || piece.len() >= PIECE_BYTES) && !piece.is_empty() {
            pieces.push(piece.split().freeze());
        }
        if is_large {
            pieces.push(frame);
            continue;
        }
        if piece.is_empty() {
            piece.reserve(PIECE_BYTES + COPIED_BELOW_BYTES);
        }
        piece.extend_from_slice(&frame);
    }
    if !piece.is_empty() {
        pieces.push(piece.freeze());
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_same_bytes_in_fewer_chunks() {
        let sizes = [1, 2, COPIED_BELOW_BYTES, 3, COPIED_BELOW_BYTES - 1].into_iter();
        let frames: Vec<Bytes> =
            sizes.chain(std::iter::repeat_n(1_000, 200)).map(|size| Bytes::from(vec![7; size])).collect();
        let total: usize = frames.iter().map(Bytes::len).sum();
        let pieces = pieces(frames);
        assert_eq!(pieces.iter().map(Bytes::len).sum::<usize>(), total);
        assert!(pieces.len() <= total.div_ceil(PIECE_BYTES) + 3, "{}", pieces.len());
        assert_eq!(pieces[1].len(), COPIED_BELOW_BYTES, "large frames are not copied");
    }

    #[test]
    fn a_full_queue_says_so_and_a_closed_one_too() {
        let sender = MessageSender::new(10);
        sender.send([Bytes::from_static(b"0123456789ab")]).unwrap();
        assert_eq!(sender.send([Bytes::new()]), Err(SendError::Backlog { waiting_bytes: 12 }));
        sender.close("the test");
        assert_eq!(sender.send([Bytes::new()]), Err(SendError::Closed));
    }
}
