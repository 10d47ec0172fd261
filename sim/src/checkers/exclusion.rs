//! Exclusion: at every instant of true time at most one process owns a cell.
//!
//! A process owns a cell while `holds` is true for what its own clock shows at that instant, be it running or frozen:
//! a frozen process has not lost its lease until its clock passes the expiry. The lease of a process that has ended
//! counts until then too, unless a witness has told of its death: its clients may still rely on it.

use std::collections::BTreeMap;
use std::fmt;

use base::{ObjectId, Process, WallTime};

use super::Violation;
use super::evidence::Fact;
use crate::TrueTime;

/// Somebody who owns a cell now.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    /// Who.
    pub process: Process,
    /// What its clock shows.
    pub reading: WallTime,
    /// Until when by that clock.
    pub until: WallTime,
    /// Whether the process has ended, and only its lease lives on.
    pub ended: bool,
}

/// Looks at all owners of a cell whenever one may have come.
#[derive(Debug, Default)]
pub struct Exclusion {
    /// Who owned a cell when it was last looked at, and since when it is known to.
    owned: BTreeMap<ObjectId, (Process, TrueTime)>,
}

impl Exclusion {
    /// All owners of a cell at this instant.
    pub fn observe(&mut self, at: TrueTime, cell: ObjectId, owners: &[Owner]) -> Result<(), Violation> {
        match owners {
            [] => Ok(()),
            [owner] => {
                let owned = self.owned.entry(cell).or_insert((owner.process, at));
                if owned.0 != owner.process {
                    *owned = (owner.process, at);
                }
                Ok(())
            }
            _ => {
                let what = format!("{} owners at once: {owners:?}", owners.len());
                let owns = owners
                    .iter()
                    .map(|owner| Fact::new(at, owner.process.node, format!("{owner:?} owns it")));
                let facts = self.owned(cell).into_iter().chain(owns);
                Err(Violation::new(at, "exclusion", what).about(cell).shown_by(facts))
            }
        }
    }

    /// `owner` owned the cell, and hears that a majority knows of another lease.
    pub fn superseded(&self, at: TrueTime, cell: ObjectId, owner: Process) -> Violation {
        let what = format!("{owner:?} owns the cell, but a majority reports another lease");
        let hears = Fact::new(at, owner.node, format!("{owner:?} hears of another lease from a majority"));
        let facts = self.owned(cell).into_iter().chain([hears]);
        Violation::new(at, "exclusion", what).about(cell).shown_by(facts)
    }

    /// Since when the last owner that was alone is known to own a cell.
    pub fn owned(&self, cell: ObjectId) -> Option<Fact> {
        let &(owner, since) = self.owned.get(&cell)?;
        Some(Fact::new(since, owner.node, format!("{owner:?} owns it, and nobody else does")))
    }

    /// `actor` answers an operation at this instant, because `holds` says it may.
    pub fn observe_act(
        &mut self,
        at: TrueTime,
        cell: ObjectId,
        actor: Process,
        owners: &[Owner],
    ) -> Result<(), Violation> {
        self.observe(at, cell, owners)?;
        match owners.iter().find(|owner| owner.process != actor) {
            Some(owner) => {
                let what = format!("{actor:?} answered an operation while {owner:?} owns the cell");
                let facts = [
                    Fact::new(at, owner.process.node, format!("{owner:?} owns it")),
                    Fact::new(at, actor.node, format!("{actor:?} answers an operation")),
                ];
                let facts = self.owned(cell).into_iter().chain(facts);
                Err(Violation::new(at, "exclusion", what).about(cell).shown_by(facts))
            }
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = if self.ended { ", ended" } else { "" };
        write!(f, "{:?} (its clock {:?}, until {:?}{ended})", self.process, self.reading, self.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELL: ObjectId = ObjectId::new(0, 1);
    const NOW: TrueTime = TrueTime::from_micros(5);

    fn owner(node: u32) -> Owner {
        let (reading, until) = (WallTime::from_micros(1), WallTime::from_micros(9));
        Owner { process: Process::new(node, 1), reading, until, ended: false }
    }

    #[test]
    fn two_owners_at_once_break_it() {
        let mut exclusion = Exclusion::default();
        assert_eq!(exclusion.observe(NOW, CELL, &[]), Ok(()));
        assert_eq!(exclusion.observe(NOW, CELL, &[owner(1)]), Ok(()));
        let violation = exclusion.observe(NOW, CELL, &[owner(1), owner(2)]).unwrap_err();
        assert_eq!((violation.at, violation.cell), (NOW, Some(CELL)));
        assert!(violation.what.contains("n1#1") && violation.what.contains("n2#1"), "{violation}");
        assert_eq!(violation.shown.len(), 3, "who owned it alone, and both: {violation:?}");
    }

    #[test]
    fn the_lease_of_an_ended_process_counts() {
        let ended = Owner { ended: true, ..owner(1) };
        assert!(Exclusion::default().observe(NOW, CELL, &[ended, owner(1)]).is_err());
    }

    #[test]
    fn acting_under_anothers_lease_breaks_it() {
        let mut exclusion = Exclusion::default();
        assert_eq!(exclusion.observe_act(NOW, CELL, Process::new(1, 1), &[owner(1)]), Ok(()));
        assert!(exclusion.observe_act(NOW, CELL, Process::new(1, 1), &[owner(2)]).is_err());
        assert!(exclusion.observe_act(NOW, CELL, Process::new(1, 2), &[owner(1)]).is_err());
    }
}
