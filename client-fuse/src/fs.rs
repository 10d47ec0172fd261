//! The files and names of one volume, for a mount: what FUSE asks for, done with what the client library offers.
//!
//! Nothing is kept here that somebody else might change: every question goes to the client, which asks the daemons what it does not know, and every
//! change has taken effect there before it is answered. What is kept is what the kernel refers to by numbers: [inodes](inodes), open
//! files and open directories, each for as long as the kernel has it; and what the [kernel](kernel) may believe by itself.
//!
//! Deliberately absent: FUSE itself, which [`crate::fuse`] translates, and a cache.

mod attributes;
mod content;
mod dirs;
mod error;
mod extents;
mod handles;
mod identity;
mod inodes;
mod kernel;
mod locks;
mod names;
mod room;
mod xattrs;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use client::{Client, Volume};
use namespace::{Attributes, Who};

pub(crate) use attributes::{Wanted, set_time};
pub(crate) use content::{OpenHow, WriteHow};
pub(crate) use dirs::Shown as Listed;
pub(crate) use error::FsError;
pub(crate) use extents::Allocate;
pub use identity::{Connect, Connecting};
pub(crate) use kernel::{Found, Kernel, Shown};
pub(crate) use names::Make;
pub(crate) use room::Room;

use self::content::OpenFile;
use self::dirs::OpenDir;
use self::handles::Handles;
use self::identity::Identity;
use self::inodes::Inodes;
use self::locks::Locks;

/// No read and no write is longer.
pub(crate) const IO_BYTES_MAX: u32 = 1 << 20;
const _: () = assert!(IO_BYTES_MAX as u64 <= client::READ_BYTES_MAX);
const _: () = assert!(IO_BYTES_MAX as u64 <= client::WRITE_BYTES_MAX);

/// A volume as a mount shows it.
pub(crate) struct Fs {
    /// Held for moments only, and never while waiting.
    identity: RwLock<Arc<Identity>>,
    connect: Connect,
    /// Whoever connects anew.
    renewing: tokio::sync::Mutex<()>,
    /// Whether somebody who was taken for dead may have lost something that was done to names, and nobody was told yet.
    has_lost: AtomicBool,
    inodes: Arc<Inodes>,
    files: Handles<OpenFile>,
    dirs: Handles<OpenDir>,
    locks: Locks,
    /// Known once it is mounted.
    kernel: Arc<OnceLock<Kernel>>,
    /// Held for moments only, and never while waiting.
    room: Mutex<room::Known>,
    /// Who asks what everybody may know.
    root: Who,
}

impl Fs {
    /// What is connected already, and how it is done once more.
    pub(crate) fn new(connected: (Client, Volume), connect: Connect) -> Self {
        Self {
            identity: RwLock::new(Identity::first(connected)),
            connect,
            renewing: tokio::sync::Mutex::default(),
            has_lost: AtomicBool::new(false),
            inodes: Arc::default(),
            files: Handles::default(),
            dirs: Handles::default(),
            locks: Locks::default(),
            kernel: Arc::default(),
            room: Mutex::default(),
            root: Who::root(),
        }
    }

    /// From now on the kernel can be told something.
    pub(crate) fn mounted(&self, kernel: Kernel) -> std::io::Result<()> {
        // It is mounted once.
        let _ = self.kernel.set(kernel);
        self.follow()
    }

    /// The kernel refers so many times less to an inode.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        self.inodes.forget(number, lookups);
    }

    /// What is open and locked through this mount is given up, whoever still has it.
    pub(crate) async fn leave(&self) {
        self.now().client.leave_volumes().await;
    }

    /// Gives up what the client has.
    pub(crate) async fn close(self) {
        let identity = self.identity.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(identity) = Arc::into_inner(identity) {
            identity.client.close().await;
        }
    }

    /// What the tree has said of an inode, with size and times of a file that its content knows better.
    async fn completed(&self, attributes: Attributes) -> Result<Attributes, FsError> {
        if attributes.lent.is_none() {
            return Ok(attributes);
        }
        let file = match self.files.find(attributes.inode) {
            Some(open) => match self.content(&open).await {
                // That is for whoever had the locks.
                Err(FsError::LocksLost) => None,
                file => Some(file?),
            },
            None => None,
        };
        if let Some(file) = file {
            return Ok(file.completed(attributes).await?);
        }
        let identity = self.now();
        Ok(identity.client.with_content(&identity.volume, attributes).await?)
    }

    /// The same for something that was made or changed just now: it was so, though somebody else may have removed it since.
    async fn completed_at_once(&self, changed: Attributes) -> Result<Attributes, FsError> {
        match self.completed(changed.clone()).await {
            Err(error) if error.says_gone() => Ok(changed),
            completed => completed,
        }
    }

    /// What the kernel is about to be told of something that was made just now, to which it refers from now on.
    async fn entered(&self, made: Attributes) -> Result<Attributes, FsError> {
        let made = self.completed_at_once(made).await?;
        self.inodes.entered(&made);
        Ok(made)
    }
}
