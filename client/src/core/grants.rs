//! What a client knows of volumes and may answer by itself, under the grants that daemons have given it.
//!
//! A daemon that leads a volume says with its replies about which inodes they may be kept (*grants*), and lasts as long as the session
//! with it is confirmed; see [`node`'s side](node::CacheGrant). What is kept is known by the inode: its attributes, where it leads,
//! and of a directory names, absent ones too.
//!
//! Rules:
//!
//! - What is kept is answered only while the session is confirmed over which it was granted.
//! - What is revoked is dropped before the session counts as confirmed any further, and before that is said.
//! - A reply that is older than a revocation of what it is about, or of an earlier tenure than one that is over, is not kept, however
//!   late it comes.
//! - While a change of this client is under way, what it names is not answered from here. Its outcome says what is there now,
//!   unless another change named the same meanwhile. What was read before it is not kept any more.
//! - What became of a change may never be known: what it names is not answered from here then as long as the connection lasts.
//! - To be used is to be asked about now and then: one question every few seconds goes to the daemon though its answer is known, which is
//!   [told](Cache::is_due) to whoever uses this core, and nobody waits for.
//! - Who may do what is the daemons' to judge: what somebody was allowed once he is allowed again, until somebody changes the rights. So is
//!   the owner of what was just made by this client, as far as its mode lets him.
//! - A directory that this client has just made is empty: nobody else has heard of it before it was granted.
//!
//! # Contract
//!
//! No clock, no output. *Events in* are `handle_*`, [`confirm`](Cache::confirm), [`revoke`](Cache::revoke) and
//! [`tell`](Cache::tell); [`answer`](Cache::answer) with a reading of the clock taken after the question came; and a change is put
//! between [`begin`](Cache::begin) and [`end`](Cache::end) or [`abandon`](Cache::abandon).
//!
//! # What is deliberately absent
//!
//! The content of files. Extended attributes. A promise that anything is kept: what was not asked for lately goes when there is too
//! much.

mod busy;
#[cfg(test)]
mod tests;
mod volume;

use std::collections::BTreeMap;

use base::{Epoch, MonoTime, NodeId, ObjectId, Seq, Span, WallTime};
use namespace::{Answer, Ask, Attributes, Change, Done, InodeId, Lent, Name, NameError, Op, Site, Who};
use node::{CacheGrant, Named, Revoked};

use super::{Bug, Rules};
use volume::{Entering, Volume};

/// So much is kept: inodes and names together.
const KEPT_MAX: usize = 1 << 18;
/// Whoever uses what is known of a volume asks about it this often all the same: to its daemon a volume is idle about which nobody asks.
const ASKED_EVERY: Span = Span::from_secs(5);
/// Of so many volumes.
const VOLUMES_MAX: usize = 256;

/// One connection with a daemon, of all that there were.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Connection {
    /// With whom.
    pub node: NodeId,
    /// Which.
    pub number: u64,
}

/// What came with a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Told {
    /// Over which connection.
    pub by: Connection,
    /// What it grants, if anything.
    pub grant: Option<Box<CacheGrant>>,
    /// Where the change stands that it is about, or not behind there.
    pub at: Option<Seq>,
}

/// Names a change that is under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ChangeId(u64);

/// What a client has in its cache.
#[derive(Debug, Default)]
pub struct Cache {
    links: BTreeMap<NodeId, Link>,
    volumes: BTreeMap<ObjectId, Volume>,
    changes: BTreeMap<ChangeId, (ObjectId, Named)>,
    /// What this client has created by itself, by the change that has it entered.
    entering: BTreeMap<ChangeId, Entering>,
    last: u64,
    hits: u64,
    kept_max: usize,
    rules: Rules,
}

#[derive(Clone, Copy, Debug)]
struct Link {
    number: u64,
    valid_until: MonoTime,
}

impl Cache {
    /// Nothing is known yet.
    pub fn new() -> Self {
        Self { kept_max: KEPT_MAX, ..Self::default() }
    }

    /// The same, by these rules.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// How often something was answered.
    pub const fn hits(&self) -> u64 {
        self.hits
    }

    /// A connection with a daemon is there. What was granted over an earlier one is dropped.
    pub fn handle_up(&mut self, Connection { node, number }: Connection) {
        self.handle_down(node);
        self.links.insert(node, Link { number, valid_until: MonoTime::default() });
    }

    /// A connection is gone. Returns of which volumes something may have been answered because of it.
    pub fn handle_down(&mut self, node: NodeId) -> Vec<ObjectId> {
        self.links.remove(&node);
        let volumes = self.volumes.values_mut().filter(|volume| volume.by.is_some_and(|by| by.node == node));
        volumes.for_each(Volume::drop_all);
        let links = &self.links;
        let is_present = |by: &Connection| links.get(&by.node).is_some_and(|link| link.number == by.number);
        self.volumes.values_mut().for_each(|volume| volume.release(is_present));
        self.volumes.keys().copied().collect()
    }

    /// The session with a daemon lasts until then. All that it was told before has been taken in.
    pub fn confirm(&mut self, node: NodeId, until: MonoTime) {
        if let Some(link) = self.links.get_mut(&node) {
            link.valid_until = until;
        }
    }

