//! Endings: clients that are over for a file, because its table of clients was full and they were silent.
//!
//! - Nobody is declared over who was heard of lately: who was answered within `client_silent`, by whichever daemon. What another
//!   daemon has answered while leases could overlap need not be known, and whose clock was wrong since cannot tell how long ago it was.
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
    /// When a client last asked whom for a change of a file that it was told has taken effect.
    heard: BTreeMap<(ObjectId, ClientId), BTreeMap<NodeId, Heard>>,
    /// Who was declared over, by whom, and when.
    declared: BTreeMap<(ObjectId, ClientId), (NodeId, TrueTime)>,
    /// How many were declared over.
    pub count: u64,
}

/// A client's part of a file.
pub type Part = (ObjectId, ClientId);

/// A client asked for a change, and was told that it has taken effect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Heard {
    /// When it asked.
    pub asked: TrueTime,
    /// Whether nobody else could have the file's lease by then.
    pub is_exclusive: bool,
}

/// What is known of a daemon that declares a client over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Declaring {
    /// Which daemon.
    pub by: NodeId,
    /// For how long nobody may have heard of the client.
    pub silent: Span,
    /// Whether the client has a session there.
    pub has_session: bool,
    /// Since when its clock is right, if it is.
    pub right_since: Option<TrueTime>,
}

impl Declaring {
    /// Whether it has to know that a daemon heard of the client then, and how long ago that was.
    fn must_know(&self, node: NodeId, heard: Heard) -> bool {
        let is_told = node == self.by || heard.is_exclusive;
        is_told && self.right_since.is_some_and(|since| since <= heard.asked)
    }
}

impl Endings {
    /// A daemon tells a client that a change has taken effect.
    pub fn heard(&mut self, part: Part, by: NodeId, heard: Heard) {
        let last = self.heard.entry(part).or_default().entry(by).or_insert(heard);
        if last.asked < heard.asked {
            *last = heard;
        }
    }

    /// A daemon declares a client over. It may do so of whom nobody has heard for a while.
    pub fn declared(&mut self, now: TrueTime, part: Part, declaring: Declaring) -> Result<(), Violation> {
        let (by, silent) = (declaring.by, declaring.silent);
        self.count += 1;
        self.declared.insert(part, (by, now));
        let client = part.1;
        let declares = Fact::new(now, by, format!("{by:?} declares {client:?} over"));
        if declaring.has_session {
            let what = format!("{by:?} declares {client:?} over, which has a session there");
            let has = Fact::new(now, client, format!("{client:?} has a session at {by:?}"));
            return Err(violation(now, part, what).shown_by([has, declares]));
        }
        let heard = self.heard.get(&part).into_iter().flatten();
        let known = heard.filter(|&(&node, &heard)| declaring.must_know(node, heard));
        match known.max_by_key(|(_, heard)| heard.asked) {
            Some((&node, heard)) if now.since(heard.asked) < silent => {
                let what = format!("{by:?} declares {client:?} over, which was not silent for {silent}");
                Err(violation(now, part, what).shown_by([asks(part, node, heard.asked), declares]))
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
        let heard = self.heard.get(&part)?.iter();
        let (&node, heard) = heard.max_by_key(|(_, heard)| heard.asked)?;
        Some(asks(part, node, heard.asked))
    }

    fn declaration(&self, part: Part) -> Option<Fact> {
        let &(node, at) = self.declared.get(&part)?;
        Some(Fact::new(at, node, format!("{node:?} declares {:?} over", part.1)))
    }
}

fn asks((_, client): Part, node: NodeId, at: TrueTime) -> Fact {
    let what = format!("{client:?} asks {node:?} for a change, and is told that it has taken effect");
    Fact::new(at, client, what)
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

    const fn heard(millis: u64) -> Heard {
        Heard { asked: at(millis), is_exclusive: true }
    }

    const fn declaring(has_session: bool) -> Declaring {
        Declaring { by: NODE, silent: SILENT, has_session, right_since: Some(TrueTime::ZERO) }
    }

    #[test]
    fn declaring_over_whom_somebody_heard_of_lately_breaks_it() {
        let mut endings = Endings::default();
        assert_eq!(endings.declared(at(1), PART, declaring(false)), Ok(()), "nobody ever heard of it");
        endings.heard(PART, NodeId(2), heard(5));
        endings.heard(PART, NodeId(2), heard(4));
        endings.heard(PART, NODE, heard(3));
        assert_eq!(times(endings.declared(at(14), PART, declaring(false))), [5, 14]);
        assert_eq!(endings.declared(at(15), PART, declaring(false)), Ok(()));
        assert_eq!(endings.count, 3);
    }

    /// Another daemon may have had the lease, too. What the one that declares has heard itself it knows.
    #[test]
    fn what_another_heard_while_leases_overlapped_is_not_known() {
        let mut endings = Endings::default();
        let overlapping = |millis| Heard { is_exclusive: false, ..heard(millis) };
        endings.heard(PART, NodeId(2), overlapping(5));
        assert_eq!(endings.declared(at(6), PART, declaring(false)), Ok(()));
        endings.heard(PART, NODE, overlapping(4));
        assert_eq!(times(endings.declared(at(6), PART, declaring(false))), [4, 6]);
        endings.heard(PART, NodeId(3), heard(5));
        assert_eq!(times(endings.declared(at(6), PART, declaring(false))), [5, 6]);
    }

    #[test]
    fn whose_clock_was_wrong_since_cannot_tell_how_long_ago_it_was() {
        let mut endings = Endings::default();
        endings.heard(PART, NODE, heard(5));
        let mut declares = |right_since| {
            endings.declared(at(9), PART, Declaring { right_since, ..declaring(false) }).is_ok()
        };
        assert!(declares(None) && declares(Some(at(6))));
        assert!(!declares(Some(at(5))) && !declares(Some(TrueTime::ZERO)));
    }

    #[test]
    fn declaring_over_who_has_a_session_breaks_it() {
        assert_eq!(times(Endings::default().declared(at(9), PART, declaring(true))), [9, 9]);
    }

    #[test]
    fn who_is_told_so_is_over() {
        let mut endings = Endings::default();
        endings.heard(PART, NODE, heard(1));
        let end = Fact::new(at(2), NODE, "an entry".into());
        assert_eq!(endings.told(at(3), PART, NODE, Some(end)), Ok(()));
        assert_eq!(times(endings.told(at(3), PART, NODE, None)), [1, 3]);
    }

    #[test]
    fn what_takes_effect_after_the_end_breaks_it() {
        let mut endings = Endings::default();
        endings.declared(at(4), PART, declaring(false)).unwrap();
        assert_eq!(endings.took_effect(at(9), PART, (NODE, None), Vec::new), Ok(()));
        let end = Some(Fact::new(at(5), NODE, "an entry".into()));
        let story = || vec![Fact::new(at(7), NODE, "a change".into())];
        assert_eq!(times(endings.took_effect(at(9), PART, (NODE, end), story)), [4, 5, 7, 9]);
    }
}
