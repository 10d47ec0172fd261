//! The production store on a simulated disk, in place of the simulator's own: what is on the disk of a machine, how a process opens
//! it, and what a process has open.
//!
//! Everything is the code of the daemon (`osd::store`): the small files, journal, content, index, and in which order they are
//! written. Only its threads are replaced, by events (`driving.rs`), and the files by a [`Medium`].

pub(super) mod driving;
pub(super) mod harming;
pub(super) mod medium;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use base::{ClusterId, NodeId, ObjectId, Random, Span, StoreId};
use bytes::Bytes;
use node::file::Stored;
use node::{KeptFile, ShardConfig, StoreRefusal, Unreadable};
use osd::store::checkpoints::{CheckpointLimits, Checkpoints};
use osd::store::contents::{Contents, Put, PutError, Taken};
use osd::store::files::{self, FilesError, FilesParts};
use osd::store::index::{Engine, IndexError};
use osd::store::journal::{JournalError, JournalLimits, MadeSegment};
use osd::store::writer::LogWriter;
use osd::store::{Host, OpenError, Owner, Store, StoreRules, WriteError, format};

use self::medium::{Failing, Handle, Medium};

/// How the production store is used in a run.
#[derive(Clone, Debug)]
pub struct StorePlan {
    /// The bounds of the journal.
    pub journal: JournalLimits,
    /// A chunk with at most so many bytes stands in the index.
    pub inline_max: usize,
    /// When checkpoints are made.
    pub checkpoints: CheckpointLimits,
    /// How many of the operations of a disk a process does not survive, in thousandths.
    pub deadly: u64,
    /// The rules in force.
    pub rules: StoreRules,
}

impl StorePlan {
    /// What a seed decides. Segments are so short that they are used again and again.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x0d15_c0de);
        let segment_bytes = [16 << 10, 32 << 10, 128 << 10][random.index(3)];
        Self {
            journal: JournalLimits {
                segment_bytes,
                segments_max: 3 + random.index(4),
                reserve_bytes: segment_bytes / 8,
            },
            inline_max: [0, 8, 24, 64, 1_024][random.index(5)],
            checkpoints: CheckpointLimits {
                bytes: [500, 5_000, 50_000][random.index(3)],
                after: Span::from_millis(random.between(50, 5_000)),
            },
            deadly: [0, 2, 10, 30][random.index(4)],
            rules: StoreRules::default(),
        }
    }
}

/// What is on the disk of a daemon's machine, and what is known of it.
#[derive(Clone, Debug)]
pub(super) struct RealDisk {
    pub(super) medium: Medium,
    owner: Owner,
    store: StoreId,
    plan: StorePlan,
    /// How often the power failed, and how often somebody moved the directory.
    boot: u64,
    lock: u64,
    /// Up to which record a process was told that all is written, and durable.
    written: u64,
    durable: u64,
    /// Whether the power has failed since a process opened it.
    is_dark: bool,
    /// Rows of the index were damaged, and no process has seen that.
    pub(super) has_rotten_rows: bool,
    /// What will fail, until it is known that it has.
    pub(super) armed: Option<Failing>,
}

/// What a process has open.
pub(super) struct OpenFiles {
    pub(super) store: Store,
    pub(super) writer: LogWriter,
    pub(super) contents: Arc<Contents>,
    pub(super) checkpoints: Checkpoints,
    /// The place in the journal of the record before the first of this process.
    pub(super) before: u64,
    pub(super) turn_is_due: bool,
    pub(super) has_failed: bool,
    pub(super) syncing: Option<Syncing>,
    pub(super) made: Option<Result<MadeSegment, JournalError>>,
    pub(super) putting: Option<Putting>,
}

/// A sync under way: it is done, or will be.
pub(super) enum Syncing {
    Waiting(osd::store::journal::Sync),
    Done(Result<u64, JournalError>),
}

/// A checkpoint on its way to the disk.
pub(super) enum Putting {
    Waiting(Vec<Taken>, u64),
    Done(Result<Vec<Put>, PutError>),
}

impl fmt::Debug for OpenFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFiles").field("before", &self.before).finish_non_exhaustive()
    }
}

