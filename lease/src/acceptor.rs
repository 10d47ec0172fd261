//! The acceptor: a round-based register for each cell, in memory only.
//!
//! A register that is absent is not an empty one: it answers as if it had promised the *floor*, which is at least
//! every ballot of every register that was dropped, and after a restart everything that may have been promised
//! before. So a forgotten promise cannot be broken.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use base::{ObjectId, Process, Span, View, ViewId, WallTime};

use crate::cells::{Cells, Entry};
use crate::node::{Common, Membership};
use crate::trail::{TrailEntry, TrailKind};
use crate::views::{ViewHandle, ViewSource};
use crate::{Algorithm, Ballot, Body, Bug, Ended, Given, Lease, LeaseId, Message, Reject, Stamp, Written};

/// A sweep visits every register once in the time that an idle one is kept, in this many steps.
const SWEEP_STEPS: u32 = 8;

/// One cell's register: 80 bytes. What few registers have (a given-up lease) lives beside it.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Register {
    cell: ObjectId,
    read: Ballot,
    write: Ballot,
    /// Until when this node respects the lease.
    expires: WallTime,
    id: LeaseId,
    previous: LeaseId,
    pub(crate) view: ViewHandle,
    /// The sweep tick of the last change, to tell idleness. What is repeated or refused is no use of a register.
    touched: u16,
    ended: Ended,
    given: bool,
}

const _: () = assert!(size_of::<Option<Register>>() <= 80, "the budget is 100 bytes, index included");

impl Entry for Register {
    fn cell(&self) -> ObjectId {
        self.cell
    }
}

impl Register {
    /// The highest ballot it answered: lower ones are refused.
    fn promised(&self) -> Ballot {
        self.read.max(self.write)
    }
}

/// A newcomer to a view casts no vote.
#[derive(Clone, Copy, Hash, Debug)]
struct Silence {
    view: ViewId,
    until: WallTime,
}

/// The registers of one node.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    registers: Cells<Register>,
    given: BTreeMap<ObjectId, Given>,
    floor: Ballot,
    /// Cells whose view this node joined too recently to vote.
    newcomers: BTreeMap<ObjectId, Silence>,
    sweep_period: Span,
    sweep_cursor: u32,
    swept_at: WallTime,
}

