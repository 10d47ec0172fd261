//! What is bounded, in numbers and in bytes, and what is never refused all the same.

use base::{ClientId, Seq, Span};
use replication::{
    Bug, Config, ConfigError, HOUSE_CLIENTS_MAX, Limit, Message, ProposeError, Request, Standing,
};

use crate::cluster::{Cells, Cluster, HEAVY, Put, ms};

/// A heavy entry.
const HEAVY_BYTES: u64 = 128 + 1_000;
const MESSAGE_BYTES: u64 = 128;
/// Room for those who look after an object.
const HOUSE_BYTES: u64 = 64 * HOUSE_CLIENTS_MAX as u64;

fn checked(config: Config) -> Config {
    config.check::<Cells>().unwrap();
    config
}

/// Small limits in bytes, and those in numbers out of the way.
fn small() -> Config {
    checked(Config {
        uncommitted_bytes_max: 5 * HEAVY_BYTES,
        batch_bytes_max: MESSAGE_BYTES + 2 * HEAVY_BYTES,
        kept_bytes_max: 3 * HEAVY_BYTES,
        kept_lending_bytes_max: 20 * HEAVY_BYTES,
        versions_max: 8,
        page_bytes_max: 4_000 + HOUSE_BYTES,
        clients_max: 8,
        outcomes_max: 64,
        expired_max: 8,
        ..Config::default()
    })
}

const fn client(program: u64) -> ClientId {
    ClientId { certificate: 1, program }
}

const fn request(program: u64, number: u64, settled: u64) -> Request {
    Request { client: client(program), number, settled }
}

/// A client that has all answers but the last.
struct Settling(u64);

impl Settling {
    fn put(&mut self, cluster: &mut Cluster, id: u32, put: Put) -> Result<(), ProposeError> {
        self.0 += 1;
        let done = cluster.propose(id, request(1, self.0, self.0), put);
        self.0 -= u64::from(done.is_err());
        done
    }

    fn must(&mut self, cluster: &mut Cluster, id: u32, put: Put) {
        self.put(cluster, id, put).unwrap();
        assert!(cluster.done(request(1, self.0, self.0)).is_some());
    }
}

#[test]
fn limits_that_something_would_never_fit_are_named() {
    let broken = |change: fn(&mut Config)| {
        let mut config = Config::default();
        change(&mut config);
        config.check::<Cells>().unwrap_err().to_string()
    };
    assert_eq!(Config::default().check::<Cells>(), Ok(()));
    let cases = [
        (broken(|c| c.batch_bytes_max = 1_000), "batch_bytes_max (1000) must be at least 1288"),
        (broken(|c| c.uncommitted_bytes_max = 1_500), "uncommitted_bytes_max (1500) must be at least 1640"),
        (broken(|c| c.page_bytes_max = 500_000), "page_bytes_max (500000) must be at least"),
        (broken(|c| c.kept_lending_max = 1), "kept_lending_max (1) must be at least 1024"),
        (broken(|c| c.outcomes_max = 1), "outcomes_max (1) must be at least 8192"),
        (broken(|c| c.parts_max = 0), "parts_max (0) must be at least 1"),
    ];
    for (message, expected) in cases {
        assert!(message.starts_with(expected), "{message}");
    }
    let config = Config { clients_max: 0, ..Config::default() };
    assert!(matches!(config.check::<Cells>(), Err(ConfigError::TooSmall { name: "clients_max", .. })));
}

#[test]
fn what_is_under_way_is_weighed() {
    let mut cluster = Cluster::with(3, small());
    cluster.serve(1);
    cluster.isolate(1);
    let mut writer = Settling(0);
    let taken = std::iter::from_fn(|| writer.put(&mut cluster, 1, Put(HEAVY, 1)).ok()).count();
    assert_eq!(taken, 5);
    assert_eq!(
        writer.put(&mut cluster, 1, Put(1, 1)),
        Err(ProposeError::Busy),
        "there is no room for a small one"
    );
    let reached = cluster.replica(1).reached();
    assert_eq!([reached.of(Limit::UncommittedBytes), reached.of(Limit::Uncommitted)], [2, 0]);
    cluster.mend();
    cluster.run(ms(500));
    writer.must(&mut cluster, 1, Put(HEAVY, 2));
}

