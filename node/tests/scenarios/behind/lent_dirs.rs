//! Directories that are lent to the client that makes them, and creates files there by itself: what others see of them.

use base::{Members, NodeId, WallTime};
use bytes::Bytes;
use namespace::{
    Answer as TreeAnswer, Ask, Attributes, Change as TreeChange, ClientState, Done as TreeDone, InodeId,
    LentTo, Make, NameError, RenameHow, SetAttributes, SetTime, Site, Who, XattrHow, XattrName,
};
use node::Bug;
use node::file::{Answer, FileBody, FileError, FileReplyBody, Query};
use node::{Attendance, RequestId};

use super::{FILE, GONE, HOLDER, OTHER, SESSION_OVER, Story, client};
use crate::cluster::ms;
use crate::volumes::{name, outcome};

const ROOT: InodeId = InodeId::ROOT;
/// Who is not on record.
const STRANGER: u64 = 1;
/// So much is lent to one client.
const LENDS_MAX: u64 = 8_192;

/// What somebody wants of the directory.
#[derive(Clone, Debug)]
enum Want {
    Ask(Ask),
    Change(TreeChange),
}

fn create(dir: InodeId, text: &str, make: Make, lends: bool) -> TreeChange {
    let (mode, umask, is_exclusive) = (0o755, 0, true);
    TreeChange::Create { dir, name: name(text), make, mode, umask, is_exclusive, lends }
}

fn unlink(dir: InodeId, text: &str) -> TreeChange {
    TreeChange::Unlink { site: Site::new(dir, name(text)), holders: Vec::new(), removed: None }
}

fn rename(from: (InodeId, &str), to: (InodeId, &str)) -> TreeChange {
    let [from, to] = [from, to].map(|(dir, text)| Site::new(dir, name(text)));
    TreeChange::Rename { from, to, how: RenameHow::Replace, holders: Vec::new() }
}

fn chmod(inode: InodeId, mode: u16) -> TreeChange {
    TreeChange::SetAttributes { inode, set: SetAttributes { mode: Some(mode), ..SetAttributes::default() } }
}

fn set_modified(inode: InodeId) -> TreeChange {
    let mtime = Some(SetTime::To(WallTime::from_micros(77)));
    TreeChange::SetAttributes { inode, set: SetAttributes { mtime, ..SetAttributes::default() } }
}

fn set_xattr(inode: InodeId) -> TreeChange {
    let (name, value) = (XattrName::new(b"user.a").unwrap(), Bytes::from_static(b"x"));
    TreeChange::SetXattr { inode, name, value, how: XattrHow::Any }
}

impl Story {
    /// The holder has made a directory, which is lent to it, and a pipe in it. Something else is beside it.
    fn lent_dir(bug: Option<Bug>) -> Self {
        let mut story = Self::new(bug);
        for (text, make) in [("x", Make::Directory), ("y", Make::Fifo)] {
            story.must(OTHER, create(ROOT, text, make, false));
        }
        let attributes = story.made(HOLDER, "d");
        story.inode = attributes.inode;
        story.generation = attributes.lent_to(client(HOLDER)).expect("it was asked for");
        story.must(HOLDER, create(story.inode, "pipe", Make::Fifo, false));
        assert!(story.believes(), "it is told with a grant");
        assert!(!story.is_asked_back());
        story
    }

    /// A directory that somebody has made and wants to be lent.
    fn made(&mut self, program: u64, text: &str) -> Attributes {
        match self.must(program, create(ROOT, text, Make::Directory, true)) {
            TreeDone::Created { attributes, is_new: true } => attributes,
            told => panic!("{told:?}"),
        }
    }

    /// The holder has a file entered that it has created.
    fn enter(&mut self, number: u64, text: &str) -> RequestId {
        self.enter_at(number, text, self.cluster.now)
    }

    fn enter_at(&mut self, number: u64, text: &str, created: WallTime) -> RequestId {
        let (dir, under, name) = (self.inode, self.generation, name(text));
        let (replicas, mode) = (Members::new([NodeId(0)]).unwrap(), 0o640);
        self.change(HOLDER, TreeChange::Enter { dir, under, number, name, replicas, mode, created })
    }

