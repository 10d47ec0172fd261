//! Entries: what the replicas of a file have ever had, over all of them and all time.
//!
//! - An entry's position names its content and its predecessor, whoever has it.
//! - In one loss generation there is one committed history: whatever replicas know to be committed lies on it.
//! - What a client was told to be written lies on the history of the generation that it was told of.
//! - What a client was told to be durable lies on the history of every later generation.
//! - A generation begins only after power has failed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{ClientId, Epoch, NodeId, ObjectId, Seq};
use node::file::{File, Mark, Op};
use replication::{Body, Entry, Machine, Position, Replica};

use super::Violation;
use crate::TrueTime;

/// What is known of all files.
#[derive(Debug, Default)]
pub struct Entries {
    files: BTreeMap<ObjectId, Files>,
    /// Whether power has failed anywhere.
    pub power_failed: bool,
}

/// What is known of a file.
#[derive(Debug, Default)]
struct Files {
    /// Every entry that ever was, with its predecessor and the generation it is in.
    known: BTreeMap<Position, Known>,
    /// The logs of the replicas.
    logs: BTreeMap<NodeId, BTreeMap<Seq, Position>>,
    /// What is committed, by generation.
    histories: BTreeMap<Epoch, BTreeMap<Seq, Position>>,
    /// What was told to be durable.
    durable: BTreeSet<Position>,
}

#[derive(Debug)]
struct Known {
    before: Position,
    generation: Epoch,
    entry: Entry<Op>,
}

/// A new loss generation of a file, and what it began with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beginning {
    /// Which.
    pub generation: Epoch,
    /// What was recovered.
    pub recovered: Arc<File>,
}

impl Entries {
    /// A replica has started: what it has is all that it has.
    pub fn begin(
        &mut self,
        now: TrueTime,
        (node, object): (NodeId, ObjectId),
        replica: &Replica<File>,
    ) -> Result<(), Violation> {
        let file = self.files.entry(object).or_default();
        let mut log = BTreeMap::from([(replica.committed().seq, replica.committed())]);
        let mut seq = replica.tail().seq;
        while let Some(entry) = replica.entry(seq) {
            log.insert(seq, entry.at);
            seq = Seq(seq.0 - 1);
        }
        let stranger = log.values().find(|&&at| at != Position::START && !file.known.contains_key(&at));
        if let Some(at) = stranger {
            return Err(violation(now, object, format!("{node:?} has {at:?}, which nobody has appended")));
        }
        file.logs.insert(node, log);
        Ok(())
    }

    /// A replica has forgotten all that it had.
    pub fn forget(&mut self, node: NodeId) {
        for file in self.files.values_mut() {
            file.logs.remove(&node);
        }
    }

    /// A replica is no more.
    pub fn bury(&mut self, (node, object): (NodeId, ObjectId)) {
        if let Some(file) = self.files.get_mut(&object) {
            file.logs.remove(&node);
        }
    }

    /// A replica writes that these entries stand behind a place.
    pub fn append(
        &mut self,
        now: TrueTime,
        (node, object): (NodeId, ObjectId),
        (after, entries): (Seq, &[Entry<Op>]),
    ) -> Result<(), Violation> {
        let file = self.files.entry(object).or_default();
        let log = file.logs.entry(node).or_default();
        log.split_off(&Seq(after.0 + 1));
        let before = if after == Seq(0) { Some(Position::START) } else { log.get(&after).copied() };
        let Some(mut before) = before else {
            let what = format!("{node:?} appends behind {after:?}, which it does not have");
            return Err(violation(now, object, what));
        };
        for entry in entries {
            log.insert(entry.at.seq, entry.at);
            let inherited = file.known.get(&before).map_or(Epoch::default(), |known| known.generation);
            let generation = match entry.body {
                Body::Barrier { generation } => generation,
                _ => inherited,
            };
            let known = file.known.entry(entry.at).or_insert_with(|| Known {
                before,
                generation,
                entry: entry.clone(),
            });
            if known.before != before || known.entry != *entry {
                let what = format!(
                    "{node:?} has behind {before:?} {entry:?}, and somebody had behind {:?} {:?}",
                    known.before, known.entry
                );
                return Err(violation(now, object, what));
            }
            before = entry.at;
        }
        Ok(())
    }

    /// A replica has taken over a state that goes as far as this.
    pub fn take_over(&mut self, (node, object): (NodeId, ObjectId), at: Position) {
        let file = self.files.entry(object).or_default();
        file.logs.insert(node, BTreeMap::from([(at.seq, at)]));
    }

