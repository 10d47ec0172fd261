//! Extended attributes.

use super::random::acl_bytes;
use super::*;
use crate::limits::{XATTR_BYTES_MAX, XATTRS_MAX};

const ROOT: InodeId = InodeId::ROOT;

fn get(world: &World, who: &Who, inode: InodeId, text: &str) -> Result<Answer, NameError> {
    world.ask_as(who, Ask::GetXattr { inode, name: xattr(text) })
}

fn plain() -> Vec<u8> {
    acl_bytes(&[(1, u32::MAX, 7), (4, u32::MAX, 5), (0x20, u32::MAX, 1)])
}

#[test]
fn who_may_set_and_see_which() {
    let (ok, not_permitted, denied) = ("", "not permitted", "denied");
    let (none, not_supported) = ("none", "not supported");
    // On what, which, who; what comes of setting it, and of asking for it when it is there.
    let table = [
        ("file", "user.a", user(1), ok, ok),
        ("file", "user.a", user(2), denied, ok),
        ("closed", "user.a", user(1), denied, denied),
        ("closed", "user.a", Who::root(), ok, ok),
        ("dir", "user.a", user(1), ok, ok),
        ("sticky", "user.a", user(1), ok, ok),
        ("sticky", "user.a", user(2), not_permitted, ok),
        ("fifo", "user.a", Who::root(), not_permitted, none),
        ("link", "user.a", Who::root(), not_permitted, none),
        ("fifo", "trusted.a", Who::root(), ok, ok),
        ("file", "trusted.a", user(1), not_permitted, none),
        ("file", "security.a", user(1), not_permitted, ok),
        ("file", "security.a", Who::root(), ok, ok),
        ("file", "system.posix_acl_access", user(1), ok, none),
        ("file", "system.posix_acl_access", user(2), not_permitted, none),
        ("file", "system.posix_acl_default", user(1), denied, none),
        ("dir", "system.posix_acl_default", user(1), ok, ok),
        ("dir", "system.posix_acl_default", user(2), not_permitted, ok),
        ("link", "system.posix_acl_access", Who::root(), not_supported, not_supported),
    ];
    for (what, text, who, may_set, may_get) in table {
        let mut world = World::default();
        let (make, mode) = match what {
            "file" => (file(), 0o644),
            "closed" => (file(), 0o000),
            "dir" => (Make::Directory, 0o755),
            "sticky" => (Make::Directory, 0o1777),
            "fifo" => (Make::Fifo, 0o644),
            _ => (Make::Symlink { target: Target::new("x".into()).unwrap() }, 0),
        };
        let inode = world.create(ROOT, "x", make, mode);
        world.run(chown(inode, 1, 1));
        let value = if text.starts_with("system") { plain() } else { b"v".to_vec() };
        let _may_have_been = world.try_as(&Who::root(), set_xattr(inode, text, &value));
        let got = get(&world, &who, inode, text).map(drop);
        let set = world.try_as(&who, set_xattr(inode, text, &value)).map(drop);
        for (result, expected) in [(set, may_set), (got, may_get)] {
            let shown = match result {
                Ok(()) => ok,
                Err(NameError::NotPermitted { .. }) => not_permitted,
                Err(NameError::Denied { .. }) => denied,
                Err(NameError::NoXattr { .. }) => none,
                Err(NameError::NotSupported { .. }) => not_supported,
                Err(other) => panic!("{other}"),
            };
            assert_eq!(shown, expected, "{what} {text} {who:?}");
        }
    }
}

#[test]
fn setting_may_ask_for_what_was_there() {
    let mut world = World::default();
    let inode = world.file(ROOT, "f");
    let change = |how, value: &'static [u8]| Change::SetXattr {
        inode,
        name: xattr("user.a"),
        value: value.into(),
        how,
    };
    assert_eq!(world.error(change(XattrHow::Replace, b"1")), NameError::NoXattr { inode });
    world.run(change(XattrHow::Create, b"2"));
    assert_eq!(world.error(change(XattrHow::Create, b"3")), NameError::XattrExists { inode });
    world.run(change(XattrHow::Replace, b"4"));
    assert_eq!(get(&world, &user(1), inode, "user.a"), Ok(Answer::Value(b"4".as_slice().into())));
    world.run(change(XattrHow::Any, b""));
    assert_eq!(
        get(&world, &user(1), inode, "user.a"),
        Ok(Answer::Value(b"".as_slice().into())),
        "empty is not absent"
    );
    let removal = Change::RemoveXattr { inode, name: xattr("user.a") };
    world.run(removal.clone());
    assert_eq!(world.error(removal), NameError::NoXattr { inode });
}

