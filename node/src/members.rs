//! Who the members of a file are: a file begins at those that the map names, and from then on its replicas decide.
//!
//! A view is in force for the lease of a file's cell as soon as the replica here knows it to be committed, and never an
//! earlier one again. Whoever has a lease by a majority of one view and whoever has one by a majority of the next need the
//! vote of a common member, which keeps its register when the view changes; and no member votes in a view any more
//! when a second one was begun behind it.
//!
//! The members that the map names are the file's home: whoever knows nothing else asks them, so they are told of every
//! view, and keep the last one when they are no members any more. All others forget a file that they are no member of.

use std::borrow::Cow;

use base::{Epoch, MEMBERS_MAX, Members, NodeId, ObjectId, View, ViewId, WallTime};
use lease::{Algorithm, Membership, ViewSource};
use replication::{AskError, ChangeError, Message, Replica};

use crate::file::{File, FileReplyBody};
use crate::files::{FileMessage, Files, Hosted, Stage};
use crate::message::is_lock;
use crate::steps::Step;
use crate::{Bug, ClusterMap, Shard, ShardEvent, Unavailable};

/// How the members of a file are to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberChange {
    /// This node is to be one.
    Admit(NodeId),
    /// This node is to be none.
    Dismiss(NodeId),
}

/// How far a change of members is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// It is as it was to be, and every later primary knows.
    Done,
    /// It is under way. Ask again.
    UnderWay,
}

/// Why the members of a file do not change. Nothing has happened then, unless it says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MembersError {
    /// This daemon cannot say.
    #[error("this daemon cannot change the members of files now ({0:?}); ask another member, or again")]
    Unavailable(Unavailable),
    /// Another daemon is primary, or knows who is.
    #[error("node {0:?} answers for the file; ask there")]
    Elsewhere(NodeId),
    /// There is nothing to be replicated.
    #[error("there is no such file; create it first")]
    NoSuchFile,
    /// The map does not list it.
    #[error("node {0:?} is not in the cluster map; add it there first")]
    NotInMap(NodeId),
    /// It could not be given the file.
    #[error("node {0:?} is not connected; start it, or mend its network")]
    NotConnected(NodeId),
    /// One at a time.
    #[error("another change of the members is under way; ask again when it is done, or dismiss the newcomer")]
    Changing,
    /// The members have changed, and no majority of those that are now has granted the lease yet.
    #[error("the present members have not confirmed the primary's lease yet; ask again")]
    Undecided,
    /// The change, or what comes after it, could not be committed.
    #[error("no majority of the members before or after the change is connected; start those that are down")]
    NoMajority,
    /// Too many, or none left.
    #[error("a file has between 1 and {} members", base::MEMBERS_MAX)]
    Count,
}

/// Why a node is not given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StrikeError {
    /// It may yet ask somebody.
    #[error("node {0:?} is connected, so it is not gone; stop it first")]
    Connected(NodeId),
}

/// Where the lease protocol looks up who grants the lease of a cell.
pub(crate) struct Views<'a> {
    pub(crate) map: &'a ClusterMap,
    pub(crate) files: &'a Files,
}

impl ViewSource for Views<'_> {
    fn view(&self, cell: ObjectId) -> Option<Cow<'_, View>> {
        let hosted = if is_lock(cell) { None } else { self.files.hosted.get(&cell) };
        let is_unsure = hosted.is_some_and(|hosted| hosted.replica.is_unsure());
        (!is_unsure || self.files.votes_unsure).then(|| self.of(cell))
    }
}

impl<'a> Views<'a> {
    /// Who grants the lease of a cell, as far as this node knows.
    pub(crate) fn of(&self, cell: ObjectId) -> Cow<'a, View> {
        let hosted = if is_lock(cell) { None } else { self.files.hosted.get(&cell) };
        match hosted.and_then(|hosted| hosted.view.as_ref()) {
            Some(view) => Cow::Borrowed(view),
            None => self.map.view(cell),
        }
    }
}

