//! A client that has content, a volume that lends it, and a daemon that takes in what is sent.

use base::{Epoch, Seq};
use namespace::{Born, Who};

use super::*;
use crate::core::grants::Cache;

const DAEMON: NodeId = NodeId(1);

fn at(ms: u64) -> MonoTime {
    MonoTime::from_micros(ms * 1_000)
}

fn file(number: u64) -> FileId {
    let epoch = Epoch { number: 1, node: DAEMON };
    FileId { volume: ObjectId::new(1, 2), inode: InodeId { number, epoch } }
}

fn lend(seq: u64) -> Generation {
    Generation(Born { epoch: Epoch { number: 1, node: DAEMON }, seq: Seq(seq) })
}

const fn recall(number: u64) -> Option<Recall> {
    Some(Recall { from: DAEMON, number })
}

/// What is under way of the one file that most stories are about, and what a daemon has of it.
struct Story {
    contents: Contents,
    now: u64,
    remote: Vec<u8>,
}

const FILE: u64 = 1;
const EMPTY: Shown =
    Shown { size: 0, modified: WallTime::ZERO, accessed: None, mode: None, changed: WallTime::ZERO };

impl Story {
    /// A file that is lent, and is empty.
    fn new() -> Self {
        Self::with(b"")
    }

    /// One of which daemons have this.
    fn with(remote: &[u8]) -> Self {
        let mut contents = Contents::new(1);
        let before = (!remote.is_empty()).then(|| lend(1));
        let known = Shown { size: remote.len() as u64, ..EMPTY };
        assert!(contents.adopt(at(0), file(FILE), (lend(2), before), known));
        Self { contents, now: 0, remote: remote.to_vec() }
    }

    fn file(&self) -> (FileId, Generation) {
        (file(FILE), lend(2))
    }

    fn clocks(&self) -> (MonoTime, WallTime) {
        (at(self.now), WallTime::from_micros(self.now + 1))
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let (clocks, data) = (self.clocks(), Bytes::copy_from_slice(data));
        self.contents.write(clocks, self.file(), (Some(offset), &data)).is_some()
    }

    fn truncate(&mut self, size: u64) {
        self.contents.truncate(self.clocks(), self.file(), size).unwrap().unwrap();
    }

    fn next(&mut self) -> Step {
        self.contents.next(at(self.now), self.file(), None)
    }

    fn works(&mut self) -> Work {
        match self.next() {
            Step::Work(work) => work,
            step => panic!("there is something to do, and not {step:?}"),
        }
    }

    fn sent(&mut self, flush: FlushId, sent: Sent) {
        self.contents.sent(at(self.now), self.file(), (flush, sent));
    }

    /// The daemon does what is sent.
    fn take_in(&mut self, work: &Work) -> FlushId {
        match work {
            Work::Write { flush, offset, data, .. } => {
                let (from, data) = (usize::try_from(*offset).unwrap(), data.concat());
                let end = from + data.len();
                self.remote.resize(self.remote.len().max(end), 0);
                self.remote[from..end].copy_from_slice(&data);
                *flush
            }
            Work::Resize { flush, size, .. } => {
                self.remote.resize(usize::try_from(*size).unwrap(), 0);
                *flush
            }
            Work::Return { .. } => panic!("it is not the content's"),
        }
    }

    /// All is sent that has to be. Returns what comes after it.
    fn settle(&mut self) -> Step {
        loop {
            match self.next() {
                Step::Work(work @ (Work::Write { .. } | Work::Resize { .. })) => {
                    let flush = self.take_in(&work);
                    self.sent(flush, Sent::Done);
                }
                step => return step,
            }
        }
    }

    /// What is read, with what the daemon has where that is needed.
    fn read(&mut self, range: Range<u64>) -> Option<Bytes> {
        let id = file(FILE);
        let plan = self.contents.plan(id, View::Lent(lend(2)), range)?;
        let fetch = |block: &u64| {
            let start = self.remote.len().min(usize::try_from(block * BLOCK_BYTES).unwrap());
            let end = self.remote.len().min(start + usize::try_from(BLOCK_BYTES).unwrap());
            (*block, Bytes::copy_from_slice(&self.remote[start..end]))
        };
        let fetched: Vec<(u64, Bytes)> = plan.missing.iter().map(fetch).collect();
        fetched.iter().for_each(|(block, data)| self.contents.keep(id, plan.mark, (*block, data)));
        Some(plan.assemble(&fetched))
    }
}

