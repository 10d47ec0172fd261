use std::collections::BTreeMap;

use base::Random;
use tempfile::TempDir;

use super::*;
use crate::store::media::Media;
use crate::store::media::fake::FakeMedia;

const FILE: &str = "index";

fn redb(media: &FakeMedia) -> RedbIndex {
    let index = RedbIndex::open(media.open(FILE).unwrap()).unwrap();
    media.sync().unwrap();
    index
}

fn put(key: u64, value: u64) -> Change {
    Change::Put(key.to_be_bytes().to_vec(), value.to_be_bytes().to_vec())
}

fn content(index: &dyn Index) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut content = BTreeMap::new();
    index
        .scan(&[], &[0xff; 9], &mut |key, value| {
            content.insert(key.to_vec(), value.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
    content
}

/// What both engines must do.
fn exercise(index: &dyn Index) {
    assert_eq!(index.get(b"nothing").unwrap(), None);
    assert!(content(index).is_empty());
    index.commit(&[put(1, 10), put(2, 20), put(3, 30)]).unwrap();
    index.commit(&[Change::Remove(2_u64.to_be_bytes().to_vec()), put(3, 31)]).unwrap();
    assert_eq!(index.get(&3_u64.to_be_bytes()).unwrap(), Some(31_u64.to_be_bytes().to_vec()));
    assert_eq!(index.get(&2_u64.to_be_bytes()).unwrap(), None);
    let keys: Vec<Vec<u8>> = content(index).into_keys().collect();
    assert_eq!(keys, [1_u64.to_be_bytes(), 3_u64.to_be_bytes()]);
    let mut seen = 0;
    let mut one = |_: &[u8], _: &[u8]| {
        seen += 1;
        ControlFlow::Break(())
    };
    index.scan(&1_u64.to_be_bytes(), &3_u64.to_be_bytes(), &mut one).unwrap();
    assert_eq!(seen, 1, "it ends when it is told to");
}

#[test]
fn both_engines_do_the_same() {
    let media = FakeMedia::default();
    exercise(&redb(&media));
    assert_eq!(content(&redb(&media)).len(), 2, "it is there after a start");
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("sled");
    let index = SledIndex::open(&path).unwrap();
    exercise(&index);
    index.close().unwrap();
    std::fs::write(path.join("snap.0000.generating"), b"half").unwrap();
    assert_eq!(content(&SledIndex::open(&path).unwrap()).len(), 2, "it is there after a start");
}

#[test]
fn an_index_that_was_overwritten_is_damaged_from_its_first_byte_on() {
    for (from, length) in [(0, 1), (0, 9), (0, 4_096)] {
        let media = FakeMedia::default();
        redb(&media).commit(&[put(1, 1), put(2, 2)]).unwrap();
        let blob = media.open(FILE).unwrap();
        let mut bytes = vec![0; length];
        blob.read_at(from, &mut bytes).unwrap();
        bytes.iter_mut().for_each(|byte| *byte ^= 0x5a);
        blob.write_at(from, &bytes).unwrap();
        let opened = RedbIndex::open(media.open(FILE).unwrap()).map(drop);
        assert!(matches!(opened, Err(IndexError::Damaged(_))), "{length} bytes at {from}: {opened:?}");
    }
}

/// After a power cut all of a change is there or nothing; what `commit` returned for is there.
#[test]
fn a_power_cut_loses_no_commit_and_splits_none() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let mut media = FakeMedia::default();
        let mut done = 0;
        for _ in 0..4 {
            let index = redb(&media);
            for _ in 0..random.below(8) {
                done += 1;
                let changes: Vec<Change> = (0..50).map(|key| put(key, done)).collect();
                index.commit(&changes).unwrap();
            }
            // The next one does not end.
            media.fail_after(usize::try_from(random.below(12)).unwrap(), io::ErrorKind::Other);
            let changes: Vec<Change> = (0..50).map(|key| put(key, done + 1)).collect();
            let _ = index.commit(&changes);
            media = media.after_power_cut(&mut random);
            let content = content(&redb(&media));
            let values: Vec<&Vec<u8>> = content.values().collect();
            assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}: a change was split");
            let found =
                values.first().map_or(0, |value| u64::from_be_bytes(value.as_slice().try_into().unwrap()));
            assert!(found == done || found == done + 1, "seed {seed}: {found}, not {done}");
            done = found;
        }
    }
}

/// A process that ends, or whose power fails, while it makes the index leaves none, or a whole one.
#[test]
fn an_index_that_was_being_made_is_made_anew() {
    let mut calls = 0;
    loop {
        for loses_power in [false, true] {
            let media = FakeMedia::default();
            media.fail_after(calls, io::ErrorKind::Other);
            let made = Engine::Redb.open(&media, Path::new(""));
            media.heal();
            if let Ok(index) = made {
                index.commit(&[put(1, 1)]).unwrap();
                assert!(calls > 5 && Engine::found(&media).unwrap() == [Engine::Redb]);
                return;
            }
            let media =
                if loses_power { media.after_power_cut(&mut Random::new(calls as u64)) } else { media };
            let index = Engine::Redb.open(&media, Path::new("")).unwrap();
            index.commit(&[put(1, 1)]).unwrap();
        }
        calls += 1;
    }
}
