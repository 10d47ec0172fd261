//! Which inode a number of the kernel's stands for.
//!
//! FUSE has 64 bits, and an inode's id has a place in the volume's log and the epoch of that place. The place alone is the number,
//! because only one entry at a place was ever committed, and a client gives each number above it once; users see it as `st_ino`, the same on all
//! mounts and at all times. The epoch is kept here as long as the kernel refers to the inode, and so the table is as large as the kernel's.
//!
//! So is what the kernel was told of it when it was told of a name: whoever has looked a name up and asks how that is finds it gone if another
//! mount has removed it in between, and is shown what a local file system would show, that it has no name any more.
//!
//! It is also known here until when the kernel may [believe](Inodes::believe) what it was told of attributes, so that it is told when these
//! are not so any more, and not told of what it does not have. And by which names it may believe directories to be known.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use base::WallTime;
use namespace::{Attributes, Expect, InodeId, Kind, Name, Site};

use super::FsError;
use crate::clock;

/// The number of the directory that everything is below.
const ROOT: u64 = InodeId::ROOT.number;
/// A directory that had so many names lately is not believed to have another: renamed, it is believed to have both for a moment.
const PLACES_MAX: usize = 16;

/// The inodes that the kernel refers to.
pub(crate) struct Inodes {
    /// Held for moments only, and never while waiting.
    tables: Mutex<Tables>,
}

struct Tables {
    /// Each by itself: an ordered map keeps room for nearly as many more.
    known: BTreeMap<u64, Box<Known>>,
    /// What the kernel may believe to have these names.
    names: BTreeMap<(u64, Name), InodeId>,
}

struct Known {
    id: InodeId,
    /// How often the kernel was told of it, less what it has forgotten.
    lookups: u64,
    /// How it was when the kernel was told of it last. None of the root, which stays.
    told: Option<Told>,
    /// Until when it may believe what it was told. By the kernel's clock, which stands still while the machine sleeps.
    believed_until: Option<Instant>,
    /// Changes through this mount that are under way.
    changes: u32,
    /// Where it may believe it to be, if it is a directory. Very many are none.
    placed: Option<Box<Placed>>,
}

/// Names by which the kernel may believe a directory to be known, and until when it may believe any of these.
struct Placed {
    names: Vec<(u64, Name)>,
    until: Instant,
}

/// What of an inode is shown when it is gone. There are very many of these.
struct Told {
    kind: Kind,
    mode: u16,
    uid: u32,
    gid: u32,
    rdev: u64,
    size: u64,
    atime: WallTime,
    mtime: WallTime,
    ctime: WallTime,
    btime: WallTime,
}

impl Told {
    const fn of(attributes: &Attributes) -> Self {
        let &Attributes { kind, mode, uid, gid, rdev, size, atime, mtime, ctime, btime, .. } = attributes;
        Self { kind, mode, uid, gid, rdev, size, atime, mtime, ctime, btime }
    }

    const fn gone(&self, inode: InodeId) -> Attributes {
        let &Self { kind, mode, uid, gid, rdev, size, atime, mtime, ctime, btime } = self;
        let (links, lent, last_lend, replicas, has_acl) = (0, None, None, None, false);
        Attributes {
            inode,
            kind,
            mode,
            uid,
            gid,
            links,
            rdev,
            size,
            atime,
            mtime,
            ctime,
            btime,
            lent,
            last_lend,
            replicas,
            has_acl,
        }
    }
}

impl Known {
    const fn new(id: InodeId, lookups: u64) -> Self {
        Self { id, lookups, told: None, believed_until: None, changes: 0, placed: None }
    }

    fn is_believed(&self, now: Instant) -> bool {
        self.believed_until.is_some_and(|until| now < until)
    }

    fn placed(&self, now: Instant) -> Option<&Placed> {
        self.placed.as_deref().filter(|placed| now < placed.until)
    }
}

impl Tables {
    fn find(&mut self, inode: InodeId) -> Option<&mut Known> {
        self.known.get_mut(&inode.number).filter(|known| known.id == inode).map(|known| &mut **known)
    }

    /// An inode is not believed any more to have any of its names.
    fn leave_places(&mut self, inode: InodeId) {
        let placed = self.find(inode).and_then(|known| known.placed.take());
        for place in placed.into_iter().flat_map(|placed| placed.names) {
            if self.names.get(&place) == Some(&inode) {
                self.names.remove(&place);
            }
        }
    }

    fn enter_place(&mut self, inode: InodeId, place: (u64, Name), until: Instant) {
        let Some(known) = self.find(inode) else { return };
        let placed = known.placed.get_or_insert_with(|| Box::new(Placed { names: Vec::new(), until }));
        placed.until = placed.until.max(until);
        if !placed.names.contains(&place) {
            placed.names.push(place.clone());
        }
        self.names.insert(place, inode);
    }
}

impl Default for Inodes {
    /// The kernel refers to the root as long as it is mounted.
    fn default() -> Self {
        let known = BTreeMap::from([(ROOT, Box::new(Known::new(InodeId::ROOT, 1)))]);
        Self { tables: Mutex::new(Tables { known, names: BTreeMap::new() }) }
    }
}

