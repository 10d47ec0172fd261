//! What a replica does that has the lease: recover what was committed before, then order and commit.

use std::collections::BTreeMap;

use base::{ClientId, Epoch, NodeId, Seq, Span, WallTime};

use crate::replica::Role;
use crate::sessions::Known;
use crate::{
    AskError, Body, Bug, Entry, Event, LeadError, Machine, Message, Output, Position, ProposeError, Record,
    Replica, Request, Standing, SyncError, Ticket, Waiting, When,
};

/// What a lease gives to whoever has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tenure {
    /// Above every epoch that this node has used or promised.
    pub epoch: Epoch,
    /// The lease, for the trail.
    pub lease: u64,
    /// Until when it lasts, unless renewed.
    pub until: WallTime,
}

/// It has the lease and asks a majority what was committed before.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    tenure: Tenure,
    /// The end of the log of each member that has promised.
    promised: BTreeMap<NodeId, Position>,
    /// Whose log is being fetched, and how far it goes.
    fetching: Option<(NodeId, Position)>,
    asked: WallTime,
}

/// It orders, and commits what a majority has.
#[derive(Clone, Debug)]
pub(crate) struct Primary<M: Machine> {
    tenure: Tenure,
    /// The first entry of the tenure.
    barrier: Seq,
    /// Whether the barrier is committed.
    pub(crate) serves: bool,
    /// All members, this one too.
    peers: BTreeMap<NodeId, Peer>,
    /// Where the requests stand that are not committed yet.
    requests: BTreeMap<(ClientId, u64), (Request, Seq)>,
    /// Questions, and the places that have to be committed before they are answered.
    questions: Vec<(Seq, Ticket, M::Query)>,
    syncs: Vec<Sync>,
    /// When to tell backups what is committed if nothing else is to be told.
    tell_at: Option<WallTime>,
    /// Since when nothing was committed although something was to be.
    stuck_since: Option<WallTime>,
    told_isolated: bool,
}

/// How far a member is.
#[derive(Clone, Copy, Debug)]
struct Peer {
    /// Its journal has the entries up to here.
    matched: Seq,
    /// Where to begin again if it does not answer.
    from: Seq,
    /// They were sent up to here.
    sent: Seq,
    /// They are durable there up to here.
    synced: Seq,
    /// It knows them to be committed up to here.
    told: Seq,
    /// Since when it owes an answer.
    asked: Option<WallTime>,
    /// It did not answer: it gets one message at a time until it does.
    is_silent: bool,
}

#[derive(Clone, Copy, Debug)]
struct Sync {
    upto: Position,
    ticket: Ticket,
    asked: WallTime,
}

impl Peer {
    /// A member of which nothing is known but that it may have what was recovered.
    const fn new(recovered: Seq) -> Self {
        let (matched, from, sent) = (Seq(0), recovered, recovered);
        Self { matched, from, sent, synced: Seq(0), told: Seq(0), asked: None, is_silent: false }
    }

    /// Behind what it is sent its first entry.
    fn begin(&self) -> Seq {
        self.from.max(self.matched)
    }
}

impl<M: Machine> Primary<M> {
    /// Everybody who waits for something.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = Waiting> {
        let requests = self.requests.values().map(|&(request, _)| Waiting::Request(request));
        let questions = self.questions.iter().map(|&(_, ticket, _)| Waiting::Ticket(ticket));
        let syncs = self.syncs.iter().map(|sync| Waiting::Ticket(sync.ticket));
        let waiting: Vec<Waiting> = requests.chain(questions).chain(syncs).collect();
        waiting.into_iter()
    }
}

impl<M: Machine> Replica<M> {
    /// This node has the lease: it becomes primary once it knows what was committed before.
    pub fn lead(&mut self, now: WallTime, tenure: Tenure) -> Result<(), LeadError> {
        if tenure.epoch.node != self.me || !self.members.contains(self.me) {
            return Err(LeadError::NotOurs(self.me));
        }
        if tenure.epoch <= self.promised() {
            return Err(LeadError::Outbid { asked: tenure.epoch, promised: self.promised() });
        }
        self.resign();
        self.follow(tenure.epoch);
        self.role =
            Role::Candidate(Candidate { tenure, promised: BTreeMap::new(), fetching: None, asked: now });
        self.ask_for_promises();
        Ok(())
    }

