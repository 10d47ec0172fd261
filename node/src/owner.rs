//! What a shard does for locks as the owner of their leases: from a client's request to its token, and back.
//!
//! A tenure begins with promises of a majority, which bring the latest record. While a client may still believe in a
//! grant that this node did not confirm to it, nobody else is served (*grace*). Every grant is a record that a
//! majority keeps before the client hears of it, so whoever comes next knows whom to wait for.

use base::{Epoch, NodeId, ObjectId, Seq, Span, WallTime};
use lease::{Algorithm, Denial, Ended, Refusal, Watermark};

use crate::lock::{
    Asker, Before, Lock, Pending, Promises, Returning, Stage, Then, UNSETTLED, Waiter, is_settled,
};
use crate::steps::Step;
use crate::{
    Bug, Grant, Output, PeerMessage, Record, Reply, ReplyBody, SessionId, Shard, ShardEvent, Token,
    Unavailable,
};

/// How many may wait for one lock: more clients than a daemon has.
const WAITERS_MAX: usize = 1 << 14;

impl<A: Algorithm> Shard<A> {
    /// A client wants the lock.
    pub(crate) fn want_lock(&mut self, now: WallTime, cell: ObjectId, waiter: Waiter) {
        if self.is_crowded(cell) {
            let full = ReplyBody::Unavailable(Unavailable::Full);
            return self.reply(waiter.asker.session, waiter.asker.id, full);
        }
        if !self.open_lock(now, cell, waiter.asker) {
            return;
        }
        self.sessions.bind(waiter.asker.session, cell);
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        lock.waiters.push_back(waiter);
        self.serve(now, cell);
    }

    /// A client says that it holds the lock, and wants to keep it or to give it back.
    pub(crate) fn take_back(&mut self, now: WallTime, cell: ObjectId, returning: Returning) {
        let asker = returning.asker;
        if !returning.keeps && !self.locks.contains_key(&cell) {
            let grant = Grant { client: asker.client, token: returning.token };
            if self.keeper.record(cell).and_then(|record| record.grant) != Some(grant) {
                return self.reply(asker.session, asker.id, ReplyBody::Released);
            }
        }
        if self.is_crowded(cell) {
            return self.reply(asker.session, asker.id, ReplyBody::Unavailable(Unavailable::Full));
        }
        // What is given back here is given back, also to an owner that takes on nothing new.
        let is_here = self.locks.get(&cell).is_some_and(Lock::is_decided);
        if (returning.keeps || !is_here) && !self.open_lock(now, cell, asker) {
            return;
        }
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        match lock.stage {
            Stage::Serving | Stage::Grace(_) => self.judge_returning(now, cell, returning),
            Stage::Leasing | Stage::Promising(_) | Stage::GivingUp => lock.returning.push(returning),
        }
    }

    /// Whether as many wait for the lock, or for a judgement on it, as may.
    fn is_crowded(&self, cell: ObjectId) -> bool {
        self.locks.get(&cell).is_some_and(|lock| lock.waiters.len() + lock.returning.len() >= WAITERS_MAX)
    }

    /// A client no longer waits.
    pub(crate) fn cancel(&mut self, now: WallTime, cell: ObjectId, asker: Asker, waiting: crate::RequestId) {
        if let Some(lock) = self.locks.get_mut(&cell) {
            let is_it = |waiter: &Waiter| waiter.asker.session == asker.session && waiter.asker.id == waiting;
            lock.waiters.retain(|waiter| !is_it(waiter));
            if lock.holder != Some(asker.session) {
                self.sessions.unbind(asker.session, cell);
            }
            // Its grant is being written: nobody will hear of it.
            let pending =
                lock.write.take_if(|write| matches!(&write.then, Then::Grant(waiter) if is_it(waiter)));
            if pending.is_some() {
                (lock.grant, lock.settled) = (None, false);
                self.serve(now, cell);
            }
        }
        self.reply(asker.session, asker.id, ReplyBody::Cancelled);
    }

