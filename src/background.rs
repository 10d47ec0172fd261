//! A background process that is noted in a file, so that a later command finds it again, and never another one.
//!
//! A process id alone names whoever has it now. The file also says when the process started and in which run of the
//! kernel, and signals go through a descriptor of the process that was compared with that.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// How often to look whether a process is gone.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How long a process may take to die when it is killed.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// A process as its file notes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Noted {
    /// Its id.
    pub(crate) id: u32,
    /// In ticks of the kernel since its boot.
    started: u64,
    boot: String,
}

/// How a process that was to stop did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stopped {
    /// By itself, as asked.
    Cleanly,
    /// It did not stop in time.
    Killed,
    /// Not even SIGKILL ended it in time: it waits in the kernel, most likely for a disk.
    Stuck,
}

impl Noted {
    /// The process `id`, which must be running.
    pub(crate) fn running(id: u32) -> io::Result<Self> {
        let started = started(id)?.ok_or(io::ErrorKind::NotFound)?;
        Ok(Self { id, started, boot: boot_id()? })
    }

    /// The process that the file at `path` notes, if it is still running.
    pub(crate) fn find(path: &Path) -> anyhow::Result<Option<Self>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        // What is no note of ours names no process of ours.
        let Some(noted) = parse(&text) else { return Ok(None) };
        Ok(noted.is_running()?.then_some(noted))
    }

    /// Notes the process in the file at `path`.
    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, format!("{} {} {}\n", self.id, self.started, self.boot))?;
        fs::rename(new, path)
    }

    /// Whether it is still there. A process that has ended and waits for its parent to notice is not.
    pub(crate) fn is_running(&self) -> io::Result<bool> {
        Ok(boot_id()? == self.boot && started(self.id)? == Some(self.started))
    }

    /// Asks it to stop, and kills it after `patience`.
    pub(crate) fn stop(&self, patience: Duration) -> io::Result<Stopped> {
        let Some(process) = self.open()? else { return Ok(Stopped::Cleanly) };
        signal(&process, Signal::TERM)?;
        if self.wait(patience)? {
            return Ok(Stopped::Cleanly);
        }
        signal(&process, Signal::KILL)?;
        Ok(if self.wait(KILL_PATIENCE)? { Stopped::Killed } else { Stopped::Stuck })
    }

    /// A descriptor of this process and no other.
    fn open(&self) -> io::Result<Option<OwnedFd>> {
        let id = i32::try_from(self.id).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        let process = match pidfd_open(id, PidfdFlags::empty()) {
            Ok(process) => process,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // Opened first and compared then: the descriptor keeps naming the same process, whatever becomes of the id.
        Ok(self.is_running()?.then_some(process))
    }

    /// Whether it was gone within `patience`.
    fn wait(&self, patience: Duration) -> io::Result<bool> {
        let end = Instant::now() + patience;
        while self.is_running()? {
            if Instant::now() >= end {
                return Ok(false);
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(true)
    }
}

fn signal(process: &OwnedFd, signal: Signal) -> io::Result<()> {
    match pidfd_send_signal(process, signal) {
        // It has just ended.
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn parse(text: &str) -> Option<Noted> {
    let mut words = text.split_whitespace();
    let noted = Noted {
        id: words.next()?.parse().ok()?,
        started: words.next()?.parse().ok()?,
        boot: words.next()?.to_owned(),
    };
    words.next().is_none().then_some(noted)
}

/// When the process with this id started, if it runs.
fn started(id: u32) -> io::Result<Option<u64>> {
    match fs::read_to_string(format!("/proc/{id}/stat")) {
        Ok(stat) => Ok(parse_started(&stat)),
        // It ended before or while it was read.
        Err(error) if error.kind() == io::ErrorKind::NotFound || is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
}

/// Of the line in `/proc/ID/stat`: the 22nd field, unless the 3rd says that the process has ended. The second is the
/// program's name in parentheses and may hold anything.
fn parse_started(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    let has_ended = matches!(state, "Z" | "X");
    fields.nth(18)?.parse().ok().filter(|_| !has_ended)
}

fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// A process that ends with the pipe that it reads.
    fn sleeper() -> std::process::Child {
        Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
    }

    #[test]
    fn a_noted_process_is_found_as_long_as_it_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        assert_eq!(Noted::find(&path).unwrap(), None);
        let mut child = sleeper();
        let noted = Noted::running(child.id()).unwrap();
        noted.save(&path).unwrap();
        assert_eq!(Noted::find(&path).unwrap(), Some(noted));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(Noted::find(&path).unwrap(), None);
    }

    #[test]
    fn an_ended_process_that_nobody_has_reaped_does_not_run() {
        let mut child = sleeper();
        let noted = Noted::running(child.id()).unwrap();
        assert_eq!(noted.stop(Duration::from_secs(20)).unwrap(), Stopped::Cleanly);
        assert!(!noted.is_running().unwrap());
        child.wait().unwrap();
    }

    #[test]
    fn another_process_with_the_id_is_left_alone() {
        let mut child = sleeper();
        let noted = Noted::running(child.id()).unwrap();
        let boot = "another".to_owned();
        let strangers = [Noted { started: noted.started - 1, ..noted.clone() }, Noted { boot, ..noted }];
        for stranger in strangers {
            assert!(!stranger.is_running().unwrap());
            stranger.stop(Duration::ZERO).unwrap();
        }
        assert_eq!(child.try_wait().unwrap(), None);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    #[test]
    fn a_process_that_does_not_stop_is_killed() {
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; echo ready; read line"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0; 6];
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let noted = Noted::running(child.id()).unwrap();
        assert_eq!(noted.stop(Duration::from_millis(200)).unwrap(), Stopped::Killed);
        child.wait().unwrap();
    }

    #[test]
    fn what_is_no_note_names_nobody() {
        for text in ["", "1", "1 2", "1 2 a b", "x 2 a", "-1 2 a"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_programs_name_may_hold_anything() {
        let fields = |state| {
            format!("7 (a) b) ({state}) {state} {}", (4..30).map(|n| format!("{n} ")).collect::<String>())
        };
        assert_eq!(parse_started(&fields("S")), Some(22));
        assert_eq!(parse_started(&fields("Z")), None);
        assert_eq!(parse_started("7 (a"), None);
    }
}
