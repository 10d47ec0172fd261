//! Rows of trees.

use std::ops::Bound;

use namespace::{
    Change as TreeChange, Entry, InodeId, Kind, Make, Memory, Name, Op, Root, Site, Table, Tree, Who,
    XattrHow, XattrName,
};

use super::*;

/// The parts of a tree, by their keys.
type Names = BTreeMap<NameKey, (Position, NamePart)>;

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

/// A tree after some changes, each an entry.
fn tree(changes: &[TreeChange]) -> Names {
    let born = |seq: u64| namespace::Born { epoch: at(seq).epoch, seq: Seq(seq) };
    let mut tree = Tree::bare(Memory::default());
    let name = node::VolumeName::parse("home").unwrap();
    tree.plant(born(1), &Root { time: WallTime::ZERO, uid: 0, gid: 0, mode: 0o755, name });
    for (seq, change) in (2..).zip(changes) {
        tree.apply(born(seq), &Op::wanted(Who::root(), change.clone())).unwrap();
    }
    let page = tree.table().page(Bound::Unbounded, 1_000).into_iter();
    page.map(|(key, at, part)| (key, (Position { epoch: at.epoch, seq: at.seq }, part))).collect()
}

fn make(text: &str) -> TreeChange {
    let (dir, name, make) = (InodeId::ROOT, name(text), Make::Directory);
    TreeChange::Create { dir, name, make, mode: 0o755, umask: 0, is_exclusive: true, lends: false }
}

fn remove(text: &str) -> TreeChange {
    TreeChange::RemoveDirectory { site: Site::new(InodeId::ROOT, name(text)), holders: Vec::new() }
}

fn set_xattr(length: usize) -> TreeChange {
    let (name, value) = (XattrName::new(b"user.a").unwrap(), vec![7; length].into());
    TreeChange::SetXattr { inode: InodeId::ROOT, name, value, how: XattrHow::Any }
}

/// What makes one tree of another.
fn difference(before: &Names, after: &Names) -> Vec<(NameKey, Option<(Position, NamePart)>)> {
    let keys: BTreeSet<_> = before.keys().chain(after.keys()).cloned().collect();
    let changed = keys.into_iter().filter(|key| before.get(key) != after.get(key));
    changed.map(|key| (key.clone(), after.get(&key).cloned())).collect()
}

fn put(contents: &Contents, number: u64, is_new: bool, names: Vec<(NameKey, Option<(Position, NamePart)>)>) {
    let changes = FileChanges { names, ..changes(is_new, 0, Vec::new()) };
    contents.put(vec![taken(number, 1, changes)], 1).unwrap();
}

/// The tree that a start finds.
fn kept(found: &FoundFiles, number: u64) -> Names {
    let (_, file) = found.files[&object(number)].kept.clone().unwrap().0.into_parts();
    let page = file.tree().table().page(Bound::Unbounded, 1_000).into_iter();
    page.map(|(key, at, part)| (key, (Position { epoch: at.epoch, seq: at.seq }, part))).collect()
}

#[test]
fn a_tree_is_found_as_it_was_put() {
    let media = FakeMedia::default();
    let (contents, _) = open(&media);
    let first = tree(&[make("a"), make("b"), set_xattr(60_000)]);
    put(&contents, 1, true, difference(&Names::new(), &first));
    let other = tree(&[make("c")]);
    put(&contents, 2, true, difference(&Names::new(), &other));
    let found = open(&media).1;
    assert_eq!((kept(&found, 1), kept(&found, 2)), (first.clone(), other.clone()), "each its own");
    assert!(found.files.values().all(|file| file.unreadable.is_empty()));
    let second = tree(&[make("a"), make("b"), set_xattr(60_000), remove("a"), set_xattr(9)]);
    let changed = difference(&first, &second);
    assert!(changed.iter().any(|(_, part)| part.is_none()) && changed.len() < first.len());
    put(&contents, 1, false, changed);
    let found = open(&media).1;
    assert_eq!((kept(&found, 1), kept(&found, 2)), (second, other), "what is gone does not come back");
}

