//! The cluster in one thread under a seed: production code over a fake network and fake clocks.
//!
//! A [`Plan`] is drawn from a seed and decides everything: how many nodes, how long a lease, which faults and how
//! often. A world runs it as a queue of events in *true time*, which only the world and the checkers see; each
//! node sees its own [`Clock`](clock::Clock). Checkers watch from outside and stop the run at the first broken
//! promise. The same plan gives the same run, byte for byte.
//!
//! # What is deliberately absent
//!
//! No thread, no wall clock, no file, no hash map whose order could reach an outcome, no randomness but the seed's.
//! No model of the protocol: what runs is the production [`LeaseNode`](::lease::LeaseNode), and in a whole cluster the
//! production [`Shard`](node::Shard) and [`Core`](client::core::Core) of a client.

pub mod check;
pub mod checkers;
pub mod clock;
pub mod cluster;
pub mod faults;
pub mod lease;
pub mod network;
pub mod plan;
mod queue;
mod simulation;
pub mod summary;
pub mod trace;

pub use checkers::Violation;
pub use clock::TrueTime;
pub use faults::FaultPlan;
pub use plan::Plan;
pub use simulation::{Outcome, Simulation};
pub use summary::{FaultKind, Summary};
pub use trace::Trace;
