//! Content in pieces: in memory, on a disk, or zeros.
//!
//! What a checkpoint has put on disk is named by a [`Place`], which only the driver understands: it finds the content there
//! and checks it. Nothing that a state decides depends on content, so entries take effect without a look at the disk; only who
//! sends content away has it fetched first.

use std::fmt;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};

/// How long a run of zeros in one piece is at most.
const ZEROS_LEN: usize = 64 << 10;
static ZEROS: [u8; ZEROS_LEN] = [0; ZEROS_LEN];

/// Where a driver finds content again. What the words mean is its own affair. As long as a clone is somewhere, the content stays
/// where it is: [`is_used`](Self::is_used) tells.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Place(Arc<[u64]>);

/// Content that lies on a disk.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Stored {
    /// Where.
    pub place: Place,
    /// Where in that it begins.
    pub from: u32,
    /// How long it is.
    pub len: u32,
}

/// Content of one kind.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum Piece {
    /// In memory.
    Held(Bytes),
    /// On a disk.
    Stored(Stored),
}

/// Pieces in order that do not overlap, by where they begin. Between them are zeros.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Pieces(Vec<(usize, Piece)>);

/// Some content of a file.
#[derive(Clone, Debug, Default)]
pub struct Data {
    len: usize,
    pieces: Pieces,
}

impl Place {
    /// A place that is described by these words.
    pub fn new(words: &[u64]) -> Self {
        Self(words.into())
    }

    /// What it was described by.
    pub fn words(&self) -> &[u64] {
        &self.0
    }

    /// Whether there is a clone of it.
    pub fn is_used(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }
}

impl Piece {
    /// How long it is.
    pub fn len(&self) -> usize {
        match self {
            Self::Held(bytes) => bytes.len(),
            Self::Stored(stored) => stored.len as usize,
        }
    }

    /// Whether it is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    const fn is_held(&self) -> bool {
        matches!(self, Self::Held(_))
    }

    /// The part from `start` to before `end`.
    fn slice(&self, start: usize, end: usize) -> Self {
        match self {
            Self::Held(bytes) => Self::Held(bytes.slice(start..end)),
            Self::Stored(Stored { place, from, .. }) => {
                let word = |at: usize| u32::try_from(at).expect("it is within the piece");
                let (from, len) = (from + word(start), word(end - start));
                Self::Stored(Stored { place: place.clone(), from, len })
            }
        }
    }
}

impl Pieces {
    /// One piece, from the beginning on.
    pub(super) fn one(piece: Piece) -> Self {
        Self(vec![(0, piece)])
    }

    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = (usize, &Piece)> {
        self.0.iter().map(|(start, piece)| (*start, piece))
    }

    /// What stands from `start` to before `end`, as if it began at 0.
    pub(super) fn slice(&self, start: usize, end: usize) -> impl Iterator<Item = (usize, Piece)> {
        let first = self.0.partition_point(|(at, piece)| at + piece.len() <= start);
        let within = self.0[first..].iter().take_while(move |(at, _)| *at < end);
        within.map(move |(at, piece)| {
            let (from, to) = (start.max(*at), end.min(at + piece.len()));
            (from - start, piece.slice(from - at, to - at))
        })
    }

    /// Makes zeros from `start` to before `end`.
    pub(super) fn remove(&mut self, start: usize, end: usize) {
        let first = self.0.partition_point(|(at, piece)| at + piece.len() <= start);
        let last = self.0.partition_point(|(at, _)| *at < end);
        if first >= last {
            return;
        }
        let (at, piece) = &self.0[first];
        let before = (*at < start).then(|| (*at, piece.slice(0, start - at)));
        let (at, piece) = &self.0[last - 1];
        let after = (end < at + piece.len()).then(|| (end, piece.slice(end - at, piece.len())));
        self.0.splice(first..last, before.into_iter().chain(after));
    }

    /// Puts a piece where there is none.
    pub(super) fn insert(&mut self, start: usize, piece: Piece) {
        let index = self.0.partition_point(|(at, _)| *at < start);
        self.0.insert(index, (start, piece));
    }

    /// Puts `data` at `start`. It becomes one piece with what is in memory beside it, if nothing is between or `are_close` says
    /// of the bytes at both ends that they are.
    pub(super) fn write(&mut self, start: usize, data: &[u8], are_close: impl Fn(usize, usize) -> bool) {
        let end = start + data.len();
        let (from, to) = (self.joined_from(start, &are_close), self.joined_to(end, &are_close));
        let first = self.0.partition_point(|(at, _)| *at < from);
        let last = self.0.partition_point(|(at, _)| *at < to);
        let mut content = BytesMut::new();
        let mut behind = None;
        for (at, piece) in self.0.drain(first..last) {
            match piece {
                Piece::Held(bytes) if at == from => content = own(bytes, to - from),
                Piece::Held(bytes) => put(&mut content, (from, to), at, &bytes),
                Piece::Stored(_) if at + piece.len() > to => {
                    behind = Some((to, piece.slice(to - at, piece.len())));
                }
                Piece::Stored(_) => {}
            }
        }
        put(&mut content, (from, to), start, data);
        self.0.splice(first..first, behind);
        self.remove(from, to);
        self.insert(from, Piece::Held(content.freeze()));
    }

    /// Where a piece begins that takes in what stands in memory before `start`.
    fn joined_from(&self, start: usize, are_close: impl Fn(usize, usize) -> bool) -> usize {
        let next = self.0.partition_point(|(at, piece)| at + piece.len() <= start);
        match self.0.get(next) {
            Some((at, piece)) if *at < start => {
                if piece.is_held() {
                    *at
                } else {
                    start
                }
            }
            _ => match next.checked_sub(1).map(|before| &self.0[before]) {
                Some((at, Piece::Held(bytes)))
                    if at + bytes.len() == start || are_close(at + bytes.len() - 1, start) =>
                {
                    *at
                }
                _ => start,
            },
        }
    }

