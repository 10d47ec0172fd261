//! Whose disks are full, and what that means for clients.
//!
//! The driver says so while there is still room for what was accepted already. From then on a primary takes no more data: an entry
//! without any stands in the place of each such change, so that its refusal has a place in the order like every other outcome, and
//! whoever asks again is told the same. All else goes on, removals before all. As soon as only a minority has space, nothing could
//! be committed, and a client is told rather than kept waiting.
//!
//! One backup that is full does not hold the others up. It takes what they give it as long as half of what it has kept back is left,
//! and lags behind then: the rest is for its journal and its checkpoints, without which nothing that is removed would ever be free.

use std::collections::BTreeSet;

use base::{NodeId, WallTime};
use lease::Algorithm;
use replication::{Body, Entry, Message, Position, Replica};

use crate::file::{Change, File, Op, Part};
use crate::files::FileMessage;
use crate::{Bug, PeerMessage, Shard, ShardEvent};

/// How much space the disk of a daemon has for more data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskSpace {
    /// There is some.
    Enough,
    /// Only for what was accepted already.
    Little,
    /// Not even for what other daemons have accepted.
    Spent,
}

impl<A: Algorithm> Shard<A> {
    /// The disk of this node has so much space.
    pub fn handle_space(&mut self, space: DiskSpace) {
        let (me, is_full) = (self.me().node, space != DiskSpace::Enough);
        self.files.is_spent = space == DiskSpace::Spent && !self.config.breaks(Bug::ReserveGivenAway);
        if self.is_full() == is_full {
            return;
        }
        self.peer_is_full(me, is_full);
        self.tell(ShardEvent::DiskFull(is_full));
        let peers: Vec<NodeId> = self.peers.keys().copied().collect();
        peers.into_iter().for_each(|peer| self.post(peer, PeerMessage::Full(is_full)));
    }

    /// Whether the disk of this node takes no more data.
    pub fn is_full(&self) -> bool {
        self.files.full.contains(&self.me().node)
    }

    /// Takes away what this disk does not take of what a primary sends: it has no space for that, or it may never be written. False if
    /// nothing is left.
    pub(crate) fn has_disk_for(&mut self, now: WallTime, message: &mut FileMessage) -> bool {
        let FileMessage { object, message, .. } = message;
        let (me, files) = (self.me().node, &mut self.files);
        let mut replica = files.hosted.get_mut(object).map(|hosted| &mut hosted.replica);
        let (is_offer, is_page) =
            (matches!(message, Message::Offer { .. }), matches!(message, Message::Pulled { .. }));
        let is_taken = !(files.is_stalled && (is_offer || is_page))
            && (!files.is_spent || without_data(message, replica.as_deref(), me));
        if let Some(replica) = replica.as_mut().filter(|_| is_page && !is_taken) {
            // The primary keeps its log for whoever asks for a state all the time.
            replica.put_off_pulling(now);
        }
        is_taken
    }

    pub(crate) fn peer_is_full(&mut self, node: NodeId, is_full: bool) {
        if is_full {
            self.files.full.insert(node);
        } else {
            self.files.full.remove(&node);
        }
    }
}

fn without_data(message: &mut Message<File>, replica: Option<&Replica<File>>, me: NodeId) -> bool {
    let is_here = |at: Position| {
        let kept = |replica: &Replica<File>| replica.entry(at.seq).map(|entry| entry.at);
        replica.is_some_and(|replica| at.seq <= replica.committed().seq || kept(replica) == Some(at))
    };
    match message {
        // A new primary cannot do without what it asks others for.
        Message::Append { epoch, entries, .. } if epoch.node != me => {
            let taken = entries.iter().take_while(|entry| !takes_space(entry) || is_here(entry.at)).count();
            let is_all = entries.is_empty();
            entries.truncate(taken);
            is_all || taken > 0
        }
        Message::Pulled { page, .. } => {
            let mut parts = page.parts.iter().filter_map(|(_, part)| part.as_ref());
            parts.all(|(_, part)| matches!(part, Part::Attributes(_)))
        }
        _ => true,
    }
}

fn takes_space(entry: &Entry<Op>) -> bool {
    matches!(&entry.body, Body::Op { op, .. } if op.change.takes_space())
}

/// What becomes of a change of a file, if these nodes are `full`.
pub(crate) fn within_space(
    change: &Change,
    replica: &Replica<File>,
    full: &BTreeSet<NodeId>,
    me: NodeId,
) -> Change {
    let members = &replica.view().members;
    let with_space = members.as_slice().iter().filter(|member| !full.contains(member)).count();
    let is_short = full.contains(&me) || with_space < members.majority();
    if is_short && change.takes_space() { Change::NoSpace } else { change.clone() }
}
