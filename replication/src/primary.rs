//! What a replica does that has the lease and knows what was before: order, and commit what a majority has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{ClientId, Epoch, Members, NodeId, Seq, Span, WallTime};

use crate::habit::Habit;
use crate::recovery::Found;
use crate::replica::Role;
use crate::sessions::Known;
use crate::syncs::Sync;
use crate::taking::Takers;
use crate::{
    AskError, Body, Bug, Config, Entry, Event, Limit, Machine, Mark, Message, Output, Position, ProposeError,
    Record, Replica, Request, Standing, Ticket, Waiting, When,
};

/// Among so many of the last outputs may be entries that are not sent yet.
const JOINED_AMONG: usize = 16;

/// What a lease gives to whoever has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tenure {
    /// Above every epoch that this node has used or promised.
    pub epoch: Epoch,
    /// The lease, for the trail.
    pub lease: u64,
    /// Until when it lasts, unless renewed.
    pub until: WallTime,
    /// Whether the object begins with this tenure if nobody has anything of it.
    pub creates: bool,
    /// Every tenure of the object has an epoch above this number: what was forgotten of others is nothing of it.
    pub begun_after: u64,
}

/// It orders, and commits what a majority has.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Primary<M: Machine> {
    pub(crate) tenure: Tenure,
    /// The last tenure that may have recovered less than was acknowledged as written; perhaps this one.
    pub(crate) generation: Epoch,
    /// The first entry of the tenure.
    barrier: Seq,
    /// Whether the barrier is committed.
    pub(crate) serves: bool,
    /// Whether questions are answered before that, as all that was recovered was known to be committed.
    reads: bool,
    /// All members, this one too, and whoever is about to become one.
    pub(crate) peers: BTreeMap<NodeId, Peer>,
    pub(crate) takers: Takers,
    /// Who is about to become a member, and what it needs to have before it counts.
    pub(crate) newcomer: Option<(NodeId, Seq)>,
    /// Who knows the committed view for good.
    pub(crate) adopted: BTreeSet<NodeId>,
    /// When those were asked for something whom a change of members waits for.
    pub(crate) chased: Option<WallTime>,
    /// Clients of which nothing has taken effect before what is not committed yet.
    pub(crate) clients: BTreeSet<ClientId>,
    /// Where the requests stand that are not committed yet.
    pub(crate) requests: BTreeMap<(ClientId, u64), (Request, Seq)>,
    /// Questions, and the places that have to be committed before they are answered.
    questions: Vec<(Seq, Ticket, M::Query)>,
    pub(crate) syncs: Vec<Sync>,
    pub(crate) habit: Habit,
    /// When to tell backups what is committed if nothing else is to be told.
    tell_at: Option<WallTime>,
    /// Since when nothing has come nearer to being committed that is to be.
    pub(crate) stuck_since: Option<WallTime>,
    told_isolated: bool,
}

/// How far a member is.
#[derive(Clone, Copy, Hash, Debug)]
pub(crate) struct Peer {
    /// Its journal has the entries up to here.
    pub(crate) matched: Seq,
    /// Where to begin again if it does not answer.
    from: Seq,
    /// They were sent up to here.
    pub(crate) sent: Seq,
    /// They are durable there up to here.
    pub(crate) synced: Seq,
    /// It knows them to be committed up to here.
    told: Seq,
    /// Since when it owes an answer.
    pub(crate) asked: Option<WallTime>,
    /// It did not answer: it gets one message at a time until it does, and is offered no state.
    pub(crate) is_silent: bool,
    /// It has asked once for a state that it was given, and not again: it may have no room. Until it does, what comes after a state is kept
    /// for it no longer than for anybody who lags, and nobody waits for it.
    pub(crate) takes_nothing: bool,
}

impl Peer {
    /// A member of which nothing is known but that it may have what was recovered.
    pub(crate) const fn new(recovered: Seq) -> Self {
        let (matched, from, sent) = (Seq(0), recovered, recovered);
        let (synced, told, asked) = (Seq(0), Seq(0), None);
        Self { matched, from, sent, synced, told, asked, is_silent: false, takes_nothing: false }
    }