    /// A daemon takes back what it has granted. When this returns it is dropped.
    pub fn revoke(&mut self, node: NodeId, number: u64, (object, what): (ObjectId, Revoked)) {
        let has_room = self.volumes.len() < VOLUMES_MAX;
        let volume = match self.volumes.get_mut(&object) {
            Some(volume) => volume,
            // Nothing was kept of it, and nothing will be.
            None if !has_room => return,
            None => self.volumes.entry(object).or_default(),
        };
        let Some(link) = self.links.get(&node) else { return };
        let number = if self.rules.breaks(Bug::LateReplyKept) { 0 } else { number };
        volume.revoke(Connection { node, number: link.number }, number, what);
    }

    /// The answer to a question, if it is known at `now`, a reading taken after it was asked.
    pub fn answer(
        &mut self,
        now: MonoTime,
        object: ObjectId,
        (who, ask): (&Who, &Ask),
    ) -> Option<Result<Answer, NameError>> {
        let volume = self.volumes.get_mut(&object)?;
        let link = self.links.get(&volume.by?.node)?;
        if now >= link.valid_until && !self.rules.breaks(Bug::GrantOutlivesSession) {
            return None;
        }
        let answer = volume.answer(who, ask)?;
        self.hits += 1;
        Some(answer)
    }

    /// Whether a question is to go to the daemon at `now` though its answer is known. Nobody has to wait for it.
    pub fn is_due(&mut self, now: MonoTime, object: ObjectId) -> bool {
        self.volumes.get_mut(&object).is_some_and(|volume| volume.is_due(now))
    }

    /// How a file is in the tree, and which it is, if that may be answered at `now`. It may be lent to this client.
    pub fn attributes(&mut self, now: MonoTime, object: ObjectId, inode: InodeId) -> Option<Attributes> {
        let volume = self.volumes.get_mut(&object)?;
        let link = self.links.get(&volume.by?.node)?;
        let is_valid = now < link.valid_until || self.rules.breaks(Bug::LendOutlivesSession);
        is_valid.then(|| volume.attributes(inode))?
    }

    /// As long as this is the same nobody has changed who may do what with an inode. None if that is not known at `now`.
    pub fn rights(&self, now: MonoTime, object: ObjectId, inode: InodeId) -> Option<u64> {
        let volume = self.volumes.get(&object)?;
        let link = self.links.get(&volume.by?.node)?;
        (now < link.valid_until).then(|| volume.rights(inode))?
    }

    /// Whether users have here the numbers that they have in the volume. No, if nothing is granted of the inode.
    pub fn has_same_ids(&self, object: ObjectId, inode: InodeId) -> bool {
        self.volumes.get(&object).is_some_and(|volume| volume.has_same_ids(inode))
    }

    /// This client has changed by itself who may do what with a file.
    pub fn forget_rights(&mut self, object: ObjectId, inode: InodeId) {
        if let Some(volume) = self.volumes.get_mut(&object) {
            volume.forget_rights(inode);
        }
    }

    /// Whether a directory has this name at `now`, and has it until the session ends or that is taken back in so many words.
    pub fn is_placed(
        &self,
        now: MonoTime,
        object: ObjectId,
        inode: InodeId,
        place: (InodeId, &Name),
    ) -> bool {
        let volume = self.volumes.get(&object).filter(|volume| volume.is_placed(inode, place));
        let by = volume.and_then(|volume| volume.by);
        by.and_then(|by| self.links.get(&by.node)).is_some_and(|link| now < link.valid_until)
    }

    /// What a name of a directory stands for, if for anything, as far as anybody knows here.
    pub fn named(&self, object: ObjectId, dir: InodeId, name: &Name) -> Option<Option<InodeId>> {
        self.volumes.get(&object)?.named(dir, name)
    }

    /// Until when what was answered about a volume is good, unless that is taken back before.
    pub fn lasts(&self, object: ObjectId) -> Option<MonoTime> {
        Some(self.links.get(&self.volumes.get(&object)?.by?.node)?.valid_until)
    }

    /// A question has been answered by a daemon.
    pub fn tell(
        &mut self,
        object: ObjectId,
        (who, ask): (&Who, &Ask),
        (told, answer): (&Told, &Result<Answer, NameError>),
    ) {
        let Some((volume, grant)) = self.granted(object, told) else { return };
        volume.tell((who, ask), answer, grant);
        self.make_room(object);
    }

    /// By which lend a directory is lent in which somebody may create what has this name, if nothing has it at `now`, and that may be said
    /// without asking.
    pub fn free_in(
        &self,
        now: MonoTime,
        object: ObjectId,
        who: &Who,
        place: (InodeId, &Name),
    ) -> Option<Lent> {
        self.lending(now, object)?.free_in(who, place)
    }

    /// Which file somebody may take away who may take it for a fact that its directory is lent to this client: his own, which has no other name.
    pub fn own_in(
        &self,
        now: MonoTime,
        object: ObjectId,
        who: &Who,
        place: (InodeId, &Name),
    ) -> Option<InodeId> {
        self.lending(now, object)?.own_in(who, place)
    }

