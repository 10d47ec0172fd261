//! One message of each kind, and the frame it has to become.

use base::{ClusterId, Epoch, Incarnation, NodeId, ObjectId, Process, Role, Seq, StartId, StoreId, WallTime};
use bytes::Bytes;
use lease::{Ballot, Batch, Body, Stamp};
use node::file::{FileReply, FileRequest};
use node::{
    BlockedStatus, ClientFrame, ClientId, ClockStatus, ClockTrust, DaemonFrame, DaemonStatus, DrainStatus,
    EndedSeen, Errand, FileMessage, Grant, Happened, HappenedWhat, Inspection, LackingStatus, LeadsSeen,
    LeaseStatus, LockStatus, Order, OrderReply, OwnerSeen, PageStatus, PeerMessage, PeerStatus, Recent,
    Record, ReplicaSeen, ReplicaState, Reply, ReplyBody, Request, RequestBody, RequestId, Revoked,
    SecondSeen, Status, SupervisorStatus, Token, TookSeen, TrailSeen, TrailWhat, WorkStatus,
};
use wire::{
    Admitted, DecodeError, Frame, FrameError, FrameReader, Heartbeat, Hello, Inspect, Introduction, Kind,
    Lane, Message, NodeIntroduction, Notice, NoticeAck, RecentRequest, Refusal, StatusRequest, TimeAnswer,
    Welcome, Why, encode, encode_lease_frames,
};

#[path = "file_samples.rs"]
mod file_samples;

pub(crate) use file_samples::*;

/// A frame, and somebody who may send it.
pub(crate) struct Sample {
    pub(crate) kind: Kind,
    pub(crate) role: Role,
    pub(crate) frame: Vec<u8>,
}

/// One for each kind, in the order of their numbers.
pub(crate) fn samples() -> Vec<Sample> {
    vec![
        Sample { kind: Kind::Lease, role: Role::Node(NodeId(1)), frame: lease_frame() },
        sample("node/1", &hello()),
        sample("client/a", &Welcome),
        sample("node/2", &Refusal::new(Why::Map, "map 3 here, 2 there")),
        sample("node/1", &heartbeat()),
        sample("node/1", &peer()),
        sample("client/a", &client()),
        sample("node/1", &daemon()),
        sample("supervisor/2", &Notice { dead: Process::new(2, 300), line: LINE }),
        sample("node/1", &NoticeAck { dead: Process::new(2, 300) }),
        sample("admin/root", &StatusRequest),
        sample("node/1", &status()),
        sample("node/1", &file_messages()),
        sample("client/a", &file_requests()),
        sample("node/1", &file_replies()),
        sample("admin/root", &orders().remove(2)),
        sample("node/1", &order_replies().remove(0)),
        sample("node/1", &errands()),
        sample("client/a", &Inspect { object: ObjectId::new(1, 2) }),
        sample("node/1", &inspection()),
        sample("node/1", &RecentRequest { after_ms: 300 }),
        sample("node/1", &recent()),
    ]
}

fn sample<M: Message>(role: &str, message: &M) -> Sample {
    let mut frame = Vec::new();
    encode(message, &mut frame);
    Sample { kind: M::KIND, role: role.parse().unwrap(), frame }
}

fn lease_frame() -> Vec<u8> {
    let ballot = Ballot { stamp: Stamp(0x0500), process: Process::new(1, 2) };
    let cell = ObjectId::new(0, 0x77);
    let message = lease::Message { cell, view: base::ViewId::default(), ballot, body: Body::Read };
    let sent = WallTime::from_micros(0x1122);
    let batch = Batch { sender: Process::new(1, 2), settings: 0xaabb_ccdd, sent, messages: vec![message] };
    let mut frame = Vec::new();
    encode_lease_frames(&batch, 1_200, &mut |bytes| frame.extend_from_slice(bytes));
    frame
}

pub(crate) const LINE: StartId = StartId { incarnation: Incarnation(299), nonce: 1 << 40 };

pub(crate) fn hello() -> Hello {
    let node = NodeIntroduction {
        process: Process::new(1, 300),
        store: StoreId(*b"a data directory"),
        nonce: 0x0123_4567_89ab_cdef,
        line: LINE,
        knows: Some(StartId { incarnation: Incarnation(2), nonce: 128 }),
    };
    Hello {
        cluster: ClusterId(*b"sixteen byte id."),
        map_version: 3,
        map_digest: [0xd1; 32],
        who: Introduction::Node(node),
    }
}

