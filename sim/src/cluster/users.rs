//! The users: each wants a lock now and then, waits for it or not, keeps it for a while, and gives it back.

use base::Span;
use client::core::{Event, Ticket};
use lease::Algorithm;

use super::machine::Doing;
use super::world::{Input, Task, World};
use crate::Violation;
use crate::plan::{around, span_between};

/// How long a lock is kept once everything is healed.
const HOLD_IN_CALM: Span = Span::from_millis(50);

impl<A: Algorithm> World<'_, A> {
    /// The users of a client that has just started.
    pub(super) fn wake_users(&mut self, client: usize) {
        for user in 0..self.clients[client].users.len() {
            self.remind(client, user, self.plan.think);
        }
    }

    /// The user does something next after `mean`, unless something happens to it before.
    fn remind(&mut self, client: usize, user: usize, mean: Span) {
        let step = self.clients[client].users[user].step;
        let at = self.now + around(mean, &mut self.dice.users);
        self.push_input(at, self.daemons.len() + client, Input::User(user, step));
    }

    pub(super) fn user_acts(&mut self, client: usize, user: usize, step: u64) -> Result<(), Violation> {
        let whom = self.clients[client].users[user];
        if whom.step != step || self.is_directed {
            return Ok(());
        }
        match whom.doing {
            Doing::Thinking if self.is_calm => Ok(()),
            // Everybody may wait as long as it takes.
            Doing::Wanting { .. } if self.is_calm => Ok(()),
            Doing::Thinking => {
                let lock = self.dice.users.index(self.plan.locks as usize);
                let waits = self.dice.users.chance(3, 4);
                self.want(client, user, (lock, waits))?;
                let patience = self.plan.shard.lease.t_max * self.dice.users.between(1, 4);
                self.remind(client, user, patience);
                Ok(())
            }
            Doing::Wanting { ticket, .. } | Doing::Holding { ticket, .. } => {
                self.give_back(client, user, ticket)?;
                self.remind(client, user, self.plan.think);
                Ok(())
            }
        }
    }

    fn now_does(&mut self, client: usize, user: usize, doing: Doing) {
        let whom = &mut self.clients[client].users[user];
        (whom.doing, whom.step) = (doing, whom.step + 1);
    }

    pub(super) fn want(
        &mut self,
        client: usize,
        user: usize,
        (lock, waits): (usize, bool),
    ) -> Result<(), Violation> {
        let reading = self.clients[client].reading(self.now);
        let cell = self.cells[lock];
        let Some(core) = self.clients[client].core.as_mut() else { return Ok(()) };
        let ticket = core.acquire(reading, cell, waits);
        self.note(Some(cell), format_args!("user {user} of client {client} wants the lock: {ticket:?}"));
        self.summary.wanted += 1;
        self.now_does(client, user, Doing::Wanting { ticket, lock });
        self.clients[client].users[user].before = self.checkers.locks.highest(cell);
        self.drain_client(client)
    }

    pub(super) fn give_back(&mut self, client: usize, user: usize, ticket: Ticket) -> Result<(), Violation> {
        self.note(None, format_args!("user {user} of client {client} gives {ticket:?} back"));
        self.now_does(client, user, Doing::Thinking);
        self.call_client(client, |core, now| core.give_back(now, ticket))
    }

    pub(super) fn hear_client(&mut self, client: usize, event: Event) -> Result<(), Violation> {
        if self.is_traced() {
            let reading = self.clients[client].reading(self.now);
            self.note(None, format_args!("client {client} at {reading:?}: {event:?}"));
        }
        match event {
            Event::Granted { ticket, .. } => self.granted(client, ticket),
            Event::Lost { ticket } => {
                self.summary.lost += 1;
                self.lost(client, ticket)
            }
            Event::Busy { ticket } => {
                self.summary.busy += 1;
                self.ended(client, ticket);
                Ok(())
            }
            Event::Unavailable { ticket, .. } => {
                self.summary.unavailable += 1;
                self.ended(client, ticket);
                Ok(())
            }
            Event::AtRisk { .. } | Event::Safe { .. } | Event::GivenBack { .. } => Ok(()),
        }
    }

    fn granted(&mut self, client: usize, ticket: Ticket) -> Result<(), Violation> {
        let machine = &self.clients[client];
        let Some(user) = machine.user_of(ticket) else { return Ok(()) };
        let Some(lock) = machine.users[user].lock() else { return Ok(()) };
        self.now_does(client, user, Doing::Holding { ticket, lock });
        self.summary.granted += 1;
        self.met(client, user);
        let who = self.clients[client].id(self.daemons.len() + client);
        if let Some((_, token)) = self.clients[client].belief(self.now, user) {
            self.note(Some(self.cells[lock]), format_args!("{who:?} holds the lock by {token:?}"));
            let (cell, before) = (self.cells[lock], self.clients[client].users[user].before);
            if self.wrong_clocks.may_share_locks {
                self.checkers.locks.granted_late(self.now, cell, (who, token), before)?;
            } else {
                self.checkers.locks.granted(self.now, cell, (who, token))?;
            }
            self.watch_holders(lock)?;
        }
        self.betray(client, ticket);
        let longest = if self.is_calm { HOLD_IN_CALM } else { self.plan.hold_max };
        let mean = span_between(Span::ZERO, longest, &mut self.dice.users);
        self.remind(client, user, mean);
        Ok(())
    }

    /// The daemon that gave the lock dies, before anybody else has heard of it.
    fn betray(&mut self, client: usize, ticket: Ticket) {
        let by = self.clients[client].core.as_ref().and_then(|core| core.answering(ticket));
        let percent = if self.is_calm { 0 } else { self.plan.treacherous_percent };
        if let Some(by) = by
            && self.dice.faults.chance(percent, 100)
        {
            let daemon = by.0 as usize;
            let life = self.daemons[daemon].running.life;
            let at = self.at_once_or_after(self.plan.network.latency_max);
            self.queue.push(at, Task::Betray(daemon, life));
        }
    }

    fn lost(&mut self, client: usize, ticket: Ticket) -> Result<(), Violation> {
        let machine = &self.clients[client];
        let lock = machine.user_of(ticket).and_then(|user| machine.users[user].lock());
        let who = machine.id(self.daemons.len() + client);
        self.ended(client, ticket);
        match lock {
            Some(lock) => self.checkers.promptness.lost(self.now, who, self.cells[lock]),
            None => Ok(()),
        }
    }

    fn ended(&mut self, client: usize, ticket: Ticket) {
        if let Some(user) = self.clients[client].user_of(ticket) {
            self.now_does(client, user, Doing::Thinking);
            self.met(client, user);
            self.remind(client, user, self.plan.think);
        }
    }

    /// Whoever was expected to get an answer has one.
    fn met(&mut self, client: usize, user: usize) {
        if let Some(id) = self.awaited.remove(&(client, user)) {
            self.checkers.promptness.met(self.now, id);
        }
    }
}