    /// Where a piece ends that takes in what stands in memory behind `end`.
    fn joined_to(&self, end: usize, are_close: impl Fn(usize, usize) -> bool) -> usize {
        let next = self.0.partition_point(|(at, _)| *at < end);
        let last = next.checked_sub(1).map(|last| &self.0[last]);
        match last.map(|(at, piece)| (at + piece.len(), piece)) {
            Some((reaches, piece)) if reaches > end => {
                if piece.is_held() {
                    reaches
                } else {
                    end
                }
            }
            _ => match self.0.get(next) {
                Some((at, Piece::Held(bytes))) if *at == end || are_close(end - 1, *at) => at + bytes.len(),
                _ => end,
            },
        }
    }
}

/// Puts `bytes` at `at` into what begins at `from` and is to end at `to`.
fn put(content: &mut BytesMut, (from, to): (usize, usize), at: usize, bytes: &[u8]) {
    content.reserve((to - from).saturating_sub(content.len()));
    fill(content, at - from + bytes.len());
    content[at - from..at - from + bytes.len()].copy_from_slice(bytes);
}

fn fill(content: &mut BytesMut, len: usize) {
    if content.len() < len {
        content.resize(len, 0);
    }
}

/// The content as bytes that nobody else sees, with space for `len`. Copied only if it is shared or too small.
fn own(content: Bytes, len: usize) -> BytesMut {
    let shared = match content.try_into_mut() {
        Ok(owned) if owned.capacity() >= len => return owned,
        Ok(owned) => owned.freeze(),
        Err(shared) => shared,
    };
    // What grows grows further.
    let capacity = if len > shared.len() { (2 * len).min(ZEROS_LEN.max(len)) } else { shared.len() };
    let mut owned = BytesMut::with_capacity(capacity);
    owned.extend_from_slice(&shared);
    owned
}

impl Data {
    pub(super) const fn new(len: usize, pieces: Vec<(usize, Piece)>) -> Self {
        Self { len, pieces: Pieces(pieces) }
    }

    /// How long it is.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What has to be fetched from a disk, in order.
    pub fn stored(&self) -> impl Iterator<Item = &Stored> {
        stored(&self.pieces)
    }

    /// Puts in what was fetched, in the order of [`stored`](Self::stored).
    pub fn fetched(&mut self, fetched: &mut impl Iterator<Item = Bytes>) {
        put_fetched(&mut self.pieces, fetched);
    }

    /// All of it, piece by piece. None if some of it is on a disk.
    pub fn held(&self) -> Option<Vec<Bytes>> {
        held(&self.pieces, self.len)
    }

    /// All of it in one piece. None if some of it is on a disk.
    pub fn to_bytes(&self) -> Option<Bytes> {
        whole(&self.pieces, self.len)
    }
}

fn held(pieces: &Pieces, len: usize) -> Option<Vec<Bytes>> {
    let (mut held, mut at) = (Vec::with_capacity(pieces.0.len()), 0);
    for (start, piece) in pieces.iter() {
        let Piece::Held(bytes) = piece else { return None };
        push_zeros(&mut held, start - at);
        held.push(bytes.clone());
        at = start + bytes.len();
    }
    push_zeros(&mut held, len - at);
    Some(held)
}

/// So many bytes in one piece. None if some of it is on a disk.
pub(super) fn whole(pieces: &Pieces, len: usize) -> Option<Bytes> {
    let mut held = held(pieces, len)?;
    if held.len() <= 1 {
        return Some(held.pop().unwrap_or_default());
    }
    let mut whole = BytesMut::with_capacity(len);
    held.iter().for_each(|bytes| whole.extend_from_slice(bytes));
    Some(whole.freeze())
}

fn push_zeros(held: &mut Vec<Bytes>, mut len: usize) {
    while len > 0 {
        let some = len.min(ZEROS_LEN);
        held.push(Bytes::from_static(&ZEROS[..some]));
        len -= some;
    }
}

pub(super) fn stored(pieces: &Pieces) -> impl Iterator<Item = &Stored> {
    pieces.iter().filter_map(|(_, piece)| match piece {
        Piece::Held(_) => None,
        Piece::Stored(stored) => Some(stored),
    })
}

pub(super) fn put_fetched(pieces: &mut Pieces, fetched: &mut impl Iterator<Item = Bytes>) {
    for (_, piece) in &mut pieces.0 {
        if let Piece::Stored(stored) = piece
            && let Some(bytes) = fetched.next()
        {
            assert_eq!(bytes.len(), stored.len as usize, "what was fetched is what was asked for");
            *piece = Piece::Held(bytes);
        }
    }
}

impl From<Bytes> for Data {
    fn from(bytes: Bytes) -> Self {
        let len = bytes.len();
        let pieces = if len == 0 { Pieces::default() } else { Pieces::one(Piece::Held(bytes)) };
        Self { len, pieces }
    }
}

/// In what pieces it is does not matter, unless some of it is on a disk.
impl PartialEq for Data {
    fn eq(&self, other: &Self) -> bool {
        match (self.to_bytes(), other.to_bytes()) {
            (Some(ours), Some(theirs)) => ours == theirs,
            _ => self.len == other.len && self.pieces == other.pieces,
        }
    }
}

impl Eq for Data {}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Place").field(&self.0.first()).finish()
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(bytes) => write!(f, "Held({} bytes)", bytes.len()),
            Self::Stored(Stored { place, from, len }) => write!(f, "Stored({place:?}, {from}, {len} bytes)"),
        }
    }
}
