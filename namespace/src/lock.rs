//! Locks of one file: who has locked what, and who waits.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use base::ClientId;

use crate::limits::{LOCKS_MAX, WAITING_MAX};
use crate::{Owner, Ticket};

/// A lock of a file, or a wish for one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lock {
    /// Whose.
    pub owner: Owner,
    /// Which of the two kinds. They do not see each other.
    pub kind: LockKind,
    /// Whether others may have it, too.
    pub mode: LockMode,
    /// Where. A lock of a whole file is everywhere.
    pub stretch: Stretch,
}

/// The two kinds of locks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LockKind {
    /// `flock`: the whole file, for an open handle. Who has one and waits for the other mode gives it up for the wait.
    Flock,
    /// `fcntl`: stretches of bytes, for a process.
    Fcntl,
}

/// How a stretch is locked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockMode {
    /// Against those who want it alone.
    Shared,
    /// Against all others.
    Exclusive,
}

/// Bytes that follow each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Stretch {
    /// The first.
    pub first: u64,
    /// The last, which is locked, too.
    pub last: u64,
}

/// All locks of a file.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Locks {
    /// What is had, ordered by kind, owner and first byte. Of one owner no two overlap, and no two touch that could be one.
    pub held: Vec<Lock>,
    /// What is waited for, the first in line first: the oldest, but for who would have waited in a circle behind others.
    pub waiting: Vec<Waiting>,
}

/// A wish that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    /// The entry that asked.
    pub ticket: Ticket,
    /// What for.
    pub lock: Lock,
}

/// What became of a wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// It waits.
    Waits,
    /// Its owner has what it is for.
    Had,
    /// Neither: it was taken back, or what was granted was given up again, or all that was lost with the power of a majority.
    Gone,
}

impl Stretch {
    /// Everything.
    pub const ALL: Self = Self { first: 0, last: u64::MAX };

    /// Whether they have a byte in common.
    pub const fn meets(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether the other is no part of it.
    const fn covers(self, other: Self) -> bool {
        self.first <= other.first && other.last <= self.last
    }

    /// Whether they are one without a gap.
    const fn touches(self, other: Self) -> bool {
        self.first <= other.last.saturating_add(1) && other.first <= self.last.saturating_add(1)
    }
}

impl Lock {
    /// Whether one of them stands in the way of the other.
    pub fn conflicts(&self, other: &Self) -> bool {
        self.owner != other.owner
            && self.kind == other.kind
            && (self.mode == LockMode::Exclusive || other.mode == LockMode::Exclusive)
            && self.stretch.meets(other.stretch)
    }

