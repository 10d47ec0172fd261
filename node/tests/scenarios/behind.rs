//! Files that are lent to a client, which buffers what it writes: what others see of them, and what becomes of them when the client, or
//! a primary, is slow or dies. Each story is told with its rule in force, and must go wrong without it.

use std::sync::Arc;

use base::{ClientId, Epoch, Seq, Span, WallTime};
use namespace::{
    Answer as TreeAnswer, Ask, Attributes, Born, Change as TreeChange, ClientState, Done as TreeDone,
    Generation, InodeId, LentTo, Make, Op, SetAttributes, SetTime, Site, Who,
};
use node::file::{Answer, Change, FileBody, FileError, FileOf, FileReplyBody, Level, Query};
use node::{
    Attendance, Bug, CAPABILITY_LASTS, CapabilityError, OpenMode, RequestBody, RequestId, Revoked,
    file_object,
};
use replication::Standing;

use crate::cluster::{Flying, ms};
use crate::files::{Daemons, FILE, created_with, write};
use crate::lends::Cell;
use crate::volumes::{name, plant};

mod asked_back;
mod lent_dirs;
mod returned;
mod times;

const SESSION_OVER: Span = Span::from_millis(896);
/// Clients of these stories are ended so soon.
const GONE: Span = Span::from_secs(5);
/// To whom a file is lent, and who wants it.
const HOLDER: u64 = 3;
const OTHER: u64 = 2;

/// So many of its changes a client has under way, at most.
const UNSETTLED: u64 = 512;

/// A volume with a file that is lent to the holder.
struct Story {
    cluster: Daemons,
    members: Vec<u32>,
    inode: InodeId,
    generation: Generation,
    /// How often each client has changed the volume, and the content.
    numbers: [u64; 4],
    flushed: [u64; 4],
}

fn client(program: u64) -> ClientId {
    ClientId { certificate: 1, program }
}

impl Story {
    /// Nothing is lent, and both clients are on record.
    fn new(bug: Option<Bug>) -> Self {
        let gone = |config: &mut node::ShardConfig| config.client_gone = GONE;
        let (cluster, members, _) = plant(created_with(bug, gone));
        let (inode, none) = (InodeId::ROOT, Born { epoch: Epoch::default(), seq: Seq(0) });
        let (numbers, flushed) = ([0; 4], [0; 4]);
        let mut story = Self { cluster, members, inode, generation: Generation(none), numbers, flushed };
        for program in [OTHER, HOLDER] {
            story.cluster.client(program);
            story.cluster.clients.get_mut(&program).unwrap().caches = true;
            let welcome = TreeChange::Welcome { client: client(program), opens: true };
            let told = story.must(program, welcome);
            assert_eq!(told, TreeDone::Welcomed);
            let attendance = Attendance { tenure: None, stamp: 0, open: None };
            let node = story.primary();
            story.cluster.ask_file(program, node, FILE, FileBody::Attend(attendance));
        }
        story
    }

    /// The holder has created a file, which is lent to it.
    fn lent(bug: Option<Bug>) -> Self {
        let mut story = Self::new(bug);
        story.create();
        story
    }

    fn create(&mut self) {
        let (dir, name) = (InodeId::ROOT, name("f"));
        let (mode, umask, is_exclusive, lends) = (0o644, 0, true, true);
        let create = TreeChange::Create { dir, name, make: Make::file(), mode, umask, is_exclusive, lends };
        self.cluster.holds = Some(1);
        let id = self.change(HOLDER, create);
        self.cluster.holds = None;
        self.cluster.run(ms(20));
        let told = self.cluster.file_reply(HOLDER, id);
        let Some(FileReplyBody::Changed { opened: Some(capability), .. }) = told else { panic!("{told:?}") };
        self.inode = capability.source.inode;
        self.cluster.shown.insert(file_object(FILE, self.inode), capability);
        let attributes = self.state();
        self.generation = attributes.lent_to(client(HOLDER)).expect("it was asked for");
        assert!(self.believes(), "it is told with a grant");
    }

    /// Asks whoever leads the volume for a change.
    fn change(&mut self, program: u64, change: TreeChange) -> RequestId {
        self.change_as(program, Op::wanted(Who::root(), change))
    }

