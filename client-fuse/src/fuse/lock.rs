//! What the kernel says of a lock: a stretch, a kind, and whose it is.
//!
//! fuser passes on everything but the flag that tells `flock` from `fcntl`. The two do not see each other, and an open
//! file description may have both, so to guess would be wrong. The flag is read from where fuser has the rest from: the request as it
//! came from the kernel, of which what fuser calls a request is the beginning.

use client::FileLock;
use fuser::{Errno, FileHandle, INodeNo, LockOwner, Request};
use namespace::{LockKind, LockMode, Stretch};

/// The kernel's `struct fuse_lk_in`, which follows the header of a request.
#[repr(C)]
#[derive(Clone, Copy)]
struct Asked {
    handle: u64,
    owner: u64,
    first: u64,
    last: u64,
    kind: i32,
    process: u32,
    flags: u32,
    padding: u32,
}

/// The kernel's `FUSE_LK_FLOCK`.
const FLOCK: u32 = 1;
/// The last byte that a program can name, which stands for the end of the file, wherever that is.
const LAST: u64 = i64::MAX as u64;

/// `l_type` of the kernel's `struct flock`.
const READ: i32 = 0;
const WRITE: i32 = 1;
const UNLOCK: i32 = 2;

/// What fuser passes on of a request about a lock.
#[derive(Clone, Copy)]
pub(crate) struct Passed {
    pub(crate) handle: FileHandle,
    pub(crate) owner: LockOwner,
    pub(crate) range: (u64, u64),
    pub(crate) kind: i32,
    pub(crate) process: u32,
}

/// A request about a lock, but for how it is to be locked.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) owner: u64,
    pub(crate) kind: LockKind,
    pub(crate) stretch: Stretch,
}

impl Wish {
    pub(crate) const fn wanted(self, mode: LockMode) -> FileLock {
        FileLock { owner: self.owner, kind: self.kind, mode, stretch: self.stretch }
    }
}

/// What is wanted of a lock, and how it is to be locked, unless it is to be unlocked.
pub(crate) fn wish(
    request: &Request,
    inode: INodeNo,
    passed: Passed,
) -> Result<(Wish, Option<LockMode>), Errno> {
    let mode = mode(passed.kind).ok_or(Errno::EINVAL)?;
    let Some(kind) = kind(request, passed) else {
        tracing::warn!(
            "a lock of inode {} is refused: fuser takes requests in as it was not known to",
            inode.0
        );
        return Err(Errno::ENOLCK);
    };
    Ok((Wish { owner: passed.owner.0, kind, stretch: stretch(kind, passed.range) }, mode))
}

/// Which kind of lock a request is about. None if it is not where it is looked for.
fn kind(request: &Request, passed: Passed) -> Option<LockKind> {
    const HEADER_BYTES: usize = size_of::<Request>();
    const { assert!(HEADER_BYTES == 40, "the kernel's header is what it was") };
    let at = std::ptr::from_ref(request).expose_provenance() + HEADER_BYTES;
    // SAFETY: fuser 0.18.0, which the workspace names to the digit, calls this from within its buffer: `request` is the first 40 bytes of
    // that, and it has found a `fuse_lk_in` of 48 bytes behind them before it calls. Nobody writes to the buffer meanwhile. The buffer was
    // given to the kernel as a pointer to all of it, and it is this pointer that is meant here.
    let asked = unsafe { std::ptr::with_exposed_provenance::<Asked>(at).read_unaligned() };
    let Passed { handle, owner, range, kind, process } = passed;
    let is_same = (asked.handle, asked.owner, asked.kind) == (handle.0, owner.0, kind)
        && (asked.first, asked.last, asked.process, asked.padding) == (range.0, range.1, process, 0);
    is_same.then_some(if asked.flags & FLOCK == 0 { LockKind::Fcntl } else { LockKind::Flock })
}

/// How it is to be locked, or that it is to be unlocked.
fn mode(kind: i32) -> Option<Option<LockMode>> {
    match kind {
        READ => Some(Some(LockMode::Shared)),
        WRITE => Some(Some(LockMode::Exclusive)),
        UNLOCK => Some(None),
        _ => None,
    }
}

fn stretch(kind: LockKind, (first, last): (u64, u64)) -> Stretch {
    match kind {
        LockKind::Flock => Stretch::ALL,
        LockKind::Fcntl if last >= LAST => Stretch { first, last: u64::MAX },
        LockKind::Fcntl => Stretch { first, last },
    }
}

/// A lock that is in the way, or that none is, as the kernel takes it: the first byte, the last one, and the kind.
pub(crate) fn shown(lock: Option<(Stretch, LockMode)>) -> (u64, u64, i32) {
    match lock {
        None => (0, 0, UNLOCK),
        Some((stretch, mode)) => {
            let kind = if mode == LockMode::Shared { READ } else { WRITE };
            (stretch.first, stretch.last.min(LAST), kind)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_file_is_wherever_it_is() {
        assert_eq!(stretch(LockKind::Fcntl, (0, LAST)), Stretch::ALL);
        assert_eq!(stretch(LockKind::Fcntl, (3, 4)), Stretch { first: 3, last: 4 });
        assert_eq!(stretch(LockKind::Flock, (0, LAST)), Stretch::ALL);
        assert_eq!(shown(Some((Stretch::ALL, LockMode::Exclusive))), (0, LAST, WRITE));
        assert_eq!(shown(None).2, UNLOCK);
    }
}
