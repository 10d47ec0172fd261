//! Layout: what the state of a tree consists of, as it travels and as it is kept.
//!
//! A key says what stands under it, so that a part has no number of its own. What is kept of a part does not repeat the key that it is
//! kept under.

use std::sync::Arc;

use bytes::Bytes;
use namespace::limits::{CLIENTS_MAX, FILE_BYTES_MAX, LINKS_MAX, MODE_BITS, XATTR_BYTES_MAX, XATTRS_MAX};
use namespace::{Body, Born, Doomed, Entry, Inode, Key, Lent, LentTo, Marks, Part, Volume};

use super::{Times, are_in_order};
use crate::DecodeError;
use crate::field::{Field, Sink, Source, choice, read_whole_as, record, split_metadata};

/// A part as it travels: none is to be taken away.
type Placed = (Key, Option<(Born, Part)>);

/// What is kept of a part under its key, in pieces that stand behind each other.
pub fn encode_name_part(at: Born, part: &Part) -> Vec<Bytes> {
    let (mut head, mut rest) = (Sink::default(), Sink::default());
    at.put(&mut rest);
    put_part(part, &mut rest);
    (rest.metadata.len() as u64).put(&mut head);
    head.metadata.extend(rest.metadata);
    std::iter::once(Bytes::from(head.metadata)).chain(rest.tail).collect()
}

/// The part that is kept under `key`, and the entry that changed it last. It takes up all of `bytes`.
pub fn decode_name_part(key: &Key, bytes: Bytes) -> Result<(Born, Part), DecodeError> {
    let (metadata, tail) = split_metadata(bytes)?;
    read_whole_as(&metadata, &tail, |from| Ok((Born::get(from)?, get_part(key, from)?)))
}

/// Writes what is in a part. Whoever reads it has to know the key.
pub(crate) fn put_part(part: &Part, out: &mut Sink) {
    match part {
        Part::Volume(volume) => volume.put(out),
        Part::Inode(inode) => inode.put(out),
        Part::Entry(entry) => entry.put(out),
        Part::Value(value) => value.put(out),
        Part::Locks(locks) => locks.put(out),
        Part::Doomed(doomed) => doomed.put(out),
        Part::Client(state) => state.put(out),
        Part::Wait(inode) => inode.put(out),
        Part::Mark => {}
        Part::Name(name) => name.put(out),
    }
}

/// Reads what is in a part with this key.
pub(crate) fn get_part(key: &Key, from: &mut Source<'_>) -> Result<Part, DecodeError> {
    Ok(match key {
        Key::Inode(_) => Part::Inode(Field::get(from)?),
        Key::Volume => Part::Volume(Field::get(from)?),
        Key::Entry(..) => Part::Entry(Field::get(from)?),
        Key::Xattr(_, name) => {
            let value = Bytes::get(from)?;
            if (name.as_bytes().len() + value.len()) as u64 > XATTR_BYTES_MAX {
                return Err(DecodeError::Impossible("an extended attribute that is too long"));
            }
            Part::Value(Arc::new(value))
        }
        Key::Locks(_) => Part::Locks(Field::get(from)?),
        Key::Doomed(_) => Part::Doomed(Field::get(from)?),
        Key::Client(_) => Part::Client(Field::get(from)?),
        Key::Wait(..) => Part::Wait(Field::get(from)?),
        Key::Name => Part::Name(Field::get(from)?),
        Key::Hold(..)
        | Key::Orphan(_)
        | Key::Unsettled(_)
        | Key::Held(..)
        | Key::Locker(..)
        | Key::Lender(..) => Part::Mark,
    })
}

impl Field for Placed {
    fn put(&self, out: &mut Sink) {
        let (key, part) = self;
        key.put(out);
        part.is_some().put(out);
        if let Some((at, part)) = part {
            assert!(part.is_of(key), "a part stands under its own name");
            at.put(out);
            put_part(part, out);
        }
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let key = Key::get(from)?;
        if !bool::get(from)? {
            return Ok((key, None));
        }
        let at = Born::get(from)?;
        let part = get_part(&key, from)?;
        Ok((key, Some((at, part))))
    }
}

choice!(Key, "the name of a part of a tree":
    0 Inode(inode);
    1 Volume;
    2 Entry(dir, name);
    3 Xattr(inode, name);
    4 Locks(inode);
    5 Hold(inode, client);
    6 Orphan(inode);
    7 Doomed(inode);
    8 Unsettled(inode);
    9 Client(client);
    10 Held(client, inode);
    11 Locker(client, inode);
    12 Wait(owner, ticket);
    13 Name;
    14 Lender(client, inode);
);

