//! What a start makes of the store that it finds, and what becomes of a node whose store fails: decided here, done by the
//! driver.
//!
//! A store has a *journal*, whose records are counted from 1 for its life, and whatever else is on its disk. Beside it
//! there is a *memo*, in memory that outlives processes and not the power: it says what the journal was last known to
//! hold. Records tell by their checksums whether they are what was written, and each names the record up to which all was
//! durable when it was written.
//!
//! - A record that cannot be read, and that something says was durable, is damage: the store does not open. So it is if
//!   the power has not failed and a record behind it can be read, because then nothing was torn.
//! - Any other is the torn end of what was never synced. It is abandoned, with what stands behind it.
//! - Without a memo the power has failed, and with a memo that knows more than is there something else was lost: the node
//!   *forgot*. It keeps up to which epoch, durably, before it makes the memo anew: else the next start would find a memo
//!   that agrees with the journal, and nothing to say that there ever was more.
//! - Once a write or a sync has failed, nobody knows what is on the disk: what was to be synced may be in the cache
//!   alone, and a later sync says nothing of it. So such a store is marked, and never opens again. The process may end before it
//!   marks it; so a start writes anew whatever no sync has confirmed, and takes nothing in a cache for granted.
//!
//! - What is kept of a single file has checksums of its own. If some parts of its state cannot be read, only these are
//!   lacking ([`KeptFile::lacking`]), whether a start finds that or a read ([`Shard::handle_damaged`]): nothing else is in doubt, and
//!   other members have them. If its head cannot be read, all of the file is lost: the node has promised
//!   and acknowledged what it does not know of any more, does not even know who the members are, and gets the file back from those
//!   ([`KeptFile::damaged`]).
//!
//! What nobody can tell from the torn end is damage to what the very last sync covered before a power failure, if nothing was
//! written after it.

use base::{NodeId, ObjectId, WallTime};
use lease::Algorithm;
use replication::{Checkpoint, Position};

use crate::file::{File, FileReplyBody, Key};
use crate::files::Stage;
use crate::{Bug, KeptFile, Output, Rules, Shard, ShardConfig, ShardEvent, Unavailable};

/// What memory that outlives processes knows of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Memo {
    /// The last record of the journal that anybody was told of.
    pub written: u64,
    /// The last record that a sync has confirmed, and with it all before.
    pub durable: u64,
    /// Whether the store has failed.
    pub is_failed: bool,
}

/// What can be read of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct JournalFound {
    /// The last record that can be read.
    pub last: u64,
    /// The first record that cannot, although something stands there or behind it.
    pub unreadable: Option<u64>,
    /// Up to where everything was durable, by what the records say that can be read.
    pub durable: u64,
    /// Whether the disk refused to read something.
    pub is_refused: bool,
}

/// What a start finds of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreFound {
    /// None if the power has failed since the last start.
    pub memo: Option<Memo>,
    /// Whether it is marked on the disk that the store has failed.
    pub is_failed: bool,
    /// The journal.
    pub journal: JournalFound,
    /// The epoch ceiling.
    pub ceiling: u64,
    /// In epochs up to this one the node may have lost what it had not synced, as an earlier start has found.
    pub forgot_at: Option<u64>,
}

/// How a store is opened: the steps, in order. A process that ends between two of them begins anew with the first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opening {
    /// In epochs up to this one the node may have lost what it had not synced.
    pub forgot_at: Option<u64>,
    /// The steps.
    pub steps: [OpenStep; 4],
}

/// Something that a driver does to open a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenStep {
    /// Keep this [`forgot_at`](Opening::forgot_at), durably.
    Forget(Option<u64>),
    /// The journal ends with this record. What stands behind it is never taken for something later.
    EndWith(u64),
    /// Write whatever stands behind this record anew, so that the next sync is about it.
    RewriteBehind(u64),
    /// Make the memo: what was read is written, and all of it is durable up to this record.
    Memo(Memo),
}

/// Why a store does not open. The node votes no more; a disk that is lost gets a new node id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreRefusal {
    /// A write or a sync has failed.
    #[error(
        "the store has failed: nobody knows what is on its disk; add the node under a new id with an empty store"
    )]
    Failed,
    /// The disk refuses to read.
    #[error("the disk refuses to read the store; add the node under a new id with an empty store")]
    Unreadable,
    /// Something is not there that was written.
    #[error(
        "record {record} of the journal is damaged or missing; add the node under a new id with an empty store"
    )]
    Damaged {
        /// The first record that cannot be read.
        record: u64,
    },
}

/// Whether the store of a running node is sound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Health {
    Sound,
    /// It has failed, and the driver does not know yet.
    Failed,
    Told,
}