fn heartbeat() -> Heartbeat {
    let time = WallTime::from_micros;
    Heartbeat::Answer(TimeAnswer {
        asked: time(1),
        received: time(256),
        answered: time(300),
        time_is_fixed: true,
    })
}

fn record() -> Record {
    let client = ClientId { certificate: 0xff, program: 1 };
    Record {
        epoch: Epoch { number: 5, node: NodeId(1) },
        version: 7,
        writer: Process::new(1, 2),
        grant: Some(Grant { client, token: Token(0x4000) }),
    }
}

pub(crate) fn peer() -> Vec<PeerMessage> {
    let (cell, epoch) = (ObjectId::new(0x80, 1), Epoch { number: 5, node: NodeId(1) });
    vec![
        PeerMessage::Promise { cell, epoch, dead: vec![Process::new(3, 4), Process::new(5, 6)] },
        PeerMessage::Promised { cell, epoch, record: Some(record()), knows_all: false },
        PeerMessage::Write { cell, record: Record { grant: None, ..record() } },
        PeerMessage::Written { cell, epoch, version: 7 },
        PeerMessage::Refused { cell, epoch, highest: 9 },
        PeerMessage::CaughtUp,
        PeerMessage::Query { cell, epoch },
        PeerMessage::Over { cell, epoch },
        PeerMessage::Forgot { at: 11 },
        PeerMessage::Full(true),
        PeerMessage::Takes(true),
    ]
}

pub(crate) fn client() -> ClientFrame {
    let cell = ObjectId::new(1, 2);
    let bodies = [
        RequestBody::Acquire { cell, wait: true },
        RequestBody::Reattach { cell, token: Token(0x4000) },
        RequestBody::Release { cell, token: Token(3) },
        RequestBody::Cancel { cell, request: RequestId(1) },
        RequestBody::Lease { cell },
        RequestBody::Unlease { cell },
        RequestBody::Dropped { number: 129 },
    ];
    let requests = (1..).zip(bodies).map(|(id, body)| Request { id: RequestId(id), body }).collect();
    ClientFrame { number: 200, requests }
}

pub(crate) fn daemon() -> DaemonFrame {
    let bodies = [
        ReplyBody::Granted(Token(0x4000)),
        ReplyBody::Queued,
        ReplyBody::Elsewhere(NodeId(2)),
        ReplyBody::Unavailable(node::Unavailable::Full),
        ReplyBody::Leased { until: WallTime::from_micros(300) },
    ];
    let mut replies: Vec<Reply> =
        (1..).zip(bodies).map(|(id, body)| Reply::To { id: RequestId(id), body }).collect();
    replies.push(Reply::Dropped { cell: ObjectId::new(1, 2), token: Token(3), successor: Some(NodeId(2)) });
    replies.push(Reply::Death { node: NodeId(3), incarnation: Incarnation(4) });
    replies.push(Reply::SessionOver);
    let volume = ObjectId::new(1, 2);
    let epoch = Epoch { number: 7, node: NodeId(2) };
    replies.push(Reply::Revoke { number: 1, volume, what: Revoked::Inode { number: 300, epoch } });
    replies.push(Reply::Revoke { number: 2, volume, what: Revoked::Before(epoch) });
    replies.push(Reply::Revoke { number: 3, volume, what: Revoked::All });
    replies.push(Reply::Revoke {
        number: 4,
        volume,
        what: Revoked::Lend { number: 300, epoch, lent_in: epoch, lent_at: Seq(2) },
    });
    replies.push(Reply::Revoke { number: 5, volume, what: Revoked::Place { number: 300, epoch } });
    DaemonFrame { acked: 200, replies }
}

