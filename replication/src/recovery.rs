//! A tenure begins: who has the lease finds out what was committed before.
//!
//! Any two majorities meet, so somebody in a majority has what was committed: if he still has it. Members that lost
//! power forget what they had not synced, and so it is counted who remembers:
//!
//! ```text
//! n members, m is a majority, and n - m + 1 meet every majority.
//!
//! m answers, n - m + 1 of them clean     all that was acknowledged is there
//! all n answers                          there is nothing more to be found: what is there counts, and the rest is lost
//! m answers, all of them forgot          the power failed everywhere: all that was durable is there. Who has not
//!                                        answered may remember more, and is waited for a while
//! anything else                          whoever is missing may be the one who remembers: wait for him, or for an
//!                                        operator who gives up what only he has
//! ```
//!
//! If what is known to be committed is with nobody but whoever cannot give it, and *n - m + 1* have nothing and remember all, it was over:
//! one of them has had it, and nobody forgets an object before all members have its end on disk.
//!
//! In the second and third case what was only written may be lost. The barrier says so: it raises the loss generation,
//! and whoever asks for something to be made durable that was acknowledged before learns that it may be gone.

use std::collections::{BTreeMap, BTreeSet};

use base::{Epoch, Members, NodeId, Seq, View, WallTime};

use crate::primary::Tenure;
use crate::replica::Role;
use crate::state::Holding;
use crate::{
    Account, Bug, Config, Entry, Event, LeadError, Machine, Memory, Message, Position, Replica, When,
};

/// It has the lease and asks a majority what was committed before.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Candidate {
    pub(crate) tenure: Tenure,
    /// Whose promises are needed: those of the members who grant the lease.
    pub(crate) view: View,
    /// What each member has that has promised.
    pub(crate) promised: BTreeMap<NodeId, Account>,
    /// Who cannot give what is missing as entries, and lacks parts of its state, so that it cannot lead either.
    apart: BTreeSet<NodeId>,
    /// Whose log is being fetched, how far it goes, and what the tenure may count on when it is here.
    fetching: Option<(NodeId, Position, Found)>,
    since: WallTime,
    asked: WallTime,
    /// When it last came to know something.
    progressed: WallTime,
    /// An operator has given up what is missing.
    accepts_loss: bool,
    /// Who had answered when it was told that it waits for the others.
    told_blocked: Option<BTreeSet<NodeId>>,
}

/// What a recovery has found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Found {
    /// Something that was acknowledged as written may not be there.
    pub(crate) is_lossy: bool,
    /// All of it is known to be committed already, so that it may be read at once.
    pub(crate) is_committed: bool,
    /// Somebody says so, and it does not merely follow from all members' having it.
    pub(crate) is_known: bool,
}

impl Candidate {
    /// When the recovery goes on by itself.
    pub(crate) fn timeout(&self, config: &Config) -> WallTime {
        let all_forgot = self.since + config.all_forgot_after;
        let retry = self.asked + config.retry_after;
        let given_up = self.progressed + config.recovery_max;
        let retry = retry.min(given_up);
        if self.fetching.is_none() && all_forgot > self.asked { retry.min(all_forgot) } else { retry }
    }

    const fn members(&self) -> &Members {
        &self.view.members
    }

    /// What may be counted on with these promises; none if more have to come.
    fn verdict(&self, now: WallTime, config: &Config) -> Option<Found> {
        let (count, majority) = (self.members().as_slice().len(), self.members().majority());
        let answered = self.promised.len();
        if answered < majority {
            return None;
        }
        let forgot = self.count(|_, memory| memory == Memory::Forgot);
        let gives_up = self.accepts_loss && !self.apart.is_empty();
        let is_lossy = !self.remember_enough() || gives_up;
        let waited = now.since(self.since) >= config.all_forgot_after;
        let nobody_clean = !self.promised.values().any(|account| account.memory == Memory::Clean);
        let all_forgot = waited && nobody_clean && forgot > count - majority;
        let may_begin = !is_lossy || all_forgot || self.may_give_up();
        let (is_known, is_everywhere) = if is_lossy { (false, false) } else { self.is_committed(config) };
        may_begin.then_some(Found { is_lossy, is_committed: is_known || is_everywhere, is_known })
    }

