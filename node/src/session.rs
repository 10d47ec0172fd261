//! Clients' sessions, one for each connection: how long it lasts, and what it is still to be told.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use base::{ObjectId, Role, Span, WallTime};

use crate::{CLIENT_BATCH_MAX, CertificateId, ClientId, DaemonFrame, Reply, ReplyBody, Unavailable};

/// Names a client's connection; the driver counts them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// What a connection's certificate says of who is at its other end. The network has checked it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Certificate {
    /// Who that is.
    pub role: Role,
    /// Which certificate it is, of those that this one may have.
    pub id: CertificateId,
}

/// One session.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub(crate) client: ClientId,
    pub(crate) certificate: Arc<Certificate>,
    heard: WallTime,
    /// The number of the last frame.
    number: u64,
    /// Whether an ack is due.
    to_ack: bool,
    /// Whether its connection is there.
    connected: bool,
    /// How many [revocations](crate::grants) it was sent.
    revocations: u64,
    replies: VecDeque<Outgoing>,
    /// Locks that the session keeps or waits for, and cells whose lease was asked for.
    pub(crate) cells: BTreeSet<ObjectId>,
}

/// A reply, and what must still be true when it leaves.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) reply: Reply,
    /// The lease that must be held.
    pub(crate) under: Option<ObjectId>,
}

impl Session {
    /// Whether its connection is there.
    pub(crate) const fn is_connected(&self) -> bool {
        self.connected
    }

    /// When it was heard last.
    pub(crate) const fn heard(&self) -> WallTime {
        self.heard
    }
}

impl Outgoing {
    /// What is said instead, because the lease is gone.
    fn too_late(self) -> Reply {
        match self.reply {
            Reply::To { id, .. } => Reply::To { id, body: ReplyBody::Unavailable(Unavailable::NoMajority) },
            reply => reply,
        }
    }
}

/// All sessions of a shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
    /// When to look at which, not later than it could be over.
    due: BTreeSet<(WallTime, SessionId)>,
    /// Which have something to be told.
    ready: BTreeSet<SessionId>,
}

impl Sessions {
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    pub(crate) fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = SessionId> {
        self.sessions.keys().copied()
    }

    pub(crate) fn open(
        &mut self,
        now: WallTime,
        id: SessionId,
        (client, certificate): (ClientId, Certificate),
        lasts: Span,
    ) {
        let session = Session {
            client,
            certificate: Arc::new(certificate),
            heard: now,
            number: 0,
            to_ack: false,
            connected: true,
            revocations: 0,
            replies: VecDeque::new(),
            cells: BTreeSet::new(),
        };
        self.sessions.insert(id, session);
        self.due.insert((now + lasts, id));
    }

    /// The clients that have one.
    pub(crate) fn clients(&self) -> BTreeSet<ClientId> {
        self.sessions.values().map(|session| session.client).collect()
    }

