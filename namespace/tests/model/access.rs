//! Who may do what: modes and ACLs, as `path_resolution(7)` and `acl(5)` tell it.

use std::collections::BTreeMap;

use bytes::Bytes;
use namespace::{InodeId, NameError, NotAcl, Rights, Who};

use crate::state::Node;

const OWNER: u16 = 1;
const USER: u16 = 2;
const GROUP_OWNER: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHER: u16 = 32;

/// An access control list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acl {
    pub(crate) owner: u16,
    pub(crate) users: BTreeMap<u32, u16>,
    pub(crate) group: u16,
    pub(crate) groups: BTreeMap<u32, u16>,
    pub(crate) mask: Option<u16>,
    pub(crate) other: u16,
}

impl Acl {
    /// As the kernel hands it over: a version, then a tag, permissions and an id for each entry.
    pub(crate) fn to_bytes(&self) -> Bytes {
        let mut entries = vec![(OWNER, self.owner, u32::MAX)];
        entries.extend(self.users.iter().map(|(&id, &bits)| (USER, bits, id)));
        entries.push((GROUP_OWNER, self.group, u32::MAX));
        entries.extend(self.groups.iter().map(|(&id, &bits)| (GROUP, bits, id)));
        entries.extend(self.mask.map(|bits| (MASK, bits, u32::MAX)));
        entries.push((OTHER, self.other, u32::MAX));
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(bits.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes.into()
    }

    /// Nothing if there are no entries.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Self>, NotAcl> {
        if bytes.len() < 4 || bytes.len() % 8 != 4 || bytes[..4] != 2u32.to_le_bytes() {
            return Err(NotAcl::Layout);
        }
        if bytes.len() == 4 {
            return Ok(None);
        }
        let mut all: BTreeMap<(u16, u32), u16> = BTreeMap::new();
        let mut tags = Vec::new();
        for entry in bytes[4..].chunks(8) {
            let tag = u16::from_le_bytes([entry[0], entry[1]]);
            let bits = u16::from_le_bytes([entry[2], entry[3]]);
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            let id = if tag == USER || tag == GROUP { id } else { u32::MAX };
            tags.push(tag);
            if bits > 7 || all.insert((tag, id), bits).is_some() {
                return Err(NotAcl::Entries);
            }
        }
        let one = |tag| all.get(&(tag, u32::MAX)).copied();
        let named = |wanted| -> BTreeMap<u32, u16> {
            all.iter().filter(|((tag, _), _)| *tag == wanted).map(|(&(_, id), &bits)| (id, bits)).collect()
        };
        let (users, groups, mask) = (named(USER), named(GROUP), one(MASK));
        let is_known = tags.iter().all(|tag| [OWNER, USER, GROUP_OWNER, GROUP, MASK, OTHER].contains(tag));
        let needs_mask = !users.is_empty() || !groups.is_empty();
        match (one(OWNER), one(GROUP_OWNER), one(OTHER)) {
            (Some(owner), Some(group), Some(other))
                if is_known && tags.is_sorted() && (mask.is_some() || !needs_mask) =>
            {
                Ok(Some(Self { owner, users, group, groups, mask, other }))
            }
            _ => Err(NotAcl::Entries),
        }
    }

    pub(crate) fn of_mode(mode: u16) -> Self {
        let (users, groups) = (BTreeMap::new(), BTreeMap::new());
        Self { owner: mode >> 6 & 7, users, group: mode >> 3 & 7, groups, mask: None, other: mode & 7 }
    }

    /// The nine bits that a mode shows of it.
    pub(crate) fn mode(&self) -> u16 {
        self.owner << 6 | self.mask.unwrap_or(self.group) << 3 | self.other
    }

    /// Sets the nine bits.
    pub(crate) fn chmod(&mut self, mode: u16) {
        self.owner = mode >> 6 & 7;
        *self.mask.as_mut().unwrap_or(&mut self.group) = mode >> 3 & 7;
        self.other = mode & 7;
    }

    /// It, if a mode cannot say the same.
    pub(crate) fn unless_mode(self) -> Option<Self> {
        (self != Self::of_mode(self.mode())).then_some(self)
    }

    /// The first of the owner, a named user, the groups taken together, and the others that fits decides.
    fn allows(&self, owner: (u32, u32), who: &Who, want: u16) -> bool {
        let mask = self.mask.unwrap_or(7);
        let has = |bits: u16| bits & want == want;
        if who.uid() == owner.0 {
            return has(self.owner);
        }
        if let Some(bits) = self.users.get(&who.uid()) {
            return has(bits & mask);
        }
        let mut groups: Vec<u16> =
            self.groups.iter().filter(|(gid, _)| who.is_in(**gid)).map(|(_, bits)| *bits).collect();
        if who.is_in(owner.1) {
            groups.push(self.group);
        }
        if groups.is_empty() { has(self.other) } else { groups.iter().any(|bits| has(bits & mask)) }
    }
}

impl Node {
    /// Whether the mode and the ACL allow it. Root is only kept from executing what nobody may.
    pub(crate) fn allows(&self, who: &Who, rights: Rights) -> bool {
        if who.is_root() {
            return !rights.execute || self.is_directory() || self.mode & 0o111 != 0;
        }
        let acl = self.acl.clone().unwrap_or_else(|| Acl::of_mode(self.mode));
        acl.allows((self.uid, self.gid), who, rights.bits())
    }

    pub(crate) fn need(&self, who: &Who, rights: Rights, inode: InodeId) -> Result<(), NameError> {
        if self.allows(who, rights) { Ok(()) } else { Err(NameError::Denied { inode }) }
    }

    /// Whether somebody may do what is the owner's.
    pub(crate) fn is_owned_by(&self, who: &Who) -> bool {
        who.is_root() || who.uid() == self.uid
    }

    pub(crate) fn need_owner(&self, who: &Who, inode: InodeId) -> Result<(), NameError> {
        if self.is_owned_by(who) { Ok(()) } else { Err(NameError::NotPermitted { inode }) }
    }
}