    /// How a file is, under the same conditions, if it is somebody's own and has one name.
    pub fn own(&self, now: MonoTime, object: ObjectId, who: &Who, inode: InodeId) -> Option<&Attributes> {
        self.lending(now, object)?.own(who, inode)
    }

    /// A volume, as long as what it lends may be used.
    fn lending(&self, now: MonoTime, object: ObjectId) -> Option<&Volume> {
        let volume = self.volumes.get(&object)?;
        let link = self.links.get(&volume.by?.node)?;
        let is_valid = now < link.valid_until || self.rules.breaks(Bug::LendOutlivesSession);
        is_valid.then_some(volume)
    }

    /// This client has created a file by itself, and has it entered by this change.
    pub fn enter(&mut self, object: ObjectId, op: &Op, attributes: &Attributes) -> ChangeId {
        let id = self.begin_nothing(object);
        if let (Some(volume), Change::Enter { dir, name, .. }) = (self.volumes.get_mut(&object), &op.change) {
            let (dir, name, file, is_removed) = (*dir, name.clone(), attributes.inode, false);
            let entering = Entering { dir, name, file, is_removed };
            volume.enter(&op.who, &entering, attributes);
            self.entering.insert(id, entering);
        }
        id
    }

    /// This client has removed a file by itself, and has its volume told by a change of that site.
    pub fn leave(
        &mut self,
        object: ObjectId,
        Site { dir, name, .. }: &Site,
        (file, removed): (InodeId, WallTime),
    ) -> ChangeId {
        let id = self.begin_nothing(object);
        if let Some(volume) = self.volumes.get_mut(&object) {
            let entering = Entering { dir: *dir, name: name.clone(), file, is_removed: true };
            volume.leave(&entering, removed);
            self.entering.insert(id, entering);
        }
        id
    }

    /// A change of which only this client knows what it is about.
    fn begin_nothing(&mut self, object: ObjectId) -> ChangeId {
        self.last += 1;
        let id = ChangeId(self.last);
        self.changes.insert(id, (object, Named::default()));
        id
    }

    /// A change is about to be sent.
    pub fn begin(&mut self, object: ObjectId, change: &Change) -> ChangeId {
        self.last += 1;
        let (id, named) = (ChangeId(self.last), Named::by(change));
        if self.volumes.contains_key(&object) || self.volumes.len() < VOLUMES_MAX {
            self.volumes.entry(object).or_default().busy.begin(&named);
        }
        self.changes.insert(id, (object, named));
        id
    }

    /// A change has an outcome.
    pub fn end(&mut self, id: ChangeId, op: &Op, (told, done): (&Told, Option<&Done>)) {
        let Some((object, named)) = self.changes.remove(&id) else { return };
        let entering = self.entering.remove(&id);
        let Some(volume) = self.volumes.get_mut(&object) else { return };
        let alone = volume.busy.end(&named);
        volume.dress(&op.change);
        if let Some(entering) = &entering {
            volume.entered(entering, told.at.filter(|_| done.is_some()));
        }
        let Some(done) = done else { return };
        let forgotten = volume.forget(&named, told.at);
        if let Some((volume, grant)) = self.granted(object, told) {
            volume.take_in(op, done, (&alone, &forgotten, grant));
        } else if let (Some(Entering { file, .. }), Some(volume)) = (entering, self.volumes.get_mut(&object))
        {
            volume.drop(file);
        }
        self.make_room(object);
    }

    /// Nobody will hear what became of a change.
    pub fn abandon(&mut self, id: ChangeId) {
        let Some((object, named)) = self.changes.remove(&id) else { return };
        let present = self.links.iter().map(|(&node, link)| Connection { node, number: link.number });
        let entering = self.entering.remove(&id);
        if let Some(volume) = self.volumes.get_mut(&object) {
            entering.iter().for_each(|entering| volume.entered(entering, None));
            volume.abandon(named, present.collect());
        }
    }

    /// The volume, and what is granted there, unless that is over.
    fn granted<'a>(&mut self, object: ObjectId, told: &'a Told) -> Option<(&mut Volume, &'a CacheGrant)> {
        let grant = told.grant.as_deref()?;
        let is_present = self.links.get(&told.by.node).is_some_and(|link| link.number == told.by.number);
        let has_room = self.volumes.contains_key(&object) || self.volumes.len() < VOLUMES_MAX;
        if !is_present || !has_room {
            return None;
        }
        let volume = self.volumes.entry(object).or_default();
        volume.follow(told.by, grant.tenure).then_some((volume, grant))
    }

    /// Drops what was not asked for lately, if there is too much.
    fn make_room(&mut self, object: ObjectId) {
        let kept: usize = self.volumes.values().map(Volume::kept).sum();
        if let Some(volume) = self.volumes.get_mut(&object).filter(|_| kept > self.kept_max) {
            volume.shrink(kept - self.kept_max);
        }
    }
}

/// An epoch below all others.
const NO_TENURE: Epoch = Epoch { number: 0, node: NodeId(0) };
