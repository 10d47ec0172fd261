//! Identities: nodes, their incarnations, objects, epochs and positions in a log.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A storage daemon, named once in the cluster map and never reused: a lost disk gets a new id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// Counts the starts of one node's store; every start has a higher one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation(pub u32);

/// One run of one daemon: what a lease belongs to and what a death notice names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// The daemon.
    pub node: NodeId,
    /// Which of its runs.
    pub incarnation: Incarnation,
}

/// A replicated object: a file, a volume's namespace, the cluster map, a named lock.
///
/// Two words instead of a `u128`, so that a register needs no 16-byte alignment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// The more significant half: for a file, the epoch number of the namespace that created it.
    pub high: u64,
    /// The less significant half: for a file, the number of the entry that created it.
    pub low: u64,
}

/// The tenure of one primary; numbers only grow and the node breaks ties.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Epoch {
    /// Grows with every tenure, also of the same node.
    pub number: u64,
    /// Whose tenure it is.
    pub node: NodeId,
}

/// The position of an entry in one object's log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Seq(pub u64);

impl Process {
    /// The process that is incarnation `incarnation` of node `node`.
    pub const fn new(node: u32, incarnation: u32) -> Self {
        Self { node: NodeId(node), incarnation: Incarnation(incarnation) }
    }
}

impl ObjectId {
    /// An id from its two halves.
    pub const fn new(high: u64, low: u64) -> Self {
        Self { high, low }
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{:?}", self.node, self.incarnation)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:x}", self.high, self.low)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}.{}", self.number, self.node.0)
    }
}

impl fmt::Debug for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}
