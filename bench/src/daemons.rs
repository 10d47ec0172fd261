//! The daemons of a cluster as separate processes, and what they cost.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use osd::clock::TEST_OFFSET_VARIABLE;
use osd::lifeline;
use rustix::process::{Pid, Signal, kill_process};

use crate::netns::Namespaces;

/// How long a daemon that is not needed any more may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How long one may take that is to stop in order: longer than its supervisor waits before it kills it.
const ORDERLY_STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// Looks at a stopping daemon this often.
const STOP_POLL: Duration = Duration::from_millis(10);
/// What `/proc` counts processor time in.
const TICKS_PER_S: f64 = 100.0;

/// Running daemons; they are stopped when this is dropped.
pub struct Daemons {
    program: PathBuf,
    folder: PathBuf,
    supervisors: Vec<Child>,
    /// Where each runs, if not beside this process.
    namespaces: Option<Namespaces>,
    /// By how many milliseconds some take their clock to be fast.
    clocks_ms: BTreeMap<usize, i64>,
}

impl Daemons {
    /// Starts `program osd --config FOLDER/osd-N/osd.toml` for each of `count` daemons, with their logs beside that.
    pub fn start(program: &Path, folder: &Path, count: usize) -> io::Result<Self> {
        Self::start_in(None, (program, folder), count)
    }

    /// The same, each in a network namespace of its own if there are some.
    pub fn start_in(
        namespaces: Option<Namespaces>,
        (program, folder): (&Path, &Path),
        count: usize,
    ) -> io::Result<Self> {
        let (program, folder) = (program.to_owned(), folder.to_owned());
        let clocks_ms = BTreeMap::new();
        let mut daemons = Self { program, folder, supervisors: Vec::new(), namespaces, clocks_ms };
        for id in 1..=count {
            let child = daemons.spawn(id)?;
            daemons.supervisors.push(child);
        }
        Ok(daemons)
    }

    /// The processor time that the daemons and their supervisors have used so far.
    pub fn cpu(&self) -> Duration {
        let pids = self.supervisors.iter().flat_map(|child| with_children(child.id()));
        pids.filter_map(cpu_of).sum()
    }

    /// Forgets how much memory the daemons have had so far. Where the kernel does not, the maximum stays what it was.
    pub fn forget_memory_max(&self) {
        self.daemon_pids().for_each(|pid| {
            let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
        });
    }

    /// The most memory in bytes that one daemon has had since then; none if that cannot be read.
    pub fn memory_max(&self) -> Option<u64> {
        let most = |pid| {
            let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
            Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
        };
        self.daemon_pids().filter_map(most).max()
    }

    /// The daemons without their supervisors.
    fn daemon_pids(&self) -> impl Iterator<Item = u32> {
        self.supervisors.iter().flat_map(|child| with_children(child.id()).into_iter().skip(1))
    }

    /// The supervisor of daemon `id`, and the daemon behind it unless it is about to be started.
    pub fn processes(&self, id: usize) -> Vec<u32> {
        with_children(self.supervisors[id - 1].id())
    }

    /// Kills daemon `id`. Its supervisor finds out, and starts it again.
    pub fn kill(&self, id: usize) {
        for pid in with_children(self.supervisors[id - 1].id()).into_iter().skip(1) {
            signal(pid, Signal::KILL);
        }
    }

    /// Takes daemon `id` and its supervisor away as a failing machine would: nobody is left to tell of it.
    pub fn kill_machine(&mut self, id: usize) {
        let supervisor = &mut self.supervisors[id - 1];
        let pids = with_children(supervisor.id());
        // Frozen first, so that neither sees the other die.
        pids.iter().for_each(|&pid| signal(pid, Signal::STOP));
        pids.iter().for_each(|&pid| signal(pid, Signal::KILL));
        let _ = supervisor.wait();
    }

    /// Kills all daemons at once. Their supervisors start them again.
    pub fn kill_all(&self) {
        self.daemon_pids().collect::<Vec<_>>().into_iter().for_each(|pid| signal(pid, Signal::KILL));
    }

    /// Stops daemon `id` and its supervisor where they are: they hold what they hold, and say nothing.
    pub fn freeze(&self, id: usize) {
        // The supervisor first, or it would see its child stand still.
        with_children(self.supervisors[id - 1].id()).into_iter().for_each(|pid| signal(pid, Signal::STOP));
    }

    /// Both go on.
    pub fn resume(&self, id: usize) {
        with_children(self.supervisors[id - 1].id()).into_iter().for_each(|pid| signal(pid, Signal::CONT));
    }

