//! Mounts of real clusters: what programs see through one, through two at once, and when something goes wrong.
//!
//! Each test has a cluster of its own, so they run beside each other.

mod caches;
mod extents;
mod helper;
mod life;
mod locks;
mod long;
mod mishaps;
mod refused;
mod room;
mod silent;
mod strangers;
mod support;
mod together;
mod users;
