//! What operations, their outcomes and parts cost in memory and in messages.

use std::sync::Arc;

use base::{ClientId, MEMBERS_MAX, Members, NodeId};

use crate::limits::{
    ACL_ENTRIES_MAX, ATTRIBUTES_BYTES, GRANTED_MAX, HOLDERS_MAX, LISTED_BYTES, LOCKS_MAX, PAGE_BYTES_MAX,
    PAGE_MAX, WAITING_MAX, XATTR_BYTES_MAX,
};
use crate::{
    Answer, Ask, Body, Change, Done, GROUPS_MAX, Grant, Key, Listed, Lock, Make, NAME_BYTES_MAX, NameError,
    Op, Part, Query, TARGET_BYTES_MAX, Waiting, XATTR_NAME_BYTES_MAX,
};

/// What an operation or a part takes beside what can be long in it, and a key's name.
const OVERHEAD_BYTES: u64 = 512;
const GROUP_BYTES: u64 = size_of::<u32>() as u64;
/// In a message a client is two numbers of ten bytes each, at most, and in some one byte more.
const HOLDER_BYTES: u64 = 21;
const _: () = assert!(size_of::<ClientId>() as u64 <= HOLDER_BYTES);
const MEMBER_BYTES: u64 = size_of::<NodeId>() as u64;
const LOCK_BYTES: u64 = 48;
const WAITING_BYTES: u64 = 73;
/// An inode, in a list.
const INODE_BYTES: u64 = 26;
/// The same with its members.
const DOOMED_BYTES: u64 = INODE_BYTES + 1 + MEMBERS_MAX as u64 * 5;

/// No operation costs more.
pub const OP_BYTES_MAX: u64 = OVERHEAD_BYTES
    + GROUPS_MAX as u64 * GROUP_BYTES
    + max(
        XATTR_BYTES_MAX + XATTR_NAME_BYTES_MAX as u64,
        2 * NAME_BYTES_MAX as u64 + HOLDERS_MAX as u64 * HOLDER_BYTES,
    );
/// No outcome does.
pub const OUTCOME_BYTES_MAX: u64 = size_of::<Result<Done, NameError>>() as u64
    + max(MEMBERS_MAX as u64 * MEMBER_BYTES, GRANTED_MAX as u64 * size_of::<Grant>() as u64);
/// No part does.
pub const PART_BYTES_MAX: u64 = OVERHEAD_BYTES + XATTR_BYTES_MAX;

const _: () =
    assert!(size_of::<Op>() as u64 <= OVERHEAD_BYTES && size_of::<(Key, Part)>() as u64 <= OVERHEAD_BYTES);
const _: () = assert!(size_of::<crate::Inode>() as u64 + TARGET_BYTES_MAX as u64 <= PART_BYTES_MAX);
const _: () = assert!(size_of::<Lock>() as u64 <= LOCK_BYTES && size_of::<Waiting>() as u64 <= WAITING_BYTES);
const _: () = assert!(
    LOCKS_MAX as u64 * LOCK_BYTES + WAITING_MAX as u64 * WAITING_BYTES <= XATTR_BYTES_MAX,
    "all locks of a file are one part"
);
const _: () = assert!(
    2 * (8 * ACL_ENTRIES_MAX as u64 + 64) <= XATTR_BYTES_MAX,
    "there is room for the ACLs that an inode begins with"
);

/// What an operation costs. More than [`OP_BYTES_MAX`] is refused before it is proposed.
pub fn op_bytes(op: &Op) -> u64 {
    let long = match &op.change {
        Change::Create { name, make, .. } => name.as_bytes().len() as u64 + make_bytes(make),
        Change::Enter { name, replicas, .. } => name.as_bytes().len() as u64 + members_bytes(replicas),
        Change::Link { name, .. } => name.as_bytes().len() as u64,
        Change::Unlink { site, holders, .. } | Change::RemoveDirectory { site, holders } => {
            site.name.as_bytes().len() as u64 + holders_bytes(holders)
        }
        Change::Rename { from, to, holders, .. } => {
            (from.name.as_bytes().len() + to.name.as_bytes().len()) as u64 + holders_bytes(holders)
        }
        Change::SetXattr { name, value, .. } => (name.as_bytes().len() + value.len()) as u64,
        Change::RemoveXattr { name, .. } => name.as_bytes().len() as u64,
        Change::SetAttributes { .. }
        | Change::Lend { .. }
        | Change::Return { .. }
        | Change::GiveBack { .. }
        | Change::Hold { .. }
        | Change::Release { .. }
        | Change::Deleted { .. }
        | Change::Lock { .. }
        | Change::Unlock { .. }
        | Change::Cancel { .. }
        | Change::Settle
        | Change::Welcome { .. }
        | Change::Expire { .. }
        | Change::Forget { .. }
        | Change::Limit { .. } => 0,
    };
    OVERHEAD_BYTES + op.who.groups().len() as u64 * GROUP_BYTES + long
}

