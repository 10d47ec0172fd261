//! Ballots: the total order of all attempts on a cell.
//!
//! A ballot is `(interval, round, node, incarnation)`. The interval is the time divided by `t_max - ε`, so that
//! ballots keep growing across restarts without a disk; the round orders attempts within an interval; node and
//! incarnation make it unique. Interval and round share one word, the *stamp*: counting past the last round of an
//! interval carries into the next interval, which keeps ballots unique and growing.

use std::fmt;

use base::{Process, Span, WallTime};

const ROUND_BITS: u32 = 24;

/// The highest round within an interval.
pub const ROUND_MAX: u32 = (1 << ROUND_BITS) - 1;

/// The highest interval: at `t_max - ε` of 10 ms it is reached after 348 years, at 1.9 s after 66,000.
pub const INTERVAL_MAX: u64 = (1 << (64 - ROUND_BITS)) - 1;

/// Interval and round of a ballot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stamp(pub u64);

/// One attempt on a cell; no ballot is ever used for two attempts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ballot {
    /// When, and the how manieth of that time.
    pub stamp: Stamp,
    /// Whose attempt it is.
    pub process: Process,
}

impl Stamp {
    /// The lowest stamp there is; no proposer uses it.
    pub const ZERO: Self = Self(0);
    /// The highest stamp there is.
    pub const MAX: Self = Self(u64::MAX);

    /// The stamp of a round within an interval. Both saturate.
    pub const fn new(interval: u64, round: u32) -> Self {
        let interval = if interval > INTERVAL_MAX { INTERVAL_MAX } else { interval };
        let round = if round > ROUND_MAX { ROUND_MAX } else { round };
        Self(interval << ROUND_BITS | round as u64)
    }

    /// The interval that `time` lies in.
    pub const fn interval_at(time: WallTime, length: Span) -> u64 {
        time.as_micros() / length.as_micros()
    }

    /// The first stamp of the interval that `time` lies in.
    pub const fn first_at(time: WallTime, length: Span) -> Self {
        Self::new(Self::interval_at(time, length), 0)
    }

    /// The last stamp of the interval that `time` lies in.
    pub const fn last_at(time: WallTime, length: Span) -> Self {
        Self::new(Self::interval_at(time, length), ROUND_MAX)
    }

    /// The interval.
    pub const fn interval(self) -> u64 {
        self.0 >> ROUND_BITS
    }

    /// The round within the interval.
    #[expect(clippy::cast_possible_truncation, reason = "the mask leaves 24 bits")]
    pub const fn round(self) -> u32 {
        (self.0 & ROUND_MAX as u64) as u32
    }

    /// The next stamp, if there is one.
    pub const fn next(self) -> Option<Self> {
        match self.0.checked_add(1) {
            Some(stamp) => Some(Self(stamp)),
            None => None,
        }
    }
}

impl Ballot {
    /// Below every ballot in use: what an untouched register has promised.
    pub const ZERO: Self = Self { stamp: Stamp::ZERO, process: Process::new(0, 0) };

    /// The highest ballot with this stamp, whoever may use it.
    pub const fn ceiling_of(stamp: Stamp) -> Self {
        Self { stamp, process: Process::new(u32::MAX, u32::MAX) }
    }
}

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.interval(), self.round())
    }
}

impl fmt::Debug for Ballot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}@{:?}", self.stamp, self.process)
    }
}
