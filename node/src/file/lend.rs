//! To whom size and times of a volume's file belong: to its content here, or to the volume's tree.
//!
//! The tree lends them, and names each lend by the entry that makes it; later lends have later names. They are this file's own from
//! the entry on that says so here, until the entry that ends the lend. Nothing is written in between two lends, so what the
//! tree is given back is what there is, whenever it is asked for.

use base::ObjectId;
use namespace::{InodeId, Lent};

/// Which file of which volume some content is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileOf {
    /// The object with the volume's tree.
    pub volume: ObjectId,
    /// The file in it.
    pub inode: InodeId,
}

/// The last lend of size and times that a file knows of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lend {
    /// Whose.
    pub of: FileOf,
    /// Which, and to whom.
    pub lent: Lent,
    /// How far it is.
    pub stage: LendStage,
}

/// How far a lend is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LendStage {
    /// Size and times are this file's own.
    Open,
    /// They are the tree's, once that knows them.
    Ended,
    /// They have been the tree's all the time: nothing was written under it.
    Unused,
}

impl Lend {
    /// Whether the file may be written to.
    pub const fn is_open(&self) -> bool {
        matches!(self.stage, LendStage::Open)
    }
}
