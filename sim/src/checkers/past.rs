//! The past of a file: all that it was, as replicas committed it. An answer that came too late, or from somebody whose time had
//! passed, is at least one of that: it shows nothing that was never committed, nothing half done, and nothing that nobody knew yet.

use node::file::Position;

use super::histories::MODEL;
use crate::check::Specification;
use crate::check::file::{Content, FileOp, FileOutcome};

/// What a file was, in the order of its generations.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// What it was before the present generation.
    before: Vec<Content>,
    /// What it was in the present one, behind which change.
    present: Vec<(Position, Content)>,
}

impl Past {
    /// A generation begins with what was recovered.
    pub(super) fn begin(&mut self, recovered: &Content) {
        self.before.extend(self.present.drain(..).map(|(_, state)| state));
        self.present.push((Position::START, recovered.clone()));
    }

    /// A change takes effect.
    pub(super) fn follow(&mut self, at: Position, change: &FileOp) {
        let state = self.present.last().and_then(|(_, state)| MODEL.step(state, change, None));
        self.present.extend(state.map(|state| (at, state)));
    }

    /// After how many changes of the present generation an answer was right, if it ever was: the latest of them that was known to
    /// be committed.
    pub(super) fn find(&self, (question, answer): (&FileOp, &FileOutcome), known: Position) -> Option<usize> {
        let is_right = |state: &Content| MODEL.step(state, question, Some(answer)).is_some();
        let present = self.present.iter().rposition(|(at, state)| at.seq <= known.seq && is_right(state));
        present.or_else(|| self.before.iter().any(is_right).then_some(0))
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, NodeId, Seq};

    use super::*;

    const fn at(seq: u64) -> Position {
        Position { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(seq) }
    }

    /// After how many changes four bytes were read.
    fn finds(past: &Past, bytes: &[u8], known: u64) -> Option<usize> {
        let read = FileOp::Read { offset: 0, length: 4 };
        past.find((&read, &FileOutcome::Data(bytes.to_vec())), at(known))
    }

    #[test]
    fn an_answer_is_of_some_committed_state() {
        let mut past = Past::default();
        past.begin(&Content::default());
        past.follow(at(2), &FileOp::Write { offset: 0, data: b"ab".to_vec() });
        past.follow(at(5), &FileOp::Write { offset: 0, data: b"cd".to_vec() });
        assert_eq!(
            [finds(&past, b"", 9), finds(&past, b"ab", 9), finds(&past, b"cd", 9)],
            [0, 1, 2].map(Some)
        );
        assert_eq!(finds(&past, b"cb", 9), None, "half of each");
        assert_eq!(finds(&past, b"cd", 4), None, "nobody knew that then");
        assert_eq!(finds(&past, b"xy", 9), None, "nobody wrote that");
    }

    #[test]
    fn what_was_lost_was_so_once() {
        let mut past = Past::default();
        past.begin(&Content::default());
        past.follow(at(2), &FileOp::Append { data: b"lost".to_vec() });
        past.begin(&b"old".as_slice().into());
        assert_eq!([finds(&past, b"lost", 9), finds(&past, b"old", 9)], [Some(0); 2]);
    }
}
