//! Entries: what the replicas of a file have ever had, over all of them and all time.
//!
//! - An entry's position names its content and its predecessor, whoever has it.
//! - In one loss generation there is one committed history: whatever replicas know to be committed lies on it.
//! - What a client was told to be written lies on the history of the generation that it was told of.
//! - What a client was told to be durable lies on the history of every later generation.
//! - A generation begins only after power has failed.
//! - While it has not: what nobody knew to be committed is so because a majority has it, with an entry of the tenure that
//!   says so (R3), or because all members have it (R5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{ClientId, Epoch, Members, NodeId, ObjectId, Seq, WallTime};
use node::file::{Change, File, LendStage, Mark, Op};
use replication::{Body, Entry, Machine, Position, Replica, Request, Standing};

use super::Violation;
use super::evidence::{Fact, Machines};
use crate::TrueTime;

mod story;

/// What is known of all files.
#[derive(Debug, Default)]
pub struct Entries {
    files: BTreeMap<ObjectId, Files>,
    /// Whether less than was acknowledged as written may be recovered: power has failed, what a disk had of a file cannot be read
    /// any more, or an operator has given something up.
    pub may_lose: bool,
}

/// What is known of a file.
#[derive(Debug, Default)]
struct Files {
    /// Every entry that ever was, with its predecessor and the generation it is in.
    known: BTreeMap<Position, Known>,
    /// The logs of the replicas.
    logs: BTreeMap<NodeId, BTreeMap<Seq, Position>>,
    /// What is committed, by generation.
    histories: BTreeMap<Epoch, BTreeMap<Seq, Seen>>,
    /// What was told to be durable, and when.
    durable: BTreeMap<Position, TrueTime>,
    /// What was told to be written, and when.
    written: BTreeMap<Position, TrueTime>,
    /// When a client asked for a change.
    called: BTreeMap<(ClientId, u64), TrueTime>,
    /// The entries by which clients are over.
    ends: BTreeMap<ClientId, BTreeSet<Position>>,
    /// Whether it was removed, and forgotten.
    is_removed: bool,
    /// What was committed of what nobody had done anything to, and was forgotten. Who did not hear that has it still.
    ended: BTreeSet<Position>,
}

#[derive(Debug)]
struct Known {
    before: Position,
    generation: Epoch,
    entry: Entry<Op>,
    /// Who had it first, and when, and who ever had it.
    first: (NodeId, TrueTime),
    holders: Machines,
}

/// An entry that somebody knows to be committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Which.
    pub at: Position,
    /// Who knew it first.
    pub by: NodeId,
    /// Since when.
    pub since: TrueTime,
}

/// A new loss generation of a file, and what it began with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Beginning {
    /// Which.
    pub generation: Epoch,
    /// What was recovered.
    pub recovered: Arc<File>,
}

