//! `fleasefs accept-loss`: recoveries that wait for somebody who does not come back go on without.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use base::{NodeId, ObjectId};
use client::{Client, DaemonState, OrderError};
use node::{BlockedStatus, LeadsSeen, is_file_of_volume, is_volume};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::drain::progress;
use crate::named::{cluster_of, object_at};

/// Something is not served when the patience is over.
const NOT_DONE: u8 = 75;
/// What a shell says of a command that Ctrl-C ended.
const INTERRUPTED: u8 = 130;
/// How often to ask how far it is.
const ASK_INTERVAL: Duration = Duration::from_millis(100);
/// How long the daemons have to say what a path names.
const PATIENCE: Duration = Duration::from_secs(10);

/// Serve files again for which a daemon is missing that may remember more
///
/// A daemon whose power failed may have lost what it had not synced. If too few
/// others answer that have lost nothing, nobody can tell whether a daemon that is
/// missing has changes that everybody else has forgotten. The files concerned are
/// not served until it is back: to start it loses nothing, and is always better.
///
/// If it never comes back, the changes that only it had are lost. This command has
/// the files go on without them. What had been synced is not among them, unless
/// another daemon has lost what was on its disk, or was being given it anew.
/// Whoever syncs what was written before is told that it may be lost.
///
/// Without an OBJECT it lists what waits, for whom, and what may be lost, and
/// changes nothing. With some, or with --all, it says the same of these, asks on a
/// terminal whether to go on, and returns when they are served. It gives up what
/// those have who were missing when it asked, and nothing else: who goes missing
/// meanwhile is waited for. Needs an operator's certificate (admin/NAME).
///
/// Exit codes: 0 when nothing waits, or what was named is served; 75 when some of
/// it is not after --patience-s; 130 when it was interrupted; 1 when it has listed
/// something, or something failed.
///
/// Examples:
///   fleasefs accept-loss
///   fleasefs accept-loss 4f00b1d2c3a49586:77e1f0a2b3c4d5e6
///   fleasefs accept-loss --yes main:/report.txt
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// What is to go on: an object as it is listed, a path inside a mount, or VOLUME:/PATH; of a file its content is meant, of a folder
    /// the names of its volume. While a volume waits itself, its paths cannot be looked up
    #[arg(value_name = "OBJECT")]
    objects: Vec<PathBuf>,

    /// All that waits
    #[arg(long, conflicts_with = "objects")]
    all: bool,

    /// Do not ask
    #[arg(long)]
    yes: bool,

    /// Wait no longer than so many seconds until all is served
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    patience_s: u64,

    /// The folder that `fleasefs init` or `fleasefs up` made, or a client.toml; default: that of the mount, or
    /// $FLEASEFS_CLUSTER
    #[arg(long, value_name = "DIR")]
    cluster: Option<PathBuf>,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// A recovery that waits.
struct Waiting {
    /// For whom, and why, as all say together that tell of it.
    why: BlockedStatus,
    /// Who tells of it.
    told_by: Vec<NodeId>,
}

/// What waits, by its object.
type AllWaiting = BTreeMap<ObjectId, Waiting>;

/// How it came out.
#[derive(PartialEq, Eq)]
enum End {
    Served,
    OutOfPatience,
    Interrupted,
}

/// What is given up, and how far that is.
struct Work<'a> {
    client: &'a Client,
    args: &'a Args,
    /// What was named, or all that waited at first.
    objects: BTreeSet<ObjectId>,
    /// What waited when it was asked whether to go on, and for whom.
    given_up: Vec<BlockedStatus>,
    /// At which daemon each was given up.
    accepted: BTreeMap<ObjectId, NodeId>,
    /// What is served, or waits for nobody.
    done: BTreeSet<ObjectId>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let of_mount = args.objects.iter().find_map(|path| cluster_of(path));
    let config = client::Config::find(args.cluster.clone().or(of_mount).as_deref())?;
    crate::runtime()?.block_on(async {
        let client = Client::connect(&config).await?.with_patience(PATIENCE);
        let done = act(&client, args).await;
        client.close().await;
        done
    })
}

