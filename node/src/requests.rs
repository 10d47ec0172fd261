//! Clients' requests, and cells leased for their own sake.

use base::{ObjectId, WallTime};
use lease::Algorithm;

use crate::lock::{Asker, Returning, UNSETTLED, Waiter};
use crate::message::{is_lock, is_plain};
use crate::shard::Leased;
use crate::steps::Step;
use crate::{ReplyBody, Request, RequestBody, SessionId, Shard, Unavailable};

impl<A: Algorithm> Shard<A> {
    pub(crate) fn handle_request(&mut self, now: WallTime, session: SessionId, request: Request) {
        let Request { id, body } = request;
        let Some(client) = self.sessions.get(session).map(|session| session.client) else { return };
        let asker = Asker { session, client, id };
        if self.sessions.backlog(session) >= self.config.replies_max {
            // Its last words on this connection: a client that does not read is no client.
            return self.end_session(now, session);
        }
        match body {
            RequestBody::Acquire { cell, wait } if is_lock(cell) => {
                self.want_lock(now, cell, Waiter { asker, waits: wait, told: false });
            }
            RequestBody::Reattach { cell, token } if is_lock(cell) => {
                self.take_back(now, cell, Returning { asker, token, keeps: true });
            }
            RequestBody::Release { cell, token } if is_lock(cell) => {
                self.take_back(now, cell, Returning { asker, token, keeps: false });
            }
            RequestBody::Cancel { cell, request } => self.cancel(now, cell, asker, request),
            RequestBody::Lease { cell } if is_plain(cell) && !self.files.hosted.contains_key(&cell) => {
                self.lease_cell(now, cell, asker)
            }
            RequestBody::Unlease { cell } if !is_lock(cell) => {
                if self.leased.get(&cell).is_some_and(|leased| leased.session == session) {
                    self.drop_lease(cell);
                }
                self.reply(session, id, ReplyBody::Released);
            }
            RequestBody::Dropped { number } => self.revocation_over(now, session, number, true),
            _ => self.reply(session, id, ReplyBody::Unavailable(Unavailable::WrongCell)),
        }
    }

    /// The lease that a client asked for is this node's.
    pub(crate) fn lease_granted(&mut self, cell: ObjectId, until: WallTime) {
        let Some(leased) = self.leased.get_mut(&cell) else { return };
        let session = leased.session;
        if let Some(id) = leased.asked.take() {
            self.reply_under(cell, (session, id), ReplyBody::Leased { until });
        }
    }

    /// It is not.
    pub(crate) fn lease_denied(&mut self, cell: ObjectId, body: ReplyBody) {
        let Some(leased) = self.leased.remove(&cell) else { return };
        self.sessions.unbind(leased.session, cell);
        if let Some(id) = leased.asked {
            self.reply(leased.session, id, body);
        }
    }

    /// Gives such a lease up.
    pub(crate) fn drop_lease(&mut self, cell: ObjectId) {
        if let Some(leased) = self.leased.remove(&cell) {
            self.sessions.unbind(leased.session, cell);
            // If it is not held yet, it is given up once it is acquired.
            self.steps.add(cell, Step::GiveUp { successor: None, watermark: UNSETTLED });
        }
    }

    fn lease_cell(&mut self, now: WallTime, cell: ObjectId, asker: Asker) {
        let Asker { session, id, .. } = asker;
        if let Some(why) = self.unavailable(now) {
            return self.reply(session, id, ReplyBody::Unavailable(why));
        }
        if self.leased.contains_key(&cell) {
            return self.reply(session, id, ReplyBody::Busy);
        }
        if self.leased.len().max(self.steps.len()) >= self.config.locks_max {
            return self.reply(session, id, ReplyBody::Unavailable(Unavailable::Full));
        }
        self.leased.insert(cell, Leased { session, asked: Some(id) });
        self.sessions.bind(session, cell);
        self.steps.add(cell, Step::Acquire);
    }
}
