//! What a driver puts on disk of files, so that the journal before it can go and content need not stay in memory.
//!
//! A checkpoint of a file has what was changed since the one before. It is taken at one moment and put on disk while the file
//! goes on; what was not changed meanwhile is then kept there alone. Content that could not be put there is changed
//! content again, for the next checkpoint.

use base::{NodeId, ObjectId};
use lease::Algorithm;
use replication::{Checkpoint, Position};

use crate::file::{Chunk, File, Touched};
use crate::{Bug, Shard, ShardConfig};

/// What has changed of a file since its last checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct FileChanges {
    /// All but the chunks and the parts of its tree. None if there is nothing of the file any more.
    pub head: Option<Checkpoint<File>>,
    /// Whether nothing of an earlier checkpoint is to be kept.
    pub is_new: bool,
    /// The chunks that were changed, and those that are none any more.
    pub chunks: Vec<(u64, Option<(Position, Chunk)>)>,
    /// The same of parts of its tree.
    pub names: Vec<(namespace::Key, Option<(Position, namespace::Part)>)>,
    /// All records of the file up to this one are in it, counted for this process.
    pub last_write: u64,
}

impl FileChanges {
    /// What of the file it has, to be taken again if it is not kept.
    pub fn touched(&self) -> Touched {
        Touched {
            is_new: self.is_new,
            chunks: self.chunks.iter().map(|(number, _)| *number).collect(),
            tree: self.names.iter().map(|(key, _)| key.clone()).collect(),
        }
    }
}

impl<A: Algorithm> Shard<A> {
    /// Takes a checkpoint of a file. Once it is on disk call [`handle_checkpoint`](Self::handle_checkpoint).
    pub fn take_checkpoint(&mut self, object: ObjectId) -> FileChanges {
        let Some(hosted) = self.files.hosted.get_mut(&object) else {
            return FileChanges {
                head: None,
                is_new: true,
                chunks: Vec::new(),
                names: Vec::new(),
                last_write: self.files.writes.last(),
            };
        };
        hosted.mended = hosted.replica.mended();
        let Touched { is_new, chunks, tree } = hosted.replica.machine_mut().take_changed();
        let machine = hosted.replica.machine();
        let chunks = chunks.into_iter().map(|number| (number, machine.chunk(number).cloned())).collect();
        let name = |key| {
            let part = machine.name(&key);
            (key, part)
        };
        let names = tree.into_iter().map(name).collect();
        let head = hosted.replica.checkpoint_with(machine.without_content());
        FileChanges { head: Some(head), is_new, chunks, names, last_write: hosted.last_write }
    }

    /// The number of the last record that was made, whether it was handed over or not. A checkpoint is to be taken only when all are.
    pub const fn last_write(&self) -> u64 {
        self.files.writes.last()
    }

    /// Whether something is back that was damaged, and no checkpoint has it. Until one does the node cannot be counted on for the file: what is
    /// back is durable when the next start finds it.
    pub fn owes_checkpoint(&self, object: ObjectId) -> bool {
        self.file(object).is_some_and(|replica| replica.is_sound() && !replica.outlives_a_start())
    }

    /// A checkpoint is durable, with these chunks of these versions on disk.
    pub fn handle_checkpoint(&mut self, object: ObjectId, chunks: Vec<(u64, Position, Chunk)>) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        hosted.replica.handle_kept(hosted.mended);
        let machine = hosted.replica.machine_mut();
        chunks.into_iter().for_each(|(number, at, chunk)| machine.keep_elsewhere(number, at, chunk));
    }

    /// Checkpoints have all records up to this one, counted for this process: their data is in memory no longer.
    pub fn handle_placed(&mut self, number: u64) {
        self.files.writes.handle_placed(number);
    }

    /// A checkpoint that was taken is not on disk: this is to be in the next one.
    pub fn handle_no_checkpoint(&mut self, object: ObjectId, touched: Touched) {
        if let Some(hosted) = self.files.hosted.get_mut(&object) {
            hosted.replica.machine_mut().note_changed(touched);
        }
    }
}

/// What a node has of a file that it has kept nothing of: where files begin, that it has not begun.
pub(crate) fn first_checkpoint(config: &ShardConfig, me: NodeId, object: ObjectId) -> Checkpoint<File> {
    let home = config.map.view(object).members.clone();
    if !home.contains(me) {
        return Checkpoint::nothing(me, File::default());
    }
    let first = Checkpoint::first(home, File::default());
    if config.breaks(Bug::HomeForgets) { first } else { first.at_home() }
}
