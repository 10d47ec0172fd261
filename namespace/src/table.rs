//! Where the state is: an ordered table of parts, and the one in memory.

use std::ops::Bound;

use crate::{Born, Key, Part};

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
}