impl Inodes {
    /// The inode of a number that the kernel has.
    pub(super) fn id(&self, number: u64) -> Result<InodeId, FsError> {
        self.tables().known.get(&number).map(|known| known.id).ok_or(FsError::Forgotten)
    }

    /// The kernel is told of an inode once more, and that it is like this. Whether it was told of it before.
    pub(super) fn entered(&self, told: &Attributes) -> bool {
        let (id, mut tables) = (told.inode, self.tables());
        let known = tables.known.entry(id.number).or_insert_with(|| Box::new(Known::new(id, 0)));
        known.lookups += 1;
        let lookups = known.lookups;
        if known.id != id {
            // What had the number before was never committed: nothing is there any more to refer to.
            let (before, changes) = (known.id, known.changes);
            tables.leave_places(before);
            tables.known.insert(id.number, Box::new(Known { changes, ..Known::new(id, lookups) }));
        }
        if let Some(known) = tables.find(id) {
            known.told = Some(Told::of(told));
        }
        lookups > 1
    }

    /// How an inode that is gone was when the kernel was told of it last, but that it has no name any more.
    pub(super) fn gone(&self, inode: InodeId) -> Option<Attributes> {
        self.tables().find(inode)?.told.as_ref().map(|told| told.gone(inode))
    }

    pub(super) fn forget(&self, number: u64, lookups: u64) {
        let mut tables = self.tables();
        let Some(known) = tables.known.get_mut(&number) else { return };
        known.lookups = known.lookups.saturating_sub(lookups);
        if known.lookups == 0 && number != ROOT {
            let id = known.id;
            tables.leave_places(id);
            tables.known.remove(&number);
        }
    }

    /// The kernel is about to be told attributes that it may believe until then. Who looks for them after this, and finds that
    /// they may be answered without asking, may tell them so: whatever ends that is looked for here afterwards. False if it may not
    /// believe any.
    pub(super) fn believe(&self, inode: InodeId, until: Instant) -> bool {
        let mut tables = self.tables();
        let Some(known) = tables.find(inode).filter(|known| known.changes == 0) else { return false };
        known.believed_until = known.believed_until.max(Some(until));
        true
    }

    /// The same for a name that a directory has.
    pub(super) fn believe_name(&self, inode: InodeId, (dir, name): (InodeId, &Name), until: Instant) -> bool {
        let (now, mut tables) = (clock::now(), self.tables());
        let Some(known) = tables.find(inode).filter(|known| known.changes == 0) else { return false };
        match known.placed(now) {
            Some(placed) if placed.names.len() >= PLACES_MAX => return false,
            Some(_) => {}
            None => tables.leave_places(inode),
        }
        tables.enter_place(inode, (dir.number, name.clone()), until);
        true
    }

    /// A directory that is about to be renamed through this mount: the kernel will believe that it has its new name.
    pub(super) fn moves(&self, from: &Site, to: &Site) {
        let Expect::Inode(inode) = from.expect else { return };
        let (now, mut tables) = (clock::now(), self.tables());
        if let Some(until) = tables.find(inode).and_then(|known| Some(known.placed(now)?.until)) {
            tables.enter_place(inode, (to.dir.number, to.name.clone()), until);
        }
    }

    /// The same place, with what the kernel believes to be there.
    pub(super) fn believed_site(&self, site: Site) -> Site {
        let (now, mut tables) = (clock::now(), self.tables());
        let named = tables.names.get(&(site.dir.number, site.name.clone())).copied();
        let is_placed =
            |inode: &InodeId| tables.find(*inode).is_some_and(|known| known.placed(now).is_some());
        match named.filter(is_placed) {
            Some(inode) => site.naming(inode),
            None => site,
        }
    }

    /// The names by which the kernel may believe these to be known, and until when. None if it does not any more.
    pub(super) fn names(&self, inodes: impl Iterator<Item = InodeId>) -> (Vec<(u64, Name)>, Option<Instant>) {
        let (now, mut tables) = (clock::now(), self.tables());
        let (mut names, mut last) = (Vec::new(), None);
        for inode in inodes {
            let Some(placed) = tables.find(inode).and_then(|known| known.placed(now)) else { continue };
            names.extend(placed.names.iter().cloned());
            last = last.max(Some(placed.until));
        }
        (names, last)
    }

    /// Whether the kernel may believe something of an inode.
    pub(super) fn is_believed(&self, inode: InodeId) -> bool {
        self.tables().find(inode).is_some_and(|known| known.is_believed(clock::now()))
    }

    /// All inodes of which it may.
    pub(super) fn all_believed(&self) -> Vec<InodeId> {
        let (now, tables) = (clock::now(), self.tables());
        tables.known.values().filter(|known| known.is_believed(now)).map(|known| known.id).collect()
    }

