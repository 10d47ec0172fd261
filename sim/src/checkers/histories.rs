//! Histories: what users did to files and were told, and whether a single copy could have told them the same.
//!
//! Where what was only written may be lost, the history of a file ends, and another begins with what was recovered. A
//! change that had no result by then may have taken effect before or may yet do so: it is unknown to both.
//!
//! The order in which replicas committed the changes is tried first. Only if it does not explain all, others are looked for;
//! and if none is found in time, that is a violation, too.
//!
//! While clocks are wrong ([`loosen`](Histories::loosen)) a question may be answered from the past: it has its place in
//! no order, and the rest has one as ever.

use std::collections::BTreeMap;

use base::{ClientId, Epoch, ObjectId};

use node::file::Position;

use super::Violation;
use super::entries::Entries;
use super::evidence::{Fact, Machines};
use super::past::Past;
use crate::TrueTime;
use crate::check::file::{Content, FileModel, FileOp, FileOutcome};
use crate::check::{Moment, Operation, Specification, Verdict, check, misfit};

/// No search may take more steps. Most need less than a tenth of that.
const STEPS_MAX: u64 = 300_000;
/// No file that is checked is longer.
const SIZE_MAX: usize = 1 << 20;

/// The histories of all files.
#[derive(Debug, Default)]
pub struct Histories {
    files: BTreeMap<ObjectId, Vec<History>>,
    /// When which moment was.
    moments: Vec<TrueTime>,
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
#[derive(Clone, Debug, Default)]
struct History {
    generation: Epoch,
    start: Content,
    operations: Vec<Operation<FileOp, FileOutcome>>,
    /// By what name a change goes at the daemons.
    names: BTreeMap<Name, usize>,
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

impl History {
    /// Whether a single copy could have told the same, but for what was answered from the past.
    fn judge(&self, committed: &[(Position, Name)]) -> Result<Judgement, Wrong> {
        let begun = Begun(&self.start);
        let (operations, places) = self.strict();
        let place = |name: &Name| places.binary_search(self.names.get(name)?).ok();
        let order: Vec<usize> = committed.iter().filter_map(|(_, name)| place(name)).collect();
        let Some(misfit) = misfit(&begun, &operations, &order) else {
            return Ok(Judgement { linearizable: 1, ..Judgement::default() });
        };
        let found = match check(&begun, &operations, STEPS_MAX) {
            Verdict::Linearizable => return Ok(Judgement { searched: 1, ..Judgement::default() }),
            Verdict::Undecided => (self.describe(), vec![misfit]),
            Verdict::Violation(found) => (found.headline(), found.operations),
        };
        let (found, shown) = found;
        let shown = shown.into_iter().map(|place| places[place]).collect();
        Err((format!("a file that began with {} bytes: {found}", self.start.bytes.len()), shown))
    }

    /// All that must have an order, and where each stands in the history. What found no space has changed nothing, and says nothing.
    fn strict(&self) -> (Vec<Operation<FileOp, FileOutcome>>, Vec<usize>) {
        let all = self.operations.iter().enumerate();
        let is_void = |op: &Operation<_, _>| matches!(op.returned, Some((_, FileOutcome::NoSpace)));
        let strict = all.filter(|(place, op)| !self.loose.contains_key(place) && !is_void(op));
        strict.map(|(place, operation)| (operation.clone(), place)).unzip()
    }

