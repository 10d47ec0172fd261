//! `fleasefs cert`: the certificates and keys of a cluster after it was made.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use base::Role;
use clap::Subcommand;
use net::credentials::write_public;
use net::{Fingerprint, Peer};
use serde_json::{Value, json};

use crate::cluster_dir::{ClusterDir, DAYS_DEFAULT, Held, KeyAdded, validity};
use crate::init::now_s;

/// Issue, renew, deny and list the certificates of a cluster, and add keys
///
/// DIR is the folder that `fleasefs init` made. Issuing and renewing need the authority's key in it.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Make a folder with a new certificate: for a client, an operator, or a daemon that was added to the map
    ///
    /// Examples:
    ///   fleasefs cert issue cluster --role client/build
    ///   fleasefs cert issue cluster --role admin/anna --out anna --days 30
    #[command(verbatim_doc_comment)]
    Issue {
        /// The cluster's folder
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Whose certificate: client/NAME, admin/NAME or node/ID
        #[arg(long, value_name = "ROLE")]
        role: Role,
        /// The folder to make [default: DIR/client-NAME, DIR/admin-NAME or DIR/osd-ID]
        #[arg(long, value_name = "FOLDER")]
        out: Option<PathBuf>,
        #[command(flatten)]
        common: Issuing,
    },
    /// Put fresh certificates and keys in place of those in a cluster's folders
    ///
    /// The old ones stay good until they expire, so machines can follow one by one:
    /// copy the folder, restart what runs there.
    ///
    /// Examples:
    ///   fleasefs cert renew cluster
    ///   fleasefs cert renew cluster osd-2 admin
    #[command(verbatim_doc_comment)]
    Renew {
        /// The cluster's folder
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Which folders in it [default: all]
        #[arg(value_name = "FOLDER")]
        folders: Vec<PathBuf>,
        #[command(flatten)]
        common: Issuing,
    },
    /// Have the daemons refuse a certificate from now on, and end its connections
    ///
    /// Writes the deny list in each osd-N/ of DIR. A daemon that runs from there
    /// sees it within a second; copy it to the others.
    ///
    /// Examples:
    ///   fleasefs cert deny cluster client-build --comment "laptop lost"
    ///   fleasefs cert deny cluster 5f2c…
    #[command(verbatim_doc_comment)]
    Deny {
        /// The cluster's folder
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// A fingerprint, or a folder in DIR whose certificates are meant
        #[arg(value_name = "FINGERPRINT|FOLDER", required = true)]
        targets: Vec<String>,
        /// Why, for whoever reads the list
        #[arg(long, value_name = "TEXT", default_value = "")]
        comment: String,
        /// Print a JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// Add a key to those with which daemons prove what a client has open
    ///
    /// All daemons share these keys. The new one goes into the file
    /// capability.keys of each osd-N/ in DIR, behind those that are there; what
    /// was proved with them stays good. Copy the files and restart the daemons,
    /// one after the other: each then accepts the new key, and all use it from
    /// the same time on. A cluster that has no keys yet uses its first at once.
    ///
    /// Add one now and then, and when somebody may have read a file: then with
    /// --after 0, and take the lines before it out of every file, so that what
    /// the old keys proved is refused as soon as a daemon has restarted.
    ///
    /// Examples:
    ///   fleasefs cert keys cluster
    ///   fleasefs cert keys cluster --after 1
    #[command(verbatim_doc_comment)]
    Keys {
        /// The cluster's folder
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// In how many hours the key is used: by then every daemon has to have it
        #[arg(long, value_name = "HOURS", default_value_t = KEY_AFTER_HOURS, value_parser = clap::value_parser!(u32).range(..=8_760))]
        after: u32,
        /// Print a JSON object instead of text
        #[arg(long)]
        json: bool,
    },
    /// Show every certificate in a cluster's folder, or in one of the folders that were copied from it
    List {
        /// The cluster's folder, or one of those in it
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Print a JSON object instead of text
        #[arg(long)]
        json: bool,
    },
}

/// Enough to restart every daemon by hand.
const KEY_AFTER_HOURS: u32 = 24;
const HOUR_S: u64 = 3_600;

