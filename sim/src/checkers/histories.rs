//! Histories: what users did to files and were told, and whether a single copy could have told them the same.
//!
//! Where what was only written may be lost, the history of a file ends, and another begins with what was recovered. A
//! change that had no result by then may have taken effect before or may yet do so: it is unknown to both.

use std::collections::BTreeMap;

use base::ObjectId;

use super::Violation;
use crate::TrueTime;
use crate::check::file::{FileModel, FileOp, FileOutcome};
use crate::check::{Moment, Operation, Specification, Verdict, check};

/// No search may take more steps. Most need less than a tenth of that.
const STEPS_MAX: u64 = 300_000;
/// No file that is checked is longer.
const SIZE_MAX: usize = 1 << 20;

/// The histories of all files.
#[derive(Debug, Default)]
pub struct Histories {
    files: BTreeMap<ObjectId, Vec<History>>,
    now: u64,
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
    start: Vec<u8>,
    operations: Vec<Operation<FileOp, FileOutcome>>,
}

/// What the histories were found to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Judgement {
    /// Histories with an order.
    pub linearizable: u64,
    /// Histories for which no order was found in time, nor that there is none.
    pub undecided: u64,
}

/// A file that holds something at the beginning.
#[derive(Debug)]
struct Begun<'a>(&'a [u8]);

const MODEL: FileModel = FileModel { size_max: SIZE_MAX };

impl Histories {
    /// Somebody wants this done.
    pub fn called(&mut self, object: ObjectId, client: u64, op: FileOp) -> OperationId {
        let called = self.tick();
        let histories = self.files.entry(object).or_insert_with(|| vec![History::default()]);
        let history = histories.len() - 1;
        let operations = &mut histories[history].operations;
        operations.push(Operation { client, called, op, returned: None });
        OperationId { object, history, place: operations.len() - 1 }
    }

    /// It is done, and this came of it.
    pub fn returned(&mut self, id: OperationId, outcome: FileOutcome) {
        let at = self.tick();
        let Some(histories) = self.files.get_mut(&id.object) else { return };
        if id.history + 1 == histories.len() {
            histories[id.history].operations[id.place].returned = Some((at, outcome));
        }
    }

    /// It was never sent, or changes nothing whatever comes of it.
    pub fn void(&mut self, id: OperationId) {
        self.returned(id, FileOutcome::Data(Vec::new()));
        let Some(histories) = self.files.get_mut(&id.object) else { return };
        let operation = &mut histories[id.history].operations[id.place];
        operation.op = FileOp::Read { offset: 0, length: 0 };
    }

    /// Something that was told before may be lost: from here on the file is what was recovered.
    pub fn begin_anew(&mut self, object: ObjectId, start: Vec<u8>) {
        let called = self.tick();
        let histories = self.files.entry(object).or_insert_with(|| vec![History::default()]);
        let Some(before) = histories.last() else { return };
        let is_open = |operation: &&Operation<FileOp, FileOutcome>| {
            operation.returned.is_none() && !MODEL.is_query(&operation.op)
        };
        let open = before.operations.iter().filter(is_open);
        let operations = open.map(|open| Operation { called, ..open.clone() }).collect();
        histories.push(History { start, operations });
    }

    /// How many operations have a result.
    pub fn results(&self) -> usize {
        let histories = self.files.values().flatten();
        histories.flat_map(|history| &history.operations).filter(|op| op.returned.is_some()).count()
    }

    /// Whether a single copy of each file could have told the same.
    pub fn judge(&self, now: TrueTime) -> Result<Judgement, Violation> {
        let mut judgement = Judgement::default();
        for (&object, histories) in &self.files {
            for history in histories {
                let operations: Vec<_> =
                    history.operations.iter().filter(|op| !is_open_query(op)).cloned().collect();
                match check(&Begun(&history.start), &operations, STEPS_MAX) {
                    Verdict::Linearizable => judgement.linearizable += 1,
                    Verdict::Undecided => judgement.undecided += 1,
                    Verdict::Violation(found) => {
                        let what = format!("a file that began with {} bytes: {found}", history.start.len());
                        let checker = "linearizability";
                        return Err(Violation { at: now, cell: Some(object), checker, what });
                    }
                }
            }
        }
        Ok(judgement)
    }

    /// Every event has a moment of its own.
    const fn tick(&mut self) -> Moment {
        self.now += 1;
        Moment(self.now)
    }
}

/// Nobody knows what it would have told, and nobody cares.
fn is_open_query(operation: &Operation<FileOp, FileOutcome>) -> bool {
    operation.returned.is_none() && MODEL.is_query(&operation.op)
}

impl Specification for Begun<'_> {
    type State = Vec<u8>;
    type Op = FileOp;
    type Outcome = FileOutcome;

    fn start(&self) -> Vec<u8> {
        self.0.to_vec()
    }

    fn step(&self, state: &Vec<u8>, op: &FileOp, outcome: Option<&FileOutcome>) -> Option<Vec<u8>> {
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

    fn is_hopeless(&self, state: &Vec<u8>, op: (&FileOp, &FileOutcome), others: &[&FileOp]) -> bool {
        MODEL.is_hopeless(state, op, others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: ObjectId = ObjectId::new(1, 2);
    const READ: FileOp = FileOp::Read { offset: 0, length: 9 };

    fn write(byte: u8) -> FileOp {
        FileOp::Write { offset: 0, data: vec![byte] }
    }

    fn data(bytes: &[u8]) -> FileOutcome {
        FileOutcome::Data(bytes.to_vec())
    }

    fn does(histories: &mut Histories, op: FileOp, outcome: FileOutcome) {
        let id = histories.called(FILE, 1, op);
        histories.returned(id, outcome);
    }

    #[test]
    fn a_stale_read_is_found() {
        let mut histories = Histories::default();
        does(&mut histories, write(1), FileOutcome::Done);
        does(&mut histories, READ, data(&[1]));
        assert_eq!(histories.judge(TrueTime::ZERO), Ok(Judgement { linearizable: 1, undecided: 0 }));
        does(&mut histories, write(2), FileOutcome::Done);
        does(&mut histories, READ, data(&[1]));
        assert!(histories.judge(TrueTime::ZERO).is_err());
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
            let under_way = histories.called(FILE, 2, write(late));
            histories.begin_anew(FILE, vec![start]);
            histories.returned(under_way, FileOutcome::Done);
            does(&mut histories, READ, data(&[found]));
            assert_eq!(histories.judge(TrueTime::ZERO).is_ok(), is_right, "{start} {late} {found}");
        }
    }

    #[test]
    fn what_was_never_sent_explains_nothing() {
        let mut histories = Histories::default();
        let id = histories.called(FILE, 1, write(7));
        histories.void(id);
        does(&mut histories, READ, data(&[7]));
        assert!(histories.judge(TrueTime::ZERO).is_err());
    }
}
