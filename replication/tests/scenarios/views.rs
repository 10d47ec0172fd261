//! Members that change.

use replication::{Body, Bug, ChangeError, Event, Message, ProposeError, Standing};

use crate::cluster::{Cluster, Put, Told, ms};

#[test]
fn a_newcomer_gets_the_object_and_then_counts() {
    let mut cluster = Cluster::with_spare(3, 4, None);
    cluster.serve(1);
    cluster.must_put(1, 1, 10);
    cluster.admit(1, 4).unwrap();
    cluster.run(ms(500));
    assert_eq!(cluster.members(1), [1, 2, 3, 4]);
    cluster.assert_same(&[1, 2, 3, 4]);
    cluster.dismiss(1, 2).unwrap();
    cluster.run(ms(500));
    assert_eq!(cluster.members(4), [1, 3, 4]);
    // One of three may be gone.
    cluster.kill(1);
    cluster.serve(4);
    assert_eq!(cluster.read(4, 1), Some(10));
}

#[test]
fn members_change_one_at_a_time() {
    let mut cluster = Cluster::with_spare(3, 5, None);
    cluster.serve(1);
    assert_eq!(cluster.admit(1, 2), Err(ChangeError::Member(base::NodeId(2))));
    assert_eq!(cluster.dismiss(1, 4), Err(ChangeError::NotMember(base::NodeId(4))));
    cluster.isolate(2);
    cluster.isolate(3);
    cluster.dismiss(1, 3).unwrap();
    assert_eq!(cluster.dismiss(1, 2), Err(ChangeError::Changing));
    let mut alone = Cluster::new(1, None);
    alone.serve(1);
    assert_eq!(alone.dismiss(1, 1), Err(ChangeError::Count));
    assert!(matches!(cluster.admit(2, 4), Err(ChangeError::Ask(_))));
}

#[test]
fn who_is_no_member_any_more_is_told_and_forgets_when_all_know() {
    let mut cluster = Cluster::new(4, None);
    cluster.serve(1);
    cluster.must_put(1, 1, 10);
    cluster.isolate(3);
    cluster.dismiss(1, 4).unwrap();
    cluster.renew(1);
    cluster.run(ms(500));
    assert_eq!(cluster.replica(4).standing(), Standing::Retired);
    assert!(cluster.try_lead(4).is_err());
    cluster.run(ms(30_000));
    assert!(!cluster.was_told(4, &Told::Event(Event::Forgotten)), "node 3 knows nothing of it");
    // It keeps that.
    cluster.kill(4);
    cluster.start(4);
    assert_eq!(cluster.replica(4).standing(), Standing::Retired);
    cluster.mend();
    cluster.run(ms(30_000));
    assert!(cluster.was_told(4, &Told::Event(Event::Forgotten)));
    assert!(!cluster.replica(4).is_whole());
}

/// What it knows from a log or from hearsay it has to write down before anybody counts on its knowing it.
#[test]
fn who_says_that_it_knows_a_view_knows_it_when_the_power_is_back() {
    let mut cluster = Cluster::new(4, None);
    cluster.serve(1);
    cluster.renew(1);
    cluster.hold_back(|flying| {
        let is_adopt = matches!(flying.message, Message::Adopt { .. }) && flying.to == 4;
        is_adopt || matches!(flying.message, Message::Forget { .. })
    });
    cluster.dismiss(1, 4).unwrap();
    cluster.run(ms(500));
    cluster.lead(4);
    assert!(cluster.was_told(4, &Told::Event(Event::WrongView)), "others have told it");
    cluster.serve_soon(2);
    cluster.run(ms(30_000));
    let (view, settled) = (cluster.replica(2).view().id, cluster.replica(2).rest().settled);
    assert_eq!(view, settled, "node 4 has said that it knows");
    cluster.power_off(4);
    cluster.start(4);
    assert_eq!(cluster.members(4), [1, 2, 3]);
}

