//! Files of volumes as programs see them: content by offsets, beside the tree in which they have names.
//!
//! A file's content is an object of its own with a primary of its own, which begins with the first write. Who has size and times, the
//! tree or the content, changes as the file is used; whoever asks here is told by the one that has them. What a daemon gave when the file was opened is shown with each
//! request and renewed while the file is used, whoever may open it by then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base::{MonoTime, Span};
use bytes::Bytes;
use namespace::{Attributes, Change, Done, InodeId, Name, NameError, SetAttributes, SetTime, Who};
use node::file::{FileError, Stat};
use node::{CAPABILITY_LASTS, Capability, CapabilityError, OpenMode};

use crate::clock;
use crate::driver::Client;
use crate::holding::Held;
use crate::objects::{Object, ObjectError};
use crate::volumes::{Volume, VolumeError};

/// A capability is renewed when it is used after so long.
const RENEWED_AFTER: Span = Span::from_micros(CAPABILITY_LASTS.as_micros() / 2);

/// A file of a volume that is open. It lives on without a name until it is closed, or dropped with all of its clones.
#[derive(Clone, Debug)]
pub struct VolumeFile {
    volume: Volume,
    inode: InodeId,
    content: Object,
    /// Whether something may have been written to it. If not, the volume knows whether it was by now, and no object is asked for that
    /// nobody has.
    has_content: Arc<AtomicBool>,
    opened: Arc<Mutex<Opened>>,
    held: Arc<Held>,
}

/// What was given for the file, and when.
#[derive(Debug)]
struct Opened {
    capability: Capability,
    at: MonoTime,
}

impl Client {
    /// Opens a file of a volume.
    pub async fn open_file(
        &self,
        volume: &Volume,
        who: &Who,
        (inode, mode): (InodeId, OpenMode),
    ) -> Result<VolumeFile, VolumeError> {
        let (attributes, capability, held) = volume.open_to_hold(who, (inode, mode)).await?;
        Ok(self.file(volume, &attributes, (capability, held)))
    }

    /// Creates a file under a name that nothing has, and opens it to read and to write.
    pub async fn create_file(
        &self,
        volume: &Volume,
        who: &Who,
        place: (InodeId, Name),
        mode_and_umask: (u16, u16),
    ) -> Result<VolumeFile, VolumeError> {
        self.create_and_open(volume, who, place, mode_and_umask).await.map(|(_, file)| file)
    }

    /// The same, and says how it is.
    pub async fn create_and_open(
        &self,
        volume: &Volume,
        who: &Who,
        place: (InodeId, Name),
        mode_and_umask: (u16, u16),
    ) -> Result<(Attributes, VolumeFile), VolumeError> {
        let (attributes, opened) = volume.create_to_hold(who, place, mode_and_umask).await?;
        let file = match opened {
            Some(opened) => self.file(volume, &attributes, opened),
            // It is gone already, or a daemon has no keys: this says which.
            None => self.open_file(volume, who, (attributes.inode, OpenMode::ReadWrite)).await?,
        };
        Ok((attributes, file))
    }

    fn file(
        &self,
        volume: &Volume,
        attributes: &Attributes,
        (capability, held): (Capability, Held),
    ) -> VolumeFile {
        let content = self.content(capability);
        let has_content = Arc::new(AtomicBool::new(attributes.may_have_content()));
        let opened = Arc::new(Mutex::new(Opened { capability, at: clock::now() }));
        let (volume, inode, held) = (volume.clone(), capability.source.inode, Arc::new(held));
        VolumeFile { volume, inode, content, has_content, opened, held }
    }

    /// How an inode of a volume is. Size and times of a file come from whoever has them.
    pub async fn attributes(&self, volume: &Volume, inode: InodeId) -> Result<Attributes, VolumeError> {
        self.with_content(volume, volume.attributes(inode).await?).await
    }

    /// The same, for who was told just now what the tree knows.
    pub async fn with_content(
        &self,
        volume: &Volume,
        attributes: Attributes,
    ) -> Result<Attributes, VolumeError> {
        if attributes.lent.is_none() {
            return Ok(attributes);
        }
        let (attributes, capability) = volume.open(&Who::root(), attributes.inode, OpenMode::Look).await?;
        if attributes.lent.is_none() {
            return Ok(attributes);
        }
        let stat = self.content(capability).stat().await;
        with_content(volume, attributes, stat.map_err(VolumeError::from)).await
    }
}

impl VolumeFile {
    /// Which it is.
    pub const fn inode(&self) -> InodeId {
        self.inode
    }

    pub(crate) const fn volume(&self) -> &Volume {
        &self.volume
    }

    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// Whether no clone is left.
    pub(crate) fn is_last(&self) -> bool {
        Arc::strong_count(&self.held) == 1
    }

    /// What is shown for it is good for a while.
    pub(crate) async fn show_lately(&self) -> Result<(), VolumeError> {
        if clock::now() >= self.with_opened(|opened| opened.at) + RENEWED_AFTER {
            self.renew().await?;
        }
        Ok(())
    }

