//! `fleasefs`: the one command. One file per subcommand, no logic of its own.

mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A replicated file service in which every open file has its own primary.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the cluster in one thread under a seed, with faults and checkers.
    Sim(sim::SimArgs),
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Sim(args) => sim::run(args),
    }
}
