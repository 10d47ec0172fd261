//! Checkers: each watches one promise from outside and says when it was broken.
//!
//! They see true time and all nodes at once, which nobody in the simulated cluster does, and they trust no event that
//! a node reports about itself where they can ask for the fact.

use std::fmt;

use base::ObjectId;
use evidence::Fact;

use crate::TrueTime;

pub mod answers;
pub mod contents;
pub mod courtesy;
pub mod durability;
pub mod endings;
pub mod entries;
pub mod evidence;
pub mod exclusion;
pub mod histories;
pub mod kept;
pub mod kinds;
pub mod leftovers;
pub mod liveness;
pub mod locks;
pub mod moments;
pub mod order;
mod past;
pub mod promises;
pub mod promptness;
pub mod rejection;
pub mod renewal;
pub mod replicas;
pub mod replies;
pub mod sessions;
pub mod stores;
pub mod times;

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
    /// The fewest events that show it, oldest first.
    pub shown: Vec<Fact>,
}

impl Violation {
    /// A promise was broken, about no cell in particular.
    pub const fn new(at: TrueTime, checker: &'static str, what: String) -> Self {
        Self { at, cell: None, checker, what, shown: Vec::new() }
    }

    /// It is about this cell.
    pub fn about(self, cell: impl Into<Option<ObjectId>>) -> Self {
        Self { cell: cell.into(), ..self }
    }

    /// These events show it.
    pub fn shown_by(mut self, facts: impl IntoIterator<Item = Fact>) -> Self {
        self.shown.extend(facts);
        self.shown.sort_by_key(|fact| fact.at);
        self
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.cell {
            Some(cell) => write!(f, "at {} on cell {cell:?} ({}): {}", self.at, self.checker, self.what),
            None => write!(f, "at {} ({}): {}", self.at, self.checker, self.what),
        }
    }
}