    /// The lease lasts longer.
    pub const fn renew(&mut self, until: WallTime) {
        match &mut self.role {
            Role::Backup => {}
            Role::Candidate(candidate) => candidate.tenure.until = until,
            Role::Primary(primary) => primary.tenure.until = until,
        }
    }

    /// The lease is over or is being given up: nothing is answered any more.
    pub fn resign(&mut self) {
        self.step_down(None);
    }

    /// Orders an operation. Its outcome comes as [`Output::Done`], for a request that has taken effect before, too.
    pub fn propose(&mut self, now: WallTime, request: Request, op: M::Op) -> Result<(), ProposeError> {
        let uncommitted = self.log.tail().seq.0 - self.log.committed().0;
        match self.standing() {
            Standing::Backup => return Err(ProposeError::NotPrimary),
            Standing::Recovering if !self.config.breaks(Bug::ServedBeforeBarrier) => {
                return Err(ProposeError::Recovering);
            }
            Standing::Recovering | Standing::Serving => {}
        }
        let Role::Primary(primary) = &self.role else { return Err(ProposeError::Recovering) };
        let key = (request.client, request.number);
        if primary.requests.contains_key(&key) && !self.config.breaks(Bug::NoDeduplication) {
            return Ok(());
        }
        match self.find_request(request) {
            Known::Expired => return Err(ProposeError::Expired),
            Known::Settled => return Err(ProposeError::Settled),
            Known::Done(outcome) if !self.config.breaks(Bug::NoDeduplication) => {
                let outcome = outcome.clone();
                // It may stand anywhere in the committed part; to make that durable is to make all of it durable.
                let at = self.committed();
                self.tell_done(now, at, request, outcome);
                return Ok(());
            }
            Known::New | Known::Done(_) => {}
        }
        if uncommitted >= self.config.uncommitted_max as u64 {
            return Err(ProposeError::Busy);
        }
        let at = self.append(now, Body::Op { request, op });
        if let Role::Primary(primary) = &mut self.role {
            primary.requests.insert(key, (request, at.seq));
        }
        Ok(())
    }

    /// Declares a client dead: once this is committed its requests are refused.
    pub fn expire(&mut self, now: WallTime, client: ClientId) -> Result<(), ProposeError> {
        match self.standing() {
            Standing::Backup => Err(ProposeError::NotPrimary),
            Standing::Recovering => Err(ProposeError::Recovering),
            Standing::Serving => {
                self.append(now, Body::Expire(client));
                Ok(())
            }
        }
    }

    /// Asks a question about the committed state. The answer comes as [`Output::Answer`].
    pub fn ask(&mut self, now: WallTime, ticket: Ticket, query: M::Query) -> Result<(), AskError> {
        self.check_asking()?;
        let committed = self.log.committed();
        let overlapping =
            self.log.behind(committed, usize::MAX).iter().rev().find(|entry| match &entry.body {
                Body::Op { op, .. } => M::overlaps(op, &query),
                Body::Barrier | Body::Expire(_) => false,
            });
        let wait_for = overlapping.map(|entry| entry.at.seq);
        if self.config.breaks(Bug::ReadsUncommitted) {
            self.tell_dirty_answer(now, ticket, &query);
            return Ok(());
        }
        let Role::Primary(primary) = &mut self.role else { return Err(AskError::NotPrimary) };
        match wait_for {
            Some(seq) => primary.questions.push((seq, ticket, query)),
            None => self.tell_answer(now, ticket, &query),
        }
        Ok(())
    }

    /// Makes everything up to an entry durable at a majority. That it is comes as [`Output::Durable`].
    pub fn sync(&mut self, now: WallTime, ticket: Ticket, upto: Position) -> Result<(), SyncError> {
        self.check_asking()?;
        if !self.log.contains(upto) {
            return Err(SyncError::Gone(upto));
        }
        let Role::Primary(primary) = &mut self.role else { return Err(AskError::NotPrimary.into()) };
        primary.syncs.push(Sync { upto, ticket, asked: now });
        self.ask_for_syncs(upto);
        Ok(())
    }

