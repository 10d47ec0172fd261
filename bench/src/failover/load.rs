//! Programs that use files and know what they were promised: each byte that was acknowledged, and how long each call took.
//!
//! What stands in a file follows from the file's name and the offset, so whoever reads can tell whether it is right. The
//! [`Ledger`] has what was acknowledged. A [`Gauge`] has how long calls take, those under way included.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use base::{Random, mix};

use super::seat::{For, Opened, Seat};

/// What is written and read at once.
pub(crate) const BLOCK: usize = 4_096;
/// A writer goes on in another file after so many bytes.
const FILE_BYTES_MAX: u64 = 8 << 20;
/// What is appended at once.
const RECORD: usize = 512;
/// After an error: a mount that is gone says so at once, and again and again.
const ERROR_PAUSE: Duration = Duration::from_millis(20);
/// So many errors are kept in their words.
const ERRORS_MAX: usize = 20;
/// The latest calls that say how long calls take.
const RECENT: usize = 512;
/// A small file has at most so many bytes.
const SMALL_BYTES_MAX: u64 = 16 << 10;

/// What stands at `offset`, which is a multiple of 8, of the file of this name.
pub(crate) fn content(name: &str, offset: u64, length: usize) -> Vec<u8> {
    let seed = name.bytes().fold(0, |seed, byte| mix(seed ^ u64::from(byte)));
    let words = (offset / 8..).map(|word| mix(seed ^ mix(word)).to_le_bytes());
    words.flatten().take(length).collect()
}

/// How long the calls of one kind take.
#[derive(Default)]
pub(crate) struct Gauge(Mutex<Calls>);

#[derive(Default)]
struct Calls {
    /// Those under way.
    begun: BTreeMap<u64, Instant>,
    next: u64,
    worst: Duration,
    count: u64,
    recent: Vec<Duration>,
}

impl Gauge {
    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls something.
    pub(crate) fn time<T>(&self, call: impl FnOnce() -> T) -> T {
        let begun = Instant::now();
        let key = {
            let mut calls = self.lock();
            calls.next += 1;
            let key = calls.next;
            calls.begun.insert(key, begun);
            key
        };
        let result = call();
        let took = begun.elapsed();
        let mut calls = self.lock();
        calls.begun.remove(&key);
        calls.worst = calls.worst.max(took);
        calls.count += 1;
        let place = usize::try_from(calls.count).unwrap_or(0) % RECENT;
        if calls.recent.len() < RECENT {
            calls.recent.push(took);
        } else {
            calls.recent[place] = took;
        }
        result
    }

    /// Only what ends from now on counts.
    pub(crate) fn reset(&self) {
        self.lock().worst = Duration::ZERO;
    }

    /// The longest call since then, and how long the one goes on that began before `before` and has no end yet.
    pub(crate) fn worst(&self, before: Instant) -> (Duration, Option<Duration>) {
        let calls = self.lock();
        let under_way = calls.begun.values().filter(|&&begun| begun < before).map(Instant::elapsed).max();
        (calls.worst.max(under_way.unwrap_or_default()), under_way)
    }

    pub(crate) fn count(&self) -> u64 {
        self.lock().count
    }

    /// Of a hundred recent calls, so many took no longer.
    pub(crate) fn recent(&self, percent: usize) -> Duration {
        let mut recent = self.lock().recent.clone();
        recent.sort_unstable();
        let rank = (recent.len() * percent).div_ceil(100).saturating_sub(1);
        recent.get(rank).copied().unwrap_or_default()
    }
}

/// What was acknowledged, and what went wrong.
#[derive(Default)]
pub(crate) struct Ledger {
    files: Mutex<Files>,
    errors: Mutex<(u64, Vec<String>)>,
}

#[derive(Default)]
struct Files {
    /// Up to where each has what it should.
    upto: BTreeMap<Arc<str>, u64>,
    names: Vec<Arc<str>>,
}

/// What became of what was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Checked {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
}

