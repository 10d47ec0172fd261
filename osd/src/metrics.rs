//! What a daemon counts and measures, and how it looks in Prometheus' text format.
//!
//! Whoever counts pays one atomic addition. Everything else is done when somebody asks.

mod text;

use std::sync::atomic::{AtomicU64, Ordering};

use base::{Process, Span};
use lease::{Counters, Reject};
use node::EndedSeen;

use text::Text;

/// What Prometheus has to be told about [`Metrics::render`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All of a daemon's metrics.
#[derive(Debug, Default)]
pub struct Metrics {
    /// What happened to leases.
    pub leases: Leases,
    /// Locks that somebody holds.
    pub locks_held: Value,
    /// Requests for locks that wait.
    pub locks_waiting: Value,
    /// Clients with a session.
    pub sessions: Value,
    /// Peers that this daemon is connected with.
    pub peers: Value,
    /// 1 while this daemon casts no lease vote because it has just started.
    pub in_quarantine: Value,
    /// 1 while this daemon's clock is trusted.
    pub clock_is_trusted: Value,
    /// 1 while the deny list's file cannot be read, and the list before is in force.
    pub deny_list_is_stale: Value,
    /// 1 while the disk takes no more data.
    pub disk_is_full: Value,
    /// How long a packet and its acknowledgement take.
    pub round_trip: Histogram,
    /// How far peers' clocks may be off, either way.
    pub clock_offset: Histogram,
    /// What was sent.
    pub sent: Traffic,
    /// What was received.
    pub received: Traffic,
    /// Packets that were sent and never acknowledged.
    pub packets_lost: Value,
    /// What clients have had done.
    pub work: Work,
    /// How long replies took, from the arrival of the request.
    pub reply_time: Histogram,
    /// Files and volumes that this daemon is primary of.
    pub primaries: Value,
    /// Files and volumes taken over from others, by how their tenure ended.
    pub taken_over: [Value; TAKEN_OVER.len()],
}

/// What clients have asked of files and volumes.
#[derive(Debug, Default)]
pub struct Work {
    /// Requests.
    pub requests: Value,
    /// Bytes of data that came with them.
    pub written_bytes: Value,
    /// Bytes of data that were given.
    pub read_bytes: Value,
}

/// The ends of a tenure after which another primary takes over, and what they are called.
pub const TAKEN_OVER: [(EndedSeen, &str); 3] =
    [(EndedSeen::Died, "died"), (EndedSeen::Expired, "expired"), (EndedSeen::HandedOver, "handed_over")];

/// What happened to leases. Except for the gauge, these follow [`Counters`].
#[derive(Debug, Default)]
pub struct Leases {
    /// Leases that this daemon holds.
    pub held: Value,
    acquired: Value,
    renewed: Value,
    given_up: Value,
    lost: Value,
    denied: Value,
    conflicts: Value,
    timeouts: Value,
    registers_dropped: Value,
    messages: Value,
    rejected: [Value; Reject::ALL.len()],
}

/// What went one way.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Bytes of UDP payload.
    pub bytes: Value,
    /// Packets.
    pub packets: Value,
    /// Datagrams that were given up because a queue was full.
    pub datagrams_dropped: Value,
}

/// A number that goes up, or up and down.
#[derive(Debug, Default)]
pub struct Value(AtomicU64);

/// How often a span was how long.
#[derive(Debug, Default)]
pub struct Histogram {
    /// One for each of [`BOUNDS`], and one for what is longer.
    buckets: [Value; BOUNDS.len() + 1],
    sum_us: Value,
}

/// Upper ends of the buckets of a histogram. They double from 50 µs, about a round trip on one machine, to 1.6 s.
const BOUNDS: [Span; 16] = {
    let mut bounds = [Span::from_micros(50); 16];
    let mut i = 1;
    while i < bounds.len() {
        bounds[i] = Span::from_micros(bounds[i - 1].as_micros() * 2);
        i += 1;
    }
    bounds
};

/// What does not change while a daemon runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct About {
    /// The daemon.
    pub process: Process,
    /// How often its supervisor had to start it again.
    pub restarts: u64,
    /// The bound on the difference between two clocks.
    pub epsilon: Span,
}

