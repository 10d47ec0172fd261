//! What is no frame, and what is no message.

use base::{Incarnation, MEMBERS_MAX, NodeId, ObjectId, Process, Role, StartId};
use bytes::Bytes;
use node::{
    BlockedStatus, CLIENT_BATCH_MAX, ClientFrame, LackingStatus, PEER_BATCH_MAX, PeerMessage, Status,
};
use wire::{
    Admitted, DecodeError, Frame, FrameError, FrameReader, HEADER_BYTES, Header, Hello, Introduction, Kind,
    Lane, Message, Notice, PROTOCOL_VERSION, REFUSAL_TEXT_BYTES_MAX, Refusal, Why, encode,
};

use crate::samples::{self, Sample, again, arrive, samples};

fn role(text: &str) -> Role {
    text.parse().unwrap()
}

fn sample(kind: Kind) -> Sample {
    samples().remove(kind as usize - 1)
}

fn header(frame: &[u8]) -> Result<Header, FrameError> {
    Header::parse(frame.first_chunk().unwrap())
}

/// A frame with this metadata, admitted.
fn admitted(kind: Kind, metadata: &[u8], from: &str) -> Admitted {
    let len = u32::try_from(metadata.len()).unwrap().to_le_bytes();
    let frame = [&[kind as u8, PROTOCOL_VERSION, 0, 0], &len[..], &[0; 4], metadata].concat();
    FrameReader::new(role(from)).next(&mut frame.into()).unwrap().unwrap()
}

fn decode<M: Message>(metadata: &[u8], from: &str) -> Result<M, DecodeError> {
    admitted(M::KIND, metadata, from).decode()
}

/// Why a frame was not decoded, if that is because something is missing.
fn missing(frame: &Admitted) -> Result<Vec<u8>, &'static str> {
    again(frame).map_err(|error| match error {
        // The second: a count that the rest cannot hold.
        DecodeError::Truncated | DecodeError::TooMany(_) => "missing",
        _ => "another error",
    })
}

#[test]
fn every_truncation_is_incomplete_or_refused() {
    for sample in samples() {
        for len in 0..sample.frame.len() {
            let frame = arrive(&sample.frame[..len], sample.kind.lane(), &sample.role).unwrap();
            // The length of a lease frame is that of its datagram, so its decoder has to notice.
            let is_noticed =
                frame.is_none_or(|frame| frame.kind() == Kind::Lease && missing(&frame) == Err("missing"));
            assert!(is_noticed, "{} of {len} bytes", sample.kind);
        }
    }
}

#[test]
fn every_truncation_that_the_header_knows_of_is_refused() {
    for sample in samples().iter().filter(|sample| sample.kind != Kind::Lease) {
        for len in HEADER_BYTES..sample.frame.len() {
            let mut frame = sample.frame[..len].to_vec();
            let body = u32::try_from(len - HEADER_BYTES).unwrap();
            let metadata = body.min(u32::from_le_bytes(*frame[4..].first_chunk().unwrap()));
            frame[4..8].copy_from_slice(&metadata.to_le_bytes());
            frame[8..12].copy_from_slice(&(body - metadata).to_le_bytes());
            let admitted = arrive(&frame, sample.kind.lane(), &sample.role).unwrap().unwrap();
            // A text may be as short as it likes.
            let is_whole = sample.kind == Kind::Refusal && metadata == 1;
            let expected = if is_whole { Ok(frame) } else { Err("missing") };
            assert_eq!(missing(&admitted), expected, "{} of {len} bytes", sample.kind);
        }
    }
}

#[test]
fn bytes_after_a_message_are_refused() {
    for kind in
        [Kind::Hello, Kind::Heartbeat, Kind::Peer, Kind::Client, Kind::Daemon, Kind::Notice, Kind::Status]
    {
        let sample = sample(kind);
        let mut frame = sample.frame;
        frame[4] += 1;
        frame.push(0);
        let frame = arrive(&frame, kind.lane(), &sample.role).unwrap().unwrap();
        assert_eq!(again(&frame), Err(DecodeError::TrailingBytes(1)), "{kind}");
    }
    let heartbeat = [&sample(Kind::Heartbeat).frame[..], &[0]].concat();
    assert_eq!(Frame::from_datagram(heartbeat.into()), Err(FrameError::TrailingBytes(1)));
}