impl StoreFound {
    /// Whether the store opens, and how.
    pub fn open(&self, rules: Rules) -> Result<Opening, StoreRefusal> {
        let is_failed = self.is_failed || self.memo.is_some_and(|memo| memo.is_failed);
        if is_failed && !rules.breaks(Bug::FailedStoreOpened) {
            return Err(StoreRefusal::Failed);
        }
        let JournalFound { last, unreadable, durable, is_refused } = self.journal;
        if is_refused {
            return Err(StoreRefusal::Unreadable);
        }
        let end = unreadable.map_or(last, |record| record.saturating_sub(1));
        let known = self.memo.map_or(durable, |memo| durable.max(memo.durable));
        let is_torn = self.memo.is_none() && end >= known;
        let is_damaged = end < known || !is_torn && end < last;
        if is_damaged && !rules.breaks(Bug::DamageCutOff) {
            return Err(StoreRefusal::Damaged { record: end + 1 });
        }
        let forgets = self.memo.is_none_or(|memo| end < memo.written);
        let forgot_at = if forgets { self.forgot_at.max(Some(self.ceiling)) } else { self.forgot_at };
        // After a power failure all that can be read was read from the disk.
        let confirmed = self.memo.map_or(end, |memo| memo.durable.min(end));
        let trusts_cache = is_failed || rules.breaks(Bug::CacheTrusted);
        let rewritten_behind = if trusts_cache { end } else { confirmed };
        let memo = Memo { written: end, durable: confirmed, is_failed: false };
        let mut steps = [
            OpenStep::Forget(forgot_at),
            OpenStep::EndWith(end),
            OpenStep::RewriteBehind(rewritten_behind),
            OpenStep::Memo(memo),
        ];
        if rules.breaks(Bug::MemoMadeFirst) {
            steps.rotate_right(1);
        }
        Ok(Opening { forgot_at, steps })
    }
}

impl KeptFile {
    /// What takes the place of all that is kept of a file whose head cannot be read, durably, before the node starts.
    /// `ceiling` is the epoch ceiling.
    ///
    /// The members are those of the map, who know of all that came later. Until a primary has told it the node casts no vote
    /// for the file's lease.
    pub fn damaged(config: &ShardConfig, node: NodeId, object: ObjectId, ceiling: u64) -> Self {
        let members = config.map.view(object).members.clone();
        let is_home = members.contains(node);
        let checkpoint = Checkpoint::damaged(members, File::default(), ceiling);
        let checkpoint = if is_home { checkpoint.at_home() } else { checkpoint };
        Self { checkpoint: Some(checkpoint), records: Vec::new() }
    }

    /// The same without parts of the checkpoint that cannot be read. What was written since is sound.
    #[must_use]
    pub fn lacking(self, parts: impl IntoIterator<Item = Key>) -> Self {
        Self { checkpoint: self.checkpoint.map(|checkpoint| checkpoint.lacking(parts)), ..self }
    }
}

impl<A: Algorithm> Shard<A> {
    /// A write or a sync of the store has failed. Nothing leaves any more but [`Output::StoreFailed`]: what waits for the
    /// disk waits for ever, and the leases run out, or end with the notice of this process's death.
    pub const fn handle_store_failed(&mut self) {
        if matches!(self.health, Health::Sound) {
            self.health = Health::Failed;
        }
    }

    /// Parts of a file could not be read, or are not what was written, each in a version that the store had been asked for.
    /// What was asked of it gets no answer here, and can be asked of another member.
    pub fn handle_damaged(
        &mut self,
        now: WallTime,
        object: ObjectId,
        parts: impl IntoIterator<Item = (Key, Position)>,
    ) {
        if let Some(hosted) = self.files.hosted.get_mut(&object) {
            hosted.replica.damage(now, parts);
        }
        self.drain_replica(now, object);
        self.take_events(now);
    }

    /// Parts of a file are lacking: if it is led here, another member does that from now on.
    pub(crate) fn file_damaged(&mut self, now: WallTime, object: ObjectId, parts: usize) {
        self.tell(ShardEvent::FileDamaged { object, parts });
        self.files.note_forgotten(now, object);
        let Some(hosted) = self.files.hosted.get(&object) else { return };
        if hosted.stage == Stage::Idle || hosted.replica.is_sound() {
            return;
        }
        let successor = self.some_other_member(object);
        self.send_waiting_away(object, &FileReplyBody::Unavailable(Unavailable::NoMajority));
        self.leave_file(now, object, successor);
    }

