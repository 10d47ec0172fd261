//! What a client did by itself, in a directory that nobody else knows, and has entered later.
//!
//! - It took effect when its user was told, for everybody: in the order of the replicas it stands before all that was committed later. But not
//!   before what somebody changed in the same directory who had begun by then: whoever asked before, too, may be told of that alone, and until
//!   that is committed its client answers nothing about it.
//! - As long as it is not entered it may be lost, with its client, or because it is refused. Then it never took effect, and what its client
//!   answered by itself meanwhile has no place in the order.
//! - Nothing is lost that its client [has to keep](Histories::must_keep): once it has said that a directory is given back, or has removed it,
//!   all is entered. Nor is anything lost because of a name or a permission: its client knew both.
//! - How much there is in all counts what is entered, and nobody is told of that in between.

use std::collections::BTreeSet;

use base::ObjectId;
use namespace::InodeId;
use node::file::Position;

use super::{Bound, Histories, History, OperationId, Wrong};
use crate::TrueTime;
use crate::check::{Moment, Operation};
use crate::checkers::kinds::Kind;

/// Something that a client did by itself.
#[derive(Clone, Debug)]
pub(super) struct Ahead<O> {
    /// In which directory.
    dir: InodeId,
    told: Moment,
    /// What he was told, if that was more than that it is done.
    outcome: Option<O>,
    /// What its client answered by itself since, as long as it was not entered.
    seen: Vec<usize>,
    /// Why it is not to be lost.
    kept: Option<&'static str>,
    /// Whether its client was told that it is lost.
    is_lost: bool,
}

impl<K: Kind> Histories<K> {
    /// It was done by a client alone, in a directory, and this its user was told.
    pub fn told_ahead(
        &mut self,
        now: TrueTime,
        id: OperationId,
        (dir, outcome): (InodeId, Option<K::Outcome>),
    ) {
        let told = self.moments.tick(now);
        let history = self.objects.get_mut(&id.object).and_then(|histories| histories.get_mut(id.history));
        let ahead = Ahead { dir, told, outcome, seen: Vec::new(), kept: None, is_lost: false };
        history.into_iter().for_each(|history| _ = history.ahead.insert(id.place, ahead.clone()));
    }

    /// Its client has answered something by itself.
    pub fn seen_ahead(&mut self, id: OperationId, answer: OperationId) {
        let history = self.objects.get_mut(&id.object).and_then(|histories| histories.get_mut(id.history));
        if id.history == answer.history
            && let Some(ahead) = history.and_then(|history| history.ahead.get_mut(&id.place))
        {
            ahead.seen.push(answer.place);
        }
    }

    /// Its client was told that it is lost.
    pub fn lost_ahead(&mut self, id: OperationId) {
        let history = self.objects.get_mut(&id.object).and_then(|histories| histories.get_mut(id.history));
        if let Some(ahead) = history.and_then(|history| history.ahead.get_mut(&id.place)) {
            ahead.is_lost = true;
        }
    }

    /// It is not to be lost, and this is why.
    pub fn keep_ahead(&mut self, id: OperationId, why: &'static str) {
        let history = self.objects.get_mut(&id.object).and_then(|histories| histories.get_mut(id.history));
        if let Some(ahead) = history.and_then(|history| history.ahead.get_mut(&id.place)) {
            ahead.kept.get_or_insert(why);
        }
    }

    /// Nothing that was done in this directory is lost from here on, unless its client knows already.
    pub fn must_keep(&mut self, object: ObjectId, dir: InodeId, why: &'static str) {
        let Some(history) = self.objects.get_mut(&object).and_then(|histories| histories.last_mut()) else {
            return;
        };
        let of_it = history.ahead.values_mut().filter(|ahead| ahead.dir == dir && !ahead.is_lost);
        of_it.for_each(|ahead| _ = ahead.kept.get_or_insert(why));
    }
}

impl<K: Kind> History<K> {
    /// An operation as its user saw it. Who was told no more than that it is done may have been told what came of it elsewhere in the order: as
    /// when a client ended just before what it had open was removed.
    pub(super) fn as_told(
        &self,
        place: usize,
        operation: &Operation<K::Op, K::Outcome>,
    ) -> Operation<K::Op, K::Outcome> {
        let returned = match self.ahead.get(&place) {
            Some(ahead) => ahead.outcome.clone().map(|outcome| (ahead.told, outcome)),
            None => operation.returned.clone(),
        };
        Operation { returned, ..operation.clone() }
    }

