//! The task around the core: connections to the daemons, and whoever waits for something.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::{MonoTime, NodeId, ObjectId, Process, Role, Span, WallTime};
use namespace::{Born, Generation, InodeId};
use net::{Admission, Caller, Endpoint, Event, Identity, Inbox, Link, Network, Path, Peer};
use node::{ClusterMap, Inspection, OrderBody, OrderReplyBody, Revoked, Status, Token, Unavailable};
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use wire::{Admitted, Hello, Inspect, Introduction, Kind, Message, Refusal, StatusRequest, Why};

use crate::ahead::Ahead;
use crate::behind::Behind;
use crate::clock;
use crate::config::{Config, ConfigError};
use crate::core::content::{FileId, Recall};
use crate::core::grants::Cache;
use crate::core::{Core, Event as CoreEvent, Obstacle, Output, Ticket};
use crate::lock::{Asked, Standing};
use crate::objects::{Objects, Windows};
use crate::orders::Orders;
use crate::reopening::Reopening;
use crate::watch::{Waiting, Watched};

/// How long a client waits for the first daemon.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long it waits for the others once one is there.
const OTHERS_TIMEOUT: Duration = Duration::from_millis(250);
/// How long a daemon has to say how it is.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a last word may take.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a request about an object goes on without a result, unless a program says otherwise.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A program's connections to the daemons of a cluster.
#[derive(Debug)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    map: Arc<ClusterMap>,
    driver: JoinSet<()>,
    pub(crate) patience: Duration,
    /// Whose certificate it has.
    pub(crate) role: Role,
}

/// Why a client did not come to be.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The configuration or the certificate.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No socket.
    #[error(transparent)]
    Bind(#[from] net::BindError),
    /// A constant of the network.
    #[error(transparent)]
    Network(#[from] net::ConfigError),
    /// The kernel has no random numbers.
    #[error("the kernel gives no random numbers: {0}")]
    Random(std::io::Error),
    /// Nobody answers.
    #[error("no daemon of the cluster answers:{}", list(.0))]
    NoDaemon(Vec<(NodeId, String, String)>),
    /// There are daemons, and they are not of the cluster that the client is of, or no longer: waiting changes nothing.
    #[error(
        "the daemons and this client do not accept each other's certificates:{}\nsee that the client's folder is of this cluster; if it is, \
         issue its certificate anew with `fleasefs cert renew`, or that of the daemon",
        list(.0)
    )]
    Certificate(Vec<(NodeId, String, String)>),
}

/// How far a client has got with the daemons.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Reached {
    /// How many are connected.
    connected: usize,
    /// Of how many the client does not accept the certificate, or they do not accept its own.
    strangers: usize,
}

/// Why there is no connection.
struct Trouble {
    why: String,
    /// Whether it is a certificate.
    is_stranger: bool,
}

/// A daemon as a client finds it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DaemonState {
    /// Which.
    pub node: NodeId,
    /// Where.
    pub address: String,
    /// What it says, or why it does not.
    pub status: Result<Box<Status>, String>,
}

/// What the driver and those who wait have in common.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// What may be answered without asking. Locked for moments, and beside the state only after it.
    cache: Arc<Mutex<Cache>>,
    /// Who keeps some of that, and has to be told when it ends.
    pub(crate) watched: Arc<Watched>,
    /// What is lent to this client.
    pub(crate) behind: Arc<Behind>,
    /// What this client creates by itself.
    pub(crate) ahead: Arc<Ahead>,
    /// What was opened lately.
    pub(crate) reopening: Arc<Reopening>,
    /// How much may be under way about objects.
    pub(crate) windows: Windows,
    /// The core has something to do.
    wake: Notify,
    reached: watch::Sender<Reached>,
}

