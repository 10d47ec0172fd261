//! Identities: nodes, their incarnations, objects, epochs and positions in a log.

use std::fmt;
use std::str::FromStr;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A storage daemon, named once in the cluster map and never reused: a lost disk gets a new id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct NodeId(pub u32);

/// Counts the starts of one node's store; every start has a higher one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Incarnation(pub u32);

/// One run of one daemon: what a lease belongs to and what a death notice names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Process {
    /// The daemon.
    pub node: NodeId,
    /// Which of its runs.
    pub incarnation: Incarnation,
}

/// One start of a daemon. The nonce tells it from a start with the same number of a copied data directory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct StartId {
    /// Which.
    pub incarnation: Incarnation,
    /// The number it drew.
    pub nonce: u64,
}

/// Runs of one node that are known to be gone: the first, the last, and all between.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Dead {
    /// The daemon.
    pub node: NodeId,
    /// The first of them. A run before it may be alive, on a machine that has a copy of the data directory.
    pub first: Incarnation,
    /// The last of them.
    pub last: Incarnation,
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

/// One run of one client program: the daemon takes the first half from the certificate, so nobody can name another's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClientId {
    /// A digest of the client's certificate.
    pub certificate: u64,
    /// A number that the program drew at random.
    pub program: u64,
}

/// The tenure of one primary; numbers only grow and the node breaks ties.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Epoch {
    /// Grows with every tenure, also of the same node.
    pub number: u64,
    /// Whose tenure it is.
    pub node: NodeId,
}

/// A cluster, named at random when it was made: nodes of two clusters never take each other for a peer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub [u8; 16]);

/// A formatted data directory, named at random: an emptied one comes back under another id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId(pub [u8; 16]);

/// The position of an entry in one object's log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Seq(pub u64);

impl Process {
    /// The process that is incarnation `incarnation` of node `node`.
    pub const fn new(node: u32, incarnation: u32) -> Self {
        Self { node: NodeId(node), incarnation: Incarnation(incarnation) }
    }
}

impl Dead {
    /// This run and all before it.
    pub const fn up_to(Process { node, incarnation }: Process) -> Self {
        Self { node, first: Incarnation(0), last: incarnation }
    }

    /// Whether `process` is among them.
    pub fn contains(&self, process: Process) -> bool {
        process.node == self.node && (self.first..=self.last).contains(&process.incarnation)
    }

    /// What is known when `other` of the same node are reported too. If runs between the two are not known to be
    /// gone, the earlier ones are forgotten: to wait for the end of their leases is always right.
    pub fn and(self, other: Self) -> Self {
        let (early, late) = if self.last <= other.last { (self, other) } else { (other, self) };
        let touch = late.first.0 <= early.last.0.saturating_add(1);
        Self { first: if touch { early.first.min(late.first) } else { late.first }, ..late }
    }
}

impl ObjectId {
    /// An id from its two halves.
    pub const fn new(high: u64, low: u64) -> Self {
        Self { high, low }
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{:x}.{:x}", self.certificate, self.program)
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

/// Ids of 16 bytes are shown, and read from files, as 32 hexadecimal digits. In messages they are their bytes.
macro_rules! hexadecimal {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = HexError;

            fn from_str(text: &str) -> Result<Self, HexError> {
                let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                let number = u128::from_str_radix(text, 16).ok().filter(|_| is_hex).ok_or(HexError)?;
                Ok(Self(number.to_be_bytes()))
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                if serializer.is_human_readable() {
                    serializer.collect_str(self)
                } else {
                    self.0.serialize(serializer)
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                if deserializer.is_human_readable() {
                    String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
                } else {
                    <[u8; 16]>::deserialize(deserializer).map(Self)
                }
            }
        }
    };
}
hexadecimal!(ClusterId);
hexadecimal!(StoreId);

/// A text that is not 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HexError;

impl fmt::Display for HexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an id is 32 hexadecimal digits")
    }
}

impl std::error::Error for HexError {}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_ids_read_as_they_are_written() {
        let id = ClusterId(*b"0123456789abcdef");
        assert_eq!(id.to_string().parse(), Ok(id));
        for text in ["", "+0000000000000000000000000000001", "0", "0g000000000000000000000000000000"] {
            assert_eq!(text.parse::<StoreId>(), Err(HexError), "{text}");
        }
    }

    #[test]
    fn the_dead_are_joined_where_they_touch() {
        let dead = |first, last| Dead { node: NodeId(1), first: Incarnation(first), last: Incarnation(last) };
        assert_eq!(dead(2, 3).and(dead(4, 5)), dead(2, 5));
        assert_eq!(dead(4, 5).and(dead(2, 3)), dead(2, 5), "in whatever order they are told");
        assert_eq!(dead(1, 5).and(dead(2, 3)), dead(1, 5));
        assert_eq!(dead(2, 3).and(dead(1, 3)), dead(1, 3));
        assert_eq!(dead(1, 2).and(dead(4, 5)), dead(4, 5), "3 may be alive");
        assert_eq!(dead(4, 5).and(dead(1, 2)), dead(4, 5));
        let range = dead(2, 3);
        assert!([2, 3].iter().all(|&i| range.contains(Process::new(1, i))));
        assert!(
            ![1, 4].iter().any(|&i| range.contains(Process::new(1, i)))
                && !range.contains(Process::new(2, 2))
        );
    }
}
