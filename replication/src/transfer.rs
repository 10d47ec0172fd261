//! A replica takes over a state, because the entries that it lacks are not there any more, or because what it has
//! committed was lost by those who went on.
//!
//! Only a primary lends a state: the one after some entry, which it keeps as it was then. It is durable there, with the
//! log behind it, before it is offered: so all that the receiver has ever acknowledged, and that has not been given up
//! as lost, is on another disk before the receiver drops it.
//! The receiver asks for the parts that it has in another version, in order, some at a time. In between its own parts
//! and the new ones are mixed, and that it says to whoever asks what it has. Its promise stands.
//! For who says nothing for long no state is kept: a member that does not answer is asked what it has, and offered something when it says so.
//! Nor is the log behind it for who does not ask twice for anything: he has no room for it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use base::{Epoch, NodeId, Seq, WallTime};

use crate::log::Log;
use crate::replica::Role;
use crate::state::Holding;
use crate::weight::{MESSAGE_BYTES, part_bytes, rest_bytes};
use crate::{
    Bug, Config, Event, Limit, Machine, Message, Page, Parts, Position, Reached, Record, Replica, Rest,
    State, When,
};

/// Who takes something over and says nothing for so many times as long as it waits for an answer needs that no longer, or is gone.
pub(crate) const SILENT_RETRIES: u64 = 10;

/// Who had no room for what it was given waits for so many times as long before it asks again.
const PUT_OFF_RETRIES: u64 = 15;

const _: () =
    assert!(PUT_OFF_RETRIES > SILENT_RETRIES, "who only asks again and again has a log kept for it");

/// Who lacks parts and has asked so often in vain asks all members again.
const UNANSWERED_MAX: u32 = 5;

/// A state that is being taken over.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Incoming<M: Machine> {
    epoch: Epoch,
    at: Position,
    /// Everything up to here has come.
    cursor: Option<M::Key>,
    /// When more was asked for; later than that if there was no room for what came.
    pub(crate) asked: WallTime,
    /// How often that was asked again and not answered.
    unanswered: u32,
}

/// A state that is being given away, as it was after an entry. Who comes while it is given to another gets the same.
#[derive(Clone, Debug)]
pub(crate) struct Lent<M: Machine> {
    state: Arc<State<M>>,
    /// It is for a member that has all entries and lacks parts: what it acknowledges says nothing of these.
    mends: bool,
    /// When the member last said that it is there, or was first offered something.
    heard: WallTime,
    /// Behind which part the member has asked for more, and how often it has asked.
    asked: Option<M::Key>,
    asks: u64,
}

impl<M> Hash for Lent<M>
where
    M: Machine<Outcome: Hash, Key: Hash> + Hash,
{
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.state, self.mends, self.heard, &self.asked, self.asks.min(2)).hash(state);
    }
}

impl<M: Machine> Lent<M> {
    /// After which entry.
    pub(crate) fn at(&self) -> Position {
        self.state.rest.at
    }

    /// Whether it is for a member that has all entries.
    pub(crate) const fn mends(&self) -> bool {
        self.mends
    }

    /// The member says that it is there.
    pub(crate) const fn hear(&mut self, now: WallTime) {
        self.heard = now;
    }

    /// When it is given up, if the member says nothing until then.
    pub(crate) fn given_up_at(&self, config: &Config) -> WallTime {
        self.heard + config.retry_after * SILENT_RETRIES
    }

    /// Whether the member has asked for it, and not again. Who has room for what it is given, or hears nothing, does.
    const fn has_taken_nothing(&self) -> bool {
        self.asks == 1
    }

    /// Whether a member that has acknowledged entries up to `upto` needs it no longer. Who lacks parts says so of no entry.
    pub(crate) fn is_over(&self, upto: Position) -> bool {
        self.at() <= upto && !self.mends
    }