struct State {
    core: Core,
    cache: Arc<Mutex<Cache>>,
    watched: Arc<Watched>,
    behind: Arc<Behind>,
    ahead: Arc<Ahead>,
    reopening: Arc<Reopening>,
    /// How many have to say that they are done before a revocation is answered.
    answers: BTreeMap<Recall, usize>,
    objects: Objects,
    waiting: BTreeMap<Ticket, oneshot::Sender<Outcome>>,
    standings: BTreeMap<Ticket, watch::Sender<Standing>>,
    asked: BTreeMap<NodeId, Vec<oneshot::Sender<Status>>>,
    orders: Orders,
    inspected: BTreeMap<(NodeId, ObjectId), Vec<oneshot::Sender<Inspection>>>,
    links: BTreeMap<NodeId, Link>,
    troubles: BTreeMap<NodeId, Trouble>,
}

/// What became of a request for a lock.
#[derive(Debug)]
pub(crate) enum Outcome {
    Granted { token: Token, standing: watch::Receiver<Standing> },
    Busy,
    Unavailable(Option<Unavailable>),
    Closed,
}

impl Client {
    /// Connects to the daemons of a cluster. There is a client once one of them answers; the others are called for
    /// as long as it lives. Needs a running tokio runtime.
    pub async fn connect(config: &Config) -> Result<Self, ConnectError> {
        let now_s = clock::wall().as_micros() / 1_000_000;
        let identity = config.identity(now_s)?;
        let map = Arc::new(config.map.clone());
        let program = random()?;
        let (network, inbox) = open_network(&map, &identity, program)?;
        let session = Span::from_millis(map.settings().session_ms.into());
        let behind = Behind::new(program, session, config.write_behind);
        let shared = Arc::new(Shared::new(map.clone(), behind));
        let mut driver = JoinSet::new();
        let callers = map.osds().map(|osd| (osd.id, network.keep_calling(osd.id, &osd.address))).collect();
        driver.spawn(drive(shared.clone(), network, inbox, callers));
        let role = identity.peer().role.clone();
        let client = Self { shared, map, driver, patience: PATIENCE, role };
        client.wait_for_daemons().await?;
        Ok(client)
    }

    /// The same, with another time for each request about an object or a volume to get a result.
    #[must_use]
    pub const fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// The same, and everything about volumes is asked of daemons.
    #[must_use]
    pub fn without_cache(self) -> Self {
        self.shared.with_objects(|objects| objects.core.stop_caching());
        self.shared.behind.turn_off();
        *self.shared.cache() = Cache::new();
        self
    }

    /// The same, and what is written to files of volumes goes to daemons at once.
    #[must_use]
    pub fn without_write_behind(self) -> Self {
        self.shared.behind.turn_off();
        self
    }

    /// The cluster.
    pub fn map(&self) -> &ClusterMap {
        &self.map
    }

    /// How often something about a volume was answered without asking a daemon.
    pub fn cache_hits(&self) -> u64 {
        self.shared.cache().hits()
    }

    /// Asks every daemon of the map how it is.
    pub async fn status(&self) -> Vec<DaemonState> {
        self.status_within(STATUS_TIMEOUT).await
    }

    /// The same, for who has no more time than this for all of them.
    pub async fn status_within(&self, patience: Duration) -> Vec<DaemonState> {
        let start = clock::now();
        let mut answers = Vec::new();
        for osd in self.map.osds() {
            answers.push((osd, self.shared.ask_status(osd.id)));
        }
        let mut states = Vec::new();
        for (osd, answer) in answers {
            let status = match timeout(patience.saturating_sub(clock::elapsed(start)), answer).await {
                Ok(Ok(status)) => Ok(Box::new(status)),
                Ok(Err(_)) => Err(self.shared.trouble(osd.id)),
                Err(_) => Err("connected, but it does not answer".to_owned()),
            };
            states.push(DaemonState { node: osd.id, address: osd.address.clone(), status });
        }
        states
    }