/// What a part and its key cost.
pub fn part_bytes(part: &Part) -> u64 {
    let long = match part {
        Part::Inode(inode) => match &inode.body {
            Body::File { replicas, .. } => members_bytes(replicas),
            Body::Symlink { target } => target.as_bytes().len() as u64,
            _ => 0,
        },
        Part::Value(value) => value.len() as u64,
        Part::Locks(locks) => {
            locks.held.len() as u64 * LOCK_BYTES + locks.waiting.len() as u64 * WAITING_BYTES
        }
        Part::Doomed(doomed) => members_bytes(&doomed.replicas),
        Part::Name(name) => name.as_str().len() as u64,
        Part::Volume(_) | Part::Entry(_) | Part::Client(_) | Part::Wait(_) | Part::Mark => 0,
    };
    OVERHEAD_BYTES + long
}

/// What the answer to a question costs at most.
pub fn answer_bytes_max(Query { ask, .. }: &Query) -> u64 {
    let long = match ask {
        Ask::List { .. } => PAGE_BYTES_MAX as u64,
        Ask::Readlink { .. } => TARGET_BYTES_MAX as u64,
        Ask::GetXattr { .. } | Ask::ListXattrs { .. } | Ask::Locks { .. } => XATTR_BYTES_MAX,
        Ask::Orphans { .. } | Ask::Doomed { .. } | Ask::Clients { .. } | Ask::Holds { .. } => {
            PAGE_MAX as u64 * DOOMED_BYTES
        }
        Ask::Lookup { .. }
        | Ask::Attributes { .. }
        | Ask::Access { .. }
        | Ask::Statfs
        | Ask::TestLock { .. }
        | Ask::Wish { .. } => 0,
    };
    OVERHEAD_BYTES + long
}

/// What an answer costs.
pub fn answer_bytes(answer: &Answer) -> u64 {
    let long = match answer {
        Answer::Page(page) => page.entries.iter().map(listed_bytes).sum(),
        Answer::Target(target) => target.as_bytes().len() as u64,
        Answer::Value(value) => value.len() as u64,
        Answer::Names(names) => names.iter().map(|name| 1 + name.as_bytes().len() as u64).sum(),
        Answer::Locks(Some(locks)) => part_bytes(&Part::Locks(Arc::clone(locks))),
        Answer::Inodes(inodes) => inodes.len() as u64 * INODE_BYTES,
        Answer::Doomed(doomed) => doomed.len() as u64 * DOOMED_BYTES,
        Answer::Clients(clients) => clients.len() as u64 * HOLDER_BYTES,
        Answer::Attributes(_)
        | Answer::Volume(_)
        | Answer::InTheWay(_)
        | Answer::Wish(_)
        | Answer::Locks(None) => 0,
    };
    OVERHEAD_BYTES + long
}

/// What an entry in a page costs: in memory it takes as much with attributes as without.
fn listed_bytes(listed: &Listed) -> u64 {
    (LISTED_BYTES + ATTRIBUTES_BYTES + listed.name.as_bytes().len()) as u64
}

const _: () = assert!(size_of::<Listed>() <= LISTED_BYTES + ATTRIBUTES_BYTES);

fn make_bytes(make: &Make) -> u64 {
    match make {
        Make::File { replicas } => members_bytes(replicas),
        Make::Symlink { target } => target.as_bytes().len() as u64,
        Make::Directory | Make::Fifo | Make::Socket | Make::CharDevice { .. } | Make::BlockDevice { .. } => 0,
    }
}

const fn holders_bytes(holders: &[ClientId]) -> u64 {
    holders.len() as u64 * HOLDER_BYTES
}

const fn members_bytes(members: &Members) -> u64 {
    members.as_slice().len() as u64 * MEMBER_BYTES
}

const fn max(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}
