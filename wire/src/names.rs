//! Layout: what is said and kept of the tree of a volume: what everything there is made of.
//!
//! Names and where links lead stand in the metadata: they are short. Values of extended attributes stand beside it, as
//! data does. A decoder refuses what nobody can have made; what somebody can ask for and is refused by the tree comes through, so
//! that the tree says why.
//!
//! ```text
//! operations  operations and what comes of them
//! refusals    why an operation is refused
//! questions   questions and their answers
//! parts       what the state consists of, under its keys; what is kept of it
//! keys        keys whose bytes are in their order
//! ```

mod keys;
mod operations;
mod parts;
mod questions;
mod refusals;
#[cfg(test)]
mod tests;

use base::{ClientId, Members, WallTime};
use bytes::Bytes;
use namespace::limits::{LOCKS_MAX, MODE_BITS, WAITING_MAX, XATTR_BYTES_MAX};
use namespace::{
    Attributes, Born, ClientState, GROUPS_MAX, Generation, InodeId, Kind, Lent, LentTo, Lock, LockKind,
    LockMode, Locks, NAME_BYTES_MAX, Name, NotAName, Owner, Rights, Root, Stretch, TARGET_BYTES_MAX, Target,
    Ticket, VOLUME_NAME_BYTES_MAX, VolumeName, Waiting, Who, Wish, XATTR_NAME_BYTES_MAX, XattrName,
};

use crate::DecodeError;
use crate::field::{Element, Field, Sink, Source, choice, number, record};

pub use keys::{decode_name_key, encode_name_key};
pub use parts::{decode_name_part, encode_name_part};
pub(crate) use parts::{get_part, put_part};

record!(Born { epoch, seq });
record!(InodeId { number, epoch });
number!(Generation, Ticket);
record!(Lent { generation, to });
choice!(LentTo, "to whom a file is lent":
    0 Content;
    1 Client(client);
);
choice!(Kind, "what an inode is":
    0 File;
    1 Directory;
    2 Symlink;
    3 Fifo;
    4 Socket;
    5 CharDevice;
    6 BlockDevice;
);
choice!(ClientState, "how it stands with a client":
    0 Alive;
    1 Ending;
    2 Ended;
    3 Caching;
);
choice!(LockKind, "a kind of locks":
    0 Flock;
    1 Fcntl;
);
choice!(Wish, "what became of a wish":
    0 Waits;
    1 Had;
    2 Gone;
);
choice!(LockMode, "how a stretch is locked":
    0 Shared;
    1 Exclusive;
);
record!(Stretch { first, last });
record!(Lock { owner, kind, mode, stretch });
record!(Waiting { ticket, lock });
record!(Locks { held, waiting }, check_locks);

/// The client's numbers are random, and so shortest as they are. A thousand owners are in one part.
impl Field for Owner {
    fn put(&self, out: &mut Sink) {
        out.metadata.extend_from_slice(&self.client.certificate.to_le_bytes());
        out.metadata.extend_from_slice(&self.client.program.to_le_bytes());
        self.number.put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let (certificate, program) = (u64::from_le_bytes(from.take()?), u64::from_le_bytes(from.take()?));
        Ok(Self { client: ClientId { certificate, program }, number: u64::get(from)? })
    }
}

impl Field for Who {
    fn put(&self, out: &mut Sink) {
        self.uid().put(out);
        self.gid().put(out);
        self.groups().to_vec().put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let (uid, gid, groups) = (u32::get(from)?, u32::get(from)?, Vec::<u32>::get(from)?);
        Self::new(uid, gid, &groups).map_err(|_| DecodeError::TooMany(groups.len()))
    }
}

/// As the three bits of a mode.
impl Field for Rights {
    fn put(&self, out: &mut Sink) {
        out.metadata.push(self.bits().to_le_bytes()[0]);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        match from.take()? {
            [byte @ 0..8] => Ok(Self::from_bits(byte.into())),
            [byte] => Err(DecodeError::UnknownByte { field: "rights", byte }),
        }
    }
}

