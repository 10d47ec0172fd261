//! Files of volumes: who has their size and times, and what becomes of their data when they are gone.

use std::sync::Arc;

use base::{Epoch, NodeId, ObjectId, WallTime};
use namespace::{
    Answer as TreeAnswer, Ask, Attributes, Change as TreeChange, Done as TreeDone, InodeId, Make, NameError,
    Root, SetAttributes, SetTime, Site, VolumeName, Who,
};
use node::file::{
    Answer, Change, FileBody, FileError, FileOf, FileReplyBody, LendStage, Level, Mark, Query, Stat,
};
use node::{
    AccessError, Bug, CAPABILITY_LASTS, CapabilityError, ErrandBody, OpenMode, RequestId, ShardConfig,
    file_object,
};
use replication::{Message, Position, Standing};

use crate::cluster::{Cluster, Flying, ms};
use crate::files::{Daemons, FILE, Writer, write};
use crate::volumes::{ask as ask_tree, lookup, lookup_as, make, name, op, outcome, planted};

/// What changes the content of one file of a volume, as a client does that follows whoever is named.
pub(crate) struct Cell {
    pub(crate) client: u64,
    pub(crate) object: ObjectId,
    pub(crate) of: FileOf,
    pub(crate) number: u64,
    pub(crate) name: String,
}

impl Cell {
    pub(crate) fn ask(&self, cluster: &mut Daemons, body: &FileBody) -> Option<FileReplyBody> {
        self.ask_holding(cluster, body, None)
    }

    /// The same, for which the client has something open then.
    pub(crate) fn ask_holding(
        &self,
        cluster: &mut Daemons,
        body: &FileBody,
        holds: Option<u64>,
    ) -> Option<FileReplyBody> {
        let mut node = cluster.map.members(self.object).into_iter().find(|node| cluster.is_up(node.0))?;
        for _ in 0..200 {
            cluster.holds = holds;
            let id = cluster.ask_file(self.client, node.0, self.object, body.clone());
            let mut told = cluster.file_reply(self.client, id);
            for _ in 0..20 {
                if told.is_some() {
                    break;
                }
                cluster.run(ms(10));
                told = cluster.file_reply(self.client, id);
            }
            match told {
                Some(FileReplyBody::Elsewhere(other)) if cluster.is_up(other.0) => node = other,
                Some(FileReplyBody::Elsewhere(_) | FileReplyBody::Unavailable(_)) => cluster.run(ms(30)),
                other => return other,
            }
        }
        panic!("nobody answers for {:?}", self.object);
    }

    pub(crate) fn change(&mut self, cluster: &mut Daemons, change: Change) -> Option<FileReplyBody> {
        self.number += 1;
        let (number, level) = (self.number, Level::Written);
        self.ask(cluster, &FileBody::Change { number, settled: number, level, under: None, change })
    }

    pub(crate) fn write(&mut self, cluster: &mut Daemons, text: &str) {
        let told = self.change(cluster, write(text));
        assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
    }

