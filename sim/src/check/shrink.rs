//! What to show of a history that has no order.
//!
//! The *culprit* is the first operation to return that no order can pass. What was called after its return has no part in it
//! and goes. Then as much as possible goes of the rest. Less is not always easier to understand: without a write, a read of
//! it looks as if it came from nowhere. So what is left must
//!
//! - have no order, as the whole has none;
//! - have one without the culprit: all the others explain each other;
//! - have one if the culprit could take effect at any time, if that is so for the whole: a stale read still finds what it read.

use super::search::{Entry, Found, search};
use super::{Moment, Specification};

/// How far to look back, in operations.
const WINDOWS: [usize; 4] = [16, 64, 256, 512];

struct Shrink<'a, 's, S: Specification> {
    spec: &'a S,
    culprit: usize,
    steps: &'s mut u64,
    /// What one attempt may cost: with less in it, a history may be harder to judge.
    steps_each: u64,
    /// Whether what is left has to have an order without the culprit, and with a culprit out of time.
    is_clean_without: bool,
    is_clean_stretched: bool,
}

/// The operations to show, `culprit` among them. Those whose outcome plays no role come without it.
pub(super) fn shrink<'a, S: Specification>(
    spec: &'a S,
    entries: &[Entry<'a, S>],
    culprit: usize,
    steps: &mut u64,
) -> Vec<Entry<'a, S>> {
    let Some(end) = entries.iter().find(|entry| entry.id == culprit).and_then(|entry| entry.returned) else {
        return entries.to_vec();
    };
    let mut kept: Vec<Entry<'a, S>> = entries.iter().copied().filter(|entry| entry.called <= end.0).collect();
    kept.sort_by_key(|entry| (entry.called, entry.id));
    let steps_each = *steps / 10;
    let mut shrink =
        Shrink { spec, culprit, steps, steps_each, is_clean_without: false, is_clean_stretched: false };
    shrink.forget_later(&mut kept, end.0);
    shrink.is_clean_without = shrink.has_order(&shrink.without(&kept));
    shrink.is_clean_stretched = shrink.has_order(&shrink.stretched(&kept));
    if let Some(recent) = shrink.recent(&kept) {
        kept = recent;
    }
    shrink.drop_some(&mut kept, |entry| spec.is_query(entry.op));
    // Without one, another may not be needed any more.
    let mut before = usize::MAX;
    while kept.len() < before {
        before = kept.len();
        shrink.drop_some(&mut kept, |_| true);
    }
    kept
}

impl<'a, S: Specification> Shrink<'a, '_, S> {
    /// Forgets the outcomes of what returned after the culprit. An outcome less is a demand less, so if there is no order then,
    /// there is none.
    fn forget_later(&mut self, kept: &mut Vec<Entry<'a, S>>, end: Moment) {
        let is_later = |entry: &Entry<'a, S>| entry.returned.is_some_and(|(at, _)| at > end);
        let forget = |entry: &Entry<'a, S>| Entry { returned: None, ..*entry };
        let all: Vec<Entry<'a, S>> =
            kept.iter().map(|entry| if is_later(entry) { forget(entry) } else { *entry }).collect();
        if self.has_none(&all) {
            *kept = all;
            return;
        }
        for n in 0..kept.len() {
            if is_later(&kept[n]) {
                let mut fewer = kept.clone();
                fewer[n] = forget(&kept[n]);
                if self.has_none(&fewer) {
                    *kept = fewer;
                }
            }
        }
    }

    /// Only the last operations, if they show it: of these the ones that explain each other, changes first.
    fn recent(&mut self, kept: &[Entry<'a, S>]) -> Option<Vec<Entry<'a, S>>> {
        let culprit = *kept.iter().find(|entry| entry.id == self.culprit)?;
        for width in WINDOWS {
            let window = &kept[kept.len().saturating_sub(width)..];
            let (queries, changes): (Vec<&Entry<'a, S>>, Vec<&Entry<'a, S>>) = window
                .iter()
                .filter(|entry| entry.id != culprit.id)
                .partition(|entry| self.spec.is_query(entry.op));
            let mut few: Vec<Entry<'a, S>> = Vec::new();
            for entry in changes.into_iter().chain(queries) {
                few.push(*entry);
                if !self.has_order(&few) {
                    few.pop();
                }
            }
            few.push(culprit);
            few.sort_by_key(|entry| (entry.called, entry.id));
            if self.is_good(&few) {
                return Some(few);
            }
        }
        None
    }

    /// Drops what can go of those that `may_go` names, many at once as long as that works.
    fn drop_some(&mut self, kept: &mut Vec<Entry<'a, S>>, may_go: impl Fn(&Entry<'a, S>) -> bool) {
        let mut width = kept.len().div_ceil(2);
        while width > 0 {
            let mut start = 0;
            while start < kept.len() {
                let range = start..(start + width).min(kept.len());
                let stays = |(n, entry): &(usize, &Entry<'a, S>)| {
                    !range.contains(n) || entry.id == self.culprit || !may_go(entry)
                };
                let fewer: Vec<Entry<'a, S>> =
                    kept.iter().enumerate().filter(stays).map(|(_, entry)| *entry).collect();
                if fewer.len() < kept.len() && self.is_good(&fewer) {
                    *kept = fewer;
                } else {
                    start += width;
                }
            }
            width /= 2;
        }
    }

    fn is_good(&mut self, entries: &[Entry<'a, S>]) -> bool {
        self.has_none(entries)
            && (!self.is_clean_without || self.has_order(&self.without(entries)))
            && (!self.is_clean_stretched || self.has_order(&self.stretched(entries)))
    }

    fn has_none(&mut self, entries: &[Entry<'a, S>]) -> bool {
        matches!(self.search(entries), Found::Stuck(_))
    }

    fn has_order(&mut self, entries: &[Entry<'a, S>]) -> bool {
        self.search(entries) == Found::Order
    }

    fn search(&mut self, entries: &[Entry<'a, S>]) -> Found {
        let granted = self.steps_each.min(*self.steps);
        let mut left = granted;
        let found = search(self.spec, entries, &mut left);
        *self.steps -= granted - left;
        found
    }

    fn without(&self, entries: &[Entry<'a, S>]) -> Vec<Entry<'a, S>> {
        entries.iter().copied().filter(|entry| entry.id != self.culprit).collect()
    }

    /// As if the culprit had been under way all the time.
    fn stretched(&self, entries: &[Entry<'a, S>]) -> Vec<Entry<'a, S>> {
        let stretch = |entry: &Entry<'a, S>| match entry.returned {
            Some((_, outcome)) if entry.id == self.culprit => {
                Entry { called: Moment(0), returned: Some((Moment(u64::MAX), outcome)), ..*entry }
            }
            _ => *entry,
        };
        entries.iter().map(stretch).collect()
    }
}
