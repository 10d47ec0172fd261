//! As whom the daemons know this mount, and that it becomes somebody else when they took it for dead.
//!
//! A client of which the daemons have not heard for long is ended by the volume: what it had open without a name is gone, and so are
//! its locks. A mount that finds this out, as after its machine has slept, connects anew as another client and goes on. A file that is
//! open is opened anew when it is used next. What has no name any more is gone then. And what was locked by a handle somebody else may have
//! had meanwhile: such a handle is good for nothing but to be closed. What was told to be written and was not synced the new client owes at once,
//! open or closed: daemons may have lost it meanwhile, and whoever syncs is told, by whichever descriptor.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use client::{Client, Volume, VolumeError, VolumeFile};
use namespace::NameError;

use super::content::OpenFile;
use super::handles::Opens;
use super::{Fs, FsError};

/// Connects to the same volume, as another client. It tries until there are daemons.
pub type Connect = Box<dyn Fn() -> Connecting + Send + Sync>;
/// What comes of that, or what the log is to say.
pub type Connecting = Pin<Box<dyn Future<Output = Result<(Client, Volume), String>> + Send>>;

/// A client of the daemons.
pub(crate) struct Identity {
    pub(super) client: Client,
    pub(super) volume: Volume,
    /// How many there were before.
    pub(super) number: u64,
}

impl Identity {
    pub(super) fn first((client, volume): (Client, Volume)) -> Arc<Self> {
        Arc::new(Self { client, volume, number: 0 })
    }
}

impl Fs {
    /// As whom the daemons know this mount now.
    pub(super) fn now(&self) -> Arc<Identity> {
        self.identity.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The daemons know this mount from now on, and not as somebody whom they took for dead. To be asked before anything is asked of them.
    pub(crate) async fn attend(&self) -> Result<(), FsError> {
        let identity = self.now();
        match identity.volume.present().await {
            Err(error) if error.says_ended() => self.become_another(identity.number).await,
            present => Ok(present?),
        }
    }

    async fn become_another(&self, number: u64) -> Result<(), FsError> {
        let _one_at_a_time = self.renewing.lock().await;
        let before = self.now();
        if before.number != number {
            return Ok(());
        }
        tracing::warn!(
            "the daemons took this mount for dead: what it had open without a name, and its locks, are gone"
        );
        let (client, volume) = (self.connect)().await.map_err(FsError::Unconnected)?;
        if volume.object() != before.volume.object() {
            // Another one has its name.
            return Err(FsError::Forgotten);
        }
        volume.inherit(&before.volume);
        self.has_lost.fetch_or(before.volume.again().has_lost(), Ordering::SeqCst);
        // The kernel's clock may have stood still meanwhile.
        self.inodes.all_believed().into_iter().for_each(|inode| self.disbelieve(inode));
        let identity = Arc::new(Identity { client, volume, number: number + 1 });
        // Each of them is told if something is lost, also if another one is told before.
        self.dirs.all().iter().for_each(|dir| _ = dir.volume(&identity));
        self.files.all().iter().for_each(|open| open.bequeath(&identity.volume));
        *self.identity.write().unwrap_or_else(PoisonError::into_inner) = identity;
        self.follow().map_err(|error| FsError::Unconnected(error.to_string()))
    }

    /// The content of an open file, which is opened anew if it was by somebody whom the daemons took for dead.
    pub(super) async fn content(&self, open: &OpenFile) -> Result<Arc<VolumeFile>, FsError> {
        let identity = self.now();
        let (number, file) = open.opened();
        if number == identity.number {
            return Ok(file);
        }
        if open.has_locked() {
            return Err(FsError::LocksLost);
        }
        let (who, mode) = open.opened_for();
        let opened = async |who| identity.client.open_file(&identity.volume, who, (open.inode(), mode)).await;
        let file = match opened(who).await {
            // What it may do with it counted when it was opened. It may have been made so that it could not be opened again.
            Err(VolumeError::Refused(NameError::Denied { .. })) => opened(&self.root).await?,
            file => file?,
        };
        Ok(open.replace(identity.number, file))
    }
}
