//! Turning samples into figures.

use std::time::Duration;

/// The middle one of some rounds' figures, or halfway between the middle two, to a tenth; zero without rounds.
pub(crate) fn median(rounds: impl IntoIterator<Item = f64>) -> f64 {
    let mut rounds: Vec<f64> = rounds.into_iter().collect();
    rounds.sort_unstable_by(f64::total_cmp);
    let middle = match rounds.len() {
        0 => 0.0,
        count if count % 2 == 1 => rounds[count / 2],
        count => f64::midpoint(rounds[count / 2 - 1], rounds[count / 2]),
    };
    // More digits would claim more than any round repeats.
    (middle * 10.0).round() / 10.0
}

/// How many of `count` fit a second, if all of them took `elapsed`.
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
pub(crate) fn per_second(count: u64, elapsed: Duration) -> f64 {
    count as f64 / elapsed.as_secs_f64()
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
    fn rates_are_per_second() {
        assert_eq!(per_second(10, Duration::from_millis(500)).round(), 20.0);
    }
}
