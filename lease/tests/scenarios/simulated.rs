//! Stories the simulator found, told by hand: what happened, step by step, and what must happen instead.

use base::{Process, Span};
use lease::{Ballot, Body, Bug, Ended, Event, FleaseRules, Message, PaxosRules, Stamp, Watermark};

use crate::cluster::{CELL, Cluster, Flying, ms};

/// PaxosLease counts ballots by attempts and not by time, so a forgotten lease may have the higher ballot. Its owner
/// restarted, the node that remembers it was unreachable for a while, and the new owner's renewal then met it.
#[test]
fn an_expired_lease_with_a_higher_ballot_does_not_supersede_a_valid_one() {
    let mut cluster = Cluster::<PaxosRules>::of(3);
    cluster.raise_ballots(1);
    cluster.acquire(1).unwrap();
    cluster.settle_where(|flying| flying.is_among(&[0, 1]));
    assert_eq!(cluster.holders(), [1]);
    cluster.restart(1);
    cluster.skip(ms(3_000));

    cluster.acquire(2).unwrap();
    // The node that remembers hears the new owner, so that its register is not idle, but its answers are lost.
    cluster.settle_where(|flying| flying.is_among(&[1, 2]) || (flying.from, flying.to) == (2, 0));
    assert_eq!(cluster.holders(), [2], "the two that remember nothing are a majority");
    cluster.run_among(ms(5_000), &[0, 2]);
    let lost = |(_, event): &&(u32, Event)| matches!(event, Event::Lost { .. });
    assert_eq!(cluster.events.iter().find(lost), None);
    assert_eq!(cluster.holders(), [2], "renewed with the node that remembers the expired lease");
}

/// The last owner died a moment ago, and its clients may still believe in it. A member that was cut off remembers a
/// lease from long before, under a ballot far above: whoever comes next must hear of the death.
#[test]
fn an_expired_lease_with_a_higher_ballot_does_not_hide_how_the_last_one_ended() {
    let mut cluster = Cluster::<PaxosRules>::of(3);
    cluster.raise_ballots(0);
    cluster.acquire(0).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [0]);
    cluster.restart(1);
    cluster.restart(2);
    cluster.skip(ms(2_500));

    cluster.acquire(1).unwrap();
    cluster.settle_where(|flying| flying.is_among(&[1, 2]));
    assert_eq!(cluster.holders(), [1]);
    cluster.notice(0, 1, 2);
    cluster.notice(2, 1, 2);
    cluster.acquire(2).unwrap();
    cluster.run_among(ms(300), &[0, 2]);
    let acquired = cluster.events_of(2);
    assert!(matches!(acquired[..], [Event::Acquired { ended: Ended::Died, .. }]), "{acquired:?}");
}

/// A node wrote a lease that reached nobody, as the successor of one that was released. Its voter restarted, forgot its
/// promise, owned the cell under a lower ballot, and died. When the node tries again it sees both, and cannot tell which
/// was first. Returns what it says that its lease follows.
fn two_leases_that_have_not_run_out(bug: Option<Bug>) -> (Ended, Option<Watermark>) {
    let mut cluster = Cluster::<PaxosRules>::with_bug(3, bug);
    cluster.raise_ballots(0);
    cluster.acquire(2).unwrap();
    cluster.settle();
    cluster.release(2);
    cluster.settle();

    cluster.acquire(0).unwrap();
    let read = cluster.take(|flying| flying.to == 1);
    cluster.flying.clear();
    cluster.deliver_all(read);
    cluster.restart(1);
    // The promise is under way for so long that what follows it outlasts the voter's silence.
    cluster.skip(ms(200));
    let promise = cluster.take(|flying| flying.to == 0);
    cluster.deliver_all(promise);
    assert!(cluster.flying.iter().any(Flying::is_write));
    cluster.flying.clear();

    cluster.skip(ms(2_045));
    cluster.acquire(1).unwrap();
    cluster.run_among(ms(20), &[1, 2]);
    assert_eq!(cluster.holders(), [1]);
    cluster.notice(0, 1, 2);
    cluster.notice(2, 1, 2);
    cluster.run_among(ms(100), &[0, 2]);
    let acquired = cluster.events_of(0).into_iter().find_map(|event| match event {
        Event::Acquired { cell: CELL, ended, watermark, .. } => Some((*ended, *watermark)),
        _ => None,
    });
    acquired.expect("nobody keeps it from the cell")
}

#[test]
fn of_two_leases_that_have_not_run_out_nobody_takes_the_higher_ballot_for_the_later() {
    let cautious = (Ended::Released, None);
    assert_eq!(two_leases_that_have_not_run_out(None), cautious);
    assert_ne!(two_leases_that_have_not_run_out(Some(Bug::LaterByBallot)), cautious, "without the rule");
}

/// A write that reaches nobody leaves its value at the writer's own acceptor. Nobody acts on that value, so the writer
/// must not wait for it to expire: two rivals that hit each other would both wait out a lease that nobody owns.
#[test]
fn a_node_does_not_wait_for_a_lease_that_it_wrote_and_never_owned() {
    let mut cluster = Cluster::<PaxosRules>::of(2);
    cluster.acquire(0).unwrap();
    cluster.settle_where(|flying| !flying.is_write());
    cluster.run(ms(400));
    assert_eq!(cluster.holders(), [0], "{:?}", cluster.events);
}

