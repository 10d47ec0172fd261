//! A directory tree as what a file has in place of chunks, and which of its parts were changed.

use std::collections::BTreeSet;
use std::ops::Bound;

use namespace::{Born, Key, Memory, Part, Table, Tree};
use replication::Position;

use crate::{Bug, Rules};

/// So many parts are taken away at a time.
const CLEARED_MAX: usize = 1_024;

/// The tree of a volume. Clones share what is in it until it is changed.
pub type Names = Tree<Parts>;

/// The parts of a tree, in memory. What was changed since somebody asked is no part of the state.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    memory: Memory,
    changed: BTreeSet<Key>,
    rules: Rules,
}

impl PartialEq for Parts {
    fn eq(&self, other: &Self) -> bool {
        self.memory == other.memory
    }
}

impl Eq for Parts {}

impl Parts {
    pub(super) const fn rules(&self) -> Rules {
        self.rules
    }

    /// From now on these rules are in force.
    pub(super) const fn keep_to(&mut self, rules: Rules) {
        self.rules = rules;
    }

    pub(super) fn breaks(&self, bug: Bug) -> bool {
        self.rules.breaks(bug)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.memory.is_empty()
    }

    /// Takes all parts away.
    pub(super) fn clear(&mut self) {
        while let page = self.memory.versions(Bound::Unbounded, CLEARED_MAX)
            && !page.is_empty()
        {
            page.iter().for_each(|(key, _)| self.remove(key));
        }
    }

    /// Which parts were changed or taken away since this was called last.
    pub(super) fn take_changed(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.changed)
    }

    /// What was taken is to be taken again.
    pub(super) fn note_changed(&mut self, changed: BTreeSet<Key>) {
        self.changed.extend(changed);
    }
}

impl Table for Parts {
    fn get(&self, key: &Key) -> Option<(Born, Part)> {
        self.memory.get(key)
    }

    fn put(&mut self, key: Key, at: Born, part: Part) {
        self.changed.insert(key.clone());
        self.memory.put(key, at, part);
    }

    fn remove(&mut self, key: &Key) {
        self.changed.insert(key.clone());
        self.memory.remove(key);
    }

    fn page(&self, from: Bound<&Key>, parts_max: usize) -> Vec<(Key, Born, Part)> {
        self.memory.page(from, parts_max)
    }

    fn versions(&self, from: Bound<&Key>, parts_max: usize) -> Vec<(Key, Born)> {
        self.memory.versions(from, parts_max)
    }
}

/// An entry's place, as a tree names what comes of it.
pub(super) const fn born(at: Position) -> Born {
    Born { epoch: at.epoch, seq: at.seq }
}

/// The other way.
pub(super) const fn position(at: Born) -> Position {
    Position { epoch: at.epoch, seq: at.seq }
}