    /// The lease of a lock's cell is this node's.
    pub(crate) fn lock_acquired(
        &mut self,
        now: WallTime,
        cell: ObjectId,
        (ended, watermark): (Ended, Option<Watermark>),
    ) {
        if self.is_draining() || !self.locks.contains_key(&cell) {
            // Nobody wants it any longer, and nothing was granted.
            return self.steps.add(cell, Step::GiveUp { successor: None, watermark: UNSETTLED });
        }
        self.start_promising(now, cell, Before::Other { ended, watermark });
    }

    /// The lease is somebody else's, or nobody's to have.
    pub(crate) fn lock_denied(&mut self, now: WallTime, cell: ObjectId, why: Denial) {
        let body = match why {
            Denial::Held { by, .. } if by.node != self.me().node => ReplyBody::Elsewhere(by.node),
            Denial::Held { .. } | Denial::Contended => ReplyBody::Unavailable(Unavailable::Contended),
            Denial::NoMajority => ReplyBody::Unavailable(Unavailable::NoMajority),
            Denial::NotMember => ReplyBody::Unavailable(Unavailable::NotMember),
            Denial::StoodDown | Denial::ClockExhausted => ReplyBody::Unavailable(Unavailable::Clock),
        };
        self.not_leased(now, cell, body);
    }

    /// Tells whoever wanted the lease that this node does not have it.
    pub(crate) fn not_leased(&mut self, now: WallTime, cell: ObjectId, body: ReplyBody) {
        if self.leased.contains_key(&cell) {
            return self.lease_denied(cell, body);
        }
        if self.file_not_leased(now, cell, &body) {
            return;
        }
        if let Some(lock) = self.locks.remove(&cell) {
            self.send_away(cell, lock, body);
        }
    }

    /// The lease is given up. Whoever came meanwhile is served again.
    pub(crate) fn lock_given_up(&mut self, now: WallTime, cell: ObjectId) {
        let Some(lock) = self.locks.get(&cell) else { return };
        if !matches!(lock.stage, Stage::GivingUp) {
            return;
        }
        let Some(lock) = self.locks.remove(&cell) else { return };
        for waiter in lock.waiters {
            self.want_lock(now, cell, waiter);
        }
        for returning in lock.returning {
            self.take_back(now, cell, returning);
        }
    }

    /// The owner handed the lease to this node. If a client holds the lock, it will be here soon.
    pub(crate) fn lock_offered(&mut self, now: WallTime, cell: ObjectId) {
        let is_held = self.keeper.record(cell).is_some_and(|record| record.grant.is_some());
        if !is_held || self.unavailable(now).is_some() || self.locks.contains_key(&cell) {
            return;
        }
        self.locks.insert(cell, Lock::new(Stage::Leasing));
        self.steps.add(cell, Step::Acquire);
    }

    /// A member's answer to a promise or a write of this node's.
    pub(crate) fn handle_answer(&mut self, now: WallTime, from: NodeId, message: PeerMessage) {
        let (PeerMessage::Promised { cell, .. }
        | PeerMessage::Written { cell, .. }
        | PeerMessage::Refused { cell, .. }) = message
        else {
            return;
        };
        let view = self.config.map.view(cell);
        let Some(position) = view.members.position(from) else { return };
        let (majority, count) = (view.members.majority(), view.members.as_slice().len());
        let vote = 1u16 << position;
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        match message {
            PeerMessage::Promised { epoch, record, knows_all, .. } if epoch == lock.epoch => {
                let Stage::Promising(promises) = &mut lock.stage else { return };
                promises.granted |= vote;
                promises.knowing |= if knows_all { vote } else { 0 };
                let later = |a: Record, b: Record| if a.position() < b.position() { b } else { a };
                promises.latest = [promises.latest, record].into_iter().flatten().reduce(later);
                lock.latest = promises.latest;
                if votes(promises.granted) >= majority {
                    self.conclude_promise(now, cell, count + 1 - majority);
                }
            }
            PeerMessage::Written { epoch, version, .. } => {
                let is_latest = lock.record.is_some_and(|record| record.position() == (epoch, version));
                let Some(pending) = lock.write.as_mut().filter(|_| is_latest) else { return };
                pending.accepted |= vote;
                let enough = if self.config.breaks(Bug::GrantedBeforeMajority) { 1 } else { majority };
                if votes(pending.accepted) >= enough {
                    self.conclude_write(now, cell);
                }
            }
            PeerMessage::Refused { epoch, highest, .. } if epoch == lock.epoch => {
                self.take_refusal(now, cell, (vote, highest), count - majority);
            }
            _ => {}
        }
    }

