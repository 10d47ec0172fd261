//! The log of one object at one replica: entries that are committed, as many as are kept for those who lag behind,
//! and behind them the tail that is not committed.
//!
//! Beside each entry stands how many bytes there are up to it, so that any stretch of the log can be weighed at once.
//!
//! Two logs that have an entry at the same position are equal up to it (R1). That holds because an entry is taken only
//! onto its predecessor, and because of the two things that are asserted here: epochs never fall along a log, and
//! nothing committed is ever dropped (R6).

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

use base::Seq;

use crate::{Entry, Position};

/// Entries, contiguous behind the base.
#[derive(Clone, Debug)]
pub(crate) struct Log<O> {
    /// What the first entry here stands behind.
    base: Position,
    entries: VecDeque<Entry<O>>,
    /// How many bytes there are up to the base, and up to each entry, since this log began.
    base_bytes: u64,
    bytes: VecDeque<u64>,
    committed: Seq,
}

/// How much was here before does not count.
impl<O: Hash> Hash for Log<O> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.base, &self.entries, self.committed).hash(state);
    }
}

impl<O: Clone + PartialEq> Log<O> {
    /// Nothing but the knowledge that everything up to `base` is committed.
    pub(crate) const fn behind_base(base: Position) -> Self {
        Self { base, entries: VecDeque::new(), base_bytes: 0, bytes: VecDeque::new(), committed: base.seq }
    }

    /// What the first entry stands behind.
    pub(crate) const fn base(&self) -> Position {
        self.base
    }

    /// The position of the last entry.
    pub(crate) fn tail(&self) -> Position {
        self.entries.back().map_or(self.base, |entry| entry.at)
    }

    /// Up to where entries are known to be committed.
    pub(crate) const fn committed(&self) -> Seq {
        self.committed
    }

    /// The position of the last entry that is known to be committed.
    pub(crate) fn committed_position(&self) -> Position {
        self.position(self.committed).expect("what is committed is there")
    }

    /// The entry at a place.
    pub(crate) fn get(&self, seq: Seq) -> Option<&Entry<O>> {
        let index = seq.0.checked_sub(self.base.seq.0)?.checked_sub(1)?;
        self.entries.get(usize::try_from(index).ok()?)
    }

    /// The position at a place, if it is the base or behind it.
    pub(crate) fn position(&self, seq: Seq) -> Option<Position> {
        if seq == self.base.seq { Some(self.base) } else { self.get(seq).map(|entry| entry.at) }
    }

    /// Whether the entry at this very position is here, and so everything before it.
    pub(crate) fn contains(&self, at: Position) -> bool {
        self.position(at.seq) == Some(at)
    }

    /// The entries behind a place, which is not before the base.
    pub(crate) fn behind(&self, seq: Seq) -> impl DoubleEndedIterator<Item = &Entry<O>> {
        let from = usize::try_from(seq.0.saturating_sub(self.base.seq.0)).unwrap_or(usize::MAX);
        self.entries.range(from.min(self.entries.len())..)
    }

    /// The entries behind a place, as many as fit into a message, and at least one if there is one.
    pub(crate) fn batch(&self, seq: Seq, entries_max: usize, bytes_max: u64) -> Vec<Entry<O>> {
        let before = self.bytes_to(seq);
        let fits = |entry: &&Entry<O>| self.bytes_to(entry.at.seq) - before <= bytes_max;
        let count = self.behind(seq).take(entries_max).take_while(fits).count().max(1);
        self.behind(seq).take(count).cloned().collect()
    }

    /// How many bytes of entries there are behind a place.
    pub(crate) fn bytes_behind(&self, seq: Seq) -> u64 {
        self.bytes_to(self.tail().seq) - self.bytes_to(seq)
    }

    /// How many bytes of entries there are between two places.
    pub(crate) fn bytes_between(&self, from: Seq, to: Seq) -> u64 {
        self.bytes_to(to).saturating_sub(self.bytes_to(from))
    }

    /// The first place behind which there are no more committed entries than this, nor more bytes.
    pub(crate) fn first_kept(&self, entries_max: usize, bytes_max: u64) -> Seq {
        let end = self.bytes_to(self.committed);
        let by_count = self.committed.0.saturating_sub(entries_max as u64);
        let heavy = self.bytes.partition_point(|&bytes| end.saturating_sub(bytes) > bytes_max) as u64;
        let is_light = end - self.base_bytes <= bytes_max;
        let by_bytes = if is_light { self.base.seq.0 } else { self.base.seq.0 + heavy + 1 };
        Seq(by_count.max(by_bytes.min(self.committed.0)))
    }

    /// How many bytes there are up to a place.
    fn bytes_to(&self, seq: Seq) -> u64 {
        let index = seq.0.saturating_sub(self.base.seq.0).checked_sub(1);
        let index = index.and_then(|index| usize::try_from(index).ok());
        index.map_or(self.base_bytes, |index| {
            let bytes = self.bytes.get(index).or(self.bytes.back());
            bytes.copied().unwrap_or(self.base_bytes)
        })
    }

    /// Adds an entry that weighs so much at the end.
    pub(crate) fn push(&mut self, entry: Entry<O>, bytes: u64) {
        let tail = self.tail();
        self.bytes.push_back(self.bytes_to(tail.seq) + bytes);
        assert_eq!(entry.at.seq.0, tail.seq.0 + 1, "R1: an entry stands behind its predecessor");
        assert!(entry.at.epoch >= tail.epoch, "R1: epochs never fall along a log");
        self.entries.push_back(entry);
    }

