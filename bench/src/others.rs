//! How much of the machine others used while something was measured.
//!
//! Throughput on all processors halves when another program keeps one of them busy, and nothing in the figures tells.
//! So a measurement says what else was going on. The kernel's work for interrupts is nobody's and not counted.

use std::fs;

/// What the processors have done so far, in the kernel's ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Processors {
    /// Spent in programs, ours among them.
    busy_ticks: u64,
    /// Spent in this process.
    own_ticks: u64,
    /// Passed, on all processors together.
    all_ticks: u64,
}

impl Processors {
    /// As of now; none where `/proc` cannot be read.
    pub(crate) fn now() -> Option<Self> {
        let machine = fs::read_to_string("/proc/stat").ok()?;
        let process = fs::read_to_string("/proc/self/stat").ok()?;
        Self::parse(&machine, &process)
    }

    /// The share of all processors' time, in percent, that other programs used since `before`.
    #[expect(clippy::cast_precision_loss, reason = "ticks far below 2^53")]
    pub(crate) fn others_percent_since(self, before: Self) -> f64 {
        let busy = self.busy_ticks.saturating_sub(before.busy_ticks);
        let own = self.own_ticks.saturating_sub(before.own_ticks);
        let all = self.all_ticks.saturating_sub(before.all_ticks).max(1);
        let percent = busy.saturating_sub(own) as f64 * 100.0 / all as f64;
        (percent * 10.0).round() / 10.0
    }

    fn parse(machine: &str, process: &str) -> Option<Self> {
        // cpu user nice system idle iowait irq softirq steal, then guests, which user and nice already contain
        let total = machine.lines().next()?.strip_prefix("cpu ")?;
        let ticks: Vec<u64> =
            total.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        // pid (name) state ..., of which utime and stime are the 14th and 15th; the name may contain blanks
        let (_, after_name) = process.rsplit_once(')')?;
        let mut times = after_name.split_whitespace().skip(11).map_while(|field| field.parse::<u64>().ok());
        Some(Self {
            busy_ticks: ticks.get(..3)?.iter().sum(),
            own_ticks: times.next()? + times.next()?,
            all_ticks: ticks.iter().sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: &str = "7 (a b) c) S 1 1 1 0 -1 4194304 100 0 0 0 30 12 0 0 20 0 1 0";

    #[test]
    fn others_are_all_but_ourselves() {
        let before = Processors { busy_ticks: 100, own_ticks: 0, all_ticks: 1_000 };
        let after = Processors::parse("cpu  150 0 50 700 100 0 200 0 0 0\ncpu0 1 2", PROCESS).unwrap();
        assert_eq!(after, Processors { busy_ticks: 200, own_ticks: 42, all_ticks: 1_200 });
        assert_eq!(after.others_percent_since(before), 29.0);
        assert_eq!(after.others_percent_since(after), 0.0);
    }

    #[test]
    fn a_foreign_format_is_no_answer() {
        assert_eq!(Processors::parse("processors: two", PROCESS), None);
        assert_eq!(Processors::parse("cpu  1 2 3", "7 (x"), None);
    }

    #[test]
    fn this_machine_answers() {
        let now = Processors::now().unwrap();
        assert!(now.all_ticks >= now.busy_ticks && now.busy_ticks >= now.own_ticks, "{now:?}");
    }
}
