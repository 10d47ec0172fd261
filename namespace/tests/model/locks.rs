//! Locks, byte for byte: each owner has, of each kind, a row of bytes that are locked or are not.
//!
//! There are few different bytes. All the others stand in one cell of the row, which is locked as a whole.

use std::collections::BTreeSet;

use base::ClientId;
use namespace::{
    Born, Change, Done, Grant, Granted, InodeId, Lock, LockKind, LockMode, Locks, NameError, Op, Owner,
    Stretch, Ticket, Waiting, limits,
};

use crate::state::{Model, Node};

/// Where cells begin; each ends before the next begins.
pub(crate) const STARTS: [u64; 10] = [0, 1, 2, 3, 4, 5, 6, 7, u64::MAX - 1, u64::MAX];

/// How each cell is locked, if it is.
pub(crate) type Cells = [Option<LockMode>; STARTS.len()];

/// Where a cell ends.
pub(crate) fn end_of(cell: usize) -> u64 {
    STARTS.get(cell + 1).map_or(u64::MAX, |&next| next - 1)
}

impl Model {
    pub(crate) fn lock(&mut self, at: Born, op: &Op) -> Result<Done, NameError> {
        let Change::Lock { inode, lock, wait } = op.change else { unreachable!("it is asked to lock") };
        own(op, lock.owner)?;
        let lock = whole(lock)?;
        self.node(inode)?;
        self.record(op.client)?;
        let node = &self.nodes[&inode];
        let again =
            node.queue.iter().find(|waiting| wait && waiting.lock == lock).map(|waiting| waiting.ticket);
        let has = node.blockers(&lock, 0).first().copied();
        let is_first = node.blockers(&lock, usize::MAX).is_empty();
        let place = match (has, wait) {
            _ if again.is_some() => None,
            (Some(by), false) => return Err(NameError::Locked { by }),
            (Some(_), true) => Some(self.place(inode, &lock, true)?),
            // Nobody has anything against it, so it is granted where only the queue would close a circle.
            (None, true) if !is_first => self.place(inode, &lock, false).ok(),
            (None, _) => None,
        };
        let node = self.node_mut(inode);
        match place {
            Some(place) => node.wait(place, Waiting { ticket: Ticket(at), lock }),
            None if again.is_some() => {}
            None => node.take(&lock),
        }
        // Who has it at once does not wait, though it was in the queue for others to pass.
        let mut granted = self.settle(&[inode]);
        granted.all.retain(|grant| grant.ticket != Ticket(at));
        let ticket = again.unwrap_or(Ticket(at));
        let waits = self.nodes[&inode].queue.iter().any(|waiting| waiting.ticket == ticket);
        Ok(Done::Locked { waits: waits.then_some(ticket), granted })
    }

    /// Where in the queue a request waits: behind all others, or, if that closes a circle and it may pass, before those that
    /// it would wait for.
    fn place(&self, inode: InodeId, lock: &Lock, may_pass: bool) -> Result<usize, NameError> {
        let queues = self.nodes.values().flat_map(|node| &node.queue);
        let (waits, length) = (
            queues.filter(|waiting| waiting.lock.owner == lock.owner).count(),
            self.nodes[&inode].queue.len(),
        );
        if waits >= limits::WAITS_MAX || length >= limits::WAITING_MAX {
            return Err(NameError::TooManyLocks { inode });
        }
        let is_before = |waiting: &Waiting| is_in_the_way(&waiting.lock, lock);
        let first = self.nodes[&inode].queue.iter().position(is_before).unwrap_or(length);
        let is_fine = |&place: &usize| {
            let mut then = self.clone();
            then.node_mut(inode).wait(place, Waiting { ticket: Ticket(Born::default()), lock: *lock });
            !then.waits_for_itself(lock.owner)
        };
        [length, first]
            .into_iter()
            .take(if may_pass { 2 } else { 1 })
            .find(is_fine)
            .ok_or(NameError::Deadlock { owner: lock.owner })
    }

    /// Whether an owner waits, directly or through others, for itself. Finds all who wait for whom at each turn until
    /// there is nothing new.
    fn waits_for_itself(&self, owner: Owner) -> bool {
        let mut pairs: BTreeSet<(Owner, Owner)> = BTreeSet::new();
        for node in self.nodes.values() {
            for (place, Waiting { lock, .. }) in node.queue.iter().enumerate() {
                pairs.extend(node.blockers(lock, place).into_iter().map(|blocker| (lock.owner, blocker)));
            }
        }
        loop {
            let ends = |from: Owner| pairs.iter().filter(move |pair| pair.0 == from).map(|pair| pair.1);
            let longer: Vec<_> =
                pairs.iter().flat_map(|&(one, other)| ends(other).map(move |end| (one, end))).collect();
            let before = pairs.len();
            pairs.extend(longer);
            if pairs.len() == before {
                return pairs.contains(&(owner, owner));
            }
        }
    }

    pub(crate) fn unlock(&mut self, op: &Op) -> Result<Done, NameError> {
        let Change::Unlock { inode, owner, kind, stretch } = op.change else {
            unreachable!("it is asked to unlock")
        };
        own(op, owner)?;
        let lock = whole(Lock { owner, kind, mode: LockMode::Shared, stretch })?;
        self.node(inode)?;
        let node = self.node_mut(inode);
        node.give_up(owner, kind, lock.stretch);
        let (from, to) = (lock.stretch.first, lock.stretch.last);
        node.queue.retain(|Waiting { lock: wish, .. }| {
            (wish.owner, wish.kind) != (owner, kind) || wish.stretch.first < from || to < wish.stretch.last
        });
        Ok(Done::Unlocked { granted: self.settle(&[inode]) })
    }