pub(crate) fn status() -> Status {
    let peer = PeerStatus {
        node: NodeId(2),
        incarnation: Some(Incarnation(9)),
        connected: true,
        round_trip_us: Some(200),
        last_heard_ms: Some(12),
        offset_us: Some((-3, 4)),
    };
    Status {
        daemon: DaemonStatus {
            process: Process::new(1, 300),
            store: StoreId(*b"a data directory"),
            version: "0.1.0".to_owned(),
            uptime_ms: 1_000,
        },
        cluster: ClusterId(*b"sixteen byte id."),
        map_version: 3,
        map_digest: "d1d1".to_owned(),
        quarantine_ms: 0,
        clock: ClockStatus { state: ClockTrust::Sound, offset_max_us: Some(150), epsilon_us: 100_000 },
        leases: LeaseStatus {
            held: 1,
            primaries: 13,
            behind: 14,
            changing: 12,
            registers: 2,
            acquired: 3,
            renewed: 4,
            lost: 5,
            denied: 6,
            conflicts: 7,
            timeouts: 8,
        },
        locks: LockStatus { held: 9, waiting: 10, sessions: 11 },
        work: WorkStatus { requests: 15, written_bytes: 16, read_bytes: 17 },
        certificate_expires_unix_s: 1_800_000_000,
        deny_list_is_stale: true,
        disk_is_full: true,
        disk_free_bytes: 18,
        supervisor: Some(SupervisorStatus { restarts: 1, crash_looping: false }),
        drain: DrainStatus::Draining,
        page: Some(PageStatus {
            url: "http://a/".to_owned(),
            needs_token: true,
            fault: Some("taken".to_owned()),
        }),
        peers: vec![peer],
        lacking: vec![LackingStatus { members: vec![NodeId(1), NodeId(2)], objects: 18 }],
        blocked: vec![BlockedStatus {
            object: ObjectId::new(19, 20),
            missing: vec![NodeId(1)],
            forgot: vec![NodeId(2)],
        }],
    }
}

pub(crate) fn inspection() -> Inspection {
    let (at, owner) = (WallTime::from_micros(300), Process::new(2, 300));
    let entry = |what| TrailSeen { at, lease: 7, owner, what };
    let until = WallTime::from_micros(400);
    Inspection {
        object: ObjectId::new(1, 2),
        by: Process::new(1, 2),
        at,
        members: [1, 2, 300].map(NodeId).to_vec(),
        owner: Some(OwnerSeen { process: owner, until }),
        leads: LeadsSeen::Recovering,
        replica: Some(ReplicaSeen {
            epoch: Epoch { number: 5, node: NodeId(1) },
            tail: Seq(9),
            committed: Seq(8),
            state: ReplicaState::Incomplete,
        }),
        trail: vec![
            entry(TrailWhat::VotedFor { until, previous: 6, ended: EndedSeen::Died }),
            entry(TrailWhat::Decided { until, voters: 3 }),
            entry(TrailWhat::GivenUp { successor: Some(NodeId(3)) }),
            entry(TrailWhat::Lost),
        ],
    }
}

pub(crate) fn recent() -> Recent {
    let (at, from) = (WallTime::from_micros(300), Process::new(2, 300));
    let happened = |what| Happened { at, what };
    Recent {
        status: Status { peers: Vec::new(), ..status() },
        seconds: vec![SecondSeen {
            at_ms: 300,
            length_ms: 1_000,
            requests: 1,
            written_bytes: 2,
            read_bytes: 3,
            primaries: 4,
            took: TookSeen { replies: 5, half_us: 6, most_us: 7, longest_us: 8 },
        }],
        happened: vec![
            happened(HappenedWhat::Started),
            happened(HappenedWhat::Died { process: from }),
            happened(HappenedWhat::TookOver { from, ended: EndedSeen::Died, files: 1, stall_us_max: 300 }),
            happened(HappenedWhat::Lost { leases: 2 }),
            happened(HappenedWhat::Clock(ClockTrust::Off)),
        ],
    }
}

/// What a frame says.
pub(crate) enum Decoded {
    Lease(Batch),
    Hello(Hello),
    Welcome(Welcome),
    Refusal(Refusal),
    Heartbeat(Heartbeat),
    Peer(Vec<PeerMessage>),
    Client(ClientFrame),
    Daemon(DaemonFrame),
    Notice(Notice),
    NoticeAck(NoticeAck),
    StatusRequest(StatusRequest),
    Status(Status),
    FilePeer(Vec<FileMessage>),
    FileRequest(Vec<FileRequest>),
    FileReply(Vec<FileReply>),
    Order(Order),
    OrderReply(OrderReply),
    Errand(Vec<Errand>),
    Inspect(Inspect),
    Inspection(Inspection),
    RecentRequest(RecentRequest),
    Recent(Recent),
}

