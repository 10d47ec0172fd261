//! What is lent to this client, around its core: who looks after each lend, who waits for one, and what is told of them.
//!
//! Each lend has a task of its own, so what is slow of one file delays no other. It sends what the core says, returns the lend when the core
//! says so, and ends with it. As long as it goes on the file is open here, whoever has closed it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::{MonoTime, Span, WallTime};
use bytes::{Bytes, BytesMut};
use namespace::{Attributes, Change as TreeChange, Fate, Generation, InodeId, NameError, Op, Who};
use node::file::{Change, FileError, Level, Payload};
use node::file_object;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::core::content::{
    Contents, Fault, FileId, FlushId, Known, OwnerSet, Sent, Shown, Step, Whose, Work,
};
use crate::core::creations::Creations;
use crate::driver::Shared;
use crate::objects::ObjectError;
use crate::source::Source;
use crate::volumes::{Volume, VolumeError};

/// In this part of a session's time it is nearly over, and what was written is sent.
const NEARLY_OVER: u64 = 4;
/// Whoever asked for a lend has looked at the answer after so long.
const KNOWN_AFTER: Duration = Duration::from_millis(50);
/// Who ends waits so long until lends are returned of which everything was sent: the daemons find out otherwise, too.
const RETURN_TIMEOUT: Duration = Duration::from_secs(5);
/// How soon it is asked again for what is on its way back.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What the client has of contents.
#[derive(Debug)]
pub(crate) struct Behind {
    is_on: AtomicBool,
    session: Span,
    /// Held for moments only. Locked after the cache, which says whether anything may be answered from here.
    contents: Mutex<Contents>,
    /// Who looks after each lend. Locked alone.
    keepers: Mutex<BTreeMap<FileId, Arc<Notify>>>,
    /// Blocks that are being read. Locked alone.
    fetching: Mutex<BTreeSet<(FileId, u64)>>,
    /// Counts whatever somebody may wait for.
    progress: watch::Sender<u64>,
}

impl Behind {
    pub(crate) fn new(program: u64, session: Span, is_on: bool) -> Self {
        Self {
            is_on: AtomicBool::new(is_on),
            session,
            contents: Mutex::new(Contents::new(program)),
            keepers: Mutex::default(),
            fetching: Mutex::default(),
            progress: watch::Sender::new(0),
        }
    }

    /// Whether files are to be lent to this client.
    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// From now on none are.
    pub(crate) fn turn_off(&self) {
        self.is_on.store(false, Ordering::Relaxed);
    }

    pub(crate) fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lend that attributes speak of, if it is to this client.
    pub(crate) fn own(&self, attributes: &Attributes) -> Option<Generation> {
        self.contents().own(attributes)
    }

    /// Puts in size and times if they are lent to this client, and says whose they are.
    pub(crate) fn show(&self, volume: base::ObjectId, attributes: &mut Attributes) -> Whose {
        self.contents().show(volume, attributes)
    }

    /// Waits until something is so. False if that takes too long.
    pub(crate) async fn until(&self, patience: Duration, mut is_so: impl FnMut(&Contents) -> bool) -> bool {
        let mut news = self.progress.subscribe();
        let wait = async {
            while !is_so(&self.contents()) {
                // It ends with the client at the earliest.
                let _ = news.changed().await;
            }
        };
        timeout(patience, wait).await.is_ok()
    }

    /// Waits for anything that changes what is here, but not for long.
    pub(crate) async fn pause(&self, patience: Duration) {
        let mut news = self.progress.subscribe();
        let _ = timeout(patience, news.changed()).await;
    }

    /// Something is different for whoever waits.
    pub(crate) fn progress(&self) {
        self.progress.send_modify(|count| *count += 1);
    }

    /// Whoever looks after a file has to look.
    pub(crate) fn urge(&self, id: FileId) {
        if let Some(keeper) = self.keepers().get(&id) {
            keeper.notify_one();
        }
    }

    /// Nothing more is sent: the client has ended.
    pub(crate) fn end(&self) {
        self.turn_off();
        self.contents().end();
        self.urge_all();
        self.progress();
    }

    fn urge_all(&self) {
        self.keepers().values().for_each(|keeper| keeper.notify_one());
    }

    /// Begins to read blocks. Those that nobody reads already are returned.
    pub(crate) fn begin_fetching(&self, id: FileId, blocks: &[u64]) -> Vec<u64> {
        let mut fetching = self.fetching();
        blocks.iter().copied().filter(|block| fetching.insert((id, *block))).collect()
    }

    pub(crate) fn is_fetching(&self, id: FileId, blocks: &[u64]) -> bool {
        let fetching = self.fetching();
        blocks.iter().any(|block| fetching.contains(&(id, *block)))
    }

    pub(crate) fn end_fetching(&self, id: FileId, blocks: &[u64]) {
        let mut fetching = self.fetching();
        blocks.iter().for_each(|block| _ = fetching.remove(&(id, *block)));
        drop(fetching);
        self.progress();
    }

