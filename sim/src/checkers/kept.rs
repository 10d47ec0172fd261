//! What of a file must be there when a lend has ended in which something may be lost: each byte is what it was when everything
//! was synced last, or what was put there since; and so is the length.
//!
//! What was written and not synced may be lost with its client, in any part. So nothing more can be said; and nothing less.

use std::collections::BTreeSet;

use crate::check::Specification;
use crate::check::file::{Content, FileModel, FileOp};

/// What may have become of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kept {
    /// What it is if nothing is lost.
    now: Vec<u8>,
    /// What each byte may be instead.
    bytes: Vec<BTreeSet<u8>>,
    sizes: BTreeSet<usize>,
}

impl Kept {
    /// All of it is safe.
    pub fn of(content: &Content) -> Self {
        Self { now: content.bytes.clone(), bytes: Vec::new(), sizes: BTreeSet::new() }
    }

    /// Something is done to it, and may be lost.
    pub fn change(&mut self, op: &FileOp) {
        let before = std::mem::take(&mut self.now);
        self.now = after(op, before.clone());
        self.sizes.insert(before.len());
        let count = before.len().max(self.now.len()).max(self.bytes.len());
        self.bytes.resize(count, BTreeSet::new());
        for (place, may_be) in self.bytes.iter_mut().enumerate() {
            may_be.insert(before.get(place).copied().unwrap_or(0));
        }
    }

    /// Something is done to it, and stays: where it decides what there is, nothing else may be there.
    pub fn keep(&mut self, op: &FileOp) {
        let count = self.bytes.len().max(self.now.len());
        let (zeros, ones) = (after(op, vec![0; count]), after(op, vec![1; count]));
        self.now = after(op, std::mem::take(&mut self.now));
        self.sizes = self.sizes.iter().map(|&size| after(op, vec![0; size]).len()).collect();
        self.bytes.resize(zeros.len(), BTreeSet::new());
        for (may_be, (zero, one)) in self.bytes.iter_mut().zip(zeros.iter().zip(&ones)) {
            if zero == one {
                may_be.clear();
            }
        }
    }

    /// What was read at `offset` and never was there, if anything.
    pub fn misread(&self, offset: usize, found: &[u8]) -> Option<String> {
        let mut read = found.iter().enumerate().map(|(place, byte)| (offset + place, *byte));
        let (place, byte) = read.find(|&(place, byte)| !self.may_be(place, byte))?;
        Some(format!("byte {place} was read as {byte}, and never was that"))
    }

    /// What is wrong with what is there, if anything.
    pub fn misfit(&self, found: &[u8]) -> Option<String> {
        let size = found.len();
        if size != self.now.len() && !self.may_end_at(size) {
            return Some(format!(
                "it has {size} bytes, and should have {} or {:?}",
                self.now.len(),
                self.sizes
            ));
        }
        let wrong = found.iter().enumerate().find(|(place, byte)| !self.may_be(*place, **byte));
        wrong.map(|(place, byte)| {
            let may_be = self.bytes.get(place).cloned().unwrap_or_default();
            format!("byte {place} is {byte}, and should be {:?} or {may_be:?}", self.now.get(place))
        })
    }

    /// Where a file may end of which some of what was written is lost: what was written behind may be there, and what was written
    /// before not.
    fn may_end_at(&self, size: usize) -> bool {
        let least = self.sizes.iter().copied().chain([self.now.len()]).min().unwrap_or_default();
        (least..=self.bytes.len().max(self.now.len())).contains(&size)
    }

    fn may_be(&self, place: usize, byte: u8) -> bool {
        let is_hole = place >= self.now.len() && byte == 0;
        is_hole
            || self.now.get(place) == Some(&byte)
            || self.bytes.get(place).is_some_and(|may_be| may_be.contains(&byte))
    }
}

/// What a change makes of these bytes.
fn after(op: &FileOp, bytes: Vec<u8>) -> Vec<u8> {
    let content = Content { bytes, is_removed: false };
    FileModel::default().step(&content, op, None).unwrap_or(content).bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: usize, data: &[u8]) -> FileOp {
        FileOp::Write { offset, data: data.to_vec() }
    }

    #[test]
    fn what_is_safe_is_there_as_it_was() {
        let kept = Kept::of(&[1, 2, 3].as_slice().into());
        assert_eq!(kept.misfit(&[1, 2, 3]), None);
        assert!(kept.misfit(&[1, 2]).is_some() && kept.misfit(&[1, 2, 4]).is_some());
        assert!(kept.misfit(&[1, 2, 3, 0]).is_some());
    }

    #[test]
    fn what_was_written_may_be_lost_in_parts_and_nothing_else_may_be_there() {
        let mut kept = Kept::of(&[1, 2, 3].as_slice().into());
        kept.change(&write(0, &[7]));
        kept.change(&write(2, &[8, 9]));
        for right in [&[1, 2, 3][..], &[7, 2, 3], &[1, 2, 8, 9], &[7, 2, 8, 9]] {
            assert_eq!(kept.misfit(right), None, "{right:?}");
        }
        for wrong in [&[2, 2, 3][..], &[7, 7, 3], &[7, 2], &[7, 2, 3, 9, 9], &[7, 2, 3, 5]] {
            assert!(kept.misfit(wrong).is_some(), "{wrong:?}");
        }
    }

    #[test]
    fn what_stays_is_there_though_something_before_it_is_lost() {
        let mut kept = Kept::of(&[1, 2, 3].as_slice().into());
        kept.change(&write(0, &[7, 7, 7, 7]));
        kept.keep(&write(1, &[8]));
        for right in [&[1, 8, 3][..], &[7, 8, 7, 7], &[1, 8, 3, 7]] {
            assert_eq!(kept.misfit(right), None, "{right:?}");
        }
        for wrong in [&[1, 2, 3][..], &[7, 7, 7, 7], &[1, 8]] {
            assert!(kept.misfit(wrong).is_some(), "{wrong:?}");
        }
        kept.keep(&FileOp::Truncate { size: 2 });
        assert!(kept.misfit(&[7, 8]).is_none() && kept.misfit(&[7, 8, 7]).is_some());
        kept.keep(&write(3, &[9]));
        assert!(kept.misfit(&[1, 8, 0, 9]).is_none() && kept.misfit(&[1, 8, 3, 9]).is_some());
    }

    #[test]
    fn what_was_cut_off_may_be_there_or_not() {
        let mut kept = Kept::of(&[1, 2, 3].as_slice().into());
        kept.change(&FileOp::Truncate { size: 1 });
        assert!(kept.misfit(&[1]).is_none() && kept.misfit(&[1, 2, 3]).is_none());
        assert!(kept.misfit(&[]).is_some() && kept.misfit(&[1, 5, 3]).is_some());
    }
}
