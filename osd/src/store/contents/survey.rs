//! All rows of an index and all content that they refer to, looked at one by one: what a check of a store does.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

use base::ObjectId;
use bytes::Bytes;
use node::file::{Place, Stored};
use wire::FileRecord;

use super::packed::{PART_BYTES, Packed};
use super::places;
use super::rows::{self, Key, PackedHead};
use crate::store::check::Problem;
use crate::store::extents::{Extents, ReadError, UNIT_BYTES, checked};
use crate::store::index::{Index, IndexError};
use crate::store::media::Blob;

/// Who refers to content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::store) enum Holder {
    /// Nobody in particular.
    Index,
    Head(ObjectId),
    Chunk(ObjectId, u64),
    /// A record of the journal.
    Record(u64),
}

/// What was found wrong, and with what.
pub(in crate::store) type Wrong = (Holder, Problem);

/// What an index says.
#[derive(Default)]
pub(in crate::store) struct Survey {
    /// Records up to this one are in it.
    pub(in crate::store) applied: Option<u64>,
    pub(in crate::store) chunks: u64,
    /// Parts of trees.
    pub(in crate::store) names: u64,
    pub(in crate::store) wrong: Vec<Wrong>,
    heads: BTreeMap<ObjectId, Option<PackedHead>>,
    /// Those of which there is more than that.
    with_parts: BTreeSet<ObjectId>,
    /// By where it begins, and who was the first to refer to it.
    content: BTreeMap<u64, (Place, Holder)>,
}

impl Survey {
    /// Reads all rows.
    pub(in crate::store) fn of(index: &dyn Index) -> Result<Self, IndexError> {
        let mut survey = Self::default();
        index.scan(Key::FIRST, Key::END, &mut |key, row| {
            survey.take(key, row);
            ControlFlow::Continue(())
        })?;
        survey.compare();
        Ok(survey)
    }

    fn take(&mut self, key: &[u8], row: &[u8]) {
        match Key::parse(key) {
            Some(Key::Mark) => match rows::read_mark(row) {
                Some(applied) => self.applied = Some(applied),
                None => self.wrong.push((Holder::Index, Problem::Mark)),
            },
            Some(Key::Head(object)) => {
                let head = PackedHead::decode(object, row);
                let content: Vec<Place> = head.iter().flat_map(PackedHead::places).cloned().collect();
                content.iter().for_each(|place| self.claim(place, Holder::Head(object)));
                self.heads.insert(object, head);
            }
            Some(Key::Name(object, name)) => {
                self.names += 1;
                self.with_parts.insert(object);
                if rows::decode_name(object, &name, row).is_none() {
                    self.wrong.push((Holder::Head(object), Problem::Name));
                }
            }
            Some(ref key @ Key::Chunk(object, number)) => {
                let holder = Holder::Chunk(object, number);
                self.chunks += 1;
                self.with_parts.insert(object);
                let Some(kept) = rows::decode_chunk(key, row) else {
                    return self.wrong.push((holder, Problem::Chunk));
                };
                places(&kept.chunk).iter().for_each(|place| self.claim(place, holder));
                let ends_within = |place: &Place, end: u64| checked(place).is_some_and(|(_, len)| end <= len);
                let beyond = kept.chunk.stored().find(|stored| {
                    !ends_within(&stored.place, u64::from(stored.from) + u64::from(stored.len))
                });
                if let Some(stored) = beyond {
                    let offset = stored.place.words().first().copied().unwrap_or_default();
                    self.wrong.push((holder, Problem::Place { offset }));
                }
            }
            None => self.wrong.push((Holder::Index, Problem::Key)),
        }
    }

    /// Rows that do not fit each other.
    fn compare(&mut self) {
        let of_all = self.applied.unwrap_or_default();
        let says_nothing = self.applied.is_none() && !(self.heads.is_empty() && self.with_parts.is_empty());
        let is_noted = self.wrong.iter().any(|(_, problem)| matches!(problem, Problem::Mark));
        if says_nothing && !is_noted {
            self.wrong.push((Holder::Index, Problem::Mark));
        }
        for (&object, head) in &self.heads {
            let wrong = match head {
                None => Problem::Head,
                Some(head) if head.applied() > of_all => Problem::Ahead { of_file: head.applied(), of_all },
                Some(_) => continue,
            };
            self.wrong.push((Holder::Head(object), wrong));
        }
        let headless = self.with_parts.iter().filter(|object| !self.heads.contains_key(object));
        self.wrong.extend(headless.map(|object| (Holder::Head(*object), Problem::Headless)));
    }

