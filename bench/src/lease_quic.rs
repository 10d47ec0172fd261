//! Leases from real daemons: separate processes, QUIC with certificates, one request for each lease.

use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use client::Config;
use serde::Serialize;

use crate::daemons::{Daemons, cpu_of};
use crate::lease_load::{Load, LoadError, Tally, Wish};
use crate::others::Processors;
use crate::stats::middle;

/// Leases before anything is timed.
const WARM_UP: u64 = 5_000;
/// Cells are never used twice.
const CELLS_PER_RUN: u64 = 1 << 32;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is asked for.
    pub wish: Wish,
    /// Sizes of batches.
    pub batches: Vec<u64>,
    /// How often each is repeated; figures are the middle ones.
    pub rounds: u32,
    /// Unanswered requests.
    pub in_flight: usize,
    /// Leases asked for in a second, and for how long.
    pub rated: Option<(f64, Duration)>,
    /// Leases kept alive, and for how long.
    pub kept: Option<(u64, Duration)>,
}

/// What came of it. Units stand at the end of each key.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// What was measured.
    pub system: String,
    /// Of the program.
    pub version: String,
    /// How many daemons.
    pub members: usize,
    /// Below the daemons' data.
    pub file_system: String,
    /// Which algorithm.
    pub algorithm: String,
    /// What was asked for.
    pub wish: &'static str,
    /// Each request asks for one.
    pub leases_per_request: u64,
    /// One to each daemon.
    pub connections: usize,
    /// Unanswered requests at most.
    pub in_flight: usize,
    /// Leases before anything was timed.
    pub warm_up_leases: u64,
    /// One entry per size, the middle of the rounds.
    pub batches: Vec<Figures>,
    /// Leases asked for at a rate.
    pub rated: Option<Figures>,
    /// Leases kept alive.
    pub kept: Option<Kept>,
}

/// One timed stretch.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// How many leases were asked for.
    pub leases: u64,
    /// How many were granted.
    pub granted: u64,
    /// Requests that gave none.
    pub failed: u64,
    /// What the first of these said.
    pub first_failure: Option<String>,
    /// How long it took.
    pub elapsed_s: f64,
    /// Granted in a second.
    pub leases_per_second: f64,
    /// Asked for in a second; none in a batch.
    pub offered_per_second: Option<f64>,
    /// Share of those that were granted before the end; none in a batch.
    pub achieved_percent: Option<f64>,
    /// Half of the leases took no longer.
    pub p50_us: f64,
    /// 99 of 100 took no longer.
    pub p99_us: f64,
    /// Processor time of the daemons.
    pub servers_cpu_s_per_1000: f64,
    /// Processor time of the client.
    pub driver_cpu_s_per_1000: f64,
    /// Processor time of the daemons.
    pub servers_cpu_s: f64,
    /// Processor time of the client.
    pub driver_cpu_s: f64,
    /// Share of one processor that the client took.
    pub driver_percent_of_one: f64,
    /// Share of all processors' time that anything else took.
    pub others_percent: f64,
    /// Attempts of daemons, to acquire a lease or to give it up, that were not answered in time and made again.
    pub timeouts: u64,
}

/// Leases that were kept alive.
#[derive(Clone, Debug, Serialize)]
pub struct Kept {
    /// How many.
    pub leases: u64,
    /// The longest life of one.
    pub t_max_ms: u32,
    /// For how long.
    pub seconds: f64,
    /// How many the daemons no longer have.
    pub lost: u64,
    /// How often one was renewed.
    pub renewals_per_second: f64,
    /// Processor time of the daemons and the client, in percent of one processor.
    pub cpu_percent_of_one: f64,
    /// The same in percent of all processors of the machine.
    pub cpu_percent_of_machine: f64,
}

