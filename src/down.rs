//! `fleasefs down`: stops what `fleasefs up` has started.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;

use crate::background::Stopped;
use crate::local::{LocalCluster, LocalDaemon};

/// Stop the daemons of the cluster under DIR
///
/// What is mounted of it on this machine is unmounted first. If that is in use
/// nothing is stopped, and whoever uses it is named, and what was unmounted before;
/// nor is anything stopped while what was written there is not with the daemons
/// after a minute.
///
/// Each gives its leases up first; one that does not stop within 15 seconds is
/// killed. Nothing is deleted: `fleasefs up DIR` starts the same cluster again.
///
/// Exit codes: 0 when no daemon runs any more, 1 when one could not be stopped or a
/// mount is in use, 2 when the command line was wrong.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The folder of the cluster
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Print a JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// What became of a daemon, or why it still runs. `None` if it did not run.
type Outcome = anyhow::Result<Option<Stopped>>;

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let cluster = LocalCluster::open(&args.dir)?;
    let mut unmounted = Vec::new();
    for mount in client_fuse::mounts()?.iter().filter(|mount| mount.is_of(cluster.dir())) {
        client_fuse::unmount(&mount.point).with_context(|| goes_on(&unmounted))?;
        unmounted.push(mount.point.display().to_string());
    }
    let daemons = cluster.daemons();
    let outcomes = stop_all(&daemons.iter().collect::<Vec<_>>());
    let printed = if args.json { print_json(&cluster, &outcomes) } else { print(&outcomes) };
    printed.context("could not print what was stopped")?;
    let is_down = outcomes
        .iter()
        .all(|(_, outcome)| matches!(outcome, Ok(stopped) if *stopped != Some(Stopped::Stuck)));
    Ok(if is_down { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn goes_on(unmounted: &[String]) -> String {
    if unmounted.is_empty() {
        "the cluster goes on".to_owned()
    } else {
        format!("the cluster goes on, without the mounts that are gone already: {}", unmounted.join(", "))
    }
}

/// Stops daemons, all at the same time.
pub(crate) fn stop_all<'a>(daemons: &[&'a LocalDaemon]) -> Vec<(&'a LocalDaemon, Outcome)> {
    std::thread::scope(|scope| {
        let stopping: Vec<_> =
            daemons.iter().map(|daemon| (*daemon, scope.spawn(|| daemon.stop()))).collect();
        let join = |(daemon, stopping): (_, std::thread::ScopedJoinHandle<'_, Outcome>)| {
            let failed = |_| Err(anyhow::anyhow!("the thread that stops it failed"));
            (daemon, stopping.join().unwrap_or_else(failed))
        };
        stopping.into_iter().map(join).collect()
    })
}

fn words(outcome: &Outcome) -> String {
    match outcome {
        Ok(None) => "was not running".to_owned(),
        Ok(Some(Stopped::Cleanly)) => "stopped".to_owned(),
        Ok(Some(Stopped::Killed)) => "did not stop in time and was killed".to_owned(),
        Ok(Some(Stopped::Stuck)) => "does not even react to SIGKILL; look at its disk".to_owned(),
        Err(error) => format!("{error:#}"),
    }
}

fn print_json(cluster: &LocalCluster, outcomes: &[(&LocalDaemon, Outcome)]) -> io::Result<()> {
    let daemon = |(daemon, outcome): &(&LocalDaemon, Outcome)| {
        let (code, is_running) = match outcome {
            Ok(None) => ("not_running", false),
            Ok(Some(Stopped::Cleanly)) => ("stopped", false),
            Ok(Some(Stopped::Killed)) => ("killed", false),
            Ok(Some(Stopped::Stuck)) | Err(_) => ("failed", true),
        };
        json!({ "node": daemon.node, "outcome": code, "running": is_running, "text": words(outcome) })
    };
    let object = json!({
        "cluster": cluster.map().cluster().to_string(),
        "path": cluster.dir().display().to_string(),
        "daemons": outcomes.iter().map(daemon).collect::<Vec<_>>(),
    });
    writeln!(io::stdout().lock(), "{object}")
}

fn print(outcomes: &[(&LocalDaemon, Outcome)]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (daemon, outcome) in outcomes {
        writeln!(out, "daemon {} {}", daemon.node, words(outcome))?;
    }
    Ok(())
}
