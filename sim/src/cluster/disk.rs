//! The journal of a daemon's files: what survives the end of its process, what survives the power, and what its disk does
//! to it.
//!
//! A record is handed over, then *written*, then *durable*. When a process ends, all that was written stays, and perhaps
//! something of the rest; when the power fails, all that was durable stays, and of the rest each record perhaps: it may be torn, and the one
//! behind it not. Checksums tell a record that cannot be read from one that can, and each says up to where all was durable when it
//! was written.

use std::collections::BTreeMap;

use base::{ObjectId, Random};
use node::file::{File, Key};
use node::{JournalFound, KeptFile};
use replication::{Checkpoint, Machine, Record};

use crate::TrueTime;

/// Everything about files that is on one disk, or on its way there.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    slots: BTreeMap<u64, Slot>,
    checkpoints: BTreeMap<ObjectId, Kept>,
    /// Records are counted from 1 for the life of the disk: how many were handed over, are written, are durable.
    last: u64,
    written: u64,
    durable: u64,
    /// Up to where syncs are under way.
    syncing: u64,
    /// Up to where all was durable, by what records say that are not needed any more and still stand there.
    known: u64,
    /// Where the records of the present process begin.
    began_at: u64,
    /// Whether the power has failed since a process last read it.
    is_dark: bool,
    /// Whether the disk has refused something to the present process: from then on it does nothing for it.
    is_broken: bool,
    /// When the disk is done with all that it was told to write, and to sync.
    pub(super) written_by: TrueTime,
    pub(super) synced_by: TrueTime,
}

/// All of a file at one time.
#[derive(Clone, Debug)]
struct Kept {
    /// How many records had been handed over by then.
    place: u64,
    checkpoint: Checkpoint<File>,
    is_damaged: bool,
    /// Parts of it that the next start cannot read.
    rotten: Vec<Key>,
}

/// A record, and what became of it on the disk.
#[derive(Clone, Debug)]
struct Slot {
    object: ObjectId,
    record: Record<File>,
    /// When it was handed over.
    at: TrueTime,
    /// Up to where all was durable by then.
    durable: u64,
    flaw: Option<Flaw>,
}

/// Why a record is not on the disk as it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Flaw {
    /// The power failed before it was synced.
    Torn,
    /// The kernel gave it up when a sync failed. It may still be in the cache; no later sync is about it.
    GivenUp { is_cached: bool },
    /// It was on the disk, and is not any more: it rotted, or another write went where it stood.
    Damaged,
    /// A sync went by without it. Only with a planted bug.
    Skipped,
}

impl Journal {
    /// What a start can read.
    pub(super) fn found(&self) -> JournalFound {
        let readable = self.slots.values().filter(|slot| slot.is_readable());
        let unreadable = self.slots.iter().find(|(_, slot)| !slot.is_readable()).map(|(&place, _)| place);
        let is_behind = |place| self.slots.range(place..).any(|(_, slot)| slot.is_readable());
        let last = match unreadable {
            Some(place) if !is_behind(place) => place - 1,
            _ => self.last,
        };
        let durable = readable.map(|slot| slot.durable).fold(self.known, u64::max);
        JournalFound { last, unreadable, durable, is_refused: false }
    }

    /// A start drops all behind this record.
    pub(super) fn end_with(&mut self, last: u64) {
        if self.is_dark {
            self.durable = last;
        }
        (self.is_dark, self.is_broken) = (false, false);
        self.cut(last);
        (self.written, self.syncing) = (last, self.durable);
    }

    /// A start writes all behind this record anew.
    pub(super) fn rewrite_behind(&mut self, last: u64) {
        let rewritten = self.slots.range_mut(last + 1..).map(|(_, slot)| slot);
        let given_up = rewritten.filter(|slot| matches!(slot.flaw, Some(Flaw::GivenUp { .. })));
        given_up.for_each(|slot| slot.flaw = None);
    }

