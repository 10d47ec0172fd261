//! `fleasefs top`: a live view of a cluster.

mod changes;
mod screen;
mod terminal;

use std::collections::VecDeque;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context;
use client::{Client, DaemonState};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{Instant as At, sleep_until};

use changes::Change;
use screen::Shown;
use terminal::Terminal;

/// So many lines of what happened are kept.
const LOG_LINES_MAX: usize = 200;

/// Watch a cluster: its daemons, what each leads, what they do, and what fails over
///
/// It redraws in place until `q` or Ctrl-C. The last part says what has changed
/// since it was started: daemons that went and came, drained ones, leases that were
/// lost or moved.
///
/// If the output is no terminal it prints one view of one interval and ends; with
/// --json always, as one object.
///
/// Exit codes: 0 when it ended as asked, 1 when no daemon could be asked, 2 when
/// the command line was wrong.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The folder that `fleasefs init` or `fleasefs up` made, or a client.toml; default: $FLEASEFS_CLUSTER
    #[arg(long, value_name = "DIR")]
    cluster: Option<PathBuf>,

    /// How long the interval is over which rates are taken, and the time between two views
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    interval_ms: u64,

    /// Print one JSON object over one interval, and end
    #[arg(long)]
    json: bool,
}

/// What the daemons said at one time.
pub(crate) struct Sample {
    pub(crate) at: Instant,
    pub(crate) states: Vec<DaemonState>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = client::Config::find(args.cluster.as_deref())?;
    let is_live = !args.json && io::stdout().is_terminal() && io::stdin().is_terminal();
    crate::runtime()?.block_on(async {
        let client = Client::connect(&config).await?;
        let watched = if is_live { watch(&client, args).await } else { once(&client, args).await };
        client.close().await;
        watched
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn sample(client: &Client) -> Sample {
    let states = client.status().await;
    Sample { at: Instant::now(), states }
}

async fn once(client: &Client, args: &Args) -> anyhow::Result<()> {
    let before = sample(client).await;
    tokio::time::sleep(Duration::from_millis(args.interval_ms)).await;
    let after = sample(client).await;
    let shown = Shown::of(&before, &after, client.map().cluster().to_string());
    let print = || -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        if args.json {
            writeln!(out, "{}", shown.json())?;
        } else {
            shown.lines().iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        Ok(())
    };
    print().context("could not print")
}

/// Redraws until it is told to end.
async fn watch(client: &Client, args: &Args) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut terminal = Terminal::begin().context("the terminal cannot be used for a view")?;
    let mut log: VecDeque<Change> = VecDeque::new();
    let mut before = sample(client).await;
    let mut next = At::now();
    loop {
        next = (next + Duration::from_millis(args.interval_ms)).max(At::now());
        let after = tokio::select! {
            after = async { sleep_until(next).await; sample(client).await } => after,
            () = terminal.quit() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = terminate.recv() => return Ok(()),
            _ = hang_up.recv() => return Ok(()),
        };
        log.extend(changes::between(&before, &after));
        while log.len() > LOG_LINES_MAX {
            log.pop_front();
        }
        let shown = Shown::of(&before, &after, client.map().cluster().to_string());
        terminal.draw(&shown.lines(), &log).context("could not draw")?;
        before = after;
    }
}
