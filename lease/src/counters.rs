//! Counts of what happened, for metrics and tests.

use crate::Reject;

/// Monotonic counts since the node started.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Leases acquired.
    pub acquired: u64,
    /// Leases renewed.
    pub renewed: u64,
    /// Leases given up on purpose.
    pub given_up: u64,
    /// Leases lost.
    pub lost: u64,
    /// Acquisitions that ended without a lease.
    pub denied: u64,
    /// Attempts that met a higher ballot.
    pub conflicts: u64,
    /// Attempts that no majority answered in time.
    pub timeouts: u64,
    /// Registers dropped because they were idle.
    pub dropped: u64,
    /// Messages received.
    pub received: u64,
    rejected: [u64; Reject::ALL.len()],
}

impl Counters {
    /// How many messages were rejected for this reason.
    pub const fn rejected(&self, why: Reject) -> u64 {
        self.rejected[why as usize]
    }

    pub(crate) const fn reject(&mut self, why: Reject) {
        self.rejected[why as usize] += 1;
    }
}
