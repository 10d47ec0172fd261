//! `fleasefs store`: the data directories of daemons.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::osd::config::{Config, StoreConfig};
use ::osd::store::Owner;
use ::osd::store::check::{self, Finding, Report, Severity, Step};
use anyhow::Context;
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

/// Something is damaged.
const DAMAGED: u8 = 65;

const CONFIG_FILE: &str = "osd.toml";

/// Look after the data directory of a daemon
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    deed: Deed,
}

#[derive(Subcommand)]
enum Deed {
    Check(CheckArgs),
}

/// Verify all that a stopped daemon keeps, and change nothing
///
/// Reads every file of the data directory: the small files, the journal, the index
/// and all content, with all checksums, and whether they fit each other. What a
/// daemon that was killed leaves is sound. Findings say which file, object, chunk
/// or record they are about, and what to do. No daemon can start in the directory
/// meanwhile. An index by sled is checked in a copy, in $TMPDIR.
///
/// Exit codes: 0 when everything is sound; 65 when something is damaged; 1 when it
/// could not be checked, as when a daemon runs; 2 when the command line was wrong.
///
/// Examples:
///   fleasefs store check cluster/osd-1
///   fleasefs store check /var/lib/fleasefs/data --json
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
struct CheckArgs {
    /// The data directory, or the folder of a daemon with its osd.toml
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Where the daemon keeps its memo [default: what osd.toml says, else /dev/shm]
    #[arg(long, value_name = "DIR")]
    memo: Option<PathBuf>,
    /// Print one JSON object; units stand at the end of each key
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let Deed::Check(args) = &args.deed;
    let place = Place::of(args)?;
    let bar = ProgressBar::new(0).with_style(style());
    let report = check::check(&place.data, &place.memo, place.owner, &mut |step| match step {
        Step::Begin(what, bytes) => {
            bar.set_message(what);
            bar.set_length(bytes);
            bar.set_position(0);
        }
        Step::Done(bytes) => bar.inc(bytes),
    });
    bar.finish_and_clear();
    let report = report?;
    let is_sound = report.worst().is_none_or(|worst| worst == Severity::Note);
    let printed =
        if args.json { print_json(&place.data, &report, is_sound) } else { print(&place.data, &report) };
    printed.context("could not print what was found")?;
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::from(DAMAGED) })
}

/// Where a daemon keeps what.
struct Place {
    data: PathBuf,
    memo: PathBuf,
    owner: Option<Owner>,
}

impl Place {
    fn of(args: &CheckArgs) -> anyhow::Result<Self> {
        let file = args.dir.join(CONFIG_FILE);
        let place = if file.is_file() {
            let config = Config::load(&file)?;
            let owner = Owner { cluster: config.map.cluster(), node: config.node };
            Self { data: config.data, memo: config.store.memo, owner: Some(owner) }
        } else {
            Self { data: args.dir.clone(), memo: StoreConfig::default().memo, owner: None }
        };
        Ok(Self { memo: args.memo.clone().unwrap_or(place.memo), ..place })
    }
}

fn style() -> ProgressStyle {
    let template = "{msg:12} {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn print_json(data: &Path, report: &Report, is_sound: bool) -> anyhow::Result<()> {
    let finding = |finding: &Finding| {
        json!({
            "severity": severity(finding),
            "code": finding.problem.code(),
            "file": finding.file,
            "object": object(finding),
            "chunk": finding.chunk,
            "record": finding.record,
            "text": finding.problem.to_string(),
            "advice": finding.problem.advice(),
        })
    };
    let told: Value = json!({
        "path": data.display().to_string(),
        "is_sound": is_sound,
        "store": report.store.map(|store| store.to_string()),
        "cluster": report.owner.map(|owner| owner.cluster.to_string()),
        "node": report.owner.map(|owner| owner.node.0),
        "starts": report.starts,
        "stopped_cleanly": report.stopped_cleanly,
        "forgot_at_epoch": report.forgot_at,
        "index": report.engine.map(|engine| engine.to_string()),
        "files": report.files,
        "chunks": report.chunks,
        "names": report.names,
        "journal_records": report.records,
        "content_bytes": report.content_bytes,
        "free_bytes": report.free_bytes,
        "findings": report.findings.iter().map(finding).collect::<Vec<_>>(),
        "findings_left_out": report.left_out,
    });
    writeln!(io::stdout().lock(), "{told}")?;
    Ok(())
}

fn print(data: &Path, report: &Report) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for finding in &report.findings {
        write!(out, "{}: {}", severity(finding), finding.file)?;
        if let Some(object) = object(finding) {
            write!(out, ", object {object}")?;
        }
        if let Some(chunk) = finding.chunk {
            write!(out, ", chunk {chunk}")?;
        }
        if let Some(record) = finding.record {
            write!(out, ", record {record}")?;
        }
        writeln!(out, ": {}\n  to do: {}", finding.problem, finding.problem.advice())?;
    }
    if report.left_out > 0 {
        writeln!(out, "{} more findings are not shown", report.left_out)?;
    }
    if let Some(owner) = report.owner {
        let how = if report.stopped_cleanly { "stopped" } else { "was killed, or its machine stopped" };
        writeln!(
            out,
            "{}: node {} of cluster {}, which {how}; {} files, {} chunks, {} parts of trees, {} of content, {} records in the \
             journal",
            data.display(),
            owner.node,
            owner.cluster,
            report.files,
            report.chunks,
            report.names,
            indicatif::HumanBytes(report.content_bytes),
            report.records,
        )?;
    }
    let verdict = match report.worst() {
        None | Some(Severity::Note) => "sound",
        Some(Severity::Damage) => {
            "damaged in places; the store opens, and other members have what is lost here"
        }
        Some(Severity::Fatal) => "damaged; the daemon will not start, or must not",
    };
    writeln!(out, "{verdict}")?;
    Ok(())
}

fn severity(finding: &Finding) -> &'static str {
    match finding.problem.severity() {
        Severity::Note => "note",
        Severity::Damage => "damage",
        Severity::Fatal => "fatal",
    }
}

fn object(finding: &Finding) -> Option<String> {
    finding.object.map(|object| format!("{:016x}{:016x}", object.high, object.low))
}