    /// How it differs between two parts from the versions that somebody has there.
    fn page(
        &self,
        (after, mut upto): (Option<M::Key>, Option<M::Key>),
        have: &[(M::Key, Position)],
        (config, reached): (&Config, &mut Reached),
    ) -> Page<M> {
        let machine = &self.state.machine;
        let ours = machine.versions(after.as_ref(), config.versions_max);
        if let Some((last, _)) = ours.last().filter(|_| ours.len() == config.versions_max) {
            reached.note(Limit::Versions);
            upto = Some(upto.map_or_else(|| last.clone(), |upto| upto.min(last.clone())));
        }
        let ours: BTreeMap<M::Key, Position> = ours.into_iter().collect();
        let theirs: BTreeMap<M::Key, Position> = have.iter().cloned().collect();
        let is_within = |key: &M::Key| {
            after.as_ref().is_none_or(|after| key > after) && upto.as_ref().is_none_or(|upto| key <= upto)
        };
        let keys: BTreeSet<&M::Key> = ours.keys().chain(theirs.keys()).filter(|key| is_within(key)).collect();
        let (mut parts, mut same) = (Parts::<M>::new(), Vec::new());
        let (mut is_cut, mut bytes) = (false, 0);
        for key in keys {
            let version = ours.get(key).copied();
            if version.is_some() && version == theirs.get(key).copied() {
                same.extend(version.map(|version| (key.clone(), version)));
                continue;
            }
            let part = version.and_then(|at| Some((at, machine.part(key)?)));
            bytes += part_bytes::<M>(part.as_ref().map(|(_, part)| part));
            is_cut = parts.len() >= config.parts_max || !parts.is_empty() && bytes > config.parts_bytes_max();
            if is_cut {
                break;
            }
            parts.push((key.clone(), part));
        }
        if is_cut {
            let is_long = parts.len() >= config.parts_max;
            reached.note(if is_long { Limit::Parts } else { Limit::PageBytes });
            upto = parts.last().map(|(key, _)| key.clone());
            same.retain(|(key, _)| Some(key) <= upto.as_ref());
        }
        let mut page = Page { after, upto, parts, same, rest: None };
        if page.upto.is_none() {
            // It may be large, and goes alone then.
            let room = config.page_bytes_max.saturating_sub(MESSAGE_BYTES + page.bytes());
            page.upto = page.last_key().filter(|_| rest_bytes::<M>(&self.state.rest) > room).cloned();
            if page.upto.is_some() {
                reached.note(Limit::PageBytes);
            }
        }
        page.rest = page.upto.is_none().then(|| Box::new(self.state.rest.clone()));
        page
    }
}

impl<M: Machine> Replica<M> {
    /// Offers the committed state, after an entry that is not before `at_least`, to a member that entries do not help, if it may drop what it has.
    pub(crate) fn lend(&mut self, now: WallTime, to: NodeId, at_least: Position) {
        let is_lent = self.is_lent_all(to);
        let (members, base) = (self.latest_members().clone(), self.log.base().seq);
        let Role::Primary(primary) = &mut self.role else { return };
        let may_drop = primary.takers.may_drop(now, to, (&members, base), &self.config)
            || self.config.breaks(Bug::LendsToAll);
        if !may_drop {
            // Elsewhere it would have to wait as long.
            primary.stuck_since = primary.stuck_since.map(|_| now);
            return;
        }
        if !self.outlives_a_start() {
            return;
        }
        // That it is offered again does not say that it is there.
        let heard = self.lent.get(&to).map_or(now, |lent| lent.heard);
        self.offer(to, at_least, false, heard);
        let takes_nothing = self.takes_nothing(to);
        if let Role::Primary(primary) = &mut self.role
            && !is_lent
        {
            primary.takers.offered(now, to, takes_nothing);
        }
    }

    /// The same for a member that lacks parts, and needs nothing else.
    pub(crate) fn lend_to_mend(&mut self, now: WallTime, to: NodeId, at_least: Position) {
        self.offer(to, at_least, true, now);
    }

