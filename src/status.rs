//! `fleasefs status`: how the daemons of a cluster are.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use client::{Client, ConnectError, DaemonState};
use node::{ClockTrust, DrainStatus, Status};
use serde_json::{Value, json};

/// Show how the daemons of a cluster are, and say plainly what is wrong
///
/// Each daemon shows the whole cluster live on a page of its own; below the table stands where.
///
/// Exit codes: 0 when all is well, 1 when something is wrong, 2 when the command line was wrong.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The folder that `fleasefs init` or `fleasefs up` made, or a client.toml; default: $FLEASEFS_CLUSTER
    #[arg(long, value_name = "DIR")]
    cluster: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = client::Config::find(args.cluster.as_deref())?;
    let states = crate::runtime()?.block_on(ask(&config))?;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let problems = client::problems(&states, now_s);
    let printed =
        if args.json { print_json(&config, &states, &problems) } else { print(&config, &states, &problems) };
    printed.context("could not print the status")?;
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A cluster of which no daemon answers has a status, too.
async fn ask(config: &client::Config) -> Result<Vec<DaemonState>, ConnectError> {
    match Client::connect(config).await {
        Ok(client) => {
            let states = client.status().await;
            client.close().await;
            Ok(states)
        }
        Err(ConnectError::NoDaemon(daemons) | ConnectError::Certificate(daemons)) => Ok(daemons
            .into_iter()
            .map(|(node, address, why)| DaemonState { node, address, status: Err(why) })
            .collect()),
        Err(error) => Err(error),
    }
}

fn print_json(config: &client::Config, states: &[DaemonState], problems: &[String]) -> anyhow::Result<()> {
    let daemon = |state: &DaemonState| match &state.status {
        Ok(status) => {
            json!({ "node": state.node, "address": state.address, "answers": true, "status": status })
        }
        Err(why) => json!({ "node": state.node, "address": state.address, "answers": false, "why": why }),
    };
    let whole = json!({
        "cluster": config.map.cluster().to_string(),
        "map_version": config.map.version(),
        "healthy": problems.is_empty(),
        "problems": problems,
        "daemons": states.iter().map(daemon).collect::<Vec<Value>>(),
    });
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &whole)?;
    writeln!(out)?;
    Ok(())
}

fn print(config: &client::Config, states: &[DaemonState], problems: &[String]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "cluster {}, map version {}", config.map.cluster(), config.map.version())?;
    writeln!(
        out,
        "{:>6}  {:<22} {:>5}  {:>8}  {:>16}  {:>8}  {:>7}  {:>7}  state",
        "daemon", "address", "start", "up", "clock", "primary", "locks", "clients"
    )?;
    for state in states {
        let (node, address) = (state.node.to_string(), &state.address);
        match &state.status {
            Ok(status) => writeln!(out, "{node:>6}  {address:<22} {}", row(status))?,
            Err(_) => writeln!(out, "{node:>6}  {address:<22} {:>5}  does not answer", "")?,
        }
    }
    for status in states.iter().filter_map(|state| state.status.as_ref().ok()) {
        if let Some(page) = status.page.as_ref().filter(|page| page.fault.is_none()) {
            let token = if page.needs_token { " (asks for its token)" } else { "" };
            writeln!(out, "page of daemon {}: {}{token}", status.daemon.process.node, page.url)?;
        }
    }
    for problem in problems {
        writeln!(out, "! {problem}")?;
    }
    if problems.is_empty() {
        writeln!(out, "all is well")?;
    }
    Ok(())
}

fn row(status: &Status) -> String {
    let clock = match status.clock.offset_max_us {
        Some(offset_us) => format!(
            "{}.{} of {} ms",
            offset_us / 1_000,
            offset_us % 1_000 / 100,
            status.clock.epsilon_us / 1_000
        ),
        None => "alone".to_owned(),
    };
    let state = match (status.clock.state, status.quarantine_ms) {
        (_, 1..) => "quarantined",
        (ClockTrust::Joining, 0) => "joining",
        (ClockTrust::Off, 0) => "clock is off",
        (ClockTrust::Sound, 0) => match status.drain {
            DrainStatus::No => "ok",
            DrainStatus::Draining => "draining",
            DrainStatus::Drained => "drained",
            DrainStatus::Stopping => "stopping",
        },
    };
    format!(
        "{:>5}  {:>8}  {:>16}  {:>8}  {:>7}  {:>7}  {state}",
        status.daemon.process.incarnation.0,
        uptime(status.daemon.uptime_ms / 1_000),
        clock,
        status.leases.primaries,
        status.locks.held,
        status.locks.sessions,
    )
}

fn uptime(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}