#[test]
fn what_is_written_is_read_over_what_was_there() {
    let mut story = Story::with(b"hello world");
    assert!(story.write(6, b"there, "));
    assert_eq!(story.read(0..100).unwrap(), "hello there, ");
    let time = WallTime::from_micros(1);
    let shown = Shown { size: 13, modified: time, accessed: None, mode: None, changed: time };
    assert_eq!(story.contents.shows(file(FILE), lend(2)), Some(shown));
    let known = story.contents.plan(file(FILE), View::Lent(lend(2)), 0..100).unwrap();
    assert!(known.missing.is_empty(), "it was read once");
    assert_eq!(known.assemble(&[]), "hello there, ");
}

#[test]
fn what_nobody_wrote_is_zeros_and_not_asked_for() {
    let mut story = Story::new();
    story.write(3 * BLOCK_BYTES, b"x");
    let plan = story.contents.plan(file(FILE), View::Lent(lend(2)), 0..BLOCK_BYTES).unwrap();
    assert!(plan.missing.is_empty());
    assert_eq!(plan.assemble(&[]), vec![0; usize::try_from(BLOCK_BYTES).unwrap()]);
}

#[test]
fn it_is_sent_when_it_has_waited_for_a_while() {
    let mut story = Story::new();
    story.now = 10;
    story.write(0, b"a");
    // With what is written soon after it, to whichever file.
    assert_eq!(story.next(), Step::Wait(Some(at(500))));
    assert_eq!(story.contents.next(at(10), story.file(), Some(at(200))), Step::Wait(Some(at(200))));
    story.now = 500;
    assert!(matches!(story.works(), Work::Write { offset: 0, .. }));
    assert_eq!(story.next(), Step::Wait(None), "it is under way");
}

#[test]
fn much_is_sent_at_once_and_so_is_what_is_wanted() {
    let mut story = Story::new();
    story.write(0, &vec![1; 5 << 20]);
    let sent: Vec<u64> = std::iter::from_fn(|| match story.next() {
        Step::Work(Work::Write { offset, .. }) => Some(offset >> 20),
        _ => None,
    })
    .collect();
    assert_eq!(sent, [0, 1, 2, 3], "in the order of offsets, and not all of it");

    let mut story = Story::new();
    story.write(0, b"a");
    let wanted = story.contents.want(file(FILE), Level::Durable).unwrap();
    assert!(!story.contents.has_sent(file(FILE), wanted));
    let work = story.works();
    assert!(matches!(work, Work::Write { level: Level::Durable, .. }), "it is wanted to be safe");
    let flush = story.take_in(&work);
    assert!(!story.contents.has_sent(file(FILE), wanted), "nobody has answered");
    story.write(10, b"b");
    story.sent(flush, Sent::Done);
    assert!(story.contents.has_sent(file(FILE), wanted), "what was written later is not waited for");
}

/// A disk is synced once: for what is made durable together with something else, and for much, afterwards.
#[test]
fn what_is_wanted_is_durable_when_it_is_sent_if_nothing_else_has_to_be() {
    for (bytes, wanted, expected) in [
        (9, Level::Durable, Level::Durable),
        (9, Level::Written, Level::Written),
        (2 << 20, Level::Durable, Level::Written),
    ] {
        let mut story = Story::new();
        story.write(0, &vec![1; bytes]);
        let mark = story.contents.want(file(FILE), wanted).unwrap();
        let Work::Write { level, .. } = story.works() else { panic!("that was written") };
        assert_eq!(level, expected, "{bytes} bytes, {wanted:?}");
        assert!(!story.contents.has_sent(file(FILE), mark));
    }
}

#[test]
fn no_more_is_taken_than_there_is_room_for() {
    let mut story = Story::new();
    for number in 0..64 {
        assert!(story.contents.has_room());
        story.write(number << 20, &vec![1; 1 << 20]);
    }
    assert!(!story.contents.has_room());
    assert!(matches!(story.settle(), Step::Wait(_)));
    assert!(story.contents.has_room());
}

#[test]
fn what_is_written_again_while_it_is_sent_is_sent_again_and_not_before_that_is_over() {
    let mut story = Story::new();
    story.write(0, b"aaaa");
    story.contents.want(file(FILE), Level::Durable);
    let first = story.works();
    story.write(1, b"bb");
    story.contents.want(file(FILE), Level::Durable);
    assert_eq!(story.next(), Step::Wait(None));
    let flush = story.take_in(&first);
    story.sent(flush, Sent::Done);
    assert!(matches!(story.works(), Work::Write { offset: 1, .. }));
    assert_eq!(story.read(0..9).unwrap(), "abba");
}

