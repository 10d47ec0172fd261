//! Why an operation is refused, or a question has no answer.

use base::ClientId;

use crate::{Generation, InodeId, NotAcl, Owner, Ticket};

/// Why an operation changed nothing, or a question has no answer. Each is one errno, which the mount puts in its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// `ESTALE`.
    #[error("there is no inode {inode}, or not any more")]
    NoInode {
        /// Which.
        inode: InodeId,
    },
    /// `ENOENT`.
    #[error("directory {dir} has no entry of this name")]
    NoEntry {
        /// Which directory.
        dir: InodeId,
    },
    /// `EEXIST`.
    #[error("the name is taken by inode {inode}")]
    Exists {
        /// What has it.
        inode: InodeId,
    },
    /// `ENOTDIR`.
    #[error("inode {inode} is no directory")]
    NotDirectory {
        /// What it is about.
        inode: InodeId,
    },
    /// `EISDIR`.
    #[error("inode {inode} is a directory")]
    IsDirectory {
        /// Which.
        inode: InodeId,
    },
    /// Something else than a file, where only a file will do; or no link, where only a link will. `EINVAL`.
    #[error("inode {inode} is of another kind")]
    WrongKind {
        /// Which.
        inode: InodeId,
    },
    /// `ENOTEMPTY`.
    #[error("directory {dir} is not empty")]
    NotEmpty {
        /// Which.
        dir: InodeId,
    },
    /// The mode or the ACL says no. `EACCES`.
    #[error("permission is denied on inode {inode}")]
    Denied {
        /// On what.
        inode: InodeId,
    },
    /// Only the owner may, or only root. `EPERM`.
    #[error("whoever asks may not do this to inode {inode}; its owner may, or root")]
    NotPermitted {
        /// To what.
        inode: InodeId,
    },
    /// `EMLINK`.
    #[error("inode {inode} has {} names, which is all it can have", crate::limits::LINKS_MAX)]
    TooManyLinks {
        /// Which.
        inode: InodeId,
    },
    /// A directory would come to be below itself. `EINVAL`.
    #[error("directory {dir} would be moved into itself")]
    Loop {
        /// Which.
        dir: InodeId,
    },
    /// Nobody can tell with bounded effort whether a directory would come to be below itself. `ENAMETOOLONG`.
    #[error(
        "directory {dir} is more than {} levels deep; nothing is moved to there",
        crate::limits::DEPTH_MAX
    )]
    TooDeep {
        /// Which.
        dir: InodeId,
    },
    /// A name names something else than the operation is made for. Not for users: whoever made it makes it anew. `ESTALE`.
    #[error("the name in directory {dir} names something else by now; look it up again")]
    Stale {
        /// Which directory.
        dir: InodeId,
    },
    /// Size and times are not here. Not for users: they are given back first. `EBUSY`.
    #[error("size and times of file {inode} are lent as {generation:?}; they have to be given back first")]
    Lent {
        /// Which file.
        inode: InodeId,
        /// The lend.
        generation: Generation,
    },
    /// This lend is not the one that is going on. Not for users. `ESTALE`.
    #[error("inode {inode} is not lent as {generation:?}")]
    NotLent {
        /// Which file or directory.
        inode: InodeId,
        /// The lend.
        generation: Generation,
    },
    /// `ENOSPC`.
    #[error("the volume holds {inodes_max} inodes, which is all it has room for; remove some")]
    NoInodes {
        /// So many.
        inodes_max: u64,
    },
    /// `ENOSPC`.
    #[error("the volume has room for {bytes_max} bytes; remove some files")]
    NoSpace {
        /// So many.
        bytes_max: u64,
    },
    /// `EFBIG`.
    #[error("a file of {size} bytes would be too long; files end at {}", crate::limits::FILE_BYTES_MAX)]
    TooLong {
        /// How long it would be.
        size: u64,
    },
    /// `ENODATA`.
    #[error("inode {inode} has no such extended attribute")]
    NoXattr {
        /// Which.
        inode: InodeId,
    },
    /// `EEXIST`.
    #[error("inode {inode} has this extended attribute already")]
    XattrExists {
        /// Which.
        inode: InodeId,
    },
    /// The value with its name is larger than any may be. `E2BIG`.
    #[error(
        "an extended attribute of {bytes} bytes is too large; shorten it to {}",
        crate::limits::XATTR_BYTES_MAX
    )]
    XattrTooLong {
        /// How large.
        bytes: u64,
    },
    /// `ENOSPC`.
    #[error("the extended attributes of inode {inode} have no more room; remove some")]
    NoXattrSpace {
        /// Which.
        inode: InodeId,
    },
    /// This kind of inode has no such extended attribute. `EOPNOTSUPP`.
    #[error("inode {inode} is of a kind that has no such extended attributes")]
    NotSupported {
        /// Which.
        inode: InodeId,
    },
    /// `EINVAL`.
    #[error("{0}")]
    NotAcl(#[from] NotAcl),
    /// Bits that no mode has. `EINVAL`.
    #[error("a mode has bits of 0o7777 only")]
    NoMode,
    /// Somebody has a lock that is in the way, and the request does not wait. `EAGAIN`.
    #[error("the lock is held by {by:?}")]
    Locked {
        /// Who, or one of them.
        by: Owner,
    },
    /// Everybody would wait for each other. `EDEADLK`.
    #[error(
        "owner {owner:?} would wait for somebody who waits for it, or nobody can tell with bounded effort"
    )]
    Deadlock {
        /// Who asked.
        owner: Owner,
    },
    /// `ENOLCK`.
    #[error("file {inode} has as many locks, or waiting requests, as it can have")]
    TooManyLocks {
        /// Which file.
        inode: InodeId,
    },
    /// A stretch that ends before it begins. `EINVAL`.
    #[error("a lock ends before it begins")]
    NoStretch,
    /// It was granted, or never asked for. `EINVAL`.
    #[error("no request {ticket:?} waits")]
    NotWaiting {
        /// Which.
        ticket: Ticket,
    },
    /// An owner of another client than the one that asks. `EPERM`.
    #[error("the lock's owner is of another client: {owner:?}")]
    Foreign {
        /// Whose it is.
        owner: Owner,
    },
    /// A hold of what has names. Not for users. `EINVAL`.
    #[error("inode {inode} is no orphan")]
    NotOrphan {
        /// Which.
        inode: InodeId,
    },
    /// A name for what has none any more. `ENOENT`.
    #[error("inode {inode} has lost its last name and gets no other")]
    Orphan {
        /// Which.
        inode: InodeId,
    },
    /// Not for users. `EBADF`.
    #[error("client {client:?} does not hold inode {inode}")]
    NotHeld {
        /// What.
        inode: InodeId,
        /// Who does not.
        client: ClientId,
    },
    /// Not for users. `ENOENT`.
    #[error("inode {inode} is not doomed")]
    NotDoomed {
        /// Which.
        inode: InodeId,
    },
    /// `E2BIG`.
    #[error("{count} holders are too many for an entry; {} are possible", crate::limits::HOLDERS_MAX)]
    TooManyHolders {
        /// How many.
        count: u64,
    },
    /// `EUSERS`.
    #[error("there are {} clients on record, which is all there can be", crate::limits::CLIENTS_MAX)]
    TooManyClients,
    /// The client was taken for dead, and its locks and holds from it. `EIO`.
    #[error("client {client:?} has ended; mount anew")]
    Expired {
        /// Which.
        client: ClientId,
    },
    /// Not for users. `EBUSY`.
    #[error("client {client:?} has not ended, or not all of it")]
    NotExpired {
        /// Which.
        client: ClientId,
    },
    /// Not for users. `ENOENT`.
    #[error("no client {client:?} is on record")]
    NoClient {
        /// Which.
        client: ClientId,
    },
}

