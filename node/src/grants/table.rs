//! The grants of one volume, in one tenure, and the changes that wait for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use base::{ClientId, Epoch, Seq, WallTime};
use namespace::{InodeId, Name};

use super::named::Touched;
use crate::SessionId;
use crate::file::FileBody;
use crate::files::{Asker, Caller};

/// So many inodes are granted to all sessions of a volume at a time.
const GRANTS_MAX: usize = 1 << 21;
/// So many are taken back at a time from a session that has all that it may have.
const MADE_ROOM_FOR: usize = 64;
/// So many changes wait at a time.
const HELD_MAX: usize = 1_024;

/// The grants of a volume.
#[derive(Clone, Debug, Default)]
pub(crate) struct Grants {
    pub(super) tenure: Epoch,
    /// So many inodes are granted to one session at a time.
    session_max: usize,
    /// Where taking back goes on when there is no room.
    hand: Option<InodeId>,
    /// Who has a grant on what, and whether it is still to be counted on.
    holders: BTreeMap<InodeId, BTreeMap<SessionId, Standing>>,
    by_session: BTreeMap<SessionId, BTreeSet<InodeId>>,
    count: usize,
    /// Those that were told of a lend to them.
    lenders: BTreeSet<SessionId>,
    /// Changes that are entries and have no outcome.
    under_way: BTreeMap<(ClientId, u64), UnderWay>,
    positions: BTreeSet<Seq>,
    /// By whom how often what is being changed. Nobody's are changes that may touch what their session does not know of.
    changing: BTreeMap<(InodeId, Option<SessionId>), usize>,
    names: BTreeMap<(InodeId, Name), usize>,
    /// Changes that wait, in order, and how many of them touch what.
    held: VecDeque<Held>,
    waiting: BTreeMap<InodeId, usize>,
    /// The same with those that are being looked at: nothing is granted there.
    closing: BTreeMap<InodeId, usize>,
    /// Whether they are being looked through, and are to be once more.
    pub(super) is_passing: bool,
    pub(super) is_stale: bool,
    /// Nothing is changed before these clients have dropped what they had.
    pub(super) grace: Option<Grace>,
    /// Clients that may believe where directories were, of an earlier tenure; none when that was waited for.
    pub(super) unplaced: Option<Grace>,
    /// Clients that are being put on record.
    pub(super) welcomed: BTreeSet<ClientId>,
    /// Clients that are being taken off record, and by which entry.
    leaving: BTreeMap<ClientId, Seq>,
}

/// Who may have something of an earlier tenure.
#[derive(Clone, Debug)]
pub(super) struct Grace {
    pub(super) until: WallTime,
    /// Who is still to say that it dropped what it had.
    pub(super) unanswered: BTreeSet<ClientId>,
    /// Whether there may be others.
    pub(super) is_blind: bool,
}

/// How a session stands to an inode of which it has something.
#[derive(Clone, Copy, Debug)]
struct Standing {
    grant: Grant,
    /// Whether it may believe where the inode is.
    is_placed: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Grant {
    Granted,
    /// It was told to drop what it has, and has not said that it did.
    Revoked,
    /// It was dropped. Where the inode is may be believed still.
    Over,
}

/// An inode of which a session is told to drop what it has, and whether that is where it is, too.
pub(super) type Taken = (InodeId, bool);

/// A change whose outcome is known.
#[derive(Clone, Debug)]
pub(crate) struct Settled {
    /// Where it stands.
    pub(crate) at: Seq,
    /// The inodes that it named.
    pub(crate) named: Vec<InodeId>,
}

#[derive(Clone, Debug)]
struct UnderWay {
    at: Seq,
    session: Option<SessionId>,
    touched: Touched,
}

/// A change that waits.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub(super) asker: Asker,
    pub(super) body: FileBody,
    touched: Touched,
}

impl Grants {
    /// Nothing is granted in this tenure yet.
    pub(super) fn new(tenure: Epoch, session_max: usize) -> Self {
        Self { tenure, session_max, ..Self::default() }
    }

    /// Whether anybody has a grant.
    pub(crate) fn are_out(&self) -> bool {
        self.count > 0
    }

