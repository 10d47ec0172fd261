//! What clients have of a volume in their caches, and what is changed there. Each story is told with its rule in force, and
//! must go wrong without it.

use std::sync::Arc;

use base::{ClientId, ObjectId, Span, WallTime};
use namespace::{Ask, Change as TreeChange, ClientState, InodeId, Make, Op, Root, SetAttributes, Who};
use node::file::{Change, FileBody, FileReplyBody, Level, Query};
use node::{Bug, RequestBody, VolumeName, volume_object};

use crate::access::name;
use crate::cluster::{Cluster, Flying, ms};
use crate::files::Daemons;

const SESSION_OVER: Span = Span::from_millis(896);
const ROOT: InodeId = InodeId::ROOT;
/// Who has something in a cache, and who changes it.
const READER: u64 = 1;
const OTHER: u64 = 2;

/// A volume, and who leads it.
struct Story {
    cluster: Daemons,
    members: Vec<u32>,
    numbers: u64,
}

fn volume() -> ObjectId {
    volume_object(ROOT)
}

impl Story {
    fn new(bug: Option<Bug>) -> Self {
        let mut cluster = Cluster::with(3, 3, bug);
        let members: Vec<u32> = cluster.map.members(volume()).into_iter().map(|node| node.0).collect();
        cluster.client(READER);
        cluster.client(OTHER);
        cluster.clients.get_mut(&READER).unwrap().caches = true;
        let id = cluster.ask_file(OTHER, members[0], volume(), FileBody::Create);
        cluster.run(ms(50));
        assert_eq!(cluster.file_reply(OTHER, id), Some(FileReplyBody::Exists));
        let mut story = Self { cluster, members, numbers: 0 };
        let name = VolumeName::parse("home").unwrap();
        let id =
            story.change(0, Change::Plant(Root { time: WallTime::ZERO, uid: 0, gid: 0, mode: 0o777, name }));
        story.cluster.run(ms(50));
        assert!(story.is_changed(id));
        story
    }

    /// The same, and the reader has the root in its cache.
    fn cached(bug: Option<Bug>) -> Self {
        let mut story = Self::new(bug);
        for _ in 0..2 {
            story.look(0);
        }
        assert!(story.believes(), "the second time it is on record");
        story
    }

    /// The reader looks the root up at a member.
    fn look(&mut self, member: usize) {
        self.ask(member);
        self.cluster.run(ms(20));
    }

    fn ask(&mut self, member: usize) {
        let query = namespace::Query { who: Who::root(), ask: Ask::Attributes { inode: ROOT } };
        let body = FileBody::Ask(Query::Tree(Arc::new(query)));
        self.cluster.ask_file(READER, self.members[member], volume(), body);
    }

    /// The reader believes what it has in its cache of the root.
    fn believes(&self) -> bool {
        self.cluster.clients[&READER].answers(self.cluster.now, ROOT)
    }

    /// The reader says that it dropped what it was told to. How much that was.
    fn answer(&mut self) -> usize {
        let told = self.cluster.clients.get_mut(&READER).unwrap().take_revocations();
        for &(node, number) in &told {
            self.cluster.ask(READER, node, RequestBody::Dropped { number });
        }
        told.len()
    }

    /// The other client asks a member for a change.
    fn change(&mut self, member: usize, change: Change) -> node::RequestId {
        self.change_as(OTHER, member, change)
    }

    fn change_as(&mut self, client: u64, member: usize, change: Change) -> node::RequestId {
        self.numbers += 1;
        let (number, settled, level) = (self.numbers, 1, Level::Written);
        let body = FileBody::Change { number, settled, level, under: None, change };
        self.cluster.ask_file(client, self.members[member], volume(), body)
    }

    /// The other client makes something in the root.
    fn make(&mut self, member: usize, text: &str) -> node::RequestId {
        self.change(member, make(text))
    }

    fn is_changed(&self, id: node::RequestId) -> bool {
        matches!(self.cluster.file_reply(OTHER, id), Some(FileReplyBody::Changed { outcome: Ok(_), .. }))
    }

