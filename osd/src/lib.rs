//! The storage daemon.
//!
//! Only [`store`] touches data, and only [`config`] reads what an operator wrote. Nothing in this crate decides what
//! the pure crates decide.

pub mod config;
pub mod store;
