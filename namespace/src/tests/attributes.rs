//! Attributes that are set, and those that are lent.

use super::*;

const ROOT: InodeId = InodeId::ROOT;

fn of_one() -> (World, InodeId) {
    let mut world = World::default();
    let inode = world.file(ROOT, "f");
    world.run(chown(inode, 1, 10));
    (world, inode)
}

#[test]
fn who_may_set_what() {
    let none = SetAttributes::default();
    let mode = SetAttributes { mode: Some(0o600), ..none };
    let uid = |uid| SetAttributes { uid: Some(uid), ..none };
    let gid = |gid| SetAttributes { gid: Some(gid), ..none };
    let size = SetAttributes { size: Some(1), ..none };
    let open = SetAttributes { is_open: true, ..size };
    let now = SetAttributes { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..none };
    let then = SetAttributes { mtime: Some(SetTime::To(time(1))), ..now };
    let owner = || Who::new(1, 10, &[20]).unwrap();
    let other = || Who::new(2, 10, &[20]).unwrap();
    let (ok, not_permitted, denied) = ("", "not permitted", "denied");
    // Who, which mode the file of user 1 and group 10 has, what is set, and what comes of it.
    let table = [
        (owner(), 0o000, mode, ok),
        (other(), 0o777, mode, not_permitted),
        (Who::root(), 0o000, mode, ok),
        (owner(), 0o777, uid(1), ok),
        (owner(), 0o777, uid(2), not_permitted),
        (other(), 0o777, uid(1), not_permitted),
        (Who::root(), 0o000, uid(2), ok),
        (owner(), 0o000, gid(20), ok),
        (owner(), 0o000, gid(10), ok),
        (owner(), 0o777, gid(30), not_permitted),
        (other(), 0o777, gid(20), not_permitted),
        (Who::root(), 0o000, gid(30), ok),
        (owner(), 0o200, size, ok),
        (owner(), 0o577, size, denied),
        (owner(), 0o577, open, ok),
        (other(), 0o020, size, ok),
        (other(), 0o757, size, denied),
        (owner(), 0o000, now, ok),
        (other(), 0o020, now, ok),
        (other(), 0o757, now, denied),
        (owner(), 0o000, then, ok),
        (other(), 0o777, then, not_permitted),
        (Who::root(), 0o000, then, ok),
        (other(), 0o000, none, ok),
    ];
    for (who, mode, attributes, expected) in table {
        let (mut world, inode) = of_one();
        world.run(chmod(inode, mode));
        let got = match world.try_as(&who, set(inode, attributes)) {
            Ok(_) => ok,
            Err(NameError::NotPermitted { .. }) => not_permitted,
            Err(NameError::Denied { .. }) => denied,
            Err(other) => panic!("{other}"),
        };
        assert_eq!(got, expected, "{who:?} {mode:o} {attributes:?}");
    }
}

#[test]
fn set_ids_end_when_somebody_else_could_use_them() {
    let size = SetAttributes { size: Some(1), is_open: true, ..SetAttributes::default() };
    let member = || Who::new(1, 10, &[]).unwrap();
    // Who, the mode before, what is done, and the mode then.
    type How = fn(InodeId, SetAttributes) -> Change;
    let table: [(Who, u16, How, u16); 13] = [
        (member(), 0o6755, |inode, _| chown(inode, 1, 10), 0o0755),
        (member(), 0o6745, |inode, _| chown(inode, 1, 10), 0o2745),
        (Who::root(), 0o6755, |inode, _| chown(inode, 5, 5), 0o0755),
        (member(), 0o0755, |inode, _| chmod(inode, 0o6755), 0o6755),
        (user(1), 0o0755, |inode, _| chmod(inode, 0o6755), 0o4755),
        (Who::root(), 0o0755, |inode, _| chmod(inode, 0o6755), 0o6755),
        (member(), 0o6755, set, 0o0755),
        (member(), 0o6745, set, 0o2745),
        (user(1), 0o6745, set, 0o0745),
        (Who::root(), 0o6755, set, 0o6755),
        (member(), 0o6755, |inode, _| Change::Lend { inode, to: LentTo::Content }, 0o0755),
        (user(2), 0o6745, |inode, _| Change::Lend { inode, to: LentTo::Content }, 0o0745),
        (Who::root(), 0o6755, |inode, _| Change::Lend { inode, to: LentTo::Content }, 0o6755),
    ];
    for (number, (who, before, change, after)) in table.into_iter().enumerate() {
        let (mut world, inode) = of_one();
        world.run(chmod(inode, before));
        world.run_as(&who, change(inode, size));
        assert_eq!(world.get(inode).mode, after, "{number}: {:o}", world.get(inode).mode);
    }
    let mut world = World::default();
    let dir = world.dir(ROOT, "d");
    world.run(chmod(dir, 0o6755));
    world.run(chown(dir, 1, 1));
    assert_eq!(world.get(dir).mode, 0o6755, "directories run nothing");
}

