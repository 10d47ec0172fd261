//! Whether what users were told of a file has an order.

use crate::check::file::{Content, FileModel, FileOp, FileOutcome};
use crate::check::{Operation, Specification, Verdict, check, misfit};

/// No search may take more steps.
const STEPS_MAX: u64 = 300_000;

/// What is wrong, and with which operations.
pub type Wrong = (String, Vec<usize>);

/// What has to have an order.
pub struct Part {
    /// They, and where they stand among all.
    pub operations: Vec<Operation<FileOp, FileOutcome>>,
    /// See there.
    pub places: Vec<usize>,
    /// That of the changes, as it should be.
    pub order: Vec<usize>,
}

impl Part {
    /// Whether there is an order, if the file is this at first; and whether it had to be looked for.
    pub fn judge(self, start: &Content) -> Result<bool, Wrong> {
        let begun = Begun { model: FileModel::default(), start };
        let Some(misfit) = misfit(&begun, &self.operations, &self.order) else { return Ok(false) };
        let (what, shown) = match check(&begun, &self.operations, STEPS_MAX) {
            Verdict::Linearizable => return Ok(true),
            Verdict::Undecided => (
                format!("no order of {} operations was found in {STEPS_MAX} steps", self.operations.len()),
                vec![misfit],
            ),
            Verdict::Violation(found) => (found.headline(), found.operations),
        };
        let start = start.bytes.len();
        Err((
            format!("of a file that began with {start} bytes {what}"),
            shown.into_iter().map(|index| self.places[index]).collect(),
        ))
    }
}

/// A file that is like this at first.
struct Begun<'a> {
    model: FileModel,
    start: &'a Content,
}

impl Specification for Begun<'_> {
    type State = Content;
    type Op = FileOp;
    type Outcome = FileOutcome;

    fn start(&self) -> Content {
        self.start.clone()
    }

    fn step(&self, state: &Content, op: &FileOp, outcome: Option<&FileOutcome>) -> Option<Content> {
        self.model.step(state, op, outcome)
    }

    fn describe(&self, op: &FileOp, outcome: Option<&FileOutcome>) -> String {
        self.model.describe(op, outcome)
    }

    fn is_query(&self, op: &FileOp) -> bool {
        self.model.is_query(op)
    }

    fn may_matter(&self, one: &FileOp, other: &FileOp) -> bool {
        self.model.may_matter(one, other)
    }

    fn is_hopeless(&self, state: &Content, op: (&FileOp, &FileOutcome), others: &[&FileOp]) -> bool {
        self.model.is_hopeless(state, op, others)
    }
}