    fn change_as(&mut self, program: u64, op: Op) -> RequestId {
        let number = &mut self.numbers[usize::try_from(program).unwrap()];
        *number += 1;
        let (number, settled, level) = (*number, number.saturating_sub(UNSETTLED).max(1), Level::Written);
        let change = Change::Tree(Arc::new(op));
        let body = FileBody::Change { number, settled, level, under: None, change };
        let node = self.primary();
        self.cluster.ask_file(program, node, FILE, body)
    }

    fn must(&mut self, program: u64, change: TreeChange) -> TreeDone {
        let id = self.change(program, change);
        self.cluster.run(ms(50));
        for program in [OTHER, HOLDER] {
            self.answer_as(program);
        }
        self.cluster.run(ms(50));
        crate::volumes::outcome(self.cluster.file_reply(program, id)).unwrap()
    }

    fn primary(&self) -> u32 {
        self.leader().expect("somebody leads it")
    }

    fn leader(&self) -> Option<u32> {
        let leads = |node: &u32| {
            let file = |node| self.cluster.shard(node).file(FILE);
            self.cluster.is_up(*node) && file(*node).is_some_and(|file| file.standing() == Standing::Serving)
        };
        self.members.iter().copied().find(leads)
    }

    /// What the volume has committed.
    fn state(&self) -> Attributes {
        let shard = self.cluster.shard(self.primary());
        let query = namespace::Query { who: Who::root(), ask: Ask::Attributes { inode: self.inode } };
        match shard.file(FILE).unwrap().machine().tree().answer(&query) {
            Ok(TreeAnswer::Attributes(attributes)) => attributes,
            other => panic!("{other:?}"),
        }
    }

    /// Whether the holder counts on what it was told of the file.
    fn believes(&self) -> bool {
        self.cluster.clients[&HOLDER].answers(self.cluster.now, self.inode)
    }

    fn look(&mut self, program: u64) -> RequestId {
        self.look_at(program, self.primary())
    }

    fn look_at(&mut self, program: u64, node: u32) -> RequestId {
        let query = namespace::Query { who: Who::root(), ask: Ask::Attributes { inode: self.inode } };
        self.cluster.ask_file(program, node, FILE, FileBody::Ask(Query::Tree(Arc::new(query))))
    }

    /// Lets time pass until something is so.
    fn until(&mut self, limit: Span, is_so: impl Fn(&Self) -> bool) {
        let start = self.cluster.now;
        while !is_so(self) {
            assert!(self.cluster.now.since(start) < limit, "not within {limit}");
            self.cluster.run(ms(5));
        }
    }