    /// Asks daemon `id` to stop, as a service manager would, and returns when it and its supervisor are gone.
    pub fn stop(&mut self, id: usize) -> io::Result<()> {
        let supervisor = &mut self.supervisors[id - 1];
        signal(supervisor.id(), Signal::TERM);
        let deadline = Instant::now() + ORDERLY_STOP_TIMEOUT;
        while supervisor.try_wait()?.is_none() {
            if Instant::now() > deadline {
                let patience = ORDERLY_STOP_TIMEOUT.as_secs();
                return Err(io::Error::other(format!(
                    "daemon {id} does not stop in {patience} s; see its log"
                )));
            }
            std::thread::sleep(STOP_POLL);
        }
        Ok(())
    }

    /// Has daemon `id` hand over all that it leads, and lead nothing until [`undrain`](Self::undrain).
    pub fn drain(&self, id: usize) -> io::Result<()> {
        self.order("drain", id)
    }

    /// It may lead again.
    pub fn undrain(&self, id: usize) -> io::Result<()> {
        self.order("undrain", id)
    }

    /// What an operator does with the command.
    fn order(&self, what: &str, id: usize) -> io::Result<()> {
        let mut command = Command::new(&self.program);
        command.arg(what).arg(id.to_string()).arg("--cluster").arg(self.folder.join("admin"));
        let output = command.stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(io::Error::other(format!("`fleasefs {what} {id}` failed: {said}")))
    }

    /// The namespaces that they run in.
    pub const fn namespaces(&self) -> Option<&Namespaces> {
        self.namespaces.as_ref()
    }

    /// When it is started the next time daemon `id` takes its clock to be fast by so much.
    pub fn set_clock(&mut self, id: usize, fast_by_ms: i64) {
        self.clocks_ms.insert(id, fast_by_ms);
    }

    /// Starts a daemon again whose supervisor is gone.
    pub fn restart(&mut self, id: usize) -> io::Result<()> {
        self.supervisors[id - 1].wait()?;
        self.supervisors[id - 1] = self.spawn(id)?;
        Ok(())
    }

    fn spawn(&self, id: usize) -> io::Result<Child> {
        let home = self.folder.join(format!("osd-{id}"));
        let log = File::options().create(true).append(true).open(home.join("log"))?;
        let mut command = Command::new(&self.program);
        command.arg("osd").arg("--config").arg(home.join("osd.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        // What a terminal sends is for the command in front of it, which stops them in order.
        command.process_group(0);
        // If this process is killed, nobody is left to stop them.
        lifeline::tie(&mut command, Signal::TERM);
        if let Some(namespaces) = &self.namespaces {
            namespaces.enter_member(&mut command, id);
        }
        if let Some(fast_by_ms) = self.clocks_ms.get(&id) {
            command.env(TEST_OFFSET_VARIABLE, fast_by_ms.to_string());
        }
        command.spawn()
    }
}

impl Drop for Daemons {
    fn drop(&mut self) {
        for child in &self.supervisors {
            signal(child.id(), Signal::TERM);
            // A frozen one would not hear it.
            with_children(child.id()).into_iter().for_each(|pid| signal(pid, Signal::CONT));
        }
        let deadline = Instant::now() + STOP_TIMEOUT;
        for child in &mut self.supervisors {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(STOP_POLL);
            }
            if matches!(child.try_wait(), Ok(None)) {
                with_children(child.id()).into_iter().for_each(|pid| signal(pid, Signal::KILL));
            }
            let _ = child.wait();
        }
    }
}

/// Sends a signal to a process that was started here.
pub(crate) fn signal(pid: u32, what: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may be gone already.
        let _ = kill_process(pid, what);
    }
}

/// The processor time that a process has used so far; none if it is gone.
pub fn cpu_of(pid: u32) -> Option<Duration> {
    cpu_of_threads(pid).or_else(|| cpu_in_ticks(pid))
}

/// Exact, where the kernel tells it. A thread that has ended is left out; daemons have one that does nearly everything.
fn cpu_of_threads(pid: u32) -> Option<Duration> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let ran_ns = threads.filter_map(|thread| {
        let told = fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        told.split(' ').next()?.parse::<u64>().ok()
    });
    let ran_ns = ran_ns.sum();
    (ran_ns > 0).then(|| Duration::from_nanos(ran_ns))
}

/// Of all threads there ever were, in hundredths of a second.
fn cpu_in_ticks(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain anything; it ends with the last parenthesis. Then come the state and 10 numbers.
    let (_, rest) = stat.rsplit_once(") ")?;
    let ticks: Vec<f64> = rest.split(' ').skip(11).take(2).filter_map(|field| field.parse().ok()).collect();
    (ticks.len() == 2).then(|| Duration::from_secs_f64(ticks.iter().sum::<f64>() / TICKS_PER_S))
}

fn with_children(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    std::iter::once(pid).chain(children).collect()
}
