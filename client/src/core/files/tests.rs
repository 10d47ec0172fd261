use base::{ClusterId, Epoch, Seq, WallTime};
use namespace::{Ask, Attributes, InodeId, Kind, Who};
use node::file::{Change, FileBody, Level, Mark, Position, READ_BYTES_MAX, Stat, WRITE_BYTES_MAX};
use node::{CertificateId, KeyEpoch, Open, OpenMode, Osd, Proof, Settings, Source, Tag};

use super::*;

mod closing;
mod entries;
mod exactly_once;
mod holds;
mod shown;
mod syncs;

const OBJECT: ObjectId = ObjectId::new(1, 2);

/// A client of three daemons, and what it wanted done.
struct Story {
    files: Files,
    now: MonoTime,
    /// The members of the file, the preferred one first.
    members: Vec<NodeId>,
    events: Vec<FileEvent>,
}

/// One sending.
#[derive(Clone, PartialEq, Debug)]
struct Sent {
    to: NodeId,
    at_ms: u64,
    request: FileRequest,
}

impl Story {
    /// A client that is connected with all of them.
    fn new() -> Self {
        let mut story = Self::alone();
        story.members.clone().into_iter().for_each(|node| story.files.handle_up(at(0), node));
        story
    }

    /// A client that is connected with more daemons than the file has members.
    fn among(count: u32) -> Self {
        let mut story = Self::of(count);
        (1..=count).for_each(|id| story.files.handle_up(at(0), NodeId(id)));
        story
    }

    /// A client that is connected with nobody.
    fn alone() -> Self {
        Self::of(3)
    }

    fn of(count: u32) -> Self {
        let osds = (1..=count).map(|id| Osd { id: NodeId(id), address: format!("10.0.0.{id}:7000") });
        let map = ClusterMap::new(ClusterId([7; 16]), 1, 3, Settings::default(), osds.collect());
        let map = Arc::new(map.expect("a sound map"));
        let members = map.members(OBJECT);
        Self { files: Files::new(map), now: at(0), members, events: Vec::new() }
    }

    fn write(&mut self) -> FileTicket {
        self.files.change(self.now, OBJECT, write(b"data"), Level::Written)
    }

    fn stat(&mut self) -> FileTicket {
        self.files.ask(self.now, OBJECT, Query::Stat)
    }

    fn sync(&mut self) -> FileTicket {
        self.files.sync(self.now, OBJECT)
    }

    /// What is sent now.
    fn sent(&mut self) -> Vec<Sent> {
        let mut sent = Vec::new();
        while let Some(output) = self.files.poll_output() {
            match output {
                FileOutput::Send { to, request } => sent.push(Sent { to, at_ms: ms(self.now), request }),
                FileOutput::Event(event) => self.events.push(event),
                FileOutput::Told { .. } => panic!("nothing is kept"),
            }
        }
        sent
    }

