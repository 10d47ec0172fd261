//! Leases under the simulator: nodes that compete for cells while everything around them fails.
//!
//! A run has two phases. In the *storm* users want cells, act under them, give them up and hand them over, while the
//! faults of the plan happen. Then everything is *healed*, every cell must find an owner within a bound, every node
//! must be able to become one, and nobody may lose anything any more.

mod calm;
mod faults;
mod host;
mod impossible;
mod membership;
mod workload;
mod world;

use lease::{Algorithm, FleaseRules, PaxosRules};

use crate::plan::Clocks;
use crate::trace::Tail;
use crate::{Plan, Summary, Trace, Violation};

/// What can be simulated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Subject {
    /// Flease: clocks within ε.
    Flease,
    /// PaxosLease: clocks at nearly the same rate.
    PaxosLease,
}

impl Subject {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Flease, Self::PaxosLease];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Flease => FleaseRules::NAME,
            Self::PaxosLease => PaxosRules::NAME,
        }
    }

    /// What `seed` decides.
    pub fn plan(self, seed: u64) -> Plan {
        match self {
            Self::Flease => Plan::draw(seed, Clocks::Synchronised),
            Self::PaxosLease => Plan::draw(seed, Clocks::Free),
        }
    }

    /// Runs a plan. The same plan gives the same summary and the same trace.
    pub fn run<'a>(self, plan: &'a Plan, trace: Trace<'a>) -> Summary {
        match self {
            Self::Flease => world::World::<FleaseRules>::new(plan, trace).run(),
            Self::PaxosLease => world::World::<PaxosRules>::new(plan, trace).run(),
        }
    }

    /// Runs a plan again and gives the last lines of the trace about what a violation is about.
    pub fn explain(self, plan: &Plan, violation: &Violation, lines_max: usize) -> Tail {
        let mut tail = Tail::new(lines_max);
        let trace = match violation.cell {
            Some(cell) => Trace::of_cell(cell, &mut tail),
            None => Trace::all(&mut tail),
        };
        self.run(plan, trace);
        tail
    }
}
