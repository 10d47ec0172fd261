//! Directories that are lent to the client that makes them, and what that client enters there.

use super::random::acl_bytes;
use super::*;

const ROOT: InodeId = InodeId::ROOT;
/// Whose directories these are, and somebody else.
const OWNER: u64 = 1;
const OTHER: u64 = 2;

/// Makes something that is lent to whoever makes it.
fn lending(dir: InodeId, text: &str, make: Make, mode: u16) -> Change {
    Change::Create { dir, name: name(text), make, mode, umask: 0, is_exclusive: true, lends: true }
}

fn enter(dir: InodeId, under: Generation, number: u64, text: &str) -> Change {
    let (name, replicas, mode, created) = (name(text), replicas(), 0o640, time(500));
    Change::Enter { dir, under, number, name, replicas, mode, created }
}

fn back(inode: InodeId, generation: Generation) -> Change {
    Change::GiveBack { inode, generation, given: None, accessed: None, mode: None, changed: None }
}

fn returned(inode: InodeId, generation: Generation) -> Change {
    give_in(inode, generation, true)
}

fn give_in(inode: InodeId, generation: Generation, is_untouched: bool) -> Change {
    Change::Return {
        inode,
        generation,
        modified: None,
        accessed: None,
        mode: None,
        changed: None,
        is_untouched,
    }
}

/// Ends a lend.
type End = fn(InodeId, Generation) -> Change;

impl World {
    fn by(&mut self, program: u64, change: Change) -> Result<Done, NameError> {
        self.try_for(client(program), &Who::root(), change)
    }

    /// A directory that is lent to its owner, and by which entry.
    fn lent_dir(&mut self, dir: InodeId, text: &str) -> (InodeId, Generation) {
        let made = self.by(OWNER, lending(dir, text, Make::Directory, 0o777)).unwrap();
        let Done::Created { attributes, is_new: true } = made else { panic!("{made:?}") };
        (attributes.inode, attributes.lent_to(client(OWNER)).unwrap())
    }

    fn enter(&mut self, dir: InodeId, under: Generation, number: u64, text: &str) -> InodeId {
        let done = self.by(OWNER, enter(dir, under, number, text)).unwrap();
        let Done::Created { attributes, is_new: true } = done else { panic!("{done:?}") };
        attributes.inode
    }
}

/// A directory with three things that were there before its owner entered the fourth.
fn furnished() -> (World, InodeId, Generation) {
    let mut world = World::default();
    let (dir, under) = world.lent_dir(ROOT, "d");
    world.by(OWNER, create(dir, "sub", Make::Directory, 0o777)).unwrap();
    world.by(OWNER, create(dir, "pipe", Make::Fifo, 0o666)).unwrap();
    world.enter(dir, under, 1, "f");
    (world, dir, under)
}

#[test]
fn the_entry_that_makes_a_directory_may_lend_it() {
    let mut world = World::default();
    let (dir, under) = world.lent_dir(ROOT, "d");
    assert_eq!(under, Generation(at(world.seq)));
    let lent = Some(Lent { generation: under, to: LentTo::Client(client(OWNER)) });
    assert_eq!((world.tree.lent(dir), world.get(dir).lent), (lent, lent));
    assert_eq!(world.tree.lent_to(client(OWNER), 9), [dir]);
    assert_eq!(world.tree.client(client(OWNER)), Some(ClientState::Alive));
    let unasked = world.dir(ROOT, "e");
    assert_eq!(world.tree.lent(unasked), None);
    for (text, make) in [("p", Make::Fifo), ("s", Make::Socket)] {
        let made = world.by(OWNER, lending(ROOT, text, make, 0o777)).unwrap();
        assert!(matches!(made, Done::Created { attributes: Attributes { lent: None, .. }, .. }), "{made:?}");
    }
}

