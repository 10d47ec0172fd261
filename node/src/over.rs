//! What is over: objects of which nobody has anything, and volumes' files that were removed or have no content.
//!
//! A file that was removed leaves a mark with every member, without which a member that slept would bring its content back. Once all
//! members have the mark on disk nobody needs it: the volume never gives that inode a second time, and lends nothing to it. So whoever
//! leads such a file ends it when nobody has used it for a while, and all forget it. First it marks the file again behind the mark that is
//! committed: who does not hear that it is over, and is the last who has anything of it, gives the others a state with the mark then, and not one
//! from before it. Marks that are left, because a member was away
//! then or a primary died, are found by looking at all files in turn: a few at a time, and only when all members are there.
//!
//! The same is done with what somebody wanted to write to, and the volume lent nothing: perhaps because it has no such file any more. And with
//! what the volume asked back from a content that there was not, once the volume knows that it has that back: who led it then may have died before
//! he heard that it began by that. What was forgotten earlier would let pass what is written under that lend.
//! And whose primary has died in the middle of something is led for that: a lend goes back to its volume then, and what is doomed in a volume
//! is deleted. For this a majority is enough, because the member that is away may be that primary, and gone for good.
//!
//! Of a file that was removed nobody needs anything, whatever of it cannot be read. Who has an entry that removes it and lacks parts of what was
//! there has the mark instead: if all others have forgotten the file since, he is the only one who can have it ended.
//!
//! Marks of objects without a volume stay: a client may send again what once began them.

use std::ops::Bound;

use base::{Members, NodeId, ObjectId, Span, WallTime};
use lease::Algorithm;
use namespace::LentTo;

use crate::file::{Attributes, Change, Key, LendStage, Op, Part};
use crate::files::{Hosted, Stage};
use crate::message::is_file_of_volume;
use crate::steps::Step;
use crate::volumes::OF_DAEMONS;
use crate::{Bug, Rules, Shard};

/// How many files are looked at at a time, and how soon more are.
const LOOKED_MAX: usize = 1_024;
const LOOKED_EVERY: Span = Span::from_secs(10);

/// Where a look at all files goes on, and when.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Round {
    cursor: Option<ObjectId>,
    count: u64,
    at: Option<WallTime>,
}

impl Round {
    pub(crate) const fn next_due(&self) -> Option<WallTime> {
        self.at
    }
}

impl Hosted {
    /// Whether nothing is left of a volume's file but a mark, or nothing was ever done to it, so that it has no content.
    fn has_nothing_left(&self, rules: Rules) -> bool {
        let file = self.replica.machine();
        let (_, attributes) = file.attributes();
        let stat = file.stat();
        let was_used = match attributes.lend().map(|lend| lend.stage) {
            None => false,
            // It was only asked back, unless somebody may send again what he has done.
            Some(LendStage::Unused) if rules.breaks(Bug::AskedBackKept) => true,
            Some(LendStage::Unused) => self.has_clients() && !rules.breaks(Bug::UnusedIsNothing),
            Some(LendStage::Open | LendStage::Ended) => true,
        };
        attributes.is_removed() || !was_used && stat.size == 0 && stat.allocated == 0
    }

    /// Whether anything but what daemons did is remembered.
    fn has_clients(&self) -> bool {
        self.replica.clients_over() > 0
            || self.replica.clients().any(|client| client.certificate != OF_DAEMONS)
    }

    /// The mark that an entry here leaves of a volume's file, committed or not: the volume has decided on it for good before.
    fn mark_behind(&self) -> Option<Attributes> {
        let removes = |op: &Op| matches!(op.change, Change::Remove).then_some(op.time);
        let time = self.replica.ops().find_map(removes)?;
        Some(Attributes::removed(time, time))
    }

    /// Whether only a primary can bring to an end what is here, and how many of so many members it takes: to forget what is over all, and for
    /// a lend, or entries of which nobody has said that they are committed, a majority.
    fn is_unfinished(&self, members: &Members, rules: Rules) -> Option<usize> {
        let lend = self.replica.machine().attributes().1.lend();
        // What is lent to a client the volume has ended.
        let is_lent = lend.is_some_and(|lend| lend.is_open() && lend.lent.to == LentTo::Content);
        if is_lent || self.replica.tail() != self.replica.committed() {
            return Some(members.majority());
        }
        (self.view.is_none() && self.has_nothing_left(rules)).then(|| members.as_slice().len())
    }
}