#[test]
fn what_has_no_size_gets_none() {
    let mut world = World::default();
    let (dir, fifo) = (world.dir(ROOT, "d"), world.create(ROOT, "p", Make::Fifo, 0));
    let link = world.create(ROOT, "l", Make::Symlink { target: Target::new("x".into()).unwrap() }, 0);
    let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    assert_eq!(world.error(set(dir, size(1))), NameError::IsDirectory { inode: dir });
    assert_eq!(world.error(set(fifo, size(1))), NameError::WrongKind { inode: fifo });
    assert_eq!(world.error(chmod(link, 0)), NameError::NotSupported { inode: link });
    let inode = world.file(ROOT, "f");
    let longest = limits::FILE_BYTES_MAX;
    assert_eq!(world.error(set(inode, size(longest + 1))), NameError::TooLong { size: longest + 1 });
    world.run(set(inode, size(longest)));
    assert_eq!((world.get(inode).size, world.volume().bytes), (longest, longest.into()));
}

#[test]
fn size_and_times_of_a_lent_file_are_not_set_nor_what_a_write_ends() {
    let mut world = World::default();
    let inode = world.create(ROOT, "f", file(), 0o600);
    world.run(Change::Lend { inode, to: LentTo::Content });
    let lent = NameError::Lent { inode, generation: Generation(at(2)) };
    let none = SetAttributes::default();
    let time = Some(SetTime::Now);
    for attributes in [
        SetAttributes { size: Some(0), ..none },
        SetAttributes { atime: time, ..none },
        SetAttributes { mtime: time, mode: Some(0), ..none },
        SetAttributes { mode: Some(0o4755), ..none },
        SetAttributes { mode: Some(0o2755), ..none },
    ] {
        assert_eq!(world.error(set(inode, attributes)), lent);
        let refused = world.try_as(&user(1), set(inode, attributes));
        assert_ne!(refused, Err(lent), "who may not makes nobody give anything back");
    }
    let capability = XattrName::new(CAPABILITY).unwrap();
    let (value, how) = (bytes::Bytes::from_static(b"c"), XattrHow::Any);
    assert_eq!(world.error(Change::SetXattr { inode, name: capability, value, how }), lent);
    world.run(chmod(inode, 0o644));
    assert_eq!(world.error(lend_to(inode, 0)), lent);
    world.run(Change::Lend { inode, to: LentTo::Content });
    assert_eq!(world.get(inode).lent, Some(Lent { generation: Generation(at(2)), to: LentTo::Content }));
}

#[test]
fn times_of_a_file_that_was_never_lent_are_set_here() {
    let mut world = World::default();
    let inode = world.create(ROOT, "f", file(), 0o600);
    world.run(set(inode, SetAttributes { mtime: Some(SetTime::To(time(77))), ..SetAttributes::default() }));
    let Attributes { mtime, lent, last_lend, .. } = world.get(inode);
    assert_eq!((mtime, lent, last_lend), (time(77), None, None));
}

