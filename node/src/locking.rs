//! Locks of volumes' files: who asks whether a request still waits is answered when it does not, or after a while.
//!
//! What is locked and who waits stands in the volume, so it outlives every primary. A client that waits asks for the outcome, as
//! often as it takes and whoever leads: the answer depends on the volume alone.

use std::sync::Arc;

use base::{ObjectId, Span, WallTime};
use lease::Algorithm;
use namespace::{Ask, InodeId, Key, Part, Query as TreeQuery, Ticket};
use replication::Position;

use crate::file::{FileBody, FileReplyBody, Query};
use crate::files::{Asker, Hosted};
use crate::{Shard, Unavailable};

/// So many questions of a volume are kept until they have another answer.
pub(crate) const WAITS_MAX: usize = 1_024;
/// No question is kept for longer: less than a client waits until it asks another daemon.
pub(crate) const HELD_FOR: Span = Span::from_millis(120);

/// A question that is kept.
#[derive(Clone, Debug)]
pub(crate) struct Wait {
    until: WallTime,
    pub(crate) asker: Asker,
    query: Arc<TreeQuery>,
    inode: InodeId,
    ticket: Ticket,
}

/// Questions that are kept, and up to where it is known that they have no other answer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    all: Vec<Wait>,
    seen: Position,
}

impl Wait {
    pub(crate) fn body(&self) -> FileBody {
        FileBody::Ask(Query::Tree(Arc::clone(&self.query)))
    }
}

impl Waits {
    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn take(&mut self) -> Vec<Wait> {
        std::mem::take(&mut self.all)
    }
}

impl Hosted {
    /// Whether a request waits as far as is committed.
    fn is_waiting(&self, inode: InodeId, ticket: Ticket) -> bool {
        match self.replica.machine().tree().part(&Key::Locks(inode)) {
            Some(Part::Locks(locks)) => locks.waiting.iter().any(|waiting| waiting.ticket == ticket),
            _ => false,
        }
    }
}

impl<A: Algorithm> Shard<A> {
    /// Keeps a question what became of a request for a lock, while it waits; who is one too many is to ask again later. False if it is to be
    /// answered at once.
    pub(crate) fn keeps_waiting(
        &mut self,
        now: WallTime,
        object: ObjectId,
        asker: Asker,
        body: &FileBody,
    ) -> bool {
        let FileBody::Ask(Query::Tree(query)) = body else { return false };
        let Ask::Wish { inode, ticket, .. } = query.ask else { return false };
        let Some(hosted) = self.files.hosted.get_mut(&object).filter(|hosted| hosted.serves()) else {
            return false;
        };
        if !hosted.is_waiting(inode, ticket) {
            return false;
        }
        if hosted.waits.all.len() >= WAITS_MAX {
            self.files.reply(asker, FileReplyBody::Unavailable(Unavailable::Overloaded), None);
            return true;
        }
        let (until, query) = (now + HELD_FOR, Arc::clone(query));
        hosted.waits.all.push(Wait { until, asker, query, inode, ticket });
        self.files.visits.insert((until, object));
        true
    }

    /// Answers what has another answer by now, or was kept long enough. Whether there was anything.
    pub(crate) fn release_waits(&mut self, now: WallTime, object: ObjectId) -> bool {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return false };
        let committed = hosted.replica.committed();
        let is_new = std::mem::replace(&mut hosted.waits.seen, committed) != committed;
        let (mut over, mut kept) = (Vec::new(), Vec::new());
        for wait in hosted.waits.take() {
            let is_over = wait.until <= now || is_new && !hosted.is_waiting(wait.inode, wait.ticket);
            if is_over { over.push(wait) } else { kept.push(wait) }
        }
        hosted.waits.all = kept;
        let is_any = !over.is_empty();
        for wait in over {
            self.put_to_replica(now, object, wait.asker, wait.body());
        }
        is_any
    }
}
