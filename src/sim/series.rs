//! A series of simulations: what is the same whatever is simulated.
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
use clap::{Args, CommandFactory, ValueEnum};
use serde_json::{Value, json};
use sim::checkers::histories::Judgement;
use sim::lease::Subject;
use sim::summary::Faults;
use sim::{FaultKind, Outcome, Simulation, Trace};

/// How many lines of a trace are shown about a violation.
const LINES_SHOWN: usize = 40;
/// Drawn seeds are short enough to be read out.
const DRAWN_BELOW: u64 = 1_000_000_000;
/// In a series, progress is told this often.
const PROGRESS_EVERY: Duration = Duration::from_secs(10);
const SECONDS_PER_MINUTE: u64 = 60;

#[derive(Args)]
pub(super) struct SeriesArgs {
    /// The seed to run or replay; drawn and printed if not given
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Run this many seeds, from the first one on
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
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

/// The plan of what the options are for.
type PlanOf<O> = <<O as Options>::Simulation as Simulation>::Plan;

/// What may be asked of one kind of simulation.
pub(super) trait Options {
    type Simulation: Simulation<Summary: Told>;

    /// What a seed decides, changed as the options say.
    fn plan(&self, subject: Subject, seed: u64) -> PlanOf<Self>;

    /// The options as they stand on a command line, each with a space before it.
    fn to_arguments(&self) -> String;
}

/// A summary as scripts read it.
pub(super) trait Told: Outcome {
    /// What only this kind of simulation tells.
    fn to_json(&self) -> Value;
}

/// A series of runs.
pub(super) struct Series<'a, O> {
    args: &'a SeriesArgs,
    options: &'a O,
    started: Instant,
    told: Instant,
    runs: u64,
    failures: u64,
    judgement: Judgement,
}

impl<'a, O: Options> Series<'a, O> {
    pub(super) fn new(args: &'a SeriesArgs, options: &'a O) -> Self {
        let now = Instant::now();
        Self { args, options, started: now, told: now, runs: 0, failures: 0, judgement: Judgement::default() }
    }

    pub(super) fn run(mut self) -> anyhow::Result<ExitCode> {
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
            let Judgement { linearizable, searched, loose, stale } = self.judgement;
            if linearizable + searched > 0 {
                let all = linearizable + searched;
                writeln!(
                    io::stdout(),
                    "  {all} histories in order, {searched} of them not in that of the replicas; {loose} answers while clocks \
                     were wrong, {stale} of them stale"
                )?;
            }
        }
        Ok(if self.failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn run_one(&mut self, subject: Subject, seed: u64) -> anyhow::Result<()> {
        let plan = self.options.plan(subject, seed);
        let started = Instant::now();
        let summary = match &self.args.trace {
            Some(path) => {
                let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
                let mut sink = BufWriter::new(file);
                let summary = O::Simulation::run(subject, &plan, Trace::all(&mut sink));
                sink.flush().with_context(|| format!("cannot write {}", path.display()))?;
                summary
            }
            None => O::Simulation::run(subject, &plan, Trace::off()),
        };
        self.runs += 1;
        self.failures += u64::from(!summary.is_clean());
        self.judgement = self.judgement.and(summary.judgement());
        self.report((subject, seed), &plan, &summary, started.elapsed())
    }

    fn report(
        &self,
        (subject, seed): (Subject, u64),
        plan: &PlanOf<O>,
        summary: &<O::Simulation as Simulation>::Summary,
        took: Duration,
    ) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        let (kind, algorithm) = (O::Simulation::NAME, subject.name());
        let options = self.options.to_arguments();
        let replay = format!("fleasefs sim {kind} --algorithm {algorithm} --seed {seed}{options}");
        if self.args.json {
            writeln!(out, "{}", with_common(summary, took, &replay))?;
            return Ok(());
        }
        let is_series = self.args.seeds.is_some() || self.args.minutes_real.is_some();
        if is_series && summary.is_clean() {
            return Ok(());
        }
        let factor = summary.simulated().as_secs_f64() / took.as_secs_f64();
        writeln!(
            out,
            "{summary}\n  took {:.1} s of real time, {factor:.0} times as fast as real time",
            took.as_secs_f64()
        )?;
        if !summary.is_clean() {
            writeln!(out, "  replay: {replay}")?;
        }
        if let Some(violation) = summary.violations().first() {
            writeln!(out, "  what shows it:")?;
            for fact in &violation.shown {
                writeln!(out, "    {fact}")?;
            }
            writeln!(out, "  what happened last:")?;
            for line in O::Simulation::explain(subject, plan, violation, LINES_SHOWN).lines() {
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

/// What every kind of simulation tells, beside its own.
fn with_common(summary: &impl Told, took: Duration, replay: &str) -> Value {
    let mut value = summary.to_json();
    value["simulated_us"] = summary.simulated().as_micros().into();
    value["took_ms"] = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).into();
    value["clean"] = summary.is_clean().into();
    value["violations"] = summary.violations().iter().map(ToString::to_string).collect();
    let shown = summary.violations().iter().flat_map(|violation| &violation.shown);
    value["shown"] = shown.map(ToString::to_string).collect();
    if !summary.is_clean() {
        value["replay"] = replay.into();
    }
    value
}

pub(super) fn faults_to_json(faults: &Faults) -> Value {
    let count = |&kind: &FaultKind| (kind.label().replace([' ', '-'], "_"), json!(faults.of(kind)));
    FaultKind::ALL.iter().map(count).collect::<serde_json::Map<_, _>>().into()
}

#[cfg(test)]
mod tests {
    use sim::checkers::evidence::{Fact, Machines};
    use sim::{Summary, TrueTime, Violation};

    use super::*;

    #[test]
    fn json_of_a_failure_says_how_to_see_it_again() {
        let owns = Fact::new(TrueTime::from_micros(7), Machines::default(), "n1 owns it".into());
        let violation = Violation::new(TrueTime::ZERO, "exclusion", "two owners".into()).shown_by([owns]);
        let failed = Summary { violations: vec![violation], ..Summary::default() };
        let value = with_common(&failed, Duration::ZERO, "fleasefs sim lease --seed 5");
        assert_eq!(value["replay"], "fleasefs sim lease --seed 5");
        assert_eq!(value["shown"], json!(["0.000007 n1 owns it"]));
        assert_eq!((&value["clean"], value["violations"].as_array().map(Vec::len)), (&json!(false), Some(1)));
    }
}
