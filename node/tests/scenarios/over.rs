//! What nobody needs anything of is forgotten by all: removed files of volumes, and what there never was.

use base::NodeId;
use namespace::{Change as TreeChange, Site};
use node::file::{Change, FileBody, FileError, FileReplyBody, Key, Level, Query};
use node::object_named;
use node::{Bug, Changed, MemberChange};
use replication::{Machine as _, Message, Position, Record};

use crate::cluster::{Cluster, Flying, ms};
use crate::files::{Daemons, Writer, write};
use crate::lends::{Cell, apart, lookup_somewhere};
use crate::volumes::{name, op};

/// Long enough for all members to have had their turn.
const LONG: u64 = 60_000;

/// The last name of a file goes, and with it its content.
fn unlink(cluster: &mut Daemons, members: &[u32], cell: &Cell) {
    let site = Site::new(namespace::InodeId::ROOT, name(&cell.name));
    let mut writer = Writer { number: 100 };
    writer.must(cluster, members[0], op(TreeChange::Unlink { site, holders: Vec::new(), removed: None }));
    cluster.run(ms(1_000));
}

fn hosts(cluster: &Daemons, object: base::ObjectId) -> Vec<u32> {
    let has = |node: &u32| cluster.is_up(*node) && cluster.shard(*node).file(object).is_some();
    cluster.ids().into_iter().filter(has).collect()
}

#[test]
fn what_was_removed_leaves_nothing_once_all_have_the_mark() {
    let (mut cluster, members, mut cell) = apart(None);
    cell.write(&mut cluster, "hello");
    unlink(&mut cluster, &members, &cell);
    assert_eq!(hosts(&cluster, cell.object).len(), 3);
    cluster.run(ms(LONG));
    assert_eq!(hosts(&cluster, cell.object), []);
}

/// Nobody uses the volume any more when they come back.
fn what_was_removed_goes_although_too_few_who_have_it_were_there(are_all_killed: bool) {
    let (mut cluster, members, mut cell) = apart(None);
    cell.write(&mut cluster, "hello");
    let away: Vec<u32> = hosts(&cluster, cell.object).into_iter().take(2).collect();
    away.iter().for_each(|&node| _ = cluster.kill(node));
    unlink(&mut cluster, &members, &cell);
    cluster.run(ms(2 * LONG));
    if are_all_killed {
        members.iter().for_each(|&node| _ = cluster.kill(node));
        members.iter().for_each(|&node| cluster.start(node));
    }
    away.iter().for_each(|&node| cluster.start(node));
    cluster.run(ms(2 * LONG));
    assert_eq!(hosts(&cluster, cell.object), []);
}

#[test]
fn what_was_removed_goes_when_who_has_it_comes_back() {
    what_was_removed_goes_although_too_few_who_have_it_were_there(false);
}

#[test]
fn what_was_removed_goes_though_who_led_the_volume_is_gone() {
    what_was_removed_goes_although_too_few_who_have_it_were_there(true);
}

fn who_was_away_gets_the_mark_before_the_others_forget_it(bug: Option<Bug>) {
    let (mut cluster, members, mut cell) = apart(bug);
    cell.write(&mut cluster, "hello");
    let sleeper = hosts(&cluster, cell.object).into_iter().find(|node| *node != cell.primary(&cluster));
    let sleeper = sleeper.expect("there are three");
    cluster.kill(sleeper);
    unlink(&mut cluster, &members, &cell);
    cluster.run(ms(LONG));
    cluster.start(sleeper);
    cluster.run(ms(2 * LONG));
    assert_eq!(hosts(&cluster, cell.object), []);
}