#[test]
fn a_directory_that_gives_more_than_a_mode_is_not_lent() {
    let mut world = World::default();
    let (group, listed) = (world.dir(ROOT, "g"), world.dir(ROOT, "l"));
    world.run(chmod(group, 0o2777));
    let acl = acl_bytes(&[(1, u32::MAX, 7), (4, u32::MAX, 5), (0x20, u32::MAX, 1)]);
    world.run(set_xattr(listed, "system.posix_acl_default", &acl));
    for dir in [group, listed] {
        let made = world.by(OWNER, lending(dir, "d", Make::Directory, 0o777)).unwrap();
        let Done::Created { attributes, .. } = made else { panic!("{made:?}") };
        assert_eq!(attributes.lent, None);
    }
    assert_eq!(world.tree.lent_to(client(OWNER), 9), []);
}

#[test]
fn nobody_is_lent_a_directory_that_is_there() {
    let mut world = World::default();
    let dir = world.dir(ROOT, "d");
    for to in [LentTo::Client(client(OWNER)), LentTo::Content] {
        let refused = world.by(OWNER, Change::Lend { inode: dir, to });
        assert_eq!(refused, Err(NameError::WrongKind { inode: dir }));
    }
}

#[test]
fn what_is_entered_is_as_its_client_has_created_it() {
    let mut world = World::default();
    let (dir, under) = world.lent_dir(ROOT, "d");
    let (number, who) = (7, Who::new(1001, 100, &[]).unwrap());
    let done = world.try_for(client(OWNER), &who, enter(dir, under, number, "f")).unwrap();
    let inode = InodeId::under(under, number).unwrap();
    let created = time(500);
    let expected = Attributes {
        inode,
        kind: Kind::File,
        mode: 0o640,
        uid: 1001,
        gid: 100,
        links: 1,
        rdev: 0,
        size: 0,
        atime: created,
        mtime: created,
        ctime: created,
        btime: created,
        lent: Some(Lent { generation: under, to: LentTo::Client(client(OWNER)) }),
        last_lend: None,
        replicas: Some(replicas()),
        has_acl: false,
    };
    assert_eq!(done, Done::Created { attributes: expected.clone(), is_new: true });
    assert_eq!((world.lookup(dir, "f"), world.get(inode)), (Some(inode), expected));
    assert_eq!(world.tree.lent_to(client(OWNER), 9), [dir, inode]);
    let Attributes { size, mtime, ctime, .. } = world.get(dir);
    assert_eq!((size, mtime, ctime), (1, created, created), "as its client knows it already");
    // What comes later is called as it likes, and is never what an entry by itself has created.
    let other = world.enter(dir, under, 3, "g");
    assert_ne!(other, inode);
    assert_eq!((inode.number, inode.epoch), (number << 40 | under.0.seq.0, EPOCH));
}

#[test]
fn a_directory_is_no_older_than_it_was() {
    let mut world = World::default();
    let (dir, under) = world.lent_dir(ROOT, "d");
    let made = world.get(dir).mtime;
    let table = [("a", time(0), made), ("b", time(1_000), time(1_000)), ("c", time(900), time(1_000))];
    for (number, (text, created, expected)) in (1..).zip(table) {
        let (name, replicas) = (name(text), replicas());
        world.by(OWNER, Change::Enter { dir, under, number, name, replicas, mode: 0o640, created }).unwrap();
        assert_eq!((world.get(dir).mtime, world.get(dir).ctime), (expected, expected), "{text}");
    }
}

#[test]
fn a_file_that_was_entered_is_written_to_and_given_back_like_any_other() {
    let mut world = World::default();
    let (dir, under) = world.lent_dir(ROOT, "d");
    let inode = world.enter(dir, under, 1, "f");
    world.by(OWNER, returned(dir, under)).unwrap();
    assert!(world.get(inode).lent.is_some(), "the file is still its client's");
    world.give_back(inode, 5);
    let Attributes { size, lent, last_lend, .. } = world.get(inode);
    assert_eq!((size, lent, last_lend), (5, None, Some(under)));
    world.run(Change::Lend { inode, to: LentTo::Content });
    assert!(world.get(inode).lent.unwrap().generation > under, "what comes later is above it");
    let Done::Removed { fate, .. } = world.run(unlink(dir, "f")) else { panic!() };
    assert_eq!(fate, Fate::Doomed);
}