impl<A: Algorithm> Shard<A> {
    /// Changes the members of a file, by an operator's word; called again until it is [done](Changed::Done). Only the
    /// primary does it.
    pub fn change_members(
        &mut self,
        now: WallTime,
        object: ObjectId,
        change: MemberChange,
    ) -> Result<Changed, MembersError> {
        let changed = self.open_file(now, object).map_err(refused).and_then(|()| {
            if self.files.hosted.get(&object).is_some_and(|hosted| hosted.serves()) {
                self.change_led(now, object, change)
            } else {
                self.lead_for_change(now, object)
            }
        });
        self.take_events(now);
        changed
    }

    /// A node is gone for good, by an operator's word: no file waits for it to be told anything.
    pub fn strike(&mut self, now: WallTime, node: NodeId) -> Result<(), StrikeError> {
        if self.peers.contains_key(&node) || node == self.me().node {
            return Err(StrikeError::Connected(node));
        }
        self.files.struck.insert(node);
        for object in self.files().collect::<Vec<_>>() {
            self.drain_replica(now, object);
        }
        self.take_events(now);
        Ok(())
    }

    /// Who the members of a file are, as far as this node knows.
    pub fn members_of(&self, object: ObjectId) -> Members {
        self.views().of(object).members.clone()
    }

