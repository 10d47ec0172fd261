//! Histories: what users did to files and volumes and were told, and whether a single copy could have told them the same.
//!
//! Where what was only written may be lost, the history of a file ends, and another begins with what was recovered. A
//! change that had no result by then may have taken effect before or may yet do so: it is unknown to both.
//!
//! The order in which replicas committed the changes is tried first. Only if it does not explain all, others are looked for;
//! and if none is found in time, that is a violation, too. Of a volume no other is looked for: an entry's place names what it
//! creates ([`kinds`](super::kinds)).
//!
//! While clocks are wrong ([`loosen`](Histories::loosen)) a question may be answered from the past: it has its place in
//! no order, and the rest has one as ever.
//!
//! What a client did by itself and has entered later (`ahead`) took effect when its user was told.

mod ahead;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use base::{ClientId, Epoch, ObjectId};

use node::file::Position;

use super::Violation;
use super::entries::{Effect, Entries};
use super::evidence::{Fact, Machines};
use super::kinds::Kind;
use super::moments::Moments;
use super::past::Past;
use crate::TrueTime;
use crate::check::file::FileModel;
use crate::check::{Moment, Operation, Specification, Verdict, check, misfit};
use ahead::Ahead;

/// No search may take more steps. Most need less than a tenth of that.
const STEPS_MAX: u64 = 300_000;

/// The histories of all that is of one kind.
#[derive(Debug)]
pub struct Histories<K: Kind> {
    kind: K,
    objects: BTreeMap<ObjectId, Vec<History<K>>>,
    moments: Moments,
    is_loose: bool,
}

/// Names an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OperationId {
    object: ObjectId,
    history: usize,
    place: usize,
}

/// What was done to a file while nothing was lost.
#[derive(Clone, Debug)]
struct History<K: Kind> {
    generation: Epoch,
    start: K::State,
    operations: Vec<Operation<K::Op, K::Outcome>>,
    /// Where what was open when it began stood in the one before: its first operations.
    open: Vec<usize>,
    /// By what name a change goes at the daemons.
    names: BTreeMap<Name, usize>,
    /// What clients did by themselves.
    ahead: BTreeMap<usize, Ahead<K::Outcome>>,
    /// The questions that were open while clocks were wrong, and what was known to be committed when they were answered.
    loose: BTreeMap<usize, Position>,
}

/// What the histories were found to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Judgement {
    /// Histories that the order of the replicas explains.
    pub linearizable: u64,
    /// Histories that only another order explains.
    pub searched: u64,
    /// Answers that came while clocks were wrong.
    pub loose: u64,
    /// Those among them that lack a change which had been acknowledged before they were asked for.
    pub stale: u64,
}

/// An entry that took effect, as the operation that it was; none stands for what no user asked for.
struct Bound<K: Kind> {
    at: Position,
    place: Option<usize>,
    op: K::Op,
}

/// By what name a change goes at the daemons.
type Name = (ClientId, u64);

/// What is wrong, with which operations, and with which entries.
struct Wrong {
    what: String,
    operations: Vec<usize>,
    entries: Vec<Position>,
}

/// Something that is like this at the beginning.
#[derive(Debug)]
struct Begun<'a, K: Kind>(&'a K, &'a K::State);

/// All that must have an order.
struct Strict<K: Kind> {
    operations: Vec<Operation<K::Op, K::Outcome>>,
    /// Where each stands in the history. What no user asked for stands behind these.
    places: Vec<usize>,
    /// The order in which replicas committed the changes, and where the entries stand.
    order: Vec<usize>,
    entries: Vec<Position>,
}

impl Judgement {
    /// With what others were found to be.
    pub const fn and(self, other: Self) -> Self {
        Self {
            linearizable: self.linearizable + other.linearizable,
            searched: self.searched + other.searched,
            loose: self.loose + other.loose,
            stale: self.stale + other.stale,
        }
    }
}

impl From<String> for Wrong {
    fn from(what: String) -> Self {
        Self { what, operations: Vec::new(), entries: Vec::new() }
    }
}