/// A request that took effect, and by which entry.
#[derive(Clone, Copy, Debug)]
pub struct Effect<'a> {
    /// Where the entry stands.
    pub at: Position,
    /// Of whom.
    pub request: Request,
    /// What it does.
    pub op: &'a Op,
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
            let what = format!("{node:?} has {at:?}, which nobody has appended");
            return Err(violation(now, object, what.clone()).shown_by([Fact::new(now, node, what)]));
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

    /// All may forget an object. If nobody has done anything to it but lend it and take it back, it may begin again as if it had never been. Where it
    /// was removed, who asks for it later may have it begin again as well, but does nothing to it; nor does whoever goes on behind its mark.
    pub fn end(&mut self, object: ObjectId, is_removed: bool) {
        let Some(file) = self.files.get(&object) else { return };
        let mut last = file.histories.values().filter_map(|history| history.last_key_value());
        let is_untouched = last.all(|(_, last)| file.is_untouched(last.at));
        let Some(file) = self.files.get_mut(&object) else { return };
        file.is_removed |= is_removed;
        if is_untouched {
            let histories = std::mem::take(&mut file.histories);
            file.ended.extend(histories.values().flat_map(|history| history.values().map(|seen| seen.at)));
            file.durable.clear();
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
            let facts = file.log_of(node).into_iter().chain([Fact::new(now, node, what.clone())]);
            return Err(violation(now, object, what).shown_by(facts));
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
                first: (node, now),
                holders: Machines::default(),
            });
            if known.before != before || known.entry != *entry {
                let what = format!(
                    "{node:?} has behind {before:?} {entry:?}, and somebody had behind {:?} {:?}",
                    known.before, known.entry
                );
                let now_here = format!("{node:?} has behind {before:?}: {entry:?}");
                let facts = file.appearance(entry.at).into_iter().chain([Fact::new(now, node, now_here)]);
                return Err(violation(now, object, what).shown_by(facts));
            }
            known.holders = known.holders.and(node.into());
            if let Body::Expire { client, .. } = entry.body {
                file.ends.entry(client).or_default().insert(entry.at);
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
            let fact = Fact::new(now, node, what.clone());
            return if is_start { Ok(None) } else { Err(violation(now, object, what).shown_by([fact])) };
        };
        if file.may_begin_again(at) && !file.histories.values().any(|history| is_at(history, at)) {
            return Ok(None);
        }
        let generation = known.generation;
        let latest = file.histories.last_key_value().map(|(&generation, _)| generation);
        if latest.is_some_and(|latest| generation < latest && file.is_in(latest, at)) {
            return Ok(None);
        }
        let begins = latest.is_some_and(|latest| generation > latest);
        if begins && !self.may_lose {
            let what = format!("generation {generation:?} begins, and neither power nor a disk has failed");
            let facts =
                file.beginning_of(at).into_iter().chain(latest.and_then(|latest| file.last_of(latest)));
            let begins =
                Fact::new(now, node, format!("{node:?} takes {at:?} for committed, of {generation:?}"));
            return Err(violation(now, object, what).shown_by(facts.chain([begins])));
        }
        file.extend(generation, Seen { at, by: node, since: now }).map_err(|other| {
            let what =
                format!("{node:?} takes {at:?} for committed, and somebody {:?} in its place", other.at);
            let takes = Fact::new(now, node, format!("{node:?} takes {at:?} for committed"));
            let place = file.way_to(at).find(|known| known.entry.at.seq == other.at.seq);
            let here = place.and_then(|known| file.appearance(known.entry.at));
            let facts = file.story_of(other.at).into_iter().chain(here).chain([other.tell(), takes]);
            violation(now, object, what).shown_by(facts)
        })?;
        if latest.is_some_and(|latest| generation < latest) {
            return Ok(None);
        }
        if begins || latest.is_none() {
            let gone = file.durable.keys().find(|at| !file.is_in(generation, **at));
            if let Some(&gone) = gone {
                let what = format!("{gone:?} is gone, which was durable; {at:?} is committed");
                return Err(violation(now, object, what).shown_by(file.loss_of(now, gone)));
            }
        }
        let is_new = begins || latest.is_none() && generation > Epoch::default();
        Ok(is_new.then(|| Beginning { generation, recovered: Arc::new(file.recovered(generation)) }))
    }

    /// A replica takes something for committed, perhaps as the first of all.
    pub fn may_commit(
        &self,
        now: TrueTime,
        (node, object): (NodeId, ObjectId),
        replica: &Replica<File>,
    ) -> Result<(), Violation> {
        let (at, members) = (replica.committed(), &replica.view().members);
        let leads = matches!(replica.standing(), Standing::Recovering | Standing::Serving);
        let is_known = |file: &&Files| file.is_committed(at) || file.may_begin_again(at);
        let Some(file) = self.files.get(&object).filter(|file| !is_known(file)) else { return Ok(()) };
        // Power takes away what was rightly counted.
        if self.may_lose || at == Position::START {
            return Ok(());
        }
        let is_own = !leads || at.epoch == replica.promised();
        let enough = if is_own { members.majority() } else { members.as_slice().len() };
        let have = members.as_slice().len() - file.lacking(members, at);
        if have >= enough {
            return Ok(());
        }
        let what = format!("{node:?} takes {at:?} for committed, which {have} of {members:?} have");
        let logs = members.as_slice().iter().filter_map(|&member| file.log_at(now, member, at));
        let takes = Fact::new(
            now,
            node,
            format!("{node:?} takes {at:?} for committed; promised: {:?}", replica.promised()),
        );
        let facts = file.appearance(at).into_iter().chain(logs).chain([takes]);
        Err(violation(now, object, what).shown_by(facts))
    }

    /// The last entry that anybody knows to be committed.
    pub fn latest(&self, object: ObjectId) -> Option<Seen> {
        let (_, history) = self.files.get(&object)?.histories.last_key_value()?;
        history.last_key_value().map(|(_, &seen)| seen)
    }

    /// The latest loss generation of a file.
    pub fn generation(&self, object: ObjectId) -> Epoch {
        let history = self.files.get(&object).and_then(|file| file.histories.last_key_value());
        history.map_or(Epoch::default(), |(&generation, _)| generation)
    }

    /// Whether all of a file may have been lost, so that nobody begins it anew: nobody was told that anything of it is durable.
    pub fn may_be_gone(&self, object: ObjectId) -> bool {
        self.may_lose && self.files.get(&object).is_none_or(|file| file.durable.is_empty())
    }

    /// Whether a content was removed because its volume has it no more.
    pub fn is_removed(&self, object: ObjectId) -> bool {
        self.files.get(&object).is_some_and(|file| file.is_removed)
    }

    /// Whether a log that ends with `tail` has an entry.
    pub fn is_before(&self, object: ObjectId, at: Position, tail: Position) -> bool {
        self.files.get(&object).is_some_and(|file| file.way_to(tail).any(|known| known.entry.at == at))
    }

    /// The requests that took effect in a generation, in order; of those that found no space, that they did not.
    pub fn effects(&self, object: ObjectId, generation: Epoch) -> Vec<Effect<'_>> {
        let Some(file) = self.files.get(&object) else { return Vec::new() };
        let Some(history) = file.histories.get(&generation) else { return Vec::new() };
        let begun = history.values().find(|seen| file.known[&seen.at].generation == generation);
        let (Some(begun), Some((_, last))) = (begun, history.last_key_value()) else { return Vec::new() };
        let effective = file.effective(last.at).into_iter().filter(|(at, ..)| at.seq > begun.at.seq);
        effective.map(|(at, request, op)| Effect { at, request, op }).collect()
    }

    /// Since when somebody knows an entry to be committed.
    pub fn since(&self, object: ObjectId, at: Position) -> Option<TrueTime> {
        let mut histories = self.files.get(&object)?.histories.values();
        histories.find_map(|history| history.get(&at.seq).filter(|seen| seen.at == at).map(|seen| seen.since))
    }

    /// A client is being told that a change has taken effect.
    pub fn told_written(&mut self, now: TrueTime, object: ObjectId, mark: Mark) -> Result<(), Violation> {
        let file = self.files.entry(object).or_default();
        file.written.entry(mark.at).or_insert(now);
        if file.is_in(mark.generation, mark.at) {
            return Ok(());
        }
        let what = format!("{mark:?} was told to be written, and is not committed");
        Err(violation(now, object, what).shown_by(file.loss_of(now, mark.at)))
    }

    /// A client asks for a change of a file.
    pub fn called(&mut self, now: TrueTime, object: ObjectId, name: (ClientId, u64)) {
        self.files.entry(object).or_default().called.entry(name).or_insert(now);
    }

    /// The entry in a history that ends with `at` by which a client is over.
    pub fn end_of(&self, (object, client): (ObjectId, ClientId), at: Position) -> Option<Fact> {
        let file = self.files.get(&object)?;
        let ends = file.ends.get(&client)?;
        let end = file.way_to(at).find(|known| ends.contains(&known.entry.at))?;
        file.appearance(end.entry.at)
    }

    /// Whether a request has taken effect in what is known to be committed.
    pub fn has_effect(&self, object: ObjectId, name: (ClientId, u64)) -> bool {
        let (Some(file), Some(latest)) = (self.files.get(&object), self.latest(object)) else { return false };
        let mut way = file.way_to(latest.at);
        way.any(|known| match known.entry.body {
            Body::Op { request, ref op } => {
                (request.client, request.number) == name && op.change != Change::NoSpace
            }
            _ => false,
        })
    }

    /// What became of an entry so far: by whom it was asked for, who had it, and what clients were told.
    pub fn story_of(&self, object: ObjectId, at: Position) -> Vec<Fact> {
        self.files.get(&object).map_or_else(Vec::new, |file| file.story_of(at))
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
        file.durable.entry(newest.at).or_insert(now);
        Ok(())
    }

    /// A client counts on a change to be durable.
    pub fn must_be_durable(&self, now: TrueTime, object: ObjectId, at: Position) -> Result<(), Violation> {
        self.must_be_there(now, object, at)?;
        let file = self.files.get(&object);
        let is_covered = file.is_some_and(|file| file.durable.keys().any(|known| known.seq >= at.seq));
        if is_covered {
            return Ok(());
        }
        let what = format!("{at:?} was not made durable, and its client thinks so");
        let last = file.and_then(|file| file.durable.last_key_value());
        let last = last.map(|(&at, &since)| story::told_durable(since, at));
        let thinks = Fact::new(now, Machines::default(), format!("its client takes {at:?} for durable"));
        let facts = self.story_of(object, at).into_iter().chain(last).chain([thinks]);
        Err(violation(now, object, what).shown_by(facts))
    }

    fn must_be_there(&self, now: TrueTime, object: ObjectId, at: Position) -> Result<(), Violation> {
        let file = self.files.get(&object);
        let latest = file.and_then(|file| {
            let (&generation, _) = file.histories.last_key_value()?;
            file.is_in(generation, at).then_some(())
        });
        latest.ok_or_else(|| {
            let what = format!("{at:?} was told to be durable, and is gone");
            let facts = file.map_or_else(Vec::new, |file| file.loss_of(now, at));
            violation(now, object, what).shown_by(facts)
        })
    }

    /// The file after an entry, as its history makes it.
    pub fn replay(&self, object: ObjectId, at: Position) -> File {
        self.replay_on(File::default(), object, at)
    }

    /// The same, from a file that is empty, but may keep to other rules.
    pub fn replay_on(&self, empty: File, object: ObjectId, at: Position) -> File {
        match self.files.get(&object) {
            Some(file) => file.replay_on(empty, at),
            None => empty,
        }
    }
}

