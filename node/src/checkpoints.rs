//! What a driver puts on disk of files, so that the journal before it can go and content need not stay in memory.
//!
//! A checkpoint of a file has what was changed since the one before. It is taken at one moment and put on disk while the file
//! goes on; what was not changed meanwhile is then kept there alone. Content that could not be put there is changed
//! content again, for the next checkpoint.

use std::collections::BTreeSet;

use base::ObjectId;
use lease::Algorithm;
use replication::{Checkpoint, Position};

use crate::Shard;
use crate::file::{Chunk, File};

/// What has changed of a file since its last checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct FileChanges {
    /// All but the chunks. None if there is nothing of the file any more.
    pub head: Option<Checkpoint<File>>,
    /// Whether nothing of an earlier checkpoint is to be kept.
    pub is_new: bool,
    /// The chunks that were changed, and those that are none any more.
    pub chunks: Vec<(u64, Option<(Position, Chunk)>)>,
    /// All records of the file up to this one are in it, counted for this process.
    pub last_write: u64,
}

impl<A: Algorithm> Shard<A> {
    /// Takes a checkpoint of a file. Once it is on disk call [`handle_checkpoint`](Self::handle_checkpoint).
    pub fn take_checkpoint(&mut self, object: ObjectId) -> FileChanges {
        let Some(hosted) = self.files.hosted.get_mut(&object) else {
            return FileChanges {
                head: None,
                is_new: true,
                chunks: Vec::new(),
                last_write: self.files.writes.last(),
            };
        };
        let (is_new, changed) = hosted.replica.machine_mut().take_changed();
        let machine = hosted.replica.machine();
        let chunks = changed.into_iter().map(|number| (number, machine.chunk(number).cloned())).collect();
        let head = hosted.replica.checkpoint_with(machine.without_chunks());
        FileChanges { head: Some(head), is_new, chunks, last_write: hosted.last_write }
    }

    /// A checkpoint is durable, with these chunks of these versions on disk.
    pub fn handle_checkpoint(&mut self, object: ObjectId, chunks: Vec<(u64, Position, Chunk)>) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let machine = hosted.replica.machine_mut();
        chunks.into_iter().for_each(|(number, at, chunk)| machine.keep_elsewhere(number, at, chunk));
    }

    /// Checkpoints have all records up to this one, counted for this process: their data is in memory no longer.
    pub fn handle_placed(&mut self, number: u64) {
        self.files.writes.handle_placed(number);
    }

    /// A checkpoint that was taken is not on disk: it changed these chunks.
    pub fn handle_no_checkpoint(&mut self, object: ObjectId, is_new: bool, chunks: BTreeSet<u64>) {
        if let Some(hosted) = self.files.hosted.get_mut(&object) {
            hosted.replica.machine_mut().note_changed(is_new, chunks);
        }
    }
}
