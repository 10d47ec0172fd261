//! Where things are and what they were last: ordered keys and values, changed together and durably.
//!
//! The journal is what makes data durable; the index is what a checkpoint makes of it. So a change of the index may be lost as
//! long as the journal still has what it came from, and never in part.
//!
//! Two engines do the same: `redb`, on any [`Blob`](super::media::Blob), and `sled`, which has files of its own.

mod redb_engine;
mod sled_engine;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

pub use self::redb_engine::RedbIndex;
pub use self::sled_engine::SledIndex;

/// How much memory an engine may keep of what is on disk.
const CACHE_BYTES: usize = 32 << 20;

/// An index. What was committed is what everybody reads from then on.
pub trait Index: Send + Sync {
    /// The value of a key.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError>;

    /// Shows all keys from `from` on and before `to`, in order, until `each` has seen enough.
    fn scan(&self, from: &[u8], to: &[u8], each: &mut Visit<'_>) -> Result<(), IndexError>;

    /// Makes all changes, or none. They are durable when it returns.
    fn commit(&self, changes: &[Change]) -> Result<(), IndexError>;
}

/// Is shown a key and its value, and says whether to go on.
pub type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> ControlFlow<()> + 'a;

/// A change of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// It has this value from now on.
    Put(Vec<u8>, Vec<u8>),
    /// It has none any more.
    Remove(Vec<u8>),
}

/// Why an index does not do what it should.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// There is no space; nothing has changed, and it has to be opened anew.
    #[error("the disk is full: the index keeps what it had; make space and restart the daemon")]
    Full,
    /// What is there cannot be read as an index.
    #[error(
        "the index is damaged ({0}); check the disk, then give this node a new id and an empty data directory"
    )]
    Damaged(String),
    /// The disk failed.
    #[error("the index cannot be read or written ({0}); check the disk, then restart the daemon")]
    Failed(String),
}
