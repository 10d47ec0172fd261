//! How users change files that may be lent, and have them lent: as the client's library does.

use client::core::content::{Borrowed, ChangeStep, FileId, Lent};
use client::core::files::FileEvent;
use lease::Algorithm;
use namespace::{Attributes, Change as TreeChange, Done as TreeDone, Generation, LentTo, NameError, Op, Who};
use node::file::{Change, Done, FileError};

use super::super::behind::is_expired;
use super::super::shape::Wanted;
use super::super::volumes::SELF;
use super::super::world::World;
use super::{Asked, Did, Doing, For, KNOWN_AFTER, News, Task, Waits, What};
use crate::Violation;
use crate::check::file::{FileOp, FileOutcome};
use crate::check::volume::VolumeOp;

impl<A: Algorithm> World<'_, A> {
    pub(super) fn change_on(
        &mut self,
        client: usize,
        doing: &mut Doing,
        news: News,
    ) -> Result<bool, Violation> {
        match news {
            News::Next | News::Looked(..) | News::Said(_) | News::Fetched(..) => {}
            News::Event(event) => return self.changed(client, doing, &event),
        }
        let opening = doing.opening;
        let Task::Change(id, ..) = doing.task else { return Ok(false) };
        let what = match self.next_of_change(client, doing) {
            None => {
                self.checkers.contents.void(self.now, id);
                return Ok(false);
            }
            Some(ChangeStep::Done((outcome, lend))) => {
                self.summary.lends.changes_here += 1;
                let outcome = outcome.unwrap_or(FileOutcome::Refused);
                if self.is_traced() {
                    let what = format!("client {client} does {:?} under {lend:?}: {outcome:?}", doing.task);
                    self.note(None, format_args!("{what}"));
                }
                self.checkers.contents.done_here(self.now, id, (Some(lend), outcome))?;
                return Ok(false);
            }
            Some(ChangeStep::Through) => {
                self.summary.lends.through += 1;
                self.want_change(client, doing);
                return Ok(true);
            }
            Some(ChangeStep::Borrow) => {
                let Some((volume, inode)) = self.place_of(client, opening) else { return Ok(false) };
                let change = TreeChange::Lend { inode, to: LentTo::Client(SELF) };
                let op = VolumeOp::Change(Op::wanted(Who::root(), change).into());
                self.ask_tree(client, doing, (volume, op, For::Borrow));
                return Ok(true);
            }
            Some(ChangeStep::WaitForRoom) => What::Room,
            Some(ChangeStep::WaitForEnd(lend)) => What::End(lend),
            Some(ChangeStep::GiveBack) => What::Gone,
        };
        doing.waits = Some(Waits { until: doing.until, what });
        Ok(true)
    }

    /// What to do next about a change. What is done here is done.
    fn next_of_change(&mut self, client: usize, doing: &mut Doing) -> Option<ChangeStep<(Did, Generation)>> {
        let machine = &self.clients[client];
        let at = (machine.reading(self.now), machine.clock.reading(self.now));
        let shape = self.shape(self.file_of(client, doing.opening));
        let Task::Change(_, op, changing) = &mut doing.task else { return None };
        self.with_known(client, doing.opening, |known, opening| {
            let (through, id) = (opening.through, opening.id);
            changing.next(known, &through, |known, generation| {
                let (contents, file) = (&mut *known.contents, (id, generation));
                let did = match (shape.to_bytes(op), shape.to_real(op)) {
                    (Some((offset, data)), _) => contents.write(at, file, (offset, &data)).map(|done| {
                        done.map(|at| match op {
                            FileOp::Append { .. } => FileOutcome::Appended(shape.model(at)),
                            _ => FileOutcome::Done,
                        })
                    }),
                    (None, Wanted::Change(Change::Truncate { size })) => {
                        contents.truncate(at, file, size).map(|done| done.map(|()| FileOutcome::Done))
                    }
                    _ => None,
                };
                did.map(|did| (did, generation))
            })
        })
    }

    pub(super) fn want_change(&mut self, client: usize, doing: &mut Doing) {
        let shape = self.shape(self.file_of(client, doing.opening));
        let Task::Change(_, op, ..) = &doing.task else { return };
        let wanted = shape.to_real(op);
        self.want_of_content(client, doing, (wanted, Asked::Content));
    }

    /// The content was asked to change, and this came of it.
    pub(super) fn changed(
        &mut self,
        client: usize,
        doing: &mut Doing,
        event: &FileEvent,
    ) -> Result<bool, Violation> {
        let opening = doing.opening;
        let file = self.file_of(client, opening);
        doing.asked = Asked::Nothing;
        let Task::Change(id, op, _) = &mut doing.task else { return Ok(false) };
        let id = *id;
        match event {
            FileEvent::Changed { ticket, outcome: outcome @ Ok(_), level, .. } => {
                let told = self.shape(file).changed(op, outcome);
                self.checkers.contents.returned(self.now, id, told);
                self.acknowledged(client, (file, *ticket), *level)?;
                Ok(false)
            }
            event if is_expired(event) => {
                self.checkers.contents.void(self.now, id);
                self.renew(client, opening, None);
                Ok(false)
            }
            FileEvent::Changed { .. }
            | FileEvent::Refused { .. }
            | FileEvent::NoSuchFile { .. }
            | FileEvent::Full { .. }
            | FileEvent::GivenUp { was_sent: false, .. } => {
                self.checkers.contents.void(self.now, id);
                Ok(false)
            }
            // Whether it took effect nobody knows.
            FileEvent::Expired { .. } => {
                self.told_over(client, self.files[file], None);
                Ok(false)
            }
            _ => Ok(false),
        }
    }

    /// The volume was asked to lend a file.
    pub(super) fn borrowed(
        &mut self,
        client: usize,
        hand: usize,
        mut doing: Doing,
        outcome: &Result<Done, FileError>,
    ) -> Result<(), Violation> {
        let now = self.clients[client].reading(self.now);
        let opening = doing.opening;
        let attributes = match outcome {
            Ok(Done::Tree(done)) => match &**done {
                TreeDone::Changed { attributes } => Some(attributes.clone()),
                _ => None,
            },
            Err(FileError::Tree(NameError::Lent { .. })) => None,
            _ => {
                self.give_up_on(client, &doing);
                return self.hand_is_done(client, hand);
            }
        };
        let lent = attributes.as_ref().map_or(Lent::ToOther, Lent::Shown);
        let Task::Change(_, _, changing) = &mut doing.task else { return self.hand_is_done(client, hand) };
        let borrowed = self
            .with_known(client, opening, |known, opening| changing.lent(known, &mut opening.through, &lent));
        if let (Some(Borrowed::Own(lend)), Some(attributes)) = (borrowed, &attributes) {
            self.adopt_for(client, opening, attributes);
            let is_known = self
                .with_known(client, opening, |known, _| known.contents.generation(known.id) == Some(lend));
            if is_known != Some(true) {
                doing.waits = Some(Waits { until: now + KNOWN_AFTER, what: What::Known(lend, false) });
                return self.keep_doing(client, hand, doing);
            }
        }
        self.hand_goes_on(client, hand, doing, News::Next)
    }

    /// A file is open, and may be lent to this client by that.
    pub(super) fn opened_to_lend(
        &mut self,
        client: usize,
        (capability, attributes): (node::Capability, &Attributes),
    ) -> Result<(), Violation> {
        let source = capability.source;
        let place =
            self.contents.iter().position(|of| (of.volume, of.inode) == (source.volume, source.inode));
        let uses = &mut self.clients[client].files;
        let (Some(core), Some(behind)) = (&mut uses.core, &mut uses.behind) else { return Ok(()) };
        let Some(place) = place else {
            // Nobody watches what becomes of it.
            core.close_held(source.volume, source.inode);
            return Ok(());
        };
        let id = FileId { volume: source.volume, inode: source.inode };
        let file = self.plan.files.count as usize + self.plan.volumes.count as usize + place;
        let opening = behind.open(id, (file, Some(capability)));
        self.adopt_for(client, opening, attributes);
        Ok(())
    }

    /// A file may be lent to a client, as its volume says.
    pub(in super::super) fn adopt_for(&mut self, client: usize, opening: u64, attributes: &Attributes) {
        let now = self.clients[client].reading(self.now);
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return };
        let Some((id, object)) = behind.openings.get(&opening).map(|opening| (opening.id, opening.object))
        else {
            return;
        };
        let lend = behind.contents.own(attributes);
        let known = behind.contents.generation(id);
        if let Some(before) = behind.adopt(now, attributes, opening) {
            self.checkers.contents.may_lose(
                self.now,
                object,
                before,
                "its client has heard of the next lend".to_owned(),
            );
        }
        let behind = self.clients[client].files.behind.as_ref();
        let is_new = lend.is_some()
            && known != lend
            && behind.and_then(|behind| behind.contents.generation(id)) == lend;
        self.summary.lends.adopted += u64::from(is_new);
        if self.is_traced() {
            self.note(Some(object), format_args!("client {client} is lent {id:?} by {lend:?}: {is_new}"));
        }
    }
}
