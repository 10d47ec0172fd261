//! What is known of a lend that is asked back from a content of which nobody has anything.

use base::Seq;
use namespace::{Change as TreeChange, Done as TreeDone, LentTo};
use node::file::{Change, File, FileBody, FileError, FileReplyBody, Lend, LendStage, Level};
use node::{Bug, RequestId, file_object};
use replication::Replica;

use super::{FILE, GONE, HOLDER, OTHER, Story, client};
use crate::cluster::{Flying, ms};

/// What each has of the content.
fn contents(story: &Story) -> impl Iterator<Item = &Replica<File>> {
    let object = file_object(FILE, story.inode);
    story.cluster.ids().into_iter().filter_map(move |node| story.cluster.shard(node).file(object))
}

fn last_lend(story: &Story) -> Option<Lend> {
    contents(story).find_map(|content| content.machine().attributes().1.lend())
}

fn last_stage(story: &Story) -> Option<LendStage> {
    last_lend(story).map(|lend| lend.stage)
}

/// The holder is lent the file once more.
fn lend_again(story: &mut Story) {
    let to = LentTo::Client(client(HOLDER));
    let lend = TreeChange::Lend { inode: story.inode, to };
    let TreeDone::Changed { attributes } = story.must(HOLDER, lend) else { panic!("it is lent") };
    story.generation = attributes.lent_to(client(HOLDER)).unwrap();
}

/// The volume has it asked back from the content, which knows nothing of it, and whoever led the volume dies before he hears of that.
fn a_content_that_was_only_asked_back_goes(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    let leader = story.primary();
    story.cluster.hold_back(|flying| matches!(flying, Flying::ErrandReply { .. }));
    story.look(OTHER);
    story.cluster.disconnect(HOLDER, leader);
    story.until(GONE, |story| last_stage(story).is_some());
    assert_eq!(last_stage(&story), Some(LendStage::Unused));
    story.cluster.kill(leader);
    story.cluster.held.clear();
    story.cluster.let_go();
    story.cluster.run(ms(3_000));
    let next = story.members.iter().copied().find(|&node| node != leader);
    story.look_at(OTHER, next.unwrap());
    story.until(ms(1_000), |story| story.leader().is_some());
    story.give_back(None, true);
    story.cluster.run(ms(1_000));
    assert_eq!(story.state().lent, None);
    story.cluster.start(leader);
    story.cluster.run(ms(120_000));
    assert_eq!(contents(&story).count(), 0);
}

/// The last lend was not used. Before it the file was written to and cut, and who did that may send it again.
fn what_clients_did_is_remembered_though_it_left_nothing(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    story.flush("hello");
    let (number, settled, level, under) = (2, 1, Level::Written, Some(story.generation));
    let cut = FileBody::Change { number, settled, level, under, change: Change::Truncate { size: 0 } };
    let told = story.cell(HOLDER).ask(&mut story.cluster, &cut);
    assert!(matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. })), "{told:?}");
    story.give_back(None, false);
    story.cluster.run(ms(11_000));
    lend_again(&mut story);
    let id = story.look(OTHER);
    story.until_seen(OTHER, id, GONE * 2);
    assert_eq!(last_stage(&story), Some(LendStage::Unused));
    story.cluster.run(ms(60_000));
    assert!(contents(&story).count() > 0);
}

/// The content ends the lend, and all forget that, but the volume hears nothing when it asks. Who asked for the file is told how it is.
fn ended_unheard(story: &mut Story) -> RequestId {
    let (leader, generation) = (story.primary(), story.generation);
    story.cluster.hold_back(|flying| matches!(flying, Flying::ErrandReply { .. }));
    let id = story.look(OTHER);
    story.until(GONE * 2, |story| last_lend(story).is_some_and(|lend| lend.lent.generation == generation));
    let is_late = move |flying: &Flying| match flying {
        Flying::ErrandReply { to, .. } => *to == leader,
        Flying::Errand { from, .. } => from.node.0 == leader,
        _ => false,
    };
    story.cluster.hold_back(is_late);
    story.until(ms(60_000), |story| contents(story).count() == 0);
    id
}

/// Were that forgotten before the volume knows it, what the holder flushes then would be no part of what the volume hears in the end.
fn is_not_forgotten_before_the_volume_has_it(story: &mut Story) {
    let id = ended_unheard(story);
    let told = story.write(HOLDER, Some(story.generation), "hello");
    story.cluster.let_go();
    let seen = story.until_seen(OTHER, id, ms(3_000));
    assert_eq!((told, seen.size), (Some(FileReplyBody::Refused(FileError::NotLent)), 0));
}

fn what_came_of_a_lend_is_not_what_came_of_the_next(bug: Option<Bug>) {
    let mut story = Story::lent(bug);
    ended_unheard(&mut story);
    lend_again(&mut story);
    story.flush("hello");
    let id = story.look(OTHER);
    story.cluster.run(ms(50));
    story.cluster.let_go();
    story.cluster.run(ms(200));
    story.give_back(None, false);
    assert_eq!(story.until_seen(OTHER, id, ms(500)).size, 5);
}

fn what_was_asked_back_is_not_forgotten_before_the_volume_has_it(bug: Option<Bug>) {
    is_not_forgotten_before_the_volume_has_it(&mut Story::lent(bug));
}

/// The volume was told of the lend before.
#[test]
fn what_was_asked_back_again_is_not_forgotten_before_the_volume_has_it() {
    let mut story = Story::lent(None);
    let id = story.look(OTHER);
    story.until_seen(OTHER, id, GONE * 2);
    // It says so once more in its own log, to tell the volume of it.
    story.until(ms(60_000), |story| contents(story).any(|content| content.committed().seq == Seq(3)));
    story.cluster.run(ms(100));
    lend_again(&mut story);
    is_not_forgotten_before_the_volume_has_it(&mut story);
}

stories! {
    AskedBackKept: a_content_that_was_only_asked_back_goes;
    UnusedIsNothing: what_clients_did_is_remembered_though_it_left_nothing;
    AskedBackUntold: what_was_asked_back_is_not_forgotten_before_the_volume_has_it;
    LendsMixedUp: what_came_of_a_lend_is_not_what_came_of_the_next;
}
