//! The log of a daemon: one line for each thing that happened, on standard error or in a file of bounded size.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use ::osd::config::{LogFormat, LogLevel};
use anyhow::Context;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

/// At this size a log becomes the old one, of which there is one.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Sends what happens in this process to `file`, or to standard error if there is none.
pub(crate) fn start(level: LogLevel, format: LogFormat, file: Option<&Path>) -> anyhow::Result<()> {
    let writer = match file {
        Some(path) => {
            let log = BoundedFile::open(path, FILE_BYTES_MAX);
            BoxMakeWriter::new(Mutex::new(log.with_context(|| format!("cannot write {}", path.display()))?))
        }
        None => BoxMakeWriter::new(io::stderr),
    };
    let started = match format {
        LogFormat::Text => subscriber(level, writer).try_init(),
        LogFormat::Json => subscriber(level, writer).json().flatten_event(true).try_init(),
    };
    started.map_err(anyhow::Error::from_boxed).context("the log cannot be started")
}

/// A panic becomes a line of the log and the end of the process, whatever thread it happened in: a daemon that broke
/// one of its invariants stops, and its supervisor reports that at once.
pub(crate) fn abort_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let trace = std::backtrace::Backtrace::capture();
        tracing::error!("{panic}\n{trace}");
        std::process::abort();
    }));
}

type Builder<W> = tracing_subscriber::fmt::SubscriberBuilder<
    tracing_subscriber::fmt::format::DefaultFields,
    tracing_subscriber::fmt::format::Format,
    LevelFilter,
    W,
>;

fn subscriber<W>(level: LogLevel, writer: W) -> Builder<W>
where
    W: for<'a> MakeWriter<'a> + 'static,
{
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_target(false)
        .with_ansi(false)
        // A log that cannot be written must not end the daemon, which writing to a closed standard error would.
        .log_internal_errors(false)
        .with_writer(writer)
}

/// A file that starts over when it is full; what it held is kept once, with `.1` at the end of its name.
///
/// Supervisor and daemon write to the same one. Each line is one write at the end of the file, so lines stay whole.
struct BoundedFile {
    path: PathBuf,
    file: File,
    bytes_max: u64,
}

impl BoundedFile {
    fn open(path: &Path, bytes_max: u64) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: append_to(path)?, bytes_max })
    }

    /// Starts over, unless another process has done so already.
    fn start_over(&mut self) -> io::Result<()> {
        self.file.lock()?;
        let is_current =
            fs::metadata(&self.path).ok().map(|named| named.ino()) == Some(self.file.metadata()?.ino());
        if is_current {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            fs::rename(&self.path, old)?;
        }
        // Closing the file gives its lock back.
        self.file = append_to(&self.path)?;
        Ok(())
    }
}

impl Write for BoundedFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.file.metadata()?.len() >= self.bytes_max {
            self.start_over()?;
        }
        self.file.write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_bounded_and_keeps_what_came_last() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        // Two processes have it open.
        let mut writers = [0, 1].map(|_| BoundedFile::open(&path, 100).unwrap());
        for number in 0..1_000 {
            writers[number % 2].write_all(format!("line {number:03}\n").as_bytes()).unwrap();
        }
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let (old, new) = (read("log.1"), read("log"));
        assert!(old.len() < 130 && new.len() < 130, "{} and {} bytes", old.len(), new.len());
        let lines: Vec<String> = [old, new].concat().lines().map(str::to_owned).collect();
        let last: Vec<String> =
            (1_000 - lines.len()..1_000).map(|number| format!("line {number:03}")).collect();
        assert_eq!(lines, last);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
