//! Leases wanted and given up, a bounded number at a time.
//!
//! An attempt that is not answered within a round trip counts as failed and is made again. If a burst of requests
//! became as many attempts at once, the last would wait for the first beyond that time, and the attempts made again
//! would be most of the work. So the rest of a burst waits here. Renewals never wait.

use std::collections::VecDeque;

use base::{NodeId, ObjectId, WallTime};
use lease::{Algorithm, Refusal, Watermark};

use crate::Shard;
use crate::lock::{Lock, Stage};

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
    under_way: usize,
}

impl Steps {
    /// Whether nothing waits and nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way == 0
    }

    /// Takes the step once it is its turn. Its end is an event of the lease.
    pub(crate) fn add(&mut self, cell: ObjectId, step: Step) {
        self.waiting.push_back((cell, step));
    }

    /// A step has come to its end.
    pub(crate) const fn end_one(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Nothing is wanted any longer, and everything is being given up at once.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl<A: Algorithm> Shard<A> {
    /// Takes as many steps as may be under way.
    pub(crate) fn run_steps(&mut self, now: WallTime) {
        while self.steps.under_way < self.config.steps_max {
            let Some((cell, step)) = self.steps.waiting.pop_front() else { return };
            let taken = match step {
                Step::Acquire if !self.wants(cell) => continue,
                Step::Acquire => self.lease.acquire(now, cell, &*self.config.map),
                Step::GiveUp { successor: Some(successor), watermark } => {
                    self.lease.hand_over(now, cell, successor, watermark)
                }
                Step::GiveUp { successor: None, watermark } => self.lease.release(now, cell, watermark),
            };
            match (taken, step) {
                (Ok(()), _) => self.steps.under_way += 1,
                (Err(why), Step::Acquire) => self.not_acquired(cell, why),
                // Its end is on its way already.
                (Err(Refusal::GivingUp), Step::GiveUp { .. }) => {}
                (Err(_), Step::GiveUp { .. }) => self.lock_given_up(now, cell),
            }
        }
    }

    /// Whether somebody still wants the lease.
    fn wants(&self, cell: ObjectId) -> bool {
        let is_leasing = |lock: &Lock| matches!(lock.stage, Stage::Leasing);
        self.leased.contains_key(&cell) || self.locks.get(&cell).is_some_and(is_leasing)
    }

    /// The lease may not even be asked for.
    fn not_acquired(&mut self, cell: ObjectId, why: Refusal) {
        if let (Refusal::GivingUp, Some(lock)) = (why, self.locks.get_mut(&cell)) {
            // Asked for again once that is done.
            lock.stage = Stage::GivingUp;
            return;
        }
        let body = self.refusal(why);
        self.not_leased(cell, body);
    }
}
