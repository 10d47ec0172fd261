//! What a node that lost its memory must not do.

use base::{Dead, Incarnation, NodeId};
use lease::{Body, Refusal, Reject};

use crate::cluster::{CELL, Cluster, Flying, ms};

/// Node 0 owns the cell with the votes of itself and node 2; node 1 knows nothing.
fn owned_by_votes_of_0_and_2(offsets_ms: [i64; 3]) -> Cluster {
    let mut cluster = Cluster::new(3);
    cluster.offsets_ms = offsets_ms.into();
    cluster.acquire(0).unwrap();
    cluster.settle_where(|flying| flying.to != 1);
    assert_eq!(cluster.holders(), [0]);
    cluster
}

#[test]
fn a_restarted_node_casts_no_vote() {
    let mut cluster = owned_by_votes_of_0_and_2([0; 3]);
    cluster.restart(2);
    cluster.acquire(1).unwrap();
    cluster.flying.retain(|flying| flying.to != 0);
    cluster.settle();
    assert_eq!(cluster.holders(), [0]);
    assert!(cluster.nodes[2].counters().rejected(Reject::Quarantined) > 0);
}

#[test]
fn a_proposer_does_not_bypass_its_own_acceptors_quarantine() {
    let mut cluster = owned_by_votes_of_0_and_2([0; 3]);
    cluster.restart(2);
    let until = cluster.nodes[2].silent_until();
    assert_eq!(cluster.acquire(2), Err(Refusal::Quarantined { until }));
    assert_eq!(until.since(cluster.now), ms(2_200));
    cluster.settle();
    assert_eq!(cluster.holders(), [0]);
}

#[test]
fn a_quarantine_outlasts_an_owner_whose_clock_slows_down() {
    // The owner's clock is ε ahead of node 2's when it asks, and falls ε behind it.
    let mut cluster = owned_by_votes_of_0_and_2([0, -100, -100]);
    let until = cluster.nodes[0].valid_until(cluster.clock(0), CELL).unwrap();
    cluster.restart(2);
    let silence_ends = cluster.nodes[2].silent_until();
    while cluster.clock(2) < silence_ends {
        cluster.skip(ms(1));
    }
    cluster.offsets_ms[0] = -200;
    assert!(cluster.clock(0) >= until, "the owner has stopped before node 2 votes");
}

#[test]
fn a_restarted_node_votes_again_after_its_quarantine() {
    let mut cluster = Cluster::new(3);
    cluster.restart(1);
    cluster.restart(2);
    cluster.run(ms(2_200));
    cluster.acquire(1).unwrap();
    cluster.run(ms(50));
    assert_eq!(cluster.holders(), [1]);
}

#[test]
fn a_delayed_write_from_before_a_restart_is_refused() {
    let mut cluster = Cluster::new(3);
    cluster.offsets_ms = vec![100, 0, 0];
    cluster.acquire(0).unwrap();
    let reads = std::mem::take(&mut cluster.flying);
    cluster.deliver_all(reads);
    cluster.settle_until_write();
    let delayed = cluster.take(|flying| flying.is_write() && flying.to == 2);
    cluster.restart(2);
    // As old as an honest message can look, just when the quarantine ends.
    cluster.skip(ms(2_200));
    cluster.deliver(&delayed[0]);
    assert_eq!(cluster.take(Flying::is_nack).len(), 1, "the floor stands in for the forgotten past");
    assert_eq!(cluster.nodes[2].registers(), 0);
}

#[test]
fn a_fast_restart_reuses_no_ballot() {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    let before = cluster.flying[0].message().ballot;
    cluster.flying.clear();
    cluster.restart(0);
    cluster.skip(ms(2_200));
    cluster.acquire(0).unwrap();
    let after = cluster.flying[0].message().ballot;
    assert!(after > before);
    assert_ne!(after.process, before.process);
}

#[test]
fn a_lease_of_an_earlier_incarnation_is_foreign() {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    cluster.settle();
    let earlier = cluster.nodes[0].me();
    cluster.restart(0);
    cluster.skip(ms(1_950));
    assert!(matches!(cluster.acquire(0), Err(Refusal::Quarantined { .. })));
    assert!(matches!(cluster.acquire(1), Err(Refusal::Held { by, .. }) if by == earlier));
}

#[test]
fn a_death_notice_ends_the_leases_of_the_dead_at_once() {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    cluster.settle();
    cluster.restart(0);
    cluster.notice(1, 0, 1);
    cluster.acquire(1).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [1]);
}

#[test]
fn a_death_notice_for_an_old_incarnation_leaves_the_new_one_alone() {
    let mut cluster = Cluster::new(3);
    cluster.restart(0);
    cluster.run(ms(2_200));
    cluster.acquire(0).unwrap();
    cluster.run(ms(50));
    assert_eq!(cluster.holders(), [0]);
    cluster.notice(1, 0, 1);
    assert!(matches!(cluster.acquire(1), Err(Refusal::Held { .. })));
    cluster.settle();
    assert_eq!(cluster.holders(), [0]);
}

#[test]
fn a_death_notice_leaves_runs_alone_that_it_does_not_name() {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    cluster.settle();
    // A copy of node 0's data directory was started elsewhere, and is gone again.
    let dead = Dead { node: NodeId(0), first: Incarnation(2), last: Incarnation(3) };
    cluster.nodes[1].handle_death_notice(dead);
    assert!(matches!(cluster.acquire(1), Err(Refusal::Held { .. })));
    cluster.settle();
    assert_eq!(cluster.holders(), [0]);
    cluster.notice(1, 0, 1);
    cluster.acquire(1).unwrap();
}

#[test]
fn late_messages_of_the_dead_are_refused() {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    cluster.notice(1, 0, 1);
    cluster.settle();
    assert_eq!(cluster.nodes[1].counters().rejected(Reject::DeadSender), 2, "a read and a write");
    assert_eq!(cluster.nodes[1].registers(), 0);
}

#[test]
fn a_promise_is_not_forgotten_with_its_empty_register() {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    let reads = cluster.take(|flying| flying.to == 1);
    let promised = reads[0].message().ballot;
    cluster.deliver(&reads[0]);
    cluster.flying.clear();
    let (from, view) = (cluster.nodes[2].me(), cluster.views[1].id);
    assert_eq!(cluster.nodes[1].registers(), 1);
    for _ in 0..30 {
        cluster.skip(ms(250));
        cluster.wake(1);
    }
    assert_eq!(cluster.nodes[1].registers(), 0, "idle for long enough");
    let lower = lease::Ballot { process: from, stamp: lease::Stamp(promised.stamp.0 - 1) };
    let message = lease::Message { cell: CELL, view, ballot: lower, body: Body::Read };
    let late = cluster.forge(from, 1, message);
    cluster.deliver(&late);
    let answer = cluster.take(Flying::is_nack);
    assert!(matches!(answer[0].body(), Body::Nack { highest } if *highest >= promised));
}

impl Cluster {
    /// Delivers answers to node 0 until it writes.
    fn settle_until_write(&mut self) {
        let acks = self.take(|flying| flying.to == 0);
        self.deliver_all(acks);
        assert!(self.flying.iter().any(Flying::is_write));
    }
}
