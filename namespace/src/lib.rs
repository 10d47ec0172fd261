//! The directory tree of a volume, as a state that replicas keep alike.
//!
//! All of the state is in a table of parts: inodes, entries of directories, extended attributes, locks, clients and what
//! they hold. A [`Tree`] is what may be done to such a table. It reads single parts and short runs of them, so that the table
//! may be on a disk: nothing walks through a directory, let alone through everything.
//!
//! Rules:
//!
//! - What an operation does is decided by the state and the operation. Whatever else there is to decide (time, who asks,
//!   where a file is replicated) is in it, put there by the primary.
//! - One operation is one entry of the log, and the entry names what it creates. An operation that is refused changes nothing,
//!   not even a version.
//! - Who may do what is checked here, as POSIX says, whoever has checked it before.
//! - A change marks an inode's `ctime`, and where POSIX says so the other times, with the time of the operation, or with its
//!   `ctime` if that is later. So `ctime` never goes back, and other times do only if a user sets them, or had set
//!   them to a time that was still to come.
//! - Size and times of a file that is lent are known to its cell. What is here is what was given back last.
//! - Without a name and without a holder there is no inode; the data of a file is *doomed* until it is gone everywhere. A file
//!   that was never lent has none.
//!
//! # What is deliberately absent
//!
//! No byte layout, no errno, no path: `..` and symbolic links are followed by those who walk. No clock. No
//! knowledge of who is connected: when a client ends, somebody else says so.

mod access;
mod acl;
mod ask;
mod attributes;
mod clients;
pub mod cost;
mod create;
mod draft;
mod error;
mod id;
pub mod limits;
mod lock;
mod locking;
mod name;
mod op;
mod overlaps;
mod part;
mod query;
mod remove;
mod rename;
mod sorted;
mod table;
#[cfg(test)]
mod tests;
mod tree;
mod volume_name;
mod who;
mod xattr;

pub use acl::{AclId, NotAcl, map_acl};
pub use error::NameError;
pub use id::{Born, Generation, InodeId, Lent, LentTo, NUMBERS_MAX, Owner, Ticket};
pub use lock::{Lock, LockKind, LockMode, Locks, Stretch, Waiting, Wish};
pub use name::{
    ACL_ACCESS, ACL_DEFAULT, CAPABILITY, NAME_BYTES_MAX, Name, NotAName, Space, TARGET_BYTES_MAX, Target,
    XATTR_NAME_BYTES_MAX, XattrName,
};
pub use op::{
    Change, Done, Expect, Fate, Given, Grant, Granted, Make, Op, RenameHow, SetAttributes, SetTime, Site,
    XattrHow,
};
pub use part::{Body, ClientState, Doomed, Entry, Inode, Key, Kind, Marks, Part, Volume};
pub use query::{Answer, Ask, Attributes, Listed, Page, Query};
pub use sorted::Sorted;
pub use table::{Memory, Table};
pub use tree::{Root, Tree};
pub use volume_name::{VOLUME_NAME_BYTES_MAX, VolumeName, VolumeNameError};
pub use who::{GROUPS_MAX, Rights, TooManyGroups, Who};
