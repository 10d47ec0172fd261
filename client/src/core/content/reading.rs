//! How a file is read, step by step, by whoever has it open.
//!
//! What a daemon says of content is what somebody has written to it at some time. Whoever reads makes sure that this is what is to be
//! seen now: because nobody changes the content while the volume grants that, because the client has the file lent, because the content is
//! asked under the lend that the volume names, or because the volume says afterwards that nothing was lent meanwhile.
//!
//! # Contract
//!
//! [`next`](Reading::next) says what to do; what comes of that is told by the method that the step names, which says what to do then.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use namespace::{Attributes, Generation};

use super::known::{Known, Whose, is_still};
use super::{BLOCK_BYTES, Plan, PlanMark, View, index};

/// A lend that nothing may be answered by is given back after so many looks.
const LOOKS_MAX: u32 = 8;

/// How the content of a file has answered whoever has it open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Under {
    /// Under which lend it answers, as it seemed last.
    under: Option<Generation>,
    /// Which lend it did not know of.
    unknown: Option<Generation>,
}

/// What is to be done for a read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReadStep {
    /// This was read.
    Done(Bytes),
    /// Read these blocks from the content, [keep](Known::keep) them by that, and tell by [`fetched`](Reading::fetched).
    Fetch(Vec<u64>, View, PlanMark),
    /// Read from the content, under this lend if any, and tell by [`answered`](Reading::answered).
    Ask(Option<Generation>),
    /// Ask the volume how the file is, and tell by [`looked`](Reading::looked).
    Look,
    /// Something has changed: ask for the [next](Reading::next) step.
    Again,
    /// The same after a moment, or when something is different.
    Wait,
    /// The same when what is lent to this client is returned.
    GiveBack,
}

/// What a content says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// This stands there.
    Data(Bytes),
    /// It is not lent by that.
    NotLent,
    /// Nothing was ever written to it, or it is gone.
    Nothing,
}

#[derive(Clone, Debug)]
enum Stage {
    Begun,
    Fetching(Plan, View),
    /// The blocks are here, and the volume is asked whether they still are what they were.
    Fetched(Bytes, Option<Generation>),
    /// Asked under a lend.
    Under(Generation),
    First,
    /// Asked without one: the volume has not lent it, or the content does not know of the lend yet.
    Still(Option<Generation>),
    Unknown(Generation),
    /// This was read so, and the volume is asked whether all is as it was.
    ReadStill(Bytes, Option<Generation>),
    ReadUnknown(Bytes, Generation),
}

/// One read.
#[derive(Clone, Debug)]
pub struct Reading {
    range: Range<u64>,
    stage: Stage,
    looks: u32,
    /// What was read by a plan, and by which view.
    planned: Option<(Range<u64>, View)>,
}

impl Reading {
    /// Somebody wants to read this.
    pub const fn new(range: Range<u64>) -> Self {
        Self { range, stage: Stage::Begun, looks: 0, planned: None }
    }

    /// What is read.
    pub const fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// What was read and who knew that it may be, if it was known before the content was asked.
    pub fn planned(&self) -> Option<(Range<u64>, View)> {
        self.planned.clone()
    }

    /// What to do first, or when something is different.
    pub fn next(&mut self, known: &mut Known<'_>, under: &Under) -> ReadStep {
        self.planned = None;
        match known.plan(self.range.clone()) {
            Some((plan, view)) if plan.missing.is_empty() => self.done_by(&plan, view, &[]),
            Some((plan, view)) => {
                let step = ReadStep::Fetch(plan.missing.clone(), view, plan.mark);
                self.stage = Stage::Fetching(plan, view);
                step
            }
            None => match under.under {
                Some(generation) => {
                    self.stage = Stage::Under(generation);
                    ReadStep::Ask(Some(generation))
                }
                None => {
                    self.stage = Stage::First;
                    ReadStep::Look
                }
            },
        }
    }

    /// The blocks that were missing have been read.
    pub fn fetched(&mut self, known: &mut Known<'_>, blocks: &[(u64, Bytes)]) -> ReadStep {
        let Stage::Fetching(plan, view) = std::mem::replace(&mut self.stage, Stage::Begun) else {
            return ReadStep::Again;
        };
        match view {
            View::Still(tag, _) if !known.stays(tag) => {
                self.planned = Some((plan.range().clone(), view));
                self.stage = Stage::Fetched(plan.assemble(blocks), tag);
                ReadStep::Look
            }
            // Some of what was written since may have come before it, and what was written before that not.
            View::Lent(_) if known.contents.may_differ(known.id, plan.mark, &plan.missing) => ReadStep::Again,
            View::Still(..) | View::Lent(_) => self.done_by(&plan, view, blocks),
        }
    }

