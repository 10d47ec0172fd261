//! Files of volumes that a program has open, and what it has locked by them.
//!
//! Whoever has a file open keeps it: it lives on without a name until everybody has closed it. The volume's primary is told by
//! the core what is open here; the volume itself knows of this client once, from its first opening on. A client that is silent
//! for too long is ended there, and whatever it had open says so from then on.
//!
//! A lock belongs to an owner, a number that the program gives: a process, or an open handle. What waits for a lock goes on asking, whoever leads
//! the volume, until it is had or not wanted any more.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{ClientId, Span};
use namespace::{
    Answer, Ask, Attributes, Change as TreeChange, Done, InodeId, Lock, LockKind, LockMode, Name, NameError,
    Op, Owner, Stretch, Ticket, Who, Wish,
};
use node::file::Change;
use node::{Capability, OpenMode};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::core::files::Opening;
use crate::driver::Client;
use crate::objects::{Object, ObjectError};
use crate::source::Source;
use crate::volume_files::VolumeFile;
use crate::volumes::{Volume, VolumeError};

/// Who was not known of for so long may have slept, and asks how it is before it goes on: before it can have ended by any clock.
const KNOWN_FOR: Span = Span::from_secs(100);
/// How often it looks whether it is known of.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long a client that closes waits until volumes know that.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);
/// Whoever this is, the primary of the volume says.
const SELF: ClientId = ClientId { certificate: 0, program: 0 };

/// A lock that is wanted, or had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileLock {
    /// Whose it is, of this client: a process, or an open handle.
    pub owner: u64,
    /// Which of the two kinds, which do not see each other.
    pub kind: LockKind,
    /// Whether others may have it, too.
    pub mode: LockMode,
    /// Where. `flock` locks everything.
    pub stretch: Stretch,
}

/// A file that is open, or about to be, until this is dropped.
#[derive(Debug)]
pub(crate) struct Kept {
    volume: Object,
    inode: InodeId,
    /// Whether its volume was told.
    is_open: AtomicBool,
}

/// A file that a program has open, until this is dropped. What it has written may keep it open for longer.
#[derive(Debug)]
pub(crate) struct Held {
    kept: Arc<Kept>,
    /// Who may have locked something by it.
    owners: Mutex<BTreeSet<(u64, LockKind)>>,
}

impl FileLock {
    fn wanted(self) -> Lock {
        let owner = Owner { client: SELF, number: self.owner };
        Lock { owner, kind: self.kind, mode: self.mode, stretch: self.stretch }
    }
}

impl Kept {
    /// A file that is about to be open.
    pub(crate) fn of(volume: &Volume, inode: InodeId) -> Arc<Self> {
        Arc::new(Self { volume: volume.tree().clone(), inode, is_open: AtomicBool::new(false) })
    }

    /// Its volume has it open from now on.
    pub(crate) fn opened(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// Which.
    pub(crate) const fn inode(&self) -> InodeId {
        self.inode
    }
}

impl Held {
    /// Who has a file open that is kept open.
    pub(crate) fn new(kept: Arc<Kept>) -> Self {
        Self { kept, owners: Mutex::default() }
    }

    pub(crate) fn kept(&self) -> Arc<Kept> {
        Arc::clone(&self.kept)
    }

    fn take_owners(&self) -> BTreeSet<(u64, LockKind)> {
        std::mem::take(&mut *self.owners.lock().expect("nobody fails while holding it"))
    }

    fn owners(&self) -> BTreeSet<(u64, LockKind)> {
        self.owners.lock().expect("nobody fails while holding it").clone()
    }

    fn forget_owner(&self, owner: (u64, LockKind)) {
        self.owners.lock().expect("nobody fails while holding it").remove(&owner);
    }

    fn note_owner(&self, owner: (u64, LockKind)) {
        self.owners.lock().expect("nobody fails while holding it").insert(owner);
    }

    fn unlocking(&self, (number, kind): (u64, LockKind), stretch: Stretch) -> TreeChange {
        TreeChange::Unlock { inode: self.kept.inode, owner: Owner { client: SELF, number }, kind, stretch }
    }

