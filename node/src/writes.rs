//! Writes to the journal of a shard's files, and the messages that wait for them.
//!
//! What waits is bounded. A message that waits already does not wait twice, so retries add nothing while a disk is slow.
//! What carries data has a share of its own: a promise or an acknowledgement never goes because entries wait. If
//! too much waits all the same, what goes to others is dropped, and they ask again; what a replica says to itself stays,
//! as nobody would say it again, and there is no more of it than is under way.

use std::collections::{BTreeMap, VecDeque};

use base::{NodeId, ObjectId, Span, WallTime};
use replication::{Body, Machine, Record};

use crate::file::File;
use crate::files::{FileMessage, SMALL_BYTES_MAX};

/// How many messages to others may wait for the disk.
const HELD_MAX: usize = 1 << 16;
/// How much may be in those that carry data.
const HELD_BYTES_MAX: u64 = 64 << 20;
/// While so much data waits for the journal, or for a checkpoint, clients are not told of their changes, and so send no more.
const BEHIND: Lag = Lag { unwritten: 8 << 20, unplaced: 64 << 20 };
/// While so much waits, other nodes' data is not taken; they send it again.
const CROWDED: Lag = Lag { unwritten: 32 << 20, unplaced: 96 << 20 };

/// How far a disk is behind, in bytes of data.
struct Lag {
    unwritten: u64,
    unplaced: u64,
}

/// Writes to the journal, counted from 1 for this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes {
    last: u64,
    written: u64,
    /// None until all that was there at the start is synced.
    durable: Option<u64>,
    asked: Option<u64>,
    /// What waits until something is written, and until it is durable.
    for_written: Waiting,
    for_durable: Waiting,
    /// Since when the disk owes a write, and a sync; from when it last did something of that.
    writes_since: WallTime,
    syncs_since: WallTime,
    /// How much data is in each record that is not written, by its number, and in all of them.
    unwritten: VecDeque<(u64, u64)>,
    unwritten_bytes: u64,
    /// The same of records that are in no checkpoint: all of it is in memory.
    unplaced: VecDeque<(u64, u64)>,
    unplaced_bytes: u64,
}

/// Messages that wait, by the write that each waits for.
#[derive(Clone, Debug, Default)]
struct Waiting {
    held: BTreeMap<(u64, ObjectId, u64), Held>,
    /// Counts them.
    holds: u64,
    /// How much data is in them.
    bytes: u64,
}

/// A message that waits for a write.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) to: NodeId,
    pub(crate) message: FileMessage,
}

/// What a message waits for: everything up to a record of the journal, written or durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Until {
    pub(crate) number: u64,
    pub(crate) is_durable: bool,
}

impl Writes {
    /// A record leaves for the journal.
    pub(crate) fn next(&mut self, now: WallTime, record: &Record<File>) -> u64 {
        if self.written == self.last {
            self.writes_since = now;
        }
        self.last += 1;
        let bytes = record_data_bytes(record);
        if bytes > 0 {
            self.unwritten.push_back((self.last, bytes));
            self.unwritten_bytes += bytes;
            self.unplaced.push_back((self.last, bytes));
            self.unplaced_bytes += bytes;
        }
        self.last
    }

    /// Whether the disk lags so far behind that clients are to wait for it.
    pub(crate) const fn is_behind(&self) -> bool {
        self.lags(&BEHIND)
    }

    /// Whether it lags so far behind that no more data of others is taken.
    pub(crate) const fn is_crowded(&self) -> bool {
        self.lags(&CROWDED)
    }

    const fn lags(&self, lag: &Lag) -> bool {
        self.unwritten_bytes > lag.unwritten || self.unplaced_bytes > lag.unplaced
    }

    /// Whether the disk owes nothing.
    pub(crate) fn is_idle(&self) -> bool {
        self.written == self.last && self.asked <= self.durable
    }

    /// The last record that left.
    pub(crate) const fn last(&self) -> u64 {
        self.last
    }

