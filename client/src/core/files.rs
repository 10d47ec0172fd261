//! A client's part of files: whom it asks, what it asks again, and what it was told that is not durable yet.
//!
//! A request is sent until it has a result, to whichever member of the file seems to answer for it: a daemon that is
//! redirected from, cannot say, is silent, or is gone is followed by another one. Each sending has an id of its own;
//! a result is one whichever sending it replies to.
//!
//! Rules:
//!
//! - A change takes effect once, however often it is sent: it keeps its number. Together with a change goes the lowest
//!   number that the client waits for; the members forget the outcomes below. Whatever of those is still on its way
//!   takes no effect any more, so a change that was given up may be below.
//! - Requests of one file that have no result yet may take effect in any order. Whoever wants an order waits for the
//!   result of the first.
//! - A change that was acknowledged as written is owed until a sync covers it or finds it lost; then its ticket is told.
//! - Who answers others and not this is busy, and not silent: the same once more would make it slower.
//! - What a daemon wants shown for an inode is shown whenever the client asks about it.
//! - What a number [was kept](Files::promise) for has it, and waits for nothing.
//! - What is owed of a file that nobody has open any more is made durable [a while later](Files::forget_file).
//! - A refusal counts only as a reply to the last sending: an earlier one says nothing of what came of a later one.
//!
//! # Contract
//!
//! As for [locks](super): *events in* are `handle_*`; *commands* are [`create`](Files::create),
//! [`change`](Files::change), [`ask`](Files::ask), [`open`](Files::open), [`sync`](Files::sync), [`forget_file`](Files::forget_file),
//! [`enter_to_hold`](Files::enter_to_hold) and [`give_up`](Files::give_up), and each ticket ends with one event; what is to be done comes out of [`poll_output`](Files::poll_output), to be emptied
//! after every call, and [`poll_timeout`](Files::poll_timeout), which any call may change.
//!
//! # What is deliberately absent
//!
//! No cache, no data of changes that were acknowledged: whoever wants to write again what was lost keeps it. No time limits: a request is sent for ever unless it is given up.

mod closing;
mod debts;
mod entries;
mod holds;
mod job;
mod link;
mod object;
mod proofs;
mod shown;
#[cfg(test)]
mod tests;
mod told;
mod under;

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::{MonoTime, NodeId, ObjectId, Span};
use namespace::Attributes;
use node::file::{Answer, Done, FileBody, FileError, FileReply, FileReplyBody, FileRequest, Level, Query};
use node::{Capability, ClusterMap, RequestId, Unavailable};

use super::grants::Told;
use super::{BACKOFF_MAX, BACKOFF_MIN, Bug, Rules, SILENCE};
use closing::{Closed, TRIES_MAX};
pub use debts::Handover;
use holds::Holds;
pub use job::Opening;
use job::{Job, Task, Wish};
use link::Links;
use object::Object;
use proofs::Proofs;
use shown::Shown;

/// Who has not answered for so long is asked again although it may still say nothing.
const FORGIVEN: Span = Span::from_millis(2_000);
/// So many requests of one file are under way; the others wait for their turn.
const UNDER_WAY_MAX: usize = 32;
/// So many changes of one file may be acknowledged and not durable, or under way.
const UNSYNCED_MAX: usize = 1_024;
/// When so many are, they are made durable although nobody has asked for it.
const SYNC_AT: usize = UNSYNCED_MAX / 2;
/// So many tickets may be open.
const TICKETS_MAX: usize = 1 << 16;
/// So much data may wait or be under way.
const BYTES_MAX: usize = 256 << 20;
/// Something is known of so many files.
const OBJECTS_MAX: usize = 1 << 16;
/// Of so many, or of as many as are in use, it is known whom to ask although nobody wants anything of them.
const IDLE_MAX: usize = 1 << 13;

const _: () = assert!(SILENCE.as_micros() < FORGIVEN.as_micros(), "there is a time in which silence counts");
const _: () = assert!(SYNC_AT + UNDER_WAY_MAX <= UNSYNCED_MAX, "changes go on while those before are synced");

/// Names a request of a caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileTicket(pub u64);

/// Something to do, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileOutput {
    /// Send this. It may be lost together with the connection, which [`Files::handle_down`] then tells.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        request: FileRequest,
    },
    /// This came with the reply that is the result of a ticket, whose event is next. Only for whoever [keeps](Files::caching) it.
    Told {
        /// Which.
        ticket: FileTicket,
        /// What.
        told: Told,
    },
    /// Tell whoever uses the client.
    Event(FileEvent),
}

