//! What every replica does, whoever is primary: promise, take entries in, and let what is committed take effect.

use base::{Epoch, Members, NodeId, Seq, View, ViewId, WallTime};

use crate::replica::{Role, follow_each_other};
use crate::sessions::Known;
use crate::state::Holding;
use crate::{
    Account, Body, Bug, Entry, Event, Limit, Machine, Message, Output, Position, Record, Replica, Request,
    When,
};

impl<M: Machine> Replica<M> {
    /// Takes in what a replica of this object has sent, which may be this one, and the view that came along.
    pub fn handle_message(&mut self, now: WallTime, from: NodeId, view: ViewId, message: Message<M>) {
        let before = self.view().id;
        // Who is a member no more says so to nobody's question, and names no primary's epoch.
        let is_answer = matches!(message, Message::Adopted { .. } | Message::There { .. });
        if message.epoch().node == from && !is_answer {
            self.handle_primary(now, from, view, message);
        } else {
            self.handle_peer(now, from, message);
        }
        if self.view().id != before {
            self.tell_event(Event::View(self.view().clone()));
        }
    }

    /// What a primary says, or who wants to be one. It may also be this node, about its own journal.
    fn handle_primary(&mut self, now: WallTime, from: NodeId, view: ViewId, message: Message<M>) {
        if from == self.me {
            return self.handle_peer(now, from, message);
        }
        match message {
            Message::Adopt { epoch, view } => return self.handle_adopt(now, from, epoch, view),
            Message::Forget { epoch, view } => return self.handle_forget(epoch, view),
            _ => {}
        }
        let known = self.view();
        if view < known.id {
            let message = Message::WrongView { epoch: message.epoch(), current: known.clone() };
            return self.send(from, message, When::Now);
        }
        if let Message::Lacks { at, parts, .. } = message {
            // It may be about to become a member.
            return self.handle_lacks(now, from, (at, parts));
        }
        if view == known.id && self.holding == Holding::Whole && !known.members.contains(from) {
            return;
        }
        match message {
            Message::Promise { epoch, begun_after } => self.handle_promise(from, epoch, begun_after),
            Message::Fetch { epoch, after } => self.handle_fetch(from, epoch, after),
            Message::Append { epoch, after, entries, committed } => {
                self.handle_append(now, epoch, (after, entries), committed);
            }
            Message::Sync { epoch, upto } => self.handle_sync(from, epoch, upto),
            Message::Offer { epoch, at, generation } => self.handle_offer(now, epoch, (at, generation)),
            Message::Pulled { epoch, at, page } => self.handle_pulled(now, (epoch, at), page),
            // What only those say who answer a primary.
            _ => {}
        }
    }

    /// What others answer to this node as a primary, or as one that wants to be.
    fn handle_peer(&mut self, now: WallTime, from: NodeId, message: Message<M>) {
        match message {
            Message::Promised { epoch, account } => self.handle_promised(now, from, (epoch, account)),
            Message::Refused { epoch, promised } => self.handle_refused(epoch, promised),
            Message::WrongView { epoch, current } => self.handle_wrong_view(now, epoch, current),
            Message::Apart { epoch } => self.handle_apart(now, from, epoch),
            Message::Append { epoch, after, entries, committed } => {
                self.handle_fetched(now, (from, epoch), (after, entries), committed);
            }
            Message::Appended { epoch, upto } => self.handle_appended(now, from, (epoch, upto)),
            Message::Missing { epoch, committed } => self.handle_missing(now, from, (epoch, committed)),
            Message::Synced { epoch, upto } => self.handle_synced(now, from, (epoch, upto)),
            Message::Pull { epoch, at, after, upto, have } => {
                self.handle_pull(now, (from, epoch), at, (after, upto), &have);
            }
            Message::Adopted { view, .. } => self.handle_adopted(now, from, view),
            Message::Found { parts, .. } => self.handle_found(now, from, parts),
            // Said by somebody who is not the primary of the epoch it names.
            _ => {}
        }
    }

    fn handle_promise(&mut self, from: NodeId, epoch: Epoch, begun_after: u64) {
        // Nobody asks so who is above it.
        if begun_after < epoch.number {
            self.note_beginning(begun_after);
        }
        if !self.follow(epoch) {
            return self.refuse(from, epoch);
        }
        let message = Message::Promised { epoch, account: self.account() };
        self.send(from, message, When::Written(self.last_io()));
    }

