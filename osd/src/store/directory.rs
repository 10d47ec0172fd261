//! A data directory on a real disk: found or made, and locked for this process alone.
//!
//! A directory is made under another name beside its place and renamed when it is complete, so a data directory is
//! either whole or not there. The lock stands inside it and is taken before anything else is read; the process
//! that makes a directory has it before the directory has its name.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::OpenError;
use super::disk::{Disk, Lock, NEW_SUFFIX, WriteError};
use super::record::Kind;

const LOCK: &str = "lock";
/// How often somebody else may get in between our looking and our doing.
const ATTEMPTS: u32 = 8;

/// An open data directory. Nobody else has it open while this exists.
pub(super) struct Directory {
    dir: OwnedFd,
    lock: File,
}

/// Opens the data directory at `path`; if there is none, or an empty one, `format` fills a new one first.
pub(super) fn open(
    path: &Path,
    format: impl Fn(&mut dyn Disk) -> Result<(), WriteError>,
) -> Result<Directory, OpenError> {
    // The directory itself is replaced when it is empty, never a link to it.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    for _ in 0..ATTEMPTS {
        let opened = match first_entry(&path, is_identity)? {
            Found::Store => open_locked(&path)?,
            Found::Nothing => make(&path, &format)?,
            Found::Other(entry) => return Err(OpenError::NotAStore { dir: path, entry }),
        };
        if let Some(directory) = opened {
            return Ok(directory);
        }
    }
    Err(OpenError::Contended { dir: path })
}

/// Opens the data directory at `path` for somebody who changes nothing in it, and keeps daemons away meanwhile. None if
/// nothing is there.
pub(super) fn look(path: &Path) -> Result<Option<Directory>, OpenError> {
    let io_error = |errno: Errno| OpenError::Io { path: path.to_owned(), source: errno.into() };
    match first_entry(path, |name| Kind::ALL.iter().any(|kind| kind.file() == name))? {
        Found::Store => {}
        Found::Nothing => return Ok(None),
        Found::Other(entry) => return Err(OpenError::NotAStore { dir: path.to_owned(), entry }),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty()).map_err(io_error)?;
    check_files(&dir, path)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut lock = match rustix::fs::openat(&dir, LOCK, flags, Mode::empty()) {
        Ok(lock) => File::from(lock),
        // A copy may lack it, and nobody has that open.
        Err(Errno::NOENT) => {
            File::from(dir.try_clone().map_err(|source| OpenError::Io { path: path.to_owned(), source })?)
        }
        Err(errno) => return Err(io_error(errno)),
    };
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Directory { dir, lock })),
        Err(Errno::WOULDBLOCK) => Err(OpenError::Locked { dir: path.to_owned(), holder: holder(&mut lock) }),
        Err(errno) => Err(io_error(errno)),
    }
}

/// What is at a path.
enum Found {
    Nothing,
    Store,
    /// A directory with this entry in it and no sign of a store.
    Other(String),
}

/// Looks through the directory at `path` for an entry that makes it a store.
fn first_entry(path: &Path, is_sign: impl Fn(&str) -> bool) -> Result<Found, OpenError> {
    let io_error = |source| OpenError::Io { path: path.to_owned(), source };
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(io_error(error)),
    };
    let mut found = Found::Nothing;
    for entry in entries {
        let name = entry.map_err(io_error)?.file_name().to_string_lossy().into_owned();
        if is_sign(&name) {
            return Ok(Found::Store);
        }
        found = Found::Other(name);
    }
    Ok(found)
}

fn is_identity(name: &str) -> bool {
    name == Kind::Identity.file()
}

/// Opens and locks the directory at `path`. `None` if another one has taken its place meanwhile.
fn open_locked(path: &Path) -> Result<Option<Directory>, OpenError> {
    let io_error = |errno: Errno| OpenError::Io { path: path.to_owned(), source: errno.into() };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(io_error(errno)),
    };
    check_files(&dir, path)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let mut lock = match rustix::fs::openat(&dir, LOCK, flags, Mode::RUSR | Mode::WUSR) {
        Ok(lock) => File::from(lock),
        // Removed by whoever was making it.
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(io_error(errno)),
    };
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        Err(Errno::WOULDBLOCK) => {
            return Err(OpenError::Locked { dir: path.to_owned(), holder: holder(&mut lock) });
        }
        Err(errno) => return Err(io_error(errno)),
    }
    let ours = rustix::fs::fstat(&dir).map_err(io_error)?;
    let named = rustix::fs::stat(path).ok();
    if named.is_none_or(|named| (named.st_dev, named.st_ino) != (ours.st_dev, ours.st_ino)) {
        return Ok(None);
    }
    // Only for the message to a second daemon, so it does not matter whether there was space for it.
    let _ = lock.set_len(0).and_then(|()| writeln!(lock, "{}", std::process::id()));
    Ok(Some(Directory { dir, lock }))
}

