//! Files that this client creates, opens and removes by itself, around their core: who has that entered, and what is told of it.
//!
//! What was done within a short time is entered together. Whoever waits for one of them has that begun at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use base::{Members, MonoTime, NodeId, ObjectId, WallTime};
use namespace::{Attributes, Change, Done, Expect, Fate, Generation, InodeId, Kind, Name, Op, Site, Who};
use node::{Capability, OpenMode, list_of_volumes};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::behind::fault_of;
use crate::clock;
use crate::core::content::{FileId, Recall};
use crate::core::creations::{Creations, Numbered, Pending, Turn, gives_otherwise, may_remove_dir, new_file};
use crate::core::files::{Files, Opening};
use crate::core::grants::ChangeId;
use crate::driver::{Client, Shared};
use crate::holding::{Held, Kept};
use crate::objects::{Object, ObjectError};
use crate::reopening::OWNER_BOTH;
use crate::source::Source;
use crate::volume_files::VolumeFile;
use crate::volumes::{Volume, VolumeError};

/// What is done within this time is entered together, and so much at once.
const GATHERED_FOR: Duration = Duration::from_millis(10);
const GATHERED_MAX: usize = 8;
/// Who has nothing to do looks this often whether there is a client.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// So much is lent to this client at most before it asks for each file that it creates: the rest is for other files that it writes.
const LENDS_MAX: usize = node::LENDS_MAX / 2;
/// Only these permissions are given here.
const PERMISSIONS: u16 = 0o777;

/// What became of a file that this client has created, once that is known.
pub(crate) type Entered = watch::Receiver<Option<Result<(), VolumeError>>>;

/// What this client creates, opens and removes by itself.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// Held for moments only. Locked after the state and the cache.
    creations: Mutex<Creations>,
    /// Locked before what was created.
    queue: Mutex<Queue>,
    /// Something was done that is to be entered.
    wake: Notify,
    /// Somebody waits for that.
    urge: Notify,
    /// Counts whatever somebody may wait for.
    progress: watch::Sender<u64>,
    is_over: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct Queue {
    created: Vec<Creation>,
    opened: Vec<Arrival>,
    removed: Vec<Departure>,
    is_tended: bool,
}

impl Queue {
    fn is_empty(&self) -> bool {
        self.created.is_empty() && self.opened.is_empty() && self.removed.is_empty()
    }
}

/// A file that is to be entered.
#[derive(Debug)]
struct Creation {
    source: Source,
    pending: Pending,
    under: Generation,
    op: Arc<Op>,
    change: ChangeId,
    told: watch::Sender<Option<Result<(), VolumeError>>>,
}

/// A file of which its volume is to be told that it is open.
#[derive(Debug)]
struct Arrival {
    source: Source,
    pending: Pending,
    who: Who,
    mode: OpenMode,
    /// Who may do what with it, as far as that was known.
    rights: Option<u64>,
    told: watch::Sender<Option<Result<(), VolumeError>>>,
}

/// A file of which its volume is to be told that it is removed.
#[derive(Debug)]
struct Departure {
    volume: Volume,
    pending: Pending,
    site: Site,
    op: Arc<Op>,
    change: ChangeId,
}

/// A change may remove a directory until this is dropped.
#[derive(Debug)]
pub(crate) struct Removal {
    shared: Arc<Shared>,
    volume: ObjectId,
    /// Whether nothing of it is under way whose outcome nobody knows.
    is_known: bool,
}

impl Removal {
    fn begin(volume: &Volume) -> Self {
        let shared = Arc::clone(volume.tree().shared());
        shared.ahead.creations().begin_removal(volume.object());
        Self { shared, volume: volume.object(), is_known: true }
    }

    /// It is about to be sent.
    pub(crate) const fn send(&mut self) {
        self.is_known = false;
    }

    /// It has come to this.
    pub(crate) const fn end<T>(&mut self, result: &Result<T, ObjectError>) {
        self.is_known = matches!(result, Ok(_) | Err(ObjectError::Refused(_) | ObjectError::NoSuchObject));
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        self.shared.ahead.creations().end_removal(self.volume, self.is_known);
    }
}

