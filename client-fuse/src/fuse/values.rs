//! The kernel's values and ours.

use std::time::{Duration, SystemTime};

use client::Sought;
use fuser::{FileAttr, FileType, Generation, INodeNo, OpenFlags, Request, TimeOrNow, WriteFlags};
use namespace::{Attributes, Kind, SetTime};
use rustix::fs::{FallocateFlags, OFlags};

use crate::caller::Caller;
use crate::fs::{Allocate, OpenHow, WriteHow, set_time};

/// What the kernel says of a file that is opened to be run. It has no name in `fcntl.h`.
const OPENED_TO_RUN: u32 = 0x20;

/// The bits of `O_SYNC`, one of which is `O_DSYNC`.
const SYNCS: OFlags = OFlags::SYNC;

/// `SEEK_DATA` and `SEEK_HOLE` of the kernel's `fs.h`.
const SEEK_DATA: i32 = 3;
const SEEK_HOLE: i32 = 4;

/// The units of `statfs` and of a file's blocks.
pub(super) const STATFS_BLOCK_BYTES: u32 = 4096;
const STAT_BLOCK_BYTES: u64 = 512;

pub(super) fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), thread: request.pid() }
}

/// The kernel sends the kind along.
pub(super) fn mode_bits(mode: u32) -> u16 {
    u16::try_from(mode & 0o7777).expect("these are twelve bits")
}

pub(super) fn time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => set_time(time.duration_since(SystemTime::UNIX_EPOCH).ok()),
    }
}

pub(super) fn open_how(flags: OpenFlags) -> OpenHow {
    let bits = flags.0.cast_unsigned();
    let flags = OFlags::from_bits_retain(bits);
    let access = flags & OFlags::RWMODE;
    OpenHow {
        read: access != OFlags::WRONLY,
        write: access != OFlags::RDONLY,
        append: flags.contains(OFlags::APPEND),
        execute: bits & OPENED_TO_RUN != 0,
        exclusive: flags.contains(OFlags::EXCL),
        truncate: flags.contains(OFlags::TRUNC),
        syncs: flags.intersects(SYNCS),
    }
}

pub(super) fn write_how(write: WriteFlags, open: OpenFlags) -> WriteHow {
    let flags = OFlags::from_bits_retain(open.0.cast_unsigned());
    WriteHow {
        appends: flags.contains(OFlags::APPEND),
        // What was written through a mapping.
        is_placed: write.contains(WriteFlags::FUSE_WRITE_CACHE),
        // Of the file, or of this write alone.
        syncs: flags.intersects(SYNCS),
        is_direct: flags.contains(OFlags::DIRECT),
    }
}

/// What `fallocate` asks for. None if nobody can do that here.
pub(super) fn allocate_how(mode: i32) -> Option<Allocate> {
    let keeps_size = FallocateFlags::KEEP_SIZE;
    let (zeroes, punches) = (FallocateFlags::ZERO_RANGE, FallocateFlags::PUNCH_HOLE | keeps_size);
    match FallocateFlags::from_bits_retain(mode.cast_unsigned()) {
        mode if mode.is_empty() => Some(Allocate { zeroes: false, extends: true }),
        mode if mode == keeps_size => Some(Allocate { zeroes: false, extends: false }),
        mode if mode == zeroes => Some(Allocate { zeroes: true, extends: true }),
        mode if mode == punches || mode == zeroes | keeps_size => {
            Some(Allocate { zeroes: true, extends: false })
        }
        _ => None,
    }
}

/// What is sought that is neither at a place nor at the end.
pub(super) const fn sought(whence: i32) -> Option<Sought> {
    match whence {
        SEEK_DATA => Some(Sought::Data),
        SEEK_HOLE => Some(Sought::Hole),
        _ => None,
    }
}

pub(super) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// A number may have stood for something that was never committed. The kernel takes it for another inode then.
pub(super) fn generation(attributes: &Attributes) -> Generation {
    Generation(attributes.inode.epoch.number)
}

pub(super) fn file_attr(attributes: &Attributes) -> FileAttr {
    let time = |time: base::WallTime| SystemTime::UNIX_EPOCH + Duration::from_micros(time.as_micros());
    FileAttr {
        ino: INodeNo(attributes.inode.number),
        size: attributes.size,
        blocks: attributes.size.div_ceil(STAT_BLOCK_BYTES),
        atime: time(attributes.atime),
        mtime: time(attributes.mtime),
        ctime: time(attributes.ctime),
        crtime: time(attributes.btime),
        kind: file_type(attributes.kind),
        perm: attributes.mode,
        nlink: attributes.links,
        uid: attributes.uid,
        gid: attributes.gid,
        // FUSE has 32 bits for it in both directions.
        rdev: u32::try_from(attributes.rdev).unwrap_or(u32::MAX),
        blksize: STATFS_BLOCK_BYTES,
        flags: 0,
    }
}
