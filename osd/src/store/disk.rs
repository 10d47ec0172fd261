//! The seam under the store: one directory of a disk, real or simulated, and how a file in it is replaced.
//!
//! Assumed of a disk: what `write` and `overwrite` made durable stays as it was written; a rename is atomic, and durable
//! after the next `sync`; a crash may undo a rename that was not yet durable, leaves a file that was being written with
//! any content, and of a file that was being overwritten touches only what was. Nothing is assumed of a disk that lies
//! about durability.

use std::fs::File;
use std::io;

/// One directory. The store is its only user.
pub trait Disk: Send {
    /// The content of `file`, or `None` if there is none. Stops soon after `bytes_max`.
    fn read(&mut self, file: &str, bytes_max: usize) -> io::Result<Option<Vec<u8>>>;

    /// Makes `file` hold exactly `bytes`, durably. Its name is durable only after [`sync`](Self::sync).
    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()>;

    /// Puts `bytes` over what `file` has at `offset`, durably.
    fn overwrite(&mut self, file: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Gives the file `from` the name `to`, which may be taken.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;

    /// Makes all names durable.
    fn sync(&mut self) -> io::Result<()>;

    /// What keeps others out as long as it is open, if anything does.
    fn lock(&self) -> io::Result<Option<Lock>> {
        Ok(None)
    }
}

/// Keeps others out of a directory as long as it is there.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// The lock that is on a file.
    pub(super) fn on(file: &File) -> io::Result<Self> {
        Ok(Self { _file: file.try_clone()? })
    }
}

/// Why something was not made durable.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// No space. What is on the disk is the old content, or already the new one.
    #[error("the disk is full: {file} of the store could not be written; make space and try again")]
    Full {
        /// The file that was to be replaced.
        file: &'static str,
    },
    /// The disk failed, and what is on it is unknown.
    #[error(
        "{file} of the store could not be written, so the store is closed; check the disk, then restart the daemon"
    )]
    Io {
        /// The file that was to be replaced.
        file: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// An earlier write failed, and the store takes no more.
    #[error("the store is closed because an earlier write failed; check the disk, then restart the daemon")]
    Closed,
}

/// Replaces `file` by `bytes`: a crash leaves the old content or the new one, and on success it is the new one.
pub(super) fn replace(disk: &mut dyn Disk, file: &'static str, bytes: &[u8]) -> Result<(), WriteError> {
    let io_error = |source| WriteError::Io { file, source };
    let new = format!("{file}{NEW_SUFFIX}");
    // Only the copy is at stake here, so a lack of space is no reason to give up the store.
    disk.write(&new, bytes).map_err(|error| write_error(file, error))?;
    disk.rename(&new, file).map_err(io_error)?;
    disk.sync().map_err(io_error)
}

/// Replaces both copies that `file` has by `bytes`, one after the other, each durably, which takes no space. The second one has to be
/// durable and whole: so it is until the first one is.
pub(super) fn replace_copies(
    disk: &mut dyn Disk,
    file: &'static str,
    [first, second]: [u64; 2],
    bytes: &[u8],
) -> Result<(), WriteError> {
    // A file system that writes elsewhere may lack space even for that. The second copy is as it was.
    overwrite(disk, file, first, bytes)?;
    disk.overwrite(file, second, bytes).map_err(|source| WriteError::Io { file, source })
}

/// Puts `bytes` over what `file` has at `offset`, durably.
pub(super) fn overwrite(
    disk: &mut dyn Disk,
    file: &'static str,
    offset: u64,
    bytes: &[u8],
) -> Result<(), WriteError> {
    disk.overwrite(file, offset, bytes).map_err(|error| write_error(file, error))
}

fn write_error(file: &'static str, source: io::Error) -> WriteError {
    if is_full(&source) { WriteError::Full { file } } else { WriteError::Io { file, source } }
}

