//! Power that fails: who lost what it had not synced does not count as if it remembered.

use replication::{Bug, Config, Event, Standing, SyncError};

use crate::cluster::{Cluster, Told, ms};

/// All epochs of the object are above this number.
fn begins_after(cluster: &mut Cluster, number: u64) {
    (cluster.epoch, cluster.begun_after) = (cluster.epoch.max(number), number);
}

fn is_serving(cluster: &Cluster, node: u32) -> bool {
    cluster.replica(node).standing() == Standing::Serving
}

fn power_cycle(cluster: &mut Cluster, nodes: &[u32]) {
    nodes.iter().for_each(|&node| cluster.power_off(node));
    nodes.iter().for_each(|&node| cluster.start(node));
}

/// Written at nodes 1 and 2, and durable nowhere.
fn written(bug: Option<Bug>) -> (Cluster, replication::Mark) {
    written_with(Config { bug, ..Config::default() })
}

fn written_with(config: Config) -> (Cluster, replication::Mark) {
    let mut cluster = Cluster::with(3, config);
    cluster.serve(1);
    let barrier = cluster.must_put(1, 9, 9);
    let synced = cluster.sync(1, barrier);
    assert!(cluster.is_durable(synced));
    cluster.isolate(3);
    let mark = cluster.must_put(1, 1, 10);
    (cluster, mark)
}

fn who_forgot_is_not_counted_on(bug: Option<Bug>) {
    what_node_2_forgot_is_there(written(bug).0);
}

/// Though all were told when it began.
fn who_forgot_since_it_began_is_not_counted_on(bug: Option<Bug>) {
    let mut cluster = Cluster::new(3, bug);
    begins_after(&mut cluster, 7);
    cluster.serve(1);
    cluster.isolate(3);
    cluster.must_put(1, 1, 10);
    what_node_2_forgot_is_there(cluster);
}

fn what_node_2_forgot_is_there(mut cluster: Cluster) {
    power_cycle(&mut cluster, &[2]);
    cluster.mend();
    cluster.isolate(1);
    cluster.lead(2);
    cluster.renew(2);
    cluster.run(ms(5_000));
    if is_serving(&cluster, 2) {
        assert_eq!(cluster.read(2, 1), Some(10), "one power failure loses nothing");
    }
    // Nobody has it but node 1.
    cluster.mend();
    cluster.run(ms(1_000));
    assert_eq!(cluster.read(2, 1), Some(10));
    assert_eq!(cluster.replica(2).rest().generation, base::Epoch::default());
}

fn what_may_be_lost_is_not_said_to_be_durable(bug: Option<Bug>) {
    // The log soon forgets what stood where.
    let (mut cluster, mark) = written_with(Config { bug, kept_max: 2, ..Config::default() });
    power_cycle(&mut cluster, &[1, 2, 3]);
    cluster.mend();
    cluster.serve_soon(3);
    cluster.renew(3);
    assert_eq!((cluster.read(3, 1), cluster.read(3, 9)), (None, Some(9)));
    // The same places are taken by others.
    (0..5).for_each(|cell| _ = cluster.must_put(3, cell + 20, 1));
    assert_eq!(cluster.try_sync(3, mark), Err(SyncError::Lost(mark.at)));
}

/// It has forgotten nothing of it.
#[test]
fn who_forgot_before_an_object_began_is_counted_on() {
    for (forgot_at, serves) in [(7, true), (8, false)] {
        let mut cluster = Cluster::new(3, None);
        begins_after(&mut cluster, forgot_at);
        power_cycle(&mut cluster, &[2]);
        cluster.kill(3);
        begins_after(&mut cluster, 7);
        cluster.lead(1);
        cluster.run(ms(500));
        assert_eq!(is_serving(&cluster, 1), serves, "{forgot_at}");
    }
}

#[test]
fn who_is_blocked_says_for_whom_it_waits() {
    let (mut cluster, _) = written(None);
    power_cycle(&mut cluster, &[2]);
    cluster.mend();
    cluster.kill(1);
    cluster.lead(3);
    cluster.renew(3);
    cluster.run(ms(3_000));
    let blocked = Event::Blocked { missing: vec![base::NodeId(1)], forgot: vec![base::NodeId(2)] };
    assert!(cluster.was_told(3, &Told::Event(blocked)));
    assert!(!is_serving(&cluster, 3));
    // An operator gives up what only node 1 has.
    assert!(cluster.accept_loss(3));
    cluster.run(ms(500));
    assert!(is_serving(&cluster, 3));
    let generation = cluster.replica(3).rest().generation;
    assert!(cluster.was_told(3, &Told::Event(Event::Lost { generation })));
    assert!(!cluster.accept_loss(3), "nothing waits any more");
    // It comes back with what was given up.
    cluster.start(1);
    cluster.must_put(3, 2, 20);
    cluster.run(ms(500));
    cluster.assert_same(&[1, 2, 3]);
    assert_eq!(cluster.read(3, 1), None);
}