impl Ahead {
    pub(crate) fn creations(&self) -> MutexGuard<'_, Creations> {
        self.creations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nothing that was created until now is pending like this.
    pub(crate) async fn until_entered(
        &self,
        patience: Duration,
        is_pending: impl Fn(&Creations, u64) -> bool,
    ) -> Result<(), ObjectError> {
        let first = {
            let creations = self.creations();
            if !is_pending(&creations, creations.count()) {
                return Ok(());
            }
            creations.count()
        };
        let mut progress = self.progress.subscribe();
        self.urge.notify_one();
        let wait = async {
            while is_pending(&self.creations(), first) {
                // It ends with the client at the earliest.
                let _ = progress.changed().await;
            }
        };
        timeout(patience, wait).await.map_err(|_| not_entered(patience))
    }

    /// So much was done since something was entered last.
    fn gathered(&self, count: usize) {
        self.wake.notify_one();
        if count >= GATHERED_MAX {
            self.urge.notify_one();
        }
    }

    /// A daemon wants a directory back. Whether the answer has to wait.
    pub(crate) fn recall(&self, lend: (FileId, Generation), recall: Recall) -> bool {
        self.urge.notify_one();
        self.creations().recall(lend, recall)
    }

    /// Whoever waits for something that is not entered yet waits no longer than he has to.
    pub(crate) fn urge(&self) {
        self.urge.notify_one();
    }

    /// What was opened and is closed by now no volume need be told of. Nothing is locked while this is called.
    fn forget_closed(&self) {
        let closed: Vec<Arrival> =
            self.queue().opened.extract_if(.., |arrival| arrival.is_closed()).collect();
        closed.into_iter().for_each(Arrival::forget);
    }

    /// What was done to a file is entered, or never will be.
    fn ended(&self, pending: Pending) {
        self.creations().ended(pending);
        self.progress.send_modify(|count| *count += 1);
    }

    /// Waits until its volume may be told of something. Whether it is to be told.
    async fn until_turn(&self, pending: Pending) -> bool {
        let mut progress = self.progress.subscribe();
        loop {
            match self.creations().turn(pending) {
                Turn::Now => return true,
                Turn::Never => return false,
                Turn::Later => {}
            }
            // It ends with the client at the earliest.
            let _ = progress.changed().await;
        }
    }

    /// Nothing more is entered: the client has ended.
    pub(crate) fn end(&self) {
        self.is_over.send_replace(true);
        self.wake.notify_one();
        self.urge.notify_one();
    }
}

impl Object {
    /// Waits until the volume that it is has what of these this client has created by itself, and all that it has created in them.
    pub(crate) async fn await_entered(&self, inodes: &[InodeId]) -> Result<(), ObjectError> {
        let concerns = |creations: &Creations, first| creations.concerns(self.id(), inodes, first);
        self.shared().ahead.until_entered(self.patience(), concerns).await
    }

    /// The same of everything.
    async fn await_all_entered(&self) -> Result<(), ObjectError> {
        let is_pending = |creations: &Creations, first| creations.has_pending(self.id(), first);
        self.shared().ahead.until_entered(self.patience(), is_pending).await
    }
}

impl Volume {
    /// Waits until the volume has what of these this client has created by itself, and all that it has created in them.
    pub(crate) async fn await_entered(&self, inodes: &[InodeId]) -> Result<(), ObjectError> {
        self.tree().await_entered(inodes).await
    }

    /// The same of everything.
    pub(crate) async fn await_all_entered(&self) -> Result<(), ObjectError> {
        self.tree().await_all_entered().await
    }

    /// Whether something that this client has created is not entered yet, in a directory or under its number.
    pub(crate) fn is_entering(&self, inode: InodeId) -> bool {
        let creations = self.tree().shared().ahead.creations();
        creations.concerns(self.object(), &[inode], creations.count())
    }

    /// Has nothing created that a change might take away as long as what this returns is there, or that would not be as it is after the
    /// change.
    pub(crate) async fn prepare_names(&self, change: &Change) -> Result<Option<Removal>, ObjectError> {
        self.tree().shared().ahead.creations().share(self.object(), change);
        if may_remove_dir(change) {
            let removal = Removal::begin(self);
            self.await_all_entered().await?;
            return Ok(Some(removal));
        }
        if let Some(inode) = gives_otherwise(change) {
            let shared = self.tree().shared();
            shared.ahead.creations().stop(FileId { volume: self.object(), inode });
        }
        Ok(None)
    }

