//! The life of a mount, from making its directory to removing it.

use std::io;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::device;
use crate::fuse::null::{self, Mounted};
use crate::null::NullFs;
use crate::point::{MountPoint, Unmounted};

/// Threads that serve a mount: one can copy while the other waits for the kernel.
const THREADS: usize = 2;

pub(crate) const DEVICE: &str = "/dev/fuse";

/// A file system that does nothing, mounted on a temporary directory until it is dropped.
pub struct NullMount {
    /// Taken only by `drop`.
    mounted: Option<Mounted>,
    read_ahead_kib: Option<u64>,
    // Dropped last: the directory can only go when nothing is mounted on it.
    point: MountPoint,
}

/// Why there is no mount.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// No directory to mount on.
    #[error("could not make a directory to mount on; check that the temporary directory is writable")]
    Point(#[source] io::Error),
    /// There is none.
    #[error("{} is not there; make it with `mkdir`, and mount again", .0.display())]
    NoPoint(PathBuf),
    /// It is no directory.
    #[error("{} is no directory; name one to mount on", .0.display())]
    NotDirectory(PathBuf),
    /// A volume is mounted there.
    #[error("{source_name} is mounted at {at} already; `fleasefs umount {at}` takes it away", at = .point.display())]
    Busy {
        /// Where.
        point: PathBuf,
        /// What is there.
        source_name: String,
    },
    /// The process of a mount has gone and left it.
    #[error("{point} is a mount whose process has gone; `fleasefs umount {point}` takes it away", point = .0.display())]
    Dead(PathBuf),
    /// Who mounts may not change what is there.
    #[error("this user may not read and write {}, as who mounts on it has to; choose a directory of your own", .0.display())]
    NoRight(PathBuf),
    /// The kernel has no FUSE, or keeps it from this container.
    #[error(
        "{DEVICE} is missing, or is no FUSE device; load the kernel's module with `modprobe fuse`, or give the container that device"
    )]
    NoDevice,
    /// The device is there but not for us.
    #[error(
        "{DEVICE} is there, but this process may not open it; run as root, or allow this user or the container to use that device"
    )]
    NotPermitted,
    /// Only root may mount without help.
    #[error(
        "mounting needs root, or the program fusermount3, which this user has to be able to run; install the Debian package fuse3"
    )]
    NoHelper,
    /// Neither this process nor the helper has the right, whose users they are.
    #[error(
        "neither this process nor fusermount3 has the capability CAP_SYS_ADMIN, which mounting needs; give it to the container, or mount outside \
         of it"
    )]
    NoCapability,
    /// Anything else that the system had against it.
    #[error("the system refused the mount: {0}")]
    Refused(#[source] io::Error),
}

impl NullMount {
    /// Mounts a file system that does nothing.
    pub fn new() -> Result<Self, MountError> {
        let point = MountPoint::new().map_err(MountError::Point)?;
        device::opens()?;
        let mounted = null::mount(NullFs::new(), point.path(), THREADS)
            .map_err(|error| explain(&error, geteuid().is_root()))?;
        // A mount that reads ahead less is slower and otherwise as good; the figure is reported.
        let read_ahead_kib = device::raise_read_ahead(point.path()).ok();
        Ok(Self { mounted: Some(mounted), read_ahead_kib, point })
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.point.path()
    }

    /// How far the kernel reads ahead, if it says.
    pub fn read_ahead_kib(&self) -> Option<u64> {
        self.read_ahead_kib
    }
}

impl Drop for NullMount {
    fn drop(&mut self) {
        if let Some(mounted) = self.mounted.take() {
            // Whoever still has a file open may keep it for as long as they like, so only without them do we wait.
            if self.point.unmount() == Unmounted::Idle {
                mounted.join();
            }
        }
    }
}

/// The device can be opened, so what is not found or not permitted is the helper, which root needs only if it may not mount.
pub(crate) fn explain(error: &io::Error, is_root: bool) -> MountError {
    let told = error.to_string();
    match error.kind() {
        // What the helper says. Of what it wants a user can change this.
        io::ErrorKind::PermissionDenied if told.contains("user_allow_other") => {
            MountError::Refused(io::Error::other(told.trim_end()))
        }
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied if is_root => MountError::NoCapability,
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => MountError::NoHelper,
        _ if told.contains("Operation not permitted") => MountError::NoCapability,
        kind => MountError::Refused(io::Error::new(kind, told.trim_end())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_names_the_cure() {
        let message = |error: io::Error, is_root| explain(&error, is_root).to_string();
        let (missing, closed) = (io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied);
        for kind in [missing, closed] {
            assert!(message(kind.into(), false).contains("fuse3"));
            assert!(message(kind.into(), true).contains("CAP_SYS_ADMIN"));
        }
        let failed = io::Error::other("fusermount3: mount failed: Operation not permitted\n");
        assert!(message(failed, false).contains("CAP_SYS_ADMIN"));
        let told =
            "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf";
        assert!(message(io::Error::new(closed, format!("{told}\n")), false).ends_with(told));
        assert!(message(io::ErrorKind::OutOfMemory.into(), true).contains("out of memory"));
    }
}
