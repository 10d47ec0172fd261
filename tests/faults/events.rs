//! What happens to daemons, to mounts, and to the machines that they run on.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use base::Random;
use bench::netns::HUB;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::disk::Disk;
use crate::machines::{DAEMONS, MOUNTS, Machines, POOR, THROUGH};
use crate::players::Recorder;
use crate::support::{fleasefs, until};

/// Longer than leases and sessions last.
const LONG: Duration = Duration::from_secs(3);
/// A session is over after so long, and with it whatever a client may answer by itself.
const SESSION: Duration = Duration::from_millis(1_500);
/// A clock may be off by so much without anybody minding: less than a quarter of the bound, by which a daemon joins.
const CLOCK_GOOD_MS: u64 = 20;
/// Far beyond the bound, which is 100 ms.
const CLOCK_BAD_MS: (u64, u64) = (300, 2_500);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// A daemon is killed, and its supervisor starts it again.
    Kill,
    /// With its supervisor: nobody tells of it.
    KillMachine,
    /// The supervisor alone.
    KillSupervisor,
    KillAll,
    /// Another one is killed while somebody takes over what the first one led.
    KillWhileOthersTakeOver,
    /// It is killed again as soon as it is there, and catches up with the others.
    KillAgain,
    /// A daemon and its supervisor stand still, and go on.
    Freeze,
    Drain,
    KillWhileItDrains,
    /// What a mount has not sent is given up.
    FreezeMount,
    /// With what it has not sent. It is mounted anew.
    KillMount,
    /// A machine is cut off from all others.
    Cut,
    /// And another one's daemon is killed: too few are left.
    KillWhileCut,
    /// What one daemon sends reaches nobody.
    Mute,
    /// It hears nobody.
    Deaf,
    /// Two daemons do not reach each other.
    CutPair,
    /// One of them does not reach the other.
    MutePair,
    /// A mount is cut off.
    CutMount,
    /// A clock is off by as much as it may.
    ClockInBounds,
    /// And by far more.
    ClockOff,
    /// A disk is slow, and then does nothing at all for a while.
    SlowDisk,
    /// One disk is full.
    FullDisk,
    /// All are.
    FullDisks,
    /// And a daemon is killed meanwhile.
    KillWhileFull,
}

impl Event {
    /// What can happen anywhere.
    pub(crate) const TOGETHER: [Self; 11] = [
        Self::Kill,
        Self::KillMachine,
        Self::KillSupervisor,
        Self::KillAll,
        Self::KillWhileOthersTakeOver,
        Self::KillAgain,
        Self::Freeze,
        Self::Drain,
        Self::KillWhileItDrains,
        Self::FreezeMount,
        Self::KillMount,
    ];

    /// What takes machines of their own, the shorter ones.
    pub(crate) const APART: [Self; 9] = [
        Self::Cut,
        Self::KillWhileCut,
        Self::Mute,
        Self::Deaf,
        Self::CutPair,
        Self::CutMount,
        Self::ClockOff,
        Self::SlowDisk,
        Self::FullDisks,
    ];

    /// The others.
    pub(crate) const APART_LONGER: [Self; 4] =
        [Self::MutePair, Self::ClockInBounds, Self::FullDisk, Self::KillWhileFull];
}

/// Machines to which things happen. Daemons are counted from 1.
pub(crate) struct Stage {
    machines: Machines,
    killed: usize,
}

impl Stage {
    pub(crate) const fn new(machines: Machines) -> Self {
        Self { machines, killed: 0 }
    }

    pub(crate) fn points(&self) -> [std::path::PathBuf; MOUNTS] {
        std::array::from_fn(|mount| self.machines.point(mount))
    }

    /// How many processes were killed so far.
    pub(crate) const fn killed(&self) -> usize {
        self.killed
    }