/// What became of a ticket, which is void afterwards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileEvent {
    /// The file is there.
    Created {
        /// Which.
        ticket: FileTicket,
    },
    /// The change took effect, or never will. Unless it is durable it may still be lost with the power of several nodes, until
    /// it is synced.
    Changed {
        /// Which.
        ticket: FileTicket,
        /// What came of it.
        outcome: Result<Done, FileError>,
        /// How safe it is, which may be less than was wanted.
        level: Level,
        /// What to show to read and write the file that it has created, if it has.
        opened: Option<Box<Capability>>,
    },
    /// The question has an answer.
    Answered {
        /// Which.
        ticket: FileTicket,
        /// The answer.
        answer: Result<Answer, FileError>,
    },
    /// A file of a volume is open.
    Opened {
        /// Which.
        ticket: FileTicket,
        /// How the file is.
        attributes: Box<Attributes>,
        /// What to show to use it.
        capability: Box<Capability>,
    },
    /// All changes of the file that were acknowledged before the sync was asked for are durable, except those that were
    /// reported as lost before that.
    Synced {
        /// Which.
        ticket: FileTicket,
    },
    /// These changes were acknowledged, and may be lost. Nothing more is done about them. What else the sync was to cover
    /// is still owed: sync again.
    Lost {
        /// The file.
        object: ObjectId,
        /// Which sync, unless the client synced of itself.
        ticket: Option<FileTicket>,
        /// The tickets of the changes, in the order of their acknowledgements.
        changes: Arc<[FileTicket]>,
    },
    /// The request is impossible. Nothing has changed.
    Refused {
        /// Which.
        ticket: FileTicket,
        /// Why.
        error: FileError,
    },
    /// There is no such file. What a sync was to cover is not owed any longer.
    NoSuchFile {
        /// Which.
        ticket: FileTicket,
    },
    /// The client was declared dead: all its changes are refused from now on. Whether this one took effect before is
    /// unknown.
    Expired {
        /// Which.
        ticket: FileTicket,
    },
    /// The members have forgotten what came of the change.
    Settled {
        /// Which.
        ticket: FileTicket,
    },
    /// The client was silent for too long: what it had open and locked in a volume is gone. No ticket ends by this.
    Ended {
        /// The volume.
        volume: ObjectId,
    },
    /// The ticket was given up.
    GivenUp {
        /// Which.
        ticket: FileTicket,
        /// Whether it was sent: then a change may have taken effect, or may still do so. A sync has no effect of its own.
        was_sent: bool,
    },
    /// Too much is under way already: nothing was sent. Wait for some of it, and sync what was changed.
    Full {
        /// Which.
        ticket: FileTicket,
    },
}

/// All that a client wants of files.
#[derive(Debug)]
pub struct Files {
    map: Arc<ClusterMap>,
    links: Links,
    /// Each by itself: an ordered map keeps room for nearly as many more.
    objects: BTreeMap<ObjectId, Box<Object>>,
    /// When there are so many, those are forgotten of which nothing is to be known.
    idle_at: usize,
    /// What is shown for objects that are the content of volumes' files.
    shown: Shown,
    /// What is open in volumes, and the tickets of what is about to be.
    holds: Holds,
    holding: BTreeSet<FileTicket>,
    closed: Closed,
    /// Changes of files of which nothing is known are numbered from here on.
    number: u64,
    open: BTreeMap<FileTicket, Open>,
    bytes: usize,
    /// What is under way. Syncs have tickets of their own here.
    jobs: BTreeMap<FileTicket, Job>,
    sendings: BTreeMap<RequestId, Sending>,
    /// What is to be sent, or sent again, and when.
    due: BTreeSet<(MonoTime, FileTicket)>,
    proofs: Proofs,
    rules: Rules,
    /// Whether what is told of volumes is kept.
    caches: bool,
    outputs: VecDeque<FileOutput>,
    tickets: u64,
    request_ids: u64,
    acknowledged: u64,
}

/// A ticket that has no result.
#[derive(Debug)]
struct Open {
    object: ObjectId,
    bytes: usize,
}

/// Something that may be replied to.
#[derive(Clone, Copy, Debug)]
struct Sending {
    job: FileTicket,
    to: NodeId,
    at: MonoTime,
}

