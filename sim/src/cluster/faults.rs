//! The faults: what strikes, whom, and for how long.

use base::{Dead, Process, Span, StartId};
use client::core::Core;
use lease::Algorithm;

use super::files::DiskInput;
use super::world::{Input, Task, World};
use crate::checkers::evidence::Machines;
use crate::clock::draw_rate;
use crate::faults::draw_duration;
use crate::plan::{rate_edge_ppm, span_between};
use crate::{FaultKind, TrueTime, Violation};

/// A supervisor tells each daemon of a death this often, while it does not get through.
const NOTICE_TRIES: u32 = 40;
/// How long it waits between two tries.
const NOTICE_EVERY: Span = Span::from_millis(50);
/// A draining daemon is stopped after this many looks.
const DRAIN_STEP: Span = Span::from_millis(20);

impl<A: Algorithm> World<'_, A> {
    pub(super) fn schedule_faults(&mut self) {
        for (at, kind) in self.plan.faults.first_strikes(self.now, &mut self.dice.faults) {
            self.queue.push(at, Task::Fault(kind));
        }
    }

    /// A fault of this kind happens, and the next one is scheduled.
    pub(super) fn strike(&mut self, kind: FaultKind) -> Result<(), Violation> {
        if self.is_calm {
            return Ok(());
        }
        if let Some(next) = self.plan.faults.next_strike(kind, self.now, &mut self.dice.faults) {
            self.queue.push(next, Task::Fault(kind));
        }
        // Where a node is missing already, hardly anything would ever be done.
        if self.stores_lost() > 0 && self.dice.faults.chance(4, 5) {
            return Ok(());
        }
        let daemon = self.dice.faults.index(self.daemons.len());
        let client = self.daemons.len() + self.dice.faults.index(self.clients.len());
        match kind {
            FaultKind::Crash => self.crash_some_daemon(daemon),
            FaultKind::CrashAll => {
                self.summary.faults.count(kind);
                (0..self.daemons.len()).for_each(|daemon| self.crash_some_daemon(daemon));
            }
            FaultKind::ClientCrash => self.crash_some_client(client),
            FaultKind::Pause => self.pause(daemon, kind),
            FaultKind::ClientPause => self.pause(client, kind),
            FaultKind::Partition => self.partition(),
            FaultKind::OneWay => self.cut_one_way(),
            FaultKind::Clog => self.clog(),
            FaultKind::Break => return self.break_some_connection(),
            FaultKind::ClockRate => self.change_rate(),
            FaultKind::ClockStray => self.lead_clock_astray(daemon),
            FaultKind::ClockWrong => self.put_clocks_wrong(daemon, client),
            FaultKind::NoticeReplay => self.replay_notice(daemon),
            FaultKind::Drain => return self.drain(daemon),
            FaultKind::DiskStall => self.stall_disk(daemon),
            FaultKind::DiskFull => self.fill_disk(daemon),
            FaultKind::PowerCut | FaultKind::PowerCutAll if !self.survives_power_cuts() => {}
            FaultKind::PowerCut => self.cut_some_power(daemon),
            FaultKind::PowerCutAll => {
                let all: Vec<usize> = (0..self.daemons.len()).collect();
                self.cut_power(&all, kind);
            }
            FaultKind::ReadError
            | FaultKind::WriteError
            | FaultKind::SyncError
            | FaultKind::BitRot
            | FaultKind::Misdirected => self.harm_disk(daemon, kind),
            FaultKind::ContentRot => return self.rot_some_parts(daemon),
            FaultKind::DirectoryEmptied | FaultKind::DirectoryRestored => self.change_directory(daemon, kind),
            FaultKind::CopyDies => self.copy_dies(daemon),
            FaultKind::ViewChange => return self.order_some_change(),
            // These happen to messages, notices follow crashes, and others only to leases by themselves.
            _ => {}
        }
        Ok(())
    }

    pub(super) fn while_it_lasts(&mut self) -> Span {
        draw_duration(self.plan.shard.lease.t_max, &mut self.dice.faults)
    }

    pub(super) fn crash_some_daemon(&mut self, daemon: usize) {
        if self.daemons[daemon].shard.is_none() {
            return;
        }
        self.summary.faults.count(FaultKind::Crash);
        let dead = self.crash(daemon);
        let down = self.while_it_lasts();
        self.queue.push(self.now + down, Task::Start(daemon));
        if self.dice.faults.chance(self.plan.witnessed_percent, 100) {
            let prompt = self.dice.faults.chance(3, 4);
            let delay = if prompt { Span::from_millis(5) } else { self.while_it_lasts() };
            self.bury(dead, delay);
        }
    }

    /// Ends a daemon's process without a trace but on disk.
    pub(super) fn crash(&mut self, daemon: usize) -> Process {
        let dead = self.daemons[daemon].process();
        self.note(None, format_args!("{dead:?} crashes"));
        self.mishap(daemon, "its process ends");
        self.leave_ghosts(daemon);
        self.count_limits(daemon);
        self.daemons[daemon].end(self.now);
        self.abandon_connections(daemon);
        dead
    }

    /// A supervisor tells everybody, each within `delay`, and some twice.
    pub(super) fn bury(&mut self, dead: Process, delay: Span) {
        self.summary.faults.count(FaultKind::Notice);
        let line =
            self.daemons[dead.node.0 as usize].births.last().map_or(StartId::default(), |birth| birth.line);
        self.buried.push((dead, line));
        self.lay_ghosts(Dead { node: dead.node, first: line.incarnation, last: dead.incarnation });
        self.spread_notice((dead, line), delay);
    }

    /// Somebody tells all daemons of a death, each within `delay`, and some twice.
    pub(super) fn spread_notice(&mut self, (dead, line): (Process, StartId), delay: Span) {
        for to in 0..self.daemons.len() {
            for _ in 0..self.dice.faults.between(1, 2) {
                let at = self.at_once_or_after(delay);
                self.queue.push(at, Task::Notice { to, dead, line, tries: NOTICE_TRIES });
            }
        }
    }

    pub(super) fn tell_of_death(&mut self, to: usize, (dead, line): (Process, StartId), tries: u32) {
        let from = dead.node.0 as usize;
        if from == to {
            return;
        }
        match self.network.route_stream(self.now, (from, to)) {
            Some(at) if self.is_up(to) => self.push_input(at, to, Input::Death(dead, line)),
            _ if tries > 0 => {
                let task = Task::Notice { to, dead, line, tries: tries - 1 };
                self.queue.push(self.now + NOTICE_EVERY, task);
            }
            _ => {}
        }
    }

    fn replay_notice(&mut self, to: usize) {
        if let Some(&(dead, line)) = self.dice.faults.pick(&self.buried)
            && self.is_up(to)
        {
            self.summary.faults.count(FaultKind::NoticeReplay);
            self.push_input(self.now, to, Input::Death(dead, line));
        }
    }

    fn crash_some_client(&mut self, machine: usize) {
        if !self.is_up(machine) {
            return;
        }
        self.summary.faults.count(FaultKind::ClientCrash);
        self.crash_client(machine);
        let down = self.while_it_lasts();
        self.queue.push(self.now + down, Task::Start(machine));
    }

    pub(super) fn crash_client(&mut self, machine: usize) {
        self.note(None, format_args!("the client on {machine} crashes"));
        self.mishap(machine, "its process ends");
        let client = machine - self.daemons.len();
        self.lose_with_client(client);
        self.clients[client].end();
        self.abandon_connections(machine);
    }

    /// Starts whatever a machine runs, unless it runs.
    pub(super) fn start(&mut self, machine: usize) -> Result<(), Violation> {
        if self.is_up(machine) || self.is_lost(machine) {
            return Ok(());
        }
        match self.client_on(machine) {
            None => {
                if !self.find_the_time(machine) {
                    self.queue.push(self.now + NOTICE_EVERY, Task::Start(machine));
                    return Ok(());
                }
                if !self.begin_process(machine)? {
                    return Ok(());
                }
                let process = self.daemons[machine].process();
                self.note(None, format_args!("{process:?} starts"));
                self.mishap(machine, "a process starts");
                self.push_input(self.now, machine, Input::Heartbeat);
                self.begin_files(machine)?;
                self.drain_daemon(machine)?;
            }
            Some(client) => {
                self.note(None, format_args!("a client starts on {machine}"));
                self.mishap(machine, "a process starts");
                let (map, rules) = (&self.plan.shard.map, self.plan.volumes.rules);
                let (files, caching) = self.files_of_client();
                self.clients[client].start(Core::new(map.clone()).with_rules(rules), files);
                self.clients[client].files.caching = caching;
                self.clients[client].files.behind = self.behind_of_client(client);
                self.wake_users(client);
                self.wake_writers(client);
                self.wake_hands_of(client);
            }
        }
        self.dial_all(machine);
        // Who calls this machine may have given up when there was nobody.
        for caller in 0..self.machines() {
            let calls = if self.client_on(caller).is_some() {
                machine < self.daemons.len()
            } else {
                caller < machine
            };
            if calls && caller != machine && self.client_on(machine).is_none() && self.is_up(caller) {
                self.keep_dialing(caller, machine);
            }
        }
        Ok(())
    }

    fn pause(&mut self, machine: usize, kind: FaultKind) {
        if !self.is_up(machine) || self.running(machine).frozen || self.running(machine).freezes_next {
            return;
        }
        self.summary.faults.count(kind);
        if self.dice.faults.chance(1, 3) {
            self.running_mut(machine).freezes_next = true;
        } else {
            self.freeze(machine);
        }
    }

    /// Stops a process where it stands.
    pub(super) fn freeze(&mut self, machine: usize) {
        let lasts = self.while_it_lasts();
        self.note(None, format_args!("the process on {machine} freezes for {lasts}"));
        self.mishap(machine, "its process freezes");
        let running = self.running_mut(machine);
        running.frozen = true;
        let life = running.life;
        self.queue.push(self.now + lasts, Task::Resume(machine, life));
        self.watch_all(machine);
    }

    /// The process goes on where it stood, drains its inbox and looks at its timers.
    pub(super) fn resume(&mut self, machine: usize, life: u64) -> Result<(), Violation> {
        let running = self.running_mut(machine);
        if running.life != life || !running.frozen {
            return Ok(());
        }
        (running.frozen, running.wake) = (false, None);
        let inbox = std::mem::take(&mut running.inbox);
        self.note(None, format_args!("the process on {machine} goes on"));
        self.mishap(machine, "its process goes on");
        match self.client_on(machine) {
            None => self.drain_daemon(machine)?,
            Some(client) => self.drain_client(client)?,
        }
        for task in inbox {
            if let Task::To(machine, life, input) = task {
                self.deliver(machine, life, *input)?;
            }
        }
        match self.client_on(machine) {
            None => self.call(machine, |shard, now| shard.handle_timeout(now)),
            Some(client) => self.call_client(client, |core, now| core.handle_timeout(now)),
        }
    }

    fn partition(&mut self) {
        let (sides, mut links) = self.network.draw_partition(&mut self.dice.faults);
        if self.dice.faults.chance(1, 3) {
            // Clients that reach both sides see whether both serve.
            links.retain(|&(from, to)| from.max(to) < self.daemons.len());
        }
        self.summary.faults.count(FaultKind::Partition);
        self.note(None, format_args!("partition {sides:b}"));
        self.cut(links);
    }

    fn cut_one_way(&mut self) {
        let machine = self.dice.faults.index(self.machines());
        let (outgoing, links) = self.network.draw_one_way(machine, &mut self.dice.faults);
        self.summary.faults.count(FaultKind::OneWay);
        self.note(None, format_args!("{machine} is cut off, outgoing: {outgoing}"));
        self.cut(links);
    }

    fn cut(&mut self, links: Vec<(usize, usize)>) {
        let lasts = self.while_it_lasts();
        self.cut_for(lasts, links);
    }

    pub(super) fn cut_for(&mut self, lasts: Span, links: Vec<(usize, usize)>) {
        links.iter().for_each(|&(from, to)| self.network.cut(from, to));
        let ends: Machines = links.iter().flat_map(|&(from, to)| [from, to]).collect();
        self.mishaps.note(self.now, ends, "some of the links between them are cut");
        for machine in 0..self.machines() {
            self.watch_all(machine);
        }
        self.queue.push(self.now + lasts, Task::Mend(links));
    }

    fn clog(&mut self) {
        let machine = self.dice.faults.index(self.machines());
        self.summary.faults.count(FaultKind::Clog);
        let lasts = self.while_it_lasts();
        self.note(None, format_args!("the way to {machine} is clogged for {lasts}"));
        self.network.clog_some(machine, self.now + lasts, &mut self.dice.faults);
    }

    fn change_rate(&mut self) {
        let machine = self.dice.faults.index(self.machines());
        let ppm = draw_rate(self.plan.clocks.rate_ppm_max, &mut self.dice.clocks);
        // One that goes astray does so slowly.
        let is_astray = self.daemons.get(machine).is_some_and(|daemon| daemon.clock.is_astray());
        if is_astray || self.wrong_clocks.is_wrong(machine) {
            return;
        }
        self.summary.faults.count(FaultKind::ClockRate);
        self.note(None, format_args!("the clock of {machine} runs {ppm} ppm fast"));
        match self.client_on(machine) {
            None => self.daemons[machine].clock.set_rate(self.now, ppm),
            Some(client) => self.clients[client].clock.set_rate(self.now, ppm),
        }
        self.wake_soon(machine);
    }

    /// A clock that is not what it was makes its process look at its timers.
    pub(super) fn wake_soon(&mut self, machine: usize) {
        self.running_mut(machine).wake = Some(self.now);
        self.push_input(self.now, machine, Input::Wake);
    }

    /// So slowly that the guard notices while no lease of this node can be misjudged.
    fn lead_clock_astray(&mut self, daemon: usize) {
        if self.wrong_clocks.is_wrong(daemon) {
            return;
        }
        let (ppm, lasts) = self.straying();
        self.summary.faults.count(FaultKind::ClockStray);
        let ppm = if self.dice.clocks.chance(1, 2) { ppm } else { -ppm };
        self.note(None, format_args!("the clock of n{daemon} goes astray, {ppm} ppm fast, for {lasts}"));
        self.mishap(daemon, "its clock goes astray");
        self.daemons[daemon].clock.stray(self.now, ppm);
        self.queue.push(self.now + lasts, Task::TurnBack(daemon));
        self.wake_soon(daemon);
    }

    fn straying(&self) -> (i32, Span) {
        let lease = &self.plan.shard.lease;
        let per_lease = lease.epsilon.as_micros() * 1_000_000 / 5 / lease.t_max.as_micros();
        let ppm = per_lease.min(rate_edge_ppm(lease.rate_error_ppm));
        let ppm = i32::try_from(ppm).unwrap_or(i32::MAX).max(1);
        // Until it is about ε away.
        (ppm, lease.t_max * 5)
    }

    pub(super) fn turn_back(&mut self, daemon: usize) {
        if self.wrong_clocks.is_wrong(daemon) {
            return;
        }
        let (ppm, _) = self.straying();
        if !self.daemons[daemon].clock.come_back(self.now, ppm) {
            self.queue.push(self.now + NOTICE_EVERY, Task::TurnBack(daemon));
        }
        self.wake_soon(daemon);
    }

    /// A daemon is told to stop; when it has given everything up it ends, and is started again.
    pub(super) fn drain(&mut self, daemon: usize) -> Result<(), Violation> {
        if !self.daemons[daemon].runs() {
            return Ok(());
        }
        self.summary.faults.count(FaultKind::Drain);
        if self.dice.faults.chance(1, 2) {
            return self.drain_by_order(daemon);
        }
        self.note(None, format_args!("n{daemon} drains"));
        self.mishap(daemon, "it drains");
        self.call(daemon, |shard, now| shard.drain(now))?;
        let life = self.daemons[daemon].running.life;
        self.queue.push(self.now + DRAIN_STEP, Task::Drained(daemon, life));
        Ok(())
    }

    /// An operator drains a daemon, whatever depends on it, and has it lead again after a while.
    fn drain_by_order(&mut self, daemon: usize) -> Result<(), Violation> {
        self.note(None, format_args!("n{daemon} is drained"));
        self.mishap(daemon, "it is drained");
        self.call(daemon, |shard, now| drop(shard.order_drain(now, true)))?;
        let lasts = self.while_it_lasts();
        self.queue.push(self.now + lasts, Task::Undrain(daemon));
        Ok(())
    }

    pub(super) fn undrain(&mut self, daemon: usize) -> Result<(), Violation> {
        // One that stops has to stop first.
        self.call(daemon, |shard, now| drop(shard.undrain(now)))
    }

    pub(super) fn look_at_drain(&mut self, daemon: usize, life: u64) -> Result<(), Violation> {
        let machine = &self.daemons[daemon];
        let Some(shard) = machine.shard.as_ref().filter(|_| machine.running.life == life) else {
            return Ok(());
        };
        let is_due = shard.is_drained() || self.dice.faults.chance(1, 200);
        if !is_due || machine.running.frozen {
            self.queue.push(self.now + DRAIN_STEP, Task::Drained(daemon, life));
            return Ok(());
        }
        let dead = self.crash(daemon);
        // Its supervisor saw it end, too.
        self.bury(dead, NOTICE_EVERY);
        let down = self.while_it_lasts();
        self.queue.push(self.now + down, Task::Start(daemon));
        Ok(())
    }

    fn stall_disk(&mut self, daemon: usize) {
        self.summary.faults.count(FaultKind::DiskStall);
        self.mishap(daemon, "its disk stalls");
        let lasts = self.while_it_lasts();
        self.daemons[daemon].disk_stalls_until = self.now + lasts;
    }

    fn fill_disk(&mut self, daemon: usize) {
        self.summary.faults.count(FaultKind::DiskFull);
        self.mishap(daemon, "its disk is full");
        let lasts = self.while_it_lasts();
        self.daemons[daemon].disk_full_until = self.now + lasts;
        // It may notice later than its disk.
        let notices = self.now + span_between(Span::ZERO, lasts, &mut self.dice.faults);
        self.push_input(notices, daemon, Input::Disk(DiskInput::Space));
    }

    /// The mark is being written: it may be on disk although the process ends before it hears of it, or not.
    pub(super) fn write_mark(&mut self, daemon: usize, mark: u64) {
        let takes = span_between(Span::ZERO, self.plan.disk_max, &mut self.dice.disks);
        let start = self.daemons[daemon].disk_stalls_until.max(self.now);
        let heard: TrueTime = start + takes;
        self.push_input(heard, daemon, Input::Written(mark));
        let machine = &mut self.daemons[daemon];
        machine.writing.push((mark, heard));
    }
}
