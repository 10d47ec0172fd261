//! The clock guard: whether this node's time can be trusted to within ε.
//!
//! Peers exchange four timestamps with each heartbeat: asked and done by our clock, received and answered by theirs.
//! A message takes no negative time, so `answered - done <= theirs - ours <= received - asked` bounds the offset
//! without any assumption on the network. The bound of a peer is the intersection of its last eight exchanges, each
//! widened by the drift since; so one slow exchange never stands a node down.
//!
//! Any two sound nodes must be within ε of each other, but a node judges only itself. So it is sound only within ε/2 of
//! a majority of the cluster, itself counted: any two majorities share a witness, and both are within ε/2 of that. One
//! wrong peer of several stands nobody else down. Two nodes that disagree with nobody else to ask both stand down.
//!
//! Whom a node does not hear, or hears so slowly that the bound proves nothing, says nothing against it for a while: a short
//! silence or a burst of work must not cost it its leases. After
//! [`patience`](GuardConfig::patience), by when they have run out, it has to find its majority again.

use std::collections::{BTreeMap, VecDeque};

use base::{NodeId, Span, WallTime};

use crate::Config;

/// How many exchanges with a peer are remembered.
const EXCHANGES: usize = 8;

/// What the guard judges by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuardConfig {
    /// The bound on the difference between any two clocks (ε).
    pub epsilon: Span,
    /// By how much two clocks may differ in rate (ρ), in millionths.
    pub rate_error_ppm: u32,
    /// After this long without an exchange a peer counts as not heard.
    pub fresh: Span,
    /// For how long a node stays sound on the word of a majority that it no longer hears: a lease time.
    pub patience: Span,
    /// How many nodes the cluster has, this one included.
    pub cluster: usize,
}

/// Why the guard cannot work so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GuardConfigError {
    /// A peer that was just heard would already be unknown again.
    #[error(
        "fresh × rate error ({widening}) must be below epsilon/2 ({limit}): exchange times more often, or raise \
         epsilon"
    )]
    DriftHidesOffset {
        /// How much a bound widens while it is fresh.
        widening: Span,
        /// What it must stay below.
        limit: Span,
    },
    /// A cluster has at least this node.
    #[error("cluster must be at least 1")]
    NoCluster,
}

/// The four timestamps of one request and its answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// When we asked, by our clock.
    pub asked: WallTime,
    /// When the peer received it, by its clock.
    pub received: WallTime,
    /// When the peer answered, by its clock.
    pub answered: WallTime,
    /// When we had the answer, by our clock.
    pub done: WallTime,
}

/// Whether this node may take part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockState {
    /// Not yet, or for too long no more, known to agree with a majority: own nothing and propose nothing.
    Joining,
    /// Within ε/2 of a majority of the cluster.
    Sound,
    /// In disagreement with a majority of those heard, or with so many that it cannot join, or it jumped: own nothing and propose
    /// nothing.
    Off,
}

/// Bounds on a peer's clock minus ours, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Bound {
    low: i64,
    high: i64,
    at: WallTime,
}

#[derive(Clone, Debug, Default)]
struct Peer {
    exchanges: VecDeque<Bound>,
    jumped_at: Option<WallTime>,
}

/// What this node knows of its peers' clocks.
#[derive(Clone, Debug)]
pub struct ClockGuard {
    config: GuardConfig,
    peers: BTreeMap<NodeId, Peer>,
    state: ClockState,
    /// When a majority of the cluster was last known to agree.
    agreed_at: WallTime,
}

impl GuardConfig {
    /// The guard's part of the lease configuration.
    pub fn new(config: &Config, fresh: Span, cluster: usize) -> Self {
        let &Config { epsilon, rate_error_ppm, t_max: patience, .. } = config;
        Self { epsilon, rate_error_ppm, fresh, patience, cluster }
    }

    fn check(&self) -> Result<(), GuardConfigError> {
        let widening = drift(self.fresh, self.rate_error_ppm);
        let limit = self.epsilon / 2;
        if self.cluster == 0 {
            return Err(GuardConfigError::NoCluster);
        }
        if widening >= limit { Err(GuardConfigError::DriftHidesOffset { widening, limit }) } else { Ok(()) }
    }
}