impl<K: Kind> History<K> {
    fn new(kind: &K) -> Self {
        Self {
            generation: Epoch::default(),
            start: kind.start(),
            operations: Vec::new(),
            open: Vec::new(),
            names: BTreeMap::new(),
            ahead: BTreeMap::new(),
            loose: BTreeMap::new(),
        }
    }

    /// What the entries of this generation are, in their order.
    fn bind(&self, kind: &K, object: ObjectId, effects: &[Effect<'_>]) -> Result<Vec<Bound<K>>, Wrong> {
        let mut bound = Vec::new();
        for effect in effects {
            let (at, name) = (effect.at, (effect.request.client, effect.request.number));
            let place = self.names.get(&name).copied();
            let op = match place {
                Some(place) => kind.bind(&self.operations[place].op, object, effect),
                None => kind.unasked(effect),
            };
            let op = op.map_err(|what| Wrong {
                entries: vec![at],
                operations: place.into_iter().collect(),
                ..Wrong::from(what)
            })?;
            bound.extend(op.map(|op| Bound { at, place, op }));
        }
        Ok(bound)
    }

    /// Whether a single copy could have told the same, but for what was answered from the past.
    fn judge(&self, kind: &K, bound: &[Bound<K>], void: &BTreeSet<usize>) -> Result<Judgement, Wrong> {
        let begun = Begun(kind, &self.start);
        let strict = self.strict(bound, void);
        let Some(misfit) = misfit(&begun, &strict.operations, &strict.order) else {
            return Ok(Judgement { linearizable: 1, ..Judgement::default() });
        };
        if !K::HAS_OTHER_ORDERS {
            return Err(strict.explain(&begun, misfit));
        }
        let (found, shown) = match check(&begun, &strict.operations, STEPS_MAX) {
            Verdict::Linearizable => return Ok(Judgement { searched: 1, ..Judgement::default() }),
            Verdict::Undecided => (self.describe(), vec![misfit]),
            Verdict::Violation(found) => (found.headline(), found.operations),
        };
        let operations = shown.into_iter().map(|place| strict.places[place]).collect();
        Err(Wrong { operations, ..format!("{}: {found}", kind.tell(&self.start)).into() })
    }

    /// All that must have an order.
    fn strict(&self, bound: &[Bound<K>], void: &BTreeSet<usize>) -> Strict<K> {
        let all = self.operations.iter().enumerate();
        let is_void = |op: &Operation<_, K::Outcome>| {
            op.returned.as_ref().is_some_and(|(_, outcome)| K::says_nothing(outcome))
        };
        let is_left_out = |place: &usize| self.loose.contains_key(place) || void.contains(place);
        let strict = all.filter(|(place, op)| !is_left_out(place) && !is_void(op));
        let (mut operations, places): (Vec<_>, Vec<usize>) =
            strict.map(|(place, operation)| (self.as_told(place, operation), place)).unzip();
        let (mut order, mut entries) = (Vec::new(), Vec::new());
        for Bound { at, place, op } in bound {
            let index = match place {
                None => Some(operations.len()),
                Some(place) => places.binary_search(place).ok(),
            };
            let Some(index) = index else { continue };
            if place.is_none() {
                let called = Moment::default();
                operations.push(Operation { client: 0, called, op: op.clone(), returned: None });
            }
            operations[index].op = op.clone();
            order.push(index);
            entries.push(*at);
        }
        Strict { operations, places, order, entries }
    }

    /// Whether what was answered while clocks were wrong was so once. What this generation was is added to the past.
    fn judge_loose(
        &self,
        kind: &K,
        bound: &[Bound<K>],
        past: &mut Past<K::State>,
    ) -> Result<Judgement, Wrong> {
        let mut judgement = Judgement::default();
        past.begin(&self.start);
        bound.iter().for_each(|Bound { at, op, .. }| past.follow(kind, *at, op));
        for (&place, &known) in &self.loose {
            let question = &self.operations[place];
            let Some((_, outcome)) = &question.returned else { continue };
            let is_owed = |change: &Bound<K>| {
                let returned = change.place.and_then(|place| self.operations[place].returned.as_ref());
                returned.is_some_and(|(at, _)| *at < question.called)
            };
            let owed = bound.iter().rposition(is_owed).map_or(0, |last| last + 1);
            judgement.loose += 1;
            match past.find(kind, (&question.op, outcome), known) {
                Some(changes) => judgement.stale += u64::from(changes < owed),
                None => {
                    let what = format!("it was never so, up to {known:?}, though clocks were wrong");
                    return Err(Wrong { operations: vec![place], ..what.into() });
                }
            }
        }
        Ok(judgement)
    }

    /// What the order of the replicas does not explain, nor any that was found in time.
    fn describe(&self) -> String {
        format!(
            "no order was found in {STEPS_MAX} steps that explains all {} operations, nor does the one in which replicas \
             committed",
            self.operations.len()
        )
    }
}

impl<K: Kind> Strict<K> {
    /// Why something has no place in the order of the replicas.
    fn explain(&self, begun: &Begun<'_, K>, misfit: usize) -> Wrong {
        let mut states = vec![begun.start()];
        for &index in &self.order {
            let before = states.last().expect("it begins with one");
            let after = begun.step(before, &self.operations[index].op, None);
            states.push(after.unwrap_or_else(|| before.clone()));
        }
        let Operation { op, returned, .. } = &self.operations[misfit];
        let outcome = returned.as_ref().map(|(_, outcome)| outcome);
        let told = begun.0.describe(op, outcome);
        let (what, near) = match self.order.iter().position(|&index| index == misfit) {
            Some(place) => {
                let expected = begun.0.outcome(&states[place], op);
                (format!("{told}; in the order of the replicas it comes to {expected:?}"), vec![place])
            }
            None if !begun.is_query(op) => (format!("{told}; no replica has that committed"), Vec::new()),
            // The entries between which it was so.
            None => match states.iter().rposition(|state| begun.step(state, op, outcome).is_some()) {
                None => (format!("{told}; it was never so"), Vec::new()),
                Some(place) => {
                    let near = [place.checked_sub(1), Some(place).filter(|&place| place < self.order.len())];
                    (format!("{told}; it was so, but not then"), near.into_iter().flatten().collect())
                }
            },
        };
        let about = near.iter().map(|&place| self.order[place]).chain([misfit]);
        let operations = about.filter_map(|index| self.places.get(index).copied()).collect();
        Wrong { what, operations, entries: near.iter().map(|&place| self.entries[place]).collect() }
    }
}

impl<K: Kind> Histories<K> {
    /// Nothing was done yet.
    pub const fn new(kind: K) -> Self {
        Self { kind, objects: BTreeMap::new(), moments: Moments::new(), is_loose: false }
    }

