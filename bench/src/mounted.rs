//! A mount of a measured cluster: a process of its own, which is gone afterwards however the measurement ends.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use osd::lifeline;
use rustix::mount::UnmountFlags;
use rustix::process::Signal;

use crate::daemons::signal;
use crate::netns::Namespaces;

/// How long a mount may take to end before it is killed.
const END_TIMEOUT: Duration = Duration::from_secs(12);
const END_POLL: Duration = Duration::from_millis(10);
/// What it says when it answers.
const READY: &str = "ready";

/// A mount. It is taken away when this is dropped.
pub struct Mounted {
    process: Child,
    point: PathBuf,
}

impl Mounted {
    /// Mounts the volume of a cluster on a folder that is made. Returns when it answers.
    pub fn start(program: &Path, source: &Path, point: &Path) -> io::Result<Self> {
        Self::start_in(None, program, (source, point))
    }

    /// The same, on a machine with a network namespace of its own if one is named.
    pub fn start_in(
        machine: Option<(&Namespaces, usize)>,
        program: &Path,
        (source, point): (&Path, &Path),
    ) -> io::Result<Self> {
        fs::create_dir_all(point)?;
        let mut command = Command::new(program);
        command.args(["mount", "--detached", "--log-file"]).arg(point.with_extension("log"));
        // It leaves the terminal by itself: what that sends is for the command in front of it.
        command.arg("--").arg(source).arg(point);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // If this process is killed, nobody is left to end it.
        lifeline::tie(&mut command, Signal::TERM);
        if let Some((namespaces, id)) = machine {
            namespaces.enter_member(&mut command, id);
        }
        let mut mounted = Self { process: command.spawn()?, point: point.to_owned() };
        let mut line = String::new();
        if let Some(stdout) = mounted.process.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        if line.trim_end() == READY {
            return Ok(mounted);
        }
        let mut said = String::new();
        if let Some(mut stderr) = mounted.process.stderr.take() {
            stderr.read_to_string(&mut said)?;
        }
        Err(io::Error::other(format!("{} could not be mounted: {}", point.display(), said.trim())))
    }

    /// Where.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// The process that serves it.
    pub fn process(&self) -> u32 {
        self.process.id()
    }

    /// Ends its process at once: whoever waits for something of it is told that it is gone.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            signal(self.process.id(), Signal::TERM);
        }
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(END_POLL);
        }
        self.kill();
        // Nothing is there any more, most likely.
        let _ = rustix::mount::unmount(&self.point, UnmountFlags::DETACH);
        // As an empty folder: nothing is removed through a mount that is still there.
        let _ = fs::remove_dir(&self.point);
    }
}