impl Files {
    /// Whether an entry lies on the history of a generation.
    fn is_in(&self, generation: Epoch, at: Position) -> bool {
        self.histories.get(&generation).is_some_and(|history| is_at(history, at))
    }

    /// Everything up to there is committed. What was there instead comes back.
    fn extend(&mut self, generation: Epoch, seen: Seen) -> Result<(), Seen> {
        let history = self.histories.entry(generation).or_default();
        let mut at = seen.at;
        while at != Position::START {
            match history.get(&at.seq) {
                Some(other) if other.at == at => return Ok(()),
                Some(&other) => return Err(other),
                None => history.insert(at.seq, Seen { at, ..seen }),
            };
            at = self.known[&at].before;
        }
        Ok(())
    }

    /// What a generation began with.
    fn recovered(&self, generation: Epoch) -> File {
        let history = self.histories.get(&generation);
        let barrier = history.and_then(|history| {
            history.values().map(|seen| &self.known[&seen.at]).find(|known| known.generation == generation)
        });
        barrier.map_or_else(File::default, |barrier| self.replay(barrier.before))
    }

    /// Whether anybody knows an entry to be committed.
    fn is_committed(&self, at: Position) -> bool {
        self.histories.values().any(|history| is_at(history, at))
    }

    /// How many of the members do not have an entry.
    fn lacking(&self, members: &Members, at: Position) -> usize {
        members.as_slice().iter().filter(|node| self.logs.get(node).is_some_and(|log| !has(log, at))).count()
    }

