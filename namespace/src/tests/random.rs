//! Operations and questions at random, in a small world so that they meet.

use proptest::prelude::*;

use super::*;

fn any_name() -> impl Strategy<Value = Name> {
    prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(name)
}

/// Histories begin with these, so that there is something from the start; what is random has later entries.
pub(super) fn beginning() -> Vec<Op> {
    let linked = Change::Link { inode: id(4), dir: id(1), name: name("d") };
    let free = |seq, lend| Change::GiveBack {
        inode: id(seq),
        generation: Generation(at(lend)),
        given: Some(Given { size: seq, mtime: time(1), ctime: time(1) }),
        accessed: None,
        mode: None,
        changed: None,
    };
    let link = Make::Symlink { target: Target::new("there".into()).unwrap() };
    let (dir, make) = (InodeId::ROOT, Make::Directory);
    let (mode, umask, is_exclusive, lends) = (0o777, 0, true, true);
    let lending = Change::Create { dir, name: name("e"), make, mode, umask, is_exclusive, lends };
    let changes = vec![
        create(InodeId::ROOT, "a", Make::Directory, 0o777),
        create(InodeId::ROOT, "b", Make::Directory, 0o1777),
        create(id(1), "c", Make::Directory, 0o2775),
        create(InodeId::ROOT, "d", file(), 0o666),
        create(id(1), "a", file(), 0o6777),
        create(id(2), "b", file(), 0o640),
        create(id(3), "c", link, 0),
        linked,
        Change::Lend { inode: id(4), to: LentTo::Content },
        Change::Lend { inode: id(5), to: LentTo::Content },
        free(4, 9),
        free(5, 10),
        Change::Lend { inode: id(6), to: LentTo::Content },
        lending,
    ];
    assert!((changes.len() as u64) < FIRST);
    let op = |change| Op { time: time(1), who: Who::root(), client: client(0), change };
    changes.into_iter().map(op).collect()
}

/// The entry of the first random operation.
pub(super) const FIRST: u64 = 20;

/// The root, or whatever an entry has created, if it was one that does.
fn any_inode() -> impl Strategy<Value = InodeId> {
    prop_oneof![
        2 => Just(InodeId::ROOT),
        7 => (1..8_u64).prop_map(id),
        2 => (FIRST..FIRST + 10).prop_map(id),
        1 => (FIRST..FIRST + 60).prop_map(id),
    ]
}

/// A directory of the beginning, mostly.
fn any_dir() -> impl Strategy<Value = InodeId> {
    prop_oneof![3 => Just(InodeId::ROOT), 6 => (1..4_u64).prop_map(id), 2 => any_inode()]
}

/// A file of the beginning, mostly.
fn any_file() -> impl Strategy<Value = InodeId> {
    prop_oneof![5 => (4..7_u64).prop_map(id), 2 => any_inode()]
}

fn any_site() -> impl Strategy<Value = Site> {
    let expect = prop_oneof![
        8 => Just(Expect::Any),
        1 => Just(Expect::Nothing),
        1 => any_inode().prop_map(Expect::Inode),
    ];
    (any_dir(), any_name(), expect).prop_map(|(dir, name, expect)| Site { dir, name, expect })
}

pub(super) fn any_who() -> impl Strategy<Value = Who> {
    prop_oneof![
        4 => Just(Who::root()),
        1 => Just(user(1)),
        1 => Just(Who::new(2, 2, &[1, 3]).unwrap()),
    ]
}

fn any_client() -> impl Strategy<Value = ClientId> {
    (0..4_u64).prop_map(client)
}

/// One that ends, mostly the last, so that the others may do something.
fn any_ending() -> impl Strategy<Value = ClientId> {
    prop_oneof![9 => Just(client(3)), 1 => any_client()]
}

fn any_holders() -> impl Strategy<Value = Vec<ClientId>> {
    prop::collection::vec(any_client(), 0..4)
}

fn any_make() -> impl Strategy<Value = Make> {
    prop_oneof![
        3 => Just(file()),
        4 => Just(Make::Directory),
        1 => Just(Make::Symlink { target: Target::new("there".into()).unwrap() }),
        1 => Just(Make::Fifo),
        1 => Just(Make::CharDevice { rdev: 5 }),
    ]
}

fn any_mode() -> impl Strategy<Value = u16> {
    prop_oneof![Just(0o777), Just(0o7777), Just(0o6755), 0..0o10000_u16]
}

