//! Which operation sets which times of what.

use super::*;

const ROOT: InodeId = InodeId::ROOT;

/// The times that changed by what was done: of access, content and anything.
fn changed(before: &Attributes, after: &Attributes) -> String {
    let times = [
        ('a', before.atime != after.atime),
        ('m', before.mtime != after.mtime),
        ('c', before.ctime != after.ctime),
        ('b', before.btime != after.btime),
    ];
    times.into_iter().filter(|(_, is_changed)| *is_changed).map(|(time, _)| time).collect()
}

#[test]
fn each_operation_sets_the_times_that_posix_says() {
    // `/d/f` and `/d/g` are files, `/e/` is empty. Of d, e, f and g.
    let (d, e, f, g) = (id(1), id(2), id(3), id(6));
    let times = |atime, mtime| SetAttributes { atime, mtime, ..SetAttributes::default() };
    let size = SetAttributes { size: Some(5), ..SetAttributes::default() };
    let table = [
        (create(d, "n", file(), 0), ["mc", "", "", ""]),
        (create(d, "n", Make::Directory, 0), ["mc", "", "", ""]),
        (Change::Link { inode: f, dir: e, name: name("n") }, ["", "mc", "c", ""]),
        (unlink(d, "f"), ["mc", "", "gone", ""]),
        (Change::Unlink { site: site(d, "f"), holders: vec![client(1)], removed: None }, ["mc", "", "c", ""]),
        (Change::RemoveDirectory { site: site(ROOT, "e"), holders: vec![client(1)] }, ["", "c", "", ""]),
        (rename(site(d, "f"), site(d, "n"), RenameHow::Replace), ["mc", "", "c", ""]),
        (rename(site(d, "f"), site(e, "n"), RenameHow::Replace), ["mc", "mc", "c", ""]),
        (rename(site(d, "f"), site(d, "g"), RenameHow::Replace), ["mc", "", "c", "gone"]),
        (rename(site(d, "f"), site(d, "g"), RenameHow::Exchange), ["mc", "", "c", "c"]),
        (rename(site(ROOT, "e"), site(d, "e"), RenameHow::Replace), ["mc", "c", "", ""]),
        (chmod(f, 0o600), ["", "", "c", ""]),
        (chown(f, 1, 1), ["", "", "c", ""]),
        (set(f, size), ["", "", "mc", ""]),
        (set(f, times(Some(SetTime::Now), None)), ["", "", "ac", ""]),
        (set(f, times(None, Some(SetTime::Now))), ["", "", "mc", ""]),
        (set(f, times(Some(SetTime::To(time(2))), Some(SetTime::To(time(3))))), ["", "", "amc", ""]),
        (set_xattr(f, "user.a", b"x"), ["", "", "c", ""]),
        (Change::Lend { inode: f, to: LentTo::Content }, ["", "", "", ""]),
    ];
    for (change, expected) in table {
        let mut world = World::default();
        assert_eq!((world.dir(ROOT, "d"), world.dir(ROOT, "e")), (d, e));
        assert_eq!((world.file(d, "f"), world.file(d, "g")), (f, g));
        world.seq += 10;
        let before = [d, e, f, g].map(|inode| world.get(inode));
        let shown = format!("{change:?}");
        world.run(change);
        let after = before.each_ref().map(|before| match world.is_there(before.inode) {
            true => changed(before, &world.get(before.inode)),
            false => "gone".to_owned(),
        });
        assert_eq!(after, expected, "{shown}");
    }
}

#[test]
fn a_new_inode_has_the_time_of_its_entry() {
    let mut world = World { seq: 40, ..World::default() };
    let inode = world.dir(ROOT, "d");
    let Attributes { atime, mtime, ctime, btime, .. } = world.get(inode);
    assert_eq!([atime, mtime, ctime, btime], [time(41); 4]);
}

#[test]
fn the_time_of_a_change_never_goes_back() {
    let mut world = World { seq: 40, ..World::default() };
    let inode = world.file(ROOT, "f");
    let before = world.get(inode);
    let op = |change| Op { time: time(3), who: Who::root(), client: client(0), change };
    let touch = SetAttributes { mtime: Some(SetTime::Now), ..SetAttributes::default() };
    for (seq, change) in (50..).zip([chmod(inode, 0), set(inode, touch), create(ROOT, "g", Make::Fifo, 0)]) {
        world.tree.apply(at(seq), &op(change)).unwrap();
    }
    assert_eq!((world.get(inode).ctime, world.get(inode).mtime), (before.ctime, before.ctime));
    assert_eq!(world.get(ROOT).mtime, time(41), "that of the first entry in it");
    let back = SetAttributes { mtime: Some(SetTime::To(time(1))), ..SetAttributes::default() };
    world.run(set(inode, back));
    assert_eq!(world.get(inode).mtime, time(1), "but where somebody says so");
}
