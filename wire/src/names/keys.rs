//! Layout: keys of the parts of a tree whose bytes are in the order of the keys, for an index that compares bytes.
//!
//! A key begins with the number of its sort. Numbers follow with all of their bytes, the highest first, and a name stands at
//! the end: what is less comes first, and a name before those that it begins.

use base::{ClientId, Epoch, NodeId, Seq};
use namespace::{Born, InodeId, Key, Name, Owner, Ticket, XattrName};

const INODE: u8 = 0;
const VOLUME: u8 = 1;
const ENTRY: u8 = 2;
const XATTR: u8 = 3;
const LOCKS: u8 = 4;
const HOLD: u8 = 5;
const ORPHAN: u8 = 6;
const DOOMED: u8 = 7;
const UNSETTLED: u8 = 8;
const CLIENT: u8 = 9;
const HELD: u8 = 10;
const LOCKER: u8 = 11;
const WAIT: u8 = 12;
const NAME: u8 = 13;
const LENDER: u8 = 14;

/// The bytes of a key. Those of two keys are in the order of the keys.
pub fn encode_name_key(key: &Key) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sort = |number| bytes.push(number);
    match key {
        Key::Inode(_) => sort(INODE),
        Key::Volume => sort(VOLUME),
        Key::Entry(..) => sort(ENTRY),
        Key::Xattr(..) => sort(XATTR),
        Key::Locks(_) => sort(LOCKS),
        Key::Hold(..) => sort(HOLD),
        Key::Orphan(_) => sort(ORPHAN),
        Key::Doomed(_) => sort(DOOMED),
        Key::Unsettled(_) => sort(UNSETTLED),
        Key::Client(_) => sort(CLIENT),
        Key::Held(..) => sort(HELD),
        Key::Locker(..) => sort(LOCKER),
        Key::Wait(..) => sort(WAIT),
        Key::Name => sort(NAME),
        Key::Lender(..) => sort(LENDER),
    }
    match key {
        Key::Volume | Key::Name => {}
        Key::Inode(inode)
        | Key::Locks(inode)
        | Key::Orphan(inode)
        | Key::Doomed(inode)
        | Key::Unsettled(inode) => put_inode(*inode, &mut bytes),
        Key::Entry(dir, name) => {
            put_inode(*dir, &mut bytes);
            bytes.extend_from_slice(name.as_bytes());
        }
        Key::Xattr(inode, name) => {
            put_inode(*inode, &mut bytes);
            bytes.extend_from_slice(name.as_bytes());
        }
        Key::Hold(inode, client) => {
            put_inode(*inode, &mut bytes);
            put_client(*client, &mut bytes);
        }
        Key::Client(client) => put_client(*client, &mut bytes),
        Key::Held(client, inode) | Key::Locker(client, inode) | Key::Lender(client, inode) => {
            put_client(*client, &mut bytes);
            put_inode(*inode, &mut bytes);
        }
        Key::Wait(Owner { client, number }, Ticket(Born { epoch, seq })) => {
            put_client(*client, &mut bytes);
            bytes.extend(number.to_be_bytes());
            put_epoch(*epoch, &mut bytes);
            bytes.extend(seq.0.to_be_bytes());
        }
    }
    bytes
}

/// The key that these are the bytes of, if they are those of one.
pub fn decode_name_key(bytes: &[u8]) -> Option<Key> {
    let (&sort, rest) = bytes.split_first()?;
    let mut rest = rest;
    let from = &mut rest;
    let key = match sort {
        INODE => Key::Inode(get_inode(from)?),
        VOLUME => Key::Volume,
        ENTRY => Key::Entry(get_inode(from)?, Name::new(std::mem::take(from)).ok()?),
        XATTR => Key::Xattr(get_inode(from)?, XattrName::new(std::mem::take(from)).ok()?),
        LOCKS => Key::Locks(get_inode(from)?),
        HOLD => Key::Hold(get_inode(from)?, get_client(from)?),
        ORPHAN => Key::Orphan(get_inode(from)?),
        DOOMED => Key::Doomed(get_inode(from)?),
        UNSETTLED => Key::Unsettled(get_inode(from)?),
        CLIENT => Key::Client(get_client(from)?),
        HELD => Key::Held(get_client(from)?, get_inode(from)?),
        LOCKER => Key::Locker(get_client(from)?, get_inode(from)?),
        WAIT => {
            let owner = Owner { client: get_client(from)?, number: get_u64(from)? };
            Key::Wait(owner, Ticket(Born { epoch: get_epoch(from)?, seq: Seq(get_u64(from)?) }))
        }
        NAME => Key::Name,
        LENDER => Key::Lender(get_client(from)?, get_inode(from)?),
        _ => return None,
    };
    rest.is_empty().then_some(key)
}

fn put_inode(inode: InodeId, out: &mut Vec<u8>) {
    out.extend(inode.number.to_be_bytes());
    put_epoch(inode.epoch, out);
}

fn get_inode(from: &mut &[u8]) -> Option<InodeId> {
    Some(InodeId { number: get_u64(from)?, epoch: get_epoch(from)? })
}

fn put_epoch(epoch: Epoch, out: &mut Vec<u8>) {
    out.extend(epoch.number.to_be_bytes());
    out.extend(epoch.node.0.to_be_bytes());
}

fn get_epoch(from: &mut &[u8]) -> Option<Epoch> {
    Some(Epoch { number: get_u64(from)?, node: NodeId(u32::from_be_bytes(take(from)?)) })
}

fn put_client(client: ClientId, out: &mut Vec<u8>) {
    out.extend(client.certificate.to_be_bytes());
    out.extend(client.program.to_be_bytes());
}

fn get_client(from: &mut &[u8]) -> Option<ClientId> {
    Some(ClientId { certificate: get_u64(from)?, program: get_u64(from)? })
}

fn get_u64(from: &mut &[u8]) -> Option<u64> {
    take(from).map(u64::from_be_bytes)
}

fn take<const N: usize>(from: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(*first)
}
