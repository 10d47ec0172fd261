//! The files and names of one volume, for a mount: what FUSE asks for, done with what the client library offers.
//!
//! Nothing is kept that somebody else might change: every question goes to the daemons, and every change has taken effect there
//! before it is answered. What is kept is what the kernel refers to by numbers: [inodes](inodes), open files and open
//! directories, each for as long as the kernel has it.
//!
//! Deliberately absent: FUSE itself, which [`crate::fuse`] translates, and a cache.

mod attributes;
mod content;
mod dirs;
mod error;
mod handles;
mod inodes;
mod names;
mod xattrs;

use std::sync::OnceLock;

use client::{Client, Volume};
use namespace::{Attributes, InodeId, Who};

pub(crate) use attributes::{Wanted, set_time};
pub(crate) use content::OpenHow;
pub(crate) use error::FsError;
pub(crate) use names::Make;

use self::content::OpenFile;
use self::dirs::OpenDir;
use self::handles::Handles;
use self::inodes::{Inodes, Told};

/// No read and no write is longer.
pub(crate) const IO_BYTES_MAX: u32 = 1 << 20;
const _: () = assert!(IO_BYTES_MAX as u64 <= client::READ_BYTES_MAX);
const _: () = assert!(IO_BYTES_MAX as u64 <= client::WRITE_BYTES_MAX);

/// Has the kernel forget what it keeps of the content of the file with this number. It may wait for reads of that file.
pub(crate) type DropContent = Box<dyn Fn(u64) + Send + Sync>;

/// A volume as a mount shows it.
pub(crate) struct Fs {
    client: Client,
    volume: Volume,
    inodes: Inodes,
    files: Handles<OpenFile>,
    dirs: Handles<OpenDir>,
    /// Known once it is mounted.
    drop_content: OnceLock<DropContent>,
}

impl Fs {
    pub(crate) fn new(client: Client, volume: Volume) -> Self {
        Self {
            client,
            volume,
            inodes: Inodes::default(),
            files: Handles::default(),
            dirs: Handles::default(),
            drop_content: OnceLock::new(),
        }
    }

    /// From now on the kernel can be told something.
    pub(crate) fn mounted(&self, drop_content: DropContent) {
        // It is mounted once.
        let _ = self.drop_content.set(drop_content);
    }

    /// The kernel refers so many times less to an inode.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        self.inodes.forget(number, lookups);
    }

    /// Gives up what the client has.
    pub(crate) async fn close(self) {
        self.client.close().await;
    }

    /// What the tree has said of an inode, with size and times of a file that its content knows better.
    async fn completed(&self, attributes: Attributes) -> Result<Attributes, FsError> {
        if attributes.lent.is_none() {
            return Ok(attributes);
        }
        match self.files.find(|file| file.inode() == attributes.inode) {
            Some(file) => file.complete(attributes).await,
            None => Ok(self.client.with_content(&self.volume, attributes).await?),
        }
    }

    /// What the kernel is about to be told of an inode under a name, which it refers to from now on.
    async fn entered(self: &std::sync::Arc<Self>, attributes: Attributes) -> Result<Attributes, FsError> {
        let attributes = self.told(self.completed(attributes).await?).await;
        self.inodes.entered(attributes.inode);
        Ok(attributes)
    }

    /// What the kernel is about to be told of an inode.
    ///
    /// It drops the content that it keeps when it is told another size or another `mtime`. Somebody may have written and set
    /// both back; then it has to be asked to.
    async fn told(self: &std::sync::Arc<Self>, attributes: Attributes) -> Attributes {
        if self.inodes.told(&attributes) == Told::Hidden && self.drop_content.get().is_some() {
            let (fs, number) = (self.clone(), attributes.inode.number);
            let dropped = tokio::task::spawn_blocking(move || {
                if let Some(drop_content) = fs.drop_content.get() {
                    drop_content(number);
                }
            });
            // It ends with the runtime at the earliest, and then nobody is told anything.
            let _ = dropped.await;
        }
        attributes
    }

    /// The inode as its owner, who may do to it what needs nobody's permission.
    async fn owner(&self, inode: InodeId) -> Result<(Attributes, Who), FsError> {
        let attributes = self.volume.attributes(inode).await?;
        let owner = Who::new(attributes.uid, attributes.gid, &[]).map_err(|_| FsError::Invalid)?;
        Ok((attributes, owner))
    }
}
