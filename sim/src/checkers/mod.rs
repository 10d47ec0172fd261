//! Checkers: each watches one promise from outside and says when it was broken.
//!
//! They see true time and all nodes at once, which nobody in the simulated cluster does, and they trust no event that
//! a node reports about itself where they can ask for the fact.

use std::fmt;

use base::ObjectId;

use crate::TrueTime;

pub mod answers;
pub mod courtesy;
pub mod durability;
pub mod entries;
pub mod exclusion;
pub mod histories;
pub mod liveness;
pub mod locks;
mod past;
pub mod promises;
pub mod promptness;
pub mod rejection;
pub mod renewal;
pub mod sessions;

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// When.
    pub at: TrueTime,
    /// About which cell, if about one.
    pub cell: Option<ObjectId>,
    /// Which checker says so.
    pub checker: &'static str,
    /// What happened.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cell {
            Some(cell) => write!(f, "at {} on cell {cell:?} ({}): {}", self.at, self.checker, self.what),
            None => write!(f, "at {} ({}): {}", self.at, self.checker, self.what),
        }
    }
}
