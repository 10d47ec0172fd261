//! What the replicas of one object tell each other.
//!
//! Every message names the epoch of the primary that it is from or for. Who has promised a later one does not act on
//! it (R1). With every message travels the last view that its sender knows to be committed.

use base::{Epoch, NodeId, Seq, View, ViewId};

use crate::{Entry, Machine, Position, Rest};

/// Parts of a state and their versions, in the order of their keys. None are to be taken away.
pub type Parts<M> = Vec<(<M as Machine>::Key, Option<(Position, <M as Machine>::Part)>)>;

/// A message between two replicas of an object.
#[derive(Clone, PartialEq, Debug)]
pub enum Message<M: Machine> {
    /// Who wants to be primary asks for the promise to follow nobody earlier.
    Promise {
        /// Its epoch.
        epoch: Epoch,
        /// Every tenure of the object has an epoch above this number.
        begun_after: u64,
    },
    /// The promise is given.
    Promised {
        /// To whom.
        epoch: Epoch,
        /// What is here.
        account: Account,
    },
    /// This replica follows somebody later.
    Refused {
        /// Whom it does not follow.
        epoch: Epoch,
        /// Whom it follows.
        promised: Epoch,
    },
    /// The sender of a message does not know this view, which is committed.
    WrongView {
        /// Whom it is told.
        epoch: Epoch,
        /// The view.
        current: View,
    },
    /// A new primary lacks what stands behind `after`, which it knows to be committed.
    Fetch {
        /// Its epoch.
        epoch: Epoch,
        /// The last entry that it keeps.
        after: Position,
    },
    /// What a new primary lacks cannot be given as entries; who has it should be primary instead.
    Apart {
        /// The primary's epoch.
        epoch: Epoch,
    },
    /// The primary's log behind `after`, or, for a new primary, its predecessor's as the sender has it.
    Append {
        /// The primary's epoch, which is not below that of any entry.
        epoch: Epoch,
        /// The predecessor of the first entry.
        after: Position,
        /// In order, without a gap. None if only `committed` is told.
        entries: Vec<Entry<M::Op>>,
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
        /// The last entry here that is known to be committed. None if there is no state here that makes sense.
        committed: Option<Position>,
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
        /// The last of them. The start of all: it is still being written what the sender was given.
        upto: Position,
    },
    /// Entries will not help: the receiver is to take over a state. It is durable at the sender.
    Offer {
        /// The primary's epoch.
        epoch: Epoch,
        /// After which entry.
        at: Position,
        /// Its loss generation.
        generation: Epoch,
    },
    /// Asks for the parts behind `after` up to `upto` that are not as the asker has them.
    Pull {
        /// The primary's epoch.
        epoch: Epoch,
        /// Which state.
        at: Position,
        /// Where to begin; at the first part if there is none.
        after: Option<M::Key>,
        /// Where to end; behind the last part if there is none.
        upto: Option<M::Key>,
        /// The versions of the parts in between that the asker has.
        have: Vec<(M::Key, Position)>,
    },
    /// The answer.
    Pulled {
        /// The primary's epoch.
        epoch: Epoch,
        /// Which state.
        at: Position,
        /// What comes next of it.
        page: Page<M>,
    },
    /// Tells somebody who was ever a member of a view that is committed.
    Adopt {
        /// The primary's epoch.
        epoch: Epoch,
        /// The view.
        view: View,
    },
    /// The sender knows a view for good.
    Adopted {
        /// Whom it tells, if anybody asked.
        epoch: Epoch,
        /// The view.
        view: ViewId,
    },
    /// The sender has heard of a later view than the one that goes along, and wants to know it.
    WhichView {
        /// Made up: it names the sender, who need not be primary.
        epoch: Epoch,
    },
    /// The sender has something of the object: for members that may have forgotten that there is one.
    There {
        /// Nobody's.
        epoch: Epoch,
    },
    /// The sender cannot read parts of its state any more, and wants them in just these versions.
    Lacks {
        /// Made up: it names the sender, who need not be primary.
        epoch: Epoch,
        /// After which entry its state is; an earlier one is of no use to it.
        at: Position,
        /// Which. None if it needs the whole of a state.
        parts: Vec<(M::Key, Position)>,
    },
    /// The answer: those that are here. What is not among them has changed here, or has not come yet.
    Found {
        /// Whom it answers.
        epoch: Epoch,
        /// As many as fit.
        parts: Parts<M>,
    },
    /// Nobody will ask that node about the object any more, which is no member, or the object is over.
    Forget {
        /// The primary's epoch.
        epoch: Epoch,
        /// The view that everybody knows of.
        view: ViewId,
    },
}

/// How a state differs from what somebody has behind some part, as far as it goes.
#[derive(Clone, PartialEq, Debug)]
pub struct Page<M: Machine> {
    /// Behind which part; from the first on if there is none.
    pub after: Option<M::Key>,
    /// Up to which part; to the end of the state if there is none.
    pub upto: Option<M::Key>,
    /// What is different.
    pub parts: Parts<M>,
    /// What is not, by its versions. Whoever finds that it is has asked before something changed.
    pub same: Vec<(M::Key, Position)>,
    /// Comes with the end of the state.
    pub rest: Option<Box<Rest<M::Outcome>>>,
}

/// What a replica that promises has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Account {
    /// The end of its log.
    pub tail: Position,
    /// Up to where it knows it to be committed.
    pub committed: Position,
    /// What may be counted on.
    pub memory: Memory,
    /// If parts of its state are damaged, after which entry that is. Its log, which goes on behind that, is sound; but
    /// nobody can have the state from it.
    pub frozen_at: Option<Position>,
}

/// Whether a replica has all that it has ever acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Memory {
    /// It has.
    Clean,
    /// It may have lost what it had written and not synced.
    Forgot,
    /// It was taking over a state: what it has makes no sense, but all that it ever acknowledged is in what `source`
    /// has on disk.
    Mixed {
        /// Whose state.
        source: NodeId,
    },
    /// It was taking over a state as far as it remembers, and may have acknowledged more after that; or what it had
    /// was damaged, and it has not got back yet all that it acknowledged. Nobody is known to have the rest.
    Torn,
}

impl Memory {
    /// Whether there is a state that makes sense.
    pub(crate) const fn is_whole(self) -> bool {
        match self {
            Self::Clean | Self::Forgot => true,
            Self::Mixed { .. } | Self::Torn => false,
        }
    }
}

impl<M: Machine> Message<M> {
    /// The epoch that the message is from or for.
    pub const fn epoch(&self) -> Epoch {
        match *self {
            Self::Promise { epoch, .. }
            | Self::Promised { epoch, .. }
            | Self::Refused { epoch, .. }
            | Self::WrongView { epoch, .. }
            | Self::Fetch { epoch, .. }
            | Self::Apart { epoch }
            | Self::Append { epoch, .. }
            | Self::Appended { epoch, .. }
            | Self::Missing { epoch, .. }
            | Self::Sync { epoch, .. }
            | Self::Synced { epoch, .. }
            | Self::Offer { epoch, .. }
            | Self::Pull { epoch, .. }
            | Self::Pulled { epoch, .. }
            | Self::Adopt { epoch, .. }
            | Self::Adopted { epoch, .. }
            | Self::WhichView { epoch }
            | Self::There { epoch }
            | Self::Lacks { epoch, .. }
            | Self::Found { epoch, .. }
            | Self::Forget { epoch, .. } => epoch,
        }
    }
}
