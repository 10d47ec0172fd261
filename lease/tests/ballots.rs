//! The order of ballots and the arithmetic of their intervals, at the borders of time above all.

use std::sync::Arc;

use base::{Members, NodeId, ObjectId, Process, Span, View, ViewId, WallTime};
use lease::{Ballot, Config, Flease, INTERVAL_MAX, PaxosLease, ROUND_MAX, Stamp, Start};
use proptest::prelude::*;

/// Times around the borders of intervals, at the beginning and at the end of time, and anywhere.
fn time(length: u64) -> impl Strategy<Value = WallTime> {
    let border = (0..=u64::MAX / length, 0..3_u64).prop_map(move |(n, beside)| {
        WallTime::from_micros((n * length).saturating_add(beside).saturating_sub(1))
    });
    prop_oneof![
        border,
        (0..5_u64).prop_map(WallTime::from_micros),
        (0..5_u64).prop_map(|back| WallTime::from_micros(u64::MAX - back)),
        any::<u64>().prop_map(WallTime::from_micros),
    ]
}

fn length() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1), Just(1_900_000), 1..10_000_000_u64]
}

proptest! {
    #[test]
    fn stamps_order_by_interval_then_round(a in any::<(u64, u32)>(), b in any::<(u64, u32)>()) {
        let clamp = |(interval, round): (u64, u32)| (interval.min(INTERVAL_MAX), round.min(ROUND_MAX));
        let stamp = |(interval, round)| Stamp::new(interval, round);
        prop_assert_eq!(stamp(a).cmp(&stamp(b)), clamp(a).cmp(&clamp(b)));
        prop_assert_eq!((stamp(a).interval(), stamp(a).round()), clamp(a));
    }

    #[test]
    fn ballots_order_by_stamp_then_process(stamp in any::<(u64, u64)>(), process in any::<[u32; 4]>()) {
        let [node, incarnation, other_node, other_incarnation] = process;
        let a = Ballot { stamp: Stamp(stamp.0), process: Process::new(node, incarnation) };
        let b = Ballot { stamp: Stamp(stamp.1), process: Process::new(other_node, other_incarnation) };
        let expected = (stamp.0, node, incarnation).cmp(&(stamp.1, other_node, other_incarnation));
        prop_assert_eq!(a.cmp(&b), expected);
        prop_assert!(a <= Ballot::ceiling_of(a.stamp) && Ballot::ZERO <= a);
    }

    #[test]
    fn intervals_never_go_back((length, a, b) in length().prop_flat_map(|l| (Just(l), time(l), time(l)))) {
        let length = Span::from_micros(length);
        let (earlier, later) = (a.min(b), a.max(b));
        prop_assert!(Stamp::first_at(earlier, length) <= Stamp::first_at(later, length));
        prop_assert!(Stamp::first_at(a, length) < Stamp::last_at(a, length));
        let apart = later.since(earlier) >= length;
        let in_range = Stamp::interval_at(later, length) <= INTERVAL_MAX;
        if apart && in_range {
            prop_assert!(Stamp::last_at(earlier, length) < Stamp::first_at(later, length));
        }
    }

    #[test]
    fn a_restart_after_a_lease_time_goes_above_everything_before(
        (t_max, epsilon) in (10..10_000_000_u64, 0..1_000_u64).prop_filter("ε < t_max/2", |(t, e)| 2 * e < *t),
        last in 0..u64::MAX / 4,
        skew in 0..1_000_u64,
    ) {
        // The last ballot before a crash was taken on a clock up to ε ahead; the next comes t_max + ε later.
        let length = Span::from_micros(t_max - epsilon);
        let skew = skew.min(epsilon);
        let before = Stamp::first_at(WallTime::from_micros(last + skew), length);
        let after = Stamp::first_at(WallTime::from_micros(last) + Span::from_micros(t_max + epsilon), length);
        if after.interval() < INTERVAL_MAX {
            prop_assert!(Stamp::new(before.interval(), ROUND_MAX) < after);
        }
    }

    #[test]
    fn the_next_stamp_is_greater_and_carries(interval in 0..INTERVAL_MAX, round in any::<u32>()) {
        let stamp = Stamp::new(interval, round);
        let next = stamp.next().unwrap();
        prop_assert!(next > stamp);
        if stamp.round() == ROUND_MAX {
            prop_assert_eq!((next.interval(), next.round()), (interval + 1, 0));
        }
    }

    #[test]
    fn nodes_work_at_any_time(now in time(1_900_000), step in any::<u32>()) {
        let view = View { id: ViewId::default(), members: Members::new([NodeId(1)]).unwrap() };
        let (config, me, cell) = (Arc::new(Config::default()), Process::new(1, 1), ObjectId::new(0, 1));
        let later = now + Span::from_micros(u64::from(step));
        let mut flease = Flease::new(Arc::clone(&config), me, Start::Fresh, now, 1).unwrap();
        let mut paxos = PaxosLease::new(config, me, Start::Fresh, now, 1).unwrap();
        prop_assert!(flease.acquire(now, cell, &view).is_ok() && paxos.acquire(now, cell, &view).is_ok());
        // At the very end of time no lease can lie ahead.
        let ends = now == WallTime::MAX;
        prop_assert_eq!((flease.holds(now, cell), paxos.holds(now, cell)), (!ends, !ends));
        flease.handle_timeout(later);
        paxos.handle_timeout(later);
    }
}

#[test]
fn the_last_stamp_has_no_successor() {
    assert_eq!(Stamp::MAX.next(), None);
    assert_eq!(Stamp::MAX, Stamp::new(u64::MAX, u32::MAX));
}
