//! What a client may ask for.

use namespace::{Ask, Change, LentTo};

use super::{Export, ExportAccess};

/// Whose a change is, and what it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// A user's, of what others see. It takes the right to write.
    Writes,
    /// A user's, of locks alone. Who may only read may lock, too.
    Locks,
    /// The client's, about itself: it comes, or goes.
    Own,
    /// The service's: it follows from what clients do, or an operator orders it. No client asks for it.
    Service,
}

/// Why a client is refused what it asks for, whoever its user is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ExportRefusal {
    /// `EROFS`.
    #[error(
        "the volume is exported to this client for reading; write from another one, or change the rule's `access`"
    )]
    ReadOnly,
    /// A client that asks for this is broken, or lies. `EPERM`.
    #[error(
        "only the service itself does this; correct the client, and deny its certificate if it was no mistake"
    )]
    Service,
}

/// Whose a change is.
pub const fn change_kind(change: &Change) -> ChangeKind {
    match change {
        // To create without exclusion what is there already changes nothing, but that is known only afterwards. Who may
        // only read looks the name up.
        Change::Create { .. }
        | Change::Enter { .. }
        | Change::Link { .. }
        | Change::Unlink { .. }
        | Change::RemoveDirectory { .. }
        | Change::Rename { .. }
        | Change::SetAttributes { .. }
        | Change::SetXattr { .. }
        | Change::RemoveXattr { .. }
        // To itself, if it shows that it has the file open for writing.
        | Change::Lend { to: LentTo::Client(_), .. } => ChangeKind::Writes,
        Change::Lock { .. } | Change::Unlock { .. } | Change::Cancel { .. } => ChangeKind::Locks,
        // Whom they name, its primary says.
        Change::Welcome { .. } | Change::Expire { .. } => ChangeKind::Own,
        // What is lent to it, its client gives back whatever it may do by then.
        Change::Return { .. } => ChangeKind::Own,
        // The cell of a file borrows size and times for whoever has shown it a capability, and gives them back whatever that may
        // do by then.
        Change::Lend { to: LentTo::Content, .. }
        | Change::GiveBack { .. }
        // They name a client, which must not be able to name another one. Its primary knows who opens and closes.
        | Change::Hold { .. }
        | Change::Release { .. }
        | Change::Forget { .. }
        | Change::Deleted { .. }
        | Change::Settle
        // An operator orders it.
        | Change::Limit { .. } => ChangeKind::Service,
    }
}

/// Whether clients may ask a question at all. The others are about clients, their locks included.
pub const fn is_for_clients(ask: &Ask) -> bool {
    match ask {
        Ask::Lookup { .. }
        | Ask::Attributes { .. }
        | Ask::List { .. }
        | Ask::Readlink { .. }
        | Ask::GetXattr { .. }
        | Ask::ListXattrs { .. }
        | Ask::Access { .. }
        | Ask::Statfs
        | Ask::TestLock { .. }
        | Ask::Wish { .. } => true,
        Ask::Locks { .. }
        | Ask::Orphans { .. }
        | Ask::Doomed { .. }
        | Ask::Clients { .. }
        | Ask::Holds { .. } => false,
    }
}

impl Export {
    /// Refuses what the client may not ask to have changed. What the service does is not asked about here.
    pub const fn allow_change(&self, change: &Change) -> Result<(), ExportRefusal> {
        match change_kind(change) {
            ChangeKind::Service => Err(ExportRefusal::Service),
            ChangeKind::Writes => self.allow_writing(),
            ChangeKind::Locks | ChangeKind::Own => Ok(()),
        }
    }

    /// Refuses what the client may not ask. Whether something may be written is answered by the rule, if it forbids that.
    pub const fn allow_ask(&self, ask: &Ask) -> Result<(), ExportRefusal> {
        match ask {
            ask if !is_for_clients(ask) => Err(ExportRefusal::Service),
            Ask::Access { rights, .. } if rights.write => self.allow_writing(),
            _ => Ok(()),
        }
    }

    /// Refuses who may only read.
    pub const fn allow_writing(&self) -> Result<(), ExportRefusal> {
        match self.access {
            ExportAccess::ReadWrite => Ok(()),
            ExportAccess::ReadOnly => Err(ExportRefusal::ReadOnly),
        }
    }
}
