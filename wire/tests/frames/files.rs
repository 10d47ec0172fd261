//! What is said about files: what is refused, what shares memory, and what fits into a frame.

use std::collections::VecDeque;

use base::{ClientId, Epoch, Members, NodeId, ObjectId, Seq, View, ViewId, WallTime};
use bytes::Bytes;
use namespace::{Lent, LentTo};
use node::file::{
    Answer, CHUNK_BYTES, Change, Chunk, Done, FILE_BYTES_MAX, FileBody, FileReply, FileReplyBody,
    FileRequest, Key, Level, Mark, Op, Part, Piece, Position, READ_BYTES_MAX, Stat, WRITE_BYTES_MAX,
};
use node::{
    Capability, CertificateId, FileMessage, KeyEpoch, MemberChange, Open, OpenMode, Order, OrderBody,
    OrderReply, OrderReplyBody, PROOF_BYTES, Proof, RequestId, Source, Tag,
};
use proptest::prelude::*;
use replication::{Account, Body, Config, Entry, Memory, Message, Page, Request, Rest, Session, Sessions};
use wire::{
    Admitted, DecodeError, FILE_BATCH_MAX, FILE_DATA_BYTES_MAX, FILE_MESSAGE_BYTES_MAX, FrameReader,
    HEADER_BYTES, encode, encode_in_pieces, next_batch,
};

use crate::samples::{
    Outcome, at, entries, epoch, file_messages, file_replies, file_requests, order_replies, orders, page,
    rest,
};

const OBJECT: ObjectId = ObjectId::new(3, 0x80);

fn admitted(frame: Vec<u8>, role: &str) -> Admitted {
    FrameReader::new(role.parse().unwrap()).next(&mut frame.into()).unwrap().unwrap()
}

fn frame<M: wire::Message>(message: &M) -> Vec<u8> {
    let mut frame = Vec::new();
    encode(message, &mut frame);
    frame
}

/// What becomes of a message on its way from node 1.
fn sent(message: Message<node::file::File>) -> Result<Vec<FileMessage>, DecodeError> {
    let said = FileMessage { object: OBJECT, view: ViewId::default(), message };
    admitted(frame(&vec![said]), "node/1").decode()
}

const fn impossible(what: &'static str) -> Result<Vec<FileMessage>, DecodeError> {
    Err(DecodeError::Impossible(what))
}

/// A frame in which the bytes `old` were replaced, with its lengths kept true.
fn with(mut frame: Vec<u8>, old: &[u8], new: &[u8]) -> Vec<u8> {
    let found: Vec<usize> = (HEADER_BYTES..frame.len()).filter(|&at| frame[at..].starts_with(old)).collect();
    let &[place] = found.as_slice() else { panic!("{old:02x?} is there {} times", found.len()) };
    frame.splice(place..place + old.len(), new.iter().copied());
    let metadata = u32::from_le_bytes(*frame[4..].first_chunk().unwrap()) + u32::try_from(new.len()).unwrap();
    let metadata = metadata - u32::try_from(old.len()).unwrap();
    frame[4..8].copy_from_slice(&metadata.to_le_bytes());
    frame
}

fn requests(frame: Vec<u8>) -> Result<Vec<FileRequest>, DecodeError> {
    admitted(frame, "client/a").decode()
}

#[test]
fn long_data_is_not_copied() {
    let data = Bytes::from(vec![7; 100_000]);
    let change = Change::Write { offset: 1, data: data.clone().into() };
    let body = FileBody::Change { number: 1, settled: 1, level: Level::Written, under: None, change };
    let request = FileRequest {
        id: RequestId(1),
        object: OBJECT,
        shown: None,
        body,
        proof: None,
        holds: None,
        caches: false,
    };
    let pieces = encode_in_pieces(&vec![request.clone(), request]);
    let [_, first, second] = pieces.as_slice() else { panic!("{} pieces", pieces.len()) };
    assert_eq!((first.as_ptr(), second.as_ptr()), (data.as_ptr(), data.as_ptr()));
    let stream = Bytes::from(pieces.concat());
    let frame = FrameReader::new("client/a".parse().unwrap()).next(&mut stream.clone()).unwrap().unwrap();
    let decoded: Vec<FileRequest> = frame.decode().unwrap();
    let places = decoded.iter().map(|request| match &request.body {
        FileBody::Change { change: Change::Write { data, .. }, .. } => data.as_ptr(),
        _ => panic!("a write was sent"),
    });
    assert!(
        places.eq([stream[stream.len() - 200_000..].as_ptr(), stream[stream.len() - 100_000..].as_ptr()])
    );
}