#[test]
fn lengths_beyond_the_limit_of_a_kind_are_refused_at_the_header() {
    for sample in samples().iter().filter(|sample| sample.kind != Kind::Lease) {
        for at in [4, 8] {
            let mut frame = sample.frame.clone();
            frame[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            let error = header(&frame).unwrap_err();
            assert!(
                matches!(error, FrameError::TooLong { kind, announced: u32::MAX, .. } if kind == sample.kind),
                "{error}"
            );
        }
    }
    let mut refusal = sample(Kind::Refusal).frame;
    refusal[8..12].copy_from_slice(&REFUSAL_TEXT_BYTES_MAX.to_le_bytes());
    assert!(header(&refusal).is_ok());
    refusal[8..12].copy_from_slice(&(REFUSAL_TEXT_BYTES_MAX + 1).to_le_bytes());
    let error = header(&refusal).unwrap_err();
    assert_eq!(error.to_string(), "a refusal frame announces 1001 bytes where at most 1000 are allowed");
}

#[test]
fn another_version_is_said_plainly() {
    for sample in samples() {
        let mut frame = sample.frame;
        frame[1] = 2;
        let result = arrive(&frame, sample.kind.lane(), &sample.role);
        match sample.kind {
            Kind::Refusal => {
                assert_eq!(result.unwrap().unwrap().decode::<Refusal>().unwrap().why(), Why::Map)
            }
            _ => assert_eq!(result, Err(FrameError::OtherVersion { theirs: 2 }), "{}", sample.kind),
        }
    }
    assert_eq!(
        FrameError::OtherVersion { theirs: 2 }.to_string(),
        "the peer speaks version 2 of the protocol and this program version 1: run the same version of fleasefs \
         everywhere"
    );
}

#[test]
fn reserved_bytes_are_zero_and_kinds_are_known() {
    let mut frame = sample(Kind::Hello).frame;
    frame[3] = 1;
    assert_eq!(header(&frame), Err(FrameError::Reserved { kind: Kind::Hello, reserved: 0x100 }));
    for kind in [0, 23, 255] {
        frame[0] = kind;
        assert_eq!(header(&frame), Err(FrameError::UnknownKind(kind)));
    }
}

#[test]
fn frames_keep_to_their_lane() {
    for sample in samples() {
        let other = if sample.kind.lane() == Lane::Stream { Lane::Datagram } else { Lane::Stream };
        assert_eq!(
            arrive(&sample.frame, other, &sample.role),
            Err(FrameError::WrongLane(sample.kind)),
            "{}",
            sample.kind
        );
    }
}

#[test]
fn nobody_sends_what_its_role_may_not() {
    for sample in samples() {
        for role in ["node/1", "supervisor/1", "client/a", "admin/a"].map(role) {
            if sample.kind.may_come_from(&role) {
                continue;
            }
            let error = arrive(&sample.frame, sample.kind.lane(), &role).unwrap_err();
            assert_eq!(error, FrameError::NotAdmitted { role: role.clone(), kind: sample.kind });
            assert_eq!(error.to_string(), format!("{role} may not send a {} frame", sample.kind));
        }
    }
}

#[test]
fn a_message_says_of_its_sender_what_the_certificate_says() {
    let metadata = |kind| sample(kind).frame.split_off(HEADER_BYTES);
    let wrong = |named, actual| DecodeError::WrongSender { named: NodeId(named), actual: NodeId(actual) };
    let hello = metadata(Kind::Hello);
    assert_eq!(decode::<Hello>(&hello, "node/2"), Err(wrong(1, 2)));
    for role in ["client/a", "admin/a", "supervisor/1"] {
        assert_eq!(decode::<Hello>(&hello, role), Err(DecodeError::WrongRole(Kind::Hello)));
    }
    let as_who = |who, from| {
        let mut frame = Vec::new();
        encode(&Hello { who, ..samples::hello() }, &mut frame);
        decode::<Hello>(&frame[HEADER_BYTES..], from).map(|_| ())
    };
    assert_eq!(as_who(Introduction::Supervisor(NodeId(1)), "supervisor/1"), Ok(()));
    assert_eq!(as_who(Introduction::Supervisor(NodeId(1)), "supervisor/2"), Err(wrong(1, 2)));
    assert_eq!(
        as_who(Introduction::Supervisor(NodeId(1)), "node/1"),
        Err(DecodeError::WrongRole(Kind::Hello))
    );
    for (from, is_client) in
        [("client/a", true), ("admin/a", true), ("node/1", false), ("supervisor/1", false)]
    {
        assert_eq!(as_who(Introduction::Client { program: 1 }, from).is_ok(), is_client, "{from}");
    }
    assert_eq!(decode::<Notice>(&metadata(Kind::Notice), "supervisor/1"), Err(wrong(2, 1)));
    assert_eq!(decode::<Status>(&metadata(Kind::Status), "node/2").unwrap_err(), wrong(1, 2));
    let lease =
        Frame::from_datagram(sample(Kind::Lease).frame.into()).unwrap().admit(&role("node/2")).unwrap();
    assert_eq!(lease.decode_leases().unwrap_err(), wrong(1, 2));
}

#[test]
fn a_frame_is_decoded_as_what_it_is() {
    let frame = admitted(Kind::Peer, &[0], "node/1");
    let (wanted, kind) = (Kind::Daemon, Kind::Peer);
    assert_eq!(frame.decode::<node::DaemonFrame>(), Err(DecodeError::AnotherKind { wanted, kind }));
    let wanted = Kind::Lease;
    assert_eq!(frame.decode_leases().unwrap_err(), DecodeError::AnotherKind { wanted, kind });
}

#[test]
fn padded_numbers_are_refused() {
    let line = StartId { incarnation: Incarnation(1), nonce: 4 };
    let notice = Notice { dead: Process::new(2, 3), line };
    assert_eq!(decode::<Notice>(&[2, 3, 1, 4], "supervisor/2"), Ok(notice));
    assert_eq!(decode::<Notice>(&[0x82, 0, 3, 1, 4], "supervisor/2"), Err(DecodeError::Padded(Kind::Notice)));
    let caught_up = [1, 5];
    assert_eq!(decode::<Vec<PeerMessage>>(&caught_up, "node/1"), Ok(vec![PeerMessage::CaughtUp]));
    for padded in [[0x81, 0, 5], [1, 0x85, 0]] {
        let error = decode::<Vec<PeerMessage>>(&padded, "node/1").unwrap_err();
        assert_eq!(error, DecodeError::Padded(Kind::Peer));
    }
}

#[test]
fn values_without_a_meaning_are_refused() {
    let malformed = Err(DecodeError::Malformed(Kind::Peer));
    for bad in [&[1, 11][..], &[1, 0x85, 0x80, 0x80, 0x80, 0x10], &[0xff; 11]] {
        assert_eq!(decode::<Vec<PeerMessage>>(bad, "node/1"), malformed);
    }
    let refusal = |tail: &'static [u8]| {
        let len = u8::try_from(tail.len()).unwrap();
        let frame =
            [&[Kind::Refusal as u8, PROTOCOL_VERSION, 0, 0, 1, 0, 0, 0, len, 0, 0, 0, 3], tail].concat();
        arrive(&frame, Lane::Stream, &role("node/1")).unwrap().unwrap().decode::<Refusal>()
    };
    assert!(refusal(b"fine").is_ok());
    for bad in [&b"\xff"[..], b"two\nlines", b"\x1b[2J"] {
        assert_eq!(refusal(bad), Err(DecodeError::Malformed(Kind::Refusal)));
    }
}

