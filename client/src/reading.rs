//! Reading files of volumes: from what is known here where the volume's grants allow it, and else from the daemons. What to do when, the
//! [core](crate::core::content::Reading) says.

use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use namespace::Generation;
use node::file::{FileError, READ_BYTES_MAX};
use tokio::task::JoinSet;

use crate::clock;
use crate::core::content::{BLOCK_BYTES, Plan, PlanMark, ReadStep, Reading, Said, Under, View};
use crate::objects::ObjectError;
use crate::source::Source;
use crate::volume_files::VolumeFile;
use crate::volumes::VolumeError;

/// How long it waits for what changes just now, before it looks again.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Who reads one piece after the other has so much read ahead at first, and twice as much each time.
const AHEAD_MIN: u64 = 256 << 10;
/// No more.
const AHEAD_MAX: u64 = 4 << 20;
/// So many blocks are asked for at once.
const RUN_BLOCKS: u64 = READ_BYTES_MAX / BLOCK_BYTES;

const _: () = assert!(RUN_BLOCKS > 0, "a block fits into one question");

/// How somebody who has a file open has read it so far.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    so_far: Mutex<SoFar>,
}

#[derive(Clone, Copy, Debug, Default)]
struct SoFar {
    under: Under,
    /// Where the next piece begins, if one follows the other.
    next: u64,
    /// How much is read ahead, and up to where it was.
    window: u64,
    upto: u64,
}

impl Reader {
    fn with<T>(&self, act: impl FnOnce(&mut SoFar) -> T) -> T {
        act(&mut self.so_far.lock().expect("nobody fails while holding it"))
    }

    /// What to read ahead, now that this was read.
    fn ahead(&self, read: &Range<u64>) -> Range<u64> {
        self.with(|so_far| {
            let is_next = so_far.next == read.start && !read.is_empty();
            so_far.next = read.end;
            if !is_next {
                (so_far.window, so_far.upto) = (0, read.end);
                return 0..0;
            }
            so_far.window = (so_far.window * 2).clamp(AHEAD_MIN, AHEAD_MAX);
            let upto = (read.end + so_far.window).div_ceil(BLOCK_BYTES) * BLOCK_BYTES;
            let from = so_far.upto.max(read.end);
            // Small steps ahead would be many questions.
            if upto < from + AHEAD_MIN.min(so_far.window) / 2 {
                return 0..0;
            }
            so_far.upto = upto;
            from..upto
        })
    }
}

impl VolumeFile {
    /// What stands at `offset`, short where the file ends. At most [`READ_BYTES_MAX`] at once.
    pub async fn read(&self, offset: u64, length: u64) -> Result<Bytes, VolumeError> {
        if length > READ_BYTES_MAX {
            let error = FileError::TooLong { length, bytes_max: READ_BYTES_MAX };
            return Err(ObjectError::from(error).into());
        }
        let patience = self.source().content.patience();
        let mut reading = Reading::new(offset..offset.saturating_add(length));
        let start = clock::now();
        let mut step = ReadStep::Again;
        loop {
            step = match step {
                ReadStep::Done(data) => {
                    if let Some((read, view)) = reading.planned() {
                        self.read_ahead(self.reader().ahead(&read), view);
                    }
                    return Ok(data);
                }
                step => self.read_on(&mut reading, step).await?,
            };
            if clock::elapsed(start) >= patience && !matches!(step, ReadStep::Done(_)) {
                let (patience_s, why) = (patience.as_secs(), "it changes hands all the time");
                return Err(ObjectError::Unanswered { patience_s, why }.into());
            }
        }
    }

    /// The same, if it is known here. Nobody waits. Needs a running tokio runtime.
    pub fn read_at_once(&self, offset: u64, length: u64) -> Option<Bytes> {
        let range = offset..offset.saturating_add(length.min(READ_BYTES_MAX));
        let (plan, view) = self.source().plan(range)?;
        if !plan.missing.is_empty() {
            return None;
        }
        self.read_ahead(self.reader().ahead(plan.range()), view);
        Some(plan.assemble(&[]))
    }

    /// Does what a read wants. Returns what it wants then.
    async fn read_on(&self, reading: &mut Reading, step: ReadStep) -> Result<ReadStep, VolumeError> {
        let source = self.source();
        let (id, shared) = (source.id(), source.shared());
        match step {
            ReadStep::Done(_) => return Ok(step),
            ReadStep::Again => {}
            ReadStep::Wait => shared.behind.pause(LOOK_EVERY).await,
            ReadStep::GiveBack => {
                shared.return_lent(id, source.content.patience()).await;
            }
            ReadStep::Fetch(blocks, ..) if shared.behind.is_fetching(id, &blocks) => {
                shared.behind.pause(LOOK_EVERY).await;
            }
            ReadStep::Fetch(blocks, view, mark) => {
                let fetched = source.fetch(&blocks, (view, mark)).await?;
                return Ok(shared.with_known(id, |known| reading.fetched(known, &fetched)));
            }
            ReadStep::Ask(under) => {
                let said = said(source.read(reading.range(), under).await)?;
                return Ok(self.reader().with(|so_far| reading.answered(&mut so_far.under, said)));
            }
            ReadStep::Look => {
                let attributes = source.volume.attributes(self.inode()).await?;
                return Ok(self.reader().with(|so_far| {
                    shared.with_known(id, |known| reading.looked(known, &mut so_far.under, &attributes))
                }));
            }
        }
        let under = self.reader().with(|so_far| so_far.under);
        Ok(shared.with_known(id, |known| reading.next(known, &under)))
    }

