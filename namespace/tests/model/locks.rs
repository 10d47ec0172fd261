//! Locks, byte for byte: each owner has, of each kind, a row of bytes that are locked or are not.
//!
//! There are few different bytes. All the others stand in one cell of the row, which is locked as a whole.

use std::collections::BTreeSet;

use base::ClientId;
use namespace::{
    Born, Change, Done, Grant, Granted, InodeId, Kind, Lock, LockKind, LockMode, Locks, NameError, Op, Owner,
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
        self.node(inode)?.can_be_locked(inode)?;
        let blockers = self.nodes[&inode].blockers(&lock, if wait { usize::MAX } else { 0 });
        if blockers.is_empty() {
            self.record(op.client)?;
            self.node_mut(inode).take(&lock);
            return Ok(Done::Locked { waits: None, granted: self.settle(&[inode]) });
        }
        if !wait {
            return Err(NameError::Locked { by: blockers[0] });
        }
        if lock.kind == LockKind::Fcntl && self.is_deadlock(lock.owner, blockers) {
            return Err(NameError::Deadlock { owner: lock.owner });
        }
        self.record(op.client)?;
        let node = self.node_mut(inode);
        if lock.kind == LockKind::Flock {
            node.give_up(lock.owner, lock.kind, Stretch::ALL);
        }
        node.queue.push(Waiting { ticket: Ticket(at), lock });
        let granted = self.settle(&[inode]);
        let waits = self.nodes[&inode].queue.iter().any(|waiting| waiting.ticket == Ticket(at));
        assert!(waits, "who has to wait is not granted at once");
        Ok(Done::Locked { waits: Some(Ticket(at)), granted })
    }

    pub(crate) fn unlock(&mut self, op: &Op) -> Result<Done, NameError> {
        let Change::Unlock { inode, owner, kind, stretch } = op.change else {
            unreachable!("it is asked to unlock")
        };
        own(op, owner)?;
        let lock = whole(Lock { owner, kind, mode: LockMode::Shared, stretch })?;
        self.node(inode)?.can_be_locked(inode)?;
        self.node_mut(inode).give_up(owner, kind, lock.stretch);
        Ok(Done::Unlocked { granted: self.settle(&[inode]) })
    }

    pub(crate) fn cancel(&mut self, op: &Op, inode: InodeId, ticket: Ticket) -> Result<Done, NameError> {
        let queue = &self.node(inode)?.queue;
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

    /// Takes all locks and waiting requests of a client away.
    pub(crate) fn unlock_client(&mut self, client: ClientId) -> Granted {
        for node in self.nodes.values_mut() {
            node.locks.retain(|(_, owner), _| owner.client != client);
            node.queue.retain(|waiting| waiting.lock.owner.client != client);
        }
        let all: Vec<InodeId> = self.nodes.keys().copied().collect();
        self.settle(&all)
    }

    /// Grants what can be granted, one after the other, always the oldest.
    fn settle(&mut self, inodes: &[InodeId]) -> Granted {
        let mut granted = Granted::NONE;
        for &inode in inodes {
            let node = self.node_mut(inode);
            let is_free = |node: &Node, place: &usize| {
                node.blockers(&node.queue[*place].lock, *place).is_empty()
            };
            while let Some(place) = (0..node.queue.len()).find(|place| is_free(node, place)) {
                if granted.all.len() == limits::GRANTED_MAX {
                    granted.more = true;
                    return granted;
                }
                let Waiting { ticket, lock } = node.queue.remove(place);
                node.take(&lock);
                granted.all.push(Grant { inode, owner: lock.owner, ticket });
            }
        }
        granted
    }

    /// Whether any of those who are in the way waits, directly or through others, for who asks.
    fn is_deadlock(&self, asks: Owner, mut then: Vec<Owner>) -> bool {
        let mut seen = BTreeSet::new();
        while let Some(owner) = then.pop() {
            if owner == asks {
                return true;
            }
            if seen.insert(owner) {
                for node in self.nodes.values() {
                    let waits = node.queue.iter().enumerate().filter(|(_, waiting)| waiting.lock.owner == owner);
                    then.extend(waits.flat_map(|(place, waiting)| node.blockers(&waiting.lock, place)));
                }
            }
        }
        false
    }
}

impl Node {
    /// Whatever can be opened has locks.
    fn can_be_locked(&self, inode: InodeId) -> Result<(), NameError> {
        match self.kind {
            Kind::File => Ok(()),
            _ => Err(NameError::WrongKind { inode }),
        }
    }

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
