//! A client's part of locks: what it holds, by which session, and until when it may believe so.
//!
//! A session with a daemon lasts from the moment the client *sent* the last frame that the daemon has confirmed. A
//! lock lasts as long as the session it is attached to. When its daemon dies, stops, or cannot answer for it any
//! longer, the lock keeps what it had of that session, and the client attaches it to another member meanwhile. If
//! that comes too late the lock is lost, and the client says so before anybody else can have it.
//!
//! # Contract
//!
//! Pure, like every core: *events in* are `handle_*`, *commands* are [`acquire`](Core::acquire) and
//! [`give_back`](Core::give_back), and everything it wants done comes out of [`poll_output`](Core::poll_output) and
//! [`poll_timeout`](Core::poll_timeout). Time is a monotonic clock that goes on while the machine sleeps. Ask
//! [`token`](Core::token) with a fresh reading before each act that needs the lock.
//!
//! A client's part of [files](mod@files) is a core of its own beside this one. They share connections and nothing else.

mod bugs;
pub mod content;
pub mod creations;
pub mod files;
pub mod grants;
mod link;
mod ticket;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::{MonoTime, NodeId, ObjectId, Process, Span};
use node::{
    ClientFrame, ClusterMap, DaemonFrame, Reply, ReplyBody, Request, RequestBody, RequestId, Revoked, Token,
    Unavailable,
};

pub use bugs::{Bug, Rules};
use link::Link;
use ticket::{Claim, Stage};

/// The first wait before a request is sent again.
const BACKOFF_MIN: Span = Span::from_millis(2);
/// The longest: a failover must not wait for a client that counts too far.
const BACKOFF_MAX: Span = Span::from_millis(50);
/// A request that is not answered for so long is sent to another member.
const SILENCE: Span = Span::from_millis(200);
/// A silent link says something this often in a session's length.
const KEEP_ALIVES: u64 = 4;
/// A lock is at risk when less than this part of a session is left.
const RISK_PARTS: u64 = 4;
/// How often each member is asked, at least, before a request that does not wait is given up.
const ROUNDS: u32 = 4;

/// Names a lock that the client wants or holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ticket(pub u64);

/// Something to do, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    /// Send this frame in order.
    Send {
        /// To whom.
        to: NodeId,
        /// What.
        frame: ClientFrame,
    },
    /// This connection is of no use any longer: close it and connect again.
    Reconnect {
        /// To whom.
        to: NodeId,
    },
    /// Drop this from the cache, and then say so by [`Core::dropped`]. The session with that daemon is
    /// [confirmed](Core::session_until) further only after that.
    Revoke {
        /// Who takes it back.
        from: NodeId,
        /// Which revocation of the session this is.
        number: u64,
        /// Of which volume.
        volume: ObjectId,
        /// What.
        what: Revoked,
    },
    /// Tell whoever uses the client.
    Event(Event),
}

/// What became of a ticket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The lock is the client's.
    Granted {
        /// Which.
        ticket: Ticket,
        /// Its fencing token.
        token: Token,
    },
    /// Somebody else has it, and the client did not want to wait. The ticket is void.
    Busy {
        /// Which.
        ticket: Ticket,
    },
    /// Nobody could answer for it. The ticket is void.
    Unavailable {
        /// Which.
        ticket: Ticket,
        /// What the last member that refused it said, if one did.
        why: Option<Unavailable>,
    },
    /// Its session was not confirmed for a while; unless that comes soon the lock is lost.
    AtRisk {
        /// Which.
        ticket: Ticket,
    },
    /// It is confirmed again.
    Safe {
        /// Which.
        ticket: Ticket,
    },
    /// It is no longer the client's. The ticket is void.
    Lost {
        /// Which.
        ticket: Ticket,
    },
    /// It was given back, or is no longer waited for. The ticket is void.
    GivenBack {
        /// Which.
        ticket: Ticket,
    },
}

/// Why a lock that is wanted was not granted yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// No daemon has answered.
    Unknown,
    /// Somebody else has it.
    Holder,
    /// The last daemon that refused it cannot grant it.
    Unavailable(Unavailable),
}

