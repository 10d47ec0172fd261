//! Trees as they begin, and when they are empty.

use super::*;
use crate::{LentTo, Root, VolumeName};

#[test]
fn a_tree_is_planted_with_its_root_and_nothing_else() {
    let mut tree = Tree::bare(Memory::default());
    assert!(tree.is_empty() && tree.table().is_empty());
    assert_eq!(tree.name(), None);
    let name = VolumeName::parse("home").unwrap();
    tree.plant(at(7), &Root { time: time(5), uid: 10, gid: 20, mode: 0o10_750, name: name.clone() });
    assert_eq!(tree.name().as_deref(), Some(&name));
    let query = Query { who: Who::root(), ask: Ask::Attributes { inode: InodeId::ROOT } };
    let Ok(Answer::Attributes(root)) = tree.answer(&query) else { panic!("there is a root") };
    assert_eq!((root.uid, root.gid, root.mode, root.links), (10, 20, 0o750, 2));
    assert_eq!([root.atime, root.mtime, root.ctime, root.btime], [time(5); 4]);
    assert_eq!(tree.version(&Key::Inode(InodeId::ROOT)), Some(at(7)));
    assert!(tree.is_empty() && !tree.table().is_empty());
}

#[test]
fn what_has_no_name_keeps_a_tree_from_being_empty_until_its_data_is_gone() {
    let mut world = World::default();
    assert!(world.tree.is_empty());
    world.run(create(InodeId::ROOT, "a", file(), 0o644));
    assert!(!world.tree.is_empty());
    let (inode, holder) = (id(1), client(1));
    world.run(Change::Lend { inode, to: LentTo::Content });
    world.run(Change::Unlink { site: site(InodeId::ROOT, "a"), holders: vec![holder], removed: None });
    assert!(!world.tree.is_empty(), "it is an orphan");
    assert!(world.tree.doomed(9).is_empty());
    world.run(Change::Release { inode, client: holder });
    assert_eq!((world.tree.is_empty(), world.tree.doomed(9)), (false, vec![inode]));
    world.run(Change::Deleted { inode });
    assert!(world.tree.is_empty() && world.tree.doomed(9).is_empty());
}
