//! What happens next: events by true time, and in the order of their making where times are equal.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use crate::TrueTime;

/// The events to come.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Reverse<Entry<T>>>,
    sequence: u64,
}

#[derive(Debug)]
struct Entry<T> {
    at: TrueTime,
    sequence: u64,
    what: T,
}

impl<T> Queue<T> {
    pub(crate) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), sequence: 0 }
    }

    pub(crate) fn push(&mut self, at: TrueTime, what: T) {
        self.sequence += 1;
        self.heap.push(Reverse(Entry { at, sequence: self.sequence, what }));
    }

    /// Takes the next event that is due by `limit`.
    pub(crate) fn pop_until(&mut self, limit: TrueTime) -> Option<(TrueTime, T)> {
        if self.heap.peek()?.0.at > limit {
            return None;
        }
        let Reverse(entry) = self.heap.pop()?;
        Some((entry.at, entry.what))
    }
}

impl<T> Entry<T> {
    const fn key(&self) -> (TrueTime, u64) {
        (self.at, self.sequence)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_time_keep_the_order_of_their_making() {
        let mut queue = Queue::new();
        let at = TrueTime::from_micros;
        [(5, 'b'), (3, 'a'), (5, 'c'), (9, 'd')].map(|(time, what)| queue.push(at(time), what));
        let drained: Vec<char> = std::iter::from_fn(|| queue.pop_until(at(5))).map(|(_, what)| what).collect();
        assert_eq!(drained, ['a', 'b', 'c']);
        assert_eq!(queue.pop_until(at(8)), None);
        assert_eq!(queue.pop_until(at(9)), Some((at(9), 'd')));
    }
}