#[test]
fn names_are_listed_to_those_who_may_see_them() {
    let mut world = World::default();
    let inode = world.file(ROOT, "f");
    for text in ["user.b", "trusted.t", "user.a"] {
        world.run(set_xattr(inode, text, b"v"));
    }
    world.run(set_xattr(ROOT, "user.other", b"v"));
    let names = |texts: &[&str]| Ok(Answer::Names(texts.iter().map(|text| xattr(text)).collect()));
    assert_eq!(world.ask_as(&user(1), Ask::ListXattrs { inode }), names(&["user.a", "user.b"]));
    assert_eq!(
        world.ask_as(&Who::root(), Ask::ListXattrs { inode }),
        names(&["trusted.t", "user.a", "user.b"])
    );
    let dir = world.dir(ROOT, "d");
    assert_eq!(world.ask_as(&user(1), Ask::ListXattrs { inode: dir }), names(&[]));
}

#[test]
fn they_are_limited_in_size_and_number() {
    let mut world = World::default();
    let (inode, other) = (world.file(ROOT, "f"), world.file(ROOT, "g"));
    let room = usize::try_from(XATTR_BYTES_MAX).unwrap() - "user.a".len();
    let longer = set_xattr(inode, "user.a", &vec![0; room + 1]);
    assert_eq!(world.error(longer), NameError::XattrTooLong { bytes: XATTR_BYTES_MAX + 1 });
    world.run(set_xattr(inode, "user.a", &vec![0; room]));
    assert_eq!(world.error(set_xattr(inode, "user.b", b"")), NameError::NoXattrSpace { inode });
    world.run(set_xattr(inode, "user.a", &vec![0; room - 6]));
    world.run(set_xattr(inode, "user.b", b""));

    let op = |change| Op { time: time(9), who: Who::root(), client: client(0), change };
    for number in 0..u64::from(XATTRS_MAX) {
        world.tree.apply(at(100 + number), &op(set_xattr(other, &format!("user.{number}"), b""))).unwrap();
    }
    let one_more = world.tree.apply(at(5000), &op(set_xattr(other, "user.more", b"")));
    assert_eq!(one_more, Err(NameError::NoXattrSpace { inode: other }));
    world.tree.apply(at(5001), &op(set_xattr(other, "user.7", b"new"))).unwrap();
    world.seq = 6000;
    world.run(unlink(ROOT, "g"));
}

#[test]
fn an_acl_that_is_a_mode_becomes_one() {
    let mut world = World::default();
    let inode = world.file(ROOT, "f");
    world.run(set_xattr(inode, "system.posix_acl_access", &plain()));
    assert_eq!((world.get(inode).mode, world.get(inode).has_acl), (0o751, false));
    let long =
        acl_bytes(&[(1, u32::MAX, 7), (2, 5, 7), (4, u32::MAX, 1), (0x10, u32::MAX, 6), (0x20, u32::MAX, 0)]);
    world.run(set_xattr(inode, "system.posix_acl_access", &long));
    assert_eq!((world.get(inode).mode, world.get(inode).has_acl), (0o760, true));
    world.run(set_xattr(inode, "system.posix_acl_access", &acl_bytes(&[])));
    assert_eq!((world.get(inode).mode, world.get(inode).has_acl), (0o760, false), "what is empty is none");
    let refused = world.error(set_xattr(inode, "system.posix_acl_access", b"x"));
    assert_eq!(refused, NameError::NotAcl(NotAcl::Layout));
}

#[test]
fn capabilities_end_when_the_file_changes() {
    for change in [
        |inode| chown(inode, 0, 0),
        |inode| set(inode, SetAttributes { size: Some(1), ..SetAttributes::default() }),
        |inode| Change::Lend { inode, to: LentTo::Content },
    ] {
        let mut world = World::default();
        let inode = world.file(ROOT, "f");
        world.run(set_xattr(inode, "security.capability", b"all"));
        world.run(chmod(inode, 0o700));
        assert!(get(&world, &user(1), inode, "security.capability").is_ok());
        world.run(change(inode));
        assert!(get(&world, &user(1), inode, "security.capability").is_err());
    }
}

#[test]
fn a_count_that_is_too_small_ends_nothing() {
    let mut world = World::default();
    let inode = world.file(InodeId::ROOT, "f");
    world.run(set_xattr(inode, "user.a", b"value"));
    let Some(Part::Inode(found)) = world.tree.part(&Key::Inode(inode)) else { panic!("it is there") };
    let wrong = Inode { xattrs: 0, xattr_bytes: 0, ..Inode::clone(&found) };
    world.tree.place(Key::Inode(inode), Some((at(world.seq), Part::Inode(wrong.into()))));
    let op = |change| Op { time: time(99), who: Who::root(), client: client(0), change };
    world.tree.apply(at(99), &op(set_xattr(inode, "user.a", b"other"))).unwrap();
    let name = xattr("user.a");
    assert_eq!(world.ask(Ask::GetXattr { inode, name: name.clone() }), Answer::Value(b"other"[..].into()));
    world.tree.apply(at(100), &op(Change::RemoveXattr { inode, name })).unwrap();
}
