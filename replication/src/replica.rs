//! One object at one node: what every replica does, whoever is primary.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{Epoch, Members, NodeId, Seq, WallTime};

use crate::log::Log;
use crate::primary::{Candidate, Primary};
use crate::sessions::{Known, Sessions};
use crate::{Body, Bug, Config, Entry, Event, Io, Machine, Message, Output, Position, Record, Request, When};

/// A replica of one object.
#[derive(Clone, Debug)]
pub struct Replica<M: Machine> {
    pub(crate) me: NodeId,
    pub(crate) members: Members,
    pub(crate) config: Arc<Config>,
    /// Nobody earlier is followed.
    promised: Epoch,
    pub(crate) log: Log<M::Op>,
    /// What the committed entries have made.
    machine: M,
    sessions: Sessions<M::Outcome>,
    pub(crate) role: Role<M>,
    last_io: Io,
    pub(crate) outputs: VecDeque<Output<M>>,
}

/// What a replica does besides following.
#[derive(Clone, Debug)]
pub(crate) enum Role<M: Machine> {
    Backup,
    /// It has the lease, and finds out what was committed before.
    Candidate(Candidate),
    Primary(Primary<M>),
}

/// What a replica is at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It follows.
    Backup,
    /// It recovers what was before.
    Recovering,
    /// It takes requests.
    Serving,
}

/// A journal that no replica has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "record {record} of the journal does not follow from those before it; repair this replica from the others"
)]
pub struct JournalError {
    /// Which record, counted from 0.
    pub record: usize,
}

/// Why a tenure cannot begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeadError {
    /// A later one was promised.
    #[error("epoch {asked:?} is not above {promised:?}, which is promised; take a higher one")]
    Outbid {
        /// The epoch.
        asked: Epoch,
        /// Who is followed.
        promised: Epoch,
    },
    /// The epoch names another node, or this node is no member.
    #[error("node {0:?} cannot lead here: it is no member, or the epoch is another node's")]
    NotOurs(NodeId),
}

/// Why a request is not taken. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProposeError {
    /// Somebody else is, or nobody.
    #[error("this replica is not the primary; ask another one")]
    NotPrimary,
    /// It is, but does not know yet what was before.
    #[error("the primary is recovering; ask again")]
    Recovering,
    /// Too much is under way.
    #[error("too many requests are under way; ask again")]
    Busy,
    /// The client is over.
    #[error("the client was declared dead; begin a new session")]
    Expired,
    /// The client said that it has the answer.
    #[error("the request was answered before, and its client said so")]
    Settled,
}

/// Why a question is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AskError {
    /// See [`ProposeError::NotPrimary`].
    #[error("this replica is not the primary; ask another one")]
    NotPrimary,
    /// See [`ProposeError::Recovering`].
    #[error("the primary is recovering; ask again")]
    Recovering,
    /// Too many are waiting.
    #[error("too many questions are waiting; ask again")]
    Busy,
}

/// Why a sync is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SyncError {
    /// As for a question.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// Nothing is there to be made durable.
    #[error("the log has no entry at {0:?}; what was written there is gone")]
    Gone(Position),
}

impl<M: Machine> Replica<M> {
    /// A replica with what its journal holds, oldest first, on top of `machine` as it was before the first entry.
    pub fn new(
        (me, members): (NodeId, Members),
        config: Arc<Config>,
        machine: M,
        journal: impl IntoIterator<Item = Record<M::Op>>,
    ) -> Result<Self, JournalError> {
        let mut replica = Self {
            me,
            members,
            config,
            promised: Epoch::default(),
            log: Log::default(),
            machine,
            sessions: Sessions::default(),
            role: Role::Backup,
            last_io: Io(0),
            outputs: VecDeque::new(),
        };
        for (number, record) in journal.into_iter().enumerate() {
            replica.replay(record).ok_or(JournalError { record: number })?;
        }
        Ok(replica)
    }

    fn replay(&mut self, record: Record<M::Op>) -> Option<()> {
        match record {
            Record::Promised(epoch) => self.promised = (epoch > self.promised).then_some(epoch)?,
            Record::Appended { after, entries, committed } => {
                let position = self.log.position(after)?;
                let is_sound = after >= self.log.committed() && follow_each_other(position, &entries);
                is_sound.then_some(())?;
                self.log.truncate(after);
                entries.into_iter().for_each(|entry| self.log.push(entry));
                (committed <= self.log.tail().seq).then_some(())?;
                self.commit(WallTime::ZERO, committed);
            }
        }
        Some(())
    }

