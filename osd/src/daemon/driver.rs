//! The loop around the shard: takes in everything that waits, then does everything the shard wants done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use base::{NodeId, ObjectId, Process, Role, WallTime};
use bytes::Bytes;
use lease::{Algorithm, Batch, Loss};
use net::{CloseReason, Event, Link, LinkId, Peer};
use node::Errand;
use node::file::{Answer, FileReply, FileReplyBody, FileRequest};
use node::{
    Certificate, CertificateId, ClientId, FileMessage, Output, Recent, RestoredCopy, SessionId, Shard,
    ShardEvent, WorkStatus,
};
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval, sleep};
use wire::{
    Admitted, DecodeError, Inspect, Introduction, Kind, Message, Notice, NoticeAck, RecentRequest,
    StatusRequest,
};

use super::files::{FileDisk, FilesFailed};
use super::links::{Links, session_of};
use super::refusals::Refusals;
use super::{DaemonError, Parts, report};
use crate::meter::Meter;
use crate::store::{MARK_LEAD, MARK_PERIOD, WriteError};

/// Turns of the loop that take in more before anything is put out.
const TURNS_MAX: usize = 2;
/// How long a stop may take.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// How long after finding the disk full the store tries again.
const FULL_RETRY: Duration = Duration::from_secs(1);
/// How old metrics may be.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);
/// While so much waits for a peer, no more data is sent to it; its other messages have the rest of the queue.
const DATA_QUEUE_BYTES: usize = 8 << 20;
/// A message that is larger carries data.
const LARGE_BYTES: u64 = 1_024;
/// Jobs for the store under way.
const JOBS_MAX: usize = 16;

/// The shard and what it is connected to.
pub(super) struct Driver<A> {
    shard: Shard<A>,
    parts: Parts,
    links: Links,
    /// What the store has done.
    done: mpsc::Receiver<Done>,
    doing: mpsc::Sender<Done>,
    /// What node time must not reach.
    mark: WallTime,
    started_at: WallTime,
    is_stopping: bool,
    /// Leases that ended against our will in this turn.
    lost: Vec<(ObjectId, Loss)>,
    /// Who was told this daemon's status in this turn.
    told_status: BTreeSet<LinkId>,
    refusals: Refusals,
    /// What clients have had it do.
    work: WorkStatus,
    meter: Meter,
    disk: FileDisk,
    outgoing: Outgoing,
}

/// What is to be sent about files at the end of a turn.
#[derive(Default)]
struct Outgoing {
    nodes: BTreeMap<NodeId, VecDeque<FileMessage>>,
    errands: BTreeMap<NodeId, VecDeque<Errand>>,
    errand_replies: BTreeMap<NodeId, VecDeque<FileReply>>,
    clients: BTreeMap<SessionId, VecDeque<FileReply>>,
}

/// Something the store has done.
enum Done {
    Ceiling(u64, Result<(), WriteError>),
    Mark(Result<WallTime, WriteError>),
    Drained(bool, Result<(), WriteError>),
}

impl<A: Algorithm> Driver<A> {
    pub(super) fn new(shard: Shard<A>, disk: FileDisk, parts: Parts, mark: WallTime) -> Self {
        let (doing, done) = mpsc::channel(JOBS_MAX);
        let started_at = parts.clock.now();
        Self {
            shard,
            parts,
            links: Links::default(),
            done,
            doing,
            mark,
            started_at,
            is_stopping: false,
            lost: Vec::new(),
            told_status: BTreeSet::new(),
            refusals: Refusals::default(),
            work: WorkStatus::default(),
            meter: Meter::new(started_at),
            disk,
            outgoing: Outgoing::default(),
        }
    }

