//! `fleasefs drain` and `fleasefs undrain`: a daemon leads nothing, and leads again.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use base::NodeId;
use client::{Client, Status};
use indicatif::{ProgressBar, ProgressStyle};
use node::DrainStatus;
use serde_json::json;
use tokio::time::sleep;

/// It still leads something when the patience is over.
const NOT_DONE: u8 = 75;
/// How often to ask how far it is.
const ASK_INTERVAL: Duration = Duration::from_millis(20);

/// Have a daemon hand over all that it leads, and lead nothing until `undrain`
///
/// The daemon goes on to vote and to keep copies, so nothing is less safe. What it
/// leads goes to other daemons without a pause that clients notice: that is how to
/// prepare a stop, an upgrade, or a look at a slow machine. It stays drained over a
/// restart, until `fleasefs undrain`.
///
/// It is refused if, with the daemon stopped, something that it stores would lack a
/// majority; --force does it anyway. Needs an operator's certificate (admin/NAME).
///
/// Exit codes: 0 when the daemon leads nothing; 75 when it still led something
/// after --patience-s, in which case it goes on; 1 when it is refused or something
/// failed.
///
/// Example:
///   fleasefs drain 2 && systemctl restart fleasefs-osd@2 && fleasefs undrain 2
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct DrainArgs {
    /// The daemon, by its number in the map
    #[arg(value_name = "OSD")]
    osd: u32,

    /// Drain it although something would lack a majority if it were stopped then
    #[arg(long)]
    force: bool,

    /// Wait no longer than so many seconds until it leads nothing
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    patience_s: u64,

    #[command(flatten)]
    common: Common,
}

/// Have a drained daemon lead again what it is asked for
///
/// Nothing moves at once: it leads what is asked for at it from then on.
/// Needs an operator's certificate (admin/NAME).
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct UndrainArgs {
    /// The daemon, by its number in the map
    #[arg(value_name = "OSD")]
    osd: u32,

    #[command(flatten)]
    common: Common,
}

#[derive(clap::Args)]
struct Common {
    /// The folder that `fleasefs init` or `fleasefs up` made, or a client.toml; default: $FLEASEFS_CLUSTER
    #[arg(long, value_name = "DIR")]
    cluster: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What a daemon leads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Led {
    primaries: u64,
    locks: u64,
    is_drained: bool,
}

pub(crate) fn drain(args: &DrainArgs) -> anyhow::Result<ExitCode> {
    let node = NodeId(args.osd);
    let config = client::Config::find(args.common.cluster.as_deref())?;
    let began = Instant::now();
    let (first, last) = crate::runtime()?.block_on(async {
        let client = Client::connect(&config).await?;
        let drained = drain_one(&client, node, args).await;
        client.close().await;
        drained
    })?;
    let took = began.elapsed();
    let printed = if args.common.json {
        print(&json!({
            "daemon": node.0,
            "is_drained": last.is_drained,
            "primaries_before": first.primaries,
            "locks_before": first.locks,
            "primaries": last.primaries,
            "locks": last.locks,
            "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        }))
    } else if last.is_drained {
        print(&format_args!("daemon {node} is drained: it led {first}, and leads nothing now"))
    } else {
        let seconds = args.patience_s;
        print(&format_args!(
            "daemon {node} still leads {last} after {seconds} s, and goes on giving that up; see `fleasefs status`"
        ))
    };
    printed?;
    Ok(if last.is_drained { ExitCode::SUCCESS } else { ExitCode::from(NOT_DONE) })
}

pub(crate) fn undrain(args: &UndrainArgs) -> anyhow::Result<ExitCode> {
    let node = NodeId(args.osd);
    let config = client::Config::find(args.common.cluster.as_deref())?;
    crate::runtime()?.block_on(async {
        let client = Client::connect(&config).await?;
        let undrained = client.undrain(node).await;
        client.close().await;
        anyhow::Ok(undrained?)
    })?;
    if args.common.json {
        print(&json!({ "daemon": node.0, "is_drained": false }))?;
    } else {
        print(&format_args!("daemon {node} leads again what it is asked for"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(what: &dyn std::fmt::Display) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{what}").context("could not print")
}

/// What the daemon led before, and what it leads after all or after the patience.
async fn drain_one(client: &Client, node: NodeId, args: &DrainArgs) -> anyhow::Result<(Led, Led)> {
    let first = led(client, node).await;
    client.drain(node, args.force).await.map_err(|error| {
        let is_refused = matches!(&error, client::OrderError::Drain { .. });
        let error = anyhow::Error::from(error);
        if is_refused { error.context("refused; --force does it anyway") } else { error }
    })?;
    let bar = progress(args.common.json);
    let drained = wait_until_drained(client, node, Duration::from_secs(args.patience_s), &bar).await;
    bar.finish_and_clear();
    let last = drained?;
    Ok((first.unwrap_or(last), last))
}

/// Waits until a daemon that was told to leads nothing, or until the patience is over.
pub(crate) async fn wait_until_drained(
    client: &Client,
    node: NodeId,
    patience: Duration,
    bar: &ProgressBar,
) -> anyhow::Result<Led> {
    let end = Instant::now() + patience;
    loop {
        let led = led(client, node).await?;
        if led.is_drained || Instant::now() >= end {
            return Ok(led);
        }
        bar.set_message(format!("daemon {node} leads {led}"));
        bar.tick();
        sleep(ASK_INTERVAL).await;
    }
}

async fn led(client: &Client, node: NodeId) -> anyhow::Result<Led> {
    let status = match client.status_of(node).await {
        Ok(status) => status,
        Err(why) => bail!("daemon {node} does not answer: {why}"),
    };
    Ok(Led::of(&status))
}

impl Led {
    fn of(status: &Status) -> Self {
        Self {
            primaries: status.leases.primaries,
            locks: status.leases.held,
            is_drained: status.drain == DrainStatus::Drained,
        }
    }

    /// An error if there is something left.
    pub(crate) fn ensure_drained(&self, node: NodeId) -> anyhow::Result<()> {
        ensure!(self.is_drained, "daemon {node} still leads {self}");
        Ok(())
    }
}

impl std::fmt::Display for Led {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { primaries, locks, .. } = self;
        write!(f, "{primaries} files and volumes and {locks} locks")
    }
}

pub(crate) fn progress(is_hidden: bool) -> ProgressBar {
    if is_hidden {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{spinner} {msg}").expect("the template is well formed");
    ProgressBar::new_spinner().with_style(style)
}