    fn seen(&self, program: u64, id: RequestId) -> Option<Attributes> {
        match self.cluster.file_reply(program, id)? {
            FileReplyBody::Answer(Ok(Answer::Tree(answer))) => match *answer {
                TreeAnswer::Attributes(attributes) => Some(attributes),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    }

    /// Lets time pass until somebody is told how the file is.
    fn until_seen(&mut self, program: u64, id: RequestId, limit: Span) -> Attributes {
        let start = self.cluster.now;
        loop {
            if let Some(seen) = self.seen(program, id) {
                return seen;
            }
            assert!(self.cluster.now.since(start) < limit, "not within {limit}");
            self.cluster.run(ms(5));
        }
    }

    fn cell(&self, program: u64) -> Cell {
        let of = FileOf { volume: FILE, inode: self.inode };
        let object = file_object(FILE, self.inode);
        Cell { client: program, object, of, number: 0, name: "f".to_owned() }
    }

    fn write(&mut self, program: u64, under: Option<Generation>, text: &str) -> Option<FileReplyBody> {
        let number = &mut self.flushed[usize::try_from(program).unwrap()];
        *number += 1;
        let (number, settled, level) = (*number, 1, Level::Written);
        let body = FileBody::Change { number, settled, level, under, change: write(text) };
        self.cell(program).ask(&mut self.cluster, &body)
    }

    /// The holder writes what it has buffered.
    fn flush(&mut self, text: &str) {
        let told = self.write(HOLDER, Some(self.generation), text);
        assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
    }

    fn give_back(&mut self, modified: Option<u64>, is_untouched: bool) -> RequestId {
        self.give_back_with((modified, None), is_untouched)
    }

    /// The same, with permissions that its owner has set.
    fn give_back_with(
        &mut self,
        (modified, mode): (Option<u64>, Option<u16>),
        is_untouched: bool,
    ) -> RequestId {
        let (inode, generation, accessed) = (self.inode, self.generation, None);
        let modified = modified.map(WallTime::from_micros);
        let back =
            TreeChange::Return { inode, generation, modified, accessed, mode, changed: None, is_untouched };
        self.change(HOLDER, back)
    }

    /// The holder says that it has done what it was told to. How much that was.
    fn answer(&mut self) -> usize {
        self.answer_as(HOLDER)
    }

    fn answer_as(&mut self, program: u64) -> usize {
        let Some(client) = self.cluster.clients.get_mut(&program) else { return 0 };
        let told = client.take_revocations();
        for &(node, number) in &told {
            self.cluster.ask(program, node, RequestBody::Dropped { number });
        }
        told.len()
    }

    fn is_asked_back(&self) -> bool {
        let heard = &self.cluster.clients[&HOLDER].heard;
        heard.iter().any(|(_, reply)| matches!(reply, node::Reply::Revoke { what: Revoked::Lend { .. }, .. }))
    }
}

fn who_asks_about_what_a_client_has_waits_for_it(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    let id = story.look(OTHER);
    story.cluster.run(ms(50));
    assert_eq!(story.seen(OTHER, id), None, "only the holder knows");
    assert!(story.is_asked_back());
    story.flush("hello");
    let returned = story.give_back(None, false);
    story.cluster.run(ms(50));
    story.answer();
    let told = story.cluster.file_reply(HOLDER, returned);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
    let seen = story.until_seen(OTHER, id, ms(100));
    assert_eq!((seen.size, seen.lent, seen.last_lend), (5, None, Some(story.generation)));
}

/// By what the volume knows the other may not write, but its owner has let everybody do that.
fn who_may_do_what_is_judged_by_what_the_owner_has_set(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    let (inode, who) = (story.inode, Who::new(1001, 100, &[]).unwrap());
    let open = FileBody::Open { who, inode, mode: OpenMode::ReadWrite };
    let id = story.cluster.ask_file(OTHER, story.primary(), FILE, open);
    story.cluster.run(ms(50));
    assert_eq!(story.cluster.file_reply(OTHER, id), None, "only the holder knows");
    story.flush("hello");
    story.give_back_with((None, Some(0o666)), false);
    story.cluster.run(ms(50));
    story.answer();
    story.cluster.run(ms(100));
    let told = story.cluster.file_reply(OTHER, id);
    assert!(matches!(told, Some(FileReplyBody::Opened { .. })), "{told:?}");
    assert_eq!((story.state().mode, story.state().size), (0o666, 5));
}

#[test]
fn permissions_that_somebody_else_sets_come_after_what_the_owner_has_set() {
    let mut story = Story::lent(None);
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    let id = story.change(OTHER, TreeChange::SetAttributes { inode: story.inode, set });
    story.cluster.run(ms(50));
    assert!(story.cluster.file_reply(OTHER, id).is_none() && story.is_asked_back());
    story.give_back_with((None, Some(0o666)), true);
    story.answer();
    story.cluster.run(ms(100));
    assert!(story.cluster.file_reply(OTHER, id).is_some());
    assert_eq!(story.state().mode, 0o600);
}

#[test]
fn permissions_come_back_from_the_owner_alone() {
    for is_untouched in [true, false] {
        let mut story = Story::lent(None);
        if !is_untouched {
            story.flush("hello");
        }
        let (inode, generation) = (story.inode, story.generation);
        let (modified, accessed, mode) = (None, None, Some(0o666));
        let back =
            TreeChange::Return { inode, generation, modified, accessed, mode, changed: None, is_untouched };
        let id = story.change_as(HOLDER, Op::wanted(Who::new(1001, 100, &[]).unwrap(), back));
        story.cluster.run(ms(100));
        let told = story.cluster.file_reply(HOLDER, id);
        assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
        assert_eq!((story.state().mode, story.state().lent), (0o644, None));
    }
}

fn what_is_lent_to_a_client_is_taken_back_before_it_is_lent_again(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    let inode = story.inode;
    let id = story.change(OTHER, TreeChange::Lend { inode, to: LentTo::Client(client(OTHER)) });
    story.cluster.run(ms(50));
    assert_eq!(story.cluster.file_reply(OTHER, id), None, "the holder has not answered");
    story.flush("hello");
    story.answer();
    story.cluster.run(ms(100));
    let told = crate::volumes::outcome(story.cluster.file_reply(OTHER, id));
    let Ok(TreeDone::Changed { attributes }) = told else { panic!("{told:?}") };
    let lent = attributes.lent.unwrap();
    assert_eq!((attributes.size, lent.to), (5, LentTo::Content), "two have use for it");
    assert!(lent.generation > story.generation);
}

fn what_is_flushed_after_a_lend_has_ended_is_refused(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    story.flush("hello");
    let id = story.look(OTHER);
    let seen = story.until_seen(OTHER, id, ms(11_000));
    assert_eq!(seen.size, 5);
    let told = story.write(HOLDER, Some(story.generation), "hello, world");
    assert_eq!(told, Some(FileReplyBody::Refused(FileError::NotLent)));
}

fn nobody_is_believed_to_have_a_file(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    let Generation(Born { epoch, seq }) = story.generation;
    let other = Generation(Born { epoch, seq: Seq(seq.0 + 1) });
    let told = story.write(OTHER, Some(other), "hello");
    assert_eq!(told, Some(FileReplyBody::Refused(FileError::NotLent)));
    story.flush("HELLO");
}

/// The content is led already, and the disks have enough to do.
fn what_is_flushed_stands_on_a_lend_that_outlives_a_power_cut(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    story.flush("hello");
    story.give_back(None, false);
    story.cluster.run(ms(500));
    let inode = story.inode;
    let content = file_object(FILE, inode);
    let leads = |node: &u32| {
        let file = |node| story.cluster.shard(node).file(content);
        file(*node).is_some_and(|file| file.standing() == Standing::Serving)
    };
    let node = (1..=3).find(leads).unwrap();
    story.cluster.hold_back(|flying| matches!(flying, Flying::Disk { is_durable: true, .. }));
    let lend = TreeChange::Lend { inode, to: LentTo::Client(client(HOLDER)) };
    let TreeDone::Changed { attributes } = story.must(HOLDER, lend) else { panic!("it is lent") };
    let (number, settled, level) = (2, 1, Level::Written);
    let under = attributes.lent_to(client(HOLDER));
    assert!(under.is_some());
    let body = FileBody::Change { number, settled, level, under, change: write("HELLO") };
    let id = story.cluster.ask_file(HOLDER, node, content, body);
    story.cluster.run(ms(200));
    assert_eq!(story.cluster.file_reply(HOLDER, id), None);
    story.cluster.let_go();
    story.cluster.run(ms(200));
    let told = story.cluster.file_reply(HOLDER, id);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
}

/// Its answer comes when it has been given something else since.
fn a_late_answer_takes_nothing_that_was_granted_since(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    let id = story.look(OTHER);
    story.until_seen(OTHER, id, ms(11_000));
    let late = story.cluster.clients.get_mut(&HOLDER).unwrap().take_revocations();
    let id = story.look(HOLDER);
    story.until_seen(HOLDER, id, ms(100));
    assert!(story.believes(), "by now it is nobody's, and anybody may know it");
    for (node, number) in late {
        story.cluster.ask(HOLDER, node, RequestBody::Dropped { number });
    }
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    let id = story.change(OTHER, TreeChange::SetAttributes { inode: story.inode, set });
    story.cluster.run(ms(50));
    assert!(story.cluster.file_reply(OTHER, id).is_none() || !story.believes());
    story.answer();
    story.cluster.run(ms(50));
    assert!(story.cluster.file_reply(OTHER, id).is_some());
}

fn what_is_lent_to_a_client_goes_back_when_it_ends(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    story.flush("hello");
    for node in story.members.clone() {
        story.cluster.disconnect(HOLDER, node);
    }
    story.cluster.clients.get_mut(&HOLDER).unwrap().is_silent = true;
    story.cluster.run(GONE * 2 + ms(2_000));
    let Attributes { size, lent, last_lend, .. } = story.state();
    assert_eq!((size, lent, last_lend), (5, None, Some(story.generation)));
    let tree = story.cluster.shard(story.primary()).file(FILE).unwrap().machine().tree();
    assert_eq!(tree.client(client(HOLDER)), Some(ClientState::Ended));
}

fn what_the_content_was_asked_to_change_is_not_untouched(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    story.flush("hello");
    story.give_back(None, true);
    story.cluster.run(ms(200));
    let Attributes { size, lent, last_lend, .. } = story.state();
    assert_eq!((size, lent, last_lend), (5, None, Some(story.generation)));
}

fn who_is_there_has_time_to_flush(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    let id = story.look(OTHER);
    story.cluster.run(ms(3_000));
    story.flush("hello");
    story.give_back(None, false);
    let seen = story.until_seen(OTHER, id, ms(100));
    assert_eq!(seen.size, 5);
}

/// All daemons are frozen until no lease and no connection is left, and somebody else is quicker to come back.
fn who_could_not_come_is_waited_for(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    let members = story.members.clone();
    members.iter().for_each(|&node| story.cluster.freeze(node));
    story.cluster.run(ms(3_000));
    for &node in &members {
        story.cluster.disconnect(HOLDER, node);
        story.cluster.thaw(node);
    }
    let query = namespace::Query { who: Who::root(), ask: Ask::Attributes { inode: story.inode } };
    let body = FileBody::Ask(Query::Tree(Arc::new(query)));
    let mut id = story.cluster.ask_file(OTHER, members[0], FILE, body.clone());
    for _ in 0..30 {
        story.cluster.run(ms(50));
        match story.cluster.file_reply(OTHER, id) {
            Some(FileReplyBody::Answer(_)) => panic!("it is told what the holder has not sent yet"),
            Some(_) => id = story.cluster.ask_file(OTHER, members[0], FILE, body.clone()),
            None => {}
        }
    }
    story.cluster.connect(HOLDER, story.primary());
    story.cluster.run(ms(50));
    assert!(story.is_asked_back());
    story.flush("hello");
    story.answer();
    assert_eq!(story.until_seen(OTHER, id, ms(300)).size, 5);
}

/// It has given the file back, and answers while the content ends the lend.
#[test]
fn who_answers_while_the_lend_ends_may_know_it_again() {
    let mut story = Story::lent(None);
    story.flush("hello");
    let id = story.look(OTHER);
    story.cluster.run(ms(50));
    story.cluster.hold_back(|flying| matches!(flying, Flying::Errand { .. } | Flying::ErrandReply { .. }));
    story.give_back(None, false);
    story.cluster.run(ms(50));
    story.answer();
    story.cluster.run(ms(50));
    story.cluster.let_go();
    story.until_seen(OTHER, id, ms(2_000));
    let id = story.look(HOLDER);
    story.until_seen(HOLDER, id, ms(100));
    assert!(story.believes());
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    let id = story.change(OTHER, TreeChange::SetAttributes { inode: story.inode, set });
    story.cluster.run(ms(50));
    story.answer();
    story.cluster.run(ms(50));
    assert!(story.cluster.file_reply(OTHER, id).is_some());
}

#[test]
fn who_is_gone_is_waited_for_as_long_as_it_may_believe() {
    is_waited_for_as_long_as_it_may_believe(Story::lent(None));
}

/// A client may be quicker than the peers when a daemon begins.
#[test]
fn who_was_there_before_its_daemon_had_peers_has_come() {
    let mut story = Story::lent(None);
    let node = story.primary();
    story.cluster.isolate(node);
    story.cluster.mend();
    is_waited_for_as_long_as_it_may_believe(story);
}

fn is_waited_for_as_long_as_it_may_believe(mut story: Story) {
    story.flush("hello");
    story.cluster.clients.get_mut(&HOLDER).unwrap().is_silent = true;
    let node = story.primary();
    let heard = story.cluster.clients.get_mut(&HOLDER).unwrap().disconnected(node).unwrap();
    story.cluster.call(node, |shard, _| shard.handle_client_down(heard));
    assert!(story.believes());
    let id = story.look(OTHER);
    let start = story.cluster.now;
    let seen = story.until_seen(OTHER, id, SESSION_OVER + ms(100));
    assert!(!story.believes());
    assert!(story.cluster.now.since(start) > ms(500), "it might have written more");
    assert_eq!(seen.size, 5);
}

#[test]
fn what_was_left_alone_leaves_nothing() {
    let mut story = Story::lent(None);
    story.cluster.hold_back(|flying| matches!(flying, Flying::Errand { .. }));
    story.give_back(Some(77), true);
    story.cluster.run(ms(50));
    let Attributes { mtime, lent, last_lend, .. } = story.state();
    assert_eq!((mtime, lent, last_lend), (WallTime::from_micros(77), None, None));
    assert!(story.believes(), "what it has told it knows");
    let content = file_object(FILE, story.inode);
    assert!(!(1..=3).any(|node| story.cluster.shard(node).files().any(|object| object == content)));
}

#[test]
fn times_that_a_user_sets_at_the_holder_are_the_files() {
    let mut story = Story::lent(None);
    story.flush("hello");
    story.give_back(Some(77), false);
    story.cluster.run(ms(100));
    let Attributes { size, mtime, lent, .. } = story.state();
    assert_eq!((size, mtime, lent), (5, WallTime::from_micros(77), None));
    assert_eq!(story.cell(OTHER).stat(&mut story.cluster).modified, WallTime::from_micros(77));
}

/// It said so, and nobody of the content was asked since: so what a user has set has to come through all the same.
#[test]
fn times_that_a_user_sets_are_the_files_though_nothing_was_flushed() {
    let mut story = Story::lent(None);
    story.give_back(Some(77), false);
    story.cluster.run(ms(200));
    let Attributes { size, mtime, lent, .. } = story.state();
    assert_eq!((size, mtime, lent), (0, WallTime::from_micros(77), None));
}

#[test]
fn what_two_want_is_lent_to_the_content_for_a_while() {
    let mut story = Story::lent(None);
    let inode = story.inode;
    let lend = |program| TreeChange::Lend { inode, to: LentTo::Client(client(program)) };
    let id = story.look(OTHER);
    story.give_back(None, true);
    story.answer();
    story.until_seen(OTHER, id, ms(100));
    let told = story.must(HOLDER, lend(HOLDER));
    let TreeDone::Changed { attributes } = told else { panic!("{told:?}") };
    assert_eq!(attributes.lent.unwrap().to, LentTo::Content);
    let told = story.must(OTHER, lend(OTHER));
    let TreeDone::Changed { attributes: again } = told else { panic!("{told:?}") };
    assert_eq!(again.lent, attributes.lent, "it is the same lend");
    assert!(matches!(story.write(OTHER, None, "hello"), Some(FileReplyBody::Changed { outcome: Ok(_), .. })));
    story.cluster.run(ms(11_000));
    assert_eq!(story.state().lent, None);
    let told = story.must(OTHER, lend(OTHER));
    let TreeDone::Changed { attributes } = told else { panic!("{told:?}") };
    assert!(attributes.lent_to(client(OTHER)).is_some(), "by now only one wants it");
    assert_eq!(attributes.size, 5);
}

#[test]
fn who_writes_through_has_it_taken_back() {
    let mut story = Story::lent(None);
    story.flush("hello");
    let number = 1;
    let (settled, level, under) = (1, Level::Written, None);
    let body = FileBody::Change { number, settled, level, under, change: write("HE") };
    let content = file_object(FILE, story.inode);
    let leads = |node: &u32| {
        let file = |node| story.cluster.shard(node).file(content);
        file(*node).is_some_and(|file| file.standing() == Standing::Serving)
    };
    let node = (1..=3).find(leads).unwrap();
    let id = story.cluster.ask_file(OTHER, node, content, body);
    story.cluster.run(ms(300));
    assert_eq!(story.cluster.file_reply(OTHER, id), None);
    assert!(story.is_asked_back());
    story.flush("hello, world");
    story.answer();
    story.cluster.run(ms(300));
    let told = story.cluster.file_reply(OTHER, id);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
    assert_eq!(story.cell(OTHER).stat(&mut story.cluster).size, 12);
    let told = story.write(HOLDER, Some(story.generation), "late");
    assert_eq!(told, Some(FileReplyBody::Refused(FileError::NotLent)));
}

/// What the content asks the volume for on the other's behalf waits for what the holder sends it.
#[test]
fn who_writes_through_waits_for_what_the_holder_has_not_sent_yet() {
    let mut story = Story::lent(None);
    let (settled, level, under) = (1, Level::Written, None);
    let body = FileBody::Change { number: 1, settled, level, under, change: write("HE") };
    let id = story.cluster.ask_file(OTHER, 1, file_object(FILE, story.inode), body);
    story.cluster.run(ms(300));
    assert_eq!(story.cluster.file_reply(OTHER, id), None);
    assert!(story.is_asked_back());
    story.flush("hello, world");
    story.answer();
    story.cluster.run(ms(300));
    let told = story.cluster.file_reply(OTHER, id);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
    assert_eq!(story.cell(OTHER).stat(&mut story.cluster).size, 12);
}

#[test]
fn times_that_somebody_else_sets_come_after_what_was_buffered() {
    let mut story = Story::lent(None);
    let then = WallTime::from_micros(77);
    let set = SetAttributes { mtime: Some(SetTime::To(then)), ..SetAttributes::default() };
    let id = story.change(OTHER, TreeChange::SetAttributes { inode: story.inode, set });
    story.cluster.run(ms(50));
    assert_eq!(story.cluster.file_reply(OTHER, id), None);
    story.flush("hello");
    story.answer();
    story.cluster.run(ms(200));
    assert!(story.cluster.file_reply(OTHER, id).is_some());
    let Attributes { size, mtime, .. } = story.state();
    assert_eq!((size, mtime), (5, then));
}

#[test]
fn another_name_leaves_a_file_with_its_holder() {
    let mut story = Story::lent(None);
    let link = TreeChange::Link { inode: story.inode, dir: InodeId::ROOT, name: name("g") };
    let id = story.change(OTHER, link);
    story.cluster.run(ms(50));
    assert_eq!(story.answer(), 1, "it is told that something is different");
    story.cluster.run(ms(50));
    assert!(story.cluster.file_reply(OTHER, id).is_some());
    assert!(!story.is_asked_back());
    assert_eq!(story.state().lent_to(client(HOLDER)), Some(story.generation));
    let id = story.look(HOLDER);
    let seen = story.until_seen(HOLDER, id, ms(50));
    assert_eq!((seen.links, seen.lent_to(client(HOLDER))), (2, Some(story.generation)));
    assert!(story.believes());
}

#[test]
fn who_may_be_run_by_others_is_had_by_nobody() {
    let mut story = Story::lent(None);
    let set = SetAttributes { mode: Some(0o4755), ..SetAttributes::default() };
    let id = story.change(OTHER, TreeChange::SetAttributes { inode: story.inode, set });
    story.cluster.run(ms(50));
    assert!(story.cluster.file_reply(OTHER, id).is_none() && story.is_asked_back());
    story.give_back(None, true);
    story.answer();
    story.cluster.run(ms(50));
    assert_eq!((story.state().mode, story.state().lent), (0o4755, None));
}

#[test]
fn who_comes_back_is_asked_again_and_may_flush() {
    let mut story = Story::lent(None);
    let node = story.primary();
    let id = story.look(OTHER);
    story.cluster.run(ms(50));
    story.cluster.disconnect(HOLDER, node);
    story.cluster.clients.get_mut(&HOLDER).unwrap().heard.clear();
    story.cluster.connect(HOLDER, node);
    story.cluster.run(ms(2_000));
    assert!(story.is_asked_back() && story.seen(OTHER, id).is_none());
    story.flush("hello");
    story.answer();
    assert_eq!(story.until_seen(OTHER, id, ms(200)).size, 5);
}

fn the_next_primary_takes_back_what_the_one_before_has_lent(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    story.flush("hello");
    let dead = story.primary();
    story.cluster.kill_with_notice(dead);
    let next = story.members[1];
    if !story.cluster.clients[&HOLDER].is_connected(next) {
        story.cluster.connect(HOLDER, next);
    }
    let query = namespace::Query { who: Who::root(), ask: Ask::Attributes { inode: story.inode } };
    let body = FileBody::Ask(Query::Tree(Arc::new(query)));
    let mut id = story.cluster.ask_file(OTHER, next, FILE, body.clone());
    for _ in 0..60 {
        story.cluster.run(ms(100));
        if story.is_asked_back() {
            break;
        }
        id = story.cluster.ask_file(OTHER, next, FILE, body.clone());
    }
    story.flush("hello, world");
    assert_eq!(story.seen(OTHER, id), None);
    story.answer();
    let seen = story.until_seen(OTHER, id, ms(300));
    assert_eq!((seen.size, seen.lent), (12, None));
}

/// All daemons are away for so long that what opens the file has expired long ago when they return. Nobody else has asked for it since.
#[test]
fn what_is_buffered_is_flushed_however_long_nobody_was_there() {
    let mut story = Story::lent(None);
    let capability = story.cluster.shown[&file_object(FILE, story.inode)].clone();
    for node in story.members.clone() {
        story.cluster.kill(node);
    }
    story.cluster.run(CAPABILITY_LASTS * 100);
    for node in story.members.clone() {
        story.cluster.start(node);
    }
    story.cluster.run(ms(6_000));
    let volume = Cell { object: FILE, ..story.cell(HOLDER) };
    let attendance = Attendance { tenure: None, stamp: 0, open: None };
    volume.ask(&mut story.cluster, &FileBody::Attend(attendance));
    let told = story.write(HOLDER, Some(story.generation), "hello");
    let expired = |told: &FileReplyBody| {
        matches!(told, FileReplyBody::Refused(FileError::Capability(CapabilityError::Expired { .. })))
    };
    assert!(told.as_ref().is_some_and(expired), "{told:?}");
    let renewed = volume.ask(&mut story.cluster, &FileBody::Renew { capability });
    let Some(FileReplyBody::Opened { attributes, capability }) = renewed else { panic!("{renewed:?}") };
    assert_eq!(attributes.lent_to(client(HOLDER)), Some(story.generation), "it is lent to it still");
    story.cluster.shown.insert(file_object(FILE, story.inode), capability);
    story.flush("hello");
    let returned = story.give_back(None, false);
    story.cluster.run(ms(100));
    let told = story.cluster.file_reply(HOLDER, returned);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
    let id = story.look(OTHER);
    assert_eq!(story.until_seen(OTHER, id, ms(100)).size, 5);
}

#[test]
fn what_loses_its_last_name_stays_with_who_has_it_open() {
    let mut story = Story::lent(None);
    let site = Site::new(InodeId::ROOT, name("f"));
    let id = story.change(OTHER, TreeChange::Unlink { site, holders: Vec::new(), removed: None });
    story.cluster.run(ms(50));
    story.answer();
    story.cluster.run(ms(50));
    assert!(story.cluster.file_reply(OTHER, id).is_some());
    assert!(!story.is_asked_back());
    let Attributes { links, lent, .. } = story.state();
    assert_eq!((links, lent.unwrap().generation), (0, story.generation));
    story.flush("hello");
}

#[test]
fn who_takes_no_grants_is_lent_nothing() {
    let mut story = Story::new(None);
    story.cluster.clients.get_mut(&OTHER).unwrap().caches = false;
    let (dir, name, make) = (InodeId::ROOT, name("f"), Make::file());
    let create =
        TreeChange::Create { dir, name, make, mode: 0o644, umask: 0, is_exclusive: true, lends: true };
    let told = story.must(OTHER, create);
    let TreeDone::Created { attributes, .. } = told else { panic!("{told:?}") };
    assert_eq!(attributes.lent, None);
}

#[test]
fn what_is_read_of_a_file_that_changes_is_read_under_its_lend() {
    let mut story = Story::lent(None);
    story.flush("hello");
    let read = |under| FileBody::Ask(Query::Read { offset: 0, length: 9, under });
    let told = story.cell(HOLDER).ask(&mut story.cluster, &read(Some(story.generation)));
    assert_eq!(told, crate::files::data("hello"));
    story.give_back(None, false);
    story.cluster.run(ms(100));
    let told = story.cell(HOLDER).ask(&mut story.cluster, &read(Some(story.generation)));
    assert_eq!(told, Some(FileReplyBody::Answer(Err(FileError::NotLent))));
    let told = story.cell(OTHER).ask(&mut story.cluster, &read(None));
    assert_eq!(told, crate::files::data("hello"));
}

stories! {
    LendToTwo: what_is_lent_to_a_client_is_taken_back_before_it_is_lent_again;
    FlushNotFenced: what_is_flushed_after_a_lend_has_ended_is_refused;
    LendInMemory: the_next_primary_takes_back_what_the_one_before_has_lent;
    RecallNotWaitedFor: who_asks_about_what_a_client_has_waits_for_it;
    JudgedByOldMode: who_may_do_what_is_judged_by_what_the_owner_has_set;
    ConfirmNotDurable: what_is_flushed_stands_on_a_lend_that_outlives_a_power_cut;
    ConfirmNotAsked: nobody_is_believed_to_have_a_file;
    LateAnswerDropsGrant: a_late_answer_takes_nothing_that_was_granted_since;
    ClientLendForgotten: what_is_lent_to_a_client_goes_back_when_it_ends;
    UntouchedWithContent: what_the_content_was_asked_to_change_is_not_untouched;
    SlowFlushCutOff: who_is_there_has_time_to_flush;
    ReturnNotAwaited: who_could_not_come_is_waited_for;
}
