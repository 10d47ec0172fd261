//! What is kept of files beside the journal: the index says what there is, and where; the content stands in extents.
//!
//! A checkpoint goes here in this order: content, then the sync of it, then the index, all of it or nothing. Only then may
//! the records go that it was made of, and the content that it replaces. A crash in between leaves content to which nothing refers,
//! which is free space for the next start.
//!
//! Content that is as long as a chunk goes there at once, when it comes to the journal, whose record then only says where it is; and a
//! checkpoint does so, too. So long writes are written once. Such content has *landed*. Until a checkpoint has the record it is known
//! by where it stands in memory.
//!
//! Each row of the index has a checksum of its own, over its key, too. A row that cannot be read costs its chunk, or its
//! file, and other members give that back.

mod packed;
mod rows;
pub(super) mod survey;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::ObjectId;
use bytes::{Bytes, BytesMut};
use namespace::{Key as NameKey, Part as NamePart};
use node::file::{BLOCK_BYTES, Chunk, File, KeptName, Key as Part, Piece, Place, Position, Stored};
use node::{FileChanges, Unreadable};
use replication::Checkpoint;

use self::packed::{PART_BYTES, Packed, pack};
use self::rows::{HeadRow, Key, PackedHead};
use super::bugs::{Bug, Rules};
use super::disk::Lock;
use super::extents::{BadPlace, Extents, ReadError};
use super::index::{Change, Index, IndexError};
use super::media::{Blob, Media, Reads};
use wire::KeptChunk;

/// The file with all content.
pub(super) const CONTENT_FILE: &str = "content";
/// A chunk that is shorter stands in the index.
pub const INLINE_MAX: usize = 1_024;

/// What is kept of all files.
pub struct Contents {
    index: Box<dyn Index>,
    extents: Extents,
    applied: AtomicU64,
    inline_max: usize,
    rules: Rules,
    /// By where it stands in memory.
    landed: Mutex<BTreeMap<usize, Landed>>,
    /// Goes last: an index that is closed is still written to.
    _lock: Option<Lock>,
}

/// Content in memory that is on the disk, too.
struct Landed {
    content: Bytes,
    place: Place,
    /// The last record of the journal that refers to it.
    last: u64,
}

/// What a start finds.
#[derive(Default)]
pub struct FoundFiles {
    /// Records of the journal up to this one are in what was found.
    pub applied: u64,
    /// What is kept of each file.
    pub files: BTreeMap<ObjectId, FoundFile>,
}

impl FoundFiles {
    /// All parts of files that cannot be read.
    pub fn unreadable(&self) -> Vec<(ObjectId, Part)> {
        let of_file = |(object, file): (&ObjectId, &FoundFile)| {
            let object = *object;
            file.unreadable.clone().into_iter().map(move |part| (object, part))
        };
        self.files.iter().flat_map(of_file).collect()
    }
}

/// What a start finds of a file.
#[derive(Default)]
pub struct FoundFile {
    /// The file, and up to which record of the journal that goes. None if it cannot be read.
    pub kept: Option<(Checkpoint<File>, u64)>,
    /// Parts that cannot be read.
    pub unreadable: Vec<Part>,
}

/// A checkpoint of a file: up to which record of the journal it goes, and what has changed.
pub struct Taken {
    /// The file.
    pub object: ObjectId,
    /// The record.
    pub applied: u64,
    /// The changes.
    pub changes: FileChanges,
}

/// A checkpoint that is durable: its chunks as they are kept now.
pub struct Put {
    /// The file.
    pub object: ObjectId,
    /// Each chunk and the entry that changed it last.
    pub chunks: Vec<(u64, Position, Chunk)>,
}

/// Why nothing was kept of a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// No space; nothing has changed.
    #[error("the disk is full: no checkpoint is kept until there is space")]
    Full,
    /// Content that a chunk has on disk already, and that has to be moved, cannot be read.
    #[error("content of a file cannot be read")]
    Unreadable {
        /// The file.
        object: ObjectId,
        /// Which content.
        what: Unreadable,
    },
    /// The disk failed, and what is on it is unknown.
    #[error("content could not be written, so the store is closed; check the disk, then restart the daemon")]
    Io(#[from] io::Error),
    /// The index failed.
    #[error(transparent)]
    Index(IndexError),
}