/// What a start finds.
pub(super) struct Found {
    pub(super) open: OpenFiles,
    pub(super) kept: BTreeMap<ObjectId, KeptFile>,
    pub(super) forgot_at: Option<u64>,
    pub(super) damaged: Vec<ObjectId>,
}

/// Why there is none.
pub(super) enum NotOpened {
    /// The process has ended meanwhile, or the disk is full.
    Ended,
    Refused(StoreRefusal),
    /// That must not be.
    Wrong(String),
}

/// What happens to a start.
pub(super) struct Opening {
    pub(super) nonce: u64,
    /// After how many calls the process ends.
    pub(super) calls: Option<usize>,
    pub(super) refuses: bool,
    pub(super) is_full: bool,
}

impl RealDisk {
    /// A disk with an empty store.
    pub(super) fn new(cluster: ClusterId, node: NodeId, store: StoreId, plan: &StorePlan) -> Self {
        let medium = Medium::new(Random::new(base::mix(u64::from(store.0[0]) << 8 | u64::from(store.0[9]))));
        let owner = Owner { cluster, node };
        format(&mut medium.begin(), owner, store).expect("nothing happens to a new disk");
        medium.end();
        Self {
            medium,
            owner,
            store,
            plan: plan.clone(),
            boot: 1,
            lock: u64::from(store.0[1]) << 32,
            written: 0,
            durable: 0,
            is_dark: false,
            has_rotten_rows: false,
            armed: None,
        }
    }

    /// Somebody has moved it.
    pub(super) const fn note_move(&mut self) {
        self.lock += 1;
    }

    /// A start opens it.
    pub(super) fn open(&mut self, config: &ShardConfig, opening: &Opening) -> Result<Found, NotOpened> {
        let handle = self.medium.begin();
        if let Some(calls) = opening.calls {
            self.medium.halt_after(calls);
        }
        self.medium.refuse_reads(opening.refuses);
        self.medium.set_full(opening.is_full);
        let was_failed = self.medium.memo().is_some_and(|memo| memo.is_failed);
        let opened = self.open_on(&handle, config, opening.nonce);
        let has_ended = self.medium.is_halted();
        self.medium.go_on();
        if opened.is_err() || has_ended {
            self.medium.end();
        }
        if has_ended {
            return Err(NotOpened::Ended);
        }
        let mut found = opened.map_err(|error| self.explain(error, opening))?;
        found.open.before = self.check(&found, was_failed)?;
        (self.written, self.durable) = (found.open.before, found.open.before);
        (self.is_dark, self.has_rotten_rows) = (false, false);
        self.medium.forgive();
        Ok(found)
    }

    fn open_on(&self, handle: &Handle, config: &ShardConfig, nonce: u64) -> Result<Found, Failed> {
        let host = Host {
            machine: [1; 16],
            boot: u128::from(self.boot).to_le_bytes(),
            lock: [1, self.lock],
            is_local: true,
        };
        let mut store = Store::start_on(Box::new(handle.clone()), self.owner, host, nonce)?;
        let index = Engine::Redb.open(handle, Path::new(""))?;
        let parts = FilesParts {
            media: Arc::new(handle.clone()),
            index,
            memo: Box::new(handle.clone()),
            limits: self.plan.journal,
            inline_max: self.plan.inline_max,
            rules: self.plan.rules,
            lock: None,
        };
        let mut opened = files::open(&mut store, config, parts)?;
        let kept = std::mem::take(&mut opened.kept);
        let before = opened.log.place(0);
        let (forgot_at, damaged) = (opened.forgot_at, std::mem::take(&mut opened.damaged));
        let open = OpenFiles {
            store,
            checkpoints: Checkpoints::new(self.owner.node, &kept, before, self.plan.checkpoints),
            contents: opened.contents,
            writer: LogWriter::new(opened.log, opened.segments),
            before,
            turn_is_due: false,
            has_failed: false,
            syncing: None,
            made: None,
            putting: None,
        };
        Ok(Found { open, kept, forgot_at, damaged })
    }

