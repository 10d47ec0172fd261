//! Locks of files, which hold between all mounts.
//!
//! An owner is a number of the kernel's: of a process, for most of `fcntl`, or of an open file description, for `flock` and for the rest
//! of `fcntl`. What a process has locked goes when it closes any descriptor of the file; the kernel says so each time one is closed. What
//! belongs to a description goes with that. What is had by this mount is had by this client, and ends with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use client::{FileLock, VolumeError};
use namespace::{InodeId, Lock, LockKind, NameError, Stretch};
use tokio::sync::Notify;

use super::content::OpenFile;
use super::handles::Opens;
use super::{Fs, FsError};
use crate::caller::Caller;

/// A description that was closed is told of just after its last descriptor, and perhaps by another thread. Whoever does not wait tries
/// once more after this.
const CLOSED_WITHIN: Duration = Duration::from_millis(5);

/// What is known of locks here.
#[derive(Default)]
pub(crate) struct Locks {
    /// Held for moments only, and never while waiting.
    known: Mutex<Known>,
    /// Some description or process has given up what it had locked.
    closed: Notify,
}

#[derive(Default)]
struct Known {
    /// The owners that may have locked something of a file by `fcntl`, each with the process that did it last.
    owners: BTreeMap<InodeId, BTreeMap<u64, u32>>,
    /// How many descriptions and processes are giving up what they have locked of a file.
    closing: BTreeMap<InodeId, usize>,
}

/// What was locked by a description, or by a process, is being given up, until this is dropped.
pub(crate) struct Closing {
    fs: Arc<Fs>,
    file: Arc<OpenFile>,
}

impl Locks {
    fn note(&self, inode: InodeId, (owner, process): (u64, u32)) {
        self.known().owners.entry(inode).or_default().insert(owner, process);
    }

    /// Which process has locked something of a file for an owner here; 0 if that is not known.
    fn process(&self, inode: InodeId, owner: u64) -> u32 {
        let known = self.known();
        known.owners.get(&inode).and_then(|owners| owners.get(&owner)).copied().unwrap_or_default()
    }

    /// Whether the owner may have locked something: by which process. It has not from now on.
    fn take(&self, inode: InodeId, owner: u64) -> Option<u32> {
        let mut known = self.known();
        let owners = known.owners.get_mut(&inode)?;
        let process = owners.remove(&owner);
        if owners.is_empty() {
            known.owners.remove(&inode);
        }
        process
    }

    /// Nobody has the file open any more, or may have locked something of it.
    fn forget(&self, inode: InodeId) {
        self.known().owners.remove(&inode);
    }

    fn begin(&self, inode: InodeId) {
        *self.known().closing.entry(inode).or_default() += 1;
    }

    fn end(&self, inode: InodeId) {
        let mut known = self.known();
        if let Some(count) = known.closing.get_mut(&inode) {
            *count -= 1;
            if *count == 0 {
                known.closing.remove(&inode);
            }
        }
        drop(known);
        self.closed.notify_waiters();
    }

