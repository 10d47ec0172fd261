//! What a primary makes of what clients want done to files and to volumes, before it becomes an entry.
//!
//! An entry has in it whatever the state does not determine. What a client says of that is not taken: when it is, who the
//! client is, where a new file is replicated, and who has open what loses its name, the primary puts there.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{ClientId, Members, NodeId, ObjectId, WallTime};
use lease::Algorithm;
use namespace::{Born, Change as TreeChange, InodeId, Make, Op as TreeOp, Who, cost};
use replication::{Position, ProposeError, Replica, Request};

use crate::file::{Answer, Change, File, FileBody, FileError, FileReply, FileReplyBody, Op, Query};
use crate::files::Hosted;
use crate::message::object_of;
use crate::space::within_space;
use crate::{Bug, ClusterMap, Rules, Shard, Unavailable};

/// While answers of trees take so much memory, no more questions about them are taken.
const ANSWERS_BYTES_MAX: u64 = 16 << 20;
/// So many questions and syncs of one volume wait at once.
const ASKING_MAX: usize = 512;
/// So much of what is doomed is deleted at a time.
const DELETED_AT_ONCE: usize = 64;

/// Where a certificate would be named, of a daemon that deletes something. It is no client that ends: what it asks for is to be done
/// whenever it leads again.
pub(crate) const OF_DAEMONS: u64 = 0;

/// Who asks for a change, of what, and when.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    pub(crate) now: WallTime,
    pub(crate) object: ObjectId,
    pub(crate) client: ClientId,
}

/// What is known about the cluster where a change is asked for.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) map: &'a ClusterMap,
    pub(crate) full: &'a BTreeSet<NodeId>,
    pub(crate) me: NodeId,
    pub(crate) rules: Rules,
}

/// The operation for a change that a client asks for, if it becomes the next entry of the replica that leads here.
pub(crate) fn operation(asked: Asked, change: &Change, replica: &Replica<File>, place: Place<'_>) -> Op {
    let mut change = within_space(change, replica, place.full, place.me);
    if let Change::Tree(op) = &mut change {
        let op = Arc::make_mut(op);
        if !place.rules.breaks(Bug::ClientSaysWhen) {
            (op.time, op.client) = (asked.now, asked.client);
        }
        match &mut op.change {
            TreeChange::Create { make: Make::File { replicas }, .. } => {
                if let Some(next) = replica.next_position() {
                    *replicas = members_of_next(asked.object, next, place.map);
                }
            }
            // Nobody has anything open yet.
            TreeChange::Unlink { holders, .. }
            | TreeChange::RemoveDirectory { holders, .. }
            | TreeChange::Rename { holders, .. } => holders.clear(),
            _ => {}
        }
    }
    Op { time: asked.now, change }
}

/// Where the file is replicated that the next entry creates.
fn members_of_next(volume: ObjectId, next: Position, map: &ClusterMap) -> Members {
    let inode = InodeId::of(Born { epoch: next.epoch, seq: next.seq });
    map.view(file_object(volume, inode)).members.clone()
}

/// The object with the data of a file of a volume; or the volume that a name in the list of all volumes is. Never a lock.
pub fn file_object(volume: ObjectId, inode: InodeId) -> ObjectId {
    let mut hasher = blake3::Hasher::new_derive_key("fleasefs 2026 data of an inode");
    for number in [volume.high, volume.low, inode.number, inode.epoch.number, inode.epoch.node.0.into()] {
        hasher.update(&number.to_le_bytes());
    }
    object_of(hasher.finalize().as_bytes())
}

/// The list of all volumes: a tree with a directory for each.
pub fn list_of_volumes() -> ObjectId {
    let hash = blake3::derive_key("fleasefs 2026 list of volumes", &[]);
    object_of(&hash)
}