    /// A process begins: what it finds.
    pub(super) fn begin(&mut self) -> BTreeMap<ObjectId, KeptFile> {
        self.began_at = self.last;
        let kept = |checkpoint| KeptFile { checkpoint, records: Vec::new() };
        let checkpoints = self.checkpoints.iter();
        let mut files: BTreeMap<ObjectId, KeptFile> =
            checkpoints.map(|(&object, file)| (object, kept(Some(file.readable())))).collect();
        for slot in self.slots.values() {
            let file = files.entry(slot.object).or_insert_with(|| kept(None));
            file.records.push(slot.record.clone());
        }
        files
    }

    /// The process hands over its record of this number.
    pub(super) fn append(&mut self, now: TrueTime, number: u64, object: ObjectId, record: Record<File>) {
        self.last += 1;
        assert_eq!(self.last, self.began_at + number, "records are handed over in order");
        let flaw = self.is_broken.then_some(Flaw::GivenUp { is_cached: false });
        let slot = Slot { object, record, at: now, durable: self.durable, flaw };
        self.slots.insert(self.last, slot);
    }

    /// All records of the process up to this one are written.
    pub(super) fn note_written(&mut self, number: u64) {
        self.written = self.written.max(self.began_at + number);
    }

    /// A sync begins that is about all records of the process up to this one.
    pub(super) fn note_syncing(&mut self, number: u64) {
        self.syncing = self.syncing.max(self.began_at + number);
    }

    /// They are durable, and so is all that was there before the process. If that is not true of a record, which one.
    pub(super) fn note_durable(&mut self, number: u64) -> Result<(), (u64, TrueTime)> {
        self.note_written(number);
        let place = self.began_at + number;
        if place <= self.durable {
            return Ok(());
        }
        let mut confirmed = self.slots.range(self.durable + 1..=place);
        let missing = confirmed.find(|(_, slot)| slot.is_unsynced()).map(|(&place, slot)| (place, slot.at));
        self.durable = place;
        missing.map_or(Ok(()), Err)
    }

    /// A sync that goes by without what is older than this many records.
    pub(super) fn skip(&mut self, number: u64, recent: u64) {
        let end = (self.began_at + number).saturating_sub(recent);
        if end > self.syncing {
            self.slots.range_mut(self.syncing + 1..=end).for_each(|(_, slot)| {
                slot.flaw = slot.flaw.or(Some(Flaw::Skipped));
            });
        }
    }

    /// A write fails, and so does whatever the process wants of the disk from then on.
    pub(super) fn break_down(&mut self) {
        self.is_broken = true;
        if let Some(slot) = self.slots.get_mut(&self.last) {
            slot.flaw = Some(Flaw::GivenUp { is_cached: false });
        }
    }

    /// A sync fails: some of what it was about is on no disk. Most of that can still be read, as long as there is power.
    pub(super) fn give_up(&mut self, number: u64, random: &mut Random) {
        self.is_broken = true;
        let end = self.began_at + number;
        let from = self.syncing.min(end) + 1;
        for (_, slot) in self.slots.range_mut(from..=end.max(from)) {
            if slot.flaw.is_none() && random.chance(2, 3) {
                slot.flaw = Some(Flaw::GivenUp { is_cached: random.chance(3, 4) });
            }
        }
    }

    /// Whether the disk has refused something to the present process.
    pub(super) const fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// The files of which something that is kept beside the journal cannot be read.
    pub(super) fn damaged_files(&self) -> Vec<ObjectId> {
        self.checkpoints.iter().filter(|(_, kept)| kept.is_damaged).map(|(&object, _)| object).collect()
    }

    /// Parts of what is kept of a file cannot be read from now on. False if nothing is kept of it beside the journal.
    pub(super) fn rot(&mut self, object: ObjectId, keys: Vec<Key>) -> bool {
        let Some(kept) = self.checkpoints.get_mut(&object) else { return false };
        kept.rotten.extend(keys);
        true
    }

    /// Whether there are such parts.
    pub(super) fn is_rotten(&self) -> bool {
        self.checkpoints.values().any(|kept| !kept.rotten.is_empty())
    }