    /// Behind what it is sent its first entry.
    fn begin(&self) -> Seq {
        self.from.max(self.matched)
    }
}

impl<M: Machine> Primary<M> {
    /// Everybody who waits for something.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Waiting> {
        let requests = self.requests.values().map(|&(request, _)| Waiting::Request(request));
        let questions = self.questions.iter().map(|&(_, ticket, _)| Waiting::Ticket(ticket));
        let syncs = self.syncs.iter().filter_map(|sync| sync.ticket).map(Waiting::Ticket);
        let waiting: Vec<Waiting> = requests.chain(questions).chain(syncs).collect();
        waiting.into_iter()
    }

    /// When something is to be done again at the latest.
    pub(crate) fn timeout(&self, config: &Config) -> Option<WallTime> {
        let asked = self.peers.values().filter_map(|peer| peer.asked);
        let syncs = self.syncs.iter().map(|sync| sync.asked);
        let stuck = self.stuck_since.filter(|_| !self.told_isolated);
        let isolated = stuck.map(|since| since + config.isolated_after);
        let again = asked.chain(syncs).chain(self.chased).map(|at| at + config.retry_after);
        again.chain(isolated).chain(self.tell_at).min()
    }
}

impl<M: Machine> Replica<M> {
    /// The lease lasts longer.
    pub const fn renew(&mut self, until: WallTime) {
        match &mut self.role {
            Role::Backup => {}
            Role::Candidate(candidate) => candidate.tenure.until = until,
            Role::Primary(primary) => primary.tenure.until = until,
        }
    }

    /// The lease is over or is being given up: nothing is answered any more.
    pub fn resign(&mut self) {
        self.step_down(None);
    }

    /// Orders an operation, if so many clients have room.
    pub(crate) fn propose_within(
        &mut self,
        now: WallTime,
        request: Request,
        op: M::Op,
        clients_max: usize,
    ) -> Result<(), ProposeError> {
        match self.standing() {
            Standing::Backup | Standing::Retired => return Err(ProposeError::NotPrimary),
            Standing::Recovering if !self.config.breaks(Bug::ServedBeforeBarrier) => {
                return Err(ProposeError::Recovering);
            }
            Standing::Recovering | Standing::Serving => {}
        }
        let Role::Primary(primary) = &self.role else { return Err(ProposeError::Recovering) };
        let key = (request.client, request.number);
        if primary.requests.contains_key(&key) && !self.config.breaks(Bug::NoDeduplication) {
            return Ok(());
        }
        match self.state.rest.sessions.find(request) {
            Known::Expired => return Err(ProposeError::Expired),
            Known::Settled => return Err(ProposeError::Settled(request)),
            Known::Done(outcome) if !self.config.breaks(Bug::NoDeduplication) => {
                let outcome = outcome.clone();
                // It may stand anywhere in the committed part; to make that durable is to make all of it durable.
                let at = self.committed();
                self.tell_done(now, at, request, outcome);
                return Ok(());
            }
            Known::New | Known::Done(_) => {}
        }
        self.check_room(&op)?;
        self.check_client(request, clients_max)?;
        let at = self.append(now, Body::Op { request, op });
        let is_new = !self.state.rest.sessions.knows(request.client);
        if let Role::Primary(primary) = &mut self.role {
            primary.requests.insert(key, (request, at.seq));
            primary.clients.extend(is_new.then_some(request.client));
        }
        Ok(())
    }

    /// Whether each backup has all that there is, and knows that it is committed, as far as it answers at all, and takes what it is given.
    pub fn backups_are_settled(&self) -> bool {
        let Role::Primary(primary) = &self.role else { return true };
        let (tail, committed) = (self.log.tail().seq, self.log.committed());
        let is_settled = |(&node, peer): (&NodeId, &Peer)| {
            let is_there = peer.matched >= tail && peer.told >= committed;
            let is_waited_for = node != self.me && !peer.is_silent && !peer.takes_nothing;
            !is_waited_for || is_there && !self.is_lent_all(node)
        };
        committed >= tail && primary.newcomer.is_none() && primary.peers.iter().all(is_settled)
    }

