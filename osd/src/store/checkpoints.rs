//! When a checkpoint of the files is made, and in which order what belongs to it happens. Without threads: whoever drives it puts
//! checkpoints on disk wherever it likes, and tells of the end.
//!
//! A checkpoint takes what has changed of all files at one moment. It is put on disk once the journal is durable up to there, and then the
//! journal before it can go. One is made when much was written, when the journal is half full, and now and then, so that a start has little
//! to read. Those that are made now and then the daemons make in turns: what is written waits for a majority of them, and so not for one
//! whose disk is busy with a checkpoint. Who has something back that was damaged makes one at once, because it is not durable before that.

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, ObjectId, Span, WallTime};
use lease::Algorithm;
use node::file::{File, Touched};
use node::{KeptFile, Shard, record_data_bytes};
use replication::Record;

use super::contents::{Put, PutError, Taken};

/// How long after finding the disk full the next one is tried.
const FULL_RETRY: Span = Span::from_secs(1);

/// When checkpoints are made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointLimits {
    /// When so much was written since the one before.
    pub bytes: u64,
    /// And when it is the daemon's turn, which comes each time that so long has passed.
    pub after: Span,
}

impl Default for CheckpointLimits {
    fn default() -> Self {
        Self { bytes: 32 << 20, after: Span::from_secs(10) }
    }
}

/// The checkpoints of an open store.
pub struct Checkpoints {
    limits: CheckpointLimits,
    /// When in each span of [`CheckpointLimits::after`] it is this daemon's turn.
    turn: Span,
    /// The place in the journal of the record before the first of this process.
    before: u64,
    /// Files of which something was written since their last checkpoint.
    changed: BTreeSet<ObjectId>,
    changed_bytes: u64,
    last_number: u64,
    stage: Stage,
    /// When the next one is made at the latest.
    due: Option<WallTime>,
    /// Whether the last one found no space.
    was_full: bool,
}

/// How far a checkpoint is.
enum Stage {
    None,
    /// It waits until the journal is durable up to this record.
    Waiting(u64, Vec<Taken>),
    /// It is being put on disk, and has this of each file, which is taken again if that fails.
    Putting(u64, Vec<(ObjectId, Touched)>),
}

/// What is to be done next.
pub enum Next {
    /// Sync the journal up to this record, even if it has no space for that.
    Sync(u64),
    /// [Put](super::contents::Contents::put) these, with which all up to this place is there, and tell
    /// [`handle_put`](Checkpoints::handle_put).
    Put(Vec<Taken>, u64),
    /// The journal is not needed up to this place.
    Free(u64),
}

impl Checkpoints {
    /// Those of a store that has kept these files, whose next record has the place behind `before`.
    pub fn new(
        node: NodeId,
        kept: &BTreeMap<ObjectId, KeptFile>,
        before: u64,
        limits: CheckpointLimits,
    ) -> Self {
        let changed = kept.iter().filter(|(_, kept)| !kept.records.is_empty());
        let changed: BTreeSet<ObjectId> = changed.map(|(object, _)| *object).collect();
        // What is read again at each start is not read so often.
        let due = (!changed.is_empty()).then_some(WallTime::ZERO);
        Self {
            limits,
            turn: turn_of(node, limits.after),
            before,
            changed,
            changed_bytes: 0,
            last_number: 0,
            stage: Stage::None,
            due,
            was_full: false,
        }
    }

    /// A record goes to the journal; and whether its file [owes](node::Shard::owes_checkpoint) a checkpoint.
    pub fn note_write(
        &mut self,
        now: WallTime,
        (number, object): (u64, ObjectId),
        record: &Record<File>,
        is_owed: bool,
    ) {
        self.changed_bytes += record_data_bytes(record);
        self.changed.insert(object);
        self.last_number = number;
        let next = if is_owed && !self.was_full { now } else { self.next_turn(now) };
        self.due = Some(self.due.map_or(next, |due| due.min(next)));
    }