#[test]
fn short_data_does_not_keep_its_frame() {
    let change = |length| Change::Append { data: Bytes::from(vec![7; length]).into() };
    let bodies = [100_000, 5_000].map(change).map(|change| FileBody::Change {
        number: 1,
        settled: 1,
        level: Level::Written,
        under: None,
        change,
    });
    let requests: Vec<_> = bodies
        .map(|body| FileRequest {
            id: RequestId(1),
            object: OBJECT,
            shown: None,
            body,
            proof: None,
            holds: None,
            caches: false,
        })
        .into();
    let stream = Bytes::from(encode_in_pieces(&requests).concat());
    let frame = FrameReader::new("client/a".parse().unwrap()).next(&mut stream.clone()).unwrap().unwrap();
    let mut decoded: Vec<FileRequest> = frame.decode().unwrap();
    drop(frame);
    assert!(!stream.is_unique(), "the long one is a part of it");
    decoded.remove(0);
    assert!(stream.is_unique());
}

#[test]
fn pieces_are_the_frame() {
    for pieces in [
        (encode_in_pieces(&file_messages()), frame(&file_messages())),
        (encode_in_pieces(&file_requests()), frame(&file_requests())),
        (encode_in_pieces(&file_replies()), frame(&file_replies())),
    ] {
        assert_eq!(pieces.0.concat(), pieces.1);
    }
}

#[test]
fn damaged_data_is_refused_with_what_to_do() {
    let sound = frame(&file_requests());
    let mut damaged = sound.clone();
    *damaged.last_mut().unwrap() ^= 1;
    let error = requests(damaged).unwrap_err();
    assert!(matches!(error, DecodeError::Damaged(_)), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("data with checksum ") && text.contains("send it again"), "{text}");
    // The checksum of one data with another one.
    let (some, data) = ([0xa5, 0x81, 0xb5, 0xc1], [0xd1, 0x7d, 0xd8, 0xae]);
    assert!(matches!(requests(with(sound, &some, &data)), Err(DecodeError::Damaged(_))));
    for (said, is_refused) in [(file_replies().remove(3), true), (file_replies().remove(4), false)] {
        let mut frame = frame(&vec![said]);
        *frame.last_mut().unwrap() ^= 1;
        let damaged = admitted(frame, "node/1").decode::<Vec<FileReply>>();
        assert_eq!(matches!(damaged, Err(DecodeError::Damaged(_))), is_refused);
    }
}

#[test]
fn the_checksum_goes_along_as_it_was_made() {
    // Whoever passes data on that was damaged in its memory does not make it look sound.
    let decoded = requests(frame(&file_requests())).unwrap();
    let checksums = |requests: &[FileRequest]| -> Vec<u32> {
        let changes = requests.iter().filter_map(|request| match &request.body {
            FileBody::Change { change: Change::Write { data, .. } | Change::Append { data }, .. } => {
                Some(data.checksum())
            }
            _ => None,
        });
        changes.collect()
    };
    assert_eq!(checksums(&decoded), [crc32c::crc32c(b"some"), crc32c::crc32c(b"data")]);
}

#[test]
fn data_that_nobody_names_is_refused() {
    let mut frame = frame(&file_requests());
    frame.push(0);
    let tail = u32::from_le_bytes(*frame[8..].first_chunk().unwrap()) + 1;
    frame[8..12].copy_from_slice(&tail.to_le_bytes());
    assert_eq!(requests(frame), Err(DecodeError::TrailingBytes(1)));
}

#[test]
fn entries_follow_each_other() {
    let append = |after, entries, number| {
        sent(Message::Append { epoch: epoch(number), after, entries, committed: Seq(0) })
    };
    let refused = impossible("an entry that does not follow the one before it");
    assert!(append(at(4, 3), entries(), 5).is_ok());
    assert!(append(at(4, 3), Vec::new(), 5).is_ok());
    assert_eq!(append(at(4, 3), entries(), 4), refused, "an entry of a later epoch than the primary's");
    assert_eq!(append(at(4, 2), entries(), 5), refused, "a gap before them");
    assert_eq!(append(at(5, 3), entries(), 5), refused, "an epoch that falls");
    assert_eq!(append(at(4, u64::MAX), entries(), 5), refused, "no place behind the last");
    let mut swapped = entries();
    swapped.swap(1, 2);
    assert_eq!(append(at(4, 3), swapped, 5), refused);
    let mut gap = entries();
    gap.remove(3);
    assert_eq!(append(at(4, 3), gap, 5), refused);
}

