//! `fleasefs sim`: runs and replays simulations.

mod cluster;
mod lease;
mod series;

use std::process::ExitCode;

use clap::{Args, Subcommand};

use series::Series;

/// What to simulate
#[derive(Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Leases: nodes compete for cells while everything around them fails
    ///
    /// The same seed gives the same run. Exits with 1 if a promise was broken, or if
    /// so little happened that a seed proved nothing.
    ///
    /// Examples:
    ///   fleasefs sim lease --seed 17
    ///   fleasefs sim lease --seed 17 --algorithm flease --trace run.txt
    ///   fleasefs sim lease --minutes-real 30
    #[command(verbatim_doc_comment)]
    Lease(lease::LeaseArgs),
    /// A cluster: clients want locks and files from daemons while everything around them fails
    ///
    /// Daemons and clients are the production code. The same seed gives the same run.
    /// Exits with 1 if a promise was broken, or if so little happened that a seed
    /// proved nothing.
    ///
    /// Examples:
    ///   fleasefs sim cluster --seed 17
    ///   fleasefs sim cluster --seed 17 --algorithm flease --trace run.txt
    ///   fleasefs sim cluster --seed 1 --seeds 1000
    #[command(verbatim_doc_comment)]
    Cluster(cluster::ClusterArgs),
}

pub(crate) fn run(args: SimArgs) -> anyhow::Result<ExitCode> {
    match args.what {
        What::Lease(args) => Series::new(&args.series, &args).run(),
        What::Cluster(args) => Series::new(&args.series, &args).run(),
    }
}