#[test]
fn an_operation_that_is_too_large_changes_nothing() {
    let mut cluster = Cluster::with(3, small());
    cluster.serve(1);
    let before = cluster.replica(1).tail();
    let refused = cluster.propose(1, request(1, 1, 1), Put(u8::MAX, 1));
    assert_eq!(refused, Err(ProposeError::TooLarge { bytes: 1_001, bytes_max: 1_000 }));
    assert_eq!(cluster.replica(1).tail(), before);
}

#[test]
fn a_log_keeps_no_more_than_it_may_weigh() {
    let mut cluster = Cluster::with(3, small());
    cluster.serve(1);
    let mut writer = Settling(0);
    (0..10).for_each(|value| writer.must(&mut cluster, 1, Put(HEAVY, value)));
    cluster.run(ms(50));
    for node in 1..=3 {
        let replica = cluster.replica(node);
        let kept = (1..=replica.tail().seq.0).filter(|&seq| replica.entry(Seq(seq)).is_some());
        assert_eq!(kept.count(), 3, "at node {node}");
        assert!(replica.reached().of(Limit::KeptBytes) > 0 && replica.reached().of(Limit::Kept) == 0);
    }
}

/// The harness looks at the weight of each message, whatever is sent.
#[test]
fn who_lags_gets_messages_that_are_not_too_large() {
    for kept_bytes_max in [20 * HEAVY_BYTES, 0] {
        let mut cluster = Cluster::with(3, Config { kept_bytes_max, ..small() });
        cluster.serve(1);
        cluster.renew(1);
        let mut writer = Settling(0);
        cluster.isolate(3);
        (0..12).for_each(|value| writer.must(&mut cluster, 1, Put(HEAVY - value, value)));
        cluster.mend();
        cluster.run(ms(1_000));
        cluster.assert_same(&[1, 2, 3]);
        let limit = if kept_bytes_max > 0 { Limit::BatchBytes } else { Limit::Versions };
        assert!(cluster.replica(1).reached().of(limit) > 0);
        // And a new primary that lacks something fetches it in pieces.
        cluster.isolate(2);
        (0..2).for_each(|value| writer.must(&mut cluster, 1, Put(HEAVY, value)));
        cluster.kill(1);
        cluster.mend();
        cluster.lead(2);
        cluster.run(ms(500));
    }
}

/// The end of a state may be as large as a message may be, and goes alone.
#[test]
fn requests_that_are_remembered_travel_alone() {
    let mut cluster =
        Cluster::with(3, Config { kept_max: 0, kept_lending_max: 100, page_bytes_max: 2_000, ..small() });
    cluster.serve(1);
    cluster.renew(1);
    cluster.isolate(3);
    for number in 1..=30_u8 {
        cluster.propose(1, request(1, number.into(), 1), Put(number, 1)).unwrap();
    }
    assert_eq!(cluster.replica(1).outcomes_kept(), 30);
    let alone = std::rc::Rc::new(std::cell::Cell::new(0));
    let seen = std::rc::Rc::clone(&alone);
    cluster.hold_back(move |flying| {
        if let Message::Pulled { page, .. } = &flying.message
            && page.rest.is_some()
        {
            seen.set(seen.get() + u32::from(page.parts.is_empty()));
        }
        false
    });
    cluster.mend();
    cluster.run(ms(1_000));
    cluster.assert_same(&[1, 2, 3]);
    assert_eq!(alone.get(), 1);
    cluster.kill(1);
    cluster.serve(3);
    cluster.propose(3, request(1, 7, 1), Put(7, 1)).unwrap();
    assert_eq!(cluster.replica(3).machine().executed.1, 30, "it was remembered");
}

#[test]
fn who_comes_while_a_state_is_lent_gets_the_same_state() {
    let mut cluster = Cluster::with(5, Config { kept_max: 0, kept_lending_max: 100, ..small() });
    cluster.serve(1);
    cluster.renew(1);
    let mut writer = Settling(0);
    (4..=5).for_each(|node| cluster.isolate(node));
    (0..4).for_each(|value| writer.must(&mut cluster, 1, Put(1, value)));
    cluster.hold_back(|flying| matches!(flying.message, Message::Offer { .. }));
    cluster.mend();
    cluster.isolate(5);
    cluster.run(ms(300));
    (4..8).for_each(|value| writer.must(&mut cluster, 1, Put(1, value)));
    cluster.mend();
    cluster.run(ms(300));
    let offers = cluster.held.iter().filter_map(|flying| match flying.message {
        Message::Offer { at, .. } => Some((flying.to, at)),
        _ => None,
    });
    let offers: std::collections::BTreeSet<_> = offers.collect();
    assert!(offers.len() == 2 && offers.first().unwrap().1 == offers.last().unwrap().1, "{offers:?}");
    cluster.let_go();
    cluster.run(ms(1_000));
    cluster.assert_same(&[1, 2, 3, 4, 5]);
}

