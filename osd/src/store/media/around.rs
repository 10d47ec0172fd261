//! Long writes past the kernel's cache of files.
//!
//! A page of that cache has to be found and emptied before it is written to, which takes longer than the disk does, and
//! pushes out what somebody reads. Whether the file system can do without is found out by trying.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use rustix::fs::OFlags;

/// Where disks want writes to begin and end, in the file and in memory.
const ALIGN: usize = 4_096;
/// How much is written at once.
const WRITE_BYTES: usize = 1 << 20;

/// A file's way past the cache.
pub(super) struct Around {
    path: PathBuf,
    way: Mutex<Way>,
}

/// Whether there is one.
enum Way {
    Untried,
    None,
    /// With memory from which it is written.
    Open(File, Vec<u8>),
}

impl Around {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self { path, way: Mutex::new(Way::Untried) }
    }

    /// Puts `parts` behind each other at `offset` of `file`.
    pub(super) fn write(&self, file: &File, offset: u64, parts: &[Bytes]) -> io::Result<()> {
        let mut way = self.way.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*way, Way::Untried) {
            *way = self.open();
        }
        let is_aligned =
            offset.is_multiple_of(ALIGN as u64) && parts.iter().all(|part| part.len().is_multiple_of(ALIGN));
        if let (Way::Open(around, memory), true) = (&mut *way, is_aligned) {
            match write_from(memory, parts, offset, |bytes, at| around.write_all_at(bytes, at)) {
                // There are file systems that let it be opened only.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => *way = Way::None,
                done => return done,
            }
        }
        drop(way);
        write_through(file, offset, parts)
    }

    fn open(&self) -> Way {
        let flags = i32::try_from(OFlags::DIRECT.bits()).expect("flags of a file are few");
        match OpenOptions::new().write(true).custom_flags(flags).open(&self.path) {
            Ok(file) => Way::Open(file, vec![0; WRITE_BYTES + ALIGN]),
            Err(_) => Way::None,
        }
    }
}

/// Puts `parts` behind each other at `offset` of `file`, through the cache.
pub(super) fn write_through(file: &File, offset: u64, parts: &[Bytes]) -> io::Result<()> {
    let mut at = offset;
    for part in parts {
        file.write_all_at(part, at)?;
        at += part.len() as u64;
    }
    Ok(())
}

/// Hands `parts` to `write` as they come to stand behind each other in `memory`, from an aligned place on.
fn write_from(
    memory: &mut [u8],
    parts: &[Bytes],
    offset: u64,
    mut write: impl FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<()> {
    let start = memory.as_ptr().align_offset(ALIGN);
    let memory = &mut memory[start..start + WRITE_BYTES];
    let (mut at, mut length) = (offset, 0);
    for part in parts {
        let mut part = &part[..];
        while !part.is_empty() {
            let (piece, rest) = part.split_at(part.len().min(WRITE_BYTES - length));
            memory[length..length + piece.len()].copy_from_slice(piece);
            (length, part) = (length + piece.len(), rest);
            if length == WRITE_BYTES {
                write(memory, at)?;
                (at, length) = (at + WRITE_BYTES as u64, 0);
            }
        }
    }
    if length > 0 { write(&memory[..length], at) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_writes_arrive_with_and_without_the_cache() {
        let part = |seed: usize, length: usize| -> Bytes {
            (0..length).map(|at| u8::try_from((at / 7 + seed) % 251).unwrap()).collect()
        };
        // The folder of the build is on a disk, and temporary folders often are not.
        for folder in [std::path::Path::new(env!("CARGO_MANIFEST_DIR")), &std::env::temp_dir()] {
            let folder = tempfile::Builder::new().prefix(".around").tempdir_in(folder).unwrap();
            let path = folder.path().join("file");
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
            let around = Around::new(path.clone());
            let parts = [part(1, 700 << 10), part(2, 64 << 10), part(3, 3 << 20)];
            around.write(&file, 8_192, &parts).unwrap();
            around.write(&file, 5, &[part(4, 10)]).unwrap();
            let mut wanted = vec![0; 8_192];
            wanted[5..15].copy_from_slice(&part(4, 10));
            parts.iter().for_each(|part| wanted.extend_from_slice(part));
            assert!(std::fs::read(&path).unwrap() == wanted);
        }
    }
}
