//! What a client knows of files that it has created by itself.

use base::Members;

use super::*;

/// A directory that this client has made, and which is lent to it.
const OWN: InodeId = inode(3);

const fn lent() -> Lent {
    let generation = Generation(Born { epoch: Epoch { number: 1, node: NODE }, seq: Seq(3) });
    Lent { generation, to: LentTo::Client(ClientId { certificate: 1, program: 1 }) }
}

fn own() -> Attributes {
    Attributes { lent: Some(lent()), mtime: WallTime::from_micros(50), ..attributes(OWN, 0o755) }
}

fn file(number: u64) -> Attributes {
    let inode = InodeId::under(lent().generation, number).unwrap();
    let (kind, btime) = (Kind::File, WallTime::from_micros(100 * number));
    Attributes { kind, btime, lent: Some(lent()), ..attributes(inode, 0o644) }
}

fn enter(text: &str, number: u64) -> Op {
    let (dir, under, replicas) = (OWN, lent().generation, Members::new([NODE]).unwrap());
    let (mode, created) = (0o644, file(number).btime);
    op(Change::Enter { dir, under, number, name: name(text), replicas, mode, created })
}

/// When that is removed.
const REMOVED: WallTime = WallTime::from_micros(700);

fn leave() -> Op {
    let site = Site::new(OWN, name("a")).naming(file(1).inode);
    op(Change::Unlink { site, holders: vec![], removed: Some(REMOVED) })
}

impl Story {
    /// It has made a directory.
    fn owning(kind: GrantKind) -> Self {
        let mut story = Self::new();
        let id = story.cache.begin(VOLUME, &create("own"));
        let mut told = story.grant(&[OWN]);
        told.grant.as_mut().unwrap().kind = kind;
        let done = Done::Created { attributes: own(), is_new: true };
        story.cache.end(id, &op(create("own")), (&told, Some(&done)));
        story
    }

    fn free(&self, now: u64, text: &str) -> bool {
        self.cache.free_in(at(now), VOLUME, &self.who, (OWN, &name(text))).is_some()
    }

    fn enter(&mut self, text: &str, number: u64) -> ChangeId {
        self.cache.enter(VOLUME, &enter(text, number), &file(number))
    }

    fn entered(&mut self, id: ChangeId, (text, number): (&str, u64), granted: &[InodeId]) {
        let mut told = self.grant(granted);
        told.grant.as_mut().unwrap().kind = GrantKind::Placed;
        let done = Done::Created { attributes: file(number), is_new: true };
        self.cache.end(id, &enter(text, number), (&told, Some(&done)));
    }

    /// It has created a file, which is entered.
    fn with_file() -> Self {
        let mut story = Self::owning(GrantKind::Placed);
        let id = story.enter("a", 1);
        story.at = 11;
        story.entered(id, ("a", 1), &[file(1).inode]);
        story
    }

    fn leave(&mut self) -> ChangeId {
        self.cache.leave(VOLUME, &Site::new(OWN, name("a")), (file(1).inode, REMOVED))
    }

    /// A daemon has removed it, after which the directory was like this.
    fn left(&mut self, id: ChangeId, dir: Attributes) {
        let mut told = self.grant(&[OWN]);
        told.grant.as_mut().unwrap().kind = GrantKind::Placed;
        told.grant.as_mut().unwrap().changed = vec![dir];
        let done = Done::Removed { inode: file(1).inode, fate: Fate::Doomed };
        self.cache.end(id, &leave(), (&told, Some(&done)));
    }

    fn is(&mut self, inode: InodeId) -> Option<Attributes> {
        self.cache.attributes(at(1), VOLUME, inode)
    }

    fn finds(&mut self, text: &str) -> Option<bool> {
        self.knows(1, &Ask::Lookup { dir: OWN, name: name(text) }).map(|answer| answer.is_ok())
    }
}

#[test]
fn a_file_is_created_where_its_client_knows_all_names_and_may() {
    let mut story = Story::owning(GrantKind::Placed);
    assert!(story.free(999, "a"));
    assert!(!story.free(1_000, "a"), "the session may be over");
    assert!(!Story::owning(GrantKind::Shared).free(1, "a"), "the daemon judges there");
    story.enter("a", 1);
    assert!(!story.free(1, "a") && story.free(1, "b"));
    story.who = Who::new(1, 1, &[]).unwrap();
    assert!(!story.free(1, "b"), "nobody has said that this one may");
    let mut story = Story::owning(GrantKind::Placed);
    let id = story.cache.begin(VOLUME, &chmod(OWN));
    assert!(!story.free(1, "a"));
    story.cache.abandon(id);
    let mut story = Story::owning(GrantKind::Placed);
    story.revoke(OWN);
    assert!(!story.free(1, "a"), "somebody wants it");
}

