//! `fleasefs`: the one command. One file per subcommand, no logic of its own.

mod bench;

use clap::{Parser, Subcommand};

/// A replicated file service in which every open file has its own primary.
///
/// Exit codes: 0 when all went well, 1 when the work failed, 2 when the command line was wrong.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(bench::Args),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Bench(args) => bench::run(args),
    }
}
