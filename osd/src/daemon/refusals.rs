//! Callers that were not let in, in the log: each with its reason as long as they are few, and then their number.
//!
//! Whoever can send a packet can be refused. With a line for each of them, strangers could push everything else out
//! of the log, which is bounded.

use base::{Span, WallTime};

/// How many of a period are told one by one.
const TOLD_MAX: u64 = 10;
/// After this the next ones are told again.
const PERIOD: Span = Span::from_secs(10);

/// The refusals of the present period.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    began: WallTime,
    count: u64,
}

impl Refusals {
    /// Counts one, and says whether it is to be told.
    pub(super) fn add(&mut self, now: WallTime) -> bool {
        if self.count == 0 {
            self.began = now;
        }
        self.count += 1;
        self.count <= TOLD_MAX
    }

    /// When the period is over: how many of it were not told, if any, once.
    pub(super) fn untold(&mut self, now: WallTime) -> Option<u64> {
        if now.since(self.began) < PERIOD {
            return None;
        }
        let untold = self.count.saturating_sub(TOLD_MAX);
        self.count = 0;
        (untold > 0).then_some(untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: WallTime = WallTime::from_micros(1_000_000_000);

    #[test]
    fn few_are_told_one_by_one() {
        let mut refusals = Refusals::default();
        for round in 0..5 {
            let now = START + PERIOD * round;
            assert_eq!(refusals.untold(now), None);
            assert!((0..TOLD_MAX).all(|_| refusals.add(now)));
        }
    }

    #[test]
    fn of_many_the_number_is_told() {
        let mut refusals = Refusals::default();
        let told = (0..1_000).filter(|_| refusals.add(START)).count();
        assert_eq!(told as u64, TOLD_MAX);
        assert_eq!(refusals.untold(START + Span::from_secs(9)), None, "the period goes on");
        assert_eq!(refusals.untold(START + PERIOD), Some(1_000 - TOLD_MAX));
        assert_eq!(refusals.untold(START + PERIOD * 2), None, "told once");
        assert!(refusals.add(START + PERIOD * 2), "the next ones are told again");
    }
}