    /// Asks one daemon how it is, or says why it does not answer.
    pub async fn status_of(&self, node: NodeId) -> Result<Status, String> {
        match timeout(STATUS_TIMEOUT, self.shared.ask_status(node)).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(_)) => Err(self.shared.trouble(node)),
            Err(_) => Err("connected, but it does not answer".to_owned()),
        }
    }

    /// Asks every daemon of the map what it knows of an object, or says why it does not answer.
    pub async fn inspect(&self, object: ObjectId) -> Vec<(NodeId, Result<Inspection, String>)> {
        let asked: Vec<_> =
            self.map.osds().map(|osd| (osd.id, self.shared.ask_about(osd.id, object))).collect();
        let mut told = Vec::new();
        for (node, answer) in asked {
            let said = match timeout(STATUS_TIMEOUT, answer).await {
                Ok(Ok(inspection)) => Ok(inspection),
                Ok(Err(_)) => Err(self.shared.trouble(node)),
                Err(_) => Err("connected, but it does not answer".to_owned()),
            };
            told.push((node, said));
        }
        told
    }

    /// Gives every lock back and closes the connections.
    pub async fn close(mut self) {
        self.leave_volumes().await;
        {
            let mut state = self.shared.state();
            state.core.give_all_back(clock::now());
            // What is to be called again is not worth it any more.
            let _ = state.turn(&mut Vec::new());
        }
        let links: Vec<Link> = self.shared.state().links.values().cloned().collect();
        for link in &links {
            link.close_after_sending("the client is done");
        }
        let closed = async {
            for link in &links {
                link.closed().await;
            }
        };
        // What was not heard by then runs out by itself.
        let _ = timeout(CLOSE_TIMEOUT, closed).await;
        self.driver.abort_all();
    }

    async fn wait_for_daemons(&self) -> Result<(), ConnectError> {
        let mut reached = self.shared.reached.subscribe();
        let first = reached.wait_for(|reached| *reached != Reached::default());
        let is_answered = timeout(CONNECT_TIMEOUT, first).await.is_ok();
        let all = self.map.osds().len();
        if is_answered {
            let _ = timeout(OTHERS_TIMEOUT, reached.wait_for(|reached| reached.connected == all)).await;
        }
        let Reached { connected, strangers } = *reached.borrow();
        if connected > 0 {
            return Ok(());
        }
        let trouble = |osd: &node::Osd| (osd.id, osd.address.clone(), self.shared.trouble(osd.id));
        let troubles = self.map.osds().map(trouble).collect();
        Err(if strangers > 0 {
            ConnectError::Certificate(troubles)
        } else {
            ConnectError::NoDaemon(troubles)
        })
    }
}

impl Shared {
    fn new(map: Arc<ClusterMap>, behind: Behind) -> Self {
        let behind = Arc::new(behind);
        let (cache, watched) = (Arc::new(Mutex::new(Cache::new())), Arc::new(Watched::default()));
        let (ahead, reopening) = (Arc::new(Ahead::default()), Arc::new(Reopening::default()));
        let state = State {
            core: Core::new(map.clone()),
            cache: cache.clone(),
            watched: watched.clone(),
            behind: behind.clone(),
            ahead: ahead.clone(),
            reopening: reopening.clone(),
            answers: BTreeMap::new(),
            objects: Objects::new(map),
            waiting: BTreeMap::new(),
            standings: BTreeMap::new(),
            asked: BTreeMap::new(),
            orders: Orders::default(),
            inspected: BTreeMap::new(),
            links: BTreeMap::new(),
            troubles: BTreeMap::new(),
        };
        let (state, windows) = (Mutex::new(state), Windows::new());
        let (wake, reached) = (Notify::new(), watch::Sender::default());
        Self { state, cache, watched, behind, ahead, reopening, windows, wake, reached }
    }

    pub(crate) fn token(&self, now: MonoTime, ticket: Ticket) -> Option<Token> {
        self.state().core.token(now, ticket)
    }

    pub(crate) fn answering(&self, ticket: Ticket) -> Option<NodeId> {
        self.state().core.answering(ticket)
    }

    pub(crate) fn acquire(
        self: &Arc<Self>,
        cell: ObjectId,
        waits: bool,
    ) -> (Asked, oneshot::Receiver<Outcome>) {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        let ticket = state.core.acquire(clock::now(), cell, waits);
        state.waiting.insert(ticket, sender);
        drop(state);
        self.wake.notify_one();
        (Asked { shared: self.clone(), ticket, is_settled: false }, receiver)
    }

