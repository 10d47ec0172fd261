//! The content of a volume's file that somebody has open: its object, and what to show for it, renewed while it is used.

use std::sync::Arc;

use base::Span;
use namespace::InodeId;
use node::{CAPABILITY_LASTS, Capability, OpenMode};
use tokio::time::timeout;

use crate::ahead::{Entered, not_entered};
use crate::clock;
use crate::core::content::FileId;
use crate::driver::Shared;
use crate::holding::Kept;
use crate::objects::{Object, ObjectError};
use crate::volumes::{Volume, VolumeError};

/// A capability is renewed when it is used after so long. Who was given one lately and is told that it has expired asks for no other:
/// then clocks of daemons differ by far.
const RENEWED_AFTER: Span = Span::from_micros(CAPABILITY_LASTS.as_micros() / 2);

/// Clones are of the same opening.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) volume: Volume,
    pub(crate) inode: InodeId,
    pub(crate) content: Object,
    mode: OpenMode,
    /// What became of a file that this client has created or opened by itself.
    entered: Option<Entered>,
    /// The file stays open as long as this is here.
    kept: Arc<Kept>,
}

impl Source {
    pub(crate) fn new(volume: &Volume, capability: Capability, kept: Arc<Kept>) -> Self {
        let content = volume.tree().content(capability);
        let (inode, mode) = (capability.source.inode, capability.open.mode);
        Self { volume: volume.anew(), inode, content, mode, entered: None, kept }
    }

    /// The same of a file that is to be entered, or to be opened. What to show for it comes with that.
    pub(crate) fn entering(volume: &Volume, mode: OpenMode, (kept, entered): (Arc<Kept>, Entered)) -> Self {
        let inode = kept.inode();
        let content = volume.tree().content_of(node::file_object(volume.object(), inode));
        let volume = volume.anew();
        Self { volume, inode, content, mode, entered: Some(entered), kept }
    }

    /// The same file, opened once more.
    pub(crate) fn again(&self) -> Self {
        Self { volume: self.volume.anew(), content: self.content.again(), ..self.clone() }
    }

    /// Waits until the volume has the file, and has it open. It has, unless this client did that by itself.
    pub(crate) async fn entered(&self) -> Result<(), VolumeError> {
        let Some(entered) = &self.entered else { return Ok(()) };
        if let Some(told) = &*entered.borrow() {
            return told.clone();
        }
        self.shared().ahead.urge();
        let mut entered = entered.clone();
        let told = entered.wait_for(Option::is_some).await.map(|told| told.clone());
        told.ok().flatten().unwrap_or_else(|| Err(ObjectError::Closed.into()))
    }

    /// What keeps the file open.
    pub(crate) fn kept(&self) -> Arc<Kept> {
        Arc::clone(&self.kept)
    }

    /// Whether nothing else keeps it open.
    pub(crate) fn is_last(&self) -> bool {
        Arc::strong_count(&self.kept) == 1
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
        self.mode == OpenMode::ReadWrite
    }

    /// Does something that takes the file to be open, and shows that it is. What this waits for may last so long that what is shown
    /// expires meanwhile.
    pub(crate) async fn opened<T, E: Into<VolumeError>, F: Future<Output = Result<T, E>>>(
        &self,
        act: impl Fn() -> F,
    ) -> Result<T, VolumeError> {
        self.volume.present().await?;
        let patience = self.content.patience();
        timeout(patience, self.entered()).await.unwrap_or_else(|_| Err(not_entered(patience).into()))?;
        if self.shown_for() >= RENEWED_AFTER {
            self.renew().await?;
        }
        let mut renewed_at = None;
        loop {
            let done: Result<T, VolumeError> = act().await.map_err(Into::into);
            let is_new = renewed_at.is_some_and(|at| clock::now().since(at) < RENEWED_AFTER);
            match done {
                // The machine may have slept, or no daemon was there.
                Err(error) if error.says_expired() && !is_new => self.renew().await?,
                done => return done,
            }
            renewed_at = Some(clock::now());
        }
    }

    /// How long ago that was given which is shown now.
    fn shown_for(&self) -> Span {
        let (file, now) = (self.content.id(), clock::now());
        self.content.with_files(|files| now.since(files.shown_since(file, self.mode).unwrap_or_default()))
    }

    /// Has renewed what was given last, for whichever opening.
    async fn renew(&self) -> Result<(), VolumeError> {
        let file = self.content.id();
        let Some(before) = self.content.with_files(|files| files.to_renew(file, self.mode)) else {
            return Ok(());
        };
        let (_, capability) = self.volume.renew(&before).await?;
        self.content.show(capability);
        Ok(())
    }
}
