//! Lends and removals of volumes' files where the power fails, messages overtake each other, or a client shows what it should not,
//! between two steps of them.

use base::WallTime;
use namespace::{Answer as TreeAnswer, Ask, Change as TreeChange, SetAttributes, SetTime, Site};
use node::file::{Answer, Change, FileBody, FileError, FileReplyBody, LendStage, Level, Query};
use node::{Bug, CAPABILITY_LASTS, CapabilityError, ErrandBody, OpenMode, object_named};
use replication::Message;

use crate::access::{BUILD, Story, create, user};
use crate::cluster::{Flying, ms};
use crate::files::{Daemons, FILE, Writer, write};
use crate::lends::{Cell, apart, lookup_somewhere, open_as, read_now, with_file};
use crate::volumes::{name, op};

/// These daemons lose their power, with what their disks were about to make durable.
fn lose_power(cluster: &mut Daemons, nodes: &[u32]) {
    nodes.iter().for_each(|&node| cluster.power_off(node));
    cluster.held.clear();
    cluster.let_go();
    nodes.iter().for_each(|&node| cluster.start(node));
    cluster.run(ms(6_000));
}

/// The disks of these daemons make nothing durable for a while.
fn delay_disks(cluster: &mut Daemons, nodes: &[u32]) {
    let nodes = nodes.to_vec();
    cluster.hold_back(move |flying| match flying {
        Flying::Disk { node, is_durable: true, .. } => nodes.contains(&node.node.0),
        _ => false,
    });
}

fn members_of(cluster: &Daemons, cell: &Cell) -> Vec<u32> {
    cluster.map.members(cell.object).into_iter().map(|node| node.0).collect()
}

fn write_durably(cluster: &mut Daemons, cell: &mut Cell, text: &str) {
    cell.number += 1;
    let body = FileBody::Change {
        number: cell.number,
        settled: cell.number,
        level: Level::Durable,
        under: None,
        change: write(text),
    };
    let told = cell.ask(cluster, &body);
    assert!(matches!(told, Some(FileReplyBody::Changed { level: Level::Durable, .. })), "{told:?}");
}

fn what_a_power_cut_gives_its_name_back_has_its_data(bug: Option<Bug>) {
    let (mut cluster, members, mut cell) = apart(bug);
    write_durably(&mut cluster, &mut cell, "kept");
    delay_disks(&mut cluster, &members);
    let site = Site::new(namespace::InodeId::ROOT, name(&cell.name));
    let mut writer = Writer { number: 100 };
    writer.must(
        &mut cluster,
        members[0],
        op(TreeChange::Unlink { site, holders: Vec::new(), removed: None }),
    );
    cluster.run(ms(500));
    lose_power(&mut cluster, &members);
    lookup_somewhere(&mut cluster, &members, &cell.name.clone());
    let told = cell.ask(&mut cluster, &FileBody::Ask(Query::Read { offset: 0, length: 9, under: None }));
    let Some(FileReplyBody::Answer(Ok(Answer::Data(data)))) = told else { panic!("{told:?}") };
    assert_eq!(data.len(), 4);
}

/// The volume has the lend ended, and the file's disks have not kept that when somebody asks how it is.
#[test]
fn the_end_of_a_lend_that_is_not_durable_is_not_told_by_whoever_asks() {
    let (mut cluster, members, mut cell) = apart(None);
    write_durably(&mut cluster, &mut cell, "first");
    let nodes = members_of(&cluster, &cell);
    delay_disks(&mut cluster, &nodes);
    let (number, level) = (101, Level::Written);
    let change = read_now(cell.of.inode);
    cluster.ask_file(
        1,
        members[0],
        FILE,
        FileBody::Change { number, settled: number, level, under: None, change },
    );
    cluster.run(ms(100));
    assert_eq!(cell.stage(&cluster), LendStage::Ended);
    cell.stat(&mut cluster);
    cluster.run(ms(100));
    assert!(lookup_somewhere(&mut cluster, &members, &cell.name.clone()).lent.is_some());
    lose_power(&mut cluster, &nodes);
    cell.write(&mut cluster, "second");
    assert!(lookup_somewhere(&mut cluster, &members, &cell.name.clone()).lent.is_some());
}

