//! What a primary makes of what clients want done to files and to volumes, before it becomes an entry.
//!
//! An entry has in it whatever the state does not determine. What a client says of that is not taken: when it is, who the
//! client is, where a new file is replicated, and who has open what loses its name, the primary puts there.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{ClientId, Members, NodeId, ObjectId, Span, WallTime};
use lease::Algorithm;
use namespace::{
    Answer as TreeAnswer, Ask, Born, Change as TreeChange, Done as TreeDone, InodeId, Key, LentTo, Lock,
    Make, Op as TreeOp, Part, Query as TreeQuery, Who, cost,
};
use replication::{Position, Replica};

use crate::errands::{ErrandBody, nobody, outcome_of};
use crate::file::{
    Answer, Change, Done, File, FileBody, FileError, FileOf, FileReply, FileReplyBody, Op, Query,
};
use crate::files::{Files, Hosted};
use crate::holders::Holders;
use crate::message::{file_of, volume_of};
use crate::recalls::Recalls;
use crate::space::within_space;
use crate::{Bug, ClusterMap, Rules, Shard, Unavailable};

/// While answers of trees take so much memory, no more questions about them are taken.
const ANSWERS_BYTES_MAX: u64 = 16 << 20;
/// So many questions and syncs of one volume wait at once.
const ASKING_MAX: usize = 512;
/// So much of what is doomed is being deleted at once.
const DELETING_MAX: usize = 512;
/// What is doomed within this span is deleted together: one sync of the volume does for all, and one message tells a peer of many.
const DELETED_TOGETHER: Span = Span::from_millis(100);

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
    pub(crate) holders: &'a Holders,
    pub(crate) recalls: &'a Recalls,
    /// Whether whoever asks may be lent something.
    pub(crate) may_lend: bool,
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
        if let TreeChange::Return { inode, generation, accessed, mode, changed, .. } = op.change
            && let Some(given) = place.recalls.given(inode)
        {
            op.change = TreeChange::GiveBack { inode, generation, given, accessed, mode, changed };
        }
        if let TreeChange::Unlink { site, removed, .. } = &mut op.change {
            let may_drop =
                place.rules.breaks(Bug::LateRemovalDone) && replica.machine().tree().lent(site.dir).is_none();
            *removed = removed.filter(|_| !may_drop).map(|at| done_at(asked.now, site.dir, replica, at));
        }
        match &mut op.change {
            TreeChange::Create { make: Make::File { replicas }, lends, .. } => {
                *lends &= place.may_lend;
                if let Some(Position { epoch, seq }) = replica.next_position() {
                    *replicas = members_of(asked.object, InodeId::of(Born { epoch, seq }), place.map);
                }
            }
            TreeChange::Create { lends, .. } => *lends &= place.may_lend,
            TreeChange::Enter { dir, under, number, replicas, created, .. } => {
                if let Some(inode) = InodeId::under(*under, *number) {
                    *replicas = members_of(asked.object, inode, place.map);
                }
                *created = done_at(asked.now, *dir, replica, *created);
            }
            TreeChange::Lend { inode, to } => {
                *to = lent_to(asked, *inode, replica, &place);
                op.who = nobody();
            }
            TreeChange::Lock { lock: Lock { owner, .. }, .. } | TreeChange::Unlock { owner, .. } => {
                owner.client = asked.client;
            }
            // Who asks for these comes or goes itself.
            TreeChange::Welcome { client, .. } | TreeChange::Expire { client } => *client = asked.client,
            change => place.holders.enter(change, replica.machine().tree(), place.rules),
        }
    }
    Op { time: asked.now, under: None, change }
}

/// When a client has created or removed something in a directory that is lent to it: when it says, but not later than now, and not before the
/// directory was made. Nobody else has seen the directory since then, so whoever looks for what is new since it looked last misses nothing.
fn done_at(now: WallTime, dir: InodeId, replica: &Replica<File>, at: WallTime) -> WallTime {
    let made = match replica.machine().tree().part(&Key::Inode(dir)) {
        Some(Part::Inode(found)) => found.btime,
        _ => WallTime::ZERO,
    };
    at.min(now).max(made)
}

