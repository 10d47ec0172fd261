//! One shard's lease node: its acceptor, its claims, and what goes in and out.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use base::{Dead, NodeId, ObjectId, Process, View, ViewId, WallTime, mix};

use crate::acceptor::{Acceptor, Register};
use crate::cells::Cells;
use crate::claim::{Attempt, Claim, Goal, Rest};
use crate::counters::Counters;
use crate::pace::Pace;
use crate::timers::Timers;
use crate::trail::{Trail, TrailEntry};
use crate::views::{ViewHandle, ViewSource, ViewTable};
use crate::{
    Algorithm, Ballot, Batch, Body, Bug, Config, ConfigError, Denial, Event, Given, LeaseId, Loss, Message,
    Refusal, Reject, Stamp, Watermark,
};

/// Timers are exact to this part of `t_max`.
const TICKS_PER_LEASE: u64 = 2048;

/// About how many claims one call looks at: whatever else there is to do must not wait for a hundred thousand renewals.
const WAKES_MAX: usize = 1_024;

/// Cells looked up together before each is looked at by itself: enough for a processor to wait for several of them at
/// once, and few enough to be at hand still when it is their turn.
const FETCH_LEN: usize = 32;

/// A node that just gave a lease up backs off as if it had failed this often already.
const STAND_BACK_FAILURES: u8 = 2;

/// Whether a node may have voted before it started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// The very first start of a freshly formatted store.
    Fresh,
    /// Any other: silent until nothing it may have voted for can be valid.
    Again,
}

/// What a node was when another view comes into force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Membership {
    /// A member of every view that it may have missed and of the one before, or the object is new; or no member now.
    Kept,
    /// No member of the view before, or it cannot tell: it casts no vote for a while.
    Joined,
}

/// Who seems to own a cell, for redirects. Never proof.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hint {
    /// The process whose value the local register holds.
    pub owner: Process,
    /// Until when it is respected here.
    pub until: WallTime,
}

/// What acceptor and claims both need.
#[derive(Clone, Debug)]
pub(crate) struct Common<A> {
    pub(crate) config: Arc<Config>,
    pub(crate) rules: A,
    pub(crate) me: Process,
    /// Who was reported dead.
    pub(crate) dead: BTreeMap<NodeId, Dead>,
    pub(crate) views: ViewTable,
    pub(crate) trail: Trail,
    pub(crate) counters: Counters,
}

impl<A> Common<A> {
    pub(crate) fn is_dead(&self, process: Process) -> bool {
        let Some(dead) = self.dead.get(&process.node) else { return false };
        dead.contains(process) || self.config.breaks(Bug::NoticeKillsEveryIncarnation)
    }
}

/// Proposer and acceptor of one shard, for any number of cells.
#[derive(Clone, Debug)]
pub struct LeaseNode<A> {
    pub(crate) common: Common<A>,
    pub(crate) acceptor: Acceptor,
    pub(crate) claims: Cells<Claim>,
    pub(crate) timers: Timers,
    /// How many renewals may begin, and the claims whose renewal waits for that, in the order of their times.
    pub(crate) pace: Pace,
    pub(crate) late: VecDeque<u32>,
    /// The last stamp used, so that no ballot is used twice.
    pub(crate) stamp: Stamp,
    pub(crate) silent_until: WallTime,
    pub(crate) stood_down: bool,
    pub(crate) settings: u32,
    pub(crate) seed: u64,
    pub(crate) outbox: BTreeMap<NodeId, VecDeque<Message>>,
    pub(crate) events: VecDeque<Event>,
    /// Memory of attempts that are over, for the next: every lease needs one for a few milliseconds.
    #[expect(clippy::vec_box, reason = "the boxes themselves are what is used again")]
    pub(crate) spare: Vec<Box<Attempt>>,
}

