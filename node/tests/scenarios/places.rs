//! Where directories are, which clients' kernels may believe for longer than they have anything else of them. Each story is told with its rule
//! in force, and must go wrong without it.

use std::sync::Arc;

use base::{ObjectId, Span, WallTime};
use lease::PaxosRules;
use namespace::{Ask, Change as TreeChange, InodeId, Make, Op, RenameHow, Root, Site, Who};
use node::file::{Change, Done, FileBody, FileReplyBody, Level, Query};
use node::{Bug, RequestBody, RequestId, VolumeName, volume_object};

use crate::access::name;
use crate::cluster::{Cluster, ms};

const ROOT: InodeId = InodeId::ROOT;
/// Who believes where a directory is, and who moves it.
const READER: u64 = 1;
const OTHER: u64 = 2;
const SESSION_OVER: Span = Span::from_millis(896);

/// A volume with a directory, which the reader has looked up.
struct Story {
    /// By PaxosLease: the clocks of its daemons need not agree.
    cluster: Cluster<PaxosRules>,
    members: Vec<u32>,
    numbers: u64,
    dir: InodeId,
}

fn volume() -> ObjectId {
    volume_object(ROOT)
}

fn op(change: TreeChange) -> Change {
    Change::Tree(Arc::new(Op::wanted(Who::root(), change)))
}

fn make(dir: InodeId, text: &str) -> Change {
    let (name, make) = (name(text), Make::Directory);
    let (mode, umask, is_exclusive, lends) = (0o755, 0, true, false);
    op(TreeChange::Create { dir, name, make, mode, umask, is_exclusive, lends })
}

fn rename(from: &str, to: &str) -> Change {
    let [from, to] = [from, to].map(|text| Site::new(ROOT, name(text)));
    op(TreeChange::Rename { from, to, how: RenameHow::NoReplace, holders: Vec::new() })
}

impl Story {
    fn new(bug: Option<Bug>) -> Self {
        let mut cluster = Cluster::with(3, 3, bug);
        let members: Vec<u32> = cluster.map.members(volume()).into_iter().map(|node| node.0).collect();
        cluster.client(READER);
        cluster.client(OTHER);
        cluster.clients.get_mut(&READER).unwrap().caches = true;
        cluster.ask_file(OTHER, members[0], volume(), FileBody::Create);
        cluster.run(ms(50));
        let mut story = Self { cluster, members, numbers: 0, dir: ROOT };
        let name = VolumeName::parse("home").unwrap();
        story.done(Change::Plant(Root { time: WallTime::ZERO, uid: 0, gid: 0, mode: 0o777, name }));
        story.dir = story.done(make(ROOT, "d")).unwrap();
        (0..2).for_each(|_| story.look(0));
        assert!(story.believes(), "the second time it is on record");
        story
    }

    /// The reader looks the directory up at a member.
    fn look(&mut self, member: usize) {
        let query = namespace::Query { who: Who::root(), ask: Ask::Attributes { inode: self.dir } };
        let body = FileBody::Ask(Query::Tree(Arc::new(query)));
        self.cluster.ask_file(READER, self.members[member], volume(), body);
        self.cluster.run(ms(20));
    }

    /// The reader's kernel believes that the directory is where it was.
    fn believes(&self) -> bool {
        self.cluster.clients[&READER].believes_place(self.cluster.now, self.dir)
    }

    /// The reader drops what it was told to, and says so. How much that was.
    fn answer(&mut self) -> usize {
        let told = self.cluster.clients.get_mut(&READER).unwrap().take_revocations();
        for &(node, number) in &told {
            self.cluster.ask(READER, node, RequestBody::Dropped { number });
        }
        told.len()
    }

    fn change_as(&mut self, client: u64, member: usize, change: Change) -> RequestId {
        self.numbers += 1;
        let (number, settled, level) = (self.numbers, 1, Level::Written);
        let body = FileBody::Change { number, settled, level, under: None, change };
        self.cluster.ask_file(client, self.members[member], volume(), body)
    }

    fn change(&mut self, member: usize, change: Change) -> RequestId {
        self.change_as(OTHER, member, change)
    }

    /// A change that waits for nobody. What it has made.
    fn done(&mut self, change: Change) -> Option<InodeId> {
        let id = self.change(0, change);
        self.cluster.run(ms(20));
        match self.cluster.file_reply(OTHER, id) {
            Some(FileReplyBody::Changed { outcome: Ok(Done::Tree(done)), .. }) => match *done {
                namespace::Done::Created { attributes, .. } => Some(attributes.inode),
                _ => None,
            },
            Some(FileReplyBody::Changed { outcome: Ok(_), .. }) => None,
            other => panic!("{other:?}"),
        }
    }

    fn is_done(&self, id: RequestId) -> bool {
        matches!(self.cluster.file_reply(OTHER, id), Some(FileReplyBody::Changed { outcome: Ok(_), .. }))
    }

