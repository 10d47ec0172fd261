//! What a start finds of a journal.
//!
//! All batches whose checksums hold are found, wherever they stand: those that are chained, those of a segment's earlier use,
//! and those that a start has abandoned. From the one with the first record that is needed a chain is followed. What the batches say
//! goes to `node`, which decides whether the store opens; then a start continues the chain with a batch of its own,
//! so that what it abandons is never taken for something later.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use base::StoreId;
use bytes::Bytes;
use node::JournalFound;

use super::batch::{self, ALIGN, HEADER_BYTES, Header};
use super::{BLOCK_BYTES, Journal, JournalError, JournalLimits, MadeSegment, PREFIX, Segment};
use crate::store::bugs::Rules;
use crate::store::media::{Blob, Media};

/// The disk cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{file} of the journal cannot be read")]
pub struct JournalReadError {
    /// Which file.
    pub file: String,
    /// What the system said.
    pub source: io::Error,
}

/// What was found.
pub struct Search {
    store: StoreId,
    slots: BTreeMap<u32, Arc<dyn Blob>>,
    chain: Vec<Place>,
    applied: u64,
    found: JournalFound,
    is_empty: bool,
}

/// A batch that can be read.
#[derive(Clone, Copy)]
struct Place {
    slot: u32,
    at: u64,
    header: Header,
}

impl Search {
    /// Looks for the journal of a store, of which the records behind `applied` are needed. `has_all` says whether what a record
    /// refers to is there: without that it cannot be read.
    pub fn of(
        media: &dyn Media,
        (store, applied): (StoreId, u64),
        has_all: impl Fn(&Bytes) -> io::Result<bool>,
    ) -> Result<Self, JournalReadError> {
        let slots = open_slots(media)?;
        let mut places = Vec::new();
        for (&slot, blob) in &slots {
            scan(store, slot, &**blob, &mut places).map_err(|source| read_error(slot, source))?;
        }
        let chain = follow(&places, applied);
        let found = JournalFound::default();
        let mut search = Self { store, slots, chain, applied, found, is_empty: places.is_empty() };
        search.cut_off(has_all)?;
        search.found = account(&places, &search.chain, applied);
        Ok(search)
    }

    /// The chain ends before the first batch of which something that is needed cannot be read.
    fn cut_off(&mut self, has_all: impl Fn(&Bytes) -> io::Result<bool>) -> Result<(), JournalReadError> {
        let mut end = self.chain.len();
        for (index, place) in self.chain.iter().enumerate() {
            let mut is_whole = true;
            self.read_batch(place, &mut |_, record| {
                is_whole = is_whole && has_all(&record)?;
                Ok(())
            })?;
            if !is_whole {
                end = index;
                break;
            }
        }
        self.chain.truncate(end);
        Ok(())
    }

    /// What can be read.
    pub const fn found(&self) -> JournalFound {
        self.found
    }

    /// Whether there is not even the batch that each start begins with.
    pub const fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// Where what can be read ends: in which file, and at which byte.
    pub fn end(&self) -> Option<(String, u64)> {
        self.chain.last().map(|place| (super::file_of(place.slot), place.at + place.header.bytes()))
    }

    /// Gives the records that are needed with their numbers, oldest first.
    pub fn read(&self, mut each: impl FnMut(u64, Bytes)) -> Result<(), JournalReadError> {
        self.chain.iter().try_for_each(|place| {
            self.read_batch(place, &mut |number, record| {
                each(number, record);
                Ok(())
            })
        })
    }

    /// The records of a batch that are needed.
    fn read_batch(
        &self,
        place: &Place,
        each: &mut dyn FnMut(u64, Bytes) -> io::Result<()>,
    ) -> Result<(), JournalReadError> {
        if place.header.last() <= self.applied {
            return Ok(());
        }
        let bytes = self.batch(place)?;
        for (number, record) in (place.header.first..).zip(batch::records_of(&bytes[HEADER_BYTES..])) {
            if number > self.applied {
                each(number, bytes.slice_ref(record)).map_err(|source| read_error(place.slot, source))?;
            }
        }
        Ok(())
    }

    /// Continues the journal for a new start, with what a chain has. Whatever stands in it behind `confirmed` is written anew:
    /// a failed sync may have left it in the cache alone. All is durable then.
    pub fn open(
        mut self,
        media: &dyn Media,
        (start, confirmed): (u32, u64),
        limits: JournalLimits,
    ) -> Result<Journal, JournalError> {
        for place in self.chain.iter().filter(|place| place.header.last() > confirmed) {
            let bytes = self.batch(place).map_err(|error| error.source)?;
            self.slots[&place.slot].write_at(place.at, &bytes)?;
        }
        let end = self.chain.last().map(|place| place.header);
        let last = end.map_or(self.applied, |header| header.last().max(self.applied));
        let mut journal = Journal {
            store: self.store,
            start,
            limits,
            used: VecDeque::new(),
            spare: Vec::new(),
            at: 0,
            batch: vec![0; HEADER_BYTES],
            count: 0,
            last,
            written: last,
            durable: confirmed.min(last),
            previous: end.map_or(0, |header| header.checksum),
            is_closed: false,
            rules: Rules::default(),
        };
        journal.take_over(std::mem::take(&mut self.slots), &self.chain)?;
        journal.begin(media)?;
        journal.free(self.applied.min(journal.durable));
        Ok(journal)
    }