impl NameError {
    /// The inode or directory that it names, to be named otherwise.
    pub const fn inode_mut(&mut self) -> Option<&mut InodeId> {
        match self {
            Self::NoInode { inode }
            | Self::Exists { inode }
            | Self::NotDirectory { inode }
            | Self::IsDirectory { inode }
            | Self::WrongKind { inode }
            | Self::Denied { inode }
            | Self::NotPermitted { inode }
            | Self::TooManyLinks { inode }
            | Self::Lent { inode, .. }
            | Self::NotLent { inode, .. }
            | Self::NoXattr { inode }
            | Self::XattrExists { inode }
            | Self::NoXattrSpace { inode }
            | Self::NotSupported { inode }
            | Self::TooManyLocks { inode }
            | Self::NotOrphan { inode }
            | Self::Orphan { inode }
            | Self::NotHeld { inode, .. }
            | Self::NotDoomed { inode } => Some(inode),
            Self::NoEntry { dir }
            | Self::NotEmpty { dir }
            | Self::Loop { dir }
            | Self::TooDeep { dir }
            | Self::Stale { dir } => Some(dir),
            Self::NoInodes { .. }
            | Self::NoSpace { .. }
            | Self::TooLong { .. }
            | Self::XattrTooLong { .. }
            | Self::NotAcl(_)
            | Self::NoMode
            | Self::Locked { .. }
            | Self::Deadlock { .. }
            | Self::NoStretch
            | Self::NotWaiting { .. }
            | Self::Foreign { .. }
            | Self::TooManyHolders { .. }
            | Self::TooManyClients
            | Self::Expired { .. }
            | Self::NotExpired { .. }
            | Self::NoClient { .. } => None,
        }
    }
}