    /// The holder has made a directory and had a file in it entered that was created when the directory was made, which is returned.
    fn entered_file(bug: Option<Bug>) -> (Self, WallTime) {
        let mut story = Self::lent_dir(bug);
        let made = story.state().btime;
        let entered = story.enter_at(1, "f", made);
        story.cluster.run(ms(50));
        assert!(outcome(story.told(HOLDER, entered)).is_ok());
        (story, made)
    }

    /// Nothing is heard of the holder any more, and its connection is gone.
    fn silence(&mut self) {
        let node = self.primary();
        let holder = self.cluster.clients.get_mut(&HOLDER).unwrap();
        holder.is_silent = true;
        let heard = holder.disconnected(node).unwrap();
        self.cluster.call(node, |shard, _| shard.handle_client_down(heard));
    }

    /// The holder says that it has removed that file by itself.
    fn remove(&mut self, removed: WallTime) -> RequestId {
        let inode = InodeId::under(self.generation, 1).unwrap();
        let (site, removed) = (Site::new(self.inode, name("f")).naming(inode), Some(removed));
        self.change(HOLDER, TreeChange::Unlink { site, holders: Vec::new(), removed })
    }

    fn want(&mut self, program: u64, want: Want) -> RequestId {
        match want {
            Want::Ask(ask) => self.query(program, self.primary(), ask),
            Want::Change(change) => self.change(program, change),
        }
    }

    fn query(&mut self, program: u64, node: u32, ask: Ask) -> RequestId {
        let query = namespace::Query { who: Who::root(), ask };
        self.cluster.ask_file(program, node, FILE, FileBody::Ask(Query::Tree(query.into())))
    }

    fn told(&self, program: u64, id: RequestId) -> Option<FileReplyBody> {
        self.cluster.file_reply(program, id)
    }

    /// Lets time pass until somebody is told something, while both answer.
    fn until_told(&mut self, program: u64, id: RequestId) -> FileReplyBody {
        for _ in 0..400 {
            if let Some(told) = self.told(program, id) {
                return told;
            }
            for program in [OTHER, HOLDER] {
                self.answer_as(program);
            }
            self.cluster.run(ms(5));
        }
        panic!("nobody answers");
    }

    /// Who looks a name up is told what it names.
    fn finds(&mut self, program: u64, text: &str) -> Option<InodeId> {
        let id = self.query(program, self.primary(), Ask::Lookup { dir: self.inode, name: name(text) });
        match self.until_told(program, id) {
            FileReplyBody::Answer(Ok(Answer::Tree(answer))) => match *answer {
                TreeAnswer::Attributes(attributes) => Some(attributes.inode),
                other => panic!("{other:?}"),
            },
            FileReplyBody::Answer(Err(FileError::Tree(NameError::NoEntry { .. }))) => None,
            other => panic!("{other:?}"),
        }
    }

    fn wants(&self) -> Vec<Want> {
        let dir = self.inode;
        let list = |with_attributes| Ask::List { dir, after: None, entries_max: 9, with_attributes };
        let asks = [
            Ask::Lookup { dir, name: name("f") },
            Ask::Lookup { dir, name: name("nothing") },
            Ask::Lookup { dir: ROOT, name: name("d") },
            list(false),
            list(true),
            Ask::Attributes { inode: dir },
        ];
        let pipe = Site::new(dir, name("pipe"));
        let changes = [
            create(dir, "g", Make::file(), false),
            create(dir, "e", Make::Directory, true),
            unlink(dir, "pipe"),
            TreeChange::Unlink { site: pipe.free(), holders: Vec::new(), removed: None },
            rename((dir, "pipe"), (ROOT, "g")),
            rename((ROOT, "x"), (dir, "g")),
            rename((ROOT, "x"), (ROOT, "d")),
            TreeChange::RemoveDirectory { site: Site::new(ROOT, name("d")), holders: Vec::new() },
            chmod(dir, 0o700),
            set_modified(dir),
            set_xattr(dir),
        ];
        let asks = asks.into_iter().map(Want::Ask);
        asks.chain(changes.into_iter().map(Want::Change)).collect()
    }
}