fn name_change() -> impl Strategy<Value = Change> {
    let how = prop_oneof![
        3 => Just(RenameHow::Replace),
        1 => Just(RenameHow::NoReplace),
        2 => Just(RenameHow::Exchange),
    ];
    prop_oneof![
        5 => (any_dir(), any_name(), any_make(), any_mode(), any::<bool>(), 0..4_u8).prop_map(
            |(dir, name, make, mode, is_exclusive, lends)| {
                Change::Create { dir, name, make, mode, umask: 0o022, is_exclusive, lends: lends == 0 }
            }
        ),
        2 => (any_dir(), FIRST..FIRST + 60, 0..9_u64, any_name(), 0..0o1000_u16, 0..99_u64).prop_map(
            |(dir, lend, number, name, mode, created)| {
                let (under, replicas, created) = (Generation(at(lend)), replicas(), time(created));
                Change::Enter { dir, under, number, name, replicas, mode, created }
            }
        ),
        2 => (any_file(), any_dir(), any_name())
            .prop_map(|(inode, dir, name)| Change::Link { inode, dir, name }),
        3 => (any_site(), any_holders(), 0..200_u64).prop_map(|(site, holders, removed)| {
            let removed = (removed < 99).then(|| time(removed));
            Change::Unlink { site, holders, removed }
        }),
        2 => (any_site(), any_holders()).prop_map(|(site, holders)| Change::RemoveDirectory { site, holders }),
        4 => (any_site(), any_site(), how, any_holders())
            .prop_map(|(from, to, how, holders)| Change::Rename { from, to, how, holders }),
    ]
}

fn any_set() -> impl Strategy<Value = SetAttributes> {
    let time =
        || prop::option::of(prop_oneof![Just(SetTime::Now), (0..99_u64).prop_map(|t| SetTime::To(time(t)))]);
    let of = prop::option::of::<BoxedStrategy<u32>>;
    (
        prop::option::of(any_mode()),
        of((0..4_u32).boxed()),
        of((0..4_u32).boxed()),
        prop::option::of(0..100_u64),
        (time(), time()),
        any::<bool>(),
    )
        .prop_map(|(mode, uid, gid, size, (atime, mtime), is_open)| SetAttributes {
            mode,
            uid,
            gid,
            size,
            atime,
            mtime,
            is_open,
        })
}

pub(super) fn any_acl() -> impl Strategy<Value = Vec<u8>> {
    let named = |tag| prop::collection::vec((1..4_u32, 0..8_u16), 0..2).prop_map(move |all| (tag, all));
    (0..8_u16, named(2), 0..8_u16, named(8), 0..8_u16, 0..8_u16).prop_map(
        |(owner, (user, users), group, (other, groups), mask, others)| {
            let mut entries = vec![(1, u32::MAX, owner)];
            entries.extend(users.iter().map(|&(id, bits)| (user, id, bits)));
            entries.push((4, u32::MAX, group));
            entries.extend(groups.iter().map(|&(id, bits)| (other, id, bits)));
            entries.extend((mask > 0 || !users.is_empty() || !groups.is_empty()).then_some((
                0x10,
                u32::MAX,
                mask,
            )));
            entries.push((0x20, u32::MAX, others));
            acl_bytes(&entries)
        },
    )
}

