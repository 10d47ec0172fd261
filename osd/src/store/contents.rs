//! What is kept of files beside the journal: the index says what there is, and where; the content stands in extents.
//!
//! A checkpoint goes here in this order: content, then the sync of it, then the index, all of it or nothing. Only then may
//! the records go that it was made of, and the content that it replaces. A crash in between leaves content to which nothing refers,
//! which is free space for the next start.
//!
//! Each row of the index has a checksum of its own, over its key, too. A row that cannot be read costs its chunk, or its
//! file, and other members give that back.

mod rows;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use base::ObjectId;
use bytes::{Bytes, BytesMut};
use node::file::{Chunk, File, Piece, Place, Position, Stored};
use node::{FileChanges, Unreadable};
use replication::Checkpoint;

use self::rows::{HeadRow, Key};
use super::bugs::{Bug, Rules};
use super::extents::{BadPlace, Extents, ReadError};
use super::index::{Change, Index, IndexError};
use super::media::Media;
use wire::KeptChunk;

/// The file with all content.
const CONTENT_FILE: &str = "content";
/// A chunk that is shorter stands in the index.
pub const INLINE_MAX: usize = 1_024;

/// What is kept of all files.
pub struct Contents {
    index: Box<dyn Index>,
    extents: Extents,
    applied: AtomicU64,
    inline_max: usize,
    rules: Rules,
}

/// What a start finds.
#[derive(Default)]
pub struct FoundFiles {
    /// Records of the journal up to this one are in what was found.
    pub applied: u64,
    /// What is kept of each file.
    pub files: BTreeMap<ObjectId, FoundFile>,
}

/// What a start finds of a file.
#[derive(Default)]
pub struct FoundFile {
    /// The file, and up to which record of the journal that goes. None if it cannot be read.
    pub kept: Option<(Checkpoint<File>, u64)>,
    /// Chunks that cannot be read.
    pub unreadable: Vec<u64>,
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
        let (found, places) = loading.finish();
        let applied = AtomicU64::new(found.applied);
        let extents = Extents::open(blob, places)?;
        Ok((Self { index, extents, applied, inline_max: INLINE_MAX, rules: Rules::default() }, found))
    }

    /// The same, with chunks of at most so many bytes in the index, under these rules.
    #[must_use]
    pub fn with(self, inline_max: usize, rules: Rules) -> Self {
        Self { inline_max, rules, extents: self.extents.with(rules), ..self }
    }

    /// Keeps checkpoints, all or none of them. With them all records up to `applied` are here.
    pub fn put(&self, taken: Vec<Taken>, applied: u64) -> Result<Vec<Put>, PutError> {
        let mut work =
            Work { contents: self, changes: Vec::new(), replaced: Vec::new(), written: Vec::new() };
        let put: Result<Vec<Put>, PutError> = taken.into_iter().map(|taken| work.put_file(taken)).collect();
        work.changes.push(Change::Put(Key::Mark.to_bytes(), rows::mark(self.said(applied))));
        let Work { changes, replaced, written, .. } = work;
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
                replaced.into_iter().for_each(|place| self.extents.retire(place));
            }
            // Nothing that is durable refers to it. If the index failed nobody knows, and the store is closed.
            Err(PutError::Full | PutError::Unreadable { .. }) => {
                written.into_iter().for_each(|place| self.extents.retire(place));
            }
            Err(PutError::Io(_) | PutError::Index(_)) => {}
        }
        self.extents.free_retired();
        done
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
}

/// Checkpoints that are being put.
struct Work<'a> {
    contents: &'a Contents,
    changes: Vec<Change>,
    /// What durable rows refer to so far, and will not.
    replaced: Vec<Place>,
    /// What was written for the new ones.
    written: Vec<Place>,
}

