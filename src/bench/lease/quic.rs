//! Leases from real daemons that this command starts and stops.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use ::bench::lease_load::Wish;
use ::bench::lease_quic::{self, Figures, Measurement, Plan};
use anyhow::{Context, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use node::{LeaseAlgorithm, Settings};

use super::Algorithm;
use crate::bench::cluster::Cluster;

/// The bars that `--check` enforces.
const ACQUIRED_PER_SECOND_MIN: f64 = 200_000.0;
const KEEPING_PERCENT_OF_MACHINE_MAX: f64 = 75.0;

/// What concerns daemons only.
#[derive(clap::Args)]
#[command(next_help_heading = "Over QUIC")]
pub(super) struct QuicArgs {
    /// Time a batch of this many distinct leases; may be given several times [default: 1000 10000 50000]
    #[arg(long = "batch", value_name = "LEASES")]
    batches: Vec<u64>,

    /// What is asked for
    #[arg(long, value_enum, default_value_t = Wanted::Lease)]
    wish: Wanted,

    /// How many daemons; all of them are members of every lease, up to 15
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=15))]
    members: u8,

    /// How many requests may be unanswered
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    in_flight: usize,

    /// Offer this many leases in a second, for --seconds
    #[arg(long, value_name = "PER_SECOND")]
    rate: Option<f64>,

    /// Keep this many leases alive, for --seconds
    #[arg(long, value_name = "LEASES")]
    keep: Option<u64>,

    /// For how long
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,

    /// The longest life of a lease
    #[arg(long, value_name = "MS", default_value_t = 2_000)]
    t_max_ms: u32,

    /// Where the daemons keep their data: a fresh folder in it that is removed afterwards [default: a temporary folder]
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Wanted {
    /// Leases that the daemons own, as for open files
    Lease,
    /// Locks that the client holds, with fencing tokens
    Lock,
}

pub(super) fn run(args: &super::Args) -> anyhow::Result<()> {
    let plan = plan(args);
    let bar =
        ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{spinner} {msg} ({elapsed})")?);
    bar.enable_steady_tick(Duration::from_millis(100));
    let measured = measure(args, &plan, &bar);
    bar.finish_and_clear();
    let measured = measured?;
    print(&measured, args.json).context("could not print the figures")?;
    let shortfalls = shortfalls(&measured, &plan);
    if args.check && !shortfalls.is_empty() {
        bail!("{}", shortfalls.join("; "));
    }
    Ok(())
}

fn plan(args: &super::Args) -> Plan {
    let QuicArgs { batches, wish, in_flight, rate, keep, seconds, .. } = &args.quic;
    let how_long = Duration::from_secs(*seconds);
    let is_plain = batches.is_empty() && rate.is_none() && keep.is_none();
    Plan {
        wish: match wish {
            Wanted::Lease => Wish::Lease,
            Wanted::Lock => Wish::Lock,
        },
        batches: if is_plain { vec![1_000, 10_000, 50_000] } else { batches.clone() },
        rounds: args.rounds.get(),
        in_flight: *in_flight,
        rated: rate.map(|rate| (rate, how_long)),
        kept: keep.map(|leases| (leases, how_long)),
    }
}

fn measure(args: &super::Args, plan: &Plan, bar: &ProgressBar) -> anyhow::Result<Measurement> {
    let t_max_ms = args.quic.t_max_ms;
    let defaults = Settings::default();
    let settings = Settings {
        algorithm: match args.algorithm {
            Algorithm::Flease => LeaseAlgorithm::Flease,
            Algorithm::Paxoslease => LeaseAlgorithm::Paxoslease,
        },
        t_max_ms,
        // Sessions have to end before leases that were renewed after a third of their life, clocks and round trips allowed for.
        session_ms: defaults.session_ms.min((t_max_ms * 2 / 3).saturating_sub(4 * defaults.epsilon_ms)),
        ..defaults
    };
    let cluster = Cluster::start(args.quic.members, settings, args.quic.dir.as_deref())?;
    let progress = |step: &str| bar.set_message(step.to_owned());
    let measuring = lease_quic::run(plan, &cluster.daemons, &cluster.config, crate::init::now_s()?, progress);
    Ok(crate::runtime()?.block_on(measuring)?)
}