/// An ACL from its entries: tag, id, permissions.
pub(super) fn acl_bytes(entries: &[(u16, u32, u16)]) -> Vec<u8> {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, id, permissions) in entries {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(permissions.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

fn any_xattr() -> impl Strategy<Value = XattrName> {
    prop::sample::select(vec!["user.a", "user.b", "trusted.a", "security.capability"]).prop_map(xattr)
}

fn inode_change() -> impl Strategy<Value = Change> {
    let how =
        || prop_oneof![3 => Just(XattrHow::Any), 1 => Just(XattrHow::Create), 1 => Just(XattrHow::Replace)];
    let acl = prop_oneof![Just(XattrName::acl_access()), Just(XattrName::acl_default())];
    let removed = prop_oneof![any_xattr(), Just(XattrName::acl_access()), Just(XattrName::acl_default())];
    prop_oneof![
        4 => (any_inode(), any_set()).prop_map(|(inode, set)| Change::SetAttributes { inode, set }),
        2 => (any_inode(), any_xattr(), 0..9_usize, how()).prop_map(|(inode, name, length, how)| {
            Change::SetXattr { inode, name, value: vec![0; length].into(), how }
        }),
        3 => (any_inode(), acl, any_acl())
            .prop_map(|(inode, name, acl)| Change::SetXattr { inode, name, value: acl.into(), how: XattrHow::Any }),
        1 => (any_inode(), removed).prop_map(|(inode, name)| Change::RemoveXattr { inode, name }),
        2 => any_file().prop_map(|inode| Change::Lend { inode, to: LentTo::Content }),
        1 => lent().prop_map(|(inode, generation)| Change::GiveBack { inode, generation, given: None, accessed: None, mode: None, changed: None }),
        4 => (lent(), 0..9_u64, 0..99_u64).prop_map(|((inode, generation), size, now)| {
            let now = time(now);
            Change::GiveBack { inode, generation, given: Some(Given { size, mtime: now, ctime: now }), accessed: None, mode: None, changed: None }
        }),
    ]
}

/// A file and a lend, perhaps the one that is going on from the beginning.
fn lent() -> impl Strategy<Value = (InodeId, Generation)> {
    prop_oneof![
        2 => Just((id(6), Generation(at(13)))),
        3 => (any_file(), FIRST..FIRST + 40).prop_map(|(inode, seq)| (inode, Generation(at(seq)))),
    ]
}

fn any_lock() -> impl Strategy<Value = Lock> {
    (any_client(), 0..2_u64, any::<bool>(), any::<bool>(), 0..12_u64, 0..12_u64).prop_map(
        |(client, number, is_flock, is_shared, first, length)| Lock {
            owner: Owner { client, number },
            kind: if is_flock { LockKind::Flock } else { LockKind::Fcntl },
            mode: if is_shared { LockMode::Shared } else { LockMode::Exclusive },
            stretch: Stretch { first, last: first + length },
        },
    )
}

fn client_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        1 => (any_file(), any_client()).prop_map(|(inode, client)| Change::Hold { inode, client }),
        2 => (any_file(), any_client()).prop_map(|(inode, client)| Change::Release { inode, client }),
        1 => any_file().prop_map(|inode| Change::Deleted { inode }),
        1 => Just(Change::Settle),
        1 => any_client().prop_map(|client| Change::Welcome { client, opens: client.program % 2 == 0 }),
        1 => any_ending().prop_map(|client| Change::Expire { client }),
        2 => any_ending().prop_map(|client| Change::Forget { client }),
    ]
}

pub(super) fn lock_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (any_file(), any_lock(), any::<bool>())
            .prop_map(|(inode, lock, wait)| Change::Lock { inode, lock, wait }),
        2 => (any_file(), any_lock()).prop_map(|(inode, Lock { owner, kind, stretch, .. })| {
            Change::Unlock { inode, owner, kind, stretch }
        }),
        2 => (any_file(), FIRST..FIRST + 30).prop_map(|(inode, seq)| Change::Cancel { inode, ticket: Ticket(at(seq)) }),
    ]
}

/// What is removed by itself is removed by the client that has the directory, if one has.
fn of_its_lender(tree: &Tree<Memory>, op: &mut Op) {
    if let Change::Unlink { site, removed, .. } = &mut op.change
        && removed.is_some()
    {
        match tree.lent(site.dir).and_then(|lent| lent.to.client()) {
            Some(client) => op.client = client,
            None => *removed = None,
        }
    }
}

