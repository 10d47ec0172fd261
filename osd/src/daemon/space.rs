//! How much space the disk has: new data is refused while what was accepted already still fits.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::store::contents::Contents;

/// So much is kept for the journal, for what waits for a checkpoint, and for the index.
const RESERVE_BYTES: u64 = 512 << 20;
/// Of a small disk at most this part.
const RESERVE_SHARE: u64 = 16;

/// It is looked at again when so much was written, and once a second.
const WRITTEN_BYTES: u64 = 4 << 20;

/// The disk with the data of a daemon.
pub(super) struct Space {
    dir: PathBuf,
    contents: Arc<Contents>,
    is_full: bool,
    /// How much was written since it was looked at.
    written: u64,
}

impl Space {
    pub(super) const fn new(dir: PathBuf, contents: Arc<Contents>) -> Self {
        Self { dir, contents, is_full: false, written: 0 }
    }

    pub(super) const fn note_write(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// Whether so much was written that it is time to look again.
    pub(super) const fn is_due(&self) -> bool {
        self.written >= WRITTEN_BYTES
    }

    /// Whether the disk is to take no more data from now on.
    pub(super) fn is_full(&mut self) -> io::Result<bool> {
        self.written = 0;
        let disk = rustix::fs::statvfs(&self.dir)?;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize).saturating_add(self.contents.free_bytes()?);
        self.is_full = is_full((disk.f_blocks.saturating_mul(disk.f_frsize), free), self.is_full);
        Ok(self.is_full)
    }
}

/// Whether a disk of which so much is free takes no more. It takes some again when there is more than it needs for that.
fn is_full((all, free): (u64, u64), was_full: bool) -> bool {
    let reserve = RESERVE_BYTES.min(all / RESERVE_SHARE);
    free < if was_full { reserve + reserve / 4 } else { reserve }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_while_what_was_accepted_still_fits() {
        const GIB: u64 = 1 << 30;
        for (all, free, was_full, wanted) in [
            (100 * GIB, GIB, false, false),
            (100 * GIB, GIB / 4, false, true),
            (100 * GIB, GIB / 2 + GIB / 16, false, false),
            (100 * GIB, GIB / 2 + GIB / 16, true, true),
            (GIB, GIB / 8, false, false),
            (GIB, GIB / 32, false, true),
            (0, 0, false, false),
        ] {
            assert_eq!(is_full((all, free), was_full), wanted, "{free} of {all}, {was_full}");
        }
    }
}
