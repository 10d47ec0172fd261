//! One wrong clock, one lost message or one rude node must not cost a healthy cluster its leases.

use base::{NodeId, ObjectId, Process, Span};
use lease::{Ballot, Body, Config, Ended, Event, Membership, Message, PaxosRules, Refusal, Reject, Stamp};

use crate::cluster::{CELL, Cluster, Flying, WATERMARK, ms, view};

fn owned_by_0() -> Cluster {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [0]);
    cluster
}

fn lost(cluster: &Cluster, node: u32) -> usize {
    let ends = |event: &&&Event| matches!(event, Event::Lost { .. } | Event::Denied { .. });
    cluster.events_of(node).iter().filter(ends).count()
}

#[test]
fn a_voter_with_a_clock_far_ahead_costs_no_lease() {
    for ahead_ms in [1_000, 1_700, 2_000, 2_090] {
        let mut cluster = Cluster::new(3);
        cluster.offsets_ms[2] = ahead_ms;
        cluster.restart(2);
        for n in 0..20 {
            cluster.acquire_cell(0, ObjectId::new(7, n)).unwrap();
            cluster.run(ms(33));
        }
        cluster.run(ms(5_000));
        assert_eq!(lost(&cluster, 0), 0, "{ahead_ms} ms ahead");
    }
}

/// Without a bound all leases that were taken together would be renewed at once, and wait for each other longer than an
/// attempt waits for answers.
#[test]
fn of_many_leases_a_few_are_renewed_at_a_time_and_none_is_lost() {
    const CELLS: u64 = 300;
    const RENEWALS_MAX: usize = 8;
    let config = Config { gather: Span::ZERO, renewals_max: RENEWALS_MAX, ..Config::default() };
    let mut cluster: Cluster = Cluster::under(config, 3, &view(1, &[0, 1, 2]));
    (0..CELLS).for_each(|n| cluster.acquire_cell(0, ObjectId::new(7, n)).unwrap());
    cluster.settle();
    let mut most = 0;
    for passed in 0..10_000 {
        cluster.skip(ms(1));
        (0..3).for_each(|node| cluster.wake(node));
        most = most.max(cluster.flying.iter().filter(|flying| flying.to == 1).count());
        // For a while nobody answers: what is not answered must not keep others from their turn for ever.
        let is_cut = (1_000..1_300).contains(&passed);
        cluster.settle_where(|_| !is_cut);
    }
    let renewed = cluster.events_of(0).iter().filter(|event| matches!(event, Event::Renewed { .. })).count();
    assert_eq!((lost(&cluster, 0), most), (0, RENEWALS_MAX));
    assert!(renewed as u64 > 10 * CELLS, "{renewed}");
}

#[test]
fn a_nack_from_the_edge_of_time_costs_no_lease() {
    let mut cluster = owned_by_0();
    cluster.skip(ms(650));
    cluster.wake(0);
    cluster.skip(ms(20));
    cluster.wake(0);
    let read = cluster.take(|flying| flying.to == 2 && matches!(flying.body(), Body::Read));
    let read = read[0].message().clone();
    let stamp = Stamp::last_at(cluster.now + ms(2_000), ms(1_900));
    let highest = Ballot { stamp, process: Process::new(2, 1) };
    let nack = cluster.forge(cluster.nodes[2].me(), 0, Message { body: Body::Nack { highest }, ..read });
    cluster.deliver(&nack);
    cluster.run(ms(3_000));
    assert_eq!((cluster.holders(), lost(&cluster, 0)), (vec![0], 0));
}

#[test]
fn asking_again_after_a_denial_does_not_disturb_the_owner() {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    // Node 2 never hears of the lease.
    cluster.settle_where(|flying| flying.to != 2);
    cluster.acquire(2).unwrap();
    cluster.settle();
    assert!(matches!(cluster.events_of(2)[..], [Event::Denied { .. }]));
    for _ in 0..500 {
        assert!(matches!(cluster.acquire(2), Err(Refusal::Held { .. })));
        cluster.run(ms(1));
    }
    assert_eq!(lost(&cluster, 0), 0);
    // The owner's death lifts the denial.
    cluster.notice(2, 0, 1);
    cluster.acquire(2).unwrap();
}

#[test]
fn a_successor_that_missed_the_handover_takes_the_lease_at_once() {
    let mut cluster = owned_by_0();
    cluster.hand_over(0, 2);
    cluster.settle_where(|flying| !(flying.to == 2 && flying.is_write()));
    cluster.acquire(2).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [2]);
}

#[test]
fn a_lease_is_handed_to_another_member_only_and_not_taken_back() {
    let mut cluster = owned_by_0();
    let now = cluster.clock(0);
    for nobody in [0, 77] {
        let refused = cluster.node(0).hand_over(now, CELL, NodeId(nobody), WATERMARK);
        assert_eq!(refused, Err(Refusal::NotMember));
    }
    assert_eq!(cluster.holders(), [0]);
    cluster.hand_over(0, 2);
    cluster.settle();
    assert!(matches!(cluster.acquire(0), Err(Refusal::Held { .. })));
    cluster.acquire(2).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [2]);
}