    /// A member refused a promise or a record, because it promised `highest` to somebody else or because it is full.
    fn take_refusal(&mut self, now: WallTime, cell: ObjectId, (vote, highest): (u16, u64), spare: usize) {
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        if Token::new(Epoch { number: highest, node: lock.epoch.node }, 1).is_none() && highest > 0 {
            // No member can have promised that.
            return;
        }
        lock.highest = lock.highest.max(highest);
        let not_again = lock.write.is_none() && self.config.breaks(Bug::RestartedNotToldAgain);
        let refused = match (&mut lock.stage, &mut lock.write) {
            (Stage::Leasing | Stage::GivingUp, _) => return,
            (Stage::Serving | Stage::Grace(_), _) if not_again => return,
            (Stage::Promising(promises), _) => Some(&mut promises.refused),
            (_, write) => write.as_mut().map(|pending| &mut pending.refused),
        };
        if highest >= lock.epoch.number {
            // At once: the others may be gone, and then a majority takes this member, too. It may also have
            // restarted, and then it must know again who has the lock.
            return self.promise_anew(now, cell);
        }
        let Some(refused) = refused else { return };
        *refused |= vote;
        if votes(*refused) > spare {
            self.leave_full(cell);
        }
    }

    /// Tells a member that was just connected all that this node has its members keep.
    pub(crate) fn tell_all_to(&mut self, now: WallTime, node: NodeId) {
        let mut messages = Vec::new();
        for (&cell, lock) in &self.locks {
            if !self.config.map.view(cell).members.contains(node) {
                continue;
            }
            match (&lock.stage, lock.record) {
                (Stage::Promising(_), _) => {
                    let dead = self.recent_deaths_of(now, cell);
                    messages.push(PeerMessage::Promise { cell, epoch: lock.epoch, dead });
                }
                (Stage::Serving | Stage::Grace(_) | Stage::GivingUp, Some(record)) => {
                    messages.push(PeerMessage::Write { cell, record });
                }
                _ => {}
            }
        }
        messages.into_iter().for_each(|message| self.post(node, message));
    }

    /// Decides what has become due: a lease that no longer covers its client's session, or the end of a grace.
    pub(crate) fn check_due(&mut self, now: WallTime) {
        while let Some(&(at, cell)) = self.due.first() {
            if at > now {
                return;
            }
            self.due.pop_first();
            let Some(lock) = self.locks.get_mut(&cell) else { continue };
            match lock.stage {
                Stage::Grace(until) if until <= now => {
                    lock.stage = Stage::Serving;
                    let is_back =
                        lock.write.as_ref().is_some_and(|write| matches!(write.then, Then::Keep(_)));
                    if !is_back {
                        lock.settled = lock.grant.take().is_none() && lock.record.is_none();
                    }
                    self.serve(now, cell);
                }
                Stage::Serving | Stage::Promising(_) if lock.holder.is_some() => self.check_cover(now, cell),
                _ => {}
            }
        }
    }

    /// The session is over: what it held is free, and what it waited for is somebody else's turn.
    pub(crate) fn end_session(&mut self, now: WallTime, id: SessionId) {
        if let Some(frame) = self.sessions.last_frame(id) {
            self.hand_out(Output::Client { session: id, frame });
        }
        let Some(session) = self.sessions.remove(id) else { return };
        let until = session.heard() + self.config.session_over_after();
        self.session_closes(now, (id, session.client), until);
        self.hand_out(Output::Close { session: id });
        if !session.cells.is_empty() {
            self.tell(ShardEvent::SessionOver { session: id, cells: session.cells.len() });
        }
        for cell in session.cells {
            if self.leased.get(&cell).is_some_and(|leased| leased.session == id) {
                self.drop_lease(cell);
            }
            let Some(lock) = self.locks.get_mut(&cell) else { continue };
            lock.waiters.retain(|waiter| waiter.asker.session != id);
            if lock.holder == Some(id) {
                (lock.holder, lock.grant, lock.settled) = (None, None, false);
            }
            self.serve(now, cell);
        }
    }

