//! A simulated disk for the production store: files whose writes are synced or not, and what the disk does to them.
//!
//! - What was written is read back by every process. What was synced survives the power; of the rest each sector is there or not,
//!   whatever the order in which it was written. Of the journal and of content it may also hold anything.
//! - A process may end in the middle of any call: of a write the beginning is there then.
//! - A write may fail, and so may a sync. Of what a sync that failed was about some is on no disk whatever is synced later, and can be
//!   read as long as there is power, most of it.
//! - A full disk lets no file grow.
//! - What is on the disk may change by itself. What should be there is known, so that nobody can be given anything else.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::Random;
use node::Memo;
use osd::store::Disk;
use osd::store::media::{Blob, Media};
use osd::store::memo::MemoSlot;

/// What a disk writes as a whole.
const SECTOR_BYTES: usize = 512;
/// The file whose bytes are known as they should be.
const CONTENT_FILE: &str = "content";
/// The file of which a sector holds the old or the new.
const INDEX_FILE: &str = "index.redb";

/// A disk, and the memory beside it that outlives processes.
#[derive(Debug)]
pub(in crate::cluster) struct Medium(Arc<Mutex<State>>);

/// The disk as one process sees it. Once that has ended it does nothing more.
#[derive(Clone)]
pub(in crate::cluster) struct Handle {
    state: Arc<Mutex<State>>,
    life: u64,
}

#[derive(Clone, Debug)]
struct State {
    files: BTreeMap<String, Image>,
    /// The names that are durable.
    names: BTreeSet<String>,
    /// The small files, and what they were when names were synced last.
    tables: BTreeMap<String, Vec<u8>>,
    durable_tables: BTreeMap<String, Vec<u8>>,
    memo: Option<Memo>,
    life: u64,
    /// After how many calls the process ends, and whether it has.
    calls_left: Option<usize>,
    is_halted: bool,
    is_full: bool,
    refuses_reads: bool,
    fails: Option<Failing>,
    /// Whether it has refused something since somebody opened it.
    has_refused: bool,
    /// What is to be read in `content`.
    intended: Vec<u8>,
    /// Bytes that have changed by themselves.
    rotten: BTreeSet<(String, usize)>,
    random: Random,
}

/// What fails next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::cluster) enum Failing {
    Write,
    Sync,
}

#[derive(Clone, Debug, Default)]
struct Image {
    durable: Vec<u8>,
    /// Since then: what was written where.
    writes: Vec<(usize, Vec<u8>)>,
    cached: Vec<u8>,
}

struct OneBlob {
    handle: Handle,
    name: String,
}

impl Clone for Medium {
    /// A copy of all that is on it.
    fn clone(&self) -> Self {
        Self(Arc::new(Mutex::new(self.state().clone())))
    }
}