/// It has the entry by which the file was removed, and nobody tells it that this is committed, or that the file is over.
fn over_for_all_but_one(bug: Option<Bug>) -> (Daemons, Cell, u32) {
    let (mut cluster, members, mut cell) = apart(bug);
    cell.write(&mut cluster, "hello");
    let primary = cell.primary(&cluster);
    let other = hosts(&cluster, cell.object).into_iter().find(|node| *node != primary);
    let (other, object) = (other.expect("there are three"), cell.object);
    cluster.hold_back(move |flying| match flying {
        Flying::File { to, message, .. } => {
            let tells = match &message.message {
                Message::Append { entries, .. } => entries.is_empty(),
                message => matches!(message, Message::Forget { .. }),
            };
            tells && message.object == object && *to == other
        }
        _ => false,
    });
    unlink(&mut cluster, &members, &cell);
    cluster.run_until(ms(LONG), |cluster| hosts(cluster, object) == [other]);
    cluster.isolate(other);
    cluster.held.clear();
    cluster.let_go();
    (cluster, cell, other)
}

fn who_did_not_hear_that_it_is_over_ends_it(is_damaged: bool) {
    let (mut cluster, Cell { object, .. }, other) = over_for_all_but_one(None);
    if is_damaged {
        cluster.kill(other);
        cluster.damage(other, object);
        cluster.start(other);
    }
    cluster.mend();
    cluster.run(ms(2 * LONG));
    assert_eq!(hosts(&cluster, object), []);
}

#[test]
fn who_did_not_hear_that_it_is_over_has_it_ended_again() {
    who_did_not_hear_that_it_is_over_ends_it(false);
}

/// The last who has the mark gives the others what it has of the file, and is gone before they have all of it.
fn what_is_left_of_a_removed_file_is_its_mark(bug: Option<Bug>) {
    let (mut cluster, Cell { object, .. }, other) = over_for_all_but_one(bug);
    cluster.kill(other);
    cluster.configure = |config| std::sync::Arc::make_mut(&mut config.replication).kept_max = 1;
    // They say that they have nothing, and get no entries but the state before them.
    let offered = std::cell::RefCell::new(std::collections::BTreeSet::new());
    cluster.hold_back(move |flying| match flying {
        Flying::File { to, message, .. } if message.object == object => {
            if matches!(message.message, Message::Offer { .. }) {
                offered.borrow_mut().insert(*to);
            }
            matches!(message.message, Message::Append { .. }) && offered.borrow().contains(to)
        }
        _ => false,
    });
    cluster.start(other);
    cluster.mend();
    let has_state = |cluster: &Daemons| {
        let has_it = |node: &u32| cluster.shard(*node).file(object).unwrap().tail() > Position::START;
        hosts(cluster, object).iter().filter(|node| has_it(node)).count() == 3
    };
    for _ in 0..LONG {
        cluster.run(ms(1));
        if has_state(&cluster) {
            break;
        }
    }
    assert!(has_state(&cluster));
    cluster.kill(other);
    cluster.held.clear();
    cluster.let_go();
    cluster.run(ms(LONG));
    for node in hosts(&cluster, object) {
        let replica = cluster.shard(node).file(object).unwrap();
        assert!(replica.machine().attributes().1.is_removed(), "what is in no volume is there again");
    }
    cluster.start(other);
    cluster.run(ms(2 * LONG));
    assert_eq!(hosts(&cluster, object), []);
}

/// It does not know that it was removed, only that it had something.
#[test]
fn who_cannot_read_any_more_what_is_over_forgets_it() {
    who_did_not_hear_that_it_is_over_ends_it(true);
}

/// The others have forgotten it, and one of those does not even remember that it has.
fn who_lacks_parts_of_what_is_over_has_it_ended(bug: Option<Bug>) {
    let (mut cluster, Cell { object, .. }, other) = over_for_all_but_one(bug);
    cluster.configure = |config| std::sync::Arc::make_mut(&mut config.replication).kept_max = 1;
    let replica = cluster.shard(other).file(object).unwrap();
    let applied = replica.rest().at.seq;
    let mark = (Key::Attributes, replica.machine().version(&Key::Attributes).unwrap());
    assert!(replica.tail().seq > applied);
    cluster.kill(other);
    cluster.record(other, object, Record::Damaged { applied, parts: vec![mark] });
    let forgetful = cluster.ids().into_iter().find(|node| *node != other).unwrap();
    cluster.sync(forgetful);
    cluster.power_off(forgetful);
    [forgetful, other].into_iter().for_each(|node| cluster.start(node));
    cluster.mend();
    cluster.run(ms(LONG));
    // What takes the place of what is lacking is on disk with the next checkpoint.
    cluster.put_apart(other, object);
    cluster.run(ms(2 * LONG));
    assert_eq!(hosts(&cluster, object), []);
}