    /// Gives a lock's lease up because this node is to lead nothing.
    pub(crate) fn leave_lock(&mut self, now: WallTime, cell: ObjectId) {
        let view = self.config.map.view(cell).into_owned();
        let successor = self.next_member(view.members.as_slice());
        let why = self.unavailable(now).unwrap_or(Unavailable::Stopping);
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let is_kept = lock.holder.is_some();
        if let (Some(session), Some(grant)) = (lock.holder.take(), lock.grant) {
            let dropped = Reply::Dropped { cell, token: grant.token, successor };
            self.sessions.tell(session, dropped, None);
        }
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let watermark = lock.watermark();
        let was_serving = matches!(lock.stage, Stage::Serving | Stage::Grace(_) | Stage::Promising(_));
        let was_giving_up = matches!(lock.stage, Stage::GivingUp);
        let gone = std::mem::replace(lock, Lock::new(Stage::GivingUp));
        lock.record = gone.record;
        self.send_away(cell, gone, ReplyBody::Unavailable(why));
        if was_serving {
            let successor = successor.filter(|_| is_kept);
            self.steps.add(cell, Step::GiveUp { successor, watermark });
        } else if !was_giving_up {
            self.locks.remove(&cell);
        }
    }

    /// Tells everybody who holds or wants the lock that this node no longer answers for it.
    pub(crate) fn detach_all(&mut self, cell: ObjectId, why: Unavailable) {
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        if let (Some(session), Some(grant)) = (lock.holder.take(), lock.grant) {
            let dropped = Reply::Dropped { cell, token: grant.token, successor: None };
            self.sessions.tell(session, dropped, None);
            self.sessions.unbind(session, cell);
        }
        let mut gone = Lock::new(Stage::GivingUp);
        gone.waiters = std::mem::take(&mut lock.waiters);
        gone.returning = std::mem::take(&mut lock.returning);
        gone.write = lock.write.take();
        self.send_away(cell, gone, ReplyBody::Unavailable(why));
    }

    /// Makes sure that this node owns the lock or is about to; otherwise says why not.
    fn open_lock(&mut self, now: WallTime, cell: ObjectId, asker: Asker) -> bool {
        let refused = match self.unavailable(now) {
            Some(why) => Some(ReplyBody::Unavailable(why)),
            None if self.locks.contains_key(&cell) => None,
            None if self.locks.len() >= self.config.locks_max => {
                Some(ReplyBody::Unavailable(Unavailable::Full))
            }
            None => {
                self.locks.insert(cell, Lock::new(Stage::Leasing));
                self.steps.add(cell, Step::Acquire);
                None
            }
        };
        match refused {
            Some(body) => {
                self.reply(asker.session, asker.id, body);
                false
            }
            None => true,
        }
    }

    /// A client's answer to a lease that this node may not even ask for.
    pub(crate) fn refusal(&self, why: Refusal) -> ReplyBody {
        ReplyBody::Unavailable(match why {
            Refusal::Held { by, .. } if by.node != self.me().node => return ReplyBody::Elsewhere(by.node),
            Refusal::Held { .. } | Refusal::GivingUp | Refusal::NotHeld => Unavailable::Contended,
            Refusal::Quarantined { .. } => Unavailable::Quarantined,
            Refusal::StoodDown => Unavailable::Clock,
            Refusal::UnknownCell | Refusal::NotMember => Unavailable::NotMember,
            Refusal::Full => Unavailable::Full,
        })
    }

    fn start_promising(&mut self, now: WallTime, cell: ObjectId, before: Before) {
        let me = self.me();
        let promised = self.keeper.promised(cell);
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let number = promised.max(lock.highest).max(lock.epoch.number).saturating_add(1);
        let epoch = Epoch { number, node: me.node };
        if Token::new(epoch, 1).is_none() {
            // Numbers are used up; to ask for more would only come back here.
            return self.leave_full(cell);
        }
        // The majority that promises may be another one than that which keeps what this process wrote last.
        let latest = lock.latest;
        (lock.epoch, lock.highest, lock.record, lock.write) = (epoch, number, None, None);
        lock.stage = Stage::Promising(Box::new(Promises { before, latest, ..Promises::default() }));
        let dead = self.recent_deaths_of(now, cell);
        for &member in self.config.map.clone().view(cell).members.as_slice() {
            if member == me.node {
                self.promise(now, (me, cell, epoch), &dead);
            } else {
                self.post(member, PeerMessage::Promise { cell, epoch, dead: dead.clone() });
            }
        }
        self.raise_ceiling();
    }

