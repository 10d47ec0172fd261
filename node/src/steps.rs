//! Leases wanted and given up, a bounded number at a time.
//!
//! An attempt that is not answered within a round trip counts as failed and is made again. If a burst of requests
//! became as many attempts at once, the last would wait for the first beyond that time, and the attempts made again
//! would be most of the work. So the rest of a burst waits here. Renewals never wait.

use std::collections::{BTreeSet, VecDeque};

use base::{NodeId, ObjectId, WallTime};
use lease::{Algorithm, Ended, Refusal, Watermark};

use crate::lock::{Lock, Stage, UNSETTLED};
use crate::members::Views;
use crate::{ReplyBody, Shard, Unavailable};

/// Something to do about a cell's lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// To want it.
    Acquire,
    /// To give it up, to somebody if one is named.
    GiveUp { successor: Option<NodeId>, watermark: Watermark },
}

/// What waits, and how much is under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps {
    waiting: VecDeque<(ObjectId, Step)>,
    /// The cells whose lease will say how it went. A cell that is asked for twice answers once.
    under_way: BTreeSet<ObjectId>,
}

impl Steps {
    /// How many wait or are under way.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.under_way.len()
    }

    /// Takes the step once it is its turn. Its end is an event of the lease.
    pub(crate) fn add(&mut self, cell: ObjectId, step: Step) {
        self.waiting.push_back((cell, step));
    }

    /// The cell's step has come to its end.
    pub(crate) fn end(&mut self, cell: ObjectId) {
        self.under_way.remove(&cell);
    }

    /// Nothing is wanted any longer, and everything is being given up at once.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<A: Algorithm> Shard<A> {
    /// Takes as many steps as may be under way.
    pub(crate) fn run_steps(&mut self, now: WallTime) {
        while self.steps.under_way.len() < self.config.steps_max {
            let Some((cell, step)) = self.steps.waiting.pop_front() else { return };
            let taken = match step {
                Step::Acquire if !self.wants(cell) => continue,
                Step::Acquire if self.is_draining() => {
                    let why = self.unavailable(now).unwrap_or(Unavailable::Stopping);
                    self.not_leased(now, cell, ReplyBody::Unavailable(why));
                    continue;
                }
                Step::Acquire if self.lease.holds(now, cell) => {
                    self.has_already(now, cell);
                    continue;
                }
                // Wanted again meanwhile.
                Step::GiveUp { .. } if self.leased.contains_key(&cell) => continue,
                Step::Acquire => {
                    let views = Views { map: &self.config.map, files: &self.files };
                    self.lease.acquire(now, cell, &views)
                }
                Step::GiveUp { successor: Some(successor), watermark } => {
                    self.lease.hand_over(now, cell, successor, watermark)
                }
                Step::GiveUp { successor: None, watermark } => self.lease.release(now, cell, watermark),
            };
            match (taken, step) {
                (Ok(()), _) => {
                    self.steps.under_way.insert(cell);
                }
                (Err(why), Step::Acquire) => self.not_acquired(now, cell, why),
                // Its end is on its way already.
                (Err(Refusal::GivingUp), Step::GiveUp { .. }) => {}
                (Err(_), Step::GiveUp { .. }) => {
                    self.file_given_up(now, cell);
                    self.lock_given_up(now, cell);
                }
            }
        }
    }

    /// The lease is wanted that was acquired when nobody wanted it any longer.
    fn has_already(&mut self, now: WallTime, cell: ObjectId) {
        if let (true, Some(until)) = (self.leased.contains_key(&cell), self.lease.valid_until(now, cell)) {
            return self.lease_granted(cell, until);
        }
        if let (true, Some(until)) = (self.wants_file(cell), self.lease.valid_until(now, cell)) {
            // Whatever this node has granted by it is to be dropped first.
            return self.file_acquired(now, cell, (until, Ended::Released));
        }
        // What was before that tenure is not known any more, so it is given up and begun anew.
        if let Some(lock) = self.locks.get_mut(&cell) {
            lock.stage = Stage::GivingUp;
            self.steps.add(cell, Step::GiveUp { successor: None, watermark: UNSETTLED });
        }
    }

    /// Whether somebody still wants the lease.
    fn wants(&self, cell: ObjectId) -> bool {
        let is_leasing = |lock: &Lock| matches!(lock.stage, Stage::Leasing);
        self.leased.contains_key(&cell)
            || self.wants_file(cell)
            || self.locks.get(&cell).is_some_and(is_leasing)
    }

    /// The lease may not even be asked for.
    fn not_acquired(&mut self, now: WallTime, cell: ObjectId, why: Refusal) {
        if let (Refusal::GivingUp, Some(lock)) = (why, self.locks.get_mut(&cell)) {
            // Asked for again once that is done.
            lock.stage = Stage::GivingUp;
            return;
        }
        let body = self.refusal(why);
        self.not_leased(now, cell, body);
    }
}
