//! `fleasefs up`: a cluster on this machine that stays.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::time::Duration;

use ::osd::config::Config;
use ::osd::store::index::Engine;
use anyhow::{Context, bail, ensure};
use base::NodeId;
use client::{Client, ConnectError, DaemonState, VolumeError};
use node::{ClockTrust, DrainStatus, Settings, VolumeName};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{sleep, timeout};

use crate::background::Noted;
use crate::cluster_dir::{self, DAYS_DEFAULT, Index, Plan};
use crate::local::{LocalCluster, LocalDaemon, free_addresses};
use crate::shell;

/// How long daemons may take to answer.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// How often to ask them.
const ASK_INTERVAL: Duration = Duration::from_millis(50);

/// Start a cluster on this machine, with everything under DIR, or what of it does not run
///
/// The first time it makes DIR with certificates, configurations and free ports
/// on 127.0.0.1. After that it starts the daemons that do not run, also after the
/// machine was restarted. They run in the background until `fleasefs down DIR`.
/// Interrupted, it stops what it has started. With --mount its volume `main` is
/// mounted, too, and made if there is none; what a mount has left there whose
/// process has gone is taken away before.
///
/// Exit codes: 0 when every daemon answers and has found the others, 1 when one
/// does not, 2 when the command line was wrong.
///
/// Example:
///   fleasefs up /tmp/cluster && fleasefs status --cluster /tmp/cluster
///   fleasefs up /tmp/cluster --mount /mnt && echo hello > /mnt/hello
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The folder of the cluster; made if it does not exist
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// How many daemons a new cluster gets
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=9))]
    osds: u8,
    /// What keeps the index of each daemon's data, in a new cluster [default: redb]
    #[arg(long, value_enum, value_name = "ENGINE")]
    index: Option<Index>,
    /// Mount the volume `main` here once the daemons are ready; the directory is made if it does not exist
    #[arg(long, value_name = "PATH")]
    mount: Option<PathBuf>,
    /// Print a JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// A daemon, and what was found or started.
struct Running {
    daemon: LocalDaemon,
    config: Config,
    supervisor: Noted,
    /// What this command has started.
    started: Option<Child>,
}

/// Which daemons take no part yet, and why.
type Missing = BTreeMap<NodeId, String>;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let is_new = !args.dir.join("cluster.toml").exists();
    if is_new {
        make(args)?;
    }
    let cluster = LocalCluster::open(&args.dir)?;
    check_index(args, &cluster)?;
    let mut running = Vec::new();
    let ready = crate::runtime()?.block_on(async {
        // From here on an interrupt is a wish, and not the end.
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        let starting = async {
            start_all(&cluster, &mut running)?;
            let mut missing = Missing::new();
            let ready = timeout(READY_TIMEOUT, wait_until_ready(&cluster, &mut running, &mut missing)).await;
            ready.unwrap_or_else(|_| {
                let (seconds, list) = (READY_TIMEOUT.as_secs(), list(&missing, &running));
                bail!("not every daemon is ready after {seconds} s:{list}")
            })
        };
        tokio::select! {
            ready = starting => ready,
            _ = interrupt.recv() => bail!("interrupted"),
            _ = terminate.recv() => bail!("interrupted"),
            _ = hang_up.recv() => bail!("interrupted"),
        }
    });
    if let Err(error) = ready {
        let stopped = stop_started(&running);
        return Err(error.context(format!("the cluster is not up; {stopped}")));
    }
    let mounted = args.mount.as_deref().map(|path| mount(&cluster, path)).transpose();
    let mounted = mounted.context("the cluster is up, but its volume is not mounted")?;
    let printed = if args.json {
        print_json(&cluster, &running, mounted.as_deref())
    } else {
        print(&cluster, &running, (is_new, mounted.as_deref()))
    };
    printed.context("could not print what was started")?;
    Ok(ExitCode::SUCCESS)
}

