//! `fleasefs bench lock`: what becomes of locks when something fails.

use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use ::bench::lock_failover::{self, Failure, Figures, Plan};
use anyhow::{Context, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use node::Settings;

use super::cluster::Cluster;

/// More void rounds than this share fail the measurement.
const VOID_PERCENT_MAX: u32 = 20;

/// Measure what becomes of locks when their daemon, its machine or their holder fails
///
/// Three daemons run as separate processes. In each round a lock is held and
/// waited for while something is killed or frozen:
///   crash    the daemon is killed: its holder must keep the lock
///   both     daemon and holder are killed: whoever waits gets the lock
///   machine  the daemon's supervisor is killed, too, so nobody reports its death
///   freeze   the holder is frozen: it must not take itself for the holder then
///
/// Example:
///   fleasefs bench lock --json --check
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// What fails; may be given several times [default: all]
    #[arg(long = "event", value_enum)]
    events: Vec<Event>,

    /// How often each
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: NonZeroU32,

    /// For how long a holder is frozen
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    freeze_s: u64,

    /// Print one JSON object a line instead of a table; units stand at the end of each key
    #[arg(long)]
    json: bool,

    /// Fail if a lock was lost or had two holders, or if a time is above its bound
    #[arg(long)]
    check: bool,

    /// Be the holder: the cluster's folder, and the lock
    #[arg(long, hide = true, num_args = 2)]
    hold: Option<Vec<String>>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Event {
    Crash,
    Both,
    Machine,
    Freeze,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    if let Some([folder, name]) = args.hold.as_deref() {
        let config = client::Config::find(Some(&PathBuf::from(folder)))?;
        let say = |what: &str| {
            // Whoever listened is gone.
            let _ = writeln!(io::stdout(), "{what}");
        };
        return Ok(crate::runtime()?.block_on(lock_failover::hold(&config, name, say))?);
    }
    let all = [Event::Crash, Event::Both, Event::Machine, Event::Freeze];
    let events = if args.events.is_empty() { all.to_vec() } else { args.events.clone() };
    let program = std::env::current_exe().context("could not find this program")?;
    let plan = Plan {
        failures: events.into_iter().map(Failure::from).collect(),
        rounds: args.rounds.get(),
        freeze: Duration::from_secs(args.freeze_s),
        holder: (program, ["bench", "lock", "--hold"].map(str::to_owned).to_vec()),
    };
    let mut cluster = Cluster::start(3, Settings::default(), None)?;
    let bar =
        ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{spinner} {msg} ({elapsed})")?);
    bar.enable_steady_tick(Duration::from_millis(100));
    let progress = |step: &str| bar.set_message(step.to_owned());
    let measuring = lock_failover::run(&plan, &mut cluster.daemons, &cluster.config, progress);
    let measured = crate::runtime()?.block_on(measuring);
    bar.finish_and_clear();
    let measured = measured?;
    print(&measured, args.json).context("could not print the figures")?;
    let shortfalls: Vec<String> = measured.iter().flat_map(shortfalls).collect();
    if args.check && !shortfalls.is_empty() {
        bail!("{}", shortfalls.join("; "));
    }
    Ok(())
}

impl From<Event> for Failure {
    fn from(event: Event) -> Self {
        match event {
            Event::Crash => Self::Crash,
            Event::Both => Self::Both,
            Event::Machine => Self::Machine,
            Event::Freeze => Self::Freeze,
        }
    }
}

fn shortfalls(figures: &Figures) -> Vec<String> {
    let Figures { failure, rounds, void_rounds, max_ms, bound_ms, lost, violations, .. } = figures;
    let mut missed = Vec::new();
    if let Some(bound_ms) = bound_ms.filter(|bound_ms| max_ms > bound_ms) {
        missed.push(format!("{failure:?}: max_ms is {max_ms}, at most {bound_ms} is asked"));
    }
    if *lost > 0 || *violations > 0 {
        missed.push(format!("{failure:?}: {lost} locks lost, {violations} times two holders"));
    }
    if *void_rounds * 100 > (rounds + void_rounds) * VOID_PERCENT_MAX {
        missed.push(format!(
            "{failure:?}: {void_rounds} rounds are void because the machine stalled; run it alone"
        ));
    }
    missed
}

fn print(all: &[Figures], json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, all)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(
        out,
        "{:<8} {:>6} {:>5} {:>10} {:>10} {:>10} {:>5} {:>11}",
        "event", "rounds", "void", "middle", "longest", "bound", "lost", "two holders"
    )?;
    for figures in all {
        let bound = figures.bound_ms.map_or_else(|| "-".to_owned(), |bound_ms| format!("{bound_ms:.0} ms"));
        writeln!(
            out,
            "{:<8} {:>6} {:>5} {:>7.0} ms {:>7.0} ms {:>10} {:>5} {:>11}",
            format!("{:?}", figures.failure).to_lowercase(),
            figures.rounds,
            figures.void_rounds,
            figures.p50_ms,
            figures.max_ms,
            bound,
            figures.lost,
            figures.violations,
        )?;
    }
    Ok(())
}
