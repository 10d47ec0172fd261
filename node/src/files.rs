//! The files of a shard: replicas, the writes that their messages wait for, and who is to be told what.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use base::{ClientId, Epoch, Incarnation, NodeId, ObjectId, Process, Span, View, ViewId, WallTime};
use lease::Ended;
use namespace::InodeId;
use replication::{
    Checkpoint, JournalError, Memory, Message, Position, Record, Replica, Request, Standing, Ticket,
};

use crate::access::About;
use crate::blocked::Blocked;
use crate::errands::ErrandBody;
use crate::fetches::Fetches;
use crate::file::{Done, File, FileBody, FileError, FileOf, FileReply, FileReplyBody, Key, Level, Mark};
use crate::grants::Grants;
use crate::holders::Holders;
use crate::lends::Lending;
use crate::locking::Waits;
use crate::logs::Logs;
use crate::over::Round;
use crate::recalls::Recalls;
use crate::recent::Wanted;
use crate::volumes::{OF_DAEMONS, answer_bytes};
use crate::writes::Writes;
use crate::{Proof, RequestId, SessionId, Unavailable};

/// How many requests may wait for a file until this node serves it.
const WAITING_MAX: usize = 1_024;
/// How much data may be in them.
const WAITING_BYTES_MAX: u64 = 16 << 20;
/// A file that this node has forgotten something of is led again so soon, if nobody else did it meanwhile.
const MENDED_WITHIN: Span = Span::from_secs(2);
/// A volume that clients have in their caches is idle after so many times as long as others. They ask about it again before that if they use
/// what they know.
const IDLE_IN_CACHE: u64 = 4;
/// After a tenure that came to nothing the node wants no other one for so long; twice as long after each further one.
const AVOIDED_MIN: Span = Span::from_secs(1);
const AVOIDED_MAX: Span = Span::from_secs(10);
const AVOIDED_DOUBLINGS: u32 = 4;
const _: () = assert!(AVOIDED_MIN.as_micros() << AVOIDED_DOUBLINGS >= AVOIDED_MAX.as_micros());
/// Files that may have been idle for too long within this span are looked at together: one message tells a peer of many.
const IDLE_TOGETHER: Span = Span::from_millis(100);
/// How many files a peer that forgot is told of at a time, and how soon it is told of more.
const LISTED_MAX: usize = 256;
const LISTED_EVERY: Span = Span::from_millis(10);
/// How many messages may wait for the epoch ceiling.
const DEFERRED_MAX: usize = 4_096;
/// What is no larger carries no data: promises, acknowledgements, and what else must not wait.
pub(crate) const SMALL_BYTES_MAX: u64 = 1_024;
/// How much may be in them; a promise or an acknowledgement always fits.
const DEFERRED_BYTES_MAX: u64 = 16 << 20;

/// All files of a shard.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    pub(crate) config: Arc<replication::Config>,
    /// In epochs up to this one the node may have lost what it had not synced.
    pub(crate) forgot_at: Option<u64>,
    /// Only as a planted bug: members that do not know the members vote.
    pub(crate) votes_unsure: bool,
    /// Boxed, as there are many: a node of the map has room for eleven, and is a third empty.
    pub(crate) hosted: BTreeMap<ObjectId, Box<Hosted>>,
    pub(crate) writes: Writes,
    pub(crate) logs: Logs,
    /// Whether the disk does nothing although it should.
    pub(crate) is_stalled: bool,
    /// Nodes whose disks take no more data.
    pub(crate) full: BTreeSet<NodeId>,
    /// Whether this disk has no space for what other daemons have accepted.
    pub(crate) is_spent: bool,
    /// Files with something to do, and when.
    due: BTreeSet<(WallTime, ObjectId)>,
    /// Volumes whose clients are looked after, and when.
    pub(crate) visits: BTreeSet<(WallTime, ObjectId)>,
    /// Volumes where something is to be deleted, and when.
    pub(crate) doomed: BTreeSet<(WallTime, ObjectId)>,
    /// Files that have borrowed size and times, and when they may be given back.
    pub(crate) lends: BTreeSet<(WallTime, ObjectId)>,
    /// Files that this node leads, and when they may have been idle for too long.
    idle: BTreeSet<(WallTime, ObjectId)>,
    /// Files of which this node may have forgotten something, and when to see about it.
    forgotten: BTreeSet<(WallTime, ObjectId)>,
    /// Files that this node began to be given, and when it may have been for too long.
    blank: BTreeSet<(WallTime, ObjectId)>,
    /// The look at all files for what is over.
    pub(crate) round: Round,
    /// Nodes that an operator has given up.
    pub(crate) struck: BTreeSet<NodeId>,
    /// Recoveries that have waited for somebody.
    pub(crate) blocked: Blocked,
    /// Which runs of peers have said that they forgot something.
    pub(crate) forgetful: BTreeMap<NodeId, Incarnation>,
    /// Peers that have forgotten something, and up to where they were told of files that are here; and when they are
    /// told more.
    listing: BTreeMap<NodeId, Option<ObjectId>>,
    list_at: Option<WallTime>,
    /// Replies, in order, and until when they are true.
    replies: VecDeque<Leaving>,
    /// Those about changes: they wait while the journal lags behind.
    changed: VecDeque<Leaving>,
    /// How much memory the answers of trees among them take.
    pub(crate) answer_bytes: u64,
    pub(crate) fetches: Fetches,
    /// Parts that could not be read, in these versions.
    pub(crate) unreadable: Vec<(ObjectId, Key, Position)>,
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

