//! Turning samples into figures.

use std::time::Duration;

/// The times of single operations, for percentiles.
#[derive(Default)]
pub(crate) struct Latencies(Vec<Duration>);

impl Latencies {
    pub(crate) fn with_capacity(operations: u32) -> Self {
        Self(Vec::with_capacity(operations as usize))
    }

    pub(crate) fn push(&mut self, latency: Duration) {
        self.0.push(latency);
    }

    pub(crate) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// How long all of them took.
    pub(crate) fn sum(&self) -> Duration {
        self.0.iter().sum()
    }

    /// How many there are.
    pub(crate) const fn count(&self) -> u64 {
        self.0.len() as u64
    }

    /// The time in microseconds within which this many of a hundred operations were done; zero without samples.
    pub(crate) fn percentile_us(&mut self, percent: usize) -> f64 {
        self.0.sort_unstable();
        let rank = (self.0.len() * percent).div_ceil(100).saturating_sub(1);
        self.0.get(rank).map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
    }
}

/// One round of one part.
pub(crate) struct Round {
    pub(crate) per_s: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Round {
    pub(crate) fn new(per_s: f64, mut latencies: Latencies) -> Self {
        Self { per_s, p50_us: latencies.percentile_us(50), p99_us: latencies.percentile_us(99) }
    }
}

/// How many there were a second, and their percentiles, each the median of its rounds.
pub(crate) fn medians(rounds: &[Round]) -> [f64; 3] {
    let figures: [fn(&Round) -> f64; 3] = [|round| round.per_s, |round| round.p50_us, |round| round.p99_us];
    figures.map(|figure| median(rounds.iter().map(figure)))
}

/// The middle one of some rounds' figures to a tenth: more digits would claim more than any round repeats.
pub(crate) fn median(rounds: impl IntoIterator<Item = f64>) -> f64 {
    (middle(rounds) * 10.0).round() / 10.0
}

/// The middle one of some rounds' figures, or halfway between the middle two; zero without rounds.
pub(crate) fn middle(rounds: impl IntoIterator<Item = f64>) -> f64 {
    let mut rounds: Vec<f64> = rounds.into_iter().collect();
    rounds.sort_unstable_by(f64::total_cmp);
    match rounds.len() {
        0 => 0.0,
        count if count % 2 == 1 => rounds[count / 2],
        count => f64::midpoint(rounds[count / 2 - 1], rounds[count / 2]),
    }
}

/// How many of `count` fit a second, if all of them took `elapsed`.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
}

/// The same for bytes, in MiB.
pub(crate) fn mib_per_second(bytes: u64, elapsed: Duration) -> f64 {
    per_second(bytes, elapsed) / f64::from(1 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median([]), 0.0);
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.04]), 2.5);
    }

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut latencies = Latencies::with_capacity(100);
        assert_eq!(latencies.percentile_us(50), 0.0);
        (1..=100).rev().for_each(|micros| latencies.push(Duration::from_micros(micros)));
        assert_eq!(latencies.percentile_us(50).round(), 50.0);
        assert_eq!(latencies.percentile_us(99).round(), 99.0);
        let mut one = Latencies::default();
        one.push(Duration::from_micros(7));
        assert_eq!(one.percentile_us(99).round(), 7.0);
    }

    #[test]
    fn rates_are_per_second() {
        assert_eq!(per_second(10, Duration::from_millis(500)).round(), 20.0);
        assert_eq!(mib_per_second(3 << 20, Duration::from_secs(1)).round(), 3.0);
    }
}
