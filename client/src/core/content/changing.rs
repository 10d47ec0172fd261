//! How a file is changed, step by step, by whoever has it open to write: here if it is lent to this client or can be, and else at its
//! content.

use base::{MonoTime, Span};
use namespace::{Attributes, Generation};

use super::known::Known;

/// A file that several use is asked for again after so long: until then all of them write to its content.
const SHARED_FOR: Span = Span::from_secs(10);
/// How often a lend by which nothing may be answered is asked for.
const BORROWS_MAX: u32 = 3;

/// How whoever has a file open writes to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Through {
    /// Until then what is written goes to the content.
    until: MonoTime,
}

/// What is to be done for a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChangeStep<T> {
    /// It is done here.
    Done(T),
    /// Ask the volume to lend the file to this client, and tell by [`lent`](Changing::lent).
    Borrow,
    /// Ask for the [next](Changing::next) step when there is room for what is written.
    WaitForRoom,
    /// The same when this lend, which is on its way back, is over.
    WaitForEnd(Generation),
    /// The same when what is lent to this client is returned.
    GiveBack,
    /// Have the content do it.
    Through,
}

/// What the volume says to who wants a file lent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lent<'a> {
    /// The file is like this.
    Shown(&'a Attributes),
    /// It was lent to somebody at the same time.
    ToOther,
}

/// What to do with what the volume has lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Borrowed {
    /// Nothing is lent to this client.
    Nothing,
    /// It [knows](super::Contents::adopt) of this lend, or is about to.
    Own(Generation),
}

/// One change.
#[derive(Clone, Debug)]
pub struct Changing {
    /// So often the file may still be asked for.
    borrows: u32,
    gives_back: bool,
}

impl Changing {
    /// Somebody wants to change a file. It may have been opened only to be read, or nothing is to be lent to this client, or only the content
    /// can do it.
    pub const fn new(may_borrow: bool) -> Self {
        Self { borrows: if may_borrow { BORROWS_MAX } else { 0 }, gives_back: true }
    }

    /// What to do first, or when something is different.
    pub fn next<T>(
        &mut self,
        known: &mut Known<'_>,
        through: &Through,
        act: impl FnOnce(&mut Known<'_>, Generation) -> Option<T>,
    ) -> ChangeStep<T> {
        if !known.contents.has_room() {
            return ChangeStep::WaitForRoom;
        }
        if let Some(generation) = known.lent()
            && let Some(done) = act(known, generation)
        {
            return ChangeStep::Done(done);
        }
        if self.borrows > 0 && known.now >= through.until {
            self.borrows -= 1;
            let lend = known.contents.generation(known.id);
            // A lend that is on its way back has to be over, or it would be taken for the next one.
            let leaving = lend.filter(|&lend| known.contents.shows(known.id, lend).is_none());
            return leaving.map_or(ChangeStep::Borrow, ChangeStep::WaitForEnd);
        }
        // What is here and may not be used would be in the way of what goes there.
        if std::mem::take(&mut self.gives_back) && known.contents.give_back(known.id) {
            return ChangeStep::GiveBack;
        }
        ChangeStep::Through
    }

    /// The volume was asked to lend the file.
    pub fn lent(&mut self, known: &Known<'_>, through: &mut Through, lent: &Lent<'_>) -> Borrowed {
        match lent {
            Lent::ToOther => self.borrows = 0,
            Lent::Shown(attributes) => match known.contents.own(attributes) {
                Some(generation) => return Borrowed::Own(generation),
                None => through.until = known.now + SHARED_FOR,
            },
        }
        Borrowed::Nothing
    }
}