    /// Whether what was answered while clocks were wrong was so once. What this generation was is added to the past.
    fn judge_loose(&self, committed: &[(Position, Name)], past: &mut Past) -> Result<Judgement, Wrong> {
        let mut judgement = Judgement::default();
        past.begin(&self.start);
        let place = |name: &Name| self.names.get(name).copied();
        let changes = committed.iter().filter_map(|(at, name)| Some((*at, place(name)?)));
        let changes: Vec<(Position, usize)> = changes.collect();
        changes.iter().for_each(|&(at, place)| past.follow(at, &self.operations[place].op));
        for (&place, &known) in &self.loose {
            let question = &self.operations[place];
            let Some((_, outcome)) = &question.returned else { continue };
            let is_owed = |change: usize| {
                let returned = self.operations[change].returned.as_ref();
                returned.is_some_and(|(at, _)| *at < question.called)
            };
            let owed = changes.iter().rposition(|&(_, change)| is_owed(change)).map_or(0, |last| last + 1);
            judgement.loose += 1;
            match past.find((&question.op, outcome), known) {
                Some(changes) => judgement.stale += u64::from(changes < owed),
                None => {
                    let what = format!("the file was never so, up to {known:?}, though clocks were wrong");
                    return Err((what, vec![place]));
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

/// By what name a change goes at the daemons.
type Name = (ClientId, u64);

/// What is wrong, and with which operations.
type Wrong = (String, Vec<usize>);

/// A file that holds something at the beginning.
#[derive(Debug)]
struct Begun<'a>(&'a Content);

pub(super) const MODEL: FileModel = FileModel { size_max: SIZE_MAX };

impl Histories {
    /// Somebody wants this done.
    pub fn called(&mut self, now: TrueTime, object: ObjectId, client: u64, op: FileOp) -> OperationId {
        let called = self.tick(now);
        let histories = self.files.entry(object).or_insert_with(|| vec![History::default()]);
        let history = histories.len() - 1;
        let place = histories[history].operations.len();
        if self.is_loose && MODEL.is_query(&op) {
            histories[history].loose.insert(place, Position::START);
        }
        histories[history].operations.push(Operation { client, called, op, returned: None });
        OperationId { object, history, place }
    }

    /// From here on a question may be answered from the past, and so may those that are open.
    pub fn loosen(&mut self) {
        self.is_loose = true;
        for history in self.files.values_mut().filter_map(|histories| histories.last_mut()) {
            let is_open = |operation: &Operation<FileOp, FileOutcome>| {
                operation.returned.is_none() && MODEL.is_query(&operation.op)
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

    /// It is a change, and goes by this name.
    pub fn goes_by(&mut self, id: OperationId, name: Name) {
        if let Some(history) = self.files.get_mut(&id.object).and_then(|all| all.get_mut(id.history)) {
            history.names.insert(name, id.place);
        }
    }

    /// It is done, and this came of it.
    pub fn returned(&mut self, now: TrueTime, id: OperationId, outcome: FileOutcome) {
        let at = self.tick(now);
        let Some(histories) = self.files.get_mut(&id.object) else { return };
        if id.history + 1 == histories.len() {
            histories[id.history].operations[id.place].returned = Some((at, outcome));
        }
    }

    /// It was a question, and this is the answer. Up to `latest` somebody knows the file to be committed.
    pub fn answered(&mut self, now: TrueTime, id: OperationId, outcome: FileOutcome, latest: Position) {
        self.returned(now, id, outcome);
        let history = self.files.get_mut(&id.object).and_then(|histories| histories.get_mut(id.history));
        if let Some(known) = history.and_then(|history| history.loose.get_mut(&id.place)) {
            *known = latest;
        }
    }

    /// It was never sent, or changes nothing whatever comes of it.
    pub fn void(&mut self, now: TrueTime, id: OperationId) {
        self.returned(now, id, FileOutcome::Done);
        let Some(histories) = self.files.get_mut(&id.object) else { return };
        let operation = &mut histories[id.history].operations[id.place];
        operation.op = FileOp::Nothing;
    }

    /// Something that was told before may be lost: from here on the file is what was recovered.
    pub fn begin_anew(&mut self, now: TrueTime, object: ObjectId, generation: Epoch, start: Content) {
        let called = self.tick(now);
        let histories = self.files.entry(object).or_insert_with(|| vec![History::default()]);
        let Some(before) = histories.last() else { return };
        let is_open = |operation: &&Operation<FileOp, FileOutcome>| {
            operation.returned.is_none() && !MODEL.is_query(&operation.op)
        };
        let open = before.operations.iter().enumerate().filter(|(_, operation)| is_open(operation));
        let (places, operations): (Vec<usize>, Vec<_>) =
            open.map(|(place, open)| (place, Operation { called, ..open.clone() })).unzip();
        let names =
            before.names.iter().filter_map(|(&name, place)| Some((name, places.binary_search(place).ok()?)));
        let names = names.collect();
        histories.push(History { generation, start, operations, names, loose: BTreeMap::new() });
    }

    /// How many operations have a result.
    pub fn results(&self) -> usize {
        let histories = self.files.values().flatten();
        histories.flat_map(|history| &history.operations).filter(|op| op.returned.is_some()).count()
    }

    /// Whether a single copy of each file could have told the same.
    pub fn judge(&self, now: TrueTime, entries: &Entries) -> Result<Judgement, Violation> {
        let mut judgement = Judgement::default();
        for (&object, histories) in &self.files {
            let mut past = Past::default();
            for history in histories {
                let committed = entries.took_effect(object, history.generation);
                let wrong = |(what, places): Wrong| {
                    let facts = places.into_iter().flat_map(|place| self.tell(history, place));
                    Violation::new(now, "linearizability", what).about(object).shown_by(facts)
                };
                let found = history.judge(&committed).map_err(wrong)?;
                let loose = history.judge_loose(&committed, &mut past).map_err(wrong)?;
                judgement = judgement.and(found).and(loose);
            }
        }
        Ok(judgement)
    }

    /// Every event has a moment of its own.
    fn tick(&mut self, now: TrueTime) -> Moment {
        self.moments.push(now);
        Moment(self.moments.len() as u64)
    }

    fn time_of(&self, moment: Moment) -> TrueTime {
        let place = usize::try_from(moment.0).ok().and_then(|moment| moment.checked_sub(1));
        place.and_then(|place| self.moments.get(place)).copied().unwrap_or_default()
    }

    /// That an operation was called, and what came of it.
    fn tell(&self, history: &History, place: usize) -> [Fact; 2] {
        let Operation { client, called, op, returned } = &history.operations[place];
        let tell = |moment, what| Fact::new(self.time_of(moment), Machines::default(), what);
        let begins = format!("client {client} calls #{place}: {}", MODEL.describe(op, None));
        let (end, what) = match returned {
            Some((at, outcome)) => {
                (*at, format!("client {client} is told of #{place}: {}", MODEL.describe(op, Some(outcome))))
            }
            None => {
                (Moment(self.moments.len() as u64), format!("client {client} was never told of #{place}"))
            }
        };
        [tell(*called, begins), tell(end, what)]
    }
}

impl Specification for Begun<'_> {
    type State = Content;
    type Op = FileOp;
    type Outcome = FileOutcome;

    fn start(&self) -> Content {
        self.0.clone()
    }

    fn step(&self, state: &Content, op: &FileOp, outcome: Option<&FileOutcome>) -> Option<Content> {
        MODEL.step(state, op, outcome)
    }

    fn describe(&self, op: &FileOp, outcome: Option<&FileOutcome>) -> String {
        MODEL.describe(op, outcome)
    }

    fn is_query(&self, op: &FileOp) -> bool {
        MODEL.is_query(op)
    }

    fn may_matter(&self, one: &FileOp, other: &FileOp) -> bool {
        MODEL.may_matter(one, other)
    }

    fn is_hopeless(&self, state: &Content, op: (&FileOp, &FileOutcome), others: &[&FileOp]) -> bool {
        MODEL.is_hopeless(state, op, others)
    }
}

#[cfg(test)]
mod tests {
    use base::Seq;
    use node::file::{Op, Position};
    use replication::{Body, Entry, Request};

    use super::*;

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
            let body = Body::Op { request, op: Op { time: base::WallTime::ZERO, change } };
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
