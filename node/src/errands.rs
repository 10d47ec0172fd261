//! What daemons do for each other, one for a file or a volume that it leads and another for one that it leads.
//!
//! Size and times of a file belong to the volume's tree or to the file's content, whose primaries are two daemons. An errand goes
//! from one to the other, like a client's request: whoever does not lead what it is about names somebody, and it is sent until it
//! is answered, or until this node does not lead any longer what it is for. Each has the same effect if it is done twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{ClientId, NodeId, ObjectId, Process, Span, WallTime};
use lease::Algorithm;
use namespace::{
    Ask, Change as TreeChange, Generation, Given, Lent, LentTo, Op as TreeOp, Query as TreeQuery, Who,
};
use replication::Ticket;

use crate::file::{Change, FileBody, FileError, FileOf, FileReply, FileReplyBody, Level, Query};
use crate::files::{Asker, Caller};
use crate::volumes::{OF_DAEMONS, file_object};
use crate::{Bug, Output, RequestId, Shard};

/// An errand that is not answered for so long is sent to another member.
const SILENCE: Span = Span::from_secs(1);
/// How long it waits before it is sent again, at least and at most.
const BACKOFF_MIN: Span = Span::from_millis(2);
const BACKOFF_MAX: Span = Span::from_millis(100);
const BACKOFF_DOUBLINGS: u32 = 6;
const REMOVAL_BACKOFF_MAX: Span = Span::from_secs(2);
const REMOVAL_DOUBLINGS: u32 = 10;
/// What waits for something else to end is looked at again so soon.
const LATER: Span = Span::from_millis(10);
/// Whose rights a lend is not to spare: whoever writes, the file is no longer to be run as somebody else.
const NOBODY: u32 = 65_534;

/// One errand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errand {
    /// Names it in the reply.
    pub id: RequestId,
    /// The file it is about.
    pub of: FileOf,
    /// What is to be done.
    pub body: ErrandBody,
}

/// What a daemon asks another one to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrandBody {
    /// The volume lends size and times to the file, or says how they are lent already.
    Lend,
    /// The volume takes size and times back.
    GiveBack {
        /// From which lend.
        generation: Generation,
        /// What they are; none if nothing was written under it.
        given: Option<Given>,
    },
    /// The file ends a lend, and says what the volume is to have.
    Return {
        /// Which.
        lent: Lent,
        /// When the content shall have changed last. None for when it has.
        modified: Option<WallTime>,
    },
    /// The file's content is removed.
    Remove,
    /// The volume says how the file is lent, once that survives a power cut, and lends nothing.
    Confirm {
        /// The lend that a client says it has.
        generation: Generation,
    },
}

/// Errands that are not done yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Errands {
    last: u64,
    all: BTreeMap<RequestId, Running>,
    /// When to send which.
    due: BTreeSet<(WallTime, RequestId)>,
}

#[derive(Clone, Debug)]
struct Running {
    /// For what that is led here.
    owner: ObjectId,
    errand: Errand,
    /// Who was asked last, and who was named.
    at: Option<NodeId>,
    hint: Option<NodeId>,
    turn: usize,
    failures: u32,
    due: WallTime,
}

impl Errand {
    /// Who is to do it: the file or the volume.
    fn object(&self) -> ObjectId {
        match self.body {
            ErrandBody::Lend | ErrandBody::GiveBack { .. } | ErrandBody::Confirm { .. } => self.of.volume,
            ErrandBody::Return { .. } | ErrandBody::Remove => file_object(self.of.volume, self.of.inode),
        }
    }

