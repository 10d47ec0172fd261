//! Promptness: in calm weather locks come within bounds, and whoever holds one keeps it.
//!
//! Each expectation says what must have happened by when; [`worst`](Promptness::worst) tells how long each kind took.

use std::collections::BTreeMap;

use base::{NodeId, ObjectId, Span};
use node::ClientId;

use super::Violation;
use super::evidence::{Fact, Machines};
use crate::TrueTime;

/// What is expected.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Expected {
    /// Everybody who waits when everything is healed gets the lock.
    Recovery,
    /// A holder is attached anew after its daemon died with a notice.
    Reattached,
    /// A holder is attached anew after its daemon gave everything up.
    HandedOver,
    /// The next in line after the holder fell silent.
    SilentClient,
    /// The next in line after daemon and holder died, with a notice.
    DeathNoticed,
    /// The next in line after daemon and holder died unnoticed.
    DeathUnnoticed,
    /// The next in line after the holder gave the lock back.
    GivenBack,
    /// Somebody gets a free lock at this daemon.
    Service,
    /// A daemon that drains is done.
    Drained,
    /// Everybody who waits for a file when everything is healed has a result.
    FileRecovery,
    /// Something is done to a file while nothing goes wrong.
    FileService,
}

/// Expectations that are open, and who must not lose what.
#[derive(Debug, Default)]
pub struct Promptness {
    open: BTreeMap<u64, Expectation>,
    made: u64,
    kept: BTreeMap<(ClientId, ObjectId), (Expected, TrueTime)>,
    worst: BTreeMap<Expected, Span>,
}

#[derive(Debug)]
struct Expectation {
    what: Expected,
    cell: Option<ObjectId>,
    since: TrueTime,
    by: TrueTime,
}

impl Expected {
    /// All, in the order of the summary.
    pub const ALL: [Self; 11] = [
        Self::Recovery,
        Self::Reattached,
        Self::HandedOver,
        Self::SilentClient,
        Self::DeathNoticed,
        Self::DeathUnnoticed,
        Self::GivenBack,
        Self::Service,
        Self::Drained,
        Self::FileRecovery,
        Self::FileService,
    ];

    /// As the summary names it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Recovery => "recovered",
            Self::Reattached => "attached anew after a death",
            Self::HandedOver => "attached anew after a drain",
            Self::SilentClient => "next after a silent client",
            Self::DeathNoticed => "next after a noticed death",
            Self::DeathUnnoticed => "next after an unnoticed death",
            Self::GivenBack => "next after a release",
            Self::Service => "served",
            Self::Drained => "drained",
            Self::FileRecovery => "files recovered",
            Self::FileService => "files served",
        }
    }
}

impl Promptness {
    /// From now on this must happen within `bound`.
    pub fn expect(&mut self, now: TrueTime, what: Expected, cell: Option<ObjectId>, bound: Span) -> u64 {
        self.made += 1;
        self.open.insert(self.made, Expectation { what, cell, since: now, by: now + bound });
        self.made
    }

    /// It happened.
    pub fn met(&mut self, now: TrueTime, id: u64) {
        if let Some(Expectation { what, since, .. }) = self.open.remove(&id) {
            let worst = self.worst.entry(what).or_default();
            *worst = (*worst).max(now.since(since));
        }
    }

    /// It is no longer expected.
    pub fn withdraw(&mut self, id: u64) {
        self.open.remove(&id);
    }

    /// Whether something is late.
    pub fn check(&self, at: TrueTime) -> Result<(), Violation> {
        let Some(late) = self.open.values().find(|expectation| at > expectation.by) else { return Ok(()) };
        let Expectation { what, cell, since, by } = late;
        let expected = Fact::new(*since, Machines::ALL, format!("{what:?} is expected from now on"));
        let late = Fact::new(*by, Machines::ALL, format!("{what:?} should have happened by now"));
        let what = format!("{what:?} was expected since {since} and by {by}");
        Err(Violation::new(at, "promptness", what).about(*cell).shown_by([expected, late]))
    }