    fn next_turn(&self, now: WallTime) -> WallTime {
        let every = self.limits.after.as_micros().max(1);
        let since = (now.as_micros() + every - self.turn.as_micros()) % every;
        now + Span::from_micros(every - since)
    }

    /// When a checkpoint is to be made at the latest.
    pub fn due(&self) -> Option<WallTime> {
        self.due.filter(|_| matches!(self.stage, Stage::None))
    }

    /// Whether it is time, or much was written.
    pub fn is_due(&self, now: WallTime) -> bool {
        self.changed_bytes >= self.limits.bytes || self.due.is_some_and(|due| due <= now)
    }

    /// Takes a checkpoint of all that has changed, unless there is one already.
    pub fn begin<A: Algorithm>(&mut self, shard: &mut Shard<A>) -> Option<Next> {
        if !matches!(self.stage, Stage::None) || self.changed.is_empty() {
            return None;
        }
        if shard.last_write() > self.last_number {
            // It would have records that the shard has not handed over yet. They have other numbers than those that it is said to have, so the next start would
            // have them happen again. The shard is asked for them next.
            self.due = Some(WallTime::ZERO);
            return None;
        }
        let (number, place) = (self.last_number, self.before + self.last_number);
        let take = |object| Taken { object, applied: place, changes: shard.take_checkpoint(object) };
        let taken = std::mem::take(&mut self.changed).into_iter().map(take).collect();
        (self.changed_bytes, self.due) = (0, None);
        self.stage = Stage::Waiting(number, taken);
        Some(Next::Sync(number))
    }

    /// The journal is durable up to a record: a checkpoint that waited for that goes to the disk.
    pub fn handle_durable(&mut self, durable: u64) -> Option<Next> {
        let Stage::Waiting(number, _) = self.stage else { return None };
        if durable < number {
            return Some(Next::Sync(number));
        }
        let waited = std::mem::replace(&mut self.stage, Stage::None);
        let Stage::Waiting(_, taken) = waited else { return None };
        let restored = taken.iter().map(|Taken { object, changes, .. }| (*object, changes.touched()));
        self.stage = Stage::Putting(number, restored.collect());
        Some(Next::Put(taken, self.before + number))
    }

    /// A checkpoint was put on disk, or not. If that failed for good the store is closed.
    pub fn handle_put<A: Algorithm>(
        &mut self,
        shard: &mut Shard<A>,
        now: WallTime,
        put: Result<Vec<Put>, PutError>,
    ) -> Result<Option<Next>, PutError> {
        let putting = std::mem::replace(&mut self.stage, Stage::None);
        let Stage::Putting(number, restored) = putting else { return Ok(None) };
        match put {
            Ok(put) => {
                put.into_iter().for_each(|Put { object, chunks }| shard.handle_checkpoint(object, chunks));
                shard.handle_placed(number);
                self.was_full = false;
                Ok(Some(Next::Free(self.before + number)))
            }
            Err(error @ (PutError::Full | PutError::Unreadable { .. })) => {
                let is_full = matches!(error, PutError::Full);
                let was_full = std::mem::replace(&mut self.was_full, is_full);
                // A disk that stays full is told of once.
                if !(is_full && was_full) {
                    tracing::error!("no checkpoint was made: {error}");
                }
                if let PutError::Unreadable { object, what } = error {
                    shard.handle_unreadable(object, what);
                }
                for (object, touched) in restored {
                    shard.handle_no_checkpoint(object, touched);
                    self.changed.insert(object);
                }
                self.due = Some(now + FULL_RETRY);
                Ok(None)
            }
            Err(error @ (PutError::Io(_) | PutError::Index(_))) => Err(error),
        }
    }
}

