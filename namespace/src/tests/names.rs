//! Creating, linking, removing.

use super::*;
use crate::limits::LINKS_MAX;

const ROOT: InodeId = InodeId::ROOT;

#[test]
fn what_is_created_is_named_by_its_entry_and_inherits_from_its_directory() {
    let mut world = World::default();
    let dir = world.dir(ROOT, "d");
    assert_eq!((dir, world.lookup(ROOT, "d")), (id(1), Some(dir)));
    world.run(chown(dir, 0, 50));
    world.run(chmod(dir, 0o2777));
    let who = Who::new(1, 10, &[20]).unwrap();
    let table = [
        // What is asked for, and what it is then: mode and group.
        (file(), 0o644, 0o644, 50),
        (file(), 0o6755, 0o4755, 50),
        (file(), 0o2644, 0o2644, 50),
        (Make::Directory, 0o5755, 0o3755, 50),
        (Make::Symlink { target: Target::new("x".into()).unwrap() }, 0, 0o777, 50),
        (Make::Fifo, 0o600, 0o600, 50),
        (Make::Socket, 0o600, 0o600, 50),
    ];
    for (number, (make, asked, mode, gid)) in table.into_iter().enumerate() {
        let Done::Created { attributes, .. } =
            world.run_as(&who, create(dir, &number.to_string(), make, asked))
        else {
            panic!()
        };
        assert_eq!((attributes.mode, attributes.gid, attributes.uid), (mode, gid, 1), "{asked:o}");
    }
    assert_eq!((world.get(dir).links, world.get(dir).size), (3, 7));
    let below = world.lookup(dir, "3").unwrap();
    assert_eq!(world.get(below).mode & 0o2000, 0o2000, "handed on");
}

#[test]
fn the_umask_takes_away_unless_there_is_a_default_acl() {
    let mut world = World::default();
    let masked = |dir, text: &str| Change::Create {
        dir,
        name: name(text),
        make: Make::Fifo,
        mode: 0o666,
        umask: 0o027,
        is_exclusive: true,
        lends: false,
    };
    let Done::Created { attributes, .. } = world.run(masked(ROOT, "a")) else { panic!() };
    assert_eq!(attributes.mode, 0o640);
    let acl = random::acl_bytes(&[(1, u32::MAX, 7), (4, u32::MAX, 5), (0x20, u32::MAX, 4)]);
    world.run(set_xattr(ROOT, "system.posix_acl_default", &acl));
    let Done::Created { attributes, .. } = world.run(masked(ROOT, "b")) else { panic!() };
    assert_eq!((attributes.mode, attributes.has_acl), (0o644, false));
}

#[test]
fn a_file_is_not_lent_by_the_entry_that_creates_it() {
    let mut world = World::default();
    let inode = world.create(ROOT, "f", file(), 0o600);
    let Attributes { lent, last_lend, replicas: told, .. } = world.get(inode);
    assert_eq!((lent, last_lend, told), (None, None, Some(replicas())));
}

#[test]
fn a_name_that_is_taken_is_found_or_refused() {
    let mut world = World::default();
    let inode = world.create(ROOT, "f", file(), 0o600);
    let open = |make, is_exclusive| Change::Create {
        dir: ROOT,
        name: name("f"),
        make,
        mode: 0,
        umask: 0,
        is_exclusive,
        lends: false,
    };
    let before = world.tree.clone();
    let Done::Created { attributes, is_new: false } = world.run_as(&user(5), open(file(), false)) else {
        panic!()
    };
    assert_eq!((attributes.inode, attributes.mode), (inode, 0o600), "whoever opens it asks whether it may");
    assert_eq!(world.tree, before, "nothing is changed");
    assert_eq!(world.error(open(file(), true)), NameError::Exists { inode });
    assert_eq!(world.error(open(Make::Directory, false)), NameError::Exists { inode });
    assert_eq!(world.error(create(inode, "x", file(), 0)), NameError::NotDirectory { inode });
    assert_eq!(world.error(create(id(99), "x", file(), 0)), NameError::NoInode { inode: id(99) });
    assert_eq!(world.lookup(ROOT, "g"), None);
}

#[test]
fn only_root_makes_devices() {
    let mut world = World::default();
    world.run(chmod(ROOT, 0o777));
    for make in [Make::CharDevice { rdev: 259 }, Make::BlockDevice { rdev: 259 }] {
        let refused = world.try_as(&user(1), create(ROOT, "d", make.clone(), 0o600));
        assert_eq!(refused, Err(NameError::NotPermitted { inode: ROOT }));
        let device = world.create(ROOT, "d", make, 0o600);
        assert_eq!(world.get(device).rdev, 259);
        world.run(unlink(ROOT, "d"));
    }
}

