//! The proposer: how a claim becomes a lease, stays one and ends.
//!
//! Every step is an *attempt*: a READ and a WRITE under one fresh ballot. Acquiring, renewing and giving up differ only
//! in what they make of the value that the READ found.

use base::{NodeId, ObjectId, Process, Span, View, WallTime, mix};

use crate::acceptor::Register;
use crate::claim::{Attempt, Claim, Goal, Rest, Succession, Tenure, Votes};
use crate::trail::{TrailEntry, TrailKind};
use crate::{
    Algorithm, Ballot, Body, Bug, Denial, Ended, Event, Given, Lease, LeaseId, LeaseNode, Loss, Message,
    Refusal, Reject, Stamp, Standing, Watermark, Written,
};

/// How often the time that an attempt waits for answers is doubled at most, once for each that failed before.
const PATIENCE_DOUBLINGS_MAX: u8 = 2;

/// Attempts that are over and whose memory is kept, 300 KiB: about as many as a busy node has under way.
const SPARE_MAX: usize = 1_024;

/// What a decided READ means for a claim.
enum Verdict {
    /// Free: write a lease of our own.
    Take { previous: LeaseId, ended: Ended, watermark: Option<Watermark> },
    /// Our own tenure: write it again.
    Own,
    /// Perhaps still valid at its owner: ask again then.
    WaitUntil(WallTime),
    /// Somebody else's.
    HeldBy(Process, WallTime),
}

/// Why an attempt failed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Failure {
    Refused,
    Unanswered,
    TooLate,
}

impl<A: Algorithm> LeaseNode<A> {
    /// Begins an attempt for what the claim wants: a READ to every member, this node first.
    pub(crate) fn start_round(&mut self, now: WallTime, slot: u32) {
        let Some(claim) = self.claims.at(slot) else { return };
        let (cell, handle) = (claim.cell, claim.view);
        if matches!(claim.goal, Goal::Rest(_)) {
            return;
        }
        let register = self.acceptor.find(cell);
        if let Some(why) = self.forbids_round(now, claim, register) {
            return self.deny(slot, why);
        }
        let promised = self.acceptor.promised(register).stamp;
        let Some(stamp) = self.next_stamp(now, promised) else {
            return self.run_out_of_ballots(now, slot);
        };
        let ballot = Ballot { stamp, process: self.common.me };
        let Some(claim) = self.claims.at_mut(slot) else { return };
        // Where answers come late because there is too much to do, asking again and again would only make more of it.
        // An owner asks again sooner: its lease runs on.
        let doublings_max = if claim.goal == Goal::Keep { 1 } else { PATIENCE_DOUBLINGS_MAX };
        let patience = claim.failures.min(doublings_max);
        let deadline = now + self.common.config.round_timeout() * (1 << patience);
        claim.attempt = Some(match self.spare.pop() {
            Some(mut spare) => {
                *spare = Attempt::new(ballot, now);
                spare
            }
            None => Box::new(Attempt::new(ballot, now)),
        });
        claim.wake_at = claim.tenure.as_ref().map_or(deadline, |tenure| deadline.min(tenure.until));
        let wake_at = claim.wake_at;
        if claim.goal == Goal::Keep && self.breaks(Bug::RenewalUnderOldBallot) {
            self.renew_under_old_ballot(now, slot);
        } else {
            let view = self.common.views.get(handle).id;
            self.ask_everyone(now, slot, &Message { cell, view, ballot, body: Body::Read });
        }
        self.timers.set(slot, wake_at);
    }

    /// Looks at a claim whose time has come.
    pub(crate) fn wake(&mut self, now: WallTime, slot: u32) {
        let Some(claim) = self.claims.at(slot) else { return };
        if now < claim.wake_at {
            return;
        }
        let over = claim.tenure.as_ref().is_some_and(|tenure| now >= tenure.until);
        match (&claim.goal, &claim.attempt) {
            (Goal::Rest(_), _) => self.forget(slot),
            (Goal::Keep, _) if over => self.abandon(now, slot, Loss::Expired),
            (Goal::GiveUp(_), _) if over => self.finish_giving_up(now, slot, false),
            (_, Some(_)) => self.fail(now, slot, Failure::Unanswered),
            (Goal::Keep, None) => self.renew(now, slot),
            (_, None) => self.start_round(now, slot),
        }
    }

