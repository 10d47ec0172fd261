//! Clocks that do what nobody expects of a clock: they leap, stand still, or run much too fast or too slow.
//!
//! While one of them is wrong, and for some time after it was put right, leases may overlap. What may go wrong then stands in
//! `docs/semantics.md`, and the checkers ask for everything else:
//!
//! - a file may be read or looked at as it once was: each answer is still that of some committed state, and changes have an
//!   order as ever;
//! - a lock may have two holders, and a session may end while its client counts on it. That may go on until the locks of
//!   that time were given back.

use std::collections::BTreeMap;

use base::{ObjectId, Random, Span, WallTime};
use lease::{Algorithm, Config};

use super::world::{Task, World};
use crate::clock::draw_rate;
use crate::plan::span_between;
use crate::{FaultKind, TrueTime, Violation};

const PPM: i32 = 1_000_000;
/// Clocks that stand still, creep, or run away, in millionths.
const RATES_PPM: &[i32] = &[-PPM, -PPM, -900_000, -400_000, 300_000, 1_000_000, 1_500_000];

/// Which clocks are wrong, and what may come of it.
#[derive(Debug, Default)]
pub(super) struct WrongClocks {
    /// Whose clock is wrong since when, and what it showed then.
    since: BTreeMap<usize, (TrueTime, WallTime)>,
    /// When whose clock was last put right.
    righted: BTreeMap<usize, TrueTime>,
    /// Until when it matters what wrong clocks said of leases.
    matter_until: TrueTime,
    /// Whether leases may overlap.
    pub(super) is_loose: bool,
    /// Whether a lock may have two holders.
    pub(super) may_share_locks: bool,
}

/// What a clock does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wrong {
    Leaps(i64),
    RunsAt(i32),
}

impl WrongClocks {
    pub(super) fn is_wrong(&self, machine: usize) -> bool {
        self.since.contains_key(&machine)
    }

    /// Since when the clock of a machine is right, if it is.
    pub(super) fn right_since(&self, machine: usize) -> Option<TrueTime> {
        let righted = self.righted.get(&machine).copied().unwrap_or(TrueTime::ZERO);
        (!self.is_wrong(machine)).then_some(righted)
    }
}

impl Wrong {
    fn draw(lease: &Config, random: &mut Random) -> Self {
        if random.chance(1, 2) {
            return Self::RunsAt(RATES_PPM[random.index(RATES_PPM.len())]);
        }
        let longest = [lease.epsilon * 3, lease.t_max / 2, lease.t_max * 2, lease.t_max * 8];
        let by = span_between(lease.epsilon, longest[random.index(longest.len())], random);
        let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        Self::Leaps(if random.chance(1, 2) { by } else { -by })
    }

    /// A clock that lags: by it a lease lasts longer than by others.
    fn draw_lagging(lease: &Config, random: &mut Random) -> Self {
        match Self::draw(lease, random) {
            Self::Leaps(by) => Self::Leaps(-by.saturating_abs()),
            Self::RunsAt(ppm) if ppm > 0 => Self::RunsAt(-PPM),
            lagging @ Self::RunsAt(_) => lagging,
        }
    }

    /// The clock of a client never goes back.
    const fn of_client(self) -> Self {
        match self {
            Self::Leaps(by) => Self::Leaps(by.saturating_abs()),
            Self::RunsAt(ppm) => Self::RunsAt(ppm),
        }
    }
}

