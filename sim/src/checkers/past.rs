//! The past of a file: all that it was, as replicas committed it. An answer that came too late, or from somebody whose time had
//! passed, is at least one of that: it shows nothing that was never committed, nothing half done, and nothing that nobody knew yet.

use node::file::Position;

use super::kinds::Kind;

/// What a file was, in the order of its generations.
#[derive(Debug)]
pub(super) struct Past<S> {
    /// What it was before the present generation.
    before: Vec<S>,
    /// What it was in the present one, behind which change.
    present: Vec<(Position, S)>,
}

impl<S> Default for Past<S> {
    fn default() -> Self {
        Self { before: Vec::new(), present: Vec::new() }
    }
}

impl<S: Clone> Past<S> {
    /// A generation begins with what was recovered.
    pub(super) fn begin(&mut self, recovered: &S) {
        self.before.extend(self.present.drain(..).map(|(_, state)| state));
        self.present.push((Position::START, recovered.clone()));
    }

    /// A change takes effect.
    pub(super) fn follow<K: Kind<State = S>>(&mut self, kind: &K, at: Position, change: &K::Op) {
        let state = self.present.last().and_then(|(_, state)| kind.step(state, change, None));
        self.present.extend(state.map(|state| (at, state)));
    }

    /// After how many changes of the present generation an answer was right, if it ever was: the latest of them that was known to
    /// be committed.
    pub(super) fn find<K: Kind<State = S>>(
        &self,
        kind: &K,
        (question, answer): (&K::Op, &K::Outcome),
        known: Position,
    ) -> Option<usize> {
        let is_right = |state: &S| kind.step(state, question, Some(answer)).is_some();
        let present = self.present.iter().rposition(|(at, state)| at.seq <= known.seq && is_right(state));
        present.or_else(|| self.before.iter().any(is_right).then_some(0))
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, NodeId, Seq};

    use super::*;
    use crate::check::file::{Content, FileModel, FileOp, FileOutcome};

    const fn at(seq: u64) -> Position {
        Position { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(seq) }
    }

    /// After how many changes four bytes were read.
    fn finds(past: &Past<Content>, bytes: &[u8], known: u64) -> Option<usize> {
        let read = FileOp::Read { offset: 0, length: 4 };
        past.find(&FileModel::default(), (&read, &FileOutcome::Data(bytes.to_vec())), at(known))
    }

    #[test]
    fn an_answer_is_of_some_committed_state() {
        let mut past = Past::default();
        past.begin(&Content::default());
        past.follow(&FileModel::default(), at(2), &FileOp::Write { offset: 0, data: b"ab".to_vec() });
        past.follow(&FileModel::default(), at(5), &FileOp::Write { offset: 0, data: b"cd".to_vec() });
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
        past.follow(&FileModel::default(), at(2), &FileOp::Append { data: b"lost".to_vec() });
        past.begin(&b"old".as_slice().into());
        assert_eq!([finds(&past, b"lost", 9), finds(&past, b"old", 9)], [Some(0); 2]);
    }
}
