//! All that a daemon keeps of files: a journal of what happened, what checkpoints made of it, and a memo.
//!
//! What a start makes of what it finds is decided in `node`; here it is done, step by step. Records of the journal have the numbers that
//! the shard counts its writes by, behind those of the starts before.

#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use base::{NodeId, ObjectId};
use bytes::Bytes;
use node::file::File;
use node::{FileChanges, KeptFile, Memo, OpenStep, ShardConfig, StoreFound, StoreRefusal};
use replication::{Entry, Record};
use wire::{FileRecord, decode_stored, encode_stored};

use super::bugs::{Bug, Rules};
use super::contents::{ClaimError, Contents, ContentsError, FoundFile, FoundFiles, PutError, Taken};
use super::index::Index;
use super::journal::{
    AppendError, Journal, JournalError, JournalLimits, JournalReadError, MadeSegment, Search, Segments, Sync,
    Urgency,
};
use super::media::{Media, Reads};
use super::memo::MemoSlot;
use super::{Lock, Start, Store, WriteError};

/// So much of what landed waits in a cache at most before it is written out.
const CACHED_BYTES_MAX: usize = 16 << 20;

/// What a store of files is opened from.
pub struct FilesParts {
    /// The directory of journal and content.
    pub media: Arc<dyn Media>,
    /// The index.
    pub index: Box<dyn Index>,
    /// The memo.
    pub memo: Box<dyn MemoSlot>,
    /// The bounds of the journal.
    pub limits: JournalLimits,
    /// A chunk with at most so many bytes stands in the index.
    pub inline_max: usize,
    /// The rules in force.
    pub rules: Rules,
    /// The lock of the data directory, which lasts as long as somebody may write to the files in it.
    pub lock: Option<Lock>,
}

/// An open store of files, and what was found in it.
pub struct OpenedFiles {
    /// What is written to.
    pub log: FileLog,
    /// What makes space for it.
    pub segments: Segments,
    /// What checkpoints go to.
    pub contents: Arc<Contents>,
    /// What is kept of each file.
    pub kept: BTreeMap<ObjectId, KeptFile>,
    /// In epochs up to this one the node may have lost what it had not synced.
    pub forgot_at: Option<u64>,
    /// Files of which something cannot be read.
    pub damaged: Vec<ObjectId>,
}