impl Work<'_> {
    fn put_file(&mut self, Taken { object, applied, changes }: Taken) -> Result<Put, PutError> {
        let FileChanges { head, is_new, chunks, .. } = changes;
        if is_new {
            self.drop_rows(object)?;
        }
        let Some(head) = head else {
            return Ok(Put { object, chunks: Vec::new() });
        };
        let (head, file) = head.into_parts();
        let row = HeadRow { applied: self.contents.said(applied), head, attributes: file.attributes() };
        self.changes.push(Change::Put(Key::Head(object).to_bytes(), row.encode(object)));
        let mut put = Vec::new();
        for (number, chunk) in chunks {
            let key = Key::Chunk(object, number);
            let before = if is_new { None } else { self.contents.index.get(&key.to_bytes())? };
            let before = before.and_then(|row| rows::decode_chunk(key, &row)).map(|kept| kept.chunk);
            let Some((at, chunk)) = chunk else {
                self.replace(before.as_ref(), None);
                self.changes.push(Change::Remove(key.to_bytes()));
                continue;
            };
            let chunk = self.put_chunk(object, chunk)?;
            self.replace(before.as_ref(), Some(&chunk));
            let row = rows::encode_chunk(key, &KeptChunk { at, chunk: chunk.clone() });
            self.changes.push(Change::Put(key.to_bytes(), row));
            put.push((number, at, chunk));
        }
        Ok(Put { object, chunks: put })
    }

    /// The chunk with all its content in one place, unless it is there already or is very short.
    fn put_chunk(&mut self, object: ObjectId, chunk: Chunk) -> Result<Chunk, PutError> {
        if !chunk.is_held() {
            return Ok(chunk);
        }
        let Some((first, _)) = chunk.pieces().next() else { return Ok(chunk) };
        let mut content = BytesMut::new();
        for (start, piece) in chunk.pieces() {
            content.resize((start - first) as usize, 0);
            match piece {
                Piece::Held(bytes) => content.extend_from_slice(bytes),
                Piece::Stored(stored) => {
                    let unreadable = || Unreadable { place: stored.place.clone() };
                    let read = self.contents.read_one(stored);
                    let bytes = read.map_err(|_| PutError::Unreadable { object, what: unreadable() })?;
                    content.extend_from_slice(&bytes);
                }
            }
        }
        let piece = if content.len() <= self.contents.inline_max {
            Piece::Held(content.freeze())
        } else {
            let place = self.contents.extents.write(&content).map_err(not_written)?;
            self.written.push(place.clone());
            let len = u32::try_from(content.len()).expect("a chunk is short");
            Piece::Stored(Stored { place, from: 0, len })
        };
        Ok(Chunk::new(chunk.blocks(), vec![(first, piece)]).expect("it is where the pieces were"))
    }

    /// Notes what the new row does not refer to any more.
    fn replace(&mut self, before: Option<&Chunk>, after: Option<&Chunk>) {
        let places = |chunk: Option<&Chunk>| -> BTreeSet<Vec<u64>> {
            chunk.into_iter().flat_map(Chunk::stored).map(|stored| stored.place.words().to_vec()).collect()
        };
        let kept = places(after);
        for words in places(before).difference(&kept) {
            let place = self.contents.extents.place(words);
            if self.contents.rules.breaks(Bug::ExtentFreedEarly) {
                self.contents.extents.free_at_once(words);
            }
            self.replaced.extend(place);
        }
    }

    fn drop_rows(&mut self, object: ObjectId) -> Result<(), PutError> {
        let mut rows = Vec::new();
        let (from, to) = Key::of_file(object);
        self.contents.index.scan(&from, &to, &mut |key, row| {
            let chunk = Key::parse(key).and_then(|key| rows::decode_chunk(key, row));
            rows.push((key.to_vec(), chunk.map(|kept| kept.chunk)));
            ControlFlow::Continue(())
        })?;
        for (key, chunk) in rows {
            self.replace(chunk.as_ref(), None);
            self.changes.push(Change::Remove(key));
        }
        self.changes.push(Change::Remove(Key::Head(object).to_bytes()));
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

/// Rows that are being read at a start.
#[derive(Default)]
struct Loading {
    applied: u64,
    heads: BTreeMap<ObjectId, Option<HeadRow>>,
    chunks: BTreeMap<ObjectId, (Vec<KeptAt>, Vec<u64>)>,
    /// Those that are the same are one.
    places: BTreeMap<Vec<u64>, Place>,
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
                self.heads.insert(object, HeadRow::decode(object, row));
            }
            Some(key @ Key::Chunk(object, number)) => {
                let kept =
                    rows::decode_chunk(key, row).map(|kept| (number, kept.at, self.shared(&kept.chunk)));
                let (chunks, unreadable) = self.chunks.entry(object).or_default();
                match kept {
                    Some(kept) => chunks.push(kept),
                    None => unreadable.push(number),
                }
            }
            None => return false,
        }
        true
    }

    /// The chunk with places that are shared.
    fn shared(&mut self, chunk: &Chunk) -> Chunk {
        let mut pieces = Vec::new();
        for (start, piece) in chunk.pieces() {
            let piece = match piece {
                Piece::Held(_) => piece.clone(),
                Piece::Stored(Stored { place, from, len }) => {
                    let place =
                        self.places.entry(place.words().to_vec()).or_insert_with(|| place.clone()).clone();
                    Piece::Stored(Stored { place, from: *from, len: *len })
                }
            };
            pieces.push((start, piece));
        }
        Chunk::new(chunk.blocks(), pieces).expect("they are where they were")
    }

    fn finish(mut self) -> (FoundFiles, Vec<Place>) {
        let mut found = FoundFiles { applied: self.applied, files: BTreeMap::new() };
        for (object, head) in self.heads {
            let (chunks, unreadable) = self.chunks.remove(&object).unwrap_or_default();
            let kept = head.map(|HeadRow { applied, head, attributes }| {
                (Checkpoint::from_parts(head, File::kept(attributes, chunks)), applied)
            });
            found.files.insert(object, FoundFile { kept, unreadable });
        }
        // Chunks without a head are of a file of which that row is gone.
        self.chunks.into_keys().for_each(|object| _ = found.files.insert(object, FoundFile::default()));
        (found, self.places.into_values().collect())
    }
}