#[test]
fn what_is_cut_off_is_so_before_anything_else_is_sent() {
    let mut story = Story::with(b"hello world");
    story.truncate(3);
    story.write(5, b"x");
    assert_eq!(story.read(0..9).unwrap()[..], *b"hel\0\0x", "nothing comes back");
    story.contents.want(file(FILE), Level::Durable);
    let cut = story.works();
    assert!(matches!(cut, Work::Resize { size: 3, .. }));
    assert_eq!(story.next(), Step::Wait(None), "nothing overtakes it");
    let flush = story.take_in(&cut);
    story.sent(flush, Sent::Done);
    assert!(matches!(story.settle(), Step::Wait(Some(_))));
    assert_eq!(story.remote, b"hel\0\0x");
}

#[test]
fn what_only_grows_is_sent_as_its_size() {
    let mut story = Story::with(b"ab");
    story.truncate(9);
    story.contents.want(file(FILE), Level::Durable);
    let work = story.works();
    assert!(matches!(work, Work::Resize { size: 9, .. }));
    let flush = story.take_in(&work);
    story.sent(flush, Sent::Done);
    assert_eq!(story.read(0..100).unwrap()[..], *b"ab\0\0\0\0\0\0\0");
}

#[test]
fn a_size_that_is_wanted_is_sent_though_more_was_written_since() {
    let mut story = Story::with(b"ab");
    story.truncate(9);
    let mark = story.contents.want(file(FILE), Level::Durable).unwrap();
    story.write(20, b"later");
    assert!(!story.contents.has_sent(file(FILE), mark));
    let work = story.works();
    assert!(matches!(work, Work::Resize { size: 9, level: Level::Durable, .. }), "{work:?}");
    assert_eq!(story.next(), Step::Wait(None), "what was written later comes later");
    let flush = story.take_in(&work);
    story.sent(flush, Sent::Done);
    assert!(story.contents.has_sent(file(FILE), mark));
    assert_eq!(story.remote, b"ab\0\0\0\0\0\0\0");
}

#[test]
fn a_size_that_is_wanted_is_sent_whatever_was_cut_since_and_before() {
    let mut story = Story::with(b"0123456789");
    story.truncate(2);
    story.truncate(5);
    let mark = story.contents.want(file(FILE), Level::Durable).unwrap();
    story.truncate(7);
    story.write(20, b"later");
    let cut = story.works();
    assert!(matches!(cut, Work::Resize { size: 2, .. }), "{cut:?}");
    let flush = story.take_in(&cut);
    story.sent(flush, Sent::Done);
    assert!(!story.contents.has_sent(file(FILE), mark), "it ends too early");
    let grown = story.works();
    assert!(matches!(grown, Work::Resize { size: 5, .. }), "{grown:?}");
    let flush = story.take_in(&grown);
    story.sent(flush, Sent::Done);
    assert!(story.contents.has_sent(file(FILE), mark));
}

/// Or a file that grows all the time is never synced.
#[test]
fn a_size_that_was_given_later_is_not_waited_for() {
    let mut story = Story::with(b"ab");
    story.truncate(9);
    let mark = story.contents.want(file(FILE), Level::Durable).unwrap();
    story.truncate(20);
    let work = story.works();
    assert!(matches!(work, Work::Resize { size: 9, .. }), "{work:?}");
    let flush = story.take_in(&work);
    story.truncate(30);
    story.sent(flush, Sent::Done);
    assert!(story.contents.has_sent(file(FILE), mark));
    story.contents.want(file(FILE), Level::Durable);
    let work = story.works();
    assert!(story.contents.has_sent(file(FILE), mark), "{work:?} is somebody else's");
    let flush = story.take_in(&work);
    story.sent(flush, Sent::Done);
    story.settle();
    assert_eq!(story.remote.len(), 30);
}