    /// How many files are lent to this client, or were just now.
    pub(crate) fn count(&self) -> usize {
        self.keepers().len()
    }

    fn keepers(&self) -> MutexGuard<'_, BTreeMap<FileId, Arc<Notify>>> {
        self.keepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fetching(&self) -> MutexGuard<'_, BTreeSet<(FileId, u64)>> {
        self.fetching.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Acts on what is known of a file. Nothing is taken back meanwhile.
    pub(crate) fn with_known<T>(&self, id: FileId, act: impl FnOnce(&mut Known<'_>) -> T) -> T {
        let mut cache = self.cache();
        let (now, mut contents) = (clock::now(), self.behind.contents());
        act(&mut Known { now, id, cache: &mut cache, contents: &mut contents })
    }

    /// Acts on what is lent to this client, if that may be done without asking.
    pub(crate) fn with_lent<T>(
        &self,
        id: FileId,
        act: impl FnOnce(&mut Contents, (MonoTime, WallTime), Generation) -> Option<T>,
    ) -> Option<T> {
        self.with_known(id, |known| {
            let generation = known.lent()?;
            act(known.contents, (known.now, clock::wall()), generation)
        })
    }

    /// A file may be lent to this client, as its volume says: then it is looked after.
    pub(crate) fn adopt(&self, attributes: &Attributes, source: &Source) {
        let Some(generation) = self.behind.own(attributes) else { return };
        let (id, now) = (source.id(), clock::now());
        let lend = (generation, attributes.last_lend);
        let is_new = self.behind.contents().adopt(now, id, lend, Shown::of(attributes));
        if is_new {
            let wake = Arc::new(Notify::new());
            // Whoever looked after an earlier lend finds that it is over.
            if let Some(before) = self.behind.keepers().insert(id, wake.clone()) {
                before.notify_one();
            }
            tokio::spawn(keep(source.clone(), generation, wake));
        }
        self.told();
    }

    /// What is lent of a file is returned, and that has an outcome.
    pub(crate) async fn return_lent(&self, id: FileId, patience: Duration) -> bool {
        if !self.behind.contents().give_back(id) {
            return true;
        }
        self.behind.urge(id);
        self.behind.until(patience, |contents| contents.generation(id).is_none()).await
    }

    /// Everything that was written is sent, and everything that is lent is returned, as far as daemons are there for that.
    pub(crate) async fn return_all(&self, patience: Duration) {
        self.behind.turn_off();
        let _ = self.ahead.until_entered(patience, Creations::is_pending).await;
        self.behind.contents().recall_all();
        self.behind.urge_all();
        // What is not done by then is lost with this client.
        if self.behind.until(patience, Contents::has_sent_all).await {
            let _ = self.behind.until(patience.min(RETURN_TIMEOUT), Contents::has_no_lends).await;
        }
    }

    /// Nothing names a file any more: what was written to it goes with it, unless somebody has it open.
    pub(crate) fn note_removed(&self, id: FileId, fate: Fate) {
        if !matches!(fate, Fate::Named { .. } | Fate::Orphan { holders: 2.. }) {
            self.reopening.forget(id);
            self.behind.contents().removed(id);
            let content = file_object(id.volume, id.inode);
            self.with_objects(|objects| {
                // What somebody else still has open is not gone.
                let is_gone = !matches!(fate, Fate::Orphan { .. });
                if is_gone || objects.core.open_in(id.volume).contains(&id.inode) {
                    objects.core.note_removed(content);
                    objects.handles.note_removed(content);
                }
            });
            self.told();
            self.behind.urge(id);
        }
    }

    /// Something came of what was sent, or of a lend. The driver is woken up only for what it is to answer: files are opened and closed
    /// very often.
    pub(crate) fn told(&self) {
        let lost = self.behind.contents().take_lost();
        for (FileId { volume, inode }, Range { start, end }) in lost {
            tracing::warn!(
                "bytes {start} to {end} of inode {inode} of volume {volume:?} were written here and are lost"
            );
        }
        self.behind.progress();
        let answers = self.behind.contents().has_answered() || self.ahead.creations().has_answered();
        if answers {
            self.wake();
        }
    }
}

impl Volume {
    /// Returns a lend to this client.
    async fn return_lend(
        &self,
        (inode, generation): (InodeId, Generation),
        (OwnerSet { modified, accessed, mode }, changed, is_untouched): (OwnerSet, Option<WallTime>, bool),
    ) -> Result<(), VolumeError> {
        let (mode, who) = mode.map_or_else(|| (None, Who::root()), |(mode, who)| (Some(mode), who));
        let change =
            TreeChange::Return { inode, generation, modified, accessed, mode, changed, is_untouched };
        self.tree().change_tree(Op::wanted(who, change)).await?;
        Ok(())
    }