/// All that a client holds and wants.
#[derive(Debug)]
pub struct Core {
    map: Arc<ClusterMap>,
    session: Span,
    /// Another member answers for a lock after so long, when its daemon died without a word.
    takeover: Span,
    links: BTreeMap<NodeId, Link>,
    claims: BTreeMap<Ticket, Claim>,
    /// Which claim waits for the answer to which request.
    requests: BTreeMap<RequestId, Ticket>,
    /// Claims that are not attached, and when something is to be done about them.
    due: BTreeSet<(MonoTime, Ticket)>,
    events: VecDeque<Output>,
    tickets: u64,
    request_ids: u64,
    rules: Rules,
}

impl Core {
    /// A client that holds nothing and knows nobody.
    pub fn new(map: Arc<ClusterMap>) -> Self {
        let settings = map.settings();
        let session = Span::from_millis(settings.session_ms.into());
        let lease = Span::from_millis(u64::from(settings.t_max_ms) + u64::from(settings.epsilon_ms));
        Self {
            map,
            session,
            takeover: lease + session,
            links: BTreeMap::new(),
            claims: BTreeMap::new(),
            requests: BTreeMap::new(),
            due: BTreeSet::new(),
            events: VecDeque::new(),
            tickets: 0,
            request_ids: 0,
            rules: Rules::ALL,
        }
    }

    /// The same, by these rules.
    #[must_use]
    pub fn with_rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// The token of a lock that the client holds at `now`, a reading taken for this question.
    pub fn token(&self, now: MonoTime, ticket: Ticket) -> Option<Token> {
        let claim = self.claims.get(&ticket)?;
        (now < self.valid_until(claim)?).then_some(claim.held()?)
    }

    /// Until when the client holds the lock unless its session is confirmed again.
    pub fn held_until(&self, ticket: Ticket) -> Option<MonoTime> {
        self.valid_until(self.claims.get(&ticket)?)
    }

    /// The daemon whose session keeps the lock.
    pub fn answering(&self, ticket: Ticket) -> Option<NodeId> {
        self.claims.get(&ticket).filter(|claim| claim.is_attached())?.at
    }

    /// Why a lock that is wanted was not granted yet.
    pub fn obstacle(&self, ticket: Ticket) -> Obstacle {
        self.claims.get(&ticket).map_or(Obstacle::Unknown, |claim| claim.obstacle)
    }

    /// Wants a lock. With `waits` the ticket waits while somebody else has it, until it is given back.
    pub fn acquire(&mut self, now: MonoTime, cell: ObjectId, waits: bool) -> Ticket {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let members = self.map.members(cell);
        let kept_up_until = now + self.takeover;
        self.claims.insert(ticket, Claim::new(cell, waits, kept_up_until, members));
        self.ask(now, ticket);
        ticket
    }

    /// Gives a lock back, or no longer waits for it. From now on the client does not hold it.
    pub fn give_back(&mut self, now: MonoTime, ticket: Ticket) {
        let Some(claim) = self.claims.get(&ticket) else { return };
        let cell = claim.cell;
        let node = claim.at.or_else(|| self.pick(claim, now));
        let body = match (claim.held(), claim.request) {
            (Some(token), _) => Some(RequestBody::Release { cell, token }),
            // A grant that is on its way finds no ticket, and is sent back.
            (None, Some(request)) => Some(RequestBody::Cancel { cell, request }),
            (None, None) => None,
        };
        if let (Some(node), Some(body)) = (node, body) {
            self.send(node, body);
        }
        self.end(ticket, Event::GivenBack { ticket });
    }

    /// Gives everything back.
    pub fn give_all_back(&mut self, now: MonoTime) {
        let tickets: Vec<Ticket> = self.claims.keys().copied().collect();
        tickets.into_iter().for_each(|ticket| self.give_back(now, ticket));
    }

    /// A session with a daemon is open.
    pub fn handle_connected(&mut self, now: MonoTime, daemon: Process) {
        self.handle_disconnected(now, daemon.node);
        self.links.values_mut().for_each(Link::look_again);
        self.links.insert(daemon.node, Link::new(daemon.incarnation, now));
        let unasked = self.claims.iter().filter(|(_, claim)| claim.at.is_none());
        let unasked: Vec<Ticket> = unasked.map(|(&ticket, _)| ticket).collect();
        unasked.into_iter().for_each(|ticket| self.ask(now, ticket));
    }

