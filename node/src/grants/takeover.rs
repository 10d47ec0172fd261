//! The beginning and the end of a tenure, as far as grants go: who has some of an earlier one, and is asked to drop them.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::{ClientId, Epoch, NodeId, ObjectId, WallTime};
use lease::{Algorithm, Ended};
use namespace::{
    Answer as TreeAnswer, Ask, Change as TreeChange, ClientState, Op as TreeOp, Query as TreeQuery, Who,
};

use super::table::{Grace, Grants};
use crate::file::{Change, FileReplyBody, Names};
use crate::{Bug, Revoked, SessionId, Shard};

/// The first epoch that no tenure up to this one has.
const fn after(tenure: Epoch) -> Epoch {
    Epoch { number: tenure.number.saturating_add(1), node: NodeId(0) }
}

impl<A: Algorithm> Shard<A> {
    /// A tenure of a volume begins. What others have granted before is dropped before anything is changed.
    pub(crate) fn begin_grants(&mut self, now: WallTime, object: ObjectId, tenure: Epoch) {
        self.end_grants(now, object, None);
        let ended = self.files.hosted.get_mut(&object).map(|hosted| {
            // Whatever follows without another lease follows a tenure of this node.
            (std::mem::replace(&mut hosted.ended, Ended::Released), std::mem::take(&mut hosted.is_lossy))
        });
        let Some((ended, is_blind)) = ended else { return };
        let over_after = self.config.session_over_after();
        let until = match ended {
            _ if self.config.breaks(Bug::GrantsOfDeadNotAskedFor) => now,
            Ended::Died => self.deaths_matter_until().max(now),
            Ended::Released | Ended::HandedOver => now + over_after,
            // It was not confirmed to anybody for so long before.
            Ended::Expired | Ended::Unknown => now,
        };
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        hosted.grants = Grants::new(tenure, self.config.session_grants_max);
        let unanswered = clients_of(hosted.replica.machine().tree());
        if !unanswered.is_empty() {
            self.granting.recorded.insert(object);
        }
        if until <= now || unanswered.is_empty() && !is_blind {
            return;
        }
        let grace = Grace { until, unanswered: unanswered.clone(), is_blind };
        hosted.grants.unplaced = Some(grace.clone());
        self.granting.unplaced.insert((until, object));
        hosted.grants.grace = Some(grace);
        self.granting.graces.insert((until, object));
        let sessions: Vec<SessionId> = self.sessions.ids().collect();
        for session in sessions {
            let client = self.sessions.get(session).map(|session| session.client);
            if client.is_some_and(|client| unanswered.contains(&client)) {
                self.revoke(now, object, session, Revoked::Before(tenure));
            }
        }
    }

