//! What the kernel may believe without asking, and that it does so no longer.
//!
//! The kernel is told attributes to believe for as long as the client may answer them by itself: until its session with the volume's primary
//! would end. When that is over before, because somebody else is about to change them, the client says so, and the kernel is told by a
//! thread that does nothing else. Only then the client answers the daemon. So the kernel never believes what is not so any more.
//!
//! Why a reply that is on its way cannot bring back what was dropped:
//!
//! - That the kernel may believe something is [noted](Inodes::believe) before it is looked for in the client. So whoever revokes it after it
//!   was found there finds that note.
//! - The kernel does not take attributes from a reply to a request that is older than its last notice about the inode. That holds for inodes
//!   that it has. One that it is told of for the first time it believes nothing of.
//! - That it does not have an inode that it was told of before means that a reply or its forgetting is on the way; it is told again then.
//!
//! # What is deliberately absent
//!
//! Content. What the kernel keeps of a file it shows as long as it believes the size and the time of its last change, and those are not to be
//! had for sure: of several replies that are on their way it takes in the first, though that may be the older one, and readers beside the one whose
//! reply says that the content has changed still find what was there. So each read comes here. Only mappings have pages.
//!
//! Names, but for those of directories: the kernel asks for each one each time, and is answered at once from the client's cache. To have it drop
//! a name takes the lock of its directory, which whoever creates something there holds while he waits for the daemon, which waits for the name to be
//! dropped. And to have it doubt all names (`FUSE_NOTIFY_INC_EPOCH`) makes it drop inodes with their content, and what is mounted below.
//!
//! # Names of directories
//!
//! Nearly all names of a path are of directories, and these are rarely renamed or removed. So the kernel is told to believe them for a moment, and
//! told to drop one before another mount takes it away, and not when anything else changes there. That waits for what this mount does to names in
//! the directory above, which may wait for other mounts to drop directories that are above that one. It does not wait behind whoever wants the name
//! dropped: the daemons see to that. So mounts wait in a circle only if two of them rename or remove directories of one directory at the same
//! time, and then it is over when the kernel has ceased to believe by itself.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::ObjectId;
use client::{Ended, Volume, Watch};
use namespace::{Answer, Ask, Attributes, InodeId, Kind, Name, Who};
use tokio::runtime::Handle;
use tokio::time::timeout_at;

use super::inodes::Inodes;
use super::names::{self, Place};
use super::{Fs, FsError};
use crate::clock;

/// How soon the kernel is told again of an inode that it does not have yet.
const AGAIN: Duration = Duration::from_millis(1);

/// For so long the kernel believes the name of a directory, at most.
const NAME_BELIEVED_FOR: Duration = Duration::from_millis(200);
/// And the attributes of a file that is lent to this client: who opens a file has asked for them just before.
const LENT_BELIEVED_FOR: Duration = Duration::from_millis(20);
/// The kernel counts from when the thread that asked runs again, which may be so much later.
const ENDS_AFTER: Duration = Duration::from_millis(100);

/// Has the kernel drop a name of the directory with this number.
type DropName = Arc<dyn Fn(u64, &Name) + Send + Sync>;

/// How the kernel is told something that it has not asked for.
pub(crate) struct Kernel {
    /// It believes no attributes of the inode with this number any more. False if it does not know it. Nobody waits.
    pub(crate) drop_attributes: Box<dyn Fn(u64) -> bool + Send + Sync>,
    /// It believes no more what the name of a directory in the one with this number names, when this returns. That takes as long as what is done
    /// to names there.
    pub(crate) drop_name: DropName,
    /// It has written what was written through mappings of the inode, when this returns. That takes as long as those writes do.
    pub(crate) write_mapped: Arc<dyn Fn(u64) + Send + Sync>,
    /// For what takes longer.
    pub(crate) runtime: Handle,
}

/// What the kernel is told of an inode, and for how long it may believe that.
pub(crate) type Shown = (Attributes, Duration);

