//! The life of a mount, from making its directory to removing it.

use std::io;
use std::path::{Path, PathBuf};

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
    /// The kernel has no FUSE, or keeps it from this container.
    #[error(
        "{DEVICE} is missing; load the kernel's module with `modprobe fuse`, or give the container that device"
    )]
    NoDevice,
    /// The device is there but not for us.
    #[error("{DEVICE} may not be opened; run as root, or allow the container to use that device")]
    NotPermitted,
    /// Only root may mount without help.
    #[error("mounting needs root or the program fusermount3; install the Debian package fuse3")]
    NoHelper,
    /// Anything else that the system had against it.
    #[error("the system refused the mount: {0}")]
    Refused(#[source] io::Error),
}

impl NullMount {
    /// Mounts a file system that does nothing.
    pub fn new() -> Result<Self, MountError> {
        let point = MountPoint::new().map_err(MountError::Point)?;
        let mounted = null::mount(NullFs::new(), point.path(), THREADS)
            .map_err(|error| explain(error, Path::new(DEVICE).exists()))?;
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

/// "Not found" can be the device or the helper program, hence the second argument.
pub(crate) fn explain(error: io::Error, device_exists: bool) -> MountError {
    match error.kind() {
        _ if !device_exists => MountError::NoDevice,
        io::ErrorKind::NotFound => MountError::NoHelper,
        // The helper says what it wants.
        io::ErrorKind::PermissionDenied if error.to_string().contains("user_allow_other") => {
            MountError::Refused(error)
        }
        io::ErrorKind::PermissionDenied => MountError::NotPermitted,
        _ => MountError::Refused(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_names_the_cure() {
        let message = |kind: io::ErrorKind, device_exists| explain(kind.into(), device_exists).to_string();
        assert!(message(io::ErrorKind::NotFound, false).contains("modprobe fuse"));
        assert!(message(io::ErrorKind::NotFound, true).contains("fuse3"));
        assert!(message(io::ErrorKind::PermissionDenied, true).contains("root"));
        assert!(message(io::ErrorKind::OutOfMemory, true).contains("out of memory"));
    }
}
