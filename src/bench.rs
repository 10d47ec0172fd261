//! `fleasefs bench`: measurements, one file each.

mod cluster;
mod file;
mod floor;
mod lease;
mod lock;
mod meta;
mod object;

use std::process::ExitCode;

use clap::Subcommand;

/// Measure what this machine and this program can do
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    measurement: Measurement,
}

#[derive(Subcommand)]
enum Measurement {
    File(file::Args),
    Floor(floor::Args),
    Lease(lease::Args),
    Lock(lock::Args),
    Meta(meta::Args),
    Object(object::Args),
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.measurement {
        Measurement::File(args) => file::run(&args),
        Measurement::Floor(args) => floor::run(&args),
        Measurement::Lease(args) => lease::run(&args),
        Measurement::Lock(args) => lock::run(&args),
        Measurement::Meta(args) => meta::run(&args),
        Measurement::Object(args) => object::run(&args),
    }?;
    Ok(ExitCode::SUCCESS)
}