    /// Serves until it is to stop. `events` is what came before node time was fixed.
    pub(super) async fn run(mut self, mut events: Vec<Event>) -> Result<(), DaemonError> {
        let mut restored = self.parts.doorman.restored();
        let mut stop = self.parts.stop.clone();
        let mut marks = interval(Duration::from_micros(MARK_PERIOD.as_micros()));
        marks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut measurements = interval(MEASURE_INTERVAL);
        measurements.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let board = self.parts.page.board.clone();
        let deadline = sleep(Duration::MAX);
        tokio::pin!(deadline);
        // Opening the store has synced all that was there.
        let now = self.now();
        self.shard.handle_durable(now, 0);
        self.turn(&mut events);
        loop {
            let next = self.until_timeout();
            tokio::select! {
                Some(done) = self.done.recv() => self.finish(done)?,
                done = self.disk.next() => {
                    let now = self.now();
                    self.disk.finish(&mut self.shard, now, done).or_else(|error| self.fail_store(error))?;
                }
                _ = self.parts.inbox.receive(&mut events) => {}
                () = sleep(next) => {}
                _ = marks.tick() => self.mark_time()?,
                _ = measurements.tick() => self.measure(),
                () = board.begun() => self.look_around(self.now()),
                copy = restored_copy(&mut restored) => return Err(copy.into()),
                () = told_to(&mut stop), if !self.is_stopping => {
                    self.begin_stop();
                    deadline.set(sleep(DRAIN_TIMEOUT));
                }
                () = &mut deadline => {
                    tracing::warn!("not all leases could be given up in time; they will run out");
                    return self.end().await;
                }
            }
            self.check_mark()?;
            let now = self.now();
            self.disk.check_due(&mut self.shard, now);
            self.turn(&mut events);
            if self.is_stopping && self.shard.is_drained() {
                return self.end().await;
            }
            // Sockets are other tasks' work.
            tokio::task::yield_now().await;
        }
    }

    /// Takes in `events` and what else waits, lets time pass, and does what the shard wants.
    fn turn(&mut self, events: &mut Vec<Event>) {
        for _ in 0..TURNS_MAX {
            for event in events.drain(..) {
                self.handle_event(event);
            }
            if !self.parts.inbox.try_receive(events) {
                break;
            }
        }
        events.drain(..).for_each(|event| self.handle_event(event));
        let now = self.now();
        if now >= self.shard.poll_timeout() {
            self.shard.handle_timeout(now);
        }
        // Read again: the inputs took time, and nothing may be confirmed by an old reading.
        let now = self.now();
        while let Some(output) = self.shard.poll_output(now) {
            self.act(output);
        }
        self.send_about_files();
        self.told_status.clear();
        // Leases are lost by the thousand, if at all, and one line tells it.
        if let Some((cell, why)) = self.lost.first() {
            tracing::warn!(leases = self.lost.len(), first = ?cell, ?why, "lost leases");
            self.lost.clear();
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Opened(link) => self.opened(&link),
            Event::Datagrams(link, datagrams) => {
                let Some(process) = self.links.process(&link) else { return };
                datagrams.iter().for_each(|datagram| self.handle_datagram(&link, process, datagram));
            }
            Event::Frames(link, frames) => frames.iter().for_each(|frame| self.handle_frame(&link, frame)),
            // Nothing is transferred yet.
            Event::Bulk(link, _) => link.close("no transfer is expected"),
            Event::Time { link, answer, done } => {
                self.parts.gauges.exchanged(&answer, done);
                if let (Some(process), true) = (self.links.process(&link), answer.time_is_fixed) {
                    let now = self.now();
                    self.shard.handle_exchange(now, process.node, answer.into_exchange(done));
                }
            }
            Event::Closed(link, reason) => self.closed(&link, &reason),
            Event::CallFailed { node, error, failures } => report::call_failed(node, &error, failures),
            Event::CallerRefused { from, error } => {
                if self.refusals.add(self.parts.clock.now()) {
                    tracing::warn!(%from, "a caller was not let in: {error}");
                }
            }
        }
    }

    fn opened(&mut self, link: &Link) {
        let now = self.now();
        match (&link.peer().role, &link.hello().who) {
            (Role::Node(node), Introduction::Node(told)) => {
                if !self.links.open_node(told.process, link) {
                    return;
                }
                tracing::info!(%node, incarnation = told.process.incarnation.0, "connected");
                if let Some(dead) = self.links.note_line(told) {
                    self.shard.handle_death_notice(now, dead);
                }
                self.shard.handle_peer_up(now, told.process);
            }
            (Role::Client(_) | Role::Admin(_), Introduction::Client { program }) => {
                let session = self.links.open_client(link);
                self.parts.doorman.set_clients(self.links.client_count());
                let Peer { role, fingerprint, .. } = link.peer();
                let [a, b, c, d, e, f, g, h, ..] = fingerprint.0;
                let certificate = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
                let client = ClientId { certificate, program: *program };
                let certificate = Certificate { role: role.clone(), id: CertificateId(fingerprint.0) };
                self.shard.handle_client_up(now, session, client, certificate);
            }
            // A supervisor says what it has to say and goes.
            _ => {}
        }
    }

