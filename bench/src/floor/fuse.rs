//! FUSE's part: a mounted file system that does nothing, used by one thread.
//!
//! What is timed is the way through the kernel to the serving thread and back; behind it there is nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::num::NonZeroU32;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;
use std::time::Instant;

use client_fuse::{BIG_FILE_BYTES, BIG_FILE_NAME, NullMount};
use rustix::fs::{AtFlags, CWD, OFlags, StatxFlags, statx};
use rustix::thread::{CpuSet, sched_getcpu, sched_setaffinity};
use serde::Serialize;

use crate::stats::{Latencies, median, mib_per_second};

/// Small operations of each kind in each round.
const OPERATIONS: u32 = 2_000;
const SMALL_BYTES: usize = 4 << 10;
const LARGE_BYTES: usize = 1 << 20;

/// What FUSE does at best. Every figure is missing when there is a reason why it is unavailable.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FuseFloor {
    /// Why nothing could be mounted.
    pub fuse_unavailable: Option<String>,
    /// A `stat` that has to ask: half take no longer.
    pub fuse_stat_p50_us: Option<f64>,
    /// The same: 99 of 100 take no longer.
    pub fuse_stat_p99_us: Option<f64>,
    /// The same with caller and server on one processor: half take no longer.
    pub fuse_stat_one_processor_p50_us: Option<f64>,
    /// Opening for reading, and closing.
    pub fuse_open_close_p50_us: Option<f64>,
    /// Creating, closing and unlinking a file.
    pub fuse_create_unlink_p50_us: Option<f64>,
    /// Reading 4 KiB past the page cache.
    pub fuse_read_4k_p50_us: Option<f64>,
    /// Writing 4 KiB through the page cache, which keeps nothing back.
    pub fuse_write_4k_p50_us: Option<f64>,
    /// Reading a file from end to end, 1 MiB at a time.
    pub fuse_read_1m_mib_s: Option<f64>,
    /// Writing a file from end to end, 1 MiB at a time.
    pub fuse_write_1m_mib_s: Option<f64>,
    /// How far ahead the kernel read.
    pub fuse_read_ahead_kib: Option<u64>,
}