    pub(crate) fn stat(&self, cluster: &mut Daemons) -> Stat {
        match self.ask(cluster, &FileBody::Ask(Query::Stat)) {
            Some(FileReplyBody::Answer(Ok(Answer::Stat(stat)))) => stat,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn primary(&self, cluster: &Daemons) -> u32 {
        let leads = |node: &u32| {
            cluster.is_up(*node)
                && cluster
                    .shard(*node)
                    .file(self.object)
                    .is_some_and(|file| file.standing() == Standing::Serving)
        };
        (1..=3).find(leads).expect("somebody leads it")
    }

    pub(crate) fn stage(&self, cluster: &Daemons) -> LendStage {
        let shard = cluster.shard(self.primary(cluster));
        shard.file(self.object).unwrap().machine().attributes().1.lend().unwrap().stage
    }
}

/// A volume with its primary, the first of the members, and a file in it.
pub(crate) fn with_file(bug: Option<Bug>) -> (Daemons, Vec<u32>, Writer, Cell) {
    with_file_in(planted(bug))
}

fn with_file_in(
    (mut cluster, members, mut writer): (Daemons, Vec<u32>, Writer),
) -> (Daemons, Vec<u32>, Writer, Cell) {
    writer.must(&mut cluster, members[0], make("f", Make::file()));
    let inode = lookup(&mut cluster, members[0], "f").unwrap().inode;
    let of = FileOf { volume: FILE, inode };
    let object = file_object(FILE, inode);
    open(&mut cluster, members[0], of);
    (cluster, members, writer, Cell { client: 1, object, of, number: 0, name: "f".to_owned() })
}

/// A client writes something to a file of the volume.
pub(crate) fn fill(cluster: &mut Daemons, node: u32, client: u64, text: &str) {
    let inode = lookup_as(cluster, (client, node), text).unwrap().inode;
    let of = FileOf { volume: FILE, inode };
    let mut cell = Cell { client, object: file_object(FILE, inode), of, number: 0, name: text.to_owned() };
    open_as(cluster, node, client, (of, OpenMode::ReadWrite));
    cell.write(cluster, "hello");
}

/// The client has the file open from now on.
fn open(cluster: &mut Daemons, node: u32, of: FileOf) {
    open_for(cluster, node, (of, OpenMode::ReadWrite));
}

fn open_for(cluster: &mut Daemons, node: u32, file: (FileOf, OpenMode)) {
    open_as(cluster, node, 1, file);
}

pub(crate) fn open_as(cluster: &mut Daemons, node: u32, client: u64, (of, mode): (FileOf, OpenMode)) {
    let body = FileBody::Open { who: Who::root(), inode: of.inode, mode };
    let id = cluster.ask_file(client, node, of.volume, body);
    cluster.run(ms(20));
    let Some(FileReplyBody::Opened { capability, .. }) = cluster.file_reply(client, id) else {
        panic!("root may open it")
    };
    cluster.shown.insert(file_object(of.volume, of.inode), capability);
}

fn attributes(cluster: &mut Daemons, members: &[u32]) -> Attributes {
    lookup(cluster, members[0], "f").unwrap()
}

fn set_modified(inode: InodeId, to: WallTime) -> Change {
    let set = SetAttributes { mtime: Some(SetTime::To(to)), ..SetAttributes::default() };
    op(TreeChange::SetAttributes { inode, set })
}

#[test]
fn size_and_times_are_the_files_until_nothing_has_changed_for_a_while() {
    let (mut cluster, members, _, mut cell) = with_file(None);
    assert!(!attributes(&mut cluster, &members).may_have_content(), "it is lent to nobody");
    cell.write(&mut cluster, "hello");
    let stat = cell.stat(&mut cluster);
    let lent = attributes(&mut cluster, &members).lent.unwrap();
    assert_eq!((stat.size, stat.lend), (5, Some(lent.generation)));
    cluster.run(ms(1_500));
    let Attributes { size, mtime, lent: now, last_lend, .. } = attributes(&mut cluster, &members);
    assert_eq!((size, mtime, now, last_lend), (5, stat.modified, None, Some(lent.generation)));
    // Whoever changes it again borrows first.
    cell.write(&mut cluster, "hello again");
    let again = attributes(&mut cluster, &members).lent.map(|lent| lent.generation);
    assert!(again > stat.lend);
    assert_eq!(cell.stat(&mut cluster).lend, again);
    cluster.run(ms(1_500));
    assert_eq!(attributes(&mut cluster, &members).size, 11);
}

fn nothing_is_written_before_the_volume_has_lent(bug: Option<Bug>) {
    let (mut cluster, members, _, mut cell) = with_file(bug);
    cell.write(&mut cluster, "first");
    cluster.run(ms(1_500));
    assert_eq!(attributes(&mut cluster, &members).lent, None);
    cell.write(&mut cluster, "second");
    assert!(attributes(&mut cluster, &members).lent.is_some());
}

fn a_lend_has_ended_in_the_files_log_before_the_volume_hears_of_it(bug: Option<Bug>) {
    let (mut cluster, members, _, mut cell) = with_file(bug);
    cell.write(&mut cluster, "first");
    cluster.run(ms(1_500));
    cell.write(&mut cluster, "second");
    assert!(attributes(&mut cluster, &members).lent.is_some(), "or nobody asks the file for its size");
}

/// Six daemons: a volume at three, and a file in it at the others.
pub(crate) fn apart(bug: Option<Bug>) -> (Daemons, Vec<u32>, Cell) {
    apart_with(bug, |_| {})
}

pub(crate) fn apart_with(bug: Option<Bug>, configure: fn(&mut ShardConfig)) -> (Daemons, Vec<u32>, Cell) {
    let mut cluster: Daemons = Cluster::stopped(6, 3, bug);
    cluster.configure = configure;
    cluster.start_all();
    cluster.client(1);
    let members: Vec<u32> = cluster.map.members(FILE).into_iter().map(|node| node.0).collect();
    cluster.ask_file(1, members[0], FILE, FileBody::Create);
    cluster.run(ms(50));
    let mut writer = Writer { number: 0 };
    let root =
        Root { time: WallTime::ZERO, uid: 0, gid: 0, mode: 0o755, name: VolumeName::parse("home").unwrap() };
    writer.must(&mut cluster, members[0], Change::Plant(root));
    for number in 0.. {
        let text = format!("f{number}");
        writer.must(&mut cluster, members[0], make(&text, Make::file()));
        let inode = lookup(&mut cluster, members[0], &text).unwrap().inode;
        let of = FileOf { volume: FILE, inode };
        let object = file_object(FILE, inode);
        if cluster.map.members(object).iter().all(|node| !members.contains(&node.0)) {
            open(&mut cluster, members[0], of);
            return (cluster, members, Cell { client: 1, object, of, number: 0, name: text });
        }
    }
    unreachable!("one of many is replicated elsewhere")
}

fn what_was_written_under_a_lend_outlives_no_more_than_the_lend(bug: Option<Bug>) {
    let (mut cluster, members, mut cell) = apart(bug);
    cell.write(&mut cluster, "first");
    cluster.run(ms(1_500));
    cell.write(&mut cluster, "second");
    members.iter().for_each(|&node| cluster.power_off(node));
    members.iter().for_each(|&node| cluster.start(node));
    cluster.run(ms(6_000));
    let name = cell.name.clone();
    let Attributes { size, lent, .. } = lookup_somewhere(&mut cluster, &members, &name);
    assert!(lent.is_some() || size == 6, "the file is longer, and nobody would know");
}

fn what_was_given_back_is_not_written_to_after_a_power_cut(bug: Option<Bug>) {
    let (mut cluster, members, mut cell) = apart(bug);
    cell.number += 1;
    let (number, level) = (cell.number, Level::Durable);
    let body = FileBody::Change { number, settled: number, level, under: None, change: write("first") };
    cell.ask(&mut cluster, &body);
    // The disks have enough to do for a while.
    cluster.run(ms(900));
    cluster.hold_back(|flying| matches!(flying, Flying::Disk { is_durable: true, .. }));
    cluster.run(ms(300));
    let nodes = cluster.map.members(cell.object);
    nodes.iter().for_each(|node| cluster.power_off(node.0));
    cluster.held.clear();
    cluster.let_go();
    nodes.iter().for_each(|node| cluster.start(node.0));
    cell.write(&mut cluster, "second");
    assert!(lookup_somewhere(&mut cluster, &members, &cell.name.clone()).lent.is_some());
}

pub(crate) fn lookup_somewhere(cluster: &mut Daemons, members: &[u32], text: &str) -> Attributes {
    for _ in 0..100 {
        for &node in members {
            let ask = Ask::Lookup { dir: InodeId::ROOT, name: name(text) };
            if let Some(FileReplyBody::Answer(Ok(Answer::Tree(answer)))) = ask_tree(cluster, node, ask)
                && let TreeAnswer::Attributes(attributes) = *answer
            {
                return attributes;
            }
        }
        cluster.run(ms(100));
    }
    panic!("nobody answers for the volume");
}

#[test]
fn times_that_a_user_sets_outlast_what_was_written_before() {
    let (mut cluster, members, mut writer, mut cell) = with_file(None);
    cell.write(&mut cluster, "hello");
    let then = WallTime::from_micros(77);
    let told = writer.change(&mut cluster, members[0], set_modified(cell.of.inode, then));
    let Ok(TreeDone::Changed { attributes: told }) = outcome(told) else { panic!("root may") };
    assert_eq!((told.size, told.mtime), (5, then), "size and times were given back before");
    let Attributes { size, mtime, lent, .. } = attributes(&mut cluster, &members);
    assert_eq!((size, mtime, lent), (5, then, None));
    assert_eq!(cell.stage(&cluster), LendStage::Ended);
    cluster.run(ms(2_000));
    assert_eq!(attributes(&mut cluster, &members).mtime, then);
    // And the next write is later than it.
    cell.write(&mut cluster, "HELLO");
    assert!(cell.stat(&mut cluster).modified > then);
}

#[test]
fn a_file_that_is_written_to_is_given_back_before_it_is_run_as_somebody_else() {
    let (mut cluster, members, mut writer, mut cell) = with_file(None);
    cell.write(&mut cluster, "hello");
    let set = SetAttributes { mode: Some(0o4755), ..SetAttributes::default() };
    let told =
        writer.change(&mut cluster, members[0], op(TreeChange::SetAttributes { inode: cell.of.inode, set }));
    let Ok(TreeDone::Changed { attributes: told }) = outcome(told) else { panic!("root may") };
    assert_eq!((told.mode, told.size, told.lent), (0o4755, 5, None));
    cell.write(&mut cluster, "HELLO");
    assert_eq!(attributes(&mut cluster, &members).mode, 0o755);
}

pub(crate) fn read_now(inode: InodeId) -> Change {
    let set = SetAttributes { atime: Some(SetTime::Now), ..SetAttributes::default() };
    op(TreeChange::SetAttributes { inode, set })
}

/// Disks are so busy that the volume's primary can wait for no more of them. Whoever wants to be lent a file waits its turn: each time that it
/// asks makes an entry, and more for the disks to do.
#[test]
fn who_wants_what_cannot_be_durable_yet_does_not_ask_all_the_time() {
    let (mut cluster, members, mut cell) = apart_with(None, can_wait_for_one);
    hold_back_syncs_of(&mut cluster, FILE);
    let (change, level) = (make("other", Make::file()), Level::Durable);
    let body = FileBody::Change { number: 100, settled: 100, level, under: None, change };
    let first = cluster.ask_file(1, members[0], FILE, body);
    cluster.run(ms(50));
    let tail = |cluster: &Daemons| cluster.shard(members[0]).file(FILE).unwrap().tail().seq;
    let before = tail(&cluster);
    let asked = ask_to_write(&mut cluster, &mut cell);
    cluster.run(ms(1_000));
    assert_eq!([first, asked].map(|id| cluster.file_reply(1, id)), [None, None]);
    assert_eq!(tail(&cluster), before, "entries that would have to be made again");
    cluster.let_go();
    cluster.run(ms(500));
    assert!(matches!(cluster.file_reply(1, asked), Some(FileReplyBody::Changed { outcome: Ok(_), .. })));
}

/// As long as the removal of the content may be lost the volume does not forget the file, whoever asks for it again.
#[test]
fn what_is_removed_is_doomed_until_that_would_survive_a_power_cut() {
    let (mut cluster, members, mut cell) = apart(None);
    cell.write(&mut cluster, "hello");
    cluster.run(ms(2_000));
    let nodes = cluster.map.members(cell.object);
    let disks = nodes.clone();
    cluster.hold_back(move |flying| match flying {
        Flying::Disk { node, is_durable, .. } => *is_durable && disks.contains(&node.node),
        _ => false,
    });
    let site = Site::new(InodeId::ROOT, name(&cell.name));
    let mut writer = Writer { number: 100 };
    writer.must(
        &mut cluster,
        members[0],
        op(TreeChange::Unlink { site, holders: Vec::new(), removed: None }),
    );
    cluster.run(ms(200));
    // Another one leads the volume, and has it removed again.
    cluster.kill(members[0]);
    let look = |cluster: &mut Daemons| {
        for _ in 0..100 {
            let ask = Ask::Lookup { dir: InodeId::ROOT, name: name("other") };
            members[1..].iter().for_each(|&node| _ = ask_tree(cluster, node, ask.clone()));
            cluster.run(ms(50));
        }
    };
    look(&mut cluster);
    nodes.iter().for_each(|node| cluster.power_off(node.0));
    cluster.held.clear();
    cluster.let_go();
    nodes.iter().for_each(|node| cluster.start(node.0));
    look(&mut cluster);
    cluster.run(ms(120_000));
    let has_it = |node: &&NodeId| cluster.shard(node.0).file(cell.object).is_some();
    assert_eq!(nodes.iter().filter(has_it).count(), 0, "nobody would remove it");
}

/// The disks are slow, and whoever waits for the volume asks again and again.
#[test]
fn what_is_asked_for_again_while_it_is_done_is_done_once() {
    let (mut cluster, members, mut cell) = apart(None);
    let tail = |cluster: &Daemons| cluster.shard(members[0]).file(FILE).unwrap().tail().seq.0;
    let before = tail(&cluster);
    hold_back_syncs_of(&mut cluster, FILE);
    let asked = ask_to_write(&mut cluster, &mut cell);
    cluster.run(ms(5_000));
    assert_eq!(tail(&cluster) - before, 1, "the volume lends once");
    cluster.let_go();
    cluster.run(ms(1_000));
    let told = cluster.file_reply(cell.client, asked);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
}

/// Whoever waits for the volume has asked another member meanwhile.
#[test]
fn what_was_done_counts_however_late_it_is_said() {
    let (mut cluster, members, mut cell) = apart(None);
    let tail = |cluster: &Daemons| cluster.shard(members[0]).file(FILE).unwrap().tail().seq.0;
    let before = tail(&cluster);
    cluster.hold_back(|flying| matches!(flying, Flying::ErrandReply { .. }));
    let asked = ask_to_write(&mut cluster, &mut cell);
    cluster.run(ms(1_100));
    assert_eq!(cluster.file_reply(cell.client, asked), None);
    cluster.let_go();
    cluster.run(ms(50));
    let told = cluster.file_reply(cell.client, asked);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
    assert_eq!(tail(&cluster) - before, 1, "the volume was asked again");
}

/// Asks the first of who has a file to write to it, and does not wait.
fn ask_to_write(cluster: &mut Daemons, cell: &mut Cell) -> RequestId {
    let node = cluster.map.members(cell.object)[0].0;
    cell.number += 1;
    let (number, level) = (cell.number, Level::Written);
    let body = FileBody::Change { number, settled: number, level, under: None, change: write("hello") };
    cluster.ask_file(cell.client, node, cell.object, body)
}

fn can_wait_for_one(config: &mut ShardConfig) {
    Arc::make_mut(&mut config.replication).waiting_max = 1;
}

fn hold_back_syncs_of(cluster: &mut Daemons, object: ObjectId) {
    cluster.hold_back(move |flying| match flying {
        Flying::File { message, .. } => {
            message.object == object && matches!(message.message, Message::Sync { .. })
        }
        _ => false,
    });
}

/// The first write has the volume lend, and nobody hears of it before the file's primary ends.
#[test]
fn a_lend_under_which_nothing_was_written_leaves_all_as_the_volume_has_it() {
    let (mut cluster, members, mut cell) = apart(None);
    let (of, text) = (cell.of, cell.name.clone());
    let before = lookup_somewhere(&mut cluster, &members, &text);
    cluster.hold_back(|flying| match flying {
        Flying::ErrandReply { reply, .. } => matches!(reply.body, FileReplyBody::Changed { .. }),
        _ => false,
    });
    let node = cluster.map.members(cell.object)[0].0;
    let (number, level) = (1, Level::Written);
    let body = FileBody::Change { number, settled: 1, level, under: None, change: write("never") };
    cluster.ask_file(1, node, cell.object, body);
    cluster.run(ms(300));
    let lent = lookup_somewhere(&mut cluster, &members, &text);
    let lend = lent.lent.unwrap().generation;
    cluster.kill_with_notice(node);
    cluster.held.clear();
    cluster.let_go();
    let mut writer = Writer { number: 100 };
    writer.change(&mut cluster, members[0], read_now(of.inode));
    cluster.run(ms(300));
    let after = lookup_somewhere(&mut cluster, &members, &text);
    assert_eq!((after.size, after.mtime, after.lent, after.last_lend), (0, before.mtime, None, Some(lend)));
    assert_eq!(cell.stage(&cluster), LendStage::Unused);
    cell.number = 1;
    cell.write(&mut cluster, "late");
    assert!(lookup_somewhere(&mut cluster, &members, &text).lent > lent.lent, "the first lend is over");
}

/// Nobody leads what nobody has: in bad times it would be led again and again.
#[test]
fn what_nothing_was_written_to_is_the_volumes_alone_and_leaves_nothing() {
    let (mut cluster, members, cell) = apart(None);
    cluster.hold_back(|flying| matches!(flying, Flying::Errand { .. }));
    let mut writer = Writer { number: 100 };
    let then = WallTime::from_micros(77);
    let told = outcome(writer.change(&mut cluster, members[0], set_modified(cell.of.inode, then)));
    let Ok(TreeDone::Changed { attributes }) = told else { panic!("root may") };
    assert_eq!((attributes.mtime, attributes.may_have_content()), (then, false));
    let site = Site::new(InodeId::ROOT, name(&cell.name));
    let told = writer.change(
        &mut cluster,
        members[0],
        op(TreeChange::Unlink { site, holders: Vec::new(), removed: None }),
    );
    assert!(matches!(outcome(told), Ok(TreeDone::Removed { fate: namespace::Fate::Gone, .. })));
    cluster.run(ms(3_000));
    assert_eq!(cluster.held.len(), 0, "nobody was sent");
    let has_content = |node| cluster.shard(node).files().any(|object| object == cell.object);
    assert!(!(1..=6).any(has_content), "and nobody was asked");
}

#[test]
fn the_next_primary_of_the_file_gives_back_what_the_one_before_has_borrowed() {
    let (mut cluster, members, _, mut cell) = with_file(None);
    cell.write(&mut cluster, "hello");
    let primary = cell.primary(&cluster);
    let (others, is_both) = (members.clone(), primary == members[0]);
    cluster.kill_with_notice(primary);
    let volume_at = if is_both { others[1] } else { members[0] };
    assert_eq!(cell.stat(&mut cluster).size, 5);
    cluster.run(ms(3_500));
    let Attributes { size, lent, .. } = lookup(&mut cluster, volume_at, "f").unwrap();
    assert_eq!((size, lent), (5, None));
}

/// The lend has ended in the file's log, and the volume has not heard of it.
#[test]
fn whoever_asks_for_the_size_has_the_volume_told_of_the_end_of_the_lend() {
    let (mut cluster, members, mut cell) = apart(None);
    cell.write(&mut cluster, "hello");
    cluster.hold_back(|flying| {
        matches!(flying, Flying::Errand { errand, .. } if matches!(errand.body, ErrandBody::GiveBack { .. }))
    });
    let (primary, text) = (cell.primary(&cluster), cell.name.clone());
    cluster.run(ms(1_500));
    assert_eq!(cell.stage(&cluster), LendStage::Ended);
    assert!(lookup_somewhere(&mut cluster, &members, &text).lent.is_some());
    cluster.kill_with_notice(primary);
    cluster.held.clear();
    cluster.let_go();
    assert_eq!(cell.stat(&mut cluster).size, 5);
    cluster.run(ms(200));
    let Attributes { size, lent, .. } = lookup_somewhere(&mut cluster, &members, &text);
    assert_eq!((size, lent), (5, None));
}

#[test]
fn a_volume_whose_primary_dies_is_told_by_whoever_asks_the_next() {
    let (mut cluster, members, _, mut cell) = with_file(None);
    cell.write(&mut cluster, "hello");
    if cell.primary(&cluster) == members[0] {
        cluster.kill_with_notice(members[0]);
        assert_eq!(cell.stat(&mut cluster).size, 5);
    } else {
        cluster.kill_with_notice(members[0]);
    }
    cluster.run(ms(4_000));
    let attributes = lookup(&mut cluster, members[1], "f").unwrap();
    assert_eq!((attributes.size, attributes.lent), (5, None));
}

fn the_data_of_what_was_unlinked_is_gone_everywhere_and_then_the_rest(bug: Option<Bug>) {
    let (mut cluster, members, mut writer, mut cell) = with_file(bug);
    cell.write(&mut cluster, "hello");
    let site = Site::new(InodeId::ROOT, name("f"));
    let unlink = op(TreeChange::Unlink { site, holders: Vec::new(), removed: None });
    let told = outcome(writer.change(&mut cluster, members[0], unlink)).unwrap();
    assert!(matches!(told, TreeDone::Removed { fate: namespace::Fate::Doomed, .. }));
    cluster.run(ms(500));
    for node in 1..=3 {
        let machine = cluster.shard(node).file(cell.object).unwrap().machine();
        assert!(machine.attributes().1.is_removed(), "at {node}");
    }
    assert!(cluster.shard(members[0]).file(FILE).unwrap().machine().tree().doomed(1).is_empty());
    let told = cell.change(&mut cluster, write("late"));
    let removed = Err(FileError::Removed);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome, .. }) if outcome == removed));
}