#[test]
fn entries_hold_what_files_can_take() {
    let with_change = |change| {
        let (request, time) = (Request { client: CLIENT, number: 1, settled: 1 }, WallTime::ZERO);
        let body = Body::Op { request, op: Op { time, under: None, change } };
        let entries = vec![Entry { at: at(5, 1), lease: 1, body }];
        sent(Message::Append { epoch: epoch(5), after: Position::START, entries, committed: Seq(0) })
    };
    let long = |bytes: u64| vec![1; usize::try_from(bytes).unwrap()].into();
    assert!(with_change(Change::Append { data: long(WRITE_BYTES_MAX) }).is_ok());
    let refused = impossible("an entry with a change that no file can take");
    for change in [
        Change::Append { data: long(WRITE_BYTES_MAX + 1) },
        Change::Write { offset: FILE_BYTES_MAX, data: long(1) },
        Change::Truncate { size: u64::MAX },
        Change::Extend { size: u64::MAX },
        Change::Punch { offset: u64::MAX, length: 1 },
    ] {
        assert_eq!(with_change(change), refused);
    }
    // A client that asks for such a thing is told so by the node, and keeps its connection.
    let body = FileBody::Change {
        number: 1,
        settled: 1,
        level: Level::Written,
        under: None,
        change: Change::Truncate { size: u64::MAX },
    };
    let asked = vec![FileRequest {
        id: RequestId(1),
        object: OBJECT,
        shown: None,
        body,
        proof: None,
        holds: None,
        caches: false,
    }];
    assert_eq!(requests(frame(&asked)), Ok(asked));
}

#[test]
fn files_are_removed_and_begun_anew() {
    for (change, kind) in [(Change::Remove, 5), (Change::Begin, 6)] {
        let body = FileBody::Change { number: 1, settled: 1, level: Level::Written, under: None, change };
        let asked = vec![FileRequest {
            id: RequestId(1),
            object: OBJECT,
            shown: None,
            body,
            proof: None,
            holds: None,
            caches: false,
        }];
        let sent = frame(&asked);
        assert_eq!(sent[sent.len() - 4..], [kind, 0, 0, 0], "and no proof, and nothing is open or kept then");
        assert_eq!(requests(sent), Ok(asked));
    }
}

#[test]
fn pages_hold_what_states_can_have() {
    let pulled = |page| sent(Message::Pulled { epoch: epoch(5), at: at(5, 9), page });
    assert!(pulled(page()).is_ok());
    let order = impossible("parts that are not in their order");
    let mut swapped = page();
    swapped.parts.swap(0, 1);
    assert_eq!(pulled(swapped), order);
    let mut twice = page();
    twice.same = vec![(Key::Chunk(1), at(1, 1)); 2];
    assert_eq!(pulled(twice), order);
    let behind = Key::Chunk(FILE_BYTES_MAX / CHUNK_BYTES);
    assert_eq!(pulled(Page { same: vec![(behind.clone(), at(1, 1))], ..page() }), order);
    let removed = Page { parts: vec![(behind, None)], ..page() };
    assert_eq!(pulled(removed), impossible("a chunk behind the longest file"));
    let middle = impossible("the end of a state in its middle");
    assert_eq!(pulled(Page { upto: Some(Key::Chunk(2)), ..page() }), middle);
    assert_eq!(pulled(Page { rest: None, ..page() }), middle);
    let pull = Message::Pull {
        epoch: epoch(5),
        at: at(5, 9),
        after: None,
        upto: None,
        have: vec![(Key::Chunk(2), at(1, 1)), (Key::Chunk(1), at(1, 1))],
    };
    assert_eq!(sent(pull), order);
}

/// A chunk with a byte at each of these places.
fn dotted(places: impl IntoIterator<Item = u32>) -> Chunk {
    let pieces = places.into_iter().map(|at| (at, Piece::Held(Bytes::from_static(b"x"))));
    Chunk::new(u16::MAX, pieces.collect()).unwrap()
}

fn page_with(chunk: Chunk) -> Message<node::file::File> {
    let parts = vec![(Key::Chunk(0), Some((at(5, 9), Part::Chunk(chunk))))];
    Message::Pulled { epoch: epoch(5), at: at(5, 9), page: Page { parts, ..page() } }
}

#[test]
fn pieces_that_are_close_are_sent_as_one() {
    let sent_as = |chunk: &Chunk| -> Vec<(u32, usize)> {
        let sent = sent(page_with(chunk.clone())).unwrap().remove(0).message;
        let Message::Pulled { page, .. } = sent else { panic!("a page was sent") };
        let [(_, Some((_, Part::Chunk(again))))] = page.parts.as_slice() else { panic!("with one chunk") };
        assert_eq!(again, chunk);
        again.pieces().map(|(start, piece)| (start, piece.len())).collect()
    };
    assert_eq!(sent_as(&dotted([0, 1, 33, 65_535])), [(0, 34), (65_535, 1)], "31 zeros between them");
    assert_eq!(sent_as(&dotted([0, 33, 67])), [(0, 1), (33, 1), (67, 1)], "32 or more");
    assert_eq!(sent_as(&Chunk::new(1, Vec::new()).unwrap()), [], "zeros that were written");
    let whole = Piece::Held(vec![1; 1 << 16].into());
    assert_eq!(sent_as(&Chunk::new(u16::MAX, vec![(0, whole)]).unwrap()), [(0, 1 << 16)]);
}

