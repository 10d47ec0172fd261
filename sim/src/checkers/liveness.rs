//! Liveness: once everything is healed, every cell that somebody wants gets an owner within a bound, and keeps it.
//!
//! The bound adds up everything that a node may have to wait for, one after the other, by the slowest clock:
//!
//! - its quarantine, or its silence as a newcomer: they run at the same time, so the longer of the two;
//! - an old message that arrives late: the longest way it can be late;
//! - a lease that nobody can renew: `t_max`, and ε until all clocks agree that it is over;
//! - rivals: `attempts_max` attempts of a round trip and the longest back-off each, twice, because the first series
//!   may end in a denial after which the node asks again.

use std::collections::BTreeMap;

use base::{NodeId, ObjectId, Span};
use lease::Config;

use super::Violation;
use super::evidence::{Fact, Machines};
use crate::TrueTime;

/// A node that just gave a lease up backs off this many times as long.
const STAND_BACK_FACTOR: u64 = 4;

/// Cells that wait for an owner, and the time by which they must have one.
#[derive(Debug, Default)]
pub struct Liveness {
    waiting: BTreeMap<ObjectId, Waiting>,
    /// Since when nothing may be lost any more.
    calm: Option<TrueTime>,
}

#[derive(Debug)]
struct Waiting {
    who: Option<NodeId>,
    since: TrueTime,
    deadline: TrueTime,
    /// Who got it meanwhile, if not who should.
    other: Option<(NodeId, TrueTime)>,
}

/// Within how much true time every wanted cell has an owner once everything is healed.
pub fn recovery_bound(config: &Config, late_max: Span) -> Span {
    let silence = config.t_max.stretched(config.rate_error_ppm) + config.epsilon * 3;
    let lease = config.t_max.stretched(config.rate_error_ppm) + config.epsilon * 2;
    (silence + late_max + lease + rivalry_bound(config) * 2).stretched(config.rate_error_ppm)
}

/// Within how much true time a named successor has the lease, if its owner could tell nobody but by expiry.
pub fn succession_bound(config: &Config) -> Span {
    let lease = config.t_max.stretched(config.rate_error_ppm) + config.epsilon * 2;
    (lease + rivalry_bound(config)).stretched(config.rate_error_ppm)
}

fn rivalry_bound(config: &Config) -> Span {
    let attempt = config.round_trip_max * 2 + config.backoff_max * STAND_BACK_FACTOR;
    attempt * u64::from(config.attempts_max)
}

impl Liveness {
    /// From now on the cell must get an owner by `deadline`: this node, or anybody if none is named.
    pub fn expect(&mut self, now: TrueTime, cell: ObjectId, who: Option<NodeId>, deadline: TrueTime) {
        self.waiting.insert(cell, Waiting { who, since: now, deadline, other: None });
    }

    /// A node owns the cell.
    pub fn acquired(&mut self, now: TrueTime, cell: ObjectId, by: NodeId) {
        let Some(waiting) = self.waiting.get_mut(&cell) else { return };
        if waiting.who.is_none_or(|who| who == by) {
            self.waiting.remove(&cell);
        } else {
            waiting.other = Some((by, now));
        }
    }

    /// Whether no cell waits any more.
    pub fn is_satisfied(&self) -> bool {
        self.waiting.is_empty()
    }

    /// From now on no lease may be lost.
    pub const fn calm_down(&mut self, now: TrueTime) {
        self.calm = Some(now);
    }

    /// Whether some cell waited too long.
    pub fn check(&self, at: TrueTime) -> Result<(), Violation> {
        let Some((&cell, late)) = self.waiting.iter().find(|(_, waiting)| at > waiting.deadline) else {
            return Ok(());
        };
        let &Waiting { who, since, deadline, other } = late;
        let whose = who.map_or(Machines::ALL, Machines::from);
        let who = who.map_or_else(|| "anybody".to_owned(), |node| format!("{node:?}"));
        let what = format!("{who} did not get the cell by {deadline}; {} cells wait", self.waiting.len());
        let other = other.map(|(node, at)| Fact::new(at, node, format!("{node:?} gets the lease")));
        let facts = [
            Fact::new(since, whose, format!("{who} is to get the lease")),
            Fact::new(deadline, whose, format!("{who} should have it by now")),
        ];
        Err(Violation::new(at, "liveness", what).about(cell).shown_by(facts.into_iter().chain(other)))
    }

    /// A lease was lost against its owner's will.
    pub fn lost(&self, at: TrueTime, cell: ObjectId, what: String) -> Result<(), Violation> {
        let Some(since) = self.calm else { return Ok(()) };
        let facts = [
            Fact::new(since, Machines::ALL, "nothing goes wrong any more, and nobody has a rival".into()),
            Fact::new(at, Machines::ALL, format!("the lease is lost: {what}")),
        ];
        let what = format!("lost in calm weather: {what}");
        Err(Violation::new(at, "liveness", what).about(cell).shown_by(facts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: ObjectId = ObjectId::new(0, 1);

    fn at(micros: u64) -> TrueTime {
        TrueTime::from_micros(micros)
    }

    #[test]
    fn a_cell_without_an_owner_breaks_it_after_the_deadline() {
        let mut liveness = Liveness::default();
        liveness.expect(at(1), CELL, None, at(10));
        assert_eq!(liveness.check(at(10)), Ok(()));
        assert!(liveness.check(at(11)).unwrap_err().what.contains("anybody"));
        liveness.acquired(at(11), CELL, NodeId(1));
        assert_eq!(liveness.check(at(11)), Ok(()));
    }

    #[test]
    fn a_named_successor_is_waited_for() {
        let mut liveness = Liveness::default();
        liveness.expect(at(1), CELL, Some(NodeId(2)), at(10));
        liveness.acquired(at(5), CELL, NodeId(1));
        let broken = liveness.check(at(11)).unwrap_err();
        let shown: Vec<&str> = broken.shown.iter().map(|fact| &*fact.what).collect();
        assert_eq!(shown, ["n2 is to get the lease", "n1 gets the lease", "n2 should have it by now"]);
        liveness.acquired(at(12), CELL, NodeId(2));
        assert!(liveness.is_satisfied());
    }

    #[test]
    fn a_loss_breaks_it_only_in_calm_weather() {
        let mut liveness = Liveness::default();
        assert_eq!(liveness.lost(at(1), CELL, String::new()), Ok(()));
        liveness.calm_down(at(1));
        assert_eq!(liveness.lost(at(2), CELL, String::new()).unwrap_err().shown.len(), 2);
    }

    #[test]
    fn the_bound_covers_a_quarantine_and_a_lease() {
        let config = Config::default();
        let bound = recovery_bound(&config, Span::ZERO);
        assert!(bound > config.t_max * 2 + config.epsilon * 5);
        assert!(succession_bound(&config) < bound);
    }
}