    fn fire(&self, change: TreeChange) {
        self.kept.volume.fire(Change::Tree(Arc::new(Op::wanted(Who::root(), change))));
    }
}

impl Drop for Held {
    /// What was locked by it is given up, in the background.
    fn drop(&mut self) {
        for owner in self.take_owners() {
            self.fire(self.unlocking(owner, Stretch::ALL));
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let (volume, inode) = (self.volume.id(), self.inode);
        if *self.is_open.get_mut() {
            self.volume.with_files(|files| files.close_held(volume, inode));
            self.volume.wake();
        }
    }
}

impl Volume {
    /// Refuses a client that was silent for too long. Who may have been asks first.
    pub async fn present(&self) -> Result<(), VolumeError> {
        let known = async {
            while !self.is_known()? {
                self.tree().wake();
                sleep(LOOK_EVERY).await;
            }
            Ok(())
        };
        let patience = self.tree().patience();
        timeout(patience, known).await.unwrap_or_else(|_| {
            let patience_s = patience.as_secs();
            Err(ObjectError::Unanswered { patience_s, why: "its volume has not been told of this client" }
                .into())
        })
    }

    /// Whether this client is one that may have files open, and was not silent for too long.
    pub(crate) fn is_present(&self) -> bool {
        self.tree().with_files(|files| files.attends_to(self.object())) && self.is_known() == Ok(true)
    }

    /// Whether nobody has to be asked whether this client has ended. It has if this is an error.
    fn is_known(&self) -> Result<bool, VolumeError> {
        let id = self.object();
        self.tree().with_files(|files| match files.known_at(id) {
            Some(at) => Ok(clock::now().since(at) < KNOWN_FOR),
            None if files.has_ended(id) => Err(VolumeError::Ended(self.name().clone())),
            None => Ok(true),
        })
    }

    /// The volume knows of this client from now on.
    pub(crate) async fn attend(&self) -> Result<(), VolumeError> {
        self.present().await?;
        let id = self.object();
        if !self.tree().with_files(|files| files.attends_to(id)) {
            self.tree().come().await?;
            self.tree().with_files(|files| files.attend_to(clock::now(), id));
            self.tree().wake();
        }
        Ok(())
    }

    /// Opens a file of this volume, to have it open until what this returns is dropped, also if nobody waits for it any more.
    pub(crate) async fn open_to_hold(
        &self,
        who: &Who,
        (inode, mode): (InodeId, OpenMode),
    ) -> Result<(Attributes, Capability, Held), VolumeError> {
        self.attend().await?;
        self.await_entered(&[inode]).await?;
        self.prepare_judgement(inode).await?;
        let (volume, opening) = (self.clone(), Opening::Open(who.clone(), inode, mode));
        let opened = tokio::spawn(async move {
            let (attributes, capability) = volume.tree().open_held(opening).await?;
            let held = volume.holding(capability);
            volume.adopt(&attributes, capability, &held);
            Ok((attributes, capability, held))
        });
        opened.await.unwrap_or_else(|_| Err(ObjectError::Closed.into()))
    }

    /// The same of a file that it creates.
    pub(crate) async fn create_to_hold(
        &self,
        who: &Who,
        (dir, name): (InodeId, Name),
        (mode, umask): (u16, u16),
    ) -> Result<(Attributes, Option<(Capability, Held)>), VolumeError> {
        self.attend().await?;
        let (make, lends) = (namespace::Make::file(), self.tree().shared().behind.is_on());
        let create = TreeChange::Create { dir, name, make, mode, umask, is_exclusive: true, lends };
        let (volume, op) = (self.clone(), Op::wanted(who.clone(), create));
        op.check_limits()?;
        let created = tokio::spawn(async move {
            match volume.tree().create_held(op).await? {
                (Done::Created { attributes, .. }, Some(opened)) => {
                    let held = volume.holding(*opened);
                    volume.adopt(&attributes, *opened, &held);
                    Ok((attributes, Some((*opened, held))))
                }
                (Done::Created { attributes, .. }, None) => Ok((attributes, None)),
                _ => Err(ObjectError::Mismatch.into()),
            }
        });
        created.await.unwrap_or_else(|_| Err(ObjectError::Closed.into()))
    }

    fn holding(&self, capability: Capability) -> Held {
        let kept = Kept::of(self, capability.source.inode);
        kept.opened();
        Held::new(kept)
    }

