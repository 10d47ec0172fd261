//! Who may do what: modes, and ACLs.

use super::random::{acl_bytes, any_acl};
use super::*;

use proptest::prelude::*;

const ROOT: InodeId = InodeId::ROOT;

#[test]
fn the_mode_says_who_may() {
    // Of an inode of user 1 and group 10: its mode, whether it is a directory, who, and what that one may.
    let member = || Who::new(2, 10, &[]).unwrap();
    let also = || Who::new(2, 2, &[4, 10]).unwrap();
    let table = [
        (0o700, false, user(1), 7),
        (0o077, false, user(1), 0),
        (0o070, false, member(), 7),
        (0o070, false, also(), 7),
        (0o707, false, member(), 0),
        (0o007, false, user(3), 7),
        (0o770, false, user(3), 0),
        (0o654, false, user(1), 6),
        (0o654, false, member(), 5),
        (0o654, false, user(3), 4),
        (0o000, false, Who::root(), 6),
        (0o001, false, Who::root(), 7),
        (0o000, true, Who::root(), 7),
    ];
    for (mode, is_directory, who, may) in table {
        let mut world = World::default();
        let make = if is_directory { Make::Directory } else { Make::Fifo };
        let inode = world.create(ROOT, "f", make, 0);
        world.run(chown(inode, 1, 10));
        world.run(chmod(inode, mode));
        for bits in 0..8 {
            assert_eq!(world.may(&who, inode, bits), bits & !may == 0, "{mode:o} {who:?} {bits}");
        }
    }
}

#[test]
fn the_acl_says_who_may() {
    const NONE: u32 = u32::MAX;
    let acl = |users: &[(u32, u16)], group, groups: &[(u32, u16)], mask: Option<u16>| {
        let mut entries = vec![(1, NONE, 6)];
        entries.extend(users.iter().map(|&(id, bits)| (2, id, bits)));
        entries.push((4, NONE, group));
        entries.extend(groups.iter().map(|&(id, bits)| (8, id, bits)));
        entries.extend(mask.map(|mask| (0x10, NONE, mask)));
        entries.push((0x20, NONE, 1));
        entries
    };
    let many = || Who::new(3, 3, &[10, 20, 30]).unwrap();
    let table = [
        (acl(&[(2, 7)], 0, &[], Some(7)), user(1), 6, "the owner is not masked"),
        (acl(&[(1, 7)], 0, &[], Some(7)), user(1), 6, "the owner is no other user"),
        (acl(&[(2, 7)], 0, &[], Some(5)), user(2), 5, "others are masked"),
        (acl(&[(2, 0)], 7, &[], Some(7)), Who::new(2, 10, &[]).unwrap(), 0, "a user before its groups"),
        (acl(&[], 7, &[(20, 1)], Some(4)), Who::new(2, 10, &[]).unwrap(), 4, "the group is masked"),
        (acl(&[], 0, &[(20, 7)], Some(3)), Who::new(2, 20, &[]).unwrap(), 3, "other groups are masked"),
        (acl(&[(2, 7)], 7, &[], Some(0)), user(2), 0, "a mask that leaves nothing"),
        (acl(&[(2, 7)], 7, &[], Some(0)), user(9), 1, "the rest is not masked"),
        (acl(&[], 0, &[(20, 0)], Some(7)), many(), 0, "who is in a group is not of the rest"),
    ];
    for (entries, who, may, what) in table {
        let mut world = World::default();
        let inode = world.create(ROOT, "f", Make::Fifo, 0);
        world.run(chown(inode, 1, 10));
        world.run(set_xattr(inode, "system.posix_acl_access", &acl_bytes(&entries)));
        for bits in 0..8 {
            assert_eq!(world.may(&who, inode, bits), bits & !may == 0, "{what}: {bits}");
        }
    }
    // Any one group that allows all of it will do, and no two together.
    let mut world = World::default();
    let inode = world.create(ROOT, "f", Make::Fifo, 0);
    let entries = acl(&[], 1, &[(10, 4), (20, 6), (30, 1)], Some(7));
    world.run(set_xattr(inode, "system.posix_acl_access", &acl_bytes(&entries)));
    let may: Vec<u16> = (0..8).filter(|&bits| world.may(&many(), inode, bits)).collect();
    assert_eq!(may, [0, 1, 2, 4, 6]);
}

