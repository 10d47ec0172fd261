//! Making durable what this client was told is done, and telling once what of that is lost.

use std::sync::atomic::Ordering;

use super::{Object, ObjectError, Wanted, error_of};
use crate::clock;
use crate::core::files::FileEvent;

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
        let Some(debt) = before.with_files(|files| files.debt(before.id)) else { return };
        self.shared.with_objects(|objects| {
            if !objects.core.owe(clock::now(), self.id, debt) {
                objects.handles.note_loss(self.id);
            }
        });
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