#[test]
fn a_second_name_is_as_good_as_the_first() {
    let mut world = World::default();
    let (inode, dir) = (world.file(ROOT, "f"), world.dir(ROOT, "d"));
    let link = |inode, text: &str| Change::Link { inode, dir, name: name(text) };
    world.run(link(inode, "g"));
    assert_eq!((world.get(inode).links, world.lookup(dir, "g")), (2, Some(inode)));
    assert_eq!(world.error(link(inode, "g")), NameError::Exists { inode });
    assert_eq!(world.error(link(dir, "h")), NameError::NotPermitted { inode: dir });
    assert_eq!(world.error(link(id(99), "h")), NameError::NoInode { inode: id(99) });
    let Done::Removed { fate, .. } = world.run(unlink(ROOT, "f")) else { panic!() };
    assert_eq!((fate, world.lookup(dir, "g")), (Fate::Named { links: 1 }, Some(inode)));
}

#[test]
fn names_are_limited_in_number() {
    let mut world = World::default();
    let (inode, dir) = (world.file(ROOT, "f"), world.dir(ROOT, "d"));
    for of in [inode, dir] {
        let Some(Part::Inode(part)) = world.tree.part(&Key::Inode(of)) else { panic!() };
        let full = Inode { links: LINKS_MAX, ..(*part).clone() };
        world.tree.place(Key::Inode(of), Some((at(9), Part::Inode(full.into()))));
    }
    let mut refused =
        |change| world.tree.apply(at(20), &Op { time: time(9), who: Who::root(), client: client(0), change });
    let link = Change::Link { inode, dir: ROOT, name: name("g") };
    assert_eq!(refused(link), Err(NameError::TooManyLinks { inode }));
    assert_eq!(refused(create(dir, "e", Make::Directory, 0)), Err(NameError::TooManyLinks { inode: dir }));
    assert!(refused(create(dir, "e", Make::Fifo, 0)).is_ok(), "only directories count");
}

#[test]
fn directories_and_other_things_are_removed_each_in_its_way() {
    let mut world = World::default();
    let (inode, dir) = (world.file(ROOT, "f"), world.dir(ROOT, "d"));
    world.file(dir, "g");
    let rmdir = |dir, text: &str| Change::RemoveDirectory { site: site(dir, text), holders: vec![] };
    assert_eq!(world.error(unlink(ROOT, "d")), NameError::IsDirectory { inode: dir });
    assert_eq!(world.error(rmdir(ROOT, "f")), NameError::NotDirectory { inode });
    assert_eq!(world.error(rmdir(ROOT, "d")), NameError::NotEmpty { dir });
    assert_eq!(world.error(rmdir(ROOT, "x")), NameError::NoEntry { dir: ROOT });
    assert_eq!(world.error(unlink(ROOT, "x")), NameError::NoEntry { dir: ROOT });
    world.run(unlink(dir, "g"));
    assert_eq!(world.run(rmdir(ROOT, "d")), Done::Removed { inode: dir, fate: Fate::Gone });
    assert_eq!((world.get(ROOT).links, world.is_there(dir)), (2, false));
}

#[test]
fn a_name_that_names_something_else_than_expected_is_left_alone() {
    let mut world = World::default();
    let inode = world.file(ROOT, "f");
    let expecting =
        |expect| Change::Unlink { site: Site { expect, ..site(ROOT, "f") }, holders: vec![], removed: None };
    for expect in [Expect::Nothing, Expect::Inode(ROOT)] {
        assert_eq!(world.error(expecting(expect)), NameError::Stale { dir: ROOT });
    }
    assert!(world.is_there(inode));
    world.run(expecting(Expect::Inode(inode)));
}

#[test]
fn inodes_are_limited_in_number_until_their_data_is_gone() {
    let mut world = World::default();
    world.run(Change::Limit { inodes_max: 3, bytes_max: u64::MAX });
    let inode = world.file(ROOT, "a");
    world.dir(ROOT, "b");
    assert_eq!(world.error(create(ROOT, "c", Make::Fifo, 0)), NameError::NoInodes { inodes_max: 3 });
    world.run(unlink(ROOT, "a"));
    assert_eq!(world.error(create(ROOT, "c", Make::Fifo, 0)), NameError::NoInodes { inodes_max: 3 });
    world.run(Change::Deleted { inode });
    world.create(ROOT, "c", Make::Fifo, 0);
}