/// The bars that are not met.
fn shortfalls(measured: &Measurement, plan: &Plan) -> Vec<String> {
    let mut missed = Vec::new();
    let largest = measured.batches.last().map_or(f64::MAX, |batch| batch.leases_per_second);
    if plan.wish == Wish::Lease && largest < ACQUIRED_PER_SECOND_MIN {
        missed.push(format!(
            "leases_per_second is {largest:.0} in the last batch, at least {ACQUIRED_PER_SECOND_MIN} is asked"
        ));
    }
    let failed: u64 = measured.batches.iter().chain(&measured.rated).map(|figures| figures.failed).sum();
    if failed > 0 {
        missed.push(format!("failed is {failed}, none may fail"));
    }
    if let Some(kept) = &measured.kept {
        if kept.lost > 0 {
            missed.push(format!("lost is {}, none may be lost", kept.lost));
        }
        if kept.cpu_percent_of_machine > KEEPING_PERCENT_OF_MACHINE_MAX {
            let percent = kept.cpu_percent_of_machine;
            missed.push(format!(
                "cpu_percent_of_machine is {percent:.0}, at most {KEEPING_PERCENT_OF_MACHINE_MAX} is asked"
            ));
        }
    }
    missed
}

fn print(measured: &Measurement, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, measured)?;
        writeln!(out)?;
        return Ok(());
    }
    let Measurement { members, algorithm, wish, in_flight, .. } = measured;
    writeln!(out, "{members} daemons, {algorithm}, one {wish} per request, at most {in_flight} unanswered")?;
    writeln!(
        out,
        "  {:>9}  {:>11}  {:>9}  {:>9}  {:>16}  {:>15}",
        "leases", "per second", "p50", "p99", "daemons/1000", "client/1000"
    )?;
    for figures in &measured.batches {
        row(&mut out, figures)?;
    }
    if let Some(figures) = &measured.rated {
        row(&mut out, figures)?;
        let (offered, achieved) = (figures.offered_per_second, figures.achieved_percent);
        writeln!(
            out,
            "  offered {:.0} a second, achieved {:.2} %",
            offered.unwrap_or(0.0),
            achieved.unwrap_or(0.0)
        )?;
    }
    if let Some(kept) = &measured.kept {
        let (leases, seconds, lost) = (kept.leases, kept.seconds, kept.lost);
        writeln!(
            out,
            "  {leases} leases kept for {seconds:.0} s: {lost} lost, {:.0} renewals/s, {:.0} % of one processor, {:.0} % of all",
            kept.renewals_per_second, kept.cpu_percent_of_one, kept.cpu_percent_of_machine
        )?;
    }
    Ok(())
}

fn row(out: &mut impl Write, figures: &Figures) -> io::Result<()> {
    writeln!(
        out,
        "  {:>9}  {:>9.0}/s  {:>6.1} ms  {:>6.1} ms  {:>12.1} ms  {:>12.1} ms{}",
        figures.leases,
        figures.leases_per_second,
        figures.p50_us / 1e3,
        figures.p99_us / 1e3,
        figures.servers_cpu_s_per_1000 * 1e3,
        figures.driver_cpu_s_per_1000 * 1e3,
        trouble(figures),
    )
}

fn trouble(figures: &Figures) -> String {
    let named = [(figures.failed, "failed"), (figures.timeouts, "attempts timed out")];
    let named = named.into_iter().filter(|(count, _)| *count > 0);
    named.map(|(count, what)| format!("  {count} {what}")).collect()
}
