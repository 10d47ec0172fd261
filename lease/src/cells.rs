//! Something for each of millions of cells: a slab of entries and a small index over it.
//!
//! The index holds only slots; the key is in the entry. Slots stay put while an entry lives. The hash is seeded
//! but fixed, so that the same history gives the same slots; iteration is by slot and never by hash.
//!
//! Ids that were made together are used together, so the hash keeps neighbours together: with a million cells the
//! index no longer fits the processor's caches, and a miss costs more than everything else in a look-up.

use base::{ObjectId, mix};
use hashbrown::HashTable;

/// Entries per chunk: the slab grows by chunks, so a million entries cost no copy and no doubling.
const CHUNK: usize = 4096;

pub(crate) trait Entry {
    fn cell(&self) -> ObjectId;
}

#[derive(Clone, Debug)]
pub(crate) struct Cells<T> {
    index: HashTable<u32>,
    chunks: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    seed: u64,
}

impl<T: Entry> Cells<T> {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { index: HashTable::new(), chunks: Vec::new(), free: Vec::new(), seed }
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// How many slots there are, used or not.
    pub(crate) fn slots(&self) -> u32 {
        let used = self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK + last.len());
        u32::try_from(used).expect("inserting checks that slots fit 32 bits")
    }

    pub(crate) fn find(&self, cell: ObjectId) -> Option<u32> {
        self.index.find(self.hash(cell), |&slot| self.at(slot).is_some_and(|e| e.cell() == cell)).copied()
    }

    /// The entry in `slot`, if it is used.
    pub(crate) fn at(&self, slot: u32) -> Option<&T> {
        self.chunks.get(slot as usize / CHUNK)?.get(slot as usize % CHUNK)?.as_ref()
    }

    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.chunks.get_mut(slot as usize / CHUNK)?.get_mut(slot as usize % CHUNK)?.as_mut()
    }

    /// Adds an entry for a cell that has none.
    pub(crate) fn insert(&mut self, entry: T) -> u32 {
        let cell = entry.cell();
        let slot = match self.free.pop() {
            Some(slot) => {
                self.chunks[slot as usize / CHUNK][slot as usize % CHUNK] = Some(entry);
                slot
            }
            None => self.push(entry),
        };
        let (chunks, seed) = (&self.chunks, self.seed);
        let hash_of = |&slot: &u32| {
            let entry = chunks[slot as usize / CHUNK][slot as usize % CHUNK].as_ref();
            entry.map_or(0, |entry| hash(seed, entry.cell()))
        };
        self.index.insert_unique(hash(seed, cell), slot, hash_of);
        slot
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let entry = self.chunks.get_mut(slot as usize / CHUNK)?.get_mut(slot as usize % CHUNK)?.take()?;
        if let Ok(found) = self.index.find_entry(hash(self.seed, entry.cell()), |&other| other == slot) {
            found.remove();
        }
        self.free.push(slot);
        if self.index.is_empty() {
            self.clear();
        }
        Some(entry)
    }

    /// The entries in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten().flatten()
    }

    fn push(&mut self, entry: T) -> u32 {
        let slot = self.slots();
        assert!(slot < u32::MAX, "the limits on registers and claims keep slots within 32 bits");
        if slot as usize == self.chunks.len() * CHUNK {
            // The first chunk grows as it fills, so that small nodes (and models of nodes) stay small.
            let capacity = if self.chunks.is_empty() { 1 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(capacity));
        }
        let last = self.chunks.len() - 1;
        self.chunks[last].push(Some(entry));
        slot
    }

    /// Memory follows the number of live entries.
    fn clear(&mut self) {
        *self = Self::new(self.seed);
    }

    fn hash(&self, cell: ObjectId) -> u64 {
        hash(self.seed, cell)
    }
}

/// 16 consecutive ids share a stretch of 64 places, whose control bytes are one cache line, at every fourth place. A
/// stretch that is filled without gaps would be as cheap to find, but two on the same place push each other far
/// away. The top bits, by which the index tells entries apart before it looks at them, depend on the whole id.
fn hash(seed: u64, cell: ObjectId) -> u64 {
    const TAG: u64 = 0xffff << 48;
    const WITHIN_STRETCH: u64 = 63;
    let high = mix(cell.high ^ seed);
    let own = mix(!high ^ cell.low);
    let stretch = mix(high ^ (cell.low >> 4)) & !(TAG | WITHIN_STRETCH);
    own & TAG | stretch | (cell.low & 15) << 2 | own & 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Plain(u64);

    impl Entry for Plain {
        fn cell(&self) -> ObjectId {
            ObjectId::new(0, self.0)
        }
    }

    #[test]
    fn entries_are_found_until_removed() {
        let mut cells = Cells::new(1);
        let slots: Vec<u32> = (0..10_000).map(|n| cells.insert(Plain(n))).collect();
        for (n, &slot) in (0..).zip(&slots) {
            assert_eq!(cells.find(ObjectId::new(0, n)), Some(slot));
        }
        assert_eq!(cells.remove(slots[17]), Some(Plain(17)));
        assert_eq!((cells.find(ObjectId::new(0, 17)), cells.len()), (None, 9_999));
        assert_eq!(cells.insert(Plain(10_000)), slots[17], "free slots are used first");
        assert_eq!(cells.iter().count(), 10_000);
        assert_eq!((cells.slots(), cells.at(99_999)), (10_000, None));
    }
}