    fn closed(&mut self, link: &Link, reason: &CloseReason) {
        self.parts.gauges.closed(link);
        match link.peer().role {
            Role::Node(node) if self.links.close_node(node, link.id()) => {
                tracing::info!(%node, "connection lost: {reason}");
                self.shard.handle_peer_down(node);
            }
            Role::Client(_) | Role::Admin(_) => {
                self.links.close_client(session_of(link));
                self.meter.closed(session_of(link));
                self.parts.doorman.set_clients(self.links.client_count());
                self.shard.handle_client_down(session_of(link));
            }
            Role::Node(_) | Role::Supervisor(_) => {}
        }
    }

    fn handle_datagram(&mut self, link: &Link, process: Process, datagram: &Admitted) {
        match datagram.decode_leases() {
            Ok(batch) => {
                let now = self.now();
                self.shard.handle_lease_batch(now, process, &batch);
            }
            Err(error) => self.cut_off(link, &error),
        }
    }

    fn handle_frame(&mut self, link: &Link, frame: &Admitted) {
        let now = self.now();
        let handled = match frame.kind() {
            Kind::Client => {
                frame.decode().map(|frame| self.shard.handle_client_frame(now, session_of(link), frame))
            }
            Kind::Peer => match self.links.process(link) {
                Some(from) => {
                    frame.decode().map(|messages| self.shard.handle_peer_messages(now, from, messages))
                }
                None => Ok(()),
            },
            Kind::FilePeer => self.handle_file_messages(now, link, frame),
            Kind::Errand | Kind::FileReply => self.handle_errands(now, link, frame),
            Kind::FileRequest => frame.decode().map(|requests: Vec<FileRequest>| {
                for request in requests {
                    self.work.requests += 1;
                    self.work.written_bytes += request.body.data_bytes();
                    self.meter.begins(now, session_of(link), request.id);
                    self.shard.handle_file_request(now, session_of(link), request);
                }
            }),
            Kind::Notice => frame.decode().map(|notice: Notice| self.handle_notice(link, notice)),
            Kind::Order => frame.decode().map(|order| {
                let reply = self.shard.handle_order(now, order);
                tracing::info!(operator = %link.peer().role, ?order, ?reply, "ordered");
                self.send(link, &reply);
            }),
            Kind::Inspect => frame.decode().map(|Inspect { object }| {
                self.send(link, &self.shard.inspect(now, object));
            }),
            Kind::StatusRequest => frame.decode().map(|StatusRequest| self.answer_status(link)),
            Kind::RecentRequest => {
                frame.decode().map(|RecentRequest { after_ms }| self.send(link, &self.recent(after_ms)))
            }
            Kind::Recent => frame.decode().map(|recent| self.parts.page.board.take(now, recent)),
            _ => return self.cut_off(link, &"sent a frame that belongs to an introduction"),
        };
        if let Err(error) = handled {
            self.cut_off(link, &error);
        }
    }

    fn handle_file_messages(
        &mut self,
        now: WallTime,
        link: &Link,
        frame: &Admitted,
    ) -> Result<(), DecodeError> {
        let Some(from) = self.links.process(link) else { return Ok(()) };
        for message in frame.decode::<Vec<FileMessage>>()? {
            self.shard.handle_file_message(now, from, message);
        }
        Ok(())
    }

    fn handle_errands(&mut self, now: WallTime, link: &Link, frame: &Admitted) -> Result<(), DecodeError> {
        let Some(from) = self.links.process(link) else { return Ok(()) };
        if frame.kind() == Kind::FileReply {
            for reply in frame.decode::<Vec<FileReply>>()? {
                self.shard.handle_errand_reply(now, from, reply);
            }
            return Ok(());
        }
        for errand in frame.decode::<Vec<Errand>>()? {
            self.shard.handle_errand(now, from, errand);
        }
        Ok(())
    }