/// Why what landed cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// What the journal says cannot be.
    #[error("the journal is damaged: {0}; add the node under a new id with an empty store")]
    Place(#[from] BadPlace),
    /// It was there a moment ago.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It cannot be synced.
    #[error("content could not be synced; check the disk, then restart the daemon")]
    Io(#[from] io::Error),
}

/// Why a store's contents do not open.
#[derive(Debug, thiserror::Error)]
pub enum ContentsError {
    /// The index does not open.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// What the index says cannot be.
    #[error("the index is damaged: {0}; add the node under a new id with an empty store")]
    Place(#[from] BadPlace),
    /// The mark of what is in the index cannot be read.
    #[error(
        "the index is damaged: nobody knows how much of the journal it has; add the node under a new id with an empty store"
    )]
    Mark,
    /// The file of contents does not open.
    #[error("the file with all content cannot be opened; check the disk")]
    Io(#[from] io::Error),
}

impl Contents {
    /// Those that an index knows of.
    pub fn open(media: &dyn Media, index: Box<dyn Index>) -> Result<(Self, FoundFiles), ContentsError> {
        let mut loading = Loading::default();
        let all = (Key::FIRST, Key::END);
        let mut is_sound = true;
        index.scan(all.0, all.1, &mut |key, row| {
            is_sound &= loading.take(key, row);
            if is_sound { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        if !is_sound {
            return Err(ContentsError::Mark);
        }
        let blob = media.open(CONTENT_FILE)?;
        media.sync()?;
        let extents = Extents::open(blob, loading.places())?;
        let found = loading.finish(&extents);
        let applied = AtomicU64::new(found.applied);
        let landed = Mutex::default();
        let (inline_max, rules) = (INLINE_MAX, Rules::default());
        Ok((Self { index, extents, applied, inline_max, rules, landed, _lock: None }, found))
    }

    /// The same, with chunks of at most so many bytes in the index, under these rules.
    #[must_use]
    pub fn with(self, inline_max: usize, rules: Rules, lock: Option<Lock>) -> Self {
        Self { inline_max, rules, extents: self.extents.with(rules), _lock: lock, ..self }
    }

    /// A record, as the journal is to have it: what is long in it lands. It is durable together with
    /// [`landed_blob`](Self::landed_blob). If there is no space nothing has changed.
    pub fn land(&self, number: u64, record: &[Bytes], reads: Reads) -> io::Result<Vec<Bytes>> {
        let mut landed = self.landed();
        let mut parts: Vec<Bytes> = packed::parts(record).collect();
        // The same may come twice.
        let mut seen = BTreeSet::new();
        parts.retain(|part| known_mut(&mut landed, part).is_none() && seen.insert(part.as_ptr().addr()));
        let places = if parts.is_empty() { Vec::new() } else { self.extents.write_parts(&parts, reads)? };
        for (content, place) in parts.into_iter().zip(places) {
            landed.insert(content.as_ptr().addr(), Landed { content, place, last: number });
        }
        let place_of = |part: &Bytes| {
            let known = known_mut(&mut landed, part)?;
            known.last = number;
            Some(known.place.clone())
        };
        Ok(pack(record, place_of))
    }

    /// How much of a record lands.
    pub fn landing_bytes(record: &[Bytes]) -> usize {
        record.iter().map(|piece| piece.len() - piece.len() % PART_BYTES).sum()
    }

    /// Whether all that a record refers to is there.
    pub fn has_all(&self, record: &Bytes) -> io::Result<bool> {
        let Some(packed) = Packed::decode(record.clone()) else { return Ok(false) };
        for place in packed.places() {
            match self.extents.read(&whole(place)) {
                Ok(_) => {}
                Err(ReadError::Io(error)) if error.kind() != io::ErrorKind::UnexpectedEof => {
                    return Err(error);
                }
                Err(ReadError::Io(_) | ReadError::Damaged { .. }) => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Takes over a record of the journal that no checkpoint has, as it was handed over. None if it cannot be. To be followed by
    /// [`end_claims`](Self::end_claims), before anything is written.
    pub fn claim(&self, number: u64, record: &Bytes) -> Result<Option<Bytes>, BadPlace> {
        let Some(packed) = Packed::decode(record.clone()) else { return Ok(None) };
        let Some(unpacked) = packed.unpack(|place| self.extents.read(&whole(place)).ok()) else {
            return Ok(None);
        };
        let mut landed = self.landed();
        for (place, content) in packed.parts_in(&unpacked) {
            let place = self.extents.claim(place)?;
            landed.insert(content.as_ptr().addr(), Landed { content, place, last: number });
        }
        Ok(Some(unpacked))
    }

    /// All that the journal refers to was claimed. What of it no sync has confirmed, behind this record, is written anew.
    pub fn end_claims(&self, confirmed: u64) -> Result<(), ClaimError> {
        self.extents.find_free()?;
        for landed in self.landed().values().filter(|landed| landed.last > confirmed) {
            self.extents.write_again(&landed.place)?;
        }
        Ok(self.extents.sync()?)
    }

    /// What has to be synced so that all that landed is durable.
    pub fn landed_blob(&self) -> Arc<dyn Blob> {
        self.extents.blob()
    }

    /// Keeps checkpoints, all or none of them. With them all records up to `applied` are here.
    pub fn put(&self, taken: Vec<Taken>, applied: u64) -> Result<Vec<Put>, PutError> {
        let mut work = Work::new(self);
        let put: Result<Vec<Put>, PutError> = taken.into_iter().map(|taken| work.put_file(taken)).collect();
        work.changes.push(Change::Put(Key::Mark.to_bytes(), rows::mark(self.said(applied))));
        let Work { changes, rows, written, coming, .. } = work;
        if self.rules.breaks(Bug::ExtentFreedEarly) {
            let before = rows.iter().flat_map(|row| &row.before);
            before.for_each(|place| self.extents.free_at_once(place));
        }
        let done = put.and_then(|put| {
            if !self.rules.breaks(Bug::IndexBeforeContent) {
                self.extents.sync()?;
            }
            self.index.commit(&changes).map_err(PutError::from)?;
            Ok(put)
        });
        match &done {
            Ok(_) => {
                self.applied.store(applied, Ordering::Relaxed);
                rows.iter().for_each(|row| row.after.iter().for_each(|place| self.extents.hold(place)));
                rows.iter().for_each(|row| row.before.iter().for_each(|place| self.extents.release(place)));
                // As the rows hold it now.
                written.iter().for_each(|place| self.extents.release(place));
                self.landed().retain(|_, landed| {
                    // What has not taken effect yet is wanted by a chunk at the next one.
                    let is_coming = coming.contains(&landed.content.as_ptr().addr());
                    let is_needed = landed.last > applied || is_coming;
                    if !is_needed {
                        self.extents.release(&landed.place);
                    }
                    is_needed
                });
            }
            // Nothing that is durable refers to it. If the index failed nobody knows, and the store is closed.
            Err(PutError::Full | PutError::Unreadable { .. }) => {
                written.iter().for_each(|place| self.extents.release(place));
            }
            Err(PutError::Io(_) | PutError::Index(_)) => {}
        }
        self.extents.free_retired();
        done
    }

    /// These rows could not be read by this start, and are not read by a later one, whatever the disk gives back by then: content to
    /// which they refer is not known to be in use, and what they say was never brought up to date. Before anything is written.
    pub fn strike_out(&self, rows: &[(ObjectId, Part)]) -> Result<(), IndexError> {
        let key_of = |(object, part): &(ObjectId, Part)| match part {
            Part::Chunk(number) => Some(Key::Chunk(*object, *number)),
            Part::Tree(name) => Some(Key::Name(*object, name.clone())),
            // They stand in the head.
            Part::Attributes => None,
        };
        let keys = rows.iter().filter_map(key_of);
        let changes: Vec<Change> =
            keys.map(|key| Change::Put(key.to_bytes(), rows::STRUCK_OUT.to_vec())).collect();
        if changes.is_empty() || self.rules.breaks(Bug::UnreadableComesBack) {
            Ok(())
        } else {
            self.index.commit(&changes)
        }
    }

    /// What is said of how far it goes, which is how far it goes.
    fn said(&self, applied: u64) -> u64 {
        if self.rules.breaks(Bug::AppliedTwice) { self.applied() } else { applied }
    }

    /// All records of the journal up to this one are here.
    pub fn applied(&self) -> u64 {
        self.applied.load(Ordering::Relaxed)
    }

    /// Reads content, and checks it.
    pub fn read(&self, stored: &[Stored]) -> Result<Vec<Bytes>, Unreadable> {
        stored
            .iter()
            .map(|stored| self.read_one(stored).map_err(|_| Unreadable { place: stored.place.clone() }))
            .collect()
    }

    /// The same, and says what is wrong.
    pub fn read_one(&self, stored: &Stored) -> Result<Bytes, ReadError> {
        self.extents.read(stored)
    }

    /// How much space content takes.
    pub fn used_bytes(&self) -> u64 {
        self.extents.used_bytes()
    }

    /// How much content could be written without more space on the disk.
    pub fn free_bytes(&self) -> io::Result<u64> {
        self.extents.free_bytes()
    }

    /// Gives that to the disk.
    pub fn give_to_disk(&self) -> io::Result<()> {
        self.extents.give_to_disk()
    }

    fn landed(&self) -> MutexGuard<'_, BTreeMap<usize, Landed>> {
        self.landed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is known of content that has landed.
fn known_mut<'a>(landed: &'a mut BTreeMap<usize, Landed>, content: &Bytes) -> Option<&'a mut Landed> {
    landed.get_mut(&content.as_ptr().addr()).filter(|known| known.content.len() == content.len())
}

/// All of a part.
fn whole(place: &Place) -> Stored {
    Stored { place: place.clone(), from: 0, len: u32::try_from(PART_BYTES).expect("a part is short") }
}

/// Checkpoints that are being put.
struct Work<'a> {
    contents: &'a Contents,
    changes: Vec<Change>,
    rows: Vec<Refers>,
    /// What was written for the new ones.
    written: Vec<Place>,
    /// Where content stands in memory that heads refer to.
    coming: BTreeSet<usize>,
}

/// What a durable row refers to so far, and what it will.
struct Refers {
    before: Vec<Place>,
    after: Vec<Place>,
}

impl<'a> Work<'a> {
    const fn new(contents: &'a Contents) -> Self {
        Self { contents, changes: Vec::new(), rows: Vec::new(), written: Vec::new(), coming: BTreeSet::new() }
    }

    fn put_file(&mut self, Taken { object, applied, changes }: Taken) -> Result<Put, PutError> {
        let FileChanges { head, is_new, chunks, names, .. } = changes;
        if is_new {
            self.drop_rows(object)?;
        }
        let Some(head) = head else {
            return Ok(Put { object, chunks: Vec::new() });
        };
        let (head, file) = head.into_parts();
        let row = HeadRow { applied: self.contents.said(applied), head, attributes: file.attributes() };
        self.put_head(object, &row, is_new)?;
        self.put_names(object, names);
        let mut put = Vec::new();
        for (number, chunk) in chunks {
            let key = Key::Chunk(object, number);
            let before = if is_new { None } else { self.contents.index.get(&key.to_bytes())? };
            let before =
                before.and_then(|row| rows::decode_chunk(&key, &row)).map(|kept| places(&kept.chunk));
            let before = before.unwrap_or_default();
            let Some((at, chunk)) = chunk else {
                self.rows.push(Refers { before, after: Vec::new() });
                self.changes.push(Change::Remove(key.to_bytes()));
                continue;
            };
            let chunk = self.put_chunk(object, chunk)?;
            self.rows.push(Refers { before, after: places(&chunk) });
            let row = rows::encode_chunk(&key, &KeptChunk { at, chunk: chunk.clone() });
            self.changes.push(Change::Put(key.to_bytes(), row));
            put.push((number, at, chunk));
        }
        Ok(Put { object, chunks: put })
    }

    fn put_names(&mut self, object: ObjectId, names: Vec<(NameKey, Option<(Position, NamePart)>)>) {
        let stays = self.contents.rules.breaks(Bug::NamesStay);
        for (name, part) in names.into_iter().filter(|(_, part)| part.is_some() || !stays) {
            let key = Key::Name(object, name);
            self.changes.push(match part {
                Some((at, part)) => Change::Put(key.to_bytes(), rows::encode_name(&key, at, &part)),
                None => Change::Remove(key.to_bytes()),
            });
        }
    }

    fn put_head(&mut self, object: ObjectId, row: &HeadRow, is_new: bool) -> Result<(), PutError> {
        let key = Key::Head(object);
        let before = if is_new { None } else { self.contents.index.get(&key.to_bytes())? };
        let before = before.and_then(|row| rows::head_places(object, &row)).unwrap_or_default();
        let mut after = Vec::new();
        let mut landed = self.contents.landed();
        let row = row.encode(object, |content| {
            let place = known_mut(&mut landed, content)?.place.clone();
            self.coming.insert(content.as_ptr().addr());
            after.push(place.clone());
            Some(place)
        });
        drop(landed);
        self.rows.push(Refers { before, after });
        self.changes.push(Change::Put(key.to_bytes(), row));
        Ok(())
    }

    /// The chunk with all its content in one place, unless it is there already or is very short.
    fn put_chunk(&mut self, object: ObjectId, chunk: Chunk) -> Result<Chunk, PutError> {
        if !chunk.is_held() {
            return Ok(chunk);
        }
        let Some((first, piece)) = chunk.pieces().next() else { return Ok(chunk) };
        let landed = match piece {
            Piece::Held(content) => {
                known_mut(&mut self.contents.landed(), content).map(|known| known.place.clone())
            }
            Piece::Stored(_) => None,
        };
        // It takes up all of the chunk.
        if let Some(place) = landed {
            return Ok(with_pieces(&chunk, [(first, Piece::Stored(whole(&place)))]));
        }
        let mut joined = Joined::default();
        for (start, piece) in chunk.pieces() {
            match piece {
                Piece::Held(bytes) => joined.push(&chunk, start, bytes),
                Piece::Stored(stored) => {
                    let unreadable = || Unreadable { place: stored.place.clone() };
                    let read = self.contents.read_one(stored);
                    let bytes = read.map_err(|_| PutError::Unreadable { object, what: unreadable() })?;
                    joined.push(&chunk, start, &bytes);
                }
            }
        }
        let Joined { content, spans } = joined;
        let content = content.freeze();
        if content.len() <= self.contents.inline_max {
            let piece =
                |span: &Range<u32>| Piece::Held(content.slice(span.start as usize..span.end as usize));
            return Ok(with_pieces(&chunk, spans.iter().map(|(start, span)| (*start, piece(span)))));
        }
        let place = self.contents.extents.write(&content).map_err(not_written)?;
        self.written.push(place.clone());
        let piece =
            |span: Range<u32>| Stored { place: place.clone(), from: span.start, len: span.end - span.start };
        Ok(with_pieces(&chunk, spans.into_iter().map(|(start, span)| (start, Piece::Stored(piece(span))))))
    }

    fn drop_rows(&mut self, object: ObjectId) -> Result<(), PutError> {
        let mut keys = Vec::new();
        let [chunks, names] = Key::of_file(object);
        let rows = &mut self.rows;
        self.contents.index.scan(&chunks.0, &chunks.1, &mut |key, row| {
            let chunk = Key::parse(key).and_then(|key| rows::decode_chunk(&key, row));
            let before = chunk.map(|kept| places(&kept.chunk)).unwrap_or_default();
            rows.push(Refers { before, after: Vec::new() });
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        })?;
        self.contents.index.scan(&names.0, &names.1, &mut |key, _| {
            keys.push(key.to_vec());
            ControlFlow::Continue(())
        })?;
        let head = Key::Head(object).to_bytes();
        let before = self.contents.index.get(&head)?.and_then(|row| rows::head_places(object, &row));
        self.rows.push(Refers { before: before.unwrap_or_default(), after: Vec::new() });
        self.changes.extend(keys.into_iter().chain([head]).map(Change::Remove));
        Ok(())
    }
}

/// Content goes into space to which nothing refers, so a lack of space has changed nothing.
fn not_written(error: io::Error) -> PutError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => PutError::Full,
        _ => PutError::Io(error),
    }
}

/// What a chunk refers to, each place once.
fn places(chunk: &Chunk) -> Vec<Place> {
    let mut places: Vec<Place> = Vec::new();
    for stored in chunk.stored() {
        if !places.contains(&stored.place) {
            places.push(stored.place.clone());
        }
    }
    places
}

/// The content of a chunk in one place, without the blocks that nobody wrote to.
#[derive(Default)]
struct Joined {
    content: BytesMut,
    /// What it is made of: where that begins in the chunk, and where it stands in `content`.
    spans: Vec<(u32, Range<u32>)>,
}

impl Joined {
    /// Takes the next piece. Zeros before it in blocks that were written to are content, so that a chunk has few spans.
    fn push(&mut self, chunk: &Chunk, start: u32, bytes: &[u8]) {
        let to = |content: &BytesMut| u32::try_from(content.len()).expect("a chunk is short");
        let is_written = |gap: &Range<u32>| {
            let (first, end) = (u64::from(gap.start) / BLOCK_BYTES, u64::from(gap.end).div_ceil(BLOCK_BYTES));
            (first..end).all(|block| chunk.blocks() >> block & 1 == 1)
        };
        let gap = self.spans.last().map(|(first, span)| first + (span.end - span.start)..start);
        match gap.filter(is_written) {
            Some(gap) => self.content.resize(self.content.len() + gap.len(), 0),
            None => self.spans.push((start, to(&self.content)..to(&self.content))),
        }
        self.content.extend_from_slice(bytes);
        if let Some((_, span)) = self.spans.last_mut() {
            span.end = to(&self.content);
        }
    }
}

/// The same chunk with its content in these pieces.
fn with_pieces(chunk: &Chunk, pieces: impl IntoIterator<Item = (u32, Piece)>) -> Chunk {
    Chunk::new(chunk.blocks(), pieces.into_iter().collect()).expect("they are where its pieces were")
}

impl From<IndexError> for PutError {
    fn from(error: IndexError) -> Self {
        match error {
            IndexError::Full => Self::Full,
            error => Self::Index(error),
        }
    }
}

/// A chunk by its number, and the entry that changed it last.
type KeptAt = (u64, Position, Chunk);

/// What was read of a file beside its head.
#[derive(Default)]
struct Parts {
    chunks: Vec<KeptAt>,
    names: Vec<KeptName>,
    unreadable: Vec<Part>,
}

/// Rows that are being read at a start.
#[derive(Default)]
struct Loading {
    applied: u64,
    heads: BTreeMap<ObjectId, Option<PackedHead>>,
    parts: BTreeMap<ObjectId, Parts>,
    /// Those that are the same are one, with the number of rows that refer to it.
    places: BTreeMap<Vec<u64>, (Place, usize)>,
}

impl Loading {
    /// Takes a row. False if nothing can be made of any.
    fn take(&mut self, key: &[u8], row: &[u8]) -> bool {
        match Key::parse(key) {
            Some(Key::Mark) => match rows::read_mark(row) {
                Some(applied) => self.applied = applied,
                None => return false,
            },
            Some(Key::Head(object)) => {
                let head = PackedHead::decode(object, row);
                head.iter().flat_map(PackedHead::places).for_each(|place| _ = self.shared(place));
                self.heads.insert(object, head);
            }
            Some(ref key @ Key::Chunk(object, number)) => {
                let kept = rows::decode_chunk(key, row);
                let kept = kept.map(|kept| (number, kept.at, self.with_shared(&kept.chunk)));
                let parts = self.parts.entry(object).or_default();
                match kept {
                    Some(kept) => parts.chunks.push(kept),
                    None => parts.unreadable.push(Part::Chunk(number)),
                }
            }
            Some(Key::Name(object, name)) => {
                let parts = self.parts.entry(object).or_default();
                match rows::decode_name(object, &name, row) {
                    Some((at, part)) => parts.names.push((name, at, part)),
                    None => parts.unreadable.push(Part::Tree(name)),
                }
            }
            None => return false,
        }
        true
    }

    /// One more row refers to this place.
    fn shared(&mut self, place: &Place) -> Place {
        let known = self.places.entry(place.words().to_vec()).or_insert_with(|| (place.clone(), 0));
        known.1 += 1;
        known.0.clone()
    }

    /// The chunk with places that are shared.
    fn with_shared(&mut self, chunk: &Chunk) -> Chunk {
        let shared: Vec<Place> = places(chunk).iter().map(|place| self.shared(place)).collect();
        let mut pieces = Vec::new();
        for (start, piece) in chunk.pieces() {
            let piece = match piece {
                Piece::Held(_) => piece.clone(),
                Piece::Stored(Stored { place, from, len }) => {
                    let known = shared.iter().find(|known| *known == place);
                    let place = known.expect("all were shared").clone();
                    Piece::Stored(Stored { place, from: *from, len: *len })
                }
            };
            pieces.push((start, piece));
        }
        Chunk::new(chunk.blocks(), pieces).expect("they are where they were")
    }

    /// All places, as often as rows refer to them.
    fn places(&self) -> impl Iterator<Item = Place> {
        self.places.values().flat_map(|(place, count)| std::iter::repeat_n(place.clone(), *count))
    }

    fn finish(mut self, extents: &Extents) -> FoundFiles {
        let mut found = FoundFiles { applied: self.applied, files: BTreeMap::new() };
        let read = |place: &Place| extents.read(&whole(place)).ok();
        for (object, head) in self.heads {
            let Parts { chunks, names, unreadable } = self.parts.remove(&object).unwrap_or_default();
            let head = head.and_then(|head| head.unpack(read));
            let kept = head.map(|HeadRow { applied, head, attributes }| {
                (Checkpoint::from_parts(head, File::kept(attributes, chunks, names)), applied)
            });
            found.files.insert(object, FoundFile { kept, unreadable });
        }
        // Parts without a head are of a file of which that row is gone.
        self.parts.into_keys().for_each(|object| _ = found.files.insert(object, FoundFile::default()));
        found
    }
}