    /// What a daemon has taken back is dropped.
    pub fn dropped(&mut self, node: NodeId, number: u64) {
        if self.links.contains_key(&node) {
            self.send(node, RequestBody::Dropped { number });
        }
    }

    /// Until when the session with a daemon lasts. Take in what [`poll_output`](Self::poll_output) has before this counts.
    pub fn session_until(&self, node: NodeId) -> Option<MonoTime> {
        Some(self.links.get(&node)?.valid_until)
    }

    /// A connection is gone. What it kept lasts as long as its session was confirmed for.
    pub fn handle_disconnected(&mut self, now: MonoTime, node: NodeId) {
        let Some(link) = self.links.remove(&node) else { return };
        self.forget_revocations(node);
        self.loosen(now, &link, None);
    }

    /// With the connection all goes that was granted over it, and over the next one they are counted anew.
    fn forget_revocations(&mut self, node: NodeId) {
        self.events.retain(|output| !matches!(output, Output::Revoke { from, .. } if *from == node));
    }

    /// What a daemon says, in order.
    pub fn handle_frame(&mut self, now: MonoTime, node: NodeId, frame: DaemonFrame) {
        let mut attached = Vec::new();
        for reply in frame.replies {
            match reply {
                Reply::To { id, body } => attached.extend(self.handle_reply(now, node, id, body)),
                Reply::Dropped { cell, token, successor } => {
                    self.handle_dropped(now, node, (cell, token), successor);
                }
                Reply::Death { node: dead, incarnation } => {
                    self.handle_death(now, Process { node: dead, incarnation }, node);
                }
                Reply::Revoke { number, volume, what } => {
                    self.events.push_back(Output::Revoke { from: node, number, volume, what });
                }
                Reply::SessionOver => return self.reconnect(now, node, None),
            }
        }
        let session = self.session;
        if let Some(link) = self.links.get_mut(&node) {
            link.confirm(frame.acked, session);
            if self.rules.breaks(Bug::AnyFrameConfirms) {
                link.valid_until = now + session;
            }
        }
        self.note_risk(now, node);
        // They may have been at risk before, or be so by this very session.
        let at_risk = self.links.get(&node).is_some_and(Link::is_at_risk);
        for ticket in attached {
            let event = if at_risk { Event::AtRisk { ticket } } else { Event::Safe { ticket } };
            self.events.push_back(Output::Event(event));
        }
    }