/// Nothing but regular files is opened: to open a named pipe takes until somebody else opens it, and to open a device
/// may do something.
fn check_files(dir: &OwnedFd, path: &Path) -> Result<(), OpenError> {
    for name in Kind::ALL.iter().map(|kind| kind.file()).chain([LOCK]) {
        // What is missing, or cannot be looked at, shows when it is opened.
        let Ok(stat) = rustix::fs::statat(dir, name, AtFlags::empty()) else { continue };
        let what = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => continue,
            FileType::Directory => "a directory",
            FileType::Fifo => "a named pipe",
            FileType::Socket => "a socket",
            _ => "a device",
        };
        return Err(OpenError::NotAFile { path: path.join(name), what });
    }
    Ok(())
}

/// The process that has the lock, if it wrote its id down.
fn holder(lock: &mut File) -> Option<u32> {
    let mut text = String::new();
    lock.rewind().ok()?;
    lock.take(16).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Makes a directory beside `path` and gives it that name. `None` if somebody else was faster.
fn make(
    path: &Path,
    format: impl Fn(&mut dyn Disk) -> Result<(), WriteError>,
) -> Result<Option<Directory>, OpenError> {
    let (parent, new) = beside(path)?;
    let io_error = |path: &Path, source: io::Error| OpenError::Io { path: path.to_owned(), source };
    match rustix::fs::mkdir(&new, Mode::RWXU) {
        // What is left of a start that crashed is made anew.
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(io_error(&new, errno.into())),
    }
    let Some(mut directory) = open_locked(&new)? else { return Ok(None) };
    if let Found::Other(entry) = first_stranger(&new)? {
        return Err(OpenError::NotAStore { dir: new, entry });
    }
    format(&mut directory)?;
    match rustix::fs::rename(&new, path) {
        Ok(()) => {}
        Err(Errno::NOTEMPTY | Errno::EXIST) => {
            // A store stands there now. A copy that stays behind is in nobody's way.
            let _ = std::fs::remove_dir_all(&new);
            return Ok(None);
        }
        Err(Errno::BUSY | Errno::XDEV) => {
            let _ = std::fs::remove_dir_all(&new);
            return Err(OpenError::MountPoint { dir: path.to_owned() });
        }
        Err(errno) => return Err(io_error(path, errno.into())),
    }
    File::open(&parent).and_then(|parent| parent.sync_all()).map_err(|source| io_error(&parent, source))?;
    Ok(Some(directory))
}

/// The parent of `path`, and the name that a new directory has until it is complete.
fn beside(path: &Path) -> Result<(PathBuf, PathBuf), OpenError> {
    let name = path.file_name().ok_or_else(|| OpenError::MountPoint { dir: path.to_owned() })?;
    let mut hidden = std::ffi::OsString::from(".");
    hidden.push(name);
    hidden.push(NEW_SUFFIX);
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let new = parent.join(hidden);
    Ok((parent, new))
}

/// An entry of `dir` that no start of ours leaves there.
fn first_stranger(dir: &Path) -> Result<Found, OpenError> {
    let is_ours = |name: &str| {
        let base = name.strip_suffix(NEW_SUFFIX).unwrap_or(name);
        base == LOCK || Kind::ALL.iter().any(|kind| kind.file() == base)
    };
    let entries = std::fs::read_dir(dir).map_err(|source| OpenError::Io { path: dir.to_owned(), source })?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    Ok(names.into_iter().find(|name| !is_ours(name)).map_or(Found::Nothing, Found::Other))
}

impl Directory {
    /// Whoever has this file locked has the directory.
    pub(super) fn lock(&self) -> &File {
        &self.lock
    }
}

impl Disk for Directory {
    fn lock(&self) -> io::Result<Option<Lock>> {
        Lock::on(&self.lock).map(Some)
    }

    fn read(&mut self, file: &str, bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        // Were it a named pipe by now, it would be empty rather than waited for.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let opened = rustix::fs::openat(&self.dir, file, flags, Mode::empty());
        let opened = match opened {
            Ok(opened) => File::from(opened),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let mut bytes = Vec::new();
        // One more, so that a file that is too long does not pass for one that is not.
        opened.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let remove = || rustix::fs::unlinkat(&self.dir, file, AtFlags::empty());
        // A new file each time: what went wrong with an earlier one is not mixed up with this.
        match remove() {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut new = File::from(rustix::fs::openat(&self.dir, file, flags, Mode::RUSR | Mode::WUSR)?);
        let written = new.write_all(bytes).and_then(|()| new.sync_data());
        if written.is_err() {
            // It may be the space that is missing; if it stays, the next attempt removes it.
            let _ = remove();
        }
        written
    }

    fn overwrite(&mut self, file: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = File::from(rustix::fs::openat(&self.dir, file, flags, Mode::empty())?);
        file.write_all_at(bytes, offset)?;
        file.sync_data()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.dir, from, &self.dir, to)?)
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.dir)?)
    }
}
