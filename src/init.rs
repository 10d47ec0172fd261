//! `fleasefs init`: makes the files of a new cluster.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use base::{Name, Role};
use clap::ValueEnum;
use node::{LeaseAlgorithm, Settings};
use serde_json::json;

use crate::cluster_dir::{self, DAYS_DEFAULT, Index, Made, Plan};

/// Make the files of a new cluster: authority, certificates, keys, configurations
///
/// Every daemon, the operator and the client get a folder of their own, which
/// stands on its own: copy it to its machine. Nothing is started, and nothing is
/// written outside DIR. DIR must not exist yet, or be empty; when anything fails
/// it is not made at all.
///
/// Examples:
///   fleasefs init cluster --osds a.example:7000,b.example:7000,c.example:7000
///   fleasefs init cluster --osds 10.0.0.1:7000,10.0.0.2:7000 --client build
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// The folder to make
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Where the daemons listen, as others reach them; they are numbered from 1 in this order
    #[arg(long, value_name = "HOST:PORT,…", value_delimiter = ',', required = true)]
    osds: Vec<String>,
    /// On how many daemons a lock is kept [default: all, at most 3]
    #[arg(long, value_name = "N")]
    replicas: Option<u8>,
    /// Also make client-NAME/, with a certificate of its own; may be given several times
    #[arg(long = "client", value_name = "NAME")]
    clients: Vec<Name>,
    /// For how many days the certificates are good
    #[arg(long, value_name = "DAYS", default_value_t = DAYS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    /// The lease algorithm
    #[arg(long, value_enum, default_value_t = Algorithm::Flease)]
    algorithm: Algorithm,
    /// What keeps the index of each daemon's data; it stays the same for good
    #[arg(long, value_enum, value_name = "ENGINE", default_value_t = Index::Redb)]
    index: Index,
    /// The longest life of a lease, and so of the takeover from a machine that died
    #[arg(long, value_name = "MS", default_value_t = Settings::default().t_max_ms)]
    t_max_ms: u32,
    /// The bound on the difference between two machines' clocks
    #[arg(long, value_name = "MS", default_value_t = Settings::default().epsilon_ms)]
    epsilon_ms: u32,
    /// How long a client's session lasts without being heard
    #[arg(long, value_name = "MS", default_value_t = Settings::default().session_ms)]
    session_ms: u32,
    /// Print a JSON object instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Algorithm {
    /// Absolute expiry on synchronised clocks
    Flease,
    /// Relative spans, no synchronisation
    Paxoslease,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let settings = Settings {
        algorithm: match args.algorithm {
            Algorithm::Flease => LeaseAlgorithm::Flease,
            Algorithm::Paxoslease => LeaseAlgorithm::Paxoslease,
        },
        t_max_ms: args.t_max_ms,
        epsilon_ms: args.epsilon_ms,
        session_ms: args.session_ms,
        ..Settings::default()
    };
    let plan = Plan {
        addresses: args.osds.clone(),
        replicas: args.replicas,
        settings,
        clients: args.clients.clone(),
        days: args.days,
        index: args.index.into(),
    };
    let made = cluster_dir::create(&args.dir, &plan, now_s()?)?;
    let printed = if args.json { print_json(args, &made) } else { print_text(args, &made) };
    printed.context("could not print what was made")?;
    Ok(ExitCode::SUCCESS)
}

/// The time in seconds since 1970.
pub(crate) fn now_s() -> anyhow::Result<u64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    Ok(now.context("this machine's clock says that it is before 1970; set it")?.as_secs())
}

fn print_json(args: &Args, made: &Made) -> io::Result<()> {
    let folder = |(name, role): &(String, Role)| {
        json!({
            "path": args.dir.join(name).display().to_string(),
            "role": role.to_string(),
            "address": made.address(role),
        })
    };
    let object = json!({
        "cluster": made.map.cluster().to_string(),
        "path": args.dir.display().to_string(),
        "replicas": made.map.replicas(),
        "not_after_s": made.not_after_s,
        "folders": made.folders.iter().map(folder).collect::<Vec<_>>(),
    });
    writeln!(io::stdout().lock(), "{object}")
}

fn print_text(args: &Args, made: &Made) -> io::Result<()> {
    let dir = args.dir.display();
    let mut out = io::stdout().lock();
    writeln!(out, "Made cluster {} in {dir}:", made.map.cluster())?;
    for (name, role) in &made.folders {
        let purpose = match made.address(role) {
            Some(address) => format!("daemon at {address}"),
            None => format!("certificate of {role}"),
        };
        writeln!(out, "  {:<16} {purpose}", format!("{name}/"))?;
    }
    writeln!(out, "  {:<16} the cluster map, also in every folder", "cluster.toml")?;
    writeln!(out, "  {:<16} the authority; whoever has ca.key can let anybody in", "ca.pem, ca.key")?;
    writeln!(out, "The certificates are good until {}.\n", net::date(made.not_after_s))?;
    writeln!(out, "Next:")?;
    writeln!(out, "  1. Copy each osd-N/ to the machine of that daemon, and start it there:")?;
    writeln!(out, "       fleasefs osd --config osd-1/osd.toml")?;
    writeln!(
        out,
        "  2. Copy admin/ to where you operate the cluster, client/ to where it is used, and name it there:"
    )?;
    writeln!(out, "       export FLEASEFS_CLUSTER=…/admin")?;
    writeln!(out, "  3. Put ca.key where no machine of the cluster is. Only `fleasefs cert` needs it.")
}

impl Made {
    /// Where the daemon with this role listens.
    fn address(&self, role: &Role) -> Option<&str> {
        match role {
            Role::Node(node) => self.map.osd(*node).map(|osd| osd.address.as_str()),
            _ => None,
        }
    }
}
