//! Lends that the primary of a volume takes back.
//!
//! What is lent to a client that client alone knows and changes. Whoever else wants to know or to change it waits until it is given back: the
//! client is told to, has flushed what it buffered when it answers, and its lend ends in the content's own log before the tree takes size and
//! times from there. What is lent to the content is taken back the same way, without anybody to be told.
//!
//! Rules:
//!
//! - Nothing is answered, refused for want of permission, or lent, before the lend before is over in the tree.
//! - A client that does not answer is waited for as long as it may count on the lend, and if it is there for longer: it may have much to flush.
//!   What it flushes after that is refused by the content, where the lend has ended.
//! - A client that is not there is waited for if it could not come: it has done nothing wrong, and nobody else has what it wrote.
//! - What a client has never changed the content under is given back without the content, unless that says otherwise.
//! - What two clients want within a short time is lent to the content: see [`Recalls::is_wanted`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{ClientId, ObjectId, Span, WallTime};
use lease::Algorithm;
use namespace::{
    Answer as TreeAnswer, Ask, Attributes, Change as TreeChange, ClientState, Given, InodeId, Key, Lent,
    LentTo, Op as TreeOp, Part, Who,
};

use crate::errands::{ErrandBody, outcome_of};
use crate::file::{Answer, Change, Done, FileBody, FileOf, FileReplyBody, Names, Query};
use crate::files::{Asker, Caller, Hosted};
use crate::grants::is_directory;
use crate::lends::given;
use crate::{Bug, Revoked, SessionId, Shard, Unavailable};

/// So many questions and changes of a volume wait until something is given back.
const WAITING_MAX: usize = 1_024;
/// A client that is there has so long to flush what it has.
const FLUSHED_AFTER: Span = Span::from_secs(10);
/// What was taken back for somebody else is lent to no client for so long, and so much is remembered of that.
const WANTED_FOR: Span = Span::from_secs(10);
const WANTED_MAX: usize = 4_096;
/// Of so much it is remembered that the content changed it.
const TOUCHED_MAX: usize = 65_536;
/// So much is lent to one client of a volume, and beyond that only what it has created by itself before its directories were taken back; how
/// often somebody is refused before what it has is counted again.
pub const LENDS_MAX: usize = 8_192;
const REFUSED_MAX: usize = 64;

/// What is being taken back in a volume that is led here, and what is known of its lends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recalls {
    all: BTreeMap<InodeId, Recall>,
    /// When it was taken back for somebody else.
    wanted: BTreeMap<InodeId, WallTime>,
    /// What is lent to a client and the content asked about, to change it.
    touched: BTreeSet<InodeId>,
    counts: BTreeMap<ClientId, Count>,
}

#[derive(Clone, Debug)]
struct Recall {
    lent: Lent,
    since: WallTime,
    stage: Stage,
    /// When the content shall have changed last, as its client says.
    modified: Option<WallTime>,
    /// What the tree is to have.
    given: Option<Option<Given>>,
    /// The client's own wish to give it back.
    own: Option<(Asker, FileBody)>,
    /// Who wants it.
    waiting: Vec<(Asker, FileBody)>,
}

/// How far it is.
#[derive(Clone, Debug)]
enum Stage {
    /// Its client was told over these sessions, by these revocations.
    Asked(BTreeSet<(SessionId, u64)>),
    /// The content ends the lend.
    Returning,
}

/// What is lent to a client, at most: as counted last, with what it was lent since.
#[derive(Clone, Copy, Debug)]
struct Count {
    lends: usize,
    refused: usize,
}

impl Recalls {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether it is being taken back.
    pub(crate) fn has(&self, inode: InodeId) -> bool {
        self.all.contains_key(&inode)
    }

    /// Whether it is being taken back, or somebody waits for that.
    pub(crate) fn holds(&self, inode: InodeId, tree: &Names) -> bool {
        let recall = self.all.get(&inode);
        recall.is_some_and(|recall| tree.lent(inode) == Some(recall.lent) || !recall.waiting.is_empty())
    }

    /// Everybody who waits.
    pub(crate) fn take_waiting(&mut self) -> Vec<(Asker, FileBody)> {
        let all = std::mem::take(&mut self.all).into_values();
        all.flat_map(|recall| recall.own.into_iter().chain(recall.waiting)).collect()
    }

    /// Whether it was taken back from a client for somebody else lately: then two have use for it.
    pub(crate) fn is_wanted(&self, inode: InodeId, now: WallTime) -> bool {
        self.wanted.get(&inode).is_some_and(|at| *at + WANTED_FOR > now)
    }

