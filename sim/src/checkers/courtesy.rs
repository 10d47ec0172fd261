//! Courtesy: nobody reads under a lease that it knows to be another's and valid.
//!
//! Such a read gains nothing, because the lease will be respected anyway, but it aborts the owner's renewals. What a
//! node knows is what its own register shows. Owners and former owners that still write that they gave the lease up
//! are free to read, and so is a successor whose register has not seen that the lease was handed to it.

use base::{NodeId, ObjectId, Process};
use lease::Hint;

use super::Violation;
use super::evidence::Fact;
use crate::TrueTime;

/// Watches every read as it leaves.
#[derive(Debug, Default)]
pub struct Courtesy;

impl Courtesy {
    /// `reader`, which owns nothing of the cell, sends a read while its own register shows `known`.
    ///
    /// `may_take` tells whether the reader was told that a process is dead, or that it offers this lease.
    pub fn read_leaves(
        &self,
        at: TrueTime,
        (reader, cell): (Process, ObjectId),
        known: Option<&Hint>,
        may_take: impl Fn(Process) -> bool,
    ) -> Result<(), Violation> {
        match known {
            Some(hint) if hint.owner.node != reader.node && !may_take(hint.owner) => {
                let what = format!("{reader:?} reads although its own register shows {hint:?}");
                let fact = |what| Fact::new(at, reader.node, what);
                let knows =
                    format!("the register of {:?} shows that {:?} has the lease", reader.node, hint.owner);
                let facts = [fact(knows), fact(format!("{reader:?} sends a read"))];
                Err(Violation::new(at, "courtesy", what).about(cell).shown_by(facts))
            }
            _ => Ok(()),
        }
    }
}

/// Whether a node was told by death notices that a process is dead.
pub fn was_told_dead(told: &[(NodeId, base::Incarnation)], process: Process) -> bool {
    told.iter().any(|&(node, last)| node == process.node && process.incarnation <= last)
}

#[cfg(test)]
mod tests {
    use base::{Incarnation, WallTime};

    use super::*;

    #[test]
    fn reading_under_anothers_lease_breaks_it() {
        let cell = ObjectId::new(0, 1);
        let known = Hint { owner: Process::new(2, 3), until: WallTime::from_micros(9) };
        let read = |reader: Process, known, dead: &[(NodeId, Incarnation)]| {
            let dead = dead.to_vec();
            Courtesy.read_leaves(TrueTime::ZERO, (reader, cell), known, |p| was_told_dead(&dead, p))
        };
        assert_eq!(read(Process::new(1, 1), None, &[]), Ok(()));
        assert_eq!(read(Process::new(2, 4), Some(&known), &[]), Ok(()));
        assert_eq!(read(Process::new(1, 1), Some(&known), &[(NodeId(2), Incarnation(3))]), Ok(()));
        assert!(read(Process::new(1, 1), Some(&known), &[(NodeId(2), Incarnation(2))]).is_err());
        assert!(read(Process::new(1, 1), Some(&known), &[]).is_err());
    }
}
