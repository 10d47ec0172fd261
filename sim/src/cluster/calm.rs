//! The calm after the storm: everything is healed, and from then on everything must come within its bound.
//!
//! First everybody who waits gets the lock. Then nothing may be left behind: no lock, no record, no lease. Then every
//! daemon must serve. At last single mishaps are staged, each with a holder and somebody who waits.

use base::{NodeId, Span};
use client::core::Ticket;
use lease::Algorithm;
use node::lock_cell;

use super::files::DiskInput;
use super::links::REDIAL_MAX;
use super::machine::Doing;
use super::world::{Input, World};
use crate::checkers::evidence::Machines;
use crate::checkers::leftovers::{self, Left};
use crate::checkers::promptness::Expected;
use crate::{FaultKind, Violation};

/// Expectations are looked at this often.
pub(super) const STEP: Span = Span::from_millis(1);
/// What a failover may take beside its waits: turns of messages, a round that meets a higher ballot, back-offs.
const SLACK: Span = Span::from_millis(200);
/// What attaching anew may take beside turns of messages.
const REATTACH: Span = Span::from_millis(150);
/// A notice of a staged death arrives within this.
const NOTICE_DELAY: Span = Span::from_millis(5);
/// Names tried until one has the daemon as its preferred member.
const PROBES_MAX: u32 = 1_000;

/// Somebody who takes part in a staged mishap.
#[derive(Clone, Copy)]
struct Actor {
    client: usize,
    ticket: Ticket,
}

