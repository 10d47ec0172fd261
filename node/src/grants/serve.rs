//! What a primary grants, what it has dropped before a change, and the changes that wait for that.

use std::collections::BTreeSet;

use base::{ClientId, ObjectId, Seq, WallTime};
use lease::Algorithm;
use namespace::{
    Answer as TreeAnswer, Attributes, ClientState, Done as TreeDone, InodeId, Key, Lent, LentTo, NameError,
    Part,
};
use replication::Position;

use super::named::{Touched, is_directory};
use super::table::Taken;
use super::{CacheGrant, GrantKind, Settled};
use crate::file::{Answer, Change, Done, FileBody, FileError, FileReplyBody, Names};
use crate::files::{Asker, Caller, Hosted};
use crate::{Bug, Reply, Revoked, SessionId, Shard, Unavailable};

impl Asker {
    /// Over which session it asks, if that is of a client that takes grants.
    pub(super) const fn session(&self) -> Option<SessionId> {
        match self.from {
            Caller::Session(session) if self.caches => Some(session),
            Caller::Session(_) | Caller::Node(_) => None,
        }
    }
}

impl Hosted {
    /// What a change of a volume touches.
    fn touched_by(&self, change: &Change) -> Touched {
        match change {
            Change::Tree(op) => Touched::by(&op.change, self.replica.machine().tree()),
            Change::Remove | Change::Plant(_) if self.grants.are_out() || !self.grants.are_quiet() => {
                Touched::root()
            }
            _ => Touched::default(),
        }
    }
}

