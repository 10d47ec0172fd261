//! Epoch numbers, and the mark on disk that they never fall behind.
//!
//! The mark (the *epoch ceiling*) is written ahead in blocks, above every number in use. After a start everything up
//! to it counts as used, so a node never promises or uses a number twice, whatever memory it lost.

/// How many numbers one write of the mark covers: a write every few minutes at the highest rates.
const BLOCK: u64 = 1 << 20;

/// The numbers of one node.
#[derive(Clone, Debug)]
pub(crate) struct Numbers {
    /// What a cell without a promise of its own counts as having promised.
    floor: u64,
    /// The highest number promised or used.
    used: u64,
    /// The mark on disk.
    durable: u64,
    /// The mark that is being written.
    asked: u64,
}

impl Numbers {
    /// Continues above the mark on disk, from which memory starts.
    pub(crate) const fn new(ceiling: u64, floor: u64) -> Self {
        Self { floor, used: floor, durable: ceiling, asked: ceiling }
    }

    /// What is promised for cells that this node keeps nothing about.
    pub(crate) const fn floor(&self) -> u64 {
        self.floor
    }

    /// Nothing is kept any longer about a cell that had promised `number`.
    pub(crate) fn forget(&mut self, number: u64) {
        self.floor = self.floor.max(number);
    }

    /// Takes `number` into use. True if it may be answered for at once; otherwise once the mark is durable.
    pub(crate) fn take(&mut self, number: u64) -> bool {
        self.used = self.used.max(number);
        number <= self.durable
    }

    /// The mark to write next, well before it is needed. Asked for once.
    pub(crate) fn poll_raise(&mut self) -> Option<u64> {
        if self.used.saturating_add(BLOCK / 2) <= self.asked {
            return None;
        }
        self.asked = self.used.saturating_add(BLOCK);
        Some(self.asked)
    }

    /// The mark is on disk.
    pub(crate) fn handle_durable(&mut self, mark: u64) {
        self.durable = self.durable.max(mark);
    }

    /// Whether `number` is covered by the mark on disk.
    pub(crate) const fn is_durable(&self, number: u64) -> bool {
        number <= self.durable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_raised_before_it_is_reached() {
        let mut numbers = Numbers::new(0, 0);
        let mark = numbers.poll_raise().unwrap();
        assert_eq!(numbers.poll_raise(), None, "asked for once");
        assert!(!numbers.take(1), "nothing is durable yet");
        numbers.handle_durable(mark);
        assert!(numbers.take(1) && numbers.is_durable(mark));
        assert_eq!(numbers.poll_raise(), None);
        assert!(numbers.take(mark - 10), "still covered");
        assert!(numbers.poll_raise().unwrap() > mark);
    }

    #[test]
    fn what_is_forgotten_stays_promised() {
        let mut numbers = Numbers::new(100, 100);
        numbers.forget(7);
        assert_eq!(numbers.floor(), 100);
        numbers.forget(107);
        assert_eq!(numbers.floor(), 107);
    }
}
