//! Whose disks are full, and what that means for clients.
//!
//! The driver says so while there is still room for what was accepted already. From then on a primary takes no more data: an entry
//! without any stands in the place of each such change, so that its refusal has a place in the order like every other outcome, and
//! whoever asks again is told the same. All else goes on, removals before all. One backup without space lags behind; as
//! soon as only a minority has any, nothing could be committed, and a client is told rather than kept waiting.

use std::collections::BTreeSet;

use base::NodeId;
use lease::Algorithm;
use replication::Replica;

use crate::file::{Change, File};
use crate::{PeerMessage, Shard, ShardEvent};

impl<A: Algorithm> Shard<A> {
    /// The disk of this node takes no more data, or does again.
    pub fn handle_full(&mut self, is_full: bool) {
        let me = self.me().node;
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

    pub(crate) fn peer_is_full(&mut self, node: NodeId, is_full: bool) {
        if is_full {
            self.files.full.insert(node);
        } else {
            self.files.full.remove(&node);
        }
    }
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
