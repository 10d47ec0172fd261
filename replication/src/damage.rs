//! Parts of a state that cannot be read any more, although their replica made them: found while it runs, or at a start.
//!
//! Nothing else is lost with them. The replica keeps its promise, its log, what it knows to be committed, and its requests.
//! So it goes on taking entries in and answering for them; but nothing takes effect here until it has back what it lacks,
//! and it neither serves nor says that anything is durable, nor is its state anybody's source.
//!
//! A part is named by the entry that changed it last, and equal positions mean equal histories: so whoever has it in that
//! version has exactly what is missing, whoever that is, and in whatever epoch. Every member is asked for it (`Lacks`,
//! `Found`). If nobody has that version any more, because others have gone on, the primary lends its state: what differs is
//! sent as to anybody else who takes a state over, but the log here stays, and what it has behind that state takes
//! effect then.
//!
//! What is lacking is kept, in the journal and in checkpoints, before anything that follows from it. A process
//! that ends before that finds it again as it was found the first time: nothing is ever read without being verified.
//!
//! What came back is in the journal, and where it was found to be damaged it still is. The next start finds that again, and cannot
//! always tell that what the journal has is what was there. So a replica that has all of its state back says again that something is durable
//! when a checkpoint has taken the place of what was damaged.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use base::{Epoch, NodeId, Seq, WallTime};

use crate::replica::Role;
use crate::state::Holding;
use crate::weight::part_bytes;
use crate::{Bug, Checkpoint, Event, Machine, Message, Parts, Position, Record, Replica, Rest, When};

/// No more parts are named that a state lacks.
const LACKING_MAX: usize = 1_024;

/// What is missing of a state.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Lacking<M: Machine> {
    /// These parts, each in this version.
    parts: BTreeMap<M::Key, Position>,
    /// Or more than that: what is here is of several states. Each part is what its version says.
    is_mixed: bool,
    /// A start has found it, and what the journal tells is older: it is not known what was there when that was written.
    is_doubtful: bool,
}

impl<M: Machine> Default for Lacking<M> {
    fn default() -> Self {
        Self { parts: BTreeMap::new(), is_mixed: false, is_doubtful: false }
    }
}

impl<M: Machine<Key: Hash>> Hash for Lacking<M> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.parts, self.is_mixed, self.is_doubtful).hash(state);
    }
}

impl<M: Machine> Lacking<M> {
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty() && !self.is_mixed
    }

    pub(crate) fn into_parts(self) -> (Vec<(M::Key, Position)>, bool) {
        (self.parts.into_iter().collect(), self.is_mixed)
    }

    pub(crate) fn from_parts(parts: Vec<(M::Key, Position)>, is_mixed: bool) -> Self {
        Self { parts: parts.into_iter().collect(), is_mixed, is_doubtful: false }
    }

    /// Some part is lacking from now on. Of one that is already nothing is here that could be damaged, whatever version the
    /// machine names.
    fn add(&mut self, key: M::Key, at: Position) {
        self.parts.entry(key).or_insert(at);
    }

    /// What lacks more than can be named takes over all of a state.
    fn bound(&mut self) {
        if self.parts.len() > LACKING_MAX {
            self.parts.clear();
            self.is_mixed = true;
        }
    }

    /// All that was written since has been told.
    pub(crate) const fn end_replay(&mut self) {
        self.is_doubtful = false;
    }

    /// A state is taken over from here on.
    pub(crate) fn begin_mixing(&mut self) {
        self.parts.clear();
        // What a start has found to be damaged may have been there when the state was compared with another.
        self.is_mixed = self.is_doubtful;
    }
}