#[test]
fn a_retry_keeps_the_watermark_and_the_predecessor() {
    let mut cluster = owned_by_0();
    let first = cluster.nodes[1].trail(CELL).next().unwrap().lease;
    cluster.release(0);
    cluster.settle();
    cluster.acquire(1).unwrap();
    for _ in 0..2 {
        let flying = std::mem::take(&mut cluster.flying);
        cluster.deliver_all(flying);
    }
    cluster.take(Flying::is_write);
    cluster.run(ms(300));
    let acquired = cluster.events_of(1);
    let [Event::Acquired { previous, ended, watermark, .. }] = acquired[..] else { panic!("{acquired:?}") };
    assert_eq!((*previous, *ended, *watermark), (first, Ended::Released, Some(WATERMARK)));
}

#[test]
fn as_much_of_a_lease_is_left_as_its_settings_promise() {
    let mut cluster = owned_by_0();
    let config = &cluster.config;
    let promised =
        config.t_max.saturating_sub(config.renew_after + config.gather + config.round_trip_max * 2);
    let mut least = Span::MAX;
    let (mut late, mut later) = (Vec::new(), Vec::new());
    // Every message takes about 25 ms, and so a round trip just under the worst.
    for step in 0..10_000 {
        cluster.skip(ms(1));
        cluster.wake(0);
        if step % 12 == 0 {
            cluster.deliver_all(std::mem::replace(&mut late, std::mem::take(&mut later)));
        }
        later.append(&mut cluster.flying);
        let until = cluster.nodes[0].valid_until(cluster.now, CELL).unwrap();
        least = least.min(until.since(cluster.now));
    }
    assert!(least >= promised, "{least} left, {promised} promised");
}

#[test]
fn whoever_is_reported_dead_no_longer_owns() {
    let mut cluster = owned_by_0();
    cluster.notice(0, 0, 1);
    assert_eq!(cluster.holders(), [0; 0], "its peers respect its lease no longer");
}

#[test]
fn a_node_whose_clock_was_far_ahead_takes_part_again() {
    let mut cluster = owned_by_0();
    cluster.offsets_ms[0] = 3_600_000;
    let now = cluster.clock(0);
    cluster.node(0).stand_down(now, &|_| WATERMARK);
    cluster.wake(0);
    cluster.settle();
    cluster.offsets_ms[0] = 0;
    cluster.run(ms(5_000));
    let now = cluster.clock(0);
    cluster.node(0).resume(now);
    assert!(matches!(cluster.acquire(0), Err(Refusal::Quarantined { .. })), "what it promised is forgotten");
    cluster.run(ms(2_200));
    cluster.acquire(0).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [0]);
}

#[test]
fn a_member_that_left_and_came_back_is_a_newcomer() {
    let (before, after) = (view(3, &[0, 1, 2]), view(5, &[0, 2, 3]));
    let mut cluster = Cluster::with_view(4, &before);
    cluster.acquire(0).unwrap();
    cluster.settle_where(|flying| flying.to != 2);
    cluster.change_view(2, &before, &after);
    cluster.views[3] = after.clone();
    let now = cluster.clock(3);
    // Node 3 was in an earlier view and cannot tell what it missed.
    cluster.node(3).change_view(now, CELL, &after, Membership::Joined);
    cluster.acquire(2).unwrap();
    cluster.flying.retain(|flying| flying.to > 1);
    cluster.settle();
    assert_eq!(cluster.holders(), [0]);
}

#[test]
fn the_same_view_again_disturbs_nothing() {
    let (old, new) = (view(1, &[0, 1, 2]), view(2, &[0, 1, 2]));
    let mut cluster = Cluster::with_view(3, &old);
    cluster.acquire(0).unwrap();
    cluster.change_view(0, &old, &old);
    cluster.settle();
    assert_eq!(cluster.holders(), [0], "the attempt under way went on");
    cluster.change_view(0, &old, &new);
    cluster.flying.clear();
    cluster.change_view(0, &old, &new);
    assert!(cluster.flying.is_empty());
}

#[test]
fn paxoslease_refuses_the_last_ballot_there_is() {
    let mut cluster = Cluster::<PaxosRules>::of(3);
    cluster.acquire(2).unwrap();
    let mut read = cluster.take(|flying| flying.to == 1).remove(0);
    read.batch.messages[0].ballot.stamp = Stamp::MAX;
    cluster.flying.clear();
    cluster.deliver(&read);
    assert_eq!(cluster.nodes[1].counters().rejected(Reject::FutureBallot), 1);
    cluster.flying.clear();
    cluster.acquire(0).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [0]);
}

#[test]
fn paxoslease_outlives_a_clock_that_steps_back() {
    let mut cluster = Cluster::<PaxosRules>::of(3);
    let (old, new) = (view(1, &[0, 1, 2]), view(2, &[0, 1, 2]));
    cluster.acquire(0).unwrap();
    cluster.settle();
    let until = cluster.nodes[0].valid_until(cluster.now, CELL);
    cluster.now = cluster.now - Span::from_micros(1);
    for node in 0..3 {
        cluster.change_view(node, &old, &new);
    }
    cluster.settle();
    assert_eq!(cluster.nodes[0].decided_in(CELL), Some(new.id));
    assert_eq!(cluster.nodes[0].valid_until(cluster.now, CELL), until);
}