    /// Returns when all is well again.
    pub(crate) fn happens(&mut self, event: Event, recorder: &Recorder, random: &mut Random) {
        let node = random.index(DAEMONS) + 1;
        let other = node % DAEMONS + 1;
        let soon = Duration::from_millis(random.below(300));
        match event {
            Event::Kill => self.kill(&[node]),
            Event::KillMachine => {
                self.kill_machine(node);
                thread::sleep(LONG);
                self.restart(node);
            }
            Event::KillSupervisor => self.kill_supervisor(node),
            Event::KillAll => self.kill(&[1, 2, 3]),
            Event::KillWhileOthersTakeOver => {
                self.kill_machine(node);
                // The lease of what it led ends now.
                thread::sleep(Duration::from_secs(2) + soon);
                self.kill(&[other]);
                self.restart(node);
            }
            Event::KillAgain => {
                self.kill(&[node]);
                thread::sleep(soon);
                self.kill(&[node]);
            }
            Event::Freeze => {
                self.machines.daemons.freeze(node);
                thread::sleep(LONG);
                self.machines.daemons.resume(node);
            }
            Event::Drain => {
                self.machines.daemons.drain(node).unwrap();
                self.machines.daemons.undrain(node).unwrap();
            }
            Event::KillWhileItDrains => self.kill_while_it_drains(node, soon / 10),
            Event::FreezeMount | Event::KillMount | Event::CutMount => {
                self.happens_to_mount(event, recorder, random);
            }
            Event::Cut
            | Event::KillWhileCut
            | Event::Mute
            | Event::Deaf
            | Event::CutPair
            | Event::MutePair => {
                self.happens_to_network(event, (node, other), recorder);
            }
            Event::ClockInBounds => {
                self.start_with_clock(node, either(random, (1, CLOCK_GOOD_MS)));
            }
            Event::ClockOff => {
                self.clock_is_off(node, either(random, CLOCK_BAD_MS), recorder);
            }
            Event::SlowDisk => self.disk_is_slow(node, recorder, random),
            Event::FullDisk => self.disks_are_full(&[node], None, recorder),
            Event::FullDisks => self.disks_are_full(&[1, 2, 3], None, recorder),
            Event::KillWhileFull => self.disks_are_full(&[1, 2, 3], Some(node), recorder),
        }
        self.machines.wait_until_well();
    }

    fn kill_supervisor(&mut self, node: usize) {
        let daemon = self.machines.daemon(node);
        self.kill_all(&[self.machines.supervisor(node)]);
        // It stops in order.
        until("a daemon without a supervisor stops", || test_kill_process(daemon).is_err());
        self.restart(node);
    }

    fn kill_while_it_drains(&mut self, node: usize, soon: Duration) {
        // It may be killed before it knows of it.
        let mut command = fleasefs();
        command.args(["drain", &node.to_string(), "--cluster"]).arg(self.machines.dir());
        let mut draining = command.spawn().unwrap();
        thread::sleep(soon);
        self.kill(&[node]);
        draining.wait().unwrap();
        self.machines.wait_until_well();
        self.machines.daemons.undrain(node).unwrap();
    }

    fn happens_to_mount(&mut self, event: Event, recorder: &Recorder, random: &mut Random) {
        if event == Event::KillMount {
            return recorder.while_poor(|| {
                self.machines.kill_mount(POOR);
                self.killed += 1;
                self.machines.mount(POOR);
            });
        }
        // The one that keeps nothing back loses nothing.
        let mount = if random.chance(1, 2) { POOR } else { THROUGH };
        // No program is started meanwhile: it would close what is open there, and wait for that.
        let happens = || match event {
            Event::FreezeMount => {
                let process = self.machines.mount_process(mount);
                kill_process(process, Signal::STOP).unwrap();
                thread::sleep(LONG);
                kill_process(process, Signal::CONT).unwrap();
            }
            _ => {
                let machine = Machines::of_mount(mount);
                self.machines.network().cut(machine).unwrap();
                thread::sleep(SESSION);
                let changes = recorder.changes(mount);
                thread::sleep(LONG - SESSION);
                let later = recorder.changes(mount);
                self.machines.network().mend(machine).unwrap();
                assert!(later <= changes + 1, "a mount that is cut off changes names");
            }
        };
        if mount == POOR { recorder.while_poor(happens) } else { happens() }
    }

    fn happens_to_network(&mut self, event: Event, (node, other): (usize, usize), recorder: &Recorder) {
        let everybody = || (1..=DAEMONS + MOUNTS).filter(move |id| *id != node).chain([HUB]);
        let lost: Vec<(usize, usize)> = match event {
            Event::Mute => everybody().map(|to| (node, to)).collect(),
            Event::Deaf => everybody().map(|from| (from, node)).collect(),
            Event::CutPair => vec![(node, other), (other, node)],
            Event::MutePair => vec![(node, other)],
            _ => Vec::new(),
        };
        let network = self.machines.network();
        lost.iter().for_each(|&(from, to)| network.silence(from, to).unwrap());
        if lost.is_empty() {
            network.cut(node).unwrap();
        }
        let cut = Instant::now();
        until("the daemons say that one does not hear another", || !self.machines.problems().is_empty());
        if event == Event::KillWhileCut {
            self.kill(&[other]);
        } else {
            // The others are enough.
            recorder.wait_for_all();
        }
        thread::sleep(LONG.saturating_sub(cut.elapsed()));
        let network = self.machines.network();
        lost.iter().for_each(|&(from, to)| network.unsilence(from, to).unwrap());
        if lost.is_empty() {
            network.mend(node).unwrap();
        }
    }

