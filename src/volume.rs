//! `fleasefs volume`: directory trees that the cluster keeps under a name.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Subcommand;
use client::{Client, ObjectError, Volume, VolumeError};
use indicatif::{ProgressBar, ProgressStyle};
use namespace::{InodeId, Kind, Listed, NameError, Site, Who};
use node::VolumeName;
use serde_json::{Value, json};

/// There is no such volume.
const NO_SUCH_VOLUME: u8 = 66;
/// Nobody has answered for it in time.
const UNANSWERED: u8 = 75;

/// Create, list and delete volumes
///
/// A volume is a directory tree of its own, replicated like every file. Different
/// volumes may have different primaries at the same time.
///
/// Exit codes: 0 when all went well; 66 when there is no such volume; 75 when no
/// daemon answered for it in time; 1 when something else failed.
///
/// Examples:
///   fleasefs volume create home
///   fleasefs volume list --json
///   fleasefs volume delete home
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(subcommand)]
    deed: Deed,

    /// The folder that `fleasefs init` or `fleasefs up` made, or a client.toml; default: $FLEASEFS_CLUSTER
    #[arg(long, value_name = "DIR", global = true)]
    cluster: Option<PathBuf>,

    /// Give up when a request has had no answer for this many seconds
    #[arg(long, value_name = "SECONDS", global = true, default_value_t = 30)]
    patience_s: u64,

    /// Print one JSON object; units stand at the end of each key
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Deed {
    /// Create an empty volume
    Create {
        /// Its name: up to 64 of a-z, 0-9, `.`, `_` and `-`, beginning with a letter or digit
        name: VolumeName,
        /// Whose its root is, by numbers; default: whoever runs this
        #[arg(long, value_name = "UID:GID", value_parser = owner)]
        owner: Option<(u32, u32)>,
    },
    /// Show all volumes, with what is in them
    List,
    /// Delete a volume
    Delete {
        /// Its name
        name: VolumeName,
        /// Remove everything in it first, for good. As long as files are open that were in it the volume stays, without names
        #[arg(long)]
        force: bool,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let config = client::Config::find(args.cluster.as_deref())?;
    code_of(crate::runtime()?.block_on(act(args, &config)))
}

async fn act(args: &Args, config: &client::Config) -> anyhow::Result<()> {
    let client = Client::connect(config).await?.with_patience(Duration::from_secs(args.patience_s));
    let told = match &args.deed {
        Deed::Create { name, owner } => create(&client, name, owner.unwrap_or_else(caller)).await,
        Deed::List => list(&client).await,
        Deed::Delete { name, force } => delete(&client, name, *force).await,
    };
    client.close().await;
    let told = told?;
    let print = || -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        match &args.deed {
            _ if args.json => writeln!(out, "{told}")?,
            Deed::List => print_list(&mut out, &told)?,
            Deed::Create { .. } | Deed::Delete { .. } => {}
        }
        Ok(())
    };
    print().context("could not print")
}

async fn create(client: &Client, name: &VolumeName, owner: (u32, u32)) -> anyhow::Result<Value> {
    client.create_volume(name, owner).await?;
    Ok(json!({ "name": name.as_str(), "uid": owner.0, "gid": owner.1 }))
}

async fn list(client: &Client) -> anyhow::Result<Value> {
    let mut volumes = Vec::new();
    for name in client.volumes().await? {
        let volume = match client.volume(&name).await {
            Err(VolumeError::NoSuchVolume(_)) => continue,
            volume => volume?,
        };
        let told = match volume.counts().await {
            Ok(counts) => json!({
                "name": name.as_str(),
                "is_whole": true,
                "is_exported": true,
                "inodes": counts.inodes,
                "inodes_max": counts.inodes_max,
                // A few files that are mostly holes are longer together.
                "size_bytes": u64::try_from(counts.bytes).unwrap_or(u64::MAX),
                "size_max_bytes": counts.bytes_max,
            }),
            Err(error) if error.says_no_tree() => json!({ "name": name.as_str(), "is_whole": false }),
            Err(error) if error.says_not_exported() => {
                json!({ "name": name.as_str(), "is_whole": true, "is_exported": false })
            }
            Err(error) => return Err(error.into()),
        };
        volumes.push(told);
    }
    Ok(json!({ "volumes": volumes }))
}