/// Nothing was written to it, so no daemon has anything to remove.
#[test]
fn whoever_writes_late_to_what_was_unlinked_finds_that_it_is_gone() {
    let (mut cluster, members, mut writer, mut cell) = with_file(None);
    let site = Site::new(InodeId::ROOT, name("f"));
    writer.must(
        &mut cluster,
        members[0],
        op(TreeChange::Unlink { site, holders: Vec::new(), removed: None }),
    );
    cluster.run(ms(500));
    assert!(cluster.shard(members[0]).file(FILE).unwrap().machine().tree().doomed(1).is_empty());
    let told = cell.change(&mut cluster, write("late"));
    let inode = cell.of.inode;
    let gone = FileReplyBody::Refused(FileError::Tree(NameError::NoInode { inode }));
    assert_eq!(told, Some(gone));
}

#[test]
fn the_content_of_a_file_is_for_whoever_has_it_open_for_that() {
    let (mut cluster, members, _, cell) = with_file(None);
    let (level, mark) = (Level::Written, Mark { at: Position::START, generation: Epoch::default() });
    let bodies = [
        FileBody::Ask(Query::Stat),
        FileBody::Sync { oldest: mark, newest: mark },
        FileBody::Ask(Query::Read { offset: 0, length: 9, under: None }),
        FileBody::Change { number: 1, settled: 1, level, under: None, change: write("x") },
    ];
    let refusals = |cluster: &mut Daemons| {
        bodies.each_ref().map(|body| {
            let id = cluster.ask_file(1, 1, cell.object, body.clone());
            cluster.run(ms(50));
            match cluster.file_reply(1, id) {
                Some(FileReplyBody::Refused(error)) => Some(error),
                _ => None,
            }
        })
    };
    cluster.shown.clear();
    assert_eq!(refusals(&mut cluster), [Some(AccessError::NotOpen.into()); 4], "who guesses its name");
    let [few, none] = [Some(CapabilityError::Insufficient.into()), None];
    open_for(&mut cluster, members[0], (cell.of, OpenMode::Look));
    assert_eq!(refusals(&mut cluster), [none, none, few, few]);
    open_for(&mut cluster, members[0], (cell.of, OpenMode::Read));
    assert_eq!(refusals(&mut cluster), [none, none, none, few]);
    open_for(&mut cluster, members[0], (cell.of, OpenMode::ReadWrite));
    assert_eq!(refusals(&mut cluster), [none; 4]);
    cluster.run(CAPABILITY_LASTS);
    let [stat, sync, ..] = refusals(&mut cluster);
    assert!(matches!(stat, Some(FileError::Capability(CapabilityError::Expired { .. }))), "{stat:?}");
    assert_eq!(sync, None, "what was written before is made durable");
}