    /// Whether everything up to a record is written, or durable.
    fn covers(&self, until: Until) -> bool {
        if until.is_durable { self.durable >= Some(until.number) } else { self.written >= until.number }
    }

    /// A message that may leave once the journal has everything up to a record. It comes back if that is so already.
    /// What goes to `me` is kept always.
    pub(crate) fn hold(&mut self, until: Until, me: NodeId, held: Held) -> Option<Held> {
        if self.covers(until) {
            return Some(held);
        }
        let count = self.for_written.held.len() + self.for_durable.held.len();
        let bytes = self.for_written.bytes + self.for_durable.bytes;
        let fits =
            count < HELD_MAX && (held.data_bytes() == 0 || bytes + held.data_bytes() <= HELD_BYTES_MAX);
        let waiting = if until.is_durable { &mut self.for_durable } else { &mut self.for_written };
        if fits || held.to == me {
            waiting.hold(until.number, held);
        }
        None
    }

    /// The sync that somebody waits for and nobody has asked for yet.
    pub(crate) fn poll_sync(&mut self, now: WallTime) -> Option<u64> {
        let wanted = self.for_durable.held.last_key_value().map(|(&(number, ..), _)| number);
        let wanted = wanted.filter(|&wanted| self.asked < Some(wanted))?;
        if self.asked <= self.durable {
            self.syncs_since = now;
        }
        // All that has left so far goes with it.
        self.asked = Some(wanted.max(self.last));
        self.asked
    }

    pub(crate) fn handle_written(&mut self, now: WallTime, upto: u64) {
        let upto = upto.min(self.last);
        if upto > self.written {
            (self.written, self.writes_since) = (upto, now);
        }
        self.unwritten_bytes -= take_upto(&mut self.unwritten, upto);
    }

    /// Checkpoints have all up to a record.
    pub(crate) fn handle_placed(&mut self, upto: u64) {
        self.unplaced_bytes -= take_upto(&mut self.unplaced, upto);
    }

    pub(crate) fn handle_durable(&mut self, now: WallTime, upto: u64) {
        self.handle_written(now, upto);
        let upto = Some(upto.min(self.last));
        if upto > self.durable {
            (self.durable, self.syncs_since) = (upto, now);
        }
    }

    /// When the disk will have done nothing of what it owes for so long. None if it owes nothing.
    pub(crate) fn stalled_at(&self, patience: Span) -> Option<WallTime> {
        let writes = (self.written < self.last).then_some(self.writes_since);
        let syncs = (self.durable < self.asked).then_some(self.syncs_since);
        [writes, syncs].into_iter().flatten().min().map(|since| since + patience)
    }

    /// A message that may leave now.
    pub(crate) fn pop_ready(&mut self) -> Option<Held> {
        let ready = self.for_written.pop(Some(self.written));
        ready.or_else(|| self.for_durable.pop(self.durable))
    }
}

/// Takes away the records up to this one, and returns how much data was in them.
fn take_upto(records: &mut VecDeque<(u64, u64)>, upto: u64) -> u64 {
    let count = records.partition_point(|(number, _)| *number <= upto);
    records.drain(..count).map(|(_, bytes)| bytes).sum()
}

/// How much data a record carries.
pub fn record_data_bytes(record: &Record<File>) -> u64 {
    match record {
        Record::Appended { entries, .. } => {
            let ops = entries.iter().filter_map(|entry| match &entry.body {
                Body::Op { op, .. } => Some(op.change.data_bytes()),
                _ => None,
            });
            ops.sum()
        }
        Record::Placed(parts) => {
            parts.iter().filter_map(|(_, part)| part.as_ref()).map(|(_, part)| File::part_bytes(part)).sum()
        }
        _ => 0,
    }
}

impl Waiting {
    fn hold(&mut self, number: u64, held: Held) {
        let object = held.message.object;
        let mut same = self.held.range((number, object, 0)..=(number, object, u64::MAX));
        if same.any(|(_, other)| other.to == held.to && other.message == held.message) {
            return;
        }
        self.holds += 1;
        self.bytes += held.data_bytes();
        self.held.insert((number, object, self.holds), held);
    }