/// What clients want fills all the room that there is, and still a new primary recovers, a client can be declared dead,
/// and members change.
#[test]
fn what_must_not_wait_has_room() {
    let mut cluster = Cluster::of(3, 4, small());
    cluster.serve(1);
    let mut writer = Settling(0);
    cluster.hold_back(|flying| flying.to == 1 && matches!(flying.message, Message::Appended { .. }));
    while writer.put(&mut cluster, 1, Put(HEAVY, 1)).is_ok() {}
    cluster.expire(1, client(9));
    cluster.kill(1);
    cluster.held.clear();
    cluster.let_go();
    cluster.serve(2);
    cluster.renew(2);
    cluster.hold_back(|flying| flying.to == 2 && matches!(flying.message, Message::Appended { .. }));
    while writer.put(&mut cluster, 2, Put(HEAVY, 1)).is_ok() {}
    cluster.dismiss(2, 1).unwrap();
    cluster.let_go();
    cluster.run(ms(500));
    assert_eq!((cluster.members(2), cluster.replica(2).standing()), (vec![2, 3], Standing::Serving));
}

#[test]
fn a_client_settles_before_it_asks_for_more() {
    let mut cluster = Cluster::with(3, Config { unsettled_max: 3, ..small() });
    cluster.serve(1);
    for number in 1..=3 {
        cluster.propose(1, request(1, number, 1), Put(1, 1)).unwrap();
    }
    assert_eq!(cluster.propose(1, request(1, 4, 1), Put(1, 1)), Err(ProposeError::Unsettled));
    cluster.propose(1, request(1, 2, 1), Put(1, 1)).unwrap();
    cluster.propose(1, request(1, 4, 2), Put(1, 1)).unwrap();
    assert_eq!(cluster.replica(1).outcomes_kept(), 3);
    // What is under way counts, too.
    cluster.isolate(1);
    for number in 5..=7 {
        cluster.propose(1, request(1, number, 5), Put(1, 1)).unwrap();
    }
    assert_eq!(cluster.propose(1, request(1, 8, 5), Put(1, 1)), Err(ProposeError::Unsettled));
}

#[test]
fn nobody_settles_so_little_that_others_have_no_room() {
    let mut cluster = Cluster::with(3, Config { clients_max: 4, outcomes_max: 16, ..small() });
    cluster.serve(1);
    let greedy = (1..100).take_while(|&number| cluster.propose(1, request(1, number, 1), Put(1, 1)).is_ok());
    assert_eq!(greedy.count(), 8);
    for program in 2..=4 {
        let mut numbers = 1..100;
        let taken = numbers.by_ref();
        let taken =
            taken.take_while(|&number| cluster.propose(1, request(program, number, 1), Put(1, 1)).is_ok());
        assert_eq!(taken.count(), 2);
    }
    assert!(cluster.replica(1).outcomes_kept() <= 16);
}

#[test]
fn so_many_clients_are_known_and_another_one_when_one_of_them_is_over() {
    let mut cluster = Cluster::with(3, Config { clients_max: 2, ..small() });
    cluster.serve(1);
    cluster.propose(1, request(1, 1, 1), Put(1, 1)).unwrap();
    cluster.hold_back(|flying| flying.to == 1 && matches!(flying.message, Message::Appended { .. }));
    cluster.propose(1, request(2, 1, 1), Put(1, 2)).unwrap();
    assert_eq!(cluster.propose(1, request(3, 1, 1), Put(1, 3)), Err(ProposeError::Full));
    cluster.propose(1, request(2, 2, 1), Put(1, 2)).unwrap();
    cluster.let_go();
    assert_eq!(cluster.propose(1, request(3, 1, 1), Put(1, 3)), Err(ProposeError::Full));
    cluster.expire(1, client(1));
    cluster.propose(1, request(3, 1, 1), Put(1, 3)).unwrap();
    assert_eq!(cluster.propose(1, request(1, 1, 1), Put(1, 1)), Err(ProposeError::Expired));
    assert_eq!(cluster.replica(1).clients().collect::<Vec<_>>(), [client(2), client(3)]);
}