/// Mounts the volume `main`, unless it is mounted there. What is left of a mount whose process has gone is taken away before. Returns where.
fn mount(cluster: &LocalCluster, path: &Path) -> anyhow::Result<PathBuf> {
    let config = client::Config::find(Some(cluster.dir()))?;
    crate::runtime()?.block_on(async {
        let client = Client::connect(&config).await?;
        let name = VolumeName::parse(crate::mount::VOLUME_DEFAULT)?;
        // One that is there may be mounted when there is no space for another one.
        let found = match client.volume(&name).await {
            Err(VolumeError::NoSuchVolume(_)) => {
                match client.create_volume(&name, crate::volume::caller()).await {
                    Err(VolumeError::Exists(_)) => Ok(()),
                    made => made.map(drop),
                }
            }
            found => found.map(drop),
        };
        client.close().await;
        anyhow::Ok(found?)
    })?;
    // What is mounted there may be dead, and then the folder is as good as there.
    let _ = fs::create_dir_all(path);
    let point = client_fuse::resolved(path);
    let mut mounts = client_fuse::mounts()?.into_iter();
    let is_mounted = mounts.any(|mount| mount.point == point && mount.is_of(cluster.dir()));
    let is_left = is_mounted && client_fuse::is_dead(&point);
    if is_left {
        client_fuse::unmount(&point)?;
    }
    if is_left || !is_mounted {
        crate::mount::start(cluster.dir(), &point)?;
    }
    Ok(point)
}

fn make(args: &Args) -> anyhow::Result<()> {
    let dir = &args.dir;
    let plan = Plan {
        addresses: free_addresses(args.osds.into())?,
        replicas: None,
        settings: Settings::default(),
        clients: Vec::new(),
        days: DAYS_DEFAULT,
        index: args.index.map_or(Engine::default(), Engine::from),
    };
    match cluster_dir::create(dir, &plan, crate::init::now_s()?) {
        Ok(_) => Ok(()),
        // Another `up` was faster, and its cluster is as good.
        Err(_) if dir.join("cluster.toml").exists() => Ok(()),
        Err(error) => Err(error),
    }
}

/// That a cluster which was made before has the index that is asked for.
fn check_index(args: &Args, cluster: &LocalCluster) -> anyhow::Result<()> {
    let Some(wanted) = args.index.map(Engine::from) else { return Ok(()) };
    for daemon in cluster.daemons() {
        let found = daemon.config()?.store.index;
        ensure!(
            found == wanted,
            "the cluster in {} was made with --index {found}, which stays; make one with {wanted} in another folder",
            args.dir.display()
        );
    }
    Ok(())
}

fn start_all(cluster: &LocalCluster, running: &mut Vec<Running>) -> anyhow::Result<()> {
    let daemons = cluster.daemons();
    // All of them before the first is started.
    let configs: Vec<Config> = daemons.iter().map(LocalDaemon::config).collect::<anyhow::Result<_>>()?;
    for (daemon, config) in daemons.into_iter().zip(configs) {
        let (supervisor, started) = match daemon.running()? {
            Some(supervisor) => (supervisor, None),
            None => start(&daemon)?,
        };
        running.push(Running { daemon, config, supervisor, started });
    }
    Ok(())
}

fn start(daemon: &LocalDaemon) -> anyhow::Result<(Noted, Option<Child>)> {
    let (child, supervisor) = daemon.start()?;
    Ok((supervisor, Some(child)))
}

/// Returns when every daemon has answered and found the others, or when one that was started has ended. `missing`
/// says what it waits for.
async fn wait_until_ready(
    cluster: &LocalCluster,
    running: &mut [Running],
    missing: &mut Missing,
) -> anyhow::Result<()> {
    let config = client::Config::find(Some(cluster.dir()))?;
    loop {
        running.iter_mut().try_for_each(look_after)?;
        match Client::connect(&config).await {
            Ok(client) => {
                let states = client.status().await;
                client.close().await;
                *missing = states.iter().filter_map(absence).collect();
                if missing.is_empty() {
                    return Ok(());
                }
            }
            Err(ConnectError::NoDaemon(daemons)) => {
                *missing = daemons.into_iter().map(|(node, _, why)| (node, why)).collect();
            }
            Err(error) => return Err(error.into()),
        }
        sleep(ASK_INTERVAL).await;
    }
}