#[test]
fn what_a_client_may_not_enter_is_refused() {
    let mut world = World::default();
    let (dir, under) = world.lent_dir(ROOT, "d");
    let (plain, inode) = (world.dir(ROOT, "p"), world.enter(dir, under, 3, "f"));
    let never = Generation(at(999));
    let not_lent = |inode, generation| NameError::NotLent { inode, generation };
    let no_directory = NameError::NotDirectory { inode };
    let table = [
        ("it was never lent", enter(plain, under, 4, "g"), not_lent(plain, under)),
        ("by another lend", enter(dir, never, 4, "g"), not_lent(dir, never)),
        ("the number is another file's", enter(dir, under, 3, "g"), not_lent(dir, under)),
        ("there is no number 0", enter(dir, under, 0, "g"), not_lent(dir, under)),
        ("nor one as high", enter(dir, under, NUMBERS_MAX, "g"), not_lent(dir, under)),
        ("nor a higher one", enter(dir, under, u64::MAX, "g"), not_lent(dir, under)),
        ("the name is taken", enter(dir, under, 4, "f"), NameError::Exists { inode }),
        ("a file has no names", enter(inode, under, 4, "g"), no_directory),
        ("nothing is there", enter(id(99), under, 4, "g"), NameError::NoInode { inode: id(99) }),
    ];
    for (why, change, expected) in table {
        assert_eq!(world.by(OWNER, change), Err(expected), "{why}");
    }
    let lent = NameError::Lent { inode: dir, generation: under };
    assert_eq!(world.by(OTHER, enter(dir, under, 4, "g")), Err(lent), "it is lent to another client");
    world.enter(dir, under, NUMBERS_MAX - 1, "last");
}

#[test]
fn entering_takes_the_permissions_that_creating_takes() {
    let mut world = World::default();
    let (dir, under) = world.lent_dir(ROOT, "d");
    let denied = Err(NameError::Denied { inode: dir });
    for mode in [0o755, 0o775, 0o772, 0o771] {
        world.by(OWNER, chmod(dir, mode)).unwrap();
        assert_eq!(world.try_for(client(OWNER), &user(1), enter(dir, under, 1, "f")), denied, "{mode:o}");
    }
    world.by(OWNER, chmod(dir, 0o773)).unwrap();
    world.try_for(client(OWNER), &user(1), enter(dir, under, 1, "f")).unwrap();
}

#[test]
fn a_full_volume_has_nothing_entered() {
    let mut world = World::default();
    let (dir, under) = world.lent_dir(ROOT, "d");
    world.run(Change::Limit { inodes_max: 2, bytes_max: 100 });
    assert_eq!(world.by(OWNER, enter(dir, under, 1, "f")), Err(NameError::NoInodes { inodes_max: 2 }));
    world.run(Change::Limit { inodes_max: 9, bytes_max: 0 });
    assert_eq!(world.by(OWNER, enter(dir, under, 1, "f")), Err(NameError::NoSpace { bytes_max: 0 }));
}

/// What would be given a group or an ACL by the directory has not been created like this.
#[test]
fn nothing_is_entered_where_more_than_a_mode_is_given() {
    let acl = acl_bytes(&[(1, u32::MAX, 7), (4, u32::MAX, 5), (0x20, u32::MAX, 1)]);
    let gives = |dir| [chmod(dir, 0o2777), set_xattr(dir, "system.posix_acl_default", &acl)];
    for number in 0..2 {
        let mut world = World::default();
        let (dir, under) = world.lent_dir(ROOT, "d");
        let [group, default] = gives(dir);
        world.by(OWNER, if number == 0 { group } else { default }).unwrap();
        let refused = world.by(OWNER, enter(dir, under, 1, "f"));
        assert_eq!(refused, Err(NameError::NotLent { inode: dir, generation: under }), "{number}");
    }
}