#[test]
fn who_is_at_home_knows_the_last_view_for_ever() {
    let mut cluster = Cluster::with_spare(3, 7, None).at_home();
    cluster.serve(1);
    cluster.renew(1);
    cluster.must_put(1, 1, 10);
    let change = |cluster: &mut Cluster, primary: u32, new: u32, old: u32| {
        cluster.admit(primary, new).unwrap();
        cluster.run(ms(500));
        cluster.dismiss(primary, old).unwrap();
        cluster.run(ms(500));
    };
    change(&mut cluster, 1, 4, 2);
    change(&mut cluster, 1, 5, 3);
    cluster.serve_soon(4);
    change(&mut cluster, 4, 6, 1);
    cluster.run(ms(30_000));
    for home in 1..=3 {
        assert!(!cluster.replica(home).is_whole(), "node {home} keeps the view and nothing else");
        assert!(cluster.replica(home).machine().cells.is_empty());
        assert!(!cluster.was_told(home, &Told::Event(Event::Forgotten)));
    }
    // Whoever comes later is known there, too, and what is known survives the power.
    change(&mut cluster, 4, 7, 5);
    cluster.run(ms(1_000));
    for home in 1..=3 {
        cluster.power_off(home);
        cluster.start(home);
        assert_eq!(cluster.members(home), [4, 6, 7]);
    }
    // It may become a member again.
    cluster.serve_soon(6);
    cluster.admit(6, 2).unwrap();
    cluster.run(ms(1_000));
    cluster.assert_same(&[2, 4, 6, 7]);
}

/// The members before have it, all of them, and that is one of two majorities.
#[test]
fn a_view_that_all_members_before_have_is_not_committed_for_that() {
    let mut cluster = Cluster::with_spare(1, 2, None);
    cluster.serve(1);
    cluster.must_put(1, 1, 10);
    cluster.hold_back(|flying| match &flying.message {
        Message::Append { entries, .. } => {
            flying.to == 2 && entries.iter().any(|entry| matches!(entry.body, Body::View(_)))
        }
        _ => false,
    });
    cluster.admit(1, 2).unwrap();
    assert_eq!(cluster.replica(1).members_to_be().as_slice().len(), 2);
    cluster.kill(1);
    cluster.held.clear();
    cluster.start(1);
    cluster.lead(1);
    assert_eq!(cluster.members(1), [1], "node 2 does not have the view");
    cluster.let_go();
    cluster.renew(1);
    cluster.run(ms(1_000));
    assert_eq!(cluster.members(1), [1, 2]);
    cluster.assert_same(&[1, 2]);
}

/// It was to become a member again, and somebody thought better of it.
#[test]
fn who_is_at_home_stays_there_whatever_it_was_given_meanwhile() {
    let mut cluster = Cluster::with_spare(3, 4, None).at_home();
    cluster.serve(1);
    cluster.renew(1);
    cluster.must_put(1, 1, 10);
    cluster.dismiss(1, 3).unwrap();
    cluster.run(ms(30_000));
    assert!(cluster.replica(3).is_blank(), "it keeps the view and nothing else");
    cluster.hold_back(|flying| matches!(flying.message, Message::Pulled { .. }));
    cluster.admit(1, 3).unwrap();
    assert!(cluster.replica(3).is_blank());
    cluster.dismiss(1, 3).unwrap();
    cluster.held.clear();
    cluster.let_go();
    cluster.run(ms(30_000));
    assert!(!cluster.was_told(3, &Told::Event(Event::Forgotten)));
    assert_eq!((cluster.replica(3).is_blank(), cluster.members(3)), (true, vec![1, 2]));
    cluster.kill(3);
    cluster.start(3);
    assert_eq!(cluster.members(3), [1, 2]);
}

#[test]
fn a_newcomer_that_is_none_yet_may_be_dismissed() {
    let mut cluster = Cluster::with_spare(3, 5, None);
    cluster.serve(1);
    cluster.renew(1);
    cluster.isolate(4);
    cluster.admit(1, 4).unwrap();
    assert_eq!(cluster.replica(1).newcomer(), Some(base::NodeId(4)));
    cluster.dismiss(1, 4).unwrap();
    assert_eq!(cluster.replica(1).newcomer(), None);
    cluster.mend();
    cluster.run(ms(1_000));
    assert_eq!(cluster.members(1), [1, 2, 3]);
    assert!(cluster.replica(1).is_settled() && cluster.replica(4).is_blank());
}

/// A member that was not told what is committed learns it from whoever knows a later view.
#[test]
fn a_member_asks_for_a_view_that_it_has_heard_of() {
    let mut cluster = Cluster::with_spare(3, 4, None);
    cluster.serve(1);
    let before = cluster.replica(2).view().id;
    cluster.isolate(3);
    cluster.admit(1, 4).unwrap();
    cluster.run(ms(500));
    cluster.kill(1);
    cluster.mend();
    assert_eq!((cluster.members(2), cluster.members(3)), (vec![1, 2, 3, 4], vec![1, 2, 3]));
    cluster.ask_for_view(3, 2);
    assert_eq!(cluster.members(3), [1, 2, 3, 4]);
    assert_eq!(cluster.replica(3).view_before(), None, "it may have missed others");
    assert_eq!(cluster.replica(2).view_before(), Some(before));
    let known = cluster.replica(3).view().clone();
    cluster.ask_for_view(2, 3);
    assert_eq!(cluster.replica(2).view(), &known, "nobody knows a later one");
}

