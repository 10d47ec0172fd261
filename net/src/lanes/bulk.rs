//! The lane of transfers: a stream of its own for each, so that a small request never queues behind a large one.

use bytes::Bytes;
use quinn::{Connection, ConnectionError, ReadError, RecvStream, SendStream, VarInt, WriteError};

/// From this size on a transfer is worth a stream of its own.
pub const BULK_BYTES_MIN: usize = 64 << 10;

/// What the other side sees when a transfer is given up.
const CODE_GIVEN_UP: VarInt = VarInt::from_u32(1);

/// A stream for one transfer, open both ways.
#[derive(Debug)]
pub struct Bulk {
    /// Towards the peer.
    pub send: BulkSender,
    /// From the peer.
    pub receive: BulkReceiver,
}

/// The sending half. Dropped before it was finished, it tells the peer that the transfer was given up.
#[derive(Debug)]
pub struct BulkSender {
    stream: SendStream,
    is_finished: bool,
}

/// The receiving half. Dropped early, it tells the peer to stop.
#[derive(Debug)]
pub struct BulkReceiver {
    stream: RecvStream,
}

/// Why a transfer did not come through.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BulkError {
    /// The peer gave it up, or did not want it.
    #[error("the peer gave the transfer up")]
    GivenUp,
    /// More came than the receiver takes.
    #[error("the transfer is longer than {bytes_max} bytes")]
    TooLong {
        /// What the receiver takes.
        bytes_max: usize,
    },
    /// The connection has ended.
    #[error("the connection to this peer has ended")]
    Closed,
}

impl Bulk {
    pub(crate) async fn open(connection: &Connection) -> Result<Self, BulkError> {
        let (send, receive) = connection.open_bi().await.map_err(|_| BulkError::Closed)?;
        Ok(Self::new(send, receive))
    }

    pub(crate) async fn accept(connection: &Connection) -> Result<Self, ConnectionError> {
        let (send, receive) = connection.accept_bi().await?;
        Ok(Self::new(send, receive))
    }

    fn new(send: SendStream, receive: RecvStream) -> Self {
        Self {
            send: BulkSender { stream: send, is_finished: false },
            receive: BulkReceiver { stream: receive },
        }
    }
}

impl BulkSender {
    /// Sends `bytes` without copying them, as soon as the peer has room.
    pub async fn send(&mut self, bytes: Bytes) -> Result<(), BulkError> {
        self.stream.write_chunk(bytes).await.map_err(|error| match error {
            WriteError::Stopped(_) => BulkError::GivenUp,
            _ => BulkError::Closed,
        })
    }

    /// Everything was sent.
    pub fn finish(mut self) {
        // Only a stream that is finished or given up already fails, and this one is neither.
        let _ = self.stream.finish();
        self.is_finished = true;
    }
}

impl Drop for BulkSender {
    fn drop(&mut self) {
        // quinn would end the stream as if all had been sent.
        if !self.is_finished {
            let _ = self.stream.reset(CODE_GIVEN_UP);
        }
    }
}

impl BulkReceiver {
    /// The next piece, of at most `bytes_max` bytes; none at the end.
    pub async fn receive(&mut self, bytes_max: usize) -> Result<Option<Bytes>, BulkError> {
        match self.stream.read_chunk(bytes_max, true).await {
            Ok(chunk) => Ok(chunk.map(|chunk| chunk.bytes)),
            Err(ReadError::Reset(_)) => Err(BulkError::GivenUp),
            Err(_) => Err(BulkError::Closed),
        }
    }

    /// All that comes, if it is no more than `bytes_max` bytes.
    pub async fn receive_all(&mut self, bytes_max: usize) -> Result<Vec<u8>, BulkError> {
        let mut all = Vec::new();
        while let Some(piece) = self.receive(usize::MAX).await? {
            if all.len() + piece.len() > bytes_max {
                return Err(BulkError::TooLong { bytes_max });
            }
            all.extend_from_slice(&piece);
        }
        Ok(all)
    }
}