    /// The only thing that is sent now.
    fn sent_one(&mut self) -> Sent {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    /// What is sent until some milliseconds have passed.
    fn wait(&mut self, span_ms: u64) -> Vec<Sent> {
        let until = self.now + Span::from_millis(span_ms);
        let mut sent = self.sent();
        while let Some(due) = self.files.poll_timeout().filter(|&due| due <= until) {
            assert!(due >= self.now, "whoever waits is told a time that has passed");
            self.now = due;
            self.files.handle_timeout(due);
            sent.extend(self.sent());
        }
        self.now = until;
        self.files.handle_timeout(until);
        assert_eq!(self.sent(), [], "calling it early changes nothing");
        sent
    }

    fn reply(&mut self, sent: &Sent, body: FileReplyBody) {
        self.files.handle_reply(
            self.now,
            sent.to,
            FileReply { id: sent.request.id, body, proofs: Vec::new(), grant: None },
        );
    }

    fn event(&mut self) -> Vec<FileEvent> {
        assert_eq!(self.sent(), []);
        std::mem::take(&mut self.events)
    }

    /// Has a change acknowledged.
    fn acknowledged(&mut self, mark: Mark) -> FileTicket {
        let ticket = self.write();
        let sent = self.sent_one();
        self.reply(&sent, changed(mark));
        assert_eq!(
            self.event(),
            [FileEvent::Changed { ticket, outcome: Ok(DONE), level: Level::Written, opened: None }]
        );
        ticket
    }
}

const DONE: Done = Done::Changed {
    stat: Stat { size: 4, modified: WallTime::ZERO, changed: WallTime::ZERO, allocated: 0, lend: None },
};

fn at(ms: u64) -> MonoTime {
    MonoTime::from_micros(1_000_000_000 + ms * 1_000)
}

fn ms(now: MonoTime) -> u64 {
    now.since(at(0)).as_micros() / 1_000
}

fn write(data: &'static [u8]) -> Change {
    Change::Write { offset: 0, data: data.into() }
}

/// A mark of a loss generation.
fn mark(generation: u64, seq: u64) -> Mark {
    let epoch = |number| Epoch { number, node: NodeId(1) };
    Mark { at: Position { epoch: epoch(9), seq: Seq(seq) }, generation: epoch(generation) }
}

fn changed(mark: Mark) -> FileReplyBody {
    FileReplyBody::Changed { outcome: Ok(DONE), mark, level: Level::Written, opened: None }
}

fn answer() -> FileReplyBody {
    FileReplyBody::Answer(Ok(Answer::Stat(Stat::default())))
}

/// A change's number, and what it says is settled.
fn numbers(sent: &Sent) -> (u64, u64) {
    match sent.request.body {
        FileBody::Change { number, settled, .. } => (number, settled),
        _ => panic!("no change: {sent:?}"),
    }
}

const BUSY: FileReplyBody = FileReplyBody::Unavailable(Unavailable::Overloaded);

#[test]
fn whoever_is_named_is_asked_at_once_and_from_then_on() {
    let mut story = Story::new();
    let ticket = story.write();
    let first = story.sent_one();
    assert_eq!((first.to, numbers(&first)), (story.members[0], (1, 1)));
    story.reply(&first, FileReplyBody::Elsewhere(story.members[2]));
    let second = story.sent_one();
    assert_eq!((second.to, numbers(&second)), (story.members[2], (1, 1)), "it is the same change");
    assert_ne!(second.request.id, first.request.id, "and another sending");
    story.reply(&second, changed(mark(1, 1)));
    assert_eq!(
        story.event(),
        [FileEvent::Changed { ticket, outcome: Ok(DONE), level: Level::Written, opened: None }]
    );
    assert_eq!(story.files.believed(OBJECT), Some(story.members[2]));
    story.stat();
    assert_eq!(story.sent_one().to, story.members[2]);
}

/// The map says where the file began, and nobody of those has it any more.
#[test]
fn whoever_is_named_is_asked_although_the_map_names_others() {
    let mut story = Story::among(6);
    let others: Vec<NodeId> = (1..=6).map(NodeId).filter(|node| !story.members.contains(node)).collect();
    story.stat();
    let first = story.sent_one();
    assert_eq!(first.to, story.members[0]);
    story.reply(&first, FileReplyBody::Elsewhere(others[0]));
    let second = story.sent_one();
    assert_eq!(second.to, others[0]);
    story.reply(&second, FileReplyBody::Elsewhere(others[2]));
    let [third] = &story.wait(50)[..] else { panic!("one is sent") };
    assert_eq!(third.to, others[2]);
    story.reply(third, answer());
    assert_eq!(story.event().len(), 1);
    story.stat();
    assert_eq!(story.sent_one().to, others[2], "from then on, too");
    // If that one is gone, any other is asked, and at last one that knows.
    story.files.handle_down(story.now, others[2]);
    assert_ne!(story.sent_one().to, others[2]);
    // Nobody is asked who is not there.
    story.files.handle_down(story.now, others[1]);
    let last = story.sent();
    assert_eq!(last, [], "it was asked nothing");
}

#[test]
fn a_file_is_created_and_questions_are_answered() {
    let mut story = Story::new();
    let created = story.files.create(at(0), OBJECT);
    let create = story.sent_one();
    // Somebody else's question came before.
    story.reply(&create, FileReplyBody::NoSuchFile);
    let create = story.sent_one();
    assert_eq!(create.request.body, FileBody::Create);
    story.reply(&create, FileReplyBody::Exists);
    assert_eq!(story.event(), [FileEvent::Created { ticket: created }]);
    let asked = story.stat();
    let question = story.sent_one();
    story.reply(&question, answer());
    let answer = Ok(Answer::Stat(Stat::default()));
    assert_eq!(story.event(), [FileEvent::Answered { ticket: asked, answer }]);
    assert_eq!(story.files.poll_timeout(), None);
    assert!(!story.files.is_open(asked));
}

#[test]
fn silence_sends_the_same_change_elsewhere_and_either_reply_counts() {
    let mut story = Story::new();
    let ticket = story.write();
    let first = story.sent_one();
    assert_eq!(story.wait(199), []);
    let [second] = &story.wait(1)[..] else { panic!("one is sent") };
    assert_ne!(second.to, first.to);
    assert_eq!(second.request.body, first.request.body);
    story.reply(&first, changed(mark(1, 1)));
    assert_eq!(
        story.event(),
        [FileEvent::Changed { ticket, outcome: Ok(DONE), level: Level::Written, opened: None }]
    );
    story.reply(second, changed(mark(1, 1)));
    story.reply(&first, changed(mark(1, 1)));
    assert_eq!(story.event(), [], "it has one result");
    assert_eq!((story.files.owed(OBJECT), story.files.poll_timeout()), (1, None));
}

#[test]
fn a_lost_connection_sends_everything_elsewhere_at_once() {
    let mut story = Story::new();
    story.write();
    story.stat();
    let before = story.sent();
    story.files.handle_down(story.now, before[0].to);
    let after = story.sent();
    let bodies = |sent: &[Sent]| sent.iter().map(|sent| sent.request.body.clone()).collect::<Vec<_>>();
    assert_eq!(bodies(&after), bodies(&before));
    assert!(after.iter().all(|sent| sent.to == after[0].to && sent.to != before[0].to));
    story.reply(&before[0], changed(mark(1, 1)));
    assert_eq!(story.event(), [], "nothing comes over a connection that is gone");
}

#[test]
fn without_a_connection_requests_wait_for_one() {
    let mut story = Story::alone();
    let ticket = story.write();
    assert_eq!((story.sent(), story.files.poll_timeout()), (vec![], None));
    let last = story.members[2];
    story.files.handle_up(story.now, last);
    let sent = story.sent_one();
    assert_eq!(sent.to, last);
    // What was not polled was not sent, and is not to be.
    story.files.handle_down(story.now, last);
    story.files.handle_up(story.now, last);
    story.files.handle_down(story.now, last);
    assert_eq!((story.sent(), story.files.poll_timeout()), (vec![], None));
    story.files.handle_up(story.now, story.members[1]);
    let sent = story.sent_one();
    story.reply(&sent, changed(mark(1, 1)));
    assert_eq!(
        story.event(),
        [FileEvent::Changed { ticket, outcome: Ok(DONE), level: Level::Written, opened: None }]
    );
}

/// Replies to everything that is sent within a second, and returns who was asked when.
fn replied(story: &mut Story, reply: impl Fn(&Sent) -> FileReplyBody) -> Vec<Sent> {
    let mut all = Vec::new();
    let mut sent = story.sent();
    while ms(story.now) < 1_000 {
        assert!(sent.len() <= 1, "{sent:?}");
        sent.iter().for_each(|sent| story.reply(sent, reply(sent)));
        all.append(&mut sent);
        sent = story.sent();
        if sent.is_empty() {
            sent = story.wait(1);
        }
    }
    all
}

#[test]
fn those_who_cannot_say_are_asked_in_turn_and_not_too_often() {
    let mut story = Story::new();
    let ticket = story.write();
    let sent = replied(&mut story, |_| BUSY);
    let turns: Vec<NodeId> = sent.iter().map(|sent| sent.to).collect();
    assert!(turns.iter().zip(story.members.iter().cycle()).all(|(to, member)| to == member), "{turns:?}");
    let gaps: Vec<u64> = sent.windows(2).map(|pair| pair[1].at_ms - pair[0].at_ms).collect();
    assert_eq!(gaps[..7], [0, 2, 4, 8, 16, 32, 50]);
    assert!(gaps[7..].iter().all(|&gap| gap == 50), "{gaps:?}");
    assert!(sent.iter().all(|sent| numbers(sent) == (1, 1)));
    assert_eq!(story.files.obstacle(ticket), Some(Unavailable::Overloaded));
}

/// A change that has to wait for an earlier one is told that there is no room, and turns to another member. If the earlier one
/// followed, it would be sent back to the primary, and they would keep each other away from it for ever.
#[test]
fn a_request_that_has_to_wait_does_not_lead_the_one_it_waits_for_astray() {
    let mut story = Story::new();
    let [other, primary, third] = [0, 1, 2].map(|place| story.members[place]);
    story.write();
    let sent = story.sent_one();
    assert_eq!(sent.to, other);
    story.reply(&sent, FileReplyBody::Elsewhere(primary));
    let sent = story.sent_one();
    story.reply(&sent, BUSY);
    let sent = story.wait(2).remove(0);
    assert_eq!(sent.to, third);
    story.reply(&sent, FileReplyBody::Elsewhere(primary));
    story.write();
    let later = story.sent_one();
    assert_eq!((later.to, numbers(&later)), (primary, (2, 1)));
    story.reply(&later, BUSY);
    assert_eq!(story.sent_one().to, third, "the later change goes on");
    let again = story.wait(10);
    assert_eq!(again.iter().map(|sent| (sent.to, numbers(sent))).collect::<Vec<_>>(), [(primary, (1, 1))]);
}

#[test]
fn daemons_that_name_each_other_are_not_asked_in_a_loop() {
    let mut story = Story::new();
    let (one, other) = (story.members[0], story.members[1]);
    let ticket = story.write();
    let sent = replied(&mut story, |sent| FileReplyBody::Elsewhere(if sent.to == one { other } else { one }));
    assert!((20..30).contains(&sent.len()), "{} sendings in a second", sent.len());
    let last = story.wait(50).pop().expect("it goes on");
    story.reply(&last, changed(mark(1, 1)));
    assert_eq!(
        story.event(),
        [FileEvent::Changed { ticket, outcome: Ok(DONE), level: Level::Written, opened: None }]
    );
}

#[test]
fn only_whoever_is_believed_to_answer_changes_what_is_believed() {
    let mut story = Story::new();
    story.stat();
    story.stat();
    let sent = story.sent();
    story.reply(&sent[0], FileReplyBody::Elsewhere(story.members[1]));
    let followed = story.sent_one();
    story.reply(&sent[1], FileReplyBody::Elsewhere(story.members[2]));
    assert_eq!([followed.to, story.sent_one().to], [story.members[1], story.members[2]]);
    assert_eq!(story.files.believed(OBJECT), Some(story.members[1]));
}

#[test]
fn whoever_is_silent_has_no_turn_for_a_while() {
    let mut story = Story::new();
    story.write();
    let silent = story.sent_one();
    let mut again = Vec::new();
    while ms(story.now) < 5_000 {
        let mut sent = story.wait(1);
        while let Some(turn) = sent.pop() {
            if turn.to == silent.to {
                again.push(turn.at_ms);
                continue;
            }
            story.reply(&turn, BUSY);
            sent.extend(story.sent());
        }
    }
    let [first, second] = again[..] else { panic!("{again:?}") };
    assert!((2_000..2_300).contains(&first) && (4_000..4_600).contains(&second), "{again:?}");
}

#[test]
fn of_a_request_that_nobody_answers_only_so_much_is_remembered() {
    let mut story = Story::new();
    story.write();
    let mut sent = story.wait(60_000);
    assert!(sent.len() > 100, "{} sendings", sent.len());
    assert!(story.files.sendings.len() <= 16, "{}", story.files.sendings.len());
    let last = sent.pop().expect("it goes on");
    story.reply(&last, changed(mark(1, 1)));
    story.sent();
    assert_eq!((story.events.len(), story.files.sendings.len()), (1, 0));
}

#[test]
fn names_that_make_no_sense_are_not_followed() {
    let mut story = Story::new();
    story.write();
    let first = story.sent_one();
    story.reply(&first, FileReplyBody::Elsewhere(first.to));
    let second = story.sent_one();
    assert_eq!(second.to, story.members[1], "it names itself");
    story.reply(&second, FileReplyBody::Elsewhere(NodeId(77)));
    assert_eq!(story.wait(2)[0].to, story.members[2], "it names a stranger");
}

/// One of two requests moves what is believed about the file; the other one goes where it is sent all the same. Else the two could
/// keep each other from the primary for ever.
#[test]
fn who_is_named_is_asked_whatever_others_believe_meanwhile() {
    let mut story = Story::new();
    story.write();
    let first = story.sent_one();
    story.write();
    let second = story.sent_one();
    assert_eq!(first.to, second.to);
    story.reply(&second, FileReplyBody::Unavailable(Unavailable::Overloaded));
    assert_ne!(story.files.believed(OBJECT), Some(first.to));
    let other = story
        .members
        .iter()
        .copied()
        .find(|&node| node != first.to && Some(node) != story.files.believed(OBJECT));
    story.reply(&first, FileReplyBody::Elsewhere(other.unwrap()));
    let next = story.wait(2);
    let is_first = |sent: &&Sent| matches!(sent.request.body, FileBody::Change { number: 1, .. });
    assert_eq!(next.iter().find(is_first).map(|sent| sent.to), other, "{next:?}");
}

#[test]
fn two_that_name_each_other_do_not_keep_a_request_from_whoever_is_believed_in() {
    let mut story = Story::new();
    story.write();
    let first = story.sent_one();
    story.write();
    let second = story.sent_one();
    story.reply(&second, FileReplyBody::Unavailable(Unavailable::Overloaded));
    let believed = story.files.believed(OBJECT).unwrap();
    let others = story.members.iter().copied().filter(|&node| node != believed);
    let [one, other] = others.collect::<Vec<_>>().try_into().unwrap();
    let is_first = |sent: &Sent| matches!(sent.request.body, FileBody::Change { number: 1, .. });
    let mut asked = first;
    let mut asked_whom = Vec::new();
    for _ in 0..6 {
        asked_whom.push(asked.to);
        if asked.to == believed {
            break;
        }
        let named = if asked.to == one { other } else { one };
        story.reply(&asked, FileReplyBody::Elsewhere(named));
        asked = std::iter::repeat_with(|| story.wait(50)).flatten().find(is_first).unwrap();
    }
    assert!(asked_whom.contains(&believed), "{asked_whom:?}");
}

#[test]
fn replies_that_make_no_sense_are_no_results() {
    let mut story = Story::new();
    let ticket = story.write();
    let first = story.sent_one();
    let id = first.request.id;
    story.files.handle_reply(
        story.now,
        story.members[1],
        FileReply { id, body: changed(mark(1, 1)), proofs: Vec::new(), grant: None },
    );
    assert_eq!(story.event(), [], "another daemon was asked");
    story.reply(&first, answer());
    let second = story.sent_one();
    story.reply(&second, FileReplyBody::Durable);
    let third = story.wait(2).remove(0);
    story.reply(&third, changed(mark(1, 1)));
    assert_eq!(
        story.event(),
        [FileEvent::Changed { ticket, outcome: Ok(DONE), level: Level::Written, opened: None }]
    );
    // To make durable cannot be refused like a change.
    let ticket = story.sync();
    let sync = story.sent_one();
    story.reply(&sync, FileReplyBody::Expired);
    let again = story.sent_one();
    story.reply(&again, FileReplyBody::Durable);
    assert_eq!(story.event(), [FileEvent::Synced { ticket }]);
}

/// It would be sent a large change over and over, while it is too slow already.
#[test]
fn a_slow_daemon_is_not_sent_again_what_it_has() {
    let mut story = Story::new();
    let ticket = story.write();
    let slow = story.sent_one();
    let mut sent = Vec::new();
    while ms(story.now) < 1_500 {
        let others = story.wait(1);
        let name = FileReplyBody::Elsewhere(slow.to);
        others.iter().for_each(|sent| story.reply(sent, name.clone()));
        sent.extend(others);
    }
    assert!(sent.iter().all(|sent| sent.to != slow.to), "{sent:?}");
    assert!((3..6).contains(&sent.len()), "{} sendings", sent.len());
    story.reply(&slow, changed(mark(1, 1)));
    assert_eq!(
        story.event(),
        [FileEvent::Changed { ticket, outcome: Ok(DONE), level: Level::Written, opened: None }]
    );
}

#[test]
fn a_daemon_that_lost_a_request_is_sent_it_again_in_the_end() {
    let mut story = Story::new();
    story.write();
    let lost = story.sent_one();
    let mut again = false;
    while ms(story.now) < 4_000 {
        for sent in story.wait(1) {
            again |= sent.to == lost.to;
            story.reply(&sent, FileReplyBody::Elsewhere(lost.to));
        }
    }
    assert!(again || story.sent().iter().any(|sent| sent.to == lost.to));
}

#[test]
fn only_so_many_are_under_way_and_the_others_keep_their_order() {
    let mut story = Story::new();
    let tickets: Vec<FileTicket> = (0..UNDER_WAY_MAX + 2).map(|_| story.write()).collect();
    let question = story.stat();
    let sent = story.sent();
    let expected: Vec<(u64, u64)> = (1..=UNDER_WAY_MAX as u64).map(|number| (number, 1)).collect();
    assert_eq!(sent.iter().map(numbers).collect::<Vec<_>>(), expected);
    // The outcomes of all changes that are not settled are kept: one that is stuck holds up the next.
    story.reply(&sent[4], changed(mark(1, 1)));
    assert_eq!(story.sent(), []);
    story.reply(&sent[0], changed(mark(1, 2)));
    let [next] = &story.sent()[..] else { panic!("there is room for one number") };
    assert_eq!(numbers(next), (UNDER_WAY_MAX as u64 + 1, 2));
    story.reply(&sent[1], changed(mark(1, 3)));
    let rest = story.sent();
    assert_eq!(numbers(&rest[0]), (UNDER_WAY_MAX as u64 + 2, 3));
    assert_eq!(rest[1].request.body, FileBody::Ask(Query::Stat));
    assert!(story.files.is_open(question) && rest.len() == 2);
    let done = [tickets[4], tickets[0], tickets[1]].map(|ticket| FileEvent::Changed {
        ticket,
        outcome: Ok(DONE),
        level: Level::Written,
        opened: None,
    });
    assert_eq!(story.event(), done);
}

#[test]
fn what_has_a_result_is_settled_and_nothing_above_it() {
    let mut story = Story::new();
    for _ in 0..3 {
        story.write();
    }
    let sent = story.sent();
    story.reply(&sent[1], changed(mark(1, 1)));
    story.write();
    assert_eq!(numbers(&story.sent_one()), (4, 1), "the first may still be sent again");
    story.reply(
        &sent[0],
        FileReplyBody::Changed {
            outcome: Err(FileError::PastLimit { end: 1 }),
            mark: mark(1, 1),
            level: Level::Written,
            opened: None,
        },
    );
    story.write();
    assert_eq!(numbers(&story.sent_one()), (5, 3));
}

#[test]
fn a_change_that_is_given_up_is_settled_although_nobody_knows_its_outcome() {
    let mut story = Story::new();
    let ticket = story.write();
    let sent = story.sent_one();
    story.files.give_up(story.now, ticket);
    assert_eq!(story.event(), [FileEvent::GivenUp { ticket, was_sent: true }]);
    story.reply(&sent, changed(mark(1, 1)));
    assert_eq!((story.event(), story.files.owed(OBJECT)), (vec![], 0));
    assert_eq!(story.wait(1_000), [], "it is not sent again");
    story.write();
    assert_eq!(numbers(&story.sent_one()), (2, 2));
    story.files.give_up(story.now, ticket);
    assert_eq!(story.event(), [], "it is void");
}

#[test]
fn a_change_that_is_given_up_before_its_turn_has_no_number() {
    let mut story = Story::new();
    for _ in 0..UNDER_WAY_MAX {
        story.write();
    }
    let sent = story.sent();
    let (given_up, next) = (story.write(), story.write());
    story.files.give_up(story.now, given_up);
    assert_eq!(story.event(), [FileEvent::GivenUp { ticket: given_up, was_sent: false }]);
    story.reply(&sent[0], changed(mark(1, 1)));
    assert_eq!(numbers(&story.sent_one()), (UNDER_WAY_MAX as u64 + 1, 2));
    assert!(story.files.is_open(next));
}

#[test]
fn a_refusal_of_an_earlier_sending_is_no_result() {
    let mut story = Story::new();
    let ticket = story.write();
    let first = story.sent_one();
    let second = story.wait(200).remove(0);
    for refusal in [FileReplyBody::NoSuchFile, BUSY, FileReplyBody::Expired] {
        story.files.handle_reply(
            story.now,
            first.to,
            FileReply { id: first.request.id, body: refusal, proofs: Vec::new(), grant: None },
        );
        assert_eq!(story.event(), []);
    }
    story.reply(&second, FileReplyBody::NoSuchFile);
    assert_eq!(story.event(), [FileEvent::NoSuchFile { ticket }]);
}

#[test]
fn refusals_are_final() {
    let mut story = Story::new();
    let error = FileError::PastLimit { end: 7 };
    type Result = fn(FileTicket) -> FileEvent;
    let cases: [(FileReplyBody, Result); 4] = [
        (FileReplyBody::Refused(error), |ticket| FileEvent::Refused {
            ticket,
            error: FileError::PastLimit { end: 7 },
        }),
        (FileReplyBody::NoSuchFile, |ticket| FileEvent::NoSuchFile { ticket }),
        (FileReplyBody::Expired, |ticket| FileEvent::Expired { ticket }),
        (FileReplyBody::Settled, |ticket| FileEvent::Settled { ticket }),
    ];
    for (body, event) in cases {
        let ticket = story.write();
        let sent = story.sent_one();
        story.reply(&sent, body);
        assert_eq!(story.event(), [event(ticket)]);
    }
    assert_eq!((story.files.owed(OBJECT), story.files.poll_timeout()), (0, None));
    story.write();
    assert_eq!(numbers(&story.sent_one()), (5, 5));
}

#[test]
fn impossible_changes_are_not_sent() {
    let mut story = Story::new();
    let length = WRITE_BYTES_MAX + 1;
    let data = vec![0; usize::try_from(length).expect("a mebibyte")].into();
    let ticket = story.files.change(story.now, OBJECT, Change::Append { data }, Level::Written);
    let error = FileError::TooLong { length, bytes_max: WRITE_BYTES_MAX };
    assert_eq!(story.event(), [FileEvent::Refused { ticket, error }]);
    let query = Query::Read { offset: 0, length: READ_BYTES_MAX + 1, under: None };
    let ticket = story.files.ask(story.now, OBJECT, query);
    let sent = story.sent_one();
    let answer = Err(FileError::TooLong { length: READ_BYTES_MAX + 1, bytes_max: READ_BYTES_MAX });
    story.reply(&sent, FileReplyBody::Answer(answer.clone()));
    assert_eq!(story.event(), [FileEvent::Answered { ticket, answer }]);
}

#[test]
fn too_much_data_is_not_taken() {
    let mut story = Story::new();
    let data: Vec<u8> = vec![0; usize::try_from(WRITE_BYTES_MAX).expect("a mebibyte")];
    let Change::Append { data } = (Change::Append { data: data.into() }) else { unreachable!() };
    let append = |story: &mut Story| {
        story.files.change(story.now, OBJECT, Change::Append { data: data.clone() }, Level::Written)
    };
    let count = BYTES_MAX / data.len();
    for _ in 0..count {
        append(&mut story);
    }
    let sent = story.sent();
    let ticket = append(&mut story);
    assert_eq!(story.event(), [FileEvent::Full { ticket }]);
    story.reply(&sent[0], changed(mark(1, 1)));
    story.sent();
    let ticket = append(&mut story);
    assert!(story.files.is_open(ticket));
}

#[test]
fn that_many_files_are_known_has_what_is_owed_of_them_made_durable() {
    let mut story = Story::new();
    for low in 0..OBJECTS_MAX as u64 {
        story.files.change(story.now, ObjectId::new(7, low), write(b"data"), Level::Written);
        let sent = story.sent_one();
        story.reply(&sent, changed(mark(1, low + 1)));
    }
    story.event();
    let ticket = story.files.ask(story.now, OBJECT, Query::Stat);
    let syncs = story.sent();
    assert_eq!(story.event(), [FileEvent::Full { ticket }]);
    assert!(!syncs.is_empty());
    for sync in &syncs {
        assert!(matches!(sync.request.body, FileBody::Sync { .. }));
        story.reply(sync, FileReplyBody::Durable);
    }
    story.now = story.now + Span::from_secs(1);
    let ticket = story.files.ask(story.now, OBJECT, Query::Stat);
    assert!(story.files.is_open(ticket), "there is room again");
}

#[test]
fn a_number_never_comes_twice_although_files_are_forgotten() {
    let mut story = Story::new();
    story.acknowledged(mark(1, 1));
    story.acknowledged(mark(1, 2));
    let ask_many = |story: &mut Story| {
        for low in 0..2 * IDLE_MAX as u64 {
            let ticket = story.files.ask(story.now, ObjectId::new(7, low), Query::Stat);
            story.files.give_up(story.now, ticket);
            story.sent();
        }
        assert!(story.files.objects.len() <= IDLE_MAX, "nobody wants anything of most of them");
    };
    ask_many(&mut story);
    assert_eq!(story.files.owed(OBJECT), 2, "what is owed is not forgotten");
    story.files.sync(story.now, OBJECT);
    let sync = story.sent_one();
    story.reply(&sync, FileReplyBody::Durable);
    ask_many(&mut story);
    assert_eq!(story.files.believed(OBJECT), None, "it is forgotten");
    story.write();
    assert_eq!(numbers(&story.sent_one()), (3, 3));
}

#[test]
fn what_one_client_owes_another_one_makes_durable() {
    let mut before = Story::new();
    assert!(before.files.hand_over(OBJECT).is_none());
    [mark(2, 7), mark(1, 8), mark(2, 9)].into_iter().for_each(|mark| _ = before.acknowledged(mark));
    let [(OBJECT, handover)] = before.files.hand_over_all()[..] else { panic!("it owes that") };
    let mut story = Story::new();
    assert!(story.files.owe(story.now, OBJECT, handover));
    let ticket = story.files.sync(story.now, OBJECT);
    let sync = story.sent_one();
    assert_eq!(sync.request.body, FileBody::Sync { oldest: mark(1, 8), newest: mark(2, 9) });
    story.reply(&sync, FileReplyBody::Lost);
    let [FileEvent::Lost { ticket: told, changes, .. }] = &story.event()[..] else { panic!("it is lost") };
    assert_eq!((*told, changes.len(), story.files.owed(OBJECT)), (Some(ticket), 2, 0));
    // Whoever waits for the first one is told by that.
    assert_eq!(before.files.owed(OBJECT), 3);
    assert!(before.files.hand_over_all().is_empty(), "each once");
    before.acknowledged(mark(3, 10));
    let handover = before.files.hand_over(OBJECT).unwrap();
    assert!(story.files.owe(story.now, OBJECT, handover));
    story.files.sync(story.now, OBJECT);
    let late = FileBody::Sync { oldest: mark(3, 10), newest: mark(3, 10) };
    assert_eq!(story.sent_one().request.body, late, "and what is acknowledged later");
}