    fn check_asking(&self) -> Result<(), AskError> {
        let Role::Primary(primary) = &self.role else {
            let is_candidate = matches!(self.role, Role::Candidate(_));
            return Err(if is_candidate { AskError::Recovering } else { AskError::NotPrimary });
        };
        if !primary.serves && !self.config.breaks(Bug::ServedBeforeBarrier) {
            return Err(AskError::Recovering);
        }
        if primary.questions.len() + primary.syncs.len() >= self.config.waiting_max {
            return Err(AskError::Busy);
        }
        Ok(())
    }

    /// When something is to be done again at the latest.
    pub fn poll_timeout(&self) -> Option<WallTime> {
        let retry = self.config.retry_after;
        match &self.role {
            Role::Backup => None,
            Role::Candidate(candidate) => Some(candidate.asked + retry),
            Role::Primary(primary) => {
                let asked = primary.peers.values().filter_map(|peer| peer.asked);
                let syncs = primary.syncs.iter().map(|sync| sync.asked);
                let stuck = primary.stuck_since.filter(|_| !primary.told_isolated);
                let isolated = stuck.map(|since| since + self.config.isolated_after);
                asked.chain(syncs).map(|at| at + retry).chain(isolated).chain(primary.tell_at).min()
            }
        }
    }

    /// Lets time pass. Calling it early or often changes nothing.
    pub fn handle_timeout(&mut self, now: WallTime) {
        let Self { config, role, .. } = self;
        let is_late = |asked: WallTime, patience: Span| now.since(asked) >= patience;
        match role {
            Role::Backup => {}
            Role::Candidate(candidate) if is_late(candidate.asked, config.retry_after) => {
                // Whoever has promised may be gone meanwhile.
                (candidate.asked, candidate.fetching) = (now, None);
                candidate.promised.clear();
                self.ask_for_promises();
            }
            Role::Candidate(_) => {}
            Role::Primary(primary) => {
                let mut syncs = Vec::new();
                for sync in primary.syncs.iter_mut().filter(|sync| is_late(sync.asked, config.retry_after)) {
                    sync.asked = now;
                    syncs.push(sync.upto);
                }
                let stuck = primary.stuck_since.is_some_and(|since| is_late(since, config.isolated_after));
                let is_isolated = stuck && !std::mem::replace(&mut primary.told_isolated, stuck);
                let late = primary
                    .peers
                    .iter_mut()
                    .filter(|(_, peer)| peer.asked.is_some_and(|asked| is_late(asked, config.retry_after)));
                let late: Vec<NodeId> = late
                    .map(|(&node, peer)| {
                        (peer.sent, peer.asked, peer.is_silent) = (peer.begin(), None, true);
                        node
                    })
                    .collect();
                if primary.tell_at.is_some_and(|at| at <= now) {
                    self.tell_committed();
                }
                late.into_iter().for_each(|node| self.replicate(now, node));
                syncs.into_iter().max().into_iter().for_each(|upto| self.ask_for_syncs(upto));
                if is_isolated {
                    self.outputs.push_back(Output::Event(Event::Isolated));
                }
            }
        }
    }

    /// The members but for this one.
    fn others(&self) -> Vec<NodeId> {
        self.members.as_slice().iter().copied().filter(|&node| node != self.me).collect()
    }

    fn ask_for_promises(&mut self) {
        let Role::Candidate(candidate) = &self.role else { return };
        let epoch = candidate.tenure.epoch;
        for node in self.others() {
            self.send(node, Message::Promise { epoch }, When::Now);
        }
        let (tail, committed) = (self.log.tail(), self.log.committed());
        let own = Message::Promised { epoch, tail, committed };
        self.send(self.me, own, When::Written(self.last_io()));
    }

    pub(crate) fn handle_promised(&mut self, now: WallTime, from: NodeId, (epoch, tail): (Epoch, Position)) {
        let Role::Candidate(candidate) = &mut self.role else { return };
        if epoch == candidate.tenure.epoch {
            candidate.promised.insert(from, tail);
            self.recover(now);
        }
    }

