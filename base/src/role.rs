//! Who somebody is by certificate: what the cluster's authority vouches for.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::NodeId;

/// The longest name of a client or an administrator.
pub const NAME_LEN_MAX: usize = 64;

/// What a certificate of the cluster's authority allows its holder to be.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Role {
    /// A storage daemon: the only one that lease messages and messages between replicas are accepted from.
    Node(NodeId),
    /// The parent of a storage daemon's process: may report that process's death, and nothing else.
    Supervisor(NodeId),
    /// A user's program or mount.
    Client(Name),
    /// An operator: a client that may also ask for what concerns the whole cluster.
    Admin(Name),
}

/// The name of a client or an administrator: 1 to [`NAME_LEN_MAX`] of `a-z A-Z 0-9 . _ -`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

/// Why a text is no role or no name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RoleError {
    /// Not `KIND/WHO` with a kind that exists.
    Kind(String),
    /// A node is named by a number.
    Node(String),
    /// Empty, too long, or with other characters.
    Name(String),
}

impl Role {
    /// The node whose daemon or supervisor this is.
    pub const fn node(&self) -> Option<NodeId> {
        match self {
            Self::Node(node) | Self::Supervisor(node) => Some(*node),
            Self::Client(_) | Self::Admin(_) => None,
        }
    }
}

impl Name {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = RoleError;

    fn try_from(text: String) -> Result<Self, RoleError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let is_name = (1..=NAME_LEN_MAX).contains(&text.len()) && text.bytes().all(allowed);
        if is_name { Ok(Self(text)) } else { Err(RoleError::Name(text)) }
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl FromStr for Name {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        Self::try_from(text.to_owned())
    }
}

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        let (kind, who) = text.split_once('/').ok_or_else(|| RoleError::Kind(text.to_owned()))?;
        let node = || who.parse().map(NodeId).map_err(|_| RoleError::Node(who.to_owned()));
        match kind {
            "node" => Ok(Self::Node(node()?)),
            "supervisor" => Ok(Self::Supervisor(node()?)),
            "client" => Ok(Self::Client(who.parse()?)),
            "admin" => Ok(Self::Admin(who.parse()?)),
            _ => Err(RoleError::Kind(text.to_owned())),
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => write!(f, "node/{node}"),
            Self::Supervisor(node) => write!(f, "supervisor/{node}"),
            Self::Client(name) => write!(f, "client/{name}"),
            Self::Admin(name) => write!(f, "admin/{name}"),
        }
    }
}

impl fmt::Display for RoleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(text) => {
                write!(f, "`{text}` is no role: use node/ID, supervisor/ID, client/NAME or admin/NAME")
            }
            Self::Node(text) => write!(f, "`{text}` is no node id: use a number"),
            Self::Name(text) => {
                write!(
                    f,
                    "`{text}` is no name: use 1 to {NAME_LEN_MAX} letters, digits, dots, dashes or underscores"
                )
            }
        }
    }
}

impl std::error::Error for RoleError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_read_as_they_are_written() {
        for text in ["node/3", "supervisor/0", "client/build-7", "admin/root"] {
            assert_eq!(text.parse::<Role>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_role_is_refused() {
        for text in ["", "node", "node/", "node/-1", "node/x", "Node/1", "client/", "client/a/b", "root/x"] {
            assert!(text.parse::<Role>().is_err(), "{text}");
        }
        assert!(Name::try_from("a".repeat(NAME_LEN_MAX + 1)).is_err());
    }
}
