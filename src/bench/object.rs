//! `fleasefs bench object`: what clients get out of the daemons for files.

use std::io::{self, Write};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use ::bench::floor::{self, DiskFloor, QuicFloor};
use ::bench::object_load::{self, Figures, Plan};
use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use node::Settings;
use serde_json::{Value, json};

use super::cluster::Cluster;

/// Shares of the floor of the same run that long transfers have to reach.
const SEQUENTIAL_MIN: f64 = 0.6;
/// Small writes a second, 64 at a time.
const WRITE_4K_MIN: f64 = 30_000.0;
/// How much longer a small write with a sync may take than what three daemons do for it to one disk.
const SYNC_MAX: f64 = 3.0;
/// How many times as many such writes many objects must take as one does.
const SYNC_MANY_MIN: f64 = 10.0;
/// Memory of a daemon during a long write.
const MEMORY_MAX_MIB: f64 = 300.0;
/// How much is written while memory is watched.
const MEMORY_BYTES: u64 = 4 << 30;

/// Measure long transfers, small writes and syncs of replicated objects
///
/// Three daemons run as separate processes on this machine, with their data in
/// a fresh folder, and this process is their client over QUIC:
///   write, read    one object from its beginning to its end, 1 MiB at a time
///   write_4k       writes of 4 KiB, 64 at a time, to 64 objects and to one
///   sync_4k        durable writes of 4 KiB, one at a time, and 64 at a time;
///                  and a write and then a sync, one at a time
/// A write is done when a majority of the daemons has it, a sync or a durable
/// write when the disks of a majority have it. The floor of network and disk is
/// measured first.
///
/// Examples:
///   fleasefs bench object --json --check
///   fleasefs bench object --memory --dir /var/lib/fleasefs
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Keep the daemons' data below this directory; choose the disk that will hold the data.
    /// /tmp is often kept in memory and would tell nothing
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Take each figure as the median of this many rounds
    #[arg(long, value_name = "N", default_value = "3")]
    rounds: NonZeroU32,

    /// How long the object is that is written and read
    #[arg(long, value_name = "MIB", default_value = "1024")]
    size_mib: NonZeroU64,

    /// How long small writes go on in each round
    #[arg(long, value_name = "SECONDS", default_value = "3")]
    seconds: NonZeroU32,

    /// Write 4 GiB as well, and tell how much memory that took a daemon
    #[arg(long)]
    memory: bool,

    /// Print one JSON object instead of a table; units stand at the end of each key
    #[arg(long)]
    json: bool,

    /// Fail if a figure misses its bar: long transfers reach 60 % of the network's floor, 30,000 writes of 4 KiB a
    /// second, a durable one takes at most 3 times the disk's floor, many objects take 10 times as many of them as one
    /// does, and a daemon needs less than 300 MiB if that is measured
    #[arg(long)]
    check: bool,
}

/// What was measured, and what is possible.
struct Measured {
    figures: Figures,
    quic: QuicFloor,
    disk: DiskFloor,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let dir = args
        .dir
        .canonicalize()
        .with_context(|| format!("no directory {}; choose another with --dir", args.dir.display()))?;
    let bar =
        ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{spinner} {msg} ({elapsed})")?);
    bar.enable_steady_tick(Duration::from_millis(100));
    let options = floor::Options { dir: dir.clone(), rounds: args.rounds };
    let (quic, disk) =
        floor::network_and_disk(&options, |part| bar.set_message(format!("floor: {}", part.name())))?;
    let plan = Plan {
        rounds: args.rounds,
        sequential_bytes: args.size_mib.get().saturating_mul(1 << 20),
        small: Duration::from_secs(args.seconds.get().into()),
        memory_bytes: args.memory.then_some(MEMORY_BYTES),
    };
    let cluster = Cluster::start(3, Settings::default(), Some(&dir))?;
    let progress = |step: &str| bar.set_message(step.to_owned());
    let measuring = object_load::run(&plan, &cluster.daemons, &cluster.config, progress);
    let figures = crate::runtime()?.block_on(measuring);
    bar.finish_and_clear();
    let measured = Measured { figures: figures?, quic, disk };
    measured.print(args.json).context("could not print the figures")?;
    let shortfalls = measured.shortfalls();
    if args.check && !shortfalls.is_empty() {
        bail!("{}", shortfalls.join("; "));
    }
    Ok(())
}

