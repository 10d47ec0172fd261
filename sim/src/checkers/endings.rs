//! Endings: clients that are over for a file, because its table of clients was full and they were silent.
//!
//! - Nobody is declared over who was heard of lately: who was answered within `client_silent`, by whichever daemon.
//! - Nobody is who has a session at the daemon that declares it.
//! - Who is told that it is over is: an entry says so, and that is committed.
//! - From that entry on nothing takes effect that it asks for. What it asked before may have, once.

use std::collections::BTreeMap;

use base::{ClientId, NodeId, ObjectId, Span};

use super::Violation;
use super::evidence::Fact;
use crate::TrueTime;

/// Watches the ends of clients.
#[derive(Debug, Default)]
pub struct Endings {
    /// When a client last asked for a change of a file that it was told has taken effect.
    heard: BTreeMap<(ObjectId, ClientId), (NodeId, TrueTime)>,
    /// Who was declared over, by whom, and when.
    declared: BTreeMap<(ObjectId, ClientId), (NodeId, TrueTime)>,
    /// How many were declared over.
    pub count: u64,
}

/// A client's part of a file.
pub type Part = (ObjectId, ClientId);

impl Endings {
    /// A daemon tells a client that a change has taken effect, for which it asked then.
    pub fn heard(&mut self, asked: TrueTime, part: Part, by: NodeId) {
        let heard = self.heard.entry(part).or_insert((by, asked));
        if heard.1 < asked {
            *heard = (by, asked);
        }
    }

    /// A daemon declares a client over. It may do so of whom nobody has heard for `silent` at least.
    pub fn declared(
        &mut self,
        now: TrueTime,
        part: Part,
        by: NodeId,
        (silent, has_session): (Span, bool),
    ) -> Result<(), Violation> {
        self.count += 1;
        self.declared.insert(part, (by, now));
        let client = part.1;
        let declares = Fact::new(now, by, format!("{by:?} declares {client:?} over"));
        if has_session {
            let what = format!("{by:?} declares {client:?} over, which has a session there");
            let has = Fact::new(now, client, format!("{client:?} has a session at {by:?}"));
            return Err(violation(now, part, what).shown_by([has, declares]));
        }
        match self.heard.get(&part) {
            Some(&(_, since)) if now.since(since) < silent => {
                let what = format!("{by:?} declares {client:?} over, which was not silent for {silent}");
                Err(violation(now, part, what).shown_by(self.last_heard(part).into_iter().chain([declares])))
            }
            _ => Ok(()),
        }
    }

    /// A client is told that it is over. It is if `end` says so, which was committed.
    pub fn told(&self, now: TrueTime, part: Part, by: NodeId, end: Option<Fact>) -> Result<(), Violation> {
        if end.is_some() {
            return Ok(());
        }
        let what = format!("{:?} is told that it is over, and no entry says so", part.1);
        let told = Fact::new(now, by, format!("{by:?} tells {:?} that it is over", part.1));
        let facts = self.last_heard(part).into_iter().chain(self.declaration(part)).chain([told]);
        Err(violation(now, part, what).shown_by(facts))
    }

    /// A client is told that a change has taken effect. If it was over before that, `end` says so.
    pub fn took_effect(
        &self,
        now: TrueTime,
        part: Part,
        (by, end): (NodeId, Option<Fact>),
        story: impl FnOnce() -> Vec<Fact>,
    ) -> Result<(), Violation> {
        let Some(end) = end else { return Ok(()) };
        let what = format!("a change of {:?} took effect, which was over by then", part.1);
        let told = Fact::new(now, by, format!("{by:?} tells {:?} that its change has taken effect", part.1));
        let facts = self.declaration(part).into_iter().chain([end]).chain(story()).chain([told]);
        Err(violation(now, part, what).shown_by(facts))
    }

    fn last_heard(&self, part: Part) -> Option<Fact> {
        let &(node, at) = self.heard.get(&part)?;
        let what = format!("{:?} asks {node:?} for a change, and is told that it has taken effect", part.1);
        Some(Fact::new(at, part.1, what))
    }

    fn declaration(&self, part: Part) -> Option<Fact> {
        let &(node, at) = self.declared.get(&part)?;
        Some(Fact::new(at, node, format!("{node:?} declares {:?} over", part.1)))
    }
}

fn violation(at: TrueTime, (object, _): Part, what: String) -> Violation {
    Violation::new(at, "endings", what).about(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: Part = (ObjectId::new(1, 2), ClientId { certificate: 5, program: 1 });
    const NODE: NodeId = NodeId(1);
    const SILENT: Span = Span::from_millis(10);

    const fn at(millis: u64) -> TrueTime {
        TrueTime::from_micros(millis * 1_000)
    }

    fn times(broken: Result<(), Violation>) -> Vec<u64> {
        let broken = broken.unwrap_err();
        assert_eq!(broken.checker, "endings");
        broken.shown.iter().map(|fact| fact.at.as_micros() / 1_000).collect()
    }

    #[test]
    fn declaring_over_whom_somebody_heard_of_lately_breaks_it() {
        let mut endings = Endings::default();
        assert_eq!(endings.declared(at(1), PART, NODE, (SILENT, false)), Ok(()), "nobody ever heard of it");
        endings.heard(at(5), PART, NodeId(2));
        endings.heard(at(3), PART, NODE);
        assert_eq!(times(endings.declared(at(14), PART, NODE, (SILENT, false))), [5, 14]);
        assert_eq!(endings.declared(at(15), PART, NODE, (SILENT, false)), Ok(()));
        assert_eq!(endings.count, 3);
    }

    #[test]
    fn declaring_over_who_has_a_session_breaks_it() {
        assert_eq!(times(Endings::default().declared(at(9), PART, NODE, (SILENT, true))), [9, 9]);
    }

    #[test]
    fn who_is_told_so_is_over() {
        let mut endings = Endings::default();
        endings.heard(at(1), PART, NODE);
        let end = Fact::new(at(2), NODE, "an entry".into());
        assert_eq!(endings.told(at(3), PART, NODE, Some(end)), Ok(()));
        assert_eq!(times(endings.told(at(3), PART, NODE, None)), [1, 3]);
    }

    #[test]
    fn what_takes_effect_after_the_end_breaks_it() {
        let mut endings = Endings::default();
        endings.declared(at(4), PART, NODE, (SILENT, false)).unwrap();
        assert_eq!(endings.took_effect(at(9), PART, (NODE, None), Vec::new), Ok(()));
        let end = Some(Fact::new(at(5), NODE, "an entry".into()));
        let story = || vec![Fact::new(at(7), NODE, "a change".into())];
        assert_eq!(times(endings.took_effect(at(9), PART, (NODE, end), story)), [4, 5, 7, 9]);
    }
}