/// Whether the system says that there is no space.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// What the name of a copy that is not finished ends in.
pub(super) const NEW_SUFFIX: &str = ".new";

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A disk that forgets what was not made durable, and whose calls can be made to fail.
    #[derive(Clone, Default)]
    pub(in crate::store) struct FakeDisk(Arc<Mutex<State>>);

    #[derive(Default)]
    struct State {
        files: BTreeMap<String, Vec<u8>>,
        durable: BTreeMap<String, Vec<u8>>,
        calls: usize,
        fault: Option<Fault>,
    }

    /// What happens at the call with the number `at`, counted from zero.
    #[derive(Clone, Copy, Debug)]
    pub(in crate::store) struct Fault {
        pub(in crate::store) at: usize,
        pub(in crate::store) kind: io::ErrorKind,
        /// Whether the call takes effect although it fails.
        pub(in crate::store) took_effect: bool,
    }

    impl FakeDisk {
        pub(in crate::store) fn set_fault(&self, fault: Option<Fault>) {
            let mut state = self.0.lock().unwrap();
            state.calls = 0;
            state.fault = fault;
        }

        /// How many writing calls there were since the fault was set.
        pub(in crate::store) fn calls(&self) -> usize {
            self.0.lock().unwrap().calls
        }

        /// The disk after a loss of power: what was renamed but not synced is as before or as after it.
        pub(in crate::store) fn after_crash(&self, renames_survive: bool) -> Self {
            let state = self.0.lock().unwrap();
            let files = if renames_survive { state.files.clone() } else { state.durable.clone() };
            let disk = Self::default();
            disk.0.lock().unwrap().files = files.clone();
            disk.0.lock().unwrap().durable = files;
            disk
        }

        pub(in crate::store) fn edit(&self, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
            change(self.0.lock().unwrap().files.get_mut(file).unwrap());
        }

        pub(in crate::store) fn remove(&self, file: &str) {
            self.0.lock().unwrap().files.remove(file).unwrap();
        }

        pub(in crate::store) fn bytes(&self, file: &str) -> Vec<u8> {
            self.0.lock().unwrap().files[file].clone()
        }
    }

    impl State {
        /// The error of this call, and whether the call takes effect.
        fn next_call(&mut self) -> (io::Result<()>, bool) {
            let fault = self.fault.filter(|fault| fault.at == self.calls);
            self.calls += 1;
            fault.map_or((Ok(()), true), |fault| (Err(fault.kind.into()), fault.took_effect))
        }
    }

    fn overwrite(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
        let start = usize::try_from(offset).unwrap();
        file.resize(file.len().max(start + bytes.len()), 0);
        file[start..start + bytes.len()].copy_from_slice(bytes);
    }

    impl Disk for FakeDisk {
        fn read(&mut self, file: &str, _: usize) -> io::Result<Option<Vec<u8>>> {
            Ok(self.0.lock().unwrap().files.get(file).cloned())
        }

        fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
            let mut state = self.0.lock().unwrap();
            let (result, takes_effect) = state.next_call();
            // A write that fails leaves a torn file behind.
            let bytes = if takes_effect { bytes } else { &bytes[..bytes.len() / 2] };
            state.files.insert(file.to_owned(), bytes.to_vec());
            result
        }

        fn overwrite(&mut self, file: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
            let mut state = self.0.lock().unwrap();
            let (result, takes_effect) = state.next_call();
            let State { files, durable, .. } = &mut *state;
            overwrite(files.get_mut(file).ok_or(io::ErrorKind::NotFound)?, offset, bytes);
            // Processes read what was not synced, and the power leaves anything of it.
            let left = vec![0xee; bytes.len()];
            let durable = durable.get_mut(file).ok_or(io::ErrorKind::NotFound)?;
            overwrite(durable, offset, if takes_effect { bytes } else { &left });
            result
        }

        fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
            let mut state = self.0.lock().unwrap();
            let (result, takes_effect) = state.next_call();
            if takes_effect {
                let bytes = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
                state.files.insert(to.to_owned(), bytes);
            }
            result
        }

        fn sync(&mut self) -> io::Result<()> {
            let mut state = self.0.lock().unwrap();
            let (result, takes_effect) = state.next_call();
            if takes_effect {
                state.durable = state.files.clone();
            }
            result
        }
    }

    #[test]
    fn a_crash_at_any_call_leaves_the_old_or_the_new() {
        for at in 0..3 {
            for (took_effect, renames_survive) in [(false, false), (false, true), (true, false), (true, true)]
            {
                let mut disk = FakeDisk::default();
                replace(&mut disk, "file", b"old").unwrap();
                disk.set_fault(Some(Fault { at, kind: io::ErrorKind::Other, took_effect }));
                replace(&mut disk, "file", b"new").unwrap_err();
                let found = disk.after_crash(renames_survive).bytes("file");
                assert!(found == b"old" || found == b"new", "{found:?} at call {at}");
            }
        }
    }

    #[test]
    fn a_crash_at_any_call_leaves_one_copy_whole() {
        for (at, took_effect) in [(0, false), (0, true), (1, false), (1, true)] {
            let mut disk = FakeDisk::default();
            replace(&mut disk, "file", b"old old").unwrap();
            disk.set_fault(Some(Fault { at, kind: io::ErrorKind::Other, took_effect }));
            replace_copies(&mut disk, "file", [0, 4], b"new").unwrap_err();
            let found = disk.after_crash(false).bytes("file");
            let wanted: [&[u8]; 2] = match (at, took_effect) {
                (0, false) => [b"\xee\xee\xee", b"old"],
                (0, true) => [b"new", b"old"],
                (1, false) => [b"new", b"\xee\xee\xee"],
                _ => [b"new", b"new"],
            };
            assert_eq!([&found[..3], &found[4..]], wanted, "call {at}");
        }
    }

    #[test]
    fn success_is_durable() {
        let mut disk = FakeDisk::default();
        replace(&mut disk, "file", b"old").unwrap();
        replace(&mut disk, "file", b"new").unwrap();
        assert_eq!(disk.calls(), 6);
        assert_eq!(disk.after_crash(false).bytes("file"), b"new");
    }

    #[test]
    fn only_a_lack_of_space_is_harmless() {
        for (kind, at, harmless) in [
            (io::ErrorKind::StorageFull, 0, true),
            (io::ErrorKind::QuotaExceeded, 0, true),
            (io::ErrorKind::StorageFull, 1, false),
            (io::ErrorKind::Other, 0, false),
        ] {
            let mut disk = FakeDisk::default();
            disk.set_fault(Some(Fault { at, kind, took_effect: false }));
            let error = replace(&mut disk, "file", b"bytes").unwrap_err();
            assert_eq!(matches!(error, WriteError::Full { .. }), harmless, "{kind} at call {at}");
        }
    }
}