    /// Begins to renew a lease, or lets that wait for its turn; at the latest it is looked at when the lease is over.
    fn renew(&mut self, now: WallTime, slot: u32) {
        if self.late.is_empty() && self.pace.take(now, self.common.config.round_timeout()) {
            return self.start_round(now, slot);
        }
        let until = self.claims.at(slot).and_then(|claim| claim.tenure.as_ref()).map(|tenure| tenure.until);
        self.wait_until(slot, until.unwrap_or(now));
        self.late.push_back(slot);
    }

    /// Begins as many of the renewals that wait as may begin.
    pub(crate) fn start_late(&mut self, now: WallTime) {
        while let Some(&slot) = self.late.front() {
            // Meanwhile it may have ended, or even be another one's place.
            let is_late = self.claims.at(slot).is_some_and(Claim::waits_for_renewal);
            if is_late && !self.pace.take(now, self.common.config.round_timeout()) {
                return;
            }
            self.late.pop_front();
            if is_late {
                self.start_round(now, slot);
            }
        }
    }

    /// Takes in a peer's answer to an attempt of ours.
    pub(crate) fn handle_answer(
        &mut self,
        now: WallTime,
        from: NodeId,
        message: &Message,
    ) -> Result<(), Reject> {
        let slot = self.claims.find(message.cell).ok_or(Reject::Stale)?;
        let claim = self.claims.at_mut(slot).ok_or(Reject::Stale)?;
        let view = self.common.views.get(claim.view);
        let position = view.members.position(from).ok_or(Reject::SenderNotMember)?;
        let is_current = claim.attempt.as_ref().is_some_and(|attempt| attempt.ballot == message.ballot);
        if !is_current {
            return Err(Reject::Stale);
        }
        if let Body::WrongView(current) = &message.body
            && current.id > view.id
        {
            let current = View::clone(current);
            self.events.push_back(Event::WrongView { cell: message.cell, current });
        } else if message.view != view.id {
            return Err(Reject::Stale);
        }
        self.count_answer(now, slot, position, message.body.clone());
        Ok(())
    }

    pub(crate) fn give_up(&mut self, now: WallTime, cell: ObjectId, given: Given) -> Result<(), Refusal> {
        let slot = self.claims.find(cell).ok_or(Refusal::NotHeld)?;
        match self.claims.at(slot).ok_or(Refusal::NotHeld)?.goal {
            Goal::Keep => {}
            Goal::GiveUp(_) => return Err(Refusal::GivingUp),
            Goal::Acquire | Goal::Rest(_) => return Err(Refusal::NotHeld),
        }
        self.start_giving_up(now, slot, given);
        Ok(())
    }

    pub(crate) fn start_giving_up(&mut self, now: WallTime, slot: u32, given: Given) {
        let Some(claim) = self.claims.at_mut(slot) else { return };
        // From here on `holds` is false, and no vote for a renewal under way can change that.
        (claim.goal, claim.attempt, claim.failures) = (Goal::GiveUp(Box::new(given)), None, 0);
        self.start_round(now, slot);
    }

    /// Ends a claim against the will of whoever made it.
    pub(crate) fn abandon(&mut self, now: WallTime, slot: u32, why: Loss) {
        let Some(claim) = self.claims.at(slot) else { return };
        let cell = claim.cell;
        match (&claim.goal, &claim.tenure) {
            (Goal::Keep, Some(tenure)) => {
                let lease = tenure.lease;
                self.common.counters.lost += 1;
                let owner = self.common.me;
                self.common.trail.record(TrailEntry { cell, at: now, lease, owner, kind: TrailKind::Lost });
                self.events.push_back(Event::Lost { cell, lease, why });
                self.forget(slot);
            }
            (Goal::GiveUp(_), _) => self.finish_giving_up(now, slot, false),
            (Goal::Rest(_), _) => self.forget(slot),
            (Goal::Acquire | Goal::Keep, _) => self.deny(slot, Denial::NotMember),
        }
    }

