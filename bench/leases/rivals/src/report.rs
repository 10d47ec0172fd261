//! What a measurement prints. Units stand at the end of each key.
//!
//! Any system measured beside these prints the same object, and its figures then stand in the same tables and plots.

use serde::{Deserialize, Serialize};

use crate::drive::Tally;
use crate::usage::Usage;

/// One run of one system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Measurement {
    pub(crate) system: String,
    /// In the servers' own words.
    pub(crate) version: String,
    pub(crate) members: usize,
    /// Below the servers' data; a system that keeps nothing there may leave it out.
    #[serde(default)]
    pub(crate) file_system: String,
    pub(crate) leases_per_request: u64,
    pub(crate) connections: usize,
    pub(crate) in_flight: usize,
    /// Leases granted before anything was timed.
    pub(crate) warm_up_leases: u64,
    /// Distinct leases asked for as fast as they were granted; one entry per batch.
    pub(crate) batches: Vec<Figures>,
    /// Leases asked for at a rate.
    pub(crate) rated: Option<Figures>,
    /// Leases kept alive, by a system whose leases are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kept: Option<Kept>,
}

/// Leases kept alive for a while.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) leases: u64,
    /// The longest life of one.
    pub(crate) t_max_ms: u64,
    pub(crate) seconds: f64,
    pub(crate) lost: u64,
    pub(crate) renewals_per_second: f64,
    /// Processor time of servers and driver.
    pub(crate) cpu_percent_of_machine: f64,
}

/// One timed stretch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    /// How many leases were to be asked for.
    pub(crate) leases: u64,
    /// Fewer than asked for if the time limit ended a batch, or if requests failed.
    pub(crate) granted: u64,
    /// Requests that gave no lease.
    pub(crate) failed: u64,
    pub(crate) first_failure: Option<String>,
    pub(crate) elapsed_s: f64,
    pub(crate) leases_per_second: f64,
    /// What was asked for; none in a batch.
    pub(crate) offered_per_second: Option<f64>,
    /// Share of the leases offered that were granted before the end; none in a batch.
    pub(crate) achieved_percent: Option<f64>,
    /// Of requests: from when they were due, at a rate; from when they were sent, in a batch.
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// User and system time of the servers.
    pub(crate) servers_cpu_s_per_1000: f64,
    /// The same of the process that asks them.
    pub(crate) driver_cpu_s_per_1000: f64,
    #[serde(flatten)]
    pub(crate) usage: Usage,
}

impl Figures {
    /// What came of asking for this many leases, at a rate if there is one.
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    pub(crate) fn new(leases: u64, rate: Option<f64>, mut tally: Tally, usage: Usage) -> Self {
        let elapsed_s = tally.elapsed.as_secs_f64().max(1e-9);
        let thousands = (tally.granted as f64 / 1_000.0).max(1e-9);
        Self {
            leases,
            granted: tally.granted,
            failed: tally.failed,
            elapsed_s,
            leases_per_second: tally.granted as f64 / elapsed_s,
            offered_per_second: rate,
            achieved_percent: rate.map(|_| tally.granted_in_time as f64 * 100.0 / leases.max(1) as f64),
            p50_us: f64::from(tally.percentile_us(50)),
            p99_us: f64::from(tally.percentile_us(99)),
            servers_cpu_s_per_1000: usage.servers_cpu_s / thousands,
            driver_cpu_s_per_1000: usage.driver_cpu_s / thousands,
            first_failure: tally.first_failure,
            usage,
        }
    }

    /// The middle of each figure over some rounds, and all that failed in them; none without rounds.
    pub(crate) fn middle(rounds: &[&Self]) -> Option<Self> {
        let first = rounds.first()?;
        let figure = |pick: fn(&Self) -> f64| median(rounds.iter().map(|round| pick(round)));
        let perhaps = |pick: fn(&Self) -> Option<f64>| {
            let known: Vec<f64> = rounds.iter().filter_map(|round| pick(round)).collect();
            (!known.is_empty()).then(|| median(known))
        };
        let least = rounds.iter().map(|round| round.granted).min();
        Some(Self {
            leases: first.leases,
            granted: least.unwrap_or_default(),
            failed: rounds.iter().map(|round| round.failed).sum(),
            first_failure: rounds.iter().find_map(|round| round.first_failure.clone()),
            elapsed_s: figure(|round| round.elapsed_s),
            leases_per_second: figure(|round| round.leases_per_second),
            offered_per_second: perhaps(|round| round.offered_per_second),
            achieved_percent: perhaps(|round| round.achieved_percent),
            p50_us: figure(|round| round.p50_us),
            p99_us: figure(|round| round.p99_us),
            servers_cpu_s_per_1000: figure(|round| round.servers_cpu_s_per_1000),
            driver_cpu_s_per_1000: figure(|round| round.driver_cpu_s_per_1000),
            usage: Usage {
                servers_cpu_s: figure(|round| round.usage.servers_cpu_s),
                driver_cpu_s: figure(|round| round.usage.driver_cpu_s),
                driver_percent_of_one: figure(|round| round.usage.driver_percent_of_one),
                others_percent: figure(|round| round.usage.others_percent),
                device_written_mib_s: perhaps(|round| round.usage.device_written_mib_s),
                device_operations_s: perhaps(|round| round.usage.device_operations_s),
            },
        })
    }
}

/// The middle one, or halfway between the middle two; zero of nothing.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        count if count % 2 == 1 => values[count / 2],
        count => f64::midpoint(values[count / 2 - 1], values[count / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_in_the_middle() {
        assert_eq!(median([]), 0.0);
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn rounds_give_their_middle_and_all_their_failures() {
        let round = |rate: f64, failed| Figures {
            leases_per_second: rate,
            failed,
            granted: 10 - failed,
            achieved_percent: Some(rate),
            ..Figures::default()
        };
        let (slow, fast, middle) = (round(1.0, 2), round(9.0, 0), round(3.0, 1));
        let all = Figures::middle(&[&slow, &fast, &middle]).unwrap();
        assert_eq!((all.leases_per_second, all.achieved_percent), (3.0, Some(3.0)));
        assert_eq!((all.failed, all.granted), (3, 8));
        assert_eq!(all.usage.device_written_mib_s, None);
        assert!(Figures::middle(&[]).is_none());
    }

    #[test]
    fn a_system_may_leave_out_what_it_cannot_know_and_say_more() {
        let text = r#"{"leases": 7, "granted": 7, "failed": 0, "first_failure": null, "elapsed_s": 1.0,
            "leases_per_second": 7.0, "offered_per_second": null, "achieved_percent": null, "p50_us": 1.0,
            "p99_us": 2.0, "servers_cpu_s_per_1000": 0.5, "driver_cpu_s_per_1000": 0.1, "timeouts": 3}"#;
        let figures: Figures = serde_json::from_str(text).unwrap();
        assert_eq!((figures.leases, figures.usage), (7, Usage::default()));
        assert!(serde_json::from_str::<Figures>("{}").is_err());
    }

    #[test]
    fn what_is_printed_can_be_read_back() {
        let figures = Figures { leases: 7, first_failure: Some("x".to_owned()), ..Figures::default() };
        let text = serde_json::to_string(&figures).unwrap();
        assert_eq!(serde_json::from_str::<Figures>(&text).unwrap(), figures);
    }
}