/// What the kernel is told of what has a name, and for how long it may believe that it has it.
pub(crate) type Found = (Shown, Duration);

/// Changes through this mount are under way, until this is dropped.
pub(super) struct Changing<'a> {
    inodes: &'a Inodes,
    changed: Vec<InodeId>,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.changed.iter().for_each(|inode| self.inodes.end(*inode));
    }
}

impl Fs {
    /// How an inode is, if that is known without asking anybody and the kernel can be told at once.
    pub(crate) fn attributes_at_once(&self, number: u64) -> Option<Shown> {
        self.shown_at_once(self.inodes.id(number).ok()?)
    }

    /// What has a name, or that nothing has, on the same conditions. The kernel refers to it from now on.
    pub(crate) fn lookup_at_once(&self, who: &Who, place: Place<'_>) -> Option<Result<Found, FsError>> {
        let (dir, name) = names::place(&self.inodes, place).ok()?;
        let identity = self.now();
        let found = match identity.volume.known(who, &Ask::Lookup { dir, name: name.clone() })? {
            Ok(Answer::Attributes(found)) => found,
            Ok(_) => return None,
            Err(error) => return Some(Err(error.into())),
        };
        if found.lent.is_some() && !identity.volume.has_lent(&found) {
            return None;
        }
        // Of what it does not have yet it believes nothing.
        if !self.inodes.entered(&found) {
            return Some(Ok(((found, Duration::ZERO), Duration::ZERO)));
        }
        let name_time = self.name_time((dir, &name), &found);
        let shown = self.shown_at_once(found.inode).unwrap_or((found, Duration::ZERO));
        Some(Ok((shown, name_time)))
    }

    /// For how long the kernel may believe a name under which this was found.
    pub(super) fn name_time(&self, place: (InodeId, &Name), found: &Attributes) -> Duration {
        if found.kind != Kind::Directory {
            return Duration::ZERO;
        }
        let identity = self.now();
        let (from, time) = (clock::now(), identity.volume.known_for().min(NAME_BELIEVED_FOR));
        // First it is noted, and then looked whether it is so: whoever takes it away finds the note.
        let may_believe = self.inodes.believe_name(found.inode, place, from + time + ENDS_AFTER);
        left((from, time), may_believe && identity.volume.is_placed(found.inode, place))
    }

    fn shown_at_once(&self, inode: InodeId) -> Option<Shown> {
        self.believable(inode).or_else(|| self.lent(inode))
    }

    /// What is lent to this client. Whatever changes that comes from the kernel, but for the end of the lend.
    fn lent(&self, inode: InodeId) -> Option<Shown> {
        let identity = self.now();
        let (from, time) = (clock::now(), identity.volume.known_for().min(LENT_BELIEVED_FOR));
        let may_believe = self.inodes.believe(inode, from + time + ENDS_AFTER);
        let attributes = match identity.volume.known(&self.root, &Ask::Attributes { inode })? {
            Ok(Answer::Attributes(attributes)) => attributes,
            _ => return None,
        };
        let kept = identity.volume.keeps_for(&attributes)?;
        let lasts = kept > LENT_BELIEVED_FOR + ENDS_AFTER;
        Some((attributes, left((from, time), may_believe && lasts)))
    }

    /// What the kernel may believe of an inode, and for how long.
    fn believable(&self, inode: InodeId) -> Option<Shown> {
        let identity = self.now();
        let (from, time) = (clock::now(), identity.volume.known_for());
        let may_believe = self.inodes.believe(inode, from + time + ENDS_AFTER);
        match identity.volume.known(&self.root, &Ask::Attributes { inode })? {
            Ok(Answer::Attributes(attributes))
                if attributes.lent.is_none() || attributes.kind == Kind::Directory =>
            {
                Some((attributes, left((from, time), may_believe)))
            }
            _ => None,
        }
    }