    /// Lets time pass. Calling it early or often changes nothing.
    pub fn handle_timeout(&mut self, now: MonoTime) {
        let nodes: Vec<NodeId> = self.links.keys().copied().collect();
        nodes.into_iter().for_each(|node| self.look_at_link(now, node));
        while let Some(&(at, ticket)) = self.due.first() {
            if at > now {
                return;
            }
            self.due.pop_first();
            self.look_at_claim(now, ticket);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) or [`poll_output`](Self::poll_output) has something to do.
    pub fn poll_timeout(&self) -> Option<MonoTime> {
        let claims = self.due.first().map(|&(at, _)| at);
        let links = self.links.values().map(|link| link.next_due(self.session));
        links.chain(claims).min()
    }

    /// The next thing to do, if any.
    pub fn poll_output(&mut self, now: MonoTime) -> Option<Output> {
        if let Some(output) = self.events.pop_front() {
            return Some(output);
        }
        let session = self.session;
        let (&to, link) = self.links.iter_mut().find(|(_, link)| link.has_to_speak(now))?;
        Some(Output::Send { to, frame: link.speak(now, session) })
    }

    /// Returns the ticket of a lock that the session keeps from now on.
    fn handle_reply(
        &mut self,
        now: MonoTime,
        node: NodeId,
        id: RequestId,
        body: ReplyBody,
    ) -> Option<Ticket> {
        if body == ReplyBody::Queued {
            let waiting = self.requests.get(&id).and_then(|ticket| self.claims.get_mut(ticket));
            if let Some(claim) = waiting {
                claim.obstacle = Obstacle::Holder;
            }
            return None;
        }
        let asked = self.links.get_mut(&node).and_then(|link| link.answered(id));
        let Some(ticket) = self.requests.remove(&id) else {
            // A lock that nobody wants any longer goes back.
            match (body, asked) {
                (ReplyBody::Granted(token), Some((cell, _))) => {
                    self.send(node, RequestBody::Release { cell, token });
                }
                (ReplyBody::Kept, Some((cell, Some(token)))) if !self.holds(cell, token) => {
                    self.send(node, RequestBody::Release { cell, token });
                }
                _ => {}
            }
            return None;
        };
        let claim = self.claims.get_mut(&ticket)?;
        claim.request = None;
        match body {
            ReplyBody::Granted(token) => {
                claim.stage = Stage::Held { token, loose_until: None };
                self.events.push_back(Output::Event(Event::Granted { ticket, token }));
                return Some(ticket);
            }
            ReplyBody::Kept => {
                claim.attach();
                return Some(ticket);
            }
            ReplyBody::Busy => self.end(ticket, Event::Busy { ticket }),
            ReplyBody::Gone => self.end(ticket, Event::Lost { ticket }),
            ReplyBody::Elsewhere(other) => self.go_on(now, ticket, Some(other), None),
            ReplyBody::Unavailable(why) => self.go_on(now, ticket, None, Some(why)),
            ReplyBody::Queued | ReplyBody::Released | ReplyBody::Cancelled | ReplyBody::Leased { .. } => {}
        }
        None
    }

    fn holds(&self, cell: ObjectId, token: Token) -> bool {
        self.claims.values().any(|claim| claim.cell == cell && claim.held() == Some(token))
    }

    /// The daemon asked does not answer for the lock: another is asked, after a while if that goes on.
    fn go_on(&mut self, now: MonoTime, ticket: Ticket, hint: Option<NodeId>, why: Option<Unavailable>) {
        self.unbind(ticket);
        let Some(claim) = self.claims.get_mut(&ticket) else { return };
        claim.obstacle = why.map_or(claim.obstacle, Obstacle::Unavailable);
        claim.pass(hint);
        if claim.is_hopeless(now) {
            let why = match claim.obstacle {
                Obstacle::Unavailable(why) => Some(why),
                Obstacle::Unknown | Obstacle::Holder => None,
            };
            return self.end(ticket, Event::Unavailable { ticket, why });
        }
        self.due.insert((now + claim.backoff(), ticket));
    }

    fn handle_dropped(
        &mut self,
        now: MonoTime,
        node: NodeId,
        (cell, token): (ObjectId, Token),
        successor: Option<NodeId>,
    ) {
        let Some(link) = self.links.get(&node) else { return };
        let until = link.valid_until;
        let is_it = |ticket: &&Ticket| {
            let claim = self.claims.get(ticket);
            claim.is_some_and(|claim| claim.cell == cell && claim.held() == Some(token))
        };
        let Some(&ticket) = link.tickets.iter().find(is_it) else { return };
        self.loosen_claim(now, ticket, until, successor);
    }

    /// A daemon's process is dead: what it kept is attached to another, first to the one that knows of it.
    fn handle_death(&mut self, now: MonoTime, dead: Process, teller: NodeId) {
        let is_linked = self.links.get(&dead.node).is_some_and(|link| link.incarnation <= dead.incarnation);
        if is_linked {
            self.reconnect(now, dead.node, Some(teller));
        }
    }

    fn reconnect(&mut self, now: MonoTime, node: NodeId, hint: Option<NodeId>) {
        let Some(link) = self.links.remove(&node) else { return };
        self.forget_revocations(node);
        self.events.push_back(Output::Reconnect { to: node });
        self.loosen(now, &link, hint);
    }

    /// Nothing is attached to the link any longer, and nobody waits for its answers.
    fn loosen(&mut self, now: MonoTime, link: &Link, hint: Option<NodeId>) {
        for &ticket in &link.tickets {
            let hint = hint.filter(|hint| self.claims.get(&ticket).is_some_and(|c| c.members.contains(hint)));
            self.loosen_claim(now, ticket, link.valid_until, hint);
        }
    }

    fn loosen_claim(&mut self, now: MonoTime, ticket: Ticket, until: MonoTime, hint: Option<NodeId>) {
        self.unbind(ticket);
        let Some(claim) = self.claims.get_mut(&ticket) else { return };
        claim.loosen(until, hint);
        if let Some(request) = claim.request.take() {
            self.requests.remove(&request);
        }
        self.due.insert((now, ticket));
    }

    /// The claim has nothing to do any longer with the daemon that it was put to.
    fn unbind(&mut self, ticket: Ticket) {
        let Some(claim) = self.claims.get_mut(&ticket) else { return };
        // That somebody has the lock was this daemon's word.
        if claim.obstacle == Obstacle::Holder {
            claim.obstacle = Obstacle::Unknown;
        }
        if let Some(link) = claim.at.take().and_then(|node| self.links.get_mut(&node)) {
            link.tickets.remove(&ticket);
        }
    }

    /// What a link owes: locks that it kept too long without a confirmation, and answers that do not come.
    fn look_at_link(&mut self, now: MonoTime, node: NodeId) {
        let Some(link) = self.links.get_mut(&node) else { return };
        if link.ends(now) {
            let held = |ticket: &Ticket| self.claims.get(ticket).is_some_and(Claim::is_attached);
            let lost: Vec<Ticket> = link.tickets.iter().copied().filter(held).collect();
            lost.into_iter().for_each(|ticket| self.lose(now, ticket));
        }
        self.note_risk(now, node);
        let is_last = self.links.len() == 1;
        let Some(link) = self.links.get_mut(&node) else { return };
        if !link.falls_silent(now, SILENCE) || is_last {
            return;
        }
        let waiting = |ticket: &Ticket| self.claims.get(ticket).is_some_and(|claim| !claim.is_attached());
        let waiting: Vec<Ticket> = link.tickets.iter().copied().filter(waiting).collect();
        for ticket in waiting {
            if let Some(request) = self.claims.get_mut(&ticket).and_then(|claim| claim.request.take()) {
                self.requests.remove(&request);
            }
            self.go_on(now, ticket, None, None);
        }
    }

    fn note_risk(&mut self, now: MonoTime, node: NodeId) {
        let session = self.session;
        let Some(link) = self.links.get_mut(&node) else { return };
        let Some(at_risk) = link.risk_changed(now, session) else { return };
        for &ticket in
            link.tickets.iter().filter(|ticket| self.claims.get(ticket).is_some_and(Claim::is_attached))
        {
            let event = if at_risk { Event::AtRisk { ticket } } else { Event::Safe { ticket } };
            self.events.push_back(Output::Event(event));
        }
    }

    /// Brings a claim that is not attached up to date with the time.
    fn look_at_claim(&mut self, now: MonoTime, ticket: Ticket) {
        let Some(claim) = self.claims.get_mut(&ticket) else { return };
        if let Some(until) = claim.loose_until() {
            if now >= until {
                return self.lose(now, ticket);
            }
            let risky_at = until.saturating_sub(self.session / RISK_PARTS);
            if now >= risky_at && !std::mem::replace(&mut claim.at_risk, true) {
                self.events.push_back(Output::Event(Event::AtRisk { ticket }));
            }
            self.due.insert((if now >= risky_at { until } else { risky_at }, ticket));
        }
        if self.claims.get(&ticket).is_some_and(|claim| claim.at.is_none()) {
            self.ask(now, ticket);
        }
    }

    /// The lock may be somebody else's from now on. If a daemon still keeps it, it need not any longer.
    fn lose(&mut self, now: MonoTime, ticket: Ticket) {
        if let Some(claim) = self.claims.get(&ticket)
            && let Some(token) = claim.held()
            && let Some(node) = claim.at.or_else(|| self.pick(claim, now))
        {
            let cell = claim.cell;
            self.send(node, RequestBody::Release { cell, token });
        }
        self.end(ticket, Event::Lost { ticket });
    }

    fn end(&mut self, ticket: Ticket, event: Event) {
        self.unbind(ticket);
        if let Some(request) = self.claims.remove(&ticket).and_then(|claim| claim.request) {
            self.requests.remove(&request);
        }
        self.events.push_back(Output::Event(event));
    }

    /// Asks the daemon that the claim is best put to, or waits for a connection.
    fn ask(&mut self, now: MonoTime, ticket: Ticket) {
        let Some(claim) = self.claims.get(&ticket) else { return };
        let Some(node) = self.pick(claim, now) else {
            return self.go_on(now, ticket, None, None);
        };
        let cell = claim.cell;
        let body = match claim.held() {
            Some(token) => RequestBody::Reattach { cell, token },
            None => RequestBody::Acquire { cell, wait: claim.waits },
        };
        let id = self.send(node, body);
        self.requests.insert(id, ticket);
        if let (Some(claim), Some(link)) = (self.claims.get_mut(&ticket), self.links.get_mut(&node)) {
            (claim.request, claim.at) = (Some(id), Some(node));
            link.tickets.insert(ticket);
        }
    }

    /// The member that the claim should be put to: the one named, else the next in its order that is there.
    fn pick(&self, claim: &Claim, now: MonoTime) -> Option<NodeId> {
        let answers = |node: &NodeId| self.links.get(node).is_some_and(|link| !link.is_silent(now, SILENCE));
        let is_linked = |node: &NodeId| self.links.contains_key(node);
        let hinted = claim.hint.filter(answers);
        hinted.or_else(|| claim.in_turn().find(answers)).or_else(|| claim.in_turn().find(is_linked))
    }

    fn send(&mut self, node: NodeId, body: RequestBody) -> RequestId {
        self.request_ids += 1;
        let id = RequestId(self.request_ids);
        if let Some(link) = self.links.get_mut(&node) {
            link.queue(Request { id, body });
        }
        id
    }

    fn valid_until(&self, claim: &Claim) -> Option<MonoTime> {
        claim.held()?;
        let attached = || Some(self.links.get(&claim.at?)?.valid_until);
        claim.loose_until().or_else(attached)
    }
}

#[cfg(test)]
mod tests {
    use base::{ClusterId, Incarnation};
    use node::{Osd, Settings, lock_cell};