    fn note_wanted(&mut self, inode: InodeId, now: WallTime) {
        self.wanted.retain(|_, at| *at + WANTED_FOR > now);
        if self.wanted.len() < WANTED_MAX {
            self.wanted.insert(inode, now);
        }
    }

    fn touch(&mut self, inode: InodeId) {
        if self.touched.len() >= TOUCHED_MAX {
            self.touched.clear();
        }
        self.touched.insert(inode);
    }

    /// What the content has said that the tree is to have, if the client's own wish is to bring it there.
    pub(crate) fn given(&self, inode: InodeId) -> Option<Option<Given>> {
        self.all.get(&inode)?.given
    }

    /// Whether a client may be lent one more. To be asked once for each.
    pub(crate) fn has_room(&mut self, client: ClientId, tree: &Names) -> bool {
        let count = || Count { lends: tree.lent_to(client, LENDS_MAX).len(), refused: 0 };
        let known = self.counts.entry(client).or_insert_with(count);
        if known.lends >= LENDS_MAX && known.refused.is_multiple_of(REFUSED_MAX) {
            *known = count();
        }
        if known.lends >= LENDS_MAX {
            known.refused += 1;
            return false;
        }
        known.lends += 1;
        true
    }

    /// Keeps who wants what is being taken back. Whoever asks again has given the first reply up.
    fn wait(&mut self, inode: InodeId, asker: Asker, body: FileBody) -> bool {
        let count: usize = self.all.values().map(|recall| recall.waiting.len()).sum();
        let Some(recall) = self.all.get_mut(&inode) else { return false };
        let is_again = |(other, asked): &&mut (Asker, FileBody)| {
            let is_same = (other.from, other.id) == (asker.from, asker.id);
            let request = asker.request(&body).filter(|_| matches!(asker.from, Caller::Session(_)));
            is_same || request.is_some() && other.request(asked) == request
        };
        if let Some((other, _)) = recall.waiting.iter_mut().find(is_again) {
            *other = asker;
            return true;
        }
        let has_room = count < WAITING_MAX;
        if has_room {
            recall.waiting.push((asker, body));
        }
        has_room
    }
}

impl<A: Algorithm> Shard<A> {
    /// Keeps a change until what it wants is given back. False if it does not want what is lent.
    pub(crate) fn waits_for_recall(
        &mut self,
        now: WallTime,
        object: ObjectId,
        (asker, body): (Asker, &FileBody),
        change: &Change,
    ) -> bool {
        let Change::Tree(op) = change else { return false };
        let Some(hosted) = self.files.hosted.get(&object) else { return false };
        let request = asker.request(body).filter(|_| matches!(asker.from, Caller::Session(_)));
        if request.is_some_and(|request| hosted.replica.knows(request)) {
            return false;
        }
        let tree = hosted.replica.machine().tree();
        // Of directories only others want anything, and that before all else.
        let lent = |inode| {
            let lent = tree.lent(inode).filter(|_| !is_directory(tree, inode));
            lent.filter(|lent| self.knows_lend(object, lent))
        };
        let is_others = |lent: &Lent| lent.to.client().is_some_and(|client| client != asker.client);
        let dir = tree.wants_dir(&op.change, asker.client).filter(|(_, lent)| self.knows_lend(object, lent));
        if let Some(dir) = dir.filter(|_| !self.config.breaks(Bug::DirectoryOfTwo)) {
            self.recall(now, object, dir, Some((asker, body.clone())));
            return true;
        }
        let (inode, lent) = match &op.change {
            TreeChange::Lend { inode, .. } => {
                let lent = lent(*inode);
                (*inode, lent.filter(|lent| is_others(lent) || hosted.recalls.has(*inode)))
            }
            TreeChange::Return { .. } => return self.gives_back(now, object, (asker, body), &op.change),
            change => match (change.wants_back(), change.wants_from_others()) {
                (Some(inode), _) => (inode, lent(inode)),
                (None, Some(inode)) => (inode, lent(inode).filter(is_others)),
                (None, None) => return false,
            },
        };
        let Some(lent) = lent.filter(|_| !self.config.breaks(Bug::LendToTwo)) else { return false };
        self.recall(now, object, (inode, lent), Some((asker, body.clone())));
        true
    }