impl<A: Algorithm> Shard<A> {
    /// Keeps a change of a volume as long as somebody has a grant that is in its way. False if nobody has.
    pub(crate) fn waits_for_grants(
        &mut self,
        now: WallTime,
        object: ObjectId,
        (asker, body): (Asker, FileBody),
        change: &Change,
    ) -> bool {
        let guards = !self.config.breaks(Bug::PlacesOfDeadForgotten);
        let takes_place = asker.session().is_some_and(|session| self.granting.takes_place_of(session));
        let takes_places = !self.config.breaks(Bug::PlaceNotTaken);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return false };
        let mut touched = hosted.touched_by(change);
        if !takes_places {
            touched.moved.clear();
        }
        // What a daemon asks for gets its number as an entry.
        let request = asker.request(&body).filter(|_| matches!(asker.from, Caller::Session(_)));
        let is_known = request.is_some_and(|request| {
            hosted.replica.knows(request) || hosted.grants.is_under_way((request.client, request.number))
        });
        if touched.is_nothing() || is_known || self.config.breaks(Bug::GrantsIgnored) {
            return false;
        }
        if hosted.grants.holds_already(asker, &body) {
            return true;
        }
        let (is_held, to_tell) = hosted.grants.in_the_way(&touched, asker.session());
        let is_held = is_held || guards && hosted.grants.moves_unplaced(&touched, asker.client);
        let tree = hosted.replica.machine().tree();
        // What waits before it may wait until the directory is given back, which is when all is entered.
        let overtakes = takes_place || is_of_lender(change, tree, asker.client);
        let is_settling = decided_by_lends(change)
            .is_some_and(|inode| hosted.grants.is_changing(inode) && !is_directory(tree, inode));
        if !is_held && !is_settling && !hosted.grants.is_behind(&touched, overtakes) {
            return false;
        }
        if !hosted.grants.hold(asker, body, touched) {
            self.files.reply(asker, FileReplyBody::Unavailable(Unavailable::Overloaded), None);
        }
        for (session, taken) in to_tell {
            self.revoke(now, object, session, taking(taken));
        }
        true
    }

    /// Tells a session that something is not granted any more. It counts on it no longer than it was confirmed before.
    pub(crate) fn revoke(
        &mut self,
        now: WallTime,
        object: ObjectId,
        session: SessionId,
        what: Revoked,
    ) -> u64 {
        let number = self.sessions.next_revocation(session);
        self.sessions.tell(session, Reply::Revoke { number, volume: object, what }, None);
        let over = if self.config.breaks(Bug::RevocationNotWaitedFor) {
            now
        } else {
            now + self.config.session_over_after()
        };
        self.granting.asked.insert((session, number), (object, what));
        self.granting.due.insert((over, session, number));
        number
    }

    /// A session has dropped what it was told to, or cannot count on it any more.
    pub(crate) fn revocation_over(
        &mut self,
        now: WallTime,
        session: SessionId,
        number: u64,
        is_answered: bool,
    ) {
        let is_lax = self.config.breaks(Bug::LateAnswerDropsGrant);
        let asked = if is_lax && !is_answered {
            self.granting.asked.get(&(session, number)).copied()
        } else {
            self.granting.asked.remove(&(session, number))
        };
        let Some((object, what)) = asked else { return };
        let client = self.sessions.get(session).map(|session| session.client);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        match what {
            Revoked::Inode { number, epoch } if is_answered => {
                hosted.grants.end_revoking(InodeId { number, epoch }, session);
            }
            // Who cannot count on it any more cannot on where it is either.
            Revoked::Inode { number, epoch } | Revoked::Place { number, epoch } => {
                hosted.grants.end_taking(InodeId { number, epoch }, session);
            }
            Revoked::Lend { number: inode, epoch, .. } => {
                let inode = InodeId { number: inode, epoch };
                if is_lax {
                    hosted.grants.drop(inode, session);
                }
                self.recall_answered(now, object, (session, number), inode);
            }
            Revoked::All if is_answered => hosted.grants.end_revoking_all(session),
            Revoked::All => hosted.grants.end_taking_all(session),
            Revoked::Before(tenure) => {
                if tenure == hosted.grants.tenure
                    && let (Some(grace), Some(client)) = (&mut hosted.grants.grace, client)
                    && is_answered
                {
                    grace.unanswered.remove(&client);
                }
            }
        }
        self.end_grace(now, object);
        self.pass_held(now, object);
    }

    /// Looks at changes that wait.
    pub(crate) fn pass_held(&mut self, now: WallTime, object: ObjectId) {
        self.go_on_with_recalls(now, object);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        if hosted.grants.is_passing {
            hosted.grants.is_stale = true;
            return;
        }
        loop {
            let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
            (hosted.grants.is_passing, hosted.grants.is_stale) = (true, false);
            for held in hosted.grants.take_held() {
                let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
                hosted.grants.let_go(&held);
                self.put_to_replica(now, object, held.asker, held.body);
            }
            let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
            hosted.grants.is_passing = false;
            if !hosted.grants.is_stale {
                return;
            }
        }
    }

    /// A change has become the entry at `at`.
    pub(crate) fn change_begins(
        &mut self,
        object: ObjectId,
        asker: Asker,
        number: u64,
        (at, change): (Position, &Change),
    ) {
        let is_early = self.config.breaks(Bug::GrantedBeforeOutcome);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let touched = returned_by(change).unwrap_or_else(|| hosted.touched_by(change));
        if !touched.is_nothing() && !is_early {
            hosted.grants.begin((asker.client, number), at.seq, asker.session(), touched);
        }
    }

    /// What a reply to a change grants. Where the change stands and what it named is known if this is the first time that it is told.
    pub(crate) fn grant_changed(
        &mut self,
        now: WallTime,
        object: ObjectId,
        (asker, placed): (Asker, Option<&Settled>),
        outcome: &Result<Done, FileError>,
    ) -> Option<Box<CacheGrant>> {
        let Settled { at, named } = placed?;
        let told = match outcome {
            Ok(Done::Tree(done)) => match &**done {
                TreeDone::Created { attributes, .. } | TreeDone::Changed { attributes } => {
                    of(attributes, asker.client)
                }
                _ => None,
            },
            _ => None,
        };
        let changed = if outcome.is_ok() { self.directories(object, asker, named) } else { Vec::new() };
        let told = told.into_iter().chain(changed.iter().map(|directory| directory.inode)).collect();
        let mut grant = self.grant_all(now, object, asker, (*at, told))?;
        grant.changed = self.show_directories(object, asker.from, changed);
        let CacheGrant { inodes, changed, .. } = &mut *grant;
        changed.retain(|directory| inodes.contains(&directory.inode));
        Some(grant)
    }

    /// Those of these inodes that are directories and granted to who asks. Whatever else was changed is told otherwise, or may be lent.
    fn directories(&self, object: ObjectId, asker: Asker, inodes: &[InodeId]) -> Vec<Attributes> {
        let Some(hosted) = self.files.hosted.get(&object) else { return Vec::new() };
        let Some(session) = asker.session() else { return Vec::new() };
        let tree = hosted.replica.machine().tree();
        let directory = |&inode: &InodeId| match tree.part(&Key::Inode(inode)) {
            Some(Part::Inode(found)) if found.is_directory() => Some(found.attributes(inode)),
            _ => None,
        };
        let granted: BTreeSet<_> =
            inodes.iter().filter(|inode| hosted.grants.has(**inode, session)).collect();
        granted.into_iter().filter_map(directory).collect()
    }

    /// What an answer grants that is about `on`, too.
    pub(crate) fn grant_answer(
        &mut self,
        now: WallTime,
        object: ObjectId,
        (asker, on): (Asker, Option<InodeId>),
        body: &FileReplyBody,
    ) -> Option<Box<CacheGrant>> {
        let FileReplyBody::Answer(answer) = body else { return None };
        let mut told: Vec<InodeId> = on.into_iter().collect();
        match answer {
            Ok(Answer::Tree(answer)) => match &**answer {
                TreeAnswer::Attributes(attributes) => told.extend(of(attributes, asker.client)),
                TreeAnswer::Page(page) => {
                    told.extend(
                        page.entries
                            .iter()
                            .filter_map(|listed| of(listed.attributes.as_ref()?, asker.client)),
                    );
                }
                TreeAnswer::Target(_) => {}
                _ => return None,
            },
            Err(FileError::Tree(NameError::NoEntry { .. })) => {}
            _ => return None,
        }
        let hosted = self.files.hosted.get(&object)?;
        let at = hosted.grants.seen_upto(hosted.replica.committed().seq);
        self.grant_all(now, object, asker, (at, told))
    }

    fn grant_all(
        &mut self,
        now: WallTime,
        object: ObjectId,
        asker: Asker,
        (at, told): (Seq, Vec<InodeId>),
    ) -> Option<Box<CacheGrant>> {
        let session = asker.session()?;
        let may = self.may_grant(now, object, asker, session);
        let hosted = self.files.hosted.get_mut(&object)?;
        let taken = if may { hosted.grants.make_room(session, &told) } else { Vec::new() };
        for taken in taken {
            self.revoke(now, object, session, taking(taken));
        }
        let is_placed = self.has_same_ids(object, session);
        let kind = if is_placed { GrantKind::Placed } else { GrantKind::Shared };
        let revoked = self.sessions.revocations(session);
        let hosted = self.files.hosted.get_mut(&object)?;
        let (grants, recalls) = (&mut hosted.grants, &hosted.recalls);
        let tree = hosted.replica.machine().tree();
        let is_others = |lent: Lent| lent.to != LentTo::Client(asker.client);
        let mut inodes = told;
        inodes.retain(|&inode| may && grants.may_give(inode, session) && !recalls.holds(inode, tree));
        inodes.retain(|&inode| !tree.lent(inode).is_some_and(is_others));
        for &inode in &inodes {
            grants.give(inode, session, is_placed && is_directory(tree, inode));
            if tree.lent(inode).is_some() {
                grants.note_lender(session);
            }
        }
        if !inodes.is_empty() {
            self.granting.volumes.insert(object);
        }
        let (tenure, changed) = (grants.tenure, Vec::new());
        Some(Box::new(CacheGrant { kind, tenure, at, revoked, inodes, changed }))
    }

    /// Whether anything may be granted to a session in a volume. If only its client is not on record there, it is put there.
    fn may_grant(&mut self, now: WallTime, object: ObjectId, asker: Asker, session: SessionId) -> bool {
        let covers = self.covers_session(now, object) || self.config.breaks(Bug::GrantedWithoutCover);
        let is_here = self.sessions.get(session).is_some_and(|session| session.is_connected());
        let Some(hosted) = self.files.hosted.get(&object).filter(|hosted| hosted.serves()) else {
            return false;
        };
        if !covers || !is_here || self.is_draining() || !self.is_free(object, session) {
            return false;
        }
        if hosted.grants.is_leaving(asker.client, hosted.replica.committed().seq) {
            return false;
        }
        let tree = hosted.replica.machine().tree();
        match tree.part(&Key::Client(asker.client)) {
            Some(Part::Client(ClientState::Alive | ClientState::Caching)) => true,
            Some(_) => false,
            None => {
                self.welcome(now, object, asker.client);
                self.config.breaks(Bug::GrantedOffRecord)
            }
        }
    }

    /// Whether a file may be lent by this change to whoever asks for it.
    pub(crate) fn may_lend(
        &mut self,
        now: WallTime,
        object: ObjectId,
        asker: Asker,
        change: &Change,
    ) -> bool {
        let Change::Tree(op) = change else { return false };
        let asks = matches!(
            op.change,
            namespace::Change::Create { lends: true, .. }
                | namespace::Change::Lend { to: LentTo::Client(_), .. }
        );
        let Some(session) = asker.session().filter(|_| asks) else { return false };
        if !self.may_grant(now, object, asker, session) {
            return false;
        }
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return false };
        let is_new = matches!(op.change, namespace::Change::Create { .. });
        let has_begun = hosted.grants.have_begun() || is_new;
        has_begun && hosted.recalls.has_room(asker.client, hosted.replica.machine().tree())
    }

    /// Whether the lease of a volume outlasts a session that is confirmed now.
    fn covers_session(&self, now: WallTime, object: ObjectId) -> bool {
        self.lease.valid_until(now, object).is_some_and(|until| until >= now + self.config.cover())
    }

    /// Revokes what the lease does not cover any more. To be called before a session is confirmed.
    pub(crate) fn check_grants_covered(&mut self, now: WallTime) {
        if self.config.breaks(Bug::ConfirmedWithoutCover) {
            return;
        }
        let uncovered = self.granting.volumes.iter().filter(|object| !self.covers_session(now, **object));
        for object in uncovered.copied().collect::<Vec<_>>() {
            let Some(hosted) = self.files.hosted.get_mut(&object) else { continue };
            let sessions = hosted.grants.trusted_sessions();
            sessions.iter().for_each(|session| hosted.grants.revoke_session(*session));
            for session in sessions {
                self.revoke(now, object, session, Revoked::All);
            }
        }
    }

    /// What is due about grants: revocations that nobody can count against any more, and changes that waited for it.
    pub(crate) fn check_grants(&mut self, now: WallTime) {
        while let Some(&(at, session, number)) = self.granting.due.first().filter(|(at, ..)| *at <= now) {
            self.granting.due.remove(&(at, session, number));
            if let Some(later) = self.revocation_goes_on(now, session, number) {
                self.granting.due.insert((later, session, number));
                continue;
            }
            self.revocation_over(now, session, number, false);
        }
        while let Some(&(at, session, client)) = self.granting.closed.first().filter(|(at, ..)| *at <= now) {
            self.granting.closed.remove(&(at, session, client));
            self.session_counts_on_nothing(now, session);
            self.forget_client(now, client);
        }
        while let Some(&(at, object)) = self.granting.graces.first().filter(|(at, _)| *at <= now) {
            self.granting.graces.remove(&(at, object));
            self.end_grace(now, object);
            self.pass_held(now, object);
        }
        while let Some(&(at, object)) = self.granting.unplaced.first().filter(|(at, _)| *at <= now) {
            self.granting.unplaced.remove(&(at, object));
            if let Some(hosted) = self.files.hosted.get_mut(&object) {
                hosted.grants.unplaced = None;
            }
            self.pass_held(now, object);
        }
        while let Some(&(at, object)) = self.granting.returning.first().filter(|(at, _)| *at <= now) {
            self.granting.returning.remove(&(at, object));
            self.go_on_with_recalls(now, object);
            self.drain_replica(now, object);
        }
    }

    /// Until when a revocation is waited for that is due, if it is of a lend and its client may be flushing.
    fn revocation_goes_on(&self, now: WallTime, session: SessionId, number: u64) -> Option<WallTime> {
        let (object, what) = self.granting.asked.get(&(session, number))?;
        let Revoked::Lend { number, epoch, .. } = *what else { return None };
        self.has_time_to_flush(now, *object, (session, InodeId { number, epoch }))
    }

    /// A session is closed, whose client may count on it until then.
    pub(crate) fn session_closes(
        &mut self,
        now: WallTime,
        (session, client): (SessionId, ClientId),
        until: WallTime,
    ) {
        if until > now {
            self.granting.closed.insert((until, session, client));
        } else {
            self.session_counts_on_nothing(now, session);
            self.forget_client(now, client);
        }
    }

    /// Nobody counts on any grant of a session any more.
    pub(super) fn session_counts_on_nothing(&mut self, now: WallTime, session: SessionId) {
        let asked = self.granting.asked_of(session);
        asked.into_iter().for_each(|(number, _)| self.revocation_over(now, session, number, false));
        for object in self.granting.volumes.clone() {
            if let Some(hosted) = self.files.hosted.get_mut(&object) {
                hosted.grants.drop_session(session);
            }
            self.pass_held(now, object);
        }
    }
}