/// To whom a file is lent: to the client that wants it, unless somebody else does or did lately.
fn lent_to(asked: Asked, inode: InodeId, replica: &Replica<File>, place: &Place<'_>) -> LentTo {
    let its = LentTo::Client(asked.client);
    let may_have = match replica.machine().tree().lent(inode) {
        Some(lent) => lent.to == its,
        None => place.may_lend && !place.recalls.is_wanted(inode, asked.now),
    };
    if may_have { its } else { LentTo::Content }
}

/// Where a new file is replicated.
fn members_of(volume: ObjectId, inode: InodeId, map: &ClusterMap) -> Members {
    map.view(file_object(volume, inode)).members.clone()
}

/// The object with the data of a file of a volume. Nothing else is ever such an object: no lock, no volume, and nothing that
/// goes by a name.
pub fn file_object(volume: ObjectId, inode: InodeId) -> ObjectId {
    file_of(&inode_hash("fleasefs 2026 data of an inode", volume, inode))
}

/// The volume that an inode in the list of all volumes stands for. Nothing else is ever such an object.
pub fn volume_object(inode: InodeId) -> ObjectId {
    volume_of(&inode_hash("fleasefs 2026 volume of an inode", list_of_volumes(), inode))
}

/// The list of all volumes: a tree with a directory for each.
pub fn list_of_volumes() -> ObjectId {
    volume_of(&blake3::derive_key("fleasefs 2026 list of volumes", &[]))
}

fn inode_hash(context: &str, tree: ObjectId, inode: InodeId) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key(context);
    for number in [tree.high, tree.low, inode.number, inode.epoch.number, inode.epoch.node.0.into()] {
        hasher.update(&number.to_le_bytes());
    }
    hasher.finalize().into()
}

