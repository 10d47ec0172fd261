//! What was said to be written, and is not known to be durable. Another client of the same program can make it so, or hear that it is lost.

use base::{MonoTime, ObjectId};
use node::file::Mark;

use super::Files;

/// From which change on, and up to which, something of a file is not known to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Debt {
    pub(super) oldest: Mark,
    pub(super) newest: Mark,
}

impl Files {
    /// How many changes of a file were acknowledged and are not known to be durable.
    pub fn owed(&self, object: ObjectId) -> usize {
        self.objects.get(&object).map_or(0, |object| object.owed.len())
    }

    /// What is owed of a file, if anything is.
    pub fn debt(&self, object: ObjectId) -> Option<Debt> {
        self.objects.get(&object)?.debt()
    }

    /// What another client owes of a file is owed by this one, too. False if there is no room for that.
    #[must_use]
    pub fn owe(&mut self, now: MonoTime, object: ObjectId, debt: Debt) -> bool {
        if !self.know(now, object) {
            return false;
        }
        for mark in [debt.oldest, debt.newest] {
            let ticket = self.ticket();
            self.acknowledged += 1;
            if let Some(object) = self.objects.get_mut(&object) {
                object.owed.insert(self.acknowledged, (ticket, mark));
            }
        }
        true
    }
}
