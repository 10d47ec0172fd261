//! What a member keeps about locks for whoever owns them: promises and records, in memory only.
//!
//! Losing them with the process is safe: numbers survive on disk ([`Numbers`]), votes for leases are silent until no
//! client can still believe in a grant, and a member that may have forgotten a grant says so.

use std::collections::BTreeMap;
use std::ops::Bound;

use base::{Epoch, Incarnation, NodeId, ObjectId, Process, WallTime};

use crate::Record;
use crate::numbers::Numbers;

/// Promises and records.
#[derive(Clone, Debug)]
pub(crate) struct Keeper {
    kept: BTreeMap<ObjectId, Kept>,
    pub(crate) numbers: Numbers,
    /// Which processes have had this one know of all that they granted.
    caught_up: BTreeMap<NodeId, Incarnation>,
    /// A process of a store that never ran before has nothing to forget.
    is_first: bool,
    kept_max: usize,
    /// Where the sweep goes on.
    swept: ObjectId,
}

/// What is kept about one lock.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) promised: Epoch,
    /// The run of the node that was promised: a number that was not on its disk when it died must not serve twice.
    promised_to: Incarnation,
    pub(crate) record: Option<Record>,
    /// A record that was refused: whoever asks must not believe that this member knows all.
    pub(crate) missed: Option<Record>,
    /// When it last changed, or somebody stood behind it.
    pub(crate) touched: WallTime,
}

/// Why a member does not do what it is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
    /// It promised this number, or a higher one, to another tenure.
    Promised(u64),
    /// Its limit is reached.
    Full,
}

impl Kept {
    /// The record by which somebody may hold the lock.
    pub(crate) fn uncertain(&self) -> Option<Record> {
        self.missed.or(self.record.filter(|record| record.grant.is_some()))
    }
}

impl Keeper {
    pub(crate) const fn new(numbers: Numbers, is_first: bool, kept_max: usize) -> Self {
        let swept = ObjectId::new(0, 0);
        Self { kept: BTreeMap::new(), numbers, caught_up: BTreeMap::new(), is_first, kept_max, swept }
    }

    /// How many locks something is kept about.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// The latest record here.
    pub(crate) fn record(&self, cell: ObjectId) -> Option<Record> {
        self.kept.get(&cell)?.record
    }

    /// The record here by which somebody may hold the lock.
    pub(crate) fn uncertain(&self, cell: ObjectId) -> Option<Record> {
        self.kept.get(&cell)?.uncertain()
    }

    /// The highest number promised for the cell.
    pub(crate) fn promised(&self, cell: ObjectId) -> u64 {
        self.kept.get(&cell).map_or(self.numbers.floor(), |kept| kept.promised.number)
    }

    /// Promises to refuse what is lower. Numbers alone decide, so that no two tenures share one.
    pub(crate) fn promise(
        &mut self,
        now: WallTime,
        cell: ObjectId,
        (epoch, to): (Epoch, Incarnation),
    ) -> Result<Option<Record>, Refused> {
        let kept = self.entry(now, cell)?;
        if (epoch, to) != (kept.promised, kept.promised_to) && epoch.number <= kept.promised.number {
            return Err(Refused::Promised(kept.promised.number));
        }
        (kept.promised, kept.promised_to, kept.touched) = (epoch, to, now);
        Ok(kept.record)
    }

    /// Keeps a record, unless something later was promised. An earlier record of the same tenure changes nothing.
    pub(crate) fn write(
        &mut self,
        now: WallTime,
        cell: ObjectId,
        record: Record,
        checks: bool,
    ) -> Result<(), Refused> {
        let kept = self.entry(now, cell)?;
        if checks && record.epoch < kept.promised {
            kept.missed = Some(record);
            return Err(Refused::Promised(kept.promised.number));
        }
        if record.epoch > kept.promised {
            (kept.promised, kept.promised_to) = (record.epoch, record.writer.incarnation);
        }
        (kept.missed, kept.touched) = (None, now);
        if !checks || kept.record.is_none_or(|before| before.position() < record.position()) {
            kept.record = Some(record);
        }
        Ok(())
    }

    /// Drops what is kept about a lock. Its number stays promised.
    pub(crate) fn drop(&mut self, cell: ObjectId) {
        if let Some(kept) = self.kept.remove(&cell) {
            self.numbers.forget(kept.promised.number);
        }
    }

    /// Somebody stands behind the record.
    pub(crate) fn touch(&mut self, now: WallTime, cell: ObjectId) {
        if let Some(kept) = self.kept.get_mut(&cell) {
            kept.touched = now;
        }
    }

    /// `process` has had this node know of all that it granted.
    pub(crate) fn caught_up(&mut self, process: Process) {
        self.caught_up.insert(process.node, process.incarnation);
    }