/// Measures `daemons`, which run already, through the configuration of a client.
pub async fn run(
    plan: &Plan,
    daemons: &Daemons,
    config: &Config,
    now_s: u64,
    mut progress: impl FnMut(&str),
) -> Result<Measurement, LoadError> {
    let mut load = Load::connect(config, now_s).await?;
    progress("waiting for the daemons");
    load.wait_until_ready().await?;
    let mut bench = Bench { load: &mut load, plan, daemons, next: 0 };
    progress("warming up");
    bench.timed(WARM_UP, None).await?;
    let mut batches = Vec::new();
    for &size in &plan.batches {
        let mut rounds = Vec::new();
        for round in 1..=plan.rounds {
            progress(&format!("{size} leases, round {round}"));
            rounds.push(bench.timed(size, None).await?);
        }
        batches.push(middle_of(&rounds));
    }
    let mut rated = None;
    if let Some((rate, how_long)) = plan.rated {
        progress("leases at a rate");
        rated = Some(bench.timed(whole(rate * how_long.as_secs_f64()), Some(rate)).await?);
    }
    let mut kept = None;
    if let Some((leases, how_long)) = plan.kept {
        progress("leases kept alive");
        kept = Some(bench.kept(leases, how_long, config.map.settings().t_max_ms).await?);
    }
    let map = &config.map;
    Ok(Measurement {
        system: "fleasefs".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        members: map.osds().len(),
        file_system: file_system(&config.path),
        algorithm: map.settings().algorithm.name().to_owned(),
        wish: match plan.wish {
            Wish::Lease => "lease",
            Wish::Lock => "lock",
        },
        leases_per_request: 1,
        connections: map.osds().len(),
        in_flight: plan.in_flight,
        warm_up_leases: WARM_UP,
        batches,
        rated,
        kept,
    })
}

struct Bench<'a> {
    load: &'a mut Load,
    plan: &'a Plan,
    daemons: &'a Daemons,
    next: u64,
}

impl Bench<'_> {
    /// Acquires that many leases, and gives them back.
    async fn timed(&mut self, leases: u64, rate: Option<f64>) -> Result<Figures, LoadError> {
        let cells = self.cells(leases);
        let timeouts = self.timeouts().await?;
        let machine = Processors::now();
        let (servers, driver) = (self.daemons.cpu(), own_cpu());
        let (tally, held) = self.load.acquire(self.plan.wish, cells, self.plan.in_flight, rate).await?;
        let spent = (self.daemons.cpu().saturating_sub(servers), own_cpu().saturating_sub(driver));
        let others = Processors::now().zip(machine).map(|(now, before)| now.others_percent_since(before));
        self.load.give_back(self.plan.wish, &held).await?;
        // What is still being given up would be part of the next stretch.
        while self.load.statuses().await?.iter().any(|status| status.leases.changing + status.leases.held > 0)
        {
            self.load.keep(Duration::from_millis(20)).await?;
        }
        let timeouts = self.timeouts().await?.saturating_sub(timeouts);
        let figures = figures(leases, rate, &tally, spent);
        // What the machine counts as others' includes the daemons.
        let daemons_percent = figures.servers_cpu_s * 100.0 / figures.elapsed_s / count_f64(processors());
        let others_percent = (others.unwrap_or(0.0) - daemons_percent).max(0.0);
        Ok(Figures { timeouts, others_percent, ..figures })
    }

    async fn kept(&mut self, leases: u64, how_long: Duration, t_max_ms: u32) -> Result<Kept, LoadError> {
        let cells = self.cells(leases);
        let (_, held) = self.load.acquire(self.plan.wish, cells, self.plan.in_flight, None).await?;
        let before = self.counts().await?;
        let (begun, servers, driver) = (Instant::now(), self.daemons.cpu(), own_cpu());
        self.load.keep(how_long).await?;
        let spent = self.daemons.cpu().saturating_sub(servers) + own_cpu().saturating_sub(driver);
        let seconds = begun.elapsed().as_secs_f64();
        let after = self.counts().await?;
        self.load.give_back(self.plan.wish, &held).await?;
        let percent = spent.as_secs_f64() * 100.0 / seconds;
        Ok(Kept {
            leases: held.len() as u64,
            t_max_ms,
            seconds,
            lost: leases.saturating_sub(after.1),
            renewals_per_second: count_f64(after.0 - before.0) / seconds,
            cpu_percent_of_one: percent,
            cpu_percent_of_machine: percent / count_f64(processors()),
        })
    }

    /// Attempts that found no majority in time, so far.
    async fn timeouts(&mut self) -> Result<u64, LoadError> {
        Ok(self.load.statuses().await?.iter().map(|status| status.leases.timeouts).sum())
    }

    /// Renewals so far, and leases held.
    async fn counts(&mut self) -> Result<(u64, u64), LoadError> {
        let statuses = self.load.statuses().await?;
        let sum = |of: fn(&node::LeaseStatus) -> u64| statuses.iter().map(|status| of(&status.leases)).sum();
        Ok((sum(|leases| leases.renewed), sum(|leases| leases.held)))
    }

    fn cells(&mut self, count: u64) -> Range<u64> {
        let first = (u64::from(std::process::id()) << 32) % CELLS_PER_RUN + self.next;
        self.next += count;
        first..first + count
    }
}