    /// The entries of a log from its end to its beginning.
    fn way_to(&self, tail: Position) -> impl Iterator<Item = &Known> {
        std::iter::successors(self.known.get(&tail), |known| self.known.get(&known.before))
    }

    /// The changes that take effect in a log that ends with `at`, in order.
    fn effective(&self, at: Position) -> Vec<(Position, Request, &Op)> {
        let mut way: Vec<&Entry<Op>> = self.way_to(at).map(|known| &known.entry).collect();
        way.reverse();
        let mut done: BTreeSet<(ClientId, u64)> = BTreeSet::new();
        let mut settled: BTreeMap<ClientId, u64> = BTreeMap::new();
        let mut over: Vec<(WallTime, ClientId)> = Vec::new();
        let mut effective = Vec::new();
        for entry in way {
            if let Body::Expire { client, since, forget } = entry.body {
                over.retain(|&(since, other)| since >= forget && other != client);
                over.push((since, client));
                done.retain(|&(other, _)| other != client);
                settled.remove(&client);
            }
            let Body::Op { request, ref op } = entry.body else { continue };
            if over.iter().any(|&(_, client)| client == request.client) {
                continue;
            }
            let below = settled.entry(request.client).or_default();
            if request.number < *below || !done.insert((request.client, request.number)) {
                continue;
            }
            *below = (*below).max(request.settled.min(request.number));
            effective.push((entry.at, request, op));
        }
        effective
    }

