//! What is wrong with a cluster, said plainly.

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, ObjectId, Span};
use node::{BlockedStatus, ClockTrust, DrainStatus, LackingStatus, STATUS_BLOCKED_MAX, Status};

use crate::DaemonState;

/// A certificate that expires this soon is worth a word.
const EXPIRY_WARNING_S: u64 = 30 * 24 * 3_600;
const DAY_S: u64 = 24 * 3_600;

/// What is wrong, one line each; nothing if all is well. `now_s` counts from 1970.
pub fn problems(states: &[DaemonState], now_s: u64) -> Vec<String> {
    let mut found = Vec::new();
    let down = states.iter().filter(|state| state.status.is_err()).count();
    if down * 2 >= states.len() && down > 0 {
        let all = states.len();
        let who = if all == 1 {
            "the only daemon does not answer".to_owned()
        } else {
            format!("{down} of {all} daemons do not answer")
        };
        found.push(format!("{who}: without a majority nothing can be locked"));
    }
    found.extend(lacking(states));
    found.extend(blocked(states));
    for state in states {
        let who = format!("daemon {} at {}", state.node, state.address);
        match &state.status {
            Ok(status) => {
                found.extend(of_one(status, now_s).into_iter().map(|what| format!("{who}: {what}")))
            }
            Err(why) => found.push(format!("{who}: {why}")),
        }
    }
    found
}

/// What waits for a majority. Each of its members that answers says so, of what it has.
fn lacking(states: &[DaemonState]) -> Vec<String> {
    let mut all = BTreeMap::new();
    for status in states.iter().filter_map(|state| state.status.as_ref().ok()) {
        for LackingStatus { members, objects } in &status.lacking {
            let is_gone =
                |node: &&NodeId| status.peers.iter().any(|peer| peer.node == **node && !peer.connected);
            let gone: Vec<NodeId> = members.iter().filter(is_gone).copied().collect();
            let most: &mut u64 = all.entry((members, gone)).or_default();
            *most = (*most).max(*objects);
        }
    }
    let tell = |((members, gone), objects): ((&Vec<NodeId>, Vec<NodeId>), u64)| {
        format!(
            "{objects} files and volumes that daemons {} store lack a majority, because daemon{} {} cannot be reached: who uses them waits",
            listed(members),
            if gone.len() == 1 { "" } else { "s" },
            listed(&gone)
        )
    };
    all.into_iter().map(tell).collect()
}

/// Whose recovery waits for a daemon, or for an operator.
fn blocked(states: &[DaemonState]) -> Vec<String> {
    let mut all: BTreeMap<String, BTreeSet<ObjectId>> = BTreeMap::new();
    for blocked in waiting(states) {
        all.entry(what_may_be_lost(blocked)).or_default().insert(blocked.object);
    }
    let is_cut = |status: &Status| status.blocked.len() >= STATUS_BLOCKED_MAX;
    let is_cut = states.iter().any(|state| state.status.as_ref().is_ok_and(|status| is_cut(status)));
    let at_least = if is_cut { "at least " } else { "" };
    let tell = |(why, objects): (String, BTreeSet<ObjectId>)| {
        format!(
            "{at_least}{} files and volumes wait: {why}; start what is down, or see `fleasefs accept-loss`",
            objects.len()
        )
    };
    all.into_iter().map(tell).collect()
}

/// The recoveries that wait, as the daemons tell that answer. Several may tell of one.
pub fn waiting(states: &[DaemonState]) -> impl Iterator<Item = &BlockedStatus> {
    states.iter().filter_map(|state| state.status.as_ref().ok()).flat_map(|status| &status.blocked)
}

/// Why a recovery does not go on, and whose changes are lost if it does.
pub fn what_may_be_lost(blocked: &BlockedStatus) -> String {
    let BlockedStatus { missing, forgot, .. } = blocked;
    let daemons = |nodes: &[NodeId], one: &str, several: &str| match nodes {
        [node] => format!("daemon {node} {one}"),
        nodes => format!("daemons {} {several}", listed(nodes)),
    };
    let lost = daemons(forgot, "has", "have");
    match (missing.is_empty(), forgot.is_empty()) {
        (true, _) => {
            format!("{lost} changes that cannot be read there any more, and nobody else has them all")
        }
        (false, true) => {
            format!(
                "{} may have changes that nobody else can give",
                daemons(missing, "does not answer and", "do not answer and")
            )
        }
        (false, false) => format!(
            "{} may have changes that nobody else remembers, as {lost} lost some of what was there",
            daemons(missing, "does not answer and", "do not answer and")
        ),
    }
}

fn listed(nodes: &[NodeId]) -> String {
    nodes.iter().map(|node| node.0.to_string()).collect::<Vec<_>>().join(", ")
}