    /// So many members are full that no majority would keep a record.
    fn leave_full(&mut self, cell: ObjectId) {
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let watermark = lock.watermark();
        let gone = std::mem::replace(lock, Lock::new(Stage::GivingUp));
        self.send_away(cell, gone, ReplyBody::Unavailable(Unavailable::Full));
        self.steps.add(cell, Step::GiveUp { successor: None, watermark });
    }

    /// A member promised a higher number to somebody else, or this tenure has no number left.
    fn promise_anew(&mut self, now: WallTime, cell: ObjectId) {
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let before = match &lock.stage {
            Stage::Promising(promises) => promises.before,
            _ => Before::Own,
        };
        // Whoever was about to get the lock is first again.
        match lock.write.take().map(|pending| pending.then) {
            Some(Then::Grant(waiter)) => {
                lock.grant = None;
                lock.waiters.push_front(waiter);
            }
            Some(Then::Keep(asker)) => {
                if let Some(Grant { token, .. }) = lock.grant {
                    lock.returning.push(Returning { asker, token, keeps: true });
                }
            }
            Some(Then::Nothing) | None => {}
        }
        if self.lease.holds(now, cell) {
            self.start_promising(now, cell, before);
        }
    }

    /// A majority promised: decide who has the lock.
    fn conclude_promise(&mut self, now: WallTime, cell: ObjectId, knowing_needed: usize) {
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let Stage::Promising(promises) = std::mem::replace(&mut lock.stage, Stage::Serving) else { return };
        let latest = promises.latest;
        let found = latest.and_then(|record| record.grant);
        let wait_until = match promises.before {
            Before::Own if latest.is_none_or(|record| record.writer == self.lease.me()) => {
                return self.go_on(now, cell);
            }
            Before::Own => now + self.config.session_over_after(),
            Before::Other { ended, watermark } => {
                let knows = votes(promises.knowing) >= knowing_needed;
                let settled = is_settled(watermark, latest);
                self.wait_until(now, ended, (found.is_none() && knows, found.is_none() && settled))
            }
        };
        // Somebody has written since although this process never gave the lease up: a clock was wrong.
        self.detach(cell);
        let waits = wait_until > now;
        if let Before::Other { ended, .. } = promises.before
            && (waits || found.is_some())
        {
            let wait_until = waits.then_some(wait_until);
            self.tell(ShardEvent::TakenOver { cell, ended, grant: found, wait_until });
        }
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        lock.grant = found;
        lock.settled = found.is_none() && (!waits || self.config.breaks(Bug::UnsettledGivenUpAsSettled));
        lock.stage = Stage::Grace(wait_until);
        let returning = std::mem::take(&mut lock.returning);
        self.due.insert((wait_until, cell));
        returning.into_iter().for_each(|returning| self.judge_returning(now, cell, returning));
        // First, so that nobody is told to be in line for a lock that is free.
        self.check_due(now);
        self.serve(now, cell);
    }

    /// Until when a client may believe in a grant of the tenure before.
    fn wait_until(&self, now: WallTime, ended: Ended, (known_free, settled_free): (bool, bool)) -> WallTime {
        let over_after = self.config.session_over_after();
        match ended {
            _ if self.config.breaks(Bug::NoWaitAfterDeath) => now,
            Ended::Died if known_free => now,
            Ended::Died => self.deaths_matter_until().max(now),
            Ended::Released | Ended::HandedOver if settled_free => now,
            Ended::Released | Ended::HandedOver => now + over_after,
            // An owner stops confirming sessions long before its lease runs out.
            Ended::Expired | Ended::Unknown => now,
        }
    }

