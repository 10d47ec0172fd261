//! What of the content of files is known and was not changed here: blocks, each with what the file was when it was read.

use std::collections::BTreeMap;
use std::ops::{Bound, Range};

use bytes::{Bytes, BytesMut};
use namespace::Generation;

use super::{BLOCK_BYTES, FileId};

/// What a block takes beside its data.
const PAGE_BYTES: usize = 256;
/// Of so many files it is known what is kept of them, whether that is anything or not.
const TAGS_MIN: usize = 1 << 13;

#[derive(Debug)]
struct Page {
    /// Short where the file ends, or is only zeros behind.
    data: Bytes,
    was_used: bool,
}

/// All blocks of all files.
#[derive(Debug)]
pub(super) struct Pages {
    pages: BTreeMap<(FileId, u64), Page>,
    /// Under which lend the content of a file became what is kept of it.
    tags: BTreeMap<FileId, Option<Generation>>,
    /// When there are more of these, those of files of which nothing is kept are dropped.
    tags_max: usize,
    bytes: usize,
    bytes_max: usize,
    /// Where to look for what was not used lately.
    hand: Option<(FileId, u64)>,
}

impl Pages {
    pub(super) const fn new(bytes_max: usize) -> Self {
        let tags_max = TAGS_MIN;
        Self { pages: BTreeMap::new(), tags: BTreeMap::new(), tags_max, bytes: 0, bytes_max, hand: None }
    }

    /// The content of a file is that of this lend: what is kept of any other is dropped.
    pub(super) fn tag(&mut self, file: FileId, tag: Option<Generation>) {
        if self.tags.get(&file) != Some(&tag) {
            self.drop_file(file);
            self.retag(file, tag);
        }
    }

    /// What is kept is the content of this lend: it was written by it.
    pub(super) fn retag(&mut self, file: FileId, tag: Option<Generation>) {
        self.tags.insert(file, tag);
        if self.tags.len() > self.tags_max {
            let pages = &self.pages;
            let has_pages = |file: FileId| pages.range((file, 0)..=(file, u64::MAX)).next().is_some();
            self.tags.retain(|&of, _| of == file || has_pages(of));
            self.tags_max = TAGS_MIN.max(2 * self.tags.len());
        }
    }

    /// Whether what is kept of a file, if anything, is that.
    pub(super) fn has_tag(&self, file: FileId, tag: Option<Generation>) -> bool {
        self.tags.get(&file) == Some(&tag)
    }

    pub(super) fn get(&mut self, file: FileId, block: u64) -> Option<Bytes> {
        let page = self.pages.get_mut(&(file, block))?;
        page.was_used = true;
        Some(page.data.clone())
    }

    pub(super) fn has(&self, file: FileId, block: u64) -> bool {
        self.pages.contains_key(&(file, block))
    }

    pub(super) fn put(&mut self, file: FileId, block: u64, data: Bytes) {
        assert!(data.len() as u64 <= BLOCK_BYTES, "a block is no longer");
        self.take(file, block);
        self.bytes += data.len() + PAGE_BYTES;
        self.pages.insert((file, block), Page { data, was_used: true });
        self.make_room();
    }

    /// A daemon has taken in what was written at `offset`, of a file that ends at `end`.
    pub(super) fn patch(&mut self, file: FileId, (offset, data): (u64, &Bytes), end: u64) {
        let upto = offset + data.len() as u64;
        for block in blocks(&(offset..upto)) {
            let start = block * BLOCK_BYTES;
            let (from, to) = (offset.max(start), upto.min(start + BLOCK_BYTES));
            let new = data.slice(within(from - offset)..within(to - offset));
            if from == start && to >= end.min(start + BLOCK_BYTES) {
                self.put(file, block, new);
            } else if let Some(old) = self.take(file, block) {
                let (from, to) = (within(from - start), within(to - start));
                let mut joined = BytesMut::zeroed(old.len().max(to));
                joined[..old.len()].copy_from_slice(&old);
                joined[from..to].copy_from_slice(&new);
                self.put(file, block, joined.freeze());
            }
        }
    }

    /// Nothing but zeros is behind this.
    pub(super) fn cut(&mut self, file: FileId, size: u64) {
        let block = size / BLOCK_BYTES;
        let behind = self.pages.range((file, block)..=(file, u64::MAX));
        let behind: Vec<u64> = behind.map(|(&(_, block), _)| block).collect();
        for behind in behind {
            let Some(data) = self.take(file, behind) else { continue };
            if behind == block {
                let length = data.len().min(within(size - block * BLOCK_BYTES));
                self.put(file, block, data.slice(..length));
            }
        }
    }

    /// Nothing is kept of a file.
    pub(super) fn drop_file(&mut self, file: FileId) {
        self.tags.remove(&file);
        let its = self.pages.range((file, 0)..=(file, u64::MAX));
        let its: Vec<u64> = its.map(|(&(_, block), _)| block).collect();
        its.into_iter().for_each(|block| drop(self.take(file, block)));
    }