    pub(crate) fn give_back(&self, ticket: Ticket) {
        self.state().core.give_back(clock::now(), ticket);
        self.wake.notify_one();
    }

    pub(crate) fn obstacle(&self, ticket: Ticket) -> Obstacle {
        self.state().core.obstacle(ticket)
    }

    /// Asks or changes what is known of objects. Whoever wants something done calls [`wake`](Self::wake) afterwards.
    pub(crate) fn with_objects<T>(&self, ask: impl FnOnce(&mut Objects) -> T) -> T {
        ask(&mut self.state().objects)
    }

    /// What may be answered without asking.
    pub(crate) fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is something to do.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    fn ask_status(&self, node: NodeId) -> oneshot::Receiver<Status> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        if let Some(link) = state.links.get(&node) {
            send(link, &StatusRequest);
            state.asked.entry(node).or_default().push(sender);
        }
        receiver
    }

    fn ask_about(&self, node: NodeId, object: ObjectId) -> oneshot::Receiver<Inspection> {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.state();
        if let Some(link) = state.links.get(&node) {
            send(link, &Inspect { object });
            state.inspected.entry((node, object)).or_default().push(sender);
        }
        receiver
    }

    /// Gives a daemon an order; the answer does not come if there is no connection, or none any more.
    pub(crate) fn order(&self, node: NodeId, body: OrderBody) -> oneshot::Receiver<OrderReplyBody> {
        let mut state = self.state();
        let (order, receiver) = state.orders.give(node, body);
        match state.links.get(&node) {
            Some(link) => send(link, &order),
            None => state.orders.lose(node),
        }
        receiver
    }

    pub(crate) fn trouble(&self, node: NodeId) -> String {
        let state = self.state();
        let trouble = state.troubles.get(&node);
        trouble.map_or_else(|| "it has not answered yet".to_owned(), |trouble| trouble.why.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Held for moments only, and never while waiting.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever waits when the driver ends hears of it: nothing is confirmed or answered any longer.
struct Ends(Arc<Shared>);

impl Drop for Ends {
    fn drop(&mut self) {
        let mut state = self.0.state();
        let State { waiting, standings, asked, orders, inspected, objects, watched, behind, ahead, .. } =
            &mut *state;
        watched.end();
        behind.end();
        ahead.end();
        waiting.clear();
        standings.clear();
        asked.clear();
        orders.end();
        inspected.clear();
        objects.end();
        drop(state);
        self.0.reopening.clear();
    }
}

async fn drive(shared: Arc<Shared>, _network: Network, mut inbox: Inbox, callers: BTreeMap<NodeId, Caller>) {
    let _ends = Ends(shared.clone());
    let mut events = Vec::new();
    loop {
        let next = shared.state().next_due();
        let left = next.map_or(Duration::MAX, |at| Duration::from_micros(at.since(clock::now()).as_micros()));
        tokio::select! {
            is_open = inbox.receive(&mut events) => if !is_open { return },
            () = shared.wake.notified() => {}
            () = sleep(left) => {}
        }
        let (reached, again, lost) = {
            let mut state = shared.state();
            let again = state.turn(&mut events);
            (state.reached(), again, state.objects.handles.take_unsaid())
        };
        if let Some((first, count)) = lost {
            tracing::warn!(
                "of {count} files that were closed, {first:?} first, what was not synced may be lost, unless they were removed"
            );
        }
        again.iter().filter_map(|node| callers.get(node)).for_each(Caller::call_again);
        shared.reached.send_if_modified(|before| std::mem::replace(before, reached) != reached);
        // Sockets are other tasks' work.
        tokio::task::yield_now().await;
    }
}

impl State {
    fn reached(&self) -> Reached {
        let strangers = self.troubles.values().filter(|trouble| trouble.is_stranger).count();
        Reached { connected: self.links.len(), strangers }
    }

    /// Takes in what happened and does what the core wants done. Returns which daemons are to be called again.
    fn turn(&mut self, events: &mut Vec<Event>) -> Vec<NodeId> {
        events.drain(..).for_each(|event| self.handle_event(event));
        self.core.handle_timeout(clock::now());
        let mut again = self.go_on();
        while let Some(output) = self.core.poll_output(clock::now()) {
            again.extend(self.act(output));
        }
        self.confirm();
        self.objects.turn(clock::now(), &self.links);
        again
    }

    fn cache(&self) -> MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whoever keeps what was answered here is done with dropping some of it. Returns which daemons are to be called again.
    fn go_on(&mut self) -> Vec<NodeId> {
        let mut again = Vec::new();
        for done in self.watched.take_done() {
            match done {
                Waiting::Revocation { from, number } => self.dropped(Recall { from, number }),
                Waiting::Connection(node) if !self.links.contains_key(&node) => again.push(node),
                Waiting::Connection(_) => {}
            }
        }
        let answered = self.behind.contents().take_answered();
        answered.into_iter().for_each(|recall| self.dropped(recall));
        let answered = self.ahead.creations().take_answered();
        answered.into_iter().for_each(|recall| self.dropped(recall));
        again
    }

    /// One of those who have to be done with a revocation is.
    fn dropped(&mut self, recall: Recall) {
        let Some(left) = self.answers.get_mut(&recall) else { return };
        *left -= 1;
        if *left == 0 {
            self.answers.remove(&recall);
            self.core.dropped(recall.from, recall.number);
        }
    }

    /// Something is taken back. It is answered when whoever has some of it has dropped that.
    fn revoked(&mut self, recall: Recall, volume: ObjectId, what: Revoked) {
        let Recall { from, number } = recall;
        self.cache().revoke(from, number, (volume, what));
        self.reopening.look();
        let mut waits =
            usize::from(self.watched.revoked(volume, &what, Waiting::Revocation { from, number }));
        if let Revoked::Lend { number, epoch, lent_in, lent_at } = what {
            let id = FileId { volume, inode: InodeId { number, epoch } };
            let generation = Generation(Born { epoch: lent_in, seq: lent_at });
            waits += usize::from(self.behind.contents().recall((id, generation), Some(recall)));
            self.behind.urge(id);
            waits += usize::from(self.ahead.recall((id, generation), recall));
        }
        if waits == 0 {
            self.core.dropped(from, number);
        } else {
            self.answers.insert(recall, waits);
        }
    }

    /// Sessions last as long as daemons have confirmed, now that all is taken in that they said before.
    fn confirm(&self) {
        let mut cache = self.cache();
        for &node in self.links.keys() {
            if let Some(until) = self.core.session_until(node) {
                cache.confirm(node, until);
            }
        }
    }

    fn next_due(&self) -> Option<MonoTime> {
        [self.core.poll_timeout(), self.objects.core.poll_timeout()].into_iter().flatten().min()
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Opened(link) => self.opened(link),
            Event::Closed(link, reason) => self.closed(&link, &reason),
            Event::Frames(link, frames) => frames.iter().for_each(|frame| self.handle_frame(&link, frame)),
            Event::CallFailed { node, error, .. } => {
                use net::ConnectError::{Certificate, Peer};
                let is_stranger = matches!(*error, Certificate(_) | Peer(_));
                self.troubles.insert(node, Trouble { why: error.to_string(), is_stranger });
            }
            Event::Bulk(link, _) => link.close("no transfer is expected"),
            Event::Datagrams(..) | Event::Time { .. } | Event::CallerRefused { .. } => {}
        }
    }

    fn opened(&mut self, link: Link) {
        let Introduction::Node(told) = &link.hello().who else { return };
        let process: Process = told.process;
        if self.links.remove(&process.node).is_some() {
            self.core.handle_disconnected(clock::now(), process.node);
            self.lose(process.node);
        }
        // Its first frame would say that nothing is believed any more that came over the one before.
        if self.watched.keeps_from(process.node) {
            return link.close("what came before is still being dropped");
        }
        self.core.handle_connected(clock::now(), process);
        self.objects.core.handle_up(clock::now(), process.node);
        if let Some(connection) = self.objects.core.connection(process.node) {
            self.cache().handle_up(connection);
        }
        self.troubles.remove(&process.node);
        self.links.insert(process.node, link);
    }

    fn closed(&mut self, link: &Link, reason: &net::CloseReason) {
        let Some(node) = link.peer().role.node() else { return };
        if self.links.get(&node).is_some_and(|present| present.id() == link.id()) {
            self.links.remove(&node);
            self.asked.remove(&node);
            self.troubles.insert(node, Trouble { why: reason.to_string(), is_stranger: false });
            self.core.handle_disconnected(clock::now(), node);
            self.lose(node);
        }
    }

    /// What came over a connection that is gone does not count any more.
    fn lose(&mut self, node: NodeId) {
        self.objects.core.handle_down(clock::now(), node);
        self.orders.lose(node);
        self.inspected.retain(|(from, _), _| *from != node);
        self.answers.retain(|recall, _| recall.from != node);
        self.behind.contents().forget_recalls(node);
        self.ahead.creations().forget_recalls(node);
        let volumes = self.cache().handle_down(node);
        self.watched.lost(node, volumes);
    }

    fn handle_frame(&mut self, link: &Link, frame: &Admitted) {
        let Some(node) = link.peer().role.node() else { return };
        if self.links.get(&node).is_none_or(|present| present.id() != link.id()) {
            return;
        }
        let handled = match frame.kind() {
            Kind::Daemon => frame.decode().map(|frame| self.core.handle_frame(clock::now(), node, frame)),
            Kind::FileReply => {
                frame.decode().map(|replies| self.objects.handle_replies(clock::now(), node, replies))
            }
            Kind::Status => frame.decode::<Status>().map(|status| {
                for asked in self.asked.remove(&node).unwrap_or_default() {
                    // Whoever asked may have gone.
                    let _ = asked.send(status.clone());
                }
            }),
            Kind::Inspection => frame.decode::<Inspection>().map(|inspection| {
                for asked in self.inspected.remove(&(node, inspection.object)).unwrap_or_default() {
                    let _ = asked.send(inspection.clone());
                }
            }),
            Kind::OrderReply => frame.decode().map(|reply| self.orders.handle_reply(node, reply)),
            _ => return link.close("this is not for a client"),
        };
        if let Err(error) = handled {
            link.close(&format!("this cannot be understood: {error}"));
        }
    }

    /// Does what the core wants done, but for calling a daemon again: returns which.
    fn act(&mut self, output: Output) -> Option<NodeId> {
        match output {
            Output::Send { to, frame } => {
                if let Some(link) = self.links.get(&to) {
                    send(link, &frame);
                }
                None
            }
            Output::Reconnect { to } => {
                self.links.remove(&to);
                self.lose(to);
                Some(to)
            }
            Output::Revoke { from, number, volume, what } => {
                self.revoked(Recall { from, number }, volume, what);
                None
            }
            Output::Event(event) => {
                self.tell(event);
                None
            }
        }
    }

    fn tell(&mut self, event: CoreEvent) {
        let (ticket, outcome) = match event {
            CoreEvent::Granted { ticket, token } => {
                let (sender, standing) = watch::channel(Standing::Safe);
                self.standings.insert(ticket, sender);
                (ticket, Outcome::Granted { token, standing })
            }
            CoreEvent::Busy { ticket } => (ticket, Outcome::Busy),
            CoreEvent::Unavailable { ticket, why } => (ticket, Outcome::Unavailable(why)),
            CoreEvent::AtRisk { ticket } => return self.stands(ticket, Standing::AtRisk),
            CoreEvent::Safe { ticket } => return self.stands(ticket, Standing::Safe),
            CoreEvent::Lost { ticket } => return self.ends(ticket, Standing::Lost),
            CoreEvent::GivenBack { ticket } => return self.ends(ticket, Standing::GivenBack),
        };
        if let Some(waiting) = self.waiting.remove(&ticket)
            && waiting.send(outcome).is_err()
        {
            // Whoever waited is gone, and the lock goes back.
            self.core.give_back(clock::now(), ticket);
        }
    }

    fn stands(&mut self, ticket: Ticket, standing: Standing) {
        if let Some(sender) = self.standings.get(&ticket) {
            sender.send_replace(standing);
        }
    }

    fn ends(&mut self, ticket: Ticket, standing: Standing) {
        self.stands(ticket, standing);
        self.standings.remove(&ticket);
        self.waiting.remove(&ticket);
    }
}

/// A client at its own door: it lets in whom it called.
struct Doorman {
    map: Arc<ClusterMap>,
    program: u64,
}

impl net::Owner for Doorman {
    fn hello(&self, _peer: &Peer) -> Hello {
        Hello {
            cluster: self.map.cluster(),
            map_version: self.map.version(),
            map_digest: self.map.digest(),
            who: Introduction::Client { program: self.program },
        }
    }

    fn admit<'a>(&'a self, peer: &'a Peer, hello: &'a Hello) -> Admission<'a> {
        Box::pin(async move {
            let fits = match (&peer.role, &hello.who) {
                (Role::Node(node), Introduction::Node(told)) => told.process.node == *node,
                _ => false,
            };
            if !fits {
                return Err(Refusal::new(Why::Protocol, "a client talks to daemons only"));
            }
            if hello.map_digest != self.map.digest() {
                let (theirs, ours) = (hello.map_version, self.map.version());
                let text = format!(
                    "the daemon's map has version {theirs}, the client's {ours}; copy the newer cluster.toml"
                );
                return Err(Refusal::new(Why::Map, &text));
            }
            Ok(())
        })
    }

    fn clock(&self) -> net::Reading {
        // Nobody asks a client for the time.
        net::Reading { time: WallTime::ZERO, is_fixed: false }
    }
}