#[test]
fn only_permissions_are_entered() {
    let mut world = World::default();
    let (dir, under) = world.lent_dir(ROOT, "d");
    let set_id = |mode| {
        let (name, replicas, created) = (name("f"), replicas(), time(1));
        let change = Change::Enter { dir, under, number: 1, name, replicas, mode, created };
        Op { time: time(1), who: Who::root(), client: client(OWNER), change }
    };
    assert_eq!(set_id(0o777).check_limits(), Ok(()));
    for mode in [0o4755, 0o2755, 0o1755] {
        assert_eq!(set_id(mode).check_limits(), Err(NameError::NoMode));
    }
    world.by(OWNER, set_id(0o6755).change).unwrap();
    assert_eq!(world.get(world.lookup(dir, "f").unwrap()).mode, 0o755, "whoever did not ask that");
}

#[test]
fn others_wait_for_a_directory_that_they_want_something_in() {
    let (world, dir, under) = furnished();
    let sub = world.lookup(dir, "sub").unwrap();
    let own = SetAttributes { uid: Some(7), ..SetAttributes::default() };
    let removed = |dir, text| Change::RemoveDirectory { site: site(dir, text), holders: vec![] };
    let changes = [
        create(dir, "g", file(), 0o644),
        create(dir, "f", file(), 0o644),
        lending(dir, "e", Make::Directory, 0o755),
        Change::Link { inode: world.lookup(dir, "pipe").unwrap(), dir, name: name("g") },
        unlink(dir, "pipe"),
        unlink(dir, "nothing"),
        removed(dir, "sub"),
        removed(ROOT, "d"),
        rename(site(dir, "pipe"), site(ROOT, "g"), RenameHow::Replace),
        rename(site(ROOT, "x"), site(dir, "g"), RenameHow::Replace),
        rename(site(ROOT, "x"), site(dir, "f"), RenameHow::NoReplace),
        rename(site(ROOT, "x"), site(ROOT, "d"), RenameHow::Replace),
        rename(site(ROOT, "x"), site(ROOT, "d"), RenameHow::Exchange),
        chmod(dir, 0o700),
        set(dir, own),
        set_xattr(dir, "user.a", b"x"),
        Change::RemoveXattr { inode: dir, name: xattr("user.a") },
        enter(dir, under, 9, "g"),
    ];
    for change in changes {
        let mut world = world.clone();
        world.dir(ROOT, "x");
        let lent = NameError::Lent { inode: dir, generation: under };
        let wanted = world.tree.wants_dir(&change, client(OTHER));
        assert_eq!(wanted.map(|(inode, lent)| (inode, lent.generation)), Some((dir, under)), "{change:?}");
        assert_eq!(world.tree.wants_dir(&change, client(OWNER)), None, "{change:?}");
        assert_eq!(world.by(OTHER, change.clone()), Err(lent), "{change:?}");
        let by_owner = world.by(OWNER, change.clone());
        assert!(!matches!(by_owner, Err(NameError::Lent { .. })), "{change:?}: {by_owner:?}");
    }
    // What is below it, or is about nothing in it, is nobody's.
    let mut world = world;
    world.by(OTHER, create(sub, "g", file(), 0o644)).unwrap();
    world.by(OTHER, rename(site(ROOT, "d"), site(ROOT, "e"), RenameHow::Replace)).unwrap();
    assert_eq!(world.get(dir).lent_to(client(OWNER)), Some(under), "it may be called otherwise");
}

#[test]
fn what_was_given_back_has_nothing_entered_and_is_for_all() {
    let ends = [(OTHER, back as End), (OWNER, returned), (OWNER, |dir, under| give_in(dir, under, false))];
    for (who, end) in ends {
        let (mut world, dir, under) = furnished();
        let inode = world.lookup(dir, "f").unwrap();
        let told = world.by(who, end(dir, under)).unwrap();
        assert_eq!(told, Done::Changed { attributes: world.get(dir) });
        assert_eq!((world.get(dir).lent, world.get(dir).last_lend, world.tree.lent(dir)), (None, None, None));
        assert_eq!(world.tree.lent_to(client(OWNER), 9), [inode], "what was entered it has still");
        let not_lent = Err(NameError::NotLent { inode: dir, generation: under });
        assert_eq!(world.by(OWNER, enter(dir, under, 2, "g")), not_lent);
        assert_eq!(world.by(OWNER, back(dir, under)), not_lent);
        world.by(OWNER, returned(dir, under)).expect("it is over, as it was to be");
        world.by(OTHER, create(dir, "g", file(), 0o644)).unwrap();
    }
}