#[test]
fn who_lacks_parts_of_what_is_over_has_it_ended_though_nobody_else_remembers() {
    who_lacks_parts_of_what_is_over_has_it_ended(None);
}

/// The primary dies, and nobody asks for the file any more.
#[test]
fn a_lend_goes_back_although_its_primary_has_died() {
    let (mut cluster, members, mut cell) = apart(None);
    cell.write(&mut cluster, "hello");
    let primary = cell.primary(&cluster);
    cluster.kill(primary);
    cluster.run(ms(2_000));
    cluster.start(primary);
    cluster.run(ms(LONG));
    let told = lookup_somewhere(&mut cluster, &members, &cell.name);
    assert_eq!((told.lent, told.size), (None, 5));
}

/// Its primary is gone for good, and nobody asks for the file any more.
#[test]
fn a_lend_goes_back_although_a_member_is_away() {
    let (mut cluster, members, mut cell) = apart(None);
    cell.write(&mut cluster, "hello");
    cluster.kill(cell.primary(&cluster));
    cluster.run(ms(LONG));
    let told = lookup_somewhere(&mut cluster, &members, &cell.name);
    assert_eq!((told.lent, told.size), (None, 5));
}

/// The same, without waiting until a member looks for what is lent.
#[test]
fn a_lend_goes_back_when_somebody_asks_although_a_member_is_away() {
    let (mut cluster, members, mut cell) = apart(None);
    cell.write(&mut cluster, "hello");
    cluster.kill(cell.primary(&cluster));
    cluster.run(ms(500));
    assert_eq!(cell.stat(&mut cluster).size, 5);
    cluster.run(ms(1_500));
    let told = lookup_somewhere(&mut cluster, &members, &cell.name);
    assert_eq!((told.lent, told.size), (None, 5));
}

/// A file may be idle before its lend may go back.
#[test]
fn who_has_size_and_times_leads_the_file_until_they_are_given_back() {
    let (mut cluster, members, mut cell) = apart(None);
    cluster.configure = |config| config.file_idle = ms(300);
    for node in cluster.ids() {
        cluster.kill(node);
        cluster.start(node);
        cluster.run(ms(3_000));
    }
    cell.write(&mut cluster, "hello");
    cluster.run(ms(5_000));
    let told = lookup_somewhere(&mut cluster, &members, &cell.name);
    assert_eq!((told.lent, told.size), (None, 5));
}

/// Whoever has it open still, and was told by nobody that it is gone.
#[test]
fn a_write_that_comes_too_late_leaves_nothing() {
    let (mut cluster, members, mut cell) = apart(None);
    cell.write(&mut cluster, "hello");
    unlink(&mut cluster, &members, &cell);
    cluster.run(ms(LONG));
    let told = cell.change(&mut cluster, write("late"));
    let Some(FileReplyBody::Refused(FileError::Tree(_))) = told else { panic!("{told:?}") };
    cluster.run(ms(LONG));
    assert_eq!(hosts(&cluster, cell.object), []);
}

/// All lose their power, and each may have forgotten whatever it is asked about.
#[test]
fn what_nobody_has_anything_of_is_not_led_for_ever() {
    let mut cluster: Daemons = Cluster::with(3, 3, None);
    cluster.client(1);
    let nodes = cluster.ids();
    nodes.iter().for_each(|&node| cluster.power_off(node));
    nodes.iter().for_each(|&node| cluster.start(node));
    cluster.run(ms(6_000));
    let object = object_named("nothing");
    let asked = cluster.ask_file(1, 1, object, FileBody::Ask(Query::Stat));
    cluster.run(ms(3_000));
    assert_eq!(cluster.file_reply(1, asked), Some(FileReplyBody::NoSuchFile));
    cluster.run(ms(LONG));
    assert_eq!(hosts(&cluster, object), []);
}

