//! Volumes: directory trees that are replicated as files are.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use base::{ClientId, ObjectId, WallTime};
use bytes::Bytes;
use namespace::{
    Answer as TreeAnswer, Ask, Attributes, Change as TreeChange, Done as TreeDone, InodeId, LentTo, Make,
    Name, NameError, Op, Root, Site, Who,
};
use node::file::{Answer, Change, Done, File, FileBody, FileError, FileReplyBody, Level, Query};
use node::{Bug, VolumeName, file_object};
use replication::Message;

use crate::cluster::{Flying, ms};
use crate::files::{Daemons, FILE, Writer, created, created_with};
use crate::lends::fill;

pub(crate) fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub(crate) fn op(change: TreeChange) -> Change {
    Change::Tree(Arc::new(Op::wanted(Who::root(), change)))
}

pub(crate) fn make(text: &str, make: Make) -> Change {
    let (dir, name) = (InodeId::ROOT, name(text));
    op(TreeChange::Create { dir, name, make, mode: 0o755, umask: 0, is_exclusive: true, lends: false })
}

/// Three daemons, a volume with its primary, the first, and somebody who changes it.
pub(crate) fn planted(bug: Option<Bug>) -> (Daemons, Vec<u32>, Writer) {
    plant(created(bug))
}

pub(crate) fn plant((mut cluster, members): (Daemons, Vec<u32>)) -> (Daemons, Vec<u32>, Writer) {
    let mut writer = Writer { number: 0 };
    let name = VolumeName::parse("home").unwrap();
    let root = Root { time: WallTime::ZERO, uid: 0, gid: 0, mode: 0o755, name };
    writer.must(&mut cluster, members[0], Change::Plant(root));
    (cluster, members, writer)
}

pub(crate) fn ask(cluster: &mut Daemons, node: u32, ask: Ask) -> Option<FileReplyBody> {
    ask_as(cluster, (1, node), ask)
}

fn ask_as(cluster: &mut Daemons, (client, node): (u64, u32), ask: Ask) -> Option<FileReplyBody> {
    let query = namespace::Query { who: Who::root(), ask };
    let id = cluster.ask_file(client, node, FILE, FileBody::Ask(Query::Tree(Arc::new(query))));
    cluster.run(ms(20));
    cluster.file_reply(client, id)
}

pub(crate) fn lookup(cluster: &mut Daemons, node: u32, text: &str) -> Result<Attributes, FileError> {
    lookup_as(cluster, (1, node), text)
}

pub(crate) fn lookup_as(
    cluster: &mut Daemons,
    asking: (u64, u32),
    text: &str,
) -> Result<Attributes, FileError> {
    match ask_as(cluster, asking, Ask::Lookup { dir: InodeId::ROOT, name: name(text) }) {
        Some(FileReplyBody::Answer(Ok(Answer::Tree(answer)))) => match *answer {
            TreeAnswer::Attributes(attributes) => Ok(attributes),
            other => panic!("{other:?}"),
        },
        Some(FileReplyBody::Answer(Err(error))) => Err(error),
        other => panic!("{other:?}"),
    }
}

pub(crate) fn outcome(told: Option<FileReplyBody>) -> Result<TreeDone, FileError> {
    match told {
        Some(FileReplyBody::Changed { outcome: Ok(Done::Tree(done)), .. }) => Ok(*done),
        Some(FileReplyBody::Changed { outcome: Err(error), .. }) => Err(error),
        other => panic!("{other:?}"),
    }
}

fn are_alike(cluster: &Daemons, one: u32, other: u32) -> bool {
    let [one, other] = [one, other].map(|node| cluster.shard(node).file(FILE).unwrap().machine());
    one == other && !one.tree().is_empty()
}

#[test]
fn a_volume_survives_its_primary_and_who_was_away_is_told() {
    let (mut cluster, members, mut writer) = planted(None);
    writer.must(&mut cluster, members[0], make("a", Make::Directory));
    cluster.kill_with_notice(members[0]);
    assert!(lookup(&mut cluster, members[1], "a").is_ok());
    writer.must(&mut cluster, members[1], make("b", Make::Directory));
    cluster.start(members[0]);
    cluster.run(ms(3_000));
    assert!(are_alike(&cluster, members[0], members[1]));
}