    /// A change of this inode through this mount begins: until it [ends](Self::end) nothing is believed of it.
    pub(super) fn begin(&self, inode: InodeId) {
        if let Some(known) = self.tables().known.get_mut(&inode.number) {
            known.changes += 1;
        }
    }

    pub(super) fn end(&self, inode: InodeId) {
        if let Some(known) = self.tables().known.get_mut(&inode.number) {
            // It may have been forgotten meanwhile, and be known anew.
            known.changes = known.changes.saturating_sub(1);
        }
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base::{Epoch, NodeId};

    use super::*;

    fn id(number: u64, epoch: u64) -> InodeId {
        InodeId { number, epoch: Epoch { number: epoch, node: NodeId(1) } }
    }

    fn told(inode: InodeId) -> Attributes {
        let time = WallTime::ZERO;
        Attributes {
            inode,
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            rdev: 0,
            size: 5,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            lent: None,
            last_lend: None,
            replicas: None,
            has_acl: false,
        }
    }

    #[test]
    fn an_inode_is_known_until_it_is_forgotten_as_often_as_it_was_told() {
        let inodes = Inodes::default();
        let inode = id(7, 3);
        assert_eq!(inodes.id(7), Err(FsError::Forgotten));
        inodes.entered(&told(inode));
        inodes.entered(&told(inode));
        inodes.forget(7, 1);
        assert_eq!(inodes.id(7), Ok(inode));
        inodes.forget(7, 1);
        assert_eq!(inodes.id(7), Err(FsError::Forgotten));
        assert_eq!(inodes.id(ROOT), Ok(InodeId::ROOT));
    }

    #[test]
    fn a_number_stands_for_what_was_committed_there() {
        let inodes = Inodes::default();
        inodes.entered(&told(id(7, 3)));
        inodes.entered(&told(id(7, 4)));
        assert_eq!(inodes.id(7), Ok(id(7, 4)));
        inodes.forget(7, 2);
        assert_eq!(inodes.id(7), Err(FsError::Forgotten));
    }

    #[test]
    fn what_is_gone_is_shown_as_the_kernel_was_told_of_it_last_and_has_no_name() {
        let (inodes, inode) = (Inodes::default(), id(7, 3));
        assert_eq!(inodes.gone(inode), None);
        inodes.entered(&told(inode));
        inodes.entered(&Attributes { size: 6, ..told(inode) });
        assert_eq!(inodes.gone(inode), Some(Attributes { links: 0, size: 6, ..told(inode) }));
        assert_eq!(inodes.gone(id(7, 4)), None, "another one has the number");
        inodes.forget(7, 2);
        assert_eq!(inodes.gone(inode), None);
        assert_eq!(inodes.gone(InodeId::ROOT), None, "it stays");
    }

    #[test]
    fn what_may_be_believed_is_known_until_it_may_not() {
        let (inodes, inode) = (Inodes::default(), id(7, 3));
        let soon = clock::now() + Duration::from_secs(60);
        assert!(!inodes.believe(inode, soon), "the kernel does not have it yet");
        assert!(!inodes.entered(&told(inode)));
        assert!(inodes.believe(inode, soon));
        assert!(inodes.is_believed(inode));
        assert_eq!(inodes.all_believed(), [inode]);
        inodes.begin(inode);
        assert!(!inodes.believe(inode, soon), "it is being changed");
        inodes.end(inode);
        assert!(inodes.believe(inode, soon));
        inodes.forget(7, 1);
        assert!(!inodes.is_believed(inode));
        assert!(inodes.believe(InodeId::ROOT, soon), "it always has the root");
    }

    #[test]
    fn names_of_a_directory_are_known_as_long_as_they_may_be_believed() {
        let (inodes, dir) = (Inodes::default(), id(7, 3));
        let site = |text: &str| Site::new(InodeId::ROOT, Name::new(text.as_bytes()).unwrap());
        let believe = |text: &str, until| {
            let site = site(text);
            inodes.believe_name(dir, (site.dir, &site.name), until)
        };
        let names = || inodes.names([dir].into_iter()).0.len();
        let soon = clock::now() + Duration::from_secs(60);
        assert!(!believe("a", soon), "the kernel does not have it yet");
        inodes.entered(&told(dir));
        assert!(believe("a", soon) && names() == 1);
        assert_eq!(inodes.believed_site(site("a")).expect, Expect::Inode(dir));
        assert_eq!(inodes.believed_site(site("b")).expect, Expect::Any);
        inodes.moves(&site("a").naming(dir), &site("b"));
        assert_eq!((inodes.believed_site(site("b")).expect, names()), (Expect::Inode(dir), 2));
        (2..PLACES_MAX).for_each(|number| assert!(believe(&number.to_string(), soon)));
        assert!(!believe("c", soon), "it has had too many");
        inodes.forget(7, 1);
        assert_eq!((inodes.believed_site(site("a")).expect, names()), (Expect::Any, 0));
        inodes.entered(&told(dir));
        assert!(believe("a", clock::now()) && names() == 0, "that is over at once");
        assert!(believe("b", soon) && names() == 1, "and with it all before");
    }
}