async fn act(client: &Client, args: &Args) -> anyhow::Result<ExitCode> {
    let is_order = args.all || !args.objects.is_empty();
    if is_order {
        client.may_order()?;
    }
    let mut objects = BTreeSet::new();
    for name in &args.objects {
        objects.insert(find(client, name).await?);
    }
    let states = client.status().await;
    let mut waiting = waiting(&states);
    if is_order && !args.all {
        waiting.retain(|object, _| objects.contains(object));
    }
    if !is_order {
        list(args, &states, &waiting)?;
        return Ok(if waiting.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    if !waiting.is_empty() {
        ensure!(confirm(args, &waiting).await?, "nothing is given up");
    }
    objects.extend(waiting.keys());
    let given_up = waiting.into_values().map(|one| one.why).collect();
    let mut work = Work { client, args, objects, given_up, accepted: BTreeMap::new(), done: BTreeSet::new() };
    let end = work.run().await?;
    work.print(&end)?;
    Ok(match end {
        End::Served => ExitCode::SUCCESS,
        End::OutOfPatience => ExitCode::from(NOT_DONE),
        End::Interrupted => ExitCode::from(INTERRUPTED),
    })
}

/// What a word of the command line stands for. It is there.
async fn find(client: &Client, name: &Path) -> anyhow::Result<ObjectId> {
    let shown = name.display();
    let object = match name.to_str().and_then(id) {
        Some(object) => object,
        None => object_at(client, name).await?,
    };
    let told = client.inspect(object).await;
    let is_there = told.iter().any(|(_, told)| told.as_ref().is_ok_and(|seen| seen.replica.is_some()));
    ensure!(
        is_there,
        "no daemon that answers has anything of {shown}; `fleasefs accept-loss` lists what waits"
    );
    Ok(object)
}

/// An object as it is listed.
fn id(text: &str) -> Option<ObjectId> {
    let (high, low) = text.split_once(':')?;
    let half = |digits: &str| {
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u64::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    };
    Some(ObjectId::new(half(high)?, half(low)?))
}

/// Those of which several tell may be told of differently for a moment: then all are waited for that anybody waits for.
fn waiting(states: &[DaemonState]) -> AllWaiting {
    let mut all = AllWaiting::new();
    for state in states {
        for told in client::waiting(std::slice::from_ref(state)) {
            let BlockedStatus { object, missing, forgot } = told.clone();
            let empty = BlockedStatus { object, missing: Vec::new(), forgot: Vec::new() };
            let one = all.entry(object).or_insert(Waiting { why: empty, told_by: Vec::new() });
            one.told_by.push(state.node);
            for (nodes, more) in [(&mut one.why.missing, missing), (&mut one.why.forgot, forgot)] {
                nodes.extend(more);
                nodes.sort();
                nodes.dedup();
            }
        }
    }
    all
}

fn what(object: ObjectId) -> &'static str {
    if is_volume(object) {
        "the names of a volume"
    } else if is_file_of_volume(object) {
        "the content of a file"
    } else {
        "an object"
    }
}

/// What waits, those together that wait for the same reason.
fn print_waiting(out: &mut impl Write, waiting: &AllWaiting) -> io::Result<()> {
    let mut reasons: BTreeMap<String, Vec<ObjectId>> = BTreeMap::new();
    for (object, one) in waiting {
        reasons.entry(client::what_may_be_lost(&one.why)).or_default().push(*object);
    }
    for (why, objects) in reasons {
        writeln!(out, "{why}. Such changes are lost if these go on without:")?;
        for object in objects {
            writeln!(out, "  {object:?}  {}", what(object))?;
        }
    }
    Ok(())
}

fn list(args: &Args, states: &[DaemonState], waiting: &AllWaiting) -> anyhow::Result<()> {
    let print = || -> io::Result<()> {
        let mut out = io::stdout().lock();
        if args.json {
            let all: Vec<Value> = waiting.values().map(told).collect();
            return writeln!(out, "{}", json!({ "waiting": all }));
        }
        print_waiting(&mut out, waiting)?;
        for state in states {
            if let Err(why) = &state.status {
                writeln!(out, "daemon {} cannot say what waits there: {why}", state.node)?;
            }
        }
        if waiting.is_empty() {
            writeln!(out, "nothing waits, as far as the daemons tell that answer")
        } else {
            writeln!(
                out,
                "To start the daemons that are missing loses nothing. If they are gone for good, name what is to go on, or say --all."
            )
        }
    };
    print().context("could not print")
}

fn told(waiting: &Waiting) -> Value {
    let BlockedStatus { object, missing, forgot } = &waiting.why;
    json!({
        "object": format!("{object:?}"),
        "what": what(*object),
        "missing": missing,
        "forgot": forgot,
        "told_by": waiting.told_by,
    })
}

/// Says what may be lost, and whether that is accepted.
async fn confirm(args: &Args, waiting: &AllWaiting) -> anyhow::Result<bool> {
    let mut out = io::stderr();
    if !args.json || !args.yes {
        print_waiting(&mut out, waiting).context("could not print")?;
    }
    if args.yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() || !out.is_terminal() {
        bail!("nothing is given up, as there is no terminal to ask on; --yes does it without asking");
    }
    write!(out, "Give these changes up, for good? [yes/no] ").context("could not print")?;
    let answer = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    Ok(answer.await?.context("could not read the answer")?.trim() == "yes")
}

impl Work<'_> {
    /// Until all is served, the patience is over, or somebody interrupts it.
    async fn run(&mut self) -> anyhow::Result<End> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let bar = progress(self.args.json);
        let end = Instant::now() + Duration::from_secs(self.args.patience_s);
        let go_on = async {
            loop {
                if self.step().await? {
                    return Ok(End::Served);
                }
                if Instant::now() >= end {
                    return Ok(End::OutOfPatience);
                }
                bar.set_message(format!("{} of {} go on", self.done.len(), self.objects.len()));
                bar.tick();
                sleep(ASK_INTERVAL).await;
            }
        };
        let ended = tokio::select! {
            ended = go_on => ended,
            _ = interrupt.recv() => Ok(End::Interrupted),
            _ = terminate.recv() => Ok(End::Interrupted),
        };
        bar.finish_and_clear();
        ended
    }

    /// Has go on what waits for those only that are given up. Whether nothing is left.
    async fn step(&mut self) -> anyhow::Result<bool> {
        let waiting = waiting(&self.client.status().await);
        for (&object, one) in &waiting {
            if self.is_given_up(&one.why) {
                self.objects.insert(object);
                self.done.remove(&object);
                self.give_up(object, &one.told_by).await?;
            }
        }
        let left =
            self.objects.iter().filter(|object| !self.done.contains(object) && !waiting.contains_key(object));
        for object in left.copied().collect::<Vec<_>>() {
            if self.is_settled(object).await {
                self.done.insert(object);
            }
        }
        Ok(self.done.len() == self.objects.len())
    }

    /// Whether it waits for nobody else than was said when it was asked whether to go on, and for no worse reason.
    fn is_given_up(&self, why: &BlockedStatus) -> bool {
        let covers = |of: &&BlockedStatus| {
            let is_same = of.missing.is_empty() == why.missing.is_empty();
            let is_known = |node: &NodeId| of.forgot.contains(node) || of.missing.contains(node);
            is_same
                && why.missing.iter().all(|node| of.missing.contains(node))
                && why.forgot.iter().all(is_known)
        };
        self.given_up.iter().filter(|of| self.args.all || of.object == why.object).any(|of| covers(&of))
    }

    /// Tells whoever recovers it. The members take turns, so nobody may at the moment.
    async fn give_up(&mut self, object: ObjectId, told_by: &[NodeId]) -> anyhow::Result<()> {
        for &node in told_by {
            match self.client.accept_loss(node, object).await {
                Ok(true) => {
                    self.accepted.insert(object, node);
                    return Ok(());
                }
                // It may be gone, and another one recovers it.
                Ok(false) | Err(OrderError::Unanswered { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Whether somebody serves it, or nobody is about to. Without a majority of its members nobody can say.
    async fn is_settled(&self, object: ObjectId) -> bool {
        let told = self.client.inspect(object).await;
        let seen = || told.iter().filter_map(|(_, told)| told.as_ref().ok());
        let is_served = seen().any(|seen| seen.leads == LeadsSeen::Serving);
        let is_idle = seen().all(|seen| seen.leads == LeadsSeen::No);
        let members = seen().filter(|seen| seen.members.contains(&seen.by.node));
        let all = seen().map(|seen| seen.members.len()).max().unwrap_or_default();
        is_served || is_idle && members.count() * 2 > all
    }

    fn print(&self, end: &End) -> anyhow::Result<()> {
        let mut out = io::stdout().lock();
        let objects = || {
            self.objects.iter().map(|object| (object, self.accepted.get(object), self.done.contains(object)))
        };
        if self.args.json {
            let one = |(object, accepted, is_done): (&ObjectId, Option<&NodeId>, bool)| {
                json!({
                    "object": format!("{object:?}"),
                    "what": what(*object),
                    "is_loss_accepted": accepted.is_some(),
                    "waits": !is_done,
                })
            };
            let all: Vec<Value> = objects().map(one).collect();
            let told = json!({ "objects": all, "is_interrupted": *end == End::Interrupted });
            return writeln!(out, "{told}").context("could not print");
        }
        for (object, accepted, is_done) in objects() {
            let (what, outcome) = (
                what(*object),
                match (accepted, is_done) {
                    (Some(node), true) => format!("goes on: daemon {node} gave up what only others had"),
                    (Some(node), false) => {
                        format!("does not go on yet, though daemon {node} gives up what only others had")
                    }
                    (None, true) => "waits for nobody".to_owned(),
                    (None, false) => "waits still".to_owned(),
                },
            );
            writeln!(out, "{object:?}, {what}, {outcome}").context("could not print")?;
        }
        match end {
            End::Served if self.objects.is_empty() => {
                writeln!(out, "nothing waits, as far as the daemons tell that answer")
            }
            End::Served => Ok(()),
            End::OutOfPatience => {
                writeln!(out, "not all goes on after {} s; see `fleasefs status`", self.args.patience_s)
            }
            End::Interrupted => writeln!(out, "interrupted; `fleasefs accept-loss` shows what waits"),
        }
        .context("could not print")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_as_it_is_listed() {
        let object = ObjectId::new(0xa1 << 56, 7);
        assert_eq!(id(&format!("{object:?}")), Some(object));
        for path in ["main:/a", "/mnt/a", "a", "home:b", "a:", "+1:2", "1:2:3", "11111111111111111:2"] {
            assert_eq!(id(path), None, "{path}");
        }
    }
}
