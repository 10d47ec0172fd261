//! Measurements. The only library that reads clocks in order to time things: what it times brings none.
//!
//! A measurement sets its subject up, runs it in several short rounds and reports medians as a plain struct; the
//! command prints that. Deliberately absent: printing and argument parsing.

pub mod control;
pub mod daemons;
pub mod demo;
pub mod failover;
pub mod file_load;
pub mod floor;
pub mod heap;
pub mod lease_load;
pub mod lease_memory;
pub mod lease_quic;
pub mod lock_failover;
pub mod meta_load;
pub mod mounted;
pub mod netns;
pub mod object_load;
mod others;
mod stats;
pub mod trio;
