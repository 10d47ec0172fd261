//! What happens next: events by true time, and in the order of their making where times are equal.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::TrueTime;

/// The events to come.
///
/// The heap holds only times and places: sifting moves 24 bytes however large an event is.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Reverse<Entry>>,
    events: Vec<Option<T>>,
    free: Vec<usize>,
    sequence: u64,
}

/// Ordered by time, then by the order of making; the sequence is unique, so the place never decides.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Entry {
    at: TrueTime,
    sequence: u64,
    place: usize,
}

impl<T> Queue<T> {
    pub(crate) const fn new() -> Self {
        Self { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), sequence: 0 }
    }

    pub(crate) fn push(&mut self, at: TrueTime, what: T) {
        self.sequence += 1;
        let place = self.free.pop().unwrap_or(self.events.len());
        match self.events.get_mut(place) {
            Some(event) => *event = Some(what),
            None => self.events.push(Some(what)),
        }
        self.heap.push(Reverse(Entry { at, sequence: self.sequence, place }));
    }

    /// Takes the next event that is due by `limit`.
    pub(crate) fn pop_until(&mut self, limit: TrueTime) -> Option<(TrueTime, T)> {
        if self.heap.peek()?.0.at > limit {
            return None;
        }
        let Reverse(Entry { at, place, .. }) = self.heap.pop()?;
        self.free.push(place);
        Some((at, self.events[place].take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_time_keep_the_order_of_their_making() {
        let mut queue = Queue::new();
        let at = TrueTime::from_micros;
        for (time, what) in [(5, 'b'), (3, 'a'), (5, 'c'), (9, 'd')] {
            queue.push(at(time), what);
        }
        let drained: Vec<char> =
            std::iter::from_fn(|| queue.pop_until(at(5))).map(|(_, what)| what).collect();
        assert_eq!(drained, ['a', 'b', 'c']);
        assert_eq!(queue.pop_until(at(8)), None);
        assert_eq!(queue.pop_until(at(9)), Some((at(9), 'd')));
    }
}