#[test]
fn chunks_are_as_they_are_sent() {
    let sum = crc32c::crc32c(b"x").to_le_bytes();
    let run = |start: u8| [&[start, 1][..], &sum].concat();
    let chunk = |start, next| [&[0xff, 0xff, 3, 2][..], &run(start), &run(next)].concat();
    let sound = {
        let message = page_with(dotted([1, 40]));
        frame(&vec![FileMessage { object: OBJECT, view: ViewId::default(), message }])
    };
    let refused = |new: &[u8]| {
        let frame = with(sound.clone(), &chunk(1, 40), new);
        admitted(frame, "node/1").decode::<Vec<FileMessage>>()
    };
    assert!(refused(&chunk(1, 41)).is_ok());
    let impossible = impossible("a chunk with such pieces");
    assert_eq!(refused(&chunk(1, 33)), impossible, "close together");
    assert_eq!(refused(&chunk(40, 1)), impossible, "out of order");
    let outside = [&[2, 2][..], &run(1), &run(40)].concat();
    assert_eq!(refused(&outside), impossible, "where nothing was written to");
    let behind = [&[0xff, 0xff, 3, 2][..], &run(1), &[0x80, 0x80, 4, 1], &sum].concat();
    assert_eq!(refused(&behind), impossible, "behind the end of the chunk");
    let blocks = [&[0x80, 0x80, 4, 2][..], &run(1), &run(40)].concat();
    assert_eq!(refused(&blocks), impossible, "a seventeenth block");
    let many = [&[0xff, 0xff, 3, 0xff, 0x7f][..], &run(1), &run(40)].concat();
    assert_eq!(refused(&many), Err(DecodeError::TooMany(0x3fff)));
}

#[test]
fn members_are_listed_as_they_are_kept() {
    let adopt = frame(&vec![file_messages().remove(18)]);
    let decode = |frame| admitted(frame, "node/1").decode::<Vec<FileMessage>>();
    assert!(decode(adopt.clone()).is_ok());
    let members = [3, 1, 2, 0xac, 2];
    for bad in [&[0][..], &[3, 2, 1, 0xac, 2], &[3, 1, 1, 0xac, 2]] {
        assert_eq!(decode(with(adopt.clone(), &members, bad)), Err(DecodeError::BadMembers), "{bad:02x?}");
    }
    let many = [&[16][..], &(1..=16).collect::<Vec<u8>>()].concat();
    assert_eq!(decode(with(adopt, &members, &many)), Err(DecodeError::BadMembers));
}

#[test]
fn what_a_primary_says_names_its_own_epoch() {
    // An answer names the epoch of whoever asked.
    let of_others = [1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 14, 16, 19, 21, 24, 25, 26];
    for (index, said) in file_messages().into_iter().enumerate() {
        let from_another = admitted(frame(&vec![said.clone()]), "node/2").decode::<Vec<FileMessage>>();
        let wrong = DecodeError::WrongSender { named: NodeId(1), actual: NodeId(2) };
        let expected = if of_others.contains(&index) { Ok(vec![said]) } else { Err(wrong) };
        assert_eq!(from_another, expected, "message {index}");
    }
}

#[test]
fn numbers_have_one_form() {
    let create = file_requests().remove(0);
    let frame = frame(&vec![create]);
    assert_eq!(&frame[HEADER_BYTES..], [1, 1, 3, 0x80, 1, 0, 0, 0, 0, 0]);
    let with_id = |id: &[u8]| requests(with(frame.clone(), &[1, 1, 3], &[&[1][..], id, &[3]].concat()));
    assert!(with_id(&[0xff; 9].into_iter().chain([1]).collect::<Vec<u8>>()).is_ok(), "the largest");
    for padded in [&[0x81, 0][..], &[0x80, 0], &[0xff, 0xff, 0]] {
        assert_eq!(with_id(padded), Err(DecodeError::PaddedNumber), "{padded:02x?}");
    }
    for large in [&[0xff; 9].into_iter().chain([2]).collect::<Vec<u8>>()[..], &[0x80; 20]] {
        assert_eq!(
            with_id(large),
            Err(DecodeError::Impossible("a number of more than 64 bits")),
            "{large:02x?}"
        );
    }
    let elsewhere = self::frame(&vec![file_replies().remove(12)]);
    let large = with(elsewhere, &[9, 2], &[9, 0x80, 0x80, 0x80, 0x80, 0x10]);
    let error = admitted(large, "node/1").decode::<Vec<FileReply>>().unwrap_err();
    assert_eq!(error, DecodeError::Impossible("a number of more than 32 bits"));
}