    fn of(&mut self, object: ObjectId) -> &mut Vec<History<K>> {
        let kind = &self.kind;
        self.objects.entry(object).or_insert_with(|| vec![History::new(kind)])
    }

    /// Somebody wants this done.
    pub fn called(&mut self, now: TrueTime, object: ObjectId, client: u64, op: K::Op) -> OperationId {
        let called = self.moments.tick(now);
        let is_loose = self.is_loose && self.kind.is_query(&op);
        let histories = self.of(object);
        let history = histories.len() - 1;
        let place = histories[history].operations.len();
        if is_loose {
            histories[history].loose.insert(place, Position::START);
        }
        histories[history].operations.push(Operation { client, called, op, returned: None });
        OperationId { object, history, place }
    }

    /// From here on a question may be answered from the past, and so may those that are open.
    pub fn loosen(&mut self) {
        self.is_loose = true;
        for history in self.objects.values_mut().filter_map(|histories| histories.last_mut()) {
            let is_open = |operation: &Operation<K::Op, K::Outcome>| {
                operation.returned.is_none() && self.kind.is_query(&operation.op)
            };
            let operations = history.operations.iter().enumerate();
            let open = operations.filter(|(_, operation)| is_open(operation));
            history.loose.extend(open.map(|(place, _)| (place, Position::START)));
        }
    }

    /// Whoever asks from here on is told what is.
    pub const fn tighten(&mut self) {
        self.is_loose = false;
    }

