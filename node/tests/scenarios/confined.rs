//! Clients to whom a directory of a volume is exported, and what they try to reach beyond it.

use std::sync::Arc;

use base::ClientId;
use bytes::Bytes;
use namespace::{
    Answer as TreeAnswer, Ask, Change as TreeChange, Done as TreeDone, InodeId, Lock, LockKind, LockMode,
    Make, NameError, Op, Owner, RenameHow, Rights, SetAttributes, Site, Stretch, Ticket, Who, XattrHow,
    XattrName,
};
use node::file::{Change, FileError};
use node::{AccessError, KeyEpoch, OpenMode, Proof};

use crate::access::{ADMIN, BUILD, READER, STRANGER, Story, create, name, outcome, user};
use crate::cluster::ms;

/// Two clients with the same directory, and one with another that is not there.
const EXPORTS: &str = r#"
[[exports]]
volume = "*"
clients = ["admin/anna"]
access = "rw"
squash = "none"

[[exports]]
volume = "home"
clients = ["build", "reader"]
path = "/srv/guests"
access = "rw"
squash = "none"

[[exports]]
volume = "home"
clients = ["stranger"]
path = "/srv/later"
access = "rw"
squash = "none"
"#;

const OUTSIDE: FileError = FileError::Access(AccessError::Outside);

/// The volume, and what is in it.
struct Place {
    story: Story,
    srv: InodeId,
    guests: InodeId,
    /// In it: a directory in it, and a file.
    inside: InodeId,
    file: InodeId,
    /// Beside it: a directory, and a file in that.
    other: InodeId,
    secret: InodeId,
}

impl Place {
    fn new() -> Self {
        let mut story = Story::new(EXPORTS, "home");
        let mut make = |dir, text, make| story.made(ADMIN, 0, create(dir, text, make)).0.inode;
        let srv = make(InodeId::ROOT, "srv", Make::Directory);
        let guests = make(srv, "guests", Make::Directory);
        let inside = make(guests, "inside", Make::Directory);
        let file = make(inside, "file", Make::file());
        let other = make(srv, "other", Make::Directory);
        let secret = make(other, "secret", Make::file());
        Self { story, srv, guests, inside, file, other, secret }
    }

    fn lookup(&mut self, client: u64, dir: InodeId, text: &str) -> Result<InodeId, FileError> {
        match self.story.query(client, user(0), Ask::Lookup { dir, name: name(text) })? {
            TreeAnswer::Attributes(attributes) => Ok(attributes.inode),
            other => panic!("{other:?}"),
        }
    }

    fn try_op(&mut self, client: u64, change: TreeChange) -> Result<TreeDone, FileError> {
        self.story.op(client, user(0), change).map(|(done, _)| done)
    }

    fn ask(&mut self, client: u64, ask: Ask) -> Result<TreeAnswer, FileError> {
        self.story.query(client, user(0), ask)
    }

    /// What a client shows for an inode from now on.
    fn shows(&mut self, client: u64, inode: InodeId, proof: Option<Proof>) {
        let proofs = &mut self.story.cluster.clients.get_mut(&client).unwrap().proofs;
        proofs.remove(&inode);
        proofs.extend(proof.map(|proof| (inode, proof)));
    }

    fn shown(&self, client: u64, inode: InodeId) -> Option<Proof> {
        self.story.cluster.clients[&client].proofs.get(&inode).copied()
    }
}

fn site(dir: InodeId, text: &str) -> Site {
    Site::new(dir, name(text))
}

fn rename(from: Site, to: Site) -> TreeChange {
    TreeChange::Rename { from, to, how: RenameHow::Replace, holders: Vec::new() }
}

