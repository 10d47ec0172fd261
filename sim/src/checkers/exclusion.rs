//! Exclusion: at every instant of true time at most one process owns a cell.
//!
//! A process owns a cell while `holds` is true for what its own clock shows at that instant, be it running or frozen:
//! a frozen process has not lost its lease until its clock passes the expiry. The lease of a process that has ended
//! counts until then too, unless a witness has told of its death: its clients may still rely on it.

use std::fmt;

use base::{ObjectId, Process, WallTime};

use super::Violation;
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
pub struct Exclusion;

impl Exclusion {
    /// All owners of a cell at this instant.
    pub fn observe(&self, at: TrueTime, cell: ObjectId, owners: &[Owner]) -> Result<(), Violation> {
        if owners.len() <= 1 {
            return Ok(());
        }
        let what = format!("{} owners at once: {owners:?}", owners.len());
        Err(Violation { at, cell: Some(cell), checker: "exclusion", what })
    }

    /// `actor` answers an operation at this instant, because `holds` says it may.
    pub fn observe_act(
        &self,
        at: TrueTime,
        cell: ObjectId,
        actor: Process,
        owners: &[Owner],
    ) -> Result<(), Violation> {
        self.observe(at, cell, owners)?;
        match owners.iter().find(|owner| owner.process != actor) {
            Some(owner) => {
                let what = format!("{actor:?} answered an operation while {owner:?} owns the cell");
                Err(Violation { at, cell: Some(cell), checker: "exclusion", what })
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
        let exclusion = Exclusion;
        assert_eq!(exclusion.observe(NOW, CELL, &[]), Ok(()));
        assert_eq!(exclusion.observe(NOW, CELL, &[owner(1)]), Ok(()));
        let violation = exclusion.observe(NOW, CELL, &[owner(1), owner(2)]).unwrap_err();
        assert_eq!((violation.at, violation.cell), (NOW, Some(CELL)));
        assert!(violation.what.contains("n1#1") && violation.what.contains("n2#1"), "{violation}");
    }

    #[test]
    fn the_lease_of_an_ended_process_counts() {
        let ended = Owner { ended: true, ..owner(1) };
        assert!(Exclusion.observe(NOW, CELL, &[ended, owner(1)]).is_err());
    }

    #[test]
    fn acting_under_anothers_lease_breaks_it() {
        let exclusion = Exclusion;
        assert_eq!(exclusion.observe_act(NOW, CELL, Process::new(1, 1), &[owner(1)]), Ok(()));
        assert!(exclusion.observe_act(NOW, CELL, Process::new(1, 1), &[owner(2)]).is_err());
        assert!(exclusion.observe_act(NOW, CELL, Process::new(1, 2), &[owner(1)]).is_err());
    }
}