    /// Goes on with a recovery as far as the promises allow (R2, R5).
    fn recover(&mut self, now: WallTime) {
        let by_sequence = self.config.breaks(Bug::TailBySequence);
        let majority = self.members.majority();
        let Role::Candidate(candidate) = &mut self.role else { return };
        if candidate.promised.len() < majority || candidate.fetching.is_some() {
            return;
        }
        let rank = |at: Position| if by_sequence { at.seq } else { Seq(0) };
        let best = candidate.promised.iter().max_by_key(|&(_, &tail)| (rank(tail), tail));
        let Some((&holder, &best)) = best else { return };
        let own = self.log.tail();
        if (rank(own), own) >= (rank(best), best) {
            return self.begin(now);
        }
        (candidate.fetching, candidate.asked) = (Some((holder, best)), now);
        let (epoch, after) = (candidate.tenure.epoch, self.log.committed_position());
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
        let Some((_, goal)) = candidate.fetching.filter(|&(holder, _)| holder == from) else { return };
        if candidate.tenure.epoch != epoch {
            return;
        }
        let Some(upto) = self.take(after, entries, epoch) else { return };
        self.commit(now, committed.min(upto.seq));
        let Role::Candidate(candidate) = &mut self.role else { return };
        if upto < goal {
            candidate.asked = now;
            return self.send(from, Message::Fetch { epoch, after: upto }, When::Now);
        }
        candidate.fetching = None;
        self.begin(now);
    }

    /// A majority follows, and its longest log is here: the tenure begins with an entry that commits all of it.
    fn begin(&mut self, now: WallTime) {
        let Role::Candidate(candidate) = &self.role else { return };
        let tenure = candidate.tenure;
        let recovered = self.log.tail().seq;
        let peers = self.members.as_slice().iter().map(|&node| (node, Peer::new(recovered))).collect();
        let barrier = Seq(recovered.0 + 1);
        let (requests, questions, syncs) = (BTreeMap::new(), Vec::new(), Vec::new());
        let (serves, tell_at, stuck_since, told_isolated) = (false, None, None, false);
        self.role = Role::Primary(Primary {
            tenure,
            barrier,
            serves,
            peers,
            requests,
            questions,
            syncs,
            tell_at,
            stuck_since,
            told_isolated,
        });
        self.append(now, Body::Barrier);
    }

    /// Adds an entry, and sends it to everybody.
    fn append(&mut self, now: WallTime, body: Body<M::Op>) -> Position {
        let after = self.log.tail();
        let Role::Primary(primary) = &mut self.role else { unreachable!("only primaries append") };
        let Tenure { epoch, lease, .. } = primary.tenure;
        primary.stuck_since.get_or_insert(now);
        let entry = Entry { at: after.next_in(epoch), lease, body };
        let upto = entry.at;
        self.log.push(entry.clone());
        let record =
            Record::Appended { after: after.seq, entries: vec![entry], committed: self.log.committed() };
        let io = self.journal(record);
        // The backups' disks and our own work at the same time.
        for node in self.others() {
            self.replicate(now, node);
        }
        let when = if self.config.breaks(Bug::AckBeforeWrite) { When::Now } else { When::Written(io) };
        self.send(self.me, Message::Appended { epoch, upto }, when);
        upto
    }

    /// Sends a backup what it has not been sent, as far as it may owe answers.
    fn replicate(&mut self, now: WallTime, node: NodeId) {
        let (tail, committed) = (self.log.tail().seq, self.log.committed());
        let (batch_max, window_max) = (self.config.batch_max, self.config.uncommitted_max as u64);
        let Role::Primary(primary) = &mut self.role else { return };
        let epoch = primary.tenure.epoch;
        let Some(peer) = primary.peers.get_mut(&node) else { return };
        let window_max = if peer.is_silent { 1 } else { window_max };
        let mut messages = Vec::new();
        while peer.sent < tail && peer.sent.0 - peer.begin().0 < window_max {
            let Some(after) = self.log.position(peer.sent) else { return };
            let entries = self.log.behind(peer.sent, batch_max).to_vec();
            peer.sent = entries.last().map_or(tail, |entry| entry.at.seq);
            messages.push(Message::Append { epoch, after, entries, committed });
        }
        if !messages.is_empty() {
            peer.told = committed;
            peer.asked.get_or_insert(now);
        }
        messages.into_iter().for_each(|message| self.send(node, message, When::Now));
    }

