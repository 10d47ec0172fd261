//! Files that nobody has open any more, of which something is not durable: a while later it is made so, that of many files together.
//!
//! What is owed of a file takes memory until then, and whoever opens and syncs it again is told what came of it.

use std::collections::{BTreeMap, BTreeSet};

use base::{MonoTime, ObjectId, Span};

use super::job::Task;
use super::{FileTicket, Files, IDLE_MAX, OBJECTS_MAX};

/// So long after a file was closed. Many are removed before.
const AFTER: Span = Span::from_secs(5);
/// So long after nobody answered for it.
const LATER: Span = Span::from_secs(10);
/// Who was tried so often in vain is tried later: after some seconds, which a failover does not take.
pub(super) const TRIES_MAX: u32 = 64;
/// What is closed within this time is made durable together.
const TOGETHER: Span = Span::from_secs(1);
/// So many files are synced at a time that nobody waits for. Daemons have room for what others want.
pub(super) const SYNCS_MAX: usize = 512;
/// When so many are closed, the next is not waited with.
const CLOSED_MANY: usize = OBJECTS_MAX / 2;
/// When fewer can be forgotten, all are not looked through again for so long: that takes milliseconds.
const FEW: usize = OBJECTS_MAX / 16;
const LOOKS_EVERY: Span = Span::from_millis(100);

const _: () = assert!(CLOSED_MANY + SYNCS_MAX <= OBJECTS_MAX, "there is room for files that are open");

/// All of them.
#[derive(Debug)]
pub(super) struct Closed {
    /// When each is to be synced; none while it is.
    files: BTreeMap<ObjectId, Option<MonoTime>>,
    due: BTreeSet<(MonoTime, ObjectId)>,
    /// When all files may be looked through again.
    looks_at: MonoTime,
}

impl Closed {
    pub(super) const fn new() -> Self {
        Self { files: BTreeMap::new(), due: BTreeSet::new(), looks_at: MonoTime::from_micros(0) }
    }

    fn set(&mut self, file: ObjectId, due: MonoTime) {
        self.remove(file);
        self.files.insert(file, Some(due));
        self.due.insert((due, file));
    }

    /// It is open again, or nothing is owed of it. False if it was not here.
    fn remove(&mut self, file: ObjectId) -> bool {
        let known = self.files.remove(&file);
        if let Some(Some(at)) = known {
            self.due.remove(&(at, file));
        }
        known.is_some()
    }

    fn under_way(&self) -> usize {
        self.files.len() - self.due.len()
    }

    /// When the next is to be synced, if it may be.
    pub(super) fn next_due(&self) -> Option<MonoTime> {
        self.due.first().filter(|_| self.under_way() < SYNCS_MAX).map(|&(at, _)| at)
    }
}

impl Files {
    /// Nothing more is asked of it, but that what is owed becomes durable: that takes what is shown, too.
    pub fn forget_file(&mut self, now: MonoTime, object: ObjectId) {
        let wait = if self.closed.files.len() < CLOSED_MANY { AFTER } else { Span::ZERO };
        self.closed.set(object, (now + wait).rounded_down(TOGETHER).max(now));
        self.disown_removed(object);
        self.forget_closed(object);
    }

    /// Somebody has it again, and is told himself what becomes of it.
    pub fn remember_file(&mut self, object: ObjectId) {
        self.closed.remove(object);
    }

    /// The file was removed for good, for everybody but who has it open.
    pub fn note_removed(&mut self, object: ObjectId) {
        if let Some(known) = self.objects.get_mut(&object) {
            known.is_removed = true;
            self.disown_removed(object);
            self.forget_closed(object);
        }
    }

    fn disown_removed(&mut self, object: ObjectId) {
        if self.is_closed(object)
            && let Some(known) = self.objects.get_mut(&object).filter(|known| known.is_removed)
        {
            known.owed.clear();
        }
    }

    pub(super) fn forget_closed(&mut self, object: ObjectId) {
        if self.objects.get(&object).is_none_or(|object| object.is_idle()) && self.closed.remove(object) {
            self.shown.forget(object);
        }
    }

    /// Has made durable what is owed of closed files whose time it is.
    pub(super) fn sync_closed(&mut self, now: MonoTime) {
        while self.closed.next_due().is_some_and(|at| at <= now)
            && let Some((_, object)) = self.closed.due.pop_first()
        {
            self.closed.files.insert(object, None);
            self.start_sync(now, object);
            let is_synced = self.objects.get(&object).is_some_and(|known| known.sync.is_some());
            // What is to be synced may have no result yet.
            if !is_synced && self.closed.files.get(&object) == Some(&None) {
                self.closed.set(object, now + AFTER);
            }
            self.forget_closed(object);
        }
    }

    pub(super) fn is_closed(&self, object: ObjectId) -> bool {
        self.closed.files.contains_key(&object)
    }

    /// Tries later to sync a closed file for which nobody answers, so often: others are not to wait for that. Whether it is one.
    pub(super) fn put_off(&mut self, now: MonoTime, key: FileTicket, tries_max: u32) -> bool {
        let Some(job) = self.jobs.get(&key).filter(|job| job.tries() >= tries_max) else { return false };
        let Task::Sync(syncing) = &job.task else { return false };
        let object = job.object;
        let waits_for_next = self.objects.get(&object).is_some_and(|known| !known.waiters.is_empty());
        if waits_for_next || !syncing.waiters.is_empty() || !self.is_closed(object) {
            return false;
        }
        self.drop_job(key);
        self.closed.set(object, now + LATER);
        true
    }

    /// A sync of this file has ended.
    pub(super) fn closed_synced(&mut self, now: MonoTime, object: ObjectId) {
        self.forget_closed(object);
        if self.is_closed(object) {
            self.closed.set(object, now + AFTER);
        }
        self.sync_closed(now);
    }

    /// Forgets files that nobody wants anything of.
    pub(super) fn forget_idle(&mut self) {
        let number = &mut self.number;
        self.objects.retain(|_, object| {
            let is_idle = object.is_idle();
            if is_idle {
                // A number must not come twice.
                *number = object.next().max(*number);
            }
            !is_idle
        });
        self.idle_at = IDLE_MAX.max(2 * self.objects.len());
    }

    /// The same, and makes durable what is owed of others so that they can be, later.
    pub(super) fn forget(&mut self, now: MonoTime) {
        if now < self.closed.looks_at {
            return;
        }
        let before = self.objects.len();
        self.forget_idle();
        if before - self.objects.len() < FEW {
            self.closed.looks_at = now + LOOKS_EVERY;
        }
        // What is closed has its own turn.
        let open = self.objects.iter().filter(|&(&id, _)| !self.is_closed(id));
        let (synced, others): (Vec<_>, Vec<_>) = open.partition(|(_, object)| object.sync.is_some());
        let quiet = others.into_iter().filter(|(_, object)| object.under_way == 0).map(|(&id, _)| id);
        let quiet: Vec<ObjectId> = quiet.take(SYNCS_MAX.saturating_sub(synced.len())).collect();
        quiet.into_iter().for_each(|object| self.start_sync(now, object));
    }
}
