//! The content of a volume's file that somebody has open: its object, and what to show for it, renewed while it is used.

use std::sync::{Arc, Mutex};

use base::{MonoTime, Span};
use namespace::InodeId;
use node::file::FileError;
use node::{CAPABILITY_LASTS, Capability, CapabilityError, OpenMode};

use crate::clock;
use crate::core::content::FileId;
use crate::driver::Shared;
use crate::holding::Kept;
use crate::objects::{Object, ObjectError};
use crate::volumes::{Volume, VolumeError};

/// A capability is renewed when it is used after so long.
const RENEWED_AFTER: Span = Span::from_micros(CAPABILITY_LASTS.as_micros() / 2);

/// Clones are of the same opening.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) volume: Volume,
    pub(crate) inode: InodeId,
    pub(crate) content: Object,
    opened: Arc<Mutex<Opened>>,
    /// The file stays open as long as this is here.
    kept: Arc<Kept>,
}

/// What was given for the file, and when.
#[derive(Debug)]
struct Opened {
    capability: Capability,
    at: MonoTime,
}

impl Source {
    pub(crate) fn new(volume: &Volume, capability: Capability, kept: Arc<Kept>) -> Self {
        let content = volume.tree().content(capability);
        let opened = Arc::new(Mutex::new(Opened { capability, at: clock::now() }));
        Self { volume: volume.clone(), inode: capability.source.inode, content, opened, kept }
    }

    /// What keeps the file open.
    pub(crate) fn kept(&self) -> Arc<Kept> {
        Arc::clone(&self.kept)
    }

    /// Which file it is.
    pub(crate) const fn id(&self) -> FileId {
        FileId { volume: self.volume.object(), inode: self.inode }
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        self.content.shared()
    }

    /// Whether it was opened to be changed.
    pub(crate) fn is_for_writing(&self) -> bool {
        self.with_opened(|opened| opened.capability.open.mode == OpenMode::ReadWrite)
    }

    /// What is shown for it is good for a while.
    pub(crate) async fn show_lately(&self) -> Result<(), VolumeError> {
        if clock::now() >= self.with_opened(|opened| opened.at) + RENEWED_AFTER {
            self.renew().await?;
        }
        Ok(())
    }

    /// Does something with the content, and shows that the file is open.
    pub(crate) async fn opened<T, F: Future<Output = Result<T, ObjectError>>>(
        &self,
        act: impl Fn() -> F,
    ) -> Result<T, VolumeError> {
        self.volume.present().await?;
        self.show_lately().await?;
        match act().await {
            // The machine may have slept.
            Err(ObjectError::Refused(FileError::Capability(CapabilityError::Expired { .. }))) => {
                self.renew().await?;
                Ok(act().await?)
            }
            done => Ok(done?),
        }
    }

    async fn renew(&self) -> Result<(), VolumeError> {
        let (before, at) = (self.with_opened(|opened| opened.capability), clock::now());
        let (_, capability) = self.volume.renew(&before).await?;
        self.content.show(capability);
        self.with_opened(|opened| *opened = Opened { capability, at });
        Ok(())
    }

    fn with_opened<T>(&self, act: impl FnOnce(&mut Opened) -> T) -> T {
        act(&mut self.opened.lock().expect("nobody fails while holding it"))
    }
}