    /// The committed state.
    pub const fn machine(&self) -> &M {
        &self.machine
    }

    /// Whom this replica follows: nobody earlier gets anything from it.
    pub const fn promised(&self) -> Epoch {
        self.promised
    }

    /// The last entry.
    pub fn tail(&self) -> Position {
        self.log.tail()
    }

    /// The last entry that is known to be committed.
    pub fn committed(&self) -> Position {
        self.log.committed_position()
    }

    /// The entry at a place.
    pub fn entry(&self, seq: Seq) -> Option<&Entry<M::Op>> {
        self.log.get(seq)
    }

    /// How many outcomes are kept for clients that may ask again.
    pub fn outcomes_kept(&self) -> usize {
        self.sessions.kept()
    }

    /// What it is at present.
    pub const fn standing(&self) -> Standing {
        match &self.role {
            Role::Backup => Standing::Backup,
            Role::Candidate(_) => Standing::Recovering,
            Role::Primary(primary) if primary.serves => Standing::Serving,
            Role::Primary(_) => Standing::Recovering,
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output<M>> {
        self.outputs.pop_front()
    }

    /// Takes in what a replica of this object has sent, which may be this one.
    pub fn handle_message(&mut self, now: WallTime, from: NodeId, message: Message<M::Op>) {
        if !self.members.contains(from) {
            return;
        }
        let by_primary = message.epoch().node == from;
        match message {
            Message::Promise { epoch } if by_primary => self.handle_promise(from, epoch),
            Message::Fetch { epoch, after } if by_primary => self.handle_fetch(from, epoch, after),
            Message::Append { epoch, after, entries, committed } if by_primary => {
                self.handle_append(now, epoch, (after, entries), committed);
            }
            Message::Sync { epoch, upto } if by_primary => self.handle_sync(from, epoch, upto),
            Message::Append { epoch, after, entries, committed } if epoch.node == self.me => {
                self.handle_fetched(now, (from, epoch), (after, entries), committed);
            }
            Message::Promised { epoch, tail, .. } => self.handle_promised(now, from, (epoch, tail)),
            Message::Refused { epoch, promised } => self.handle_refused(epoch, promised),
            Message::Appended { epoch, upto } => self.handle_appended(now, from, (epoch, upto)),
            Message::Missing { epoch, committed } => self.handle_missing(now, from, (epoch, committed)),
            Message::Synced { epoch, upto } => self.handle_synced(now, from, (epoch, upto)),
            // Said by somebody who is not the primary of the epoch it names.
            Message::Promise { .. }
            | Message::Fetch { .. }
            | Message::Append { .. }
            | Message::Sync { .. } => {}
        }
    }

    fn handle_promise(&mut self, from: NodeId, epoch: Epoch) {
        if !self.follow(epoch) {
            return self.refuse(from, epoch);
        }
        let message = Message::Promised { epoch, tail: self.log.tail(), committed: self.log.committed() };
        self.send(from, message, When::Written(self.last_io));
    }

    /// A new primary that this replica has promised to follow lacks entries.
    fn handle_fetch(&mut self, from: NodeId, epoch: Epoch, after: Position) {
        if epoch != self.promised || !self.log.contains(after) {
            return;
        }
        let entries = self.log.behind(after.seq, self.config.batch_max).to_vec();
        let message = Message::Append { epoch, after, entries, committed: self.log.committed() };
        self.send(from, message, When::Written(self.last_io));
    }

    fn handle_append(
        &mut self,
        now: WallTime,
        epoch: Epoch,
        (after, entries): (Position, Vec<Entry<M::Op>>),
        committed: Seq,
    ) {
        let from = epoch.node;
        if from == self.me || !self.follow(epoch) && !self.config.breaks(Bug::NoEpochCheck) {
            return self.refuse(from, epoch);
        }
        let Some(upto) = self.take(after, entries, epoch) else {
            let committed = self.log.committed();
            return self.send(from, Message::Missing { epoch, committed }, When::Written(self.last_io));
        };
        self.commit(now, committed.min(upto.seq));
        let when =
            if self.config.breaks(Bug::AckBeforeWrite) { When::Now } else { When::Written(self.last_io) };
        self.send(from, Message::Appended { epoch, upto }, when);
    }

    fn handle_sync(&mut self, from: NodeId, epoch: Epoch, upto: Position) {
        if !self.follow(epoch) {
            return self.refuse(from, epoch);
        }
        // What is not here yet is on its way, and the primary asks again.
        if self.log.contains(upto) {
            self.send(from, Message::Synced { epoch, upto }, When::Durable(self.last_io));
        }
    }

    /// Follows the primary of `epoch` from now on, unless a later one was promised (R1).
    pub(crate) fn follow(&mut self, epoch: Epoch) -> bool {
        if epoch <= self.promised {
            return epoch == self.promised;
        }
        self.step_down(Some(Event::Outbid { promised: epoch }));
        if !self.config.breaks(Bug::PromiseNotKept) {
            self.promised = epoch;
            self.journal(Record::Promised(epoch));
        }
        true
    }

    fn refuse(&mut self, from: NodeId, epoch: Epoch) {
        let message = Message::Refused { epoch, promised: self.promised };
        self.send(from, message, When::Written(self.last_io));
    }

    /// Takes entries in that stand behind `after`. Returns the last position that is the same as the sender's, or none
    /// if the entries do not fit: then nothing has changed.
    pub(crate) fn take(
        &mut self,
        after: Position,
        mut entries: Vec<Entry<M::Op>>,
        epoch: Epoch,
    ) -> Option<Position> {
        let fits = self.log.contains(after) || self.config.breaks(Bug::NoPredecessorCheck);
        let is_sound = follow_each_other(after, &entries) && entries.iter().all(|e| e.at.epoch <= epoch);
        if !fits || !is_sound {
            return None;
        }
        let upto = entries.last().map_or(after, |entry| entry.at);
        let known = entries.iter().take_while(|entry| self.log.contains(entry.at)).count();
        entries.drain(..known);
        let Some(first) = entries.first() else { return Some(upto) };
        let after = Seq(first.at.seq.0 - 1);
        if after < self.log.committed() || after > self.log.tail().seq {
            return None;
        }
        // What stood there is of a tenure that never committed it.
        self.log.truncate(after);
        entries.iter().for_each(|entry| self.log.push(entry.clone()));
        self.journal(Record::Appended { after, entries, committed: self.log.committed() });
        Some(upto)
    }

    /// Everything up to a place is committed: it takes effect.
    pub(crate) fn commit(&mut self, now: WallTime, upto: Seq) {
        let before = self.log.commit(upto);
        for seq in before.0 + 1..=upto.0 {
            let entry = self.log.get(Seq(seq)).expect("checked by the log").clone();
            match entry.body {
                Body::Barrier => {}
                Body::Expire(client) => self.sessions.expire(client),
                Body::Op { request, op } => {
                    let outcome = self.apply(entry.at, request, &op);
                    self.answer_request(now, entry.at, request, outcome);
                }
            }
        }
    }

    /// Lets a request take effect, once. None if its client is over.
    fn apply(&mut self, at: Position, request: Request, op: &M::Op) -> Option<M::Outcome> {
        match self.sessions.find(request) {
            Known::Done(outcome) if !self.config.breaks(Bug::NoDeduplication) => Some(outcome.clone()),
            Known::Settled | Known::Expired => None,
            Known::New | Known::Done(_) => {
                let outcome = self.machine.apply(at, op);
                self.sessions.keep(request, outcome.clone());
                Some(outcome)
            }
        }
    }

    pub(crate) fn find_request(&self, request: Request) -> Known<'_, M::Outcome> {
        self.sessions.find(request)
    }

    /// Ends the tenure of this replica, if it has one; whoever waits for it has to ask again.
    pub(crate) fn step_down(&mut self, event: Option<Event>) {
        let was = std::mem::replace(&mut self.role, Role::Backup);
        if let Role::Primary(primary) = &was {
            let waiting = primary.waiting();
            self.outputs.extend(waiting.map(Output::Unknown));
        }
        if let (Role::Primary(_) | Role::Candidate(_), Some(event)) = (was, event) {
            self.outputs.push_back(Output::Event(event));
        }
    }

    pub(crate) fn send(&mut self, to: NodeId, message: Message<M::Op>, when: When) {
        self.outputs.push_back(Output::Send { to, message, when });
    }

    pub(crate) fn journal(&mut self, record: Record<M::Op>) -> Io {
        self.last_io.0 += 1;
        self.outputs.push_back(Output::Journal { io: self.last_io, record });
        self.last_io
    }

    pub(crate) const fn last_io(&self) -> Io {
        self.last_io
    }
}

/// Whether entries stand behind `after` in order, without a gap, and with epochs that do not fall.
fn follow_each_other<O>(after: Position, entries: &[Entry<O>]) -> bool {
    let before = std::iter::once(after).chain(entries.iter().map(|entry| entry.at));
    before.zip(entries).all(|(before, entry)| {
        before.seq.0.checked_add(1) == Some(entry.at.seq.0) && entry.at.epoch >= before.epoch
    })
}
