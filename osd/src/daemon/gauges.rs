//! Keeps the metrics as the daemon is: what is counted elsewhere is read once a second.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Span, WallTime};
use lease::Algorithm;
use net::credentials::CredentialError;
use net::{Link, LinkId, LinkStats};
use node::{Shard, ShardEvent, WorkStatus};
use wire::TimeAnswer;

use super::links::Links;
use crate::http::Pages;
use crate::metrics::{About, Metrics, TAKEN_OVER};

/// Brings the metrics up to date.
pub(super) struct Gauges {
    metrics: Arc<Metrics>,
    /// What of each connection is in the metrics already.
    seen: BTreeMap<LinkId, LinkStats>,
}

struct Page {
    metrics: Arc<Metrics>,
    about: About,
}

impl Pages for Page {
    fn metrics(&self) -> String {
        self.metrics.render(&self.about)
    }
}

/// New metrics, and what shows them.
pub(super) fn start(about: About) -> (Gauges, Arc<dyn Pages>) {
    let metrics = Arc::new(Metrics::default());
    let gauges = Gauges { metrics: metrics.clone(), seen: BTreeMap::new() };
    (gauges, Arc::new(Page { metrics, about }))
}

impl Gauges {
    /// A peer has told its time.
    pub(super) fn exchanged(&self, answer: &TimeAnswer, done: WallTime) {
        let TimeAnswer { asked, received, answered, .. } = *answer;
        let at_peer = answered.since(received);
        self.metrics.round_trip.observe(done.since(asked).saturating_sub(at_peer));
        let difference = |a: WallTime, b: WallTime| i128::from(a.as_micros()) - i128::from(b.as_micros());
        let offset = (difference(received, asked) + difference(answered, done)) / 2;
        let offset_us = u64::try_from(offset.unsigned_abs()).unwrap_or(u64::MAX);
        self.metrics.clock_offset.observe(Span::from_micros(offset_us));
    }

    /// Takes in what the file of the deny list is like, and logs what is wrong with it.
    pub(super) fn deny_list_reporter(&self) -> impl FnMut(Result<(), &CredentialError>) + Send + 'static {
        let metrics = self.metrics.clone();
        move |state| {
            metrics.deny_list_is_stale.set(state.is_err().into());
            if let Err(error) = state {
                tracing::error!("{error}");
            }
        }
    }

    /// Whether the deny list's file cannot be read, so that the list before is in force.
    pub(super) fn deny_list_is_stale(&self) -> bool {
        self.metrics.deny_list_is_stale.get() != 0
    }

    /// A request about a file was replied to after this long.
    pub(super) fn replied(&self, after: Span) {
        self.metrics.reply_time.observe(after);
    }

    /// The shard has told this.
    pub(super) fn note(&self, event: &ShardEvent) {
        let ShardEvent::FileTakenOver { ended, .. } = event else { return };
        let mut values = TAKEN_OVER.iter().zip(&self.metrics.taken_over);
        values.find(|((how, _), _)| how == ended).iter().for_each(|(_, value)| value.count());
    }

    /// Nothing more will go over `link`.
    pub(super) fn closed(&mut self, link: &Link) {
        self.count(link);
        self.seen.remove(&link.id());
    }

    pub(super) fn measure<A: Algorithm>(
        &mut self,
        shard: &Shard<A>,
        now: WallTime,
        (links, done): (&Links, &WorkStatus),
    ) {
        links.all().for_each(|link| self.count(link));
        let (metrics, locks) = (&self.metrics, shard.lock_counts());
        metrics.leases.follow(shard.counters());
        let is_quarantined = shard.leases().silent_until() > now;
        for (value, now) in [
            (&metrics.leases.held, shard.leases_held()),
            (&metrics.locks_held, locks.held),
            (&metrics.locks_waiting, locks.waiting),
            (&metrics.sessions, shard.session_count()),
            (&metrics.peers, links.node_count()),
            (&metrics.in_quarantine, is_quarantined.into()),
            (&metrics.clock_is_trusted, shard.is_trusted().into()),
            (&metrics.disk_is_full, shard.is_full().into()),
            (&metrics.primaries, shard.primaries().0),
        ] {
            value.set(now as u64);
        }
        metrics.work.requests.set(done.requests);
        metrics.work.written_bytes.set(done.written_bytes);
        metrics.work.read_bytes.set(done.read_bytes);
    }

    /// Adds what went over `link` since it was looked at last.
    fn count(&mut self, link: &Link) {
        let mut now = link.stats();
        let before = self.seen.get(&link.id()).copied().unwrap_or_default();
        // What came and is about to be read counts as dropped for a moment, and must not count again and again.
        now.datagrams_dropped_receiving =
            now.datagrams_dropped_receiving.max(before.datagrams_dropped_receiving);
        self.seen.insert(link.id(), now);
        let Metrics { sent, received, packets_lost, .. } = &*self.metrics;
        for (value, now, before) in [
            (&sent.bytes, now.bytes_sent, before.bytes_sent),
            (&sent.packets, now.packets_sent, before.packets_sent),
            (&sent.datagrams_dropped, now.datagrams_dropped_sending, before.datagrams_dropped_sending),
            (&received.bytes, now.bytes_received, before.bytes_received),
            (&received.packets, now.packets_received, before.packets_received),
            (
                &received.datagrams_dropped,
                now.datagrams_dropped_receiving,
                before.datagrams_dropped_receiving,
            ),
            (packets_lost, now.packets_lost, before.packets_lost),
        ] {
            value.add(now.saturating_sub(before));
        }
    }
}
