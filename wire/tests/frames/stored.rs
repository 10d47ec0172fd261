//! What a daemon keeps of files: its bytes, and what is refused.

use std::fmt::Debug;

use base::{ClientId, Epoch, Members, NodeId, ObjectId, Seq};
use bytes::Bytes;
use node::file::{CHUNK_BYTES, Chunk, File, FileError, Key, Piece};
use proptest::prelude::*;
use replication::{Checkpoint, Head, Holding, Machine, Record, Rest, Session, Sessions};
use wire::{DecodeError, FileRecord, KeptChunk, Stored, decode_stored, encode_stored};

use crate::samples::{at, attributes, chunk, entries, head, kept, mixed, page, records, rest};

fn bytes<T: Stored>(value: &T) -> Vec<u8> {
    encode_stored(value).concat()
}

fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Of two at the end of a record, which leave as few bytes as can be.
#[test]
fn refusals_that_need_no_words_are_read() {
    let refused = [(1, Err(FileError::Removed)), (2, Err(FileError::Removed)), (3, Err(FileError::NoSpace))];
    let session = Session::new(1, refused.into()).unwrap();
    let client = ClientId { certificate: 1, program: 1 };
    let rest = Rest { sessions: Sessions::new(vec![(client, session)], vec![]).unwrap(), ..rest() };
    let record = FileRecord { object: ObjectId::new(1, 1), record: Record::Ended(rest.into()) };
    assert_eq!(decode_stored(bytes(&record).into()), Ok(record));
}

/// Groups of digits belong together; `docs/wire.md` says what they are.
#[test]
fn what_is_kept_looks_as_documented() {
    let appended = records().remove(1);
    let expected = "93000000 03 8001 01 03 09 \
        040104cdd702 00 0201 \
        040105cdd702 01 ff01 01 02 01 8001 0000 c801 04 a581b5c1 \
        050106cdd702 01 ff01 01 03 01 8001 0001 04 d17dd8ae \
        050107cdd702 01 ff01 01 04 01 8001 0002 05 \
        050108cdd702 01 ff01 01 05 01 800100 03 01 02 \
        050109cdd702 01 ff01 01 06 01 800100 04 01 07 \
        05010acdd702 02 ff01 01 02 01 \
        05010bcdd702 03 03 01 02 ac02 \
        05010ccdd702 04 04 01 06 04 736f6d65 64617461";
    let expect = |value: Vec<u8>, expected: &str| {
        assert_eq!(digits(&value), expected.split_whitespace().collect::<String>());
    };
    let rest = "050109 0201 040106 03 01 02 ac02 030105 000000 02 01 04 01 03 01 02 ac02 \
        01 ff01 01 0a 20 0a 01 00 01 0b 01 01 02 03 0c 01 02 04 05 0d 01 03 \
        14 00 00 04 09 ac02 ad02 07 00 15 00 01 09 ac02 ad02 07 00 \
        16 00 02 09 17 00 03 00 18 00 03 01 09 ac02 ad02 07 01 050102 \
        19 01 06 1a 01 07 1b 01 08 1c 01 09 1d 01 0a 1e 01 0b 00 010000 \
        1f 01 0c 00 20 01 0c 01 21 01 0c 02 22 01 0c 03 ac02 23 01 0c 04 24 01 0c 05 25 01 0c 06 26 01 0e \
        27 01 0d 00 01 02 28 01 0d 01 29 01 0d 02 2a 01 0d 03 038001 048101 2b 01 0d 04 2c 01 0d 05 ac02 \
        2d 01 0d 06 038001 048101 2e 01 0c 07 2f 01 0c 08 01 ac02 02 03";
    expect(bytes(&appended), expected);
    let short = [
        (0, "06000000 03 8001 00 0501".to_owned()),
        (2, "06000000 03 8001 02 02 03".to_owned()),
        (4, format!("d2000000 03 8001 04 {rest}")),
        (5, "0c000000 03 8001 05 040106 03 01 02 ac02".to_owned()),
        (6, "0d000000 03 8001 06 01 040106 03 01 02 ac02".to_owned()),
        (7, "05000000 03 8001 06 00".to_owned()),
    ];
    for (index, expected) in short {
        expect(bytes(&records()[index]), &expected);
    }
    let placed = "29000000 03 8001 03 03 00 01 050108 09 ac02 ad02 00 00 01 00 01 050109 09 02 04 14 b810fc12 8060 08 8b15db95 01 02 00 \
        6120 6368756e6b 0000000000 616e64206d6f7265 6661722061776179";
    expect(bytes(&records()[3]), placed);
    expect(bytes(&mixed()), &format!("e2000000 0601 0501 {rest} 02 0501 000000 00 00 00 01 0102 010102 01"));
    expect(bytes(&attributes()), "18000000 050108 09 ac02 ad02 00 01 01c801 020501 050102 01ff010101");
    let micros = base::WallTime::from_micros;
    let removed = (at(5, 8), node::file::Attributes::removed(micros(300), micros(301)));
    expect(bytes(&removed), "0a000000 050108 00 ac02 ad02 01 00");
    check(&removed);
    expect(
        bytes(&chunk()),
        "15000000 050109 09 02 04 00 07 9e2c3c1e 8060 01 02 ac02 07 02 05 6120 6368756e6b",
    );
}