/// Multiples of the golden section are far apart from each other, however many there are.
fn turn_of(node: NodeId, every: Span) -> Span {
    let part = node.0.wrapping_mul(0x9e37_79b9);
    every * u64::from(part >> 16) / (1 << 16)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{ClusterId, Epoch, Incarnation, Process, ViewId};
    use lease::{FleaseRules, Start};
    use node::{ClusterMap, FileMessage, Osd, Output, Remembered, Settings, ShardConfig};
    use replication::Message;

    use super::*;

    #[test]
    fn daemons_take_turns() {
        let every = Span::from_secs(10);
        let limits = CheckpointLimits { after: every, ..CheckpointLimits::default() };
        let turns = |now: u64| {
            [1, 2, 3].map(|node| {
                let mut checkpoints = Checkpoints::new(NodeId(node), &BTreeMap::new(), 0, limits);
                let now = WallTime::from_micros(now);
                let promised = Record::Promised(Epoch::default());
                checkpoints.note_write(now, (1, ObjectId::new(0, 1)), &promised, false);
                checkpoints.due().unwrap().since(now)
            })
        };
        for now in [0, 1, 1_790_000_000_000_000, 1_790_000_004_321_987] {
            let mut turns = turns(now);
            turns.sort_unstable();
            let [first, second, third] = turns;
            assert!(first > Span::ZERO && third <= every, "{turns:?}");
            let apart = Span::from_secs(2);
            assert!(first + apart < second && second + apart < third, "{turns:?}");
            assert!(third + apart < first + every, "{turns:?}");
        }
    }

    /// The checkpoint of a file that had promised to follow somebody, and the record of that behind it, did not follow from each other.
    #[test]
    fn nothing_is_taken_that_was_not_handed_over() {
        let osds = [1, 2, 3].map(|id| Osd { id: NodeId(id), address: format!("127.0.0.1:{}", 7_000 + id) });
        let map = ClusterMap::new(ClusterId([1; 16]), 1, 3, Settings::default(), osds.to_vec()).unwrap();
        let [me, peer] = [1, 2].map(|node| Process { node: NodeId(node), incarnation: Incarnation(1) });
        let now = WallTime::from_micros(1_790_000_000_000_000);
        let remembered = Remembered::without_files(Start::Fresh, 0);
        let config = ShardConfig::new(Arc::new(map));
        let mut shard = Shard::<FleaseRules>::new(config, me, remembered, now, 7).unwrap();
        shard.handle_peer_up(now, peer);
        let asks = |shard: &mut Shard<_>, number| {
            let epoch = Epoch { number, node: peer.node };
            let message = Message::Promise { epoch, begun_after: 0 };
            let view = ViewId::default();
            shard.handle_file_message(now, peer, FileMessage { object: ObjectId::new(0, 1), view, message });
        };
        let mut checkpoints = Checkpoints::new(me.node, &BTreeMap::new(), 0, CheckpointLimits::default());
        let hand_over = |checkpoints: &mut Checkpoints, shard: &mut Shard<_>| {
            while let Some(output) = shard.poll_output(now) {
                match output {
                    Output::RaiseCeiling { to } => shard.handle_ceiling(now, to),
                    Output::Write { number, object, record } => {
                        checkpoints.note_write(now, (number, object), &record, false);
                    }
                    _ => {}
                }
            }
        };
        asks(&mut shard, 1);
        hand_over(&mut checkpoints, &mut shard);
        asks(&mut shard, 2);
        assert!(checkpoints.begin(&mut shard).is_none());
        assert!(checkpoints.is_due(now), "and so it is made when that has come");
        hand_over(&mut checkpoints, &mut shard);
        assert!(matches!(checkpoints.begin(&mut shard), Some(Next::Sync(2))));
    }

    #[test]
    fn what_is_owed_does_not_wait_for_its_turn() {
        let (limits, now) = (CheckpointLimits::default(), WallTime::from_micros(1_790_000_000_000_000));
        let mut checkpoints = Checkpoints::new(NodeId(1), &BTreeMap::new(), 0, limits);
        let written = (1, ObjectId::new(0, 1));
        checkpoints.note_write(now, written, &Record::Promised(Epoch::default()), true);
        assert!(checkpoints.is_due(now));
    }
}
