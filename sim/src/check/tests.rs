mod brute;
mod long;
mod stories;
mod witness;

use super::file::{Content, FileModel, FileOp, FileOutcome};
use super::{Moment, Operation, Specification, Verdict, Violation, check};

const MODEL: FileModel = FileModel { size_max: 64 };
const STEPS_MAX: u64 = 1_000_000;

type FileOperation = Operation<FileOp, FileOutcome>;

/// An operation between two moments.
fn known(called: u64, returned: u64, op: FileOp, outcome: FileOutcome) -> FileOperation {
    let returned = Some((Moment(returned), outcome));
    Operation { client: 1, called: Moment(called), op, returned }
}

/// An operation of unknown outcome.
fn unknown(called: u64, op: FileOp) -> FileOperation {
    Operation { client: 2, called: Moment(called), op, returned: None }
}

fn write(offset: usize, data: &[u8]) -> FileOp {
    FileOp::Write { offset, data: data.to_vec() }
}

fn append(data: &[u8]) -> FileOp {
    FileOp::Append { data: data.to_vec() }
}

fn data(data: &[u8]) -> FileOutcome {
    FileOutcome::Data(data.to_vec())
}

/// Reads everything.
const READ: FileOp = FileOp::Read { offset: 0, length: 64 };
const DONE: FileOutcome = FileOutcome::Done;

/// The file model without its hints.
struct Plain(FileModel);

impl Specification for Plain {
    type State = Content;
    type Op = FileOp;
    type Outcome = FileOutcome;

    fn start(&self) -> Content {
        self.0.start()
    }

    fn step(&self, state: &Content, op: &FileOp, outcome: Option<&FileOutcome>) -> Option<Content> {
        self.0.step(state, op, outcome)
    }

    fn describe(&self, op: &FileOp, outcome: Option<&FileOutcome>) -> String {
        self.0.describe(op, outcome)
    }
}
