//! `fleasefs up`: a cluster on this machine that stays.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::time::Duration;

use anyhow::{Context, bail};
use client::{Client, ConnectError};
use node::Settings;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use crate::background::Noted;
use crate::cluster_dir::{self, DAYS_DEFAULT, Plan};
use crate::local::{LocalCluster, LocalDaemon, free_addresses};

/// How long daemons may take to answer.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// How often to ask them.
const ASK_INTERVAL: Duration = Duration::from_millis(50);

/// Start a cluster on this machine, with everything under DIR, or what of it does not run
///
/// The first time it makes DIR with certificates, configurations and free ports on 127.0.0.1. After that it starts
/// the daemons that do not run, also after the machine was restarted. They run in the background until `fleasefs
/// down DIR`. Interrupted, it stops what it has started.
///
/// Exit codes: 0 when every daemon answers, 1 when one does not, 2 when the command line was wrong.
///
/// Example:
///   fleasefs up /tmp/cluster && export FLEASEFS_CLUSTER=/tmp/cluster && fleasefs status
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The folder of the cluster; made if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// How many daemons a new cluster gets
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    osds: u8,
    /// Print a JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// A daemon, and what was found or started.
struct Running {
    daemon: LocalDaemon,
    supervisor: Noted,
    /// What this command has started.
    started: Option<Child>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let is_new = !args.dir.join("cluster.toml").exists();
    if is_new {
        make(&args.dir, args.osds)?;
    }
    let cluster = LocalCluster::open(&args.dir)?;
    let mut running = Vec::new();
    let ready = crate::runtime()?.block_on(async {
        // From here on an interrupt is a wish, and not the end.
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let starting = async {
            start_all(&cluster, &mut running)?;
            timeout(READY_TIMEOUT, wait_until_ready(&cluster, &mut running))
                .await
                .unwrap_or_else(|_| bail!("not every daemon answers within {} s", READY_TIMEOUT.as_secs()))
        };
        tokio::select! {
            ready = starting => ready,
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("interrupted"),
        }
    });
    if let Err(error) = ready {
        let stopped = stop_started(&running);
        return Err(error.context(format!("the cluster is not up; {stopped}")));
    }
    let printed = if args.json { print_json(&cluster, &running) } else { print(&cluster, &running, is_new) };
    printed.context("could not print what was started")?;
    Ok(ExitCode::SUCCESS)
}

fn make(dir: &Path, osds: u8) -> anyhow::Result<()> {
    let plan = Plan {
        addresses: free_addresses(osds.into())?,
        replicas: None,
        settings: Settings::default(),
        clients: Vec::new(),
        days: DAYS_DEFAULT,
    };
    match cluster_dir::create(dir, &plan, crate::init::now_s()?) {
        Ok(_) => Ok(()),
        // Another `up` was faster, and its cluster is as good.
        Err(_) if dir.join("cluster.toml").exists() => Ok(()),
        Err(error) => Err(error),
    }
}

fn start_all(cluster: &LocalCluster, running: &mut Vec<Running>) -> anyhow::Result<()> {
    for daemon in cluster.daemons()? {
        let (supervisor, started) = match daemon.running()? {
            Some(supervisor) => (supervisor, None),
            None => {
                let (child, supervisor) = daemon.start()?;
                (supervisor, Some(child))
            }
        };
        running.push(Running { daemon, supervisor, started });
    }
    Ok(())
}

/// Returns when every daemon has answered, or when one that was started has ended.
async fn wait_until_ready(cluster: &LocalCluster, running: &mut [Running]) -> anyhow::Result<()> {
    let config = client::Config::find(Some(cluster.dir()))?;
    loop {
        for Running { daemon, started, .. } in running.iter_mut() {
            let Some(child) = started else { continue };
            if let Some(status) = child.try_wait()? {
                *started = None;
                let log = daemon.log_end().unwrap_or_default();
                bail!(
                    "daemon {} ended ({status}); the end of {}:\n{log}",
                    daemon.node,
                    daemon.log().display()
                );
            }
        }
        match Client::connect(&config).await {
            Ok(client) => {
                let states = client.status().await;
                client.close().await;
                if states.iter().all(|state| state.status.is_ok()) {
                    return Ok(());
                }
            }
            Err(ConnectError::NoDaemon(_)) => {}
            Err(error) => return Err(error.into()),
        }
        sleep(ASK_INTERVAL).await;
    }
}

/// Stops what this command has started, and says so.
fn stop_started(running: &[Running]) -> String {
    let started: Vec<&LocalDaemon> =
        running.iter().filter(|daemon| daemon.started.is_some()).map(|running| &running.daemon).collect();
    let stuck: Vec<String> = crate::down::stop_all(&started)
        .into_iter()
        .filter_map(|(daemon, stopped)| {
            stopped.err().map(|error| format!("daemon {}: {error:#}", daemon.node))
        })
        .collect();
    match (started.len(), stuck.is_empty()) {
        (0, _) => "nothing was started".to_owned(),
        (_, true) => "what was started is stopped again".to_owned(),
        (_, false) => format!("and this could not be stopped again: {}", stuck.join("; ")),
    }
}

fn print_json(cluster: &LocalCluster, running: &[Running]) -> io::Result<()> {
    let daemon = |running: &Running| {
        json!({
            "node": running.daemon.node,
            "address": running.daemon.address,
            "metrics": running.daemon.metrics,
            "log": running.daemon.log(),
            "process": running.supervisor.id,
            "started": running.started.is_some(),
        })
    };
    let object = json!({
        "cluster": cluster.map().cluster().to_string(),
        "path": cluster.dir(),
        "daemons": running.iter().map(daemon).collect::<Vec<_>>(),
    });
    writeln!(io::stdout().lock(), "{object}")
}

fn print(cluster: &LocalCluster, running: &[Running], is_new: bool) -> io::Result<()> {
    let dir = cluster.dir().display();
    let mut out = io::stdout().lock();
    let what = if is_new { "A new cluster is up" } else { "The cluster is up" };
    writeln!(out, "{what} in {dir}:")?;
    for Running { daemon, supervisor, started } in running {
        let how = if started.is_some() { "started" } else { "was running" };
        writeln!(out, "  daemon {}  {}  {how} (process {})", daemon.node, daemon.address, supervisor.id)?;
    }
    writeln!(out, "\nUse it:\n  export FLEASEFS_CLUSTER={dir}\n  fleasefs status")?;
    writeln!(out, "  fleasefs lock NAME -- COMMAND\n\nStop it: fleasefs down {dir}")
}