/// Everything that names an inode which may be anything.
fn changes_of(inode: InodeId) -> Vec<TreeChange> {
    let owner = Owner { client: ClientId { certificate: 1, program: BUILD }, number: 1 };
    let (kind, stretch) = (LockKind::Flock, Stretch::ALL);
    let lock = Lock { owner, kind, mode: LockMode::Shared, stretch };
    let called = || XattrName::new(b"user.a").unwrap();
    let ticket = Ticket(namespace::Born::default());
    vec![
        TreeChange::Link { inode, dir: InodeId::ROOT, name: name("link") },
        TreeChange::SetAttributes { inode, set: SetAttributes::default() },
        TreeChange::SetXattr { inode, name: called(), value: Bytes::from_static(b"x"), how: XattrHow::Any },
        TreeChange::RemoveXattr { inode, name: called() },
        TreeChange::Lock { inode, lock, wait: false },
        TreeChange::Unlock { inode, owner, kind, stretch },
        TreeChange::Cancel { inode, ticket },
    ]
}

/// Nobody locks what he has not opened, and opens what is outside.
const fn unreached(change: &TreeChange) -> FileError {
    match change {
        TreeChange::Lock { .. } => FileError::Access(AccessError::NotOpen),
        _ => OUTSIDE,
    }
}

fn questions_about(inode: InodeId) -> Vec<Ask> {
    let owner = Owner { client: ClientId { certificate: 1, program: BUILD }, number: 1 };
    let lock = Lock { owner, kind: LockKind::Flock, mode: LockMode::Shared, stretch: Stretch::ALL };
    vec![
        Ask::Attributes { inode },
        Ask::Readlink { inode },
        Ask::GetXattr { inode, name: XattrName::new(b"user.a").unwrap() },
        Ask::ListXattrs { inode },
        Ask::Access { inode, rights: Rights::READ },
        Ask::TestLock { inode, lock },
    ]
}

/// Everything that names a directory.
fn changes_in(dir: InodeId) -> Vec<TreeChange> {
    let (root, holders) = (InodeId::ROOT, Vec::new);
    vec![
        create(dir, "new", Make::Directory),
        TreeChange::Unlink { site: site(dir, "secret"), holders: holders(), removed: None },
        TreeChange::RemoveDirectory { site: site(dir, "secret"), holders: holders() },
        rename(site(dir, "secret"), site(root, "mine")),
        rename(site(root, "inside"), site(dir, "theirs")),
    ]
}

#[test]
fn the_exported_directory_is_the_root() {
    let mut place = Place::new();
    assert_eq!(place.lookup(BUILD, InodeId::ROOT, "inside"), Ok(place.inside));
    assert_eq!(place.lookup(BUILD, place.guests, "inside"), Ok(place.inside), "by its own id, too");
    let missing = Err(FileError::Tree(NameError::NoEntry { dir: InodeId::ROOT }));
    assert_eq!(place.lookup(BUILD, InodeId::ROOT, "srv"), missing);
    assert_eq!(place.story.attributes(BUILD, InodeId::ROOT).inode, InodeId::ROOT);
    let guests = place.guests;
    assert_eq!(place.story.attributes(BUILD, guests).inode, InodeId::ROOT, "it has one name only");
    assert_eq!(place.story.attributes(ADMIN, guests).inode, guests);
    let set = SetAttributes { mode: Some(0o751), ..SetAttributes::default() };
    let (changed, _) = place.story.made(BUILD, 0, TreeChange::SetAttributes { inode: InodeId::ROOT, set });
    assert_eq!((changed.inode, changed.mode), (InodeId::ROOT, 0o751));
    assert_eq!(place.story.attributes(ADMIN, guests).mode, 0o751);
    let (made, _) = place.story.made(BUILD, 0, create(InodeId::ROOT, "new", Make::Directory));
    assert_eq!(place.lookup(ADMIN, guests, "new"), Ok(made.inode));
    let moved = place.try_op(BUILD, rename(site(InodeId::ROOT, "new"), site(place.inside, "newer")));
    assert!(moved.is_ok(), "{moved:?}");
}

