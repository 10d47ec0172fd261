//! A file system that does nothing: names and sizes in memory, data nowhere.
//!
//! It exists to measure what every file system on FUSE pays. Writing forgets the data and moves the size, reading
//! gives zeros, and there is one directory. Deliberately absent: everything that costs something on its own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file that is always there, for reading at length.
pub const BIG_FILE_NAME: &str = "big";
/// The size of [`BIG_FILE_NAME`].
pub const BIG_FILE_BYTES: u64 = 128 << 20;

/// The longest read that is answered in one piece; the kernel asks for no more than this.
pub(crate) const IO_BYTES_MAX: u32 = 1 << 20;

static ZEROS: [u8; IO_BYTES_MAX as usize] = [0; IO_BYTES_MAX as usize];

const BIG_FILE: Inode = Inode(2);

/// The number of a file or of the one directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Inode(pub(crate) u64);

/// What there is to know about a file or the one directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) inode: Inode,
    pub(crate) kind: Kind,
    pub(crate) size_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory,
    File,
}

/// Why an operation was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FsError {
    /// No such name, or no such inode any more.
    NoEntry,
    /// The directory was named where only files will do.
    IsDirectory,
}

/// The tree.
pub(crate) struct NullFs {
    /// Held for the time of a look-up only; nothing is called while it is held.
    tree: Mutex<Tree>,
}

struct Tree {
    names: BTreeMap<OsString, Inode>,
    sizes_bytes: BTreeMap<Inode, u64>,
    next: u64,
}

impl Inode {
    /// The one directory, under the number that the kernel expects.
    pub(crate) const ROOT: Self = Self(1);
}

impl NullFs {
    /// A tree with nothing in it but the big file.
    pub(crate) fn new() -> Self {
        Self {
            tree: Mutex::new(Tree {
                names: BTreeMap::from([(BIG_FILE_NAME.into(), BIG_FILE)]),
                sizes_bytes: BTreeMap::from([(BIG_FILE, BIG_FILE_BYTES)]),
                next: BIG_FILE.0 + 1,
            }),
        }
    }

    pub(crate) fn lookup(&self, name: &OsStr) -> Result<Attributes, FsError> {
        let tree = self.tree();
        let inode = *tree.names.get(name).ok_or(FsError::NoEntry)?;
        tree.attributes(inode)
    }

    pub(crate) fn attributes(&self, inode: Inode) -> Result<Attributes, FsError> {
        self.tree().attributes(inode)
    }

    /// Every name, with what it names.
    pub(crate) fn names(&self) -> Vec<(OsString, Inode)> {
        self.tree().names.iter().map(|(name, inode)| (name.clone(), *inode)).collect()
    }

    /// The file called `name`, new and empty if there was none. That a new name must be new the kernel has checked.
    pub(crate) fn create(&self, name: &OsStr) -> Result<Attributes, FsError> {
        let mut tree = self.tree();
        if let Some(inode) = tree.names.get(name) {
            return tree.attributes(*inode);
        }
        let inode = Inode(tree.next);
        tree.next += 1;
        tree.names.insert(name.to_owned(), inode);
        tree.sizes_bytes.insert(inode, 0);
        tree.attributes(inode)
    }

    /// Removes a file at once, whether it is open or not.
    pub(crate) fn unlink(&self, name: &OsStr) -> Result<(), FsError> {
        let mut tree = self.tree();
        let inode = tree.names.remove(name).ok_or(FsError::NoEntry)?;
        tree.sizes_bytes.remove(&inode);
        Ok(())
    }

    pub(crate) fn resize(&self, inode: Inode, size_bytes: u64) -> Result<Attributes, FsError> {
        let mut tree = self.tree();
        *tree.size_bytes(inode)? = size_bytes;
        tree.attributes(inode)
    }

    /// Forgets `length` bytes at `offset`, which makes the file at least that long.
    pub(crate) fn write(&self, inode: Inode, offset: u64, length: u32) -> Result<(), FsError> {
        let mut tree = self.tree();
        let size_bytes = tree.size_bytes(inode)?;
        *size_bytes = (*size_bytes).max(offset.saturating_add(u64::from(length)));
        Ok(())
    }

    /// As many zeros as the file has at `offset`, but no more than `length`.
    pub(crate) fn read(&self, inode: Inode, offset: u64, length: u32) -> Result<&'static [u8], FsError> {
        let left = self.tree().size_bytes(inode)?.saturating_sub(offset);
        let here = u64::from(length.min(IO_BYTES_MAX)).min(left);
        Ok(&ZEROS[..usize::try_from(here).unwrap_or(ZEROS.len())])
    }

    /// Every operation leaves the tree whole, so one that panicked has done no harm.
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tree {
    fn attributes(&self, inode: Inode) -> Result<Attributes, FsError> {
        if inode == Inode::ROOT {
            return Ok(Attributes { inode, kind: Kind::Directory, size_bytes: 0 });
        }
        let size_bytes = *self.sizes_bytes.get(&inode).ok_or(FsError::NoEntry)?;
        Ok(Attributes { inode, kind: Kind::File, size_bytes })
    }

    fn size_bytes(&mut self, inode: Inode) -> Result<&mut u64, FsError> {
        if inode == Inode::ROOT {
            return Err(FsError::IsDirectory);
        }
        self.sizes_bytes.get_mut(&inode).ok_or(FsError::NoEntry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_comes_grows_and_goes() {
        let fs = NullFs::new();
        let name = OsStr::new("a");
        let inode = fs.create(name).unwrap().inode;
        fs.write(inode, 10, 5).unwrap();
        assert_eq!(fs.lookup(name).unwrap().size_bytes, 15);
        fs.write(inode, 0, 5).unwrap();
        assert_eq!(fs.attributes(inode).unwrap().size_bytes, 15);
        assert_eq!(fs.read(inode, 12, 100).unwrap(), [0; 3]);
        assert_eq!(fs.read(inode, 15, 1).unwrap(), []);
        assert_eq!(fs.resize(inode, 0).unwrap().size_bytes, 0);
        fs.unlink(name).unwrap();
        assert_eq!(fs.lookup(name), Err(FsError::NoEntry));
        assert_eq!(fs.attributes(inode), Err(FsError::NoEntry));
    }

    #[test]
    fn creating_what_exists_finds_it() {
        let fs = NullFs::new();
        assert_eq!(fs.create(OsStr::new(BIG_FILE_NAME)), fs.lookup(OsStr::new(BIG_FILE_NAME)));
        assert_eq!(fs.names().len(), 1);
    }

    #[test]
    fn the_directory_is_no_file() {
        let fs = NullFs::new();
        assert_eq!(fs.attributes(Inode::ROOT).unwrap().kind, Kind::Directory);
        assert_eq!(fs.write(Inode::ROOT, 0, 1), Err(FsError::IsDirectory));
    }

    #[test]
    fn a_read_is_bounded() {
        let fs = NullFs::new();
        assert_eq!(fs.read(BIG_FILE, 0, u32::MAX).unwrap().len(), IO_BYTES_MAX as usize);
    }
}
