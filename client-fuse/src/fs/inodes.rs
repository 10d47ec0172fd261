//! Which inode a number of the kernel's stands for.
//!
//! FUSE has 64 bits, and an inode's id has a place in the volume's log and the epoch of that place. The place alone is the number,
//! because only one entry at a place was ever committed; users see it as `st_ino`, the same on all mounts and at all times.
//! The epoch is kept here as long as the kernel refers to the inode, and so the table is as large as the kernel's.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::WallTime;
use namespace::{Attributes, InodeId};

use super::FsError;

/// The number of the directory that everything is below.
const ROOT: u64 = InodeId::ROOT.number;

/// The inodes that the kernel refers to.
#[derive(Default)]
pub(crate) struct Inodes {
    /// Held for moments only, and never while waiting.
    known: Mutex<BTreeMap<u64, Known>>,
}

struct Known {
    id: InodeId,
    /// How often the kernel was told of it, less what it has forgotten.
    lookups: u64,
    told: Option<Version>,
}

/// What tells two states of a file's content apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Version {
    size: u64,
    mtime: WallTime,
    ctime: WallTime,
}

/// What the kernel makes of what it is told of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Told {
    /// It is as it was told before, or for the first time, or the kernel sees that it changed.
    Plain,
    /// The content may have changed, and the kernel cannot see it.
    Hidden,
}

impl Inodes {
    /// The inode of a number that the kernel has.
    pub(super) fn id(&self, number: u64) -> Result<InodeId, FsError> {
        if number == ROOT {
            return Ok(InodeId::ROOT);
        }
        self.known().get(&number).map(|known| known.id).ok_or(FsError::Forgotten)
    }

    /// The kernel is told of an inode once more.
    pub(super) fn entered(&self, id: InodeId) {
        let mut known = self.known();
        let known = known.entry(id.number).or_insert(Known { id, lookups: 0, told: None });
        known.lookups += 1;
        if known.id != id {
            // What had the number before was never committed: nothing is there any more to refer to.
            (known.id, known.told) = (id, None);
        }
    }

    pub(super) fn forget(&self, number: u64, lookups: u64) {
        let mut known = self.known();
        if let Entry::Occupied(mut known) = known.entry(number) {
            known.get_mut().lookups = known.get().lookups.saturating_sub(lookups);
            if known.get().lookups == 0 {
                known.remove();
            }
        }
    }

    /// Notes what the kernel is told.
    pub(super) fn told(&self, attributes: &Attributes) -> Told {
        let Attributes { inode, size, mtime, ctime, .. } = *attributes;
        let mut known = self.known();
        let Some(known) = known.get_mut(&inode.number).filter(|known| known.id == inode) else {
            return Told::Plain;
        };
        let now = Version { size, mtime, ctime };
        match known.told.replace(now) {
            Some(before) if before != now && (before.size, before.mtime) == (size, mtime) => Told::Hidden,
            _ => Told::Plain,
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<u64, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, NodeId};
    use namespace::Kind;

    use super::*;

    fn id(number: u64, epoch: u64) -> InodeId {
        InodeId { number, epoch: Epoch { number: epoch, node: NodeId(1) } }
    }

    fn attributes(inode: InodeId, [size, mtime, ctime]: [u64; 3]) -> Attributes {
        let [mtime, ctime] = [mtime, ctime].map(WallTime::from_micros);
        Attributes {
            inode,
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            rdev: 0,
            size,
            atime: mtime,
            mtime,
            ctime,
            btime: mtime,
            lent: None,
            was_lent: false,
            replicas: None,
            has_acl: false,
        }
    }

    #[test]
    fn an_inode_is_known_until_it_is_forgotten_as_often_as_it_was_told() {
        let inodes = Inodes::default();
        let inode = id(7, 3);
        assert_eq!(inodes.id(7), Err(FsError::Forgotten));
        inodes.entered(inode);
        inodes.entered(inode);
        inodes.forget(7, 1);
        assert_eq!(inodes.id(7), Ok(inode));
        inodes.forget(7, 1);
        assert_eq!(inodes.id(7), Err(FsError::Forgotten));
        assert_eq!(inodes.id(ROOT), Ok(InodeId::ROOT));
    }

    #[test]
    fn a_number_stands_for_what_was_committed_there() {
        let inodes = Inodes::default();
        inodes.entered(id(7, 3));
        inodes.entered(id(7, 4));
        assert_eq!(inodes.id(7), Ok(id(7, 4)));
        inodes.forget(7, 2);
        assert_eq!(inodes.id(7), Err(FsError::Forgotten));
    }

    #[test]
    fn a_change_that_sets_size_and_time_back_is_seen() {
        let inodes = Inodes::default();
        let inode = id(7, 3);
        let told = |version| inodes.told(&attributes(inode, version));
        assert_eq!(told([1, 1, 1]), Told::Plain, "the kernel does not have it yet");
        inodes.entered(inode);
        assert_eq!(told([1, 1, 1]), Told::Plain);
        assert_eq!(told([1, 1, 1]), Told::Plain);
        assert_eq!(told([1, 2, 2]), Told::Plain);
        assert_eq!(told([1, 2, 3]), Told::Hidden);
        assert_eq!(told([2, 2, 4]), Told::Plain);
    }
}