    /// Whether a directory that is made may be lent to this client, which the volume has to know of for that.
    pub(crate) async fn may_borrow_dir(&self) -> Result<bool, VolumeError> {
        let shared = self.tree().shared();
        if !shared.behind.is_on() || self.object() == list_of_volumes() {
            return Ok(false);
        }
        self.attend().await?;
        Ok(shared.ahead.creations().has_room())
    }

    /// Removes a file without asking anybody that this client has created like that, and that nobody has open. None if that may not be.
    pub(crate) fn remove_ahead(&self, who: &Who, site: &Site) -> Option<Done> {
        let shared = self.tree().shared();
        shared.ahead.forget_closed();
        if !shared.behind.is_on() || !self.is_present() {
            return None;
        }
        let (inode, pending, site, op, change) = shared.with_objects(|objects| {
            let (volume, now, mut cache) = (self.object(), clock::now(), shared.cache());
            let inode = cache.own_in(now, volume, who, (site.dir, &site.name))?;
            let file = FileId { volume, inode };
            let is_it = matches!(site.expect, Expect::Any) || site.expect == Expect::Inode(inode);
            let may = is_it && !shared.behind.contents().is_open(file);
            let (pending, removed) = may.then(|| use_own(shared, (now, &mut objects.core), file))??;
            let site = site.clone().naming(inode);
            let change = cache.leave(volume, &site, (inode, removed));
            let op = Change::Unlink { site: site.clone(), holders: Vec::new(), removed: Some(removed) };
            let op = Arc::new(Op::wanted(who.clone(), op));
            Some((inode, pending, site, op, change))
        })?;
        let departure = Departure { volume: self.clone(), pending, site, op, change };
        let mut queue = shared.ahead.queue();
        queue.removed.push(departure);
        let gathered = queue.removed.len();
        drop(queue);
        shared.ahead.gathered(gathered);
        tend(shared);
        Some(Done::Removed { inode, fate: Fate::Gone })
    }

    /// A directory was made.
    pub(crate) fn adopt_dir(&self, attributes: &Attributes) {
        let shared = self.tree().shared();
        if attributes.kind == Kind::Directory
            && let Some(under) = shared.behind.own(attributes)
        {
            let id = FileId { volume: self.object(), inode: attributes.inode };
            shared.ahead.creations().lend(clock::now(), id, (under, attributes.btime));
            tend(shared);
        }
    }
}

impl Client {
    /// Creates a file without asking anybody, in a directory that is lent to this client. None if that may not be.
    pub(crate) fn create_ahead(
        &self,
        volume: &Volume,
        who: &Who,
        place: (InodeId, &Name),
        (mode, umask): (u16, u16),
    ) -> Option<(Attributes, VolumeFile)> {
        let shared = volume.tree().shared();
        let is_plain = mode & !PERMISSIONS == 0;
        if !is_plain || shared.behind.count() >= LENDS_MAX || !volume.is_present() {
            return None;
        }
        let (attributes, (pending, under, op, change)) = shared.with_objects(|objects| {
            let (id, mut cache) = (volume.object(), shared.cache());
            // Whoever ends all that is lent looks for what was numbered before.
            if !shared.behind.is_on() {
                return None;
            }
            let now = clock::now();
            let lent = cache.free_in(now, id, who, place)?;
            let (under, dir) = (lent.generation, FileId { volume: id, inode: place.0 });
            let numbered = number(shared, (now, &mut objects.core), dir, under)?;
            let attributes = new_file(who, (numbered, lent), mode & !umask);
            let entry = entry(place, (under, numbered.number), &attributes);
            let op = Arc::new(Op::wanted(who.clone(), entry));
            let change = cache.enter(id, &op, &attributes);
            Some((attributes, (numbered.pending, under, op, change)))
        })?;
        let kept = Kept::of(volume, attributes.inode);
        let (told, entered) = watch::channel(None);
        let source = Source::entering(volume, OpenMode::ReadWrite, (Arc::clone(&kept), entered));
        shared.adopt(&attributes, &source);
        let creation = Creation { source: source.clone(), pending, under, op, change, told };
        let file = VolumeFile::new(source, Held::new(kept));
        self.created(&file, who, &attributes);
        let gathered = {
            let mut queue = shared.ahead.queue();
            queue.created.push(creation);
            queue.created.len()
        };
        shared.ahead.gathered(gathered);
        tend(shared);
        Some((attributes, file))
    }
}