    /// Of these members the one that has most of what there is, the first of them in this order if several have.
    pub fn closest(&self, among: impl IntoIterator<Item = NodeId>) -> Option<NodeId> {
        let mut among =
            among.into_iter().filter(|&node| node != self.me && self.view().members.contains(node));
        let Role::Primary(primary) = &self.role else { return among.next() };
        let has = |node: &NodeId| {
            let peer = primary.peers.get(node);
            peer.map_or((false, Seq(0)), |peer| (!peer.is_silent, peer.matched))
        };
        among.reduce(|first, next| if has(&next) > has(&first) { next } else { first })
    }

    /// Declares a client dead: once this is committed its requests are refused. One that is about to be over is not
    /// declared dead again.
    pub fn expire(&mut self, now: WallTime, client: ClientId) -> Result<(), ProposeError> {
        match self.standing() {
            Standing::Backup | Standing::Retired => return Err(ProposeError::NotPrimary),
            Standing::Recovering => return Err(ProposeError::Recovering),
            Standing::Serving => {}
        }
        let forget = now - self.config.expired_for;
        let (mut ending, mut is_ending) = (0, false);
        for entry in self.log.behind(self.log.committed()) {
            let Body::Expire { client: other, .. } = entry.body else { continue };
            (ending, is_ending) = (ending + 1, is_ending || other == client);
        }
        let sessions = &self.state.rest.sessions;
        if is_ending || sessions.is_over(client) {
            return Ok(());
        }
        if sessions.expired_since(forget) + ending >= self.config.expired_max {
            self.reached.note(Limit::Expired);
            return Err(ProposeError::Full);
        }
        self.append(now, Body::Expire { client, since: now, forget });
        Ok(())
    }

    /// Asks a question about the committed state. The answer comes as [`Output::Answer`].
    pub fn ask(&mut self, now: WallTime, ticket: Ticket, query: M::Query) -> Result<(), AskError> {
        self.check_asking()?;
        let committed = self.log.committed();
        let overlapping = self.log.behind(committed).rev().find(|entry| match &entry.body {
            Body::Op { op, .. } => self.state.machine.overlaps(op, &query),
            Body::Barrier { .. } | Body::Expire { .. } | Body::View(_) | Body::Settled(_) => false,
        });
        let wait_for = overlapping.map(|entry| entry.at.seq);
        if self.config.breaks(Bug::ReadsUncommitted) {
            self.tell_dirty_answer(now, ticket, &query);
            return Ok(());
        }
        let Role::Primary(primary) = &mut self.role else { return Err(AskError::NotPrimary) };
        match wait_for {
            Some(seq) => primary.questions.push((seq, ticket, query)),
            None => self.tell_answer(now, ticket, &query),
        }
        Ok(())
    }

    pub(crate) fn check_asking(&mut self) -> Result<(), AskError> {
        let Role::Primary(primary) = &self.role else {
            let is_candidate = matches!(self.role, Role::Candidate(_));
            return Err(if is_candidate { AskError::Recovering } else { AskError::NotPrimary });
        };
        let answers = primary.serves || primary.reads || self.config.breaks(Bug::ServedBeforeBarrier);
        if !answers {
            return Err(AskError::Recovering);
        }
        if !self.has_room_to_wait() {
            self.reached.note(Limit::Waiting);
            return Err(AskError::Busy);
        }
        Ok(())
    }

    /// Whether a question or a sync more could wait here.
    pub fn has_room_to_wait(&self) -> bool {
        let waiting = |primary: &Primary<M>| primary.questions.len() + primary.syncs.len();
        matches!(&self.role, Role::Primary(primary) if waiting(primary) < self.config.waiting_max)
    }

