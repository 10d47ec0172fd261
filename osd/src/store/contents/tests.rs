mod names;

use std::collections::BTreeMap;

use base::{Epoch, Members, NodeId, Random, Seq, WallTime};
use node::file::Attributes;

use super::*;
use crate::store::index::RedbIndex;
use crate::store::media::fake::FakeMedia;

const INDEX_FILE: &str = "index";

fn open(media: &FakeMedia) -> (Contents, FoundFiles) {
    let index = RedbIndex::open(media.open(INDEX_FILE).unwrap()).unwrap();
    Contents::open(media, Box::new(index)).unwrap()
}

const fn object(number: u64) -> ObjectId {
    ObjectId::new(0, number)
}

const fn at(seq: u64) -> Position {
    Position { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(seq) }
}

fn held(seed: u64, length: usize) -> Chunk {
    let bytes: Bytes = (0..length).map(|at| u8::try_from((at as u64 + seed) % 251).unwrap()).collect();
    Chunk::new(u16::MAX, vec![(100, Piece::Held(bytes))]).unwrap()
}

fn changes(is_new: bool, size: u64, chunks: Vec<(u64, Option<(Position, Chunk)>)>) -> FileChanges {
    let attributes = Attributes::new(size, WallTime::ZERO, WallTime::ZERO).unwrap();
    let members = Members::new([NodeId(1)]).unwrap();
    let head = Checkpoint::first(members, File::kept((at(1), attributes), [], []));
    FileChanges { head: Some(head), is_new, chunks, names: Vec::new(), last_write: 0 }
}

fn taken(number: u64, applied: u64, changes: FileChanges) -> Taken {
    Taken { object: object(number), applied, changes }
}

/// All of a chunk, from wherever it is.
fn content(contents: &Contents, chunk: &Chunk) -> Chunk {
    let wanted: Vec<Stored> = chunk.stored().cloned().collect();
    let mut chunk = chunk.clone();
    chunk.fetched(&mut contents.read(&wanted).unwrap().into_iter());
    chunk
}

fn all(contents: &Contents, found: &FoundFiles) -> BTreeMap<(u64, u64), Chunk> {
    let mut all = BTreeMap::new();
    for (object, file) in &found.files {
        let (_, file) = file.kept.as_ref().unwrap().0.clone().into_parts();
        for number in 0..8 {
            let chunk = file.chunk(number).map(|(_, chunk)| content(contents, chunk));
            all.extend(chunk.map(|chunk| ((object.low, number), chunk)));
        }
    }
    all
}

#[test]
fn what_is_put_is_found() {
    let media = FakeMedia::default();
    let (contents, found) = open(&media);
    assert!(found.files.is_empty() && found.applied == 0);
    let (large, small) = (held(1, 60_000), held(2, 50));
    let chunks = vec![(0, Some((at(3), large.clone()))), (5, Some((at(4), small.clone())))];
    let put = contents.put(vec![taken(1, 9, changes(true, 500_000, chunks))], 12).unwrap();
    let [Put { chunks, .. }] = put.as_slice() else { panic!("one file") };
    let kept: Vec<_> =
        chunks.iter().map(|(number, at, chunk)| (*number, at.seq.0, chunk.is_held())).collect();
    assert_eq!(kept, [(0, 3, false), (5, 4, true)], "what is short stays in the index");
    assert_eq!(content(&contents, &chunks[0].2), large);
    let (contents, found) = open(&media);
    assert_eq!(found.applied, 12);
    let (checkpoint, applied) = found.files[&object(1)].kept.clone().unwrap();
    let (_, file) = checkpoint.into_parts();
    assert_eq!((applied, file.stat().size), (9, 500_000));
    assert_eq!(content(&contents, &file.chunk(0).unwrap().1), large);
    assert_eq!((file.chunk(5).unwrap().0, &file.chunk(5).unwrap().1), (at(4), &small));
    assert!(file.chunk(1).is_none());
}