fn who_wants_something_in_a_directory_of_another_client_waits_for_it(bug: Option<Bug>) {
    let wants = Story::lent_dir(None).wants();
    for want in wants {
        let mut story = Story::lent_dir(bug);
        let (dir, shown) = (story.inode, format!("{want:?}"));
        let id = story.want(OTHER, want);
        story.cluster.run(ms(300));
        assert_eq!(story.told(OTHER, id), None, "only the holder knows: {shown}");
        assert!(story.is_asked_back(), "{shown}");
        let entered = story.enter(1, "f");
        story.cluster.run(ms(50));
        let told = outcome(story.told(HOLDER, entered));
        assert!(matches!(told, Ok(TreeDone::Created { is_new: true, .. })), "{shown}: {told:?}");
        assert_eq!(story.told(OTHER, id), None, "it has not answered: {shown}");
        story.answer();
        story.until_told(OTHER, id);
        assert_eq!(story.tree_lend(dir), None, "{shown}");
        let inode = InodeId::under(story.generation, 1);
        assert_eq!(story.finds(OTHER, "f"), inode, "{shown}");
        let late = story.enter(2, "late");
        let late = outcome(Some(story.until_told(HOLDER, late)));
        let (inode, generation) = (dir, story.generation);
        let refused = Err(FileError::Tree(NameError::NotLent { inode, generation }));
        assert_eq!(late, refused, "it has answered: {shown}");
    }
}

/// A name that is being looked up is that of a file which its client has created before.
fn who_looks_a_name_up_is_told_of_what_was_created_before(bug: Option<Bug>) {
    let mut story = Story::lent_dir(bug);
    let id = story.query(OTHER, story.primary(), Ask::Lookup { dir: story.inode, name: name("f") });
    story.cluster.run(ms(50));
    story.enter(1, "f");
    let told = story.until_told(OTHER, id);
    let FileReplyBody::Answer(Ok(Answer::Tree(answer))) = told else { panic!("{told:?}") };
    let TreeAnswer::Attributes(attributes) = *answer else { panic!("{answer:?}") };
    assert_eq!(Some(attributes.inode), InodeId::under(story.generation, 1));
}

fn names_in_a_directory_of_another_client_stay_with_it(bug: Option<Bug>) {
    let mut story = Story::lent_dir(bug);
    let dir = story.inode;
    let id = story.change(OTHER, create(dir, "f", Make::file(), false));
    story.cluster.run(ms(50));
    let entered = story.enter(1, "f");
    let told = outcome(Some(story.until_told(OTHER, id)));
    let inode = InodeId::under(story.generation, 1).unwrap();
    assert_eq!(told, Err(FileError::Tree(NameError::Exists { inode })), "its own was there before");
    assert!(outcome(story.told(HOLDER, entered)).is_ok());
}

#[test]
fn who_has_a_directory_does_not_give_it_back_for_what_it_does_itself() {
    let wants = Story::lent_dir(None).wants();
    for want in wants {
        let mut story = Story::lent_dir(None);
        let shown = format!("{want:?}");
        story.enter(1, "f");
        let id = story.want(HOLDER, want);
        story.until_told(HOLDER, id);
        assert!(!story.is_asked_back(), "{shown}");
    }
}

#[test]
fn what_is_entered_is_lent_and_granted_and_where_the_map_says() {
    let mut story = Story::lent_dir(None);
    let dir = story.inode;
    let id = story.enter(1, "f");
    story.cluster.run(ms(50));
    let Ok(TreeDone::Created { attributes, .. }) = outcome(story.told(HOLDER, id)) else { panic!("it may") };
    assert_eq!(attributes.lent_to(client(HOLDER)), Some(story.generation));
    let object = node::file_object(FILE, attributes.inode);
    assert_eq!(attributes.replicas, Some(story.cluster.map.view(object).members.clone()));
    assert_eq!(story.tree_lend(dir), Some(LentTo::Client(client(HOLDER))), "it may enter more");
    story.inode = attributes.inode;
    assert!(story.believes());
}