impl<A: Algorithm> LeaseNode<A> {
    /// A node that starts at `now`. `seed` decides lease ids and jitter.
    pub fn new(
        config: Arc<Config>,
        me: Process,
        start: Start,
        now: WallTime,
        seed: u64,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        let rules = A::new(&config);
        let silent = start == Start::Again && !config.breaks(Bug::NoQuarantine);
        let floor = match start {
            Start::Fresh => Ballot::ZERO,
            Start::Again => Ballot::ceiling_of(rules.floor_after(now)),
        };
        Ok(Self {
            acceptor: Acceptor::new(config.idle_time(), floor, now, seed),
            claims: Cells::new(seed),
            timers: Timers::new((config.t_max / TICKS_PER_LEASE).max(base::Span::from_micros(1))),
            pace: Pace::new(config.renewals_max),
            late: VecDeque::new(),
            stamp: Stamp::ZERO,
            silent_until: if silent { now + rules.quarantine() } else { WallTime::ZERO },
            stood_down: false,
            settings: settings_digest::<A>(&config),
            seed: mix(seed ^ u64::from(me.node.0) << 32 ^ u64::from(me.incarnation.0)),
            outbox: BTreeMap::new(),
            events: VecDeque::new(),
            spare: Vec::new(),
            common: Common {
                trail: Trail::new(config.trail_len),
                config,
                rules,
                me,
                dead: BTreeMap::new(),
                views: ViewTable::default(),
                counters: Counters::default(),
            },
        })
    }

    /// This process.
    pub const fn me(&self) -> Process {
        self.common.me
    }

    /// Whether this node owns the cell, judged by a clock reading taken for the operation in question.
    pub fn holds(&self, now: WallTime, cell: ObjectId) -> bool {
        let Some(claim) = self.claim(cell) else { return false };
        let Some(tenure) = &claim.tenure else { return false };
        let in_time = now < tenure.until || self.breaks(Bug::ClockAskedAtAcquireOnly);
        let kept = claim.is_kept() || self.breaks(Bug::HoldsWhileReleasing);
        // Peers that were told of this process's death no longer respect its leases.
        in_time && kept && !self.stood_down && !self.common.is_dead(self.common.me)
    }

    /// Until when this node owns the cell unless it renews, if it does.
    pub fn valid_until(&self, now: WallTime, cell: ObjectId) -> Option<WallTime> {
        if !self.holds(now, cell) {
            return None;
        }
        Some(self.claim(cell)?.tenure.as_ref()?.until)
    }

    /// Which lease of the cell this node owns, or owned and is giving up.
    pub fn lease_of(&self, cell: ObjectId) -> Option<LeaseId> {
        Some(self.claim(cell)?.tenure.as_ref()?.lease)
    }

    /// The view whose majority last decided this node's lease: the next change of view waits for it.
    pub fn decided_in(&self, cell: ObjectId) -> Option<ViewId> {
        Some(self.claim(cell)?.tenure.as_ref()?.view)
    }

    /// The ballot of the round that this node has under way for the cell, if there is one.
    pub fn round(&self, cell: ObjectId) -> Option<Ballot> {
        Some(self.claim(cell)?.attempt.as_ref()?.ballot)
    }

    /// Who seems to own the cell.
    pub fn hint(&self, now: WallTime, cell: ObjectId) -> Option<Hint> {
        let written = self.acceptor.value(&self.common, now, self.acceptor.find(cell)?)?;
        match self.common.rules.standing(now, written.lease.expiry) {
            crate::Standing::Valid(until)
                if written.lease.is_kept() && !self.common.is_dead(written.ballot.process) =>
            {
                Some(Hint { owner: written.ballot.process, until })
            }
            _ => None,
        }
    }

    /// Who owned the cell last, as far as this node knows, whether or not that is over.
    pub fn last_owner(&self, now: WallTime, cell: ObjectId) -> Option<Process> {
        let written = self.acceptor.value(&self.common, now, self.acceptor.find(cell)?)?;
        Some(written.ballot.process)
    }

