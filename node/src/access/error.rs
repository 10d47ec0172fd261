//! Why a client is refused, whatever the tree says.

use crate::{ExportRefusal, NotExported};

/// Why a client's request about a volume, or about where a volume or its files are, is refused. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AccessError {
    /// No rule names the client and the volume. `EACCES`.
    #[error(
        "no rule under [[exports]] lets this client use the volume; add one to the cluster map and raise its `version`"
    )]
    NotExported,
    /// `EROFS`.
    #[error("{}", ExportRefusal::ReadOnly)]
    ReadOnly,
    /// `EPERM`.
    #[error(
        "only operators create, limit and delete volumes where the cluster map has rules under [[exports]]; use the certificate of \
         one, whose role is admin/NAME"
    )]
    OperatorsOnly,
    /// A user or group whom a file or an ACL would be given to. `EINVAL`.
    #[error(
        "number {id} of this client is nobody in the volume, because another number stands for it there; use another one, or \
         change the ranges of the rule under [[exports]]"
    )]
    Nobody {
        /// The number.
        id: u32,
    },
    /// The data of a volume's file is no object that anybody may use by its id. `EPERM`.
    #[error("this is the data of a volume's file, and no object; open the file in its volume")]
    FileOfVolume,
    /// `EBADF`.
    #[error("the file is not open; open it in its volume, and show what that returns")]
    NotOpen,
    /// `EIO`.
    #[error(
        "this daemon has no keys of capabilities, so it opens no files; make them with `fleasefs cert keys`, copy the file to \
         every daemon, and restart them"
    )]
    NoKeys,
    /// `EACCES`.
    #[error(
        "this is not in the directory of the volume that is exported to this client, or the client has not found it there; look it \
         up, or change the rule's `path`"
    )]
    Outside,
    /// `EACCES`.
    #[error(
        "the directory that is exported to this client is not there; create it from a client to whom all of the volume is exported, or \
         change the rule's `path`"
    )]
    NoExportPath,
}

impl From<ExportRefusal> for crate::file::FileError {
    fn from(refusal: ExportRefusal) -> Self {
        match refusal {
            ExportRefusal::ReadOnly => Self::Access(AccessError::ReadOnly),
            ExportRefusal::Service => Self::NotForClients,
        }
    }
}

impl From<NotExported> for AccessError {
    /// The client knows who it is, and which volume it asked for.
    fn from(NotExported { client: _, volume: _ }: NotExported) -> Self {
        Self::NotExported
    }
}
