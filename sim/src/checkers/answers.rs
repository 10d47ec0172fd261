//! Answers: what a daemon tells a client of a file it tells under the file's lease, and knowing all that was before.
//!
//! - Whoever answers has the lease, by its own clock, when the answer leaves.
//! - What it knows to be committed goes as far as what anybody knows.

use base::{NodeId, ObjectId};
use replication::Position;

use super::Violation;
use crate::TrueTime;

/// Who answers, and what it knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answering {
    /// Who.
    pub node: NodeId,
    /// Whether it has the lease.
    pub is_leased: bool,
    /// The last entry that it knows to be committed.
    pub committed: Position,
}

/// A fact about a file leaves for a client. `latest` is the last entry that anybody knows to be committed.
pub fn check(
    at: TrueTime,
    object: ObjectId,
    Answering { node, is_leased, committed }: Answering,
    latest: Position,
) -> Result<(), Violation> {
    let what = if !is_leased {
        format!("{node:?} answers without the lease")
    } else if committed < latest {
        format!("{node:?} answers knowing {committed:?} to be committed, and somebody knows {latest:?}")
    } else {
        return Ok(());
    };
    Err(Violation { at, cell: Some(object), checker: "answers", what })
}

#[cfg(test)]
mod tests {
    use base::{Epoch, Seq};

    use super::*;

    #[test]
    fn an_answer_needs_the_lease_and_everything_that_is_committed() {
        let at = |number, seq| Position { epoch: Epoch { number, node: NodeId(1) }, seq: Seq(seq) };
        let answer = |is_leased, committed, latest| {
            let answering = Answering { node: NodeId(1), is_leased, committed };
            check(TrueTime::ZERO, ObjectId::new(1, 2), answering, latest)
        };
        assert_eq!(answer(true, at(1, 5), at(1, 5)), Ok(()));
        assert_eq!(
            answer(true, at(2, 5), at(1, 9)),
            Ok(()),
            "a later tenure has recovered all that there is"
        );
        assert_eq!(answer(false, at(1, 5), at(1, 5)).unwrap_err().checker, "answers");
        assert!(answer(true, at(1, 4), at(1, 5)).is_err());
    }
}
