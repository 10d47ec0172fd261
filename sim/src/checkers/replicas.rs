//! Replicas: once nothing goes wrong any more and nobody changes a file, all its members that are left have the same, and it is
//! what the entries make of an empty file by the rules that the first of them keeps to: whether these are the right ones others judge by
//! what users are told. Nobody else has anything of it but the view, and that only where the map puts it.

use base::{NodeId, ObjectId};
use node::file::File;
use replication::{Machine, Replica};

use super::Violation;
use super::entries::Entries;
use super::evidence::Fact;
use crate::TrueTime;

/// Everybody who has something of a file.
pub type Replicas<'a> = [(NodeId, &'a Replica<File>)];

/// Whether a file at a node is the same as another.
pub type Same<'a> = dyn Fn(NodeId, &File, &File) -> bool + 'a;

/// Whether the replicas of a file are as they should be in the end. `home` is where the map puts it, and `is_lost` says whether
/// a node does not come back.
pub fn check(
    at: TrueTime,
    object: ObjectId,
    all: &Replicas<'_>,
    (home, is_lost, same): (&[NodeId], impl Fn(NodeId) -> bool, &Same<'_>),
    entries: &Entries,
) -> Result<(), Violation> {
    let look = Look { at, object, all, entries, same };
    let view = all.iter().map(|(_, replica)| replica.view()).max_by_key(|view| view.id);
    let Some(view) = view else {
        let story = entries.latest(object).map_or_else(Vec::new, |seen| entries.story_of(object, seen.at));
        return Err(look.wrong("nobody has it".into(), story));
    };
    for (node, replica) in all.iter().filter(|(node, _)| !view.members.contains(*node)) {
        let is_tombstone = home.contains(node) && !replica.is_whole();
        if !is_tombstone || replica.view() != view {
            let (knows, is_whole) = (replica.view(), replica.is_whole());
            return Err(
                look.wrong(format!("{node:?} is left behind in {knows:?}, whole: {is_whole}"), Vec::new())
            );
        }
    }
    let mut first = None;
    for &node in view.members.as_slice().iter().filter(|&&node| !is_lost(node)) {
        let here = look.check_one(node)?;
        let other = first.get_or_insert(here);
        if other.rest() != here.rest() {
            let what = format!("{node:?} has {:?}, another {:?}", here.rest(), other.rest());
            return Err(look.wrong(what, entries.story_of(object, here.committed())));
        }
    }
    Ok(())
}

struct Look<'a> {
    at: TrueTime,
    object: ObjectId,
    all: &'a Replicas<'a>,
    entries: &'a Entries,
    same: &'a Same<'a>,
}

