//! One object at one node: what is kept, and who handles what.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use base::{ClientId, Epoch, Members, NodeId, Seq, View, ViewId, WallTime};

use crate::damage::Lacking;
use crate::log::Log;
use crate::primary::Primary;
use crate::recovery::Candidate;
use crate::sessions::Known;
use crate::state::Holding;
use crate::transfer::{Incoming, Lent};
use crate::weight::entry_bytes;
use crate::{
    Body, Bug, Checkpoint, Config, Entry, Event, Io, JournalError, Limit, Machine, Memory, Message, Output,
    Position, Reached, Record, Request, Rest, State, When,
};

/// A replica of one object.
#[derive(Clone, Debug)]
pub struct Replica<M: Machine> {
    pub(crate) me: NodeId,
    pub(crate) config: Arc<Config>,
    /// Nobody earlier is followed.
    pub(crate) promised: Epoch,
    /// The latest epoch of an entry that was ever here. Whoever has one of a tenure has all that it recovered.
    pub(crate) accepted: Epoch,
    /// Nothing that this node acknowledged up to this epoch may be counted on: it was not synced, and the power failed.
    forgot_at: Option<u64>,
    /// Every tenure of the object has an epoch above this number, as far as it is known since the start.
    begun_after: u64,
    /// Nor anything that it acknowledged up to this one: what was kept could not be read.
    pub(crate) damaged_at: Option<u64>,
    /// What cannot be read any more of the state, and when the others were asked for it.
    pub(crate) lacking: Lacking<M>,
    pub(crate) lacking_asked: WallTime,
    /// How often something was found to be lacking since the start, and up to which time a checkpoint has it again.
    pub(crate) damages: u32,
    pub(crate) kept: u32,
    /// Who has said that it lacks something, while there was nothing here.
    pub(crate) lacked_by: Option<NodeId>,
    pub(crate) holding: Holding,
    pub(crate) log: Log<M::Op>,
    /// What the committed entries have made.
    pub(crate) state: State<M>,
    /// Views that begin in the tail, in order.
    pub(crate) coming: VecDeque<View>,
    /// A committed view that a peer has told of; the log may not have it.
    pub(crate) adopted: Option<View>,
    /// When this node said last that it is no member any more.
    pub(crate) retired_said: WallTime,
    /// Up to where the log is known to be the primary's.
    pub(crate) confirmed: Seq,
    pub(crate) incoming: Option<Incoming<M>>,
    pub(crate) lent: BTreeMap<NodeId, Lent<M>>,
    /// Nodes that are gone for good.
    pub(crate) struck: BTreeSet<NodeId>,
    pub(crate) role: Role<M>,
    last_io: Io,
    pub(crate) outputs: VecDeque<Output<M>>,
    pub(crate) reached: Reached,
}

/// What a replica does besides following. Boxed, as most do nothing.
#[derive(Clone, Debug)]
pub(crate) enum Role<M: Machine> {
    Backup,
    /// It has the lease, and finds out what was committed before.
    Candidate(Box<Candidate>),
    Primary(Box<Primary<M>>),
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
    /// It is no member any more.
    Retired,
}

impl<M: Machine> Replica<M> {
    /// A replica with what it has kept: a checkpoint, and the records that were written since, oldest first.
    ///
    /// With `forgot_at` the node may have lost what it had written and not synced, in epochs up to that number.
    pub fn new(
        me: NodeId,
        config: Arc<Config>,
        checkpoint: Checkpoint<M>,
        journal: impl IntoIterator<Item = Record<M>>,
        forgot_at: Option<u64>,
    ) -> Result<Self, JournalError> {
        let mut replica = Self::with(me, config, checkpoint).ok_or(JournalError { record: 0 })?;
        for (number, record) in journal.into_iter().enumerate() {
            replica.replay(record).ok_or(JournalError { record: number })?;
        }
        replica.lacking.end_replay();
        replica.forgot_at = forgot_at.filter(|_| !replica.config.breaks(Bug::ForgettingIgnored));
        if replica.has_forgotten()
            && let Some(number) = forgot_at
        {
            // Whom it promised to follow it may have forgotten, too, whatever it holds.
            replica.promised = replica.promised.max(Epoch { number, node: NodeId(u32::MAX) });
        }
        let tail = replica.log.tail();
        if replica.holding == Holding::Whole && tail.epoch == replica.promised {
            replica.confirmed = tail.seq;
        }
        Ok(replica)
    }

