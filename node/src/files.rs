//! The files of a shard: replicas, the writes that their messages wait for, and who is to be told what.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::{ClientId, NodeId, ObjectId, Process, Span, View, ViewId, WallTime};
use replication::{Checkpoint, JournalError, Memory, Message, Record, Replica, Standing, Ticket};

use crate::file::{File, FileBody, FileReply, FileReplyBody};
use crate::lock::Asker;
use crate::{SessionId, Unavailable};

/// How many requests may wait for a file until this node serves it.
const WAITING_MAX: usize = 1_024;
/// A file that this node has forgotten something of is led again so soon, if nobody else did it meanwhile.
const MENDED_WITHIN: Span = Span::from_secs(2);
/// How many messages may wait for the epoch ceiling.
const DEFERRED_MAX: usize = 4_096;

/// All files of a shard.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) config: Arc<replication::Config>,
    /// In epochs up to this one the node may have lost what it had not synced.
    pub(crate) forgot_at: Option<u64>,
    pub(crate) hosted: BTreeMap<ObjectId, Hosted>,
    pub(crate) writes: Writes,
    /// Files with something to do, and when.
    due: BTreeSet<(WallTime, ObjectId)>,
    /// Files that this node leads, and when they may have been idle for too long.
    idle: BTreeSet<(WallTime, ObjectId)>,
    /// Files of which this node may have forgotten something, and when to see about it.
    forgotten: BTreeSet<(WallTime, ObjectId)>,
    /// Files that this node began to be given, and when it may have been for too long.
    blank: BTreeSet<(WallTime, ObjectId)>,
    /// Nodes that an operator has given up.
    pub(crate) struck: BTreeSet<NodeId>,
    /// Replies, in order, and until when they are true.
    replies: VecDeque<(SessionId, FileReply, Option<WallTime>)>,
    /// Messages of epochs that the ceiling on disk does not cover yet.
    pub(crate) deferred: Vec<(u64, Process, FileMessage)>,
    tickets: u64,
}

/// A message between replicas of a file.
#[derive(Clone, PartialEq, Debug)]
pub struct FileMessage {
    /// The file.
    pub object: ObjectId,
    /// The last view that the sender knows to be committed.
    pub view: ViewId,
    /// What it says.
    pub message: Message<File>,
}

/// What a store has kept of a file.
#[derive(Clone, PartialEq, Debug)]
pub struct KeptFile {
    /// All of it at one time. None if there was never such a time: then the file begins with the first record.
    pub checkpoint: Option<Checkpoint<File>>,
    /// What was written since, oldest first.
    pub records: Vec<Record<File>>,
}

/// A file whose records do not follow from each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("file {object:?}: {why}")]
pub struct FileJournalError {
    /// Which file.
    pub object: ObjectId,
    /// What is wrong.
    pub why: JournalError,
}

/// A file that this node has a replica of.
#[derive(Clone, Debug)]
pub(crate) struct Hosted {
    pub(crate) replica: Replica<File>,
    pub(crate) stage: Stage,
    /// Requests that came before this node served.
    pub(crate) waiting: VecDeque<(Asker, FileBody)>,
    /// Who waits for a change.
    pub(crate) changing: BTreeMap<(ClientId, u64), Vec<Asker>>,
    /// Who waits for an answer or for durability.
    pub(crate) asking: BTreeMap<Ticket, Asker>,
    /// When a client last wanted something.
    pub(crate) used: WallTime,
    /// Somebody has promised this number to somebody.
    pub(crate) highest: u64,
    /// The number of the last record of this file.
    pub(crate) last_write: u64,
    /// When it is looked at again.
    due: Option<WallTime>,
    /// Whether it is looked at when it may have been idle for too long.
    is_watched: bool,
    /// The view in force for the lease, unless it is the first, which the map names.
    pub(crate) view: Option<View>,
    /// Who waits to hear that it may forget the file, and since which view it is no member of it.
    pub(crate) retired: BTreeMap<NodeId, ViewId>,
    /// Whether the last recovery found that there is no such file.
    pub(crate) is_absent: bool,
}

/// How far this node is as the file's primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Somebody else is, or nobody.
    Idle,
    /// It wants the lease.
    Leasing,
    /// It has the lease until then, and waits for the epoch ceiling.
    Numbering(WallTime),
    /// It has the lease.
    Leading,
    /// It gives the lease up.
    Leaving,
}

/// Writes to the journal, counted from 1 for this process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writes {
    last: u64,
    written: u64,
    /// None until all that was there at the start is synced.
    durable: Option<u64>,
    asked: Option<u64>,
    /// What waits for a write, and whether it has to be durable.
    held: BTreeMap<(u64, u64), Held>,
    holds: u64,
}

/// A message that waits for a write.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    pub(crate) to: NodeId,
    pub(crate) message: FileMessage,
    is_durable: bool,
}

