//! Files that are opened: what the primary of their volume gives out, and to whom.

use std::sync::Arc;

use namespace::{
    Change as TreeChange, Done as TreeDone, Fate, InodeId, Make, NameError, Op, SetAttributes, Site, Who,
};
use node::file::{Change, FileBody, FileError, FileReplyBody};
use node::{
    AccessError, CAPABILITY_LASTS, Capability, CapabilityError, CapabilityKey, CapabilityKeys, ClusterMap,
    KeyEpoch, Open, OpenMode, file_object,
};

use crate::access::{ADMIN, BUILD, Story, create, name, outcome, user, volume};
use crate::cluster::{keys, ms};

const EXPORTS: &str = r#"
[[exports]]
volume = "*"
clients = ["*"]
access = "rw"
squash = "none"
"#;

fn story() -> Story {
    Story::new(EXPORTS, "home")
}

fn with_mode(inode: InodeId, mode: u16) -> TreeChange {
    TreeChange::SetAttributes { inode, set: SetAttributes { mode: Some(mode), ..SetAttributes::default() } }
}

/// Whether the daemons would take a capability for what it says.
fn is_good(story: &Story, capability: &Capability) -> bool {
    let now = story.cluster.clock(story.members[0]);
    keys().check(capability, &capability.open, now).is_ok()
}

#[test]
fn a_file_is_opened_by_whoever_may_do_that_with_it() {
    let mut story = story();
    let (file, _) = story.made(ADMIN, 5, create(InodeId::ROOT, "f", Make::file()));
    let inode = file.inode;
    story.made(ADMIN, 5, with_mode(inode, 0o640));
    let (attributes, capability) = story.open(BUILD, (user(5), inode), OpenMode::ReadWrite).unwrap();
    assert_eq!((attributes.inode, attributes.mode), (inode, 0o640));
    assert!(is_good(&story, &capability));
    let certificate = story.cluster.clients[&BUILD].certificate.id;
    let open = Open { file: file_object(volume(), inode), mode: OpenMode::ReadWrite, certificate };
    assert_eq!((capability.open, capability.source.inode), (open, inode));
    assert_eq!((capability.source.lend, file.lent), (None, None), "nobody has written to it");
    let denied = Err(FileError::Tree(NameError::Denied { inode }));
    assert!(story.open(BUILD, (user(6), inode), OpenMode::Read).is_ok(), "its group reads");
    assert_eq!(story.open(BUILD, (user(6), inode), OpenMode::ReadWrite).map(drop), denied);
    let other = Who::new(6, 6, &[]).unwrap();
    assert_eq!(story.open(BUILD, (other, inode), OpenMode::Read).map(drop), denied);
    story.made(ADMIN, 5, with_mode(inode, 0o200));
    assert_eq!(story.open(BUILD, (user(5), inode), OpenMode::ReadWrite).map(drop), denied, "it reads, too");
    let (_, looking) = story.open(BUILD, (user(6), inode), OpenMode::Look).unwrap();
    assert_eq!(looking.open.mode, OpenMode::Look, "how long it is may ask who may not read it");
}

#[test]
fn only_files_are_opened() {
    let mut story = story();
    let (dir, _) = story.made(ADMIN, 0, create(InodeId::ROOT, "d", Make::Directory));
    let (pipe, opened) = story.made(ADMIN, 0, create(InodeId::ROOT, "p", Make::Fifo));
    assert_eq!(opened, None);
    let mut told = |inode| story.open(ADMIN, (Who::root(), inode), OpenMode::Read).map(drop);
    assert_eq!(told(dir.inode), Err(NameError::IsDirectory { inode: dir.inode }.into()));
    assert_eq!(told(pipe.inode), Err(NameError::WrongKind { inode: pipe.inode }.into()));
    let inode = InodeId { number: 999, ..InodeId::ROOT };
    assert_eq!(told(inode), Err(NameError::NoInode { inode }.into()));
}

#[test]
fn who_creates_a_file_has_it_open_whatever_its_mode_says() {
    let mut story = story();
    let make = |is_exclusive| TreeChange::Create {
        dir: InodeId::ROOT,
        name: name("f"),
        make: Make::file(),
        mode: 0,
        umask: 0,
        is_exclusive,
        lends: false,
    };
    let body = story.next(BUILD, Change::Tree(Arc::new(Op::wanted(user(5), make(true)))));
    let (_, first) = outcome(story.ask(BUILD, body.clone())).unwrap();
    let first = first.expect("it is open");
    assert_eq!(first.open.mode, OpenMode::ReadWrite);
    assert!(is_good(&story, &first));
    let (done, again) = outcome(story.ask(BUILD, body.clone())).unwrap();
    assert!(is_good(&story, &again.expect("a reply that is repeated opens it, too")));
    let TreeDone::Created { attributes, is_new: true } = done else { panic!("{done:?}") };
    assert_eq!(again.unwrap().source.inode, attributes.inode);
    let (done, found) = story.op(ADMIN, user(5), make(false)).unwrap();
    assert!(matches!(done, TreeDone::Created { is_new: false, .. }) && found.is_none(), "it was there");
    story.cluster.kill_with_notice(story.members[0]);
    let (_, elsewhere) = outcome(story.ask(BUILD, body.clone())).unwrap();
    assert!(is_good(&story, &elsewhere.expect("whoever repeats it")));
    let unlink =
        TreeChange::Unlink { site: Site::new(InodeId::ROOT, name("f")), holders: Vec::new(), removed: None };
    let (done, _) = story.op(ADMIN, Who::root(), unlink).unwrap();
    assert_eq!(done, TreeDone::Removed { inode: attributes.inode, fate: Fate::Gone });
    assert_eq!(outcome(story.ask(BUILD, body)).unwrap().1, None, "nothing is there to be opened");
}