impl Medium {
    pub(in crate::cluster) fn new(random: Random) -> Self {
        let state = State {
            files: BTreeMap::new(),
            names: BTreeSet::new(),
            tables: BTreeMap::new(),
            durable_tables: BTreeMap::new(),
            memo: Some(Memo::default()),
            life: 0,
            calls_left: None,
            is_halted: false,
            is_full: false,
            refuses_reads: false,
            fails: None,
            has_refused: false,
            intended: Vec::new(),
            rotten: BTreeSet::new(),
            random,
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process begins.
    pub(in crate::cluster) fn begin(&self) -> Handle {
        let mut state = self.state();
        state.life += 1;
        (state.calls_left, state.is_halted) = (None, false);
        Handle { state: Arc::clone(&self.0), life: state.life }
    }

    /// A process ends: nothing of it does anything any more.
    pub(in crate::cluster) fn end(&self) {
        let mut state = self.state();
        state.life += 1;
        (state.calls_left, state.is_halted, state.refuses_reads) = (None, false, false);
    }

    /// The process ends in the call before which there are so many more.
    pub(in crate::cluster) fn halt_after(&self, calls: usize) {
        self.state().calls_left = Some(calls);
    }

    /// It does not, if it has not yet.
    pub(in crate::cluster) fn go_on(&self) {
        self.state().calls_left = None;
    }

    /// Whether it has.
    pub(in crate::cluster) fn is_halted(&self) -> bool {
        self.state().is_halted
    }

    pub(in crate::cluster) fn set_full(&self, is_full: bool) {
        self.state().is_full = is_full;
    }

    pub(in crate::cluster) fn refuse_reads(&self, refuses: bool) {
        self.state().refuses_reads = refuses;
    }

    /// The next write fails, or the next sync, or none.
    pub(in crate::cluster) fn fail_next(&self, fails: Option<Failing>) {
        self.state().fails = fails;
    }

    /// What is still to fail.
    pub(in crate::cluster) fn failing(&self) -> Option<Failing> {
        self.state().fails
    }

    /// Whether it has refused something since [`forgive`](Self::forgive).
    pub(in crate::cluster) fn has_refused(&self) -> bool {
        self.state().has_refused
    }

    /// Somebody has opened what is there, and counts on nothing else.
    pub(in crate::cluster) fn forgive(&self) {
        self.state().has_refused = false;
    }

    /// The power fails. Returns how many sectors were lost, or hold anything.
    pub(in crate::cluster) fn lose_power(&self) -> u64 {
        let mut state = self.state();
        let state = &mut *state;
        state.memo = None;
        if state.random.chance(1, 2) {
            state.tables.clone_from(&state.durable_tables);
        } else {
            state.durable_tables.clone_from(&state.tables);
        }
        let names = &state.names;
        state.files.retain(|name, _| names.contains(name));
        let mut lost = 0;
        // Often nothing of what was not synced is there, or all.
        let mood = state.random.below(4);
        for (name, image) in &mut state.files {
            lost += image.lose_power(mood, name != INDEX_FILE, &mut state.random);
        }
        lost
    }

    /// Nothing of what was not synced is there any more.
    pub(in crate::cluster) fn lose_all(&self) {
        let mut state = self.state();
        let state = &mut *state;
        state.files.values_mut().for_each(|image| _ = image.lose_power(0, false, &mut state.random));
    }

    /// Somebody has put the disk away, with care.
    pub(in crate::cluster) fn settle(&self) {
        let mut state = self.state();
        let state = &mut *state;
        state.durable_tables.clone_from(&state.tables);
        state.names = state.files.keys().cloned().collect();
        state.files.values_mut().for_each(Image::sync);
    }

    pub(in crate::cluster) fn memo(&self) -> Option<Memo> {
        self.state().memo
    }

    /// A durable byte of a file changes by itself.
    pub(in crate::cluster) fn rot(&self, name: &str, at: usize) -> bool {
        let mut state = self.state();
        let by = 1 << state.random.below(8);
        let Some(image) = state.files.get_mut(name) else { return false };
        let is_written = image.writes.iter().any(|(from, bytes)| (*from..from + bytes.len()).contains(&at));
        if is_written || at >= image.durable.len() || at >= image.cached.len() {
            return false;
        }
        image.durable[at] ^= by;
        image.cached[at] = image.durable[at];
        state.rotten.insert((name.to_owned(), at));
        true
    }

    /// Whether something has rotted that nobody has overwritten, in a stretch of a file.
    pub(in crate::cluster) fn is_rotten(&self, name: &str, from: usize, to: usize) -> bool {
        let state = self.state();
        state.rotten.range((name.to_owned(), from)..(name.to_owned(), to)).next().is_some()
    }

    /// Whether anything of the journal has.
    pub(in crate::cluster) fn has_rotten_journal(&self) -> bool {
        self.state().rotten.iter().any(|(name, _)| name.starts_with("journal-"))
    }

    /// What is to be read in `content`.
    pub(in crate::cluster) fn intended(&self, from: usize, to: usize) -> Vec<u8> {
        self.state().intended.get(from..to).map(<[u8]>::to_vec).unwrap_or_default()
    }

    /// The names of all files and how long they are.
    pub(in crate::cluster) fn lengths(&self) -> Vec<(String, usize)> {
        self.state().files.iter().map(|(name, image)| (name.clone(), image.durable.len())).collect()
    }
}

impl Image {
    fn sync(&mut self) {
        for (at, bytes) in std::mem::take(&mut self.writes) {
            put(&mut self.durable, at, &bytes);
        }
    }

    fn lose_power(&mut self, mood: u64, garbles: bool, random: &mut Random) -> u64 {
        let mut lost = 0;
        for (at, bytes) in std::mem::take(&mut self.writes) {
            let mut place = at;
            let mut bytes = bytes.as_slice();
            while !bytes.is_empty() {
                let (piece, rest) = bytes.split_at(bytes.len().min(SECTOR_BYTES - place % SECTOR_BYTES));
                let fate = match mood {
                    0 => 7,
                    1 => 0,
                    _ => random.below(8),
                };
                match fate {
                    0..4 => put(&mut self.durable, place, piece),
                    4 if garbles => {
                        let garbage: Vec<u8> = piece.iter().map(|byte| byte ^ 0xa5).collect();
                        put(&mut self.durable, place, &garbage);
                        lost += 1;
                    }
                    _ => lost += 1,
                }
                (place, bytes) = (place + piece.len(), rest);
            }
        }
        self.cached.clone_from(&self.durable);
        lost
    }

    /// A sync fails: some of what it was about is on no disk.
    fn give_up(&mut self, random: &mut Random) {
        let mut kept = Vec::new();
        let mut cached = self.durable.clone();
        cached.resize(self.cached.len().max(cached.len()), 0);
        for (at, bytes) in std::mem::take(&mut self.writes) {
            let is_given_up = random.chance(2, 3);
            if !is_given_up || random.chance(3, 4) {
                put(&mut cached, at, &bytes);
            }
            if !is_given_up {
                kept.push((at, bytes));
            }
        }
        (self.writes, self.cached) = (kept, cached);
    }
}

fn put(into: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if into.len() < at + bytes.len() {
        into.resize(at + bytes.len(), 0);
    }
    into[at..at + bytes.len()].copy_from_slice(bytes);
}

impl Handle {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, for a call that reads.
    fn reading(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        if state.life != self.life || state.is_halted {
            return Err(gone());
        }
        if state.refuses_reads {
            state.has_refused = true;
            return Err(io::Error::other("the disk refuses to read"));
        }
        Ok(state)
    }

    /// The state, for a call that changes something. The second is whether the process ends in it.
    fn changing(&self) -> io::Result<(MutexGuard<'_, State>, bool)> {
        let mut state = self.reading()?;
        let ends = state.calls_left == Some(0);
        state.calls_left = state.calls_left.map(|calls| calls.saturating_sub(1));
        state.is_halted |= ends;
        Ok((state, ends))
    }
}

impl State {
    /// Whether this fails now.
    fn takes_failure(&mut self, what: Failing) -> bool {
        let fails = self.fails == Some(what);
        if fails {
            (self.fails, self.has_refused) = (None, true);
        }
        fails
    }
}

/// Some bytes of a small file, which has them.
fn place_in<'t>(
    tables: &'t mut BTreeMap<String, Vec<u8>>,
    file: &str,
    place: Range<usize>,
) -> io::Result<&'t mut [u8]> {
    let held = tables.get_mut(file).ok_or(io::ErrorKind::NotFound)?;
    Ok(held.get_mut(place).ok_or(io::ErrorKind::UnexpectedEof)?)
}