#[test]
fn what_was_entered_is_done_once_however_often_it_is_sent() {
    let mut story = Story::lent_dir(None);
    let first = story.enter(1, "f");
    story.cluster.run(ms(50));
    let told = outcome(story.told(HOLDER, first));
    assert!(matches!(told, Ok(TreeDone::Created { .. })), "{told:?}");
    assert!(story.finds(OTHER, "pipe").is_some());
    assert_eq!(story.tree_lend(story.inode), None);
    story.numbers[usize::try_from(HOLDER).unwrap()] -= 1;
    let again = story.enter(1, "f");
    story.cluster.run(ms(50));
    assert_eq!(outcome(story.told(HOLDER, again)), told, "though the lend is over");
}

#[test]
fn a_directory_that_is_returned_is_for_all() {
    let mut story = Story::lent_dir(None);
    let dir = story.inode;
    for _ in 0..2 {
        let id = story.give_back(None, true);
        story.cluster.run(ms(100));
        let told = outcome(story.told(HOLDER, id));
        assert!(told.is_ok(), "it is over, as it was to be: {told:?}");
        assert_eq!(story.tree_lend(dir), None);
    }
    let id = story.change(OTHER, create(dir, "g", Make::file(), false));
    story.cluster.run(ms(50));
    assert!(outcome(Some(story.until_told(OTHER, id))).is_ok());
    assert!(!story.is_asked_back());
}

/// It has answered nothing, but says by itself that it has no use for the directory, in words that are meant for files.
#[test]
fn a_directory_has_no_content_that_would_have_to_end_its_lend() {
    let mut story = Story::lent_dir(None);
    let (dir, id) = (story.inode, story.give_back(None, false));
    story.cluster.run(ms(200));
    assert_eq!(story.tree_lend(dir), None);
    let told = outcome(story.told(HOLDER, id));
    assert!(told.is_ok(), "{told:?}");
}

#[test]
fn who_does_not_answer_is_waited_for_as_long_as_it_may_count_on_its_directory() {
    let mut story = Story::lent_dir(None);
    story.silence();
    assert!(story.believes());
    let id = story.query(OTHER, story.primary(), Ask::Lookup { dir: story.inode, name: name("f") });
    let start = story.cluster.now;
    story.until(SESSION_OVER + ms(100), |story| story.told(OTHER, id).is_some());
    assert!(!story.believes());
    assert!(story.cluster.now.since(start) > ms(500), "it might have created more");
}

#[test]
fn who_is_there_has_time_to_enter_what_it_has_created() {
    let mut story = Story::lent_dir(None);
    let id = story.query(OTHER, story.primary(), Ask::Lookup { dir: story.inode, name: name("f") });
    story.cluster.run(ms(3_000));
    assert_eq!(story.told(OTHER, id), None);
    story.enter(1, "f");
    let told = story.until_told(OTHER, id);
    assert!(matches!(told, FileReplyBody::Answer(Ok(_))), "{told:?}");
}

#[test]
fn who_is_there_and_does_not_answer_is_not_waited_for_without_end() {
    let mut story = Story::lent_dir(None);
    let id = story.query(OTHER, story.primary(), Ask::Lookup { dir: story.inode, name: name("f") });
    story.cluster.run(ms(3_000));
    assert_eq!(story.told(OTHER, id), None, "it may have much to enter");
    story.until(ms(8_000), |story| story.told(OTHER, id).is_some());
    let none = FileError::Tree(NameError::NoEntry { dir: story.inode });
    assert_eq!(story.told(OTHER, id), Some(FileReplyBody::Answer(Err(none))));
    assert_eq!(story.tree_lend(story.inode), None);
    let late = story.enter(1, "f");
    let told = outcome(Some(story.until_told(HOLDER, late)));
    let (inode, generation) = (story.inode, story.generation);
    assert_eq!(told, Err(FileError::Tree(NameError::NotLent { inode, generation })));
}