    fn offer(&mut self, to: NodeId, at_least: Position, mends: bool, heard: WallTime) {
        assert!(self.is_sound() || self.config.breaks(Bug::DamagedIsSource), "§5: damage is given to nobody");
        let Role::Primary(primary) = &mut self.role else { return };
        let (epoch, generation, base) = (primary.tenure.epoch, primary.generation, self.log.base());
        // It may have taken so long that what came after it is gone.
        let is_of_use = |lent: &&Lent<M>| lent.at() >= base.max(at_least);
        let before = self.lent.get(&to).filter(is_of_use);
        let before = before.or_else(|| self.lent.values().filter(is_of_use).max_by_key(|lent| lent.at()));
        let state = before.map_or_else(|| Arc::new(self.state.clone()), |lent| Arc::clone(&lent.state));
        let at = state.rest.at;
        // If the log of who lacks parts is not there yet, it would drop it, and all that it has.
        if mends && primary.peers.get(&to).is_none_or(|peer| peer.matched < at.seq) {
            return;
        }
        let before = self.lent.remove(&to);
        let is_same = |lent: &Lent<M>| (lent.mends, lent.at()) == (mends, at);
        if let Some(peer) = primary.peers.get_mut(&to) {
            peer.takes_nothing |=
                before.as_ref().is_some_and(|lent| !is_same(lent) && lent.has_taken_nothing());
        }
        let (asked, asks) = before.filter(is_same).map_or((None, 0), |lent| (lent.asked, lent.asks));
        self.lent.insert(to, Lent { state, mends, heard, asked, asks });
        self.send(to, Message::Offer { epoch, at, generation }, When::Durable(self.last_io()));
    }

    /// A primary wants this replica to take over its state.
    pub(crate) fn handle_offer(&mut self, now: WallTime, epoch: Epoch, (at, generation): (Position, Epoch)) {
        if !self.follow(epoch) {
            return self.refuse(epoch.node, epoch);
        }
        if self.incoming.as_ref().is_some_and(|incoming| (incoming.epoch, incoming.at) == (epoch, at)) {
            // Offered again, because the questions take long.
            return;
        }
        let committed = self.log.committed_position();
        let is_whole = self.holding == Holding::Whole;
        let is_confirmed = self.confirmed > Seq(0) && self.confirmed >= at.seq;
        if self.is_sound() && (is_confirmed || self.log.contains(at) && committed.seq <= at.seq) {
            // All of that is here: the offer was late, the answer to it was lost, or it waits for a journal that takes long. Whoever says
            // nothing meanwhile finds no log behind it.
            self.confirmed = self.confirmed.max(at.seq);
            self.commit(now, at.seq);
            self.send(epoch.node, Message::Synced { epoch, upto: Position::START }, When::Now);
            return self.send(
                epoch.node,
                Message::Appended { epoch, upto: at },
                When::Written(self.last_io()),
            );
        }
        let is_kept = at >= committed || generation > committed.epoch;
        let is_here = self.is_sound() && self.log.contains(at);
        if is_here && !is_kept {
            // It was offered before what is here was sent.
            return self.send(
                epoch.node,
                Message::Appended { epoch, upto: at },
                When::Written(self.last_io()),
            );
        }
        let is_repair = is_whole && self.lacks() && self.log.contains(at) && at >= self.state.rest.at;
        if is_whole && !is_kept && !is_repair {
            return self.tell_event(Event::Unsound { from: epoch.node });
        }
        self.incoming = Some(Incoming { epoch, at, cursor: None, asked: now, unanswered: 0 });
        if is_repair {
            // Nothing but parts is missing here: the log stays, and all that was acknowledged with it.
            return self.pull(now);
        }
        let (source, applied) = (epoch.node, self.log.committed().min(self.state.rest.at.seq));
        if self.view().id > self.state.rest.view.id {
            // The entries that tell of it are dropped.
            self.keep_view(self.view().clone());
        }
        self.journal(Record::Began { source, applied });
        self.begin_mixing(epoch);
        self.pull(now);
    }

    /// What is here makes no sense from now on.
    pub(crate) fn begin_mixing(&mut self, epoch: Epoch) {
        self.holding = Holding::Mixed(epoch);
        self.lacking.begin_mixing();
        self.log = Log::behind_base(Position::START);
        self.coming.clear();
        self.confirmed = Seq(0);
    }

