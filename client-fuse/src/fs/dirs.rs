//! Listing directories.
//!
//! A directory is listed by names, and the kernel refers to places in it by numbers. So an open directory remembers the names that it has
//! shown: an entry's number is how many were shown before it. Names behind the last one are asked for by that name, so what comes
//! or goes meanwhile moves nothing: each name that stays is shown once.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use client::{Volume, VolumeError};
use namespace::{Ask, InodeId, Kind, Listed, Name, NameError, Rights};
use tokio::sync::Mutex;

use super::handles::Opens;
use super::identity::Identity;
use super::{Fs, FsError};
use crate::caller::Caller;

/// So many names of an open directory are remembered. Nobody goes back further.
const NAMES_MAX: usize = 1 << 16;
/// `.` and `..` come before the names.
const DOTS: u64 = 2;

/// An open directory.
pub(super) struct OpenDir {
    inode: InodeId,
    /// One listing at a time.
    listing: Mutex<Listing>,
    /// By which it is told what is lost of names, and of which identity of the mount that is. Held for moments only.
    volume: std::sync::Mutex<(u64, Arc<Volume>)>,
    /// Whether something of an earlier one is lost.
    has_lost: AtomicBool,
}

impl OpenDir {
    /// Its volume, by the identity that the mount has now.
    pub(super) fn volume(&self, identity: &Identity) -> Arc<Volume> {
        let mut volume = self.volume.lock().unwrap_or_else(PoisonError::into_inner);
        if volume.0 < identity.number {
            self.has_lost.fetch_or(volume.1.has_lost(), Ordering::SeqCst);
            *volume = (identity.number, Arc::new(identity.volume.again()));
        }
        volume.1.clone()
    }

    pub(super) fn tell_loss(&self) -> bool {
        self.has_lost.swap(false, Ordering::SeqCst)
    }
}

impl Opens for OpenDir {
    fn inode(&self) -> InodeId {
        self.inode
    }
}

/// What was shown of it.
#[derive(Default)]
struct Listing {
    /// How many names were shown before those that are remembered.
    forgotten: u64,
    names: VecDeque<Named>,
    /// There are none behind them.
    is_whole: bool,
}

/// What is remembered of an entry. There are many of these.
struct Named {
    name: Name,
    number: u64,
    kind: Kind,
}

/// An entry as the kernel takes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Shown {
    pub(crate) number: u64,
    pub(crate) kind: Kind,
    pub(crate) name: Vec<u8>,
    /// Where the next one is.
    pub(crate) next: u64,
}

impl Fs {
    pub(crate) async fn open_directory(&self, caller: &Caller, number: u64) -> Result<u64, FsError> {
        let (inode, identity) = (self.inodes.id(number)?, self.now());
        match identity.volume.ask(&caller.who(), reading(inode)).await {
            // It was removed since it was looked up, and nothing was in it.
            Ok(_) | Err(VolumeError::Refused(NameError::NoInode { .. })) => {}
            Err(error) => return Err(error.into()),
        }
        let volume = std::sync::Mutex::new((identity.number, Arc::new(identity.volume.again())));
        // Of what an earlier identity has lost whoever comes next is told, if nobody was.
        let has_lost = AtomicBool::new(self.has_lost.load(Ordering::SeqCst));
        Ok(self.dirs.enter(OpenDir { inode, listing: Mutex::default(), volume, has_lost }))
    }

    /// Some entries from `offset` on; none if there are no more.
    pub(crate) async fn list(&self, handle: u64, offset: u64) -> Result<Vec<Shown>, FsError> {
        let dir = self.dirs.get(handle)?;
        let mut listing = dir.listing.lock().await;
        if offset == 0 {
            *listing = Listing::default();
        }
        // Who has gone back to the start may go on where he was before.
        while listing.has_to_ask(offset) {
            let after = listing.names.back().map(|last| last.name.clone());
            match self.now().volume.list(dir.inode, after, false).await {
                Ok(page) => listing.append(page.entries, page.is_last),
                // It was removed, and nothing was in it.
                Err(VolumeError::Refused(NameError::NoInode { .. })) => listing.is_whole = true,
                Err(error) => return Err(error.into()),
            }
        }
        listing.from(dir.inode, offset).ok_or(FsError::Invalid)
    }

