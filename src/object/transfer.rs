//! Content on its way between an object and a file: in pieces, several at a time, and never more of them than that.
//!
//! Files are read and written by a thread of their own: a pipe may have nothing to say for hours, and the connections
//! have to be served meanwhile.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use bytes::{Bytes, BytesMut};
use client::{Object, ObjectError, READ_BYTES_MAX, WRITE_BYTES_MAX};
use indicatif::ProgressBar;
use tempfile::NamedTempFile;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet, spawn_blocking};

use super::is_standard;

/// Pieces between the thread of the file and the connections.
const PIECES_WAITING_MAX: usize = 2;
/// Pieces under way to or from the daemons.
const PIECES_UNDER_WAY_MAX: usize = 8;

/// Where content comes from.
pub(super) struct Source {
    what: Box<dyn Read + Send>,
    name: String,
    len: Option<u64>,
}

/// Where content goes.
pub(super) struct Sink {
    what: Target,
    name: String,
}

enum Target {
    Standard,
    /// What is no ordinary file is written to as it is.
    Special(File),
    /// It takes the place of the file when all of it is there.
    New(NamedTempFile, PathBuf),
}

impl Source {
    pub(super) fn open(file: &Path) -> anyhow::Result<Self> {
        if is_standard(file) {
            return Ok(Self { what: Box::new(io::stdin()), name: "standard input".to_owned(), len: None });
        }
        let name = file.display().to_string();
        let opened = File::open(file).with_context(|| format!("could not open {name}"))?;
        let metadata = opened.metadata().with_context(|| format!("could not look at {name}"))?;
        let len = metadata.is_file().then_some(metadata.len());
        Ok(Self { what: Box::new(opened), name, len })
    }

    /// How long it is, as far as is known.
    pub(super) const fn len(&self) -> Option<u64> {
        self.len
    }

    /// The next piece; an empty one at the end.
    fn piece(&mut self) -> anyhow::Result<Bytes> {
        let len = usize::try_from(WRITE_BYTES_MAX).unwrap_or(usize::MAX);
        let mut piece = BytesMut::zeroed(len);
        let mut filled = 0;
        while filled < len {
            match self.what.read(&mut piece[filled..]) {
                Ok(0) => break,
                Ok(some) => filled += some,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).with_context(|| format!("could not read {}", self.name)),
            }
        }
        piece.truncate(filled);
        Ok(piece.freeze())
    }
}

impl Sink {
    pub(super) fn open(file: &Path) -> anyhow::Result<Self> {
        if is_standard(file) {
            return Ok(Self { what: Target::Standard, name: "standard output".to_owned() });
        }
        let name = file.display().to_string();
        let open = || -> io::Result<Target> {
            if fs::metadata(file).is_ok_and(|metadata| !metadata.is_file()) {
                return Ok(Target::Special(File::options().write(true).open(file)?));
            }
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            // Whoever may read a new file is decided by the umask, as for any other.
            let permissions = fs::Permissions::from_mode(0o666);
            let folder = folder.unwrap_or(Path::new("."));
            let new = tempfile::Builder::new().permissions(permissions).tempfile_in(folder)?;
            Ok(Target::New(new, file.to_owned()))
        };
        Ok(Self { what: open().with_context(|| format!("could not write {name}"))?, name })
    }

    fn put(&mut self, piece: &[u8]) -> anyhow::Result<()> {
        let put = match &mut self.what {
            Target::Standard => io::stdout().write_all(piece),
            Target::Special(file) => file.write_all(piece),
            Target::New(file, _) => file.write_all(piece),
        };
        put.with_context(|| format!("could not write {}", self.name))
    }

    fn finish(self) -> anyhow::Result<()> {
        let finished = match self.what {
            Target::Standard => io::stdout().flush(),
            Target::Special(_) => Ok(()),
            Target::New(file, path) => file.persist(path).map(drop).map_err(|error| error.error),
        };
        finished.with_context(|| format!("could not write {}", self.name))
    }
}

/// Puts all of a source into an object, from its beginning on. Returns how much that was.
pub(super) async fn put(object: &Object, mut source: Source, bar: &ProgressBar) -> anyhow::Result<u64> {
    let (pieces, mut next) = mpsc::channel(PIECES_WAITING_MAX);
    // Standard input may never end, so nobody waits for this thread when the transfer is over.
    std::thread::spawn(move || {
        loop {
            let piece = source.piece();
            let is_last = piece.as_ref().map_or(true, Bytes::is_empty);
            if pieces.blocking_send(piece).is_err() || is_last {
                return;
            }
        }
    });
    let (mut offset, mut writes) = (0, JoinSet::new());
    while let Some(piece) = next.recv().await {
        let piece = piece?;
        let (object, at, len) = (object.clone(), offset, piece.len() as u64);
        if len == 0 {
            break;
        }
        offset += len;
        writes.spawn(async move { object.write(at, piece).await.map(|_| len) });
        if writes.len() >= PIECES_UNDER_WAY_MAX {
            note_written(&mut writes, bar).await?;
        }
    }
    while !writes.is_empty() {
        note_written(&mut writes, bar).await?;
    }
    Ok(offset)
}

async fn note_written(
    writes: &mut JoinSet<Result<u64, ObjectError>>,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    if let Some(written) = writes.join_next().await {
        bar.inc(written.context("a write ended too soon")??);
    }
    Ok(())
}

/// Writes `size` bytes of an object to a sink.
pub(super) async fn get(object: &Object, size: u64, mut sink: Sink, bar: &ProgressBar) -> anyhow::Result<()> {
    let (pieces, mut next) = mpsc::channel::<Bytes>(PIECES_WAITING_MAX);
    let writer = spawn_blocking(move || {
        while let Some(piece) = next.blocking_recv() {
            sink.put(&piece)?;
        }
        anyhow::Ok(sink)
    });
    let mut reads = VecDeque::new();
    let mut ahead = 0;
    while ahead < size || !reads.is_empty() {
        if ahead < size && reads.len() < PIECES_UNDER_WAY_MAX {
            let (object, at, len) = (object.clone(), ahead, READ_BYTES_MAX.min(size - ahead));
            ahead += len;
            let read = tokio::spawn(async move { object.read(at, len).await });
            reads.push_back((Ended(read.abort_handle()), read, len));
            continue;
        }
        let Some((_ended, read, len)) = reads.pop_front() else { break };
        let piece = read.await.context("a read ended too soon")??;
        if piece.len() as u64 != len {
            bail!("the object became shorter while it was read; get it again");
        }
        bar.inc(len);
        if pieces.send(piece).await.is_err() {
            // The writer knows what is wrong.
            break;
        }
    }
    drop(pieces);
    writer.await.context("the writer ended too soon")??.finish()
}

/// A task that is not wanted any longer is ended.
struct Ended(AbortHandle);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.abort();
    }
}
