//! The storage daemon.
//!
//! Only [`store`] touches data, only [`config`] reads what an operator wrote, and only [`clock`] reads clocks. Nothing
//! in this crate decides what the pure crates decide.

mod board;
pub mod clock;
pub mod config;
pub mod daemon;
mod http;
pub mod lifeline;
mod meter;
pub mod metrics;
pub mod store;
pub mod supervisor;

/// What a status calls a state of the clock guard.
const fn clock_trust(state: lease::ClockState) -> node::ClockTrust {
    match state {
        lease::ClockState::Joining => node::ClockTrust::Joining,
        lease::ClockState::Sound => node::ClockTrust::Sound,
        lease::ClockState::Off => node::ClockTrust::Off,
    }
}