    /// As many messages as fit go into one frame.
    fn send_about_files(&mut self) {
        let Outgoing { nodes, errands, errand_replies, clients } = std::mem::take(&mut self.outgoing);
        for (node, mut messages) in nodes {
            let Some((_, link)) = self.links.node(node) else { continue };
            while !messages.is_empty() {
                let batch: Vec<FileMessage> = wire::next_batch(&mut messages);
                let is_large = batch.iter().any(|message| message.message.bytes() > LARGE_BYTES);
                // Whoever lacks it asks again. What else is said to this peer finds room.
                if !is_large || link.waiting_bytes() < DATA_QUEUE_BYTES {
                    Self::send_frame(link, &batch);
                }
            }
        }
        for (node, mut errands) in errands {
            let Some((_, link)) = self.links.node(node) else { continue };
            while !errands.is_empty() {
                Self::send_frame(link, &wire::next_batch(&mut errands));
            }
        }
        for (node, mut replies) in errand_replies {
            let Some((_, link)) = self.links.node(node) else { continue };
            while !replies.is_empty() {
                Self::send_frame(link, &wire::next_batch(&mut replies));
            }
        }
        for (session, mut replies) in clients {
            let Some(link) = self.links.client(session) else { continue };
            while !replies.is_empty() {
                Self::send_frame(link, &wire::next_batch(&mut replies));
            }
        }
    }

    /// The store takes no more: it is marked, and the process ends.
    fn fail_store(&mut self, error: FilesFailed) -> Result<(), DaemonError> {
        self.shard.handle_store_failed();
        self.parts.keeper.note_failed();
        Err(error.into())
    }

    /// Once in a turn, which answers all that were asked in it: a status looks at every lock.
    fn answer_status(&mut self, link: &Link) {
        if self.told_status.insert(link.id()) {
            self.send(link, &self.status());
        }
    }

    /// Whoever sends what cannot be understood is not listened to any longer.
    fn cut_off(&self, link: &Link, why: &dyn std::fmt::Display) {
        tracing::warn!(peer = %link.peer().role, "closing the connection: {why}");
        link.close(&format!("this cannot be understood: {why}"));
    }

    fn handle_notice(&mut self, link: &Link, notice: Notice) {
        let (now, node) = (self.now(), notice.dead.node);
        let dead = self.links.named_by(&notice);
        match dead {
            Some(dead) => {
                self.shard.handle_death_notice(now, dead);
                let connected = self.links.node(node).filter(|(process, _)| dead.contains(*process));
                if let Some((_, link)) = connected {
                    link.close("its process is reported dead");
                }
            }
            None => tracing::info!(
                %node,
                incarnation = notice.dead.incarnation.0,
                "reported dead, but never seen here: its leases, if it has any, run out"
            ),
        }
        let is_dead = |process: Process| dead.is_some_and(|dead| dead.contains(process));
        // A connection to a process that lives is not to be disturbed.
        if self.links.node(node).is_none_or(|(process, _)| is_dead(*process)) {
            self.parts
                .callers
                .iter()
                .filter(|caller| caller.node() == node)
                .for_each(net::Caller::call_again);
        }
        self.send(link, &NoticeAck { dead: notice.dead });
    }