    /// A client enters something, which is lent to it as well. If that is more than it may have it creates nothing more there by itself.
    pub(crate) fn count_entered(&mut self, now: WallTime, object: ObjectId, asker: Asker, change: &Change) {
        let Change::Tree(op) = change else { return };
        let TreeChange::Enter { dir, under, .. } = op.change else { return };
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let lent = Lent { generation: under, to: LentTo::Client(asker.client) };
        let tree = hosted.replica.machine().tree();
        if tree.lent(dir) == Some(lent) && !hosted.recalls.has_room(asker.client, tree) {
            self.recall(now, object, (dir, lent), None);
        }
    }

    /// A client gives something back. Whether that waits for the content.
    fn gives_back(
        &mut self,
        now: WallTime,
        object: ObjectId,
        (asker, body): (Asker, &FileBody),
        change: &TreeChange,
    ) -> bool {
        let &TreeChange::Return { inode, generation, modified, is_untouched, .. } = change else {
            return false;
        };
        let guards = !self.config.breaks(Bug::UntouchedWithContent);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return false };
        let its = Lent { generation, to: LentTo::Client(asker.client) };
        let tree = hosted.replica.machine().tree();
        // What it says by itself of a directory is all that there is to know.
        let is_lent = tree.lent(inode) == Some(its) && !is_directory(tree, inode);
        let is_touched = !is_untouched || guards && hosted.recalls.touched.contains(&inode);
        if !is_lent || !is_touched || hosted.recalls.given(inode).is_some() {
            return false;
        }
        let recall = hosted.recalls.all.entry(inode).or_insert_with(|| Recall::of(its, now));
        if matches!(recall.stage, Stage::Returning) || recall.own.is_some() {
            if !hosted.recalls.wait(inode, asker, body.clone()) {
                self.files.reply(asker, FileReplyBody::Unavailable(Unavailable::Overloaded), None);
            }
            return true;
        }
        (recall.own, recall.modified) = (Some((asker, body.clone())), modified);
        self.has_content_return(now, object, inode);
        self.drain_replica(now, object);
        true
    }

    /// Takes a lend back, for somebody or because its client is no more.
    pub(crate) fn recall(
        &mut self,
        now: WallTime,
        object: ObjectId,
        (inode, lent): (InodeId, Lent),
        wants: Option<(Asker, FileBody)>,
    ) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let is_new = !hosted.recalls.has(inode);
        hosted.recalls.all.entry(inode).or_insert_with(|| Recall::of(lent, now));
        if let Some((asker, body)) = wants
            && !hosted.recalls.wait(inode, asker, body)
        {
            if is_new {
                hosted.recalls.all.remove(&inode);
            }
            return self.files.reply(asker, FileReplyBody::Unavailable(Unavailable::Overloaded), None);
        }
        if !is_new {
            return;
        }
        self.granting.volumes.insert(object);
        if let LentTo::Client(client) = lent.to {
            let is_its =
                |id: &SessionId| self.sessions.get(*id).is_some_and(|session| session.client == client);
            let sessions: Vec<SessionId> = self.sessions.ids().filter(is_its).collect();
            sessions.into_iter().for_each(|session| self.ask_back(now, object, inode, session));
        }
        self.go_on_with_recall(now, object, inode);
        self.drain_replica(now, object);
    }

    /// Tells a client to give something back.
    fn ask_back(&mut self, now: WallTime, object: ObjectId, inode: InodeId, session: SessionId) {
        let Some(hosted) = self.files.hosted.get(&object) else { return };
        let Some(lent) = hosted.recalls.all.get(&inode).map(|recall| recall.lent) else { return };
        let number = self.revoke(now, object, session, Revoked::lend(inode, lent.generation));
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        if !hosted.grants.begin_revoking(inode, session) {
            self.granting.sparing.insert((session, number));
        }
        if let Some(Recall { stage: Stage::Asked(asked), .. }) = hosted.recalls.all.get_mut(&inode) {
            asked.insert((session, number));
        }
    }

    /// A client is connected anew. What it is to give back it is told once more.
    pub(crate) fn ask_back_again(&mut self, now: WallTime, session: SessionId, client: ClientId) {
        for object in self.granting.volumes.clone() {
            let Some(hosted) = self.files.hosted.get(&object) else { continue };
            let is_its = |recall: &Recall| {
                recall.lent.to == LentTo::Client(client) && matches!(recall.stage, Stage::Asked(_))
            };
            let all = hosted.recalls.all.iter().filter(|(_, recall)| is_its(recall));
            let inodes: Vec<InodeId> = all.map(|(&inode, _)| inode).collect();
            inodes.into_iter().for_each(|inode| self.ask_back(now, object, inode, session));
        }
    }

    /// Whether who has not answered yet is given more time: it is there, and may have much to flush.
    pub(crate) fn has_time_to_flush(
        &self,
        now: WallTime,
        object: ObjectId,
        (session, inode): (SessionId, InodeId),
    ) -> Option<WallTime> {
        let is_here = self.sessions.get(session).is_some_and(|session| session.is_connected());
        let recall = self.files.hosted.get(&object)?.recalls.all.get(&inode)?;
        let until = recall.since + FLUSHED_AFTER;
        (is_here && until > now && !self.config.breaks(Bug::SlowFlushCutOff)).then_some(until)
    }

    /// A client has given back what it was told to, or cannot count on it any more.
    pub(crate) fn recall_answered(
        &mut self,
        now: WallTime,
        object: ObjectId,
        (session, number): (SessionId, u64),
        inode: InodeId,
    ) {
        let spares_grant = self.granting.sparing.remove(&(session, number));
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        if !spares_grant {
            hosted.grants.end_revoking(inode, session);
        }
        if let Some(Recall { stage: Stage::Asked(asked), .. }) = hosted.recalls.all.get_mut(&inode) {
            asked.remove(&(session, number));
        }
        self.go_on_with_recall(now, object, inode);
        self.drain_replica(now, object);
    }

    /// Goes on with whatever waits for nobody any more.
    pub(crate) fn go_on_with_recalls(&mut self, now: WallTime, object: ObjectId) {
        let Some(hosted) = self.files.hosted.get(&object) else { return };
        let asked = hosted.recalls.all.iter().filter(|(_, recall)| matches!(recall.stage, Stage::Asked(_)));
        let inodes: Vec<InodeId> = asked.map(|(&inode, _)| inode).collect();
        inodes.into_iter().for_each(|inode| self.go_on_with_recall(now, object, inode));
    }

    fn go_on_with_recall(&mut self, now: WallTime, object: ObjectId, inode: InodeId) {
        let Some(hosted) = self.files.hosted.get(&object) else { return };
        let Some(recall) = hosted.recalls.all.get(&inode) else { return };
        let Stage::Asked(asked) = &recall.stage else { return };
        let may_count = |client| {
            let is_closed = self.granting.counting().contains(&client);
            is_closed || hosted.grants.awaits(client)
        };
        let is_waited_for = !asked.is_empty() || recall.lent.to.client().is_some_and(may_count);
        let is_lax = recall.own.is_some() || self.config.breaks(Bug::RecallNotWaitedFor);
        if !is_lax && is_waited_for {
            return;
        }
        let returns = recall.lent.to.client().and_then(|client| self.returns_until(now, hosted, client));
        match returns.filter(|_| !is_lax && !self.config.breaks(Bug::ReturnNotAwaited)) {
            Some(until) => drop(self.granting.returning.insert((until, object))),
            None => self.has_content_return(now, object, inode),
        }
    }

    /// Until when a client that has no session here may be about to come: if it could not before, and with a primary that is new as long as a
    /// session lasts.
    fn returns_until(&self, now: WallTime, volume: &Hosted, client: ClientId) -> Option<WallTime> {
        let is_here = |id| self.sessions.get(id).is_some_and(|session| session.client == client);
        let is_alive = volume.replica.machine().tree().client(client) == Some(ClientState::Alive);
        if !is_alive || self.sessions.ids().any(is_here) {
            return None;
        }
        let is_new = Some(volume.led_since + self.config.session_over_after()).filter(|until| *until > now);
        self.reach.comes_until(now, client).max(is_new)
    }

    /// Has the content end a lend. The file's log is not to know the end of a lend that a power cut takes back here.
    fn has_content_return(&mut self, now: WallTime, object: ObjectId, inode: InodeId) {
        let Some(hosted) = self.files.hosted.get(&object) else { return };
        let Some(recall) = hosted.recalls.all.get(&inode) else { return };
        let (lent, modified) = (recall.lent, recall.modified);
        if is_directory(hosted.replica.machine().tree(), inode) {
            return self.end_dir_lend(now, object, (inode, lent));
        }
        let errand = (FileOf { volume: object, inode }, ErrandBody::Return { lent, modified });
        if self.run_errands_when_durable(now, object, vec![errand])
            && let Some(hosted) = self.files.hosted.get_mut(&object)
            && let Some(recall) = hosted.recalls.all.get_mut(&inode)
        {
            recall.stage = Stage::Returning;
        }
    }

    /// A directory has no content that could know better.
    fn end_dir_lend(&mut self, now: WallTime, object: ObjectId, (inode, lent): (InodeId, Lent)) {
        let (generation, given, accessed, mode, changed) = (lent.generation, None, None, None, None);
        let change = TreeChange::GiveBack { inode, generation, given, accessed, mode, changed };
        let op = Change::Tree(Arc::new(TreeOp::wanted(Who::root(), change)));
        let is_proposed = self.propose_own(now, object, op).is_some();
        if let Some(hosted) = self.files.hosted.get_mut(&object)
            && let Some(recall) = hosted.recalls.all.get_mut(&inode)
            && is_proposed
        {
            recall.stage = Stage::Returning;
        }
    }

    /// The content has ended a lend: if that is taken back here, and not another one by now, the tree has size and times from there.
    pub(crate) fn file_recalled(
        &mut self,
        now: WallTime,
        of: FileOf,
        (lent, modified): (Lent, Option<WallTime>),
        reply: &FileReplyBody,
    ) {
        let mixes = self.config.breaks(Bug::LendsMixedUp);
        let returned = match outcome_of(reply) {
            Some(Ok(Done::Returned { stat })) => stat.as_ref().map(given),
            // Nothing is there that could be given back.
            _ => None,
        };
        let Some(hosted) = self.files.hosted.get_mut(&of.volume) else { return };
        let returned = returned.or_else(|| hosted.left_alone(of.inode, now, modified?));
        let next = hosted.replica.next_position();
        let Some(recall) = hosted.recalls.all.get_mut(&of.inode) else { return };
        if recall.lent != lent && !mixes {
            return;
        }
        recall.given = Some(returned);
        if let Some((asker, body)) = recall.own.take() {
            self.put_to_replica(now, of.volume, asker, body);
        }
        let Some(hosted) = self.files.hosted.get(&of.volume) else { return };
        if hosted.replica.next_position() == next {
            let (inode, generation) = (of.inode, lent.generation);
            let (given, accessed, mode, changed) = (returned, None, None, None);
            let change = TreeChange::GiveBack { inode, generation, given, accessed, mode, changed };
            let op = Change::Tree(Arc::new(TreeOp::wanted(Who::root(), change)));
            if self.propose_own(now, of.volume, op).is_none() {
                return self.run_errand_later(now, of.volume, of, ErrandBody::Return { lent, modified });
            }
        }
        self.drain_replica(now, of.volume);
    }

    /// Serves who waited for what is given back. Whether there was anybody.
    pub(crate) fn release_recalls(&mut self, now: WallTime, object: ObjectId) -> bool {
        let Some(hosted) = self.files.hosted.get(&object) else { return false };
        if hosted.recalls.is_empty() {
            return false;
        }
        let tree = hosted.replica.machine().tree();
        let is_over = |(inode, recall): &(&InodeId, &Recall)| tree.lent(**inode) != Some(recall.lent);
        let over = hosted.recalls.all.iter().filter(is_over);
        let over: Vec<InodeId> = over.map(|(&inode, _)| inode).collect();
        for &inode in &over {
            self.end_recall(now, object, inode);
        }
        if over.is_empty() && self.files.hosted.get(&object).is_some_and(|hosted| !hosted.recalls.is_empty())
        {
            self.go_on_with_recalls(now, object);
        }
        !over.is_empty()
    }

    fn end_recall(&mut self, now: WallTime, object: ObjectId, inode: InodeId) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let Some(recall) = hosted.recalls.all.remove(&inode) else { return };
        hosted.recalls.touched.remove(&inode);
        if let LentTo::Client(holder) = recall.lent.to {
            if recall.waiting.iter().any(|(asker, _)| asker.client != holder) {
                hosted.recalls.note_wanted(inode, now);
            }
            hosted.holders.look_at(holder);
        }
        for (asker, body) in recall.own.into_iter().chain(recall.waiting) {
            self.put_to_replica(now, object, asker, body);
        }
    }

    /// Keeps a question whose answer would tell of what somebody else has, or be judged by it, until that is given back. False if it would not.
    pub(crate) fn waits_with_answer(
        &mut self,
        now: WallTime,
        object: ObjectId,
        (asker, body): (Asker, Option<&FileBody>),
        answer: &FileReplyBody,
    ) -> bool {
        let (Some(body), Caller::Session(_)) = (body, asker.from) else { return false };
        let told = match shown(answer) {
            Some(attributes) => attributes.lent.map(|lent| (attributes.inode, lent)),
            None => self.judged(object, body),
        };
        let waits = |(_, lent): &(InodeId, Lent)| {
            let is_others = lent.to.client().is_some_and(|client| client != asker.client);
            is_others && !self.config.breaks(Bug::RecallNotWaitedFor) && self.knows_lend(object, lent)
        };
        let Some(lent) = self.searched(object, body).filter(waits).or(told.filter(waits)) else {
            return false;
        };
        self.recall(now, object, lent, Some((asker, body.clone())));
        true
    }

    /// The directory in which a question looks for names, if it is lent.
    fn searched(&self, object: ObjectId, body: &FileBody) -> Option<(InodeId, Lent)> {
        let FileBody::Ask(Query::Tree(query)) = body else { return None };
        let (Ask::Lookup { dir, .. } | Ask::List { dir, .. }) = query.ask else { return None };
        let guards = !self.config.breaks(Bug::DirectoryOfTwo);
        let hosted = self.files.hosted.get(&object).filter(|_| guards)?;
        Some((dir, hosted.replica.machine().tree().lent(dir)?))
    }

    /// The file by whose permissions such a question is answered or refused, if it is lent: its owner may have set them there.
    fn judged(&self, object: ObjectId, body: &FileBody) -> Option<(InodeId, Lent)> {
        let inode = match body {
            FileBody::Open { inode, .. } => *inode,
            FileBody::Ask(Query::Tree(query)) => query.ask.judged_by()?,
            _ => return None,
        };
        let guards = !self.config.breaks(Bug::JudgedByOldMode);
        let hosted = self.files.hosted.get(&object).filter(|_| guards)?;
        Some((inode, hosted.replica.machine().tree().lent(inode)?))
    }

    /// Whoever leads a volume knows what is lent, whoever has lent it.
    fn knows_lend(&self, object: ObjectId, lent: &Lent) -> bool {
        let promised = self.files.hosted.get(&object).map(|hosted| hosted.replica.promised());
        !self.config.breaks(Bug::LendInMemory) || promised == Some(lent.generation.0.epoch)
    }

    /// The content asks about a lend under which a client wants to change it.
    pub(crate) fn note_confirmed(&mut self, object: ObjectId, attributes: &Attributes) {
        if let Some(hosted) = self.files.hosted.get_mut(&object)
            && matches!(attributes.lent, Some(Lent { to: LentTo::Client(_), .. }))
        {
            hosted.recalls.touch(attributes.inode);
        }
    }

    /// A client has ended: takes back some of what is lent to it.
    pub(crate) fn recall_from(&mut self, now: WallTime, object: ObjectId, client: ClientId) {
        let Some(hosted) = self.files.hosted.get(&object) else { return };
        let tree = hosted.replica.machine().tree();
        let lent: Vec<(InodeId, Lent)> = tree
            .lent_to(client, AT_ONCE)
            .into_iter()
            .filter_map(|inode| Some((inode, tree.lent(inode)?)))
            .collect();
        lent.into_iter().for_each(|lent| self.recall(now, object, lent, None));
    }
}

/// So much is taken back from a client that has ended at a time.
const AT_ONCE: usize = 64;

impl Recall {
    fn of(lent: Lent, since: WallTime) -> Self {
        let stage = Stage::Asked(BTreeSet::new());
        Self { lent, since, stage, modified: None, given: None, own: None, waiting: Vec::new() }
    }
}

impl Hosted {
    /// What the tree is to have of a file whose content nobody has changed, if a user has set when that was.
    fn left_alone(&self, inode: InodeId, now: WallTime, modified: WallTime) -> Option<Given> {
        match self.replica.machine().tree().part(&Key::Inode(inode)) {
            Some(Part::Inode(found)) => {
                let size = found.attributes(inode).size;
                Some(Given { size, mtime: modified, ctime: now })
            }
            _ => None,
        }
    }
}

/// The inode that an answer tells how it is.
fn shown(answer: &FileReplyBody) -> Option<&Attributes> {
    match answer {
        FileReplyBody::Answer(Ok(Answer::Tree(answer))) => match &**answer {
            TreeAnswer::Attributes(attributes) => Some(attributes),
            _ => None,
        },
        _ => None,
    }
}