/// One of five does not come back, and each of the others looks at another time whether somebody has something of it.
#[test]
fn what_nobody_has_anything_of_is_not_led_for_ever_though_a_member_is_gone() {
    let mut cluster: Daemons = Cluster::with(5, 5, None);
    cluster.configure = |config| {
        let replication = std::sync::Arc::make_mut(&mut config.replication);
        replication.all_forgot_after = ms(4_000);
    };
    cluster.client(1);
    let nodes = cluster.ids();
    nodes.iter().for_each(|&node| cluster.power_off(node));
    for &node in &nodes[..4] {
        cluster.start(node);
        cluster.run(ms(2_500));
    }
    cluster.run(ms(6_000));
    let object = object_named("nothing");
    let asked = cluster.ask_file(1, 1, object, FileBody::Ask(Query::Stat));
    cluster.run(ms(LONG));
    assert_eq!(cluster.file_reply(1, asked), Some(FileReplyBody::NoSuchFile));
    assert_eq!(hosts(&cluster, object), []);
}

/// An operator asks for it, and does not wait for the answer.
#[test]
fn what_an_operator_has_asked_for_once_is_not_led_for_ever() {
    let mut cluster: Daemons = Cluster::with(3, 3, None);
    let object = object_named("nothing");
    assert_eq!(cluster.order(1, object, MemberChange::Dismiss(NodeId(2))), Ok(Changed::UnderWay));
    cluster.run(ms(LONG));
    assert_eq!(hosts(&cluster, object), []);
}

/// The same where all have lost their power, and look again and again whether they have forgotten something of it.
#[test]
fn what_an_operator_has_asked_for_once_is_not_led_for_ever_by_who_forgot() {
    let mut cluster: Daemons = Cluster::with(3, 3, None);
    let nodes = cluster.ids();
    nodes.iter().for_each(|&node| cluster.power_off(node));
    nodes.iter().for_each(|&node| cluster.start(node));
    cluster.run(ms(6_000));
    let object = object_named("nothing");
    let order = |cluster: &mut Daemons, node| {
        assert_eq!(cluster.order(node, object, MemberChange::Dismiss(NodeId(2))), Ok(Changed::UnderWay));
    };
    order(&mut cluster, 1);
    cluster.run(ms(1_000));
    order(&mut cluster, 2);
    cluster.run(ms(LONG));
    assert_eq!(hosts(&cluster, object), []);
}

/// What a daemon keeps of it when it starts says nothing of what was before.
#[test]
fn what_begins_again_where_it_was_over_is_there_after_a_restart() {
    let (mut cluster, members, mut cell) = apart(None);
    cell.write(&mut cluster, "hello");
    unlink(&mut cluster, &members, &cell);
    cluster.run(ms(LONG));
    cell.change(&mut cluster, write("late"));
    let nodes = hosts(&cluster, cell.object);
    assert_eq!(nodes.len(), 3);
    for node in nodes {
        cluster.kill(node);
        cluster.start(node);
    }
    cluster.run(ms(2 * LONG));
    assert_eq!(hosts(&cluster, cell.object), []);
}

/// Only of a volume's file nobody can want the same again.
#[test]
fn the_mark_of_what_is_in_no_volume_stays() {
    let mut cluster: Daemons = Cluster::with(3, 3, None);
    cluster.client(1);
    let object = object_named("mine");
    cluster.ask_file(1, 1, object, FileBody::Create);
    cluster.run(ms(1_000));
    let body = FileBody::Change {
        number: 1,
        settled: 1,
        level: Level::Durable,
        under: None,
        change: Change::Remove,
    };
    cluster.ask_file(1, 1, object, body);
    cluster.run(ms(LONG));
    assert_eq!(hosts(&cluster, object), [1, 2, 3]);
}

stories! {
    ForgottenByFew: who_was_away_gets_the_mark_before_the_others_forget_it;
    MarkedOnce: what_is_left_of_a_removed_file_is_its_mark;
    RemovedAndLacking: who_lacks_parts_of_what_is_over_has_it_ended;
}
