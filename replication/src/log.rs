//! The log of one object at one replica: committed entries, and behind them the tail that is not committed.
//!
//! Two logs that have an entry at the same position are equal up to it (R1). That holds because an entry is taken only
//! onto its predecessor, and because of the two things that are asserted here: epochs never fall along a log, and
//! nothing committed is ever dropped (R6).

use base::Seq;

use crate::{Entry, Position};

/// Entries, contiguous from the first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Log<O> {
    entries: Vec<Entry<O>>,
    committed: Seq,
}

impl<O: Clone + PartialEq> Log<O> {
    /// The position of the last entry.
    pub(crate) fn tail(&self) -> Position {
        self.entries.last().map_or(Position::START, |entry| entry.at)
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
        self.entries.get(index(seq)?)
    }

    /// The position at a place; the start for the place before the first.
    pub(crate) fn position(&self, seq: Seq) -> Option<Position> {
        if seq == Seq(0) { Some(Position::START) } else { self.get(seq).map(|entry| entry.at) }
    }

    /// Whether the entry at this very position is here, and so everything before it.
    pub(crate) fn contains(&self, at: Position) -> bool {
        self.position(at.seq) == Some(at)
    }

    /// The entries behind a place, as many as `entries_max`.
    pub(crate) fn behind(&self, seq: Seq, entries_max: usize) -> &[Entry<O>] {
        let from = usize::try_from(seq.0).unwrap_or(usize::MAX).min(self.entries.len());
        &self.entries[from..self.entries.len().min(from.saturating_add(entries_max))]
    }

    /// Adds an entry at the end.
    pub(crate) fn push(&mut self, entry: Entry<O>) {
        let tail = self.tail();
        assert_eq!(entry.at.seq.0, tail.seq.0 + 1, "an entry stands behind its predecessor");
        assert!(entry.at.epoch >= tail.epoch, "epochs never fall along a log");
        self.entries.push(entry);
    }

    /// Drops everything behind a place.
    pub(crate) fn truncate(&mut self, last: Seq) {
        assert!(last >= self.committed, "R6: nothing committed is dropped");
        self.entries.truncate(usize::try_from(last.0).unwrap_or(usize::MAX));
    }

    /// Everything up to a place is committed. Returns the place before the first that was not known to be.
    pub(crate) fn commit(&mut self, upto: Seq) -> Seq {
        assert!(upto <= self.tail().seq, "R3: what is committed is there");
        let before = self.committed;
        self.committed = before.max(upto);
        before
    }
}

impl<O> Default for Log<O> {
    fn default() -> Self {
        Self { entries: Vec::new(), committed: Seq(0) }
    }
}

fn index(seq: Seq) -> Option<usize> {
    usize::try_from(seq.0.checked_sub(1)?).ok()
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
        Entry { at: at(number, seq), lease: 0, body: Body::Barrier }
    }

    fn log(entries: &[(u64, u64)]) -> Log<u8> {
        let mut log = Log::default();
        entries.iter().for_each(|&(number, seq)| log.push(entry(number, seq)));
        log
    }

    #[test]
    fn a_log_knows_its_positions() {
        let log = log(&[(1, 1), (1, 2), (4, 3)]);
        assert_eq!(log.tail(), at(4, 3));
        assert!(log.contains(Position::START) && log.contains(at(1, 2)));
        assert!(!log.contains(at(4, 2)) && !log.contains(at(4, 4)));
        assert_eq!(log.behind(Seq(1), 9).len(), 2);
        assert_eq!((log.behind(Seq(1), 1).len(), log.behind(Seq(3), 1).len()), (1, 0));
        assert_eq!(log.behind(Seq(u64::MAX), usize::MAX).len(), 0);
    }

    #[test]
    fn a_tail_may_be_dropped() {
        let mut log = log(&[(1, 1), (1, 2), (1, 3)]);
        assert_eq!((log.commit(Seq(2)), log.commit(Seq(1))), (Seq(0), Seq(2)));
        log.truncate(Seq(2));
        assert_eq!((log.tail(), log.committed_position()), (at(1, 2), at(1, 2)));
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