    /// The owner that the local register shows, or a majority showed, unless this node may take the lease from it.
    pub(crate) fn known_owner(
        &self,
        now: WallTime,
        claim: Option<&Claim>,
        register: Option<&Register>,
    ) -> Option<(Process, WallTime)> {
        if self.breaks(Bug::ReadsUnderValidLease) {
            return None;
        }
        let told = claim.and_then(|claim| claim.denied_by(now));
        let written = register.and_then(|register| self.acceptor.value(&self.common, now, register));
        let owner = match &written {
            Some(written) => match self.judge(now, None, written) {
                Verdict::HeldBy(by, until) => Some((by, until)),
                // It was given up since.
                Verdict::Take { .. } if !written.lease.is_kept() => {
                    told.filter(|&(by, _)| by != written.ballot.process)
                }
                _ => told,
            },
            None => told,
        };
        let offered_by = claim.and_then(|claim| claim.offered_by);
        owner.filter(|&(by, _)| Some(by) != offered_by && !self.common.is_dead(by))
    }

    fn forbids_round(&self, now: WallTime, claim: &Claim, register: Option<&Register>) -> Option<Denial> {
        if claim.goal != Goal::Acquire {
            return None;
        }
        if self.stood_down {
            return Some(Denial::StoodDown);
        }
        self.known_owner(now, Some(claim), register).map(|(by, until)| Denial::Held { by, until })
    }

    /// There is no higher ballot until time has passed. An owner stays one until its lease expires.
    fn run_out_of_ballots(&mut self, now: WallTime, slot: u32) {
        match self.claims.at(slot).map(|claim| &claim.goal) {
            Some(Goal::Keep | Goal::GiveUp(_)) => self.fail(now, slot, Failure::Refused),
            _ => self.deny(slot, Denial::ClockExhausted),
        }
    }

    /// A stamp above every one used or met, and above what this node's own acceptor promised for the cell.
    fn next_stamp(&mut self, now: WallTime, promised: Stamp) -> Option<Stamp> {
        let horizon = self.common.rules.horizon(now);
        let met = if promised < horizon { self.stamp.max(promised) } else { self.stamp };
        let next = met.next()?.max(self.common.rules.opening(now));
        if next > horizon {
            return None;
        }
        assert!(next > self.stamp, "a ballot is never used for two attempts");
        self.stamp = next;
        Some(next)
    }

    /// Sends a request to all members of the claim's view and lets this node's own acceptor answer it.
    fn ask_everyone(&mut self, now: WallTime, slot: u32, message: &Message) {
        let Some(claim) = self.claims.at(slot) else { return };
        let view = self.common.views.get(claim.view);
        let me = self.common.me.node;
        let own_position = view.members.position(me);
        for &member in view.members.as_slice().iter().filter(|&&member| member != me) {
            self.outbox.entry(member).or_default().push_back(message.clone());
        }
        let Some(position) = own_position else { return };
        if self.is_silent(now) {
            return;
        }
        let handle = claim.view;
        let view = self.common.views.get(handle).clone();
        match self.acceptor.handle_request(&mut self.common, now, message, &view) {
            Ok(body) => self.count_answer(now, slot, position, body),
            Err(why) => self.common.counters.reject(why),
        }
    }

    fn count_answer(&mut self, now: WallTime, slot: u32, position: usize, body: Body) {
        let Some(claim) = self.claims.at(slot) else { return };
        let Some(attempt) = &claim.attempt else { return };
        let is_reading = attempt.writing.is_none();
        match body {
            Body::ReadAck(written) if is_reading => self.count_read(now, slot, position, written.map(|w| *w)),
            Body::WriteAck if !is_reading => self.count_vote(now, slot, position),
            Body::Nack { highest } => {
                // At the horizon there is nothing above it: one member's wrong clock must not silence this node.
                if highest.stamp < self.common.rules.horizon(now) {
                    self.stamp = self.stamp.max(highest.stamp);
                }
                self.count_refusal(now, slot, position);
            }
            Body::WrongView(_) if self.breaks(Bug::WrongViewIsAVote) => self.count_vote(now, slot, position),
            Body::WrongView(_) => self.count_refusal(now, slot, position),
            // An answer to a read that is already decided.
            _ => {}
        }
    }

    fn count_read(&mut self, now: WallTime, slot: u32, position: usize, written: Option<Written>) {
        let blocks = A::EVERY_VOTE_IS_OPEN && self.is_closed(now, slot, written.as_ref());
        let Some(attempt) = self.attempt_mut(slot) else { return };
        if blocks {
            attempt.blocker = written;
            return self.count_refusal(now, slot, position);
        }
        if A::EVERY_VOTE_IS_OPEN {
            self.see_open(now, slot, written);
        } else {
            attempt.see(written);
        }
        self.count_vote(now, slot, position);
    }