    /// Nothing is missing that a process was told of.
    fn check(&self, found: &Found, was_failed: bool) -> Result<u64, NotOpened> {
        // A process may end before it hears that a sync has failed, which may have cost what was written. It has marked nothing then.
        let is_unheard = self.medium.has_refused() && !was_failed && found.forgot_at.is_some();
        let is_forgotten = self.is_dark || is_unheard;
        let (end, said) = (found.open.before, if is_forgotten { self.durable } else { self.written });
        if end < said {
            let what = format!("opens with {end} records, and {said} were there");
            return Err(NotOpened::Wrong(what));
        }
        Ok(end)
    }

    fn explain(&self, error: Failed, opening: &Opening) -> NotOpened {
        match error {
            Failed::Files(FilesError::Refused(refusal)) => NotOpened::Refused(refusal),
            Failed::Open(OpenError::Write(WriteError::Full { .. }))
            | Failed::Files(FilesError::Note(WriteError::Full { .. }) | FilesError::Put(PutError::Full))
            | Failed::Index(IndexError::Full) => NotOpened::Ended,
            Failed::Files(FilesError::Journal(error)) if error.is_full() => NotOpened::Ended,
            _ if opening.refuses || self.medium.has_refused() => NotOpened::Refused(StoreRefusal::Unreadable),
            error => NotOpened::Wrong(format!("does not open: {error:?}")),
        }
    }

    /// The power has failed. Returns how many sectors were lost.
    pub(super) fn lose_power(&mut self) -> u64 {
        if std::mem::replace(&mut self.is_dark, true) {
            return 0;
        }
        self.boot += 1;
        self.medium.lose_power()
    }

    /// Somebody has put it away, with care.
    pub(super) fn settle(&self) {
        if !self.is_dark {
            self.medium.settle();
        }
    }

    /// Whether it has done anything that the store may not survive, or will.
    pub(super) fn is_sick(&self) -> bool {
        let is_failed = self.medium.memo().is_some_and(|memo| memo.is_failed);
        let will_fail = self.armed.is_some() || self.medium.failing().is_some();
        is_failed
            || will_fail
            || self.medium.has_refused()
            || self.medium.has_rotten_journal()
            || self.has_rotten_rows
    }

    /// Whether something is written and not durable.
    pub(super) const fn owes_sync(&self) -> bool {
        self.durable < self.written
    }

    /// All records of the present process up to this one are written, or durable.
    pub(super) fn note_progress(&mut self, place: u64, is_durable: bool) {
        self.written = self.written.max(place);
        if is_durable {
            self.durable = self.durable.max(place);
        }
    }

    /// Whether content that was read is what should be there, and whether what could not be read was damaged. What is wrong if not.
    pub(super) fn check_read(
        &self,
        stored: &[Stored],
        read: &Result<Vec<Bytes>, Unreadable>,
    ) -> Result<(), String> {
        match read {
            Ok(read) => {
                let wrong = stored.iter().zip(read).find(|(stored, bytes)| {
                    let from = place_of(stored.place.words()).0 + stored.from as usize;
                    self.medium.intended(from, from + stored.len as usize) != ***bytes
                });
                wrong.map_or(Ok(()), |(stored, _)| {
                    Err(format!("gives out damaged content of {:?}", stored.place))
                })
            }
            Err(Unreadable { place }) => {
                let (from, length) = place_of(place.words());
                let is_damaged =
                    self.medium.is_rotten("content", from, from + length) || self.medium.has_refused();
                if is_damaged {
                    Ok(())
                } else {
                    Err(format!("cannot read {place:?}, to which nothing happened"))
                }
            }
        }
    }
}

/// Where content begins, and how long it is.
fn place_of(words: &[u64]) -> (usize, usize) {
    let word = |at: usize| words.get(at).and_then(|word| usize::try_from(*word).ok()).unwrap_or_default();
    (word(0), word(1))
}

#[derive(Debug)]
enum Failed {
    Open(OpenError),
    Index(IndexError),
    Files(FilesError),
}

impl From<OpenError> for Failed {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<IndexError> for Failed {
    fn from(error: IndexError) -> Self {
        Self::Index(error)
    }
}

impl From<FilesError> for Failed {
    fn from(error: FilesError) -> Self {
        Self::Files(error)
    }
}
