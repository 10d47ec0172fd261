//! Who may use which volume, and as whom: what its primary refuses, and what it makes of numbers.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{ClientId, ObjectId, WallTime};
use bytes::Bytes;
use namespace::{
    ACL_ACCESS, Answer as TreeAnswer, Ask, Attributes, Change as TreeChange, Done as TreeDone, InodeId, Lock,
    LockKind, LockMode, Make, Name, NameError, Op, Owner, Rights, Root, SetAttributes, Site, Stretch, Who,
    XattrHow, XattrName,
};
use node::file::{Answer, Change, Done, FileBody, FileError, FileReplyBody, Level, Query};
use node::{
    AccessError, Capability, CertificateId, ClusterMap, OpenMode, VolumeName, list_of_volumes, volume_object,
};

use crate::cluster::{Cluster, ms};
use crate::files::Daemons;

/// Who is connected: an operator and three clients.
pub(crate) const ADMIN: u64 = 1;
pub(crate) const BUILD: u64 = 2;
pub(crate) const READER: u64 = 3;
pub(crate) const STRANGER: u64 = 4;

/// The operator is believed, one client has other numbers than the volume, one reads, and one is not named.
const EXPORTS: &str = r#"
[[exports]]
volume = "*"
clients = ["admin/anna"]
access = "rw"
squash = "none"

[[exports]]
volume = "home"
clients = ["build"]
access = "rw"
map_uids = [{ from = 1000, to = 21000, count = 10 }, { from = 21000, to = 1000, count = 10 }]
map_gids = [{ from = 100, to = 20100, count = 10 }]

[[exports]]
volume = "home"
clients = ["reader"]
access = "ro"
squash = "all"
"#;

/// A volume and those who use it.
pub(crate) struct Story {
    pub(crate) cluster: Daemons,
    /// Its members, the primary first.
    pub(crate) members: Vec<u32>,
    numbers: BTreeMap<u64, u64>,
}

