//! How much there can be of everything, and what it costs.

/// A mode has these bits and no others.
pub const MODE_BITS: u16 = 0o7777;
/// No inode has more names, and no directory more directories in it less two.
pub const LINKS_MAX: u32 = 65_000;
/// No file is longer: as long as what replicates its content allows.
pub const FILE_BYTES_MAX: u64 = (1 << 63) - (64 << 10);
/// The extended attributes of an inode, names and values, have no more bytes together.
pub const XATTR_BYTES_MAX: u64 = 64 << 10;
/// An inode has no more of them.
pub const XATTRS_MAX: u16 = 1024;
/// An ACL has no more entries.
pub const ACL_ENTRIES_MAX: usize = 1024;
/// Nothing is moved deeper: whether a directory would come to be below itself is looked up level by level.
pub const DEPTH_MAX: usize = 4096;
/// An entry names no more clients that hold an orphan.
pub const HOLDERS_MAX: usize = 1024;
/// No more clients are on record.
pub const CLIENTS_MAX: u32 = 65_536;
/// A file has no more locked stretches.
pub const LOCKS_MAX: usize = 1000;
/// No more requests wait for locks of a file.
pub const WAITING_MAX: usize = 240;
/// An owner waits for no more requests at a time.
pub const WAITS_MAX: usize = 16;
/// No more owners are looked at to see whether they wait for each other.
pub const WAITS_WALK_MAX: usize = 1024;
/// An entry grants no more locks; the rest is left to [`Settle`](crate::Change::Settle).
pub const GRANTED_MAX: usize = 3;
/// An entry that ends a client clears up no more holds and files with locks.
pub const EXPIRE_MAX: usize = 16;
/// A page of inodes or clients has no more of them.
pub const PAGE_MAX: usize = 1024;
/// A page of a directory has no more bytes, as counted by [`LISTED_BYTES`] and [`ATTRIBUTES_BYTES`].
pub const PAGE_BYTES_MAX: usize = 64 << 10;
/// What an entry of a page counts beside its name.
pub const LISTED_BYTES: usize = 32;
/// What the attributes of an inode count.
pub const ATTRIBUTES_BYTES: usize = 272;
/// A new volume has room for so many inodes.
pub const INODES_MAX_DEFAULT: u64 = 1 << 40;
/// A new volume has room for files of any number of bytes.
pub const BYTES_MAX_DEFAULT: u64 = u64::MAX;
