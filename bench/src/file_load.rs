//! What a file system gives to one program: small files, a large one, and short writes that are made durable.
//!
//! It is measured below any directory, whatever is mounted there, by the calls that programs use, one at a time. Everything is done in a
//! folder of its own, which goes when the measurement ends, however it ends. What is read is compared with what was written.
//!
//! Deliberately absent: emptying the kernel's caches. What a file system may answer from memory is a part of what programs get out of it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::num::{NonZeroU32, NonZeroU64};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::Random;
use serde::Serialize;

use crate::stats::{Latencies, Round, mib_per_second, per_second};

/// How long a small file is, and each short write.
const SMALL_BYTES: usize = 4 << 10;
/// A large file is written and read in pieces of this length.
const PIECE_BYTES: usize = 1 << 20;
/// Short writes go to places within so much.
const SCATTERED_BYTES: u64 = 64 << 20;

const _: () = assert!(SCATTERED_BYTES.is_multiple_of(PIECE_BYTES as u64), "it is written in pieces first");

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where. Nothing stays there.
    pub dir: PathBuf,
    /// How many small files.
    pub files: NonZeroU32,
    /// How long the large file is.
    pub big_mib: NonZeroU64,
    /// For how long short writes are made durable.
    pub syncing: Duration,
}

/// What came out. `docs/benchmarks.md` says what each figure means.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// How many small files.
    pub files: u32,
    /// They were created and written.
    pub create_per_s: f64,
    /// Half of them took no longer.
    pub create_p50_us: f64,
    /// 99 of 100 took no longer.
    pub create_p99_us: f64,
    /// Each was asked for its attributes.
    pub stat_per_s: f64,
    /// Half of them took no longer.
    pub stat_p50_us: f64,
    /// 99 of 100 took no longer.
    pub stat_p99_us: f64,
    /// Each was opened and read.
    pub read_per_s: f64,
    /// Half of them took no longer.
    pub read_p50_us: f64,
    /// 99 of 100 took no longer.
    pub read_p99_us: f64,
    /// They were removed.
    pub remove_per_s: f64,
    /// Half of them took no longer.
    pub remove_p50_us: f64,
    /// 99 of 100 took no longer.
    pub remove_p99_us: f64,
    /// How long the large file was.
    pub big_mib: u64,
    /// It was written and made durable.
    pub big_write_mib_s: f64,
    /// Half of its pieces were written within that.
    pub big_write_p50_us: f64,
    /// 99 of 100 were.
    pub big_write_p99_us: f64,
    /// It was read.
    pub big_read_mib_s: f64,
    /// Half of its pieces were read within that.
    pub big_read_p50_us: f64,
    /// 99 of 100 were.
    pub big_read_p99_us: f64,
    /// Short writes to places of a file, each made durable.
    pub sync_4k_per_s: f64,
    /// Half of them took no longer.
    pub sync_4k_p50_us: f64,
    /// 99 of 100 took no longer.
    pub sync_4k_p99_us: f64,
}

