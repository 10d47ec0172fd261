//! The files of a shard on the way to and from the disk: records to the journal, checkpoints, content that is read.
//!
//! A checkpoint takes what has changed of all files at one moment. It is put on disk once the journal is durable up to there, and then the
//! journal before it can go. One is made when much was written, when the journal is half full, and now and then, so that a start has little
//! to read.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, mpsc as threads};

use base::{ObjectId, Span, WallTime};
use bytes::Bytes;
use lease::Algorithm;
use node::file::{File, Stored};
use node::{FetchId, KeptFile, Shard, Unreadable, record_data_bytes};
use replication::Record;
use tokio::sync::mpsc;
use wire::FileRecord;

use super::disk::{self, DiskDone, Job};
use crate::store::contents::{Contents, Put, PutError, Taken};
use crate::store::files::OpenedFiles;
use crate::store::journal::JournalError;

/// A checkpoint is made when so much was written since the one before.
const CHECKPOINT_BYTES: u64 = 32 << 20;
/// And when something was written so long ago.
const CHECKPOINT_AFTER: Span = Span::from_secs(10);
/// How long after finding the disk full the next one is tried.
const FULL_RETRY: Span = Span::from_secs(1);

/// The store of files, as the driver uses it.
pub(super) struct FileDisk {
    jobs: threads::Sender<Job>,
    contents: Arc<Contents>,
    /// The place in the journal of the record before the first of this process.
    before: u64,
    told: mpsc::UnboundedReceiver<DiskDone>,
    done: mpsc::UnboundedReceiver<ContentsDone>,
    doing: mpsc::UnboundedSender<ContentsDone>,
    /// Files of which something was written since their last checkpoint.
    changed: BTreeSet<ObjectId>,
    changed_bytes: u64,
    last_number: u64,
    checkpoint: Checkpointing,
    /// When the next one is made at the latest.
    due: Option<WallTime>,
}

/// How far a checkpoint is.
enum Checkpointing {
    None,
    /// It waits until the journal is durable up to this record.
    Waiting(u64, Vec<Taken>),
    /// It is being put on disk, and has this of each file.
    Putting(u64, Vec<Restored>),
}

/// What is to be taken again if a checkpoint fails.
struct Restored {
    object: ObjectId,
    is_new: bool,
    chunks: BTreeSet<u64>,
}

/// What the disk has done.
pub(super) enum FilesDone {
    Disk(DiskDone),
    Contents(ContentsDone),
}

/// What was done beside the journal.
pub(super) enum ContentsDone {
    Put(Result<Vec<Put>, PutError>),
    Fetched(FetchId, Result<Vec<Bytes>, Unreadable>),
}

/// Why files can be served no longer.
#[derive(Debug, thiserror::Error)]
pub enum FilesFailed {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A checkpoint.
    #[error(transparent)]
    Put(#[from] PutError),
}

impl FileDisk {
    /// Starts the threads of a store that has kept these files.
    pub(super) fn start(kept: &BTreeMap<ObjectId, KeptFile>, opened: OpenedFiles) -> io::Result<Self> {
        let (done_disk, told) = mpsc::unbounded_channel();
        let (doing, done) = mpsc::unbounded_channel();
        let before = opened.log.place(0);
        let jobs = disk::start(opened.log, opened.segments, done_disk)?;
        let changed = kept.iter().filter(|(_, kept)| !kept.records.is_empty());
        let changed: BTreeSet<ObjectId> = changed.map(|(object, _)| *object).collect();
        // What is read again at each start is not read so often.
        let due = (!changed.is_empty()).then_some(WallTime::ZERO);
        Ok(Self {
            jobs,
            contents: opened.contents,
            before,
            told,
            done,
            doing,
            changed,
            changed_bytes: 0,
            last_number: 0,
            checkpoint: Checkpointing::None,
            due,
        })
    }

    /// The next thing that the disk has done.
    pub(super) async fn next(&mut self) -> FilesDone {
        tokio::select! {
            Some(done) = self.told.recv() => FilesDone::Disk(done),
            Some(done) = self.done.recv() => FilesDone::Contents(done),
        }
    }

    /// A record for the journal.
    pub(super) fn write(&mut self, now: WallTime, (number, object): (u64, ObjectId), record: Record<File>) {
        self.changed_bytes += record_data_bytes(&record);
        self.changed.insert(object);
        self.last_number = number;
        self.due.get_or_insert(now + CHECKPOINT_AFTER);
        self.job(Job::Append(number, FileRecord { object, record }));
    }

    pub(super) fn sync(&self) {
        self.job(Job::Sync);
    }

