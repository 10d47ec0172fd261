//! The members of an object change: one at a time, by an entry that is durable at majorities of both views.
//!
//! A newcomer gets the object first. What it needs before it counts is what was there when it came, durably. Who is no
//! member any more keeps that as its tombstone and tells everybody who asks by an older view, until every member of
//! every earlier view knows of the later one and keeps it: then nobody is left who could ask.
//!
//! Who knows nothing at all of an object has to look somewhere. If the first members are that place, they are its *home*:
//! they are told of every later view, too, and keep the last one when all else of it is gone.

use std::collections::BTreeSet;

use base::{Epoch, Members, NodeId, Seq, View, ViewId, WallTime};

use crate::damage::Lacking;
use crate::log::Log;
use crate::primary::Peer;
use crate::replica::Role;
use crate::state::Holding;
use crate::{Body, Bug, ChangeError, Entry, Event, Machine, Message, Position, Record, Replica, Rest, When};

impl<M: Machine> Replica<M> {
    /// Makes a node a member once it has what there is now.
    pub fn admit(&mut self, now: WallTime, node: NodeId) -> Result<(), ChangeError> {
        let members = self.check_changing()?;
        if members.contains(node) {
            return Err(ChangeError::Member(node));
        }
        with(&members, node).ok_or(ChangeError::Count)?;
        let tail = self.log.tail().seq;
        let Role::Primary(primary) = &mut self.role else { return Ok(()) };
        if let Some((before, _)) =
            primary.newcomer.replace((node, tail)).filter(|&(before, _)| before != node)
        {
            primary.peers.remove(&before);
            self.lent.remove(&before);
        }
        primary.peers.entry(node).or_insert(Peer::new(Seq(0)));
        primary.chased = None;
        if self.config.breaks(Bug::NewcomerNotCaughtUp) {
            self.change(now, |members| with(members, node));
        }
        self.replicate(now, node);
        Ok(())
    }

    /// Lets a node be a member no more; it may be this one. A newcomer that is none yet is not made one.
    pub fn dismiss(&mut self, now: WallTime, node: NodeId) -> Result<(), ChangeError> {
        let members = self.check_changing()?;
        if let Role::Primary(primary) = &mut self.role
            && primary.newcomer.is_some_and(|(newcomer, _)| newcomer == node)
        {
            primary.newcomer = None;
            primary.peers.remove(&node);
            self.lent.remove(&node);
            return Ok(());
        }
        if !members.contains(node) {
            return Err(ChangeError::NotMember(node));
        }
        without(&members, node).ok_or(ChangeError::Count)?;
        self.change(now, |members| without(members, node));
        Ok(())
    }

    /// Who is to become a member once it has the object.
    pub fn newcomer(&self) -> Option<NodeId> {
        let Role::Primary(primary) = &self.role else { return None };
        primary.newcomer.map(|(node, _)| node)
    }

    /// Those who will be members when all entries here are committed.
    pub fn members_to_be(&self) -> &Members {
        self.latest_members()
    }

    /// Whether no change of members is under way, and all who were ever a member know who is.
    pub fn is_settled(&self) -> bool {
        self.coming.is_empty() && self.state.rest.former.is_empty() && self.newcomer().is_none()
    }

    /// Whether there never was a state here that made sense, or is none any more. Such a node is no member. One whose state
    /// was damaged may be.
    pub fn is_blank(&self) -> bool {
        let has_nothing = self.holding != Holding::Whole && self.state.rest.at == Position::START;
        has_nothing && self.damaged_at.is_none()
    }

    /// Whether nothing is kept here, not even a promise.
    pub fn is_void(&self) -> bool {
        let has_nothing = self.is_blank() && self.holding == Holding::Nothing;
        has_nothing && self.promised == Epoch::default() && self.adopted.is_none()
    }

    /// Somebody knows this view to be committed.
    pub fn learn_view(&mut self, now: WallTime, view: View) {
        if view.id > self.view().id {
            self.adopt(now, view);
            self.tell_event(Event::View(self.view().clone()));
        }
    }

    /// A node knows a later view than this one does, and is asked for it.
    pub fn ask_for_view(&mut self, node: NodeId) {
        let epoch = Epoch { number: 0, node: self.me };
        self.send(node, Message::WhichView { epoch }, When::Now);
    }

    /// Nobody will ask this node about the object any more: nothing of it is kept.
    pub fn bury(&mut self) {
        self.step_down(None);
        self.clear(None);
        self.journal(Record::Buried(None));
    }

