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
use crate::{Plan, Simulation, Summary, Trace};

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
}

/// Leases, as something to simulate.
#[derive(Debug)]
pub enum Leases {}

impl Simulation for Leases {
    const NAME: &'static str = "lease";

    type Plan = Plan;
    type Summary = Summary;

    fn plan(subject: Subject, seed: u64) -> Plan {
        match subject {
            Subject::Flease => Plan::draw(seed, Clocks::Synchronised),
            Subject::PaxosLease => Plan::draw(seed, Clocks::Free),
        }
    }

    fn run<'a>(subject: Subject, plan: &'a Plan, trace: Trace<'a>) -> Summary {
        match subject {
            Subject::Flease => world::World::<FleaseRules>::new(plan, trace).run(),
            Subject::PaxosLease => world::World::<PaxosRules>::new(plan, trace).run(),
        }
    }
}