    fn see_open(&mut self, now: WallTime, slot: u32, written: Option<Written>) {
        let Some(written) = written else { return };
        let is_over = self.common.rules.standing(now, written.lease.expiry) == Standing::Over;
        let abandoned = self.claims.at(slot).and_then(|claim| claim.abandoned.as_deref().copied());
        if let Some(attempt) = self.attempt_mut(slot) {
            attempt.see_open(written, is_over, abandoned);
        }
    }

    fn count_vote(&mut self, now: WallTime, slot: u32, position: usize) {
        let by_messages = self.breaks(Bug::VotesCountedByMessages);
        let Some(majority) = self.majority(slot) else { return };
        let Some(attempt) = self.attempt_mut(slot) else { return };
        if by_messages {
            attempt.votes.add_message(position)
        } else {
            attempt.votes.add(position)
        }
        if attempt.votes.count() < majority {
            return;
        }
        match attempt.writing.clone() {
            None => self.conclude_read(now, slot),
            Some(lease) => self.conclude_write(now, slot, &lease),
        }
    }

    fn count_refusal(&mut self, now: WallTime, slot: u32, position: usize) {
        let Some(majority) = self.majority(slot) else { return };
        let Some(members) =
            self.claims.at(slot).map(|c| self.common.views.get(c.view).members.as_slice().len())
        else {
            return;
        };
        let Some(attempt) = self.attempt_mut(slot) else { return };
        if attempt.votes.has(position) {
            return;
        }
        attempt.refusals.add(position);
        if attempt.refusals.count() <= members - majority {
            let passed = now.since(attempt.asked);
            return self.shorten(now, slot, passed);
        }
        match attempt.blocker.take() {
            Some(blocker) => self.conclude_blocked(now, slot, &blocker),
            None => self.fail(now, slot, Failure::Refused),
        }
    }

    /// One member refused, so somebody else is about: the others get as long again to answer. If too many of them are
    /// gone, waiting for the whole time would only lengthen a failover.
    fn shorten(&mut self, now: WallTime, slot: u32, passed: Span) {
        let patience = passed + self.backoff(slot);
        let Some(claim) = self.claims.at_mut(slot) else { return };
        claim.wake_at = claim.wake_at.min(now + patience);
        let wake_at = claim.wake_at;
        self.timers.set(slot, wake_at);
    }

    /// PaxosLease: an acceptor that respects somebody's lease does not vote.
    fn is_closed(&self, now: WallTime, slot: u32, written: Option<&Written>) -> bool {
        let (Some(claim), Some(written)) = (self.claims.at(slot), written) else { return false };
        matches!(self.judge(now, claim.tenure.as_ref(), written), Verdict::HeldBy(..) | Verdict::WaitUntil(_))
    }

    fn conclude_blocked(&mut self, now: WallTime, slot: u32, blocker: &Written) {
        let tenure = self.claims.at(slot).and_then(|claim| claim.tenure.clone());
        match (&tenure, self.judge(now, tenure.as_ref(), blocker)) {
            (None, Verdict::HeldBy(by, until)) if by != self.common.me => {
                self.deny(slot, Denial::Held { by, until });
            }
            // Somebody took the lease that is being given up: there is nothing left to give, only reads to disturb.
            (Some(_), Verdict::HeldBy(by, _)) if by != self.common.me && self.is_giving_up(slot) => {
                self.finish_giving_up(now, slot, false);
            }
            _ => self.fail(now, slot, Failure::Refused),
        }
    }

    fn is_giving_up(&self, slot: u32) -> bool {
        self.claims.at(slot).is_some_and(|claim| matches!(claim.goal, Goal::GiveUp(_)))
    }

    /// What the value means for this node, which owns `tenure`.
    fn judge(&self, now: WallTime, tenure: Option<&Tenure>, written: &Written) -> Verdict {
        let (owner, lease) = (written.ballot.process, &written.lease);
        let free = |ended, watermark| Verdict::Take { previous: lease.id, ended, watermark };
        let is_own = owner == self.common.me
            || owner.node == self.common.me.node && self.breaks(Bug::EarlierIncarnationIsOwn);
        if is_own && tenure.is_some_and(|tenure| tenure.lease == lease.id) {
            return Verdict::Own;
        }
        if let Some(given) = &lease.given {
            match given.successor {
                None => return free(Ended::Released, Some(given.watermark)),
                Some(node) if node == self.common.me.node => {
                    return free(Ended::HandedOver, Some(given.watermark));
                }
                Some(_) => {}
            }
        }
        if self.common.is_dead(owner) {
            return free(Ended::Died, None);
        }
        match self.common.rules.standing(now, lease.expiry) {
            Standing::Over => free(Ended::Expired, None),
            // What we wrote without ever owning it: nobody acts on it.
            Standing::Valid(_) if is_own && lease.is_kept() => free(Ended::Released, None),
            Standing::Valid(until) => Verdict::HeldBy(owner, until),
            Standing::Grace(until) => Verdict::WaitUntil(until),
        }
    }

