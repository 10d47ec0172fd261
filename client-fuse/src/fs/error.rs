//! Which error becomes which errno: here, and nowhere else.

use client::{FileError, ObjectError, VolumeError};
use namespace::{InodeId, NameError, NotAName};
use node::{AccessError, CapabilityError};
use rustix::io::Errno;

/// Why something that a program asked of the mount was not done.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum FsError {
    /// The daemons refuse, or do not answer.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// No entry can have this name.
    #[error(transparent)]
    NotAName(#[from] NotAName),
    /// No extended attribute can have this name.
    #[error("{0}")]
    NotAnXattr(NotAName),
    /// The kernel refers to an inode that it has forgotten, or that is of another kind by now.
    #[error("the inode is not what it was; look it up again")]
    Forgotten,
    /// Another mount has removed what was to be found, or the directory that it was to be in.
    #[error("it was removed meanwhile")]
    Removed,
    /// The kernel refers to a file that is not open.
    #[error("the file is not open")]
    NotOpen,
    /// What was locked by it is not any more.
    #[error(
        "the daemons took this mount for dead, and gave its locks to others; close the file, and open it again"
    )]
    LocksLost,
    /// What was done to names when the mount was taken for dead.
    #[error(
        "the daemons took this mount for dead, and some of what it did to names just before may be lost; see what is there"
    )]
    NamesLost,
    /// The mount was taken for dead, and cannot connect anew.
    #[error("the daemons took this mount for dead, and it cannot connect anew: {0}")]
    Unconnected(String),
    /// Daemons are away, and have never said it before.
    #[error("no daemon has answered in time; see `fleasefs status`")]
    Unanswered,
    /// The file has nothing there, or ends before.
    #[error("the file has nothing there")]
    NothingThere,
    /// It makes no sense.
    #[error("what is asked for makes no sense")]
    Invalid,
    /// Whoever asked is ended by a signal.
    #[error("whoever asked for it was killed meanwhile")]
    Interrupted,
    /// A daemon answers something else than it was asked.
    #[error("a daemon has answered what it was not asked; see that all run the same version")]
    Mismatch,
}

impl FsError {
    /// Whether the inode that was asked about was removed.
    pub(super) const fn says_gone(&self) -> bool {
        matches!(self, Self::Volume(VolumeError::Refused(NameError::NoInode { .. })))
    }

    /// The same error of who wanted something under a name of one of these: where a directory was, nothing has a name, and nothing gets one.
    pub(super) fn within(error: VolumeError, dirs: &[InodeId]) -> Self {
        match error {
            VolumeError::Refused(NameError::NoInode { inode }) if dirs.contains(&inode) => Self::Removed,
            error => error.into(),
        }
    }

    pub(crate) const fn errno(&self) -> Errno {
        match self {
            Self::Volume(error) => of_volume(error),
            Self::NotAName(error) => of_name(*error, (Errno::NOENT, Errno::NAMETOOLONG)),
            Self::NotAnXattr(error) => of_name(*error, (Errno::INVAL, Errno::RANGE)),
            Self::Forgotten => Errno::STALE,
            Self::Removed => Errno::NOENT,
            Self::Unanswered => Errno::TIMEDOUT,
            Self::NotOpen => Errno::BADF,
            Self::NothingThere => Errno::NXIO,
            Self::Invalid => Errno::INVAL,
            Self::Interrupted => Errno::INTR,
            Self::Mismatch | Self::LocksLost | Self::NamesLost | Self::Unconnected(_) => Errno::IO,
        }
    }
}

const fn of_volume(error: &VolumeError) -> Errno {
    match error {
        VolumeError::NoSuchVolume(_) | VolumeError::Ended(_) => Errno::STALE,
        VolumeError::Exists(_) => Errno::EXIST,
        VolumeError::NotEmpty(_) => Errno::NOTEMPTY,
        VolumeError::StillOpen(_) => Errno::BUSY,
        VolumeError::Refused(error) => of_tree(error),
        VolumeError::TakenBack => Errno::IO,
        VolumeError::Object(error) => of_object(error),
    }
}

const fn of_object(error: &ObjectError) -> Errno {
    match error {
        // The file was removed, or the volume was deleted.
        ObjectError::NoSuchObject => Errno::STALE,
        ObjectError::Refused(error) => of_file(error),
        ObjectError::Unanswered { .. } => Errno::TIMEDOUT,
        ObjectError::Name(_)
        | ObjectError::Lost
        | ObjectError::Expired
        | ObjectError::Mismatch
        | ObjectError::Closed => Errno::IO,
    }
}

const fn of_file(error: &FileError) -> Errno {
    match error {
        FileError::PastLimit { .. } | FileError::Overflow { .. } => Errno::FBIG,
        FileError::TooLong { .. } => Errno::INVAL,
        FileError::NoSpace => Errno::NOSPC,
        FileError::Removed | FileError::NoTree => Errno::STALE,
        FileError::NotEmpty => Errno::NOTEMPTY,
        FileError::NotForClients => Errno::PERM,
        FileError::Tree(error) => of_tree(error),
        FileError::Access(error) => of_access(error),
        FileError::Capability(error) => of_capability(error),
        FileError::BadChunk | FileError::IsTree | FileError::IsFile | FileError::NotLent => Errno::IO,
    }
}