/// It says so to nobody's question, and its own node may be the one that the epoch it names is of.
#[test]
fn who_retires_is_heard_whatever_epoch_it_names() {
    let mut cluster = Cluster::new(4, None);
    cluster.serve(1);
    cluster.renew(1);
    cluster.dismiss(1, 4).unwrap();
    cluster.run(ms(500));
    assert!(!cluster.was_told(4, &Told::Event(Event::Forgotten)), "it has not asked yet");
    let view = cluster.replica(4).view().id;
    let epoch = base::Epoch { number: 0, node: base::NodeId(4) };
    let message = Message::Adopted { epoch, view };
    cluster.deliver_all(vec![crate::cluster::Flying { from: 4, to: 1, view, message }]);
    assert!(cluster.was_told(4, &Told::Event(Event::Forgotten)));
}

#[test]
fn who_is_gone_for_good_is_not_waited_for() {
    let mut cluster = Cluster::new(4, None);
    cluster.serve(1);
    cluster.renew(1);
    cluster.kill(3);
    cluster.dismiss(1, 4).unwrap();
    cluster.run(ms(20_000));
    assert!(!cluster.was_told(4, &Told::Event(Event::Forgotten)));
    cluster.strike(1, 3);
    cluster.run(ms(20_000));
    assert!(cluster.was_told(4, &Told::Event(Event::Forgotten)));
}

#[test]
fn a_primary_that_is_dismissed_leads_no_more() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.must_put(1, 1, 10);
    cluster.dismiss(1, 1).unwrap();
    assert_eq!(cluster.replica(1).standing(), Standing::Retired);
    let request = cluster.request();
    assert_eq!(cluster.propose(1, request, Put(1, 1)), Err(ProposeError::NotPrimary));
    // Node 1 tells it who the members are.
    cluster.lead(2);
    assert!(cluster.was_told(2, &Told::Event(Event::WrongView)));
    cluster.serve(2);
    assert_eq!((cluster.read(2, 1), cluster.members(2)), (Some(10), vec![2, 3]));
}

#[test]
fn a_view_that_loses_is_a_view_no_more() {
    let mut cluster = Cluster::new(3, None);
    cluster.serve(1);
    cluster.must_put(1, 1, 10);
    cluster.isolate(1);
    cluster.dismiss(1, 3).unwrap();
    cluster.serve(3);
    cluster.must_put(3, 2, 20);
    cluster.mend();
    cluster.run(ms(500));
    assert_eq!(cluster.members(1), [1, 2, 3]);
    cluster.assert_same(&[1, 2, 3]);
}

#[test]
fn a_view_of_the_last_tenure_is_committed_by_this_one() {
    let mut cluster = Cluster::new(4, None);
    cluster.serve(1);
    cluster.hold_back(|flying| matches!(flying.message, Message::Synced { .. }));
    cluster.dismiss(1, 4).unwrap();
    assert_eq!(cluster.members(1), [1, 2, 3, 4], "it is not durable");
    cluster.kill(1);
    cluster.held.clear();
    cluster.let_go();
    cluster.serve(2);
    cluster.run(ms(500));
    assert_eq!(
        cluster.members(2),
        [2, 3, 1].into_iter().collect::<std::collections::BTreeSet<u32>>().into_iter().collect::<Vec<u32>>()
    );
    cluster.must_put(2, 1, 10);
}

fn a_newcomer_without_the_object_does_not_count(bug: Option<Bug>) {
    let mut cluster = Cluster::with_spare(3, 4, bug);
    cluster.serve(1);
    cluster.must_put(1, 1, 10);
    cluster.isolate(4);
    cluster.admit(1, 4).unwrap();
    cluster.run(ms(500));
    // A minority of those who have the object is gone.
    cluster.kill(3);
    cluster.must_put(1, 2, 20);
}

