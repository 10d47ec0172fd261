//! What nobody needs anything of any more: an object of which no member has anything, or all have the same on disk and somebody who
//! knows what it is about says that it is over.
//!
//! Then all members forget it. Who hears nothing of that keeps what there is, and whoever leads next gives it to the others again and
//! ends it once more. So nothing of an object may be over before all members have its end on disk: of one that has not, what was
//! before would come back.

use base::{Epoch, NodeId, ViewId};

use crate::replica::Role;
use crate::state::Holding;
use crate::{Account, Event, Machine, Message, Position, Replica, When};

impl<M: Machine> Replica<M> {
    /// Whether this is the primary, and all members have on disk all that was ever proposed, which is committed.
    pub fn is_everywhere(&self) -> bool {
        let Role::Primary(primary) = &self.role else { return false };
        let tail = self.log.tail().seq;
        let is_there = |node: &NodeId| primary.peers.get(node).is_some_and(|peer| peer.synced >= tail);
        let members = self.view().members.as_slice();
        primary.serves && self.is_settled() && self.log.committed() >= tail && members.iter().all(is_there)
    }

    /// The object is over: nobody needs what members have of it. This one steps down, and may be [buried](Self::bury).
    pub fn end(&mut self) {
        self.tell_over();
        self.resign();
    }

    /// All members may forget what they have, if that is what the tenure found or made. Who cannot read what it had is told only if so many
    /// remember that one of them has had what was ever committed, or once nobody else is waited for. Who lacks parts of it is told only if it was
    /// over.
    pub(crate) fn tell_over(&mut self) {
        let (me, view) = (self.me, self.view().clone());
        let others = view.members.as_slice().iter().copied().filter(|&node| node != me);
        let (epoch, told): (Epoch, Vec<NodeId>) = match &self.role {
            Role::Backup => return,
            Role::Candidate(candidate) => {
                let is_sure = candidate.may_give_up() || candidate.remember_enough();
                let was_over = candidate.was_over(&self.config);
                let has_nothing = |account: &Account| match account.frozen_at {
                    // Its log and all other parts may be all that is left.
                    Some(_) => was_over,
                    None => is_sure || account.memory.is_whole(),
                };
                let is_told = |node: &NodeId| candidate.promised.get(node).is_some_and(has_nothing);
                (candidate.tenure.epoch, others.filter(is_told).collect())
            }
            Role::Primary(primary) => (primary.tenure.epoch, others.collect()),
        };
        for node in told {
            self.send(node, Message::Forget { epoch, view: view.id }, When::Now);
        }
    }

    /// A primary says that this member may forget the object.
    pub(crate) fn handle_over(&mut self, epoch: Epoch, view: ViewId) {
        // What it says is about what it has found or made. Who has promised to follow another one since has something newer. What cannot be
        // given to anybody it has not found.
        let is_apart = self.frozen_at().is_some() && self.memory().is_whole();
        let has_nothing = self.log.tail() == Position::START || is_apart;
        let is_same = has_nothing || self.holding == Holding::Whole && self.accepted == epoch;
        let is_backup = matches!(self.role, Role::Backup);
        if is_backup && self.promised == epoch && self.view().id == view && is_same {
            self.tell_event(Event::Over);
        }
    }
}
