//! The content of files: opening, reading, writing, cutting. Here, and nowhere else, a file is opened and closed.
//!
//! A write is answered when a majority of the daemons has it, so there is nothing to be written back when a file is closed, and nothing to
//! be lost with this process.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use bytes::Bytes;
use client::{READ_BYTES_MAX, VolumeError, VolumeFile, WRITE_BYTES_MAX};
use namespace::{Ask, Attributes, InodeId, Kind, Name, NameError, Rights, Who};
use node::OpenMode;

use super::names::{Place, find};
use super::{Fs, FsError};
use crate::caller::Caller;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenHow {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Each write goes to the end of the file, wherever that is.
    pub(crate) append: bool,
    /// To be run.
    pub(crate) execute: bool,
    /// A file that is there is not created.
    pub(crate) exclusive: bool,
    /// A file that is there is cut.
    pub(crate) truncate: bool,
}

/// What was opened, and how the kernel is to use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Opened {
    pub(crate) handle: u64,
    /// The kernel keeps nothing of it: where it ends only the daemons know.
    pub(crate) is_direct: bool,
}

/// An open file.
pub(super) struct OpenFile {
    file: VolumeFile,
    appends: bool,
}

impl OpenFile {
    pub(super) const fn inode(&self) -> InodeId {
        self.file.inode()
    }

    pub(super) async fn complete(&self, attributes: Attributes) -> Result<Attributes, FsError> {
        Ok(self.file.completed(attributes).await?)
    }
}

impl Fs {
    pub(crate) async fn open(&self, caller: &Caller, number: u64, how: OpenHow) -> Result<Opened, FsError> {
        let inode = self.inodes.id(number)?;
        let file = self.open_content(&caller.who(), inode, how).await?;
        Ok(self.enter(file, how))
    }

    /// Creates a file and opens it, or opens the one that is there.
    pub(crate) async fn create(
        self: &Arc<Self>,
        caller: &Caller,
        (dir, name): Place<'_>,
        (mode, umask): (u16, u16),
        how: OpenHow,
    ) -> Result<(Attributes, Opened), FsError> {
        let (dir, name) = (self.inodes.id(dir)?, Name::new(name.as_bytes())?);
        let who = caller.who();
        loop {
            let place = (dir, name.clone());
            match self.client.create_and_open(&self.volume, &who, place, (mode, umask)).await {
                Ok((attributes, file)) => {
                    let attributes = self.entered(attributes).await?;
                    return Ok((attributes, self.enter(file, how)));
                }
                Err(VolumeError::Refused(NameError::Exists { .. })) if !how.exclusive => {}
                Err(error) => return Err(error.into()),
            }
            // Another mount has created it since the kernel asked. If it is gone again it is to be created once more.
            let Some(found) = find(&self.volume, caller, (dir, name.clone())).await? else { continue };
            if found.kind != Kind::File {
                // The kernel walks the path anew.
                return Err(FsError::Forgotten);
            }
            let file = self.open_content(&who, found.inode, how).await?;
            if how.truncate {
                file.truncate(0).await?;
            }
            let attributes = self.entered(found).await?;
            return Ok((attributes, self.enter(file, how)));
        }
    }

    pub(crate) async fn read(&self, handle: u64, offset: u64, length: u32) -> Result<Bytes, FsError> {
        let open = self.files.get(handle)?;
        Ok(open.file.read(offset, u64::from(length).min(READ_BYTES_MAX)).await?)
    }

    /// Writes all of it.
    pub(crate) async fn write(
        &self,
        caller: &Caller,
        handle: u64,
        (offset, data): (u64, Bytes),
    ) -> Result<(), FsError> {
        let open = self.files.get(handle)?;
        assert!(data.len() as u64 <= WRITE_BYTES_MAX, "the kernel was told what it may write at once");
        if open.appends {
            self.end_set_ids_for(caller, open.inode()).await?;
            return Ok(open.file.append(data).await.map(drop)?);
        }
        Ok(open.file.write(offset, data).await?)
    }

    /// Makes what was written, and the file's name, outlive the power of the daemons.
    pub(crate) async fn sync(&self, handle: u64) -> Result<(), FsError> {
        Ok(self.files.get(handle)?.file.sync().await?)
    }

    /// A stretch reads as zeros from now on. With `keeps_size` the size stays; without it the stretch has to be within it.
    pub(crate) async fn zero(
        &self,
        handle: u64,
        (offset, length): (u64, u64),
        keeps_size: bool,
    ) -> Result<(), FsError> {
        let open = self.files.get(handle)?;
        if !keeps_size && offset.saturating_add(length) > open.file.attributes().await?.size {
            return Err(FsError::Unsupported);
        }
        Ok(open.file.punch(offset, length).await?)
    }

    /// Cuts a file, or makes it longer.
    pub(super) async fn truncate(
        &self,
        who: &Who,
        (inode, handle): (InodeId, Option<u64>),
        size: u64,
    ) -> Result<(), FsError> {
        match handle {
            Some(handle) => Ok(self.files.get(handle)?.file.truncate(size).await?),
            None => {
                let how = OpenHow { write: true, ..OpenHow::default() };
                Ok(self.open_content(who, inode, how).await?.truncate(size).await?)
            }
        }
    }

    /// Nobody has the handle any more.
    pub(crate) fn close_file(&self, handle: u64) {
        self.files.leave(handle);
    }

    fn enter(&self, file: VolumeFile, how: OpenHow) -> Opened {
        let handle = self.files.enter(OpenFile { file, appends: how.append });
        // The kernel would put what is appended where it takes the end to be.
        Opened { handle, is_direct: how.append }
    }

    /// The daemons know files that are open to be read, or to be read and written. Whoever may only write a file, or only run it,
    /// has it opened by the machine, after they were asked about that.
    async fn open_content(&self, who: &Who, inode: InodeId, how: OpenHow) -> Result<VolumeFile, FsError> {
        let mode = if how.write { OpenMode::ReadWrite } else { OpenMode::Read };
        let open = async |who: &Who| self.client.open_file(&self.volume, who, (inode, mode)).await;
        match open(who).await {
            Err(VolumeError::Refused(NameError::Denied { .. })) if how.write && !how.read || how.execute => {
                let rights = if how.execute { Rights::EXECUTE } else { Rights::WRITE };
                self.volume.ask(who, Ask::Access { inode, rights }).await?;
                Ok(open(&Who::root()).await?)
            }
            opened => Ok(opened?),
        }
    }
}