    /// What is left to do once the store has failed. None while it has not.
    pub(crate) const fn poll_failure(&mut self) -> Option<Option<Output>> {
        match self.health {
            Health::Sound => None,
            Health::Failed => {
                self.health = Health::Told;
                Some(Some(Output::StoreFailed))
            }
            Health::Told => Some(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CEILING: u64 = 70;

    const fn memo(written: u64, durable: u64) -> Option<Memo> {
        Some(Memo { written, durable, is_failed: false })
    }

    fn found(memo: Option<Memo>, journal: JournalFound) -> StoreFound {
        StoreFound { memo, is_failed: false, journal, ceiling: CEILING, forgot_at: None }
    }

    const fn journal(last: u64, unreadable: Option<u64>, durable: u64) -> JournalFound {
        JournalFound { last, unreadable, durable, is_refused: false }
    }

    fn open(found: StoreFound) -> Result<(Option<u64>, u64), StoreRefusal> {
        let opening = found.open(Rules::default())?;
        let end = opening.steps.iter().find_map(|step| match step {
            OpenStep::EndWith(end) => Some(*end),
            _ => None,
        });
        Ok((opening.forgot_at, end.unwrap()))
    }

    #[test]
    fn after_a_process_everything_is_there() {
        assert_eq!(open(found(memo(9, 4), journal(9, None, 4))), Ok((None, 9)));
        assert_eq!(open(found(memo(9, 4), journal(11, None, 4))), Ok((None, 11)), "nobody was told of two");
    }

    #[test]
    fn without_a_memo_the_node_forgot() {
        assert_eq!(open(found(None, journal(9, None, 4))), Ok((Some(CEILING), 9)));
        let before = StoreFound { forgot_at: Some(90), ..found(None, journal(9, None, 4)) };
        assert_eq!(open(before), Ok((Some(90), 9)), "it is never lowered");
        let later = StoreFound { forgot_at: Some(9), ..found(memo(9, 4), journal(9, None, 4)) };
        assert_eq!(open(later), Ok((Some(9), 9)), "nor forgotten");
    }

    #[test]
    fn what_the_memo_knows_and_is_not_there_was_forgotten() {
        assert_eq!(open(found(memo(9, 4), journal(8, None, 4))), Ok((Some(CEILING), 8)));
        assert_eq!(open(found(memo(9, 4), journal(8, Some(9), 4))), Ok((Some(CEILING), 8)));
    }

    #[test]
    fn a_torn_end_is_cut_off_after_a_power_failure_only() {
        assert_eq!(open(found(None, journal(9, Some(6), 5))), Ok((Some(CEILING), 5)));
        let damaged = Err(StoreRefusal::Damaged { record: 6 });
        assert_eq!(open(found(None, journal(9, Some(6), 6))), damaged, "it was durable");
        assert_eq!(open(found(memo(9, 4), journal(9, Some(6), 4))), damaged, "nothing was torn");
        assert_eq!(open(found(memo(9, 6), journal(5, Some(6), 4))), damaged, "it was confirmed");
        assert_eq!(open(found(memo(9, 6), journal(5, None, 4))), damaged, "it was confirmed, and is missing");
    }

    #[test]
    fn a_store_that_failed_never_opens_again() {
        let sound = found(memo(9, 4), journal(9, None, 4));
        let failed = Memo { written: 9, durable: 4, is_failed: true };
        assert_eq!(open(StoreFound { memo: Some(failed), ..sound }), Err(StoreRefusal::Failed));
        assert_eq!(open(StoreFound { is_failed: true, ..sound }), Err(StoreRefusal::Failed));
        assert_eq!(open(StoreFound { is_failed: true, memo: None, ..sound }), Err(StoreRefusal::Failed));
        let refused = JournalFound { is_refused: true, ..sound.journal };
        assert_eq!(open(StoreFound { journal: refused, ..sound }), Err(StoreRefusal::Unreadable));
    }

    #[test]
    fn what_no_sync_has_confirmed_is_written_anew_before_the_memo_is() {
        let steps = |found: StoreFound| found.open(Rules::default()).unwrap().steps;
        let [first, _, third, last] = steps(found(memo(9, 4), journal(9, None, 3)));
        assert_eq!((first, third), (OpenStep::Forget(None), OpenStep::RewriteBehind(4)));
        assert_eq!(last, OpenStep::Memo(Memo { written: 9, durable: 4, is_failed: false }));
        let [first, _, third, last] = steps(found(None, journal(9, None, 3)));
        assert_eq!((first, third), (OpenStep::Forget(Some(CEILING)), OpenStep::RewriteBehind(9)));
        assert_eq!(last, OpenStep::Memo(Memo { written: 9, durable: 9, is_failed: false }));
    }
}