    use super::*;

    const SESSION: Span = Span::from_millis(800);

    fn at(ms: u64) -> MonoTime {
        MonoTime::from_micros(1_000_000_000 + ms * 1_000)
    }

    fn process(node: u32) -> Process {
        Process { node: NodeId(node), incarnation: Incarnation(1) }
    }

    /// A client with sessions at `daemons` of three.
    fn core(daemons: &[u32]) -> Core {
        let osds = (1..=3).map(|id| Osd { id: NodeId(id), address: format!("10.0.0.{id}:7000") });
        let map = ClusterMap::new(ClusterId([7; 16]), 1, 3, Settings::default(), osds.collect()).unwrap();
        let mut core = Core::new(Arc::new(map));
        daemons.iter().for_each(|&node| core.handle_connected(at(0), process(node)));
        core
    }

    fn sent(core: &mut Core, now: MonoTime) -> Vec<(u32, Request)> {
        let outputs = std::iter::from_fn(|| core.poll_output(now));
        let frames = outputs.filter_map(|output| match output {
            Output::Send { to, frame } => Some((to.0, frame.requests)),
            _ => None,
        });
        frames.flat_map(|(to, requests)| requests.into_iter().map(move |request| (to, request))).collect()
    }

    fn answer(core: &mut Core, now: MonoTime, (node, id): (u32, RequestId), body: ReplyBody) {
        let frame = DaemonFrame { acked: u64::MAX, replies: vec![Reply::To { id, body }] };
        core.handle_frame(now, NodeId(node), frame);
    }