    /// A replica at a node that has nothing of the object, and gets it from the others.
    pub fn empty(me: NodeId, config: Arc<Config>, machine: M, forgot_at: Option<u64>) -> Self {
        Self::new(me, config, Checkpoint::nothing(me, machine), [], forgot_at).expect("nothing is sound")
    }

    fn with(me: NodeId, config: Arc<Config>, checkpoint: Checkpoint<M>) -> Option<Self> {
        let Checkpoint { promised, accepted, state, holding, base, entries, adopted, damaged_at, lacking } =
            checkpoint;
        let mut replica = Self {
            me,
            config,
            promised,
            accepted,
            forgot_at: None,
            begun_after: 0,
            damaged_at,
            damages: u32::from(!lacking.is_empty()),
            kept: 0,
            lacking,
            lacking_asked: WallTime::ZERO,
            lacked_by: None,
            holding,
            log: Log::behind_base(base),
            state,
            coming: VecDeque::new(),
            adopted,
            retired_said: WallTime::ZERO,
            confirmed: Seq(0),
            incoming: None,
            lent: BTreeMap::new(),
            struck: BTreeSet::new(),
            role: Role::Backup,
            last_io: Io(0),
            outputs: VecDeque::new(),
            reached: Reached::default(),
        };
        if holding != Holding::Whole {
            return (base == Position::START && entries.is_empty()).then_some(replica);
        }
        let at = replica.state.rest.at;
        let is_sound = follow_each_other(base, &entries) && at.seq >= base.seq;
        is_sound.then_some(())?;
        for entry in entries {
            let is_applied = entry.at.seq <= at.seq;
            replica.push(entry);
            if is_applied {
                replica.coming.clear();
            }
        }
        replica.log.contains(at).then_some(())?;
        replica.log.commit(at.seq);
        Some(replica)
    }

    fn replay(&mut self, record: Record<M>) -> Option<()> {
        match record {
            Record::Promised(epoch) => self.promised = (epoch > self.promised).then_some(epoch)?,
            Record::Appended { after, entries, committed } => {
                let position = self.log.position(after).filter(|_| self.holding == Holding::Whole)?;
                let is_sound = after >= self.log.committed() && follow_each_other(position, &entries);
                is_sound.then_some(())?;
                self.truncate(after);
                entries.into_iter().for_each(|entry| self.push(entry));
                (committed <= self.log.tail().seq).then_some(())?;
                self.commit(WallTime::ZERO, committed);
            }
            Record::Began { source, applied } => {
                (applied <= self.log.tail().seq).then_some(())?;
                self.commit(WallTime::ZERO, applied);
                // What it was told by, it had promised to follow.
                (self.promised.node == source).then_some(())?;
                self.begin_mixing(self.promised);
            }
            Record::Damaged { applied, parts } => self.replay_damage(applied, parts)?,
            Record::Mended(parts) => self.mend(WallTime::ZERO, parts),
            Record::Repaired(rest) => {
                (self.holding == Holding::Whole).then_some(())?;
                self.end_repair(WallTime::ZERO, *rest).then_some(())?;
            }
            Record::Placed(parts) => {
                // It lacked something then, if only because a start could not read what this one can.
                (self.holding != Holding::Nothing).then_some(())?;
                self.place_over();
                parts.into_iter().for_each(|(key, part)| self.state.machine.place(key, part));
            }
            Record::Ended(rest) => {
                matches!(self.holding, Holding::Mixed(_)).then_some(())?;
                self.end_mixing(*rest);
            }
            Record::Adopted(view) => self.adopted = Some(view),
            Record::Buried(view) => self.clear(view),
        }
        // What the replay of committed entries wanted done was done then.
        self.outputs.clear();
        Some(())
    }

