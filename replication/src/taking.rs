//! Who of the members is without a state of its own, and who may drop what it has for the primary's.
//!
//! What was durable at a majority must not be left on one disk. So no more members than may fail are without a state at a time, until what
//! they took over is durable; and who has least goes first: what the others have is there more often then. A member that has said nothing yet may
//! be without one. All of that ends after a while: whoever is gone keeps nobody waiting for ever.

use std::collections::BTreeMap;

use base::{Members, NodeId, Seq, WallTime};

use crate::transfer::SILENT_RETRIES;
use crate::{Account, Config, Position};

/// What a primary knows of the others.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Takers {
    since: WallTime,
    all: BTreeMap<NodeId, Taker>,
}

#[derive(Clone, Copy, Hash, Debug)]
struct Taker {
    has: Has,
    /// When it said something of that last.
    heard: WallTime,
}

/// What a member has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Has {
    /// It has not said that.
    Unknown,
    /// A state and a log that went so far at least.
    Whole(Position),
    /// Nothing, or nothing that makes sense.
    Nothing,
    /// The same, and it was offered a state.
    Given,
    /// It was offered a state, and drops what it has.
    Taking,
    /// What was offered. It is being made durable.
    Taken(Seq),
}

impl Takers {
    /// A tenure begins, with what these have said they have.
    pub(crate) fn new(
        now: WallTime,
        members: impl Iterator<Item = NodeId>,
        promised: &BTreeMap<NodeId, Account>,
    ) -> Self {
        let has = |node| match promised.get(&node) {
            None => Has::Unknown,
            Some(account) if account.tail == Position::START || !account.memory.is_whole() => Has::Nothing,
            Some(account) => Has::Whole(account.tail),
        };
        Self { since: now, all: members.map(|node| (node, Taker { has: has(node), heard: now })).collect() }
    }

    /// It has a state, and entries up to here at least.
    pub(crate) fn has_state(&mut self, node: NodeId, upto: Position) {
        if let Some(taker) = self.all.get_mut(&node) {
            taker.has = match taker.has {
                Has::Unknown | Has::Nothing | Has::Given if upto > Position::START => Has::Whole(upto),
                Has::Whole(before) => Has::Whole(before.max(upto)),
                has => has,
            };
        }
    }

    /// It has a state that goes so far, and needs another one. If it names none it has no state; or it has one, and takes no more in, if it was
    /// said to have one before.
    pub(crate) fn misses(&mut self, now: WallTime, node: NodeId, committed: Option<Position>) {
        if let Some(committed) = committed {
            return self.has_state(node, committed);
        }
        let Some(taker) = self.all.get_mut(&node) else { return };
        match taker.has {
            Has::Unknown | Has::Nothing => *taker = Taker { has: Has::Nothing, heard: now },
            Has::Whole(_) | Has::Taken(_) => *taker = Taker { has: Has::Taking, heard: now },
            Has::Given | Has::Taking => {}
        }
    }

    /// It was offered a state. If it has taken nothing of the last one the others wait no longer for it than they would.
    pub(crate) fn offered(&mut self, now: WallTime, node: NodeId, takes_nothing: bool) {
        let before = self.all.get(&node).copied();
        let has_nothing = before.is_some_and(|before| matches!(before.has, Has::Nothing | Has::Given));
        let has = if has_nothing { Has::Given } else { Has::Taking };
        let again = before.filter(|before| takes_nothing && before.has == has);
        self.all.insert(node, again.unwrap_or(Taker { has, heard: now }));
    }

    /// Whether it was offered a state, and has not written it.
    pub(crate) fn is_taking(&self, node: NodeId) -> bool {
        self.all.get(&node).is_some_and(|taker| matches!(taker.has, Has::Given | Has::Taking))
    }

    /// It is there, and takes over what it was offered.
    pub(crate) fn hear(&mut self, now: WallTime, node: NodeId) {
        if let Some(taker) = self.all.get_mut(&node) {
            taker.heard = now;
        }
    }

    /// It has written what it was offered.
    pub(crate) fn has_taken(&mut self, now: WallTime, node: NodeId, upto: Seq) {
        self.all.insert(node, Taker { has: Has::Taken(upto), heard: now });
    }

    /// What it has up to here is durable. Whether it was waited for.
    pub(crate) fn is_durable(&mut self, node: NodeId, upto: Position) -> bool {
        let is_it = |taker: &&mut Taker| matches!(taker.has, Has::Taken(taken) if taken <= upto.seq);
        let Some(taker) = self.all.get_mut(&node).filter(is_it) else { return false };
        taker.has = Has::Whole(upto);
        true
    }

    /// Whether a member may drop what it has, where entries behind `base` are all that the primary's log has.
    pub(crate) fn may_drop(
        &self,
        now: WallTime,
        node: NodeId,
        (members, base): (&Members, Seq),
        config: &Config,
    ) -> bool {
        let is_fresh = |said: WallTime| now.since(said) < config.retry_after * SILENT_RETRIES;
        let taker = |node: &NodeId| self.all.get(node);
        let has = taker(&node).map(|taker| taker.has);
        if matches!(has, Some(Has::Nothing | Has::Given)) || !members.contains(node) {
            return true;
        }
        let others = || members.as_slice().iter().filter(|&&other| other != node).filter_map(taker);
        let is_without = |taker: &&Taker| !matches!(taker.has, Has::Whole(_)) && is_fresh(taker.heard);
        let spare = members.as_slice().len() - members.majority();
        let has_less = |other: &Taker| match (other.has, has) {
            (Has::Whole(theirs), Some(Has::Whole(own))) => theirs.seq < base && theirs < own,
            _ => false,
        };
        others().filter(is_without).count() < spare.max(1)
            && !(is_fresh(self.since) && others().any(has_less))
    }
}