impl Figures {
    /// What was done one at a time: how many a second, and the percentiles.
    pub const fn rows(&self) -> [(&'static str, f64, [f64; 2]); 5] {
        [
            ("small files created", self.create_per_s, [self.create_p50_us, self.create_p99_us]),
            ("their attributes", self.stat_per_s, [self.stat_p50_us, self.stat_p99_us]),
            ("small files read", self.read_per_s, [self.read_p50_us, self.read_p99_us]),
            ("small files removed", self.remove_per_s, [self.remove_p50_us, self.remove_p99_us]),
            (
                "4 KiB written anywhere, synced",
                self.sync_4k_per_s,
                [self.sync_4k_p50_us, self.sync_4k_p99_us],
            ),
        ]
    }

    /// How fast the large file went, and the percentiles of its pieces.
    pub const fn rates(&self) -> [(&'static str, f64, [f64; 2]); 2] {
        let written = [self.big_write_p50_us, self.big_write_p99_us];
        [
            ("large file written, synced at the end", self.big_write_mib_s, written),
            ("large file read", self.big_read_mib_s, [self.big_read_p50_us, self.big_read_p99_us]),
        ]
    }
}

/// Why it cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum FileLoadError {
    /// The file system refuses something.
    #[error("could not {what} {}", .path.display())]
    Refused {
        /// What was tried.
        what: &'static str,
        /// With what.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It does not give back what it was given.
    #[error("{} does not read as it was written, from byte {offset} on", .path.display())]
    Differs {
        /// Which file.
        path: PathBuf,
        /// Where.
        offset: u64,
    },
    /// Whoever measures wants no more.
    #[error("interrupted, and what was measured with is removed")]
    Interrupted,
}

/// Somebody to tell how far it has come: what is done, how much of it, and of how much.
pub type Told<'a> = &'a mut dyn FnMut(&str, u64, u64);

/// Measures everything, unless `stops` becomes true meanwhile.
pub fn run(plan: &Plan, stops: &AtomicBool, told: Told<'_>) -> Result<Figures, FileLoadError> {
    let place = Place::new(&plan.dir)?;
    let mut bench = Bench { dir: place.dir.clone(), stops, told };
    let measured = bench.measure(plan);
    // What went wrong first is told.
    let removed = place.remove();
    let figures = measured?;
    removed.map(|()| figures)
}

/// The folder that everything is in.
struct Place {
    dir: PathBuf,
}

impl Place {
    fn new(below: &Path) -> Result<Self, FileLoadError> {
        let dir = below.join(format!(".fleasefs-bench-{}", std::process::id()));
        attempt("create the folder", &dir, fs::create_dir(&dir))?;
        Ok(Self { dir })
    }

    fn remove(&self) -> Result<(), FileLoadError> {
        attempt("remove the folder", &self.dir, fs::remove_dir_all(&self.dir))
    }
}

struct Bench<'a> {
    dir: PathBuf,
    stops: &'a AtomicBool,
    told: Told<'a>,
}

impl Bench<'_> {
    fn measure(&mut self, plan: &Plan) -> Result<Figures, FileLoadError> {
        let files = plan.files.get();
        let [create, stat, read, remove] = self.small_files(files)?;
        let [write, reread] = self.large_file(plan.big_mib.get())?;
        let sync = self.syncs(plan.syncing)?;
        Ok(Figures {
            files,
            create_per_s: create.per_s,
            create_p50_us: create.p50_us,
            create_p99_us: create.p99_us,
            stat_per_s: stat.per_s,
            stat_p50_us: stat.p50_us,
            stat_p99_us: stat.p99_us,
            read_per_s: read.per_s,
            read_p50_us: read.p50_us,
            read_p99_us: read.p99_us,
            remove_per_s: remove.per_s,
            remove_p50_us: remove.p50_us,
            remove_p99_us: remove.p99_us,
            big_mib: plan.big_mib.get(),
            big_write_mib_s: write.per_s,
            big_write_p50_us: write.p50_us,
            big_write_p99_us: write.p99_us,
            big_read_mib_s: reread.per_s,
            big_read_p50_us: reread.p50_us,
            big_read_p99_us: reread.p99_us,
            sync_4k_per_s: sync.per_s,
            sync_4k_p50_us: sync.p50_us,
            sync_4k_p99_us: sync.p99_us,
        })
    }

