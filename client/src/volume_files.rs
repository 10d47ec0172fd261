//! Files of volumes as programs see them: content by offsets, beside the tree in which they have names.
//!
//! A file's content is an object of its own with a primary of its own. Who has size and times, the tree or the content, changes as the
//! file is used; whoever asks here is told by the one that has them.

use bytes::Bytes;
use namespace::{Attributes, Change, Done, InodeId, Kind, Make, Name, NameError, SetAttributes, Who};
use node::file::{FileOf, Stat};

use crate::driver::Client;
use crate::objects::{Object, ObjectError};
use crate::volumes::{Volume, VolumeError};

/// A file of a volume.
#[derive(Clone, Debug)]
pub struct VolumeFile {
    volume: Volume,
    inode: InodeId,
    content: Object,
}

impl Client {
    /// A file by its inode, which need not be there.
    pub fn file(&self, volume: &Volume, inode: InodeId) -> VolumeFile {
        let content = self.content(FileOf { volume: volume.object(), inode });
        VolumeFile { volume: volume.clone(), inode, content }
    }

    /// Creates a file under a name that nothing has.
    pub async fn create_file(
        &self,
        volume: &Volume,
        who: &Who,
        (dir, name): (InodeId, Name),
        (mode, umask): (u16, u16),
    ) -> Result<VolumeFile, VolumeError> {
        let attributes = volume.make(who, (dir, name), (Make::file(), mode, umask)).await?;
        Ok(self.file(volume, attributes.inode))
    }
}

impl VolumeFile {
    /// Which it is.
    pub const fn inode(&self) -> InodeId {
        self.inode
    }

    /// What stands at `offset`, short where the file ends. At most [`READ_BYTES_MAX`](node::file::READ_BYTES_MAX)
    /// at once.
    pub async fn read(&self, offset: u64, length: u64) -> Result<Bytes, VolumeError> {
        match self.content.read(offset, length).await {
            // Nothing was ever written to it.
            Err(ObjectError::NoSuchObject) => self.check_there().await.map(|()| Bytes::new()),
            read => Ok(read?),
        }
    }

    /// Puts data at `offset`. Returns once a majority has it; [`sync`](Self::sync) makes it outlive their power.
    /// At most [`WRITE_BYTES_MAX`](node::file::WRITE_BYTES_MAX) at once.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<(), VolumeError> {
        Ok(self.content.write(offset, data).await.map(drop)?)
    }

    /// Puts data at the end. Returns where that was.
    pub async fn append(&self, data: Bytes) -> Result<u64, VolumeError> {
        Ok(self.content.append(data).await?)
    }

    /// Sets its size. What is added reads as zeros.
    pub async fn truncate(&self, size: u64) -> Result<(), VolumeError> {
        Ok(self.content.truncate(size).await.map(drop)?)
    }

    /// Makes a hole, which reads as zeros.
    pub async fn punch(&self, offset: u64, length: u64) -> Result<(), VolumeError> {
        Ok(self.content.punch(offset, length).await.map(drop)?)
    }

    /// How it is. Size and times come from whoever has them.
    pub async fn attributes(&self) -> Result<Attributes, VolumeError> {
        let attributes = self.volume.attributes(self.inode).await?;
        if attributes.lent.is_none() {
            return Ok(attributes);
        }
        match self.content.stat().await {
            Ok(stat) => Ok(with_content(attributes, &stat)),
            // Nothing was ever written to it; or it was removed meanwhile, and then the volume says so.
            Err(ObjectError::NoSuchObject) => self.volume.attributes(self.inode).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Sets the time of the last change of its content.
    pub async fn set_modified(&self, who: &Who, time: namespace::SetTime) -> Result<Attributes, VolumeError> {
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
        let content = async {
            match self.content.sync().await {
                Err(ObjectError::NoSuchObject) => Ok(()),
                synced => synced,
            }
        };
        let (content, names) = tokio::join!(content, self.volume.sync());
        content?;
        names
    }

    async fn check_there(&self) -> Result<(), VolumeError> {
        let attributes = self.volume.attributes(self.inode).await?;
        if attributes.kind == Kind::File {
            Ok(())
        } else {
            Err(NameError::WrongKind { inode: self.inode }.into())
        }
    }
}

/// What the tree knows of a file, with what its content knows of lends that are not older.
fn with_content(attributes: Attributes, stat: &Stat) -> Attributes {
    if stat.lend < attributes.lent {
        return attributes;
    }
    let ctime = attributes.ctime.max(stat.changed);
    Attributes { size: stat.size, mtime: stat.modified, ctime, ..attributes }
}
