//! The clocks of a client: the only place of this crate that reads them.

use std::time::Duration;

use base::{MonoTime, WallTime};
use rustix::time::{ClockId, Timespec};

/// The time since the machine's start, suspended or not: what sessions are measured by.
pub(crate) fn now() -> MonoTime {
    MonoTime::from_micros(micros(rustix::time::clock_gettime(ClockId::Boottime)))
}

/// How long ago that was.
pub(crate) fn elapsed(start: MonoTime) -> Duration {
    Duration::from_micros(now().since(start).as_micros())
}

/// The time of day: what certificates are checked by.
pub(crate) fn wall() -> WallTime {
    WallTime::from_micros(micros(rustix::time::clock_gettime(ClockId::Realtime)))
}

/// A clock set to a year before 1970 reads as 1970.
fn micros(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000)
}