    /// A client that holds a lock by the daemon that it asked first.
    fn holder(daemons: &[u32]) -> (Core, Ticket, u32) {
        let mut core = core(daemons);
        let ticket = core.acquire(at(0), lock_cell("a"), true);
        let [(node, request)] = &sent(&mut core, at(0))[..] else { panic!("one request") };
        answer(&mut core, at(1), (*node, request.id), ReplyBody::Granted(Token(7)));
        assert_eq!(core.token(at(1), ticket), Some(Token(7)));
        (core, ticket, *node)
    }

    /// Whoever waits until it is told to be called must not be told a time that has passed, over and over.
    #[test]
    fn a_silent_daemon_costs_no_endless_loop() {
        let (mut core, ticket, _) = holder(&[1]);
        let other = core.acquire(at(2), lock_cell("b"), true);
        for ms in (2..3_000).step_by(7) {
            core.handle_timeout(at(ms));
            sent(&mut core, at(ms));
            assert!(core.poll_timeout().is_none_or(|due| due > at(ms)), "at {ms}");
        }
        assert_eq!(core.token(at(3_000), ticket), None);
        assert_eq!(core.token(at(3_000), other), None);
        assert!(core.poll_timeout().is_some_and(|due| due < at(3_000) + SESSION), "it keeps on asking");
    }

