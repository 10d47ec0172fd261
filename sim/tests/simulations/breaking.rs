//! What is broken where whole daemons with files or volumes are simulated, and weathers that both have.

use std::sync::Arc;

use replication::Bug;
use sim::FaultKind;
use sim::cluster::ClusterPlan;

/// A rule that is broken, of replication or of whoever hosts it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Broken {
    Replica(Bug),
    Host(node::Bug),
    /// Each of the two does what the other would do.
    Both(Bug, node::Bug),
}

/// Two rules say the same at two places: without the one the other holds.
pub(crate) const LEASE_NEVER_CHECKED: Broken =
    Broken::Both(Bug::LeaseNotChecked, node::Bug::LeaseNotCheckedWhenLeaving);

/// Processes end, links are cut, disks are slow.
pub(crate) const ROUGH: &[(FaultKind, u64)] = &[
    (FaultKind::Crash, 10),
    (FaultKind::Partition, 10),
    (FaultKind::OneWay, 15),
    (FaultKind::DiskStall, 10),
    (FaultKind::Clog, 10),
];

/// Processes stand still, for longer than a lease.
pub(crate) const FROZEN: &[(FaultKind, u64)] =
    &[(FaultKind::Pause, 4), (FaultKind::Clog, 10), (FaultKind::Partition, 40)];

impl Broken {
    pub(crate) fn plant(self, plan: &mut ClusterPlan) {
        let replication = &mut Arc::make_mut(&mut plan.shard.replication).bug;
        match self {
            Self::Replica(bug) => *replication = Some(bug),
            Self::Host(bug) => plan.shard.bug = Some(bug),
            Self::Both(bug, host) => (*replication, plan.shard.bug) = (Some(bug), Some(host)),
        }
    }
}

/// Logs are so short that states are taken over.
pub(crate) fn shorten_logs(plan: &mut ClusterPlan) {
    let replication = Arc::make_mut(&mut plan.shard.replication);
    (replication.kept_max, replication.kept_lending_max, replication.batch_max) = (1, 10, 1);
}

/// What was drawn is for as many clients as were drawn.
pub(crate) fn make_room_for_more(plan: &mut ClusterPlan) {
    let replication = Arc::make_mut(&mut plan.shard.replication);
    replication.clients_max = replication.clients_max.max(12);
    replication.outcomes_max = replication.outcomes_max.max(24);
    // All that is remembered goes with one page of a transfer, also where most of all was drawn.
    replication.page_bytes_max = replication.page_bytes_max.max(640 << 10);
}