impl KeptFile {
    /// What came after the file was over here, as if nothing had been before; none if nothing came.
    fn since_it_was_over(mut self) -> Option<Self> {
        let Some(over) = self.records.iter().rposition(|record| matches!(record, Record::Buried(None)))
        else {
            return Some(self);
        };
        let records = self.records.split_off(over + 1);
        (!records.is_empty()).then_some(Self { checkpoint: None, records })
    }
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
    pub(crate) changing: BTreeMap<(ClientId, u64), Vec<(Asker, Level)>>,
    /// Who waits for an answer or for durability.
    /// Boxed, as a map that had something once keeps room for eleven.
    pub(crate) asking: BTreeMap<Ticket, Box<Asking>>,
    /// When a client last wanted something.
    pub(crate) used: WallTime,
    /// Since when this node leads it, and when it has last heard of which client since then.
    pub(crate) led_since: WallTime,
    pub(crate) heard: BTreeMap<ClientId, WallTime>,
    /// How many tenures in a row came to nothing, and until when there is none for that.
    fruitless: u32,
    pub(crate) avoided_until: WallTime,
    /// Somebody has promised this number to somebody.
    pub(crate) highest: u64,
    /// The number of the last record of this file.
    pub(crate) last_write: u64,
    /// How often something of it was damaged that the checkpoint has again which was taken last.
    pub(crate) mended: u32,
    /// When it is looked at again.
    due: Option<WallTime>,
    /// Whether it is looked at when it may have been idle for too long.
    is_watched: bool,
    /// The view in force for the lease, unless it is the first, which the map names.
    pub(crate) view: Option<View>,
    /// How the file stands to its volume.
    pub(crate) lending: Lending,
    /// What its clients may answer from caches, if it is a volume that is led here.
    pub(crate) grants: Grants,
    /// Since when it is wanted here, until this node serves it.
    pub(crate) wanted: Option<Wanted>,
    /// How the lease before this one ended, and whether something acknowledged was found lost since.
    pub(crate) ended: Ended,
    pub(crate) is_lossy: bool,
    /// Whether the volume is looked at for what is to be deleted.
    pub(crate) has_deletion: bool,
    /// What of a volume this node has deleted, by which entry once its data is gone.
    pub(crate) deleting: BTreeMap<InodeId, Option<Position>>,
    /// What of a volume is being taken back from whom it is lent to.
    pub(crate) recalls: Recalls,
    /// Who has which of its files open, if it is a volume, and who waits for a lock.
    pub(crate) holders: Holders,
    pub(crate) waits: Waits,
    /// What is to be done once what a volume has committed would survive a power cut.
    pub(crate) preparing: BTreeMap<Ticket, Vec<(FileOf, ErrandBody)>>,
    /// Who waits to hear that it may forget the file, and since which view it is no member of it.
    pub(crate) retired: BTreeMap<NodeId, ViewId>,
    /// If this node waits until all have what is to end it, whether that is a mark; and if it has ended it, in which epoch and at which entry.
    pub(crate) is_ending: Option<bool>,
    pub(crate) is_over: Option<(Epoch, Position)>,
    /// When an operator last asked who waits to be told something, and whether that is that there is no such file.
    pub(crate) ordered: Option<WallTime>,
    pub(crate) is_absent: bool,
}