    /// Tells the backups what is committed.
    fn tell_committed(&mut self) {
        let committed = self.log.committed();
        let Role::Primary(primary) = &mut self.role else { return };
        primary.tell_at = None;
        let epoch = primary.tenure.epoch;
        let mut told = Vec::new();
        for (&node, peer) in &mut primary.peers {
            if peer.told < committed && peer.matched >= committed {
                peer.told = committed;
                told.push(node);
            }
        }
        let (after, me) = (self.log.committed_position(), self.me);
        for node in told.into_iter().filter(|&node| node != me) {
            let message = Message::Append { epoch, after, entries: Vec::new(), committed };
            self.send(node, message, When::Now);
        }
    }

    pub(crate) fn handle_appended(&mut self, now: WallTime, from: NodeId, (epoch, upto): (Epoch, Position)) {
        let is_ours = self.log.contains(upto);
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(peer) = primary.peers.get_mut(&from).filter(|_| epoch == primary.tenure.epoch && is_ours)
        else {
            return;
        };
        peer.matched = peer.matched.max(upto.seq);
        peer.sent = peer.sent.max(peer.matched);
        peer.asked = (peer.matched < peer.sent).then_some(now);
        peer.is_silent = false;
        if from != self.me {
            self.replicate(now, from);
        }
        self.advance(now);
        self.tell_later(now);
    }

    /// Backups that have what is committed and do not know it are told soon, with the next entries if there are any.
    fn tell_later(&mut self, now: WallTime) {
        let (committed, me, tell_at) = (self.log.committed(), self.me, now + self.config.tell_after);
        let Role::Primary(primary) = &mut self.role else { return };
        let owed = |(&node, peer): (&NodeId, &Peer)| {
            node != me && peer.told < committed && peer.matched >= committed
        };
        if primary.peers.iter().any(owed) {
            primary.tell_at.get_or_insert(tell_at);
        }
    }

    pub(crate) fn handle_missing(&mut self, now: WallTime, from: NodeId, (epoch, committed): (Epoch, Seq)) {
        let tail = self.log.tail().seq;
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(peer) = primary.peers.get_mut(&from).filter(|_| epoch == primary.tenure.epoch) else {
            return;
        };
        let from_there = committed.min(tail);
        if peer.from == from_there && peer.sent > peer.begin() {
            // It has been sent that already; if it was lost, the retry comes.
            return;
        }
        // What is committed there is the beginning of this log (R3, R5).
        peer.from = from_there;
        (peer.sent, peer.asked, peer.is_silent) = (peer.begin(), None, false);
        self.replicate(now, from);
    }

    pub(crate) fn handle_refused(&mut self, epoch: Epoch, promised: Epoch) {
        let ours = match &self.role {
            Role::Backup => return,
            Role::Candidate(candidate) => candidate.tenure.epoch,
            Role::Primary(primary) => primary.tenure.epoch,
        };
        if epoch == ours && promised > ours {
            self.step_down(Some(Event::Outbid { promised }));
        }
    }

    pub(crate) fn handle_synced(&mut self, now: WallTime, from: NodeId, (epoch, upto): (Epoch, Position)) {
        let is_ours = self.log.contains(upto);
        let Role::Primary(primary) = &mut self.role else { return };
        let Some(peer) = primary.peers.get_mut(&from).filter(|_| epoch == primary.tenure.epoch && is_ours)
        else {
            return;
        };
        peer.synced = peer.synced.max(upto.seq);
        self.conclude_syncs(now);
    }

    fn ask_for_syncs(&mut self, upto: Position) {
        let Role::Primary(primary) = &self.role else { return };
        let epoch = primary.tenure.epoch;
        let behind = primary.peers.iter().filter(|(_, peer)| peer.synced < upto.seq);
        let behind: Vec<NodeId> = behind.map(|(&node, _)| node).collect();
        for node in behind {
            if node == self.me {
                self.send(node, Message::Synced { epoch, upto }, When::Durable(self.last_io()));
            } else {
                self.send(node, Message::Sync { epoch, upto }, When::Now);
            }
        }
    }

