//! What the session of a client may ask for, and as whom.
//!
//! The primary of a volume asks the rules of the cluster about each request, by the client's certificate and the volume's
//! name, which stands in the volume itself: what they refuse never becomes an entry. A user's number becomes the one that the
//! volume knows before that, and what is told becomes the client's again. So entries and states know nothing of rules. A change
//! that is sent again is not asked about any more: it took effect, or is about to.
//!
//! What an object is for stands in its id, so this much is refused whatever is there:
//!
//! - the data of a volume's file is made by the daemons only;
//! - where there are rules, volumes and the list of them are made, limited and taken away by operators only: whoever could plant a
//!   volume could give it the name of another one, and with it that one's rule.
//!
//! # What is deliberately absent
//!
//! Sessions of peers: what daemons ask of each other is the service's own.

mod admit;
mod confined;
mod error;
mod show;
mod shown;

use base::{ObjectId, Role};
use namespace::Change as TreeChange;

pub(crate) use admit::{About, Admitted};
pub use error::AccessError;

use crate::file::{Change, FileBody, FileError};
use crate::message::{is_file_of_volume, is_volume};
use crate::{ChangeKind, Exports, change_kind, list_of_volumes};

/// Refuses what an object is not for, or not for whoever has this role.
pub(crate) fn check_purpose(
    (exports, role): (&Exports, &Role),
    object: ObjectId,
    body: &FileBody,
) -> Result<(), FileError> {
    let change = match body {
        FileBody::Create => None,
        FileBody::Change { change, .. } => Some(change),
        FileBody::Ask(_)
        | FileBody::Sync { .. }
        | FileBody::Open { .. }
        | FileBody::Renew { .. }
        | FileBody::Attend(_) => return Ok(()),
    };
    if change.is_some_and(|change| is_of_service(object, change)) {
        return Err(FileError::NotForClients);
    }
    if is_file_of_volume(object) && matches!(change, None | Some(Change::Begin | Change::Plant(_))) {
        return Err(AccessError::FileOfVolume.into());
    }
    if is_volume(object) && change.is_some_and(Change::is_of_bytes) {
        return Err(FileError::IsTree);
    }
    let is_managing = match change {
        Some(Change::Plant(_)) => true,
        Some(Change::Tree(op)) => {
            object == list_of_volumes() || matches!(op.change, namespace::Change::Limit { .. })
        }
        None | Some(Change::Begin | Change::Remove) => is_volume(object),
        Some(_) => false,
    };
    if is_managing && !manages(exports, role) {
        return Err(AccessError::OperatorsOnly.into());
    }
    Ok(())
}

/// Whether no client asks for such a change. What the volume has room for operators say.
fn is_of_service(object: ObjectId, change: &Change) -> bool {
    match change {
        Change::NoSpace | Change::Borrow { .. } | Change::Return { .. } => true,
        // Whose it is may set its times, and that the volume knows.
        Change::Touch { modified: Some(_) } => is_file_of_volume(object),
        // It goes when it has no name and nobody has it open.
        Change::Remove => is_file_of_volume(object),
        Change::Tree(op) => match &op.change {
            // The content is cut where it is.
            TreeChange::SetAttributes { set, .. } => set.size.is_some(),
            TreeChange::Limit { .. } => false,
            other => change_kind(other) == ChangeKind::Service,
        },
        _ => false,
    }
}

/// Whether whoever has this role makes volumes, and takes them away.
pub(crate) fn manages(exports: &Exports, role: &Role) -> bool {
    exports.rules().is_empty() || matches!(role, Role::Admin(_))
}

#[cfg(test)]
mod tests;
