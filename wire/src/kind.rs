//! Layout: the kinds of frames, how long each may be, how each travels, and who may send it.

use std::fmt;

use base::{NodeId, Role};

use crate::files::{FILE_DATA_BYTES_MAX, FILE_MESSAGE_BYTES_MAX};

/// The version of every layout in this crate. Peers of another version do not understand each other.
pub const PROTOCOL_VERSION: u8 = 1;
/// What QUIC calls the protocol when a connection is made.
pub const ALPN: &[u8] = b"fleasefs/1";
const _: () = assert!(ALPN[ALPN.len() - 1] == b'0' + PROTOCOL_VERSION, "the name carries the version");

/// The longest datagram there can be: what UDP carries over IPv4.
const DATAGRAM_BYTES_MAX: u32 = 65_507;
/// Holds a full batch of messages, with every number at its largest.
const BATCH_BYTES_MAX: u32 = 1024 * 1024;
/// Holds all of the largest message between replicas of a file, whatever it consists of, and how many messages there are.
const FILE_PEER_BYTES_MAX: u32 = (5 << 20) + 1_024;
const _: () = assert!(FILE_PEER_BYTES_MAX as u64 > FILE_MESSAGE_BYTES_MAX);
/// Holds a full batch of requests or replies about files, without their data.
pub(crate) const FILE_METADATA_BYTES_MAX: u32 = 256 * 1_024;
const FILE_TAIL_BYTES_MAX: u32 = 1 << 20;
const _: () = assert!(FILE_TAIL_BYTES_MAX as u64 == FILE_DATA_BYTES_MAX);
/// The longest text of a refusal.
pub const REFUSAL_TEXT_BYTES_MAX: u32 = 1_000;

/// What a frame is. Its number is the first byte on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// Lease messages between nodes; the one kind with a header of its own.
    Lease = 1,
    /// The first frame of each side of a connection.
    Hello = 2,
    /// The other side's hello is accepted.
    Welcome = 3,
    /// It is not; the connection ends.
    Refusal = 4,
    /// A question for the time, or its answer.
    Heartbeat = 5,
    /// Lock messages between nodes.
    Peer = 6,
    /// What a client asks.
    Client = 7,
    /// What a daemon tells a client.
    Daemon = 8,
    /// A supervisor reports the death of its child.
    Notice = 9,
    /// The notice was taken in.
    NoticeAck = 10,
    /// Asks for the daemon's state.
    StatusRequest = 11,
    /// The daemon's state.
    Status = 12,
    /// Messages between replicas of files.
    FilePeer = 13,
    /// What a client asks about files.
    FileRequest = 14,
    /// What a daemon tells a client about files.
    FileReply = 15,
    /// What an operator orders.
    Order = 16,
    /// What an operator is told.
    OrderReply = 17,
    /// What nodes ask of each other for files and volumes that they lead; replies are those about files.
    Errand = 18,
    /// Asks what the daemon knows of an object.
    Inspect = 19,
    /// What it knows.
    Inspection = 20,
    /// A daemon asks another one what it has done lately, for its page.
    RecentRequest = 21,
    /// What that one has done.
    Recent = 22,
}

/// How a kind of frame travels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// By itself: it may be lost, repeated and overtaken.
    Datagram,
    /// In order, behind other frames.
    Stream,
}

/// Who sent a frame, as far as admission and decoding ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sender {
    Node(NodeId),
    Supervisor(NodeId),
    Client,
    Admin,
}

/// How long the two parts of a frame may be.
pub(crate) struct Limits {
    pub(crate) metadata: u32,
    pub(crate) tail: u32,
}

impl Kind {
    /// All kinds, by their number.
    pub const ALL: [Self; 22] = [
        Self::Lease,
        Self::Hello,
        Self::Welcome,
        Self::Refusal,
        Self::Heartbeat,
        Self::Peer,
        Self::Client,
        Self::Daemon,
        Self::Notice,
        Self::NoticeAck,
        Self::StatusRequest,
        Self::Status,
        Self::FilePeer,
        Self::FileRequest,
        Self::FileReply,
        Self::Order,
        Self::OrderReply,
        Self::Errand,
        Self::Inspect,
        Self::Inspection,
        Self::RecentRequest,
        Self::Recent,
    ];

    /// The kind with this number.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// How frames of this kind travel.
    pub const fn lane(self) -> Lane {
        match self {
            Self::Lease | Self::Heartbeat => Lane::Datagram,
            Self::Hello
            | Self::Welcome
            | Self::Refusal
            | Self::Peer
            | Self::Client
            | Self::Daemon
            | Self::Notice
            | Self::NoticeAck
            | Self::StatusRequest
            | Self::Status
            | Self::FilePeer
            | Self::FileRequest
            | Self::FileReply
            | Self::Order
            | Self::OrderReply
            | Self::Errand
            | Self::Inspect
            | Self::Inspection
            | Self::RecentRequest
            | Self::Recent => Lane::Stream,
        }
    }

    /// Whether the holder of a certificate for `role` may send frames of this kind. This is the whole table.
    pub fn may_come_from(self, role: &Role) -> bool {
        self.may_be_sent_by(Sender::from(role))
    }

