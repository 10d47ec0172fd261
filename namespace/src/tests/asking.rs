//! Questions, and which operations they wait for.

use super::*;
use crate::limits::{ATTRIBUTES_BYTES, LISTED_BYTES, PAGE_BYTES_MAX};

const ROOT: InodeId = InodeId::ROOT;

fn list(dir: InodeId, after: Option<&str>, entries_max: u32, with_attributes: bool) -> Ask {
    Ask::List { dir, after: after.map(name), entries_max, with_attributes }
}

fn page(world: &World, ask: Ask) -> (Vec<String>, bool) {
    let Answer::Page(Page { entries, is_last }) = world.ask(ask) else { panic!() };
    let text = |listed: &Listed| String::from_utf8(listed.name.as_bytes().to_vec()).unwrap();
    (entries.iter().map(text).collect(), is_last)
}

#[test]
fn a_new_tree_is_an_empty_root() {
    let world = World::default();
    let Attributes { kind, mode, uid, links, .. } = world.get(ROOT);
    assert_eq!((kind, mode, uid, links), (Kind::Directory, 0o755, 0, 2));
    assert_eq!(page(&world, list(ROOT, None, 9, false)), (vec![], true));
    assert_eq!((world.volume().inodes, world.tree.version(&Key::Volume)), (1, Some(Born::default())));
}

#[test]
fn a_directory_is_listed_page_by_page() {
    let mut world = World::default();
    let (dir, behind) = (world.dir(ROOT, "d"), world.dir(ROOT, "e"));
    world.create(behind, "other", Make::Fifo, 0);
    let names: Vec<String> = (0..150).map(|number| format!("f{number:03}")).collect();
    for text in &names {
        world.create(dir, text, Make::Fifo, 0);
    }
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (some, is_last) = page(&world, list(dir, after.as_deref(), 40, false));
        assert!(is_last || some.len() == 40);
        all.extend(some);
        after = all.last().cloned();
        if is_last {
            break;
        }
    }
    assert_eq!(all, names);
    assert_eq!(
        page(&world, list(dir, None, 150, false)),
        (names.clone(), true),
        "there is nothing behind it"
    );
    assert_eq!(page(&world, list(dir, Some("f1485"), 9, false)), (vec!["f149".to_owned()], true));
    assert_eq!(page(&world, list(dir, Some("g"), 9, false)), (vec![], true));
    let Answer::Page(found) = world.ask(list(dir, None, 3, true)) else { panic!() };
    for listed in found.entries {
        assert_eq!(listed.attributes, Some(world.get(listed.inode)));
    }
    let no_directory = world.lookup(dir, "f000").unwrap();
    let refused = world.ask_as(&Who::root(), list(no_directory, None, 9, false));
    assert_eq!(refused, Err(NameError::NotDirectory { inode: no_directory }));
}

#[test]
fn a_page_has_no_more_bytes_than_it_may() {
    let mut world = World::default();
    let op = |change| Op { time: time(9), who: Who::root(), client: client(0), change };
    for number in 0..1000 {
        let long = format!("{number:0255}");
        world.tree.apply(at(100 + number), &op(create(ROOT, &long, Make::Fifo, 0))).unwrap();
    }
    for (with_attributes, each) in
        [(false, LISTED_BYTES + 255), (true, LISTED_BYTES + 255 + ATTRIBUTES_BYTES)]
    {
        let (names, is_last) = page(&world, list(ROOT, None, 1000, with_attributes));
        assert_eq!((names.len(), is_last), (PAGE_BYTES_MAX / each, false));
    }
    assert!(size_of::<Attributes>() + base::MEMBERS_MAX * size_of::<NodeId>() <= ATTRIBUTES_BYTES);
}

#[test]
fn links_are_read() {
    let mut world = World::default();
    let target = Target::new("../there".into()).unwrap();
    let inode = world.create(ROOT, "l", Make::Symlink { target: target.clone() }, 0);
    assert_eq!(world.ask(Ask::Readlink { inode }), Answer::Target(target));
    assert_eq!(world.get(inode).size, 8);
    let refused = world.ask_as(&Who::root(), Ask::Readlink { inode: ROOT });
    assert_eq!(refused, Err(NameError::WrongKind { inode: ROOT }));
}