#[test]
fn unknown_variants_are_refused() {
    let create = frame(&vec![file_requests().remove(0)]);
    let bad = with(create, &[0x80, 1, 0, 0], &[0x80, 1, 0, 7]);
    assert_eq!(requests(bad), Err(DecodeError::UnknownByte { field: "what is asked about a file", byte: 7 }));
}

#[test]
fn batches_are_counted_before_there_is_room_for_them() {
    let create = FileRequest {
        id: RequestId(1),
        object: OBJECT,
        shown: None,
        body: FileBody::Create,
        proof: None,
        holds: None,
        caches: false,
    };
    assert!(requests(frame(&vec![create; FILE_BATCH_MAX])).is_ok());
    let few = frame(&vec![file_requests().remove(0)]);
    let many = |count: &[u8]| requests(with(few.clone(), &[1, 1, 3], &[count, &[1, 3]].concat()));
    assert_eq!(many(&[0x81, 8]), Err(DecodeError::TooMany(FILE_BATCH_MAX + 1)));
    assert_eq!(many(&[2]), Err(DecodeError::TooMany(2)), "more than the bytes can hold");
    let huge = [&[0xff; 9][..], &[1]].concat();
    assert_eq!(many(&huge), Err(DecodeError::TooMany(usize::MAX)));
}

const CLIENT: ClientId = ClientId { certificate: u64::MAX, program: u64::MAX };
const LAST: Epoch = Epoch { number: u64::MAX, node: NodeId(u32::MAX) };
const END: Position = Position { epoch: LAST, seq: Seq(u64::MAX) };

fn largest_members() -> Members {
    Members::new((u32::MAX - 14..=u32::MAX).map(NodeId)).unwrap()
}

fn largest_outcome() -> Outcome {
    let stat = Stat {
        size: u64::MAX,
        modified: WallTime::MAX,
        changed: WallTime::MAX,
        allocated: u64::MAX,
        lend: None,
    };
    Ok(Done::Written { offset: u64::MAX, stat })
}

/// As much as a node remembers of clients, with every number as large as it may be.
fn largest_rest(config: &Config) -> Rest<Outcome> {
    let client = |number: u64| ClientId { certificate: u64::MAX, program: u64::MAX - number };
    let (clients, each) = (config.clients_max as u64, config.outcomes_max / config.clients_max);
    let session = || {
        let first = u64::MAX - each as u64;
        let outcomes = (first..u64::MAX).map(|number| (number, largest_outcome())).collect();
        Session::new(first, outcomes).unwrap()
    };
    let known = (0..clients).map(|number| (client(number), session())).collect();
    let over = (0..config.expired_max as u64).map(|number| (WallTime::MAX, client(clients + number)));
    Rest {
        at: END,
        generation: LAST,
        view: View { id: END.into(), members: largest_members() },
        before: END.into(),
        settled: END.into(),
        former: largest_members().as_slice().iter().copied().collect(),
        home: Some(largest_members()),
        sessions: Sessions::new(known, over.collect()).unwrap(),
    }
}

#[test]
fn no_message_takes_more_bytes_than_it_costs() {
    let (epoch, view) = (LAST, View { id: END.into(), members: largest_members() });
    let entry = |body| Entry { at: END, lease: u64::MAX, body };
    let op = |change| {
        let request = Request { client: CLIENT, number: u64::MAX, settled: u64::MAX };
        entry(Body::Op { request, op: Op { time: WallTime::MAX, under: None, change } })
    };
    let data = Bytes::from(vec![1; 1 << 20]);
    let append = |entries| Message::Append { epoch, after: END, entries, committed: Seq(u64::MAX) };
    let whole = || Chunk::new(u16::MAX, vec![(0, Piece::Held(vec![1; 1 << 16].into()))]).unwrap();
    let fragments = || dotted((0..1 << 16).step_by(33));
    let islands = || {
        let pieces = (0..8).map(|number| (number << 13, Piece::Held(vec![1; 1 << 12].into())));
        Chunk::new(0x5555, pieces.collect()).unwrap()
    };
    let page_of = |chunk, rest| Page {
        after: Some(Key::Chunk(u64::MAX)),
        upto: Some(Key::Chunk(u64::MAX)),
        parts: vec![(Key::Chunk(FILE_BYTES_MAX / CHUNK_BYTES - 1), Some((END, Part::Chunk(chunk))))],
        same: vec![(Key::Chunk(u64::MAX), END); 10],
        rest,
    };
    let pulled = |page| Message::Pulled { epoch, at: END, page };
    let account = Account {
        tail: END,
        committed: END,
        memory: Memory::Mixed { source: NodeId(u32::MAX) },
        frozen_at: Some(END),
    };
    let messages = [
        Message::Promised { epoch, account },
        Message::WrongView { epoch, current: view.clone() },
        Message::Adopt { epoch, view },
        append(vec![op(Change::Write { offset: u64::MAX, data: data.into() })]),
        append(vec![op(Change::Punch { offset: u64::MAX, length: u64::MAX })]),
        append(vec![entry(Body::View(largest_members()))]),
        append(vec![entry(Body::Expire { client: CLIENT, since: WallTime::MAX, forget: WallTime::MAX })]),
        Message::Offer { epoch, at: END, generation: LAST },
        Message::Pull {
            epoch,
            at: END,
            after: Some(Key::Chunk(u64::MAX)),
            upto: Some(Key::Chunk(u64::MAX)),
            have: vec![(Key::Chunk(u64::MAX), END); 100],
        },
        pulled(page_of(whole(), None)),
        pulled(page_of(fragments(), None)),
        pulled(page_of(islands(), None)),
        pulled(page_of(whole(), Some(Box::new(largest_rest(&Config::default()))))),
    ];
    for message in messages {
        let (costs, what) = (message.bytes(), format!("{message:.40?}"));
        let said = FileMessage { object: ObjectId::new(u64::MAX, u64::MAX), view: END.into(), message };
        let bytes = (frame(&vec![said]).len() - HEADER_BYTES) as u64;
        assert!(bytes <= costs, "{bytes} of {costs}: {what}");
    }
}