    fn pop(&mut self, reached: Option<u64>) -> Option<Held> {
        let first = self.held.first_entry()?;
        if reached < Some(first.key().0) {
            return None;
        }
        let held = first.remove();
        self.bytes -= held.data_bytes();
        Some(held)
    }
}

impl Held {
    /// How much data it carries.
    fn data_bytes(&self) -> u64 {
        let bytes = self.message.message.bytes();
        if bytes > SMALL_BYTES_MAX { bytes } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, Seq, ViewId};
    use bytes::Bytes;
    use replication::{Entry, Message, Position, Request};

    use super::*;
    use crate::file::{Change, Chunk, Key, Op, Part, Piece};

    const ME: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);
    const PATIENCE: Span = Span::from_secs(2);

    const fn at(ms: u64) -> WallTime {
        WallTime::from_micros(ms * 1_000)
    }

    const fn written(number: u64) -> Until {
        Until { number, is_durable: false }
    }

    const fn durable(number: u64) -> Until {
        Until { number, is_durable: true }
    }

    fn small() -> Record<File> {
        Record::Promised(Epoch::default())
    }

    fn large() -> Record<File> {
        let chunk = Chunk::new(u16::MAX, vec![(0, Piece::Held(Bytes::from(vec![1; 65_536])))]).unwrap();
        let part = |number| (Key::Chunk(number), Some((Position::START, Part::Chunk(chunk.clone()))));
        Record::Placed((0..16).map(part).collect())
    }

    fn held(to: NodeId, message: Message<File>) -> Held {
        let object = ObjectId::new(1, 1);
        Held { to, message: FileMessage { object, view: ViewId::default(), message } }
    }

    fn ack(to: NodeId, seq: u64) -> Held {
        let epoch = Epoch::default();
        held(to, Message::Appended { epoch, upto: Position { epoch, seq: Seq(seq) } })
    }

    fn data(seq: u64) -> Held {
        let epoch = Epoch::default();
        let change = Change::Append { data: Bytes::from(vec![1; 1 << 20]).into() };
        let client = base::ClientId { certificate: 1, program: 1 };
        let op = Op { time: at(0), under: None, change };
        let body = Body::Op { request: Request { client, number: seq, settled: 1 }, op };
        let entry = Entry { at: Position { epoch, seq: Seq(seq) }, lease: 1, body };
        held(
            OTHER,
            Message::Append { epoch, after: Position::START, entries: vec![entry], committed: Seq(0) },
        )
    }

    fn seqs(writes: &mut Writes) -> Vec<u64> {
        let ready = std::iter::from_fn(|| writes.pop_ready());
        let seq = |held: Held| match held.message.message {
            Message::Appended { upto, .. } => upto.seq.0,
            _ => 0,
        };
        ready.map(seq).collect()
    }

    #[test]
    fn messages_leave_when_their_writes_are_done() {
        let mut writes = Writes::default();
        assert!(writes.hold(written(0), ME, ack(OTHER, 9)).is_some());
        let (first, second) = (writes.next(at(1), &small()), writes.next(at(1), &small()));
        for (until, seq) in [(written(second), 2), (durable(first), 3), (written(first), 1), (durable(0), 4)]
        {
            assert!(writes.hold(until, ME, ack(OTHER, seq)).is_none());
        }
        assert_eq!(seqs(&mut writes), []);
        writes.handle_written(at(2), first);
        assert_eq!(seqs(&mut writes), [1]);
        assert_eq!((writes.poll_sync(at(2)), writes.poll_sync(at(2))), (Some(second), None));
        writes.handle_durable(at(3), first);
        assert_eq!(seqs(&mut writes), [4, 3]);
        writes.handle_written(at(3), 100);
        assert_eq!(seqs(&mut writes), [2]);
        assert!(writes.hold(durable(first), ME, ack(OTHER, 9)).is_some());
    }

    #[test]
    fn what_waits_already_does_not_wait_twice() {
        let mut writes = Writes::default();
        let number = writes.next(at(1), &small());
        for _ in 0..1_000 {
            writes.hold(written(number), ME, ack(OTHER, 1));
            writes.hold(durable(number), ME, ack(OTHER, 1));
            writes.hold(written(number), ME, ack(NodeId(3), 1));
        }
        writes.handle_durable(at(2), number);
        assert_eq!(seqs(&mut writes).len(), 3);
    }

    #[test]
    fn data_that_waits_leaves_room_for_what_must_not() {
        let mut writes = Writes::default();
        let number = writes.next(at(1), &small());
        for seq in 1..=100 {
            writes.hold(written(number), ME, data(seq));
        }
        writes.hold(written(number), ME, ack(OTHER, 1));
        writes.handle_written(at(2), number);
        let ready: Vec<u64> = seqs(&mut writes);
        assert_eq!((ready.len(), ready.last()), (64, Some(&1)), "{ready:?}");
        assert_eq!(writes.for_written.bytes, 0);
    }

    #[test]
    fn what_a_replica_says_to_itself_is_never_dropped() {
        let mut writes = Writes::default();
        let number = writes.next(at(1), &small());
        (0..HELD_MAX as u64 + 5).for_each(|seq| _ = writes.hold(written(number + seq), ME, ack(OTHER, seq)));
        assert_eq!(writes.for_written.held.len(), HELD_MAX);
        writes.hold(written(number), ME, ack(ME, 1));
        assert_eq!(writes.for_written.held.len(), HELD_MAX + 1);
    }

    #[test]
    fn a_disk_that_goes_on_is_not_stalled() {
        let mut writes = Writes::default();
        assert_eq!(writes.stalled_at(PATIENCE), None);
        let first = writes.next(at(10), &small());
        writes.next(at(500), &small());
        assert_eq!(writes.stalled_at(PATIENCE), Some(at(2_010)));
        writes.handle_written(at(1_000), first);
        assert_eq!(writes.stalled_at(PATIENCE), Some(at(3_000)));
        writes.hold(durable(first), ME, ack(OTHER, 1));
        writes.poll_sync(at(1_100));
        writes.handle_written(at(1_200), 2);
        assert_eq!(writes.stalled_at(PATIENCE), Some(at(3_100)), "it owes a sync");
        writes.handle_durable(at(1_300), 2);
        assert_eq!(writes.stalled_at(PATIENCE), None);
        writes.next(at(9_000), &small());
        assert_eq!(writes.stalled_at(PATIENCE), Some(at(11_000)));
    }

    #[test]
    fn a_journal_that_lags_makes_others_wait() {
        let mut writes = Writes::default();
        assert!(!writes.is_behind());
        let numbers: Vec<u64> = (0..40).map(|_| writes.next(at(1), &large())).collect();
        assert!(writes.is_behind() && writes.is_crowded());
        writes.handle_written(at(2), numbers[20]);
        assert!(writes.is_behind() && !writes.is_crowded());
        writes.handle_durable(at(3), numbers[39]);
        assert!(!writes.is_behind());
        assert_eq!(writes.unwritten_bytes, 0);
    }

    #[test]
    fn checkpoints_that_lag_make_others_wait() {
        let mut writes = Writes::default();
        let write = |writes: &mut Writes| {
            let number = writes.next(at(1), &large());
            writes.handle_durable(at(1), number);
            number
        };
        let numbers: Vec<u64> = (0..200).map(|_| write(&mut writes)).collect();
        assert!(writes.is_behind() && writes.is_crowded(), "all of it is in memory");
        writes.handle_placed(numbers[115]);
        assert!(writes.is_behind() && !writes.is_crowded());
        writes.handle_placed(numbers[150]);
        assert!(!writes.is_behind());
        writes.handle_placed(numbers[199]);
        assert_eq!(writes.unplaced_bytes, 0);
    }
}