/// `/d/` has a file `f`, `/e/` a file `g`; the orphan `o` is held.
struct Place {
    world: World,
    d: InodeId,
    e: InodeId,
    f: InodeId,
    g: InodeId,
    o: InodeId,
}

fn place() -> Place {
    let mut world = World::default();
    let (d, e) = (world.dir(ROOT, "d"), world.dir(ROOT, "e"));
    let (f, g, o) = (world.file(d, "f"), world.file(e, "g"), world.file(ROOT, "o"));
    world.run(Change::Unlink { site: site(ROOT, "o"), holders: vec![client(1)], removed: None });
    Place { world, d, e, f, g, o }
}

#[test]
fn questions_wait_for_what_might_change_their_answer_and_not_for_the_rest() {
    let Place { world, d, e, f, g, o } = place();
    let lookup = |dir, text: &str| Ask::Lookup { dir, name: name(text) };
    let of = |inode| Ask::Attributes { inode };
    let (yes, no) = (true, false);
    let new = || create(d, "n", file(), 0);
    let acl = || set_xattr(d, "system.posix_acl_access", b"");
    let expire = || Change::Expire { client: client(1) };
    let table = [
        (new(), lookup(d, "n"), yes),
        (new(), lookup(d, "f"), no),
        (new(), lookup(e, "g"), no),
        (new(), lookup(ROOT, "d"), yes),
        (new(), lookup(ROOT, "e"), no),
        (new(), of(d), yes),
        (new(), of(f), no),
        (new(), list(d, None, 9, false), yes),
        (new(), list(e, None, 9, true), no),
        (new(), list(ROOT, None, 9, true), yes),
        (new(), list(ROOT, None, 9, false), no),
        (new(), Ask::Statfs, yes),
        (unlink(d, "f"), of(f), yes),
        (unlink(d, "f"), of(g), no),
        (unlink(d, "f"), lookup(e, "g"), no),
        (unlink(d, "f"), Ask::Doomed { after: None }, yes),
        (rename(site(d, "f"), site(e, "g"), RenameHow::Replace), of(g), yes),
        (rename(site(d, "f"), site(e, "g"), RenameHow::Replace), lookup(ROOT, "x"), no),
        (chmod(f, 0), of(f), yes),
        (chmod(f, 0), of(g), no),
        (chmod(f, 0), lookup(d, "f"), yes),
        (chmod(f, 0), lookup(e, "g"), no),
        (chmod(d, 0), lookup(d, "f"), yes),
        (chmod(f, 0), list(e, None, 9, false), no),
        (acl(), lookup(d, "f"), yes),
        (set_xattr(d, "user.a", b""), lookup(d, "f"), no),
        (set_xattr(d, "user.a", b""), Ask::ListXattrs { inode: d }, yes),
        (Change::Lend { inode: f, to: LentTo::Content }, of(f), yes),
        (Change::Lend { inode: f, to: LentTo::Content }, of(g), no),
        (Change::Settle, of(f), no),
        (Change::Settle, Ask::Locks { inode: f }, yes),
        (Change::Deleted { inode: f }, of(f), no),
        (expire(), of(f), no),
        (expire(), of(o), yes),
        (expire(), lookup(d, "f"), no),
        (expire(), Ask::Clients { after: None }, yes),
    ];
    for (change, ask, overlaps) in table {
        let op = Op { time: time(99), who: Who::root(), client: client(0), change };
        let query = Query { who: Who::root(), ask };
        assert_eq!(world.tree.overlaps(&op, &query), overlaps, "{op:?} {query:?}");
    }
}

#[test]
fn a_lookup_waits_for_the_end_of_the_orphan_it_is_in() {
    let Place { world, o, .. } = place();
    let query = Query { who: Who::root(), ask: Ask::Lookup { dir: o, name: name("x") } };
    for change in [Change::Release { inode: o, client: client(1) }, Change::Expire { client: client(1) }] {
        let op = Op { time: time(99), who: Who::root(), client: client(0), change };
        assert!(world.tree.overlaps(&op, &query), "{op:?}");
    }
}
