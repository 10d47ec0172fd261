use std::io;

use base::Random;
use bytes::Bytes;
use node::JournalFound;

use super::*;
use crate::store::media::fake::FakeMedia;

const STORE: StoreId = StoreId([7; 16]);
const LIMITS: JournalLimits =
    JournalLimits { segment_bytes: 32 << 10, segments_max: 4, reserve_bytes: 1 << 10 };

/// A journal on a disk in memory, as a start opens it that trusts what it reads, and the records that it finds.
fn open(media: &FakeMedia, start: u32, applied: u64) -> (Journal, Vec<(u64, Bytes)>) {
    let search = Search::of(media, (STORE, applied), |_| Ok(true)).unwrap();
    let mut records = Vec::new();
    search.read(|number, record| records.push((number, record))).unwrap();
    let mut journal = search.open(media, (start, 0), LIMITS).unwrap();
    make_wanted(media, &mut journal);
    (journal, records)
}

fn found(media: &FakeMedia, applied: u64) -> JournalFound {
    Search::of(media, (STORE, applied), |_| Ok(true)).unwrap().found()
}

fn make_wanted(media: &FakeMedia, journal: &mut Journal) {
    while let Some(slot) = journal.wanted(false) {
        let segments = Segments::new(Arc::new(media.clone()), LIMITS);
        journal.handle_made(segments.make(slot).unwrap());
    }
}

/// A record that tells its number, and is longer or shorter by it.
fn record(number: u64) -> Vec<u8> {
    let mut record = number.to_le_bytes().to_vec();
    record.resize(8 + usize::try_from(number * 97 % 900).unwrap(), 0x5a);
    record
}

fn append(journal: &mut Journal, count: u64) {
    for _ in 0..count {
        let next = record(journal.last() + 1);
        journal.append(&[&next[..8], &next[8..]], Urgency::Ordinary).unwrap();
    }
    journal.write().unwrap();
}

fn sync(journal: &mut Journal) {
    let upto = journal.sync(None).run().unwrap();
    journal.handle_synced(upto);
}

fn assert_are(records: &[(u64, Bytes)], first: u64, last: u64) {
    let numbers: Vec<u64> = records.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (first..=last).collect::<Vec<_>>());
    records.iter().for_each(|(number, found)| assert_eq!(*found, record(*number)));
}

#[test]
fn what_was_written_is_found_by_the_next_process() {
    let media = FakeMedia::default();
    let (mut journal, records) = open(&media, 1, 0);
    assert_are(&records, 1, 0);
    append(&mut journal, 3);
    append(&mut journal, 2);
    journal.append(&[b"handed over, not written"], Urgency::Ordinary).unwrap();
    let (journal, records) = open(&media, 2, 0);
    assert_are(&records, 1, 5);
    assert_eq!((journal.last(), journal.durable()), (5, 5), "a start makes durable what it finds");
    let (_, records) = open(&media, 3, 4);
    assert_are(&records, 5, 5);
}

#[test]
fn segments_follow_each_other_and_are_used_again() {
    let media = FakeMedia::default();
    let (mut journal, _) = open(&media, 1, 0);
    for round in 1..40_u32 {
        append(&mut journal, 20);
        sync(&mut journal);
        make_wanted(&media, &mut journal);
        journal.free(journal.durable() - 10);
        let records;
        (journal, records) = open(&media, 1 + round, journal.durable() - 10);
        assert_are(&records, u64::from(round) * 20 - 9, u64::from(round) * 20);
    }
    assert!(journal.used.len() + journal.spare.len() <= LIMITS.segments_max);
}

#[test]
fn a_full_journal_takes_urgent_records_and_nothing_is_lost() {
    let media = FakeMedia::default();
    let (mut journal, _) = open(&media, 1, 0);
    let error = loop {
        make_wanted(&media, &mut journal);
        let next = record(journal.last() + 1);
        if let Err(error) = journal.append(&[&next], Urgency::Ordinary) {
            break error;
        }
        journal.write().unwrap();
    };
    assert_eq!(error, AppendError::Full);
    let last = journal.last();
    assert_eq!(journal.append(&[&[0; 500]], Urgency::Urgent), Ok(last + 1));
    journal.write().unwrap();
    sync(&mut journal);
    journal.free(last);
    append(&mut journal, 3);
    let (_, records) = open(&media, 2, last + 1);
    assert_are(&records, last + 2, last + 4);
    let too_long = vec![0; 32 << 10];
    assert_eq!(journal.append(&[&too_long], Urgency::Urgent), Err(AppendError::TooLong { bytes: 32 << 10 }));
}

