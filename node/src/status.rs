//! What a daemon says about itself when it is asked: plain data for `fleasefs status` and its `--json`.
//!
//! Times are milliseconds from now or microseconds of a length, because a reader has another clock.
//!
//! Layout: postcard encodes these in the order of their fields and variants.

use base::{ClusterId, Incarnation, NodeId, ObjectId, Process, StoreId};
use serde::{Deserialize, Serialize};

use crate::{DrainStatus, bounded};

/// The most peers a status lists: as many as a cluster map has daemons.
pub const STATUS_PEERS_MAX: usize = crate::map::OSDS_MAX;

/// The most members that something has.
const STATUS_MEMBERS_MAX: usize = base::MEMBERS_MAX;

/// The most sets of members that a status lists of which too few are there.
pub const STATUS_LACKING_MAX: usize = 64;

/// The most recoveries that a status lists which wait for somebody.
pub const STATUS_BLOCKED_MAX: usize = 256;

/// The state of one daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Who answers.
    pub daemon: DaemonStatus,
    /// The cluster it belongs to.
    pub cluster: ClusterId,
    /// The version of its cluster map.
    pub map_version: u64,
    /// The digest of its cluster map, in hexadecimal digits.
    pub map_digest: String,
    /// For how long it casts no lease votes yet, because it started recently; 0 if it votes.
    pub quarantine_ms: u64,
    /// Its clock.
    pub clock: ClockStatus,
    /// Its leases.
    pub leases: LeaseStatus,
    /// Its locks.
    pub locks: LockStatus,
    /// What clients have had it do.
    pub work: WorkStatus,
    /// When its certificate expires: seconds since 1970.
    pub certificate_expires_unix_s: u64,
    /// Whether the file of its deny list cannot be read, so that the list before is still in force.
    pub deny_list_is_stale: bool,
    /// Whether its disk takes no more data.
    pub disk_is_full: bool,
    /// How much more data its disk takes before that.
    pub disk_free_bytes: u64,
    /// Its parent process, unless it runs without one.
    pub supervisor: Option<SupervisorStatus>,
    /// Whether it gives its leases up and takes no new ones.
    pub drain: DrainStatus,
    /// Where it shows its page and its metrics, if it does.
    pub page: Option<PageStatus>,
    /// The other daemons of the map.
    #[serde(deserialize_with = "bounded::list::<STATUS_PEERS_MAX, _, _>")]
    pub peers: Vec<PeerStatus>,
    /// What it has of which too few members are there.
    #[serde(deserialize_with = "bounded::list::<STATUS_LACKING_MAX, _, _>")]
    pub lacking: Vec<LackingStatus>,
    /// The recoveries here that wait for somebody, or for an operator; there may be more if these are as many as there may be.
    #[serde(deserialize_with = "bounded::list::<STATUS_BLOCKED_MAX, _, _>")]
    pub blocked: Vec<BlockedStatus>,
}

/// Who answers.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DaemonStatus {
    /// Which run of which node.
    pub process: Process,
    /// Its data directory.
    pub store: StoreId,
    /// The version of its program.
    pub version: String,
    /// How long it has been running.
    pub uptime_ms: u64,
}

/// What the clock guard says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ClockStatus {
    /// Whether the clock is trusted.
    pub state: ClockTrust,
    /// The largest possible offset of any peer that was heard, if one was.
    pub offset_max_us: Option<u64>,
    /// The bound in force.
    pub epsilon_us: u64,
}

/// Whether a clock is trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClockTrust {
    /// Not yet known to agree with a majority.
    Joining,
    /// It agrees with a majority.
    Sound,
    /// It disagrees with a majority, or it jumped.
    Off,
}

/// Leases, and what was counted since the daemon started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LeaseStatus {
    /// Leases it owns of locks.
    pub held: u64,
    /// Files and volumes it is primary of, or about to be or not to be.
    pub primaries: u64,
    /// Those of which some connected member lacks something.
    pub behind: u64,
    /// Leases it is about to acquire or to give up.
    pub changing: u64,
    /// Cells it remembers something of.
    pub registers: u64,
    /// Leases it acquired.
    pub acquired: u64,
    /// Times it renewed one.
    pub renewed: u64,
    /// Leases that ran out on it.
    pub lost: u64,
    /// Times it wanted one that somebody else had.
    pub denied: u64,
    /// Attempts that met a higher ballot.
    pub conflicts: u64,
    /// Attempts that found no majority in time.
    pub timeouts: u64,
}

/// Locks as they are now.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LockStatus {
    /// Locks that clients hold through this daemon.
    pub held: u64,
    /// Requests that wait for a lock.
    pub waiting: u64,
    /// Clients with a session.
    pub sessions: u64,
}

/// What clients have asked of files and volumes since the daemon started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WorkStatus {
    /// Requests, also those that it did not answer for.
    pub requests: u64,
    /// Bytes of data that came with them.
    pub written_bytes: u64,
    /// Bytes of data that it gave.
    pub read_bytes: u64,
}

/// The daemon's parent process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SupervisorStatus {
    /// How often it has started the daemon again.
    pub restarts: u64,
    /// Whether it waits longer and longer because the daemon keeps dying.
    pub crash_looping: bool,
}

/// The page that a daemon serves.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PageStatus {
    /// Its address for a browser.
    pub url: String,
    /// Whether a token has to be shown.
    pub needs_token: bool,
    /// Why nobody answers there, if that is so.
    pub fault: Option<String>,
}

/// Another daemon, as this one sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Which.
    pub node: NodeId,
    /// Its run, if it ever connected.
    pub incarnation: Option<Incarnation>,
    /// Whether it is connected now.
    pub connected: bool,
    /// How long a question and its answer took last.
    pub round_trip_us: Option<u64>,
    /// How long ago it last told its time, which it is asked for all the time; none if it never did.
    pub last_heard_ms: Option<u64>,
    /// The bounds of its clock minus this daemon's.
    pub offset_us: Option<(i64, i64)>,
}

/// Files and volumes that wait, because too few of their members are connected with a daemon that is one of them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LackingStatus {
    /// Their members.
    #[serde(deserialize_with = "bounded::list::<STATUS_MEMBERS_MAX, _, _>")]
    pub members: Vec<NodeId>,
    /// How many there are that have these.
    pub objects: u64,
}

/// A file or volume that is not served, because too few of those who answer remember all that they ever acknowledged.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlockedStatus {
    /// Which.
    pub object: ObjectId,
    /// Members that do not answer, and may be the ones who remember.
    #[serde(deserialize_with = "bounded::list::<STATUS_MEMBERS_MAX, _, _>")]
    pub missing: Vec<NodeId>,
    /// Members that answer, and cannot give all that they acknowledged.
    #[serde(deserialize_with = "bounded::list::<STATUS_MEMBERS_MAX, _, _>")]
    pub forgot: Vec<NodeId>,
}
