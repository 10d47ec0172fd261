//! Connections: what goes over one arrives in order and whole, until it breaks. Then both ends learn of it, each at a
//! time of its own, and what was on its way is gone.

use std::collections::BTreeMap;

use node::file::{FileReply, FileRequest};
use node::{ClientFrame, DaemonFrame, Errand, FileMessage, PeerMessage};

use crate::TrueTime;

/// Names a connection; a daemon names a client's session by it, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ConnectionId(pub(super) u64);

/// One of the two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Side {
    Dialer,
    Acceptor,
}

/// What is said in one turn.
#[derive(Clone, Debug)]
pub(super) enum Payload {
    Peer(Vec<PeerMessage>),
    Request(ClientFrame),
    Reply(DaemonFrame),
    File(Box<FileMessage>),
    FileRequest(FileRequest),
    FileReply(FileReply),
    Errand(Errand),
    /// The other end is closed.
    Closed,
}

/// A connection between two processes.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    /// Which machines.
    pub(super) ends: [usize; 2],
    /// Which of their processes.
    pub(super) lives: [u64; 2],
    /// Which ends believe in it.
    pub(super) open: [bool; 2],
    /// When the last thing that an end sent arrives.
    last: [TrueTime; 2],
    /// What an end sent into a link that is cut.
    kept_back: [Vec<Payload>; 2],
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Connections {
    list: BTreeMap<ConnectionId, Connection>,
    /// By machine and peer: what the machine's process takes for its connection.
    current: BTreeMap<(usize, usize), ConnectionId>,
    made: u64,
}

impl Side {
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Dialer => 0,
            Self::Acceptor => 1,
        }
    }

    pub(super) const fn other(self) -> Self {
        match self {
            Self::Dialer => Self::Acceptor,
            Self::Acceptor => Self::Dialer,
        }
    }
}

impl Connection {
    pub(super) fn side_of(&self, machine: usize) -> Side {
        if self.ends[0] == machine { Side::Dialer } else { Side::Acceptor }
    }

    pub(super) const fn machine(&self, side: Side) -> usize {
        self.ends[side.index()]
    }

    pub(super) const fn life(&self, side: Side) -> u64 {
        self.lives[side.index()]
    }

    pub(super) const fn is_open(&self, side: Side) -> bool {
        self.open[side.index()]
    }

    /// When what the end sends arrives, if by itself it would at `arrival`: nothing overtakes.
    pub(super) fn after_the_last(&mut self, side: Side, arrival: TrueTime) -> TrueTime {
        let last = &mut self.last[side.index()];
        *last = (*last).max(arrival);
        *last
    }

    pub(super) fn keep_back(&mut self, side: Side, payload: Payload) {
        self.kept_back[side.index()].push(payload);
    }

    pub(super) fn is_keeping_back(&self, side: Side) -> bool {
        !self.kept_back[side.index()].is_empty()
    }

    pub(super) fn take_kept_back(&mut self, side: Side) -> Vec<Payload> {
        std::mem::take(&mut self.kept_back[side.index()])
    }
}

impl Connections {
    /// A connection that neither end knows of yet.
    pub(super) fn make(&mut self, ends: [usize; 2], lives: [u64; 2]) -> ConnectionId {
        self.made += 1;
        let id = ConnectionId(self.made);
        let connection = Connection {
            ends,
            lives,
            open: [false; 2],
            last: [TrueTime::ZERO; 2],
            kept_back: [Vec::new(), Vec::new()],
        };
        self.list.insert(id, connection);
        id
    }

    pub(super) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        self.list.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        self.list.get_mut(&id)
    }

    /// What a machine takes for its connection with another.
    pub(super) fn current(&self, machine: usize, peer: usize) -> Option<ConnectionId> {
        self.current.get(&(machine, peer)).copied()
    }

    /// All that a machine takes for its connections.
    pub(super) fn of(&self, machine: usize) -> Vec<ConnectionId> {
        self.current.range((machine, 0)..(machine + 1, 0)).map(|(_, &id)| id).collect()
    }

    pub(super) fn ids(&self) -> Vec<ConnectionId> {
        self.list.keys().copied().collect()
    }

    /// An end believes in the connection from now on.
    pub(super) fn open(&mut self, id: ConnectionId, side: Side) {
        let Some(connection) = self.list.get_mut(&id) else { return };
        connection.open[side.index()] = true;
        let (machine, peer) = (connection.machine(side), connection.machine(side.other()));
        self.current.insert((machine, peer), id);
    }

    /// An end no longer does. False if it did not.
    pub(super) fn close(&mut self, id: ConnectionId, side: Side) -> bool {
        let Some(connection) = self.list.get_mut(&id) else { return false };
        if !std::mem::replace(&mut connection.open[side.index()], false) {
            return false;
        }
        let (machine, peer) = (connection.machine(side), connection.machine(side.other()));
        // What it sent and what it would still get are gone.
        connection.kept_back = [Vec::new(), Vec::new()];
        if self.current.get(&(machine, peer)) == Some(&id) {
            self.current.remove(&(machine, peer));
        }
        true
    }

    /// Forgets connections that nobody believes in any longer.
    pub(super) fn forget_closed(&mut self, id: ConnectionId) {
        if self.list.get(&id).is_some_and(|connection| connection.open == [false; 2]) {
            self.list.remove(&id);
        }
    }
}