/// Why FUSE could not be measured though the mount came about.
#[derive(Debug, thiserror::Error)]
#[error("the mounted file system failed an operation; run again with less else going on")]
pub struct FuseFloorError(#[from] io::Error);

struct Round {
    stat_p50_us: f64,
    stat_p99_us: f64,
    open_close_p50_us: f64,
    create_unlink_p50_us: f64,
    read_4k_p50_us: f64,
    write_4k_p50_us: f64,
    read_1m_mib_s: f64,
    write_1m_mib_s: f64,
}

pub(super) fn measure(
    rounds: NonZeroU32,
    mut before_round: impl FnMut(),
) -> Result<FuseFloor, FuseFloorError> {
    let mount = match NullMount::new() {
        Ok(mount) => mount,
        Err(error) => {
            return Ok(FuseFloor { fuse_unavailable: Some(error.to_string()), ..FuseFloor::default() });
        }
    };
    let mut done = Vec::new();
    let mut one_processor = Vec::new();
    for _ in 0..rounds.get() {
        before_round();
        done.push(round(mount.path())?);
        one_processor.push(stat_on_one_processor()?);
    }
    let middle = |figure: fn(&Round) -> f64| Some(median(done.iter().map(figure)));
    Ok(FuseFloor {
        fuse_unavailable: None,
        fuse_stat_p50_us: middle(|round| round.stat_p50_us),
        fuse_stat_p99_us: middle(|round| round.stat_p99_us),
        fuse_stat_one_processor_p50_us: Some(median(one_processor)),
        fuse_open_close_p50_us: middle(|round| round.open_close_p50_us),
        fuse_create_unlink_p50_us: middle(|round| round.create_unlink_p50_us),
        fuse_read_4k_p50_us: middle(|round| round.read_4k_p50_us),
        fuse_write_4k_p50_us: middle(|round| round.write_4k_p50_us),
        fuse_read_1m_mib_s: middle(|round| round.read_1m_mib_s),
        fuse_write_1m_mib_s: middle(|round| round.write_1m_mib_s),
        fuse_read_ahead_kib: mount.read_ahead_kib(),
    })
}

/// A request that wakes a server on another, sleeping processor takes several times as long as one that is served on
/// the caller's own. Which of the two happens is the scheduler's choice; this figure leaves it none.
fn stat_on_one_processor() -> io::Result<f64> {
    // A thread of its own, because its processor is for good; the mount's threads inherit it.
    thread::scope(|scope| {
        let pinned = scope.spawn(|| {
            let mut here = CpuSet::new();
            here.set(sched_getcpu());
            sched_setaffinity(None, &here)?;
            let mount = NullMount::new().map_err(io::Error::other)?;
            Ok(stats(mount.path())?.percentile_us(50))
        });
        pinned.join().unwrap_or_else(|_| Err(io::Error::other("the measuring thread panicked")))
    })
}

fn round(root: &Path) -> io::Result<Round> {
    let mut stat = stats(root)?;
    Ok(Round {
        stat_p50_us: stat.percentile_us(50),
        stat_p99_us: stat.percentile_us(99),
        open_close_p50_us: opens(root)?.percentile_us(50),
        create_unlink_p50_us: creates(root)?.percentile_us(50),
        read_4k_p50_us: small_reads(root)?.percentile_us(50),
        write_4k_p50_us: small_writes(root)?.percentile_us(50),
        read_1m_mib_s: large_reads(root)?,
        write_1m_mib_s: large_writes(root)?,
    })
}

/// Times `operation`, which is given the number of its turn.
fn timed(mut operation: impl FnMut(u32) -> io::Result<()>) -> io::Result<Latencies> {
    let mut latencies = Latencies::with_capacity(OPERATIONS);
    for turn in 0..OPERATIONS {
        let begin = Instant::now();
        operation(turn)?;
        latencies.push(begin.elapsed());
    }
    Ok(latencies)
}

/// The kernel would answer from its cache; the flag makes it ask.
fn stats(root: &Path) -> io::Result<Latencies> {
    let path = root.join(BIG_FILE_NAME);
    timed(|_| {
        statx(CWD, &path, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS)?;
        Ok(())
    })
}

fn opens(root: &Path) -> io::Result<Latencies> {
    let path = root.join(BIG_FILE_NAME);
    timed(|_| File::open(&path).map(drop))
}

fn creates(root: &Path) -> io::Result<Latencies> {
    let path = root.join("created");
    timed(|_| {
        drop(File::create_new(&path)?);
        fs::remove_file(&path)
    })
}

fn small_reads(root: &Path) -> io::Result<Latencies> {
    let direct = OFlags::DIRECT.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(direct).open(root.join(BIG_FILE_NAME))?;
    let mut buffer = vec![0; SMALL_BYTES];
    timed(|turn| file.read_exact_at(&mut buffer, u64::from(turn) * SMALL_BYTES as u64))
}

fn small_writes(root: &Path) -> io::Result<Latencies> {
    let path = root.join("small-writes");
    let mut file = File::create(&path)?;
    let buffer = vec![0x5a; SMALL_BYTES];
    let latencies = timed(|_| file.write_all(&buffer))?;
    fs::remove_file(&path)?;
    Ok(latencies)
}

fn large_reads(root: &Path) -> io::Result<f64> {
    let mut buffer = vec![0; LARGE_BYTES];
    let begin = Instant::now();
    // Opening drops what the kernel has cached of the file.
    let mut file = File::open(root.join(BIG_FILE_NAME))?;
    for _ in 0..BIG_FILE_BYTES / LARGE_BYTES as u64 {
        file.read_exact(&mut buffer)?;
    }
    Ok(mib_per_second(BIG_FILE_BYTES, begin.elapsed()))
}

fn large_writes(root: &Path) -> io::Result<f64> {
    let path = root.join("large-writes");
    let buffer = vec![0x5a; LARGE_BYTES];
    let begin = Instant::now();
    let mut file = File::create(&path)?;
    for _ in 0..BIG_FILE_BYTES / LARGE_BYTES as u64 {
        file.write_all(&buffer)?;
    }
    drop(file);
    let elapsed = begin.elapsed();
    fs::remove_file(&path)?;
    Ok(mib_per_second(BIG_FILE_BYTES, elapsed))
}