#[test]
fn bytes_are_an_acl_only_as_the_kernel_lays_it_out() {
    const NONE: u32 = u32::MAX;
    let (user, group, mask, other) = ((1, NONE, 6), (4, NONE, 4), (0x10, NONE, 4), (0x20, NONE, 0));
    let good: &[&[(u16, u32, u16)]] = &[
        &[user, group, other],
        &[user, group, mask, other],
        &[user, (2, 0, 7), (2, 9, 0), group, (8, 9, 1), mask, other],
        &[user, (2, 9, 7), (2, 0, 0), group, mask, other],
    ];
    for entries in good {
        let acl = acl::Acl::parse(&acl_bytes(entries)).unwrap().unwrap();
        assert_eq!(acl.to_bytes(), acl_bytes(entries));
    }
    let bad: &[&[(u16, u32, u16)]] = &[
        &[user, group],
        &[group, other],
        &[user, other],
        &[group, user, other],
        &[user, group, other, other],
        &[user, user, group, other],
        &[user, (2, 9, 7), group, other],
        &[user, (2, NONE, 7), group, mask, other],
        &[user, (2, 9, 7), (2, 9, 6), group, mask, other],
        &[user, group, (8, 1, 7), (8, 1, 7), mask, other],
        &[user, group, other, mask],
        &[(1, NONE, 8), group, other],
        &[user, group, (0x40, 1, 1), other],
    ];
    for entries in bad {
        assert_eq!(acl::Acl::parse(&acl_bytes(entries)), Err(NotAcl::Entries), "{entries:?}");
    }
    assert_eq!(acl::Acl::parse(&acl_bytes(&[])), Ok(None));
    let whole = acl_bytes(good[0]);
    for bytes in [&[], &whole[..3], &whole[..whole.len() - 1], &[&[1], &whole[1..]].concat()] {
        assert_eq!(acl::Acl::parse(bytes), Err(NotAcl::Layout));
    }
    let users = (0..).take(limits::ACL_ENTRIES_MAX).map(|id| (2, id, 7));
    let long: Vec<_> = [user].into_iter().chain(users).chain([group, mask, other]).collect();
    assert_eq!(acl::Acl::parse(&acl_bytes(&long)), Err(NotAcl::TooLong { entries: long.len() }));
}

#[test]
fn names_are_looked_up_and_changed_by_those_who_may() {
    // The mode of the directory of another, and whether its names may be looked up, and changed.
    for (mode, may_look, may_change) in [
        (0o770, false, false),
        (0o774, false, false),
        (0o771, true, false),
        (0o773, true, true),
        (0o772, false, false),
    ] {
        let mut world = World::default();
        let dir = world.dir(ROOT, "d");
        let inode = world.file(dir, "f");
        world.run(chmod(dir, mode));
        let who = user(1);
        let found = world.ask_as(&who, Ask::Lookup { dir, name: name("f") });
        assert_eq!(found.is_ok(), may_look, "{mode:o}");
        let changes = [
            create(dir, "n", Make::Fifo, 0),
            Change::Link { inode, dir, name: name("m") },
            rename(site(dir, "f"), site(dir, "o"), RenameHow::Replace),
            unlink(dir, if may_change { "o" } else { "f" }),
        ];
        for change in changes {
            let result = world.try_as(&who, change.clone());
            if may_change {
                assert!(result.is_ok(), "{mode:o} {change:?}: {result:?}");
            } else {
                assert_eq!(result, Err(NameError::Denied { inode: dir }), "{mode:o} {change:?}");
            }
        }
        let again = create(dir, "f", Make::Fifo, 0);
        if may_look && !may_change {
            assert_eq!(
                world.try_as(&who, again),
                Err(NameError::Exists { inode }),
                "what may be seen is seen"
            );
        }
    }
}

#[test]
fn who_may_take_names_out_of_a_sticky_directory() {
    for (uid, dir_uid, file_uid, may) in [(1, 2, 1, true), (1, 1, 2, true), (1, 2, 2, false), (0, 2, 2, true)]
    {
        let mut world = World::default();
        let dir = world.dir(ROOT, "d");
        for (text, make) in [("f", Make::Fifo), ("s", Make::Directory)] {
            let inode = world.create(dir, text, make, 0o777);
            world.run(chown(inode, file_uid, 0));
        }
        world.run(chown(dir, dir_uid, 0));
        world.run(chmod(dir, 0o1777));
        assert_eq!(world.try_as(&user(uid), unlink(dir, "f")).is_ok(), may);
        let rmdir = Change::RemoveDirectory { site: site(dir, "s"), holders: vec![] };
        assert_eq!(world.try_as(&user(uid), rmdir).is_ok(), may);
    }
}

proptest! {
    #[test]
    fn an_acl_and_the_mode_are_in_step(first in any_acl(), mode in 0..0o1000_u16, asked in 0..0o1000_u16) {
        let mut world = World::default();
        let dir = world.dir(ROOT, "d");
        world.run(set_xattr(dir, "system.posix_acl_default", &first));
        let default = acl::Acl::parse(&first).unwrap().unwrap();
        // `sound` looks whether they agree, after each of these.
        let inode = world.create(dir, "f", Make::Fifo, asked);
        prop_assert_eq!(world.get(inode).mode, default.mode() & asked);
        prop_assert_eq!(world.get(inode).has_acl, !default.is_mode());
        world.run(chmod(inode, mode));
        prop_assert_eq!(world.get(inode).mode, mode);
        world.run(set_xattr(inode, "system.posix_acl_access", &first));
        prop_assert_eq!(world.get(inode).mode, default.mode());
        let below = world.create(dir, "s", Make::Directory, 0o777);
        let handed_on = world.ask(Ask::GetXattr { inode: below, name: XattrName::acl_default() });
        prop_assert_eq!(handed_on, Answer::Value(first.into()));
    }
}