fn of_one(status: &Status, now_s: u64) -> Vec<String> {
    let mut found = Vec::new();
    if status.quarantine_ms > 0 {
        found.push(format!("started recently and votes again in {} ms", status.quarantine_ms));
    }
    let epsilon = Span::from_micros(status.clock.epsilon_us);
    match status.clock.state {
        ClockTrust::Sound => {}
        ClockTrust::Joining => {
            found.push(format!("does not know yet whether its clock is within {epsilon} of a majority; check that it reaches the others"));
        }
        ClockTrust::Off => found.push(format!(
            "its clock is off by more than {epsilon} allows, so it owns nothing; synchronise it (chronyd, systemd-timesyncd)"
        )),
    }
    for peer in status.peers.iter().filter(|peer| !peer.connected) {
        found.push(format!("has no connection to daemon {}", peer.node));
    }
    let left_s = status.certificate_expires_unix_s.saturating_sub(now_s);
    if left_s == 0 {
        found.push("its certificate has expired; renew it with `fleasefs cert renew`".to_owned());
    } else if left_s < EXPIRY_WARNING_S {
        let when = match left_s / DAY_S {
            0 => "in less than a day".to_owned(),
            1 => "in 1 day".to_owned(),
            days => format!("in {days} days"),
        };
        found.push(format!("its certificate expires {when}; renew it with `fleasefs cert renew`"));
    }
    if status.deny_list_is_stale {
        found.push(
            "its deny list cannot be read, so the one before stays in force; its log names the mistake: correct the file"
                .to_owned(),
        );
    }
    if status.disk_is_full {
        found.push(
            "its disk is nearly full, so files take no more data: remove objects, or make space on the disk"
                .to_owned(),
        );
    }
    if let Some(fault) = status.page.as_ref().and_then(|page| page.fault.as_ref()) {
        found.push(format!("its page and its metrics are not served: {fault}; free the port, or set `metrics` in its configuration"));
    }
    if status.supervisor.is_some_and(|supervisor| supervisor.crash_looping) {
        found.push("ends again and again soon after its start; its log says why".to_owned());
    }
    // What an operator has drained is as it is meant to be.
    if status.drain == DrainStatus::Stopping {
        found.push("is stopping".to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use base::{ClusterId, NodeId, Process, StoreId};
    use node::{ClockStatus, DaemonStatus, LeaseStatus, LockStatus, PageStatus, WorkStatus};

    use super::*;

    const NOW_S: u64 = 1_000_000;

    fn well() -> Status {
        Status {
            daemon: DaemonStatus {
                process: Process::new(1, 1),
                store: StoreId([1; 16]),
                version: "0.1.0".to_owned(),
                uptime_ms: 1_000,
            },
            cluster: ClusterId([2; 16]),
            map_version: 1,
            map_digest: String::new(),
            quarantine_ms: 0,
            clock: ClockStatus { state: ClockTrust::Sound, offset_max_us: None, epsilon_us: 100_000 },
            leases: LeaseStatus::default(),
            locks: LockStatus::default(),
            work: WorkStatus::default(),
            certificate_expires_unix_s: NOW_S + EXPIRY_WARNING_S,
            deny_list_is_stale: false,
            disk_is_full: false,
            disk_free_bytes: 1 << 40,
            supervisor: None,
            drain: DrainStatus::No,
            page: None,
            peers: Vec::new(),
            lacking: Vec::new(),
            blocked: Vec::new(),
        }
    }

    fn problems_of(status: Result<Status, String>) -> Vec<String> {
        problems(
            &[DaemonState { node: NodeId(1), address: "a:1".to_owned(), status: status.map(Box::new) }],
            NOW_S,
        )
    }

    #[test]
    fn what_is_wrong_is_said_in_whole_words() {
        assert_eq!(problems_of(Ok(well())), [""; 0]);
        let expiring = |left_s| Status { certificate_expires_unix_s: NOW_S + left_s, ..well() };
        let page = |fault: &str| PageStatus {
            url: "http://127.0.0.1:7/".to_owned(),
            needs_token: false,
            fault: Some(fault.to_owned()),
        };
        for (status, expected) in [
            (expiring(2 * DAY_S), "expires in 2 days;"),
            (expiring(DAY_S), "expires in 1 day;"),
            (expiring(DAY_S - 1), "expires in less than a day;"),
            (expiring(0), "has expired;"),
            (
                Status { deny_list_is_stale: true, ..well() },
                "its deny list cannot be read, so the one before",
            ),
            (Status { disk_is_full: true, ..well() }, "its disk is nearly full"),
            (
                Status { page: Some(page("taken")), ..well() },
                "its page and its metrics are not served: taken; free",
            ),
        ] {
            let found = problems_of(Ok(status));
            assert!(found.len() == 1 && found[0].starts_with("daemon 1 at a:1: "), "{found:?}");
            assert!(found[0].contains(expected), "{found:?} lack {expected}");
        }
        let blocked = |missing: &[u32], forgot: &[u32]| {
            let nodes = |ids: &[u32]| ids.iter().copied().map(NodeId).collect();
            let blocked =
                BlockedStatus { object: ObjectId::new(1, 2), missing: nodes(missing), forgot: nodes(forgot) };
            problems_of(Ok(Status { blocked: vec![blocked.clone(), blocked], ..well() }))
        };
        for (missing, forgot, expected) in [
            (
                &[3][..],
                &[2][..],
                "daemon 3 does not answer and may have changes that nobody else remembers, as daemon 2 has lost some",
            ),
            (&[3, 4], &[1, 2], "daemons 3, 4 do not answer and may have"),
            (&[3], &[], "daemon 3 does not answer and may have changes that nobody else can give;"),
            (&[], &[2], "daemon 2 has changes that cannot be read there any more"),
        ] {
            let found = blocked(missing, forgot);
            let expected = format!("1 files and volumes wait: {expected}");
            assert!(found.len() == 1 && found[0].starts_with(&expected), "{found:?} lack {expected}");
        }
        assert!(problems_of(Err("refused".to_owned()))[0].starts_with("the only daemon does not answer: "));
    }
}
