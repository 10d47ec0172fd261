//! The first time of a daemon: what a start adds to its machine's clock before node time is used.
//!
//! A daemon that restarts asks its peers for their times, and follows them if a majority agree that its own clock is
//! off: it would be of no use otherwise, and a machine that has just booted often has not set its clock yet. It never
//! begins below a time that it has used before.

use std::collections::BTreeSet;

use base::{NodeId, Span, WallTime};
use lease::{ClockGuard, Exchange, GuardConfig};

use crate::{Bug, Rules, ShardConfig, ShardError};

/// How long a start waits for its peers' times before it trusts its own clock.
pub const FIRST_TIMES_MAX: Span = Span::from_millis(500);
/// How long a start waits for its clock to reach what was used before.
pub const BEHIND_MAX: Span = Span::from_secs(30);

/// Times of peers, heard before node time is fixed.
#[derive(Debug)]
pub struct FirstClock {
    guard: ClockGuard,
    heard: BTreeSet<NodeId>,
    peers: usize,
    /// A smaller difference is left to the clock guard.
    tolerated_us: u64,
    rules: Rules,
}

/// Where node time begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FirstTime {
    /// What to add to the machine's clock, in microseconds.
    pub correction_us: i64,
    /// How long to wait until node time has passed what was used before.
    pub behind: Span,
}

impl FirstClock {
    /// Nobody was heard yet.
    pub fn new(config: &ShardConfig) -> Result<Self, ShardError> {
        let cluster = config.map.osds().len();
        let guard = GuardConfig::new(&config.lease, config.clock_fresh, cluster);
        Ok(Self {
            guard: ClockGuard::new(guard)?,
            heard: BTreeSet::new(),
            peers: cluster.saturating_sub(1),
            tolerated_us: config.lease.epsilon.as_micros() / 4,
            rules: config.rules(),
        })
    }

    /// Whether there is nobody left to wait for.
    pub fn is_complete(&self) -> bool {
        self.heard.len() >= self.peers
    }

    /// A peer has answered. Its time counts only if it is fixed: of two that start together neither is a measure.
    pub fn handle_time(&mut self, peer: NodeId, exchange: Exchange, is_fixed: bool) {
        self.heard.insert(peer);
        if is_fixed {
            self.guard.handle_exchange(peer, exchange);
        }
    }

    /// Where node time begins for a machine whose clock shows `wall`, if all that was used before is below `floor`.
    pub fn decide(&self, wall: WallTime, floor: WallTime) -> FirstTime {
        let off = self.guard.correction(wall).unwrap_or(0);
        let is_tolerated = off.unsigned_abs() <= self.tolerated_us;
        let correction_us = if is_tolerated || self.rules.breaks(Bug::OwnClockTrusted) { 0 } else { off };
        let floor = if self.rules.breaks(Bug::FloorForgotten) { WallTime::ZERO } else { floor };
        FirstTime { correction_us, behind: floor.since(corrected(wall, correction_us)) }
    }
}

/// A time and what is added to it, in microseconds.
pub fn corrected(wall: WallTime, by_us: i64) -> WallTime {
    let span = Span::from_micros(by_us.unsigned_abs());
    if by_us < 0 { wall - span } else { wall + span }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::ClusterId;

    use super::*;
    use crate::{ClusterMap, LeaseAlgorithm, Osd, Settings};

    const NOW: WallTime = WallTime::from_micros(1_000_000_000);

    fn of_three() -> FirstClock {
        let settings = Settings {
            algorithm: LeaseAlgorithm::Flease,
            t_max_ms: 2_000,
            epsilon_ms: 100,
            session_ms: 600,
            rate_error_ppm: 1_000,
        };
        let osds = (0..3).map(|id| Osd { id: NodeId(id), address: format!("10.0.0.{id}:7000") });
        let map = ClusterMap::new(ClusterId([7; 16]), 1, 3, settings, osds.collect()).unwrap();
        FirstClock::new(&ShardConfig::new(Arc::new(map))).unwrap()
    }

    /// An answer at once from a clock that is so much ahead.
    fn ahead_by(us: i64) -> Exchange {
        let at = corrected(NOW, us);
        Exchange { asked: NOW, received: at, answered: at, done: NOW }
    }

    #[test]
    fn a_majority_that_agrees_is_followed() {
        let mut first = of_three();
        first.handle_time(NodeId(1), ahead_by(5_000_000), true);
        assert_eq!(first.decide(NOW, WallTime::ZERO).correction_us, 0, "one against one");
        assert!(!first.is_complete());
        first.handle_time(NodeId(2), ahead_by(5_000_000), true);
        assert!(first.is_complete());
        let (corrected_us, floor) = (5_000_000, corrected(NOW, 5_000_300));
        let expected = FirstTime { correction_us: corrected_us, behind: Span::from_micros(300) };
        assert_eq!(first.decide(NOW, floor), expected);
    }

    #[test]
    fn clocks_that_are_not_fixed_or_hardly_differ_move_nobody() {
        let mut first = of_three();
        for node in [1, 2] {
            first.handle_time(NodeId(node), ahead_by(5_000_000), false);
        }
        assert!(first.is_complete());
        assert_eq!(first.decide(NOW, NOW), FirstTime { correction_us: 0, behind: Span::ZERO });
        let mut first = of_three();
        for node in [1, 2] {
            first.handle_time(NodeId(node), ahead_by(25_000), true);
        }
        assert_eq!(first.decide(NOW, NOW), FirstTime { correction_us: 0, behind: Span::ZERO });
    }
}
