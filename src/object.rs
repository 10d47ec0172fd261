//! `fleasefs object`: content that the cluster keeps under a name.

mod transfer;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Subcommand;
use client::{Client, Object, ObjectError};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use transfer::{Sink, Source};

/// There is no such object.
const NO_SUCH_OBJECT: u8 = 66;
/// Nobody has answered for it in time.
const UNANSWERED: u8 = 75;
/// What a shell adds to the number of the signal that ended a command.
const BY_SIGNAL: u8 = 128;

/// Keep content in the cluster under a name, and get it back
///
/// An object is replicated like every file and has no place in any folder. Whoever
/// reads an object while it is put may see some of both contents.
///
/// Exit codes: 0 when all went well; 66 when there is no such object; 75 when no
/// daemon answered for it in time; 128 + N when signal N ended the command; 1 when
/// something else failed.
///
/// Examples:
///   fleasefs object put backup.tar backup.tar
///   tar c /etc | fleasefs object put etc.tar -
///   fleasefs object get etc.tar - | tar t
///   fleasefs object stat etc.tar --json
///   fleasefs object rm etc.tar
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    deed: Deed,

    /// The folder that `fleasefs init` or `fleasefs up` made, or a client.toml; default: $FLEASEFS_CLUSTER
    #[arg(long, value_name = "DIR", global = true)]
    cluster: Option<PathBuf>,

    /// Give up when a request has had no answer for this many seconds
    #[arg(long, value_name = "SECONDS", global = true, default_value_t = 30)]
    patience_s: u64,

    /// Print one JSON object; units stand at the end of each key
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Deed {
    /// Store a file under a name, in place of what is there
    Put {
        /// The object: any text
        name: String,
        /// What to store; `-` is standard input
        #[arg(default_value = "-")]
        file: PathBuf,
        /// Return when a majority has it in memory, not only when it would survive a loss of power
        #[arg(long)]
        no_sync: bool,
    },
    /// Write an object's content to a file
    Get {
        /// The object
        name: String,
        /// Where to; `-` is standard output
        #[arg(default_value = "-")]
        file: PathBuf,
    },
    /// Show an object's size and times
    Stat {
        /// The object
        name: String,
    },
    /// Remove an object
    Rm {
        /// The object
        name: String,
        /// Return when a majority has removed it, not only when that would survive a loss of power
        #[arg(long)]
        no_sync: bool,
    },
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let goes_to_stdout = matches!(&args.deed, Deed::Get { file, .. } if is_standard(file));
    ensure!(
        !(args.json && goes_to_stdout),
        "--json needs standard output for itself: name a file to write to"
    );
    let config = client::Config::find(args.cluster.as_deref())?;
    crate::runtime()?.block_on(until_told(&args, &config))
}

/// Does it, unless a signal comes first.
async fn until_told(args: &Args, config: &client::Config) -> anyhow::Result<ExitCode> {
    let listen = |kind| signal(kind).context("could not listen for signals");
    let mut interrupt = listen(SignalKind::interrupt())?;
    let mut terminate = listen(SignalKind::terminate())?;
    let number = tokio::select! {
        done = act(args, config) => return code_of(done),
        _ = interrupt.recv() => SignalKind::interrupt().as_raw_value(),
        _ = terminate.recv() => SignalKind::terminate().as_raw_value(),
    };
    let name = args.deed.name();
    if matches!(args.deed, Deed::Put { .. }) {
        writeln!(io::stderr(), "fleasefs: interrupted; `{name}` holds what had been sent by then")?;
    }
    Ok(u8::try_from(number)
        .map_or(ExitCode::FAILURE, |number| ExitCode::from(BY_SIGNAL.saturating_add(number))))
}