impl Client {
    /// Opens a file, if whether that is allowed is known, and nothing has to be waited for. Needs a running tokio runtime.
    pub fn open_at_once(
        &self,
        volume: &Volume,
        who: &Who,
        (inode, mode): (InodeId, OpenMode),
    ) -> Option<VolumeFile> {
        self.open_again(volume, who, (inode, mode)).or_else(|| self.open_ahead(volume, who, (inode, mode)))
    }

    /// Opens a file that this client has created by itself, and has its volume told.
    fn open_ahead(
        &self,
        volume: &Volume,
        who: &Who,
        (inode, mode): (InodeId, OpenMode),
    ) -> Option<VolumeFile> {
        let (shared, id) = (volume.tree().shared(), FileId { volume: volume.object(), inode });
        inode.lent_dir()?;
        shared.ahead.forget_closed();
        if !shared.behind.is_on() || !volume.is_present() || volume.has_own_mode(inode) {
            return None;
        }
        let (pending, rights) = shared.with_objects(|objects| {
            let (now, cache) = (clock::now(), shared.cache());
            let is = cache.own(now, id.volume, who, inode)?;
            let may = is.mode & OWNER_BOTH == OWNER_BOTH && !is.has_acl;
            let (pending, _) = may.then(|| use_own(shared, (now, &mut objects.core), id))??;
            Some((pending, cache.rights(now, id.volume, inode)))
        })?;
        let kept = Kept::of(volume, inode);
        let (told, entered) = watch::channel(None);
        let source = Source::entering(volume, mode, (Arc::clone(&kept), entered));
        let arrival = Arrival { source: source.clone(), pending, who: who.clone(), mode, rights, told };
        shared.ahead.queue().opened.push(arrival);
        shared.ahead.wake.notify_one();
        tend(shared);
        VolumeFile::found(source, Held::new(kept))
    }
}

impl Creation {
    /// Has the file entered. Returns what to show to use it.
    async fn enter(&self) -> Result<Option<Box<Capability>>, VolumeError> {
        match self.tree().enter_held(Arc::clone(&self.op), self.change).await? {
            (Done::Created { .. }, capability) => Ok(capability),
            _ => Err(ObjectError::Mismatch.into()),
        }
    }

    /// Has the content used.
    async fn open(&self, capability: Option<Box<Capability>>) -> Result<(), VolumeError> {
        let source = &self.source;
        let capability = match capability {
            Some(capability) => *capability,
            // A daemon lacks the keys for that, or did.
            None => {
                // Who has created it may write to it whatever its permissions.
                let opening = Opening::Open(Who::root(), source.inode, OpenMode::ReadWrite);
                self.tree().open_held(opening).await?.1
            }
        };
        source.kept().opened();
        source.content.show(capability);
        Ok(())
    }

    /// Whoever was told that there is a file is not told otherwise because no daemon was there for some time: that ends with the client.
    fn tree(&self) -> Object {
        self.source.volume.tree().clone().with_patience(Duration::MAX)
    }

    /// Has it entered and opened, and tells what became of that.
    async fn run(self) {
        let (pending, shared) = (self.pending, Arc::clone(self.source.shared()));
        let mut is_over = shared.ahead.is_over.subscribe();
        let is_over = is_over.wait_for(|is_over| *is_over);
        tokio::select! {
            () = self.enter_and_open() => {}
            _ = is_over => self.give_up(&VolumeError::from(ObjectError::Closed), "is lost"),
        }
        shared.ahead.ended(pending);
        shared.told();
        tend(&shared);
    }

    async fn enter_and_open(&self) {
        let (id, shared) = (self.source.id(), self.source.shared());
        let entered = self.enter().await;
        if let (Err(_), Change::Enter { dir, .. }) = (&entered, &self.op.change) {
            shared.not_entered(FileId { volume: id.volume, inode: *dir });
        }
        let capability = match entered {
            Ok(capability) => capability,
            Err(error) => {
                shared.ahead.creations().void(self.pending);
                return self.give_up(&error, "is lost");
            }
        };
        // From now on it is a file as any other.
        shared.ahead.ended(self.pending);
        shared.told();
        match self.open(capability).await {
            Ok(()) => drop(self.told.send_replace(Some(Ok(())))),
            Err(error) => self.give_up(&error, "is there, but what was written to it is lost"),
        }
    }