    /// Does again what was not answered.
    pub(crate) fn lead_on(&mut self, now: WallTime) {
        let Self { config, role: Role::Primary(primary), .. } = self else { return };
        let is_late = |asked: WallTime, patience: Span| now.since(asked) >= patience;
        let stuck = primary.stuck_since.is_some_and(|since| is_late(since, config.isolated_after));
        let is_isolated = stuck && !std::mem::replace(&mut primary.told_isolated, stuck);
        let late = |peer: &Peer| peer.asked.is_some_and(|asked| is_late(asked, config.retry_after));
        if primary.peers.values().any(late) {
            // It had nothing to sync either.
            primary.habit.asked = Seq(0);
        }
        let late: Vec<NodeId> = primary
            .peers
            .iter_mut()
            .filter(|(_, peer)| late(peer))
            .map(|(&node, peer)| {
                (peer.sent, peer.asked, peer.is_silent) = (peer.begin(), None, true);
                node
            })
            .collect();
        if primary.tell_at.is_some_and(|at| at <= now) {
            self.tell_committed();
        }
        self.end_loans(now);
        late.into_iter().for_each(|node| self.replicate(now, node));
        self.ask_again_for_syncs(now);
        self.chase(now);
        if is_isolated {
            self.tell_event(Event::Isolated);
        }
    }

    /// A majority follows, and its longest log is here: the tenure begins with an entry that commits all of it.
    pub(crate) fn begin(&mut self, now: WallTime, found: Found) {
        let Role::Candidate(candidate) = &self.role else { return };
        let (tenure, view, promised) = (candidate.tenure, candidate.view.id, candidate.promised.clone());
        let recovered = self.log.tail().seq;
        let before = self.tail_generation();
        let generation = if found.is_lossy { tenure.epoch } else { before };
        // What changes the members, and what stands behind that, has to be at the new members, too.
        let is_committed = found.is_known || found.is_committed && self.coming.is_empty();
        let known_elsewhere = candidate.known_committed(|at| self.log.contains(at));
        self.commit(now, if is_committed { recovered } else { known_elsewhere });
        let known = Position::from(self.view().id);
        if known.seq > self.log.committed() && self.log.contains(known) {
            self.commit(now, known.seq);
        }
        if self.view().id != view || self.state.rest.view.id != view {
            // Others grant the lease, or say who is primary.
            return self.step_down(Some(Event::WrongView));
        }
        let electorates = self.electorates();
        let members = || electorates.iter().flat_map(|members| members.as_slice()).copied();
        let takers = Takers::new(now, members().filter(|&node| node != self.me), &promised);
        self.role = Role::Primary(Box::new(Primary {
            tenure,
            generation,
            barrier: Seq(recovered.0 + 1),
            serves: false,
            reads: is_committed,
            peers: members().map(|node| (node, Peer::new(recovered))).collect(),
            takers,
            newcomer: None,
            adopted: BTreeSet::new(),
            chased: None,
            clients: BTreeSet::new(),
            requests: BTreeMap::new(),
            questions: Vec::new(),
            syncs: Vec::new(),
            habit: Habit::default(),
            tell_at: None,
            stuck_since: None,
            told_isolated: false,
        }));
        if found.is_lossy {
            self.tell_event(Event::Lost { generation });
        }
        self.append(now, Body::Barrier { generation });
        if let Some(view) = self.coming.back() {
            let upto = Position::from(view.id);
            self.sync_for_view(now, upto);
        }
    }

    /// The loss generation at the end of the log.
    fn tail_generation(&self) -> Epoch {
        let barriers = self.log.behind(self.log.committed()).rev().find_map(|entry| match entry.body {
            Body::Barrier { generation } => Some(generation),
            _ => None,
        });
        barriers.unwrap_or(self.state.rest.generation)
    }

    /// Those by whose majorities entries are committed: the members, and while they change, those before, too.
    pub(crate) fn electorates(&self) -> Vec<Members> {
        let before = (!self.coming.is_empty()).then(|| self.view().members.clone());
        before.into_iter().chain([self.latest_members().clone()]).collect()
    }