    fn small_files(&mut self, files: u32) -> Result<[Round; 4], FileLoadError> {
        let mut content = vec![0; SMALL_BYTES];
        let create = self.each("creating small files", files, |path, number| {
            stamp(&mut content, number.into());
            let mut file = attempt("create", path, File::create_new(path))?;
            attempt("write", path, file.write_all(&content))
        })?;
        let stat = self.each("asking for attributes", files, |path, _| {
            let length = attempt("look at", path, fs::metadata(path))?.len();
            if length == SMALL_BYTES as u64 { Ok(()) } else { Err(differs(path, length)) }
        })?;
        let (mut expected, mut content) = (vec![0; SMALL_BYTES], Vec::with_capacity(SMALL_BYTES));
        let read = self.each("reading small files", files, |path, number| {
            content.clear();
            let mut file = attempt("open", path, File::open(path))?;
            attempt("read", path, file.read_to_end(&mut content))?;
            stamp(&mut expected, number.into());
            if content == expected { Ok(()) } else { Err(differs(path, 0)) }
        })?;
        let remove = self
            .each("removing small files", files, |path, _| attempt("remove", path, fs::remove_file(path)))?;
        Ok([create, stat, read, remove])
    }

    /// Does something with each small file.
    fn each(
        &mut self,
        what: &str,
        files: u32,
        mut act: impl FnMut(&Path, u32) -> Result<(), FileLoadError>,
    ) -> Result<Round, FileLoadError> {
        let mut latencies = Latencies::with_capacity(files);
        for number in 0..files {
            self.tell(what, u64::from(number), u64::from(files))?;
            let path = self.dir.join(format!("f{number}"));
            let begin = Instant::now();
            act(&path, number)?;
            latencies.push(begin.elapsed());
        }
        Ok(Round::new(per_second(latencies.count(), latencies.sum()), latencies))
    }

    /// Writes a large file and reads it: MiB per second, and how long pieces took, both.
    fn large_file(&mut self, mib: u64) -> Result<[Round; 2], FileLoadError> {
        let path = self.dir.join("large");
        let (bytes, begin) = (mib * PIECE_BYTES as u64, Instant::now());
        let (file, latencies) = self.written(&path, mib)?;
        attempt("sync", &path, file.sync_all())?;
        drop(file);
        let write = Round::new(mib_per_second(bytes, begin.elapsed()), latencies);
        let begin = Instant::now();
        let latencies = self.read(&path, mib)?;
        let read = Round::new(mib_per_second(bytes, begin.elapsed()), latencies);
        attempt("remove", &path, fs::remove_file(&path))?;
        Ok([write, read])
    }

    /// Writes a file, and tells how long each of its pieces took.
    fn written(&mut self, path: &Path, mib: u64) -> Result<(File, Latencies), FileLoadError> {
        let mut file = attempt("create", path, File::create_new(path))?;
        let (mut piece, mut latencies) = (vec![0; PIECE_BYTES], Latencies::default());
        for number in 0..mib {
            self.tell("writing a large file", number, mib)?;
            stamp(&mut piece, number);
            let begin = Instant::now();
            attempt("write", path, file.write_all(&piece))?;
            latencies.push(begin.elapsed());
        }
        Ok((file, latencies))
    }

    /// The same of reading it.
    fn read(&mut self, path: &Path, mib: u64) -> Result<Latencies, FileLoadError> {
        let mut file = attempt("open", path, File::open(path))?;
        let (mut expected, mut piece) = (vec![0; PIECE_BYTES], vec![0; PIECE_BYTES]);
        let mut latencies = Latencies::default();
        for number in 0..mib {
            self.tell("reading a large file", number, mib)?;
            let begin = Instant::now();
            attempt("read", path, file.read_exact(&mut piece))?;
            latencies.push(begin.elapsed());
            stamp(&mut expected, number);
            if piece != expected {
                return Err(differs(path, number * PIECE_BYTES as u64));
            }
        }
        Ok(latencies)
    }

