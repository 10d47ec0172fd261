//! What the logs of all files of a shard weigh together. Each replica bounds its own; of many files that were written once,
//! those that changed longest ago give theirs up, and who lags behind there takes over a state.

use std::collections::BTreeMap;

use base::ObjectId;

/// How many logs are looked at when they are too much: what is being written, or lent, stays as it is.
const LOOKED_AT_MAX: usize = 64;

/// The weights of logs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs {
    bytes: u64,
    /// When each log changed, counted, and what it weighs.
    each: BTreeMap<ObjectId, (u64, u64)>,
    by_age: BTreeMap<u64, ObjectId>,
    changes: u64,
}

impl Logs {
    /// A log may have changed: this is what it weighs.
    pub(crate) fn note(&mut self, object: ObjectId, bytes: u64) {
        if self.each.get(&object).is_none_or(|&(_, before)| before != bytes) {
            self.renew(object, bytes);
        }
    }

    /// It counts as changed, so that the others have their turn before it.
    pub(crate) fn renew(&mut self, object: ObjectId, bytes: u64) {
        if let Some(&(change, before)) = self.each.get(&object) {
            self.by_age.remove(&change);
            self.bytes -= before;
        }
        if bytes == 0 {
            self.each.remove(&object);
            return;
        }
        self.changes += 1;
        self.each.insert(object, (self.changes, bytes));
        self.by_age.insert(self.changes, object);
        self.bytes += bytes;
    }

    /// The logs that are too much, if all may weigh so much: those that changed longest ago, in order, as long as it takes.
    pub(crate) fn beyond(&self, bytes_max: u64) -> Vec<ObjectId> {
        let mut left = self.bytes;
        let is_needed = |object: &ObjectId| {
            let is_needed = left > bytes_max;
            left -= self.each.get(object).map_or(0, |&(_, bytes)| bytes);
            is_needed
        };
        self.by_age.values().copied().take(LOOKED_AT_MAX).take_while(is_needed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn file(low: u64) -> ObjectId {
        ObjectId::new(1, low)
    }

    #[test]
    fn what_changed_longest_ago_goes_first() {
        let mut logs = Logs::default();
        [(1, 100), (2, 200), (3, 300), (1, 150)]
            .into_iter()
            .for_each(|(low, bytes)| logs.note(file(low), bytes));
        assert_eq!(logs.beyond(650), []);
        assert_eq!(logs.beyond(649), [file(2)]);
        assert_eq!(logs.beyond(449), [file(2), file(3)]);
        logs.note(file(2), 200);
        assert_eq!(logs.beyond(649), [file(2)], "it has not changed");
        logs.note(file(2), 0);
        assert_eq!((logs.bytes, logs.beyond(100)), (450, vec![file(3), file(1)]));
        logs.renew(file(3), 300);
        assert_eq!(logs.beyond(300), [file(1)], "the other one gave up nothing in its turn");
        logs.note(file(3), 0);
        logs.note(file(1), 0);
        assert_eq!((logs.bytes, logs.beyond(0)), (0, vec![]));
    }
}
