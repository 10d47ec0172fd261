//! `fleasefs sim`: runs and replays simulations.
//!
//! Everything that happens in a run follows from its seed. What is here looks at clocks and draws seeds: the time box
//! and the progress of a series of runs.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Subcommand, ValueEnum};
use serde_json::json;
use sim::lease::Subject;
use sim::{FaultKind, Plan, Summary, Trace};

/// How many lines of a trace are shown about a violation.
const LINES_SHOWN: usize = 40;
/// Drawn seeds are short enough to be read out.
const DRAWN_BELOW: u64 = 1_000_000_000;
/// In a series, progress is told this often.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
const SECONDS_PER_HOUR: u64 = 3_600;
const SECONDS_PER_MINUTE: u64 = 60;

/// What to simulate
#[derive(Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Leases: nodes compete for cells while everything around them fails
    ///
    /// The same seed gives the same run. Exits with 1 if a promise was broken, or if so little happened that a seed
    /// proved nothing.
    ///
    /// Examples:
    ///   fleasefs sim lease --seed 17
    ///   fleasefs sim lease --seed 17 --algorithm flease --trace run.txt
    ///   fleasefs sim lease --minutes-real 30
    #[command(verbatim_doc_comment)]
    Lease(LeaseArgs),
}

#[derive(Args)]
struct LeaseArgs {
    /// The seed to run or replay; drawn and printed if not given
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run this many seeds, from the first one on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// How many nodes, 3 to 7, instead of as many as the seed says
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(3..=7))]
    nodes: Option<u32>,
    /// How many hours of faults are simulated, instead of a minute or two
    #[arg(long, value_name = "HOURS", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    hours: Option<u64>,
    /// Which lease algorithm
    #[arg(long, value_enum, default_value_t = Which::Both)]
    algorithm: Which,
    /// Start no new run after this many minutes of real time; without --seeds, run until then
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    minutes_real: Option<u64>,
    /// Write a line for everything that happens to this file
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Print a JSON object for each run instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Which {
    /// Absolute expiry on synchronised clocks
    Flease,
    /// Relative spans, no synchronisation
    Paxoslease,
    /// One after the other
    Both,
}

/// A series of runs.
struct Series {
    args: LeaseArgs,
    started: Instant,
    told: Instant,
    runs: u64,
    failures: u64,
}

pub(crate) fn run(args: SimArgs) -> anyhow::Result<ExitCode> {
    let What::Lease(args) = args.what;
    let now = Instant::now();
    Series { args, started: now, told: now, runs: 0, failures: 0 }.run()
}

