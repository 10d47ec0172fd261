//! Recoveries that wait: for somebody who may remember more than those who answer, or for an operator who gives up what only that one has.
//!
//! While a recovery waits its tenures come to nothing, and the members take turns. So what one has found is remembered here until the replica
//! has an entry more: only a recovery that went on orders one.

use std::collections::BTreeMap;
use std::ops::Bound;

use base::{NodeId, ObjectId, WallTime};
use lease::Algorithm;
use replication::{Position, Standing};

use crate::{BlockedStatus, STATUS_BLOCKED_MAX, Shard, ShardEvent};

/// So many are remembered. What is beyond that comes again with its next tenure.
const REMEMBERED_MAX: usize = 4_096;
const _: () = assert!(REMEMBERED_MAX >= STATUS_BLOCKED_MAX);

/// What recoveries at this node have waited for, and the end of the log then.
pub(crate) type Blocked = BTreeMap<ObjectId, (Position, BlockedStatus)>;

impl<A: Algorithm> Shard<A> {
    /// A recovery here waits.
    pub(crate) fn file_blocked(&mut self, object: ObjectId, missing: Vec<NodeId>, forgot: Vec<NodeId>) {
        let Some(hosted) = self.files.hosted.get(&object) else { return };
        let found = BlockedStatus { object, missing: missing.clone(), forgot: forgot.clone() };
        let found = (hosted.replica.tail(), found);
        self.tell(ShardEvent::FileBlocked { object, missing, forgot });
        if self.files.blocked.len() >= REMEMBERED_MAX && !self.files.blocked.contains_key(&object) {
            // To look at all of them each time would take too long.
            let behind = self.files.blocked.range((Bound::Excluded(object), Bound::Unbounded));
            let mut next = behind.chain(&self.files.blocked).map(|(&next, _)| next);
            let Some(over) = next.next().filter(|&next| !self.is_blocked(next)) else { return };
            self.files.blocked.remove(&over);
        }
        self.files.blocked.insert(object, found);
    }

    /// The recoveries at this node that wait, as far as a status lists them.
    pub fn blocked(&self) -> Vec<BlockedStatus> {
        let waiting = self.files.blocked.iter().filter(|&(&object, _)| self.is_blocked(object));
        waiting.map(|(_, (_, found))| found.clone()).take(STATUS_BLOCKED_MAX).collect()
    }

    /// Whether a recovery of the file waits, as far as this node knows. Once all are connected who were missing, only if it is under way.
    fn is_blocked(&self, object: ObjectId) -> bool {
        let Some(hosted) = self.files.hosted.get(&object) else { return false };
        let Some((tail, found)) = self.files.blocked.get(&object) else { return false };
        let is_alone =
            found.missing.is_empty() || found.missing.iter().any(|node| !self.peers.contains_key(node));
        let is_recovering = hosted.replica.standing() == Standing::Recovering;
        hosted.replica.tail() == *tail && (is_alone || is_recovering)
    }

    /// Gives up what only those remember of a file who do not answer, by an operator's word. False if no recovery waits
    /// for anybody, or one for a node that is connected by now: that one is asked. If one did wait a moment ago, it begins anew, and the word is to
    /// be given again.
    pub fn accept_loss(&mut self, now: WallTime, object: ObjectId) -> bool {
        let is_blocked = self.is_blocked(object);
        let missing = self.files.blocked.get(&object).map_or(&[][..], |(_, found)| &found.missing);
        if missing.iter().any(|node| self.peers.contains_key(node)) {
            return false;
        }
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return false };
        let accepted = hosted.replica.accept_loss(now);
        if is_blocked && !accepted {
            hosted.avoided_until = now;
            self.lead_for_damaged(now, object);
        }
        self.drain_replica(now, object);
        self.take_events(now);
        accepted
    }
}