#[test]
fn no_directory_outside_is_reached() {
    let mut place = Place::new();
    for dir in [place.other, place.srv] {
        for change in changes_in(dir) {
            assert_eq!(place.try_op(BUILD, change.clone()), Err(unreached(&change)), "{change:?}");
        }
        assert_eq!(place.lookup(BUILD, dir, "secret"), Err(OUTSIDE));
        let list = Ask::List { dir, after: None, entries_max: 9, with_attributes: true };
        assert_eq!(place.ask(BUILD, list), Err(OUTSIDE));
        for change in changes_of(dir) {
            assert_eq!(place.try_op(BUILD, change.clone()), Err(unreached(&change)), "{change:?}");
        }
        for ask in questions_about(dir) {
            assert_eq!(place.ask(BUILD, ask.clone()), Err(OUTSIDE), "{ask:?}");
        }
    }
    let nothing = InodeId { number: 999, ..InodeId::ROOT };
    assert_eq!(place.lookup(BUILD, nothing, "x"), Err(OUTSIDE), "whether there is one is not told");
    assert_eq!(place.ask(BUILD, Ask::Attributes { inode: nothing }), Err(OUTSIDE));
}

#[test]
fn a_file_is_reached_by_whoever_has_found_it() {
    let mut place = Place::new();
    for inode in [place.secret, place.file] {
        for change in changes_of(inode) {
            assert_eq!(place.try_op(BUILD, change.clone()), Err(unreached(&change)), "{change:?}");
        }
        for ask in questions_about(inode) {
            assert_eq!(place.ask(BUILD, ask.clone()), Err(OUTSIDE), "{ask:?}");
        }
        for mode in [OpenMode::Look, OpenMode::Read] {
            assert_eq!(place.story.open(BUILD, (user(0), inode), mode), Err(OUTSIDE), "{mode:?}");
        }
    }
    let (inside, file, secret) = (place.inside, place.file, place.secret);
    assert_eq!(place.lookup(BUILD, inside, "file"), Ok(file));
    for change in changes_of(file) {
        assert_ne!(place.try_op(BUILD, change.clone()), Err(OUTSIDE), "{change:?}");
    }
    for ask in questions_about(file) {
        assert_ne!(place.ask(BUILD, ask.clone()), Err(OUTSIDE), "{ask:?}");
    }
    let (_, capability) = place.story.open(BUILD, (user(0), file), OpenMode::ReadWrite).unwrap();
    let proof = place.shown(BUILD, file).unwrap();
    place.shows(BUILD, file, None);
    assert!(place.story.renew(BUILD, capability).is_ok(), "a capability is a proof of its own");

    let forged = Proof::new(proof.epoch, [0; 16]);
    for (client, inode, proof) in [
        (BUILD, file, None),
        (BUILD, file, Some(forged)),
        (BUILD, file, Some(Proof::new(KeyEpoch(9), *proof.as_bytes()))),
        (BUILD, secret, Some(proof)),
        (READER, file, Some(proof)),
    ] {
        place.shows(client, inode, proof);
        assert_eq!(place.ask(client, Ask::Attributes { inode }), Err(OUTSIDE), "{client} shows {proof:?}");
    }
    place.shows(BUILD, file, Some(proof));
    assert!(place.ask(BUILD, Ask::Attributes { inode: file }).is_ok());
}

#[test]
fn whatever_tells_of_a_file_proves_it() {
    let mut place = Place::new();
    let (inside, file) = (place.inside, place.file);
    for with_attributes in [false, true] {
        place.shows(BUILD, file, None);
        let ask = Ask::List { dir: inside, after: None, entries_max: 9, with_attributes };
        assert!(place.ask(BUILD, ask).is_ok());
        assert!(place.shown(BUILD, file).is_some());
    }
    let (made, _) = place.story.made(BUILD, 0, create(InodeId::ROOT, "pipe", Make::Fifo));
    assert!(place.shown(BUILD, made.inode).is_some());
    let list = Ask::List { dir: InodeId::ROOT, after: None, entries_max: 9, with_attributes: true };
    assert!(place.ask(BUILD, list).is_ok());
    assert!(
        place.ask(BUILD, Ask::Attributes { inode: made.inode }).is_ok(),
        "of those in a page each has its own"
    );
    assert_eq!(place.shown(BUILD, inside), None, "directories need none");
    place.lookup(ADMIN, inside, "file").unwrap();
    assert_eq!(place.shown(ADMIN, file), None, "and who is not confined does not, either");
    // It is good wherever the volume is led.
    place.story.cluster.kill_with_notice(place.story.members[0]);
    assert!(place.ask(BUILD, Ask::Attributes { inode: file }).is_ok());
}

