//! Answers, as the kernel takes them. Which error becomes which errno `fs` decides.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

use bytes::Bytes;
use fuser::{
    Errno, INodeNo, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyStatfs,
    ReplyXattr,
};
use namespace::Attributes;

use super::values::{STATFS_BLOCK_BYTES, file_attr, file_type, generation};
use crate::fs::{Found, FsError, Listed, Room, Shown};

const NAME_BYTES_MAX: u32 = 255;

/// The kernel does not believe it without asking: somebody else may change it.
pub(super) const NO_TIME: Duration = Duration::ZERO;

/// What was made just now. A reply about it would be believed although it was dropped meanwhile.
pub(super) fn answer_entry(answer: Result<Attributes, Errno>, reply: ReplyEntry) {
    answer_found(answer.map(|attributes| ((attributes, NO_TIME), NO_TIME)), reply);
}

pub(super) fn answer_found(answer: Result<Found, Errno>, reply: ReplyEntry) {
    match answer {
        Ok(((attributes, time), name_time)) => {
            reply.entry_with_ttls(&time, &name_time, &file_attr(&attributes), generation(&attributes));
        }
        Err(error) => reply.error(error),
    }
}

pub(super) fn answer_shown(answer: Result<Shown, Errno>, reply: ReplyAttr) {
    match answer {
        Ok((attributes, time)) => reply.attr(&time, &file_attr(&attributes)),
        Err(error) => reply.error(error),
    }
}

pub(super) fn answer_done(answer: Result<(), Errno>, reply: ReplyEmpty) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

pub(super) fn answer_room(answer: Result<Room, Errno>, reply: ReplyStatfs) {
    let Room { used_bytes, free_bytes, inodes_max, inodes_free } = match answer {
        Ok(room) => room,
        Err(error) => return reply.error(error),
    };
    let block = STATFS_BLOCK_BYTES;
    let [used, free] = [used_bytes, free_bytes].map(|bytes| bytes / u64::from(block));
    reply.statfs(used + free, free, free, inodes_max, inodes_free, block, NAME_BYTES_MAX, block);
}

pub(super) fn answer_data(answer: Result<Bytes, Errno>, reply: ReplyData) {
    match answer {
        Ok(data) => reply.data(&data),
        Err(error) => reply.error(error),
    }
}

pub(super) fn answer_list(entries: Vec<Listed>, mut reply: ReplyDirectory) {
    for entry in entries {
        let name = OsStr::from_bytes(&entry.name);
        if reply.add(INodeNo(entry.number), entry.next, file_type(entry.kind), name) {
            break;
        }
    }
    reply.ok();
}

pub(super) fn answer_sought(answer: Result<u64, Errno>, reply: ReplyLseek) {
    match answer.map(i64::try_from) {
        Ok(Ok(offset)) => reply.offset(offset),
        Ok(Err(_)) => reply.error(Errno::EOVERFLOW),
        Err(error) => reply.error(error),
    }
}

/// Whoever has room for nothing asks how much there is.
pub(super) fn answer_xattr(answer: Result<Bytes, Errno>, size: u32, reply: ReplyXattr) {
    match answer {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(error),
    }
}

pub(super) fn errno(error: FsError) -> Errno {
    let errno = error.errno();
    if errno == rustix::io::Errno::IO {
        // Whoever asked is told no more than that.
        tracing::warn!("a request to the mount failed: {error}");
    }
    Errno::from_i32(errno.raw_os_error())
}