    /// Makes the entry of a view durable at its members and at those before.
    pub(crate) fn sync_for_view(&mut self, now: WallTime, upto: Position) {
        let Role::Primary(primary) = &mut self.role else { return };
        primary.syncs.push(Sync { upto, ticket: None, asked: now });
        self.ask_for_syncs(upto);
    }

    /// Adds an entry, and sends it to everybody.
    pub(crate) fn append(&mut self, now: WallTime, body: Body<M::Op>) -> Position {
        let after = self.log.tail();
        let Role::Primary(primary) = &mut self.role else { unreachable!("only primaries append") };
        let Tenure { epoch, lease, .. } = primary.tenure;
        primary.stuck_since.get_or_insert(now);
        let entry = Entry { at: after.next_in(epoch), lease, body };
        let upto = entry.at;
        self.push(entry.clone());
        let record =
            Record::Appended { after: after.seq, entries: vec![entry], committed: self.log.committed() };
        let io = self.journal(record);
        // The backups' disks and our own work at the same time.
        for node in self.peers() {
            self.replicate(now, node);
        }
        let when = if self.config.breaks(Bug::AckBeforeWrite) { When::Now } else { When::Written(io) };
        self.send(self.me, Message::Appended { epoch, upto }, when);
        upto
    }

    /// Where the next entry of this primary will stand.
    pub fn next_position(&self) -> Option<Position> {
        match &self.role {
            Role::Primary(primary) => Some(self.log.tail().next_in(primary.tenure.epoch)),
            _ => None,
        }
    }

    /// Whether an entry may be in this log or before it: nothing is known to the contrary.
    pub(crate) fn may_contain(&self, at: Position) -> bool {
        at.seq <= self.log.tail().seq && self.log.position(at.seq).is_none_or(|here| here == at)
    }

    /// Whether a member is being given a state, and no entries meanwhile.
    pub(crate) fn is_lent_all(&self, node: NodeId) -> bool {
        self.lent.get(&node).is_some_and(|lent| !lent.mends())
    }

    /// Everybody who is sent entries.
    pub(crate) fn peers(&self) -> Vec<NodeId> {
        let Role::Primary(primary) = &self.role else { return Vec::new() };
        primary.peers.keys().copied().filter(|&node| node != self.me).collect()
    }

    /// Sends entries, in one message with those before them if that is still here.
    fn send_entries(&mut self, node: NodeId, message: Message<M>) {
        let current = self.view().id;
        let (count_max, bytes_max) = (self.config.batch_max, self.config.entries_bytes_max());
        let last = self.outputs.iter_mut().rev().take(JOINED_AMONG).find_map(|output| match output {
            Output::Send { to, view, message, when: When::Now } if *to == node => {
                (*view == current).then_some(message)
            }
            _ => None,
        });
        if let Some(Message::Append { epoch, after, entries, committed }) = last
            && let Message::Append { epoch: now_epoch, after: next, entries: more, committed: by_now } =
                &message
            && (*epoch, entries.last().map(|entry| entry.at)) == (*now_epoch, Some(*next))
            && entries.len() + more.len() <= count_max
            && after.seq >= self.log.base().seq
            && more.last().is_some_and(|last| self.log.bytes_between(after.seq, last.at.seq) <= bytes_max)
        {
            entries.extend_from_slice(more);
            *committed = *by_now;
            return;
        }
        self.send(node, message, When::Now);
    }

