//! An operator who changes the members of files, one at a time, while everything else goes on.
//!
//! It asks some daemon, follows those who name another one, and asks again until it is told that the change is done, or
//! gives it up. What it was told is done must be so at every later primary.

use base::{NodeId, ObjectId, Span};
use lease::Algorithm;
use node::{Changed, MemberChange, MembersError};
use replication::Replica;

use super::world::{Task, World};
use crate::plan::span_between;
use crate::{FaultKind, Violation};

/// A file never has more members.
const MEMBERS_MAX: usize = 4;
/// After so many answers that are no end an operator turns to something else.
const TRIES: u32 = 60;
/// It asks again after this long at most.
const ASK_AGAIN: Span = Span::from_millis(200);

/// What an operator is about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    object: ObjectId,
    change: MemberChange,
    /// Whom it asks next.
    asked: usize,
    tries: u32,
}

impl<A: Algorithm> World<'_, A> {
    /// An operator wants the members of some file changed.
    pub(super) fn order_some_change(&mut self) -> Result<(), Violation> {
        if self.stores_lost() > 0 {
            // First of all what is there has to stay there.
            return Ok(());
        }
        let members_min = self.plan.members_min;
        let files: Vec<ObjectId> =
            self.files.iter().copied().filter(|&file| self.checkers.replies.is_made(file)).collect();
        let Some(&object) = self.dice.faults.pick(&files) else { return Ok(()) };
        let asked = self.dice.faults.index(self.daemons.len());
        let Some(shard) = self.daemons[asked].shard.as_ref() else { return Ok(()) };
        let members = shard.members_of(object);
        let all = self.daemons.iter().map(|daemon| daemon.id);
        let others: Vec<NodeId> = all.filter(|&node| !members.contains(node)).collect();
        let count = members.as_slice().len();
        let grows = count <= members_min || count < MEMBERS_MAX && self.dice.faults.chance(1, 2);
        let change = match (self.dice.faults.pick(&others), self.dice.faults.pick(members.as_slice())) {
            (Some(&node), _) if grows => MemberChange::Admit(node),
            (_, Some(&node)) if count > members_min => MemberChange::Dismiss(node),
            _ => return Ok(()),
        };
        self.summary.faults.count(FaultKind::ViewChange);
        self.note(Some(object), format_args!("an operator wants {change:?}"));
        self.ask_for_change(Order { object, change, asked, tries: TRIES })
    }

    pub(super) fn ask_for_change(&mut self, order: Order) -> Result<(), Violation> {
        if self.is_calm {
            return Ok(());
        }
        let Order { object, change, asked, tries } = order;
        if let MemberChange::Dismiss(node) = change
            && !self.may_lose(object, node)
        {
            return Ok(());
        }
        let mut told = None;
        self.call(asked, |shard, now| told = Some(shard.change_members(now, object, change)))?;
        if self.is_traced() {
            self.note(Some(object), format_args!("n{asked} says to {change:?}: {told:?}"));
        }
        let next = match told {
            Some(Ok(Changed::Done)) => {
                self.summary.members_changed += 1;
                return Ok(());
            }
            Some(Err(MembersError::Elsewhere(node))) => node.0 as usize,
            Some(Ok(Changed::UnderWay) | Err(MembersError::Undecided)) => asked,
            _ => self.dice.faults.index(self.daemons.len()),
        };
        let at = self.now + span_between(Span::ZERO, ASK_AGAIN, &mut self.dice.faults);
        if tries > 0 {
            self.queue.push(at, Task::Order(Order { asked: next, tries: tries - 1, ..order }));
        } else if let MemberChange::Admit(node) = change {
            // A newcomer that does not come would keep others from coming.
            let change = MemberChange::Dismiss(node);
            self.queue.push(at, Task::Order(Order { object, change, asked: next, tries: TRIES }));
        }
        Ok(())
    }

    /// Whether enough members of a file are left without a node, whatever else was ordered before: who does not run may
    /// have a change in its log.
    fn may_lose(&self, object: ObjectId, node: NodeId) -> bool {
        let replicas = self.daemons.iter().filter_map(|daemon| daemon.shard.as_ref()?.file(object));
        let latest = replicas.map(Replica::view).max_by_key(|view| view.id);
        let Some(members) = latest.map(|view| view.members.as_slice()) else { return false };
        if !members.contains(&node) {
            return true;
        }
        let to_be = |node: &NodeId| {
            let shard = self.daemons[node.0 as usize].shard.as_ref();
            Some(shard?.file(object)?.members_to_be().as_slice())
        };
        let goes_already =
            members.iter().any(|node| to_be(node).is_none_or(|to_be| to_be.len() < members.len()));
        members.len() > self.plan.members_min + usize::from(goes_already)
    }
}
