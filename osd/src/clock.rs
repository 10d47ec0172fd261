//! Node time: the only place of a daemon that reads clocks.
//!
//! Node time is the wall time at the start, corrected once by what a majority of the peers has, plus the time since
//! on `CLOCK_BOOTTIME`. It never jumps, and it counts while the machine is suspended; whether it drifts away from
//! the peers' is for the clock guard to find. The wall clock is not looked at again.

use std::env;

use base::{MonoTime, Span, WallTime};
use node::corrected;
use rustix::time::{ClockId, Timespec};

/// For tests of whole clusters only: by how many milliseconds this process takes the wall clock to be fast.
///
/// A machine has one wall clock, and daemons whose clocks differ are not to be had otherwise.
pub const TEST_OFFSET_VARIABLE: &str = "FLEASEFS_TEST_CLOCK_OFFSET_MS";

/// Node time, once it is fixed. Copies agree with each other.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// Node time when `since_boot` was read.
    fixed: WallTime,
    since_boot: MonoTime,
}

/// Both clocks at one instant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reading {
    /// What the machine takes for the time of day.
    pub wall: WallTime,
    /// How long the machine has been up, suspended or not.
    pub since_boot: MonoTime,
}

/// Node time would be below what was used before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "the clock is {by} behind the time that this node has used before; wait as long, or set the clock if it is wrong"
)]
pub struct Behind {
    /// How long to wait.
    pub by: Span,
}

/// The offset for tests is no number.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{TEST_OFFSET_VARIABLE} is `{0}`; it is for tests and takes a number of milliseconds, so unset it")]
pub struct OffsetError(String);

/// How often the clocks are read to find a pair of readings close to each other.
const ATTEMPTS: u32 = 5;

impl Clock {
    /// Fixes node time as `reading` plus `correction_us`, unless it would then be below `floor`.
    ///
    /// The floor is what the store gives at the start, asked once: a floor that is asked for again moves on with the
    /// clock, and waiting would not help.
    pub fn fix(reading: Reading, correction_us: i64, floor: WallTime) -> Result<Self, Behind> {
        let fixed = corrected(reading.wall, correction_us);
        if fixed < floor {
            return Err(Behind { by: floor.since(fixed) });
        }
        Ok(Self { fixed, since_boot: reading.since_boot })
    }

    /// What stands for node time before it is fixed: good for asking others for theirs, and for nothing else.
    pub const fn unfixed(reading: Reading) -> Self {
        Self { fixed: reading.wall, since_boot: reading.since_boot }
    }

    /// The time of this node.
    pub fn now(&self) -> WallTime {
        self.at(since_boot())
    }

    /// The time of this node when the clock since boot read `since_boot`.
    pub fn at(&self, since_boot: MonoTime) -> WallTime {
        self.fixed + since_boot.since(self.since_boot)
    }
}

impl Reading {
    /// Reads both clocks, with the offset of [`TEST_OFFSET_VARIABLE`].
    pub fn take() -> Result<Self, OffsetError> {
        let offset_us = offset_us(env::var(TEST_OFFSET_VARIABLE).ok())?;
        // Between the two readings the process may have to wait for the processor: the closest pair counts.
        let read = || {
            let (before, wall, after) = (since_boot(), wall(), since_boot());
            let reading = Self { wall: corrected(wall, offset_us), since_boot: before };
            (after.since(before), reading)
        };
        let closer = |best: (Span, Self), next: (Span, Self)| if next.0 < best.0 { next } else { best };
        Ok((1..ATTEMPTS).map(|_| read()).fold(read(), closer).1)
    }
}

/// How long the machine has been up, suspended or not.
pub fn since_boot() -> MonoTime {
    MonoTime::from_micros(micros(rustix::time::clock_gettime(ClockId::Boottime)))
}

fn wall() -> WallTime {
    WallTime::from_micros(micros(rustix::time::clock_gettime(ClockId::Realtime)))
}

/// A wall clock set to a year before 1970 reads as 1970.
fn micros(time: Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0) / 1_000)
}

fn offset_us(variable: Option<String>) -> Result<i64, OffsetError> {
    let Some(text) = variable else { return Ok(0) };
    text.parse::<i64>().ok().and_then(|ms| ms.checked_mul(1_000)).ok_or(OffsetError(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    const READING: Reading =
        Reading { wall: WallTime::from_micros(1_000), since_boot: MonoTime::from_micros(100) };

    #[test]
    fn node_time_is_the_corrected_start_plus_the_time_since() {
        let clock = Clock::fix(READING, -50, WallTime::ZERO).unwrap();
        assert_eq!(clock.at(MonoTime::from_micros(100)), WallTime::from_micros(950));
        assert_eq!(clock.at(MonoTime::from_micros(130)), WallTime::from_micros(980));
        let ahead = Clock::fix(READING, 50, WallTime::ZERO).unwrap();
        assert_eq!(ahead.at(MonoTime::from_micros(100)), WallTime::from_micros(1_050));
    }

    #[test]
    fn node_time_does_not_start_below_the_floor() {
        let floor = WallTime::from_micros(1_010);
        assert_eq!(Clock::fix(READING, 0, floor).unwrap_err(), Behind { by: Span::from_micros(10) });
        assert_eq!(Clock::fix(READING, 10, floor).unwrap().at(READING.since_boot), floor);
        let later = Reading { wall: floor, since_boot: MonoTime::from_micros(110) };
        assert_eq!(Clock::fix(later, 0, floor).unwrap().at(later.since_boot), floor, "waiting helps");
    }

    #[test]
    fn the_clocks_of_this_machine_move_on() {
        let reading = Reading::take().unwrap();
        // 2020: this machine knows roughly what day it is.
        assert!(reading.wall > WallTime::from_micros(1_577_836_800_000_000), "{reading:?}");
        let clock = Clock::fix(reading, 0, WallTime::ZERO).unwrap();
        let (first, mut last) = (clock.now(), clock.now());
        while last == first {
            last = clock.now();
        }
        assert!(last > first && first >= reading.wall);
    }

    #[test]
    fn the_offset_for_tests_is_a_number_of_milliseconds() {
        assert_eq!(offset_us(None), Ok(0));
        assert_eq!(offset_us(Some("-3".to_owned())), Ok(-3_000));
        for text in ["", "soon", "9223372036854775807"] {
            assert_eq!(offset_us(Some(text.to_owned())), Err(OffsetError(text.to_owned())));
        }
    }
}