    /// A majority promised: decide by the value they hold.
    fn conclude_read(&mut self, now: WallTime, slot: u32) {
        let Some(attempt) = self.attempt_mut(slot) else { return };
        let (seen, is_ambiguous) = (attempt.seen.take(), attempt.is_ambiguous);
        let is_ambiguous = is_ambiguous && !self.breaks(Bug::LaterByBallot);
        let Some(claim) = self.claims.at(slot) else { return };
        let verdict = match &seen {
            // Every voter sees the cell open or ours. An expired lease may have the higher ballot where ballots do
            // not grow with time; it is still over.
            _ if claim.tenure.is_some() && A::EVERY_VOTE_IS_OPEN => Verdict::Own,
            // As cautious as it gets: given up, and nobody knows how.
            Some(written) if is_ambiguous => {
                Verdict::Take { previous: written.lease.id, ended: Ended::Released, watermark: None }
            }
            Some(written) => self.judge(now, claim.tenure.as_ref(), written),
            None => Verdict::Take { previous: LeaseId::NONE, ended: Ended::Unknown, watermark: None },
        };
        let in_time = claim.tenure.as_ref().is_none_or(|tenure| now < tenure.until);
        match (&claim.goal, verdict) {
            (Goal::Acquire, Verdict::Take { previous, ended, watermark }) => {
                let written_before = claim.abandoned.as_deref();
                let retried = written_before.filter(|abandoned| abandoned.lease == previous && !is_ambiguous);
                let found = Succession { lease: LeaseId::NONE, previous, ended, watermark };
                self.write_new_lease(now, slot, retried.copied().unwrap_or(found));
            }
            (Goal::Acquire, Verdict::WaitUntil(until)) => self.wait_until(slot, until),
            (Goal::Acquire, Verdict::HeldBy(..)) if self.breaks(Bug::ReadsUnderValidLease) => {
                self.start_next_tick(now, slot);
            }
            (Goal::Acquire, Verdict::HeldBy(by, until)) => self.deny(slot, Denial::Held { by, until }),
            (Goal::Keep | Goal::GiveUp(_), Verdict::Own) if in_time => self.write_tenure(now, slot),
            (Goal::Keep, _) if !in_time => self.abandon(now, slot, Loss::Expired),
            (Goal::GiveUp(_), _) => self.finish_giving_up(now, slot, false),
            (Goal::Keep, _) => self.abandon(now, slot, Loss::Superseded),
            (Goal::Acquire, Verdict::Own) | (Goal::Rest(_), _) => self.forget(slot),
        }
    }

    fn write_new_lease(&mut self, now: WallTime, slot: u32, succession: Succession) {
        let (seed, expiry) = (self.seed, self.common.rules.term(now, None));
        let Some(claim) = self.claims.at_mut(slot) else { return };
        let cell = claim.cell;
        let Some(attempt) = claim.attempt.as_mut() else { return };
        // Unique without drawing numbers: no other attempt of anybody has this ballot.
        let id = LeaseId(mix(mix(seed ^ attempt.ballot.stamp.0) ^ cell.low ^ mix(cell.high)).max(1));
        let Succession { previous, ended, .. } = succession;
        attempt.follows = Some(Succession { lease: id, ..succession });
        self.start_write(now, slot, Lease { id, expiry, previous, ended, given: None });
    }

    /// Renews a tenure, or writes that it is given up.
    fn write_tenure(&mut self, now: WallTime, slot: u32) {
        let Some(claim) = self.claims.at(slot) else { return };
        let Some(tenure) = &claim.tenure else { return };
        let given = match &claim.goal {
            Goal::GiveUp(given) => Some(given.clone()),
            _ => None,
        };
        let expiry = match (&given, self.common.rules.report(now, tenure.until)) {
            // Giving up must not lengthen what others wait for.
            (Some(_), remaining) => remaining,
            (None, _) => self.common.rules.term(now, Some(tenure.until)),
        };
        let lease = Lease { id: tenure.lease, expiry, previous: tenure.previous, ended: tenure.ended, given };
        self.start_write(now, slot, lease);
    }