fn open_network(
    map: &Arc<ClusterMap>,
    identity: &Identity,
    program: u64,
) -> Result<(Network, Inbox), ConnectError> {
    let addresses = || map.osds().filter_map(|osd| osd.address.parse::<SocketAddr>().ok());
    let is_near =
        addresses().count() == map.osds().len() && addresses().all(|address| address.ip().is_loopback());
    let is_v6 = addresses().any(|address| address.is_ipv6());
    let (path, ip) = match (is_near, is_v6) {
        (true, false) => (Path::Loopback, Ipv4Addr::LOCALHOST.into()),
        (true, true) => (Path::Loopback, Ipv6Addr::LOCALHOST.into()),
        (false, false) => (Path::Network, Ipv4Addr::UNSPECIFIED.into()),
        (false, true) => (Path::Network, Ipv6Addr::UNSPECIFIED.into()),
    };
    let endpoint = Endpoint::bind(SocketAddr::new(ip, 0), identity, path)?;
    let doorman = Arc::new(Doorman { map: map.clone(), program });
    let settings = net::Config { seed: program, ..net::Config::default() };
    Ok(Network::start(endpoint, settings, doorman)?)
}

fn random() -> Result<u64, ConnectError> {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
        Ok(8) => Ok(u64::from_le_bytes(bytes)),
        Ok(_) => Err(ConnectError::Random(std::io::ErrorKind::UnexpectedEof.into())),
        Err(errno) => Err(ConnectError::Random(errno.into())),
    }
}

/// A daemon that reads nothing for so long is no use: its connection is closed, and made again.
fn send<M: Message>(link: &Link, message: &M) {
    let mut bytes = Vec::new();
    wire::encode(message, &mut bytes);
    if link.send(bytes.into()).is_err() {
        link.close("too much waits to be sent");
    }
}

fn list(daemons: &[(NodeId, String, String)]) -> String {
    daemons.iter().map(|(node, address, why)| format!("\n  daemon {node} at {address}: {why}")).collect()
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}