impl<A: Algorithm> World<'_, A> {
    pub(super) fn calm(&mut self) -> Result<(), Violation> {
        self.heal()?;
        self.await_recovery()?;
        self.settle_files()?;
        self.check_nothing_is_left()?;
        self.is_directed = true;
        (0..self.machines()).try_for_each(|machine| self.start(machine))?;
        // A client that starts only now asks the first daemon that it is connected with, which need not be the one that is to serve.
        self.run_until(self.now + self.slack())?;
        (0..self.daemons.len()).try_for_each(|daemon| self.must_serve(daemon))?;
        let mut mishaps = vec![Expected::SilentClient];
        if self.spare_left() > 0 {
            use Expected::{DeathNoticed, DeathUnnoticed, HandedOver, Reattached};
            mishaps.extend([Reattached, HandedOver, DeathNoticed, DeathUnnoticed]);
        }
        mishaps.into_iter().try_for_each(|mishap| self.stage(mishap))
    }

    fn heal(&mut self) -> Result<(), Violation> {
        self.note(None, format_args!("everything is healed"));
        self.is_calm = true;
        self.mishaps.note(self.now, Machines::ALL, "everything is healed");
        self.network.heal();
        self.flush_links();
        for daemon in 0..self.daemons.len() {
            self.daemons[daemon].disk_stalls_until = self.now;
            self.daemons[daemon].disk_full_until = self.now;
            self.push_input(self.now, daemon, Input::Disk(DiskInput::Space));
            self.put_right(daemon);
            self.turn_back(daemon);
            self.undrain(daemon)?;
            if self.daemons[daemon].shard.as_ref().is_some_and(node::Shard::is_draining) {
                self.crash(daemon);
            }
        }
        (0..self.daemons.len()).for_each(|daemon| self.put_back(daemon));
        self.heal_disks();
        for client in 0..self.clients.len() {
            if self.clients[client].files.is_over {
                self.crash_client(self.daemons.len() + client);
            }
        }
        for machine in 0..self.machines() {
            self.put_right(machine);
            self.running_mut(machine).freezes_next = false;
            let life = self.running(machine).life;
            self.resume(machine, life)?;
            self.start(machine)?;
        }
        self.strike_lost()?;
        while self.daemons.iter().any(|machine| machine.clock.is_astray()) {
            self.run_until(self.now + STEP * 20)?;
        }
        while self.clocks_matter() {
            self.run_until(self.now + STEP * 20)?;
        }
        Ok(())
    }

    /// What a failover may take beside its waits.
    pub(super) fn slack(&self) -> Span {
        SLACK + self.plan.network.latency_max * 20 + self.plan.disk_max * 4
    }

    fn session_over(&self) -> Span {
        self.plan.shard.session_over_after().stretched(self.plan.shard.lease.rate_error_ppm)
    }

    /// How long a daemon that has just started may not vote.
    pub(super) fn quarantine(&self) -> Span {
        let lease = &self.plan.shard.lease;
        (lease.t_max.stretched(lease.rate_error_ppm) + lease.epsilon * 3).stretched(lease.rate_error_ppm)
    }

    /// Everything that whoever waits may have to wait for, one after the other.
    fn recovery_bound(&self) -> Span {
        let lease = &self.plan.shard.lease;
        let expiry = (lease.t_max + lease.epsilon * 2).stretched(lease.rate_error_ppm);
        let users = u64::from(self.plan.clients * self.plan.users);
        let turns = (self.slack() + Span::from_millis(100)) * users;
        let connected = self.plan.silence_max * 2;
        connected + self.quarantine() + self.plan.network.late_max + expiry + self.session_over() * 2 + turns
    }

    fn await_recovery(&mut self) -> Result<(), Violation> {
        let (healed, bound) = (self.now, self.recovery_bound());
        for client in 0..self.clients.len() {
            for user in 0..self.clients[client].users.len() {
                let whom = self.clients[client].users[user];
                if let Doing::Wanting { lock, .. } = whom.doing {
                    let cell = self.cells[lock];
                    let id = self.checkers.promptness.expect(healed, Expected::Recovery, Some(cell), bound);
                    self.awaited.insert((client, user), id);
                }
                self.user_acts(client, user, whom.step)?;
            }
        }
        self.await_writers(healed, bound + self.file_recovery_bound());
        self.await_all()?;
        self.summary.recovered_in = Some(self.now.since(healed));
        Ok(())
    }

    /// Runs until nobody is awaited any longer.
    pub(super) fn await_all(&mut self) -> Result<(), Violation> {
        while !self.awaited.is_empty() || !self.awaited_files.is_empty() {
            self.run_until(self.now + STEP)?;
            if self.is_traced() && self.checkers.promptness.check(self.now).is_err() {
                self.note_awaited();
            }
            self.checkers.promptness.check(self.now)?;
        }
        Ok(())
    }

    fn note_awaited(&mut self) {
        let state = |&(client, user): &(usize, usize)| {
            let machine = &self.clients[client];
            let doing = machine.users[user].doing;
            let ticket = machine.users[user].ticket();
            let until = ticket.and_then(|ticket| machine.core.as_ref()?.held_until(ticket));
            (client, user, doing, until)
        };
        let awaited: Vec<_> = self.awaited.keys().map(state).collect();
        self.note(None, format_args!("awaited: {awaited:?}"));
    }

    /// Once nobody wants anything any more, daemons forget what there was.
    fn check_nothing_is_left(&mut self) -> Result<(), Violation> {
        self.leave_volumes()?;
        let lease = &self.plan.shard.lease;
        let quiet = self.now;
        let settled = self.session_over() * 6 + self.quarantine() * 2 + lease.t_max * 4;
        let forgotten = self.forgotten_within();
        // A volume that somebody has in a cache is idle later.
        let idle = self.plan.shard.file_idle * if self.plan.volumes.keeps() { 6 } else { 2 };
        self.run_until(self.now + settled + self.plan.network.late_max + idle + forgotten)?;
        for machine in &self.daemons {
            let Some(shard) = &machine.shard else { continue };
            // The record of a lock stays while its daemon is away, and until somebody wants the lock if it stays away.
            let records = if self.stores_lost() == 0 { shard.records() } else { 0 };
            let left = Left {
                node: machine.id,
                leases: shard.leases_held(),
                records,
                claims: shard.leases().claims(),
                is_trusted: shard.is_trusted(),
            };
            leftovers::check((quiet, self.now), left)?;
        }
        self.wrong_clocks.may_share_locks = false;
        self.check_contents()
    }

    fn must_serve(&mut self, daemon: usize) -> Result<(), Violation> {
        if self.is_lost(daemon) {
            return Ok(());
        }
        let id = self.daemons[daemon].id;
        let name = (0..PROBES_MAX).map(|number| lock_cell(&format!("probe {number}")));
        let map = self.plan.shard.map.clone();
        let Some(cell) = name.into_iter().find(|&cell| map.members(cell).first() == Some(&id)) else {
            return Ok(());
        };
        let lock = self.cells.len();
        self.cells.push(cell);
        let asked = self.now;
        let actor = self.hold(0, lock, Expected::Service)?;
        let by = self.answering(actor);
        self.checkers.promptness.served((asked, self.now), cell, (id, by))?;
        self.let_go(actor)
    }

    /// A client wants a lock, and has its ticket at once.
    fn ask(
        &mut self,
        client: usize,
        lock: usize,
        (expected, bound): (Expected, Span),
    ) -> Result<Actor, Violation> {
        let cell = Some(self.cells[lock]);
        let id = self.checkers.promptness.expect(self.now, expected, cell, bound);
        self.awaited.insert((client, 0), id);
        self.want(client, 0, (lock, true))?;
        let ticket = self.clients[client].users[0].ticket();
        Ok(Actor { client, ticket: ticket.expect("it was wanted just now") })
    }

    fn hold(&mut self, client: usize, lock: usize, expected: Expected) -> Result<Actor, Violation> {
        let actor = self.ask(client, lock, (expected, self.slack() * 2))?;
        self.await_all()?;
        Ok(actor)
    }

    fn let_go(&mut self, actor: Actor) -> Result<(), Violation> {
        self.give_back(actor.client, 0, actor.ticket)?;
        self.run_until(self.now + self.slack())
    }

    fn answering(&self, actor: Actor) -> Option<NodeId> {
        self.clients[actor.client].core.as_ref()?.answering(actor.ticket)
    }

    /// One holder, one who waits, and something that happens to the holder or its daemon.
    fn stage(&mut self, mishap: Expected) -> Result<(), Violation> {
        let lock = self.dice.users.index(self.plan.locks as usize);
        let first = self.dice.users.index(self.clients.len());
        let second = (first + 1) % self.clients.len();
        self.note(Some(self.cells[lock]), format_args!("staged: {mishap:?}"));
        let holder = self.hold(first, lock, Expected::Service)?;
        let waiter = self.ask(second, lock, (mishap, Span::MAX))?;
        self.run_until(self.now + self.slack())?;
        let waiting = self.awaited.remove(&(second, 0));
        waiting.into_iter().for_each(|id| self.checkers.promptness.withdraw(id));
        let Some(daemon) = self.answering(holder).map(|node| node.0 as usize) else { return Ok(()) };
        match mishap {
            Expected::Reattached | Expected::HandedOver => {
                self.move_holder(mishap, (holder, lock), daemon)?
            }
            _ => self.end_holder(mishap, (holder, lock), (waiter, daemon))?,
        }
        if self.clients[holder.client].core.is_some() {
            let id = self.checkers.promptness.expect(self.now, Expected::GivenBack, None, self.slack());
            self.awaited.insert((waiter.client, 0), id);
            self.give_back(holder.client, 0, holder.ticket)?;
        }
        self.await_all()?;
        self.let_go(waiter)?;
        (0..self.machines()).try_for_each(|machine| self.start(machine))?;
        // Whoever was connected with a process that ended may notice that only now.
        let connected = self.plan.silence_max + REDIAL_MAX * 2;
        self.run_until(self.now + (self.quarantine() * 2).max(connected))
    }

    /// The holder's daemon dies or drains, and the holder keeps its lock.
    fn move_holder(
        &mut self,
        mishap: Expected,
        (holder, lock): (Actor, usize),
        daemon: usize,
    ) -> Result<(), Violation> {
        let cell = self.cells[lock];
        let who = self.clients[holder.client].id(self.daemons.len() + holder.client);
        let turns = self.plan.network.latency_max * 20 + self.plan.disk_max * 4;
        let id = self.checkers.promptness.expect(self.now, mishap, Some(cell), REATTACH + turns);
        self.checkers.promptness.must_keep(self.now, (who, cell), mishap);
        // All that the sessions before cover.
        let session = Span::from_millis(self.plan.shard.map.settings().session_ms.into());
        let covered = self.clients[holder.client].reading(self.now) + session;
        if mishap == Expected::HandedOver {
            self.summary.faults.count(FaultKind::Drain);
            self.call(daemon, |shard, now| shard.drain(now))?;
        } else {
            self.summary.faults.count(FaultKind::Crash);
            let dead = self.crash(daemon);
            self.bury(dead, NOTICE_DELAY);
        }
        let is_attached = |world: &Self| {
            let core = world.clients[holder.client].core.as_ref();
            core.and_then(|core| core.held_until(holder.ticket)).is_some_and(|until| until > covered)
        };
        while !is_attached(self) {
            self.run_until(self.now + STEP)?;
            self.checkers.promptness.check(self.now)?;
        }
        self.checkers.promptness.met(self.now, id);
        if mishap == Expected::HandedOver {
            let dead = self.await_drained(daemon)?;
            self.bury(dead, NOTICE_DELAY);
        }
        // It stays so.
        self.run_until(self.now + self.plan.shard.lease.t_max * 2)?;
        self.checkers.promptness.may_lose(who, cell);
        Ok(())
    }

    fn await_drained(&mut self, daemon: usize) -> Result<base::Process, Violation> {
        let id = self.checkers.promptness.expect(self.now, Expected::Drained, None, self.slack() * 2);
        while !self.daemons[daemon].shard.as_ref().is_none_or(node::Shard::is_drained) {
            self.run_until(self.now + STEP)?;
            self.checkers.promptness.check(self.now)?;
        }
        self.checkers.promptness.met(self.now, id);
        Ok(self.crash(daemon))
    }

    /// The holder dies, perhaps with its daemon, and whoever waits is next.
    fn end_holder(
        &mut self,
        mishap: Expected,
        (holder, lock): (Actor, usize),
        (waiter, daemon): (Actor, usize),
    ) -> Result<(), Violation> {
        let lease = &self.plan.shard.lease;
        let noticed = self.session_over() + self.slack();
        let unnoticed = (lease.t_max + lease.epsilon).stretched(lease.rate_error_ppm) + noticed;
        let bound = if mishap == Expected::DeathUnnoticed { unnoticed } else { noticed };
        let id = self.checkers.promptness.expect(self.now, mishap, Some(self.cells[lock]), bound);
        self.awaited.insert((waiter.client, 0), id);
        self.summary.faults.count(FaultKind::ClientCrash);
        self.crash_client(self.daemons.len() + holder.client);
        if mishap != Expected::SilentClient {
            self.summary.faults.count(FaultKind::Crash);
            let dead = self.crash(daemon);
            if mishap == Expected::DeathNoticed {
                self.bury(dead, NOTICE_DELAY);
            }
        }
        self.await_all()
    }
}
