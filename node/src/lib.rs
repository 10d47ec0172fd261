//! One shard of a storage daemon as a pure state machine: what the daemon drives and the simulator runs as it is.

mod map;
mod message;
mod status;

pub use map::{ClusterMap, LeaseAlgorithm, MapError, Osd, REPLICAS_DEFAULT, Settings};
pub use message::{
    CLIENT_BATCH_MAX, ClientFrame, ClientId, DaemonFrame, Grant, PEER_BATCH_MAX, PeerMessage, Record, Reply,
    ReplyBody, Request, RequestBody, RequestId, Token, Unavailable,
};
pub use status::{
    ClockStatus, ClockTrust, DaemonStatus, LeaseStatus, LockStatus, PeerStatus, STATUS_PEERS_MAX, Status,
    SupervisorStatus,
};
