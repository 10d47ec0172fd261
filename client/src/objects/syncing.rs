//! Making durable what this client was told is done, and telling once what of that is lost.

use std::sync::atomic::Ordering;

use base::ObjectId;
use node::file_object;

use super::{Object, ObjectError, Objects, Wanted, error_of};
use crate::clock;
use crate::core::content::FileId;
use crate::core::files::{FileEvent, Handover};

impl Object {
    /// Makes durable everything that this client was told is written. If some of that may be lost, each handle is told
    /// so once.
    pub async fn sync(&self) -> Result<(), ObjectError> {
        let event = self.begin_sync().await?;
        self.end_sync(event)
    }

    /// The same for whoever waits for something else, too, and calls [`end_sync`](Self::end_sync) when that has come.
    pub(crate) async fn begin_sync(&self) -> Result<FileEvent, ObjectError> {
        let _permit = self.windows().for_change(0).await?;
        self.run(&Wanted::Sync).await
    }

    /// What an earlier client of the program was told is written of this object is owed by this one, too: whoever syncs it is told if that is lost.
    pub(crate) fn inherit(&self, before: &Self) {
        let handover = before.with_files(|files| files.hand_over(before.id));
        self.shared.with_objects(|objects| handover.into_iter().for_each(|all| objects.owe(self.id, all)));
    }

    /// The same of all that the client of `before` has, and whoever syncs something of which it has lost what nobody was told is told.
    pub(crate) fn inherit_all(&self, before: &Self) {
        let before = &before.shared;
        // Whatever it still sent would be refused.
        before.behind.end();
        before.told();
        let unsent: Vec<ObjectId> = {
            let contents = before.behind.contents();
            contents.untold().map(|FileId { volume, inode }| file_object(volume, inode)).collect()
        };
        let (handovers, lost) = before.with_objects(|objects| {
            (objects.core.hand_over_all(), objects.handles.untold().collect::<Vec<ObjectId>>())
        });
        self.shared.with_objects(|objects| {
            lost.into_iter().chain(unsent).for_each(|id| objects.handles.remember(id));
            handovers.into_iter().for_each(|(id, handover)| objects.owe(id, handover));
        });
        self.shared.wake();
    }

    /// Is told of what that one is told.
    pub(crate) fn take_place_of(&self, other: &Self) {
        self.losses.store(other.losses.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// What came of it.
    pub(crate) fn end_sync(&self, event: FileEvent) -> Result<(), ObjectError> {
        let known = self.losses.load(Ordering::Relaxed);
        let losses = self.shared.with_objects(|objects| objects.handles.take_losses(self.id, known));
        if self.losses.swap(losses, Ordering::Relaxed) != losses {
            return Err(ObjectError::Lost);
        }
        match event {
            FileEvent::Synced { .. } => Ok(()),
            event => Err(error_of(event)),
        }
    }
}

impl Objects {
    fn owe(&mut self, id: ObjectId, handover: Handover) {
        let now = clock::now();
        if !self.core.owe(now, id, handover) {
            self.handles.note_loss(id);
        } else if !self.handles.is_open(id) {
            // Nobody else is going to sync it.
            self.core.forget_file(now, id);
        }
    }
}