/// How a sync ends.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SyncEnd {
    Durable,
    Lost,
    NoSuchFile,
}

impl Files {
    /// A client that wants nothing and knows nobody.
    pub const fn new(map: Arc<ClusterMap>) -> Self {
        Self {
            map,
            links: Links::new(),
            objects: BTreeMap::new(),
            idle_at: IDLE_MAX,
            shown: Shown::new(),
            holds: Holds::new(),
            holding: BTreeSet::new(),
            closed: Closed::new(),
            number: 1,
            open: BTreeMap::new(),
            bytes: 0,
            jobs: BTreeMap::new(),
            sendings: BTreeMap::new(),
            due: BTreeSet::new(),
            proofs: Proofs::new(),
            rules: Rules::ALL,
            caches: false,
            outputs: VecDeque::new(),
            tickets: 0,
            request_ids: 0,
            acknowledged: 0,
        }
    }

    /// Whether a ticket has no result yet.
    pub fn is_open(&self, ticket: FileTicket) -> bool {
        self.open.contains_key(&ticket)
    }

    /// The number that a change goes by at the daemons, once it has had its turn and until it has a result.
    pub fn number(&self, ticket: FileTicket) -> Option<u64> {
        match self.jobs.get(&ticket)?.task {
            Task::Change { number, .. } => Some(number),
            Task::Create | Task::Ask(_) | Task::Open(_) | Task::Sync(_) | Task::Attend => None,
        }
    }

    /// Why a request that is under way has no result, as far as a daemon has said.
    pub fn obstacle(&self, ticket: FileTicket) -> Option<Unavailable> {
        self.jobs.get(&ticket)?.obstacle
    }

    /// Who is believed to answer for a file.
    pub fn believed(&self, object: ObjectId) -> Option<NodeId> {
        self.objects.get(&object).map(|object| object.target())
    }

    /// The file is to be there.
    pub fn create(&mut self, now: MonoTime, object: ObjectId) -> FileTicket {
        self.begin(now, object, Wish::Create)
    }

    /// Asks a question. The answer holds all changes that had a result before.
    pub fn ask(&mut self, now: MonoTime, object: ObjectId, query: Query) -> FileTicket {
        self.begin(now, object, Wish::Ask(query))
    }

    /// Opens a file of a volume, or keeps it open. The volume is asked, and not the file.
    pub fn open(&mut self, now: MonoTime, volume: ObjectId, opening: Opening) -> FileTicket {
        self.begin(now, volume, Wish::Open(opening))
    }

    /// Makes durable all changes of a file that were acknowledged to this client.
    pub fn sync(&mut self, now: MonoTime, object: ObjectId) -> FileTicket {
        let ticket = self.ticket();
        if !self.take_in(now, ticket, object, 0) {
            return ticket;
        }
        let Some(known) = self.objects.get_mut(&object) else { return ticket };
        let latest = known.owed.last_key_value().map(|(&order, _)| order);
        let under_way = known.sync.and_then(|key| self.jobs.get_mut(&key));
        match under_way.map(|job| &mut job.task) {
            // It is not durable yet, so it is not too late to wait for it, too.
            Some(Task::Sync(syncing)) if latest <= Some(syncing.upto) => syncing.waiters.push(ticket),
            _ => {
                known.waiters.insert(ticket);
                self.start_sync(now, object);
            }
        }
        ticket
    }

    /// Waits no longer for a result. A change that was sent is not sent again; whether it takes effect is unknown.
    pub fn give_up(&mut self, now: MonoTime, ticket: FileTicket) {
        let Some(object) = self.open.get(&ticket).map(|open| open.object) else { return };
        let was_sent = self.jobs.get(&ticket).is_some_and(Job::was_sent);
        self.leave_sync(now, object, ticket);
        if let Some(known) = self.objects.get_mut(&object) {
            known.queue.remove(&ticket);
            if known.entries.remove(&ticket).is_some() {
                known.renounce();
            }
            known.waiters.remove(&ticket);
        }
        self.end(ticket, FileEvent::GivenUp { ticket, was_sent });
        self.go_ahead(now, object);
    }

    /// A connection with a daemon is there.
    pub fn handle_up(&mut self, now: MonoTime, node: NodeId) {
        self.handle_down(now, node);
        self.links.up(node);
        let stranded = self.jobs.iter().filter(|(_, job)| job.due.is_none());
        let stranded: Vec<FileTicket> = stranded.map(|(&key, _)| key).collect();
        stranded.into_iter().for_each(|key| self.send(now, key));
    }