    /// What this node remembers about the cell's owners, oldest first.
    pub fn trail(&self, cell: ObjectId) -> impl Iterator<Item = &TrailEntry> {
        self.common.trail.of(cell)
    }

    /// Counts of what happened.
    pub const fn counters(&self) -> &Counters {
        &self.common.counters
    }

    /// How many registers there are.
    pub fn registers(&self) -> usize {
        self.acceptor.len()
    }

    /// How many cells this node wants or holds.
    pub fn claims(&self) -> usize {
        self.claims.len()
    }

    /// Until when this node is silent after its start.
    pub const fn silent_until(&self) -> WallTime {
        self.silent_until
    }

    /// Wants the cell, and keeps it once it has it. The outcome is an event; asking again changes nothing.
    pub fn acquire(&mut self, now: WallTime, cell: ObjectId, source: &dyn ViewSource) -> Result<(), Refusal> {
        self.check_may_propose(now)?;
        let slot = match self.claims.find(cell) {
            Some(slot) => slot,
            None => {
                self.check_not_taken(now, None, self.acceptor.find(cell))?;
                self.create_claim(cell, Goal::Acquire, source)?
            }
        };
        self.pursue(now, slot)
    }

    /// Gives the lease up for anybody to take. From now on `holds` is false, whatever becomes of it.
    pub fn release(&mut self, now: WallTime, cell: ObjectId, watermark: Watermark) -> Result<(), Refusal> {
        self.give_up(now, cell, Given { successor: None, watermark })
    }

    /// Gives the lease to `successor`, another member, who may take it at once. From now on `holds` is false, whatever becomes of it.
    pub fn hand_over(
        &mut self,
        now: WallTime,
        cell: ObjectId,
        successor: NodeId,
        watermark: Watermark,
    ) -> Result<(), Refusal> {
        let view = self.claim(cell).map(|claim| self.common.views.get(claim.view));
        if successor == self.common.me.node || view.is_some_and(|view| !view.members.contains(successor)) {
            return Err(Refusal::NotMember);
        }
        self.give_up(now, cell, Given { successor: Some(successor), watermark })
    }

    /// Puts another view in force; the one in force already changes nothing.
    ///
    /// An owner reads and writes again at once; see [`decided_in`](Self::decided_in). That views change by one member
    /// at a time, and the next only after the owner's lease was decided in this one, is the caller's duty.
    pub fn change_view(&mut self, now: WallTime, cell: ObjectId, new: &View, membership: Membership) {
        self.acceptor.change_view(&mut self.common, now, (cell, new), membership);
        let Some(slot) = self.claims.find(cell) else { return };
        let view = self.common.views.intern(new);
        self.move_claim(now, slot, view);
    }

    /// Stops acting as owner of anything at once and gives every lease up, because this clock cannot be trusted.
    /// `watermark` tells the end of each object's log.
    pub fn stand_down(&mut self, now: WallTime, watermark: &dyn Fn(ObjectId) -> Watermark) {
        self.stood_down = true;
        for slot in 0..self.claims.slots() {
            match self.claims.at(slot) {
                Some(Claim { goal: Goal::Keep, cell, .. }) => {
                    let given = Given { successor: None, watermark: watermark(*cell) };
                    self.start_giving_up(now, slot, given);
                }
                // Votes that are still under way must not make an owner of this node.
                Some(Claim { goal: Goal::Acquire, .. }) => self.deny(slot, Denial::StoodDown),
                _ => {}
            }
        }
    }