#[test]
fn that_a_file_was_lent_is_never_forgotten() {
    let mut world = World::default();
    let inode = world.create(ROOT, "f", file(), 0o600);
    let refused = Change::GiveBack {
        inode,
        generation: Generation(at(1)),
        given: None,
        accessed: None,
        mode: None,
        changed: None,
    };
    world.error(refused);
    assert!(!world.get(inode).may_have_content());
    world.run(Change::Lend { inode, to: LentTo::Content });
    assert!(world.get(inode).may_have_content());
    let generation = Generation(at(world.seq));
    world.run(Change::GiveBack { inode, generation, given: None, accessed: None, mode: None, changed: None });
    let Attributes { lent, last_lend, .. } = world.get(inode);
    assert_eq!((lent, last_lend), (None, Some(generation)), "though nothing was written under it");
}

#[test]
fn only_the_lend_that_goes_on_is_given_back() {
    let mut world = World::default();
    let inode = world.create(ROOT, "f", file(), 0o600);
    world.run(Change::Lend { inode, to: LentTo::Content });
    let back = |seq, size| Change::GiveBack {
        inode,
        generation: Generation(at(seq)),
        given: Some(Given { size, mtime: time(3), ctime: time(900) }),
        accessed: None,
        mode: None,
        changed: None,
    };
    assert_eq!(world.error(back(9, 5)), NameError::NotLent { inode, generation: Generation(at(9)) });
    world.run(back(2, 5));
    let Attributes { size, mtime, ctime, lent, .. } = world.get(inode);
    assert_eq!((size, mtime, ctime, lent), (5, time(3), time(900), None));
    assert_eq!(world.error(back(2, 7)), NameError::NotLent { inode, generation: Generation(at(2)) });

    // What somebody has set since then is not overwritten by what was lent before.
    world.run(set(inode, SetAttributes { mtime: Some(SetTime::To(time(77))), ..SetAttributes::default() }));
    world.error(back(2, 7));
    assert_eq!((world.get(inode).size, world.get(inode).mtime), (5, time(77)));
    world.run(Change::Lend { inode, to: LentTo::Content });
    let again = world.seq;
    assert_eq!(world.get(inode).lent, Some(Lent { generation: Generation(at(again)), to: LentTo::Content }));
    world.run(back(again, 9));
    assert_eq!((world.get(inode).size, world.volume().bytes), (9, 9));
    assert_eq!(
        world.error(Change::Lend { inode: ROOT, to: LentTo::Content }),
        NameError::WrongKind { inode: ROOT }
    );
}

#[test]
fn a_full_volume_lends_nothing_and_makes_nothing_longer() {
    let mut world = World::default();
    let (inode, other) = (world.file(ROOT, "f"), world.create(ROOT, "g", file(), 0));
    let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    world.run(Change::Lend { inode: other, to: LentTo::Content });
    world.run(Change::Limit { inodes_max: 99, bytes_max: 100 });
    assert_eq!(world.error(set(inode, size(101))), NameError::NoSpace { bytes_max: 100 });
    world.run(set(inode, size(100)));
    let full = NameError::NoSpace { bytes_max: 100 };
    assert_eq!(world.error(create(ROOT, "h", file(), 0)), full);
    assert_eq!(world.error(Change::Lend { inode, to: LentTo::Content }), full);
    world.create(ROOT, "h", Make::Directory, 0);
    world.give_back(other, 1000);
    assert_eq!(world.volume().bytes, 1100, "what was lent before may be more");
    world.run(set(inode, size(10)));
    world.run(unlink(ROOT, "g"));
    assert_eq!(world.error(Change::Lend { inode, to: LentTo::Content }), full, "the data is still there");
    world.run(Change::Deleted { inode: other });
    world.run(Change::Lend { inode, to: LentTo::Content });
    assert_eq!(world.volume().bytes, 10);
}

fn lend_to(inode: InodeId, number: u64) -> Change {
    Change::Lend { inode, to: LentTo::Client(client(number)) }
}

