//! What the kernel has open, by the numbers that it refers to it with.
//!
//! There is no bound here: each entry stands for a description that some process has open, and the system bounds those.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::FsError;

/// Open files, or open directories.
pub(crate) struct Handles<T> {
    /// Held for moments only, and never while waiting.
    open: Mutex<Open<T>>,
}

struct Open<T> {
    by_number: BTreeMap<u64, Arc<T>>,
    next: u64,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { open: Mutex::new(Open { by_number: BTreeMap::new(), next: 1 }) }
    }
}

impl<T> Handles<T> {
    /// The number of what was opened just now. It is never used again.
    pub(super) fn enter(&self, opened: T) -> u64 {
        let mut open = self.open();
        let number = open.next;
        open.next += 1;
        open.by_number.insert(number, Arc::new(opened));
        number
    }

    pub(super) fn get(&self, number: u64) -> Result<Arc<T>, FsError> {
        self.open().by_number.get(&number).cloned().ok_or(FsError::NotOpen)
    }

    /// Some open one of a kind.
    pub(super) fn find(&self, is_wanted: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        self.open().by_number.values().find(|open| is_wanted(open)).cloned()
    }

    pub(super) fn leave(&self, number: u64) -> Option<Arc<T>> {
        self.open().by_number.remove(&number)
    }

    fn open(&self) -> MutexGuard<'_, Open<T>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
