//! What opens the content of volumes' files: of each what was given last to ask about it, to read it, and to write it.

use std::collections::BTreeMap;

use base::ObjectId;
use node::{Capability, OpenMode};

/// Capabilities that a client has.
#[derive(Debug)]
pub(super) struct Shown {
    all: BTreeMap<(ObjectId, OpenMode), Capability>,
}

impl Shown {
    /// None.
    pub(super) const fn new() -> Self {
        Self { all: BTreeMap::new() }
    }

    /// One was given.
    pub(super) fn add(&mut self, capability: Capability) {
        self.all.insert((capability.open.file, capability.open.mode), capability);
    }

    /// The one that is good for this, or for more, and for longest.
    pub(super) fn of(&self, object: ObjectId, mode: OpenMode) -> Option<Capability> {
        let good = self.all.range((object, mode)..=(object, OpenMode::ReadWrite));
        good.map(|(_, capability)| *capability).max_by_key(|capability| capability.expires)
    }

    /// Nothing more is asked of it.
    pub(super) fn forget(&mut self, object: ObjectId) {
        for mode in [OpenMode::Look, OpenMode::Read, OpenMode::ReadWrite] {
            self.all.remove(&(object, mode));
        }
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, NodeId, WallTime};
    use namespace::InodeId;
    use node::{CertificateId, KeyEpoch, Open, Source, Tag};

    use super::*;

    const FILE: ObjectId = ObjectId::new(1, 2);

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
            shown.add(capability);
        }
        assert_eq!(shown.of(FILE, OpenMode::Look), Some(read));
        shown.add(look);
        assert_eq!(shown.of(FILE, OpenMode::Look), Some(look));
        assert_eq!(shown.of(FILE, OpenMode::Read), Some(read));
        assert_eq!(shown.of(FILE, OpenMode::ReadWrite), Some(write));
        let renewed = given(FILE, OpenMode::ReadWrite, 100);
        shown.add(renewed);
        for mode in [OpenMode::Look, OpenMode::Read, OpenMode::ReadWrite] {
            assert_eq!(shown.of(FILE, mode), Some(renewed));
        }
        shown.forget(FILE);
        assert_eq!(shown.of(FILE, OpenMode::Look), None);
        assert_eq!(shown.of(ObjectId::new(1, 3), OpenMode::Look), Some(other));
    }
}
