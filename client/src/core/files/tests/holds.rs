//! What a client has open, and what it tells about it.

use node::Attendance;

use super::shown::told as shown;
use super::*;

const TENURE: Epoch = Epoch { number: 5, node: NodeId(1) };
const LATER: Epoch = Epoch { number: 6, node: NodeId(2) };

fn told(sent: &Sent) -> Attendance {
    match &sent.request.body {
        FileBody::Attend(attendance) => attendance.clone(),
        _ => panic!("nothing is told: {sent:?}"),
    }
}

const fn attended(tenure: Epoch) -> FileReplyBody {
    FileReplyBody::Attended { tenure, is_told: false }
}

fn inode(number: u64) -> InodeId {
    InodeId { number, ..InodeId::ROOT }
}

/// A client that attends to a volume, and has told its primary that nothing is open.
fn attending() -> Story {
    let mut story = Story::new();
    story.files.attend_to(story.now, OBJECT);
    let first = story.sent_one();
    assert_eq!(told(&first).tenure, None, "it knows of none");
    story.reply(&first, attended(TENURE));
    let second = story.sent_one();
    assert_eq!(told(&second), Attendance { tenure: Some(TENURE), stamp: 0, open: Some(Vec::new()) });
    story.reply(&second, attended(TENURE));
    story
}

fn open(story: &mut Story, number: u64) -> Sent {
    let opening = Opening::Open(Who::root(), inode(number), OpenMode::Read);
    story.files.open_to_hold(story.now, OBJECT, opening);
    story.sent_one()
}

/// What is told next, a while later.
fn next(story: &mut Story) -> Sent {
    let is_told = |sent: &Sent| matches!(sent.request.body, FileBody::Attend(_));
    story.wait(5_000).into_iter().rfind(is_told).expect("it goes on telling")
}

#[test]
fn what_is_under_way_counts_as_open_and_what_is_told_is_of_what_was_before() {
    let mut story = attending();
    let first = open(&mut story, 7);
    assert_eq!(first.request.holds, Some(1));
    let attendance = story.files.holds.attendance(OBJECT);
    assert_eq!((attendance.stamp, attendance.open), (0, Some(vec![inode(7)])));
    let (FileReplyBody::Answer(Ok(Answer::Tree(answer))), _) = shown(inode(7)) else { unreachable!() };
    let namespace::Answer::Attributes(attributes) = *answer else { unreachable!() };
    let source = Source { volume: OBJECT, inode: inode(7), lend: None };
    let file = node::file_object(OBJECT, inode(7));
    let open = Open { file, mode: OpenMode::Read, certificate: CertificateId([1; 32]) };
    let (expires, epoch, tag) = (WallTime::from_micros(9), KeyEpoch(1), Tag::from_bytes([0; 32]));
    let capability = Box::new(Capability { source, open, expires, epoch, tag });
    story.reply(&first, FileReplyBody::Opened { attributes: Box::new(attributes), capability });
    let attendance = story.files.holds.attendance(OBJECT);
    assert_eq!((attendance.stamp, attendance.open), (1, Some(vec![inode(7)])));
    story.files.close_held(OBJECT, inode(7));
    let attendance = story.files.holds.attendance(OBJECT);
    assert_eq!((attendance.stamp, attendance.open), (1, Some(Vec::new())));
}

/// Whatever the creation may have opened at the primary before is not in what the next one is told.
#[test]
fn a_new_primary_is_told_nothing_while_an_earlier_creation_is_under_way() {
    let mut story = attending();
    let op = namespace::Op::wanted(Who::root(), namespace::Change::Settle);
    story.files.create_to_hold(story.now, OBJECT, Change::Tree(Arc::new(op)), Level::Written);
    let create = story.sent_one();
    assert_eq!(create.request.holds, Some(1));
    let sent = next(&mut story);
    story.reply(&sent, attended(LATER));
    let again = story.sent_one();
    assert_eq!(told(&again).tenure, None, "what it says is not all");
    story.reply(&again, attended(LATER));
    story.reply(&create, changed(mark(1, 1)));
    assert_eq!(told(&next(&mut story)).tenure, Some(LATER));
}

#[test]
fn who_has_ended_is_told_once_and_tells_nothing_more() {
    let mut story = attending();
    let sent = next(&mut story);
    let client = base::ClientId { certificate: 1, program: 1 };
    story.reply(&sent, FileReplyBody::Refused(namespace::NameError::Expired { client }.into()));
    assert_eq!(story.event(), [FileEvent::Ended { volume: OBJECT }]);
    assert!(story.files.has_ended(OBJECT) && !story.files.attends_to(OBJECT));
    story.files.attend_to(story.now, OBJECT);
    assert_eq!(story.wait(10_000), []);
}

/// Its changes of the tree are refused, though the tree has it on record still.
#[test]
fn whose_changes_are_refused_for_ever_has_ended() {
    let mut story = attending();
    let op = namespace::Op::wanted(Who::root(), namespace::Change::Settle);
    let ticket = story.files.change(story.now, OBJECT, Change::Tree(Arc::new(op)), Level::Written);
    let sent = story.sent_one();
    story.reply(&sent, FileReplyBody::Expired);
    assert_eq!(story.event(), [FileEvent::Ended { volume: OBJECT }, FileEvent::Expired { ticket }]);
    assert!(story.files.has_ended(OBJECT) && !story.files.attends_to(OBJECT));
    assert_eq!(story.wait(10_000), []);
}