/// Or a file that is emptied all the time is never synced.
#[test]
fn what_is_being_cut_is_not_cut_again() {
    let mut story = Story::with(b"hello");
    story.truncate(0);
    let mark = story.contents.want(file(FILE), Level::Durable).unwrap();
    let cut = story.works();
    story.write(0, b"x");
    story.truncate(0);
    let flush = story.take_in(&cut);
    story.sent(flush, Sent::Done);
    assert!(story.contents.has_sent(file(FILE), mark));
    assert!(matches!(story.settle(), Step::Wait(Some(_))));
    story.truncate(3);
    story.contents.want(file(FILE), Level::Durable);
    let grown = story.works();
    let flush = story.take_in(&grown);
    story.truncate(2);
    story.sent(flush, Sent::Unknown);
    story.now += 600;
    story.settle();
    assert_eq!(story.remote.len(), 2);
}

#[test]
fn what_was_wanted_and_is_cut_meanwhile_leaves_the_size() {
    let mut story = Story::new();
    story.write(10, b"wanted");
    let mark = story.contents.want(file(FILE), Level::Durable).unwrap();
    story.truncate(4);
    story.write(8, b"later");
    assert!(!story.contents.has_sent(file(FILE), mark));
    let work = story.works();
    assert!(matches!(work, Work::Resize { size: 4, .. }), "{work:?}");
    let flush = story.take_in(&work);
    story.sent(flush, Sent::Unknown);
    story.now += 600;
    story.settle();
    assert!(story.contents.has_sent(file(FILE), mark));
    assert_eq!(story.remote, b"\0\0\0\0\0\0\0\0later");
}

#[test]
fn what_rests_is_returned_and_what_was_read_stays_good() {
    let mut story = Story::new();
    story.write(0, b"abc");
    story.now = 999;
    assert!(matches!(story.settle(), Step::Wait(Some(due)) if due == at(1_000)));
    story.now = 1_000;
    let changed = WallTime::from_micros(1);
    let set = OwnerSet { modified: Some(changed), ..OwnerSet::default() };
    assert_eq!(story.works(), Work::Return { set, changed, is_untouched: false });
    assert!(!story.write(0, b"x"), "nothing is taken any more");
    story.contents.returned(story.file(), Sent::Done);
    assert_eq!(story.next(), Step::Over);
    let view = View::Still(Some(lend(2)), 3);
    let plan = story.contents.plan(file(FILE), view, 0..10).unwrap();
    assert_eq!((plan.missing.len(), plan.assemble(&[])), (0, "abc".into()));
    let view = View::Still(Some(lend(3)), 3);
    assert_eq!(story.contents.plan(file(FILE), view, 0..10).unwrap().missing, [0]);
}

#[test]
fn what_a_user_sets_is_shown_and_goes_back_with_the_lend() {
    let mut story = Story::new();
    story.write(0, b"abc");
    let [modified, accessed] = [7, 8].map(|micros| Some(WallTime::from_micros(micros)));
    let (now, id) = ((at(5), WallTime::from_micros(99)), story.file());
    let mode = Some((0o640, Who::root()));
    assert!(!story.contents.has_own_set(id.0));
    story.contents.set_by_owner(now, id, OwnerSet { modified, accessed, mode: None }).unwrap();
    assert!(story.contents.has_own_set(id.0) && !story.contents.has_own_mode(id.0));
    story.contents.set_by_owner(now, id, OwnerSet { mode: mode.clone(), ..OwnerSet::default() }).unwrap();
    story.contents.set_by_owner(now, id, OwnerSet { modified, ..OwnerSet::default() }).unwrap();
    let shown = story.contents.shows(id.0, id.1).unwrap();
    assert_eq!((Some(shown.modified), shown.accessed, shown.changed), (modified, accessed, now.1));
    assert!(shown.mode == Some(0o640) && story.contents.has_own_mode(id.0));
    let set = OwnerSet { modified, accessed, mode };
    let returned = Step::Work(Work::Return { set, changed: now.1, is_untouched: false });
    assert!(matches!(story.settle(), Step::Wait(_)), "more may be set");
    story.now = 2_000;
    assert!((0..2).any(|_| story.settle() == returned));
    assert!(story.contents.set_by_owner(now, id, OwnerSet::default()).is_none(), "it is on its way back");
}

#[test]
fn permissions_go_back_also_if_the_file_is_written_all_the_time() {
    let mut story = Story::new();
    let mode = Some((0o640, Who::root()));
    let at_start = (at(0), WallTime::from_micros(99));
    story.contents.set_by_owner(at_start, story.file(), OwnerSet { mode, ..OwnerSet::default() }).unwrap();
    for now in (0..2_000).step_by(100) {
        story.now = now;
        assert!(story.write(0, b"abc"));
    }
    story.now = 2_000;
    assert!(!matches!(story.settle(), Step::Wait(_)));
    assert!(!story.write(0, b"abc"), "who writes on has it lent again");
}

