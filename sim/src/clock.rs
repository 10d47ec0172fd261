//! Clocks: from true time to what a node believes.
//!
//! A clock runs at a rate that may change, may step, and (for Flease) never leaves a window of width ε around true
//! time, so that any two clocks agree within ε at every instant. Where a drifting clock meets the edge of its window
//! it creeps along the edge, as a disciplined clock does.

use std::fmt;
use std::ops::Add;

use base::{Random, Span, WallTime};

const PPM: i64 = 1_000_000;

/// Further ahead than any wait of a run, and near enough for the arithmetic in microseconds times millionths.
const AHEAD_MAX: i64 = 1 << 40;

/// Microseconds since the simulation began; only the world and the checkers know it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TrueTime(u64);

/// How the clocks of one run behave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockPlan {
    /// What an exact clock shows when the simulation begins.
    pub start: WallTime,
    /// The bound ε on the difference of any two clocks, or none if clocks only promise their rate.
    pub window: Option<Span>,
    /// How far clocks without such a bound are apart.
    pub apart: Span,
    /// How fast or slow a clock may run, in millionths.
    pub rate_ppm_max: i32,
    /// Whether a clock may step while its node runs. Only within a window.
    pub steps: bool,
}

/// One node's clock.
#[derive(Clone, Debug)]
pub struct Clock {
    window: Option<Window>,
    anchor: TrueTime,
    anchor_reading: i64,
    rate_ppm: i32,
    /// Whether it is on its own, outside of its window or on its way back.
    astray: bool,
}

/// True time plus `base`, give or take `half`.
#[derive(Clone, Copy, Debug)]
struct Window {
    base: i64,
    half: i64,
}

impl TrueTime {
    /// The beginning.
    pub const ZERO: Self = Self(0);

