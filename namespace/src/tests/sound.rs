//! What holds of every tree: counts are right, and what is noted twice agrees.

use std::collections::BTreeMap;

use super::*;
use crate::limits::{LOCKS_MAX, WAITING_MAX};

/// What was counted.
#[derive(Default)]
struct Counts {
    names: BTreeMap<InodeId, u32>,
    entries: BTreeMap<InodeId, u64>,
    directories: BTreeMap<InodeId, u32>,
    xattrs: BTreeMap<InodeId, (u16, u32)>,
    holders: BTreeMap<InodeId, u32>,
    inodes: u64,
    bytes: u128,
    clients: u32,
}

/// Panics if something does not fit together.
pub(super) fn check(tree: &Tree<Memory>) {
    let all = tree.versions(None, usize::MAX);
    let counts = count(tree, &all);
    for (key, _) in &all {
        let part = tree.part(key).unwrap();
        assert!(part.is_of(key), "{key:?}: {part:?}");
        assert!(cost::part_bytes(&part) <= cost::PART_BYTES_MAX);
        match part {
            Part::Inode(inode) => check_inode(tree, key, &inode, &counts),
            Part::Locks(locks) => check_locks(tree, key, &locks),
            _ => check_other(tree, key, &part),
        }
    }
    let Some(Part::Volume(volume)) = tree.part(&Key::Volume) else { panic!("there is a volume") };
    let counted = (counts.inodes, counts.bytes, counts.clients);
    assert_eq!((volume.inodes, volume.bytes, volume.clients), counted);
}

fn count(tree: &Tree<Memory>, all: &[(Key, Born)]) -> Counts {
    let mut counts = Counts::default();
    for (key, _) in all {
        match (key, tree.part(key).unwrap()) {
            (Key::Entry(dir, _), Part::Entry(Entry { inode, kind })) => {
                *counts.names.entry(inode).or_default() += 1;
                *counts.entries.entry(*dir).or_default() += 1;
                *counts.directories.entry(*dir).or_default() += u32::from(kind == Kind::Directory);
            }
            (Key::Xattr(inode, name), Part::Value(value)) => {
                let (count, bytes) = counts.xattrs.entry(*inode).or_default();
                *count += 1;
                *bytes += u32::try_from(name.as_bytes().len() + value.len()).unwrap();
            }
            (Key::Hold(inode, _), _) => *counts.holders.entry(*inode).or_default() += 1,
            (Key::Inode(_), Part::Inode(inode)) => {
                counts.inodes += 1;
                counts.bytes += if let Body::File { size, .. } = inode.body { size.into() } else { 0 };
            }
            (Key::Doomed(_), Part::Doomed(doomed)) => {
                counts.inodes += 1;
                counts.bytes += u128::from(doomed.size);
            }
            (Key::Client(_), _) => counts.clients += 1,
            _ => {}
        }
    }
    counts
}

fn check_inode(tree: &Tree<Memory>, key: &Key, inode: &Inode, counts: &Counts) {
    let Key::Inode(id) = *key else { panic!("{key:?}") };
    let names = counts.names.get(&id).copied().unwrap_or(0);
    let directories = counts.directories.get(&id).copied().unwrap_or(0);
    let is_orphan = tree.part(&Key::Orphan(id)).is_some();
    if let Body::Directory { parent, entries, .. } = inode.body {
        assert_eq!(entries, counts.entries.get(&id).copied().unwrap_or(0), "{id}");
        assert_eq!(names, u32::from(id != InodeId::ROOT && !is_orphan), "{id}");
        assert_eq!(inode.links, if is_orphan { 0 } else { 2 + directories }, "{id}");
        assert!(is_orphan || matches!(tree.part(&Key::Inode(parent)), Some(Part::Inode(_))), "{id}");
        check_reaches_root(tree, id, is_orphan);
    } else {
        assert_eq!((inode.links, directories), (names, 0), "{id}");
    }
    if let Body::File { lent: Some(lent), last_lend, .. } = inode.body {
        assert!(last_lend.is_none_or(|last| last < lent.generation), "{id}");
    }
    if let Some(Lent { to, .. }) = inode.lent() {
        let client = to.client();
        assert!(client.is_some() || !inode.is_directory(), "{id}");
        let is_noted = |client| tree.part(&Key::Lender(client, id)) == Some(Part::Mark);
        assert!(client.is_none_or(is_noted), "{id}");
    }
    assert_eq!(is_orphan, inode.links == 0, "{id}");
    assert_eq!(is_orphan, inode.holders > 0, "{id}");
    assert_eq!(inode.holders, counts.holders.get(&id).copied().unwrap_or(0), "{id}");
    let xattrs = counts.xattrs.get(&id).copied().unwrap_or_default();
    assert_eq!((inode.xattrs, inode.xattr_bytes), xattrs, "{id}");
    let has = |name| tree.part(&Key::Xattr(id, name)).is_some();
    let marks = Marks {
        acl_access: has(XattrName::acl_access()),
        acl_default: has(XattrName::acl_default()),
        capability: has(XattrName::capability()),
    };
    assert_eq!(inode.marks, marks, "{id}");
    assert!(inode.mode <= 0o7777);
    let acl = if let Some(Part::Value(acl)) = tree.part(&Key::Xattr(id, XattrName::acl_access())) {
        acl::Acl::parse(&acl).unwrap()
    } else {
        None
    };
    assert!(acl.is_none_or(|acl| acl.mode() == inode.mode & 0o777 && !acl.is_mode()), "{id}");
}