#[test]
fn a_file_that_begins_anew_has_nothing_of_the_tree_before() {
    let media = FakeMedia::default();
    let (contents, _) = open(&media);
    put(&contents, 1, true, difference(&Names::new(), &tree(&[make("a"), make("b")])));
    let again = tree(&[make("b")]);
    put(&contents, 1, true, difference(&Names::new(), &again));
    assert_eq!(kept(&open(&media).1, 1), again);
    let gone = FileChanges { head: None, is_new: true, chunks: vec![], names: vec![], last_write: 0 };
    contents.put(vec![taken(1, 2, gone)], 2).unwrap();
    assert!(open(&media).1.files.is_empty());
    let mut rows = 0;
    let mut count = |_: &[u8], _: &[u8]| {
        rows += 1;
        ControlFlow::Continue(())
    };
    contents.index.scan(Key::FIRST, Key::END, &mut count).unwrap();
    assert_eq!(rows, 1, "the mark alone is left");
}

#[test]
fn a_row_of_a_tree_that_cannot_be_read_costs_that_part() {
    let media = FakeMedia::default();
    let (contents, _) = open(&media);
    let all = tree(&[make("a"), make("b"), make("c")]);
    put(&contents, 1, true, difference(&Names::new(), &all));
    let entry = |text: &str| NameKey::Entry(InodeId::ROOT, name(text));
    let row = |text: &str| Key::Name(object(1), entry(text)).to_bytes();
    let mut spoilt = contents.index.get(&row("a")).unwrap().unwrap();
    *spoilt.first_mut().unwrap() ^= 1;
    // What is one name's is not taken for another's.
    let moved = contents.index.get(&row("b")).unwrap().unwrap();
    contents.index.commit(&[Change::Put(row("a"), spoilt), Change::Put(row("c"), moved)]).unwrap();
    let found = open(&media).1;
    assert_eq!(found.files[&object(1)].unreadable, [Part::Tree(entry("a")), Part::Tree(entry("c"))]);
    let mut rest = all;
    rest.retain(|key, _| *key != entry("a") && *key != entry("c"));
    assert_eq!(kept(&found, 1), rest);
}

/// A power cut at any call leaves all of what a checkpoint changes in a tree, or nothing.
#[test]
fn a_power_cut_leaves_a_tree_of_one_checkpoint() {
    let (mut before, mut after) = (0, 0);
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let media = FakeMedia::default();
        let (contents, _) = open(&media);
        let first = tree(&[make("a"), make("b"), set_xattr(9_000)]);
        put(&contents, 1, true, difference(&Names::new(), &first));
        let second = tree(&[make("a"), make("b"), set_xattr(9_000), remove("b"), make("c"), set_xattr(5)]);
        media.fail_after(usize::try_from(random.below(25)).unwrap(), io::ErrorKind::Other);
        let changes = FileChanges { names: difference(&first, &second), ..changes(false, 0, Vec::new()) };
        let is_put = contents.put(vec![taken(1, 2, changes)], 2).is_ok();
        let media = media.after_power_cut(&mut random);
        let found = kept(&open(&media).1, 1);
        assert!(found == second || found == first && !is_put, "seed {seed}, put: {is_put}: {found:?}");
        before += usize::from(found == first);
        after += usize::from(found == second);
    }
    assert!(before > 20 && after > 20, "{before} {after}");
}

/// Keys whose rows are read in the order of the keys, whatever else is in the index.
#[test]
fn rows_of_trees_are_in_the_order_of_their_keys() {
    let texts = ["", "a", "a\u{1}", "aa", "b", "ä"];
    let keys = texts.iter().filter(|text| !text.is_empty()).map(|text| {
        let key = NameKey::Entry(InodeId::ROOT, name(text));
        let entry = Entry { inode: InodeId::ROOT, kind: Kind::Directory };
        (key, Some((at(3), NamePart::Entry(entry))))
    });
    let media = FakeMedia::default();
    let (contents, _) = open(&media);
    put(&contents, 1, true, keys.rev().collect());
    let [_, (from, to)] = Key::of_file(object(1));
    let mut found = Vec::new();
    let mut see = |key: &[u8], _: &[u8]| {
        found.push(Key::parse(key).unwrap());
        ControlFlow::Continue(())
    };
    contents.index.scan(&from, &to, &mut see).unwrap();
    let names = found.into_iter().map(|key| match key {
        Key::Name(_, NameKey::Entry(_, name)) => String::from_utf8(name.as_bytes().to_vec()).unwrap(),
        other => panic!("{other:?}"),
    });
    assert_eq!(names.collect::<Vec<_>>(), texts[1..]);
}
