//! `fleasefs bench meta`: what clients get out of the daemons for names.

use std::io::{self, Write};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use ::bench::meta_load::{self, Figures, Large, Plan};
use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use node::Settings;

use super::cluster::Cluster;

/// Files created a second, one at a time.
const CREATE_MIN: f64 = 1_500.0;
/// The same, 64 at a time.
const CREATE_MANY_MIN: f64 = 8_000.0;
/// Attributes that daemons were asked for in a second, 64 at a time.
const STAT_MANY_MIN: f64 = 20_000.0;
/// Attributes that the client knew, one at a time.
const STAT_CACHED_MIN: f64 = 1_000_000.0;

/// The whole of a directory is listed as fast as its first half, but for what machines vary by.
const LISTED_SHARE_MIN: f64 = 0.8;
/// The most memory of a daemon, and what each name may add to that.
const MEMORY_MAX_MIB: f64 = 100.0;
const ENTRY_BYTES_MAX: f64 = 600.0;

/// Measure creating, finding, listing and removing names
///
/// Three daemons run as separate processes on this machine, with their data in
/// a fresh folder, and this process is their client over QUIC, with a volume of
/// its own:
///   create         files, one at a time, and 64 at a time
///   stat           attributes of files by their names, one and 64 at a time;
///                  each is asked of a daemon; and one at a time by a client
///                  that knows them
///   --entries N    one directory with so many files: created, listed, found
///                  and removed, with the most memory of a daemon meanwhile
/// A file is created when a majority of the daemons has it.
///
/// Examples:
///   fleasefs bench meta --json --check
///   fleasefs bench meta --entries 1000000 --dir /var/lib/fleasefs
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

    /// How long each part goes on in each round
    #[arg(long, value_name = "SECONDS", default_value = "3")]
    seconds: NonZeroU32,

    /// Fill one directory with so many files as well
    #[arg(long, value_name = "N")]
    entries: Option<NonZeroU64>,

    /// Print one JSON object instead of a table; units stand at the end of each key
    #[arg(long)]
    json: bool,

    /// Fail if a figure misses its bar: 1,500 files created a second one at a time and 8,000 at once, 20,000
    /// attributes at once, and 1,000,000 that the client knows. With --entries also if all of them are listed slower
    /// than the first half, or a daemon has more than 600 bytes for each and 100 MiB
    #[arg(long)]
    check: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let dir = args
        .dir
        .canonicalize()
        .with_context(|| format!("no directory {}; choose another with --dir", args.dir.display()))?;
    let bar =
        ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{spinner} {msg} ({elapsed})")?);
    bar.enable_steady_tick(Duration::from_millis(100));
    let plan = Plan {
        rounds: args.rounds,
        small: Duration::from_secs(args.seconds.get().into()),
        entries: args.entries.map(NonZeroU64::get),
    };
    let cluster = Cluster::start(3, Settings::default(), Some(&dir))?;
    let progress = |step: &str| bar.set_message(step.to_owned());
    let measuring = meta_load::run(&plan, &cluster.daemons, &cluster.config, progress);
    let figures = crate::runtime()?.block_on(measuring);
    bar.finish_and_clear();
    let figures = figures?;
    print(&figures, args.json).context("could not print the figures")?;
    let shortfalls = shortfalls(&figures);
    if args.check && !shortfalls.is_empty() {
        bail!("{}", shortfalls.join("; "));
    }
    Ok(())
}

fn shortfalls(figures: &Figures) -> Vec<String> {
    let bars = [
        ("create_per_s", figures.create_per_s, CREATE_MIN),
        ("create_many_per_s", figures.create_many_per_s, CREATE_MANY_MIN),
        ("stat_many_per_s", figures.stat_many_per_s, STAT_MANY_MIN),
        ("stat_cached_per_s", figures.stat_cached_per_s, STAT_CACHED_MIN),
    ];
    let missed = bars.into_iter().filter(|(_, figure, bar)| figure < bar);
    let of_large = figures.large.as_ref().map(shortfalls_of_large).into_iter().flatten();
    missed
        .map(|(what, figure, bar)| format!("{what} is {figure:.0}, at least {bar} is asked"))
        .chain(of_large)
        .collect()
}

fn shortfalls_of_large(large: &Large) -> Vec<String> {
    let (half, all) = (large.entries_first_half_listed_per_s, large.entries_listed_per_s);
    let (memory, memory_max) = (large.entries_daemon_memory_max_mib, memory_max_mib(large.entries));
    let slower =
        format!("all were listed at {all:.0}/s, and the first half at {half:.0}/s: that is not linear");
    let more = format!("a daemon had {memory:.0} MiB, at most {memory_max:.0} is asked");
    let missed = [(all < half * LISTED_SHARE_MIN, slower), (memory > memory_max, more)];
    missed.into_iter().filter(|(is_missed, _)| *is_missed).map(|(_, what)| what).collect()
}

/// Of a daemon, with so many names.
fn memory_max_mib(entries: u64) -> f64 {
    MEMORY_MAX_MIB + entries as f64 * ENTRY_BYTES_MAX / f64::from(1 << 20)
}

fn print(figures: &Figures, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, figures)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(out, "three daemons on this machine, median of {} rounds", figures.rounds)?;
    writeln!(out, "{:<36} {:>10} {:>13} {:>13}", "", "", "p50", "p99")?;
    for (what, per_s, [p50_us, p99_us]) in figures.rows() {
        writeln!(out, "{what:<36} {per_s:>8.0}/s {p50_us:>10.0} µs {p99_us:>10.0} µs")?;
    }
    if let Some(large) = &figures.large {
        writeln!(out, "\none directory with {} files", large.entries)?;
        for (what, per_s) in large.rows() {
            writeln!(out, "{what:<36} {per_s:>8.0}/s")?;
        }
        writeln!(out, "{:<36} {:>8.0} MiB", "most memory of a daemon", large.entries_daemon_memory_max_mib)?;
    }
    Ok(())
}