/// Its log does not go back far enough, so it is given the parts that differ, and what is gone is taken away.
#[test]
fn who_was_away_for_long_takes_over_the_parts_that_differ() {
    let few = |config: &mut node::ShardConfig| {
        let replication = Arc::make_mut(&mut config.replication);
        (replication.kept_max, replication.kept_lending_max) = (2, 2);
    };
    let (mut cluster, members, mut writer) = plant(created_with(None, few));
    writer.must(&mut cluster, members[0], make("gone", Make::Directory));
    cluster.run(ms(100));
    cluster.kill(members[2]);
    for number in 0..40 {
        writer.must(&mut cluster, members[0], make(&format!("d{number}"), Make::Directory));
    }
    let site = Site::new(InodeId::ROOT, name("gone"));
    writer.must(&mut cluster, members[0], op(TreeChange::RemoveDirectory { site, holders: Vec::new() }));
    cluster.start(members[2]);
    cluster.run(ms(6_000));
    assert!(are_alike(&cluster, members[0], members[2]));
}

#[test]
fn a_creation_that_is_sent_again_takes_effect_once() {
    let (mut cluster, members, _) = planted(None);
    let create = || FileBody::Change {
        number: 2,
        settled: 2,
        level: Level::Written,
        under: None,
        change: make("f", Make::file()),
    };
    let first = cluster.ask_file(1, members[0], FILE, create());
    let told = outcome(cluster.file_reply(1, first)).unwrap();
    cluster.kill_with_notice(members[0]);
    let again = cluster.ask_file(1, members[1], FILE, create());
    cluster.run(ms(100));
    assert_eq!(outcome(cluster.file_reply(1, again)), Ok(told), "and it is the same inode");
}

#[test]
fn what_a_client_says_of_time_of_itself_and_of_replicas_is_not_taken() {
    let (mut cluster, members, mut writer) = planted(None);
    let before = cluster.clock(members[0]);
    let wrong = Op {
        time: WallTime::from_micros(1),
        client: ClientId { certificate: 9, program: 9 },
        ..Op::wanted(
            Who::root(),
            TreeChange::Create {
                dir: InodeId::ROOT,
                name: name("f"),
                make: Make::file(),
                mode: 0o644,
                umask: 0,
                is_exclusive: true,
                lends: false,
            },
        )
    };
    let told = writer.change(&mut cluster, members[0], Change::Tree(Arc::new(wrong)));
    let Ok(TreeDone::Created { attributes, .. }) = outcome(told) else { panic!("it is free") };
    assert!(attributes.btime >= before);
    let object: ObjectId = file_object(FILE, attributes.inode);
    assert_eq!(attributes.replicas, Some(cluster.map.view(object).members.clone()));
    // Nobody has it open, whoever says so.
    let site = Site::new(InodeId::ROOT, name("f"));
    let holders = vec![ClientId { certificate: 9, program: 9 }];
    let told =
        writer.change(&mut cluster, members[0], op(TreeChange::Unlink { site, holders, removed: None }));
    let fate = namespace::Fate::Gone;
    assert_eq!(outcome(told), Ok(TreeDone::Removed { inode: attributes.inode, fate }));
}

/// The primary dies before all of it is.
#[test]
fn what_is_doomed_is_deleted_whoever_leads() {
    let (mut cluster, members, mut writer) = planted(None);
    for number in 0..100 {
        let text = format!("f{number}");
        writer.must(&mut cluster, members[0], make(&text, Make::file()));
        fill(&mut cluster, members[0], 1, &text);
    }
    cluster.run(ms(200));
    for number in 0..100 {
        let site = Site::new(InodeId::ROOT, name(&format!("f{number}")));
        let unlink = op(TreeChange::Unlink { site, holders: Vec::new(), removed: None });
        writer.must(&mut cluster, members[0], unlink);
        if number == 50 {
            assert!(!cluster.shard(members[0]).file(FILE).unwrap().machine().tree().is_empty());
            cluster.kill_with_notice(members[0]);
            assert!(lookup(&mut cluster, members[1], "f99").is_ok());
            cluster.start(members[0]);
            break;
        }
    }
    cluster.run(ms(1_000));
    let doomed =
        |cluster: &Daemons| cluster.shard(members[1]).file(FILE).unwrap().machine().tree().doomed(100);
    assert!(doomed(&cluster).is_empty());
    for number in 51..100 {
        let site = Site::new(InodeId::ROOT, name(&format!("f{number}")));
        let unlink = op(TreeChange::Unlink { site, holders: Vec::new(), removed: None });
        writer.must(&mut cluster, members[1], unlink);
    }
    cluster.run(ms(200));
    assert!(doomed(&cluster).is_empty());
    writer.must(&mut cluster, members[1], Change::Remove);
}

