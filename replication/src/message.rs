//! What the replicas of one object tell each other.
//!
//! Every message names the epoch of the primary that it is from or for. Who has promised a later one does not act on
//! it (R1).

use base::{Epoch, Seq};

use crate::{Entry, Position};

/// A message between two replicas of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<O> {
    /// Who wants to be primary asks for the promise to follow nobody earlier.
    Promise {
        /// Its epoch.
        epoch: Epoch,
    },
    /// The promise is given.
    Promised {
        /// To whom.
        epoch: Epoch,
        /// The end of the log here.
        tail: Position,
        /// Up to where it is known to be committed.
        committed: Seq,
    },
    /// This replica follows somebody later.
    Refused {
        /// Whom it does not follow.
        epoch: Epoch,
        /// Whom it follows.
        promised: Epoch,
    },
    /// A new primary lacks what stands behind `after`, which it knows to be committed.
    Fetch {
        /// Its epoch.
        epoch: Epoch,
        /// The last entry that it keeps.
        after: Position,
    },
    /// The primary's log behind `after`, or, for a new primary, its predecessor's as the sender has it.
    Append {
        /// The primary's epoch, which is not below that of any entry.
        epoch: Epoch,
        /// The predecessor of the first entry.
        after: Position,
        /// In order, without a gap. None if only `committed` is told.
        entries: Vec<Entry<O>>,
        /// Up to where the sender knows them to be committed.
        committed: Seq,
    },
    /// The entries up to here are in the journal.
    Appended {
        /// The primary's epoch.
        epoch: Epoch,
        /// The last one that is the same as the primary's.
        upto: Position,
    },
    /// What stands before the entries of an [`Append`](Self::Append) is not here, or not the same.
    Missing {
        /// The primary's epoch.
        epoch: Epoch,
        /// The place from which on this replica wants to be told.
        committed: Seq,
    },
    /// Entries up to here are to be made durable.
    Sync {
        /// The primary's epoch.
        epoch: Epoch,
        /// The last of them.
        upto: Position,
    },
    /// The entries up to here are durable, and everything before them.
    Synced {
        /// The primary's epoch.
        epoch: Epoch,
        /// The last of them.
        upto: Position,
    },
}

impl<O> Message<O> {
    /// The epoch that the message is from or for.
    pub const fn epoch(&self) -> Epoch {
        match *self {
            Self::Promise { epoch }
            | Self::Promised { epoch, .. }
            | Self::Refused { epoch, .. }
            | Self::Fetch { epoch, .. }
            | Self::Append { epoch, .. }
            | Self::Appended { epoch, .. }
            | Self::Missing { epoch, .. }
            | Self::Sync { epoch, .. }
            | Self::Synced { epoch, .. } => epoch,
        }
    }
}
