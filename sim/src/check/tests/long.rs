//! Histories of thousands of operations, drawn so that they have an order, and then spoilt.

use std::time::Instant;

use base::Random;

use super::*;

const BLOCK: usize = 4;
const OPERATIONS: usize = 5_000;
const CLIENTS: u64 = 8;

/// What a client does, and when it really takes effect.
struct Drawn {
    operation: FileOperation,
    effect: Option<u64>,
}

/// A history of which about so many outcomes are unknown.
fn drawn(seed: u64, unknown: u64) -> Vec<FileOperation> {
    let mut random = Random::new(seed);
    let mut clocks: Vec<u64> = (0..CLIENTS).map(|_| random.below(20)).collect();
    let mut all: Vec<Drawn> = Vec::new();
    for number in 0..OPERATIONS {
        let client = random.index(clocks.len());
        let called = clocks[client];
        let op = draw_op(&mut random, number);
        let (effect, returned) = (called + random.below(20), called + 20 + random.below(20));
        let is_unknown = random.chance(unknown, OPERATIONS as u64);
        let effect = match is_unknown.then(|| random.below(3)) {
            Some(0) => None,
            Some(1) => Some(called + random.below(2_000)),
            _ => Some(effect),
        };
        let returned = (!is_unknown).then_some((Moment(returned), DONE));
        clocks[client] = called + 40 + random.below(5);
        let operation = Operation { client: client as u64, called: Moment(called), op, returned };
        all.push(Drawn { operation, effect });
    }
    let mut order: Vec<&mut Drawn> = all.iter_mut().filter(|drawn| drawn.effect.is_some()).collect();
    order.sort_by_key(|drawn| drawn.effect);
    let mut state = MODEL.start();
    for Drawn { operation, .. } in order {
        let (after, outcome) = outcome(&state, &operation.op);
        state = after;
        if let Some(returned) = &mut operation.returned {
            returned.1 = outcome;
        }
    }
    all.into_iter().map(|drawn| drawn.operation).collect()
}

/// No two writes have the same data.
fn draw_op(random: &mut Random, number: usize) -> FileOp {
    let value = u16::try_from(number).unwrap().to_be_bytes();
    let value = [value[0] | 0x80, value[1], value[0] | 0x80, value[1]];
    let offset = random.index(MODEL.size_max / BLOCK) * BLOCK;
    match random.below(100) {
        0..35 => write(offset, &value),
        35..45 => append(&value[..2]),
        45..48 => FileOp::Truncate { size: offset },
        48..52 => FileOp::Punch { offset, length: 6 },
        52..60 => READ,
        60..70 => FileOp::Stat,
        _ => FileOp::Read { offset, length: BLOCK },
    }
}

fn outcome(state: &Content, op: &FileOp) -> (Content, FileOutcome) {
    let bytes = &state.bytes;
    let size = bytes.len();
    let outcomes = [
        // Whoever has appended knows where.
        FileOutcome::Appended(size),
        FileOutcome::Done,
        FileOutcome::Size(size),
        FileOutcome::Refused,
        match *op {
            FileOp::Read { offset, length } => data(&bytes[offset.min(size)..(offset + length).min(size)]),
            _ => FileOutcome::Done,
        },
    ];
    let step = |outcome: FileOutcome| Some((MODEL.step(state, op, Some(&outcome))?, outcome));
    outcomes.into_iter().find_map(step).expect("something comes of it")
}

/// Lets a read late in the history see a write that was overwritten before.
fn spoil(history: &mut [FileOperation]) -> usize {
    let ended = |operation: &FileOperation| operation.returned.as_ref().map(|(at, _)| *at);
    let writes_block = |operation: &FileOperation, block: usize| {
        matches!(operation.op, FileOp::Write { offset, .. } if offset == block) && ended(operation).is_some()
    };
    for read in history.len() * 4 / 5..history.len() {
        let FileOp::Read { offset, length: BLOCK } = history[read].op else { continue };
        match &history[read].returned {
            Some((_, FileOutcome::Data(data))) if data.len() == BLOCK => {}
            _ => continue,
        }
        let before = |end: Moment| {
            let ended_before = |other: &&FileOperation| ended(other).is_some_and(|at| at < end);
            let own = |other: &&FileOperation| writes_block(other, offset) && ended_before(other);
            history.iter().filter(own).max_by_key(|other| other.called)
        };
        let Some(over) = before(history[read].called) else { continue };
        let Some(FileOp::Write { data, .. }) = before(over.called).map(|old| old.op.clone()) else {
            continue;
        };
        history[read].returned.as_mut().unwrap().1 = FileOutcome::Data(data);
        return read;
    }
    panic!("no read to spoil");
}

#[test]
#[expect(clippy::print_stdout, reason = "how long it takes is asked for with --nocapture")]
fn long_histories_are_found_right() {
    for (seed, unknown) in [(1, 0), (2, 10), (3, 30)] {
        let history = drawn(seed, unknown);
        let start = Instant::now();
        let verdict = check(&MODEL, &history, 300_000);
        println!("{unknown} of {OPERATIONS} unknown, right: {:?}", start.elapsed());
        assert_eq!(verdict, Verdict::Linearizable, "seed {seed}");
    }
}

#[test]
fn a_history_that_takes_too_long_is_never_called_right() {
    let mut history = drawn(3, 30);
    spoil(&mut history);
    assert_ne!(check(&MODEL, &history, 300_000), Verdict::Linearizable);
}

#[test]
#[expect(clippy::print_stdout, reason = "how long it takes is asked for with --nocapture")]
fn long_histories_with_a_stale_read_are_found_wrong() {
    for (seed, unknown) in [(1, 0), (2, 10)] {
        let mut history = drawn(seed, unknown);
        let spoilt = spoil(&mut history);
        let start = Instant::now();
        let Verdict::Violation(violation) = check(&MODEL, &history, 3_000_000) else {
            panic!("seed {seed}: no violation found");
        };
        println!("{unknown} of {OPERATIONS} unknown, wrong: {:?}\n{violation}", start.elapsed());
        assert_eq!(violation.culprit, spoilt, "seed {seed}: {violation}");
        assert!(violation.operations.len() <= 6, "seed {seed}: {violation}");
    }
}
