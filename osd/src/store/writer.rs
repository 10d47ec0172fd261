//! The journal at work: what is written when, what a sync covers, and when a segment is made. Without threads: whoever drives it
//! runs what takes long wherever it likes, and tells it of the end.
//!
//! Whatever waits is written together, and one sync covers all that was written when it began.

use std::collections::VecDeque;

use wire::FileRecord;

use super::files::FileLog;
use super::journal::{AppendError, JournalError, MadeSegment, Segments, Sync};

/// So much is written at once.
const BATCH_BYTES: usize = 4 << 20;

/// Something for the journal.
pub enum Job {
    /// Write this record.
    Append(u64, FileRecord),
    /// Sync what is written.
    Sync,
    /// Sync all up to this record, and take the space that it needs: what lets space be freed waits for it.
    SyncUpto(u64),
    /// Checkpoints have all up to this place.
    Free(u64),
    /// The store has failed elsewhere.
    Fail,
    /// A sync has ended.
    Synced(Result<u64, JournalError>),
    /// A segment was made, or not.
    Made(Result<MadeSegment, JournalError>),
}

/// What the journal tells.
#[derive(Debug)]
pub enum DiskDone {
    /// All records up to this one outlive the process.
    Written(u64),
    /// And the power.
    Durable(u64),
    /// So much of its space is in use, and there may be so much.
    Used(u64, u64),
    /// The disk has failed.
    Failed(JournalError),
}

/// A journal that is written to.
pub struct LogWriter {
    log: FileLog,
    segments: Segments,
    /// Records for which there is no space yet.
    waiting: VecDeque<(u64, FileRecord)>,
    wants_sync: bool,
    /// Up to this record space is to be found.
    needed: u64,
    is_syncing: bool,
    is_making: bool,
    used: u64,
    done: VecDeque<DiskDone>,
}

impl LogWriter {
    /// That of a store that was opened.
    pub fn new(log: FileLog, segments: Segments) -> Self {
        Self {
            log,
            segments,
            waiting: VecDeque::new(),
            wants_sync: false,
            needed: 0,
            is_syncing: false,
            is_making: false,
            used: 0,
            done: VecDeque::new(),
        }
    }

    /// Takes something in. After an error call [`fail`](Self::fail).
    pub fn take(&mut self, job: Job) -> Result<(), JournalError> {
        match job {
            Job::Append(number, record) => self.waiting.push_back((number, record)),
            Job::Sync => self.wants_sync = true,
            Job::SyncUpto(number) => (self.wants_sync, self.needed) = (true, self.needed.max(number)),
            Job::Free(place) => self.log.free(place),
            Job::Fail => return Err(JournalError::Closed),
            Job::Synced(synced) => {
                self.is_syncing = false;
                let durable = self.log.handle_synced(synced?)?;
                self.done.push_back(DiskDone::Durable(durable));
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
        self.append()
    }

    /// Whether more may be taken in before it is written.
    pub fn may_take(&self) -> bool {
        self.log.waiting_bytes() < BATCH_BYTES
    }

    /// Writes what was taken in. After an error call [`fail`](Self::fail).
    pub fn write(&mut self) -> Result<(), JournalError> {
        let before = self.log.written();
        let written = self.log.write()?;
        if written > before {
            self.done.push_back(DiskDone::Written(written));
        }
        self.wants_sync |= self.log.wants_sync();
        let (used, bytes_max) = self.log.used_bytes();
        if std::mem::replace(&mut self.used, used) != used {
            self.done.push_back(DiskDone::Used(used, bytes_max));
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
                        self.done.push_back(DiskDone::Written(written));
                        continue;
                    }
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A sync that is to be run; its end is a [`Job::Synced`]. There is one at a time.
    pub fn poll_sync(&mut self) -> Option<Sync> {
        if !self.wants_sync || self.is_syncing {
            return None;
        }
        (self.wants_sync, self.is_syncing) = (false, true);
        Some(self.log.sync())
    }

    /// A segment that is to be made before it is needed; the end of that is a [`Job::Made`].
    pub fn poll_segment(&mut self) -> Option<(Segments, u32)> {
        let has_to_grow = self.waiting.front().is_some_and(|(number, _)| *number <= self.needed);
        let slot = self.log.wanted(has_to_grow).filter(|_| !self.is_making)?;
        self.is_making = true;
        Some((self.segments.clone(), slot))
    }

    /// What makes segments.
    pub const fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Nobody can make it now: it is asked for again.
    pub const fn handle_not_made(&mut self) {
        self.is_making = false;
    }

    /// What is to be told.
    pub fn poll_done(&mut self) -> Option<DiskDone> {
        self.done.pop_front()
    }

    /// Something has failed: the store is marked, and takes no more.
    pub fn fail(&mut self) {
        self.log.fail();
    }
}