impl Value {
    /// One more.
    pub fn count(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Now so many.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Histogram {
    /// Counts a span.
    pub fn observe(&self, span: Span) {
        let bucket = BOUNDS.partition_point(|bound| *bound < span);
        self.buckets[bucket].count();
        self.sum_us.add(span.as_micros());
    }
}

impl Leases {
    /// Takes over what the lease protocol has counted.
    pub fn follow(&self, counters: &Counters) {
        for (value, count) in [
            (&self.acquired, counters.acquired),
            (&self.renewed, counters.renewed),
            (&self.given_up, counters.given_up),
            (&self.lost, counters.lost),
            (&self.denied, counters.denied),
            (&self.conflicts, counters.conflicts),
            (&self.timeouts, counters.timeouts),
            (&self.registers_dropped, counters.dropped),
            (&self.messages, counters.received),
        ] {
            value.set(count);
        }
        for (value, why) in self.rejected.iter().zip(Reject::ALL) {
            value.set(counters.rejected(*why));
        }
    }

    fn write(&self, text: &mut Text) {
        text.gauge("leases_held", "Leases that this daemon holds.", self.held.get());
        for (name, help, value) in [
            ("leases_acquired", "Leases acquired.", &self.acquired),
            ("leases_renewed", "Leases renewed.", &self.renewed),
            ("leases_given_up", "Leases given up on purpose.", &self.given_up),
            ("leases_lost", "Leases lost.", &self.lost),
            ("leases_denied", "Acquisitions that ended without a lease.", &self.denied),
            ("lease_conflicts", "Attempts that met a higher ballot.", &self.conflicts),
            ("lease_timeouts", "Attempts that no majority answered in time.", &self.timeouts),
            ("lease_registers_dropped", "Registers dropped because they were idle.", &self.registers_dropped),
            ("lease_messages", "Lease messages received.", &self.messages),
        ] {
            text.counter(name, help, value.get());
        }
        let rejected = Reject::ALL.iter().zip(&self.rejected).map(|(why, value)| (why.label(), value.get()));
        text.counters("lease_messages_rejected", "Lease messages that were refused.", "reason", rejected);
    }
}

impl Metrics {
    /// All of it in Prometheus' text format.
    pub fn render(&self, about: &About) -> String {
        let mut text = Text::default();
        let About { process, restarts, epsilon } = *about;
        text.gauge("node", "Which daemon of the cluster map this is.", process.node.0.into());
        text.gauge("incarnation", "Which start of its store this is.", process.incarnation.0.into());
        text.counter("restarts", "How often the supervisor had to start the daemon again.", restarts);
        self.leases.write(&mut text);
        for (name, help, value) in [
            ("locks_held", "Locks that somebody holds.", &self.locks_held),
            ("locks_waiting", "Requests for locks that wait.", &self.locks_waiting),
            ("sessions", "Clients with a session.", &self.sessions),
            ("peers", "Peers that this daemon is connected with.", &self.peers),
            ("in_quarantine", "1 while no lease vote is cast after a start.", &self.in_quarantine),
            ("clock_is_trusted", "1 while this daemon's clock is trusted.", &self.clock_is_trusted),
            ("deny_list_is_stale", "1 while the deny list cannot be read.", &self.deny_list_is_stale),
            ("disk_is_full", "1 while the disk takes no more data.", &self.disk_is_full),
            ("primaries", "Files and volumes that this daemon is primary of.", &self.primaries),
        ] {
            text.gauge(name, help, value.get());
        }
        text.seconds("clock_epsilon", "The bound on the difference between two clocks.", epsilon);
        let (bounds, offset) = (&BOUNDS, &self.clock_offset);
        for (name, help, histogram) in [
            ("round_trip", "How long a packet and its acknowledgement take.", &self.round_trip),
            ("clock_offset", "How far peers' clocks may be off, either way.", offset),
            ("reply_time", "How long replies about files took in this daemon.", &self.reply_time),
        ] {
            let counts = histogram.buckets.each_ref().map(Value::get);
            text.histogram(name, help, (bounds, &counts), Span::from_micros(histogram.sum_us.get()));
        }
        let [sent, received] = [&self.sent, &self.received].map(|traffic| {
            let Traffic { bytes, packets, datagrams_dropped } = traffic;
            [bytes.get(), packets.get(), datagrams_dropped.get()]
        });
        for (i, (name, help)) in [
            ("network_bytes", "Bytes of UDP payload."),
            ("network_packets", "UDP packets."),
            ("datagrams_dropped", "Datagrams that were given up because a queue was full."),
        ]
        .into_iter()
        .enumerate()
        {
            text.counters(name, help, "direction", [("sent", sent[i]), ("received", received[i])]);
        }
        let lost = self.packets_lost.get();
        text.counter("packets_lost", "Packets that were sent and never acknowledged.", lost);
        let Work { requests, written_bytes, read_bytes } = &self.work;
        text.counter("requests", "Requests about files and volumes.", requests.get());
        let data = [("written", written_bytes.get()), ("read", read_bytes.get())];
        text.counters("data_bytes", "Bytes of clients' data.", "direction", data);
        let taken = TAKEN_OVER.iter().zip(&self.taken_over).map(|((_, why), value)| (*why, value.get()));
        text.counters("files_taken_over", "Files and volumes taken over, by the end before.", "ended", taken);
        text.finish()
    }
}

#[cfg(test)]
mod tests {
    use base::{Incarnation, NodeId};

    use super::*;

    const ABOUT: About = About {
        process: Process { node: NodeId(3), incarnation: Incarnation(7) },
        restarts: 2,
        epsilon: Span::from_millis(100),
    };

    /// The value of the sample that is written as `sample`.
    fn value(text: &str, sample: &str) -> String {
        let mut found = text.lines().filter_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        let value = found.next().unwrap_or_else(|| panic!("no {sample} in\n{text}"));
        assert_eq!(found.next(), None, "{sample} stands there twice");
        value.to_owned()
    }

    #[test]
    fn what_was_counted_is_rendered() {
        let metrics = Metrics::default();
        metrics.sessions.set(4);
        metrics.work.written_bytes.set(4_096);
        metrics.taken_over[1].count();
        metrics.reply_time.observe(Span::from_micros(60));
        metrics.deny_list_is_stale.set(1);
        metrics.sent.bytes.add(1_000);
        metrics.received.datagrams_dropped.count();
        let mut counters = Counters::default();
        counters.acquired = 5;
        metrics.leases.follow(&counters);
        let text = metrics.render(&ABOUT);
        for (sample, expected) in [
            ("fleasefs_node", "3"),
            ("fleasefs_incarnation", "7"),
            ("fleasefs_restarts_total", "2"),
            ("fleasefs_sessions", "4"),
            ("fleasefs_deny_list_is_stale", "1"),
            ("fleasefs_leases_acquired_total", "5"),
            ("fleasefs_lease_messages_rejected_total{reason=\"too_old\"}", "0"),
            ("fleasefs_network_bytes_total{direction=\"sent\"}", "1000"),
            ("fleasefs_datagrams_dropped_total{direction=\"received\"}", "1"),
            ("fleasefs_clock_epsilon_seconds", "0.1"),
            ("fleasefs_data_bytes_total{direction=\"written\"}", "4096"),
            ("fleasefs_files_taken_over_total{ended=\"expired\"}", "1"),
            ("fleasefs_reply_time_seconds_bucket{le=\"0.0001\"}", "1"),
        ] {
            assert_eq!(value(&text, sample), expected, "{sample}");
        }
    }

    #[test]
    fn a_histogram_counts_what_is_not_longer_than_its_bounds() {
        let metrics = Metrics::default();
        for micros in [0, 50, 51, 1_638_400, 1_638_401] {
            metrics.round_trip.observe(Span::from_micros(micros));
        }
        let text = metrics.render(&ABOUT);
        for (sample, expected) in [
            ("fleasefs_round_trip_seconds_bucket{le=\"0.00005\"}", "2"),
            ("fleasefs_round_trip_seconds_bucket{le=\"0.0001\"}", "3"),
            ("fleasefs_round_trip_seconds_bucket{le=\"1.6384\"}", "4"),
            ("fleasefs_round_trip_seconds_bucket{le=\"+Inf\"}", "5"),
            ("fleasefs_round_trip_seconds_count", "5"),
            ("fleasefs_round_trip_seconds_sum", "3.276902"),
            ("fleasefs_clock_offset_seconds_count", "0"),
        ] {
            assert_eq!(value(&text, sample), expected, "{sample}");
        }
    }

    #[test]
    fn every_line_is_a_comment_or_a_sample_of_the_family_above_it() {
        let text = Metrics::default().render(&ABOUT);
        let mut family = "";
        let mut seen = std::collections::BTreeSet::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                family = help.split(' ').next().unwrap();
                assert!(seen.insert(family), "{family} is described twice");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let kind = kind.strip_prefix(family).unwrap().trim();
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            } else {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(name.starts_with(family) && value.parse::<f64>().is_ok(), "{line}");
            }
        }
        assert!(text.ends_with('\n') && seen.len() > 20);
    }
}