fn gone() -> io::Error {
    io::Error::other("the process has ended")
}

impl Media for Handle {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.reading()?.files.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Blob>> {
        if !self.reading()?.files.contains_key(name) {
            let (mut state, ends) = self.changing()?;
            if ends {
                return Err(gone());
            }
            state.files.insert(name.to_owned(), Image::default());
        }
        Ok(Arc::new(OneBlob { handle: self.clone(), name: name.to_owned() }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let (mut state, ends) = self.changing()?;
        if ends {
            return Err(gone());
        }
        state.files.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (mut state, ends) = self.changing()?;
        if ends {
            return Err(gone());
        }
        let image = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.files.insert(to.to_owned(), image);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let (mut state, ends) = self.changing()?;
        if ends {
            return Err(gone());
        }
        state.names = state.files.keys().cloned().collect();
        Ok(())
    }
}

impl Blob for OneBlob {
    fn length(&self) -> io::Result<u64> {
        let state = self.handle.reading()?;
        Ok(state.files.get(&self.name).map_or(0, |image| image.cached.len() as u64))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let state = self.handle.reading()?;
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        let bytes = state.files.get(&self.name).and_then(|image| image.cached.get(at..at + into.len()));
        into.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).map_err(io::Error::other)?;
        let (mut state, ends) = self.handle.changing()?;
        let state = &mut *state;
        let Some(image) = state.files.get_mut(&self.name) else { return Err(io::ErrorKind::NotFound.into()) };
        if state.is_full && at + bytes.len() > image.cached.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let fails = state.fails == Some(Failing::Write);
        let length = if ends || fails { state.random.index(bytes.len() + 1) } else { bytes.len() };
        put(&mut image.cached, at, &bytes[..length]);
        image.writes.push((at, bytes[..length].to_vec()));
        let written: Vec<_> =
            state.rotten.range((self.name.clone(), at)..(self.name.clone(), at + length)).cloned().collect();
        written.iter().for_each(|place| _ = state.rotten.remove(place));
        if self.name == CONTENT_FILE {
            put(&mut state.intended, at, &bytes[..length]);
        }
        if state.takes_failure(Failing::Write) {
            return Err(io::Error::other("the disk refuses to write"));
        }
        if ends { Err(gone()) } else { Ok(()) }
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let length = usize::try_from(bytes).map_err(io::Error::other)?;
        let (mut state, ends) = self.handle.changing()?;
        if ends {
            return Err(gone());
        }
        let is_full = state.is_full;
        let Some(image) = state.files.get_mut(&self.name) else { return Err(io::ErrorKind::NotFound.into()) };
        if is_full && length > image.cached.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        image.cached.resize(length, 0);
        image.durable.resize(length, 0);
        image.writes.retain(|(at, bytes)| at + bytes.len() <= length);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let (mut state, ends) = self.handle.changing()?;
        let state = &mut *state;
        if ends {
            return Err(gone());
        }
        let Some(image) = state.files.get_mut(&self.name) else { return Err(io::ErrorKind::NotFound.into()) };
        if state.fails == Some(Failing::Sync) && !image.writes.is_empty() {
            image.give_up(&mut state.random);
            state.takes_failure(Failing::Sync);
            return Err(io::Error::other("the disk fails to sync"));
        }
        image.sync();
        Ok(())
    }
}

impl Disk for Handle {
    fn read(&mut self, file: &str, _bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
        Ok(self.reading()?.tables.get(file).cloned())
    }

    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let (mut state, ends) = self.changing()?;
        if state.is_full {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let fails = state.takes_failure(Failing::Write);
        let length = if ends || fails { state.random.index(bytes.len() + 1) } else { bytes.len() };
        state.tables.insert(file.to_owned(), bytes[..length].to_vec());
        if fails {
            return Err(io::Error::other("the disk refuses to write"));
        }
        if ends { Err(gone()) } else { Ok(()) }
    }