    /// Something else is kept of a file instead of all there was.
    pub(super) fn replace(&mut self, object: ObjectId, checkpoint: Checkpoint<File>) {
        self.checkpoints.remove(&object);
        self.keep(object, self.last, checkpoint);
    }

    /// Some record rots that something says was durable, or what is kept of some file. False if there is neither.
    pub(super) fn damage(&mut self, random: &mut Random) -> bool {
        let files: Vec<ObjectId> = self.checkpoints.keys().copied().collect();
        if let Some(kept) = random.pick(&files).and_then(|object| self.checkpoints.get_mut(object))
            && random.chance(2, 3)
        {
            return !std::mem::replace(&mut kept.is_damaged, true);
        }
        let synced = self.slots.range(..=self.durable).filter(|(_, slot)| slot.flaw.is_none());
        let known = synced.map(|(_, slot)| slot.durable).fold(self.known, u64::max);
        let covered = self.slots.range(..=known).filter(|(_, slot)| slot.flaw.is_none());
        let covered: Vec<u64> = covered.map(|(&place, _)| place).collect();
        let Some(place) = random.pick(&covered) else { return false };
        if let Some(slot) = self.slots.get_mut(place) {
            slot.flaw = Some(Flaw::Damaged);
        }
        true
    }

    /// Whether the disk has done anything to it.
    pub(super) fn is_flawed(&self) -> bool {
        let is_damaged = self.checkpoints.values().any(|kept| kept.is_damaged);
        is_damaged
            || self.is_broken
            || self.slots.values().any(|slot| slot.flaw.is_some_and(|flaw| flaw != Flaw::Torn))
    }

    /// How many records were handed over.
    pub(super) const fn handed_over(&self) -> u64 {
        self.last
    }

    /// Up to which record the present process, or the last one, was told that all is written.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// And that all is durable.
    pub(super) const fn durable(&self) -> u64 {
        self.durable
    }

    /// A checkpoint of a file is durable: what was handed over before it was taken is not needed any more.
    pub(super) fn keep(&mut self, object: ObjectId, handed_over: u64, checkpoint: Checkpoint<File>) {
        if self.checkpoints.get(&object).is_some_and(|kept| kept.place >= handed_over) {
            return;
        }
        self.checkpoints
            .insert(object, Kept { place: handed_over, checkpoint, is_damaged: false, rotten: Vec::new() });
        let is_freed = |place: u64, slot: &Slot| slot.object == object && place <= handed_over;
        let freed = self.slots.range(..=self.durable.min(handed_over));
        let freed = freed.filter(|&(&place, slot)| is_freed(place, slot) && slot.flaw.is_none());
        self.known = freed.map(|(_, slot)| slot.durable).fold(self.known, u64::max);
        self.slots.retain(|&place, slot| !is_freed(place, slot));
    }

    /// The process has ended.
    pub(super) fn end(&mut self, random: &mut Random) {
        self.cut(random.between(self.written, self.last));
        self.written = self.last;
    }

    /// The power has failed. Returns how many records were torn.
    pub(super) fn lose_power(&mut self, random: &mut Random) -> u64 {
        if std::mem::replace(&mut self.is_dark, true) {
            return 0;
        }
        self.cut(random.between(self.durable, self.last));
        let tears = random.chance(1, 2);
        let mut torn = 0;
        for (&place, slot) in &mut self.slots {
            let was_lost = matches!(slot.flaw, Some(Flaw::GivenUp { .. } | Flaw::Skipped));
            let is_torn = place > self.durable && tears && slot.flaw.is_none() && random.chance(1, 4);
            if was_lost || is_torn {
                slot.flaw = Some(Flaw::Torn);
            }
            torn += u64::from(is_torn);
        }
        torn
    }

    /// Somebody has put the disk away, with care.
    pub(super) const fn settle(&mut self) {
        if !self.is_dark {
            self.durable = self.last;
        }
    }

