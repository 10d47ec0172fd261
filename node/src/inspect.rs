//! What a daemon says about one object when it is asked: plain data for `fleasefs who` and `fleasefs why`.
//!
//! Times are node time: all daemons' clocks agree within ε. What is told is what this daemon has seen, which may be less than
//! what there was; [`tenures`](crate::tenures) puts together what several have seen.
//!
//! Layout: postcard encodes these in the order of their fields and variants.

use base::{Epoch, MEMBERS_MAX, NodeId, ObjectId, Process, Seq, WallTime};
use lease::{Algorithm, Ended, TrailEntry, TrailKind};
use replication::{Memory, Replica, Standing};
use serde::{Deserialize, Serialize};

use crate::file::File;
use crate::files::Stage;
use crate::message::is_lock;
use crate::{Shard, bounded};

/// So many changes of a lease are told of, the latest.
pub const TRAIL_TOLD_MAX: usize = 256;

/// One daemon's view of an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Inspection {
    /// Which object.
    pub object: ObjectId,
    /// Who says so.
    pub by: Process,
    /// When.
    pub at: WallTime,
    /// The members of its cell, as far as this daemon knows.
    #[serde(deserialize_with = "bounded::list::<MEMBERS_MAX, _, _>")]
    pub members: Vec<NodeId>,
    /// Who has its lease, if this daemon knows of one.
    pub owner: Option<OwnerSeen>,
    /// Whether this daemon leads it.
    pub leads: LeadsSeen,
    /// What this daemon has of it.
    pub replica: Option<ReplicaSeen>,
    /// What this daemon remembers about its leases, oldest first.
    #[serde(deserialize_with = "bounded::list::<TRAIL_TOLD_MAX, _, _>")]
    pub trail: Vec<TrailSeen>,
}

/// A lease that is valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OwnerSeen {
    /// Whose.
    pub process: Process,
    /// Until when, unless it is renewed.
    pub until: WallTime,
}

/// How far a daemon is with leading something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LeadsSeen {
    /// It does not.
    No,
    /// It wants the lease.
    Leasing,
    /// It has the lease, and recovers what was before.
    Recovering,
    /// It serves.
    Serving,
    /// It gives the lease up.
    Leaving,
}

/// A daemon's copy of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicaSeen {
    /// The epoch of the last entry here.
    pub epoch: Epoch,
    /// The number of the last entry here.
    pub tail: Seq,
    /// Up to which entry it is known to be committed.
    pub committed: Seq,
    /// Whether it can be counted on.
    pub state: ReplicaState,
}

/// Whether a copy can be counted on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ReplicaState {
    /// All that it ever acknowledged is here.
    Whole,
    /// It may have lost what it had not synced when its power failed.
    Forgot,
    /// It is being given content anew.
    Incomplete,
    /// It is no member any more.
    Retired,
}

/// A change of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TrailSeen {
    /// When.
    pub at: WallTime,
    /// The id of the lease.
    pub lease: u64,
    /// Whose it is.
    pub owner: Process,
    /// What happened.
    pub what: TrailWhat,
}

/// What happened to a lease, as one daemon saw it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrailWhat {
    /// This daemon voted for it.
    VotedFor {
        /// Until when, unless it is renewed.
        until: WallTime,
        /// The id of the lease before, 0 if nobody remembered one.
        previous: u64,
        /// How that one ended.
        ended: EndedSeen,
    },
    /// A majority voted for this daemon.
    Decided {
        /// Until when, unless it is renewed.
        until: WallTime,
        /// Who had voted by then: a bit for each member, in order.
        voters: u16,
    },
    /// This daemon voted for its owner giving it up.
    GivenUp {
        /// The named successor.
        successor: Option<NodeId>,
    },
    /// This daemon owned it and lost it.
    Lost,
}

/// How a lease ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedSeen {
    /// Nobody remembers.
    Unknown,
    /// Its owner gave it up.
    Released,
    /// Nobody renewed it.
    Expired,
    /// A witness reported its owner's death.
    Died,
    /// Its owner named a successor.
    HandedOver,
}

impl<A: Algorithm> Shard<A> {
    /// What this node knows of an object, of which it may have nothing.
    pub fn inspect(&self, now: WallTime, object: ObjectId) -> Inspection {
        let hosted = self.files.hosted.get(&object);
        let leads = match hosted.map(|hosted| (hosted.stage, hosted.replica.standing())) {
            None if self.locks.contains_key(&object) => LeadsSeen::Serving,
            None | Some((Stage::Idle, _)) => LeadsSeen::No,
            Some((Stage::Leasing, _)) => LeadsSeen::Leasing,
            Some((Stage::Leading, Standing::Serving)) => LeadsSeen::Serving,
            Some((Stage::Numbering(_) | Stage::Leading, _)) => LeadsSeen::Recovering,
            Some((Stage::Leaving, _)) => LeadsSeen::Leaving,
        };
        let members =
            if is_lock(object) { self.map().view(object).members.clone() } else { self.members_of(object) };
        let owner = self.lease.hint(now, object);
        let trail: Vec<TrailSeen> = self.lease.trail(object).map(TrailSeen::from).collect();
        let told = trail.len().saturating_sub(TRAIL_TOLD_MAX);
        Inspection {
            object,
            by: self.me(),
            at: now,
            members: members.as_slice().to_vec(),
            owner: owner.map(|hint| OwnerSeen { process: hint.owner, until: hint.until }),
            leads,
            replica: hosted.map(|hosted| ReplicaSeen::of(&hosted.replica)),
            trail: trail.into_iter().skip(told).collect(),
        }
    }
}

impl ReplicaSeen {
    fn of(replica: &Replica<File>) -> Self {
        let state = match replica.memory() {
            _ if replica.standing() == Standing::Retired => ReplicaState::Retired,
            Memory::Forgot => ReplicaState::Forgot,
            Memory::Mixed { .. } | Memory::Torn => ReplicaState::Incomplete,
            Memory::Clean if replica.lacks() => ReplicaState::Incomplete,
            Memory::Clean => ReplicaState::Whole,
        };
        let tail = replica.tail();
        Self { epoch: tail.epoch, tail: tail.seq, committed: replica.committed().seq, state }
    }
}

impl From<&TrailEntry> for TrailSeen {
    fn from(entry: &TrailEntry) -> Self {
        let what = match entry.kind {
            TrailKind::VotedFor { until, previous, ended } => {
                TrailWhat::VotedFor { until, previous: previous.0, ended: ended.into() }
            }
            TrailKind::Decided { until, voters } => TrailWhat::Decided { until, voters },
            TrailKind::GivenUp { successor } => TrailWhat::GivenUp { successor },
            TrailKind::Lost => TrailWhat::Lost,
        };
        Self { at: entry.at, lease: entry.lease.0, owner: entry.owner, what }
    }
}

impl From<Ended> for EndedSeen {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Unknown => Self::Unknown,
            Ended::Released => Self::Released,
            Ended::Expired => Self::Expired,
            Ended::Died => Self::Died,
            Ended::HandedOver => Self::HandedOver,
        }
    }
}