#[test]
fn what_nodes_say_fits_into_a_frame() {
    let config = Config::default();
    assert!(config.batch_bytes_max <= FILE_MESSAGE_BYTES_MAX);
    assert!(config.page_bytes_max <= FILE_MESSAGE_BYTES_MAX);
    let page =
        Page { parts: Vec::new(), same: Vec::new(), rest: Some(Box::new(largest_rest(&config))), ..page() };
    let sent = sent(Message::Pulled { epoch: epoch(5), at: END, page });
    assert!(sent.is_ok(), "all that may be remembered of requests");
    let have = (0..config.versions_max as u64).map(|number| (Key::Chunk(number), END)).collect();
    let pull = Message::Pull { epoch: epoch(5), at: END, after: None, upto: None, have };
    assert!(self::sent(pull).is_ok());
}

#[test]
fn full_batches_fit_into_a_frame() {
    let mark = Mark { at: END, generation: LAST };
    let (id, object) = (RequestId(u64::MAX), ObjectId::new(u64::MAX, u64::MAX));
    let share = usize::try_from(FILE_DATA_BYTES_MAX).unwrap() / FILE_BATCH_MAX;
    let data = Bytes::from(vec![1; share]);
    let change = Change::Write { offset: u64::MAX, data: data.clone().into() };
    let bodies = [
        FileBody::Change { number: u64::MAX, settled: u64::MAX, level: Level::Written, under: None, change },
        FileBody::Sync { oldest: mark, newest: mark },
    ];
    for body in bodies {
        let mut queue = VecDeque::from(vec![
            FileRequest {
                id,
                object,
                shown: None,
                body,
                proof: None,
                holds: None,
                caches: false
            };
            FILE_BATCH_MAX + 1
        ]);
        let batch = next_batch(&mut queue);
        assert_eq!((batch.len(), queue.len()), (FILE_BATCH_MAX, 1));
        assert_eq!(requests(frame(&batch)).map(|requests| requests.len()), Ok(FILE_BATCH_MAX));
    }
    let bodies = [
        FileReplyBody::Changed { outcome: largest_outcome(), mark, level: Level::Durable, opened: None },
        FileReplyBody::Answer(Ok(Answer::Data(data.into()))),
    ];
    for body in bodies {
        let mut queue =
            VecDeque::from(vec![FileReply { id, body, proofs: Vec::new(), grant: None }; FILE_BATCH_MAX + 1]);
        let frame = frame(&next_batch(&mut queue));
        assert!(admitted(frame, "node/1").decode::<Vec<FileReply>>().is_ok());
    }
}

