//! Durability: what disks really have. A sync is confirmed only if a majority of the file's members would have everything
//! after a power cut.

use std::collections::{BTreeMap, VecDeque};

use base::{NodeId, ObjectId};
use replication::Position;

/// What each node's disk has of each file.
#[derive(Debug, Default)]
pub struct Durability {
    /// What a node's journal was told since its process began and has not synced: the number of the record, its file, and
    /// the last entry behind it.
    written: BTreeMap<NodeId, VecDeque<(u64, ObjectId, Position)>>,
    /// Up to which entry a node has a file on disk.
    durable: BTreeMap<(ObjectId, NodeId), Position>,
}

impl Durability {
    /// A process begins with these files. They are durable with its first sync.
    pub fn begin(&mut self, node: NodeId, files: impl IntoIterator<Item = (ObjectId, Position)>) {
        self.written.insert(node, files.into_iter().map(|(object, tail)| (0, object, tail)).collect());
    }

    /// A process hands a record over, with which a file ends in `tail`.
    pub fn write(&mut self, node: NodeId, (number, object): (u64, ObjectId), tail: Position) {
        self.written.entry(node).or_default().push_back((number, object, tail));
    }

    /// Everything up to a record is synced.
    pub fn sync(&mut self, node: NodeId, upto: u64) {
        let Some(written) = self.written.get_mut(&node) else { return };
        let synced = written.partition_point(|&(number, ..)| number <= upto);
        for (_, object, tail) in written.drain(..synced) {
            self.durable.insert((object, node), tail);
        }
    }

    /// Who has a file on disk, and up to which entry.
    pub fn of(&self, object: ObjectId) -> impl Iterator<Item = (NodeId, Position)> {
        let all = self.durable.range((object, NodeId(0))..=(object, NodeId(u32::MAX)));
        all.map(|(&(_, node), &upto)| (node, upto))
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, Seq};

    use super::*;

    #[test]
    fn what_is_synced_is_durable_and_nothing_else() {
        let (one, other) = (ObjectId::new(1, 1), ObjectId::new(1, 2));
        let at = |seq| Position { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(seq) };
        let mut disks = Durability::default();
        disks.begin(NodeId(1), [(one, at(3))]);
        disks.write(NodeId(1), (1, one), at(4));
        disks.write(NodeId(1), (2, other), at(1));
        disks.write(NodeId(1), (3, one), at(5));
        assert_eq!(disks.of(one).count(), 0);
        disks.sync(NodeId(1), 0);
        assert_eq!(disks.of(one).collect::<Vec<_>>(), [(NodeId(1), at(3))]);
        disks.sync(NodeId(1), 2);
        assert_eq!(disks.of(one).collect::<Vec<_>>(), [(NodeId(1), at(4))]);
        assert_eq!(disks.of(other).collect::<Vec<_>>(), [(NodeId(1), at(1))]);
        // The next process counts from the beginning, and what was on disk still is.
        disks.begin(NodeId(1), []);
        disks.sync(NodeId(1), 9);
        assert_eq!(disks.of(one).collect::<Vec<_>>(), [(NodeId(1), at(4))]);
    }
}
