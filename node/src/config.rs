//! What a shard works by: plain numbers, fixed for its life.

use std::sync::Arc;

use base::Span;
use lease::Config;

use crate::{Bug, CapabilityKeys, ClusterMap, Rules};

/// After this long without an exchange of times a peer's clock counts as unknown.
pub const CLOCK_FRESH: Span = Span::from_millis(400);

/// A shard's configuration.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// The lease protocol's numbers; the cluster-wide ones come from the map.
    pub lease: Arc<Config>,
    /// Who is in the cluster.
    pub map: Arc<ClusterMap>,
    /// After this long without an exchange of times a peer's clock counts as unknown; default 400 ms.
    pub clock_fresh: Span,
    /// How many locks this node keeps a record of at most. Default 1 Mi.
    pub locks_max: usize,
    /// How many files this node keeps a replica of at most. Default 1 Mi.
    pub files_max: usize,
    /// A file's lease is given up when nobody has used it for so long. Default 10 s.
    pub file_idle: Span,
    /// A client that has changed a file is over for that file when room is needed for another one, it has asked this
    /// node for no change of it for so long, and it has no session here. Default one hour.
    pub client_silent: Span,
    /// A client of a volume that has neither said anything to its primary for so long nor has a session there is ended: what it
    /// holds and has locked goes. Default 120 s.
    pub client_gone: Span,
    /// After this node has begun, was frozen or had no majority of peers, a client to which something is lent and which has not come since has so long to
    /// come and flush what it has, before somebody else is served without that. Default 5 s: a client calls again after 1 s at the latest, and waits 2 s
    /// for an answer.
    pub client_returns: Span,
    /// When the disk has owed a write or a sync for so long, this node leads no file until it goes on. Default 2 s.
    pub stalled_after: Span,
    /// What the logs of all files may weigh together in memory. Default 64 MiB.
    pub logs_bytes_max: u64,
    /// Limits and times of the replication of files.
    pub replication: Arc<replication::Config>,
    /// How many inodes of a volume are granted to one session at a time. Default 131,072.
    pub session_grants_max: usize,
    /// How many clients may have a session at a time. Default 4,096.
    pub sessions_max: usize,
    /// How many replies may wait to be sent to one client; beyond that its session ends. Default 256 Ki.
    pub replies_max: usize,
    /// How many leases may be in the course of being acquired or given up at a time. Default 1,024.
    pub steps_max: usize,
    /// What capabilities are made and checked with, the same at all daemons. Without any no file of a volume is opened here.
    /// Default none.
    pub capability_keys: Option<Arc<CapabilityKeys>>,
    /// The rule to break, if any.
    #[cfg(feature = "planted-bugs")]
    pub bug: Option<Bug>,
}

impl ShardConfig {
    /// The defaults under a map.
    pub fn new(map: Arc<ClusterMap>) -> Self {
        Self {
            lease: Arc::new(map.settings().lease_config()),
            map,
            clock_fresh: CLOCK_FRESH,
            locks_max: 1 << 20,
            files_max: 1 << 20,
            file_idle: Span::from_secs(10),
            client_silent: Span::from_secs(60 * 60),
            client_gone: Span::from_secs(120),
            client_returns: Span::from_secs(5),
            stalled_after: Span::from_secs(2),
            logs_bytes_max: 64 << 20,
            replication: Arc::default(),
            session_grants_max: 1 << 17,
            sessions_max: 4_096,
            replies_max: 1 << 18,
            steps_max: 1_024,
            capability_keys: None,
            #[cfg(feature = "planted-bugs")]
            bug: None,
        }
    }

    /// How long a client may think that its session lasts, by this node's clock: `τ(1+ρ)`.
    pub fn session_over_after(&self) -> Span {
        self.lease.session.stretched(if self.breaks(Bug::SessionNotStretched) {
            0
        } else {
            self.lease.rate_error_ppm
        })
    }

    /// How much of a lease must be left for a client's session under it: `τ(1+ρ) + ε`.
    pub fn cover(&self) -> Span {
        self.lease.session.stretched(self.lease.rate_error_ppm) + self.lease.epsilon
    }

    /// The rules in force.
    #[cfg(feature = "planted-bugs")]
    pub const fn rules(&self) -> Rules {
        Rules::without(self.bug)
    }

    /// The rules in force: all.
    #[cfg(not(feature = "planted-bugs"))]
    pub const fn rules(&self) -> Rules {
        Rules {}
    }

    pub(crate) fn breaks(&self, bug: Bug) -> bool {
        self.rules().breaks(bug)
    }
}
