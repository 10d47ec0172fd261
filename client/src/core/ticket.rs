//! One lock that the client wants or holds, and whom it asks about it.

use base::{MonoTime, NodeId, ObjectId, Span};
use node::{RequestId, Token};

use super::{BACKOFF_MAX, BACKOFF_MIN, Obstacle, ROUNDS};

/// A ticket's state.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) cell: ObjectId,
    pub(super) waits: bool,
    /// A claim that does not wait is kept up until then at least.
    kept_up_until: MonoTime,
    pub(super) stage: Stage,
    /// The members of the lock's cell, the preferred one first.
    pub(super) members: Vec<NodeId>,
    /// Who was named as the one that answers.
    pub(super) hint: Option<NodeId>,
    /// The daemon whose session keeps the lock, or that was asked for it.
    pub(super) at: Option<NodeId>,
    /// The request that waits for its answer.
    pub(super) request: Option<RequestId>,
    pub(super) at_risk: bool,
    /// Why it was not granted yet.
    pub(super) obstacle: Obstacle,
    /// Whose turn it is to be asked.
    turn: usize,
    failures: u32,
}

/// What the client has of the lock.
#[derive(Debug)]
pub(super) enum Stage {
    Wanting,
    Held {
        token: Token,
        /// What is left of a session that keeps it no longer.
        loose_until: Option<MonoTime>,
    },
}

impl Claim {
    pub(super) const fn new(
        cell: ObjectId,
        waits: bool,
        kept_up_until: MonoTime,
        members: Vec<NodeId>,
    ) -> Self {
        Self {
            cell,
            waits,
            kept_up_until,
            stage: Stage::Wanting,
            members,
            hint: None,
            at: None,
            request: None,
            at_risk: false,
            obstacle: Obstacle::Unknown,
            turn: 0,
            failures: 0,
        }
    }

    pub(super) const fn held(&self) -> Option<Token> {
        match self.stage {
            Stage::Held { token, .. } => Some(token),
            Stage::Wanting => None,
        }
    }

    pub(super) const fn loose_until(&self) -> Option<MonoTime> {
        match self.stage {
            Stage::Held { loose_until, .. } => loose_until,
            Stage::Wanting => None,
        }
    }

    /// Whether a session keeps the lock.
    pub(super) const fn is_attached(&self) -> bool {
        matches!(self.stage, Stage::Held { loose_until: None, .. })
    }

    /// A session keeps the lock again.
    pub(super) fn attach(&mut self) {
        if let Stage::Held { loose_until, .. } = &mut self.stage {
            *loose_until = None;
        }
        (self.failures, self.hint, self.at_risk) = (0, None, false);
    }

    /// The session no longer keeps the lock, which lasts until `until` unless it lasted shorter already.
    pub(super) fn loosen(&mut self, until: MonoTime, hint: Option<NodeId>) {
        if let Stage::Held { loose_until, .. } = &mut self.stage {
            *loose_until = Some(loose_until.map_or(until, |before| before.min(until)));
        }
        (self.hint, self.failures) = (hint, 0);
    }

    /// The one asked does not answer for the lock: ask the one named, or the next in turn.
    pub(super) fn pass(&mut self, hint: Option<NodeId>) {
        if hint.is_none() {
            self.turn = (self.turn + 1) % self.members.len();
        }
        self.hint = hint;
        self.failures = self.failures.saturating_add(1);
    }

    /// The members, beginning with whose turn it is.
    pub(super) fn in_turn(&self) -> impl Iterator<Item = NodeId> {
        let count = self.members.len();
        (0..count).map(move |step| self.members[(self.turn + step) % count])
    }

    /// Whether a claim that does not wait has been put to everybody often and long enough.
    pub(super) fn is_hopeless(&self, now: MonoTime) -> bool {
        let tries = u32::try_from(self.members.len()).unwrap_or(u32::MAX).saturating_mul(ROUNDS);
        let is_wanted = !self.waits && self.held().is_none();
        is_wanted && self.failures >= tries && now >= self.kept_up_until
    }

    /// None the first time: most often the one named is right.
    pub(super) fn backoff(&self) -> Span {
        match self.failures {
            0 | 1 => Span::ZERO,
            failures => (BACKOFF_MIN * (1 << failures.min(8))).min(BACKOFF_MAX),
        }
    }
}
