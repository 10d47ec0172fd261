//! What is owed, and how it is made durable or found lost.

use super::*;

#[test]
fn a_sync_names_what_was_acknowledged_first_and_last() {
    let mut story = Story::new();
    // Replies may come in another order than the changes took effect in.
    for mark in [mark(1, 4), mark(1, 3), mark(1, 5), mark(1, 2)] {
        story.acknowledged(mark);
    }
    let ticket = story.sync();
    let sync = story.sent_one();
    assert_eq!(sync.request.body, FileBody::Sync { oldest: mark(1, 2), newest: mark(1, 5) });
    // This comes too late for it.
    story.acknowledged(mark(1, 6));
    story.reply(&sync, FileReplyBody::Durable);
    assert_eq!(story.event(), [FileEvent::Synced { ticket }]);
    assert_eq!(story.files.owed(OBJECT), 1);
    story.sync();
    assert_eq!(story.sent_one().request.body, FileBody::Sync { oldest: mark(1, 6), newest: mark(1, 6) });
}

#[test]
fn the_oldest_is_of_the_oldest_generation() {
    let mut story = Story::new();
    for mark in [mark(2, 7), mark(1, 8)] {
        story.acknowledged(mark);
    }
    story.sync();
    assert_eq!(story.sent_one().request.body, FileBody::Sync { oldest: mark(1, 8), newest: mark(1, 8) });
}

#[test]
fn without_anything_owed_a_sync_is_done_at_once() {
    let mut story = Story::new();
    let ticket = story.sync();
    assert_eq!(story.event(), [FileEvent::Synced { ticket }]);
    story.write();
    let refused = story.sent_one();
    let outcome = Err(FileError::PastLimit { end: 1 });
    story.reply(
        &refused,
        FileReplyBody::Changed { outcome, mark: mark(1, 1), level: Level::Written, opened: None },
    );
    story.event();
    let ticket = story.sync();
    assert_eq!(story.event(), [FileEvent::Synced { ticket }], "nothing was changed");
}

#[test]
fn what_is_told_to_be_durable_is_not_owed() {
    let mut story = Story::new();
    for (told, owed) in [(Level::Durable, 0), (Level::Written, 1)] {
        let ticket = story.files.change(story.now, OBJECT, write(b"data"), Level::Durable);
        let sent = story.sent_one();
        assert!(matches!(sent.request.body, FileBody::Change { level: Level::Durable, .. }));
        story.reply(
            &sent,
            FileReplyBody::Changed { outcome: Ok(DONE), mark: mark(1, 1), level: told, opened: None },
        );
        assert_eq!(
            story.event(),
            [FileEvent::Changed { ticket, outcome: Ok(DONE), level: told, opened: None }]
        );
        assert_eq!(story.files.owed(OBJECT), owed);
    }
}

#[test]
fn syncs_share_what_covers_them() {
    let mut story = Story::new();
    story.acknowledged(mark(1, 1));
    let first = story.sync();
    let sync = story.sent_one();
    let same = story.sync();
    story.acknowledged(mark(1, 2));
    let (later, latest) = (story.sync(), story.sync());
    assert_eq!(story.event(), [], "one at a time");
    story.reply(&sync, FileReplyBody::Durable);
    let next = story.sent_one();
    assert_eq!(story.event(), [first, same].map(|ticket| FileEvent::Synced { ticket }));
    assert_eq!(next.request.body, FileBody::Sync { oldest: mark(1, 2), newest: mark(1, 2) });
    story.reply(&next, FileReplyBody::Durable);
    assert_eq!(story.event(), [later, latest].map(|ticket| FileEvent::Synced { ticket }));
}

