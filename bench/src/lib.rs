//! Measurements. The only library that reads clocks in order to time things: what it times brings none.
//!
//! A measurement sets its subject up, runs it in several short rounds and reports medians as a plain struct; the
//! command prints that. Deliberately absent: printing, argument parsing, and verdicts about what is good enough.

pub mod floor;
mod others;
mod stats;