#[test]
fn blocks_that_nobody_wrote_to_stay_so() {
    let media = FakeMedia::default();
    let (contents, _) = open(&media);
    let mut random = Random::new(5);
    let mut wanted = BTreeMap::new();
    let (block, chunk) = (usize::try_from(BLOCK_BYTES).unwrap(), PART_BYTES);
    let piece = |start: usize, length| (u32::try_from(start).unwrap(), Piece::Held(vec![7; length].into()));
    for number in 0..64 {
        let (mut pieces, mut blocks, mut at) = (Vec::new(), 0_u16, 0);
        while at < chunk {
            let start = at + random.index((chunk - at).min(3 * block));
            let length = 1 + random.index((chunk - start).min(2 * block));
            at = start + length;
            (start / block..=(at - 1) / block).for_each(|block| blocks |= 1 << block);
            pieces.push(piece(start, length));
        }
        wanted.insert(number, Chunk::new(blocks, pieces).unwrap());
    }
    // The first and the fourth.
    wanted.insert(64, Chunk::new(0b1001, vec![piece(0, block), piece(3 * block, block)]).unwrap());
    let chunks = wanted.iter().map(|(number, chunk)| (*number, Some((at(3), chunk.clone())))).collect();
    let put = contents.put(vec![taken(1, 1, changes(true, 65 << 16, chunks))], 1).unwrap();
    assert_eq!(put[0].chunks.len(), wanted.len());
    for (number, _, kept) in &put[0].chunks {
        assert!(kept.pieces().count() <= 8 && places(kept).len() == 1, "{number}: {kept:?}");
        assert_eq!(content(&contents, kept), wanted[number], "{number}");
    }
    let (contents, found) = open(&media);
    let (_, file) = found.files[&object(1)].kept.clone().unwrap().0.into_parts();
    for (number, wanted) in &wanted {
        assert_eq!(&content(&contents, &file.chunk(*number).unwrap().1), wanted, "{number}");
    }
}

#[test]
fn space_is_free_once_nothing_refers_to_it() {
    let media = FakeMedia::default();
    let (contents, _) = open(&media);
    let put = |is_new, chunk: Option<Chunk>| {
        let chunks = vec![(0, chunk.map(|chunk| (at(3), chunk)))];
        contents.put(vec![taken(1, 1, changes(is_new, 100_000, chunks))], 1).unwrap().remove(0).chunks
    };
    let first = put(true, Some(held(1, 60_000)));
    assert_eq!(contents.used_bytes(), 61_440);
    let second = put(false, Some(held(2, 60_000)));
    assert_eq!(contents.used_bytes(), 2 * 61_440, "somebody may still read the first");
    assert_eq!(content(&contents, &first[0].2), held(1, 60_000));
    drop(first);
    let pieces: Vec<(u32, Piece)> =
        second[0].2.pieces().map(|(start, piece)| (start, piece.clone())).collect();
    drop(second);
    let [(start, Piece::Stored(stored))] = pieces.as_slice() else { panic!("one piece") };
    let short = Piece::Stored(Stored { len: 5_000, ..stored.clone() });
    let cut = put(false, Some(Chunk::new(0b11, vec![(*start, short)]).unwrap()));
    assert_eq!(contents.used_bytes(), 61_440, "the same place is kept");
    drop((pieces, cut));
    let gone = FileChanges { head: None, is_new: true, chunks: vec![], names: vec![], last_write: 0 };
    contents.put(vec![taken(1, 2, gone)], 2).unwrap();
    assert_eq!(contents.used_bytes(), 0);
    assert!(open(&media).1.files.is_empty());
}

#[test]
fn a_row_that_cannot_be_read_costs_its_chunk_or_its_file() {
    let media = FakeMedia::default();
    let (contents, _) = open(&media);
    let chunk = |seed| vec![(0, Some((at(3), held(seed, 2_000))))];
    contents
        .put((1..4).map(|number| taken(number, 1, changes(true, 5_000, chunk(number)))).collect(), 1)
        .unwrap();
    let spoil = |key: Key| {
        let mut row = contents.index.get(&key.to_bytes()).unwrap().unwrap();
        row[9] ^= 1;
        contents.index.commit(&[Change::Put(key.to_bytes(), row)]).unwrap();
    };
    spoil(Key::Head(object(1)));
    spoil(Key::Chunk(object(2), 0));
    let moved = contents.index.get(&Key::Chunk(object(3), 0).to_bytes()).unwrap().unwrap();
    contents.index.commit(&[Change::Put(Key::Chunk(object(3), 1).to_bytes(), moved)]).unwrap();
    let found = open(&media).1;
    let lost = |number| {
        let FoundFile { kept, unreadable } = &found.files[&object(number)];
        (kept.is_none(), unreadable.clone())
    };
    assert_eq!(
        [lost(1), lost(2), lost(3)],
        [(true, vec![]), (false, vec![Part::Chunk(0)]), (false, vec![Part::Chunk(1)])]
    );
    spoil(Key::Mark);
    let index = RedbIndex::open(media.open(INDEX_FILE).unwrap()).unwrap();
    assert!(matches!(Contents::open(&media, Box::new(index)), Err(ContentsError::Mark)));
}