    /// A replica knows that this is committed. A generation that begins is told.
    pub fn commit(
        &mut self,
        now: TrueTime,
        (node, object): (NodeId, ObjectId),
        at: Position,
    ) -> Result<Option<Beginning>, Violation> {
        let file = self.files.entry(object).or_default();
        let Some(known) = file.known.get(&at) else {
            let is_start = at == Position::START;
            let what = format!("{node:?} takes {at:?} for committed, which nobody has appended");
            return if is_start { Ok(None) } else { Err(violation(now, object, what)) };
        };
        let generation = known.generation;
        let latest = file.histories.last_key_value().map(|(&generation, _)| generation);
        if latest.is_some_and(|latest| generation < latest && file.is_in(latest, at)) {
            return Ok(None);
        }
        let begins = latest.is_some_and(|latest| generation > latest);
        if begins && !self.power_failed {
            let what = format!("generation {generation:?} begins, and power never failed");
            return Err(violation(now, object, what));
        }
        file.extend(generation, at).map_err(|other| {
            let what = format!("{node:?} takes {at:?} for committed, and somebody {other:?} in its place");
            violation(now, object, what)
        })?;
        if latest.is_some_and(|latest| generation < latest) {
            return Ok(None);
        }
        if begins || latest.is_none() {
            let gone = file.durable.iter().find(|at| !file.is_in(generation, **at));
            if let Some(gone) = gone {
                let what = format!("{gone:?} is gone, which was durable; {at:?} is committed");
                return Err(violation(now, object, what));
            }
        }
        let is_new = begins || latest.is_none() && generation > Epoch::default();
        Ok(is_new.then(|| Beginning { generation, recovered: Arc::new(file.recovered(generation)) }))
    }

    /// A client is being told that a change has taken effect.
    pub fn told_written(&self, now: TrueTime, object: ObjectId, mark: Mark) -> Result<(), Violation> {
        let is_there = self.files.get(&object).is_some_and(|file| file.is_in(mark.generation, mark.at));
        let what = || format!("{mark:?} was told to be written, and is not committed");
        if is_there { Ok(()) } else { Err(violation(now, object, what())) }
    }

    /// A client is being told that everything up to a change is durable, the first of which is also named.
    pub fn told_durable(
        &mut self,
        now: TrueTime,
        object: ObjectId,
        (oldest, newest): (Mark, Mark),
    ) -> Result<(), Violation> {
        for mark in [oldest, newest] {
            self.must_be_there(now, object, mark.at)?;
        }
        let Some(file) = self.files.get_mut(&object) else { return Ok(()) };
        file.durable.insert(newest.at);
        Ok(())
    }

    /// A client counts on a change to be durable.
    pub fn must_be_durable(&self, now: TrueTime, object: ObjectId, at: Position) -> Result<(), Violation> {
        self.must_be_there(now, object, at)?;
        let file = self.files.get(&object);
        let is_covered = file.is_some_and(|file| file.durable.iter().any(|known| known.seq >= at.seq));
        let what = || format!("{at:?} was not made durable, and its client thinks so");
        if is_covered { Ok(()) } else { Err(violation(now, object, what())) }
    }

    fn must_be_there(&self, now: TrueTime, object: ObjectId, at: Position) -> Result<(), Violation> {
        let latest = self.files.get(&object).and_then(|file| {
            let (&generation, _) = file.histories.last_key_value()?;
            file.is_in(generation, at).then_some(())
        });
        let what = || format!("{at:?} was told to be durable, and is gone");
        latest.ok_or_else(|| violation(now, object, what()))
    }

    /// The file after an entry, as its history makes it.
    pub fn replay(&self, object: ObjectId, at: Position) -> File {
        self.files.get(&object).map_or_else(File::default, |file| file.replay(at))
    }
}

impl Files {
    /// Whether an entry lies on the history of a generation.
    fn is_in(&self, generation: Epoch, at: Position) -> bool {
        self.histories.get(&generation).is_some_and(|history| history.get(&at.seq) == Some(&at))
    }

    /// Everything up to `at` is committed. What was there instead comes back.
    fn extend(&mut self, generation: Epoch, at: Position) -> Result<(), Position> {
        let history = self.histories.entry(generation).or_default();
        let mut at = at;
        while at != Position::START {
            match history.get(&at.seq) {
                Some(&other) if other == at => return Ok(()),
                Some(&other) => return Err(other),
                None => history.insert(at.seq, at),
            };
            at = self.known[&at].before;
        }
        Ok(())
    }

    /// What a generation began with.
    fn recovered(&self, generation: Epoch) -> File {
        let history = self.histories.get(&generation);
        let barrier = history.and_then(|history| {
            history.values().find(|at| self.known[at].generation == generation).map(|at| &self.known[at])
        });
        barrier.map_or_else(File::default, |barrier| self.replay(barrier.before))
    }

