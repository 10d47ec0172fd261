//! A whole cluster under the simulator: daemons, their disks and supervisors, clients and their users.
//!
//! Daemons run the production shard, clients the production core. A run has two phases. In the *storm* users want
//! locks, keep them and give them back, while the faults of the plan happen. Then everything is *healed*: whoever
//! waits must get the lock within a bound, nothing may be left behind, every daemon must serve, and single mishaps are
//! staged to see that a holder keeps its lock and that a freed lock is had in time.

mod ahead;
mod behind;
mod caches;
mod calm;
mod contents;
mod datagrams;
mod directory;
mod disk;
mod faults;
mod files;
mod hands;
mod held;
mod lends;
mod links;
mod machine;
mod operator;
mod owners;
mod plan;
mod real;
mod rot;
mod rules;
mod settling;
mod shape;
mod stores;
mod streams;
mod summary;
mod trees;
mod users;
mod volumes;
mod world;
mod writers;
mod wrong_clocks;

pub use plan::{ClusterPlan, FilePlan, VolumePlan};
pub use real::StorePlan;
pub use summary::{
    ACKNOWLEDGED_MIN, ClusterSummary, FAULTS_MIN, GRANTED_MIN, LendCounts, SIMULATED_MIN, TreeCounts,
};
pub use trees::TreeHabits;

use lease::{FleaseRules, PaxosRules};

use crate::lease::Subject;
use crate::plan::Clocks;
use crate::{Simulation, Trace};

/// Clusters, as something to simulate.
#[derive(Debug)]
pub enum Clusters {}

impl Clusters {
    /// The same without clients that keep anything, for whoever adds what he wants.
    pub fn plain(subject: Subject, seed: u64) -> ClusterPlan {
        match subject {
            Subject::Flease => ClusterPlan::draw(seed, Clocks::Synchronised),
            Subject::PaxosLease => ClusterPlan::draw(seed, Clocks::Free),
        }
    }
}

impl Simulation for Clusters {
    const NAME: &'static str = "cluster";

    type Plan = ClusterPlan;
    type Summary = ClusterSummary;

    fn plan(subject: Subject, seed: u64) -> ClusterPlan {
        Self::plain(subject, seed).with_clients_that_keep()
    }

    fn run<'a>(subject: Subject, plan: &'a ClusterPlan, trace: Trace<'a>) -> ClusterSummary {
        match subject {
            Subject::Flease => world::World::<FleaseRules>::new(plan, trace).run(),
            Subject::PaxosLease => world::World::<PaxosRules>::new(plan, trace).run(),
        }
    }
}
