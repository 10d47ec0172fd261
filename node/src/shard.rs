//! The shard: events in, outputs out, and the timers between. What happens to locks is in `owner` and `member`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{Dead, Incarnation, NodeId, ObjectId, Process, Span, WallTime};
use lease::{
    Algorithm, Batch, ClockGuard, ClockState, ConfigError, Counters, Event, Exchange, GuardConfig,
    GuardConfigError, LeaseNode, Loss, Start, Watermark,
};

use crate::checkpoints::first_checkpoint;
use crate::drain::Drain;
use crate::errands::Errands;
use crate::file::{File, FileReply};
use crate::files::{Caller, FileJournalError, Files, KeptFile};
use crate::grants::Granting;
use crate::keeper::Keeper;
use crate::lock::{Lock, UNSETTLED};
use crate::members::Views;
use crate::numbers::Numbers;
use crate::reach::Reach;
use crate::refused::is_not_exported;
use crate::session::Sessions;
use crate::steps::Steps;
use crate::store::Health;
use crate::{
    Bug, Certificate, ClientFrame, ClientId, ClusterMap, Output, PEER_BATCH_MAX, PeerMessage, Reply,
    ReplyBody, RequestId, SessionId, ShardConfig, ShardEvent, Unavailable,
};

/// How often in a lease time records are looked through for what nobody needs any longer.
const SWEEPS_PER_LEASE: u64 = 64;
/// How many records one look covers at least.
const SWEEP_COUNT_MIN: usize = 64;
/// The clock guard judges this often while its exchanges are fresh, and with each of them: so only if they fail to come.
const JUDGEMENTS_PER_FRESH: u64 = 3;
/// So many cells that were handed to this node wait until it can have them.
const OFFERED_MAX: usize = 65_536;

/// One shard of a daemon.
///
/// Every call names the time. After each, drain [`poll_output`](Self::poll_output) with a reading taken after the
/// inputs, and call [`handle_timeout`](Self::handle_timeout) when [`poll_timeout`](Self::poll_timeout) says so.
#[derive(Clone, Debug)]
pub struct Shard<A> {
    pub(crate) config: ShardConfig,
    pub(crate) lease: LeaseNode<A>,
    pub(crate) guard: ClockGuard,
    pub(crate) keeper: Keeper,
    pub(crate) locks: BTreeMap<ObjectId, Lock>,
    /// Cells that are leased because a client asked for the lease itself.
    pub(crate) leased: BTreeMap<ObjectId, Leased>,
    pub(crate) files: Files,
    pub(crate) errands: Errands,
    /// What clients may answer from their caches.
    pub(crate) granting: Granting,
    /// What is to be done about leases.
    pub(crate) steps: Steps,
    pub(crate) sessions: Sessions,
    /// Who is connected, by which run.
    pub(crate) peers: BTreeMap<NodeId, Incarnation>,
    /// When this node heard of whose death.
    pub(crate) deaths: BTreeMap<NodeId, (Dead, WallTime)>,
    /// Cells whose leases were handed to this node when it could not have them yet.
    offered: BTreeSet<ObjectId>,
    /// Locks with something to decide, and when.
    pub(crate) due: BTreeSet<(WallTime, ObjectId)>,
    outbox: BTreeMap<NodeId, VecDeque<PeerMessage>>,
    /// Answers that wait until the mark on disk covers their number.
    deferred: Vec<(u64, Process, PeerMessage)>,
    outputs: VecDeque<Output>,
    trusted: bool,
    /// What was told of it last.
    clock: ClockState,
    pub(crate) drain: Drain,
    /// Whether nothing that waits for the disk may leave any more.
    pub(crate) health: Health,
    /// Whether peers may count on this process having told them all.
    is_greeted: bool,
    sweep_at: WallTime,
    judge_at: WallTime,
    /// Which clients could have come here.
    pub(crate) reach: Reach,
}

/// A lease that a client asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leased {
    pub(crate) session: SessionId,
    /// The request that waits for the answer.
    pub(crate) asked: Option<RequestId>,
}

/// Locks that this node answers for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockCounts {
    /// Held by clients that are attached.
    pub held: usize,
    /// Requests that wait.
    pub waiting: usize,
}

