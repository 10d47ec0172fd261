//! Where the state is: an ordered table of parts, and the one in memory.

use std::ops::Bound;
use std::sync::Arc;

use crate::sorted::Sorted;
use crate::{Born, Inode, InodeId, Key, Part};

/// What a tree needs of whoever keeps its parts.
pub trait Table {
    /// A part, and the entry that changed it last.
    fn get(&self, key: &Key) -> Option<(Born, Part)>;

    /// Puts a part into place.
    fn put(&mut self, key: Key, at: Born, part: Part);

    /// Takes a part away, if there is one.
    fn remove(&mut self, key: &Key);

    /// The parts from a key on in order, as many as `parts_max`.
    fn page(&self, from: Bound<&Key>, parts_max: usize) -> Vec<(Key, Born, Part)>;

    /// The same without what is in them.
    fn versions(&self, from: Bound<&Key>, parts_max: usize) -> Vec<(Key, Born)> {
        self.page(from, parts_max).into_iter().map(|(key, at, _)| (key, at)).collect()
    }
}

/// A table in memory. Clones share what is in it until it is changed.
///
/// Inodes stand apart, as they are the most, but for names, and their keys the shortest. They are first in order.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    inodes: Sorted<InodeId, (Born, Arc<Inode>)>,
    others: Sorted<Key, (Born, Part)>,
}

impl Memory {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty() && self.others.is_empty()
    }

    fn range<'s>(&'s self, from: Bound<&'s Key>) -> impl Iterator<Item = (Key, Born, Part)> + 's {
        let (inodes, others) = match from {
            Bound::Included(Key::Inode(inode)) => (Some(Bound::Included(inode)), Bound::Unbounded),
            Bound::Excluded(Key::Inode(inode)) => (Some(Bound::Excluded(inode)), Bound::Unbounded),
            Bound::Unbounded => (Some(Bound::Unbounded), Bound::Unbounded),
            Bound::Included(_) | Bound::Excluded(_) => (None, from),
        };
        let inodes = inodes.into_iter().flat_map(|from| self.inodes.range(from));
        let inodes =
            inodes.map(|(inode, (at, part))| (Key::Inode(*inode), *at, Part::Inode(Arc::clone(part))));
        inodes.chain(self.others.range(others).map(|(key, (at, part))| (key.clone(), *at, part.clone())))
    }
}

impl Table for Memory {
    fn get(&self, key: &Key) -> Option<(Born, Part)> {
        match key {
            Key::Inode(inode) => {
                self.inodes.get(inode).map(|(at, part)| (*at, Part::Inode(Arc::clone(part))))
            }
            _ => self.others.get(key).cloned(),
        }
    }

    fn put(&mut self, key: Key, at: Born, part: Part) {
        match (key, part) {
            (Key::Inode(inode), Part::Inode(part)) => self.inodes.insert(inode, (at, part)),
            (key, part) => {
                assert!(part.is_of(&key), "{key:?} is something else than {part:?}");
                self.others.insert(key, (at, part))
            }
        };
    }

    fn remove(&mut self, key: &Key) {
        match key {
            Key::Inode(inode) => self.inodes.remove(inode),
            _ => self.others.remove(key),
        };
    }

    fn page(&self, from: Bound<&Key>, parts_max: usize) -> Vec<(Key, Born, Part)> {
        self.range(from).take(parts_max).collect()
    }
}

impl PartialEq for Memory {
    fn eq(&self, other: &Self) -> bool {
        self.range(Bound::Unbounded).eq(other.range(Bound::Unbounded))
    }
}

impl Eq for Memory {}
