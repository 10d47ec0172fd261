//! Layout: how the two ends of a connection introduce themselves.
//!
//! Each side sends a [`Hello`] first, and answers the other's with a [`Welcome`] or a [`Refusal`]. The header of a
//! hello and everything of a refusal stay the same in all versions of the protocol, so that programs of different
//! versions can tell each other so.

use std::fmt;

use base::{ClusterId, NodeId, Process, StartId, StoreId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::DecodeError;
use crate::codec::{Body, append, read_all};
use crate::field::Sink;
use crate::kind::{Kind, REFUSAL_TEXT_BYTES_MAX, Sender};

/// Who we are, and what we have to agree on. The version of the protocol is in the frame's header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The cluster.
    pub cluster: ClusterId,
    /// The version of our cluster map.
    pub map_version: u64,
    /// The digest of our cluster map.
    pub map_digest: [u8; 32],
    /// Who we are; it has to fit the certificate.
    pub who: Introduction,
}

/// What differs between those who may connect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Introduction {
    /// A storage daemon.
    Node(NodeIntroduction),
    /// The parent of a node's daemon.
    Supervisor(NodeId),
    /// A client or an administrator.
    Client {
        /// The number that the program drew when it started.
        program: u64,
    },
}

/// What a storage daemon says of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NodeIntroduction {
    /// Which run of which node.
    pub process: Process,
    /// The data directory.
    pub store: StoreId,
    /// The number that this start drew at random and appended to the data directory's chain.
    pub nonce: u64,
    /// The first start of the line that this one belongs to. The starts of a line had the lock of one and the same
    /// data directory under one run of one kernel, so each of them proves that those before it are gone.
    pub line: StartId,
    /// The last start of the receiver that this node knows of. The receiver finds it in its own chain, unless its
    /// data directory was set back.
    pub knows: Option<StartId>,
}

/// The other side may come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Welcome;

/// The other side may not come in. The connection ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    why: Why,
    text: String,
}

/// Why somebody may not come in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// It speaks another version of the protocol.
    Version,
    /// It belongs to another cluster.
    Cluster,
    /// It has another cluster map.
    Map,
    /// Its certificate is on the list of those denied.
    Denied,
    /// The cluster map has no such node.
    UnknownNode,
    /// The node has another data directory than it used to have.
    AnotherStore,
    /// A run of the node with this or a higher incarnation was here before.
    OldIncarnation,
    /// The node's data directory was set back to an earlier state.
    RestoredStore,
    /// As many clients are connected as the limit allows.
    TooManyClients,
    /// This daemon is stopping.
    Stopping,
    /// What it says of itself does not fit its certificate, or it broke the protocol.
    Protocol,
    /// A reason that only later versions know.
    Other(u8),
}

impl Refusal {
    /// A refusal with a text for people: what is wrong and what to do. A text that is too long is cut, and control
    /// characters become spaces, because it ends up in logs and on terminals.
    pub fn new(why: Why, text: &str) -> Self {
        let mut kept = String::new();
        for char in text.chars().map(|char| if char.is_control() { ' ' } else { char }) {
            if kept.len() + char.len_utf8() > REFUSAL_TEXT_BYTES_MAX as usize {
                break;
            }
            kept.push(char);
        }
        Self { why, text: kept }
    }

    /// Why.
    pub const fn why(&self) -> Why {
        self.why
    }

    /// What is wrong and what to do, as the refusing side says it.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Why {
    /// All reasons this version knows, by their number, which starts at 1.
    const KNOWN: [Self; 11] = [
        Self::Version,
        Self::Cluster,
        Self::Map,
        Self::Denied,
        Self::UnknownNode,
        Self::AnotherStore,
        Self::OldIncarnation,
        Self::RestoredStore,
        Self::TooManyClients,
        Self::Stopping,
        Self::Protocol,
    ];

    fn of(number: u8) -> Self {
        let known = usize::from(number).checked_sub(1).and_then(|index| Self::KNOWN.get(index));
        known.copied().unwrap_or(Self::Other(number))
    }

    const fn number(self) -> u8 {
        match self {
            Self::Version => 1,
            Self::Cluster => 2,
            Self::Map => 3,
            Self::Denied => 4,
            Self::UnknownNode => 5,
            Self::AnotherStore => 6,
            Self::OldIncarnation => 7,
            Self::RestoredStore => 8,
            Self::TooManyClients => 9,
            Self::Stopping => 10,
            Self::Protocol => 11,
            Self::Other(number) => number,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "another version of the protocol",
            Self::Cluster => "another cluster",
            Self::Map => "another cluster map",
            Self::Denied => "the certificate is denied",
            Self::UnknownNode => "the node is not in the cluster map",
            Self::AnotherStore => "another data directory than before",
            Self::OldIncarnation => "an incarnation that is not above the last one",
            Self::RestoredStore => "a data directory that was set back",
            Self::TooManyClients => "too many clients",
            Self::Stopping => "the daemon is stopping",
            Self::Protocol => "the protocol was broken",
            Self::Other(number) => return write!(f, "reason {number}, which this version does not know"),
        })
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.why, self.text)
    }
}

impl Body for Hello {
    const KIND: Kind = Kind::Hello;

    fn write(&self, out: &mut Sink) {
        append(self, out);
    }

    fn read(metadata: &[u8], _tail: &Bytes) -> Result<Self, DecodeError> {
        read_all(Self::KIND, metadata)
    }

    fn check_sender(&self, sender: Sender) -> Result<(), DecodeError> {
        let (named, actual) = match (&self.who, sender) {
            (Introduction::Node(node), Sender::Node(actual)) => (node.process.node, actual),
            (Introduction::Supervisor(named), Sender::Supervisor(actual)) => (*named, actual),
            (Introduction::Client { .. }, Sender::Client | Sender::Admin) => return Ok(()),
            _ => return Err(DecodeError::WrongRole(Self::KIND)),
        };
        if named == actual { Ok(()) } else { Err(DecodeError::WrongSender { named, actual }) }
    }
}

impl Body for Welcome {
    const KIND: Kind = Kind::Welcome;

    fn write(&self, _out: &mut Sink) {}

    fn read(_metadata: &[u8], _tail: &Bytes) -> Result<Self, DecodeError> {
        // The header's limits leave no room for anything.
        Ok(Self)
    }
}

impl Body for Refusal {
    const KIND: Kind = Kind::Refusal;

    fn write(&self, out: &mut Sink) {
        out.metadata.push(self.why.number());
        out.tail.push(Bytes::copy_from_slice(self.text.as_bytes()));
    }

    fn read(metadata: &[u8], tail: &Bytes) -> Result<Self, DecodeError> {
        let &[number] = metadata else { return Err(DecodeError::Truncated) };
        let text = std::str::from_utf8(tail).map_err(|_| DecodeError::Malformed(Self::KIND))?;
        if text.chars().any(char::is_control) {
            return Err(DecodeError::Malformed(Self::KIND));
        }
        Ok(Self { why: Why::of(number), text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_keep_their_numbers() {
        for number in 0..=u8::MAX {
            assert_eq!(Why::of(number).number(), number);
            assert_eq!(matches!(Why::of(number), Why::Other(_)), !(1..=11).contains(&number), "{number}");
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        let refusal = Refusal::new(Why::Map, &"ä\n".repeat(1_000));
        assert_eq!(refusal.text().len(), 999, "an umlaut does not fit into the last byte");
        assert!(!refusal.text().contains('\n'));
    }
}
