//! The journal of a daemon's files: what survives the end of its process, and what survives the power.
//!
//! A record is handed over, then *written*, then *durable*. Whatever happens, what is kept is a prefix of what was
//! handed over: a torn record at the end is one that is not there. When a process ends, all that was written stays, and
//! perhaps something of the rest; when the power fails, all that was durable stays, and perhaps something of the rest.

use std::collections::{BTreeMap, VecDeque};

use base::{ObjectId, Random};
use node::KeptFile;
use node::file::File;
use replication::{Checkpoint, Record};

use crate::TrueTime;

/// Everything about files that is on one disk, or on its way there.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    files: BTreeMap<ObjectId, Kept>,
    /// Records are counted from 1 for the life of the disk: how many were handed over, are written, are durable.
    last: u64,
    written: u64,
    durable: u64,
    /// Where the records of the present process begin.
    began_at: u64,
    /// When the disk is done with all that it was told to write, and to sync.
    pub(super) written_by: TrueTime,
    pub(super) synced_by: TrueTime,
}

/// What is kept of a file.
#[derive(Clone, Debug, Default)]
struct Kept {
    /// And how many records had been handed over when it was taken.
    checkpoint: Option<(u64, Checkpoint<File>)>,
    records: VecDeque<(u64, Record<File>)>,
}

impl Journal {
    /// A process begins: what it finds.
    pub(super) fn begin(&mut self) -> BTreeMap<ObjectId, KeptFile> {
        self.began_at = self.last;
        let kept = |kept: &Kept| KeptFile {
            checkpoint: kept.checkpoint.as_ref().map(|(_, checkpoint)| checkpoint.clone()),
            records: kept.records.iter().map(|(_, record)| record.clone()).collect(),
        };
        let files = self.files.iter().filter(|(_, kept)| !kept.is_empty());
        files.map(|(&object, file)| (object, kept(file))).collect()
    }

    /// The process hands over its record of this number.
    pub(super) fn append(&mut self, number: u64, object: ObjectId, record: Record<File>) {
        self.last += 1;
        assert_eq!(self.last, self.began_at + number, "records are handed over in order");
        self.files.entry(object).or_default().records.push_back((self.last, record));
    }

    /// All records of the process up to this one are written.
    pub(super) fn note_written(&mut self, number: u64) {
        self.written = self.written.max(self.began_at + number);
    }

    /// They are durable, and so is all that was there before the process.
    pub(super) fn note_durable(&mut self, number: u64) {
        self.note_written(number);
        self.durable = self.durable.max(self.began_at + number);
    }

    /// How many records were handed over.
    pub(super) const fn handed_over(&self) -> u64 {
        self.last
    }

    /// A checkpoint of a file is durable: what was handed over before it was taken is not needed any more.
    pub(super) fn keep(&mut self, object: ObjectId, handed_over: u64, checkpoint: Checkpoint<File>) {
        let kept = self.files.entry(object).or_default();
        if kept.checkpoint.as_ref().is_some_and(|&(later, _)| later >= handed_over) {
            return;
        }
        kept.checkpoint = Some((handed_over, checkpoint));
        kept.records.retain(|&(place, _)| place > handed_over);
    }

    /// The process has ended.
    pub(super) fn end(&mut self, random: &mut Random) {
        self.cut(random.between(self.written, self.last));
        self.written = self.last;
    }

    /// The power has failed.
    pub(super) fn lose_power(&mut self, random: &mut Random) {
        self.cut(random.between(self.durable, self.last));
        (self.written, self.durable) = (self.last, self.last);
    }

    /// Somebody has put the disk away, with care.
    pub(super) const fn settle(&mut self) {
        self.durable = self.last;
    }

    fn cut(&mut self, last: u64) {
        for kept in self.files.values_mut() {
            while kept.records.back().is_some_and(|&(place, _)| place > last) {
                kept.records.pop_back();
            }
        }
        self.last = last;
        self.written = self.written.min(last);
        (self.written_by, self.synced_by) = Default::default();
        // What a checkpoint was taken behind is not needed, so its records are not missed.
        for kept in self.files.values_mut() {
            kept.checkpoint.iter_mut().for_each(|(place, _)| *place = (*place).min(last));
        }
    }
}

impl Kept {
    fn is_empty(&self) -> bool {
        self.checkpoint.is_none() && self.records.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use base::Epoch;

    use super::*;

    const ONE: ObjectId = ObjectId::new(0, 1);
    const OTHER: ObjectId = ObjectId::new(0, 2);

    fn record(number: u64) -> Record<File> {
        Record::Promised(Epoch { number, ..Epoch::default() })
    }

    fn counts(journal: &mut Journal) -> (usize, usize) {
        let found = journal.begin();
        let count = |object| found.get(&object).map_or(0, |kept: &KeptFile| kept.records.len());
        (count(ONE), count(OTHER))
    }

    /// Six records: two durable, two written, two handed over.
    fn journal() -> Journal {
        let mut journal = Journal::default();
        journal.begin();
        for number in 1..=6 {
            journal.append(number, if number % 2 == 0 { OTHER } else { ONE }, record(number));
        }
        journal.note_written(4);
        journal.note_durable(2);
        journal
    }

    #[test]
    fn what_is_written_survives_the_process() {
        let kept = |seed| {
            let mut journal = journal();
            journal.end(&mut Random::new(seed));
            let (one, other) = counts(&mut journal);
            assert!(one >= other && one + other >= 4, "{one} {other}");
            one + other
        };
        let all: std::collections::BTreeSet<usize> = (0..50).map(kept).collect();
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [4, 5, 6]);
    }

    #[test]
    fn what_is_durable_survives_the_power() {
        let kept = |seed| {
            let mut journal = journal();
            journal.lose_power(&mut Random::new(seed));
            let (one, other) = counts(&mut journal);
            one + other
        };
        let all: std::collections::BTreeSet<usize> = (0..100).map(kept).collect();
        assert_eq!(all.into_iter().collect::<Vec<_>>(), [2, 3, 4, 5, 6]);
    }

    #[test]
    fn what_the_next_process_hands_over_stands_behind() {
        let mut journal = journal();
        journal.end(&mut Random::new(1));
        let before = journal.handed_over();
        journal.begin();
        journal.append(1, ONE, record(9));
        assert_eq!(journal.handed_over(), before + 1);
        journal.note_durable(0);
        journal.lose_power(&mut Random::new(3));
        assert!(journal.handed_over() >= before, "a sync covers what was there at the start");
    }
}
