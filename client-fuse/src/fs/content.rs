//! The content of files: opening, reading, writing, cutting. Here, and nowhere else, a file is opened and closed.
//!
//! What is written to a file that nobody else uses is kept by the client for a moment, and sent; what went wrong with that is told to whoever
//! syncs or closes the file. Everything else is answered when a majority of the daemons has it.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use client::{Heir, READ_BYTES_MAX, Volume, VolumeError, VolumeFile, WRITE_BYTES_MAX};
use namespace::{Ask, Attributes, InodeId, Kind, Name, NameError, Rights, Who};
use node::OpenMode;

use super::handles::Opens;
use super::names::{Place, find};
use super::{Fs, FsError};
use crate::caller::Caller;

/// What a file is opened for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenHow {
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Each write goes to the end of the file, wherever that is, unless that is changed.
    pub(crate) append: bool,
    /// To be run.
    pub(crate) execute: bool,
    /// A file that is there is not created.
    pub(crate) exclusive: bool,
    /// A file that is there is cut.
    pub(crate) truncate: bool,
    /// What is changed by it outlives the power of the daemons before that is answered.
    pub(crate) syncs: bool,
}

/// What the kernel says of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WriteHow {
    /// It goes to the end. That is asked of each write: it may have changed since the file was opened.
    pub(crate) appends: bool,
    /// It has its place, even in a file that is appended to.
    pub(crate) is_placed: bool,
    /// It outlives the power of the daemons before it is answered.
    pub(crate) syncs: bool,
    /// The file was opened with `O_DIRECT`.
    pub(crate) is_direct: bool,
}

/// An open file.
pub(super) struct OpenFile {
    inode: InodeId,
    /// By which identity of the mount it was opened. Held for moments only.
    opened: Mutex<Opened>,
    /// By whom, and what for.
    who: Who,
    mode: OpenMode,
    syncs: bool,
    /// Whether anything may ever have been locked by it.
    has_locked: AtomicBool,
    /// Whether a direct write has failed, and nobody has asked to cut the file by this since.
    has_failed: AtomicBool,
    /// How often an earlier identity of the mount had written something that it never sent, and how many of these were told.
    lost: AtomicU64,
    told: AtomicU64,
    /// Whether something is lost that an earlier identity was told is done.
    has_lost: AtomicBool,
}

/// A file as an identity of the mount has opened it.
struct Opened {
    number: u64,
    file: Arc<VolumeFile>,
    /// What is told of what was lost since that identity ended.
    heir: Option<Heir>,
}

impl Opens for OpenFile {
    fn inode(&self) -> InodeId {
        self.inode
    }
}

impl OpenFile {
    fn new(number: u64, file: VolumeFile, (who, mode, how): (Who, OpenMode, OpenHow)) -> Self {
        let inode = file.inode();
        let opened = Mutex::new(Opened { number, file: Arc::new(file), heir: None });
        let ([has_locked, has_failed, has_lost], [lost, told]) =
            ([false; 3].map(AtomicBool::new), [0; 2].map(AtomicU64::new));
        Self { inode, opened, who, mode, syncs: how.syncs, has_locked, has_failed, lost, told, has_lost }
    }

    pub(super) fn opened(&self) -> (u64, Arc<VolumeFile>) {
        let opened = self.lock();
        (opened.number, opened.file.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) const fn opened_for(&self) -> (&Who, OpenMode) {
        (&self.who, self.mode)
    }

    /// The mount becomes somebody else, who knows the volume by this. What is lost from now on is told although the file is not opened anew before.
    pub(super) fn bequeath(&self, volume: &Volume) {
        let mut opened = self.lock();
        self.note_loss(&opened);
        opened.heir = Some(opened.file.heir(volume));
    }

    /// It was opened anew, unless somebody else was faster.
    pub(super) fn replace(&self, number: u64, file: VolumeFile) -> Arc<VolumeFile> {
        let mut opened = self.lock();
        if opened.number < number {
            self.note_loss(&opened);
            if let Some(heir) = &opened.heir {
                file.take_place_of(heir);
            }
            file.inherit(&opened.file);
            *opened = Opened { number, file: Arc::new(file), heir: None };
        }
        opened.file.clone()
    }

    /// What was changed by it although the mount had become somebody else meanwhile, that one owes, too.
    pub(super) fn hand_on(&self) {
        let opened = self.lock();
        if let Some(heir) = &opened.heir {
            heir.inherit(&opened.file);
        }
    }

    fn note_loss(&self, Opened { file, heir, .. }: &Opened) {
        if file.tell_fault().is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        // With an heir the file's own losses were noted.
        if heir.as_ref().map_or_else(|| file.has_lost(), Heir::has_lost) {
            self.has_lost.store(true, Ordering::SeqCst);
        }
    }

    /// What was written before and is lost is told once to whoever closes it or syncs it, or to all who had called by then: `known` was told
    /// when they did.
    fn tell_loss(&self, known: u64) -> Result<(), VolumeError> {
        let lost = self.lost.load(Ordering::Relaxed);
        self.told.fetch_max(lost, Ordering::Relaxed);
        if lost > known { Err(VolumeError::TakenBack) } else { Ok(()) }
    }

    fn known(&self) -> u64 {
        self.told.load(Ordering::Relaxed)
    }

    /// Something is about to be locked by it.
    pub(super) fn locks(&self) {
        self.has_locked.store(true, Ordering::Relaxed);
    }

    pub(super) fn has_locked(&self) -> bool {
        self.has_locked.load(Ordering::Relaxed)
    }
}

impl Fs {
    pub(crate) async fn open(&self, caller: &Caller, number: u64, how: OpenHow) -> Result<u64, FsError> {
        let inode = self.inodes.id(number)?;
        let file = self.open_content(&caller.who(), inode, how).await?;
        Ok(self.files.enter(file))
    }