#[test]
fn who_has_a_file_open_hears_that_what_was_set_is_lost_with_the_lend() {
    let lost = |lose: fn(&mut Story)| {
        let mut story = Story::new();
        let (now, id) = ((at(5), WallTime::from_micros(99)), story.file());
        let known = story.contents.open(id.0);
        let mode = Some((0o640, Who::root()));
        story.contents.set_by_owner(now, id, OwnerSet { mode, ..OwnerSet::default() }).unwrap();
        lose(&mut story);
        story.contents.fault(id.0, known).map(|(_, fault)| fault)
    };
    assert_eq!(lost(|story| story.contents.end_lend(story.file(), Fault::NotLent)), Some(Fault::NotLent));
    assert_eq!(
        lost(|story| story.contents.returned(story.file(), Sent::Failed(Fault::NotLent))),
        Some(Fault::NotLent)
    );
    assert_eq!(lost(|story| story.contents.returned(story.file(), Sent::Done)), None);
}

/// It has to have all that was written before, and nothing that is written meanwhile is in its way.
#[test]
fn what_only_the_content_can_do_has_the_lend_given_back() {
    let mut story = Story::new();
    story.write(0, b"abc");
    let (mut cache, mut changing) = (Cache::default(), Changing::new(false));
    let mut next = |contents: &mut Contents| {
        let mut known = Known { now: at(0), id: file(FILE), cache: &mut cache, contents };
        changing.next(&mut known, &Through::default(), |_, _| None::<()>)
    };
    assert_eq!(next(&mut story.contents), ChangeStep::GiveBack);
    assert!(!story.write(0, b"x"), "nothing is taken any more");
    assert!(matches!(story.settle(), Step::Work(Work::Return { is_untouched: false, .. })));
    assert_eq!(story.remote, b"abc");
    story.contents.returned(story.file(), Sent::Done);
    assert_eq!(next(&mut story.contents), ChangeStep::Through);
}

/// A clock may be slow, or have gone back, or a user has set a time that is to come.
#[test]
fn what_is_written_later_has_another_time_whatever_the_clock_says() {
    let mut contents = Contents::new(1);
    let [then, soon] = [900, 2_000].map(WallTime::from_micros);
    let known = Shown { modified: soon, changed: then, ..EMPTY };
    assert!(contents.adopt(at(0), file(FILE), (lend(2), None), known));
    let data = Bytes::from_static(b"x");
    let mut write = |clock: u64| {
        let written =
            contents.write((at(1), WallTime::from_micros(clock)), (file(FILE), lend(2)), (None, &data));
        assert!(matches!(written, Some(Ok(_))));
        let shown = contents.shows(file(FILE), lend(2)).unwrap();
        assert_eq!(shown.modified, shown.changed);
        shown.modified.as_micros()
    };
    assert_eq!([write(5), write(5), write(1_000), write(999)], [901, 902, 1_000, 1_001]);
}

#[test]
fn what_was_left_alone_is_returned_untouched() {
    let mut story = Story::new();
    story.now = 1_000;
    let set = OwnerSet::default();
    assert_eq!(story.works(), Work::Return { set, changed: WallTime::ZERO, is_untouched: true });
    story.contents.returned(story.file(), Sent::Unknown);
    assert!(matches!(story.works(), Work::Return { .. }), "it is told again");
}

#[test]
fn what_is_wanted_back_is_sent_and_returned_and_then_that_is_answered() {
    let mut story = Story::new();
    story.write(0, b"abc");
    assert!(story.contents.recall((file(FILE), lend(2)), recall(7)));
    assert!(!story.write(0, b"x") && story.read(0..3).is_none(), "nothing is answered any more");
    assert!(matches!(story.settle(), Step::Work(Work::Return { is_untouched: false, .. })));
    assert_eq!(story.remote, b"abc");
    assert!(story.contents.take_answered().is_empty());
    story.contents.returned(story.file(), Sent::Done);
    assert_eq!(story.contents.take_answered(), [recall(7).unwrap()]);
    assert!(!story.contents.recall((file(FILE), lend(2)), recall(8)), "nothing is here");
}