#[test]
fn what_is_doomed_at_about_the_same_time_is_deleted_together() {
    let (mut cluster, members, mut writer) = planted(None);
    for number in 0..20 {
        let text = format!("f{number}");
        writer.must(&mut cluster, members[0], make(&text, Make::file()));
        fill(&mut cluster, members[0], 1, &text);
    }
    cluster.run(ms(2_000));
    let asked = Rc::new(Cell::new(0));
    let (count, is_sync) = (Rc::clone(&asked), of_volume(|message| matches!(message, Message::Sync { .. })));
    cluster.hold_back(move |flying| {
        count.set(count.get() + u32::from(is_sync(flying)));
        false
    });
    for number in 0..20 {
        writer.must(&mut cluster, members[0], unlink(&format!("f{number}")));
    }
    assert!(has_doomed(&cluster, members[0]), "it waits for more");
    cluster.run(ms(500));
    assert!(!has_doomed(&cluster, members[0]));
    assert!((1..=2).contains(&asked.get()), "each other member is asked once: {}", asked.get());
}

/// Some change by a client, with its number, until there is room for that client; whether there was.
fn changes(cluster: &mut Daemons, (client, number): (u64, u64), node: u32, change: &Change) -> bool {
    for _ in 0..5 {
        let change = change.clone();
        let body = FileBody::Change { number, settled: number, level: Level::Written, under: None, change };
        let id = cluster.ask_file(client, node, FILE, body);
        if matches!(cluster.file_reply(client, id), Some(FileReplyBody::Changed { outcome: Ok(_), .. })) {
            return true;
        }
        cluster.run(ms(100));
    }
    false
}

fn unlink(text: &str) -> Change {
    op(TreeChange::Unlink { site: Site::new(InodeId::ROOT, name(text)), holders: Vec::new(), removed: None })
}

/// A volume that knows two clients at a time, and ends those that were silent for two seconds.
fn crowded() -> (Daemons, u32, Writer) {
    let few = |config: &mut node::ShardConfig| {
        let replication = replication::Config { clients_max: 2, ..(*config.replication).clone() };
        (config.replication, config.client_silent) = (replication.into(), ms(2_000));
    };
    let (mut cluster, members, writer) = plant(created_with(None, few));
    (2..=3).for_each(|client| cluster.client(client));
    (cluster, members[0], writer)
}

fn has_doomed(cluster: &Daemons, node: u32) -> bool {
    !cluster.shard(node).file(FILE).unwrap().machine().tree().doomed(1).is_empty()
}

/// A primary deletes as a client of its own, which was silent for as long as nothing was unlinked.
#[test]
fn a_daemon_that_deleted_something_is_not_over_for_the_volume() {
    let (mut cluster, first, mut writer) = crowded();
    writer.must(&mut cluster, first, make("f", Make::file()));
    fill(&mut cluster, first, 1, "f");
    let told = outcome(writer.change(&mut cluster, first, unlink("f")));
    assert!(matches!(told, Ok(TreeDone::Removed { fate: namespace::Fate::Doomed, .. })));
    cluster.run(ms(200));
    assert!(!has_doomed(&cluster, first));
    cluster.disconnect(1, first);
    cluster.run(ms(5_000));
    assert!(changes(&mut cluster, (2, 1), first, &make("g", Make::file())), "the first client makes room");
    assert!(!changes(&mut cluster, (3, 1), first, &make("h", Make::file())), "and nobody else does");
    fill(&mut cluster, first, 2, "g");
    assert!(changes(&mut cluster, (2, 2), first, &unlink("g")));
    cluster.run(ms(1_000));
    assert!(!has_doomed(&cluster, first));
}

#[test]
fn a_daemon_that_lends_something_makes_room_for_itself() {
    let (mut cluster, first, mut writer) = crowded();
    writer.must(&mut cluster, first, make("f", Make::file()));
    assert!(changes(&mut cluster, (2, 1), first, &make("g", Make::file())));
    cluster.disconnect(1, first);
    cluster.run(ms(5_000));
    fill(&mut cluster, first, 2, "g");
    assert!(lookup_as(&mut cluster, (2, first), "g").unwrap().lent.is_some());
}

