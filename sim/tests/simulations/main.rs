//! Simulations that tests run: seeds that have to be clean, and rules that are broken and have to be found.
//!
//! One program for all, so that all processors have something to do until the last of them ends.

mod breaking;
mod cluster_ahead;
mod cluster_ahead_bugs;
mod cluster_cache_bugs;
mod cluster_client_bugs;
mod cluster_contents;
mod cluster_file_bugs;
mod cluster_lend_bugs;
mod cluster_lends;
mod cluster_planted_bugs;
mod cluster_real_seeds;
mod cluster_real_store_bugs;
mod cluster_seeds;
mod cluster_store_bugs;
mod cluster_volume_bugs;
mod cluster_wrong_clocks;
mod determinism;
mod finding;
mod lease_seeds;
mod planted_bugs;
mod seeds;
