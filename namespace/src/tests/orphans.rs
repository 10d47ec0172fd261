//! What has no name any more.

use super::*;

const ROOT: InodeId = InodeId::ROOT;

fn unlink_held(text: &str, holders: &[u64]) -> Change {
    Change::Unlink {
        site: site(ROOT, text),
        holders: holders.iter().copied().map(client).collect(),
        removed: None,
    }
}

#[test]
fn without_holders_a_file_is_doomed_until_its_data_is_gone() {
    let mut world = World::default();
    let inode = world.file(ROOT, "f");
    world.run(set_xattr(inode, "user.a", b"v"));
    assert_eq!(world.run(unlink(ROOT, "f")), Done::Removed { inode, fate: Fate::Doomed });
    assert!(!world.is_there(inode));
    assert_eq!(world.ask(Ask::Doomed { after: None }), Answer::Doomed(vec![(inode, replicas())]));
    assert_eq!(world.ask(Ask::Doomed { after: Some(inode) }), Answer::Doomed(vec![]));
    assert_eq!(world.run(Change::Deleted { inode }), Done::Deleted);
    assert_eq!(world.error(Change::Deleted { inode }), NameError::NotDoomed { inode });
    assert_eq!((world.ask(Ask::Doomed { after: None }), world.volume().inodes), (Answer::Doomed(vec![]), 1));
}

#[test]
fn what_has_no_data_is_just_gone() {
    let mut world = World::default();
    for make in [Make::Fifo, Make::Socket, Make::Symlink { target: Target::new("x".into()).unwrap() }] {
        let inode = world.create(ROOT, "x", make, 0);
        assert_eq!(world.run(unlink(ROOT, "x")), Done::Removed { inode, fate: Fate::Gone });
    }
    assert_eq!(world.volume().inodes, 1);
}

#[test]
fn a_file_that_was_never_lent_has_no_data_either() {
    let mut world = World::default();
    let inode = world.create(ROOT, "f", file(), 0o600);
    world.run(set(inode, SetAttributes { size: Some(7), ..SetAttributes::default() }));
    assert_eq!(world.run(unlink(ROOT, "f")), Done::Removed { inode, fate: Fate::Gone });
    assert_eq!(world.error(Change::Lend { inode, to: LentTo::Content }), NameError::NoInode { inode });
    assert_eq!((world.volume().inodes, world.volume().bytes), (1, 0));
    let inode = world.create(ROOT, "g", file(), 0o600);
    world.run(unlink_held("g", &[1]));
    let release = Change::Release { inode, client: client(1) };
    assert_eq!(world.run(release), Done::Released { fate: Fate::Gone });
    assert_eq!(world.ask(Ask::Doomed { after: None }), Answer::Doomed(vec![]));
}

#[test]
fn an_orphan_may_be_lent_for_the_first_time() {
    let mut world = World::default();
    let inode = world.create(ROOT, "f", file(), 0o600);
    world.run(unlink_held("f", &[1]));
    world.run(Change::Lend { inode, to: LentTo::Content });
    let release = Change::Release { inode, client: client(1) };
    assert_eq!(world.run(release), Done::Released { fate: Fate::Doomed });
}

#[test]
fn holders_keep_what_has_no_name() {
    let mut world = World::default();
    let inode = world.file(ROOT, "f");
    let done = world.run(unlink_held("f", &[1, 2, 1]));
    assert_eq!(done, Done::Removed { inode, fate: Fate::Orphan { holders: 2 } });
    assert_eq!((world.get(inode).links, world.lookup(ROOT, "f")), (0, None));
    assert_eq!(world.ask(Ask::Orphans { after: None }), Answer::Inodes(vec![inode]));
    assert_eq!(world.ask(Ask::Holds { client: client(2), after: None }), Answer::Inodes(vec![inode]));
    assert_eq!(world.ask(Ask::Holds { client: client(3), after: None }), Answer::Inodes(vec![]));
    let link = Change::Link { inode, dir: ROOT, name: name("g") };
    assert_eq!(world.error(link), NameError::Orphan { inode });
    world.run(chmod(inode, 0o600));
    world.run(Change::Lend { inode, to: LentTo::Content });
    world.give_back(inode, 40);

    world.run(Change::Hold { inode, client: client(3) });
    world.run(Change::Hold { inode, client: client(3) });
    let release = |number| Change::Release { inode, client: client(number) };
    for (number, fate) in
        [(1, Fate::Orphan { holders: 2 }), (3, Fate::Orphan { holders: 1 }), (2, Fate::Doomed)]
    {
        assert_eq!(world.run(release(number)), Done::Released { fate });
    }
    assert_eq!(world.error(release(1)), NameError::NoInode { inode });
    assert_eq!(world.volume().bytes, 40, "until the data is gone");
    assert_eq!(world.ask(Ask::Orphans { after: None }), Answer::Inodes(vec![]));
}

#[test]
fn holders_count_only_when_the_last_name_goes() {
    let mut world = World::default();
    let inode = world.file(ROOT, "f");
    world.run(Change::Link { inode, dir: ROOT, name: name("g") });
    assert_eq!(world.run(unlink_held("f", &[1])), Done::Removed { inode, fate: Fate::Named { links: 1 } });
    assert_eq!(world.error(Change::Hold { inode, client: client(1) }), NameError::NotOrphan { inode });
    assert_eq!(world.run(unlink_held("g", &[])), Done::Removed { inode, fate: Fate::Doomed });
}

#[test]
fn what_a_rename_replaces_is_held_too() {
    let mut world = World::default();
    let (moved, other) = (world.file(ROOT, "f"), world.file(ROOT, "g"));
    let (from, to) = (site(ROOT, "f"), site(ROOT, "g").naming(other));
    let done = world.run(Change::Rename { from, to, how: RenameHow::Replace, holders: vec![client(1)] });
    assert_eq!(done, Done::Renamed { moved, other: Some(other), fate: Some(Fate::Orphan { holders: 1 }) });
}

#[test]
fn a_directory_without_a_name_takes_none_in() {
    let mut world = World::default();
    let dir = world.dir(ROOT, "d");
    let inode = world.file(ROOT, "f");
    world.run(Change::RemoveDirectory { site: site(ROOT, "d"), holders: vec![client(1)] });
    for change in [
        create(dir, "x", Make::Fifo, 0),
        Change::Link { inode, dir, name: name("x") },
        rename(site(ROOT, "f"), site(dir, "x"), RenameHow::Replace),
    ] {
        assert_eq!(world.error(change), NameError::NoEntry { dir });
    }
    assert_eq!(
        world.run(Change::Release { inode: dir, client: client(1) }),
        Done::Released { fate: Fate::Gone }
    );
}

#[test]
fn holders_of_an_entry_are_limited_in_number() {
    let mut world = World::default();
    let inode = world.file(ROOT, "f");
    let many: Vec<u64> = (0..=limits::HOLDERS_MAX as u64).collect();
    assert_eq!(world.error(unlink_held("f", &many)), NameError::TooManyHolders { count: many.len() as u64 });
    let done = world.run(unlink_held("f", &many[1..]));
    assert_eq!(done, Done::Removed { inode, fate: Fate::Orphan { holders: 1024 } });
}