async fn act(args: &Args, config: &client::Config) -> anyhow::Result<()> {
    let client = Client::connect(config).await?;
    let object = client.object_named(args.deed.name())?;
    let object = object.with_patience(Duration::from_secs(args.patience_s));
    let told = match &args.deed {
        Deed::Put { file, no_sync, .. } => put(&object, file, !no_sync).await,
        Deed::Get { file, .. } => get(&object, file).await,
        Deed::Stat { .. } => stat(&object).await,
        Deed::Rm { no_sync, .. } => remove(&object, !no_sync).await,
    };
    drop(object);
    client.close().await;
    let told = told?;
    match &args.deed {
        _ if args.json => print_json(args, told).context("could not print"),
        Deed::Stat { .. } => print_stat(&told).context("could not print"),
        Deed::Put { .. } | Deed::Get { .. } | Deed::Rm { .. } => Ok(()),
    }
}

async fn put(object: &Object, file: &Path, syncs: bool) -> anyhow::Result<Value> {
    let source = Source::open(file)?;
    let bar = progress_bar(source.len());
    let began = Instant::now();
    object.create().await?;
    object.truncate(0).await?;
    let bytes = transfer::put(object, source, &bar).await?;
    if syncs {
        object.sync().await?;
    }
    bar.finish_and_clear();
    let took_s = began.elapsed().as_secs_f64();
    Ok(json!({ "size_bytes": bytes, "is_synced": syncs, "took_s": took_s }))
}

async fn get(object: &Object, file: &Path) -> anyhow::Result<Value> {
    let size = object.stat().await?.size;
    let bar = progress_bar(Some(size));
    let began = Instant::now();
    let sink = Sink::open(file)?;
    transfer::get(object, size, sink, &bar).await?;
    bar.finish_and_clear();
    Ok(json!({ "size_bytes": size, "took_s": began.elapsed().as_secs_f64() }))
}

async fn stat(object: &Object) -> anyhow::Result<Value> {
    let stat = object.stat().await?;
    Ok(json!({
        "id": format!("{:016x}{:016x}", object.id().high, object.id().low),
        "size_bytes": stat.size,
        "allocated_bytes": stat.allocated,
        "modified_us": stat.modified.as_micros(),
        "changed_us": stat.changed.as_micros(),
    }))
}

async fn remove(object: &Object, syncs: bool) -> anyhow::Result<Value> {
    object.remove().await?;
    if syncs {
        object.sync().await?;
    }
    Ok(json!({ "is_synced": syncs }))
}

impl Deed {
    fn name(&self) -> &str {
        match self {
            Self::Put { name, .. } | Self::Get { name, .. } | Self::Stat { name } | Self::Rm { name, .. } => {
                name
            }
        }
    }
}

/// Some failures have codes of their own.
fn code_of(done: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    let Err(error) = done else { return Ok(ExitCode::SUCCESS) };
    let code = match error.downcast_ref::<ObjectError>() {
        Some(ObjectError::NoSuchObject) => NO_SUCH_OBJECT,
        Some(ObjectError::Unanswered { .. }) => UNANSWERED,
        _ => return Err(error),
    };
    writeln!(io::stderr(), "fleasefs: {error}")?;
    Ok(ExitCode::from(code))
}

/// On standard error, and only if that is a terminal.
fn progress_bar(size: Option<u64>) -> ProgressBar {
    let (bar, template) = match size {
        Some(size) => (ProgressBar::new(size), "{bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta}"),
        None => (ProgressBar::new_spinner(), "{spinner} {bytes} {bytes_per_sec}"),
    };
    bar.with_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn print_json(args: &Args, mut told: Value) -> anyhow::Result<()> {
    told["name"] = args.deed.name().into();
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &told)?;
    writeln!(out)?;
    Ok(())
}

fn print_stat(told: &Value) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    for (what, key, unit) in [
        ("id", "id", ""),
        ("size", "size_bytes", " bytes"),
        ("kept", "allocated_bytes", " bytes in each copy"),
        ("modified", "modified_us", " µs after the start of 1970 (UTC)"),
        ("changed", "changed_us", " µs after the start of 1970 (UTC)"),
    ] {
        let value = told[key].as_str().map_or_else(|| told[key].to_string(), str::to_owned);
        writeln!(out, "{what:<10}{value}{unit}")?;
    }
    Ok(())
}

fn is_standard(file: &Path) -> bool {
    file.as_os_str() == "-"
}
