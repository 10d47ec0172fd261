//! What has changed between two looks at a cluster: the log of `fleasefs top`.

use std::fmt;

use base::{NodeId, WallTime};
use client::{DaemonState, Status};
use node::{ClockTrust, DrainStatus};

use super::Sample;
use crate::when::utc;

/// Something that happened, and when it was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Change {
    at: String,
    what: String,
}

impl Change {
    pub(super) fn new(at: &str, what: &str) -> Self {
        Self { at: at.to_owned(), what: what.to_owned() }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", self.at, self.what)
    }
}

/// What has changed from one look to the next.
pub(super) fn between(before: &Sample, after: &Sample) -> Vec<Change> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = WallTime::from_micros(u64::try_from(since.as_micros()).unwrap_or(0));
    let whole = utc(now);
    let at = whole.split_once(' ').map_or(whole.as_str(), |(_, time)| time);
    let changes = after.states.iter().flat_map(|state| {
        let earlier = before.states.iter().find(|earlier| earlier.node == state.node);
        earlier.map_or_else(Vec::new, |earlier| of_one(earlier, state))
    });
    changes.map(|what| Change::new(at, &what)).collect()
}

fn of_one(before: &DaemonState, after: &DaemonState) -> Vec<String> {
    let node = after.node;
    match (&before.status, &after.status) {
        (Ok(_), Err(why)) => vec![format!("daemon {node} does not answer: {why}")],
        (Err(_), Ok(status)) => {
            vec![format!("daemon {node} answers, start {}", status.daemon.process.incarnation.0)]
        }
        (Err(_), Err(_)) => Vec::new(),
        (Ok(before), Ok(after)) => of_running(node, before, after),
    }
}

fn of_running(node: NodeId, before: &Status, after: &Status) -> Vec<String> {
    let mut said = Vec::new();
    if after.daemon.process != before.daemon.process {
        return vec![format!("daemon {node} has started anew, start {}", after.daemon.process.incarnation.0)];
    }
    if before.quarantine_ms > 0 && after.quarantine_ms == 0 {
        said.push(format!("daemon {node} votes again"));
    }
    if before.drain != after.drain {
        said.push(match after.drain {
            DrainStatus::No => format!("daemon {node} takes leases again"),
            DrainStatus::Draining => format!("daemon {node} hands over what it leads"),
            DrainStatus::Drained => format!("daemon {node} is drained"),
            DrainStatus::Stopping => format!("daemon {node} stops"),
        });
    }
    if before.clock.state != after.clock.state {
        said.push(match after.clock.state {
            ClockTrust::Sound => format!("daemon {node}'s clock agrees with a majority"),
            ClockTrust::Joining => format!("daemon {node} hears no majority"),
            ClockTrust::Off => format!("daemon {node}'s clock is off"),
        });
    }
    let lost = after.leases.lost.saturating_sub(before.leases.lost);
    if lost > 0 {
        said.push(format!("daemon {node} lost {lost} leases that ran out"));
    }
    let took = after.leases.acquired.saturating_sub(before.leases.acquired);
    let (had, has) = (before.leases.primaries, after.leases.primaries);
    if has > had && took > 0 {
        said.push(format!("daemon {node} took over or began to lead {} files", has - had));
    }
    for (earlier, peer) in before.peers.iter().zip(&after.peers) {
        if earlier.connected && !peer.connected {
            said.push(format!("daemon {node} has lost its connection to daemon {}", peer.node));
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use base::{ClusterId, Process, StoreId};
    use node::{ClockStatus, DaemonStatus, LeaseStatus, LockStatus, PeerStatus, WorkStatus};

    use super::*;

    fn status() -> Status {
        let peer = PeerStatus {
            node: NodeId(2),
            incarnation: None,
            connected: true,
            round_trip_us: None,
            last_heard_ms: None,
            offset_us: None,
        };
        Status {
            daemon: DaemonStatus {
                process: Process::new(1, 4),
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
            certificate_expires_unix_s: 0,
            deny_list_is_stale: false,
            disk_is_full: false,
            disk_free_bytes: 0,
            supervisor: None,
            drain: DrainStatus::No,
            page: None,
            peers: vec![peer],
            lacking: Vec::new(),
            blocked: Vec::new(),
        }
    }

    fn said(before: Result<Status, &str>, after: Result<Status, &str>) -> Vec<String> {
        let state = |status: Result<Status, &str>| DaemonState {
            node: NodeId(1),
            address: "a:1".to_owned(),
            status: status.map(Box::new).map_err(ToOwned::to_owned),
        };
        of_one(&state(before), &state(after))
    }

    #[test]
    fn what_happened_to_a_daemon_is_said_once() {
        assert_eq!(said(Ok(status()), Ok(status())), [""; 0]);
        assert_eq!(said(Err("gone"), Err("gone")), [""; 0]);
        assert_eq!(said(Ok(status()), Err("gone")), ["daemon 1 does not answer: gone"]);
        assert_eq!(said(Err("gone"), Ok(status())), ["daemon 1 answers, start 4"]);
        let mut anew = status();
        anew.daemon.process = Process::new(1, 5);
        assert_eq!(said(Ok(status()), Ok(anew)), ["daemon 1 has started anew, start 5"]);
        let drained = Status { drain: DrainStatus::Drained, ..status() };
        assert_eq!(said(Ok(status()), Ok(drained)), ["daemon 1 is drained"]);
        let mut later = status();
        later.leases = LeaseStatus { primaries: 2, acquired: 3, lost: 1, ..later.leases };
        later.peers[0].connected = false;
        let expected = [
            "daemon 1 lost 1 leases that ran out",
            "daemon 1 took over or began to lead 2 files",
            "daemon 1 has lost its connection to daemon 2",
        ];
        assert_eq!(said(Ok(status()), Ok(later)), expected);
    }
}