    /// Nothing more comes of it.
    fn give_up(&self, error: &VolumeError, what: &str) {
        let (id, contents) = (self.source.id(), &self.source.shared().behind);
        if let Change::Enter { dir, name, .. } = &self.op.change {
            tracing::warn!("{name:?}, created in inode {dir} of volume {:?}, {what}: {error}", id.volume);
        }
        contents.contents().refuse((id, self.under), fault_of(error));
        self.told.send_replace(Some(Err(error.clone())));
    }
}

impl Arrival {
    /// Whether nobody has it open any more.
    fn is_closed(&self) -> bool {
        self.source.is_last()
    }

    /// It was closed before anybody else knew that it was open.
    fn forget(self) {
        let (id, shared) = (self.source.id(), self.source.shared());
        shared.renounce(id.volume);
        shared.ahead.ended(self.pending);
        shared.told();
    }

    /// Has it opened.
    async fn run(self) {
        let (id, shared) = (self.source.id(), Arc::clone(self.source.shared()));
        let mut is_over = shared.ahead.is_over.subscribe();
        let is_over = is_over.wait_for(|is_over| *is_over);
        let opened = tokio::select! {
            opened = self.open(&shared) => opened,
            _ = is_over => Err(ObjectError::Closed),
        };
        if let Err(error) = &opened {
            tracing::warn!("inode {} of volume {:?} is not open: {error}", id.inode, id.volume);
        }
        self.told.send_replace(Some(opened.map_err(VolumeError::from)));
        shared.ahead.ended(self.pending);
        shared.told();
        tend(&shared);
    }

    async fn open(&self, shared: &Arc<Shared>) -> Result<(), ObjectError> {
        let id = self.source.id();
        if !shared.ahead.until_turn(self.pending).await {
            shared.renounce(id.volume);
            return Err(ObjectError::NoSuchObject);
        }
        let tree = self.source.volume.tree().clone().with_patience(Duration::MAX);
        let opening = Opening::Open(self.who.clone(), id.inode, self.mode);
        let (_, capability) = tree.open_own(opening).await?;
        self.source.kept().opened();
        self.source.content.show(capability);
        shared.keep_open(&self.source, &self.who, (self.mode, self.rights));
        Ok(())
    }
}

impl Departure {
    /// Has it removed.
    async fn run(self) {
        let shared = Arc::clone(self.volume.tree().shared());
        let mut is_over = shared.ahead.is_over.subscribe();
        let is_over = is_over.wait_for(|is_over| *is_over);
        tokio::select! {
            () = self.leave(&shared) => {}
            _ = is_over => self.give_up(&shared, &ObjectError::Closed),
        }
        shared.ahead.ended(self.pending);
        shared.told();
        tend(&shared);
    }

    async fn leave(&self, shared: &Shared) {
        if !shared.ahead.until_turn(self.pending).await {
            // Whoever has created it was told that it never came to be.
            shared.renounce(self.volume.object());
            shared.cache().abandon(self.change);
            return;
        }
        // Whoever was told that it is gone is not told otherwise because no daemon was there for some time.
        let tree = self.volume.tree().clone().with_patience(Duration::MAX);
        match tree.enter_held(Arc::clone(&self.op), self.change).await {
            Ok(removed) => drop(self.volume.noted(removed)),
            Err(error) => self.give_up(shared, &error),
        }
    }

    /// It is there again.
    fn give_up(&self, shared: &Shared, error: &ObjectError) {
        let (volume, Site { dir, name, .. }) = (self.volume.object(), &self.site);
        tracing::warn!("{name:?}, removed from inode {dir} of volume {volume:?}, is there again: {error}");
        shared.not_entered(FileId { volume, inode: *dir });
    }
}

impl Shared {
    /// Nothing comes of something for which a number was kept.
    fn renounce(&self, volume: ObjectId) {
        self.with_objects(|objects| objects.core.renounce(clock::now(), volume));
        self.wake();
    }