/// Who asked for something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asker {
    pub(crate) from: Caller,
    pub(crate) client: ClientId,
    pub(crate) id: RequestId,
    /// What a confined client shows for an inode.
    pub(crate) proof: Option<Proof>,
    /// Which of its client's openings it is, if the client has the file open by it.
    pub(crate) holds: Option<u64>,
    /// Until when what it shows is good for a change.
    pub(crate) good_until: Option<WallTime>,
    /// Whether the inodes that it is told of are proven to it, and what it creates is open for it. Who does again what it might not do
    /// any more, or keeps a file open, has no more to show for it than before.
    pub(crate) is_shown: bool,
    /// Whether it takes grants.
    pub(crate) caches: bool,
}

impl Asker {
    /// What a change goes by.
    pub(crate) const fn request(&self, body: &FileBody) -> Option<Request> {
        match body {
            &FileBody::Change { number, settled, .. } => {
                Some(Request { client: self.client, number, settled })
            }
            _ => None,
        }
    }
}

/// Where a reply goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// To a client.
    Session(SessionId),
    /// To a run of a daemon, for which it is an [errand](crate::errands); it may be this one.
    Node(Process),
}

/// A reply, and until when it is true.
pub(crate) type Leaving = (Caller, FileReply, Option<WallTime>);

/// Who waits for an answer or for durability.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    pub(crate) asker: Asker,
    /// The change that is to be durable, if it is one.
    pub(crate) change: Option<(Result<Done, FileError>, Mark)>,
    /// What an answer is made into.
    pub(crate) about: About,
    /// The inode in which, or of which, something was looked up.
    pub(crate) on: Option<InodeId>,
    /// What was asked, if it may have to be asked again.
    pub(crate) again: Option<FileBody>,
}

impl Asking {
    pub(crate) const fn new(asker: Asker, about: About) -> Self {
        Self { asker, change: None, about, on: None, again: None }
    }
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

impl Hosted {
    pub(crate) fn new(replica: Replica<File>, now: WallTime) -> Self {
        let view = replica.view();
        let view = (view.id > ViewId::default()).then(|| view.clone());
        Self {
            view,
            lending: Lending::default(),
            grants: Grants::default(),
            wanted: None,
            ended: Ended::Unknown,
            is_lossy: false,
            has_deletion: false,
            deleting: BTreeMap::new(),
            recalls: Recalls::default(),
            holders: Holders::default(),
            waits: Waits::default(),
            preparing: BTreeMap::new(),
            retired: BTreeMap::new(),
            is_ending: None,
            is_over: None,
            ordered: None,
            is_absent: false,
            replica,
            stage: Stage::Idle,
            waiting: VecDeque::new(),
            changing: BTreeMap::new(),
            asking: BTreeMap::new(),
            used: now,
            led_since: now,
            heard: BTreeMap::new(),
            fruitless: 0,
            avoided_until: WallTime::ZERO,
            highest: 0,
            last_write: 0,
            mended: 0,
            due: None,
            is_watched: false,
        }
    }

    /// A tenure came to nothing. Others may have more luck, and this node tries again only after a while, and longer
    /// each time.
    pub(crate) fn avoid(&mut self, now: WallTime) {
        let wait = AVOIDED_MIN * (1 << self.fruitless.min(AVOIDED_DOUBLINGS));
        self.fruitless = self.fruitless.saturating_add(1);
        self.avoided_until = now + wait.min(AVOIDED_MAX);
    }

    /// A tenure has begun.
    pub(crate) fn begin(&mut self, now: WallTime) {
        self.heard.clear();
        (self.is_ending, self.is_over) = (None, None);
        (self.led_since, self.fruitless, self.avoided_until) = (now, 0, WallTime::ZERO);
    }