/// Who has removed a file by itself has told nobody, and others may have found it since.
#[test]
fn what_a_client_has_removed_goes_as_long_as_the_directory_is_its_own() {
    let removed = |dir, text| {
        let (site, holders, removed) = (site(dir, text), vec![], Some(time(700)));
        Change::Unlink { site, holders, removed }
    };
    let ends = [(OTHER, back as End), (OWNER, returned)];
    for (who, end) in ends {
        let (mut world, dir, under) = furnished();
        assert_eq!(dir.lend_of_dir(), under);
        let inode = world.lookup(dir, "f").unwrap();
        world.by(who, end(dir, under)).unwrap();
        let before = world.get(dir);
        let not_lent = Err(NameError::NotLent { inode: dir, generation: under });
        assert_eq!(world.by(OWNER, removed(dir, "f")), not_lent);
        assert_eq!(world.by(OWNER, removed(dir, "nothing")), not_lent, "it says nothing of names");
        assert_eq!((world.get(dir), world.lookup(dir, "f")), (before, Some(inode)));
        world.by(OWNER, unlink(dir, "f")).expect("who asks first may still");
    }
    let (mut world, dir, under) = furnished();
    let lent = Err(NameError::Lent { inode: dir, generation: under });
    assert_eq!(world.by(OTHER, removed(dir, "f")), lent, "it is lent to another client");
    let inode = world.lookup(dir, "f").unwrap();
    assert_eq!(world.by(OWNER, removed(inode, "f")), Err(NameError::NotDirectory { inode }));
    let plain = world.dir(ROOT, "p");
    let not_lent = Err(NameError::NotLent { inode: plain, generation: plain.lend_of_dir() });
    assert_eq!(world.by(OWNER, removed(plain, "f")), not_lent, "it never was");
    world.by(OWNER, removed(dir, "f")).unwrap();
    assert_eq!((world.lookup(dir, "f"), world.get(dir).mtime), (None, time(700)));
}

#[test]
fn only_its_client_and_the_service_end_a_lend_of_a_directory() {
    let mut world = World::default();
    let (dir, under) = world.lent_dir(ROOT, "d");
    let other = Generation(at(99));
    world.by(OTHER, returned(dir, under)).unwrap();
    world.by(OWNER, returned(dir, other)).unwrap();
    let refused = Err(NameError::NotLent { inode: dir, generation: other });
    assert_eq!(world.by(OWNER, back(dir, other)), refused);
    assert_eq!(world.get(dir).lent_to(client(OWNER)), Some(under));
}

#[test]
fn a_directory_that_is_removed_is_lent_no_more() {
    let mut world = World::default();
    let (dir, under) = world.lent_dir(ROOT, "d");
    world.enter(dir, under, 1, "f");
    let remove = |holders| Change::RemoveDirectory { site: site(ROOT, "d"), holders };
    assert_eq!(world.by(OWNER, remove(vec![])), Err(NameError::NotEmpty { dir }));
    world.by(OWNER, unlink(dir, "f")).unwrap();
    world.by(OWNER, remove(vec![client(OWNER)])).unwrap();
    assert_eq!(
        world.by(OWNER, enter(dir, under, 2, "g")),
        Err(NameError::NoEntry { dir }),
        "nor is it there"
    );
    world.run(Change::Release { inode: dir, client: client(OWNER) });
    assert!(!world.is_there(dir));
    assert_eq!((world.tree.lent_to(client(OWNER), 9), world.tree.lent(dir)), (vec![], None));
    let Done::Expired { lends: false, .. } = world.run(Change::Expire { client: client(OWNER) }) else {
        panic!("nothing is left of it")
    };
}