/// What a session is told that is to drop what it has of an inode.
const fn taking((inode, is_placed): Taken) -> Revoked {
    if is_placed { Revoked::place(inode) } else { Revoked::inode(inode) }
}

/// The inode of which has to be known whether it is lent when such a change is made an entry.
fn decided_by_lends(change: &Change) -> Option<InodeId> {
    let Change::Tree(op) = change else { return None };
    match &op.change {
        namespace::Change::Lend { inode, .. } => Some(*inode),
        change => change.minds_lend(),
    }
}

/// What comes back waits for no grant, as others wait for it; but its client is to know how it is then, so nobody is told that sooner.
fn returned_by(change: &Change) -> Option<Touched> {
    let Change::Tree(op) = change else { return None };
    let namespace::Change::Return { inode, .. } = op.change else { return None };
    Some(Touched { found: vec![inode], ..Touched::default() })
}

/// Whether a client has something entered or removed in a directory that is lent to it, which it gives back after that.
fn is_of_lender(change: &Change, tree: &Names, client: ClientId) -> bool {
    let Change::Tree(op) = change else { return false };
    match &op.change {
        namespace::Change::Enter { .. } => true,
        namespace::Change::Unlink { site, .. } => {
            tree.lent(site.dir).is_some_and(|lent| lent.to == LentTo::Client(client))
        }
        _ => false,
    }
}

/// The inode, if it can be granted. What is lent to a client can be to that one, also without a name.
fn of(attributes: &Attributes, client: ClientId) -> Option<InodeId> {
    let is_its = attributes.lent_to(client).is_some();
    (is_its || attributes.lent.is_none() && attributes.links > 0).then_some(attributes.inode)
}