    /// Lets time pass until the change is done, within `limit`, and nobody may believe otherwise then.
    fn run_until_changed(&mut self, id: node::RequestId, limit: Span) -> Span {
        let start = self.cluster.now;
        while !self.is_changed(id) {
            assert!(self.cluster.now.since(start) < limit, "not within {limit}");
            self.cluster.run(ms(1));
        }
        assert!(!self.believes(), "the change is done, and the reader does not know");
        self.cluster.now.since(start)
    }

    /// The other client asks a member again and again until something is made.
    fn make_anyhow(&mut self, member: usize, limit: Span) -> Span {
        let start = self.cluster.now;
        let number = self.numbers;
        loop {
            // However often it is asked for, it is one change.
            self.numbers = number;
            let id = self.make(member, "a");
            for _ in 0..200 {
                if self.is_changed(id) {
                    assert!(!self.believes(), "the change is done, and the reader does not know");
                    return self.cluster.now.since(start);
                }
                if self.cluster.file_reply(OTHER, id).is_some() {
                    break;
                }
                self.cluster.run(ms(1));
            }
            self.cluster.run(ms(5));
            assert!(self.cluster.now.since(start) < limit, "not within {limit}");
        }
    }
}

fn op(change: TreeChange) -> Change {
    Change::Tree(Arc::new(Op::wanted(Who::root(), change)))
}

fn make(text: &str) -> Change {
    let (dir, name) = (ROOT, name(text));
    op(TreeChange::Create {
        dir,
        name,
        make: Make::Directory,
        mode: 0o755,
        umask: 0,
        is_exclusive: true,
        lends: false,
    })
}

fn a_change_waits_for_whoever_has_it_in_a_cache(bug: Option<Bug>) {
    let mut story = Story::cached(bug);
    let id = story.make(0, "a");
    story.cluster.run(ms(20));
    assert!(!story.is_changed(id), "the reader has not answered");
    assert_eq!(story.answer(), 1);
    story.run_until_changed(id, ms(5));
}

fn whoever_does_not_answer_is_waited_for_as_long_as_it_may_believe(bug: Option<Bug>) {
    let mut story = Story::cached(bug);
    story.cluster.clients.get_mut(&READER).unwrap().is_silent = true;
    // It does not even hear it.
    let (node, now) = (story.members[0], story.cluster.now);
    let heard = story.cluster.clients.get_mut(&READER).unwrap().disconnected(node).unwrap();
    story.cluster.call(node, |shard, _| shard.handle_client_down(heard));
    assert!(story.believes());
    let id = story.make(0, "a");
    let took = story.run_until_changed(id, SESSION_OVER + ms(10));
    assert!(now + took <= now + SESSION_OVER + ms(1));
}

/// By a twentieth: that is within what daemons wait for, and so it learns nothing too late.
#[test]
fn a_client_whose_clock_is_slow_or_fast_shows_nothing_that_is_over() {
    for percent in [95, 105] {
        let mut story = Story::cached(None);
        let reader = story.cluster.clients.get_mut(&READER).unwrap();
        reader.has_clock_at(percent);
        story.cluster.run(ms(1_000));
        assert!(story.believes());
        story.cluster.clients.get_mut(&READER).unwrap().is_silent = true;
        let node = story.members[0];
        let heard = story.cluster.clients.get_mut(&READER).unwrap().disconnected(node).unwrap();
        story.cluster.call(node, |shard, _| shard.handle_client_down(heard));
        let id = story.make(0, "a");
        story.run_until_changed(id, SESSION_OVER + ms(10));
    }
}

/// Two changes are under way, and something is asked between them: when the first is done it is answered.
fn nothing_is_granted_that_a_change_under_way_touches(bug: Option<Bug>) {
    let mut story = Story::cached(bug);
    let first = story.make(0, "a");
    story.cluster.hold_back(Flying::is_append);
    story.answer();
    story.ask(0);
    let before = story.cluster.held.len();
    let second = story.make(0, "b");
    let later = story.cluster.held.split_off(before);
    assert!(before > 0 && !story.is_changed(first));
    story.cluster.let_go_but(Flying::is_append);
    assert!(story.is_changed(first) && !story.is_changed(second));
    story.cluster.held.extend(later);
    story.cluster.let_go();
    story.cluster.run(ms(100));
    assert!(story.is_changed(second));
    assert!(!story.believes(), "what it was told is older than the second change");
}

