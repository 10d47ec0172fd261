//! `fleasefs`: the one command. One file per subcommand, no logic of its own.

use clap::Parser;

/// A replicated file service in which every open file has its own primary.
#[derive(Parser)]
#[command(version, about)]
struct Cli {}

fn main() -> anyhow::Result<()> {
    Cli::parse();
    Ok(())
}
