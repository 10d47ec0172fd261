//! One story for each way in which a lock, its token or a session could go wrong.

mod access;
#[macro_use]
mod bugs;
mod behind;
mod caches;
mod capabilities;
mod client;
mod clocks;
mod cluster;
mod confined;
mod content;
mod drains;
mod durable;
mod endings;
mod failures;
mod files;
mod grants;
mod hosting;
mod lends;
mod lost_ends;
mod members;
mod opens;
mod operators;
mod over;
mod places;
mod restarts;
mod space;
mod takeovers;
mod volumes;