    /// Opens a file, if whether that is allowed is known without asking anybody. Needs a running tokio runtime.
    pub(crate) fn open_at_once(&self, caller: &Caller, number: u64, how: OpenHow) -> Option<u64> {
        let (inode, identity) = (self.inodes.id(number).ok()?, self.now());
        let (who, mode) = (caller.who(), mode_of(how));
        let file = identity.client.open_at_once(&identity.volume, &who, (inode, mode))?;
        Some(self.files.enter(OpenFile::new(identity.number, file, (who, mode, how))))
    }

    /// Creates a file and opens it, or opens the one that is there.
    pub(crate) async fn create(
        &self,
        caller: &Caller,
        (dir, name): Place<'_>,
        (mode, umask): (u16, u16),
        how: OpenHow,
    ) -> Result<(Attributes, u64), FsError> {
        let (dir, name) = (self.inodes.id(dir)?, Name::new(name.as_bytes())?);
        let who = caller.who();
        let _changing = self.changing([dir]);
        let identity = self.now();
        loop {
            let place = (dir, name.clone());
            match identity.client.create_and_open(&identity.volume, &who, place, (mode, umask)).await {
                Ok((attributes, file)) => {
                    let attributes = self.entered(attributes).await?;
                    let file = OpenFile::new(identity.number, file, (who, OpenMode::ReadWrite, how));
                    return Ok((attributes, self.files.enter(file)));
                }
                Err(VolumeError::Refused(NameError::Exists { .. })) if !how.exclusive => {}
                Err(error) => return Err(FsError::within(error, &[dir])),
            }
            // Another mount has created it since the kernel asked. If it is gone again it is to be created once more.
            let Some(found) = find(&identity.volume, caller, (dir, name.clone())).await? else { continue };
            if found.kind != Kind::File {
                // The kernel walks the path anew.
                return Err(FsError::Forgotten);
            }
            let file = match self.open_content(&who, found.inode, how).await {
                Err(error) if error.says_gone() => continue,
                opened => opened?,
            };
            if how.truncate {
                file.opened().1.truncate(0).await?;
            }
            let attributes = self.entered(found).await?;
            return Ok((attributes, self.files.enter(file)));
        }
    }

    pub(crate) async fn read(&self, handle: u64, offset: u64, length: u32) -> Result<Bytes, FsError> {
        let open = self.files.get(handle)?;
        Ok(self.content(&open).await?.read(offset, u64::from(length).min(READ_BYTES_MAX)).await?)
    }

    /// Reads what is known without asking anybody. Needs a running tokio runtime.
    pub(crate) fn read_at_once(&self, handle: u64, offset: u64, length: u32) -> Option<Bytes> {
        let (number, file) = self.files.get(handle).ok()?.opened();
        (number == self.now().number).then(|| file.read_at_once(offset, u64::from(length)))?
    }

    /// Writes what is lent to this mount, so that nobody has to be asked.
    pub(crate) fn write_at_once(
        &self,
        handle: u64,
        (offset, data): (u64, &Bytes),
        how: WriteHow,
    ) -> Option<Result<(), FsError>> {
        let open = self.files.get(handle).ok().filter(|_| !how.syncs)?;
        let (number, file) = open.opened();
        let offset = Some(offset).filter(|_| !how.appends || how.is_placed);
        let written = (number == self.now().number).then(|| file.write_at_once(offset, data))??;
        Some(written.map(drop).map_err(FsError::from))
    }

    /// Writes all of it. What is appended goes to the end, wherever the kernel takes that to be, unless it is placed.
    pub(crate) async fn write(
        &self,
        handle: u64,
        (offset, data): (u64, Bytes),
        how: WriteHow,
    ) -> Result<(), FsError> {
        let open = self.files.get(handle)?;
        assert!(data.len() as u64 <= WRITE_BYTES_MAX, "the kernel was told what it may write at once");
        let file = self.content(&open).await?;
        if how.appends && !how.is_placed {
            file.append(data).await?;
        } else {
            file.write(offset, data).await?;
        }
        if how.syncs { self.sync_content(&open).await } else { Ok(()) }
    }