impl<M: Machine> Checkpoint<M> {
    /// The same, but for parts that a start cannot read: the rest of it, and what was written since, is sound. Of a part that is not in
    /// the machine it is not even known in which version it was: then all parts are compared with another member's.
    #[must_use]
    pub fn lacking(mut self, keys: impl IntoIterator<Item = M::Key>) -> Self {
        let (mut found, mut is_unknown) = (Vec::new(), false);
        for key in keys {
            match self.state.machine.version(&key) {
                Some(at) => found.push((at, key)),
                None => is_unknown = true,
            }
        }
        self.lacking.is_doubtful |= is_unknown || !found.is_empty();
        self.lacking.is_mixed |= is_unknown;
        // Of a state that was being taken over it is not known what of it has been compared.
        self.lacking.is_mixed |= self.lacking.is_doubtful && self.holding != Holding::Whole;
        for (at, key) in found {
            self.state.machine.place(key.clone(), None);
            if self.holding == Holding::Whole {
                self.lacking.add(key, at);
            }
        }
        self.lacking.bound();
        self
    }
}

impl<M: Machine> Replica<M> {
    /// These parts of the state cannot be read any more, in these versions. What has another version by now is not meant.
    pub fn damage(&mut self, now: WallTime, parts: impl IntoIterator<Item = (M::Key, Position)>) {
        let machine = &self.state.machine;
        let lacking = &self.lacking.parts;
        let is_here =
            |(key, at): &(M::Key, Position)| machine.version(key) == Some(*at) && !lacking.contains_key(key);
        let parts: BTreeMap<M::Key, Position> = parts.into_iter().filter(is_here).collect();
        let parts: Vec<(M::Key, Position)> = parts.into_iter().collect();
        if self.holding == Holding::Nothing || parts.is_empty() {
            return;
        }
        let count = parts.len();
        for parts in parts.chunks(LACKING_MAX) {
            self.journal(Record::Damaged { applied: self.state.rest.at.seq, parts: parts.to_vec() });
        }
        self.lose_parts(parts);
        if self.lacks() {
            self.step_down(None);
        }
        self.tell_event(Event::Damaged { parts: count });
        if self.incoming.is_some() {
            return self.pull_anew(now);
        }
        self.ask_for_lacking(now);
    }

    pub(crate) fn replay_damage(&mut self, applied: Seq, parts: Vec<(M::Key, Position)>) -> Option<()> {
        if self.holding == Holding::Whole {
            (applied <= self.log.tail().seq).then_some(())?;
            self.commit(WallTime::ZERO, applied);
        }
        // What was there then may not be there now.
        self.lacking.is_mixed |= self.lacking.is_doubtful && !self.lacking.is_empty();
        let machine = &self.state.machine;
        let parts = parts.into_iter().filter_map(|(key, _)| Some((key.clone(), machine.version(&key)?)));
        let parts = parts.collect();
        self.lose_parts(parts);
        Some(())
    }

    fn lose_parts(&mut self, parts: Vec<(M::Key, Position)>) {
        if !parts.is_empty() {
            self.damages = self.damages.saturating_add(1);
        }
        for (key, at) in parts {
            self.state.machine.place(key.clone(), None);
            if self.holding == Holding::Whole {
                self.lacking.add(key, at);
            }
        }
        self.lacking.bound();
    }

    /// Whether parts of the state are damaged: it is not to be served, nor to be given to anybody.
    pub fn lacks(&self) -> bool {
        !self.lacking.is_empty() && !self.config.breaks(Bug::DamagedServes)
    }

    /// Whether there is a state here that makes sense, and all of it.
    pub fn is_sound(&self) -> bool {
        self.is_whole() && !self.lacks()
    }

    /// How often something was found to be lacking since the start that is here again by now. To be asked when a checkpoint is taken, and told to
    /// [`handle_kept`](Self::handle_kept) when that is durable.
    pub fn mended(&self) -> u32 {
        if self.is_sound() { self.damages } else { 0 }
    }

    /// A checkpoint is durable that has what was mended by then.
    pub fn handle_kept(&mut self, mended: u32) {
        self.kept = self.kept.max(mended);
    }

    /// Whether a start would find all that is here, if all is synced.
    pub fn outlives_a_start(&self) -> bool {
        !self.lacks() && (self.kept == self.damages || self.config.breaks(Bug::MendedDurable))
    }

