//! When a daemon that died is started again. A function of how long its runs took; it reads no clock.

use std::time::Duration;

use base::Span;

/// When to start again and when to give up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    /// The wait before the first restart; it doubles with each that follows.
    pub delay_min: Span,
    /// The longest wait.
    pub delay_max: Span,
    /// A run of this length was a good one: the waits begin anew, and the deaths before it no longer count.
    pub good_run: Span,
    /// How many deaths without a good run between them are too many.
    pub deaths_max: u32,
}

/// The daemon does not stay alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the daemon died {deaths} times without staying up for {good_run}; read its log, mend the cause, and start it again"
)]
pub struct CrashLoop {
    /// How often.
    pub deaths: u32,
    /// How long it should have lived.
    pub good_run: Span,
}

/// What a child is told of those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct History {
    /// How often the daemon was started again.
    pub restarts: u32,
    /// Whether it keeps dying before a run was a good one.
    pub is_crash_looping: bool,
}

/// After this long a daemon is taken to stay alive.
pub const GOOD_RUN: Span = Span::from_secs(10);

/// More deaths than this without a good run between them are no coincidence.
const COINCIDENCES_MAX: u32 = 2;

/// The deaths so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Restarts {
    policy: Policy,
    all: u32,
    since_good_run: u32,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            delay_min: Span::from_millis(100),
            delay_max: Span::from_secs(10),
            good_run: GOOD_RUN,
            deaths_max: 20,
        }
    }
}

impl Restarts {
    pub(super) fn new(policy: Policy) -> Self {
        Self { policy, all: 0, since_good_run: 0 }
    }

    /// What there is to tell the next child.
    pub(super) fn history(&self) -> History {
        History { restarts: self.all, is_crash_looping: self.since_good_run > COINCIDENCES_MAX }
    }

    /// How long to wait before the next start, after a run that took `run`.
    pub(super) fn after(&mut self, run: Span) -> Result<Duration, CrashLoop> {
        let Policy { delay_min, delay_max, good_run, deaths_max } = self.policy;
        if run >= good_run {
            self.since_good_run = 0;
        }
        self.since_good_run = self.since_good_run.saturating_add(1);
        if self.since_good_run >= deaths_max {
            return Err(CrashLoop { deaths: self.since_good_run, good_run });
        }
        self.all = self.all.saturating_add(1);
        let doublings = (self.since_good_run - 1).min(31);
        let delay = (delay_min * (1 << doublings)).min(delay_max);
        Ok(Duration::from_micros(delay.as_micros()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Span = Span::from_millis(5);

    fn waits_ms(restarts: &mut Restarts, runs: u32) -> Vec<u128> {
        (0..runs).map(|_| restarts.after(SHORT).unwrap().as_millis()).collect()
    }

    #[test]
    fn the_waits_double_up_to_the_longest() {
        let mut restarts = Restarts::new(Policy::default());
        let waits = waits_ms(&mut restarts, 9);
        assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        assert_eq!(restarts.history(), History { restarts: 9, is_crash_looping: true });
    }

    #[test]
    fn a_good_run_starts_the_waits_anew() {
        let mut restarts = Restarts::new(Policy::default());
        waits_ms(&mut restarts, 5);
        assert_eq!(restarts.after(Policy::default().good_run).unwrap(), Duration::from_millis(100));
        assert_eq!(restarts.history(), History { restarts: 6, is_crash_looping: false }, "the count goes on");
        assert_eq!(waits_ms(&mut restarts, 1), [200]);
    }

    #[test]
    fn a_daemon_that_does_not_stay_alive_is_given_up() {
        let policy = Policy { deaths_max: 3, ..Policy::default() };
        let mut restarts = Restarts::new(policy);
        waits_ms(&mut restarts, 2);
        let given_up = restarts.after(SHORT).unwrap_err();
        assert_eq!(given_up, CrashLoop { deaths: 3, good_run: policy.good_run });
    }

    #[test]
    fn no_number_of_deaths_overflows() {
        let policy = Policy { deaths_max: u32::MAX, delay_max: Span::MAX, ..Policy::default() };
        let mut restarts = Restarts { policy, all: u32::MAX, since_good_run: u32::MAX - 2 };
        assert_eq!(restarts.after(SHORT).unwrap().as_secs(), 214_748_364);
        restarts.after(SHORT).unwrap_err();
    }
}
