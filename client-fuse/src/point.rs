//! A temporary directory to mount on, and the promise that neither it nor a mount on it stays behind.
//!
//! Three ways lead out: the normal end and an error both drop the [`MountPoint`]; a signal is handled by the thread
//! that [`unmount_on_signals`] starts. Only `kill -9` leaves a dead mount, which `umount -l` then removes.
//!
//! The directory is removed as an *empty* directory and never with its contents: should the unmounting have failed,
//! removing contents would delete through the mount.

use std::ffi::c_int;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// What ends a command from outside.
const FATAL_SIGNALS: [c_int; 3] = [SIGHUP, SIGINT, SIGTERM];

/// Where this process may have something mounted. A global, because signals come to the process as a whole.
static POINTS: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A temporary directory to mount on.
pub(crate) struct MountPoint {
    path: PathBuf,
}

/// How a mount went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmounted {
    /// Nobody used it: it is gone altogether.
    Idle,
    /// Somebody has a file open: nobody finds it any more, and it goes when that is closed.
    InUse,
}

/// How to take a mount away.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// Only if nobody uses it.
    Now,
    /// Out of the tree at once, altogether when nobody uses it any more.
    Lazily,
}

/// Why signals cannot be handled.
#[derive(Debug, thiserror::Error)]
#[error("could not handle signals; without that an interrupted run would leave its mount behind")]
pub struct SignalError(#[from] io::Error);

/// From now on a signal that ends the process first removes the process's mounts. Call it once, before mounting.
///
/// Not done unasked: how a process takes signals is for the command to say, not for a library.
pub fn unmount_on_signals() -> Result<(), SignalError> {
    let mut signals = Signals::new(FATAL_SIGNALS)?;
    thread::Builder::new().name("signals".to_owned()).spawn(move || {
        if let Some(signal) = signals.forever().next() {
            for point in points().iter() {
                clear(point);
            }
            // Ends the process by that same signal, so that its parent sees what happened.
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    })?;
    Ok(())
}

impl MountPoint {
    /// A new empty directory among the system's temporary files.
    pub(crate) fn new() -> io::Result<Self> {
        let path = tempfile::Builder::new().prefix("fleasefs-").tempdir()?.keep();
        // Entered before anything is mounted, so that a signal in between finds it.
        points().push(path.clone());
        Ok(Self { path })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes what is mounted here out of the tree, even if it is in use.
    pub(crate) fn unmount(&self) -> Unmounted {
        if unmount(&self.path, How::Now) {
            return Unmounted::Idle;
        }
        unmount(&self.path, How::Lazily);
        Unmounted::InUse
    }
}

impl Drop for MountPoint {
    fn drop(&mut self) {
        clear(&self.path);
        points().retain(|point| *point != self.path);
    }
}

/// The lock is held for moments only, except by the last thing that the process does.
fn points() -> MutexGuard<'static, Vec<PathBuf>> {
    POINTS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn clear(point: &Path) {
    unmount(point, How::Lazily);
    // It may be gone already, or busy with a mount that would not go: then it is all the user has to find that by.
    let _ = rustix::fs::rmdir(point);
}

/// Whether something was mounted and is not any more.
fn unmount(point: &Path, how: How) -> bool {
    try_unmount(point, how).is_ok()
}

/// Takes what is mounted at `point` out of the tree.
pub(crate) fn try_unmount(point: &Path, how: How) -> Result<(), Errno> {
    let flags = match how {
        How::Now => UnmountFlags::NOFOLLOW,
        How::Lazily => UnmountFlags::NOFOLLOW | UnmountFlags::DETACH,
    };
    match rustix::mount::unmount(point, flags) {
        // Who is not root mounted with the help of a set-uid program, and needs it for this too.
        Err(Errno::PERM) => unmount_with_help(point, how),
        unmounted => unmounted,
    }
}

fn unmount_with_help(point: &Path, how: How) -> Result<(), Errno> {
    let mut helper = Command::new("fusermount3");
    helper.args(["-u", "-q"]);
    if how == How::Lazily {
        helper.arg("-z");
    }
    let helper = helper.arg("--").arg(point).stdin(Stdio::null()).output();
    match helper.map_err(|_| Errno::PERM)? {
        helped if helped.status.success() => Ok(()),
        helped if String::from_utf8_lossy(&helped.stderr).contains("busy") => Err(Errno::BUSY),
        _ => Err(Errno::PERM),
    }
}

/// Has a process of its own take a mount out of the tree that this one serves. A call of this process may wait for what only this process
/// answers, and then not even `kill -9` ends it.
pub(crate) fn unmount_served(point: &Path, how: How) -> io::Result<Child> {
    let mut helper = if rustix::process::geteuid().is_root() {
        let mut umount = Command::new("umount");
        umount.args(["--internal-only", "--no-canonicalize"]).args((how == How::Lazily).then_some("--lazy"));
        umount
    } else {
        let mut fusermount = Command::new("fusermount3");
        fusermount.args(["-u", "-q"]).args((how == How::Lazily).then_some("-z"));
        fusermount
    };
    unattended(helper.arg("--").arg(point)).spawn()
}

/// A helper that says nothing, gets no signal that is meant for this process, and is looked for where no mount is.
pub(crate) fn unattended(helper: &mut Command) -> &mut Command {
    let paths = "/usr/sbin:/usr/bin:/sbin:/bin";
    helper
        .env("PATH", paths)
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_stays_of_a_mount_point() {
        let point = MountPoint::new().unwrap();
        let path = point.path().to_owned();
        assert!(path.is_dir());
        assert!(points().contains(&path));
        drop(point);
        assert!(!path.exists());
        assert!(!points().contains(&path));
    }

    #[test]
    fn a_directory_with_contents_is_left_alone() {
        let point = MountPoint::new().unwrap();
        let path = point.path().to_owned();
        let kept = tempfile::NamedTempFile::new_in(&path).unwrap();
        drop(point);
        assert!(kept.path().exists());
        drop(kept);
        rustix::fs::rmdir(&path).unwrap();
    }
}