const fn of_access(error: &AccessError) -> Errno {
    match error {
        AccessError::NotExported | AccessError::Outside | AccessError::NoExportPath => Errno::ACCESS,
        AccessError::ReadOnly => Errno::ROFS,
        AccessError::OperatorsOnly | AccessError::FileOfVolume => Errno::PERM,
        AccessError::Nobody { .. } => Errno::INVAL,
        AccessError::NotOpen => Errno::BADF,
        AccessError::NoKeys => Errno::IO,
    }
}

const fn of_capability(error: &CapabilityError) -> Errno {
    match error {
        CapabilityError::Insufficient => Errno::BADF,
        CapabilityError::UnknownKey { .. }
        | CapabilityError::Forged
        | CapabilityError::ForeignClient
        | CapabilityError::OtherVolume { .. }
        | CapabilityError::OtherFile { .. }
        | CapabilityError::Expired { .. } => Errno::ACCESS,
    }
}

const fn of_tree(error: &NameError) -> Errno {
    match error {
        NameError::NoInode { .. } | NameError::Stale { .. } | NameError::NotLent { .. } => Errno::STALE,
        NameError::NoEntry { .. }
        | NameError::Orphan { .. }
        | NameError::NotDoomed { .. }
        | NameError::NoClient { .. } => Errno::NOENT,
        NameError::Exists { .. } | NameError::XattrExists { .. } => Errno::EXIST,
        NameError::NotDirectory { .. } => Errno::NOTDIR,
        NameError::IsDirectory { .. } => Errno::ISDIR,
        NameError::NotEmpty { .. } => Errno::NOTEMPTY,
        NameError::Denied { .. } => Errno::ACCESS,
        NameError::NotPermitted { .. } | NameError::Foreign { .. } => Errno::PERM,
        NameError::TooManyLinks { .. } => Errno::MLINK,
        NameError::TooDeep { .. } => Errno::NAMETOOLONG,
        NameError::Lent { .. } | NameError::NotExpired { .. } => Errno::BUSY,
        NameError::NoInodes { .. } | NameError::NoSpace { .. } | NameError::NoXattrSpace { .. } => {
            Errno::NOSPC
        }
        NameError::TooLong { .. } => Errno::FBIG,
        NameError::NoXattr { .. } => Errno::NODATA,
        NameError::XattrTooLong { .. } | NameError::TooManyHolders { .. } => Errno::TOOBIG,
        NameError::NotSupported { .. } => Errno::OPNOTSUPP,
        NameError::Locked { .. } => Errno::AGAIN,
        NameError::Deadlock { .. } => Errno::DEADLK,
        NameError::TooManyLocks { .. } => Errno::NOLCK,
        NameError::TooManyClients => Errno::USERS,
        NameError::Expired { .. } => Errno::IO,
        NameError::NotHeld { .. } => Errno::BADF,
        NameError::WrongKind { .. }
        | NameError::Loop { .. }
        | NameError::NotAcl(_)
        | NameError::NoMode
        | NameError::NoStretch
        | NameError::NotWaiting { .. }
        | NameError::NotOrphan { .. } => Errno::INVAL,
    }
}

const fn of_name(error: NotAName, (empty, too_long): (Errno, Errno)) -> Errno {
    match error {
        NotAName::Empty => empty,
        NotAName::TooLong { .. } => too_long,
        NotAName::Separator | NotAName::Dots => Errno::INVAL,
        NotAName::NoSpace => Errno::OPNOTSUPP,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Span;

    #[test]
    fn programs_are_told_what_a_local_file_system_would_tell_them() {
        let file = |error| FsError::Volume(VolumeError::Object(ObjectError::Refused(error)));
        let tree = |error| FsError::Volume(VolumeError::Refused(error));
        let (inode, ago) = (InodeId::ROOT, Span::from_secs(1));
        for (error, errno) in [
            (file(FileError::NoSpace), Errno::NOSPC),
            (file(FileError::Removed), Errno::STALE),
            (file(AccessError::NotExported.into()), Errno::ACCESS),
            (file(AccessError::ReadOnly.into()), Errno::ROFS),
            (file(CapabilityError::Forged.into()), Errno::ACCESS),
            (file(CapabilityError::ForeignClient.into()), Errno::ACCESS),
            (file(CapabilityError::Expired { ago }.into()), Errno::ACCESS),
            (file(CapabilityError::Insufficient.into()), Errno::BADF),
            (tree(NameError::Denied { inode }), Errno::ACCESS),
            (tree(NameError::NotEmpty { dir: inode }), Errno::NOTEMPTY),
            (tree(NameError::TooDeep { dir: inode }), Errno::NAMETOOLONG),
            (FsError::Volume(VolumeError::TakenBack), Errno::IO),
            (FsError::Volume(ObjectError::NoSuchObject.into()), Errno::STALE),
            (FsError::NotAName(NotAName::TooLong { bytes: 256, bytes_max: 255 }), Errno::NAMETOOLONG),
            (FsError::NotAnXattr(NotAName::Empty), Errno::INVAL),
            (FsError::NotAnXattr(NotAName::TooLong { bytes: 256, bytes_max: 255 }), Errno::RANGE),
            (FsError::Interrupted, Errno::INTR),
            (tree(NameError::NoInode { inode }), Errno::STALE),
            (FsError::within(NameError::NoInode { inode }.into(), &[inode]), Errno::NOENT),
            (FsError::within(NameError::NoInode { inode }.into(), &[]), Errno::STALE),
        ] {
            assert_eq!(error.errno(), errno, "{error}");
        }
    }
}
