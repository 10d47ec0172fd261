//! The storage daemon.
//!
//! Only [`store`] touches data, only [`config`] reads what an operator wrote, and only [`clock`] reads clocks. Nothing
//! in this crate decides what the pure crates decide.

pub mod clock;
pub mod config;
pub mod daemon;
pub mod http;
pub mod lifeline;
pub mod metrics;
pub mod store;
pub mod supervisor;