#[test]
fn a_directory_that_takes_the_place_of_one_that_is_lent_ends_its_lend() {
    let mut world = World::default();
    let (dir, under) = world.lent_dir(ROOT, "d");
    world.by(OWNER, create(ROOT, "x", Make::Directory, 0o755)).unwrap();
    world.by(OWNER, rename(site(ROOT, "x"), site(ROOT, "d"), RenameHow::Replace)).unwrap();
    assert_eq!(world.tree.lent_to(client(OWNER), 9), []);
    assert_eq!(world.by(OWNER, enter(dir, under, 1, "f")), Err(NameError::NoInode { inode: dir }));
}

/// The content of a file that is gone is deleted some time: it is not that of another file then.
#[test]
fn the_number_of_a_file_whose_content_is_not_deleted_yet_is_not_given_again() {
    let mut world = World::default();
    let (dir, under) = world.lent_dir(ROOT, "d");
    let inode = world.enter(dir, under, 1, "f");
    let Done::Removed { fate: Fate::Doomed, .. } = world.by(OWNER, unlink(dir, "f")).unwrap() else {
        panic!("it may have content")
    };
    let refused = world.by(OWNER, enter(dir, under, 1, "g"));
    assert_eq!(refused, Err(NameError::NotLent { inode: dir, generation: under }));
    assert_eq!(world.tree.doomed(9), [inode]);
}

#[test]
fn the_end_of_a_client_waits_for_its_directories() {
    let mut world = World::default();
    let (dir, under) = world.lent_dir(ROOT, "d");
    let Done::Expired { lends: true, .. } = world.run(Change::Expire { client: client(OWNER) }) else {
        panic!("it has a directory")
    };
    assert_eq!(world.tree.client(client(OWNER)), Some(ClientState::Ending));
    let ended = Err(NameError::Expired { client: client(OWNER) });
    assert_eq!(world.by(OWNER, enter(dir, under, 1, "f")), ended);
    world.run(back(dir, under));
    let Done::Expired { lends: false, .. } = world.run(Change::Expire { client: client(OWNER) }) else {
        panic!("it has nothing any more")
    };
    assert_eq!(world.tree.client(client(OWNER)), Some(ClientState::Ended));
}

#[test]
fn what_is_entered_overlaps_questions_about_its_name_and_its_directory() {
    let (world, dir, under) = furnished();
    let (other, inode) = (world.lookup(dir, "sub").unwrap(), world.lookup(dir, "f").unwrap());
    let change = enter(dir, under, 2, "g");
    let op = Op { time: time(9), who: Who::root(), client: client(OWNER), change };
    let list = |dir, with_attributes| Ask::List { dir, after: None, entries_max: 9, with_attributes };
    let table = [
        (Ask::Lookup { dir, name: name("g") }, true),
        (Ask::Lookup { dir, name: name("f") }, false),
        (Ask::Lookup { dir: other, name: name("g") }, false),
        (Ask::Lookup { dir: ROOT, name: name("d") }, true),
        (list(dir, false), true),
        (list(other, false), false),
        (list(ROOT, true), true),
        (list(ROOT, false), false),
        (Ask::Attributes { inode: dir }, true),
        (Ask::Attributes { inode }, false),
        (Ask::Attributes { inode: ROOT }, false),
        (Ask::Statfs, true),
        (Ask::Clients { after: None }, true),
    ];
    for (ask, expected) in table {
        let query = Query { who: Who::root(), ask };
        assert_eq!(world.tree.overlaps(&op, &query), expected, "{query:?}");
    }
    assert_eq!(op.creates(at(77)), InodeId::under(under, 2), "whichever entry it is");
}

#[test]
fn numbers_are_not_those_of_entries() {
    let under = |seq, number| InodeId::under(Generation(at(seq)), number);
    assert_eq!(under(5, 1), Some(InodeId { number: 1 << 40 | 5, epoch: EPOCH }));
    assert_eq!(under(5, NUMBERS_MAX - 1).map(|inode| inode.number), Some((NUMBERS_MAX - 1) << 40 | 5));
    assert_eq!([under(5, 0), under(5, NUMBERS_MAX), under(5, u64::MAX)], [None; 3]);
    assert_eq!(under(1 << 40, 1), None, "the log is too long");
    assert!(under((1 << 40) - 1, 1).is_some());
}
