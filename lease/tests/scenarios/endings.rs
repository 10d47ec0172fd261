//! Releases, handovers and standing down.

use lease::{Ended, Event, Refusal, TrailKind};

use crate::cluster::{CELL, Cluster, Flying, WATERMARK, ms};

fn owned_by_0() -> Cluster {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [0]);
    cluster
}

#[test]
fn a_release_lets_the_next_owner_in_at_once_with_the_watermark() {
    let mut cluster = owned_by_0();
    cluster.release(0);
    assert_eq!(cluster.holders(), [0; 0], "before the first message left");
    cluster.settle();
    cluster.acquire(1).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [1]);
    let acquired = cluster.events_of(1)[0].clone();
    assert!(
        matches!(acquired, Event::Acquired { ended: Ended::Released, watermark: Some(WATERMARK), .. }),
        "{acquired:?}"
    );
}

#[test]
fn votes_for_a_renewal_do_not_revive_a_released_lease() {
    let mut cluster = owned_by_0();
    cluster.skip(ms(700));
    cluster.wake(0);
    let renewal = std::mem::take(&mut cluster.flying);
    cluster.release(0);
    cluster.flying.clear();
    cluster.deliver_all(renewal);
    cluster.settle();
    assert_eq!(cluster.holders(), [0; 0]);
    let now = cluster.clock(0);
    assert_eq!(cluster.node(0).release(now, CELL, WATERMARK), Err(Refusal::GivingUp));
}

#[test]
fn a_handover_lets_only_the_successor_in() {
    let mut cluster = owned_by_0();
    cluster.hand_over(0, 2);
    cluster.settle();
    assert!(matches!(cluster.events_of(2)[..], [Event::Offered { .. }]));
    assert!(matches!(cluster.acquire(1), Err(Refusal::Held { .. })));
    cluster.acquire(2).unwrap();
    cluster.settle();
    assert_eq!(cluster.holders(), [2]);
    let acquired = cluster.events_of(2)[1].clone();
    assert!(matches!(acquired, Event::Acquired { ended: Ended::HandedOver, .. }), "{acquired:?}");
}

#[test]
fn a_handover_lost_half_way_leaves_the_lease_to_expire() {
    let mut cluster = owned_by_0();
    cluster.hand_over(0, 2);
    let reads = std::mem::take(&mut cluster.flying);
    cluster.deliver_all(reads);
    let acks = std::mem::take(&mut cluster.flying);
    cluster.deliver_all(acks);
    assert!(cluster.flying.iter().any(Flying::is_write));
    cluster.flying.clear();
    // The old owner is never heard of again; nobody else knows of the handover.
    assert_eq!(cluster.holders(), [0; 0]);
    assert!(matches!(cluster.acquire(2), Err(Refusal::Held { .. })));
    assert!(matches!(cluster.acquire(1), Err(Refusal::Held { .. })));
    cluster.skip(ms(2_100));
    cluster.acquire(1).unwrap();
    cluster.flying.retain(|flying| flying.to != 0);
    cluster.settle();
    assert_eq!(cluster.holders(), [1]);
}

#[test]
fn a_release_that_one_acceptor_heard_is_finished() {
    let mut cluster = owned_by_0();
    cluster.release(0);
    let reads = std::mem::take(&mut cluster.flying);
    cluster.deliver_all(reads);
    let acks = std::mem::take(&mut cluster.flying);
    cluster.deliver_all(acks);
    assert_eq!(cluster.take(Flying::is_write).len(), 2, "only its own acceptor has it");
    cluster.run(ms(300));
    assert!(matches!(cluster.events_of(0)[..], [.., Event::GivenUp { confirmed: true, .. }]));
}

#[test]
fn a_release_that_nobody_hears_is_given_up_at_the_expiry() {
    let mut cluster = owned_by_0();
    cluster.release(0);
    for _ in 0..2_100 {
        cluster.flying.clear();
        cluster.skip(ms(1));
        cluster.wake(0);
    }
    assert!(matches!(cluster.events_of(0)[..], [.., Event::GivenUp { confirmed: false, .. }]));
    cluster.run(ms(2_100));
    assert_eq!(cluster.nodes[0].claims(), 0, "nothing is left behind");
}

#[test]
fn standing_down_ends_ownership_at_once_and_for_good() {
    let mut cluster = owned_by_0();
    cluster.skip(ms(700));
    cluster.wake(0);
    let renewal = std::mem::take(&mut cluster.flying);
    let now = cluster.clock(0);
    cluster.node(0).stand_down(now, &|_| WATERMARK);
    assert_eq!(cluster.holders(), [0; 0]);
    assert_eq!(cluster.acquire(0), Err(Refusal::StoodDown));
    cluster.deliver_all(renewal);
    cluster.settle();
    cluster.node(0).resume(now);
    assert_eq!(cluster.holders(), [0; 0], "no earlier vote revives it");
}

#[test]
fn an_acquisition_under_way_ends_with_standing_down() {
    let mut cluster = Cluster::new(3);
    cluster.acquire(0).unwrap();
    let now = cluster.clock(0);
    cluster.node(0).stand_down(now, &|_| WATERMARK);
    cluster.settle();
    cluster.node(0).resume(now);
    assert_eq!(cluster.holders(), [0; 0]);
}

#[test]
fn the_trail_tells_who_owned_what_and_why_it_ended() {
    let mut cluster = owned_by_0();
    cluster.release(0);
    cluster.settle();
    cluster.acquire(1).unwrap();
    cluster.settle();
    let trail: Vec<_> = cluster.nodes[2].trail(CELL).collect();
    let [first, given, second] = trail[..] else { panic!("{trail:?}") };
    assert!(matches!(first.kind, TrailKind::VotedFor { ended: Ended::Unknown, .. }));
    assert!(matches!(given.kind, TrailKind::GivenUp { successor: None }));
    let TrailKind::VotedFor { previous, ended: Ended::Released, .. } = second.kind else {
        panic!("{second:?}")
    };
    assert_eq!((previous, second.owner), (first.lease, cluster.nodes[1].me()));
    let decided = cluster.nodes[1].trail(CELL).find(|e| matches!(e.kind, TrailKind::Decided { .. }));
    assert!(matches!(decided.unwrap().kind, TrailKind::Decided { voters: 0b011, .. }));
}
