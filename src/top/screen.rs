//! What `fleasefs top` shows of two looks at a cluster.

use std::time::Duration;

use client::{DaemonState, Status};
use node::{ClockTrust, DrainStatus};
use serde_json::{Value, json};

use super::Sample;

/// The daemons with what each did in between.
pub(super) struct Shown {
    cluster: String,
    rows: Vec<Row>,
}

/// One daemon.
struct Row {
    state: DaemonState,
    /// None if it did not run all the time.
    rates: Option<Rates>,
}

/// What a daemon did in a second.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Rates {
    requests: f64,
    written_bytes: f64,
    read_bytes: f64,
    acquired: f64,
    renewed: f64,
}

impl Shown {
    pub(super) fn of(before: &Sample, after: &Sample, cluster: String) -> Self {
        let span = after.at.saturating_duration_since(before.at);
        let row = |state: &DaemonState| {
            let earlier = before.states.iter().find(|earlier| earlier.node == state.node);
            let rates = match (earlier.map(|earlier| &earlier.status), &state.status) {
                (Some(Ok(before)), Ok(after)) => rates(before, after, span),
                _ => None,
            };
            Row { state: state.clone(), rates }
        };
        Self { cluster, rows: after.states.iter().map(row).collect() }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let answering = self.rows.iter().filter(|row| row.state.status.is_ok()).count();
        let rates = self.rows.iter().filter_map(|row| row.rates);
        let all = rates.fold(Rates::default(), |all, one| Rates {
            requests: all.requests + one.requests,
            written_bytes: all.written_bytes + one.written_bytes,
            read_bytes: all.read_bytes + one.read_bytes,
            acquired: all.acquired + one.acquired,
            renewed: all.renewed + one.renewed,
        });
        let mut lines = vec![
            format!("cluster {}, {answering} of {} daemons answer", self.cluster, self.rows.len()),
            format!(
                "requests {:.0}/s, written {}/s, read {}/s, leases taken {:.0}/s, renewed {:.0}/s",
                all.requests,
                bytes(all.written_bytes),
                bytes(all.read_bytes),
                all.acquired,
                all.renewed
            ),
            String::new(),
            format!(
                "{:>6} {:>6} {:<11} {:>8} {:>7} {:>7} {:>10} {:>10} {:>10} {:>8}",
                "daemon",
                "start",
                "state",
                "primary",
                "locks",
                "clients",
                "requests/s",
                "written/s",
                "read/s",
                "leases/s"
            ),
        ];
        lines.extend(self.rows.iter().map(Row::line));
        lines
    }

    pub(super) fn json(&self) -> Value {
        let row = |row: &Row| match &row.state.status {
            Ok(status) => json!({
                "daemon": row.state.node.0,
                "answers": true,
                "state": state_of(status),
                "start": status.daemon.process.incarnation.0,
                "primaries": status.leases.primaries,
                "locks": status.leases.held,
                "clients": status.locks.sessions,
                "rates_per_s": row.rates.map(|rates| json!({
                    "requests": rates.requests,
                    "written_bytes": rates.written_bytes,
                    "read_bytes": rates.read_bytes,
                    "leases_acquired": rates.acquired,
                    "leases_renewed": rates.renewed,
                })),
            }),
            Err(why) => json!({ "daemon": row.state.node.0, "answers": false, "why": why }),
        };
        json!({ "cluster": self.cluster, "daemons": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

impl Row {
    fn line(&self) -> String {
        let node = self.state.node.to_string();
        let status = match &self.state.status {
            Ok(status) => status,
            Err(why) => return format!("{node:>6} {:>6} does not answer: {why}", ""),
        };
        let rates = self.rates.unwrap_or_default();
        format!(
            "{node:>6} {:>6} {:<11} {:>8} {:>7} {:>7} {:>10.0} {:>10} {:>10} {:>8.0}",
            status.daemon.process.incarnation.0,
            state_of(status),
            status.leases.primaries,
            status.leases.held,
            status.locks.sessions,
            rates.requests,
            bytes(rates.written_bytes),
            bytes(rates.read_bytes),
            rates.acquired
        )
    }
}

/// None if it is another process, whose counts begin anew.
fn rates(before: &Status, after: &Status, span: Duration) -> Option<Rates> {
    let seconds = span.as_secs_f64();
    if before.daemon.process != after.daemon.process || seconds <= 0.0 {
        return None;
    }
    let rate = |before: u64, after: u64| after.saturating_sub(before) as f64 / seconds;
    Some(Rates {
        requests: rate(before.work.requests, after.work.requests),
        written_bytes: rate(before.work.written_bytes, after.work.written_bytes),
        read_bytes: rate(before.work.read_bytes, after.work.read_bytes),
        acquired: rate(before.leases.acquired, after.leases.acquired),
        renewed: rate(before.leases.renewed, after.leases.renewed),
    })
}

fn state_of(status: &Status) -> &'static str {
    match (status.drain, status.clock.state) {
        _ if status.quarantine_ms > 0 => "quarantined",
        (DrainStatus::Stopping, _) => "stopping",
        (_, ClockTrust::Joining) => "joining",
        (_, ClockTrust::Off) => "clock off",
        (DrainStatus::Draining, _) => "draining",
        (DrainStatus::Drained, _) => "drained",
        (DrainStatus::No, ClockTrust::Sound) => "ok",
    }
}

fn bytes(count: f64) -> String {
    match count {
        count if count < 10_000.0 => format!("{count:.0} B"),
        count if count < 10_000_000.0 => format!("{:.0} kB", count / 1e3),
        count => format!("{:.0} MB", count / 1e6),
    }
}