impl Field for Name {
    fn put(&self, out: &mut Sink) {
        put_short(self.as_bytes(), out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        Self::new(get_short(from, NAME_BYTES_MAX)?).map_err(no_name)
    }
}

impl Field for VolumeName {
    fn put(&self, out: &mut Sink) {
        put_short(self.as_str().as_bytes(), out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let text = str::from_utf8(get_short(from, VOLUME_NAME_BYTES_MAX)?).ok();
        let name = text.and_then(|text| Self::parse(text).ok());
        name.ok_or(DecodeError::Impossible("a name that no volume can have"))
    }
}

impl Field for XattrName {
    fn put(&self, out: &mut Sink) {
        put_short(self.as_bytes(), out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        Self::new(get_short(from, XATTR_NAME_BYTES_MAX)?).map_err(no_name)
    }
}

impl Field for Target {
    fn put(&self, out: &mut Sink) {
        put_short(self.as_bytes(), out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let bytes = get_short(from, TARGET_BYTES_MAX)?;
        Self::new(Bytes::copy_from_slice(bytes)).map_err(no_name)
    }
}

/// The times of an inode. They are mostly close together, so that three of them are told by how far they are from `ctime`.
struct Times {
    atime: WallTime,
    mtime: WallTime,
    ctime: WallTime,
    btime: WallTime,
}

impl Field for Times {
    fn put(&self, out: &mut Sink) {
        let ctime = self.ctime.as_micros();
        ctime.put(out);
        for time in [self.atime, self.mtime, self.btime] {
            let apart = time.as_micros().wrapping_sub(ctime);
            // The sign comes last, so that what is a little earlier is a small number, too.
            (apart << 1 ^ (apart >> 63).wrapping_neg()).put(out);
        }
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let ctime = u64::get(from)?;
        let mut time = || {
            let told = u64::get(from)?;
            let apart = told >> 1 ^ (told & 1).wrapping_neg();
            Ok::<_, DecodeError>(WallTime::from_micros(ctime.wrapping_add(apart)))
        };
        let (atime, mtime, btime) = (time()?, time()?, time()?);
        Ok(Self { atime, mtime, ctime: WallTime::from_micros(ctime), btime })
    }
}

impl Field for Attributes {
    fn put(&self, out: &mut Sink) {
        let Self { inode, kind, mode, uid, gid, links, rdev, size, lent, last_lend, .. } = self;
        let Self { replicas, has_acl, .. } = self;
        let Self { atime, mtime, ctime, btime, .. } = *self;
        inode.put(out);
        kind.put(out);
        mode.put(out);
        (*uid, *gid).put(out);
        links.put(out);
        (*rdev, *size).put(out);
        Times { atime, mtime, ctime, btime }.put(out);
        lent.put(out);
        last_lend.put(out);
        replicas.put(out);
        has_acl.put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let (inode, kind) = (InodeId::get(from)?, Kind::get(from)?);
        let mode = get_mode(from)?;
        let (uid, gid) = Field::get(from)?;
        let links = u32::get(from)?;
        let (rdev, size) = Field::get(from)?;
        let Times { atime, mtime, ctime, btime } = Times::get(from)?;
        let (lent, last_lend) = Field::get(from)?;
        let replicas = Option::<Members>::get(from)?;
        let has_acl = bool::get(from)?;
        let attributes = Self {
            inode,
            kind,
            mode,
            uid,
            gid,
            links,
            rdev,
            size,
            atime,
            mtime,
            ctime,
            btime,
            lent,
            last_lend,
            replicas,
            has_acl,
        };
        if goes_with_kind(&attributes) {
            Ok(attributes)
        } else {
            Err(DecodeError::Impossible("attributes that an inode of this kind has not"))
        }
    }
}

/// Only files are replicated, they and directories are lent, only devices have numbers, and what has neither names nor content is of no size.
fn goes_with_kind(attributes: &Attributes) -> bool {
    let Attributes { kind, rdev, size, lent, last_lend, replicas, .. } = attributes;
    match kind {
        Kind::File => *rdev == 0 && replicas.is_some() && are_in_order(lent.as_ref(), last_lend.as_ref()),
        _ if last_lend.is_some() || replicas.is_some() => false,
        Kind::Directory => *rdev == 0 && lent.is_none_or(|lent| lent.to != LentTo::Content),
        _ if lent.is_some() => false,
        Kind::Symlink => *rdev == 0,
        Kind::Fifo | Kind::Socket => *rdev == 0 && *size == 0,
        Kind::CharDevice | Kind::BlockDevice => *size == 0,
    }
}

/// A lend that is going on is later than one that is over.
fn are_in_order(lent: Option<&Lent>, last: Option<&Generation>) -> bool {
    lent.is_none_or(|lent| last.is_none_or(|last| *last < lent.generation))
}

/// Writes a few bytes and how many they are.
fn put_short(bytes: &[u8], out: &mut Sink) {
    (bytes.len() as u64).put(out);
    out.metadata.extend_from_slice(bytes);
}

/// Reads bytes that are no more than so many.
fn get_short<'a>(from: &mut Source<'a>, bytes_max: usize) -> Result<&'a [u8], DecodeError> {
    let length = usize::try_from(u64::get(from)?).unwrap_or(usize::MAX);
    if length > bytes_max {
        return Err(DecodeError::Impossible("a name that is too long"));
    }
    from.take_bytes(length)
}

const fn no_name(_: NotAName) -> DecodeError {
    DecodeError::Impossible("a name that nothing can have")
}

/// Reads a mode or a umask.
fn get_mode(from: &mut Source<'_>) -> Result<u16, DecodeError> {
    let mode = u16::get(from)?;
    check_mode(mode)?;
    Ok(mode)
}

const fn check_mode(mode: u16) -> Result<(), DecodeError> {
    if mode > MODE_BITS { Err(DecodeError::Impossible("a mode of more than twelve bits")) } else { Ok(()) }
}

record!(Root { time, uid, gid, mode, name }, check_root);

const fn check_root(root: &Root) -> Result<(), DecodeError> {
    check_mode(root.mode)
}

/// No value is longer than all those of an inode may be.
const fn check_value(value: &Bytes) -> Result<(), DecodeError> {
    if value.len() as u64 > XATTR_BYTES_MAX {
        return Err(DecodeError::Impossible("an extended attribute that is too long"));
    }
    Ok(())
}

fn check_locks(locks: &Locks) -> Result<(), DecodeError> {
    if locks.is_sound() { Ok(()) } else { Err(DecodeError::Impossible("locks that cannot be had together")) }
}

/// A group of a user.
impl Element for u32 {
    const COUNT_MAX: usize = GROUPS_MAX;
    const BYTES_MIN: usize = 1;
}

impl Element for Lock {
    const COUNT_MAX: usize = LOCKS_MAX;
    const BYTES_MIN: usize = 21;
}

impl Element for Waiting {
    const COUNT_MAX: usize = WAITING_MAX;
    const BYTES_MIN: usize = 24;
}
