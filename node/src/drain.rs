//! Leading nothing: a shard that stops, or that an operator has drained, gives its leases up and takes no new ones.
//!
//! It goes on to vote and to replicate. Each lease is handed over to a member that takes leases: who does not, because it started
//! recently, cannot trust its clock, or is drained itself, would keep everybody waiting until that lease has run out. So daemons tell each
//! other whether they take leases. Where no other member does, the lease is free for whoever can have it first.
//!
//! An operator's order stands until it is taken back, and so the store keeps it.

use std::collections::BTreeSet;

use base::{Members, NodeId, ObjectId, WallTime};
use lease::Algorithm;

use crate::{Output, PeerMessage, Shard};

/// Who wants this shard to lead nothing, and which peers may be given what it leads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drain {
    /// The process is about to end.
    pub(crate) is_stopping: bool,
    /// An operator has ordered it.
    pub(crate) is_ordered: bool,
    /// What the store has of that order, and whether it is being told.
    is_kept: bool,
    is_being_kept: bool,
    /// Connected peers that take leases.
    pub(crate) takers: BTreeSet<NodeId>,
    /// Whether peers were told that this node takes leases.
    told: bool,
}

/// Why a daemon is not drained.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DrainError {
    /// It is about to end anyway.
    #[error("it is stopping")]
    Stopping,
    /// What it stores has too few other members that can do without it.
    #[error("{}", without(.members, .missing))]
    NoMajority {
        /// The members of something that it stores.
        members: Members,
        /// One of them that takes no leases either.
        missing: Option<NodeId>,
    },
}

fn without(members: &Members, missing: &Option<NodeId>) -> String {
    let members: Vec<String> = members.as_slice().iter().map(|node| node.0.to_string()).collect();
    let members = members.join(", ");
    match missing {
        Some(missing) => format!(
            "if it were stopped then, what daemons {members} store would lack a majority: daemon {} takes no leases, because it is gone, \
             drained, or started recently, or because its clock or its disk is not to be relied on; see `fleasefs status`",
            missing.0
        ),
        None => format!("what daemon {members} stores no other daemon has"),
    }
}

/// How far a shard is with giving its leases up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DrainStatus {
    /// It takes leases.
    #[default]
    No,
    /// An operator has drained it, and it still has some.
    Draining,
    /// An operator has drained it, and it leads nothing.
    Drained,
    /// It is about to end.
    Stopping,
}

impl<A: Algorithm> Shard<A> {
    /// Gives every lease up, because the process is about to end.
    pub fn drain(&mut self, now: WallTime) {
        if !std::mem::replace(&mut self.drain.is_stopping, true) && !self.drain.is_ordered {
            self.leave_all(now);
        }
    }

    /// An operator wants this node to lead nothing, until it is [told otherwise](Self::undrain). Refused if what it stores would lack a
    /// majority should it then be stopped, unless that is to be `forced`.
    pub fn order_drain(&mut self, now: WallTime, forced: bool) -> Result<(), DrainError> {
        if self.drain.is_stopping {
            return Err(DrainError::Stopping);
        }
        if self.drain.is_ordered {
            return Ok(());
        }
        if let Some(without) = self.lacking_majority().filter(|_| !forced) {
            return Err(without);
        }
        self.drain.is_ordered = true;
        self.keep_drain();
        self.leave_all(now);
        Ok(())
    }

    /// An operator wants this node to lead again what it is asked for.
    pub fn undrain(&mut self, now: WallTime) -> Result<(), DrainError> {
        if self.drain.is_stopping {
            return Err(DrainError::Stopping);
        }
        self.drain.is_ordered = false;
        self.keep_drain();
        self.tell_whether_it_takes(now);
        Ok(())
    }

    /// Whether an operator has drained this node before it started: to be called before anything else happens.
    pub const fn begin(&mut self, is_drained: bool) {
        (self.drain.is_ordered, self.drain.is_kept) = (is_drained, is_drained);
    }

