//! The disk at work: the journal is written, synced and extended on threads of their own, which tell the driver what is done.
//!
//! ```text
//! driver --jobs--> journal's thread --written--> driver
//!                  journal's thread --sync--> sync's thread --synced--> journal's thread --durable--> driver
//! ```
//!
//! Whatever waits is written together, and one sync covers all that was written when it began. Checkpoints and reads run beside that
//! (`files.rs`).

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc;
use std::thread;

use tokio::sync::mpsc::UnboundedSender;
use wire::FileRecord;

use crate::store::files::FileLog;
use crate::store::journal::{AppendError, JournalError, MadeSegment, Segments, Sync};

/// So much is written at once.
const BATCH_BYTES: usize = 4 << 20;

/// Something for the journal's thread.
pub(super) enum Job {
    /// Write this record.
    Append(u64, FileRecord),
    /// Sync what is written.
    Sync,
    /// Checkpoints have all up to this place.
    Free(u64),
    /// The store has failed elsewhere.
    Fail,
    /// Nobody has anything more to write.
    Stop,
    /// A sync has ended.
    Synced(Result<u64, JournalError>),
    /// A segment was made, or not.
    Made(Result<MadeSegment, JournalError>),
}

/// What the journal's thread tells.
#[derive(Debug)]
pub(super) enum DiskDone {
    /// All records up to this one outlive the process.
    Written(u64),
    /// And the power.
    Durable(u64),
    /// So much of its space is in use, and there may be so much.
    Used(u64, u64),
    /// The disk has failed.
    Failed(JournalError),
}

/// The journal's thread.
struct Writer {
    log: FileLog,
    segments: Segments,
    jobs: mpsc::Receiver<Job>,
    again: mpsc::Sender<Job>,
    done: UnboundedSender<DiskDone>,
    syncs: mpsc::Sender<Sync>,
    /// Records for which there is no space yet.
    waiting: VecDeque<(u64, FileRecord)>,
    wants_sync: bool,
    is_syncing: bool,
    is_making: bool,
    is_stopping: bool,
    used: u64,
}

/// Starts the threads of an open journal. They end with [`Job::Stop`].
pub(super) fn start(
    log: FileLog,
    segments: Segments,
    done: UnboundedSender<DiskDone>,
) -> io::Result<mpsc::Sender<Job>> {
    let (jobs, received) = mpsc::channel();
    let (syncs, to_sync) = mpsc::channel::<Sync>();
    let again = jobs.clone();
    let synced = jobs.clone();
    thread::Builder::new().name("sync".into()).spawn(move || {
        // Ends with the journal's thread.
        while let Ok(sync) = to_sync.recv() {
            if synced.send(Job::Synced(sync.run())).is_err() {
                return;
            }
        }
    })?;
    let writer = Writer {
        log,
        segments,
        jobs: received,
        again,
        done,
        syncs,
        waiting: VecDeque::new(),
        wants_sync: false,
        is_syncing: false,
        is_making: false,
        is_stopping: false,
        used: 0,
    };
    thread::Builder::new().name("journal".into()).spawn(move || writer.run())?;
    Ok(jobs)
}

impl Writer {
    fn run(mut self) {
        while !self.is_stopping {
            let Ok(job) = self.jobs.recv() else { return };
            let turn = self.turn(job);
            if let Err(error) = turn {
                self.log.fail();
                let _ = self.done.send(DiskDone::Failed(error));
                return;
            }
        }
    }

    /// Takes in what waits, and writes it.
    fn turn(&mut self, first: Job) -> Result<(), JournalError> {
        let mut next = Some(first);
        while let Some(job) = next {
            self.take(job)?;
            self.append()?;
            let may_take = self.log.waiting_bytes() < BATCH_BYTES;
            next = if may_take { self.jobs.try_recv().ok() } else { None };
        }
        let before = self.log.written();
        let written = self.log.write()?;
        if written > before {
            self.tell(DiskDone::Written(written));
        }
        if self.wants_sync && !self.is_syncing {
            (self.wants_sync, self.is_syncing) = (false, true);
            // The thread is there as long as this one is.
            let _ = self.syncs.send(self.log.sync());
        }
        self.extend();
        let (used, bytes_max) = self.log.used_bytes();
        if std::mem::replace(&mut self.used, used) != used {
            self.tell(DiskDone::Used(used, bytes_max));
        }
        Ok(())
    }

    fn take(&mut self, job: Job) -> Result<(), JournalError> {
        match job {
            Job::Append(number, record) => self.waiting.push_back((number, record)),
            Job::Stop => self.is_stopping = true,
            Job::Sync => self.wants_sync = true,
            Job::Free(place) => self.log.free(place),
            Job::Fail => return Err(JournalError::Closed),
            Job::Synced(synced) => {
                self.is_syncing = false;
                let durable = self.log.handle_synced(synced?)?;
                self.tell(DiskDone::Durable(durable));
            }
            Job::Made(made) => {
                self.is_making = false;
                match made {
                    Ok(made) => self.log.handle_made(made),
                    Err(error) if error.is_full() => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Hands over the records for which there is space, in order.
    fn append(&mut self) -> Result<(), JournalError> {
        while let Some((number, record)) = self.waiting.pop_front() {
            match self.log.append(number, &record) {
                Ok(()) => {}
                Err(JournalError::Append(AppendError::Full)) => {
                    self.waiting.push_front((number, record));
                    // Some of it may be in the batch that is not written yet, and the rest in the next segment.
                    if self.log.is_waiting() {
                        let written = self.log.write()?;
                        self.tell(DiskDone::Written(written));
                        continue;
                    }
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Has a segment made before it is needed.
    fn extend(&mut self) {
        let Some(slot) = self.log.wanted().filter(|_| !self.is_making) else { return };
        let (segments, again) = (self.segments.clone(), self.again.clone());
        let made = move || {
            // Nobody waits for it any longer once the journal's thread is gone.
            let _ = again.send(Job::Made(segments.make(slot)));
        };
        self.is_making = thread::Builder::new().name("segment".into()).spawn(made).is_ok();
    }

    fn tell(&self, done: DiskDone) {
        // A driver that is gone has said so.
        let _ = self.done.send(done);
    }
}