    /// Takes part again after [`stand_down`](Self::stand_down). If time went back by more than anybody's ballots may
    /// lie ahead, everything this node promised lies in the future: it starts over, silent like a restarted node.
    pub fn resume(&mut self, now: WallTime) {
        self.stood_down = false;
        if self.stamp <= self.common.rules.horizon(now) {
            return;
        }
        for claim in self.claims.iter().filter(|claim| matches!(claim.goal, Goal::GiveUp(_))) {
            self.events.push_back(Event::GivenUp { cell: claim.cell, confirmed: false });
        }
        let floor = Ballot::ceiling_of(self.common.rules.floor_after(now));
        self.acceptor = self.acceptor.started_over(now, floor);
        self.claims = Cells::new(self.seed);
        self.common.views = ViewTable::default();
        self.stamp = Stamp::ZERO;
        self.silent_until = now + self.common.rules.quarantine();
    }

    /// A witness reports these to be dead: their leases are over.
    pub fn handle_death_notice(&mut self, dead: Dead) {
        let known = self.common.dead.entry(dead.node).or_insert(dead);
        *known = known.and(dead);
    }

    /// Takes in what a peer sent. Every message that is refused is counted by its reason.
    pub fn handle_batch(&mut self, now: WallTime, batch: &Batch, source: &dyn ViewSource) {
        self.common.counters.received += batch.messages.len() as u64;
        if let Err(why) = self.check_batch(now, batch) {
            if why == Reject::SettingsDiffer {
                self.events.push_back(Event::SettingsDiffer { peer: batch.sender.node });
            }
            batch.messages.iter().for_each(|_| self.common.counters.reject(why));
            return;
        }
        for messages in batch.messages.chunks(FETCH_LEN) {
            self.fetch(messages);
            for message in messages {
                if let Err(why) = self.handle_message(now, batch.sender, message, source) {
                    self.common.counters.reject(why);
                }
            }
        }
    }

    /// Brings together from memory what these messages are about.
    fn fetch(&self, messages: &[Message]) {
        let is_request = |message: &&Message| matches!(message.body, Body::Read | Body::Write(_));
        self.acceptor.fetch(messages.iter().filter(is_request).map(|message| message.cell));
        self.claims.fetch(messages.iter().filter(|message| !is_request(message)).map(|message| message.cell));
    }

    /// Lets time pass. Calling it early or often changes nothing. If much is due at once, some of it is left for the
    /// next call, which [`poll_timeout`](Self::poll_timeout) then asks for at once.
    pub fn handle_timeout(&mut self, now: WallTime) {
        self.start_late(now);
        let mut woken = 0;
        while woken < WAKES_MAX
            && let Some(due) = self.timers.pop_due(now)
        {
            woken += due.len();
            due.into_iter().for_each(|slot| self.wake(now, slot));
        }
        if !self.stood_down {
            // A clock that cannot be trusted must not decide that a lease is over.
            self.acceptor.sweep(&mut self.common, now);
        }
    }

    /// The next batch to send, if any.
    pub fn poll_transmit(&mut self, now: WallTime) -> Option<(NodeId, Batch)> {
        let batch_max = self.common.config.batch_max;
        let mut first = self.outbox.first_entry()?;
        let to = *first.key();
        let messages = if first.get().len() > batch_max {
            first.get_mut().drain(..batch_max).collect()
        } else {
            first.remove().into()
        };
        Some((to, Batch { sender: self.common.me, settings: self.settings, sent: now, messages }))
    }

    /// The next event, if any.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called next.
    pub fn poll_timeout(&self) -> Option<WallTime> {
        let sweep = if self.stood_down { None } else { self.acceptor.next_sweep() };
        let late = self.late.front().map(|_| self.pace.ready_at());
        self.timers.next().into_iter().chain(sweep).chain(late).min()
    }

    /// Whether this node's own proposer must do without its vote, and so without any.
    pub(crate) fn is_silent(&self, now: WallTime) -> bool {
        now < self.silent_until && !self.breaks(Bug::OwnVoteInQuarantine)
    }

    pub(crate) fn breaks(&self, bug: Bug) -> bool {
        self.common.config.breaks(bug)
    }

