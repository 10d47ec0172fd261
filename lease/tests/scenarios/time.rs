//! Clocks that differ, messages that are late, processes that sleep.

use lease::{Denial, Event, Refusal, Reject};

use crate::cluster::{CELL, Cluster, Flying, ms};

#[test]
fn an_age_check_allows_for_skew() {
    let mut cluster = Cluster::new(3);
    cluster.offsets_ms = vec![-50, 50, 50];
    cluster.acquire(0).unwrap();
    cluster.skip(ms(40));
    cluster.settle();
    assert_eq!(cluster.holders(), [0]);
    assert_eq!(cluster.nodes[1].counters().rejected(Reject::TooOld), 0);
}

#[test]
fn a_message_from_long_ago_is_dropped() {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    cluster.skip(ms(2_101));
    cluster.settle();
    assert_eq!(cluster.nodes[1].counters().rejected(Reject::TooOld), 1);
    assert_eq!(cluster.nodes[1].registers(), 0);
}

#[test]
fn a_lease_decided_after_it_expired_does_not_count() {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    let reads = std::mem::take(&mut cluster.flying);
    cluster.deliver_all(reads);
    let acks = std::mem::take(&mut cluster.flying);
    cluster.deliver_all(acks);
    let writes = cluster.take(Flying::is_write);
    cluster.deliver_all(writes);
    // The process sleeps through its lease, and finds the acks when it wakes.
    cluster.skip(ms(2_000));
    cluster.settle();
    assert_eq!(cluster.holders(), [0; 0]);
    assert!(!cluster.events_of(0).iter().any(|event| matches!(event, Event::Acquired { .. })));
}

#[test]
fn a_process_that_slept_between_the_clock_and_the_act_does_not_act() {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    cluster.settle();
    let looked = cluster.clock(0);
    assert!(cluster.nodes[0].holds(looked, CELL));
    cluster.skip(ms(2_100));
    cluster.acquire(1).unwrap();
    cluster.settle();
    // Asked again when the answer would leave, with a reading taken for that.
    assert_eq!(cluster.holders(), [1]);
}

#[test]
fn a_takeover_waits_for_the_slowest_clock() {
    let mut cluster = Cluster::new(3);
    cluster.offsets_ms = vec![0, 99, 99];
    cluster.acquire(0).unwrap();
    cluster.settle();
    let until = cluster.nodes[0].valid_until(cluster.clock(0), CELL).unwrap();
    // Expired by node 1's clock, not by the owner's.
    cluster.skip(ms(1_950));
    assert!(cluster.clock(1) > until && cluster.clock(0) < until);
    cluster.acquire(1).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [0], "node 1 waits the grace period out");
    cluster.skip(ms(51));
    assert_eq!(cluster.holders(), [0; 0]);
    for _ in 0..10 {
        cluster.skip(ms(10));
        cluster.wake(1);
        cluster.settle();
    }
    assert_eq!(cluster.holders(), [1]);
}

#[test]
fn a_renewal_in_the_grace_period_wins_over_a_takeover() {
    let mut cluster = Cluster::new(3);
    cluster.offsets_ms = vec![0, 99, 99];
    cluster.acquire(0).unwrap();
    cluster.settle();
    cluster.skip(ms(1_950));
    cluster.acquire(1).unwrap();
    cluster.settle();
    // The owner's clock still shows its lease as valid; its renewal goes out now.
    cluster.wake(0);
    cluster.run(ms(40));
    assert_eq!(cluster.holders(), [0]);
    cluster.run(ms(200));
    assert_eq!(cluster.holders(), [0]);
    let denied = cluster.events_of(1);
    assert!(matches!(denied[..], [Event::Denied { why: Denial::Held { .. }, .. }]), "{denied:?}");
}

#[test]
fn an_expired_lease_is_not_renewed_in_its_grace_period() {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    cluster.settle();
    cluster.skip(ms(2_000));
    cluster.wake(0);
    cluster.settle();
    assert_eq!(cluster.holders(), [0; 0]);
    assert!(matches!(cluster.events_of(0)[..], [.., Event::Lost { .. }]));
}

#[test]
fn nobody_reads_under_a_lease_known_to_be_valid() {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    cluster.settle();
    assert!(matches!(cluster.acquire(1), Err(Refusal::Held { .. })));
    assert!(cluster.flying.is_empty());
    assert_eq!(cluster.nodes[1].hint(cluster.now, CELL).unwrap().owner, cluster.nodes[0].me());
}