    /// It makes sense again.
    pub(crate) fn end_mixing(&mut self, mut rest: Rest<M::Outcome>) {
        if self.config.breaks(Bug::TransferWithoutRequests) {
            rest.sessions = self.state.rest.sessions.clone();
        }
        if self.config.breaks(Bug::TransferForgetsPromise) {
            self.promised = rest.at.epoch;
        }
        self.holding = Holding::Whole;
        self.log = Log::behind_base(rest.at);
        self.accepted = self.accepted.max(rest.at.epoch);
        self.state.rest = rest;
        self.incoming = None;
    }

    /// Asks for what comes next.
    fn pull(&mut self, now: WallTime) {
        let Some(incoming) = &mut self.incoming else { return };
        incoming.asked = now;
        let (epoch, at, after) = (incoming.epoch, incoming.at, incoming.cursor.clone());
        let have = self.state.machine.versions(after.as_ref(), self.config.versions_max);
        let is_end = have.len() < self.config.versions_max;
        let upto = have.last().filter(|_| !is_end).map(|(key, _)| key.clone());
        self.send(epoch.node, Message::Pull { epoch, at, after, upto, have }, When::Now);
    }

    /// What has come may be incomplete again.
    pub(crate) fn pull_anew(&mut self, now: WallTime) {
        if let Some(incoming) = &mut self.incoming {
            incoming.cursor = None;
        }
        self.pull(now);
    }

    /// There was no room here for what came of a state. Nothing is asked for until the primary keeps no log for that any more.
    pub fn put_off_pulling(&mut self, now: WallTime) {
        if let Some(incoming) = &mut self.incoming {
            incoming.asked = now + self.config.retry_after * PUT_OFF_RETRIES;
        }
    }

    pub(crate) fn pull_again(&mut self, now: WallTime) {
        let (retry, promised) = (self.config.retry_after, self.promised);
        let is_late =
            |incoming: &Incoming<M>| incoming.epoch == promised && now.since(incoming.asked) >= retry;
        match &mut self.incoming {
            Some(incoming) if incoming.epoch != promised => self.incoming = None,
            Some(incoming) if is_late(incoming) => {
                incoming.unanswered += 1;
                if self.holding == Holding::Whole && incoming.unanswered > UNANSWERED_MAX {
                    // The primary may not lend it any more.
                    self.incoming = None;
                    return self.ask_for_lacking(now);
                }
                self.pull(now);
            }
            _ => {}
        }
    }

    /// Who has said nothing for long is given nothing any more.
    pub(crate) fn end_loans(&mut self, now: WallTime) {
        let Self { config, role: Role::Primary(primary), .. } = self else { return };
        self.lent.retain(|node, lent| {
            let is_over = lent.given_up_at(config) <= now;
            if let Some(peer) = primary.peers.get_mut(node).filter(|_| is_over) {
                peer.takes_nothing |= lent.has_taken_nothing();
            }
            !is_over
        });
    }

    /// From where on the log is kept for those who are given a state.
    pub(crate) fn first_lent(&self) -> Option<Seq> {
        let lent = self.lent.iter().filter(|&(&node, _)| !self.takes_nothing(node));
        lent.map(|(_, lent)| lent.at().seq).min()
    }

    fn takes_nothing(&self, node: NodeId) -> bool {
        let Role::Primary(primary) = &self.role else { return false };
        primary.peers.get(&node).is_some_and(|peer| peer.takes_nothing)
    }

    /// Forgets the log up to a place, and what was given to those for whom it is not kept and who would lack what came next.
    pub(crate) fn trim_log(&mut self, upto: Seq) {
        self.log.trim(upto);
        let base = self.log.base().seq;
        let lent = self.lent.iter().filter(|&(&node, lent)| lent.at().seq < base && self.takes_nothing(node));
        let stale: Vec<NodeId> = lent.map(|(&node, _)| node).collect();
        stale.iter().for_each(|node| _ = self.lent.remove(node));
    }