/// Whoever is told that it was too late does it anew: no other copy of it may be done then.
fn what_is_refused_as_too_late_is_not_done_by_another_copy(bug: Option<Bug>) {
    let (mut cluster, members, _, cell) = with_file(bug);
    cluster.run(ms(CAPABILITY_LASTS.as_micros() / 1_000 - 900));
    cluster.hold_back(|flying| matches!(flying, Flying::Lease { .. }));
    let ask = |cluster: &mut Daemons| {
        let (level, change) = (Level::Written, write("x"));
        let body = FileBody::Change { number: 1, settled: 1, level, under: None, change };
        cluster.ask_file(1, members[0], cell.object, body)
    };
    let first = ask(&mut cluster);
    cluster.run(ms(1_200));
    let second = ask(&mut cluster);
    cluster.run(ms(10));
    cluster.hold_back(|_| false);
    cluster.let_go();
    cluster.run(ms(5_000));
    for id in [first, second] {
        let told = cluster.file_reply(1, id);
        let is_late = matches!(
            told,
            Some(FileReplyBody::Refused(FileError::Capability(CapabilityError::Expired { .. })))
        );
        assert!(is_late, "{told:?}");
    }
}

#[test]
fn what_comes_too_late_is_not_done() {
    what_is_refused_as_too_late_is_not_done_by_another_copy(None);
}

