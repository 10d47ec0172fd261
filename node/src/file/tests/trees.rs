//! A file that is a volume's tree.

use namespace::{
    Answer as TreeAnswer, Ask, Change as TreeChange, Done as TreeDone, InodeId, Make, Name, NameError,
    Op as TreeOp, Query as TreeQuery, Root, Site, VolumeName, Who,
};

use super::*;

fn root() -> Root {
    let name = VolumeName::parse("home").unwrap();
    Root { time: WallTime::ZERO, uid: 7, gid: 8, mode: 0o750, name }
}

fn name(name: &str) -> Name {
    Name::new(name.as_bytes()).unwrap()
}

fn tree(change: TreeChange) -> Change {
    let client = base::ClientId { certificate: 1, program: 1 };
    Change::Tree(Arc::new(TreeOp { time: time(5), who: Who::root(), client, change }))
}

fn directory(called: &str) -> Change {
    let (dir, name, make) = (InodeId::ROOT, name(called), Make::Directory);
    tree(TreeChange::Create { dir, name, make, mode: 0o755, umask: 0, is_exclusive: true, lends: false })
}

fn without(called: &str) -> Change {
    tree(TreeChange::RemoveDirectory { site: Site::new(InodeId::ROOT, name(called)), holders: Vec::new() })
}

fn lookup(called: &str) -> Query {
    let ask = Ask::Lookup { dir: InodeId::ROOT, name: name(called) };
    Query::Tree(Arc::new(TreeQuery { who: Who::root(), ask }))
}

fn planted() -> History {
    let mut history = History::default();
    assert!(matches!(history.change(Change::Plant(root())), Ok(Done::Changed { .. })));
    history
}

#[test]
fn a_tree_is_planted_once_with_its_root() {
    let mut history = planted();
    history.change(directory("a")).unwrap();
    let before = history.file.clone();
    assert_eq!(history.change(Change::Plant(Root { uid: 9, ..root() })), Err(FileError::IsTree));
    assert_eq!(history.file, before, "what is there stays");
    let ask = Ask::Attributes { inode: InodeId::ROOT };
    match history.file.answer(&Query::Tree(Arc::new(TreeQuery { who: Who::root(), ask }))) {
        Ok(Answer::Tree(answer)) => match *answer {
            TreeAnswer::Attributes(root) => {
                assert_eq!((root.uid, root.gid, root.mode, root.btime), (7, 8, 0o750, time(1)));
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

#[test]
fn bytes_and_names_are_not_in_one_file() {
    let mut history = planted();
    for change in [
        Change::Write { offset: 0, data: Payload::from(bytes(1, 1)) },
        Change::Append { data: Payload::from(bytes(1, 1)) },
        Change::Truncate { size: 3 },
        Change::Punch { offset: 0, length: 3 },
        Change::Touch { modified: None },
    ] {
        assert_eq!(history.change(change.clone()), Err(FileError::IsTree), "{change:?}");
    }
    assert_eq!(
        history.file.answer(&Query::Read { offset: 0, length: 1, under: None }),
        Err(FileError::IsTree)
    );
    let mut file = History::default();
    assert_eq!(file.change(directory("a")), Err(FileError::NoTree));
    assert_eq!(file.file.answer(&lookup("a")), Err(FileError::NoTree));
    file.write(0, b"x");
    assert_eq!(file.change(Change::Plant(root())), Err(FileError::IsFile));
}

#[test]
fn what_a_tree_refuses_changes_nothing() {
    let mut history = planted();
    let made = history.change(directory("a"));
    assert!(matches!(made, Ok(Done::Tree(done)) if matches!(*done, TreeDone::Created { is_new: true, .. })));
    let before = history.file.clone();
    assert!(matches!(history.change(directory("a")), Err(FileError::Tree(NameError::Exists { .. }))));
    assert_eq!(history.file, before);
}

#[test]
fn a_removed_tree_is_gone_with_all_its_parts() {
    let mut history = planted();
    history.change(directory("a")).unwrap();
    let parts = history.file.take_changed().tree;
    let before = history.file.clone();
    assert_eq!(history.change(Change::Remove), Err(FileError::NotEmpty));
    assert_eq!(history.file, before);
    history.change(without("a")).unwrap();
    history.change(Change::Remove).unwrap();
    assert_eq!(history.file.answer(&lookup("a")), Err(FileError::Removed));
    assert_eq!(all_versions(&history.file).len(), 1, "the mark that it was");
    let touched = history.file.take_changed();
    assert_eq!((touched.is_new, touched.tree), (false, parts), "and on disk, too");
    history.change(Change::Begin).unwrap();
    assert_eq!(history.file.answer(&lookup("a")), Err(FileError::NoTree));
}

#[test]
fn parts_of_a_tree_are_transferred_as_far_as_they_differ() {
    let mut history = planted();
    for called in ["a", "b", "c"] {
        history.change(directory(called)).unwrap();
    }
    let mut behind = history.file.clone();
    history.change(without("b")).unwrap();
    history.change(directory("d")).unwrap();
    // The new inode, its entry, the root and the counts of the volume.
    assert_eq!(transfer(&history.file, &mut behind), 4);
    assert_eq!(behind, history.file);
    let mut fresh = File::default();
    transfer(&history.file, &mut fresh);
    assert_eq!(fresh, history.file);
    transfer(&File::default(), &mut fresh);
    assert_eq!(fresh, File::default());
}

#[test]
fn what_was_changed_of_a_tree_is_taken_once_and_again_if_it_was_not_kept() {
    let mut history = planted();
    history.change(directory("a")).unwrap();
    let touched = history.file.take_changed();
    // The new inode, its entry, the root, the counts of the volume, and its name.
    assert_eq!(touched.tree.len(), 5);
    assert!(history.file.take_changed().tree.is_empty());
    history.file.note_changed(touched.clone());
    assert_eq!(history.file.take_changed(), touched);
    let names = touched.tree.into_iter().map(|key| {
        let (at, part) = history.file.name(&key).unwrap();
        (key, at, part)
    });
    let mut kept = File::kept(history.file.attributes(), [], names);
    assert_eq!(kept, history.file);
    assert!(kept.take_changed().tree.is_empty(), "it is on disk already");
}

#[test]
fn a_question_waits_for_what_may_change_its_answer() {
    let history = planted();
    let op = |change| Op { time: time(9), under: None, change };
    let overlaps = |change, query: &Query| history.file.overlaps(&op(change), query);
    assert!(overlaps(directory("a"), &lookup("a")));
    assert!(!overlaps(directory("b"), &lookup("a")));
    assert!(!overlaps(directory("a"), &Query::Stat));
    assert!(overlaps(Change::Plant(root()), &lookup("a")) && overlaps(Change::Remove, &lookup("a")));
}

#[test]
fn what_lets_a_tree_grow_takes_space_and_the_rest_does_not() {
    assert!(directory("a").takes_space() && !without("a").takes_space());
    assert!(directory("a").data_bytes() > 0, "it is carried all the same");
}