    /// After which entry the state is that lacks something; the log goes on behind it.
    pub(crate) fn frozen_at(&self) -> Option<Position> {
        let is_told = self.holding == Holding::Whole && !self.config.breaks(Bug::DamagedIsSource);
        (is_told && self.lacks()).then_some(self.state.rest.at)
    }

    /// Whether the log here has grown so much behind a state that lacks something that it must not grow further.
    pub(crate) fn is_overgrown(&self) -> bool {
        let config = &self.config;
        let first = self.log.first_kept(config.kept_lending_max, config.kept_lending_bytes_max);
        self.lacks() && self.state.rest.at.seq < first
    }

    /// Whether it wants something of the others: parts, or a state instead of one that was lost altogether.
    pub(crate) fn is_wanting(&self) -> bool {
        let has_lost_all = matches!(self.holding, Holding::Mixed(_)) && self.damaged_at.is_some();
        let is_member = || self.view().members.contains(self.me);
        self.incoming.is_none() && (has_lost_all && is_member() || self.is_whole() && self.lacks())
    }

    /// When it asks again.
    pub(crate) fn asks_again_at(&self) -> Option<WallTime> {
        self.is_wanting().then(|| self.lacking_asked + self.config.retry_after)
    }

    pub(crate) fn ask_again_for_lacking(&mut self, now: WallTime) {
        if self.asks_again_at().is_some_and(|at| at <= now) {
            self.ask_for_lacking(now);
        }
    }

    pub(crate) fn ask_for_lacking(&mut self, now: WallTime) {
        if !self.is_wanting() {
            return;
        }
        self.lacking_asked = now;
        let (me, members, coming) = (self.me, self.view().members.clone(), self.latest_members().clone());
        let all: BTreeSet<NodeId> = members.as_slice().iter().chain(coming.as_slice()).copied().collect();
        all.into_iter().filter(|&node| node != me).for_each(|node| self.ask_one_for_lacking(node));
    }

    fn ask_one_for_lacking(&mut self, node: NodeId) {
        let is_all = self.lacking.is_mixed || self.holding != Holding::Whole;
        let parts = self.lacking.parts.iter().filter(|_| !is_all).take(self.config.versions_max);
        let parts = parts.map(|(key, &at)| (key.clone(), at)).collect();
        let epoch = Epoch { number: 0, node: self.me };
        let at = if self.holding == Holding::Whole { self.state.rest.at } else { Position::START };
        self.send(node, Message::Lacks { epoch, at, parts }, When::Now);
    }

    /// A member lacks parts, or all if it names none, of its state after some entry.
    pub(crate) fn handle_lacks(
        &mut self,
        now: WallTime,
        from: NodeId,
        (at_least, lacks): (Position, Vec<(M::Key, Position)>),
    ) {
        let is_all = lacks.is_empty();
        let (mut parts, mut bytes, mut is_apart) = (Parts::<M>::new(), 0, is_all);
        let machine = &self.state.machine;
        for (key, at) in lacks {
            let is_here = machine.version(&key) == Some(at) && !self.lacking.parts.contains_key(&key);
            let part = machine.part(&key).filter(|_| is_here);
            let Some(part) = part else {
                is_apart = true;
                continue;
            };
            bytes += part_bytes::<M>(Some(&part));
            let is_full = parts.len() >= self.config.parts_max || bytes > self.config.parts_bytes_max();
            if is_full && !parts.is_empty() {
                break;
            }
            parts.push((key, Some((at, part))));
        }
        if !parts.is_empty() {
            let epoch = Epoch { number: 0, node: from };
            self.send(from, Message::Found { epoch, parts }, When::Now);
        }
        // If there is nothing here to give, that may be because it is over.
        self.lacked_by = Some(from).filter(|_| self.log.tail() == Position::START);
        if is_apart {
            self.lend_to_damaged(now, from, at_least);
        }
    }