/// The owner released its lease, never heard the votes, and tried again while a successor owned the cell already:
/// reading on could only abort the successor's renewals.
#[test]
fn a_former_owner_stops_releasing_once_somebody_else_owns_the_cell() {
    let mut cluster = Cluster::<PaxosRules>::of(2);
    cluster.acquire(0).unwrap();
    cluster.settle();
    cluster.release(0);
    cluster.settle_where(|flying| !matches!(flying.body(), Body::WriteAck));
    cluster.acquire(1).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [1]);
    cluster.run(ms(300));
    assert!(cluster.events_of(0).iter().any(|event| matches!(event, Event::GivenUp { .. })));
    let conflicts = cluster.nodes[0].counters().conflicts;
    assert!(conflicts <= 1, "{conflicts} reads under the successor's lease");
}

/// Two clocks agree within ε at every instant and drift by 5 % each, as they may. Between the vote and its expiry the
/// owner's clock went from ε ahead of the voter's to ε behind it: the voter, restarted, must be silent for that too.
#[test]
fn a_restarted_voter_is_silent_until_a_drifting_owner_has_stopped() {
    let mut cluster = Cluster::<FleaseRules>::of(3);
    let (start, t_max, epsilon) = (cluster.now, cluster.config.t_max, cluster.config.epsilon);
    assert_eq!(epsilon, ms(100));
    cluster.offsets_ms = vec![50, -50, 50];
    cluster.acquire(0).unwrap();
    cluster.settle_where(|flying| flying.is_among(&[0, 1]));
    assert_eq!(cluster.holders(), [0]);

    // The voter restarts at once; by the expiry it is ahead, and the owner, which can renew with nobody, is behind.
    cluster.restart(1);
    cluster.offsets_ms = vec![-50, 50, 50];
    let owner_stops = start + t_max + epsilon;
    cluster.now = start + t_max;
    while cluster.now < owner_stops {
        cluster.wake(2);
        cluster.acquire(2).unwrap();
        cluster.settle_where(|flying| flying.is_among(&[1, 2]));
        let left = owner_stops.since(cluster.now);
        assert_eq!(cluster.holders(), [0], "{left} before the owner stops by its own clock");
        cluster.skip(ms(1));
    }
}

/// A ballot at the very edge of what acceptors take leaves no room for a higher one until time has passed. The owner
/// cannot renew meanwhile, but it still owns the cell, and must be told if it loses it.
#[test]
fn an_owner_that_runs_out_of_ballots_keeps_its_lease_and_hears_of_its_end() {
    let mut cluster = Cluster::<FleaseRules>::of(3);
    cluster.acquire(0).unwrap();
    cluster.settle();
    let interval = cluster.config.t_max.saturating_sub(cluster.config.epsilon);
    let stamp = Stamp::last_at(cluster.now + cluster.config.t_max, interval);
    let process = Process::new(2, 1);
    for to in [0, 1] {
        let view = cluster.views[0].id;
        let edge = Message { cell: CELL, view, ballot: Ballot { stamp, process }, body: Body::Read };
        let edge = cluster.forge(process, to, edge);
        cluster.deliver(&edge);
    }
    let acquired_at = cluster.now;
    while cluster.holds(0) && cluster.now.since(acquired_at) < Span::from_secs(4) {
        cluster.run(ms(10));
    }
    let held = cluster.now.since(acquired_at);
    assert!(held >= ms(1_900), "it gave up after {held}: {:?}", cluster.events);
    let denied = |(_, event): &(u32, Event)| matches!(event, Event::Denied { .. });
    assert!(!cluster.events.iter().any(denied), "{:?}", cluster.events);
}

/// The owner released the cell, but one write was under way for very long. Its receiver restarted meanwhile, forgot
/// what it had promised, and voted for another owner under a lower ballot. The late write must not end that lease.
#[test]
fn a_late_release_does_not_end_the_lease_of_a_later_owner() {
    let mut cluster = Cluster::<PaxosRules>::of(3);
    cluster.raise_ballots(0);
    cluster.acquire(0).unwrap();
    cluster.settle_where(|flying| flying.is_among(&[0, 1]));
    assert_eq!(cluster.holders(), [0]);
    cluster.release(0);
    for to in [1, 0] {
        let arriving = cluster.take(|flying| flying.to == to);
        cluster.deliver_all(arriving);
    }
    let late = cluster.take(|flying| flying.to == 1 && flying.is_write());
    assert_eq!(late.len(), 1);
    cluster.flying.clear();
    cluster.restart(1);
    cluster.skip(ms(3_000));
    cluster.acquire(2).unwrap();
    cluster.settle_where(|flying| flying.is_among(&[1, 2]));
    assert_eq!(cluster.holders(), [2]);

    cluster.deliver_all(late);
    cluster.run_among(ms(1), &[0, 1]);
    cluster.acquire(0).unwrap();
    cluster.run_among(ms(300), &[0, 1]);
    assert_eq!(cluster.holders(), [2], "nobody told it to stop");
}