fn returned(inode: InodeId, generation: Generation, modified: Option<u64>, is_untouched: bool) -> Change {
    let modified = modified.map(time);
    Change::Return { inode, generation, modified, accessed: None, mode: None, changed: None, is_untouched }
}

#[test]
fn what_is_lent_to_a_client_is_lent_to_nobody_else() {
    let mut world = World::default();
    let inode = world.create(ROOT, "f", file(), 0o600);
    let lent =
        |seq, number| Some(Lent { generation: Generation(at(seq)), to: LentTo::Client(client(number)) });
    let foreign = world.try_for(client(2), &Who::root(), lend_to(inode, 1));
    assert_eq!(foreign, Err(NameError::NotPermitted { inode }));
    world.try_for(client(1), &Who::root(), lend_to(inode, 1)).unwrap();
    let first = world.seq;
    assert_eq!(world.get(inode).lent, lent(first, 1));
    let refused = Err(NameError::Lent { inode, generation: Generation(at(first)) });
    assert_eq!(world.try_for(client(2), &Who::root(), lend_to(inode, 2)), refused);
    assert_eq!(world.try_as(&Who::root(), Change::Lend { inode, to: LentTo::Content }), refused);
    world.try_for(client(1), &Who::root(), lend_to(inode, 1)).unwrap();
    assert_eq!(world.get(inode).lent, lent(first, 1), "twice is once");
    assert_eq!(world.tree.lent_to(client(1), 9), [inode]);
}

#[test]
fn what_was_left_alone_is_given_back_without_its_content() {
    let mut world = World::default();
    let inode = world.create(ROOT, "f", file(), 0o600);
    world.try_for(client(1), &Who::root(), lend_to(inode, 1)).unwrap();
    let generation = Generation(at(world.seq));
    let give = |world: &mut World, number, change| world.try_for(client(number), &Who::root(), change);
    give(&mut world, 2, returned(inode, generation, None, true)).unwrap();
    assert!(world.get(inode).lent.is_some(), "it is not theirs");
    let touched = give(&mut world, 1, returned(inode, generation, None, false));
    assert_eq!(touched, Err(NameError::Lent { inode, generation }));
    give(&mut world, 1, returned(inode, generation, Some(77), true)).unwrap();
    let Attributes { lent, last_lend, mtime, .. } = world.get(inode);
    assert_eq!((lent, last_lend, mtime), (None, None, time(77)));
    assert!(world.tree.lent_to(client(1), 9).is_empty());
    give(&mut world, 1, returned(inode, generation, Some(78), true)).unwrap();
    assert_eq!(world.get(inode).mtime, time(77), "it is over");
}

#[test]
fn what_comes_back_was_changed_when_the_client_says_but_not_later_than_now_nor_before_the_last_change() {
    let mut world = World::default();
    let inode = world.create(ROOT, "f", file(), 0o600);
    let mut back = |changed: u64, given: Option<u64>| {
        world.try_for(client(1), &Who::root(), lend_to(inode, 1)).unwrap();
        let (generation, changed) = (Generation(at(world.seq)), Some(time(changed)));
        let (accessed, mode) = (Some(time(1)), Some(0o640));
        let change = match given.map(|ctime| Given { size: 5, mtime: time(3), ctime: time(ctime) }) {
            None => {
                let (modified, is_untouched) = (None, true);
                Change::Return { inode, generation, modified, accessed, mode, changed, is_untouched }
            }
            given => Change::GiveBack { inode, generation, given, accessed, mode, changed },
        };
        world.try_for(client(1), &Who::root(), change).unwrap();
        (world.get(inode).ctime, time(world.seq))
    };
    let last = back(0, None).0;
    assert!(last < time(3), "it was made later");
    assert_eq!(back(0, Some(900)).0, last, "the content heard of it later");
    assert_eq!(back(4, None).0, time(4));
    assert_eq!(back(6, Some(900)).0, time(6));
    for given in [None, Some(4)] {
        let (ctime, now) = back(900, given);
        assert_eq!(ctime, now);
    }
}

