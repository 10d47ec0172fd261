//! Reading files of volumes: from what is known here where the volume's grants allow it, and else from the daemons.
//!
//! What a daemon says of content is what somebody has written to it at some time. Whoever reads has made sure that this is what is to be
//! seen now: because nobody changes the content while the volume grants that, because the client has the file lent, because the content was
//! asked under the lend that the volume names, or because the volume says afterwards that nothing was lent meanwhile.

use std::ops::Range;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use namespace::Generation;
use node::file::{FileError, READ_BYTES_MAX};
use tokio::task::JoinSet;

use crate::behind::Whose;
use crate::clock;
use crate::core::content::{BLOCK_BYTES, Plan, PlanMark, View};
use crate::objects::ObjectError;
use crate::source::Source;
use crate::volume_files::VolumeFile;
use crate::volumes::VolumeError;

/// How long it waits for what changes just now, before it looks again.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// A lend that nothing may be answered by is given back after so many looks.
const LOOKS_MAX: u32 = 8;
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
    /// Under which lend the content answers, as it seemed last.
    under: Option<Generation>,
    /// Which lend the content did not know of.
    unknown: Option<Generation>,
    /// Where the next piece begins, if one follows the other.
    next: u64,
    /// How much is read ahead, and up to where it was.
    window: u64,
    upto: u64,
}

/// What came of one try.
enum Tried {
    Read(Bytes),
    /// Something has changed: at once, or after a while.
    Again,
    Later,
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
        let range = offset..offset.saturating_add(length);
        let (start, mut looks) = (clock::now(), 0);
        while clock::elapsed(start) < patience {
            match self.try_to_read(&range).await? {
                Tried::Read(data) => return Ok(data),
                Tried::Again => {}
                Tried::Later => {
                    looks += 1;
                    if looks == LOOKS_MAX {
                        self.source().shared().return_lent(self.source().id(), patience).await;
                    }
                    self.source().shared().behind.pause(LOOK_EVERY).await;
                }
            }
        }
        Err(ObjectError::Unanswered { patience_s: patience.as_secs(), why: "it changes hands all the time" }
            .into())
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

    async fn try_to_read(&self, range: &Range<u64>) -> Result<Tried, VolumeError> {
        let source = self.source();
        if let Some((plan, view)) = source.plan(range.clone()) {
            return self.read_planned(&plan, view).await;
        }
        if let Some(under) = self.reader().with(|so_far| so_far.under) {
            return self.read_under(range, under).await;
        }
        let mut attributes = source.volume.attributes(self.inode()).await?;
        match source.shared().behind.show(source.volume.object(), &mut attributes) {
            Whose::Tree if attributes.last_lend.is_none() => Ok(Tried::Read(Bytes::new())),
            Whose::Tree => {
                let data = source.read(range, None).await?;
                Ok(if source.is_still(attributes.last_lend).await? {
                    Tried::Read(data)
                } else {
                    Tried::Again
                })
            }
            Whose::Content(generation) if self.reader().with(|so_far| so_far.unknown) == Some(generation) => {
                let data = source.read(range, None).await;
                self.lent_since(generation, data).await
            }
            Whose::Content(generation) => {
                self.reader().with(|so_far| so_far.under = Some(generation));
                Ok(Tried::Again)
            }
            Whose::Own | Whose::Leaving(_) | Whose::Other => Ok(Tried::Later),
        }
    }

    /// Reads where everybody reads and writes.
    async fn read_under(&self, range: &Range<u64>, under: Generation) -> Result<Tried, VolumeError> {
        match self.source().read(range, Some(under)).await {
            Ok(data) => Ok(Tried::Read(data)),
            Err(VolumeError::Object(
                ObjectError::Refused(FileError::NotLent) | ObjectError::NoSuchObject,
            )) => {
                self.reader().with(|so_far| (so_far.under, so_far.unknown) = (None, Some(under)));
                Ok(Tried::Again)
            }
            Err(error) => Err(error),
        }
    }

    /// The content may not know yet that it is lent. Nothing is written to it by others as long as it is.
    async fn lent_since(
        &self,
        generation: Generation,
        data: Result<Bytes, VolumeError>,
    ) -> Result<Tried, VolumeError> {
        let data = match data {
            // Nothing was ever written to it, or it is gone, and then the volume says so.
            Err(VolumeError::Object(ObjectError::NoSuchObject)) => Bytes::new(),
            data => data?,
        };
        let mut attributes = self.source().volume.attributes(self.inode()).await?;
        let whose = self.source().shared().behind.show(self.source().volume.object(), &mut attributes);
        let is_same = whose == Whose::Content(generation);
        Ok(if is_same { Tried::Read(data) } else { Tried::Again })
    }

    async fn read_planned(&self, plan: &Plan, view: View) -> Result<Tried, VolumeError> {
        let (source, mark) = (self.source(), plan.mark);
        let behind = &source.shared().behind;
        if behind.is_fetching(source.id(), &plan.missing) {
            behind.pause(LOOK_EVERY).await;
            return Ok(Tried::Again);
        }
        let fetched = source.fetch(&plan.missing, (view, mark)).await?;
        let is_good = plan.missing.is_empty()
            || match view {
                View::Lent(_) => true,
                View::Still(tag, _) => source.stays(tag) || source.is_still(tag).await?,
            };
        if !is_good {
            return Ok(Tried::Again);
        }
        self.read_ahead(self.reader().ahead(plan.range()), view);
        Ok(Tried::Read(plan.assemble(&fetched)))
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
    /// How to read without asking the volume, if it may be.
    fn plan(&self, range: Range<u64>) -> Option<(Plan, View)> {
        let (id, shared) = (self.id(), self.shared());
        let mut cache = shared.cache();
        let attributes = cache.attributes(clock::now(), id.volume, id.inode)?;
        let view = match (attributes.lent, shared.behind.own(&attributes)) {
            (None, _) => View::Still(attributes.last_lend, attributes.size),
            (Some(_), Some(generation)) => View::Lent(generation),
            (Some(_), None) => return None,
        };
        let plan = shared.behind.contents().plan(id, view, range)?;
        Some((plan, view))
    }

    /// Whether the volume still grants that nobody has changed the content since this lend.
    fn stays(&self, tag: Option<Generation>) -> bool {
        let attributes = self.shared().cache().attributes(clock::now(), self.volume.object(), self.inode);
        attributes.is_some_and(|attributes| attributes.lent.is_none() && attributes.last_lend == tag)
    }

    /// The same, for who asks.
    async fn is_still(&self, tag: Option<Generation>) -> Result<bool, VolumeError> {
        let attributes = self.volume.attributes(self.inode).await?;
        Ok(attributes.lent.is_none() && attributes.last_lend == tag)
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
        let may_keep = match view {
            View::Lent(_) => true,
            View::Still(tag, _) => self.stays(tag),
        };
        if may_keep {
            let mut contents = self.shared().behind.contents();
            fetched.iter().for_each(|(block, data)| contents.keep(id, mark, (*block, data)));
        }
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