impl Acceptor {
    /// Registers are kept for `idle` after their last change.
    pub(crate) fn new(idle: Span, floor: Ballot, now: WallTime, seed: u64) -> Self {
        Self {
            registers: Cells::new(seed),
            given: BTreeMap::new(),
            floor,
            newcomers: BTreeMap::new(),
            sweep_period: (idle / u64::from(SWEEP_STEPS)).max(Span::from_micros(1)),
            sweep_cursor: 0,
            swept_at: now,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.registers.len()
    }

    /// A cell's register, if it has one.
    pub(crate) fn find(&self, cell: ObjectId) -> Option<&Register> {
        self.registers.at(self.registers.find(cell)?)
    }

    /// Says that these cells are about to be looked up.
    pub(crate) fn fetch(&self, cells: impl Iterator<Item = ObjectId>) {
        self.registers.fetch(cells);
    }

    /// What this node promised for a cell, or for all cells that it has no register for.
    pub(crate) fn promised(&self, register: Option<&Register>) -> Ballot {
        register.map_or(self.floor, |register| register.promised())
    }

    /// The value of a cell's register, whoever may have decided it.
    pub(crate) fn value<A: Algorithm>(
        &self,
        common: &Common<A>,
        now: WallTime,
        register: &Register,
    ) -> Option<Written> {
        if register.id == LeaseId::NONE {
            return None;
        }
        let given = if register.given { self.given.get(&register.cell).copied().map(Box::new) } else { None };
        let lease = Lease {
            id: register.id,
            expiry: common.rules.report(now, register.expires),
            previous: register.previous,
            ended: register.ended,
            given,
        };
        Some(Written { ballot: register.write, lease })
    }

    /// Answers a request, or says why it changed nothing.
    pub(crate) fn handle_request<A: Algorithm>(
        &mut self,
        common: &mut Common<A>,
        now: WallTime,
        message: &Message,
        source: &dyn ViewSource,
    ) -> Result<Body, Reject> {
        let slot = self.registers.find(message.cell);
        let view = match slot.and_then(|slot| self.registers.at(slot)) {
            Some(register) => Cow::Borrowed(common.views.get(register.view)),
            None => source.view(message.cell).ok_or(Reject::UnknownCell)?,
        };
        if let Some(answer) = check_view(common, &view, message)? {
            return Ok(answer);
        }
        let expires = self.check_request(common, now, message)?;
        let slot = match slot {
            Some(slot) => slot,
            None => match self.refuse_by_floor(message) {
                Some(nack) => return Ok(nack),
                None => self.create(common, message.cell, source)?,
            },
        };
        match &message.body {
            Body::Write(lease) => self.write(common, now, (slot, message.ballot), (lease, expires)),
            _ => self.read(common, now, slot, message.ballot),
        }
    }

    /// Puts a view in force for a cell.
    pub(crate) fn change_view<A: Algorithm>(
        &mut self,
        common: &mut Common<A>,
        now: WallTime,
        (cell, view): (ObjectId, &View),
        membership: Membership,
    ) {
        if membership == Membership::Joined && !common.config.breaks(Bug::NewcomerVotes) {
            let silence = Silence { view: view.id, until: now + common.rules.newcomer_silence() };
            let known = self.newcomers.entry(cell).or_insert(silence);
            // Told twice of one view, it joined once.
            if known.view != view.id {
                *known = silence;
            }
        }
        if let Some(register) = self.registers.find(cell).and_then(|slot| self.registers.at_mut(slot)) {
            let old = std::mem::replace(&mut register.view, common.views.intern(view));
            common.views.release(old);
        }
    }

    /// The same acceptor without memory.
    pub(crate) fn started_over(&self, now: WallTime, floor: Ballot) -> Self {
        let &Self { sweep_period, ref registers, .. } = self;
        let (registers, given) = (registers.emptied(), BTreeMap::new());
        // A newcomer's silence is shorter than the one that follows, or as long.
        Self {
            registers,
            given,
            floor,
            newcomers: BTreeMap::new(),
            sweep_period,
            sweep_cursor: 0,
            swept_at: now,
        }
    }

    /// When [`sweep`](Self::sweep) wants to be called again.
    pub(crate) fn next_sweep(&self) -> Option<WallTime> {
        (self.registers.len() > 0 || !self.newcomers.is_empty()).then_some(self.swept_at + self.sweep_period)
    }

    /// Drops registers that are idle and whose lease is over, a part of them in each call.
    pub(crate) fn sweep<A: Algorithm>(&mut self, common: &mut Common<A>, now: WallTime) {
        if now < self.swept_at + self.sweep_period {
            return;
        }
        self.swept_at = now;
        self.newcomers.retain(|_, silence| now < silence.until);
        let steps = self.registers.slots().div_ceil(SWEEP_STEPS);
        for _ in 0..steps {
            let slots = self.registers.slots();
            if slots == 0 {
                return;
            }
            self.sweep_cursor = (self.sweep_cursor + 1) % slots;
            self.drop_if_idle(common, now, self.sweep_cursor);
        }
    }

    fn drop_if_idle<A: Algorithm>(&mut self, common: &mut Common<A>, now: WallTime, slot: u32) {
        let Some(register) = self.registers.at(slot) else { return };
        let over = register.id == LeaseId::NONE || common.rules.is_over(now, register.expires);
        let ticks_idle = self.tick(now).wrapping_sub(register.touched).cast_signed();
        let ticks_needed = common.config.idle_time().as_micros().div_ceil(self.sweep_period.as_micros());
        let idle = ticks_idle > 0 && ticks_idle.cast_unsigned() as u64 > ticks_needed;
        let early = common.config.breaks(Bug::DropBeforeExpiry) && ticks_idle > 0;
        if !(over && idle || early) {
            return;
        }
        let highest = register.promised();
        if !common.config.breaks(Bug::DropWithoutFloor) {
            self.floor = self.floor.max(highest);
        }
        if let Some(register) = self.registers.remove(slot) {
            self.given.remove(&register.cell);
            common.views.release(register.view);
            common.counters.dropped += 1;
        }
    }

    /// Everything that can be wrong with a request by itself; for a write, until when it is to be respected.
    fn check_request<A: Algorithm>(
        &self,
        common: &Common<A>,
        now: WallTime,
        message: &Message,
    ) -> Result<WallTime, Reject> {
        let silence = if self.newcomers.is_empty() { None } else { self.newcomers.get(&message.cell) };
        if silence.is_some_and(|silence| now < silence.until) {
            return Err(Reject::Newcomer);
        }
        if message.ballot.stamp > common.rules.horizon(now) {
            return Err(Reject::FutureBallot);
        }
        if message.ballot.stamp == Stamp::ZERO {
            return Err(Reject::Malformed);
        }
        match &message.body {
            Body::Read => Ok(WallTime::ZERO),
            Body::Write(lease) if lease.id != LeaseId::NONE => common.rules.respect_until(now, lease.expiry),
            _ => Err(Reject::Malformed),
        }
    }

    fn refuse_by_floor(&self, message: &Message) -> Option<Body> {
        let refused = match message.body {
            Body::Read => message.ballot <= self.floor,
            _ => message.ballot < self.floor,
        };
        refused.then_some(Body::Nack { highest: self.floor })
    }

    fn create<A: Algorithm>(
        &mut self,
        common: &mut Common<A>,
        cell: ObjectId,
        source: &dyn ViewSource,
    ) -> Result<u32, Reject> {
        if self.registers.len() >= common.config.registers_max as usize {
            return Err(Reject::Full);
        }
        let view = common.views.intern(&*source.view(cell).ok_or(Reject::UnknownCell)?);
        Ok(self.registers.insert(Register {
            cell,
            read: Ballot::ZERO,
            write: Ballot::ZERO,
            expires: WallTime::ZERO,
            id: LeaseId::NONE,
            previous: LeaseId::NONE,
            view,
            touched: 0,
            ended: Ended::Unknown,
            given: false,
        }))
    }

    fn read<A: Algorithm>(
        &mut self,
        common: &Common<A>,
        now: WallTime,
        slot: u32,
        ballot: Ballot,
    ) -> Result<Body, Reject> {
        let tick = self.tick(now);
        let register = self.registers.at_mut(slot).ok_or(Reject::UnknownCell)?;
        if ballot < register.read || ballot < register.write {
            return Ok(Body::Nack { highest: register.promised() });
        }
        if ballot == register.write {
            // A late copy of a read whose write has arrived; its proposer has long had the answer.
            return Err(Reject::Stale);
        }
        // A repeated read is answered as before: nothing can have been written below its own promise since.
        if ballot > register.read {
            (register.read, register.touched) = (ballot, tick);
        }
        let register = self.registers.at(slot).ok_or(Reject::UnknownCell)?;
        Ok(Body::ReadAck(self.value(common, now, register).map(Box::new)))
    }

    fn write<A: Algorithm>(
        &mut self,
        common: &mut Common<A>,
        now: WallTime,
        (slot, ballot): (u32, Ballot),
        (lease, expires): (&Lease, WallTime),
    ) -> Result<Body, Reject> {
        let is_held = self.is_held_by_another(common, now, slot, ballot.process);
        let tick = self.tick(now);
        let register = self.registers.at_mut(slot).ok_or(Reject::UnknownCell)?;
        if ballot < register.read || ballot < register.write || is_held {
            return Ok(Body::Nack { highest: register.promised() });
        }
        let two_values = common.config.breaks(Bug::RenewalUnderOldBallot);
        if ballot == register.write && !two_values {
            let same = register.id == lease.id && register.given == lease.given.is_some();
            return if same { Ok(Body::WriteAck) } else { Err(Reject::TwoValues) };
        }
        let is_new = register.id != lease.id;
        (register.read, register.write, register.touched) = (ballot, ballot, tick);
        (register.expires, register.id) = (expires, lease.id);
        (register.previous, register.ended) = (lease.previous, lease.ended);
        let was_given = std::mem::replace(&mut register.given, lease.given.is_some());
        let cell = register.cell;
        match &lease.given {
            Some(given) => drop(self.given.insert(cell, **given)),
            None if was_given => drop(self.given.remove(&cell)),
            None => {}
        }
        if is_new || lease.given.is_some() {
            common.trail.record(trail_entry((cell, now, ballot.process), lease, expires));
        }
        Ok(Body::WriteAck)
    }

    /// PaxosLease: a vote for one owner is respected until it is over, whatever the ballots say. A late write can have
    /// the higher ballot: a restart forgets promises, and no clock tells how old a message is.
    fn is_held_by_another<A: Algorithm>(
        &self,
        common: &Common<A>,
        now: WallTime,
        slot: u32,
        writer: Process,
    ) -> bool {
        let Some(register) = self.registers.at(slot).filter(|_| A::EVERY_VOTE_IS_OPEN) else { return false };
        let owner = register.write.process;
        if register.id == LeaseId::NONE || owner == writer || common.is_dead(owner) {
            return false;
        }
        let given = if register.given { self.given.get(&register.cell) } else { None };
        let is_offered = given.is_some_and(|given| given.successor.is_none_or(|node| node == writer.node));
        !is_offered && !common.rules.is_over(now, register.expires)
    }

    /// The sweep period that `now` lies in. It wraps: a register that no sweep visits for hours (the node stood down)
    /// can look used for as long again, which only keeps it longer.
    #[expect(clippy::cast_possible_truncation, reason = "it is meant to wrap")]
    fn tick(&self, now: WallTime) -> u16 {
        (now.as_micros() / self.sweep_period.as_micros()) as u16
    }
}

/// Two acceptors with the same promises and values are the same, wherever they keep them.
impl Hash for Acceptor {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let mut registers: Vec<&Register> = self.registers.iter().collect();
        registers.sort_unstable_by_key(|register| register.cell);
        (registers, &self.given, self.floor, &self.newcomers, self.swept_at, self.sweep_cursor).hash(state);
    }
}

/// The sender and this node must both be members of the view that both believe in.
fn check_view<A: Algorithm>(
    common: &Common<A>,
    view: &View,
    message: &Message,
) -> Result<Option<Body>, Reject> {
    if message.view < view.id {
        return Ok(Some(Body::WrongView(Box::new(view.clone()))));
    }
    if message.view > view.id {
        return Err(Reject::ViewBehind);
    }
    if !view.members.contains(message.ballot.process.node) {
        return Err(Reject::SenderNotMember);
    }
    if !view.members.contains(common.me.node) {
        return Err(Reject::NotMember);
    }
    Ok(None)
}

fn trail_entry(
    (cell, at, owner): (ObjectId, WallTime, Process),
    lease: &Lease,
    until: WallTime,
) -> TrailEntry {
    let kind = match &lease.given {
        Some(given) => TrailKind::GivenUp { successor: given.successor },
        None => TrailKind::VotedFor { until, previous: lease.previous, ended: lease.ended },
    };
    TrailEntry { cell, at, lease: lease.id, owner, kind }
}
