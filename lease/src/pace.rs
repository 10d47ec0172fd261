//! How many renewals may be under way.
//!
//! Leases that were taken together come up for renewal together. A renewal that waits for others' messages longer than an
//! attempt waits for answers is made again, and so adds to what it waits for: a node whose work is twice what it can do
//! in that time would end up doing nothing else. So only so many begin before others are answered.
//!
//! Nothing depends on every end being noted here: what is not answered in time is over, and so after that time all may begin.

use base::{Span, WallTime};

#[derive(Clone, Debug)]
pub(crate) struct Pace {
    max: usize,
    left: usize,
    /// When nothing that is under way now can be any more.
    renewed_at: WallTime,
}

impl Pace {
    pub(crate) const fn new(max: usize) -> Self {
        Self { max, left: max, renewed_at: WallTime::ZERO }
    }

    /// Whether one more may begin, which then waits for `patience`.
    pub(crate) fn take(&mut self, now: WallTime, patience: Span) -> bool {
        // A clock that stepped back must not make this longer.
        if now >= self.renewed_at || self.renewed_at > now + patience {
            (self.left, self.renewed_at) = (self.max, now + patience);
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }

    /// One has ended.
    pub(crate) fn give_back(&mut self) {
        self.left = self.max.min(self.left + 1);
    }

    /// From when on [`take`](Self::take) says yes.
    pub(crate) const fn ready_at(&self) -> WallTime {
        if self.left > 0 { WallTime::ZERO } else { self.renewed_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Span = Span::from_millis(100);

    #[test]
    fn so_many_begin_until_one_ends_or_all_are_over() {
        let now = WallTime::from_micros(7_000_000);
        let mut pace = Pace::new(2);
        assert_eq!([0; 3].map(|_| pace.take(now, PATIENCE)), [true, true, false]);
        assert_eq!(pace.ready_at(), now + PATIENCE);
        pace.give_back();
        assert_eq!(pace.ready_at(), WallTime::ZERO);
        assert_eq!([0; 2].map(|_| pace.take(now, PATIENCE)), [true, false]);
        let later = now + PATIENCE;
        assert_eq!([0; 3].map(|_| pace.take(later, PATIENCE)), [true, true, false]);
        (0..5).for_each(|_| pace.give_back());
        assert_eq!([0; 3].map(|_| pace.take(later, PATIENCE)), [true, true, false], "no more than there are");
        assert!(pace.take(later - Span::from_secs(1), PATIENCE), "a clock that stepped back");
    }
}