#[test]
fn who_removes_a_directory_finds_it_as_its_client_has_left_it() {
    for is_filled in [false, true] {
        let mut story = Story::lent_dir(None);
        story.must(HOLDER, unlink(story.inode, "pipe"));
        let site = Site::new(ROOT, name("d"));
        let id = story.change(OTHER, TreeChange::RemoveDirectory { site, holders: Vec::new() });
        story.cluster.run(ms(50));
        assert_eq!(story.told(OTHER, id), None);
        if is_filled {
            story.enter(1, "f");
            story.cluster.run(ms(50));
        }
        let told = outcome(Some(story.until_told(OTHER, id)));
        let refused = Err(FileError::Tree(NameError::NotEmpty { dir: story.inode }));
        assert_eq!(told == refused, is_filled, "{told:?}");
        assert_eq!(told.is_ok(), !is_filled);
    }
}

#[test]
fn all_who_wait_are_served() {
    let mut story = Story::lent_dir(None);
    let dir = story.inode;
    let looks = story.query(OTHER, story.primary(), Ask::Lookup { dir, name: name("f") });
    let changes = [create(dir, "g", Make::file(), true), create(dir, "e", Make::Directory, true)];
    let changes = changes.map(|change| story.change(OTHER, change));
    story.cluster.run(ms(50));
    story.enter(1, "f");
    let told = story.until_told(OTHER, looks);
    assert!(matches!(told, FileReplyBody::Answer(Ok(_))), "{told:?}");
    for id in changes {
        outcome(Some(story.until_told(OTHER, id))).expect("the names are free");
    }
}

fn directories_of_a_client_that_ends_are_taken_back(bug: Option<Bug>) {
    let mut story = Story::lent_dir(bug);
    let dir = story.inode;
    story.enter(1, "f");
    story.cluster.run(ms(50));
    for node in story.members.clone() {
        story.cluster.disconnect(HOLDER, node);
    }
    story.cluster.clients.get_mut(&HOLDER).unwrap().is_silent = true;
    story.cluster.run(GONE * 2 + ms(2_000));
    assert_eq!(story.tree_lend(dir), None);
    let tree = story.cluster.shard(story.primary()).file(FILE).unwrap().machine().tree();
    assert_eq!(tree.client(client(HOLDER)), Some(ClientState::Ended));
    let id = story.change(OTHER, create(dir, "g", Make::file(), false));
    story.cluster.run(ms(50));
    assert!(outcome(story.told(OTHER, id)).is_ok());
    assert_eq!(story.finds(OTHER, "f"), InodeId::under(story.generation, 1));
}

fn the_next_primary_takes_directories_back_that_the_one_before_has_lent(bug: Option<Bug>) {
    let mut story = Story::lent_dir(bug);
    let dir = story.inode;
    let dead = story.primary();
    story.cluster.kill_with_notice(dead);
    let next = story.members[1];
    if !story.cluster.clients[&HOLDER].is_connected(next) {
        story.cluster.connect(HOLDER, next);
    }
    let ask = || Ask::Lookup { dir, name: name("f") };
    let mut id = story.query(OTHER, next, ask());
    for _ in 0..60 {
        story.cluster.run(ms(100));
        if story.is_asked_back() {
            break;
        }
        let told = story.told(OTHER, id);
        let is_answer = matches!(told, Some(FileReplyBody::Answer(_)));
        assert!(!is_answer, "the holder has not answered: {told:?}");
        id = story.query(OTHER, next, ask());
    }
    assert!(story.is_asked_back());
    let attendance = Attendance { tenure: None, stamp: 0, open: None };
    story.cluster.ask_file(HOLDER, next, FILE, FileBody::Attend(attendance));
    story.cluster.run(ms(50));
    let entered = story.enter(1, "f");
    // What others may still believe of the primary before is waited for.
    story.until(ms(3_000), |story| story.told(HOLDER, entered).is_some());
    let told = outcome(story.told(HOLDER, entered));
    assert!(told.is_ok(), "{told:?}");
    assert_eq!(story.told(OTHER, id), None);
    story.until_told(OTHER, id);
    assert_eq!(story.tree_lend(dir), None);
    assert_eq!(story.finds(OTHER, "f"), InodeId::under(story.generation, 1));
}

