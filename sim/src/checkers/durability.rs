//! Durability: what disks really have. A sync is confirmed only if a majority of the file's members would have everything
//! after a power cut.

use std::collections::{BTreeMap, VecDeque};

use base::{NodeId, ObjectId};
use replication::Position;

use super::Violation;
use super::evidence::{Fact, Machines};
use crate::TrueTime;

/// What each node's disk has of each file.
#[derive(Debug, Default)]
pub struct Durability {
    /// What a node's journal was told since its process began and has not synced: the number of the record, its file, and
    /// the last entry behind it.
    written: BTreeMap<NodeId, VecDeque<(u64, ObjectId, Position)>>,
    /// Up to which entry a node has a file on disk.
    durable: BTreeMap<(ObjectId, NodeId), (Position, TrueTime)>,
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
    pub fn sync(&mut self, now: TrueTime, node: NodeId, upto: u64) {
        let Some(written) = self.written.get_mut(&node) else { return };
        let synced = written.partition_point(|&(number, ..)| number <= upto);
        for (_, object, tail) in written.drain(..synced) {
            self.durable.insert((object, node), (tail, now));
        }
    }

    /// Who has a file on disk, up to which entry, and since when.
    pub(crate) fn of(&self, object: ObjectId) -> impl Iterator<Item = (NodeId, (Position, TrueTime))> {
        let all = self.durable.range((object, NodeId(0))..=(object, NodeId(u32::MAX)));
        all.map(|(&(_, node), &upto)| (node, upto))
    }

    /// A client is being told that a file is durable up to an entry. `is_before` says whether that stands in a log that ends
    /// so, and `before` what came before.
    pub fn confirmed(
        &self,
        now: TrueTime,
        (object, newest): (ObjectId, Position),
        members: &[NodeId],
        (is_before, before): (impl Fn(Position) -> bool, impl FnOnce() -> Vec<Fact>),
    ) -> Result<(), Violation> {
        let disks: BTreeMap<NodeId, _> = self.of(object).filter(|(node, _)| members.contains(node)).collect();
        let have = disks.iter().filter(|&(_, &(upto, _))| is_before(upto));
        let have: Vec<NodeId> = have.map(|(&node, _)| node).collect();
        if have.len() > members.len() / 2 {
            return Ok(());
        }
        let what = format!("{newest:?} is told to be durable; of {members:?} {have:?} have it on disk");
        let on_disk = members.iter().map(|&node| match disks.get(&node) {
            Some(&(upto, since)) => Fact::new(
                since,
                node,
                format!("the disk of {node:?} has everything up to {upto:?}, and no more until now"),
            ),
            None => Fact::new(now, node, format!("the disk of {node:?} has nothing of it")),
        });
        let whose: Machines = members.iter().map(|node| node.0 as usize).collect();
        let told =
            Fact::new(now, whose, format!("a client is told that everything up to {newest:?} is durable"));
        let facts = before().into_iter().chain(on_disk).chain([told]);
        Err(Violation::new(now, "durability", what).about(object).shown_by(facts))
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, Seq};

    use super::*;

    const NOW: TrueTime = TrueTime::from_micros(7);

    const fn at(seq: u64) -> Position {
        Position { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(seq) }
    }

    #[test]
    fn what_a_minority_has_on_disk_is_not_durable() {
        let (file, members) = (ObjectId::new(1, 1), [1, 2, 3].map(NodeId));
        let mut disks = Durability::default();
        for (node, upto) in [(1, 4), (2, 3)] {
            disks.begin(NodeId(node), [(file, at(upto))]);
            disks.sync(NOW, NodeId(node), 0);
        }
        let confirmed = |seq| {
            let facts = (|upto: Position| upto.seq >= Seq(seq), Vec::new);
            disks.confirmed(NOW, (file, at(seq)), &members, facts)
        };
        assert_eq!(confirmed(3), Ok(()));
        let broken = confirmed(4).unwrap_err();
        assert!(broken.checker == "durability" && broken.what.contains("[n1] have it"), "{broken}");
        assert_eq!(broken.shown.len(), 4, "three disks, and what was told");
    }

    #[test]
    fn what_is_synced_is_durable_and_nothing_else() {
        let (one, other) = (ObjectId::new(1, 1), ObjectId::new(1, 2));
        let mut disks = Durability::default();
        disks.begin(NodeId(1), [(one, at(3))]);
        disks.write(NodeId(1), (1, one), at(4));
        disks.write(NodeId(1), (2, other), at(1));
        disks.write(NodeId(1), (3, one), at(5));
        assert_eq!(disks.of(one).count(), 0);
        disks.sync(NOW, NodeId(1), 0);
        assert_eq!(disks.of(one).collect::<Vec<_>>(), [(NodeId(1), (at(3), NOW))]);
        disks.sync(NOW, NodeId(1), 2);
        assert_eq!(disks.of(one).collect::<Vec<_>>(), [(NodeId(1), (at(4), NOW))]);
        assert_eq!(disks.of(other).collect::<Vec<_>>(), [(NodeId(1), (at(1), NOW))]);
        // The next process counts from the beginning, and what was on disk still is.
        disks.begin(NodeId(1), []);
        disks.sync(NOW, NodeId(1), 9);
        assert_eq!(disks.of(one).collect::<Vec<_>>(), [(NodeId(1), (at(4), NOW))]);
    }
}