    /// A connection is gone, with everything that was sent over it: others are asked at once.
    pub fn handle_down(&mut self, now: MonoTime, node: NodeId) {
        if !self.links.down(node) {
            return;
        }
        self.outputs.retain(|output| !matches!(output, FileOutput::Send { to, .. } if *to == node));
        let gone = self.sendings.iter().filter(|(_, sending)| sending.to == node);
        let gone: Vec<(RequestId, FileTicket)> = gone.map(|(&id, sending)| (id, sending.job)).collect();
        for (id, key) in gone {
            self.sendings.remove(&id);
            let Some(job) = self.jobs.get_mut(&key) else { continue };
            if job.is_over(id) {
                let object = job.object;
                self.pass(now, object, node, None);
                self.send(now, key);
            }
        }
    }

    /// What a daemon says.
    pub fn handle_reply(&mut self, now: MonoTime, from: NodeId, reply: FileReply) {
        self.links.heard(from, now);
        let FileReply { id, body, proofs, grant } = reply;
        let Entry::Occupied(sending) = self.sendings.entry(id) else { return };
        if sending.get().to != from {
            return;
        }
        let Sending { job: key, at, .. } = sending.remove();
        let Some(job) = self.jobs.get_mut(&key) else { return };
        let is_last = job.is_over(id);
        if matches!(body, FileReplyBody::Attended { .. }) {
            self.holds.note_known(job.object, at);
        }
        self.proofs.note(job.object, &body, proofs);
        self.tell(key, from, (&body, grant));
        if let Some(body) = self.take_fact(now, key, body)
            && is_last
        {
            self.take_refusal(now, (key, from), body);
        }
    }