    /// Has a daemon go on by a clock that is fast by so much, or slow. Whoever hears others at its start follows them, so it hears nobody.
    fn start_with_clock(&mut self, node: usize, fast_by_ms: i64) {
        self.machines.network().cut(node).unwrap();
        self.kill_machine(node);
        self.machines.daemons.set_clock(node, fast_by_ms);
        self.restart(node);
        until("a daemon goes by its own clock", || {
            let command = self.machines.on_machine_of(node);
            self.machines.status_by(command)["daemons"][node - 1]["answers"] == Value::Bool(true)
        });
        self.machines.network().mend(node).unwrap();
    }

    fn clock_is_off(&mut self, node: usize, fast_by_ms: i64, recorder: &Recorder) {
        self.start_with_clock(node, fast_by_ms);
        let told = format!("daemon {node} at ");
        until("it says that its clock is off", || {
            let problems = self.machines.problems();
            problems.iter().any(|problem| problem.starts_with(&told) && problem.contains("its clock is off"))
        });
        recorder.wait_for_all();
        let leads = &self.machines.status()["daemons"][node - 1]["status"]["leases"]["primaries"];
        assert_eq!(leads.as_u64(), Some(0), "daemon {node}, whose clock is off by {fast_by_ms} ms, leads");
        self.kill_machine(node);
        self.machines.daemons.set_clock(node, 0);
        self.restart(node);
    }

    fn disk_is_slow(&mut self, node: usize, recorder: &Recorder, random: &mut Random) {
        let disk = &self.machines.disks[node - 1];
        let late = disk.late();
        disk.set_delay(Duration::from_millis(random.between(20, 400)));
        thread::sleep(LONG / 2);
        recorder.wait_for_all();
        disk.set_stuck(true);
        thread::sleep(LONG);
        disk.set_stuck(false);
        disk.set_delay(Duration::ZERO);
        assert!(disk.late() > late, "the disk of daemon {node} was not used");
    }

    fn disks_are_full(&mut self, nodes: &[usize], killed: Option<usize>, recorder: &Recorder) {
        recorder.while_full(|| {
            let count = || recorder.refused.load(Ordering::Relaxed);
            let refused = count();
            self.each_disk(nodes, Disk::fill);
            until("daemons say that their disks are full", || {
                let problems = self.machines.problems();
                problems.iter().filter(|problem| problem.contains("nearly full")).count() >= nodes.len()
            });
            if nodes.len() == DAEMONS {
                until("programs are told that there is no space", || count() > refused);
            }
            self.each_disk(nodes, Disk::fill_to_the_brim);
            thread::sleep(LONG);
            if let Some(node) = killed {
                self.kill(&[node]);
                thread::sleep(LONG);
            }
            self.each_disk(nodes, Disk::empty);
            self.machines.wait_until_well();
        });
    }

    fn each_disk(&self, nodes: &[usize], act: impl Fn(&Disk)) {
        nodes.iter().for_each(|node| act(&self.machines.disks[node - 1]));
    }

    fn restart(&mut self, node: usize) {
        self.machines.daemons.restart(node).unwrap();
    }

    fn kill(&mut self, nodes: &[usize]) {
        let pids: Vec<Pid> = nodes.iter().map(|&node| self.machines.daemon(node)).collect();
        self.kill_all(&pids);
    }

    fn kill_machine(&mut self, node: usize) {
        self.kill_all(&[self.machines.supervisor(node), self.machines.daemon(node)]);
    }

    /// Frozen first, so that none sees another one die.
    fn kill_all(&mut self, pids: &[Pid]) {
        let send = |signal| pids.iter().filter(|pid| kill_process(**pid, signal).is_ok()).count();
        // One of them may be gone.
        send(Signal::STOP);
        let killed = send(Signal::KILL);
        assert!(killed > 0, "nobody was killed");
        self.killed += killed;
    }
}

/// So many milliseconds, or as many less than none.
fn either(random: &mut Random, (least, most): (u64, u64)) -> i64 {
    let ms = random.between(least, most).cast_signed();
    if random.chance(1, 2) { ms } else { -ms }
}