/// The longest capability there is, with the attributes that go with it.
fn largest_opened() -> FileReplyBody {
    let born = || namespace::Born { epoch: LAST, seq: Seq(u64::MAX) };
    let largest = ObjectId::new(u64::MAX, u64::MAX);
    let lend = Some(namespace::Generation(born()));
    let source = Source { volume: largest, inode: namespace::InodeId::of(born()), lend };
    let certificate = CertificateId([0xff; 32]);
    let open = Open { file: largest, mode: OpenMode::ReadWrite, certificate };
    let (expires, tag) = (WallTime::MAX, Tag::from_bytes([0xff; 32]));
    let capability = Capability { source, open, expires, epoch: KeyEpoch(u32::MAX), tag };
    let attributes = namespace::Attributes {
        inode: source.inode,
        kind: namespace::Kind::File,
        mode: 0o7777,
        uid: u32::MAX,
        gid: u32::MAX,
        links: u32::MAX,
        rdev: 0,
        size: u64::MAX,
        atime: WallTime::MAX,
        mtime: WallTime::MAX,
        ctime: WallTime::MAX,
        btime: WallTime::ZERO,
        lent: lend.map(|generation| Lent { generation, to: LentTo::Client(CLIENT) }),
        last_lend: Some(namespace::Generation(namespace::Born { seq: Seq(u64::MAX - 1), ..born() })),
        replicas: Some(largest_members()),
        has_acl: true,
    };
    FileReplyBody::Opened { attributes: Box::new(attributes), capability: Box::new(capability) }
}

#[test]
fn batches_of_capabilities_end_where_a_frame_does() {
    let FileReplyBody::Opened { capability, .. } = largest_opened() else { unreachable!() };
    let body = FileBody::Renew { capability: capability.clone() };
    let (id, object) = (RequestId(u64::MAX), ObjectId::new(u64::MAX, u64::MAX));
    let mut queue = VecDeque::from(vec![
        FileRequest {
            id,
            object,
            shown: None,
            body,
            proof: None,
            holds: None,
            caches: false
        };
        FILE_BATCH_MAX
    ]);
    let sent = frame(&next_batch(&mut queue));
    assert!(!queue.is_empty() && requests(sent).is_ok());
    let mark = Mark { at: END, generation: LAST };
    let outcome = Ok(Done::Tree(Box::new(namespace::Done::Welcomed)));
    let opened = Some(capability);
    for body in [largest_opened(), FileReplyBody::Changed { outcome, mark, level: Level::Written, opened }] {
        let mut queue =
            VecDeque::from(vec![FileReply { id, body, proofs: Vec::new(), grant: None }; FILE_BATCH_MAX]);
        let frame = frame(&next_batch(&mut queue));
        assert!(!queue.is_empty() && admitted(frame, "node/1").decode::<Vec<FileReply>>().is_ok());
    }
}

/// As many entries as a page can have, each with a proof.
#[test]
fn the_longest_page_fits_into_a_frame_with_its_proofs() {
    let born = namespace::Born { epoch: LAST, seq: Seq(u64::MAX) };
    let entry = |number: usize| namespace::Listed {
        name: namespace::Name::new(&[
            b'a' + u8::try_from(number / 26).unwrap(),
            b'a' + u8::try_from(number % 26).unwrap(),
        ])
        .unwrap(),
        inode: namespace::InodeId::of(born),
        kind: namespace::Kind::File,
        attributes: None,
    };
    let count = 26 * 26;
    let entries: Vec<_> = (0..count).map(entry).collect();
    let page = namespace::Answer::Page(namespace::Page { entries, is_last: true });
    let body = FileReplyBody::Answer(Ok(Answer::Tree(Box::new(page))));
    let proofs = vec![Proof::new(KeyEpoch(u32::MAX), [0xff; PROOF_BYTES]); count];
    let reply = FileReply { id: RequestId(u64::MAX), body, proofs, grant: None };
    assert_eq!(reply.body.told().len(), count);
    let mut queue = VecDeque::from(vec![reply.clone(); 2]);
    let sent = frame(&next_batch(&mut queue));
    assert_eq!(
        admitted(sent, "node/1").decode::<Vec<FileReply>>().map(|replies| replies[0].clone()),
        Ok(reply)
    );
}

#[test]
fn orders_come_as_they_left() {
    for order in orders() {
        assert_eq!(admitted(frame(&order), "admin/root").decode(), Ok(order));
    }
    for reply in order_replies() {
        assert_eq!(admitted(frame(&reply), "node/1").decode(), Ok(reply));
    }
    let (id, object) = (RequestId(u64::MAX), ObjectId::new(u64::MAX, u64::MAX));
    let change = MemberChange::Dismiss(NodeId(u32::MAX));
    let largest = Order { id, body: OrderBody::Change { object, change } };
    assert_eq!(admitted(frame(&largest), "admin/root").decode(), Ok(largest));
    let largest = OrderReply { id, body: OrderReplyBody::Members(largest_members()) };
    assert_eq!(admitted(frame(&largest), "node/1").decode(), Ok(largest));
}