    /// Nothing is here any more but perhaps the last view.
    pub(crate) fn clear(&mut self, view: Option<View>) {
        self.take_all_apart();
        let me = self.me;
        let home = self.state.rest.home.take().filter(|_| view.is_some());
        let alone = Members::new([me]).expect("one node is a list of members");
        self.state.rest = Rest { home, ..Rest::of(View { id: ViewId::default(), members: alone }) };
        (self.holding, self.log) = (Holding::Nothing, Log::behind_base(Position::START));
        (self.accepted, self.confirmed, self.incoming) = (Epoch::default(), Seq(0), None);
        (self.lacking, self.lacking_asked, self.lacked_by) = (Lacking::default(), WallTime::ZERO, None);
        self.coming.clear();
        if view.is_none() {
            // What is not kept at all cannot be damaged.
            (self.promised, self.damaged_at) = (Epoch::default(), None);
        }
        self.adopted = view;
    }

    fn check_changing(&mut self) -> Result<Members, ChangeError> {
        self.check_asking()?;
        let Role::Primary(primary) = &self.role else { return Err(crate::AskError::NotPrimary.into()) };
        if !primary.serves {
            return Err(crate::AskError::Recovering.into());
        }
        if !self.coming.is_empty() {
            return Err(ChangeError::Changing);
        }
        Ok(self.state.rest.view.members.clone())
    }

    fn change(&mut self, now: WallTime, next: impl Fn(&Members) -> Option<Members>) {
        let Some(members) = next(&self.state.rest.view.members) else { return };
        let at = self.append(now, Body::View(members));
        self.sync_for_view(now, at);
    }

    /// Goes on with a change of members as far as those are whom it waits for.
    pub(crate) fn chase(&mut self, now: WallTime) {
        let retry = self.config.retry_after;
        let Role::Primary(primary) = &mut self.role else { return };
        if !primary.serves || !self.coming.is_empty() {
            // There is nobody to be asked until the view is committed.
            primary.chased = None;
            return;
        }
        let is_due = primary.chased.is_none_or(|asked| now.since(asked) >= retry);
        let waits_for_newcomer = self.admit_newcomer(now, is_due);
        let waits_for_former = self.settle_view(now, is_due);
        let Role::Primary(primary) = &mut self.role else { return };
        if !waits_for_newcomer && !waits_for_former {
            primary.chased = None;
        } else if is_due {
            primary.chased = Some(now);
        }
    }

    /// Makes a member of a newcomer that has what it needs. Whether something was asked of it.
    fn admit_newcomer(&mut self, now: WallTime, is_due: bool) -> bool {
        let Role::Primary(primary) = &mut self.role else { return false };
        let Some((node, needs)) = primary.newcomer else { return false };
        let Some(peer) = primary.peers.get(&node).filter(|peer| peer.matched >= needs) else { return false };
        if peer.synced >= needs {
            primary.newcomer = None;
            self.change(now, |members| with(members, node));
            return false;
        }
        let (epoch, upto) = (primary.tenure.epoch, self.log.position(peer.matched));
        if let Some(upto) = upto.filter(|_| is_due) {
            self.send(node, Message::Sync { epoch, upto }, When::Now);
        }
        true
    }

    /// Sees to it that everybody who was ever a member knows of the view. Whether it waits for anybody.
    fn settle_view(&mut self, now: WallTime, is_due: bool) -> bool {
        let (view, former) = (&self.state.rest.view, &self.state.rest.former);
        let Role::Primary(primary) = &mut self.role else { return false };
        let is_waiting = |entry: &Entry<M::Op>| matches!(entry.body, Body::Settled(_));
        if former.is_empty() || self.log.behind(self.log.committed()).any(is_waiting) {
            return false;
        }
        let early = self.config.breaks(Bug::TombstoneDroppedEarly);
        let knows = |node: &NodeId| {
            let is_excused = self.struck.contains(node) || early && view.members.contains(*node);
            is_excused || primary.adopted.contains(node)
        };
        let ignorant: Vec<NodeId> = former.iter().copied().filter(|node| !knows(node)).collect();
        let (view, epoch) = (view.clone(), primary.tenure.epoch);
        if ignorant.is_empty() {
            self.append(now, Body::Settled(view.id));
            return false;
        }
        for &node in ignorant.iter().filter(|_| is_due) {
            if node == self.me {
                let message = Message::Adopted { epoch, view: view.id };
                self.keep_view(view.clone());
                self.send(node, message, When::Durable(self.last_io()));
            } else {
                self.send(node, Message::Adopt { epoch, view: view.clone() }, When::Now);
            }
        }
        true
    }

    /// A view of this tenure, or of the one before, is committed.
    pub(crate) fn view_entered(&mut self) {
        let members = self.state.rest.view.members.clone();
        let Role::Primary(primary) = &mut self.role else { return };
        let newcomer = primary.newcomer.map(|(node, _)| node);
        let stays = |node: NodeId| members.contains(node) || Some(node) == newcomer;
        primary.peers.retain(|&node, _| stays(node));
        primary.adopted.clear();
        primary.chased = None;
        self.lent.retain(|&node, _| stays(node));
        if !members.contains(self.me) {
            self.step_down(None);
        }
    }