    fn cut(&mut self, last: u64) {
        self.slots.split_off(&(last + 1));
        self.last = last;
        self.written = self.written.min(last);
        (self.written_by, self.synced_by) = Default::default();
        // What a checkpoint was taken behind is not needed, so its records are not missed.
        for kept in self.checkpoints.values_mut() {
            kept.place = kept.place.min(last);
        }
    }
}

impl Kept {
    /// What a start can read of it.
    fn readable(&self) -> Checkpoint<File> {
        let (_, file) = self.checkpoint.clone().into_parts();
        let there = self.rotten.iter().filter(|key| file.version(key).is_some()).cloned();
        self.checkpoint.clone().lacking(there)
    }
}

impl Slot {
    fn is_readable(&self) -> bool {
        match self.flaw {
            None | Some(Flaw::GivenUp { is_cached: true } | Flaw::Skipped) => true,
            Some(Flaw::Torn | Flaw::GivenUp { is_cached: false } | Flaw::Damaged) => false,
        }
    }

    /// Whether no sync has put it on the disk.
    fn is_unsynced(&self) -> bool {
        matches!(self.flaw, Some(Flaw::GivenUp { .. } | Flaw::Skipped))
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
        let found = journal.found();
        journal.end_with(found.unreadable.map_or(found.last, |place| place - 1));
        let found = journal.begin();
        let count = |object| found.get(&object).map_or(0, |kept: &KeptFile| kept.records.len());
        (count(ONE), count(OTHER))
    }

    /// Six records: two durable, two written, two handed over.
    fn journal() -> Journal {
        let mut journal = Journal::default();
        journal.begin();
        for number in 1..=6 {
            journal.append(TrueTime::ZERO, number, if number % 2 == 0 { OTHER } else { ONE }, record(number));
        }
        journal.note_written(4);
        journal.note_durable(2).unwrap();
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
        journal.end_with(before);
        journal.begin();
        journal.append(TrueTime::ZERO, 1, ONE, record(9));
        assert_eq!(journal.handed_over(), before + 1);
        journal.note_durable(0).unwrap();
        journal.lose_power(&mut Random::new(3));
        assert!(journal.handed_over() >= before, "a sync covers what was there at the start");
    }

    #[test]
    fn a_torn_record_may_stand_before_a_sound_one() {
        let is_gap = |seed| {
            let mut journal = journal();
            journal.lose_power(&mut Random::new(seed));
            let found = journal.found();
            found.unreadable.is_some_and(|torn| torn > 2 && found.last > torn)
        };
        assert!((0..100).any(is_gap));
    }

    #[test]
    fn what_a_sync_gave_up_is_read_and_never_synced() {
        let (mut journal, mut random) = (journal(), Random::new(4));
        journal.note_syncing(2);
        journal.give_up(6, &mut random);
        assert!(journal.is_flawed());
        journal.end(&mut random);
        journal.end_with(journal.handed_over());
        journal.begin();
        assert!(journal.note_durable(0).is_err(), "it says so, and it is not");
    }

    #[test]
    fn what_is_written_anew_is_synced() {
        let (mut journal, mut random) = (journal(), Random::new(4));
        journal.note_syncing(2);
        journal.give_up(6, &mut random);
        journal.end(&mut random);
        let found = journal.found();
        journal.end_with(found.unreadable.map_or(found.last, |place| place - 1));
        journal.rewrite_behind(2);
        journal.begin();
        assert_eq!(journal.note_durable(0), Ok(()));
        assert!(!journal.is_flawed());
    }

    #[test]
    fn damage_is_done_only_to_what_something_says_was_durable() {
        let mut random = Random::new(1);
        let mut journal = journal();
        assert!(!journal.damage(&mut random), "nothing says so");
        journal.append(TrueTime::ZERO, 7, ONE, record(7));
        journal.note_durable(7).unwrap();
        assert!(journal.damage(&mut random));
        let found = journal.found();
        assert!(found.unreadable.is_some_and(|place| place <= 2) && found.durable == 2, "{found:?}");
        assert_eq!(journal.lose_power(&mut random), 0, "all of it was durable");
        assert_eq!(journal.found(), found);
    }
}
