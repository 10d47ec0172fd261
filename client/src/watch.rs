//! Whoever keeps what a client told it, and has to know when that ends: a mount, whose kernel believes attributes for a while.
//!
//! What a client may answer without asking ends in many ways: it is revoked, or the connection is gone over which it was granted. Whoever
//! [watches](Client::watch) is told what ended, and says when it is done with that. Only then the daemon hears that a revocation is
//! obeyed, and only then the client connects anew with a daemon that would take the new connection for a promise that all is dropped.
//!
//! Where directories are is told apart: it may be believed for as long as it was told to be, whatever else ends, but for a revocation that takes that.
//!
//! What has not been told yet is one batch, which is taken as a whole: an inode is told once, however often it ended meanwhile, and
//! of a volume in which too much ended it is told that all of it did.
//!
//! # What is deliberately absent
//!
//! The end of a session by the clock. Who is told something is told for how long it is good, and counts itself.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use base::{NodeId, ObjectId};
use namespace::InodeId;
use node::Revoked;

use crate::driver::{Client, Shared};

/// So many inodes are told one by one.
const INODES_MAX: usize = 4_096;

/// What waits until whoever watches is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Waiting {
    /// The answer to a revocation of the connection with a daemon.
    Revocation {
        /// Which daemon.
        from: NodeId,
        /// Which revocation.
        number: u64,
    },
    /// A new connection with a daemon.
    Connection(NodeId),
}

/// What ends, and who waits for that.
#[derive(Debug, Default)]
struct Ends {
    is_watched: bool,
    /// Nothing ends any more.
    is_over: bool,
    inodes: BTreeSet<(ObjectId, InodeId)>,
    places: BTreeSet<(ObjectId, InodeId)>,
    volumes: BTreeSet<ObjectId>,
    /// The number of the batch that the next end belongs to.
    batch: u64,
    waiting: BTreeMap<u64, Vec<Waiting>>,
    /// What waits no longer, and the driver does not know that yet.
    done: Vec<Waiting>,
}

/// What is told at once, and the number that it goes by.
#[derive(Debug)]
struct Batch {
    number: u64,
    inodes: Vec<(ObjectId, InodeId)>,
    places: Vec<(ObjectId, InodeId)>,
    volumes: Vec<ObjectId>,
}

/// What the driver and whoever watches have in common.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// Held for moments only. Locked after everything else.
    ends: Mutex<Ends>,
    news: Condvar,
}

/// Tells what ends of that which a client may answer by itself. When this is dropped nobody watches any more.
#[derive(Debug)]
pub struct Watch {
    shared: Arc<Shared>,
}

/// What ended. Whoever has it drops what it knows of that, and then this.
#[derive(Debug)]
pub struct Ended {
    /// These inodes of volumes.
    pub inodes: Vec<(ObjectId, InodeId)>,
    /// That these directories are where they are.
    pub places: Vec<(ObjectId, InodeId)>,
    /// All of these volumes, but for where directories are.
    pub volumes: Vec<ObjectId>,
    batch: u64,
    shared: Arc<Shared>,
}

impl Client {
    /// From now on whatever ends of what this client may answer by itself is told, until that is dropped. There is one who watches.
    pub fn watch(&self) -> Watch {
        self.shared.watched.begin();
        Watch { shared: self.shared.clone() }
    }
}

