//! What changes that are under way name, in one volume.

use std::collections::{BTreeMap, BTreeSet};

use namespace::{InodeId, Name};
use node::Named;

/// What is under way, and whether several changes were at once.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    count: u32,
    is_shared: bool,
}

/// What is named by changes that are under way.
#[derive(Debug, Default)]
pub(super) struct Busy {
    names: BTreeMap<InodeId, BTreeMap<Name, Count>>,
    inodes: BTreeMap<InodeId, Count>,
    rights: BTreeMap<InodeId, Count>,
    /// Directories in which this client has created or removed something by itself that is not entered yet.
    entering: BTreeMap<InodeId, u64>,
    /// Names that it has removed by itself.
    leaving: BTreeSet<(InodeId, Name)>,
}

/// What of a change nobody else has named meanwhile.
#[derive(Debug, Default)]
pub(super) struct Alone {
    pub(super) names: Vec<(InodeId, Name)>,
    pub(super) inodes: Vec<InodeId>,
}

impl Busy {
    pub(super) fn begin(&mut self, named: &Named) {
        for (dir, name) in &named.names {
            self.names.entry(*dir).or_default().entry(name.clone()).or_default().more();
        }
        named.inodes.iter().for_each(|inode| self.inodes.entry(*inode).or_default().more());
        named.rights.iter().for_each(|inode| self.rights.entry(*inode).or_default().more());
    }

    pub(super) fn end(&mut self, named: &Named) -> Alone {
        let mut alone = Alone::default();
        for (dir, name) in &named.names {
            let Some(names) = self.names.get_mut(dir) else { continue };
            if less(names, name) {
                alone.names.push((*dir, name.clone()));
            }
            if names.is_empty() {
                self.names.remove(dir);
            }
        }
        alone.inodes.extend(named.inodes.iter().copied().filter(|inode| less(&mut self.inodes, inode)));
        named.rights.iter().for_each(|inode| _ = less(&mut self.rights, inode));
        alone
    }

    pub(super) fn begin_entering(&mut self, dir: InodeId) {
        *self.entering.entry(dir).or_default() += 1;
    }

    pub(super) fn end_entering(&mut self, dir: InodeId) {
        if let Some(count) = self.entering.get_mut(&dir) {
            *count -= 1;
            if *count == 0 {
                self.entering.remove(&dir);
            }
        }
    }

    /// A name is removed here, or its volume knows that.
    pub(super) fn leave(&mut self, dir: InodeId, name: &Name, begins: bool) {
        if begins {
            self.leaving.insert((dir, name.clone()));
        } else {
            self.leaving.remove(&(dir, name.clone()));
        }
    }

    /// Whether its volume may not know yet that this client has removed a name.
    pub(super) fn is_leaving(&self, dir: InodeId, name: &Name) -> bool {
        !self.leaving.is_empty() && self.leaving.contains(&(dir, name.clone()))
    }

    /// Whether its volume may not know yet what this client has created or removed in a directory.
    pub(super) fn is_entering(&self, dir: InodeId) -> bool {
        !self.entering.is_empty() && self.entering.contains_key(&dir)
    }

    pub(super) fn has_name(&self, dir: InodeId, name: &Name) -> bool {
        !self.names.is_empty() && self.names.get(&dir).is_some_and(|names| names.contains_key(name))
    }

    pub(super) fn has_names_in(&self, dir: InodeId) -> bool {
        !self.names.is_empty() && self.names.contains_key(&dir)
    }

    pub(super) fn has_inode(&self, inode: InodeId) -> bool {
        !self.inodes.is_empty() && self.inodes.contains_key(&inode)
    }

    pub(super) fn has_rights(&self, inode: InodeId) -> bool {
        !self.rights.is_empty() && self.rights.contains_key(&inode)
    }
}

impl Count {
    const fn more(&mut self) {
        self.is_shared |= self.count > 0;
        self.count += 1;
    }
}

/// One change less. Whether it was the only one since there was none.
fn less<K: Ord>(counts: &mut BTreeMap<K, Count>, key: &K) -> bool {
    let Some(Count { count, is_shared }) = counts.get_mut(key) else { return false };
    *count -= 1;
    let (is_over, was_alone) = (*count == 0, !*is_shared);
    if is_over {
        counts.remove(key);
    }
    is_over && was_alone
}