    /// The kernel is about to be told that a write has failed, or was given up.
    pub(crate) fn note_failure(&self, handle: u64, how: WriteHow) {
        if how.is_direct
            && let Ok(open) = self.files.get(handle)
        {
            open.has_failed.store(true, Ordering::Relaxed);
        }
    }

    /// Makes what was written, and the file's name, outlive the power of the daemons.
    pub(crate) async fn sync(&self, handle: u64) -> Result<(), FsError> {
        self.sync_content(&*self.files.get(handle)?).await
    }

    async fn sync_content(&self, open: &OpenFile) -> Result<(), FsError> {
        let known = open.known();
        // A lend that is returned for that may end with another time.
        let _changing = self.changing([open.inode()]);
        let file = self.content(open).await?;
        self.files.of(open.inode()).iter().for_each(|other| other.hand_on());
        let synced = file.sync().await;
        // All of it at once.
        let (told, has_lost) = (open.tell_loss(known), open.has_lost.swap(false, Ordering::SeqCst));
        told?;
        if has_lost { Err(VolumeError::TakenBack.into()) } else { Ok(synced?) }
    }

    /// What was changed by a call other than a write.
    pub(super) async fn changed(&self, open: &OpenFile) -> Result<(), FsError> {
        if open.syncs { self.sync_content(open).await } else { Ok(()) }
    }

    /// Whether who closes a descriptor waits for what may have been written by it, or for daemons to say whether he has to.
    pub(crate) fn settles(&self, handle: u64) -> bool {
        let is_for_writing = self.files.get(handle).is_ok_and(|open| open.mode != OpenMode::Read);
        is_for_writing && self.has_little_room() != Some(false)
    }

    /// Where daemons have little room, what was written to a file is with them, or lost, when this returns.
    pub(crate) async fn settle(&self, handle: u64) -> Result<(), FsError> {
        if !self.settles(handle) {
            return Ok(());
        }
        if self.has_little_room().is_none() {
            self.ask_disks().await;
        }
        let (number, file) = self.files.get(handle)?.opened();
        if self.has_little_room() == Some(false) || number != self.now().number {
            return Ok(());
        }
        Ok(file.settle().await?)
    }

    /// What went wrong with what was written before, told to whoever closes a descriptor by which he could have written it. Who reads does not look at
    /// what closing says.
    pub(crate) fn tell_fault(&self, handle: u64) -> Result<(), FsError> {
        match self.files.get(handle) {
            Ok(open) if open.mode == OpenMode::Read => Ok(()),
            Ok(open) => Ok(open.tell_loss(open.known()).and_then(|()| open.opened().1.tell_fault())?),
            Err(_) => Ok(()),
        }
    }

    /// Cuts a file, or makes it longer.
    pub(super) async fn truncate(
        &self,
        who: &Who,
        (number, handle): (u64, Option<u64>),
        size: u64,
    ) -> Result<(), FsError> {
        match handle {
            Some(handle) => {
                let open = self.files.get(handle)?;
                if !open.has_failed.swap(false, Ordering::Relaxed) {
                    return Ok(self.content(&open).await?.truncate(size).await?);
                }
                // After a direct write that has failed the kernel by itself sets the size that it knew last, which another mount may have changed
                // since, and looks the same as a program's call, which asks again.
                if self.attributes(number).await?.0.size == size { Ok(()) } else { Err(FsError::Interrupted) }
            }
            None => {
                let inode = self.inodes.id(number)?;
                let how = OpenHow { write: true, ..OpenHow::default() };
                Ok(self.open_content(who, inode, how).await?.opened().1.truncate(size).await?)
            }
        }
    }

    /// Whoever may only write a file, or only run it,
    /// has it opened by the machine, after they were asked about that.
    async fn open_content(&self, who: &Who, inode: InodeId, how: OpenHow) -> Result<OpenFile, FsError> {
        let (mode, identity) = (mode_of(how), self.now());
        let _returning = self.judged(&identity.volume, inode);
        let open = async |who: &Who| {
            let file = identity.client.open_file(&identity.volume, who, (inode, mode)).await?;
            Ok(OpenFile::new(identity.number, file, (who.clone(), mode, how)))
        };
        match open(who).await {
            Err(VolumeError::Refused(NameError::Denied { .. })) if how.write && !how.read || how.execute => {
                let rights = if how.execute { Rights::EXECUTE } else { Rights::WRITE };
                identity.volume.ask(who, Ask::Access { inode, rights }).await?;
                Ok(open(&self.root).await?)
            }
            opened => Ok(opened?),
        }
    }
}

/// The daemons know files that are open to be read, or to be read and written.
const fn mode_of(how: OpenHow) -> OpenMode {
    if how.write { OpenMode::ReadWrite } else { OpenMode::Read }
}
