//! The floor of the disk: appending one record to a prepared file and making it durable, and nothing else.
//!
//! The file is prepared as a journal segment is: preallocated, and written full of zeros and synced once, so that
//! an append changes neither the file's size nor its extents and `fdatasync` has only the record to wait for.
//! The file never has a name: it is gone as soon as the process is, however that ends. Timing is the caller's.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

/// The size of a record: one page, the smallest write that does not make the disk read first.
pub const RECORD_BYTES: usize = 4 << 10;

const ZEROS_BYTES: usize = 1 << 20;
const _: () = assert!(ZEROS_BYTES.is_multiple_of(RECORD_BYTES));

/// A prepared file that takes durable appends; when it is full it starts over at its beginning.
#[derive(Debug)]
pub struct DurableAppends {
    file: File,
    next_record: u64,
    records: u64,
    record: [u8; RECORD_BYTES],
}

/// What a directory lies on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileSystem {
    /// The kind, such as `ext4`.
    pub kind: String,
    /// The device or other source, such as `/dev/vda`.
    pub source: String,
}

/// Why the floor of the disk cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The directory cannot hold the file.
    #[error("could not prepare a file in {}; choose a directory that is writable and has space", dir.display())]
    Prepare {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A write or its `fdatasync` failed.
    #[error("an append was not made durable; check the disk")]
    Append(#[source] io::Error),
    /// What the directory lies on cannot be found out.
    #[error("could not find out what {} lies on; check that it exists and that /proc is mounted", dir.display())]
    FileSystem {
        /// The directory.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl DurableAppends {
    /// Prepares a nameless file for `records` records in `dir`.
    pub fn prepare(dir: &Path, records: u32) -> Result<Self, DiskError> {
        let records = u64::from(records).max(1);
        let file = prepared_file(dir, records * RECORD_BYTES as u64)
            .map_err(|source| DiskError::Prepare { dir: dir.to_owned(), source })?;
        Ok(Self { file, next_record: 0, records, record: [0x5a; RECORD_BYTES] })
    }

    /// Appends one record and returns when it would survive a loss of power.
    pub fn append(&mut self) -> Result<(), DiskError> {
        // Different bytes each time: a disk below may recognise a block that it already has.
        self.record[..8].copy_from_slice(&self.next_record.to_le_bytes());
        let offset = (self.next_record % self.records) * RECORD_BYTES as u64;
        self.file.write_all_at(&self.record, offset).map_err(DiskError::Append)?;
        self.file.sync_data().map_err(DiskError::Append)?;
        self.next_record += 1;
        Ok(())
    }
}

impl FileSystem {
    /// What `dir` lies on, from the kernel's list of mounts.
    pub fn of(dir: &Path) -> Result<Self, DiskError> {
        let failed = |source| DiskError::FileSystem { dir: dir.to_owned(), source };
        let path = dir.canonicalize().map_err(failed)?;
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").map_err(failed)?;
        nearest_mount(&mounts, &path).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
    }
}

fn prepared_file(dir: &Path, bytes: u64) -> io::Result<File> {
    let file = tempfile::tempfile_in(dir)?;
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        // Writing the zeros allocates just as well where a file system cannot preallocate.
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
    }
    let zeros = vec![0; ZEROS_BYTES];
    let mut offset = 0;
    while offset < bytes {
        let here = usize::try_from(bytes - offset).map_or(ZEROS_BYTES, |left| left.min(ZEROS_BYTES));
        file.write_all_at(&zeros[..here], offset)?;
        offset += here as u64;
    }
    file.sync_all()?;
    Ok(file)
}

/// Of the mounts above `path` the deepest counts, and of those stacked at one point the last.
fn nearest_mount(mounts: &str, path: &Path) -> Option<FileSystem> {
    mounts
        .lines()
        .filter_map(parse_mount)
        .filter(|(point, _)| path.starts_with(point))
        .max_by_key(|(point, _)| point.components().count())
        .map(|(_, file_system)| file_system)
}

/// A line is `id parent device root POINT options [tags] - KIND SOURCE options`, blanks written as `\040`.
fn parse_mount(line: &str) -> Option<(PathBuf, FileSystem)> {
    let (place, file_system) = line.split_once(" - ")?;
    let point = place.split(' ').nth(4)?.replace("\\040", " ");
    let mut fields = file_system.split(' ');
    let kind = fields.next()?.to_owned();
    let source = fields.next()?.to_owned();
    Some((PathBuf::from(point), FileSystem { kind, source }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_start_over_when_the_file_is_full() {
        let dir = tempfile::tempdir().unwrap();
        let mut appends = DurableAppends::prepare(dir.path(), 2).unwrap();
        for _ in 0..5 {
            appends.append().unwrap();
        }
        assert_eq!(appends.file.metadata().unwrap().len(), 2 * RECORD_BYTES as u64);
        let mut first = [0; 8];
        appends.file.read_exact_at(&mut first, 0).unwrap();
        assert_eq!(u64::from_le_bytes(first), 4);
    }

    #[test]
    fn the_file_has_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let _appends = DurableAppends::prepare(dir.path(), 300).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_directory_is_named() {
        let dir = tempfile::tempdir().unwrap().path().join("missing");
        for error in
            [DurableAppends::prepare(&dir, 1).unwrap_err(), FileSystem::of(&dir).map(|_| ()).unwrap_err()]
        {
            assert!(error.to_string().contains(&dir.display().to_string()), "{error}");
        }
    }

    #[test]
    fn the_deepest_and_latest_mount_counts() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/a rw\n\
                      2 1 0:2 / /with\\040blank rw shared:1 - xfs /dev/b rw\n\
                      3 1 0:3 / /with\\040blank rw - tmpfs none rw\n";
        let kind = |path: &str| nearest_mount(mounts, Path::new(path)).unwrap().kind;
        assert_eq!(kind("/home"), "ext4");
        assert_eq!(kind("/with blank/x"), "tmpfs");
        assert_eq!(kind("/with blanks"), "ext4");
    }

    #[test]
    fn this_directory_lies_on_something() {
        assert!(!FileSystem::of(Path::new(".")).unwrap().kind.is_empty());
    }
}
