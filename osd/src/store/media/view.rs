//! Files as they are, for somebody who must not change them: what is written to them stands in memory alone.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Blob, Media};

/// In what what is written is kept.
const PAGE_BYTES: u64 = 4_096;

/// A directory of which nothing is changed. Below it is one that opens files for reading only, and makes none.
pub struct MediaView {
    below: Arc<dyn Media>,
    blobs: Mutex<BTreeMap<String, Arc<BlobView>>>,
}

/// A file of which nothing is changed.
struct BlobView {
    below: Option<Arc<dyn Blob>>,
    over: Mutex<Over>,
}

/// What was done to a file, in memory.
struct Over {
    bytes: u64,
    /// How much of what is below is still part of the file.
    kept_bytes: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl MediaView {
    /// A view of a directory.
    pub fn new(below: Arc<dyn Media>) -> Self {
        Self { below, blobs: Mutex::default() }
    }

    fn blobs(&self) -> MutexGuard<'_, BTreeMap<String, Arc<BlobView>>> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Media for MediaView {
    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = self.below.names()?;
        names.extend(self.blobs().keys().cloned());
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn Blob>> {
        if let Some(open) = self.blobs().get(name) {
            return Ok(Arc::clone(open) as Arc<dyn Blob>);
        }
        let is_there = self.below.names()?.iter().any(|other| other == name);
        let below = is_there.then(|| self.below.open(name)).transpose()?;
        let bytes = below.as_ref().map_or(Ok(0), |below| below.length())?;
        let over = Over { bytes, kept_bytes: bytes, pages: BTreeMap::new() };
        let view = Arc::new(BlobView { below, over: Mutex::new(over) });
        self.blobs().insert(name.to_owned(), Arc::clone(&view));
        Ok(view)
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Err(io::ErrorKind::ReadOnlyFilesystem.into())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

impl BlobView {
    fn over(&self) -> MutexGuard<'_, Over> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is below, and zeros where nothing is.
    fn read_below(&self, over: &Over, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let there = length(over.kept_bytes.saturating_sub(offset)).min(into.len());
        let (there, behind) = into.split_at_mut(there);
        behind.fill(0);
        match &self.below {
            Some(below) if !there.is_empty() => below.read_at(offset, there),
            _ => Ok(()),
        }
    }

    /// The part of a page that was written, if it was.
    fn read_over(over: &Over, offset: u64, into: &mut [u8]) {
        let end = offset + into.len() as u64;
        for (&at, page) in over.pages.range(offset / PAGE_BYTES * PAGE_BYTES..end) {
            let (from, to) = (at.max(offset), (at + PAGE_BYTES).min(end));
            into[length(from - offset)..length(to - offset)]
                .copy_from_slice(&page[length(from - at)..length(to - at)]);
        }
    }
}

impl Blob for BlobView {
    fn length(&self) -> io::Result<u64> {
        Ok(self.over().bytes)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let over = self.over();
        if offset.checked_add(into.len() as u64).is_none_or(|end| end > over.bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.read_below(&over, offset, into)?;
        Self::read_over(&over, offset, into);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut over = self.over();
        let (mut offset, mut bytes) = (offset, bytes);
        while !bytes.is_empty() {
            let at = offset / PAGE_BYTES * PAGE_BYTES;
            let (piece, rest) = bytes.split_at(bytes.len().min(length(at + PAGE_BYTES - offset)));
            let mut page = vec![0; length(PAGE_BYTES)];
            self.read_below(&over, at, &mut page)?;
            Self::read_over(&over, at, &mut page);
            let before = page.clone();
            page[length(offset - at)..][..piece.len()].copy_from_slice(piece);
            // What is written as it stands there takes no memory.
            if page != before {
                over.pages.insert(at, page);
            }
            offset += piece.len() as u64;
            bytes = rest;
        }
        over.bytes = over.bytes.max(offset);
        Ok(())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        let mut over = self.over();
        over.kept_bytes = over.kept_bytes.min(bytes);
        over.pages.retain(|&at, _| at < bytes);
        if let Some((&at, page)) = over.pages.iter_mut().next_back() {
            page[length((bytes - at).min(PAGE_BYTES))..].fill(0);
        }
        over.bytes = bytes;
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A length of something that is in memory, or more than that can be.
fn length(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use base::Random;

    use super::*;
    use crate::store::media::fake::FakeMedia;

    /// The same is done to a view and to a file: both read the same, and what is below the view stays as it was.
    #[test]
    fn a_view_reads_as_a_file_that_was_written_to() {
        for seed in 0..200 {
            let mut random = Random::new(seed);
            let bytes: Vec<u8> =
                (0..random.index(20_000)).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let (media, same) = (FakeMedia::default(), FakeMedia::default());
            let (below, other) = (media.open("a").unwrap(), same.open("a").unwrap());
            below.write_at(0, &bytes).unwrap();
            other.write_at(0, &bytes).unwrap();
            let view = MediaView::new(Arc::new(media.clone())).open("a").unwrap();
            for _ in 0..random.index(12) {
                let at = random.index(25_000) as u64;
                if random.chance(1, 5) {
                    view.set_len(at).unwrap();
                    other.set_len(at).unwrap();
                } else {
                    let written = vec![u8::try_from(random.index(256)).unwrap(); random.index(9_000)];
                    view.write_at(at, &written).unwrap();
                    other.write_at(at, &written).unwrap();
                }
            }
            let length = other.length().unwrap();
            assert_eq!(view.length().unwrap(), length, "seed {seed}");
            let (mut seen, mut wanted) = (vec![1; super::length(length)], vec![2; super::length(length)]);
            view.read_at(0, &mut seen).unwrap();
            other.read_at(0, &mut wanted).unwrap();
            assert!(seen == wanted, "seed {seed}");
            assert!(view.read_at(length, &mut [0]).is_err());
            let mut kept = vec![0; bytes.len()];
            below.read_at(0, &mut kept).unwrap();
            assert!(kept == bytes && below.length().unwrap() == bytes.len() as u64, "seed {seed}");
        }
    }

    #[test]
    fn what_is_made_in_a_view_is_not_made() {
        let media = FakeMedia::default();
        let view = MediaView::new(Arc::new(media.clone()));
        view.open("a").unwrap().write_at(3, b"b").unwrap();
        assert_eq!(view.names().unwrap(), ["a"]);
        assert_eq!(view.open("a").unwrap().length().unwrap(), 4, "it is the same file");
        assert!(media.names().unwrap().is_empty());
    }
}