    /// What was done in a directory by this client alone was refused. Whoever syncs it hears of that.
    fn not_entered(&self, FileId { volume, inode }: FileId) {
        self.with_objects(|objects| objects.handles.note_loss(volume));
        // Why this was refused the next one may be, too, and whoever does it shall be told.
        self.ahead.creations().stop_all(volume);
        self.watched.untrue(volume, inode);
    }
}

/// Has somebody look after what this client does by itself, unless somebody does.
fn tend(shared: &Arc<Shared>) {
    if !std::mem::replace(&mut shared.ahead.queue().is_tended, true) {
        tokio::spawn(look_after(Arc::downgrade(shared)));
    }
}

/// Has entered what this client has done by itself, and gives back directories that nobody uses, as long as there are any.
async fn look_after(client: Weak<Shared>) {
    while let Some(shared) = client.upgrade() {
        let ahead = Arc::clone(&shared.ahead);
        // The state is locked before this is, so this is let go before anything else is done.
        let idle = ahead.creations().take_idle(clock::now());
        give_back(&shared, idle);
        let idle_at = {
            let mut queue = ahead.queue();
            let idle_at = ahead.creations().idle_at();
            if queue.is_empty() && (idle_at.is_none() || *ahead.is_over.borrow()) {
                queue.is_tended = false;
                return;
            }
            idle_at.filter(|_| queue.is_empty())
        };
        if let Some(at) = idle_at {
            drop(shared);
            let left = Duration::from_micros(at.since(clock::now()).as_micros());
            let _ = timeout(left.min(LOOK_EVERY), ahead.wake.notified()).await;
            continue;
        }
        let _ = timeout(GATHERED_FOR, ahead.urge.notified()).await;
        ahead.forget_closed();
        let Queue { created, opened, removed, .. } = &mut *ahead.queue();
        opened.drain(..).for_each(|arrival| _ = tokio::spawn(arrival.run()));
        created.drain(..).for_each(|creation| _ = tokio::spawn(creation.run()));
        removed.drain(..).for_each(|departure| _ = tokio::spawn(departure.run()));
    }
}

/// Gives directories back. Whoever is not told has them taken back.
fn give_back(shared: &Arc<Shared>, dirs: Vec<(FileId, Generation)>) {
    for (FileId { volume, inode }, generation) in dirs {
        let tree = Object::of(shared, volume);
        tokio::spawn(async move {
            let (modified, accessed) = (None, None);
            let (mode, changed, is_untouched) = (None, None, true);
            let change =
                Change::Return { inode, generation, modified, accessed, mode, changed, is_untouched };
            tree.change_tree(Op::wanted(Who::root(), change)).await
        });
    }
}

/// Somebody has waited for so long.
pub(crate) const fn not_entered(patience: Duration) -> ObjectError {
    let why = "what was created before waits to be entered";
    ObjectError::Unanswered { patience_s: patience.as_secs(), why }
}

/// Numbers a file that is about to be created, if it may be: also when it is entered nothing may be in the way.
fn number(
    shared: &Shared,
    (now, files): (MonoTime, &mut Files),
    dir: FileId,
    under: Generation,
) -> Option<Numbered> {
    if !files.promise(now, dir.volume) {
        return None;
    }
    let numbered = shared.ahead.creations().number(now, dir, under);
    if numbered.is_none() {
        files.renounce(now, dir.volume);
    }
    numbered
}

/// As what something is pending that opens or removes a file here, and when that is, if it may be. A number is kept for it then.
fn use_own(
    shared: &Shared,
    (now, files): (MonoTime, &mut Files),
    file: FileId,
) -> Option<(Pending, WallTime)> {
    if !files.promise(now, file.volume) {
        return None;
    }
    let used = shared.ahead.creations().use_own(now, file);
    if used.is_none() {
        files.renounce(now, file.volume);
    }
    used
}

fn entry((dir, name): (InodeId, &Name), (under, number): (Generation, u64), file: &Attributes) -> Change {
    // Who replicates it the daemon says.
    let replicas = Members::new([NodeId(0)]).expect("one is enough");
    let (name, mode, created) = (name.clone(), file.mode, file.btime);
    Change::Enter { dir, under, number, name, replicas, mode, created }
}