impl Ledger {
    pub(crate) fn acknowledge(&self, name: &Arc<str>, upto: u64) {
        let mut files = self.lock();
        if files.upto.insert(Arc::clone(name), upto).is_none() {
            files.names.push(Arc::clone(name));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn acknowledged_bytes(&self) -> u64 {
        self.lock().upto.values().sum()
    }

    /// Something that was acknowledged to somebody before.
    fn any(&self, random: &mut Random) -> Option<(Arc<str>, u64)> {
        let files = self.lock();
        let at = random.below(files.names.len() as u64);
        let name = files.names.get(usize::try_from(at).ok()?)?;
        Some((Arc::clone(name), files.upto.get(name).copied()?))
    }

    fn upto(&self, name: &Arc<str>) -> Option<(Arc<str>, u64)> {
        Some((Arc::clone(name), self.lock().upto.get(name).copied()?))
    }

    pub(crate) fn fail(&self, what: String) {
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        errors.0 += 1;
        if errors.1.len() < ERRORS_MAX {
            errors.1.push(what);
        }
    }

    /// How many errors there were, and what the first of them said.
    pub(crate) fn errors(&self) -> (u64, Vec<String>) {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads all that was acknowledged and compares. `progress` says whether to go on, and is told how many bytes were read.
    pub(crate) fn check(&self, seat: &Seat, mut progress: impl FnMut(u64) -> bool) -> io::Result<Checked> {
        let files = self.lock().upto.clone();
        let mut checked = Checked::default();
        for (name, upto) in files {
            checked.files += 1;
            let file = seat.open(&name, For::Reading)?;
            let mut offset = 0;
            while offset < upto {
                let length = usize::try_from((upto - offset).min(256 << 10)).unwrap_or(BLOCK);
                let read = file.read(offset, length)?;
                let wanted = content(&name, offset, length);
                checked.lost += (0..length).filter(|&at| read.get(at) != wanted.get(at)).count() as u64;
                offset += length as u64;
                checked.bytes += length as u64;
                if !progress(checked.bytes) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
            }
            file.close()?;
        }
        Ok(checked)
    }
}

/// Threads that go on until they are told to stop.
pub(crate) struct Hands {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// What each hand has.
#[derive(Clone)]
pub(crate) struct Hand {
    pub(crate) seat: Seat,
    pub(crate) gauge: Arc<Gauge>,
    pub(crate) ledger: Arc<Ledger>,
    /// What its files are called begins with this.
    pub(crate) name: String,
    /// How long it rests between two acts: a program does something with what it reads and writes.
    pub(crate) pause: Duration,
}

impl Hands {
    pub(crate) fn new() -> Self {
        Self { stop: Arc::new(AtomicBool::new(false)), threads: Vec::new() }
    }

    /// Has a thread do `act` again and again. What fails is an error, and what comes next is tried.
    pub(crate) fn add(&mut self, hand: Hand, mut act: impl FnMut(&Hand) -> io::Result<()> + Send + 'static) {
        let stop = Arc::clone(&self.stop);
        self.threads.push(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                if let Err(error) = act(&hand)
                    && !stop.load(Ordering::Relaxed)
                {
                    hand.ledger.fail(format!("{}: {error}", hand.name));
                    std::thread::sleep(ERROR_PAUSE);
                }
                std::thread::sleep(hand.pause);
            }
        }));
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether all of them have come to their end.
    pub(crate) fn are_done(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }
}

/// Writes block after block, each of which is synced: the next one of its files when one is full.
pub(crate) fn writer() -> impl FnMut(&Hand) -> io::Result<()> + Send + 'static {
    let mut file: Option<(Arc<str>, Opened, u64)> = None;
    let mut files = 0;
    move |hand| {
        if file.as_ref().is_none_or(|(_, _, offset)| *offset >= FILE_BYTES_MAX) {
            let name: Arc<str> = format!("{}-{files}", hand.name).into();
            files += 1;
            file = Some((Arc::clone(&name), hand.gauge.time(|| hand.seat.create(&name))?, 0));
        }
        let Some((name, opened, offset)) = &mut file else { return Ok(()) };
        let data = content(name, *offset, BLOCK);
        hand.gauge.time(|| {
            opened.write(*offset, &data)?;
            opened.sync()
        })?;
        *offset += BLOCK as u64;
        hand.ledger.acknowledge(name, *offset);
        Ok(())
    }
}

/// The same with a file that is there.
pub(crate) fn writer_of(
    name: Arc<str>,
    opened: Opened,
) -> impl FnMut(&Hand) -> io::Result<()> + Send + 'static {
    let mut offset = 0;
    move |hand| {
        let data = content(&name, offset, BLOCK);
        hand.gauge.time(|| {
            opened.write(offset, &data)?;
            opened.sync()
        })?;
        offset += BLOCK as u64;
        hand.ledger.acknowledge(&name, offset);
        Ok(())
    }
}