    #[test]
    fn a_lock_that_is_kept_after_it_was_given_up_goes_back() {
        let (mut core, ticket, node) = holder(&[1, 2, 3]);
        core.handle_disconnected(at(5), NodeId(node));
        core.handle_timeout(at(5));
        let [(second, late)] = &sent(&mut core, at(5))[..] else { panic!("it is attached anew") };
        // No answer: another is asked, and then nobody wants the lock any longer.
        core.handle_timeout(at(5) + SILENCE);
        sent(&mut core, at(5) + SILENCE);
        core.give_back(at(300), ticket);
        sent(&mut core, at(300));
        answer(&mut core, at(400), (*second, late.id), ReplyBody::Kept);
        let released = sent(&mut core, at(400));
        let release = RequestBody::Release { cell: lock_cell("a"), token: Token(7) };
        assert!(released.iter().any(|(to, request)| to == second && request.body == release), "{released:?}");
    }

    #[test]
    fn a_lock_that_is_attached_anew_is_as_safe_as_its_new_session() {
        let (mut core, ticket, node) = holder(&[1, 2, 3]);
        core.handle_disconnected(at(5), NodeId(node));
        core.handle_timeout(at(790));
        let outputs: Vec<Output> = std::iter::from_fn(|| core.poll_output(at(790))).collect();
        assert!(outputs.contains(&Output::Event(Event::AtRisk { ticket })), "its session is nearly over");
        let again = outputs.iter().find_map(|output| match output {
            Output::Send { to, frame } => Some((to.0, frame.requests.first()?.id)),
            _ => None,
        });
        answer(&mut core, at(791), again.unwrap(), ReplyBody::Kept);
        let outputs: Vec<Output> = std::iter::from_fn(|| core.poll_output(at(791))).collect();
        assert_eq!(outputs.last(), Some(&Output::Event(Event::Safe { ticket })));
    }

    /// While a daemon stops, the others name one another for a while: that is not the end.
    #[test]
    fn a_claim_that_does_not_wait_outlasts_a_takeover_and_says_what_it_met() {
        let mut core = core(&[1, 2, 3]);
        let ticket = core.acquire(at(0), lock_cell("a"), false);
        let (mut ended, mut now) = (None, 0);
        while ended.is_none() {
            for (turn, (node, request)) in sent(&mut core, at(now)).into_iter().enumerate() {
                let elsewhere = ReplyBody::Elsewhere(NodeId(node % 3 + 1));
                let refusal = ReplyBody::Unavailable(Unavailable::Stopping);
                let is_first = (now, turn) == (0, 0);
                answer(&mut core, at(now), (node, request.id), if is_first { refusal } else { elsewhere });
            }
            now += 1;
            core.handle_timeout(at(now));
            ended = core.events.pop_front().map(|event| (now, event));
        }
        let why = Some(Unavailable::Stopping);
        let end = Output::Event(Event::Unavailable { ticket, why });
        assert!(matches!(&ended, Some((2_900..3_000, event)) if *event == end), "{ended:?}");
    }

    #[test]
    fn what_is_given_back_together_is_released() {
        let (mut core, ticket, _) = holder(&[1]);
        core.give_all_back(at(2));
        assert_eq!(core.token(at(2), ticket), None);
        let released = sent(&mut core, at(2));
        assert!(released.iter().any(|(_, request)| matches!(request.body, RequestBody::Release { .. })));
    }
}
