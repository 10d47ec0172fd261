//! How much space the disk has: new data is refused while what was accepted already still fits.
//!
//! What was removed is free in the content file first, and used again there. When the disk has little left, it is given back to the disk: the
//! journal and the index need some, too, and so does content that is longer than any free stretch of the file.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use node::DiskSpace;

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
    last: DiskSpace,
    /// How much was written since it was looked at.
    written: u64,
    giving: Giving,
}

/// Whether the disk is given back what is free in the content file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Giving {
    No,
    Wanted,
    UnderWay,
    /// It cannot take it.
    Never,
}

impl Space {
    pub(super) const fn new(dir: PathBuf, contents: Arc<Contents>) -> Self {
        Self { dir, contents, last: DiskSpace::Enough, written: 0, giving: Giving::No }
    }

    pub(super) const fn note_write(&mut self, bytes: u64) {
        self.written += bytes;
    }

    /// Whether so much was written that it is time to look again.
    pub(super) const fn is_due(&self) -> bool {
        self.written >= WRITTEN_BYTES
    }

    /// How much space there is for more data.
    pub(super) fn look(&mut self) -> io::Result<DiskSpace> {
        self.written = 0;
        let [all, free, inside] = self.measure()?;
        self.last = space((all, free.saturating_add(inside)), self.last);
        let is_low = free < 2 * reserve(all) && inside > reserve(all) / 8;
        if is_low && self.giving == Giving::No {
            self.giving = Giving::Wanted;
        }
        Ok(self.last)
    }

    /// How much more data it takes.
    pub(super) fn free_bytes(&self) -> io::Result<u64> {
        let [all, free, inside] = self.measure()?;
        Ok(free.saturating_add(inside).saturating_sub(reserve(all)))
    }

    /// How large the disk is, what is free on it, and what is free in the content file.
    fn measure(&self) -> io::Result<[u64; 3]> {
        let disk = rustix::fs::statvfs(&self.dir)?;
        let [all, free] = [disk.f_blocks, disk.f_bavail].map(|blocks| blocks.saturating_mul(disk.f_frsize));
        Ok([all, free, self.contents.free_bytes()?])
    }

    /// Whether the disk is to be given back now what is free in the content file. To be followed by [`note_given`](Self::note_given).
    pub(super) fn takes_back(&mut self) -> bool {
        let is_wanted = self.giving == Giving::Wanted;
        if is_wanted {
            self.giving = Giving::UnderWay;
        }
        is_wanted
    }

    pub(super) fn note_given(&mut self, given: io::Result<()>) {
        let error = given.err();
        if let Some(error) = &error {
            tracing::info!("the disk is not given back what is free in the content file: {error}");
        }
        let cannot = error.is_some_and(|error| error.kind() == io::ErrorKind::Unsupported);
        self.giving = if cannot { Giving::Never } else { Giving::No };
    }
}

fn reserve(all: u64) -> u64 {
    RESERVE_BYTES.min(all / RESERVE_SHARE)
}

/// How much space there is on a disk of which so much is free. It takes some again when there is more than it needs for that.
fn space((all, free): (u64, u64), was: DiskSpace) -> DiskSpace {
    let is_below = |limit: u64, was_below: bool| free < if was_below { limit + limit / 4 } else { limit };
    let reserve = reserve(all);
    if is_below(reserve / 2, was == DiskSpace::Spent) {
        DiskSpace::Spent
    } else if is_below(reserve, was != DiskSpace::Enough) {
        DiskSpace::Little
    } else {
        DiskSpace::Enough
    }
}

#[cfg(test)]
mod tests {
    use DiskSpace::{Enough, Little, Spent};

    use super::*;

    #[test]
    fn a_disk_is_full_while_what_was_accepted_still_fits() {
        const GIB: u64 = 1 << 30;
        for (all, free, was, wanted) in [
            (100 * GIB, GIB, Enough, Enough),
            (100 * GIB, GIB / 4, Enough, Little),
            (100 * GIB, GIB / 4 - 1, Enough, Spent),
            (100 * GIB, GIB / 4, Spent, Spent),
            (100 * GIB, GIB / 4 + GIB / 16, Spent, Little),
            (100 * GIB, GIB / 2 + GIB / 16, Enough, Enough),
            (100 * GIB, GIB / 2 + GIB / 16, Little, Little),
            (100 * GIB, GIB / 2 + GIB / 8, Spent, Enough),
            (GIB, GIB / 8, Enough, Enough),
            (GIB, GIB / 32, Enough, Little),
            (0, 0, Enough, Enough),
        ] {
            assert_eq!(space((all, free), was), wanted, "{free} of {all}, {was:?}");
        }
    }
}
