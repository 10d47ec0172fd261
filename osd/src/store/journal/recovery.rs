//! What a start finds of a journal.
//!
//! All batches whose checksums hold are found, wherever they stand: those that are chained, those of a segment's earlier use,
//! and those that a start has abandoned. From the one with the first record that is needed a chain is followed. Whatever
//! batch there is, nothing may be missing that it says was durable.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use base::StoreId;

use super::batch::{self, ALIGN, HEADER_BYTES, Header};
use super::{BLOCK_BYTES, Journal, JournalLimits, PREFIX, Segment};
use crate::store::media::{Blob, Media};

/// Why a journal does not open.
#[derive(Debug, thiserror::Error)]
pub enum JournalOpenError {
    /// Something that was durable is not there.
    #[error("record {missing} of the journal is damaged or missing, although it was durable")]
    Damaged {
        /// The first record that cannot be read.
        missing: u64,
    },
    /// The disk cannot be read.
    #[error("{file} of the journal cannot be read")]
    Io {
        /// Which file.
        file: String,
        /// What the system said.
        source: io::Error,
    },
}

/// The records that a start has found, behind those that it does not need.
pub struct Found {
    batches: Vec<(Arc<dyn Blob>, u64, Header)>,
    needed: u64,
}

/// A batch that can be read.
#[derive(Clone, Copy)]
struct Place {
    slot: u32,
    at: u64,
    header: Header,
}

impl Journal {
    /// Opens the journal of a store for a new start, which needs the records behind `applied`. All that is found is durable then.
    pub fn open(
        media: &dyn Media,
        (store, start): (StoreId, u32),
        limits: JournalLimits,
        applied: u64,
    ) -> Result<(Self, Found), JournalOpenError> {
        let slots = open_slots(media)?;
        let mut places = Vec::new();
        for (&slot, blob) in &slots {
            scan(store, slot, &**blob, &mut places).map_err(|source| io_error(slot, source))?;
        }
        let chain = follow(&places, applied);
        let last = chain.last().map_or(applied, |place| place.header.last().max(applied));
        if places.iter().any(|place| place.header.durable > last) {
            return Err(JournalOpenError::Damaged { missing: last + 1 });
        }
        for place in &chain {
            slots[&place.slot].sync().map_err(|source| io_error(place.slot, source))?;
        }
        let needed = chain.iter().filter(|place| place.header.last() > applied);
        let batches = needed.map(|place| (Arc::clone(&slots[&place.slot]), place.at, place.header)).collect();
        let mut journal = Self {
            store,
            start,
            limits,
            used: VecDeque::new(),
            spare: Vec::new(),
            at: 0,
            batch: vec![0; HEADER_BYTES],
            count: 0,
            last,
            written: last,
            durable: last,
            previous: chain.last().map_or(0, |place| place.header.checksum),
            is_closed: false,
        };
        journal.take_over(slots, &chain, applied);
        Ok((journal, Found { batches, needed: applied + 1 }))
    }

    /// Sorts the segments by what is in them.
    fn take_over(&mut self, mut slots: BTreeMap<u32, Arc<dyn Blob>>, chain: &[Place], applied: u64) {
        for place in chain {
            if let Some(blob) = slots.remove(&place.slot) {
                self.used.push_back(Segment { slot: place.slot, blob, last: 0 });
            }
            let segment = self.used.back_mut().expect("this batch's is there");
            assert_eq!(segment.slot, place.slot, "the batches of a segment stand together");
            segment.last = place.header.last();
            self.at = (place.at + place.header.bytes()).next_multiple_of(BLOCK_BYTES);
        }
        self.spare = slots.into_iter().collect();
        self.free(applied.min(self.durable));
    }
}

impl Found {
    /// Gives the records with their numbers, oldest first.
    pub fn read(&self, mut each: impl FnMut(u64, &[u8])) -> Result<(), JournalOpenError> {
        for (blob, at, header) in &self.batches {
            let mut bytes = vec![0; usize::try_from(header.bytes()).expect("it was read before")];
            blob.read_at(*at, &mut bytes)
                .map_err(|source| JournalOpenError::Io { file: PREFIX.to_owned(), source })?;
            let records = (header.first..).zip(batch::records_of(&bytes[HEADER_BYTES..]));
            records.filter(|(number, _)| *number >= self.needed).for_each(|(number, record)| each(number, record));
        }
        Ok(())
    }
}

fn open_slots(media: &dyn Media) -> Result<BTreeMap<u32, Arc<dyn Blob>>, JournalOpenError> {
    let failed = |source| JournalOpenError::Io { file: PREFIX.to_owned(), source };
    let names = media.names().map_err(failed)?;
    let slots = names.iter().filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok());
    slots.map(|slot| Ok((slot, media.open(&super::file_of(slot)).map_err(|source| io_error(slot, source))?))).collect()
}

fn io_error(slot: u32, source: io::Error) -> JournalOpenError {
    JournalOpenError::Io { file: super::file_of(slot), source }
}

/// All batches of a segment whose checksums hold.
fn scan(store: StoreId, slot: u32, blob: &dyn Blob, places: &mut Vec<Place>) -> io::Result<()> {
    let mut bytes = vec![0; usize::try_from(blob.len()?).map_err(io::Error::other)?];
    blob.read_at(0, &mut bytes)?;
    let mut at = 0;
    while at + HEADER_BYTES <= bytes.len() {
        let found = batch::open(store, &bytes[at..]);
        let step = found.map_or(ALIGN, |header| header.bytes().next_multiple_of(ALIGN));
        places.extend(found.map(|header| Place { slot, at: at as u64, header }));
        at += usize::try_from(step).expect("a batch is in memory");
    }
    Ok(())
}

/// The batches from the one on that has the last record that is not needed, or the first that is.
fn follow(places: &[Place], applied: u64) -> Vec<Place> {
    let begins = |place: &Place| place.header.first <= applied + 1 && place.header.last() >= applied;
    // Of two that hold the same records the earlier one was abandoned. Of one start the later one has what is needed.
    let newest = |place: &Place| (place.header.start, place.header.last());
    let first = places.iter().copied().filter(begins).max_by_key(newest);
    let mut chain: Vec<Place> = first.into_iter().collect();
    let mut followers: BTreeMap<u64, Vec<Place>> = BTreeMap::new();
    places.iter().for_each(|place| followers.entry(place.header.first).or_default().push(*place));
    while let Some(Place { header, .. }) = chain.last() {
        let next = followers.get(&(header.last() + 1)).into_iter().flatten().copied();
        let next = next.filter(|next| next.header.previous == header.checksum && next.header.start >= header.start);
        let Some(next) = next.max_by_key(newest) else { break };
        chain.push(next);
    }
    chain
}