/// All are asked again every now and then. Whoever has answered before has to answer again, if what is missing is given up meanwhile.
#[test]
fn what_is_given_up_is_what_those_have_who_were_missing() {
    let mut cluster = Cluster::new(5, None);
    cluster.serve(1);
    cluster.isolate(4);
    cluster.isolate(5);
    let mark = cluster.must_put(1, 1, 10);
    cluster.run(ms(50));
    cluster.kill(1);
    power_cycle(&mut cluster, &[2, 5]);
    cluster.mend();
    cluster.lead(4);
    cluster.renew(4);
    assert!(!cluster.accept_loss(4), "nobody has been waited for yet");
    cluster.run(ms(3_000));
    let blocked =
        Event::Blocked { missing: vec![base::NodeId(1)], forgot: [2, 5].map(base::NodeId).to_vec() };
    assert!(cluster.was_told(4, &Told::Event(blocked)));
    // Only node 3 has what was written.
    cluster.hold_back(|flying| flying.from == 3);
    cluster.run(ms(300));
    assert!(cluster.accept_loss(4));
    cluster.run(ms(100));
    assert!(!is_serving(&cluster, 4));
    cluster.let_go();
    cluster.run(ms(500));
    cluster.serve_soon(4);
    cluster.renew(4);
    assert_eq!(cluster.read(4, 1), Some(10), "{mark:?}");
}

#[test]
fn when_all_have_forgotten_the_rest_is_waited_for() {
    let (mut cluster, _) = written(None);
    power_cycle(&mut cluster, &[1, 2]);
    cluster.lead(2);
    cluster.renew(2);
    cluster.run(ms(1_500));
    assert!(!is_serving(&cluster, 2), "node 3 may still answer");
    cluster.run(ms(1_000));
    assert!(is_serving(&cluster, 2), "nobody remembers more");
    assert_eq!(cluster.read(2, 9), Some(9));
}

#[test]
fn when_everybody_answers_there_is_nothing_to_wait_for() {
    let (mut cluster, _) = written(None);
    power_cycle(&mut cluster, &[1, 2]);
    cluster.mend();
    cluster.serve(2);
    assert_ne!(cluster.replica(2).rest().generation, base::Epoch::default());
}

#[test]
fn who_has_a_barrier_of_a_later_tenure_is_counted_on_again() {
    let (mut cluster, _) = written(None);
    power_cycle(&mut cluster, &[3]);
    cluster.mend();
    cluster.serve(1);
    cluster.must_put(1, 2, 20);
    cluster.run(ms(500));
    assert_eq!(cluster.replica(3).memory(), replication::Memory::Clean);
    // It remembers that over a start of its process.
    cluster.kill(3);
    cluster.start(3);
    assert_eq!(cluster.replica(3).memory(), replication::Memory::Clean);
    cluster.kill(1);
    cluster.serve(3);
    assert_eq!(cluster.read(3, 1), Some(10));
}

#[test]
fn a_second_failure_does_not_make_it_remember() {
    let (mut cluster, _) = written(None);
    power_cycle(&mut cluster, &[2]);
    // It ends and starts again before anybody has told it anything.
    cluster.kill(2);
    cluster.start(2);
    assert_eq!(cluster.replica(2).memory(), replication::Memory::Forgot);
    power_cycle(&mut cluster, &[2]);
    assert_eq!(cluster.replica(2).memory(), replication::Memory::Forgot);
}

#[test]
fn who_waits_for_those_that_remember_is_not_woken_for_ever() {
    // All are asked until a moment between two times of asking.
    let config = Config { all_forgot_after: ms(250), retry_after: ms(200), ..Config::default() };
    let mut cluster = Cluster::with(3, config);
    cluster.serve(1);
    cluster.must_put(1, 1, 10);
    power_cycle(&mut cluster, &[2]);
    cluster.kill(1);
    cluster.isolate(3);
    cluster.lead(2);
    cluster.renew(2);
    cluster.run(ms(3_000));
    assert!(!is_serving(&cluster, 2));
    cluster.start(1);
    cluster.mend();
    cluster.run(ms(1_000));
    assert!(is_serving(&cluster, 2), "those who remember are back");
}

stories! {
    ForgettingIgnored: who_forgot_is_not_counted_on;
    BeginningUnchecked: who_forgot_since_it_began_is_not_counted_on;
    SyncIgnoresGeneration: what_may_be_lost_is_not_said_to_be_durable;
}