    fn batch(&self, place: &Place) -> Result<Bytes, JournalReadError> {
        let length = usize::try_from(place.header.bytes()).expect("it was read before");
        let mut bytes = vec![0; length];
        let read = self.slots[&place.slot].read_at(place.at, &mut bytes);
        read.map_err(|source| read_error(place.slot, source))?;
        Ok(bytes.into())
    }
}

impl Journal {
    /// Sorts the segments by what is in them.
    fn take_over(
        &mut self,
        mut slots: BTreeMap<u32, Arc<dyn Blob>>,
        chain: &[Place],
    ) -> Result<(), JournalError> {
        for place in chain {
            if let Some(blob) = slots.remove(&place.slot) {
                self.used.push_back(Segment { slot: place.slot, blob, last: 0 });
            }
            let segment = self.used.back_mut().filter(|segment| segment.slot == place.slot);
            let Some(segment) = segment else { return Err(JournalError::Mixed { slot: place.slot }) };
            segment.last = place.header.last();
            self.at = (place.at + place.header.bytes()).next_multiple_of(BLOCK_BYTES);
        }
        // A crash may have left one that was being made.
        let is_whole =
            |blob: &Arc<dyn Blob>| blob.length().is_ok_and(|bytes| bytes == self.limits.segment_bytes);
        self.spare = slots.into_iter().filter(|(_, blob)| is_whole(blob)).collect();
        Ok(())
    }

    /// Writes a batch without a record, and syncs all there is.
    fn begin(&mut self, media: &dyn Media) -> Result<(), JournalError> {
        if self.room() < HEADER_BYTES as u64 && self.spare.is_empty() {
            let slot = self.free_slot();
            let blob = Self::make(media, slot, self.limits)?;
            self.handle_made(MadeSegment { slot, blob });
        }
        self.write_batch()?;
        self.used.iter().try_for_each(|segment| segment.blob.sync())?;
        self.durable = self.written;
        self.at = self.at.next_multiple_of(BLOCK_BYTES);
        Ok(())
    }
}

fn open_slots(media: &dyn Media) -> Result<BTreeMap<u32, Arc<dyn Blob>>, JournalReadError> {
    let failed = |source| JournalReadError { file: PREFIX.to_owned(), source };
    let names = media.names().map_err(failed)?;
    let slots = names.iter().filter_map(|name| name.strip_prefix(PREFIX)?.parse().ok());
    let open =
        |slot| Ok((slot, media.open(&super::file_of(slot)).map_err(|source| read_error(slot, source))?));
    slots.map(open).collect()
}

fn read_error(slot: u32, source: io::Error) -> JournalReadError {
    JournalReadError { file: super::file_of(slot), source }
}

/// All batches of a segment whose checksums hold.
fn scan(store: StoreId, slot: u32, blob: &dyn Blob, places: &mut Vec<Place>) -> io::Result<()> {
    let mut bytes = vec![0; usize::try_from(blob.length()?).map_err(io::Error::other)?];
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
    let mut followers: BTreeMap<u32, Vec<Place>> = BTreeMap::new();
    places.iter().for_each(|place| followers.entry(place.header.previous).or_default().push(*place));
    while let Some(Place { header, .. }) = chain.last() {
        let next = followers.get(&header.checksum).into_iter().flatten().copied();
        let next =
            next.filter(|next| next.header.first == header.last() + 1 && next.header.start >= header.start);
        let Some(next) = next.max_by_key(newest) else { break };
        chain.push(next);
    }
    chain
}

/// What all batches together say.
fn account(places: &[Place], chain: &[Place], applied: u64) -> JournalFound {
    let end = chain.last().map(|place| place.header);
    let last = end.map_or(applied, |header| header.last().max(applied));
    // What an earlier start wrote behind the end was abandoned by the last one.
    let start = end.map_or(0, |header| header.start);
    let behind = places.iter().filter(|place| place.header.start >= start && place.header.first > last + 1);
    let behind = behind.map(|place| place.header.last()).max();
    JournalFound {
        last: behind.map_or(last, |behind| behind.max(last)),
        unreadable: behind.map(|_| last + 1),
        durable: places.iter().map(|place| place.header.durable).fold(0, u64::max),
        is_refused: false,
    }
}