    /// The client to give up for another one: the one that was not heard of for longest, if that is long enough.
    pub(crate) fn silent_client(
        &self,
        silent_since: WallTime,
        is_here: impl Fn(ClientId) -> bool,
    ) -> Option<ClientId> {
        let heard = |client: &ClientId| self.heard.get(client).copied().unwrap_or(self.led_since);
        let is_silent = |client: &ClientId| {
            client.certificate != OF_DAEMONS && heard(client) <= silent_since && !is_here(*client)
        };
        let silent = self.replica.clients().filter(is_silent);
        silent.min_by_key(heard)
    }

    pub(crate) fn serves(&self) -> bool {
        self.stage == Stage::Leading && self.replica.standing() == Standing::Serving
    }

    /// Whether a node should know of the file, and there is something of it here.
    fn is_known_to(&self, node: NodeId) -> bool {
        let replica = &self.replica;
        replica.view().members.contains(node) && (!replica.is_whole() || replica.tail() > Position::START)
    }

    /// Whether nothing of the file was ever here, and nobody wants anything of it.
    pub(crate) fn is_blank(&self) -> bool {
        let has_nothing = self.replica.is_whole() && self.replica.tail() == Position::START;
        // It may have been told that others have it.
        has_nothing && self.view.is_none() && self.is_quiet() && self.ordered.is_none()
    }

    /// An operator who wants to know more would have asked again. What members say to each other is no sign of one: he who is
    /// waited for may be why they do.
    pub(crate) fn end_order(&mut self, now: WallTime, idle: Span) {
        if self.ordered.is_none_or(|at| at + idle <= now) {
            (self.ordered, self.is_absent) = (None, false);
        }
    }

    /// Nobody is to be served for a while. A map that is empty keeps room for eleven, and there are many files.
    pub(crate) fn free_room(&mut self) {
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
        if self.changing.is_empty() {
            self.changing = BTreeMap::new();
        }
        if self.asking.is_empty() {
            self.asking = BTreeMap::new();
        }
    }

    /// Whether nobody waits for anything, and all who were ever members know who is.
    pub(crate) fn is_quiet(&self) -> bool {
        let is_asked = !self.waiting.is_empty() || !self.changing.is_empty() || !self.asking.is_empty();
        let is_kept = !self.recalls.is_empty() || !self.waits.is_empty() || !self.grants.are_quiet();
        !is_asked && !is_kept && self.replica.is_settled()
    }

    /// Whether it is a volume where something is to be deleted.
    pub(crate) fn has_doomed(&self) -> bool {
        !self.replica.machine().tree().doomed(1).is_empty()
    }

    /// Whether this very request is waited for already, as a daemon asked for it before.
    pub(crate) fn is_doing(&self, asker: &Asker) -> bool {
        let is_it = |other: &Asker| (other.from, other.id) == (asker.from, asker.id);
        let of_client = (asker.client, 0)..=(asker.client, u64::MAX);
        let mut changing = self.changing.range(of_client).flat_map(|(_, askers)| askers);
        self.waiting.iter().any(|(waiting, _)| is_it(waiting))
            || changing.any(|(changing, _)| is_it(changing))
            || self.asking.values().any(|asking| is_it(&asking.asker))
    }

