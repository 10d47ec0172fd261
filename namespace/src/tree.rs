//! A table, as a tree.

use crate::Table;

/// A volume's tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree<T: Table> {
    table: T,
}

impl<T: Table> Tree<T> {
    /// The table.
    pub const fn table(&self) -> &T {
        &self.table
    }
}
