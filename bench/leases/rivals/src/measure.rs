//! One run of one system: start it, wait until it is well, warm it up, time it, check that it has what it granted.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::cluster::{Cluster, ClusterError, MEMBERS, Ports};
use crate::drive::{Plan, RequestError, Rival, drive};
use crate::report::{Figures, Measurement};
use crate::usage::Meter;

/// How long servers may take to find a leader, the Java machine's start included.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// How long a server that follows may take to see what others were granted.
const VISIBLE_WITHIN: Duration = Duration::from_secs(10);

/// Tries to start; a port that was free may be taken by the time a server asks for it.
const STARTS_MAX: usize = 3;

/// A system to measure.
pub(crate) trait System {
    /// Its name in results.
    const NAME: &'static str;

    /// Connections to it.
    type Client: Rival;

    /// Starts its servers with their data in `dir`.
    fn start(&self, dir: &Path) -> Result<Cluster, ClusterError>;

    /// The servers' version if they are ready for requests.
    async fn version(&self, ports: &[Ports]) -> Result<String, RequestError>;

    /// Connects this many times, to one server after the other.
    async fn connect(&self, ports: &[Ports], connections: usize) -> Result<Self::Client, RequestError>;
}

/// What to measure.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Wanted {
    /// Where the servers keep their data; a fresh folder in it that is removed afterwards
    #[arg(long, default_value = ".")]
    pub(crate) dir: PathBuf,
    /// Time a batch of this many distinct leases; may be given several times
    #[arg(long = "batch", value_name = "LEASES", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    pub(crate) batches: Vec<u64>,
    /// Offer this many leases in a second
    #[arg(long, value_name = "PER_SECOND", value_parser = positive)]
    pub(crate) rate: Option<f64>,
    /// For how long to offer them
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// Leases that one request asks for together
    #[arg(long = "batched", default_value_t = 1, value_name = "LEASES", value_parser = clap::value_parser!(u64).range(1..=128))]
    pub(crate) leases_per_request: u64,
    /// Connections, spread over the servers
    #[arg(long, default_value_t = 6, value_parser = count)]
    pub(crate) connections: usize,
    /// Requests under way at a time, over all connections
    #[arg(long, default_value_t = 768, value_parser = count)]
    pub(crate) in_flight: usize,
    /// Grants leases for this long before anything is timed
    #[arg(long = "warm-up", default_value_t = 6, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=600))]
    pub(crate) warm_up: u64,
    /// A batch starts no request after this time, and its throughput is that of the time it had
    #[arg(long, default_value_t = 120, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) limit: u64,
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MeasureError {
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The servers answered once and do not any more.
    #[error("{system} cannot be asked any more: {source}")]
    Client { system: &'static str, source: RequestError },
    /// The figures would be of something else than leases.
    #[error("{system} granted {granted} leases and then knew of {held}; its figures mean nothing")]
    Lost { system: &'static str, granted: u64, held: u64 },
    /// Nothing was granted at all.
    #[error("{system} granted nothing: {reason}")]
    Nothing { system: &'static str, reason: String },
}

/// Measures `system`. Needs a `LocalSet` around it.
pub(crate) async fn measure<S: System>(system: &S, wanted: &Wanted) -> Result<Measurement, MeasureError> {
    let (cluster, version) = start(system, &wanted.dir).await?;
    let client = system.connect(cluster.ports(), wanted.connections).await.map_err(failed::<S>)?;
    let mut run = Run { client: Rc::new(client), cluster, wanted, next_lease: 0, granted: 0 };
    let warm_up_leases = run.warm_up().await;
    let mut batches = Vec::new();
    for &leases in &wanted.batches {
        batches.push(run.timed::<S>(leases, None).await?);
    }
    let rated = match wanted.rate {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rates are above zero")]
        Some(rate) => {
            let leases = (rate * Duration::from_secs(wanted.seconds).as_secs_f64()) as u64;
            Some(run.timed::<S>(leases.max(1), Some(rate)).await?)
        }
        None => None,
    };
    Ok(Measurement {
        system: S::NAME.to_owned(),
        version,
        members: MEMBERS,
        file_system: file_system(&wanted.dir),
        leases_per_request: wanted.leases_per_request,
        connections: wanted.connections,
        in_flight: wanted.in_flight,
        warm_up_leases,
        batches,
        rated,
        kept: None,
    })
}

/// A system that runs.
struct Run<'a, C> {
    // Before the servers, so that connections close first.
    client: Rc<C>,
    cluster: Cluster,
    wanted: &'a Wanted,
    /// No lease is asked for twice.
    next_lease: u64,
    granted: u64,
}

impl<C: Rival> Run<'_, C> {
    async fn warm_up(&mut self) -> u64 {
        let limit = Duration::from_secs(self.wanted.warm_up);
        let leases = self.fresh(100_000_000);
        let tally = drive(&self.client, Plan { limit, ..self.plan(leases) }).await;
        self.granted += tally.granted;
        tally.granted
    }

    /// Times this many leases; at a rate they take as long as they are offered for.
    async fn timed<S: System>(&mut self, leases: u64, rate: Option<f64>) -> Result<Figures, MeasureError> {
        let limit = if rate.is_some() { self.wanted.seconds } else { self.wanted.limit };
        let fresh = self.fresh(leases);
        let plan = Plan { limit: Duration::from_secs(limit), rate, ..self.plan(fresh) };
        let meter = Meter::start(self.cluster.pids(), &self.wanted.dir);
        let tally = drive(&self.client, plan).await;
        let usage = meter.read();
        self.cluster.check()?;
        if tally.granted == 0 {
            let reason = tally.first_failure.unwrap_or_else(|| "no request was answered".to_owned());
            return Err(MeasureError::Nothing { system: S::NAME, reason });
        }
        self.granted += tally.granted;
        self.check_held::<S>().await?;
        Ok(Figures::new(leases, rate, tally, usage))
    }

    /// A request that failed may have been granted after all, so more may be held than is known of.
    async fn check_held<S: System>(&self) -> Result<(), MeasureError> {
        let start = Instant::now();
        loop {
            let held = self.client.held().await.map_err(failed::<S>)?;
            if held >= self.granted {
                return Ok(());
            }
            if start.elapsed() > VISIBLE_WITHIN {
                return Err(MeasureError::Lost { system: S::NAME, granted: self.granted, held });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn plan(&self, leases: Range<u64>) -> Plan {
        Plan {
            leases,
            leases_per_request: self.wanted.leases_per_request,
            in_flight: self.wanted.in_flight,
            limit: Duration::ZERO,
            rate: None,
        }
    }

    fn fresh(&mut self, leases: u64) -> Range<u64> {
        let first = self.next_lease;
        self.next_lease += leases;
        first..self.next_lease
    }
}

/// Starts the servers and waits until they serve.
async fn start<S: System>(system: &S, dir: &Path) -> Result<(Cluster, String), ClusterError> {
    for _ in 1..STARTS_MAX {
        match started(system, dir).await {
            Err(ClusterError::Ended { .. }) => {}
            result => return result,
        }
    }
    started(system, dir).await
}

async fn started<S: System>(system: &S, dir: &Path) -> Result<(Cluster, String), ClusterError> {
    let mut cluster = system.start(dir)?;
    let start = Instant::now();
    loop {
        cluster.check()?;
        let reason = match system.version(cluster.ports()).await {
            Ok(version) => return Ok((cluster, version)),
            Err(error) => error.to_string(),
        };
        if start.elapsed() > READY_WITHIN {
            let seconds = READY_WITHIN.as_secs();
            return Err(ClusterError::NotReady { seconds, reason, tail: cluster.tail(0) });
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn failed<S: System>(source: RequestError) -> MeasureError {
    MeasureError::Client { system: S::NAME, source }
}

/// The kind of file system at `dir`, or its number if it has no name here.
fn file_system(dir: &Path) -> String {
    let known = rustix::fs::statfs(dir).map(|found| found.f_type).unwrap_or_default();
    match known {
        0xEF53 => "ext4".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683E => "btrfs".to_owned(),
        0x794C_7630 => "overlayfs".to_owned(),
        other => format!("{other:#x}"),
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(rate) if rate > 0.0 && rate <= 1e7 => Ok(rate),
        _ => Err("must be a number above 0 and at most 10,000,000".to_owned()),
    }
}

fn count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=65_536).contains(&count) => Ok(count),
        _ => Err("must be a number from 1 to 65536".to_owned()),
    }
}

impl fmt::Display for Measurement {
    /// As one line of JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}
