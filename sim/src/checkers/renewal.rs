//! Renewal: a tenure only grows. A renewal never shortens a lease, and no lease is longer than the longest lease.

use std::collections::BTreeMap;

use base::{ObjectId, Process, Span, WallTime};

use super::Violation;
use super::evidence::Fact;
use crate::TrueTime;

/// Follows every tenure from its acquisition on.
#[derive(Debug)]
pub struct Renewal {
    longest: Span,
    /// Until when a lease lasts, and when that was decided.
    until: BTreeMap<(ObjectId, Process), (WallTime, TrueTime)>,
}

/// When, whose clock shows what, and who says so.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// True time.
    pub at: TrueTime,
    /// What the owner's clock shows.
    pub reading: WallTime,
    /// The owner.
    pub owner: Process,
}

impl Renewal {
    /// `longest` is the longest lease, with what a clock may step back by while it is decided.
    pub const fn new(longest: Span) -> Self {
        Self { longest, until: BTreeMap::new() }
    }

    /// A process owns the cell until then.
    pub fn acquired(&mut self, moment: Moment, cell: ObjectId, until: WallTime) -> Result<(), Violation> {
        self.until.insert((cell, moment.owner), (until, moment.at));
        self.check_length(moment, cell, until)
    }

    /// A process owns the cell for longer.
    pub fn renewed(&mut self, moment: Moment, cell: ObjectId, until: WallTime) -> Result<(), Violation> {
        let owner = moment.owner;
        let now = lasts(moment.at, owner, until);
        match self.until.insert((cell, owner), (until, moment.at)) {
            None => {
                let what = format!("{owner:?} renewed a lease that it never acquired");
                broken(moment.at, cell, what, vec![now])
            }
            Some((before, since)) if until < before => {
                let what = format!("{owner:?} shortened its lease from {before:?} to {until:?}");
                broken(moment.at, cell, what, vec![lasts(since, owner, before), now])
            }
            Some(_) => self.check_length(moment, cell, until),
        }
    }

    /// A process is told that it does not get the cell: it must not be the owner, who is told of a loss.
    pub fn denied(&self, at: TrueTime, cell: ObjectId, to: Process) -> Result<(), Violation> {
        let Some(&(until, since)) = self.until.get(&(cell, to)) else { return Ok(()) };
        let denied = Fact::new(at, to.node, format!("{to:?} is told that it does not get the lease"));
        let what = format!("{to:?} owned the cell and was told of a denial, not of a loss");
        broken(at, cell, what, vec![lasts(since, to, until), denied])
    }

    /// The tenure is over, whatever ended it.
    pub fn ended(&mut self, cell: ObjectId, owner: Process) {
        self.until.remove(&(cell, owner));
    }

    /// Whether the process owns the cell, or still says that it gives it up.
    pub fn is_in_tenure(&self, cell: ObjectId, owner: Process) -> bool {
        self.until.contains_key(&(cell, owner))
    }

    /// The process ended, and all its tenures.
    pub fn process_ended(&mut self, process: Process) {
        self.until.retain(|&(_, owner), _| owner != process);
    }

    fn check_length(&self, moment: Moment, cell: ObjectId, until: WallTime) -> Result<(), Violation> {
        if until.since(moment.reading) <= self.longest {
            return Ok(());
        }
        let Moment { at, reading, owner } = moment;
        let what = format!("at {reading:?} {owner:?} took a lease until {until:?}, too long");
        broken(at, cell, what, vec![lasts(at, owner, until)])
    }
}

fn broken(at: TrueTime, cell: ObjectId, what: String, facts: Vec<Fact>) -> Result<(), Violation> {
    Err(Violation::new(at, "renewal", what).about(cell).shown_by(facts))
}

fn lasts(at: TrueTime, owner: Process, until: WallTime) -> Fact {
    Fact::new(at, owner.node, format!("the lease of {owner:?} lasts until {until:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: ObjectId = ObjectId::new(0, 1);

    fn at(micros: u64) -> WallTime {
        WallTime::from_micros(micros)
    }

    fn moment() -> Moment {
        Moment { at: TrueTime::ZERO, reading: at(100), owner: Process::new(1, 1) }
    }

    fn checker() -> Renewal {
        Renewal::new(Span::from_micros(50))
    }

    #[test]
    fn a_shorter_renewal_breaks_it() {
        let mut renewal = checker();
        assert_eq!(renewal.acquired(moment(), CELL, at(120)), Ok(()));
        assert_eq!(renewal.renewed(moment(), CELL, at(120)), Ok(()));
        assert_eq!(renewal.renewed(moment(), CELL, at(140)), Ok(()));
        let broken = renewal.renewed(moment(), CELL, at(139)).unwrap_err();
        assert!(broken.what.contains("shortened") && broken.shown.len() == 2, "{broken:?}");
    }

    #[test]
    fn a_renewal_without_an_acquisition_breaks_it() {
        let mut renewal = checker();
        assert!(renewal.renewed(moment(), CELL, at(120)).is_err());
        assert_eq!(renewal.acquired(moment(), CELL, at(120)), Ok(()));
        renewal.ended(CELL, Process::new(1, 1));
        assert!(renewal.renewed(moment(), CELL, at(120)).is_err());
        assert_eq!(renewal.acquired(moment(), CELL, at(120)), Ok(()));
        renewal.process_ended(Process::new(1, 1));
        assert!(renewal.renewed(moment(), CELL, at(120)).is_err());
    }

    #[test]
    fn denying_the_owner_breaks_it() {
        let mut renewal = checker();
        assert_eq!(renewal.denied(TrueTime::ZERO, CELL, Process::new(1, 1)), Ok(()));
        assert_eq!(renewal.acquired(moment(), CELL, at(120)), Ok(()));
        assert_eq!(renewal.denied(TrueTime::ZERO, CELL, Process::new(1, 1)).unwrap_err().shown.len(), 2);
    }

    #[test]
    fn a_lease_beyond_the_longest_breaks_it() {
        assert_eq!(checker().acquired(moment(), CELL, at(150)), Ok(()));
        assert!(checker().acquired(moment(), CELL, at(151)).unwrap_err().what.contains("too long"));
    }
}