/// One that was started must not end. One that ends although it was found running was about to stop then.
fn look_after(running: &mut Running) -> anyhow::Result<()> {
    let Running { daemon, supervisor, started, .. } = running;
    let Some(child) = started else {
        if !supervisor.is_running()? {
            (*supervisor, *started) = start(daemon)?;
        }
        return Ok(());
    };
    let Some(status) = child.try_wait()? else { return Ok(()) };
    *started = None;
    let log = daemon.log_end().unwrap_or_default();
    bail!("daemon {} ended ({status}); the end of {}:\n{log}", daemon.node, daemon.log().display())
}

/// Why a daemon takes no part yet, if it does not.
fn absence(state: &DaemonState) -> Option<(NodeId, String)> {
    let why = match &state.status {
        Err(why) => why.as_str(),
        Ok(status) if status.drain == DrainStatus::Stopping => "it is stopping",
        Ok(status) if status.clock.state == ClockTrust::Joining => "it has not found a majority yet",
        Ok(status) if status.clock.state == ClockTrust::Off => "its clock is off",
        Ok(_) => return None,
    };
    Some((state.node, why.to_owned()))
}

/// What is missing, and what the daemons' own logs say of it.
fn list(missing: &Missing, running: &[Running]) -> String {
    let mut list = String::new();
    for Running { daemon, config, .. } in running {
        let Some(why) = missing.get(&daemon.node) else { continue };
        list.push_str(&format!("\n  daemon {} at {}: {why}", daemon.node, config.listen));
        if let Some(error) = daemon.last_error() {
            list.push_str(&format!("\n    its log: {error}"));
        }
    }
    list
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

fn print_json(cluster: &LocalCluster, running: &[Running], mounted: Option<&Path>) -> io::Result<()> {
    let daemon = |running: &Running| {
        json!({
            "node": running.daemon.node,
            "address": running.config.listen,
            "metrics": running.config.metrics,
            "log": running.daemon.log().display().to_string(),
            "process": running.supervisor.id,
            "started": running.started.is_some(),
        })
    };
    let object = json!({
        "cluster": cluster.map().cluster().to_string(),
        "path": cluster.dir().display().to_string(),
        "mount": mounted.map(|path| path.display().to_string()),
        "daemons": running.iter().map(daemon).collect::<Vec<_>>(),
    });
    writeln!(io::stdout().lock(), "{object}")
}

fn print(
    cluster: &LocalCluster,
    running: &[Running],
    (is_new, mounted): (bool, Option<&Path>),
) -> io::Result<()> {
    let dir = shell::quoted(cluster.dir());
    let mut out = io::stdout().lock();
    let what = if is_new { "A new cluster is up" } else { "The cluster is up" };
    writeln!(out, "{what} in {}:", cluster.dir().display())?;
    for Running { daemon, config, supervisor, started } in running {
        let how = if started.is_some() { "started" } else { "was running" };
        writeln!(out, "  daemon {}  {}  {how} (process {})", daemon.node, config.listen, supervisor.id)?;
    }
    writeln!(out, "\nUse it:\n  export FLEASEFS_CLUSTER={dir}\n  fleasefs status")?;
    if let Some(metrics) = running.iter().find_map(|running| running.config.metrics.as_ref()) {
        writeln!(out, "  http://{metrics}/ in a browser shows it live")?;
    }
    match mounted {
        Some(path) => writeln!(out, "  ls {}", shell::quoted(path))?,
        None => writeln!(out, "  fleasefs up {dir} --mount PATH")?,
    }
    writeln!(out, "  fleasefs lock NAME -- COMMAND\n\nStop it: fleasefs down {dir}")
}
