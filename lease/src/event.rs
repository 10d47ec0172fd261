//! What the lease crate tells the rest of the node.

use base::{NodeId, ObjectId, Process, View, ViewId, WallTime};

use crate::{Ended, LeaseId, Watermark};

/// Something happened to a lease.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// This node owns the cell.
    Acquired {
        /// The cell.
        cell: ObjectId,
        /// The new tenure.
        lease: LeaseId,
        /// Until when, unless renewed.
        until: WallTime,
        /// The tenure before, if known, and how it ended.
        previous: LeaseId,
        /// How it ended.
        ended: Ended,
        /// What the last owner left, if it gave the lease up.
        watermark: Option<Watermark>,
    },
    /// This node's lease lasts longer.
    Renewed {
        /// The cell.
        cell: ObjectId,
        /// Until when, unless renewed again.
        until: WallTime,
    },
    /// This node does not get the cell; it may ask again.
    Denied {
        /// The cell.
        cell: ObjectId,
        /// Why not.
        why: Denial,
    },
    /// This node's lease ended against its will.
    Lost {
        /// The cell.
        cell: ObjectId,
        /// The tenure that ended.
        lease: LeaseId,
        /// Why.
        why: Loss,
    },
    /// This node is done giving its lease up.
    GivenUp {
        /// The cell.
        cell: ObjectId,
        /// Whether a majority knows; otherwise the next owner must wait for the expiry.
        confirmed: bool,
    },
    /// The owner named this node as its successor.
    Offered {
        /// The cell.
        cell: ObjectId,
        /// Who offers it.
        by: Process,
    },
    /// A peer knows a newer view of the cell.
    WrongView {
        /// The cell.
        cell: ObjectId,
        /// The newer view.
        current: View,
    },
    /// A peer's message names a view that is not known here yet.
    ViewBehind {
        /// The cell.
        cell: ObjectId,
        /// The view it named.
        seen: ViewId,
        /// Who knows it.
        peer: NodeId,
    },
    /// A peer runs with other cluster-wide settings; its messages are ignored.
    SettingsDiffer {
        /// The peer.
        peer: NodeId,
    },
}

/// Why an acquisition ended without a lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Denial {
    /// Another process holds it, as far as a majority knows; ask again at `until`.
    Held {
        /// The owner.
        by: Process,
        /// When it is free at the latest, unless renewed.
        until: WallTime,
    },
    /// Too many attempts met higher ballots.
    Contended,
    /// No majority answered.
    NoMajority,
    /// The view changed and this node is no longer in it.
    NotMember,
    /// The node stood down.
    StoodDown,
    /// The clock is at the end of its range.
    ClockExhausted,
}

/// Why a lease was lost.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Loss {
    /// It could not be renewed in time.
    Expired,
    /// A majority reports another value although the lease has not expired: a clock is beyond its bound.
    Superseded,
    /// The view changed and this node is no longer in it.
    NotMember,
}

/// Why a command was refused at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Silent after a start.
    #[error("this node started recently and may not vote before {until:?}")]
    Quarantined {
        /// When that ends.
        until: WallTime,
    },
    /// The clock guard made the node stand down.
    #[error("this node stood down because its clock cannot be trusted")]
    StoodDown,
    /// Nobody supplied a view.
    #[error("no view of this cell is known here")]
    UnknownCell,
    /// Not a replica, or the successor is none.
    #[error("the cell's view does not have this node, or the named successor beside it, as a member")]
    NotMember,
    /// The local register shows a valid lease of another process: ask there, or again at `until`.
    #[error("{by:?} holds the lease until {until:?}")]
    Held {
        /// The owner.
        by: Process,
        /// When it is free at the latest, unless renewed.
        until: WallTime,
    },
    /// There is no lease to give up.
    #[error("this node does not hold the lease")]
    NotHeld,
    /// The lease is being given up; wait for that to end.
    #[error("the lease is being given up")]
    GivingUp,
    /// The limit of claims is reached.
    #[error("this node already wants or holds as many leases as its limit allows")]
    Full,
}
