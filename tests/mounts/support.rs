//! Clusters and mounts of tests: made in a temporary folder, and taken away however a test ends.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use osd::clock::TEST_OFFSET_VARIABLE;
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};

/// Far above what anything here takes, because other tests keep the processors busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A running cluster of three with a volume, and its mounts.
pub(crate) struct Cluster {
    folder: tempfile::TempDir,
    points: RefCell<Vec<PathBuf>>,
    processes: RefCell<Vec<Child>>,
}

impl Cluster {
    /// None where nothing can be mounted, which is said.
    pub(crate) fn start() -> Option<Self> {
        if !can_mount() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let cluster = Self { folder, points: RefCell::default(), processes: RefCell::default() };
        cluster.up();
        cluster.run(&["volume", "create", "main", "--cluster", cluster.dir().to_str().unwrap()]);
        Some(cluster)
    }

    pub(crate) fn up(&self) {
        let dir = self.dir();
        self.run(&["up", dir.to_str().unwrap()]);
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    /// Starts daemons to whose clocks so much time has passed since the last ones ended.
    pub(crate) fn up_after(&self, away: Duration) {
        let ahead_ms = away.as_millis().to_string();
        let output =
            fleasefs().arg("up").arg(self.dir()).env(TEST_OFFSET_VARIABLE, ahead_ms).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }

    /// Kills all daemons, and nobody starts them again.
    pub(crate) fn kill_all(&self) {
        let all: Vec<Pid> = (1..=3).flat_map(|node| [self.supervisor(node), self.daemon(node)]).collect();
        all.iter().for_each(|&process| kill_process(process, Signal::KILL).unwrap());
        until("they have ended", || all.iter().all(|process| is_dead(*process)));
    }

    /// What remembers beside each daemon's disk, as long as its power does not fail.
    pub(crate) fn memos(&self) -> Vec<PathBuf> {
        let output = fleasefs().args(["status", "--json", "--cluster"]).arg(self.dir()).output().unwrap();
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let stores = status["daemons"].as_array().unwrap().iter();
        let stores = stores.map(|daemon| daemon["status"]["daemon"]["store"].as_str().unwrap());
        stores.map(|store| Path::new("/dev/shm").join(format!("fleasefs-{store}"))).collect()
    }

    /// Ends all daemons as their next start finds it after a loss of power. Starts no program.
    pub(crate) fn lose_power(&self, memos: &[PathBuf]) {
        memos.iter().for_each(|memo| fs::remove_file(memo).unwrap());
        self.signal_all(Signal::KILL);
    }

    /// A folder to mount on, which is taken care of.
    pub(crate) fn point(&self, name: &str) -> PathBuf {
        let point = self.folder.path().join(name);
        fs::create_dir_all(&point).unwrap();
        self.points.borrow_mut().push(point.clone());
        point
    }

    /// A mount in the background.
    pub(crate) fn mount(&self, name: &str) -> PathBuf {
        self.mount_with(name, &[])
    }

    pub(crate) fn mount_with(&self, name: &str, options: &[&str]) -> PathBuf {
        let (dir, point) = (self.dir(), self.point(name));
        let (dir, path) = (dir.to_str().unwrap(), point.to_str().unwrap());
        self.run(&[&["mount", "--background", dir, path], options].concat());
        point
    }

    /// A mount whose process is this test's, once it answers.
    pub(crate) fn mount_in_front(&self, name: &str) -> (PathBuf, Pid) {
        self.mount_in_front_with(name, &[])
    }

    pub(crate) fn mount_in_front_with(&self, name: &str, options: &[&str]) -> (PathBuf, Pid) {
        let point = self.point(name);
        let child = fleasefs().arg("mount").arg(self.dir()).arg(&point).args(options).spawn().unwrap();
        let process = Pid::from_child(&child);
        self.processes.borrow_mut().push(child);
        until("it is mounted", || is_mounted(&point));
        (point, process)
    }

    /// How the process of a mount has ended.
    pub(crate) fn wait_for(&self, process: Pid) -> std::process::ExitStatus {
        let mut processes = self.processes.borrow_mut();
        let child = processes.iter_mut().find(|child| Pid::from_child(child) == process).unwrap();
        let mut status = None;
        until("the process ends", || {
            status = child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// What has to go well.
    pub(crate) fn run(&self, args: &[&str]) {
        let output = fleasefs().args(args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    }

    pub(crate) fn umount(&self, point: &Path) -> Output {
        fleasefs().arg("umount").arg(point).output().unwrap()
    }

    /// Kills a daemon; its supervisor starts it again. Returns when all is well, and before that if `ends` says so.
    pub(crate) fn kill_and_wait(&self, node: u32) {
        kill_process(self.daemon(node), Signal::KILL).unwrap();
        until("all daemons are well", || {
            fleasefs().arg("status").arg("--cluster").arg(self.dir()).output().unwrap().status.success()
        });
    }

    fn supervisor(&self, node: u32) -> Pid {
        let told = fs::read_to_string(self.dir().join(format!("osd-{node}/pid"))).unwrap();
        let supervisor = told.split_whitespace().next().unwrap();
        Pid::from_raw(supervisor.parse().unwrap()).unwrap()
    }

    pub(crate) fn daemon(&self, node: u32) -> Pid {
        let supervisor = self.supervisor(node).as_raw_pid();
        let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
        let child = children.split_whitespace().next().unwrap();
        Pid::from_raw(child.parse().unwrap()).unwrap()
    }

    /// The processes that serve mounts of this cluster.
    fn mount_processes(&self) -> Vec<Pid> {
        let dir = self.dir();
        let is_its = |process: &u32| {
            let line = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
            line.starts_with("fleasefs\0mount\0") && line.contains(dir.to_str().unwrap())
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        processes.filter(is_its).filter_map(|process| Pid::from_raw(process.try_into().ok()?)).collect()
    }

    /// Sends a signal to all daemons.
    pub(crate) fn signal_all(&self, signal: Signal) {
        (1..=3).for_each(|node| kill_process(self.daemon(node), signal).unwrap());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Nothing is left to be done if any of this fails.
        for point in self.points.borrow().iter() {
            let _ = rustix::mount::unmount(point, UnmountFlags::DETACH);
        }
        for child in self.processes.borrow_mut().iter_mut() {
            let _ = child.kill();
            let end = Instant::now() + PATIENCE;
            // One that cannot be killed is left behind, rather than waited for without end.
            while child.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        if self.dir().exists() {
            let _ = fleasefs().arg("down").arg(self.dir()).output();
        }
        // A mount that has something left to write waits for daemons.
        for process in self.mount_processes() {
            let _ = kill_process(process, Signal::KILL);
        }
    }
}

/// Whether a process has ended, whether anybody has asked how or not.
pub(crate) fn is_dead(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).unwrap_or_default();
    // Its name, in brackets, may have anything in it.
    stat.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z'))
}

/// Whether anything can be mounted. If not, that is said.
pub(crate) fn can_mount() -> bool {
    let can = fs::metadata("/dev/fuse").is_ok();
    if !can {
        let told = b"not tested: this machine has no /dev/fuse\n";
        // Said where a passing test says something.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), told);
    }
    can
}

/// Whether somebody else can be played, and what is mounted where. If not, that is said.
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"not tested: only root can do that\n");
    }
    is_root
}

pub(crate) fn fleasefs() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fleasefs"));
    command.stdin(Stdio::null()).env_remove("FLEASEFS_CLUSTER");
    command
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether a volume is mounted there.
pub(crate) fn is_mounted(point: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| {
        line.split(' ').nth(4) == Some(point.to_str().unwrap()) && line.contains(" fuse.fleasefs ")
    })
}

/// Waits until a program waits for a mount.
pub(crate) fn until_it_waits(program: &Child) {
    until("it waits for the mount", || {
        let wait = fs::read_to_string(format!("/proc/{}/wchan", program.id())).unwrap_or_default();
        wait.contains("fuse") || wait.contains("request_wait")
    });
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "not after {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