    /// Whether the highest tail is known to be committed: somebody clean says so, or it is everybody's.
    fn is_committed(&self, config: &Config) -> (bool, bool) {
        let Some((_, best)) = self.best(config) else { return (false, false) };
        let mut clean = self.promised.values().filter(|account| account.memory == Memory::Clean);
        let somebody_knows = clean.clone().any(|account| account.committed == best);
        let enough = if config.breaks(Bug::EqualTailsOfAMajority) {
            self.promised.len()
        } else {
            self.members().as_slice().len()
        };
        let are_equal = clean.clone().count() == enough && clean.all(|account| account.tail == best);
        (somebody_knows, are_equal)
    }

    /// Up to where somebody who answered knows entries to be committed that are here.
    pub(crate) fn known_committed(&self, is_here: impl Fn(Position) -> bool) -> Seq {
        let whole = self.promised.values().filter(|account| account.memory.is_whole());
        let known = whole.map(|account| account.committed).filter(|&at| is_here(at));
        known.map(|at| at.seq).max().unwrap_or_default()
    }

    /// Whether a member has all that it acknowledged, or is known to have had it from somebody else who answers.
    fn is_clean(&self, memory: Memory) -> bool {
        match memory {
            Memory::Clean => true,
            Memory::Forgot | Memory::Torn => false,
            Memory::Mixed { source } => {
                self.promised.get(&source).is_some_and(|account| account.memory.is_whole())
            }
        }
    }

    /// Whether what those who have answered do not have is given up: nobody else is there, or an operator says so of who was missing. Whoever had
    /// answered then is asked again and again, and has to answer now, too.
    pub(crate) fn may_give_up(&self) -> bool {
        let has_promised = |node: &NodeId| self.promised.contains_key(node);
        let accepts_loss = self.accepts_loss && self.told_blocked.iter().flatten().all(has_promised);
        self.promised.len() == self.members().as_slice().len() || accepts_loss
    }

    /// Whether so many remember all that they ever acknowledged that they meet every majority.
    pub(crate) fn remember_enough(&self) -> bool {
        let (count, majority) = (self.members().as_slice().len(), self.members().majority());
        self.count(Self::is_clean) > count - majority
    }

    /// Whether the one may still answer who has said that it lacks something: then that has to be told if there is nothing.
    fn may_hear_more(&self, now: WallTime, lacked_by: Option<NodeId>, config: &Config) -> bool {
        let is_silent = lacked_by.is_some_and(|node| !self.promised.contains_key(&node));
        is_silent && now.since(self.since) < config.retry_after
    }

    /// Whether members that remember all have nothing of what is known to be committed, and so many that one of them has had it. Who
    /// remembers forgets an object for one reason: that all members had its end on disk.
    pub(crate) fn was_over(&self, config: &Config) -> bool {
        let (count, majority) = (self.members().as_slice().len(), self.members().majority());
        let has_nothing = |account: &&Account| {
            account.tail == Position::START
                && (account.memory == Memory::Clean || config.breaks(Bug::ForgottenIsOver))
        };
        let is_committed = self.promised.values().any(|account| account.committed > Position::START);
        is_committed && self.promised.values().filter(has_nothing).count() > count - majority
    }

    fn count(&self, counts: impl Fn(&Self, Memory) -> bool) -> usize {
        self.promised.values().filter(|account| counts(self, account.memory)).count()
    }

    /// The highest tail, and who has it.
    fn best(&self, config: &Config) -> Option<(NodeId, Position)> {
        let by_sequence = config.breaks(Bug::TailBySequence);
        let rank = |at: Position| if by_sequence { at.seq } else { Seq(0) };
        let whole = self.promised.iter().filter(|(_, account)| account.memory.is_whole());
        let there = whole.filter(|(node, _)| !self.accepts_loss || !self.apart.contains(node));
        let is_sound = |account: &Account| account.frozen_at.is_none();
        let best = there.max_by_key(|&(_, account)| (rank(account.tail), account.tail, is_sound(account)));
        best.map(|(&node, account)| (node, account.tail))
    }
}

