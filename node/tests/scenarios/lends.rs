//! Files of volumes: who has their size and times, and what becomes of their data when they are gone.

use base::{ObjectId, WallTime};
use namespace::{
    Answer as TreeAnswer, Ask, Attributes, Change as TreeChange, Done as TreeDone, InodeId, Make, NameError,
    Root, SetAttributes, SetTime, Site, VolumeName, Who,
};
use node::file::{
    Answer, Change, FileBody, FileError, FileOf, FileReplyBody, LendStage, Level, Query, Shown, Stat,
};
use node::{AccessError, Bug, ErrandBody, OpenMode, file_object};
use replication::Standing;

use crate::cluster::{Cluster, Flying, ms};
use crate::files::{Daemons, FILE, Writer, write};
use crate::volumes::{ask as ask_tree, lookup, make, name, op, outcome, planted};

/// What changes the content of one file of a volume, as a client does that follows whoever is named.
struct Cell {
    object: ObjectId,
    of: FileOf,
    number: u64,
    name: String,
}

impl Cell {
    fn ask(&self, cluster: &mut Daemons, body: &FileBody) -> Option<FileReplyBody> {
        let mut node = cluster.map.members(self.object).into_iter().find(|node| cluster.is_up(node.0))?;
        for _ in 0..200 {
            let id = cluster.ask_file(1, node.0, self.object, body.clone());
            let mut told = cluster.file_reply(1, id);
            for _ in 0..20 {
                if told.is_some() {
                    break;
                }
                cluster.run(ms(10));
                told = cluster.file_reply(1, id);
            }
            match told {
                Some(FileReplyBody::Elsewhere(other)) if cluster.is_up(other.0) => node = other,
                Some(FileReplyBody::Elsewhere(_) | FileReplyBody::Unavailable(_)) => cluster.run(ms(30)),
                other => return other,
            }
        }
        panic!("nobody answers for {:?}", self.object);
    }

    fn change(&mut self, cluster: &mut Daemons, change: Change) -> Option<FileReplyBody> {
        self.number += 1;
        let (number, level) = (self.number, Level::Written);
        self.ask(cluster, &FileBody::Change { number, settled: number, level, change })
    }

    fn write(&mut self, cluster: &mut Daemons, text: &str) {
        let told = self.change(cluster, write(text));
        assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
    }

    fn stat(&self, cluster: &mut Daemons) -> Stat {
        match self.ask(cluster, &FileBody::Ask(Query::Stat)) {
            Some(FileReplyBody::Answer(Ok(Answer::Stat(stat)))) => stat,
            other => panic!("{other:?}"),
        }
    }

    fn primary(&self, cluster: &Daemons) -> u32 {
        let leads = |node: &u32| {
            cluster.is_up(*node)
                && cluster
                    .shard(*node)
                    .file(self.object)
                    .is_some_and(|file| file.standing() == Standing::Serving)
        };
        (1..=3).find(leads).expect("somebody leads it")
    }

    fn stage(&self, cluster: &Daemons) -> LendStage {
        let shard = cluster.shard(self.primary(cluster));
        shard.file(self.object).unwrap().machine().attributes().1.lend().unwrap().stage
    }
}

/// A volume with its primary, the first of the members, and a file in it.
fn with_file(bug: Option<Bug>) -> (Daemons, Vec<u32>, Writer, Cell) {
    let (mut cluster, members, mut writer) = planted(bug);
    writer.must(&mut cluster, members[0], make("f", Make::file()));
    let inode = lookup(&mut cluster, members[0], "f").unwrap().inode;
    let of = FileOf { volume: FILE, inode };
    let object = file_object(FILE, inode);
    open(&mut cluster, members[0], of);
    (cluster, members, writer, Cell { object, of, number: 0, name: "f".to_owned() })
}