impl Watch {
    /// Waits until something ends. None when the client has gone: nothing is answered any more.
    pub fn wait(&self) -> Option<Ended> {
        let mut ends = self.shared.watched.ends();
        loop {
            if let Some(Batch { number, inodes, places, volumes }) = ends.take() {
                return Some(Ended { inodes, places, volumes, batch: number, shared: self.shared.clone() });
            }
            if ends.is_over {
                return None;
            }
            ends = self.shared.watched.news.wait(ends).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Whoever waits for something to end does so no longer.
    pub fn stop(&self) {
        self.shared.watched.end();
        self.shared.wake();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.shared.watched.ends().finish(self.batch);
        self.shared.wake();
    }
}

impl Watched {
    fn begin(&self) {
        let mut ends = self.ends();
        assert!(!ends.is_watched, "one watches a client");
        (ends.is_watched, ends.is_over) = (true, false);
    }

    /// Nobody is told anything any more.
    pub(crate) fn end(&self) {
        self.ends().end();
        self.news.notify_all();
    }

    /// Something was revoked. Whether the answer is given when whoever watches is done, and not by the caller.
    pub(crate) fn revoked(&self, volume: ObjectId, what: &Revoked, waiting: Waiting) -> bool {
        let mut ends = self.ends();
        if !ends.is_watched {
            return false;
        }
        match *what {
            Revoked::Inode { number, epoch } | Revoked::Lend { number, epoch, .. } => {
                ends.note(volume, InodeId { number, epoch })
            }
            Revoked::Place { number, epoch } => {
                ends.note(volume, InodeId { number, epoch });
                ends.places.insert((volume, InodeId { number, epoch }));
            }
            Revoked::All | Revoked::Before(_) => ends.note_all(volume),
        }
        ends.wait(waiting);
        drop(ends);
        self.news.notify_one();
        true
    }

    /// Something that was answered here is not so, and nobody waits for that to be dropped.
    pub(crate) fn untrue(&self, volume: ObjectId, inode: InodeId) {
        let mut ends = self.ends();
        if ends.is_watched {
            ends.note(volume, inode);
            drop(ends);
            self.news.notify_one();
        }
    }

    /// A connection is gone, and with it what was granted over it in these volumes. Nothing more is answered over it.
    pub(crate) fn lost(&self, node: NodeId, volumes: impl IntoIterator<Item = ObjectId>) {
        let mut ends = self.ends();
        ends.forget(node);
        if !ends.is_watched {
            return;
        }
        let mut lost = volumes.into_iter().peekable();
        if lost.peek().is_some() {
            ends.wait(Waiting::Connection(node));
        }
        lost.for_each(|volume| ends.note_all(volume));
        drop(ends);
        self.news.notify_one();
    }

    /// Whether a new connection with a daemon would promise what is not so yet.
    pub(crate) fn keeps_from(&self, node: NodeId) -> bool {
        self.ends().waiting.values().flatten().any(|waiting| *waiting == Waiting::Connection(node))
    }

    /// What waits no longer.
    pub(crate) fn take_done(&self) -> Vec<Waiting> {
        std::mem::take(&mut self.ends().done)
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ends {
    fn note(&mut self, volume: ObjectId, inode: InodeId) {
        if self.volumes.contains(&volume) {
            return;
        }
        self.inodes.insert((volume, inode));
        if self.inodes.len() > INODES_MAX {
            let inodes = std::mem::take(&mut self.inodes);
            self.volumes.extend(inodes.into_iter().map(|(volume, _)| volume));
        }
    }

    fn note_all(&mut self, volume: ObjectId) {
        self.inodes.retain(|(of, _)| *of != volume);
        self.volumes.insert(volume);
    }

    fn wait(&mut self, waiting: Waiting) {
        self.waiting.entry(self.batch).or_default().push(waiting);
    }

    /// The batch so far, if it is not empty. What ends from now on belongs to the next one.
    fn take(&mut self) -> Option<Batch> {
        if self.inodes.is_empty() && self.places.is_empty() && self.volumes.is_empty() {
            return None;
        }
        let number = self.batch;
        self.batch += 1;
        let inodes = std::mem::take(&mut self.inodes).into_iter().collect();
        let places = std::mem::take(&mut self.places).into_iter().collect();
        let volumes = std::mem::take(&mut self.volumes).into_iter().collect();
        Some(Batch { number, inodes, places, volumes })
    }

    fn finish(&mut self, batch: u64) {
        self.done.extend(self.waiting.remove(&batch).unwrap_or_default());
    }

    /// A daemon is not answered over a connection that is gone. What waits for the next one goes on waiting.
    fn forget(&mut self, node: NodeId) {
        let stays = |waiting: &Waiting| !matches!(waiting, Waiting::Revocation { from, .. } if *from == node);
        self.waiting.values_mut().for_each(|batch| batch.retain(stays));
        self.done.retain(stays);
    }

    fn end(&mut self) {
        (self.is_watched, self.is_over) = (false, true);
        self.inodes.clear();
        self.places.clear();
        self.volumes.clear();
        self.done.extend(std::mem::take(&mut self.waiting).into_values().flatten());
    }
}

#[cfg(test)]
mod tests {
    use base::{Epoch, NodeId};

    use super::*;

    const A: NodeId = NodeId(1);

    fn inode(number: u64) -> InodeId {
        InodeId { number, epoch: Epoch { number: 1, node: A } }
    }

    fn revoked(number: u64) -> Revoked {
        let InodeId { number, epoch } = inode(number);
        Revoked::Inode { number, epoch }
    }

    fn revocation(number: u64) -> Waiting {
        Waiting::Revocation { from: A, number }
    }

    fn volume() -> ObjectId {
        node::object_named("v")
    }

    fn watched() -> Watched {
        let watched = Watched::default();
        watched.begin();
        watched
    }

    #[test]
    fn nobody_is_waited_for_who_does_not_watch() {
        let watched = Watched::default();
        assert!(!watched.revoked(volume(), &revoked(1), revocation(1)));
        watched.lost(A, [volume()]);
        assert!(!watched.keeps_from(A));
    }

    #[test]
    fn a_revocation_is_answered_when_it_is_done_and_not_before() {
        let watched = watched();
        assert!(watched.revoked(volume(), &revoked(1), revocation(1)));
        let first = watched.ends().take().unwrap();
        assert_eq!(first.inodes, [(volume(), inode(1))]);
        // It ends once more while that is told.
        assert!(watched.revoked(volume(), &revoked(1), revocation(2)));
        assert!(watched.take_done().is_empty());
        watched.ends().finish(first.number);
        assert_eq!(watched.take_done(), [revocation(1)]);
        let second = watched.ends().take().unwrap();
        watched.ends().finish(second.number);
        assert_eq!(watched.take_done(), [revocation(2)]);
    }

    #[test]
    fn what_ends_often_is_told_once_and_too_much_as_all() {
        let watched = watched();
        for number in 0..10 {
            watched.revoked(volume(), &revoked(1), revocation(number));
        }
        let batch = watched.ends().take().unwrap();
        assert_eq!((batch.inodes.len(), batch.volumes.len()), (1, 0));
        watched.ends().finish(batch.number);
        assert_eq!(watched.take_done().len(), 10);
        for number in 0..=INODES_MAX as u64 {
            watched.revoked(volume(), &revoked(number), revocation(number));
        }
        let batch = watched.ends().take().unwrap();
        assert_eq!((batch.inodes.len(), batch.volumes), (0, vec![volume()]));
    }

    #[test]
    fn where_a_directory_is_ends_when_that_is_taken_and_not_with_all_else() {
        let watched = watched();
        let InodeId { number, epoch } = inode(1);
        watched.revoked(volume(), &Revoked::Place { number, epoch }, revocation(1));
        watched.revoked(volume(), &Revoked::All, revocation(2));
        let batch = watched.ends().take().unwrap();
        assert_eq!((batch.inodes.len(), batch.places), (0, vec![(volume(), inode(1))]));
        assert_eq!(batch.volumes, [volume()]);
    }

    #[test]
    fn a_new_connection_waits_until_what_came_over_the_last_one_is_dropped() {
        let watched = watched();
        watched.revoked(volume(), &revoked(1), revocation(1));
        watched.lost(A, [volume()]);
        assert!(watched.keeps_from(A));
        let batch = watched.ends().take().unwrap();
        assert_eq!((batch.inodes.len(), batch.volumes), (0, vec![volume()]));
        assert!(watched.keeps_from(A), "it is told, and not done");
        watched.ends().finish(batch.number);
        assert!(!watched.keeps_from(A));
        // The revocations of the old connection are answered by its end.
        assert_eq!(watched.take_done(), [Waiting::Connection(A)]);
    }

    #[test]
    fn nothing_waits_for_one_that_is_gone() {
        let watched = watched();
        watched.revoked(volume(), &revoked(1), revocation(1));
        watched.end();
        assert_eq!(watched.take_done(), [revocation(1)]);
        assert!(watched.ends().take().is_none());
    }
}