impl ClockGuard {
    /// A guard that has heard nobody. Alone in its cluster a node is sound.
    pub fn new(config: GuardConfig) -> Result<Self, GuardConfigError> {
        config.check()?;
        let state = if config.cluster == 1 { ClockState::Sound } else { ClockState::Joining };
        Ok(Self { config, peers: BTreeMap::new(), state, agreed_at: WallTime::ZERO })
    }

    /// The state as of the last exchange or timeout.
    pub const fn state(&self) -> ClockState {
        self.state
    }

    /// The largest possible offset of a peer's clock, of all peers heard: what `status` shows beside ε.
    pub fn offset_max(&self, now: WallTime) -> Option<Span> {
        self.heard(now).map(|(_, bound)| bound.worst()).max()
    }

    /// The largest possible offset of one peer's clock, if it was heard.
    pub fn offset_of(&self, now: WallTime, peer: NodeId) -> Option<Span> {
        self.heard(now).find(|&(id, _)| id == peer).map(|(_, bound)| bound.worst())
    }

    /// When a peer last answered a question about its time, if it ever did.
    pub fn heard_at(&self, peer: NodeId) -> Option<WallTime> {
        Some(self.peers.get(&peer)?.exchanges.back()?.at)
    }

    /// What to add to this node's time, in microseconds, to agree with most clocks, its own among them: the middle of
    /// the offsets that the most bounds allow, and of several such regions the one nearest to no correction. `None`
    /// unless a majority of the cluster's clocks agree. For use at start, before node time is fixed.
    pub fn correction(&self, now: WallTime) -> Option<i64> {
        let own = Bound { low: 0, high: 0, at: now };
        let bounds: Vec<Bound> = self.heard(now).map(|(_, bound)| bound).chain([own]).collect();
        let allowing = |offset: i64| bounds.iter().filter(|b| b.low <= offset && offset <= b.high).count();
        // The region that most bounds share begins at one of their lower ends.
        let rank = |low: i64| (allowing(low), std::cmp::Reverse(low.unsigned_abs()));
        let low = bounds.iter().map(|bound| bound.low).max_by_key(|&low| rank(low))?;
        let sharing = bounds.iter().filter(|b| b.low <= low && low <= b.high);
        let high = sharing.map(|b| b.high).min()?;
        (allowing(low) > self.config.cluster / 2).then_some(low + (high - low) / 2)
    }

    /// Takes in one exchange. An impossible one (answered before it was asked) is ignored and returns false.
    pub fn handle_exchange(&mut self, peer: NodeId, exchange: Exchange) -> bool {
        let Some(bound) = Bound::of(exchange) else { return false };
        let (now, rate) = (bound.at, self.config.rate_error_ppm);
        let known = self.peers.entry(peer).or_default();
        let agrees = intersect(&known.exchanges, now, rate)
            .is_none_or(|before| bound.low <= before.high && before.low <= bound.high);
        if !agrees {
            known.exchanges.clear();
            known.jumped_at = Some(now);
        }
        if known.exchanges.len() == EXCHANGES {
            known.exchanges.pop_front();
        }
        known.exchanges.push_back(bound);
        self.handle_timeout(now);
        true
    }

    /// Judges again with the time passed.
    pub fn handle_timeout(&mut self, now: WallTime) {
        let Self { config, .. } = *self;
        let heard = self.heard(now).count();
        let within = |limit: Span| 1 + self.heard(now).filter(|(_, bound)| bound.worst() <= limit).count();
        let is_majority = |count: usize, of: usize| count > of / 2;
        let jumped = self.jumped(now);
        let agrees = is_majority(within(config.epsilon / 2), config.cluster);
        // Joining takes a closer agreement than staying, so that a clock near the limit does not come and go.
        let may_join = is_majority(within(config.epsilon / 4), config.cluster) && !jumped;
        // An exchange so slow that it proves nothing is no accusation: under load all of them may be.
        let accusing = self.heard(now).filter(|(_, bound)| bound.least() > config.epsilon / 2).count();
        let is_outvoted = !is_majority(heard + 1 - accusing, heard + 1);
        // Whoever has not joined waits for those that it does not hear, as long as they could make up a majority with it.
        let apart = self.heard(now).filter(|(_, bound)| bound.least() > config.epsilon / 4).count();
        let is_kept_out = !is_majority(config.cluster.saturating_sub(apart), config.cluster);
        if agrees {
            self.agreed_at = now;
        }
        let is_alone = now.since(self.agreed_at) > config.patience;
        self.state = match self.state {
            ClockState::Sound if is_outvoted || jumped => ClockState::Off,
            ClockState::Sound if is_alone => ClockState::Joining,
            ClockState::Joining | ClockState::Off if may_join => ClockState::Sound,
            ClockState::Joining if is_kept_out => ClockState::Off,
            state => state,
        };
    }

