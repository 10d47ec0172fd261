//! Layout: a value of which some data stands as content, and is referred to. `docs/disk.md` shows it.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use node::file::Place;

/// What stands as content is as long as a chunk of a file: the chunk then needs no other place.
pub(super) const PART_BYTES: usize = 64 << 10;
/// A part as long has so many words in its place, and some to spare.
const WORDS_MAX: u32 = 16;

/// A value, and what of it stands elsewhere.
#[derive(Debug)]
pub(super) struct Packed {
    /// Where each part begins in the value, and where it is, in order.
    parts: Vec<(usize, Place)>,
    /// The rest, as if nothing were missing in between.
    rest: Bytes,
}

/// The parts of a value, given in pieces, that may stand elsewhere.
pub(super) fn parts(pieces: &[Bytes]) -> impl Iterator<Item = Bytes> {
    let starts = |piece: &Bytes| (0..piece.len() / PART_BYTES).map(|index| index * PART_BYTES);
    pieces.iter().flat_map(move |piece| starts(piece).map(|at| piece.slice(at..at + PART_BYTES)))
}

/// The bytes of a value that is given in pieces, in pieces. `place_of` says of each long part whether it has a place.
pub(super) fn pack(pieces: &[Bytes], mut place_of: impl FnMut(&Bytes) -> Option<Place>) -> Vec<Bytes> {
    let (mut parts, mut rest, mut at) = (Vec::new(), vec![Bytes::new()], 0);
    for piece in pieces {
        let mut piece = piece.clone();
        while piece.len() >= PART_BYTES {
            let part = piece.split_to(PART_BYTES);
            match place_of(&part) {
                Some(place) => parts.push((at, place)),
                None => rest.push(part),
            }
            at += PART_BYTES;
        }
        at += piece.len();
        rest.push(piece);
    }
    let mut head = BytesMut::new();
    head.put_u32_le(short(parts.len()));
    for (at, place) in parts {
        head.put_u32_le(short(at));
        head.put_u32_le(short(place.words().len()));
        place.words().iter().for_each(|word| head.put_u64_le(*word));
    }
    rest[0] = head.freeze();
    rest
}

impl Packed {
    /// The value that takes up all of `bytes`, whose memory it shares.
    pub(super) fn decode(mut bytes: Bytes) -> Option<Self> {
        let mut parts = Vec::new();
        for _ in 0..bytes.try_get_u32_le().ok()? {
            let at = usize::try_from(bytes.try_get_u32_le().ok()?).ok()?;
            let count = bytes.try_get_u32_le().ok().filter(|count| *count <= WORDS_MAX)?;
            let words: Result<Vec<u64>, _> = (0..count).map(|_| bytes.try_get_u64_le()).collect();
            parts.push((at, Place::new(&words.ok()?)));
        }
        Some(Self { parts, rest: bytes })
    }

    /// Where what of it is elsewhere is.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.parts.iter().map(|(_, place)| place)
    }

    /// All of the value. `read` gives each part; none if it cannot.
    pub(super) fn unpack(&self, mut read: impl FnMut(&Place) -> Option<Bytes>) -> Option<Bytes> {
        if self.parts.is_empty() {
            return Some(self.rest.clone());
        }
        let mut whole = BytesMut::with_capacity(self.rest.len() + self.parts.len() * PART_BYTES);
        let mut rest = self.rest.clone();
        for (at, place) in &self.parts {
            let before = at.checked_sub(whole.len()).filter(|before| *before <= rest.len())?;
            whole.put(rest.split_to(before));
            whole.put(read(place)?);
        }
        whole.put(rest);
        Some(whole.freeze())
    }

    /// The parts in all of the value, by where they are.
    pub(super) fn parts_in(&self, whole: &Bytes) -> impl Iterator<Item = (&Place, Bytes)> {
        let part = |at: usize| (at + PART_BYTES <= whole.len()).then(|| whole.slice(at..at + PART_BYTES));
        self.parts.iter().filter_map(move |(at, place)| Some((place, part(*at)?)))
    }
}

fn short(number: usize) -> u32 {
    u32::try_from(number).expect("what is kept of a file is bounded")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value() -> Vec<Bytes> {
        let bytes = |seed: usize, length: usize| -> Bytes {
            (0..length).map(|at| u8::try_from((at * 7 + seed) % 251).unwrap()).collect()
        };
        vec![bytes(1, 40), bytes(2, 2 * PART_BYTES + 100), bytes(3, 9), bytes(4, PART_BYTES)]
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let whole = value().concat();
        for wanted in 0..8_u32 {
            let mut parts: Vec<Bytes> = Vec::new();
            let mut seen = 0;
            let packed = pack(&value(), |part| {
                seen += 1;
                let is_wanted = wanted & 1 << (seen - 1) != 0;
                parts.extend(is_wanted.then(|| part.clone()));
                is_wanted.then(|| Place::new(&[parts.len() as u64 - 1, 5]))
            });
            let packed = Packed::decode(packed.concat().into()).unwrap();
            assert_eq!(super::parts(&value()).count(), 3);
            assert_eq!((seen, packed.places().count()), (3, wanted.count_ones() as usize));
            let read = |place: &Place| parts.get(usize::try_from(place.words()[0]).unwrap()).cloned();
            let unpacked = packed.unpack(read).unwrap();
            assert_eq!(unpacked, whole);
            let found: Vec<Bytes> = packed.parts_in(&unpacked).map(|(_, part)| part).collect();
            assert_eq!(found, parts);
            assert!(wanted == 0 || packed.unpack(|_| None).is_none());
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_value() {
        let words = |words: &[u32]| -> Bytes { words.iter().flat_map(|word| word.to_le_bytes()).collect() };
        for bytes in [&[][..], &[1], &[1, 0], &[1, 0, 1, 0], &[1, 0, 17], &[u32::MAX, 0, 0]] {
            assert!(Packed::decode(words(bytes)).is_none(), "{bytes:?}");
        }
        let behind = Packed::decode(words(&[1, 9, 0, 7])).unwrap();
        assert!(behind.unpack(|_| Some(Bytes::new())).is_none(), "it begins behind the end");
        let before = Packed::decode(words(&[2, 4, 0, 0, 0, 7])).unwrap();
        assert!(before.unpack(|_| Some(Bytes::new())).is_none(), "they are not in order");
    }
}