impl<M: Machine> Replica<M> {
    /// This node has the lease: it becomes primary once it knows what was committed before.
    pub fn lead(&mut self, now: WallTime, tenure: Tenure) -> Result<(), LeadError> {
        let view = self.view().clone();
        let is_damaged = self.lacks() && !self.config.breaks(Bug::DamagedIsSource);
        if self.holding != Holding::Whole || is_damaged {
            return Err(LeadError::Incomplete);
        }
        if tenure.epoch.node != self.me || !view.members.contains(self.me) {
            return Err(LeadError::NotOurs(self.me));
        }
        let begun_after = Epoch { number: tenure.begun_after, node: NodeId(u32::MAX) };
        let promised = self.promised.max(begun_after);
        if tenure.epoch <= promised {
            return Err(LeadError::Outbid { asked: tenure.epoch, promised });
        }
        self.resign();
        self.note_beginning(tenure.begun_after);
        self.follow(tenure.epoch);
        self.role = Role::Candidate(Box::new(Candidate {
            tenure,
            view,
            promised: BTreeMap::new(),
            apart: BTreeSet::new(),
            fetching: None,
            since: now,
            asked: now,
            progressed: now,
            accepts_loss: false,
            told_blocked: None,
        }));
        self.ask_for_promises();
        Ok(())
    }

    /// Goes on with what is there, by an operator's word: whatever only those have who did not answer when it was told that the recovery is
    /// [`Blocked`](Event::Blocked) is given up. Returns false if that was not told of any that is under way.
    pub fn accept_loss(&mut self, now: WallTime) -> bool {
        let Role::Candidate(candidate) = &mut self.role else { return false };
        if candidate.told_blocked.is_none() {
            return false;
        }
        candidate.accepts_loss = true;
        self.recover(now);
        true
    }

    fn ask_for_promises(&mut self) {
        let Role::Candidate(candidate) = &self.role else { return };
        let (Tenure { epoch, begun_after, .. }, members) = (candidate.tenure, candidate.members().clone());
        for &node in members.as_slice() {
            if node == self.me {
                let own = Message::Promised { epoch, account: self.account() };
                self.send(node, own, When::Written(self.last_io()));
            } else {
                self.send(node, Message::Promise { epoch, begun_after }, When::Now);
            }
        }
    }

    pub(crate) fn handle_promised(
        &mut self,
        now: WallTime,
        from: NodeId,
        (epoch, account): (Epoch, Account),
    ) {
        let Role::Candidate(candidate) = &mut self.role else { return };
        if epoch == candidate.tenure.epoch && candidate.members().contains(from) {
            candidate.promised.insert(from, account);
            self.recover(now);
        }
    }

    /// Goes on with a recovery as far as the promises allow (R2, R5).
    fn recover(&mut self, now: WallTime) {
        let Role::Candidate(candidate) = &mut self.role else { return };
        if candidate.fetching.is_some() {
            return;
        }
        let Some(found) = candidate.verdict(now, &self.config) else { return };
        let Some((holder, best)) = candidate.best(&self.config) else { return };
        let creates = candidate.tenure.creates;
        // This node's own promise may be written last.
        if best == Position::START && self.log.tail() == Position::START && !creates {
            if candidate.may_hear_more(now, self.lacked_by, &self.config) {
                return;
            }
            self.tell_over();
            return self.step_down(Some(Event::Nothing));
        }
        if candidate.apart.contains(&holder) {
            // Somebody else has to have it, or it was over, and whoever is apart did not hear that. Nothing is begun in an epoch in which
            // somebody was told to forget: who hears that late would forget what has begun. Whoever wants it begun comes again.
            if candidate.was_over(&self.config) {
                self.tell_over();
                let fruitless = Event::Fruitless { answered: Vec::new() };
                self.step_down(Some(if creates { fruitless } else { Event::Nothing }));
            }
            return;
        }
        let frozen_at = candidate.promised.get(&holder).and_then(|account| account.frozen_at);
        let own = self.log.tail();
        let by_sequence = self.config.breaks(Bug::TailBySequence);
        if if by_sequence { own.seq >= best.seq } else { own >= best } {
            // The others may have promised before this node's own promise is written: they know nothing of what stands
            // behind their best.
            let (is_committed, is_known) = (found.is_committed && own == best, found.is_known && own == best);
            return self.begin(now, Found { is_committed, is_known, ..found });
        }
        (candidate.fetching, candidate.asked) = (Some((holder, best, found)), now);
        let (epoch, committed) = (candidate.tenure.epoch, self.log.committed_position());
        // The log of who cannot lend its state is used from as far back as it goes.
        let reaches = frozen_at.filter(|&at| at > committed && self.log.contains(at));
        let after = reaches.unwrap_or(committed);
        self.send(holder, Message::Fetch { epoch, after }, When::Now);
    }

