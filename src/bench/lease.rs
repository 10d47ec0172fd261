//! `fleasefs bench lease`: how many leases a second, and what one costs.

mod quic;

use std::io::{self, Write};
use std::num::NonZeroU32;

use ::bench::lease_memory::{self, LeaseMemory};
use ::lease::{FleaseRules, PaxosRules};
use anyhow::{Context, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};

/// Measure how many leases a second can be acquired, and what each costs
///
/// By default daemons run as separate processes on this machine, and a client
/// asks them for one lease per request over QUIC with certificates. With
/// --transport memory three nodes run in this process on one core and exchange
/// encoded messages: the protocol and the codec, and no network.
///
/// Examples:
///   fleasefs bench lease --json --check
///   fleasefs bench lease --wish lock --batch 10000
///   fleasefs bench lease --rate 100000 --seconds 10
///   fleasefs bench lease --keep 100000 --seconds 60 --check
///   fleasefs bench lease --transport memory
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// How messages travel
    #[arg(long, value_enum, default_value_t = Transport::Quic)]
    transport: Transport,

    /// Which lease algorithm
    #[arg(long, value_enum, default_value_t = Algorithm::Flease)]
    algorithm: Algorithm,

    /// Print one JSON object instead of a table; units stand at the end of each key
    #[arg(long)]
    json: bool,

    /// Fail if a figure misses its bar. Over QUIC: 200,000 acquisitions/s, no failure, no lease lost at 75 % of the
    /// processors at most. In memory: 500,000 acquisitions/s, 100 bytes per idle register, twice the cost at a million
    /// cells, no failure
    #[arg(long)]
    check: bool,

    /// Take each figure as the median of this many rounds
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: NonZeroU32,

    #[command(flatten)]
    quic: quic::Args,
}

#[derive(Clone, Copy, ValueEnum)]
enum Transport {
    /// Daemons as processes of their own, and a client
    Quic,
    /// Three nodes in this process
    Memory,
}

#[derive(Clone, Copy, ValueEnum)]
enum Algorithm {
    /// Absolute expiry on synchronised clocks
    Flease,
    /// Relative spans, no synchronisation
    Paxoslease,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match args.transport {
        Transport::Quic => quic::run(args),
        Transport::Memory => run_in_memory(args),
    }
}

fn run_in_memory(args: &Args) -> anyhow::Result<()> {
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}")?;
    let bar = ProgressBar::new(lease_memory::steps(args.rounds)).with_style(style);
    let progress = |step| {
        bar.set_message(step);
        bar.inc(1);
    };
    let figures = match args.algorithm {
        Algorithm::Flease => lease_memory::run::<FleaseRules>(args.rounds, progress),
        Algorithm::Paxoslease => lease_memory::run::<PaxosRules>(args.rounds, progress),
    };
    bar.finish_and_clear();
    print(&figures, args.json).context("could not print the figures")?;
    let shortfalls = figures.shortfalls();
    if args.check && !shortfalls.is_empty() {
        bail!("{}", shortfalls.join("; "));
    }
    Ok(())
}

fn print(figures: &LeaseMemory, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, figures)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(out, "{}, three nodes in one process, median of {} rounds", figures.algorithm, figures.rounds)?;
    let rows = [
        ("acquired, in batches of 50,000", figures.acquired_per_second, "leases/s"),
        ("renewed, 50,000 held", figures.renewed_per_second, "leases/s"),
        ("heap per idle register", figures.bytes_per_idle_register, "bytes"),
        ("heap per owned lease", figures.bytes_per_owned_lease, "bytes"),
        ("cost at 1,000 cells", figures.cost_at_1k_cells_ns, "ns/lease"),
        ("cost at 1,000,000 cells", figures.cost_at_1m_cells_ns, "ns/lease"),
    ];
    for (name, figure, unit) in rows {
        writeln!(out, "  {name:<34} {figure:>12.0} {unit}")?;
    }
    writeln!(out, "  {:<34} {:>12.2}", "cost ratio", figures.cost_ratio)?;
    writeln!(out, "  {:<34} {:>12}", "failed", figures.failed)?;
    Ok(())
}
