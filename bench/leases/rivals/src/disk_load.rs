//! Work for the disk, next to the servers' data, until told to stop.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use crate::cluster::leashed;
use crate::usage::Meter;

/// As in the paper: one thread writes a file of 10 GB in pieces of 512 KiB and pauses for 7 ms after each.
const PIECE_BYTES: usize = 512 << 10;
const PAUSE: Duration = Duration::from_millis(7);
const FILE_BYTES_MAX: u64 = 10_000_000_000;

/// Two threads that overwrite 4 KiB anywhere in a file of their own and make each write durable.
const FIO_JOB: [&str; 14] = [
    "--name=fsync",
    "--rw=randwrite",
    "--bs=4k",
    "--fsync=1",
    "--size=256m",
    "--numjobs=2",
    "--ioengine=psync",
    "--thread",
    "--time_based",
    "--runtime=86400",
    "--group_reporting",
    "--unlink=1",
    "--eta=never",
    "--output-format=json",
];

/// Which work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// 512 KiB writes with a pause of 7 ms after each, through the page cache
    Paper,
    /// fio: 4 KiB random writes, each followed by fsync, in two threads
    Fsync,
}

/// What the disk was given to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DiskLoad {
    pub(crate) kind: String,
    pub(crate) elapsed_s: f64,
    pub(crate) writes_s: f64,
    pub(crate) written_mib_s: f64,
    /// Share of one processor that it took.
    pub(crate) percent_of_one: f64,
}

/// Why there was no load.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DiskLoadError {
    /// The disk, or its directory.
    #[error(
        "cannot write in {dir}: {source}; the load takes up to 10 GB there, name another place with --dir"
    )]
    Write {
        /// Where.
        dir: PathBuf,
        source: io::Error,
    },
    /// The program that makes the load.
    #[error("cannot run {program}: {source}; install fio, or name it with --fio")]
    Fio { program: PathBuf, source: io::Error },
    /// It ran and said nothing usable.
    #[error("fio ended with {status} and no figures; its last words: {words}")]
    Figures { status: String, words: String },
}

/// Loads the disk below `dir` until `stop` is done.
pub(crate) async fn run(
    kind: Kind,
    dir: &Path,
    fio: &Path,
    stop: impl Future<Output = ()>,
) -> Result<DiskLoad, DiskLoadError> {
    match kind {
        Kind::Paper => paper(dir, stop).await,
        Kind::Fsync => fsync(dir, fio, stop).await,
    }
}

async fn paper(dir: &Path, stop: impl Future<Output = ()>) -> Result<DiskLoad, DiskLoadError> {
    let failed = |source| DiskLoadError::Write { dir: dir.to_owned(), source };
    // Without a name, it goes with this process.
    let file = tempfile::tempfile_in(dir).map_err(failed)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let meter = Meter::start(Vec::new(), dir);
    let start = Instant::now();
    let writer = {
        let is_over = Arc::clone(&is_over);
        thread::spawn(move || write_pieces(file, &is_over))
    };
    let watch = async {
        while !writer.is_finished() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        () = stop => {}
        () = watch => {}
    }
    is_over.store(true, Ordering::Relaxed);
    let pieces = writer.join().expect("the writing thread does not panic").map_err(failed)?;
    let elapsed_s = start.elapsed().as_secs_f64();
    Ok(DiskLoad {
        kind: "paper".to_owned(),
        elapsed_s,
        writes_s: pieces / elapsed_s,
        written_mib_s: pieces / 2.0 / elapsed_s,
        percent_of_one: meter.read().driver_percent_of_one,
    })
}

/// Writes until it is over, and says how many pieces.
fn write_pieces(mut file: File, is_over: &AtomicBool) -> io::Result<f64> {
    let piece = vec![0x5a; PIECE_BYTES];
    let mut pieces = 0.0;
    while !is_over.load(Ordering::Relaxed) {
        if file.stream_position()? + PIECE_BYTES as u64 > FILE_BYTES_MAX {
            file.rewind()?;
        }
        file.write_all(&piece)?;
        pieces += 1.0;
        thread::sleep(PAUSE);
    }
    Ok(pieces)
}

async fn fsync(dir: &Path, fio: &Path, stop: impl Future<Output = ()>) -> Result<DiskLoad, DiskLoadError> {
    let failed = |source| DiskLoadError::Write { dir: dir.to_owned(), source };
    let home = tempfile::Builder::new().prefix("rivals-load-").tempdir_in(dir).map_err(failed)?;
    let (report, words) = (home.path().join("report"), home.path().join("words"));
    let mut command = Command::new(fio);
    command.args(FIO_JOB).arg("--directory").arg(home.path()).arg("--output").arg(&report);
    let errors = File::create(&words).map_err(failed)?;
    let start = Instant::now();
    let child = leashed(&command).stdout(Stdio::null()).stderr(errors).stdin(Stdio::null()).spawn();
    let mut child = child.map_err(|source| DiskLoadError::Fio { program: fio.to_owned(), source })?;
    let meter = Meter::start(vec![child.id()], dir);
    let ended_early = async {
        while let Ok(None) = child.try_wait() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::select! {
        () = stop => {}
        () = ended_early => {}
    }
    let percent_of_one = meter.read().servers_cpu_s / start.elapsed().as_secs_f64() * 100.0;
    // It prints what it did when it is interrupted.
    if let Ok(None) = child.try_wait() {
        let _ = kill_process(Pid::from_child(&child), Signal::INT);
    }
    let status = child.wait().map_err(|source| DiskLoadError::Fio { program: fio.to_owned(), source })?;
    let printed = std::fs::read_to_string(&report).unwrap_or_default();
    figures(&printed, percent_of_one).ok_or_else(|| {
        let words = std::fs::read_to_string(&words).unwrap_or_default();
        DiskLoadError::Figures { status: status.to_string(), words }
    })
}

/// What fio reports of its one group.
fn figures(printed: &str, percent_of_one: f64) -> Option<DiskLoad> {
    // Interrupted, it says so in a line of its own before the object.
    let object = &printed[printed.find('{')?..];
    let report: serde_json::Value = serde_json::from_str(object).ok()?;
    let write = report.pointer("/jobs/0/write")?;
    let number = |key: &str| write.get(key).and_then(serde_json::Value::as_f64);
    Some(DiskLoad {
        kind: "fsync".to_owned(),
        elapsed_s: number("runtime")? / 1_000.0,
        writes_s: number("iops").filter(|&writes| writes > 0.0)?,
        written_mib_s: number("bw_bytes")? / f64::from(1 << 20),
        percent_of_one,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fios_report_is_read_behind_what_it_says_of_the_interruption() {
        let report = "\nfio: terminating on signal 2\n{\"jobs\": [{\"write\": \
            {\"runtime\": 2000, \"iops\": 50.5, \"bw_bytes\": 2097152}}]}";
        let load = figures(report, 7.0).unwrap();
        assert_eq!((load.elapsed_s, load.writes_s, load.written_mib_s), (2.0, 50.5, 2.0));
        assert!(figures("fio: no", 0.0).is_none());
    }

    #[test]
    fn pieces_are_written_until_it_is_over() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let load = runtime.block_on(async {
            let stop = tokio::time::sleep(Duration::from_millis(50));
            paper(&std::env::temp_dir(), stop).await.unwrap()
        });
        assert!(load.writes_s > 0.0 && load.writes_s < 143.0, "{load:?}");
        let missing = runtime.block_on(paper(Path::new("no/such/place"), std::future::ready(())));
        assert!(missing.unwrap_err().to_string().contains("no/such/place"));
    }
}