    pub(crate) fn cancel(&mut self, op: &Op, inode: InodeId, ticket: Ticket) -> Result<Done, NameError> {
        let queue = self.nodes.get(&inode).map_or(&[][..], |node| &node.queue);
        let found = queue.iter().find(|waiting| waiting.ticket == ticket).copied();
        let waiting = found.ok_or(NameError::NotWaiting { ticket })?;
        own(op, waiting.lock.owner)?;
        self.node_mut(inode).queue.retain(|waiting| waiting.ticket != ticket);
        Ok(Done::Unlocked { granted: self.settle(&[inode]) })
    }

    pub(crate) fn settle_all(&mut self) -> Done {
        let all: Vec<InodeId> = self.nodes.keys().copied().collect();
        Done::Unlocked { granted: self.settle(&all) }
    }

    /// Grants what can be granted, one after the other, always the oldest.
    pub(crate) fn settle(&mut self, inodes: &[InodeId]) -> Granted {
        let mut granted = Granted::NONE;
        for &inode in inodes {
            let node = self.node_mut(inode);
            let is_free =
                |node: &Node, place: &usize| node.blockers(&node.queue[*place].lock, *place).is_empty();
            while let Some(place) = (0..node.queue.len()).find(|place| is_free(node, place)) {
                if granted.all.len() == limits::GRANTED_MAX {
                    granted.more = true;
                    return granted;
                }
                let Waiting { ticket, lock } = node.queue.remove(place);
                node.take(&lock);
                granted.all.push(Grant { owner: lock.owner, ticket });
            }
        }
        granted
    }
}

impl Node {
    /// Who has a lock that is in the way of one, or asked for one and is before a place of the queue.
    pub(crate) fn blockers(&self, lock: &Lock, place: usize) -> Vec<Owner> {
        let held = self.held();
        let before = self.queue.iter().take(place).map(|waiting| waiting.lock);
        let others = held.into_iter().chain(before);
        others.filter(|other| is_in_the_way(other, lock)).map(|other| other.owner).collect()
    }

    /// All locks: as long as possible, in order.
    pub(crate) fn held(&self) -> Vec<Lock> {
        let mut all: Vec<Lock> = Vec::new();
        for (&(kind, owner), cells) in &self.locks {
            let mut open: Option<Lock> = None;
            for (cell, mode) in cells.iter().enumerate() {
                match (&mut open, *mode) {
                    (Some(lock), Some(mode)) if lock.mode == mode => lock.stretch.last = end_of(cell),
                    (_, mode) => {
                        let stretch = Stretch { first: STARTS[cell], last: end_of(cell) };
                        all.extend(open.take());
                        open = mode.map(|mode| Lock { owner, kind, mode, stretch });
                    }
                }
            }
            all.extend(open);
        }
        all
    }

    pub(crate) fn all_locks(&self) -> Option<Locks> {
        let locks = Locks { held: self.held(), waiting: self.queue.clone() };
        (!locks.held.is_empty() || !locks.waiting.is_empty()).then_some(locks)
    }

    /// Takes all locks and waiting requests of a client away.
    pub(crate) fn drop_locks(&mut self, client: ClientId) {
        self.locks.retain(|(_, owner), _| owner.client != client);
        self.queue.retain(|waiting| waiting.lock.owner.client != client);
    }

    /// Who waits for a whole file has no lock of it meanwhile.
    fn wait(&mut self, place: usize, waiting: Waiting) {
        if waiting.lock.kind == LockKind::Flock {
            self.give_up(waiting.lock.owner, LockKind::Flock, Stretch::ALL);
        }
        self.queue.insert(place, waiting);
    }

    /// Whether a lock's owner has it everywhere.
    pub(crate) fn has(&self, lock: &Lock) -> bool {
        let Some(cells) = self.locks.get(&(lock.kind, lock.owner)) else { return false };
        let is_meant =
            |cell: &usize| lock.stretch.first <= STARTS[*cell] && end_of(*cell) <= lock.stretch.last;
        (0..STARTS.len()).filter(is_meant).all(|cell| cells[cell] == Some(lock.mode))
    }

    fn take(&mut self, lock: &Lock) {
        self.paint(lock.kind, lock.owner, lock.stretch, Some(lock.mode));
    }

    fn give_up(&mut self, owner: Owner, kind: LockKind, stretch: Stretch) {
        self.paint(kind, owner, stretch, None);
    }

    fn paint(&mut self, kind: LockKind, owner: Owner, stretch: Stretch, mode: Option<LockMode>) {
        let cells = self.locks.entry((kind, owner)).or_insert([None; STARTS.len()]);
        for (cell, now) in cells.iter_mut().enumerate() {
            if stretch.first <= STARTS[cell] && end_of(cell) <= stretch.last {
                *now = mode;
            }
        }
    }
}

/// Others of the same kind that have a byte in common, and one of them wants it alone.
pub(crate) fn is_in_the_way(one: &Lock, other: &Lock) -> bool {
    let is_shared = one.mode == LockMode::Shared && other.mode == LockMode::Shared;
    let is_apart = one.stretch.last < other.stretch.first || other.stretch.last < one.stretch.first;
    one.kind == other.kind && one.owner != other.owner && !is_shared && !is_apart
}

/// A lock of a whole file is everywhere; others are somewhere.
pub(crate) fn whole(lock: Lock) -> Result<Lock, NameError> {
    match lock.kind {
        LockKind::Flock => Ok(Lock { stretch: Stretch::ALL, ..lock }),
        LockKind::Fcntl if lock.stretch.first > lock.stretch.last => Err(NameError::NoStretch),
        LockKind::Fcntl => Ok(lock),
    }
}

fn own(op: &Op, owner: Owner) -> Result<(), NameError> {
    if owner.client == op.client { Ok(()) } else { Err(NameError::Foreign { owner }) }
}