#[test]
fn batches_end_where_a_frame_does() {
    let write = |bytes: u64| {
        let data = Bytes::from(vec![1; usize::try_from(bytes).unwrap()]);
        let change = Change::Append { data: data.into() };
        let body = FileBody::Change { number: 1, settled: 1, level: Level::Written, under: None, change };
        FileRequest {
            id: RequestId(1),
            object: OBJECT,
            shown: None,
            body,
            proof: None,
            holds: None,
            caches: false,
        }
    };
    let lengths = |bytes: &[u64]| {
        let mut queue: VecDeque<FileRequest> = bytes.iter().map(|&bytes| write(bytes)).collect();
        let mut lengths = Vec::new();
        while !queue.is_empty() {
            let batch = next_batch(&mut queue);
            assert!(requests(frame(&batch)).is_ok());
            lengths.push(batch.len());
        }
        lengths
    };
    assert_eq!(lengths(&[WRITE_BYTES_MAX, 0, 1, WRITE_BYTES_MAX - 1, 1]), [2, 2, 1]);
    let read = FileReplyBody::Answer(Ok(Answer::Data(
        Bytes::from(vec![1; usize::try_from(READ_BYTES_MAX).unwrap()]).into(),
    )));
    let mut queue =
        VecDeque::from(vec![FileReply { id: RequestId(1), body: read, proofs: Vec::new(), grant: None }; 2]);
    assert_eq!((next_batch(&mut queue).len(), next_batch(&mut queue).len()), (1, 1));
    assert_eq!(next_batch(&mut queue), []);
    let mut queue: VecDeque<FileMessage> = file_messages().into();
    assert_eq!(next_batch(&mut queue).len(), file_messages().len());
}

/// Numbers of every length.
fn any_number() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0..64_u32).prop_map(|(number, shift)| number >> shift)
}

fn any_change() -> impl Strategy<Value = Change> {
    let data = || proptest::collection::vec(any::<u8>(), 0..300).prop_map(Into::into);
    let place = || any_number().prop_map(|number| number >> 2);
    prop_oneof![
        (place(), data()).prop_map(|(offset, data)| Change::Write { offset, data }),
        data().prop_map(|data| Change::Append { data }),
        place().prop_map(|size| Change::Truncate { size }),
        place().prop_map(|size| Change::Extend { size }),
        (place(), place()).prop_map(|(offset, length)| Change::Punch { offset, length }),
        proptest::option::of(any_number().prop_map(WallTime::from_micros))
            .prop_map(|modified| Change::Touch { modified }),
    ]
}

proptest! {
    #[test]
    fn requests_come_as_they_left(
        asked in proptest::collection::vec((any_number(), any_number(), any_number(), any_change()), 0..20)
    ) {
        let requests: Vec<FileRequest> = asked
            .into_iter()
            .map(|(id, low, number, change)| FileRequest {
                id: RequestId(id),
                object: ObjectId::new(number, low),
                shown: None,
                body: FileBody::Change { number, settled: low, level: Level::Written, under: None, change },
                proof: None,
                holds: None,
                caches: number % 2 == 1,
            })
            .collect();
        prop_assert_eq!(self::requests(frame(&requests)), Ok(requests));
    }

    #[test]
    fn entries_come_as_they_left(
        first in any_number(),
        epochs in proptest::collection::vec((0..2_u64, any_change(), any_number()), 0..20),
    ) {
        let (mut number, mut seq) = (first >> 1, first >> 1);
        let after = at(number, seq);
        let mut entries = Vec::new();
        for (step, change, lease) in epochs {
            (number, seq) = (number + step, seq + 1);
            let request = Request { client: CLIENT, number: lease, settled: seq };
            let op = Op { time: WallTime::from_micros(lease), under: None, change };
            entries.push(Entry { at: at(number, seq), lease, body: Body::Op { request, op } });
        }
        let message = Message::Append { epoch: epoch(number), after, entries, committed: Seq(first) };
        let sent = sent(message.clone()).map(|mut sent| sent.remove(0).message);
        prop_assert_eq!(sent, Ok(message));
    }

    #[test]
    fn states_come_as_they_left(
        numbers in proptest::collection::btree_set(any_number(), 0..30),
        over in proptest::collection::btree_set(any_number(), 0..30),
        settled in any_number(),
    ) {
        let client = |certificate| ClientId { certificate, program: 1 };
        let session = Session::new(settled, numbers.range(settled..).map(|n| (*n, largest_outcome())).collect());
        let session = session.unwrap();
        let known = numbers.iter().map(|number| (client(*number), session.clone())).collect();
        let over: Vec<u64> = over.difference(&numbers).copied().collect();
        let over = over.into_iter().rev().map(|number| (WallTime::from_micros(number), client(number)));
        let rest = Rest { sessions: Sessions::new(known, over.collect()).unwrap(), ..rest() };
        let page = Page { rest: Some(Box::new(rest)), ..page() };
        let message = Message::Pulled { epoch: epoch(5), at: at(5, 9), page };
        let sent = sent(message.clone()).map(|mut sent| sent.remove(0).message);
        prop_assert_eq!(sent, Ok(message));
    }
}
