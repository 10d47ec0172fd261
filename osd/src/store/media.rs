//! The seam under what grows: files of a store that are read and written at any offset, real or simulated.
//!
//! Assumed of a disk: what was written before a `sync` that succeeded stays as it was written, or is found damaged by its
//! checksum. What was written since then may be there or not after a power failure, sector by sector and in any order. The journal
//! and the content of files are safe even if a sector that was being written holds anything then; the index by redb assumes that it holds
//! the old or the new. The end of a process loses nothing that was written. A `sync` that failed says nothing
//! about what it was for, whatever a later one says: the store is closed then.

#[cfg(test)]
pub(crate) mod fake;

mod around;
mod view;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt as _};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::FallocateFlags;

use self::around::Around;
pub use self::view::MediaView;

/// What the system counts space on disks in.
const ALLOCATION_UNIT_BYTES: u64 = 512;

/// A directory of such files. The store is its only user.
pub trait Media: Send + Sync {
    /// The names of all files.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Opens a file; makes an empty one if there is none.
    fn open(&self, name: &str) -> io::Result<Arc<dyn Blob>>;

    /// Takes a file away. Whoever has it open still has it.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Gives a file another name, which nothing has.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Makes all names durable.
    fn sync(&self) -> io::Result<()>;
}

/// Whether somebody is likely to read what is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reads {
    /// It is worth a place in a cache.
    Soon,
    /// It is long and need not go through one, if the disk is as fast without.
    Seldom,
}

/// One file.
pub trait Blob: Send + Sync {
    /// How long it is.
    fn length(&self) -> io::Result<u64>;

    /// Fills `into` from `offset` on. An error if the file ends before.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()>;

    /// Puts `bytes` at `offset`; the file grows if it ends there.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Puts `parts` behind each other at `offset`. That they are durable says only a sync, whatever way they go.
    fn write_parts_at(&self, offset: u64, parts: &[Bytes], _: Reads) -> io::Result<()> {
        let mut at = offset;
        for part in parts {
            self.write_at(at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Cuts the file, or lets it grow by zeros.
    fn set_len(&self, bytes: u64) -> io::Result<()>;

    /// How much of the disk it takes.
    fn allocated(&self) -> io::Result<u64> {
        self.length()
    }

    /// Gives the disk back what a part of it takes, which nobody reads until it is written again. Not all can.
    fn punch(&self, _offset: u64, _bytes: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes all that was written durable.
    fn sync(&self) -> io::Result<()>;
}

/// A directory of the machine.
pub struct RealMedia {
    path: PathBuf,
    is_read_only: bool,
}

impl RealMedia {
    /// The directory at `path`, which is made if there is none.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        if let Some(parent) = path.parent() {
            File::open(parent)?.sync_all()?;
        }
        Ok(Self { path, is_read_only: false })
    }

    /// The directory at `path`, of which files are opened for reading only, and none is made.
    pub const fn read_only(path: PathBuf) -> Self {
        Self { path, is_read_only: true }
    }
}

impl Media for RealMedia {
    fn names(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.path)?;
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Blob>> {
        let path = self.path.join(name);
        let writes = !self.is_read_only;
        let mut options = OpenOptions::new();
        options.read(true).write(writes).create(writes).truncate(false);
        Ok(Arc::new(RealBlob { file: options.open(&path)?, around: Around::new(path) }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

/// A file of the machine.
struct RealBlob {
    file: File,
    around: Around,
}

impl Blob for RealBlob {
    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(into, offset)
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, offset)
    }

    fn write_parts_at(&self, offset: u64, parts: &[Bytes], reads: Reads) -> io::Result<()> {
        match reads {
            Reads::Soon => around::write_through(&self.file, offset, parts),
            Reads::Seldom => self.around.write(&self.file, offset, parts),
        }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn allocated(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks().saturating_mul(ALLOCATION_UNIT_BYTES))
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&self.file, hole, offset, bytes)?)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}