    /// What stands at `offset`, short where the file ends. At most [`READ_BYTES_MAX`](node::file::READ_BYTES_MAX)
    /// at once.
    pub async fn read(&self, offset: u64, length: u64) -> Result<Bytes, VolumeError> {
        if !self.may_have_content().await? {
            return Ok(Bytes::new());
        }
        match self.opened(|| self.content.read(offset, length)).await {
            // Nothing was ever written to it, unless it is gone.
            Err(VolumeError::Object(ObjectError::NoSuchObject)) => {
                self.volume.attributes(self.inode).await.map(|_| Bytes::new())
            }
            read => read,
        }
    }

    /// Puts data at `offset`. Returns once a majority has it; [`sync`](Self::sync) makes it outlive their power.
    /// At most [`WRITE_BYTES_MAX`](node::file::WRITE_BYTES_MAX) at once.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), VolumeError> {
        self.changed(|| self.content.write(offset, data.clone())).await.map(drop)
    }

    /// Puts data at the end. Returns where that was.
    pub async fn append(&self, data: Bytes) -> Result<u64, VolumeError> {
        self.changed(|| self.content.append(data.clone())).await
    }

    /// Sets its size. What is added reads as zeros.
    pub async fn truncate(&self, size: u64) -> Result<(), VolumeError> {
        self.changed(|| self.content.truncate(size)).await.map(drop)
    }

    /// Makes a hole, which reads as zeros.
    pub async fn punch(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        self.changed(|| self.content.punch(offset, length)).await.map(drop)
    }

    /// How it is. Size and times come from whoever has them.
    pub async fn attributes(&self) -> Result<Attributes, VolumeError> {
        self.completed(self.volume.attributes(self.inode).await?).await
    }

    /// The same, for who was told just now what the tree knows.
    pub async fn completed(&self, attributes: Attributes) -> Result<Attributes, VolumeError> {
        if attributes.lent.is_none() {
            return Ok(attributes);
        }
        let stat = self.opened(|| self.content.stat()).await;
        with_content(&self.volume, attributes, stat).await
    }

    /// Sets the time of the last change of its content.
    pub async fn set_modified(&self, who: &Who, time: SetTime) -> Result<Attributes, VolumeError> {
        let set = SetAttributes { mtime: Some(time), ..SetAttributes::default() };
        let change = Change::SetAttributes { inode: self.inode, set };
        loop {
            match self.volume.change(who, change.clone()).await {
                Ok(Done::Changed { attributes }) => return Ok(attributes),
                Ok(_) => return Err(ObjectError::Mismatch.into()),
                // It was lent to somebody at the same time, who gives it back when asked again.
                Err(VolumeError::Refused(NameError::Lent { .. })) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes durable what this client was told is written to it, and its names.
    pub async fn sync(&self) -> Result<(), VolumeError> {
        // Of a client that has ended nothing may be left, and nothing of what was never written is no answer to that.
        self.volume.present().await?;
        let (content, names) = tokio::join!(self.content.sync(), self.volume.sync());
        match content {
            // Nothing was ever written to it.
            Ok(()) | Err(ObjectError::NoSuchObject) => names,
            Err(error) => Err(error.into()),
        }
    }

    /// Whether anything may ever have been written to it.
    async fn may_have_content(&self) -> Result<bool, VolumeError> {
        if !self.has_content.load(Ordering::Relaxed)
            && self.volume.attributes(self.inode).await?.may_have_content()
        {
            self.has_content.store(true, Ordering::Relaxed);
        }
        Ok(self.has_content.load(Ordering::Relaxed))
    }

    /// Changes the content. From now on there may be some.
    async fn changed<T, F: Future<Output = Result<T, ObjectError>>>(
        &self,
        act: impl Fn() -> F,
    ) -> Result<T, VolumeError> {
        self.has_content.store(true, Ordering::Relaxed);
        self.opened(act).await
    }

    /// Does something with the content, and shows that the file is open.
    async fn opened<T, F: Future<Output = Result<T, ObjectError>>>(
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

/// What the tree knows of a file, with what its content knows of lends that are not older.
async fn with_content(
    volume: &Volume,
    attributes: Attributes,
    stat: Result<Stat, VolumeError>,
) -> Result<Attributes, VolumeError> {
    match stat {
        Ok(stat) if stat.lend >= attributes.lent.map(|lent| lent.generation) => {
            let ctime = attributes.ctime.max(stat.changed);
            Ok(Attributes { size: stat.size, mtime: stat.modified, ctime, ..attributes })
        }
        Ok(_) => Ok(attributes),
        // Nothing was ever written to it; or it was removed meanwhile, and then the volume says so.
        Err(VolumeError::Object(ObjectError::NoSuchObject)) => volume.attributes(attributes.inode).await,
        Err(error) => Err(error),
    }
}