    /// What a member lacks nobody may have any more: it needs all that has changed since.
    fn lend_to_damaged(&mut self, now: WallTime, to: NodeId, at_least: Position) {
        let is_sound = self.is_sound();
        // It may not serve before that member has something durable.
        let is_of_use = self.state.rest.at >= at_least;
        match &mut self.role {
            Role::Primary(primary) if primary.serves || is_of_use => {
                let Some(peer) = primary.peers.get_mut(&to) else { return };
                if at_least > Position::START {
                    return self.lend_to_mend(now, to, at_least);
                }
                peer.asked = Some(now);
                if let Some(lent) = self.lent.get_mut(&to) {
                    lent.hear(now);
                }
                self.lend(now, to, at_least);
            }
            Role::Primary(_) | Role::Candidate(_) => {}
            Role::Backup if is_sound => self.tell_event(Event::Wanted),
            Role::Backup => {}
        }
    }

    /// Parts that this replica lacks.
    pub(crate) fn handle_found(&mut self, now: WallTime, from: NodeId, mut parts: Parts<M>) {
        let lacking = &self.lacking.parts;
        parts.retain(|(key, part)| part.as_ref().is_some_and(|(at, _)| lacking.get(key) == Some(at)));
        if self.holding != Holding::Whole || parts.is_empty() {
            return;
        }
        self.journal(Record::Mended(parts.clone()));
        self.mend(now, parts);
        if self.is_wanting() {
            self.ask_one_for_lacking(from);
        }
    }

    /// Puts parts into their places again.
    pub(crate) fn mend(&mut self, now: WallTime, parts: Parts<M>) {
        for (key, part) in parts {
            let Some((at, part)) = part.filter(|(at, _)| self.lacking.parts.get(&key) == Some(at)) else {
                continue;
            };
            self.state.machine.place(key.clone(), Some((at, part)));
            if self.state.machine.version(&key) == Some(at) {
                self.lacking.parts.remove(&key);
            }
        }
        self.go_on(now);
    }

    /// Parts of a later state come for one that lacks something, while the log stays.
    pub(crate) fn place_over(&mut self) {
        if self.holding == Holding::Whole {
            self.lacking.is_mixed = true;
            self.lacking.parts.clear();
        }
    }

    /// All of a later state is here, instead of one that lacked something. False if the log does not go as far.
    pub(crate) fn end_repair(&mut self, now: WallTime, rest: Rest<M::Outcome>) -> bool {
        if !self.log.contains(rest.at) || rest.at.seq < self.state.rest.at.seq {
            return false;
        }
        self.coming.retain(|view| view.id.seq > rest.at.seq);
        self.accepted = self.accepted.max(rest.at.epoch);
        self.state.rest = rest;
        let is_doubtful = self.lacking.is_doubtful;
        self.lacking = Lacking { is_mixed: is_doubtful, is_doubtful, ..Lacking::default() };
        self.log.commit(self.state.rest.at.seq);
        self.go_on(now);
        true
    }

    /// Nobody needs what is lacking: the state is these parts from here on. It is not kept before the next checkpoint; after a start before that
    /// they are to be given once more.
    pub fn do_without(&mut self, now: WallTime, parts: impl IntoIterator<Item = (M::Key, M::Part)>) {
        if self.holding != Holding::Whole || !self.lacks() {
            return;
        }
        self.take_all_apart();
        let at = self.state.rest.at;
        parts.into_iter().for_each(|(key, part)| self.state.machine.place(key, Some((at, part))));
        self.lacking = Lacking::default();
        self.go_on(now);
    }

    /// Nothing of the state is left.
    pub(crate) fn take_all_apart(&mut self) {
        let (machine, mut keys) = (&mut self.state.machine, Vec::new());
        loop {
            let page = machine.versions(keys.last(), self.config.versions_max);
            let is_last = page.len() < self.config.versions_max;
            keys.extend(page.into_iter().map(|(key, _)| key));
            if is_last {
                break;
            }
        }
        keys.into_iter().for_each(|key| machine.place(key, None));
    }

    /// What is committed takes effect again, if nothing is lacking any more.
    fn go_on(&mut self, now: WallTime) {
        if self.lacking.is_empty() {
            // What was asked for was to go with what was here until now.
            (self.incoming, self.lacking.is_doubtful) = (None, false);
            self.take_effect(now);
            self.tell_event(Event::Mended);
        }
    }
}