impl<'a> Look<'a> {
    /// A member has all, and nothing else.
    fn check_one(&self, node: NodeId) -> Result<&'a Replica<File>, Violation> {
        let Self { object, all, entries, .. } = *self;
        let replica = all.iter().find(|(other, replica)| *other == node && replica.is_sound());
        let Some(&(_, replica)) = replica else {
            return Err(self.wrong(format!("{node:?} has nothing that makes sense"), Vec::new()));
        };
        let (tail, committed) = (replica.tail(), replica.committed());
        if tail != committed {
            let what = format!("{node:?} has {tail:?}, and only {committed:?} is committed");
            return Err(self.wrong(what, entries.story_of(object, tail)));
        }
        if !replica.is_settled() {
            return Err(self.wrong(format!("{node:?} waits for {:?}", replica.rest().former), Vec::new()));
        }
        let empty = all.first().map_or_else(File::default, |(_, first)| first.machine().emptied());
        let made = entries.replay_on(empty, object, committed);
        if !(self.same)(node, replica.machine(), &made) {
            let what = format!("{node:?} has {:?} instead of {made:?}", replica.machine());
            return Err(self.wrong(what, self.difference(replica, &made)));
        }
        Ok(replica)
    }

    /// The entries that a part is of in a replica and should be of.
    fn difference(&self, replica: &Replica<File>, made: &File) -> Vec<Fact> {
        let parts = |file: &File| -> Vec<_> {
            let versions = file.versions(None, usize::MAX).into_iter();
            versions.map(|(key, at)| (file.part(&key), key, at)).collect()
        };
        let (here, there) = (parts(replica.machine()), parts(made));
        let differs = here.iter().find(|part| !there.contains(part));
        let lacks = there.iter().find(|part| !here.contains(part));
        let parts = [differs, lacks].into_iter().flatten();
        parts.flat_map(|&(.., at)| self.entries.story_of(self.object, at)).collect()
    }

    fn wrong(&self, what: String, story: Vec<Fact>) -> Violation {
        let tell = |&(node, replica): &(NodeId, &Replica<File>)| {
            let (tail, committed, members) = (replica.tail(), replica.committed(), &replica.view().members);
            let has = format!("{node:?} has {tail:?}, committed {committed:?}, of {members:?}");
            Fact::new(self.at, node, has)
        };
        let facts = story.into_iter().chain(self.all.iter().map(tell));
        Violation::new(self.at, "replicas", what).about(self.object).shown_by(facts)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{ClientId, Epoch, Members, Seq, WallTime};
    use node::file::{Change, Op, Position};
    use replication::{Body, Checkpoint, Entry, Record, Request};

    use super::*;

    const FILE: ObjectId = ObjectId::new(1, 2);
    const NODES: [NodeId; 3] = [NodeId(1), NodeId(2), NodeId(3)];

    fn entry(seq: u64, body: Body<Op>) -> Entry<Op> {
        let at = Position { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(seq) };
        Entry { at, lease: 0, body }
    }

    fn append(seq: u64, byte: u8) -> Entry<Op> {
        let client = ClientId { certificate: 9, program: 1 };
        let request = Request { client, number: seq, settled: 1 };
        let change = Change::Append { data: vec![byte; 3].into() };
        entry(seq, Body::Op { request, op: Op { time: WallTime::ZERO, under: None, change } })
    }

    fn log(bytes: &[u8]) -> Vec<Entry<Op>> {
        let barrier = entry(1, Body::Barrier { generation: Epoch::default() });
        let appends = (2..).zip(bytes).map(|(seq, &byte)| append(seq, byte));
        [barrier].into_iter().chain(appends).collect()
    }

    /// A replica with these entries, of which so many are committed.
    fn replica(node: NodeId, entries: Vec<Entry<Op>>, committed: u64) -> Replica<File> {
        let members = Members::new(NODES).unwrap();
        let records = [Record::Appended { after: Seq(0), entries, committed: Seq(committed) }];
        Replica::new(node, Arc::default(), Checkpoint::first(members, File::default()), records, None)
            .unwrap()
    }

    /// What is said of these, where everybody should have appended 7 and 8.
    fn look(replicas: &[Replica<File>], home: &[NodeId], lost: &[NodeId]) -> Result<(), Violation> {
        let mut entries = Entries::default();
        entries.append(TrueTime::ZERO, (NodeId(1), FILE), (Seq(0), &log(&[7, 8]))).unwrap();
        let all: Vec<_> = NODES.into_iter().zip(replicas).collect();
        check(
            TrueTime::from_micros(9),
            FILE,
            &all,
            (home, |node| lost.contains(&node), &|_, here, made| here == made),
            &entries,
        )
    }

    fn good(node: NodeId) -> Replica<File> {
        replica(node, log(&[7, 8]), 3)
    }

    #[test]
    fn replicas_that_are_alike_are_in_order() {
        assert_eq!(look(&NODES.map(good), &NODES, &[]), Ok(()));
        assert_eq!(look(&[good(NODES[0]), good(NODES[1])], &NODES, &[NODES[2]]), Ok(()));
    }

    #[test]
    fn replicas_that_are_not_alike_break_it() {
        let [one, two, _] = NODES.map(good);
        let broken = |third: Option<Replica<File>>| {
            let all: Vec<_> = [one.clone(), two.clone()].into_iter().chain(third).collect();
            look(&all, &NODES, &[]).unwrap_err()
        };
        let violation = broken(None);
        assert!(violation.what.contains("n3 has nothing that makes sense"), "{violation}");
        let violation = broken(Some(replica(NODES[2], log(&[7, 8]), 2)));
        assert!(violation.what.contains("n3 has") && violation.what.contains("only"), "{violation}");
        let violation = broken(Some(replica(NODES[2], log(&[7, 9]), 3)));
        assert!(violation.what.contains("instead of"), "{violation}");
        let shown: Vec<&str> = violation.shown.iter().map(|fact| &*fact.what).collect();
        assert!(shown[0].contains("n1 has") && shown[0].contains("Append"), "{shown:#?}");
        assert!(look(&[], &NODES, &[]).unwrap_err().what.contains("nobody has it"));
    }

    #[test]
    fn who_is_no_member_and_has_something_breaks_it() {
        let mut all: Vec<_> = NODES.into_iter().map(good).collect();
        all.push(good(NodeId(4)));
        let named: Vec<_> = [1, 2, 3, 4].map(NodeId).into_iter().zip(&all).collect();
        let mut entries = Entries::default();
        entries.append(TrueTime::ZERO, (NodeId(1), FILE), (Seq(0), &log(&[7, 8]))).unwrap();
        let violation =
            check(TrueTime::ZERO, FILE, &named, (&NODES, |_| false, &|_, here, made| here == made), &entries)
                .unwrap_err();
        assert!(violation.what.contains("n4 is left behind"), "{violation}");
    }
}