#[test]
fn a_batch_is_counted_before_there_is_room_for_it() {
    let batch = |count: usize| {
        let mut metadata =
            vec![u8::try_from(count & 0x7f).unwrap() | 0x80, u8::try_from(count >> 7).unwrap()];
        metadata.extend(std::iter::repeat_n(5, count));
        decode::<Vec<PeerMessage>>(&metadata, "node/1").map(|messages| messages.len())
    };
    assert_eq!(batch(PEER_BATCH_MAX), Ok(PEER_BATCH_MAX));
    assert_eq!(batch(PEER_BATCH_MAX + 1), Err(DecodeError::TooMany(PEER_BATCH_MAX + 1)));
    // More than there are bytes.
    assert_eq!(decode::<Vec<PeerMessage>>(&[3, 5, 5], "node/1"), Err(DecodeError::TooMany(3)));
    let far_too_many = [1, 0xff, 0xff, 0xff, 0xff, 0x0f];
    assert_eq!(decode::<ClientFrame>(&far_too_many, "client/a"), Err(DecodeError::TooMany(0xffff_ffff)));
}

#[test]
#[should_panic(expected = "requests are sent in batches")]
fn our_own_batches_are_bounded() {
    let request = samples::client().requests.remove(0);
    let requests = vec![request; CLIENT_BATCH_MAX + 1];
    encode(&ClientFrame { number: 1, requests }, &mut Vec::new());
}