/// Why a request is not even looked into, if it is not: so much memory answers take that wait to be sent.
pub(crate) fn refusal(body: &FileBody, hosted: &Hosted, answers: u64) -> Option<FileReplyBody> {
    let refused = match body {
        FileBody::Change { change, .. } => match (change.check(), change) {
            (Err(error), _) => error,
            (Ok(()), Change::NoSpace) => FileError::NotForClients,
            (Ok(()), Change::Tree(op)) if !is_for_clients(&op.change) => FileError::NotForClients,
            _ => return None,
        },
        FileBody::Ask(Query::Tree(_)) if answers > ANSWERS_BYTES_MAX || hosted.asking.len() >= ASKING_MAX => {
            return Some(FileReplyBody::Unavailable(Unavailable::Overloaded));
        }
        FileBody::Create | FileBody::Ask(_) | FileBody::Sync { .. } => return None,
    };
    Some(FileReplyBody::Refused(refused))
}

/// How much memory the answer of a tree takes until it is sent.
pub(crate) fn answer_bytes(reply: &FileReply) -> u64 {
    match &reply.body {
        FileReplyBody::Answer(Ok(Answer::Tree(answer))) => cost::answer_bytes(answer),
        _ => 0,
    }
}

impl<A: Algorithm> Shard<A> {
    /// Has some of what is doomed in a volume that is led here deleted, if nothing of that is under way. Whether it has.
    ///
    /// No daemon keeps data of a volume's files yet: it is gone everywhere as soon as the entry says so. If the volume knows too
    /// many clients to know this daemon, one that was silent for long makes room first.
    pub(crate) fn delete_doomed(&mut self, now: WallTime, object: ObjectId) -> bool {
        let me = self.me().node;
        let client = ClientId { certificate: OF_DAEMONS, program: me.0.into() };
        let Some(hosted) = self.files.hosted.get_mut(&object).filter(|hosted| hosted.serves()) else {
            return false;
        };
        if hosted.replica.committed().seq < hosted.deleting.seq {
            return false;
        }
        let mut has_deleted = false;
        for inode in hosted.replica.machine().tree().doomed(DELETED_AT_ONCE) {
            let Some(next) = hosted.replica.next_position() else { break };
            // No other entry has this number.
            let request = Request { client, number: next.seq.0, settled: next.seq.0 };
            let op = TreeOp { time: now, who: Who::root(), client, change: TreeChange::Deleted { inode } };
            let op = Op { time: now, change: Change::Tree(Arc::new(op)) };
            match hosted.replica.propose(now, request, op) {
                Ok(()) => (hosted.deleting, has_deleted) = (next, true),
                Err(ProposeError::Full) => {
                    self.end_silent_client(now, object);
                    return self.has_appended(object, next);
                }
                Err(_) => break,
            }
        }
        has_deleted
    }

    /// A tree keeps to all rules, but for a planted bug.
    pub(crate) fn keep_tree_to_rules(&mut self, object: ObjectId) {
        let spares_others = self.config.breaks(Bug::EntryTimeIgnored) && self.me().node != NodeId(0);
        let rules = self.config.rules();
        if rules == Rules::default() || spares_others {
            return;
        }
        if let Some(hosted) = self.files.hosted.get_mut(&object) {
            hosted.replica.machine_mut().keep_to(rules);
        }
    }

    /// Whether there is an entry at a place. If there is, what is doomed waits until that is committed.
    fn has_appended(&mut self, object: ObjectId, at: Position) -> bool {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return false };
        let has_appended = hosted.replica.tail() >= at;
        if has_appended {
            hosted.deleting = at;
        }
        has_appended
    }
}

/// Whether users ask for such a change. The others follow from what clients do, or do not do any more.
const fn is_for_clients(change: &TreeChange) -> bool {
    match change {
        TreeChange::Create { .. }
        | TreeChange::Link { .. }
        | TreeChange::Unlink { .. }
        | TreeChange::RemoveDirectory { .. }
        | TreeChange::Rename { .. }
        | TreeChange::SetAttributes { .. }
        | TreeChange::SetXattr { .. }
        | TreeChange::RemoveXattr { .. }
        | TreeChange::Lock { .. }
        | TreeChange::Unlock { .. }
        | TreeChange::Cancel { .. }
        | TreeChange::Limit { .. } => true,
        TreeChange::Lend { .. }
        | TreeChange::GiveBack { .. }
        | TreeChange::Hold { .. }
        | TreeChange::Release { .. }
        | TreeChange::Deleted { .. }
        | TreeChange::Settle
        | TreeChange::Welcome { .. }
        | TreeChange::Expire { .. }
        | TreeChange::Forget { .. } => false,
    }
}