    fn start_write(&mut self, now: WallTime, slot: u32, lease: Lease) {
        let Some(claim) = self.claims.at_mut(slot) else { return };
        let (cell, handle) = (claim.cell, claim.view);
        let Some(attempt) = claim.attempt.as_mut() else { return };
        assert!(attempt.writing.is_none(), "a ballot never carries two values");
        (attempt.votes, attempt.refusals) = (Votes::default(), Votes::default());
        attempt.writing = Some(lease.clone());
        let ballot = attempt.ballot;
        let view = self.common.views.get(handle).id;
        self.ask_everyone(now, slot, &Message { cell, view, ballot, body: Body::Write(lease) });
    }

    /// A majority accepted.
    fn conclude_write(&mut self, now: WallTime, slot: u32, lease: &Lease) {
        let in_any_case = self.breaks(Bug::ClockAskedAtAcquireOnly);
        let late_timer = self.breaks(Bug::TimerFromLastVote);
        let Some(claim) = self.claims.at_mut(slot) else { return };
        let Some(attempt) = claim.attempt.take() else { return };
        let asked = if late_timer { now } else { attempt.asked };
        let until = self.common.rules.owned_until(asked, lease.expiry);
        match claim.goal {
            Goal::Acquire | Goal::Keep if now < until || in_any_case => {
                self.decide(now, slot, (&attempt, until), lease);
            }
            // Decided too late to count.
            Goal::Acquire | Goal::Keep => self.fail(now, slot, Failure::TooLate),
            Goal::GiveUp(_) => self.finish_giving_up(now, slot, true),
            Goal::Rest(_) => {}
        }
        if self.spare.len() < SPARE_MAX {
            self.spare.push(attempt);
        }
    }

    fn decide(&mut self, now: WallTime, slot: u32, (attempt, until): (&Attempt, WallTime), lease: &Lease) {
        let renew_at = self.renew_at(attempt);
        let Some(claim) = self.claims.at_mut(slot) else { return };
        let cell = claim.cell;
        let view = self.common.views.get(claim.view).id;
        let held_until = claim.tenure.as_ref().map(|tenure| tenure.until);
        // Time that stepped back must not shorten the lease: a majority voted for the longer one, too.
        let until = held_until.map_or(until, |held| held.max(until));
        (claim.goal, claim.failures, claim.offered_by) = (Goal::Keep, 0, None);
        let Lease { id, previous, ended, .. } = *lease;
        claim.tenure = Some(Tenure { lease: id, previous, ended, ballot: attempt.ballot, until, view });
        claim.wake_at = renew_at.min(until);
        claim.abandoned = None;
        let watermark = attempt.follows.and_then(|follows| follows.watermark);
        self.timers.set(slot, claim.wake_at);
        if held_until.is_some() {
            self.pace.give_back();
            self.common.counters.renewed += 1;
            self.events.push_back(Event::Renewed { cell, until });
            return;
        }
        self.common.counters.acquired += 1;
        self.events.push_back(Event::Acquired { cell, lease: id, until, previous, ended, watermark });
        let kind = TrailKind::Decided { until, voters: attempt.votes.mask() };
        self.common.trail.record(TrailEntry { cell, at: now, lease: id, owner: self.common.me, kind });
    }

    fn fail(&mut self, now: WallTime, slot: u32, failure: Failure) {
        match failure {
            Failure::Refused => self.common.counters.conflicts += 1,
            Failure::Unanswered | Failure::TooLate => self.common.counters.timeouts += 1,
        }
        let attempts_max = self.common.config.attempts_max;
        let backoff = self.backoff(slot);
        let Some(claim) = self.claims.at_mut(slot) else { return };
        if let Some(follows) = claim.attempt.take().and_then(|attempt| attempt.follows) {
            claim.abandoned = Some(Box::new(follows));
        }
        claim.failures = claim.failures.saturating_add(1);
        let exhausted = claim.failures >= attempts_max;
        if claim.goal == Goal::Keep {
            self.pace.give_back();
        }
        match claim.goal {
            Goal::Acquire if exhausted && failure == Failure::Refused => self.deny(slot, Denial::Contended),
            Goal::Acquire if exhausted => self.deny(slot, Denial::NoMajority),
            Goal::GiveUp(_) if exhausted => self.finish_giving_up(now, slot, false),
            _ => {
                let until = claim.tenure.as_ref().map_or(WallTime::MAX, |tenure| tenure.until);
                self.wait_until(slot, (now + backoff).min(until));
            }
        }
    }

