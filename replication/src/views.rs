//! The members of an object change: one at a time, by an entry that is durable at majorities of both views.
//!
//! A newcomer gets the object first. What it needs before it counts is what was there when it came, durably. Who is no
//! member any more keeps that as its tombstone and tells everybody who asks by an older view, until every member of
//! every earlier view knows of the later one and keeps it: then nobody is left who could ask.

use base::{Epoch, Members, NodeId, Seq, View, ViewId, WallTime};

use crate::primary::Peer;
use crate::replica::Role;
use crate::state::Holding;
use crate::{Body, Bug, ChangeError, Entry, Event, Machine, Message, Position, Record, Replica, When};

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
        }
        primary.peers.entry(node).or_insert(Peer::new(Seq(0)));
        primary.chased = None;
        if self.config.breaks(Bug::NewcomerNotCaughtUp) {
            self.change(now, |members| with(members, node));
        }
        self.replicate(now, node);
        Ok(())
    }

    /// Lets a node be a member no more; it may be this one.
    pub fn dismiss(&mut self, now: WallTime, node: NodeId) -> Result<(), ChangeError> {
        let members = self.check_changing()?;
        if !members.contains(node) {
            return Err(ChangeError::NotMember(node));
        }
        without(&members, node).ok_or(ChangeError::Count)?;
        self.change(now, |members| without(members, node));
        Ok(())
    }

    fn check_changing(&self) -> Result<Members, ChangeError> {
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
        let View { id, members } = self.view().clone();
        for &node in members.as_slice() {
            let message = Message::Adopted { epoch: Epoch::default(), view: id };
            self.send(node, message, When::Durable(self.last_io()));
        }
    }

    /// Somebody knows a view for good.
    pub(crate) fn handle_adopted(&mut self, now: WallTime, from: NodeId, view: ViewId) {
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
    pub(crate) fn handle_forget(&mut self, view: ViewId) {
        if self.is_retired() && self.view().id <= view {
            self.tell_event(Event::Forgotten);
        }
    }

    /// A peer knows of a later view, which is committed.
    pub(crate) fn handle_wrong_view(&mut self, now: WallTime, epoch: Epoch, current: View) {
        let ours = match &self.role {
            Role::Backup => return,
            Role::Candidate(candidate) => candidate.tenure.epoch,
            Role::Primary(primary) => primary.tenure.epoch,
        };
        if epoch == ours && current.id > self.view().id {
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
