//! What the owner of a file sets that is lent to this client. It is known here alone until the lend is returned.
//!
//! The volume takes what comes back with a lend for later than what it was told meanwhile. So while it is told of permissions or an owner by
//! a call of this very client, from which it takes nothing back for that, nothing is set here: whoever sets something tells the volume, too.

use base::{MonoTime, WallTime};
use namespace::Generation;

use super::lend::Lend;
use super::{Bug, Contents, FileId, OwnerSet};

impl Contents {
    /// Its owner sets something. None if it is not lent, or wanted back, or if that is the volume's to set just now.
    pub fn set_by_owner(
        &mut self,
        at: (MonoTime, WallTime),
        (id, generation): (FileId, Generation),
        set: OwnerSet,
    ) -> Option<()> {
        let is_judged = self.files.get(&id).is_some_and(|file| file.judged > 0);
        if is_judged && !self.rules.breaks(Bug::SetWhileJudged) {
            return None;
        }
        self.serving((id, generation), |lend| lend.set_by_owner(at, set))
    }

    /// Whether the owner has set something that is known here alone.
    pub fn has_own_set(&self, id: FileId) -> bool {
        self.lend(id).is_some_and(Lend::has_own_set)
    }

    /// Whether the owner has set permissions that are known here alone.
    pub fn has_own_mode(&self, id: FileId) -> bool {
        self.lend(id).is_some_and(|lend| lend.mode.is_some())
    }

    /// The volume is about to be told of what the owner may set here. What is set here already goes back first.
    pub fn begin_judging(&mut self, id: FileId) {
        self.files.entry(id).or_default().judged += 1;
    }

    /// That has an outcome.
    pub fn end_judging(&mut self, id: FileId) {
        if let Some(file) = self.files.get_mut(&id) {
            file.judged -= 1;
        }
        self.tidy(id);
    }
}
