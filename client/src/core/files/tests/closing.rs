//! What is owed of files that nobody has open any more.

use super::super::closing::SYNCS_MAX;
use super::*;

const FILES: usize = SYNCS_MAX + 10;

fn file(number: u64) -> ObjectId {
    ObjectId::new(3, number)
}

/// Something is written to so many files.
fn written(story: &mut Story, files: usize) {
    for number in 0..files as u64 {
        story.files.change(story.now, file(number), write(b"data"), Level::Written);
        let sent = story.sent_one();
        story.reply(&sent, changed(mark(1, number + 1)));
    }
    assert_eq!(story.event().len(), files);
}

fn closed(files: usize) -> Story {
    let mut story = Story::new();
    written(&mut story, files);
    (0..files as u64).for_each(|number| story.files.forget_file(story.now, file(number)));
    story
}

fn synced(story: &mut Story, sent: &[Sent], body: &FileReplyBody) {
    sent.iter().for_each(|sent| {
        assert!(matches!(sent.request.body, FileBody::Sync { .. }));
        story.reply(sent, body.clone());
    });
}

#[test]
fn what_is_owed_is_made_durable_together_a_while_later_and_is_forgotten() {
    let mut story = closed(3);
    assert_eq!(story.wait(3_900), [], "much is removed before");
    let sent = story.wait(1_100);
    assert_eq!(sent.len(), 3);
    synced(&mut story, &sent, &FileReplyBody::Durable);
    assert_eq!(story.event(), []);
    assert_eq!((story.sent(), story.files.poll_timeout()), (vec![], None));
    assert!((0..3).all(|number| story.files.owed(file(number)) == 0 && !story.files.is_closed(file(number))));
}

#[test]
fn only_so_many_are_synced_at_a_time() {
    let mut story = closed(FILES);
    let sent = story.wait(5_000);
    let first: Vec<Sent> = sent.into_iter().take(SYNCS_MAX).collect();
    assert!(story.files.poll_timeout().is_some_and(|at| at > story.now), "the others wait for their turn");
    synced(&mut story, &first, &FileReplyBody::Durable);
    assert_eq!(story.sent().len(), FILES - SYNCS_MAX);
}

#[test]
fn what_is_opened_again_is_synced_when_somebody_wants_it() {
    let mut story = closed(1);
    story.files.remember_file(file(0));
    assert_eq!(story.wait(20_000), []);
    assert_eq!(story.files.owed(file(0)), 1);
    story.files.forget_file(story.now, file(0));
    assert_eq!(story.wait(5_000).len(), 1);
}

#[test]
fn what_has_no_result_yet_is_synced_later() {
    let mut story = Story::new();
    story.files.change(story.now, file(0), write(b"data"), Level::Written);
    let change = story.sent_one();
    story.files.forget_file(story.now, file(0));
    let again = story.wait(6_000);
    assert!(again.iter().all(|sent| matches!(sent.request.body, FileBody::Change { .. })));
    story.reply(again.last().unwrap_or(&change), changed(mark(1, 1)));
    assert_eq!(story.event().len(), 1);
    let sent = story.wait(6_000);
    synced(&mut story, &sent[..1], &FileReplyBody::Durable);
    assert_eq!(story.event(), []);
    assert!(!story.files.is_closed(file(0)));
}

#[test]
fn a_loss_is_told_and_that_the_file_is_gone_may_be_one() {
    for reply in [FileReplyBody::Lost, FileReplyBody::NoSuchFile] {
        let mut story = closed(1);
        let sent = story.wait(5_000);
        synced(&mut story, &sent, &reply);
        let events = story.event();
        let [FileEvent::Lost { object, ticket: None, .. }] = events[..] else { panic!("{events:?}") };
        assert_eq!((object, story.files.poll_timeout()), (file(0), None));
    }
}

#[test]
fn nothing_is_owed_of_what_was_removed() {
    let mut story = closed(1);
    story.files.note_removed(file(0));
    assert_eq!(story.wait(20_000), []);
    let mut story = Story::new();
    written(&mut story, 1);
    story.files.note_removed(file(0));
    assert_eq!(story.files.owed(file(0)), 1, "somebody has it open");
    story.files.forget_file(story.now, file(0));
    assert_eq!((story.wait(20_000), story.files.owed(file(0))), (vec![], 0));
    let mut story = closed(1);
    let sent = story.wait(5_000);
    story.files.note_removed(file(0));
    synced(&mut story, &sent, &FileReplyBody::NoSuchFile);
    assert_eq!((story.event(), story.files.poll_timeout()), (vec![], None), "it was known");
}

#[test]
fn files_for_which_nobody_answers_keep_no_others_waiting() {
    let mut story = closed(FILES);
    let unable = story.wait(5_000);
    assert_eq!(unable.len(), SYNCS_MAX);
    let tried: Vec<ObjectId> = unable.iter().map(|sent| sent.request.object).collect();
    let mut others = BTreeSet::new();
    let mut due = unable;
    for _ in 0..200 {
        for sent in std::mem::take(&mut due) {
            let is_unable = tried.contains(&sent.request.object);
            let refusal = FileReplyBody::Unavailable(Unavailable::Overloaded);
            story.reply(&sent, if is_unable { refusal } else { FileReplyBody::Durable });
            if !is_unable {
                others.insert(sent.request.object);
            }
        }
        due.extend(story.sent());
        due.extend(story.wait(50));
    }
    assert_eq!(others.len(), FILES - SYNCS_MAX);
    assert!(tried.iter().all(|&file| story.files.owed(file) == 1), "they are tried later");
}

#[test]
fn when_no_daemon_is_there_it_is_tried_later() {
    let mut story = closed(2);
    let members = story.members.clone();
    members.iter().for_each(|&node| story.files.handle_down(story.now, node));
    assert_eq!(story.wait(60_000), []);
    members.iter().for_each(|&node| story.files.handle_up(story.now, node));
    let tried_at = story.files.poll_timeout().expect("they are tried later");
    let sent = story.wait(tried_at.since(story.now).as_micros() / 1_000);
    synced(&mut story, &sent, &FileReplyBody::Durable);
    assert_eq!((sent.len(), story.event(), story.files.poll_timeout()), (2, vec![], None));
}

/// To look through all files for each further one would take for ever.
#[test]
fn many_files_that_are_written_and_closed_leave_room_for_others() {
    let mut story = Story::new();
    for number in 0..OBJECTS_MAX as u64 + 1_000 {
        story.files.change(story.now, file(number), write(b"data"), Level::Written);
        let sent = story.sent();
        for sent in &sent {
            let is_sync = matches!(sent.request.body, FileBody::Sync { .. });
            story.reply(sent, if is_sync { FileReplyBody::Durable } else { changed(mark(1, number + 1)) });
        }
        story.files.forget_file(story.now, file(number));
        story.files.handle_timeout(story.now);
    }
    assert!(story.events.iter().all(|event| matches!(event, FileEvent::Changed { .. })));
    let owed = story.files.objects.values().filter(|object| !object.owed.is_empty()).count();
    assert!(owed <= OBJECTS_MAX / 2 + SYNCS_MAX, "{owed} are owed");
}
