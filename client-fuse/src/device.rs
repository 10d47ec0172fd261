//! The kernel's settings of one mount, which lie in `/sys` and cannot be given when mounting.

use std::io;
use std::path::Path;

/// How far ahead the kernel reads in a file that is read from end to end. Its default of 128 KiB would cut every
/// read into pieces that small.
const READ_AHEAD_KIB: u64 = 4 << 10;

/// Raises the read-ahead of the mount at `point`, and says what it is now. Only root may raise it.
pub(crate) fn raise_read_ahead(point: &Path) -> io::Result<u64> {
    let device = rustix::fs::stat(point)?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let setting = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    // What counts is what the kernel reports afterwards.
    let _ = std::fs::write(&setting, READ_AHEAD_KIB.to_string());
    std::fs::read_to_string(&setting)?.trim().parse().map_err(io::Error::other)
}
