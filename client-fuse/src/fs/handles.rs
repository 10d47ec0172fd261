//! What the kernel has open, by the numbers that it refers to it with.
//!
//! There is no bound here: each entry stands for a description that some process has open, and the system bounds those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use namespace::InodeId;

use super::FsError;

/// What can be open.
pub(super) trait Opens {
    /// Which inode it is.
    fn inode(&self) -> InodeId;
}

/// Open files, or open directories.
pub(crate) struct Handles<T> {
    /// Held for moments only, and never while waiting.
    open: Mutex<Open<T>>,
}

struct Open<T> {
    by_number: BTreeMap<u64, Arc<T>>,
    by_inode: BTreeMap<InodeId, BTreeSet<u64>>,
    next: u64,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { open: Mutex::new(Open { by_number: BTreeMap::new(), by_inode: BTreeMap::new(), next: 1 }) }
    }
}

impl<T: Opens> Handles<T> {
    /// The number of what was opened just now. It is never used again.
    pub(super) fn enter(&self, opened: T) -> u64 {
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        open.by_inode.entry(opened.inode()).or_default().insert(number);
        open.by_number.insert(number, Arc::new(opened));
        number
    }

    pub(super) fn get(&self, number: u64) -> Result<Arc<T>, FsError> {
        self.open().by_number.get(&number).cloned().ok_or(FsError::NotOpen)
    }

    /// Some open one of an inode.
    pub(super) fn find(&self, inode: InodeId) -> Option<Arc<T>> {
        let open = self.open();
        let number = open.by_inode.get(&inode)?.first()?;
        open.by_number.get(number).cloned()
    }

    /// All open ones of an inode.
    pub(super) fn of(&self, inode: InodeId) -> Vec<Arc<T>> {
        let open = self.open();
        let numbers = open.by_inode.get(&inode).into_iter().flatten();
        numbers.filter_map(|number| open.by_number.get(number).cloned()).collect()
    }

    pub(super) fn all(&self) -> Vec<Arc<T>> {
        self.open().by_number.values().cloned().collect()
    }

    pub(super) fn leave(&self, number: u64) -> Option<Arc<T>> {
        let mut open = self.open();
        let left = open.by_number.remove(&number)?;
        let numbers = open.by_inode.get_mut(&left.inode()).expect("what is open is known by its inode");
        assert!(numbers.remove(&number), "by all numbers that it has");
        if numbers.is_empty() {
            open.by_inode.remove(&left.inode());
        }
        Some(left)
    }

    fn open(&self) -> MutexGuard<'_, Open<T>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, NodeId};

    use super::*;

    #[derive(PartialEq, Debug)]
    struct Of(InodeId, u8);

    impl Opens for Of {
        fn inode(&self) -> InodeId {
            self.0
        }
    }

    #[test]
    fn what_is_open_is_found_by_its_number_and_by_its_inode() {
        let [a, b] = [7, 8].map(|number| InodeId { number, epoch: Epoch { number: 1, node: NodeId(1) } });
        let handles = Handles::default();
        let [first, second, third] = [Of(a, 1), Of(a, 2), Of(b, 3)].map(|opened| handles.enter(opened));
        assert_eq!(*handles.get(second).unwrap(), Of(a, 2));
        assert_eq!(handles.of(a).len(), 2);
        assert_eq!(*handles.find(b).unwrap(), Of(b, 3));
        handles.leave(third);
        assert!(handles.find(b).is_none() && handles.get(third).is_err());
        handles.leave(first);
        assert_eq!(*handles.find(a).unwrap(), Of(a, 2));
        assert!(handles.leave(first).is_none());
    }
}