#[test]
fn who_takes_no_grants_is_lent_no_directory() {
    let mut story = Story::new(None);
    story.cluster.clients.get_mut(&OTHER).unwrap().caches = false;
    assert_eq!(story.made(OTHER, "d").lent, None);
}

/// A daemon would not know of its end, and nobody would give back what it has.
#[test]
fn who_is_not_on_record_is_lent_no_directory() {
    let mut story = Story::new(None);
    story.cluster.client(STRANGER);
    story.cluster.clients.get_mut(&STRANGER).unwrap().caches = true;
    // It has planted the volume.
    story.numbers[usize::try_from(STRANGER).unwrap()] = 9;
    assert_eq!(story.made(STRANGER, "d").lent, None);
    assert!(story.made(STRANGER, "e").lent.is_some(), "it was put on record, as it takes grants");
}

/// What it has entered is lent to it, too, and all that is lent has to be taken back some time.
#[test]
fn who_has_entered_too_much_creates_nothing_more_by_itself() {
    let mut story = Story::lent_dir(None);
    let dir = story.inode;
    let mut entered = Vec::new();
    for number in 1..LENDS_MAX {
        entered.push(story.enter(number, &format!("f{number}")));
        if number.is_multiple_of(64) {
            story.cluster.run(ms(20));
        }
    }
    story.cluster.run(ms(200));
    assert!(!story.is_asked_back(), "that much it may have");
    entered.push(story.enter(LENDS_MAX, "one more"));
    story.cluster.run(ms(50));
    assert!(story.is_asked_back());
    entered.push(story.enter(LENDS_MAX + 1, "meanwhile"));
    story.cluster.run(ms(50));
    for id in entered {
        let told = outcome(story.told(HOLDER, id));
        assert!(matches!(told, Ok(TreeDone::Created { is_new: true, .. })), "{told:?}");
    }
    story.answer();
    story.cluster.run(ms(50));
    assert_eq!(story.tree_lend(dir), None);
    assert_eq!(story.made(HOLDER, "e").lent, None, "it has too much already");
}

/// Nobody has seen the directory since it was made, so whoever looks for what is new later misses nothing.
#[test]
fn what_is_entered_was_created_since_its_directory_was_made_and_not_in_the_future() {
    let mut story = Story::lent_dir(None);
    let made = story.state().btime;
    for (number, created) in [(1, made + ms(3_600_000)), (2, WallTime::from_micros(5)), (3, made + ms(1))] {
        let id = story.enter_at(number, &format!("f{number}"), created);
        story.cluster.run(ms(50));
        let Ok(TreeDone::Created { attributes, .. }) = outcome(story.told(HOLDER, id)) else {
            panic!("it may")
        };
        let Attributes { atime, mtime, ctime, btime, .. } = attributes;
        assert_eq!([atime, mtime, ctime], [btime; 3]);
        match number {
            1 => assert!(btime > made && btime < story.cluster.now, "{btime:?}"),
            2 => assert_eq!(btime, made),
            _ => assert_eq!(btime, created),
        }
        assert!(story.state().mtime < story.cluster.now && story.state().ctime < story.cluster.now);
    }
}

/// Nor before it was there.
#[test]
fn a_file_was_not_removed_after_it_is_said_to_be() {
    for asked in [3_600_000, 1] {
        let (mut story, made) = Story::entered_file(None);
        let (before, removed) = (story.state(), made + ms(asked));
        let id = story.remove(removed);
        let called = story.cluster.now;
        story.cluster.run(ms(50));
        assert!(matches!(outcome(story.told(HOLDER, id)), Ok(TreeDone::Removed { .. })));
        let after = story.state();
        assert_eq!((after.mtime, after.size), (after.ctime, before.size - 1));
        match asked {
            1 => assert_eq!(after.mtime, before.mtime.max(removed)),
            _ => assert!(after.mtime >= called && after.mtime < story.cluster.now, "{after:?}"),
        }
    }
}