    /// Lets time pass until the directory has moved, within `limit`, and nobody may believe otherwise then.
    fn run_until_moved(&mut self, id: RequestId, limit: Span) {
        let start = self.cluster.now;
        while !self.is_done(id) {
            assert!(self.cluster.now.since(start) < limit, "not within {limit}");
            self.cluster.run(ms(1));
        }
        assert!(!self.believes(), "it is elsewhere, and the reader's kernel does not know");
    }
}

fn a_directory_is_not_moved_while_somebody_believes_where_it_is(bug: Option<Bug>) {
    let mut story = Story::new(bug);
    // What is made in it ends what the reader knows of it, but not where it is.
    let id = story.change(0, make(story.dir, "a"));
    story.cluster.run(ms(20));
    assert!(!story.is_done(id) && story.answer() == 1);
    story.cluster.run(ms(5));
    assert!(story.is_done(id) && story.believes());
    story.done(make(story.dir, "b"));
    assert_eq!(story.answer(), 0, "it was told that before");
    let id = story.change(0, rename("d", "e"));
    story.cluster.run(ms(20));
    story.answer();
    story.run_until_moved(id, ms(5));
}

#[test]
fn who_does_not_answer_is_waited_for_as_long_as_it_may_believe_where_a_directory_is() {
    let mut story = Story::new(None);
    let id = story.change(0, rename("d", "e"));
    story.cluster.run(ms(100));
    assert!(!story.is_done(id));
    story.run_until_moved(id, SESSION_OVER);
    assert_eq!(story.answer(), 1);
}

/// A kernel drops no name of a directory in which it does something itself.
#[test]
fn who_is_to_drop_where_a_directory_is_does_not_wait_behind_who_moves_it() {
    let mut story = Story::new(None);
    let moved = story.change(0, rename("d", "e"));
    let behind = story.change(0, make(ROOT, "a"));
    let own = story.change_as(READER, 0, make(ROOT, "b"));
    story.cluster.run(ms(20));
    assert_eq!([moved, behind].map(|id| story.is_done(id)), [false, false]);
    let told = story.cluster.file_reply(READER, own);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
    story.answer();
    story.run_until_moved(moved, ms(5));
    assert!(story.is_done(behind));
}

fn who_takes_over_moves_no_directory_while_somebody_may_believe_where_it_was(bug: Option<Bug>) {
    let mut story = Story::new(bug);
    (1..3).for_each(|member| story.cluster.connect(READER, story.members[member]));
    story.look(0);
    story.cluster.kill_with_notice(story.members[0]);
    let made = story.change(1, make(ROOT, "a"));
    let moved = story.change(1, rename("d", "e"));
    story.cluster.run(ms(20));
    assert_eq!(story.answer(), 1, "it is asked to drop all but that");
    story.cluster.run(ms(20));
    assert!(story.is_done(made), "and nothing else waits");
    story.run_until_moved(moved, SESSION_OVER);
}

/// Once a session's length was waited for, the same time may come again by this clock: nobody believes anything of before any more.
#[test]
fn a_clock_that_goes_back_does_not_keep_a_directory_where_it_was() {
    let mut story = Story::new(None);
    (1..3).for_each(|member| story.cluster.connect(READER, story.members[member]));
    let next = story.members[1];
    story.cluster.daemons.get_mut(&next).unwrap().offset_ms = 5_000;
    story.cluster.kill_with_notice(story.members[0]);
    let made = story.change(1, make(ROOT, "a"));
    story.cluster.run(ms(20));
    story.answer();
    story.cluster.run(SESSION_OVER);
    assert!(story.is_done(made));
    story.cluster.daemons.get_mut(&next).unwrap().offset_ms = 0;
    let id = story.change(1, rename("d", "e"));
    story.run_until_moved(id, SESSION_OVER);
}

#[test]
fn the_only_one_who_may_believe_where_a_directory_was_moves_it_at_once() {
    let mut story = Story::new(None);
    story.cluster.connect(READER, story.members[1]);
    story.cluster.connect(READER, story.members[2]);
    story.cluster.kill_with_notice(story.members[0]);
    let id = story.change_as(READER, 1, rename("d", "e"));
    story.cluster.run(ms(20));
    story.answer();
    story.cluster.run(ms(20));
    let told = story.cluster.file_reply(READER, id);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
}

fn who_connects_anew_may_still_believe_where_a_directory_is(bug: Option<Bug>) {
    let mut story = Story::new(bug);
    let node = story.members[0];
    let before = story.cluster.clients.get_mut(&READER).unwrap().disconnected(node).unwrap();
    story.cluster.call(node, |shard, _| shard.handle_client_down(before));
    story.cluster.connect(READER, node);
    story.cluster.run(ms(20));
    story.done(make(story.dir, "a"));
    assert!(story.believes());
    let id = story.change(0, rename("d", "e"));
    story.run_until_moved(id, SESSION_OVER);
}

stories! {
    PlaceNotTaken: a_directory_is_not_moved_while_somebody_believes_where_it_is;
    PlacesOfDeadForgotten: who_takes_over_moves_no_directory_while_somebody_may_believe_where_it_was;
    PlacesOfClosedForgotten: who_connects_anew_may_still_believe_where_a_directory_is;
}
