//! What is done to a file, or to a volume's tree.

use std::sync::Arc;

use base::WallTime;
use namespace::{Generation, Lent, Root, cost};

use super::{FILE_BYTES_MAX, FileError, FileOf, Payload, WRITE_BYTES_MAX};

/// Something that changes a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Op {
    /// When, as the primary says.
    pub time: WallTime,
    /// The lend to a client under which bytes are changed. It has to be going on here. None for whoever writes through: then the file has to
    /// be lent to its content.
    pub under: Option<Generation>,
    /// What.
    pub change: Change,
}

/// What an operation does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Puts data at an offset. The file grows if it ends there.
    Write {
        /// Where.
        offset: u64,
        /// What.
        data: Payload,
    },
    /// Puts data at the end of the file, wherever that is when this takes effect.
    Append {
        /// What.
        data: Payload,
    },
    /// Sets the size. What is added reads as zeros.
    Truncate {
        /// The new size.
        size: u64,
    },
    /// Makes the file at least so long. What is added reads as zeros.
    Extend {
        /// Where it ends at the earliest.
        size: u64,
    },
    /// Makes a hole, which reads as zeros. The size stays.
    Punch {
        /// Where it begins.
        offset: u64,
        /// How wide it is.
        length: u64,
    },
    /// Sets the time of the last modification.
    Touch {
        /// To this, or to the time of the operation.
        modified: Option<WallTime>,
    },
    /// Takes the file away with its content. Nothing can be done to it afterwards but to begin it anew.
    Remove,
    /// Begins a file anew that was removed, empty. Does nothing to any other.
    Begin,
    /// Size and times are lent to the file by its volume, and may change from now on.
    Borrow {
        /// Which file it is.
        of: FileOf,
        /// The lend.
        lent: Lent,
        /// When the content changed last, as the tree has it.
        modified: WallTime,
        /// When anything did.
        changed: WallTime,
    },
    /// Ends a lend, whether anything was written under it or not. Nothing is written until the next.
    Return {
        /// Which file it is.
        of: FileOf,
        /// The lend.
        lent: Lent,
        /// When the content shall have changed last. None for when it has.
        modified: Option<WallTime>,
    },
    /// What was asked for found no space on the disks: a primary puts this in its place, and nothing changes.
    NoSpace,
    /// Makes an empty file a tree with this root.
    Plant(Root),
    /// Changes the tree. Its time, its client and where a new file is replicated the primary puts there.
    Tree(Arc<namespace::Op>),
}

impl Change {
    /// Whether it can be done to any file at all. An append may still be too long for the file that it meets.
    pub fn check(&self) -> Result<(), FileError> {
        match *self {
            Self::Write { offset, ref data } => {
                within(data.len() as u64, WRITE_BYTES_MAX)?;
                end_of(offset, data.len() as u64).map(drop)
            }
            Self::Append { ref data } => within(data.len() as u64, WRITE_BYTES_MAX),
            Self::Truncate { size } | Self::Extend { size } => end_of(size, 0).map(drop),
            Self::Punch { offset, length } => end_of(offset, length).map(drop),
            Self::Tree(ref op) => match cost::op_bytes(op) {
                ..=cost::OP_BYTES_MAX => Ok(()),
                length => Err(FileError::TooLong { length, bytes_max: cost::OP_BYTES_MAX }),
            },
            Self::Touch { .. } | Self::Remove | Self::Begin | Self::NoSpace | Self::Plant(_) => Ok(()),
            Self::Borrow { .. } | Self::Return { .. } => Ok(()),
        }
    }

    /// Whether it is about bytes, which trees do not have.
    pub(crate) const fn is_of_bytes(&self) -> bool {
        match self {
            Self::Write { .. } | Self::Append { .. } | Self::Truncate { .. } => true,
            Self::Extend { .. } | Self::Punch { .. } | Self::Touch { .. } => true,
            Self::Borrow { .. }
            | Self::Return { .. }
            | Self::Remove
            | Self::Begin
            | Self::NoSpace
            | Self::Plant(_)
            | Self::Tree(_) => false,
        }
    }

    /// Whether more may be kept when it is done, but for the mark that something is to be removed, and for locks: programs lock what they only read, and
    /// what they are about to remove.
    pub fn takes_space(&self) -> bool {
        match self {
            Self::Plant(_) => true,
            Self::Tree(op) => matches!(
                op.change,
                namespace::Change::Create { .. }
                    | namespace::Change::Enter { .. }
                    | namespace::Change::Link { .. }
                    | namespace::Change::Rename { .. }
                    | namespace::Change::SetXattr { .. }
            ),
            _ => self.data_bytes() > 0,
        }
    }

    /// How much data it carries.
    pub fn data_bytes(&self) -> u64 {
        match self {
            Self::Write { data, .. } | Self::Append { data } => data.len() as u64,
            Self::Tree(op) => cost::op_bytes(op),
            Self::Plant(root) => root.name.as_str().len() as u64,
            Self::Truncate { .. }
            | Self::Extend { .. }
            | Self::Punch { .. }
            | Self::Touch { .. }
            | Self::Borrow { .. }
            | Self::Return { .. }
            | Self::Remove
            | Self::Begin
            | Self::NoSpace => 0,
        }
    }

    /// Whether it changes no file.
    pub(super) fn is_void(&self) -> bool {
        let is_empty = match self {
            Self::Write { data, .. } | Self::Append { data } => data.is_empty(),
            Self::Punch { length, .. } => *length == 0,
            Self::NoSpace => true,
            Self::Truncate { .. }
            | Self::Extend { .. }
            | Self::Touch { .. }
            | Self::Borrow { .. }
            | Self::Return { .. }
            | Self::Remove
            | Self::Begin
            | Self::Plant(_)
            | Self::Tree(_) => false,
        };
        is_empty || self.check().is_err()
    }
}

/// Where `length` bytes from `offset` on end.
pub(super) fn end_of(offset: u64, length: u64) -> Result<u64, FileError> {
    let end = offset.checked_add(length).ok_or(FileError::Overflow { offset, length })?;
    if end > FILE_BYTES_MAX { Err(FileError::PastLimit { end }) } else { Ok(end) }
}

pub(super) fn within(length: u64, bytes_max: u64) -> Result<(), FileError> {
    if length > bytes_max { Err(FileError::TooLong { length, bytes_max }) } else { Ok(()) }
}