    /// Sends a backup what it has not been sent, as far as it may owe answers.
    pub(crate) fn replicate(&mut self, now: WallTime, node: NodeId) {
        let (tail, committed, base) = (self.log.tail().seq, self.log.committed(), self.log.base().seq);
        let (config, log) = (Arc::clone(&self.config), &self.log);
        let Role::Primary(primary) = &mut self.role else { return };
        let epoch = primary.tenure.epoch;
        let Some(peer) = primary.peers.get_mut(&node) else { return };
        let is_lent = self.lent.get(&node).is_some_and(|lent| !lent.mends());
        if peer.sent < base || is_lent {
            match (is_lent, peer.is_silent, peer.asked.is_some()) {
                (true, _, true) | (false, true, true) => {}
                (false, true, false) => self.ask_what_it_has(now, node),
                (true, _, false) | (false, false, _) => {
                    peer.asked = Some(now);
                    self.lend(now, node, Position::START);
                }
            }
            return;
        }
        let window_max = if peer.is_silent { 1 } else { config.uncommitted_max as u64 };
        let has_room = |peer: &Peer| {
            let bytes = log.bytes_between(peer.begin(), peer.sent);
            peer.sent.0 - peer.begin().0 < window_max && bytes < config.uncommitted_bytes_max
        };
        let mut messages = Vec::new();
        while peer.sent < tail && has_room(peer) {
            let Some(after) = log.position(peer.sent) else { return };
            let entries = log.batch(peer.sent, config.batch_max, config.entries_bytes_max());
            peer.sent = entries.last().map_or(tail, |entry| entry.at.seq);
            if peer.sent < tail {
                let is_long = entries.len() >= config.batch_max;
                self.reached.note(if is_long { Limit::Batch } else { Limit::BatchBytes });
            }
            messages.push(Message::Append { epoch, after, entries, committed });
        }
        if peer.sent < tail && !peer.is_silent {
            let is_long = peer.sent.0 - peer.begin().0 >= window_max;
            self.reached.note(if is_long { Limit::Window } else { Limit::WindowBytes });
        }
        if !messages.is_empty() {
            peer.told = committed;
            peer.asked.get_or_insert(now);
        }
        messages.into_iter().for_each(|message| self.send_entries(node, message));
    }

    /// Asks a member that does not answer whether it has what stands before the log. It may be gone, and what it would be offered might be kept
    /// for ever.
    fn ask_what_it_has(&mut self, now: WallTime, node: NodeId) {
        let (after, committed) = (self.log.base(), self.log.committed());
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(peer) = primary.peers.get_mut(&node) else { return };
        peer.asked = Some(now);
        let message = Message::Append { epoch: primary.tenure.epoch, after, entries: Vec::new(), committed };
        self.send(node, message, When::Now);
    }

    /// Tells the backups what is committed.
    fn tell_committed(&mut self) {
        let committed = self.log.committed();
        let Role::Primary(primary) = &mut self.role else { return };
        primary.tell_at = None;
        let epoch = primary.tenure.epoch;
        let mut told = Vec::new();
        for (&node, peer) in &mut primary.peers {
            if peer.told < committed && peer.matched >= committed {
                peer.told = committed;
                told.push(node);
            }
        }
        let (after, me) = (self.log.committed_position(), self.me);
        for node in told.into_iter().filter(|&node| node != me) {
            let message = Message::Append { epoch, after, entries: Vec::new(), committed };
            self.send(node, message, When::Now);
        }
    }

    pub(crate) fn handle_appended(&mut self, now: WallTime, from: NodeId, (epoch, upto): (Epoch, Position)) {
        let is_ours = self.may_contain(upto);
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(peer) = primary.peers.get_mut(&from).filter(|_| epoch == primary.tenure.epoch && is_ours)
        else {
            return;
        };
        peer.matched = peer.matched.max(upto.seq);
        peer.sent = peer.sent.max(peer.matched);
        peer.asked = (peer.matched < peer.sent).then_some(now);
        (peer.is_silent, peer.takes_nothing) = (false, false);
        let is_over = self.lent.get(&from).map(|lent| lent.is_over(upto));
        match is_over {
            Some(false) => {}
            None if !primary.takers.is_taking(from) => primary.takers.has_state(from, upto),
            // It has written what it took over, which may have been given up meanwhile.
            Some(true) | None => {
                self.lent.remove(&from);
                primary.takers.has_taken(now, from, upto.seq);
                self.send(from, Message::Sync { epoch, upto }, When::Now);
            }
        }
        if from != self.me {
            self.replicate(now, from);
        }
        self.advance(now);
        self.chase(now);
        self.tell_later(now);
    }