    /// Reads content beside everything else.
    pub(super) fn fetch(&self, fetch: FetchId, stored: Vec<Stored>) {
        let (contents, doing) = (Arc::clone(&self.contents), self.doing.clone());
        tokio::task::spawn_blocking(move || {
            // Nobody waits for it any longer once the driver is gone.
            let _ = doing.send(ContentsDone::Fetched(fetch, contents.read(&stored)));
        });
    }

    /// Tells the shard what the disk has done, and goes on with a checkpoint.
    pub(super) fn finish<A: Algorithm>(
        &mut self,
        shard: &mut Shard<A>,
        now: WallTime,
        done: FilesDone,
    ) -> Result<(), FilesFailed> {
        match done {
            FilesDone::Disk(DiskDone::Written(number)) => shard.handle_written(now, number),
            FilesDone::Disk(DiskDone::Durable(number)) => {
                shard.handle_durable(now, number);
                self.put(number);
            }
            FilesDone::Disk(DiskDone::Used(used, bytes_max)) => {
                if used > bytes_max / 2 {
                    self.begin(shard);
                }
            }
            FilesDone::Disk(DiskDone::Failed(error)) => return Err(error.into()),
            FilesDone::Contents(ContentsDone::Fetched(fetch, fetched)) => {
                shard.handle_fetched(fetch, fetched)
            }
            FilesDone::Contents(ContentsDone::Put(put)) => self.end(shard, now, put)?,
        }
        Ok(())
    }

    /// When a checkpoint is to be made at the latest.
    pub(super) fn due(&self) -> Option<WallTime> {
        self.due.filter(|_| matches!(self.checkpoint, Checkpointing::None))
    }

    /// Makes a checkpoint if it is time, or if much was written.
    pub(super) fn check_due<A: Algorithm>(&mut self, shard: &mut Shard<A>, now: WallTime) {
        if self.changed_bytes >= CHECKPOINT_BYTES || self.due.is_some_and(|due| due <= now) {
            self.begin(shard);
        }
    }

    /// Takes a checkpoint of all that has changed.
    fn begin<A: Algorithm>(&mut self, shard: &mut Shard<A>) {
        if !matches!(self.checkpoint, Checkpointing::None) || self.changed.is_empty() {
            return;
        }
        let (number, place) = (self.last_number, self.before + self.last_number);
        let take = |object| Taken { object, applied: place, changes: shard.take_checkpoint(object) };
        let taken = std::mem::take(&mut self.changed).into_iter().map(take).collect();
        (self.changed_bytes, self.due) = (0, None);
        self.checkpoint = Checkpointing::Waiting(number, taken);
        self.job(Job::Sync);
    }

    /// The journal is durable up to a record: a checkpoint that waited for that goes to the disk.
    fn put(&mut self, durable: u64) {
        let Checkpointing::Waiting(number, _) = self.checkpoint else { return };
        if durable < number {
            return self.job(Job::Sync);
        }
        let waited = std::mem::replace(&mut self.checkpoint, Checkpointing::None);
        let Checkpointing::Waiting(_, taken) = waited else { return };
        let restored = taken.iter().map(|Taken { object, changes, .. }| {
            let chunks = changes.chunks.iter().map(|(number, _)| *number).collect();
            Restored { object: *object, is_new: changes.is_new, chunks }
        });
        self.checkpoint = Checkpointing::Putting(number, restored.collect());
        let (contents, doing, place) = (Arc::clone(&self.contents), self.doing.clone(), self.before + number);
        tokio::task::spawn_blocking(move || {
            let _ = doing.send(ContentsDone::Put(contents.put(taken, place)));
        });
    }

    fn end<A: Algorithm>(
        &mut self,
        shard: &mut Shard<A>,
        now: WallTime,
        put: Result<Vec<Put>, PutError>,
    ) -> Result<(), FilesFailed> {
        let putting = std::mem::replace(&mut self.checkpoint, Checkpointing::None);
        let Checkpointing::Putting(number, restored) = putting else { return Ok(()) };
        match put {
            Ok(put) => {
                put.into_iter().for_each(|Put { object, chunks }| shard.handle_checkpoint(object, chunks));
                self.job(Job::Free(self.before + number));
            }
            Err(error @ (PutError::Full | PutError::Unreadable { .. })) => {
                tracing::error!("no checkpoint was made: {error}");
                if let PutError::Unreadable { object, what } = error {
                    shard.handle_unreadable(object, what);
                }
                for Restored { object, is_new, chunks } in restored {
                    shard.handle_no_checkpoint(object, is_new, chunks);
                    self.changed.insert(object);
                }
                self.due = Some(now + FULL_RETRY);
            }
            Err(error @ (PutError::Io(_) | PutError::Index(_))) => {
                self.job(Job::Fail);
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn job(&self, job: Job) {
        // A thread that has ended has said why.
        let _ = self.jobs.send(job);
    }
}

impl Drop for FileDisk {
    fn drop(&mut self) {
        self.job(Job::Stop);
    }
}
