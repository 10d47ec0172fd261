//! Layout: what is asked about a tree, and the answers.

use base::{ClientId, Members};
use namespace::limits::{
    ATTRIBUTES_BYTES, LISTED_BYTES, PAGE_BYTES_MAX, PAGE_MAX, XATTR_BYTES_MAX, XATTRS_MAX,
};
use namespace::{Answer, Ask, Attributes, ClientState, InodeId, Listed, Page, Query, XattrName};

use super::check_value;
use crate::DecodeError;
use crate::field::{Element, Field, Sink, Source, choice, grow, record};

record!(Query { who, ask });
choice!(Ask, "a question about a tree":
    0 Lookup { dir, name };
    1 Attributes { inode };
    2 List { dir, after, entries_max, with_attributes };
    3 Readlink { inode };
    4 GetXattr { inode, name };
    5 ListXattrs { inode };
    6 Access { inode, rights };
    7 Statfs;
    8 TestLock { inode, lock };
    9 Locks { inode };
    10 Orphans { after };
    11 Doomed { after };
    12 Clients { after };
    13 Holds { client, after };
    14 Wish { inode, lock, ticket };
);

choice!(Answer, "an answer about a tree", check_answer:
    0 Attributes(attributes);
    1 Page(page);
    2 Target(target);
    3 Value(value);
    4 Names(names);
    5 Volume(volume);
    6 InTheWay(lock);
    7 Locks(locks);
    8 Inodes(inodes);
    9 Doomed(doomed);
    10 Clients(clients);
    11 Wish(wish);
);
record!(Page { entries, is_last }, check_page);
record!(Listed { name, inode, kind, attributes }, check_listed);

fn check_answer(answer: &Answer) -> Result<(), DecodeError> {
    let is_in_order = match answer {
        Answer::Attributes(_) | Answer::Page(_) | Answer::Target(_) => true,
        Answer::Volume(_) | Answer::Locks(_) | Answer::Wish(_) => true,
        Answer::Value(value) => return check_value(value),
        Answer::InTheWay(lock) => return check_in_the_way(lock.as_ref()),
        Answer::Names(names) => {
            let bytes: usize = names.iter().map(|name| name.as_bytes().len()).sum();
            bytes as u64 <= XATTR_BYTES_MAX && grow(names.iter())
        }
        Answer::Inodes(inodes) => grow(inodes.iter()),
        Answer::Doomed(doomed) => grow(doomed.iter().map(|(inode, _)| inode)),
        Answer::Clients(clients) => grow(clients.iter().map(|(client, _)| client)),
    };
    if is_in_order { Ok(()) } else { Err(DecodeError::Impossible("an answer that is not in order")) }
}

/// Whoever has a lock has one that can be.
fn check_in_the_way(lock: Option<&namespace::Lock>) -> Result<(), DecodeError> {
    if lock.is_none_or(namespace::Lock::is_sound) {
        Ok(())
    } else {
        Err(DecodeError::Impossible("a lock of no stretch"))
    }
}

/// A page is in order, and no longer than a page is made.
fn check_page(page: &Page) -> Result<(), DecodeError> {
    let cost = |listed: &Listed| {
        let attributes = if listed.attributes.is_some() { ATTRIBUTES_BYTES } else { 0 };
        LISTED_BYTES + listed.name.as_bytes().len() + attributes
    };
    let is_page = page.entries.iter().map(cost).sum::<usize>() <= PAGE_BYTES_MAX
        && grow(page.entries.iter().map(|listed| &listed.name));
    if is_page { Ok(()) } else { Err(DecodeError::Impossible("names that are no page of a directory")) }
}

/// Attributes are those of what is listed.
fn check_listed(listed: &Listed) -> Result<(), DecodeError> {
    let is_its = |attributes: &Attributes| (attributes.inode, attributes.kind) == (listed.inode, listed.kind);
    if listed.attributes.as_ref().is_none_or(is_its) {
        Ok(())
    } else {
        Err(DecodeError::Impossible("attributes of another inode than is listed"))
    }
}

/// Directories that a change has named: those of two names, and what the names are of.
impl Element for Attributes {
    const COUNT_MAX: usize = 4;
    const BYTES_MIN: usize = 18;
}

impl Element for Listed {
    const COUNT_MAX: usize = PAGE_BYTES_MAX / (LISTED_BYTES + 1);
    const BYTES_MIN: usize = 7;
}

impl Element for XattrName {
    const COUNT_MAX: usize = XATTRS_MAX as usize;
    // The shortest is `user.` and a letter.
    const BYTES_MIN: usize = 7;
}

impl Element for InodeId {
    const COUNT_MAX: usize = PAGE_MAX;
    const BYTES_MIN: usize = 3;
}

/// What is doomed, and who has its data.
impl Element for (InodeId, Members) {
    const COUNT_MAX: usize = PAGE_MAX;
    const BYTES_MIN: usize = 5;
}

impl Element for (ClientId, ClientState) {
    const COUNT_MAX: usize = PAGE_MAX;
    const BYTES_MIN: usize = 3;
}