    fn overwrite(&mut self, file: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut state, ends) = self.changing()?;
        let fails = state.takes_failure(Failing::Write);
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        // The process may end before it has written, and before it has synced; then the power leaves anything there.
        let (is_written, is_durable) = match state.random.below(3) {
            0 if ends || fails => (false, false),
            1 if ends || fails => (true, false),
            _ => (true, true),
        };
        let garbage = u8::try_from(state.random.below(256)).map_err(io::Error::other)?;
        let State { tables, durable_tables, .. } = &mut *state;
        let place = place_in(tables, file, start..start + bytes.len())?;
        if is_written {
            place.copy_from_slice(bytes);
        }
        let place = place_in(durable_tables, file, start..start + bytes.len())?;
        if is_durable {
            place.copy_from_slice(bytes);
        } else if is_written {
            place.fill(garbage);
        }
        if fails {
            return Err(io::Error::other("the disk refuses to write"));
        }
        if ends { Err(gone()) } else { Ok(()) }
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let (mut state, ends) = self.changing()?;
        if ends {
            return Err(gone());
        }
        let Some(bytes) = state.tables.remove(from) else { return Err(io::ErrorKind::NotFound.into()) };
        state.tables.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let (mut state, ends) = self.changing()?;
        if ends {
            return Err(gone());
        }
        let tables = state.tables.clone();
        state.durable_tables = tables;
        Ok(())
    }
}

impl MemoSlot for Handle {
    fn read(&mut self) -> io::Result<Option<Memo>> {
        Ok(self.reading()?.memo)
    }

    fn write(&mut self, memo: &Memo) -> io::Result<()> {
        let (mut state, ends) = self.changing()?;
        if ends {
            return Err(gone());
        }
        state.memo = Some(*memo);
        Ok(())
    }
}
