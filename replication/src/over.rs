//! What nobody needs anything of any more: an object of which no member has anything, or all have the same on disk and somebody who
//! knows what it is about says that it is over.
//!
//! Then all members forget it. Who hears nothing of that keeps what there is, and whoever leads next gives it to the others again and
//! ends it once more. So nothing of an object may be over before all members have its end on disk: of one that has not, what was
//! before would come back.

use base::{Epoch, NodeId, ViewId};

use crate::replica::Role;
use crate::state::Holding;
use crate::{Event, Machine, Message, Position, Replica, When};

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

    /// All members may forget what they have, if that is what the tenure found or made. Who cannot read what it had is told only once
    /// all have said that they have nothing.
    pub(crate) fn tell_over(&mut self) {
        let (me, view) = (self.me, self.view().clone());
        let others = view.members.as_slice().iter().copied().filter(|&node| node != me);
        let (epoch, told): (Epoch, Vec<NodeId>) = match &self.role {
            Role::Backup => return,
            Role::Candidate(candidate) => {
                let have_all =
                    view.members.as_slice().iter().all(|node| candidate.promised.contains_key(node));
                let is_whole = |node: &NodeId| {
                    candidate.promised.get(node).is_some_and(|account| account.memory.is_whole())
                };
                (candidate.tenure.epoch, others.filter(|node| have_all || is_whole(node)).collect())
            }
            Role::Primary(primary) => (primary.tenure.epoch, others.collect()),
        };
        for node in told {
            self.send(node, Message::Forget { epoch, view: view.id }, When::Now);
        }
    }

    /// A primary says that this member may forget the object.
    pub(crate) fn handle_over(&mut self, epoch: Epoch, view: ViewId) {
        // What it says is about what it has found or made. Who has promised to follow another one since has something newer.
        let has_nothing = self.log.tail() == Position::START;
        let is_same = has_nothing || self.holding == Holding::Whole && self.accepted == epoch;
        let is_backup = matches!(self.role, Role::Backup);
        if is_backup && self.promised == epoch && self.view().id == view && is_same {
            self.tell_event(Event::Over);
        }
    }
}
