//! Mounts of real clusters: what programs see through one, through two at once, and when something goes wrong.
//!
//! Each test has a cluster of its own, so they run beside each other.

mod life;
mod mishaps;
mod support;
mod together;
mod users;
