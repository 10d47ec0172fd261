//! Renaming in all its forms.

use super::*;

const ROOT: InodeId = InodeId::ROOT;
use RenameHow::{Exchange, NoReplace, Replace};

/// `/a` is a file and `/b`, too; `/l` is another name of `/a`; `/d/` is empty, `/e/` has a file `x` and a directory `s/`.
struct Place {
    world: World,
    a: InodeId,
    b: InodeId,
    d: InodeId,
    e: InodeId,
    s: InodeId,
}

fn place() -> Place {
    let mut world = World::default();
    let (a, b) = (world.file(ROOT, "a"), world.file(ROOT, "b"));
    world.run(Change::Link { inode: a, dir: ROOT, name: name("l") });
    let (d, e) = (world.dir(ROOT, "d"), world.dir(ROOT, "e"));
    world.file(e, "x");
    let s = world.dir(e, "s");
    Place { world, a, b, d, e, s }
}

#[test]
fn each_form_does_what_posix_says() {
    let Place { a, b, d, e, s, .. } = place();
    let exists = |inode| Some(NameError::Exists { inode });
    let table = [
        ((ROOT, "a"), (ROOT, "c"), Replace, None),
        ((ROOT, "a"), (ROOT, "b"), Replace, None),
        ((ROOT, "a"), (d, "b"), Replace, None),
        ((ROOT, "a"), (ROOT, "l"), Replace, None),
        ((ROOT, "a"), (ROOT, "a"), Replace, None),
        ((ROOT, "a"), (ROOT, "d"), Replace, Some(NameError::IsDirectory { inode: d })),
        ((ROOT, "d"), (ROOT, "a"), Replace, Some(NameError::NotDirectory { inode: a })),
        ((ROOT, "d"), (ROOT, "e"), Replace, Some(NameError::NotEmpty { dir: e })),
        ((ROOT, "e"), (ROOT, "d"), Replace, None),
        ((ROOT, "e"), (d, "e"), Replace, None),
        ((ROOT, "e"), (e, "y"), Replace, Some(NameError::Loop { dir: e })),
        ((ROOT, "e"), (s, "y"), Replace, Some(NameError::Loop { dir: e })),
        ((ROOT, "q"), (ROOT, "r"), Replace, Some(NameError::NoEntry { dir: ROOT })),
        ((ROOT, "a"), (a, "r"), Replace, Some(NameError::NotDirectory { inode: a })),
        ((ROOT, "a"), (ROOT, "c"), NoReplace, None),
        ((ROOT, "a"), (ROOT, "b"), NoReplace, exists(b)),
        ((ROOT, "a"), (ROOT, "l"), NoReplace, exists(a)),
        ((ROOT, "a"), (ROOT, "c"), Exchange, Some(NameError::NoEntry { dir: ROOT })),
        ((ROOT, "a"), (ROOT, "b"), Exchange, None),
        ((ROOT, "a"), (ROOT, "l"), Exchange, None),
        ((ROOT, "a"), (ROOT, "e"), Exchange, None),
        ((ROOT, "a"), (e, "s"), Exchange, None),
        ((e, "s"), (ROOT, "a"), Exchange, None),
        ((ROOT, "d"), (e, "s"), Exchange, None),
        ((ROOT, "e"), (e, "x"), Exchange, Some(NameError::Loop { dir: e })),
        ((e, "x"), (ROOT, "e"), Exchange, Some(NameError::Loop { dir: e })),
    ];
    for (from, to, how, error) in table {
        let Place { mut world, .. } = place();
        let (moved, other) =
            (world.lookup(from.0, from.1), error.map_or_else(|| world.lookup(to.0, to.1), |_| None));
        let result = world.try_as(&Who::root(), rename(site(from.0, from.1), site(to.0, to.1), how));
        assert_eq!(result.as_ref().err(), error.as_ref(), "{from:?} {to:?} {how:?}");
        if error.is_some() {
            continue;
        }
        let is_same = moved == other;
        assert_eq!(world.lookup(to.0, to.1), moved, "{from:?} {to:?} {how:?}");
        let left = match how {
            _ if is_same => moved,
            Exchange => other,
            Replace | NoReplace => None,
        };
        assert_eq!(world.lookup(from.0, from.1), left, "{from:?} {to:?} {how:?}");
    }
}

#[test]
fn what_had_the_name_loses_it() {
    let Place { mut world, a, b, .. } = place();
    let done = world.run(rename(site(ROOT, "a"), site(ROOT, "b"), Replace));
    assert_eq!(done, Done::Renamed { moved: a, other: Some(b), fate: Some(Fate::Doomed) });
    let done = world.run(rename(site(ROOT, "l"), site(ROOT, "b"), Replace));
    assert_eq!(done, Done::Renamed { moved: a, other: None, fate: None }, "two names of the same stay");
    assert_eq!((world.lookup(ROOT, "l"), world.get(a).links), (Some(a), 2));
}