/// Somebody else may have found it meanwhile, and written to it: that would go with it, and nobody would be told.
fn what_others_may_have_found_is_not_removed_any_more(bug: Option<Bug>) {
    for is_silent in [false, true] {
        let (mut story, made) = Story::entered_file(bug);
        if is_silent {
            // Nobody hears of its removal before the directory is taken back.
            story.silence();
            let looks = Ask::Lookup { dir: story.inode, name: name("f") };
            let found = story.query(OTHER, story.primary(), looks);
            story.until(SESSION_OVER + ms(100), |story| story.told(OTHER, found).is_some());
            assert!(matches!(story.told(OTHER, found), Some(FileReplyBody::Answer(Ok(_)))));
            story.cluster.clients.get_mut(&HOLDER).unwrap().is_silent = false;
        } else {
            story.give_back(None, true);
            story.cluster.run(ms(50));
        }
        let before = story.state();
        let id = story.remove(made + ms(1));
        let (inode, generation) = (story.inode, story.generation);
        let refused = Err(FileError::Tree(NameError::NotLent { inode, generation }));
        assert_eq!(outcome(Some(story.until_told(HOLDER, id))), refused);
        assert!(story.finds(OTHER, "f").is_some());
        let after = story.state();
        assert_eq!((after.mtime, after.ctime, after.size), (before.mtime, before.ctime, before.size));
    }
}

/// It was in time, so it counts, whoever has the directory when its client asks again what came of it.
#[test]
fn what_was_removed_in_time_stays_so_when_the_directory_is_given_back() {
    let (mut story, made) = Story::entered_file(None);
    let id = story.remove(made + ms(1));
    let number = story.numbers[usize::try_from(HOLDER).unwrap()];
    story.cluster.run(ms(50));
    let told = story.told(HOLDER, id);
    assert!(matches!(outcome(told.clone()), Ok(TreeDone::Removed { .. })));
    story.give_back(None, true);
    story.cluster.run(ms(50));
    assert_eq!(story.tree_lend(story.inode), None);
    // It asks under the number that it had.
    story.numbers[usize::try_from(HOLDER).unwrap()] = number - 1;
    let again = story.remove(made + ms(1));
    story.cluster.run(ms(50));
    assert_eq!(outcome(story.told(HOLDER, again)), outcome(told));
    assert_eq!(story.finds(OTHER, "f"), None);
}

/// Whoever gives a directory another name needs to know nothing of what is in it.
#[test]
fn who_moves_a_directory_keeps_its_client_from_nothing() {
    let mut story = Story::lent_dir(None);
    let id = story.change(OTHER, rename((ROOT, "d"), (ROOT, "e")));
    story.cluster.run(ms(50));
    assert_eq!(story.told(OTHER, id), None, "the holder may count on its place");
    let entered = story.enter(1, "f");
    story.cluster.run(ms(50));
    let told = outcome(story.told(HOLDER, entered));
    assert!(matches!(told, Ok(TreeDone::Created { is_new: true, .. })), "{told:?}");
    assert!(outcome(Some(story.until_told(OTHER, id))).is_ok());
    assert!(!story.is_asked_back());
    assert_eq!(story.tree_lend(story.inode), Some(LentTo::Client(client(HOLDER))));
}

/// The move waits until the holder gives the directory back, as whoever looks for a name there does, and that it does when all is entered.
#[test]
fn who_moves_a_directory_that_is_wanted_back_does_not_hold_up_what_is_entered_there() {
    let mut story = Story::lent_dir(None);
    let looked = story.query(OTHER, story.primary(), Ask::Lookup { dir: story.inode, name: name("f") });
    story.cluster.run(ms(50));
    let moved = story.change(OTHER, rename((ROOT, "d"), (ROOT, "e")));
    story.cluster.run(ms(50));
    assert!(story.is_asked_back() && story.told(OTHER, moved).is_none());
    let entered = story.enter(1, "f");
    story.cluster.run(ms(50));
    let told = outcome(story.told(HOLDER, entered));
    assert!(matches!(told, Ok(TreeDone::Created { is_new: true, .. })), "{told:?}");
    story.answer();
    assert!(matches!(story.until_told(OTHER, looked), FileReplyBody::Answer(Ok(_))));
    assert!(outcome(Some(story.until_told(OTHER, moved))).is_ok());
}

