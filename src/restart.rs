//! `fleasefs restart --rolling`: the daemons of a cluster on this machine, one after the other, while everybody goes on.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use base::{Incarnation, NodeId};
use client::{Client, DaemonState, OrderError};
use indicatif::ProgressBar;
use node::{ClockTrust, DrainStatus, Status};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use crate::background::Stopped;
use crate::drain::{progress, wait_until_drained};
use crate::local::{LocalCluster, LocalDaemon};

/// How long each step may take before it counts as failed. A daemon that started votes again after little more than a lease time.
const STEP_PATIENCE: Duration = Duration::from_secs(60);
/// How often to look.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Restart the daemons of a cluster made by `fleasefs up`, one after the other
///
/// Each daemon hands over what it leads, stops, and starts; the next one's turn
/// comes when it votes again and all daemons have what it missed. Clients and
/// mounts go on meanwhile. That is how to have a new version of this program in
/// force.
///
/// It begins only when all daemons are well. Interrupted, it sees to it that the
/// daemon whose turn it is runs, and ends. A daemon that was drained stays drained.
/// Needs an operator's certificate (admin/NAME), which DIR has.
///
/// Exit codes: 0 when all were restarted, 1 when one was not, 2 when the command
/// line was wrong.
///
/// Example:
///   fleasefs restart --rolling /tmp/cluster
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// One after the other; there is no other way yet: `fleasefs down` and `up` restart all at once
    #[arg(long, required = true)]
    rolling: bool,

    /// The folder of the cluster
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// How long the parts of one restart took.
struct Took {
    node: NodeId,
    drain: Duration,
    stop: Duration,
    start: Duration,
}

/// One daemon whose turn it is.
struct Turn<'a> {
    client: &'a Client,
    daemon: &'a LocalDaemon,
    bar: &'a ProgressBar,
    /// Whether it was drained before, and stays so.
    stays_drained: bool,
    /// The start that is to end.
    before: Incarnation,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(args.rolling, "say --rolling: daemons are restarted one after the other");
    let cluster = LocalCluster::open(&args.dir)?;
    let config = client::Config::find(Some(cluster.dir()))?;
    let bar = progress(args.json);
    let took = crate::runtime()?.block_on(async {
        let client = Client::connect(&config).await?;
        let took = restart_all(&client, &cluster, &bar, args.json).await;
        client.close().await;
        took
    });
    bar.finish_and_clear();
    let took = took?;
    if args.json {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let daemon = |took: &Took| {
            json!({
                "daemon": took.node.0,
                "drain_ms": ms(took.drain),
                "stop_ms": ms(took.stop),
                "start_ms": ms(took.start),
            })
        };
        let daemons: Vec<_> = took.iter().map(daemon).collect();
        writeln!(io::stdout().lock(), "{}", json!({ "daemons": daemons })).context("could not print")?;
    }
    Ok(ExitCode::SUCCESS)
}

async fn restart_all(
    client: &Client,
    cluster: &LocalCluster,
    bar: &ProgressBar,
    is_json: bool,
) -> anyhow::Result<Vec<Took>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (mut took, daemons) = (Vec::new(), cluster.daemons());
    for daemon in &daemons {
        // A configuration that does not load would keep it from starting again.
        daemon.config()?;
    }
    wait_until_well(client, bar, "before the first daemon's turn").await?;
    for daemon in &daemons {
        let status = client.status_of(daemon.node).await.map_err(anyhow::Error::msg)?;
        let turn = Turn {
            client,
            daemon,
            bar,
            stays_drained: matches!(status.drain, DrainStatus::Draining | DrainStatus::Drained),
            before: status.daemon.process.incarnation,
        };
        let done = tokio::select! {
            done = turn.restart() => done,
            _ = interrupt.recv() => Err(anyhow::anyhow!("interrupted")),
            _ = terminate.recv() => Err(anyhow::anyhow!("interrupted")),
        };
        match done {
            Ok(one) => {
                if !is_json {
                    say(bar, &one)?;
                }
                took.push(one);
            }
            Err(error) => {
                let left = turn.leave_running().await;
                return Err(error.context(format!("daemon {} is not restarted; {left}", daemon.node)));
            }
        }
    }
    Ok(took)
}

fn say(bar: &ProgressBar, took: &Took) -> anyhow::Result<()> {
    let Took { node, drain, stop, start } = took;
    let (drain, stop) = (drain.as_millis(), stop.as_millis());
    let line = format!(
        "daemon {node} restarted: handed over in {drain} ms, stopped in {stop} ms, back after {:.1} s",
        start.as_secs_f64()
    );
    if io::stderr().is_terminal() {
        bar.suspend(|| writeln!(io::stdout().lock(), "{line}")).context("could not print")
    } else {
        writeln!(io::stdout().lock(), "{line}").context("could not print")
    }
}