    /// Our clock jumped if the offsets of most peers heard changed faster than clocks drift.
    fn jumped(&self, now: WallTime) -> bool {
        let heard = self.heard(now).count();
        let jumped = self
            .peers
            .values()
            .filter(|peer| peer.jumped_at.is_some_and(|at| now.since(at) <= self.config.fresh && at <= now));
        let jumped = jumped.count();
        jumped > 0 && jumped * 2 > heard
    }

    /// Peers with a fresh exchange, and the bound on their offset.
    fn heard(&self, now: WallTime) -> impl Iterator<Item = (NodeId, Bound)> {
        self.peers.iter().filter_map(move |(&id, peer)| {
            let newest = peer.exchanges.back()?;
            let is_fresh = now.since(newest.at) <= self.config.fresh;
            let bound = intersect(&peer.exchanges, now, self.config.rate_error_ppm)?;
            is_fresh.then_some((id, bound))
        })
    }
}

impl Bound {
    fn of(exchange: Exchange) -> Option<Self> {
        let Exchange { asked, received, answered, done } = exchange;
        if done < asked || answered < received {
            return None;
        }
        let (low, high) = (difference(answered, done)?, difference(received, asked)?);
        (low <= high).then_some(Self { low, high, at: done })
    }

    fn widened(self, now: WallTime, rate_error_ppm: u32) -> Self {
        let by = drift(now.since(self.at), rate_error_ppm).as_micros().min(i64::MAX.cast_unsigned());
        Self {
            low: self.low.saturating_sub_unsigned(by),
            high: self.high.saturating_add_unsigned(by),
            at: self.at,
        }
    }

    /// |offset| - margin: how far apart the clocks are at least.
    fn least(self) -> Span {
        if self.low <= 0 && 0 <= self.high {
            return Span::ZERO;
        }
        Span::from_micros(self.low.unsigned_abs().min(self.high.unsigned_abs()))
    }

    /// |offset| + margin.
    fn worst(self) -> Span {
        Span::from_micros(self.low.unsigned_abs().max(self.high.unsigned_abs()))
    }
}

fn intersect(bounds: &VecDeque<Bound>, now: WallTime, rate_error_ppm: u32) -> Option<Bound> {
    bounds.iter().map(|bound| bound.widened(now, rate_error_ppm)).reduce(|a, b| Bound {
        low: a.low.max(b.low),
        high: a.high.min(b.high),
        at: b.at,
    })
}

fn drift(span: Span, rate_error_ppm: u32) -> Span {
    span.stretched(rate_error_ppm).saturating_sub(span)
}

