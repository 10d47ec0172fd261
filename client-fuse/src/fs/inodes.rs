//! Which inode a number of the kernel's stands for.
//!
//! FUSE has 64 bits, and an inode's id has a place in the volume's log and the epoch of that place. The place alone is the number,
//! because only one entry at a place was ever committed; users see it as `st_ino`, the same on all mounts and at all times.
//! The epoch is kept here as long as the kernel refers to the inode, and so the table is as large as the kernel's.
//!
//! It is also known here until when the kernel may [believe](Inodes::believe) what it was told of attributes, so that it is told when these
//! are not so any more, and not told of what it does not have.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use base::WallTime;
use namespace::{Attributes, InodeId};

use super::FsError;
use crate::clock;

/// The number of the directory that everything is below.
const ROOT: u64 = InodeId::ROOT.number;

/// The inodes that the kernel refers to.
pub(crate) struct Inodes {
    /// Held for moments only, and never while waiting.
    known: Mutex<BTreeMap<u64, Known>>,
}

struct Known {
    id: InodeId,
    /// How often the kernel was told of it, less what it has forgotten.
    lookups: u64,
    told: Option<Version>,
    /// Whether the kernel is known to have taken in what it was told last.
    is_sure: bool,
    /// Until when it may believe that. By the kernel's clock, which stands still while the machine sleeps.
    believed_until: Option<Instant>,
    /// Changes through this mount that are under way.
    changes: usize,
}

impl Known {
    const fn new(id: InodeId, lookups: u64) -> Self {
        Self { id, lookups, told: None, is_sure: false, believed_until: None, changes: 0 }
    }

    fn is_believed(&self, now: Instant) -> bool {
        self.believed_until.is_some_and(|until| now < until)
    }
}

impl Default for Inodes {
    /// The kernel refers to the root as long as it is mounted.
    fn default() -> Self {
        Self { known: Mutex::new(BTreeMap::from([(ROOT, Known::new(InodeId::ROOT, 1))])) }
    }
}

/// What tells two states of a file's content apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Version {
    size: u64,
    mtime: WallTime,
    ctime: WallTime,
}

impl Version {
    const fn of(attributes: &Attributes) -> Self {
        Self { size: attributes.size, mtime: attributes.mtime, ctime: attributes.ctime }
    }

    /// Whether the kernel cannot tell them apart.
    fn looks_like(self, other: Self) -> bool {
        (self.size, self.mtime) == (other.size, other.mtime)
    }
}

/// What the kernel makes of what it is told of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Told {
    /// It is as it was told before, or for the first time, or the kernel sees that it changed.
    Plain,
    /// The content may have changed, and the kernel cannot see it.
    Hidden,
}

impl Inodes {
    /// The inode of a number that the kernel has.
    pub(super) fn id(&self, number: u64) -> Result<InodeId, FsError> {
        self.known().get(&number).map(|known| known.id).ok_or(FsError::Forgotten)
    }

    /// The kernel is told of an inode once more. Whether it was before.
    pub(super) fn entered(&self, id: InodeId) -> bool {
        let mut known = self.known();
        let known = known.entry(id.number).or_insert(Known::new(id, 0));
        known.lookups += 1;
        if known.id != id {
            // What had the number before was never committed: nothing is there any more to refer to.
            *known = Known { changes: known.changes, ..Known::new(id, known.lookups) };
        }
        known.lookups > 1
    }

    pub(super) fn forget(&self, number: u64, lookups: u64) {
        let mut known = self.known();
        if let Entry::Occupied(mut known) = known.entry(number) {
            known.get_mut().lookups = known.get().lookups.saturating_sub(lookups);
            if known.get().lookups == 0 && number != ROOT {
                known.remove();
            }
        }
    }

    /// Notes what the kernel is told.
    pub(super) fn told(&self, attributes: &Attributes) -> Told {
        self.note(attributes, false)
    }

    /// The same of what it is told at once, unless it would not see that the content may have changed: then nothing is noted.
    pub(super) fn told_at_once(&self, attributes: &Attributes) -> Told {
        self.note(attributes, true)
    }

    fn note(&self, attributes: &Attributes, is_at_once: bool) -> Told {
        let Attributes { inode, .. } = *attributes;
        let mut known = self.known();
        let Some(known) = known.get_mut(&inode.number).filter(|known| known.id == inode) else {
            return Told::Plain;
        };
        let now = Version::of(attributes);
        let is_hidden = known.told.is_some_and(|before| before != now && before.looks_like(now));
        if is_hidden && is_at_once {
            return Told::Hidden;
        }
        known.is_sure = is_at_once || known.is_sure && known.told == Some(now);
        known.told = Some(now);
        if is_hidden { Told::Hidden } else { Told::Plain }
    }

    /// Whether the kernel is known to know this state of an inode, so that what it keeps of the content is of this state, or of none.
    pub(super) fn has(&self, attributes: &Attributes) -> bool {
        let known = self.known();
        let known = known.get(&attributes.inode.number).filter(|known| known.id == attributes.inode);
        known.is_some_and(|known| known.is_sure && known.told == Some(Version::of(attributes)))
    }