    /// A member that is given a state is there, and takes it over.
    pub(crate) fn hear_taker(&mut self, now: WallTime, from: NodeId) {
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(lent) = self.lent.get_mut(&from) else { return };
        lent.hear(now);
        if !lent.mends() {
            primary.takers.hear(now, from);
        }
    }

    /// A member asks for parts.
    pub(crate) fn handle_pull(
        &mut self,
        now: WallTime,
        (from, epoch): (NodeId, Epoch),
        at: Position,
        (after, upto): (Option<M::Key>, Option<M::Key>),
        have: &[(M::Key, Position)],
    ) {
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(peer) = primary.peers.get_mut(&from).filter(|_| epoch == primary.tenure.epoch) else {
            return;
        };
        let Some(lent) = self.lent.get_mut(&from) else { return };
        if lent.at() != at {
            // It is what was lent before: the offer takes as long as the disk here.
            return self.hear_taker(now, from);
        }
        lent.hear(now);
        peer.is_silent = false;
        lent.asks += 1;
        peer.takes_nothing &= lent.has_taken_nothing();
        if !lent.mends() {
            peer.asked = Some(now);
            if after > lent.asked {
                // Elsewhere it would have to begin again.
                primary.takers.hear(now, from);
                lent.asked.clone_from(&after);
                primary.stuck_since = primary.stuck_since.map(|_| now);
            }
        }
        let page = lent.page((after, upto), have, (&self.config, &mut self.reached));
        self.send(from, Message::Pulled { epoch, at, page }, When::Now);
    }

    /// Parts have come.
    pub(crate) fn handle_pulled(&mut self, now: WallTime, (epoch, at): (Epoch, Position), page: Page<M>) {
        let Some(incoming) = &self.incoming else { return };
        let is_next = (incoming.epoch, incoming.at) == (epoch, at) && incoming.cursor == page.after;
        if !is_next || epoch != self.promised || page.rest.is_some() != page.upto.is_none() {
            return;
        }
        if !is_about(&page, &self.state.machine) {
            return self.pull(now);
        }
        let Page { upto, parts, rest, .. } = page;
        if let Some(incoming) = &mut self.incoming {
            (incoming.cursor, incoming.unanswered) = (upto, 0);
        }
        if !parts.is_empty() {
            self.place_over();
        }
        for (key, part) in &parts {
            self.state.machine.place(key.clone(), part.clone());
        }
        if !parts.is_empty() {
            self.journal(Record::Placed(parts));
        }
        let Some(rest) = rest else { return self.pull(now) };
        if rest.at != at {
            return self.tell_event(Event::Unsound { from: epoch.node });
        }
        let io = if self.holding == Holding::Whole {
            self.incoming = None;
            if !self.end_repair(now, (*rest).clone()) {
                return;
            }
            self.journal(Record::Repaired(rest))
        } else {
            self.end_mixing((*rest).clone());
            self.confirmed = at.seq;
            self.journal(Record::Ended(rest))
        };
        self.send(epoch.node, Message::Appended { epoch, upto: at }, When::Written(io));
    }
}

/// Whether a page was made for what `machine` is now: it may have changed since it was asked for.
fn is_about<M: Machine>(page: &Page<M>, machine: &M) -> bool {
    let listed = page.parts.len() + page.same.len();
    let behind = machine.versions(page.after.as_ref(), listed + 1);
    let within = |key: &M::Key| page.upto.as_ref().is_none_or(|upto| key <= upto);
    let ours: BTreeMap<M::Key, Position> = behind.into_iter().filter(|(key, _)| within(key)).collect();
    let replaced: BTreeSet<&M::Key> = page.parts.iter().map(|(key, _)| key).collect();
    let same: BTreeMap<&M::Key, Position> = page.same.iter().map(|(key, at)| (key, *at)).collect();
    same.iter().all(|(key, at)| ours.get(key) == Some(at))
        && ours.keys().all(|key| replaced.contains(key) || same.contains_key(key))
}