#[test]
fn what_is_open_stays_open_as_long_as_it_is_renewed() {
    let mut story = story();
    let (file, opened) = story.made(BUILD, 5, create(InodeId::ROOT, "f", Make::file()));
    let (inode, mut capability) = (file.inode, opened.unwrap());
    story.made(ADMIN, 0, with_mode(InodeId::ROOT, 0o777));
    story.op(ADMIN, Who::root(), with_mode(inode, 0)).unwrap();
    let denied = Err(FileError::Tree(NameError::Denied { inode }));
    assert_eq!(story.open(BUILD, (user(5), inode), OpenMode::Read).map(drop), denied);
    for _ in 0..3 {
        story.cluster.run(CAPABILITY_LASTS / 2);
        let (attributes, renewed) = story.renew(BUILD, capability).unwrap();
        assert_eq!(attributes.mode, 0);
        assert_eq!(renewed.open, capability.open);
        assert!(renewed.expires > capability.expires);
        capability = renewed;
    }
    story.cluster.run(CAPABILITY_LASTS + ms(1_000));
    assert!(!is_good(&story, &capability));
    capability = story.renew(BUILD, capability).unwrap().1;
    assert!(is_good(&story, &capability), "it was not for long");
    story.cluster.run(CAPABILITY_LASTS * 2);
    let told = story.renew(BUILD, capability);
    assert!(matches!(told, Err(FileError::Capability(CapabilityError::Expired { .. }))), "{told:?}");
}

#[test]
fn nothing_else_is_renewed() {
    let mut story = story();
    let (file, opened) = story.made(BUILD, 5, create(InodeId::ROOT, "f", Make::file()));
    let capability = opened.unwrap();
    let forged = FileError::Capability(CapabilityError::Forged);
    let later = Capability { expires: capability.expires + ms(1), ..capability };
    assert_eq!(story.renew(BUILD, later), Err(forged));
    let made_up = CapabilityKeys::parse(&CapabilityKey::new([8; 32]).line(KeyEpoch(1), None)).unwrap();
    let open = (capability.open.certificate, OpenMode::ReadWrite);
    let now = story.cluster.clock(story.members[0]);
    let made_up = made_up.issue(capability.source, open, capability.expires, now);
    assert_eq!(story.renew(BUILD, made_up), Err(forged));
    let foreign = FileError::Capability(CapabilityError::ForeignClient);
    assert_eq!(story.renew(ADMIN, capability), Err(foreign));
    let unlink =
        TreeChange::Unlink { site: Site::new(InodeId::ROOT, name("f")), holders: Vec::new(), removed: None };
    story.op(ADMIN, Who::root(), unlink).unwrap();
    let gone = NameError::NoInode { inode: file.inode };
    assert_eq!(story.renew(BUILD, capability), Err(gone.into()));
}

#[test]
fn a_daemon_without_keys_opens_nothing_and_serves_the_rest() {
    let mut story = story();
    let (file, opened) = story.made(BUILD, 5, create(InodeId::ROOT, "f", Make::file()));
    story.cluster.configure = |config| config.capability_keys = None;
    for node in story.members.clone() {
        story.cluster.kill(node);
    }
    for node in story.members.clone() {
        story.cluster.start(node);
    }
    story.cluster.run(ms(6_000));
    let refused = FileError::Access(AccessError::NoKeys);
    assert_eq!(story.open(BUILD, (user(5), file.inode), OpenMode::Read), Err(refused));
    assert_eq!(story.renew(BUILD, opened.unwrap()), Err(refused));
    let (_, opened) = story.made(BUILD, 5, create(InodeId::ROOT, "g", Make::file()));
    assert_eq!(opened, None);
}

#[test]
fn what_is_no_volume_opens_nothing() {
    let mut story = story();
    let plain = node::object_named("x");
    assert_eq!(story.ask_about(ADMIN, plain, FileBody::Create), FileReplyBody::Exists);
    let (who, inode) = (Who::root(), InodeId::ROOT);
    let told = story.ask_about(ADMIN, plain, FileBody::Open { who, inode, mode: OpenMode::Read });
    assert_eq!(told, FileReplyBody::Refused(FileError::NoTree));
}

/// Permissions count when a file is opened. What the rules say counts as long as they say it.
#[test]
fn what_the_rules_forbid_by_now_is_not_renewed() {
    let mut story = story();
    let (file, opened) = story.made(BUILD, 5, create(InodeId::ROOT, "f", Make::file()));
    let (_, reading) = story.open(BUILD, (user(5), file.inode), OpenMode::Read).unwrap();
    let map = story.cluster.map.to_text().replace("access = \"rw\"", "access = \"ro\"");
    for node in story.members.clone() {
        story.cluster.kill(node);
    }
    story.cluster.map = Arc::new(ClusterMap::parse(&map).unwrap());
    for node in story.members.clone() {
        story.cluster.start(node);
    }
    story.cluster.run(ms(6_000));
    let refused = FileError::Access(AccessError::ReadOnly);
    assert_eq!(story.renew(BUILD, opened.unwrap()), Err(refused));
    assert!(story.renew(BUILD, reading).is_ok());
}