/// A power cut anywhere, with any part of what was not durable, leaves a prefix with all that was; and again after that.
#[test]
fn a_power_cut_leaves_all_that_was_durable_and_a_prefix_of_the_rest() {
    let (mut torn, mut kept, mut gaps) = (0, 0, 0);
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let mut media = FakeMedia::garbling();
        let mut applied = 0;
        for start in 1..6 {
            let (mut journal, records) = open(&media, start, applied);
            assert_are(&records, applied + 1, journal.last());
            for _ in 0..random.below(30) {
                make_wanted(&media, &mut journal);
                append(&mut journal, random.between(1, 5));
                if random.chance(1, 3) {
                    let sync = journal.sync(None);
                    if random.chance(1, 2) {
                        append(&mut journal, 1);
                    }
                    journal.handle_synced(sync.run().unwrap());
                    applied = random.between(applied, journal.durable());
                    journal.free(applied);
                }
            }
            let (durable, last) = (journal.durable(), journal.written());
            media = media.after_power_cut(&mut random);
            let found = found(&media, applied);
            let end = found.unreadable.map_or(found.last, |record| record - 1);
            assert!((durable..=last).contains(&end) && found.durable <= end, "{durable} {found:?} {last}");
            torn += u64::from(end < last);
            kept += u64::from(end > durable);
            gaps += u64::from(found.last > end);
        }
    }
    assert!(torn > 100 && kept > 100 && gaps > 100, "{torn} {kept} {gaps}");
}

/// Every byte of what was durable is needed: damage is told, and not taken for a torn end.
#[test]
fn damage_is_told_from_a_torn_end() {
    let media = FakeMedia::default();
    let (mut journal, _) = open(&media, 1, 0);
    for _ in 0..3 {
        append(&mut journal, 2);
        sync(&mut journal);
    }
    append(&mut journal, 1);
    let mut bytes = Vec::new();
    media.edit("journal-0", |held| bytes.clone_from(held));
    let damaged = |at: usize| {
        media.edit("journal-0", |held| {
            held.clone_from(&bytes);
            held[at] ^= 0x10;
        });
        found(&media, 0)
    };
    // Behind the start's batch the first three begin at blocks 1, 2 and 3, the last one, which nobody knows to be durable, at block 4.
    for (at, missing) in [(4_096, 1), (4_116, 1), (4_156, 1), (8_192, 3), (8_292, 3), (12_288, 5)] {
        let found = damaged(at);
        assert_eq!((found.unreadable, found.durable, found.last), (Some(missing), 6, 7), "{at}");
    }
    let found = damaged(4 * 4_096 + 30);
    assert_eq!(
        (found.unreadable, found.durable, found.last),
        (None, 4, 6),
        "it is as if it had never been written"
    );
}

/// What a power failure tore in the middle is cut off, and does not come back when more is written, nor look like damage.
#[test]
fn what_a_start_abandons_stays_abandoned() {
    let media = FakeMedia::default();
    let (mut journal, _) = open(&media, 1, 0);
    append(&mut journal, 2);
    sync(&mut journal);
    append(&mut journal, 2);
    journal.sync(None);
    append(&mut journal, 2);
    // Records 3 and 4 stand at block 2, 5 and 6 at block 3.
    media.edit("journal-0", |held| held[2 * 4_096 + 10] ^= 1);
    assert_eq!(
        found(&media, 0),
        JournalFound { last: 6, unreadable: Some(3), durable: 2, is_refused: false }
    );
    let (mut journal, records) = open(&media, 2, 0);
    assert_are(&records, 1, 2);
    let sound = |last| JournalFound { last, unreadable: None, durable: 2, is_refused: false };
    assert_eq!(found(&media, 0), sound(2));
    append(&mut journal, 1);
    assert_eq!(found(&media, 0), sound(3));
    assert_are(&open(&media, 3, 0).1, 1, 3);
}

#[test]
fn a_batch_of_another_store_is_none() {
    let media = FakeMedia::default();
    let (mut journal, _) = open(&media, 1, 0);
    append(&mut journal, 3);
    assert_eq!(Search::of(&media, (StoreId([8; 16]), 0), |_| Ok(true)).unwrap().found().last, 0);
}

#[test]
fn after_a_failure_nothing_is_written() {
    let media = FakeMedia::default();
    let (mut journal, _) = open(&media, 1, 0);
    append(&mut journal, 3);
    journal.append(&[b"record"], Urgency::Ordinary).unwrap();
    media.fail_after(0, io::ErrorKind::Other);
    assert!(matches!(journal.write(), Err(JournalError::Io(_))));
    media.heal();
    assert!(matches!(journal.write(), Err(JournalError::Closed)));
    assert_eq!(journal.written(), 3);
}

#[test]
fn a_segment_that_finds_no_space_is_taken_away() {
    let media = FakeMedia::default();
    media.fail_after(2, io::ErrorKind::StorageFull);
    let error = Journal::make(&media, 0, LIMITS).map(drop).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(media.names().unwrap(), Vec::<String>::new());
}
