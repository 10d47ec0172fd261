//! Why something is not done. Nothing has changed then.

use base::{Epoch, NodeId};

use crate::{Position, Request};

/// A journal that no replica has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "record {record} of the journal does not follow from those before it; repair this replica from the others"
)]
pub struct JournalError {
    /// Which record, counted from 0.
    pub record: usize,
}

/// Why a tenure cannot begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LeadError {
    /// A later one was promised.
    #[error("epoch {asked:?} is not above {promised:?}, which is promised; take a higher one")]
    Outbid {
        /// The epoch.
        asked: Epoch,
        /// Who is followed.
        promised: Epoch,
    },
    /// The epoch names another node, or this node is no member.
    #[error("node {0:?} cannot lead here: it is no member, or the epoch is another node's")]
    NotOurs(NodeId),
    /// This replica has no whole state.
    #[error("this replica is taking over its state from another one, which should lead")]
    Incomplete,
}

/// Why a request is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProposeError {
    /// Somebody else is, or nobody.
    #[error("this replica is not the primary; ask another one")]
    NotPrimary,
    /// It is, but does not know yet what was before.
    #[error("the primary is recovering; ask again")]
    Recovering,
    /// Too much is under way.
    #[error("too many requests are under way; ask again")]
    Busy,
    /// The client has too many requests whose answers it may want again.
    #[error("the client has not said of enough requests that it has the answers; settle some, and ask again")]
    Unsettled,
    /// No more clients can be told apart.
    #[error("as many clients as may be have asked for something; ask again when one of them is over")]
    Full,
    /// No operation may be so large.
    #[error("an operation of {bytes} bytes is larger than {bytes_max}; split it")]
    TooLarge {
        /// What it costs.
        bytes: u64,
        /// What one may cost.
        bytes_max: u64,
    },
    /// The client is over.
    #[error("the client was declared dead; begin a new session")]
    Expired,
    /// The client said that it has the answer.
    #[error("the request {0:?} was answered before, and its client said so")]
    Settled(Request),
}

/// Why a question is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AskError {
    /// See [`ProposeError::NotPrimary`].
    #[error("this replica is not the primary; ask another one")]
    NotPrimary,
    /// See [`ProposeError::Recovering`].
    #[error("the primary is recovering; ask again")]
    Recovering,
    /// Too many are waiting.
    #[error("too many questions are waiting; ask again")]
    Busy,
}

/// Why a sync is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SyncError {
    /// As for a question.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// What was acknowledged may be gone.
    #[error("what was written at {0:?} may have been lost with the power of several nodes; write it again")]
    Lost(Position),
}

/// Why the members do not change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ChangeError {
    /// As for a question.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// One at a time.
    #[error("another change of the members is under way; ask again when it is done")]
    Changing,
    /// It is one, or it is none.
    #[error("node {0:?} is a member already")]
    Member(NodeId),
    /// It is none.
    #[error("node {0:?} is no member")]
    NotMember(NodeId),
    /// Too many, or none left.
    #[error("an object has between 1 and {} members", base::MEMBERS_MAX)]
    Count,
}