/// It comes back as it was, every truncation of it is refused, and so is a byte more.
fn check<T: Stored + PartialEq + Debug>(value: &T) {
    let bytes = Bytes::from(bytes(value));
    assert_eq!(decode_stored::<T>(bytes.clone()).as_ref(), Ok(value));
    for len in 0..bytes.len() {
        let error = decode_stored::<T>(bytes.slice(..len)).unwrap_err();
        assert!(matches!(error, DecodeError::Truncated | DecodeError::TooMany(_)), "{len}: {error}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(decode_stored::<T>(longer.into()), Err(DecodeError::TrailingBytes(1)));
}

#[test]
fn what_is_kept_comes_back() {
    records().iter().for_each(check);
    [head(), mixed()].iter().for_each(check);
    check(&Head { holding: Holding::Nothing, ..mixed() });
    check(&attributes());
    check(&chunk());
}

#[test]
fn a_checkpoint_is_put_together_from_its_parts() {
    let members = Members::new([1, 2].map(NodeId)).unwrap();
    let mut file = File::default();
    page().parts.into_iter().for_each(|(key, part)| file.place(key, part));
    let checkpoint = Checkpoint::first(members, file).at_home().promising(7);
    let (head, machine) = checkpoint.clone().into_parts();
    let head = decode_stored(Bytes::from(bytes(&head))).unwrap();
    let mut again = File::default();
    for (key, version) in machine.versions(None, usize::MAX) {
        let part = machine.part(&key).map(|part| (version, part));
        again.place(key, part);
    }
    assert_eq!(again.versions(None, 9), [(Key::Attributes, at(5, 8)), (Key::Chunk(0), at(5, 9))]);
    assert_eq!(Checkpoint::from_parts(head, again), checkpoint);
}

#[test]
fn a_head_goes_together() {
    let refused = Err(DecodeError::Impossible("a log that does not go with the state before it"));
    let sound = |head: Head<File>| decode_stored::<Head<File>>(Bytes::from(bytes(&head))).map(drop);
    assert_eq!(sound(head()), Ok(()));
    assert_eq!(sound(Head { base: at(4, 2), ..head() }), refused, "a gap behind the base");
    assert_eq!(sound(Head { base: at(5, 3), ..head() }), refused, "an epoch that falls");
    assert_eq!(sound(Head { holding: Holding::Nothing, ..head() }), refused, "a log of nothing");
    let at_other = |seq, number| {
        let mut head = head();
        head.rest.at = at(number, seq);
        head
    };
    assert_eq!(sound(at_other(3, 4)), Ok(()), "what the log stands behind");
    assert_eq!(sound(at_other(12, 5)), Ok(()), "its end");
    for (seq, number) in [(2, 4), (13, 5), (9, 4)] {
        assert_eq!(sound(at_other(seq, number)), refused);
    }
}

#[test]
fn records_hold_what_replicas_write() {
    let refused = |result| match decode_stored::<FileRecord>(Bytes::from(bytes(&kept(result)))) {
        Err(DecodeError::Impossible(what)) => what,
        other => panic!("{other:?}"),
    };
    let gap = Record::Appended { after: Seq(2), entries: entries(), committed: Seq(0) };
    assert_eq!(refused(gap), "an entry that does not follow the one before it");
    let mut swapped = entries();
    swapped.swap(1, 2);
    let swapped = Record::Appended { after: Seq(3), entries: swapped, committed: Seq(0) };
    assert_eq!(refused(swapped), "an entry that does not follow the one before it");
    let mut parts = page().parts;
    parts.swap(0, 1);
    assert_eq!(refused(Record::Placed(parts)), "parts that are not in their order");
}

#[test]
fn damaged_records_are_refused() {
    let mut damaged = bytes(&records().remove(1));
    *damaged.last_mut().unwrap() ^= 1;
    let error = decode_stored::<FileRecord>(damaged.into()).unwrap_err();
    assert!(matches!(error, DecodeError::Damaged(_)), "{error}");
}

#[test]
fn data_is_not_copied() {
    let content = Bytes::from(vec![7; usize::try_from(CHUNK_BYTES).unwrap()]);
    let chunk = Chunk::new(u16::MAX, vec![(0, Piece::Held(content.clone()))]).unwrap();
    let pieces = encode_stored(&KeptChunk { at: at(5, 9), chunk });
    assert_eq!((pieces.len(), pieces[1].as_ptr()), (2, content.as_ptr()));
    let bytes = Bytes::from(pieces.concat());
    let KeptChunk { chunk, .. } = decode_stored(bytes.clone()).unwrap();
    let held = chunk.pieces().next().and_then(|(_, piece)| match piece {
        Piece::Held(bytes) => Some(bytes.as_ptr()),
        Piece::Stored(_) => None,
    });
    assert_eq!(held, Some(bytes[pieces[0].len()..].as_ptr()));
}

#[test]
fn lengths_are_checked_before_anything_is_taken() {
    for length in [1_u32, 100, u32::MAX] {
        let error = decode_stored::<FileRecord>(Bytes::copy_from_slice(&length.to_le_bytes())).unwrap_err();
        assert_eq!(error, DecodeError::Truncated);
    }
    let epochs = [Epoch::default(), Epoch { number: u64::MAX, node: NodeId(u32::MAX) }];
    epochs.into_iter().for_each(|epoch| check(&kept(Record::Promised(epoch))));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn damage_is_refused_or_is_another_value(
        index in 0..9_usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let sound = records().get(index).map_or_else(|| bytes(&head()), bytes);
        let mut damaged = sound;
        for (at, byte) in changes {
            let at = at.index(damaged.len());
            damaged[at] = byte;
        }
        let input = Bytes::from(damaged.clone());
        let again = if index < 8 {
            decode_stored::<FileRecord>(input).map(|record| bytes(&record))
        } else {
            decode_stored::<Head<File>>(input).map(|head| bytes(&head))
        };
        if let Ok(again) = again {
            prop_assert_eq!(again, damaged);
        }
    }
}