    /// The same process goes on under a higher number.
    fn go_on(&mut self, now: WallTime, cell: ObjectId) {
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let returning = std::mem::take(&mut lock.returning);
        lock.settled = false;
        let (held, attached) = (lock.grant.is_some(), lock.holder.is_some());
        if held && !attached {
            let until = now + self.config.session_over_after();
            lock.stage = Stage::Grace(until);
            self.due.insert((until, cell));
        } else if held {
            self.write(now, cell, Then::Nothing);
        }
        returning.into_iter().for_each(|returning| self.judge_returning(now, cell, returning));
        self.serve(now, cell);
    }

    fn judge_returning(&mut self, now: WallTime, cell: ObjectId, returning: Returning) {
        let Returning { asker, token, keeps } = returning;
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let is_his = lock.is_granted(asker.client, token);
        if is_his && lock.write.as_ref().is_some_and(|pending| matches!(pending.then, Then::Grant(_))) {
            // The grant itself is still under way: nobody can have heard of it.
            return self.reply(asker.session, asker.id, ReplyBody::Gone);
        }
        match (is_his, keeps) {
            (false, true) => self.reply(asker.session, asker.id, ReplyBody::Gone),
            (false, false) => self.reply(asker.session, asker.id, ReplyBody::Released),
            (true, true) => {
                if let Some(before) = lock.holder.take() {
                    self.sessions.unbind(before, cell);
                }
                self.write(now, cell, Then::Keep(asker));
            }
            (true, false) => {
                if let Some(holder) = lock.holder.take() {
                    self.sessions.unbind(holder, cell);
                }
                (lock.grant, lock.settled, lock.stage, lock.write) = (None, false, Stage::Serving, None);
                self.reply(asker.session, asker.id, ReplyBody::Released);
                self.serve(now, cell);
            }
        }
    }

    /// Gives the lock to the next in line if it is free, and the lease up if nobody wants it.
    fn serve(&mut self, now: WallTime, cell: ObjectId) {
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        if !matches!(lock.stage, Stage::Serving | Stage::Grace(_)) {
            return;
        }
        let is_free = lock.grant.is_none() && matches!(lock.stage, Stage::Serving);
        let is_writing = lock.write.as_ref().is_some_and(|pending| !matches!(pending.then, Then::Nothing));
        if !is_free || is_writing {
            return self.tell_waiters(cell);
        }
        while let Some(waiter) = lock.waiters.pop_front() {
            if self.sessions.get(waiter.asker.session).is_some() {
                return self.grant(now, cell, waiter);
            }
        }
        if !lock.settled && lock.write.is_none() {
            self.write(now, cell, Then::Nothing);
        } else if lock.settled {
            self.wind_up(cell);
        }
    }

    fn grant(&mut self, now: WallTime, cell: ObjectId, waiter: Waiter) {
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let version = lock.record.map_or(0, |record| record.version) + 1;
        let Some(token) = Token::new(lock.epoch, version) else {
            lock.waiters.push_front(waiter);
            return self.start_promising(now, cell, Before::Own);
        };
        lock.grant = Some(Grant { client: waiter.asker.client, token });
        self.write(now, cell, Then::Grant(waiter));
        self.tell_waiters(cell);
    }

    /// Has the members keep who has the lock now.
    fn write(&mut self, now: WallTime, cell: ObjectId, then: Then) {
        let me = self.me();
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let version = lock.record.map_or(0, |record| record.version) + 1;
        let record = Record { epoch: lock.epoch, version, writer: me, grant: lock.grant };
        (lock.record, lock.latest) = (Some(record), Some(record));
        lock.settled = false;
        lock.write = Some(Pending { accepted: 0, refused: 0, then });
        for &member in self.config.map.clone().view(cell).members.as_slice() {
            if member == me.node {
                self.keep(now, me, cell, record);
            } else {
                self.post(member, PeerMessage::Write { cell, record });
            }
        }
    }