    /// Somebody refers to content.
    fn claim(&mut self, place: &Place, holder: Holder) {
        let offset = place.words().first().copied().unwrap_or_default();
        if checked(place).is_none() {
            return self.wrong.push((holder, Problem::Place { offset }));
        }
        let (known, _) = self.content.entry(offset).or_insert_with(|| (place.clone(), holder));
        if known != place {
            self.wrong.push((holder, Problem::Shared { offset }));
        }
    }

    /// A record of the journal that the index does not have refers to content.
    pub(in crate::store) fn claim_record(&mut self, number: u64, record: &Bytes) {
        for place in Packed::decode(record.clone()).iter().flat_map(Packed::places) {
            self.claim(place, Holder::Record(number));
        }
    }

    /// How many files the index has.
    pub(in crate::store) fn files(&self) -> u64 {
        self.heads.len() as u64
    }

    /// Whether the index has a file.
    pub(in crate::store) fn has(&self, object: ObjectId) -> bool {
        self.heads.contains_key(&object)
    }

    /// How much content there is, and up to where it goes. What is in between is free.
    pub(in crate::store) fn content_bytes(&self) -> (u64, u64) {
        let used = |(place, _): &(Place, Holder)| checked(place).map_or(0, |(_, len)| units(len));
        let end = self.content.last_key_value().map_or(0, |(offset, content)| offset + used(content));
        (self.content.values().map(used).sum(), end)
    }

    /// Reads all content. `each` is told how much of it was read.
    pub(in crate::store) fn read_content(&mut self, blob: &Arc<dyn Blob>, each: &mut dyn FnMut(u64)) {
        let extents = reader(blob);
        let (mut end, mut sound) = (0, BTreeSet::new());
        for (&offset, (place, holder)) in &self.content {
            let length = checked(place).map_or(0, |(_, len)| units(len));
            if offset < end {
                self.wrong.push((*holder, Problem::Shared { offset }));
            }
            end = offset + length;
            match unreadable(&extents, place) {
                Some(problem) => self.wrong.push((*holder, problem)),
                None => _ = sound.insert(offset),
            }
            each(length);
        }
        for (object, head) in std::mem::take(&mut self.heads) {
            let Some(head) = head else { continue };
            // What cannot be read was noted above.
            let is_whole = head.places().all(|place| sound.contains(&place.words()[0]));
            if is_whole && head.unpack(|place| extents.read(&all_of(place)).ok()).is_none() {
                self.wrong.push((Holder::Head(object), Problem::Head));
            }
        }
    }
}

/// The first content that a record refers to and that is not there, with the file that it is about.
pub(in crate::store) fn lacking(
    blob: &Arc<dyn Blob>,
    record: &Bytes,
) -> io::Result<Option<(Option<ObjectId>, Problem)>> {
    let packed = Packed::decode(record.clone());
    let Some(packed) = packed else {
        return Ok(Some((None, Problem::Record(wire::DecodeError::Truncated))));
    };
    let extents = reader(blob);
    let Some(problem) = packed.places().find_map(|place| unreadable(&extents, place)) else {
        return Ok(None);
    };
    // Whose it is stands in the rest.
    let filled = packed.unpack(|_| Some(Bytes::from_static(&[0; PART_BYTES])));
    Ok(Some((filled.and_then(wire::object_of_record), problem)))
}

/// A record of the journal, with what it refers to.
pub(in crate::store) fn whole_record(
    blob: &Arc<dyn Blob>,
    record: &Bytes,
) -> Result<FileRecord, wire::DecodeError> {
    let extents = reader(blob);
    let packed = Packed::decode(record.clone()).ok_or(wire::DecodeError::Truncated)?;
    let unpacked = packed.unpack(|place| extents.read(&all_of(place)).ok());
    wire::decode_stored(unpacked.ok_or(wire::DecodeError::Truncated)?)
}

/// All of a stretch.
fn all_of(place: &Place) -> Stored {
    let len = checked(place).and_then(|(_, len)| u32::try_from(len).ok());
    Stored { place: place.clone(), from: 0, len: len.unwrap_or(u32::MAX) }
}

fn reader(blob: &Arc<dyn Blob>) -> Extents {
    Extents::open(Arc::clone(blob), []).expect("nothing is in use that could be wrong")
}

fn unreadable(extents: &Extents, place: &Place) -> Option<Problem> {
    let Some((offset, _)) = checked(place) else {
        return Some(Problem::Place { offset: place.words().first().copied().unwrap_or_default() });
    };
    match extents.read(&all_of(place)) {
        Ok(_) => None,
        Err(ReadError::Damaged { offset }) => Some(Problem::Content { offset }),
        Err(ReadError::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Some(Problem::CutOff { offset })
        }
        Err(ReadError::Io(error)) => Some(Problem::Unreadable(error.to_string())),
    }
}

const fn units(bytes: u64) -> u64 {
    bytes.next_multiple_of(UNIT_BYTES)
}