    /// The time `micros` microseconds after the beginning.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the beginning.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// The time passed since `earlier`, zero if that lies ahead.
    pub const fn since(self, earlier: Self) -> Span {
        Span::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Clock {
    /// A clock somewhere in its window when the simulation begins.
    pub fn new(plan: &ClockPlan, random: &mut Random) -> Self {
        let base = signed(plan.start.as_micros());
        let window = plan.window.map(|width| Window { base, half: signed(width.as_micros() / 2) });
        let mut clock =
            Self { window, anchor: TrueTime::ZERO, anchor_reading: base, rate_ppm: 0, astray: false };
        match window {
            Some(_) => clock.step(TrueTime::ZERO, random),
            None => clock.anchor_reading += signed(random.below(plan.apart.as_micros())),
        }
        clock.set_rate(TrueTime::ZERO, draw_rate(plan.rate_ppm_max, random));
        clock
    }

    /// What the clock shows.
    pub fn reading(&self, at: TrueTime) -> WallTime {
        let passed = signed(at.since(self.anchor).as_micros());
        let linear = self.anchor_reading + passed + passed * i64::from(self.rate_ppm) / PPM;
        let reading = match self.window {
            Some(window) if !self.astray => linear.clamp(window.low(at), window.high(at)),
            _ => linear,
        };
        WallTime::from_micros(u64::try_from(reading.max(0)).unwrap_or(u64::MAX))
    }

    /// The first true time, not before `from`, at which the clock shows at least `reading` if nobody touches it.
    pub fn when(&self, from: TrueTime, reading: WallTime) -> TrueTime {
        let missing = self.missing(from, reading);
        if missing <= 0 {
            return from;
        }
        if i64::from(self.rate_ppm) <= -PPM {
            return from + micros(AHEAD_MAX);
        }
        // No slower than the slowest rate, so this is not late; the loop makes up what is missing.
        let fastest = PPM + i64::from(self.rate_ppm.max(0));
        let mut at = from + micros(missing * PPM / fastest);
        if missing == AHEAD_MAX {
            return at;
        }
        loop {
            let missing = self.missing(at, reading);
            if missing <= 0 {
                return at;
            }
            at = at + micros((missing * PPM / fastest).max(1));
        }
    }

    /// How far the clock is behind `reading`, as far as it matters.
    fn missing(&self, at: TrueTime, reading: WallTime) -> i64 {
        (signed(reading.as_micros()) - signed(self.reading(at).as_micros())).min(AHEAD_MAX)
    }

    /// From now on it runs `ppm` millionths fast.
    pub fn set_rate(&mut self, at: TrueTime, ppm: i32) {
        self.anchor_reading = signed(self.reading(at).as_micros());
        (self.anchor, self.rate_ppm) = (at, ppm);
    }

    /// Leaves its window at this rate, as no disciplined clock does.
    pub fn stray(&mut self, at: TrueTime, ppm: i32) {
        self.set_rate(at, ppm);
        self.astray = self.window.is_some();
    }

    /// Shows so many microseconds more from now on, or less, whatever its window is.
    pub fn leap(&mut self, at: TrueTime, by_us: i64) {
        let reading = signed(self.reading(at).as_micros());
        (self.anchor, self.anchor_reading) = (at, reading.saturating_add(by_us));
        self.astray = self.window.is_some();
    }

    /// Turns back to its window, as fast as `ppm`. True once it is there.
    pub fn come_back(&mut self, at: TrueTime, ppm: i32) -> bool {
        let Some(window) = self.window.filter(|_| self.astray) else { return true };
        let reading = signed(self.reading(at).as_micros());
        let is_back = (window.low(at)..=window.high(at)).contains(&reading);
        let rate = if reading > window.high(at) { -ppm } else { ppm };
        self.set_rate(at, if is_back { 0 } else { rate });
        self.astray = !is_back;
        is_back
    }

    /// Whether it is outside of its window or on its way back.
    pub const fn is_astray(&self) -> bool {
        self.astray
    }

    /// Whether it shows more than any clock in its window.
    pub fn is_ahead(&self, at: TrueTime) -> bool {
        self.window.is_some_and(|window| signed(self.reading(at).as_micros()) > window.high(at))
    }

    /// Steps to anywhere in the window. A clock without one does not step.
    pub fn step(&mut self, at: TrueTime, random: &mut Random) {
        let Some(window) = self.window else { return };
        let width = u64::try_from(window.half * 2).unwrap_or(0);
        // The edges are where mistakes hide.
        let drawn = match random.below(4) {
            0 => 0,
            1 => width,
            _ => random.between(0, width),
        };
        (self.anchor, self.anchor_reading, self.astray) = (at, window.low(at) + signed(drawn), false);
    }

    /// Steps forward to `mark` if the clock shows less: node time never starts below the mark kept on disk.
    pub fn raise_to(&mut self, at: TrueTime, mark: WallTime) {
        let reading = self.reading(at).max(mark);
        (self.anchor, self.anchor_reading) = (at, signed(reading.as_micros()));
    }
}

impl Window {
    fn low(self, at: TrueTime) -> i64 {
        self.base + signed(at.0) - self.half
    }

    fn high(self, at: TrueTime) -> i64 {
        self.base + signed(at.0) + self.half
    }
}

/// A rate within `max`, often at its edge.
pub fn draw_rate(max: i32, random: &mut Random) -> i32 {
    match random.below(4) {
        0 => max,
        1 => -max,
        _ => {
            let drawn = random.between(0, u64::from(max.unsigned_abs()) * 2);
            i32::try_from(drawn).map_or(0, |drawn| drawn - max)
        }
    }
}

fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

fn micros(count: i64) -> Span {
    Span::from_micros(u64::try_from(count).unwrap_or(u64::MAX))
}

impl Add<Span> for TrueTime {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.as_micros()))
    }
}

