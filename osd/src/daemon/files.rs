//! The files of a shard on the way to and from the disk: records to the journal, checkpoints, content that is read. What happens in
//! which order is decided by the store ([`Checkpoints`], `store/writer.rs`); here it is put on threads.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use base::{NodeId, ObjectId, WallTime};
use bytes::Bytes;
use lease::Algorithm;
use node::file::{File, Stored};
use node::{FetchId, KeptFile, Shard, Unreadable, record_data_bytes};
use replication::Record;
use tokio::sync::mpsc;
use wire::FileRecord;

use super::disk::JournalThreads;
use super::space::Space;
use crate::store::checkpoints::{CheckpointLimits, Checkpoints, Next};
use crate::store::contents::{Contents, Put, PutError};
use crate::store::files::OpenedFiles;
use crate::store::journal::JournalError;
use crate::store::writer::{DiskDone, Job};

/// The store of files, as the driver uses it.
pub(super) struct FileDisk {
    journal: JournalThreads,
    contents: Arc<Contents>,
    told: mpsc::UnboundedReceiver<DiskDone>,
    done: mpsc::UnboundedReceiver<ContentsDone>,
    doing: mpsc::UnboundedSender<ContentsDone>,
    checkpoints: Checkpoints,
    space: Space,
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
    Given(io::Result<()>),
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
    pub(super) fn start(
        (node, dir): (NodeId, PathBuf),
        kept: &BTreeMap<ObjectId, KeptFile>,
        opened: OpenedFiles,
    ) -> io::Result<Self> {
        let (done_disk, told) = mpsc::unbounded_channel();
        let (doing, done) = mpsc::unbounded_channel();
        let checkpoints = Checkpoints::new(node, kept, opened.log.place(0), CheckpointLimits::default());
        let journal = JournalThreads::start(opened.log, opened.segments, done_disk)?;
        let space = Space::new(dir, Arc::clone(&opened.contents));
        Ok(Self { journal, contents: opened.contents, told, done, doing, checkpoints, space })
    }

    /// The next thing that the disk has done.
    pub(super) async fn next(&mut self) -> FilesDone {
        tokio::select! {
            Some(done) = self.told.recv() => FilesDone::Disk(done),
            Some(done) = self.done.recv() => FilesDone::Contents(done),
        }
    }

    /// A record for the journal.
    pub(super) fn write(
        &mut self,
        now: WallTime,
        (number, object): (u64, ObjectId),
        record: Record<File>,
        owes_checkpoint: bool,
    ) {
        let bytes = record_data_bytes(&record);
        self.checkpoints.note_write(now, (number, object), &record, owes_checkpoint);
        self.space.note_write(bytes);
        self.journal.take(Job::Append(number, FileRecord { object, record }));
    }

    pub(super) fn sync(&self) {
        self.journal.take(Job::Sync);
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
        let next = match done {
            FilesDone::Disk(DiskDone::Written(number)) => {
                shard.handle_written(now, number);
                None
            }
            FilesDone::Disk(DiskDone::Durable(number)) => {
                shard.handle_durable(now, number);
                self.checkpoints.handle_durable(number)
            }
            FilesDone::Disk(DiskDone::Used(used, bytes_max)) if used > bytes_max / 2 => {
                self.checkpoints.begin(shard)
            }
            FilesDone::Disk(DiskDone::Used(..)) => None,
            FilesDone::Disk(DiskDone::Failed(error)) => return Err(error.into()),
            FilesDone::Contents(ContentsDone::Fetched(fetch, fetched)) => {
                shard.handle_fetched(fetch, fetched);
                None
            }
            FilesDone::Contents(ContentsDone::Given(given)) => {
                self.space.note_given(given);
                None
            }
            FilesDone::Contents(ContentsDone::Put(put)) => {
                let put = self.checkpoints.handle_put(shard, now, put);
                put.inspect_err(|_| self.journal.take(Job::Fail))?
            }
        };
        self.go_on(next);
        Ok(())
    }

    /// How much more data the disk takes; none if it does not say.
    pub(super) fn free_bytes(&self) -> u64 {
        self.space.free_bytes().unwrap_or_default()
    }

    /// Tells the shard whether there is space for more.
    pub(super) fn look_at_space<A: Algorithm>(&mut self, shard: &mut Shard<A>) {
        match self.space.look() {
            Ok(space) => shard.handle_space(space),
            Err(error) => tracing::warn!("how much space the disk has cannot be told: {error}"),
        }
        if self.space.takes_back() {
            let (contents, doing) = (Arc::clone(&self.contents), self.doing.clone());
            tokio::task::spawn_blocking(move || {
                let _ = doing.send(ContentsDone::Given(contents.give_to_disk()));
            });
        }
    }

    /// When a checkpoint is to be made at the latest.
    pub(super) fn due(&self) -> Option<WallTime> {
        self.checkpoints.due()
    }

    /// Makes a checkpoint if it is time, or if much was written, and looks at how much space that has left.
    pub(super) fn check_due<A: Algorithm>(&mut self, shard: &mut Shard<A>, now: WallTime) {
        if self.space.is_due() {
            self.look_at_space(shard);
        }
        if self.checkpoints.is_due(now) {
            let next = self.checkpoints.begin(shard);
            self.go_on(next);
        }
    }

    fn go_on(&self, next: Option<Next>) {
        match next {
            None => {}
            Some(Next::Sync(number)) => self.journal.take(Job::SyncUpto(number)),
            Some(Next::Free(place)) => self.journal.take(Job::Free(place)),
            Some(Next::Put(taken, place)) => {
                let (contents, doing) = (Arc::clone(&self.contents), self.doing.clone());
                tokio::task::spawn_blocking(move || {
                    let _ = doing.send(ContentsDone::Put(contents.put(taken, place)));
                });
            }
        }
    }
}
