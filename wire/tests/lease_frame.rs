//! What is encoded is decoded again, and nothing else is accepted.

use base::{Epoch, Members, NodeId, ObjectId, Process, Seq, Span, View, ViewId, WallTime};
use lease::{Ballot, Batch, Body, Ended, Expiry, Given, Lease, LeaseId, Message, Stamp, Watermark, Written};
use proptest::prelude::*;
use wire::{DecodeError, FRAME_MIN, decode_lease_frame, encode_lease_frames};

fn process() -> impl Strategy<Value = Process> {
    (any::<u32>(), any::<u32>()).prop_map(|(node, incarnation)| Process::new(node, incarnation))
}

fn ballot() -> impl Strategy<Value = Ballot> {
    (any::<u64>(), process()).prop_map(|(stamp, process)| Ballot { stamp: Stamp(stamp), process })
}

fn view_id() -> impl Strategy<Value = ViewId> {
    let id = (0..3_u64, 0..3_u32, 0..3_u64);
    id.prop_map(|(number, node, seq)| ViewId { epoch: Epoch { number, node: NodeId(node) }, seq: Seq(seq) })
}

fn view() -> impl Strategy<Value = View> {
    let members = proptest::collection::btree_set(any::<u32>(), 1..=base::MEMBERS_MAX);
    (view_id(), members)
        .prop_map(|(id, nodes)| View { id, members: Members::new(nodes.into_iter().map(NodeId)).unwrap() })
}

fn given() -> impl Strategy<Value = Given> {
    (any::<Option<u32>>(), any::<u64>(), any::<u32>(), any::<u64>()).prop_map(
        |(successor, number, node, seq)| {
            let watermark = Watermark { epoch: Epoch { number, node: NodeId(node) }, seq: Seq(seq) };
            Given { successor: successor.map(NodeId), watermark }
        },
    )
}

fn lease() -> impl Strategy<Value = Lease> {
    let ended = prop_oneof![
        Just(Ended::Unknown),
        Just(Ended::Released),
        Just(Ended::Expired),
        Just(Ended::Died),
        Just(Ended::HandedOver)
    ];
    let expiry = prop_oneof![
        any::<u64>().prop_map(|micros| Expiry::At(WallTime::from_micros(micros))),
        any::<u64>().prop_map(|micros| Expiry::After(Span::from_micros(micros))),
    ];
    (any::<u64>(), expiry, any::<u64>(), ended, proptest::option::of(given())).prop_map(
        |(id, expiry, previous, ended, given)| Lease {
            id: LeaseId(id),
            expiry,
            previous: LeaseId(previous),
            ended,
            given: given.map(Box::new),
        },
    )
}

fn body() -> impl Strategy<Value = Body> {
    prop_oneof![
        Just(Body::Read),
        Just(Body::ReadAck(None)),
        (ballot(), lease())
            .prop_map(|(ballot, lease)| Body::ReadAck(Some(Box::new(Written { ballot, lease })))),
        lease().prop_map(Body::Write),
        Just(Body::WriteAck),
        ballot().prop_map(|highest| Body::Nack { highest }),
        view().prop_map(|view| Body::WrongView(Box::new(view))),
        Just(Body::Offer),
    ]
}

fn message() -> impl Strategy<Value = Message> {
    (0..3_u64, any::<u64>(), view_id(), ballot(), body()).prop_map(|(high, low, view, ballot, body)| {
        Message { cell: ObjectId { high, low }, view, ballot, body }
    })
}

fn batch() -> impl Strategy<Value = Batch> {
    (process(), any::<u32>(), any::<u64>(), proptest::collection::vec(message(), 1..60)).prop_map(
        |(sender, settings, sent, messages)| Batch {
            sender,
            settings,
            sent: WallTime::from_micros(sent),
            messages,
        },
    )
}

fn frames(batch: &Batch, frame_max: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    encode_lease_frames(batch, frame_max, &mut |frame| frames.push(frame.to_vec()));
    frames
}

proptest! {
    #[test]
    fn frames_carry_the_whole_batch(batch in batch(), frame_max in FRAME_MIN..4000) {
        let mut messages = Vec::new();
        for frame in frames(&batch, frame_max) {
            prop_assert!(frame.len() <= frame_max);
            let decoded = decode_lease_frame(&frame, batch.sender.node).unwrap();
            prop_assert_eq!(
                (decoded.sender, decoded.settings, decoded.sent),
                (batch.sender, batch.settings, batch.sent)
            );
            messages.extend(decoded.messages);
        }
        prop_assert_eq!(messages, batch.messages);
    }

    #[test]
    fn damage_is_refused_or_is_another_valid_frame(batch in batch(), at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut frame = frames(&batch, 4000).remove(0);
        let at = at.index(frame.len());
        frame[at] ^= 1_u8 << bit;
        if let Ok(decoded) = decode_lease_frame(&frame, batch.sender.node) {
            prop_assert_eq!(frames(&decoded, frame.len() + FRAME_MIN), vec![frame]);
        }
    }

    #[test]
    fn every_truncation_is_refused(batch in batch(), cut in any::<prop::sample::Index>()) {
        let frame = frames(&batch, 4000).remove(0);
        prop_assert!(decode_lease_frame(&frame[..cut.index(frame.len())], batch.sender.node).is_err());
    }

    #[test]
    fn garbage_is_refused_or_is_a_frame(tail in proptest::collection::vec(any::<u8>(), 0..300)) {
        // A believable beginning: kind, version, few messages, settings, sender.
        let mut bytes = vec![1, 1, tail.first().map_or(0, |byte| byte % 4), 0, 0, 0, 0, 0, 1, 0, 0, 0];
        bytes.extend(tail);
        if let Ok(decoded) = decode_lease_frame(&bytes, NodeId(1)) {
            prop_assert_eq!(frames(&decoded, bytes.len() + FRAME_MIN), vec![bytes]);
        }
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let ballot = Ballot { stamp: Stamp(1), process: Process::new(1, 1) };
    let message = Message { cell: ObjectId::new(0, 1), view: ViewId::default(), ballot, body: Body::Read };
    let sent = WallTime::from_micros(5);
    let batch = Batch { sender: Process::new(1, 1), settings: 7, sent, messages: vec![message] };
    let frame = frames(&batch, 1200).remove(0);
    assert_eq!(frame.len(), 24 + 17, "a read is 17 bytes when it shares all it can");
    let decode = |bytes: &[u8]| decode_lease_frame(bytes, NodeId(1)).unwrap_err();
    let changed = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[at] = byte;
        decode(&frame)
    };
    assert_eq!(changed(0, 9), DecodeError::UnknownKind(9));
    assert_eq!(changed(1, 2), DecodeError::UnknownVersion(2));
    assert_eq!((changed(2, 2), changed(2, 0)), (DecodeError::TooMany(2), DecodeError::TooMany(0)));
    assert_eq!(changed(24, 0xe0), DecodeError::UnknownByte { field: "a lease message", byte: 0 });
    assert_eq!(changed(8, 2), DecodeError::WrongSender { named: NodeId(2), actual: NodeId(1) });
    assert_eq!(decode(&[&frame[..], &[0]].concat()), DecodeError::TrailingBytes(1));
    assert_eq!(decode(&[]), DecodeError::Truncated);
}