pub(crate) fn decode(admitted: &Admitted) -> Result<Decoded, DecodeError> {
    Ok(match admitted.kind() {
        Kind::Lease => Decoded::Lease(admitted.decode_leases()?),
        Kind::Hello => Decoded::Hello(admitted.decode()?),
        Kind::Welcome => Decoded::Welcome(admitted.decode()?),
        Kind::Refusal => Decoded::Refusal(admitted.decode()?),
        Kind::Heartbeat => Decoded::Heartbeat(admitted.decode()?),
        Kind::Peer => Decoded::Peer(admitted.decode()?),
        Kind::Client => Decoded::Client(admitted.decode()?),
        Kind::Daemon => Decoded::Daemon(admitted.decode()?),
        Kind::Notice => Decoded::Notice(admitted.decode()?),
        Kind::NoticeAck => Decoded::NoticeAck(admitted.decode()?),
        Kind::StatusRequest => Decoded::StatusRequest(admitted.decode()?),
        Kind::Status => Decoded::Status(admitted.decode()?),
        Kind::FilePeer => Decoded::FilePeer(admitted.decode()?),
        Kind::FileRequest => Decoded::FileRequest(admitted.decode()?),
        Kind::FileReply => Decoded::FileReply(admitted.decode()?),
        Kind::Order => Decoded::Order(admitted.decode()?),
        Kind::OrderReply => Decoded::OrderReply(admitted.decode()?),
        Kind::Errand => Decoded::Errand(admitted.decode()?),
        Kind::Inspect => Decoded::Inspect(admitted.decode()?),
        Kind::Inspection => Decoded::Inspection(admitted.decode()?),
        Kind::RecentRequest => Decoded::RecentRequest(admitted.decode()?),
        Kind::Recent => Decoded::Recent(admitted.decode()?),
    })
}

impl Decoded {
    /// The frame that says this.
    fn encode(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        match self {
            Self::Lease(batch) => {
                encode_lease_frames(batch, 100_000, &mut |bytes| frame.extend_from_slice(bytes));
            }
            Self::Hello(message) => encode(message, &mut frame),
            Self::Welcome(message) => encode(message, &mut frame),
            Self::Refusal(message) => encode(message, &mut frame),
            Self::Heartbeat(message) => encode(message, &mut frame),
            Self::Peer(message) => encode(message, &mut frame),
            Self::Client(message) => encode(message, &mut frame),
            Self::Daemon(message) => encode(message, &mut frame),
            Self::Notice(message) => encode(message, &mut frame),
            Self::NoticeAck(message) => encode(message, &mut frame),
            Self::StatusRequest(message) => encode(message, &mut frame),
            Self::Status(message) => encode(message, &mut frame),
            Self::FilePeer(message) => encode(message, &mut frame),
            Self::FileRequest(message) => encode(message, &mut frame),
            Self::FileReply(message) => encode(message, &mut frame),
            Self::Order(message) => encode(message, &mut frame),
            Self::OrderReply(message) => encode(message, &mut frame),
            Self::Errand(message) => encode(message, &mut frame),
            Self::Inspect(message) => encode(message, &mut frame),
            Self::Inspection(message) => encode(message, &mut frame),
            Self::RecentRequest(message) => encode(message, &mut frame),
            Self::Recent(message) => encode(message, &mut frame),
        }
        frame
    }
}

/// What a frame says, encoded again; or why it says nothing.
pub(crate) fn again(admitted: &Admitted) -> Result<Vec<u8>, DecodeError> {
    decode(admitted).map(|decoded| decoded.encode())
}

/// The one frame in `bytes`, as it arrives by the lane of its kind; none if it is incomplete.
pub(crate) fn arrive(bytes: &[u8], lane: Lane, role: &Role) -> Result<Option<Admitted>, FrameError> {
    let mut bytes = Bytes::copy_from_slice(bytes);
    match lane {
        Lane::Stream => FrameReader::new(role.clone()).next(&mut bytes),
        Lane::Datagram => match Frame::from_datagram(bytes) {
            Err(FrameError::Truncated) => Ok(None),
            frame => frame?.admit(role).map(Some),
        },
    }
}
