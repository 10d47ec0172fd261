//! What daemons have told with inodes of volumes of which only a part is exported to this client: they want it shown whenever it asks
//! about such an inode.

use std::collections::BTreeMap;

use base::ObjectId;
use namespace::InodeId;
use node::Proof;
use node::file::FileReplyBody;

/// So many are kept. Beyond that the ones go that were told longest ago, and whoever wants such an inode looks it up again.
const PROOFS_MAX: usize = 1 << 18;

/// Which inode of which volume.
type Place = (ObjectId, InodeId);

/// The proofs that are known.
#[derive(Debug)]
pub(super) struct Proofs {
    /// Each with when it was told last.
    known: BTreeMap<Place, (u64, Proof)>,
    by_time: BTreeMap<u64, Place>,
    time: u64,
}

impl Proofs {
    pub(super) const fn new() -> Self {
        Self { known: BTreeMap::new(), by_time: BTreeMap::new(), time: 0 }
    }

    /// A reply came with proofs for what it tells of.
    pub(super) fn note(&mut self, volume: ObjectId, body: &FileReplyBody, proofs: Vec<Proof>) {
        if proofs.is_empty() {
            return;
        }
        for (inode, proof) in body.told().into_iter().zip(proofs) {
            self.time += 1;
            if let Some((before, _)) = self.known.insert((volume, inode), (self.time, proof)) {
                self.by_time.remove(&before);
            }
            self.by_time.insert(self.time, (volume, inode));
        }
        while self.known.len() > PROOFS_MAX
            && let Some((_, oldest)) = self.by_time.pop_first()
        {
            self.known.remove(&oldest);
        }
    }

    /// What is shown for an inode.
    pub(super) fn of(&self, volume: ObjectId, inode: InodeId) -> Option<Proof> {
        self.known.get(&(volume, inode)).map(|&(_, proof)| proof)
    }
}

#[cfg(test)]
mod tests {
    use namespace::{Attributes, Kind};
    use node::file::Answer;
    use node::{KeyEpoch, PROOF_BYTES};

    use super::*;

    const VOLUME: ObjectId = ObjectId::new(1, 2);

    fn inode(number: u64) -> InodeId {
        InodeId { number, ..InodeId::ROOT }
    }

    fn proof(byte: u8) -> Proof {
        Proof::new(KeyEpoch(1), [byte; PROOF_BYTES])
    }

    fn told(number: u64) -> FileReplyBody {
        let time = base::WallTime::ZERO;
        let attributes = Attributes {
            inode: inode(number),
            kind: Kind::Fifo,
            mode: 0,
            uid: 0,
            gid: 0,
            links: 1,
            rdev: 0,
            size: 0,
            atime: time,
            mtime: time,
            ctime: time,
            btime: time,
            lent: None,
            last_lend: None,
            replicas: None,
            has_acl: false,
        };
        FileReplyBody::Answer(Ok(Answer::Tree(Box::new(namespace::Answer::Attributes(attributes)))))
    }

    #[test]
    fn the_last_proof_of_an_inode_is_shown() {
        let mut proofs = Proofs::new();
        assert_eq!(proofs.of(VOLUME, inode(1)), None);
        proofs.note(VOLUME, &told(1), vec![proof(1)]);
        proofs.note(VOLUME, &told(1), vec![proof(2)]);
        proofs.note(VOLUME, &told(1), Vec::new());
        assert_eq!(proofs.of(VOLUME, inode(1)), Some(proof(2)));
        assert_eq!(proofs.of(ObjectId::new(1, 3), inode(1)), None, "of this volume");
        assert_eq!((proofs.known.len(), proofs.by_time.len()), (1, 1));
    }

    #[test]
    fn what_was_told_longest_ago_is_forgotten_first() {
        let mut proofs = Proofs::new();
        (1..=PROOFS_MAX as u64).for_each(|number| proofs.note(VOLUME, &told(number), vec![proof(1)]));
        proofs.note(VOLUME, &told(1), vec![proof(1)]);
        proofs.note(VOLUME, &told(0), vec![proof(1)]);
        let known = [0, 1, 2, 3].map(|number| proofs.of(VOLUME, inode(number)).is_some());
        assert_eq!(known, [true, true, false, true]);
        assert_eq!((proofs.known.len(), proofs.by_time.len()), (PROOFS_MAX, PROOFS_MAX));
    }
}