    /// What is here.
    pub(crate) fn account(&self) -> Account {
        Account {
            tail: self.log.tail(),
            committed: self.log.committed_position(),
            memory: self.memory(),
            frozen_at: self.frozen_at(),
        }
    }

    /// A new primary that this replica has promised to follow lacks entries.
    fn handle_fetch(&mut self, from: NodeId, epoch: Epoch, after: Position) {
        if epoch != self.promised || self.holding != Holding::Whole {
            return;
        }
        let message = if self.log.contains(after) {
            let entries = self.log.batch(after.seq, self.config.batch_max, self.config.entries_bytes_max());
            Message::Append { epoch, after, entries, committed: self.log.committed() }
        } else {
            Message::Apart { epoch }
        };
        self.send(from, message, When::Written(self.last_io()));
    }

    fn handle_append(
        &mut self,
        now: WallTime,
        epoch: Epoch,
        (after, entries): (Position, Vec<Entry<M::Op>>),
        committed: Seq,
    ) {
        let from = epoch.node;
        if !self.follow(epoch) && !self.config.breaks(Bug::NoEpochCheck) {
            return self.refuse(from, epoch);
        }
        // What is given to a replica that takes no more in must not end before what it knows to be committed.
        let is_full = self.is_overgrown() && committed >= self.log.committed();
        let is_whole = self.holding == Holding::Whole && !is_full;
        let Some(upto) = is_whole.then(|| self.take((after, entries), epoch, committed)).flatten() else {
            let committed = is_whole.then(|| self.log.committed_position());
            return self.send(from, Message::Missing { epoch, committed }, When::Written(self.last_io()));
        };
        self.confirmed = self.confirmed.max(upto.seq);
        self.commit(now, committed.min(upto.seq));
        let when =
            if self.config.breaks(Bug::AckBeforeWrite) { When::Now } else { When::Written(self.last_io()) };
        self.send(from, Message::Appended { epoch, upto }, when);
    }

    fn handle_sync(&mut self, from: NodeId, epoch: Epoch, upto: Position) {
        if !self.follow(epoch) {
            return self.refuse(from, epoch);
        }
        // What is not here yet is on its way, and the primary asks again. What is lacking is not durable, nor is what has only come back.
        if upto.seq <= self.confirmed && self.outlives_a_start() {
            self.send(from, Message::Synced { epoch, upto }, When::Durable(self.last_io()));
        }
    }

    /// Follows the primary of `epoch` from now on, unless a later one was promised (R1).
    pub(crate) fn follow(&mut self, epoch: Epoch) -> bool {
        if epoch <= self.promised {
            return epoch == self.promised;
        }
        self.step_down(Some(Event::Outbid { promised: epoch }));
        self.confirmed = Seq(0);
        if !self.config.breaks(Bug::PromiseNotKept) {
            self.promised = epoch;
            self.journal(Record::Promised(epoch));
        }
        true
    }

    pub(crate) fn refuse(&mut self, from: NodeId, epoch: Epoch) {
        let message = Message::Refused { epoch, promised: self.promised };
        self.send(from, message, When::Written(self.last_io()));
    }

    /// Takes entries in that stand behind `after`. Returns the last position that is the same as the sender's, or none
    /// if the entries do not fit: then nothing has changed.
    pub(crate) fn take(
        &mut self,
        (after, mut entries): (Position, Vec<Entry<M::Op>>),
        epoch: Epoch,
        committed: Seq,
    ) -> Option<Position> {
        // A question whether something is here is no entry: the bug is about entries.
        let is_unchecked = self.config.breaks(Bug::NoPredecessorCheck) && !entries.is_empty();
        let fits = self.log.contains(after) || is_unchecked;
        let is_sound = follow_each_other(after, &entries) && entries.iter().all(|e| e.at.epoch <= epoch);
        if !fits || !is_sound {
            return None;
        }
        let upto = entries.last().map_or(after, |entry| entry.at);
        let known = entries.iter().take_while(|entry| self.log.contains(entry.at)).count();
        entries.drain(..known);
        let Some(first) = entries.first() else { return Some(upto) };
        let after = Seq(first.at.seq.0 - 1);
        if after < self.log.committed() || after > self.log.tail().seq {
            return None;
        }
        // What stood there is of a tenure that never committed it.
        self.truncate(after);
        entries.iter().for_each(|entry| self.push(entry.clone()));
        let committed = committed.min(upto.seq).max(self.log.committed());
        self.journal(Record::Appended { after, entries, committed });
        Some(upto)
    }

