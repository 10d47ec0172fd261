//! The index in a directory of its own, by sled.
//!
//! sled's `flush` hands pages to the disk without waiting until they are durable, so its file is synced here. A start that was cut
//! short may leave a snapshot that is half made, which would keep sled from opening; it is of no use to anybody.
//!
//! When it opens, sled makes a snapshot of where its pages are, and then overwrites what of its log is not needed any more. It does not sync its
//! directory in between, nor can anybody else. If the disk has the overwritten log and not the name of the snapshot when the power fails, the index
//! does not open any more.

use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::{CACHE_BYTES, Change, Index, IndexError, Visit};

/// The file in it that whoever has it open has locked.
const LOG: &str = "db";

/// An index in a directory.
pub struct SledIndex {
    db: sled::Db,
    path: PathBuf,
}

impl SledIndex {
    /// Opens the index in the directory at `path`; makes one if there is none.
    pub fn open(path: &Path) -> Result<Self, IndexError> {
        remove_unfinished(path)?;
        let config = sled::Config::new().path(path).cache_capacity(CACHE_BYTES as u64).flush_every_ms(None);
        let index = Self { db: config.open().map_err(sled_error)?, path: path.to_owned() };
        index.sync()?;
        Ok(index)
    }

    /// Waits until nobody has it open any more, which is a moment after it is dropped: sled's threads end when they like.
    pub(super) fn close(self) -> Result<(), IndexError> {
        let Self { db, path } = self;
        drop(db);
        let file = File::open(path.join(LOG)).map_err(io_error)?;
        rustix::fs::flock(file, FlockOperation::LockExclusive).map_err(|errno| io_error(errno.into()))
    }

    fn sync(&self) -> Result<(), IndexError> {
        self.db.flush().map_err(sled_error)?;
        for entry in std::fs::read_dir(&self.path).map_err(io_error)? {
            let path = entry.map_err(io_error)?.path();
            if path.is_file() {
                File::open(path).and_then(|file| file.sync_all()).map_err(io_error)?;
            }
        }
        File::open(&self.path).and_then(|dir| dir.sync_all()).map_err(io_error)
    }
}

impl Index for SledIndex {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        Ok(self.db.get(key).map_err(sled_error)?.map(|value| value.to_vec()))
    }

    fn scan(&self, from: &[u8], to: &[u8], each: &mut Visit<'_>) -> Result<(), IndexError> {
        for item in self.db.range(from..to) {
            let (key, value) = item.map_err(sled_error)?;
            if each(&key, &value) == ControlFlow::Break(()) {
                break;
            }
        }
        Ok(())
    }

    fn commit(&self, changes: &[Change]) -> Result<(), IndexError> {
        let mut batch = sled::Batch::default();
        for change in changes {
            match change {
                Change::Put(key, value) => batch.insert(key.as_slice(), value.as_slice()),
                Change::Remove(key) => batch.remove(key.as_slice()),
            }
        }
        self.db.apply_batch(batch).map_err(sled_error)?;
        self.sync()
    }
}

fn remove_unfinished(path: &Path) -> Result<(), IndexError> {
    let Ok(entries) = std::fs::read_dir(path) else { return Ok(()) };
    for entry in entries {
        let entry = entry.map_err(io_error)?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            std::fs::remove_file(entry.path()).map_err(io_error)?;
        }
    }
    Ok(())
}

fn sled_error(error: sled::Error) -> IndexError {
    match error {
        sled::Error::Corruption { .. } => IndexError::Damaged(error.to_string()),
        sled::Error::Io(error) => io_error(error),
        error => IndexError::Failed(error.to_string()),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` hands over")]
fn io_error(error: std::io::Error) -> IndexError {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => IndexError::Full,
        _ => IndexError::Failed(error.to_string()),
    }
}
