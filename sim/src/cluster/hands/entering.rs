//! How users wait for what their client has created by itself, and use directories that are lent to it: as the client's library does.

use client::core::content::FileId;
use lease::Algorithm;
use namespace::InodeId;

use super::super::ahead::Awaited;
use super::super::world::World;
use super::{Doing, For, News, Task, Waits, What};
use crate::Violation;
use crate::check::volume::VolumeOp;

impl<A: Algorithm> World<'_, A> {
    /// A user makes a directory, which is to be lent to its client.
    pub(in super::super) fn hand_makes_dir(
        &mut self,
        client: usize,
        hand: usize,
        (volume, op): (usize, VolumeOp),
    ) -> Result<(), Violation> {
        let mut doing = Doing::new(0, Task::Open, self.hand_deadline(client));
        self.ask_tree(client, &mut doing, (volume, op, For::MakeDir));
        self.keep_doing(client, hand, doing)
    }

    /// A user takes something away, or gives it another name, when all is entered that has to be.
    pub(in super::super) fn hand_removes(
        &mut self,
        client: usize,
        hand: usize,
        (volume, op): (usize, VolumeOp),
    ) -> Result<(), Violation> {
        let awaited = self.awaits(client, (volume, &op));
        let removes = awaited.as_ref().is_some_and(|awaited| awaited.removes);
        let mut doing = Doing::new(0, Task::Remove(volume, op, removes), self.hand_deadline(client));
        doing.awaited = awaited;
        self.hand_goes_on(client, hand, doing, News::Next)
    }

    /// Whether it goes on.
    pub(super) fn remove_on(&mut self, client: usize, doing: &mut Doing) -> bool {
        if let Some(awaited) = doing.awaited.take_if(|awaited| !self.is_entered(client, awaited)) {
            self.wait_for(client, doing, awaited);
            return true;
        }
        let Task::Remove(volume, op, _) = &doing.task else { return false };
        let (volume, op) = (*volume, op.clone());
        self.ask_tree(client, doing, (volume, op, For::Remove));
        true
    }

    /// What may have removed a directory is over, or never began.
    pub(super) fn end_remove(&mut self, client: usize, doing: &Doing, is_known: bool) {
        let Task::Remove(volume, _, removes) = doing.task else { return };
        let begun = doing.awaited.as_ref().and_then(|awaited| awaited.change);
        if let (Some(change), Some(caching)) = (begun, &mut self.clients[client].files.caching) {
            caching.cache.abandon(change);
        }
        if removes {
            self.end_removal(client, volume, is_known);
        }
    }

    pub(super) fn is_entered(&self, client: usize, awaited: &Awaited) -> bool {
        let behind = self.clients[client].files.behind.as_ref();
        behind.is_none_or(|behind| behind.ahead.is_entered(awaited))
    }

    /// It goes on when that is entered.
    pub(super) fn wait_for(&mut self, client: usize, doing: &mut Doing, awaited: Awaited) {
        let now = self.clients[client].reading(self.now);
        if let Some(behind) = self.clients[client].files.behind.as_mut() {
            behind.ahead.urge(now);
        }
        doing.awaited = Some(awaited);
        doing.waits = Some(Waits { until: doing.until, what: What::Entered });
    }

    /// Something is to be done when all is entered that its client has created until now.
    pub(super) fn await_all_entered(&self, client: usize, doing: &mut Doing) {
        let Some((volume, _)) = self.place_of(client, doing.opening) else { return };
        let behind = self.clients[client].files.behind.as_ref();
        doing.awaited = behind.map(|behind| behind.ahead.all(self.files[volume]));
    }

    /// Whether a question about a file waits until that is entered.
    pub(super) fn awaits_entry(&mut self, client: usize, doing: &mut Doing, inode: InodeId) -> bool {
        let Some((volume, _)) = self.place_of(client, doing.opening) else { return false };
        let op = super::trees::ask(namespace::Ask::Attributes { inode });
        let object = self.files[volume];
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return false };
        if !behind.ahead.is_entering(FileId { volume: object, inode }) {
            return false;
        }
        if let Some(awaited) = behind.ahead.awaits(object, &op) {
            self.wait_for(client, doing, awaited);
        }
        true
    }

    /// Whether something that is wanted of a content waits until its file is entered. If that is lost it is not wanted any more.
    pub(super) fn awaits_capability(&mut self, client: usize, doing: &mut Doing) -> bool {
        let now = self.clients[client].reading(self.now);
        let Some(behind) = self.clients[client].files.behind.as_ref() else { return false };
        let opening = behind.openings.get(&doing.opening);
        let Some(opening) = opening.filter(|opening| opening.capability.is_none()) else { return false };
        if opening.is_lost {
            doing.until = now;
            doing.waits = Some(Waits { until: now, what: What::Moment });
            return true;
        }
        let inode = opening.id.inode;
        self.awaits_entry(client, doing, inode);
        true
    }

    /// Whether a change would wait for what is created. Then whoever wants it does something else.
    pub(super) fn awaits_others(&mut self, client: usize, volume: usize, op: &VolumeOp) -> bool {
        let object = self.files[volume];
        let Some(behind) = self.clients[client].files.behind.as_mut() else { return false };
        behind.ahead.awaits(object, op).is_some_and(|awaited| !behind.ahead.is_entered(&awaited))
    }
}
