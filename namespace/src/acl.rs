//! Access control lists as POSIX.1e has them, and their bytes as the kernel hands them over in extended attributes.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::limits::ACL_ENTRIES_MAX;
use crate::{Inode, Rights, Who};

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OWNER: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
/// The id in entries that name nobody, and nobody's id.
const NOBODY: u32 = u32::MAX;

/// An access control list. Permissions are the three bits of a mode.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acl {
    owner: u16,
    users: Vec<(u32, u16)>,
    group: u16,
    groups: Vec<(u32, u16)>,
    mask: Option<u16>,
    other: u16,
}

/// Why bytes are no ACL. `EINVAL`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAcl {
    /// They do not begin or end as the kernel's layout does.
    #[error("an acl is a header of 4 bytes, of version 2, and entries of 8")]
    Layout,
    /// More than there can be.
    #[error("an acl of {entries} entries is too long; {} are possible", ACL_ENTRIES_MAX)]
    TooLong {
        /// How many there are.
        entries: usize,
    },
    /// An entry is none, or not where it should be, or there twice, or missing.
    #[error(
        "an acl has an owner, users, a group, groups, a mask if there are users or groups, and others, in this order"
    )]
    Entries,
}

/// Somebody whom an ACL names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AclId {
    /// A user.
    User(u32),
    /// A group.
    Group(u32),
}

/// The ACL that these bytes are, with what `map` makes of everybody whom it names. Bytes that are no ACL stay as they are: what
/// they are wanted for says why they are none.
pub fn map_acl<E>(bytes: &Bytes, mut map: impl FnMut(AclId) -> Result<u32, E>) -> Result<Bytes, E> {
    let Ok(Some(mut acl)) = Acl::parse(bytes) else { return Ok(bytes.clone()) };
    for (uid, _) in &mut acl.users {
        *uid = map(AclId::User(*uid))?;
    }
    for (gid, _) in &mut acl.groups {
        *gid = map(AclId::Group(*gid))?;
    }
    Ok(acl.to_bytes())
}

/// Entries that are yet to be read: tag, permissions, id.
struct Reader<'b> {
    entries: std::iter::Peekable<std::slice::ChunksExact<'b, u8>>,
}

impl Reader<'_> {
    /// The next entry, if it has this tag.
    fn next(&mut self, tag: u16) -> Result<Option<(u32, u16)>, NotAcl> {
        let is_it = |entry: &&[u8]| u16::from_le_bytes([entry[0], entry[1]]) == tag;
        let Some(entry) = self.entries.next_if(is_it) else { return Ok(None) };
        let permissions = u16::from_le_bytes([entry[2], entry[3]]);
        let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        if permissions > 7 { Err(NotAcl::Entries) } else { Ok(Some((id, permissions))) }
    }

    /// The one entry with this tag.
    fn one(&mut self, tag: u16) -> Result<u16, NotAcl> {
        self.next(tag)?.map(|(_, permissions)| permissions).ok_or(NotAcl::Entries)
    }

    /// All entries with this tag, each for somebody else.
    fn all(&mut self, tag: u16) -> Result<Vec<(u32, u16)>, NotAcl> {
        let (mut all, mut ids) = (Vec::new(), BTreeSet::new());
        while let Some((id, permissions)) = self.next(tag)? {
            if id == NOBODY || !ids.insert(id) {
                return Err(NotAcl::Entries);
            }
            all.push((id, permissions));
        }
        Ok(all)
    }
}

impl Acl {
    /// What these bytes are; none without entries.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Self>, NotAcl> {
        let (header, entries) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or(NotAcl::Layout)?;
        if u32::from_le_bytes(*header) != VERSION || !entries.len().is_multiple_of(ENTRY_BYTES) {
            return Err(NotAcl::Layout);
        }
        match entries.len() / ENTRY_BYTES {
            0 => return Ok(None),
            entries if entries > ACL_ENTRIES_MAX => return Err(NotAcl::TooLong { entries }),
            _ => {}
        }
        let mut reader = Reader { entries: entries.chunks_exact(ENTRY_BYTES).peekable() };
        let (owner, users) = (reader.one(OWNER)?, reader.all(USER)?);
        let (group, groups) = (reader.one(GROUP_OWNER)?, reader.all(GROUP)?);
        let mask = reader.next(MASK)?.map(|(_, permissions)| permissions);
        let acl = Self { owner, users, group, groups, mask, other: reader.one(OTHER)? };
        let is_unmasked = mask.is_none() && !(acl.users.is_empty() && acl.groups.is_empty());
        if reader.entries.next().is_some() || is_unmasked { Err(NotAcl::Entries) } else { Ok(Some(acl)) }
    }

    /// Its bytes.
    pub(crate) fn to_bytes(&self) -> Bytes {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        let mut put = |tag: u16, (id, permissions): (u32, u16)| {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(permissions.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        };
        put(OWNER, (NOBODY, self.owner));
        self.users.iter().for_each(|&user| put(USER, user));
        put(GROUP_OWNER, (NOBODY, self.group));
        self.groups.iter().for_each(|&group| put(GROUP, group));
        self.mask.into_iter().for_each(|mask| put(MASK, (NOBODY, mask)));
        put(OTHER, (NOBODY, self.other));
        bytes.into()
    }

    /// Whether it says no more than a mode does.
    pub(crate) fn is_mode(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty() && self.mask.is_none()
    }

    /// What it looks like as the nine bits of a mode: the group's are those that the mask leaves to anybody.
    pub(crate) fn mode(&self) -> u16 {
        self.owner << 6 | self.mask.unwrap_or(self.group) << 3 | self.other
    }

    /// It after the nine bits of the mode were set.
    pub(crate) fn with_mode(mut self, mode: u16) -> Self {
        self.owner = mode >> 6 & 7;
        *self.mask.as_mut().unwrap_or(&mut self.group) = mode >> 3 & 7;
        self.other = mode & 7;
        self
    }

    /// What a new inode gets whose directory has this as its default, if it was asked for with `mode`: no more than both say.
    pub(crate) fn inherited(self, mode: u16) -> Self {
        let both = self.mode() & mode;
        self.with_mode(both)
    }

    /// Whether somebody may do this to an inode with this ACL. Root is not asked about here.
    pub(crate) fn allows(&self, inode: &Inode, who: &Who, rights: Rights) -> bool {
        let wanted = rights.bits();
        let grants = |permissions: u16| wanted & !permissions == 0;
        let mask = self.mask.unwrap_or(7);
        if who.uid() == inode.uid {
            return grants(self.owner);
        }
        if let Some(&(_, permissions)) = self.users.iter().find(|&&(uid, _)| uid == who.uid()) {
            return grants(permissions & mask);
        }
        let own = who.is_in(inode.gid).then_some(self.group);
        let named =
            self.groups.iter().filter(|&&(gid, _)| who.is_in(gid)).map(|&(_, permissions)| permissions);
        let mut groups = own.into_iter().chain(named).peekable();
        if groups.peek().is_some() {
            return groups.any(|permissions| grants(permissions & mask));
        }
        grants(self.other)
    }
}