/// Why a store of files does not open.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// It must not.
    #[error(transparent)]
    Refused(#[from] StoreRefusal),
    /// What checkpoints made does not open.
    #[error(transparent)]
    Contents(#[from] ContentsError),
    /// The journal cannot be read.
    #[error(transparent)]
    Read(#[from] JournalReadError),
    /// There is none where there was one.
    #[error(
        "the journal is missing, and this store has been used; put its files back if they were moved, else take the node out of the \
         cluster map and add it under a new id with an empty data directory"
    )]
    JournalMissing,
    /// The journal cannot be written.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A record is whole, and makes no sense.
    #[error("record {record} of the journal makes no sense ({why}); was it written by a newer program?")]
    Record {
        /// Which one.
        record: u64,
        /// What is wrong.
        why: wire::DecodeError,
    },
    /// What the journal refers to cannot be taken over.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// Something about the store cannot be noted.
    #[error(transparent)]
    Note(#[from] WriteError),
    /// The memo cannot be had.
    #[error("the memo of the store cannot be read or written")]
    Memo(#[source] io::Error),
    /// That a file is damaged cannot be noted.
    #[error(transparent)]
    Put(#[from] PutError),
}

/// The journal of files, and the memo about it.
pub struct FileLog {
    journal: Journal,
    memo: Box<dyn MemoSlot>,
    noted: Memo,
    contents: Arc<Contents>,
    /// How much has landed since something was written.
    landed_bytes: usize,
    /// Whether something has landed since the last sync.
    has_landed: bool,
    /// How much of that is in a cache that has to be written out.
    cached_bytes: usize,
    me: NodeId,
    /// The record before the first of this process.
    before: u64,
    rules: Rules,
}

/// Opens what a daemon keeps of files, as the start that `store` is open for.
pub fn open(store: &mut Store, config: &ShardConfig, parts: FilesParts) -> Result<OpenedFiles, FilesError> {
    let FilesParts { media, index, mut memo, limits, inline_max, rules, lock } = parts;
    let (contents, found) = Contents::open(&*media, index)?;
    let contents = contents.with(inline_max, rules, lock);
    let search = Search::of(&*media, (store.id(), found.applied), |record| contents.has_all(record))?;
    // Each start begins with a batch, before it serves.
    if search.is_empty() && store.has_served() {
        return Err(FilesError::JournalMissing);
    }
    // A store that was just made has forgotten nothing.
    let fresh = (store.start() == Start::Fresh).then(Memo::default);
    let state = StoreFound {
        memo: memo.read().map_err(FilesError::Memo)?.or(fresh),
        is_failed: store.has_failed(),
        journal: search.found(),
        ceiling: store.epoch_ceiling(),
        forgot_at: store.forgot_at(),
    };
    let opening = state.open(config.rules())?;
    let whose = (config, store.owner().node, store.epoch_ceiling());
    let unreadable = found.unreadable();
    let (kept, damaged) = read_files(found, (&search, &contents), whose)?;
    let mut search = Some(search);
    let (mut journal, mut noted) = (None, Memo::default());
    for step in opening.steps {
        match step {
            OpenStep::Forget(forgot_at) => store.note_forgotten(forgot_at)?,
            // The next one continues the journal there.
            OpenStep::EndWith(_) => {}
            OpenStep::RewriteBehind(confirmed) => {
                contents.end_claims(confirmed)?;
                let start = (store.start_id().incarnation.0, confirmed);
                journal = search.take().map(|search| search.open(&*media, start, limits)).transpose()?;
            }
            OpenStep::Memo(memo_then) => {
                noted = memo_then;
                memo.write(&noted).map_err(FilesError::Memo)?;
            }
        }
    }
    let journal = journal.expect("it is one of the steps").with(rules);
    let (contents, before) = (Arc::new(contents), journal.last());
    let mut log = FileLog {
        journal,
        memo,
        noted,
        contents: Arc::clone(&contents),
        landed_bytes: 0,
        has_landed: false,
        cached_bytes: 0,
        me: store.owner().node,
        before,
        rules,
    };
    log.note()?;
    contents.strike_out(&unreadable).map_err(PutError::from)?;
    let last = log.journal.last();
    let broken = damaged.iter().filter_map(|object| {
        let head = kept.get(object)?.checkpoint.clone();
        let changes =
            FileChanges { head, is_new: true, chunks: Vec::new(), names: Vec::new(), last_write: 0 };
        Some(Taken { object: *object, applied: last, changes })
    });
    let broken: Vec<Taken> = broken.collect();
    if !broken.is_empty() {
        contents.put(broken, contents.applied())?;
    }
    let segments = Segments::new(media, limits);
    Ok(OpenedFiles { log, segments, contents, kept, forgot_at: opening.forgot_at, damaged })
}

type Kept = (BTreeMap<ObjectId, KeptFile>, Vec<ObjectId>);

/// What is kept of each file: what a checkpoint has, and the records behind that.
fn read_files(
    found: FoundFiles,
    (search, contents): (&Search, &Contents),
    (config, node, ceiling): (&ShardConfig, NodeId, u64),
) -> Result<Kept, FilesError> {
    let (mut kept, mut damaged) = (BTreeMap::new(), Vec::new());
    let mut applied = BTreeMap::new();
    for (object, FoundFile { kept: file, unreadable }) in found.files {
        let file = if let Some((checkpoint, upto)) = file {
            applied.insert(object, upto);
            let file = KeptFile { checkpoint: Some(checkpoint), records: Vec::new() };
            if unreadable.is_empty() { file } else { file.lacking(unreadable) }
        } else {
            damaged.push(object);
            applied.insert(object, u64::MAX);
            KeptFile::damaged(config, node, object, ceiling)
        };
        kept.insert(object, file);
    }
    let mut wrong = None;
    search.read(|number, bytes| {
        if wrong.is_none() {
            let record = read_record(contents, number, &bytes);
            match record {
                Ok(FileRecord { object, record })
                    if applied.get(&object).is_none_or(|upto| number > *upto) =>
                {
                    let none = || KeptFile { checkpoint: None, records: Vec::new() };
                    kept.entry(object).or_insert_with(none).records.push(record);
                }
                Ok(_) => {}
                Err(error) => wrong = Some(error),
            }
        }
    })?;
    wrong.map_or(Ok((kept, damaged)), Err)
}

/// A record of the journal, with what it refers to.
fn read_record(contents: &Contents, number: u64, bytes: &Bytes) -> Result<FileRecord, FilesError> {
    let claimed = contents.claim(number, bytes).map_err(ClaimError::Place)?;
    let why = |why| FilesError::Record { record: number, why };
    let bytes = claimed.ok_or(why(wire::DecodeError::Truncated))?;
    decode_stored(bytes).map_err(why)
}

impl FileLog {
    /// Takes the record that the shard counts by this number. It is in the next [`write`](Self::write). If there is no space
    /// nothing has changed.
    pub fn append(&mut self, number: u64, record: &FileRecord) -> Result<(), JournalError> {
        // What lets others go on may use the last of the space.
        let urgency = match record.record {
            Record::Appended { .. } | Record::Placed(_) => Urgency::Ordinary,
            _ => Urgency::Urgent,
        };
        let pieces = encode_stored(record);
        let landing = Contents::landing_bytes(&pieces);
        let reads = self.reads(&record.record);
        let landed = self.contents.land(self.before + number, &pieces, reads);
        let pieces = landed
            .map_err(JournalError::Io)
            .map_err(|error| if error.is_full() { AppendError::Full.into() } else { error })?;
        self.landed_bytes += landing;
        self.has_landed |= landing > 0;
        if reads == Reads::Soon {
            self.cached_bytes += landing;
        }
        let pieces: Vec<&[u8]> = pieces.iter().map(|piece| &**piece).collect();
        let place = self.journal.append(&pieces, urgency)?;
        assert_eq!(place, self.before + number, "records are handed over in order");
        Ok(())
    }

    /// Files are read at the primary, and others are asked for what they keep only in need.
    fn reads(&self, record: &Record<File>) -> Reads {
        let is_ours = |entry: &Entry<_>| entry.at.epoch.node == self.me;
        match record {
            Record::Appended { entries, .. } if entries.iter().all(is_ours) => Reads::Soon,
            _ => Reads::Seldom,
        }
    }

    /// Whether so much waits in a cache that whoever wants a sync later would wait for long.
    pub const fn wants_sync(&self) -> bool {
        self.cached_bytes >= CACHED_BYTES_MAX
    }

    /// How much was handed over since something was written.
    pub fn waiting_bytes(&self) -> usize {
        self.journal.waiting_bytes() + self.landed_bytes
    }

    /// Whether anything waits to be written.
    pub fn is_waiting(&self) -> bool {
        self.journal.waiting_bytes() > 0
    }

    /// All records of this process up to this one outlive it.
    pub const fn written(&self) -> u64 {
        self.journal.written() - self.before
    }

    /// Writes what was handed over. All records of this process up to the one returned outlive it then.
    pub fn write(&mut self) -> Result<u64, JournalError> {
        let before = self.journal.written();
        self.landed_bytes = 0;
        if self.journal.write()? > before {
            self.note()?;
        }
        Ok(self.written())
    }

    /// What to do so that all that is written is durable.
    pub fn sync(&mut self) -> Sync {
        let landed = std::mem::take(&mut self.has_landed).then(|| self.contents.landed_blob());
        self.cached_bytes = 0;
        self.journal.sync(landed)
    }

    /// A sync has succeeded. All records of this process up to the one returned are durable.
    pub fn handle_synced(&mut self, upto: u64) -> Result<u64, JournalError> {
        self.journal.handle_synced(upto);
        self.note()?;
        if self.rules.breaks(Bug::SegmentFreedEarly) {
            self.journal.free(upto);
        }
        Ok(self.durable())
    }

    /// All records of this process up to this one are durable.
    pub const fn durable(&self) -> u64 {
        self.journal.durable().saturating_sub(self.before)
    }

    /// The place in the journal of a record of this process.
    pub const fn place(&self, number: u64) -> u64 {
        self.before + number
    }

    /// Something has failed: the store is marked, and takes no more.
    pub fn fail(&mut self) {
        self.journal.close();
        self.noted.is_failed = true;
        // If even that fails, the start that follows finds records without a sync, and writes them anew.
        let _ = self.memo.write(&self.noted);
    }

    /// Checkpoints have all records up to this place.
    pub fn free(&mut self, place: u64) {
        self.journal.free(place);
    }

    /// How much space is in use, and how much there may be.
    pub fn used_bytes(&self) -> (u64, u64) {
        (self.journal.used_bytes(), self.journal.bytes_max())
    }

    /// The segment to be made, if there is to be one more; if the journal `has_to_grow` there may be more than usual.
    pub fn wanted(&self, has_to_grow: bool) -> Option<u32> {
        self.journal.wanted(has_to_grow)
    }

    /// It was made.
    pub fn handle_made(&mut self, made: MadeSegment) {
        self.journal.handle_made(made);
    }

    fn note(&mut self) -> Result<(), JournalError> {
        let memo = Memo { written: self.journal.written(), durable: self.journal.durable(), ..self.noted };
        if memo != self.noted {
            self.memo.write(&memo)?;
            self.noted = memo;
        }
        Ok(())
    }
}