    fn replay(&self, at: Position) -> File {
        let mut steps = Vec::new();
        let mut at = at;
        while let Some(known) = self.known.get(&at) {
            steps.push(&known.entry);
            at = known.before;
        }
        let mut file = File::default();
        let mut done: BTreeSet<(ClientId, u64)> = BTreeSet::new();
        let mut settled: BTreeMap<ClientId, u64> = BTreeMap::new();
        for entry in steps.into_iter().rev() {
            let Body::Op { request, ref op } = entry.body else { continue };
            let below = settled.entry(request.client).or_default();
            if request.number < *below || !done.insert((request.client, request.number)) {
                continue;
            }
            *below = (*below).max(request.settled.min(request.number));
            // What comes of it is told elsewhere.
            let _ = file.apply(entry.at, op);
        }
        file
    }
}

fn violation(at: TrueTime, object: ObjectId, what: String) -> Violation {
    Violation { at, cell: Some(object), checker: "entries", what }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: ObjectId = ObjectId::new(1, 2);

    const fn epoch(number: u64) -> Epoch {
        Epoch { number, node: NodeId(1) }
    }

    const fn at(number: u64, seq: u64) -> Position {
        Position { epoch: epoch(number), seq: Seq(seq) }
    }

    fn barrier(number: u64, seq: u64, generation: u64) -> Entry<Op> {
        let generation = if generation == 0 { Epoch::default() } else { epoch(generation) };
        Entry { at: at(number, seq), lease: 0, body: Body::Barrier { generation } }
    }

    struct Watch(Entries);

    impl Watch {
        fn new() -> Self {
            Self(Entries { power_failed: true, ..Entries::default() })
        }

        fn append(&mut self, node: u32, after: u64, entries: &[Entry<Op>]) -> Result<(), Violation> {
            self.0.append(TrueTime::ZERO, (NodeId(node), FILE), (Seq(after), entries))
        }

        fn commit(&mut self, node: u32, at: Position) -> Result<Option<Epoch>, Violation> {
            let begun = self.0.commit(TrueTime::ZERO, (NodeId(node), FILE), at)?;
            Ok(begun.map(|beginning| beginning.generation))
        }
    }

    #[test]
    fn a_position_names_one_entry() {
        let mut watch = Watch::new();
        watch.append(1, 0, &[barrier(1, 1, 0)]).unwrap();
        watch.append(2, 0, &[barrier(1, 1, 0)]).unwrap();
        assert!(watch.append(3, 0, &[barrier(1, 1, 7)]).is_err());
    }

    #[test]
    fn a_position_has_one_predecessor() {
        let mut watch = Watch::new();
        watch.append(1, 0, &[barrier(1, 1, 0), barrier(3, 2, 0)]).unwrap();
        watch.append(2, 0, &[barrier(2, 1, 0)]).unwrap();
        assert!(watch.append(2, 1, &[barrier(3, 2, 0)]).is_err());
    }

    #[test]
    fn in_a_generation_there_is_one_history() {
        let mut watch = Watch::new();
        watch.append(1, 0, &[barrier(1, 1, 0), barrier(1, 2, 0)]).unwrap();
        watch.append(2, 0, &[barrier(1, 1, 0), barrier(2, 2, 0)]).unwrap();
        watch.commit(1, at(1, 2)).unwrap();
        assert!(watch.commit(2, at(2, 2)).is_err());
    }

    #[test]
    fn what_was_durable_is_in_every_later_generation() {
        let mut watch = Watch::new();
        watch.append(1, 0, &[barrier(1, 1, 0), barrier(1, 2, 0)]).unwrap();
        watch.commit(1, at(1, 2)).unwrap();
        let mark = |seq| Mark { at: at(1, seq), generation: Epoch::default() };
        watch.0.told_durable(TrueTime::ZERO, FILE, (mark(1), mark(1))).unwrap();
        watch.append(2, 0, &[barrier(1, 1, 0), barrier(2, 2, 2)]).unwrap();
        assert_eq!(watch.commit(2, at(2, 2)), Ok(Some(epoch(2))), "what was only written may be lost");
        assert!(watch.0.told_durable(TrueTime::ZERO, FILE, (mark(1), mark(2))).is_err(), "it is gone");
        watch.append(3, 0, &[barrier(3, 1, 3)]).unwrap();
        assert!(watch.commit(3, at(3, 1)).is_err());
    }

    #[test]
    fn nothing_is_lost_while_there_is_power() {
        let mut watch = Watch::new();
        watch.0.power_failed = false;
        watch.append(1, 0, &[barrier(1, 1, 0), barrier(2, 2, 2)]).unwrap();
        watch.commit(1, at(1, 1)).unwrap();
        assert!(watch.commit(1, at(2, 2)).is_err());
    }
}