    /// For how long the kernel may believe what it is about to be told, which was asked for.
    pub(super) fn with_time(&self, attributes: Attributes) -> Shown {
        match self.believable(attributes.inode) {
            Some((known, time)) if known == attributes => (attributes, time),
            _ => (attributes, Duration::ZERO),
        }
    }

    /// These are about to be changed through this mount. The client answers them no more by itself until that is done, and the kernel does not
    /// either.
    pub(super) fn changing(&self, changed: impl IntoIterator<Item = InodeId>) -> Changing<'_> {
        let begun = |inode: InodeId| {
            self.inodes.begin(inode);
            self.disbelieve(inode);
            inode
        };
        Changing { inodes: &self.inodes, changed: changed.into_iter().map(begun).collect() }
    }

    /// A daemon is about to judge by the permissions of a file. If these are known here alone the file is returned for that, and may end with
    /// another time.
    pub(super) fn judged(&self, volume: &Volume, inode: InodeId) -> Option<Changing<'_>> {
        volume.has_own_mode(inode).then(|| self.changing([inode]))
    }

    /// The kernel believes nothing of an inode any more that it was told before.
    pub(super) fn disbelieve(&self, inode: InodeId) {
        if self.inodes.is_believed(inode)
            && let Some(kernel) = self.kernel.get()
        {
            (kernel.drop_attributes)(inode.number);
        }
    }

    /// What was written through mappings of a file has come here.
    pub(super) async fn write_mapped(&self, number: u64) {
        if let Some(kernel) = self.kernel.get() {
            let write = kernel.write_mapped.clone();
            // Nobody ends such a task before its time.
            let _ = tokio::task::spawn_blocking(move || write(number)).await;
        }
    }

    /// A thread has the kernel drop what ends of that which the client may answer by itself, as long as the client lives.
    pub(super) fn follow(&self) -> std::io::Result<()> {
        let (watch, volume) = (self.now().client.watch(), self.now().volume.object());
        let (inodes, kernel) = (self.inodes.clone(), self.kernel.clone());
        let run = move || {
            if let Some(kernel) = kernel.get() {
                follow(&watch, volume, (&inodes, kernel));
            }
        };
        std::thread::Builder::new().name("kernel".to_owned()).spawn(run).map(drop)
    }
}

/// What is left of a time that began then, if the kernel may believe something for it.
fn left((from, time): (Instant, Duration), may_believe: bool) -> Duration {
    if may_believe { time.saturating_sub(clock::now() - from) } else { Duration::ZERO }
}

fn follow(watch: &Watch, volume: ObjectId, (inodes, kernel): (&Inodes, &Kernel)) {
    while let Some(ended) = watch.wait() {
        let mut dropped: BTreeMap<u64, InodeId> = if ended.volumes.contains(&volume) {
            inodes.all_believed().into_iter().map(|inode| (inode.number, inode)).collect()
        } else {
            let of_volume = ended.inodes.iter().filter(|(of, _)| *of == volume);
            of_volume.map(|(_, inode)| (inode.number, *inode)).collect()
        };
        let of_volume = ended.places.iter().filter(|(of, _)| *of == volume);
        let (names, until) = inodes.names(of_volume.map(|(_, inode)| *inode));
        loop {
            dropped.retain(|number, inode| inodes.is_believed(*inode) && !(kernel.drop_attributes)(*number));
            if dropped.is_empty() {
                break;
            }
            std::thread::sleep(AGAIN);
        }
        if let Some(until) = until {
            kernel.drop_names(names, until, ended);
        }
    }
}

impl Kernel {
    /// It drops these names, which it ceases to believe then by itself, and whoever waits for that goes on.
    fn drop_names(&self, names: Vec<(u64, Name)>, until: Instant, ended: Ended) {
        let drop_name = self.drop_name.clone();
        let drop_all = move || names.iter().for_each(|(dir, name)| drop_name(*dir, name));
        let dropping = self.runtime.spawn_blocking(drop_all);
        self.runtime.spawn(async move {
            let _ = timeout_at(until.into(), dropping).await;
            drop(ended);
        });
    }
}
