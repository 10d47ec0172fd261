//! The storage daemon.
//!
//! Only [`store`] touches data, only [`clock`] reads clocks, and nothing in this crate decides what the pure crates decide.

pub mod clock;
pub mod store;
pub mod supervisor;
