//! The users: they want cells, act under them, give them up, hand them over, lose interest and come back.

use base::{Epoch, NodeId, Process, Seq, Span, WallTime};
use lease::{Algorithm, Denial, Event, Loss, Refusal, Watermark};

use super::world::{Task, World};
use crate::checkers::renewal::Moment;
use crate::plan::{around, span_between};
use crate::{TrueTime, Violation};

/// In how many of a cell's steps its users lose interest.
const STEPS_OF_INTEREST: u64 = 6;
/// Who was told to ask again waits up to this part of `t_max` longer than it was told.
const ASK_AGAIN_PART: u64 = 40;

impl<A: Algorithm> World<'_, A> {
    pub(super) fn schedule_users(&mut self) {
        for cell in 0..self.cells.len() {
            let idle = self.idle_time();
            let at = self.now + span_between(Span::ZERO, idle, &mut self.dice.users);
            self.queue.push(at, Task::Step { cell });
        }
    }

    /// How long a cell is left alone, so that about as many as planned are in use at a time.
    fn idle_time(&self) -> Span {
        let (cells, active) = (u64::from(self.plan.cells), u64::from(self.plan.active));
        self.plan.think * STEPS_OF_INTEREST * (cells - active) / active
    }

    /// The users of a cell do something, or start or stop using it.
    pub(super) fn step(&mut self, cell: usize) -> Result<(), Violation> {
        if self.is_calm {
            return Ok(());
        }
        let stops = self.cells[cell].in_use && self.dice.users.chance(1, STEPS_OF_INTEREST);
        let pause = if stops { self.idle_time() } else { self.plan.think };
        let next = self.now + around(pause, &mut self.dice.users);
        self.queue.push(next, Task::Step { cell });
        if stops {
            return self.stop_using(cell);
        }
        self.cells[cell].in_use = true;
        match self.owner_of(cell) {
            Some(owner) => self.use_cell(owner, cell),
            None => {
                for _ in 0..self.dice.users.between(1, 3) {
                    let node = self.random_member(cell);
                    self.want(node, cell)?;
                }
                Ok(())
            }
        }
    }

    fn stop_using(&mut self, cell: usize) -> Result<(), Violation> {
        (self.cells[cell].in_use, self.cells[cell].wanted) = (false, 0);
        match self.owner_of(cell) {
            Some(owner) => self.give_up(owner, cell, None),
            None => Ok(()),
        }
    }

    fn use_cell(&mut self, owner: usize, cell: usize) -> Result<(), Violation> {
        match self.dice.users.below(10) {
            0..4 => {
                self.begin_operation(owner, cell);
                Ok(())
            }
            4..6 => self.give_up(owner, cell, None),
            6..8 => {
                let successor = self.random_member(cell);
                self.give_up(owner, cell, Some(successor))
            }
            _ => {
                let rival = self.random_member(cell);
                self.want(rival, cell)
            }
        }
    }

    fn random_member(&mut self, cell: usize) -> usize {
        let members = self.cells[cell].views.last().map_or(&[][..], |view| view.members.as_slice());
        self.dice.users.pick(members).map_or(0, |node| node.0 as usize)
    }

    /// The running node that may act as the cell's owner.
    pub(super) fn owner_of(&self, cell: usize) -> Option<usize> {
        let id = self.cells[cell].id;
        self.hosts.iter().position(|host| host.runs() && host.holds(self.now, id))
    }

    pub(super) fn want(&mut self, node: usize, cell: usize) -> Result<(), Violation> {
        if self.hosts[node].node.is_none() {
            return Ok(());
        }
        self.cells[cell].wanted |= 1 << node;
        self.ask(node, cell)
    }

    pub(super) fn wants(&self, node: usize, cell: usize) -> bool {
        self.cells[cell].wanted & 1 << node != 0
    }

    pub(super) fn ask_again(&mut self, node: usize, cell: usize) -> Result<(), Violation> {
        self.cells[cell].asking &= !(1 << node);
        if self.wants(node, cell) { self.ask(node, cell) } else { Ok(()) }
    }

    fn ask(&mut self, node: usize, cell: usize) -> Result<(), Violation> {
        let id = self.cells[cell].id;
        if self.trace.is_on() {
            self.note(Some(id), format_args!("n{node} asks for the cell"));
        }
        match self.call(node, |process, now, known| process.acquire(now, id, known))? {
            None => self.ask_later(node, cell, None),
            Some(Ok(())) => {}
            Some(Err(Refusal::Held { until, .. } | Refusal::Quarantined { until })) => {
                self.ask_later(node, cell, Some(until));
            }
            Some(Err(Refusal::StoodDown | Refusal::GivingUp)) => self.ask_later(node, cell, None),
            Some(Err(_)) => self.cells[cell].wanted &= !(1 << node),
        }
        Ok(())
    }

    /// Lets a node ask again a little after `until`, or after now.
    fn ask_later(&mut self, node: usize, cell: usize, until: Option<WallTime>) {
        if self.cells[cell].asking & 1 << node != 0 {
            return;
        }
        self.cells[cell].asking |= 1 << node;
        let told = until.map_or(self.now, |until| self.hosts[node].clock.when(self.now, until));
        let patience = self.config.t_max / ASK_AGAIN_PART;
        let at = told + span_between(Span::from_micros(1), patience, &mut self.dice.users);
        self.queue.push(at, Task::Ask { node, cell });
    }

    pub(super) fn give_up(
        &mut self,
        owner: usize,
        cell: usize,
        successor: Option<usize>,
    ) -> Result<(), Violation> {
        let id = self.cells[cell].id;
        self.cells[cell].wanted &= !(1 << owner);
        let watermark = watermark(self.now);
        let successor = successor.and_then(|node| self.hosts.get(node)).map(|host| host.id);
        self.note(Some(id), format_args!("n{owner} gives the cell up to {successor:?}"));
        let refused = self.call(owner, |process, now, _| match successor {
            Some(successor) => process.hand_over(now, id, successor, watermark),
            None => process.release(now, id, watermark),
        })?;
        if refused == Some(Ok(())) {
            match successor {
                Some(_) => self.summary.handed_over += 1,
                None => self.summary.released += 1,
            }
        }
        Ok(())
    }

    pub(super) fn give_back(&mut self, node: usize, cell: usize) -> Result<(), Violation> {
        if self.is_calm || self.wants(node, cell) {
            self.cells[cell].wanted |= 1 << node;
            return Ok(());
        }
        self.give_up(node, cell, None)
    }

    /// An operation is admitted if the node owns the cell, and answered only if it still does when it is done.
    fn begin_operation(&mut self, node: usize, cell: usize) {
        let host = &self.hosts[node];
        if !host.runs() || !host.holds(self.now, self.cells[cell].id) {
            return;
        }
        let by = host.process();
        let duration = span_between(Span::ZERO, self.config.t_max / 2, &mut self.dice.users);
        self.queue.push(self.now + duration, Task::Answer { by, cell });
    }

    pub(super) fn answer(&mut self, by: Process, cell: usize) -> Result<(), Violation> {
        let host = &self.hosts[by.node.0 as usize];
        if host.process() != by || host.node.is_none() {
            return Ok(());
        }
        if host.paused {
            // It is answered, if at all, after the process goes on.
            self.queue.push(self.now + Span::from_millis(20), Task::Answer { by, cell });
            return Ok(());
        }
        if !host.holds(self.now, self.cells[cell].id) {
            return Ok(());
        }
        self.summary.acts += 1;
        self.look_at_act(cell, by)
    }

    pub(super) fn react(&mut self, node: usize, reading: WallTime, event: Event) -> Result<(), Violation> {
        let owner = self.hosts[node].process();
        let moment = Moment { at: self.now, reading, owner };
        match event {
            Event::Acquired { cell: id, until, .. } => {
                self.checkers.renewal.acquired(moment, id, until)?;
                self.index(id).map_or(Ok(()), |cell| self.acquired(node, cell))
            }
            Event::Renewed { cell: id, until } => {
                self.summary.renewed += 1;
                self.checkers.renewal.renewed(moment, id, until)?;
                self.index(id).map_or(Ok(()), |cell| self.look_at(cell))
            }
            Event::Lost { cell: id, why, .. } => {
                self.checkers.renewal.ended(id, owner);
                self.index(id).map_or(Ok(()), |cell| self.lost(node, cell, why))
            }
            Event::GivenUp { cell, .. } => {
                self.checkers.renewal.ended(cell, owner);
                Ok(())
            }
            Event::Denied { cell: id, why } => {
                self.hosts[node].offers.remove(&id);
                self.checkers.renewal.denied(self.now, id, owner)?;
                if let Some(cell) = self.index(id) {
                    self.denied(node, cell, why);
                }
                Ok(())
            }
            Event::Offered { cell: id, by } => {
                self.hosts[node].offers.insert(id, by);
                if let Some(cell) = self.index(id) {
                    self.cells[cell].wanted |= 1 << node;
                    self.queue.push(self.now, Task::Ask { node, cell });
                }
                Ok(())
            }
            Event::WrongView { cell: id, .. } | Event::ViewBehind { cell: id, .. } => {
                self.catch_up(node, id);
                Ok(())
            }
            Event::SettingsDiffer { .. } => Ok(()),
        }
    }

    fn acquired(&mut self, node: usize, cell: usize) -> Result<(), Violation> {
        self.summary.acquired += 1;
        self.look_at(cell)?;
        self.checkers.liveness.acquired(self.now, self.cells[cell].id, self.hosts[node].id);
        if !self.wants(node, cell) {
            self.queue.push(self.now, Task::GiveBack { node, cell });
        }
        self.begin_operation(node, cell);
        Ok(())
    }

    fn lost(&mut self, node: usize, cell: usize, why: Loss) -> Result<(), Violation> {
        self.summary.lost += 1;
        let (id, process) = (self.cells[cell].id, self.hosts[node].process());
        if why == Loss::Superseded {
            return Err(self.checkers.exclusion.superseded(self.now, id, process));
        }
        self.checkers.liveness.lost(self.now, id, format!("{process:?}, {why:?}"))?;
        if why == Loss::NotMember {
            self.cells[cell].wanted &= !(1 << node);
        } else if self.wants(node, cell) {
            self.ask_later(node, cell, None);
        }
        Ok(())
    }

    fn denied(&mut self, node: usize, cell: usize, why: Denial) {
        match why {
            Denial::Held { until, .. } if self.wants(node, cell) => self.ask_later(node, cell, Some(until)),
            Denial::NotMember => self.cells[cell].wanted &= !(1 << node),
            _ if self.wants(node, cell) => self.ask_later(node, cell, None),
            _ => {}
        }
    }
}

/// The end of a log that grows with time.
pub(super) const fn watermark(now: TrueTime) -> Watermark {
    Watermark { epoch: Epoch { number: 1, node: NodeId(0) }, seq: Seq(now.as_micros()) }
}