    /// What the holder of the longest log has sent.
    pub(crate) fn handle_fetched(
        &mut self,
        now: WallTime,
        (from, epoch): (NodeId, Epoch),
        (after, entries): (Position, Vec<Entry<M::Op>>),
        committed: Seq,
    ) {
        let Role::Candidate(candidate) = &self.role else { return };
        let Some((_, goal, found)) = candidate.fetching.filter(|&(holder, ..)| holder == from) else {
            return;
        };
        if candidate.tenure.epoch != epoch {
            return;
        }
        let Some(upto) = self.take((after, entries), epoch, committed) else { return };
        self.commit(now, committed.min(upto.seq));
        let Role::Candidate(candidate) = &mut self.role else { return };
        if upto < goal {
            (candidate.asked, candidate.progressed) = (now, now);
            return self.send(from, Message::Fetch { epoch, after: upto }, When::Now);
        }
        candidate.fetching = None;
        self.begin(now, found);
    }

    /// The holder of the longest log cannot give it as entries.
    pub(crate) fn handle_apart(&mut self, now: WallTime, from: NodeId, epoch: Epoch) {
        let Role::Candidate(candidate) = &mut self.role else { return };
        if candidate.tenure.epoch != epoch || candidate.fetching.is_none_or(|(holder, ..)| holder != from) {
            return;
        }
        let account = candidate.promised.get(&from);
        if account.is_some_and(|account| account.frozen_at.is_some()) {
            candidate.fetching = None;
            candidate.apart.insert(from);
            self.recover(now);
        } else {
            self.step_down(Some(Event::Behind { holder: from }));
        }
    }

    pub(crate) fn recover_again(&mut self, now: WallTime) {
        let Role::Candidate(candidate) = &mut self.role else { return };
        if candidate.fetching.is_none() {
            self.recover(now);
        }
        let Role::Candidate(candidate) = &mut self.role else { return };
        // If nobody can say more by then, everybody is asked once more.
        if now < candidate.timeout(&self.config) {
            return;
        }
        let is_blocked = candidate.fetching.is_none()
            && candidate.promised.len() >= candidate.members().majority()
            && now.since(candidate.since) >= self.config.all_forgot_after;
        if is_blocked && candidate.told_blocked.is_none() {
            let answered = &candidate.promised;
            candidate.told_blocked = Some(answered.keys().copied().collect());
            let missing = candidate.members().as_slice().iter().filter(|node| !answered.contains_key(node));
            let counts =
                |account: &Account| candidate.is_clean(account.memory) && account.frozen_at.is_none();
            let forgot = answered.iter().filter(|(_, account)| !counts(account));
            let event = Event::Blocked {
                missing: missing.copied().collect(),
                forgot: forgot.map(|(&node, _)| node).collect(),
            };
            self.tell_event(event);
        }
        let Role::Candidate(candidate) = &mut self.role else { return };
        if now.since(candidate.progressed) >= self.config.recovery_max {
            let answered = candidate.promised.keys().copied().filter(|&node| node != self.me);
            let event = Event::Fruitless { answered: answered.collect() };
            return self.step_down(Some(event));
        }
        // Whoever has promised may be gone meanwhile.
        (candidate.asked, candidate.fetching) = (now, None);
        candidate.promised.clear();
        candidate.apart.clear();
        self.ask_for_promises();
    }
}
