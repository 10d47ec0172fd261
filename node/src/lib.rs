//! One shard of a storage daemon as a pure state machine: what the daemon drives and the simulator runs as it is.

mod from_toml;
mod map;
mod message;

pub use from_toml::from_toml;
pub use map::{ClusterMap, LeaseAlgorithm, MapError, Osd, REPLICAS_DEFAULT, Settings, is_address};
pub use message::{
    CLIENT_BATCH_MAX, ClientFrame, ClientId, DaemonFrame, Grant, PEER_BATCH_MAX, PeerMessage, Record, Reply,
    ReplyBody, Request, RequestBody, RequestId, Token, Unavailable,
};