    pub(crate) fn close_directory(&self, handle: u64) {
        self.dirs.leave(handle);
    }
}

/// Whether somebody may list a directory.
const fn reading(inode: InodeId) -> Ask {
    Ask::Access { inode, rights: Rights::READ }
}

impl Listing {
    /// How many names were shown.
    fn end(&self) -> u64 {
        self.forgotten + self.names.len() as u64
    }

    /// Whether what is at `offset` was not shown yet.
    fn has_to_ask(&self, offset: u64) -> bool {
        !self.is_whole && offset.saturating_sub(DOTS) >= self.end()
    }

    fn append(&mut self, entries: Vec<Listed>, is_last: bool) {
        for Listed { name, inode, kind, .. } in entries {
            if self.names.len() == NAMES_MAX {
                self.names.pop_front();
                self.forgotten += 1;
            }
            self.names.push_back(Named { name, number: inode.number, kind });
        }
        self.is_whole = is_last;
    }

    /// What is known from `offset` on, if it is remembered.
    fn from(&self, dir: InodeId, offset: u64) -> Option<Vec<Shown>> {
        // What is above a directory the kernel knows better, and asks nobody.
        let dots = [(0, "."), (1, "..")].map(|(place, name)| Shown {
            number: dir.number,
            kind: Kind::Directory,
            name: name.into(),
            next: place + 1,
        });
        let first = offset.saturating_sub(DOTS);
        let skipped = usize::try_from(first.checked_sub(self.forgotten)?).ok()?;
        let names = (first..).zip(self.names.iter().skip(skipped)).map(|(place, named)| Shown {
            number: named.number,
            kind: named.kind,
            name: named.name.as_bytes().to_vec(),
            next: place + DOTS + 1,
        });
        let dots = dots.into_iter().skip(usize::try_from(offset).unwrap_or(usize::MAX));
        Some(dots.chain(names).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(names: std::ops::Range<usize>) -> Vec<Listed> {
        let listed = |number: usize| Listed {
            name: Name::new(format!("{number:09}").as_bytes()).unwrap(),
            inode: InodeId::ROOT,
            kind: Kind::File,
            attributes: None,
        };
        names.map(listed).collect()
    }

    fn names(listing: &Listing, offset: u64) -> Option<Vec<String>> {
        let shown = listing.from(InodeId::ROOT, offset)?;
        assert!((offset + 1..).zip(&shown).all(|(next, shown)| shown.next == next));
        Some(shown.into_iter().map(|shown| String::from_utf8(shown.name).unwrap()).collect())
    }

    #[test]
    fn an_entry_is_found_where_it_was_shown() {
        let mut listing = Listing::default();
        listing.append(page(0..3), false);
        let all = [".", "..", "000000000", "000000001", "000000002"];
        for offset in 0..=5 {
            assert_eq!(names(&listing, offset as u64).unwrap(), all[offset..]);
        }
        listing.append(page(3..4), true);
        assert_eq!(names(&listing, 5).unwrap(), ["000000003"]);
        assert!(names(&listing, 6).unwrap().is_empty());
    }

    #[test]
    fn what_was_shown_long_ago_is_not_remembered() {
        let mut listing = Listing::default();
        listing.append(page(0..NAMES_MAX + 10), false);
        assert_eq!(listing.end(), NAMES_MAX as u64 + 10);
        assert_eq!(names(&listing, DOTS + 9), None);
        assert_eq!(names(&listing, DOTS + 10).unwrap()[0], "000000010");
    }
}