#[test]
fn what_is_slow_of_one_file_does_not_delay_another() {
    let mut story = Story::new();
    let other = (file(2), lend(3));
    story.contents.adopt(at(0), other.0, (other.1, None), EMPTY);
    story.write(0, b"abc");
    story.contents.recall((file(FILE), lend(2)), recall(1));
    story.contents.recall(other, recall(2));
    story.works();
    assert!(matches!(story.contents.next(at(0), other, None), Step::Work(Work::Return { .. })));
    story.contents.returned(other, Sent::Done);
    assert_eq!(story.contents.take_answered(), [recall(2).unwrap()]);
}

#[test]
fn a_connection_that_is_gone_takes_no_data_with_it() {
    let mut story = Story::new();
    story.write(0, b"abc");
    story.contents.recall((file(FILE), lend(2)), recall(1));
    story.contents.forget_recalls(DAEMON);
    assert!(matches!(story.settle(), Step::Work(Work::Return { .. })));
    assert_eq!(story.remote, b"abc");
    story.contents.returned(story.file(), Sent::Done);
    assert!(story.contents.take_answered().is_empty(), "nobody is there to hear it");
}

/// Whoever syncs waits for what stands where that was, whoever wrote it.
#[test]
fn what_was_written_over_while_nobody_said_anything_of_it_is_waited_for() {
    let mut story = Story::new();
    story.write(0, b"before");
    let wanted = story.contents.want(file(FILE), Level::Durable).unwrap();
    let Work::Write { flush, .. } = story.works() else { panic!("it is sent") };
    story.write(0, b"behind");
    story.sent(flush, Sent::Unknown);
    assert!(!story.contents.has_sent(file(FILE), wanted), "none of it was taken in");
    story.now += 1_000;
    let work = story.works();
    let flush = story.take_in(&work);
    assert!(!story.contents.has_sent(file(FILE), wanted));
    story.sent(flush, Sent::Done);
    assert!(story.contents.has_sent(file(FILE), wanted));
}

#[test]
fn what_nobody_said_anything_of_is_sent_again() {
    let mut story = Story::new();
    story.write(0, b"abc");
    story.contents.want(file(FILE), Level::Durable);
    let Work::Write { flush, .. } = story.works() else { panic!("it is sent") };
    story.sent(flush, Sent::Unknown);
    assert_eq!(story.next(), Step::Wait(Some(at(100))));
    story.now = 100;
    assert!(matches!(story.settle(), Step::Wait(Some(_))));
    assert_eq!(story.remote, b"abc");
}

/// A write of which nobody said anything made the content longer than it is taken to be.
#[test]
fn what_may_have_come_to_be_longer_is_cut_all_the_same() {
    let mut story = Story::new();
    story.write(0, b"0123456789");
    story.contents.want(file(FILE), Level::Durable);
    let work = story.works();
    let flush = story.take_in(&work);
    story.sent(flush, Sent::Unknown);
    story.truncate(3);
    story.now = 1_000;
    assert!(matches!(story.settle(), Step::Work(Work::Return { .. })));
    assert_eq!(story.remote, b"012");
}

#[test]
fn what_was_refused_is_told_once_to_everybody_who_has_the_file_open() {
    let mut story = Story::new();
    let [first, second] = [story.contents.open(file(FILE)), story.contents.open(file(FILE))];
    story.write(0, b"abc");
    story.contents.want(file(FILE), Level::Durable);
    let Work::Write { flush, .. } = story.works() else { panic!("it is sent") };
    story.sent(flush, Sent::Failed(Fault::Refused(FileError::NoSpace)));
    for known in [first, second] {
        let (told, fault) = story.contents.fault(file(FILE), known).unwrap();
        assert_eq!(fault, Fault::Refused(FileError::NoSpace));
        story.contents.note_told(file(FILE), told);
        assert_eq!(story.contents.fault(file(FILE), told), None);
    }
    let third = story.contents.open(file(FILE));
    assert_eq!(story.contents.fault(file(FILE), third), None, "it was not open then");
    assert_eq!(story.contents.take_lost(), [(file(FILE), 0..3)]);
    assert!(story.write(0, b"d"), "it is lent all the same");
}

