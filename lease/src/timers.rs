//! When claims want to be looked at again.
//!
//! A bucket per tick instead of an entry per timer: setting one costs the same with a thousand claims as with a
//! million. Nothing is ever cancelled; who wakes too early goes back to sleep.

use std::collections::BTreeMap;

use base::{Span, WallTime};

#[derive(Clone, Debug)]
pub(crate) struct Timers {
    tick: Span,
    buckets: BTreeMap<u64, Vec<u32>>,
}

impl Timers {
    pub(crate) const fn new(tick: Span) -> Self {
        Self { tick, buckets: BTreeMap::new() }
    }

    /// Wakes `slot` at `at`, up to one tick late.
    pub(crate) fn set(&mut self, slot: u32, at: WallTime) {
        let bucket = at.as_micros().div_ceil(self.tick.as_micros());
        self.buckets.entry(bucket).or_default().push(slot);
    }

    pub(crate) fn next(&self) -> Option<WallTime> {
        let (&bucket, _) = self.buckets.first_key_value()?;
        Some(WallTime::from_micros(bucket.saturating_mul(self.tick.as_micros())))
    }

    /// Takes the earliest bucket that is due.
    pub(crate) fn pop_due(&mut self, now: WallTime) -> Option<Vec<u32>> {
        let first = self.buckets.first_entry()?;
        (*first.key() <= now.as_micros() / self.tick.as_micros()).then(|| first.remove())
    }
}