/// Appends record after record to one file, each of which is synced.
pub(crate) fn appender() -> impl FnMut(&Hand) -> io::Result<()> + Send + 'static {
    let mut file: Option<(Arc<str>, Opened, u64)> = None;
    move |hand| {
        if file.is_none() {
            let name: Arc<str> = hand.name.as_str().into();
            hand.gauge.time(|| hand.seat.create(&name)?.close())?;
            file = Some((Arc::clone(&name), hand.seat.open(&name, For::Appending)?, 0));
        }
        let Some((name, opened, size)) = &mut file else { return Ok(()) };
        let data = content(name, *size, RECORD);
        hand.gauge.time(|| {
            opened.append(&data)?;
            opened.sync()
        })?;
        *size += RECORD as u64;
        hand.ledger.acknowledge(name, *size);
        Ok(())
    }
}

/// Creates small files, and syncs each.
pub(crate) fn creator(seed: u64) -> impl FnMut(&Hand) -> io::Result<()> + Send + 'static {
    let (mut random, mut files) = (Random::new(seed), 0);
    move |hand| {
        let name: Arc<str> = format!("{}-{files}", hand.name).into();
        files += 1;
        let length = (1 + random.below(SMALL_BYTES_MAX / 8)) * 8;
        let data = content(&name, 0, usize::try_from(length).unwrap_or(BLOCK));
        hand.gauge.time(|| {
            let opened = hand.seat.create(&name)?;
            opened.write(0, &data)?;
            opened.sync()?;
            opened.close()
        })?;
        hand.ledger.acknowledge(&name, length);
        Ok(())
    }
}

/// Opens files of which something was acknowledged, to anybody, and reads a block of that. What it was not to read is an error.
pub(crate) fn reader(
    seed: u64,
    of: Option<Arc<str>>,
) -> impl FnMut(&Hand) -> io::Result<()> + Send + 'static {
    let mut random = Random::new(seed);
    move |hand| {
        let found = match &of {
            Some(name) => hand.ledger.upto(name),
            None => hand.ledger.any(&mut random),
        };
        let Some((name, upto)) = found else { return Ok(()) };
        let offset = random.below(upto.div_ceil(BLOCK as u64)) * BLOCK as u64;
        let length = usize::try_from(upto - offset).unwrap_or(BLOCK).min(BLOCK);
        let read = hand.gauge.time(|| {
            let opened = hand.seat.open(&name, For::Reading)?;
            let read = opened.read(offset, length)?;
            opened.close()?;
            io::Result::Ok(read)
        })?;
        if read != content(&name, offset, length) {
            let told = format!(
                "read {} of {length} bytes at {offset} of {name}, and not what was written",
                read.len()
            );
            return Err(io::Error::other(told));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_a_file_is_the_same_however_it_is_cut() {
        let whole = content("a", 0, 100);
        assert_eq!(content("a", 48, 52), whole[48..]);
        assert_ne!(content("b", 0, 100), whole);
    }

    #[test]
    fn what_is_not_there_or_another_is_lost() {
        let folder = tempfile::tempdir().unwrap();
        let (seat, ledger) = (Seat::Mount(folder.path().to_owned()), Ledger::default());
        let name: Arc<str> = "a".into();
        let opened = seat.create(&name).unwrap();
        opened.write(0, &content(&name, 0, 8_192)).unwrap();
        ledger.acknowledge(&name, 8_192);
        let whole = Checked { files: 1, bytes: 8_192, lost: 0 };
        assert_eq!(ledger.check(&seat, |_| true).unwrap(), whole);
        opened.write(100, &[!content(&name, 96, 8)[4]]).unwrap();
        assert_eq!(ledger.check(&seat, |_| true).unwrap(), Checked { lost: 1, ..whole });
        ledger.acknowledge(&name, 8_200);
        assert_eq!(ledger.check(&seat, |_| true).unwrap(), Checked { bytes: 8_200, lost: 9, ..whole });
    }

    #[test]
    fn a_call_under_way_counts() {
        let gauge = Gauge::default();
        gauge.time(|| {
            let (worst, under_way) = gauge.worst(Instant::now());
            assert_eq!(Some(worst), under_way);
        });
        assert_eq!((gauge.worst(Instant::now()).1, gauge.count()), (None, 1));
    }
}