    /// Whether all may forget the object that ends so, and what comes behind may differ.
    fn may_begin_again(&self, at: Position) -> bool {
        self.is_removed && self.is_gone(at) || self.ended.contains(&at)
    }

    /// Whether a log that ends with `at` says nothing, or in the end that the file was removed.
    fn is_gone(&self, at: Position) -> bool {
        self.effective(at).last().is_none_or(|(_, _, op)| matches!(op.change, Change::Remove))
    }

    /// Whether a log that ends with `at` does nothing but to lend and to take back, and nothing was done under the last lend.
    fn is_untouched(&self, at: Position) -> bool {
        let is_of_lends = |op: &Op| matches!(op.change, Change::Borrow { .. } | Change::Return { .. });
        let lend = self.replay(at).attributes().1.lend();
        self.effective(at).into_iter().all(|(.., op)| is_of_lends(op))
            && lend.is_none_or(|lend| lend.stage == LendStage::Unused)
    }

    fn replay(&self, at: Position) -> File {
        self.replay_on(File::default(), at)
    }

    fn replay_on(&self, mut file: File, at: Position) -> File {
        for (at, _, op) in self.effective(at) {
            // What comes of it is told elsewhere.
            let _ = file.apply(at, op);
        }
        file
    }
}

fn is_at(history: &BTreeMap<Seq, Seen>, at: Position) -> bool {
    history.get(&at.seq).is_some_and(|seen| seen.at == at)
}

/// Whether a log has an entry.
fn has(log: &BTreeMap<Seq, Position>, at: Position) -> bool {
    match log.get(&at.seq) {
        Some(&here) => here == at,
        // What it took over, or has trimmed.
        None => log.first_key_value().is_some_and(|(&first, _)| first > at.seq),
    }
}

fn violation(at: TrueTime, object: ObjectId, what: String) -> Violation {
    Violation::new(at, "entries", what).about(object)
}

#[cfg(test)]
mod tests;
