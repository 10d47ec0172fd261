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

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::redb_engine::RedbIndex;
pub use self::sled_engine::SledIndex;

use super::media::Media;

/// How much memory an engine may keep of what is on disk.
const CACHE_BYTES: usize = 32 << 20;

/// What keeps an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Engine {
    /// The crate `redb`: one file.
    #[default]
    Redb,
    /// The crate `sled`: a directory of its own.
    Sled,
}

impl fmt::Display for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redb => "redb",
            Self::Sled => "sled",
        })
    }
}

impl Engine {
    /// The name of what it keeps in the directory of a store's files.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Redb => REDB,
            Self::Sled => SLED,
        }
    }

    /// The engines that keep an index in a directory: one, or none if it is new.
    pub fn found(media: &dyn Media) -> io::Result<Vec<Self>> {
        let names = media.names()?;
        let is_there = |engine: &Self| names.iter().any(|name| name == engine.name());
        Ok([Self::Redb, Self::Sled].into_iter().filter(is_there).collect())
    }

    /// The engine for a directory: the one that made its index, which has to be this one. A store that `has_served` has an index.
    pub fn choose(self, media: &dyn Media, has_served: bool) -> Result<Self, IndexError> {
        match *Self::found(media).map_err(|error| IndexError::from_io(&error))? {
            [] if has_served => Err(IndexError::Missing),
            [] => Ok(self),
            [found] if found == self => Ok(self),
            [found] => Err(IndexError::OtherEngine { found, wanted: self }),
            _ => Err(IndexError::Two),
        }
    }

    /// Opens the index in the directory `dir`, which is `media`; makes one if there is none.
    pub fn open(self, media: &dyn Media, dir: &Path) -> Result<Box<dyn Index>, IndexError> {
        let failed = |error: io::Error| IndexError::from_io(&error);
        let index: Box<dyn Index> = match self {
            Self::Redb => {
                make_redb(media)?;
                Box::new(RedbIndex::open(media.open(REDB).map_err(failed)?)?)
            }
            Self::Sled => {
                make_sled(media, dir)?;
                Box::new(SledIndex::open(&dir.join(SLED))?)
            }
        };
        media.sync().map_err(failed)?;
        Ok(index)
    }
}

const REDB: &str = "index.redb";
const SLED: &str = "index.sled";
/// Their names while they are made: one that is being made when its process ends, or its power fails, may not open any more.
pub(super) const REDB_NEW: &str = "index.redb.new";
pub(super) const SLED_NEW: &str = "index.sled.new";

/// Makes an empty index by redb, if there is none.
fn make_redb(media: &dyn Media) -> Result<(), IndexError> {
    let failed = |error: io::Error| IndexError::from_io(&error);
    let names = media.names().map_err(failed)?;
    if names.iter().any(|name| name == REDB) {
        return Ok(());
    }
    if names.iter().any(|name| name == REDB_NEW) {
        media.remove(REDB_NEW).map_err(failed)?;
    }
    let blob = media.open(REDB_NEW).map_err(failed)?;
    drop(RedbIndex::open(Arc::clone(&blob))?);
    blob.sync().map_err(failed)?;
    media.rename(REDB_NEW, REDB).map_err(failed)?;
    media.sync().map_err(failed)
}

/// Makes an empty index by sled in `dir`, which is `media`, if there is none.
fn make_sled(media: &dyn Media, dir: &Path) -> Result<(), IndexError> {
    let failed = |error: io::Error| IndexError::from_io(&error);
    if media.names().map_err(failed)?.iter().any(|name| name == SLED) {
        return Ok(());
    }
    let new = dir.join(SLED_NEW);
    match std::fs::remove_dir_all(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    SledIndex::open(&new)?.close()?;
    media.rename(SLED_NEW, SLED).map_err(failed)?;
    media.sync().map_err(failed)
}

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
    /// There is no space; nothing has changed.
    #[error("the disk is full: the index keeps what it had; make space")]
    Full,
    /// There is none where there was one.
    #[error(
        "the index is missing, and this store has been used; put it back if it was moved, else take the node out of the cluster map and \
         add it under a new id with an empty data directory"
    )]
    Missing,
    /// The directory was made with another engine.
    #[error(
        "the data directory was made with the index by {found}, and the configuration says {wanted}; set `index = \"{found}\"` in \
         [store] of osd.toml, or give the node a new id and an empty data directory"
    )]
    OtherEngine {
        /// By which it was made.
        found: Engine,
        /// Which one the configuration names.
        wanted: Engine,
    },
    /// Somebody has copied one here.
    #[error(
        "there are two indexes in the data directory, and a store has one; move away the one that was copied there"
    )]
    Two,
    /// What is there cannot be read as an index.
    #[error(
        "the index is damaged ({0}); check the disk, then give this node a new id and an empty data directory"
    )]
    Damaged(String),
    /// The disk failed.
    #[error("the index cannot be read or written ({0}); check the disk, then restart the daemon")]
    Failed(String),
}

impl IndexError {
    fn from_io(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Failed(error.to_string()),
        }
    }
}
