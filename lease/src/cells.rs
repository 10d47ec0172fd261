//! Something for each of millions of cells: a slab of entries and a small index over it.
//!
//! The index holds only slots; the key is in the entry. Slots stay put while an entry lives. The hash is seeded
//! but fixed, so that the same history gives the same slots; iteration is by slot and never by hash.
//!
//! Ids that were made together are used together, so the hash keeps neighbours together: with a million cells the
//! index no longer fits the processor's caches, and a miss costs more than everything else in a look-up. For the same
//! reason whoever has many cells to look up says so first: a processor waits for several misses at a time if nothing
//! lies between them.

use std::hint::black_box;

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
    chunks: Vec<Chunk<T>>,
    free: Vec<u32>,
    slots: u32,
    seed: u64,
}

#[derive(Clone, Debug)]
struct Chunk<T> {
    /// Empty while no entry of the chunk is used.
    entries: Vec<Option<T>>,
    used: usize,
}

impl<T: Entry> Cells<T> {
    pub(crate) const fn new(seed: u64) -> Self {
        Self { index: HashTable::new(), chunks: Vec::new(), free: Vec::new(), slots: 0, seed }
    }

    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// How many slots there are, used or not.
    pub(crate) const fn slots(&self) -> u32 {
        self.slots
    }

    pub(crate) fn find(&self, cell: ObjectId) -> Option<u32> {
        let is_it = |&slot: &u32| self.at(slot).is_some_and(|entry| entry.cell() == cell);
        self.index.find(hash(self.seed, cell), is_it).copied()
    }

    /// Looks for cells that are about to be looked up one by one, so that what must come from memory comes at once.
    pub(crate) fn fetch(&self, cells: impl Iterator<Item = ObjectId>) {
        for cell in cells {
            // The answer is of no use, but must not be left out for that.
            black_box(self.find(cell));
        }
    }

    /// The entry in `slot`, if it is used.
    pub(crate) fn at(&self, slot: u32) -> Option<&T> {
        self.chunks.get(slot as usize / CHUNK)?.entries.get(slot as usize % CHUNK)?.as_ref()
    }

    pub(crate) fn at_mut(&mut self, slot: u32) -> Option<&mut T> {
        self.chunks.get_mut(slot as usize / CHUNK)?.entries.get_mut(slot as usize % CHUNK)?.as_mut()
    }

    /// Adds an entry for a cell that has none.
    pub(crate) fn insert(&mut self, entry: T) -> u32 {
        let cell = entry.cell();
        let slot = self.free.pop().unwrap_or_else(|| self.add_slot());
        let chunk = &mut self.chunks[slot as usize / CHUNK];
        if chunk.entries.is_empty() {
            chunk.entries.resize_with(CHUNK, || None);
        }
        chunk.used += 1;
        chunk.entries[slot as usize % CHUNK] = Some(entry);
        if self.index.len() == self.index.capacity() {
            // Half as much again, rounded up to a power of two: twice as much, or less if places of removed entries
            // are what filled it.
            self.rebuild_index(self.index.len() * 3 / 2 + 1);
        } else {
            let (chunks, seed) = (&self.chunks, self.seed);
            self.index.insert_unique(hash(seed, cell), slot, |&slot| hash_at(chunks, seed, slot));
        }
        slot
    }

    pub(crate) fn remove(&mut self, slot: u32) -> Option<T> {
        let chunk = self.chunks.get_mut(slot as usize / CHUNK)?;
        let entry = chunk.entries.get_mut(slot as usize % CHUNK)?.take()?;
        chunk.used -= 1;
        if chunk.used == 0 && chunk.entries.len() == CHUNK {
            chunk.entries = Vec::new();
        }
        if let Ok(found) = self.index.find_entry(hash(self.seed, entry.cell()), |&other| other == slot) {
            found.remove();
        }
        self.free.push(slot);
        self.shrink();
        Some(entry)
    }

    /// The same without entries.
    pub(crate) const fn emptied(&self) -> Self {
        Self::new(self.seed)
    }

    /// The entries in the order of their slots.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| &chunk.entries).flatten()
    }

    fn add_slot(&mut self) -> u32 {
        let slot = self.slots;
        assert!(slot < u32::MAX, "the limits on registers and claims keep slots within 32 bits");
        self.slots += 1;
        if slot as usize == self.chunks.len() * CHUNK {
            // The first chunk grows as it fills, so that small nodes (and models of nodes) stay small.
            let capacity = if self.chunks.is_empty() { 1 } else { CHUNK };
            self.chunks.push(Chunk { entries: Vec::with_capacity(capacity), used: 0 });
        }
        self.chunks[slot as usize / CHUNK].entries.push(None);
        slot
    }

    /// Memory follows the number of live entries: chunks go when they are empty, the index when it is mostly empty.
    fn shrink(&mut self) {
        if self.index.is_empty() {
            *self = self.emptied();
        } else if self.index.capacity() > CHUNK && self.index.len() * 8 < self.index.capacity() {
            self.rebuild_index(self.index.len() * 2);
        }
    }

    /// An index with room for `capacity`. The entries are walked in the order they lie in memory: growing in place goes
    /// by the order of hashes and misses the cache for each, which stops a daemon for a tenth of a second at a million.
    fn rebuild_index(&mut self, capacity: usize) {
        let mut index = HashTable::with_capacity(capacity);
        let (chunks, seed) = (&self.chunks, self.seed);
        for (first, chunk) in (0..).step_by(CHUNK).zip(chunks) {
            for (slot, entry) in (first..).zip(&chunk.entries) {
                if let Some(entry) = entry {
                    index.insert_unique(hash(seed, entry.cell()), slot, |&slot| hash_at(chunks, seed, slot));
                }
            }
        }
        self.index = index;
    }
}

fn hash_at<T: Entry>(chunks: &[Chunk<T>], seed: u64, slot: u32) -> u64 {
    let entry = chunks[slot as usize / CHUNK].entries[slot as usize % CHUNK].as_ref();
    entry.map_or(0, |entry| hash(seed, entry.cell()))
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

    #[test]
    fn memory_follows_the_live_entries() {
        let mut cells = Cells::new(1);
        let slots: Vec<u32> = (0..50_000).map(|n| cells.insert(Plain(n))).collect();
        slots.iter().filter(|&&slot| slot != 49_999).for_each(|&slot| assert!(cells.remove(slot).is_some()));
        let kept = |cells: &Cells<Plain>| -> usize { cells.chunks.iter().map(|c| c.entries.len()).sum() };
        assert!(kept(&cells) <= CHUNK && cells.index.capacity() <= 2 * CHUNK, "one entry keeps one chunk");
        assert_eq!(cells.find(ObjectId::new(0, 49_999)), Some(49_999));
        for n in 50_000..120_000 {
            cells.insert(Plain(n));
        }
        assert!((49_999..120_000).all(|n| cells.find(ObjectId::new(0, n)).is_some()));
        assert_eq!(cells.iter().count(), 70_001);
    }
}
