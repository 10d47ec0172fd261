//! What was said to be written, and is not known to be durable. Another client of the same program can make it so, or hear that it is lost.

use base::{MonoTime, ObjectId};
use node::OpenMode;
use node::file::Mark;

use super::{Capability, Files};

/// From which change on, and up to which, something of a file is not known to be durable.
#[derive(Clone, Copy, Debug)]
pub(super) struct Debt {
    pub(super) oldest: Mark,
    pub(super) newest: Mark,
}

/// A debt that goes to another client, and what is shown to have the file synced.
#[derive(Clone, Copy, Debug)]
pub struct Handover {
    debt: Debt,
    shown: Option<Capability>,
}

impl Files {
    /// How many changes of a file were acknowledged and are not known to be durable.
    pub fn owed(&self, object: ObjectId) -> usize {
        self.objects.get(&object).map_or(0, |object| object.owed.len())
    }

    /// What is owed of a file and was not handed over before. It stays owed here: whoever waits for a sync is told what comes of it.
    pub fn hand_over(&mut self, object: ObjectId) -> Option<Handover> {
        let debt = self.objects.get_mut(&object)?.hand_over()?;
        Some(Handover { debt, shown: self.shown.of(object, OpenMode::Look) })
    }

    /// The same of all files.
    pub fn hand_over_all(&mut self) -> Vec<(ObjectId, Handover)> {
        let objects: Vec<ObjectId> = self.objects.keys().copied().collect();
        objects.into_iter().filter_map(|object| Some((object, self.hand_over(object)?))).collect()
    }

    /// What another client owes of a file is owed by this one, too, as two changes by tickets that nobody has. False if there is no room for that.
    #[must_use]
    pub fn owe(&mut self, now: MonoTime, object: ObjectId, Handover { debt, shown }: Handover) -> bool {
        if !self.know(now, object) {
            return false;
        }
        shown.into_iter().for_each(|capability| self.show(now, capability));
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
