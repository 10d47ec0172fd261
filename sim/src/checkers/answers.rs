//! Answers: what a daemon tells a client of a file it tells under the file's lease, and knowing all that was before.
//!
//! - Whoever answers has the lease, by its own clock, when the answer leaves.
//! - What it knows to be committed goes as far as what anybody knows.

use base::{NodeId, ObjectId};
use replication::Position;

use super::Violation;
use super::entries::Seen;
use super::evidence::Fact;
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
    /// When it was asked.
    pub asked: TrueTime,
}

/// A fact about a file leaves for a client. `latest` is the last entry that anybody knows to be committed, and `owned` says
/// who had the lease last.
pub fn check(
    at: TrueTime,
    object: ObjectId,
    Answering { node, is_leased, committed, asked }: Answering,
    (latest, owned): (Option<Seen>, impl FnOnce() -> Option<Fact>),
) -> Result<(), Violation> {
    let later = latest.filter(|latest| committed < latest.at);
    let (what, shown) = match later {
        _ if !is_leased => (format!("{node:?} answers without the lease"), owned()),
        Some(later) => {
            let Seen { at: latest, by, since } = later;
            let what = format!(
                "{node:?} answers knowing {committed:?} to be committed, and somebody knows {latest:?}"
            );
            (what, Some(Fact::new(since, by, format!("{by:?} knows {latest:?} to be committed"))))
        }
        None => return Ok(()),
    };
    let facts = [
        Fact::new(asked, node, format!("a client asks {node:?}")),
        Fact::new(at, node, format!("{node:?} answers; leased: {is_leased}, committed: {committed:?}")),
    ];
    Err(Violation::new(at, "answers", what).about(object).shown_by(facts.into_iter().chain(shown)))
}

#[cfg(test)]
mod tests {
    use base::{Epoch, Seq};

    use super::*;

    #[test]
    fn an_answer_needs_the_lease_and_everything_that_is_committed() {
        let at = |number, seq| Position { epoch: Epoch { number, node: NodeId(1) }, seq: Seq(seq) };
        let answer = |is_leased, committed, latest| {
            let answering = Answering { node: NodeId(1), is_leased, committed, asked: TrueTime::ZERO };
            let latest = Seen { at: latest, by: NodeId(2), since: TrueTime::from_micros(1) };
            let owned = || Some(Fact::new(TrueTime::from_micros(2), NodeId(2), "n2 has the lease".into()));
            check(TrueTime::from_micros(9), ObjectId::new(1, 2), answering, (Some(latest), owned))
        };
        assert_eq!(answer(true, at(1, 5), at(1, 5)), Ok(()));
        assert_eq!(
            answer(true, at(2, 5), at(1, 9)),
            Ok(()),
            "a later tenure has recovered all that there is"
        );
        let shown = |answer: Result<(), Violation>| {
            answer.unwrap_err().shown.iter().map(|fact| fact.at.as_micros()).collect::<Vec<_>>()
        };
        assert_eq!(shown(answer(false, at(1, 5), at(1, 5))), [0, 2, 9], "asked, leased by another, answered");
        assert_eq!(
            shown(answer(true, at(1, 4), at(1, 5))),
            [0, 1, 9],
            "asked, committed by another, answered"
        );
    }
}