impl<A: Algorithm> Shard<A> {
    /// A file that is led here and that nobody uses is over, if nothing is left of it and all members have that on disk. Whether it
    /// is still to be led until they do.
    pub(crate) fn waits_to_end(&mut self, now: WallTime, object: ObjectId) -> bool {
        let rules = self.config.rules();
        let few = rules.breaks(Bug::ForgottenByFew);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return false };
        // Elsewhere than at the first members somebody keeps whom to ask.
        let may_end = is_file_of_volume(object) && hosted.has_nothing_left(rules) && hosted.view.is_none();
        if !may_end || !hosted.serves() {
            return false;
        }
        let is_removed = hosted.replica.machine().attributes().1.is_removed();
        if !is_removed && !rules.breaks(Bug::AskedBackUntold) && self.tells_volume(object) {
            self.files.watch(now + self.config.file_idle, object);
            return true;
        }
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return false };
        let is_marked = hosted.is_ending == Some(is_removed) || self.config.breaks(Bug::MarkedOnce);
        if few || is_marked && hosted.replica.is_everywhere() {
            hosted.replica.end();
            hosted.is_over = Some((hosted.replica.promised(), hosted.replica.tail()));
            return false;
        }
        if hosted.is_ending == Some(is_removed) {
            return false;
        }
        if is_removed && self.propose_own(now, object, Change::Remove).is_none() {
            return false;
        }
        if let Some(hosted) = self.files.hosted.get_mut(&object) {
            hosted.is_ending = Some(is_removed);
            hosted.replica.sync_with_last();
        }
        self.drain_replica(now, object);
        self.files.watch(now + self.config.file_idle, object);
        true
    }

    /// The lease is given up. Whoever came meanwhile is served again.
    pub(crate) fn file_given_up(&mut self, now: WallTime, object: ObjectId) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        hosted.replica.resign();
        hosted.free_room();
        hosted.stage = Stage::Idle;
        // Somebody may lead it already, and have begun it again.
        let is_same = Some((hosted.replica.promised(), hosted.replica.tail())) == hosted.is_over.take();
        if !hosted.waiting.is_empty() {
            hosted.stage = Stage::Leasing;
            self.steps.add(object, Step::Acquire);
        } else if is_same && hosted.is_quiet() || hosted.is_blank() {
            self.drop_file(now, object);
        }
    }

    /// Whoever leads the file says that it is over.
    pub(crate) fn file_over(&mut self, now: WallTime, object: ObjectId) {
        let hosted = self.files.hosted.get(&object);
        let may_go = hosted.is_some_and(|hosted| {
            let is_wanted = hosted.stage != Stage::Idle || hosted.ordered.is_some() || !hosted.is_quiet();
            !is_wanted && hosted.view.is_none()
        });
        if may_go {
            self.drop_file(now, object);
        }
    }

    /// Somebody leads a history of a file that has nothing of what is here. If that is nothing, it was over and has begun again.
    pub(crate) fn drop_what_began_again(&mut self, now: WallTime, object: ObjectId) {
        let hosted = self.files.hosted.get(&object);
        if is_file_of_volume(object)
            && hosted.is_some_and(|hosted| hosted.has_nothing_left(self.config.rules()))
        {
            self.file_over(now, object);
        }
    }

    /// Nothing is kept of a file. What was promised about it is promised about all files that are not here.
    fn drop_file(&mut self, now: WallTime, object: ObjectId) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        self.keeper.numbers.forget(hosted.replica.promised().number);
        hosted.replica.bury();
        self.drain_replica(now, object);
        self.files.remove(object);
        self.files.logs.note(object, 0);
    }

    /// Looks at some files: what is unfinished this node leads in one of so many rounds as there are members, if enough are there
    /// and nobody leads it. What nobody has anything of goes.
    pub(crate) fn look_for_what_is_over(&mut self, now: WallTime) {
        let Round { cursor, count, at } = self.files.round;
        if at.is_some_and(|at| at > now) {
            return;
        }
        let behind = (cursor.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let looked: Vec<ObjectId> =
            self.files.hosted.range(behind).take(LOOKED_MAX).map(|(&object, _)| object).collect();
        let is_last = looked.len() < LOOKED_MAX;
        let at = (!self.files.hosted.is_empty()).then(|| now + LOOKED_EVERY);
        let cursor = looked.last().copied().filter(|_| !is_last);
        self.files.round = Round { cursor, count: count.wrapping_add(u64::from(is_last)), at };
        if self.unavailable(now).is_some() || self.files.is_stalled {
            return;
        }
        looked.into_iter().for_each(|object| self.look_whether_over(now, (object, count)));
    }

    fn look_whether_over(&mut self, now: WallTime, (object, count): (ObjectId, u64)) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        hosted.end_order(now, self.config.file_idle);
        if hosted.stage != Stage::Idle {
            return;
        }
        if hosted.used + self.config.file_idle <= now && hosted.is_blank() {
            return self.drop_file(now, object);
        }
        if hosted.replica.lacks()
            && is_file_of_volume(object)
            && hosted.view.is_none()
            && let Some(mark) = hosted.mark_behind()
            && !self.config.breaks(Bug::RemovedAndLacking)
        {
            hosted.replica.do_without(now, [(Key::Attributes, Part::Attributes(mark))]);
            self.drain_replica(now, object);
        }
        let hosted = self.files.hosted.get(&object);
        let may_lead = hosted.is_some_and(|hosted| hosted.replica.is_sound() && now >= hosted.avoided_until);
        if !may_lead || self.lease.hint(now, object).is_some() {
            return;
        }
        let members = self.members_of(object);
        let hosted = self.files.hosted.get(&object);
        let are_needed = hosted.and_then(|hosted| match is_file_of_volume(object) {
            true => hosted.is_unfinished(&members, self.config.rules()),
            false => hosted.has_doomed().then(|| members.majority()),
        });
        let Some(are_needed) = are_needed else { return };
        let members = members.as_slice();
        let turn = count.checked_rem(members.len() as u64).unwrap_or(0);
        let is_next = members.iter().zip(0..).any(|(&node, place)| node == self.me().node && place == turn);
        let is_there = |node: &&NodeId| **node == self.me().node || self.peers.contains_key(node);
        if is_next
            && members.iter().filter(is_there).count() >= are_needed
            && let Some(hosted) = self.files.hosted.get_mut(&object)
        {
            hosted.used = now;
            hosted.stage = Stage::Leasing;
            self.steps.add(object, Step::Acquire);
        }
    }
}
