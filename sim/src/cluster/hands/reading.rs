//! How users read files that may be lent, and ask how they are: as the client's library does.

use std::ops::Range;

use bytes::Bytes;
use client::core::content::{BLOCK_BYTES, LookStep, PlanMark, ReadStep, View};
use client::core::files::FileEvent;
use lease::Algorithm;
use namespace::{Attributes, LentTo};
use node::file::{Answer, FileError, Query, READ_BYTES_MAX};

use super::super::behind::is_expired;
use super::super::shape::Wanted;
use super::super::world::World;
use super::{Asked, Doing, IsHere, LOOK_EVERY, News, Task, Waits, What};
use crate::Violation;
use crate::check::file::FileOutcome;
use crate::checkers::contents::UseId;

impl<A: Algorithm> World<'_, A> {
    pub(super) fn read_on(
        &mut self,
        client: usize,
        doing: &mut Doing,
        news: News,
    ) -> Result<bool, Violation> {
        let Task::Read(id, ..) = doing.task else { return Ok(false) };
        let Some(mut step) = self.hears_of_read(client, doing, news) else {
            self.checkers.contents.void(self.now, id);
            return Ok(false);
        };
        loop {
            step = match step {
                ReadStep::Done(data) => {
                    self.has_read(client, (doing.opening, id), (&data, None))?;
                    return Ok(false);
                }
                ReadStep::Again => match self.next_of_read(client, doing) {
                    Some((ReadStep::Done(data), Some(view))) => {
                        self.has_read(client, (doing.opening, id), (&data, Some(view)))?;
                        return Ok(false);
                    }
                    Some((next, _)) => next,
                    None => {
                        self.checkers.contents.void(self.now, id);
                        return Ok(false);
                    }
                },
                ReadStep::Look => match self.look(client, doing) {
                    None => return Ok(true),
                    Some(attributes) => {
                        let looked = self.hears_of_read(client, doing, News::Looked(attributes, true));
                        looked.unwrap_or(ReadStep::Again)
                    }
                },
                step => match self.wants_for_read(client, doing, step) {
                    None => return Ok(true),
                    Some(next) => next,
                },
            };
        }
    }

    /// What to do next about a read, and who knew it if it is done by that.
    fn next_of_read(&mut self, client: usize, doing: &mut Doing) -> Option<(ReadStep, Option<View>)> {
        let Task::Read(_, reading, _) = &mut doing.task else { return None };
        self.with_known(client, doing.opening, |known, opening| {
            let next = reading.next(known, &opening.under);
            (next, reading.planned().map(|(_, view)| view))
        })
    }

    /// What to do when something was heard. None if that is the end.
    fn hears_of_read(&mut self, client: usize, doing: &mut Doing, news: News) -> Option<ReadStep> {
        let Task::Read(_, reading, blocks) = &mut doing.task else { return None };
        let step = match news {
            News::Next => Some(ReadStep::Again),
            News::Looked(attributes, _) => self.with_known(client, doing.opening, |known, opening| {
                reading.looked(known, &mut opening.under, &attributes)
            }),
            News::Said(said) => self
                .with_known(client, doing.opening, |_, opening| reading.answered(&mut opening.under, said)),
            News::Fetched(view, mark) => {
                let blocks = std::mem::take(blocks);
                self.with_known(client, doing.opening, |known, _| {
                    known.keep((view, mark), &blocks);
                    reading.fetched(known, &blocks)
                })
            }
            News::Event(_) => return None,
        };
        Some(step.unwrap_or(ReadStep::Again))
    }

    /// Does what a read wants. None if it goes on when there is something to hear.
    fn wants_for_read(&mut self, client: usize, doing: &mut Doing, step: ReadStep) -> Option<ReadStep> {
        let Task::Read(_, reading, _) = &mut doing.task else { return None };
        let now = self.clients[client].reading(self.now);
        match step {
            ReadStep::Wait => doing.waits = Some(Waits { until: now + LOOK_EVERY, what: What::Moment }),
            ReadStep::GiveBack => {
                let gives =
                    self.with_known(client, doing.opening, |known, _| known.contents.give_back(known.id));
                if gives != Some(true) {
                    return Some(ReadStep::Again);
                }
                doing.waits = Some(Waits { until: doing.until, what: What::Gone });
            }
            ReadStep::Fetch(missing, view, mark) => {
                let mut runs = runs_of(&missing);
                let first = runs.remove(0);
                self.fetch_blocks(client, doing, (first, runs, (view, mark)));
            }
            ReadStep::Ask(under) => {
                let range = reading.range().clone();
                let query = Query::Read { offset: range.start, length: range.end - range.start, under };
                self.want_of_content(client, doing, (Wanted::Ask(query), Asked::Content));
            }
            step @ (ReadStep::Done(_) | ReadStep::Again | ReadStep::Look) => return Some(step),
        }
        None
    }

    pub(super) fn fetch_blocks(
        &mut self,
        client: usize,
        doing: &mut Doing,
        (run, runs, by): (Range<u64>, Vec<Range<u64>>, (View, PlanMark)),
    ) {
        let (offset, length) = (run.start * BLOCK_BYTES, (run.end - run.start) * BLOCK_BYTES);
        let query = Query::Read { offset, length, under: None };
        self.want_of_content(client, doing, (Wanted::Ask(query), Asked::Run(run, runs, by)));
    }

    pub(super) fn has_read(
        &mut self,
        client: usize,
        (opening, id): (u64, UseId),
        (data, view): (&Bytes, Option<View>),
    ) -> Result<(), Violation> {
        let file = self.file_of(client, opening);
        let outcome = self.shape(file).read(data);
        if self.is_traced() {
            self.note(
                Some(self.files[file]),
                format_args!("client {client} has read {outcome:?} by {view:?}"),
            );
        }
        match view {
            None => {
                self.checkers.contents.returned(self.now, id, outcome);
                Ok(())
            }
            Some(View::Still(..)) => {
                self.summary.lends.reads_here += 1;
                self.checkers.contents.done_here(self.now, id, (None, outcome))
            }
            Some(View::Lent(lend)) => {
                self.summary.lends.reads_here += 1;
                self.checkers.contents.done_here(self.now, id, (Some(lend), outcome))
            }
        }
    }

    /// Some of the blocks that a read lacks are here, or will not be.
    pub(super) fn run_read(
        &mut self,
        client: usize,
        hand: usize,
        (mut doing, run, mut runs, by): (Doing, Range<u64>, Vec<Range<u64>>, (View, PlanMark)),
        event: &FileEvent,
    ) -> Result<(), Violation> {
        let data = match event {
            FileEvent::Answered { answer: Ok(Answer::Data(data)), .. } => data.to_bytes(),
            FileEvent::NoSuchFile { .. } | FileEvent::Answered { answer: Err(FileError::Removed), .. } => {
                Some(Bytes::new())
            }
            event => {
                if is_expired(event) {
                    self.renew(client, doing.opening, None);
                }
                None
            }
        };
        let Some(data) = data else {
            return self.hand_goes_on(client, hand, doing, News::Event(event.clone()));
        };
        let Task::Read(_, _, blocks) = &mut doing.task else { return self.hand_is_done(client, hand) };
        let length = usize::try_from(BLOCK_BYTES).expect("a block fits into memory");
        let mut pieces = data.chunks(length).map(|piece| data.slice_ref(piece));
        blocks.extend(run.map(|block| (block, pieces.next().unwrap_or_default())));
        if runs.is_empty() {
            return self.hand_goes_on(client, hand, doing, News::Fetched(by.0, by.1));
        }
        let next = runs.remove(0);
        self.fetch_blocks(client, &mut doing, (next, runs, by));
        self.keep_doing(client, hand, doing)
    }

    pub(super) fn look_on(
        &mut self,
        client: usize,
        doing: &mut Doing,
        news: News,
    ) -> Result<bool, Violation> {
        let opening = doing.opening;
        let Task::Look(id, looking) = &mut doing.task else { return Ok(false) };
        let id = *id;
        let (mut step, mut is_here) = match news {
            News::Next => (Some(LookStep::Look), false),
            News::Looked(attributes, is_here) => {
                (self.with_known(client, opening, |known, _| looking.looked(known, *attributes)), is_here)
            }
            News::Event(FileEvent::Answered { answer: Ok(Answer::Stat(stat)), .. }) => {
                (Some(looking.answered(Some(&stat))), false)
            }
            News::Event(
                FileEvent::NoSuchFile { .. } | FileEvent::Answered { answer: Err(FileError::Removed), .. },
            ) => (Some(looking.answered(None)), false),
            _ => (None, false),
        };
        loop {
            let Task::Look(_, _) = &mut doing.task else { return Ok(false) };
            step = match step {
                None => {
                    self.checkers.contents.void(self.now, id);
                    return Ok(false);
                }
                Some(LookStep::Done(attributes)) => {
                    self.has_looked(client, (opening, id), (&attributes, is_here))?;
                    return Ok(false);
                }
                Some(LookStep::Stat) => {
                    self.want_of_content(client, doing, (Wanted::Ask(Query::Stat), Asked::Content));
                    return Ok(true);
                }
                Some(LookStep::Look) => match self.look(client, doing) {
                    None => return Ok(doing.ticket.is_some() || doing.waits.is_some()),
                    Some(attributes) => {
                        is_here = true;
                        let Task::Look(_, looking) = &mut doing.task else { return Ok(false) };
                        self.with_known(client, opening, |known, _| looking.looked(known, *attributes))
                    }
                },
            };
        }
    }

    pub(super) fn has_looked(
        &mut self,
        client: usize,
        (opening, id): (u64, UseId),
        (attributes, is_here): (&Attributes, IsHere),
    ) -> Result<(), Violation> {
        let file = self.file_of(client, opening);
        let outcome = FileOutcome::Size(self.shape(file).model(attributes.size));
        if self.is_traced() {
            self.note(
                Some(self.files[file]),
                format_args!("client {client} sees {attributes:?}, here: {is_here}"),
            );
        }
        self.checkers.contents.dated(id, attributes.mtime);
        if !is_here {
            self.checkers.contents.returned(self.now, id, outcome);
            return Ok(());
        }
        self.summary.lends.stats_here += 1;
        let lent = attributes.lent.filter(|lent| lent.to != LentTo::Content);
        self.checkers.contents.done_here(self.now, id, (lent.map(|lent| lent.generation), outcome))
    }
}

/// Blocks that follow each other, as many as fit into one question.
fn runs_of(blocks: &[u64]) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::new();
    for &block in blocks {
        match runs.last_mut() {
            Some(run) if run.end == block && run.end - run.start < READ_BYTES_MAX / BLOCK_BYTES => {
                run.end += 1
            }
            _ => runs.push(block..block + 1),
        }
    }
    runs
}
