//! PaxosLease: leases last for a span, and everybody counts it on a clock of their own.
//!
//! The safety argument is an order of events: the owner starts counting before it asks, an acceptor starts after
//! it was asked, so the owner stops first. The acceptor counts `1 + ρ` times as long, because its clock may be
//! faster by that much; the paper assumes equal rates.

use base::{Span, WallTime};

use crate::{Algorithm, Config, Expiry, Reject, Stamp, Standing};

/// The time rules of PaxosLease.
#[derive(Clone, Debug)]
pub struct PaxosRules {
    t_max: Span,
    rate_error_ppm: u32,
}

impl Algorithm for PaxosRules {
    const NAME: &'static str = "paxoslease";
    const EVERY_VOTE_IS_OPEN: bool = true;
    const CLOCKS_AGREE: bool = false;

    fn new(config: &Config) -> Self {
        Self { t_max: config.t_max, rate_error_ppm: config.rate_error_ppm }
    }

    fn quarantine(&self) -> Span {
        self.t_max.stretched(self.rate_error_ppm)
    }

    fn newcomer_silence(&self) -> Span {
        self.quarantine()
    }

    fn floor_after(&self, _start: WallTime) -> Stamp {
        // Whoever had a promise from before the start counts its lease from before the start: over by now.
        Stamp::ZERO
    }

    fn opening(&self, _now: WallTime) -> Stamp {
        Stamp(1)
    }

    fn horizon(&self, _now: WallTime) -> Stamp {
        // Counting one by one never leads there; a ballot beyond it comes from a broken node.
        Stamp(1 << 62)
    }

    fn is_too_old(&self, _now: WallTime, _sent: WallTime) -> bool {
        // The sender's clock says nothing about ours.
        false
    }

    fn term(&self, _now: WallTime, _until: Option<WallTime>) -> Expiry {
        Expiry::After(self.t_max)
    }

    fn respect_until(&self, now: WallTime, expiry: Expiry) -> Result<WallTime, Reject> {
        match expiry {
            Expiry::After(span) if span <= self.t_max => Ok(now + span.stretched(self.rate_error_ppm)),
            Expiry::After(_) => Err(Reject::LeaseTooLong),
            Expiry::At(_) => Err(Reject::Malformed),
        }
    }

    fn report(&self, now: WallTime, expires: WallTime) -> Expiry {
        Expiry::After(expires.since(now))
    }

    fn is_over(&self, now: WallTime, expires: WallTime) -> bool {
        now >= expires
    }

    fn standing(&self, now: WallTime, expiry: Expiry) -> Standing {
        match expiry {
            Expiry::After(Span::ZERO) => Standing::Over,
            Expiry::After(span) => Standing::Valid(now + span),
            Expiry::At(expires) => Standing::Valid(expires),
        }
    }

    fn owned_until(&self, asked: WallTime, expiry: Expiry) -> WallTime {
        match expiry {
            Expiry::After(span) => asked + span,
            Expiry::At(_) => WallTime::ZERO,
        }
    }
}
