//! Entries: what is ordered, and how a place in the order is named.

use base::{ClientId, Epoch, Members, Seq, View, ViewId, WallTime};

/// Where an entry stands in an object's log: the epoch it was born in, and its place.
///
/// Entries keep their position for ever, whoever commits them, so that equal positions mean equal histories. Positions
/// are ordered as histories are: what a later epoch recovered holds all that an earlier one committed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    /// The epoch of its birth.
    pub epoch: Epoch,
    /// Its place, counted from 1.
    pub seq: Seq,
}

/// One step of an object's history.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Entry<O> {
    /// Its name.
    pub at: Position,
    /// The lease it was written under, for the trail.
    pub lease: u64,
    /// What happens.
    pub body: Body<O>,
}

/// What an entry does.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Body<O> {
    /// A tenure begins: what it recovered is committed together with this.
    Barrier {
        /// The last tenure that may have recovered less than was acknowledged as written.
        generation: Epoch,
    },
    /// Something that a client asked for.
    Op {
        /// Which request, so that it takes effect once.
        request: Request,
        /// What changes.
        op: O,
    },
    /// A client is over: its requests are refused from here on.
    Expire {
        /// Whose.
        client: ClientId,
        /// When, by the clock of the primary.
        since: WallTime,
        /// Clients that were over before this time need not be remembered any more.
        forget: WallTime,
    },
    /// These are the members from here on.
    View(Members),
    /// Every member of every earlier view knows of this one, and keeps that.
    Settled(ViewId),
}

/// A request of a client. Whoever retries it sends the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Request {
    /// Whose.
    pub client: ClientId,
    /// Counted by the client from 1, for this object.
    pub number: u64,
    /// The client has the answers to all requests below this one, so nobody has to remember them.
    pub settled: u64,
}

impl Position {
    /// Before the first entry.
    pub const START: Self = Self { epoch: Epoch { number: 0, node: base::NodeId(0) }, seq: Seq(0) };

    /// The position that follows this one in an epoch.
    pub(crate) const fn next_in(self, epoch: Epoch) -> Self {
        Self { epoch, seq: Seq(self.seq.0 + 1) }
    }
}

impl<O> Entry<O> {
    /// The view that begins here.
    pub(crate) fn view(&self) -> Option<View> {
        match &self.body {
            Body::View(members) => Some(View { id: self.at.into(), members: members.clone() }),
            _ => None,
        }
    }
}

impl From<ViewId> for Position {
    fn from(view: ViewId) -> Self {
        Self { epoch: view.epoch, seq: view.seq }
    }
}

impl From<Position> for ViewId {
    fn from(at: Position) -> Self {
        Self { epoch: at.epoch, seq: at.seq }
    }
}