/// A power cut at any call leaves all of a checkpoint or nothing, and whatever is referred to reads as it was written.
#[test]
fn a_power_cut_leaves_whole_checkpoints() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..150 {
        let mut random = Random::new(seed);
        let mut media = FakeMedia::default();
        let mut model: BTreeMap<(u64, u64), Chunk> = BTreeMap::new();
        for round in 0..4_u64 {
            let (contents, found) = open(&media);
            assert_eq!(all(&contents, &found), model, "seed {seed} round {round}");
            let mut next = model.clone();
            let step = |model: &mut BTreeMap<(u64, u64), Chunk>, random: &mut Random| {
                let file = random.below(3);
                let is_new = !model.keys().any(|(number, _)| *number == file) || random.chance(1, 8);
                if is_new {
                    model.retain(|(number, _), _| *number != file);
                }
                let mut chunks = Vec::new();
                for number in 0..random.between(1, 4) {
                    let chunk =
                        held(random.next_u64() % 251, usize::try_from(random.between(1, 9_000)).unwrap());
                    let chunk = random.chance(3, 4).then_some(chunk);
                    match &chunk {
                        Some(chunk) => _ = model.insert((file, number), chunk.clone()),
                        None => _ = model.remove(&(file, number)),
                    }
                    chunks.push((number, chunk.map(|chunk| (at(round + 1), chunk))));
                }
                contents.put(vec![taken(file, round, changes(is_new, 500_000, chunks))], round)
            };
            for _ in 0..random.below(4) {
                step(&mut next, &mut random).unwrap();
                model = next.clone();
            }
            media.fail_after(usize::try_from(random.below(25)).unwrap(), io::ErrorKind::Other);
            let is_whole = step(&mut next, &mut random).is_ok();
            media = media.after_power_cut(&mut random);
            let (contents, found) = open(&media);
            let found = all(&contents, &found);
            assert!(found == next || !is_whole && found == model, "seed {seed} round {round}");
            (kept, lost) = if found == next { (kept + 1, lost) } else { (kept, lost + 1) };
            model = found;
        }
    }
    assert!(kept > 50 && lost > 50, "{kept} {lost}");
}

/// Wherever the space ends: no checkpoint is kept, and when there is space again the next one is.
#[test]
fn a_disk_without_space_costs_a_checkpoint_and_nothing_else() {
    let mut failed = 0;
    for calls in 0..40 {
        let media = FakeMedia::default();
        let (contents, _) = open(&media);
        let chunks = |seed| (0..6).map(|number| (number, Some((at(seed), held(seed, 60_000))))).collect();
        contents.put(vec![taken(1, 1, changes(true, 500_000, chunks(1)))], 1).unwrap();
        media.fail_after(calls, io::ErrorKind::StorageFull);
        match contents.put(vec![taken(1, 2, changes(false, 500_000, chunks(2)))], 2) {
            Ok(_) => break,
            Err(PutError::Full) => failed += 1,
            // What a sync did not do nobody knows.
            Err(PutError::Io(_) | PutError::Index(IndexError::Failed(_))) => continue,
            Err(error) => panic!("after {calls} calls: {error}"),
        }
        assert_eq!(contents.applied(), 1);
        contents.put(vec![taken(1, 3, changes(false, 500_000, chunks(3)))], 3).unwrap();
        let (contents, found) = open(&media);
        let all = all(&contents, &found);
        assert_eq!(found.applied, 3, "after {calls} calls");
        assert_eq!(all.values().collect::<Vec<_>>(), [&held(3, 60_000); 6], "after {calls} calls");
    }
    assert!(failed > 8, "{failed}");
}