    /// Everything that has to be kept, now. The records before it are not needed any more once it is.
    pub fn checkpoint(&self) -> Checkpoint<M> {
        self.checkpoint_with(self.state.machine.clone())
    }

    /// The same with `machine` for the state's, of which something is kept apart.
    pub fn checkpoint_with(&self, machine: M) -> Checkpoint<M> {
        // What has taken effect is in the state. Whoever lacks it can be given that.
        let is_whole = self.holding == Holding::Whole;
        let base = if is_whole { self.state.rest.at } else { self.log.base() };
        Checkpoint {
            promised: self.promised,
            accepted: self.accepted,
            state: State { rest: self.state.rest.clone(), machine },
            holding: self.holding,
            base,
            entries: self.log.behind(base.seq).cloned().collect(),
            adopted: self.adopted.clone(),
            damaged_at: self.damaged_at,
            lacking: if self.config.breaks(Bug::DamageNotKept) {
                Lacking::default()
            } else {
                self.lacking.clone()
            },
        }
    }

    /// The committed state. It makes no sense while it is being taken over.
    pub const fn machine(&self) -> &M {
        &self.state.machine
    }

    /// The same, to change nothing in it that two replicas would compare.
    pub const fn machine_mut(&mut self) -> &mut M {
        &mut self.state.machine
    }

    /// The operations that are kept here, committed or not, oldest first.
    pub fn ops(&self) -> impl Iterator<Item = &M::Op> {
        self.log.behind(Seq(0)).filter_map(|entry| match &entry.body {
            Body::Op { op, .. } => Some(op),
            Body::Barrier { .. } | Body::View(_) | Body::Expire { .. } | Body::Settled(_) => None,
        })
    }