    /// Waits for a lend to this client that is about to be known here, or returned. If it is neither it is returned, and never used. What it was dropped
    /// with is gone, although the volume takes this client to have the file open, until it is told.
    pub(crate) async fn refuse_lend(
        &self,
        inode: InodeId,
        generation: Generation,
    ) -> Result<(), VolumeError> {
        let id = FileId { volume: self.object(), inode };
        let behind = &self.tree().shared().behind;
        if behind.contents().was_dropped(id) {
            return Err(VolumeError::Refused(NameError::NoInode { inode }));
        }
        let is_known = |contents: &Contents| {
            contents.generation(id) == Some(generation) || contents.has_ended(id, generation)
        };
        if !behind.until(KNOWN_AFTER, is_known).await && behind.contents().disown(id, generation) {
            return self.return_lend((inode, generation), (OwnerSet::default(), None, false)).await;
        }
        behind.pause(LOOK_EVERY).await;
        Ok(())
    }
}

impl Fault {
    /// What whoever has the file open is told.
    pub(crate) fn told(self, volume: &Volume) -> VolumeError {
        match self {
            Self::Refused(FileError::Tree(error)) => VolumeError::Refused(error),
            Self::Refused(error) => VolumeError::Object(error.into()),
            Self::NotLent => VolumeError::TakenBack,
            Self::Removed => VolumeError::Object(ObjectError::NoSuchObject),
            Self::Ended => VolumeError::Ended(volume.name().clone()),
        }
    }
}

/// Looks after a lend until it is over.
async fn keep(source: Source, generation: Generation, wake: Arc<Notify>) {
    let (id, behind) = (source.id(), &source.shared().behind);
    let mut under_way = JoinSet::new();
    loop {
        match source.next(generation) {
            Step::Over => break,
            Step::Work(work) => drop(under_way.spawn(do_work(source.clone(), generation, work))),
            Step::Wait(until) => {
                let left = until
                    .map_or(Duration::MAX, |at| Duration::from_micros(at.since(clock::now()).as_micros()));
                tokio::select! {
                    () = wake.notified() => {}
                    () = sleep(left) => {}
                    Some(_) = under_way.join_next() => {}
                }
            }
        }
    }
    let mut keepers = behind.keepers();
    if keepers.get(&id).is_some_and(|keeper| Arc::ptr_eq(keeper, &wake)) {
        keepers.remove(&id);
    }
}

/// Does what the core wants, and tells what came of it.
async fn do_work(source: Source, generation: Generation, work: Work) {
    match work {
        Work::Write { flush, offset, data, level } => {
            let data = Payload::new(joined(data));
            source.flush((generation, level), flush, || Change::Write { offset, data: data.clone() }).await;
        }
        Work::Resize { flush, size, level } => {
            source.flush((generation, level), flush, || Change::Truncate { size }).await;
        }
        Work::Return { set, changed, is_untouched } => {
            let told = (set, Some(changed), is_untouched);
            let done = match source.entered().await {
                Ok(()) => source.volume.return_lend((source.inode, generation), told).await,
                Err(error) => Err(error),
            };
            let sent = sent(&done);
            source.shared().behind.contents().returned((source.id(), generation), sent);
            source.shared().told();
        }
    }
}

impl Source {
    fn next(&self, generation: Generation) -> Step {
        let shared = self.shared();
        let lasts = shared.cache().lasts(self.volume.object());
        let session = shared.behind.session;
        let by =
            lasts.map(|until| until.saturating_sub(Span::from_micros(session.as_micros() / NEARLY_OVER)));
        shared.behind.contents().next(clock::now(), (self.id(), generation), by)
    }

    async fn flush(
        &self,
        (generation, level): (Generation, Level),
        flush: FlushId,
        change: impl Fn() -> Change,
    ) {
        let done = self.opened(|| self.content.flush(change(), (generation, level))).await;
        let told = (flush, sent(&done));
        self.shared().behind.contents().sent(clock::now(), (self.id(), generation), told);
        self.shared().told();
    }
}

/// How far something has come that ended this way.
fn sent<T>(result: &Result<T, VolumeError>) -> Sent {
    match result {
        Ok(_) => Sent::Done,
        Err(VolumeError::Object(ObjectError::Unanswered { .. } | ObjectError::Closed)) => Sent::Unknown,
        Err(error) => Sent::Failed(fault_of(error)),
    }
}

/// What went wrong that ended this way.
pub(crate) const fn fault_of(error: &VolumeError) -> Fault {
    match error {
        VolumeError::Object(ObjectError::Refused(FileError::NotLent))
        | VolumeError::Refused(NameError::NotLent { .. }) => Fault::NotLent,
        VolumeError::Object(ObjectError::Refused(error)) => Fault::Refused(*error),
        VolumeError::Object(ObjectError::NoSuchObject) => Fault::Removed,
        VolumeError::Refused(error) => Fault::Refused(FileError::Tree(*error)),
        _ => Fault::Ended,
    }
}

fn joined(pieces: Vec<Bytes>) -> Bytes {
    if let [one] = &pieces[..] {
        return one.clone();
    }
    let mut all = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    pieces.iter().for_each(|piece| all.extend_from_slice(piece));
    all.freeze()
}