fn difference(a: WallTime, b: WallTime) -> Option<i64> {
    i64::try_from(i128::from(a.as_micros()) - i128::from(b.as_micros())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    fn guard() -> ClockGuard {
        let config = GuardConfig {
            fresh: Span::from_millis(400),
            ..GuardConfig::new(&Config::default(), Span::ZERO, 3)
        };
        ClockGuard::new(config).unwrap()
    }

    /// An exchange that began at `at` with a peer whose clock is `offset` ahead; each way takes as given. All in ms.
    fn exchange(at: u64, offset: i64, (there, back): (u64, u64)) -> Exchange {
        let micros = |ms: u64| 1_000_000_000 + ms * 1_000;
        let ours = |ms| WallTime::from_micros(micros(ms));
        let theirs = |ms| WallTime::from_micros(micros(ms).saturating_add_signed(offset * 1_000));
        Exchange {
            asked: ours(at),
            received: theirs(at + there),
            answered: theirs(at + there),
            done: ours(at + there + back),
        }
    }

    #[test]
    fn a_node_joins_once_it_agrees_closely_with_a_majority() {
        let mut guard = guard();
        assert_eq!(guard.state(), ClockState::Joining);
        guard.handle_exchange(A, exchange(0, 40, (1, 1)));
        assert_eq!(guard.state(), ClockState::Joining, "40 ms is more than ε/4");
        guard.handle_exchange(B, exchange(2, 20, (1, 1)));
        assert_eq!(guard.state(), ClockState::Sound);
        assert_eq!(guard.offset_of(WallTime::from_micros(1_000_004_000), B), Some(Span::from_millis(21)));
    }

    #[test]
    fn who_cannot_join_because_its_clock_is_off_says_so() {
        for offset in [30, 70, 5_000, -5_000] {
            let mut guard = guard();
            guard.handle_exchange(A, exchange(0, offset, (1, 1)));
            assert_eq!(guard.state(), ClockState::Joining, "one against one");
            guard.handle_exchange(B, exchange(0, offset, (1, 1)));
            assert_eq!(guard.state(), ClockState::Off, "{offset} ms");
            for at in [100, 1_000] {
                guard.handle_exchange(A, exchange(at, 1, (1, 1)));
                guard.handle_exchange(B, exchange(at, 1, (1, 1)));
            }
            assert_eq!(guard.state(), ClockState::Sound, "its clock was put right");
        }
        let mut guard = guard();
        for peer in [A, B] {
            guard.handle_exchange(peer, exchange(0, 30, (20, 20)));
        }
        assert_eq!(guard.state(), ClockState::Joining, "it may be that it is within ε/4");
    }

    #[test]
    fn one_slow_exchange_stands_nobody_down() {
        let mut guard = guard();
        guard.handle_exchange(A, exchange(0, 10, (1, 1)));
        guard.handle_exchange(B, exchange(0, 10, (1, 1)));
        guard.handle_exchange(A, exchange(10, 10, (150, 150)));
        guard.handle_exchange(B, exchange(10, 10, (5, 300)));
        assert_eq!(guard.state(), ClockState::Sound);
    }

    #[test]
    fn exchanges_that_prove_nothing_stand_nobody_down_before_the_leases_have_run_out() {
        let mut guard = guard();
        let state = |guard: &mut ClockGuard, at: u64, slow: u64| {
            guard.handle_exchange(A, exchange(at, 10, (slow, slow)));
            guard.handle_exchange(B, exchange(at, -10, (slow, slow)));
            guard.state()
        };
        assert_eq!(state(&mut guard, 0, 1), ClockState::Sound);
        for at in (500..1_800).step_by(100) {
            assert_eq!(state(&mut guard, at, 80), ClockState::Sound, "at {at}");
        }
        assert_eq!(state(&mut guard, 2_500, 80), ClockState::Joining, "for a lease time nobody agreed");
        assert_eq!(state(&mut guard, 2_600, 1), ClockState::Sound);
    }

    #[test]
    fn a_clock_beyond_epsilon_stands_down_and_comes_back() {
        let mut guard = guard();
        for at in [0, 100] {
            guard.handle_exchange(A, exchange(at, 10, (1, 1)));
            guard.handle_exchange(B, exchange(at, 10, (1, 1)));
        }
        for at in [200, 300] {
            guard.handle_exchange(A, exchange(at, 70, (1, 1)));
            guard.handle_exchange(B, exchange(at, 70, (1, 1)));
        }
        assert_eq!(guard.state(), ClockState::Off);
        for at in [400, 1000] {
            guard.handle_exchange(A, exchange(at, 5, (1, 1)));
            guard.handle_exchange(B, exchange(at, 5, (1, 1)));
        }
        assert_eq!(guard.state(), ClockState::Sound);
    }

    #[test]
    fn a_jump_stands_down_even_within_epsilon() {
        let mut guard = guard();
        for (at, offset) in [(0, -20), (100, 20)] {
            guard.handle_exchange(A, exchange(at, offset, (1, 1)));
            guard.handle_exchange(B, exchange(at, offset, (1, 1)));
        }
        assert_eq!(guard.state(), ClockState::Off);
    }

    #[test]
    fn a_wrong_peer_stands_only_itself_down() {
        let (mut sound, mut wrong) = (guard(), guard());
        for at in [0, 100, 200] {
            sound.handle_exchange(A, exchange(at, 500, (1, 1)));
            sound.handle_exchange(B, exchange(at, 3, (1, 1)));
            let offset = if at == 0 { 3 } else { -500 };
            wrong.handle_exchange(A, exchange(at, offset, (1, 1)));
            wrong.handle_exchange(B, exchange(at, offset, (1, 1)));
        }
        assert_eq!((sound.state(), wrong.state()), (ClockState::Sound, ClockState::Off));
    }

    #[test]
    fn silence_is_no_accusation_until_the_leases_have_run_out() {
        let mut guard = guard();
        guard.handle_exchange(A, exchange(0, 0, (1, 1)));
        let heard = WallTime::from_micros(1_000_002_000);
        guard.handle_timeout(heard + Span::from_secs(2));
        assert_eq!(guard.state(), ClockState::Sound);
        assert_eq!(guard.offset_max(heard + Span::from_secs(2)), None);
        guard.handle_timeout(heard + Span::from_millis(2_500));
        assert_eq!(guard.state(), ClockState::Joining);
    }

    /// Each of the outer two agrees with the one in the middle; together they are beyond ε.
    #[test]
    fn any_two_sound_nodes_are_within_epsilon() {
        let offsets = [-80_i64, 0, 80];
        let judge = |me: usize| {
            let mut guard = guard();
            for at in (0..2_000).step_by(100) {
                // They drift apart slowly, so that nothing jumps.
                let drifted = i64::try_from(at).unwrap().min(1_000);
                for peer in (0..3).filter(|&peer| peer != me) {
                    let offset = (offsets[peer] - offsets[me]) * drifted / 1_000;
                    guard.handle_exchange(NodeId(u32::try_from(peer).unwrap()), exchange(at, offset, (1, 1)));
                }
            }
            guard.state()
        };
        assert_eq!([judge(0), judge(1), judge(2)], [ClockState::Off; 3], "nobody is within ε/2 of anybody");
    }

    #[test]
    fn the_correction_follows_the_majority() {
        let mut guard = guard();
        let now = WallTime::from_micros(1_000_002_000);
        assert_eq!(guard.correction(now), None);
        guard.handle_exchange(A, exchange(0, 700, (1, 1)));
        guard.handle_exchange(B, exchange(0, 702, (1, 1)));
        assert_eq!(guard.correction(now), Some(701_000));
    }

    #[test]
    fn one_wrong_clock_corrects_nobody() {
        let now = WallTime::from_micros(1_000_002_000);
        for agreeing in [Some(0), None] {
            let mut guard = guard();
            guard.handle_exchange(A, exchange(0, 3_600_000, (1, 1)));
            if let Some(offset) = agreeing {
                guard.handle_exchange(B, exchange(0, offset, (1, 1)));
            }
            assert_eq!(guard.correction(now), agreeing, "two of three agree, or nobody with anybody");
        }
    }

    #[test]
    fn impossible_timestamps_are_ignored() {
        let mut guard = guard();
        let good = exchange(10, 0, (1, 1));
        assert!(!guard.handle_exchange(A, Exchange { done: WallTime::ZERO, ..good }));
        assert!(!guard.handle_exchange(A, Exchange { answered: WallTime::ZERO, ..good }));
        assert!(
            !guard.handle_exchange(A, Exchange { received: WallTime::MAX, answered: WallTime::MAX, ..good })
        );
        assert_eq!(guard.offset_max(good.done), None);
    }

    #[test]
    fn a_guard_that_could_never_judge_is_refused() {
        let config = GuardConfig::new(&Config::default(), Span::from_secs(1), 3);
        let message = ClockGuard::new(config).unwrap_err().to_string();
        assert!(
            message.starts_with("fresh × rate error (120ms) must be below epsilon/2 (50ms)"),
            "{message}"
        );
    }
}