impl Writes {
    /// A record leaves for the journal.
    pub(crate) const fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Whether everything up to a record is written, or durable.
    fn covers(&self, number: u64, is_durable: bool) -> bool {
        if is_durable { self.durable >= Some(number) } else { self.written >= number }
    }

    /// A message that may leave once the journal has everything up to a record. It comes back if that is so already.
    pub(crate) fn hold(
        &mut self,
        number: u64,
        is_durable: bool,
        to: NodeId,
        message: FileMessage,
    ) -> Option<Held> {
        let held = Held { to, message, is_durable };
        if self.covers(number, is_durable) {
            return Some(held);
        }
        self.holds += 1;
        self.held.insert((number, self.holds), held);
        None
    }

    /// The sync that somebody waits for and nobody has asked for yet.
    pub(crate) fn poll_sync(&mut self) -> Option<u64> {
        let wanted = self.held.iter().rev().find(|(_, held)| held.is_durable).map(|(&(number, _), _)| number);
        let wanted = wanted.filter(|&wanted| self.asked < Some(wanted))?;
        // All that has left so far goes with it.
        self.asked = Some(wanted.max(self.last));
        self.asked
    }

    pub(crate) fn handle_written(&mut self, upto: u64) {
        self.written = self.written.max(upto.min(self.last));
    }

    pub(crate) fn handle_durable(&mut self, upto: u64) {
        self.handle_written(upto);
        self.durable = self.durable.max(Some(upto.min(self.last)));
    }

    /// A message that may leave now.
    pub(crate) fn pop_ready(&mut self) -> Option<Held> {
        let reach = self.written.max(self.durable.unwrap_or(0));
        let mut reachable = self.held.range(..=(reach, u64::MAX));
        let (&key, _) = reachable.find(|((number, _), held)| self.covers(*number, held.is_durable))?;
        self.held.remove(&key)
    }
}

impl Hosted {
    pub(crate) fn new(replica: Replica<File>, now: WallTime) -> Self {
        let view = replica.view();
        let view = (view.id > ViewId::default()).then(|| view.clone());
        Self {
            view,
            retired: BTreeMap::new(),
            is_absent: false,
            replica,
            stage: Stage::Idle,
            waiting: VecDeque::new(),
            changing: BTreeMap::new(),
            asking: BTreeMap::new(),
            used: now,
            highest: 0,
            last_write: 0,
            due: None,
            is_watched: false,
        }
    }

    pub(crate) fn serves(&self) -> bool {
        self.stage == Stage::Leading && self.replica.standing() == Standing::Serving
    }

    /// Whether nobody waits for anything, and all who were ever members know who is.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_asked = !self.waiting.is_empty() || !self.changing.is_empty() || !self.asking.is_empty();
        !is_asked && self.replica.is_settled()
    }

    /// Keeps a request until this node serves. False if too many wait.
    pub(crate) fn wait(&mut self, asker: Asker, body: FileBody) -> bool {
        let fits = self.waiting.len() < WAITING_MAX;
        if fits {
            self.waiting.push_back((asker, body));
        }
        fits
    }
}

impl Files {
    /// The files that a store has kept.
    pub(crate) fn new(
        me: NodeId,
        config: Arc<replication::Config>,
        forgot_at: Option<u64>,
        kept: Vec<(ObjectId, KeptFile, Checkpoint<File>)>,
    ) -> Result<Self, FileJournalError> {
        let mut files = Self {
            config: Arc::clone(&config),
            forgot_at,
            hosted: BTreeMap::new(),
            writes: Writes::default(),
            due: BTreeSet::new(),
            idle: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            blank: BTreeSet::new(),
            struck: BTreeSet::new(),
            replies: VecDeque::new(),
            deferred: Vec::new(),
            tickets: 0,
        };
        for (object, kept, first) in kept {
            let checkpoint = kept.checkpoint.unwrap_or(first);
            let replica = Replica::new(me, Arc::clone(&config), checkpoint, kept.records, forgot_at)
                .map_err(|why| FileJournalError { object, why })?;
            if replica.is_void() {
                continue;
            }
            if replica.memory() == Memory::Forgot {
                files.forgotten.insert((WallTime::ZERO, object));
            }
            if replica.is_blank() {
                files.blank.insert((WallTime::ZERO, object));
            }
            files.hosted.insert(object, Hosted::new(replica, WallTime::ZERO));
            // Who was no member any more when it ended waits for its time to say so again.
            files.note_due(object);
        }
        Ok(files)
    }

    pub(crate) const fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Looks at a file's timers anew.
    pub(crate) fn note_due(&mut self, object: ObjectId) {
        let Some(hosted) = self.hosted.get_mut(&object) else { return };
        let due = hosted.replica.poll_timeout();
        if due == hosted.due {
            return;
        }
        if let Some(before) = std::mem::replace(&mut hosted.due, due) {
            self.due.remove(&(before, object));
        }
        self.due.extend(due.map(|due| (due, object)));
    }