pub(crate) fn volume() -> ObjectId {
    volume_object(InodeId::ROOT)
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub(crate) fn user(uid: u32) -> Who {
    Who::new(uid, 100, &[]).unwrap()
}

pub(crate) fn create(dir: InodeId, text: &str, make: Make) -> TreeChange {
    TreeChange::Create {
        dir,
        name: name(text),
        make,
        mode: 0o777,
        umask: 0,
        is_exclusive: true,
        lends: false,
    }
}

fn plant(called: &str) -> Change {
    let name = VolumeName::parse(called).unwrap();
    Change::Plant(Root { time: WallTime::ZERO, uid: 0, gid: 0, mode: 0o777, name })
}

/// What was asked for, or why not.
pub(crate) fn outcome(reply: FileReplyBody) -> Result<(TreeDone, Option<Capability>), FileError> {
    match reply {
        FileReplyBody::Changed { outcome: Ok(Done::Tree(done)), opened, .. } => {
            Ok((*done, opened.map(|opened| *opened)))
        }
        FileReplyBody::Changed { outcome: Err(error), .. } | FileReplyBody::Refused(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

impl Story {
    /// A volume of this name under these rules.
    pub(crate) fn new(exports: &str, called: &str) -> Self {
        let mut cluster: Daemons = Cluster::stopped(3, 3, None);
        cluster.map = Arc::new(ClusterMap::parse(&(cluster.map.to_text() + exports)).unwrap());
        cluster.start_all();
        let roles = ["admin/anna", "client/build", "client/reader", "client/stranger"];
        for (client, role) in (1..).zip(roles) {
            cluster.client(client);
            let certificate = &mut cluster.clients.get_mut(&client).unwrap().certificate;
            (certificate.role, certificate.id.0[31]) = (role.parse().unwrap(), u8::try_from(client).unwrap());
        }
        let members = cluster.map.members(volume()).into_iter().map(|node| node.0).collect();
        let mut story = Self { cluster, members, numbers: BTreeMap::new() };
        assert_eq!(story.ask(ADMIN, FileBody::Create), FileReplyBody::Exists);
        let planted = story.change(ADMIN, plant(called));
        assert!(matches!(planted, FileReplyBody::Changed { outcome: Ok(_), .. }), "{planted:?}");
        story
    }

    /// The one that most of these stories are about.
    fn home() -> Self {
        Self::new(EXPORTS, "home")
    }

    pub(crate) fn ask_about(&mut self, client: u64, object: ObjectId, body: FileBody) -> FileReplyBody {
        let node = self.cluster.map.members(object).into_iter().map(|node| node.0);
        let node = node.into_iter().find(|node| self.cluster.daemons[node].shard.is_some()).unwrap();
        let id = self.cluster.ask_file(client, node, object, body);
        self.cluster.run(ms(50));
        self.cluster.file_reply(client, id).expect("there is a reply")
    }

    pub(crate) fn ask(&mut self, client: u64, body: FileBody) -> FileReplyBody {
        self.ask_about(client, volume(), body)
    }

    pub(crate) fn next(&mut self, client: u64, change: Change) -> FileBody {
        let number = self.numbers.entry(client).or_default();
        *number += 1;
        FileBody::Change { number: *number, settled: *number, level: Level::Written, under: None, change }
    }

    fn change(&mut self, client: u64, change: Change) -> FileReplyBody {
        let body = self.next(client, change);
        self.ask(client, body)
    }

    pub(crate) fn op(
        &mut self,
        client: u64,
        who: Who,
        change: TreeChange,
    ) -> Result<(TreeDone, Option<Capability>), FileError> {
        outcome(self.change(client, Change::Tree(Arc::new(Op::wanted(who, change)))))
    }

    /// What there is under a name afterwards, made by a user.
    pub(crate) fn made(
        &mut self,
        client: u64,
        uid: u32,
        change: TreeChange,
    ) -> (Attributes, Option<Capability>) {
        match self.op(client, user(uid), change).unwrap() {
            (TreeDone::Created { attributes, .. } | TreeDone::Changed { attributes }, opened) => {
                (attributes, opened)
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn query(&mut self, client: u64, who: Who, ask: Ask) -> Result<TreeAnswer, FileError> {
        let query = Query::Tree(Arc::new(namespace::Query { who, ask }));
        match self.ask(client, FileBody::Ask(query)) {
            FileReplyBody::Answer(Ok(Answer::Tree(answer))) => Ok(*answer),
            FileReplyBody::Answer(Err(error)) => Err(error),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn attributes(&mut self, client: u64, inode: InodeId) -> Attributes {
        match self.query(client, user(1), Ask::Attributes { inode }) {
            Ok(TreeAnswer::Attributes(attributes)) => attributes,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn open(
        &mut self,
        client: u64,
        (who, inode): (Who, InodeId),
        mode: OpenMode,
    ) -> Result<(Attributes, Capability), FileError> {
        opened(self.ask(client, FileBody::Open { who, inode, mode }))
    }

    pub(crate) fn renew(
        &mut self,
        client: u64,
        capability: Capability,
    ) -> Result<(Attributes, Capability), FileError> {
        opened(self.ask(client, FileBody::Renew { capability: Box::new(capability) }))
    }

    fn committed(&self) -> replication::Position {
        self.cluster.shard(self.members[0]).file(volume()).unwrap().tail()
    }
}

fn opened(reply: FileReplyBody) -> Result<(Attributes, Capability), FileError> {
    match reply {
        FileReplyBody::Opened { attributes, capability } => Ok((*attributes, *capability)),
        FileReplyBody::Refused(error) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn lookup(text: &str) -> Ask {
    Ask::Lookup { dir: InodeId::ROOT, name: name(text) }
}

#[test]
fn whom_no_rule_names_is_refused_whatever_it_asks() {
    let mut story = Story::home();
    let (file, capability) = story.made(ADMIN, 0, create(InodeId::ROOT, "f", Make::file()));
    let before = story.committed();
    let refused = FileError::Access(AccessError::NotExported);
    let made = story.op(STRANGER, Who::root(), create(InodeId::ROOT, "g", Make::Directory));
    assert_eq!(made, Err(refused));
    assert_eq!(story.query(STRANGER, Who::root(), lookup("f")), Err(refused));
    assert_eq!(story.query(STRANGER, Who::root(), Ask::Statfs), Err(refused));
    for mode in [OpenMode::Look, OpenMode::Read] {
        assert_eq!(story.open(STRANGER, (Who::root(), file.inode), mode), Err(refused));
    }
    assert_eq!(story.renew(STRANGER, capability.unwrap()), Err(refused));
    assert_eq!(story.committed(), before, "nothing of it became an entry");
}

#[test]
fn a_rule_is_about_the_name_that_the_volume_was_planted_under() {
    let mut story = Story::new(EXPORTS, "other");
    let refused = Err(FileError::Access(AccessError::NotExported));
    assert_eq!(story.query(BUILD, user(1), Ask::Statfs), refused);
    assert!(story.query(ADMIN, user(1), Ask::Statfs).is_ok());
}

#[test]
fn without_rules_everybody_is_believed() {
    let mut story = Story::new("", "home");
    let (made, _) = story.made(STRANGER, 0, create(InodeId::ROOT, "d", Make::Directory));
    assert_eq!((made.uid, made.gid), (0, 100));
    let removed = story.op(STRANGER, Who::root(), TreeChange::Limit { inodes_max: 2, bytes_max: 9 });
    assert!(removed.is_ok(), "and manages volumes, too");
}

#[test]
fn who_may_only_read_locks_and_changes_nothing() {
    let mut story = Story::home();
    let (file, _) = story.made(ADMIN, 0, create(InodeId::ROOT, "f", Make::file()));
    let (inode, refused) = (file.inode, FileError::Access(AccessError::ReadOnly));
    assert_eq!(story.op(READER, user(1), create(InodeId::ROOT, "g", Make::file())), Err(refused));
    let set = SetAttributes { mode: Some(0), ..SetAttributes::default() };
    assert_eq!(story.op(READER, user(1), TreeChange::SetAttributes { inode, set }), Err(refused));
    let writing = Ask::Access { inode, rights: Rights::WRITE };
    assert_eq!(story.query(READER, user(1), writing), Err(refused));
    assert_eq!(story.open(READER, (user(1), inode), OpenMode::ReadWrite).map(drop), Err(refused));
    let (_, capability) = story.open(READER, (user(1), inode), OpenMode::Read).unwrap();
    assert_eq!(capability.open.mode, OpenMode::Read);
    story.cluster.shown.insert(capability.open.file, Box::new(capability));
    let client = ClientId { certificate: 1, program: READER };
    let owner = Owner { client, number: 1 };
    let (kind, mode, stretch) = (LockKind::Fcntl, LockMode::Shared, Stretch::ALL);
    let lock = TreeChange::Lock { inode, lock: Lock { owner, kind, mode, stretch }, wait: false };
    assert!(matches!(story.op(READER, user(1), lock), Ok((TreeDone::Locked { .. }, None))));
    assert!(story.query(READER, user(1), lookup("f")).is_ok());
}

#[test]
fn who_is_squashed_is_nobody_in_particular() {
    let mut story = Story::home();
    let (made, _) = story.made(BUILD, 0, create(InodeId::ROOT, "d", Make::Directory));
    assert_eq!(made.uid, 65_534, "root is");
    let (dir, _) = story.made(ADMIN, 0, create(InodeId::ROOT, "roots", Make::Directory));
    let set = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    story.op(ADMIN, Who::root(), TreeChange::SetAttributes { inode: dir.inode, set }).unwrap();
    let denied = Err(FileError::Tree(NameError::Denied { inode: dir.inode }));
    assert_eq!(story.op(BUILD, Who::root(), create(dir.inode, "x", Make::Directory)), denied);
    let inside = Ask::Lookup { dir: dir.inode, name: name("x") };
    assert_eq!(story.query(BUILD, Who::root(), inside).map(drop), denied.map(drop));
}

#[test]
fn numbers_are_others_in_the_volume_and_come_back() {
    let mut story = Story::home();
    let create_f = create(InodeId::ROOT, "f", Make::file());
    let body = story.next(BUILD, Change::Tree(Arc::new(Op::wanted(user(1_001), create_f))));
    let (told, again) = (story.ask(BUILD, body.clone()), story.ask(BUILD, body));
    let [told, again] = [told, again].map(|told| outcome(told).unwrap());
    assert_eq!(told.0, again.0, "a reply that is repeated is shown alike");
    let TreeDone::Created { attributes, .. } = told.0 else { panic!("{told:?}") };
    assert_eq!((attributes.uid, attributes.gid), (1_001, 100));
    let inode = attributes.inode;
    let stored = story.attributes(ADMIN, inode);
    assert_eq!((stored.uid, stored.gid), (21_001, 20_100));
    assert_eq!(story.attributes(BUILD, inode), attributes);
    let list = Ask::List { dir: InodeId::ROOT, after: None, entries_max: 9, with_attributes: true };
    match story.query(BUILD, user(1), list) {
        Ok(TreeAnswer::Page(page)) => assert_eq!(page.entries[0].attributes.as_ref(), Some(&attributes)),
        other => panic!("{other:?}"),
    }
    let (shown, _) = story.open(BUILD, (user(1_001), inode), OpenMode::Read).unwrap();
    assert_eq!((shown.uid, shown.gid), (1_001, 100));
    let set = SetAttributes { uid: Some(1_001), gid: Some(100), ..SetAttributes::default() };
    let (kept, _) = story.made(BUILD, 1_001, TreeChange::SetAttributes { inode, set });
    assert_eq!((kept.uid, kept.gid), (1_001, 100), "a user gives it to itself");
    let set = SetAttributes { gid: Some(20_105), ..SetAttributes::default() };
    let refused = story.op(BUILD, user(1_001), TreeChange::SetAttributes { inode, set });
    assert_eq!(refused, Err(FileError::Access(AccessError::Nobody { id: 20_105 })));
}

/// The access ACL of a user, a group, and the mask.
fn acl(uid: u32, gid: u32) -> Bytes {
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    let nobody = u32::MAX;
    for (tag, id) in [(1_u16, nobody), (2, uid), (4, nobody), (8, gid), (16, nobody), (32, nobody)] {
        bytes.extend(tag.to_le_bytes());
        bytes.extend(6_u16.to_le_bytes());
        bytes.extend(id.to_le_bytes());
    }
    bytes.into()
}

#[test]
fn an_acl_names_whom_the_client_means() {
    let mut story = Story::home();
    let (file, _) = story.made(BUILD, 1_001, create(InodeId::ROOT, "f", Make::file()));
    let (inode, called) = (file.inode, || XattrName::new(ACL_ACCESS).unwrap());
    let set = |value| TreeChange::SetXattr { inode, name: called(), value, how: XattrHow::Any };
    story.made(BUILD, 1_001, set(acl(1_002, 105)));
    let mut value = |client| match story.query(client, Who::root(), Ask::GetXattr { inode, name: called() }) {
        Ok(TreeAnswer::Value(value)) => value,
        other => panic!("{other:?}"),
    };
    assert_eq!((value(ADMIN), value(BUILD)), (acl(21_002, 20_105), acl(1_002, 105)));
    let refused = story.op(BUILD, user(1_001), set(acl(1_002, 20_105)));
    assert_eq!(refused, Err(FileError::Access(AccessError::Nobody { id: 20_105 })));
    let broken = story.op(BUILD, user(1_001), set(Bytes::from_static(b"\x02\0\0\0x")));
    assert!(matches!(broken, Err(FileError::Tree(NameError::NotAcl(_)))), "{broken:?}");
    // Who has it by the ACL opens it.
    assert!(story.open(BUILD, (user(1_002), inode), OpenMode::ReadWrite).is_ok());
}

/// The ranges exchange numbers, so whoever is mapped twice is who it was.
#[test]
fn a_request_that_waits_for_a_primary_is_mapped_once() {
    let mut story = Story::home();
    story.made(ADMIN, 0, create(InodeId::ROOT, "before", Make::Directory));
    let (first, second) = (story.members[0], story.members[1]);
    story.cluster.kill_with_notice(first);
    let create_f = create(InodeId::ROOT, "f", Make::file());
    let body = story.next(BUILD, Change::Tree(Arc::new(Op::wanted(user(1_001), create_f))));
    let id = story.cluster.ask_file(BUILD, second, volume(), body);
    let question = FileBody::Open { who: user(1_001), inode: InodeId::ROOT, mode: OpenMode::Read };
    let other = story.cluster.ask_file(STRANGER, second, volume(), question);
    story.cluster.run(ms(500));
    let told = outcome(story.cluster.file_reply(BUILD, id).unwrap()).unwrap();
    let TreeDone::Created { attributes, .. } = told.0 else { panic!("{told:?}") };
    assert_eq!(attributes.uid, 1_001);
    assert_eq!(story.attributes(ADMIN, attributes.inode).uid, 21_001);
    let refused = FileReplyBody::Refused(AccessError::NotExported.into());
    assert_eq!(story.cluster.file_reply(STRANGER, other), Some(refused), "who waited is asked about, too");
}

#[test]
fn only_operators_make_and_take_away_volumes() {
    let mut story = Story::home();
    let refused = FileReplyBody::Refused(AccessError::OperatorsOnly.into());
    assert_eq!(story.change(BUILD, plant("mine")), refused);
    assert_eq!(story.change(BUILD, Change::Remove), refused);
    assert_eq!(story.ask_about(BUILD, volume_object(inode(2)), FileBody::Create), refused);
    // A volume that stands where none should is one all the same.
    let plain = node::object_named("x");
    assert_eq!(story.ask_about(ADMIN, plain, FileBody::Create), FileReplyBody::Exists);
    let planted = story.next(ADMIN, plant("home"));
    story.ask_about(ADMIN, plain, planted);
    let remove = story.next(BUILD, Change::Remove);
    assert_eq!(story.ask_about(BUILD, plain, remove), refused);
    let remove = story.next(ADMIN, Change::Remove);
    let removed = story.ask_about(ADMIN, plain, remove);
    assert!(matches!(removed, FileReplyBody::Changed { outcome: Ok(_), .. }), "{removed:?}");
}

fn inode(number: u64) -> InodeId {
    InodeId { number, ..InodeId::ROOT }
}

#[test]
fn the_list_of_volumes_is_read_by_all_and_changed_by_operators() {
    let mut story = Story::home();
    let list = list_of_volumes();
    assert_eq!(story.ask_about(ADMIN, list, FileBody::Create), FileReplyBody::Exists);
    let planted = story.next(ADMIN, plant("volumes"));
    story.ask_about(ADMIN, list, planted);
    let entry =
        || Change::Tree(Arc::new(Op::wanted(Who::root(), create(InodeId::ROOT, "home", Make::Directory))));
    let refused = story.next(BUILD, entry());
    let refused = story.ask_about(BUILD, list, refused);
    assert_eq!(refused, FileReplyBody::Refused(AccessError::OperatorsOnly.into()));
    let made = story.next(ADMIN, entry());
    let made = story.ask_about(ADMIN, list, made);
    assert!(outcome(made).is_ok());
    let query = namespace::Query { who: Who::root(), ask: lookup("home") };
    let read = story.ask_about(STRANGER, list, FileBody::Ask(Query::Tree(Arc::new(query))));
    assert!(matches!(read, FileReplyBody::Answer(Ok(_))), "{read:?}");
    let query = namespace::Query { who: Who::root(), ask: Ask::Clients { after: None } };
    let read = story.ask_about(STRANGER, list, FileBody::Ask(Query::Tree(Arc::new(query))));
    assert_eq!(read, FileReplyBody::Answer(Err(FileError::NotForClients)));
}

#[test]
fn a_session_is_known_by_its_own_certificate() {
    let mut story = Story::home();
    let (_, capability) = story.made(ADMIN, 0, create(InodeId::ROOT, "f", Make::file()));
    let CertificateId(id) = capability.unwrap().open.certificate;
    assert_eq!((id[0], id[31]), (1, 1));
}

#[test]
fn nobody_is_told_anything_of_a_volume_that_was_taken_away() {
    let mut story = Story::home();
    let asked = story.next(ADMIN, Change::Remove);
    assert!(matches!(story.ask(ADMIN, asked), FileReplyBody::Changed { outcome: Ok(_), .. }));
    for client in [ADMIN, BUILD, STRANGER] {
        assert_eq!(story.query(client, Who::root(), Ask::Statfs), Err(FileError::Removed));
        let site = Site::new(InodeId::ROOT, name("f"));
        let unlink = TreeChange::Unlink { site, holders: Vec::new(), removed: None };
        assert_eq!(story.op(client, Who::root(), unlink), Err(FileError::Removed));
    }
}
