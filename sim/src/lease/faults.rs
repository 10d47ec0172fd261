//! The faults: what strikes, whom, and for how long.

use base::{Dead, Process, Span};
use lease::Algorithm;

use super::workload::watermark;
use super::world::{Task, World};
use crate::checkers::evidence::Machines;
use crate::clock::draw_rate;
use crate::faults::draw_duration;
use crate::{FaultKind, Violation};

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
        let node = self.random_node();
        match kind {
            FaultKind::Crash => self.crash(node),
            FaultKind::Pause => self.pause(node),
            FaultKind::Partition => self.partition(),
            FaultKind::OneWay => self.cut_one_way(node),
            FaultKind::Clog => self.clog(node),
            FaultKind::ClockStep => return self.step_clock(node),
            FaultKind::ClockRate => self.change_rate(node),
            FaultKind::StandDown => return self.stand_down(node),
            FaultKind::NoticeReplay => self.replay_notice(node),
            FaultKind::ViewChange => return self.change_some_view(),
            FaultKind::Impossible => return self.say_the_impossible(node),
            // These happen to messages or to whole clusters, and notices follow crashes.
            FaultKind::Notice
            | FaultKind::CrashAll
            | FaultKind::Break
            | FaultKind::ClockStray
            | FaultKind::ClockWrong
            | FaultKind::Drain
            | FaultKind::DiskStall
            | FaultKind::DiskFull
            | FaultKind::PowerCut
            | FaultKind::PowerCutAll
            | FaultKind::Torn
            | FaultKind::ReadError
            | FaultKind::WriteError
            | FaultKind::SyncError
            | FaultKind::BitRot
            | FaultKind::Misdirected
            | FaultKind::ContentRot
            | FaultKind::StoreLost
            | FaultKind::LossAccepted
            | FaultKind::DirectoryEmptied
            | FaultKind::DirectoryRestored
            | FaultKind::CopyDies
            | FaultKind::ClientCrash
            | FaultKind::ClientPause
            | FaultKind::Loss
            | FaultKind::Cut
            | FaultKind::Duplicate
            | FaultKind::Late
            | FaultKind::Clogged => {}
        }
        Ok(())
    }

    fn random_node(&mut self) -> usize {
        self.dice.faults.index(self.hosts.len())
    }

    fn while_it_lasts(&mut self) -> Span {
        draw_duration(self.config.t_max, &mut self.dice.faults)
    }

    fn crash(&mut self, node: usize) {
        if self.hosts[node].node.is_none() {
            return;
        }
        self.summary.faults.count(FaultKind::Crash);
        let dead = self.hosts[node].process();
        self.note(None, format_args!("{dead:?} crashes"));
        self.mishap(node, "its process ends");
        self.leave_ghosts(node);
        self.hosts[node].end(self.now);
        self.checkers.renewal.process_ended(dead);
        self.cells.iter_mut().for_each(|cell| cell.wanted &= !(1 << node));
        let down = self.while_it_lasts();
        self.queue.push(self.now + down, Task::Restart { node });
        if self.dice.faults.chance(self.plan.witnessed_percent, 100) {
            self.bury(dead);
        }
    }

    /// A witness tells everybody, some of them late and some twice.
    fn bury(&mut self, dead: Process) {
        self.summary.faults.count(FaultKind::Notice);
        self.buried.push(dead);
        self.lay_ghosts(dead);
        for to in 0..self.hosts.len() {
            for _ in 0..self.dice.faults.between(1, 2) {
                let delay = self.while_it_lasts();
                self.queue.push(self.now + delay, Task::Notice { to, dead });
            }
        }
    }

    fn replay_notice(&mut self, to: usize) {
        if let Some(&dead) = self.dice.faults.pick(&self.buried) {
            self.summary.faults.count(FaultKind::NoticeReplay);
            self.queue.push(self.now, Task::Notice { to, dead });
        }
    }

    pub(super) fn notice(&mut self, to: usize, dead: Process) -> Result<(), Violation> {
        if !self.hosts[to].runs() {
            return Ok(());
        }
        self.note(None, format_args!("n{to} hears that {dead:?} is dead"));
        self.hosts[to].told_dead.push((dead.node, dead.incarnation));
        self.call(to, |process, _, _| process.handle_death_notice(Dead::up_to(dead)))?;
        Ok(())
    }

    pub(super) fn restart(&mut self, node: usize) -> Result<(), Violation> {
        if self.hosts[node].node.is_some() {
            return Ok(());
        }
        // A start takes the time from elsewhere; what ran before left nothing but its mark.
        self.hosts[node].clock.step(self.now, &mut self.dice.clocks);
        self.hosts[node].start(self.now, &self.config);
        let (process, reading) = (self.hosts[node].process(), self.hosts[node].clock.reading(self.now));
        self.note(None, format_args!("{process:?} starts at {reading:?}"));
        self.mishap(node, "a process starts");
        self.reset_alarm(node);
        Ok(())
    }

    fn pause(&mut self, node: usize) {
        if !self.hosts[node].runs() {
            return;
        }
        self.summary.faults.count(FaultKind::Pause);
        self.hosts[node].paused = true;
        let process = self.hosts[node].process();
        self.note(None, format_args!("{process:?} freezes"));
        self.mishap(node, "its process freezes");
        let frozen = self.while_it_lasts();
        self.queue.push(self.now + frozen, Task::Resume { process });
    }

    /// The process drains its inbox, reads its clock and goes on.
    pub(super) fn resume(&mut self, process: Process) -> Result<(), Violation> {
        let node = process.node.0 as usize;
        let host = &mut self.hosts[node];
        if host.process() != process || !host.paused {
            return Ok(());
        }
        host.paused = false;
        let inbox = std::mem::take(&mut host.inbox);
        self.note(None, format_args!("{process:?} goes on"));
        self.mishap(node, "its process goes on");
        for batch in inbox {
            self.deliver(node, batch)?;
        }
        self.call(node, |process, reading, _| process.handle_timeout(reading))?;
        self.reset_alarm(node);
        Ok(())
    }

    fn partition(&mut self) {
        let (sides, links) = self.network.draw_partition(&mut self.dice.faults);
        self.summary.faults.count(FaultKind::Partition);
        self.note(None, format_args!("partition {sides:b}"));
        self.cut(links);
    }

    fn cut_one_way(&mut self, node: usize) {
        let (outgoing, links) = self.network.draw_one_way(node, &mut self.dice.faults);
        self.summary.faults.count(FaultKind::OneWay);
        self.note(None, format_args!("n{node} is cut off, outgoing: {outgoing}"));
        self.cut(links);
    }

    fn cut(&mut self, links: Vec<(usize, usize)>) {
        links.iter().for_each(|&(from, to)| self.network.cut(from, to));
        let ends: Machines = links.iter().flat_map(|&(from, to)| [from, to]).collect();
        self.mishaps.note(self.now, ends, "some of the links between them are cut");
        let lasts = self.while_it_lasts();
        self.queue.push(self.now + lasts, Task::Mend(links));
    }

    fn clog(&mut self, node: usize) {
        self.summary.faults.count(FaultKind::Clog);
        let lasts = self.while_it_lasts();
        self.note(None, format_args!("the way to n{node} is clogged for {lasts}"));
        self.network.clog_some(node, self.now + lasts, &mut self.dice.faults);
    }

    fn step_clock(&mut self, node: usize) -> Result<(), Violation> {
        self.summary.faults.count(FaultKind::ClockStep);
        let host = &mut self.hosts[node];
        let before = host.clock.reading(self.now);
        host.clock.step(self.now, &mut self.dice.clocks);
        let after = host.clock.reading(self.now);
        self.note(None, format_args!("n{node}'s clock steps from {before:?} to {after:?}"));
        self.mishap(node, "its clock steps");
        self.reset_alarm(node);
        self.look_at_all()
    }

    fn change_rate(&mut self, node: usize) {
        self.summary.faults.count(FaultKind::ClockRate);
        let ppm = draw_rate(self.plan.clocks.rate_ppm_max, &mut self.dice.clocks);
        self.hosts[node].clock.set_rate(self.now, ppm);
        self.note(None, format_args!("n{node}'s clock runs {ppm} ppm fast"));
        self.reset_alarm(node);
    }

    fn stand_down(&mut self, node: usize) -> Result<(), Violation> {
        if !self.hosts[node].runs() {
            return Ok(());
        }
        self.summary.faults.count(FaultKind::StandDown);
        let process = self.hosts[node].process();
        self.note(None, format_args!("{process:?} stands down"));
        self.mishap(node, "it stands down");
        let watermark = watermark(self.now);
        self.cells.iter_mut().for_each(|cell| cell.wanted &= !(1 << node));
        let lasts = self.while_it_lasts();
        self.queue.push(self.now + lasts, Task::Trust { process });
        self.call(node, |process, reading, _| process.stand_down(reading, &|_| watermark))?;
        Ok(())
    }

    pub(super) fn trust(&mut self, process: Process) -> Result<(), Violation> {
        let node = process.node.0 as usize;
        if self.hosts[node].process() != process {
            return Ok(());
        }
        if self.hosts[node].paused {
            self.queue.push(self.now + self.config.t_max / 10, Task::Trust { process });
            return Ok(());
        }
        self.note(None, format_args!("{process:?} trusts its clock again"));
        self.call(node, |process, now, _| process.resume(now))?;
        Ok(())
    }
}