#[test]
fn what_is_lost_is_told_to_all_who_wait_and_not_owed_any_longer() {
    let mut story = Story::new();
    let lost: Vec<FileTicket> = (1..=2).map(|seq| story.acknowledged(mark(1, seq))).collect();
    let first = story.sync();
    let sync = story.sent_one();
    story.acknowledged(mark(2, 3));
    let second = story.sync();
    story.reply(&sync, FileReplyBody::Lost);
    let changes: Arc<[FileTicket]> = lost.into();
    let event = |ticket| FileEvent::Lost { object: OBJECT, ticket: Some(ticket), changes: changes.clone() };
    assert_eq!(story.event(), [event(first), event(second)]);
    assert_eq!(story.files.owed(OBJECT), 1, "nobody said anything about the last one");
    let third = story.sync();
    let sync = story.sent_one();
    assert_eq!(sync.request.body, FileBody::Sync { oldest: mark(2, 3), newest: mark(2, 3) });
    story.reply(&sync, FileReplyBody::Durable);
    assert_eq!(story.event(), [FileEvent::Synced { ticket: third }]);
}

#[test]
fn a_sync_is_sent_again_like_everything_else() {
    let mut story = Story::new();
    story.acknowledged(mark(1, 1));
    let ticket = story.sync();
    let first = story.sent_one();
    story.acknowledged(mark(1, 2));
    let second = story.wait(200).remove(0);
    assert_eq!(second.request.body, first.request.body, "it covers what it covered");
    story.reply(&first, FileReplyBody::Durable);
    story.reply(&second, FileReplyBody::Lost);
    assert_eq!(story.event(), [FileEvent::Synced { ticket }]);
    assert_eq!(story.files.owed(OBJECT), 1);
}

#[test]
fn a_sync_that_is_given_up_leaves_what_is_owed() {
    let mut story = Story::new();
    story.acknowledged(mark(1, 1));
    let ticket = story.sync();
    story.sent_one();
    story.files.give_up(story.now, ticket);
    assert_eq!(story.event(), [FileEvent::GivenUp { ticket, was_sent: false }]);
    assert_eq!((story.files.owed(OBJECT), story.files.poll_timeout()), (1, None));
    story.sync();
    assert_eq!(story.sent_one().request.body, FileBody::Sync { oldest: mark(1, 1), newest: mark(1, 1) });
}

#[test]
fn a_file_that_is_gone_owes_nothing() {
    let mut story = Story::new();
    story.acknowledged(mark(1, 1));
    let ticket = story.sync();
    let sync = story.sent_one();
    story.reply(&sync, FileReplyBody::NoSuchFile);
    let changes = [FileTicket(1)].into();
    let lost = FileEvent::Lost { object: OBJECT, ticket: None, changes };
    assert_eq!(story.event(), [lost, FileEvent::NoSuchFile { ticket }]);
    assert_eq!(story.files.owed(OBJECT), 0);
}

#[test]
fn too_much_that_is_not_durable_is_synced_although_nobody_asks() {
    let mut story = Story::new();
    let all: Vec<FileTicket> = (1..SYNC_AT as u64).map(|seq| story.acknowledged(mark(1, seq))).collect();
    let last = story.write();
    let change = story.sent_one();
    story.reply(&change, changed(mark(1, SYNC_AT as u64)));
    let sync = story.sent_one();
    assert_eq!(sync.request.body, FileBody::Sync { oldest: mark(1, 1), newest: mark(1, SYNC_AT as u64) });
    // Changes go on meanwhile, up to a bound.
    let mut under_way = Vec::new();
    for seq in SYNC_AT..UNSYNCED_MAX + UNDER_WAY_MAX {
        story.write();
        under_way.extend(story.sent());
        if let Some(change) = under_way.pop() {
            story.reply(&change, changed(mark(1, seq as u64)));
        }
        under_way.extend(story.sent());
    }
    assert_eq!((story.files.owed(OBJECT), under_way.len()), (UNSYNCED_MAX, 0));
    story.events.clear();
    story.reply(&sync, FileReplyBody::Lost);
    let sent = story.sent();
    let changes = all.into_iter().chain([last]).collect();
    assert_eq!(
        std::mem::take(&mut story.events),
        [FileEvent::Lost { object: OBJECT, ticket: None, changes }]
    );
    assert_eq!(sent.len(), UNDER_WAY_MAX + 1, "the rest is synced, and changes go on");
    assert_eq!(story.files.owed(OBJECT), UNSYNCED_MAX - SYNC_AT);
}
