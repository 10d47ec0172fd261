//! A client as honest as the library, but driven by hand: it says what the story has it say, keeps its sessions alive
//! unless it is silent, and believes in its lock while the session that keeps it is covered.

use std::collections::BTreeMap;

use base::{Epoch, ObjectId, Role, Span, WallTime};
use namespace::{Attributes, InodeId};
use node::file::{FileBody, FileReply, FileReplyBody};
use node::{
    Certificate, CertificateId, ClientFrame, DaemonFrame, GrantKind, Proof, Reply, ReplyBody, Request,
    RequestBody, RequestId, Revoked, SessionId, Token,
};

/// A program that wants a lock.
pub(crate) struct Client {
    session: Span,
    /// What it shows to daemons.
    pub(crate) certificate: Certificate,
    connections: BTreeMap<u32, Connection>,
    requests: u64,
    asked: BTreeMap<RequestId, (u32, Token)>,
    answers: BTreeMap<RequestId, ReplyBody>,
    file_replies: BTreeMap<RequestId, FileReplyBody>,
    /// Directories as changes have left them.
    pub(crate) changed: Vec<Attributes>,
    /// What it was told with inodes, and shows for them.
    pub(crate) proofs: BTreeMap<InodeId, Proof>,
    lock: Option<Held>,
    /// Whether it keeps what it is told of volumes in a cache.
    pub(crate) caches: bool,
    cached: BTreeMap<InodeId, Cached>,
    /// Until when it, or a kernel that it has told so, believes that directories are where they were.
    places: BTreeMap<InodeId, WallTime>,
    /// Revocations that it has not answered, and of whom; and what these take of places.
    revocations: Vec<(u32, u64)>,
    leaving: Vec<InodeId>,
    new_grants: Vec<(ObjectId, Token)>,
    /// All that it was told, and by whom.
    pub(crate) heard: Vec<(u32, Reply)>,
    /// It says nothing by itself, as if it was stopped.
    pub(crate) is_silent: bool,
}

struct Connection {
    id: SessionId,
    number: u64,
    /// Frames without an ack, and when they were sent.
    sent: BTreeMap<u64, WallTime>,
    /// What a frozen daemon has not read yet.
    unread: Vec<ClientFrame>,
    covered_until: WallTime,
}

/// The lock, as far as the client knows.
#[derive(Clone, Copy)]
struct Held {
    token: Token,
    /// The daemon whose session keeps it.
    by: Option<u32>,
    /// Until when it is covered by sessions that keep it no longer.
    until: WallTime,
}

/// What it has in its cache.
#[derive(Clone, Copy)]
struct Cached {
    /// Over the connection with whom, or until when if that is gone.
    by: u32,
    until: WallTime,
    tenure: Epoch,
}

/// No daemon.
const NOBODY: u32 = u32::MAX;

impl Client {
    pub(crate) fn new(session: Span) -> Self {
        let role = Role::Client("tester".parse().unwrap());
        Self {
            session,
            certificate: Certificate { role, id: CertificateId([1; 32]) },
            connections: BTreeMap::new(),
            requests: 0,
            asked: BTreeMap::new(),
            answers: BTreeMap::new(),
            file_replies: BTreeMap::new(),
            changed: Vec::new(),
            proofs: BTreeMap::new(),
            lock: None,
            caches: false,
            cached: BTreeMap::new(),
            places: BTreeMap::new(),
            revocations: Vec::new(),
            leaving: Vec::new(),
            new_grants: Vec::new(),
            heard: Vec::new(),
            is_silent: false,
        }
    }

    /// Its clock is slow, or fast, by so many hundredths: so much longer, or shorter, it takes its sessions to last.
    pub(crate) fn has_clock_at(&mut self, percent: u64) {
        self.session = self.session * 100 / percent;
    }

    /// A request about a file over the connection to a node.
    pub(crate) fn next_file_request(&mut self, node: u32) -> (SessionId, RequestId) {
        self.requests += 1;
        (self.connections[&node].id, RequestId(self.requests))
    }

    pub(crate) fn hear_of_file(&mut self, session: SessionId, reply: FileReply) {
        let by = self.connections.iter().find(|(_, connection)| connection.id == session);
        if let (Some((&by, _)), Some(grant)) = (by, &reply.grant) {
            let cached = Cached { by, tenure: grant.tenure, until: WallTime::ZERO };
            self.cached.extend(grant.inodes.iter().map(|&inode| (inode, cached)));
            self.changed.extend(grant.changed.iter().cloned());
            if grant.kind == GrantKind::Placed {
                let until = self.connections[&by].covered_until;
                self.places.extend(grant.inodes.iter().map(|&inode| (inode, until)));
            }
        }
        self.proofs.extend(reply.body.told().into_iter().zip(reply.proofs));
        self.file_replies.insert(reply.id, reply.body);
    }

    pub(crate) fn file_reply(&self, id: RequestId) -> Option<FileReplyBody> {
        self.file_replies.get(&id).cloned()
    }

    /// Whether it believes to hold the lock.
    pub(crate) fn holds(&self, now: WallTime) -> bool {
        let Some(held) = self.lock else { return false };
        let kept = held.by.and_then(|by| self.connections.get(&by));
        now < kept.map_or(held.until, |connection| connection.covered_until.max(held.until))
    }

    pub(crate) fn token(&self) -> Token {
        self.lock.unwrap().token
    }

    pub(crate) fn has(&self, session: SessionId) -> bool {
        self.connections.values().any(|connection| connection.id == session)
    }

    /// What it shows for the inode that a request names, and whether it takes grants.
    pub(crate) fn shows(&self, body: &FileBody) -> (Option<Proof>, bool) {
        (body.named().and_then(|inode| self.proofs.get(&inode).copied()), self.caches)
    }

