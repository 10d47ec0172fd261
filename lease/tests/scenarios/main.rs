//! One story for each known way to get leases wrong.

mod bad_input;
mod cluster;
mod endings;
mod majorities;
mod restarts;
mod robustness;
mod simulated;
mod time;
