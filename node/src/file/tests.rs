mod trees;

use base::{Epoch, NodeId, Seq};
use proptest::prelude::*;

use super::*;

const CHUNK: u64 = CHUNK_BYTES;

fn at(seq: u64) -> Position {
    Position { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(seq) }
}

fn time(micros: u64) -> WallTime {
    WallTime::from_micros(micros)
}

fn bytes(byte: u8, length: u64) -> Vec<u8> {
    vec![byte; usize::try_from(length).unwrap()]
}

/// A file and how far its history has come; an entry's time is its number.
#[derive(Clone, Default)]
struct History {
    file: File,
    seq: u64,
}

impl History {
    fn change(&mut self, change: Change) -> Result<Done, FileError> {
        self.seq += 1;
        self.file.apply(at(self.seq), &Op { time: time(self.seq), under: None, change })
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        let data = Bytes::copy_from_slice(data).into();
        self.change(Change::Write { offset, data }).unwrap();
    }

    fn append(&mut self, data: &'static [u8]) -> u64 {
        match self.change(Change::Append { data: Bytes::from_static(data).into() }).unwrap() {
            Done::Written { offset, .. } => offset,
            Done::Changed { .. } | Done::Tree(_) | Done::Returned { .. } => panic!("an append writes"),
        }
    }

    fn truncate(&mut self, size: u64) {
        self.change(Change::Truncate { size }).unwrap();
    }

    fn punch(&mut self, offset: u64, length: u64) {
        self.change(Change::Punch { offset, length }).unwrap();
    }

    fn read(&self, offset: u64, length: u64) -> Vec<u8> {
        read(&self.file, offset, length)
    }

    fn allocated(&self) -> u64 {
        self.file.stat().allocated
    }
}

fn read(file: &File, offset: u64, length: u64) -> Vec<u8> {
    match file.answer(&Query::Read { offset, length, under: None }).unwrap() {
        Answer::Data(data) => data.to_bytes().unwrap().to_vec(),
        Answer::Stat(_) | Answer::Tree(_) | Answer::Extent(_) => panic!("a read gives data"),
    }
}

fn held(bytes: &'static [u8]) -> Piece {
    Piece::Held(Bytes::from_static(bytes))
}

/// A disk: content by its place.
#[derive(Default)]
struct Disk(Vec<Bytes>);

impl Disk {
    /// Puts all of a file there that was changed.
    fn put(&mut self, file: &mut File) {
        for number in file.take_changed().chunks {
            let Some((at, chunk)) = file.chunk(number).cloned() else { continue };
            let mut pieces = Vec::new();
            for (start, piece) in chunk.pieces() {
                let piece = match piece {
                    Piece::Held(bytes) => {
                        let (from, len) = (0, u32::try_from(bytes.len()).unwrap());
                        self.0.push(bytes.clone());
                        Piece::Stored(Stored { place: Place::new(&[self.0.len() as u64 - 1]), from, len })
                    }
                    Piece::Stored(_) => piece.clone(),
                };
                pieces.push((start, piece));
            }
            file.keep_elsewhere(number, at, Chunk::new(chunk.blocks(), pieces).unwrap());
        }
    }

    fn read(&self, file: &File, offset: u64, length: u64) -> Vec<u8> {
        let Ok(Answer::Data(mut data)) = file.answer(&Query::Read { offset, length, under: None }) else {
            panic!("a read gives data")
        };
        let wanted: Vec<Stored> = data.stored().cloned().collect();
        let find = |Stored { place, from, len }: Stored| {
            let from = usize::try_from(from).unwrap();
            self.0[usize::try_from(place.words()[0]).unwrap()]
                .slice(from..from + usize::try_from(len).unwrap())
        };
        data.fetched(&mut wanted.into_iter().map(find));
        data.to_bytes().unwrap().to_vec()
    }
}

