//! Configuration of the lease protocol: checked once, and errors name the relation that is broken.

use base::Span;
use thiserror::Error;

#[cfg(feature = "planted-bugs")]
use crate::Bug;

/// What every node of a cluster must agree on, and the limits of this one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The longest life of a lease, and so of a failover. Cluster-wide; default 2 s.
    pub t_max: Span,
    /// The bound on the difference between any two clocks (ε). Cluster-wide; default 100 ms.
    pub epsilon: Span,
    /// The client session (τ) that must fit under every lease. Cluster-wide; default 800 ms.
    pub session: Span,
    /// By how much two clocks may differ in rate (ρ), in millionths. Cluster-wide; default 120,000.
    pub rate_error_ppm: u32,
    /// The worst round trip that still counts as a working network; default 50 ms.
    pub round_trip_max: Span,
    /// When a lease is renewed, counted from when it was last asked for; default a third of `t_max`.
    pub renew_after: Span,
    /// How much earlier a renewal may start, so that those that are due within this span start together; default 50 ms.
    pub gather: Span,
    /// The first wait after a failed attempt; default 2 ms.
    pub backoff_min: Span,
    /// The longest wait after a failed attempt; default 200 ms.
    pub backoff_max: Span,
    /// After how many failed attempts an acquisition or a release is abandoned; default 16.
    pub attempts_max: u8,
    /// How much longer than `t_max` an unused register is kept; more memory, and owners are hinted at for longer. Default zero.
    pub linger: Span,
    /// How many registers are kept at most; more cells are refused. Default 16 Mi.
    pub registers_max: u32,
    /// How many cells this node may want or hold at a time. Default 4 Mi.
    pub claims_max: u32,
    /// How many renewals may be under way; the others wait for their turn. Default 4,096.
    pub renewals_max: usize,
    /// How many messages one batch holds at most. Default 4,096.
    pub batch_max: usize,
    /// How many lease changes the trail remembers. Default 4,096.
    pub trail_len: usize,
    /// The rule to break, if any.
    #[cfg(feature = "planted-bugs")]
    pub bug: Option<Bug>,
}

/// Why a configuration cannot work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ConfigError {
    /// A lease would be over before it is decided.
    #[error(
        "t_max ({t_max}) must be longer than 2 × (epsilon {epsilon} + round_trip_max {round_trip_max}): \
         raise t_max or synchronise the clocks better"
    )]
    LeaseTooShort {
        /// The lease time.
        t_max: Span,
        /// The clock bound.
        epsilon: Span,
        /// The worst round trip.
        round_trip_max: Span,
    },
    /// A client's grants would outlive the lease above them.
    #[error(
        "session ({session}) must be at most t_max/2 - epsilon ({limit}): shorten session or raise t_max"
    )]
    SessionTooLong {
        /// The client session.
        session: Span,
        /// The longest that fits.
        limit: Span,
    },
    /// A renewal would come too late for the client sessions under the lease.
    #[error(
        "t_max - renew_after ({remaining}) must be at least session × (1 + rate error) + 2 × epsilon + gather \
         + 2 × round_trip_max ({needed}): renew earlier or raise t_max"
    )]
    RenewalTooLate {
        /// What is left of the lease when its renewal starts.
        remaining: Span,
        /// What must be left.
        needed: Span,
    },
    /// A renewal may not start before its lease.
    #[error("gather ({gather}) must be at most renew_after ({renew_after}): shorten gather")]
    GatherTooLong {
        /// The setting.
        gather: Span,
        /// The time of the renewal.
        renew_after: Span,
    },
    /// A retry without a wait would starve everybody else.
    #[error("backoff_min ({min}) must be above zero and at most backoff_max ({max})")]
    BackoffOutOfOrder {
        /// The first wait.
        min: Span,
        /// The longest wait.
        max: Span,
    },
    /// A limit of zero allows nothing.
    #[error("{name} must be above zero")]
    ZeroLimit {
        /// The name of the limit.
        name: &'static str,
    },
}

