//! The storage daemon.
//!
//! Only [`store`] touches files, and nothing in this crate decides what the pure crates decide.

pub mod store;
