//! What a number was kept for.

use super::*;

fn enter(story: &mut Story) -> FileTicket {
    let op = namespace::Op::wanted(Who::root(), namespace::Change::Settle);
    story.files.enter_to_hold(story.now, OBJECT, Change::Tree(Arc::new(op)), Level::Written)
}

fn promised(story: &mut Story, count: usize) -> usize {
    (0..count).filter(|_| story.files.promise(story.now, OBJECT)).count()
}

#[test]
fn a_number_that_was_kept_is_given_to_nothing_else() {
    let mut story = Story::new();
    assert_eq!(promised(&mut story, 3), 3);
    (0..UNDER_WAY_MAX).for_each(|_| _ = story.write());
    let sent = story.sent();
    assert_eq!(sent.len(), UNDER_WAY_MAX - 3);
    assert_eq!(promised(&mut story, 1), 0, "there is none");
    enter(&mut story);
    assert_eq!(numbers(&story.sent_one()), (UNDER_WAY_MAX as u64 - 2, 1));
    // Something that is settled makes room for what waits, and for no more than that.
    story.reply(&sent[0], changed(mark(1, 1)));
    assert_eq!(numbers(&story.sent_one()), (UNDER_WAY_MAX as u64 - 1, 2));
    enter(&mut story);
    enter(&mut story);
    let last: Vec<u64> = story.sent().iter().map(|sent| numbers(sent).0).collect();
    assert_eq!(last, [UNDER_WAY_MAX as u64, UNDER_WAY_MAX as u64 + 1]);
}

#[test]
fn what_was_promised_waits_for_nothing_that_is_under_way() {
    let mut story = Story::new();
    assert_eq!(promised(&mut story, 2), 2);
    (0..2 * UNDER_WAY_MAX).for_each(|_| _ = story.stat());
    assert_eq!(story.sent().len(), UNDER_WAY_MAX);
    let entered = enter(&mut story);
    let sent = story.sent_one();
    assert_eq!(numbers(&sent), (1, 1));
    story.reply(&sent, changed(mark(1, 1)));
    assert!(matches!(story.event()[..], [FileEvent::Changed { ticket, .. }] if ticket == entered));
}

#[test]
fn only_so_much_is_promised_until_it_is_settled() {
    let mut story = Story::new();
    assert_eq!(promised(&mut story, 2 * UNDER_WAY_MAX), UNDER_WAY_MAX);
    (0..UNDER_WAY_MAX).for_each(|_| _ = enter(&mut story));
    let sent = story.sent();
    story.reply(&sent[1], changed(mark(1, 1)));
    assert_eq!(promised(&mut story, 1), 0, "the first may still be sent again");
    story.reply(&sent[0], changed(mark(1, 2)));
    assert_eq!(promised(&mut story, 3), 2);
}

#[test]
fn a_number_that_is_not_wanted_is_free() {
    let mut story = Story::alone();
    assert_eq!(promised(&mut story, UNDER_WAY_MAX), UNDER_WAY_MAX);
    story.files.renounce(story.now, OBJECT);
    assert_eq!(promised(&mut story, 2), 1);
    // Nobody is there to send it to, and nobody waits for it any more.
    let ticket = enter(&mut story);
    story.files.give_up(story.now, ticket);
    assert!(matches!(story.event()[..], [FileEvent::GivenUp { was_sent: false, .. }]));
}