    /// A tenure of a volume is over, or about to be. Nobody who has a grant is confirmed before it has heard that.
    pub(crate) fn end_grants(&mut self, now: WallTime, object: ObjectId, told: Option<&FileReplyBody>) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let mut grants = std::mem::take(&mut hosted.grants);
        if told.is_none() {
            hosted.waiting.extend(grants.take_held().into_iter().map(|held| (held.asker, held.body)));
        }
        for held in grants.take_held() {
            if let Some(told) = told {
                self.files.reply(held.asker, told.clone(), None);
            }
        }
        // What is answered later is about grants that are no more.
        self.granting.asked.retain(|_, (of, _)| *of != object);
        let asked = &self.granting.asked;
        self.granting.sparing.retain(|key| asked.contains_key(key));
        self.granting.volumes.remove(&object);
        self.granting.recorded.remove(&object);
        self.granting.graces.retain(|(_, other)| *other != object);
        self.granting.unplaced.retain(|(_, other)| *other != object);
        self.granting.returning.retain(|(_, other)| *other != object);
        if self.config.breaks(Bug::ReleasedWithGrants) {
            return;
        }
        for session in grants.sessions() {
            self.revoke(now, object, session, Revoked::Before(after(grants.tenure)));
        }
    }

    /// Whether changes are taken in again, if they were not.
    pub(super) fn end_grace(&mut self, now: WallTime, object: ObjectId) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let is_over =
            |grace: &mut Grace| now >= grace.until || grace.unanswered.is_empty() && !grace.is_blind;
        let Some(grace) = hosted.grants.grace.take_if(is_over) else { return };
        self.granting.graces.remove(&(grace.until, object));
        let clients = clients_of(hosted.replica.machine().tree());
        clients.into_iter().for_each(|client| self.take_off_record(now, object, client));
    }

    /// The first frame of a connection: whatever was granted over an earlier one its client has dropped, but for where
    /// directories are.
    pub(crate) fn session_begins(&mut self, now: WallTime, session: SessionId) {
        let Some(client) = self.sessions.get(session).map(|session| session.client) else { return };
        let is_earlier = |other: &SessionId| {
            *other != session && self.sessions.get(*other).is_some_and(|other| other.client == client)
        };
        let earlier: Vec<SessionId> = self.sessions.ids().filter(is_earlier).collect();
        self.ask_back_again(now, session, client);
        earlier.into_iter().for_each(|other| self.session_is_followed(now, other));
        let graces: Vec<ObjectId> = self.granting.graces.iter().map(|&(_, object)| object).collect();
        for object in graces {
            let Some(hosted) = self.files.hosted.get(&object) else { continue };
            let is_asked =
                hosted.grants.grace.as_ref().is_some_and(|grace| grace.unanswered.contains(&client));
            if is_asked {
                let tenure = hosted.grants.tenure;
                self.revoke(now, object, session, Revoked::Before(tenure));
            }
        }
    }

    /// Another session of its client follows: what was granted over this one is dropped, but where directories are may be believed until it is over.
    fn session_is_followed(&mut self, now: WallTime, session: SessionId) {
        if self.config.breaks(Bug::PlacesOfClosedForgotten) {
            return self.session_counts_on_nothing(now, session);
        }
        for (number, what) in self.granting.asked_of(session) {
            match what {
                Revoked::Place { .. } => {}
                Revoked::Inode { .. } | Revoked::All => self.revocation_over(now, session, number, true),
                Revoked::Lend { .. } | Revoked::Before(_) => {
                    self.revocation_over(now, session, number, false)
                }
            }
        }
        for object in self.granting.volumes.clone() {
            if let Some(hosted) = self.files.hosted.get_mut(&object) {
                hosted.grants.leave_places(session);
            }
            self.pass_held(now, object);
        }
    }

    /// The last session of a client is over: no volume that is led here has to remember it.
    pub(crate) fn forget_client(&mut self, now: WallTime, client: ClientId) {
        if self.sessions.clients().contains(&client) {
            return;
        }
        let volumes = self.granting.recorded.clone();
        volumes.into_iter().for_each(|object| self.take_off_record(now, object, client));
    }

    /// Puts a client on record that comes to have something in a cache, once.
    pub(super) fn welcome(&mut self, now: WallTime, object: ObjectId, client: ClientId) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        if hosted.grants.welcomed.contains(&client) {
            return;
        }
        let op = TreeOp::wanted(Who::root(), TreeChange::Welcome { client, opens: false });
        if self.propose_own(now, object, Change::Tree(Arc::new(op))).is_some()
            && let Some(hosted) = self.files.hosted.get_mut(&object)
        {
            hosted.grants.welcomed.insert(client);
            self.granting.recorded.insert(object);
        }
    }

    /// Takes a client off record that has no session, if it was there for its cache alone. One that may have files open goes by its end only:
    /// see [`holders`](crate::holders). While anybody is waited for it stays: whoever leads next has to wait for it, too.
    fn take_off_record(&mut self, now: WallTime, object: ObjectId, client: ClientId) {
        let is_counted_on = self.granting.closed.iter().any(|(.., other)| *other == client);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        if is_counted_on || !hosted.serves() || !hosted.grants.have_begun() {
            return;
        }
        hosted.grants.welcomed.remove(&client);
        let has_cache = hosted.replica.machine().tree().client(client) == Some(ClientState::Caching);
        if has_cache && !self.sessions.clients().contains(&client) {
            let op = TreeOp::wanted(Who::root(), TreeChange::Forget { client });
            let at = self.propose_own(now, object, Change::Tree(Arc::new(op)));
            if let (Some(hosted), Some(at)) = (self.files.hosted.get_mut(&object), at) {
                hosted.grants.leaves(client, at.seq);
            }
            self.drain_replica(now, object);
        }
    }
}

/// The clients on record that may have something in a cache.
fn clients_of(tree: &Names) -> BTreeSet<ClientId> {
    let (mut clients, mut after) = (BTreeSet::new(), None);
    loop {
        let query = TreeQuery { who: Who::root(), ask: Ask::Clients { after } };
        let Ok(TreeAnswer::Clients(page)) = tree.answer(&query) else { return clients };
        let Some((last, _)) = page.last() else { return clients };
        after = Some(*last);
        clients.extend(page.into_iter().filter(|(_, state)| may_cache(*state)).map(|(client, _)| client));
    }
}

const fn may_cache(state: ClientState) -> bool {
    matches!(state, ClientState::Alive | ClientState::Caching)
}
