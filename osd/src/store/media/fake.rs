//! Files in memory, whose power can be cut after any call.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex};

use base::Random;

use super::{Blob, Media};

/// What a disk writes as a whole.
const SECTOR_BYTES: usize = 512;

/// A directory in memory. Its clones are the same directory.
#[derive(Clone, Default)]
pub(crate) struct FakeMedia(Arc<Mutex<State>>);

#[derive(Clone, Default)]
struct State {
    files: BTreeMap<String, Image>,
    /// The names that are durable.
    names: Vec<String>,
    /// Writing calls so far, and the one before which the next fails.
    calls: usize,
    fault: Option<(usize, io::ErrorKind)>,
    /// How all of them fail, if they do.
    faults: Option<io::ErrorKind>,
    /// Whether a sector that was being written when the power failed may hold anything.
    garbles: bool,
    /// Whether no sync comes to its end.
    holds_syncs: bool,
}

#[derive(Clone, Default)]
struct Image {
    durable: Vec<u8>,
    /// Since then: what was written where.
    writes: Vec<(usize, Vec<u8>)>,
    cached: Vec<u8>,
}

struct FakeBlob {
    state: Arc<Mutex<State>>,
    name: String,
}

impl FakeMedia {
    /// Of a sector that was being written when the power failed there may be neither the old nor the new.
    pub(in crate::store) fn garbling() -> Self {
        let state = State { garbles: true, ..State::default() };
        Self(Arc::new(Mutex::new(state)))
    }

    /// Lets the call fail before which there were `calls` since now.
    pub(crate) fn fail_after(&self, calls: usize, kind: io::ErrorKind) {
        let mut state = self.0.lock().unwrap();
        state.fault = Some((state.calls + calls, kind));
    }

    /// Lets all calls fail from now on.
    pub(crate) fn fail_all(&self, kind: io::ErrorKind) {
        self.0.lock().unwrap().faults = Some(kind);
    }

    /// Whether syncs of files, also those that have begun, wait from now on.
    pub(crate) fn hold_syncs(&self, holds: bool) {
        self.0.lock().unwrap().holds_syncs = holds;
    }

    /// From now on nothing fails.
    pub(in crate::store) fn heal(&self) {
        self.0.lock().unwrap().fault = None;
    }

    /// Changes what a file holds, durably.
    pub(in crate::store) fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut state = self.0.lock().unwrap();
        let image = state.files.get_mut(name).unwrap();
        change(&mut image.cached);
        (image.durable, image.writes) = (image.cached.clone(), Vec::new());
    }

    /// What a start finds after the power has failed: of each sector that was not durable the old or the new, or anything.
    pub(in crate::store) fn after_power_cut(&self, random: &mut Random) -> Self {
        let mut state = self.0.lock().unwrap().clone();
        let names = std::mem::take(&mut state.names);
        state.files.retain(|name, _| names.contains(name));
        let garbles = state.garbles;
        state.files.values_mut().for_each(|image| image.lose_power(random, garbles));
        (state.names, state.calls, state.fault) = (names, 0, None);
        Self(Arc::new(Mutex::new(state)))
    }
}

impl Image {
    fn lose_power(&mut self, random: &mut Random, garbles: bool) {
        let mut kept = std::mem::take(&mut self.durable);
        for (at, bytes) in std::mem::take(&mut self.writes) {
            // A write that is lost may have been longer than the file.
            let mut place = at;
            let mut bytes = bytes.as_slice();
            while !bytes.is_empty() {
                let (piece, rest) = bytes.split_at(bytes.len().min(SECTOR_BYTES - place % SECTOR_BYTES));
                match random.below(8) {
                    0..4 => put(&mut kept, place, piece),
                    4 if garbles => put(&mut kept, place, &vec![0xa5; piece.len()]),
                    _ => {}
                }
                (place, bytes) = (place + piece.len(), rest);
            }
        }
        self.cached.clone_from(&kept);
        self.durable = kept;
    }
}

fn put(into: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if into.len() < at + bytes.len() {
        into.resize(at + bytes.len(), 0);
    }
    into[at..at + bytes.len()].copy_from_slice(bytes);
}

impl State {
    fn next_call(&mut self) -> io::Result<()> {
        let fails = self.fault.filter(|&(at, _)| at == self.calls);
        self.calls += 1;
        let fails = fails.map(|(_, kind)| kind).or(self.faults);
        fails.map_or(Ok(()), |kind| Err(kind.into()))
    }
}

impl Media for FakeMedia {
    fn names(&self) -> io::Result<Vec<String>> {
        Ok(self.0.lock().unwrap().files.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Blob>> {
        let mut state = self.0.lock().unwrap();
        if !state.files.contains_key(name) {
            state.next_call()?;
            state.files.insert(name.to_owned(), Image::default());
        }
        Ok(Arc::new(FakeBlob { state: Arc::clone(&self.0), name: name.to_owned() }))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.next_call()?;
        state.files.remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.next_call()?;
        let image = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.files.insert(to.to_owned(), image);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        state.next_call()?;
        state.names = state.files.keys().cloned().collect();
        Ok(())
    }
}

impl FakeBlob {
    fn with<T>(&self, writes: bool, act: impl FnOnce(&mut Image) -> T) -> io::Result<T> {
        let mut state = self.state.lock().unwrap();
        if writes {
            state.next_call()?;
        }
        Ok(act(state.files.entry(self.name.clone()).or_default()))
    }
}

impl Blob for FakeBlob {
    fn length(&self) -> io::Result<u64> {
        self.with(false, |image| image.cached.len() as u64)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        self.with(false, |image| {
            let bytes = image.cached.get(at..at + into.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            into.copy_from_slice(bytes);
            Ok(())
        })?
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        self.with(true, |image| {
            put(&mut image.cached, at, bytes);
            image.writes.push((at, bytes.to_vec()));
        })
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let length = usize::try_from(bytes).unwrap();
        self.with(true, |image| {
            image.cached.resize(length, 0);
            image.durable.resize(length, 0);
            image.writes.retain(|(at, bytes)| at + bytes.len() <= length);
        })
    }

    fn punch(&self, offset: u64, bytes: u64) -> io::Result<()> {
        let there = self.length()?.saturating_sub(offset).min(bytes);
        self.write_at(offset, &vec![0; usize::try_from(there).unwrap()])
    }

    fn sync(&self) -> io::Result<()> {
        while self.state.lock().unwrap().holds_syncs {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        self.with(true, |image| {
            image.durable.clone_from(&image.cached);
            image.writes.clear();
        })
    }
}
