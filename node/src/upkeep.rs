//! What a shard sees to of its files by itself: timers, what it or a peer may have forgotten, and a disk that does nothing.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use base::{Epoch, Members, NodeId, ObjectId, Process, Span, WallTime};
use lease::Algorithm;
use replication::Message;

use crate::file::FileReplyBody;
use crate::files::{FileMessage, Hosted, Stage};
use crate::steps::Step;
use crate::{Bug, ReplyBody, Shard, ShardEvent, Token, Unavailable, is_volume};

/// What was used no longer ago is in use: somebody will want it again at once.
const IN_USE_FOR: Span = Span::from_secs(1);

impl<A: Algorithm> Shard<A> {
    /// Timers of files, and leases that nobody has used for long.
    pub(crate) fn check_files(&mut self, now: WallTime) {
        self.check_disk(now);
        self.mend_files(now);
        self.forget_blank(now);
        self.list_files(now);
        self.check_lends(now);
        self.check_doomed(now);
        self.look_for_what_is_over(now);
        self.visit_volumes(now);
        while let Some(object) = self.files.pop_idle(now, self.config.file_idle) {
            if !self.waits_to_end(now, object) {
                self.leave_file(now, object, None);
            }
        }
        while let Some(object) = self.files.pop_due(now) {
            if let Some(hosted) = self.files.hosted.get_mut(&object) {
                hosted.replica.handle_timeout(now);
            }
            self.drain_replica(now, object);
        }
    }

    /// Gives all files up, because this node is to lead nothing: what is in use to the member that has most of it, what was used last before the
    /// rest. What is not costs nobody anything: whoever is asked for it next leads it.
    pub(crate) fn leave_all_files(&mut self, now: WallTime) {
        let all = self.files.hosted.iter();
        let mut all: Vec<_> =
            all.map(|(&object, hosted)| (Reverse(in_use_until(object, hosted)), object)).collect();
        all.sort_unstable();
        for (Reverse(until), object) in all {
            let successor = self.successor(object).filter(|_| now < until);
            let why = self.unavailable(now).unwrap_or(Unavailable::Stopping);
            self.send_waiting_away(object, &FileReplyBody::Unavailable(why));
            self.leave_file(now, object, successor);
        }
    }

    /// Who is to lead a file next: of those that take leases whoever has most of it.
    pub(crate) fn successor(&self, object: ObjectId) -> Option<NodeId> {
        let takers = self.takers();
        self.files.hosted.get(&object)?.replica.closest(takers)
    }

    /// Nobody may be answered any more, and all leases are given up by the lease protocol itself.
    pub(crate) fn abandon_files(&mut self, now: WallTime) {
        for object in self.files().collect::<Vec<_>>() {
            self.file_not_leased(now, object, &ReplyBody::Unavailable(Unavailable::Clock));
        }
    }

    /// How many files this node leads, or is about to lead or to leave; and of how many of them a member that answers lacks something.
    pub fn primaries(&self) -> (usize, usize) {
        let led = || self.files.hosted.values().filter(|hosted| hosted.stage != Stage::Idle);
        (led().count(), led().filter(|hosted| !hosted.replica.backups_are_settled()).count())
    }

    /// Of which members too few are connected, and how many files and volumes have these, this node among them. Looks at all that it has, unless every
    /// peer is connected.
    pub fn lacking(&self) -> BTreeMap<Members, usize> {
        let mut lacking = BTreeMap::new();
        let me = self.me().node;
        let is_here = |node: &NodeId| *node == me || self.peers.contains_key(node);
        if self.map().osds().all(|osd| is_here(&osd.id)) {
            return lacking;
        }
        for members in self.files.hosted.values().map(|hosted| &hosted.replica.view().members) {
            let here = members.as_slice().iter().filter(|node| is_here(node)).count();
            if members.contains(me) && here < members.majority() {
                *lacking.entry(members.clone()).or_default() += 1;
            }
        }
        lacking
    }

    /// Whether this node has the lease of no file, and wants none.
    pub(crate) fn has_left_files(&self) -> bool {
        self.files.hosted.values().all(|hosted| hosted.stage == Stage::Idle) && !self.files.has_replies()
    }