    /// The entries with what clients did by themselves where that took effect, and what has no place in the order.
    pub(super) fn arrange(
        &self,
        kind: &K,
        bound: Vec<Bound<K>>,
        since: &dyn Fn(Position) -> Moment,
    ) -> Result<(Vec<Bound<K>>, BTreeSet<usize>), Wrong> {
        if self.ahead.is_empty() {
            return Ok((bound, BTreeSet::new()));
        }
        let entered = self.entered(kind, &bound)?;
        let mut void = self.lost(&entered)?;
        void.extend(self.counted(&bound, &entered, since));
        let (mut placed, mut later): (Vec<(Moment, bool, Bound<K>)>, _) = (Vec::new(), Moment(u64::MAX));
        let mut behind: Vec<&Ahead<K::Outcome>> = Vec::new();
        for entry in bound.into_iter().rev() {
            let ahead = entry.place.and_then(|place| Some((place, self.ahead.get(&place)?)));
            match ahead {
                None => {
                    // What is before it in the log stays so, if it had begun by then.
                    let called = entry.place.map_or(Moment(0), |place| self.operations[place].called);
                    later = later.min(self.effect(&entry, &behind, since));
                    placed.push((later.max(called), false, entry));
                }
                Some((place, ahead)) if entered.contains(&place) => {
                    behind.push(ahead);
                    placed.push((ahead.told, true, entry));
                }
                Some(_) => {}
            }
        }
        placed.reverse();
        // What is committed later was known to be committed later, so its order stays.
        placed.sort_by_key(|(at, is_ahead, _)| (*at, *is_ahead));
        Ok((placed.into_iter().map(|(_, _, entry)| entry).collect(), void))
    }

    /// When an entry took effect of which a client did not know before, if those behind it were done ahead.
    fn effect(
        &self,
        entry: &Bound<K>,
        behind: &[&Ahead<K::Outcome>],
        since: &dyn Fn(Position) -> Moment,
    ) -> Moment {
        let committed = since(entry.at);
        let Some(place) = entry.place else { return committed };
        let called = self.operations[place].called;
        let met = behind.iter().filter(|ahead| called < ahead.told && K::touches(&entry.op, ahead.dir));
        met.map(|ahead| ahead.told).fold(committed, Moment::min)
    }

    /// What of that was entered. Who was told more was told what came of it there.
    fn entered(&self, kind: &K, bound: &[Bound<K>]) -> Result<BTreeSet<usize>, Wrong> {
        let mut entered = BTreeSet::new();
        let mut state = self.start.clone();
        for Bound { at, place, op } in bound {
            if let Some(place) = place.filter(|place| self.ahead.contains_key(place)) {
                let outcome = kind.outcome(&state, op);
                let told = self.operations[place].returned.as_ref().map(|(_, told)| told);
                if told.is_some() && told != outcome.as_ref() {
                    let told = kind.describe(op, told);
                    let what = format!("{told}; in the order of the replicas it comes to {outcome:?}");
                    return Err(Wrong { what, operations: vec![place], entries: vec![*at] });
                }
                if outcome.is_some_and(|outcome| !K::is_refused(&outcome)) {
                    entered.insert(place);
                }
            }
            state = kind.step(&state, op, None).unwrap_or(state);
        }
        Ok(entered)
    }

    /// What was not, and what was answered because of it.
    fn lost(&self, entered: &BTreeSet<usize>) -> Result<BTreeSet<usize>, Wrong> {
        let mut lost = BTreeSet::new();
        for (&place, ahead) in self.ahead.iter().filter(|(place, _)| !entered.contains(place)) {
            let is_done = |(_, told): &(Moment, K::Outcome)| !K::is_refused(told);
            let is_done = self.operations[place].returned.as_ref().is_some_and(is_done);
            if let Some(why) = ahead.kept.or(is_done.then_some("its client was told that it is entered")) {
                let what = format!("something was done by a client alone and is lost, though {why}");
                return Err(Wrong { operations: vec![place], ..what.into() });
            }
            lost.insert(place);
            lost.extend(&ahead.seen);
        }
        Ok(lost)
    }

    /// Questions about how much there is, while something was done and not entered.
    fn counted(
        &self,
        bound: &[Bound<K>],
        entered: &BTreeSet<usize>,
        since: &dyn Fn(Position) -> Moment,
    ) -> BTreeSet<usize> {
        let of_place = |entry: &Bound<K>| {
            let place = entry.place.filter(|place| entered.contains(place))?;
            Some((self.operations[place].called, since(entry.at)))
        };
        let spans: Vec<(Moment, Moment)> = bound.iter().filter_map(of_place).collect();
        let overlaps = |asked: &Operation<K::Op, K::Outcome>| {
            let end = asked.returned.as_ref().map_or(Moment(u64::MAX), |(at, _)| *at);
            spans.iter().any(|(from, upto)| *from <= end && asked.called.0 <= upto.0 + 1)
        };
        let asked = self.operations.iter().enumerate();
        asked
            .filter(|(_, asked)| K::is_of_all(&asked.op) && overlaps(asked))
            .map(|(place, _)| place)
            .collect()
    }
}