    /// Keeps a request until this node serves. False if too many wait.
    pub(crate) fn wait(&mut self, asker: Asker, body: FileBody) -> bool {
        let bytes: u64 = self.waiting.iter().map(|(_, body)| body.data_bytes()).sum();
        let fits = self.waiting.len() < WAITING_MAX && bytes + body.data_bytes() <= WAITING_BYTES_MAX;
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
            votes_unsure: false,
            hosted: BTreeMap::new(),
            writes: Writes::default(),
            logs: Logs::default(),
            is_stalled: false,
            full: BTreeSet::new(),
            is_spent: false,
            due: BTreeSet::new(),
            visits: BTreeSet::new(),
            doomed: BTreeSet::new(),
            lends: BTreeSet::new(),
            idle: BTreeSet::new(),
            forgotten: BTreeSet::new(),
            blank: BTreeSet::new(),
            round: Round::default(),
            struck: BTreeSet::new(),
            blocked: Blocked::new(),
            forgetful: BTreeMap::new(),
            listing: BTreeMap::new(),
            list_at: None,
            replies: VecDeque::new(),
            changed: VecDeque::new(),
            answer_bytes: 0,
            fetches: Fetches::default(),
            unreadable: Vec::new(),
            deferred: Vec::new(),
            tickets: 0,
        };
        for (object, kept, first) in kept {
            let Some(kept) = kept.since_it_was_over() else { continue };
            let checkpoint = kept.checkpoint.unwrap_or(first);
            let replica = Replica::new(me, Arc::clone(&config), checkpoint, kept.records, forgot_at)
                .map_err(|why| FileJournalError { object, why })?;
            if replica.is_void() {
                continue;
            }
            if replica.memory() != Memory::Clean || replica.lacks() {
                files.forgotten.insert((WallTime::ZERO, object));
            }
            if replica.is_blank() {
                files.blank.insert((WallTime::ZERO, object));
            }
            files.logs.note(object, replica.log_bytes());
            files.hosted.insert(object, Box::new(Hosted::new(replica, WallTime::ZERO)));
            // Who was no member any more when it ended waits for its time to say so again.
            files.note_due(object);
        }
        Ok(files)
    }

