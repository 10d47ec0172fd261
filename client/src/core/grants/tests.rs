mod entering;

use base::{ClientId, Epoch, WallTime};
use namespace::{
    Attributes, Born, Fate, Generation, InodeId, Kind, Lent, LentTo, Listed, Make, Name, NameError, Op, Page,
    RenameHow, Rights, SetAttributes, Site, XattrHow, XattrName,
};
use node::{CacheGrant, GrantKind, Revoked};

use super::*;

const VOLUME: ObjectId = ObjectId::new(1, 2);
const NODE: NodeId = NodeId(1);
const DIR: InodeId = InodeId::ROOT;

/// A client with one daemon, and with a session that lasts until 1 s.
struct Story {
    cache: Cache,
    connection: Connection,
    who: Who,
    /// So many revocations had been sent when daemons reply from now on.
    revoked: u64,
    at: u64,
    tenure: u64,
}

fn at(ms: u64) -> MonoTime {
    MonoTime::from_micros(ms * 1_000)
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

const fn inode(number: u64) -> InodeId {
    InodeId { number, epoch: Epoch { number: 1, node: NODE } }
}

fn epoch(number: u64) -> Epoch {
    Epoch { number, node: NODE }
}

fn attributes(inode: InodeId, mode: u16) -> Attributes {
    let time = WallTime::ZERO;
    Attributes {
        inode,
        kind: Kind::Directory,
        mode,
        uid: 0,
        gid: 0,
        links: 2,
        rdev: 0,
        size: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
        lent: None,
        last_lend: None,
        replicas: None,
        has_acl: false,
    }
}

fn look(text: &str) -> Ask {
    Ask::Lookup { dir: DIR, name: name(text) }
}

fn create(text: &str) -> Change {
    let (dir, name, make) = (DIR, name(text), Make::Directory);
    Change::Create { dir, name, make, mode: 0o755, umask: 0, is_exclusive: true, lends: false }
}

fn chmod(inode: InodeId) -> Change {
    Change::SetAttributes { inode, set: SetAttributes { mode: Some(0o700), ..SetAttributes::default() } }
}

fn op(change: Change) -> Op {
    Op::wanted(Who::root(), change)
}

impl Story {
    fn new() -> Self {
        let connection = Connection { node: NODE, number: 1 };
        let mut cache = Cache::new();
        cache.handle_up(connection);
        cache.confirm(NODE, at(1_000));
        Self { cache, connection, who: Who::root(), revoked: 0, at: 10, tenure: 5 }
    }

    /// It has found a name, and knows that another is not there.
    fn knowing() -> Self {
        let mut story = Self::new();
        story.told(&look("a"), Ok(attributes(inode(2), 0o755)));
        story.told(&look("b"), Err(NameError::NoEntry { dir: DIR }));
        story
    }

    fn grant(&self, inodes: &[InodeId]) -> Told {
        let (kind, tenure) = (GrantKind::Shared, epoch(self.tenure));
        let (at, revoked, inodes) = (Seq(self.at), self.revoked, inodes.to_vec());
        let grant = CacheGrant { kind, tenure, at, revoked, inodes, changed: Vec::new() };
        Told { by: self.connection, grant: Some(Box::new(grant)), at: Some(Seq(self.at)) }
    }

    /// A daemon answers a question, and grants all that it is about.
    fn told(&mut self, ask: &Ask, answer: Result<Attributes, NameError>) {
        let mut inodes = vec![DIR];
        inodes.extend(answer.iter().map(|attributes| attributes.inode));
        let told = self.grant(&inodes);
        self.cache.tell(VOLUME, (&self.who, ask), (&told, &answer.map(Answer::Attributes)));
    }

    fn knows(&mut self, now: u64, ask: &Ask) -> Option<Result<Answer, NameError>> {
        self.cache.answer(at(now), VOLUME, (&self.who, ask))
    }

    /// What it knows of the names `a` and `b`: whether they are there.
    fn names(&mut self) -> [Option<bool>; 2] {
        ["a", "b"].map(|text| self.knows(1, &look(text)).map(|answer| answer.is_ok()))
    }

    fn made(&mut self, id: ChangeId, text: &str, made: InodeId) {
        let done = Done::Created { attributes: attributes(made, 0o755), is_new: true };
        let told = self.grant(&[made]);
        self.cache.end(id, &op(create(text)), (&told, Some(&done)));
    }

    fn revoke(&mut self, inode: InodeId) {
        self.revoked += 1;
        self.cache.revoke(NODE, self.revoked, (VOLUME, Revoked::inode(inode)));
    }
}

#[test]
fn what_is_granted_is_answered_as_long_as_the_session_lasts() {
    let mut story = Story::knowing();
    assert_eq!(story.knows(999, &look("a")), Some(Ok(Answer::Attributes(attributes(inode(2), 0o755)))));
    assert_eq!(story.knows(999, &look("b")), Some(Err(NameError::NoEntry { dir: DIR })));
    assert!(story.knows(999, &Ask::Attributes { inode: inode(2) }).is_some());
    assert_eq!(story.knows(999, &look("c")), None);
    assert_eq!(story.knows(1_000, &look("a")), None, "the session is over");
    story.cache.confirm(NODE, at(2_000));
    assert!(story.knows(1_999, &look("a")).is_some(), "it is confirmed, and nothing was revoked");
    assert_eq!(story.cache.hits(), 4);
}

#[test]
fn what_is_not_granted_is_not_kept() {
    let mut story = Story::new();
    let told = story.grant(&[inode(2)]);
    let answer = Ok(Answer::Attributes(attributes(inode(2), 0)));
    story.cache.tell(VOLUME, (&story.who, &look("a")), (&told, &answer));
    assert_eq!(story.knows(1, &look("a")), None);
    assert!(story.knows(1, &Ask::Attributes { inode: inode(2) }).is_some());
}

#[test]
fn who_was_not_answered_before_is_not_answered_here() {
    let mut story = Story::knowing();
    story.who = Who::new(1, 1, &[]).unwrap();
    assert_eq!(story.names(), [None, None]);
    story.told(&look("a"), Ok(attributes(inode(2), 0o755)));
    assert_eq!(story.names(), [Some(true), Some(false)], "it may look things up there");
}

#[test]
fn what_is_revoked_is_gone_when_that_is_said() {
    let mut story = Story::knowing();
    story.revoke(inode(2));
    assert_eq!(story.names(), [None, Some(false)]);
    story.revoke(DIR);
    assert_eq!(story.names(), [None, None]);
}

#[test]
fn a_reply_that_is_older_than_a_revocation_is_not_kept() {
    let mut story = Story::knowing();
    story.revoke(DIR);
    story.revoked = 0;
    story.told(&look("b"), Err(NameError::NoEntry { dir: DIR }));
    assert_eq!(story.names(), [None, None], "it was sent before");
    story.revoked = 1;
    story.told(&look("b"), Err(NameError::NoEntry { dir: DIR }));
    assert_eq!(story.names(), [None, Some(false)]);
}

#[test]
fn a_first_reply_that_is_older_than_a_revocation_is_not_kept() {
    let mut story = Story::new();
    story.revoke(DIR);
    story.revoked = 0;
    story.told(&look("b"), Err(NameError::NoEntry { dir: DIR }));
    assert_eq!(story.names(), [None, None]);
}

#[test]
fn revocations_of_others_do_not_count() {
    let mut story = Story::knowing();
    story.revoke(inode(9));
    story.revoked = 0;
    story.told(&look("c"), Err(NameError::NoEntry { dir: DIR }));
    assert!(story.knows(1, &look("c")).is_some(), "of this directory nothing was taken back");
    // But so many are not remembered for ever.
    for number in 0..5_000 {
        story.revoke(inode(100 + number));
    }
    story.revoked = 0;
    story.told(&look("d"), Err(NameError::NoEntry { dir: DIR }));
    assert_eq!(story.knows(1, &look("d")), None);
}

#[test]
fn what_an_earlier_tenure_says_late_is_not_kept() {
    let mut story = Story::knowing();
    story.cache.revoke(NODE, 1, (VOLUME, Revoked::Before(epoch(6))));
    assert_eq!(story.names(), [None, None]);
    story.told(&look("b"), Err(NameError::NoEntry { dir: DIR }));
    assert_eq!(story.names(), [None, None]);
    (story.tenure, story.revoked) = (6, 1);
    story.told(&look("b"), Err(NameError::NoEntry { dir: DIR }));
    assert_eq!(story.names(), [None, Some(false)]);
    story.tenure = 5;
    story.told(&look("a"), Err(NameError::NoEntry { dir: DIR }));
    assert_eq!(story.names(), [None, Some(false)]);
}

#[test]
fn a_connection_takes_with_it_what_it_granted() {
    let mut story = Story::knowing();
    let second = Connection { node: NODE, number: 2 };
    story.cache.handle_up(second);
    story.cache.confirm(NODE, at(1_000));
    assert_eq!(story.names(), [None, None]);
    story.told(&look("a"), Ok(attributes(inode(2), 0o755)));
    assert_eq!(story.names(), [None, None], "it came over the first one");
    story.connection = second;
    story.told(&look("a"), Ok(attributes(inode(2), 0o755)));
    assert_eq!(story.names(), [Some(true), None]);
    story.cache.handle_down(NODE);
    assert_eq!(story.names(), [None, None]);
}

#[test]
fn what_a_change_names_is_not_answered_until_its_outcome_is_known() {
    let mut story = Story::knowing();
    let id = story.cache.begin(VOLUME, &create("b"));
    assert_eq!(story.names(), [Some(true), None], "and other names are");
    story.at = 11;
    story.made(id, "b", inode(3));
    assert_eq!(story.names(), [Some(true), Some(true)]);
    assert_eq!(story.knows(1, &Ask::Attributes { inode: DIR }), None, "its times have changed");
    let unlink = Change::RemoveDirectory { site: Site::new(DIR, name("b")), holders: Vec::new() };
    let id = story.cache.begin(VOLUME, &unlink);
    let done = Done::Removed { inode: inode(3), fate: Fate::Gone };
    story.at = 12;
    let told = story.grant(&[]);
    story.cache.end(id, &op(unlink.clone()), (&told, Some(&done)));
    assert_eq!(story.names(), [Some(true), Some(false)]);
    assert_eq!(story.knows(1, &Ask::Attributes { inode: inode(3) }), None);
}

#[test]
fn how_a_directory_is_after_a_change_is_known_by_the_only_one_who_changed_it() {
    let mut story = Story::knowing();
    let is = Ask::Attributes { inode: DIR };
    let made = |story: &mut Story, id, text: &str, number| {
        let done = Done::Created { attributes: attributes(inode(number), 0o755), is_new: true };
        let mut told = story.grant(&[DIR, inode(number)]);
        told.grant.as_mut().unwrap().changed.push(attributes(DIR, 0o711));
        story.cache.end(id, &op(create(text)), (&told, Some(&done)));
    };
    let id = story.cache.begin(VOLUME, &create("b"));
    story.at = 11;
    made(&mut story, id, "b", 3);
    assert_eq!(story.knows(1, &is), Some(Ok(Answer::Attributes(attributes(DIR, 0o711)))));
    let [first, second] = ["c", "d"].map(|text| story.cache.begin(VOLUME, &create(text)));
    story.at = 13;
    made(&mut story, second, "d", 5);
    story.at = 12;
    made(&mut story, first, "c", 4);
    assert_eq!(story.knows(1, &is), None, "which of the two is told last nobody knows");
    let id = story.cache.begin(VOLUME, &create("e"));
    story.revoke(DIR);
    (story.revoked, story.at) = (0, 14);
    made(&mut story, id, "e", 6);
    assert_eq!(story.knows(1, &is), None, "somebody else changes it since");
}

#[test]
fn what_was_read_before_a_change_is_not_kept_after_it() {
    let mut story = Story::knowing();
    let id = story.cache.begin(VOLUME, &create("b"));
    story.at = 12;
    story.made(id, "b", inode(3));
    story.at = 11;
    story.told(&look("b"), Err(NameError::NoEntry { dir: DIR }));
    assert_eq!(story.names(), [Some(true), Some(true)]);
    // Neither when nothing later is known by then.
    story.cache.volumes.get_mut(&VOLUME).unwrap().shrink(1_000);
    story.cache.volumes.get_mut(&VOLUME).unwrap().shrink(1_000);
    story.told(&look("b"), Err(NameError::NoEntry { dir: DIR }));
    assert_eq!(story.names(), [None, None]);
}

#[test]
fn of_two_changes_of_the_same_at_once_neither_is_kept() {
    let mut story = Story::knowing();
    let first = story.cache.begin(VOLUME, &create("b"));
    let second = story.cache.begin(VOLUME, &create("b"));
    story.at = 12;
    story.made(second, "b", inode(3));
    assert_eq!(story.names(), [Some(true), None]);
    story.at = 11;
    story.made(first, "b", inode(4));
    assert_eq!(
        story.names(),
        [Some(true), None],
        "which was the later one is not for the replies' order to say"
    );
}

#[test]
fn a_change_whose_outcome_comes_after_a_revocation_teaches_nothing() {
    let mut story = Story::knowing();
    let id = story.cache.begin(VOLUME, &create("b"));
    story.revoke(DIR);
    story.revoked = 0;
    story.at = 11;
    story.made(id, "b", inode(3));
    assert_eq!(story.names(), [None, None]);
    // Somebody else has taken the name away since, and then it was looked up.
    (story.revoked, story.at) = (1, 13);
    story.told(&look("b"), Err(NameError::NoEntry { dir: DIR }));
    assert_eq!(story.names(), [None, Some(false)]);
}

/// Somebody else has taken the name away in between, of which nobody told: there was no grant.
#[test]
fn a_change_whose_outcome_comes_after_a_first_grant_teaches_nothing() {
    let mut story = Story::new();
    let id = story.cache.begin(VOLUME, &create("b"));
    story.at = 12;
    story.told(&look("a"), Ok(attributes(inode(2), 0o755)));
    story.at = 11;
    story.made(id, "b", inode(3));
    assert_eq!(story.names(), [Some(true), None]);
}

#[test]
fn all_that_was_granted_may_be_taken_back_and_granted_again() {
    let mut story = Story::knowing();
    story.revoked = 1;
    story.cache.revoke(NODE, 1, (VOLUME, Revoked::All));
    assert_eq!(story.names(), [None, None]);
    story.revoked = 0;
    story.told(&look("b"), Err(NameError::NoEntry { dir: DIR }));
    assert_eq!(story.names(), [None, None], "that was before");
    story.revoked = 1;
    story.told(&look("b"), Err(NameError::NoEntry { dir: DIR }));
    assert_eq!(story.names(), [None, Some(false)]);
}

#[test]
fn a_change_that_may_still_be_done_hides_what_it_names() {
    let mut story = Story::knowing();
    let id = story.cache.begin(VOLUME, &create("b"));
    story.cache.abandon(id);
    assert_eq!(story.names(), [Some(true), None]);
    story.told(&look("b"), Err(NameError::NoEntry { dir: DIR }));
    assert_eq!(story.names(), [Some(true), None]);
    story.connection.number = 2;
    story.cache.handle_up(story.connection);
    story.cache.confirm(NODE, at(1_000));
    story.told(&look("b"), Err(NameError::NoEntry { dir: DIR }));
    assert_eq!(story.names(), [None, Some(false)], "over this connection nobody was asked for it");
}

#[test]
fn who_may_look_things_up_is_asked_again_when_that_may_have_changed() {
    let mut story = Story::knowing();
    let id = story.cache.begin(VOLUME, &chmod(DIR));
    assert_eq!(story.names(), [None, None]);
    story.at = 11;
    let (told, done) = (story.grant(&[DIR]), Done::Changed { attributes: attributes(DIR, 0o700) });
    story.cache.end(id, &op(chmod(DIR)), (&told, Some(&done)));
    assert_eq!(story.names(), [None, None]);
    let root = story.knows(1, &Ask::Attributes { inode: DIR });
    assert_eq!(root, Some(Ok(Answer::Attributes(attributes(DIR, 0o700)))));
}

#[test]
fn a_change_that_is_refused_changes_nothing_here() {
    let mut story = Story::knowing();
    let id = story.cache.begin(VOLUME, &create("a"));
    let told = story.grant(&[]);
    story.cache.end(id, &op(create("a")), (&told, None));
    assert_eq!(story.names(), [Some(true), Some(false)]);
}

#[test]
fn what_is_used_is_asked_about_now_and_then() {
    let mut story = Story::knowing();
    story.cache.confirm(NODE, at(100_000));
    let is_due = [1, 5_000, 5_001, 5_002, 20_000].map(|now| {
        assert!(story.knows(now, &look("a")).is_some(), "nobody waits for that");
        story.cache.is_due(at(now), VOLUME)
    });
    assert_eq!(is_due, [false, false, true, false, true], "once is enough");
}

fn list(after: Option<&str>) -> Ask {
    Ask::List { dir: DIR, after: after.map(name), entries_max: 2, with_attributes: false }
}

fn page(texts: &[&str], is_last: bool) -> Page {
    let listed = |text: &&str| Listed {
        name: name(text),
        inode: inode(u64::from(text.as_bytes()[0])),
        kind: Kind::Directory,
        attributes: None,
    };
    Page { entries: texts.iter().map(listed).collect(), is_last }
}

#[test]
fn a_directory_that_was_listed_to_its_end_is_known() {
    let mut story = Story::new();
    let pages = [(None, page(&["a", "b"], false)), (Some("b"), page(&["c"], true))];
    for (after, page) in pages.clone() {
        assert_eq!(story.knows(1, &list(after)), None);
        let told = story.grant(&[DIR]);
        story.cache.tell(VOLUME, (&story.who, &list(after)), (&told, &Ok(Answer::Page(page))));
    }
    for (after, page) in pages {
        assert_eq!(story.knows(1, &list(after)), Some(Ok(Answer::Page(page))));
    }
    story.told(&look("a"), Ok(attributes(inode(97), 0)));
    assert!(matches!(story.knows(1, &look("x")), Some(Err(_))), "all others are absent");
    let id = story.cache.begin(VOLUME, &create("d"));
    assert_eq!(story.knows(1, &list(None)), None);
    story.at = 11;
    story.made(id, "d", inode(100));
    assert_eq!(story.knows(1, &list(Some("b"))), Some(Ok(Answer::Page(page(&["c", "d"], true)))));
    let id = story.cache.begin(VOLUME, &create("e"));
    story.at = 12;
    let told = Told { grant: None, ..story.grant(&[]) };
    let done = Done::Created { attributes: attributes(inode(101), 0), is_new: true };
    story.cache.end(id, &op(create("e")), (&told, Some(&done)));
    assert_eq!(story.knows(1, &list(None)), None, "what is there now is not known");
    assert_eq!(story.knows(1, &look("e")), None);
}

#[test]
fn what_was_not_asked_for_lately_goes_first() {
    let mut story = Story::new();
    story.cache.kept_max = 40;
    for number in 2..30 {
        story.told(&Ask::Attributes { inode: inode(number) }, Ok(attributes(inode(number), 0)));
    }
    for number in 30..100 {
        assert!(story.knows(1, &Ask::Attributes { inode: inode(2) }).is_some());
        story.told(&Ask::Attributes { inode: inode(number) }, Ok(attributes(inode(number), 0)));
        let kept: usize = story.cache.volumes.values().map(Volume::kept).sum();
        assert!(kept <= 40, "{kept}");
    }
    assert_eq!(story.knows(1, &Ask::Attributes { inode: inode(3) }), None);
}

#[test]
fn volumes_have_caches_of_their_own() {
    let mut story = Story::knowing();
    let other = ObjectId::new(1, 3);
    assert_eq!(story.cache.answer(at(1), other, (&story.who, &look("a"))), None);
    story.cache.revoke(NODE, 1, (other, Revoked::inode(DIR)));
    assert_eq!(story.names(), [Some(true), Some(false)]);
}

fn lend_of(seq: u64) -> Generation {
    Generation(Born { epoch: epoch(1), seq: Seq(seq) })
}

fn lent(seq: u64) -> Attributes {
    let to = LentTo::Client(ClientId { certificate: 1, program: 1 });
    let lent = Some(Lent { generation: lend_of(seq), to });
    Attributes { kind: Kind::File, lent, ..attributes(inode(2), 0o644) }
}

/// What was read before the lend says that nobody changes the file.
#[test]
fn what_is_lent_by_ones_own_change_is_known_and_not_what_was_before() {
    let mut story = Story::knowing();
    let change = Change::Lend { inode: inode(2), to: LentTo::Content };
    let before = story.grant(&[inode(2)]);
    let id = story.cache.begin(VOLUME, &change);
    assert_eq!(story.cache.attributes(at(1), VOLUME, inode(2)), None);
    story.at = 11;
    let done = Done::Changed { attributes: lent(11) };
    let told = story.grant(&[inode(2)]);
    story.cache.end(id, &op(change.clone()), (&told, Some(&done)));
    assert_eq!(story.cache.attributes(at(999), VOLUME, inode(2)), Some(lent(11)));
    let ask = Ask::Attributes { inode: inode(2) };
    let late = Ok(Answer::Attributes(attributes(inode(2), 0o644)));
    story.cache.tell(VOLUME, (&story.who.clone(), &ask), (&before, &late));
    assert_eq!(story.cache.attributes(at(999), VOLUME, inode(2)), Some(lent(11)));
    assert_eq!(story.cache.attributes(at(1_000), VOLUME, inode(2)), None, "as long as the session lasts");
    story.revoke(inode(2));
    assert_eq!(story.cache.attributes(at(1), VOLUME, inode(2)), None);
}

/// The story goes wrong without the rule.
#[test]
fn a_lend_is_used_as_long_as_the_session_lasts() {
    let is_used_late = |rules| {
        let mut story = Story::knowing();
        story.cache = std::mem::take(&mut story.cache).with_rules(rules);
        story.told(&Ask::Attributes { inode: inode(2) }, Ok(lent(10)));
        assert_eq!(story.cache.attributes(at(999), VOLUME, inode(2)), Some(lent(10)));
        story.cache.attributes(at(1_000), VOLUME, inode(2)).is_some()
    };
    assert!(!is_used_late(Rules::ALL));
    assert!(is_used_late(Rules::without(Some(Bug::LendOutlivesSession))));
}

#[test]
fn what_is_returned_is_known_as_it_came_to_be() {
    let mut story = Story::knowing();
    let ask = Ask::Attributes { inode: inode(2) };
    story.told(&ask, Ok(lent(10)));
    let change = Change::Return {
        inode: inode(2),
        generation: lend_of(10),
        modified: None,
        accessed: None,
        mode: None,
        changed: None,
        is_untouched: false,
    };
    let id = story.cache.begin(VOLUME, &change);
    story.at = 12;
    let after = Attributes { last_lend: Some(lend_of(10)), lent: None, size: 5, ..lent(10) };
    let told = story.grant(&[inode(2)]);
    story.cache.end(id, &op(change.clone()), (&told, Some(&Done::Changed { attributes: after.clone() })));
    assert_eq!(story.cache.attributes(at(1), VOLUME, inode(2)), Some(after));
}

#[test]
fn what_somebody_may_do_with_a_lent_file_is_asked_each_time() {
    let mut story = Story::knowing();
    let ask = Ask::Access { inode: inode(2), rights: Rights::READ };
    story.told(&ask, Ok(attributes(inode(2), 0o755)));
    assert!(story.knows(1, &ask).is_some());
    story.cache.forget_rights(VOLUME, inode(2));
    assert!(story.knows(1, &ask).is_none());
    story.told(&ask, Ok(lent(10)));
    assert!(story.knows(1, &ask).is_none(), "its owner may have set permissions since");
}

#[test]
fn whether_users_have_the_same_numbers_is_as_the_grant_says() {
    let mut story = Story::knowing();
    assert!(!story.cache.has_same_ids(VOLUME, inode(2)));
    let mut told = story.grant(&[inode(2)]);
    told.grant.as_mut().unwrap().kind = GrantKind::Placed;
    let (ask, answer) = (Ask::Attributes { inode: inode(2) }, attributes(inode(2), 0o755));
    story.cache.tell(VOLUME, (&story.who, &ask), (&told, &Ok(Answer::Attributes(answer))));
    assert!(story.cache.has_same_ids(VOLUME, inode(2)) && !story.cache.has_same_ids(VOLUME, inode(9)));
    story.cache.revoke(NODE, 1, (VOLUME, Revoked::inode(inode(2))));
    assert!(!story.cache.has_same_ids(VOLUME, inode(2)));
}

#[test]
fn rights_are_the_same_until_somebody_may_have_changed_them() {
    let mut story = Story::knowing();
    let rights = |story: &Story| story.cache.rights(at(500), VOLUME, inode(2));
    let first = rights(&story).unwrap();
    assert_eq!(story.cache.rights(at(1_000), VOLUME, inode(2)), None, "the session is over");
    assert_eq!(story.cache.rights(at(500), VOLUME, inode(9)), None, "nothing is granted");
    // What does not touch them leaves them.
    story.told(&look("a"), Ok(attributes(inode(2), 0o755)));
    assert_eq!(rights(&story), Some(first));
    // A change of one's own.
    let id = story.cache.begin(VOLUME, &chmod(inode(2)));
    assert_eq!(rights(&story), None);
    story.at += 1;
    let told = story.grant(&[inode(2)]);
    let done = Done::Changed { attributes: attributes(inode(2), 0o700) };
    story.cache.end(id, &op(chmod(inode(2))), (&told, Some(&done)));
    let second = rights(&story).unwrap();
    assert_ne!(first, second);
    // One of somebody else's.
    let InodeId { number, epoch } = inode(2);
    story.revoked += 1;
    story.cache.revoke(NODE, story.revoked, (VOLUME, Revoked::Inode { number, epoch }));
    assert_eq!(rights(&story), None);
    story.told(&look("a"), Ok(attributes(inode(2), 0o700)));
    assert!(rights(&story).is_some_and(|third| third != first && third != second));
}

#[test]
fn what_somebody_was_allowed_he_is_allowed_until_somebody_changes_that() {
    let mut story = Story::knowing();
    let may = |inode, rights| Ask::Access { inode, rights };
    let both = Rights { read: true, write: false, execute: true };
    assert_eq!(story.knows(1, &may(inode(2), Rights::READ)), None, "nobody has said so");
    story.told(&may(inode(2), both), Ok(attributes(inode(2), 0o755)));
    for rights in [Rights::READ, Rights::EXECUTE, both] {
        let answer = story.knows(1, &may(inode(2), rights));
        assert_eq!(answer, Some(Ok(Answer::Attributes(attributes(inode(2), 0o755)))));
    }
    assert_eq!(story.knows(1, &may(inode(2), Rights::WRITE)), None);
    let stranger = Who::new(7, 7, &[]).unwrap();
    let asked = (&stranger, &may(inode(2), Rights::READ));
    assert_eq!(story.cache.answer(at(1), VOLUME, asked), None);
    let id = story.cache.begin(VOLUME, &chmod(inode(2)));
    assert_eq!(story.knows(1, &may(inode(2), Rights::READ)), None, "that may be over");
    let done = Done::Changed { attributes: attributes(inode(2), 0o700) };
    let told = story.grant(&[inode(2)]);
    story.cache.end(id, &op(chmod(inode(2))), (&told, Some(&done)));
    assert_eq!(story.knows(1, &may(inode(2), Rights::READ)), None, "it has to be asked again");
    story.told(&may(inode(2), Rights::READ), Ok(attributes(inode(2), 0o700)));
    assert!(story.knows(1, &may(inode(2), Rights::READ)).is_some());
    story.revoke(inode(2));
    assert_eq!(story.knows(1, &may(inode(2), Rights::READ)), None);
}

#[test]
fn a_directory_that_was_just_made_is_known_to_be_empty_by_its_owner() {
    let mut story = Story::knowing();
    let in_it = |text| Ask::Lookup { dir: inode(3), name: name(text) };
    let list = Ask::List { dir: inode(3), after: None, entries_max: 10, with_attributes: false };
    let id = story.cache.begin(VOLUME, &create("b"));
    story.made(id, "b", inode(3));
    assert_eq!(story.knows(1, &in_it("x")), Some(Err(NameError::NoEntry { dir: inode(3) })));
    let empty = Page { entries: Vec::new(), is_last: true };
    assert_eq!(story.knows(1, &list), Some(Ok(Answer::Page(empty))));
    let stranger = Who::new(7, 7, &[]).unwrap();
    assert_eq!(
        story.cache.answer(at(1), VOLUME, (&stranger, &in_it("x"))),
        None,
        "daemons judge who may look"
    );
    // Somebody else puts something into it.
    story.revoke(inode(3));
    assert_eq!(story.knows(1, &in_it("x")), None);
    assert_eq!(story.knows(1, &list), None);
}

#[test]
fn what_was_just_made_has_no_attributes_of_the_system_until_somebody_sets_one() {
    let ask = |name: &[u8]| Ask::GetXattr { inode: inode(3), name: XattrName::new(name).unwrap() };
    let (capability, none) = (ask(b"security.capability"), Some(Err(NameError::NoXattr { inode: inode(3) })));
    let made = || {
        let mut story = Story::knowing();
        let id = story.cache.begin(VOLUME, &create("b"));
        story.made(id, "b", inode(3));
        story
    };
    let mut story = made();
    assert_eq!(story.knows(1, &capability), none);
    assert_eq!(story.knows(1, &ask(b"user.a")), None, "who may read it is for the daemons to judge");
    // Somebody else sets one.
    story.revoke(inode(3));
    assert_eq!(story.knows(1, &capability), None);
    // This client does, whether it is told what came of it or not.
    for done in [Some(Done::Changed { attributes: attributes(inode(3), 0o755) }), None] {
        let mut story = made();
        let Ask::GetXattr { name, .. } = capability.clone() else { unreachable!() };
        let set = Change::SetXattr { inode: inode(3), name, value: "a".into(), how: XattrHow::Any };
        let id = story.cache.begin(VOLUME, &set);
        assert_eq!(story.knows(1, &capability), None, "it is under way");
        let told = story.grant(&[inode(3)]);
        story.cache.end(id, &op(set), (&told, done.as_ref()));
        assert_eq!(story.knows(1, &capability), None);
    }
    // What was there before may have some.
    let mut story = Story::knowing();
    let id = story.cache.begin(VOLUME, &create("b"));
    let done = Done::Created { attributes: attributes(inode(3), 0o755), is_new: false };
    let told = story.grant(&[inode(3)]);
    story.cache.end(id, &op(create("b")), (&told, Some(&done)));
    assert_eq!(story.knows(1, &capability), None);
}

#[test]
fn a_directory_that_was_there_is_not_taken_for_empty() {
    let mut story = Story::knowing();
    let id = story.cache.begin(VOLUME, &create("b"));
    let done = Done::Created { attributes: attributes(inode(3), 0o755), is_new: false };
    let told = story.grant(&[inode(3)]);
    story.cache.end(id, &op(create("b")), (&told, Some(&done)));
    assert_eq!(story.knows(1, &Ask::Lookup { dir: inode(3), name: name("x") }), None);
    // Nor one that was granted before the change and taken back meanwhile.
    let id = story.cache.begin(VOLUME, &create("c"));
    let told = story.grant(&[inode(4)]);
    story.revoke(inode(4));
    let done = Done::Created { attributes: attributes(inode(4), 0o755), is_new: true };
    story.cache.end(id, &op(create("c")), (&told, Some(&done)));
    assert_eq!(story.knows(1, &Ask::Lookup { dir: inode(4), name: name("x") }), None);
}

#[test]
fn what_was_renamed_is_known_if_all_was_that_it_is_about() {
    let list = Ask::List { dir: DIR, after: None, entries_max: 10, with_attributes: false };
    let listed = |story: &mut Story| {
        let Some(Ok(Answer::Page(page))) = story.knows(1, &list) else { return None };
        Some(page.entries.into_iter().map(|entry| (entry.name, entry.inode)).collect::<Vec<_>>())
    };
    // `a` and `d` are there, and nothing else.
    let begin = || {
        let mut story = Story::knowing();
        let entry = |text, number| Listed {
            name: name(text),
            inode: inode(number),
            kind: Kind::Directory,
            attributes: None,
        };
        let page = Page { entries: vec![entry("a", 2), entry("d", 4)], is_last: true };
        let told = story.grant(&[DIR]);
        story.cache.tell(VOLUME, (&story.who, &list), (&told, &Ok(Answer::Page(page))));
        story.at = 11;
        story
    };
    let rename = |to, how| {
        let [from, to] = ["a", to].map(|text| Site::new(DIR, name(text)));
        Change::Rename { from, to, how, holders: Vec::new() }
    };
    let end = |story: &mut Story, (id, change): (ChangeId, Change), other: Option<InodeId>| {
        let fate = other.map(|_| Fate::Doomed);
        let done = Done::Renamed { moved: inode(2), other, fate };
        let told = story.grant(&[]);
        story.cache.end(id, &op(change), (&told, Some(&done)));
    };
    for (to, how, other, there) in [
        ("b", RenameHow::NoReplace, None, Some(vec![("b", 2), ("d", 4)])),
        ("d", RenameHow::Replace, Some(inode(4)), Some(vec![("d", 2)])),
        ("d", RenameHow::Exchange, Some(inode(4)), Some(vec![("a", 4), ("d", 2)])),
        // Somebody else was there than was believed.
        ("b", RenameHow::Replace, Some(inode(9)), None),
        ("d", RenameHow::Replace, None, None),
    ] {
        let mut story = begin();
        let change = rename(to, how);
        let id = story.cache.begin(VOLUME, &change);
        assert_eq!(listed(&mut story), None, "it may be done already");
        end(&mut story, (id, change), other);
        let there = there.map(|there| there.into_iter().map(|(text, at)| (name(text), inode(at))).collect());
        assert_eq!(listed(&mut story), there, "{to} {how:?} {other:?}");
    }
    // Another change of one of the names at the same time.
    let mut story = begin();
    let change = rename("b", RenameHow::Replace);
    let [id, other] = [&change, &create("b")].map(|change| story.cache.begin(VOLUME, change));
    end(&mut story, (id, change), None);
    story.cache.abandon(other);
    assert_eq!(listed(&mut story), None);
}