/// The primary cannot reach anybody, and when its lease is nearly over it stands still.
fn nobody_is_confirmed_beyond_the_lease_of_what_it_has_in_a_cache(bug: Option<Bug>) {
    let mut story = Story::cached(bug);
    story.cut_off_primary();
    story.cluster.freeze(story.members[0]);
    story.make_anyhow(1, ms(5_000));
}

/// It is asked when its lease is nearly over.
fn nothing_is_granted_that_the_lease_does_not_cover(bug: Option<Bug>) {
    let mut story = Story::new(bug);
    story.look(0);
    story.cut_off_primary();
    story.look(0);
    story.cluster.freeze(story.members[0]);
    story.make_anyhow(1, ms(5_000));
}

fn whoever_is_granted_something_is_on_record(bug: Option<Bug>) {
    let mut story = Story::new(bug);
    story.cluster.hold_back(|flying| matches!(flying, Flying::File { .. }));
    story.look(0);
    story.cluster.kill_with_notice(story.members[0]);
    story.cluster.held.clear();
    story.cluster.let_go();
    story.make_anyhow(1, ms(5_000));
}

fn whoever_takes_over_asks_who_has_something_in_a_cache(bug: Option<Bug>) {
    let mut story = Story::cached(bug);
    story.cluster.kill_with_notice(story.members[0]);
    assert!(story.believes(), "it does not know that its daemon is gone");
    let took = story.make_anyhow(1, ms(5_000));
    assert!(took >= ms(400), "{took}");
}

/// The reader does not hear from the successor, and hears nothing wrong from the daemon that it asked.
fn whoever_gives_a_lease_up_says_so_to_who_has_something_in_a_cache(bug: Option<Bug>) {
    let mut story = Story::cached(bug);
    story.cluster.drain(story.members[0]);
    story.make_anyhow(1, ms(5_000));
}

impl Story {
    /// The primary is alone with its clients, and its lease is nearly over.
    fn cut_off_primary(&mut self) {
        let primary = self.members[0];
        for other in self.members[1..].iter().copied() {
            self.cluster.cut(primary, other);
        }
        let left = |cluster: &Daemons| {
            let until = cluster.shard(primary).leases().valid_until(cluster.now, volume());
            until.map_or(Span::ZERO, |until| until.since(cluster.now))
        };
        self.cluster.run_until(ms(2_500), |cluster| left(cluster) <= ms(300));
        assert!(left(&self.cluster) > ms(250));
    }
}

#[test]
fn whoever_says_at_once_that_it_dropped_everything_costs_a_takeover_no_time() {
    let mut story = Story::cached(None);
    story.cluster.connect(READER, story.members[1]);
    story.cluster.connect(READER, story.members[2]);
    story.cluster.kill_with_notice(story.members[0]);
    let id = story.make(1, "a");
    story.cluster.run(ms(20));
    assert!(!story.is_changed(id));
    assert_eq!(story.answer(), 1);
    story.cluster.run(ms(5));
    assert!(story.is_changed(id));
}

#[test]
fn a_volume_whose_changes_wait_for_a_grace_keeps_its_lease() {
    let mut story = Story::cached(None);
    story.cluster.kill_with_notice(story.members[0]);
    let id = story.make(1, "a");
    story.run_until_changed(id, SESSION_OVER + ms(20));
}

#[test]
fn a_volume_that_is_in_a_cache_is_not_idle() {
    let mut story = Story::cached(None);
    for _ in 0..2 {
        story.cluster.run(ms(30_000));
        assert!(story.believes());
        story.look(0);
    }
    story.cluster.clients.get_mut(&READER).unwrap().is_silent = true;
    story.cluster.run(ms(30_000));
    assert_eq!(story.cluster.shard(story.members[0]).session_count(), 1, "the reader's is over");
    let id = story.make(0, "a");
    story.cluster.run(ms(50));
    assert!(story.is_changed(id), "nobody is waited for");
}

#[test]
fn a_volume_about_which_nobody_asks_for_long_is_idle_and_in_no_cache() {
    let mut story = Story::cached(None);
    story.cluster.run(ms(45_000));
    assert!(!story.believes());
    let id = story.make(0, "a");
    story.run_until_changed(id, ms(50));
}

