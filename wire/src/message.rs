//! Layout: which message is the content of which kind of frame.

use base::{ObjectId, Process, StartId};
use bytes::Bytes;
use node::{
    CLIENT_BATCH_MAX, ClientFrame, DaemonFrame, Inspection, PEER_BATCH_MAX, PeerMessage, Recent, Status,
};
use serde::{Deserialize, Serialize};

use crate::DecodeError;
use crate::codec::{Body, append, check_end, read_all, read_list, read_next};
use crate::field::Sink;
use crate::kind::{Kind, Sender};

/// A supervisor reports that this process is gone, and all before it back to the start that its line began with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Notice {
    /// The child that died.
    pub dead: Process,
    /// The first start of its line, which [the introduction](crate::NodeIntroduction::line) told too.
    pub line: StartId,
}

/// The daemon has taken the notice of this death in; the supervisor need not repeat it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NoticeAck {
    /// The child that died.
    pub dead: Process,
}

/// Asks a daemon for its [`Status`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusRequest;

/// Asks a daemon for its [`Inspection`] of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inspect {
    /// Which.
    pub object: ObjectId,
}

/// Asks a daemon what it has done [lately](Recent).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecentRequest {
    /// Whoever asks knows what was done up to this time: milliseconds since 1970.
    pub after_ms: u64,
}

impl Body for Vec<PeerMessage> {
    const KIND: Kind = Kind::Peer;

    fn write(&self, out: &mut Sink) {
        assert!(self.len() <= PEER_BATCH_MAX, "messages to peers are sent in batches");
        append(self, out);
    }

    fn read(metadata: &[u8], _tail: &Bytes) -> Result<Self, DecodeError> {
        let mut rest = metadata;
        let messages = read_list(Self::KIND, &mut rest, PEER_BATCH_MAX)?;
        check_end(Self::KIND, &messages, metadata, rest)?;
        Ok(messages)
    }
}

impl Body for ClientFrame {
    const KIND: Kind = Kind::Client;

    fn write(&self, out: &mut Sink) {
        assert!(self.requests.len() <= CLIENT_BATCH_MAX, "requests are sent in batches");
        append(self, out);
    }

    fn read(metadata: &[u8], _tail: &Bytes) -> Result<Self, DecodeError> {
        let mut rest = metadata;
        let number = read_next(Self::KIND, &mut rest)?;
        let requests = read_list(Self::KIND, &mut rest, CLIENT_BATCH_MAX)?;
        let frame = Self { number, requests };
        check_end(Self::KIND, &frame, metadata, rest)?;
        Ok(frame)
    }
}

impl Body for DaemonFrame {
    const KIND: Kind = Kind::Daemon;

    fn write(&self, out: &mut Sink) {
        assert!(self.replies.len() <= CLIENT_BATCH_MAX, "replies are sent in batches");
        append(self, out);
    }

    fn read(metadata: &[u8], _tail: &Bytes) -> Result<Self, DecodeError> {
        let mut rest = metadata;
        let acked = read_next(Self::KIND, &mut rest)?;
        let replies = read_list(Self::KIND, &mut rest, CLIENT_BATCH_MAX)?;
        let frame = Self { acked, replies };
        check_end(Self::KIND, &frame, metadata, rest)?;
        Ok(frame)
    }
}

impl Body for Notice {
    const KIND: Kind = Kind::Notice;

    fn write(&self, out: &mut Sink) {
        append(self, out);
    }

    fn read(metadata: &[u8], _tail: &Bytes) -> Result<Self, DecodeError> {
        read_all(Self::KIND, metadata)
    }

    /// A supervisor is a witness of its own child's death only.
    fn check_sender(&self, sender: Sender) -> Result<(), DecodeError> {
        match sender {
            Sender::Supervisor(node) if node == self.dead.node => Ok(()),
            Sender::Supervisor(node) => Err(DecodeError::WrongSender { named: self.dead.node, actual: node }),
            _ => Err(DecodeError::WrongRole(Self::KIND)),
        }
    }
}

impl Body for NoticeAck {
    const KIND: Kind = Kind::NoticeAck;

    fn write(&self, out: &mut Sink) {
        append(self, out);
    }

    fn read(metadata: &[u8], _tail: &Bytes) -> Result<Self, DecodeError> {
        read_all(Self::KIND, metadata)
    }
}

impl Body for StatusRequest {
    const KIND: Kind = Kind::StatusRequest;

    fn write(&self, _out: &mut Sink) {}

    fn read(_metadata: &[u8], _tail: &Bytes) -> Result<Self, DecodeError> {
        // The header's limits leave no room for anything.
        Ok(Self)
    }
}

impl Body for Status {
    const KIND: Kind = Kind::Status;

    fn write(&self, out: &mut Sink) {
        append(self, out);
    }

    fn read(metadata: &[u8], _tail: &Bytes) -> Result<Self, DecodeError> {
        read_all(Self::KIND, metadata)
    }

    fn check_sender(&self, sender: Sender) -> Result<(), DecodeError> {
        match sender {
            Sender::Node(node) if node == self.daemon.process.node => Ok(()),
            Sender::Node(node) => {
                Err(DecodeError::WrongSender { named: self.daemon.process.node, actual: node })
            }
            _ => Err(DecodeError::WrongRole(Self::KIND)),
        }
    }
}

impl Body for Inspect {
    const KIND: Kind = Kind::Inspect;

    fn write(&self, out: &mut Sink) {
        append(self, out);
    }

    fn read(metadata: &[u8], _tail: &Bytes) -> Result<Self, DecodeError> {
        read_all(Self::KIND, metadata)
    }
}

impl Body for Inspection {
    const KIND: Kind = Kind::Inspection;

    fn write(&self, out: &mut Sink) {
        append(self, out);
    }

    fn read(metadata: &[u8], _tail: &Bytes) -> Result<Self, DecodeError> {
        read_all(Self::KIND, metadata)
    }

    fn check_sender(&self, sender: Sender) -> Result<(), DecodeError> {
        match sender {
            Sender::Node(node) if node == self.by.node => Ok(()),
            Sender::Node(node) => Err(DecodeError::WrongSender { named: self.by.node, actual: node }),
            _ => Err(DecodeError::WrongRole(Self::KIND)),
        }
    }
}

impl Body for RecentRequest {
    const KIND: Kind = Kind::RecentRequest;

    fn write(&self, out: &mut Sink) {
        append(self, out);
    }

    fn read(metadata: &[u8], _tail: &Bytes) -> Result<Self, DecodeError> {
        read_all(Self::KIND, metadata)
    }
}

impl Body for Recent {
    const KIND: Kind = Kind::Recent;

    fn write(&self, out: &mut Sink) {
        append(self, out);
    }

    fn read(metadata: &[u8], _tail: &Bytes) -> Result<Self, DecodeError> {
        read_all(Self::KIND, metadata)
    }

    fn check_sender(&self, sender: Sender) -> Result<(), DecodeError> {
        self.status.check_sender(sender)
    }
}
