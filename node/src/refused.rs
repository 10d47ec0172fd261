//! What a client is told of what a replica refuses.

use replication::{AskError, ProposeError, SyncError};

use crate::Unavailable;
use crate::access::AccessError;
use crate::file::{FileError, FileReplyBody};

/// Of a change.
pub(crate) const fn refused_change(error: ProposeError) -> FileReplyBody {
    match error {
        ProposeError::NotPrimary | ProposeError::Recovering => {
            FileReplyBody::Unavailable(Unavailable::NoMajority)
        }
        ProposeError::Busy | ProposeError::Unsettled | ProposeError::Full => {
            FileReplyBody::Unavailable(Unavailable::Overloaded)
        }
        ProposeError::TooLarge { bytes, bytes_max } => {
            FileReplyBody::Refused(FileError::TooLong { length: bytes, bytes_max })
        }
        ProposeError::Expired => FileReplyBody::Expired,
        ProposeError::Settled(_) => FileReplyBody::Settled,
    }
}

/// Of a question.
pub(crate) const fn refused_question(error: AskError) -> FileReplyBody {
    match error {
        AskError::NotPrimary | AskError::Recovering => FileReplyBody::Unavailable(Unavailable::NoMajority),
        AskError::Busy => FileReplyBody::Unavailable(Unavailable::Overloaded),
    }
}

/// Of a sync.
pub(crate) const fn refused_sync(error: SyncError) -> FileReplyBody {
    match error {
        SyncError::Ask(error) => refused_question(error),
        SyncError::Lost(_) => FileReplyBody::Lost,
    }
}

/// Whether a client is told that it may do nothing where this is.
pub(crate) fn is_not_exported(body: &FileReplyBody) -> bool {
    let not_exported = FileError::from(AccessError::NotExported);
    let (FileReplyBody::Refused(error)
    | FileReplyBody::Answer(Err(error))
    | FileReplyBody::Changed { outcome: Err(error), .. }) = body
    else {
        return false;
    };
    *error == not_exported
}