    /// Whether it can be had or waited for: a wish may be for a stretch that ends before it begins, and is refused.
    pub fn is_sound(&self) -> bool {
        self.checked() == Ok(*self)
    }
}

impl Locks {
    /// Whether there are none, and nobody waits.
    pub const fn is_empty(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    /// Whether these can be the locks of a file: there are some and not too many, each can be, they are in order, and nobody has
    /// what is in the way of another. What a peer or a disk says is to be asked this.
    pub fn is_sound(&self) -> bool {
        let tickets: BTreeSet<Ticket> = self.waiting.iter().map(|waiting| waiting.ticket).collect();
        !self.is_empty()
            && self.held.len() <= LOCKS_MAX
            && self.waiting.len() <= WAITING_MAX
            && self.held.iter().chain(self.waiting.iter().map(|waiting| &waiting.lock)).all(Lock::is_sound)
            && self.held.windows(2).all(|pair| follow(&pair[0], &pair[1]))
            && tickets.len() == self.waiting.len()
            && self.agree()
    }

    /// Whether nothing that is had is in the way of another. Of each owner the stretches have to be apart.
    fn agree(&self) -> bool {
        let mut held: Vec<&Lock> = self.held.iter().collect();
        held.sort_by_key(|lock| (lock.kind, lock.stretch.first));
        held.chunk_by(|a, b| a.kind == b.kind).all(|of_kind| {
            let (mut any_last, mut exclusive_last) = (None, None);
            of_kind.iter().all(|lock| {
                let is_exclusive = lock.mode == LockMode::Exclusive;
                let before = if is_exclusive { any_last } else { exclusive_last };
                let last = Some(lock.stretch.last);
                any_last = any_last.max(last);
                exclusive_last = exclusive_last.max(last.filter(|_| is_exclusive));
                before.is_none_or(|before| before < lock.stretch.first)
            })
        })
    }

    /// Whether a client has or waits for any.
    pub fn concern(&self, client: ClientId) -> bool {
        self.held.iter().any(|lock| lock.owner.client == client)
            || self.waiting.iter().any(|waiting| waiting.lock.owner.client == client)
    }

    /// A lock of somebody else that is in the way of one.
    pub(crate) fn in_the_way(&self, lock: &Lock) -> Option<&Lock> {
        self.held.iter().find(|held| held.conflicts(lock))
    }

    /// Locks a stretch that nobody is in the way of, in place of what the owner has locked there.
    pub(crate) fn take(&mut self, mut lock: Lock) {
        self.give_up(lock.owner, lock.kind, lock.stretch);
        self.held.retain(|held| {
            let is_one = is_of(held, lock.owner, lock.kind)
                && held.mode == lock.mode
                && held.stretch.touches(lock.stretch);
            if is_one {
                lock.stretch.first = lock.stretch.first.min(held.stretch.first);
                lock.stretch.last = lock.stretch.last.max(held.stretch.last);
            }
            !is_one
        });
        self.insert(lock);
    }

    /// Gives up what an owner has locked of a stretch.
    pub(crate) fn give_up(&mut self, owner: Owner, kind: LockKind, stretch: Stretch) {
        let mut cut = Vec::new();
        self.held.retain(|held| {
            let is_cut = is_of(held, owner, kind) && held.stretch.meets(stretch);
            if is_cut {
                cut.push(*held);
            }
            !is_cut
        });
        for held in cut {
            let before = stretch.first.checked_sub(1).filter(|&last| held.stretch.first <= last);
            let behind = stretch.last.checked_add(1).filter(|&first| first <= held.stretch.last);
            if let Some(last) = before {
                self.insert(Lock { stretch: Stretch { last, ..held.stretch }, ..held });
            }
            if let Some(first) = behind {
                self.insert(Lock { stretch: Stretch { first, ..held.stretch }, ..held });
            }
        }
    }

    /// What became of a wish.
    pub fn wish(&self, ticket: Ticket, lock: &Lock) -> Wish {
        let is_it = |waiting: &Waiting| (waiting.ticket, waiting.lock.owner) == (ticket, lock.owner);
        // Of one owner no two touch that could be one: so what is had is within one of them.
        let has_it = |held: &Lock| {
            is_of(held, lock.owner, lock.kind) && held.mode == lock.mode && held.stretch.covers(lock.stretch)
        };
        match () {
            () if self.waiting.iter().any(is_it) => Wish::Waits,
            () if self.held.iter().any(has_it) => Wish::Had,
            () => Wish::Gone,
        }
    }

    /// The name of a wish that is the same in all.
    pub(crate) fn same_wish(&self, lock: &Lock) -> Option<Ticket> {
        self.waiting.iter().find(|waiting| waiting.lock == *lock).map(|waiting| waiting.ticket)
    }

    /// Takes back what an owner waits for within a stretch.
    pub(crate) fn drop_wishes(&mut self, owner: Owner, kind: LockKind, stretch: Stretch) -> Vec<Waiting> {
        let is_meant =
            |Waiting { lock, .. }: &Waiting| is_of(lock, owner, kind) && stretch.covers(lock.stretch);
        self.waiting.extract_if(.., |waiting| is_meant(waiting)).collect()
    }

    /// Takes everything of a client away. Says whose requests wait no more.
    pub(crate) fn drop_client(&mut self, client: ClientId) -> Vec<Waiting> {
        self.held.retain(|lock| lock.owner.client != client);
        let is_own = |waiting: &Waiting| waiting.lock.owner.client == client;
        let dropped = self.waiting.iter().copied().filter(is_own).collect();
        self.waiting.retain(|waiting| !is_own(waiting));
        dropped
    }

    /// Who stands in the way of a request at a place of the queue: who has a lock, or asked for one before.
    pub(crate) fn blockers(&self, lock: &Lock, place: usize) -> impl Iterator<Item = Owner> {
        let before = self.waiting[..place].iter().map(|waiting| &waiting.lock);
        self.held.iter().chain(before).filter(|other| other.conflicts(lock)).map(|other| other.owner)
    }

    /// Grants what nobody is in the way of any more, the oldest first, as often as `grants_max`. Says whom, and whether there
    /// may be others.
    pub(crate) fn settle(&mut self, grants_max: usize) -> (Vec<Waiting>, bool) {
        let mut granted = Vec::new();
        // Each grant may free somebody earlier in the queue, if the owner has less than before by it.
        while let Some(place) = self.first_free() {
            if granted.len() == grants_max {
                return (granted, true);
            }
            let waiting = self.waiting.remove(place);
            self.take(waiting.lock);
            granted.push(waiting);
        }
        (granted, false)
    }

    /// The place of the first request that nobody is in the way of, and which there is room for.
    fn first_free(&self) -> Option<usize> {
        let has_room = |lock: &Lock| {
            let mut then = self.clone();
            then.take(*lock);
            then.held.len() <= LOCKS_MAX
        };
        (0..self.waiting.len()).find(|&place| {
            let lock = &self.waiting[place].lock;
            self.blockers(lock, place).next().is_none()
                // A lock makes two more stretches at most.
                && (self.held.len() + 2 <= LOCKS_MAX || has_room(lock))
        })
    }

    fn insert(&mut self, lock: Lock) {
        let order = |lock: &Lock| (lock.kind, lock.owner, lock.stretch.first);
        let place = self.held.partition_point(|held| order(held) < order(&lock));
        self.held.insert(place, lock);
    }
}

/// Whether one lock stands behind another in order, and of one owner apart from it.
fn follow(lock: &Lock, next: &Lock) -> bool {
    let owner = |lock: &Lock| (lock.kind, lock.owner);
    match owner(lock).cmp(&owner(next)) {
        Ordering::Less => true,
        Ordering::Equal => {
            lock.stretch.first < next.stretch.first
                && !lock.stretch.meets(next.stretch)
                && (lock.mode != next.mode || !lock.stretch.touches(next.stretch))
        }
        Ordering::Greater => false,
    }
}

fn is_of(lock: &Lock, owner: Owner, kind: LockKind) -> bool {
    lock.owner == owner && lock.kind == kind
}
