//! A part of a tree under a key of each sort.

use std::sync::Arc;

use base::{ClientId, Epoch, Members, NodeId, Seq, WallTime};
use bytes::Bytes;
use namespace::{
    Body, Born, ClientState, Doomed, Entry, Generation, Inode, InodeId, Key, Kind, Lent, LentTo, Lock,
    LockKind, LockMode, Locks, Marks, Name, Owner, Part, Stretch, Target, Ticket, Volume, VolumeName,
    Waiting, XattrName,
};

pub(crate) const CLIENT: ClientId = ClientId { certificate: 255, program: 1 };
pub(crate) const OWNER: Owner = Owner { client: CLIENT, number: 6 };

pub(crate) fn born(seq: u64) -> Born {
    Born { epoch: Epoch { number: 5, node: NodeId(1) }, seq: Seq(seq) }
}

pub(crate) fn inode_id(seq: u64) -> InodeId {
    InodeId::of(born(seq))
}

pub(crate) fn entry_name() -> Name {
    Name::new(b"a name").unwrap()
}

pub(crate) fn xattr_name() -> XattrName {
    XattrName::new(b"user.a").unwrap()
}

pub(crate) fn replicas() -> Members {
    Members::new([1, 2, 300].map(NodeId)).unwrap()
}

pub(crate) fn fcntl_lock() -> Lock {
    let (kind, mode) = (LockKind::Fcntl, LockMode::Exclusive);
    Lock { owner: OWNER, kind, mode, stretch: Stretch { first: 0, last: 300 } }
}

pub(crate) fn flock_lock() -> Lock {
    let (kind, mode) = (LockKind::Flock, LockMode::Shared);
    Lock { owner: Owner { number: 7, ..OWNER }, kind, mode, stretch: Stretch::ALL }
}

pub(crate) fn locks() -> Locks {
    let waiting = Waiting { ticket: Ticket(born(8)), lock: flock_lock() };
    Locks { held: vec![fcntl_lock()], waiting: vec![waiting] }
}

/// An inode with this body. Its times are some microseconds apart.
pub(crate) fn inode(body: Body) -> Inode {
    let time = |micros: u64| WallTime::from_micros(1_000 + micros);
    Inode {
        mode: 0o640,
        marks: Marks { acl_access: true, acl_default: false, capability: true },
        uid: 1000,
        gid: 100,
        links: 1,
        holders: 0,
        xattrs: 2,
        xattr_bytes: 300,
        atime: time(2),
        mtime: time(0),
        ctime: time(0),
        btime: WallTime::from_micros(999),
        body,
    }
}

fn lent() -> Option<Lent> {
    Some(Lent { generation: Generation(born(9)), to: LentTo::Client(CLIENT) })
}

pub(crate) fn file() -> Body {
    let last_lend = Some(Generation(born(8)));
    Body::File { size: 4096, replicas: replicas(), lent: lent(), last_lend }
}

/// The bodies of all kinds but files.
pub(crate) fn bodies() -> [Body; 6] {
    [
        Body::Directory { parent: InodeId::ROOT, entries: 3, lent: lent() },
        Body::Symlink { target: Target::new(Bytes::from_static(b"../x")).unwrap() },
        Body::Fifo,
        Body::Socket,
        Body::CharDevice { rdev: 0x0103 },
        Body::BlockDevice { rdev: 0x0800 },
    ]
}

/// What is there and where, with the entry that changed it last.
pub(crate) fn name_parts() -> Vec<(Key, Born, Part)> {
    let id = inode_id(7);
    let volume = Volume { inodes: 9, inodes_max: 300, bytes: 1 << 65, bytes_max: u64::MAX, clients: 2 };
    let doomed = Doomed { replicas: replicas(), size: 4096 };
    let parts = [
        (Key::Inode(id), Part::Inode(inode(file()).into())),
        (Key::Volume, Part::Volume(volume.into())),
        (Key::Entry(InodeId::ROOT, entry_name()), Part::Entry(Entry { inode: id, kind: Kind::File })),
        (Key::Xattr(id, xattr_name()), Part::Value(Arc::new(Bytes::from_static(b"some value")))),
        (Key::Locks(id), Part::Locks(locks().into())),
        (Key::Hold(id, CLIENT), Part::Mark),
        (Key::Orphan(id), Part::Mark),
        (Key::Doomed(id), Part::Doomed(doomed.into())),
        (Key::Unsettled(id), Part::Mark),
        (Key::Client(CLIENT), Part::Client(ClientState::Ending)),
        (Key::Held(CLIENT, id), Part::Mark),
        (Key::Locker(CLIENT, id), Part::Mark),
        (Key::Wait(OWNER, Ticket(born(8))), Part::Wait(id)),
        (Key::Name, Part::Name(VolumeName::parse("home").unwrap().into())),
        (Key::Lender(CLIENT, id), Part::Mark),
    ];
    parts.map(|(key, part)| (key, born(10), part)).into()
}