    pub(crate) fn is_connected(&self, node: u32) -> bool {
        self.connections.contains_key(&node)
    }

    pub(crate) fn connected(&mut self, node: u32, id: SessionId) {
        let connection = Connection {
            id,
            number: 0,
            sent: BTreeMap::new(),
            unread: Vec::new(),
            covered_until: WallTime::ZERO,
        };
        assert!(self.connections.insert(node, connection).is_none(), "connected already");
    }

    /// The connection is gone; what it kept is covered for as long as it was.
    pub(crate) fn disconnected(&mut self, node: u32) -> Option<SessionId> {
        let connection = self.connections.remove(&node)?;
        self.detach(node, connection.covered_until);
        self.revocations.retain(|(by, _)| *by != node);
        for cached in self.cached.values_mut().filter(|cached| cached.by == node) {
            (cached.by, cached.until) = (NOBODY, connection.covered_until);
        }
        Some(connection.id)
    }

    pub(crate) fn closed(&mut self, session: SessionId) {
        let node =
            self.connections.iter().find(|(_, connection)| connection.id == session).map(|(&id, _)| id);
        self.disconnected(node.unwrap());
    }

    pub(crate) fn next_request(&mut self, node: u32, body: &RequestBody) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        if let RequestBody::Reattach { token, .. } = body {
            self.asked.insert(id, (node, *token));
        }
        id
    }

    pub(crate) fn say(&mut self, now: WallTime, node: u32, requests: Vec<Request>) {
        let connection = self.connections.get_mut(&node).unwrap();
        connection.number += 1;
        connection.sent.insert(connection.number, now);
        connection.unread.push(ClientFrame { number: connection.number, requests });
    }

    pub(crate) fn take_frames(&mut self, node: u32) -> Option<(SessionId, Vec<ClientFrame>)> {
        let connection = self.connections.get_mut(&node)?;
        Some((connection.id, std::mem::take(&mut connection.unread)))
    }

    pub(crate) fn to_keep_alive(&self) -> Vec<u32> {
        if self.is_silent { Vec::new() } else { self.connections.keys().copied().collect() }
    }

    /// It gives the lock up.
    pub(crate) fn let_go(&mut self) {
        self.lock = None;
    }

    pub(crate) fn answer(&self, id: RequestId) -> Option<ReplyBody> {
        self.answers.get(&id).cloned()
    }

    pub(crate) fn new_grants(&mut self) -> Vec<(ObjectId, Token)> {
        std::mem::take(&mut self.new_grants)
    }

    pub(crate) fn hear(&mut self, now: WallTime, session: SessionId, frame: DaemonFrame) {
        let found = self.connections.iter().find(|(_, connection)| connection.id == session);
        let node = *found.unwrap().0;
        for reply in frame.replies {
            self.take_in(now, node, &reply);
            self.heard.push((node, reply));
        }
        let connection = self.connections.get_mut(&node).unwrap();
        if let Some(&sent) = connection.sent.get(&frame.acked) {
            connection.covered_until = connection.covered_until.max(sent + self.session);
            connection.sent = connection.sent.split_off(&(frame.acked + 1));
        }
    }

    fn take_in(&mut self, now: WallTime, node: u32, reply: &Reply) {
        match reply {
            Reply::To { id, body } => {
                match body {
                    ReplyBody::Granted(token) => {
                        self.new_grants.push((crate::cluster::cell(), *token));
                        self.lock = Some(Held { token: *token, by: Some(node), until: now });
                    }
                    ReplyBody::Kept => {
                        let (by, token) = self.asked[id];
                        let until = self.lock.map_or(now, |held| held.until);
                        self.lock = Some(Held { token, by: Some(by), until });
                    }
                    ReplyBody::Gone => self.lock = None,
                    _ => {}
                }
                self.answers.insert(*id, body.clone());
            }
            Reply::Dropped { .. } => {
                let until = self.connections[&node].covered_until;
                self.detach(node, until);
            }
            &Reply::Revoke { number, what, .. } => {
                self.revocations.push((node, number));
                match what {
                    Revoked::Inode { number, epoch } | Revoked::Lend { number, epoch, .. } => {
                        self.cached.remove(&InodeId { number, epoch });
                    }
                    Revoked::Place { number, epoch } => {
                        self.cached.remove(&InodeId { number, epoch });
                        self.leaving.push(InodeId { number, epoch });
                    }
                    Revoked::All => self.cached.retain(|_, cached| cached.by != node),
                    Revoked::Before(tenure) => self.cached.retain(|_, cached| cached.tenure >= tenure),
                }
            }
            Reply::Death { .. } | Reply::SessionOver => {}
        }
    }

    /// Whether it answers from its cache what it knows of an inode, as long as its session is confirmed for.
    pub(crate) fn answers(&self, now: WallTime, inode: InodeId) -> bool {
        let Some(cached) = self.cached.get(&inode) else { return false };
        let by = self.connections.get(&cached.by);
        now < by.map_or(cached.until, |connection| connection.covered_until)
    }

    /// Whether it may believe that a directory is where it was.
    pub(crate) fn believes_place(&self, now: WallTime, inode: InodeId) -> bool {
        self.places.get(&inode).is_some_and(|until| now < *until)
    }

    /// What it was told to drop, and by whom, and has not answered: it does, and says so now.
    pub(crate) fn take_revocations(&mut self) -> Vec<(u32, u64)> {
        self.leaving.drain(..).for_each(|inode| _ = self.places.remove(&inode));
        std::mem::take(&mut self.revocations)
    }

    fn detach(&mut self, node: u32, until: WallTime) {
        if let Some(held) = &mut self.lock
            && held.by == Some(node)
        {
            (held.by, held.until) = (None, until);
        }
    }
}