    /// Lets time pass. Calling it early or often changes nothing.
    pub fn handle_timeout(&mut self, now: MonoTime) {
        self.tell_volumes(now);
        while let Some(&(_, key)) = self.due.first().filter(|&&(at, _)| at <= now) {
            let Some(job) = self.jobs.get_mut(&key) else { unreachable!("{key:?} is due and not under way") };
            if let Some((id, node)) = job.last
                && self.links.is_busy(node, now)
                && self.sendings.get(&id).is_some_and(|sending| now.since(sending.at) < FORGIVEN)
            {
                let again_at = now + job.patience();
                self.set_due(key, Some(again_at));
                continue;
            }
            let object = job.object;
            if let Some(silent) = job.fall_silent() {
                self.pass(now, object, silent, None);
            }
            if !self.put_off(now, key, TRIES_MAX) {
                self.send(now, key);
            }
        }
        self.sync_closed(now);
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    pub fn poll_timeout(&self) -> Option<MonoTime> {
        let due = self.due.first().map(|&(at, _)| at);
        [due, self.holds.next_due(), self.closed.next_due()].into_iter().flatten().min()
    }

    /// The next thing to do, if any.
    pub fn poll_output(&mut self) -> Option<FileOutput> {
        self.outputs.pop_front()
    }

    fn ticket(&mut self) -> FileTicket {
        self.tickets += 1;
        FileTicket(self.tickets)
    }

    fn begin(&mut self, now: MonoTime, object: ObjectId, wish: Wish) -> FileTicket {
        let ticket = self.ticket();
        if self.take_in(now, ticket, object, wish.bytes())
            && let Some(known) = self.objects.get_mut(&object)
        {
            known.put(ticket, wish);
            self.go_ahead(now, object);
        }
        ticket
    }

    /// Whether there is room for a ticket. If not, that is its result.
    fn take_in(&mut self, now: MonoTime, ticket: FileTicket, object: ObjectId, bytes: usize) -> bool {
        let fits = self.open.len() < TICKETS_MAX && bytes <= BYTES_MAX - self.bytes;
        if !fits || !self.know(now, object) {
            self.outputs.push_back(FileOutput::Event(FileEvent::Full { ticket }));
            return false;
        }
        self.bytes += bytes;
        self.open.insert(ticket, Open { object, bytes });
        true
    }

    /// Whether something is known of a file from now on.
    fn know(&mut self, now: MonoTime, object: ObjectId) -> bool {
        if !self.objects.contains_key(&object) {
            match self.objects.len() {
                OBJECTS_MAX.. => self.forget(now),
                count if count >= self.idle_at => self.forget_idle(),
                _ => {}
            }
        }
        let count = self.objects.len();
        match self.objects.entry(object) {
            Entry::Occupied(_) => true,
            Entry::Vacant(_) if count >= OBJECTS_MAX => false,
            Entry::Vacant(vacant) => {
                vacant.insert(Box::new(Object::new(self.map.members(object), self.number)));
                true
            }
        }
    }

    /// Sends what has its turn.
    fn go_ahead(&mut self, now: MonoTime, id: ObjectId) {
        while let Some(object) = self.objects.get_mut(&id)
            && let Some((key, wish)) = object.take_next(self.rules)
        {
            let task = match wish {
                Wish::Create => Task::Create,
                Wish::Change(change, level) | Wish::Enter(change, level) => {
                    Task::Change { number: object.number(), level, change, under: None }
                }
                Wish::Flush(change, under, level) => {
                    Task::Change { number: object.number(), level, change, under: Some(under) }
                }
                Wish::Ask(query) => Task::Ask(query),
                Wish::Open(opening) | Wish::OpenOwn(opening) => Task::Open(opening),
            };
            let holds = if self.holding.remove(&key) { self.holds.begin(id, &task) } else { None };
            self.jobs.insert(key, Job::new(id, task).holding(holds));
            self.send(now, key);
        }
        let Some(object) = self.objects.get(&id) else { return };
        if object.owed.len() >= SYNC_AT || !object.waiters.is_empty() {
            self.start_sync(now, id);
        }
        self.forget_closed(id);
    }

    /// Makes durable what is owed, unless that is being done.
    fn start_sync(&mut self, now: MonoTime, id: ObjectId) {
        let Some(object) = self.objects.get_mut(&id).filter(|object| object.sync.is_none()) else { return };
        self.tickets += 1;
        let key = FileTicket(self.tickets);
        match object.begin_sync() {
            Some(syncing) => {
                object.sync = Some(key);
                self.jobs.insert(key, Job::new(id, Task::Sync(syncing)));
                self.send(now, key);
            }
            None => {
                let waiters = std::mem::take(&mut object.waiters);
                waiters.into_iter().for_each(|ticket| self.end(ticket, FileEvent::Synced { ticket }));
            }
        }
    }

    /// Somebody waits no longer for the sync that is under way. It ends if nobody else wants it.
    fn leave_sync(&mut self, now: MonoTime, id: ObjectId, ticket: FileTicket) {
        let Some(object) = self.objects.get(&id) else { return };
        let Some(key) = object.sync else { return };
        let Some(Task::Sync(syncing)) = self.jobs.get_mut(&key).map(|job| &mut job.task) else { return };
        let before = syncing.waiters.len();
        syncing.waiters.retain(|&waiter| waiter != ticket);
        let was_last = before > 0 && syncing.waiters.is_empty();
        if was_last && object.owed.len() < SYNC_AT {
            self.drop_job(key);
            self.closed_synced(now, id);
        }
    }

    /// Sends a request, once more if it was sent before; or keeps it until somebody is there.
    fn send(&mut self, now: MonoTime, key: FileTicket) {
        self.set_due(key, None);
        let Some(job) = self.jobs.get_mut(&key) else { return };
        let Some(object) = self.objects.get_mut(&job.object) else { return };
        let named = job.named.take().filter(|&node| self.links.is_up(node));
        let Some(to) = named.or_else(|| object.pick(&self.links, now)) else {
            self.put_off(now, key, 0);
            return;
        };
        self.links.asked(to, now);
        self.request_ids += 1;
        let id = RequestId(self.request_ids);
        if let Some(oldest) = job.sent(id, to) {
            self.sendings.remove(&oldest);
        }
        self.sendings.insert(id, Sending { job: key, to, at: now });
        let body = match job.task {
            Task::Attend => FileBody::Attend(self.holds.attendance(job.object)),
            _ => job.body(object.settled()),
        };
        let takes = body.locks(job.object).or_else(|| body.takes().map(|mode| (job.object, mode)));
        let shown = takes.and_then(|(content, mode)| self.shown.of(content, mode)).map(Box::new);
        let proof = body.named().and_then(|inode| self.proofs.of(job.object, inode));
        let caches = self.caches && job.task.is_of_tree();
        let (object, holds) = (job.object, job.holds);
        let request = FileRequest { id, object, shown, body, proof, holds, caches };
        let again_at = now + job.patience();
        self.outputs.push_back(FileOutput::Send { to, request });
        self.set_due(key, Some(again_at));
    }

    fn set_due(&mut self, key: FileTicket, at: Option<MonoTime>) {
        let Some(job) = self.jobs.get_mut(&key) else { return };
        if let Some(before) = std::mem::replace(&mut job.due, at) {
            self.due.remove(&(before, key));
        }
        self.due.extend(at.map(|at| (at, key)));
    }

    /// Takes what is true whichever sending it replies to. Anything else comes back.
    fn take_fact(&mut self, now: MonoTime, ticket: FileTicket, body: FileReplyBody) -> Option<FileReplyBody> {
        let job = self.jobs.get(&ticket)?;
        let id = job.object;
        if matches!(body, FileReplyBody::Opened { .. } | FileReplyBody::Changed { .. }) {
            self.end_opening(ticket, Some(&body));
        }
        let event = match (&self.jobs.get(&ticket)?.task, body) {
            (Task::Attend, body @ FileReplyBody::Attended { .. }) => {
                self.take_attended(now, ticket, &body);
                return None;
            }
            (Task::Create, FileReplyBody::Exists) => FileEvent::Created { ticket },
            (Task::Change { .. }, FileReplyBody::Changed { outcome, mark, level, opened }) => {
                let object = self.objects.get_mut(&id)?;
                if outcome.is_ok() && level == Level::Written {
                    self.acknowledged += 1;
                    object.owed.insert(self.acknowledged, (ticket, mark));
                }
                FileEvent::Changed { ticket, outcome, level, opened }
            }
            (Task::Open(_), FileReplyBody::Opened { attributes, capability }) => {
                FileEvent::Opened { ticket, attributes, capability }
            }
            (Task::Ask(_), FileReplyBody::Answer(answer)) => FileEvent::Answered { ticket, answer },
            (Task::Sync(_), FileReplyBody::Durable) => {
                self.end_sync(now, ticket, SyncEnd::Durable);
                return None;
            }
            (Task::Sync(_), FileReplyBody::Lost) => {
                self.end_sync(now, ticket, SyncEnd::Lost);
                return None;
            }
            (_, body) => return Some(body),
        };
        self.end(ticket, event);
        self.go_ahead(now, id);
        None
    }

    /// The last sending had no success.
    fn take_refusal(&mut self, now: MonoTime, (ticket, from): (FileTicket, NodeId), body: FileReplyBody) {
        let Some(job) = self.jobs.get(&ticket) else { return };
        let id = job.object;
        let event = match (&job.task, body) {
            (_, FileReplyBody::Elsewhere(node)) => return self.go_on(now, ticket, from, Some(node)),
            (_, FileReplyBody::Unavailable(why)) => {
                self.note_obstacle(ticket, why);
                return self.go_on(now, ticket, from, None);
            }
            (Task::Attend, body @ (FileReplyBody::NoSuchFile | FileReplyBody::Refused(_))) => {
                return self.take_attended(now, ticket, &body);
            }
            (Task::Sync(_), FileReplyBody::NoSuchFile) => {
                return self.end_sync(now, ticket, SyncEnd::NoSuchFile);
            }
            (Task::Change { .. } | Task::Ask(_) | Task::Open(_), FileReplyBody::NoSuchFile) => {
                FileEvent::NoSuchFile { ticket }
            }
            (Task::Sync(_), FileReplyBody::Refused(_) | FileReplyBody::Expired) => {
                return self.go_on(now, ticket, from, None);
            }
            (_, FileReplyBody::Refused(error)) => {
                self.tell_unchanged(ticket, from);
                FileEvent::Refused { ticket, error }
            }
            (_, FileReplyBody::Expired) => {
                self.end_in(id);
                FileEvent::Expired { ticket }
            }
            (Task::Change { .. }, FileReplyBody::Settled) => FileEvent::Settled { ticket },
            // No reply to this. A file that is being made may not be there for those who asked just before.
            _ => return self.go_on(now, ticket, from, None),
        };
        self.end(ticket, event);
        self.go_ahead(now, id);
    }

    fn note_obstacle(&mut self, key: FileTicket, why: Unavailable) {
        if let Some(job) = self.jobs.get_mut(&key) {
            job.obstacle = Some(why);
        }
    }

    /// The daemon asked does not answer for the file: another is asked, after a while if that goes on.
    fn go_on(&mut self, now: MonoTime, key: FileTicket, asked: NodeId, hint: Option<NodeId>) {
        let has_it = hint.and_then(|node| self.sent_before(now, key, node));
        let is_believed = self.jobs.get(&key).is_some_and(|job| self.believed(job.object) == Some(asked));
        let Some(job) = self.jobs.get_mut(&key) else { return };
        job.fail();
        if self.put_off(now, key, TRIES_MAX) {
            return self.sync_closed(now);
        }
        let Some(job) = self.jobs.get_mut(&key) else { return };
        let (object, backoff, patience) = (job.object, job.backoff(), job.patience());
        if has_it.is_some() {
            job.last = has_it;
        }
        let named = self.pass(now, object, asked, hint);
        if has_it.is_some() {
            return self.set_due(key, Some(now + patience));
        }
        if let Some(job) = self.jobs.get_mut(&key) {
            job.follow(named, is_believed);
        }
        if backoff > Span::ZERO {
            return self.set_due(key, Some(now + backoff));
        }
        self.send(now, key);
    }

    /// The sending that a daemon has, and may reply to: it is slow, or gone. To send it all of that again would make a slow
    /// daemon slower.
    fn sent_before(&self, now: MonoTime, key: FileTicket, node: NodeId) -> Option<(RequestId, NodeId)> {
        let is_there = |id: &RequestId| {
            let sending = self.sendings.get(id);
            sending.is_some_and(|sending| sending.to == node && now.since(sending.at) < FORGIVEN)
        };
        let id = self.jobs.get(&key)?.sendings().find(is_there)?;
        Some((id, node))
    }

    fn pass(
        &mut self,
        now: MonoTime,
        object: ObjectId,
        asked: NodeId,
        hint: Option<NodeId>,
    ) -> Option<NodeId> {
        self.objects.get_mut(&object)?.pass(asked, hint, (&self.links, now))
    }

    /// A ticket has its result.
    fn end(&mut self, ticket: FileTicket, event: FileEvent) {
        let Some(open) = self.open.remove(&ticket) else { return };
        self.bytes -= open.bytes;
        self.drop_job(ticket);
        self.outputs.push_back(FileOutput::Event(event));
    }

    /// Nothing is under way any longer by this name.
    fn drop_job(&mut self, key: FileTicket) -> Option<Job> {
        self.set_due(key, None);
        self.holding.remove(&key);
        self.end_opening(key, None);
        let job = self.jobs.remove(&key)?;
        for id in job.sendings() {
            self.sendings.remove(&id);
        }
        let object = self.objects.get_mut(&job.object)?;
        match job.task {
            Task::Change { number, .. } => drop(object.open.remove(&number)),
            Task::Create | Task::Ask(_) | Task::Open(_) | Task::Sync(_) | Task::Attend => {}
        }
        match job.task {
            Task::Sync(_) => object.sync = None,
            Task::Create | Task::Change { .. } | Task::Ask(_) | Task::Open(_) | Task::Attend => {
                object.under_way -= 1;
            }
        }
        Some(job)
    }

    /// What a sync was to cover is durable, or will never be. Whoever waits for the next sync wants the same covered.
    fn end_sync(&mut self, now: MonoTime, key: FileTicket, end: SyncEnd) {
        let Some(Job { object: id, task: Task::Sync(syncing), .. }) = self.drop_job(key) else { return };
        let Some(object) = self.objects.get_mut(&id) else { return };
        let changes: Arc<[FileTicket]> = object.settle_owed(syncing.upto).into();
        let mut waiters = syncing.waiters;
        if end != SyncEnd::Durable {
            waiters.extend(std::mem::take(&mut object.waiters));
            // A file that is gone took them with it.
            if !changes.is_empty() && (waiters.is_empty() || end == SyncEnd::NoSuchFile) {
                let lost = FileEvent::Lost { object: id, ticket: None, changes: changes.clone() };
                self.outputs.push_back(FileOutput::Event(lost));
            }
        }
        for ticket in waiters {
            let event = match end {
                SyncEnd::Durable => FileEvent::Synced { ticket },
                SyncEnd::Lost => {
                    FileEvent::Lost { object: id, ticket: Some(ticket), changes: changes.clone() }
                }
                SyncEnd::NoSuchFile => FileEvent::NoSuchFile { ticket },
            };
            self.end(ticket, event);
        }
        self.go_ahead(now, id);
        self.closed_synced(now, id);
    }
}
