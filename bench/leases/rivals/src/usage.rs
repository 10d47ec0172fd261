//! What something cost: time of processors by process, and what reached the device.

use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A measurement in progress.
pub(crate) struct Meter {
    servers: Vec<u32>,
    device: Option<PathBuf>,
    before: Reading,
}

/// What a span of time cost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Usage {
    /// User and system time of the servers' processes.
    pub(crate) servers_cpu_s: f64,
    /// User and system time of the process that asks them.
    pub(crate) driver_cpu_s: f64,
    /// Share of one processor that the driver, which is one thread, took.
    pub(crate) driver_percent_of_one: f64,
    /// Share of all processors' time that anything else took, the load on the disk among it.
    pub(crate) others_percent: f64,
    /// Written to the device below the servers' directory by anybody; none if it lies on none.
    pub(crate) device_written_mib_s: Option<f64>,
    /// Writes and flushes that the device finished.
    pub(crate) device_operations_s: Option<f64>,
}

/// The state of all counters at one time.
struct Reading {
    at: Instant,
    servers: Duration,
    driver: Duration,
    /// Of all processors: busy with programs, and altogether.
    machine: (Duration, Duration),
    device: Option<DeviceCounters>,
}

#[derive(Clone, Copy)]
struct DeviceCounters {
    operations: u64,
    written_bytes: u64,
}

impl Meter {
    /// Starts to measure these servers, whose data are in `dir`.
    pub(crate) fn start(servers: Vec<u32>, dir: &Path) -> Self {
        let device = device_below(dir);
        let before = Reading::now(&servers, device.as_deref());
        Self { servers, device, before }
    }

    /// What it has cost so far.
    #[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
    pub(crate) fn read(&self) -> Usage {
        let (before, now) = (&self.before, Reading::now(&self.servers, self.device.as_deref()));
        let elapsed_s = (now.at - before.at).as_secs_f64().max(1e-9);
        let servers_cpu_s = now.servers.saturating_sub(before.servers).as_secs_f64();
        let driver_cpu_s = now.driver.saturating_sub(before.driver).as_secs_f64();
        let busy_s = now.machine.0.saturating_sub(before.machine.0).as_secs_f64();
        let all_s = now.machine.1.saturating_sub(before.machine.1).as_secs_f64().max(0.01);
        let device = before.device.zip(now.device);
        Usage {
            servers_cpu_s,
            driver_cpu_s,
            driver_percent_of_one: driver_cpu_s / elapsed_s * 100.0,
            others_percent: (busy_s - servers_cpu_s - driver_cpu_s).max(0.0) / all_s * 100.0,
            device_written_mib_s: device.map(|(before, now)| {
                let bytes = now.written_bytes.saturating_sub(before.written_bytes);
                bytes as f64 / f64::from(1 << 20) / elapsed_s
            }),
            device_operations_s: device
                .map(|(before, now)| now.operations.saturating_sub(before.operations) as f64 / elapsed_s),
        }
    }
}

impl Reading {
    fn now(servers: &[u32], device: Option<&Path>) -> Self {
        let cpu = |process: String| {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok();
            stat.and_then(|stat| process_time(&stat)).unwrap_or_default()
        };
        let machine = fs::read_to_string("/proc/stat").ok();
        let counters = device.and_then(|device| fs::read_to_string(device).ok());
        Self {
            at: Instant::now(),
            servers: servers.iter().map(|pid| cpu(pid.to_string())).sum(),
            driver: cpu("self".to_owned()),
            machine: machine.and_then(|stat| machine_time(&stat)).unwrap_or_default(),
            device: counters.and_then(|stat| device_counters(&stat)),
        }
    }
}

/// User and system time of all threads of a process, those that ended included.
fn process_time(stat: &str) -> Option<Duration> {
    // pid (name) state ..., of which utime and stime are the 14th and 15th; the name may contain blanks
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut ticks = after_name.split_whitespace().skip(11).map_while(|field| field.parse::<u64>().ok());
    Some(from_ticks(ticks.next()? + ticks.next()?))
}

/// Time of all processors together: in programs, and altogether.
fn machine_time(stat: &str) -> Option<(Duration, Duration)> {
    // cpu user nice system idle iowait irq softirq steal, then guests, which user and nice already contain
    let total = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = total.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
    Some((from_ticks(ticks.get(..3)?.iter().sum()), from_ticks(ticks.iter().sum())))
}

fn device_counters(stat: &str) -> Option<DeviceCounters> {
    // Reads (4 fields), writes: finished, merged, sectors, ms; 3 of the queue; discards (4); flushes: finished, ms.
    let fields: Vec<u64> = stat.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let flushes = fields.get(15).copied().unwrap_or_default();
    Some(DeviceCounters { operations: fields.get(4)? + flushes, written_bytes: fields.get(6)? * 512 })
}

/// The counters of the block device that `dir` lies on.
fn device_below(dir: &Path) -> Option<PathBuf> {
    let number = fs::metadata(dir).ok()?.st_dev();
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let counters = PathBuf::from(format!("/sys/dev/block/{major}:{minor}/stat"));
    counters.exists().then_some(counters)
}

#[expect(clippy::cast_precision_loss, reason = "ticks far below 2^53")]
fn from_ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_from_their_fields() {
        let tick = from_ticks(1);
        let process = "7 (a b) c) S 1 1 1 0 -1 4194304 100 0 0 0 30 12 0 0 20 0 1 0";
        assert_eq!(process_time(process), Some(tick * 42));
        let machine = machine_time("cpu  150 0 50 700 100 0 200 0 0 0\ncpu0 1 2");
        assert_eq!(machine, Some((tick * 200, tick * 1_200)));
        let device = device_counters(" 1 2 3 4 50 6 80 8 0 10 11 12 13 14 15 160 17").unwrap();
        assert_eq!((device.operations, device.written_bytes), (210, 40_960));
    }

    #[test]
    fn foreign_formats_are_no_figures() {
        assert_eq!(process_time("7 (x"), None);
        assert_eq!(machine_time("processors: two"), None);
        assert!(device_counters("none").is_none());
    }

    #[test]
    fn work_of_this_process_is_the_drivers() {
        let meter = Meter::start(Vec::new(), Path::new("."));
        while meter.read().driver_cpu_s < 0.02 {}
        let usage = meter.read();
        assert!(usage.servers_cpu_s == 0.0 && usage.driver_percent_of_one > 0.0, "{usage:?}");
    }
}