    /// What is asked of whoever is to do it.
    fn asked(&self, early: bool) -> FileBody {
        let tree = |change| Change::Tree(Arc::new(TreeOp::wanted(nobody(), change)));
        let inode = self.of.inode;
        let (level, change) = match self.body {
            // What is written under a lend must not survive a power cut that the lend, or the file itself, does not.
            ErrandBody::Lend => (Level::Durable, tree(TreeChange::Lend { inode, to: LentTo::Content })),
            ErrandBody::GiveBack { generation, given } => {
                // Of what nothing was written under the file may keep nothing, not even that it has ended.
                let level = if given.is_some() { Level::Written } else { Level::Durable };
                let (accessed, mode, changed) = (None, None, None);
                (level, tree(TreeChange::GiveBack { inode, generation, given, accessed, mode, changed }))
            }
            // What the tree is given back must not be written to after a power cut.
            ErrandBody::Return { lent, modified } => {
                (Level::Durable, Change::Return { of: self.of, lent, modified })
            }
            ErrandBody::Remove => (Level::Durable, Change::Remove),
            ErrandBody::Confirm { .. } => {
                let query = TreeQuery { who: Who::root(), ask: Ask::Attributes { inode } };
                return FileBody::Ask(Query::Tree(Arc::new(query)));
            }
        };
        let level = if early { Level::Written } else { level };
        // Its number is that of the entry that it becomes.
        FileBody::Change { number: 0, settled: 0, level, under: None, change }
    }
}

impl Running {
    fn backoff(&self) -> Span {
        // Nobody waits for what is deleted, and those who have it may be away for long.
        let (doublings, max) = match self.errand.body {
            ErrandBody::Remove => (REMOVAL_DOUBLINGS, REMOVAL_BACKOFF_MAX),
            _ => (BACKOFF_DOUBLINGS, BACKOFF_MAX),
        };
        match self.failures {
            0 | 1 => Span::ZERO,
            failures => (BACKOFF_MIN * (1 << failures.min(doublings))).min(max),
        }
    }
}

impl Errands {
    pub(crate) fn next_due(&self) -> Option<WallTime> {
        self.due.first().map(|&(at, _)| at)
    }

    /// Nobody here needs these any longer.
    pub(crate) fn end(&mut self, owner: ObjectId) {
        let Self { all, due, .. } = self;
        all.retain(|&id, running| {
            let is_over = running.owner == owner;
            if is_over {
                due.remove(&(running.due, id));
            }
            !is_over
        });
    }

    /// Whoever was asked is gone.
    pub(crate) fn lose(&mut self, node: NodeId) {
        let lost = self.all.iter().filter(|(_, running)| running.at == Some(node));
        let lost: Vec<RequestId> = lost.map(|(&id, _)| id).collect();
        lost.into_iter().for_each(|id| self.set_due(id, WallTime::ZERO));
    }

    fn set_due(&mut self, id: RequestId, due: WallTime) {
        let Some(running) = self.all.get_mut(&id) else { return };
        let before = std::mem::replace(&mut running.due, due);
        self.due.remove(&(before, id));
        self.due.insert((due, id));
    }

    fn pop_due(&mut self, now: WallTime) -> Option<RequestId> {
        let &(at, id) = self.due.first().filter(|&&(at, _)| at <= now)?;
        self.due.remove(&(at, id));
        Some(id)
    }
}

impl<A: Algorithm> Shard<A> {
    /// A connected peer asks for something on behalf of what it leads.
    pub fn handle_errand(&mut self, now: WallTime, from: Process, errand: Errand) {
        if self.peers.get(&from.node) != Some(&from.incarnation) {
            return;
        }
        self.do_errand(now, from, errand);
        self.take_events(now);
    }

    /// What a connected peer says to an errand.
    pub fn handle_errand_reply(&mut self, now: WallTime, from: Process, reply: FileReply) {
        if self.peers.get(&from.node) != Some(&from.incarnation) {
            return;
        }
        self.take_errand_reply(now, from.node, reply);
        self.take_events(now);
    }

    /// Has something done for what is led here.
    pub(crate) fn run_errand(&mut self, owner: ObjectId, of: FileOf, body: ErrandBody) {
        self.run_errand_at(WallTime::ZERO, owner, of, body);
    }

    /// The same in a while: what is under way is to end first.
    pub(crate) fn run_errand_later(&mut self, now: WallTime, owner: ObjectId, of: FileOf, body: ErrandBody) {
        self.run_errand_at(now + LATER, owner, of, body);
    }