#[test]
fn what_was_refused_after_a_file_was_closed_is_told_to_whoever_opens_it_next() {
    let mut story = Story::new();
    let known = story.contents.open(file(FILE));
    story.write(0, b"abc");
    story.contents.want(file(FILE), Level::Durable);
    let Work::Write { flush, .. } = story.works() else { panic!("it is sent") };
    assert_eq!(story.contents.fault(file(FILE), known), None);
    story.contents.close(file(FILE));
    story.sent(flush, Sent::Failed(Fault::NotLent));
    let known = story.contents.open(file(FILE));
    let (told, fault) = story.contents.fault(file(FILE), known).unwrap();
    assert_eq!(fault, Fault::NotLent);
    // Somebody who was not told has not had it.
    story.contents.close(file(FILE));
    assert_eq!(story.contents.open(file(FILE)), known);
    story.contents.note_told(file(FILE), told);
    assert_eq!(story.contents.open(file(FILE)), told, "somebody was told");
    story.contents.close(file(FILE));
    story.contents.close(file(FILE));
    assert_eq!(story.contents.open(file(FILE)), 0, "nothing is known of it any more");
}

#[test]
fn of_what_nobody_was_told_only_so_much_is_known() {
    let mut contents = Contents::new(1);
    let id = |number: u64| file(number);
    let count = u64::try_from(UNTOLD_MAX).unwrap() + 10;
    for number in 0..count {
        contents.open(id(number));
        contents.refuse((id(number), lend(2)), Fault::Ended);
        contents.close(id(number));
    }
    let is_untold = |number: &u64| contents.fault(id(*number), 0).is_some();
    assert_eq!((0..count).filter(is_untold).collect::<Vec<u64>>(), (10..count).collect::<Vec<u64>>());
}

#[test]
fn what_is_taken_away_is_lost_with_all_that_is_here() {
    let mut story = Story::new();
    let known = story.contents.open(file(FILE));
    story.write(0, b"abc");
    story.contents.want(file(FILE), Level::Durable);
    let Work::Write { flush, .. } = story.works() else { panic!("it is sent") };
    story.write(9, b"d");
    story.contents.recall((file(FILE), lend(2)), recall(1));
    story.sent(flush, Sent::Failed(Fault::NotLent));
    assert_eq!(story.contents.fault(file(FILE), known).map(|(_, fault)| fault), Some(Fault::NotLent));
    assert_eq!(story.contents.take_lost(), [(file(FILE), 0..3), (file(FILE), 9..10)]);
    assert_eq!(story.contents.take_answered(), [recall(1).unwrap()]);
    assert_eq!(story.next(), Step::Over);
    assert!(
        !story.contents.adopt(at(0), file(FILE), (lend(2), None), EMPTY),
        "what is over does not begin again"
    );
    assert!(story.contents.adopt(at(0), file(FILE), (lend(4), None), EMPTY));
}

#[test]
fn what_is_wanted_back_before_it_is_known_is_never_used() {
    let mut contents = Contents::new(1);
    assert!(!contents.recall((file(FILE), lend(2)), recall(1)), "the answer waits for nothing");
    assert!(!contents.adopt(at(0), file(FILE), (lend(2), None), EMPTY));
    assert!(contents.adopt(at(0), file(FILE), (lend(3), None), EMPTY));
    assert!(!contents.recall((file(FILE), lend(2)), recall(2)), "this is about an earlier one");
    assert!(contents.shows(file(FILE), lend(3)).is_some());
}

#[test]
fn of_what_is_gone_nothing_is_sent_unless_somebody_has_it_open() {
    let mut story = Story::new();
    story.write(0, b"abc");
    story.contents.removed(file(FILE));
    assert_eq!(story.next(), Step::Over);
    assert!(story.contents.has_room() && story.contents.has_no_lends());
    assert!(story.contents.was_dropped(file(FILE)));

    let mut story = Story::new();
    story.contents.open(file(FILE));
    story.write(0, b"abc");
    story.contents.removed(file(FILE));
    assert_eq!(story.read(0..9).unwrap(), "abc");
    assert!(!story.contents.was_dropped(file(FILE)));
    story.contents.close(file(FILE));
    assert!(story.contents.was_dropped(file(FILE)) && story.next() == Step::Over);
    assert!(story.contents.take_lost().is_empty(), "nobody misses it");
}

