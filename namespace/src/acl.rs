//! Access control lists as POSIX.1e has them.

/// Why bytes are no ACL. `EINVAL`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAcl {
    /// They do not begin or end as the kernel's layout does.
    #[error("an acl is a header of 4 bytes, of version 2, and entries of 8")]
    Layout,
    /// More than there can be.
    #[error("an acl of {entries} entries is too long; {} are possible", crate::limits::ACL_ENTRIES_MAX)]
    TooLong {
        /// How many there are.
        entries: usize,
    },
    /// An entry is none, or not where it should be, or there twice, or missing.
    #[error(
        "an acl has an owner, users, a group, groups, a mask if there are users or groups, and others, in this order"
    )]
    Entries,
}
