//! What a shard does for locks as one of their members, whoever owns them.

use base::{Epoch, Incarnation, NodeId, ObjectId, Process, WallTime};
use lease::Algorithm;

use crate::keeper::{Kept, Refused};
use crate::lock::{Lock, Stage};
use crate::{Bug, PeerMessage, Record, Shard, ShardEvent, Token};

impl<A: Algorithm> Shard<A> {
    pub(crate) fn handle_peer_message(&mut self, now: WallTime, from: Process, message: PeerMessage) {
        match message {
            PeerMessage::Promise { cell, epoch, dead } => self.promise(now, (from, cell, epoch), &dead),
            PeerMessage::Write { cell, record } => self.keep(now, from, cell, record),
            PeerMessage::CaughtUp => self.keeper.caught_up(from),
            PeerMessage::Forgot { at } => self.peer_forgot(now, from, at),
            PeerMessage::Full(is_full) => self.peer_is_full(from.node, is_full),
            PeerMessage::Takes(takes) => self.peer_takes(from.node, takes),
            PeerMessage::Query { cell, epoch } => self.handle_query(from.node, cell, epoch),
            PeerMessage::Over { cell, epoch } => {
                let is_his = |record: Record| record.epoch == epoch && record.writer == from;
                if self.keeper.uncertain(cell).is_some_and(is_his) {
                    self.keeper.drop(cell);
                }
            }
            PeerMessage::Promised { .. } | PeerMessage::Written { .. } | PeerMessage::Refused { .. } => {
                self.handle_answer(now, from.node, message);
            }
        }
    }

    /// Promises, as far as this member can.
    pub(crate) fn promise(
        &mut self,
        now: WallTime,
        (from, cell, epoch): (Process, ObjectId, Epoch),
        dead: &[Process],
    ) {
        if !self.is_between_members(from, cell) || epoch.node != from.node || !is_usable(epoch) {
            return self
                .tell(ShardEvent::Misbehaved { peer: from, what: "asked for a promise it may not have" });
        }
        let any_run = self.config.breaks(Bug::PromiseToAnyRun);
        let run = if any_run { Incarnation(0) } else { from.incarnation };
        match self.keeper.promise(now, cell, (epoch, run)) {
            Ok(record) => {
                let forgets = !self.config.breaks(Bug::ForgetfulKnowsAll);
                let knows_all =
                    !forgets || dead.iter().all(|&process| self.keeper.knows_all_of(process, cell));
                self.keeper.numbers.take(epoch.number);
                let promised = PeerMessage::Promised { cell, epoch, record, knows_all };
                self.answer(now, (from, epoch.number), promised);
            }
            Err(why) => self.refuse(now, from, (cell, epoch), why),
        }
    }

    /// Keeps a record, unless it promised otherwise.
    pub(crate) fn keep(&mut self, now: WallTime, from: Process, cell: ObjectId, record: Record) {
        let Record { epoch, version, writer, .. } = record;
        let is_his = epoch.node == from.node && writer == from;
        if !self.is_between_members(from, cell) || !is_his || !is_usable(epoch) {
            return self.tell(ShardEvent::Misbehaved { peer: from, what: "wrote a record it may not write" });
        }
        let checks = !self.config.breaks(Bug::PromiseNotKept);
        match self.keeper.write(now, cell, record, checks) {
            Ok(()) => {
                self.keeper.numbers.take(epoch.number);
                let written = PeerMessage::Written { cell, epoch, version };
                self.answer(now, (from, epoch.number), written);
            }
            Err(why) => self.refuse(now, from, (cell, epoch), why),
        }
    }

    /// Drops records that nobody needs, and asks about those that somebody may.
    pub(crate) fn sweep_records(&mut self, now: WallTime, count: usize) {
        for (cell, kept) in self.keeper.sweep(count) {
            if self.locks.contains_key(&cell) || self.lease.hint(now, cell).is_some() {
                self.keeper.touch(now, cell);
                continue;
            }
            let idle = now.since(kept.touched);
            match kept.uncertain() {
                None if idle > self.config.lease.t_max => self.keeper.drop(cell),
                None => {}
                Some(record) => self.question(now, cell, &kept, record),
            }
        }
    }

    /// A record of a held lock whose lease nobody seems to have.
    fn question(&mut self, now: WallTime, cell: ObjectId, kept: &Kept, record: Record) {
        let idle = now.since(kept.touched);
        let Process { node, incarnation } = record.writer;
        let reported =
            self.deaths.get(&node).filter(|(dead, _)| dead.contains(record.writer)).map(|&(_, at)| at);
        let succeeded = self.peers.get(&node).is_some_and(|&present| present > incarnation);
        let present = self.peers.get(&node) == Some(&incarnation);
        if self.config.breaks(Bug::HeldRecordDropped) && idle > self.config.lease.t_max {
            return self.keeper.drop(cell);
        }
        // Twice, so that whoever takes the lock over has asked its members by then.
        let over_after = self.config.session_over_after() * 2;
        let is_over = node == self.me().node && incarnation < self.me().incarnation
            || reported.is_some_and(|at| now.since(at) > over_after)
            || succeeded;
        // A tenure of this very process that it no longer knows of.
        let is_own = record.writer == self.me();
        if is_over && idle > over_after || is_own && idle > self.config.lease.t_max {
            self.keeper.drop(cell);
        } else if present && idle > self.config.lease.t_max {
            self.keeper.touch(now, cell);
            self.post(node, PeerMessage::Query { cell, epoch: record.epoch });
        }
    }

    fn handle_query(&mut self, from: NodeId, cell: ObjectId, epoch: Epoch) {
        match self.locks.get(&cell) {
            // It will be told when that is known.
            Some(Lock { stage: Stage::Promising(_), .. }) => {}
            Some(Lock { record: Some(record), .. }) => {
                let record = *record;
                self.post(from, PeerMessage::Write { cell, record });
            }
            _ => self.post(from, PeerMessage::Over { cell, epoch }),
        }
    }

    fn refuse(&mut self, now: WallTime, from: Process, (cell, epoch): (ObjectId, Epoch), why: Refused) {
        let highest = match why {
            Refused::Promised(highest) => highest,
            Refused::Full => 0,
        };
        self.answer(now, (from, 0), PeerMessage::Refused { cell, epoch, highest });
    }

    fn is_between_members(&self, from: Process, cell: ObjectId) -> bool {
        let view = self.config.map.view(cell);
        view.members.contains(from.node) && view.members.contains(self.me().node)
    }
}

/// Whether tokens can be made of a number: the highest are refused, because nothing could be above them.
const fn is_usable(epoch: Epoch) -> bool {
    Token::new(epoch, 1).is_some()
}