    pub(crate) fn wait_until(&mut self, slot: u32, at: WallTime) {
        let Some(claim) = self.claims.at_mut(slot) else { return };
        (claim.attempt, claim.wake_at) = (None, at);
        self.timers.set(slot, at);
    }

    /// Only for the planted bug that competes with a valid lease.
    fn start_next_tick(&mut self, now: WallTime, slot: u32) {
        self.wait_until(slot, now + Span::from_micros(1));
    }

    pub(crate) fn deny(&mut self, slot: u32, why: Denial) {
        let Some(claim) = self.claims.at_mut(slot) else { return };
        self.common.counters.denied += 1;
        self.events.push_back(Event::Denied { cell: claim.cell, why });
        match why {
            Denial::Held { by, until } => {
                (claim.goal, claim.offered_by) = (Goal::Rest(Rest::Denied { by, until }), None);
                self.wait_until(slot, until);
            }
            _ => self.forget(slot),
        }
    }

    fn finish_giving_up(&mut self, now: WallTime, slot: u32, confirmed: bool) {
        let t_max = self.common.config.t_max;
        let Some(claim) = self.claims.at_mut(slot) else { return };
        let (cell, view) = (claim.cell, claim.view);
        let goal = std::mem::replace(&mut claim.goal, Goal::Rest(Rest::GaveUp));
        let ballot = claim.tenure.take().map_or(Ballot::ZERO, |tenure| tenure.ballot);
        self.common.counters.given_up += 1;
        self.events.push_back(Event::GivenUp { cell, confirmed });
        if confirmed
            && let Goal::GiveUp(given) = goal
            && let Some(successor) = given.successor
        {
            let view = self.common.views.get(view).id;
            self.send(successor, Message { cell, view, ballot, body: Body::Offer });
        }
        self.wait_until(slot, now + t_max);
    }

    fn forget(&mut self, slot: u32) {
        if let Some(claim) = self.claims.remove(slot) {
            self.common.views.release(claim.view);
        }
    }

    fn attempt_mut(&mut self, slot: u32) -> Option<&mut Attempt> {
        self.claims.at_mut(slot)?.attempt.as_deref_mut()
    }

    fn majority(&self, slot: u32) -> Option<usize> {
        Some(self.common.views.get(self.claims.at(slot)?.view).members.majority())
    }

    /// Counted from when the lease was asked for, because its expiry is. Leases that are due soon after one another are renewed by
    /// the same messages, and those of other nodes at other times.
    fn renew_at(&self, attempt: &Attempt) -> WallTime {
        let &crate::Config { renew_after, gather, .. } = &*self.common.config;
        let offset = self.draw(Stamp::default(), gather);
        (attempt.asked + renew_after - offset).rounded_down(gather) + offset
    }

    /// Doubles with every failure; half of it is jitter, so that rivals drift apart.
    fn backoff(&self, slot: u32) -> Span {
        let config = &self.common.config;
        let Some(claim) = self.claims.at(slot) else { return config.backoff_max };
        let doubled = config.backoff_min * (1 << claim.failures.min(16));
        let full = doubled.min(config.backoff_max);
        let jitter = self.draw(Stamp(self.stamp.0 ^ mix(claim.cell.low)), full / 2);
        full.saturating_sub(jitter)
    }

    /// A number from zero to `max`, decided by the seed.
    fn draw(&self, key: Stamp, max: Span) -> Span {
        let drawn = mix(self.seed ^ mix(key.0));
        Span::from_micros(drawn % max.as_micros().saturating_add(1).max(1))
    }

    /// Only for the planted bug: no read, and the ballot of the tenure again.
    fn renew_under_old_ballot(&mut self, now: WallTime, slot: u32) {
        if let Some(claim) = self.claims.at_mut(slot)
            && let (Some(tenure), Some(attempt)) = (&claim.tenure, &mut claim.attempt)
        {
            attempt.ballot = tenure.ballot;
            self.write_tenure(now, slot);
        }
    }
}
