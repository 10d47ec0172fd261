//! A lock as its owner sees it, the owner of its cell's lease: who has it, who waits, and what its members were asked.

use std::collections::VecDeque;

use base::{ClientId, Epoch, WallTime};
use lease::{Ended, Watermark};

use crate::{Grant, Record, RequestId, SessionId, Token};

/// One lock.
#[derive(Clone, Debug)]
pub(crate) struct Lock {
    pub(crate) stage: Stage,
    /// The tenure, once it was promised.
    pub(crate) epoch: Epoch,
    /// A number to go above: somebody promised it.
    pub(crate) highest: u64,
    /// What the members were last asked to keep.
    pub(crate) record: Option<Record>,
    /// The latest record that this process has seen or written since it has the lease.
    pub(crate) latest: Option<Record>,
    /// Who has the lock.
    pub(crate) grant: Option<Grant>,
    /// By which session, if the client is attached here.
    pub(crate) holder: Option<SessionId>,
    /// The write that is under way.
    pub(crate) write: Option<Pending>,
    /// Whether a majority keeps a record that agrees with `grant`.
    pub(crate) settled: bool,
    /// Who wants the lock, in order.
    pub(crate) waiters: VecDeque<Waiter>,
    /// Who says that it has the lock, until that can be judged.
    pub(crate) returning: Vec<Returning>,
}

/// How far this node is as the owner.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// It wants the lease.
    Leasing,
    /// It has the lease, and asks a majority for promises and records.
    Promising(Box<Promises>),
    /// A client may still believe that it holds the lock; nobody else gets it before then.
    Grace(WallTime),
    /// It serves.
    Serving,
    /// It gives the lease up.
    GivingUp,
}

/// Answers to a promise; a bit for each member.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promises {
    pub(crate) granted: u16,
    pub(crate) refused: u16,
    /// Members that would know of all that the dead granted.
    pub(crate) knowing: u16,
    pub(crate) latest: Option<Record>,
    pub(crate) before: Before,
}

/// What was before this tenure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Before {
    /// A tenure of this same process under a lower number, never interrupted.
    #[default]
    Own,
    /// Another tenure, which ended so.
    Other { ended: Ended, watermark: Option<Watermark> },
}

/// A write under way.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) accepted: u16,
    pub(crate) refused: u16,
    pub(crate) then: Then,
}

/// What follows once a majority keeps the record.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// The waiter has the lock.
    Grant(Waiter),
    /// The returning client keeps it.
    Keep(Asker),
    /// Nobody is to be told.
    Nothing,
}

/// A client's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asker {
    pub(crate) session: SessionId,
    pub(crate) client: ClientId,
    pub(crate) id: RequestId,
}

/// A client that wants the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Waiter {
    pub(crate) asker: Asker,
    /// Whether it waits while somebody else has it.
    pub(crate) waits: bool,
    /// Whether it was told that it is in the queue.
    pub(crate) told: bool,
}

/// A client that says that it has the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Returning {
    pub(crate) asker: Asker,
    pub(crate) token: Token,
    /// Whether it wants to keep it; otherwise it gives it back.
    pub(crate) keeps: bool,
}

impl Lock {
    pub(crate) const fn new(stage: Stage) -> Self {
        Self {
            stage,
            epoch: Epoch { number: 0, node: base::NodeId(0) },
            highest: 0,
            record: None,
            latest: None,
            grant: None,
            holder: None,
            write: None,
            settled: false,
            waiters: VecDeque::new(),
            returning: Vec::new(),
        }
    }

    /// The end of this tenure's writes, for whoever comes next: the zero watermark if somebody may still believe in
    /// a grant that is not in a majority's records.
    pub(crate) fn watermark(&self) -> Watermark {
        if !self.settled {
            return UNSETTLED;
        }
        let version = self.record.map_or(0, |record| record.version);
        Watermark { epoch: self.epoch, seq: base::Seq(u64::from(version) + 1) }
    }

    /// Whether it is known who holds it.
    pub(crate) const fn is_decided(&self) -> bool {
        matches!(self.stage, Stage::Serving | Stage::Grace(_))
    }

    /// Whether the client holds the lock with this token.
    pub(crate) fn is_granted(&self, client: ClientId, token: Token) -> bool {
        self.grant == Some(Grant { client, token })
    }
}

/// The watermark of a tenure that ended before its grants were settled.
pub(crate) const UNSETTLED: Watermark =
    Watermark { epoch: Epoch { number: 0, node: base::NodeId(0) }, seq: base::Seq(0) };

/// Whether `watermark` tells that the tenure before was settled with exactly what was found.
pub(crate) fn is_settled(watermark: Option<Watermark>, found: Option<Record>) -> bool {
    let Some(Watermark { epoch, seq }) = watermark else { return false };
    match seq.0.checked_sub(1) {
        None => false,
        // Nothing was written in that tenure: what is found is older, and it found nobody holding the lock.
        Some(0) => found.is_none_or(|record| record.epoch < epoch),
        Some(version) => {
            found.is_some_and(|record| record.epoch == epoch && u64::from(record.version) == version)
        }
    }
}