    /// A frame has come: the session lasts from now.
    pub(crate) fn hear(&mut self, now: WallTime, id: SessionId, number: u64) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        (session.heard, session.number, session.to_ack) = (now, number, true);
        self.ready.insert(id);
    }

    /// The connection is gone. The session lasts on, because its client may come back and say what it keeps.
    pub(crate) fn disconnect(&mut self, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        (session.connected, session.to_ack) = (false, false);
        session.replies.clear();
        self.ready.remove(&id);
    }

    pub(crate) fn remove(&mut self, id: SessionId) -> Option<Session> {
        self.ready.remove(&id);
        self.sessions.remove(&id)
    }

    /// Notes that the session keeps or waits for the cell.
    pub(crate) fn bind(&mut self, id: SessionId, cell: ObjectId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.cells.insert(cell);
        }
    }

    /// Notes that it no longer does.
    pub(crate) fn unbind(&mut self, id: SessionId, cell: ObjectId) {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.cells.remove(&cell);
        }
    }

    /// The number of the next revocation.
    pub(crate) fn next_revocation(&mut self, id: SessionId) -> u64 {
        let Some(session) = self.sessions.get_mut(&id) else { return 0 };
        session.revocations += 1;
        session.revocations
    }

    /// How many revocations it was sent.
    pub(crate) fn revocations(&self, id: SessionId) -> u64 {
        self.get(id).map_or(0, |session| session.revocations)
    }

    /// How many replies wait.
    pub(crate) fn backlog(&self, id: SessionId) -> usize {
        self.get(id).map_or(0, |session| session.replies.len())
    }

    pub(crate) fn tell(&mut self, id: SessionId, reply: Reply, under: Option<ObjectId>) {
        let Some(session) = self.sessions.get_mut(&id) else { return };
        if session.connected {
            session.replies.push_back(Outgoing { reply, under });
            self.ready.insert(id);
        }
    }

    /// The next session that is over, because its client was silent for `lasts`.
    pub(crate) fn pop_over(&mut self, now: WallTime, lasts: Span) -> Option<SessionId> {
        loop {
            let &(at, id) = self.due.first()?;
            if at > now {
                return None;
            }
            self.due.pop_first();
            match self.sessions.get(&id).map(|session| session.heard + lasts) {
                Some(over) if over > now => {
                    self.due.insert((over, id));
                }
                Some(_) => return Some(id),
                None => {}
            }
        }
    }

    /// When [`pop_over`](Self::pop_over) may find one.
    pub(crate) fn next_due(&self) -> Option<WallTime> {
        self.due.first().map(|&(at, _)| at)
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The last words to a session: no ack, and only that it is over.
    pub(crate) fn last_frame(&self, id: SessionId) -> Option<DaemonFrame> {
        self.get(id).filter(|session| session.connected)?;
        Some(DaemonFrame { acked: 0, replies: vec![Reply::SessionOver] })
    }

    /// The next frame to send: what its session is to be told and may still be told.
    pub(crate) fn pop_frame(
        &mut self,
        mut may_leave: impl FnMut(&Outgoing) -> bool,
    ) -> Option<(SessionId, DaemonFrame)> {
        loop {
            let id = self.ready.pop_first()?;
            let Some(session) = self.sessions.get_mut(&id) else { continue };
            let count = session.replies.len().min(CLIENT_BATCH_MAX);
            let leaving = session.replies.drain(..count);
            let replies: Vec<Reply> = leaving
                .map(|outgoing| if may_leave(&outgoing) { outgoing.reply } else { outgoing.too_late() })
                .collect();
            if !session.replies.is_empty() {
                // What follows is to be taken in before the ack counts.
                self.ready.insert(id);
                let acked = 0;
                return Some((id, DaemonFrame { acked, replies }));
            }
            if !session.to_ack && replies.is_empty() {
                continue;
            }
            session.to_ack = false;
            return Some((id, DaemonFrame { acked: session.number, replies }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: SessionId = SessionId(1);
    const LASTS: Span = Span::from_millis(900);

    fn at(ms: u64) -> WallTime {
        WallTime::from_micros(ms * 1_000)
    }

    fn one() -> Sessions {
        let mut sessions = Sessions::default();
        let role = Role::Client("a".parse().unwrap());
        let certificate = Certificate { role, id: CertificateId([1; 32]) };
        sessions.open(at(0), ID, (ClientId { certificate: 1, program: 1 }, certificate), LASTS);
        sessions
    }

    #[test]
    fn a_session_lasts_from_when_it_was_last_heard() {
        let mut sessions = one();
        sessions.hear(at(500), ID, 1);
        assert_eq!(sessions.pop_over(at(1_399), LASTS), None);
        assert_eq!(sessions.pop_over(at(1_400), LASTS), Some(ID));
    }

    #[test]
    fn an_ack_leaves_after_everything_that_was_said_before() {
        let mut sessions = one();
        sessions.hear(at(1), ID, 7);
        for _ in 0..=CLIENT_BATCH_MAX {
            sessions.tell(ID, Reply::SessionOver, None);
        }
        let (_, first) = sessions.pop_frame(|_| true).unwrap();
        let (_, second) = sessions.pop_frame(|_| true).unwrap();
        assert_eq!((first.replies.len(), first.acked), (CLIENT_BATCH_MAX, 0));
        assert_eq!((second.replies.len(), second.acked), (1, 7));
        assert_eq!(sessions.pop_frame(|_| true), None);
    }

    #[test]
    fn nothing_is_kept_for_a_connection_that_is_gone() {
        let mut sessions = one();
        sessions.hear(at(1), ID, 1);
        sessions.disconnect(ID);
        sessions.tell(ID, Reply::SessionOver, None);
        assert_eq!(sessions.pop_frame(|_| true), None);
        assert_eq!(sessions.pop_over(at(901), LASTS), Some(ID));
    }
}