    /// Has errands done as soon as what the volume has committed by now would survive a power cut. False if too much waits for
    /// something like that.
    pub(crate) fn run_errands_when_durable(
        &mut self,
        now: WallTime,
        volume: ObjectId,
        errands: Vec<(FileOf, ErrandBody)>,
    ) -> bool {
        if self.config.breaks(Bug::VolumeNotDurable) {
            errands.into_iter().for_each(|(of, body)| self.run_errand(volume, of, body));
            return true;
        }
        let ticket = self.files.ticket();
        let Some(hosted) = self.files.hosted.get_mut(&volume) else { return false };
        let is_taken = hosted.replica.sync_committed(now, ticket).is_ok();
        if is_taken {
            hosted.preparing.insert(ticket, errands);
        }
        is_taken
    }

    /// What was committed then would survive a power cut.
    pub(crate) fn run_prepared(&mut self, volume: ObjectId, ticket: Ticket) {
        let hosted = self.files.hosted.get_mut(&volume);
        let errands = hosted.and_then(|hosted| hosted.preparing.remove(&ticket)).unwrap_or_default();
        errands.into_iter().for_each(|(of, body)| self.run_errand(volume, of, body));
    }

    fn run_errand_at(&mut self, due: WallTime, owner: ObjectId, of: FileOf, body: ErrandBody) {
        self.errands.last += 1;
        let id = RequestId(self.errands.last);
        let errand = Errand { id, of, body };
        let running = Running { owner, errand, at: None, hint: None, turn: 0, failures: 0, due };
        self.errands.all.insert(id, running);
        self.errands.due.insert((due, id));
    }

    /// Sends what is due. What this node leads itself it does at once.
    pub(crate) fn send_errands(&mut self, now: WallTime) {
        while let Some(id) = self.errands.pop_due(now) {
            let Some(running) = self.errands.all.get_mut(&id) else { continue };
            if running.at.take().is_some() {
                (running.hint, running.turn) = (None, running.turn + 1);
            }
            let (owner, errand, hint, turn) = (running.owner, running.errand, running.hint, running.turn);
            if !self.files.hosted.get(&owner).is_some_and(|hosted| hosted.serves()) {
                self.errands.all.remove(&id);
                continue;
            }
            let to = self.whom_to_send(errand.object(), hint, turn);
            if let Some(running) = self.errands.all.get_mut(&id) {
                running.at = to;
            }
            let wait = if to.is_some() { SILENCE } else { BACKOFF_MAX };
            self.errands.set_due(id, now + wait);
            match to {
                Some(to) if to == self.me().node => self.do_errand(now, self.me(), errand),
                Some(to) => self.hand_out(Output::Errand { to, errand }),
                None => {}
            }
        }
    }

    fn whom_to_send(&self, object: ObjectId, hint: Option<NodeId>, turn: usize) -> Option<NodeId> {
        let me = self.me().node;
        let is_there = |node: &NodeId| *node == me || self.peers.contains_key(node);
        if let Some(hint) = hint.filter(is_there) {
            return Some(hint);
        }
        if self.files.hosted.get(&object).is_some_and(|hosted| hosted.serves()) {
            return Some(me);
        }
        let members = self.members_of(object);
        let members: Vec<NodeId> = members.as_slice().iter().copied().filter(is_there).collect();
        members.get(turn.checked_rem(members.len())?).copied()
    }

    fn do_errand(&mut self, now: WallTime, from: Process, errand: Errand) {
        let (client, id) = (own_client(self.me().node), errand.id);
        let asker = Asker {
            from: Caller::Node(from),
            client,
            id,
            proof: None,
            holds: None,
            good_until: None,
            is_shown: true,
            caches: false,
        };
        let object = errand.object();
        let body = errand.asked(self.is_early(&errand));
        if errand.body == ErrandBody::Remove && self.config.breaks(Bug::DataLeftBehind) {
            return self.files.reply(asker, FileReplyBody::NoSuchFile, None);
        }
        match self.open_file(now, object) {
            Ok(()) => {
                self.note_file(object, errand.of);
                self.serve_file(now, object, asker, body);
            }
            Err(refusal) => self.files.reply(asker, refusal, None),
        }
    }