    /// It is a change, and goes by this name, also where the file has begun anew since it was wanted.
    pub fn goes_by(&mut self, id: OperationId, name: Name) {
        let Some(histories) = self.objects.get_mut(&id.object) else { return };
        let mut place = id.place;
        for (number, history) in histories.iter_mut().enumerate().skip(id.history) {
            if number > id.history {
                let Ok(here) = history.open.binary_search(&place) else { return };
                place = here;
            }
            history.names.insert(name, place);
        }
    }

    /// It is done, and this came of it.
    pub fn returned(&mut self, now: TrueTime, id: OperationId, outcome: K::Outcome) {
        let at = self.moments.tick(now);
        let Some(histories) = self.objects.get_mut(&id.object) else { return };
        if id.history + 1 == histories.len() {
            histories[id.history].operations[id.place].returned = Some((at, outcome));
        }
    }

    /// It was a question, and this is the answer. Up to `latest` somebody knows the file to be committed.
    pub fn answered(&mut self, now: TrueTime, id: OperationId, outcome: K::Outcome, latest: Position) {
        self.returned(now, id, outcome);
        let history = self.objects.get_mut(&id.object).and_then(|histories| histories.get_mut(id.history));
        if let Some(known) = history.and_then(|history| history.loose.get_mut(&id.place)) {
            *known = latest;
        }
    }

    /// It was never sent, or changes nothing whatever comes of it.
    pub fn void(&mut self, now: TrueTime, id: OperationId) {
        let (nothing, outcome) = K::nothing();
        self.returned(now, id, outcome);
        let Some(histories) = self.objects.get_mut(&id.object) else { return };
        let operation = &mut histories[id.history].operations[id.place];
        operation.op = nothing;
    }

    /// Something that was told before may be lost: from here on the file is what was recovered.
    pub fn begin_anew(&mut self, now: TrueTime, object: ObjectId, generation: Epoch, start: K::State) {
        let called = self.moments.tick(now);
        let kind = &self.kind;
        let histories = self.objects.entry(object).or_insert_with(|| vec![History::new(kind)]);
        let Some(before) = histories.last() else { return };
        let is_open = |operation: &&Operation<K::Op, K::Outcome>| {
            operation.returned.is_none() && !kind.is_query(&operation.op)
        };
        let open = before.operations.iter().enumerate().filter(|(_, operation)| is_open(operation));
        let (places, operations): (Vec<usize>, Vec<_>) =
            open.map(|(place, open)| (place, Operation { called, ..open.clone() })).unzip();
        let names =
            before.names.iter().filter_map(|(&name, place)| Some((name, places.binary_search(place).ok()?)));
        let names = names.collect();
        histories.push(History {
            generation,
            start,
            operations,
            open: places,
            names,
            ahead: BTreeMap::new(),
            loose: BTreeMap::new(),
        });
    }

    /// How many operations have a result.
    pub fn results(&self) -> usize {
        let histories = self.objects.values().flatten();
        histories.flat_map(|history| &history.operations).filter(|op| op.returned.is_some()).count()
    }

    /// Whether a single copy of each file could have told the same.
    pub fn judge(&self, now: TrueTime, entries: &Entries) -> Result<Judgement, Violation> {
        let mut judgement = Judgement::default();
        for (&object, histories) in &self.objects {
            let mut past = Past::default();
            for history in histories {
                let effects = entries.effects(object, history.generation);
                let wrong = |Wrong { what, operations, entries: at }: Wrong| {
                    let facts = operations.into_iter().flat_map(|place| self.tell(history, place));
                    let facts = facts.chain(at.into_iter().flat_map(|at| entries.story_of(object, at)));
                    Violation::new(now, K::CHECKER, what).about(object).shown_by(facts)
                };
                let bound = history.bind(&self.kind, object, &effects).map_err(wrong)?;
                let since =
                    |at| entries.since(object, at).map_or(self.moments.last(), |at| self.moments.before(at));
                let (bound, void) = history.arrange(&self.kind, bound, &since).map_err(wrong)?;
                let found = history.judge(&self.kind, &bound, &void).map_err(wrong)?;
                let loose = history.judge_loose(&self.kind, &bound, &mut past).map_err(wrong)?;
                judgement = judgement.and(found).and(loose);
            }
        }
        Ok(judgement)
    }

