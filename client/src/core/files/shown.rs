//! What opens the content of volumes' files: of each what was given last to ask about it, to read it, and to write it.

use std::collections::BTreeMap;

use base::{MonoTime, ObjectId};
use node::{Capability, OpenMode};

use super::Files;

/// Capabilities that a client has, whichever of its openings they were given for.
#[derive(Debug)]
pub(super) struct Shown {
    all: BTreeMap<(ObjectId, OpenMode), Given>,
}

/// One, and when that was.
#[derive(Clone, Copy, Debug)]
struct Given {
    capability: Capability,
    at: MonoTime,
}

impl Shown {
    /// None.
    pub(super) const fn new() -> Self {
        Self { all: BTreeMap::new() }
    }

    /// One was given at this time. What is here and good for longer stays.
    pub(super) fn add(&mut self, at: MonoTime, capability: Capability) {
        let given = self.all.entry((capability.open.file, capability.open.mode));
        let given = given.or_insert(Given { capability, at });
        if given.capability.expires <= capability.expires {
            *given = Given { capability, at };
        }
    }

    /// The one that is good for this, or for more, and for longest.
    pub(super) fn of(&self, object: ObjectId, mode: OpenMode) -> Option<Capability> {
        self.best(object, mode).map(|given| given.capability)
    }

    /// When that was given.
    pub(super) fn since(&self, object: ObjectId, mode: OpenMode) -> Option<MonoTime> {
        self.best(object, mode).map(|given| given.at)
    }

    /// The one that was given for this and for no more.
    pub(super) fn for_just(&self, object: ObjectId, mode: OpenMode) -> Option<Capability> {
        self.all.get(&(object, mode)).map(|given| given.capability)
    }

    fn best(&self, object: ObjectId, mode: OpenMode) -> Option<Given> {
        let good = self.all.range((object, mode)..=(object, OpenMode::ReadWrite));
        good.map(|(_, given)| *given).max_by_key(|given| given.capability.expires)
    }

    /// Nothing more is asked of it.
    pub(super) fn forget(&mut self, object: ObjectId) {
        for mode in [OpenMode::Look, OpenMode::Read, OpenMode::ReadWrite] {
            self.all.remove(&(object, mode));
        }
    }
}

impl Files {
    /// What to show from now on for the content of a volume's file, where it is good for what is asked. It was given just now.
    pub fn show(&mut self, now: MonoTime, capability: Capability) {
        self.shown.add(now, capability);
    }

    /// When what is shown for this was given, for whichever opening.
    pub fn shown_since(&self, object: ObjectId, mode: OpenMode) -> Option<MonoTime> {
        self.shown.since(object, mode)
    }

    /// What is to be renewed for whoever has opened it for this.
    pub fn to_renew(&self, object: ObjectId, mode: OpenMode) -> Option<Capability> {
        self.shown.for_just(object, mode)
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, NodeId, WallTime};
    use namespace::InodeId;
    use node::{CertificateId, KeyEpoch, Open, Source, Tag};

    use super::*;

    const FILE: ObjectId = ObjectId::new(1, 2);
    const AT: MonoTime = MonoTime::from_micros(1);

    fn given(file: ObjectId, mode: OpenMode, expires: u64) -> Capability {
        let inode = InodeId { number: 2, epoch: Epoch { number: 1, node: NodeId(1) } };
        let source = Source { volume: ObjectId::new(7, 7), inode, lend: None };
        let open = Open { file, mode, certificate: CertificateId([1; 32]) };
        let expires = WallTime::from_micros(expires);
        Capability { source, open, expires, epoch: KeyEpoch(1), tag: Tag::from_bytes([0; 32]) }
    }

    #[test]
    fn what_is_good_for_longest_is_shown_if_it_is_good_for_that() {
        let mut shown = Shown::new();
        let (look, read) = (given(FILE, OpenMode::Look, 90), given(FILE, OpenMode::Read, 80));
        let (write, other) =
            (given(FILE, OpenMode::ReadWrite, 70), given(ObjectId::new(1, 3), OpenMode::Read, 99));
        for capability in [read, write, other] {
            shown.add(AT, capability);
        }
        assert_eq!(shown.of(FILE, OpenMode::Look), Some(read));
        shown.add(AT, look);
        assert_eq!(shown.of(FILE, OpenMode::Look), Some(look));
        assert_eq!(shown.of(FILE, OpenMode::Read), Some(read));
        assert_eq!(shown.of(FILE, OpenMode::ReadWrite), Some(write));
        let renewed = given(FILE, OpenMode::ReadWrite, 100);
        shown.add(AT, renewed);
        for mode in [OpenMode::Look, OpenMode::Read, OpenMode::ReadWrite] {
            assert_eq!(shown.of(FILE, mode), Some(renewed));
        }
        shown.forget(FILE);
        assert_eq!(shown.of(FILE, OpenMode::Look), None);
        assert_eq!(shown.of(ObjectId::new(1, 3), OpenMode::Look), Some(other));
    }

    #[test]
    fn what_one_opening_was_given_all_show_and_nothing_older_takes_its_place() {
        let mut shown = Shown::new();
        let [early, late] = [1, 2].map(MonoTime::from_micros);
        let (old, new) = (given(FILE, OpenMode::ReadWrite, 70), given(FILE, OpenMode::ReadWrite, 90));
        shown.add(early, old);
        shown.add(late, new);
        shown.add(early, old);
        for mode in [OpenMode::Look, OpenMode::Read, OpenMode::ReadWrite] {
            assert_eq!((shown.of(FILE, mode), shown.since(FILE, mode)), (Some(new), Some(late)));
        }
        // What is renewed for who only reads takes no more than that.
        assert_eq!(shown.for_just(FILE, OpenMode::Read), None);
        assert_eq!(shown.for_just(FILE, OpenMode::ReadWrite), Some(new));
    }
}