    /// The kernel is about to be told attributes that it may believe until then. Who looks for them after this, and finds that
    /// they may be answered without asking, may tell them so: whatever ends that is looked for here afterwards. False if it may not
    /// believe any.
    pub(super) fn believe(&self, inode: InodeId, until: Instant) -> bool {
        let mut known = self.known();
        match known.get_mut(&inode.number) {
            Some(known) if known.id == inode && known.changes == 0 => {
                known.believed_until = known.believed_until.max(Some(until));
                true
            }
            _ => false,
        }
    }

    /// Whether the kernel may believe something of an inode, which it is about to be told not to.
    pub(super) fn is_believed(&self, inode: InodeId) -> bool {
        let mut known = self.known();
        let Some(known) = known.get_mut(&inode.number).filter(|known| known.id == inode) else {
            return false;
        };
        known.is_sure = false;
        known.is_believed(clock::now())
    }

    /// All inodes of which it may.
    pub(super) fn all_believed(&self) -> Vec<InodeId> {
        let (now, mut known) = (clock::now(), self.known());
        known.values_mut().for_each(|known| known.is_sure = false);
        known.values().filter(|known| known.is_believed(now)).map(|known| known.id).collect()
    }

    /// A change of this inode through this mount begins: until it [ends](Self::end) nothing is believed of it.
    pub(super) fn begin(&self, inode: InodeId) {
        if let Some(known) = self.known().get_mut(&inode.number) {
            known.changes += 1;
        }
    }

    pub(super) fn end(&self, inode: InodeId) {
        if let Some(known) = self.known().get_mut(&inode.number) {
            // It may have been forgotten meanwhile, and be known anew.
            known.changes = known.changes.saturating_sub(1);
        }
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<u64, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base::{Epoch, NodeId};
    use namespace::Kind;

    use super::*;

    fn id(number: u64, epoch: u64) -> InodeId {
        InodeId { number, epoch: Epoch { number: epoch, node: NodeId(1) } }
    }

    fn attributes(inode: InodeId, [size, mtime, ctime]: [u64; 3]) -> Attributes {
        let [mtime, ctime] = [mtime, ctime].map(WallTime::from_micros);
        Attributes {
            inode,
            kind: Kind::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            rdev: 0,
            size,
            atime: mtime,
            mtime,
            ctime,
            btime: mtime,
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
        inodes.entered(inode);
        inodes.entered(inode);
        inodes.forget(7, 1);
        assert_eq!(inodes.id(7), Ok(inode));
        inodes.forget(7, 1);
        assert_eq!(inodes.id(7), Err(FsError::Forgotten));
        assert_eq!(inodes.id(ROOT), Ok(InodeId::ROOT));
    }

    #[test]
    fn a_number_stands_for_what_was_committed_there() {
        let inodes = Inodes::default();
        inodes.entered(id(7, 3));
        inodes.entered(id(7, 4));
        assert_eq!(inodes.id(7), Ok(id(7, 4)));
        inodes.forget(7, 2);
        assert_eq!(inodes.id(7), Err(FsError::Forgotten));
    }

    #[test]
    fn a_change_that_sets_size_and_time_back_is_seen() {
        let inodes = Inodes::default();
        let inode = id(7, 3);
        let told = |version| inodes.told(&attributes(inode, version));
        assert_eq!(told([1, 1, 1]), Told::Plain, "the kernel does not have it yet");
        inodes.entered(inode);
        assert_eq!(told([1, 1, 1]), Told::Plain);
        assert_eq!(told([1, 1, 1]), Told::Plain);
        assert_eq!(told([1, 2, 2]), Told::Plain);
        assert_eq!(told([1, 2, 3]), Told::Hidden);
        assert_eq!(told([2, 2, 4]), Told::Plain);
        // At once it is not told what it does not see.
        let hidden = attributes(inode, [2, 2, 5]);
        assert_eq!(inodes.told_at_once(&hidden), Told::Hidden);
        assert_eq!(inodes.told_at_once(&hidden), Told::Hidden, "it was not told before");
        assert_eq!(inodes.told(&hidden), Told::Hidden);
        assert_eq!(inodes.told_at_once(&hidden), Told::Plain);
    }

    #[test]
    fn what_may_be_believed_is_known_until_it_may_not() {
        let (inodes, inode) = (Inodes::default(), id(7, 3));
        let soon = clock::now() + Duration::from_secs(60);
        assert!(!inodes.believe(inode, soon), "the kernel does not have it yet");
        assert!(!inodes.entered(inode));
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
    fn the_kernel_has_what_it_was_told_since_it_was_last_told_to_drop_something() {
        let (inodes, inode) = (Inodes::default(), id(7, 3));
        inodes.entered(inode);
        let now = attributes(inode, [1, 1, 1]);
        inodes.told(&now);
        assert!(!inodes.has(&now), "it may have been told meanwhile that this is not so");
        inodes.told_at_once(&now);
        assert!(inodes.has(&now));
        assert!(!inodes.has(&attributes(inode, [1, 1, 2])));
        inodes.is_believed(inode);
        assert!(!inodes.has(&now));
    }
}