    /// A majority keeps the record.
    fn conclude_write(&mut self, now: WallTime, cell: ObjectId) {
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let Some(pending) = lock.write.take() else { return };
        lock.settled = true;
        let (asker, is_new) = match pending.then {
            Then::Nothing => return self.serve(now, cell),
            Then::Grant(waiter) => (waiter.asker, true),
            Then::Keep(asker) => (asker, false),
        };
        let Some(Grant { token, .. }) = lock.grant else { return };
        let is_there = self.sessions.get(asker.session).is_some();
        let until = self.lease.valid_until(now, cell).filter(|&until| until > now + self.config.cover());
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let Some(until) = until.filter(|_| is_there) else {
            return self.grant_in_vain(now, cell, (asker, is_new));
        };
        (lock.holder, lock.stage) = (Some(asker.session), Stage::Serving);
        self.due.insert((until - self.config.cover(), cell));
        self.sessions.bind(asker.session, cell);
        let body = if is_new { ReplyBody::Granted(token) } else { ReplyBody::Kept };
        self.reply_under(cell, (asker.session, asker.id), body);
        self.serve(now, cell);
    }

    /// The client is gone, or the lease does not last long enough to say so.
    fn grant_in_vain(&mut self, now: WallTime, cell: ObjectId, (asker, is_new): (Asker, bool)) {
        self.reply(asker.session, asker.id, ReplyBody::Unavailable(Unavailable::NoMajority));
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        if is_new {
            (lock.grant, lock.settled) = (None, false);
            self.serve(now, cell);
        } else {
            let until = now + self.config.session_over_after();
            lock.stage = Stage::Grace(until);
            self.due.insert((until, cell));
        }
    }

    fn check_cover(&mut self, now: WallTime, cell: ObjectId) {
        let cover = self.config.cover();
        let until = self.lease.valid_until(now, cell).unwrap_or(now);
        if until > now + cover || self.config.breaks(Bug::AckWithoutCover) {
            let at = (until.max(now + cover + Span::from_millis(1))) - cover;
            self.due.insert((at, cell));
            return;
        }
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        if matches!(lock.stage, Stage::Serving) {
            let until = now + self.config.session_over_after();
            lock.stage = Stage::Grace(until);
            self.due.insert((until, cell));
        }
        self.detach(cell);
    }

    /// Tells the client that is attached, if any, that it has to attach anew.
    fn detach(&mut self, cell: ObjectId) {
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let (Some(session), Some(Grant { token, .. })) = (lock.holder.take(), lock.grant) else { return };
        self.sessions.tell(session, Reply::Dropped { cell, token, successor: None }, None);
        self.sessions.unbind(session, cell);
        self.tell(ShardEvent::Detached { cell });
    }

    /// Gives the lease of a free lock up: whoever wants it next may ask any member.
    fn wind_up(&mut self, cell: ObjectId) {
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let watermark = lock.watermark();
        lock.stage = Stage::GivingUp;
        self.steps.add(cell, Step::GiveUp { successor: None, watermark });
    }

    /// Says to those in line that somebody else has the lock.
    fn tell_waiters(&mut self, cell: ObjectId) {
        let Some(lock) = self.locks.get_mut(&cell) else { return };
        let mut told = Vec::new();
        lock.waiters.retain_mut(|waiter| {
            if !waiter.told {
                waiter.told = true;
                told.push((waiter.asker, waiter.waits));
            }
            waiter.waits
        });
        for (asker, waits) in told {
            let body = if waits { ReplyBody::Queued } else { ReplyBody::Busy };
            self.reply(asker.session, asker.id, body);
        }
    }

    /// Answers everybody who waits for a lock that this node has nothing to do with any longer.
    fn send_away(&mut self, cell: ObjectId, lock: Lock, body: ReplyBody) {
        let pending = match lock.write.map(|pending| pending.then) {
            Some(Then::Grant(waiter)) => Some(waiter.asker),
            Some(Then::Keep(asker)) => Some(asker),
            Some(Then::Nothing) | None => None,
        };
        let waiting = lock.waiters.iter().map(|waiter| waiter.asker);
        let returning = lock.returning.iter().map(|returning| returning.asker);
        let all: Vec<Asker> = waiting.chain(returning).chain(pending).collect();
        for asker in all {
            self.sessions.unbind(asker.session, cell);
            self.reply(asker.session, asker.id, body.clone());
        }
    }
}

const fn votes(mask: u16) -> usize {
    mask.count_ones() as usize
}

const _: () = assert!(base::MEMBERS_MAX <= u16::BITS as usize);

/// A tenure that wrote nothing has sequence 1 in its watermark.
const _: () = assert!(matches!(UNSETTLED.seq, Seq(0)));