    fn read_ahead(&self, ahead: Range<u64>, view: View) {
        if ahead.is_empty() {
            return;
        }
        let Some((plan, now)) = self.source().plan(ahead).filter(|(_, now)| now.is_like(&view)) else {
            return;
        };
        if !plan.missing.is_empty() {
            let (source, mark) = (self.source().clone(), plan.mark);
            // Whoever needs it and finds nothing asks for it again.
            tokio::spawn(async move { source.fetch(&plan.missing, (now, mark)).await.map(drop) });
        }
    }
}

impl Source {
    fn plan(&self, range: Range<u64>) -> Option<(Plan, View)> {
        self.shared().with_known(self.id(), |known| known.plan(range))
    }

    async fn read(&self, range: &Range<u64>, under: Option<Generation>) -> Result<Bytes, VolumeError> {
        self.opened(|| self.content.read_under(range.start, range.end - range.start, under)).await
    }

    /// Reads blocks from the daemons, and keeps them.
    async fn fetch(
        &self,
        blocks: &[u64],
        (view, mark): (View, PlanMark),
    ) -> Result<Vec<(u64, Bytes)>, VolumeError> {
        if blocks.is_empty() {
            return Ok(Vec::new());
        }
        let id = self.id();
        let fetching = Fetching { source: self, blocks: self.shared().behind.begin_fetching(id, blocks) };
        let mut runs = JoinSet::new();
        for run in runs_of(blocks) {
            let source = self.clone();
            runs.spawn(async move { source.read_run(run).await });
        }
        let mut fetched = Vec::new();
        while let Some(run) = runs.join_next().await {
            fetched.extend(run.unwrap_or_else(|_| Err(ObjectError::Closed.into()))?);
        }
        self.shared().with_known(id, |known| known.keep((view, mark), &fetched));
        drop(fetching);
        Ok(fetched)
    }

    async fn read_run(&self, run: Range<u64>) -> Result<Vec<(u64, Bytes)>, VolumeError> {
        let range = run.start * BLOCK_BYTES..run.end * BLOCK_BYTES;
        let data = match self.read(&range, None).await {
            // Nothing was ever written to it, or it is gone, and then the volume says so.
            Err(VolumeError::Object(ObjectError::NoSuchObject)) => Bytes::new(),
            read => read?,
        };
        let block_bytes = usize::try_from(BLOCK_BYTES).expect("a block fits into memory");
        let mut pieces = data.chunks(block_bytes).map(|piece| data.slice_ref(piece));
        Ok(run.map(|block| (block, pieces.next().unwrap_or_default())).collect())
    }
}

/// What a content says, unless that is an error.
fn said(read: Result<Bytes, VolumeError>) -> Result<Said, VolumeError> {
    match read {
        Ok(data) => Ok(Said::Data(data)),
        Err(VolumeError::Object(ObjectError::Refused(FileError::NotLent))) => Ok(Said::NotLent),
        Err(VolumeError::Object(ObjectError::NoSuchObject)) => Ok(Said::Nothing),
        Err(error) => Err(error),
    }
}

/// Blocks that are being read, until this is dropped.
struct Fetching<'a> {
    source: &'a Source,
    blocks: Vec<u64>,
}

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        self.source.shared().behind.end_fetching(self.source.id(), &self.blocks);
    }
}

/// Blocks that follow each other, as many as fit into one question.
fn runs_of(blocks: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &block in blocks {
        match runs.last_mut() {
            Some(run) if run.end == block && run.end - run.start < RUN_BLOCKS => run.end += 1,
            _ => runs.push(block..block + 1),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_follow_each_other_are_one_question() {
        assert_eq!(runs_of(&[1, 2, 3, 7, 9, 10]), [1..4, 7..8, 9..11]);
        let many: Vec<u64> = (0..RUN_BLOCKS + 1).collect();
        assert_eq!(runs_of(&many), [0..RUN_BLOCKS, RUN_BLOCKS..RUN_BLOCKS + 1]);
    }

    #[test]
    fn more_and_more_is_read_ahead_of_who_reads_on() {
        let reader = Reader::default();
        let first = reader.ahead(&(0..4_096));
        assert_eq!(first, 4_096..384 << 10);
        assert!(reader.ahead(&(4_096..8_192)).end >= 512 << 10);
        let mut at = 8_192;
        for _ in 0..100 {
            let ahead = reader.ahead(&(at..at + (1 << 20)));
            at += 1 << 20;
            assert!(ahead.is_empty() || ahead.end <= at + AHEAD_MAX + BLOCK_BYTES);
        }
        assert!(reader.ahead(&(0..4_096)).is_empty(), "who begins anew does not read on");
    }
}