    fn claim(&self, cell: ObjectId) -> Option<&Claim> {
        self.claims.at(self.claims.find(cell)?)
    }

    fn check_may_propose(&self, now: WallTime) -> Result<(), Refusal> {
        if self.is_silent(now) {
            return Err(Refusal::Quarantined { until: self.silent_until });
        }
        if self.stood_down { Err(Refusal::StoodDown) } else { Ok(()) }
    }

    /// L8: nobody but its owner or named successor reads under a lease known to be valid.
    fn check_not_taken(
        &self,
        now: WallTime,
        claim: Option<&Claim>,
        register: Option<&Register>,
    ) -> Result<(), Refusal> {
        match self.known_owner(now, claim, register) {
            Some((by, until)) => Err(Refusal::Held { by, until }),
            None => Ok(()),
        }
    }

    fn create_claim(&mut self, cell: ObjectId, goal: Goal, source: &dyn ViewSource) -> Result<u32, Refusal> {
        if self.claims.len() >= self.common.config.claims_max as usize {
            return Err(Refusal::Full);
        }
        let view = match self.acceptor.find(cell).map(|register| register.view) {
            Some(view) => self.common.views.share(view),
            None => self.common.views.intern(&*source.view(cell).ok_or(Refusal::UnknownCell)?),
        };
        if !self.common.views.get(view).members.contains(self.common.me.node) {
            self.common.views.release(view);
            return Err(Refusal::NotMember);
        }
        Ok(self.claims.insert(Claim::new(cell, view, goal)))
    }

    /// Begins to acquire what the claim is for, unless it has or does that already.
    fn pursue(&mut self, now: WallTime, slot: u32) -> Result<(), Refusal> {
        let claim = self.claims.at(slot).ok_or(Refusal::UnknownCell)?;
        let is_new = claim.wake_at == WallTime::ZERO;
        match claim.goal {
            Goal::Acquire if is_new => {}
            Goal::Acquire | Goal::Keep => return Ok(()),
            Goal::GiveUp(_) => return Err(Refusal::GivingUp),
            Goal::Rest(rest) => {
                self.check_not_taken(now, Some(claim), self.acceptor.find(claim.cell))?;
                if !self.common.views.get(claim.view).members.contains(self.common.me.node) {
                    return Err(Refusal::NotMember);
                }
                let failures = if rest == Rest::GaveUp { STAND_BACK_FAILURES } else { 0 };
                if let Some(claim) = self.claims.at_mut(slot) {
                    (claim.goal, claim.failures) = (Goal::Acquire, failures);
                }
            }
        }
        self.start_round(now, slot);
        Ok(())
    }

    fn move_claim(&mut self, now: WallTime, slot: u32, view: ViewHandle) {
        let is_member = self.common.views.get(view).members.contains(self.common.me.node);
        let Some(claim) = self.claims.at_mut(slot) else { return };
        let old = std::mem::replace(&mut claim.view, view);
        if old == view {
            return self.common.views.release(old);
        }
        // Votes of the old view say nothing about the new one.
        claim.attempt = None;
        self.common.views.release(old);
        if is_member {
            self.start_round(now, slot);
        } else {
            self.abandon(now, slot, Loss::NotMember);
        }
    }

    fn check_batch(&self, now: WallTime, batch: &Batch) -> Result<(), Reject> {
        if batch.settings != self.settings {
            return Err(Reject::SettingsDiffer);
        }
        if self.common.dead.get(&batch.sender.node).is_some_and(|dead| dead.contains(batch.sender)) {
            return Err(Reject::DeadSender);
        }
        if self.common.rules.is_too_old(now, batch.sent) {
            return Err(Reject::TooOld);
        }
        if self.is_silent(now) {
            return Err(Reject::Quarantined);
        }
        Ok(())
    }