/// The volume knows the client and the daemon that has lent. The next primary is another daemon.
#[test]
fn a_daemon_that_has_something_to_delete_makes_room_for_itself() {
    let (mut cluster, first, mut writer) = crowded();
    let second = cluster.map.members(FILE)[1].0;
    writer.must(&mut cluster, first, make("f", Make::file()));
    fill(&mut cluster, first, 1, "f");
    cluster.run(ms(1_500));
    cluster.hold_back(|flying| matches!(flying, Flying::Errand { .. } | Flying::ErrandReply { .. }));
    cluster.disconnect(1, second);
    writer.must(&mut cluster, first, unlink("f"));
    cluster.kill_with_notice(first);
    cluster.held.clear();
    cluster.let_go();
    let absent = NameError::NoEntry { dir: InodeId::ROOT };
    assert_eq!(lookup_as(&mut cluster, (2, second), "f"), Err(absent.into()));
    cluster.run(ms(5_000));
    assert!(!has_doomed(&cluster, second));
}

/// Two files are gone at once, and the volume has room for one entry at a time.
#[test]
fn what_there_was_no_room_to_delete_is_deleted_when_there_is() {
    let narrow = |config: &mut node::ShardConfig| {
        config.replication =
            replication::Config { uncommitted_max: 1, ..(*config.replication).clone() }.into();
    };
    let (mut cluster, members, mut writer) = plant(created_with(None, narrow));
    let first = members[0];
    for text in ["f", "g"] {
        writer.must(&mut cluster, first, make(text, Make::file()));
        cluster.run(ms(500));
        fill(&mut cluster, first, 1, text);
        cluster.run(ms(1_500));
    }
    cluster.hold_back(of_volume(|message| matches!(message, Message::Synced { .. })));
    for text in ["f", "g"] {
        writer.must(&mut cluster, first, unlink(text));
    }
    cluster.run(ms(100));
    cluster.let_go_but(of_volume(|message| matches!(message, Message::Appended { .. })));
    cluster.run(ms(100));
    let doomed = cluster.shard(first).file(FILE).unwrap().machine().tree().doomed(9);
    assert_eq!(doomed.len(), 2, "no entry is committed");
    cluster.let_go();
    cluster.run(ms(1_000));
    assert!(!has_doomed(&cluster, first));
}

fn of_volume(what: fn(&Message<File>) -> bool) -> impl Fn(&Flying) -> bool {
    move |flying| matches!(flying, Flying::File { message, .. } if message.object == FILE && what(&message.message))
}

#[test]
fn what_the_service_does_itself_no_client_may_ask_for() {
    let (mut cluster, members, mut writer) = planted(None);
    let client = ClientId { certificate: 9, program: 9 };
    let inode = InodeId::ROOT;
    for change in [
        TreeChange::Lend { inode, to: LentTo::Content },
        TreeChange::Deleted { inode },
        TreeChange::Settle,
        TreeChange::Forget { client },
        TreeChange::Hold { inode, client },
        TreeChange::Release { inode, client },
    ] {
        let told = writer.change(&mut cluster, members[0], op(change.clone()));
        assert_eq!(told, Some(FileReplyBody::Refused(FileError::NotForClients)), "{change:?}");
    }
    let told = writer.change(&mut cluster, members[0], Change::NoSpace);
    assert_eq!(told, Some(FileReplyBody::Refused(FileError::NotForClients)));
}

#[test]
fn what_a_tree_refuses_the_client_is_told() {
    let (mut cluster, members, mut writer) = planted(None);
    writer.must(&mut cluster, members[0], make("a", Make::Directory));
    let taken = writer.change(&mut cluster, members[0], make("a", Make::Directory));
    assert!(matches!(outcome(taken), Err(FileError::Tree(NameError::Exists { .. }))));
    let bytes = Change::Append { data: Bytes::from_static(b"x").into() };
    let told = writer.change(&mut cluster, members[0], bytes);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Err(FileError::IsTree), .. })), "{told:?}");
    let removed = writer.change(&mut cluster, members[0], Change::Remove);
    assert!(matches!(removed, Some(FileReplyBody::Changed { outcome: Err(FileError::NotEmpty), .. })));
    let gone = lookup(&mut cluster, members[0], "b");
    assert_eq!(gone, Err(FileError::Tree(NameError::NoEntry { dir: InodeId::ROOT })));
}
