//! What is said and kept of a tree: it comes back as it was, nothing else is taken for it, and it takes no more than it may.

#[path = "../../../fuzz/src/memory.rs"]
mod allocator;
mod draw;
mod golden;
mod order;
mod refused;
#[path = "../../tests/frames/name_samples.rs"]
mod samples;
mod sizes;

use std::fmt::Debug;

use bytes::Bytes;
use namespace::{Answer, Born, Done, Key, NameError, Op, Part, Query};
use proptest::prelude::*;

use super::*;
use crate::ALLOCATED_PER_BYTE_MAX;
use crate::field::read_whole;
use allocator::allocated_by;
use draw::Dice;

type Outcome = Result<Done, NameError>;
type Answered = Result<Answer, NameError>;
type Placed = (Key, Option<(Born, Part)>);

/// What any input may take: errors, and the first steps of buffers that grow.
const ALLOCATED_ALWAYS_MAX: usize = 1_024;

/// Metadata and tail.
fn written<T: Field>(value: &T) -> (Vec<u8>, Bytes) {
    let mut out = Sink::default();
    value.put(&mut out);
    (out.metadata, out.tail.concat().into())
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn read<T: Field>(metadata: &[u8], tail: &[u8]) -> Result<T, DecodeError> {
    read_whole(metadata, &Bytes::copy_from_slice(tail))
}

/// It comes back as it was, every truncation of it is refused, and so is a byte more.
fn check<T: Field + PartialEq + Debug>(value: &T) {
    let (metadata, tail) = written(value);
    assert_eq!(read::<T>(&metadata, &tail).as_ref(), Ok(value));
    // Of what is long not everywhere.
    let step = 1 + metadata.len() / 300;
    for length in (0..metadata.len()).step_by(step) {
        let error = read::<T>(&metadata[..length], &tail).unwrap_err();
        assert!(matches!(error, DecodeError::Truncated | DecodeError::TooMany(_)), "{length}: {error}");
    }
    for length in [0, tail.len() / 2, tail.len().saturating_sub(1)] {
        let is_whole = length == tail.len();
        assert_eq!(read::<T>(&metadata, &tail[..length]).is_ok(), is_whole, "{length} of {}", tail.len());
    }
    let more = Err(DecodeError::TrailingBytes(1));
    assert_eq!(read::<T>(&[&metadata[..], &[0]].concat(), &tail), more);
    assert_eq!(read::<T>(&metadata, &[&tail[..], &[0]].concat()), more);
}

/// Damage makes it something that is refused, or something else that is written as it was read; and whatever it is, reading
/// takes no more memory than declared.
fn check_damaged<T: Field>(value: &T, changes: &[(prop::sample::Index, u8)]) {
    let (mut metadata, tail) = written(value);
    for (at, byte) in changes {
        let at = at.index(metadata.len());
        metadata[at] = *byte;
    }
    let (read, allocated) = allocated_by(|| read_whole::<T>(&metadata, &tail));
    let allowed = ALLOCATED_ALWAYS_MAX + ALLOCATED_PER_BYTE_MAX * (metadata.len() + tail.len());
    assert!(allocated <= allowed, "{allocated} bytes of memory for {}", digits(&metadata));
    if let Ok(value) = read {
        assert_eq!(written(&value), (metadata, tail));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn what_is_said_comes_back(seed in any::<u64>()) {
        let mut dice = Dice::new(seed);
        check::<Op>(&dice.op());
        check::<Outcome>(&dice.outcome());
        check::<Query>(&dice.query());
        check::<Answered>(&dice.answered());
        check::<Placed>(&dice.placed());
    }

    #[test]
    fn damage_is_refused_or_is_something_else(
        seed in any::<u64>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), prop_oneof![0..9_u8, any::<u8>()]), 1..4),
    ) {
        let mut dice = Dice::new(seed);
        check_damaged::<Op>(&dice.op(), &changes);
        check_damaged::<Outcome>(&dice.outcome(), &changes);
        check_damaged::<Query>(&dice.query(), &changes);
        check_damaged::<Answered>(&dice.answered(), &changes);
        check_damaged::<Placed>(&dice.placed(), &changes);
    }

    #[test]
    fn noise_takes_no_more_memory_than_declared(
        bytes in proptest::collection::vec(prop_oneof![0..9_u8, any::<u8>()], 0..200),
    ) {
        let allowed = ALLOCATED_ALWAYS_MAX + ALLOCATED_PER_BYTE_MAX * bytes.len();
        let reads: [fn(&[u8]); 5] = [
            |bytes| drop(read_whole::<Op>(bytes, &Bytes::new())),
            |bytes| drop(read_whole::<Outcome>(bytes, &Bytes::new())),
            |bytes| drop(read_whole::<Query>(bytes, &Bytes::new())),
            |bytes| drop(read_whole::<Answered>(bytes, &Bytes::new())),
            |bytes| drop(read_whole::<Placed>(bytes, &Bytes::new())),
        ];
        for read in reads {
            let ((), allocated) = allocated_by(|| read(&bytes));
            prop_assert!(allocated <= allowed, "{allocated} bytes of memory for {}", digits(&bytes));
        }
    }

    #[test]
    fn what_is_kept_comes_back_under_its_key(seed in any::<u64>()) {
        let (key, part) = Dice::new(seed).placed();
        let Some((at, part)) = part else { return Ok(()) };
        let bytes = Bytes::from(encode_name_part(at, &part).concat());
        prop_assert_eq!(decode_name_part(&key, bytes.clone()), Ok((at, part)));
        for length in (0..bytes.len()).step_by(1 + bytes.len() / 300) {
            prop_assert!(decode_name_part(&key, bytes.slice(..length)).is_err(), "{}", length);
        }
        let longer = Bytes::from([&bytes[..], &[0]].concat());
        prop_assert_eq!(decode_name_part(&key, longer), Err(DecodeError::TrailingBytes(1)));
    }
}

/// As many elements as an announcement may have, each as short as can be.
#[test]
fn the_densest_lists_take_no_more_memory_than_declared() {
    // Names, inodes, doomed, clients, and names of extended attributes: the answer, an element, and how many there may be.
    let lists: [(&[u8], &[u8], u64); 7] = [
        (&[0, 1], &[1, b'a', 0, 0, 0, 0, 0], 1985),
        (&[0, 8], &[0, 0, 0], 1024),
        (&[0, 9], &[0, 0, 0, 1, 0], 1024),
        (&[0, 10], &[0, 0, 0], 1024),
        (&[0, 4], b"\x06user.a", 1024),
        // Locks that are had and, behind a list that is empty, waited for.
        (&[0, 7, 1], &[0; 21], 1000),
        (&[0, 7, 1, 0], &[0; 24], 240),
    ];
    for (head, element, max) in lists {
        for count in [1, 16, 100, max] {
            let mut out = Sink { metadata: head.to_vec(), tail: Vec::new() };
            count.put(&mut out);
            (0..count).for_each(|_| out.metadata.extend_from_slice(element));
            let bytes = out.metadata;
            let (read, allocated) = allocated_by(|| read_whole::<Answered>(&bytes, &Bytes::new()));
            assert!(!matches!(read, Err(DecodeError::TooMany(_))), "{count} of {element:?}: {read:?}");
            let allowed = ALLOCATED_ALWAYS_MAX + ALLOCATED_PER_BYTE_MAX * bytes.len();
            assert!(allocated <= allowed, "{allocated} bytes of memory for {count} of {element:?}");
        }
    }
}