#[test]
fn what_was_read_while_it_changed_is_not_kept() {
    let mut story = Story::with(b"hello");
    let view = View::Lent(lend(2));
    let plan = story.contents.plan(file(FILE), view, 0..9).unwrap();
    story.write(0, b"J");
    story.contents.want(file(FILE), Level::Durable);
    assert!(matches!(story.settle(), Step::Wait(_)));
    story.contents.keep(file(FILE), plan.mark, (0, &Bytes::from("hello")));
    assert_eq!(story.read(0..9).unwrap(), "Jello");

    let mut contents = Contents::new(1);
    let plan = contents.plan(file(FILE), View::Still(Some(lend(1)), 5), 0..5).unwrap();
    contents.plan(file(FILE), View::Still(Some(lend(2)), 5), 0..5);
    contents.keep(file(FILE), plan.mark, (0, &Bytes::from("hello")));
    assert!(!contents.has(file(FILE), 0));
}

/// Numbers that look random, and are the same each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Whatever is done in whatever order, what is read is what was written, and in the end the daemon has it.
#[test]
fn it_is_as_if_it_was_written_to_one_place() {
    const SIZE: u64 = 3 * BLOCK_BYTES;
    for seed in 1..200_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut story = Story::with(b"what was there before");
        let mut model = story.remote.clone();
        let mut under_way: Vec<Work> = Vec::new();
        for step in 0..200 {
            story.now += dice.roll(300);
            match dice.roll(6) {
                0 | 1 => {
                    let (offset, length) = (dice.roll(SIZE), 1 + dice.roll(BLOCK_BYTES));
                    let byte = u8::try_from(step % 250 + 1).unwrap();
                    let data = vec![byte; usize::try_from(length).unwrap()];
                    if story.write(offset, &data) {
                        let from = usize::try_from(offset).unwrap();
                        model.resize(model.len().max(from + data.len()), 0);
                        model[from..from + data.len()].copy_from_slice(&data);
                    }
                }
                2 => {
                    let size = dice.roll(SIZE);
                    story.truncate(size);
                    model.resize(usize::try_from(size).unwrap(), 0);
                }
                3 => {
                    let (from, to) = (dice.roll(SIZE), dice.roll(SIZE));
                    let read = story.read(from..to.max(from)).unwrap();
                    let end = model.len().min(usize::try_from(to.max(from)).unwrap());
                    let expected = model.get(usize::try_from(from).unwrap()..end).unwrap_or_default();
                    assert!(read == expected, "seed {seed}, step {step}: {from}..{to}");
                }
                4 => match story.next() {
                    Step::Work(Work::Return { .. }) => story.contents.returned(story.file(), Sent::Unknown),
                    Step::Work(work) => under_way.push(work),
                    Step::Wait(_) => {}
                    Step::Over => panic!("nothing ends it"),
                },
                _ if under_way.is_empty() => {}
                _ => {
                    let work = under_way.remove(usize::try_from(dice.roll(under_way.len() as u64)).unwrap());
                    let flush = story.take_in(&work);
                    let sent = if dice.roll(5) == 0 { Sent::Unknown } else { Sent::Done };
                    story.sent(flush, sent);
                }
            }
            if story.contents.shows(file(FILE), lend(2)).is_none() {
                break;
            }
        }
        for work in under_way {
            let flush = story.take_in(&work);
            story.sent(flush, Sent::Done);
        }
        story.now += 10_000;
        assert!(matches!(story.settle(), Step::Work(Work::Return { .. })), "seed {seed}");
        assert!(story.remote == model, "seed {seed}");
    }
}

/// Of two changes of this client the later one may be sent first. Who reads meanwhile does not see that one alone.
#[test]
fn what_is_read_while_it_is_sent_is_not_of_two_times() {
    let mut story = Story::with(&[1; 20]);
    let view = View::Lent(lend(2));
    let plan = story.contents.plan(file(FILE), view, 0..20).unwrap();
    assert_eq!(plan.missing, [0]);
    assert!(story.write(10, b"before"));
    assert!(story.write(0, b"after"));
    let before = story.remote.clone();
    story.now += 501;
    let work = story.works();
    let flush = story.take_in(&work);
    assert_ne!(story.remote, before, "a daemon has some of it");
    assert!(story.contents.may_differ(file(FILE), plan.mark, &plan.missing));
    story.sent(flush, Sent::Done);
    assert!(story.contents.may_differ(file(FILE), plan.mark, &plan.missing));
    let again = story.contents.plan(file(FILE), view, 0..20).unwrap();
    assert!(
        !story.contents.may_differ(file(FILE), again.mark, &again.missing),
        "what is sent by now is over it"
    );
    assert!(!story.contents.may_differ(file(FILE), plan.mark, &[7]), "nothing was sent there");
}
