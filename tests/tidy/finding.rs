//! What a rule reports: where, what, and why the rule exists.

use std::fmt;

/// One broken rule at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The file, relative to the root of the workspace.
    pub(crate) path: String,
    /// Counted from 1.
    pub(crate) line: usize,
    /// What stands there that must not.
    pub(crate) what: String,
    /// Why not, and what to do instead.
    pub(crate) reason: String,
}

impl Finding {
    /// A finding from its parts.
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into(), reason: reason.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.path, self.line, self.what, self.reason)
    }
}