    fn act(&mut self, output: Output) {
        match output {
            Output::Lease { to, batch } => self.send_leases(to, &batch),
            Output::Peer { to, messages } => {
                if let Some((_, link)) = self.links.node(to) {
                    self.send(link, &messages);
                }
            }
            Output::Client { session, frame } => {
                if let Some(link) = self.links.client(session) {
                    self.send(link, &frame);
                }
            }
            Output::Close { session } => {
                if let Some(link) = self.links.client(session) {
                    link.close_after_sending("the session is over");
                }
            }
            Output::RaiseCeiling { to } => self.raise_ceiling(to, Duration::ZERO),
            Output::KeepDrained(is_drained) => self.keep_drained(is_drained, Duration::ZERO),
            Output::File { to, message } => {
                self.outgoing.nodes.entry(to).or_default().push_back(message);
            }
            Output::FileReply { session, reply } => {
                if let FileReplyBody::Answer(Ok(Answer::Data(data))) = &reply.body {
                    self.work.read_bytes += data.len() as u64;
                }
                if let Some(took) = self.meter.ends(self.now(), session, reply.id) {
                    self.parts.gauges.replied(took);
                }
                self.outgoing.clients.entry(session).or_default().push_back(reply);
            }
            Output::Errand { to, errand } => {
                self.outgoing.errands.entry(to).or_default().push_back(errand);
            }
            Output::ErrandReply { to, reply } => {
                self.outgoing.errand_replies.entry(to).or_default().push_back(reply);
            }
            Output::Fetch { fetch, stored } => self.disk.fetch(fetch, stored),
            Output::Write { number, object, record } => {
                let (now, owes_checkpoint) = (self.now(), self.shard.owes_checkpoint(object));
                self.disk.write(now, (number, object), record, owes_checkpoint);
            }
            Output::Sync { .. } => self.disk.sync(),
            Output::StoreFailed => {}
            Output::Event(event) => self.take_event(&event),
        }
    }

    fn take_event(&mut self, event: &ShardEvent) {
        let now = self.now();
        self.meter.note(now, event);
        self.parts.gauges.note(event);
        match *event {
            ShardEvent::LeaseLost { cell, why } => self.lost.push((cell, why)),
            _ => report::shard_event(event, now),
        }
    }

    fn send_leases(&self, to: NodeId, batch: &Batch) {
        let Some((_, link)) = self.links.node(to) else { return };
        let frame_max = link.datagram_bytes_max().max(wire::FRAME_MIN);
        wire::encode_lease_frames(batch, frame_max, &mut |frame| {
            // What no queue takes is counted there, and leases are asked for again.
            let _ = link.datagram(Bytes::copy_from_slice(frame));
        });
    }

    /// A peer that takes nothing off its stream for so long is cut off: it is told everything when it is back.
    fn send<M: Message>(&self, link: &Link, message: &M) {
        Self::send_frame(link, message);
    }

    fn send_frame<M: Message>(link: &Link, message: &M) {
        if let Err(error) = link.send_in_pieces(wire::encode_in_pieces(message)) {
            tracing::warn!(peer = %link.peer().role, "closing the connection: {error}");
            link.close("too much waits to be sent");
        }
    }

    fn raise_ceiling(&self, to: u64, after: Duration) {
        let (keeper, doing) = (self.parts.keeper.clone(), self.doing.clone());
        tokio::spawn(async move {
            sleep(after).await;
            let raised = keeper.raise_ceiling(to).await;
            // Nobody waits for it any longer once the driver is gone.
            let _ = doing.send(Done::Ceiling(to, raised)).await;
        });
    }

    fn keep_drained(&self, is_drained: bool, after: Duration) {
        let (keeper, doing) = (self.parts.keeper.clone(), self.doing.clone());
        tokio::spawn(async move {
            sleep(after).await;
            let kept = keeper.note_drained(is_drained).await;
            let _ = doing.send(Done::Drained(is_drained, kept)).await;
        });
    }

    /// No time is used that the next start might use again.
    fn check_mark(&self) -> Result<(), DaemonError> {
        let now = self.now();
        if now >= self.mark {
            return Err(DaemonError::MarkReached(now.since(self.mark) + MARK_LEAD));
        }
        Ok(())
    }

    fn mark_time(&self) -> Result<(), DaemonError> {
        self.check_mark()?;
        let (keeper, doing, clock) = (self.parts.keeper.clone(), self.doing.clone(), self.parts.clock);
        tokio::spawn(async move {
            let marked = keeper.mark_time(clock).await;
            let _ = doing.send(Done::Mark(marked)).await;
        });
        Ok(())
    }