    /// What was opened may be lent to this client, and that may not be known yet.
    fn adopt(&self, attributes: &Attributes, capability: Capability, held: &Held) {
        let shared = self.tree().shared();
        if capability.open.mode == OpenMode::ReadWrite && shared.behind.own(attributes).is_some() {
            shared.adopt(attributes, &Source::new(self, capability, held.kept()));
        }
    }
}

impl VolumeFile {
    /// Locks a stretch of the file, in place of what the owner has locked of it; waits as long as somebody else is in the way. Whoever
    /// does not wait for this any longer gets nothing by it.
    pub async fn lock(&self, wanted: FileLock) -> Result<(), VolumeError> {
        // Without an end it has the lock, or an error.
        self.lock_until(wanted, std::future::pending()).await.map(drop)
    }

    /// The same, but waits only until `end`. Whether it is had, which it may be if it was granted just then; if not, everything is as
    /// before.
    pub async fn lock_until(
        &self,
        wanted: FileLock,
        end: impl Future<Output = ()> + Send,
    ) -> Result<bool, VolumeError> {
        self.prepare_lock(wanted).await?;
        let (told, mut outcome) = oneshot::channel();
        let (waits, ended) = oneshot::channel();
        let file = self.clone();
        tokio::spawn(async move { file.run_lock(wanted, told, ended).await });
        let result = tokio::select! {
            biased;
            result = &mut outcome => result,
            () = end => {
                drop(waits);
                outcome.await
            }
        };
        let is_had = result.unwrap_or_else(|_| Err(ObjectError::Closed.into()))?;
        // Whoever closes the file at the same time may have taken it for unlocked.
        self.held().note_owner((wanted.owner, wanted.kind));
        Ok(is_had)
    }

    /// The same, if nobody is in the way. Otherwise it says who, as [`NameError::Locked`].
    pub async fn try_lock(&self, wanted: FileLock) -> Result<(), VolumeError> {
        self.prepare_lock(wanted).await?;
        self.ask_for_lock(wanted, false).await?;
        self.held().note_owner((wanted.owner, wanted.kind));
        Ok(())
    }

    /// What is in the way of a lock.
    pub async fn in_the_way(&self, wanted: FileLock) -> Result<Option<Lock>, VolumeError> {
        self.volume().present().await?;
        self.volume().await_entered(&[self.inode()]).await?;
        let ask = Ask::TestLock { inode: self.inode(), lock: wanted.wanted() };
        match self.volume().ask(&Who::root(), ask).await? {
            Answer::InTheWay(lock) => Ok(lock),
            _ => Err(ObjectError::Mismatch.into()),
        }
    }

    /// Whether a lock is had by this client.
    pub fn is_own(&self, lock: &Lock) -> bool {
        self.volume().tree().shared().behind.contents().is_program(lock.owner.client)
    }

    /// Gives up what an owner has locked of a stretch.
    pub async fn unlock(&self, owner: u64, kind: LockKind, stretch: Stretch) -> Result<(), VolumeError> {
        self.volume().present().await?;
        self.volume().await_entered(&[self.inode()]).await?;
        let unlock = self.held().unlocking((owner, kind), stretch);
        self.volume().change(&Who::root(), unlock).await.map(drop)
    }

    /// Gives up all that an owner has locked: what a process does that closes the file, or ends.
    pub async fn unlock_all(&self, owner: u64) -> Result<(), VolumeError> {
        for kind in [LockKind::Fcntl, LockKind::Flock] {
            self.unlock(owner, kind, Stretch::ALL).await?;
        }
        Ok(())
    }

    /// An owner has nothing locked any more that is to be given up with this file. Another one may have locked the same for it.
    pub fn forget_owner(&self, owner: u64, kind: LockKind) {
        self.held().forget_owner((owner, kind));
    }

    /// Gives up all that was locked by it, whoever owns that. What this does not come to is done when it is dropped.
    pub async fn unlock_owners(&self) -> Result<(), VolumeError> {
        let held = self.held();
        for owner in held.owners() {
            self.volume().change(&Who::root(), held.unlocking(owner, Stretch::ALL)).await?;
            held.forget_owner(owner);
        }
        Ok(())
    }

    /// Closes it: all is given up that was locked by it. If it is cloned, that is done with the last one. What went wrong with what was
    /// written before is told, as far as that is known.
    pub async fn close(self) -> Result<(), VolumeError> {
        if self.is_last() {
            self.unlock_owners().await?;
        }
        self.tell_fault()
    }

    async fn prepare_lock(&self, wanted: FileLock) -> Result<(), VolumeError> {
        self.volume().present().await?;
        self.volume().await_entered(&[self.inode()]).await?;
        self.held().note_owner((wanted.owner, wanted.kind));
        Ok(())
    }