/// Makes most operations that would hardly ever find what they are about find something.
pub(super) fn aim(tree: &Tree<Memory>, mut op: Op) -> Op {
    if op.time.as_micros().is_multiple_of(4) {
        return op;
    }
    let keys = || tree.versions(None, usize::MAX).into_iter().map(|(key, _)| key);
    let draw = usize::try_from(op.time.as_micros()).unwrap();
    let pick = |all: Vec<Key>| if all.is_empty() { None } else { Some(all[draw % all.len()].clone()) };
    match &mut op.change {
        Change::Cancel { inode, ticket } => {
            if let Some(Key::Wait(owner, found)) =
                pick(keys().filter(|key| matches!(key, Key::Wait(..))).collect())
                && let Some(Part::Wait(file)) = tree.part(&Key::Wait(owner, found))
            {
                (*inode, *ticket, op.client) = (file, found, owner.client);
            }
        }
        Change::Release { inode, client } => {
            if let Some(Key::Hold(orphan, holder)) =
                pick(keys().filter(|key| matches!(key, Key::Hold(..))).collect())
            {
                (*inode, *client) = (orphan, holder);
            }
        }
        Change::Enter { dir, under, .. } => {
            let of_dirs = keys().filter(|key| is_of_lent_dir(tree, key));
            if let Some(Key::Lender(client, lent)) = pick(of_dirs.collect()) {
                (op.client, *dir) = (client, lent);
                *under = tree.lent(lent).unwrap().generation;
            }
        }
        Change::GiveBack { inode, generation, .. } if draw.is_multiple_of(5) => {
            if let Some(Key::Lender(_, lent)) = pick(keys().filter(is_of_lent).collect()) {
                (*inode, *generation) = (lent, tree.lent(lent).unwrap().generation);
            }
        }
        Change::Hold { inode, .. } => {
            if let Some(Key::Orphan(orphan)) =
                pick(keys().filter(|key| matches!(key, Key::Orphan(_))).collect())
            {
                *inode = orphan;
            }
        }
        Change::Deleted { inode } => {
            if let Some(Key::Doomed(doomed)) =
                pick(keys().filter(|key| matches!(key, Key::Doomed(_))).collect())
            {
                *inode = doomed;
            }
        }
        Change::RemoveXattr { inode, name } => {
            if let Some(Key::Xattr(of, found)) =
                pick(keys().filter(|key| matches!(key, Key::Xattr(..))).collect())
            {
                (*inode, *name) = (of, found);
            }
        }
        Change::Unlink { site, .. }
        | Change::RemoveDirectory { site, .. }
        | Change::Rename { from: site, .. } => {
            if let Some(Key::Entry(dir, name)) =
                pick(keys().filter(|key| matches!(key, Key::Entry(..))).collect())
            {
                (site.dir, site.name) = (dir, name);
            }
            of_its_lender(tree, &mut op);
        }
        _ => {}
    }
    op
}

fn is_of_lent(key: &Key) -> bool {
    matches!(key, Key::Lender(..))
}

fn is_of_lent_dir(tree: &Tree<Memory>, key: &Key) -> bool {
    let Key::Lender(_, inode) = key else { return false };
    matches!(tree.part(&Key::Inode(*inode)), Some(Part::Inode(found)) if found.is_directory())
}

/// Any operation. A lock's owner is of the client that asks.
pub(super) fn any_op() -> impl Strategy<Value = Op> {
    let change = prop_oneof![
        5 => name_change(),
        4 => inode_change(),
        3 => lock_change(),
        2 => client_change(),
    ];
    (0..99_u64, any_who(), any_client(), change).prop_map(|(now, who, client, change)| {
        let client = match &change {
            Change::Lock { lock, .. } => lock.owner.client,
            Change::Unlock { owner, .. } => owner.client,
            _ => client,
        };
        Op { time: time(now), who, client, change }
    })
}

pub(super) fn any_query() -> impl Strategy<Value = Query> {
    let ask = prop_oneof![
        4 => (any_dir(), any_name()).prop_map(|(dir, name)| Ask::Lookup { dir, name }),
        2 => any_inode().prop_map(|inode| Ask::Attributes { inode }),
        2 => (any_dir(), any::<bool>()).prop_map(|(dir, with_attributes)| {
            Ask::List { dir, after: None, entries_max: 3, with_attributes }
        }),
        1 => any_inode().prop_map(|inode| Ask::Readlink { inode }),
        1 => (any_inode(), any_xattr()).prop_map(|(inode, name)| Ask::GetXattr { inode, name }),
        1 => any_inode().prop_map(|inode| Ask::ListXattrs { inode }),
        2 => (any_inode(), 0..8_u16)
            .prop_map(|(inode, bits)| Ask::Access { inode, rights: Rights::from_bits(bits) }),
        1 => Just(Ask::Statfs),
        1 => (any_inode(), any_lock()).prop_map(|(inode, lock)| Ask::TestLock { inode, lock }),
        1 => any_inode().prop_map(|inode| Ask::Locks { inode }),
        1 => Just(Ask::Orphans { after: None }),
        1 => Just(Ask::Doomed { after: None }),
        1 => Just(Ask::Clients { after: None }),
        1 => any_client().prop_map(|client| Ask::Holds { client, after: None }),
    ];
    (any_who(), ask).prop_map(|(who, ask)| Query { who, ask })
}