    /// Waits until what was closed before is closed for everybody.
    async fn settled(&self, inode: InodeId) {
        loop {
            let closed = self.closed.notified();
            if !self.known().closing.contains_key(&inode) {
                return;
            }
            closed.await;
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Fs {
    /// Locks a stretch of a file, in place of what the owner has locked of it. With `waits` it waits for whoever is in the way, until it
    /// has a signal to take in.
    pub(crate) async fn lock(
        &self,
        caller: &Caller,
        (handle, process): (u64, u32),
        (wanted, waits): (FileLock, bool),
    ) -> Result<(), FsError> {
        let open = self.files.get(handle)?;
        self.locks.settled(open.inode()).await;
        self.note(&open, (wanted, process));
        let result = if waits {
            match self.content(&open).await?.lock_until(wanted, caller.signalled()).await {
                Ok(true) => Ok(()),
                Ok(false) => Err(FsError::Interrupted),
                Err(error) => Err(error.into()),
            }
        } else {
            self.try_lock(&open, wanted).await
        };
        // What was closed meanwhile has forgotten it.
        self.note(&open, (wanted, process));
        result
    }

    async fn try_lock(&self, open: &OpenFile, wanted: FileLock) -> Result<(), FsError> {
        match self.content(open).await?.try_lock(wanted).await {
            Err(VolumeError::Refused(NameError::Locked { .. })) => {
                tokio::time::sleep(CLOSED_WITHIN).await;
                self.locks.settled(open.inode()).await;
                Ok(self.content(open).await?.try_lock(wanted).await?)
            }
            result => Ok(result?),
        }
    }

    fn note(&self, open: &OpenFile, (wanted, process): (FileLock, u32)) {
        open.locks();
        if wanted.kind == LockKind::Fcntl {
            self.locks.note(open.inode(), (wanted.owner, process));
        }
    }

    pub(crate) async fn unlock(
        &self,
        handle: u64,
        (owner, kind): (u64, LockKind),
        stretch: Stretch,
    ) -> Result<(), FsError> {
        let open = self.files.get(handle)?;
        Ok(self.content(&open).await?.unlock(owner, kind, stretch).await?)
    }

    /// What is in the way of a lock, and the process whose that is: 0 if it is one of another mount.
    pub(crate) async fn in_the_way(
        &self,
        handle: u64,
        wanted: FileLock,
    ) -> Result<Option<(Lock, u32)>, FsError> {
        let open = self.files.get(handle)?;
        self.locks.settled(open.inode()).await;
        let file = self.content(&open).await?;
        Ok(file.in_the_way(wanted).await?.map(|lock| {
            let is_here = file.is_own(&lock);
            (lock, if is_here { self.locks.process(open.inode(), lock.owner.number) } else { 0 })
        }))
    }

    /// A process closes a descriptor. If it may have locked something of the file that is to be [given up](Self::unlock_owner), as which
    /// process.
    pub(crate) fn is_owner(&self, handle: u64, owner: u64) -> Option<u32> {
        self.locks.take(self.files.get(handle).ok()?.inode(), owner)
    }

    /// A process gives up all that it has locked of a file, by whichever descriptor. That goes on when nobody waits for it any more: who is
    /// killed meanwhile gives up nothing later. Needs a running tokio runtime.
    pub(crate) async fn unlock_owner(
        self: Arc<Self>,
        handle: u64,
        (owner, process): (u64, u32),
    ) -> Result<(), FsError> {
        let file = self.files.get(handle)?;
        // Another process may have the same number then, and must not lose what it locks before this is done.
        self.locks.begin(file.inode());
        let closing = Closing { fs: self, file };
        let unlocked = tokio::spawn(async move {
            let Closing { fs, file } = &closing;
            let unlock = async {
                fs.attend().await?;
                Ok(fs.content(file).await?.unlock(owner, LockKind::Fcntl, Stretch::ALL).await?)
            };
            let result = unlock.await;
            if result.is_ok() {
                let all = fs.files.of(file.inode()).into_iter();
                all.for_each(|other| other.opened().1.forget_owner(owner, LockKind::Fcntl));
            } else if fs.files.find(file.inode()).is_some() {
                // Whoever closes another descriptor tries again, and the last one in any case.
                fs.locks.note(file.inode(), (owner, process));
            }
            result
        });
        unlocked.await.unwrap_or(Err(FsError::Interrupted))
    }

    /// A description is closed. What was locked by it is given up while what this returns is [waited for](Closing::done).
    pub(crate) fn close_file(self: &Arc<Self>, handle: u64) -> Option<Closing> {
        let file = self.files.leave(handle)?;
        file.hand_on();
        if self.files.find(file.inode()).is_none() {
            self.locks.forget(file.inode());
        }
        if !file.has_locked() {
            return None;
        }
        self.locks.begin(file.inode());
        Some(Closing { fs: self.clone(), file })
    }
}

impl Closing {
    pub(crate) async fn done(self) -> Result<(), FsError> {
        Ok(self.file.opened().1.unlock_owners().await?)
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        self.fs.locks.end(self.file.inode());
    }
}