    /// A view is committed.
    pub(crate) fn handle_adopt(&mut self, now: WallTime, from: NodeId, epoch: Epoch, view: View) {
        let id = view.id;
        if id < self.view().id {
            return;
        }
        self.adopt(now, view);
        self.send(from, Message::Adopted { epoch, view: id }, When::Durable(self.last_io()));
    }

    /// A view is committed, and from now on this node knows that for good.
    fn adopt(&mut self, now: WallTime, view: View) {
        let at = Position::from(view.id);
        if self.role_is_behind(&view) {
            self.step_down(Some(Event::WrongView));
        }
        if self.holding == Holding::Whole && self.log.contains(at) {
            self.commit(now, at.seq);
        }
        self.keep_view(view);
    }

    /// That a view is committed may be known from a log, or from hearsay. That alone would be forgotten with the power.
    pub(crate) fn keep_view(&mut self, view: View) {
        if self.adopted.as_ref() != Some(&view) {
            self.journal(Record::Adopted(view.clone()));
            self.adopted = Some(view);
        }
    }

    /// Whether a tenure here began without knowing of `view`.
    fn role_is_behind(&self, view: &View) -> bool {
        match &self.role {
            Role::Backup => false,
            Role::Candidate(candidate) => candidate.view.id < view.id,
            Role::Primary(_) => self.view().id < view.id,
        }
    }

    /// Says from time to time that it waits for nobody to ask it any more.
    pub(crate) fn say_retired(&mut self, now: WallTime) {
        if !self.is_retired() || now.since(self.retired_said) < self.config.retired_every {
            return;
        }
        self.retired_said = now;
        let view = self.view().clone();
        self.keep_view(view.clone());
        let View { id, members } = view;
        let mut asked: BTreeSet<NodeId> = members.as_slice().iter().copied().collect();
        // By now there may be others, and these know.
        asked.extend(self.state.rest.home.iter().flat_map(Members::as_slice));
        asked.remove(&self.me);
        for node in asked {
            let message = Message::Adopted { epoch: Epoch::default(), view: id };
            self.send(node, message, When::Durable(self.last_io()));
        }
    }

    /// Somebody knows a view for good.
    pub(crate) fn handle_adopted(&mut self, now: WallTime, from: NodeId, view: ViewId) {
        if view < self.view().id && !matches!(self.role, Role::Primary(_)) {
            // It may not know whom to ask any more.
            let (epoch, current) = (Epoch { number: 0, node: from }, self.view().clone());
            return self.send(from, Message::WrongView { epoch, current }, When::Now);
        }
        let (current, settled) = (self.state.rest.view.id, self.state.rest.settled);
        let latest = self.latest_members().clone();
        let Role::Primary(primary) = &mut self.role else { return };
        let is_wanted = latest.contains(from) || primary.newcomer.is_some_and(|(node, _)| node == from);
        let epoch = primary.tenure.epoch;
        if primary.serves && settled == current && view <= current && !is_wanted {
            self.send(from, Message::Forget { epoch, view: settled }, When::Now);
        } else if view == current && self.state.rest.former.contains(&from) {
            primary.adopted.insert(from);
            self.chase(now);
        }
    }

    /// Nobody will ask about the object any more.
    pub(crate) fn handle_forget(&mut self, epoch: Epoch, view: ViewId) {
        if !self.is_retired() {
            return self.handle_over(epoch, view);
        }
        if self.view().id > view {
            return;
        }
        if self.state.rest.is_home(self.me) {
            let view = Some(self.view().clone());
            self.clear(view.clone());
            self.journal(Record::Buried(view));
        } else {
            self.tell_event(Event::Forgotten);
        }
    }

    /// A peer knows of a later view, which is committed.
    pub(crate) fn handle_wrong_view(&mut self, now: WallTime, epoch: Epoch, current: View) {
        let is_ours = match &self.role {
            // It may have asked for it.
            Role::Backup => true,
            Role::Candidate(candidate) => candidate.tenure.epoch == epoch,
            Role::Primary(primary) => primary.tenure.epoch == epoch,
        };
        if is_ours && current.id > self.view().id {
            self.adopt(now, current);
        }
    }
}

fn with(members: &Members, node: NodeId) -> Option<Members> {
    Members::new(members.as_slice().iter().copied().chain([node])).ok()
}

fn without(members: &Members, node: NodeId) -> Option<Members> {
    Members::new(members.as_slice().iter().copied().filter(|&member| member != node)).ok()
}
