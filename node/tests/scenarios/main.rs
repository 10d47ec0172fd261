//! One story for each way in which a lock, its token or a session could go wrong.

mod access;
mod bugs;
mod capabilities;
mod client;
mod clocks;
mod cluster;
mod confined;
mod content;
mod durable;
mod endings;
mod failures;
mod files;
mod grants;
mod hosting;
mod members;
mod restarts;
mod space;
mod volumes;