/// Why a request is not even looked into, if it is not: so much memory answers take that wait to be sent.
pub(crate) fn refusal(body: &FileBody, hosted: &Hosted, answers: u64) -> Option<FileReplyBody> {
    let refused = match body {
        FileBody::Change { change, .. } => match change.check() {
            Err(error) => error,
            Ok(()) => return None,
        },
        FileBody::Ask(Query::Tree(_))
        | FileBody::Open { .. }
        | FileBody::Renew { .. }
        | FileBody::Attend(_)
            if answers > ANSWERS_BYTES_MAX || hosted.asking.len() >= ASKING_MAX =>
        {
            return Some(FileReplyBody::Unavailable(Unavailable::Overloaded));
        }
        FileBody::Create
        | FileBody::Ask(_)
        | FileBody::Sync { .. }
        | FileBody::Open { .. }
        | FileBody::Renew { .. }
        | FileBody::Attend(_) => return None,
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

impl Hosted {
    /// What is doomed in a volume and not being deleted yet, as far as there is room for more of that.
    fn newly_doomed(&mut self, inodes_max: usize) -> Vec<InodeId> {
        let committed = self.replica.committed();
        self.deleting.retain(|_, by| by.is_none_or(|by| committed < by));
        let count = inodes_max.min(DELETING_MAX.saturating_sub(self.deleting.len()));
        let doomed = self.replica.machine().tree().doomed(self.deleting.len() + count);
        doomed.into_iter().filter(|inode| !self.deleting.contains_key(inode)).take(count).collect()
    }
}

impl Files {
    /// Sees to it that what is doomed in a volume that is led here is deleted soon.
    pub(crate) fn note_doomed(&mut self, now: WallTime, object: ObjectId) {
        let is_idle = |hosted: &&mut Box<Hosted>| !hosted.has_deletion;
        let Some(hosted) = self.hosted.get_mut(&object).filter(is_idle) else { return };
        hosted.has_deletion = !hosted.newly_doomed(1).is_empty();
        if hosted.has_deletion {
            self.doomed.insert((now.next_step(DELETED_TOGETHER), object));
        }
    }
}

impl<A: Algorithm> Shard<A> {
    /// Sees to what follows by itself in what is led here and answered for. Whether there is something new to be done.
    pub(crate) fn tend_led(&mut self, now: WallTime, object: ObjectId) -> bool {
        let is_any = self.tend_volume(now, object)
            || self.release_waits(now, object)
            || self.release_recalls(now, object);
        if !is_any {
            self.files.note_doomed(now, object);
        }
        is_any
    }

    /// Has what is doomed in volumes deleted.
    pub(crate) fn check_doomed(&mut self, now: WallTime) {
        while let Some(&(at, object)) = self.files.doomed.first().filter(|&&(at, _)| at <= now) {
            self.files.doomed.remove(&(at, object));
            if let Some(hosted) = self.files.hosted.get_mut(&object) {
                hosted.has_deletion = false;
            }
            self.delete_doomed(now, object);
            self.drain_replica(now, object);
        }
    }

    /// Has what is doomed in a volume that is led here deleted: first the data, and then what is left of the file. What a power
    /// cut would give a name again keeps its data.
    fn delete_doomed(&mut self, now: WallTime, object: ObjectId) {
        let Some(hosted) = self.files.hosted.get_mut(&object).filter(|hosted| hosted.serves()) else {
            return;
        };
        let mut new = hosted.newly_doomed(DELETING_MAX);
        if self.config.breaks(Bug::HoldersInMemory) {
            new.retain(|&inode| !hosted.holders.is_open_somewhere(inode));
        }
        if new.is_empty() {
            return;
        }
        hosted.deleting.extend(new.iter().map(|&inode| (inode, None)));
        let removal = |&inode| (FileOf { volume: object, inode }, ErrandBody::Remove);
        let is_taken = self.run_errands_when_durable(now, object, new.iter().map(removal).collect());
        if let Some(hosted) = self.files.hosted.get_mut(&object).filter(|_| !is_taken) {
            hosted.deleting.retain(|inode, _| !new.contains(inode));
        }
    }

    /// The data of a file that is doomed is gone, unless it cannot be said.
    pub(crate) fn content_removed(&mut self, now: WallTime, of: FileOf, reply: &FileReplyBody) {
        let is_gone = match outcome_of(reply) {
            Some(outcome) => matches!(outcome, Ok(_) | Err(FileError::Removed)),
            None => matches!(reply, FileReplyBody::NoSuchFile),
        };
        let deleted = TreeOp::wanted(Who::root(), TreeChange::Deleted { inode: of.inode });
        let change = is_gone.then(|| Change::Tree(Arc::new(deleted)));
        let entry = change.and_then(|change| self.propose_own(now, of.volume, change));
        if let Some(hosted) = self.files.hosted.get_mut(&of.volume) {
            let replica = &hosted.replica;
            // Where there is no room for it, what is under way makes some: the entry after that may never come.
            let under_way = Some(replica.tail()).filter(|tail| *tail > replica.committed());
            let by = entry.or(under_way).or_else(|| replica.next_position());
            // If it is still there when that entry is committed, whatever that does, it is found again.
            hosted.deleting.insert(of.inode, by);
        }
        self.drain_replica(now, of.volume);
    }

    /// What a daemon is told that wants to be lent what is lent already.
    pub(crate) fn lent_already(&self, object: ObjectId, inode: InodeId) -> Result<Done, FileError> {
        let tree = self.files.hosted.get(&object).map(|hosted| hosted.replica.machine().tree());
        let ask = TreeQuery { who: Who::root(), ask: Ask::Attributes { inode } };
        match tree.ok_or(FileError::NoTree)?.answer(&ask)? {
            TreeAnswer::Attributes(attributes) => Ok(Done::Tree(Box::new(TreeDone::Changed { attributes }))),
            _ => Err(FileError::NotLent),
        }
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
}
