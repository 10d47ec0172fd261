//! Who asks for something, and what is asked to be allowed.

use std::fmt;

/// A caller has no more groups beside its first.
pub const GROUPS_MAX: usize = 32;

/// On whose behalf something is done, as the caller's machine says and the export's rules have mapped it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Who {
    uid: u32,
    gid: u32,
    groups: Box<[u32]>,
}

/// Too many groups. `EINVAL`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{count} groups beside the first are too many; name {GROUPS_MAX} at most")]
pub struct TooManyGroups {
    /// How many.
    pub count: usize,
}

/// What somebody wants to do with an inode, or may.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Rights {
    /// To read it: its content, the list of its names.
    pub read: bool,
    /// To write it: its content, its entries.
    pub write: bool,
    /// To execute it, or to look for names in it.
    pub execute: bool,
}

impl Who {
    /// Nobody is refused less.
    pub fn root() -> Self {
        Self { uid: 0, gid: 0, groups: Box::default() }
    }

    /// A user, its first group and its other ones.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Result<Self, TooManyGroups> {
        if groups.len() > GROUPS_MAX {
            return Err(TooManyGroups { count: groups.len() });
        }
        Ok(Self { uid, gid, groups: groups.into() })
    }

    /// The user.
    pub const fn uid(&self) -> u32 {
        self.uid
    }

    /// The first group, which what it creates belongs to.
    pub const fn gid(&self) -> u32 {
        self.gid
    }

    /// Its other groups.
    pub const fn groups(&self) -> &[u32] {
        &self.groups
    }

    /// Whether rules do not bind it.
    pub const fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether it belongs to a group.
    pub fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

impl Rights {
    /// To read.
    pub const READ: Self = Self { read: true, write: false, execute: false };
    /// To write.
    pub const WRITE: Self = Self { read: false, write: true, execute: false };
    /// To execute, or to search.
    pub const EXECUTE: Self = Self { read: false, write: false, execute: true };
    /// To change the entries of a directory.
    pub const CHANGE: Self = Self { read: false, write: true, execute: true };

    /// As the three lowest bits of a mode.
    pub const fn bits(self) -> u16 {
        (self.read as u16) << 2 | (self.write as u16) << 1 | self.execute as u16
    }

    /// From the three lowest bits of a mode. Others are not looked at.
    pub const fn from_bits(bits: u16) -> Self {
        Self { read: bits & 4 != 0, write: bits & 2 != 0, execute: bits & 1 != 0 }
    }
}

impl fmt::Debug for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}{:?}", self.uid, self.gid, self.groups)
    }
}