    /// The committed state but for the machine.
    pub const fn rest(&self) -> &Rest<M::Outcome> {
        &self.state.rest
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

    /// The entry at a place, if the log here still has it.
    pub fn entry(&self, seq: Seq) -> Option<&Entry<M::Op>> {
        self.log.get(seq)
    }

    /// What the log here weighs.
    pub fn log_bytes(&self) -> u64 {
        self.log.bytes_behind(self.log.base().seq)
    }

    /// Forgets the committed part of the log, unless somebody needs it who takes over a state. Who lags behind takes over a state then.
    pub fn forget_log(&mut self) {
        let upto = self.log.committed().min(self.state.rest.at.seq);
        if self.first_lent().is_none() && upto > self.log.base().seq {
            self.reached.note(Limit::Logs);
            self.trim_log(upto);
        }
    }

    /// The same, and also what is being given to those who lag: they are offered the state as it is now.
    pub fn forget_all_but_state(&mut self) {
        if self.state.rest.at.seq > self.log.base().seq {
            self.lent.clear();
            self.forget_log();
        }
    }

    /// How often each limit was reached since this replica was made.
    pub const fn reached(&self) -> &Reached {
        &self.reached
    }

    /// Whether a request is known, whatever came of it: to propose it again changes nothing.
    pub fn knows(&self, request: Request) -> bool {
        let key = (request.client, request.number);
        let is_under_way =
            matches!(&self.role, Role::Primary(primary) if primary.requests.contains_key(&key));
        is_under_way || !matches!(self.state.rest.sessions.find(request), Known::New)
    }

    /// The clients whose requests are remembered.
    pub fn clients(&self) -> impl Iterator<Item = ClientId> {
        self.state.rest.sessions.ids()
    }

    /// How many clients are remembered to be over.
    pub fn clients_over(&self) -> usize {
        self.state.rest.sessions.expired()
    }

    /// How many outcomes are kept for clients that may ask again.
    pub fn outcomes_kept(&self) -> usize {
        self.state.rest.sessions.kept()
    }

    /// Whether there is a state here that makes sense, though parts of it may be lacking.
    pub fn is_whole(&self) -> bool {
        self.holding == Holding::Whole
    }

    /// The last view that is known to be committed: its members grant leases.
    pub fn view(&self) -> &View {
        // A view is proposed only when the one before it is committed.
        let implied = self.coming.iter().rev().nth(1);
        // Some may be committed, and wait for what is lacking until they take effect.
        let known = self.coming.iter().rev().find(|view| view.id.seq <= self.log.committed());
        let views = [implied, known, self.adopted.as_ref()].into_iter().flatten();
        views.chain([&self.state.rest.view]).max_by_key(|view| view.id).expect("there is one")
    }

    /// The view before [`view`](Self::view), if that is known here.
    pub fn view_before(&self) -> Option<ViewId> {
        let (id, rest) = (self.view().id, &self.state.rest);
        if id == rest.view.id {
            return Some(rest.before);
        }
        let place = self.coming.iter().position(|view| view.id == id)?;
        Some(place.checked_sub(1).map_or(rest.view.id, |before| self.coming[before].id))
    }

    /// Whether this node is a member no more, or is none yet.
    pub(crate) fn is_retired(&self) -> bool {
        self.holding != Holding::Nothing && !self.view().members.contains(self.me)
    }

    /// The members that entries are counted by.
    pub(crate) fn latest_members(&self) -> &Members {
        self.coming.back().map_or(&self.state.rest.view.members, |view| &view.members)
    }

    /// What may be counted on here.
    pub fn memory(&self) -> Memory {
        let damaged_at = self.damaged_at.filter(|_| !self.config.breaks(Bug::DamageForgotten));
        let forgot_at = self.forgot_at.filter(|&at| at > self.begun_after);
        self.holding.memory(self.accepted, (forgot_at, damaged_at))
    }

    /// Every tenure of the object has an epoch above this number.
    pub(crate) fn note_beginning(&mut self, begun_after: u64) {
        let is_any = begun_after > 0 && self.config.breaks(Bug::BeginningUnchecked);
        self.begun_after = self.begun_after.max(if is_any { u64::MAX } else { begun_after });
    }

    /// Whether all that was kept here was damaged, and this node does not know yet whether it was a member of some later view
    /// than the one that it knows: it must not act as one until it has an entry of a later tenure.
    pub fn is_unsure(&self) -> bool {
        let is_damaged = self.damaged_at.is_some_and(|at| self.accepted.number <= at);
        is_damaged && self.view().members.contains(self.me)
    }

    /// Whether nothing that it acknowledged when the power failed may be counted on.
    fn has_forgotten(&self) -> bool {
        self.forgot_at.is_some_and(|at| self.accepted.number <= at)
    }

    /// What it is at present.
    pub fn standing(&self) -> Standing {
        match &self.role {
            Role::Backup if self.is_retired() => Standing::Retired,
            Role::Backup => Standing::Backup,
            Role::Candidate(_) => Standing::Recovering,
            Role::Primary(primary) if primary.serves => Standing::Serving,
            Role::Primary(_) => Standing::Recovering,
        }
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<Output<M>> {
        let output = self.outputs.pop_front();
        if output.is_none() {
            // A node has many objects of which most rest: empty queues take no room.
            self.outputs.shrink_to_fit();
        }
        output
    }

    /// When something is to be done again at the latest.
    pub fn poll_timeout(&self) -> Option<WallTime> {
        let by_role = match &self.role {
            Role::Backup => None,
            Role::Candidate(candidate) => Some(candidate.timeout(&self.config)),
            Role::Primary(primary) => primary.timeout(&self.config),
        };
        let given_up = self.lent.values().map(|lent| lent.given_up_at(&self.config)).min();
        let pull = self.incoming.as_ref().map(|incoming| incoming.asked + self.config.retry_after);
        let retired = self.is_retired().then(|| self.retired_said + self.config.retired_every);
        [by_role, given_up, pull, retired, self.asks_again_at()].into_iter().flatten().min()
    }

    /// Lets time pass. Calling it early or often changes nothing.
    pub fn handle_timeout(&mut self, now: WallTime) {
        self.pull_again(now);
        self.ask_again_for_lacking(now);
        self.say_retired(now);
        match &self.role {
            Role::Backup => {}
            Role::Candidate(_) => self.recover_again(now),
            Role::Primary(_) => self.lead_on(now),
        }
    }

    /// A node is gone for good: nobody waits for it, and it becomes no member any more. Whether that is news.
    pub fn strike(&mut self, now: WallTime, node: NodeId) -> bool {
        if !self.struck.insert(node) {
            return false;
        }
        if let Role::Primary(primary) = &mut self.role
            && primary.newcomer.is_some_and(|(newcomer, _)| newcomer == node)
        {
            primary.newcomer = None;
            primary.peers.remove(&node);
            self.lent.remove(&node);
        }
        self.chase(now);
        true
    }

    pub(crate) fn push(&mut self, entry: Entry<M::Op>) {
        self.accepted = self.accepted.max(entry.at.epoch);
        self.coming.extend(entry.view());
        let bytes = entry_bytes::<M>(&entry);
        self.log.push(entry, bytes);
    }

    pub(crate) fn truncate(&mut self, last: Seq) {
        self.coming.retain(|view| view.id.seq <= last);
        self.log.truncate(last);
    }

    /// Ends the tenure of this replica, if it has one; whoever waits for it has to ask again.
    pub(crate) fn step_down(&mut self, event: Option<Event>) {
        let was = std::mem::replace(&mut self.role, Role::Backup);
        self.lent.clear();
        if let Role::Primary(primary) = &was {
            let waiting = primary.waiting();
            self.outputs.extend(waiting.map(Output::Unknown));
        }
        if let (Role::Primary(_) | Role::Candidate(_), Some(event)) = (was, event) {
            self.outputs.push_back(Output::Event(event));
        }
    }

    pub(crate) fn send(&mut self, to: NodeId, message: Message<M>, when: When) {
        let view = self.view().id;
        self.outputs.push_back(Output::Send { to, view, message, when });
    }

    pub(crate) fn tell_event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    pub(crate) fn journal(&mut self, record: Record<M>) -> Io {
        self.last_io.0 += 1;
        self.outputs.push_back(Output::Journal { io: self.last_io, record });
        self.last_io
    }

    pub(crate) const fn last_io(&self) -> Io {
        self.last_io
    }
}

/// What a replica will do, between two calls: the names of writes and what is set for all do not count.
impl<M> Hash for Replica<M>
where
    M: Machine<Op: Hash, Outcome: Hash, Query: Hash, Key: Hash> + Hash,
{
    fn hash<H: Hasher>(&self, state: &mut H) {
        (
            self.me,
            self.promised,
            self.accepted,
            (self.forgot_at, self.begun_after),
            self.damaged_at,
            self.holding,
        )
            .hash(state);
        (&self.lacking, self.lacking_asked, self.damages - self.kept, self.lacked_by).hash(state);
        (&self.log, &self.state, &self.coming, &self.adopted).hash(state);
        (self.retired_said, self.confirmed, &self.incoming, &self.lent, &self.struck).hash(state);
        match &self.role {
            Role::Backup => 0_u8.hash(state),
            Role::Candidate(candidate) => (1_u8, candidate).hash(state),
            Role::Primary(primary) => (2_u8, primary).hash(state),
        }
    }
}

/// Whether entries stand behind `after` in order, without a gap, and with epochs that do not fall.
pub fn follow_each_other<O>(after: Position, entries: &[Entry<O>]) -> bool {
    let before = std::iter::once(after).chain(entries.iter().map(|entry| entry.at));
    before.zip(entries).all(|(before, entry)| {
        before.seq.0.checked_add(1) == Some(entry.at.seq.0) && entry.at.epoch >= before.epoch
    })
}
