//! Who may use which volume, and as whom: the rules that an operator writes into the cluster map.
//!
//! - The first rule that names both the client and the volume counts, and no other one.
//! - Without any rule every client with a certificate of the cluster may use every volume, and is believed whom it
//!   works for: somebody issued the certificate.
//! - With rules, whom none names is refused.
//!
//! A user's number is what the client's machine says. [`Export::who`] makes of it whom the volume knows: ranges first,
//! then root is squashed, so that under `squash = "root"` nobody is root whatever the ranges say.
//!
//! # What is deliberately absent
//!
//! Where a path leads: whoever walks a tree asks [`ExportPath`]. What the service itself does to a volume: no rule is
//! asked about that.

mod allowed;
mod ids;
mod path;
mod written;

use std::collections::BTreeSet;
use std::fmt;

use base::Role;
use namespace::{GROUPS_MAX, TooManyGroups, Who};
use serde::Deserialize;

pub use allowed::{ChangeKind, ExportRefusal, change_kind, is_for_clients};
use ids::IdMap;
pub use ids::{ID_RANGES_MAX, IdMapError, IdRange};
pub use path::{EXPORT_PATH_BYTES_MAX, ExportPath, ExportPathError};
pub(crate) use written::WrittenExport;
pub use written::{EXPORT_CLIENTS_MAX, EXPORTS_MAX, ExportError, ExportsError};

use crate::VolumeName;

/// Whom squashed users and groups are, unless the rule says otherwise: `nobody` on most systems.
pub const ANONYMOUS_DEFAULT: u32 = 65_534;

/// The rules of a cluster, in their order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Exports {
    rules: Vec<Export>,
}

/// What one rule gives to clients, checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// Of which volume; of any, if there is none.
    volume: Option<VolumeName>,
    /// To whom; to all, if there is none.
    clients: Option<BTreeSet<Role>>,
    path: ExportPath,
    access: ExportAccess,
    squash: Squash,
    anonymous_uid: u32,
    anonymous_gid: u32,
    uids: IdMap,
    gids: IdMap,
}

/// What clients may do in a volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub enum ExportAccess {
    /// Read and write.
    #[serde(rename = "rw")]
    ReadWrite,
    /// Read, and lock.
    #[serde(rename = "ro")]
    ReadOnly,
}

/// Who is made anonymous.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Squash {
    /// Nobody: root at the client is root in the volume.
    None,
    /// Root, and the group of root.
    #[default]
    Root,
    /// Everybody.
    All,
}

/// No rule lets a client use a volume. `EACCES`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "no rule under [[exports]] lets {client} use the volume {volume}; add one to the cluster map and raise its `version`"
)]
pub struct NotExported {
    /// Who asked.
    pub client: Role,
    /// For what.
    pub volume: VolumeName,
}

/// What there is where no rules are.
static EVERYTHING: Export = Export {
    volume: None,
    clients: None,
    path: ExportPath::ROOT,
    access: ExportAccess::ReadWrite,
    squash: Squash::None,
    anonymous_uid: ANONYMOUS_DEFAULT,
    anonymous_gid: ANONYMOUS_DEFAULT,
    uids: IdMap::NONE,
    gids: IdMap::NONE,
};

impl Exports {
    /// What `client`, as its certificate says, may do with `volume`. Daemons and supervisors use none.
    pub fn find(&self, client: &Role, volume: &VolumeName) -> Result<&Export, NotExported> {
        let found = match client {
            Role::Node(_) | Role::Supervisor(_) => None,
            Role::Client(_) | Role::Admin(_) if self.rules.is_empty() => Some(&EVERYTHING),
            Role::Client(_) | Role::Admin(_) => self.rules.iter().find(|rule| rule.names(client, volume)),
        };
        found.ok_or_else(|| NotExported { client: client.clone(), volume: volume.clone() })
    }

    /// What everybody may do with the list of all volumes, as far as it is asked.
    pub(crate) const fn everything() -> &'static Export {
        &EVERYTHING
    }

    /// The rules in their order.
    pub fn rules(&self) -> &[Export] {
        &self.rules
    }
}

impl Export {
    /// Whether the rule is about this client and this volume.
    fn names(&self, client: &Role, volume: &VolumeName) -> bool {
        self.volume.as_ref().is_none_or(|own| own == volume)
            && self.clients.as_ref().is_none_or(|own| own.contains(client))
    }

    /// Whether the rule names all that `other` does, so that `other` never counts behind it.
    fn covers(&self, other: &Self) -> bool {
        let has_clients = match (&self.clients, &other.clients) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(own), Some(others)) => others.is_subset(own),
        };
        has_clients && (self.volume.is_none() || self.volume == other.volume)
    }

    /// The directory of the volume that is its root for the client.
    pub const fn path(&self) -> &ExportPath {
        &self.path
    }

    /// Whether the client may write.
    pub const fn access(&self) -> ExportAccess {
        self.access
    }

    /// Whom the volume takes somebody for of whom the client says that it is user `uid` of the group `gid` and of others.
    /// A number that means nobody in the volume is the anonymous one.
    pub fn who(&self, uid: u32, gid: u32, groups: &[u32]) -> Result<Who, TooManyGroups> {
        if groups.len() > GROUPS_MAX {
            return Err(TooManyGroups { count: groups.len() });
        }
        let squashed = |stored: Option<u32>, anonymous| match (stored, self.squash) {
            (None, _) | (Some(0), Squash::Root) => anonymous,
            (Some(stored), _) => stored,
        };
        if self.squash == Squash::All {
            return Who::new(self.anonymous_uid, self.anonymous_gid, &[]);
        }
        let group = |gid| squashed(self.gids.stored(gid), self.anonymous_gid);
        let groups: Vec<u32> = groups.iter().map(|&gid| group(gid)).collect();
        Who::new(squashed(self.uids.stored(uid), self.anonymous_uid), group(gid), &groups)
    }

    /// The user in the volume that the client's `uid` names as an owner or in an ACL. None if it can name nobody there:
    /// `EINVAL`.
    pub fn stored_uid(&self, uid: u32) -> Option<u32> {
        self.uids.stored(uid)
    }

    /// The same for a group.
    pub fn stored_gid(&self, gid: u32) -> Option<u32> {
        self.gids.stored(gid)
    }

    /// Whether the client's users have the same numbers in the volume, so that who judges what users may do there by the numbers at the client
    /// comes to the same. Root may become any of them there, whoever it is taken for here.
    pub fn has_same_ids(&self) -> bool {
        self.squash != Squash::All && self.uids == IdMap::NONE && self.gids == IdMap::NONE
    }

    /// How the client is shown the user `uid` of the volume: the anonymous one if no user of the client is that.
    pub fn shown_uid(&self, uid: u32) -> u32 {
        self.uids.shown(uid).unwrap_or(self.anonymous_uid)
    }

    /// The same for a group.
    pub fn shown_gid(&self, gid: u32) -> u32 {
        self.gids.shown(gid).unwrap_or(self.anonymous_gid)
    }
}

impl ExportAccess {
    /// Its name in a map.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadWrite => "rw",
            Self::ReadOnly => "ro",
        }
    }
}

impl Squash {
    /// Its name in a map.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Root => "root",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Exports {
    /// As in a map, each rule with a blank line above.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.rules.iter().try_for_each(|rule| written::write(rule, f))
    }
}

#[cfg(test)]
mod tests;