#[derive(clap::Args)]
struct Issuing {
    /// For how many days the certificate is good
    #[arg(long, value_name = "DAYS", default_value_t = DAYS_DEFAULT, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    /// Print a JSON object instead of text
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.what {
        What::Issue { dir, role, out, common } => issue(dir, role, out.as_deref(), common),
        What::Renew { dir, folders, common } => renew(dir, folders, common),
        What::Deny { dir, targets, comment, json } => deny(dir, targets, comment, *json),
        What::Keys { dir, after, json } => add_key(dir, *after, *json),
        What::List { dir, json } => list(dir, *json),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn issue(dir: &Path, role: &Role, out: Option<&Path>, common: &Issuing) -> anyhow::Result<()> {
    let dir = ClusterDir::open(dir)?;
    let folder = out.map_or_else(|| dir.folder_of(role), Path::to_owned);
    let until = validity(now_s()?, common.days.into());
    let peer = dir.issue(&folder, role, until)?;
    if common.json {
        let path = folder.display().to_string();
        return print(&json!({ "path": path, "certificate": described(&peer) }).to_string());
    }
    print(&format!(
        "Made {}/ for {role}, good until {}. Copy it to where it is used.\nfingerprint {}",
        folder.display(),
        net::date(peer.not_after_s),
        peer.fingerprint
    ))
}

fn renew(dir: &Path, folders: &[PathBuf], common: &Issuing) -> anyhow::Result<()> {
    let dir = ClusterDir::open(dir)?;
    let chosen = choose(&dir, folders)?;
    let (authority, until) = (dir.authority()?, validity(now_s()?, common.days.into()));
    let mut lines = Vec::new();
    let mut objects = Vec::new();
    for held in &chosen {
        let peer = dir.renew(&authority, held, until)?;
        let folder = held.folder.display();
        lines.push(format!(
            "  {:<16} {}, until {}",
            format!("{folder}/"),
            peer.role,
            net::date(peer.not_after_s)
        ));
        objects.push(json!({ "folder": held.folder.display().to_string(), "certificate": described(&peer) }));
    }
    if common.json {
        return print(&json!({ "renewed": objects }).to_string());
    }
    print(&format!(
        "Renewed, with new keys:\n{}\nCopy each folder to its machine and restart what runs there, one after the other. \
         The old certificates are good until they expire.",
        lines.join("\n")
    ))
}

fn deny(dir: &Path, targets: &[String], comment: &str, json: bool) -> anyhow::Result<()> {
    ensure!(!comment.contains(['\n', '\r']), "a comment is one line");
    let dir = ClusterDir::open(dir)?;
    let lists = dir.deny_lists()?;
    ensure!(
        !lists.is_empty(),
        "{} has no daemon's folder in it, so there is no deny list",
        dir.path().display()
    );
    let mut denied: Vec<(Fingerprint, String)> = Vec::new();
    for target in targets {
        match target.parse() {
            Ok(fingerprint) => denied.push((fingerprint, comment.to_owned())),
            Err(_) => denied.extend(choose(&dir, &[target.into()])?.into_iter().map(|held| {
                let role = &held.peer.role;
                (held.peer.fingerprint, format!("{role} {comment}").trim().to_owned())
            })),
        }
    }
    let mut files = Vec::new();
    for (path, mut text, known) in lists {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        for (fingerprint, comment) in denied.iter().filter(|(fingerprint, _)| !known.contains(fingerprint)) {
            text.push_str(&format!("{fingerprint} # {comment}\n"));
        }
        write_public(&path, &text)?;
        files.push(path);
    }
    let fingerprints: Vec<String> = denied.iter().map(|(fingerprint, _)| fingerprint.to_string()).collect();
    if json {
        let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
        return print(&json!({ "denied": fingerprints, "files": files }).to_string());
    }
    let files: Vec<String> = files.iter().map(|path| format!("  {}", path.display())).collect();
    print(&format!(
        "Denied {}\nin the lists\n{}\nDaemons that run from these files refuse it within a second; copy each file to the \
         machines of the others.",
        fingerprints.join("\n       "),
        files.join("\n")
    ))
}

fn add_key(dir: &Path, after_hours: u32, json: bool) -> anyhow::Result<()> {
    let wait_s = u64::from(after_hours) * HOUR_S;
    let from_s = if wait_s == 0 { None } else { Some(now_s()?.saturating_add(wait_s)) };
    let dir = ClusterDir::open(dir)?;
    let KeyAdded { epoch, from_s, files } = dir.add_key(from_s)?;
    let is_complete = files.len() >= dir.map().osds().len();
    let files: Vec<String> = files.iter().map(|path| path.display().to_string()).collect();
    if json {
        return print(&json!({ "epoch": epoch.0, "used_from_s": from_s, "files": files }).to_string());
    }
    let (when, by) = match from_s {
        Some(_) => (format!("used in {after_hours} h"), "before then"),
        None => ("used at once".to_owned(), "now"),
    };
    let others =
        if is_complete { "" } else { " Copy one of them to the daemons that have no folder here, too." };
    print(&format!(
        "Added key {epoch}, {when}, in\n  {}\nCopy each file to its machine, readable by its owner alone, and restart the daemons {by}, \
         one after the other.{others}",
        files.join("\n  ")
    ))
}

fn list(dir: &Path, json: bool) -> anyhow::Result<()> {
    let dir = ClusterDir::open(dir)?;
    let now_s = now_s()?;
    let (held, lists) = (dir.held()?, dir.deny_lists()?);
    let is_denied = |peer: &Peer| lists.iter().any(|(_, _, denied)| denied.contains(&peer.fingerprint));
    let authority_s = dir.authority_not_after_s()?;
    if json {
        let certificate = |held: &Held| {
            let state = state(now_s, held.peer.not_after_s, is_denied(&held.peer));
            json!({ "folder": held.folder.display().to_string(), "state": state, "certificate": described(&held.peer) })
        };
        let certificates: Vec<Value> = held.iter().map(certificate).collect();
        let object = json!({
            "cluster": dir.map().cluster().to_string(),
            "authority_not_after_s": authority_s,
            "certificates": certificates,
        });
        return print(&object.to_string());
    }
    let authority = state(now_s, authority_s, false);
    let mut lines = vec![
        format!("cluster {}", dir.map().cluster()),
        format!("{:<14} {:<18} {:<10}  {:<8} fingerprint", "folder", "role", "until", "state"),
        format!("{:<14} {:<18} {}  {authority}", ".", "authority", net::date(authority_s)),
    ];
    for Held { folder, peer, .. } in &held {
        let (folder, role) = (folder.display().to_string(), peer.role.to_string());
        let state = state(now_s, peer.not_after_s, is_denied(peer));
        let until = net::date(peer.not_after_s);
        lines.push(format!("{folder:<14} {role:<18} {until}  {state:<8} {}", peer.fingerprint));
    }
    print(&lines.join("\n"))
}

/// The certificates in `folders`, which are named as they are in the cluster's folder or by any path; all if none is
/// named.
fn choose(dir: &ClusterDir, folders: &[PathBuf]) -> anyhow::Result<Vec<Held>> {
    let held = dir.held()?;
    if folders.is_empty() {
        return Ok(held);
    }
    let is_same = |held: &Held, folder: &Path| {
        let theirs = std::fs::canonicalize(dir.path().join(&held.folder)).ok();
        held.folder == folder || theirs.is_some() && theirs == std::fs::canonicalize(folder).ok()
    };
    for folder in folders {
        let found = held.iter().any(|held| is_same(held, folder));
        ensure!(
            found,
            "`{}` is neither a fingerprint nor a folder with certificates in {}; `fleasefs cert list` shows both",
            folder.display(),
            dir.path().display()
        );
    }
    Ok(held.into_iter().filter(|held| folders.iter().any(|folder| is_same(held, folder))).collect())
}

fn described(peer: &Peer) -> Value {
    json!({
        "role": peer.role.to_string(),
        "fingerprint": peer.fingerprint.to_string(),
        "not_after_s": peer.not_after_s,
    })
}

fn state(now_s: u64, not_after_s: u64, is_denied: bool) -> &'static str {
    match (is_denied, now_s > not_after_s) {
        (true, _) => "denied",
        (false, true) => "expired",
        (false, false) => "good",
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{text}").context("could not print")
}