    /// Short writes to places of a file, each made durable.
    fn syncs(&mut self, time: Duration) -> Result<Round, FileLoadError> {
        const WHAT: &str = "writing and syncing 4 KiB";
        let path = self.dir.join("scattered");
        let (file, _) = self.written(&path, SCATTERED_BYTES / PIECE_BYTES as u64)?;
        attempt("sync", &path, file.sync_all())?;
        drop(file);
        let file = attempt("open", &path, OpenOptions::new().write(true).open(&path))?;
        let (mut random, mut content) = (Random::new(1), vec![0; SMALL_BYTES]);
        let (mut latencies, all) = (Latencies::default(), Instant::now());
        while all.elapsed() < time {
            self.tell(WHAT, millis(all.elapsed()), millis(time))?;
            let block = random.below(SCATTERED_BYTES / SMALL_BYTES as u64);
            stamp(&mut content, block);
            let begin = Instant::now();
            attempt("write", &path, file.write_all_at(&content, block * SMALL_BYTES as u64))?;
            attempt("sync", &path, file.sync_all())?;
            latencies.push(begin.elapsed());
        }
        drop(file);
        attempt("remove", &path, fs::remove_file(&path))?;
        Ok(Round::new(per_second(latencies.count(), latencies.sum()), latencies))
    }

    fn tell(&mut self, what: &str, done: u64, of: u64) -> Result<(), FileLoadError> {
        (self.told)(what, done, of);
        if self.stops.load(Ordering::Relaxed) { Err(FileLoadError::Interrupted) } else { Ok(()) }
    }
}

/// Content that no other number has, in each of its blocks.
fn stamp(content: &mut [u8], number: u64) {
    for (block, bytes) in content.chunks_mut(SMALL_BYTES).enumerate() {
        let words = [number.wrapping_mul(0x9e37_79b9_7f4a_7c15), block as u64];
        for (word, place) in words.into_iter().zip(bytes.chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
    }
}

fn attempt<T>(what: &'static str, path: &Path, result: io::Result<T>) -> Result<T, FileLoadError> {
    result.map_err(|source| FileLoadError::Refused { what, path: path.to_owned(), source })
}

fn differs(path: &Path, offset: u64) -> FileLoadError {
    FileLoadError::Differs { path: path.to_owned(), offset }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(dir: &Path) -> Plan {
        Plan {
            dir: dir.to_owned(),
            files: NonZeroU32::new(20).unwrap(),
            big_mib: NonZeroU64::new(2).unwrap(),
            syncing: Duration::from_millis(20),
        }
    }

    #[test]
    fn everything_is_measured_and_nothing_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut steps = Vec::new();
        let mut told = |what: &str, _: u64, _: u64| steps.push(what.to_owned());
        let figures = run(&plan(dir.path()), &AtomicBool::new(false), &mut told).unwrap();
        for (what, figure, _) in figures.rows() {
            assert!(figure > 0.0, "{what}");
        }
        assert!(figures.rates().iter().all(|(_, rate, [p50, p99])| *rate > 0.0 && *p50 > 0.0 && p50 <= p99));
        steps.dedup();
        assert!(steps.len() >= 7, "{steps:?}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn who_is_interrupted_in_any_step_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for last in
            ["creating", "asking", "reading small", "removing", "writing a", "reading a", "writing and"]
        {
            let stops = AtomicBool::new(false);
            let mut told = |what: &str, done: u64, _: u64| {
                stops.fetch_or(what.starts_with(last) && done > 0, Ordering::Relaxed);
            };
            let result = run(&plan(dir.path()), &stops, &mut told);
            assert!(matches!(result, Err(FileLoadError::Interrupted)), "{last}: {result:?}");
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{last}");
        }
    }

    #[test]
    fn what_differs_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let spoil = dir.path().join(format!(".fleasefs-bench-{}/f7", std::process::id()));
        let mut told = |what: &str, _: u64, _: u64| {
            if what == "asking for attributes" {
                fs::write(&spoil, vec![1; SMALL_BYTES]).unwrap();
            }
        };
        let result = run(&plan(dir.path()), &AtomicBool::new(false), &mut told);
        assert!(matches!(result, Err(FileLoadError::Differs { .. })), "{result:?}");
    }
}