    /// The store keeps whether an operator has drained this node.
    pub fn handle_drain_kept(&mut self, is_drained: bool) {
        (self.drain.is_kept, self.drain.is_being_kept) = (is_drained, false);
        self.keep_drain();
    }

    /// Whether it gives up what it has, and takes nothing.
    pub const fn is_draining(&self) -> bool {
        self.drain.is_stopping || self.drain.is_ordered
    }

    /// Whether everything is given up. It looks at every file.
    pub fn is_drained(&self) -> bool {
        self.is_draining()
            && self.locks.is_empty()
            && self.leased.is_empty()
            && self.has_left_files()
            && self.steps.len() == 0
            && self.has_posted_all()
    }

    /// How far it is.
    pub fn drain_status(&self) -> DrainStatus {
        match (self.drain.is_stopping, self.drain.is_ordered) {
            (true, _) => DrainStatus::Stopping,
            (false, true) if self.drain.is_kept && self.is_drained() => DrainStatus::Drained,
            (false, true) => DrainStatus::Draining,
            (false, false) => DrainStatus::No,
        }
    }

    /// The peers that take leases, those after this node first: so each has its turn.
    pub(crate) fn takers(&self) -> Vec<NodeId> {
        let mut takers: Vec<NodeId> = self.drain.takers.iter().copied().collect();
        takers.sort_by_key(|&node| (node < self.me().node, node));
        takers
    }

    /// Which peer takes leases, and which does not.
    pub(crate) fn peer_takes(&mut self, node: NodeId, takes: bool) {
        if takes {
            self.drain.takers.insert(node);
        } else {
            self.drain.takers.remove(&node);
        }
    }

    /// Tells a peer that was just connected.
    pub(crate) fn tell_taking_to(&mut self, node: NodeId) {
        if self.drain.told {
            self.post(node, PeerMessage::Takes(true));
        }
    }

    /// Tells peers whether this node takes leases, if that is not what they were told.
    pub(crate) fn tell_whether_it_takes(&mut self, now: WallTime) {
        let takes = self.unavailable(now).is_none() && !self.files.is_stalled;
        if std::mem::replace(&mut self.drain.told, takes) == takes {
            return;
        }
        let peers: Vec<NodeId> = self.peers.keys().copied().collect();
        peers.into_iter().for_each(|peer| self.post(peer, PeerMessage::Takes(takes)));
    }

    /// One thing after the other, so that the last is what stays.
    fn keep_drain(&mut self) {
        let Drain { is_ordered, is_kept, .. } = self.drain;
        if is_ordered != is_kept && !std::mem::replace(&mut self.drain.is_being_kept, true) {
            self.hand_out(Output::KeepDrained(is_ordered));
        }
    }

    fn leave_all(&mut self, now: WallTime) {
        self.tell_whether_it_takes(now);
        let cells: Vec<ObjectId> = self.locks.keys().copied().collect();
        cells.into_iter().for_each(|cell| self.leave_lock(now, cell));
        let leased: Vec<ObjectId> = self.leased.keys().copied().collect();
        leased.into_iter().for_each(|cell| self.drop_lease(cell));
        self.leave_all_files(now);
        self.take_events(now);
    }

    /// The members of something here, if those of them that take leases are no majority without this node.
    fn lacking_majority(&self) -> Option<DrainError> {
        let hosted = self.files.hosted.values().map(|hosted| &hosted.replica.view().members);
        let mut views: BTreeSet<&Members> = hosted.collect();
        // Where all daemons are members of everything, that goes for what comes, too.
        views.extend(self.map().common_view().map(|view| &view.members));
        views.into_iter().find_map(|members| {
            let others = || members.as_slice().iter().copied().filter(|&node| node != self.me().node);
            let takers = others().filter(|node| self.drain.takers.contains(node)).count();
            let missing = others().find(|node| !self.drain.takers.contains(node));
            (takers < members.majority())
                .then(|| DrainError::NoMajority { members: members.clone(), missing })
        })
    }
}
