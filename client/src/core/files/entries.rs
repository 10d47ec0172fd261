//! Changes that a program was promised: each has its number before it is there, and waits for nothing.
//!
//! Whoever creates a file by itself has told somebody that it is there, so what enters it in its volume has to come through. What the volume is asked
//! beside that may wait until something is entered, here or elsewhere, and so may not be in the way.

use base::{MonoTime, ObjectId};
use node::file::{Change, Level};

use super::super::Rules;
use super::job::{Opening, Wish};
use super::{FileTicket, Files};

impl Files {
    /// The same, by these rules.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// Keeps a number for a file that is about to be created here. False if there is none to be had now.
    pub fn promise(&mut self, now: MonoTime, volume: ObjectId) -> bool {
        if !self.know(now, volume) {
            return false;
        }
        let known = self.objects.get_mut(&volume).filter(|known| known.has_number());
        known.map(|known| known.promise()).is_some()
    }

    /// What a number was kept for is not told.
    pub fn renounce(&mut self, now: MonoTime, volume: ObjectId) {
        if let Some(known) = self.objects.get_mut(&volume) {
            known.renounce();
            self.go_ahead(now, volume);
        }
    }

    /// Has a file entered for which a number was kept, and holds it open if what comes of that opens it.
    pub fn enter_to_hold(
        &mut self,
        now: MonoTime,
        volume: ObjectId,
        change: Change,
        level: Level,
    ) -> FileTicket {
        self.begin_holding(now, volume, Wish::Enter(change, level))
    }

    /// Has a file opened that was opened here already and for which a number was kept, as what goes first has.
    pub fn open_own_to_hold(&mut self, now: MonoTime, volume: ObjectId, opening: Opening) -> FileTicket {
        self.begin_holding(now, volume, Wish::OpenOwn(opening))
    }
}