async fn delete(client: &Client, name: &VolumeName, force: bool) -> anyhow::Result<Value> {
    let volume = client.volume(name).await?;
    if force {
        let bar = names_removed();
        let emptied = empty(&volume, &bar).await;
        bar.finish_and_clear();
        match emptied {
            Err(error) if error.says_no_tree() => {}
            emptied => emptied?,
        }
    }
    client.delete_volume(&volume).await?;
    Ok(json!({ "name": name.as_str(), "is_deleted": true }))
}

/// Takes all names of a volume away, from the deepest on. What others take away meanwhile is gone, too.
async fn empty(volume: &Volume, bar: &ProgressBar) -> Result<(), VolumeError> {
    let root = Who::root();
    let gone = |removed: Result<(), VolumeError>| match removed {
        Err(VolumeError::Refused(NameError::NoEntry { .. } | NameError::Stale { .. })) => Ok(()),
        removed => removed,
    };
    let mut path = vec![(InodeId::ROOT, None)];
    while let Some((dir, site)) = path.last().cloned() {
        let page = match volume.list(dir, None, false).await {
            Err(VolumeError::Refused(NameError::NoInode { .. })) => {
                path.pop();
                continue;
            }
            page => page?,
        };
        let below = page.entries.iter().find(|listed| listed.kind == Kind::Directory);
        let site_of = |listed: &Listed| Site::new(dir, listed.name.clone()).naming(listed.inode);
        for listed in page.entries.iter().filter(|listed| listed.kind != Kind::Directory) {
            gone(volume.unlink(&root, site_of(listed)).await)?;
            bar.inc(1);
        }
        if let Some(listed) = below {
            path.push((listed.inode, Some(site_of(listed))));
        } else if page.is_last {
            path.pop();
            if let Some(site) = site {
                gone(volume.remove_directory(&root, site).await)?;
                bar.inc(1);
            }
        }
    }
    Ok(())
}

fn names_removed() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {pos} names removed ({per_sec})");
    ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
}

fn print_list(out: &mut impl Write, told: &Value) -> io::Result<()> {
    let volumes = told["volumes"].as_array().map(Vec::as_slice).unwrap_or_default();
    if volumes.is_empty() {
        return writeln!(out, "no volumes; create one with `fleasefs volume create NAME`");
    }
    let width = volumes.iter().filter_map(|volume| Some(volume["name"].as_str()?.len())).max().unwrap_or(0);
    for volume in volumes {
        let name = volume["name"].as_str().unwrap_or_default();
        match (volume["inodes"].as_u64(), volume["size_bytes"].as_u64()) {
            (Some(inodes), Some(bytes)) => {
                writeln!(out, "{name:<width$}  {inodes} inodes, {}", indicatif::HumanBytes(bytes))?;
            }
            _ if volume["is_whole"] == true => writeln!(out, "{name:<width$}  not exported to this client")?,
            _ => writeln!(out, "{name:<width$}  begun and not ended; create or delete it again")?,
        }
    }
    Ok(())
}

/// Some failures have codes of their own.
fn code_of(done: anyhow::Result<()>) -> anyhow::Result<ExitCode> {
    let Err(error) = done else { return Ok(ExitCode::SUCCESS) };
    let code = match error.downcast_ref::<VolumeError>() {
        Some(VolumeError::NoSuchVolume(_)) => NO_SUCH_VOLUME,
        Some(VolumeError::Object(ObjectError::Unanswered { .. })) => UNANSWERED,
        _ => return Err(error),
    };
    writeln!(io::stderr(), "fleasefs: {error}")?;
    Ok(ExitCode::from(code))
}

/// Whoever runs this.
pub(crate) fn caller() -> (u32, u32) {
    (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
}

fn owner(text: &str) -> anyhow::Result<(u32, u32)> {
    let (uid, gid) =
        text.split_once(':').context("an owner is two numbers with a colon between: 1000:1000")?;
    ensure!(!uid.is_empty() && !gid.is_empty(), "an owner is two numbers with a colon between: 1000:1000");
    Ok((uid.parse()?, gid.parse()?))
}
