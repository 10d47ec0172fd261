//! The log of one object at one replica: entries that are committed, as many as are kept for those who lag behind,
//! and behind them the tail that is not committed.
//!
//! Two logs that have an entry at the same position are equal up to it (R1). That holds because an entry is taken only
//! onto its predecessor, and because of the two things that are asserted here: epochs never fall along a log, and
//! nothing committed is ever dropped (R6).

use std::collections::VecDeque;

use base::Seq;

use crate::{Entry, Position};

/// Entries, contiguous behind the base.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Log<O> {
    /// What the first entry here stands behind.
    base: Position,
    entries: VecDeque<Entry<O>>,
    committed: Seq,
}

impl<O: Clone + PartialEq> Log<O> {
    /// Nothing but the knowledge that everything up to `base` is committed.
    pub(crate) const fn behind_base(base: Position) -> Self {
        Self { base, entries: VecDeque::new(), committed: base.seq }
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

    /// Adds an entry at the end.
    pub(crate) fn push(&mut self, entry: Entry<O>) {
        let tail = self.tail();
        assert_eq!(entry.at.seq.0, tail.seq.0 + 1, "R1: an entry stands behind its predecessor");
        assert!(entry.at.epoch >= tail.epoch, "R1: epochs never fall along a log");
        self.entries.push_back(entry);
    }

    /// Drops everything behind a place.
    pub(crate) fn truncate(&mut self, last: Seq) {
        assert!(last >= self.committed, "R6: nothing committed is dropped");
        let kept = usize::try_from(last.0 - self.base.seq.0).unwrap_or(usize::MAX);
        self.entries.truncate(kept);
    }

    /// Everything up to a place is committed. Returns the place before the first that was not known to be.
    pub(crate) fn commit(&mut self, upto: Seq) -> Seq {
        assert!(upto <= self.tail().seq, "R3: what is committed is there");
        let before = self.committed;
        self.committed = before.max(upto);
        before
    }

    /// Forgets committed entries up to a place.
    pub(crate) fn trim(&mut self, upto: Seq) {
        while self.base.seq < upto.min(self.committed) {
            let Some(entry) = self.entries.pop_front() else { return };
            self.base = entry.at;
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
        entries.iter().for_each(|&(number, seq)| log.push(entry(number, seq)));
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
        assert_eq!((log.commit(Seq(2)), log.commit(Seq(1))), (Seq(0), Seq(2)));
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
