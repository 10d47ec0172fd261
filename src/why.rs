//! `fleasefs why`: who was primary of a path when, and why that ended.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::process::ExitCode;

use base::{NodeId, WallTime};
use node::{EndSeen, EndedSeen, Inspection, TenureSeen, tenures};
use serde_json::{Value, json};

use crate::named::{Found, Named, Part};
use crate::when::utc;

/// Show who was primary of a file from when to when, by whose votes, and why it ended
///
/// Every lease names the one before it and how that ended. The daemons remember
/// the latest few thousand changes of leases in memory: what was before the start
/// of all of them, or long ago, nobody can say any more. Times are those of the
/// daemons' clocks, in UTC.
///
/// Exit codes: 0 when it was printed, also if nothing is remembered; 1 when the
/// path does not exist or no daemon could say.
///
/// Examples:
///   fleasefs why /mnt/report.txt
///   fleasefs why main:/report.txt --json
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    named: Named,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.named.show(whole, print)
}

fn chain(part: &Part) -> Vec<TenureSeen> {
    let seen: Vec<Inspection> = part.answers().cloned().collect();
    tenures(&seen)
}

fn print(out: &mut impl Write, found: &Found) -> io::Result<()> {
    for part in &found.parts {
        writeln!(out, "{}, {}, object {:?}", found.name, part.what, part.object)?;
        for (node, told) in &part.told {
            if let Err(why) = told {
                writeln!(out, "  daemon {node} does not say what it has seen: {why}")?;
            }
        }
        let chain = chain(part);
        if chain.is_empty() {
            writeln!(out, "  nobody remembers a lease")?;
        }
        for tenure in &chain {
            print_tenure(out, tenure)?;
        }
    }
    Ok(())
}

fn print_tenure(out: &mut impl Write, tenure: &TenureSeen) -> io::Result<()> {
    let TenureSeen { owner, from, lease, .. } = tenure;
    let votes =
        if tenure.voters.is_empty() { String::new() } else { format!(", voted by {}", list(&tenure.voters)) };
    let votes = if tenure.is_decided { votes } else { format!("{votes}, perhaps without a majority") };
    let node = owner.node;
    let start = owner.incarnation.0;
    writeln!(out, "  {}  daemon {node} (start {start}){votes}; lease {lease:016x}", utc(*from))?;
    match tenure.end {
        Some(end) => writeln!(out, "  {}    {}, after {}", utc(end.at), words(end), lasted(*from, end.at)),
        None => writeln!(out, "  {:23}    it goes on", ""),
    }
}

fn words(end: EndSeen) -> String {
    match (end.ended, end.successor) {
        (EndedSeen::HandedOver, Some(node)) => format!("handed over to daemon {node}"),
        (EndedSeen::HandedOver, None) => "handed over".to_owned(),
        (EndedSeen::Released, _) => "released: nobody used it, or its owner stood back".to_owned(),
        (EndedSeen::Expired, _) => "ran out: its owner did not renew it in time".to_owned(),
        (EndedSeen::Died, _) => "its owner died, as its supervisor or its next start reported".to_owned(),
        (EndedSeen::Unknown, _) => "over; nobody remembers how".to_owned(),
    }
}

fn lasted(from: WallTime, to: WallTime) -> String {
    let millis = to.since(from).as_micros() / 1_000;
    format!("{}.{:03} s", millis / 1_000, millis % 1_000)
}

fn list(nodes: &BTreeSet<NodeId>) -> String {
    nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn whole(found: &Found) -> Value {
    let tenure = |tenure: &TenureSeen| {
        let end = tenure.end.map(
            |end| json!({ "at_us": end.at.as_micros(), "ended": end.ended, "successor": end.successor }),
        );
        json!({
            "lease": format!("{:016x}", tenure.lease),
            "owner": tenure.owner,
            "from_us": tenure.from.as_micros(),
            "is_decided": tenure.is_decided,
            "voters": tenure.voters,
            "previous": tenure.previous.map(|previous| format!("{previous:016x}")),
            "previous_ended": tenure.previous_ended,
            "end": end,
        })
    };
    let part = |part: &Part| {
        json!({
            "what": part.what,
            "object": format!("{:?}", part.object),
            "tenures": chain(part).iter().map(tenure).collect::<Vec<_>>(),
        })
    };
    json!({ "name": found.name, "parts": found.parts.iter().map(part).collect::<Vec<_>>() })
}