    /// Everything up to a place is committed: it takes effect, unless something is lacking for that.
    pub(crate) fn commit(&mut self, now: WallTime, upto: Seq) {
        self.log.commit(upto);
        if !self.lacks() {
            self.take_effect(now);
        }
    }

    /// What is committed takes effect.
    pub(crate) fn take_effect(&mut self, now: WallTime) {
        for seq in self.state.rest.at.seq.0 + 1..=self.log.committed().0 {
            let entry = self.log.get(Seq(seq)).expect("checked by the log").clone();
            self.state.rest.at = entry.at;
            match entry.body {
                Body::Barrier { generation } => self.state.rest.generation = generation,
                Body::Expire { client, .. } if self.config.breaks(Bug::ExpiredForgotten) => {
                    self.state.rest.sessions.drop_client(client);
                }
                Body::Expire { client, since, forget } => {
                    self.state.rest.sessions.expire(client, since, forget);
                }
                Body::View(members) => self.enter_view(View { id: entry.at.into(), members }),
                Body::Settled(view) => {
                    self.state.rest.settled = view;
                    self.state.rest.former.clear();
                }
                Body::Op { request, op } => {
                    let outcome = self.apply(entry.at, request, &op);
                    self.answer_request(now, entry.at, request, outcome);
                }
            }
        }
        self.trim();
    }

    /// Lets a request take effect, once. None if its client is over.
    fn apply(&mut self, at: Position, request: Request, op: &M::Op) -> Option<M::Outcome> {
        let state = &mut self.state;
        match state.rest.sessions.find(request) {
            Known::Done(outcome) if !self.config.breaks(Bug::NoDeduplication) => Some(outcome.clone()),
            Known::Settled | Known::Expired => None,
            Known::New | Known::Done(_) => {
                let outcome = state.machine.apply(at, op);
                state.rest.sessions.keep(request, outcome.clone());
                Some(outcome)
            }
        }
    }

    fn trim(&mut self) {
        let (config, log) = (&self.config, &self.log);
        let kept = log.first_kept(config.kept_max, config.kept_bytes_max);
        let lending = log.first_kept(config.kept_lending_max, config.kept_lending_bytes_max);
        let lent = self.first_lent().unwrap_or(Seq(u64::MAX));
        let (wanted, upto) = (kept.min(lent), kept.min(lent).max(lending).min(self.state.rest.at.seq));
        if upto > log.base().seq {
            let is_lent = wanted < upto;
            let entries_max = if is_lent { config.kept_lending_max } else { config.kept_max };
            let is_long = log.first_kept(entries_max, u64::MAX) >= upto;
            self.reached.note(match (is_lent, is_long) {
                (false, true) => Limit::Kept,
                (false, false) => Limit::KeptBytes,
                (true, true) => Limit::Lending,
                (true, false) => Limit::LendingBytes,
            });
        }
        self.trim_log(upto);
    }

    /// The members change.
    fn enter_view(&mut self, view: View) {
        let rest = &mut self.state.rest;
        rest.former.extend(rest.view.members.as_slice());
        rest.former.extend(rest.home.iter().flat_map(Members::as_slice));
        if self.coming.front().is_some_and(|first| first.id == view.id) {
            self.coming.pop_front();
        }
        rest.before = rest.view.id;
        rest.view = view;
    }

    pub(crate) fn answer_request(
        &mut self,
        now: WallTime,
        at: Position,
        request: Request,
        outcome: Option<M::Outcome>,
    ) {
        let Role::Primary(primary) = &mut self.role else { return };
        primary.clients.remove(&request.client);
        if primary.requests.remove(&(request.client, request.number)).is_none() {
            return;
        }
        match outcome {
            Some(outcome) => self.tell_done(now, at, request, outcome),
            None => self.outputs.push_back(Output::Unknown(crate::Waiting::Request(request))),
        }
    }
}