    /// Whether this node would know if `process` had granted the lock and had it keep that.
    pub(crate) fn knows_all_of(&self, process: Process, cell: ObjectId) -> bool {
        let has_missed = self.kept.get(&cell).is_some_and(|kept| kept.missed.is_some());
        let is_told = self.caught_up.get(&process.node) == Some(&process.incarnation);
        !has_missed && (self.is_first || is_told)
    }

    /// The next locks to look at, in turn: at most `count`.
    pub(crate) fn sweep(&mut self, count: usize) -> Vec<(ObjectId, Kept)> {
        let after = (Bound::Excluded(self.swept), Bound::Unbounded);
        let next: Vec<_> =
            self.kept.range(after).take(count).map(|(&cell, kept)| (cell, kept.clone())).collect();
        self.swept = match next.last() {
            Some(&(cell, _)) if next.len() == count => cell,
            _ => ObjectId::new(0, 0),
        };
        next
    }

    fn entry(&mut self, now: WallTime, cell: ObjectId) -> Result<&mut Kept, Refused> {
        if self.kept.len() >= self.kept_max && !self.kept.contains_key(&cell) {
            return Err(Refused::Full);
        }
        let floor = Epoch { number: self.numbers.floor(), node: NodeId(0) };
        let promised_to = Incarnation(0);
        Ok(self.kept.entry(cell).or_insert(Kept {
            promised: floor,
            promised_to,
            record: None,
            missed: None,
            touched: now,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: WallTime = WallTime::from_micros(1);
    const CELL: ObjectId = ObjectId::new(1, 1);

    fn keeper() -> Keeper {
        Keeper::new(Numbers::new(1_000, 0), true, 2)
    }

    fn epoch(number: u64, node: u32) -> Epoch {
        Epoch { number, node: NodeId(node) }
    }

    fn record(number: u64, version: u32) -> Record {
        Record { epoch: epoch(number, 1), version, writer: Process::new(1, 1), grant: None }
    }

    #[test]
    fn a_number_is_promised_to_one_tenure() {
        let mut keeper = keeper();
        let (first, next) = (Incarnation(1), Incarnation(2));
        assert_eq!(keeper.promise(NOW, CELL, (epoch(5, 1), first)), Ok(None));
        assert_eq!(keeper.promise(NOW, CELL, (epoch(5, 1), first)), Ok(None), "asked again");
        assert_eq!(keeper.promise(NOW, CELL, (epoch(5, 1), next)), Err(Refused::Promised(5)));
        assert_eq!(keeper.promise(NOW, CELL, (epoch(5, 2), first)), Err(Refused::Promised(5)));
        assert_eq!(keeper.promise(NOW, CELL, (epoch(6, 2), first)), Ok(None));
        assert_eq!(keeper.write(NOW, CELL, record(5, 1), true), Err(Refused::Promised(6)));
    }

    #[test]
    fn the_latest_record_stays() {
        let mut keeper = keeper();
        for (version, latest) in [(1, 1), (3, 3), (2, 3)] {
            assert_eq!(keeper.write(NOW, CELL, record(5, version), true), Ok(()));
            assert_eq!(keeper.record(CELL), Some(record(5, latest)));
        }
    }

    #[test]
    fn what_is_dropped_stays_promised() {
        let mut keeper = keeper();
        keeper.write(NOW, CELL, record(5, 1), true).unwrap();
        keeper.drop(CELL);
        assert_eq!(keeper.promise(NOW, CELL, (epoch(5, 2), Incarnation(1))), Err(Refused::Promised(5)));
        assert_eq!(keeper.promise(NOW, ObjectId::new(1, 2), (epoch(6, 2), Incarnation(1))), Ok(None));
    }

    #[test]
    fn the_limit_holds_for_new_locks_only() {
        let mut keeper = keeper();
        for low in 1..=2 {
            keeper.promise(NOW, ObjectId::new(1, low), (epoch(1, 1), Incarnation(1))).unwrap();
        }
        assert_eq!(
            keeper.promise(NOW, ObjectId::new(1, 3), (epoch(1, 1), Incarnation(1))),
            Err(Refused::Full)
        );
        assert!(keeper.promise(NOW, CELL, (epoch(2, 1), Incarnation(1))).is_ok());
    }

    #[test]
    fn a_sweep_comes_round() {
        let mut keeper = keeper();
        for low in 1..=2 {
            keeper.promise(NOW, ObjectId::new(1, low), (epoch(1, 1), Incarnation(1))).unwrap();
        }
        let mut lows = || keeper.sweep(1).first().map(|(cell, _)| cell.low);
        assert_eq!([lows(), lows(), lows(), lows()], [Some(1), Some(2), None, Some(1)]);
    }
}