#[test]
fn the_largest_numbers_fit_every_limit() {
    let mut hello = samples::hello();
    hello.map_version = u64::MAX;
    if let Introduction::Node(node) = &mut hello.who {
        node.process = Process::new(u32::MAX, u32::MAX);
        node.nonce = u64::MAX;
        node.knows = Some(StartId { incarnation: node.process.incarnation, nonce: u64::MAX });
    }
    let mut frame = Vec::new();
    encode(&hello, &mut frame);
    let line = StartId { incarnation: Incarnation(u32::MAX), nonce: u64::MAX };
    encode(&Notice { dead: Process::new(u32::MAX, u32::MAX), line }, &mut frame);
    for message in largest_peer_messages() {
        encode(&vec![message; PEER_BATCH_MAX], &mut frame);
    }
    encode(&largest_status(), &mut frame);
    assert!(Frame::from_datagram(Bytes::from(frame)).is_err());
}

fn largest_peer_messages() -> [PeerMessage; 2] {
    let epoch = base::Epoch { number: u64::MAX, node: NodeId(u32::MAX) };
    let cell = ObjectId::new(u64::MAX, u64::MAX);
    let client = node::ClientId { certificate: u64::MAX, program: u64::MAX };
    let grant = Some(node::Grant { client, token: node::Token(u64::MAX) });
    let writer = Process::new(u32::MAX, u32::MAX);
    let record = node::Record { epoch, version: u32::MAX, writer, grant };
    [
        PeerMessage::Promise { cell, epoch, dead: vec![writer; MEMBERS_MAX] },
        PeerMessage::Promised { cell, epoch, record: Some(record), knows_all: true },
    ]
}

#[test]
fn a_promise_names_no_more_dead_than_a_cell_has_members() {
    let promise = |count: u8| {
        let metadata = [&[1, 0, 1, 1, 5, 1, count][..], &[1; 32]].concat();
        decode::<Vec<PeerMessage>>(&metadata[..7 + 2 * usize::from(count)], "node/1")
            .map(|messages| messages.len())
    };
    assert_eq!((promise(15), promise(16)), (Ok(1), Err(DecodeError::Malformed(Kind::Peer))));
}

fn largest_status() -> Status {
    let mut status = samples::status();
    status.daemon.version = "v".repeat(1_000);
    status.map_digest = "d".repeat(64);
    let mut peer = status.peers.remove(0);
    peer.node = NodeId(u32::MAX);
    peer.incarnation = Some(Incarnation(u32::MAX));
    (peer.round_trip_us, peer.last_heard_ms) = (Some(u64::MAX), Some(u64::MAX));
    peer.offset_us = Some((i64::MIN, i64::MAX));
    let members = vec![NodeId(u32::MAX); MEMBERS_MAX];
    let object = ObjectId::new(u64::MAX, u64::MAX);
    let blocked = BlockedStatus { object, missing: members.clone(), forgot: members.clone() };
    let blocked = vec![blocked; node::STATUS_BLOCKED_MAX];
    let lacking = vec![LackingStatus { members, objects: u64::MAX }; node::STATUS_LACKING_MAX];
    Status { peers: vec![peer; node::STATUS_PEERS_MAX], lacking, blocked, ..status }
}

#[test]
fn what_a_status_lists_is_bounded() {
    let read = |status: &Status| {
        let mut frame = Vec::new();
        encode(status, &mut frame);
        decode::<Status>(&frame[HEADER_BYTES..], "node/1")
    };
    let largest = largest_status();
    assert_eq!(read(&largest).as_ref(), Ok(&largest));
    let [mut peers, mut lacking, mut members, mut blocked, mut missing] = [(); 5].map(|()| largest.clone());
    peers.peers.push(peers.peers[0].clone());
    lacking.lacking.push(lacking.lacking[0].clone());
    members.lacking[0].members.push(NodeId(1));
    blocked.blocked.push(blocked.blocked[0].clone());
    missing.blocked[0].missing.push(NodeId(1));
    for status in [peers, lacking, members, blocked, missing] {
        assert_eq!(read(&status), Err(DecodeError::Malformed(Kind::Status)));
    }
}
