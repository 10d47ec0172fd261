//! Who is primary until when: lease coordination without a lock server and without a disk.
//!
//! Every replicated object has a *cell*. Its members keep a round-based register for it in memory, and whoever
//! gets a majority of them to accept a value naming itself owns the object until that value expires. Two
//! algorithms share one engine: [`Flease`] (absolute expiry on loosely synchronised clocks; what files use) and
//! [`PaxosLease`] (relative spans, no synchronisation).
//!
//! # Contract
//!
//! [`LeaseNode`] is one shard's proposer and acceptor in one. It is pure: every call names the time, and
//! everything it wants done comes out of the `poll_*` methods.
//!
//! - *Commands*: [`acquire`](LeaseNode::acquire), [`release`](LeaseNode::release),
//!   [`hand_over`](LeaseNode::hand_over), [`change_view`](LeaseNode::change_view),
//!   [`stand_down`](LeaseNode::stand_down), [`resume`](LeaseNode::resume).
//! - *Events in*: [`handle_batch`](LeaseNode::handle_batch), [`handle_timeout`](LeaseNode::handle_timeout),
//!   [`handle_death_notice`](LeaseNode::handle_death_notice).
//! - *Out*: [`poll_transmit`](LeaseNode::poll_transmit), [`poll_event`](LeaseNode::poll_event) and
//!   [`poll_timeout`](LeaseNode::poll_timeout), which may change after any command or event.
//!   Both queues grow until they are drained, which is the caller's duty after every call.
//! - [`holds`](LeaseNode::holds) is asked for every operation with a clock reading taken for that operation.
//!
//! # What is deliberately absent
//!
//! No clock, socket, file or source of randomness. No knowledge of files, logs or clients: a watermark is carried
//! as a plain value. No decision that outlives memory: a restarted node is silent until nothing it may have
//! voted for can still be valid.

mod acceptor;
mod algorithm;
mod ballot;
mod bugs;
mod cells;
mod claim;
mod clock_guard;
mod config;
mod counters;
mod event;
mod flease;
mod message;
mod node;
mod pace;
mod paxoslease;
mod proposer;
mod timers;
mod trail;
mod views;

pub use algorithm::{Algorithm, Standing};
pub use ballot::{Ballot, INTERVAL_MAX, ROUND_MAX, Stamp};
pub use bugs::Bug;
pub use clock_guard::{ClockGuard, ClockState, Exchange, GuardConfig, GuardConfigError};
pub use config::{Config, ConfigError};
pub use counters::Counters;
pub use event::{Denial, Event, Loss, Refusal};
pub use flease::FleaseRules;
pub use message::{Batch, Body, Ended, Expiry, Given, Lease, LeaseId, Message, Reject, Watermark, Written};
pub use node::{Hint, LeaseNode, Membership, Start};
pub use paxoslease::PaxosRules;
pub use trail::{TrailEntry, TrailKind};
pub use views::ViewSource;

/// Leases on loosely synchronised clocks, with absolute expiry times.
pub type Flease = LeaseNode<FleaseRules>;

/// Leases on unsynchronised clocks, with relative spans.
pub type PaxosLease = LeaseNode<PaxosRules>;
