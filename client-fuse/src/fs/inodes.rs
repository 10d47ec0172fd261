//! Which inode a number of the kernel's stands for.
//!
//! FUSE has 64 bits, and an inode's id has a place in the volume's log and the epoch of that place. The place alone is the number,
//! because only one entry at a place was ever committed; users see it as `st_ino`, the same on all mounts and at all times.
//! The epoch is kept here as long as the kernel refers to the inode, and so the table is as large as the kernel's.
//!
//! It is also known here until when the kernel may [believe](Inodes::believe) what it was told of attributes, so that it is told when these
//! are not so any more, and not told of what it does not have.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use namespace::InodeId;

use super::FsError;
use crate::clock;

/// The number of the directory that everything is below.
const ROOT: u64 = InodeId::ROOT.number;

/// The inodes that the kernel refers to.
pub(crate) struct Inodes {
    /// Held for moments only, and never while waiting.
    known: Mutex<BTreeMap<u64, Known>>,
}

struct Known {
    id: InodeId,
    /// How often the kernel was told of it, less what it has forgotten.
    lookups: u64,
    /// Until when it may believe what it was told. By the kernel's clock, which stands still while the machine sleeps.
    believed_until: Option<Instant>,
    /// Changes through this mount that are under way.
    changes: usize,
}

impl Known {
    const fn new(id: InodeId, lookups: u64) -> Self {
        Self { id, lookups, believed_until: None, changes: 0 }
    }

    fn is_believed(&self, now: Instant) -> bool {
        self.believed_until.is_some_and(|until| now < until)
    }
}

impl Default for Inodes {
    /// The kernel refers to the root as long as it is mounted.
    fn default() -> Self {
        Self { known: Mutex::new(BTreeMap::from([(ROOT, Known::new(InodeId::ROOT, 1))])) }
    }
}

impl Inodes {
    /// The inode of a number that the kernel has.
    pub(super) fn id(&self, number: u64) -> Result<InodeId, FsError> {
        self.known().get(&number).map(|known| known.id).ok_or(FsError::Forgotten)
    }

    /// The kernel is told of an inode once more. Whether it was before.
    pub(super) fn entered(&self, id: InodeId) -> bool {
        let mut known = self.known();
        let known = known.entry(id.number).or_insert(Known::new(id, 0));
        known.lookups += 1;
        if known.id != id {
            // What had the number before was never committed: nothing is there any more to refer to.
            *known = Known { changes: known.changes, ..Known::new(id, known.lookups) };
        }
        known.lookups > 1
    }

    pub(super) fn forget(&self, number: u64, lookups: u64) {
        let mut known = self.known();
        if let Entry::Occupied(mut known) = known.entry(number) {
            known.get_mut().lookups = known.get().lookups.saturating_sub(lookups);
            if known.get().lookups == 0 && number != ROOT {
                known.remove();
            }
        }
    }

    /// The kernel is about to be told attributes that it may believe until then. Who looks for them after this, and finds that
    /// they may be answered without asking, may tell them so: whatever ends that is looked for here afterwards. False if it may not
    /// believe any.
    pub(super) fn believe(&self, inode: InodeId, until: Instant) -> bool {
        let mut known = self.known();
        match known.get_mut(&inode.number) {
            Some(known) if known.id == inode && known.changes == 0 => {
                known.believed_until = known.believed_until.max(Some(until));
                true
            }
            _ => false,
        }
    }

    /// Whether the kernel may believe something of an inode.
    pub(super) fn is_believed(&self, inode: InodeId) -> bool {
        let known = self.known();
        let known = known.get(&inode.number).filter(|known| known.id == inode);
        known.is_some_and(|known| known.is_believed(clock::now()))
    }

    /// All inodes of which it may.
    pub(super) fn all_believed(&self) -> Vec<InodeId> {
        let (now, known) = (clock::now(), self.known());
        known.values().filter(|known| known.is_believed(now)).map(|known| known.id).collect()
    }

    /// A change of this inode through this mount begins: until it [ends](Self::end) nothing is believed of it.
    pub(super) fn begin(&self, inode: InodeId) {
        if let Some(known) = self.known().get_mut(&inode.number) {
            known.changes += 1;
        }
    }

    pub(super) fn end(&self, inode: InodeId) {
        if let Some(known) = self.known().get_mut(&inode.number) {
            // It may have been forgotten meanwhile, and be known anew.
            known.changes = known.changes.saturating_sub(1);
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<u64, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base::{Epoch, NodeId};

    use super::*;

    fn id(number: u64, epoch: u64) -> InodeId {
        InodeId { number, epoch: Epoch { number: epoch, node: NodeId(1) } }
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
    fn what_may_be_believed_is_known_until_it_may_not() {
        let (inodes, inode) = (Inodes::default(), id(7, 3));
        let soon = clock::now() + Duration::from_secs(60);
        assert!(!inodes.believe(inode, soon), "the kernel does not have it yet");
        assert!(!inodes.entered(inode));
        assert!(inodes.believe(inode, soon));
        assert!(inodes.is_believed(inode));
        assert_eq!(inodes.all_believed(), [inode]);
        inodes.begin(inode);
        assert!(!inodes.believe(inode, soon), "it is being changed");
        inodes.end(inode);
        assert!(inodes.believe(inode, soon));
        inodes.forget(7, 1);
        assert!(!inodes.is_believed(inode));
        assert!(inodes.believe(InodeId::ROOT, soon), "it always has the root");
    }
}