    /// A member is connected anew: what it was told last may not have arrived, or its process has ended since. What is committed it is told
    /// again.
    pub fn tell_again(&mut self, now: WallTime, node: NodeId) {
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(peer) = primary.peers.get_mut(&node) else { return };
        peer.told = Seq(0);
        self.tell_later(now);
    }

    /// Backups that have what is committed and do not know it are told soon, with the next entries if there are any.
    fn tell_later(&mut self, now: WallTime) {
        let (committed, me, tell_at) = (self.log.committed(), self.me, self.config.tell_at(now));
        let Role::Primary(primary) = &mut self.role else { return };
        let owed = |(&node, peer): (&NodeId, &Peer)| {
            node != me && peer.told < committed && peer.matched >= committed
        };
        if primary.peers.iter().any(owed) {
            primary.tell_at.get_or_insert(tell_at);
        }
    }

    pub(crate) fn handle_missing(
        &mut self,
        now: WallTime,
        from: NodeId,
        (epoch, committed): (Epoch, Option<Position>),
    ) {
        let log = &self.log;
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(peer) = primary.peers.get_mut(&from).filter(|_| epoch == primary.tenure.epoch) else {
            return;
        };
        peer.is_silent = false;
        if let Some(lent) = self.lent.get_mut(&from) {
            lent.hear(now);
        }
        let Some(common) = committed.filter(|&committed| log.contains(committed)) else {
            peer.asked = Some(now);
            primary.takers.misses(now, from, committed);
            return self.lend(now, from, Position::START);
        };
        // What was sent again told it what is committed, and it made nothing of that.
        peer.told = peer.told.min(common.seq);
        if peer.from == common.seq && peer.sent > peer.begin() {
            // It has been sent that already; if it was lost, the retry comes.
            return;
        }
        peer.from = common.seq;
        primary.habit.asked = primary.habit.asked.min(common.seq);
        // It may have trimmed its log beyond what was sent again.
        peer.matched = peer.matched.max(common.seq);
        (peer.sent, peer.asked) = (peer.begin(), None);
        self.replicate(now, from);
        self.chase(now);
        self.tell_later(now);
    }

    pub(crate) fn handle_refused(&mut self, epoch: Epoch, promised: Epoch) {
        let ours = match &self.role {
            Role::Backup => return,
            Role::Candidate(candidate) => candidate.tenure.epoch,
            Role::Primary(primary) => primary.tenure.epoch,
        };
        if epoch == ours && promised > ours {
            self.step_down(Some(Event::Outbid { promised }));
        }
    }

    pub(crate) fn handle_synced(&mut self, now: WallTime, from: NodeId, (epoch, upto): (Epoch, Position)) {
        let is_ours = self.may_contain(upto);
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(peer) = primary.peers.get_mut(&from).filter(|_| epoch == primary.tenure.epoch && is_ours)
        else {
            return;
        };
        peer.synced = peer.synced.max(upto.seq);
        let is_durable = primary.takers.is_durable(from, upto);
        if upto == Position::START {
            // It was given a state, and writes it.
            peer.takes_nothing = false;
            self.hear_taker(now, from);
        }
        self.advance(now);
        self.conclude_syncs(now);
        self.chase(now);
        if is_durable {
            // Others may have waited for it.
            self.peers().into_iter().for_each(|node| self.replicate(now, node));
        }
    }

    /// Commits what a majority has, if an entry of this very tenure is among it (R3).
    fn advance(&mut self, now: WallTime) {
        let Some(upto) = self.committable() else { return };
        let Role::Primary(primary) = &self.role else { return };
        let (epoch, barrier, changes) = (primary.tenure.epoch, primary.barrier, !self.coming.is_empty());
        let is_own = self.log.position(upto).is_some_and(|at| at.epoch == epoch);
        let counts = is_own || self.config.breaks(Bug::OldEntriesCountedCommitted);
        if upto <= self.log.committed() || !counts {
            return;
        }
        self.commit(now, upto);
        let tail = self.log.tail().seq;
        let Role::Primary(primary) = &mut self.role else { return };
        primary.stuck_since = (upto < tail).then_some(now);
        primary.told_isolated = false;
        if upto >= barrier && !primary.serves {
            primary.serves = true;
            self.tell_event(Event::Serving { epoch });
        }
        self.answer_questions(now, upto);
        self.conclude_syncs(now);
        if changes && self.coming.is_empty() {
            self.view_entered();
        }
        self.chase(now);
    }