    /// Drops everything behind a place.
    pub(crate) fn truncate(&mut self, last: Seq) {
        assert!(last >= self.committed, "R6: nothing committed is dropped");
        let kept = usize::try_from(last.0 - self.base.seq.0).unwrap_or(usize::MAX);
        self.entries.truncate(kept);
        self.bytes.truncate(kept);
    }

    /// Everything up to a place is committed.
    pub(crate) fn commit(&mut self, upto: Seq) {
        assert!(upto <= self.tail().seq, "R3: what is committed is there");
        self.committed = self.committed.max(upto);
    }

    /// Forgets committed entries up to a place.
    pub(crate) fn trim(&mut self, upto: Seq) {
        while self.base.seq < upto.min(self.committed) {
            let Some(entry) = self.entries.pop_front() else { return };
            self.base = entry.at;
            self.base_bytes = self.bytes.pop_front().unwrap_or(self.base_bytes);
        }
        if self.entries.is_empty() {
            // Most objects of a node rest, and nothing is to come soon.
            (self.entries, self.bytes) = (VecDeque::new(), VecDeque::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, NodeId};

    use super::*;
    use crate::Body;

    const fn at(number: u64, seq: u64) -> Position {
        Position { epoch: Epoch { number, node: NodeId(1) }, seq: Seq(seq) }
    }

    fn entry(number: u64, seq: u64) -> Entry<u8> {
        Entry { at: at(number, seq), lease: 0, body: Body::Settled(Position::START.into()) }
    }

    fn log(entries: &[(u64, u64)]) -> Log<u8> {
        let mut log = Log::behind_base(Position::START);
        entries.iter().for_each(|&(number, seq)| log.push(entry(number, seq), number));
        log
    }

    #[test]
    fn a_log_knows_its_positions() {
        let log = log(&[(1, 1), (1, 2), (4, 3)]);
        assert_eq!(log.tail(), at(4, 3));
        assert!(log.contains(Position::START) && log.contains(at(1, 2)));
        assert!(!log.contains(at(4, 2)) && !log.contains(at(4, 4)));
        assert_eq!((log.behind(Seq(1)).count(), log.behind(Seq(3)).count()), (2, 0));
        assert_eq!(log.behind(Seq(u64::MAX)).count(), 0);
    }

    #[test]
    fn a_tail_may_be_dropped() {
        let mut log = log(&[(1, 1), (1, 2), (1, 3)]);
        log.commit(Seq(2));
        log.commit(Seq(1));
        log.truncate(Seq(2));
        assert_eq!((log.tail(), log.committed_position()), (at(1, 2), at(1, 2)));
    }

    #[test]
    fn committed_entries_are_forgotten_from_the_first_on() {
        let mut log = log(&[(1, 1), (1, 2), (1, 3), (2, 4)]);
        log.commit(Seq(3));
        log.trim(Seq(1));
        assert_eq!((log.base(), log.behind(log.base().seq).count()), (at(1, 1), 3));
        log.trim(Seq(u64::MAX));
        assert_eq!((log.base(), log.committed_position(), log.tail()), (at(1, 3), at(1, 3), at(2, 4)));
        assert!(log.contains(at(1, 3)) && !log.contains(at(1, 2)) && log.get(Seq(3)).is_none());
        log.truncate(Seq(3));
        assert_eq!(log.tail(), at(1, 3));
    }

    #[test]
    fn any_stretch_is_weighed() {
        let mut log = log(&[(1, 1), (10, 2), (100, 3), (1_000, 4)]);
        assert_eq!(
            (log.bytes_behind(Seq(0)), log.bytes_behind(Seq(2)), log.bytes_behind(Seq(9))),
            (1_111, 1_100, 0)
        );
        assert_eq!(log.bytes_between(Seq(1), Seq(3)), 110);
        let seqs = |bytes_max| {
            log.batch(Seq(0), 3, bytes_max).iter().map(|entry| entry.at.seq.0).collect::<Vec<_>>()
        };
        assert_eq!([seqs(11), seqs(u64::MAX)], [vec![1, 2], vec![1, 2, 3]]);
        assert_eq!(seqs(0), [1], "the first fits always");
        assert_eq!(log.batch(Seq(4), 3, 9), []);
        log.commit(Seq(3));
        let kept = |log: &Log<u8>, entries_max, bytes_max| log.first_kept(entries_max, bytes_max).0;
        assert_eq!(
            [kept(&log, 9, 111), kept(&log, 9, 110), kept(&log, 9, 109), kept(&log, 9, 99)],
            [0, 1, 2, 3]
        );
        assert_eq!([kept(&log, 2, 111), kept(&log, 0, 111), kept(&log, 1, 110)], [1, 3, 2]);
        log.trim(Seq(1));
        assert_eq!([kept(&log, 9, 110), kept(&log, 9, 109), kept(&log, 9, 0)], [1, 2, 3]);
        log.truncate(Seq(3));
        assert_eq!((log.bytes_behind(Seq(1)), log.bytes_behind(Seq(3))), (110, 0));
    }

    #[test]
    #[should_panic(expected = "R6")]
    fn what_is_committed_is_not_dropped() {
        let mut log = log(&[(1, 1), (1, 2)]);
        log.commit(Seq(2));
        log.truncate(Seq(1));
    }

    #[test]
    #[should_panic(expected = "epochs never fall")]
    fn an_older_epoch_does_not_follow() {
        log(&[(2, 1), (1, 2)]);
    }

    #[test]
    #[should_panic(expected = "behind its predecessor")]
    fn there_are_no_gaps() {
        log(&[(1, 1), (1, 3)]);
    }
}