impl<A: Algorithm> World<'_, A> {
    /// The clock of a daemon goes wrong, or those of two, or that of a client. Or that of a primary lags, and nobody tells it.
    pub(super) fn put_clocks_wrong(&mut self, daemon: usize, client: usize) {
        let lease = &self.plan.shard.lease;
        let (t_max, random) = (lease.t_max, &mut self.dice.clocks);
        let how = Wrong::draw(lease, random);
        let lasts = span_between(t_max / 20, t_max * 4, random);
        match random.below(8) {
            0 => self.put_clock_wrong(client, how.of_client(), lasts),
            1 | 2 => {
                self.put_clock_wrong(daemon, how, lasts);
                let random = &mut self.dice.clocks;
                let how = if random.chance(1, 2) { how } else { Wrong::draw(lease, random) };
                let lasts = span_between(t_max / 20, t_max * 4, random);
                self.put_clock_wrong((daemon + 1) % self.daemons.len(), how, lasts);
            }
            3..6 => {
                let how = Wrong::draw_lagging(lease, random);
                let lasts = span_between(t_max * 2, t_max * 4, random);
                let leads = |daemon: &usize| self.files.iter().any(|&file| self.leads(*daemon, file));
                let primary = (0..self.daemons.len()).find(leads).unwrap_or(daemon);
                self.put_clock_wrong(primary, how, lasts);
                self.keep_in_the_dark(primary, lasts);
            }
            _ => self.put_clock_wrong(daemon, how, lasts),
        }
    }

    fn leads(&self, daemon: usize, file: ObjectId) -> bool {
        self.daemons[daemon].owner(self.now, file).is_some()
    }

    fn put_clock_wrong(&mut self, machine: usize, how: Wrong, lasts: Span) {
        if self.wrong_clocks.is_wrong(machine) {
            return;
        }
        self.summary.faults.count(FaultKind::ClockWrong);
        self.note(None, format_args!("the clock of {machine} is wrong for {lasts}: {how:?}"));
        self.mishap(machine, "its clock goes wrong");
        let (now, clock) = (self.now, self.clock_of(machine));
        let showed = clock.reading(now);
        match how {
            Wrong::Leaps(by) => clock.leap(now, by),
            Wrong::RunsAt(ppm) => clock.stray(now, ppm),
        }
        self.wrong_clocks.since.insert(machine, (now, showed));
        self.wrong_clocks.may_share_locks = true;
        let is_daemon = self.client_on(machine).is_none();
        if is_daemon && !std::mem::replace(&mut self.wrong_clocks.is_loose, true) {
            self.checkers.histories.loosen();
            self.checkers.trees.loosen();
        }
        self.queue.push(now + lasts, Task::PutRight(machine));
        self.wake_soon(machine);
    }

    /// No daemon can tell it what time it is. Some clients still reach it, others look for another.
    fn keep_in_the_dark(&mut self, daemon: usize, lasts: Span) {
        let (count, all) = (self.daemons.len(), self.machines());
        let is_cut = |other: &usize| *other != daemon && (*other < count || self.dice.clocks.chance(1, 2));
        let others: Vec<usize> = (0..all).filter(is_cut).collect();
        let links: Vec<(usize, usize)> =
            others.into_iter().flat_map(|other| [(daemon, other), (other, daemon)]).collect();
        self.note(None, format_args!("no daemon reaches n{daemon}"));
        self.cut_for(lasts, links);
    }

    /// A wrong clock is put right while its process runs, or its process is started anew.
    pub(super) fn put_right_somehow(&mut self, machine: usize) {
        if self.wrong_clocks.is_wrong(machine) {
            if self.client_on(machine).is_none() && self.is_up(machine) && self.dice.clocks.chance(1, 3) {
                self.crash_some_daemon(machine);
            } else {
                self.put_right(machine);
            }
        }
    }

    pub(super) fn put_right(&mut self, machine: usize) {
        let Some((since, showed)) = self.wrong_clocks.since.remove(&machine) else { return };
        let ppm = draw_rate(self.plan.clocks.rate_ppm_max, &mut self.dice.clocks);
        let now = self.now;
        self.wrong_clocks.righted.insert(machine, now);
        let shows = self.clock_of(machine).reading(now);
        let should = showed + now.since(since);
        let off = shows.since(should).max(should.since(shows));
        self.note(None, format_args!("the clock of {machine} was off by {off} and is put right"));
        match self.client_on(machine) {
            Some(client) => self.clients[client].clock.set_rate(now, ppm),
            None => {
                self.daemons[machine].clock.set_rate(now, ppm);
                self.daemons[machine].clock.step(now, &mut self.dice.clocks);
                let matters = self.matters_for(off);
                self.wrong_clocks.matter_until = self.wrong_clocks.matter_until.max(now + matters);
            }
        }
        self.wake_soon(machine);
    }

    /// For how long it matters what a clock said that was off by so much. Leases were given for that much longer, and a restart
    /// may have taken its votes' leases to be over.
    fn matters_for(&self, off: Span) -> Span {
        let lease = &self.plan.shard.lease;
        off.stretched(lease.rate_error_ppm) + self.quarantine() * 2
    }

    /// Whether leases may overlap because of wrong clocks, or a daemon waits for a time that it has used.
    pub(super) fn clocks_matter(&self) -> bool {
        let waits = |daemon: usize| !self.is_up(daemon) && !self.is_lost(daemon);
        self.wrong_clocks.is_loose || self.wrong_clocks.may_share_locks && (0..self.daemons.len()).any(waits)
    }

    /// Wrong clocks are forgotten when nothing of what they did matters any more.
    pub(super) fn look_at_clocks(&mut self) {
        let wrong = &mut self.wrong_clocks;
        let is_over = wrong.since.keys().all(|&machine| machine >= self.daemons.len());
        if wrong.is_loose && is_over && self.now >= wrong.matter_until {
            wrong.is_loose = false;
            self.checkers.histories.tighten();
            self.checkers.trees.tighten();
            self.note(None, format_args!("clocks are what they should be"));
        }
    }

    /// A start takes the time from elsewhere, and waits until that has passed the mark on disk. One whose clock is wrong may find
    /// nobody who says so. Returns whether it may begin.
    pub(super) fn find_the_time(&mut self, daemon: usize) -> bool {
        if self.wrong_clocks.is_wrong(daemon) {
            if self.dice.clocks.chance(1, 2) {
                let lasts = self.while_it_lasts();
                self.queue.push(self.now + lasts, Task::PutRight(daemon));
                return true;
            }
            self.put_right(daemon);
        }
        self.daemons[daemon].clock.step(self.now, &mut self.dice.clocks);
        !self.daemons[daemon].is_ahead(self.now)
    }

    /// Nobody else holds a lock, unless clocks were wrong.
    pub(super) fn watch_holders(&mut self, lock: usize) -> Result<(), Violation> {
        let holders = self.holders(lock);
        if self.wrong_clocks.may_share_locks {
            self.summary.locks_shared += u64::from(holders.len() > 1);
            return Ok(());
        }
        self.checkers.locks.observe(self.now, self.cells[lock], &holders)
    }

    fn clock_of(&mut self, machine: usize) -> &mut crate::clock::Clock {
        match self.client_on(machine) {
            None => &mut self.daemons[machine].clock,
            Some(client) => &mut self.clients[client].clock,
        }
    }
}