/// The holder has told its user already that it is gone.
#[test]
fn who_moves_a_directory_that_is_wanted_back_does_not_hold_up_what_is_removed_there() {
    let mut story = Story::lent_dir(None);
    let entered = story.enter(1, "f");
    story.cluster.run(ms(50));
    assert!(outcome(story.told(HOLDER, entered)).is_ok());
    let looked = story.query(OTHER, story.primary(), Ask::Lookup { dir: story.inode, name: name("f") });
    story.cluster.run(ms(50));
    let moved = story.change(OTHER, rename((ROOT, "d"), (ROOT, "e")));
    story.cluster.run(ms(50));
    assert!(story.is_asked_back() && story.told(OTHER, moved).is_none());
    let inode = InodeId::under(story.generation, 1).unwrap();
    let site = Site::new(story.inode, name("f")).naming(inode);
    let removed = story.change(HOLDER, TreeChange::Unlink { site, holders: Vec::new(), removed: None });
    story.cluster.run(ms(50));
    let told = outcome(story.told(HOLDER, removed));
    assert!(matches!(told, Ok(TreeDone::Removed { .. })), "{told:?}");
    story.answer();
    let told = story.until_told(OTHER, looked);
    assert!(
        matches!(told, FileReplyBody::Answer(Err(FileError::Tree(NameError::NoEntry { .. })))),
        "{told:?}"
    );
    assert!(outcome(Some(story.until_told(OTHER, moved))).is_ok());
}

/// When it asks nothing is lent there that could be taken back, and when its own change is an entry it would be.
#[test]
fn who_wants_a_name_that_is_just_being_given_waits_for_its_client() {
    for is_removed in [false, true] {
        let mut story = Story::new(None);
        // It keeps nothing that the holder's change would have to wait for.
        story.cluster.clients.get_mut(&OTHER).unwrap().caches = false;
        story.must(OTHER, create(ROOT, "x", Make::Directory, false));
        let made = story.change(HOLDER, create(ROOT, "d", Make::Directory, true));
        let remove = TreeChange::RemoveDirectory { site: Site::new(ROOT, name("d")), holders: Vec::new() };
        let change = if is_removed { remove } else { rename((ROOT, "x"), (ROOT, "d")) };
        let id = story.change(OTHER, change);
        story.cluster.run(ms(50));
        let Ok(TreeDone::Created { attributes, .. }) = outcome(story.told(HOLDER, made)) else {
            panic!("it may")
        };
        (story.inode, story.generation) = (attributes.inode, attributes.lent_to(client(HOLDER)).unwrap());
        assert_eq!(story.told(OTHER, id), None);
        story.enter(1, "f");
        let told = outcome(Some(story.until_told(OTHER, id)));
        assert_eq!(told, Err(FileError::Tree(NameError::NotEmpty { dir: story.inode })));
        assert!(story.is_asked_back());
    }
}

impl Story {
    /// To whom the tree says that something is lent.
    fn tree_lend(&self, inode: InodeId) -> Option<LentTo> {
        let shard = self.cluster.shard(self.primary());
        shard.file(FILE).unwrap().machine().tree().lent(inode).map(|lent| lent.to)
    }
}

stories! {
    DirectoryOfTwo: who_looks_a_name_up_is_told_of_what_was_created_before;
    DirectoryOfTwo: names_in_a_directory_of_another_client_stay_with_it;
    LateRemovalDone: what_others_may_have_found_is_not_removed_any_more;
    DirectoryOfTwo: who_wants_something_in_a_directory_of_another_client_waits_for_it;
    LendInMemory: the_next_primary_takes_directories_back_that_the_one_before_has_lent;
    ClientLendForgotten: directories_of_a_client_that_ends_are_taken_back;
}