fn a_view_counts_when_it_is_durable(bug: Option<Bug>) {
    let mut cluster = Cluster::new(5, bug);
    cluster.serve(1);
    let first = cluster.must_put(1, 9, 9);
    let synced = cluster.sync(1, first);
    assert!(cluster.is_durable(synced));
    // The disks of nodes 3 to 5 write, and do not sync.
    cluster.hold_back(|flying| {
        matches!(flying.message, Message::Sync { .. } | Message::Adopt { .. }) && flying.to > 2
    });
    cluster.dismiss(1, 5).unwrap();
    let _ = cluster.dismiss(1, 4);
    if cluster.members(1) != [1, 2, 3] {
        return;
    }
    let mark = cluster.must_put(1, 1, 10);
    let synced = cluster.sync(1, mark);
    assert!(cluster.is_durable(synced));
    cluster.held.clear();
    cluster.let_go();
    cluster.isolate(1);
    cluster.isolate(2);
    for node in 3..=5 {
        cluster.power_off(node);
    }
    (3..=5).for_each(|node| cluster.start(node));
    cluster.lead(3);
    cluster.renew(3);
    cluster.run(ms(3_000));
    if cluster.replica(3).standing() == Standing::Serving {
        assert_eq!(cluster.read(3, 1), Some(10), "it was durable");
    }
}

/// It had all that it needs, and its disk is destroyed before that is heard.
#[test]
fn a_newcomer_that_is_gone_for_good_is_not_made_a_member() {
    let mut cluster = Cluster::with_spare(3, 4, None);
    cluster.serve(1);
    cluster.renew(1);
    cluster.must_put(1, 1, 10);
    cluster.hold_back(|flying| flying.from == 4 && matches!(flying.message, Message::Synced { .. }));
    cluster.admit(1, 4).unwrap();
    cluster.run(ms(500));
    assert!(!cluster.held.is_empty());
    cluster.remove(4);
    cluster.strike(1, 4);
    cluster.let_go();
    cluster.run(ms(500));
    assert_eq!(cluster.members(1), [1, 2, 3]);
    cluster.must_put(1, 1, 11);
}

/// Its answers are lost, so it is told again and again.
#[test]
fn a_view_is_written_once_however_often_it_is_told() {
    let mut cluster = Cluster::new(4, None);
    cluster.serve(1);
    cluster.renew(1);
    cluster.hold_back(|flying| flying.from == 4 && matches!(flying.message, Message::Adopted { .. }));
    cluster.dismiss(1, 4).unwrap();
    cluster.run(ms(500));
    let (written, told) = (cluster.records(4), cluster.held.len());
    assert_eq!(cluster.replica(4).standing(), Standing::Retired);
    cluster.run(ms(5_000));
    assert!(cluster.held.len() > told + 10, "{}", cluster.held.len());
    assert_eq!(cluster.records(4), written);
    // It may know it from somebody who did not wait for its disk.
    cluster.kill(4);
    cluster.start(4);
    cluster.let_go();
    cluster.run(ms(30_000));
    assert!(cluster.was_told(4, &Told::Event(Event::Forgotten)));
}

/// What a node has heard of a view when it asked with an older one is not on its disk yet.
#[test]
fn a_view_that_was_only_heard_of_is_written_before_it_is_said_to_be_known() {
    let mut cluster = Cluster::new(4, None);
    cluster.serve(1);
    cluster.renew(1);
    cluster.isolate(3);
    cluster.dismiss(1, 4).unwrap();
    cluster.run(ms(500));
    cluster.mend();
    // Node 3 hears of the view when it wants to lead, and is told by node 1 only later.
    cluster.cut(1, 3);
    cluster.lead(3);
    assert_eq!(cluster.members(3), [1, 2, 3]);
    cluster.hold_back(|flying| {
        flying.to == 3 && matches!(flying.message, Message::Append { .. } | Message::Offer { .. })
    });
    cluster.mend();
    cluster.serve(1);
    cluster.run(ms(1_000));
    cluster.kill(3);
    cluster.start(3);
    assert_eq!(cluster.members(3), [1, 2, 3]);
}

fn a_tombstone_stays_while_somebody_might_ask(bug: Option<Bug>) {
    let mut cluster = Cluster::new(5, bug);
    cluster.serve(1);
    cluster.renew(1);
    cluster.isolate(5);
    cluster.dismiss(1, 4).unwrap();
    cluster.run(ms(15_000));
    cluster.dismiss(1, 3).unwrap();
    cluster.run(ms(15_000));
    cluster.must_put(1, 1, 10);
    // Node 5 knows only the first view.
    cluster.mend();
    cluster.isolate(1);
    cluster.isolate(2);
    cluster.lead(5);
    cluster.run(ms(1_000));
    assert_ne!(cluster.replica(5).standing(), Standing::Serving, "nodes 1 and 2 are the majority");
}

stories! {
    NewcomerNotCaughtUp: a_newcomer_without_the_object_does_not_count;
    ViewNotDurable: a_view_counts_when_it_is_durable;
    TombstoneDroppedEarly: a_tombstone_stays_while_somebody_might_ask;
}