/// Why a shard cannot start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ShardError {
    /// The lease protocol's numbers do not go together.
    #[error(transparent)]
    Lease(#[from] ConfigError),
    /// The clock guard's numbers do not go together.
    #[error(transparent)]
    Guard(#[from] GuardConfigError),
    /// The limits of replication do not go together.
    #[error(transparent)]
    Replication(#[from] replication::ConfigError),
    /// What was kept of a file makes no sense.
    #[error(transparent)]
    File(#[from] FileJournalError),
}

/// What a store remembers of the time before this start.
#[derive(Clone, PartialEq, Debug)]
pub struct Remembered {
    /// Whether the node may have voted before.
    pub start: Start,
    /// The epoch ceiling on disk.
    pub ceiling: u64,
    /// In epochs up to this number the node may have lost what it had not synced, because the power failed.
    pub forgot_at: Option<u64>,
    /// What it has kept of files.
    pub files: BTreeMap<ObjectId, KeptFile>,
}

impl Remembered {
    /// What a store without files remembers.
    pub const fn without_files(start: Start, ceiling: u64) -> Self {
        Self { start, ceiling, forgot_at: None, files: BTreeMap::new() }
    }
}

impl<A: Algorithm> Shard<A> {
    /// A shard that starts at `now`. `seed` decides lease ids and jitter.
    pub fn new(
        config: ShardConfig,
        me: Process,
        remembered: Remembered,
        now: WallTime,
        seed: u64,
    ) -> Result<Self, ShardError> {
        let lease = LeaseNode::new(config.lease.clone(), me, remembered.start, now, seed)?;
        config.replication.check::<File>()?;
        let guard = GuardConfig::new(&config.lease, config.clock_fresh, config.map.osds().len());
        let guard = ClockGuard::new(guard)?;
        let floor = if config.breaks(Bug::NumbersForgotten) { 0 } else { remembered.ceiling };
        let numbers = Numbers::new(remembered.ceiling, floor);
        let kept = remembered.files.into_iter();
        let kept = kept.map(|(object, kept)| (object, kept, first_checkpoint(&config, me.node, object)));
        let replication = config.replication.clone();
        let mut files = Files::new(me.node, replication, remembered.forgot_at, kept.collect())?;
        files.votes_unsure = config.breaks(Bug::UnsureVotes);
        let is_first = remembered.start == Start::Fresh;
        let mut shard = Self {
            lease,
            trusted: !A::CLOCKS_AGREE || guard.state() == ClockState::Sound,
            clock: guard.state(),
            guard,
            keeper: Keeper::new(numbers, is_first, config.locks_max),
            locks: BTreeMap::new(),
            leased: BTreeMap::new(),
            files,
            errands: Errands::default(),
            granting: Granting::default(),
            steps: Steps::default(),
            sessions: Sessions::default(),
            peers: BTreeMap::new(),
            deaths: BTreeMap::new(),
            due: BTreeSet::new(),
            outbox: BTreeMap::new(),
            deferred: Vec::new(),
            outputs: VecDeque::new(),
            drain: Drain::default(),
            offered: BTreeSet::new(),
            health: Health::Sound,
            is_greeted: false,
            sweep_at: now,
            judge_at: now,
            reach: Reach::begin(now, config.lease.session / 2, config.client_returns),
            config,
        };
        shard.raise_ceiling();
        Ok(shard)
    }

    /// This process.
    pub const fn me(&self) -> Process {
        self.lease.me()
    }

    /// The map this shard works by.
    pub fn map(&self) -> &ClusterMap {
        &self.config.map
    }

    /// What the lease protocol counted.
    pub const fn counters(&self) -> &Counters {
        self.lease.counters()
    }

    /// The shard's leases, to look at.
    pub const fn leases(&self) -> &LeaseNode<A> {
        &self.lease
    }

    /// The clock guard, to look at.
    pub const fn guard(&self) -> &ClockGuard {
        &self.guard
    }

    /// Whether this node's time is trusted.
    pub const fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// Counts of locks.
    pub fn lock_counts(&self) -> LockCounts {
        LockCounts {
            held: self.locks.values().filter(|lock| lock.holder.is_some()).count(),
            waiting: self.locks.values().map(|lock| lock.waiters.len()).sum(),
        }
    }

    /// How many leases this node owns or wants.
    pub fn leases_held(&self) -> usize {
        self.locks.len() + self.leased.len()
    }

    /// How many leases this node is about to acquire or to give up.
    pub fn leases_changing(&self) -> usize {
        self.steps.len()
    }

    /// How many locks something is kept about, owned here or elsewhere.
    pub fn records(&self) -> usize {
        self.keeper.len()
    }

    /// How many sessions there are.
    pub fn session_count(&self) -> usize {
        self.sessions.len()
    }

    /// Whether nothing waits to be sent to peers.
    pub(crate) fn has_posted_all(&self) -> bool {
        self.outbox.is_empty()
    }

    /// A peer is connected, by this run of it. A connection before that ended.
    pub fn handle_peer_up(&mut self, now: WallTime, peer: Process) {
        self.handle_peer_down(peer.node);
        let had_majority = self.has_majority();
        self.peers.insert(peer.node, peer.incarnation);
        if !had_majority && self.has_majority() {
            self.reach.begin_again(now, &self.sessions.clients());
        }
        self.tell_all_to(now, peer.node);
        if self.is_greeted {
            self.post(peer.node, PeerMessage::CaughtUp);
        }
        if let Some(at) = self.files.forgot_at {
            self.post(peer.node, PeerMessage::Forgot { at });
        }
        if self.is_full() {
            self.post(peer.node, PeerMessage::Full(true));
        }
        self.tell_taking_to(peer.node);
        self.tell_files_again(now, peer.node);
    }

    /// Whether most of the cluster is connected, this node with it.
    fn has_majority(&self) -> bool {
        2 * (self.peers.len() + 1) > self.config.map.osds().len()
    }

    /// A peer's connection is gone.
    pub fn handle_peer_down(&mut self, node: NodeId) {
        self.peers.remove(&node);
        self.peer_is_full(node, false);
        self.peer_takes(node, false);
        self.outbox.remove(&node);
        self.errands.lose(node);
        // What it asked for it asks again, and its next run is somebody else.
        self.deferred.retain(|(_, to, _)| to.node != node);
    }

    /// Lease messages of a connected peer.
    pub fn handle_lease_batch(&mut self, now: WallTime, from: Process, batch: &Batch) {
        if batch.sender != from {
            return self.tell(ShardEvent::Misbehaved { peer: from, what: "sent leases in another's name" });
        }
        let views = Views { map: &self.config.map, files: &self.files };
        self.lease.handle_batch(now, batch, &views);
        self.take_events(now);
    }

    /// Messages of a connected peer, in order.
    pub fn handle_peer_messages(&mut self, now: WallTime, from: Process, messages: Vec<PeerMessage>) {
        if self.peers.get(&from.node) != Some(&from.incarnation) {
            return;
        }
        for message in messages {
            self.handle_peer_message(now, from, message);
        }
        self.raise_ceiling();
        self.take_events(now);
    }

    /// A client is connected, and has shown this certificate.
    pub fn handle_client_up(
        &mut self,
        now: WallTime,
        session: SessionId,
        client: ClientId,
        certificate: Certificate,
    ) {
        // Sessions outlive their connections for a while, and count until they are over.
        if self.sessions.len() >= self.config.sessions_max {
            return self.hand_out(Output::Close { session });
        }
        self.sessions.open(now, session, (client, certificate), self.config.session_over_after());
        let dead: Vec<_> = self.recent_deaths(now).collect();
        for Process { node, incarnation } in dead {
            self.sessions.tell(session, Reply::Death { node, incarnation }, None);
        }
    }

    /// A client's connection is gone. What it holds stays its own until its session is over.
    pub fn handle_client_down(&mut self, session: SessionId) {
        self.sessions.disconnect(session);
    }

    /// A client's frame, in order.
    pub fn handle_client_frame(&mut self, now: WallTime, session: SessionId, frame: ClientFrame) {
        let Some(client) = self.sessions.get(session).map(|session| session.client) else { return };
        self.sessions.hear(now, session, frame.number);
        if frame.number == 1 {
            self.reach.hear(now, client);
            self.session_begins(now, session);
        }
        for request in frame.requests {
            self.handle_request(now, session, request);
        }
        self.take_events(now);
    }

    /// An exchange of times with a peer.
    pub fn handle_exchange(&mut self, now: WallTime, peer: NodeId, exchange: Exchange) {
        self.guard.handle_exchange(peer, exchange);
        self.judge_clock(now);
    }

    /// A witness reports these to be dead.
    pub fn handle_death_notice(&mut self, now: WallTime, dead: Dead) {
        let known = self.deaths.get(&dead.node).map(|&(known, _)| known);
        let both = known.map_or(dead, |known| known.and(dead));
        if known == Some(both) {
            return;
        }
        self.deaths.insert(dead.node, (both, now));
        self.lease.handle_death_notice(dead);
        let Dead { node, last: incarnation, .. } = both;
        self.tell(ShardEvent::Death { node, incarnation });
        let sessions: Vec<SessionId> = self.sessions.ids().collect();
        for session in sessions {
            self.sessions.tell(session, Reply::Death { node, incarnation }, None);
        }
        self.take_events(now);
    }

    /// The epoch ceiling is on disk.
    pub fn handle_ceiling(&mut self, now: WallTime, mark: u64) {
        self.keeper.numbers.handle_durable(mark);
        let deferred = std::mem::take(&mut self.deferred);
        for (number, to, message) in deferred {
            self.answer(now, (to, number), message);
        }
        self.take_deferred_files(now);
        self.take_events(now);
    }

    /// Lets time pass. Calling it early or often changes nothing.
    pub fn handle_timeout(&mut self, now: WallTime) {
        self.reach.turn(now);
        self.lease.handle_timeout(now);
        self.take_events(now);
        self.judge_clock(now);
        while let Some(session) = self.sessions.pop_over(now, self.config.session_over_after()) {
            self.end_session(now, session);
        }
        self.check_due(now);
        self.check_grants(now);
        self.check_files(now);
        self.take_offers(now);
        self.greet(now);
        self.tell_whether_it_takes(now);
        // A clock that cannot be trusted must not decide that nobody needs a record.
        if now >= self.sweep_at && self.trusted {
            self.sweep_at = now + self.config.lease.t_max / SWEEPS_PER_LEASE;
            let count = (self.keeper.len() / 32).max(SWEEP_COUNT_MIN);
            self.sweep_records(now, count);
        }
        self.take_events(now);
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called next.
    pub fn poll_timeout(&self) -> WallTime {
        let due = self.due.first().map(|&(at, _)| at);
        let sweep = (self.trusted && self.keeper.len() > 0).then_some(self.sweep_at);
        let greeting = (!self.is_greeted).then_some(self.lease.silent_until());
        let files = self.files.next_due(self.config.stalled_after);
        let (errands, grants) = (self.errands.next_due(), self.granting.next_due());
        let others = [
            self.lease.poll_timeout(),
            self.sessions.next_due(),
            due,
            sweep,
            greeting,
            files,
            errands,
            grants,
        ];
        others.into_iter().flatten().fold(self.judge_at, WallTime::min)
    }

    /// The next thing to do, if any. `now` is read for this call: no client is told that something is its own which
    /// is no longer this node's to give.
    pub fn poll_output(&mut self, now: WallTime) -> Option<Output> {
        if let Some(failure) = self.poll_failure() {
            return failure;
        }
        self.lose_unreadable(now);
        self.send_errands(now);
        if let Some(output) = self.outputs.pop_front() {
            return Some(output);
        }
        if let Some((to, batch)) = self.lease.poll_transmit(now) {
            return Some(Output::Lease { to, batch });
        }
        if let Some(mut first) = self.outbox.first_entry() {
            let to = *first.key();
            let count = first.get().len().min(PEER_BATCH_MAX);
            let messages = first.get_mut().drain(..count).collect();
            if first.get().is_empty() {
                first.remove();
            }
            return Some(Output::Peer { to, messages });
        }
        let checks = !self.config.breaks(Bug::LeaseNotCheckedWhenLeaving);
        while let Some((to, reply)) = self.files.pop_reply(now, checks) {
            if let Some(output) = self.leave_reply(now, to, reply) {
                return Some(output);
            }
        }
        if !self.sessions.is_ready() {
            return None;
        }
        // A process that was frozen since it took its inputs must confirm nobody whose lease does not cover it.
        self.check_due(now);
        self.check_grants_covered(now);
        let lease = &self.lease;
        let framed =
            self.sessions.pop_frame(|outgoing| outgoing.under.is_none_or(|cell| lease.holds(now, cell)));
        let (session, frame) = framed?;
        Some(Output::Client { session, frame })
    }

    /// A reply goes to whoever asked, if that still runs. What this node said to itself may have more to be done.
    fn leave_reply(&mut self, now: WallTime, to: Caller, reply: FileReply) -> Option<Output> {
        match to {
            // Whose session is over may do nothing by it. That is no word about what is asked, and it is asked again by the next.
            Caller::Session(session)
                if is_not_exported(&reply.body) && self.sessions.get(session).is_none() =>
            {
                None
            }
            Caller::Session(session) => Some(Output::FileReply { session, reply }),
            Caller::Node(to) if to == self.me() => {
                self.take_errand_reply(now, to.node, reply);
                self.take_events(now);
                self.send_errands(now);
                self.outputs.pop_front()
            }
            Caller::Node(to) => {
                let is_there = self.peers.get(&to.node) == Some(&to.incarnation);
                is_there.then_some(Output::ErrandReply { to: to.node, reply })
            }
        }
    }

    pub(crate) fn hand_out(&mut self, output: Output) {
        self.outputs.push_back(output);
    }

    pub(crate) fn tell(&mut self, event: ShardEvent) {
        self.hand_out(Output::Event(event));
    }

    pub(crate) fn reply(&mut self, session: SessionId, id: RequestId, body: ReplyBody) {
        self.sessions.tell(session, Reply::To { id, body }, None);
    }

    /// A reply that says something is the client's: it leaves only while this node holds the lease.
    pub(crate) fn reply_under(
        &mut self,
        cell: ObjectId,
        (session, id): (SessionId, RequestId),
        body: ReplyBody,
    ) {
        self.sessions.tell(session, Reply::To { id, body }, Some(cell));
    }

    /// To a connected peer; what others miss they are told when they connect.
    pub(crate) fn post(&mut self, to: NodeId, message: PeerMessage) {
        if self.peers.contains_key(&to) {
            self.outbox.entry(to).or_default().push_back(message);
        }
    }

    /// An answer that speaks for `number`: it leaves once the mark on disk covers that.
    pub(crate) fn answer(&mut self, now: WallTime, (to, number): (Process, u64), message: PeerMessage) {
        if !self.keeper.numbers.is_durable(number) && !self.config.breaks(Bug::AnsweredBeforeDurable) {
            return self.deferred.push((number, to, message));
        }
        if to == self.me() {
            self.handle_answer(now, to.node, message);
        } else {
            self.post(to.node, message);
        }
    }

    /// The processes whose clients may still believe in what they granted.
    pub(crate) fn recent_deaths(&self, now: WallTime) -> impl Iterator<Item = Process> {
        let over_after = self.config.session_over_after();
        let recent = self.deaths.iter().filter(move |(_, (_, at))| now.since(*at) < over_after);
        recent.map(|(&node, &(dead, _))| Process { node, incarnation: dead.last })
    }

    /// Which of them were members of this cell: nobody else has granted anything there.
    pub(crate) fn recent_deaths_of(&self, now: WallTime, cell: ObjectId) -> Vec<Process> {
        let view = self.config.map.view(cell);
        self.recent_deaths(now).filter(|process| view.members.contains(process.node)).collect()
    }

    /// Until when clients of the recently dead may believe in what they granted.
    pub(crate) fn deaths_matter_until(&self) -> WallTime {
        let latest = self.deaths.values().map(|&(_, at)| at).max();
        latest.map_or(WallTime::ZERO, |at| at + self.config.session_over_after())
    }

    /// Why this node acts as nobody's owner at present.
    pub(crate) fn unavailable(&self, now: WallTime) -> Option<Unavailable> {
        if self.drain.is_stopping {
            Some(Unavailable::Stopping)
        } else if self.drain.is_ordered {
            Some(Unavailable::Drained)
        } else if now < self.lease.silent_until() {
            Some(Unavailable::Quarantined)
        } else if !self.trusted {
            Some(Unavailable::Clock)
        } else {
            None
        }
    }

    pub(crate) fn raise_ceiling(&mut self) {
        if let Some(to) = self.keeper.numbers.poll_raise() {
            self.outputs.push_back(Output::RaiseCeiling { to });
        }
    }

    /// Once nobody can believe in a grant of an earlier run of this node: what peers were told is all there is.
    fn greet(&mut self, now: WallTime) {
        if self.is_greeted || now < self.lease.silent_until() && !self.config.breaks(Bug::CaughtUpTooEarly) {
            return;
        }
        self.is_greeted = true;
        let peers: Vec<NodeId> = self.peers.keys().copied().collect();
        peers.into_iter().for_each(|peer| self.post(peer, PeerMessage::CaughtUp));
    }

    fn judge_clock(&mut self, now: WallTime) {
        self.guard.handle_timeout(now);
        let state = self.guard.state();
        self.judge_at = now + (self.config.clock_fresh / JUDGEMENTS_PER_FRESH).max(Span::from_micros(1));
        let is_sound = !A::CLOCKS_AGREE || state == ClockState::Sound;
        // Whoever cannot join is told why, once.
        let is_off = A::CLOCKS_AGREE && state == ClockState::Off;
        if is_sound != self.trusted || is_off && self.clock != state {
            self.tell(ShardEvent::Clock(state));
        }
        self.clock = state;
        if is_sound == self.trusted {
            return;
        }
        self.trusted = is_sound;
        if is_sound {
            self.lease.resume(now);
            self.take_offers(now);
        } else {
            self.stand_down(now);
        }
        self.tell_whether_it_takes(now);
        self.take_events(now);
    }

    fn stand_down(&mut self, now: WallTime) {
        let cells: Vec<ObjectId> = self.locks.keys().copied().collect();
        cells.into_iter().for_each(|cell| self.detach_all(cell, Unavailable::Clock));
        let locks = &self.locks;
        let watermark = |cell: ObjectId| -> Watermark { locks.get(&cell).map_or(UNSETTLED, Lock::watermark) };
        self.lease.stand_down(now, &watermark);
        self.locks.clear();
        self.leased.clear();
        self.steps.clear();
        self.abandon_files(now);
    }

    pub(crate) fn take_events(&mut self, now: WallTime) {
        loop {
            while let Some(event) = self.lease.poll_event() {
                self.take_event(now, event);
            }
            // A step may end at once, and make room for the next.
            self.run_steps(now);
            let Some(event) = self.lease.poll_event() else { return };
            self.take_event(now, event);
        }
    }

    fn take_event(&mut self, now: WallTime, event: Event) {
        if let Event::Acquired { cell, .. }
        | Event::Denied { cell, .. }
        | Event::GivenUp { cell, .. }
        | Event::Lost { cell, .. } = event
        {
            self.steps.end(cell);
        }
        match event {
            Event::Renewed { cell, until } => self.file_renewed(cell, until),
            Event::Acquired { cell, until, ended, watermark, .. } => {
                if self.leased.contains_key(&cell) {
                    self.lease_granted(cell, until);
                } else if self.files.hosted.contains_key(&cell) {
                    self.file_acquired(now, cell, (until, ended));
                } else {
                    self.lock_acquired(now, cell, (ended, watermark));
                }
            }
            Event::Denied { cell, why } => self.lock_denied(now, cell, why),
            Event::Lost { cell, why, .. } => self.lock_lost(now, cell, why),
            Event::GivenUp { cell, .. } => {
                self.file_given_up(now, cell);
                self.lock_given_up(now, cell);
            }
            Event::Offered { cell, .. } => {
                if matches!(self.unavailable(now), Some(Unavailable::Clock | Unavailable::Quarantined)) {
                    self.keep_offer(cell);
                } else {
                    self.take_offer(now, cell);
                }
            }
            Event::SettingsDiffer { peer } => self.tell(ShardEvent::SettingsDiffer { peer }),
            // The members of locks are those of the map, and peers with another one are not let in.
            Event::WrongView { cell, current } => self.file_view_known(now, cell, current),
            Event::ViewBehind { cell, peer, .. } => self.file_view_behind(now, cell, peer),
        }
    }

    /// Nobody else gets the lease before it has run out, so it is taken as soon as it can be.
    fn keep_offer(&mut self, cell: ObjectId) {
        if self.offered.len() < OFFERED_MAX {
            self.offered.insert(cell);
        }
    }

    fn take_offer(&mut self, now: WallTime, cell: ObjectId) {
        self.file_offered(now, cell);
        self.lock_offered(now, cell);
    }

    fn take_offers(&mut self, now: WallTime) {
        if !self.offered.is_empty() && self.unavailable(now).is_none() {
            std::mem::take(&mut self.offered).into_iter().for_each(|cell| self.take_offer(now, cell));
        }
    }

    fn lock_lost(&mut self, now: WallTime, cell: ObjectId, why: Loss) {
        self.tell(ShardEvent::LeaseLost { cell, why });
        self.file_not_leased(now, cell, &ReplyBody::Unavailable(Unavailable::NoMajority));
        self.detach_all(cell, Unavailable::NoMajority);
        self.locks.remove(&cell);
        if let Some(leased) = self.leased.remove(&cell) {
            self.sessions.unbind(leased.session, cell);
        }
    }
}