#[test]
fn a_directory_that_is_moved_away_is_out_of_reach() {
    let mut place = Place::new();
    let (inside, file) = (place.inside, place.file);
    place.lookup(BUILD, inside, "file").unwrap();
    let make = create(inside, "made", Make::Directory);
    let body = place.story.next(BUILD, Change::Tree(Arc::new(Op::wanted(Who::root(), make))));
    let told = outcome(place.story.ask(BUILD, body.clone())).unwrap();
    place.try_op(ADMIN, rename(site(place.guests, "inside"), site(place.other, "inside"))).unwrap();
    assert_eq!(place.lookup(BUILD, inside, "file"), Err(OUTSIDE));
    assert_eq!(place.try_op(BUILD, create(inside, "more", Make::Directory)), Err(OUTSIDE));
    assert!(place.ask(BUILD, Ask::Attributes { inode: file }).is_ok(), "a file was found before");
    let again = outcome(place.story.ask(BUILD, body));
    assert_eq!(again, Ok(told), "what took effect before is told, and not refused");
    place.try_op(ADMIN, rename(site(place.other, "inside"), site(place.guests, "inside"))).unwrap();
    assert_eq!(place.lookup(BUILD, inside, "file"), Ok(file));
}

#[test]
fn a_directory_that_is_not_there_exports_nothing_until_it_is() {
    let mut place = Place::new();
    let missing = Err(FileError::Access(AccessError::NoExportPath));
    assert_eq!(place.ask(STRANGER, Ask::Attributes { inode: InodeId::ROOT }), missing);
    let (guests, srv) = (place.guests, place.srv);
    assert_eq!(place.ask(STRANGER, Ask::Attributes { inode: guests }), missing);
    place.story.made(ADMIN, 0, create(srv, "later", Make::file()));
    assert_eq!(place.ask(STRANGER, Ask::Attributes { inode: InodeId::ROOT }), missing, "it is no directory");
    let unlink = TreeChange::Unlink { site: site(srv, "later"), holders: Vec::new(), removed: None };
    place.try_op(ADMIN, unlink).unwrap();
    place.story.made(ADMIN, 0, create(srv, "later", Make::Directory));
    assert_eq!(place.story.attributes(STRANGER, InodeId::ROOT).inode, InodeId::ROOT);
}

#[test]
fn without_keys_a_confined_client_reaches_directories_only() {
    let mut place = Place::new();
    place.story.cluster.configure = |config| config.capability_keys = None;
    for node in place.story.members.clone() {
        place.story.cluster.kill(node);
    }
    for node in place.story.members.clone() {
        place.story.cluster.start(node);
    }
    place.story.cluster.run(ms(6_000));
    let (inside, file) = (place.inside, place.file);
    assert_eq!(place.lookup(BUILD, inside, "file"), Ok(file));
    let refused = Err(FileError::Access(AccessError::NoKeys));
    assert_eq!(place.ask(BUILD, Ask::Attributes { inode: file }), refused);
}

#[test]
fn a_refusal_names_the_root_as_the_client_does() {
    let mut place = Place::new();
    let dir = InodeId::ROOT;
    let absent = FileError::Tree(NameError::NoEntry { dir });
    assert_eq!(place.lookup(BUILD, dir, "absent"), Err(absent));
    let unlink = TreeChange::Unlink { site: site(dir, "absent"), holders: Vec::new(), removed: None };
    assert_eq!(place.try_op(BUILD, unlink), Err(absent));
    let is_directory = FileError::Tree(NameError::IsDirectory { inode: dir });
    assert_eq!(place.story.open(BUILD, (user(0), dir), OpenMode::Look).map(drop), Err(is_directory));
    let (inside, absent) = (place.inside, FileError::Tree(NameError::NoEntry { dir: place.inside }));
    assert_eq!(place.lookup(BUILD, inside, "absent"), Err(absent), "others are called what they are");
}
