//! Client sessions as a pure core, and the library that programs use.

mod config;
pub mod core;

pub use config::{CLUSTER_VARIABLE, CONFIG_FILE, Config, ConfigError, commented};
