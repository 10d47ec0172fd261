//! The disk at work: the journal is written, synced and extended on threads of their own, which tell the driver what is done.
//!
//! ```text
//! driver --jobs--> journal's thread --written--> driver
//!                  journal's thread --sync--> sync's thread --synced--> journal's thread --durable--> driver
//! ```
//!
//! What is written when is decided by [`LogWriter`]. Checkpoints and reads run beside that (`files.rs`).

use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;

use crate::store::files::FileLog;
use crate::store::journal::{JournalError, Segments, Sync};
use crate::store::writer::{DiskDone, Job, LogWriter};

/// How long after finding the disk full the next segment is tried.
const FULL_RETRY: Duration = Duration::from_secs(1);

/// Something for the journal's thread.
pub(super) enum Order {
    /// Do this.
    Job(Job),
    /// Nobody has anything more to write.
    Stop,
}

/// The journal's thread.
struct Writer {
    writer: LogWriter,
    orders: mpsc::Receiver<Order>,
    again: mpsc::Sender<Order>,
    done: UnboundedSender<DiskDone>,
    syncs: mpsc::Sender<Sync>,
    is_stopping: bool,
}

/// Starts the threads of an open journal. They end with [`Order::Stop`].
pub(super) fn start(
    log: FileLog,
    segments: Segments,
    done: UnboundedSender<DiskDone>,
) -> io::Result<mpsc::Sender<Order>> {
    let (orders, received) = mpsc::channel();
    let (syncs, to_sync) = mpsc::channel::<Sync>();
    let again = orders.clone();
    let synced = orders.clone();
    thread::Builder::new().name("sync".into()).spawn(move || {
        // Ends with the journal's thread.
        while let Ok(sync) = to_sync.recv() {
            if synced.send(Order::Job(Job::Synced(sync.run()))).is_err() {
                return;
            }
        }
    })?;
    let writer = LogWriter::new(log, segments);
    let writer = Writer { writer, orders: received, again, done, syncs, is_stopping: false };
    thread::Builder::new().name("journal".into()).spawn(move || writer.run())?;
    Ok(orders)
}

impl Writer {
    fn run(mut self) {
        while !self.is_stopping {
            let Ok(order) = self.orders.recv() else { return };
            if let Err(error) = self.turn(order) {
                self.writer.fail();
                let _ = self.done.send(DiskDone::Failed(error));
                return;
            }
        }
    }

    /// Takes in what waits, and writes it.
    fn turn(&mut self, first: Order) -> Result<(), JournalError> {
        let mut next = Some(first);
        while let Some(order) = next {
            match order {
                Order::Job(job) => self.writer.take(job)?,
                Order::Stop => self.is_stopping = true,
            }
            next = if self.writer.may_take() { self.orders.try_recv().ok() } else { None };
        }
        self.writer.write()?;
        while let Some(done) = self.writer.poll_done() {
            // A driver that is gone has said so.
            let _ = self.done.send(done);
        }
        if let Some(sync) = self.writer.poll_sync() {
            // The thread is there as long as this one is.
            let _ = self.syncs.send(sync);
        }
        self.extend();
        Ok(())
    }

    /// Has a segment made before it is needed.
    fn extend(&mut self) {
        let Some((segments, slot)) = self.writer.poll_segment() else { return };
        let again = self.again.clone();
        let made = move || {
            let made = segments.make(slot);
            if made.as_ref().is_err_and(JournalError::is_full) {
                // It is wanted again at once.
                thread::sleep(FULL_RETRY);
            }
            // Nobody waits for it any longer once the journal's thread is gone.
            let _ = again.send(Order::Job(Job::Made(made)));
        };
        if thread::Builder::new().name("segment".into()).spawn(made).is_err() {
            self.writer.handle_not_made();
        }
    }
}
