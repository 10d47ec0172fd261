//! Daemons and mounts as processes of this test: side by side, or each on a machine of its own that can be cut off, with a clock and a disk of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use bench::daemons::Daemons;
use bench::mounted::Mounted;
use bench::netns::{NamespaceError, Namespaces};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::process::Pid;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use serde_json::Value;

use crate::disk::Disk;
use crate::support::{PATIENCE, fleasefs, said, until};

pub(crate) const DAEMONS: usize = 3;
/// The mounts. The second one keeps nothing back that programs write; the third one has a hard life, and what it has not sent may be lost.
pub(crate) const MOUNTS: usize = 3;
pub(crate) const THROUGH: usize = 1;
pub(crate) const POOR: usize = 2;
/// How much of a log is shown when something is wrong.
const LOG_LINES: usize = 20;
const NAMES: [&str; MOUNTS] = ["a", "b", "c"];

/// The order of the fields is the order in which they go.
pub(crate) struct Machines {
    mounts: [Option<Mounted>; MOUNTS],
    pub(crate) daemons: Daemons,
    pub(crate) disks: Vec<Disk>,
    folder: tempfile::TempDir,
}

impl Machines {
    /// All on this machine.
    pub(crate) fn together() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("cluster");
        // It finds ports that are free.
        must(fleasefs().arg("up").arg(&dir));
        must(fleasefs().arg("down").arg(&dir));
        let daemons = Daemons::start(program(), &dir, DAEMONS).unwrap();
        Self::begin(Self { mounts: Default::default(), daemons, disks: Vec::new(), folder })
    }

    /// Each on its own, as the calling thread sees it, which leaves this machine's network and mounts. Nothing stays behind, however it ends.
    pub(crate) fn apart() -> Result<Self, NamespaceError> {
        let namespaces = Namespaces::make(DAEMONS + MOUNTS)?;
        leave_mounts();
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("cluster");
        let addresses = Namespaces::addresses(DAEMONS).join(",");
        must(fleasefs().arg("init").arg(&dir).arg("--osds").arg(addresses));
        let disk = |id| {
            let home = dir.join(format!("osd-{id}"));
            replace(&home.join("osd.toml"), "#data = \"data\"", "data = \"disk/data\"");
            Disk::mount(&folder.path().join(format!("memory {id}")), &home.join("disk")).unwrap()
        };
        let disks = (1..=DAEMONS).map(disk).collect();
        let daemons = Daemons::start_in(Some(namespaces), (program(), &dir), DAEMONS).unwrap();
        Ok(Self::begin(Self { mounts: Default::default(), daemons, disks, folder }))
    }

    fn begin(mut self) -> Self {
        let (from, to) = (self.dir().join("client"), self.client(THROUGH));
        fs::create_dir(&to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
        replace(&to.join("client.toml"), "#write_behind = true", "write_behind = false");
        self.wait_until_well();
        must(fleasefs().args(["volume", "create", "main", "--cluster"]).arg(self.dir()));
        (0..MOUNTS).for_each(|mount| self.mount(mount));
        self
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    fn client(&self, mount: usize) -> PathBuf {
        self.dir().join(if mount == THROUGH { "through" } else { "client" })
    }

    pub(crate) fn point(&self, mount: usize) -> PathBuf {
        self.folder.path().join(NAMES[mount])
    }

    /// The machine of a mount.
    pub(crate) const fn of_mount(mount: usize) -> usize {
        DAEMONS + 1 + mount
    }

    /// Mounts the volume, anew if it was before.
    pub(crate) fn mount(&mut self, mount: usize) {
        // What was there before goes first.
        self.mounts[mount] = None;
        let machine = self.daemons.namespaces().map(|namespaces| (namespaces, Self::of_mount(mount)));
        let places = (&*self.client(mount), &*self.point(mount));
        self.mounts[mount] = Some(Mounted::start_in(machine, program(), places).unwrap());
    }

    /// Kills the process of a mount, and takes away what is left.
    pub(crate) fn kill_mount(&mut self, mount: usize) {
        self.mounts[mount].as_mut().unwrap().kill();
        must(fleasefs().arg("umount").arg(self.point(mount)));
    }

    pub(crate) fn mount_process(&self, mount: usize) -> Pid {
        pid(self.mounts[mount].as_ref().unwrap().process())
    }

    pub(crate) fn supervisor(&self, id: usize) -> Pid {
        pid(self.daemons.processes(id)[0])
    }

    /// Its supervisor may be about to start it.
    pub(crate) fn daemon(&self, id: usize) -> Pid {
        let mut found = None;
        until("a daemon runs", || {
            found = self.daemons.processes(id).get(1).copied();
            found.is_some()
        });
        pid(found.unwrap())
    }

    pub(crate) fn network(&self) -> &Namespaces {
        self.daemons.namespaces().expect("they are apart")
    }

    /// A command on the machine of a daemon.
    pub(crate) fn on_machine_of(&self, id: usize) -> Command {
        let mut command = fleasefs();
        self.network().enter_member(&mut command, id);
        command
    }

    /// What the daemons say of themselves.
    pub(crate) fn status(&self) -> Value {
        self.status_by(fleasefs())
    }

    pub(crate) fn status_by(&self, mut command: Command) -> Value {
        let output = command.args(["status", "--json", "--cluster"]).arg(self.dir()).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no status: {}", said(&output)))
    }

    pub(crate) fn problems(&self) -> Vec<String> {
        let status = self.status();
        status["problems"]
            .as_array()
            .unwrap()
            .iter()
            .map(|problem| problem.as_str().unwrap().to_owned())
            .collect()
    }

    pub(crate) fn wait_until_well(&self) {
        let end = Instant::now() + PATIENCE;
        loop {
            let problems = self.problems();
            if problems.is_empty() {
                return;
            }
            assert!(Instant::now() < end, "after {PATIENCE:?}: {problems:?}\n{}", self.logs());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// The ends of the daemons' logs.
    fn logs(&self) -> String {
        let log = |id: usize| {
            let text = fs::read_to_string(self.dir().join(format!("osd-{id}/log"))).unwrap_or_default();
            let lines: Vec<&str> = text.lines().rev().take(LOG_LINES).collect();
            lines.into_iter().rev().map(|line| format!("daemon {id}: {line}\n")).collect::<String>()
        };
        (1..=DAEMONS).map(log).collect()
    }
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_fleasefs"))
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed()).expect("processes have numbers")
}

fn must(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", said(&output));
}

fn replace(file: &Path, what: &str, by: &str) {
    let text = fs::read_to_string(file).unwrap();
    assert!(text.contains(what), "{what} is not in {}", file.display());
    fs::write(file, text.replace(what, by)).unwrap();
}

/// What is mounted from now on is seen by this thread and what it starts, and goes with them.
fn leave_mounts() {
    // SAFETY: this thread keeps its descriptors; only its view of mounts and its working directory are its own.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS | UnshareFlags::FS) }.unwrap();
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC).unwrap();
}