    /// Commits what a majority has, if an entry of this very tenure is among it (R3).
    fn advance(&mut self, now: WallTime) {
        let majority = self.members.majority();
        let Role::Primary(primary) = &self.role else { return };
        let (epoch, barrier) = (primary.tenure.epoch, primary.barrier);
        let mut matched: Vec<Seq> = primary.peers.values().map(|peer| peer.matched).collect();
        matched.sort_unstable();
        let upto = matched[matched.len() - majority];
        let is_own = self.log.position(upto).is_some_and(|at| at.epoch == epoch);
        let counts = is_own || self.config.breaks(Bug::OldEntriesCountedCommitted);
        if upto <= self.log.committed() || !counts {
            return;
        }
        self.commit(now, upto);
        let tail = self.log.tail().seq;
        let Role::Primary(primary) = &mut self.role else { return };
        primary.stuck_since = (upto < tail).then_some(now);
        primary.told_isolated = false;
        if upto >= barrier && !primary.serves {
            primary.serves = true;
            self.outputs.push_back(Output::Event(Event::Serving { epoch }));
        }
        self.answer_questions(now, upto);
        self.conclude_syncs(now);
    }

    fn answer_questions(&mut self, now: WallTime, committed: Seq) {
        let Role::Primary(primary) = &mut self.role else { return };
        let asked = std::mem::take(&mut primary.questions).into_iter();
        let (ready, waiting): (Vec<_>, Vec<_>) = asked.partition(|&(seq, ..)| seq <= committed);
        primary.questions = waiting;
        for (_, ticket, query) in ready {
            self.tell_answer(now, ticket, &query);
        }
    }

    fn conclude_syncs(&mut self, now: WallTime) {
        let majority = if self.config.breaks(Bug::SyncByPrimaryAlone) { 1 } else { self.members.majority() };
        let committed = self.log.committed();
        let Role::Primary(primary) = &mut self.role else { return };
        let until = primary.tenure.until;
        let peers = &primary.peers;
        let is_durable = |upto: Seq| peers.values().filter(|peer| peer.synced >= upto).count() >= majority;
        let (done, waiting): (Vec<Sync>, Vec<Sync>) =
            primary.syncs.iter().partition(|sync| sync.upto.seq <= committed && is_durable(sync.upto.seq));
        primary.syncs = waiting;
        for Sync { ticket, .. } in done {
            let told = Output::Durable { ticket, until };
            self.tell(now, until, told, Waiting::Ticket(ticket));
        }
    }

    /// A request that was proposed here has taken effect, or was found to be nobody's any more.
    pub(crate) fn answer_request(
        &mut self,
        now: WallTime,
        at: Position,
        request: Request,
        outcome: Option<M::Outcome>,
    ) {
        let Role::Primary(primary) = &mut self.role else { return };
        if primary.requests.remove(&(request.client, request.number)).is_none() {
            return;
        }
        match outcome {
            Some(outcome) => self.tell_done(now, at, request, outcome),
            None => self.outputs.push_back(Output::Unknown(Waiting::Request(request))),
        }
    }

    fn tell_done(&mut self, now: WallTime, at: Position, request: Request, outcome: M::Outcome) {
        let Role::Primary(primary) = &self.role else { return };
        let until = primary.tenure.until;
        let told = Output::Done { request, outcome, at, until };
        self.tell(now, until, told, Waiting::Request(request));
    }

    /// Only as a planted bug: from a state that is not committed.
    fn tell_dirty_answer(&mut self, now: WallTime, ticket: Ticket, query: &M::Query) {
        let Role::Primary(primary) = &self.role else { return };
        let (until, mut machine) = (primary.tenure.until, self.machine().clone());
        for entry in self.log.behind(self.log.committed(), usize::MAX) {
            if let Body::Op { op, .. } = &entry.body {
                machine.apply(entry.at, op);
            }
        }
        let answer = machine.answer(query);
        self.tell(now, until, Output::Answer { ticket, answer, until }, Waiting::Ticket(ticket));
    }

    fn tell_answer(&mut self, now: WallTime, ticket: Ticket, query: &M::Query) {
        let Role::Primary(primary) = &self.role else { return };
        let until = primary.tenure.until;
        let answer = self.machine().answer(query);
        self.tell(now, until, Output::Answer { ticket, answer, until }, Waiting::Ticket(ticket));
    }

    /// Without the lease nothing is told (R4).
    fn tell(&mut self, now: WallTime, until: WallTime, told: Output<M>, waiting: Waiting) {
        let holds = now < until || self.config.breaks(Bug::LeaseNotChecked);
        self.outputs.push_back(if holds { told } else { Output::Unknown(waiting) });
    }
}