fn figures(
    leases: u64,
    rate: Option<f64>,
    tally: &Tally,
    (servers, driver): (Duration, Duration),
) -> Figures {
    let elapsed_s = tally.elapsed.as_secs_f64().max(1e-9);
    let thousands = (count_f64(tally.granted) / 1_000.0).max(1e-9);
    let planned_s = rate.map(|rate| count_f64(leases) / rate);
    Figures {
        leases,
        granted: tally.granted,
        failed: tally.failed,
        first_failure: tally.first_failure.clone(),
        elapsed_s,
        leases_per_second: count_f64(tally.granted) / elapsed_s,
        offered_per_second: rate,
        achieved_percent: planned_s.map(|planned_s| {
            count_f64(tally.granted) * 100.0 / count_f64(leases.max(1)) * (planned_s / elapsed_s).min(1.0)
        }),
        p50_us: tally.percentile_us(50),
        p99_us: tally.percentile_us(99),
        servers_cpu_s_per_1000: servers.as_secs_f64() / thousands,
        driver_cpu_s_per_1000: driver.as_secs_f64() / thousands,
        servers_cpu_s: servers.as_secs_f64(),
        driver_cpu_s: driver.as_secs_f64(),
        driver_percent_of_one: driver.as_secs_f64() * 100.0 / elapsed_s,
        others_percent: 0.0,
        timeouts: 0,
    }
}

/// The middle of each figure, and all that failed.
fn middle_of(rounds: &[Figures]) -> Figures {
    let of = |figure: fn(&Figures) -> f64| middle(rounds.iter().map(figure));
    let Some(first) = rounds.first() else { return Figures::default() };
    Figures {
        leases: first.leases,
        granted: rounds.iter().map(|round| round.granted).min().unwrap_or(0),
        failed: rounds.iter().map(|round| round.failed).sum(),
        first_failure: rounds.iter().find_map(|round| round.first_failure.clone()),
        elapsed_s: of(|round| round.elapsed_s),
        leases_per_second: of(|round| round.leases_per_second),
        offered_per_second: None,
        achieved_percent: None,
        p50_us: of(|round| round.p50_us),
        p99_us: of(|round| round.p99_us),
        servers_cpu_s_per_1000: of(|round| round.servers_cpu_s_per_1000),
        driver_cpu_s_per_1000: of(|round| round.driver_cpu_s_per_1000),
        servers_cpu_s: of(|round| round.servers_cpu_s),
        driver_cpu_s: of(|round| round.driver_cpu_s),
        driver_percent_of_one: of(|round| round.driver_percent_of_one),
        others_percent: of(|round| round.others_percent),
        timeouts: rounds.iter().map(|round| round.timeouts).sum(),
    }
}

impl Tally {
    fn percentile_us(&self, percent: usize) -> f64 {
        let rank = (self.latencies_us.len() * percent).div_ceil(100).saturating_sub(1);
        self.latencies_us.get(rank).copied().map_or(0.0, f64::from)
    }
}

fn processors() -> u64 {
    std::thread::available_parallelism().map_or(1, |count| count.get() as u64)
}

/// The kind of file system at `path`, or its number if it has no name here.
fn file_system(path: &Path) -> String {
    match rustix::fs::statfs(path).map(|found| found.f_type).unwrap_or_default() {
        0xEF53 => "ext4".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683E => "btrfs".to_owned(),
        0x794C_7630 => "overlayfs".to_owned(),
        other => format!("{other:#x}"),
    }
}

fn own_cpu() -> Duration {
    cpu_of(std::process::id()).unwrap_or_default()
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
const fn count_f64(count: u64) -> f64 {
    count as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate times seconds is a small count"
)]
const fn whole(count: f64) -> u64 {
    count as u64
}
