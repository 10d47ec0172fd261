//! The content of files: stretches of one file of the disk, each written once, checked whenever it is read, and free again when
//! nobody refers to it.
//!
//! Invariants:
//! - A stretch is written before anything that is durable refers to it, and never again as long as anything does. So what is
//!   durable is never overwritten.
//! - Whoever refers to a stretch durably holds it: a row of the index, or a record of the journal. It is free when nobody does, and
//!   nobody in memory refers to it.
//! - No two stretches share a unit, because a unit that is being written may be torn.
//! - What is read was checked against checksums that are kept elsewhere: what rotted, was written elsewhere or was never written
//!   is found, and not given out.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use node::file::{Place, Stored};

use super::bugs::{Bug, Rules};
use super::media::{Blob, Reads};

/// What space is given out in.
pub const UNIT_BYTES: u64 = 4_096;
/// What has a checksum of its own: whoever reads a byte reads all of this.
const CHECKED_BYTES: u64 = 16 << 10;
/// What a place says before its checksums: where it begins, and how long it is.
const PLACE_WORDS: usize = 2;

/// All stretches of a store.
pub struct Extents {
    blob: Arc<dyn Blob>,
    space: Mutex<Space>,
    rules: Rules,
}

/// Which space is in use.
#[derive(Default)]
struct Space {
    /// By where they begin, in bytes; and how many durable things refer to each.
    used: BTreeMap<u64, (Place, u32)>,
    /// Free stretches below the end, by where they begin, and how long they are.
    free: BTreeMap<u64, u64>,
    /// The same, by their length.
    by_length: BTreeSet<(u64, u64)>,
    /// All of them.
    free_bytes: u64,
    /// As free, and nobody may take them: the disk is being given back what they take.
    leaving_bytes: u64,
    end: u64,
    /// Nothing that is durable refers to these; somebody in memory may.
    retired: Vec<Place>,
}

/// Why content cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It is not what was written.
    #[error("content at {offset} is not what was written there")]
    Damaged {
        /// Where it begins.
        offset: u64,
    },
    /// The disk refuses.
    #[error("content cannot be read")]
    Io(#[from] io::Error),
}

/// Two that are in use share space, or one cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the place of content at {offset} cannot be")]
pub struct BadPlace {
    /// Where it begins.
    pub offset: u64,
}

impl Extents {
    /// Those in a file, in which these places are in use, each as often.
    pub fn open(blob: Arc<dyn Blob>, used: impl IntoIterator<Item = Place>) -> Result<Self, BadPlace> {
        let extents = Self { blob, space: Mutex::default(), rules: Rules::default() };
        for place in used {
            extents.claim(&place)?;
        }
        extents.find_free()?;
        Ok(extents)
    }