    pub(crate) const fn may_be_sent_by(self, sender: Sender) -> bool {
        match self {
            Self::Hello | Self::Welcome | Self::Refusal => true,
            Self::Lease
            | Self::Heartbeat
            | Self::Peer
            | Self::Daemon
            | Self::NoticeAck
            | Self::Status
            | Self::FilePeer
            | Self::FileReply
            | Self::OrderReply
            | Self::Errand
            | Self::Inspection
            | Self::RecentRequest
            | Self::Recent => matches!(sender, Sender::Node(_)),
            Self::Order => matches!(sender, Sender::Admin),
            Self::Client | Self::StatusRequest | Self::FileRequest | Self::Inspect => {
                matches!(sender, Sender::Client | Sender::Admin)
            }
            Self::Notice => matches!(sender, Sender::Supervisor(_)),
        }
    }

    pub(crate) const fn limits(self) -> Limits {
        let (metadata, tail) = match self {
            Self::Lease => (DATAGRAM_BYTES_MAX, 0),
            Self::Hello => (256, 0),
            Self::Welcome | Self::StatusRequest => (0, 0),
            Self::Refusal => (1, REFUSAL_TEXT_BYTES_MAX),
            Self::Heartbeat => (64, 0),
            Self::Peer | Self::Client | Self::Daemon | Self::Errand => (BATCH_BYTES_MAX, 0),
            Self::Notice => (32, 0),
            Self::NoticeAck => (16, 0),
            Self::Status => (256 * 1024, 0),
            Self::FilePeer => (FILE_PEER_BYTES_MAX, FILE_PEER_BYTES_MAX),
            Self::FileRequest | Self::FileReply => (FILE_METADATA_BYTES_MAX, FILE_TAIL_BYTES_MAX),
            Self::Order => (48, 0),
            Self::OrderReply => (128, 0),
            Self::Inspect => (24, 0),
            Self::Inspection => (32 * 1024, 0),
            Self::RecentRequest => (16, 0),
            Self::Recent => (320 * 1024, 0),
        };
        Limits { metadata, tail }
    }
}

impl From<&Role> for Sender {
    fn from(role: &Role) -> Self {
        match role {
            Role::Node(node) => Self::Node(*node),
            Role::Supervisor(node) => Self::Supervisor(*node),
            Role::Client(_) => Self::Client,
            Role::Admin(_) => Self::Admin,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lease => "lease",
            Self::Hello => "hello",
            Self::Welcome => "welcome",
            Self::Refusal => "refusal",
            Self::Heartbeat => "heartbeat",
            Self::Peer => "peer",
            Self::Client => "client",
            Self::Daemon => "daemon",
            Self::Notice => "notice",
            Self::NoticeAck => "notice ack",
            Self::StatusRequest => "status request",
            Self::Status => "status",
            Self::FilePeer => "file peer",
            Self::FileRequest => "file request",
            Self::FileReply => "file reply",
            Self::Order => "order",
            Self::OrderReply => "order reply",
            Self::Errand => "errand",
            Self::Inspect => "inspect",
            Self::Inspection => "inspection",
            Self::RecentRequest => "recent request",
            Self::Recent => "recent",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_kinds() {
        for number in 0..=u8::MAX {
            assert_eq!(Kind::of(number).is_some(), (1..=22).contains(&number), "{number}");
        }
        assert!(Kind::ALL.iter().zip(1_u8..).all(|(kind, number)| *kind as u8 == number));
    }

    #[test]
    fn who_may_send_what() {
        let roles =
            ["node/1", "supervisor/1", "client/a", "admin/a"].map(|role| role.parse::<Role>().unwrap());
        let table = [
            (Kind::Lease, "n..."),
            (Kind::Hello, "nsca"),
            (Kind::Welcome, "nsca"),
            (Kind::Refusal, "nsca"),
            (Kind::Heartbeat, "n..."),
            (Kind::Peer, "n..."),
            (Kind::Client, "..ca"),
            (Kind::Daemon, "n..."),
            (Kind::Notice, ".s.."),
            (Kind::NoticeAck, "n..."),
            (Kind::StatusRequest, "..ca"),
            (Kind::Status, "n..."),
            (Kind::FilePeer, "n..."),
            (Kind::FileRequest, "..ca"),
            (Kind::FileReply, "n..."),
            (Kind::Order, "...a"),
            (Kind::OrderReply, "n..."),
            (Kind::Errand, "n..."),
            (Kind::Inspect, "..ca"),
            (Kind::Inspection, "n..."),
            (Kind::RecentRequest, "n..."),
            (Kind::Recent, "n..."),
        ];
        assert_eq!(table.map(|(kind, _)| kind), Kind::ALL);
        for (kind, letters) in table {
            let admitted = roles.each_ref().map(|role| kind.may_come_from(role));
            assert_eq!(
                admitted.as_slice(),
                letters.bytes().map(|letter| letter != b'.').collect::<Vec<_>>(),
                "{kind}"
            );
        }
    }
}
