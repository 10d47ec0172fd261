//! The disk's part: appending 4 KiB and making it durable, by one thread and by three at once.
//!
//! Three at once is what three daemons on one machine do to its disk, each with a journal of its own.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use osd::store::floor::{DiskError, DurableAppends, FileSystem};
use serde::Serialize;

use crate::stats::{Latencies, median, per_second};

/// Appends of each thread in each round.
const APPENDS: u32 = 200;
/// Threads that append at once: one for each daemon of the smallest cluster that survives a failure.
const WRITERS: usize = 3;

/// What the disk does at best.
#[derive(Clone, Debug, Serialize)]
pub struct DiskFloor {
    /// The directory that was measured.
    pub fdatasync_dir: String,
    /// The kind of file system it lies on.
    pub fdatasync_file_system: String,
    /// The device or other source of that file system.
    pub fdatasync_device: String,
    /// One thread: half of the appends take no longer.
    pub fdatasync_alone_p50_us: f64,
    /// One thread: 99 of 100 appends take no longer.
    pub fdatasync_alone_p99_us: f64,
    /// One thread: appends per second.
    pub fdatasync_alone_s: f64,
    /// Three threads, each with its own file: half of the appends take no longer.
    pub fdatasync_three_p50_us: f64,
    /// Three threads: 99 of 100 appends take no longer.
    pub fdatasync_three_p99_us: f64,
    /// Three threads: appends per second, all together.
    pub fdatasync_three_s: f64,
}

/// Why the disk could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum DiskFloorError {
    /// A file could not be prepared or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A thread panicked: a mistake in this program.
    #[error("a measuring thread panicked")]
    Panicked,
}

struct Round {
    p50_us: f64,
    p99_us: f64,
    appends_s: f64,
}

pub(super) fn measure(
    dir: &Path,
    rounds: NonZeroU32,
    mut before_round: impl FnMut(),
) -> Result<DiskFloor, DiskFloorError> {
    let file_system = FileSystem::of(dir)?;
    let mut files = Vec::new();
    for _ in 0..WRITERS {
        files.push(DurableAppends::prepare(dir, APPENDS)?);
    }
    let (mut alone, mut three) = (Vec::new(), Vec::new());
    for _ in 0..rounds.get() {
        before_round();
        alone.push(round(&mut files[..1])?);
        three.push(round(&mut files)?);
    }
    let middle = |rounds: &[Round], figure: fn(&Round) -> f64| median(rounds.iter().map(figure));
    Ok(DiskFloor {
        fdatasync_dir: dir.display().to_string(),
        fdatasync_file_system: file_system.kind,
        fdatasync_device: file_system.source,
        fdatasync_alone_p50_us: middle(&alone, |round| round.p50_us),
        fdatasync_alone_p99_us: middle(&alone, |round| round.p99_us),
        fdatasync_alone_s: middle(&alone, |round| round.appends_s),
        fdatasync_three_p50_us: middle(&three, |round| round.p50_us),
        fdatasync_three_p99_us: middle(&three, |round| round.p99_us),
        fdatasync_three_s: middle(&three, |round| round.appends_s),
    })
}

/// One thread for each file; all begin together. The rate is over the time of the slowest.
fn round(files: &mut [DurableAppends]) -> Result<Round, DiskFloorError> {
    let writers = files.len() as u64;
    let together = Barrier::new(files.len());
    let results: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> =
            files.iter_mut().map(|file| scope.spawn(|| append_all(file, &together))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    });
    let mut latencies = Latencies::default();
    let mut slowest = Duration::ZERO;
    for result in results {
        let (thread_latencies, elapsed) = result.map_err(|_| DiskFloorError::Panicked)??;
        latencies.extend(thread_latencies);
        slowest = slowest.max(elapsed);
    }
    Ok(Round {
        p50_us: latencies.percentile_us(50),
        p99_us: latencies.percentile_us(99),
        appends_s: per_second(writers * u64::from(APPENDS), slowest),
    })
}

fn append_all(file: &mut DurableAppends, together: &Barrier) -> Result<(Latencies, Duration), DiskError> {
    let mut latencies = Latencies::with_capacity(APPENDS);
    together.wait();
    let all = Instant::now();
    for _ in 0..APPENDS {
        let begin = Instant::now();
        file.append()?;
        latencies.push(begin.elapsed());
    }
    Ok((latencies, all.elapsed()))
}