    fn handle_message(
        &mut self,
        now: WallTime,
        sender: Process,
        message: &Message,
        source: &dyn ViewSource,
    ) -> Result<(), Reject> {
        match message.body {
            Body::Read | Body::Write(_) => self.answer(now, sender, message, source),
            Body::Offer => self.handle_offer(now, sender, message.cell, source),
            Body::ReadAck(_) | Body::WriteAck | Body::Nack { .. } | Body::WrongView(_) => {
                self.handle_answer(now, sender.node, message)
            }
        }
    }

    /// Remembers the offer for as long as the lease can last, because the own register may not have seen it.
    fn handle_offer(
        &mut self,
        now: WallTime,
        sender: Process,
        cell: ObjectId,
        source: &dyn ViewSource,
    ) -> Result<(), Reject> {
        let slot = match self.claims.find(cell) {
            Some(slot) => slot,
            None => {
                let created = self.create_claim(cell, Goal::Rest(Rest::Offered), source);
                let slot = created.map_err(|why| match why {
                    Refusal::Full => Reject::Full,
                    Refusal::NotMember => Reject::NotMember,
                    _ => Reject::UnknownCell,
                })?;
                self.wait_until(slot, now + self.common.config.t_max);
                slot
            }
        };
        let claim = self.claims.at_mut(slot).ok_or(Reject::UnknownCell)?;
        if !self.common.views.get(claim.view).members.contains(sender.node) {
            return Err(Reject::SenderNotMember);
        }
        claim.offered_by = Some(sender);
        self.events.push_back(Event::Offered { cell, by: sender });
        Ok(())
    }

    fn answer(
        &mut self,
        now: WallTime,
        sender: Process,
        message: &Message,
        source: &dyn ViewSource,
    ) -> Result<(), Reject> {
        if message.ballot.process != sender {
            return Err(Reject::ForeignBallot);
        }
        if now < self.silent_until {
            return Err(Reject::Quarantined);
        }
        let answer = self.acceptor.handle_request(&mut self.common, now, message, source);
        if answer == Err(Reject::ViewBehind) {
            let (cell, seen, peer) = (message.cell, message.view, sender.node);
            self.events.push_back(Event::ViewBehind { cell, seen, peer });
        }
        let (body, result) = match answer {
            Ok(body) => (body, Ok(())),
            // The proposer hears of it, but there is nothing for it to go above.
            Err(why @ (Reject::FutureBallot | Reject::LeaseTooLong)) => {
                (Body::Nack { highest: Ballot::ZERO }, Err(why))
            }
            Err(why) => return Err(why),
        };
        let view = match &body {
            Body::WrongView(current) => current.id,
            _ => message.view,
        };
        self.send(sender.node, Message { cell: message.cell, view, ballot: message.ballot, body });
        result
    }

    pub(crate) fn send(&mut self, to: NodeId, message: Message) {
        self.outbox.entry(to).or_default().push_back(message);
    }
}

/// The state of the protocol: two nodes with the same hash behave the same from here on. Statistics, the trail and
/// timers (which follow from the claims) are left out.
impl<A> Hash for LeaseNode<A> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut claims: Vec<&Claim> = self.claims.iter().collect();
        claims.sort_unstable_by_key(|claim| claim.cell);
        (self.common.me, &self.acceptor, claims, self.common.views.in_use()).hash(state);
        (self.stamp, self.silent_until, self.stood_down, &self.common.dead).hash(state);
    }
}

/// Nodes that count time differently must not vote for each other.
fn settings_digest<A: Algorithm>(config: &Config) -> u32 {
    let words = [
        config.t_max.as_micros(),
        config.epsilon.as_micros(),
        config.session.as_micros(),
        u64::from(config.rate_error_ppm),
    ];
    let name = A::NAME.bytes().fold(0, |digest, byte| mix(digest ^ u64::from(byte)));
    let digest = words.into_iter().fold(name, |digest, word| mix(digest ^ word));
    (digest >> 32) as u32
}