impl Default for Config {
    fn default() -> Self {
        Self {
            t_max: Span::from_secs(2),
            epsilon: Span::from_millis(100),
            session: Span::from_millis(800),
            rate_error_ppm: 120_000,
            round_trip_max: Span::from_millis(50),
            renew_after: Span::from_secs(2) / 3,
            gather: Span::from_millis(50),
            backoff_min: Span::from_millis(2),
            backoff_max: Span::from_millis(200),
            attempts_max: 16,
            linger: Span::ZERO,
            registers_max: 16 << 20,
            claims_max: 4 << 20,
            renewals_max: 4096,
            batch_max: 4096,
            trail_len: 4096,
            #[cfg(feature = "planted-bugs")]
            bug: None,
        }
    }
}

impl Config {
    /// Checks every relation between the values.
    pub fn check(&self) -> Result<(), ConfigError> {
        let &Self { t_max, epsilon, session, round_trip_max, renew_after, gather, .. } = self;
        if t_max <= (epsilon + round_trip_max) * 2 {
            return Err(ConfigError::LeaseTooShort { t_max, epsilon, round_trip_max });
        }
        let limit = (t_max / 2).saturating_sub(epsilon);
        if session > limit {
            return Err(ConfigError::SessionTooLong { session, limit });
        }
        let needed = session.stretched(self.rate_error_ppm) + epsilon * 2 + gather + round_trip_max * 2;
        let remaining = t_max.saturating_sub(renew_after);
        if remaining < needed {
            return Err(ConfigError::RenewalTooLate { remaining, needed });
        }
        if gather > renew_after {
            return Err(ConfigError::GatherTooLong { gather, renew_after });
        }
        if self.backoff_min == Span::ZERO || self.backoff_min > self.backoff_max {
            return Err(ConfigError::BackoffOutOfOrder { min: self.backoff_min, max: self.backoff_max });
        }
        self.check_limits()
    }

    fn check_limits(&self) -> Result<(), ConfigError> {
        let limits = [
            ("attempts_max", u64::from(self.attempts_max)),
            ("registers_max", u64::from(self.registers_max)),
            ("claims_max", u64::from(self.claims_max)),
            ("renewals_max", self.renewals_max as u64),
            ("batch_max", self.batch_max as u64),
        ];
        match limits.into_iter().find(|&(_, limit)| limit == 0) {
            Some((name, _)) => Err(ConfigError::ZeroLimit { name }),
            None => Ok(()),
        }
    }

    /// How long an unused register is kept.
    pub(crate) fn idle_time(&self) -> Span {
        self.t_max + self.linger
    }

    /// How long one attempt waits for answers before it counts as failed.
    pub(crate) fn round_timeout(&self) -> Span {
        // A zero round trip (abstract time in models) still needs a deadline after "now".
        (self.round_trip_max * 2).max(Span::from_micros(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(change: impl FnOnce(&mut Config)) -> String {
        let mut config = Config::default();
        change(&mut config);
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn the_defaults_hold() {
        assert_eq!(Config::default().check(), Ok(()));
    }

    #[test]
    fn errors_name_the_broken_relation() {
        let cases = [
            (
                broken(|c| c.t_max = Span::from_millis(300)),
                "t_max (300ms) must be longer than 2 × (epsilon 100ms",
            ),
            (
                broken(|c| c.session = Span::from_secs(1)),
                "session (1s) must be at most t_max/2 - epsilon (900ms)",
            ),
            (broken(|c| c.renew_after = Span::from_secs(1)), "t_max - renew_after (1s) must be at least"),
            (broken(|c| c.backoff_min = Span::ZERO), "backoff_min (0s) must be above zero"),
            (broken(|c| c.batch_max = 0), "batch_max must be above zero"),
        ];
        for (message, expected) in cases {
            assert!(message.starts_with(expected), "{message}");
        }
        let gathering =
            Config { gather: Span::from_millis(11), renew_after: Span::from_millis(10), ..Config::default() };
        assert!(matches!(gathering.check(), Err(ConfigError::GatherTooLong { .. })));
    }
}
