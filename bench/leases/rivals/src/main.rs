//! `rivals`: leases from etcd and ZooKeeper, measured as those of fleasefs are; and the tables and plots of all three.
//!
//! `bench/leases/run` calls the commands below in the right order. Each that measures starts servers of its own, prints
//! one JSON object and leaves nothing behind, also when it is interrupted.

mod cluster;
mod disk_load;
mod drive;
mod etcd;
mod measure;
mod plot;
mod report;
mod results;
mod svg;
mod table;
mod usage;
mod zookeeper;

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use measure::{System, Wanted, measure};
use results::Results;

#[derive(Parser)]
#[command(about = "Leases from etcd and ZooKeeper, measured; tables and plots of all lease experiments")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure etcd: a lease granted and a key created with it
    Etcd {
        #[command(flatten)]
        program: etcd::Program,
        #[command(flatten)]
        wanted: Wanted,
    },
    /// Measure ZooKeeper: an ephemeral node created
    Zookeeper {
        #[command(flatten)]
        program: zookeeper::Program,
        #[command(flatten)]
        wanted: Wanted,
    },
    /// Load the disk until interrupted, then print what it had to do
    DiskLoad {
        kind: disk_load::Kind,
        /// On the file system of the servers' data
        #[arg(long, default_value = ".")]
        dir: PathBuf,
        /// The program that makes the load with fsync
        #[arg(long, default_value = "fio")]
        fio: PathBuf,
    },
    /// Print half of what a system reached on an idle disk, in leases per second
    Half {
        /// The run's folder
        folder: PathBuf,
        /// The system, as in the files' names
        system: String,
    },
    /// Bring all measurements together in `results.json`, draw the plots, print the tables
    Report {
        /// The run's folder
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().command) {
        Ok(printed) => match writeln!(io::stdout(), "{printed}") {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            // With nowhere to say it, the exit code has to do.
            let _ = writeln!(io::stderr(), "rivals: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Printed {
    match command {
        Command::Etcd { program, wanted } => on_this_thread(measured(&program, &wanted))?,
        Command::Zookeeper { program, wanted } => on_this_thread(measured(&program, &wanted))?,
        Command::DiskLoad { kind, dir, fio } => on_this_thread(async {
            let stop = async { interrupted().await.unwrap_or(()) };
            Ok(serde_json::to_string(&disk_load::run(kind, &dir, &fio, stop).await?)?)
        })?,
        Command::Half { folder, system } => Ok(results::half_of_peak(&folder, &system)?.to_string()),
        Command::Report { folder } => report(&folder),
    }
}

/// Writes the results and the plots into `folder`.
fn report(folder: &Path) -> Printed {
    let results = Results::collect(folder)?;
    fs::write(folder.join("results.json"), serde_json::to_string_pretty(&results)? + "\n")?;
    for (name, plot) in plot::plots(&results) {
        fs::write(folder.join(name), plot)?;
    }
    Ok(table::tables(&results))
}

type Printed = Result<String, Box<dyn std::error::Error>>;

async fn measured<S: System>(system: &S, wanted: &Wanted) -> Printed {
    tokio::select! {
        // First, so that a signal is handled from before the servers start.
        biased;
        // The measurement is dropped, and with it its servers and their data.
        result = interrupted() => Err(result.err().map_or_else(|| "interrupted".into(), Into::into)),
        measurement = measure(system, wanted) => Ok(measurement?.to_string()),
    }
}

/// Done when this process is asked to end.
async fn interrupted() -> io::Result<()> {
    let (mut interrupt, mut terminate, mut hang_up) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hang_up.recv() => {}
    }
    Ok(())
}

/// Everything runs here: a driver of one thread has one figure for how busy it is.
fn on_this_thread<T>(task: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(tokio::task::LocalSet::new().block_on(&runtime, task))
}