    /// Whether nobody is waited for who may have something of an earlier tenure.
    pub(crate) const fn have_begun(&self) -> bool {
        self.grace.is_none()
    }

    /// Whether no change waits.
    pub(crate) fn are_quiet(&self) -> bool {
        self.held.is_empty() && self.grace.is_none()
    }

    /// The sessions that have any.
    pub(super) fn sessions(&self) -> Vec<SessionId> {
        self.by_session.keys().chain(&self.lenders).copied().collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Those that have any which is to be counted on.
    pub(super) fn trusted_sessions(&self) -> Vec<SessionId> {
        let is_trusted =
            |session: &SessionId| self.by_session[session].iter().any(|inode| self.has(*inode, *session));
        let trusted = self.by_session.keys().copied().filter(is_trusted);
        trusted.chain(self.lenders.iter().copied()).collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn standing(&self, inode: InodeId, session: SessionId) -> Option<Standing> {
        self.holders.get(&inode)?.get(&session).copied()
    }

    fn grant(&self, inode: InodeId, session: SessionId) -> Option<Grant> {
        self.standing(inode, session).map(|standing| standing.grant)
    }

    /// Whether it is granted and to be counted on.
    pub(super) fn has(&self, inode: InodeId, session: SessionId) -> bool {
        self.grant(inode, session) == Some(Grant::Granted)
    }

    /// Whether something may be granted there.
    pub(super) fn may_give(&self, inode: InodeId, session: SessionId) -> bool {
        let mut by = self.changing.range((inode, None)..=(inode, Some(SessionId(u64::MAX))));
        let is_changing = by.any(|((_, by), _)| *by != Some(session));
        let grant = self.grant(inode, session);
        !is_changing
            && !self.closing.contains_key(&inode)
            && self.grace.is_none()
            && grant != Some(Grant::Revoked)
            && (grant.is_some() || self.has_room(session))
    }

    fn has_room(&self, session: SessionId) -> bool {
        let has = self.by_session.get(&session).map_or(0, BTreeSet::len);
        self.count < GRANTS_MAX && has < self.session_max
    }

    /// What is taken back from a session so that others of these can be granted to it: of what it has, each in its turn.
    pub(super) fn make_room(&mut self, session: SessionId, wanted: &[InodeId]) -> Vec<Taken> {
        let is_new = |inode: &InodeId| self.standing(*inode, session).is_none();
        if self.has_room(session) || !wanted.iter().any(is_new) {
            return Vec::new();
        }
        let Some(all) = self.by_session.get(&session) else { return Vec::new() };
        let behind = (self.hand.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let in_turn = all.range(behind).chain(all).copied();
        let is_there = |inode: &InodeId| self.grant(*inode, session) != Some(Grant::Revoked);
        let taken: Vec<InodeId> = in_turn.filter(is_there).take(MADE_ROOM_FOR.min(all.len())).collect();
        self.hand = taken.last().copied().or(self.hand);
        taken.into_iter().filter_map(|inode| Some((inode, self.begin_taking(inode, session)?))).collect()
    }

    /// All that a session has of an inode is not to be counted on any more. Whether that is where it is, too. None if nobody is to be told.
    fn begin_taking(&mut self, inode: InodeId, session: SessionId) -> Option<bool> {
        let standing = self.holders.get_mut(&inode)?.get_mut(&session)?;
        let before = std::mem::replace(&mut standing.grant, Grant::Revoked);
        (before != Grant::Revoked).then_some(standing.is_placed)
    }

    /// Grants it, and perhaps where it is.
    pub(super) fn give(&mut self, inode: InodeId, session: SessionId, is_placed: bool) {
        let before = self.standing(inode, session).is_some_and(|standing| standing.is_placed);
        let standing = Standing { grant: Grant::Granted, is_placed: is_placed || before };
        if self.holders.entry(inode).or_default().insert(session, standing).is_none() {
            self.by_session.entry(session).or_default().insert(inode);
            self.count += 1;
        }
    }

    /// A session was told that something is lent to its client.
    pub(super) fn note_lender(&mut self, session: SessionId) {
        self.lenders.insert(session);
    }

    /// A grant is not to be counted on any more, if it is one and nobody was told that yet.
    pub(crate) fn begin_revoking(&mut self, inode: InodeId, session: SessionId) -> bool {
        self.has(inode, session) && self.begin_taking(inode, session).is_some()
    }

    /// What was revoked is dropped, but not where it is. What was granted again since stays.
    pub(crate) fn end_revoking(&mut self, inode: InodeId, session: SessionId) {
        let standing = self.holders.get_mut(&inode).and_then(|holders| holders.get_mut(&session));
        let Some(standing) = standing.filter(|standing| standing.grant == Grant::Revoked) else { return };
        standing.grant = Grant::Over;
        if !standing.is_placed {
            self.drop(inode, session);
        }
    }

    /// All that was revoked is dropped, where it is, too. What was granted again since stays.
    pub(super) fn end_taking(&mut self, inode: InodeId, session: SessionId) {
        if self.grant(inode, session) == Some(Grant::Revoked) {
            self.drop(inode, session);
        }
    }

    /// Whether somebody may have something of an earlier tenure.
    pub(crate) fn awaits(&self, client: ClientId) -> bool {
        self.grace.as_ref().is_some_and(|grace| grace.is_blind || grace.unanswered.contains(&client))
    }

    /// Whether an entry without an outcome may change it.
    pub(super) fn is_changing(&self, inode: InodeId) -> bool {
        let mut by = self.changing.range((inode, None)..=(inode, Some(SessionId(u64::MAX))));
        by.next().is_some()
    }

    /// Takes a grant away.
    pub(super) fn drop(&mut self, inode: InodeId, session: SessionId) {
        let Some(holders) = self.holders.get_mut(&inode) else { return };
        if holders.remove(&session).is_none() {
            return;
        }
        self.count -= 1;
        if holders.is_empty() {
            self.holders.remove(&inode);
        }
        if let Some(inodes) = self.by_session.get_mut(&session) {
            inodes.remove(&inode);
            if inodes.is_empty() {
                self.by_session.remove(&session);
            }
        }
    }

    /// Takes all grants of a session away.
    pub(super) fn drop_session(&mut self, session: SessionId) {
        self.lenders.remove(&session);
        let inodes = self.by_session.get(&session).cloned().unwrap_or_default();
        inodes.into_iter().for_each(|inode| self.drop(inode, session));
    }

    /// A session may not count on any of its grants any more.
    pub(super) fn revoke_session(&mut self, session: SessionId) {
        self.lenders.remove(&session);
        for inode in self.by_session.get(&session).into_iter().flatten() {
            if let Some(standing) = self.holders.get_mut(inode).and_then(|holders| holders.get_mut(&session))
            {
                standing.grant = Grant::Revoked;
            }
        }
    }

    /// A session has dropped all that was revoked, but not where directories are. What was granted again since stays.
    pub(super) fn end_revoking_all(&mut self, session: SessionId) {
        let inodes = self.by_session.get(&session).cloned().unwrap_or_default();
        inodes.into_iter().for_each(|inode| self.end_revoking(inode, session));
    }

    /// It cannot count on that any more, and not on where directories are.
    pub(super) fn end_taking_all(&mut self, session: SessionId) {
        let inodes = self.by_session.get(&session).cloned().unwrap_or_default();
        inodes.into_iter().for_each(|inode| self.end_taking(inode, session));
    }

    /// A session has dropped all that it was granted, but not where directories are.
    pub(super) fn leave_places(&mut self, session: SessionId) {
        self.revoke_session(session);
        self.end_revoking_all(session);
    }

    /// Whose grants stand in the way of a change, and which of them nobody was told to drop yet.
    pub(super) fn in_the_way(
        &mut self,
        touched: &Touched,
        session: Option<SessionId>,
    ) -> (bool, Vec<(SessionId, Taken)>) {
        let (mut is_held, mut to_tell) = (false, Vec::new());
        for (inode, is_known) in touched.inodes() {
            let keeps = session.filter(|_| is_known);
            let moves = touched.moved.contains(&inode);
            for (&holder, standing) in self.holders.get_mut(&inode).into_iter().flatten() {
                let takes_place = moves && standing.is_placed;
                if Some(holder) == keeps || standing.grant == Grant::Over && !takes_place {
                    continue;
                }
                is_held = true;
                if std::mem::replace(&mut standing.grant, Grant::Revoked) != Grant::Revoked {
                    to_tell.push((holder, (inode, takes_place)));
                }
            }
        }
        (is_held, to_tell)
    }

    /// Whether a change moves a directory of which somebody else than its client may believe that it is where it was in an earlier tenure.
    pub(super) fn moves_unplaced(&self, touched: &Touched, client: ClientId) -> bool {
        let is_believed =
            |unplaced: &Grace| unplaced.is_blind || unplaced.unanswered.iter().any(|other| *other != client);
        !touched.moved.is_empty() && self.unplaced.as_ref().is_some_and(is_believed)
    }

    /// Whether a change has to wait whoever has grants: for one before it, or because it is not known what its names name.
    /// Whose kernel is to drop a name may be kept from that by its own change, and waits for nobody who wants the name dropped.
    pub(super) fn is_behind(&self, touched: &Touched, overtakes: bool) -> bool {
        let is_unsettled =
            touched.resolves && touched.named.names.iter().any(|name| self.names.contains_key(name));
        let is_behind = touched.inodes().any(|(inode, _)| self.waiting.contains_key(&inode));
        is_unsettled || is_behind && !overtakes || self.grace.is_some()
    }

    /// Keeps a change until nobody is in its way. False if too many wait.
    pub(super) fn hold(&mut self, asker: Asker, body: FileBody, touched: Touched) -> bool {
        if self.held.len() >= HELD_MAX {
            return false;
        }
        for (inode, _) in touched.inodes() {
            *self.closing.entry(inode).or_default() += 1;
            *self.waiting.entry(inode).or_default() += 1;
        }
        self.held.push_back(Held { asker, body, touched });
        true
    }

    /// Whether a change waits already. Whoever asks again has given the first reply up.
    pub(super) fn holds_already(&mut self, asker: Asker, body: &FileBody) -> bool {
        let is_it = |held: &&mut Held| {
            let (other, request) = (&held.asker, asker.request(body));
            let is_same = (other.from, other.id) == (asker.from, asker.id);
            let is_again = matches!(asker.from, Caller::Session(_)) && other.request(&held.body) == request;
            is_same || is_again && matches!(other.from, Caller::Session(_))
        };
        let again = self.held.iter_mut().find(is_it);
        let is_there = again.is_some();
        if let Some(held) = again {
            held.asker = asker;
        }
        is_there
    }

    /// The changes that wait, to be looked at in this order. Until each is, nothing is granted where it waits.
    pub(super) fn take_held(&mut self) -> VecDeque<Held> {
        self.waiting.clear();
        std::mem::take(&mut self.held)
    }

    /// A change that was taken is looked at.
    pub(super) fn let_go(&mut self, held: &Held) {
        for (inode, _) in held.touched.inodes() {
            less(&mut self.closing, &inode);
        }
    }

    /// A client is being taken off record.
    pub(crate) fn leaves(&mut self, client: ClientId, at: Seq) {
        self.welcomed.remove(&client);
        self.leaving.insert(client, at);
    }

    /// Whether it may be on record no longer than until now.
    pub(super) fn is_leaving(&self, client: ClientId, committed: Seq) -> bool {
        self.leaving.get(&client).is_some_and(|at| committed < *at)
    }

    /// A change has become an entry.
    pub(super) fn begin(
        &mut self,
        key: (ClientId, u64),
        at: Seq,
        session: Option<SessionId>,
        touched: Touched,
    ) {
        for (inode, is_known) in touched.inodes() {
            *self.changing.entry((inode, session.filter(|_| is_known))).or_default() += 1;
        }
        for name in &touched.named.names {
            *self.names.entry(name.clone()).or_default() += 1;
        }
        self.positions.insert(at);
        self.under_way.insert(key, UnderWay { at, session, touched });
    }

    /// Its outcome is known, if it is one of these.
    pub(crate) fn end(&mut self, key: (ClientId, u64)) -> Option<Settled> {
        let UnderWay { at, session, touched } = self.under_way.remove(&key)?;
        self.positions.remove(&at);
        for (inode, is_known) in touched.inodes() {
            less(&mut self.changing, &(inode, session.filter(|_| is_known)));
        }
        touched.named.names.iter().for_each(|name| less(&mut self.names, name));
        Some(Settled { at, named: touched.named.inodes })
    }

    /// Whether this change is an entry without an outcome.
    pub(super) fn is_under_way(&self, key: (ClientId, u64)) -> bool {
        self.under_way.contains_key(&key)
    }

    /// Up to where everything has taken effect in an answer that was made by now.
    pub(super) fn seen_upto(&self, committed: Seq) -> Seq {
        self.positions.first().map_or(committed, |first| committed.min(Seq(first.0.saturating_sub(1))))
    }
}

/// One less of something that is counted.
fn less<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use base::NodeId;

    use super::*;

    fn inode(number: u64) -> InodeId {
        InodeId { number, epoch: Epoch { number: 1, node: NodeId(1) } }
    }

    /// These, of which nobody believes where they are.
    fn all(numbers: impl Iterator<Item = u64>) -> Vec<Taken> {
        numbers.map(|number| (inode(number), false)).collect()
    }

    #[test]
    fn a_session_that_has_all_that_it_may_have_gives_back_each_in_its_turn() {
        const MOST: usize = 100;
        let (session, other) = (SessionId(1), SessionId(2));
        let mut grants = Grants::new(Epoch { number: 1, node: NodeId(1) }, MOST);
        (0..MOST as u64).for_each(|number| grants.give(inode(number), session, false));
        assert!(!grants.may_give(inode(500), session) && grants.may_give(inode(5), session));
        assert!(grants.may_give(inode(500), other), "it has room");
        assert_eq!(grants.make_room(session, &[inode(5)]), [], "it has that");
        let taken = grants.make_room(session, &[inode(500)]);
        assert_eq!(taken, all(0..64));
        assert!(!grants.may_give(inode(500), session), "it counts on all of that still");
        taken.iter().for_each(|(inode, _)| grants.end_revoking(*inode, session));
        assert!(grants.may_give(inode(500), session) && grants.make_room(session, &[inode(500)]).is_empty());
        (500..564).for_each(|number| grants.give(inode(number), session, false));
        let taken = grants.make_room(session, &[inode(600)]);
        assert_eq!(taken, all((64..100).chain(500..528)));
    }

    #[test]
    fn where_something_is_outlasts_the_grant_on_it_until_that_is_taken() {
        let (session, directory, file) = (SessionId(1), inode(1), inode(2));
        let mut grants = Grants::new(Epoch { number: 1, node: NodeId(1) }, 2);
        grants.give(directory, session, true);
        grants.give(file, session, false);
        let changes = |moved: &[InodeId]| Touched {
            found: vec![directory, file],
            moved: moved.to_vec(),
            ..Touched::default()
        };
        let (_, told) = grants.in_the_way(&changes(&[]), None);
        assert_eq!(told, [(session, (directory, false)), (session, (file, false))]);
        assert!(grants.in_the_way(&changes(&[directory]), None).1.is_empty(), "one thing after the other");
        [directory, file].iter().for_each(|inode| grants.end_revoking(*inode, session));
        assert_eq!(
            grants.in_the_way(&changes(&[]), None),
            (false, Vec::new()),
            "it may be believed where it is"
        );
        assert_eq!(
            grants.in_the_way(&changes(&[directory]), None),
            (true, vec![(session, (directory, true))])
        );
        assert!(!grants.may_give(directory, session));
        grants.end_taking(directory, session);
        assert!(!grants.are_out() && !grants.in_the_way(&changes(&[directory]), None).0);
        // It takes room as long as it may be believed.
        grants.give(directory, session, true);
        grants.leave_places(session);
        grants.end_revoking_all(session);
        grants.give(file, session, false);
        grants.end_taking_all(session);
        assert!(!grants.has(directory, session) && !grants.may_give(inode(3), session));
        assert_eq!(grants.make_room(session, &[inode(3)]), [(directory, true), (file, false)]);
    }
}