/// The same, and the file's primary dies before its disks have kept it.
#[test]
fn the_next_primary_makes_sure_that_the_end_of_a_lend_is_durable_before_it_tells() {
    let (mut cluster, members, mut cell) = apart(None);
    write_durably(&mut cluster, &mut cell, "first");
    let nodes = members_of(&cluster, &cell);
    cluster.run(ms(900));
    delay_disks(&mut cluster, &nodes);
    cluster.run(ms(300));
    let primary = cell.primary(&cluster);
    assert_eq!(cell.stage(&cluster), LendStage::Ended);
    cluster.kill_with_notice(primary);
    cluster.run(ms(500));
    cell.stat(&mut cluster);
    cluster.run(ms(100));
    assert_ne!(cell.primary(&cluster), primary);
    assert!(lookup_somewhere(&mut cluster, &members, &cell.name.clone()).lent.is_some());
    cluster.let_go();
    cluster.run(ms(300));
    let told = lookup_somewhere(&mut cluster, &members, &cell.name.clone());
    assert_eq!((told.lent, told.size), (None, 5));
}

/// What was written was lost with the power. Whoever says that there is nothing says it late: another one was asked since.
#[test]
fn what_somebody_found_not_to_be_there_needs_no_removal_whoever_is_asked_since() {
    let (mut cluster, members, mut cell) = apart(None);
    let nodes = members_of(&cluster, &cell);
    delay_disks(&mut cluster, &nodes);
    cell.write(&mut cluster, "lost");
    lose_power(&mut cluster, &nodes);
    let is_absence = |flying: &Flying| match flying {
        Flying::ErrandReply { reply, .. } => matches!(reply.body, FileReplyBody::NoSuchFile),
        _ => false,
    };
    cluster.hold_back(is_absence);
    let site = Site::new(namespace::InodeId::ROOT, name(&cell.name));
    let unlink = op(TreeChange::Unlink { site, holders: Vec::new(), removed: None });
    Writer { number: 100 }.must(&mut cluster, members[0], unlink);
    let from = |flying: &Flying| match flying {
        Flying::ErrandReply { from, .. } => Some(from.node),
        _ => None,
    };
    let are_two = move |cluster: &Daemons| {
        let mut all = cluster.held.iter().map(from);
        let first = all.next();
        all.any(|next| Some(next) != first)
    };
    cluster.run_until(ms(10_000), are_two);
    cluster.held.truncate(1);
    cluster.let_go();
    cluster.run(ms(100));
    let doomed = |cluster: &Daemons| cluster.shard(members[0]).file(FILE).unwrap().machine().tree().doomed(1);
    assert_eq!(doomed(&cluster), []);
}

/// The file hears that its lend is over before it hears that it was lent.
#[test]
fn a_lend_that_is_recalled_before_it_is_heard_of_fails_no_write() {
    let (mut cluster, members, cell) = apart(None);
    let nodes = members_of(&cluster, &cell);
    let is_lend = |flying: &Flying| match flying {
        Flying::ErrandReply { reply, .. } => matches!(reply.body, FileReplyBody::Changed { .. }),
        _ => false,
    };
    cluster.hold_back(is_lend);
    let (number, level) = (1, Level::Written);
    let body = FileBody::Change { number, settled: number, level, under: None, change: write("hello") };
    let waiting = cluster.ask_file(1, nodes[0], cell.object, body);
    cluster.run(ms(300));
    assert!(lookup_somewhere(&mut cluster, &members, &cell.name).lent.is_some());
    // What the file's primary says to the others is late, too.
    let files = nodes;
    cluster.hold_back(move |flying| match flying {
        Flying::File { to, message, .. } => {
            files.contains(to) && matches!(message.message, Message::Append { .. })
        }
        flying => is_lend(flying),
    });
    let (number, change) = (101, read_now(cell.of.inode));
    let setting = FileBody::Change { number, settled: number, level, under: None, change };
    let set = cluster.ask_file(1, members[0], FILE, setting);
    cluster.run(ms(50));
    assert!(cluster.held.iter().any(|flying| matches!(flying, Flying::File { .. })), "it is being ended");
    let (lends, others): (Vec<_>, Vec<_>) = std::mem::take(&mut cluster.held).into_iter().partition(is_lend);
    cluster.held = lends;
    cluster.let_go();
    cluster.held = others;
    cluster.run(ms(5));
    cluster.let_go();
    cluster.run(ms(500));
    let told = cluster.file_reply(1, waiting);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
    let told = cluster.file_reply(1, set);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
}