impl Measured {
    fn write_ratio(&self) -> f64 {
        self.figures.write_mib_s / self.quic.quic_fan_out_1m_mib_s
    }

    fn read_ratio(&self) -> f64 {
        self.figures.read_mib_s / self.quic.quic_single_stream_mib_s
    }

    fn sync_ratio(&self) -> f64 {
        self.figures.sync_4k_p50_us / self.disk.fdatasync_three_p50_us
    }

    fn sync_many_ratio(&self) -> f64 {
        self.figures.sync_4k_many_iops / self.figures.sync_4k_iops
    }

    fn shortfalls(&self) -> Vec<String> {
        let at_least = [
            ("write_floor_ratio", self.write_ratio(), SEQUENTIAL_MIN),
            ("read_floor_ratio", self.read_ratio(), SEQUENTIAL_MIN),
            ("write_4k_iops", self.figures.write_4k_iops, WRITE_4K_MIN),
            ("sync_4k_many_ratio", self.sync_many_ratio(), SYNC_MANY_MIN),
        ];
        let too_low = at_least.into_iter().filter(|(_, figure, bar)| figure < bar);
        let too_low =
            too_low.map(|(what, figure, bar)| format!("{what} is {figure:.2}, at least {bar} is asked"));
        let memory =
            self.figures.daemon_memory_max_mib.map(|mib| ("daemon_memory_max_mib", mib, MEMORY_MAX_MIB));
        let at_most = [Some(("sync_4k_floor_ratio", self.sync_ratio(), SYNC_MAX)), memory];
        let too_high = at_most.into_iter().flatten().filter(|(_, figure, bar)| figure > bar);
        too_low
            .chain(
                too_high.map(|(what, figure, bar)| format!("{what} is {figure:.2}, at most {bar} is asked")),
            )
            .collect()
    }

    fn to_json(&self) -> anyhow::Result<Value> {
        let mut all = serde_json::to_value(&self.figures)?;
        for (key, ratio) in [
            ("write_floor_ratio", self.write_ratio()),
            ("read_floor_ratio", self.read_ratio()),
            ("sync_4k_floor_ratio", self.sync_ratio()),
            ("sync_4k_many_ratio", self.sync_many_ratio()),
        ] {
            all[key] = json!((ratio * 1_000.0).round() / 1_000.0);
        }
        all["quic_fan_out_1m_mib_s"] = json!(self.quic.quic_fan_out_1m_mib_s);
        all["quic_single_stream_mib_s"] = json!(self.quic.quic_single_stream_mib_s);
        all["fdatasync_three_p50_us"] = json!(self.disk.fdatasync_three_p50_us);
        all["fdatasync_three_p99_us"] = json!(self.disk.fdatasync_three_p99_us);
        Ok(all)
    }

    fn print(&self, json: bool) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        if json {
            serde_json::to_writer(&mut out, &self.to_json()?)?;
            writeln!(out)?;
            return Ok(());
        }
        let Self { figures, quic, disk } = self;
        writeln!(out, "three daemons on this machine, median of {} rounds", figures.rounds)?;
        writeln!(out, "{:<36} {:>14} {:>10} {:>10}", "", "", "p50", "p99")?;
        for (what, figure, unit, [p50_us, p99_us]) in figures.rows() {
            writeln!(out, "{what:<36} {figure:>8.0} {unit:<5} {p50_us:>7.0} µs {p99_us:>7.0} µs")?;
        }
        writeln!(out, "\nfloor of the same run")?;
        let rows = [
            ("written, to the network's fan-out", self.write_ratio(), quic.quic_fan_out_1m_mib_s, "MiB/s"),
            ("read, to the network's one stream", self.read_ratio(), quic.quic_single_stream_mib_s, "MiB/s"),
            ("durable, to the disk's three appends", self.sync_ratio(), disk.fdatasync_three_p50_us, "µs"),
        ];
        for (what, ratio, floor, unit) in rows {
            writeln!(out, "{what:<36} {ratio:>8.2} of {floor:.0} {unit}")?;
        }
        writeln!(out, "{:<36} {:>8.2}", "durable on many, to on one", self.sync_many_ratio())?;
        if let Some(mib) = figures.daemon_memory_max_mib {
            writeln!(out, "{:<36} {mib:>8.0} MiB", "most memory of a daemon")?;
        }
        Ok(())
    }
}