#[test]
#[should_panic = "Changed"]
fn without_the_rule_a_copy_of_it_is_done() {
    what_is_refused_as_too_late_is_not_done_by_another_copy(Some(Bug::ShownOnArrival));
}

/// A volume at three, of which one lost its power and is back, and a file that is made after that.
fn with_file_after_power_cut(bug: Option<Bug>) -> (Daemons, Vec<u32>, Cell) {
    let (mut cluster, members, writer) = planted(bug);
    cluster.power_off(members[1]);
    cluster.start(members[1]);
    cluster.run(ms(6_000));
    let (cluster, members, _, cell) = with_file_in((cluster, members, writer));
    (cluster, members, cell)
}

#[test]
fn what_is_new_is_written_while_one_is_away_and_another_one_lost_its_power_long_ago() {
    let (mut cluster, members, mut cell) = with_file_after_power_cut(None);
    cluster.kill(members[2]);
    let begun = cluster.now;
    cell.write(&mut cluster, "hello");
    assert!(cluster.now.since(begun) < ms(3_000), "nobody has to wait for who is away");
}

fn what_is_in_a_file_is_of_later_epochs_than_the_file(bug: Option<Bug>) {
    let (mut cluster, members, mut cell) = with_file_after_power_cut(bug);
    // Of the others nobody knows of so high a number.
    cluster.kill(members[1]);
    cell.write(&mut cluster, "hello");
    let primary = cell.primary(&cluster);
    let epoch = cluster.shard(primary).file(cell.object).unwrap().committed().epoch;
    assert!(epoch.number > cell.of.inode.epoch.number, "{epoch:?} {:?}", cell.of.inode);
}

stories! {
    ContentBeforeFile: what_is_in_a_file_is_of_later_epochs_than_the_file;
    LendNotAsked: nothing_is_written_before_the_volume_has_lent;
    LendNotDurable: what_was_written_under_a_lend_outlives_no_more_than_the_lend;
    GivenBackFirst: a_lend_has_ended_in_the_files_log_before_the_volume_hears_of_it;
    ReturnNotDurable: what_was_given_back_is_not_written_to_after_a_power_cut;
    DataLeftBehind: the_data_of_what_was_unlinked_is_gone_everywhere_and_then_the_rest;
}