    /// Every event has a moment of its own.
    /// That an operation was called, and what came of it.
    fn tell(&self, history: &History<K>, place: usize) -> [Fact; 2] {
        let Operation { client, called, op, returned } = &history.operations[place];
        let tell = |moment, what| Fact::new(self.moments.time_of(moment), Machines::default(), what);
        let begins = format!("client {client} calls #{place}: {}", self.kind.describe(op, None));
        let (end, what) = match returned {
            Some((at, outcome)) => (
                *at,
                format!("client {client} is told of #{place}: {}", self.kind.describe(op, Some(outcome))),
            ),
            None => (self.moments.last(), format!("client {client} was never told of #{place}")),
        };
        [tell(*called, begins), tell(end, what)]
    }
}

impl<K: Kind> Specification for Begun<'_, K> {
    type State = K::State;
    type Op = K::Op;
    type Outcome = K::Outcome;

    fn start(&self) -> K::State {
        self.1.clone()
    }

    fn step(&self, state: &K::State, op: &K::Op, outcome: Option<&K::Outcome>) -> Option<K::State> {
        self.0.step(state, op, outcome)
    }

    fn describe(&self, op: &K::Op, outcome: Option<&K::Outcome>) -> String {
        self.0.describe(op, outcome)
    }

    fn is_query(&self, op: &K::Op) -> bool {
        self.0.is_query(op)
    }

    fn may_matter(&self, one: &K::Op, other: &K::Op) -> bool {
        self.0.may_matter(one, other)
    }

    fn is_hopeless(&self, state: &K::State, op: (&K::Op, &K::Outcome), others: &[&K::Op]) -> bool {
        self.0.is_hopeless(state, op, others)
    }
}

impl Default for Histories<FileModel> {
    fn default() -> Self {
        Self::new(FileModel::default())
    }
}

#[cfg(test)]
mod tests {
    use base::Seq;
    use node::file::{Op, Position};
    use replication::{Body, Entry, Request};

    use super::*;
    use crate::check::file::{FileOp, FileOutcome};

    type Histories = super::Histories<FileModel>;

    const FILE: ObjectId = ObjectId::new(1, 2);
    const READ: FileOp = FileOp::Read { offset: 0, length: 9 };
    const LATER: Epoch = Epoch { number: 9, node: base::NodeId(1) };

    const fn at(seq: u64) -> Position {
        Position { epoch: LATER, seq: Seq(seq) }
    }

    fn write(byte: u8) -> FileOp {
        FileOp::Write { offset: 0, data: vec![byte] }
    }

    fn data(bytes: &[u8]) -> FileOutcome {
        FileOutcome::Data(bytes.to_vec())
    }

    fn does(histories: &mut Histories, op: FileOp, outcome: FileOutcome) {
        let id = histories.called(TrueTime::ZERO, FILE, 1, op);
        histories.returned(TrueTime::ZERO, id, outcome);
    }

    #[test]
    fn a_stale_read_is_found() {
        let mut histories = Histories::default();
        does(&mut histories, write(1), FileOutcome::Done);
        does(&mut histories, READ, data(&[1]));
        assert_eq!(
            histories.judge(TrueTime::ZERO, &Entries::default()),
            Ok(Judgement { searched: 1, ..Judgement::default() })
        );
        does(&mut histories, write(2), FileOutcome::Done);
        does(&mut histories, READ, data(&[1]));
        let broken = histories.judge(TrueTime::ZERO, &Entries::default()).unwrap_err();
        let shown: Vec<&str> = broken.shown.iter().map(|fact| &*fact.what).collect();
        assert!(shown.len() == 6 && shown[5].contains("read"), "two writes and a read: {shown:#?}");
        assert_eq!(histories.results(), 4);
    }

