//! What clients ask about files, and what they are told. Data travels as it is: these have no byte layout of their own.

use base::{Epoch, NodeId, ObjectId};
use namespace::{Change as TreeChange, Generation, InodeId, LockKind, LockMode, Who};

use super::{Answer, Change, Done, FileError, Mark, Query};
use crate::message::is_file_of_volume;
use crate::{Attendance, CacheGrant, Capability, OpenMode, Proof, RequestId, Unavailable, file_object};

/// One request about a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileRequest {
    /// Names it in the reply.
    pub id: RequestId,
    /// The file.
    pub object: ObjectId,
    /// If it is the content of a volume's file, what its client was given when it opened that.
    pub shown: Option<Box<Capability>>,
    /// What is asked.
    pub body: FileBody,
    /// What a client that is confined to a part of the volume was told with the inode that it [names](FileBody::named).
    pub proof: Option<Proof>,
    /// If a file is opened or created by it that the client has open from then on: which of its openings that is. It has to be on
    /// record in the volume.
    pub holds: Option<u64>,
    /// Whether the client takes grants, and answers revocations.
    pub caches: bool,
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
        /// If a client changes bytes of what is lent to it, that lend.
        under: Option<Generation>,
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
    /// Open a file of this volume.
    Open {
        /// On whose behalf.
        who: Who,
        /// Which.
        inode: InodeId,
        /// For what.
        mode: OpenMode,
    },
    /// The file of this volume is still open: whoever has shown once what opens it need not be allowed to open it any more.
    Renew {
        /// What was told last.
        capability: Box<Capability>,
    },
    /// The client uses this volume, and has this open.
    Attend(Attendance),
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
    /// What a volume's file has to be open for before this is asked of its content. None if nobody asks it of that.
    pub const fn takes(&self) -> Option<OpenMode> {
        match self {
            Self::Change { .. } => Some(OpenMode::ReadWrite),
            Self::Ask(Query::Read { .. }) => Some(OpenMode::Read),
            Self::Ask(Query::Stat | Query::Extent { .. }) | Self::Sync { .. } => Some(OpenMode::Look),
            Self::Create
            | Self::Ask(Query::Tree(_))
            | Self::Open { .. }
            | Self::Renew { .. }
            | Self::Attend(_) => None,
        }
    }

    /// The content of a volume's file that has to be open before it is lent or locked, and for what: only who may write to a range locks it
    /// against all others.
    pub fn locks(&self, volume: ObjectId) -> Option<(ObjectId, OpenMode)> {
        let Self::Change { change: Change::Tree(op), .. } = self else { return None };
        if let TreeChange::Lend { inode, .. } = &op.change {
            return Some((file_object(volume, *inode), OpenMode::ReadWrite));
        }
        let TreeChange::Lock { inode, lock, .. } = &op.change else { return None };
        let mode = match (lock.kind, lock.mode) {
            (LockKind::Fcntl, LockMode::Exclusive) => OpenMode::ReadWrite,
            (LockKind::Fcntl, LockMode::Shared) | (LockKind::Flock, _) => OpenMode::Read,
        };
        Some((file_object(volume, *inode), mode))
    }

    /// Whether it begins what nobody has anything of. A volume's file begins as soon as anything is to be known of it.
    pub(crate) fn begins(&self, object: ObjectId) -> bool {
        match self {
            Self::Create => true,
            Self::Change { change, .. } => {
                is_file_of_volume(object) && (change.is_of_bytes() || matches!(change, Change::Return { .. }))
            }
            Self::Ask(_) | Self::Sync { .. } | Self::Open { .. } | Self::Renew { .. } | Self::Attend(_) => {
                false
            }
        }
    }

    /// Whether it asks about a tree, or has something of one opened.
    pub(crate) const fn is_of_tree(&self) -> bool {
        match self {
            Self::Ask(Query::Tree(_)) | Self::Open { .. } | Self::Renew { .. } | Self::Attend(_) => true,
            Self::Create | Self::Change { .. } | Self::Ask(_) | Self::Sync { .. } => false,
        }
    }

    /// How much data it carries.
    pub fn data_bytes(&self) -> u64 {
        match self {
            Self::Change { change, .. } => change.data_bytes(),
            Self::Create
            | Self::Ask(_)
            | Self::Sync { .. }
            | Self::Open { .. }
            | Self::Renew { .. }
            | Self::Attend(_) => 0,
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
    /// If the client is confined to a part of the volume, one for each of the inodes that it is [told](FileReplyBody::told) of.
    pub proofs: Vec<Proof>,
    /// What its client may answer from a cache, if it takes grants and this is about a volume.
    pub grant: Option<Box<CacheGrant>>,
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
        /// What the client shows to read and write the file that this has created. None if a daemon lacks the keys for that, or
        /// the file is gone already.
        opened: Option<Box<Capability>>,
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
    /// A file of the volume is open, or still is.
    Opened {
        /// How it is.
        attributes: Box<namespace::Attributes>,
        /// What the client shows to use it.
        capability: Box<Capability>,
    },
    /// The primary of the volume knows of the client.
    Attended {
        /// In this tenure.
        tenure: Epoch,
        /// Whether it knows all that the client has open.
        is_told: bool,
    },
    /// This daemon cannot say: whether a change took effect is unknown. Ask another member, or again.
    Unavailable(Unavailable),
}
