//! The kernel's settings of one mount, which lie in `/sys` and cannot be given when mounting.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, major, minor};
use rustix::io::Errno;

use crate::mount::{DEVICE, MountError};

/// How far ahead the kernel reads in a file that is read from end to end. Its default of 128 KiB would cut every
/// read into pieces that small.
const READ_AHEAD_KIB: u64 = 4 << 10;

/// How much of the dirty memory of the machine may be of a mount. Its default is one percent, because a file system of a user may never
/// take what is written to it.
const DIRTY_PERCENT_MAX: u64 = 100;

/// The numbers that Linux has given the device, wherever it is.
const FUSE: (u32, u32) = (10, 229);

/// That this process can open the device of the kernel's, and why not.
pub(crate) fn opens() -> Result<(), MountError> {
    match File::options().read(true).write(true).open(DEVICE).and_then(|device| device.metadata()) {
        Ok(found) if (major(found.rdev()), minor(found.rdev())) == FUSE => Ok(()),
        Ok(_) => Err(MountError::NoDevice),
        Err(error) => Err(match (error.kind(), Errno::from_io_error(&error)) {
            (io::ErrorKind::NotFound, _) | (_, Some(Errno::NODEV | Errno::NXIO)) => MountError::NoDevice,
            (io::ErrorKind::PermissionDenied, _) => MountError::NotPermitted,
            _ => MountError::Refused(error),
        }),
    }
}

/// Raises the read-ahead of the mount at `point`, and says what it is now. Only root may raise it.
pub(crate) fn raise_read_ahead(point: &Path) -> io::Result<u64> {
    let setting = setting(point, "read_ahead_kb")?;
    // What counts is what the kernel reports afterwards.
    let _ = std::fs::write(&setting, READ_AHEAD_KIB.to_string());
    std::fs::read_to_string(&setting)?.trim().parse().map_err(io::Error::other)
}

/// Has writers of mapped memory wait as late as on a disk, as far as this process may say so.
pub(crate) fn let_writers_go_on(point: &Path) {
    for (name, value) in [("strict_limit", 0), ("max_ratio", DIRTY_PERCENT_MAX)] {
        if let Ok(setting) = setting(point, name) {
            let _ = std::fs::write(setting, value.to_string());
        }
    }
}

fn setting(point: &Path, name: &str) -> io::Result<PathBuf> {
    // Whoever serves the mount must not have to answer itself here.
    let unasked = AtFlags::STATX_DONT_SYNC;
    let found = rustix::fs::statx(CWD, point, unasked, StatxFlags::empty())?;
    let (major, minor) = (found.stx_dev_major, found.stx_dev_minor);
    Ok(PathBuf::from(format!("/sys/class/bdi/{major}:{minor}/{name}")))
}
