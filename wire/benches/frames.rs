//! What it costs to write and to read frames with a hundred messages, and frames with data: `cargo bench --package wire`.
//!
//! Ids, tokens and hashes are as large as in use, because small numbers take fewer bytes and less time.

use std::hint::black_box;

use base::{Epoch, NodeId, ObjectId, Process, Random, Role};
use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use node::file::{Change, FileBody, FileRequest, Level, Payload};
use node::{
    ClientFrame, ClientId, DaemonFrame, Grant, PeerMessage, Record, Reply, ReplyBody, Request, RequestBody,
    RequestId, Token,
};
use wire::{FrameReader, Message, encode, encode_in_pieces};

const MESSAGES: u64 = 100;

/// One kind of frame, both ways.
fn both_ways<M: Message>(criterion: &mut Criterion, name: &str, role: &str, message: &M) {
    let role: Role = role.parse().expect("a role");
    let mut frame = Vec::new();
    encode(message, &mut frame);
    let size = frame.len() as u64 / MESSAGES;
    let mut group = criterion.benchmark_group(format!("{name} of {size} bytes a message"));
    group.throughput(Throughput::Elements(MESSAGES));
    group.bench_function("encode", |bencher| {
        bencher.iter(|| {
            frame.clear();
            encode(black_box(message), &mut frame);
        });
    });
    let frame = Bytes::from(frame);
    group.bench_function("decode", |bencher| {
        bencher.iter(|| {
            let admitted = FrameReader::new(role.clone()).next(&mut frame.clone()).expect("a frame");
            admitted.expect("a whole one").decode::<M>().expect("a message")
        });
    });
    group.finish();
}

fn frames(criterion: &mut Criterion) {
    let mut random = Random::new(1);
    let mut cell = || ObjectId::new(random.next_u64() | 1 << 63, random.next_u64());
    let epoch = Epoch { number: 70_000, node: NodeId(2) };
    let client = ClientId { certificate: 0xfedc_ba98_7654_3210, program: 0x8123_4567_89ab_cdef };
    let token = Token::new(epoch, 3).expect("a token");
    let record =
        Record { epoch, version: 3, writer: Process::new(2, 17), grant: Some(Grant { client, token }) };

    let requests = (0..MESSAGES).map(|index| {
        let (id, cell) = (RequestId(1_000_000 + index), cell());
        let body = match index % 2 {
            0 => RequestBody::Acquire { cell, wait: true },
            _ => RequestBody::Release { cell, token },
        };
        Request { id, body }
    });
    let requests = ClientFrame { number: 100_000, requests: requests.collect() };
    both_ways(criterion, "client frame", "client/a", &requests);

    let replies = (0..MESSAGES).map(|index| {
        let body = if index % 2 == 0 { ReplyBody::Granted(token) } else { ReplyBody::Released };
        Reply::To { id: RequestId(1_000_000 + index), body }
    });
    let replies = DaemonFrame { acked: 100_000, replies: replies.collect() };
    both_ways(criterion, "daemon frame", "node/1", &replies);

    let messages = (0..MESSAGES).map(|index| match index % 4 {
        0 => PeerMessage::Promise { cell: cell(), epoch, dead: Vec::new() },
        1 => PeerMessage::Promised { cell: cell(), epoch, record: None, knows_all: true },
        2 => PeerMessage::Write { cell: cell(), record },
        _ => PeerMessage::Written { cell: cell(), epoch, version: 3 },
    });
    both_ways(criterion, "peer frame", "node/1", &messages.collect::<Vec<_>>());
}

/// A write on its way: the client makes its checksum, writes the frame and hands the data on; a daemon reads it in.
fn data(criterion: &mut Criterion) {
    let role: Role = "client/a".parse().expect("a role");
    for length in [4 << 10, 1 << 20] {
        let bytes = Bytes::from(vec![0x5a; length]);
        let request = |data: Payload| {
            let change = Change::Write { offset: 1 << 30, data };
            let body =
                FileBody::Change { number: 1_000, settled: 990, level: Level::Written, under: None, change };
            vec![FileRequest {
                id: RequestId(1_000_000),
                object: ObjectId::new(70_000, 12_345),
                shown: None,
                body,
                proof: None,
                holds: None,
                caches: false,
            }]
        };
        let mut group = criterion.benchmark_group(format!("a write of {length} bytes"));
        group.throughput(Throughput::Bytes(length as u64));
        group.bench_function("checksum", |bencher| bencher.iter(|| Payload::new(black_box(&bytes).clone())));
        let asked = request(bytes.clone().into());
        group.bench_function("encode", |bencher| bencher.iter(|| encode_in_pieces(black_box(&asked))));
        let frame = Bytes::from(encode_in_pieces(&asked).concat());
        group.bench_function("decode", |bencher| {
            bencher.iter(|| {
                let admitted = FrameReader::new(role.clone()).next(&mut frame.clone()).expect("a frame");
                admitted.expect("a whole one").decode::<Vec<FileRequest>>().expect("a message")
            });
        });
        group.finish();
    }
}

criterion_group!(benches, frames, data);
criterion_main!(benches);
