//! What happens to daemons, and to a mount.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use base::Random;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::players::Recorder;
use crate::support::{Cluster, fleasefs, said, until};

/// Longer than leases and sessions last.
const LONG: Duration = Duration::from_secs(4);
const DAEMONS: u32 = 3;

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
    /// What this mount has not sent is given up.
    FreezeMount,
    /// With what it has not sent. It is mounted anew.
    KillMount,
}

impl Event {
    pub(crate) const ALL: [Self; 11] = [
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
}

/// A cluster with three mounts, of which the last one has a hard life.
pub(crate) struct Stage<'a> {
    cluster: &'a Cluster,
    points: [PathBuf; 3],
    poor: Pid,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(cluster: &'a Cluster) -> Self {
        let (last, poor) = cluster.mount_in_front("c");
        Self { cluster, points: [cluster.mount("a"), cluster.mount("b"), last], poor }
    }

    pub(crate) fn points(&self) -> [PathBuf; 3] {
        self.points.clone()
    }

    /// Returns when all is well again.
    pub(crate) fn happens(&mut self, event: Event, recorder: &Recorder, random: &mut Random) {
        let node = u32::try_from(random.index(DAEMONS as usize)).unwrap() + 1;
        let other = node % DAEMONS + 1;
        let soon = Duration::from_millis(random.below(300));
        match event {
            Event::Kill => self.kill(&[node]),
            Event::KillMachine => {
                self.kill_machine(node);
                thread::sleep(LONG);
                self.cluster.up();
            }
            Event::KillSupervisor => {
                let daemon = self.daemon(node);
                kill_process(self.supervisor(node), Signal::KILL).unwrap();
                // It stops in order.
                until("a daemon without a supervisor stops", || test_kill_process(daemon).is_err());
                self.cluster.up();
            }
            Event::KillAll => self.kill(&[1, 2, 3]),
            Event::KillWhileOthersTakeOver => {
                self.kill_machine(node);
                // The lease of what it led ends now.
                thread::sleep(Duration::from_secs(2) + soon);
                self.kill(&[other]);
                self.cluster.up();
            }
            Event::KillAgain => {
                self.kill(&[node]);
                thread::sleep(soon);
                self.kill(&[node]);
            }
            Event::Freeze => {
                let both = [self.supervisor(node), self.daemon(node)];
                both.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
                thread::sleep(LONG);
                both.iter().for_each(|pid| kill_process(*pid, Signal::CONT).unwrap());
            }
            Event::Drain => {
                self.order("drain", node);
                self.order("undrain", node);
            }
            Event::KillWhileItDrains => {
                // It may be killed before it knows of it.
                let mut draining = self.command("drain", node).spawn().unwrap();
                thread::sleep(soon / 10);
                self.kill(&[node]);
                draining.wait().unwrap();
                self.all_are_well();
                self.order("undrain", node);
            }
            // No program is started meanwhile: it would close what is open there, and wait for that.
            Event::FreezeMount => recorder.while_poor(|| {
                kill_process(self.poor, Signal::STOP).unwrap();
                thread::sleep(LONG);
                kill_process(self.poor, Signal::CONT).unwrap();
            }),
            Event::KillMount => recorder.while_poor(|| {
                kill_process(self.poor, Signal::KILL).unwrap();
                self.cluster.wait_for(self.poor);
                assert!(self.cluster.umount(&self.points[2]).status.success());
                self.poor = self.cluster.mount_in_front("c").1;
            }),
        }
        self.all_are_well();
    }

    fn all_are_well(&self) {
        until("all daemons are well", || {
            fleasefs()
                .arg("status")
                .arg("--cluster")
                .arg(self.cluster.dir())
                .output()
                .unwrap()
                .status
                .success()
        });
    }

    fn command(&self, what: &str, node: u32) -> std::process::Command {
        let mut command = fleasefs();
        command.arg(what).arg(node.to_string()).arg("--cluster").arg(self.cluster.dir());
        command
    }

    fn order(&self, what: &str, node: u32) {
        let output = self.command(what, node).output().unwrap();
        assert!(output.status.success(), "{what} {node}: {}", said(&output));
    }

    fn supervisor(&self, node: u32) -> Pid {
        let told = fs::read_to_string(self.cluster.dir().join(format!("osd-{node}/pid"))).unwrap();
        Pid::from_raw(told.split_whitespace().next().unwrap().parse().unwrap()).unwrap()
    }

    /// Its supervisor may be about to start it.
    fn daemon(&self, node: u32) -> Pid {
        let supervisor = self.supervisor(node).as_raw_nonzero();
        let mut found = None;
        until("a daemon runs", || {
            let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children"));
            let children = children.unwrap_or_default();
            found =
                children.split_whitespace().next().and_then(|child| Pid::from_raw(child.parse().unwrap()));
            found.is_some()
        });
        found.unwrap()
    }

    /// Frozen first, so that none sees another one die.
    fn kill(&self, nodes: &[u32]) {
        let pids: Vec<Pid> = nodes.iter().map(|&node| self.daemon(node)).collect();
        kill_all(&pids);
    }

    fn kill_machine(&self, node: u32) {
        kill_all(&[self.supervisor(node), self.daemon(node)]);
    }
}

fn kill_all(pids: &[Pid]) {
    for signal in [Signal::STOP, Signal::KILL] {
        // One of them may be gone.
        pids.iter().for_each(|pid| _ = kill_process(*pid, signal));
    }
}