    fn finish(&mut self, done: Done) -> Result<(), DaemonError> {
        match done {
            Done::Ceiling(to, Ok(())) => {
                let now = self.now();
                self.shard.handle_ceiling(now, to);
            }
            Done::Ceiling(to, Err(WriteError::Full { .. })) => {
                tracing::error!("the disk is full; locks that need new numbers wait until there is space");
                self.raise_ceiling(to, FULL_RETRY);
            }
            Done::Mark(Ok(mark)) => self.mark = self.mark.max(mark),
            Done::Mark(Err(WriteError::Full { .. })) => {
                tracing::error!(
                    "the disk is full, and the file system wants space to overwrite a file; without it this daemon stops in a few seconds"
                );
            }
            Done::Drained(is_drained, Ok(())) => self.shard.handle_drain_kept(is_drained),
            Done::Drained(is_drained, Err(WriteError::Full { .. })) => {
                tracing::error!(
                    "the disk is full; whether this daemon is drained is kept when there is space"
                );
                self.keep_drained(is_drained, FULL_RETRY);
            }
            Done::Ceiling(_, Err(error)) | Done::Mark(Err(error)) | Done::Drained(_, Err(error)) => {
                return Err(error.into());
            }
        }
        Ok(())
    }

    fn begin_stop(&mut self) {
        tracing::info!("stopping: giving up leases");
        self.is_stopping = true;
        self.parts.doorman.stop();
        let now = self.now();
        self.shard.drain(now);
    }

    async fn end(self) -> Result<(), DaemonError> {
        let Parts { network, callers, clock, keeper, .. } = self.parts;
        for link in self.links.all() {
            link.close_after_sending("the daemon is stopping");
        }
        for link in self.links.all() {
            link.closed().await;
        }
        drop(callers);
        network.close().await;
        keeper.stop(clock).await?;
        tracing::info!("stopped");
        Ok(())
    }

    fn measure(&mut self) {
        let now = self.now();
        self.parts.gauges.measure(&self.shard, now, (&self.links, &self.work));
        self.meter.tick(now, &self.work, self.shard.primaries().0 as u64);
        self.look_around(now);
        self.disk.look_at_space(&mut self.shard);
        if let Some(callers) = self.refusals.untold(now) {
            tracing::warn!(callers, "more callers were not let in");
        }
    }

    /// As long as somebody looks at the page, asks all for what it shows.
    fn look_around(&self, now: WallTime) {
        let board = &self.parts.page.board;
        if !board.is_watched() {
            return board.clear();
        }
        board.take(now, self.recent(board.known(self.shard.me().node)));
        for (process, link) in self.links.nodes() {
            self.send(link, &RecentRequest { after_ms: board.known(process.node) });
        }
    }

    fn recent(&self, after_ms: u64) -> Recent {
        Recent {
            status: self.status(),
            seconds: self.meter.seconds_after(after_ms).collect(),
            happened: self.meter.happened().collect(),
        }
    }

    fn status(&self) -> node::Status {
        let known_as = self.shard.map().osd(self.shard.me().node).map_or("", |osd| &osd.address);
        let facts = report::Facts {
            links: &self.links,
            certificate_expires_s: self.parts.certificate_expires_s,
            deny_list_is_stale: self.parts.gauges.deny_list_is_stale(),
            supervised: self.parts.supervised,
            store: self.parts.keeper.store(),
            uptime: self.now().since(self.started_at),
            work: self.work,
            page: self.parts.page.status(known_as),
            disk_free_bytes: self.disk.free_bytes(),
        };
        report::status(&self.shard, self.now(), &facts)
    }

    fn until_timeout(&self) -> Duration {
        let due = self.disk.due().into_iter().fold(self.shard.poll_timeout(), WallTime::min);
        let left = due.since(self.now());
        Duration::from_micros(left.as_micros())
    }

    fn now(&self) -> WallTime {
        self.parts.clock.now()
    }
}

async fn restored_copy(restored: &mut watch::Receiver<Option<RestoredCopy>>) -> RestoredCopy {
    match restored.wait_for(Option::is_some).await.map(|copy| *copy) {
        Ok(Some(copy)) => copy,
        _ => std::future::pending().await,
    }
}

pub(super) async fn told_to(stop: &mut watch::Receiver<bool>) {
    // Whoever could say so being gone is as good as saying it.
    let _ = stop.wait_for(|stop| *stop).await;
}
