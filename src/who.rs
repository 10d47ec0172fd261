//! `fleasefs who`: who is primary of a path, and how its replicas are.

use std::io::{self, Write};
use std::process::ExitCode;

use base::ClientId;
use namespace::{Attributes, LentTo};
use node::{Inspection, LeadsSeen, OwnerSeen, ReplicaState};
use serde_json::{Value, json};

use crate::named::{Found, Named, Part};
use crate::when::utc;

/// Show who is primary of a file, until when, and how its copies are
///
/// Every file has two primaries: one for its content, and that of its volume for
/// its name and attributes. Size and times may be lent to the content, or to a
/// client that alone uses the file. For each daemon it says what it has and what it
/// does.
///
/// Exit codes: 0 when it has a primary or needs none, because nobody uses it; 1
/// when it does not exist or no daemon could say.
///
/// Examples:
///   fleasefs who /mnt/report.txt
///   fleasefs who main:/report.txt --json
///   fleasefs who --lock nightly
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    #[command(flatten)]
    named: Named,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.named.show(whole, print)
}

/// The lease that runs longest of those that are known: others may not have heard of it, or only of the one before.
pub(crate) fn primary(part: &Part) -> Option<OwnerSeen> {
    let owners = part.answers().filter_map(|seen| seen.owner.filter(|owner| owner.until > seen.at));
    owners.max_by_key(|owner| owner.until)
}

fn print(out: &mut impl Write, found: &Found) -> io::Result<()> {
    if let Some((volume, attributes)) = &found.inode {
        let kind = format!("{:?}", attributes.kind).to_lowercase();
        let inode = attributes.inode.number;
        writeln!(out, "{}: {kind}, inode {inode} of volume {volume}; {}", found.name, size(attributes))?;
    }
    for part in &found.parts {
        print_part(out, part)?;
    }
    Ok(())
}

fn print_part(out: &mut impl Write, part: &Part) -> io::Result<()> {
    writeln!(out, "{}, object {:?}", part.what, part.object)?;
    match primary(part) {
        Some(OwnerSeen { process, until }) => writeln!(
            out,
            "  primary: daemon {} (start {}), by a lease until {} UTC unless it is renewed",
            process.node,
            process.incarnation.0,
            utc(until)
        )?,
        None => writeln!(out, "  primary: nobody; whoever is asked for it first")?,
    }
    writeln!(out, "  {:>6}  {:<11} {:>10}  {:>10}  leads", "daemon", "copy", "entries", "committed")?;
    for (node, told) in &part.told {
        match told {
            Ok(seen) if is_concerned(seen) => writeln!(out, "  {:>6}  {}", node.to_string(), row(seen))?,
            Ok(_) => {}
            Err(why) => writeln!(out, "  {:>6}  does not answer: {why}", node.to_string())?,
        }
    }
    Ok(())
}

/// Daemons that are no members and have nothing are not worth a line.
fn is_concerned(seen: &Inspection) -> bool {
    seen.members.contains(&seen.by.node) || seen.replica.is_some()
}

fn row(seen: &Inspection) -> String {
    let leads = match seen.leads {
        LeadsSeen::No => "",
        LeadsSeen::Leasing => "wants the lease",
        LeadsSeen::Recovering => "recovers",
        LeadsSeen::Serving => "serves",
        LeadsSeen::Leaving => "hands over",
    };
    let (state, tail, committed) = match seen.replica {
        Some(replica) => (
            match replica.state {
                ReplicaState::Whole => "whole",
                ReplicaState::Forgot => "forgot some",
                ReplicaState::Incomplete => "incomplete",
                ReplicaState::Retired => "retired",
            },
            replica.tail.0.to_string(),
            replica.committed.0.to_string(),
        ),
        None => ("none", String::new(), String::new()),
    };
    format!("{state:<11} {tail:>10}  {committed:>10}  {leads}").trim_end().to_owned()
}

fn size(attributes: &Attributes) -> String {
    match attributes.lent.map(|lent| lent.to) {
        None => format!("{} bytes, which its volume keeps", attributes.size),
        Some(LentTo::Content) => "its size and times are lent to its content".to_owned(),
        Some(LentTo::Client(client)) => format!("its size and times are lent to {}", named(client)),
    }
}

/// The certificate as `fleasefs cert list` shows its beginning.
fn named(client: ClientId) -> String {
    let certificate: String =
        client.certificate.to_le_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("the client with certificate {certificate}…, program {:016x}", client.program)
}

fn whole(found: &Found) -> Value {
    let part = |part: &Part| {
        let daemon = |(node, told): &(base::NodeId, Result<Inspection, String>)| match told {
            Ok(seen) => json!({
                "daemon": node.0, "answers": true, "leads": seen.leads, "members": seen.members,
                "owner": seen.owner, "replica": seen.replica,
            }),
            Err(why) => json!({ "daemon": node.0, "answers": false, "why": why }),
        };
        json!({
            "what": part.what,
            "object": format!("{:?}", part.object),
            "primary": primary(part),
            "daemons": part.told.iter().map(daemon).collect::<Vec<_>>(),
        })
    };
    let inode = found.inode.as_ref().map(|(volume, attributes)| {
        let lent_to = attributes.lent.map(|lent| match lent.to {
            LentTo::Content => json!("content"),
            LentTo::Client(client) => json!({ "certificate": client.certificate, "program": client.program }),
        });
        json!({
            "volume": volume.as_str(),
            "number": attributes.inode.number,
            "kind": format!("{:?}", attributes.kind).to_lowercase(),
            "size_bytes": attributes.size,
            "lent_to": lent_to,
        })
    });
    json!({
        "name": found.name,
        "inode": inode,
        "parts": found.parts.iter().map(part).collect::<Vec<_>>(),
    })
}