    /// The same under these rules.
    #[must_use]
    pub fn with(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// One more durable thing refers to this, as a start has found: before anything is written, and to be followed by
    /// [`find_free`](Self::find_free). Returns the place as everybody has it.
    pub fn claim(&self, place: &Place) -> Result<Place, BadPlace> {
        let (offset, _) = checked(place).ok_or(BadPlace { offset: first_word(place) })?;
        let mut space = self.space();
        let (known, holders) = space.used.entry(offset).or_insert_with(|| (place.clone(), 0));
        if known != place {
            return Err(BadPlace { offset });
        }
        *holders += 1;
        Ok(known.clone())
    }

    /// What is not in use is free.
    pub fn find_free(&self) -> Result<(), BadPlace> {
        self.space().find_free()
    }

    /// Writes content where nothing is, for one durable thing that will refer to it. It is durable after the next
    /// [`sync`](Self::sync).
    pub fn write(&self, content: &[u8]) -> io::Result<Place> {
        let length = content.len() as u64;
        let offset = self.space().take(length.next_multiple_of(UNIT_BYTES));
        if let Err(error) = self.blob.write_at(offset, content) {
            self.space().give_back(offset, length.next_multiple_of(UNIT_BYTES));
            return Err(error);
        }
        Ok(self.add(offset, content))
    }

    /// The same for long content in parts of whole units, each of which gets a place of its own.
    pub fn write_parts(&self, parts: &[Bytes], reads: Reads) -> io::Result<Vec<Place>> {
        let length = parts.iter().map(|part| part.len() as u64).sum();
        let offset = self.space().take(length);
        if let Err(error) = self.blob.write_parts_at(offset, parts, reads) {
            self.space().give_back(offset, length);
            return Err(error);
        }
        let mut at = offset;
        let mut add = |part: &Bytes| {
            assert!((part.len() as u64).is_multiple_of(UNIT_BYTES), "no two stretches share a unit");
            let place = self.add(at, part);
            at += part.len() as u64;
            place
        };
        Ok(parts.iter().map(&mut add).collect())
    }

    /// Writes the same once more where it stands: a failed sync may have left it in the cache alone.
    pub fn write_again(&self, place: &Place) -> Result<(), ReadError> {
        let (offset, length) = checked(place).ok_or(ReadError::Damaged { offset: first_word(place) })?;
        let len = u32::try_from(length).map_err(|_| ReadError::Damaged { offset })?;
        let content = self.read(&Stored { place: place.clone(), from: 0, len })?;
        Ok(self.blob.write_at(offset, &content)?)
    }

    /// Makes all that was written durable.
    pub fn sync(&self) -> io::Result<()> {
        self.blob.sync()
    }

    /// What is to be synced for that.
    pub fn blob(&self) -> Arc<dyn Blob> {
        Arc::clone(&self.blob)
    }

    /// Reads content, and checks it.
    pub fn read(&self, stored: &Stored) -> Result<Bytes, ReadError> {
        let (offset, length) =
            checked(&stored.place).ok_or(ReadError::Damaged { offset: first_word(&stored.place) })?;
        let (from, to) = (u64::from(stored.from), u64::from(stored.from) + u64::from(stored.len));
        if to > length {
            return Err(ReadError::Damaged { offset });
        }
        let first = from / CHECKED_BYTES;
        let (start, end) = (first * CHECKED_BYTES, to.next_multiple_of(CHECKED_BYTES).min(length));
        let mut content = BytesMut::zeroed(index(end - start));
        self.blob.read_at(offset + start, &mut content)?;
        let sums = &stored.place.words()[PLACE_WORDS + index(first)..];
        let holds = content.chunks(checked_len()).zip(sums).all(|(piece, sum)| checksum(piece) == *sum);
        if !holds && !self.rules.breaks(Bug::ChecksumNotChecked) {
            return Err(ReadError::Damaged { offset });
        }
        Ok(content.freeze().slice(index(from - start)..index(to - start)))
    }

    /// One more durable thing refers to this.
    pub fn hold(&self, place: &Place) {
        if let Some((_, holders)) = self.space().used.get_mut(&first_word(place)) {
            *holders += 1;
        }
    }

    /// One durable thing less refers to this.
    pub fn release(&self, place: &Place) {
        let mut space = self.space();
        let held = space.used.get_mut(&first_word(place));
        let Some((known, holders)) = held.filter(|(known, holders)| known == place && *holders > 0) else {
            return;
        };
        *holders -= 1;
        if *holders == 0 {
            let known = known.clone();
            space.retired.push(known);
        }
    }

    /// Frees what others may refer to. Only with a planted bug.
    pub(in crate::store) fn free_at_once(&self, place: &Place) {
        let mut space = self.space();
        if let (Some(_), &[offset, length, ..]) = (space.used.remove(&first_word(place)), place.words()) {
            space.give_back(offset, length.next_multiple_of(UNIT_BYTES));
        }
    }

    /// Frees what nobody refers to.
    pub fn free_retired(&self) {
        self.space().free_retired();
    }

    /// How many bytes are in use.
    pub fn used_bytes(&self) -> u64 {
        let space = self.space();
        space.end - space.free_bytes - space.leaving_bytes
    }

    /// How much the file takes of the disk that nobody uses.
    pub fn free_bytes(&self) -> io::Result<u64> {
        Ok(self.blob.allocated()?.saturating_sub(self.used_bytes()))
    }

    /// Gives the disk back what nobody uses of the file.
    pub fn give_to_disk(&self) -> io::Result<()> {
        let length = self.blob.length()?;
        let (behind, free) = {
            let mut space = self.space();
            (space.take_behind(length), space.by_length.clone())
        };
        if let Some((offset, length)) = behind {
            self.punch(offset, length)?;
        }
        for (length, offset) in free.into_iter().rev() {
            // It may be in use by now.
            if self.space().take_all(offset, length) {
                self.punch(offset, length)?;
            }
        }
        Ok(())
    }

    /// Gives the disk back what was taken for that.
    fn punch(&self, offset: u64, length: u64) -> io::Result<()> {
        let punched = self.blob.punch(offset, length);
        let mut space = self.space();
        space.leaving_bytes -= length;
        space.give_back(offset, length);
        punched
    }

    /// Content was written there.
    fn add(&self, offset: u64, content: &[u8]) -> Place {
        let sums = content.chunks(checked_len()).map(checksum);
        let words: Vec<u64> = [offset, content.len() as u64].into_iter().chain(sums).collect();
        let place = Place::new(&words);
        self.space().used.insert(offset, (place.clone(), 1));
        place
    }

    fn space(&self) -> MutexGuard<'_, Space> {
        self.space.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Space {
    /// What is not in use is free.
    fn find_free(&mut self) -> Result<(), BadPlace> {
        (self.free, self.by_length, self.free_bytes, self.end) = Default::default();
        let mut gaps = Vec::new();
        for (&offset, (place, _)) in &self.used {
            if offset < self.end {
                return Err(BadPlace { offset });
            }
            gaps.push((self.end, offset - self.end));
            let length = place.words()[1];
            self.end = offset + length.next_multiple_of(UNIT_BYTES);
        }
        gaps.into_iter()
            .filter(|(_, length)| *length > 0)
            .for_each(|(offset, length)| self.add_free(offset, length));
        Ok(())
    }

    /// Takes the shortest free stretch that is long enough.
    fn take(&mut self, length: u64) -> u64 {
        let Some(&(found, offset)) = self.by_length.range((length, 0)..).next() else {
            let offset = self.end;
            self.end += length;
            return offset;
        };
        self.remove_free(offset, found);
        if found > length {
            self.add_free(offset + length, found - length);
        }
        offset
    }

    /// Takes a free stretch out, if it is one, to give it to the disk.
    fn take_all(&mut self, offset: u64, length: u64) -> bool {
        let is_free = self.free.get(&offset) == Some(&length);
        if is_free {
            self.remove_free(offset, length);
            self.leaving_bytes += length;
        }
        is_free
    }

    /// The same with what is behind the last stretch of a file that is so long. Whoever writes meanwhile goes behind that.
    fn take_behind(&mut self, length: u64) -> Option<(u64, u64)> {
        let (offset, length) = (self.end, length.checked_sub(self.end).filter(|length| *length > 0)?);
        self.end += length;
        self.leaving_bytes += length;
        Some((offset, length))
    }

    fn give_back(&mut self, offset: u64, length: u64) {
        let (mut offset, mut length) = (offset, length);
        if let Some((&before, &width)) = self.free.range(..offset).next_back()
            && before + width == offset
        {
            self.remove_free(before, width);
            (offset, length) = (before, width + length);
        }
        if let Some(&width) = self.free.get(&(offset + length)) {
            self.remove_free(offset + length, width);
            length += width;
        }
        if offset + length == self.end {
            self.end = offset;
        } else {
            self.add_free(offset, length);
        }
    }

    fn add_free(&mut self, offset: u64, length: u64) {
        self.free.insert(offset, length);
        self.by_length.insert((length, offset));
        self.free_bytes += length;
    }

    fn remove_free(&mut self, offset: u64, length: u64) {
        self.free.remove(&offset);
        self.by_length.remove(&(length, offset));
        self.free_bytes -= length;
    }

    fn free_retired(&mut self) {
        for place in std::mem::take(&mut self.retired) {
            let offset = first_word(&place);
            // What is in use is kept here, too.
            let Some((kept, holders)) = self.used.remove(&offset) else { continue };
            drop(place);
            if holders > 0 {
                self.used.insert(offset, (kept, holders));
            } else if kept.is_used() {
                self.used.insert(offset, (kept.clone(), 0));
                self.retired.push(kept);
            } else {
                self.give_back(offset, kept.words()[1].next_multiple_of(UNIT_BYTES));
            }
        }
    }
}

fn checksum(piece: &[u8]) -> u64 {
    let hash = blake3::hash(piece);
    u64::from_le_bytes(*hash.as_bytes().first_chunk().expect("a hash has 32 bytes"))
}

/// Where content begins and how long it is, if its place can be.
pub(super) fn checked(place: &Place) -> Option<(u64, u64)> {
    let &[offset, length, ref sums @ ..] = place.words() else { return None };
    let is_possible = length > 0
        && offset.is_multiple_of(UNIT_BYTES)
        && offset.checked_add(length).is_some_and(|end| end <= i64::MAX as u64)
        && sums.len() as u64 == length.div_ceil(CHECKED_BYTES);
    is_possible.then_some((offset, length))
}

fn first_word(place: &Place) -> u64 {
    place.words().first().copied().unwrap_or_default()
}

fn checked_len() -> usize {
    index(CHECKED_BYTES)
}

/// A number of bytes of one stretch, which is in memory.
fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a stretch is short")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::media::Media;
    use crate::store::media::fake::FakeMedia;

    const NAME: &str = "content";

    fn extents(media: &FakeMedia, used: Vec<Place>) -> Extents {
        Extents::open(media.open(NAME).unwrap(), used).unwrap()
    }

    fn stored(place: &Place, from: usize, len: usize) -> Stored {
        Stored { place: place.clone(), from: u32::try_from(from).unwrap(), len: u32::try_from(len).unwrap() }
    }

    fn content(seed: u8, length: usize) -> Vec<u8> {
        (0..length).map(|at| seed.wrapping_add(u8::try_from(at % 251).unwrap())).collect()
    }

    #[test]
    fn what_is_written_is_read_in_parts() {
        let extents = extents(&FakeMedia::default(), vec![]);
        let whole = content(1, 50_000);
        let place = extents.write(&whole).unwrap();
        for (from, len) in [(0, 50_000), (16_384, 1), (16_383, 2), (49_999, 1), (20_000, 20_000)] {
            assert_eq!(extents.read(&stored(&place, from, len)).unwrap(), whole[from..from + len]);
        }
        assert!(matches!(extents.read(&stored(&place, 49_999, 2)), Err(ReadError::Damaged { .. })));
    }

    #[test]
    fn damage_is_found_where_it_is() {
        let media = FakeMedia::default();
        let extents = extents(&media, vec![]);
        let place = extents.write(&content(1, 40_000)).unwrap();
        media.edit(NAME, |bytes| bytes[20_000] ^= 1);
        assert!(extents.read(&stored(&place, 0, 16_384)).is_ok());
        assert!(extents.read(&stored(&place, 32_768, 100)).is_ok());
        assert!(matches!(extents.read(&stored(&place, 16_384, 1)), Err(ReadError::Damaged { offset: 0 })));
    }

    #[test]
    fn space_is_used_again_when_nobody_refers_to_it() {
        let media = FakeMedia::default();
        let extents = extents(&media, vec![]);
        let places: Vec<Place> = (0..4).map(|seed| extents.write(&content(seed, 5_000)).unwrap()).collect();
        let offsets: Vec<u64> = places.iter().map(|place| place.words()[0]).collect();
        assert_eq!(offsets, [0, 8_192, 16_384, 24_576]);
        let reader = stored(&places[1], 0, 5_000);
        let mut places = places.into_iter();
        let (first, second, third, _fourth) =
            (places.next().unwrap(), places.next().unwrap(), places.next().unwrap(), places.next().unwrap());
        extents.release(&second);
        drop(second);
        extents.free_retired();
        assert_eq!(extents.used_bytes(), 32_768, "somebody reads it");
        assert_eq!(extents.read(&reader).unwrap(), content(1, 5_000));
        drop(reader);
        extents.release(&first);
        drop(first);
        extents.free_retired();
        assert_eq!(extents.used_bytes(), 16_384);
        extents.release(&third);
        drop(third);
        extents.free_retired();
        let again = extents.write(&content(9, 24_576)).unwrap();
        assert_eq!(again.words()[0], 0, "three became one");
        assert_eq!(extents.used_bytes(), 32_768);
    }

    #[test]
    fn what_is_free_at_the_end_of_the_file_is_counted() {
        let media = FakeMedia::default();
        let extents = extents(&media, vec![]);
        let places: Vec<Place> = (0..3).map(|seed| extents.write(&content(seed, 8_192)).unwrap()).collect();
        assert_eq!(extents.free_bytes().unwrap(), 0);
        for (count, place) in (1..).zip(places) {
            extents.release(&place);
            drop(place);
            extents.free_retired();
            assert_eq!(extents.free_bytes().unwrap(), count * 8_192);
        }
    }

    #[test]
    fn what_is_free_is_given_to_the_disk_and_nothing_else() {
        let media = FakeMedia::default();
        let extents = extents(&media, vec![]);
        let mut places: Vec<Place> =
            (1..9).map(|seed| extents.write(&content(seed, 8_192)).unwrap()).collect();
        for index in [7, 6, 3, 1] {
            extents.release(&places.remove(index));
        }
        extents.free_retired();
        extents.give_to_disk().unwrap();
        let mut bytes = Vec::new();
        media.edit(NAME, |there| bytes.clone_from(there));
        for (seed, there) in (1..9).zip(bytes.chunks(8_192)) {
            let is_used = [1, 3, 5, 6].contains(&seed);
            assert!(there == if is_used { content(seed, 8_192) } else { vec![0; 8_192] }, "{seed}");
        }
        assert_eq!((extents.used_bytes(), extents.space().end), (4 * 8_192, 6 * 8_192));
        let again =
            [8_192, 8_192, 8_192].map(|length| extents.write(&content(9, length)).unwrap().words()[0]);
        assert_eq!(again, [8_192, 3 * 8_192, 6 * 8_192]);
    }

    #[test]
    fn what_a_disk_cannot_take_back_stays_free() {
        let media = FakeMedia::default();
        let extents = extents(&media, vec![]);
        let places: Vec<Place> = (0..3).map(|seed| extents.write(&content(seed, 8_192)).unwrap()).collect();
        extents.release(&places[0]);
        drop(places);
        extents.free_retired();
        media.fail_after(0, io::ErrorKind::Unsupported);
        assert!(extents.give_to_disk().is_err());
        assert_eq!((extents.used_bytes(), extents.free_bytes().unwrap()), (16_384, 8_192));
    }

    #[test]
    fn a_start_finds_what_is_free() {
        let media = FakeMedia::default();
        let first = extents(&media, vec![]);
        let places: Vec<Place> = (0..3).map(|seed| first.write(&content(seed, 4_096)).unwrap()).collect();
        let again = extents(&media, vec![Place::new(places[0].words()), Place::new(places[2].words())]);
        assert_eq!(again.used_bytes(), 8_192);
        assert_eq!(again.write(&content(7, 10)).unwrap().words()[0], 4_096);
        assert_eq!(again.write(&content(7, 10)).unwrap().words()[0], 12_288);
        let overlapping = [Place::new(&[0, 8_192, 1]), Place::new(&[4_096, 10, 1])];
        assert_eq!(
            Extents::open(media.open(NAME).unwrap(), overlapping).err(),
            Some(BadPlace { offset: 4_096 })
        );
        for words in [vec![], vec![0], vec![0, 0], vec![1, 10, 1], vec![0, 10], vec![0, 10, 1, 2]] {
            assert!(Extents::open(media.open(NAME).unwrap(), [Place::new(&words)]).is_err(), "{words:?}");
        }
    }

    #[test]
    fn a_disk_without_space_changes_nothing() {
        let media = FakeMedia::default();
        let extents = extents(&media, vec![]);
        media.fail_after(0, io::ErrorKind::StorageFull);
        assert!(extents.write(&content(1, 10)).is_err());
        media.heal();
        assert_eq!(extents.used_bytes(), 0);
        assert_eq!(extents.write(&content(1, 10)).unwrap().words()[0], 0);
    }
}