    /// Up to where a majority has the log. The entry of a view has to be durable at majorities of its members and of
    /// those before.
    fn committable(&self) -> Option<Seq> {
        let Role::Primary(primary) = &self.role else { return None };
        let electorates = self.electorates();
        let by_all = |has: &dyn Fn(&Peer) -> Seq| {
            electorates.iter().map(|members| majority_of(members, &primary.peers, has)).min()
        };
        let matched = by_all(&|peer| peer.matched)?;
        let Some(view) = self.coming.front() else { return Some(matched) };
        let durable = by_all(&|peer| peer.synced)?;
        let is_safe = durable >= view.id.seq || self.config.breaks(Bug::ViewNotDurable);
        Some(if is_safe { matched } else { matched.min(Seq(view.id.seq.0 - 1)) })
    }

    fn answer_questions(&mut self, now: WallTime, committed: Seq) {
        let Role::Primary(primary) = &mut self.role else { return };
        let asked = std::mem::take(&mut primary.questions).into_iter();
        let (ready, waiting): (Vec<_>, Vec<_>) = asked.partition(|&(seq, ..)| seq <= committed);
        primary.questions = waiting;
        for (_, ticket, query) in ready {
            self.tell_answer(now, ticket, &query);
        }
    }

    pub(crate) fn tell_done(&mut self, now: WallTime, at: Position, request: Request, outcome: M::Outcome) {
        let Role::Primary(primary) = &self.role else { return };
        let (until, mark) = (primary.tenure.until, Mark { at, generation: primary.generation });
        let told = Output::Done { request, outcome, mark, until };
        self.tell(now, until, told, Waiting::Request(request));
    }

    /// Only as a planted bug: from a state that is not committed.
    fn tell_dirty_answer(&mut self, now: WallTime, ticket: Ticket, query: &M::Query) {
        let Role::Primary(primary) = &self.role else { return };
        let (until, mut machine) = (primary.tenure.until, self.machine().clone());
        for entry in self.log.behind(self.log.committed()) {
            if let Body::Op { op, .. } = &entry.body {
                machine.apply(entry.at, op);
            }
        }
        let answer = machine.answer(query);
        self.tell(now, until, Output::Answer { ticket, answer, until }, Waiting::Ticket(ticket));
    }

    fn tell_answer(&mut self, now: WallTime, ticket: Ticket, query: &M::Query) {
        let Role::Primary(primary) = &self.role else { return };
        let until = primary.tenure.until;
        assert!(!self.lacks() || self.config.breaks(Bug::DamagedIsSource), "§5: damage is never returned");
        let answer = self.machine().answer(query);
        self.tell(now, until, Output::Answer { ticket, answer, until }, Waiting::Ticket(ticket));
    }

    /// Without the lease nothing is told (R4).
    pub(crate) fn tell(&mut self, now: WallTime, until: WallTime, told: Output<M>, waiting: Waiting) {
        let holds = now < until || self.config.breaks(Bug::LeaseNotChecked);
        self.outputs.push_back(if holds { told } else { Output::Unknown(waiting) });
    }
}

/// What a majority of `members` has, of what `has` says that each has.
pub(crate) fn majority_of(
    members: &Members,
    peers: &BTreeMap<NodeId, Peer>,
    has: &dyn Fn(&Peer) -> Seq,
) -> Seq {
    let each = |node| peers.get(node).map_or(Seq(0), has);
    let mut all: Vec<Seq> = members.as_slice().iter().map(each).collect();
    all.sort_unstable();
    all[all.len() - members.majority()]
}
