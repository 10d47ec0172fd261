//! Flease: leases expire at a point in time that all clocks agree on within ε.
//!
//! The safety argument is arithmetic on one assumption: every clock is within ε/2 of true time, so that two clocks
//! differ by at most ε, at one instant or, if time lies between, in the wrong direction. An owner stops at `expires`
//! on its own clock; a rival starts at `expires + ε` on its own.

use base::{Span, WallTime};

use crate::{Algorithm, Bug, Config, Expiry, Reject, Stamp, Standing};

/// The time rules of Flease.
#[derive(Clone, Debug)]
pub struct FleaseRules {
    t_max: Span,
    epsilon: Span,
    /// The length of a ballot's interval.
    interval: Span,
    /// How old an honest message can look.
    age_max: Span,
    without_grace: bool,
    without_interval: bool,
    far_future: bool,
}

impl Algorithm for FleaseRules {
    const NAME: &'static str = "flease";
    const EVERY_VOTE_IS_OPEN: bool = false;
    const CLOCKS_AGREE: bool = true;

    fn new(config: &Config) -> Self {
        let &Config { t_max, epsilon, .. } = config;
        Self {
            t_max,
            epsilon,
            interval: t_max.saturating_sub(epsilon),
            age_max: if config.breaks(Bug::AgeWithoutSkew) { config.round_trip_max } else { t_max + epsilon },
            without_grace: config.breaks(Bug::NoGrace),
            without_interval: config.breaks(Bug::BallotsWithoutInterval),
            far_future: config.breaks(Bug::FarFutureAccepted),
        }
    }

    fn quarantine(&self) -> Span {
        // An owner `a` asked for `a + t_max`. This node starts no earlier than `a - ε` by its clock, and when its
        // silence ends the owner's clock may be ε behind: `a - ε + silence - ε >= a + t_max`.
        self.t_max + self.epsilon * 2
    }

    fn newcomer_silence(&self) -> Span {
        self.quarantine()
    }

    fn floor_after(&self, start: WallTime) -> Stamp {
        // Before the start this node nacked every ballot beyond its own `now + t_max`.
        if self.without_interval { Stamp::ZERO } else { Stamp::last_at(start + self.t_max, self.interval) }
    }

    fn opening(&self, now: WallTime) -> Stamp {
        if self.without_interval { Stamp(1) } else { Stamp::first_at(now, self.interval) }
    }

    fn horizon(&self, now: WallTime) -> Stamp {
        if self.far_future { Stamp::MAX } else { Stamp::last_at(now + self.t_max, self.interval) }
    }

    fn is_too_old(&self, now: WallTime, sent: WallTime) -> bool {
        now.since(sent) > self.age_max
    }

    fn term(&self, now: WallTime, until: Option<WallTime>) -> Expiry {
        // A clock that stepped back must not shorten the lease that is being renewed.
        Expiry::At((now + self.t_max).max(until.unwrap_or(WallTime::ZERO)))
    }

    fn respect_until(&self, now: WallTime, expiry: Expiry) -> Result<WallTime, Reject> {
        match expiry {
            Expiry::At(time) if time <= now + self.t_max + self.epsilon || self.far_future => Ok(time),
            Expiry::At(_) => Err(Reject::LeaseTooLong),
            Expiry::After(_) => Err(Reject::Malformed),
        }
    }

    fn report(&self, _now: WallTime, expires: WallTime) -> Expiry {
        Expiry::At(expires)
    }

    fn is_over(&self, now: WallTime, expires: WallTime) -> bool {
        now >= expires + self.epsilon
    }

    fn standing(&self, now: WallTime, expiry: Expiry) -> Standing {
        match expiry {
            Expiry::At(expires) if now < expires => Standing::Valid(expires),
            Expiry::At(expires) if now < expires + self.epsilon && !self.without_grace => {
                Standing::Grace(expires + self.epsilon)
            }
            Expiry::At(_) => Standing::Over,
            // Never stored by a Flease acceptor; waiting it out is the safe reading.
            Expiry::After(span) => Standing::Valid(now + span),
        }
    }

    fn owned_until(&self, _asked: WallTime, expiry: Expiry) -> WallTime {
        match expiry {
            Expiry::At(expires) => expires,
            Expiry::After(_) => WallTime::ZERO,
        }
    }
}