    /// Recovers files that nobody asks for, if this node may have forgotten something of them: until a tenure has begun
    /// after that, it cannot be counted on, and another member that is gone would be missed.
    fn mend_files(&mut self, now: WallTime) {
        while let Some(object) = self.files.pop_forgotten(now) {
            if self.unavailable(now).is_some() || self.files.is_stalled || !self.is_member(object) {
                continue;
            }
            let Some(hosted) = self.files.hosted.get_mut(&object) else { continue };
            hosted.end_order(now, self.config.file_idle);
            // Who lacks something has asked the others, and one of them leads.
            let is_damaged = hosted.replica.is_unsure() || hosted.replica.lacks();
            if !is_damaged && hosted.stage == Stage::Idle && now >= hosted.avoided_until {
                hosted.stage = Stage::Leasing;
                self.steps.add(object, Step::Acquire);
            }
        }
    }

    /// A peer is connected anew, and may not have heard what is committed of the files that are led here.
    pub(crate) fn tell_files_again(&mut self, now: WallTime, peer: NodeId) {
        for object in self.files.led() {
            if let Some(hosted) = self.files.hosted.get_mut(&object) {
                hosted.replica.tell_again(now, peer);
            }
            self.files.note_due(object);
        }
    }

    /// A peer has lost power, and what it had not synced with it. It may not even know which files there are, and must not be
    /// counted on before it has an entry of a later epoch.
    pub(crate) fn peer_forgot(&mut self, now: WallTime, peer: Process, at: u64) {
        if Token::new(Epoch { number: at, node: peer.node }, 1).is_none() && at > 0 {
            return self.tell(ShardEvent::Misbehaved { peer, what: "forgot an epoch that cannot be" });
        }
        let mut led = Vec::new();
        let is_new = self.files.forgetful.insert(peer.node, peer.incarnation) != Some(peer.incarnation);
        for (&object, hosted) in self.files.hosted.iter_mut().filter(|_| is_new) {
            let is_led = matches!(hosted.stage, Stage::Leading | Stage::Numbering(_));
            if is_led && hosted.replica.view().members.contains(peer.node) {
                hosted.highest = hosted.highest.max(at);
                led.push(object);
            }
        }
        // What it acknowledged to this tenure does not count any more.
        led.into_iter().for_each(|object| self.lead_file(now, object));
        self.files.list_for(now, peer.node);
    }

    /// Tells peers that forgot which files there are: they see to it that those are recovered.
    fn list_files(&mut self, now: WallTime) {
        for (to, object) in self.files.poll_listed(now) {
            let Some(hosted) = self.files.hosted.get(&object) else { continue };
            let view = hosted.replica.view().id;
            let message = Message::There { epoch: Epoch::default() };
            self.send_file(to, FileMessage { object, view, message });
        }
    }

    /// A node whose disk does nothing leads nothing: it could never answer for what it orders.
    pub(crate) fn check_disk(&mut self, now: WallTime) {
        let stalled_at = self.files.writes.stalled_at(self.config.stalled_after);
        let is_stalled = stalled_at.is_some_and(|at| at <= now) && !self.config.breaks(Bug::StalledDiskLeads);
        if std::mem::replace(&mut self.files.is_stalled, is_stalled) == is_stalled {
            return;
        }
        self.tell(ShardEvent::DiskStalled(is_stalled));
        self.tell_whether_it_takes(now);
        let is_led = |hosted: &Hosted| matches!(hosted.stage, Stage::Leading | Stage::Numbering(_));
        let led = self.files.hosted.iter().filter(|(_, hosted)| is_stalled && is_led(hosted));
        for object in led.map(|(&object, _)| object).collect::<Vec<_>>() {
            let successor = self.successor(object);
            self.send_waiting_away(object, &FileReplyBody::Unavailable(Unavailable::NoMajority));
            self.leave_file(now, object, successor);
        }
    }

    /// What waited for the epoch ceiling.
    pub(crate) fn take_deferred_files(&mut self, now: WallTime) {
        for (_, from, message) in std::mem::take(&mut self.files.deferred) {
            self.handle_file_message(now, from, message);
        }
        let numbering =
            self.files.hosted.iter().filter(|(_, hosted)| matches!(hosted.stage, Stage::Numbering(_)));
        let numbering: Vec<ObjectId> = numbering.map(|(&object, _)| object).collect();
        numbering.into_iter().for_each(|object| self.lead_file(now, object));
    }
}

/// Until when it is in use. Volumes always are, and so is what somebody waits for, or may change without asking.
fn in_use_until(object: ObjectId, hosted: &Hosted) -> WallTime {
    let is_wanted = is_volume(object) || !hosted.is_quiet() || hosted.lends_on();
    if is_wanted { WallTime::MAX } else { hosted.used + IN_USE_FOR }
}