#[test]
fn what_was_created_is_there_at_once_and_its_directory_is_as_it_will_be() {
    let mut story = Story::owning(GrantKind::Placed);
    let [first, second] = [("a", 2), ("b", 1)].map(|(text, number)| story.enter(text, number));
    assert_eq!([story.finds("a"), story.finds("b"), story.finds("c")], [Some(true), Some(true), Some(false)]);
    assert_eq!(story.is(file(2).inode), Some(file(2)));
    let later = WallTime::from_micros(200);
    let expected = Attributes { size: 2, mtime: later, ctime: later, ..own() };
    assert_eq!(story.is(OWN), Some(expected.clone()), "whichever is entered first");
    story.at = 11;
    story.entered(second, ("b", 1), &[file(1).inode]);
    story.at = 12;
    story.entered(first, ("a", 2), &[file(2).inode]);
    assert_eq!(story.is(OWN), Some(expected));
    assert_eq!((story.finds("a"), story.is(file(1).inode)), (Some(true), Some(file(1))));
}

#[test]
fn what_a_daemon_says_of_a_directory_before_all_is_entered_is_not_kept() {
    let mut story = Story::owning(GrantKind::Placed);
    let id = story.enter("a", 1);
    story.told(&Ask::Attributes { inode: OWN }, Ok(own()));
    assert_eq!(story.is(OWN), None, "it does not know of the file");
    story.at = 12;
    story.entered(id, ("a", 1), &[file(1).inode]);
    story.at = 11;
    story.told(&Ask::Attributes { inode: OWN }, Ok(own()));
    assert_eq!(story.is(OWN), None, "it did not");
    story.at = 12;
    story.told(&Ask::Attributes { inode: OWN }, Ok(own()));
    assert!(story.is(OWN).is_some());
}

#[test]
fn a_file_of_which_nothing_is_granted_is_asked_for() {
    let mut story = Story::owning(GrantKind::Placed);
    let id = story.enter("a", 1);
    story.at = 11;
    story.entered(id, ("a", 1), &[]);
    assert_eq!(story.is(file(1).inode), None);
}

#[test]
fn a_file_that_is_refused_was_never_there() {
    let mut story = Story::owning(GrantKind::Placed);
    let id = story.enter("a", 1);
    let told = story.grant(&[]);
    story.cache.end(id, &enter("a", 1), (&told, None));
    assert_eq!((story.finds("a"), story.is(file(1).inode), story.is(OWN)), (None, None, None));
}

#[test]
fn what_was_removed_is_gone_at_once_and_its_directory_is_as_it_will_be() {
    let mut story = Story::with_file();
    let id = story.leave();
    assert_eq!((story.finds("a"), story.is(file(1).inode)), (Some(false), None));
    assert!(!story.free(1, "a"), "a new file of that name waits");
    let expected = Attributes { size: 0, mtime: REMOVED, ctime: REMOVED, ..own() };
    assert_eq!(story.is(OWN), Some(expected.clone()));
    story.at = 12;
    story.left(id, expected.clone());
    assert_eq!((story.is(OWN), story.finds("a")), (Some(expected), Some(false)));
    assert!(story.free(1, "a"));
}

#[test]
fn what_was_removed_before_it_was_entered_is_not_there_when_it_is() {
    let mut story = Story::owning(GrantKind::Placed);
    let created = story.enter("a", 1);
    let removed = story.leave();
    story.at = 11;
    story.entered(created, ("a", 1), &[file(1).inode]);
    assert_eq!((story.finds("a"), story.is(file(1).inode), story.free(1, "a")), (Some(false), None, false));
    let expected = Attributes { size: 0, mtime: REMOVED, ctime: REMOVED, ..own() };
    assert_eq!(story.is(OWN), Some(expected.clone()));
    story.at = 12;
    story.left(removed, expected.clone());
    assert_eq!((story.finds("a"), story.is(OWN), story.free(1, "a")), (Some(false), Some(expected), true));
}

#[test]
fn what_was_removed_and_never_entered_is_not_known() {
    let mut story = Story::owning(GrantKind::Placed);
    let created = story.enter("a", 1);
    let removed = story.leave();
    let told = story.grant(&[]);
    story.cache.end(created, &enter("a", 1), (&told, None));
    story.cache.abandon(removed);
    assert_eq!((story.finds("a"), story.is(file(1).inode), story.is(OWN)), (None, None, None));
    assert!(!story.free(1, "a"));
}

#[test]
fn a_directory_is_asked_about_if_its_daemon_says_that_something_was_removed_before() {
    let mut story = Story::with_file();
    let id = story.leave();
    story.at = 12;
    let before = WallTime::from_micros(699);
    story.left(id, Attributes { size: 0, mtime: before, ctime: before, ..own() });
    assert_eq!((story.is(OWN), story.finds("a")), (None, Some(false)));
}

#[test]
fn what_could_not_be_removed_may_be_there() {
    let mut story = Story::with_file();
    let id = story.leave();
    let told = story.grant(&[]);
    story.cache.end(id, &leave(), (&told, None));
    assert_eq!((story.finds("a"), story.is(file(1).inode), story.is(OWN)), (None, None, None));
}