    fn take(&mut self, file: FileId, block: u64) -> Option<Bytes> {
        let data = self.pages.remove(&(file, block))?.data;
        self.bytes -= data.len() + PAGE_BYTES;
        Some(data)
    }

    /// Drops what was not used since it was looked at last.
    fn make_room(&mut self) {
        while self.bytes > self.bytes_max && !self.pages.is_empty() {
            let from = self.hand.map_or(Bound::Unbounded, Bound::Excluded);
            let Some((&(file, block), page)) = self.pages.range_mut((from, Bound::Unbounded)).next() else {
                self.hand = None;
                continue;
            };
            self.hand = Some((file, block));
            if !std::mem::take(&mut page.was_used) {
                self.take(file, block);
                let mut rest = self.pages.range((file, 0)..=(file, u64::MAX));
                if rest.next().is_none() {
                    self.tags.remove(&file);
                }
            }
        }
    }
}

/// The blocks in which a range has something.
pub(super) fn blocks(range: &Range<u64>) -> Range<u64> {
    if range.is_empty() { 0..0 } else { range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES) }
}

/// A length within a block.
fn within(bytes: u64) -> usize {
    usize::try_from(bytes).expect("no write is longer than memory")
}

#[cfg(test)]
mod tests {
    use base::{Epoch, NodeId, ObjectId, Seq};
    use namespace::{Born, InodeId};

    use super::*;

    fn file(number: u64) -> FileId {
        let epoch = Epoch { number: 1, node: NodeId(1) };
        FileId { volume: ObjectId::new(1, 2), inode: InodeId { number, epoch } }
    }

    fn lend(seq: u64) -> Option<Generation> {
        Some(Generation(Born { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(seq) }))
    }

    fn block(byte: u8, length: u64) -> Bytes {
        vec![byte; usize::try_from(length).unwrap()].into()
    }

    #[test]
    fn what_was_read_of_another_lend_is_dropped() {
        let mut pages = Pages::new(1 << 30);
        pages.tag(file(1), lend(1));
        pages.put(file(1), 0, block(1, 10));
        pages.put(file(2), 0, block(2, 10));
        pages.tag(file(1), lend(1));
        assert!(pages.has(file(1), 0));
        pages.tag(file(1), lend(2));
        assert!(!pages.has(file(1), 0) && pages.has(file(2), 0));
    }

    #[test]
    fn files_of_which_nothing_is_kept_are_forgotten() {
        let mut pages = Pages::new(1 << 30);
        let count = 3 * TAGS_MIN as u64;
        for number in 0..count {
            pages.tag(file(number), lend(number));
            if number.is_multiple_of(8) {
                pages.put(file(number), 0, block(1, 10));
            }
        }
        assert!(pages.tags.len() <= TAGS_MIN, "{}", pages.tags.len());
        assert!((0..count).step_by(8).all(|number| pages.has_tag(file(number), lend(number))));
    }

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let mut pages = Pages::new(3 * within(BLOCK_BYTES) + 4 * PAGE_BYTES);
        for number in 0..3 {
            pages.put(file(1), number, block(0, BLOCK_BYTES));
        }
        pages.put(file(1), 3, block(0, BLOCK_BYTES));
        assert!(pages.bytes <= pages.bytes_max && pages.has(file(1), 3));
        let used = (0..3).find(|block| pages.has(file(1), *block)).unwrap();
        pages.get(file(1), used);
        pages.put(file(1), 4, block(0, BLOCK_BYTES));
        assert!(pages.has(file(1), used));
    }

    #[test]
    fn what_a_daemon_took_in_is_known_where_all_of_a_block_is() {
        let mut pages = Pages::new(1 << 30);
        let data = block(7, 2 * BLOCK_BYTES);
        pages.patch(file(1), (5, &data), 5 + 2 * BLOCK_BYTES);
        assert!(!pages.has(file(1), 0), "nobody knows its beginning");
        assert_eq!(pages.get(file(1), 1).unwrap().len() as u64, BLOCK_BYTES);
        assert_eq!(pages.get(file(1), 2).unwrap(), block(7, 5), "the file ends there");
        pages.patch(file(1), (2 * BLOCK_BYTES + 7, &block(8, 2)), 2 * BLOCK_BYTES + 9);
        assert_eq!(pages.get(file(1), 2).unwrap()[..], [7, 7, 7, 7, 7, 0, 0, 8, 8]);
    }

    #[test]
    fn what_is_cut_off_is_not_kept() {
        let mut pages = Pages::new(1 << 30);
        (0..3).for_each(|number| pages.put(file(1), number, block(1, BLOCK_BYTES)));
        pages.cut(file(1), BLOCK_BYTES + 3);
        assert_eq!(pages.get(file(1), 1).unwrap().len(), 3);
        assert!(pages.has(file(1), 0) && !pages.has(file(1), 2));
    }
}