/// Whoever has a file open shows that for an object which has nothing to do with it.
#[test]
fn no_object_becomes_a_volumes_file_by_what_is_shown_for_it() {
    let (mut cluster, members, _, cell) = with_file(None);
    let plain = object_named("plain");
    let node = cluster.map.members(plain)[0].0;
    cluster.client(2);
    cluster.ask_file(2, node, plain, FileBody::Create);
    cluster.run(ms(50));
    let shown = cluster.shown[&cell.object].clone();
    cluster.shown.insert(plain, shown);
    cluster.ask_file(1, node, plain, FileBody::Ask(Query::Stat));
    cluster.shown.remove(&plain);
    let body =
        FileBody::Change { number: 1, settled: 1, level: Level::Written, under: None, change: write("mine") };
    let id = cluster.ask_file(2, node, plain, body);
    cluster.run(ms(100));
    let told = cluster.file_reply(2, id);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
    assert_eq!(cluster.shard(node).file(plain).unwrap().machine().attributes().1.lend(), None);
    assert_eq!(lookup_somewhere(&mut cluster, &members, "f").lent, None);
}

/// A reply was lost, and what opens the file is over when the change is sent again.
#[test]
fn what_took_effect_in_time_is_told_after_that_and_done_once() {
    let (mut cluster, members, mut cell) = apart(None);
    cell.write(&mut cluster, "hello");
    let append = |number| {
        let change = Change::Append { data: bytes::Bytes::from_static(b"!").into() };
        FileBody::Change { number, settled: 2, level: Level::Written, under: None, change }
    };
    let told = cell.ask(&mut cluster, &append(2));
    cluster.run(CAPABILITY_LASTS);
    let again = cell.ask(&mut cluster, &append(2));
    let outcomes = [told, again].map(|told| match told {
        Some(FileReplyBody::Changed { outcome, .. }) => outcome,
        other => panic!("{other:?}"),
    });
    assert!(outcomes[0].is_ok() && outcomes[0] == outcomes[1], "{outcomes:?}");
    let told = cell.ask(&mut cluster, &append(3));
    let Some(FileReplyBody::Refused(FileError::Capability(CapabilityError::Expired { .. }))) = told else {
        panic!("{told:?}")
    };
    open_as(&mut cluster, members[0], 1, (cell.of, OpenMode::ReadWrite));
    assert_eq!(cell.stat(&mut cluster).size, 6);
}

/// A client that may only read, and one that is not the owner's, ask for another time.
#[test]
fn who_may_not_change_a_file_ends_nobodys_lend() {
    let rule = "\n[[exports]]\nvolume = \"*\"\nclients = [\"admin/anna\"]\naccess = \"rw\"\nsquash = \"none\"\n\
                \n[[exports]]\nvolume = \"*\"\nclients = [\"build\"]\naccess = \"ro\"\n";
    let mut story = Story::new(rule, "home");
    let (file, opened) =
        story.made(crate::access::ADMIN, 0, create(namespace::InodeId::ROOT, "f", namespace::Make::file()));
    let (capability, volume) = (opened.unwrap(), crate::access::volume());
    let object = node::file_object(volume, file.inode);
    story.cluster.shown.insert(object, Box::new(capability));
    let body = FileBody::Change {
        number: 1,
        settled: 1,
        level: Level::Written,
        under: None,
        change: write("hello"),
    };
    let told = story.ask_about(crate::access::ADMIN, object, body);
    assert!(matches!(told, FileReplyBody::Changed { outcome: Ok(_), .. }), "{told:?}");
    story.cluster.hold_back(|flying| matches!(flying, Flying::Errand { errand, .. } if matches!(errand.body, ErrandBody::Return { .. })));
    let set =
        SetAttributes { mtime: Some(SetTime::To(WallTime::from_micros(7))), ..SetAttributes::default() };
    let told = story.op(BUILD, user(0), TreeChange::SetAttributes { inode: file.inode, set });
    assert_eq!(told.map(drop), Err(FileError::Access(node::AccessError::ReadOnly)));
    let ask = Ask::Attributes { inode: file.inode };
    let Ok(TreeAnswer::Attributes(attributes)) = story.query(BUILD, user(0), ask) else {
        panic!("it may look")
    };
    assert!(attributes.lent.is_some());
    assert_eq!(story.cluster.held.len(), 0, "nobody was asked to end it");
}

/// The times of a file are its owner's to set, and the volume knows who that is.
#[test]
fn whoever_writes_to_a_volumes_file_sets_no_time_of_it() {
    let (mut cluster, _, _, mut cell) = with_file(None);
    let then = Some(WallTime::from_micros(77));
    let told = cell.change(&mut cluster, Change::Touch { modified: then });
    assert_eq!(told, Some(FileReplyBody::Refused(FileError::NotForClients)));
    let told = cell.change(&mut cluster, Change::Touch { modified: None });
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
}

stories! {
    VolumeNotDurable: what_a_power_cut_gives_its_name_back_has_its_data;
}