fn check_reaches_root(tree: &Tree<Memory>, id: InodeId, is_orphan: bool) {
    let mut above = id;
    for _ in 0..if is_orphan { 0 } else { 10_000 } {
        match tree.part(&Key::Inode(above)) {
            _ if above == InodeId::ROOT => return,
            Some(Part::Inode(inode)) => match inode.body {
                Body::Directory { parent, .. } => above = parent,
                _ => panic!("{above} is above {id}"),
            },
            other => panic!("{above} above {id} is {other:?}"),
        }
    }
    assert!(is_orphan, "{id} is below itself");
}

fn check_locks(tree: &Tree<Memory>, key: &Key, locks: &Locks) {
    let Key::Locks(id) = *key else { panic!("{key:?}") };
    assert!(locks.is_sound(), "{locks:?}");
    assert!(!locks.is_empty() && locks.held.len() <= LOCKS_MAX && locks.waiting.len() <= WAITING_MAX);
    assert!(tree.part(&Key::Inode(id)).is_some(), "{id} has locks and is gone");
    for (place, lock) in locks.held.iter().enumerate() {
        assert!(lock.stretch.first <= lock.stretch.last);
        assert!(locks.held[..place].iter().all(|other| !other.conflicts(lock)), "{locks:?}");
        let own = locks.held[..place].iter().filter(|o| o.owner == lock.owner && o.kind == lock.kind);
        for other in own {
            assert!(other.stretch.last < lock.stretch.first, "in order, apart: {locks:?}");
            assert!(other.mode != lock.mode || other.stretch.last + 1 < lock.stretch.first, "{locks:?}");
        }
        assert!(tree.part(&Key::Locker(lock.owner.client, id)).is_some());
    }
    let is_unsettled = tree.part(&Key::Unsettled(id)).is_some();
    for (place, Waiting { ticket, lock }) in locks.waiting.iter().enumerate() {
        assert!(
            is_unsettled || locks.blockers(lock, place).next().is_some(),
            "nobody is in the way: {locks:?}"
        );
        assert_eq!(tree.part(&Key::Wait(lock.owner, *ticket)), Some(Part::Wait(id)));
        assert!(tree.part(&Key::Locker(lock.owner.client, id)).is_some());
    }
}

fn check_other(tree: &Tree<Memory>, key: &Key, part: &Part) {
    let has = |key| tree.part(&key).is_some();
    let locks = |inode| match tree.part(&Key::Locks(inode)) {
        Some(Part::Locks(locks)) => locks,
        other => panic!("{key:?}: {other:?}"),
    };
    match (key, part) {
        (Key::Entry(dir, _), Part::Entry(Entry { inode, kind })) => {
            let Some(Part::Inode(found)) = tree.part(&Key::Inode(*inode)) else { panic!("{key:?}") };
            assert_eq!(found.kind(), *kind);
            if let Body::Directory { parent, .. } = found.body {
                assert_eq!(parent, *dir);
            }
        }
        (Key::Xattr(inode, _) | Key::Orphan(inode), _) => assert!(has(Key::Inode(*inode)), "{key:?}"),
        (Key::Hold(inode, client), _) => {
            assert!(has(Key::Held(*client, *inode)) && has(Key::Orphan(*inode)) && has(Key::Client(*client)));
        }
        (Key::Held(client, inode), _) => assert!(has(Key::Hold(*inode, *client))),
        (Key::Locker(client, inode), _) => {
            assert!(locks(*inode).concern(*client) && has(Key::Client(*client)));
        }
        (Key::Wait(owner, ticket), Part::Wait(inode)) => {
            let is_it = |waiting: &Waiting| waiting.ticket == *ticket && waiting.lock.owner == *owner;
            assert!(locks(*inode).waiting.iter().any(is_it));
        }
        (Key::Lender(client, inode), _) => {
            assert_eq!(tree.lent(*inode).and_then(|lent| lent.to.client()), Some(*client), "{key:?}");
            assert!(has(Key::Client(*client)), "{key:?}");
        }
        (Key::Doomed(inode), _) => assert!(!has(Key::Inode(*inode))),
        (Key::Unsettled(inode), _) => assert!(!locks(*inode).waiting.is_empty()),
        (Key::Client(client), Part::Client(ClientState::Caching | ClientState::Ended)) => {
            let left = |key: &Key| {
                matches!(key, Key::Held(of, _) | Key::Locker(of, _) if of == client)
                    || matches!(key, Key::Wait(of, _) if of.client == *client)
            };
            assert!(!tree.versions(None, usize::MAX).iter().any(|(key, _)| left(key)));
        }
        _ => {}
    }
}