impl fmt::Debug for TrueTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for TrueTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(window: Option<Span>) -> ClockPlan {
        ClockPlan {
            start: WallTime::from_micros(1 << 50),
            window,
            apart: Span::from_secs(1),
            rate_ppm_max: 50_000,
            steps: true,
        }
    }

    fn at(millis: u64) -> TrueTime {
        TrueTime::from_micros(millis * 1000)
    }

    #[test]
    fn any_two_clocks_agree_within_the_window_at_every_instant() {
        let mut random = Random::new(1);
        let epsilon = Span::from_millis(100);
        let mut clocks: Vec<Clock> = (0..5).map(|_| Clock::new(&plan(Some(epsilon)), &mut random)).collect();
        let mut widest = Span::ZERO;
        for millis in 0..20_000 {
            let clock = &mut clocks[random.index(5)];
            match random.below(50) {
                0 => clock.step(at(millis), &mut random),
                1 => clock.set_rate(at(millis), draw_rate(50_000, &mut random)),
                _ => {}
            }
            let readings = || clocks.iter().map(|clock| clock.reading(at(millis)));
            widest = widest.max(readings().max().unwrap().since(readings().min().unwrap()));
        }
        assert_eq!(widest, epsilon, "the bound is kept and reached");
    }

    #[test]
    fn a_clock_knows_when_it_will_show_a_time() {
        let mut random = Random::new(2);
        for window in [None, Some(Span::from_millis(20))] {
            for _ in 0..500 {
                let clock = Clock::new(&plan(window), &mut random);
                let from = at(random.below(1000));
                let target = clock.reading(from) + Span::from_micros(random.below(3_000_000));
                let when = clock.when(from, target);
                let before = TrueTime::from_micros(when.as_micros().saturating_sub(1));
                assert!(clock.reading(when) >= target);
                assert!(when == from || clock.reading(before) < target, "not a microsecond late");
            }
        }
    }

    #[test]
    fn a_clock_that_went_astray_comes_back() {
        let mut clock = Clock::new(&plan(Some(Span::from_millis(20))), &mut Random::new(5));
        let exact = |millis: u64| WallTime::from_micros((1 << 50) + millis * 1_000);
        clock.stray(at(0), 20_000);
        assert!(clock.reading(at(5_000)) > exact(5_000) + Span::from_millis(60) && clock.is_ahead(at(5_000)));
        assert!(!clock.come_back(at(5_000), 20_000));
        assert!(clock.reading(at(6_000)) > exact(6_000) + Span::from_millis(40), "no step");
        assert!(clock.come_back(at(10_000), 20_000) && !clock.is_ahead(at(10_000)));
    }

    #[test]
    fn a_clock_that_stands_still_never_shows_a_later_time() {
        let mut clock = Clock::new(&plan(Some(Span::from_millis(20))), &mut Random::new(6));
        clock.stray(at(100), -1_000_000);
        let shown = clock.reading(at(100));
        assert_eq!(clock.reading(at(9_000)), shown);
        assert!(clock.when(at(100), shown + Span::from_micros(1)) > at(1_000_000_000));
        assert_eq!(clock.when(at(100), shown), at(100));
    }

    #[test]
    fn a_clock_that_leaps_is_put_right_by_a_step() {
        let mut clock = Clock::new(&plan(Some(Span::from_millis(20))), &mut Random::new(7));
        let exact = |millis: u64| WallTime::from_micros((1 << 50) + millis * 1_000);
        clock.leap(at(100), 5_000_000);
        assert!(clock.reading(at(100)) > exact(5_000));
        clock.leap(at(200), -9_000_000);
        assert!(clock.reading(at(200)) < exact(0));
        clock.step(at(300), &mut Random::new(8));
        assert!(clock.reading(at(300)) >= exact(290) && clock.reading(at(300)) <= exact(310));
    }

    #[test]
    fn a_restart_never_shows_less_than_the_mark() {
        let mut clock = Clock::new(&plan(Some(Span::from_millis(100))), &mut Random::new(3));
        let mark = clock.reading(at(500));
        clock.step(at(501), &mut Random::new(4));
        clock.raise_to(at(501), mark);
        assert!(clock.reading(at(501)) >= mark);
    }
}