/// All parts' versions, a few at a time.
fn all_versions(file: &File) -> Vec<(Key, Position)> {
    let mut all: Vec<(Key, Position)> = Vec::new();
    loop {
        let more = file.versions(all.last().map(|(key, _)| key), 2);
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

/// Makes `to` what `from` is, and counts the parts that had to be sent.
fn transfer(from: &File, to: &mut File) -> usize {
    let (theirs, ours) = (all_versions(from), all_versions(to));
    for (key, _) in ours.iter().filter(|(key, _)| from.part(key).is_none()) {
        to.place(key.clone(), None);
    }
    let differing: Vec<_> = theirs.iter().filter(|version| !ours.contains(version)).collect();
    for (key, at) in &differing {
        to.place(key.clone(), from.part(key).map(|part| (*at, part)));
    }
    differing.len()
}

#[test]
fn what_was_written_is_read_and_ends_where_the_file_ends() {
    let mut history = History::default();
    history.write(3, b"abc");
    assert_eq!(history.read(0, 100), b"\0\0\0abc");
    assert_eq!(history.read(4, 1), b"b");
    assert_eq!(history.read(6, 1), b"");
    assert_eq!(history.read(u64::MAX, READ_BYTES_MAX), b"");
}

#[test]
fn a_write_across_chunks_is_whole() {
    let mut history = History::default();
    let data: Vec<u8> = (0..3 * CHUNK).map(|n| u8::try_from(n % 251).unwrap()).collect();
    history.write(CHUNK - 7, &data);
    assert_eq!(history.read(CHUNK - 7, 3 * CHUNK), data);
    assert_eq!(history.read(CHUNK - 8, 2), [0, data[0]]);
    history.write(2 * CHUNK - 1, b"xy");
    assert_eq!(history.read(2 * CHUNK - 2, 4)[1..3], *b"xy");
}

#[test]
fn an_append_goes_to_the_end_that_there_is_when_it_takes_effect() {
    let mut history = History::default();
    assert_eq!(history.append(b"ab"), 0);
    assert_eq!(history.append(b"cd"), 2);
    history.truncate(1);
    assert_eq!(history.append(b"e"), 1);
    assert_eq!(history.read(0, 9), b"ae");
}

#[test]
fn what_was_cut_off_does_not_come_back() {
    let mut history = History::default();
    history.write(0, &bytes(1, 3 * CHUNK));
    history.truncate(CHUNK + 5);
    history.truncate(3 * CHUNK);
    assert_eq!(history.read(CHUNK, 7), [1, 1, 1, 1, 1, 0, 0]);
    assert_eq!(history.read(2 * CHUNK, CHUNK), bytes(0, CHUNK));
    assert_eq!(history.allocated(), CHUNK + BLOCK_BYTES);
    history.truncate(CHUNK);
    assert_eq!(history.allocated(), CHUNK);
    history.truncate(0);
    assert_eq!(history.allocated(), 0);
}

#[test]
fn a_hole_keeps_the_size_and_frees_what_was_there() {
    let mut history = History::default();
    history.write(0, &bytes(1, 3 * CHUNK));
    history.punch(CHUNK - 1, CHUNK + 2);
    assert_eq!(history.file.stat().size, 3 * CHUNK);
    assert_eq!(history.read(CHUNK - 2, 3), [1, 0, 0]);
    assert_eq!(history.read(2 * CHUNK, 2), [0, 1]);
    assert_eq!(history.file.part(&Key::Chunk(1)), None);
    history.punch(0, FILE_BYTES_MAX);
    assert_eq!((history.allocated(), history.file.stat().size), (0, 3 * CHUNK));
    assert_eq!(history.read(0, CHUNK), bytes(0, CHUNK));
}

#[test]
fn what_is_long_enough_is_left_alone() {
    let mut history = History::default();
    history.write(0, b"abc");
    history.change(Change::Extend { size: 2 }).unwrap();
    assert_eq!(history.read(0, 9), b"abc");
    history.change(Change::Extend { size: 5 }).unwrap();
    assert_eq!(history.read(0, 9), b"abc\0\0");
    let end = FILE_BYTES_MAX + 1;
    assert_eq!(history.change(Change::Extend { size: end }), Err(FileError::PastLimit { end }));
}

/// Where something was written to next.
fn extent(file: &File, offset: u64) -> Option<(u64, u64)> {
    match file.answer(&Query::Extent { offset, under: None }).unwrap() {
        Answer::Extent(extent) => extent.map(|Extent { start, end }| (start, end)),
        answer => panic!("{answer:?}"),
    }
}

#[test]
fn what_was_written_to_is_found() {
    let mut history = History::default();
    assert_eq!(extent(&history.file, 0), None);
    history.truncate(9 * CHUNK);
    assert_eq!(extent(&history.file, 0), None, "all of it is a hole");
    // Over the border of two chunks, and in a third.
    history.write(CHUNK - 1, b"abc");
    history.write(2 * CHUNK + 2 * BLOCK_BYTES + 7, b"d");
    let first = (CHUNK - BLOCK_BYTES, CHUNK + BLOCK_BYTES);
    let second = (2 * CHUNK + 2 * BLOCK_BYTES, 2 * CHUNK + 3 * BLOCK_BYTES);
    for (offset, expected) in [
        (0, Some(first)),
        (first.0, Some(first)),
        (first.0 + 1, Some((first.0 + 1, first.1))),
        (CHUNK, Some((CHUNK, first.1))),
        (first.1 - 1, Some((first.1 - 1, first.1))),
        (first.1, Some(second)),
        (second.1, None),
        (u64::MAX, None),
    ] {
        assert_eq!(extent(&history.file, offset), expected, "from {offset}");
    }
    history.punch(CHUNK, CHUNK);
    assert_eq!(extent(&history.file, 0), Some((first.0, CHUNK)));
    // Behind the end of the file there is nothing.
    history.truncate(second.0 + 3);
    assert_eq!(extent(&history.file, CHUNK), Some((second.0, second.0 + 3)));
}

#[test]
fn of_what_is_very_long_only_the_beginning_is_looked_through() {
    const CHUNKS: u64 = 5_000;
    let mut history = History::default();
    for block in 0..CHUNKS * CHUNK / BLOCK_BYTES {
        history.write(block * BLOCK_BYTES, b"a");
    }
    let end = history.file.stat().size;
    let (mut at, mut steps) = (0, 0);
    while let Some((start, behind)) = extent(&history.file, at) {
        assert!(start == at && behind > at, "nothing is skipped");
        (at, steps) = (behind, steps + 1);
    }
    assert_eq!((at, steps), (end, 2));
}

#[test]
fn blocks_that_were_punched_one_by_one_are_gone() {
    let mut history = History::default();
    history.write(10, &bytes(1, 2 * BLOCK_BYTES));
    assert_eq!(history.allocated(), 3 * BLOCK_BYTES);
    history.punch(0, 20);
    assert_eq!(history.allocated(), 3 * BLOCK_BYTES, "the rest of the block is there");
    history.punch(0, BLOCK_BYTES);
    assert_eq!(history.allocated(), 2 * BLOCK_BYTES);
    history.punch(BLOCK_BYTES, BLOCK_BYTES);
    assert_eq!(history.read(2 * BLOCK_BYTES, 20), bytes(1, 10));
    history.truncate(2 * BLOCK_BYTES);
    assert_eq!(history.allocated(), 0);
    assert_eq!(history.file.part(&Key::Chunk(0)), None);
}

#[test]
fn a_file_at_the_limit_costs_its_last_chunk() {
    let mut history = History::default();
    history.write(FILE_BYTES_MAX - 1, b"z");
    assert_eq!((history.file.stat().size, history.allocated()), (FILE_BYTES_MAX, BLOCK_BYTES));
    assert_eq!(history.read(FILE_BYTES_MAX - 2, 9), b"\0z");
    history.punch(0, FILE_BYTES_MAX);
    history.truncate(FILE_BYTES_MAX);
    assert_eq!((history.file.stat().size, history.allocated()), (FILE_BYTES_MAX, 0));
    assert_eq!(all_versions(&history.file).len(), 1);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut history = History::default();
    history.write(0, b"abc");
    let before = history.file.clone();
    let long = Payload::from(bytes(0, WRITE_BYTES_MAX + 1));
    let short = Payload::from(&b"a"[..]);
    let too_long = FileError::TooLong { length: WRITE_BYTES_MAX + 1, bytes_max: WRITE_BYTES_MAX };
    let past = FileError::PastLimit { end: FILE_BYTES_MAX + 1 };
    for (change, error) in [
        (Change::Write { offset: 0, data: long.clone() }, too_long),
        (Change::Append { data: long }, too_long),
        (Change::Write { offset: FILE_BYTES_MAX, data: short.clone() }, past),
        (
            Change::Write { offset: u64::MAX, data: short },
            FileError::Overflow { offset: u64::MAX, length: 1 },
        ),
        (Change::Truncate { size: FILE_BYTES_MAX + 1 }, past),
        (Change::Punch { offset: 1, length: FILE_BYTES_MAX }, past),
        (Change::Punch { offset: 2, length: u64::MAX }, FileError::Overflow { offset: 2, length: u64::MAX }),
    ] {
        assert_eq!(change.check(), Err(error));
        assert_eq!(history.change(change), Err(error));
        assert_eq!(history.file, before);
    }
    let query = Query::Read { offset: 0, length: READ_BYTES_MAX + 1, under: None };
    let too_long = FileError::TooLong { length: READ_BYTES_MAX + 1, bytes_max: READ_BYTES_MAX };
    assert_eq!(history.file.answer(&query), Err(too_long));
}

#[test]
fn an_append_to_a_file_that_is_full_is_refused() {
    let mut history = History::default();
    history.truncate(FILE_BYTES_MAX - 1);
    let before = history.file.clone();
    let append = Change::Append { data: Bytes::from_static(b"ab").into() };
    assert_eq!(append.check(), Ok(()));
    assert_eq!(history.change(append), Err(FileError::PastLimit { end: FILE_BYTES_MAX + 1 }));
    assert_eq!(history.file, before);
    assert_eq!(history.append(b"a"), FILE_BYTES_MAX - 1);
}

#[test]
fn nothing_written_changes_nothing() {
    let mut history = History::default();
    history.write(0, b"abc");
    let before = history.file.clone();
    history.write(FILE_BYTES_MAX, b"");
    assert_eq!(history.append(b""), 3);
    history.punch(1, 0);
    assert_eq!(history.file, before);
}

#[test]
fn times_are_those_of_the_operations_and_changes_never_go_back() {
    let mut file = File::default();
    let mut touch = |seq, now, change| {
        file.apply(at(seq), &Op { time: time(now), under: None, change }).unwrap();
        let Stat { modified, changed, .. } = file.stat();
        (modified.as_micros(), changed.as_micros())
    };
    assert_eq!(touch(1, 50, Change::Truncate { size: 9 }), (50, 50));
    assert_eq!(touch(2, 60, Change::Touch { modified: Some(time(7)) }), (7, 60));
    assert_eq!(touch(3, 55, Change::Punch { offset: 0, length: 1 }), (61, 61));
    assert_eq!(touch(4, 70, Change::Touch { modified: Some(time(900)) }), (900, 70));
    assert_eq!(touch(5, 80, Change::Touch { modified: None }), (80, 80));
}

#[test]
fn each_change_of_content_is_later_than_the_one_before() {
    let mut file = File::default();
    let mut seen = Vec::new();
    for (seq, now) in [(1, 50), (2, 50), (3, 50), (4, 20), (5, 60)] {
        let change = Change::Append { data: Payload::from(bytes(1, 1)) };
        file.apply(at(seq), &Op { time: time(now), under: None, change }).unwrap();
        assert_eq!(file.stat().modified, file.stat().changed);
        seen.push(file.stat().changed.as_micros());
    }
    assert_eq!(seen, [50, 51, 52, 53, 60]);
}

#[test]
fn a_clone_shares_its_content_until_it_is_written_to() {
    let mut history = History::default();
    history.write(0, &bytes(1, 2 * CHUNK));
    let snapshot = history.file.clone();
    history.write(5, b"x");
    let place = |file: &File, number| match file.part(&Key::Chunk(number)) {
        Some(Part::Chunk(chunk)) => match chunk.pieces().next() {
            Some((_, Piece::Held(bytes))) => bytes.as_ptr(),
            other => panic!("{other:?} is not in memory"),
        },
        other => panic!("{other:?} is no chunk"),
    };
    assert_ne!(place(&history.file, 0), place(&snapshot, 0));
    assert_eq!(place(&history.file, 1), place(&snapshot, 1));
    let copied = place(&history.file, 0);
    drop(snapshot);
    history.write(6, b"y");
    assert_eq!(place(&history.file, 0), copied, "nobody shares it, so it is changed where it is");
    assert_eq!(history.read(4, 4), [1, b'x', b'y', 1]);
}

#[test]
fn a_transfer_sends_what_differs() {
    let mut history = History::default();
    history.write(0, &bytes(1, 4 * CHUNK));
    let mut stale = history.file.clone();
    history.write(CHUNK, b"x");
    history.punch(2 * CHUNK, CHUNK);
    assert_eq!(transfer(&history.file, &mut stale), 2, "the attributes and a chunk");
    assert_eq!(stale, history.file);
    let mut fresh = File::default();
    assert_eq!(transfer(&history.file, &mut fresh), 4);
    assert_eq!(fresh, history.file);
    assert_eq!(transfer(&File::default(), &mut fresh), 1);
    assert_eq!(fresh, File::default());
}

#[test]
fn parts_that_cannot_be_are_told_apart() {
    let chunk = Part::Chunk(Chunk::new(1, vec![(0, held(b"a"))]).unwrap());
    let attributes = Part::Attributes(Attributes::new(1, time(1), time(1)).unwrap());
    let impossible = Key::Chunk(FILE_BYTES_MAX / CHUNK);
    let mut file = File::default();
    for (key, part) in [(Key::Attributes, &chunk), (Key::Chunk(0), &attributes), (impossible, &chunk)] {
        assert!(!part.is_of(&key));
        file.place(key, Some((at(1), part.clone())));
        assert_eq!(file, File::default());
    }
    assert!(chunk.is_of(&Key::Chunk(0)) && attributes.is_of(&Key::Attributes));
    let block = u32::try_from(BLOCK_BYTES).unwrap();
    for (blocks, pieces) in [
        (0, vec![]),
        (1, vec![(0, held(b""))]),
        (1, vec![(0, held(b"ab")), (1, held(b"c"))]),
        (1, vec![(3, held(b"c")), (0, held(b"a"))]),
        (0b101, vec![(block, held(b"a"))]),
        (0b001, vec![(block - 1, held(b"ab"))]),
        (u16::MAX, vec![(16 * block - 1, held(b"ab"))]),
    ] {
        assert_eq!(Chunk::new(blocks, pieces.clone()), Err(FileError::BadChunk), "{blocks:b} {pieces:?}");
    }
    assert!(Chunk::new(0b11, vec![(block - 1, held(b"ab"))]).is_ok());
    assert!(Attributes::new(FILE_BYTES_MAX + 1, time(0), time(0)).is_err());
}

#[test]
fn a_file_that_was_removed_is_nothing_until_it_is_begun_anew() {
    let mut history = History::default();
    history.write(CHUNK - 3, b"content");
    let mut disk = Disk::default();
    disk.put(&mut history.file);
    assert!(matches!(history.change(Change::Remove), Ok(Done::Changed { .. })));
    assert_eq!(
        history.file.take_changed(),
        Touched { chunks: BTreeSet::from([0, 1]), ..Touched::default() },
        "its chunks are taken away on disk, too"
    );
    assert_eq!(history.file.stat(), Stat { modified: time(2), changed: time(2), ..Stat::default() });
    let (kept, data) = (history.file.clone(), Payload::from(bytes(1, 1)));
    for change in [
        Change::Write { offset: 0, data: data.clone() },
        Change::Append { data },
        Change::Truncate { size: 9 },
        Change::Extend { size: 9 },
        Change::Punch { offset: 0, length: 9 },
        Change::Touch { modified: None },
        Change::Remove,
    ] {
        assert_eq!(history.change(change.clone()), Err(FileError::Removed), "{change:?}");
        assert_eq!(history.file, kept, "{change:?}");
    }
    for query in [
        Query::Stat,
        Query::Read { offset: 0, length: 9, under: None },
        Query::Read { offset: 0, length: 0, under: None },
        Query::Extent { offset: 0, under: None },
    ] {
        assert_eq!(history.file.answer(&query), Err(FileError::Removed), "{query:?}");
    }
    let mut other = File::default();
    transfer(&kept, &mut other);
    assert_eq!(other, kept, "who was away hears of it");
    history.change(Change::Begin).unwrap();
    assert_eq!(history.append(b"new"), 0);
    assert_eq!(history.read(0, 2 * CHUNK), b"new", "nothing of before comes back");
    let kept = history.file.clone();
    history.change(Change::Begin).unwrap();
    assert_eq!(history.file, kept, "what is there is not begun anew");
}

#[test]
fn what_cannot_change_an_answer_does_not_hold_it_up() {
    let read = Query::Read { offset: 10, length: 10, under: None };
    let file = |size| {
        let mut file = File::default();
        file.apply(at(1), &Op { time: time(1), under: None, change: Change::Truncate { size } }).unwrap();
        file
    };
    // The first ends behind what is read, the second in it.
    let (long, short) = (file(20), file(19));
    let write = |offset, length| Change::Write { offset, data: Bytes::from(bytes(1, length)).into() };
    for (change, reads, reads_end, stats) in [
        (write(0, 10), false, false, true),
        (write(0, 11), true, true, true),
        (write(19, 1), true, true, true),
        // If the file ends before, the read gets longer.
        (write(20, 1), false, true, true),
        (write(12, 0), false, false, false),
        (write(12, WRITE_BYTES_MAX + 1), false, false, false),
        (Change::Append { data: Bytes::from_static(b"a").into() }, false, true, true),
        (Change::Append { data: Bytes::new().into() }, false, false, false),
        (Change::Truncate { size: 100 }, false, true, true),
        (Change::Truncate { size: 20 }, false, true, true),
        (Change::Truncate { size: 19 }, true, true, true),
        (Change::Extend { size: 20 }, false, true, true),
        (Change::Punch { offset: 0, length: 10 }, false, false, true),
        (Change::Punch { offset: 19, length: 10 }, true, true, true),
        (Change::Punch { offset: 20, length: 10 }, false, false, true),
        (Change::Touch { modified: None }, false, false, true),
        (Change::NoSpace, false, false, false),
        (Change::Remove, true, true, true),
        (Change::Begin, true, true, true),
    ] {
        let op = Op { time: time(1), under: None, change };
        let overlaps =
            [long.overlaps(&op, &read), short.overlaps(&op, &read), long.overlaps(&op, &Query::Stat)];
        assert_eq!(overlaps, [reads, reads_end, stats], "{op:?}");
        let extent = Query::Extent { offset: 10, under: None };
        assert!(long.overlaps(&op, &extent) || !reads, "{op:?}");
        let decides_all = matches!(op.change, Change::Remove | Change::Begin);
        assert_eq!(short.overlaps(&op, &Query::Read { offset: 10, length: 0, under: None }), decides_all);
    }
}

/// A file as plain bytes.
#[derive(Clone, Default)]
struct Model {
    bytes: Vec<u8>,
    modified: WallTime,
    changed: WallTime,
}

impl Model {
    /// Does the same; true if the content was written.
    fn apply(&mut self, now: WallTime, change: &Change) {
        let index = |offset: u64| usize::try_from(offset).unwrap();
        let end = self.bytes.len();
        match change {
            Change::Write { offset, data } => self.put(index(*offset), data),
            Change::Append { data } => self.put(end, data),
            Change::Truncate { size } => self.bytes.resize(index(*size), 0),
            Change::Extend { size } => self.bytes.resize(index(*size).max(end), 0),
            Change::Punch { offset, length } => {
                let range = index(*offset).min(end)..index(offset + length).min(end);
                self.bytes[range].fill(0);
            }
            Change::Touch { .. } | Change::Begin => {}
            Change::NoSpace | Change::Plant(_) | Change::Tree(_) => return,
            Change::Borrow { .. } | Change::Return { .. } => return,
            Change::Remove => self.bytes.clear(),
        }
        if let Change::Write { data, .. } | Change::Append { data } = change
            && data.is_empty()
        {
            return;
        }
        if matches!(change, Change::Punch { length: 0, .. }) {
            return;
        }
        (self.changed, self.modified) = match change {
            Change::Touch { modified } => {
                let changed = self.changed.max(now);
                (changed, modified.unwrap_or(changed))
            }
            _ => {
                let changed = now.max(time(self.changed.as_micros() + 1));
                (changed, changed)
            }
        };
    }

    fn put(&mut self, offset: usize, data: &[u8]) {
        if !data.is_empty() {
            let end = self.bytes.len().max(offset + data.len());
            self.bytes.resize(end, 0);
            self.bytes[offset..offset + data.len()].copy_from_slice(data);
        }
    }

    fn read(&self, offset: u64, length: u64) -> &[u8] {
        let index = |offset: u64| usize::try_from(offset).unwrap().min(self.bytes.len());
        &self.bytes[index(offset)..index(offset + length)]
    }
}

/// Offsets around the borders of a few chunks, and lengths to match.
fn offset() -> impl Strategy<Value = u64> {
    (0..4_u64, 0..6_u64).prop_map(|(chunk, beside)| (chunk * CHUNK + beside).saturating_sub(3))
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..9_u64, 2 => (CHUNK - 3)..(CHUNK + 3), 1 => Just(2 * CHUNK)]
}

fn change() -> impl Strategy<Value = Change> {
    let data = || (length(), 0..3_u8).prop_map(|(length, byte)| Payload::from(bytes(byte, length)));
    prop_oneof![
        4 => (offset(), data()).prop_map(|(offset, data)| Change::Write { offset, data }),
        2 => data().prop_map(|data| Change::Append { data }),
        2 => offset().prop_map(|size| Change::Truncate { size }),
        1 => offset().prop_map(|size| Change::Extend { size }),
        2 => (offset(), length()).prop_map(|(offset, length)| Change::Punch { offset, length }),
        1 => proptest::option::of(0..99_u64)
            .prop_map(|modified| Change::Touch { modified: modified.map(time) }),
    ]
}

fn check_against(file: &File, model: &Model) -> Result<(), TestCaseError> {
    let Stat { size, modified, changed, allocated, lend: _ } = file.stat();
    prop_assert_eq!((size, modified, changed), (model.bytes.len() as u64, model.modified, model.changed));
    let mut sum = 0;
    for (key, _) in all_versions(file) {
        if let Some(Part::Chunk(chunk)) = file.part(&key) {
            prop_assert!(Key::Chunk(0) <= key && key < Key::Chunk(size.div_ceil(CHUNK)));
            sum += u64::from(chunk.blocks().count_ones()) * BLOCK_BYTES;
        }
    }
    prop_assert_eq!(allocated, sum);
    prop_assert!(allocated < size + BLOCK_BYTES);
    let whole = read(file, 0, READ_BYTES_MAX);
    prop_assert!(whole == model.bytes, "the content differs");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_file_does_what_plain_bytes_do(
        changes in proptest::collection::vec((change(), 0..50_u64), 1..30),
        snapshot_at in 0..30_usize,
        (offset, length) in (offset(), length()),
    ) {
        let (mut file, mut model) = (File::default(), Model::default());
        let (mut apart, mut disk) = (File::default(), Disk::default());
        let mut snapshot = (file.clone(), model.clone());
        // Whether nothing since then has been in the way of the question.
        let mut is_free = true;
        let query = Query::Read { offset, length, under: None };
        for (step, (change, now)) in changes.into_iter().enumerate() {
            if step == snapshot_at {
                (snapshot, is_free) = ((file.clone(), model.clone()), true);
            }
            let op = Op { time: time(now), under: None, change };
            let before = [query.clone(), Query::Stat]
                .map(|query| (query.clone(), file.overlaps(&op, &query), file.answer(&query)));
            is_free &= !snapshot.0.overlaps(&op, &query);
            let end = model.bytes.len() as u64;
            model.apply(op.time, &op.change);
            let done = file.apply(at(step as u64 + 1), &op).unwrap();
            prop_assert_eq!(apart.apply(at(step as u64 + 1), &op), Ok(done.clone()));
            if now % 3 == 0 {
                disk.put(&mut apart);
                let is_held = |(key, _): &(Key, Position)| matches!(apart.part(key), Some(Part::Chunk(chunk)) if chunk.is_held());
                prop_assert!(!all_versions(&apart).iter().any(is_held));
            }
            let expected = match op.change {
                Change::Write { offset, .. } => Done::Written { offset, stat: file.stat() },
                Change::Append { .. } => Done::Written { offset: end, stat: file.stat() },
                _ => Done::Changed { stat: file.stat() },
            };
            prop_assert_eq!(done, expected);
            for (query, overlaps, answer) in before {
                prop_assert!(overlaps || file.answer(&query) == answer, "{:?} {:?}", op, query);
            }
            prop_assert!(!is_free || file.answer(&query) == snapshot.0.answer(&query), "{:?} {:?}", op, query);
            prop_assert!(read(&file, offset, length) == model.read(offset, length), "a read differs");
            prop_assert!(disk.read(&apart, offset, length) == model.read(offset, length), "a read from disk differs");
        }
        prop_assert!(disk.read(&apart, 0, READ_BYTES_MAX) == model.bytes, "the content on disk differs");
        check_against(&file, &model)?;
        check_against(&snapshot.0, &snapshot.1)?;
        for (key, version) in all_versions(&snapshot.0) {
            if all_versions(&file).contains(&(key.clone(), version)) {
                prop_assert_eq!(file.part(&key), snapshot.0.part(&key));
            }
        }
        transfer(&file, &mut snapshot.0);
        prop_assert!(snapshot.0 == file, "a transfer makes the states equal");
        check_against(&snapshot.0, &model)?;
    }
}