    pub(crate) fn views(&self) -> Views<'_> {
        Views { map: &self.config.map, files: &self.files }
    }

    /// Whether this node is a member of the file, as far as it knows.
    pub(crate) fn is_member(&self, object: ObjectId) -> bool {
        self.views().of(object).members.contains(self.me().node)
    }

    /// Whom to ask about a file that this node is no member of.
    pub(crate) fn redirect(&self, object: ObjectId) -> FileReplyBody {
        let view = self.views().of(object);
        let others = || view.members.as_slice().iter().filter(|&&node| node != self.me().node);
        let there = others().find(|node| self.peers.contains_key(node));
        match there.or(others().next()) {
            Some(&node) => FileReplyBody::Elsewhere(node),
            None => FileReplyBody::Unavailable(Unavailable::NotMember),
        }
    }

    /// Puts the view that the replica knows in force for the lease. Never an earlier one: a replica that takes over a state
    /// may know less for a while.
    pub(crate) fn follow_view(&mut self, now: WallTime, object: ObjectId) {
        let me = self.me().node;
        let Some(hosted) = self.files.hosted.get(&object) else { return };
        if hosted.replica.is_unsure() && !self.files.votes_unsure {
            return;
        }
        let known = hosted.view.as_ref().map_or(ViewId::default(), |view| view.id);
        let view = hosted.replica.view();
        if view.id <= known || self.config.breaks(Bug::LeaseStaysAtHome) {
            return;
        }
        let is_member = view.members.contains(me);
        if !is_member && self.config.breaks(Bug::TombstoneIgnored) {
            return;
        }
        // If it cannot tell what was in between, it counts as a newcomer, and casts no vote for a while.
        let is_next = hosted.replica.view_before() == Some(known);
        let is_kept =
            !is_member || is_next && self.is_member(object) || self.config.breaks(Bug::NewcomerVotesAtOnce);
        let membership = if is_kept { Membership::Kept } else { Membership::Joined };
        let view = view.clone();
        if let Some(hosted) = self.files.hosted.get_mut(&object) {
            hosted.view = Some(view.clone());
        }
        self.lease.change_view(now, object, &view, membership);
        self.tell(ShardEvent::FileMembers { object, view });
    }

    /// The lease protocol has met somebody who knows a later view.
    pub(crate) fn file_view_known(&mut self, now: WallTime, object: ObjectId, view: View) {
        if let Some(hosted) = self.files.hosted.get_mut(&object) {
            hosted.replica.learn_view(now, view);
        }
        self.drain_replica(now, object);
    }

    /// The lease protocol has met somebody who wants a vote in a later view.
    pub(crate) fn file_view_behind(&mut self, now: WallTime, object: ObjectId, peer: NodeId) {
        if is_lock(object) || self.config.breaks(Bug::ViewNotAskedFor) {
            return;
        }
        if !self.files.hosted.contains_key(&object) && self.is_home(object) && self.has_room() {
            self.host(now, object);
        }
        if let Some(hosted) = self.files.hosted.get_mut(&object) {
            hosted.replica.ask_for_view(peer);
        }
        self.drain_replica(now, object);
    }

    /// Whether whoever knows nothing else of the file asks this node.
    pub(crate) fn is_home(&self, object: ObjectId) -> bool {
        self.config.map.view(object).members.contains(self.me().node)
    }

    pub(crate) fn has_room(&self) -> bool {
        self.files.hosted.len() < self.config.files_max
    }

    /// Makes sure that there is a replica to take a message in, if it may be the first that this node hears of a file.
    pub(crate) fn make_room(&mut self, now: WallTime, from: NodeId, message: &FileMessage) -> bool {
        let FileMessage { object, message, .. } = message;
        if self.files.hosted.contains_key(object) {
            return true;
        }
        let may_begin = !is_lock(*object) && self.has_room() && !is_for_what_was_here(message);
        // What a primary sends to a newcomer first.
        let is_for_newcomer =
            message.epoch().node == from && matches!(message, Message::Append { .. } | Message::Offer { .. });
        if may_begin && self.is_home(*object) {
            self.host(now, *object);
        } else if may_begin && is_for_newcomer {
            let (config, forgot_at) = (self.files.config.clone(), self.files.forgot_at);
            let replica = Replica::empty(self.me().node, config, File::default(), forgot_at);
            self.files.hosted.insert(*object, Box::new(Hosted::new(replica, now)));
            self.files.watch_blank(now, *object);
        }
        self.files.hosted.contains_key(object)
    }

    /// A node that is no member any more waits to hear that it may forget a file. If nobody leads, one of the members does.
    pub(crate) fn hear_retired(&mut self, now: WallTime, object: ObjectId, (from, since): (NodeId, ViewId)) {
        let view = self.views().of(object);
        let first = view.members.as_slice().iter().find(|&&node| self.is_there(node));
        if first != Some(&self.me().node) || self.unavailable(now).is_some() || self.files.is_stalled {
            return;
        }
        if let Some(hosted) = self.files.hosted.get_mut(&object)
            && hosted.replica.is_sound()
            && !hosted.serves()
        {
            if hosted.retired.len() < MEMBERS_MAX {
                hosted.retired.insert(from, since);
            }
            if hosted.stage == Stage::Idle && now >= hosted.avoided_until {
                hosted.stage = Stage::Leasing;
                self.steps.add(object, Step::Acquire);
            }
        }
    }

    /// This node serves a file, and can tell those who are no members any more.
    pub(crate) fn tell_retired(&mut self, now: WallTime, object: ObjectId) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        for (node, view) in std::mem::take(&mut hosted.retired) {
            let said = Message::Adopted { epoch: Epoch::default(), view };
            hosted.replica.handle_message(now, node, view, said);
        }
        self.drain_replica(now, object);
    }

    /// A member lacks what only a primary can give it: if nobody leads as far as this node knows, it does.
    pub(crate) fn lead_for_damaged(&mut self, now: WallTime, object: ObjectId) {
        let is_led = self.lease.hint(now, object).is_some();
        if is_led || self.unavailable(now).is_some() || self.files.is_stalled || !self.is_member(object) {
            return;
        }
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        if hosted.stage == Stage::Idle && now >= hosted.avoided_until {
            hosted.used = now;
            hosted.stage = Stage::Leasing;
            self.steps.add(object, Step::Acquire);
        }
    }

    /// Nobody will ask this node about a file any more.
    pub(crate) fn forget_file(&mut self, now: WallTime, object: ObjectId) {
        // Where the file began by the present map something is kept, wherever that was by an earlier one.
        let is_kept = self.is_home(object) && !self.config.breaks(Bug::HomeForgets);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        if hosted.stage != Stage::Idle || is_kept {
            // It says again that it is no member.
            return;
        }
        hosted.replica.bury();
        self.drain_replica(now, object);
        let away = self.redirect(object);
        self.send_waiting_away(object, &away);
        self.files.remove(object);
        self.files.logs.note(object, 0);
    }

    /// Replicas that were begun for a newcomer which nobody makes a member.
    pub(crate) fn forget_blank(&mut self, now: WallTime) {
        while let Some(object) = self.files.pop_blank(now, self.config.file_idle) {
            if !self.is_home(object) {
                self.forget_file(now, object);
            }
        }
    }

    /// Nobody waits for nodes that are gone for good, by an operator's word or by the map. Which of them were members is known only of
    /// changes that are known to be committed, and so this is asked again whenever a replica may know more. Whether one of them is news
    /// to it.
    pub(crate) fn strike_gone(&mut self, now: WallTime, object: ObjectId) -> bool {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return false };
        let awaited = hosted.replica.rest().former.iter().copied().chain(hosted.replica.newcomer());
        let (map, struck) = (&self.config.map, &self.files.struck);
        let gone: Vec<NodeId> =
            awaited.filter(|node| struck.contains(node) || map.osd(*node).is_none()).collect();
        gone.into_iter().filter(|&node| hosted.replica.strike(now, node)).count() > 0
    }

    /// This node leads as soon as it has the lease, and then it can be asked again.
    fn lead_for_change(&mut self, now: WallTime, object: ObjectId) -> Result<Changed, MembersError> {
        let busy = MembersError::Unavailable(Unavailable::Overloaded);
        let hint = self.lease.hint(now, object).map(|hint| hint.owner.node);
        if let Some(owner) = hint.filter(|&owner| owner != self.me().node) {
            return Err(MembersError::Elsewhere(owner));
        }
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return Err(busy) };
        if !hosted.replica.is_sound() {
            return Err(busy);
        }
        if std::mem::take(&mut hosted.is_absent) {
            hosted.ordered = None;
            return Err(MembersError::NoSuchFile);
        }
        if hosted.stage == Stage::Idle && now < hosted.avoided_until {
            return Err(MembersError::Unavailable(Unavailable::NoMajority));
        }
        (hosted.used, hosted.ordered) = (now, Some(now));
        if hosted.stage == Stage::Idle {
            hosted.stage = Stage::Leasing;
            self.steps.add(object, Step::Acquire);
        }
        Ok(Changed::UnderWay)
    }

    fn change_led(
        &mut self,
        now: WallTime,
        object: ObjectId,
        change: MemberChange,
    ) -> Result<Changed, MembersError> {
        let early = self.config.breaks(Bug::ChangeToldEarly);
        let under_way = if early { Changed::Done } else { Changed::UnderWay };
        if self.lease.valid_until(now, object).is_none() {
            return Err(MembersError::Unavailable(Unavailable::NoMajority));
        }
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return Ok(under_way) };
        (hosted.used, hosted.ordered) = (now, None);
        let replica = &hosted.replica;
        let (now_members, then) = (&replica.view().members, replica.members_to_be());
        let newcomer = replica.newcomer();
        let is_changing = now_members != then || newcomer.is_some();
        match change {
            MemberChange::Admit(node) if now_members.contains(node) && then.contains(node) => {
                return Ok(Changed::Done);
            }
            MemberChange::Admit(node) if then.contains(node) || newcomer == Some(node) => {
                return Ok(under_way);
            }
            MemberChange::Dismiss(node) if newcomer == Some(node) => {}
            MemberChange::Dismiss(node) if !now_members.contains(node) && !then.contains(node) => {
                return Ok(Changed::Done);
            }
            MemberChange::Dismiss(node) if !then.contains(node) => return Ok(under_way),
            MemberChange::Admit(_) | MemberChange::Dismiss(_) if is_changing => {
                return Err(MembersError::Changing);
            }
            MemberChange::Admit(_) | MemberChange::Dismiss(_) => self.check_change(now, object, change)?,
        }
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return Ok(under_way) };
        let changed = match change {
            MemberChange::Admit(node) => hosted.replica.admit(now, node),
            MemberChange::Dismiss(node) => hosted.replica.dismiss(now, node),
        };
        self.drain_replica(now, object);
        changed.map(|()| under_way).map_err(refused_by_replica)
    }

    /// Whether a change can be begun now, of a file that is led here and whose members are not changing.
    fn check_change(
        &mut self,
        now: WallTime,
        object: ObjectId,
        change: MemberChange,
    ) -> Result<(), MembersError> {
        let me = self.me().node;
        let view = self.views().of(object).into_owned();
        if self.lease.decided_in(object) != Some(view.id) {
            return Err(MembersError::Undecided);
        }
        let before = &view.members;
        let mut nodes = before.as_slice().to_vec();
        match change {
            MemberChange::Admit(node) if self.config.map.osd(node).is_none() => {
                return Err(MembersError::NotInMap(node));
            }
            MemberChange::Admit(node) if !self.is_there(node) => {
                return Err(MembersError::NotConnected(node));
            }
            MemberChange::Admit(node) => nodes.push(node),
            MemberChange::Dismiss(node) => nodes.retain(|&member| member != node),
        }
        let after = Members::new(nodes).map_err(|_| MembersError::Count)?;
        let is_enough = |members: &Members| {
            members.as_slice().iter().filter(|&&node| self.is_there(node)).count() >= members.majority()
        };
        if !is_enough(before) || !is_enough(&after) {
            return Err(MembersError::NoMajority);
        }
        if change == MemberChange::Dismiss(me) {
            // Whoever stays does that: so nobody has to wait until this node's lease is over.
            let successor = after.as_slice().iter().copied().find(|&node| self.is_there(node));
            let successor = successor.ok_or(MembersError::NoMajority)?;
            self.leave_file(now, object, Some(successor));
            return Err(MembersError::Elsewhere(successor));
        }
        Ok(())
    }

    fn is_there(&self, node: NodeId) -> bool {
        node == self.me().node || self.peers.contains_key(&node)
    }
}

/// Whether it says something to a primary, or about what the receiver has. To one that has nothing it means nothing.
const fn is_for_what_was_here(message: &Message<File>) -> bool {
    matches!(
        message,
        Message::Promised { .. }
            | Message::Refused { .. }
            | Message::Appended { .. }
            | Message::Missing { .. }
            | Message::Synced { .. }
            | Message::Pull { .. }
            | Message::Forget { .. }
    )
}

fn refused(reply: FileReplyBody) -> MembersError {
    match reply {
        FileReplyBody::Elsewhere(node) => MembersError::Elsewhere(node),
        FileReplyBody::Unavailable(why) => MembersError::Unavailable(why),
        _ => MembersError::Unavailable(Unavailable::Overloaded),
    }
}

const fn refused_by_replica(error: ChangeError) -> MembersError {
    match error {
        ChangeError::Ask(AskError::Busy) => MembersError::Unavailable(Unavailable::Overloaded),
        ChangeError::Ask(AskError::NotPrimary | AskError::Recovering) => {
            MembersError::Unavailable(Unavailable::NoMajority)
        }
        ChangeError::Changing | ChangeError::Member(_) | ChangeError::NotMember(_) => MembersError::Changing,
        ChangeError::Count => MembersError::Count,
    }
}