    /// A file that has something to do.
    pub(crate) fn pop_due(&mut self, now: WallTime) -> Option<ObjectId> {
        let &(at, object) = self.due.first().filter(|&&(at, _)| at <= now)?;
        self.due.remove(&(at, object));
        if let Some(hosted) = self.hosted.get_mut(&object) {
            hosted.due = None;
        }
        Some(object)
    }

    pub(crate) fn next_due(&self) -> Option<WallTime> {
        let first = |due: &BTreeSet<(WallTime, ObjectId)>| due.first().map(|&(at, _)| at);
        let all = [&self.due, &self.idle, &self.forgotten, &self.blank];
        all.into_iter().filter_map(first).min()
    }

    /// Nothing is known of a file any more.
    pub(crate) fn remove(&mut self, object: ObjectId) {
        if let Some(due) = self.hosted.remove(&object).and_then(|hosted| hosted.due) {
            self.due.remove(&(due, object));
        }
    }

    /// Looks again whether this node is still being given a file.
    pub(crate) fn watch_blank(&mut self, at: WallTime, object: ObjectId) {
        self.blank.insert((at, object));
    }

    /// A file of which nothing has come for `idle` that ever made sense.
    pub(crate) fn pop_blank(&mut self, now: WallTime, idle: Span) -> Option<ObjectId> {
        while let Some(&(at, object)) = self.blank.first().filter(|&&(at, _)| at <= now) {
            self.blank.remove(&(at, object));
            let hosted = self.hosted.get_mut(&object).filter(|hosted| hosted.replica.is_blank());
            let Some(hosted) = hosted else { continue };
            if hosted.used == WallTime::ZERO {
                // A process that has just started waits as long as any other.
                hosted.used = now;
            }
            let over = hosted.used + idle;
            if over <= now {
                return Some(object);
            }
            self.blank.insert((over, object));
        }
        None
    }

    /// A file of which this node may have forgotten something; it comes again until that is mended.
    pub(crate) fn pop_forgotten(&mut self, now: WallTime) -> Option<ObjectId> {
        while let Some(&(at, object)) = self.forgotten.first().filter(|&&(at, _)| at <= now) {
            self.forgotten.remove(&(at, object));
            let memory = self.hosted.get(&object).map(|hosted| hosted.replica.memory());
            if memory == Some(Memory::Forgot) {
                self.forgotten.insert((now + MENDED_WITHIN, object));
                return Some(object);
            }
        }
        None
    }

    /// Looks at a file that is led from now on when it may have been idle for too long.
    pub(crate) fn watch(&mut self, at: WallTime, object: ObjectId) {
        if let Some(hosted) = self.hosted.get_mut(&object).filter(|hosted| !hosted.is_watched) {
            hosted.is_watched = true;
            self.idle.insert((at, object));
        }
    }

    /// A file that nobody has used for `idle`, and that is led here.
    pub(crate) fn pop_idle(&mut self, now: WallTime, idle: Span) -> Option<ObjectId> {
        while let Some(&(at, object)) = self.idle.first().filter(|&&(at, _)| at <= now) {
            self.idle.remove(&(at, object));
            let Some(hosted) = self.hosted.get_mut(&object) else { continue };
            let over = hosted.used + idle;
            hosted.is_watched = hosted.stage == Stage::Leading && (over > now || !hosted.is_quiet());
            if hosted.stage == Stage::Leading && !hosted.is_watched {
                return Some(object);
            }
            if !hosted.is_watched {
                continue;
            }
            self.idle.insert((over.max(now + idle / 2), object));
        }
        None
    }

    pub(crate) fn reply(&mut self, asker: Asker, body: FileReplyBody, until: Option<WallTime>) {
        self.replies.push_back((asker.session, FileReply { id: asker.id, body }, until));
    }

    /// The next reply. What is not true any more is not said (R4).
    pub(crate) fn pop_reply(&mut self, now: WallTime, checks: bool) -> Option<(SessionId, FileReply)> {
        let (session, mut reply, until) = self.replies.pop_front()?;
        if until.is_some_and(|until| now >= until) && checks {
            reply.body = FileReplyBody::Unavailable(Unavailable::NoMajority);
        }
        Some((session, reply))
    }

    /// Whether a client's file requests still wait for room in its connection.
    pub(crate) fn has_replies(&self) -> bool {
        !self.replies.is_empty()
    }

    /// Keeps a message until the ceiling covers its epoch; a peer sends it again if too many wait.
    pub(crate) fn defer(&mut self, number: u64, from: Process, message: FileMessage) {
        if self.deferred.len() < DEFERRED_MAX {
            self.deferred.push((number, from, message));
        }
    }
}