#[test]
fn the_same_under_two_names_is_not_even_touched() {
    let Place { mut world, .. } = place();
    let before = world.tree.clone();
    for how in [Replace, Exchange] {
        world.run_as(&user(9), rename(site(ROOT, "a"), site(ROOT, "l"), how));
        assert_eq!(world.tree, before);
    }
}

#[test]
fn directories_keep_count_of_those_within() {
    let Place { mut world, d, e, s, .. } = place();
    assert_eq!((world.get(ROOT).links, world.get(e).links, world.get(d).links), (4, 3, 2));
    world.run(rename(site(e, "s"), site(d, "s"), Replace));
    assert_eq!((world.get(e).links, world.get(d).links), (2, 3));
    world.run(rename(site(d, "s"), site(ROOT, "a"), Exchange));
    assert_eq!((world.get(ROOT).links, world.get(d).links), (5, 2));
    world.run(rename(site(ROOT, "e"), site(ROOT, "a"), Exchange));
    assert_eq!((world.get(ROOT).links, world.lookup(ROOT, "e")), (5, Some(s)));
}

#[test]
fn nothing_is_moved_deeper_than_can_be_looked_up() {
    let mut world = World::default();
    let mut deep = ROOT;
    let op = |change| Op { time: time(1), who: Who::root(), client: client(0), change };
    for level in 1..=limits::DEPTH_MAX as u64 {
        world.tree.apply(at(level), &op(create(deep, "d", Make::Directory, 0))).unwrap();
        deep = id(level);
    }
    let next = limits::DEPTH_MAX as u64 + 1;
    world.tree.apply(at(next), &op(create(ROOT, "e", Make::Directory, 0))).unwrap();
    let refused = world.tree.apply(at(next + 1), &op(rename(site(ROOT, "e"), site(deep, "e"), Replace)));
    assert_eq!(refused, Err(NameError::TooDeep { dir: deep }));
    let above = id(limits::DEPTH_MAX as u64 - 1);
    world.tree.apply(at(next + 2), &op(rename(site(ROOT, "e"), site(above, "e"), Replace))).unwrap();
}

#[test]
fn who_may_rename() {
    // Owner and mode of the directory it is in and of the one it goes to, owner and mode of what is moved, and of what is there.
    struct Case {
        from: (u32, u16),
        to: (u32, u16),
        moved: (u32, u16, bool),
        other: Option<(u32, bool)>,
        may: Result<(), &'static str>,
    }
    let case = |from, to, moved, other, may| Case { from, to, moved, other, may };
    let (open, sticky) = ((0, 0o777), (0, 0o1777));
    let (own, foreign) = ((1, 0o644, false), (2, 0o644, false));
    let table = [
        case(open, open, foreign, None, Ok(())),
        case((0, 0o755), open, own, None, Err("from")),
        case(open, (0, 0o755), own, None, Err("to")),
        case((0, 0o776), open, own, None, Err("from")),
        case(sticky, open, own, None, Ok(())),
        case(sticky, open, foreign, None, Err("moved")),
        case((1, 0o1777), open, foreign, None, Ok(())),
        case(open, sticky, own, None, Ok(())),
        case(open, sticky, own, Some((2, false)), Err("other")),
        case(open, sticky, own, Some((1, false)), Ok(())),
        case(open, (1, 0o1777), own, Some((2, false)), Ok(())),
        case(open, open, (1, 0o755, true), None, Ok(())),
        case(open, open, (1, 0o555, true), None, Err("write")),
        case(open, open, (2, 0o755, true), None, Err("write")),
        case(open, open, (2, 0o777, true), Some((2, true)), Ok(())),
    ];
    for (number, case) in table.into_iter().enumerate() {
        let mut world = World::default();
        let (from, to) = (world.dir(ROOT, "from"), world.dir(ROOT, "to"));
        let make = |is_directory| if is_directory { Make::Directory } else { Make::Fifo };
        let moved = world.create(from, "a", make(case.moved.2), 0);
        world.run(chown(moved, case.moved.0, 0));
        world.run(chmod(moved, case.moved.1));
        let other = case.other.map(|(uid, is_directory)| {
            let other = world.create(to, "b", make(is_directory), 0o644);
            world.run(chown(other, uid, 0));
            other
        });
        for (dir, (uid, mode)) in [(from, case.from), (to, case.to)] {
            world.run(chown(dir, uid, 0));
            world.run(chmod(dir, mode));
        }
        let result = world.try_as(&user(1), rename(site(from, "a"), site(to, "b"), Replace)).map(drop);
        let expected = case.may.map_err(|what| match what {
            "from" => NameError::Denied { inode: from },
            "to" => NameError::Denied { inode: to },
            "write" => NameError::Denied { inode: moved },
            "moved" => NameError::NotPermitted { inode: moved },
            _ => NameError::NotPermitted { inode: other.unwrap() },
        });
        assert_eq!(result, expected, "case {number}");
    }
}
