//! What machines do with connections: make them, speak over them, notice that they are broken.

use lease::Algorithm;
use node::{Certificate, CertificateId, ClientId, SessionId};

use super::streams::{ConnectionId, Payload, Side};
use super::world::{Coverage, Input, Task, World};
use crate::checkers::evidence::Machines;
use crate::plan::span_between;
use crate::{FaultKind, TrueTime, Violation};
use base::{Role, Span};

/// A call that is not answered is made again after this long at most.
pub(super) const REDIAL_MAX: Span = Span::from_millis(300);

impl<A: Algorithm> World<'_, A> {
    /// A machine keeps calling another until they are connected.
    pub(super) fn keep_dialing(&mut self, from: usize, to: usize) {
        if self.connections.current(from, to).is_none() && self.dialing.insert((from, to)) {
            let at = self.now + span_between(Span::ZERO, REDIAL_MAX / 4, &mut self.dice.streams);
            self.queue.push(at, Task::Dial(from, to));
        }
    }

    pub(super) fn dial(&mut self, from: usize, to: usize) {
        if !self.is_up(from) || self.connections.current(from, to).is_some() {
            self.dialing.remove(&(from, to));
            return;
        }
        let again = self.now + span_between(REDIAL_MAX / 4, REDIAL_MAX, &mut self.dice.streams);
        self.queue.push(again, Task::Dial(from, to));
        if self.running(from).frozen || !self.is_up(to) {
            return;
        }
        if let Some(at) = self.network.route_stream(self.now, (from, to)) {
            let lives = [self.running(from).life, self.running(to).life];
            let id = self.connections.make([from, to], lives);
            self.push_input(at, to, Input::Opened(id));
        }
    }

    /// This end of a connection is open: the acceptor's first, then the dialer's.
    pub(super) fn opened(&mut self, machine: usize, id: ConnectionId) -> Result<(), Violation> {
        let Some(connection) = self.connections.get(id) else { return Ok(()) };
        let side = connection.side_of(machine);
        let (other, lives) = (connection.machine(side.other()), connection.lives);
        if connection.life(side) != self.running(machine).life {
            return Ok(());
        }
        if let Some(before) = self.connections.current(machine, other) {
            if before > id {
                return Ok(());
            }
            self.close_end(before, side)?;
        }
        if side == Side::Acceptor && !self.introduce(id)? {
            return Ok(());
        }
        self.connections.open(id, side);
        if side == Side::Acceptor {
            self.answer_call(id, (machine, other));
            if let Some(client) = self.client_on(other) {
                self.coverage.insert(id, Coverage::new(client, lives[0]));
            }
        }
        self.watch(id, side);
        let other_life = lives[side.other().index()];
        self.tell_opened(machine, (other, other_life), id)
    }

    fn answer_call(&mut self, id: ConnectionId, (machine, other): (usize, usize)) {
        let Some(at) = self.network.route_stream(self.now, (machine, other)) else { return };
        let Some(connection) = self.connections.get_mut(id) else { return };
        let (at, life) = (connection.after_the_last(Side::Acceptor, at), connection.life(Side::Dialer));
        self.queue.push(at, Task::To(other, life, Box::new(Input::Opened(id))));
    }

    fn tell_opened(
        &mut self,
        machine: usize,
        (other, life): (usize, u64),
        id: ConnectionId,
    ) -> Result<(), Violation> {
        match (self.client_on(machine), self.client_on(other)) {
            (None, None) => {
                let peer = self.daemons[other].birth(life);
                self.note_line(machine, &peer)?;
                self.call(machine, |shard, now| shard.handle_peer_up(now, peer.process))
            }
            (None, Some(client)) => {
                let who = ClientId { program: life, ..self.clients[client].id(other) };
                self.summary.sessions += 1;
                let certificate = certificate(other);
                self.call(machine, |shard, now| {
                    shard.handle_client_up(now, SessionId(id.0), who, certificate);
                })
            }
            (Some(client), _) => {
                let daemon = self.daemons[other].birth(life).process;
                self.forget_content_recalls(client, daemon.node);
                self.call_files(client, |files, now| files.handle_up(now, daemon.node))?;
                self.link_cache(client, daemon.node);
                self.call_client(client, |core, now| core.handle_connected(now, daemon))
            }
        }
    }

    /// Whose session it is.
    pub(super) fn client_of(&self, session: SessionId) -> Option<ClientId> {
        let connection = self.connections.get(ConnectionId(session.0))?;
        let (machine, program) = (connection.machine(Side::Dialer), connection.life(Side::Dialer));
        Some(ClientId { certificate: machine as u64, program })
    }

    /// Whether a client is connected with a daemon, as that sees it.
    pub(super) fn has_session(&self, daemon: usize, client: ClientId) -> bool {
        let is_over = |id| self.coverage.get(&id).is_none_or(|covered| covered.is_over);
        let ids = self.connections.of(daemon).into_iter();
        ids.filter(|&id| !is_over(id)).any(|id| self.client_of(SessionId(id.0)) == Some(client))
    }

    /// An end no longer believes in a connection.
    pub(super) fn close_end(&mut self, id: ConnectionId, side: Side) -> Result<(), Violation> {
        let Some(connection) = self.connections.get(id) else { return Ok(()) };
        let (machine, other) = (connection.machine(side), connection.machine(side.other()));
        if !self.connections.close(id, side) {
            return Ok(());
        }
        if self.is_traced() {
            self.note(None, format_args!("{id:?} between {machine} and {other} is closed at {machine}"));
        }
        self.send_on(id, machine, Payload::Closed);
        self.connections.forget_closed(id);
        if side == Side::Dialer {
            self.keep_dialing(machine, other);
        }
        match (self.client_on(machine), self.client_on(other)) {
            (None, None) => {
                let node = self.daemons[other].id;
                self.call(machine, |shard, _| shard.handle_peer_down(node))
            }
            (None, Some(_)) => self.call(machine, |shard, _| shard.handle_client_down(SessionId(id.0))),
            (Some(client), _) => {
                let node = self.daemons[other].id;
                self.forget_content_recalls(client, node);
                self.call_files(client, |files, now| files.handle_down(now, node))?;
                self.link_cache(client, node);
                self.call_client(client, |core, now| core.handle_disconnected(now, node))
            }
        }
    }

    /// Sends to a machine, if there is a connection.
    pub(super) fn send(&mut self, from: usize, to: usize, payload: Payload) {
        if let Some(id) = self.connections.current(from, to) {
            self.send_on(id, from, payload);
        }
    }

    pub(super) fn send_on(&mut self, id: ConnectionId, from: usize, payload: Payload) {
        let Some(connection) = self.connections.get(id) else { return };
        let side = connection.side_of(from);
        let (to, life) = (connection.machine(side.other()), connection.life(side.other()));
        // Nothing overtakes what waits for a cut link.
        let arrival = self.network.route_stream(self.now, (from, to));
        let arrival = arrival.filter(|_| !self.connections.get(id).is_some_and(|c| c.is_keeping_back(side)));
        let Some(connection) = self.connections.get_mut(id) else { return };
        match arrival {
            Some(at) => {
                let at = connection.after_the_last(side, at);
                self.queue.push(at, Task::To(to, life, Box::new(Input::Stream(id, payload))));
            }
            None => connection.keep_back(side, payload),
        }
    }

    pub(super) fn take_from_stream(
        &mut self,
        machine: usize,
        id: ConnectionId,
        payload: Payload,
    ) -> Result<(), Violation> {
        let Some(connection) = self.connections.get(id) else { return Ok(()) };
        let side = connection.side_of(machine);
        let (from, life) = (connection.machine(side.other()), connection.life(side.other()));
        if !connection.is_open(side) {
            return Ok(());
        }
        match (payload, self.client_on(machine)) {
            (Payload::Closed, _) => self.close_end(id, side),
            (Payload::Peer(messages), None) => {
                if self.is_traced() {
                    self.note(None, format_args!("n{from} -> n{machine}: {messages:?}"));
                }
                let peer = self.daemons[from].birth(life).process;
                self.call(machine, |shard, now| shard.handle_peer_messages(now, peer, messages))
            }
            (Payload::Request(frame), None) => {
                if self.is_traced() && !frame.requests.is_empty() {
                    self.note(None, format_args!("client of {from} -> n{machine}: {frame:?}"));
                }
                self.call(machine, |shard, now| shard.handle_client_frame(now, SessionId(id.0), frame))
            }
            (Payload::Reply(frame), Some(client)) => {
                let node = self.daemons[from].id;
                self.call_client(client, |core, now| core.handle_frame(now, node, frame))
            }
            (Payload::File(message), None) => {
                let peer = self.daemons[from].birth(life).process;
                self.call(machine, |shard, now| shard.handle_file_message(now, peer, *message))
            }
            (Payload::FileRequest(request), None) => {
                self.take_file_request(machine, SessionId(id.0), request)
            }
            (Payload::FileReply(reply), Some(client)) => self.take_file_reply(client, from, reply),
            (Payload::FileReply(reply), None) => {
                let peer = self.daemons[from].birth(life).process;
                self.call(machine, |shard, now| shard.handle_errand_reply(now, peer, reply))
            }
            (Payload::Errand(errand), None) => {
                if self.is_traced() {
                    self.note(Some(errand.of.volume), format_args!("n{from} to n{machine}: {errand:?}"));
                }
                let peer = self.daemons[from].birth(life).process;
                self.call(machine, |shard, now| shard.handle_errand(now, peer, errand))
            }
            _ => Ok(()),
        }
    }

    /// An end looks at its connection again after a while, in case the other end has vanished.
    pub(super) fn watch(&mut self, id: ConnectionId, side: Side) {
        let at =
            self.now + span_between(self.plan.silence_max / 4, self.plan.silence_max, &mut self.dice.streams);
        self.queue.push(at, Task::Silence(id, side));
    }

    /// Has both ends look at each connection of a machine.
    pub(super) fn watch_all(&mut self, machine: usize) {
        for id in self.connections.ids() {
            if self.connections.get(id).is_some_and(|connection| connection.ends.contains(&machine)) {
                [Side::Dialer, Side::Acceptor].into_iter().for_each(|side| self.watch(id, side));
            }
        }
    }

    pub(super) fn look_at_silence(&mut self, id: ConnectionId, side: Side) -> Result<(), Violation> {
        let Some(connection) = self.connections.get(id) else { return Ok(()) };
        let (machine, other) = (connection.machine(side), connection.machine(side.other()));
        if !connection.is_open(side) {
            return Ok(());
        }
        let is_other_there = self.is_up(other)
            && self.running(other).life == connection.life(side.other())
            && connection.is_open(side.other());
        let is_heard = is_other_there && !self.running(other).frozen && !self.network.is_cut(other, machine);
        if is_heard {
            return Ok(());
        }
        if self.running(machine).frozen {
            // It notices when it goes on.
            self.watch(id, side);
            return Ok(());
        }
        self.close_end(id, side)
    }

    /// A connection breaks: both ends notice, each at a time of its own.
    pub(super) fn break_some_connection(&mut self) -> Result<(), Violation> {
        let ids = self.connections.ids();
        let Some(&id) = self.dice.faults.pick(&ids) else { return Ok(()) };
        self.summary.faults.count(FaultKind::Break);
        let first = if self.dice.faults.chance(1, 2) { Side::Dialer } else { Side::Acceptor };
        self.note(None, format_args!("{id:?} breaks"));
        let Some(machine) = self.connections.get(id).map(|connection| connection.machine(first)) else {
            return Ok(());
        };
        if self.running(machine).frozen {
            return Ok(());
        }
        // What it sent lately and what would tell the other end are lost.
        self.close_end(id, first)?;
        if let Some(connection) = self.connections.get_mut(id) {
            connection.take_kept_back(first);
        }
        self.watch(id, first.other());
        Ok(())
    }

    /// Links pass again: what was kept back goes on its way.
    pub(super) fn mend(&mut self, links: &[(usize, usize)]) {
        links.iter().for_each(|&(from, to)| self.network.mend(from, to));
        let ends: Machines = links.iter().flat_map(|&(from, to)| [from, to]).collect();
        self.mishaps.note(self.now, ends, "the links between them pass again");
        self.flush_links();
    }

    pub(super) fn flush_links(&mut self) {
        for id in self.connections.ids() {
            for side in [Side::Dialer, Side::Acceptor] {
                let Some(connection) = self.connections.get_mut(id) else { continue };
                let (from, to) = (connection.machine(side), connection.machine(side.other()));
                if self.network.is_cut(from, to) {
                    continue;
                }
                let payloads = connection.take_kept_back(side);
                payloads.into_iter().for_each(|payload| self.send_on(id, from, payload));
            }
        }
    }

    /// A process has ended, and its ends of connections with it.
    pub(super) fn abandon_connections(&mut self, machine: usize) {
        self.watch_all(machine);
        for id in self.connections.of(machine) {
            if let Some(side) = self.connections.get(id).map(|connection| connection.side_of(machine)) {
                self.connections.close(id, side);
                self.connections.forget_closed(id);
            }
        }
    }

    /// A process that has started calls whom it has to: daemons those with higher numbers, clients every daemon.
    pub(super) fn dial_all(&mut self, machine: usize) {
        let first = if self.client_on(machine).is_some() { 0 } else { machine + 1 };
        for daemon in first..self.daemons.len() {
            self.keep_dialing(machine, daemon);
        }
    }

    pub(super) fn at_once_or_after(&mut self, longest: Span) -> TrueTime {
        self.now + span_between(Span::ZERO, longest, &mut self.dice.faults)
    }
}

/// What the client on a machine shows. Each has a certificate of its own.
fn certificate(machine: usize) -> Certificate {
    let name = format!("machine-{machine}").parse().expect("letters, a dash and digits are a name");
    let mut id = [0; 32];
    id[..size_of::<usize>()].copy_from_slice(&machine.to_le_bytes());
    Certificate { role: Role::Client(name), id: CertificateId(id) }
}