#[test]
fn who_has_nothing_but_a_cache_is_on_record_as_long_as_its_session_lasts() {
    let mut story = Story::cached(None);
    assert_eq!(story.state_of_reader(), Some(ClientState::Caching));
    story.cluster.clients.get_mut(&READER).unwrap().is_silent = true;
    story.cluster.run(SESSION_OVER + ms(1_000));
    assert_eq!(story.state_of_reader(), None);
}

#[test]
fn a_new_connection_of_the_same_client_is_not_waited_for() {
    let mut story = Story::cached(None);
    let node = story.members[0];
    let before = story.cluster.clients.get_mut(&READER).unwrap().disconnected(node).unwrap();
    story.cluster.call(node, |shard, _| shard.handle_client_down(before));
    let id = story.make(0, "a");
    story.cluster.run(ms(20));
    assert!(!story.is_changed(id));
    story.cluster.connect(READER, node);
    story.cluster.run(ms(5));
    assert!(story.is_changed(id), "it has said that it dropped what it had");
}

#[test]
fn changes_that_touch_nothing_of_it_do_not_wait() {
    let mut story = Story::new(None);
    let id = story.make(0, "d");
    story.cluster.run(ms(20));
    assert!(story.is_changed(id));
    for _ in 0..2 {
        story.look(0);
    }
    let blocked = story.make(0, "a");
    let after = story.make(0, "b");
    let dir = story.inode_of("d");
    let set = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    let other = story.change(0, op(TreeChange::SetAttributes { inode: dir, set }));
    story.cluster.run(ms(20));
    assert_eq!([blocked, after, other].map(|id| story.is_changed(id)), [false, false, true]);
    story.answer();
    story.cluster.run(ms(20));
    assert_eq!([blocked, after].map(|id| story.is_changed(id)), [true, true]);
}

#[test]
fn ones_own_change_leaves_ones_own_grant_alone() {
    let mut story = Story::cached(None);
    let id = story.change_as(READER, 0, make("a"));
    story.cluster.run(ms(20));
    let told = story.cluster.file_reply(READER, id);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
    assert!(story.believes());
    assert_eq!(story.answer(), 0, "and nobody was told to drop anything");
}

#[test]
fn the_reply_to_ones_own_change_says_how_the_directory_is() {
    let mut story = Story::new(None);
    story.change_as(READER, 0, make("a"));
    story.cluster.run(ms(20));
    assert_eq!(story.cluster.clients[&READER].changed, [], "nothing is granted of it");
    (0..2).for_each(|_| story.look(0));
    story.change_as(READER, 0, make("b"));
    story.change_as(OTHER, 0, make("c"));
    story.cluster.run(ms(20));
    let [root] = &story.cluster.clients[&READER].changed[..] else { panic!("one change, one directory") };
    assert_eq!((root.inode, root.size), (ROOT, 2), "as it was before anybody else changed it");
}

impl Story {
    fn state_of_reader(&self) -> Option<ClientState> {
        let tree = self.cluster.shard(self.members[0]).file(volume()).unwrap().machine().tree();
        tree.client(ClientId { certificate: 1, program: READER })
    }

    fn inode_of(&self, text: &str) -> InodeId {
        let tree = self.cluster.shard(self.members[0]).file(volume()).unwrap().machine().tree();
        match tree.part(&namespace::Key::Entry(ROOT, name(text))) {
            Some(namespace::Part::Entry(entry)) => entry.inode,
            other => panic!("{other:?}"),
        }
    }
}

stories! {
    GrantsIgnored: a_change_waits_for_whoever_has_it_in_a_cache;
    RevocationNotWaitedFor: whoever_does_not_answer_is_waited_for_as_long_as_it_may_believe;
    GrantedBeforeOutcome: nothing_is_granted_that_a_change_under_way_touches;
    ConfirmedWithoutCover: nobody_is_confirmed_beyond_the_lease_of_what_it_has_in_a_cache;
    GrantedWithoutCover: nothing_is_granted_that_the_lease_does_not_cover;
    GrantedOffRecord: whoever_is_granted_something_is_on_record;
    GrantsOfDeadNotAskedFor: whoever_takes_over_asks_who_has_something_in_a_cache;
    ReleasedWithGrants: whoever_gives_a_lease_up_says_so_to_who_has_something_in_a_cache;
}
