//! Locks as entries: who gets one, who waits, and whose waiting would never end.
//!
//! Who waits, waits for those who have locks in its way and for those who asked for such before. A request that does not
//! wait minds only what others have. Nobody is made to wait in a circle: if it is only the queue that would close one, the
//! request gets in front of whom it would wait for in vain; if it is what others have, it is refused.

use std::collections::BTreeSet;
use std::iter::once;
use std::ops::Bound;
use std::sync::Arc;

use base::ClientId;

use crate::draft::Draft;
use crate::limits::{GRANTED_MAX, LOCKS_MAX, WAITING_MAX, WAITS_MAX, WAITS_WALK_MAX};
use crate::{
    Born, Done, Grant, Granted, InodeId, Key, Lock, LockKind, Locks, NameError, Owner, Part, Stretch, Table,
    Ticket, Waiting,
};

impl Granted {
    const fn room(&self) -> usize {
        GRANTED_MAX.saturating_sub(self.all.len())
    }
}

impl<T: Table> Draft<'_, T> {
    /// The locks of a file.
    pub(crate) fn locks(&self, inode: InodeId) -> Option<Arc<Locks>> {
        match self.get(&Key::Locks(inode)) {
            Some(Part::Locks(locks)) => Some(locks),
            _ => None,
        }
    }

    fn own_locks(&self, inode: InodeId) -> Locks {
        self.locks(inode).map(|locks| Locks::clone(&locks)).unwrap_or_default()
    }

    /// Locks a stretch of a file, or waits for it.
    pub(crate) fn lock(&mut self, inode: InodeId, lock: &Lock, wait: bool) -> Result<Done, NameError> {
        let lock = lock.checked()?;
        self.inode(inode)?;
        if !self.record(lock.owner.client)? {
            return Err(NameError::Expired { client: lock.owner.client });
        }
        let mut locks = self.own_locks(inode);
        let in_the_way = locks.in_the_way(&lock).map(|held| held.owner);
        // Whoever has not heard that it waits asks again.
        let again = locks.same_wish(&lock).filter(|_| wait);
        let waits = match in_the_way {
            Some(by) if !wait => return Err(NameError::Locked { by }),
            _ if again.is_some() => again,
            Some(_) => Some(self.queue(inode, &mut locks, lock, true)?),
            // Nobody has anything against it, so that it may as well be granted when there is no place for it.
            None if wait && locks.blockers(&lock, locks.waiting.len()).next().is_some() => {
                self.queue(inode, &mut locks, lock, false).ok()
            }
            None => None,
        };
        if waits.is_none() {
            locks.take(lock);
        }
        let mut granted = Granted::NONE;
        self.settle_file(inode, &mut locks, &mut granted);
        self.store(inode, locks, &[lock.owner.client])?;
        // Those whom it let pass may be out of its way at once, when they want less after they wanted more.
        let is_had = |ticket: &Ticket| granted.all.iter().any(|grant| grant.ticket == *ticket);
        let waits = waits.filter(|ticket| !is_had(ticket));
        granted.all.retain(|grant| grant.ticket != Ticket(self.at));
        Ok(Done::Locked { waits, granted })
    }

    /// Lets a request wait, at the end of the queue, or before the first that it would have to wait for if it may pass.
    fn queue(
        &mut self,
        inode: InodeId,
        locks: &mut Locks,
        lock: Lock,
        may_pass: bool,
    ) -> Result<Ticket, NameError> {
        if locks.waiting.len() >= WAITING_MAX || self.waits_of(lock.owner).len() >= WAITS_MAX {
            return Err(NameError::TooManyLocks { inode });
        }
        let mut then = locks.clone();
        if lock.kind == LockKind::Flock {
            then.give_up(lock.owner, lock.kind, lock.stretch);
        }
        let end = then.waiting.len();
        let front = then.waiting.iter().position(|waiting| waiting.lock.conflicts(&lock)).unwrap_or(end);
        let ticket = Ticket(self.at);
        for place in once(end).chain(may_pass.then_some(front)) {
            then.waiting.insert(place, Waiting { ticket, lock });
            if !self.closes_circle(inode, &then, lock.owner) {
                *locks = then;
                self.put(Key::Wait(lock.owner, ticket), Part::Wait(inode));
                return Ok(ticket);
            }
            then.waiting.remove(place);
        }
        Err(NameError::Deadlock { owner: lock.owner })
    }

    /// Whether an owner waits for somebody who waits for it, if these were the locks of the file.
    fn closes_circle(&self, inode: InodeId, then: &Locks, owner: Owner) -> bool {
        let (mut seen, mut open) = (BTreeSet::new(), vec![owner]);
        while let Some(next) = open.pop() {
            let mut files = self.waits_of(next);
            if next == owner {
                files.push(inode);
            }
            for file in files {
                let other = if file == inode { None } else { self.locks(file) };
                let locks = if file == inode { Some(then) } else { other.as_deref() };
                for blocker in locks.into_iter().flat_map(|locks| blockers_of(locks, next)) {
                    if blocker == owner || seen.len() >= WAITS_WALK_MAX {
                        return true;
                    }
                    if seen.insert(blocker) {
                        open.push(blocker);
                    }
                }
            }
        }
        false
    }

    /// The files whose locks an owner waits for.
    fn waits_of(&self, owner: Owner) -> Vec<InodeId> {
        let from = Key::Wait(owner, Ticket(Born::default()));
        let page = self.page(Bound::Included(&from), WAITS_MAX);
        let own = page.into_iter().take_while(|(key, _)| matches!(key, Key::Wait(of, _) if *of == owner));
        own.filter_map(|(_, part)| if let Part::Wait(inode) = part { Some(inode) } else { None }).collect()
    }

    /// Gives up what an owner has locked of a stretch, and what it waits for there: what was asked for before this is not to be granted after it.
    pub(crate) fn unlock(
        &mut self,
        inode: InodeId,
        (owner, kind): (Owner, LockKind),
        stretch: Stretch,
    ) -> Result<Done, NameError> {
        let stretch = checked(kind, stretch)?;
        self.inode(inode)?;
        let mut locks = self.own_locks(inode);
        let before = locks.held.len();
        locks.give_up(owner, kind, stretch);
        for Waiting { ticket, .. } in locks.drop_wishes(owner, kind, stretch) {
            self.remove(Key::Wait(owner, ticket));
        }
        if locks.held.len() > before.max(LOCKS_MAX) {
            return Err(NameError::TooManyLocks { inode });
        }
        let mut granted = Granted::NONE;
        self.settle_file(inode, &mut locks, &mut granted);
        self.store(inode, locks, &[owner.client])?;
        Ok(Done::Unlocked { granted })
    }

    /// Takes a waiting request of a client back.
    pub(crate) fn cancel(
        &mut self,
        inode: InodeId,
        ticket: Ticket,
        client: ClientId,
    ) -> Result<Done, NameError> {
        let mut locks = self.own_locks(inode);
        let place = locks.waiting.iter().position(|waiting| waiting.ticket == ticket);
        let place = place.ok_or(NameError::NotWaiting { ticket })?;
        let owner = locks.waiting[place].lock.owner;
        if owner.client != client {
            return Err(NameError::Foreign { owner });
        }
        locks.waiting.remove(place);
        self.remove(Key::Wait(owner, ticket));
        let mut granted = Granted::NONE;
        self.settle_file(inode, &mut locks, &mut granted);
        self.store(inode, locks, &[client])?;
        Ok(Done::Unlocked { granted })
    }

    /// Grants what earlier entries had no room for.
    pub(crate) fn settle(&mut self) -> Result<Done, NameError> {
        let mut granted = Granted::NONE;
        while granted.room() > 0 {
            let Some(inode) = self.first_unsettled() else { break };
            let mut locks = self.own_locks(inode);
            self.remove(Key::Unsettled(inode));
            self.settle_file(inode, &mut locks, &mut granted);
            self.store(inode, locks, &[])?;
        }
        granted.more = self.first_unsettled().is_some();
        Ok(Done::Unlocked { granted })
    }

    fn first_unsettled(&self) -> Option<InodeId> {
        let from = Key::Unsettled(InodeId::FIRST);
        match self.page(Bound::Included(&from), 1).pop()? {
            (Key::Unsettled(inode), _) => Some(inode),
            _ => None,
        }
    }

    /// Takes what a client has locked of a file, and its requests, away.
    pub(crate) fn unlock_client(
        &mut self,
        inode: InodeId,
        client: ClientId,
        granted: &mut Granted,
    ) -> Result<(), NameError> {
        let mut locks = self.own_locks(inode);
        for Waiting { ticket, lock } in locks.drop_client(client) {
            self.remove(Key::Wait(lock.owner, ticket));
        }
        self.settle_file(inode, &mut locks, granted);
        self.store(inode, locks, &[client])
    }

    /// Takes all locks of an inode away that is gone.
    pub(crate) fn drop_locks(&mut self, inode: InodeId) {
        let Some(locks) = self.locks(inode) else { return };
        for Waiting { ticket, lock } in &locks.waiting {
            self.remove(Key::Wait(lock.owner, *ticket));
            self.remove(Key::Locker(lock.owner.client, inode));
        }
        locks.held.iter().for_each(|lock| self.remove(Key::Locker(lock.owner.client, inode)));
        self.remove(Key::Unsettled(inode));
        self.remove(Key::Locks(inode));
    }

    /// Grants what can be granted on a file, as far as the outcome has room. The rest is noted.
    fn settle_file(&mut self, inode: InodeId, locks: &mut Locks, granted: &mut Granted) {
        let (all, more) = locks.settle(granted.room());
        for Waiting { ticket, lock: Lock { owner, .. } } in all {
            self.remove(Key::Wait(owner, ticket));
            granted.all.push(Grant { owner, ticket });
        }
        if more {
            granted.more = true;
            self.put(Key::Unsettled(inode), Part::Mark);
        } else {
            self.remove(Key::Unsettled(inode));
        }
    }

    /// Puts the locks of a file into place, and notes whether these clients have to do with it.
    fn store(&mut self, inode: InodeId, locks: Locks, clients: &[ClientId]) -> Result<(), NameError> {
        if locks.held.len() > LOCKS_MAX {
            return Err(NameError::TooManyLocks { inode });
        }
        for &client in clients {
            if locks.concern(client) {
                self.put(Key::Locker(client, inode), Part::Mark);
            } else {
                self.remove(Key::Locker(client, inode));
            }
        }
        if locks.is_empty() {
            self.remove(Key::Locks(inode));
        } else {
            self.put(Key::Locks(inode), Part::Locks(Arc::new(locks)));
        }
        Ok(())
    }
}

impl Lock {
    /// The same with a stretch that can be.
    pub(crate) fn checked(self) -> Result<Self, NameError> {
        Ok(Self { stretch: checked(self.kind, self.stretch)?, ..self })
    }
}

fn checked(kind: LockKind, stretch: Stretch) -> Result<Stretch, NameError> {
    match kind {
        LockKind::Flock => Ok(Stretch::ALL),
        LockKind::Fcntl if stretch.first > stretch.last => Err(NameError::NoStretch),
        LockKind::Fcntl => Ok(stretch),
    }
}

/// Whom an owner waits for in a file.
fn blockers_of(locks: &Locks, owner: Owner) -> impl Iterator<Item = Owner> {
    let own = locks.waiting.iter().enumerate().filter(move |(_, waiting)| waiting.lock.owner == owner);
    own.flat_map(|(place, waiting)| locks.blockers(&waiting.lock, place))
}