/// The client has the file open from now on.
fn open(cluster: &mut Daemons, node: u32, of: FileOf) {
    let body = FileBody::Open { who: Who::root(), inode: of.inode, mode: OpenMode::ReadWrite };
    let id = cluster.ask_file(1, node, of.volume, body);
    cluster.run(ms(20));
    let Some(FileReplyBody::Opened { capability, .. }) = cluster.file_reply(1, id) else {
        panic!("root may open it")
    };
    cluster.shown.insert(file_object(of.volume, of.inode), Shown::Open(capability));
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
    let lent = attributes(&mut cluster, &members).lent;
    assert!(lent.is_some(), "whoever creates a file lends it");
    cell.write(&mut cluster, "hello");
    let stat = cell.stat(&mut cluster);
    assert_eq!((stat.size, stat.lend), (5, lent));
    assert_eq!(attributes(&mut cluster, &members).lent, lent);
    cluster.run(ms(1_500));
    let Attributes { size, mtime, lent, .. } = attributes(&mut cluster, &members);
    assert_eq!((size, mtime, lent), (5, stat.modified, None));
    // Whoever changes it again borrows first.
    cell.write(&mut cluster, "hello again");
    let again = attributes(&mut cluster, &members).lent;
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
fn apart(bug: Option<Bug>) -> (Daemons, Vec<u32>, Cell) {
    let mut cluster: Daemons = Cluster::with(6, 3, bug);
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
            return (cluster, members, Cell { object, of, number: 0, name: text });
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
    let body = FileBody::Change { number, settled: number, level, change: write("first") };
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

fn lookup_somewhere(cluster: &mut Daemons, members: &[u32], text: &str) -> Attributes {
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
fn a_file_to_which_nothing_was_written_is_as_its_volume_has_it() {
    let (mut cluster, members, mut writer, mut cell) = with_file(None);
    let before = attributes(&mut cluster, &members);
    let mode = SetAttributes { atime: Some(SetTime::Now), ..SetAttributes::default() };
    writer.change(
        &mut cluster,
        members[0],
        op(TreeChange::SetAttributes { inode: cell.of.inode, set: mode }),
    );
    cluster.run(ms(300));
    let after = attributes(&mut cluster, &members);
    assert_eq!((after.size, after.mtime, after.lent), (0, before.mtime, None));
    assert_eq!(cell.stage(&cluster), LendStage::Unused);
    cell.write(&mut cluster, "late");
    assert!(attributes(&mut cluster, &members).lent > before.lent, "the first lend is over");
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
    let (mut cluster, members, _, mut cell) = with_file(None);
    cell.write(&mut cluster, "hello");
    cluster.hold_back(|flying| {
        matches!(flying, Flying::Errand { errand, .. } if matches!(errand.body, ErrandBody::GiveBack { .. }))
    });
    let primary = cell.primary(&cluster);
    if primary == members[0] {
        return;
    }
    cluster.run(ms(1_500));
    assert_eq!(cell.stage(&cluster), LendStage::Ended);
    assert!(attributes(&mut cluster, &members).lent.is_some());
    cluster.kill_with_notice(primary);
    cluster.held.clear();
    cluster.let_go();
    assert_eq!(cell.stat(&mut cluster).size, 5);
    cluster.run(ms(200));
    let Attributes { size, lent, .. } = attributes(&mut cluster, &members);
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
    let unlink = op(TreeChange::Unlink { site, holders: Vec::new() });
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

/// Nothing was written to it, so no daemon has anything to remove; and whoever writes late finds that it is gone.
#[test]
fn what_was_unlinked_before_anything_was_written_is_gone_too() {
    let (mut cluster, members, mut writer, mut cell) = with_file(None);
    let site = Site::new(InodeId::ROOT, name("f"));
    writer.must(&mut cluster, members[0], op(TreeChange::Unlink { site, holders: Vec::new() }));
    cluster.run(ms(500));
    assert!(cluster.shard(members[0]).file(FILE).unwrap().machine().tree().doomed(1).is_empty());
    let told = cell.change(&mut cluster, write("late"));
    let inode = cell.of.inode;
    let gone = FileReplyBody::Refused(FileError::Tree(NameError::NoInode { inode }));
    assert_eq!(told, Some(gone));
}

#[test]
fn the_data_of_a_file_is_asked_for_by_its_name_in_the_volume() {
    let (mut cluster, _, _, cell) = with_file(None);
    let answer = |cluster: &mut Daemons, shown: Option<Shown>, body: FileBody| {
        cluster.shown.remove(&cell.object);
        cluster.shown.extend(shown.map(|shown| (cell.object, shown)));
        let id = cluster.ask_file(1, 1, cell.object, body);
        cluster.run(ms(50));
        match cluster.file_reply(1, id) {
            Some(FileReplyBody::Refused(FileError::Access(error))) => Some(error),
            _ => None,
        }
    };
    let (stat, read) = (FileBody::Ask(Query::Stat), FileBody::Ask(Query::Read { offset: 0, length: 9 }));
    let wrong = FileOf { inode: InodeId::ROOT, ..cell.of };
    for shown in [None, Some(Shown::Name(wrong))] {
        assert_eq!(answer(&mut cluster, shown, stat.clone()), Some(AccessError::FileOfVolume));
    }
    let name = || Some(Shown::Name(cell.of));
    assert_eq!(answer(&mut cluster, name(), stat), None, "who knows its name may ask how long it is");
    assert_eq!(answer(&mut cluster, name(), read), Some(AccessError::NotOpen));
    let level = Level::Written;
    let write = FileBody::Change { number: 1, settled: 1, level, change: write("x") };
    assert_eq!(answer(&mut cluster, name(), write), Some(AccessError::NotOpen));
}

stories! {
    LendNotAsked: nothing_is_written_before_the_volume_has_lent;
    LendNotDurable: what_was_written_under_a_lend_outlives_no_more_than_the_lend;
    GivenBackFirst: a_lend_has_ended_in_the_files_log_before_the_volume_hears_of_it;
    ReturnNotDurable: what_was_given_back_is_not_written_to_after_a_power_cut;
    DataLeftBehind: the_data_of_what_was_unlinked_is_gone_everywhere_and_then_the_rest;
}