impl Series {
    fn run(mut self) -> anyhow::Result<ExitCode> {
        let first = self.args.seed.unwrap_or_else(draw_seed);
        let is_one_run = self.args.seeds.unwrap_or(1) == 1 && self.args.minutes_real.is_none();
        if self.args.trace.is_some() && !(is_one_run && self.args.algorithm != Which::Both) {
            let what =
                "a trace is of one run: give one seed, and --algorithm flease or --algorithm paxoslease";
            crate::Cli::command().error(ErrorKind::ArgumentConflict, what).exit();
        }
        let count = self.args.seeds.unwrap_or(if self.args.minutes_real.is_some() { u64::MAX } else { 1 });
        let mut last = first;
        for seed in (0..count).map_while(|n| first.checked_add(n)) {
            if self.time_is_up() {
                break;
            }
            last = seed;
            for subject in self.args.algorithm.subjects() {
                self.run_one(subject, seed)?;
            }
            self.tell_progress(seed)?;
        }
        if !is_one_run && !self.args.json {
            let (Self { runs, failures, .. }, seconds) = (&self, self.started.elapsed().as_secs());
            writeln!(io::stdout(), "seeds {first} to {last}: {runs} runs, {failures} failures, {seconds} s")?;
        }
        Ok(if self.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn run_one(&mut self, subject: Subject, seed: u64) -> anyhow::Result<()> {
        let plan = self.args.plan(subject, seed);
        let started = Instant::now();
        let summary = match &self.args.trace {
            Some(path) => {
                let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
                let mut sink = BufWriter::new(file);
                let summary = subject.run(&plan, Trace::all(&mut sink));
                sink.flush().with_context(|| format!("cannot write {}", path.display()))?;
                summary
            }
            None => subject.run(&plan, Trace::off()),
        };
        self.runs += 1;
        self.failures += u64::from(!summary.is_clean());
        self.report(subject, &plan, &summary, started.elapsed())
    }

    fn report(&self, subject: Subject, plan: &Plan, summary: &Summary, took: Duration) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        if self.args.json {
            writeln!(out, "{}", to_json(summary, took))?;
            return Ok(());
        }
        let is_series = self.args.seeds.is_some() || self.args.minutes_real.is_some();
        if is_series && summary.is_clean() {
            return Ok(());
        }
        let factor = summary.simulated.as_secs_f64() / took.as_secs_f64();
        writeln!(
            out,
            "{summary}\n  took {:.1} s of real time, {factor:.0} times as fast as real time",
            took.as_secs_f64()
        )?;
        if !summary.is_clean() {
            writeln!(out, "  replay: {}", self.args.replay(subject, plan.seed))?;
        }
        if let Some(violation) = summary.violations.first() {
            writeln!(out, "  what led to it:")?;
            for line in subject.explain(plan, violation, LINES_SHOWN).lines() {
                writeln!(out, "    {line}")?;
            }
        }
        Ok(())
    }

    fn time_is_up(&self) -> bool {
        let limit = self.args.minutes_real.map(|minutes| Duration::from_secs(minutes * SECONDS_PER_MINUTE));
        limit.is_some_and(|limit| self.started.elapsed() >= limit)
    }

    fn tell_progress(&mut self, seed: u64) -> anyhow::Result<()> {
        if self.args.json || self.told.elapsed() < PROGRESS_EVERY {
            return Ok(());
        }
        self.told = Instant::now();
        writeln!(
            io::stderr(),
            "seed {seed} done: {} runs, {} failures, {:.0} s",
            self.runs,
            self.failures,
            self.started.elapsed().as_secs_f64()
        )?;
        Ok(())
    }
}

impl LeaseArgs {
    fn plan(&self, subject: Subject, seed: u64) -> Plan {
        let mut plan = subject.plan(seed);
        if let Some(nodes) = self.nodes {
            plan = plan.with_nodes(nodes);
        }
        if let Some(hours) = self.hours {
            plan.duration = base::Span::from_secs(hours * SECONDS_PER_HOUR);
        }
        plan
    }

    /// The command that runs the same seed alone.
    fn replay(&self, subject: Subject, seed: u64) -> String {
        let mut command = format!("fleasefs sim lease --algorithm {} --seed {seed}", subject.name());
        if let Some(nodes) = self.nodes {
            command += &format!(" --nodes {nodes}");
        }
        if let Some(hours) = self.hours {
            command += &format!(" --hours {hours}");
        }
        command
    }
}

impl Which {
    fn subjects(self) -> Vec<Subject> {
        match self {
            Self::Flease => vec![Subject::Flease],
            Self::Paxoslease => vec![Subject::PaxosLease],
            Self::Both => Subject::ALL.to_vec(),
        }
    }
}

/// A seed from the system's randomness.
fn draw_seed() -> u64 {
    RandomState::new().build_hasher().finish() % DRAWN_BELOW
}

fn to_json(summary: &Summary, took: Duration) -> serde_json::Value {
    let faults: serde_json::Map<String, serde_json::Value> = FaultKind::ALL
        .iter()
        .map(|&kind| (kind.label().replace([' ', '-'], "_"), summary.faults.of(kind).into()))
        .collect();
    let violations: Vec<String> = summary.violations.iter().map(ToString::to_string).collect();
    json!({
        "seed": summary.seed,
        "algorithm": summary.algorithm,
        "nodes": summary.nodes,
        "cells": summary.cells,
        "t_max_us": summary.t_max.as_micros(),
        "simulated_us": summary.simulated.as_micros(),
        "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        "acquired": summary.acquired,
        "renewed": summary.renewed,
        "released": summary.released,
        "handed_over": summary.handed_over,
        "lost": summary.lost,
        "acts": summary.acts,
        "messages": summary.messages,
        "faults": faults,
        "recovered_us": summary.recovered_in.map(base::Span::as_micros),
        "counts": summary.counts(),
        "violations": violations,
    })
}