    /// A lock came from `by`, and was asked for at `asked`, when `of` had to serve it.
    pub fn served(
        &self,
        (asked, at): (TrueTime, TrueTime),
        cell: ObjectId,
        (of, by): (NodeId, Option<NodeId>),
    ) -> Result<(), Violation> {
        if by == Some(of) {
            return Ok(());
        }
        let what = format!("{of:?} does not serve: the lock came from {by:?}");
        let facts = [
            Fact::new(asked, of, format!("a client asks for a lock that {of:?} should serve")),
            Fact::new(at, of, format!("it has it from {by:?}")),
        ];
        Err(Violation::new(at, "promptness", what).about(cell).shown_by(facts))
    }

    /// From now on the client must not lose the lock.
    pub fn must_keep(&mut self, now: TrueTime, (client, cell): (ClientId, ObjectId), why: Expected) {
        self.kept.insert((client, cell), (why, now));
    }

    /// It may again.
    pub fn may_lose(&mut self, client: ClientId, cell: ObjectId) {
        self.kept.remove(&(client, cell));
    }

    /// A client was told that it lost a lock.
    pub fn lost(&self, at: TrueTime, client: ClientId, cell: ObjectId) -> Result<(), Violation> {
        match self.kept.get(&(client, cell)) {
            None => Ok(()),
            Some((why, since)) => {
                let what = format!("{client:?} lost the lock ({why:?})");
                let facts = [
                    Fact::new(
                        *since,
                        Machines::ALL,
                        format!("{client:?} holds the lock, and keeps it: {why:?}"),
                    ),
                    Fact::new(at, client, format!("{client:?} is told that it lost the lock")),
                ];
                Err(Violation::new(at, "keeping", what).about(cell).shown_by(facts))
            }
        }
    }

    /// The longest that each kind took.
    pub const fn worst(&self) -> &BTreeMap<Expected, Span> {
        &self.worst
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: ObjectId = ObjectId::new(1 << 63, 1);

    fn at(millis: u64) -> TrueTime {
        TrueTime::from_micros(millis * 1_000)
    }

    #[test]
    fn what_comes_late_breaks_it() {
        let mut promptness = Promptness::default();
        let id = promptness.expect(at(5), Expected::GivenBack, Some(CELL), Span::from_millis(10));
        assert_eq!(promptness.check(at(15)), Ok(()));
        let broken = promptness.check(at(16)).unwrap_err();
        let times: Vec<TrueTime> = broken.shown.iter().map(|fact| fact.at).collect();
        assert_eq!((broken.checker, times), ("promptness", vec![at(5), at(15)]));
        promptness.met(at(14), id);
        assert_eq!(promptness.check(at(99)), Ok(()));
        assert_eq!(promptness.worst()[&Expected::GivenBack], Span::from_millis(9));
    }

    #[test]
    fn who_is_served_by_another_breaks_it() {
        let served = |by| Promptness::default().served((at(1), at(2)), CELL, (NodeId(1), by));
        assert_eq!(served(Some(NodeId(1))), Ok(()));
        assert_eq!(served(Some(NodeId(2))).unwrap_err().shown.len(), 2);
        assert!(served(None).is_err());
    }

    #[test]
    fn losing_what_must_be_kept_breaks_it() {
        let mut promptness = Promptness::default();
        let client = ClientId { certificate: 1, program: 1 };
        assert_eq!(promptness.lost(at(1), client, CELL), Ok(()));
        promptness.must_keep(at(1), (client, CELL), Expected::Reattached);
        let broken = promptness.lost(at(2), client, CELL).unwrap_err();
        assert_eq!((broken.checker, broken.shown.len()), ("keeping", 2));
        promptness.may_lose(client, CELL);
        assert_eq!(promptness.lost(at(3), client, CELL), Ok(()));
    }
}