    async fn ask_for_lock(&self, wanted: FileLock, wait: bool) -> Result<Option<Ticket>, VolumeError> {
        let lock = || TreeChange::Lock { inode: self.inode(), lock: wanted.wanted(), wait };
        let root = Who::root();
        match self.source().opened(|| self.volume().change(&root, lock())).await? {
            Done::Locked { waits, .. } => Ok(waits),
            _ => Err(ObjectError::Mismatch.into()),
        }
    }

    async fn run_lock(
        self,
        wanted: FileLock,
        told: oneshot::Sender<Result<bool, VolumeError>>,
        ended: oneshot::Receiver<()>,
    ) {
        let result = self.wait_for_lock(wanted, ended).await;
        let is_had = matches!(result, Ok(true));
        if told.send(result).is_err() && is_had {
            let held = self.held();
            held.fire(held.unlocking((wanted.owner, wanted.kind), wanted.stretch));
        }
    }

    async fn wait_for_lock(
        &self,
        wanted: FileLock,
        mut ended: oneshot::Receiver<()>,
    ) -> Result<bool, VolumeError> {
        let (lock, who) = (wanted.wanted(), Who::root());
        let Some(mut ticket) = self.ask_until_heard(wanted).await? else { return Ok(true) };
        loop {
            let ask = Ask::Wish { inode: self.inode(), lock, ticket };
            let answer = tokio::select! {
                biased;
                _ = &mut ended => None,
                answer = self.volume().ask(&who, ask) => Some(answer),
            };
            match answer {
                Some(Ok(Answer::Wish(Wish::Waits))) => {}
                // It lasts until somebody leads the volume.
                Some(Err(VolumeError::Object(ObjectError::Unanswered { .. }))) => {}
                Some(Ok(Answer::Wish(Wish::Had))) => return Ok(true),
                // The daemons lost it with their power, or this owner unlocked elsewhere what was just granted.
                Some(Ok(Answer::Wish(Wish::Gone))) => match self.ask_until_heard(wanted).await? {
                    Some(next) => ticket = next,
                    None => return Ok(true),
                },
                Some(Ok(_)) => return Err(ObjectError::Mismatch.into()),
                Some(Err(error)) => return Err(error),
                None => return self.take_back(ticket, lock).await,
            }
        }
    }

    /// Asks to have a lock or to wait for it until that is known to be so: what waits unknown to who asked would be granted to nobody.
    async fn ask_until_heard(&self, wanted: FileLock) -> Result<Option<Ticket>, VolumeError> {
        loop {
            match self.ask_for_lock(wanted, true).await {
                // If it waits already it does not wait twice.
                Err(VolumeError::Object(ObjectError::Unanswered { .. })) => {}
                heard => return heard,
            }
        }
    }

    /// Nobody waits for a lock any more. Whether it is had by now.
    async fn take_back(&self, ticket: Ticket, lock: Lock) -> Result<bool, VolumeError> {
        let (inode, who) = (self.inode(), Who::root());
        loop {
            match self.volume().change(&who, TreeChange::Cancel { inode, ticket }).await {
                Err(VolumeError::Object(ObjectError::Unanswered { .. })) => {}
                Err(VolumeError::Refused(NameError::NotWaiting { .. })) => break,
                Ok(_) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        loop {
            match self.volume().ask(&who, Ask::Wish { inode, lock, ticket }).await {
                Err(VolumeError::Object(ObjectError::Unanswered { .. })) => {}
                Ok(Answer::Wish(wish)) => return Ok(wish == Wish::Had),
                Ok(_) => return Err(ObjectError::Mismatch.into()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl Client {
    /// What this client has written is sent, and what it has open and locked in volumes is gone from now on: for whoever is about to end, and cannot [close](Self::close) it
    /// because it is still used.
    pub async fn leave_volumes(&self) {
        self.shared.reopening.clear();
        self.shared.return_all(self.patience).await;
        let volumes: Vec<_> = self.shared.with_objects(|objects| objects.core.attended().collect());
        let leaving = async {
            for id in volumes {
                let op = Op::wanted(Who::root(), TreeChange::Expire { client: SELF });
                // Whoever misses it ends this client later.
                let _ = self.object(id).change_tree(op).await;
            }
        };
        let _ = timeout(LEAVE_TIMEOUT, leaving).await;
    }
}