impl Turn<'_> {
    async fn restart(&self) -> anyhow::Result<Took> {
        let node = self.daemon.node;
        let began = Instant::now();
        self.drain().await?;
        wait_until_drained(self.client, node, STEP_PATIENCE, self.bar).await?.ensure_drained(node)?;
        let drained = Instant::now();
        self.bar.set_message(format!("daemon {node} stops"));
        let daemon = self.daemon.clone();
        match tokio::task::spawn_blocking(move || daemon.stop()).await?? {
            Some(Stopped::Cleanly) | None => {}
            Some(Stopped::Killed) => bail!("it did not stop in time and was killed"),
            Some(Stopped::Stuck) => {
                bail!("it cannot be stopped: it waits in the kernel, most likely for a disk")
            }
        }
        let stopped = Instant::now();
        self.bar.set_message(format!("daemon {node} starts"));
        self.daemon.start()?;
        self.wait_until_back().await?;
        if !self.stays_drained {
            self.client.undrain(node).await?;
        }
        wait_until_well(self.client, self.bar, &format!("after the restart of daemon {node}")).await?;
        Ok(Took { node, drain: drained - began, stop: stopped - drained, start: stopped.elapsed() })
    }

    /// The others learn in a moment that the daemon before is back, and until then it counts as missing.
    async fn drain(&self) -> anyhow::Result<()> {
        let end = Instant::now() + STEP_PATIENCE;
        loop {
            match self.client.drain(self.daemon.node, false).await {
                Err(OrderError::Drain { .. }) if Instant::now() < end => sleep(LOOK_INTERVAL).await,
                drained => return Ok(drained?),
            }
        }
    }

    /// Until the new process answers.
    async fn wait_until_back(&self) -> anyhow::Result<()> {
        let node = self.daemon.node;
        let back = async {
            loop {
                if let Ok(status) = self.client.status_of(node).await
                    && status.daemon.process.incarnation > self.before
                {
                    return;
                }
                self.bar.tick();
                sleep(LOOK_INTERVAL).await;
            }
        };
        let Err(_) = timeout(STEP_PATIENCE, back).await else { return Ok(()) };
        let end = self.daemon.log_end().unwrap_or_default();
        let (seconds, log) = (STEP_PATIENCE.as_secs(), self.daemon.log());
        bail!("it does not answer {seconds} s after its start; the end of {}:\n{end}", log.display())
    }

    /// After a failure the daemon is to run, and to be as it was. Says how far that came.
    async fn leave_running(&self) -> String {
        let node = self.daemon.node;
        match self.daemon.running() {
            Ok(Some(_)) => {}
            Ok(None) | Err(_) => {
                if let Err(error) = self.daemon.start() {
                    return format!("it is stopped, and does not start: {error:#}");
                }
            }
        }
        if self.stays_drained {
            return "it runs, and is drained as before".to_owned();
        }
        if self.wait_until_back_or_there().await && self.client.undrain(node).await.is_ok() {
            return "it runs as before".to_owned();
        }
        format!("it runs, but may be drained: see `fleasefs status` and `fleasefs undrain {node}`")
    }

    async fn wait_until_back_or_there(&self) -> bool {
        let answers = async {
            while self.client.status_of(self.daemon.node).await.is_err() {
                sleep(LOOK_INTERVAL).await;
            }
        };
        timeout(Duration::from_secs(10), answers).await.is_ok()
    }
}

/// Returns when all daemons answer, are connected with each other, vote, and have all that those have that lead.
async fn wait_until_well(client: &Client, bar: &ProgressBar, when: &str) -> anyhow::Result<()> {
    let mut missing = BTreeMap::new();
    let well = async {
        loop {
            let states = client.status().await;
            missing = states.iter().filter_map(|state| Some((state.node, ill(state)?))).collect();
            let Some((node, why)) = missing.first_key_value() else { return };
            bar.set_message(format!("waiting {when}: daemon {node} {why}"));
            bar.tick();
            sleep(LOOK_INTERVAL).await;
        }
    };
    if timeout(STEP_PATIENCE, well).await.is_ok() {
        return Ok(());
    }
    let list: String = missing.iter().map(|(node, why)| format!("\n  daemon {node} {why}")).collect();
    bail!("not all is well {when}, {} s on:{list}", STEP_PATIENCE.as_secs())
}

/// Why the next daemon's turn has not come.
fn ill(state: &DaemonState) -> Option<String> {
    match &state.status {
        Err(why) => Some(format!("does not answer: {why}")),
        Ok(status) => ill_of(status),
    }
}

fn ill_of(status: &Status) -> Option<String> {
    if let Some(peer) = status.peers.iter().find(|peer| !peer.connected) {
        return Some(format!("has no connection to daemon {}", peer.node));
    }
    match (status.drain, status.clock.state, status.leases.behind) {
        _ if status.quarantine_ms > 0 => Some(format!("votes again in {} ms", status.quarantine_ms)),
        (DrainStatus::Stopping, ..) => Some("is stopping".to_owned()),
        (_, ClockTrust::Joining, _) => Some("has not found a majority yet".to_owned()),
        (_, ClockTrust::Off, _) => Some("has a clock that is off".to_owned()),
        (_, ClockTrust::Sound, 0) => None,
        (_, ClockTrust::Sound, behind) => {
            Some(format!("leads {behind} files of which others lack something"))
        }
    }
}