    #[test]
    fn what_was_lost_is_not_expected_and_what_was_under_way_may_come() {
        for (start, late, found, is_right) in
            [(3, 4, 3, true), (3, 4, 4, true), (3, 4, 1, false), (1, 4, 1, true), (4, 4, 4, true)]
        {
            let mut histories = Histories::default();
            does(&mut histories, write(3), FileOutcome::Done);
            does(&mut histories, write(1), FileOutcome::Done);
            let under_way = histories.called(TrueTime::ZERO, FILE, 2, write(late));
            histories.begin_anew(TrueTime::ZERO, FILE, LATER, [start].as_slice().into());
            histories.returned(TrueTime::ZERO, under_way, FileOutcome::Done);
            does(&mut histories, READ, data(&[found]));
            assert_eq!(
                histories.judge(TrueTime::ZERO, &Entries::default()).is_ok(),
                is_right,
                "{start} {late} {found}"
            );
        }
    }

    #[test]
    fn the_order_of_the_replicas_is_tried_first() {
        let client = ClientId { certificate: 1, program: 1 };
        let (mut histories, mut entries) = (Histories::default(), Entries::default());
        let mut log =
            vec![Entry { at: at(1), lease: 0, body: Body::Barrier { generation: Epoch::default() } }];
        let appended = |number: u8| vec![number; 2];
        for number in 0..24 {
            let id = histories.called(TrueTime::ZERO, FILE, 1, FileOp::Append { data: appended(number) });
            histories.goes_by(id, (client, number.into()));
        }
        let effective = (0..24).rev().filter(|number| number % 3 > 0);
        for number in effective.clone() {
            let request = Request { client, number: number.into(), settled: 1 };
            let change = node::file::Change::Append { data: appended(number).into() };
            let body = Body::Op { request, op: Op { time: base::WallTime::ZERO, under: None, change } };
            log.push(Entry { at: at(1 + log.len() as u64), lease: 0, body });
        }
        let read = FileOp::Read { offset: 0, length: 99 };
        does(&mut histories, read.clone(), data(&effective.flat_map(appended).collect::<Vec<u8>>()));
        let judgement =
            |linearizable, searched| Ok(Judgement { linearizable, searched, ..Judgement::default() });
        assert_eq!(histories.judge(TrueTime::ZERO, &entries), judgement(0, 1));
        let last = log.last().unwrap().at;
        entries.append(TrueTime::ZERO, (LATER.node, FILE), (Seq(0), &log)).unwrap();
        entries.commit(TrueTime::ZERO, (LATER.node, FILE), last).unwrap();
        assert_eq!(histories.judge(TrueTime::ZERO, &entries), judgement(1, 0));
        does(&mut histories, read, data(&[99]));
        assert!(histories.judge(TrueTime::ZERO, &entries).is_err());
    }

    #[test]
    fn what_was_removed_is_not_read_and_begins_anew_with_nothing() {
        use FileOutcome::{Done, Removed};
        let is_right = |outcomes: [FileOutcome; 4]| {
            let mut histories = Histories::default();
            does(&mut histories, write(7), Done);
            does(&mut histories, FileOp::Remove, Done);
            let [gone, changed, begun, read] = outcomes;
            does(&mut histories, READ, gone);
            does(&mut histories, write(8), changed);
            does(&mut histories, FileOp::Begin, begun);
            does(&mut histories, READ, read);
            histories.judge(TrueTime::ZERO, &Entries::default()).is_ok()
        };
        assert!(is_right([Removed, Removed, Done, data(&[])]));
        assert!(!is_right([data(&[7]), Removed, Done, data(&[])]), "it was gone");
        assert!(!is_right([data(&[]), Removed, Done, data(&[])]), "gone is not empty");
        assert!(!is_right([Removed, Done, Done, data(&[])]), "it was written to although it was gone");
        assert!(!is_right([Removed, Removed, Done, data(&[7])]), "what it held came again");
        assert!(!is_right([Removed, Removed, Done, Removed]), "it was begun anew");
    }

    #[test]
    fn what_was_never_sent_explains_nothing() {
        let mut histories = Histories::default();
        let id = histories.called(TrueTime::ZERO, FILE, 1, write(7));
        histories.void(TrueTime::ZERO, id);
        does(&mut histories, READ, data(&[7]));
        assert!(histories.judge(TrueTime::ZERO, &Entries::default()).is_err());
    }
}