    fn is_early(&self, errand: &Errand) -> bool {
        match errand.body {
            ErrandBody::Lend => self.config.breaks(Bug::LendNotDurable),
            ErrandBody::Return { .. } => self.config.breaks(Bug::ReturnNotDurable),
            ErrandBody::GiveBack { .. } | ErrandBody::Remove | ErrandBody::Confirm { .. } => false,
        }
    }

    /// Whether whoever did an errand has too much to do to say that what came of it would survive a power cut.
    fn may_be_lost(&self, errand: &Errand, reply: &FileReplyBody) -> bool {
        let is_written = matches!(reply, FileReplyBody::Changed { level: Level::Written, .. });
        let is_durable = |asked| matches!(asked, FileBody::Change { level: Level::Durable, .. });
        is_written && is_durable(errand.asked(self.is_early(errand)))
    }

    pub(crate) fn take_errand_reply(&mut self, now: WallTime, from: NodeId, reply: FileReply) {
        // What was done is done, also if somebody else was asked since, and what is not there needs no removal.
        let is_done = |errand: &Errand| match &reply.body {
            FileReplyBody::Changed { .. } => !self.may_be_lost(errand, &reply.body),
            FileReplyBody::NoSuchFile => errand.body == ErrandBody::Remove,
            _ => false,
        };
        let counts = |running: &&Running| running.at == Some(from) || is_done(&running.errand);
        let Some(running) = self.errands.all.get(&reply.id).filter(counts) else { return };
        let hint = match reply.body {
            FileReplyBody::Elsewhere(node) => Some(node),
            FileReplyBody::Unavailable(_) => None,
            ref body if self.may_be_lost(&running.errand, body) => Some(from),
            body => {
                let Some(Running { owner, errand, due, .. }) = self.errands.all.remove(&reply.id) else {
                    return;
                };
                self.errands.due.remove(&(due, reply.id));
                return self.errand_done(now, owner, errand, body);
            }
        };
        let Some(running) = self.errands.all.get_mut(&reply.id) else { return };
        (running.hint, running.at) = (hint, None);
        running.turn += usize::from(hint.is_none());
        running.failures = running.failures.saturating_add(1);
        let due = now + running.backoff();
        self.errands.set_due(reply.id, due);
    }

    fn errand_done(&mut self, now: WallTime, owner: ObjectId, errand: Errand, reply: FileReplyBody) {
        if !self.files.hosted.get(&owner).is_some_and(|hosted| hosted.serves()) {
            return;
        }
        let Errand { of, body, .. } = errand;
        match body {
            ErrandBody::Lend => self.file_lent(now, owner, (of, None), &reply),
            ErrandBody::Confirm { generation } => {
                self.file_lent(now, owner, (of, Some(generation)), &reply);
            }
            ErrandBody::GiveBack { generation, .. } => self.file_given_back(owner, of, generation),
            ErrandBody::Return { lent, modified } if owner == of.volume => {
                self.file_recalled(now, of, (lent, modified), &reply);
            }
            ErrandBody::Return { .. } => self.file_returned(now, owner, &reply),
            ErrandBody::Remove => self.content_removed(now, of, &reply),
        }
    }
}

/// In whose name a node makes entries of its own.
pub(crate) fn own_client(me: NodeId) -> ClientId {
    ClientId { certificate: OF_DAEMONS, program: me.0.into() }
}

/// Who writes, as far as the file is no longer to be run as somebody else.
pub(crate) fn nobody() -> Who {
    Who::new(NOBODY, NOBODY, &[]).expect("no groups are not too many")
}

/// What an errand came to, if it was done or can never be.
pub(crate) fn outcome_of(reply: &FileReplyBody) -> Option<Result<&crate::file::Done, FileError>> {
    match reply {
        FileReplyBody::Changed { outcome, .. } => Some(outcome.as_ref().map_err(|error| *error)),
        FileReplyBody::Refused(error) => Some(Err(*error)),
        _ => None,
    }
}