    /// The content has answered.
    pub fn answered(&mut self, under: &mut Under, said: Said) -> ReadStep {
        match (std::mem::replace(&mut self.stage, Stage::Begun), said) {
            (Stage::Under(_), Said::Data(data)) => return ReadStep::Done(data),
            (Stage::Under(generation), Said::NotLent | Said::Nothing) => {
                *under = Under { under: None, unknown: Some(generation) };
                return ReadStep::Again;
            }
            (Stage::Still(tag), Said::Data(data)) => self.stage = Stage::ReadStill(data, tag),
            (Stage::Still(tag), Said::Nothing) => self.stage = Stage::ReadStill(Bytes::new(), tag),
            (Stage::Unknown(lend), Said::Data(data)) => self.stage = Stage::ReadUnknown(data, lend),
            (Stage::Unknown(lend), Said::Nothing) => self.stage = Stage::ReadUnknown(Bytes::new(), lend),
            _ => return ReadStep::Again,
        }
        ReadStep::Look
    }

    /// The volume says that the file is like this.
    pub fn looked(&mut self, known: &Known<'_>, under: &mut Under, attributes: &Attributes) -> ReadStep {
        let mut shown = attributes.clone();
        let whose = known.contents.show(known.id.volume, &mut shown);
        match std::mem::replace(&mut self.stage, Stage::Begun) {
            Stage::Fetched(data, tag) | Stage::ReadStill(data, tag) if is_still(attributes, tag) => {
                ReadStep::Done(data)
            }
            Stage::ReadUnknown(data, lend) if whose == Whose::Content(lend) => ReadStep::Done(data),
            Stage::First => self.begin(whose, (attributes.last_lend, under)),
            _ => ReadStep::Again,
        }
    }

    /// It is known whose the file is.
    fn begin(&mut self, whose: Whose, (tag, under): (Option<Generation>, &mut Under)) -> ReadStep {
        match whose {
            Whose::Tree if tag.is_none() => ReadStep::Done(Bytes::new()),
            Whose::Tree => {
                self.stage = Stage::Still(tag);
                ReadStep::Ask(None)
            }
            Whose::Content(generation) if under.unknown == Some(generation) => {
                self.stage = Stage::Unknown(generation);
                ReadStep::Ask(None)
            }
            Whose::Content(generation) => {
                under.under = Some(generation);
                ReadStep::Again
            }
            Whose::Own | Whose::Leaving(_) | Whose::Other => {
                self.looks += 1;
                if self.looks == LOOKS_MAX { ReadStep::GiveBack } else { ReadStep::Wait }
            }
        }
    }

    fn done_by(&mut self, plan: &Plan, view: View, blocks: &[(u64, Bytes)]) -> ReadStep {
        self.planned = Some((plan.range().clone(), view));
        ReadStep::Done(plan.assemble(blocks))
    }
}

impl View {
    /// Whether what was read by one is good for the other.
    pub fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Still(tag, _), Self::Still(other, _)) => tag == other,
            (Self::Lent(generation), Self::Lent(other)) => generation == other,
            (Self::Still(..), Self::Lent(_)) | (Self::Lent(_), Self::Still(..)) => false,
        }
    }
}

impl Plan {
    /// Where what is read begins and ends.
    pub const fn range(&self) -> &Range<u64> {
        &self.range
    }

    /// What is read, with the blocks that a daemon gave.
    pub fn assemble(&self, fetched: &[(u64, Bytes)]) -> Bytes {
        if let ([], [(offset, data)]) = (fetched, &self.pieces[..])
            && let Some(from) = self.range.start.checked_sub(*offset)
            && offset + data.len() as u64 >= self.range.end
        {
            return data.slice(index(from)..index(self.range.end - offset));
        }
        let mut all = BytesMut::zeroed(index(self.range.end - self.range.start));
        for (block, data) in fetched {
            let start = block * BLOCK_BYTES;
            let length = self.upto.saturating_sub(start).min(data.len() as u64);
            self.place(&mut all, start, &data[..index(length)]);
        }
        self.pieces.iter().for_each(|(offset, data)| self.place(&mut all, *offset, data));
        all.freeze()
    }

    fn place(&self, all: &mut [u8], offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let (from, upto) = (offset.max(self.range.start), end.min(self.range.end));
        if from < upto {
            let there = index(from - self.range.start)..index(upto - self.range.start);
            all[there].copy_from_slice(&data[index(from - offset)..index(upto - offset)]);
        }
    }
}