    pub(crate) const fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// Forgets logs if all together weigh too much, and that of a file which was removed while a disk is full: who has no space for what
    /// led to that is offered the mark alone.
    pub(crate) fn bound_logs(&mut self, changed: ObjectId, bytes_max: u64) {
        let weigh = |hosted: &Hosted| hosted.replica.log_bytes();
        let hosted = self.hosted.get_mut(&changed);
        let bytes = hosted.map_or(0, |hosted| {
            if !self.full.is_empty() && hosted.replica.machine().attributes().1.is_removed() {
                hosted.replica.forget_all_but_state();
            }
            weigh(hosted)
        });
        self.logs.note(changed, bytes);
        for object in self.logs.beyond(bytes_max) {
            if let Some(hosted) = self.hosted.get_mut(&object) {
                hosted.replica.forget_log();
            }
            self.logs.renew(object, self.hosted.get(&object).map_or(0, |hosted| weigh(hosted)));
        }
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

    /// When there is something to do; a disk may owe something for `patience` before there is.
    pub(crate) fn next_due(&self, patience: Span) -> Option<WallTime> {
        let stalled = self.writes.stalled_at(patience).filter(|_| !self.is_stalled);
        let first = |due: &BTreeSet<(WallTime, ObjectId)>| due.first().map(|&(at, _)| at);
        let others = [stalled, self.list_at, self.round.next_due()];
        let looks =
            [&self.due, &self.visits, &self.doomed, &self.lends, &self.idle, &self.forgotten, &self.blank]
                .map(first);
        looks.into_iter().chain(others).flatten().min()
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

    /// This node has forgotten what it had of a file, if it had anything, or cannot read some of it any more.
    pub(crate) fn note_forgotten(&mut self, now: WallTime, object: ObjectId) {
        self.forgotten.insert((now + MENDED_WITHIN, object));
    }

    /// A peer has to be told which files there are.
    pub(crate) fn list_for(&mut self, now: WallTime, peer: NodeId) {
        self.listing.insert(peer, None);
        self.list_at = Some(now);
    }

    /// The next files that peers are told of.
    pub(crate) fn poll_listed(&mut self, now: WallTime) -> Vec<(NodeId, ObjectId)> {
        let mut listed = Vec::new();
        if self.list_at.is_none_or(|at| at > now) {
            return listed;
        }
        let hosted = &self.hosted;
        self.listing.retain(|&peer, cursor| {
            let behind = (cursor.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
            let next: Vec<_> = hosted.range(behind).take(LISTED_MAX).collect();
            *cursor = next.last().map(|(object, _)| **object);
            let known = next.iter().filter(|(_, hosted)| hosted.is_known_to(peer));
            listed.extend(known.map(|(object, _)| (peer, **object)));
            next.len() == LISTED_MAX
        });
        self.list_at = (!self.listing.is_empty()).then(|| now + LISTED_EVERY);
        listed
    }

    /// A file of which this node may have forgotten something; it comes again until that is mended.
    pub(crate) fn pop_forgotten(&mut self, now: WallTime) -> Option<ObjectId> {
        while let Some(&(at, object)) = self.forgotten.first().filter(|&&(at, _)| at <= now) {
            self.forgotten.remove(&(at, object));
            let replica = self.hosted.get(&object).map(|hosted| &hosted.replica);
            if replica.is_some_and(|replica| replica.memory() != Memory::Clean || replica.lacks()) {
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
            self.look_when_idle(at, object);
        }
    }

    fn look_when_idle(&mut self, at: WallTime, object: ObjectId) {
        self.idle.insert((at.next_step(IDLE_TOGETHER), object));
    }

    /// The files that are led here, and perhaps some that were.
    pub(crate) fn led(&self) -> Vec<ObjectId> {
        self.idle.iter().map(|&(_, object)| object).collect()
    }

    /// A file that nobody has used for `idle`, and that is led here.
    pub(crate) fn pop_idle(&mut self, now: WallTime, idle: Span) -> Option<ObjectId> {
        while let Some(&(at, object)) = self.idle.first().filter(|&&(at, _)| at <= now) {
            self.idle.remove(&(at, object));
            let Some(hosted) = self.hosted.get_mut(&object) else { continue };
            let over = hosted.used + idle * if hosted.grants.are_out() { IDLE_IN_CACHE } else { 1 };
            // Who lags behind is brought up to date first, as long as it answers; and what is doomed in a volume is deleted.
            let is_busy = over > now
                || !hosted.is_quiet()
                || hosted.has_doomed()
                || hosted.holders.is_needed
                || hosted.lends_on()
                || hosted.replica.standing() == Standing::Recovering
                || !hosted.replica.backups_are_settled();
            hosted.is_watched = hosted.stage == Stage::Leading && is_busy;
            if hosted.stage == Stage::Leading && !hosted.is_watched {
                return Some(object);
            }
            if !hosted.is_watched {
                continue;
            }
            self.look_when_idle(over.max(now + idle / 2), object);
        }
        None
    }

    pub(crate) fn reply(&mut self, asker: Asker, body: FileReplyBody, until: Option<WallTime>) {
        self.push_reply(asker.from, FileReply { id: asker.id, body, proofs: Vec::new(), grant: None }, until);
    }

    pub(crate) fn push_reply(&mut self, to: Caller, reply: FileReply, until: Option<WallTime>) {
        // Whoever hears of a change sends the next one.
        let waits = matches!(reply.body, FileReplyBody::Changed { .. });
        let replies = if waits { &mut self.changed } else { &mut self.replies };
        self.answer_bytes += answer_bytes(&reply);
        replies.push_back((to, reply, until));
    }

    /// The next reply. What is not true any more is not said (R4).
    pub(crate) fn pop_reply(&mut self, now: WallTime, checks: bool) -> Option<(Caller, FileReply)> {
        let changed = if self.writes.is_behind() { None } else { self.changed.pop_front() };
        let (to, mut reply, until) = changed.or_else(|| self.replies.pop_front())?;
        self.answer_bytes -= answer_bytes(&reply);
        if until.is_some_and(|until| now >= until) && checks {
            reply.body = FileReplyBody::Unavailable(Unavailable::NoMajority);
        }
        Some((to, reply))
    }

    /// Whether a reply about this change waits for the journal.
    pub(crate) fn has_changed(&self, asker: &Asker) -> bool {
        self.changed.iter().any(|(to, reply, _)| (*to, reply.id) == (asker.from, asker.id))
    }

    /// Whether a client's file requests still wait for room in its connection.
    pub(crate) fn has_replies(&self) -> bool {
        !self.replies.is_empty() || !self.changed.is_empty() || self.fetches.has_replies()
    }

    /// Keeps a message until the ceiling covers its epoch; a peer sends it again if too many wait.
    pub(crate) fn defer(&mut self, number: u64, from: Process, message: FileMessage) {
        let is_small = message.message.bytes() <= SMALL_BYTES_MAX;
        let bytes = || self.deferred.iter().map(|(_, _, message)| message.message.bytes()).sum::<u64>();
        let fits = is_small || bytes() <= DEFERRED_BYTES_MAX;
        if self.deferred.len() < DEFERRED_MAX && fits {
            self.deferred.push((number, from, message));
        }
    }
}
