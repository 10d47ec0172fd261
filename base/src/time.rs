//! Time as plain values: nothing in this crate reads a clock.
//!
//! Arithmetic saturates: a deadline computed at the end of a clock's range stays at the end of the range,
//! and a difference never wraps into a huge wait.

use std::fmt;
use std::ops::{Add, Div, Mul, Sub};

use serde::{Deserialize, Serialize};

const MICROS_PER_MILLI: u64 = 1_000;
const MICROS_PER_SECOND: u64 = 1_000_000;
const PPM: u128 = 1_000_000;

/// A length of time in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Span(u64);

/// A reading of the node's clock, comparable between nodes within ε: microseconds since 1970.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct WallTime(u64);

/// A reading of one machine's monotonic clock, meaningless elsewhere: microseconds since its boot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct MonoTime(u64);

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span; adding it to any time gives the end of time.
    pub const MAX: Self = Self(u64::MAX);

    /// A span of whole microseconds.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// A span of whole milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(MICROS_PER_MILLI))
    }

    /// A span of whole seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(MICROS_PER_SECOND))
    }

    /// The span in microseconds.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The span in seconds, for people to read.
    #[expect(clippy::cast_precision_loss, reason = "for display; exact below 285 years")]
    pub const fn as_secs_f64(self) -> f64 {
        self.0 as f64 / MICROS_PER_SECOND as f64
    }

    /// This span as a clock that runs up to `ppm` millionths fast would need to measure it: `span × (1 + rate)`.
    pub const fn stretched(self, ppm: u32) -> Self {
        let wide = self.0 as u128 * (PPM + ppm as u128);
        let micros = wide.div_ceil(PPM);
        #[expect(clippy::cast_possible_truncation, reason = "compared with the maximum just before")]
        if micros > u64::MAX as u128 { Self::MAX } else { Self(micros as u64) }
    }

    /// The difference, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl WallTime {
    /// The beginning of time.
    pub const ZERO: Self = Self(0);
    /// The end of time.
    pub const MAX: Self = Self(u64::MAX);

    /// The time `micros` microseconds after 1970 began.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970 began.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time passed since `earlier`, zero if that lies ahead.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// The last multiple of `step` that is not later, so that what is due at about the same time is done together.
    pub const fn rounded_down(self, step: Span) -> Self {
        Self(rounded_down(self.0, step))
    }

    /// The first multiple of `step` that is later.
    pub const fn next_step(self, step: Span) -> Self {
        Self(rounded_down(self.0 + step.0, step))
    }
}

impl MonoTime {
    /// The reading `micros` microseconds after boot.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since boot.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The last multiple of `step` that is not later, so that what is due at about the same time is done together.
    pub const fn rounded_down(self, step: Span) -> Self {
        Self(rounded_down(self.0, step))
    }

    /// The time `span` before, not before the beginning.
    pub const fn saturating_sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// The time passed since `earlier`, zero if that lies ahead.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

const fn rounded_down(time: u64, step: Span) -> u64 {
    if step.0 == 0 { time } else { time - time % step.0 }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl Div<u64> for Span {
    type Output = Self;
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl Add<Span> for WallTime {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Sub<Span> for WallTime {
    type Output = Self;
    fn sub(self, span: Span) -> Self {
        Self(self.0.saturating_sub(span.0))
    }
}

impl Add<Span> for MonoTime {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            micros if micros % MICROS_PER_SECOND == 0 => write!(f, "{}s", micros / MICROS_PER_SECOND),
            micros if micros % MICROS_PER_MILLI == 0 => write!(f, "{}ms", micros / MICROS_PER_MILLI),
            micros => write!(f, "{micros}us"),
        }
    }
}

impl fmt::Debug for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / MICROS_PER_SECOND, self.0 % MICROS_PER_SECOND)
    }
}

impl fmt::Debug for MonoTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{}.{:06}", self.0 / MICROS_PER_SECOND, self.0 % MICROS_PER_SECOND)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        assert_eq!(WallTime::MAX + Span::from_secs(1), WallTime::MAX);
        assert_eq!(WallTime::ZERO - Span::from_secs(1), WallTime::ZERO);
        assert_eq!(WallTime::ZERO.since(WallTime::MAX), Span::ZERO);
        assert_eq!(Span::MAX.stretched(1), Span::MAX);
    }

    #[test]
    fn stretching_rounds_up() {
        assert_eq!(Span::from_micros(10).stretched(120_000), Span::from_micros(12));
        assert_eq!(Span::from_millis(800).stretched(120_000), Span::from_millis(896));
    }

    #[test]
    fn times_are_rounded_down_to_a_step_if_there_is_one() {
        let (time, step) = (MonoTime::from_micros(1_299_999), Span::from_millis(100));
        assert_eq!(time.rounded_down(step), MonoTime::from_micros(1_200_000));
        assert_eq!(MonoTime::from_micros(1_200_000).rounded_down(step), MonoTime::from_micros(1_200_000));
        assert_eq!(time.rounded_down(Span::ZERO), time);
    }

    #[test]
    fn the_next_step_is_always_later() {
        let step = Span::from_millis(100);
        for micros in [1_200_000, 1_299_999] {
            assert_eq!(WallTime::from_micros(micros).next_step(step), WallTime::from_micros(1_300_000));
        }
    }

    #[test]
    fn spans_print_in_the_largest_whole_unit() {
        let shown = [Span::from_secs(2), Span::from_millis(100), Span::from_micros(7)].map(|s| s.to_string());
        assert_eq!(shown, ["2s", "100ms", "7us"]);
    }
}