#[test]
fn the_entry_that_creates_a_file_may_lend_it() {
    let mut world = World::default();
    let lending = |text: &str, mode| {
        let Change::Create { dir, name, make, umask, is_exclusive, .. } = create(ROOT, text, file(), mode)
        else {
            unreachable!("it creates")
        };
        Change::Create { dir, name, make, mode, umask, is_exclusive, lends: true }
    };
    let made = world.try_for(client(1), &Who::root(), lending("f", 0o644)).unwrap();
    let Done::Created { attributes, .. } = made else { panic!("{made:?}") };
    assert_eq!(attributes.lent_to(client(1)), Some(Generation(at(world.seq))));
    let found = world.try_for(client(2), &Who::root(), lending("f", 0o644));
    assert!(found.is_err() || world.get(attributes.inode).lent_to(client(2)).is_none(), "it was there");
    let made = world.try_for(client(1), &Who::root(), lending("g", 0o4755)).unwrap();
    let Done::Created { attributes, .. } = made else { panic!("{made:?}") };
    assert_eq!(attributes.lent, None, "a first write would end more than size and times");
}

#[test]
fn who_would_have_others_run_a_file_gets_it_back_first() {
    let mut world = World::default();
    let inode = world.create(ROOT, "f", file(), 0o600);
    world.try_for(client(1), &Who::root(), lend_to(inode, 1)).unwrap();
    let lent = Err(NameError::Lent { inode, generation: Generation(at(world.seq)) });
    assert_eq!(world.try_for(client(1), &Who::root(), chmod(inode, 0o4755)), lent);
    world.try_for(client(1), &Who::root(), chmod(inode, 0o755)).unwrap();
}

#[test]
fn who_goes_by_permissions_that_another_client_may_have_set_waits_for_them() {
    let mut world = World::default();
    let inode = world.create(ROOT, "f", file(), 0o600);
    world.try_for(client(1), &Who::root(), lend_to(inode, 1)).unwrap();
    let generation = Generation(at(world.seq));
    let (xattr, value) = (XattrName::new(b"user.a").unwrap(), "x".into());
    let own = SetAttributes { uid: Some(1001), ..SetAttributes::default() };
    for change in [
        chmod(inode, 0o640),
        Change::SetAttributes { inode, set: own },
        Change::SetXattr { inode, name: xattr.clone(), value, how: XattrHow::Any },
        Change::RemoveXattr { inode, name: xattr },
    ] {
        assert_eq!(change.wants_from_others(), Some(inode));
        assert_eq!(world.error(change), NameError::Lent { inode, generation });
    }
    let back = |mode| Change::Return {
        inode,
        generation,
        modified: None,
        accessed: None,
        mode: Some(mode),
        changed: None,
        is_untouched: true,
    };
    world.try_for(client(1), &Who::root(), back(0o666)).unwrap();
    assert_eq!(world.get(inode).mode, 0o666);
    world.run(chmod(inode, 0o640));
    // It is over, so what comes late was never set, and its client hears that.
    let late = world.try_for(client(1), &Who::root(), back(0o600));
    assert_eq!(late, Err(NameError::NotLent { inode, generation }));
    assert_eq!(world.get(inode).mode, 0o640);
}

#[test]
fn the_end_of_a_client_waits_for_what_is_lent_to_it() {
    let mut world = World::default();
    let inode = world.create(ROOT, "f", file(), 0o600);
    world.try_for(client(1), &Who::root(), lend_to(inode, 1)).unwrap();
    let Done::Expired { lends: true, .. } = world.run(Change::Expire { client: client(1) }) else { panic!() };
    assert_eq!(world.tree.client(client(1)), Some(ClientState::Ending));
    world.give_back(inode, 5);
    let Done::Expired { lends: false, .. } = world.run(Change::Expire { client: client(1) }) else {
        panic!()
    };
    assert_eq!(world.tree.client(client(1)), Some(ClientState::Ended));
}
