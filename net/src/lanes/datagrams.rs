//! The lane of datagrams: small, quick, and lost rather than late.
//!
//! quinn throws away its oldest waiting datagrams when its own buffer is full, and tells nobody. So nothing is given
//! to it that does not fit: what does not fit waits here, and a task hands it on oldest first. When this queue is
//! full too, the oldest gives way to the newest, and is counted: a lease message that waited for so long has been
//! overtaken by its sender's next attempt.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use quinn::{Connection, ConnectionError, SendDatagramError};
use tokio::sync::Notify;

/// Datagrams handed to the owner in one event.
const BATCH_MAX: usize = 256;
/// With so many bytes an event is full.
const BATCH_BYTES: usize = 128 << 10;

/// Datagrams on their way out.
pub(crate) struct DatagramSender {
    connection: Connection,
    waiting: Mutex<Waiting>,
    wake: Notify,
    bytes_max: usize,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    queue: VecDeque<Bytes>,
    bytes: usize,
    /// Whether the pacing task holds a datagram that it has not yet got rid of: then nothing may overtake it.
    is_pacing: bool,
}

/// Why a datagram cannot be sent at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DatagramError {
    /// Longer than a packet of this connection carries at present.
    #[error(
        "a datagram of {bytes} bytes is longer than the {bytes_max} that fit a packet to this peer; split it"
    )]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The longest that fits.
        bytes_max: usize,
    },
    /// The connection has ended.
    #[error("the connection to this peer has ended")]
    Closed,
}

impl DatagramSender {
    pub(crate) fn new(connection: Connection, bytes_max: usize) -> Self {
        Self {
            connection,
            waiting: Mutex::default(),
            wake: Notify::new(),
            bytes_max,
            dropped: AtomicU64::new(0),
        }
    }

    /// The longest datagram that fits a packet at present.
    pub(crate) fn size_max(&self) -> usize {
        self.connection.max_datagram_size().unwrap_or(0)
    }

    /// Datagrams that were given up because both buffers were full.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Sends after everything that waits.
    pub(crate) fn send(&self, datagram: Bytes) -> Result<(), DatagramError> {
        self.check(&datagram)?;
        let mut waiting = self.waiting();
        if waiting.is_idle() && self.fits(&datagram) {
            return self.hand_on(datagram);
        }
        waiting.bytes += datagram.len();
        waiting.queue.push_back(datagram);
        self.make_room(&mut waiting);
        drop(waiting);
        self.wake.notify_one();
        Ok(())
    }

    /// Sends before everything that waits here: for heartbeats, which measure time.
    pub(crate) fn send_first(&self, datagram: Bytes) -> Result<(), DatagramError> {
        self.check(&datagram)?;
        let mut waiting = self.waiting();
        if self.fits(&datagram) {
            return self.hand_on(datagram);
        }
        waiting.bytes += datagram.len();
        waiting.queue.push_front(datagram);
        drop(waiting);
        self.wake.notify_one();
        Ok(())
    }

    /// Hands on what waits, as fast as the connection takes it. Ends with the connection.
    pub(crate) async fn pace(&self) {
        loop {
            let next = self.waiting().next();
            let Some(datagram) = next else {
                self.wake.notified().await;
                continue;
            };
            match self.connection.send_datagram_wait(datagram).await {
                Ok(()) => {}
                // Packets have become smaller meanwhile.
                Err(SendDatagramError::TooLarge) => self.count_dropped(),
                Err(_) => return,
            }
        }
    }

    fn check(&self, datagram: &Bytes) -> Result<(), DatagramError> {
        let (bytes, bytes_max) = (datagram.len(), self.size_max());
        if bytes > bytes_max { Err(DatagramError::TooLong { bytes, bytes_max }) } else { Ok(()) }
    }

    /// Whether quinn takes it without giving up an older one. Stays true while the lock on what waits is held,
    /// because nothing else fills quinn's buffer but the pacing task, which never makes it give anything up.
    fn fits(&self, datagram: &Bytes) -> bool {
        self.connection.datagram_send_buffer_space() >= datagram.len()
    }

    fn hand_on(&self, datagram: Bytes) -> Result<(), DatagramError> {
        match self.connection.send_datagram(datagram) {
            Ok(()) => Ok(()),
            Err(SendDatagramError::TooLarge) => {
                self.count_dropped();
                Ok(())
            }
            Err(_) => Err(DatagramError::Closed),
        }
    }

    fn make_room(&self, waiting: &mut Waiting) {
        while waiting.bytes > self.bytes_max {
            let Some(oldest) = waiting.queue.pop_front() else { return };
            waiting.bytes -= oldest.len();
            self.count_dropped();
        }
    }

    fn count_dropped(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        // Nothing panics while it holds the lock.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.is_pacing
    }

    fn next(&mut self) -> Option<Bytes> {
        let next = self.queue.pop_front();
        self.bytes -= next.as_ref().map_or(0, Bytes::len);
        self.is_pacing = next.is_some();
        next
    }
}

/// Waits for a datagram and takes everything else that has arrived by then.
pub(crate) async fn receive(connection: &Connection) -> Result<Vec<Bytes>, ConnectionError> {
    let first = connection.read_datagram().await?;
    let mut bytes = first.len();
    let mut batch = vec![first];
    let mut unheard = Context::from_waker(Waker::noop());
    while batch.len() < BATCH_MAX && bytes < BATCH_BYTES {
        match pin!(connection.read_datagram()).poll(&mut unheard) {
            Poll::Ready(Ok(datagram)) => {
                bytes += datagram.len();
                batch.push(datagram);
            }
            // An error comes up again at the next call.
            Poll::Ready(Err(_)) | Poll::Pending => break,
        }
    }
    Ok(batch)
}
