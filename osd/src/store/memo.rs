//! What memory that outlives processes knows of a store: a file that the power takes away.
//!
//! The kernel keeps it when the process ends, however it ends, because it is on a file system in memory. It is of use only
//! there: a file that a power failure leaves behind would vouch for what was lost.
//!
//! Layout: the memo of `docs/disk.md`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base::StoreId;
use node::Memo;

const MAGIC: [u8; 8] = *b"fleamemo";
const MEMO_BYTES: usize = 29;
/// The type of `tmpfs`, and of `ramfs`, among file systems.
const IN_MEMORY: [i64; 2] = [0x0102_1994, 0x8584_58f6];

/// A place for a memo.
pub trait MemoSlot: Send {
    /// What is there. None if there is nothing, or nothing that makes sense.
    fn read(&mut self) -> io::Result<Option<Memo>>;

    /// Puts a memo there. It outlives the process when this returns.
    fn write(&mut self, memo: &Memo) -> io::Result<()>;
}

/// A file in memory.
pub struct MemoFile {
    file: File,
}

/// Why there is no place for a memo.
#[derive(Debug, thiserror::Error)]
pub enum MemoError {
    /// It would survive the power, and vouch for what does not.
    #[error("{} is on a disk; name a directory in memory (tmpfs), where the daemon may keep a small file", .0.display())]
    OnDisk(PathBuf),
    /// Somebody else's.
    #[error("{} belongs to another user; remove it, or name another directory in memory", .0.display())]
    Foreign(PathBuf),
    /// It cannot be had.
    #[error("{} cannot be opened; name a directory in memory (tmpfs) where the daemon may keep a small file", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl MemoFile {
    /// The memo of a store in a directory in memory.
    pub fn open(dir: &Path, store: StoreId) -> Result<Self, MemoError> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let opened = Self::open_with(dir, store, &mut options);
        if matches!(opened, Err(MemoError::OnDisk(_))) {
            // What was just made is of no use.
            let _ = std::fs::remove_file(path_of(dir, store));
        }
        opened
    }

    /// What the memo of a store says, for somebody who must not change it.
    pub fn look(dir: &Path, store: StoreId) -> Result<Option<Memo>, MemoError> {
        match Self::open_with(dir, store, &mut OpenOptions::new()) {
            Ok(mut slot) => slot.read().map_err(|source| MemoError::Io { path: path_of(dir, store), source }),
            Err(MemoError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn open_with(dir: &Path, store: StoreId, options: &mut OpenOptions) -> Result<Self, MemoError> {
        let path = path_of(dir, store);
        let failed = |source| MemoError::Io { path: path.clone(), source };
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).map_err(|error| failed(io::Error::other(error)))?;
        let file = options.read(true).custom_flags(flags).open(&path).map_err(failed)?;
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() || meta.uid() != rustix::process::geteuid().as_raw() {
            return Err(MemoError::Foreign(path));
        }
        let system = rustix::fs::fstatfs(&file).map_err(|errno| failed(errno.into()))?;
        if !IN_MEMORY.contains(&system.f_type) {
            return Err(MemoError::OnDisk(dir.to_owned()));
        }
        Ok(Self { file })
    }
}

fn path_of(dir: &Path, store: StoreId) -> PathBuf {
    let name: String = store.0.iter().map(|byte| format!("{byte:02x}")).collect();
    dir.join(format!("fleasefs-{name}"))
}

impl MemoSlot for MemoFile {
    fn read(&mut self) -> io::Result<Option<Memo>> {
        let mut bytes = [0; MEMO_BYTES];
        match self.file.read_exact_at(&mut bytes, 0) {
            Ok(()) => Ok(decode(&bytes)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, memo: &Memo) -> io::Result<()> {
        self.file.write_all_at(&encode(memo), 0)
    }
}

fn encode(memo: &Memo) -> [u8; MEMO_BYTES] {
    let mut bytes = [0; MEMO_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&memo.written.to_le_bytes());
    bytes[16..24].copy_from_slice(&memo.durable.to_le_bytes());
    bytes[24] = memo.is_failed.into();
    let checksum = crc32c::crc32c(&bytes[..25]);
    bytes[25..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; MEMO_BYTES]) -> Option<Memo> {
    let (covered, checksum) = bytes.split_last_chunk::<4>()?;
    let is_sound = covered.starts_with(&MAGIC) && crc32c::crc32c(covered).to_le_bytes() == *checksum;
    let number = |at: usize| Some(u64::from_le_bytes(*covered.get(at..)?.first_chunk()?));
    let memo = Memo { written: number(8)?, durable: number(16)?, is_failed: covered[24] != 0 };
    is_sound.then_some(memo)
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const STORE: StoreId = StoreId([3; 16]);
    const MEMO: Memo = Memo { written: 7, durable: 5, is_failed: false };

    #[test]
    fn a_memo_reads_as_it_was_written() {
        let dir = TempDir::new_in("/dev/shm").unwrap();
        let mut slot = MemoFile::open(dir.path(), STORE).unwrap();
        assert_eq!(slot.read().unwrap(), None);
        assert_eq!(MemoFile::look(dir.path(), STORE).unwrap(), None);
        slot.write(&MEMO).unwrap();
        assert_eq!(MemoFile::open(dir.path(), STORE).unwrap().read().unwrap(), Some(MEMO));
        let failed = Memo { is_failed: true, ..MEMO };
        slot.write(&failed).unwrap();
        assert_eq!(slot.read().unwrap(), Some(failed));
        assert_eq!(MemoFile::look(dir.path(), STORE).unwrap(), Some(failed));
        assert_eq!(MemoFile::look(dir.path(), StoreId([4; 16])).unwrap(), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "to look makes nothing");
        assert_eq!(MemoFile::open(dir.path(), StoreId([4; 16])).unwrap().read().unwrap(), None);
    }

    #[test]
    fn a_memo_that_makes_no_sense_is_none() {
        for at in 0..MEMO_BYTES {
            let mut bytes = encode(&MEMO);
            bytes[at] ^= 4;
            assert_eq!(decode(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn a_memo_on_a_disk_is_refused() {
        let dir = TempDir::new_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        assert!(matches!(MemoFile::open(dir.path(), STORE), Err(MemoError::OnDisk(_))));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left");
    }
}
