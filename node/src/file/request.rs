//! What clients ask about files, and what they are told. Data travels as it is: these have no byte layout of their own.

use base::{NodeId, ObjectId};

use super::{Answer, Change, Done, FileError, FileOf, Mark, Query};
use crate::{RequestId, Unavailable};

/// One request about a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileRequest {
    /// Names it in the reply.
    pub id: RequestId,
    /// The file.
    pub object: ObjectId,
    /// If it is a volume's, which that is.
    pub of: Option<FileOf>,
    /// What is asked.
    pub body: FileBody,
}

/// What a client may ask about a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileBody {
    /// The file begins, if it is not there.
    Create,
    /// Change it, once.
    Change {
        /// Counts the client's changes of this file from 1. Whoever sends one again sends the same number.
        number: u64,
        /// The client has the replies to all changes below this one.
        settled: u64,
        /// When to reply.
        level: Level,
        /// The change.
        change: Change,
    },
    /// A question.
    Ask(Query),
    /// Make durable what was written.
    Sync {
        /// The first change that is not known to be durable.
        oldest: Mark,
        /// The last.
        newest: Mark,
    },
}

/// How safe a change is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// A majority has it in its journal.
    Written,
    /// The disks of a majority have it.
    Durable,
}

impl FileBody {
    /// How much data it carries.
    pub fn data_bytes(&self) -> u64 {
        match self {
            Self::Change { change, .. } => change.data_bytes(),
            Self::Create | Self::Ask(_) | Self::Sync { .. } => 0,
        }
    }
}

/// The reply to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileReply {
    /// To which request.
    pub id: RequestId,
    /// The reply.
    pub body: FileReplyBody,
}

/// What a client is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileReplyBody {
    /// The file is there.
    Exists,
    /// The change took effect, now or when it was asked for before; or it cannot, and never will.
    Changed {
        /// What came of it.
        outcome: Result<Done, FileError>,
        /// What to sync.
        mark: Mark,
        /// How safe it is, which may be less than was wanted.
        level: Level,
    },
    /// The answer to a question.
    Answer(Result<Answer, FileError>),
    /// All of it is durable.
    Durable,
    /// Some of what was to be made durable may be lost: write it again.
    Lost,
    /// The request is impossible. Nothing has changed.
    Refused(FileError),
    /// There is no such file.
    NoSuchFile,
    /// The client was declared dead: its changes are refused from now on.
    Expired,
    /// The client has said before that it has the reply.
    Settled,
    /// Another daemon answers for the file.
    Elsewhere(NodeId),
    /// This daemon cannot say: whether a change took effect is unknown. Ask another member, or again.
    Unavailable(Unavailable),
}