record!(Entry { inode, kind });
record!(Doomed { replicas, size }, check_doomed);
record!(Volume { inodes, inodes_max, bytes, bytes_max, clients }, check_volume);
choice!(Body, "what an inode has", check_body:
    0 File { size, replicas, lent, last_lend };
    1 Directory { parent, entries, lent };
    2 Symlink { target };
    3 Fifo;
    4 Socket;
    5 CharDevice { rdev };
    6 BlockDevice { rdev };
);

impl Field for Inode {
    fn put(&self, out: &mut Sink) {
        let Self { mode, marks, uid, gid, links, holders, xattrs, xattr_bytes, body, .. } = self;
        let Self { atime, mtime, ctime, btime, .. } = *self;
        mode.put(out);
        marks.put(out);
        (*uid, *gid).put(out);
        (*links, *holders).put(out);
        (*xattrs, *xattr_bytes).put(out);
        Times { atime, mtime, ctime, btime }.put(out);
        body.put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let (mode, marks) = Field::get(from)?;
        let (uid, gid) = Field::get(from)?;
        let (links, holders) = Field::get(from)?;
        let (xattrs, xattr_bytes) = Field::get(from)?;
        let Times { atime, mtime, ctime, btime } = Times::get(from)?;
        let body = Body::get(from)?;
        let inode = Self {
            mode,
            marks,
            uid,
            gid,
            links,
            holders,
            xattrs,
            xattr_bytes,
            atime,
            mtime,
            ctime,
            btime,
            body,
        };
        if is_within_limits(&inode) {
            Ok(inode)
        } else {
            Err(DecodeError::Impossible("an inode that has more of something than there can be"))
        }
    }
}

/// A bit each.
impl Field for Marks {
    fn put(&self, out: &mut Sink) {
        let Self { acl_access, acl_default, capability } = *self;
        out.metadata.push(u8::from(acl_access) | u8::from(acl_default) << 1 | u8::from(capability) << 2);
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        match from.take()? {
            [byte @ 0..8] => {
                Ok(Self { acl_access: byte & 1 != 0, acl_default: byte & 2 != 0, capability: byte & 4 != 0 })
            }
            [byte] => Err(DecodeError::UnknownByte { field: "marks of an inode", byte }),
        }
    }
}

/// As two halves, the higher one first.
impl Field for u128 {
    fn put(&self, out: &mut Sink) {
        let bytes = self.to_be_bytes();
        for half in bytes.as_chunks().0 {
            u64::from_be_bytes(*half).put(out);
        }
    }

    fn get(from: &mut Source<'_>) -> Result<Self, DecodeError> {
        let (high, low) = (u64::get(from)?, u64::get(from)?);
        Ok(Self::from(high) << 64 | Self::from(low))
    }
}

const fn is_within_limits(inode: &Inode) -> bool {
    inode.mode <= MODE_BITS
        && inode.links <= LINKS_MAX
        && inode.holders <= CLIENTS_MAX
        && inode.xattrs <= XATTRS_MAX
        && inode.xattr_bytes as u64 <= XATTR_BYTES_MAX
}

const fn check_size(size: u64) -> Result<(), DecodeError> {
    if size > FILE_BYTES_MAX { Err(DecodeError::Impossible("a file of such a size")) } else { Ok(()) }
}

fn check_body(body: &Body) -> Result<(), DecodeError> {
    match body {
        Body::File { lent, last_lend, .. } if !are_in_order(lent.as_ref(), last_lend.as_ref()) => {
            Err(DecodeError::Impossible("a lend before one that is over"))
        }
        Body::File { size, .. } => check_size(*size),
        Body::Directory { lent: Some(Lent { to: LentTo::Content, .. }), .. } => {
            Err(DecodeError::Impossible("a directory that is lent to its content"))
        }
        _ => Ok(()),
    }
}

const fn check_doomed(doomed: &Doomed) -> Result<(), DecodeError> {
    check_size(doomed.size)
}

fn check_volume(volume: &Volume) -> Result<(), DecodeError> {
    let bytes_max = u128::from(volume.inodes) * u128::from(FILE_BYTES_MAX);
    if volume.clients > CLIENTS_MAX || volume.bytes > bytes_max {
        return Err(DecodeError::Impossible("a volume that holds more than there can be"));
    }
    Ok(())
}