#[test]
fn who_looks_after_an_object_has_room_when_clients_have_none() {
    let mut cluster = Cluster::with(3, Config { clients_max: 2, ..small() });
    cluster.serve(1);
    for program in [1, 2] {
        cluster.propose(1, request(program, 1, 1), Put(1, 1)).unwrap();
    }
    let many = 3 + HOUSE_CLIENTS_MAX as u64;
    for program in 3..many {
        assert_eq!(cluster.propose_for_house(1, request(program, 1, 1), Put(1, 2)), Ok(()));
    }
    assert_eq!(cluster.propose_for_house(1, request(many, 1, 1), Put(1, 2)), Err(ProposeError::Full));
    assert_eq!(cluster.propose(1, request(many, 1, 1), Put(1, 3)), Err(ProposeError::Full));
    cluster.expire(1, client(1));
    assert_eq!(cluster.propose_for_house(1, request(many, 1, 1), Put(1, 2)), Ok(()));
}

#[test]
fn nobody_is_over_whose_end_could_not_be_remembered() {
    let mut cluster =
        Cluster::with(3, Config { expired_max: 2, expired_for: Span::from_secs(10), ..small() });
    cluster.serve(1);
    cluster.renew(1);
    cluster.expire(1, client(1));
    cluster.run(ms(6_000));
    cluster.expire(1, client(2));
    cluster.expire(1, client(2));
    assert_eq!(cluster.try_expire(1, client(3)), Err(ProposeError::Full));
    assert_eq!(cluster.replica(1).reached().of(Limit::Expired), 1);
    cluster.run(ms(6_000));
    cluster.expire(1, client(3));
    let old = [1, 2, 3].map(|program| cluster.propose(1, request(program, 1, 1), Put(1, 1)));
    assert_eq!(old, [Ok(()), Err(ProposeError::Expired), Err(ProposeError::Expired)]);
}

/// A request that took effect long ago comes again when its client is over: to the primary, to its successor, and to one
/// that took over the state.
fn what_is_over_never_executes_again(bug: Option<Bug>) {
    let mut cluster = Cluster::with(3, Config { bug, kept_max: 2, kept_lending_max: 100, ..small() });
    cluster.serve(1);
    cluster.renew(1);
    cluster.isolate(3);
    let old = request(1, 1, 1);
    cluster.propose(1, old, Put(1, 10)).unwrap();
    cluster.expire(1, client(1));
    let mut writer = Settling(0);
    for value in 0..5 {
        writer.0 += 1;
        cluster.propose(1, request(2, writer.0, writer.0), Put(2, value)).unwrap();
    }
    cluster.propose(1, request(2, 6, 6), Put(1, 20)).unwrap();
    cluster.mend();
    cluster.run(ms(500));
    for leader in [1, 2, 3] {
        if leader > 1 {
            cluster.kill(leader - 1);
            cluster.start(leader - 1);
            cluster.serve(leader);
        }
        assert_eq!(cluster.propose(leader, old, Put(1, 10)), Err(ProposeError::Expired), "at node {leader}");
        assert_eq!(cluster.read(leader, 1), Some(20));
    }
}

/// A client is declared dead while its last request is under way.
#[test]
fn the_order_in_the_log_decides_whether_a_last_request_is_executed() {
    let mut cluster = Cluster::with(3, small());
    cluster.serve(1);
    cluster.propose(1, request(1, 1, 1), Put(1, 1)).unwrap();
    cluster.hold_back(|flying| flying.to == 1 && matches!(flying.message, Message::Appended { .. }));
    cluster.propose(1, request(1, 2, 1), Put(1, 2)).unwrap();
    cluster.expire(1, client(1));
    cluster.propose(1, request(1, 3, 1), Put(1, 3)).unwrap();
    cluster.let_go();
    assert!(cluster.done(request(1, 2, 1)).is_some() && cluster.done(request(1, 3, 1)).is_none());
    assert_eq!((cluster.read(1, 1), cluster.replica(1).outcomes_kept()), (Some(2), 0));
}

stories! {
    ExpiredForgotten: what_is_over_never_executes_again;
}
