//! Objects that a program has, and how often something of each was lost: each handle is told once.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use base::ObjectId;

/// Of so many objects a loss is remembered that nobody has.
const LOST_MAX: usize = 1 << 16;

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    open: BTreeMap<ObjectId, Open>,
    /// Something of these was lost, and nobody who had them was told. Whoever syncs them next is.
    lost: BTreeSet<ObjectId>,
    unsaid: Option<(ObjectId, usize)>,
}

/// An object that is open.
#[derive(Debug, Default)]
struct Open {
    count: usize,
    /// How often something was lost, and of how many of those somebody was told.
    losses: u64,
    told: u64,
}

impl Handles {
    /// One more handle. Returns how many losses are none of its.
    pub(crate) fn open(&mut self, id: ObjectId) -> u64 {
        let is_lost = self.lost.contains(&id);
        let losses = u64::from(is_lost);
        let open = self.open.entry(id).or_insert(Open { losses, ..Open::default() });
        open.count += 1;
        if is_lost { 0 } else { open.losses }
    }

    /// One less. Whether that was the last.
    pub(crate) fn close(&mut self, id: ObjectId) -> bool {
        let Entry::Occupied(mut entry) = self.open.entry(id) else { return false };
        entry.get_mut().count -= 1;
        if entry.get().count > 0 {
            return false;
        }
        let Open { losses, told, .. } = entry.remove();
        if losses > told {
            self.remember(id);
        }
        true
    }

    /// Something of an object is lost.
    pub(crate) fn note_loss(&mut self, id: ObjectId) {
        if let Some(open) = self.open.get_mut(&id) {
            open.losses += 1;
            return;
        }
        self.unsaid.get_or_insert((id, 0)).1 += 1;
        self.remember(id);
    }

    /// Whoever has it next is told that something of it was lost.
    pub(crate) fn remember(&mut self, id: ObjectId) {
        if self.lost.len() < LOST_MAX {
            self.lost.insert(id);
        }
    }

    pub(crate) fn is_open(&self, id: ObjectId) -> bool {
        self.open.contains_key(&id)
    }

    pub(crate) fn losses(&self, id: ObjectId) -> u64 {
        self.open.get(&id).map_or(0, |open| open.losses)
    }

    /// The same for somebody who knows of so many, and is told if there are others.
    pub(crate) fn take_losses(&mut self, id: ObjectId, known: u64) -> u64 {
        let Some(open) = self.open.get_mut(&id) else { return 0 };
        if open.losses != known {
            open.told = open.losses;
            self.lost.remove(&id);
        }
        open.losses
    }

    /// Of how many losses somebody was told.
    pub(crate) fn told(&self, id: ObjectId) -> u64 {
        self.open.get(&id).map_or(0, |open| open.told)
    }

    /// The object was removed: nobody asks what was lost of it.
    pub(crate) fn note_removed(&mut self, id: ObjectId) {
        self.lost.remove(&id);
    }

    /// All of which something was lost that nobody was told.
    pub(crate) fn untold(&self) -> impl Iterator<Item = ObjectId> {
        self.lost.iter().copied()
    }

    /// How many losses were noted that no handle is told of, and of what the first was, since this was asked last.
    pub(crate) fn take_unsaid(&mut self) -> Option<(ObjectId, usize)> {
        self.unsaid.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OBJECT: ObjectId = ObjectId::new(1, 2);

    /// Whether who knows of so many losses is told of one when he syncs, and of how many he knows then.
    fn synced(handles: &mut Handles, known: u64) -> (bool, u64) {
        let losses = handles.take_losses(OBJECT, known);
        (losses != known, losses)
    }

    #[test]
    fn each_handle_is_told_of_what_is_lost_while_it_is_there() {
        let mut handles = Handles::default();
        let first = handles.open(OBJECT);
        handles.note_loss(OBJECT);
        let second = handles.open(OBJECT);
        assert_eq!(synced(&mut handles, second), (false, 1), "that was before");
        assert_eq!(synced(&mut handles, first), (true, 1));
        assert_eq!(
            (handles.close(OBJECT), handles.close(OBJECT), handles.close(OBJECT)),
            (false, true, false)
        );
        let next = handles.open(OBJECT);
        assert!(!synced(&mut handles, next).0, "that was told");
    }

    #[test]
    fn who_opens_what_was_lost_before_is_told_until_somebody_was() {
        let mut handles = Handles::default();
        handles.note_loss(OBJECT);
        assert_eq!((handles.take_unsaid(), handles.take_unsaid()), (Some((OBJECT, 1)), None));
        let first = handles.open(OBJECT);
        assert_ne!(handles.losses(OBJECT), first);
        handles.close(OBJECT);
        let [second, third] = [(); 2].map(|()| handles.open(OBJECT));
        assert!(synced(&mut handles, second).0, "nobody was");
        assert!(synced(&mut handles, third).0, "it was there as well");
        let next = handles.open(OBJECT);
        assert!(!synced(&mut handles, next).0, "two were");
        assert_eq!(handles.told(OBJECT), next);
    }

    #[test]
    fn what_nobody_was_told_before_he_closed_it_is_told_to_the_next() {
        let mut handles = Handles::default();
        handles.open(OBJECT);
        handles.note_loss(OBJECT);
        let later = handles.open(OBJECT);
        assert!(!synced(&mut handles, later).0);
        (0..2).for_each(|_| _ = handles.close(OBJECT));
        let next = handles.open(OBJECT);
        assert!(synced(&mut handles, next).0, "who had it has not asked");
        handles.close(OBJECT);
        let last = handles.open(OBJECT);
        assert!(!synced(&mut handles, last).0);
    }

    #[test]
    fn of_what_was_removed_nothing_is_told() {
        let mut handles = Handles::default();
        handles.note_loss(OBJECT);
        handles.note_removed(OBJECT);
        let next = handles.open(OBJECT);
        assert!(!synced(&mut handles, next).0);
    }
}
