//! Views: which nodes replicate an object at a time.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Epoch, NodeId, Seq};

/// The most members a view can have; votes are counted in a 16-bit mask.
pub const MEMBERS_MAX: usize = 15;
const _: () = assert!(MEMBERS_MAX <= 16, "a vote mask has one bit for each member");

/// The identity of a view: the `(epoch, seq)` of the log entry that created it. Later views are greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct ViewId {
    /// The epoch of the entry.
    pub epoch: Epoch,
    /// Its position in the log.
    pub seq: Seq,
}

/// The members of a view: sorted, distinct, between 1 and [`MEMBERS_MAX`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Members(Box<[NodeId]>);

/// Who replicates an object, and since which entry.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct View {
    /// The entry that made this view.
    pub id: ViewId,
    /// Who is in it.
    pub members: Members,
}

/// Why a list of nodes cannot be the members of a view.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MembersError {
    /// A view needs a member.
    Empty,
    /// More than [`MEMBERS_MAX`].
    TooMany(usize),
    /// A node is listed twice.
    Twice(NodeId),
}

impl Members {
    /// Checks and sorts the list.
    pub fn new(nodes: impl IntoIterator<Item = NodeId>) -> Result<Self, MembersError> {
        let mut nodes: Vec<NodeId> = nodes.into_iter().collect();
        nodes.sort_unstable();
        if let Some(pair) = nodes.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(MembersError::Twice(pair[0]));
        }
        match nodes.len() {
            0 => Err(MembersError::Empty),
            count if count > MEMBERS_MAX => Err(MembersError::TooMany(count)),
            _ => Ok(Self(nodes.into_boxed_slice())),
        }
    }

    /// The members in ascending order.
    pub const fn as_slice(&self) -> &[NodeId] {
        &self.0
    }

    /// The place of `node` among the members, which is its bit in a vote mask.
    pub fn position(&self, node: NodeId) -> Option<usize> {
        self.0.iter().position(|&member| member == node)
    }

    /// Whether `node` is a member.
    pub fn contains(&self, node: NodeId) -> bool {
        self.position(node).is_some()
    }

    /// How many members are more than half of them.
    pub const fn majority(&self) -> usize {
        self.0.len() / 2 + 1
    }
}

impl fmt::Debug for ViewId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v({:?},{:?})", self.epoch, self.seq)
    }
}

impl fmt::Display for MembersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "a view needs at least one member"),
            Self::TooMany(count) => {
                write!(f, "a view can have {MEMBERS_MAX} members at most, not {count}: choose fewer replicas")
            }
            Self::Twice(node) => write!(f, "node {node} is listed twice: name each member once"),
        }
    }
}

impl std::error::Error for MembersError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_sorted_and_counted_by_majority() {
        let members = Members::new([NodeId(3), NodeId(1), NodeId(2)]).unwrap();
        assert_eq!(members.as_slice(), [NodeId(1), NodeId(2), NodeId(3)]);
        assert_eq!((members.majority(), members.position(NodeId(3))), (2, Some(2)));
        assert_eq!(Members::new((0..4).map(NodeId)).unwrap().majority(), 3);
    }

    #[test]
    fn impossible_member_lists_are_refused() {
        assert_eq!(Members::new([]), Err(MembersError::Empty));
        assert_eq!(Members::new([NodeId(1), NodeId(1)]), Err(MembersError::Twice(NodeId(1))));
        assert_eq!(Members::new((0..16).map(NodeId)), Err(MembersError::TooMany(16)));
    }
}
